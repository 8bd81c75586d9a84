//! The pull side of COPY: GET at the source, written here as any other file.

use super::answer::Problem;
use super::copy::{Copied, CopyFailure, Watched, shown};
use super::source::{self, OpenSource};
use super::striped::Striped;
use super::write::{WritePermit, check_target, may_write};
use super::{Call, Door, conditions};
use crate::claims::Claim;
use crate::clock::microseconds;
use crate::incoming::{BUFFER_BYTES, Landed, Order};
use crate::mover::{Mover, MoverRequest, MoverView};
use crate::pool::Reservation;
use crate::receive::{Patience, ReceiveError, receive};
use crate::storage::Placed;
use crate::write_error::WriteError;
use http::StatusCode;
use penstock_decide::admission::Requester;
use penstock_decide::pool_selection::Unplaceable;
use penstock_model::{
    Bytes, Checksum, ChecksumAlgorithm, MoverReport, NamespacePath, StreamUse, StreamsReason,
    UserName,
};
use penstock_persistence::namespace::{MoverKind, MoverOutcome};
use penstock_protocol::tpc::CopyRequest;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;
use url::Url;

/// How often a file may find its pool too small before it is given up.
const PLACES_MAX: usize = 3;

/// A pull that has its place in a pool's queue.
pub(super) struct Pull {
    path: NamespacePath,
    source: Url,
    asked: CopyRequest,
    permit: WritePermit,
    claim: Claim,
    user: Option<UserName>,
    owner: Option<UserName>,
    requester: Requester,
    reservation: Reservation,
    mover: Mover,
}

/// How one try ended.
enum PullOutcome {
    Landed(Box<Landed>, StreamUse),
    /// The pool has no room for a file of this size; another may have.
    NoRoom {
        size: u64,
        claim: Claim,
    },
}

/// Finds out everything that can be known without asking the source.
pub(super) fn prepare(door: &Door, call: &Call<'_>, asked: CopyRequest) -> Result<Pull, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    let current = door.storage.namespace.lookup(path)?;
    let mut permit = may_write(door, caller, path, current.as_ref(), !asked.overwrite)?;
    check_target(door, request.path(), path, current.as_ref())?;
    let current_id = current.as_ref().map(|entry| entry.id);
    conditions::evaluate(&request.method, &request.headers, current.as_ref())?;
    let shown = door.check_if(call)?;
    permit.pin(conditions::pinned(&request.headers, current_id));
    if current.is_some() && !asked.overwrite {
        return Err(Problem::new(
            StatusCode::PRECONDITION_FAILED,
            format!("{path} exists and 'Overwrite: F' forbids to replace it"),
        ));
    }
    let claim = door.storage.claims.claim(path);
    let claim = claim.map_err(|error| Problem::of_write(&error, permit.exists))?;
    door.check_locks(call, &shown, || {
        door.touched_by_writing(path, current.is_some())
    })?;
    let source = asked.direction.remote().clone();
    let (user, requester) = (caller.user(), caller.requester());
    let (reservation, mover) = find_place(door, path, &source, &user, &requester, None)?;
    Ok(Pull {
        path: path.clone(),
        source,
        asked,
        permit,
        claim,
        user,
        owner: caller.holder(),
        requester,
        reservation,
        mover,
    })
}

impl Pull {
    pub(super) fn view(&self) -> MoverView {
        self.mover.view()
    }
}

/// Chooses a pool and takes a place in its queue.
fn find_place(
    door: &Door,
    path: &NamespacePath,
    source: &Url,
    user: &Option<UserName>,
    requester: &Requester,
    size: Option<u64>,
) -> Result<(Reservation, Mover), Problem> {
    let placed: Result<Placed, Unplaceable> = door.storage.place(size, requester);
    let placed = placed.map_err(|why| Problem::of_placement(why, size))?;
    let mover = door.storage.arrive(MoverRequest {
        kind: MoverKind::Pull,
        path: path.clone(),
        peer: shown(source),
        user: user.clone(),
        requester: requester.clone(),
        pool: placed.pool,
        selection: serde_json::to_value(&placed.because).unwrap_or_default(),
    })?;
    Ok((placed.reservation, mover))
}

pub(super) async fn run(door: &Door, pull: Pull, watched: &Watched) -> Result<Copied, CopyFailure> {
    let Pull {
        path,
        source,
        asked,
        permit,
        mut claim,
        user,
        owner,
        requester,
        mut reservation,
        mut mover,
    } = pull;
    for _ in 0..PLACES_MAX {
        let waited = mover.wait().await;
        waited.map_err(|busy| CopyFailure::Early(busy.into()))?;
        let order = |claim| Order {
            claim,
            owner: owner.clone(),
            replace: permit.replace,
            size: None,
            algorithms: Vec::new(),
            properties_of: None,
        };
        let tried = fetch(door, &source, &asked, order(claim), reservation, &mut mover).await;
        match tried {
            Ok(PullOutcome::Landed(landed, streams)) => {
                let report = report(&mover, &landed, streams);
                mover.end(MoverOutcome::Done);
                return Ok(Copied { report });
            }
            Ok(PullOutcome::NoRoom { size, claim: back }) => {
                let text = format!("its pool has no room for {size} bytes; another is tried");
                mover.end(MoverOutcome::Failed(text));
                claim = back;
                let place = find_place(door, &path, &source, &user, &requester, Some(size));
                (reservation, mover) = place.map_err(CopyFailure::Early)?;
                watched.follow(mover.view());
            }
            Err(failure) => {
                let moved = mover.moved_so_far().0;
                let pool = mover.pool().name.clone();
                let text = match &failure {
                    CopyFailure::Early(problem) => problem.text.clone(),
                    CopyFailure::Late(text) => text.clone(),
                };
                mover.end(MoverOutcome::Failed(text));
                return Err(match failure {
                    CopyFailure::Late(text) => CopyFailure::Late(format!(
                        "{text}; remote={}, local={path} in pool {pool}, {moved} bytes moved",
                        shown(&source)
                    )),
                    early => early,
                });
            }
        }
    }
    Err(CopyFailure::Early(Problem::of_placement(
        Unplaceable::NoSpace,
        None,
    )))
}

