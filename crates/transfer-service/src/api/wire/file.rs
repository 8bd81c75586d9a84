//! File objects as FTS's REST interface shows them. They are written straight into an answer: there may be a hundred
//! thousand in one, and each has fifty keys.

use super::{file_metadata, log_place, reason};
use penstock_journal::{JobRow, TransferRow};
use penstock_model::{
    CopySummary, Failure, JobKind, JobParameters, Retry, StageRequestId, Timestamp, TransferState,
    VoName,
};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// What a file object shows of its job.
#[derive(Debug, Clone, Copy)]
pub struct JobColumns<'a> {
    /// On whose behalf.
    pub vo: &'a VoName,
    /// What holds for every file.
    pub parameters: &'a JobParameters,
}

impl<'a> From<&'a JobRow> for JobColumns<'a> {
    fn from(row: &'a JobRow) -> JobColumns<'a> {
        JobColumns {
            vo: &row.vo,
            parameters: &row.parameters,
        }
    }
}

/// A file object with all keys of FTS's file table, or some of them.
#[derive(Debug, Clone, Copy)]
pub struct FileObject<'a> {
    /// The file.
    pub row: &'a TransferRow,
    pub job: JobColumns<'a>,
    /// This host's name.
    pub host: &'a str,
    /// Only these keys; all of them present, those that are not known as null. `None`: every key.
    pub only: Option<&'a [&'a str]>,
}

/// Writes the keys that are wanted.
struct Keys<'a, M> {
    map: M,
    only: Option<&'a [&'a str]>,
    /// Those of `only` that are not known yet.
    unknown: Vec<&'a str>,
}

impl<M: SerializeMap> Keys<'_, M> {
    fn put<V: Serialize>(&mut self, key: &'static str, value: V) -> Result<(), M::Error> {
        if self.only.is_some_and(|only| !only.contains(&key)) {
            return Ok(());
        }
        self.unknown.retain(|wanted| *wanted != key);
        self.map.serialize_entry(key, &value)
    }

    fn end(mut self) -> Result<M::Ok, M::Error> {
        self.unknown.sort_unstable();
        self.unknown.dedup();
        for key in std::mem::take(&mut self.unknown) {
            self.map.serialize_entry(key, &())?;
        }
        self.map.end()
    }
}

impl Serialize for FileObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut keys = Keys {
            map: serializer.serialize_map(None)?,
            only: self.only,
            unknown: self.only.unwrap_or_default().to_vec(),
        };
        self.put_request(&mut keys)?;
        self.put_times(&mut keys)?;
        self.put_outcome(&mut keys)?;
        keys.end()
    }
}

impl FileObject<'_> {
    /// What was asked for.
    fn put_request<M: SerializeMap>(&self, keys: &mut Keys<'_, M>) -> Result<(), M::Error> {
        let (row, request, job) = (self.row, &self.row.request, self.job);
        let (link, notes) = (request.link(), request.tape.as_deref());
        let checksum = request.checksum.as_ref().map_or_else(
            || request.checksum_algorithm.name().to_uppercase(),
            |sum| format!("{}:{}", sum.algorithm().name().to_uppercase(), sum.hex()),
        );
        keys.put("activity", request.activity.as_str())?;
        keys.put(
            "archive_metadata",
            notes.and_then(|notes| notes.archive.as_ref()),
        )?;
        keys.put("checksum", checksum)?;
        keys.put("dest_se", link.destination.as_str())?;
        keys.put("dest_surl", request.destination.public_text())?;
        keys.put("dest_surl_uuid", ())?;
        let token = request.destination_credential.as_ref();
        keys.put("dst_token_id", token.map(|id| id.as_str()))?;
        keys.put("file_id", row.id.0)?;
        keys.put("file_index", request.index)?;
        let metadata = file_metadata(&request.metadata, failure_of(&row.state));
        keys.put("file_metadata", metadata)?;
        // Its name is the same whenever it was submitted.
        let initial = job.parameters.first_state(Timestamp(0));
        keys.put("file_state_initial", initial.fts_name())?;
        keys.put("hashed_id", row.id.0 % 65_536)?;
        keys.put("job_id", row.job.0)?;
        keys.put("priority", job.parameters.priority.get())?;
        keys.put("scitag", request.scitag)?;
        keys.put("selection_strategy", selection(job.parameters.kind))?;
        keys.put("source_se", link.source.as_str())?;
        keys.put("source_surl", request.source.public_text())?;
        let token = request.source_credential.as_ref();
        keys.put("src_token_id", token.map(|id| id.as_str()))?;
        keys.put(
            "staging_metadata",
            notes.and_then(|notes| notes.staging.as_ref()),
        )?;
        keys.put("user_filesize", request.size.map(|size| size.0))?;
        keys.put("vo_name", job.vo.as_str())
    }

    /// When and where it was treated.
    fn put_times<M: SerializeMap>(&self, keys: &mut Keys<'_, M>) -> Result<(), M::Error> {
        let (row, tape) = (self.row, &self.row.tape);
        let mut time = |key, at: Option<Timestamp>| keys.put(key, at.map(Timestamp::to_fts));
        time("archive_finish_time", tape.archiving_finished_at)?;
        time("archive_start_time", tape.archiving_started_at)?;
        time("finish_time", row.finished_at)?;
        time("staging_finished", tape.staging_finished_at)?;
        time("staging_start", tape.staging_started_at)?;
        time("start_time", row.started_at)?;
        keys.put("log_debug", row.started_at.map(|_| 0))?;
        let log = row.started_at.map(|_| log_place(row.job, row.id));
        keys.put("log_file", log)?;
        keys.put("staging_host", tape.staging_started_at.map(|_| self.host))?;
        keys.put("transfer_host", row.started_at.map(|_| self.host))?;
        let request = tape.request.as_ref();
        keys.put("bringonline_token", request.map(StageRequestId::as_str))
    }

    /// Where it stands.
    fn put_outcome<M: SerializeMap>(&self, keys: &mut Keys<'_, M>) -> Result<(), M::Error> {
        let row = self.row;
        let (attempts, report) = attempts(&row.state);
        let recoverable = failure_of(&row.state).map(|failure| failure.retry == Retry::Later);
        let seconds = match (row.started_at, row.finished_at) {
            (Some(started), Some(finished)) => Some(finished.since(started).as_secs_f64()),
            _ => None,
        };
        let mib = report.map(|report| report.moved.0 as f64 / f64::from(1 << 20));
        let throughput = mib
            .zip(seconds)
            .map(|(mib, seconds)| if seconds > 0.0 { mib / seconds } else { 0.0 });
        let size = row.size_bytes.or(row.request.size.map(|size| size.0));
        keys.put("file_state", row.fts_state())?;
        keys.put("filesize", size)?;
        keys.put("internal_file_params", report.and_then(in_effect))?;
        keys.put("pid", ())?;
        keys.put("reason", reason(&row.state))?;
        keys.put("recoverable", recoverable)?;
        keys.put("retry", attempts.saturating_sub(1))?;
        keys.put("throughput", throughput)?;
        keys.put("tx_duration", seconds)
    }
}

