//! COPY within this storage element (RFC 4918 §9.8): the bytes are copied in the pools and become visible by the same
//! path as those of any other file. A client that leaves ends it; files that were copied before stay.

use super::answer::{Answer, Problem, Reply};
use super::guard::ValidLockTokens;
use super::read::{ReadableFile, open};
use super::tree::{destination, missing_parent, overwrite};
use super::{Call, Door, conditions, wait_for_slot};
use crate::incoming::{Order, PIECE_BYTES};
use crate::mover::{Mover, MoverRequest};
use crate::write_error::WriteError;
use http::{HeaderMap, StatusCode};
use penstock_decide::authorization::Operation;
use penstock_model::{Checksum, NamespacePath};
use penstock_persistence::namespace::{
    Change, Entry, MoverKind, MoverOutcome, NamespaceError, Replace,
};
use penstock_protocol::http1::server::Connection;
use penstock_protocol::webdav::{Depth, begin_multistatus, end_multistatus, write_status};
use std::sync::Arc;

/// Headers that only a third-party copy has. Whoever sends one expects its markers, also when both sides are this site.
const THIRD_PARTY: [&str; 7] = [
    "source",
    "credential",
    "x-number-of-streams",
    "requirechecksumverification",
    "secure-redirection",
    "copy-flags",
    "scitag",
];
/// Failed members that an answer names.
const NAMED_MAX: usize = 1000;

/// A COPY whose destination is here.
struct Duplicate<'a> {
    door: &'a Door,
    call: &'a Call<'a>,
    peer: String,
}

/// True for a COPY that stays on this site: its destination has one of our names, and no third party is spoken of.
pub(super) fn stays_here(door: &Door, headers: &HeaderMap) -> bool {
    let third_party =
        |name: &str| THIRD_PARTY.contains(&name) || name.starts_with("transferheader");
    !headers.keys().any(|name| third_party(name.as_str())) && destination(door, headers).is_ok()
}

pub(super) async fn copy(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let peer = connection.peer_addr().to_string();
    let duplicate = Duplicate { door, call, peer };
    let work = duplicate.run();
    tokio::select! {
        biased;
        done = work => done,
        () = connection.peer_closed() => Err(Problem::bad_request("the client left during its copy")),
    }
}

