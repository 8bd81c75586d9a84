//! How a copy of many files is told: what failed is listed at the end, within bounds, and counted whole.

use crate::exit::{CommandError, VERIFICATION_FAILED};
use crate::output::Output;
use penstock_field_tools::bulk_copy::{CopyResult, FileOutcome, Intention};
use penstock_field_tools::local_tree::{LeftOut, shown};
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::text::{one_line, plural};
use penstock_model::{Bytes, Rate, TimeSpan};
use serde::Serialize;
use std::time::Duration;

/// Lines of each kind that people are shown.
const LINES_MAX: usize = 20;
/// Entries of each kind that programs are given.
const ENTRIES_MAX: usize = 10_000;

/// One file of a copy and how it ended.
pub struct CopiedFile {
    pub name: String,
    pub outcome: Result<(CopyResult, Bytes), CommandError>,
}

impl CopiedFile {
    pub fn failed(name: String, why: CommandError) -> CopiedFile {
        CopiedFile {
            name,
            outcome: Err(why),
        }
    }
}

/// Files with what became of them, in the same order.
pub fn named(
    names: Vec<String>,
    outcomes: Vec<Result<FileOutcome, RemoteError>>,
) -> Vec<CopiedFile> {
    let file = |(name, outcome): (String, Result<FileOutcome, RemoteError>)| CopiedFile {
        name,
        outcome: outcome
            .map(|arrived| (arrived.how, arrived.size))
            .map_err(CommandError::from),
    };
    names.into_iter().zip(outcomes).map(file).collect()
}

/// One that is neither file nor directory.
#[derive(Debug, Serialize)]
pub struct LeftOutFile {
    pub name: String,
    pub kind: &'static str,
}

impl From<LeftOut> for LeftOutFile {
    fn from(left_out: LeftOut) -> LeftOutFile {
        LeftOutFile {
            name: shown(&left_out.path),
            kind: left_out.kind.name(),
        }
    }
}

/// One that failed.
#[derive(Debug, Serialize)]
pub struct FailedFile {
    pub name: String,
    pub error: String,
}

/// What a copy has done.
#[derive(Debug, Default, Serialize)]
pub struct CopyReport {
    pub files: usize,
    pub copied: usize,
    pub skipped: usize,
    pub bytes: Bytes,
    /// Of these, there from an earlier attempt that was cut off.
    pub continued_bytes: Bytes,
    pub seconds: f64,
    pub bytes_per_second: Option<Rate>,
    /// How many failed; the first 10,000 are listed.
    pub failed_files: usize,
    pub failed: Vec<FailedFile>,
    /// The first 10,000 of what is neither file nor directory.
    pub left_out: Vec<LeftOutFile>,
    /// What `sync` removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<usize>,
    #[serde(skip)]
    errors: Errors,
}

/// What is needed of errors beyond their texts.
#[derive(Debug, Default)]
struct Errors {
    only: Option<CommandError>,
    is_any_of_content: bool,
}

impl CopyReport {
    pub fn new(
        files: Vec<CopiedFile>,
        left_out: Vec<LeftOutFile>,
        elapsed: Duration,
    ) -> CopyReport {
        let mut report = CopyReport {
            files: files.len(),
            seconds: elapsed.as_secs_f64(),
            left_out,
            ..CopyReport::default()
        };
        report.left_out.truncate(ENTRIES_MAX);
        let is_single = files.len() == 1;
        for file in files {
            match file.outcome {
                Ok((CopyResult::Skipped, _)) => report.skipped += 1,
                Ok((CopyResult::Copied, size)) => report.add_copied(size, Bytes(0)),
                Ok((CopyResult::Continued { before }, size)) => report.add_copied(size, before),
                Err(why) => report.add_failure(file.name, why, is_single),
            }
        }
        let moved = report.bytes.0.saturating_sub(report.continued_bytes.0);
        report.bytes_per_second = Rate::over(Bytes(moved), elapsed);
        report
    }

    fn add_copied(&mut self, size: Bytes, before: Bytes) {
        self.copied += 1;
        self.bytes.0 = self.bytes.0.saturating_add(size.0);
        self.continued_bytes.0 = self.continued_bytes.0.saturating_add(before.0);
    }

