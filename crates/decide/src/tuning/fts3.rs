//! FTS3's published rules (release 3.14, `OptimizerConnections`), to compare with. One decision a minute.

use super::Bounds;

/// FTS's optimizer modes that tune.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fts3Mode {
    /// 1: no growth beyond the queue.
    Conservative,
    /// 2 and 3.
    Normal,
}

/// What the rules look at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fts3Seen {
    /// Bytes per second in its window.
    pub throughput: f64,
    /// Percent of the transfers that ended well; failures that no retry helps do not count.
    pub success: f64,
    /// Retries in the window.
    pub retries: u32,
    /// Mean size of files, bytes.
    pub size: f64,
    /// Waiting.
    pub queue: u32,
}

/// Its memory of one link.
#[derive(Debug, Clone)]
pub struct Fts3Rules {
    mode: Fts3Mode,
    bounds: Bounds,
    value: Option<u32>,
    average: f64,
    before: Option<Fts3Seen>,
}

impl Fts3Rules {
    /// One that has decided nothing yet.
    pub fn new(mode: Fts3Mode, bounds: Bounds) -> Fts3Rules {
        Fts3Rules {
            mode,
            bounds,
            value: None,
            average: 0.0,
            before: None,
        }
    }

    /// Takes a minute's view and gives the next number.
    pub fn decide(&mut self, seen: Fts3Seen) -> u32 {
        let average_before = self.average;
        if seen.throughput > 0.0 {
            self.average = match average_before > 0.0 {
                true => 0.1 * seen.throughput + 0.9 * average_before,
                false => seen.throughput,
            };
        }
        let before = self.before.replace(seen);
        let (Some(value), Some(before)) = (self.value, before) else {
            let first = self.bounds.min.midpoint(self.bounds.max);
            self.value = Some(first);
            return first;
        };
        let step = match self.mode {
            Fts3Mode::Conservative => 1,
            Fts3Mode::Normal => 2,
        };
        let magnitude = |value: f64| value.max(1.0).log10().round() as i64;
        let less = value.saturating_sub(1);
        let next = if seen.success < 97.0 {
            let improves = seen.success > before.success && seen.success >= 96.0;
            match improves && seen.retries <= before.retries {
                true => value,
                false => less,
            }
        } else if self.average == 0.0 || seen.queue < value {
            value
        } else if self.average >= average_before || magnitude(seen.size) < magnitude(before.size) {
            value + step
        } else if magnitude(self.average) < magnitude(average_before) {
            less
        } else {
            value
        };
        let most = match self.mode {
            Fts3Mode::Conservative => seen.queue.max(1),
            Fts3Mode::Normal => seen.queue.saturating_mul(16).max(1),
        };
        let next = if next > value {
            next.min(most.max(value))
        } else {
            next
        };
        let next = self.bounds.clamp(next);
        self.value = Some(next);
        next
    }
}
