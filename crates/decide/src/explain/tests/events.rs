//! What sites saw in 2006 and 2013, as the small grid makes it, and what they are told now: `events.txt`.

use super::plant::{Conditions, run, watched};
use super::*;
use crate::wording::explanation;
use signals::{Change, Maintenance, Setting};

/// Without noise, so that only what matters is in the text.
fn story(change: impl Fn(usize, &mut Conditions)) -> Signals {
    let base = Conditions::default();
    run(BINS, 1, 0.0, |bin| {
        let mut conditions = base.clone();
        change(bin, &mut conditions);
        conditions
    })
}

fn in_fault(fault: impl Fn(&mut Conditions)) -> Signals {
    story(|bin, conditions| {
        if FAULT.contains(&bin) {
            fault(conditions)
        }
    })
}

fn told(signals: &Signals) -> String {
    explain(signals, &[watched()])
        .iter()
        .map(explanation)
        .collect()
}

fn rise(signals: &Signals) -> String {
    let told = explain_change(signals, &[watched()], 100..230, 260..320);
    told.as_ref().map(explanation).unwrap_or_default()
}

fn changed(signals: &mut Signals, setting: Setting, place: &str, values: [&str; 2]) {
    signals.changes.push(Change {
        at: signals.begin_of(FAULT.start),
        who: "operator".to_owned(),
        place: place.to_owned(),
        setting,
        old: Some(values[0].to_owned()),
        new: Some(values[1].to_owned()),
    });
}

fn nightly() -> Signals {
    // Minute 1420 of each day is 23:40.
    let mut signals = run(4 * 1440, 1, 0.0, |bin| {
        match (1420..1440).contains(&(bin % 1440)) {
            true => Conditions {
                namespace_operation: 15.0,
                namespace_io: 0.7,
                ..Conditions::default()
            },
            false => Conditions::default(),
        }
    });
    for day in 0..4 {
        let at = |bin: usize| signals.begin_of(day * 1440 + bin);
        let (from, to) = (at(1420), at(1440));
        let (place, what) = ("ccsrm".to_owned(), "database dump and backup".to_owned());
        signals.maintenance.push(Maintenance {
            from,
            to,
            place,
            what,
        });
    }
    signals
}

#[test]
fn what_sites_saw_is_told() {
    let mut raised = in_fault(|c| c.limit = 15.0);
    changed(&mut raised, Setting::Limit, "cern → in2p3", ["10", "15"]);
    let mut drained = in_fault(|c| c.servers_drained = 2);
    changed(
        &mut drained,
        Setting::Drain,
        "ccxfer10",
        ["in use", "drained"],
    );
    let mut windows = in_fault(|c| c.window = 87e3);
    changed(
        &mut windows,
        Setting::Fact,
        "bnl tcp_rmem",
        ["1048576", "87380"],
    );
    let mut fixed = story(|bin, c| {
        if !FAULT.contains(&bin) {
            c.window = 87e3
        }
    });
    changed(
        &mut fixed,
        Setting::Fact,
        "bnl tcp_rmem",
        ["87380", "1048576"],
    );
    let night = nightly();
    let nights = explain(&night, &[watched()]);
    let irregular = story(|bin, c| {
        if FAULT.contains(&bin) {
            c.pace = [0.2, 0.5, 0.8][bin % 3]
        }
    });
    let sliding = story(|bin, c| {
        if FAULT.contains(&bin) {
            c.others_want = 200.0 + (bin - FAULT.start) as f64 * 3.0;
        }
    });
    let events = [
        (
            "3, generator: 5 April 2006",
            told(&in_fault(|c| c.submit_max = 0.05)),
        ),
        (
            "3, source: 5 April 2006",
            told(&in_fault(|c| c.fails_source = 0.7)),
        ),
        ("4: 7 April 2006, the limit is raised", rise(&raised)),
        ("5: 8 April 2006, irregular feeding", told(&irregular)),
        (
            "6: 10 April 2006, half of the rate",
            told(&in_fault(|c| c.pace = 0.5)),
        ),
        ("7: 11 April 2006, other sites", told(&sliding)),
        (
            "9: each night at 23:40",
            nights.first().map(explanation).unwrap_or_default(),
        ),
        (
            "14: 19 April 2006, the tape system's disk is full",
            told(&in_fault(|c| c.tape_buffer = 1.0)),
        ),
        (
            "15 and 16: 20 April 2006, a mover hangs",
            told(&in_fault(|c| {
                c.stalled = 1.0;
                c.fills = 2
            })),
        ),
        (
            "17: 20 April 2006, all channels",
            told(&in_fault(|c| c.pace_all = 0.1)),
        ),
        (
            "18: 21 April 2006, a file system of the source",
            told(&in_fault(|c| c.fails_source = 0.8)),
        ),
        (
            "20: 22 April 2006, writing to tape stops",
            told(&in_fault(|c| c.tape_writes = false)),
        ),
        (
            "20: 22 April 2006, the operator takes the server out",
            told(&drained),
        ),
        (
            "21: files of 700 MB and less",
            told(&in_fault(|c| c.file = 60e6)),
        ),
        (
            "28 and 29: ten and more connections per file",
            told(&in_fault(|c| c.streams = 20.0)),
        ),
        (
            "32: one site is slow to all",
            told(&in_fault(|c| c.uplink = 150e6)),
        ),
        (
            "39: 350 clients of a name server",
            told(&in_fault(|c| c.namespace_clients = 4000.0)),
        ),
        ("42: windows of 87 kB", told(&windows)),
        ("43: windows of 1 MB", rise(&fixed)),
        (
            "44: analysis jobs begin together",
            told(&in_fault(|c| c.jobs = 120.0)),
        ),
    ];
    let text: String = events
        .iter()
        .map(|(title, told)| format!("== {title}\n{told}\n"))
        .collect();
    assert!(
        nights[0].period_seconds == Some(86_400),
        "{:?}",
        nights[0].period_seconds
    );
    assert!(
        text == include_str!("events.txt"),
        "events.txt should be:\n{text}"
    );
}
