//! How an HSM is driven.

use super::work::{HsmFault, HsmKind};
use crate::locate::SECOND_NS;
use serde::{Deserialize, Serialize};

const HOUR_NS: i64 = 3_600 * SECOND_NS;

/// When the files of a family that wait to be put are put: as soon as one of these is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HsmBatch {
    pub bytes: u64,
    pub files: usize,
    /// Of the oldest.
    pub age_ns: i64,
}

/// How long commands may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HsmLimits {
    pub put_ns: i64,
    pub get_ns: i64,
    pub remove_ns: i64,
    /// Until the first byte of a get: the HSM has to find a drive and a tape.
    pub get_first_byte_ns: i64,
    /// Without a further byte after that.
    pub get_no_bytes_ns: i64,
    /// From the order to stop until a command that has not ended is taken as lost, and its slot as free.
    pub stop_ns: i64,
}

/// How an HSM is driven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HsmPolicy {
    /// Commands at once.
    pub puts_max: usize,
    pub gets_max: usize,
    pub removes_max: usize,
    pub batch: HsmBatch,
    pub limits: HsmLimits,
    /// A get fails after so many tries. A put or a remove goes on, and is an incident.
    pub tries_max: u32,
    /// The pause after the first try; each further one doubles it.
    pub retry_first_ns: i64,
    pub retry_max_ns: i64,
    /// What concerns the HSM and not the file.
    pub hsm_wide: Vec<HsmWidePattern>,
    /// So many files with the same fault within the window, and it concerns the HSM.
    pub same_fault_files: usize,
    pub same_fault_window_ns: i64,
    /// After a fault of the HSM, the first pause before one command tries it again; each failure doubles it.
    pub pause_first_ns: i64,
    pub pause_max_ns: i64,
    /// A request that has not failed and is older than this while a slot is free is an incident.
    pub oldest_wait_ns: i64,
}

impl HsmPolicy {
    /// What suits most HSMs. Puts and gets may last as long as at sites that run dCache: 4 hours and a day.
    pub fn usual() -> HsmPolicy {
        HsmPolicy {
            puts_max: 10,
            gets_max: 50,
            removes_max: 5,
            batch: HsmBatch {
                bytes: 500_000_000_000,
                files: 1_000,
                age_ns: HOUR_NS,
            },
            limits: HsmLimits {
                put_ns: 4 * HOUR_NS,
                get_ns: 24 * HOUR_NS,
                remove_ns: HOUR_NS,
                get_first_byte_ns: 12 * HOUR_NS,
                get_no_bytes_ns: HOUR_NS / 2,
                stop_ns: 120 * SECOND_NS,
            },
            tries_max: 5,
            retry_first_ns: 60 * SECOND_NS,
            retry_max_ns: HOUR_NS,
            hsm_wide: Vec::new(),
            same_fault_files: 5,
            same_fault_window_ns: 600 * SECOND_NS,
            pause_first_ns: 60 * SECOND_NS,
            pause_max_ns: 1_800 * SECOND_NS,
            oldest_wait_ns: 4 * HOUR_NS,
        }
    }

    /// Commands of a kind at once.
    pub fn slots(&self, kind: HsmKind) -> usize {
        match kind {
            HsmKind::Put => self.puts_max,
            HsmKind::Get => self.gets_max,
            HsmKind::Remove => self.removes_max,
        }
    }

    /// How long a command of a kind may run.
    pub fn command_ns(&self, kind: HsmKind) -> i64 {
        match kind {
            HsmKind::Put => self.limits.put_ns,
            HsmKind::Get => self.limits.get_ns,
            HsmKind::Remove => self.limits.remove_ns,
        }
    }

    /// The pause after so many tries.
    pub fn retry_ns(&self, tries: u32) -> i64 {
        let doublings = tries.saturating_sub(1).min(30);
        let pause_ns = self.retry_first_ns.saturating_mul(1_i64 << doublings);
        pause_ns.min(self.retry_max_ns)
    }
}

/// A configured sign that a fault concerns the HSM and not the file. All that is given has to fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HsmWidePattern {
    /// Only of these commands. `None`: of all.
    #[serde(default)]
    pub kind: Option<HsmKind>,
    /// One of these exit codes. Empty: whatever it is.
    #[serde(default)]
    pub codes: Vec<i32>,
    /// Somewhere in the text, in upper or lower case; `*` stands for anything. `None`: whatever it says.
    #[serde(default)]
    pub text: Option<String>,
}

impl HsmWidePattern {
    /// Whether a fault of a command of this kind has the sign. A pattern without code and text fits nothing.
    pub fn fits(&self, kind: HsmKind, fault: &HsmFault) -> bool {
        let is_empty = self.codes.is_empty() && self.text.is_none();
        let fits_kind = self.kind.is_none_or(|own| own == kind);
        let fits_code =
            self.codes.is_empty() || fault.code.is_some_and(|code| self.codes.contains(&code));
        let fits_text = self
            .text
            .as_ref()
            .is_none_or(|pattern| has_text(&fault.text, pattern));
        !is_empty && fits_kind && fits_code && fits_text
    }
}

/// Whether the pieces between `*` are in a text, one behind the other.
fn has_text(text: &str, pattern: &str) -> bool {
    let (text, pattern) = (text.to_lowercase(), pattern.to_lowercase());
    let mut rest = text.as_str();
    for piece in pattern.split('*') {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hsm_queue::HsmFaultSource;

    #[test]
    fn a_pattern_fits_by_kind_code_and_text() {
        let full = HsmFault {
            source: HsmFaultSource::Program,
            code: Some(5),
            text: "rfcp: HPSS error -5: Disk full on class 12".to_owned(),
        };
        let fits = |kind, codes: &[i32], text: Option<&str>| {
            let pattern = HsmWidePattern {
                kind,
                codes: codes.to_vec(),
                text: text.map(str::to_owned),
            };
            pattern.fits(HsmKind::Put, &full)
        };
        assert!(fits(None, &[5], None));
        assert!(fits(None, &[], Some("disk FULL")));
        assert!(fits(Some(HsmKind::Put), &[4, 5], Some("hpss*disk full")));
        assert!(!fits(None, &[], Some("disk full*hpss")));
        assert!(!fits(Some(HsmKind::Get), &[5], None));
        assert!(!fits(None, &[6], Some("disk full")));
        assert!(!fits(None, &[], None));
    }
}
