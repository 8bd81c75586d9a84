//! Finding transfers among all that ever were, newest first, a page at a time. What no index narrows is looked at row
//! by row, but never more than so many rows for one page: who wants more asks for the next.

use super::JournalError;
use super::sqlite::{JournalReader, Reading, TRANSFER_COLUMNS, at};
use super::{FoundTransfer, TransferRow};
use penstock_model::url::redact;
use penstock_model::{JobId, StorageId, Timestamp, TransferId, UserName, VoName};
use rusqlite::{OptionalExtension, params};
use serde::Deserialize;
use std::borrow::Cow;

/// Jobs of one instant that may have come in another order than their numbers.
const JOBS_OF_AN_INSTANT: i64 = 100;
/// Jobs in which names are looked for.
const JOBS_WITH_NAMES: i64 = 10_000;

/// Which transfers somebody looks for. `None` and empty mean: any.
#[derive(Debug, Clone, Default)]
pub struct TransferFilter {
    /// Of one job.
    pub job: Option<JobId>,
    /// On behalf of.
    pub vo: Option<VoName>,
    /// States as on the wire.
    pub states: Vec<String>,
    /// Only what has not ended, or ended at or after this time.
    pub ended_since: Option<Timestamp>,
    /// Submitted at or after this time.
    pub submitted_since: Option<Timestamp>,
    /// Out of this storage element.
    pub source: Option<StorageId>,
    /// Into this storage element.
    pub destination: Option<StorageId>,
    /// At one of its ends, whatever the scheme and the port.
    pub host: Option<String>,
    /// To this very URL.
    pub destination_url: Option<String>,
    /// Each of these is a part of the source's or the destination's URL, in capitals or not.
    pub parts: Vec<String>,
    /// Only numbers below this one: the page after another.
    pub before: Option<TransferId>,
    /// At most this many.
    pub limit: usize,
    /// At most this many are looked at.
    pub examined_max: usize,
}

/// A page of what was found.
#[derive(Debug, Default)]
pub struct FoundPage {
    /// Newest first.
    pub transfers: Vec<FoundTransfer>,
    /// Where the next page begins; `None`: there is nothing further.
    pub before: Option<TransferId>,
    /// Rows that were looked at.
    pub examined: usize,
}

/// A name that jobs have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobName {
    /// Who submitted.
    User,
    /// On whose behalf.
    Vo,
}

impl JournalReader {
    /// Transfers that fit a filter.
    pub fn find(&self, filter: &TransferFilter) -> Result<FoundPage, JournalError> {
        self.read(|reading| find(reading, filter))
    }

    /// The different names of the latest jobs.
    pub fn recent_names(&self, name: JobName) -> Result<Vec<String>, JournalError> {
        let column = match name {
            JobName::User => "user",
            JobName::Vo => "vo",
        };
        let sql = format!(
            "SELECT DISTINCT {column} FROM
             (SELECT {column} FROM job ORDER BY submitted_ms DESC LIMIT {JOBS_WITH_NAMES})"
        );
        self.read(|reading| {
            let failed = at(reading.path);
            let mut statement = match reading.connection.prepare_cached(&sql) {
                Ok(statement) => statement,
                Err(why) => return Err(failed(why)),
            };
            let names = statement.query_map([], |row| row.get(0));
            names.and_then(Iterator::collect).map_err(failed)
        })
    }
}

/// What is needed of a request to compare it, without reading all of it.
#[derive(Deserialize)]
struct Ends<'a> {
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(borrow)]
    destination: Cow<'a, str>,
}

struct JobFacts {
    id: JobId,
    user: UserName,
    vo: VoName,
    submitted_at: Timestamp,
    parameters: String,
}

fn find(reading: &Reading<'_>, filter: &TransferFilter) -> Result<FoundPage, JournalError> {
    let mut page = FoundPage::default();
    if filter.limit == 0 {
        return Ok(page);
    }
    let floor = match filter.submitted_since {
        Some(since) => match first_since(reading, since)? {
            Some(first) => first,
            None => return Ok(page),
        },
        None => TransferId(0),
    };
    let wanted = Wanted::new(filter);
    let sql = format!(
        "{TRANSFER_COLUMNS} WHERE {} transfer_id < ?1 AND transfer_id >= ?2 ORDER BY transfer_id DESC LIMIT ?4",
        narrowed(filter)
    );
    let before = filter.before.map_or(i64::MAX, |before| before.0 as i64);
    let job = filter.job.map(|job| job.to_string());
    let examined_max = filter.examined_max.max(1);
    let parameters = params![before, floor.0 as i64, job, examined_max as i64];
    let mut statement = reading
        .connection
        .prepare_cached(&sql)
        .map_err(at(reading.path))?;
    let mut rows = statement.query(parameters).map_err(at(reading.path))?;
    let mut of: Option<JobFacts> = None;
    while let Some(row) = rows.next().map_err(at(reading.path))? {
        let id = TransferId(reading.get::<i64>(row, 0)? as u64);
        page.examined += 1;
        page.before = Some(id);
        if !wanted.ends(&reading.get::<String>(row, 2)?) {
            continue;
        }
        let job = reading.parse_uuid(&reading.get::<String>(row, 1)?)?;
        if of.as_ref().is_none_or(|of| of.id.0 != job) {
            of = facts(reading, JobId(job))?;
        }
        let Some(of) = &of else {
            continue;
        };
        let mut transfer = reading.transfer_row(row)?;
        if !wanted.rest(&transfer, of) {
            continue;
        }
        reading.mark_awaiting(std::slice::from_mut(&mut transfer))?;
        page.transfers.push(FoundTransfer {
            transfer,
            user: of.user.clone(),
            vo: of.vo.clone(),
            submitted_at: of.submitted_at,
            parameters: reading.decode("job parameters", &of.parameters)?,
        });
        if page.transfers.len() >= filter.limit {
            return Ok(page);
        }
    }
    if page.examined < examined_max {
        page.before = None;
    }
    Ok(page)
}

