//! Drops, rises and lulls of a small grid by their ids.

use super::plant::{Conditions, run, watched};
use super::*;
use crate::explain::rate_change::{InvalidRateChangeId, named};
use penstock_model::Timestamp;
use signals::{Change, Setting};

fn of_watched(signals: &Signals) -> Vec<RateChange> {
    rate_changes(signals, &[(Population::Link(watched()), vec![watched()])])
}

fn with_fault(bins: Range<usize>, fault: impl Fn(&mut Conditions)) -> Signals {
    run(BINS, 1, 0.02, |bin| {
        let mut conditions = Conditions::default();
        if bins.contains(&bin) {
            fault(&mut conditions);
        }
        conditions
    })
}

/// The same signals without their first bins, as a later question sees them.
fn without_first(signals: &Signals, bins: usize) -> Signals {
    let cut = |series: &mut Series| drop(series.0.drain(..bins.min(series.0.len())));
    let mut later = signals.clone();
    later.begin = signals.begin_of(bins);
    later.bins -= bins;
    for link in later.links.values_mut() {
        [
            &mut link.copied_bytes,
            &mut link.active,
            &mut link.limit,
            &mut link.queued,
            &mut link.unfed,
            &mut link.finished_files,
        ]
        .into_iter()
        .for_each(cut);
    }
    later
}

#[test]
fn an_id_stays_when_the_window_moves() {
    let signals = with_fault(FAULT, |c| c.limit = 5.0);
    let told = of_watched(&signals);
    let [first] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(first.kind(), RateChangeKind::Drop);
    assert!(first.is_over);
    for bins in [1, 60, 150] {
        let later = of_watched(&without_first(&signals, bins));
        let found = named(&later, first.id, signals.bin_seconds).expect("still there");
        assert_eq!(found.explanation.from, first.explanation.from, "{bins}");
        assert_eq!(found.id, first.id, "{bins}");
    }
}

#[test]
fn an_id_is_read_as_it_is_written_and_names_one_population() {
    let link = Population::Link(watched());
    let id = RateChangeId::new(&link, Timestamp(1_143_849_600_999));
    assert_eq!(id.to_string().parse(), Ok(id));
    assert_eq!(id.begin(), Timestamp(1_143_849_600_000));
    assert!(id.is_of(&link));
    let other = run(10, 1, 0.0, |_| Conditions::default());
    let other = other.links.into_keys().find(|link| *link != watched());
    assert!(!id.is_of(&Population::Link(other.expect("another link"))));
    for text in [
        "",
        "1-2",
        "123456789-12345678",
        "0192d3a4-0192-7000-8000-0192d3a4",
        "+1234567-12345678",
    ] {
        assert_eq!(
            text.parse::<RateChangeId>(),
            Err(InvalidRateChangeId),
            "{text}"
        );
    }
}

#[test]
fn a_drop_that_goes_on_is_not_over() {
    let signals = with_fault(400..BINS, |c| c.pace = 0.3);
    let told = of_watched(&signals);
    let drop = told.last().expect("a drop");
    assert_eq!((drop.kind(), drop.is_over), (RateChangeKind::Drop, false));
    let text = crate::wording::rate_change(drop);
    assert!(
        text.contains("still going on at the end of the window"),
        "{text}"
    );
}

#[test]
fn an_empty_queue_is_a_lull_and_never_a_drop() {
    for files in [0.0, 0.03, 0.1] {
        let signals = with_fault(FAULT, |c| c.submit_max = files);
        let kinds: Vec<RateChangeKind> =
            of_watched(&signals).iter().map(|one| one.kind()).collect();
        assert!(!kinds.contains(&RateChangeKind::Drop), "{files}: {kinds:?}");
        assert!(kinds.contains(&RateChangeKind::Lull), "{files}: {kinds:?}");
    }
}

#[test]
fn a_raised_limit_is_a_rise_with_its_cause() {
    let signals = with_fault(0..240, |c| c.limit = 4.0);
    let told = of_watched(&signals);
    let [rise] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(rise.kind(), RateChangeKind::Rise);
    let late = (rise.explanation.from.0 - signals.begin_of(240).0) / 60_000;
    assert!(late.abs() <= 2, "{late} bins late");
    assert_eq!(rise.first_cause(), Some(Cause::SlotLimit));
    let text = crate::wording::rate_change(rise);
    assert!(text.contains("what had limited it before"), "{text}");
    assert!(!text.contains("remedy: "), "nothing is to be done: {text}");
    let steady = run(BINS, 1, 0.03, |_| Conditions::default());
    assert_eq!(of_watched(&steady), []);
}

