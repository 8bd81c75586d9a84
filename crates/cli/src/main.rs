//! The one binary: reads what was typed, hands it to the command that it means, turns the outcome into an
//! exit code.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod contexts;
mod environment;
mod exit;
mod output;
mod site;
mod stop_signals;

use args::Arguments;
use clap::FromArgMatches;
use contexts::Defaults;
use environment::Environment;
use exit::{CommandError, ErrorReport};
use output::Output;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut environment = Environment::read();
    let words: Vec<OsString> = std::env::args_os().collect();
    let defaults = match Defaults::of(&words, &environment) {
        Ok(defaults) => defaults,
        // Then they can still be mended.
        Err(_) if words.iter().any(|word| word == "context") => Defaults::default(),
        Err(why) => {
            let json = asks_for_json();
            return fail(why, Output { json });
        }
    };
    environment.context_token.clone_from(&defaults.token);
    let read = defaults.apply(args::command()).try_get_matches_from(words);
    let arguments = match read.and_then(|matches| Arguments::from_arg_matches(&matches)) {
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
    match commands::run(arguments.command, &environment, output) {
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
