//! Whether the wall clock can be believed, before anything that cannot be taken back is done on its word.
//!
//! A wrong answer of a time server or a flat battery would end everything at once that has a term, and what is removed
//! does not come back with the right time. So a clock that leaps, or that says another time than the newest record, is
//! doubted until it has gone steadily for an hour or has gone back to where it was. Meanwhile nothing is pruned, expired
//! or swept on its word; what must go on by some time goes by the time that is believed. A machine that was away for
//! long looks the same; there it costs an hour of patience and nobody's work.

use penstock_model::{TimeSpan, Timestamp};
use std::fmt;
use std::time::Duration;

/// By how much the wall clock and the monotonic clock may disagree: time daemons step a clock by less. A machine that was
/// suspended for longer is doubted for an hour, which harms nobody.
pub const LEAP_TOLERANCE: Duration = Duration::from_secs(60);
/// How long a doubted clock has to go steadily until it is believed.
pub const CONFIRMATION: Duration = Duration::from_secs(3600);
/// By how much the clock may be ahead of the newest record at a start: nothing is recorded while a service is down.
pub const RECORD_GAP_MAX: Duration = Duration::from_secs(7 * 86_400);
/// After so long a credible clock is compared with a newer reading, so that slow drift does not add up.
const ANCHOR_AGE_MAX: Duration = Duration::from_secs(3600);

/// Both clocks at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// What the wall clock says.
    pub wall: Timestamp,
    /// Since some instant that does not change while the process runs.
    pub monotonic: Duration,
}

/// Why a clock is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockDoubt {
    /// It went forward by this much more than the time that passed.
    LeaptForward(Duration),
    /// It went back by this much.
    LeaptBack(Duration),
    /// At the start it was so far ahead of the newest record.
    AheadOfRecord(Duration),
    /// At the start it was so far behind the newest record.
    BehindRecord(Duration),
}

/// Whether a clock is believed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClockTrust {
    #[default]
    Credible,
    /// Not yet.
    Doubted {
        because: ClockDoubt,
        /// How much longer it has to go steadily.
        left: Duration,
    },
}

impl ClockTrust {
    /// Why it is not believed, and how much longer it has to go steadily.
    pub fn doubt(self) -> Option<(ClockDoubt, Duration)> {
        match self {
            ClockTrust::Credible => None,
            ClockTrust::Doubted { because, left } => Some((because, left)),
        }
    }
}

/// What a reading of both clocks means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockView {
    /// The time by which terms end now: the wall clock's, unless that is doubted; then what time has passed since it was
    /// believed, or what it says where that is earlier.
    pub believed: Timestamp,
    /// The time that is written into records now: the wall clock's, unless that is doubted because it is behind. What
    /// ended by such a clock would be over its term as soon as the clock is set right.
    pub recorded: Timestamp,
    /// Whether the wall clock is believed.
    pub trust: ClockTrust,
    /// What has become of that since the reading before, for operators.
    pub change: Option<TrustChange>,
}

/// How the trust in a clock has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustChange {
    /// It is doubted from now on.
    Lost {
        because: ClockDoubt,
        /// How much longer it has to go steadily.
        left: Duration,
    },
    /// It is believed again.
    Regained,
}

/// Follows the clocks of a process from one reading to the next. Readings are taken by whoever owns it.
#[derive(Debug, Clone)]
pub struct ClockTracker {
    check: ClockCheck,
    trust: ClockTrust,
}

impl ClockTracker {
    /// Begins with the first reading of a process. `newest_record`: the time of the newest record of an earlier one.
    pub fn begin(first: ClockReading, newest_record: Option<Timestamp>) -> ClockTracker {
        ClockTracker {
            check: ClockCheck::begin(first, newest_record),
            trust: ClockTrust::Credible,
        }
    }

    /// Begins again with this reading, because the newest record of an earlier process is known only now.
    pub fn compare_with_record(&mut self, reading: ClockReading, newest_record: Timestamp) {
        self.check = ClockCheck::begin(reading, Some(newest_record));
    }

    /// Takes a later reading into account.
    pub fn observe(&mut self, reading: ClockReading) -> ClockView {
        let trust = self.check.observe(reading);
        let before = std::mem::replace(&mut self.trust, trust);
        let change = match (before, trust) {
            (ClockTrust::Credible, ClockTrust::Doubted { because, left }) => {
                Some(TrustChange::Lost { because, left })
            }
            (ClockTrust::Doubted { .. }, ClockTrust::Credible) => Some(TrustChange::Regained),
            (ClockTrust::Credible, ClockTrust::Credible)
            | (ClockTrust::Doubted { .. }, ClockTrust::Doubted { .. }) => None,
        };
        ClockView {
            believed: self.check.believed(reading),
            recorded: self.check.recorded(reading),
            trust,
            change,
        }
    }