#[test]
fn a_drop_tells_when_it_was_seen_before_and_what_ended_it() {
    let mut signals = run(BINS, 1, 0.02, |bin| Conditions {
        limit: if (150..200).contains(&bin) || (350..400).contains(&bin) {
            4.0
        } else {
            10.0
        },
        ..Conditions::default()
    });
    let limit = |bin: usize, place: &str, values: [&str; 2]| Change {
        at: signals.begin_of(bin),
        who: "operator".into(),
        place: place.into(),
        setting: Setting::Limit,
        old: Some(values[0].into()),
        new: Some(values[1].into()),
    };
    let ours = watched().to_string();
    let other = signals.links.keys().find(|link| **link != watched());
    let other = other.expect("another link").to_string();
    let changes = vec![
        limit(150, &ours, ["10", "4"]),
        limit(200, &other, ["7", "8"]),
        limit(201, &ours, ["4", "10"]),
        limit(350, &ours, ["10", "4"]),
    ];
    signals.changes = changes;
    let told = of_watched(&signals);
    let [first, second] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(first.earlier, []);
    let [before] = second.earlier.as_slice() else {
        panic!("{:?}", second.earlier);
    };
    assert_eq!(before.id, first.id);
    let remedy = before.remedy.as_ref().expect("the limit was raised");
    assert_eq!(
        (remedy.place.as_str(), remedy.new.as_deref()),
        (ours.as_str(), Some("10"))
    );
}

#[test]
fn what_was_set_elsewhere_explains_nothing_here() {
    let mut signals = with_fault(FAULT, |c| c.pace = 0.3);
    let other = signals.links.keys().find(|link| **link != watched());
    let place = other.expect("another link").to_string();
    signals.changes.push(Change {
        at: signals.begin_of(FAULT.start),
        who: "operator".into(),
        place,
        setting: Setting::Drain,
        old: None,
        new: Some("drained".into()),
    });
    let told = of_watched(&signals);
    let causes: Vec<Option<Cause>> = told.iter().map(RateChange::first_cause).collect();
    assert_eq!(causes, [Some(Cause::NotFed)]);
}

#[test]
fn rates_of_servers_vos_and_pools_are_found_by_their_names_and_ids() {
    let mut signals = with_fault(FAULT, |c| c.limit = 5.0);
    let (watched, cms) = (watched(), penstock_model::VoName::new("cms"));
    let known = signals.links.get_mut(&watched).expect("there");
    known.vos.insert(cms.clone());
    let of = |choice: PopulationChoice, signals: &Signals| {
        let told = choice.populations(signals).into_iter();
        told.map(|(population, links)| (population, links.len()))
            .collect::<Vec<_>>()
    };
    let server = |name: &str| PopulationChoice::named("server", name).expect("a word");
    let is_into = |link: &&LinkId| link.destination == watched.destination;
    let is_out = |link: &&LinkId| link.source == watched.source;
    let (into, out_of) = (
        signals.links.keys().filter(is_into).count(),
        signals.links.keys().filter(is_out).count(),
    );
    let destination = watched.destination.host().to_uppercase();
    let told = of(server(&destination), &signals);
    assert!(
        told.contains(&(Population::Into(watched.destination.clone()), into)),
        "{told:?}"
    );
    let told = of(server(watched.source.as_str()), &signals);
    assert!(
        told.contains(&(Population::OutOf(watched.source.clone()), out_of)),
        "{told:?}"
    );
    assert_eq!(
        of(PopulationChoice::Vo(cms), &signals),
        [(Population::Link(watched.clone()), 1)]
    );
    let lhcb = PopulationChoice::Vo(penstock_model::VoName::new("lhcb"));
    assert!(of(lhcb, &signals).is_empty());
    // A change that was told of a storage element is found again by its id.
    let population = Population::Into(watched.destination.clone());
    let id = RateChangeId::new(&population, signals.begin);
    let found = of(PopulationChoice::OfChange(id), &signals);
    assert_eq!(found, [(population, into)]);
    assert!(PopulationChoice::OfChange(id).names(&watched));
}

#[test]
fn the_rate_of_a_pool_is_that_of_its_movers() {
    let mut signals = with_fault(FAULT, |c| c.limit = 5.0);
    let bytes = |bin: usize| if FAULT.contains(&bin) { 2e9 } else { 6e9 };
    let pool = signals::PoolSignals {
        storage: Some(watched().destination),
        bytes_in: Series::known((0..BINS).map(bytes)),
        bytes_out: Series::constant(0.0, BINS),
        movers: Series::constant(10.0, BINS),
        movers_limit: Series::constant(10.0, BINS),
        movers_queued: Series::constant(3.0, BINS),
        ..signals::PoolSignals::default()
    };
    let name = penstock_model::PoolName::new("p1");
    signals.pools.insert(name.clone(), pool);
    let choice = PopulationChoice::Pool(name.clone());
    let told = rate_changes(&signals, &choice.populations(&signals));
    let [drop] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(drop.population, Population::Pool(name));
    assert_eq!(drop.kind(), RateChangeKind::Drop);
    let rates = (drop.explanation.usual.rate, drop.explanation.low.rate);
    let seconds = f64::from(signals.bin_seconds);
    assert!((rates.0 - 6e9 / seconds).abs() < 1e6, "{rates:?}");
    assert!((rates.1 - 2e9 / seconds).abs() < 1e6, "{rates:?}");
}
