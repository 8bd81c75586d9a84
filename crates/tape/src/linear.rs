//! The linear tape scheduling problem: the tape is a line, the head stands right of all files and moves left, a file is
//! served when it is passed from left to right, and each change of direction costs time.
//!
//! Source: V. Honoré, B. Simon and F. Suter, "An Exact Algorithm for the Linear Tape Scheduling Problem", ICAPS 2022
//! (arXiv 2112.09384). It is a reference for orders of serpentine tapes, and for drives that leave the tape in its middle.

use std::collections::BTreeMap;

/// A file on the line, in any unit that is also that of time: the head moves by one in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearFile {
    /// Its left end.
    pub left: i64,
    /// Its right end.
    pub right: i64,
    /// How many ask for it; at least 1.
    pub requests: i64,
}

/// A tape with what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearTape {
    files: Vec<LinearFile>,
    head: i64,
    turn: i64,
}

/// On first reaching the left end of file `from`, the head turns, reads all that is unread up to the right end of file
/// `to`, and comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Detour {
    /// The file at whose left end it begins.
    pub from: usize,
    /// The file at whose right end it turns back.
    pub to: usize,
}

/// A schedule and what it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearSchedule {
    /// From right to left.
    pub detours: Vec<Detour>,
    /// Sum over all requests of the time until they are served.
    pub cost: i128,
}

/// How a schedule is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinearPolicy {
    /// To the far left, then one sweep.
    NoDetour,
    /// Each file when the head passes it first.
    EachFile,
    /// The best without a detour inside another: time k²·n of k files and n requests.
    SimpleDp,
    /// The best: time k³·n.
    Exact,
}

impl LinearTape {
    /// `None` when files overlap, are empty, or lie right of the head.
    pub fn new(mut files: Vec<LinearFile>, head: i64, turn: i64) -> Option<LinearTape> {
        files.sort_by_key(|file| (file.left, file.right));
        let are_apart = files.windows(2).all(|pair| pair[0].right <= pair[1].left);
        let are_files = files
            .iter()
            .all(|file| file.left < file.right && file.requests > 0 && file.right <= head);
        (are_apart && are_files && turn >= 0).then_some(LinearTape { files, head, turn })
    }

    /// The files from left to right.
    pub fn files(&self) -> &[LinearFile] {
        &self.files
    }

    /// A schedule by this policy.
    pub fn schedule(&self, policy: LinearPolicy) -> LinearSchedule {
        let count = self.files.len();
        let detours = match policy {
            LinearPolicy::NoDetour => Vec::new(),
            // The leftmost is where the head turns anyway.
            LinearPolicy::EachFile => (1..count)
                .rev()
                .map(|at| Detour { from: at, to: at })
                .collect(),
            LinearPolicy::SimpleDp => SimpleDp::new(self).detours(),
            LinearPolicy::Exact => ExactDp::new(self).detours(),
        };
        let cost = self.cost(&detours);
        LinearSchedule { detours, cost }
    }

    /// What detours cost, by following the head. Detours are taken from right to left.
    pub fn cost(&self, detours: &[Detour]) -> i128 {
        let mut read_at: Vec<Option<i64>> = vec![None; self.files.len()];
        let mut order = detours.to_vec();
        order.sort_by_key(|detour| (std::cmp::Reverse(detour.from), detour.to));
        let (mut now, mut at) = (0, self.head);
        for Detour { from, to } in order {
            let (left, right) = (self.files[from].left, self.files[to].right);
            now += at - left + self.turn;
            self.sweep(&mut read_at, from..=to, left, now);
            now += (right - left) + self.turn + (right - left);
            at = left;
        }
        if let (Some(first), Some(last)) = (self.files.first(), self.files.len().checked_sub(1)) {
            now += at - first.left + self.turn;
            self.sweep(&mut read_at, 0..=last, first.left, now);
        }
        let wait = |(file, at): (&LinearFile, Option<i64>)| {
            i128::from(at.unwrap_or(0)) * i128::from(file.requests)
        };
        self.files.iter().zip(read_at).map(wait).sum()
    }

    fn sweep(
        &self,
        read_at: &mut [Option<i64>],
        files: std::ops::RangeInclusive<usize>,
        left: i64,
        begun: i64,
    ) {
        for index in files {
            let end = begun + self.files[index].right - left;
            read_at[index].get_or_insert(end);
        }
    }

    /// Files in the order in which a schedule serves them.
    pub fn served(&self, schedule: &LinearSchedule) -> Vec<usize> {
        let mut is_read = vec![false; self.files.len()];
        let mut order = Vec::new();
        let mut detours = schedule.detours.clone();
        detours.sort_by_key(|detour| std::cmp::Reverse(detour.from));
        let last = Detour {
            from: 0,
            to: self.files.len().saturating_sub(1),
        };
        detours.extend((!self.files.is_empty()).then_some(last));
        for Detour { from, to } in detours {
            let unread = (from..=to).filter(|index| !std::mem::replace(&mut is_read[*index], true));
            order.extend(unread);
        }
        order
    }

