//! Failures of an HSM's commands, as administrators are told them from the first one on: in the log, and in the status of the
//! tape system. What becomes of the files is decided by the queue; whether the HSM as a whole is at fault as well.

use penstock_model::text::one_line;
use penstock_model::{NamespacePath, Timestamp};
use penstock_persistence::namespace::EntryId;
use penstock_protocol::told::RepeatedErrors;
use penstock_tape::hsm_queue::{HsmEntry, HsmKind, HsmLiveSet, HsmStage, HsmTarget};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Characters that are told of what a command wrote.
const TEXT_CHARS_MAX: usize = 300;
/// Files that wait for their next try, of which the status tells.
const DELAYED_TOLD_MAX: usize = 20;
/// A value of the environment that is this long may be a secret; shorter ones would hide words.
const SECRET_BYTES_MIN: usize = 8;
/// Of these everybody knows the values.
const PLAIN_VARIABLES: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "LC_ALL"];

/// What a command has failed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HsmFailureCause {
    pub kind: HsmKind,
    /// `None`: the program did not exit by itself.
    pub code: Option<i32>,
    pub text: String,
}

/// What is told of an HSM that is driven by commands.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HsmStatus {
    pub program: String,
    /// Of each operation that has failed since the service started.
    pub failures: Vec<HsmOperationFailures>,
    /// The first files that wait for their next try.
    pub delayed: Vec<DelayedHsmFile>,
}

/// Failures of one operation.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HsmOperationFailures {
    /// `put`, `get` or `remove`.
    pub operation: &'static str,
    /// Since the service started.
    pub count: u64,
    pub last: HsmFailure,
}

/// One failure.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HsmFailure {
    pub at: Timestamp,
    /// The file, or the copy that was to be removed.
    pub name: String,
    /// `None`: the program did not exit by itself.
    pub code: Option<i32>,
    /// What it wrote to standard error, in one line.
    pub text: String,
}

/// A file that waits for its next try.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DelayedHsmFile {
    pub operation: &'static str,
    /// The path of the file, or the copy that is to be removed; filled in by whoever can look it up.
    pub name: String,
    #[serde(skip)]
    pub file: Option<EntryId>,
    pub tries: u32,
    pub next_try: Timestamp,
    pub code: Option<i32>,
    pub text: String,
}

/// What is remembered of failures.
pub(super) struct HsmFailures {
    program: String,
    /// Values of the program's environment, by their names. A script that traces itself writes them to standard error.
    secrets: BTreeMap<String, String>,
    told: RepeatedErrors,
    by_kind: BTreeMap<HsmKind, HsmOperationFailures>,
}

impl HsmFailures {
    pub(super) fn new(program: String, environment: &BTreeMap<String, OsString>) -> HsmFailures {
        let kept = environment.iter().filter_map(|(name, value)| {
            let value = value.to_str()?;
            let is_secret =
                value.len() >= SECRET_BYTES_MIN && !PLAIN_VARIABLES.contains(&name.as_str());
            is_secret.then(|| (name.clone(), value.to_owned()))
        });
        HsmFailures {
            program,
            secrets: kept.collect(),
            told: RepeatedErrors::default(),
            by_kind: BTreeMap::new(),
        }
    }

    /// Some words in one line, without values of the environment, and not longer than people read.
    pub(super) fn shown(&self, text: &str) -> String {
        let mut lines = text.lines().map(str::trim);
        let line = lines.find(|line| !line.is_empty()).unwrap_or_default();
        let mut line = line.to_owned();
        for (name, value) in &self.secrets {
            if line.contains(value) {
                line = line.replace(value, &format!("[{name}]"));
            }
        }
        one_line(&line).chars().take(TEXT_CHARS_MAX).collect()
    }

