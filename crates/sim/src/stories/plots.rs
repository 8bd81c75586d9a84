//! Which plots the page has.

use super::Stories;
use super::edinburgh::{Edinburgh, Printed};
use super::sc4_disk::{self, DiskPhase};
use super::svg::{Bars, Curve, Lines, Mark};
use super::told::changes_of;
use super::{asgc, sc4_tape, tables_2021, windows_2013};
use penstock_decide::explain::signals::{Series, Signals};
use penstock_decide::explain::{RateChange, RateChangeKind};
use penstock_model::LinkId;

/// Of bars, by number.
const SIMULATED_COLOUR: usize = 0;
const PRINTED_COLOUR: usize = 4;

/// A file beside the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plot {
    pub file: &'static str,
    pub svg: String,
}

/// All of them.
pub(super) fn all(stories: &Stories) -> Vec<Plot> {
    let mut plots = vec![
        plot("sc4-disk.svg", sc4_disk(&stories.disk)),
        plot("sc4-slots.svg", sc4_slots(&stories.disk)),
        plot("sc4-tape.svg", sc4_tape(&stories.tape)),
        plot("windows-2013.svg", windows_2013()),
        plot("tables-2021.svg", tables_2021()),
        plot("edinburgh.svg", edinburgh(&stories.edinburgh)),
    ];
    let names = [
        ("asgc-1.svg", "ASGC, case I"),
        ("asgc-2.svg", "ASGC, case II"),
    ];
    let cases = names.into_iter().zip(&stories.asgc);
    plots.extend(cases.map(|((file, title), case)| plot(file, asgc_plot(title, case))));
    plots
}

fn plot(file: &'static str, svg: String) -> Plot {
    Plot { file, svg }
}

/// Means of so many bins each.
fn means(series: &Series, bins: usize, each: usize, unit: f64) -> Vec<Option<f64>> {
    (0..bins / each)
        .map(|step| {
            let span = step * each..step * each + each;
            series.mean(&[span]).map(|mean| mean / unit)
        })
        .collect()
}

/// Drops and lulls of some length, by the code of their first cause.
fn marks(signals: &Signals, changes: &[RateChange], each: usize, hours_min: f64) -> Vec<Mark> {
    let step = |at: penstock_model::Timestamp| {
        let seconds = at.since(signals.begin).as_secs_f64();
        seconds / f64::from(signals.bin_seconds) / each as f64
    };
    let falls = changes
        .iter()
        .filter(|change| change.kind() != RateChangeKind::Rise);
    let long = falls.filter(|change| {
        let told = &change.explanation;
        told.to.since(told.from).as_secs_f64() >= hours_min * 3600.0
    });
    long.map(|change| Mark {
        from: step(change.explanation.from),
        to: step(change.explanation.to),
        name: change
            .first_cause()
            .map_or("?".to_owned(), |cause| cause.code().to_owned()),
    })
    .collect()
}

fn days(first: u32, steps_of_day: f64, count: u32, shift: f64) -> Vec<(f64, String)> {
    (0..count)
        .map(|day| {
            let at = steps_of_day * f64::from(day) + shift;
            (at, format!("{} April", first + day))
        })
        .collect()
}

fn own_changes(signals: &Signals, link: &LinkId) -> Vec<RateChange> {
    changes_of(signals, link, std::slice::from_ref(link))
}

fn sc4_disk(disk: &DiskPhase) -> String {
    let (signals, link) = (&disk.of_site, sc4_disk::link());
    let bytes = &signals.links[&link].copied_bytes;
    let unit = f64::from(sc4_disk::BIN) * 1e6;
    Lines {
        title: "CERN to IN2P3, from disk to disk, and the first cause of each longer drop",
        unit: "MB/s",
        curves: vec![Curve {
            name: "rate",
            values: means(bytes, signals.bins, 3, unit),
        }],
        marks: marks(signals, &own_changes(signals, &link), 3, 1.0),
        ticks: days(1, 96.0, sc4_disk::DAYS as u32, 48.0),
    }
    .svg()
}

