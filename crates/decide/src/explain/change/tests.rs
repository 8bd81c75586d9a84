use super::*;

/// A small generator, so that noise is the same each time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        // Twelve uniform numbers make a normal one.
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    fn uniform(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn noisy(bins: usize, seed: u64, sigma: f64, level: impl Fn(usize) -> f64) -> Vec<Option<f64>> {
    let mut noise = Noise(seed);
    (0..bins)
        .map(|bin| Some(level(bin) * (noise.next() * sigma).exp()))
        .collect()
}

fn drops(rates: &[Option<f64>]) -> Vec<Range<usize>> {
    find(rates, 60)
        .low
        .into_iter()
        .map(|low| low.bins)
        .collect()
}

#[test]
fn a_halving_is_found_where_it_is() {
    for seed in 0..20 {
        let rates = noisy(600, seed, 0.1, |bin| {
            if (200..260).contains(&bin) {
                100.0
            } else {
                200.0
            }
        });
        let found = drops(&rates);
        assert_eq!(found.len(), 1, "seed {seed}: {found:?}");
        assert!(
            found[0].start.abs_diff(200) <= 1 && found[0].end.abs_diff(260) <= 1,
            "{found:?}"
        );
    }
}

#[test]
fn a_stop_is_found_also_where_it_is_much_of_a_short_window() {
    for seed in 0..20 {
        let level = |bin: usize| match bin {
            17..25 => 0.0,
            _ => 200.0,
        };
        let found = drops(&noisy(30, seed, 0.03, level));
        assert_eq!(
            (found.len(), found.first()),
            (1, Some(&(17..25))),
            "seed {seed}"
        );
    }
}

#[test]
fn one_bin_a_small_fall_and_a_slow_start_are_no_drops() {
    let level = |bin: usize| match bin {
        0..30 => 10.0,
        100 => 0.0,
        200..260 => 160.0,
        _ => 200.0,
    };
    assert_eq!(drops(&noisy(600, 7, 0.05, level)), []);
}

#[test]
fn a_burst_at_the_start_is_no_usual_rate() {
    let mut rates = vec![0.0, 0.0, 1.8, 6.8, 4.1, 5.6, 3.1, 6.3, 5.5, 4.7];
    rates.extend([3.4, 5.1, 5.3, 4.5, 4.5, 4.7, 4.8, 4.4, 6.4, 4.7]);
    rates.extend([0.0; 7]);
    let rates: Vec<Option<f64>> = rates.into_iter().map(Some).collect();
    let found = drops(&rates);
    assert_eq!((found.len(), found[0].clone()), (1, 20..27));
}

#[test]
fn a_slide_is_a_drop_from_where_it_has_fallen_enough() {
    // 11 April 2006: the rate doubled, then slid back.
    let level = |bin: usize| match bin {
        0..120 => 100.0,
        120..240 => 200.0,
        240..480 => 200.0 - (bin - 240) as f64 * 100.0 / 240.0,
        _ => 100.0,
    };
    let found = drops(&noisy(700, 3, 0.05, level));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        (300..480).contains(&found[0].start) && found[0].end == 700,
        "{found:?}"
    );
}

#[test]
fn unknown_bins_neither_begin_nor_end_a_drop() {
    let mut rates = noisy(300, 5, 0.05, |bin| {
        if (100..160).contains(&bin) {
            50.0
        } else {
            200.0
        }
    });
    (120..130).for_each(|bin| rates[bin] = None);
    let found = drops(&rates);
    assert_eq!((found.len(), found[0].clone()), (1, 100..160));
}

#[test]
fn a_nightly_dip_is_named_with_its_period() {
    // Every night at 23:40, for twenty minutes, over a week.
    let at_night = |bin: usize| (1420..1440).contains(&(bin % 1440));
    let rates = noisy(
        7 * 1440,
        11,
        0.1,
        |bin| if at_night(bin) { 60.0 } else { 200.0 },
    );
    let found = find(&rates, 60).low;
    assert_eq!(found.len(), 7, "{found:?}");
    for low in &found {
        let period = low.period_seconds.unwrap_or(0);
        assert!(period.abs_diff(86_400) <= 300, "{period} s");
    }
    // Three hours after noon of the third day is another matter.
    let rates = noisy(7 * 1440, 11, 0.1, |bin| match bin {
        _ if at_night(bin) => 60.0,
        3780..3960 => 90.0,
        _ => 200.0,
    });
    let found = find(&rates, 60).low;
    let other: Vec<&LowRate> = found
        .iter()
        .filter(|low| low.period_seconds.is_none())
        .collect();
    assert_eq!(other.len(), 1, "{found:?}");
    assert!(other[0].bins.start.abs_diff(3780) <= 1);
}

