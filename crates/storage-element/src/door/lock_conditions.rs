//! What a changing request must show before it may go on: the conditions of its `If` header, and the tokens of the
//! locks in its way (RFC 4918 §7, §10.4). Without a lock on the site and without the header this costs nothing.

use super::answer::{Problem, Response};
use super::conditions::{etag, of_etag};
use super::destination::local_path;
use super::handler_context::{Call, Door};
use crate::claims::RegisteredChange;
use http::StatusCode;
use penstock_decide::authorization::PathOperation;
use penstock_decide::locking::{LockRequester, WriteScope};
use penstock_model::{LockToken, NamespacePath, ProblemCode};
use penstock_persistence::namespace::EntryId;
use penstock_protocol::webdav::{
    self, IfHeader, Test, begin_multistatus, end_multistatus, write_status,
};

/// Locked members that an answer names.
const NAMED_MAX: usize = 100;

/// The lock tokens that came with a request whose conditions hold.
#[derive(Default)]
pub(super) struct ValidLockTokens(pub Vec<LockToken>);

impl Door {
    /// Evaluates the `If` header: 400 when it is not understood, 412 when it does not hold.
    pub(super) fn check_if(&self, call: &Call<'_>) -> Result<ValidLockTokens, Problem> {
        let header = IfHeader::parse(&call.request.headers)
            .map_err(|why| Problem::bad_request(why.to_string()))?;
        let Some(header) = header else {
            return Ok(ValidLockTokens(Vec::new()));
        };
        let mut unreadable = None;
        let satisfied = header.is_satisfied(|resource, test| {
            let path = match resource {
                None => Some(call.path.clone()),
                // A resource of another server has no state that could be known here.
                Some(url) => local_path(self, &call.request.headers, url).ok().flatten(),
            };
            // Nor has one that the client may know nothing of.
            let path = path.filter(|path| {
                path == call.path || self.allows(call.caller, &PathOperation::Stat, path)
            });
            let holds = path.map_or(Ok(false), |path| self.holds(&path, test));
            holds.unwrap_or_else(|problem| {
                unreadable = Some(problem);
                false
            })
        });
        match (unreadable, satisfied) {
            (Some(problem), _) => Err(problem),
            (None, true) => Ok(ValidLockTokens(
                header.submitted().filter_map(LockToken::parse).collect(),
            )),
            (None, false) => Err(Problem::new(
                ProblemCode::PreconditionFailed,
                "no list of the 'If' header holds: a lock has ended, or the file has changed; look at it again",
            )),
        }
    }

    /// The only file at a path that may be replaced, because the `If` header names its version. What stands there was judged
    /// before, and somebody else may replace it before the change.
    pub(super) fn only_file_at(
        &self,
        call: &Call<'_>,
        path: &NamespacePath,
    ) -> Result<Option<EntryId>, Problem> {
        let headers = &call.request.headers;
        let header =
            IfHeader::parse(headers).map_err(|why| Problem::bad_request(why.to_string()))?;
        let Some(IfHeader { lists }) = header else {
            return Ok(None);
        };
        let is_demand = lists.len() == 1;
        let of_path = lists.into_iter().filter(|list| {
            let resource = list.resource.as_deref();
            let found = resource.and_then(|url| local_path(self, headers, url).ok().flatten());
            found.as_ref() == Some(path)
        });
        let conditions = of_path.flat_map(|list| list.conditions);
        let named: Vec<EntryId> = conditions
            .filter(|condition| !condition.negated)
            .filter_map(|condition| match condition.test {
                Test::Etag(tag) => of_etag(&tag),
                Test::Token(_) => None,
            })
            .collect();
        let entry = match named.is_empty() {
            true => None,
            false => self.storage.namespace.lookup(path)?,
        };
        let current = entry.map(|entry| entry.id).filter(|id| named.contains(id));
        // Another list may be what holds.
        Ok(current.or(named.first().copied().filter(|_| is_demand)))
    }

    fn holds(&self, path: &NamespacePath, test: &Test) -> Result<bool, Problem> {
        match test {
            Test::Token(token) => Ok(LockToken::parse(token).is_some_and(|token| {
                !self.storage.locks.is_empty()
                    && self.storage.with_locks(|table| {
                        table.covering(path).iter().any(|lock| lock.token == token)
                    })
            })),
            Test::Etag(tag) => {
                let entry = self.storage.namespace.lookup(path)?;
                let file = entry.filter(|entry| !entry.is_directory());
                Ok(file.is_some_and(|file| etag(file.id).as_bytes() == tag.as_bytes()))
            }
        }
    }

