//! What a command prints: text for people, or one JSON value for programs. Never both.

use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Where and how results are printed.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// `--json` was given.
    pub json: bool,
}

impl Output {
    /// Prints the result: the value as JSON, or the text (which ends its own lines).
    pub fn show(&self, value: &impl Serialize, text: impl FnOnce() -> String) {
        match self.json {
            true => self.line(&serde_json::to_string_pretty(value).expect("plain data serialises")),
            false => print_all(&text()),
        }
    }

    /// Prints a line of progress or advice, which programs do not want.
    pub fn say(&self, text: impl std::fmt::Display) {
        if !self.json {
            self.line(&text.to_string());
        }
    }

    /// Prints one line whatever the form.
    pub fn line(&self, text: &str) {
        print_all(&format!("{text}\n"));
    }

    /// True when a progress bar makes sense: text for a person who watches.
    pub fn is_watched(&self) -> bool {
        !self.json && std::io::stderr().is_terminal()
    }
}

/// A reader that went away (`penstock ls | head`) is no error worth a message.
fn print_all(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