    /// A command has failed. It is logged unless the same happened to another file less than a minute ago.
    pub(super) fn add(
        &mut self,
        at: Timestamp,
        cause: &HsmFailureCause,
        name: impl FnOnce() -> String,
        next_try: Option<Timestamp>,
    ) {
        let operation = operation_of(cause.kind);
        let text = self.shown(&cause.text);
        let key = format!("{operation} {:?} {text}", cause.code);
        let is_told = self.told.tells(&key);
        let name = name();
        if let Some(passed_over) = is_told {
            let next_try = next_try.map(|at| at.to_fts() + "Z");
            tracing::warn!(
                program = self.program,
                operation,
                file = name,
                code = cause.code,
                error = text,
                next_try,
                passed_over,
                "a command of the HSM failed"
            );
        }
        let last = HsmFailure {
            at,
            name,
            code: cause.code,
            text,
        };
        let known = self.by_kind.remove(&cause.kind);
        let count = known.map_or(0, |known| known.count) + 1;
        let failures = HsmOperationFailures {
            operation,
            count,
            last,
        };
        self.by_kind.insert(cause.kind, failures);
    }

    pub(super) fn status(&self, live: &HsmLiveSet) -> HsmStatus {
        let delayed = live.delayed.iter().filter_map(|(until_ns, target)| {
            let entry = live.entries.get(target)?;
            Some(self.delayed(*until_ns, target, entry))
        });
        HsmStatus {
            program: self.program.clone(),
            failures: self.by_kind.values().cloned().collect(),
            delayed: delayed.take(DELAYED_TOLD_MAX).collect(),
        }
    }

    fn delayed(&self, until_ns: i64, target: &HsmTarget, entry: &HsmEntry) -> DelayedHsmFile {
        let (file, name) = match target {
            HsmTarget::Put(file) | HsmTarget::Get(file) => {
                let file = EntryId(file.0);
                (Some(file), format!("file {file}"))
            }
            HsmTarget::Remove(uri) => (None, uri.as_str().to_owned()),
        };
        let fault = entry.fault.as_ref();
        DelayedHsmFile {
            operation: operation_of(target.kind()),
            name,
            file,
            tries: entry.tries,
            next_try: Timestamp(until_ns / 1_000_000),
            code: fault.and_then(|fault| fault.code),
            text: fault.map_or_else(String::new, |fault| self.shown(&fault.text)),
        }
    }
}

/// When a file is tried again, if it waits for that.
pub(super) fn next_try(live: &HsmLiveSet, target: &HsmTarget) -> Option<Timestamp> {
    match live.entries.get(target)?.stage {
        HsmStage::Delayed { until_ns } => Some(Timestamp(until_ns / 1_000_000)),
        HsmStage::Collecting | HsmStage::Queued | HsmStage::Running(_) => None,
    }
}

fn operation_of(kind: HsmKind) -> &'static str {
    match kind {
        HsmKind::Put => "put",
        HsmKind::Get => "get",
        HsmKind::Remove => "remove",
    }
}

impl DelayedHsmFile {
    /// Names the file by its path.
    pub(crate) fn name_by(&mut self, path: &NamespacePath) {
        self.name = path.to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures() -> HsmFailures {
        let environment = [
            ("PATH", "/usr/local/bin"),
            ("KEY", "s3cr3t-value"),
            ("N", "1"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.into()));
        HsmFailures::new("/etc/hsm".to_owned(), &BTreeMap::from(environment))
    }

    #[test]
    fn what_is_told_is_one_line_without_secrets() {
        let failures = failures();
        let text = "\n  + export KEY=s3cr3t-value in /usr/local/bin\nmore\n";
        assert_eq!(failures.shown(text), "+ export KEY=[KEY] in /usr/local/bin");
        assert_eq!(failures.shown(""), "");
        assert_eq!(failures.shown(&"x".repeat(9_000)).len(), TEXT_CHARS_MAX);
    }

    #[test]
    fn failures_are_counted_and_the_last_one_is_kept() {
        let mut failures = failures();
        let cause = |code| HsmFailureCause {
            kind: HsmKind::Put,
            code: Some(code),
            text: "no tape".to_owned(),
        };
        failures.add(Timestamp(1), &cause(5), || "/a".to_owned(), None);
        failures.add(Timestamp(2), &cause(6), || "/b".to_owned(), None);
        let status = failures.status(&HsmLiveSet::default());
        let [puts] = &status.failures[..] else {
            panic!("one operation has failed: {status:?}");
        };
        let last = (puts.last.at, puts.last.name.as_str(), puts.last.code);
        assert_eq!((puts.count, last), (2, (Timestamp(2), "/b", Some(6))));
    }
}
