//! Caps of bytes per second: over any ten seconds, whatever files are like, and used when there is enough to do.

use super::*;
use penstock_model::Rate;

const STEP_MS: u64 = 50;
const MB: u64 = 1_000_000;
const CAP: u64 = 100 * MB;

/// A file: its bytes, the milliseconds in which they move evenly, and whether its client said the size.
#[derive(Debug, Clone, Copy)]
struct File {
    size: u64,
    moves_ms: u64,
    is_sized: bool,
}

/// A service with a cap into `d`, whose agents tell once a second how far they are.
struct Service {
    scheduler: Tried,
    files: Vec<File>,
    began: BTreeMap<u64, u64>,
    /// Bytes that moved in each step.
    moved: Vec<u64>,
    tells: bool,
}

impl Service {
    fn new(files: Vec<File>) -> Service {
        let mut limits = limits(1_000, 1_000, 1_000);
        let at = StorageId::new("d");
        limits.rates.inbound.insert(at, Rate(CAP));
        let mut scheduler = Tried::new(limits);
        for (id, file) in files.iter().enumerate() {
            let on = ["a→d", "b→d"][id % 2];
            scheduler.enqueue(QueueEntry {
                size: file.is_sized.then_some(Bytes(file.size)),
                ..waiting(id as u64, on, "cms", 3)
            });
        }
        Service {
            scheduler,
            files,
            began: BTreeMap::new(),
            moved: Vec::new(),
            tells: true,
        }
    }

    fn progress(&self, id: u64, now: u64) -> u64 {
        let file = self.files[id as usize];
        let passed = (now - self.began[&id]).min(file.moves_ms);
        (u128::from(file.size) * u128::from(passed) / u128::from(file.moves_ms)) as u64
    }

    /// One step of time. False when everything has ended.
    fn step(&mut self) -> bool {
        let now = self.moved.len() as u64 * STEP_MS;
        let later = now + STEP_MS;
        self.scheduler.advance(Duration::from_millis(now));
        if self.tells && now % 1_000 == 350 {
            let (running, scheduler) = (&self.scheduler.all_taken, &mut self.scheduler.scheduler);
            let of = |id: u64| {
                let file = self.files[id as usize];
                let passed = (now - self.began[&id]).min(file.moves_ms);
                Bytes(
                    (u128::from(file.size) * u128::from(passed) / u128::from(file.moves_ms)) as u64,
                )
            };
            let moved = running
                .iter()
                .map(|(transfer, taken)| (taken, of(transfer.0)));
            scheduler.measured(moved);
        }
        while let Some(TransferId(id)) = self.scheduler.start_next() {
            self.began.insert(id, now);
            let size = self.files[id as usize].size;
            let (_, taken) = self.scheduler.all_taken.last().expect("it has just begun");
            self.scheduler.scheduler.prepared(taken, Some(Bytes(size)));
        }
        let running: Vec<u64> = self
            .scheduler
            .all_taken
            .iter()
            .map(|(id, _)| id.0)
            .collect();
        let mut moved = 0;
        for id in running {
            let (from, to) = (self.progress(id, now), self.progress(id, later));
            moved += to - from;
            let file = self.files[id as usize];
            if to == file.size {
                let took = Duration::from_millis(later - self.began[&id]);
                self.scheduler
                    .end(TransferId(id), took, Some(Bytes(file.size)));
            }
        }
        self.moved.push(moved);
        self.began.len() < self.files.len() || !self.scheduler.all_taken.is_empty()
    }

    /// Bytes per second over the fullest window of so many seconds.
    fn highest(&self, seconds: usize) -> u64 {
        let steps = seconds * 1_000 / STEP_MS as usize;
        let windows = self.moved.windows(steps.min(self.moved.len()));
        let sums = windows.map(|window| window.iter().sum::<u64>());
        sums.max().unwrap_or_default() / seconds as u64
    }
}

fn rate_over(moved: &[u64]) -> u64 {
    moved.iter().sum::<u64>() * 1_000 / (moved.len() as u64 * STEP_MS).max(1)
}

