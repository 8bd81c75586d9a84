//! The one way to write a file, for PUT, third-party COPY, COPY within the site, LOCK of a free name and uploads in
//! several requests. Its steps come in one order, and each takes what the one before it gave, so that none can be left
//! out: rights ([`WriteRight`]), target ([`WriteTarget`]), conditions ([`MetConditions`]), claim ([`WriteClaim`]), locks
//! ([`WriteTicket`]), pool ([`WritePlace`]), admission ([`WriteQueue`], [`WriteSlot`]), bytes and commit ([`FileWrite`]).
//!
//! Rights come first, so that nothing is told of a path to who has none there. Conditions come after what would be
//! refused without them (RFC 9110 §13.2.1), and of them the `If` header last. Whoever is refused for the same cause is
//! told the same, whichever way they came; where a specification demands something else it is cited.

use super::answer::Problem;
use super::caller::Caller;
use super::conditions;
use super::handler_context::{Call, Door};
use super::lock_conditions::ValidLockTokens;
use super::reserved;
use super::slot::{NoMover, mover_for_body, wait_for_slot};
use crate::claims::{Claim, LockCheckedClaim, LockCheckedTree};
use crate::mover::{Mover, MoverHandle, MoverRequest, PoolQueueFull};
use crate::pool_messages::{
    BeginUpload, FinishUpload, FinishWrite, OpenWrite, PlacementQuery, PoolChoice, StoredFile,
};
use crate::pool_write::PoolWrite;
use crate::uploads::{Plan, Progress, Upload};
use crate::write_error::{CommitError, WriteError};
use http::{HeaderMap, StatusCode};
use penstock_decide::authorization::PathOperation;
use penstock_model::{Bytes, Checksum, ChecksumAlgorithm, NamespacePath, PoolName, ProblemCode};
use penstock_persistence::namespace::{
    ChangeRefusal, Entry, EntryId, MoverKind, MoverOutcome, Replace,
};
use penstock_protocol::http1::server::Connection;
use std::sync::Arc;

/// Pools that are tried for one file when their disks fail while its mover waits.
const POOLS_TRIED_MAX: u32 = 3;

/// A file that somebody wants to write.
#[derive(Clone, Copy)]
pub(super) struct WriteRequest<'a> {
    pub door: &'a Door,
    pub caller: &'a Caller,
    pub path: &'a NamespacePath,
    /// The path as the client wrote it, where that says whether it means a directory.
    pub encoded: Option<&'a str>,
    pub purpose: WritePurpose,
    pub absence: AbsenceDemand,
}

/// What is written, and what it may take the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WritePurpose {
    /// A file from a client or another site. It may replace a file, and directories that are missing are made.
    File,
    /// The copy of a file of this site. It may replace whatever stands there, with all below it (RFC 4918 §9.8.4), in a
    /// directory that exists (§9.8.5).
    Copy,
    /// The same for a file in a directory that is copied: what stands there belongs to others.
    Member,
    /// The empty file that a lock makes of a free name (RFC 4918 §7.3), in a directory that exists (§9.10.4).
    Lock,
}

/// Whether the client demands that nothing stands at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbsenceDemand {
    NotDemanded,
    /// `If-None-Match: *`.
    ByIfNoneMatch,
    /// `Overwrite: F` (RFC 4918 §10.6).
    ByOverwrite,
}

/// By which conditions a write goes on.
pub(super) enum WriteConditions<'a> {
    /// Those of the request, which speak of the file that is written.
    Request(&'a Call<'a>),
    /// Those of a COPY, which speak of its source (RFC 9110 §13.1: of the request's target).
    Source(&'a Call<'a>, &'a Entry),
    /// Those of the request that began the upload, with the `If` header of the one that ends it.
    Upload(&'a Call<'a>, &'a Plan),
    /// Those of the whole directory were judged before.
    Tree,
}

/// The caller may write at the path.
pub(super) struct WriteRight<'a> {
    request: WriteRequest<'a>,
    current: Option<Entry>,
    may_replace: bool,
}

/// A file can be where it is wanted.
pub(super) struct WriteTarget<'a>(WriteRight<'a>);

/// The conditions hold.
pub(super) struct MetConditions<'a> {
    right: WriteRight<'a>,
    /// The only file that may be replaced, because the client named it.
    only: Option<EntryId>,
    tokens: ValidLockTokens,
}

