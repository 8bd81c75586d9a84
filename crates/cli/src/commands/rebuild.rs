//! `penstock rebuild`: makes a lost namespace again from its pools.

use crate::args::RebuildArgs;
use crate::commands::progress::BlockingProgress;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::directory::SiteDirectory;
use penstock_storage_element::rebuild::{RebuildFailure, RebuildReport, RebuildRequest, rebuild};
use serde::Serialize;

/// Of what could not be placed, how much is printed.
const PRINTED_MAX: usize = 20;

#[derive(Debug, Serialize)]
struct RebuildSummary {
    namespace: String,
    dry_run: bool,
    directories: u64,
    files: u64,
    bytes: u64,
    /// Of the files, those that are on no disk.
    tape_only: u64,
    trash: u64,
    /// Files and directories below `/lost+found`, and the first of them with the reason.
    lost: u64,
    lost_named: Vec<LostFileReport>,
    wrong_size: Vec<String>,
    unreadable: Vec<LostFileReport>,
    quarantined: u64,
    logs: Vec<LogReport>,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_aside: Option<String>,
}

#[derive(Debug, Serialize)]
struct LostFileReport {
    path: String,
    why: String,
}

#[derive(Debug, Serialize)]
struct LogReport {
    pool: String,
    /// The last change that it tells.
    sequence: u64,
    /// Why it does not tell all; absent when it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl RebuildSummary {
    fn of(report: RebuildReport, dry_run: bool) -> RebuildSummary {
        let RebuildReport {
            namespace,
            rebuilt,
            logs,
            sequence,
            unreadable,
            quarantined,
            set_aside,
            taken,
        } = report;
        let logs = logs.into_iter().map(|(pool, found)| match found {
            Err(why) => LogReport {
                pool: pool.to_string(),
                sequence: 0,
                problem: Some(why),
            },
            Ok(found) => {
                let mut problems = Vec::new();
                if !found.is_whole {
                    problems.push("its snapshot is incomplete".to_owned());
                }
                if found.lines_damaged > 0 {
                    problems.push(format!("damaged lines: {}", found.lines_damaged));
                }
                if found.numbers_missing > 0 {
                    problems.push(format!("missing changes: {}", found.numbers_missing));
                }
                if found.is_torn {
                    problems.push("its last line is incomplete".to_owned());
                }
                if found.sequence < sequence {
                    let behind = sequence - found.sequence;
                    problems.push(format!("changes missing at the end: {behind}"));
                }
                LogReport {
                    pool: pool.to_string(),
                    sequence: found.sequence,
                    problem: (!problems.is_empty()).then(|| problems.join(", ")),
                }
            }
        });
        RebuildSummary {
            namespace: namespace.to_string(),
            dry_run,
            directories: rebuilt.directories,
            files: rebuilt.files,
            bytes: rebuilt.bytes.0,
            tape_only: rebuilt.tape_only,
            trash: rebuilt.trash,
            lost: rebuilt.lost,
            lost_named: rebuilt
                .lost_named
                .into_iter()
                .map(|(path, why)| LostFileReport {
                    path: path.to_string(),
                    why,
                })
                .collect(),
            wrong_size: rebuilt.wrong_size.iter().map(ToString::to_string).collect(),
            unreadable: unreadable
                .into_iter()
                .map(|(path, why)| LostFileReport {
                    path: path.display().to_string(),
                    why,
                })
                .collect(),
            quarantined,
            logs: logs.collect(),
            seconds: taken.as_secs_f64(),
            set_aside: set_aside.map(|path| path.display().to_string()),
        }
    }

    fn text(&self) -> String {
        let what = match self.dry_run {
            true => "dry run:",
            false => "rebuilt",
        };
        let mut text = format!(
            "{what} namespace {}: {} files ({}) in {} directories, {} in the trash; took {:.1} s\n",
            self.namespace,
            self.files,
            penstock_model::Bytes(self.bytes),
            self.directories,
            self.trash,
            self.seconds
        );
        if self.tape_only > 0 {
            text += &format!("  files on tape only: {}\n", self.tape_only);
        }
        for log in &self.logs {
            if let Some(problem) = &log.problem {
                text += &format!("  directory log of pool {}: {problem}\n", log.pool);
            }
        }
        if self.lost > 0 {
            text += &format!(
                "  files without a known path, now in /lost+found: {}\n",
                self.lost
            );
        }
        for lost in self.lost_named.iter().take(PRINTED_MAX) {
            text += &format!("    {}: {}\n", lost.path, lost.why);
        }
        for path in self.wrong_size.iter().take(PRINTED_MAX) {
            text += &format!("  {path} does not have the expected size; see `penstock fsck`\n");
        }
        for lost in self.unreadable.iter().take(PRINTED_MAX) {
            text += &format!("  {} cannot be read: {}\n", lost.path, lost.why);
        }
        if self.quarantined > 0 {
            text += &format!(
                "  files still in quarantine: {}; `penstock fsck` lists them\n",
                self.quarantined
            );
        }
        if let Some(aside) = &self.set_aside {
            text += &format!("  the previous namespace is kept as {aside}\n");
        }
        text
    }
}

/// `penstock rebuild`.
pub fn run(args: &RebuildArgs, output: Output) -> Result<(), CommandError> {
    let site = SiteDirectory::to_change(&args.dir)?;
    let config = site.config()?;
    let storage = site.storage(&config)?;
    let _lock = site.lock()?;
    let order = RebuildRequest {
        namespace: site.resolve(&storage.namespace),
        pools: site.pools(storage),
        replace: args.replace,
        dry_run: args.dry_run,
    };
    let counted = BlockingProgress::new(output, "files read");
    let report = rebuild(&order, |progress| {
        counted.show(progress.done, progress.total)
    });
    counted.end();
    let report = report.map_err(|why| match why {
        RebuildFailure::Exists(_) => CommandError::Usage(why.to_string()),
        why => CommandError::Local(why.to_string()),
    })?;
    let told = RebuildSummary::of(report, args.dry_run);
    output.show(&told, || told.text());
    Ok(())
}
