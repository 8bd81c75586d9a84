//! The pull side of COPY: GET at the source, written here as any other file.

use super::answer::Problem;
use super::handler_context::{Call, Door};
use super::pull_source::{self, OpenSource};
use super::remote::{CopyFailure, CopyMover, LateFailure, redacted};
use super::striped::StripedBody;
use super::write_ticket::{
    AbsenceDemand, FileFacts, FileWrite, WriteConditions, WritePurpose, WriteQueue, WriteRequest,
};
use crate::clock::microseconds;
use crate::mover::{Mover, MoverHandle};
use crate::pool_messages::StoredFile;
use crate::pool_write::{BUFFER_BYTES, PoolWrite};
use crate::receive::{Patience, ReceiveError, receive};
use crate::write_error::WriteError;
use penstock_decide::pool_selection::PlacementRefusal;
use penstock_model::{
    Bytes, Checksum, ChecksumAlgorithm, MoverReport, NamespacePath, ProblemCode, StreamUse,
    StreamsReason,
};
use penstock_persistence::namespace::{MoverKind, MoverOutcome};
use penstock_protocol::tpc::CopyRequest;
use std::time::Instant;
use url::Url;

/// How often a file may find its pool too small before it is given up.
const POOLS_TRIED_MAX: usize = 3;

/// A pull that has its place in a pool's queue.
pub(super) struct Pull<'a> {
    path: &'a NamespacePath,
    source: Url,
    order: CopyRequest,
    queue: WriteQueue<'a>,
}

/// A source that gives the file, and what the file must be.
struct PullSource {
    open: OpenSource,
    expected: Vec<Checksum>,
}

/// Finds out everything that can be known without asking the source.
pub(super) fn prepare<'a>(
    door: &'a Door,
    call: &Call<'a>,
    order: CopyRequest,
) -> Result<Pull<'a>, Problem> {
    let absence = match order.overwrite {
        true => AbsenceDemand::of(&call.request.headers),
        false => AbsenceDemand::ByOverwrite,
    };
    let write = WriteRequest {
        door,
        caller: call.caller,
        path: call.path,
        encoded: Some(call.request.path()),
        purpose: WritePurpose::File,
        absence,
    };
    let target = write.authorize()?.target()?;
    let terms = target.conditions(WriteConditions::Request(call))?;
    let place = terms.claim()?.locks(call)?.pool(None)?;
    let source = order.direction.remote().clone();
    let queue = place.queue(MoverKind::Pull, redacted(&source))?;
    Ok(Pull {
        path: call.path,
        source,
        order,
        queue,
    })
}

impl Pull<'_> {
    pub(super) fn view(&self) -> MoverHandle {
        self.queue.view()
    }
}

pub(super) async fn run(
    door: &Door,
    pull: Pull<'_>,
    watching: &CopyMover,
) -> Result<MoverReport, CopyFailure> {
    let Pull {
        path,
        source: url,
        order,
        mut queue,
    } = pull;
    for _ in 0..POOLS_TRIED_MAX {
        let slot = queue.wait().await;
        let mut slot = slot.map_err(|busy| CopyFailure::Early(busy.into()))?;
        let source = match open_source(door, &url, &order, &mut slot.mover).await {
            Ok(source) => source,
            Err(failure) => return Err(end_failed(path, &url, slot.mover, failure)),
        };
        if let Some(size) = source.open.size
            && !slot.has_room_for(size)
        {
            let text = format!("its pool has no room for {size} bytes; another is tried");
            let ticket = slot.give_back(MoverOutcome::Failed(text));
            let place = ticket.pool(Some(size));
            let next = place.and_then(|place| place.queue(MoverKind::Pull, redacted(&url)));
            queue = next.map_err(CopyFailure::Early)?;
            watching.follow(queue.view());
            continue;
        }
        let sums = source.expected.iter().map(Checksum::algorithm);
        let FileWrite {
            file,
            mut mover,
            absence,
        } = slot.open(FileFacts {
            size: source.open.size,
            algorithms: sums.chain(order.wanted.iter().copied()).collect(),
            properties_of: None,
        });
        return match fetch(door, &order, source, file, &mut mover).await {
            Ok((stored, streams)) => {
                let report = report(&mover, &stored, streams);
                mover.end(MoverOutcome::Done);
                Ok(report)
            }
            Err(error) => Err(end_failed(path, &url, mover, failure(error, absence))),
        };
    }
    Err(CopyFailure::Early(Problem::of_placement(
        PlacementRefusal::NoSpace,
        None,
    )))
}

/// Ends the mover of a pull that did not succeed, and tells its client where the file was.
fn end_failed(
    path: &NamespacePath,
    source: &Url,
    mover: Mover,
    failure: CopyFailure,
) -> CopyFailure {
    let moved = mover.moved_so_far().0;
    let pool = mover.pool().clone();
    let text = match &failure {
        CopyFailure::Early(problem) => problem.cause.message.clone(),
        CopyFailure::Late(why) => why.text.clone(),
    };
    mover.end(MoverOutcome::Failed(text));
    match failure {
        CopyFailure::Late(LateFailure { text, code }) => CopyFailure::of_cause(
            code,
            format!(
                "{text}; remote={}, local={path} in pool {pool}, {moved} bytes moved",
                redacted(source)
            ),
        ),
        early => early,
    }
}

