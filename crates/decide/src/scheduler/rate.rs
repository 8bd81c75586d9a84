//! Caps of bytes per second at one place: a link, or one direction of a storage element.
//!
//! Nobody can slow down a third-party copy, so a cap holds when transfers start. A transfer starts when no ten seconds
//! would carry more than the cap allows, made of what has moved and what may still move: of a short file all that is
//! left of it, of a long one as much as its rate brings. Starts are spread evenly besides, so that no burst is followed
//! by silence. A file that is by itself more than ten seconds of the cap runs without company, at whatever speed.

use penstock_model::{Rate, SlotBound};
use std::collections::VecDeque;

/// Over so many seconds a rate is held.
const WINDOW_SECONDS: usize = 10;
/// Moved bytes are remembered by slices of the window.
const SLICE_MS: u64 = 200;
const SLICES_PER_SECOND: usize = 1_000 / SLICE_MS as usize;
const SLICES: usize = WINDOW_SECONDS * SLICES_PER_SECOND;
/// How much of the window's bytes may be used, in percent: the pace keeps the average at the cap, and this leaves it room.
const WINDOW_PERCENT: u64 = 106;
/// Starts that did not happen for so long may be made up for at once.
const CATCH_UP_MS: u64 = 500;
/// A file that ends within so many milliseconds may as well move at once.
const SHORT_MS: u64 = 1_500;
/// Running files that take all of the cap leave this part of it to the pace of starts.
const PACE_PART_MIN: u64 = 20;
/// A transfer's rate is that of its last seconds, of so many at least and at most.
const MEASURED_MS_MIN: u64 = 2_000;
const MEASURED_MS_MAX: u64 = 5_000;
/// A transfer that was not seen to move for so long has no rate of its last seconds.
const STALLED_MS: u64 = 10_000;

/// Bytes that may move at once, within the next second, and so on, until a second after the end of the window: they are
/// counted once a second, and looked at until a second later.
pub(super) type ByteForecast = [u64; WINDOW_SECONDS + 2];

/// What a transfer moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flow {
    /// Its bytes, as far as they are known; else as many as the link's files usually have. `u64::MAX`: nothing is known.
    pub(super) size: u64,
    pub(super) moved: u64,
    /// Bytes per second, at most; `None`: nothing is known.
    pub(super) rate: Option<u64>,
    /// Both ends have been asked, and bytes may move.
    pub(super) is_prepared: bool,
    /// When it was seen to have moved last, or began.
    seen_ms: u64,
    /// Where the counting of its rate begins.
    mark: RateMark,
    is_measured: bool,
}

/// What of a transfer had moved at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RateMark {
    at_ms: u64,
    moved: u64,
}

/// Bytes that moved since a transfer was seen to have moved last.
pub(super) struct SeenMove {
    pub(super) since_ms: u64,
    pub(super) bytes: u64,
}

impl Flow {
    pub(super) fn begin(now_ms: u64, size: u64, rate: Option<u64>) -> Flow {
        Flow {
            size,
            moved: 0,
            rate,
            is_prepared: false,
            seen_ms: now_ms,
            mark: RateMark {
                at_ms: now_ms,
                moved: 0,
            },
            is_measured: false,
        }
    }

    /// What may still move of it at a place with such a cap.
    pub(super) fn ahead(&self, cap: u64) -> ByteForecast {
        let rest = self.size.saturating_sub(self.moved);
        let window = cap.saturating_mul(WINDOW_SECONDS as u64);
        let by_rate = |rate: u64| {
            let until = |seconds: usize| rate.saturating_mul(seconds as u64);
            std::array::from_fn(|seconds| rest.min(until(seconds)).min(window))
        };
        match self.rate {
            _ if rest > window && self.rate.is_none_or(|rate| rate > cap) => {
                // Without company any file may run.
                [window; WINDOW_SECONDS + 2]
            }
            // A few such files fill the cap: whether one is faster than others were decides.
            Some(rate) if rest <= window && rate > cap / 2 => [rest; WINDOW_SECONDS + 2],
            Some(rate) if u128::from(rest) * 1_000 > u128::from(rate) * u128::from(SHORT_MS) => {
                by_rate(rate)
            }
            Some(_) | None => [rest; WINDOW_SECONDS + 2],
        }
    }

