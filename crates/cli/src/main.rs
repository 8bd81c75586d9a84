//! The one binary: reads what was typed, hands it to the command that it means, turns the outcome into an
//! exit code.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod environment;
mod exit;
mod output;
mod site;

use args::Arguments;
use clap::Parser;
use environment::Environment;
use exit::{CommandError, ErrorReport};
use output::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let output = Output {
        json: arguments.json,
    };
    match commands::run(arguments.command, &Environment::read(), output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let exit_code = why.exit_code();
            match output.json {
                // The answer is printed already.
                _ if matches!(
                    why,
                    CommandError::Refused | CommandError::Differs | CommandError::Incomplete
                ) => {}
                true => output.show(
                    &ErrorReport {
                        error: why.to_string(),
                        exit_code,
                        problem: why.problem(),
                    },
                    String::new,
                ),
                false => Output::error(&why.to_string()),
            }
            ExitCode::from(exit_code)
        }
    }
}
