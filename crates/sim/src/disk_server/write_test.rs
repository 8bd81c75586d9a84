//! Files that are copied to a disk server, a number of them at once, until all are there or given up.

use super::{DiskServer, DiskServerConfiguration, DiskServerCounts, Inflow};
use std::collections::VecDeque;

/// A copy that makes no end by then is not waited for.
const HOURS_MAX: f64 = 24.0;
/// A byte is less than the clock tells apart.
const ROUNDING_BYTES: f64 = 1.0;

/// How copies begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Admission {
    /// So many at once; the others are queued.
    Queued { at_once: u32 },
    /// So many, and the next ones when all of them are there and removed again.
    InBatches { at_once: u32, removal_seconds: f64 },
    /// All at once. Who finds as many running is refused, and tries so many times again before it gives up.
    Refused {
        running_max: u32,
        retries: u32,
        retry_seconds: f64,
    },
}

/// What is copied, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WriteTest {
    pub(crate) files: u32,
    pub(crate) file_bytes: f64,
    pub(crate) admission: Admission,
    /// Connections of each file. Their bytes come in an order of their own.
    pub(crate) streams: u32,
    /// Places of a file that the bytes of each connection go to in turn.
    pub(crate) places_of_stream: f64,
    /// Bytes per second that the way to the server carries at most.
    pub(crate) rate_max: f64,
    /// The part of the bytes that another server of the site receives, and passes on.
    pub(crate) relayed_part: f64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WriteTestRun {
    /// From the first copy's begin to the last one's end.
    pub(crate) seconds: f64,
    /// To the last byte that the array took.
    pub(crate) seconds_to_array: f64,
    pub(crate) finished_files: u32,
    /// What was counted in each interval of the record. The last one may be a part of one.
    pub(crate) bins: Vec<DiskServerCounts>,
}

#[derive(Debug)]
struct Copies {
    /// Bytes that are left of each that runs.
    running: Vec<f64>,
    queued: VecDeque<QueuedFile>,
    /// The server removes files until then.
    removing_until: f64,
}

/// A file that has not begun.
#[derive(Debug, Clone, Copy)]
struct QueuedFile {
    retry_at: f64,
    retries_left: u32,
}

impl Admission {
    /// Copies at once at most.
    pub(crate) fn running_max(self) -> u32 {
        match self {
            Admission::Queued { at_once } | Admission::InBatches { at_once, .. } => at_once,
            Admission::Refused { running_max, .. } => running_max,
        }
    }
}

impl WriteTestRun {
    pub(crate) fn refusals(&self) -> f64 {
        self.bins.iter().map(|bin| bin.refusals).sum()
    }

    /// Bytes per second from begin to end.
    pub(crate) fn rate(&self, file_bytes: f64) -> f64 {
        f64::from(self.finished_files) * file_bytes / self.seconds.max(f64::MIN_POSITIVE)
    }
}

impl Copies {
    fn are_done(&self) -> bool {
        self.running.is_empty() && self.queued.is_empty()
    }
}

