//! What a job moved, in the same numbers wherever it is told: by `submit --wait` at its end, and by `status` afterwards.

use penstock_field_tools::transfer_api::{FileInfo, JobInfo};
use penstock_model::text::plural;
use penstock_model::{Bytes, Rate, TimeSpan};
use penstock_observe::times;
use serde::Serialize;
use std::time::Duration;

/// The files of a job by how they ended, and the bytes of those that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct JobTotals {
    /// All of them.
    pub files: u64,
    pub arrived: u64,
    pub failed: u64,
    pub canceled: u64,
    /// Other replicas, which were kept in reserve and not needed.
    pub not_used: u64,
    /// Bytes of files that arrived; `None`: the service does not tell the size of one of them.
    pub arrived_bytes: Option<Bytes>,
    /// From the submission to the end of the job, which services tell in whole seconds; `None`: it has not ended.
    pub seconds: Option<u64>,
    /// The mean over that time; `None`: no time passed, or it is not known.
    pub bytes_per_second: Option<Rate>,
}

impl JobTotals {
    /// Of a job and all its files.
    pub fn of(job: &JobInfo, files: &[FileInfo]) -> JobTotals {
        let count =
            |state: &str| files.iter().filter(|file| file.file_state == state).count() as u64;
        let arrived = files.iter().filter(|file| file.file_state == "FINISHED");
        let arrived_bytes = arrived.map(|file| file.filesize).sum::<Option<u64>>();
        let ends = [&job.submit_time, &job.job_finished];
        let seconds = match ends.map(|time| time.as_deref().and_then(times::iso)) {
            [Some(submitted), Some(ended)] => Some(ended.since(submitted).as_secs()),
            _ => None,
        };
        let rate = |bytes| Rate::over(Bytes(bytes), Duration::from_secs(seconds?));
        JobTotals {
            files: files.len() as u64,
            arrived: count("FINISHED"),
            failed: count("FAILED"),
            canceled: count("CANCELED"),
            not_used: count("NOT_USED"),
            arrived_bytes: arrived_bytes.map(Bytes),
            seconds,
            bytes_per_second: arrived_bytes.and_then(rate),
        }
    }

    /// Files that should have arrived and did not.
    pub fn missing(&self) -> u64 {
        self.files - self.arrived - self.not_used
    }

    /// On one line.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} of {} arrived",
            self.arrived,
            plural(self.files - self.not_used, "file")
        );
        match self.arrived_bytes {
            Some(bytes) => text += &format!(", {bytes}"),
            None => text += ", of unknown size",
        }
        match self.seconds {
            Some(0) => text += " in less than 1 s",
            Some(seconds) => text += &format!(" in {}", TimeSpan(Duration::from_secs(seconds))),
            None => {}
        }
        if let Some(rate) = self.bytes_per_second {
            text += &format!(" ({rate})");
        }
        for (number, word) in [
            (self.failed, "failed"),
            (self.canceled, "canceled"),
            (self.not_used, "not used"),
        ] {
            if number > 0 {
                text += &format!("; {number} {word}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(times: (&str, Option<&str>), files: &[(&str, Option<u64>)]) -> JobTotals {
        let job = serde_json::json!({
            "job_id": "j", "job_state": "FINISHEDDIRTY", "submit_time": times.0, "job_finished": times.1
        });
        let file = |(state, size): &(&str, Option<u64>)| {
            serde_json::from_value(serde_json::json!({
                "file_id": 1, "file_state": state, "source_surl": "a", "dest_surl": "b", "filesize": size
            }))
            .expect("a file")
        };
        let files: Vec<FileInfo> = files.iter().map(file).collect();
        JobTotals::of(&serde_json::from_value(job).expect("a job"), &files)
    }

    #[test]
    fn bytes_and_rate_are_of_files_that_arrived() {
        let files = [
            ("FINISHED", Some(4_000_000)),
            ("FINISHED", Some(2_000_000)),
            ("FAILED", Some(900_000_000)),
            ("CANCELED", Some(800_000_000)),
            ("NOT_USED", Some(2_000_000)),
        ];
        let told = totals(("2026-11-26T10:00:00", Some("2026-11-26T10:15:00")), &files);
        assert_eq!(
            told.text(),
            "2 of 4 files arrived, 6.0 MB in 15 min (6.7 kB/s); 1 failed; 1 canceled; 1 not used"
        );
        assert_eq!(told.missing(), 2);
    }

    #[test]
    fn no_time_gives_no_rate_and_no_size_no_bytes() {
        let at = "2026-11-26T10:00:00";
        let told = totals((at, Some(at)), &[("FINISHED", Some(7000))]);
        assert_eq!((told.seconds, told.bytes_per_second), (Some(0), None));
        assert_eq!(told.text(), "1 of 1 file arrived, 7.0 kB in less than 1 s");
        let told = totals((at, None), &[("FINISHED", None), ("ACTIVE", Some(3))]);
        assert_eq!((told.seconds, told.bytes_per_second), (None, None));
        assert_eq!(told.text(), "1 of 2 files arrived, of unknown size");
    }
}