    /// Requests left of each file.
    fn requests_left(&self) -> Vec<i64> {
        let mut sum = 0;
        let before = |file: &LinearFile| {
            let left = sum;
            sum += file.requests;
            left
        };
        self.files.iter().map(before).collect()
    }
}

/// One step of a dynamic program: how the files up to `to` are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Choice {
    /// The rightmost file waits for a later pass.
    Skip,
    /// A detour from here to the rightmost file.
    Detour(usize),
}

/// The program of all schedules. Its states are (a, b, requests already skipped to the right of b).
struct ExactDp<'a> {
    tape: &'a LinearTape,
    requests_left: Vec<i64>,
    best: BTreeMap<(usize, usize, i64), (i128, Option<Choice>)>,
}

impl<'a> ExactDp<'a> {
    fn new(tape: &'a LinearTape) -> ExactDp<'a> {
        ExactDp {
            tape,
            requests_left: tape.requests_left(),
            best: BTreeMap::new(),
        }
    }

    fn cost(&mut self, a: usize, b: usize, skipped: i64) -> i128 {
        if let Some((cost, _)) = self.best.get(&(a, b, skipped)) {
            return *cost;
        }
        let files = &self.tape.files;
        let wide = |length: i64, requests: i64| 2 * i128::from(length) * i128::from(requests);
        let (last, left) = (files[b], self.requests_left[a]);
        let found = if a == b {
            let size = last.right - last.left;
            (wide(size, skipped + self.requests_left[b]), None)
        } else {
            let between = last.right - files[b - 1].right;
            let skip = self.cost(a, b - 1, skipped + last.requests)
                + wide(between, skipped + left)
                + wide(last.left - files[b - 1].right, last.requests);
            let mut best = (skip, Some(Choice::Skip));
            for c in a + 1..=b {
                let back = last.right - files[c - 1].right;
                let detour = self.cost(c, b, skipped)
                    + wide(self.tape.turn, skipped + self.requests_left[c])
                    + self.cost(a, c - 1, skipped)
                    + wide(back, skipped + left);
                best = best.min((detour, Some(Choice::Detour(c))));
            }
            best
        };
        self.best.insert((a, b, skipped), found);
        found.0
    }

    fn detours(&mut self) -> Vec<Detour> {
        let mut detours = Vec::new();
        let Some(last) = self.tape.files.len().checked_sub(1) else {
            return detours;
        };
        self.cost(0, last, 0);
        let mut open = vec![(0, last, 0)];
        while let Some((a, b, skipped)) = open.pop() {
            match self.best.get(&(a, b, skipped)).and_then(|best| best.1) {
                None => {}
                Some(Choice::Skip) => {
                    open.push((a, b - 1, skipped + self.tape.files[b].requests));
                }
                Some(Choice::Detour(c)) => {
                    detours.push(Detour { from: c, to: b });
                    open.push((c, b, skipped));
                    open.push((a, c - 1, skipped));
                }
            }
        }
        detours.sort_by_key(|detour| (std::cmp::Reverse(detour.from), detour.to));
        detours
    }
}

/// The program of schedules without a detour inside another.
struct SimpleDp<'a> {
    tape: &'a LinearTape,
    requests_left: Vec<i64>,
    best: BTreeMap<(usize, i64), (i128, Option<Choice>)>,
}