#[test]
fn a_daily_swing_is_no_unusual_drop() {
    let swing =
        |bin: usize| 200.0 * (0.6 * (bin as f64 / 1440.0 * std::f64::consts::TAU).sin()).exp();
    let rates = noisy(7 * 1440, 2, 0.1, swing);
    let unusual = find(&rates, 60)
        .low
        .into_iter()
        .filter(|low| low.period_seconds.is_none())
        .count();
    assert_eq!(unusual, 0);
}

#[test]
fn drops_at_random_times_have_no_period() {
    for seed in 0..10 {
        let mut noise = Noise(seed + 100);
        let begins: Vec<usize> = (0..7)
            .map(|_| (noise.uniform() * 10_000.0) as usize)
            .collect();
        let level = |bin: usize| match begins
            .iter()
            .any(|begin| (*begin..begin + 20).contains(&bin))
        {
            true => 60.0,
            false => 200.0,
        };
        let found = find(&noisy(7 * 1440, seed, 0.1, level), 60).low;
        assert!(
            found.iter().all(|low| low.period_seconds.is_none()),
            "seed {seed}: {found:?}"
        );
    }
}

#[test]
fn an_empty_queue_is_a_lack_of_work_and_no_drop() {
    let bins = 300;
    let low = 100..160;
    let slots = |bin: usize| if low.contains(&bin) { 5.0 } else { 10.0 };
    let link = LinkSignals {
        copied_bytes: Series::known((0..bins).map(|bin| slots(bin) * 1.2e9)),
        active: Series::known((0..bins).map(slots)),
        limit: Series::constant(10.0, bins),
        queued: Series::known((0..bins).map(|bin| if low.contains(&bin) { 0.0 } else { 5.0 })),
        ..LinkSignals::default()
    };
    let found = stretches_of(&link, 60).low;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].has_work, found[0].bins.clone()), (false, low));
}

#[test]
fn the_end_of_a_lack_of_work_is_no_rise() {
    let bins = 300;
    // Files come one by one: each is queued for a moment, and no slot that stays free had one to take.
    let slots = |bin: usize| if bin < 150 { 5.0 } else { 10.0 };
    let link = LinkSignals {
        copied_bytes: Series::known((0..bins).map(|bin| slots(bin) * 1.2e9)),
        active: Series::known((0..bins).map(slots)),
        limit: Series::constant(10.0, bins),
        queued: Series::constant(1.0, bins),
        unfed: Series::constant(0.0, bins),
        ..LinkSignals::default()
    };
    assert_eq!(rises_of(&link, &[], 60), []);
    let fed = LinkSignals {
        unfed: Series::constant(10.0, bins),
        ..link
    };
    assert_eq!(
        rises_of(&fed, &[], 60).len(),
        1,
        "files waited beside free slots"
    );
}

#[test]
fn nothing_queued_and_nothing_running_is_a_lack_of_work_also_of_files_that_no_sample_saw() {
    let bins = 60;
    let link = |queued: f64| LinkSignals {
        copied_bytes: Series::known((0..bins).map(|bin| if bin < 40 { 5e6 } else { 0.0 })),
        active: Series::constant(0.0, bins),
        limit: Series::constant(10.0, bins),
        queued: Series::known((0..bins).map(|bin| if bin < 40 { 0.0 } else { queued })),
        ..LinkSignals::default()
    };
    let told = |queued: f64| {
        let low = stretches_of(&link(queued), 60).low;
        let kinds: Vec<_> = low
            .into_iter()
            .map(|low| (low.has_work, low.bins))
            .collect();
        kinds
    };
    assert_eq!(told(0.0), [(false, 40..60)]);
    assert_eq!(told(3.0), [(true, 40..60)]);
}

#[test]
fn the_median_without_a_value_is_that_of_the_others() {
    let mut noise = Noise(7);
    for length in 1..12 {
        // Of few different values, so that some are there twice.
        let values: Vec<f64> = (0..length)
            .map(|_| (noise.uniform() * 6.0).floor() - 3.0)
            .collect();
        let mut ordered = values.clone();
        ordered.sort_unstable_by(f64::total_cmp);
        for without in 0..length {
            let others = (0..length).filter(|place| *place != without);
            let expected = median(others.map(|place| values[place])).unwrap_or(0.0);
            let told = median_without(&ordered, values[without]);
            assert_eq!(told, expected, "{values:?} without {without}");
        }
    }
}