    /// So much has moved by now. `None`: nothing since it was seen last.
    pub(super) fn advance(&mut self, now_ms: u64, moved: u64) -> Option<SeenMove> {
        if moved < self.moved {
            // It began anew in another way.
            self.moved = 0;
            self.mark = RateMark {
                at_ms: now_ms,
                moved: 0,
            };
        }
        let (since_ms, more) = (self.seen_ms, moved - self.moved);
        let passed_ms = now_ms.saturating_sub(self.mark.at_ms);
        let is_stalled = now_ms.saturating_sub(since_ms) > STALLED_MS;
        if passed_ms >= MEASURED_MS_MIN && moved > 0 && (more > 0 || is_stalled) {
            self.rate = Some(per_second(moved - self.mark.moved, passed_ms));
            self.is_measured = true;
        }
        if more == 0 {
            return None;
        }
        if passed_ms > MEASURED_MS_MAX {
            self.mark = RateMark {
                at_ms: now_ms,
                moved,
            };
        }
        (self.moved, self.seen_ms) = (moved, now_ms);
        Some(SeenMove {
            since_ms,
            bytes: more,
        })
    }

    /// Its rate, once that is measured.
    pub(super) fn measured(&self) -> Option<u64> {
        self.rate.filter(|_| self.is_measured)
    }

    /// When it was seen to have moved last, or began.
    pub(super) fn seen_ms(&self) -> u64 {
        self.seen_ms
    }
}

/// What a start uses up of the pace: what moves in the window.
pub(super) fn charge(next: &ByteForecast) -> u64 {
    next[WINDOW_SECONDS]
}