/// How many attempts there were, and what the last one told if it arrived.
fn attempts(state: &TransferState) -> (u32, Option<&CopySummary>) {
    match state {
        TransferState::Submitted { attempts, .. } | TransferState::Failed { attempts, .. } => {
            (*attempts, None)
        }
        TransferState::Active { attempt, .. } => (attempt.0, None),
        TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. } => {
            (recall.attempts, None)
        }
        TransferState::Finished {
            attempt, report, ..
        }
        | TransferState::Archiving {
            attempt, report, ..
        } => (attempt.0, Some(report)),
        TransferState::Canceled { .. } => (1, None),
        TransferState::NotUsed => (0, None),
    }
}

fn failure_of(state: &TransferState) -> Option<&Failure> {
    match state {
        TransferState::Failed { failure, .. } => Some(failure),
        _ => None,
    }
}

fn selection(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Replicas(by) => by.name(),
        JobKind::Independent | JobKind::Session | JobKind::Hops => "auto",
    }
}

/// What a copy used, in the form of the job's parameters; nothing when its storage element did not tell.
fn in_effect(report: &CopySummary) -> Option<String> {
    let streams = report.streams.as_ref()?;
    let (used, buffer) = (streams.used, streams.buffer.0);
    Some(format!("nostreams:{used},buffersize:{buffer}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_journal::TapeTimes;
    use penstock_model::{
        Activity, ChecksumAlgorithm, FileUrl, JobId, TransferId, TransferRequest,
    };
    use serde_json::{Value, json};
    use std::collections::BTreeSet;

    fn row() -> TransferRow {
        let url = |text| FileUrl::parse(text).expect("valid");
        TransferRow {
            id: TransferId(65_537),
            job: JobId(uuid::Uuid::nil()),
            request: TransferRequest {
                id: TransferId(65_537),
                index: 3,
                source: url("https://a/f"),
                destination: url("https://b/f"),
                size: None,
                checksum: None,
                checksum_algorithm: ChecksumAlgorithm::Adler32,
                activity: Activity::new("default"),
                scitag: None,
                metadata: json!({"k": 1}).into(),
                source_credential: None,
                destination_credential: None,
                source_query: None,
                destination_query: None,
                tape: None,
            },
            state: TransferState::NotUsed,
            size_bytes: None,
            started_at: None,
            finished_at: None,
            awaits_token: false,
            is_banned: false,
            tape: TapeTimes::default(),
        }
    }

    fn shown(only: Option<&[&str]>) -> (String, Value) {
        let (vo, parameters) = (VoName::new("cms"), JobParameters::default());
        let object = FileObject {
            row: &row(),
            job: JobColumns {
                vo: &vo,
                parameters: &parameters,
            },
            host: "here",
            only,
        };
        let text = serde_json::to_string(&object).expect("JSON");
        (text, json!(object))
    }

    #[test]
    fn each_key_is_written_once() {
        let (text, value) = shown(None);
        let keys = value.as_object().expect("an object");
        let all: BTreeSet<&String> = keys.keys().collect();
        assert_eq!(all.len(), 42);
        for key in all {
            assert_eq!(text.matches(&format!("\"{key}\":")).count(), 1, "{key}");
        }
        assert_eq!(value["hashed_id"], 1);
        assert_eq!(value["file_metadata"], json!({"k": 1}));
        assert_eq!(value["file_state"], "NOT_USED");
    }

    #[test]
    fn of_the_keys_that_are_asked_for_none_is_missing_and_none_is_there_twice() {
        let (text, _) = shown(Some(&[
            "file_id",
            "no_such",
            "file_id",
            "no_such",
            "dest_surl",
        ]));
        assert_eq!(
            text,
            r#"{"dest_surl":"https://b/f","file_id":65537,"no_such":null}"#
        );
    }
}
