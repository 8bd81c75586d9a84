//! The tables of the tape challenge of October 2021 at CC-IN2P3, as they were printed.

use penstock_model::Bytes;
use penstock_observe::accounting::comparison::RateComparison;
use penstock_observe::accounting::figures::{PeriodRate, PublishedRow, PublishedTable};
use std::fmt::Write;

/// Name, files, terabytes, gigabytes per second, gigabytes of a file.
type Printed = (&'static str, u64, f64, f64, f64);

const MIGRATION: [Printed; 6] = [
    ("ALL", 277_035, 1068.0, 2.31, 3.85),
    ("ALICE", 111_412, 233.0, 0.622, 2.097),
    ("ATLAS", 58_313, 307.0, 1.77, 5.29),
    ("CMS", 21_947, 235.0, 1.8, 1.074),
    ("LHCB", 44_798, 216.0, 0.983, 4.83),
    ("Others", 40_565, 77.0, 0.205, 1.91),
];
const STAGING: [Printed; 6] = [
    ("ALL", 495_755, 808.954, 1.79, 1.6),
    ("ALICE", 867, 1.37, 0.010_23, 1.5),
    ("ATLAS", 415_704, 550.028, 1.222, 1.3),
    ("CMS", 16_190, 156.609, 1.061, 9.6),
    ("LHCB", 23_810, 51.439, 1.33, 2.16),
    ("Others", 39_184, 49.508, 0.112_65, 1.2),
];
/// Of a period: whose, hours, and what the VOs and the site printed, in GB/s.
type PrintedPeriod = (&'static str, f64, f64, f64);

const DATA_TAKING: [PrintedPeriod; 4] = [
    ("ATLAS", 48.0, 1.52, 2.45),
    ("CMS", 36.0, 0.57, 0.65),
    ("LHCB", 61.0, 0.78, 1.0),
    ("ALICE", 104.0, 0.54, 0.59),
];
const AFTER_DATA_TAKING: [PrintedPeriod; 2] =
    [("ATLAS", 55.0, 0.89, 1.02), ("CMS", 60.0, 1.22, 3.2)];

fn table(printed: &[Printed], (period, rates): (&str, &[PrintedPeriod])) -> PublishedTable {
    let row = |(name, files, terabytes, rate, size): &Printed| PublishedRow {
        name: (*name).to_owned(),
        files: *files,
        volume: Bytes((terabytes * 1e12) as u64),
        rate: rate * 1e9,
        mean_size: size * 1e9,
    };
    let views = rates.iter().flat_map(|(vo, hours, of_vo, of_site)| {
        [("VOs' view", of_vo), ("site's view", of_site)].map(|(view, rate)| PeriodRate {
            name: format!("{vo} {period}, {view}"),
            of: (*vo).to_owned(),
            seconds: hours * 3600.0,
            rate: rate * 1e9,
        })
    });
    PublishedTable {
        total: row(&printed[0]),
        parts: printed[1..].iter().map(row).collect(),
        // From the row of all: a volume and a rate have no other window.
        seconds: printed[0].2 * 1e12 / (printed[0].3 * 1e9),
        rates: views.collect(),
    }
}

/// What went to tape.
pub(crate) fn migration() -> PublishedTable {
    table(&MIGRATION, ("DT", &DATA_TAKING))
}

/// What came from tape.
pub(crate) fn staging() -> PublishedTable {
    table(&STAGING, ("A-DT", &AFTER_DATA_TAKING))
}

/// What cannot be true of a table, as `penstock account published` prints it.
pub(crate) fn contradictions(table: &PublishedTable) -> String {
    let mut text = String::from("```\n");
    for (row, what) in table.contradictions() {
        let _ = writeln!(text, "{row}: {what}");
    }
    text + "```\n"
}

/// ATLAS beside CMS when data were read back: in the VOs' view and in the site's.
pub(crate) fn atlas_and_cms() -> Vec<RateComparison> {
    let staging = staging();
    let views = ["VOs' view", "site's view"].map(|view| {
        let name = |vo: &str| format!("{vo} A-DT, {view}");
        staging.compare(&name("ATLAS"), &name("CMS"))
    });
    views.into_iter().flatten().collect()
}
