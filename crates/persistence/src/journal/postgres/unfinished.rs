//! What a restart reads: everything that has not ended, in one pass over the open jobs and their transfers.

use super::reading::decode;
use super::{reading, tidyings, tokens, tunings};
use crate::journal::rows::skip;
use crate::postgres::session::{OpenTransaction, RowFlow};
use ::postgres::Row;
use penstock_journal::JournalError;
use penstock_model::{
    CredentialId, Job, JobId, RestartFacts, Timestamp, TransferRequest, TransferState,
    UnfinishedJob, UserName, VoName,
};
use std::sync::Arc;
use uuid::Uuid;

/// What holds for all jobs, but the highest number, which the writer knows.
pub(super) fn standing(open: &mut OpenTransaction<'_>) -> Result<RestartFacts, JournalError> {
    Ok(RestartFacts {
        transfer_id_max: 0,
        settings: reading::settings(open)?,
        bans: reading::bans(open)?,
        tunings: tunings::latest(open)?,
        tidyings: tidyings::all(open)?,
        tokens_awaited: tokens::awaited(open)?,
    })
}

/// Jobs in the order of their submission, each with its transfers in theirs: both orders are those of indexes.
const OPEN: &str = "SELECT job.job_id, transfer.transfer_id, transfer.state_name, transfer.state, transfer.request,
    job.username, job.vo, job.delegation, job.submitted_ms, job.parameters
    FROM job LEFT JOIN transfer ON transfer.job_id = job.job_id
    WHERE job.finished_ms IS NULL ORDER BY job.submitted_ms, job.job_id, transfer.transfer_id";

/// Of all ways to read them, the one that needs no memory in the database for all rows at once.
const BY_INDEXES: &str = "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_seqscan = off";

/// Hands over each job that has not ended, until nobody takes any more.
pub(super) fn for_each(
    open: &mut OpenTransaction<'_>,
    mut take: impl FnMut(UnfinishedJob) -> RowFlow,
) -> Result<(), JournalError> {
    let database = open.database().clone();
    let mut current: Option<UnfinishedJob> = None;
    let mut last_state: Option<(String, TransferState)> = None;
    let mut unreadable: Option<JobId> = None;
    open.execute_all(BY_INDEXES)?;
    open.stream(OPEN, &[], |row| {
        let id = JobId(row.get::<_, Uuid>(0));
        if unreadable == Some(id) {
            return Ok(RowFlow::On);
        }
        if current.as_ref().is_none_or(|known| known.job.id != id)
            && let Some(whole) = current.take()
            && take(whole) == RowFlow::NoFurther
        {
            return Ok(RowFlow::NoFurther);
        }
        match add(&database, row, id, current.as_mut(), &mut last_state) {
            Ok(None) => {}
            Ok(begun) => current = begun,
            Err(error @ JournalError::Corrupt { .. }) => {
                skip(&id.to_string(), &error);
                (current, unreadable) = (None, Some(id));
            }
            Err(error) => return Err(error),
        }
        Ok::<_, JournalError>(RowFlow::On)
    })?;
    if let Some(whole) = current {
        take(whole);
    }
    Ok(())
}

/// Adds a row to its job, or begins the job with it.
fn add(
    database: &Arc<str>,
    row: &Row,
    id: JobId,
    current: Option<&mut UnfinishedJob>,
    last_state: &mut Option<(String, TransferState)>,
) -> Result<Option<UnfinishedJob>, JournalError> {
    let mut begun = match current {
        Some(_) => None,
        None => Some(begin(database, row, id)?),
    };
    // A job whose transfers are all gone has a row without one.
    let (Some(found), Some(name)) = (current.or(begun.as_mut()), row.get::<_, Option<&str>>(2))
    else {
        return Ok(begun);
    };
    if found.ended.iter().any(|state| state.fts_name() == name) {
        return Ok(begun);
    }
    let text: &str = row.get(3);
    // Most that wait are the same.
    let state = match last_state {
        Some((known, state)) if known == text => state.clone(),
        _ => {
            let state: TransferState = decode(database, "transfer state", text)?;
            *last_state = Some((text.to_owned(), state.clone()));
            state
        }
    };
    if state.is_terminal() {
        found.add_ended(state);
    } else {
        let request: TransferRequest = decode(database, "transfer request", row.get(4))?;
        found.sort_in(request, state);
    }
    Ok(begun)
}

fn begin(database: &Arc<str>, row: &Row, id: JobId) -> Result<UnfinishedJob, JournalError> {
    Ok(UnfinishedJob {
        job: Job {
            id,
            user: UserName::new(row.get::<_, &str>(5)),
            vo: VoName::new(row.get::<_, &str>(6)),
            delegation: CredentialId::new(row.get::<_, &str>(7)),
            submitted_at: Timestamp(row.get(8)),
            parameters: decode(database, "job parameters", row.get(9))?,
            transfers: Vec::new(),
        },
        states: Vec::new(),
        ended: Vec::new(),
    })
}