    /// As of the last reading.
    pub fn trust(&self) -> ClockTrust {
        self.trust
    }
}

/// What is known of a clock from one reading to the next.
#[derive(Debug, Clone)]
struct ClockCheck {
    /// The reading that the next ones are compared with.
    anchor: ClockReading,
    doubt: Option<Doubt>,
}

#[derive(Debug, Clone, Copy)]
struct Doubt {
    because: ClockDoubt,
    trusted: TrustedReading,
}

/// What is believed instead of a clock that is doubted.
#[derive(Debug, Clone, Copy)]
enum TrustedReading {
    /// The reading before the leap.
    Reading(ClockReading),
    /// The newest record of an earlier process, as of the first reading: the clock was never believed.
    Record(ClockReading),
}

impl TrustedReading {
    fn reading(self) -> ClockReading {
        match self {
            TrustedReading::Reading(reading) | TrustedReading::Record(reading) => reading,
        }
    }

    /// Why a reading does not go with it; `None` when it does.
    fn against(self, reading: ClockReading) -> Option<ClockDoubt> {
        match self {
            TrustedReading::Reading(trusted) => leap(trusted, reading),
            TrustedReading::Record(record) => {
                against_record(reading.wall, expected(record, reading))
            }
        }
    }
}

impl ClockCheck {
    fn begin(first: ClockReading, newest_record: Option<Timestamp>) -> ClockCheck {
        let doubt = newest_record.and_then(|newest| {
            let record = ClockReading {
                wall: newest,
                monotonic: first.monotonic,
            };
            let because = against_record(first.wall, newest)?;
            let trusted = TrustedReading::Record(record);
            Some(Doubt { because, trusted })
        });
        ClockCheck {
            anchor: first,
            doubt,
        }
    }

    fn observe(&mut self, reading: ClockReading) -> ClockTrust {
        let leap = leap(self.anchor, reading);
        let age = reading.monotonic.saturating_sub(self.anchor.monotonic);
        match (self.doubt, leap) {
            (None, None) if age < ANCHOR_AGE_MAX => {}
            (None, None) => self.anchor = reading,
            (None, Some(because)) => {
                let trusted = TrustedReading::Reading(std::mem::replace(&mut self.anchor, reading));
                self.doubt = Some(Doubt { because, trusted });
            }
            (Some(doubt), leapt) => match doubt.trusted.against(reading) {
                Some(because) if leapt.is_some() || age < CONFIRMATION => {
                    self.doubt = Some(Doubt { because, ..doubt });
                    if leapt.is_some() {
                        self.anchor = reading;
                    }
                }
                Some(_) | None => {
                    self.doubt = None;
                    self.anchor = reading;
                }
            },
        }
        self.standing(reading)
    }

    /// See [`ClockView`]; after [`ClockCheck::observe`] of the same reading.
    fn believed(&self, reading: ClockReading) -> Timestamp {
        let trusted = self
            .doubt
            .map(|doubt| expected(doubt.trusted.reading(), reading));
        trusted.map_or(reading.wall, |trusted| trusted.min(reading.wall))
    }

    /// The same.
    fn recorded(&self, reading: ClockReading) -> Timestamp {
        let trusted = self
            .doubt
            .map(|doubt| expected(doubt.trusted.reading(), reading));
        trusted.map_or(reading.wall, |trusted| trusted.max(reading.wall))
    }

    fn standing(&self, reading: ClockReading) -> ClockTrust {
        let steady = reading.monotonic.saturating_sub(self.anchor.monotonic);
        match &self.doubt {
            None => ClockTrust::Credible,
            Some(doubt) => ClockTrust::Doubted {
                because: doubt.because,
                left: CONFIRMATION.saturating_sub(steady),
            },
        }
    }
}

fn against_record(now: Timestamp, newest: Timestamp) -> Option<ClockDoubt> {
    let (ahead, behind) = (now.since(newest), newest.since(now));
    match () {
        () if ahead > RECORD_GAP_MAX => Some(ClockDoubt::AheadOfRecord(ahead)),
        () if behind > LEAP_TOLERANCE => Some(ClockDoubt::BehindRecord(behind)),
        () => None,
    }
}

/// What the wall clock should say at a later reading.
fn expected(from: ClockReading, to: ClockReading) -> Timestamp {
    from.wall + to.monotonic.saturating_sub(from.monotonic)
}

