//! The result as a Markdown page: circumstances, then tables with units, one row a cell, as cells end.

use crate::cell::{Beside, CELL_BYTES_MAX, Kind, Scale, Size};
use crate::contest::{Outcome, median};
use crate::error::{BenchError, doing};
use crate::load::Phase;
use crate::machine::Circumstances;
use crate::service::{MemoryRun, ServiceRun};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// FTS3's own figures for the same work on a machine like this one (2 cores, everything sharing them).
const FTS3_RATE: &str = "6.3 to 23.5";
const FTS3_RATE_BEST: f64 = 23.5;
const FTS3_MEMORY: &str = "3.4 to 6.8 MB";
const FTS3_CPU: &str = "75 to 304 ms";
/// Less of the cores' time that a host gave to others is not told.
const STOLEN_WORTH_TELLING: f64 = 0.01;

/// A table of one kind of cells, which name their figures themselves.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Its heading.
    pub title: &'static str,
    /// What stands between heading and table.
    pub note: &'static str,
    /// Heads of the columns.
    pub columns: &'static [&'static str],
}

/// Collects text and rewrites the file after each cell, so that a run that is cut short leaves what it had.
pub struct Report {
    head: String,
    disk: String,
    beside: Vec<(Kind, String)>,
    service: String,
    /// In the order in which they got their first row.
    tables: Vec<(&'static Table, String)>,
    host: String,
    errors: String,
}

impl Report {
    /// With nothing measured yet.
    pub fn new(
        now: &Circumstances,
        file_system: &str,
        versions: &[String],
        scale: Scale,
    ) -> Report {
        let mut head = String::from("# Measurements beside peers\n\n");
        if scale == Scale::Quick {
            head +=
                "**A quick run: it shows that everything works. Its figures mean nothing.**\n\n";
        }
        let _ = write!(
            head,
            "- command: `{}`\n- commit: {}\n- date: {} UTC\n- machine: {}; load average before: {}\n\
             - data: {file_system}\n- versions: {}\n\n\
             How to read this, and its caveats: `bench/README.md`. Medians of {} interleaved pairs; a \
             ratio is Penstock's figure \
             divided by the peer's, as median (lowest to highest) of the pairs. Rates: above 1, \
             Penstock is faster. CPU: below 1, \
             Penstock is cheaper; CPU is that of the server's processes alone, while rates are of \
             server and client on \
             the same cores. MB = 10^6 bytes. No cell moves more than {} GB.\n\n",
            now.command,
            now.commit,
            now.date,
            now.machine,
            now.load,
            versions.join("; "),
            scale.pairs(),
            CELL_BYTES_MAX / 1_000_000_000,
        );
        Report {
            head,
            disk: String::new(),
            beside: Vec::new(),
            service: String::new(),
            tables: Vec::new(),
            host: String::new(),
            errors: String::new(),
        }
    }

    /// Durable creates on the bare file system.
    pub fn disk(&mut self, threads: usize, per_second: f64) -> String {
        let row = format!("| {threads} | {per_second:.0}/s |\n");
        self.disk += &row;
        row
    }

    /// A cell with a peer. Gives the row.
    pub fn beside(&mut self, cell: &Beside, outcome: &Outcome) -> String {
        let row = row_of(cell, outcome);
        self.beside.push((cell.kind, row.clone()));
        row
    }

    /// Runs of the transfer service.
    pub fn service(&mut self, between: &str, runs: &[ServiceRun]) -> String {
        let row = service_row(between, runs);
        self.service += &row;
        row
    }

    /// Memory of the transfer service.
    pub fn memory(&mut self, run: &MemoryRun) -> String {
        let text = format!(
            "\nMemory: {} transfers held active by a stub: resident memory of the service {:.1} MB \
             idle, {:.1} MB active: \
             **{:.1} kB for each** (FTS3: {FTS3_MEMORY} each).\n",
            run.active,
            run.idle_bytes as f64 / 1e6,
            run.active_bytes as f64 / 1e6,
            run.bytes_per_transfer() / 1e3,
        );
        self.service += &text;
        text
    }

    /// Rows of a table. Gives them back as they stand in the page.
    pub fn rows(&mut self, table: &'static Table, rows: &[Vec<String>]) -> String {
        let text: String = rows
            .iter()
            .map(|cells| format!("| {} |\n", cells.join(" | ")))
            .collect();
        match self.tables.iter_mut().find(|(known, _)| *known == table) {
            Some((_, known)) => known.push_str(&text),
            None => self.tables.push((table, text.clone())),
        }
        text
    }

    /// Which part of the cores' time a virtual machine's host gave to others during a cell. Gives what is worth telling.
    pub fn stolen(&mut self, cell: &str, part: f64) -> String {
        if part < STOLEN_WORTH_TELLING {
            return String::new();
        }
        let line = format!("- `{cell}`: {:.0} %\n", part * 100.0);
        self.host += &line;
        line
    }