impl Duplicate<'_> {
    async fn run(&self) -> Result<Reply, Problem> {
        let (door, call) = (self.door, self.call);
        let (headers, from) = (&call.request.headers, call.path);
        let to = &destination(door, headers)?;
        let overwrite = overwrite(headers)?;
        let deep = depth(headers)?;
        let entry = door.storage.namespace.lookup(from)?;
        let is_directory = entry.as_ref().is_some_and(Entry::is_directory);
        let look = if is_directory {
            Operation::List
        } else {
            Operation::Read
        };
        door.permit(call.caller, &look, from)?;
        let entry = match entry {
            Some(entry) => entry,
            None => door.entry(from)?,
        };
        conditions::evaluate(&call.request.method, headers, Some(&entry))?;
        let shown = door.check_if(call)?;
        if to == from || from.is_within(to) || (is_directory && deep && to.is_within(from)) {
            // RFC 4918 §9.8.5.
            let text = format!("{from} cannot be copied onto, above or below itself");
            return Err(Problem::new(StatusCode::FORBIDDEN, text));
        }
        let existing = door.storage.namespace.lookup(to)?;
        self.permit_destination(to, existing.is_some(), is_directory)?;
        door.permit_removal_of_parts(call.caller, to)?;
        if existing.is_some() && !overwrite {
            return Err(exists(to));
        }
        missing_parent(door, to)?;
        let replaced = match is_directory {
            true => {
                self.directory(&shown, &entry, to, deep, existing.as_ref())
                    .await?
            }
            false => {
                self.single(&shown, &entry, to, overwrite, existing.is_some())
                    .await?
            }
        };
        match replaced {
            DuplicateOutcome::Made { replaced: true } => {
                Ok(Answer::new(StatusCode::NO_CONTENT).into())
            }
            DuplicateOutcome::Made { replaced: false } => {
                Ok(Answer::new(StatusCode::CREATED).into())
            }
            DuplicateOutcome::Partly(failed) => Ok(partly(&failed)),
        }
    }

    fn permit_destination(
        &self,
        to: &NamespacePath,
        exists: bool,
        is_directory: bool,
    ) -> Result<(), Problem> {
        let operation = match (exists, is_directory) {
            (true, _) => Operation::Modify,
            (false, true) => Operation::MakeDirectory,
            (false, false) => Operation::Create,
        };
        self.door.permit(self.call.caller, &operation, to)
    }

    /// One file.
    async fn single(
        &self,
        shown: &ValidLockTokens,
        entry: &Entry,
        to: &NamespacePath,
        overwrite: bool,
        existed: bool,
    ) -> Result<DuplicateOutcome, Problem> {
        let may_replace = overwrite && self.door.allows(self.call.caller, &Operation::Modify, to);
        let replace = match may_replace {
            true => Replace::Tree(self.door.storage.settings().limits.remove_entries_max),
            false => Replace::Refused,
        };
        let check = || {
            self.door.check_locks(self.call, shown, || {
                self.door.touched_by_replacing(to, existed)
            })
        };
        let replaced = self.file(self.call.path, entry, to, replace, check).await?;
        self.door.release_below(to).await?;
        Ok(DuplicateOutcome::Made { replaced })
    }

    /// Copies one file; true when it took the place of something. `check` is asked when nobody else can write the
    /// destination any more.
    async fn file(
        &self,
        from: &NamespacePath,
        entry: &Entry,
        to: &NamespacePath,
        replace: Replace,
        check: impl FnOnce() -> Result<(), Problem>,
    ) -> Result<bool, Problem> {
        let (door, caller) = (self.door, self.call.caller);
        let found = door.found(entry)?.ok_or_else(|| exists(from))?;
        if let Some(written) = door.storage.claims.written_within(to) {
            return Err(Problem::being_written(&written));
        }
        let refused = |error| Problem::of_write(&error, StatusCode::PRECONDITION_FAILED);
        let claim = door.storage.claims.claim(to).map_err(refused)?;
        check()?;
        let size = Some(found.size);
        let requester = caller.requester();
        let placed = door.storage.place(size, &requester);
        let placed = placed.map_err(|why| Problem::of_placement(why, size))?;
        let mut mover = door.storage.arrive(MoverRequest {
            kind: MoverKind::Copy,
            path: to.clone(),
            peer: self.peer.clone(),
            user: caller.user(),
            requester,
            pool: Arc::clone(&placed.pool),
            selection: serde_json::to_value(&placed.because).unwrap_or_default(),
        })?;
        wait_for_slot(door, &mut mover, None).await?;
        let known = door.storage.namespace.checksums(found.id)?;
        let order = Order {
            claim,
            owner: caller.holder(),
            replace,
            size,
            algorithms: door
                .storage
                .algorithms(known.iter().map(Checksum::algorithm)),
            properties_of: Some(entry.id),
        };
        let incoming = door
            .storage
            .incoming(order, placed.pool, placed.reservation);
        let copied = self.bytes(from, &found, incoming, &mut mover, known).await;
        match copied {
            Ok(replaced) => {
                mover.end(MoverOutcome::Done);
                Ok(replaced)
            }
            Err(problem) => {
                mover.end(MoverOutcome::Failed(problem.text.clone()));
                Err(problem)
            }
        }
    }

    /// The bytes, piece by piece, so that progress is seen and a leaving client ends it soon. The checksums of the copy
    /// must be those that are known of the source.
    async fn bytes(
        &self,
        from: &NamespacePath,
        found: &ReadableFile,
        mut incoming: crate::incoming::Incoming,
        mover: &mut Mover,
        known: Vec<Checksum>,
    ) -> Result<bool, Problem> {
        let file = Arc::new(open(self.door, from, found).await?);
        let stall = self.door.storage.settings().limits.stall_timeout;
        let view = mover.view();
        let mut done = 0;
        while done < found.size {
            let piece = (found.size - done).min(PIECE_BYTES);
            let pool = Arc::clone(incoming.pool());
            let taken = tokio::select! {
                biased;
                taken = tokio::time::timeout(stall, incoming.take_from(&file, piece)) => taken,
                why = view.preempted() => return Err(Problem::preempted(&why)),
            };
            taken
                .unwrap_or_else(|_| Err(pool.write_stalled(stall)))
                .map_err(|error| Problem::of_write(&error, StatusCode::PRECONDITION_FAILED))?;
            mover.moved(piece);
            done += piece;
        }
        mover.pass_last_byte();
        let landed = incoming.finish(known).await.map_err(|error| match error {
            WriteError::ChecksumMismatch { .. } => {
                tracing::error!(%from, %error, "a file's bytes are not those that came");
                let text = format!("the data of {from} is damaged ({error}); tell the site");
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
            error => Problem::of_write(&error, StatusCode::PRECONDITION_FAILED),
        })?;
        mover.clocks.write_us += landed.write_us;
        mover.clocks.checksum_us += landed.checksum_us;
        mover.clocks.commit_us += landed.commit_us;
        Ok(landed.replaced)
    }

    /// A directory, with all that is below it when the copy is `deep`. What cannot be copied is named in the answer, the
    /// rest is copied.
    async fn directory(
        &self,
        shown: &ValidLockTokens,
        entry: &Entry,
        to: &NamespacePath,
        deep: bool,
        existing: Option<&Entry>,
    ) -> Result<DuplicateOutcome, Problem> {
        let door = self.door;
        let below = match deep {
            true => self.below(entry).await?,
            false => Vec::new(),
        };
        let _intent = door.storage.claims.intend(to);
        if let Some(written) = door.storage.claims.written_within(to) {
            return Err(Problem::being_written(&written));
        }
        door.check_locks(self.call, shown, || {
            door.touched_by_replacing(to, existing.is_some())
        })?;
        if let Some(existing) = existing {
            // RFC 4918 §9.8.4: what stands there goes first, as by DELETE.
            let change = Change::Remove {
                path: to.clone(),
                only: Some(existing.id),
                entries_max: door.storage.settings().limits.remove_entries_max,
                by: self.call.caller.holder(),
                at: door.storage.clock.recorded(),
            };
            let removed = door.storage.change(change).await;
            removed.map_err(|error| Problem::of_change(&error, StatusCode::CONFLICT))?;
            door.release_below(to).await?;
        }
        self.make_directory(entry, to).await?;
        let mut failed: Vec<(NamespacePath, StatusCode)> = Vec::new();
        for (names, member) in below {
            let at = |base: &NamespacePath| {
                names
                    .iter()
                    .try_fold(base.clone(), |path, name| path.child(name))
            };
            let (Ok(source), Ok(target)) = (at(self.call.path), at(to)) else {
                continue;
            };
            // RFC 4918 §9.8.3: nothing is tried below a directory that could not be made.
            if failed.iter().any(|(path, _)| target.is_within(path)) {
                continue;
            }
            if let Err(problem) = self.member(&source, &member, &target).await {
                tracing::info!(%source, %target, why = problem.text, "a member was not copied");
                failed.push((target, problem.status));
            }
        }
        match failed.is_empty() {
            true => Ok(DuplicateOutcome::Made {
                replaced: existing.is_some(),
            }),
            false => Ok(DuplicateOutcome::Partly(failed)),
        }
    }

    /// What is below the directory, or 409 when that is too much for one request.
    async fn below(&self, directory: &Entry) -> Result<Vec<(Vec<String>, Entry)>, Problem> {
        let namespace = Arc::clone(&self.door.storage.namespace);
        let (id, most) = (
            directory.id,
            self.door.storage.settings().limits.copy_entries_max,
        );
        let found: Result<_, NamespaceError> =
            tokio::task::spawn_blocking(move || namespace.below(id, most))
                .await
                .map_err(|why| {
                    tracing::error!(%why, "a directory could not be read");
                    Problem::new(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "the directory cannot be read; tell the site",
                    )
                })?;
        let found = found?;
        match found.len() < most {
            true => Ok(found),
            false => Err(Problem::new(
                StatusCode::CONFLICT,
                format!(
                    "{} holds {most} entries or more; copy what is below it in parts",
                    self.call.path
                ),
            )),
        }
    }

    async fn member(
        &self,
        source: &NamespacePath,
        member: &Entry,
        target: &NamespacePath,
    ) -> Result<(), Problem> {
        let is_directory = member.is_directory();
        let look = if is_directory {
            Operation::List
        } else {
            Operation::Read
        };
        self.door.permit(self.call.caller, &look, source)?;
        self.permit_destination(target, false, is_directory)?;
        match is_directory {
            true => self.make_directory(member, target).await,
            false => {
                // The locks of the whole destination were looked at before.
                let copied = self.file(source, member, target, Replace::Refused, || Ok(()));
                copied.await.map(|_| ())
            }
        }
    }

    async fn make_directory(&self, like: &Entry, to: &NamespacePath) -> Result<(), Problem> {
        let change = Change::MakeDirectory {
            path: to.clone(),
            owner: self.call.caller.user(),
            at: self.door.storage.clock.recorded(),
        };
        let failed = |error| Problem::of_change(&error, StatusCode::PRECONDITION_FAILED);
        self.door.storage.change(change).await.map_err(failed)?;
        if like.has_properties {
            let change = Change::CopyProperties {
                from: like.id,
                to: to.clone(),
            };
            self.door.storage.change(change).await.map_err(failed)?;
        }
        Ok(())
    }
}