/// Bytes in milliseconds, as bytes per second.
pub(super) fn per_second(bytes: u64, ms: u64) -> u64 {
    let rate = u128::from(bytes) * 1_000 / u128::from(ms.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// What moves at a place, and what may.
#[derive(Debug, Default)]
pub(super) struct RateGate {
    cap: Option<u64>,
    /// Bytes that have moved, by slices of time; the last one is of [`RateGate::newest`].
    moved: VecDeque<u64>,
    newest: u64,
    /// What all that runs may still move, as it was counted at this time.
    ahead: ByteForecast,
    counted_ms: u64,
    /// Until when what has started uses up the cap.
    paced_until_ms: u64,
    /// Bytes that the next start needs. They are saved up for it, so that smaller files cannot pass it for ever.
    kept_for: Option<ByteForecast>,
}

impl RateGate {
    pub(super) fn new(cap: Option<Rate>) -> RateGate {
        RateGate {
            cap: cap.map(|cap| cap.0),
            ..RateGate::default()
        }
    }

    pub(super) fn cap(&self) -> Option<u64> {
        self.cap
    }

    pub(super) fn set_cap(&mut self, cap: Option<Rate>) {
        let cap = cap.map(|cap| cap.0);
        if self.cap != cap {
            (self.cap, self.kept_for, self.paced_until_ms) = (cap, None, 0);
        }
    }

    /// Whether a new one in its place would hold back no less: nothing moved for longer than is counted.
    pub(super) fn is_at_rest(&self, now_ms: u64) -> bool {
        let counted_until = self.newest + SLICES as u64 + 1;
        let is_over = self.moved.is_empty() || now_ms / SLICE_MS > counted_until;
        self.cap.is_none() || self.paced_until_ms <= now_ms && is_over
    }

    /// Whether the transfer whose turn it is may start, as far as that is known.
    pub(super) fn is_open(&self, now_ms: u64) -> bool {
        self.cap.is_none() || self.fits(now_ms, &self.kept_for.unwrap_or_default())
    }

    /// Whether one more transfer of this many bytes may start.
    pub(super) fn fits(&self, now_ms: u64, next: &ByteForecast) -> bool {
        let Some(cap) = self.cap else {
            return true;
        };
        if self.paced_until_ms > now_ms {
            return false;
        }
        let allowed = u128::from(cap) * WINDOW_SECONDS as u128 * u128::from(WINDOW_PERCENT) / 100;
        let mut windows = self.windows(now_ms, next);
        windows.all(|bytes| bytes <= allowed)
    }

    /// The bytes of each ten seconds of which some are to come.
    fn windows(&self, now_ms: u64, next: &ByteForecast) -> impl Iterator<Item = u128> {
        let slice = now_ms / SLICE_MS;
        let mut past = [0u128; WINDOW_SECONDS + 1];
        for (back, bytes) in self.moved.iter().rev().enumerate() {
            let age = usize::try_from(slice.saturating_sub(self.newest)).unwrap_or(usize::MAX);
            // A slice that is partly in a window counts as one that is in it.
            let seconds = age.saturating_add(back).div_ceil(SLICES_PER_SECOND);
            if let Some(of_age) = past.get_mut(seconds) {
                *of_age += u128::from(*bytes);
            }
        }
        let mut sum = 0;
        let sums = past.map(|bytes| {
            sum += bytes;
            sum
        });
        let (ahead, next) = (self.ahead, *next);
        let late_ms = u128::from(now_ms.saturating_sub(self.counted_ms).min(1_000));
        (0..=WINDOW_SECONDS).map(move |seconds| {
            let (until, later) = (u128::from(ahead[seconds]), u128::from(ahead[seconds + 1]));
            let running = until + later.saturating_sub(until) * late_ms / 1_000;
            sums[WINDOW_SECONDS - seconds] + running + u128::from(next[seconds])
        })
    }

    /// Bytes that the next start needs.
    pub(super) fn keep_for(&mut self, next: ByteForecast) {
        self.kept_for = self.cap.map(|_| next);
    }

    /// A transfer starts that may move this many bytes.
    pub(super) fn start(&mut self, now_ms: u64, next: &ByteForecast) {
        self.kept_for = None;
        self.paced_until_ms = self.paced_until_ms.max(now_ms.saturating_sub(CATCH_UP_MS));
        self.pace(charge(next), 0);
        self.expect(&ByteForecast::default(), next);
    }

    /// More or less may move than was expected.
    pub(super) fn expect(&mut self, before: &ByteForecast, after: &ByteForecast) {
        for (sum, (before, after)) in self.ahead.iter_mut().zip(before.iter().zip(after)) {
            *sum = sum.saturating_sub(*before).saturating_add(*after);
        }
    }

    /// What all that runs may move is counted anew.
    pub(super) fn expect_anew(&mut self, now_ms: u64) {
        (self.ahead, self.counted_ms) = (ByteForecast::default(), now_ms);
    }

    /// Starts go on later by so many bytes, and earlier by so many. What runs for longer than the window takes its rate.
    pub(super) fn pace(&mut self, more: u64, less: u64) {
        let Some(cap) = self.cap.map(|cap| cap.max(1)) else {
            return;
        };
        let lasting = self.ahead[WINDOW_SECONDS].saturating_sub(self.ahead[WINDOW_SECONDS - 1]);
        let pace = cap.saturating_sub(lasting).max(cap / PACE_PART_MIN).max(1);
        let ms = |bytes: u64| {
            let ms = u128::from(bytes) * 1_000 / u128::from(pace);
            u64::try_from(ms).unwrap_or(u64::MAX)
        };
        self.paced_until_ms =
            (self.paced_until_ms.saturating_add(ms(more))).saturating_sub(ms(less));
    }

    /// So many bytes have moved from then until now.
    pub(super) fn moved(&mut self, since_ms: u64, now_ms: u64, bytes: u64) {
        if self.cap.is_none() {
            return;
        }
        let last = (now_ms / SLICE_MS).max(self.newest);
        let first = (since_ms / SLICE_MS).min(last);
        let passed = usize::try_from(last - self.newest).unwrap_or(usize::MAX);
        // From the first bytes on there is a place for each slice, or what moved before the first look would be lost.
        self.moved.resize(SLICES + 1, 0);
        for _ in 0..passed.min(SLICES + 1) {
            self.moved.pop_front();
            self.moved.push_back(0);
        }
        self.newest = last;
        let slices = last - first + 1;
        let (each, rest) = (bytes / slices, bytes % slices);
        let in_window = usize::try_from(slices).unwrap_or(usize::MAX);
        for slice in self.moved.iter_mut().rev().take(in_window) {
            *slice = slice.saturating_add(each);
        }
        if let Some(newest) = self.moved.back_mut() {
            *newest = newest.saturating_add(rest);
        }
    }

    /// What a transfer that waits for the rate is told: how much moves in the fullest ten seconds with what has just been
    /// started, and how much may.
    pub(super) fn bound(&self, now_ms: u64) -> Option<SlotBound> {
        let cap = self.cap?;
        let fullest = self.windows(now_ms, &ByteForecast::default()).max();
        let rate = fullest.unwrap_or_default() / WINDOW_SECONDS as u128;
        Some(SlotBound::Rate {
            rate: Rate(u64::try_from(rate).unwrap_or(u64::MAX)),
            cap: Rate(cap),
        })
    }
}
