//! How far a file of a stage request is, as its columns keep it.

use super::super::nearline_change::{StageProblem, StageProgress};
use penstock_model::{ProblemCode, Timestamp};
use rusqlite::types::Type;
use thiserror::Error;

/// In the column `state`.
pub(super) const WAITING: i64 = 0;
pub(super) const STARTED: i64 = 1;
pub(super) const ON_DISK: i64 = 2;
pub(super) const FAILED: i64 = 3;
pub(super) const CANCELED: i64 = 4;

/// The columns that tell how far it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StageColumns {
    pub state: i64,
    pub pin_until_ms: Option<i64>,
    pub error: Option<String>,
    pub code: Option<String>,
    pub started_ms: Option<i64>,
    pub finished_ms: Option<i64>,
}

/// Columns that make no sense together.
#[derive(Debug, Error)]
enum UnreadableStage {
    #[error(
        "the stage request for {path} has the state {state}, which this version of penstock does not know; \
         start the version that wrote it"
    )]
    UnknownState { path: String, state: i64 },
    #[error(
        "the stage request for {path} has the state {state}, and nothing in the column {column}"
    )]
    Missing {
        path: String,
        state: i64,
        column: &'static str,
    },
}

impl From<&StageProgress> for StageColumns {
    fn from(progress: &StageProgress) -> StageColumns {
        let ms = |at: &Timestamp| at.0;
        let (error, code) = match progress {
            StageProgress::Waiting {
                waits_for: Some(problem),
                ..
            }
            | StageProgress::Failed { problem, .. } => (
                Some(problem.text.clone()),
                Some(problem.code.name().to_owned()),
            ),
            StageProgress::Waiting {
                waits_for: None, ..
            }
            | StageProgress::Started { .. }
            | StageProgress::OnDisk { .. }
            | StageProgress::Canceled { .. } => (None, None),
        };
        let (state, started, finished, pin_until) = match progress {
            StageProgress::Waiting { begun, .. } => (WAITING, begun.as_ref(), None, None),
            StageProgress::Started { at } => (STARTED, Some(at), None, None),
            StageProgress::OnDisk {
                begun,
                since,
                pinned_until,
            } => (ON_DISK, begun.as_ref(), Some(since), pinned_until.as_ref()),
            StageProgress::Failed { begun, at, .. } => (FAILED, begun.as_ref(), Some(at), None),
            StageProgress::Canceled { begun, at } => (CANCELED, begun.as_ref(), Some(at), None),
        };
        StageColumns {
            state,
            pin_until_ms: pin_until.map(ms),
            error,
            code,
            started_ms: started.map(ms),
            finished_ms: finished.map(ms),
        }
    }
}

impl StageColumns {
    /// Errors: a state that nobody knows, or without what belongs to it. `path`: whose row it is.
    pub(super) fn progress(self, path: &str) -> rusqlite::Result<StageProgress> {
        let state = self.state;
        let missing = |column| {
            unreadable(UnreadableStage::Missing {
                path: path.to_owned(),
                state,
                column,
            })
        };
        let begun = self.started_ms.map(Timestamp);
        let finished = self.finished_ms.map(Timestamp);
        let finished = || finished.ok_or_else(|| missing("finished_ms"));
        let problem = problem_of(self.error, self.code.as_deref());
        Ok(match state {
            WAITING => StageProgress::Waiting {
                begun,
                waits_for: problem,
            },
            STARTED => StageProgress::Started {
                at: begun.ok_or_else(|| missing("started_ms"))?,
            },
            ON_DISK => StageProgress::OnDisk {
                begun,
                since: finished()?,
                pinned_until: self.pin_until_ms.map(Timestamp),
            },
            FAILED => StageProgress::Failed {
                begun,
                problem: problem.ok_or_else(|| missing("error"))?,
                at: finished()?,
            },
            CANCELED => StageProgress::Canceled {
                begun,
                at: finished()?,
            },
            _ => {
                let path = path.to_owned();
                return Err(unreadable(UnreadableStage::UnknownState { path, state }));
            }
        })
    }
}

fn unreadable(why: UnreadableStage) -> rusqlite::Error {
    /// Where `state` is among the columns that are asked for.
    const STATE_COLUMN: usize = 4;
    rusqlite::Error::FromSqlConversionFailure(STATE_COLUMN, Type::Integer, Box::new(why))
}

/// What is in the way of a file, by the columns of its text and its code. Earlier versions kept no code.
pub(super) fn problem_of(text: Option<String>, code: Option<&str>) -> Option<StageProblem> {
    let code = code.and_then(ProblemCode::by_name);
    Some(StageProblem {
        code: code.unwrap_or(ProblemCode::TapeFailed),
        text: text?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::read::IS_AWAITED;
    use super::*;

    fn problem() -> StageProblem {
        StageProblem {
            code: ProblemCode::PoolFull,
            text: "no pool has room".to_owned(),
        }
    }

    /// One of each state, all that it can hold filled in and left out.
    fn all() -> Vec<StageProgress> {
        let at = Timestamp(7);
        let mut all = vec![StageProgress::Started { at }];
        for begun in [None, Some(Timestamp(5))] {
            for waits_for in [None, Some(problem())] {
                all.push(StageProgress::Waiting { begun, waits_for });
            }
            for pinned_until in [None, Some(Timestamp(9))] {
                let since = at;
                all.push(StageProgress::OnDisk {
                    begun,
                    since,
                    pinned_until,
                });
            }
            let problem = problem();
            all.push(StageProgress::Failed { begun, problem, at });
            all.push(StageProgress::Canceled { begun, at });
        }
        all
    }

    #[test]
    fn how_far_a_file_is_comes_back_from_its_columns_and_is_awaited_below_two() {
        for progress in all() {
            let columns = StageColumns::from(&progress);
            let is_awaited = matches!(
                progress,
                StageProgress::Waiting { .. } | StageProgress::Started { .. }
            );
            assert_eq!(columns.state < ON_DISK, is_awaited, "{progress:?}");
            assert_eq!(columns.progress("/f").expect("known"), progress);
        }
        assert_eq!(IS_AWAITED, format!("state < {ON_DISK}"));
    }

    #[test]
    fn the_numbers_of_states_are_those_that_are_stored_everywhere() {
        let states: Vec<i64> = all()
            .iter()
            .map(|progress| StageColumns::from(progress).state)
            .collect();
        for (number, state) in [WAITING, STARTED, ON_DISK, FAILED, CANCELED]
            .into_iter()
            .enumerate()
        {
            assert_eq!(usize::try_from(state), Ok(number), "namespaces hold these");
            assert!(states.contains(&state), "{state}");
        }
    }

    #[test]
    fn a_state_that_nobody_knows_or_without_what_belongs_to_it_is_an_error_that_names_it() {
        let check = |columns: StageColumns, expected: &str| {
            let told = columns.progress("/d/f").expect_err("makes no sense");
            assert!(told.to_string().contains(expected), "{told}");
        };
        let of_state = |state| StageColumns {
            state,
            ..StageColumns::default()
        };
        check(of_state(5), "/d/f has the state 5, which");
        check(of_state(-1), "/d/f has the state -1, which");
        check(of_state(STARTED), "nothing in the column started_ms");
        check(of_state(ON_DISK), "nothing in the column finished_ms");
        check(of_state(FAILED), "nothing in the column error");
        check(of_state(CANCELED), "nothing in the column finished_ms");
    }
}