/// What became of a copy.
enum DuplicateOutcome {
    Made {
        replaced: bool,
    },
    /// Some members could not be copied.
    Partly(Vec<(NamespacePath, StatusCode)>),
}

/// RFC 4918 §9.8.3: a directory is copied with what is below it unless `Depth: 0` says otherwise.
fn depth(headers: &HeaderMap) -> Result<bool, Problem> {
    match Depth::parse(headers).map_err(|why| Problem::bad_request(why.to_string()))? {
        Some(Depth::Zero) => Ok(false),
        Some(Depth::Infinity) | None => Ok(true),
        Some(Depth::One) => Err(Problem::bad_request(
            "COPY takes 'Depth: 0' or 'Depth: infinity'",
        )),
    }
}

fn exists(path: &NamespacePath) -> Problem {
    Problem::new(
        StatusCode::PRECONDITION_FAILED,
        format!("{path} exists and 'Overwrite: F' forbids to replace it"),
    )
}

fn partly(failed: &[(NamespacePath, StatusCode)]) -> Reply {
    let mut out = Vec::new();
    begin_multistatus(&mut out);
    for (path, status) in failed.iter().take(NAMED_MAX) {
        write_status(&mut out, path, false, *status);
    }
    end_multistatus(&mut out);
    super::answer::xml(StatusCode::MULTI_STATUS, out).into()
}
