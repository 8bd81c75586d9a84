//! The dynamic programs. A cost is what an order costs above the bound of [`LinearTape::lower_bound`]; `skipped` are requests of
//! files to the right that will be served later.

use super::LinearTape;
use std::collections::{BTreeSet, HashMap};

/// Where the head, moving to the left, turns at the first of these files, passes all up to the last, and comes back.
pub(super) type Detours = BTreeSet<(usize, usize)>;

/// What both programs need of a tape.
struct Sums<'a> {
    tape: &'a LinearTape,
    /// Requests of all files to the left of each.
    requests_left: Vec<u128>,
    /// Sums over all files to the left of each of their begins times their requests.
    begins_left: Vec<u128>,
}

impl<'a> Sums<'a> {
    fn new(tape: &'a LinearTape) -> Sums<'a> {
        let (mut requests_left, mut begins_left) = (vec![0], vec![0]);
        let (mut requests, mut begins) = (0, 0);
        for file in &tape.files {
            requests += u128::from(file.requests);
            begins += u128::from(file.requests) * u128::from(file.begin);
            requests_left.push(requests);
            begins_left.push(begins);
        }
        Sums {
            tape,
            requests_left,
            begins_left,
        }
    }

    fn begin(&self, file: usize) -> u128 {
        u128::from(self.tape.files[file].begin)
    }

    fn end(&self, file: usize) -> u128 {
        u128::from(self.tape.files[file].end())
    }

    fn requests(&self, file: usize) -> u128 {
        u128::from(self.tape.files[file].requests)
    }

    fn turns(&self, first: usize, skipped: u128) -> u128 {
        2 * u128::from(self.tape.turn_cost) * (skipped + self.requests_left[first])
    }

    /// To leave a file for later, beside what is to its left.
    fn skip(&self, first: usize, file: usize, skipped: u128) -> u128 {
        let before = self.end(file - 1);
        2 * (self.end(file) - before) * (skipped + self.requests_left[first])
            + 2 * (self.begin(file) - before) * self.requests(file)
    }

    /// What is to the left waits for the way over files that are read in a detour.
    fn way(&self, first: usize, from: usize, last: usize, skipped: u128) -> u128 {
        2 * (self.end(last) - self.end(from - 1)) * (skipped + self.requests_left[first])
    }
}

/// The best order, with detours in detours.
pub(super) struct ExactProgram<'a> {
    sums: Sums<'a>,
    /// By first file, last file and skipped requests: the cost, and where the detour that ends here begins.
    known: HashMap<(usize, usize, u128), (u128, Option<usize>)>,
}

impl<'a> ExactProgram<'a> {
    pub(super) fn new(tape: &'a LinearTape) -> ExactProgram<'a> {
        ExactProgram {
            sums: Sums::new(tape),
            known: HashMap::new(),
        }
    }

    pub(super) fn detours(mut self) -> Detours {
        let mut detours = Detours::new();
        let mut parts = vec![(0, self.sums.tape.files.len() - 1, 0)];
        while let Some((first, last, skipped)) = parts.pop() {
            if first == last {
                continue;
            }
            match self.solve(first, last, skipped).1 {
                None => parts.push((first, last - 1, skipped + self.sums.requests(last))),
                Some(from) => {
                    detours.insert((from, last));
                    parts.extend([(from, last, skipped), (first, from - 1, skipped)]);
                }
            }
        }
        detours
    }

    fn solve(&mut self, first: usize, last: usize, skipped: u128) -> (u128, Option<usize>) {
        if first == last {
            let length = self.sums.end(last) - self.sums.begin(last);
            let waiting = skipped + self.sums.requests_left[last];
            return (2 * length * waiting, None);
        }
        if let Some(known) = self.known.get(&(first, last, skipped)) {
            return *known;
        }
        let later = skipped + self.sums.requests(last);
        let skip = self.sums.skip(first, last, skipped);
        let mut best = (self.solve(first, last - 1, later).0 + skip, None);
        for from in first + 1..=last {
            let inside = self.solve(from, last, skipped).0 + self.sums.turns(from, skipped);
            let left = self.solve(first, from - 1, skipped).0;
            let cost = inside + left + self.sums.way(first, from, last, skipped);
            best = best.min((cost, Some(from)));
        }
        self.known.insert((first, last, skipped), best);
        best
    }
}

/// The best order whose detours lie beside each other.
pub(super) struct SimpleProgram<'a> {
    sums: Sums<'a>,
    known: HashMap<(usize, u128), (u128, Option<usize>)>,
}

impl<'a> SimpleProgram<'a> {
    pub(super) fn new(tape: &'a LinearTape) -> SimpleProgram<'a> {
        SimpleProgram {
            sums: Sums::new(tape),
            known: HashMap::new(),
        }
    }

    pub(super) fn detours(mut self) -> Detours {
        let mut detours = Detours::new();
        let (mut last, mut skipped) = (self.sums.tape.files.len() - 1, 0);
        while last > 0 {
            match self.solve(last, skipped).1 {
                None => {
                    skipped += self.sums.requests(last);
                    last -= 1;
                }
                Some(from) => {
                    detours.insert((from, last));
                    last = from - 1;
                }
            }
        }
        detours
    }

    fn solve(&mut self, last: usize, skipped: u128) -> (u128, Option<usize>) {
        if last == 0 {
            let length = self.sums.end(0) - self.sums.begin(0);
            return (2 * length * skipped, None);
        }
        if let Some(known) = self.known.get(&(last, skipped)) {
            return *known;
        }
        let later = skipped + self.sums.requests(last);
        let skip = self.sums.skip(0, last, skipped);
        let mut best = (self.solve(last - 1, later).0 + skip, None);
        for from in 1..=last {
            let inside = self.sweep(from, last, skipped) + self.sums.turns(from, skipped);
            let left = self.solve(from - 1, skipped).0;
            let cost = inside + left + self.sums.way(0, from, last, skipped);
            best = best.min((cost, Some(from)));
        }
        self.known.insert((last, skipped), best);
        best
    }

    /// Files that are passed in one go: what is behind waits for all of them, and each for those before it.
    fn sweep(&self, from: usize, last: usize, skipped: u128) -> u128 {
        let sums = &self.sums;
        let length = sums.end(last) - sums.begin(from);
        let requests = sums.requests_left[last + 1] - sums.requests_left[from + 1];
        let begins = sums.begins_left[last + 1] - sums.begins_left[from + 1];
        let inside = 2 * (begins - sums.begin(from) * requests);
        2 * length * (skipped + sums.requests_left[from]) + inside
    }
}