/// How the wall clock went between two readings, when it was not as time passed.
fn leap(from: ClockReading, to: ClockReading) -> Option<ClockDoubt> {
    let expected = expected(from, to);
    let (ahead, behind) = (to.wall.since(expected), expected.since(to.wall));
    match () {
        () if ahead > LEAP_TOLERANCE => Some(ClockDoubt::LeaptForward(ahead)),
        () if behind > LEAP_TOLERANCE => Some(ClockDoubt::LeaptBack(behind)),
        () => None,
    }
}

impl fmt::Display for ClockDoubt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClockDoubt::LeaptForward(by) => {
                write!(out, "the clock leapt forward by {}", TimeSpan(*by))
            }
            ClockDoubt::LeaptBack(by) => {
                write!(out, "the clock leapt back by {}", TimeSpan(*by))
            }
            ClockDoubt::AheadOfRecord(by) => {
                write!(
                    out,
                    "the clock is {} ahead of the newest record",
                    TimeSpan(*by)
                )
            }
            ClockDoubt::BehindRecord(by) => {
                write!(
                    out,
                    "the clock is {} behind the newest record",
                    TimeSpan(*by)
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn at(wall_seconds: i64, monotonic_seconds: u64) -> ClockReading {
        ClockReading {
            wall: Timestamp(wall_seconds * 1000),
            monotonic: Duration::from_secs(monotonic_seconds),
        }
    }

    fn started() -> ClockCheck {
        ClockCheck::begin(at(1000 * DAY, 0), Some(Timestamp(1000 * DAY * 1000 - 5)))
    }

    fn because(standing: ClockTrust) -> Option<ClockDoubt> {
        match standing {
            ClockTrust::Credible => None,
            ClockTrust::Doubted { because, .. } => Some(because),
        }
    }

    #[test]
    fn a_clock_that_goes_as_time_passes_is_believed() {
        let mut clock = started();
        for hour in 1..100 {
            // An oscillator that is wrong by as much as any is, and a step of a time daemon.
            let drift = i64::from(hour == 50) * 30;
            let reading = at(1000 * DAY + hour * 3601 + drift, hour as u64 * 3600);
            assert_eq!(clock.observe(reading), ClockTrust::Credible, "hour {hour}");
        }
    }

    #[test]
    fn a_leap_is_doubted_for_an_hour_of_steady_time() {
        for (by, expected) in [
            (
                400 * DAY,
                ClockDoubt::LeaptForward(Duration::from_secs(400 * DAY as u64)),
            ),
            (-3600, ClockDoubt::LeaptBack(Duration::from_secs(3600))),
        ] {
            let mut clock = started();
            assert_eq!(clock.observe(at(1000 * DAY + 10, 10)), ClockTrust::Credible);
            let leapt = clock.observe(at(1000 * DAY + by + 20, 20));
            assert_eq!(because(leapt), Some(expected));
            let later = clock.observe(at(1000 * DAY + by + 3610, 3610));
            assert_eq!(
                later,
                ClockTrust::Doubted {
                    because: expected,
                    left: Duration::from_secs(10)
                }
            );
            let confirmed = clock.observe(at(1000 * DAY + by + 3620, 3620));
            assert_eq!(confirmed, ClockTrust::Credible);
        }
    }

    #[test]
    fn records_go_on_from_where_the_clock_was_before_it_went_back_and_follow_it_forward() {
        let mut clock = started();
        clock.observe(at(1000 * DAY + 10, 10));
        for (wall, expected) in [(20, 1000 * DAY + 20), (1400 * DAY, 1400 * DAY)] {
            let mut clock = clock.clone();
            clock.observe(at(wall, 20));
            assert_eq!(clock.recorded(at(wall, 20)), at(expected, 20).wall);
        }
        // A battery that was flat at the start.
        let newest = Some(Timestamp(1000 * DAY * 1000));
        let mut clock = ClockCheck::begin(at(0, 0), newest);
        clock.observe(at(30, 30));
        assert_eq!(clock.recorded(at(30, 30)), at(1000 * DAY + 30, 30).wall);
        let right = at(1001 * DAY, 60);
        clock.observe(right);
        assert_eq!(clock.recorded(right), right.wall);
    }

    #[test]
    fn a_second_leap_begins_the_hour_anew() {
        let mut clock = started();
        clock.observe(at(1400 * DAY, 10));
        clock.observe(at(1500 * DAY, 3000));
        let doubted = clock.observe(at(1500 * DAY + 3000, 6000));
        let ClockTrust::Doubted { because, left } = doubted else {
            panic!("{doubted:?}");
        };
        assert_eq!(left, Duration::from_secs(600));
        assert!(
            matches!(because, ClockDoubt::LeaptForward(by) if by > Duration::from_secs(499 * 86_400))
        );
    }

    #[test]
    fn a_clock_that_is_set_right_again_is_believed_at_once() {
        let mut clock = started();
        assert!(because(clock.observe(at(1400 * DAY, 10))).is_some());
        assert_eq!(clock.observe(at(1000 * DAY + 20, 20)), ClockTrust::Credible);
        // At a start as well, when it was down for some days.
        let record = Some(Timestamp((1000 * DAY - 3 * DAY) * 1000));
        let mut clock = ClockCheck::begin(at(1400 * DAY, 5), record);
        assert!(because(clock.observe(at(1400 * DAY + 1, 6))).is_some());
        assert_eq!(clock.observe(at(1000 * DAY + 2, 7)), ClockTrust::Credible);
    }

    #[test]
    fn what_is_believed_goes_on_as_time_passes() {
        let believed = |clock: &mut ClockCheck, reading: ClockReading| {
            clock.observe(reading);
            clock.believed(reading).0 / 1000
        };
        let mut clock = started();
        let base = 1000 * DAY;
        assert_eq!(believed(&mut clock, at(base + 10, 10)), base + 10);
        assert_eq!(believed(&mut clock, at(1400 * DAY, 20)), base + 20);
        assert_eq!(
            believed(&mut clock, at(1400 * DAY + 3599, 3619)),
            base + 3619
        );
        assert_eq!(
            believed(&mut clock, at(1400 * DAY + 3600, 3620)),
            1400 * DAY + 3600,
            "it has lasted"
        );
        // One that was set back ends less, not more.
        assert_eq!(
            believed(&mut clock, at(1390 * DAY, 3630)),
            1390 * DAY,
            "set back"
        );
        // At a start terms go on from the newest record.
        let mut clock = ClockCheck::begin(at(1400 * DAY, 0), Some(Timestamp(base * 1000)));
        assert_eq!(believed(&mut clock, at(1400 * DAY + 60, 60)), base + 60);
    }

    #[test]
    fn each_change_of_trust_is_told_once() {
        let mut clock = ClockTracker::begin(at(1000 * DAY, 0), None);
        assert_eq!(clock.observe(at(1000 * DAY + 10, 10)).change, None);
        let leapt = clock.observe(at(1400 * DAY, 20));
        let because = ClockDoubt::LeaptForward(Duration::from_secs(400 * 86_400 - 20));
        let left = CONFIRMATION;
        assert_eq!(leapt.change, Some(TrustChange::Lost { because, left }));
        assert_eq!(clock.observe(at(1400 * DAY + 10, 30)).change, None);
        let set_right = clock.observe(at(1000 * DAY + 40, 40));
        assert_eq!(set_right.change, Some(TrustChange::Regained));
        assert_eq!(clock.trust(), ClockTrust::Credible);
        assert_eq!(clock.observe(at(1000 * DAY + 50, 50)).change, None);
    }

    #[test]
    fn small_steps_add_up() {
        let mut clock = started();
        let steps = (1..20).map(|step| clock.observe(at(1000 * DAY + 50 * step, step as u64)));
        assert!(
            steps
                .last()
                .is_some_and(|standing| standing != ClockTrust::Credible)
        );
    }

    #[test]
    fn at_a_start_the_newest_record_is_asked() {
        let begin = |record_days: i64| {
            let mut clock =
                ClockCheck::begin(at(1000 * DAY, 5), Some(Timestamp(record_days * DAY * 1000)));
            because(clock.observe(at(1000 * DAY, 5)))
        };
        let days = |days: u64| Duration::from_secs(days * 86_400);
        assert_eq!(begin(1000), None);
        assert_eq!(begin(995), None, "it was down for some days");
        assert_eq!(begin(900), Some(ClockDoubt::AheadOfRecord(days(100))));
        assert_eq!(begin(1100), Some(ClockDoubt::BehindRecord(days(100))));
        let mut new = ClockCheck::begin(at(0, 5), None);
        assert_eq!(new.observe(at(1, 6)), ClockTrust::Credible);
    }

    #[test]
    fn it_is_told_in_words() {
        let told = ClockDoubt::LeaptForward(Duration::from_secs(400 * 86_400)).to_string();
        assert_eq!(told, "the clock leapt forward by 400 days");
        let told = ClockDoubt::BehindRecord(Duration::from_secs(7200)).to_string();
        assert_eq!(told, "the clock is 2 h behind the newest record");
    }
}
