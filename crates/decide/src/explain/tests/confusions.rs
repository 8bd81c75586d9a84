//! Faults beside something that could be taken for their cause.

use super::*;
use signals::FailureSide;

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
            for (_, attempts) in kinds.filter(|(group, _)| group.side == FailureSide::Source) {
                attempts.0.fill(Some(0.0));
                attempts.0[FAULT.start + 10] = Some(1.0);
            }
        },
    );
}
