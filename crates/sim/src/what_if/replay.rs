//! A window as a plan: each transfer comes when it came, with the size that it had, to a field as it was measured.

use super::measured::{MeasuredField, RATE_UNBOUNDED};
use crate::plan::{
    Change, Event, Load, Malice, Network, Plan, Policy, Service, Storage, Vo, limits,
};
use penstock_observe::recorded::{RecordedTransfer, RecordedWindow};
use std::collections::BTreeSet;

/// The second in which the window begins: limits are set before.
const BEGIN: f64 = 1.0;
/// A limit that is none.
const NO_LIMIT: u32 = 1_000_000;
/// A replay may take so many times as long as its window, and an hour: a slower one is cut off.
const LONGER_MAX: f64 = 10.0;
const HOUR: f64 = 3_600.0;
/// So many times a file is tried again: all files of a window arrived.
const RETRIES: u32 = 1_000;
const RETRY_DELAY: f64 = 5.0;
/// The VO of transfers whose VO is not told.
const VO_UNKNOWN: &str = "unknown";

/// The plan of a replay.
pub(super) fn plan_of(window: &RecordedWindow, field: &MeasuredField, seed: u64) -> Plan {
    let seconds = window.window.to.since(window.window.from).as_secs_f64();
    let of_links = field.links.iter().flat_map(|link| &link.limits);
    let link_max = of_links.map(|(_, limit)| *limit).max().unwrap_or(1);
    let of_storages = field.storages.iter();
    let storage_limits = of_storages.flat_map(|storage| [storage.outbound, storage.inbound]);
    let storage_max = storage_limits.map(|limit| limit.unwrap_or(NO_LIMIT)).max();
    let vos: BTreeSet<&str> = window.transfers.iter().map(vo_of).collect();
    Plan {
        name: "replay".to_owned(),
        seconds: (BEGIN + seconds * LONGER_MAX + HOUR).min(limits::SECONDS),
        seed,
        service: Service {
            policy: Policy::Limits,
            link_max,
            storage_max: storage_max.unwrap_or(NO_LIMIT),
            agents_max: field.agents.unwrap_or(NO_LIMIT),
            retries: RETRIES,
            retry_delay: RETRY_DELAY,
            ..Service::default()
        },
        storages: storages(field),
        networks: networks(field),
        vos: vos
            .into_iter()
            .map(|name| Vo {
                name: name.to_owned(),
                share: None,
                activities: Vec::new(),
            })
            .collect(),
        loads: loads(window, field),
        events: events(field),
        malice: Malice::default(),
    }
}

fn vo_of(transfer: &RecordedTransfer) -> &str {
    let name = transfer.vo.as_ref().map_or(VO_UNKNOWN, |vo| vo.as_str());
    if name.is_empty() { VO_UNKNOWN } else { name }
}

/// Their names stand for places: a recorded name may be no host.
fn storages(field: &MeasuredField) -> Vec<Storage> {
    let each = field.storages.iter().enumerate();
    each.map(|(number, storage)| Storage {
        name: format!("storage{number}"),
        pools: 1,
        read: storage.read.unwrap_or(RATE_UNBOUNDED),
        write: storage.write.unwrap_or(RATE_UNBOUNDED),
        halved_at: storage.halved_at,
        uplink: None,
        latency: 0.0,
        failures: storage.failures.min(0.99),
    })
    .collect()
}

fn networks(field: &MeasuredField) -> Vec<Network> {
    let each = field.links.iter().map(|link| Network {
        from: link.ends.0,
        to: link.ends.1,
        bandwidth: link.capacity.unwrap_or(RATE_UNBOUNDED),
        per_transfer: link.per_transfer,
        rtt: 0.0,
        opening: Some(link.opening),
        others: 0.0,
        others_swing: 0.0,
    });
    each.collect()
}

fn loads(window: &RecordedWindow, field: &MeasuredField) -> Vec<Load> {
    let from = window.window.from;
    let each = window.transfers.iter().map(|transfer| Load {
        pairs: vec![field.links[transfer.link].ends],
        vo: vo_of(transfer).to_owned(),
        users: 1,
        activity: "default".to_owned(),
        files: 1,
        size: transfer.bytes as f64,
        spread: 0.0,
        job: 1,
        begin: BEGIN + transfer.submitted.since(from).as_secs_f64(),
        over: 0.0,
        daily: 0.0,
        priority: 3,
        hopeless: None,
    });
    each.collect()
}

fn events(field: &MeasuredField) -> Vec<Event> {
    let of_links = field.links.iter().flat_map(|link| {
        link.limits.iter().map(|(second, limit)| {
            let (from, to) = link.ends;
            let at = if *second > 0.0 { BEGIN + second } else { 0.0 };
            (at, Change::LinkMax(from, to, *limit))
        })
    });
    let of_storages = field.storages.iter().enumerate().map(|(number, storage)| {
        let (outbound, inbound) = (storage.outbound, storage.inbound);
        let (outbound, inbound) = (outbound.unwrap_or(NO_LIMIT), inbound.unwrap_or(NO_LIMIT));
        (0.0, Change::StorageMax(number, outbound, inbound))
    });
    let all = of_storages.chain(of_links);
    all.map(|(at, what)| Event {
        at,
        lasts: None,
        what,
    })
    .collect()
}
