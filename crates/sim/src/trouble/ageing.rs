//! Whether urgent files go first and the others do not starve: days in which a link has more to do than it can, for one
//! user, with all priorities, other priorities given meanwhile, and leaders that are lost.

use super::{scale, within};
use crate::plan::{Change, Event, Load, Malice, Network, Plan, Policy, Service, Storage};
use crate::random::Random;
use crate::world::{BrokenInvariant, in_order};

const DAY: f64 = 86_400.0;
/// For how long files come.
const COMES: f64 = 3.0 * DAY;

/// Nobody is passed by what came more than a day later.
pub(super) fn endure(seed: u64) -> Result<(), BrokenInvariant> {
    let plan = plan(seed);
    let report = in_order(&plan)?;
    match report.states.get("FINISHED") {
        Some(_) => Ok(()),
        None => Err(BrokenInvariant {
            second: report.seconds,
            what: "nothing arrived".to_owned(),
            before: Vec::new(),
        }),
    }
}

fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed.wrapping_mul(0xe703_7ed1_a0b4_28db));
    let random = &mut random;
    let link_max = 1 + random.below(3) as u32;
    let seconds = scale(random, 200.0, 2_000.0);
    let storages = (0..2).map(|number| Storage {
        name: format!("s{number}"),
        pools: 1,
        read: 1e10,
        write: 1e10,
        halved_at: None,
        uplink: None,
        latency: 0.1,
        failures: 0.0,
    });
    let network = Network {
        from: 0,
        to: 1,
        bandwidth: 1e10,
        per_transfer: 1e8,
        rtt: 0.01,
        opening: None,
        others: 0.0,
        others_swing: 0.0,
    };
    // Most is urgent, and alone more than the link can do.
    let capacity = f64::from(link_max) * COMES / seconds;
    let mut loads = vec![load(capacity * within(random, 1.1, 1.6), seconds, 5)];
    for _ in 0..1 + random.below(4) {
        let part = within(random, 0.02, 0.2);
        let priority = 1 + random.below(5) as i64;
        loads.push(load(capacity * part, seconds, priority));
    }
    let events = (0..random.below(6)).map(|_| event(random));
    Plan {
        name: format!("ageing {seed}"),
        seconds: 1.5 * COMES,
        seed,
        service: Service {
            policy: Policy::Limits,
            link_max,
            ..Service::default()
        },
        storages: storages.collect(),
        networks: vec![network],
        vos: Vec::new(),
        loads,
        events: events.collect(),
        malice: Malice::default(),
    }
}

fn load(files: f64, seconds: f64, priority: i64) -> Load {
    Load {
        pairs: vec![(0, 1)],
        vo: "vo".to_owned(),
        users: 1,
        activity: "default".to_owned(),
        files: files as u64 + 1,
        size: 1e8 * seconds,
        spread: 0.3,
        job: 5,
        begin: 0.0,
        over: COMES,
        daily: 0.0,
        priority,
        hopeless: None,
    }
}

fn event(random: &mut Random) -> Event {
    let what = match random.below(3) {
        0 => Change::LeaderLost(within(random, 1.0, 60.0)),
        1 => Change::Clock(within(random, -7200.0, 7200.0)),
        _ => Change::Prioritise(0.2, 1 + random.below(5) as i64),
    };
    Event {
        at: within(random, 0.0, COMES),
        lasts: Some(3600.0),
        what,
    }
}