    /// A cell that could not be measured.
    pub fn failed(&mut self, cell: &str, why: &str) {
        let _ = writeln!(self.errors, "- `{cell}`: {}", why.trim().replace('\n', " "));
    }

    /// True when a cell could not be measured.
    pub fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Writes all that is known.
    pub fn write(&self, path: &Path) -> Result<(), BenchError> {
        std::fs::write(path, self.text()).or_else(doing(format!("{}", path.display())))
    }

    fn text(&self) -> String {
        let mut text = self.head.clone();
        if !self.service.is_empty() {
            let _ = write!(
                text,
                "## The transfer service: empty files in jobs of 200 over REST\n\
                 FTS3 on such a machine completes {FTS3_RATE} HTTPS copies per second of a stub that \
                 takes no time, with {FTS3_CPU} of \
                 CPU and {FTS3_MEMORY} of memory for each. All processes here share the cores, storage \
                 and client included.\n\n\
                 | between | completed/s, whole run (lowest to highest) | sustained | of FTS3's best | \
                 CPU ms per transfer, by process \
                 | active at most | memory of the service, before and at most \
                 |\n|---|---|---|---|---|---|---|\n{}\n",
                self.service
            );
        }
        for (table, rows) in &self.tables {
            let _ = write!(
                text,
                "## {}\n{}\n\n| {} |\n|{}\n{rows}\n",
                table.title,
                table.note,
                table.columns.join(" | "),
                "---|".repeat(table.columns.len()),
            );
        }
        for (kind, title, note) in SECTIONS {
            let rows: String = self
                .beside
                .iter()
                .filter(|(of, _)| of == kind)
                .map(|(_, row)| row.as_str())
                .collect();
            if !rows.is_empty() {
                let _ = write!(
                    text,
                    "## {title}\n{note}\n\n| size | at a time | peer | Penstock | peer's | ratio | \
                     Penstock CPU | peer's CPU | \
                     CPU ratio | client's CPU, with Penstock and with the peer | Penstock p50/p99 ms | \
                     peer's p50/p99 ms \
                     |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n{rows}\n"
                );
            }
        }
        if !self.disk.is_empty() {
            let _ = write!(
                text,
                "## The disk: create, write a byte, fsync, rename, fsync of the directory\n\n\
                 | threads | files |\n|---|---|\n{}\n",
                self.disk
            );
        }
        if !self.host.is_empty() {
            let _ = write!(
                text,
                "## Taken by the host\nOf the time of all cores, as the kernel of this virtual machine counts it (`steal`). \
                 What was measured meanwhile is lower, and its pairs differ more.\n\n{}\n",
                self.host
            );
        }
        if !self.errors.is_empty() {
            let _ = write!(text, "## Not measured\n{}\n", self.errors);
        }
        text
    }
}

const SECTIONS: &[(Kind, &str, &str)] = &[
    (
        Kind::Put,
        "PUT",
        "Penstock's 201 means durable: checksum, fsync and a commit in the namespace. nginx and XRootD \
         keep no \
         namespace of their own and **do not fsync**: their answer means that the page cache has it.",
    ),
    (
        Kind::Get,
        "GET",
        "Files just written, from the page cache. Penstock checks a token on each request; the peers \
         are open to \
         everybody.",
    ),
    (
        Kind::Head,
        "HEAD",
        "Files just written. Penstock checks a token on each request; the peers are open to everybody.",
    ),
    (
        Kind::Propfind,
        "PROPFIND, depth 0",
        "All properties of files just written. Penstock checks a token on each request; the peers are open to everybody.",
    ),
    (
        Kind::Delete,
        "DELETE",
        "Files made before the phase. Penstock's 204 means durable; the peers do not sync.",
    ),
    (
        Kind::Copy,
        "Third-party copy (HTTP-TPC pull, https to https)",
        "Driven by hand; CPU is that of both servers. Penstock's copies are durable, XRootD's are not.",
    ),
];

fn row_of(cell: &Beside, outcome: &Outcome) -> String {
    let is_small = matches!(cell.size, Size::Empty | Size::Small);
    let rate = |phase: &Phase| match is_small {
        true => phase.rate(),
        false => phase.megabytes_per_second(),
    };
    let cpu = |phase: &Phase| match is_small {
        true => phase.server_microseconds(),
        false => phase.server_seconds_per_gigabyte(),
    };
    let client = |phase: &Phase| match is_small {
        true => phase.client_cpu.as_secs_f64() * 1e6 / phase.done.max(1) as f64,
        false => phase.client_cpu.as_secs_f64() * 1e9 / phase.bytes.max(1) as f64,
    };
    let (rate_unit, cpu_unit) = match is_small {
        true => ("/s", "us"),
        false => ("MB/s", "s/GB"),
    };
    let size = match cell.size {
        Size::Empty => "0 B".to_owned(),
        Size::Small => "100 kB".to_owned(),
        Size::Megabyte => "1 MB".to_owned(),
        Size::Gigabyte if cell.clients == 1 => "1 GB".to_owned(),
        Size::Gigabyte => format!("1 GB in {} files", cell.clients),
    };
    format!(
        "| {size} | {} | {} | {} | {} | {} | {} | {} | {} | {}, {} | {} | {} |\n",
        cell.clients,
        cell.peer.name(),
        middle(&outcome.ours, rate, rate_unit),
        middle(&outcome.peer, rate, rate_unit),
        ratio(outcome, rate),
        middle(&outcome.ours, cpu, cpu_unit),
        middle(&outcome.peer, cpu, cpu_unit),
        ratio(outcome, cpu),
        middle(&outcome.ours, client, cpu_unit),
        middle(&outcome.peer, client, cpu_unit),
        latencies(&outcome.ours),
        latencies(&outcome.peer),
    )
}

fn middle(phases: &[Phase], figure: impl Fn(&Phase) -> f64, unit: &str) -> String {
    median(phases.iter().map(figure).collect())
        .map_or("-".to_owned(), |value| format!("{} {unit}", figures(value)))
}

fn ratio(outcome: &Outcome, figure: impl Fn(&Phase) -> f64) -> String {
    let ratios: Vec<f64> = outcome
        .ours
        .iter()
        .zip(&outcome.peer)
        .map(|(ours, peer)| figure(ours) / figure(peer))
        .filter(|ratio| ratio.is_finite())
        .collect();
    spread(ratios)
}

/// The median, as a figure.
pub fn middle_of(values: Vec<f64>) -> String {
    figures(median(values).unwrap_or_default())
}

/// The median of the pairs' ratios, with the lowest and the highest.
pub fn spread(ratios: Vec<f64>) -> String {
    let low = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let high = ratios.iter().copied().fold(0.0, f64::max);
    median(ratios).map_or("-".to_owned(), |middle| {
        format!(
            "**{}** ({} to {})",
            figures(middle),
            figures(low),
            figures(high)
        )
    })
}

fn latencies(phases: &[Phase]) -> String {
    let of = |latency: fn(&Phase) -> Duration| {
        median(
            phases
                .iter()
                .map(|phase| latency(phase).as_secs_f64() * 1e3)
                .collect(),
        )
    };
    match (of(|phase| phase.p50), of(|phase| phase.p99)) {
        (Some(half), Some(most)) => format!("{}/{}", figures(half), figures(most)),
        _ => "-".to_owned(),
    }
}

/// Three significant figures, no more than the noise allows.
pub fn figures(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn service_row(between: &str, runs: &[ServiceRun]) -> String {
    let rates: Vec<f64> = runs
        .iter()
        .map(|run| run.transfers as f64 / run.wall.as_secs_f64())
        .collect();
    let (low, high) = rates
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), rate| {
            (low.min(*rate), high.max(*rate))
        });
    let rate = median(rates).unwrap_or_default();
    let sustained = median(runs.iter().filter_map(|run| run.sustained).collect());
    let names = runs
        .first()
        .map(|run| run.cpu.as_slice())
        .unwrap_or_default();
    let cpu: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(index, (name, _))| {
            let per_transfer = |run: &ServiceRun| {
                let used = run.cpu.get(index).map_or(Duration::ZERO, |(_, used)| *used);
                used.as_secs_f64() * 1e3 / run.transfers as f64
            };
            let middle = median(runs.iter().map(per_transfer).collect()).unwrap_or_default();
            format!("{name} {middle:.2}")
        })
        .collect();
    let active = runs
        .iter()
        .map(|run| run.active_max)
        .max()
        .unwrap_or_default();
    let megabytes = |bytes: Option<u64>| bytes.unwrap_or_default() as f64 / 1e6;
    format!(
        "| {between} | **{}** ({} to {}) | {} | {:.1} times | {} | {active} | {:.1} MB, {:.1} MB |\n",
        figures(rate),
        figures(low),
        figures(high),
        sustained.map_or("-".to_owned(), figures),
        rate / FTS3_RATE_BEST,
        cpu.join(", "),
        megabytes(runs.first().map(|run| run.resident.0)),
        megabytes(runs.iter().map(|run| run.resident.1).max()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Peer;

    #[test]
    fn a_ratio_is_of_pairs_and_says_its_spread() {
        let phase = |done| Phase {
            done,
            wall: Duration::from_secs(1),
            ..Phase::default()
        };
        let outcome = Outcome {
            ours: vec![phase(200), phase(300), phase(90)],
            peer: vec![phase(100), phase(100), phase(100)],
        };
        let cell = Beside {
            kind: Kind::Put,
            size: Size::Empty,
            clients: 16,
            peer: Peer::NginxHttps,
        };
        let row = row_of(&cell, &outcome);
        assert!(
            row.contains("| 200 /s | 100 /s | **2.00** (0.900 to 3.00) |"),
            "{row}"
        );
        let alone = Outcome {
            ours: outcome.ours,
            peer: Vec::new(),
        };
        assert!(row_of(&cell, &alone).contains("| 200 /s | - | - |"));
    }
}
