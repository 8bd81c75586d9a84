//! Tuners beside storages and networks that are made of formulas.

use super::*;
use penstock_model::{LinkId, Slots, StorageId, Timestamp, TuningMode, TuningPolicy};

/// A small generator of even noise (SplitMix64), so that each run is the same.
struct Chance(u64);

impl Chance {
    /// Between -1 and 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// How many bytes a second so many transfers move.
type Law = dyn Fn(f64) -> f64;

fn line(per_transfer: f64, capacity: f64) -> impl Fn(f64) -> f64 {
    move |n| (n * per_transfer).min(capacity)
}

/// Rises, then falls: disks that seek more than they read.
fn degrading(per_transfer: f64, capacity: f64, knee: f64) -> impl Fn(f64) -> f64 {
    move |n| (n * per_transfer).min(capacity) / (1.0 + (n / knee).powi(3))
}

const BOUNDS: Bounds = Bounds { min: 2, max: 200 };

/// Work done and the limit, second by second. The number follows the limit at once upwards and with a lag downwards.
struct Run {
    tuner: Tuner,
    noise: Chance,
    noisy: f64,
    active: f64,
}

impl Run {
    fn new(noisy: f64) -> Run {
        Run::seeded(noisy, 7)
    }

    fn seeded(noisy: f64, seed: u64) -> Run {
        Run {
            tuner: Tuner::new(BOUNDS),
            noise: Chance(seed),
            noisy,
            active: 0.0,
        }
    }

    /// What would be done without noise.
    fn second(&mut self, law: &Law) -> f64 {
        let limit = f64::from(self.tuner.limit());
        self.active = match limit >= self.active {
            true => limit,
            false => (self.active * 0.6).max(limit),
        };
        let rate = law(self.active) * (1.0 + self.noisy * self.noise.next());
        let sample = Sample {
            seconds: 1.0,
            bytes: rate as u64,
            files: 0,
            active: self.active,
            is_full: true,
            failed: 0,
            lag: 0.0,
            pushed_back: 0,
            quiet_for: 0.0,
        };
        self.tuner.see(&sample);
        law(self.active)
    }