fn sc4_slots(disk: &DiskPhase) -> String {
    let signals = &disk.of_site;
    let link = &signals.links[&sc4_disk::link()];
    let curve = |name, series: &Series| Curve {
        name,
        values: means(series, signals.bins, 3, 1.0),
    };
    Lines {
        title: "Files at once in the channel",
        unit: "files",
        curves: vec![curve("limit", &link.limit), curve("in use", &link.active)],
        marks: Vec::new(),
        ticks: days(1, 96.0, sc4_disk::DAYS as u32, 48.0),
    }
    .svg()
}

fn sc4_tape(signals: &Signals) -> String {
    let link = sc4_tape::link();
    let unit = f64::from(signals.bin_seconds) * 1e6;
    let mut curves = vec![Curve {
        name: "rate of the channel",
        values: means(&signals.links[&link].copied_bytes, signals.bins, 3, unit),
    }];
    let names = ["into ccxfer09", "into ccxfer10"];
    curves.extend(
        signals
            .servers
            .values()
            .zip(names)
            .map(|(server, name)| Curve {
                name,
                values: means(&server.bytes_in, signals.bins, 3, unit),
            }),
    );
    Lines {
        title: "CERN to IN2P3, from disk to tape",
        unit: "MB/s",
        curves,
        marks: marks(signals, &own_changes(signals, &link), 3, 0.5),
        // The window begins at 15:00.
        ticks: days(20, 96.0, 6, 36.0 + 24.0),
    }
    .svg()
}

/// What is left of the rate of nine connections after each cause.
fn windows_2013() -> String {
    let (before, after) = (
        windows_2013::with_default_of_1m(),
        windows_2013::with_default_of_87k(),
    );
    let fed = after.ceiling() * (1.0 - after.idle);
    let bar = |name: &str, rate: f64, colour| (name.to_owned(), rate / 1e6, colour);
    Bars {
        title: "Nine connections to BNL with a default of 87 kB: what is left after each cause",
        unit: "MB/s",
        bars: vec![
            bar("with a default of 1 MB", before.rate, 2),
            bar("what windows of 42 kB allow", after.ceiling(), 0),
            bar("2 of 9 have bytes to send", fed, 0),
            bar("measured", after.rate, 1),
        ],
    }
    .svg()
}

/// Over how many hours each printed rate of the migration was taken.
fn tables_2021() -> String {
    let table = tables_2021::migration();
    let rows = [&table.total].into_iter().chain(&table.parts);
    let hours = rows.enumerate().map(|(number, row)| {
        let hours = row.volume.0 as f64 / row.rate / 3600.0;
        (row.name.clone(), hours, usize::from(number > 0))
    });
    Bars {
        title: "Tape challenge 2021, migration: volume / printed rate",
        unit: "hours",
        bars: hours.collect(),
    }
    .svg()
}

/// Each run as it was printed, and as it was simulated, by the number of its row.
fn edinburgh(edinburgh: &Edinburgh) -> String {
    let rows = edinburgh.rows.iter().enumerate();
    let bars = rows.flat_map(|(number, row)| {
        let printed = match row.printed {
            Printed::Megabits(rates) => rates.first().copied(),
            Printed::Words(_) => None,
        };
        let printed = printed.map(|rate| (String::new(), rate, PRINTED_COLOUR));
        let simulated = (
            format!("row {}", number + 1),
            row.simulated_megabits(),
            SIMULATED_COLOUR,
        );
        printed.into_iter().chain([simulated])
    });
    Bars {
        title: "Rates of Edinburgh's runs, printed (grey) and simulated (blue)",
        unit: "Mb/s",
        bars: bars.collect(),
    }
    .svg()
}

fn asgc_plot(title: &'static str, case: &asgc::Case) -> String {
    let curves = case.curves().map(|(name, series)| Curve {
        name,
        values: means(series, case.signals.bins, 1, 1e6),
    });
    let minutes = case.signals.bins / 60;
    let ticks: Vec<(f64, String)> = (0..=minutes)
        .step_by(minutes.div_ceil(8).max(1))
        .map(|minute| (minute as f64 * 60.0, format!("{minute} min")))
        .collect();
    Lines {
        title,
        unit: "MB/s in each second",
        curves: curves.into(),
        marks: vec![Mark {
            from: case.mended_at as f64,
            to: case.signals.bins as f64,
            name: "mended".to_owned(),
        }],
        ticks,
    }
    .svg()
}