/// Nobody else writes the path.
pub(super) struct WriteClaim<'a> {
    terms: MetConditions<'a>,
    claim: Claim,
}

/// No lock is in the way: the file may be written.
pub(super) struct WriteTicket<'a> {
    request: WriteRequest<'a>,
    replace: Replace,
    claim: LockCheckedClaim,
}

/// A pool takes the file.
pub(super) struct WritePlace<'a> {
    ticket: WriteTicket<'a>,
    query: PlacementQuery,
    choice: PoolChoice,
}

/// The file waits for a mover of its pool, or has it.
pub(super) struct WriteQueue<'a> {
    ticket: WriteTicket<'a>,
    pool: PoolName,
    mover: Mover,
}

/// The file has a mover that runs.
pub(super) struct WriteSlot<'a> {
    ticket: WriteTicket<'a>,
    pool: PoolName,
    pub mover: Mover,
}

/// What is known of a file before its first byte.
pub(super) struct FileFacts {
    pub size: Option<u64>,
    /// Checksums to be computed beside the site's own.
    pub algorithms: Vec<ChecksumAlgorithm>,
    /// The entry whose properties it gets.
    pub properties_of: Option<EntryId>,
}

/// A file that takes its bytes.
pub(super) struct FileWrite {
    pub file: PoolWrite,
    pub mover: Mover,
    pub absence: AbsenceDemand,
}

impl AbsenceDemand {
    /// As the conditional headers of a request demand it.
    pub(super) fn of(headers: &HeaderMap) -> AbsenceDemand {
        match conditions::demands_absence(headers) {
            true => AbsenceDemand::ByIfNoneMatch,
            false => AbsenceDemand::NotDemanded,
        }
    }

    /// As the `Overwrite` header of a COPY demands it.
    pub(super) fn of_overwrite(overwrite: bool) -> AbsenceDemand {
        match overwrite {
            true => AbsenceDemand::NotDemanded,
            false => AbsenceDemand::ByOverwrite,
        }
    }

    fn is_demanded(self) -> bool {
        self != AbsenceDemand::NotDemanded
    }

    /// Something stands there all the same.
    pub(super) fn problem(self, path: &NamespacePath) -> Problem {
        match self {
            // It came after the look at the rights, and may not be replaced.
            AbsenceDemand::NotDemanded => Problem::new(
                ProblemCode::PermissionDenied,
                ChangeRefusal::Exists(path.clone()).to_string(),
            ),
            AbsenceDemand::ByIfNoneMatch => conditions::destination_exists(),
            AbsenceDemand::ByOverwrite => Problem::new(
                ProblemCode::PathExists,
                format!("{path} exists and 'Overwrite: F' forbids replacing it"),
            ),
        }
    }

    /// Why a file was not written, for its client.
    pub(super) fn write_problem(self, error: &WriteError) -> Problem {
        match error {
            WriteError::Commit(CommitError::Refused(ChangeRefusal::Exists(path))) => {
                self.problem(path)
            }
            error => Problem::of_write(error, StatusCode::FORBIDDEN),
        }
    }
}

impl<'a> WriteRequest<'a> {
    /// The first step: the caller may write here, or is told why not, in words that do not depend on what stands there
    /// unless they may make files here.
    pub(super) fn authorize(self) -> Result<WriteRight<'a>, Problem> {
        let WriteRequest {
            door, caller, path, ..
        } = self;
        let current = door.storage.namespace.lookup(path)?;
        let may_replace = door.allows(caller, &PathOperation::Modify, path);
        match (&current, may_replace) {
            (Some(_), true) => reserved::refuse(&PathOperation::Modify, path)?,
            (Some(_), false) | (None, _) => door.permit(caller, &PathOperation::Create, path)?,
        }
        let needs_modify = match self.purpose {
            // A client that forbids replacing needs no right to replace: it is told that the file exists.
            WritePurpose::File | WritePurpose::Copy | WritePurpose::Member => {
                current.is_some() && !self.absence.is_demanded()
            }
            // Who may only add files would keep others from the name.
            WritePurpose::Lock => true,
        };
        if needs_modify && !may_replace {
            door.permit(caller, &PathOperation::Modify, path)?;
        }
        if self.purpose == WritePurpose::Copy {
            door.permit_removal_of_parts(caller, path)?;
        }
        Ok(WriteRight {
            request: self,
            current,
            may_replace,
        })
    }
}

