//! What monitors are told of the tape system. Labels are kinds, states and codes.

use super::Storage;
use crate::nearline::{DriveActivity, TapeFigures};
use crate::tape_counts::WorkCounts;
use penstock_model::Timestamp;
use penstock_protocol::exposition::Page;
use penstock_tape::amount::TapeAmount;

impl Storage {
    /// Nothing where no files go to tape.
    pub(super) fn write_tape(&self, page: &mut Page) {
        if let Some(nearline) = self.nearline() {
            write_figures(page, &nearline.figures(), self.clock.recorded());
        }
    }
}

fn write_figures(page: &mut Page, figures: &TapeFigures, now: Timestamp) {
    let counts = &figures.counts;
    let works = [
        ("archive", Some(&counts.archives)),
        ("recall", Some(&counts.recalls)),
        ("removal", counts.removals.as_ref()),
    ];
    let works = works.into_iter();
    let works: Vec<(&str, &WorkCounts)> = works
        .filter_map(|(kind, work)| Some((kind, work?)))
        .collect();
    let mut each_state = |name, help: &str, value: fn(&TapeAmount) -> u64| {
        let mut family = page.gauge(name, help);
        for (kind, work) in &works {
            let states = [
                ("collecting", work.collecting.as_ref()),
                ("queued", Some(&work.queued)),
                ("running", Some(&work.running)),
                ("delayed", Some(&work.delayed)),
            ];
            for (state, amount) in states {
                if let Some(amount) = amount {
                    family.sample(&[("kind", *kind), ("state", state)], value(amount));
                }
            }
        }
    };
    each_state(
        "penstock_tape_requests",
        "Files that are to be put on tape, brought from there or removed there: they wait for others, for a drive or command, are worked \
         on, or wait for their next try.",
        |amount| amount.files,
    );
    each_state("penstock_tape_request_bytes", "Their bytes.", |amount| {
        amount.bytes
    });
    let mut family = page.gauge(
        "penstock_tape_oldest_waiting_seconds",
        "For how long the oldest file has waited that is not worked on; 0 when none waits.",
    );
    for (kind, work) in &works {
        let waits = work.oldest_waiting.map(|since| now.since(since).as_secs());
        family.sample(&[("kind", *kind)], waits.unwrap_or(0));
    }
    let mut family = page.gauge(
        "penstock_tape_incidents",
        "Open incidents of the tape system, by their codes; absent when there is none.",
    );
    for (code, count) in &figures.incidents {
        family.sample(&[("code", *code)], *count);
    }
    write_moved(page, figures);
    write_drives(page, figures);
    let mut family = page.gauge(
        "penstock_tape_disk_bytes",
        "What files that are on tape, or are to be put there, take in the pools; counted every five minutes.",
    );
    family.sample(&[], figures.disk_bytes);
    let mut family = page.gauge(
        "penstock_tape_buffer_used_ratio",
        "Part of the HSM's disk buffer that is in use; absent where storage.tape.buffer is not set, or the buffer does not answer.",
    );
    if let Some(permille) = figures.meter.buffer_used_permille {
        family.sample(&[], permille as f64 / 1_000.0);
    }
}

fn write_moved(page: &mut Page, figures: &TapeFigures) {
    let moved = &figures.meter.moved;
    let directions = [("to_tape", moved.written), ("from_tape", moved.recalled)];
    let mut family = page.counter(
        "penstock_tape_files_total",
        "Files that came to be on tape, or back on disk.",
    );
    for (direction, amount) in &directions {
        family.sample(&[("direction", *direction)], amount.files);
    }
    let mut family = page.counter(
        "penstock_tape_moved_bytes_total",
        "Their bytes; further copies of a file are not counted.",
    );
    for (direction, amount) in &directions {
        family.sample(&[("direction", *direction)], amount.bytes);
    }
}

fn write_drives(page: &mut Page, figures: &TapeFigures) {
    let mut family = page.gauge(
        "penstock_tape_drives",
        "Drives of tape libraries by what they do; absent with an HSM, whose drives are not seen.",
    );
    if let Some(drives) = &figures.drives {
        for state in DriveActivity::ALL {
            let count = drives.get(&state).copied().unwrap_or(0);
            family.sample(&[("state", state.name())], count);
        }
    }
    let mut family = page.counter(
        "penstock_tape_mounts_total",
        "Tapes that were put into drives, to be read or written; absent with an HSM.",
    );
    let mounts = [
        ("read", figures.meter.read_mounts),
        ("write", figures.meter.write_mounts),
    ];
    for (purpose, count) in mounts {
        if let Some(count) = count {
            family.sample(&[("purpose", purpose)], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tape_meter::MeterReading;
    use std::collections::BTreeMap;

    fn page_of(figures: &TapeFigures) -> String {
        let mut page = Page::default();
        write_figures(&mut page, figures, Timestamp(90_000));
        page.into_text()
    }

    #[test]
    fn a_page_has_each_state_and_no_more_lines_when_more_waits() {
        let mut figures = TapeFigures {
            drives: Some(BTreeMap::from([(DriveActivity::Down, 2)])),
            meter: MeterReading {
                read_mounts: Some(3),
                write_mounts: Some(4),
                ..MeterReading::default()
            },
            ..TapeFigures::default()
        };
        let before = page_of(&figures);
        let recalls = &mut figures.counts.recalls;
        (0..1_000).for_each(|_| recalls.queued.add(7));
        recalls.oldest_waiting = Some(Timestamp(30_000));
        let page = page_of(&figures);
        for line in [
            "penstock_tape_requests{kind=\"recall\",state=\"queued\"} 1000",
            "penstock_tape_request_bytes{kind=\"recall\",state=\"queued\"} 7000",
            "penstock_tape_oldest_waiting_seconds{kind=\"recall\"} 60",
            "penstock_tape_oldest_waiting_seconds{kind=\"archive\"} 0",
            "penstock_tape_drives{state=\"down\"} 2",
            "penstock_tape_drives{state=\"free\"} 0",
            "penstock_tape_mounts_total{purpose=\"write\"} 4",
        ] {
            assert!(page.lines().any(|one| one == line), "{line}: {page}");
        }
        assert_eq!(page.lines().count(), before.lines().count());
        let samples = |page: &str, name: &str| {
            let is_sample = |line: &&str| line.starts_with(name);
            page.lines().filter(is_sample).count()
        };
        let hsm = page_of(&TapeFigures::default());
        assert_eq!(samples(&hsm, "penstock_tape_drives"), 0);
        assert_eq!(samples(&hsm, "penstock_tape_mounts"), 0);
    }
}