impl WriteTest {
    /// Copies all files, in steps of some part of an interval.
    pub(crate) fn run(
        &self,
        configuration: &DiskServerConfiguration,
        bin_seconds: f64,
        steps_of_bin: u32,
    ) -> WriteTestRun {
        let mut server = DiskServer::new(configuration);
        let step_seconds = bin_seconds / f64::from(steps_of_bin.max(1));
        let steps_max = (HOURS_MAX * 3600.0 / step_seconds) as u64;
        let retries_left = match self.admission {
            Admission::Refused { retries, .. } => retries,
            Admission::Queued { .. } | Admission::InBatches { .. } => 0,
        };
        let file = QueuedFile {
            retry_at: 0.0,
            retries_left,
        };
        let mut copies = Copies {
            running: Vec::new(),
            queued: (0..self.files).map(|_| file).collect(),
            removing_until: 0.0,
        };
        let mut run = WriteTestRun {
            seconds: 0.0,
            seconds_to_array: 0.0,
            finished_files: 0,
            bins: Vec::new(),
        };
        let mut step = 0;
        while step < steps_max && !(copies.are_done() && server.gathered_bytes <= 0.0) {
            let now = step as f64 * step_seconds;
            if step % u64::from(steps_of_bin.max(1)) == 0 {
                run.bins.push(DiskServerCounts::default());
            }
            step += 1;
            let Some(counts) = run.bins.last_mut() else {
                break;
            };
            self.admit(now, &mut copies, counts);
            counts.queued_seconds += self.queued(&copies) * step_seconds;
            if server.gathered_bytes > 0.0 {
                run.seconds_to_array = now + step_seconds;
            }
            let received = server.step(step_seconds, self.inflow(&copies), counts);
            let finished = take_received(&mut copies.running, received);
            counts.finished_files += f64::from(finished);
            if finished > 0 {
                run.seconds = now + step_seconds;
                run.finished_files += finished;
            }
            if let Admission::InBatches {
                removal_seconds, ..
            } = self.admission
                && finished > 0
                && copies.running.is_empty()
            {
                copies.removing_until = now + step_seconds + removal_seconds;
                run.seconds = copies.removing_until;
            }
        }
        run
    }

    fn inflow(&self, copies: &Copies) -> Inflow {
        Inflow {
            copies: copies.running.len() as f64,
            places_of_file: f64::from(self.streams.max(1)) * self.places_of_stream.max(1.0),
            rate_max: self.rate_max,
            bytes_left: copies.running.iter().sum(),
            relayed_part: self.relayed_part,
        }
    }

    fn admit(&self, now: f64, copies: &mut Copies, counts: &mut DiskServerCounts) {
        match self.admission {
            Admission::Queued { at_once } => {
                if now <= 0.0 {
                    counts.submitted_files += f64::from(self.files);
                }
                self.begin(at_once, copies);
            }
            Admission::InBatches { at_once, .. } => {
                if copies.running.is_empty() && now >= copies.removing_until {
                    counts.submitted_files += f64::from(self.begin(at_once, copies));
                }
            }
            Admission::Refused {
                running_max,
                retry_seconds,
                ..
            } => {
                if now <= 0.0 {
                    counts.submitted_files += f64::from(self.files);
                }
                for _ in 0..copies.queued.len() {
                    let Some(mut file) = copies.queued.pop_front() else {
                        break;
                    };
                    if file.retry_at > now {
                        copies.queued.push_back(file);
                    } else if copies.running.len() < running_max as usize {
                        copies.running.push(self.file_bytes);
                    } else {
                        counts.refusals += 1.0;
                        if file.retries_left > 0 {
                            file.retries_left -= 1;
                            file.retry_at = now + retry_seconds;
                            copies.queued.push_back(file);
                        }
                    }
                }
            }
        }
    }

    /// Files that wait in a queue. Who was refused, or has not submitted yet, is in none.
    fn queued(&self, copies: &Copies) -> f64 {
        match self.admission {
            Admission::Queued { .. } => copies.queued.len() as f64,
            Admission::InBatches { .. } | Admission::Refused { .. } => 0.0,
        }
    }

    fn begin(&self, at_once: u32, copies: &mut Copies) -> u32 {
        let mut begun = 0;
        while copies.running.len() < at_once as usize && copies.queued.pop_front().is_some() {
            copies.running.push(self.file_bytes);
            begun += 1;
        }
        begun
    }
}

/// Gives each copy its part of what came. How many have all of theirs.
fn take_received(running: &mut Vec<f64>, received: f64) -> u32 {
    let before = running.len();
    let each = received / before.max(1) as f64;
    for left in running.iter_mut() {
        *left -= each;
    }
    running.retain(|left| *left > ROUNDING_BYTES);
    (before - running.len()) as u32
}
