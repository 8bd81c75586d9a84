//! What a fault of a command concerns: its file, this machine's disk, or the HSM as a whole.

use super::policy::HsmPolicy;
use super::work::{HsmCommandEnd, HsmFault, HsmFaultSource, HsmKind, HsmTarget};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Letters of a fault that are kept for people.
const TEXT_LETTERS_MAX: usize = 1_000;
/// Letters by which two faults are compared.
const FINGERPRINT_LETTERS_MAX: usize = 400;

/// What the documented exit codes of HSM commands say, beside 0 for success.
///
/// Source: the dCache book, chapter "The dCache Tertiary Storage System Interface", "Summary of return codes"
/// (`docs/TheBook/src/main/markdown/config-hsm.md` of dCache/dcache): `30 <= rc < 40` user defined (a put: deactivates the
/// request; a get: reports the problem to the pool manager), 41 no space left on device, 42 disk read I/O error, 43 disk
/// write I/O error (a put: the pool retries; a get: disables the pool and reports the problem), other (a put: the pool
/// retries; a get: reports the problem).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HsmExitCode {
    /// 30 to 39. The script says that trying again is of no use: a get fails at once; a put, which is never given up, goes
    /// on at the longest pause until an operator orders it at once.
    UserDefined,
    /// 41, 42, 43: tried again, and whoever has the disk is told.
    Disk(DiskFault),
    /// All others: tried again.
    Other,
}

impl HsmExitCode {
    /// What a code means. 0 is success and not looked at here.
    pub fn of(code: i32) -> HsmExitCode {
        match code {
            30..=39 => HsmExitCode::UserDefined,
            41 => HsmExitCode::Disk(DiskFault::NoSpace),
            42 => HsmExitCode::Disk(DiskFault::Read),
            43 => HsmExitCode::Disk(DiskFault::Write),
            _ => HsmExitCode::Other,
        }
    }
}

/// What a command found wrong with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskFault {
    NoSpace,
    Read,
    Write,
}

/// The fault of a command, `None` when it succeeded, was stopped as ordered or was not needed.
pub(super) fn fault_of(kind: HsmKind, end: &HsmCommandEnd) -> Option<HsmFault> {
    let source = match end {
        HsmCommandEnd::WrongData { .. } => HsmFaultSource::Comparison,
        HsmCommandEnd::LocalTrouble { .. } | HsmCommandEnd::NoRoom { .. } => {
            HsmFaultSource::LocalTrouble
        }
        HsmCommandEnd::Succeeded { .. }
        | HsmCommandEnd::WithoutUri { .. }
        | HsmCommandEnd::Exited { .. }
        | HsmCommandEnd::Signaled { .. }
        | HsmCommandEnd::Stopped
        | HsmCommandEnd::TimedOut { .. }
        | HsmCommandEnd::NotStarted { .. }
        | HsmCommandEnd::NotNeeded => HsmFaultSource::Program,
    };
    let (code, text) = match end {
        HsmCommandEnd::Succeeded { uris } if kind == HsmKind::Put && uris.is_empty() => {
            (Some(0), "success without a URI".to_owned())
        }
        HsmCommandEnd::Succeeded { .. } | HsmCommandEnd::Stopped | HsmCommandEnd::NotNeeded => {
            return None;
        }
        HsmCommandEnd::WithoutUri { text } => (
            Some(0),
            format!("success without a URI; it printed: {text}"),
        ),
        HsmCommandEnd::Exited { code, text } => (Some(*code), text.clone()),
        HsmCommandEnd::Signaled { signal, text } => {
            (None, format!("ended by signal {signal}: {text}"))
        }
        HsmCommandEnd::TimedOut { text } => (None, format!("stopped after its time limit: {text}")),
        HsmCommandEnd::NotStarted { text } => (None, format!("cannot be started: {text}")),
        HsmCommandEnd::WrongData { text }
        | HsmCommandEnd::LocalTrouble { text }
        | HsmCommandEnd::NoRoom { text } => (None, text.clone()),
    };
    let skipped = text.chars().count().saturating_sub(TEXT_LETTERS_MAX);
    let text = text.chars().skip(skipped).collect();
    Some(HsmFault { source, code, text })
}

/// What equal faults of different files have in common: exit code, and words without numbers and paths.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Fingerprint {
    kind: HsmKind,
    code: Option<i32>,
    words: String,
}

impl Fingerprint {
    fn of(kind: HsmKind, fault: &HsmFault) -> Fingerprint {
        let words = fault.text.split_whitespace().map(|word| {
            if word.contains('/') {
                "/".to_owned()
            } else if word.contains(|one: char| one.is_ascii_digit()) {
                "#".to_owned()
            } else {
                word.to_lowercase()
            }
        });
        let words: Vec<String> = words.collect();
        let words = words
            .join(" ")
            .chars()
            .take(FINGERPRINT_LETTERS_MAX)
            .collect();
        Fingerprint {
            kind,
            code: fault.code,
            words,
        }
    }
}

