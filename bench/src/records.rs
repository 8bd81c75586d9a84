//! The record at scale: tens of millions of events are imported, reported on, exported and imported again, and more come
//! meanwhile.

mod live;

use crate::cell::Scale;
use crate::error::{BenchError, doing};
use crate::events::Events;
use crate::recorded_commands::{CommandRun, RecordCommands};
use crate::report::{Table, figures};
use penstock_clock::wall_clock;
use penstock_model::observation::Attempt;
use penstock_model::{TimeWindow, Timestamp};
use penstock_observe::records::ndjson;
use penstock_observe::records::parquet::ParquetWriter;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Days over which events are spread: 20 million are then 33 a second, what the FTS servers of WLCG move together.
const DAYS: u64 = 7;
const DAY: Duration = Duration::from_secs(86_400);
/// What is imported or exported at once: a quarter of a day, which is some 700 MB as lines.
const PIECE: Duration = Duration::from_secs(6 * 3_600);
const PIECES_PER_DAY: u64 = 4;
/// Messages a second that are appended to a file that is followed.
const PACE: u64 = 20_000;
const PIECE_INTERVAL: Duration = Duration::from_millis(100);
/// For messages to become durable.
const TIMEOUT: Duration = Duration::from_secs(300);
const BUFFER_BYTES: usize = 1 << 20;
/// How often a report is made.
const REPORTS: usize = 3;

pub const RECORDS: Table = Table {
    title: "Records of many events",
    note: "Attempts of a transfer service over seven days, with all that FTS3's messages tell of them: 20 million are 33 a \
           second, as many as the FTS servers of WLCG moved from 2022 to 2023. Each command is a process of its own. A bulk \
           import reads six hours from a file and ends when it is durable; live messages are counted when they are durable, \
           once a second. CPU is that of all threads of a command: beside other work on the machine it tells more than the \
           time that passed. Memory is the most that a process had resident.",
    columns: &["what", "figure", "promised"],
};

/// How many events, and how many messages come live.
fn counts(scale: Scale, events: u64) -> (u64, u64) {
    match scale {
        Scale::Full { .. } => (events, 1_000_000),
        Scale::Quick => (events.min(20_000), 20_000),
    }
}

/// The rows. `directory` is emptied as it goes: a store, six hours of it in another and as a file are there at most.
pub fn run(
    binary: &Path,
    directory: &Path,
    events: u64,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let (count, live) = counts(scale, events);
    let now = wall_clock();
    let window = TimeWindow {
        from: now - DAY * DAYS as u32,
        to: now,
    };
    let bench = RecordBench {
        commands: RecordCommands {
            binary,
            work: directory,
        },
        directory,
        events: Events { count, window },
        live,
    };
    let mut rows = Vec::new();
    bench.import(&mut rows)?;
    bench.report(&mut rows)?;
    bench.copy(&mut rows)?;
    bench.follow(&mut rows)?;
    Ok(rows)
}

struct RecordBench<'a> {
    commands: RecordCommands<'a>,
    directory: &'a Path,
    events: Events,
    live: u64,
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Lines,
    Parquet,
}

/// What several commands took together.
#[derive(Debug, Default)]
struct Sum {
    rows: u64,
    seconds: f64,
    cpu_seconds: f64,
    memory_bytes: u64,
}

impl Sum {
    fn add(&mut self, rows: u64, run: &CommandRun) {
        self.rows += rows;
        self.seconds += run.seconds;
        self.cpu_seconds += run.cpu_seconds;
        self.memory_bytes = self.memory_bytes.max(run.memory_bytes);
    }

    /// Rows for each second, and for each second of CPU.
    fn rates(&self) -> (f64, f64) {
        let rows = self.rows as f64;
        (rows / self.seconds, rows / self.cpu_seconds.max(0.01))
    }
}

fn row(what: &str, figure: String, promised: &str) -> Vec<String> {
    vec![what.to_owned(), figure, promised.to_owned()]
}

fn megabytes(bytes: u64) -> String {
    figures(bytes as f64 / 1e6)
}

fn is_told(run: &CommandRun, key: &str, expected: u64) -> Result<(), BenchError> {
    match run.told[key].as_u64() {
        Some(told) if told == expected => Ok(()),
        told => Err(BenchError::failed(format!(
            "a command told {told:?} as its {key}, and not {expected}"
        ))),
    }
}

