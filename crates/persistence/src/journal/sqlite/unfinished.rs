//! What a restart reads: everything that has not ended, in one pass over the open jobs and their transfers. Nothing is
//! asked job by job, and nothing is kept but the job at hand.

use super::reading::RecordQueries;
use super::{at, bans, settings, tidyings, tunings};
use crate::journal::rows::skip;
use penstock_journal::JournalError;
use penstock_model::{
    CredentialId, Job, JobId, RestartFacts, Timestamp, TransferRequest, TransferState,
    UnfinishedJob, UserName, VoName,
};
use rusqlite::Row;

/// What holds for all jobs.
pub(super) fn standing(reading: &RecordQueries<'_>) -> Result<RestartFacts, JournalError> {
    let sql = "SELECT max(coalesce((SELECT max(transfer_id) FROM transfer), 0),
               coalesce((SELECT value FROM history WHERE name = 'transfer_id_max'), 0))";
    let highest = reading
        .connection
        .query_row(sql, [], |row| row.get::<_, i64>(0));
    Ok(RestartFacts {
        transfer_id_max: highest.map_err(at(reading.path))? as u64,
        settings: settings::load(reading)?,
        bans: bans::load(reading)?,
        tunings: tunings::latest(reading)?,
        tidyings: tidyings::all(reading)?,
        tokens_awaited: reading.tokens_awaited(None)?,
    })
}

/// Jobs in the order of their submission, each with its transfers in theirs: both orders are those of indexes.
const OPEN: &str = "SELECT job.job_id, transfer.transfer_id, transfer.state_name, transfer.state, transfer.request,
    job.user, job.vo, job.delegation, job.submitted_ms, job.parameters
    FROM job LEFT JOIN transfer ON transfer.job_id = job.job_id
    WHERE job.finished_ms IS NULL ORDER BY job.submitted_ms, job.job_id, transfer.transfer_id";

/// Hands over each job that has not ended.
pub(super) fn for_each(
    reading: &RecordQueries<'_>,
    take: &mut dyn FnMut(UnfinishedJob),
) -> Result<(), JournalError> {
    let failed = || at(reading.path);
    let mut statement = reading.connection.prepare(OPEN).map_err(failed())?;
    let mut rows = statement.query([]).map_err(failed())?;
    let mut current: Option<(String, UnfinishedJob)> = None;
    let mut states = States::default();
    let mut unreadable: Option<String> = None;
    while let Some(row) = rows.next().map_err(failed())? {
        let id = reading.text(row, 0)?;
        if unreadable.as_deref() == Some(id) {
            continue;
        }
        if current.as_ref().is_none_or(|(known, _)| known != id)
            && let Some((_, whole)) = current.take()
        {
            take(whole);
        }
        match add(
            reading,
            row,
            id,
            current.as_mut().map(|(_, job)| job),
            &mut states,
        ) {
            Ok(None) => {}
            Ok(Some(begun)) => current = Some((id.to_owned(), begun)),
            Err(error @ JournalError::Corrupt { .. }) => {
                skip(id, &error);
                (current, unreadable) = (None, Some(id.to_owned()));
            }
            Err(error) => return Err(error),
        }
    }
    if let Some((_, whole)) = current {
        take(whole);
    }
    Ok(())
}

/// Adds a row to its job, or begins the job with it.
fn add(
    reading: &RecordQueries<'_>,
    row: &Row<'_>,
    id: &str,
    current: Option<&mut UnfinishedJob>,
    states: &mut States,
) -> Result<Option<UnfinishedJob>, JournalError> {
    let mut begun = match current {
        Some(_) => None,
        None => Some(begin(reading, row, id)?),
    };
    let Some(found) = current.or(begun.as_mut()) else {
        return Ok(begun);
    };
    // A job whose transfers are all gone has a row without one.
    if reading.get::<Option<i64>>(row, 1)?.is_none() {
        return Ok(begun);
    }
    let name = reading.text(row, 2)?;
    if found.ended.iter().any(|state| state.fts_name() == name) {
        return Ok(begun);
    }
    let state = states.decode(reading, reading.text(row, 3)?)?;
    if state.is_terminal() {
        found.add_ended(state);
    } else {
        let request: TransferRequest = reading.decode("transfer request", reading.text(row, 4)?)?;
        found.sort_in(request, state);
    }
    Ok(begun)
}

fn begin(
    reading: &RecordQueries<'_>,
    row: &Row<'_>,
    id: &str,
) -> Result<UnfinishedJob, JournalError> {
    Ok(UnfinishedJob {
        job: Job {
            id: JobId(reading.parse_uuid(id)?),
            user: UserName::new(reading.text(row, 5)?),
            vo: VoName::new(reading.text(row, 6)?),
            delegation: CredentialId::new(reading.text(row, 7)?),
            submitted_at: Timestamp(reading.get(row, 8)?),
            parameters: reading.decode("job parameters", reading.text(row, 9)?)?,
            transfers: Vec::new(),
        },
        states: Vec::new(),
        ended: Vec::new(),
    })
}

/// Decodes states. Most that wait are the same, so that the last one is remembered.
#[derive(Default)]
struct States {
    last: Option<(String, TransferState)>,
}

impl States {
    fn decode(
        &mut self,
        reading: &RecordQueries<'_>,
        text: &str,
    ) -> Result<TransferState, JournalError> {
        if let Some((known, state)) = &self.last
            && known == text
        {
            return Ok(state.clone());
        }
        let state: TransferState = reading.decode("transfer state", text)?;
        self.last = Some((text.to_owned(), state.clone()));
        Ok(state)
    }
}
