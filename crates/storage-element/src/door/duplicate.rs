//! COPY within this storage element (RFC 4918 §9.8): the bytes are copied in the pools and become visible by the same
//! path as those of any other file. A client that leaves ends it; files that were copied before stay.

use super::answer::{Problem, Reply, Response};
use super::conditions;
use super::destination::{destination, missing_parent, overwrite};
use super::handler_context::{Call, Door};
use super::read::{ReadableFile, open};
use super::write_ticket::{
    AbsenceDemand, FileFacts, FileWrite, WriteConditions, WritePurpose, WriteRequest, WriteTicket,
};
use crate::claims::LockCheckedTree;
use crate::mover::Mover;
use crate::pool_messages::FinishWrite;
use crate::pool_write::{PIECE_BYTES, PoolWrite};
use crate::write_error::WriteError;
use http::{HeaderMap, StatusCode};
use penstock_decide::authorization::PathOperation;
use penstock_model::observation::EntryChangeReason;
use penstock_model::{Checksum, NamespacePath, ProblemCode};
use penstock_persistence::namespace::{Change, Entry, MoverKind, MoverOutcome, NamespaceError};
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

/// What is copied where.
struct CopyOrder<'a> {
    source: &'a NamespacePath,
    is_directory: bool,
    /// With what is below it.
    deep: bool,
    to: &'a NamespacePath,
    overwrite: bool,
}

