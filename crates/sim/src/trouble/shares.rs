//! Whether VOs get what their shares say, and nobody starves: a field in which all of them want more than there is, all
//! the time, with files of other sizes, over other ways and from other times on; and one that comes late, with little.

use super::{scale, some, within};
use crate::plan::{Load, Malice, Network, Plan, Policy, Service, Storage, Vo};
use crate::random::Random;
use crate::report::Report;
use crate::world::{BrokenInvariant, simulate};

/// Seconds within which they come.
const COMES: f64 = 30.0;
/// Seconds after which it is watched: what some held alone before others came is made up for, and durations are known.
const BEGINS: f64 = 160.0;
/// Seconds that there are.
const ENDS: f64 = 470.0;
/// By how much of its part of all slot time a VO may miss it.
const OFF_MAX: f64 = 0.05;
/// The one that comes when all slots are taken, with a few files over a way of its own, and when it does.
const LATE: &str = "late";
const LATE_COMES: f64 = 200.0;
const LATE_FILES: u64 = 8;
/// So many times the time in which its part of the slots does its files is what they wait at most.
const LATE_WAITS: f64 = 1.0;
/// Bytes per second of each storage.
const RATE: f64 = 1e10;

/// What is too small for all.
struct Field {
    /// Slots of the destination, and of each link.
    slots: u32,
    link_max: u32,
    sources: usize,
    /// Bytes of a usual file.
    size: f64,
}

/// Nobody starves, and all have their parts.
pub(super) fn endure(seed: u64) -> Result<(), BrokenInvariant> {
    let plan = plan(seed);
    check(&plan, &simulate(&plan, &mut |_| {})?)
}

/// Some links into one storage, on which all VOs have more files than can move.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed.wrapping_mul(0xa076_1d64_78bd_642f));
    let random = &mut random;
    let slots = 20 + random.below(20) as u32;
    let field = Field {
        slots,
        link_max: scale(random, 10.0, 80.0) as u32,
        sources: 1 + random.below(4),
        size: RATE / f64::from(slots) * within(random, 2.0, 4.0),
    };
    // The last one is the way of the late one.
    let storages = (0..=field.sources + 1).map(|number| Storage {
        name: format!("s{number}"),
        pools: 1,
        read: RATE,
        write: RATE,
        halved_at: None,
        uplink: None,
        latency: 0.05,
        failures: 0.0,
    });
    // Some ways carry less than one transfer's part of the destination.
    let networks = (1..=field.sources).map(|from| Network {
        from,
        to: 0,
        bandwidth: RATE,
        per_transfer: RATE / f64::from(slots) * within(random, 0.3, 2.0),
        rtt: scale(random, 1e-3, 0.1),
        opening: None,
        others: 0.0,
        others_swing: 0.0,
    });
    let networks: Vec<Network> = networks.collect();
    let vos = (0..2 + random.below(3)).map(|number| Vo {
        name: format!("vo{number}"),
        share: Some(1.0 + random.below(9) as f64),
        activities: Vec::new(),
    });
    let mut vos: Vec<Vo> = vos.collect();
    let loads = vos.iter().map(|vo| load(random, &field, vo, &vos));
    let mut loads: Vec<Load> = loads.collect();
    vos.push(Vo {
        name: LATE.to_owned(),
        share: Some(1.0),
        activities: Vec::new(),
    });
    loads.push(late(random, &field));
    Plan {
        name: format!("shares {seed}"),
        seconds: ENDS,
        seed,
        service: Service {
            policy: Policy::Limits,
            link_max: field.link_max,
            storage_max: field.slots,
            ..Service::default()
        },
        storages: storages.collect(),
        networks,
        vos,
        loads,
        events: Vec::new(),
        malice: Malice::default(),
    }
}

