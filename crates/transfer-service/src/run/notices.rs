//! What operators should know, in the log: how jobs begin and end, which transfers failed, what is left for people to do.
//! Attempts that are repeated are for who looks closer (level debug); the journal has every step.

use penstock_engine::LinkNotice;
use penstock_model::{
    Attempt, Failure, JobId, LinkId, Record, SourceRemoval, Timestamp, TransferEvent, TransferId,
    TransferRequest, TransferState,
};

/// For the site's operators.
pub(super) fn tell_of_leftover(job: JobId, request: &TransferRequest, failure: &Failure) {
    let (transfer, destination) = (request.id.0, &request.destination);
    let why = &failure.detail;
    tracing::error!(transfer, %job, %destination, why, "what an interrupted attempt may have left at its destination is tried to be removed no more; look there, and remove it");
}

/// What a record says that somebody would look for.
pub(super) fn tell_of(record: &Record) {
    match record {
        Record::JobAccepted { job, .. } => {
            let (vo, user, files) = (&job.vo, &job.user, job.transfers.len());
            tracing::info!(job = %job.id, %vo, user = user.as_str(), files, "a job was accepted");
        }
        Record::JobEnded { job, state, .. } => {
            tracing::info!(%job, state = state.name(), "a job has ended");
        }
        Record::Happened {
            job,
            transfer,
            event,
            state,
            ..
        } => tell_of_event(*job, *transfer, event, state),
        Record::TokenRenewed { .. }
        | Record::Reprioritised { .. }
        | Record::Configured(_)
        | Record::Banned(_)
        | Record::LinkChanged(_)
        | Record::Tuned(_)
        | Record::TidyingOwed(_)
        | Record::TidiedUp { .. }
        | Record::Sampled(_)
        | Record::MinuteSampled(_) => {}
    }
}

fn tell_of_event(job: JobId, transfer: TransferId, event: &TransferEvent, state: &TransferState) {
    if let TransferState::Failed {
        attempts, failure, ..
    } = state
    {
        let (code, side) = (failure.code(), failure.side.fts_scope());
        let why = failure.detail.as_str();
        tracing::info!(transfer = transfer.0, %job, attempts, %code, side, why, "a transfer has failed");
        return;
    }
    match event {
        TransferEvent::AttemptFailed {
            attempt,
            failure,
            retry_at,
            ..
        } => tell_of_attempt(job, transfer, Some(*attempt), failure, *retry_at),
        TransferEvent::StageFailed {
            failure, retry_at, ..
        } => tell_of_attempt(job, transfer, None, failure, *retry_at),
        TransferEvent::Archived {
            source: Some(SourceRemoval::Kept(why)),
        } => {
            tracing::warn!(transfer = transfer.0, %job, %why, "a copy is on tape, and its source that was to be deleted is still there; look there, and delete it");
        }
        TransferEvent::AttemptLost { attempt, reason } => {
            tracing::info!(transfer = transfer.0, %job, attempt = attempt.0, why = reason.as_str(), "the outcome of an attempt is not known");
        }
        TransferEvent::Submitted
        | TransferEvent::Chosen { .. }
        | TransferEvent::StageRequested { .. }
        | TransferEvent::Staged { .. }
        | TransferEvent::Replaced { .. }
        | TransferEvent::NotNeeded
        | TransferEvent::Started { .. }
        | TransferEvent::Prepared { .. }
        | TransferEvent::Landed { .. }
        | TransferEvent::Archived { .. }
        | TransferEvent::ArchiveFailed { .. }
        | TransferEvent::Expired { .. }
        | TransferEvent::Refused { .. }
        | TransferEvent::Canceled { .. } => {}
    }
}

/// It is tried again.
fn tell_of_attempt(
    job: JobId,
    transfer: TransferId,
    attempt: Option<Attempt>,
    failure: &Failure,
    retry_at: Option<Timestamp>,
) {
    let attempt = attempt.map(|attempt| attempt.0);
    let retry_at = retry_at.map(Timestamp::to_fts);
    let (code, why) = (failure.code(), failure.detail.as_str());
    tracing::debug!(transfer = transfer.0, %job, attempt, %code, retry_at, why, "an attempt has failed");
}

pub(super) fn tell(link: &LinkId, notice: &LinkNotice) {
    match notice {
        LinkNotice::Halted(halt) => {
            let (failures, last) = (halt.failures, &halt.last);
            let until = halt.until.to_fts();
            tracing::warn!(%link, failures, %last, %until, "a link is halted; one transfer is tried then");
        }
        LinkNotice::Reopened => tracing::info!(%link, "a halted link works again"),
    }
}