/// The data of a file that is copied.
struct SourceBytes<'a> {
    from: &'a NamespacePath,
    found: ReadableFile,
    known: Vec<Checksum>,
}

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
        let look = match is_directory {
            true => PathOperation::List,
            false => PathOperation::Read,
        };
        door.permit(call.caller, &look, from)?;
        let copy = CopyOrder {
            source: from,
            is_directory,
            deep,
            to,
            overwrite,
        };
        let outcome = match is_directory {
            true => self.directory(&copy, entry).await?,
            false => self.single(&copy, entry).await?,
        };
        match outcome {
            DuplicateOutcome::Made { replaced: true } => {
                Ok(Response::new(StatusCode::NO_CONTENT).into())
            }
            DuplicateOutcome::Made { replaced: false } => {
                Ok(Response::new(StatusCode::CREATED).into())
            }
            DuplicateOutcome::Partly(failed) => Ok(partly(&failed)),
        }
    }

    /// The source, if it is there and can be copied to this destination.
    fn source(&self, copy: &CopyOrder<'_>, entry: Option<Entry>) -> Result<Entry, Problem> {
        let CopyOrder { source, to, .. } = *copy;
        let entry = match entry {
            Some(entry) => entry,
            None => self.door.entry(source)?,
        };
        let is_tree = copy.is_directory && copy.deep;
        if to == source || source.is_within(to) || (is_tree && to.is_within(source)) {
            // RFC 4918 §9.8.5.
            let text = format!("{source} cannot be copied onto, above or below itself");
            return Err(Problem::new(ProblemCode::PathIntoItself, text));
        }
        Ok(entry)
    }

    fn write<'a>(&'a self, path: &'a NamespacePath) -> WriteRequest<'a> {
        WriteRequest {
            door: self.door,
            caller: self.call.caller,
            path,
            encoded: None,
            purpose: WritePurpose::Copy,
            absence: AbsenceDemand::NotDemanded,
        }
    }

    /// One file.
    async fn single(
        &self,
        copy: &CopyOrder<'_>,
        entry: Option<Entry>,
    ) -> Result<DuplicateOutcome, Problem> {
        let CopyOrder {
            source,
            to,
            overwrite,
            ..
        } = *copy;
        let write = WriteRequest {
            absence: AbsenceDemand::of_overwrite(overwrite),
            ..self.write(to)
        };
        let entry = self.source(copy, entry)?;
        let terms = write
            .authorize()?
            .target()?
            .conditions(WriteConditions::Source(self.call, &entry))?;
        let ticket = terms.claim()?.locks(self.call)?;
        let replaced = self.file(source, &entry, ticket).await?;
        self.door.release_below(to).await?;
        Ok(DuplicateOutcome::Made { replaced })
    }

    /// Copies one file; true when it took the place of something.
    async fn file(
        &self,
        from: &NamespacePath,
        entry: &Entry,
        ticket: WriteTicket<'_>,
    ) -> Result<bool, Problem> {
        let door = self.door;
        let found = door.found(from, entry)?;
        let found =
            found.ok_or_else(|| Problem::conflict_for_now(format!("{from} has changed")))?;
        let place = ticket.pool(Some(found.size))?;
        let queue = place.queue(MoverKind::Copy, self.peer.clone())?;
        let slot = queue.wait_for_client().await?;
        let known = door.storage.namespace.checksums(found.id)?;
        let FileWrite {
            file,
            mut mover,
            absence,
        } = slot.open(FileFacts {
            size: Some(found.size),
            algorithms: known.iter().map(Checksum::algorithm).collect(),
            properties_of: Some(entry.id),
        });
        let bytes = SourceBytes { from, found, known };
        let copied = self.bytes(bytes, file, &mut mover, absence).await;
        match copied {
            Ok(replaced) => {
                mover.end(MoverOutcome::Done);
                Ok(replaced)
            }
            Err(problem) => {
                mover.end(MoverOutcome::Failed(problem.cause.message.clone()));
                Err(problem)
            }
        }
    }

    /// The bytes, piece by piece, so that progress is seen and a leaving client ends it soon. The checksums of the copy
    /// must be those that are known of the source.
    async fn bytes(
        &self,
        source: SourceBytes<'_>,
        mut file: PoolWrite,
        mover: &mut Mover,
        absence: AbsenceDemand,
    ) -> Result<bool, Problem> {
        let SourceBytes { from, found, known } = source;
        let data = Arc::new(open(self.door, from, &found).await?);
        let stall = self.door.storage.settings().limits.stall_timeout;
        let view = mover.view();
        let mut done = 0;
        while done < found.size {
            let piece = (found.size - done).min(PIECE_BYTES);
            let taken = tokio::select! {
                biased;
                taken = file.append_from(&data, piece, stall) => taken,
                why = view.preempted() => return Err(Problem::preempted(&why)),
            };
            taken.map_err(|error| absence.write_problem(&error))?;
            mover.moved(piece);
            done += piece;
        }
        mover.pass_last_byte();
        let stored = file.finish(FinishWrite { expected: known }).await;
        let stored = stored.map_err(|error| match error {
            WriteError::ChecksumMismatch { .. } => {
                tracing::error!(%from, %error, "a file's bytes are not those that came");
                let text = format!("the data of {from} is damaged ({error}); contact the site");
                Problem::new(ProblemCode::FileUnreadable, text)
            }
            error => absence.write_problem(&error),
        })?;
        mover.clocks.write_us += stored.write_us;
        mover.clocks.checksum_us += stored.checksum_us;
        mover.clocks.commit_us += stored.commit_us;
        Ok(stored.replaced)
    }

    /// A directory, with all that is below it when the copy is `deep`. What cannot be copied is named in the answer, the
    /// rest is copied.
    async fn directory(
        &self,
        copy: &CopyOrder<'_>,
        entry: Option<Entry>,
    ) -> Result<DuplicateOutcome, Problem> {
        let (door, call) = (self.door, self.call);
        let CopyOrder { to, .. } = *copy;
        let entry = &self.source(copy, entry)?;
        let existing = door.storage.namespace.lookup(to)?;
        // As for a file: what stands there is told to nobody who may make nothing here.
        let may_replace = door.allows(call.caller, &PathOperation::Modify, to);
        if existing.is_none() || !may_replace {
            door.permit(call.caller, &PathOperation::MakeDirectory, to)?;
        }
        if existing.is_some() {
            door.permit(call.caller, &PathOperation::Modify, to)?;
        }
        door.permit_removal_of_parts(call.caller, to)?;
        missing_parent(door, to)?;
        let headers = &call.request.headers;
        conditions::evaluate(&call.request.method, headers, Some(entry))?;
        if existing.is_some() && !copy.overwrite {
            return Err(AbsenceDemand::ByOverwrite.problem(to));
        }
        let tokens = door.check_if(call)?;
        let below = match copy.deep {
            true => self.below(entry).await?,
            false => Vec::new(),
        };
        let intent = door.storage.claims.intend(to);
        if let Some(written) = door.storage.claims.written_within(to) {
            return Err(Problem::being_written(&written));
        }
        let tree = intent.clear(|intent| {
            door.check_locks(intent, call, &tokens, || {
                door.touched_by_replacing(to, existing.is_some())
            })
        })?;
        if let Some(existing) = &existing {
            // RFC 4918 §9.8.4: what stands there goes first, as by DELETE.
            let change = Change::Remove {
                path: to.clone(),
                only: Some(existing.id),
                entries_max: door.storage.settings().limits.remove_entries_max,
                by: self.call.caller.holder(),
                at: door.storage.clock.recorded(),
            };
            let origin = self.call.caller.origin().into();
            let change = change.asked_by(origin).because(EntryChangeReason::Replaced);
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
            if let Err(problem) = self.member(&source, &member, &target, &tree).await {
                tracing::info!(%source, %target, why = problem.text(), "a member was not copied");
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
                        ProblemCode::NamespaceFailed,
                        "the directory cannot be read; contact the site",
                    )
                })?;
        let found = found?;
        match found.len() < most {
            true => Ok(found),
            false => Err(Problem::new(
                ProblemCode::DirectoryTooLarge,
                format!(
                    "{} holds {most} entries or more; copy its entries in parts",
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
        tree: &LockCheckedTree,
    ) -> Result<(), Problem> {
        let caller = self.call.caller;
        match member.is_directory() {
            true => {
                self.door.permit(caller, &PathOperation::List, source)?;
                let make = &PathOperation::MakeDirectory;
                self.door.permit(caller, make, target)?;
                self.make_directory(member, target).await
            }
            false => {
                self.door.permit(caller, &PathOperation::Read, source)?;
                let write = WriteRequest {
                    purpose: WritePurpose::Member,
                    // The directory is new: what is there belongs to somebody else.
                    absence: AbsenceDemand::ByOverwrite,
                    ..self.write(target)
                };
                let terms = write
                    .authorize()?
                    .target()?
                    .conditions(WriteConditions::Tree)?;
                let ticket = terms.claim()?.locks_of_tree(tree);
                self.file(source, member, ticket).await.map(drop)
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
        let origin = Arc::new(self.call.caller.origin());
        let change = change.asked_by(Arc::clone(&origin));
        self.door.storage.change(change).await.map_err(failed)?;
        if like.has_properties {
            let change = Change::CopyProperties {
                from: like.id,
                to: to.clone(),
            };
            let change = change.asked_by(origin);
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

fn partly(failed: &[(NamespacePath, StatusCode)]) -> Reply {
    let mut out = Vec::new();
    begin_multistatus(&mut out);
    for (path, status) in failed.iter().take(NAMED_MAX) {
        write_status(&mut out, path, false, *status);
    }
    end_multistatus(&mut out);
    super::answer::xml(StatusCode::MULTI_STATUS, out).into()
}
