//! A rate that can be published: never a bare number, always with what it counts, over which time and in
//! which unit.
//!
//! Rates of one week's volume over another window's hours have been compared in public before, and differed
//! by a factor of 2.6. A reader can check each rate from here by hand.

use penstock_model::observation::View;
use penstock_model::{Bytes, Timestamp};
use serde::Serialize;

/// The unit of [`MeasuredRate::megabits_per_second`], as it is written beside each figure.
pub const UNIT: &str = "Mb/s (10^6 bits per second of file data)";

/// A view, for people.
pub(crate) fn view_words(view: View) -> &'static str {
    match view {
        View::Vo => "as the transfer service saw them",
        View::Site => "as the storage element saw them",
        View::Network => "as the network saw them",
    }
}

/// Which bytes are in the numerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ByteCount {
    /// The sizes of the files that arrived inside the window; nothing of attempts that failed.
    ArrivedFiles,
    /// Every byte that moved inside the window, also for attempts that failed later.
    MovedBytes,
}

impl ByteCount {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            ByteCount::ArrivedFiles => "files that arrived",
            ByteCount::MovedBytes => "all bytes that moved, also of attempts that failed later",
        }
    }
}

/// How the ends of a window were chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowRule {
    /// From the first start of a transfer to the last end of one (to the last event, while some are still
    /// open).
    FirstStartToLastEnd,
    /// As the reader asked for it.
    AsAsked,
}

impl WindowRule {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            WindowRule::FirstStartToLastEnd => "from the first start to the last end",
            WindowRule::AsAsked => "as asked for",
        }
    }
}

/// A stretch of time, wall clock, with the rule that chose it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Window {
    /// Its beginning, milliseconds since 1970.
    pub from: Timestamp,
    /// Its end, milliseconds since 1970.
    pub to: Timestamp,
    /// How both were chosen.
    pub rule: WindowRule,
}

impl Window {
    /// Its length in seconds; 0 when it ends before it begins (a clock may step back).
    pub fn seconds(&self) -> f64 {
        self.to.since(self.from).as_secs_f64()
    }

    /// `2026-11-21T06:19:52Z to 2026-11-21T06:40:45Z`.
    pub fn words(&self) -> String {
        format!("{}Z to {}Z", self.from.to_fts(), self.to.to_fts())
    }
}

/// A mean rate with everything that is needed to compare it with another one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredRate {
    /// Megabits (10^6) per second.
    pub megabits_per_second: f64,
    /// Always [`UNIT`].
    pub unit: &'static str,
    /// Bytes in the numerator.
    pub bytes: Bytes,
    /// Seconds in the denominator.
    pub seconds: f64,
    /// Whose bytes, in words.
    pub population: String,
    /// Which of their bytes.
    pub counted: ByteCount,
    /// Over which time.
    pub window: Window,
    /// Whose books.
    pub view: View,
}

impl MeasuredRate {
    /// `bytes` over the whole window. `None` when no time passed: no rate is defined then.
    pub fn over(
        window: Window,
        bytes: Bytes,
        population: impl Into<String>,
        counted: ByteCount,
    ) -> Option<Self> {
        let seconds = window.seconds();
        (seconds > 0.0).then(|| MeasuredRate {
            megabits_per_second: megabits_per_second(bytes, seconds),
            unit: UNIT,
            bytes,
            seconds,
            population: population.into(),
            counted,
            window,
            view: View::Vo,
        })
    }
}

/// Megabits per second of `bytes` in `seconds`, which must be above 0.
pub(crate) fn megabits_per_second(bytes: Bytes, seconds: f64) -> f64 {
    bytes.0 as f64 * 8.0 / 1e6 / seconds
}