impl<'a> SimpleDp<'a> {
    fn new(tape: &'a LinearTape) -> SimpleDp<'a> {
        SimpleDp {
            tape,
            requests_left: tape.requests_left(),
            best: BTreeMap::new(),
        }
    }

    fn cost(&mut self, b: usize, skipped: i64) -> i128 {
        if let Some((cost, _)) = self.best.get(&(b, skipped)) {
            return *cost;
        }
        let files = &self.tape.files;
        let wide = |length: i64, requests: i64| 2 * i128::from(length) * i128::from(requests);
        let last = files[b];
        let found = if b == 0 {
            (wide(last.right - last.left, skipped), None)
        } else {
            let skip = self.cost(b - 1, skipped + last.requests)
                + wide(last.right - files[b - 1].right, skipped)
                + wide(last.left - files[b - 1].right, last.requests);
            let mut best = (skip, Some(Choice::Skip));
            // What the files of the detour wait longer for beginning at its left end.
            let mut within = 0;
            for c in (1..=b).rev() {
                if c < b {
                    let requests =
                        self.requests_left[b] + last.requests - self.requests_left[c + 1];
                    within += wide(files[c + 1].left - files[c].left, requests);
                }
                let detour = wide(last.right - files[c].left, skipped + self.requests_left[c])
                    + within
                    + wide(self.tape.turn, skipped + self.requests_left[c])
                    + self.cost(c - 1, skipped)
                    + wide(last.right - files[c - 1].right, skipped);
                best = best.min((detour, Some(Choice::Detour(c))));
            }
            best
        };
        self.best.insert((b, skipped), found);
        found.0
    }

    fn detours(&mut self) -> Vec<Detour> {
        let mut detours = Vec::new();
        let Some(mut b) = self.tape.files.len().checked_sub(1) else {
            return detours;
        };
        self.cost(b, 0);
        let mut skipped = 0;
        while let Some(choice) = self.best.get(&(b, skipped)).and_then(|best| best.1) {
            match choice {
                Choice::Skip => {
                    skipped += self.tape.files[b].requests;
                    b -= 1;
                }
                Choice::Detour(c) => {
                    detours.push(Detour { from: c, to: b });
                    b = c - 1;
                }
            }
        }
        detours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64, bound: i64) -> i64 {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((*state >> 33) % bound as u64).expect("below the bound")
    }

    fn tape(state: &mut u64, count: usize, size_max: i64, turn: i64) -> LinearTape {
        let (mut at, mut files) = (random(state, 50), Vec::new());
        for _ in 0..count {
            let left = at + random(state, 4) * random(state, 60);
            let right = left + 1 + random(state, size_max);
            let requests = 1 + random(state, 4);
            files.push(LinearFile {
                left,
                right,
                requests,
            });
            at = right;
        }
        LinearTape::new(files, at + random(state, 100), turn).expect("files lie apart")
    }

    /// The least cost over one detour or none from each file.
    fn exhaustive(tape: &LinearTape, from: usize, detours: &mut Vec<Detour>) -> i128 {
        if from == tape.files.len() {
            return tape.cost(detours);
        }
        let mut best = exhaustive(tape, from + 1, detours);
        for to in from..tape.files.len() {
            detours.push(Detour { from, to });
            best = best.min(exhaustive(tape, from + 1, detours));
            detours.pop();
        }
        best
    }

    #[test]
    fn the_exact_program_finds_what_trying_everything_finds() {
        let mut state = 1;
        for round in 0..120 {
            let count = 1 + round % 6;
            let turn = random(&mut state, 400);
            let tape = tape(&mut state, count, 80, turn);
            let found = tape.schedule(LinearPolicy::Exact);
            let mut exact = ExactDp::new(&tape);
            let bound: i128 = tape
                .files
                .iter()
                .map(|file| {
                    let alone = tape.head - file.left + file.right - file.left + turn;
                    i128::from(alone) * i128::from(file.requests)
                })
                .sum();
            assert_eq!(found.cost, exhaustive(&tape, 1, &mut Vec::new()));
            assert_eq!(found.cost, bound + exact.cost(0, count - 1, 0));
        }
    }

    #[test]
    fn the_simple_program_is_within_three_per_cent_of_the_best() {
        let mut state = 2;
        for turn in [0, 14, 28, 500, 2000] {
            for _ in 0..6 {
                let count = 15 + usize::try_from(random(&mut state, 16)).expect("small");
                let tape = tape(&mut state, count, 110, turn);
                let cost = |policy| tape.schedule(policy).cost;
                let exact = cost(LinearPolicy::Exact);
                let simple = cost(LinearPolicy::SimpleDp);
                assert!(
                    exact <= simple && simple * 100 <= exact * 103,
                    "{simple} {exact}"
                );
                assert!(exact <= cost(LinearPolicy::NoDetour).min(cost(LinearPolicy::EachFile)));
            }
        }
    }

    #[test]
    fn each_file_is_served_once() {
        let mut state = 3;
        let tape = tape(&mut state, 12, 40, 30);
        for policy in [
            LinearPolicy::NoDetour,
            LinearPolicy::EachFile,
            LinearPolicy::SimpleDp,
            LinearPolicy::Exact,
        ] {
            let mut served = tape.served(&tape.schedule(policy));
            served.sort_unstable();
            assert_eq!(served, (0..12).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_not_a_tape_is_refused() {
        let file = |left, right| LinearFile {
            left,
            right,
            requests: 1,
        };
        assert!(LinearTape::new(vec![file(0, 10), file(5, 12)], 20, 0).is_none());
        assert!(LinearTape::new(vec![file(0, 10)], 9, 0).is_none());
        assert!(LinearTape::new(vec![file(3, 3)], 9, 0).is_none());
        assert!(LinearTape::new(vec![], 9, 0).is_some());
    }
}