/// Gets the file from the source and writes it.
async fn fetch(
    door: &Door,
    source: &Url,
    asked: &CopyRequest,
    mut order: Order,
    reservation: Reservation,
    mover: &mut Mover,
) -> Result<PullOutcome, CopyFailure> {
    let (started, view) = (Instant::now(), mover.view());
    let opened = tokio::select! {
        biased;
        opened = source::open(door, source, asked) => opened,
        why = view.preempted() => Err(CopyFailure::preempted(&why)),
    };
    let OpenSource {
        mut response,
        told,
        size,
        parts,
        because,
    } = opened?;
    mover.clocks.network_us += microseconds(started.elapsed());
    mover.set_remote(response.peer_addr());
    let expected = expected(asked, told)?;
    if size.is_none() && response.ends_by_closing() && expected.is_empty() {
        return Err(CopyFailure::Late(format!(
            "{} tells neither the size nor a checksum of the file, so its end cannot be told from a broken connection",
            shown(response.final_url())
        )));
    }
    order.size = size;
    if let Some(size) = size
        && !mover.pool().has_room_for(size)
    {
        return Ok(PullOutcome::NoRoom {
            size,
            claim: order.claim,
        });
    }
    let algorithms = expected.iter().map(Checksum::algorithm);
    let algorithms = algorithms.chain(asked.wanted.iter().copied());
    order.algorithms = door.storage.algorithms(algorithms);
    let pool = Arc::clone(mover.pool());
    let incoming = door.storage.incoming(order, pool, reservation);
    let limits = &door.storage.settings().limits;
    let patience = Patience {
        stall: limits.stall_timeout,
        pace: limits.pace_of_others(),
    };
    let (landed, streams) = match parts {
        Some(plan) => {
            let mut striped = Striped::start(door, plan, response, mover.view());
            let landed = receive(&mut striped, incoming, mover, patience, expected).await;
            mover.tcp = striped.tcp_info();
            let streams = striped.stream_use(asked.streams, because);
            (landed.map_err(failure)?, streams)
        }
        None => {
            let landed = receive(&mut response, incoming, mover, patience, expected).await;
            mover.tcp = response.tcp_info();
            (landed.map_err(failure)?, one_stream(asked, because, size))
        }
    };
    let streams = StreamUse {
        writes: landed.writes.count,
        writes_elsewhere: landed.writes.elsewhere,
        ..streams
    };
    Ok(PullOutcome::Landed(Box::new(landed), streams))
}

fn one_stream(asked: &CopyRequest, because: Vec<StreamsReason>, size: Option<u64>) -> StreamUse {
    let most = 2 * BUFFER_BYTES as u64;
    StreamUse {
        asked: asked.streams,
        used: 1,
        buffer: Bytes(size.map_or(most, |size| size.min(most))),
        because,
        ..StreamUse::default()
    }
}

/// What the file's checksums must be, by the client's word and the source's.
fn expected(asked: &CopyRequest, told: Vec<Checksum>) -> Result<Vec<Checksum>, CopyFailure> {
    if asked.require_checksum == Some(true) && told.is_empty() {
        return Err(CopyFailure::Late(
            "the source tells no checksum, and 'RequireChecksumVerification' demands one"
                .to_owned(),
        ));
    }
    let mut expected = asked.expected.clone();
    for told in told {
        let other = expected
            .iter()
            .find(|sum| sum.algorithm() == told.algorithm());
        match other {
            Some(other) if *other != told => {
                return Err(CopyFailure::Late(format!(
                    "checksum mismatch: expected {other}, the source has {told}; nothing was copied"
                )));
            }
            Some(_) => {}
            None => expected.push(told),
        }
    }
    Ok(expected)
}

fn failure(error: ReceiveError<impl fmt::Display>) -> CopyFailure {
    match error {
        ReceiveError::Source(why) => {
            CopyFailure::Late(format!("{why}; the partial file was removed"))
        }
        ReceiveError::Slow(why) => {
            CopyFailure::Late(format!("{why}; the partial file was removed"))
        }
        ReceiveError::Preempted(why) => CopyFailure::preempted(&why),
        // The file system was full though space was promised: others use it, too.
        ReceiveError::Write(error @ WriteError::NoSpace { .. }) => {
            CopyFailure::Early(Problem::of_write(&error, StatusCode::CONFLICT))
        }
        ReceiveError::Write(error) => CopyFailure::Late(error.to_string()),
    }
}

fn report(mover: &Mover, landed: &Landed, streams: StreamUse) -> MoverReport {
    let adler = |sum: &&Checksum| sum.algorithm() == ChecksumAlgorithm::Adler32;
    MoverReport {
        moved: landed.size,
        checksum: landed.checksums.iter().find(adler).cloned(),
        pool: Some(mover.pool().name.clone()),
        stages: mover.clocks,
        tcp: mover.tcp,
        streams: Some(streams),
        not_offered: Vec::new(),
        verified: None,
    }
}