impl<'a> WriteRight<'a> {
    /// What stands at the path.
    pub(super) fn current(&self) -> Option<&Entry> {
        self.current.as_ref()
    }

    /// Finds out what would be refused at the end anyway: a directory cannot be written, nor a name that says it is one,
    /// nor anything below a file.
    pub(super) fn target(self) -> Result<WriteTarget<'a>, Problem> {
        let WriteRequest {
            path,
            encoded,
            purpose,
            ..
        } = self.request;
        let is_directory = self.current.as_ref().is_some_and(Entry::is_directory);
        let is_replaced_whole = purpose == WritePurpose::Copy;
        let names_directory = encoded.is_some_and(|encoded| encoded.ends_with('/'));
        if is_directory && !is_replaced_whole || names_directory {
            return Err(Problem::new(
                ProblemCode::PathIsDirectory,
                format!("{path} is a directory, or its URL ends with '/'; name a file"),
            ));
        }
        if self.current.is_none() {
            self.request.check_parents()?;
        }
        Ok(WriteTarget(self))
    }
}

impl WriteRequest<'_> {
    fn check_parents(&self) -> Result<(), Problem> {
        let parent = self.path.parent();
        let mut above = parent.clone();
        let refusal = loop {
            let Some(directory) = above else {
                return Ok(());
            };
            match self.door.storage.namespace.lookup(&directory)? {
                Some(entry) if !entry.is_directory() => {
                    break ChangeRefusal::ParentIsFile(directory);
                }
                Some(_) if parent.as_ref() == Some(&directory) => return Ok(()),
                Some(_) => match (self.purpose, parent) {
                    // WLCG clients make no directories. RFC 4918 §9.7.1 has PUT fail here.
                    (WritePurpose::File, _) | (_, None) => return Ok(()),
                    (WritePurpose::Copy | WritePurpose::Member | WritePurpose::Lock, Some(it)) => {
                        break ChangeRefusal::ParentMissing(it);
                    }
                },
                None => above = directory.parent(),
            }
        };
        Err(Problem::of_change(&refusal.into(), StatusCode::CONFLICT))
    }
}

impl<'a> WriteTarget<'a> {
    /// Evaluates the conditions (RFC 9110 §13), then the `If` header (RFC 4918 §10.4).
    pub(super) fn conditions(
        self,
        conditions: WriteConditions<'_>,
    ) -> Result<MetConditions<'a>, Problem> {
        let WriteTarget(right) = self;
        let WriteRequest {
            door,
            path,
            absence,
            ..
        } = right.request;
        let current = right.current.as_ref();
        let current_id = current.map(|entry| entry.id);
        let only = match conditions {
            WriteConditions::Request(Call { request, .. }) => {
                conditions::evaluate(&request.method, &request.headers, current)?;
                conditions::only_entry(&request.headers, current_id)
            }
            WriteConditions::Source(Call { request, .. }, source) => {
                conditions::evaluate(&request.method, &request.headers, Some(source))?;
                None
            }
            WriteConditions::Upload(_, plan) if plan.only.is_some() => {
                if plan.only != current_id {
                    return Err(conditions::another_file());
                }
                plan.only
            }
            WriteConditions::Upload(..) | WriteConditions::Tree => None,
        };
        if absence.is_demanded() && current.is_some() {
            return Err(absence.problem(path));
        }
        let tokens = match conditions {
            WriteConditions::Request(call)
            | WriteConditions::Source(call, _)
            | WriteConditions::Upload(call, _) => door.check_if(call)?,
            WriteConditions::Tree => ValidLockTokens::default(),
        };
        Ok(MetConditions {
            right,
            only,
            tokens,
        })
    }
}

impl<'a> MetConditions<'a> {
    /// The file that the client named in `If-Match`.
    pub(super) fn only(&self) -> Option<EntryId> {
        self.only
    }

