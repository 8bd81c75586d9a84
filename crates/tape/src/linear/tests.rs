use super::*;
use crate::chance::Chance;

const POLICIES: [LinearPolicy; 4] = [
    LinearPolicy::NoDetour,
    LinearPolicy::EachFile,
    LinearPolicy::SimpleDp,
    LinearPolicy::ExactDp,
];

fn cost(tape: &LinearTape, policy: LinearPolicy) -> u128 {
    tape.order(policy).expect("a small tape").cost
}

fn random_tape(chance: &mut Chance, count: u64) -> LinearTape {
    let mut begin = 0;
    let mut files = Vec::new();
    for _ in 0..count {
        begin += chance.below(60);
        let size = 1 + chance.below(50);
        let requests = 1 + chance.below(5);
        files.push(LinearFile {
            begin,
            size,
            requests,
        });
        begin += size;
    }
    let head = begin + chance.below(40);
    let turn_cost = [0, 5, 28, 400][usize::try_from(chance.below(4)).expect("small")];
    LinearTape::new(files, head, turn_cost).expect("a tape")
}

/// The least cost over all orders in which files can be read one by one, without any assumption about detours.
fn searched(tape: &LinearTape, left: &mut Vec<usize>, at: (u64, u64, bool)) -> u128 {
    let (now, head, is_right) = at;
    let mut best = if left.is_empty() { 0 } else { u128::MAX };
    for place in 0..left.len() {
        let index = left.remove(place);
        let file = tape.files[index];
        // It is reached to the right without a turn, or by turning to the left and to the right again.
        let reached = match (is_right, file.begin >= head) {
            (true, true) => now + file.begin - head,
            (true, false) => now + 2 * tape.turn_cost + head - file.begin,
            (false, _) => now + tape.turn_cost + head - file.begin,
        };
        let read = reached + file.size;
        let rest = searched(tape, left, (read, file.end(), true));
        best = best.min(u128::from(read) * u128::from(file.requests) + rest);
        left.insert(place, index);
    }
    best
}

#[test]
fn the_exact_program_finds_what_a_search_of_all_orders_finds() {
    let mut chance = Chance::new(11);
    for round in 0..240 {
        let count = 1 + round % 6;
        let tape = random_tape(&mut chance, count);
        let mut all = (0..tape.files.len()).collect();
        let best = searched(&tape, &mut all, (0, tape.head, false));
        assert_eq!(cost(&tape, LinearPolicy::ExactDp), best, "{tape:?}");
        for policy in POLICIES {
            let order = tape.order(policy).expect("a small tape");
            assert!(order.cost >= best && best >= tape.lower_bound());
            let mut files: Vec<usize> = order.reads.iter().map(|read| read.file).collect();
            files.sort_unstable();
            assert_eq!(files, (0..tape.files.len()).collect::<Vec<_>>());
        }
    }
}

/// 400 log-normal files of which 15 to 40 are asked for, in clusters.
fn synthetic(chance: &mut Chance, turn_cost: u64) -> LinearTape {
    let even = |chance: &mut Chance| (chance.below(1 << 30) + 1) as f64 / f64::from(1 << 30);
    let mut begin = 0;
    let mut all = Vec::new();
    for _ in 0..400 {
        let radius = (-2.0 * even(chance).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * even(chance)).cos();
        let size = (3.7 + 0.8 * normal).exp().max(1.0) as u64;
        all.push((begin, size));
        begin += size;
    }
    let wanted = 15 + chance.below(26);
    let mut asked = std::collections::BTreeMap::new();
    while (asked.len() as u64) < wanted {
        let centre = chance.below(400);
        for _ in 0..1 + chance.below(6) {
            let file = (centre + chance.below(12)).min(399);
            *asked.entry(file).or_insert(0) += 1 + chance.below(3);
        }
    }
    let file = |(file, requests): (&u64, &u64)| {
        let (begin, size) = all[usize::try_from(*file).expect("small")];
        LinearFile {
            begin,
            size,
            requests: *requests,
        }
    };
    LinearTape::new(asked.iter().map(file).collect(), begin, turn_cost).expect("a tape")
}

#[test]
fn the_simple_program_is_within_three_per_cent_of_the_best() {
    let mut chance = Chance::new(5);
    for turn_cost in [0, 14, 28, 500, 2_000] {
        let (mut worst, mut swept) = (1.0_f64, 0.0);
        for _ in 0..12 {
            let tape = synthetic(&mut chance, turn_cost);
            let best = cost(&tape, LinearPolicy::ExactDp) as f64;
            worst = worst.max(cost(&tape, LinearPolicy::SimpleDp) as f64 / best);
            swept += cost(&tape, LinearPolicy::NoDetour) as f64 / best / 12.0;
        }
        println!("turn {turn_cost}: simple at most {worst:.4}, no detour {swept:.2} on the mean");
        assert!(worst <= 1.03, "turn cost {turn_cost}: {worst}");
    }
}

#[test]
fn tapes_that_cannot_be_are_refused() {
    let file = |begin, size, requests| LinearFile {
        begin,
        size,
        requests,
    };
    let new = |files: &[LinearFile], head| LinearTape::new(files.to_vec(), head, 0).err();
    assert_eq!(new(&[], 0), Some(LinearTapeError::NoFiles));
    let overlap = [file(0, 10, 1), file(9, 1, 1)];
    assert_eq!(new(&overlap, 20), Some(LinearTapeError::Overlap(1)));
    assert_eq!(
        new(&[file(0, 10, 1)], 9),
        Some(LinearTapeError::HeadBeforeEnd)
    );
    assert_eq!(
        new(&[file(0, 10, 0)], 10),
        Some(LinearTapeError::NoRequests(0))
    );
    let many: Vec<LinearFile> = (0..400).map(|at| file(at * 10, 10, 100)).collect();
    let tape = LinearTape::new(many, 4_000, 0).expect("a tape");
    assert_eq!(tape.order(LinearPolicy::ExactDp), None);
}
