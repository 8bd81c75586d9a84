//! Which replica of a file is tried next. What is not known of a link counts as good, so that links get known.

use crate::decision::Decision;
use penstock_model::{Bytes, ChoiceReason, Selection, TransferId};

/// What is known of the link that a replica would take.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LinkFacts {
    /// Files that wait on it.
    pub queued: u64,
    /// What they hold together, as far as their sizes were told.
    pub queued_bytes: u64,
    /// The fraction of the latest attempts that succeeded.
    pub success: Option<f64>,
    /// Bytes per second of all files together.
    pub rate: Option<f64>,
    /// Bytes per second of one file.
    pub file_rate: Option<f64>,
}

/// A replica that was not tried yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Which transfer would bring it. The lower, the earlier in the submission.
    pub transfer: TransferId,
    pub link: LinkFacts,
}

/// The best of the candidates by this strategy; `None` when there is none. Of equals the first submitted.
pub fn choose(
    candidates: &[Candidate],
    by: Selection,
    size: Option<Bytes>,
) -> Option<Decision<TransferId, ChoiceReason>> {
    let scored = candidates.iter().map(|candidate| {
        let value = value(&candidate.link, by, size);
        (cost(value, by), candidate.transfer, value)
    });
    let first = |left: &(f64, TransferId, _), right: &(f64, TransferId, _)| {
        left.0.total_cmp(&right.0).then(left.1.cmp(&right.1))
    };
    let (_, transfer, value) = scored.min_by(first)?;
    let reason = ChoiceReason::Replica {
        by,
        value,
        of: candidates.len() as u32,
    };
    Some(Decision {
        choice: transfer,
        because: vec![reason],
    })
}

/// What the strategy compares, in its unit.
fn value(link: &LinkFacts, by: Selection, size: Option<Bytes>) -> Option<f64> {
    let waiting = || Some(link.queued_bytes as f64 / link.rate.filter(|rate| *rate > 0.0)?);
    match by {
        Selection::Orderly => None,
        Selection::Queue => Some(link.queued as f64),
        Selection::Success => link.success,
        Selection::Throughput => link.rate,
        Selection::FileThroughput => link.file_rate,
        Selection::PendingData => Some(link.queued_bytes as f64),
        Selection::WaitingTime => waiting(),
        Selection::WaitingTimeWithError => {
            waiting().map(|seconds| seconds / link.success.unwrap_or(1.0).max(0.01))
        }
        Selection::Duration => {
            let own = size.map_or(0.0, |size| size.0 as f64);
            let rate = link.file_rate.filter(|rate| *rate > 0.0)?;
            Some(waiting().unwrap_or(0.0) + own / rate)
        }
    }
}

/// Lower is better.
fn cost(value: Option<f64>, by: Selection) -> f64 {
    match by {
        Selection::Orderly => 0.0,
        Selection::Success | Selection::Throughput | Selection::FileThroughput => {
            value.map_or(f64::NEG_INFINITY, |value| -value)
        }
        Selection::Queue
        | Selection::PendingData
        | Selection::WaitingTime
        | Selection::WaitingTimeWithError
        | Selection::Duration => value.unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A quiet slow link that fails half the time, a busy fast one, and one of which nothing is known.
    fn candidates() -> [Candidate; 3] {
        let of = |id, link| Candidate {
            transfer: TransferId(id),
            link,
        };
        let slow = LinkFacts {
            queued: 1,
            queued_bytes: 100,
            success: Some(0.5),
            rate: Some(10.0),
            file_rate: Some(10.0),
        };
        let busy = LinkFacts {
            queued: 50,
            queued_bytes: 1_000,
            success: Some(0.9),
            rate: Some(200.0),
            file_rate: Some(20.0),
        };
        let unknown = LinkFacts {
            queued: 60,
            queued_bytes: 5_000,
            ..LinkFacts::default()
        };
        [of(1, slow), of(2, busy), of(3, unknown)]
    }

    fn check(by: Selection, known: u64, all: u64) {
        let choice = |of: &[Candidate]| {
            let chosen = choose(of, by, Some(Bytes(1_000)));
            chosen.expect("there are some").choice.0
        };
        let candidates = candidates();
        assert_eq!(choice(&candidates[..2]), known, "{by:?} of the known");
        assert_eq!(choice(&candidates), all, "{by:?} of all");
    }

    #[test]
    fn each_strategy_compares_what_its_name_says() {
        check(Selection::Orderly, 1, 1);
        check(Selection::Queue, 1, 1);
        check(Selection::Success, 2, 3);
        check(Selection::Throughput, 2, 3);
        check(Selection::FileThroughput, 2, 3);
        check(Selection::PendingData, 1, 1);
        check(Selection::WaitingTime, 2, 3);
        check(Selection::WaitingTimeWithError, 2, 3);
        check(Selection::Duration, 2, 3);
    }

    #[test]
    fn of_equals_the_first_of_the_submission_is_taken_and_nothing_of_nothing() {
        let of = |id| Candidate {
            transfer: TransferId(id),
            link: LinkFacts::default(),
        };
        for by in Selection::ALL {
            let chosen = choose(&[of(7), of(3), of(5)], by, None).expect("some");
            assert_eq!(chosen.choice, TransferId(3), "{by:?}");
            assert_eq!(choose(&[], by, None), None);
        }
    }
}