impl RecordBench<'_> {
    fn store(&self) -> PathBuf {
        self.directory.join("records")
    }

    /// Begin and end of a piece of the window; its last piece ends with it.
    fn piece(&self, number: u64) -> TimeWindow {
        let from = self.events.window.from + PIECE * number as u32;
        TimeWindow {
            from,
            to: from + PIECE,
        }
    }

    /// Imports piece by piece, in turns from lines and from Parquet.
    fn import(&self, rows: &mut Vec<Vec<String>>) -> Result<(), BenchError> {
        let (mut lines, mut parquet) = (Sum::default(), Sum::default());
        let mut bytes_of_lines = 0;
        let store = self.store();
        for number in 0..DAYS * PIECES_PER_DAY {
            let form = form_of(number);
            let file = self.directory.join("piece");
            let numbers = self.events.numbers(self.piece(number));
            self.write(numbers.clone(), form, &file)?;
            let words = ["records", "import", text(&file)?, "--into", text(&store)?];
            let run = self.commands.run(&words)?;
            let count = numbers.end - numbers.start;
            is_told(&run, "attempts", count)?;
            is_told(&run, "invalid", 0)?;
            if form == Form::Lines {
                bytes_of_lines += size(&file)?;
            }
            remove(&file)?;
            match form {
                Form::Lines => lines.add(count, &run),
                Form::Parquet => parquet.add(count, &run),
            }
        }
        let kept = size_of_directory(&store)?;
        let count = self.events.count as f64;
        rows.push(row("events", self.events.count.to_string(), "20,000,000"));
        rows.push(row(
            "bytes of an event: as a line, kept",
            format!(
                "{}, {}",
                figures(bytes_of_lines as f64 / lines.rows.max(1) as f64),
                figures(kept as f64 / count)
            ),
            "",
        ));
        for (what, sum) in [("lines of JSON", lines), ("Parquet", parquet)] {
            let (rate, cpu_rate) = sum.rates();
            rows.push(row(
                &format!("bulk import of {what}, events/s; events per CPU s; memory, MB"),
                format!(
                    "**{}**; {}; {}",
                    figures(rate),
                    figures(cpu_rate),
                    megabytes(sum.memory_bytes)
                ),
                "100,000 at least; bounded",
            ));
        }
        Ok(())
    }

    fn write(
        &self,
        numbers: std::ops::Range<u64>,
        form: Form,
        path: &Path,
    ) -> Result<(), BenchError> {
        let what = || format!("{}", path.display());
        let file = File::create(path).or_else(doing(what()))?;
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let rows = numbers.map(|number| self.events.attempt(number));
        let written = match form {
            Form::Lines => write_lines(&mut file, rows),
            Form::Parquet => write_parquet(&mut file, rows),
        };
        written.and_then(|()| file.flush()).or_else(doing(what()))
    }

    /// Reports of the last day.
    fn report(&self, rows: &mut Vec<Vec<String>>) -> Result<(), BenchError> {
        let store = self.store();
        let last = TimeWindow {
            from: self.events.window.from + DAY * (DAYS - 1) as u32,
            to: self.events.window.to,
        };
        let numbers = self.events.numbers(last);
        let since = format!("{}Z", last.from.to_fts());
        // A time is typed in whole seconds.
        let second = Timestamp(last.from.0 / 1000 * 1000);
        let numbers = self
            .events
            .numbers(TimeWindow {
                from: second,
                to: last.to,
            })
            .start..numbers.end;
        let count = numbers.end - numbers.start;
        let directory = text(&store)?;
        let reports: [(&str, &[&str]); 4] = [
            (
                "account by VO",
                &["account", directory, "--since", &since, "--by", "vo"],
            ),
            (
                "account by link",
                &["account", directory, "--since", &since, "--by", "link"],
            ),
            (
                "explain",
                &["explain", "--records", directory, "--since", &since],
            ),
            (
                "incidents",
                &["incidents", "--records", directory, "--since", &since],
            ),
        ];
        for (what, words) in reports {
            let mut runs = Vec::new();
            for _ in 0..REPORTS {
                runs.push(self.commands.run(words)?);
            }
            if words[0] == "account" {
                let told = ended(&runs[0].told);
                if told != count {
                    return Err(BenchError::failed(format!(
                        "{what} tells of {told} attempts, and {count} ended in the last day"
                    )));
                }
            }
            let mut seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
            seconds.sort_by(f64::total_cmp);
            let memory = runs.iter().map(|run| run.memory_bytes).max().unwrap_or(0);
            let cpu = runs.iter().map(|run| run.cpu_seconds);
            rows.push(row(
                &format!(
                    "report of the last day ({count} events): {what}, s; least CPU s; memory, MB"
                ),
                format!(
                    "**{:.2}** ({:.2} to {:.2}); {:.2}; {}",
                    seconds[REPORTS / 2],
                    seconds[0],
                    seconds[REPORTS - 1],
                    cpu.fold(f64::INFINITY, f64::min),
                    megabytes(memory)
                ),
                "5 s at most; bounded",
            ));
        }
        Ok(())
    }

    /// Exports piece by piece, imports each elsewhere, and exports it again.
    fn copy(&self, rows: &mut Vec<Vec<String>>) -> Result<(), BenchError> {
        let other = self.directory.join("copy");
        let (mut lines, mut parquet) = (Sum::default(), Sum::default());
        let mut pieces = 0;
        // The first day by the calendar has begun before the window.
        for number in 0..(DAYS + 1) * PIECES_PER_DAY {
            let form = form_of(number);
            let (file, run) = self.export(&self.store(), number, form)?;
            let count = run.told["rows"].as_u64().unwrap_or(0);
            match form {
                Form::Lines => lines.add(count, &run),
                Form::Parquet => parquet.add(count, &run),
            }
            if count > 0 {
                let before = digest(&file)?;
                let words = ["records", "import", text(&file)?, "--into", text(&other)?];
                is_told(&self.commands.run(&words)?, "attempts", count)?;
                self.remove_export()?;
                let (file, _) = self.export(&other, number, form)?;
                if digest(&file)? != before {
                    return Err(BenchError::failed(format!(
                        "what was exported and imported of piece {number} is not what was there"
                    )));
                }
                remove(&other)?;
                pieces += 1;
            }
            self.remove_export()?;
        }
        let (told, all) = (lines.rows + parquet.rows, self.events.count);
        if told != all {
            return Err(BenchError::failed(format!(
                "{told} events were exported and imported again, and there are {all}"
            )));
        }
        for (what, sum) in [("lines of JSON", lines), ("Parquet", parquet)] {
            rows.push(row(
                &format!("export as {what}, events/s; memory, MB"),
                format!(
                    "{}; {}",
                    figures(sum.rates().0),
                    megabytes(sum.memory_bytes)
                ),
                "bounded",
            ));
        }
        rows.push(row(
            "exported, imported elsewhere, and exported again, byte by byte",
            format!("identical, {pieces} pieces of six hours"),
            "identical",
        ));
        Ok(())
    }

    /// Rows of a piece of a day by the calendar, as one file.
    fn export(
        &self,
        store: &Path,
        number: u64,
        form: Form,
    ) -> Result<(PathBuf, CommandRun), BenchError> {
        let begin = self.events.window.from;
        let midnight = Timestamp(begin.0.div_euclid(86_400_000) * 86_400_000);
        let from = midnight + PIECE * number as u32;
        let [since, until] = [from, from + PIECE].map(|at| format!("{}Z", at.to_fts()));
        let to = self.directory.join("exported");
        let form_name = match form {
            Form::Lines => "ndjson",
            Form::Parquet => "parquet",
        };
        let words = [
            "records",
            "export",
            text(store)?,
            "--to",
            text(&to)?,
            "--format",
            form_name,
            "--since",
            &since,
            "--until",
            &until,
        ];
        let run = self.commands.run(&words)?;
        let file = match form {
            Form::Lines => to,
            Form::Parquet => to.join("attempt.parquet"),
        };
        Ok((file, run))
    }

    fn remove_export(&self) -> Result<(), BenchError> {
        remove(&self.directory.join("exported"))
    }
}

