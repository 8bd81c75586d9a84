//! Commands that do the same to each of several files or jobs: what can be done is done, and what failed is listed.

use crate::exit::CommandError;
use crate::output::Output;
use penstock_model::text::one_line;
use serde::Serialize;

/// What came of each.
#[derive(Debug)]
pub struct BatchResult<T> {
    done: Vec<T>,
    failed: Vec<Failure>,
    first: Option<CommandError>,
}

/// One that failed.
#[derive(Debug, Serialize)]
struct Failure {
    name: String,
    error: String,
    exit_code: u8,
}

/// All of them, when some failed.
#[derive(Debug, Serialize)]
struct BatchReport<'a, T> {
    done: &'a [T],
    failed: &'a [Failure],
}

impl<T: Serialize> BatchResult<T> {
    /// Nothing yet.
    pub fn new() -> BatchResult<T> {
        BatchResult {
            done: Vec::new(),
            failed: Vec::new(),
            first: None,
        }
    }

    /// Takes the outcome of one.
    pub fn add(&mut self, name: impl ToString, outcome: Result<T, CommandError>) {
        match outcome {
            Ok(done) => self.done.push(done),
            Err(why) => {
                self.failed.push(Failure {
                    name: name.to_string(),
                    error: why.to_string(),
                    exit_code: why.exit_code(),
                });
                self.first.get_or_insert(why);
            }
        }
    }

    /// Prints all of it. The error of a single one is the command's, of several the gravest.
    pub fn conclude(
        self,
        output: Output,
        text: impl FnOnce(&[T]) -> String,
    ) -> Result<(), CommandError> {
        let total = self.done.len() + self.failed.len();
        self.conclude_as(output, |failed| format!("{failed} of {total} failed"), text)
    }

    /// The same in other words, where what is printed is not what was asked for one by one.
    pub fn conclude_as(
        self,
        output: Output,
        sentence: impl FnOnce(usize) -> String,
        text: impl FnOnce(&[T]) -> String,
    ) -> Result<(), CommandError> {
        let BatchResult {
            done,
            failed,
            first,
        } = self;
        let Some(first) = first else {
            output.show(&done, || text(&done));
            return Ok(());
        };
        if done.is_empty() && failed.len() == 1 {
            return Err(first);
        }
        let report = BatchReport {
            done: &done,
            failed: &failed,
        };
        let codes: Vec<u8> = failed.iter().map(|failure| failure.exit_code).collect();
        let why = CommandError::several(sentence(failed.len()), &codes);
        let all = || {
            let failures = failed.iter();
            let lines = failures.map(|failure| format!("failed: {}\n", one_line(&failure.error)));
            text(&done) + &lines.collect::<String>()
        };
        Err(output.failure(&report, all, why))
    }
}