/// Runs until nothing more waits; the rate over all of the time but the first seconds and the end.
fn run(files: Vec<File>) -> (Service, u64) {
    let mut service = Service::new(files);
    let mut all_begun = 0;
    for step in 0..200_000 {
        if !service.step() {
            break;
        }
        if service.began.len() < service.files.len() {
            all_begun = step;
        }
    }
    assert_eq!(service.began.len(), service.files.len(), "all files move");
    let used = match service.moved.get(200..all_begun) {
        Some(steady) if steady.len() > 400 => rate_over(steady),
        Some(_) | None => CAP,
    };
    (service, used)
}

fn check(name: &str, used_percent_min: u64, files: Vec<File>) {
    let (service, used) = run(files);
    let highest = service.highest(10);
    assert!(
        highest <= CAP / 100 * 110,
        "{name}: {highest} B/s over ten seconds"
    );
    assert!(
        used >= CAP / 100 * used_percent_min,
        "{name}: {used} B/s are used"
    );
}

#[test]
fn a_cap_is_held_and_used_whatever_files_are_like() {
    let of = |count: usize, size: u64, moves_ms: u64, is_sized| {
        let file = File {
            size,
            moves_ms,
            is_sized,
        };
        vec![file; count]
    };
    for is_sized in [true, false] {
        check("tiny", 90, of(20_000, MB / 5, 50, is_sized));
        check("short", 90, of(600, 9 * MB, 100, is_sized));
        check(
            "a second of the cap, fast",
            90,
            of(60, 100 * MB, 200, is_sized),
        );
        check("some seconds", 90, of(300, 20 * MB, 4_000, is_sized));
        // As large as ten seconds of the cap: each is tried out before others are trusted to be like it.
        check("long", 80, of(100, 1_000 * MB, 50_000, is_sized));
        check("long and slow", 90, of(400, 400 * MB, 80_000, is_sized));
        let short = of(4_000, 2 * MB, 100, is_sized);
        let long = of(40, 400 * MB, 20_000, is_sized);
        // Where one long file waits for its turn, the short ones behind it do not pass.
        let mut mixed = short;
        for (at, file) in long.into_iter().enumerate() {
            mixed.insert(at * 90, file);
        }
        check("both", 75, mixed);
    }
}

#[test]
fn starts_below_a_cap_are_spread_evenly() {
    let file = File {
        size: 9 * MB,
        moves_ms: 50,
        is_sized: true,
    };
    let (service, _) = run(vec![file; 400]);
    let second = service.highest(1);
    assert!(second <= CAP * 2, "{second} B/s in a second");
    let silence = service
        .moved
        .split(|moved| *moved > 0)
        .map(<[u64]>::len)
        .max();
    assert!(silence < Some(20), "{silence:?} steps without a byte");
}

#[test]
fn a_file_of_more_than_ten_seconds_of_the_cap_runs_without_company() {
    let huge = File {
        size: 30 * CAP,
        moves_ms: 10_000,
        is_sized: true,
    };
    let small = File {
        size: 10 * MB,
        moves_ms: 100,
        is_sized: true,
    };
    let mut files = vec![small; 400];
    files.insert(101, huge);
    let mut service = Service::new(files);
    let mut beside = 0;
    while service.step() {
        let now = service.moved.len() as u64 * STEP_MS;
        let began = service.began.get(&101).copied();
        if began.is_some_and(|began| (began + 2_000..began + 10_000).contains(&now)) {
            beside = beside.max(service.scheduler.all_taken.len());
        }
    }
    assert!(service.began.contains_key(&101), "it moves");
    assert_eq!(beside, 1, "nothing starts beside it");
}

