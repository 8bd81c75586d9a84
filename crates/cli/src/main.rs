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
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(why) if why.use_stderr() && asks_for_json() => {
            let text = why.render().to_string();
            let text = text.trim_start_matches("error: ").trim_end().to_owned();
            return fail(CommandError::Usage(text), Output { json: true });
        }
        Err(why) => why.exit(),
    };
    let output = Output {
        json: arguments.json,
    };
    match commands::run(arguments.command, &Environment::read(), output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(why, output),
    }
}

/// A command line that makes no sense may ask for JSON all the same.
fn asks_for_json() -> bool {
    let mut words = std::env::args_os().take_while(|word| word != "--");
    words.any(|word| word == "--json")
}

/// Tells why a command failed: one JSON object for programs, a line for people.
fn fail(why: CommandError, output: Output) -> ExitCode {
    let exit_code = why.exit_code();
    match output.json {
        true => output.show(&ErrorReport::from(why), String::new),
        false if why.is_told() => {}
        false => Output::error(&why.to_string()),
    }
    ExitCode::from(exit_code)
}
