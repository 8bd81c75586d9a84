//! What the processors did: `/proc/stat` (proc_stat(5)).

use super::part::Part;
use super::proc_text::{FormatError, lines, numbers};
use serde::{Deserialize, Serialize};

/// Time of all processors together, in ticks of the kernel: totals since the boot, or of an interval. Shares of the sum
/// need no length of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessorTime {
    /// In programs.
    pub user: u64,
    /// In the kernel, interrupts among it.
    pub system: u64,
    /// With nothing to do.
    pub idle: u64,
    /// With nothing to do but wait for disks.
    pub waiting: u64,
    /// Taken by the host of this virtual machine.
    pub stolen: u64,
}

impl ProcessorTime {
    /// What came on top of an earlier total; 0 where the totals went back, as iowait does at times.
    pub fn since(self, earlier: ProcessorTime) -> ProcessorTime {
        self.with(earlier, u64::saturating_sub)
    }

    /// Both together.
    pub fn plus(self, other: ProcessorTime) -> ProcessorTime {
        self.with(other, u64::saturating_add)
    }

    pub fn total(self) -> u64 {
        let parts = [self.user, self.system, self.idle, self.waiting, self.stolen];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// So much of it as a part of its time is of all.
    pub(super) fn part(self, part: Part) -> ProcessorTime {
        self.with(self, |count, _| part.of(count))
    }

    fn with(self, other: ProcessorTime, join: impl Fn(u64, u64) -> u64) -> ProcessorTime {
        ProcessorTime {
            user: join(self.user, other.user),
            system: join(self.system, other.system),
            idle: join(self.idle, other.idle),
            waiting: join(self.waiting, other.waiting),
            stolen: join(self.stolen, other.stolen),
        }
    }
}

/// What `/proc/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessorStat {
    /// Since the boot.
    pub time: ProcessorTime,
    pub processors: u32,
    /// Tasks that wait for a disk right now; `None` where it is not told.
    pub blocked: Option<u64>,
}

/// `/proc/stat`.
pub fn parse(bytes: &[u8]) -> Result<ProcessorStat, FormatError> {
    let mut found = ProcessorStat::default();
    let mut has_total = false;
    for line in lines(bytes) {
        if let Some(rest) = line.strip_prefix("cpu ") {
            found.time = time(rest).ok_or(FormatError {
                file: "/proc/stat",
                expected: "four times at least on the line 'cpu'",
            })?;
            has_total = true;
        } else if line.starts_with("cpu") {
            found.processors = found.processors.saturating_add(1);
        } else if let Some(rest) = line.strip_prefix("procs_blocked ") {
            found.blocked = rest.trim().parse().ok();
        }
    }
    match has_total {
        true => Ok(found),
        false => Err(FormatError {
            file: "/proc/stat",
            expected: "a line 'cpu'",
        }),
    }
}

/// user nice system idle iowait irq softirq steal; the time of guests is part of user.
fn time(text: &str) -> Option<ProcessorTime> {
    let times: Vec<u64> = numbers(text.split_ascii_whitespace()).take(8).collect();
    let at = |n: usize| times.get(n).copied().unwrap_or(0);
    (times.len() >= 4).then(|| ProcessorTime {
        user: at(0).saturating_add(at(1)),
        system: at(2).saturating_add(at(5)).saturating_add(at(6)),
        idle: at(3),
        waiting: at(4),
        stolen: at(7),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::proc_text::tests::endures;

    const STAT: &[u8] = b"cpu  100 20 30 4000 50 6 7 8 90 0\ncpu0 50 10 15 2000 25 3 3 4 45 0\n\
        cpu1 50 10 15 2000 25 3 4 4 45 0\nintr 12345 0 0 9\nctxt 99\nbtime 1764000000\nprocs_running 3\nprocs_blocked 2\n";

    #[test]
    fn nice_counts_as_user_and_interrupts_as_system() {
        let read = parse(STAT).expect("a real file");
        let time = ProcessorTime {
            user: 120,
            system: 43,
            idle: 4000,
            waiting: 50,
            stolen: 8,
        };
        assert_eq!(read.time, time);
        assert_eq!((read.processors, read.blocked), (2, Some(2)));
        assert_eq!(time.total(), 4221);
        assert!(parse(b"cpu0 1 2 3 4\n").is_err());
    }

    #[test]
    fn damaged_text_is_read_or_refused() {
        endures(STAT, parse);
    }
}
