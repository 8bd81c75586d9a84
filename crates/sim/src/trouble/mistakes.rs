//! Whether mistakes of some hold others up: a few good files of one VO on a link on which another VO has a thousand that
//! cannot arrive.

use super::{scale, within};
use crate::plan::{Hopeless, Load, Malice, Network, Plan, Policy, Service, Storage};
use crate::random::Random;
use crate::report::Report;
use crate::world::{BrokenInvariant, simulate};

/// Who has good files, and who has not.
const GOOD: &str = "good";
const OTHER: &str = "hopeless";
const GOOD_FILES: u64 = 40;
const HOPELESS_FILES: u64 = 1_000;
/// When the good ones come.
const COMES: f64 = 20.0;
/// So many times what they take alone is what they may take at most beside mistakes, which cost no slot-time.
const RATIO_MAX: f64 = 1.3;
/// The same beside failures of a storage element. Those may be tried, so the two VOs have half of the slots each.
const FAIR_RATIO_MAX: f64 = 2.0;
/// Seconds that there are, enough for all retries of the hopeless ones.
const ENDS: f64 = 1_500.0;

/// Nobody is held up.
pub(super) fn endure(seed: u64) -> Result<(), BrokenInvariant> {
    let plan = plan(seed);
    let alone = simulate(&alone(&plan), &mut |_| {})?;
    check(&plan, &alone, &simulate(&plan, &mut |_| {})?)
}

/// One link, with both loads on it. Every other seed has a storage element that answers one VO with errors of its own.
pub(super) fn plan(seed: u64) -> Plan {
    let mut random = Random::new(seed.wrapping_mul(0xe703_7ed1_a0b4_28db));
    let random = &mut random;
    let storages = ["from", "to"].map(|name| Storage {
        name: name.to_owned(),
        pools: 1,
        read: 1e9,
        write: 1e9,
        halved_at: None,
        uplink: None,
        latency: 0.002,
        failures: 0.0,
    });
    let network = Network {
        from: 0,
        to: 1,
        bandwidth: 1e9,
        per_transfer: 1e5,
        rtt: 0.001,
        opening: None,
        others: 0.0,
        others_swing: 0.0,
    };
    let kind = match seed.is_multiple_of(2) {
        true => Hopeless::Request,
        false => Hopeless::Storage,
    };
    let hopeless = Load {
        pairs: vec![(0, 1)],
        vo: OTHER.to_owned(),
        users: 1 + random.below(3) as u32,
        activity: "default".to_owned(),
        files: HOPELESS_FILES,
        size: 6e5,
        spread: 0.0,
        job: scale(random, 10.0, 1_000.0) as u64,
        begin: 0.0,
        over: within(random, 0.0, 2.0 * COMES),
        daily: 0.0,
        priority: 5,
        hopeless: Some(kind),
    };
    let good = Load {
        vo: GOOD.to_owned(),
        users: 1,
        files: GOOD_FILES,
        job: GOOD_FILES,
        begin: COMES,
        over: 0.0,
        priority: 3,
        hopeless: None,
        ..hopeless.clone()
    };
    Plan {
        name: format!("mistakes {seed}"),
        seconds: ENDS,
        seed,
        service: Service {
            policy: Policy::Limits,
            link_max: 8 + random.below(20) as u32,
            retries: random.below(4) as u32,
            retry_delay: scale(random, 5.0, 60.0),
            ..Service::default()
        },
        storages: storages.to_vec(),
        networks: vec![network],
        vos: Vec::new(),
        loads: vec![hopeless, good],
        events: Vec::new(),
        malice: Malice::default(),
    }
}

/// The same without the hopeless ones.
pub(super) fn alone(plan: &Plan) -> Plan {
    let mut alone = plan.clone();
    alone.loads.retain(|load| load.hopeless.is_none());
    alone
}

/// The good ones arrive in time, and those for which there is no hope run out.
pub(super) fn check(plan: &Plan, alone: &Report, beside: &Report) -> Result<(), BrokenInvariant> {
    let broken = |what: String| BrokenInvariant {
        second: beside.seconds,
        what,
        before: Vec::new(),
    };
    let (alone_took, took) = (seconds_of_good(alone), seconds_of_good(beside));
    // Points tell a time to a step, at both ends.
    let is_mistake = plan.loads[0].hopeless == Some(Hopeless::Request);
    let ratio_max = if is_mistake {
        RATIO_MAX
    } else {
        FAIR_RATIO_MAX
    };
    let bound = ratio_max * alone_took + 2.0 * beside.series.step;
    if took > bound {
        return Err(broken(format!(
            "{GOOD_FILES} good files took {took:.0} s beside hopeless ones, and {alone_took:.0} s alone"
        )));
    }
    let arrived = beside.in_state("FINISHED");
    if arrived != GOOD_FILES {
        return Err(broken(format!(
            "{arrived} of {GOOD_FILES} good files arrived"
        )));
    }
    let failed = beside.in_state("FAILED");
    match is_mistake && failed != HOPELESS_FILES {
        true => Err(broken(format!(
            "{failed} of {HOPELESS_FILES} hopeless files have run out of retries"
        ))),
        false => Ok(()),
    }
}

/// From their submission until the last of them ended.
fn seconds_of_good(report: &Report) -> f64 {
    let Some(at) = report.vos.iter().position(|vo| vo.name == GOOD) else {
        return f64::INFINITY;
    };
    let is_open = |point: &crate::report::Point| point.vos.get(at).is_some_and(|vo| vo.1 > 0);
    let last = report.series.points.iter().rposition(is_open);
    let ended = last.map_or(0.0, |last| (last + 1) as f64 * report.series.step);
    ended - COMES
}