    /// Refuses what a lock forbids: 423 when what the request names is locked, or 207 with each locked member. The change
    /// is registered before.
    pub(super) fn check_locks(
        &self,
        _registered: &impl RegisteredChange,
        call: &Call<'_>,
        tokens: &ValidLockTokens,
        touched: impl FnOnce() -> Result<Vec<WriteScope>, Problem>,
    ) -> Result<(), Problem> {
        if self.storage.locks.is_empty() {
            return Ok(());
        }
        let touched = touched()?;
        let user = call.caller.holder();
        let holder = LockRequester {
            user: user.as_ref(),
            macaroon: call.caller.macaroon(),
            tokens: &tokens.0,
        };
        let roots = self
            .storage
            .with_locks(|table| table.in_the_way(&touched, &holder));
        match roots.is_empty() {
            true => Ok(()),
            false => Err(self.lock_problem(&touched, &roots)),
        }
    }

    fn lock_problem(&self, touched: &[WriteScope], roots: &[NamespacePath]) -> Problem {
        let is_member = |root: &NamespacePath| {
            touched.iter().any(|touched| match touched {
                WriteScope::Tree(path) => root.is_within(path) && root != path,
                WriteScope::Itself(_) => false,
            })
        };
        let (members, named): (Vec<_>, Vec<_>) = roots.iter().cloned().partition(is_member);
        if named.is_empty() {
            return self.failed_members(&members, StatusCode::LOCKED, None);
        }
        // RFC 4918 §16: the client learns which lock it should show.
        let first = &named[0];
        let text = format!("{first} is locked; unlock it, or send its token in an 'If' header");
        let body = webdav::write_condition("lock-token-submitted", &named, &text);
        Problem::new(ProblemCode::PathLocked, text).with_xml(body)
    }

    /// 207 with one status for some members (RFC 4918 §9.6.1, §9.8.5, §9.9.3) and, where that makes sense, the one that
    /// follows for what the request names.
    pub(super) fn failed_members(
        &self,
        members: &[NamespacePath],
        status: StatusCode,
        named: Option<(&NamespacePath, StatusCode)>,
    ) -> Problem {
        let mut out = Vec::new();
        begin_multistatus(&mut out);
        let members = members
            .iter()
            .take(NAMED_MAX)
            .map(|member| (member, status));
        for (path, status) in members.chain(named) {
            let entry = self.storage.namespace.lookup(path).ok().flatten();
            let is_directory = entry.is_some_and(|entry| entry.is_directory());
            write_status(&mut out, path, is_directory, status);
        }
        end_multistatus(&mut out);
        Problem::new(
            ProblemCode::MembersFailed,
            "some members could not be changed",
        )
        .with_xml(out)
    }

    /// What writing a file or directory at a path touches: itself, and where there is nothing yet the directory that
    /// gets a new member.
    pub(super) fn touched_by_writing(
        &self,
        path: &NamespacePath,
        exists: bool,
    ) -> Result<Vec<WriteScope>, Problem> {
        let mut touched = vec![WriteScope::Itself(path.clone())];
        let mut above = path.parent().filter(|_| !exists);
        // Missing parents are made as well; then the first that exists gets the new member.
        while let Some(directory) = above {
            if self.storage.namespace.lookup(&directory)?.is_some() {
                touched.push(WriteScope::Itself(directory));
                break;
            }
            above = directory.parent();
        }
        Ok(touched)
    }

    /// What putting something at a path touches when it may replace all that stands there, or will stand there by then.
    pub(super) fn touched_by_replacing(
        &self,
        path: &NamespacePath,
        exists: bool,
    ) -> Result<Vec<WriteScope>, Problem> {
        let mut touched = self.touched_by_writing(path, exists)?;
        touched.push(WriteScope::Tree(path.clone()));
        Ok(touched)
    }

    /// After something was removed or moved away: its locks go with it.
    pub(super) async fn release_within(&self, path: &NamespacePath) -> Result<(), Problem> {
        let released = self
            .storage
            .release_locks(|table| table.release_within(path))
            .await;
        released.map_err(|error| Problem::of_change(&error, StatusCode::CONFLICT))
    }

    /// After something was replaced: the locks of what was below it go, its own stays with the path.
    pub(super) async fn release_below(&self, path: &NamespacePath) -> Result<(), Problem> {
        let released = self
            .storage
            .release_locks(|table| table.release_below(path))
            .await;
        released.map_err(|error| Problem::of_change(&error, StatusCode::CONFLICT))
    }
}

/// What taking something away from a path touches: all of it, and the directory that loses a member.
pub(super) fn touched_by_removal(path: &NamespacePath) -> Vec<WriteScope> {
    let parent = path.parent().map(WriteScope::Itself);
    [WriteScope::Tree(path.clone())]
        .into_iter()
        .chain(parent)
        .collect()
}

/// Adds a header that tells what the door can do, for clients that look for it.
pub(super) fn with_compliance(answer: Response) -> Response {
    use http::{HeaderName, HeaderValue};
    answer
        // RFC 4918 §18: locks, and all that must be there.
        .with(
            HeaderName::from_static("dav"),
            HeaderValue::from_static("1, 2"),
        )
        // Windows opens a share with its WebDAV client only when it finds this.
        .with(
            HeaderName::from_static("ms-author-via"),
            HeaderValue::from_static("DAV"),
        )
}
