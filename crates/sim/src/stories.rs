//! What five documents of the field tell of, as stories: who did what to which resource, and when; explained by the same
//! explainer as a site of today; and the page that tells them (`docs/observe/stories.md`).
//!
//! What the simulator has (slots, processes of the service, queues, sources, networks, connections, disk servers and their arrays)
//! is run in it, and its record is read as that of a site. The week to tape of 2006 is a recorded window too, made of the figures
//! that its report prints. It decides nothing about causes.

mod asgc;
mod edinburgh;
mod plots;
mod replay;
mod sc4_disk;
mod sc4_tape;
mod sc4_tape_run;
mod svg;
pub(crate) mod tables_2021;
#[cfg(test)]
mod tests;
mod told;
mod windows_2013;
mod write_record;

pub use plots::Plot;
pub use replay::ReplayError;
pub use told::Line;

use crate::made_page::Block;
use penstock_decide::explain::signals::Signals;
use penstock_decide::incidents::Incident;
use std::fmt::Write;
use std::thread;

/// All that is told.
pub struct Stories {
    disk: sc4_disk::DiskPhase,
    tape: Signals,
    tape_run: Vec<sc4_tape_run::Outcome>,
    windows: Vec<Line>,
    edinburgh: edinburgh::Edinburgh,
    asgc: [asgc::Case; 2],
}

impl Stories {
    /// Runs what is simulated, and makes the recorded windows.
    ///
    /// Errors: the simulated service broke an invariant, or its record cannot be read.
    pub fn run() -> Result<Stories, ReplayError> {
        thread::scope(|scope| {
            let disk = scope.spawn(sc4_disk::run);
            let tape_run = scope.spawn(sc4_tape_run::run);
            Ok(Stories {
                tape: sc4_tape::window(),
                windows: windows_2013::lines()?,
                edinburgh: edinburgh::run(),
                asgc: asgc::cases(),
                disk: disk.join().expect("no panic")?,
                tape_run: tape_run.join().expect("no panic"),
            })
        })
    }

    /// The parts of the page.
    pub fn blocks(&self) -> Vec<Block> {
        let block = |name, text| Block { name, text };
        let disk = sc4_disk::lines(&self.disk);
        let tape = sc4_tape::lines(&self.tape);
        let (windows, edinburgh) = (&self.windows, &self.edinburgh);
        let asgc = self.asgc.iter().map(|case| &case.line);
        let run = self.tape_run.iter().map(|outcome| &outcome.line);
        vec![
            block("sc4-disk", told::table(&disk)),
            block("sc4-disk-in-full", told::in_full(&disk)),
            block("sc4-4-april", self.fourth_of_april()),
            block("sc4-tape", told::table(&tape)),
            block("sc4-tape-in-full", told::in_full(&tape)),
            block("sc4-errors", self.errors()),
            block("sc4-tape-run", sc4_tape_run::table(&self.tape_run)),
            block("sc4-tape-run-told", told::table(run.clone())),
            block("sc4-tape-run-in-full", told::in_full(run)),
            block("2013", told::table(windows)),
            block("2013-ceiling", ceilings()),
            block("2013-in-full", told::in_full(windows)),
            block(
                "2021-migration",
                tables_2021::contradictions(&tables_2021::migration()),
            ),
            block(
                "2021-staging",
                tables_2021::contradictions(&tables_2021::staging()),
            ),
            block("2021-comparison", comparison()),
            block("edinburgh-rates", edinburgh.table()),
            block("edinburgh", told::table(edinburgh.lines())),
            block("edinburgh-refusals", incident_table(&edinburgh.refusals())),
            block("edinburgh-in-full", told::in_full(edinburgh.lines())),
            block("asgc-run", asgc::table(&self.asgc)),
            block("asgc", told::table(asgc.clone())),
            block("asgc-in-full", told::in_full(asgc)),
        ]
    }

    /// Files of the page, by their names.
    pub fn plots(&self) -> Vec<Plot> {
        plots::all(self)
    }

    /// The day that nobody understood, with what movers report today.
    fn fourth_of_april(&self) -> String {
        told::in_full(&[sc4_disk::fourth_of_april(&self.disk)])
    }

    /// The errors of migrations as incidents.
    fn errors(&self) -> String {
        let is_week =
            |one: &&sc4_tape_run::Outcome| one.trouble == sc4_tape_run::Trouble::ErrorOfEachFile;
        let weeks = self.tape_run.iter().filter(is_week);
        let told = weeks.map(|week| {
            format!(
                "{} errors of {} migrations are {} incidents:\n\n{}",
                week.failed_puts,
                week.on_tape + week.failed_puts,
                week.incidents_of_puts.len(),
                incident_table(&week.incidents_of_puts)
            )
        });
        told.collect()
    }
}

/// One row for each.
fn incident_table(incidents: &[Incident]) -> String {
    let mut text = String::from("| from | errors | what |\n|---|---:|---|\n");
    for incident in incidents {
        let object = incident.fingerprint.object.as_deref().unwrap_or("-");
        let _ = writeln!(
            text,
            "| {}Z | {} | {object} |",
            incident.first_seen.to_fts(),
            incident.failed_attempts
        );
    }
    text
}

/// What windows allowed, beside what was measured.
fn ceilings() -> String {
    let mut text = String::from(
        "| case | window | round trip | 9 connections can carry | measured | connections without bytes |\n|---|---:|---:|---:|---:|---:|\n",
    );
    for (case, sockets) in [
        ("(a) maximum of 64 kB", windows_2013::with_pinned_maximum()),
        ("(b) default of 87 kB", windows_2013::with_default_of_87k()),
        ("default of 1 MB", windows_2013::with_default_of_1m()),
    ] {
        let each = sockets.ceiling() / windows_2013::STREAMS * 8.0 / 1e6;
        let _ = writeln!(
            text,
            "| {case} | {:.0} kB | {:.0} ms | 9 × {each:.1} Mb/s = {:.1} MB/s | {:.2} MB/s | {:.0} % |",
            sockets.window / 1e3,
            sockets.rtt * 1e3,
            sockets.ceiling() / 1e6,
            sockets.rate / 1e6,
            sockets.idle * 100.0
        );
    }
    text
}

/// CMS beside ATLAS.
fn comparison() -> String {
    let texts: Vec<String> = tables_2021::atlas_and_cms()
        .iter()
        .map(|one| one.text())
        .collect();
    format!("```\n{}```\n", texts.join("\n"))
}
