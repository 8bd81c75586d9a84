//! Ways that are longer, lossy or full, as those see them who receive, and as those who share them do.

use super::*;

fn in_fault(usual: f64, faulty: f64) -> Series {
    Series::known((0..BINS).map(|bin| match FAULT.contains(&bin) {
        true => faulty,
        false => usual,
    }))
}

fn watched_link(signals: &mut Signals) -> &mut signals::LinkSignals {
    signals.links.get_mut(&watched()).expect("watched")
}

/// The sockets as a receiver tells of them, with nothing that is only known where bytes are sent.
fn received(signals: &mut Signals, rtt: Series, rtt_min: Series, out_of_order: Series) {
    watched_link(signals).tcp = signals::TcpSignals {
        rtt_seconds: rtt,
        rtt_min_seconds: rtt_min,
        out_of_order,
        ..signals::TcpSignals::default()
    };
}

const NARROW: Fault = |c, path| c.path = path;

#[test]
fn a_way_that_became_longer() {
    let usual = Conditions::default();
    check_from(&usual, Cause::NetworkPath, [120e6, 60e6], NARROW, |told| {
        // Of new connections also the shortest round trip is long.
        let rtt = || in_fault(0.05, 0.15);
        received(told, rtt(), rtt(), Series::constant(0.0, BINS));
    });
}

#[test]
fn a_way_that_loses_what_only_its_receiver_sees() {
    let usual = Conditions::default();
    check_from(&usual, Cause::NetworkPath, [120e6, 60e6], NARROW, |told| {
        let rtt = || Series::constant(0.05, BINS);
        received(told, rtt(), rtt(), in_fault(0.0, 0.02));
    });
}

#[test]
fn few_segments_out_of_order_and_a_round_trip_as_before_are_no_lossy_way() {
    let mut signals = faulty(NARROW, 60e6, 0, &Conditions::default());
    let rtt = || Series::constant(0.05, BINS);
    received(&mut signals, rtt(), rtt(), in_fault(1e-5, 5e-4));
    let told = explain(&signals, &[watched()]);
    assert!(!told.is_empty());
    let mut causes = told.iter().flat_map(|told| &told.causes);
    assert!(causes.all(|named| named.cause != Cause::NetworkPath));
}

#[test]
fn a_way_that_other_links_fill_is_loaded_and_not_faulty() {
    let usual = Conditions::default();
    let load: Fault = |c, files| c.rival_want = files;
    check_from(&usual, Cause::CompetingLoad, [25.0, 60.0], load, |told| {
        let link = watched_link(told);
        link.tcp.rtt_seconds = in_fault(0.05, 0.15);
        link.tcp.retransmitted = in_fault(1e-7, 1e-3);
    });
}

#[test]
fn a_link_that_gets_what_a_lossy_one_leaves_is_no_load() {
    let usual = Conditions::default();
    let loss: Fault = |c, loss| c.loss = loss;
    check_from(&usual, Cause::NetworkPath, [1.5e-4, 2e-3], loss, |told| {
        let own = watched_link(told).copied_bytes.clone();
        let most = own
            .0
            .iter()
            .flatten()
            .fold(0.0, |most: f64, one| most.max(*one));
        let of_end = |id: &LinkId| id.destination == watched().destination && *id != watched();
        let others = told.links.iter_mut().filter(|(id, _)| of_end(id));
        for (_, other) in others {
            other.active = Series::constant(4.0, BINS);
            let more = own.0.iter().map(|own| own.map(|own| 2.0 * most - own));
            other.copied_bytes = Series(more.collect());
        }
    });
}

#[test]
fn clients_that_write_to_the_pools_are_a_load() {
    let usual = Conditions::default();
    check_from(
        &usual,
        Cause::CompetingLoad,
        [120e6, 60e6],
        NARROW,
        |told| {
            let rtt = || in_fault(0.05, 0.15);
            received(told, rtt(), rtt(), in_fault(0.0, 0.02));
            let into = told
                .links
                .iter()
                .filter(|(id, _)| id.destination == watched().destination);
            let copied = into
                .map(|(_, link)| link.moved_bytes())
                .reduce(|sum, one| sum.plus(&one));
            let clients = in_fault(1e9, 9e9).plus(&copied.expect("links"));
            let mut pools = told.pools.values_mut();
            let first = pools.next().expect("a pool");
            first.bytes_in = clients;
            pools.for_each(|pool| pool.bytes_in = Series::constant(0.0, BINS));
        },
    );
}
