//! Files that have to come from tape before they can be queued: they are work, and the tape system may be why they do not move.

use super::*;
use penstock_model::Timestamp;
use signals::{LinkSignals, StorageSignals, TapeSignals};

const MINUTES: usize = 120;
const LOW: Range<usize> = 60..90;

fn link() -> LinkId {
    LinkId {
        source: StorageId::new("https://tape.org"),
        destination: StorageId::new("https://far.org"),
    }
}

fn steps(usual: f64, low: f64) -> Series {
    Series::known((0..MINUTES).map(|bin| if LOW.contains(&bin) { low } else { usual }))
}

/// A link of which half of the slots move what a tape system brings; in the stretch a tenth of it. No file is ever queued for a
/// slot.
fn fed_from_tape(moves: f64, submitted: f64, recalls: f64) -> Signals {
    let mut signals = Signals::unknown(Timestamp(0), 60, MINUTES);
    let of_link = LinkSignals {
        copied_bytes: steps(3e9, 3e9 * moves),
        active: steps(10.0, 10.0 * moves),
        limit: Series::constant(20.0, MINUTES),
        queued: Series::constant(0.0, MINUTES),
        unfed: Series::constant(0.0, MINUTES),
        finished_files: steps(30.0, 30.0 * moves),
        ..LinkSignals::default()
    };
    signals.links.insert(link(), of_link);
    let submissions = steps(30.0, submitted);
    signals.service.submissions.insert(link(), submissions);
    let tape = TapeSignals {
        drives_busy: steps(2.0, 4.0),
        drives_cap: Series::constant(4.0, MINUTES),
        recalled_files: Series::constant(30.0, MINUTES),
        recalled_bytes: Series::constant(3e9, MINUTES),
        recalls_queued: steps(0.0, recalls),
        ..TapeSignals::default()
    };
    let of_source = StorageSignals {
        tape,
        ..StorageSignals::default()
    };
    signals.storages.insert(link().source, of_source);
    signals
}

fn told(signals: &Signals) -> Vec<(RateChangeKind, Option<Cause>)> {
    let told = explain(signals, &[link()]).into_iter();
    told.map(|told| (told.kind, told.causes.first().map(|first| first.cause)))
        .collect()
}

#[test]
fn files_that_wait_for_tapes_are_work_and_drives_that_others_took_make_a_drop() {
    for moves in [0.1, 0.0] {
        let signals = fed_from_tape(moves, 30.0, 500.0);
        let drop = (RateChangeKind::Drop, Some(Cause::TapeDrives));
        assert_eq!(told(&signals), [drop]);
    }
}

#[test]
fn a_link_for_which_nothing_was_submitted_has_no_work_whatever_others_wait_for() {
    let told = told(&fed_from_tape(0.0, 0.0, 500.0));
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].0, RateChangeKind::Lull);
}

#[test]
fn without_a_queue_of_the_tape_system_fewer_files_are_a_lull() {
    let told = told(&fed_from_tape(0.1, 3.0, 0.0));
    assert_eq!(
        told,
        [(RateChangeKind::Lull, Some(Cause::FewerSubmissions))]
    );
}
