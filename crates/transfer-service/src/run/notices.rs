//! What operators should know, in the log.

use penstock_engine::LinkNotice;
use penstock_model::{
    Failure, JobId, LinkId, Record, SourceRemoval, TransferEvent, TransferRequest,
};

/// For the site's operators.
pub(super) fn tell_of_leftover(job: JobId, request: &TransferRequest, failure: &Failure) {
    let (transfer, destination) = (request.id.0, &request.destination);
    let why = &failure.detail;
    tracing::error!(transfer, %job, %destination, why, "what an interrupted attempt may have left at its destination is tried to be removed no more; look there, and remove it");
}

/// A source that was to be removed is still there, and nobody tries again.
pub(super) fn tell_of_kept_source(record: &Record) {
    let Record::Happened {
        job,
        transfer,
        event:
            TransferEvent::Archived {
                source: Some(SourceRemoval::Kept(why)),
            },
        ..
    } = record
    else {
        return;
    };
    let transfer = transfer.0;
    tracing::warn!(transfer, %job, %why, "a copy is on tape, and its source that was to be deleted is still there; look there, and delete it");
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