/// Asks the source for the file.
async fn open_source(
    door: &Door,
    url: &Url,
    order: &CopyRequest,
    mover: &mut Mover,
) -> Result<PullSource, CopyFailure> {
    let (started, view) = (Instant::now(), mover.view());
    let opened = tokio::select! {
        biased;
        opened = pull_source::open(door, url, order) => opened,
        why = view.preempted() => Err(CopyFailure::preempted(&why)),
    };
    let mut open = opened?;
    mover.clocks.network_us += microseconds(started.elapsed());
    mover.set_remote(open.response.peer_addr());
    let expected = expected_checksums(order, std::mem::take(&mut open.told))?;
    if open.size.is_none() && open.response.ends_by_closing() && expected.is_empty() {
        return Err(CopyFailure::late(format!(
            "{} reports neither the size nor a checksum of the file, so its end cannot be distinguished from a broken connection",
            redacted(open.response.final_url())
        )));
    }
    Ok(PullSource { open, expected })
}

/// Gets the file from the source and writes it.
async fn fetch(
    door: &Door,
    order: &CopyRequest,
    source: PullSource,
    file: PoolWrite,
    mover: &mut Mover,
) -> Result<(StoredFile, StreamUse), ReceiveError<String>> {
    let PullSource { open, expected } = source;
    let OpenSource {
        mut response,
        size,
        parts,
        because,
        ..
    } = open;
    let limits = &door.storage.settings().limits;
    let patience = Patience {
        stall: limits.stall_timeout,
        pace: limits.pace_of_others(),
    };
    let (stored, streams) = match parts {
        Some(plan) => {
            let mut striped = StripedBody::start(door, plan, response, mover.view());
            let stored = receive(&mut striped, file, mover, patience, expected).await;
            mover.tcp = striped.tcp_info();
            let streams = striped.stream_use(order.streams, because);
            (stored.map_err(ReceiveError::into_text)?, streams)
        }
        None => {
            let stored = receive(&mut response, file, mover, patience, expected).await;
            mover.tcp = response.tcp_info();
            let streams = one_stream(order, because, size);
            (stored.map_err(ReceiveError::into_text)?, streams)
        }
    };
    let streams = StreamUse {
        writes: stored.writes.count,
        writes_elsewhere: stored.writes.elsewhere,
        ..streams
    };
    Ok((stored, streams))
}

fn one_stream(order: &CopyRequest, because: Vec<StreamsReason>, size: Option<u64>) -> StreamUse {
    let most = 2 * BUFFER_BYTES as u64;
    StreamUse {
        asked: order.streams,
        used: 1,
        buffer: Bytes(size.map_or(most, |size| size.min(most))),
        because,
        ..StreamUse::default()
    }
}

/// What the file's checksums must be, by the client's word and the source's.
fn expected_checksums(
    order: &CopyRequest,
    told: Vec<Checksum>,
) -> Result<Vec<Checksum>, CopyFailure> {
    if order.require_checksum == Some(true) && told.is_empty() {
        return Err(CopyFailure::of_cause(
            Some(ProblemCode::ChecksumUnavailable),
            "the source reports no checksum, and 'RequireChecksumVerification' demands one",
        ));
    }
    let mut expected = order.expected.clone();
    for told in told {
        let other = expected
            .iter()
            .find(|sum| sum.algorithm() == told.algorithm());
        match other {
            Some(other) if *other != told => {
                let text = format!(
                    "checksum mismatch: expected {other}, the source has {told}; nothing was copied"
                );
                let code = Some(ProblemCode::ChecksumMismatch);
                return Err(CopyFailure::of_cause(code, text));
            }
            Some(_) => {}
            None => expected.push(told),
        }
    }
    Ok(expected)
}

fn failure(error: ReceiveError<String>, absence: AbsenceDemand) -> CopyFailure {
    match error {
        ReceiveError::Source(why) => {
            CopyFailure::late(format!("{why}; the partial file was removed"))
        }
        ReceiveError::Slow(why) => {
            CopyFailure::late(format!("{why}; the partial file was removed"))
        }
        ReceiveError::Preempted(why) => CopyFailure::preempted(&why),
        // The file system was full though space was promised: others use it, too.
        ReceiveError::Write(error @ WriteError::NoSpace { .. }) => {
            CopyFailure::Early(absence.write_problem(&error))
        }
        ReceiveError::Write(error) => {
            let cause = absence.write_problem(&error).cause;
            CopyFailure::of_cause(Some(cause.code), cause.message)
        }
    }
}

fn report(mover: &Mover, stored: &StoredFile, streams: StreamUse) -> MoverReport {
    let adler = |sum: &&Checksum| sum.algorithm() == ChecksumAlgorithm::Adler32;
    MoverReport {
        moved: stored.size,
        checksum: stored.checksums.iter().find(adler).cloned(),
        pool: Some(mover.pool().clone()),
        stages: mover.clocks,
        tcp: mover.tcp,
        streams: Some(streams),
        not_offered: Vec::new(),
        verified: None,
    }
}