/// Faults of the last minutes. Not kept over a restart: the same faults come again.
#[derive(Debug, Clone, Default)]
pub(super) struct FaultMemory {
    faults: BTreeMap<Fingerprint, VecDeque<(i64, HsmTarget)>>,
}

impl FaultMemory {
    /// Takes in a fault. Returns its files when so many of them have failed in the same way that it is the HSM's.
    pub(super) fn add(
        &mut self,
        now_ns: i64,
        target: &HsmTarget,
        fault: &HsmFault,
        policy: &HsmPolicy,
    ) -> Option<BTreeSet<HsmTarget>> {
        self.forget_before(now_ns.saturating_sub(policy.same_fault_window_ns));
        let fingerprint = Fingerprint::of(target.kind(), fault);
        let seen = self.faults.entry(fingerprint.clone()).or_default();
        seen.retain(|(_, other)| other != target);
        seen.push_back((now_ns, target.clone()));
        if seen.len() < policy.same_fault_files {
            return None;
        }
        let seen = self.faults.remove(&fingerprint)?;
        Some(seen.into_iter().map(|(_, target)| target).collect())
    }

    fn forget_before(&mut self, first_ns: i64) {
        self.faults.retain(|_, seen| {
            while seen.front().is_some_and(|(at_ns, _)| *at_ns < first_ns) {
                seen.pop_front();
            }
            !seen.is_empty()
        });
    }

    /// A command that began then has succeeded: faults before that were not those of the whole HSM.
    pub(super) fn succeeded(&mut self, kind: HsmKind, begun_ns: i64) {
        self.faults.retain(|fingerprint, seen| {
            if fingerprint.kind == kind {
                seen.retain(|(at_ns, _)| *at_ns >= begun_ns);
            }
            !seen.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::FileId;

    fn fault(code: i32, text: &str) -> HsmFault {
        HsmFault {
            source: HsmFaultSource::Program,
            code: Some(code),
            text: text.to_owned(),
        }
    }

    #[test]
    fn exit_codes_mean_what_dcache_documents() {
        for code in 30..40 {
            assert_eq!(HsmExitCode::of(code), HsmExitCode::UserDefined);
        }
        assert_eq!(HsmExitCode::of(41), HsmExitCode::Disk(DiskFault::NoSpace));
        assert_eq!(HsmExitCode::of(42), HsmExitCode::Disk(DiskFault::Read));
        assert_eq!(HsmExitCode::of(43), HsmExitCode::Disk(DiskFault::Write));
        for code in [1, 29, 40, 44, 255] {
            assert_eq!(HsmExitCode::of(code), HsmExitCode::Other);
        }
    }

    #[test]
    fn one_fault_of_many_files_is_found_whatever_their_names_and_numbers() {
        let mut policy = HsmPolicy::usual();
        policy.same_fault_files = 3;
        let window_ns = policy.same_fault_window_ns;
        let mut memory = FaultMemory::default();
        let add = |memory: &mut FaultMemory, now_ns, file, text: &str| {
            memory.add(
                now_ns,
                &HsmTarget::Put(FileId(file)),
                &fault(1, text),
                &policy,
            )
        };
        assert_eq!(
            add(&mut memory, 0, 1, "put /a/1 failed after 3 s: no server"),
            None
        );
        assert_eq!(
            add(&mut memory, 1, 1, "put /a/1 failed after 4 s: no server"),
            None
        );
        assert_eq!(
            add(&mut memory, 2, 2, "put /a/2 failed after 5 s: no server"),
            None
        );
        assert_eq!(
            add(&mut memory, 3, 3, "put /a/3 failed after 6 s: bad file"),
            None
        );
        let found = add(&mut memory, 4, 4, "put /b/4 failed after 7 s: no server");
        assert_eq!(found.map(|files| files.len()), Some(3));
        // Too long ago, or before a success.
        assert_eq!(add(&mut memory, 10, 1, "x"), None);
        assert_eq!(add(&mut memory, 11, 2, "x"), None);
        assert_eq!(add(&mut memory, 12 + window_ns, 3, "x"), None);
        assert_eq!(add(&mut memory, 13 + window_ns, 4, "x"), None);
        memory.succeeded(HsmKind::Get, 14 + window_ns);
        memory.succeeded(HsmKind::Put, 13 + window_ns);
        assert_eq!(add(&mut memory, 15 + window_ns, 5, "x"), None);
        assert!(add(&mut memory, 16 + window_ns, 6, "x").is_some());
    }
}