    /// From now on nobody else writes the path.
    pub(super) fn claim(self) -> Result<WriteClaim<'a>, Problem> {
        let WriteRequest {
            door,
            path,
            purpose,
            ..
        } = self.right.request;
        let claims = &door.storage.claims;
        if matches!(purpose, WritePurpose::Copy | WritePurpose::Member)
            && let Some(written) = claims.written_within(path)
        {
            return Err(Problem::being_written(&written));
        }
        let claim = claims.claim(path);
        let claim = claim.map_err(|error| Problem::of_write(&error, StatusCode::CONFLICT))?;
        Ok(WriteClaim { terms: self, claim })
    }

    /// What the file may take the place of when it becomes visible, whatever stands there by then.
    fn replace(&self) -> Replace {
        let request = &self.right.request;
        if !self.right.may_replace || request.absence.is_demanded() {
            return Replace::Refused;
        }
        match (request.purpose, self.only) {
            (WritePurpose::Member | WritePurpose::Lock, _) => Replace::Refused,
            (WritePurpose::File, Some(id)) => Replace::Only(id),
            (WritePurpose::File, None) => Replace::Allowed,
            (WritePurpose::Copy, _) => {
                Replace::Tree(request.door.storage.settings().limits.remove_entries_max)
            }
        }
    }
}

impl<'a> WriteClaim<'a> {
    /// Looks at the locks, after the claim: a lock that is taken from now on sees that.
    pub(super) fn locks(self, call: &Call<'_>) -> Result<WriteTicket<'a>, Problem> {
        let replace = self.terms.replace();
        let MetConditions { right, tokens, .. } = self.terms;
        let WriteRequest {
            door,
            path,
            purpose,
            ..
        } = right.request;
        let exists = right.current.is_some();
        let touched = || match purpose {
            WritePurpose::Copy => door.touched_by_replacing(path, exists),
            WritePurpose::File | WritePurpose::Member | WritePurpose::Lock => {
                door.touched_by_writing(path, exists)
            }
        };
        let look = |claim: &Claim| door.check_locks(claim, call, &tokens, touched);
        Ok(WriteTicket {
            request: right.request,
            replace,
            claim: self.claim.clear(look)?,
        })
    }

    /// The locks were looked at together with those of the whole directory.
    pub(super) fn locks_of_tree(self, tree: &LockCheckedTree) -> WriteTicket<'a> {
        WriteTicket {
            replace: self.terms.replace(),
            request: self.terms.right.request,
            claim: self.claim.clear_in(tree),
        }
    }
}

impl<'a> WriteTicket<'a> {
    pub(super) fn absence(&self) -> AbsenceDemand {
        self.request.absence
    }

    /// Chooses the pool, for a file of this size when it is known.
    pub(super) fn pool(self, size: Option<u64>) -> Result<WritePlace<'a>, Problem> {
        let requester = self.request.caller.requester();
        self.pool_by(PlacementQuery { size, requester })
    }

    fn pool_by(self, query: PlacementQuery) -> Result<WritePlace<'a>, Problem> {
        let choice = self.request.door.storage.choose_pool(&query);
        let choice = choice.map_err(|why| Problem::of_placement(why, query.size))?;
        Ok(WritePlace {
            ticket: self,
            query,
            choice,
        })
    }

    /// The last steps of an upload, whose pool was chosen when it began and whose bytes came by movers of their own.
    pub(super) async fn finish_upload(
        self,
        upload: &Arc<Upload>,
        progress: &mut Progress,
        algorithms: Vec<ChecksumAlgorithm>,
        expected: Vec<Checksum>,
    ) -> Result<StoredFile, WriteError> {
        let WriteRequest {
            door, caller, path, ..
        } = self.request;
        let order = FinishUpload {
            write: door.storage.new_write(upload.pool.name.clone()),
            parent: door.storage.parent_of(path),
            origin: caller.origin(),
            replace: self.replace,
            algorithms: door.storage.algorithms(algorithms.into_iter()),
            expected,
            tape: door.storage.tape_terms(path, &caller.archive_word),
        };
        let finished = upload.finish(&door.storage, progress, self.claim, order);
        finished.await
    }
}

impl<'a> WritePlace<'a> {
    fn mover_request(&self, kind: MoverKind, peer: String) -> MoverRequest {
        let WriteRequest { caller, path, .. } = self.ticket.request;
        MoverRequest {
            kind,
            path: path.clone(),
            peer,
            copy: caller.copy.clone(),
            challenge: caller.challenge.clone(),
            file_size: self.query.size.map(Bytes),
            user: caller.user(),
            requester: self.query.requester.clone(),
            pool: self.choice.pool.clone(),
            selection: serde_json::to_value(&self.choice.because).unwrap_or_default(),
        }
    }

