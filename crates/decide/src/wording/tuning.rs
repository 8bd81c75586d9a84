//! Why so many transfers run, as sentences.

use penstock_model::{Fts3Reason, Rate, TrialResult, TuneReason};

/// Why a number of transfers or connections was chosen, as one sentence without a full stop.
pub fn tune_reason(because: &TuneReason) -> String {
    match because {
        TuneReason::Begins => "no measurements yet; trying a first number".to_owned(),
        TuneReason::Remembers => "continuing with the number found earlier".to_owned(),
        TuneReason::Pays { before, now } => {
            let (less, more) = ends(before, now);
            format!("{} is worth it beside {}", tried(more), tried(less))
        }
        TuneReason::DoesNotPay { before, now } => {
            let (less, more) = ends(before, now);
            format!("{} is not worth it beside {}", tried(more), tried(less))
        }
        TuneReason::Keeps { best } => format!("{} is the best number tried", tried(best)),
        TuneReason::Probes => "stable; trying slightly more or fewer".to_owned(),
        TuneReason::Changed { was, now } => format!(
            "{} was {} before, so it is measured again",
            tried(now),
            work(was)
        ),
        TuneReason::PushedBack => "a storage element reported overload".to_owned(),
        TuneReason::QueuedThere { waiting } => {
            format!("{waiting} of them are queued at a storage element")
        }
        TuneReason::Bounded => "an operator fixed the number".to_owned(),
        TuneReason::SharesStorage { links } => {
            format!("{links} links share a storage element, and this is the link's part")
        }
        TuneReason::FollowsQueue => "no more files are queued".to_owned(),
        TuneReason::WindowLimited { percent } => format!(
            "copies are limited by TCP windows {percent} % of the time, without packet loss: more connections are tried"
        ),
        TuneReason::StreamsDoNotHelp => "more connections do not help".to_owned(),
        TuneReason::SegmentsLost { per_million } => format!(
            "{per_million} in a million segments are lost: more connections increase the loss"
        ),
        TuneReason::Fts3(why) => fts3_reason(*why).to_owned(),
    }
}

/// FTS3's own words for its rules.
fn fts3_reason(why: Fts3Reason) -> &'static str {
    match why {
        Fts3Reason::NoInformation => "No information. Start halfway.",
        Fts3Reason::BadEfficiency => "Bad link efficiency",
        Fts3Reason::Improving => "Bad link efficiency but progressively better",
        Fts3Reason::NoThroughput => "No throughput",
        Fts3Reason::QueueEmptying => "Queue emptying. Hold on.",
        Fts3Reason::SmallerFiles => {
            "Good link efficiency, throughput deterioration, avg. filesize decreasing"
        }
        Fts3Reason::WorseThroughput => "Good link efficiency, throughput deterioration",
        Fts3Reason::SmallDeterioration => "Good link efficiency, small throughput deterioration",
        Fts3Reason::Good => "Good link efficiency",
    }
}

/// The smaller number first.
fn ends<'a>(one: &'a TrialResult, other: &'a TrialResult) -> (&'a TrialResult, &'a TrialResult) {
    match one.active <= other.active {
        true => (one, other),
        false => (other, one),
    }
}

fn tried(tried: &TrialResult) -> String {
    format!("{} with {:.0} at once", work(tried), tried.active)
}

fn work(tried: &TrialResult) -> String {
    Rate(tried.work() as u64).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(active: f64, work: f64) -> TrialResult {
        TrialResult {
            active,
            ln: work.ln(),
            error: 0.01,
        }
    }

    #[test]
    fn reasons_name_what_was_compared() {
        let (few, many) = (at(10.0, 1.001e8), at(20.0, 1.901e8));
        assert_eq!(
            tune_reason(&TuneReason::Pays {
                before: few,
                now: many
            }),
            "190.1 MB/s with 20 at once is worth it beside 100.1 MB/s with 10 at once"
        );
        assert_eq!(
            tune_reason(&TuneReason::Changed {
                was: many,
                now: at(20.0, 9e7)
            }),
            "90.0 MB/s with 20 at once was 190.1 MB/s before, so it is measured again"
        );
    }
}