fn form_of(number: u64) -> Form {
    match number % 2 {
        0 => Form::Lines,
        _ => Form::Parquet,
    }
}

fn write_lines(file: &mut impl Write, rows: impl Iterator<Item = Attempt>) -> io::Result<()> {
    writeln!(file, "{}", ndjson::heading())?;
    for row in rows {
        writeln!(file, "{}", ndjson::line(&row.into()))?;
    }
    Ok(())
}

fn write_parquet(file: &mut impl Write, rows: impl Iterator<Item = Attempt>) -> io::Result<()> {
    let mut writer = ParquetWriter::new(file)?;
    for row in rows {
        writer.push(&row)?;
    }
    writer.finish().map(|_| ())
}

/// Attempts that an account tells of.
fn ended(account: &Value) -> u64 {
    let lines = account["lines"].as_array().into_iter().flatten();
    let counts =
        lines.flat_map(|line| ["succeeded", "failed", "aborted"].map(|key| line[key].as_u64()));
    counts.flatten().sum()
}

fn text(path: &Path) -> Result<&str, BenchError> {
    path.to_str()
        .ok_or_else(|| BenchError::failed(format!("{} is no text", path.display())))
}

fn remove(path: &Path) -> Result<(), BenchError> {
    let removed = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    removed.or_else(doing(format!("{}", path.display())))
}

fn size(path: &Path) -> Result<u64, BenchError> {
    let metadata = fs::metadata(path).or_else(doing(format!("{}", path.display())))?;
    Ok(metadata.len())
}

fn size_of_directory(path: &Path) -> Result<u64, BenchError> {
    let entries = fs::read_dir(path).or_else(doing(format!("{}", path.display())))?;
    entries.flatten().map(|entry| size(&entry.path())).sum()
}

/// CRC-32C and length, of which the one or the other differs when anything does.
fn digest(path: &Path) -> Result<(u32, u64), BenchError> {
    let what = || format!("{}", path.display());
    let mut file = File::open(path).or_else(doing(what()))?;
    let mut piece = vec![0; BUFFER_BYTES];
    let (mut sum, mut length) = (0, 0);
    loop {
        let count = file.read(&mut piece).or_else(doing(what()))?;
        if count == 0 {
            return Ok((sum, length));
        }
        sum = crc32c::crc32c_append(sum, &piece[..count]);
        length += count as u64;
    }
}
