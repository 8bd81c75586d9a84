//! Faults beside something that could be taken for their cause.

use super::*;
use penstock_model::{Errno, PoolName, Side};
use signals::PoolSignals;

#[test]
fn a_narrow_site_whose_other_files_are_too_slow_to_lose_by_it() {
    let fault: Fault = |c, uplink| c.uplink = uplink;
    check_from(
        &Conditions::default(),
        Cause::SiteNetwork,
        [200e6, 100e6],
        fault,
        |signals| {
            let bins = signals.bins;
            let is_sibling = |id: &LinkId| id.source == watched().source && *id != watched();
            let links = signals.links.iter_mut();
            for (_, sibling) in links.filter(|(id, _)| is_sibling(id)) {
                sibling.active = Series::constant(10.0, bins);
                sibling.copied_bytes = Series::constant(10.0 * 60.0 * 1e6, bins);
                let loss = |bin: usize| if FAULT.contains(&bin) { 1e-3 } else { 1e-7 };
                sibling.tcp.retransmitted = Series::known((0..bins).map(loss));
            }
        },
    );
}

#[test]
fn a_few_files_of_which_one_failed_are_too_few_files() {
    let fault: Fault = |c, submits| c.submit_max = submits;
    check_from(
        &Conditions::default(),
        Cause::FewerSubmissions,
        [0.1, 0.03],
        fault,
        |signals| {
            let link = signals.links.get_mut(&watched()).expect("watched");
            for bin in FAULT {
                link.finished_files.0[bin] = Some(0.2);
            }
            let kinds = link.failures.iter_mut();
            for (_, attempts) in kinds.filter(|(group, _)| group.side == Side::Source) {
                attempts.0.fill(Some(0.0));
                attempts.0[FAULT.start + 10] = Some(1.0);
            }
        },
    );
}

const LOSSES: [f64; 2] = [1.5e-4, 2e-3];

#[test]
fn one_file_of_thirty_that_found_no_space_is_no_cause_of_a_lossy_path() {
    let base = Conditions::default();
    let fault: Fault = |c, loss| c.loss = loss;
    check_from(&base, Cause::NetworkPath, LOSSES, fault, |signals| {
        let link = signals.links.get_mut(&watched()).expect("watched");
        for bin in FAULT {
            link.finished_files.0[bin] = Some(29.0 / FAULT.len() as f64);
        }
        for (group, attempts) in &mut link.failures {
            attempts.0.fill(Some(0.0));
            if group.errno == Errno::ENOSPC {
                attempts.0[FAULT.start + 10] = Some(1.0);
            }
        }
    });
}

/// Drains a place some minutes before the rate falls.
fn drain_before(signals: &mut Signals, place: &str) {
    signals.changes.push(Change {
        at: signals.begin_of(FAULT.start - 3),
        who: "operator".into(),
        place: place.into(),
        setting: Setting::Drain,
        old: None,
        new: Some("drained".into()),
    });
}

fn add_pool(signals: &mut Signals, name: &str, storage: &StorageId, bytes_in: f64) {
    let pool = PoolSignals {
        storage: Some(storage.clone()),
        bytes_in: Series::constant(bytes_in, signals.bins),
        bytes_out: Series::constant(1e9, signals.bins),
        ..PoolSignals::default()
    };
    signals.pools.insert(PoolName::new(name), pool);
}

#[test]
fn a_drain_without_an_effect_is_no_cause_of_a_lossy_path() {
    let base = Conditions::default();
    let fault: Fault = |c, loss| c.loss = loss;
    check_from(&base, Cause::NetworkPath, LOSSES, fault, |signals| {
        add_pool(signals, "empty", &watched().destination, 0.0);
        drain_before(signals, "empty");
    });
    // What a drained pool of the source holds is still read.
    check_from(&base, Cause::NetworkPath, LOSSES, fault, |signals| {
        add_pool(signals, "theirs", &watched().source, 1e6);
        drain_before(signals, "theirs");
    });
    // As many transfers run as before.
    check_from(&base, Cause::NetworkPath, LOSSES, fault, |signals| {
        drain_before(signals, watched().destination.as_str());
    });
}
