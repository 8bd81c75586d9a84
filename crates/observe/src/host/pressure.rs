//! Pressure stall information: for how long tasks stood still for want of a resource (kernel: accounting/psi.rst).

use super::part::Part;
use super::proc_text::{FormatError, lines};
use serde::{Deserialize, Serialize};

/// Time for which tasks stood still, in microseconds. Totals since the boot, or of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pressure {
    /// Some task stood still.
    pub some_us: u64,
    /// All tasks that had something to do stood still at once.
    pub full_us: u64,
}

impl Pressure {
    /// What came on top of an earlier total; 0 when the totals began anew.
    pub fn since(self, earlier: Pressure) -> Pressure {
        Pressure {
            some_us: self.some_us.saturating_sub(earlier.some_us),
            full_us: self.full_us.saturating_sub(earlier.full_us),
        }
    }

    /// So much of both as a part of its time is of all.
    pub(super) fn part(self, part: Part) -> Pressure {
        Pressure {
            some_us: part.of(self.some_us),
            full_us: part.of(self.full_us),
        }
    }

    /// Both times together.
    pub fn plus(self, other: Pressure) -> Pressure {
        Pressure {
            some_us: self.some_us.saturating_add(other.some_us),
            full_us: self.full_us.saturating_add(other.full_us),
        }
    }
}

/// `/proc/pressure/cpu`, `memory` or `io`. A kernel that tells no `full` line of the processors has none there.
pub fn parse(bytes: &[u8]) -> Result<Pressure, FormatError> {
    let total = |kind: &str| {
        let line = lines(bytes).find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
        let mut words = line.split_ascii_whitespace();
        words
            .find_map(|word| word.strip_prefix("total="))?
            .parse()
            .ok()
    };
    Ok(Pressure {
        some_us: total("some").ok_or(FormatError {
            file: "/proc/pressure",
            expected: "a line 'some … total=N'",
        })?,
        full_us: total("full").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::proc_text::tests::endures;

    const IO: &[u8] = b"some avg10=0.13 avg60=0.31 avg300=0.78 total=16718123\n\
                        full avg10=0.00 avg60=0.00 avg300=0.21 total=6512050\n";

    #[test]
    fn totals_are_read_and_their_difference_is_the_time_of_an_interval() {
        let read = parse(IO).expect("a real file");
        let expected = Pressure {
            some_us: 16_718_123,
            full_us: 6_512_050,
        };
        assert_eq!(read, expected);
        let later = Pressure {
            some_us: 16_918_123,
            full_us: 6_512_050,
        };
        assert_eq!(later.since(read).some_us, 200_000);
        assert_eq!(read.since(later), Pressure::default());
    }

    #[test]
    fn older_kernels_tell_no_full_line_of_the_processors() {
        let read = parse(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n").expect("valid");
        assert_eq!((read.some_us, read.full_us), (7, 0));
        assert!(parse(b"").is_err());
        assert!(parse(b"some total=many\n").is_err());
    }

    #[test]
    fn damaged_text_is_read_or_refused() {
        endures(IO, parse);
    }
}