/// What an index can do for a filter. Each names columns that its index is made for.
fn narrowed(filter: &TransferFilter) -> &'static str {
    const ENDED: [&str; 3] = ["FINISHED", "FAILED", "CANCELED"];
    let none_ended = |states: &[String]| {
        // What is not used has no end either, but the words for what is open are many.
        !states.is_empty() && !states.iter().any(|state| ENDED.contains(&state.as_str()))
    };
    match (&filter.job, filter.states.as_slice()) {
        (Some(_), _) => "job_id = ?3 AND",
        (None, [only]) if only == "FAILED" => "?3 IS NULL AND state_name = 'FAILED' AND",
        (None, states) if none_ended(states) => "?3 IS NULL AND finished_ms IS NULL AND",
        (None, _) => "?3 IS NULL AND",
    }
}

/// The lowest number of a transfer that was submitted at or after a time.
fn first_since(
    reading: &Reading<'_>,
    since: Timestamp,
) -> Result<Option<TransferId>, JournalError> {
    let sql = "SELECT min(transfer_id) FROM transfer WHERE job_id IN
               (SELECT job_id FROM job WHERE submitted_ms >= ?1 ORDER BY submitted_ms LIMIT ?2)";
    let first = reading
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            statement.query_row(params![since.0, JOBS_OF_AN_INSTANT], |row| {
                row.get::<_, Option<i64>>(0)
            })
        });
    let first = first.map_err(at(reading.path))?;
    Ok(first.map(|id| TransferId(id as u64)))
}

fn facts(reading: &Reading<'_>, id: JobId) -> Result<Option<JobFacts>, JournalError> {
    let sql = "SELECT user, vo, submitted_ms, parameters FROM job WHERE job_id = ?1";
    let found = reading
        .connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            let row = statement.query_row([id.to_string()], |row| {
                Ok(JobFacts {
                    id,
                    user: UserName::new(row.get::<_, String>(0)?),
                    vo: VoName::new(row.get::<_, String>(1)?),
                    submitted_at: Timestamp(row.get(2)?),
                    parameters: row.get(3)?,
                })
            });
            row.optional()
        });
    found.map_err(at(reading.path))
}

/// A filter, ready to be compared with many rows.
struct Wanted<'a> {
    filter: &'a TransferFilter,
    parts: Vec<String>,
    host: Option<String>,
}

impl Wanted<'_> {
    fn new(filter: &TransferFilter) -> Wanted<'_> {
        let parts = filter.parts.iter();
        Wanted {
            filter,
            parts: parts.map(|part| part.to_ascii_lowercase()).collect(),
            host: filter.host.as_ref().map(|host| host.to_ascii_lowercase()),
        }
    }

    /// By the URLs alone, before anything else of the row is read.
    fn ends(&self, request: &str) -> bool {
        if self.parts.is_empty() && self.filter.destination_url.is_none() {
            return true;
        }
        let Ok(ends) = serde_json::from_str::<Ends<'_>>(request) else {
            return false;
        };
        let to = self.filter.destination_url.as_ref();
        let (source, destination) = (
            // What may be secret in an address cannot be guessed by searching for it.
            redact(&ends.source).to_ascii_lowercase(),
            redact(&ends.destination).to_ascii_lowercase(),
        );
        to.is_none_or(|url| *url == ends.destination)
            && self
                .parts
                .iter()
                .all(|part| source.contains(part) || destination.contains(part))
    }

    fn rest(&self, row: &TransferRow, job: &JobFacts) -> bool {
        let filter = self.filter;
        let link = row.request.link();
        let is_one = |wanted: &Option<StorageId>, of: &StorageId| {
            wanted.as_ref().is_none_or(|wanted| wanted == of)
        };
        let state = row.state.fts_name();
        filter.vo.as_ref().is_none_or(|vo| *vo == job.vo)
            && (filter.states.is_empty() || filter.states.iter().any(|name| name == state))
            && is_one(&filter.source, &link.source)
            && is_one(&filter.destination, &link.destination)
            && self
                .host
                .as_deref()
                .is_none_or(|host| host == link.source.host() || host == link.destination.host())
            && filter
                .submitted_since
                .is_none_or(|since| job.submitted_at >= since)
            && filter
                .ended_since
                .is_none_or(|since| row.finished_at.is_none_or(|ended| ended >= since))
    }
}