fn load(random: &mut Random, field: &Field, vo: &Vo, vos: &[Vo]) -> Load {
    let all: f64 = vos.iter().filter_map(|vo| vo.share).sum();
    let part = vo.share.unwrap_or(0.0) / all;
    let size = field.size * scale(random, 0.4, 2.5);
    // Where links are too small, a VO has its part only when it is on all of them.
    let is_everywhere = field.link_max < field.slots || random.happens(0.5);
    let first = 1 + random.below(field.sources);
    let pairs = (1..=field.sources).filter(|from| is_everywhere || *from >= first);
    // More than its part and what it moves alone until the others come: on the fastest way a slot carries twice as much.
    let enough = 3.0 * (part * ENDS + COMES) * RATE / size;
    Load {
        pairs: pairs.map(|from| (from, 0)).collect(),
        vo: vo.name.clone(),
        users: 1,
        activity: "default".to_owned(),
        files: enough as u64 + 50,
        size,
        spread: some(random, 0.7, 0.8),
        job: 20,
        begin: some(random, 0.7, COMES),
        over: 0.0,
        daily: 0.0,
        priority: 3,
        hopeless: None,
    }
}

fn late(random: &mut Random, field: &Field) -> Load {
    Load {
        pairs: vec![(field.sources + 1, 0)],
        vo: LATE.to_owned(),
        users: 1,
        activity: "default".to_owned(),
        files: LATE_FILES,
        size: field.size * scale(random, 0.1, 1.0),
        spread: 0.0,
        job: LATE_FILES,
        begin: LATE_COMES,
        over: 0.0,
        daily: 0.0,
        priority: 1,
        hopeless: None,
    }
}

/// Every VO had its part of the slots' time, and the late one did not wait for longer than for its own part.
pub(super) fn check(plan: &Plan, report: &Report) -> Result<(), BrokenInvariant> {
    let broken = |what: String| BrokenInvariant {
        second: report.seconds,
        what,
        before: Vec::new(),
    };
    let points = report.series.points.iter().enumerate();
    let watched = points.filter(|(at, _)| *at as f64 >= BEGINS).map(|it| it.1);
    let mut held = vec![0.0; report.vos.len()];
    for point in watched {
        for ((held, (active, open)), vo) in held.iter_mut().zip(&point.vos).zip(&report.vos) {
            if open <= active && vo.name != LATE {
                return Err(broken(format!("{} has nothing that waits", vo.name)));
            }
            *held += f64::from(*active) * report.series.step;
        }
    }
    let of_vos = || {
        let vos = report.vos.iter().zip(&held).zip(&plan.vos);
        let vos = vos.map(|((vo, held), planned)| (vo, *held, planned.share.unwrap_or(0.0)));
        vos.filter(|(vo, ..)| vo.name != LATE)
    };
    let all: f64 = of_vos().map(|(_, held, _)| held).sum();
    let shares: f64 = of_vos().map(|(.., share)| share).sum();
    for (vo, held, share) in of_vos() {
        let due = share / shares * all;
        // Files are not cut at the ends of the window.
        let files = 2.0 * vo.slot_seconds / (vo.files as f64).max(1.0);
        if (held - due).abs() > OFF_MAX * due + files {
            return Err(broken(format!(
                "{} had {held:.0} of {all:.0} seconds of slots, and {due:.0} are its share",
                vo.name
            )));
        }
    }
    let Some(late) = report.vos.iter().find(|vo| vo.name == LATE) else {
        return Ok(());
    };
    // Its part of all, and the time until the longest that ran when it came have given their slots back.
    let part = 1.0 / (shares + 1.0) * all / (ENDS - BEGINS);
    let sizes = plan.loads.iter().map(|load| load.size);
    let rates = plan.networks.iter().map(|network| network.per_transfer);
    let slowest = rates.fold(RATE / f64::from(plan.service.storage_max), f64::min);
    let longest = sizes.fold(0.0, f64::max) / slowest;
    let bound = LATE_WAITS * late.slot_seconds / part + longest;
    match late.files == LATE_FILES && late.wait_longest <= bound {
        true => Ok(()),
        false => Err(broken(format!(
            "{} of {LATE_FILES} files of the late one arrived; they waited for {:.1} s, and {bound:.1} s are enough",
            late.files, late.wait_longest
        ))),
    }
}
