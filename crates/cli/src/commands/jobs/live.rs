//! What of jobs moves at the moment: bytes, rate and time left, from the one source that the live page has too.

use penstock_field_tools::transfer_api::{RunningFile, TransferService};
use penstock_model::text::plural;
use penstock_model::{Bytes, Rate, TimeSpan};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Files that move now, by their numbers.
#[derive(Debug, Clone, Default)]
pub struct LiveBytes(BTreeMap<u64, RunningFile>);

/// Files that move now, together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moving {
    pub files: u64,
    pub moved_bytes: Bytes,
    /// Of all of them; `None`: the size of one is not known.
    pub size_bytes: Option<Bytes>,
    pub bytes_per_second: Rate,
    pub seconds_left: Option<u64>,
}

impl LiveBytes {
    /// Of some jobs. A service that does not tell it tells the rest all the same.
    pub async fn of(service: &TransferService, jobs: &[String]) -> LiveBytes {
        match service.running(jobs).await {
            Ok(files) => LiveBytes(
                files
                    .into_iter()
                    .map(|file| (file.transfer, file))
                    .collect(),
            ),
            Err(why) => {
                tracing::debug!(%why, "running transfers are not known");
                LiveBytes::default()
            }
        }
    }

    /// The files of a job; `None`: none moves.
    pub fn of_job(&self, job: &str) -> Option<Moving> {
        Moving::of(self.0.values().filter(|file| file.job == job))
    }

    /// One file; `None`: it does not move.
    pub fn of_file(&self, transfer: u64) -> Option<Moving> {
        Moving::of(self.0.get(&transfer))
    }

    /// Bytes of one file; 0: it does not move.
    pub fn moved_of(&self, transfer: u64) -> u64 {
        self.0.get(&transfer).map_or(0, |file| file.moved_bytes)
    }
}

impl Moving {
    fn of<'a>(files: impl IntoIterator<Item = &'a RunningFile>) -> Option<Moving> {
        let mut moving = Moving {
            files: 0,
            moved_bytes: Bytes(0),
            size_bytes: Some(Bytes(0)),
            bytes_per_second: Rate(0),
            seconds_left: None,
        };
        for file in files {
            moving.files += 1;
            moving.moved_bytes.0 += file.moved_bytes;
            let whole = moving.size_bytes.zip(file.size_bytes);
            moving.size_bytes = whole.map(|(sum, size)| Bytes(sum.0.saturating_add(size)));
            let elapsed = Duration::try_from_secs_f64(file.seconds).unwrap_or_default();
            let rate = Rate::over(Bytes(file.moved_bytes), elapsed).unwrap_or_default();
            moving.bytes_per_second.0 = moving.bytes_per_second.0.saturating_add(rate.0);
        }
        let missing = moving
            .size_bytes
            .map(|size| size.0.saturating_sub(moving.moved_bytes.0));
        moving.seconds_left = match moving.bytes_per_second {
            Rate(0) => None,
            Rate(rate) => missing.map(|missing| missing.div_ceil(rate)),
        };
        (moving.files > 0).then_some(moving)
    }

    /// `6.0 MB of 12.0 MB, 2.0 MB/s, 3 s left`.
    pub fn amounts(&self) -> String {
        let of = self
            .size_bytes
            .map_or_else(String::new, |size| format!(" of {size}"));
        let left = self.seconds_left.map_or_else(String::new, |seconds| {
            format!(", {} left", TimeSpan(Duration::from_secs(seconds)))
        });
        format!("{}{of}, {}{left}", self.moved_bytes, self.bytes_per_second)
    }

    /// The same, with how many files it is of.
    pub fn text(&self) -> String {
        format!("{} moving: {}", plural(self.files, "file"), self.amounts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(transfer: u64, job: &str, moved_bytes: u64, size_bytes: Option<u64>) -> RunningFile {
        RunningFile {
            transfer,
            job: job.to_owned(),
            moved_bytes,
            size_bytes,
            seconds: 2.0,
        }
    }

    #[test]
    fn files_of_a_job_are_summed_and_the_rest_is_estimated() {
        let files = [
            file(1, "a", 4_000_000, Some(10_000_000)),
            file(2, "a", 2_000_000, Some(10_000_000)),
            file(3, "b", 1_000_000, None),
        ];
        let live = LiveBytes(
            files
                .into_iter()
                .map(|file| (file.transfer, file))
                .collect(),
        );
        let text = |moving: Option<Moving>| moving.map(|moving| moving.text());
        assert_eq!(
            text(live.of_job("a")).as_deref(),
            Some("2 files moving: 6.0 MB of 20.0 MB, 3.0 MB/s, 5 s left")
        );
        assert_eq!(
            text(live.of_job("b")).as_deref(),
            Some("1 file moving: 1.0 MB, 500.0 kB/s")
        );
        assert_eq!(
            live.of_file(2).map(|moving| moving.amounts()).as_deref(),
            Some("2.0 MB of 10.0 MB, 1.0 MB/s, 8 s left")
        );
        assert_eq!((live.of_job("c"), live.of_file(9)), (None, None));
        assert_eq!((live.moved_of(3), live.moved_of(9)), (1_000_000, 0));
    }

    #[test]
    fn what_has_not_begun_to_move_has_no_end_in_sight() {
        let still = RunningFile {
            seconds: 0.0,
            ..file(1, "a", 0, Some(10))
        };
        let moving = Moving::of([&still]).expect("one");
        assert_eq!(moving.amounts(), "0 B of 10 B, 0 B/s");
    }
}
