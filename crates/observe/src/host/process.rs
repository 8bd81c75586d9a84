//! The process itself: `/proc/self/stat` and `limits` (proc_pid_stat(5) and proc_pid_limits(5)).

use super::proc_text::{FormatError, lines};
use serde::{Deserialize, Serialize};

/// `/proc/self/stat`, as far as it is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessStat {
    /// Processor time of all threads, in ticks.
    pub ticks: u64,
    pub threads: u64,
    /// Memory in use, in pages.
    pub resident_pages: u64,
}

/// `/proc/self/stat`. The name, in parentheses, may hold anything.
pub fn parse_stat(bytes: &[u8]) -> Result<ProcessStat, FormatError> {
    let text = String::from_utf8_lossy(bytes);
    let read = || {
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // Counted from the third, which is the first after the name.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(ProcessStat {
            ticks: field(14)?.saturating_add(field(15)?),
            threads: field(20)?,
            resident_pages: field(24)?,
        })
    };
    read().ok_or(FormatError {
        file: "/proc/self/stat",
        expected: "24 fields with the name in parentheses",
    })
}

/// How much of something a process may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// So much.
    AtMost(u64),
    /// As much as there is.
    Unlimited,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Limit::AtMost(number) => number.fmt(to),
            Limit::Unlimited => to.write_str("unlimited"),
        }
    }
}

/// Limits in effect (soft ones) of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Open files, connections among them.
    pub open_files: Limit,
    /// Processes and threads of its user.
    pub processes: Limit,
}

/// `/proc/self/limits`.
pub fn parse_limits(bytes: &[u8]) -> Result<ProcessLimits, FormatError> {
    let limit = |name: &str| {
        let rest = lines(bytes).find_map(|line| line.strip_prefix(name))?;
        match rest.split_ascii_whitespace().next()? {
            "unlimited" => Some(Limit::Unlimited),
            number => Some(Limit::AtMost(number.parse().ok()?)),
        }
    };
    let read = || {
        Some(ProcessLimits {
            open_files: limit("Max open files")?,
            processes: limit("Max processes")?,
        })
    };
    read().ok_or(FormatError {
        file: "/proc/self/limits",
        expected: "'Max open files' and 'Max processes'",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::proc_text::tests::endures;

    const STAT: &[u8] =
        b"7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 11 0 100 1000 3 18446744073709551615";
    const LIMITS: &[u8] =
        b"Limit                     Soft Limit           Hard Limit           Units     \n\
        Max cpu time              unlimited            unlimited            seconds   \n\
        Max processes             96422                96422                processes \n\
        Max open files            1024                 1048576              files     \n";

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let read = parse_stat(STAT).expect("a real file");
        assert_eq!(
            (read.ticks, read.threads, read.resident_pages),
            (300, 11, 3)
        );
        assert!(parse_stat(b"7 (a) S 1").is_err());
    }

    #[test]
    fn limits_are_numbers_or_none() {
        let read = parse_limits(LIMITS).expect("a real file");
        assert_eq!(read.open_files, Limit::AtMost(1024));
        let text = String::from_utf8_lossy(LIMITS).replace("96422 ", "unlimited ");
        let read = parse_limits(text.as_bytes()).expect("valid");
        assert_eq!(read.processes, Limit::Unlimited);
        assert!(parse_limits(b"Max processes 1 1\n").is_err());
    }

    #[test]
    fn damaged_text_is_read_or_refused() {
        endures(STAT, parse_stat);
        endures(LIMITS, parse_limits);
    }
}