    /// Takes a place in the queue of the pool.
    pub(super) fn queue(self, kind: MoverKind, peer: String) -> Result<WriteQueue<'a>, Problem> {
        let request = self.mover_request(kind, peer);
        let mover = self.ticket.request.door.storage.arrive(request)?;
        Ok(WriteQueue {
            ticket: self.ticket,
            pool: self.choice.pool,
            mover,
        })
    }

    /// A mover for a body of which nothing was read. When the disk of the pool fails while the mover was waited for,
    /// another pool takes the file.
    pub(super) async fn slot_for_body(
        self,
        connection: &mut Connection,
    ) -> Result<WriteSlot<'a>, NoMover> {
        let (mut place, mut tried) = (self, 1);
        loop {
            let door = place.ticket.request.door;
            let peer = connection.peer_addr().to_string();
            let request = place.mover_request(MoverKind::Put, peer);
            let mover = mover_for_body(door, connection, request).await?;
            let pool = &place.choice.pool;
            if door.storage.takes_new_files(pool) || tried == POOLS_TRIED_MAX {
                return Ok(WriteSlot {
                    ticket: place.ticket,
                    pool: place.choice.pool,
                    mover,
                });
            }
            tried += 1;
            mover.end(MoverOutcome::Aborted(format!(
                "pool {pool} no longer accepts files; another pool takes this file"
            )));
            place = place.ticket.pool_by(place.query)?;
        }
    }

    /// Stores an empty file. No bytes move, so it takes no mover.
    pub(super) async fn store_empty(self) -> Result<StoredFile, WriteError> {
        let facts = FileFacts {
            size: Some(0),
            algorithms: Vec::new(),
            properties_of: None,
        };
        let file = self.ticket.open(self.choice.pool, facts);
        let expected = Vec::new();
        file.finish(FinishWrite { expected }).await
    }

    /// The place of an upload in several requests. The path is free again: the last request writes it.
    pub(super) fn upload(self, plan: Plan) -> BeginUpload {
        BeginUpload {
            plan,
            pool: self.choice.pool,
        }
    }
}

impl<'a> WriteQueue<'a> {
    pub(super) fn view(&self) -> MoverHandle {
        self.mover.view()
    }

    /// Waits for the mover as long as it takes.
    pub(super) async fn wait(mut self) -> Result<WriteSlot<'a>, PoolQueueFull> {
        self.mover.wait().await?;
        Ok(self.into_slot())
    }

    /// Waits as long as a client waits for its answer.
    pub(super) async fn wait_for_client(mut self) -> Result<WriteSlot<'a>, Problem> {
        wait_for_slot(self.ticket.request.door, &mut self.mover, None).await?;
        Ok(self.into_slot())
    }

    fn into_slot(self) -> WriteSlot<'a> {
        WriteSlot {
            ticket: self.ticket,
            pool: self.pool,
            mover: self.mover,
        }
    }
}

impl<'a> WriteSlot<'a> {
    /// Whether a file of this size fits into the pool.
    pub(super) fn has_room_for(&self, size: u64) -> bool {
        let storage = &self.ticket.request.door.storage;
        storage.has_room_for(&self.pool, size)
    }

    /// Gives the slot back, to try another pool.
    pub(super) fn give_back(self, outcome: MoverOutcome) -> WriteTicket<'a> {
        self.mover.end(outcome);
        self.ticket
    }

    /// Begins to write.
    pub(super) fn open(self, facts: FileFacts) -> FileWrite {
        FileWrite {
            absence: self.ticket.absence(),
            file: self.ticket.open(self.pool, facts),
            mover: self.mover,
        }
    }
}

impl WriteTicket<'_> {
    fn open(self, pool: PoolName, facts: FileFacts) -> PoolWrite {
        let WriteRequest {
            door, caller, path, ..
        } = self.request;
        let storage = &door.storage;
        let order = OpenWrite {
            write: storage.new_write(pool),
            path: path.clone(),
            parent: storage.parent_of(path),
            owner: caller.holder(),
            origin: caller.origin(),
            replace: self.replace,
            size: facts.size,
            algorithms: storage.algorithms(facts.algorithms.into_iter()),
            properties_of: facts.properties_of,
            tape: storage.tape_terms(path, &caller.archive_word),
        };
        storage.open_write(order, self.claim)
    }
}