    fn add_failure(&mut self, name: String, why: CommandError, is_single: bool) {
        self.failed_files += 1;
        if self.failed.len() < ENTRIES_MAX {
            self.failed.push(FailedFile {
                name,
                error: why.to_string(),
            });
        }
        self.errors.is_any_of_content |= why.exit_code() == VERIFICATION_FAILED;
        if is_single {
            self.errors.only = Some(why);
        }
    }

    /// One more that failed, of those that are not copied but removed.
    pub fn add_failed_removal(&mut self, name: String, why: &CommandError) {
        self.failed_files += 1;
        if self.failed.len() < ENTRIES_MAX {
            self.failed.push(FailedFile {
                name,
                error: why.to_string(),
            });
        }
    }

    /// Reports; the error of a single file is the command's, of several the gravest kind.
    pub fn conclude(mut self, output: Output) -> Result<(), CommandError> {
        if let Some(why) = self.errors.only.take() {
            return Err(why);
        }
        let text = format!(
            "{} of {} failed",
            self.failed_files,
            plural(self.files as u64, "file")
        );
        let outcome = match (self.failed_files, self.errors.is_any_of_content) {
            (0, _) => Ok(()),
            (_, true) => Err(CommandError::Verification(text)),
            (_, false) => Err(CommandError::SomeFailed(text)),
        };
        output.conclude(&self, || self.text(), outcome)
    }

    fn text(&self) -> String {
        let mut text =
            left_out_lines(&self.left_out) + &failed_lines(&self.failed, self.failed_files);
        let rate = self.bytes_per_second;
        let rate = rate.map_or_else(String::new, |rate| format!(" ({rate})"));
        text += &format!(
            "{}, {} copied in {:.1}{rate}",
            plural(self.copied as u64, "file"),
            self.bytes,
            TimeSpan(Duration::from_secs_f64(self.seconds))
        );
        if self.continued_bytes.0 > 0 {
            text += &format!(
                ", of which {} were kept from an earlier attempt",
                self.continued_bytes
            );
        }
        if self.skipped > 0 {
            text += &format!(", {} already there", self.skipped);
        }
        if let Some(removed) = self.removed {
            text += &format!(", {removed} removed");
        }
        text + "\n"
    }
}

fn left_out_lines(left_out: &[LeftOutFile]) -> String {
    let line = |file: &LeftOutFile| format!("skipped {}: {}\n", file.kind, one_line(&file.name));
    let mut text: String = left_out.iter().take(LINES_MAX).map(line).collect();
    if left_out.len() > LINES_MAX {
        text += &format!("skipped: {} more\n", left_out.len() - LINES_MAX);
    }
    text
}

fn failed_lines(failed: &[FailedFile], total: usize) -> String {
    let line = |file: &FailedFile| format!("failed: {}\n", one_line(&file.error));
    let mut text: String = failed.iter().take(LINES_MAX).map(line).collect();
    if total > LINES_MAX {
        text += &format!("failed: {} more (--json lists them)\n", total - LINES_MAX);
    }
    text
}

/// What a copy would do with a file.
pub struct IntendedFile {
    pub name: String,
    pub size: Option<Bytes>,
    pub intention: Result<Intention, CommandError>,
}

/// Of one file, for programs.
#[derive(Debug, Serialize)]
struct IntendedEntry {
    name: String,
    size_bytes: Option<Bytes>,
    action: &'static str,
}

/// What a copy would do.
#[derive(Debug, Default, Serialize)]
pub struct DryRunReport {
    pub files: usize,
    pub would_copy: usize,
    pub would_replace: usize,
    pub bytes: Bytes,
    pub skipped: usize,
    /// The first 10,000 that would be copied, replaced or removed.
    actions: Vec<IntendedEntry>,
    pub failed_files: usize,
    pub failed: Vec<FailedFile>,
    pub left_out: Vec<LeftOutFile>,
    /// What `sync` would remove.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_remove: Option<usize>,
}

