//! Questions to the journal in PostgreSQL, on connections that only read. One that finds its connection lost is asked
//! once more.

use super::{history, minutes, reading, search, tokens, tunings};
use crate::postgres::Database;
use crate::postgres::session::{OpenTransaction, Purpose, Sessions};
use crate::sealing::SealingKeys;
use crate::sql_integer::to_sql;
use penstock_journal::{
    FoundPage, HistoryFacts, JobFilter, JobName, JobRow, JournalError, JournalReader,
    TransferFilter, TransferRow, TuningFilter,
};
use penstock_model::{
    Ban, BanChange, CredentialId, JobId, LedgerEntry, LinkChange, LinkId, LinkSample,
    MinuteSamples, SettingChange, StoredToken, Timestamp, TransferId, TuningDecision,
};

/// Reads beside the writer, on any node.
#[derive(Debug)]
pub struct PostgresReader {
    sessions: Sessions,
    keys: Option<SealingKeys>,
}

impl PostgresReader {
    /// For `connections` questions at once. Connects when it is asked first. The tables must be there.
    pub fn open(database: &Database, connections: usize) -> Result<PostgresReader, JournalError> {
        Ok(PostgresReader {
            sessions: Sessions::start(database, Purpose::Read, connections)?,
            keys: None,
        })
    }

    /// Also opens tokens, with these keys. Without, there seem to be none.
    pub fn with_keys(self, keys: SealingKeys) -> PostgresReader {
        PostgresReader {
            keys: Some(keys),
            ..self
        }
    }

    /// One transaction, so that all rows of an answer are of one instant.
    fn read<T: Send + 'static>(
        &self,
        mut question: impl FnMut(&mut OpenTransaction<'_>) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            let answer = question(&mut open)?;
            open.commit()?;
            Ok(answer)
        })
    }
}

fn as_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl JournalReader for PostgresReader {
    fn job(&self, id: JobId) -> Result<Option<JobRow>, JournalError> {
        self.read(move |open| reading::job(open, id))
    }

    fn transfers(&self, job: JobId) -> Result<Vec<TransferRow>, JournalError> {
        self.read(move |open| {
            reading::transfers(open, "WHERE job_id = $1 ORDER BY transfer_id", &[&job.0])
        })
    }

    fn transfers_after(
        &self,
        job: JobId,
        after: TransferId,
        limit: usize,
    ) -> Result<Vec<TransferRow>, JournalError> {
        let (after, limit) = (to_sql(after.0), as_limit(limit));
        self.read(move |open| {
            let condition = "WHERE job_id = $1 AND transfer_id > $2 ORDER BY transfer_id LIMIT $3";
            reading::transfers(open, condition, &[&job.0, &after, &limit])
        })
    }

    fn transfer(&self, id: TransferId) -> Result<Option<TransferRow>, JournalError> {
        let id = to_sql(id.0);
        self.read(move |open| Ok(reading::transfers(open, "WHERE transfer_id = $1", &[&id])?.pop()))
    }

    fn state_counts(&self, job: JobId) -> Result<Vec<(String, u64)>, JournalError> {
        self.read(move |open| reading::state_counts(open, job))
    }

    fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobRow>, JournalError> {
        let filter = filter.clone();
        self.read(move |open| reading::jobs(open, &filter))
    }

    fn find(&self, filter: &TransferFilter) -> Result<FoundPage, JournalError> {
        let filter = filter.clone();
        self.read(move |open| search::find(open, &filter))
    }

    fn recent_names(&self, name: JobName) -> Result<Vec<String>, JournalError> {
        self.read(move |open| search::recent_names(open, name))
    }

    fn last_sequence(&self) -> Result<u64, JournalError> {
        self.read(|open| {
            let row = open.query_opt("SELECT last_sequence FROM journal_writer", &[])?;
            Ok(row.map_or(0, |row| row.get::<_, i64>(0)) as u64)
        })
    }

    fn entries_after(&self, sequence: u64, limit: usize) -> Result<Vec<LedgerEntry>, JournalError> {
        self.read(move |open| reading::entries(open, "sequence > $1", sequence, limit))
    }

    fn entries_of(
        &self,
        transfer: TransferId,
        limit: usize,
    ) -> Result<Vec<LedgerEntry>, JournalError> {
        self.read(move |open| reading::entries(open, "transfer_id = $1", transfer.0, limit))
    }

    fn samples_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<LinkSample>, JournalError> {
        self.read(move |open| reading::samples(open, from, to))
    }

    fn minutes_between(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<MinuteSamples>, JournalError> {
        self.read(move |open| minutes::between(open, from, to))
    }

    fn link_changes(
        &self,
        link: &LinkId,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<LinkChange>, JournalError> {
        let link = link.clone();
        self.read(move |open| reading::link_changes(open, &link, from, to, limit))
    }

    fn tunings(&self, filter: &TuningFilter) -> Result<Vec<TuningDecision>, JournalError> {
        let filter = filter.clone();
        self.read(move |open| tunings::find(open, &filter))
    }

    fn setting_changes(&self, limit: usize) -> Result<Vec<SettingChange>, JournalError> {
        self.read(move |open| reading::setting_changes(open, limit))
    }

    fn bans(&self) -> Result<Vec<Ban>, JournalError> {
        self.read(reading::bans)
    }

    fn ban_changes(&self, limit: usize) -> Result<Vec<BanChange>, JournalError> {
        self.read(move |open| reading::ban_changes(open, limit))
    }

    fn history(&self) -> Result<HistoryFacts, JournalError> {
        self.read(history::facts)
    }

    fn token(&self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError> {
        let Some(keys) = self.keys.clone() else {
            return Ok(None);
        };
        let id = id.clone();
        self.read(move |open| tokens::token(open, &id, &keys))
    }
}