#[test]
fn who_waits_for_a_cap_is_told_so_and_starts_when_it_is_taken_back() {
    let file = File {
        size: 50 * MB,
        moves_ms: 10_000,
        is_sized: true,
    };
    let mut service = Service::new(vec![file; 100]);
    (0..60).for_each(|_| {
        service.step();
    });
    let reason = service.scheduler.why_waiting(&link("a→d"));
    let WaitReason::NoSlot(NoSlot {
        place: SlotPlace::Destination { .. },
        because: SlotBound::Rate { cap: Rate(CAP), .. },
    }) = reason
    else {
        panic!("{reason:?}");
    };
    assert!(
        service.scheduler.recheck_after().is_some(),
        "it is looked at again"
    );
    service.scheduler.set_limits(limits(1_000, 1_000, 1_000));
    let begun = started(&mut service.scheduler).len();
    assert!(begun > 50, "it is taken back at once: {begun}");
}

#[test]
fn a_transfer_that_fails_before_it_moves_uses_up_nothing() {
    let file = File {
        size: 500 * MB,
        moves_ms: 100,
        is_sized: true,
    };
    let mut service = Service::new(vec![file; 10]);
    for now in 0..10u64 {
        service.scheduler.advance(Duration::from_millis(now * 200));
        let begun = service.scheduler.start_next().expect("nothing has moved");
        service.scheduler.end(begun, Duration::from_millis(1), None);
    }
}

/// Files of a link that is so fast, each up to twice as fast or half as fast, with a pause before the first byte.
fn link_of_files() -> impl Strategy<Value = Vec<File>> {
    let file = (0.0..1.0f64, -1.0..1.0f64, 0u64..1_500, any::<bool>());
    let files = proptest::collection::vec(file, 100..600);
    (0.0..1.0f64, files).prop_map(|(speed, files)| {
        // From a twentieth of the cap to ten times the cap; up to a second of the cap.
        let speed = CAP as f64 / 20.0 * 200f64.powf(speed);
        let file = |(size, faster, pause_ms, is_sized): (f64, f64, u64, bool)| {
            let size = 1e5 * 1_000f64.powf(size);
            let moves_ms = size / (speed * 2f64.powf(faster)) * 1_000.0;
            File {
                size: size as u64,
                moves_ms: moves_ms as u64 + pause_ms.max(STEP_MS),
                is_sized,
            }
        };
        files.into_iter().map(file).collect()
    })
}

/// Files up to a second of the cap whose sizes say nothing of how long they take.
fn unlike_files() -> impl Strategy<Value = Vec<File>> {
    let file = (0.0..1.0f64, 0.0..1.0f64, any::<bool>());
    let files = proptest::collection::vec(file, 100..300);
    files.prop_map(|files| {
        let file = |(size, moves, is_sized): (f64, f64, bool)| File {
            size: (1e5 * 1_000f64.powf(size)) as u64,
            moves_ms: (50.0 * 1_000f64.powf(moves)) as u64,
            is_sized,
        };
        files.into_iter().map(file).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn nor_do_files_that_are_all_unlike(files in unlike_files()) {
        let (service, used) = run(files);
        let highest = service.highest(10);
        prop_assert!(highest <= CAP / 100 * 110, "{} B/s over ten seconds", highest);
        prop_assert!(used >= CAP / 100 * 50, "{} B/s are used", used);
    }

    #[test]
    fn no_ten_seconds_carry_more_than_the_cap(files in link_of_files()) {
        let (service, used) = run(files);
        let highest = service.highest(10);
        prop_assert!(highest <= CAP / 100 * 110, "{} B/s over ten seconds", highest);
        prop_assert!(used >= CAP / 100 * 50, "{} B/s are used", used);
    }

    #[test]
    fn not_even_when_one_file_takes_most_of_it(
        files in proptest::collection::vec((1u64..9, 50u64..1_000), 10..40)
    ) {
        let files = files.into_iter().map(|(tenths, moves_ms)| File {
            size: tenths * CAP,
            moves_ms,
            is_sized: true,
        });
        let (service, _) = run(files.collect());
        let highest = service.highest(10);
        prop_assert!(highest <= CAP / 100 * 110, "{} B/s over ten seconds", highest);
    }
}