    /// The mean rate of so many seconds.
    fn mean(&mut self, law: &Law, seconds: u32) -> f64 {
        (0..seconds).map(|_| self.second(law)).sum::<f64>() / f64::from(seconds)
    }
}

fn best(law: &Law) -> f64 {
    (BOUNDS.min..=BOUNDS.max)
        .map(|n| law(f64::from(n)))
        .fold(0.0, f64::max)
}

fn laws() -> Vec<(&'static str, Box<Law>)> {
    vec![
        ("short", Box::new(line(200e6, 1e9))),
        ("long", Box::new(line(10e6, 1e9))),
        ("very long", Box::new(line(6e6, 1e9))),
        ("degrading", Box::new(degrading(50e6, 1e9, 40.0))),
        ("degrading early", Box::new(degrading(100e6, 1e9, 12.0))),
        ("degrading at once", Box::new(degrading(300e6, 1e9, 4.0))),
        ("soft", Box::new(|n: f64| 1e9 * n / (n + 3.0))),
    ]
}

#[test]
fn after_thirty_seconds_the_rate_is_that_of_the_best_number() {
    for (name, law) in &laws() {
        for noisy in [0.0, 0.03, 0.05, 0.1] {
            let shares: Vec<f64> = (1..=20)
                .map(|seed| {
                    let mut run = Run::seeded(noisy, seed);
                    run.mean(law, 30);
                    run.mean(law, 60) / best(law)
                })
                .collect();
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            // With a tenth of noise, a run of a minute may believe what is not so.
            let at_least = if noisy < 0.1 { 0.94 } else { 0.90 };
            assert!(
                mean >= 0.95 && least >= at_least,
                "{name}, noise {noisy}: mean {mean:.3}, least {least:.3}"
            );
        }
    }
}

#[test]
fn no_more_runs_than_is_worth_it() {
    let law = line(50e6, 1e9);
    let mut run = Run::new(0.03);
    run.mean(&law, 120);
    assert!(
        (20..=50).contains(&run.tuner.limit()),
        "{}",
        run.tuner.limit()
    );
}

#[test]
fn a_link_that_loses_half_is_noticed_and_followed_within_fifteen_seconds() {
    let (whole, half) = (line(10e6, 1e9), line(10e6, 0.5e9));
    let mut run = Run::new(0.03);
    run.mean(&whole, 90);
    let before = run.tuner.limit();
    run.mean(&half, 15);
    assert!(
        run.tuner.limit() <= before * 2 / 3,
        "{before} -> {}",
        run.tuner.limit()
    );
    let share = run.mean(&half, 30) / best(&half);
    assert!(share >= 0.90, "{share}");
    run.mean(&whole, 15);
    let share = run.mean(&whole, 60) / best(&whole);
    assert!(share >= 0.9, "it comes back: {share}");
}

#[test]
fn a_limit_that_limits_nothing_teaches_nothing() {
    let mut tuner = Tuner::new(BOUNDS);
    let idle = Sample {
        seconds: 1.0,
        bytes: 5,
        files: 0,
        active: 1.0,
        is_full: false,
        failed: 0,
        lag: 0.0,
        pushed_back: 0,
        quiet_for: 0.0,
    };
    for _ in 0..100 {
        assert_eq!(tuner.see(&idle), None);
    }
    assert_eq!(tuner.limit(), SLOTS_FIRST);
}

#[test]
fn a_storage_that_says_it_is_too_much_is_left_alone() {
    let law = line(10e6, 1e9);
    let mut run = Run::new(0.0);
    run.mean(&law, 40);
    let before = run.tuner.limit();
    let pushed = Sample {
        seconds: 1.0,
        bytes: 1,
        files: 0,
        active: f64::from(before),
        is_full: true,
        failed: 0,
        lag: 0.0,
        pushed_back: 3,
        quiet_for: 30.0,
    };
    let tuned = run.tuner.see(&pushed).expect("less");
    assert_eq!(tuned.because, TuneReason::PushedBack);
    assert!(tuned.limit < before * 3 / 4);
}

#[test]
fn numbers_stay_within_their_bounds_whatever_is_seen() {
    use proptest::prelude::*;
    let sample = (
        0.1f64..5.0,
        any::<u64>(),
        0..1000u64,
        0.0f64..500.0,
        any::<bool>(),
        0..3u32,
        0..9u64,
    );
    proptest!(|(samples in proptest::collection::vec(sample, 0..200), min in 1..10u32, more in 0..100u32)| {
        let bounds = Bounds { min, max: min + more };
        let mut tuner = Tuner::new(bounds);
        for (seconds, bytes, files, active, is_full, pushed_back, failed) in samples {
            let sample = Sample { seconds, bytes, files, active, is_full, failed, lag: 0.0, pushed_back, quiet_for: 1.0 };
            if let Some(tuned) = tuner.see(&sample) {
                prop_assert_eq!(tuned.limit, tuner.limit());
            }
            prop_assert!((bounds.min..=bounds.max).contains(&tuner.limit()));
        }
    });
}

#[test]
fn a_link_that_only_its_operators_had_held_begins_anew_when_they_let_go() {
    let link = LinkId {
        source: StorageId::new("https://a"),
        destination: StorageId::new("https://b"),
    };
    let rules = |max| LinkRules {
        policy: TuningPolicy::Measured,
        mode: TuningMode::Normal,
        bounds: Bounds { min: 1, max },
        is_configured: true,
    };
    let now = |max| LinkObservation {
        link: link.clone(),
        rules: rules(max),
        active: 3,
        queued: 3,
        is_full: true,
        bytes: 0,
        lag: 1.0,
        queued_there: 0,
        at_ends_max: EndLimits {
            source: 100,
            destination: 100,
        },
    };
    let mut tuning = FleetTuning::default();
    tuning.begin(&link, rules(3));
    tuning.see(Timestamp(1000), 1.0, &[now(3)]);
    let decided = tuning.see(Timestamp(2000), 1.0, &[now(50)]);
    let slots: Vec<Option<Slots>> = decided.sets.iter().map(|set| set.slots).collect();
    assert_eq!(slots, [Some(Slots(SLOTS_FIRST))]);
}