impl DryRunReport {
    pub fn new(
        files: Vec<IntendedFile>,
        failed: Vec<CopiedFile>,
        left_out: Vec<LeftOutFile>,
    ) -> DryRunReport {
        let mut report = DryRunReport {
            files: files.len() + failed.len(),
            left_out,
            ..DryRunReport::default()
        };
        for file in failed {
            if let Err(why) = file.outcome {
                report.add_failure(file.name, &why);
            }
        }
        for file in files {
            let action = match file.intention {
                Ok(Intention::Skip) => {
                    report.skipped += 1;
                    continue;
                }
                Err(why) => {
                    report.add_failure(file.name, &why);
                    continue;
                }
                Ok(Intention::Copy) => {
                    report.would_copy += 1;
                    "copy"
                }
                Ok(Intention::Replace) => {
                    report.would_replace += 1;
                    "replace"
                }
            };
            report.bytes.0 += file.size.unwrap_or_default().0;
            report.add_action(file.name, file.size, action);
        }
        report
    }

    fn add_failure(&mut self, name: String, why: &CommandError) {
        self.failed_files += 1;
        if self.failed.len() < ENTRIES_MAX {
            let error = why.to_string();
            self.failed.push(FailedFile { name, error });
        }
    }

    fn add_action(&mut self, name: String, size_bytes: Option<Bytes>, action: &'static str) {
        if self.actions.len() < ENTRIES_MAX {
            self.actions.push(IntendedEntry {
                name,
                size_bytes,
                action,
            });
        }
    }

    /// What would be removed as well.
    pub fn add_removals(&mut self, names: &[String]) {
        self.would_remove = Some(names.len());
        for name in names {
            self.add_action(name.clone(), None, "remove");
        }
    }

    pub fn conclude(self, output: Output) -> Result<(), CommandError> {
        let text = format!("{} would fail", plural(self.failed_files as u64, "file"));
        let outcome = match self.failed_files {
            0 => Ok(()),
            _ => Err(CommandError::SomeFailed(text)),
        };
        output.conclude(&self, || self.text(), outcome)
    }

    fn text(&self) -> String {
        let line = |entry: &IntendedEntry| {
            let size = entry.size_bytes.map(|size| format!(" ({size})"));
            let size = size.unwrap_or_default();
            format!("would {} {}{size}\n", entry.action, one_line(&entry.name))
        };
        let mut text: String = self.actions.iter().map(line).collect();
        let all = self.would_copy + self.would_replace + self.would_remove.unwrap_or(0);
        if all > self.actions.len() {
            text += &format!("and {} more\n", all - self.actions.len());
        }
        text += &left_out_lines(&self.left_out);
        text += &failed_lines(&self.failed, self.failed_files);
        text += &format!(
            "dry run: {} ({}) would be copied",
            plural((self.would_copy + self.would_replace) as u64, "file"),
            self.bytes
        );
        if self.would_replace > 0 {
            text += &format!(", {} of them replaced", self.would_replace);
        }
        if self.skipped > 0 {
            text += &format!(", {} already there", self.skipped);
        }
        if let Some(count) = self.would_remove {
            text += &format!(", {count} removed");
        }
        text + "; nothing was changed\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(number: usize) -> CopiedFile {
        let why = CommandError::SomeFailed(format!("why {number}"));
        CopiedFile::failed(format!("f{number}"), why)
    }

    #[test]
    fn failures_are_listed_within_bounds_and_counted_whole() {
        let files = (0..50).map(failed).collect();
        let report = CopyReport::new(files, Vec::new(), Duration::from_secs(1));
        let text = report.text();
        assert_eq!(text.matches("failed: why").count(), LINES_MAX);
        assert!(text.contains("failed: 30 more (--json lists them)\n"));
        assert!(
            text.ends_with("0 files, 0 B copied in 1.0 s (0 B/s)\n"),
            "{text}"
        );
        let why = report.conclude(Output { json: true }).expect_err("failed");
        assert_eq!(
            (why.exit_code(), why.to_string().as_str()),
            (1, "50 of 50 files failed")
        );
    }

    #[test]
    fn one_file_ends_with_its_own_error_and_of_many_bad_content_outranks() {
        let report = |files| CopyReport::new(files, Vec::new(), Duration::from_secs(1));
        let output = Output { json: true };
        let gone = || CopiedFile::failed("f".into(), CommandError::NotFound("gone".into()));
        let bad = || CopiedFile::failed("g".into(), CommandError::Verification("bad".into()));
        let code = |files| {
            report(files)
                .conclude(output)
                .expect_err("failed")
                .exit_code()
        };
        assert_eq!(code(vec![gone()]), 4);
        assert_eq!(code(vec![gone(), gone()]), 1);
        assert_eq!(code(vec![gone(), bad()]), 6);
    }
}
