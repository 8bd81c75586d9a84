//! What a command prints: text for people, or one JSON value for programs. Never both. What is for people may hold text
//! of others, which commands no terminal and forges no line of a log.

use crate::exit::CommandError;
use penstock_model::text::{one_line, printable};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

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
            true => print_all(&format!("{}\n", json_text(value))),
            false => print_all(&printable(&text())),
        }
    }

    /// What a command gives back that ran to its end and failed: people read the text now, programs get the value as
    /// `report` of the error.
    pub fn failure(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
        why: CommandError,
    ) -> CommandError {
        match self.json {
            true => CommandError::Reported {
                why: Box::new(why),
                report: serde_json::to_value(value).expect("plain data serialises"),
            },
            false => {
                print_all(&printable(&text()));
                why
            }
        }
    }

    /// Prints a result, of which `outcome` is the command's.
    pub fn conclude(
        &self,
        value: &impl Serialize,
        text: impl FnOnce() -> String,
        outcome: Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        match outcome {
            Ok(()) => {
                self.show(value, text);
                Ok(())
            }
            Err(why) => Err(self.failure(value, text, why)),
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
        print_all(&format!("{}\n", printable(text)));
    }

    /// Prints why a command failed.
    pub fn error(text: &str) {
        eprintln!("penstock: {}", printable(text));
    }

    /// True when a progress bar makes sense: text for a person who watches.
    pub fn is_watched(&self) -> bool {
        !self.json && std::io::stderr().is_terminal()
    }
}

/// The value as JSON, in which characters that terminals obey are escaped (RFC 8259 §7): it may be looked at, too.
fn json_text(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("plain data serialises");
    if matches!(printable(&text), Cow::Borrowed(_)) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        let mut buffer = [0; 4];
        match printable(character.encode_utf8(&mut buffer)) {
            // All of them are in the basic plane.
            Cow::Owned(_) => escaped += &format!("\\u{:04x}", u32::from(character)),
            Cow::Borrowed(_) => escaped.push(character),
        }
    }
    escaped
}

/// Where the log goes: standard error, one line for each event.
#[derive(Debug, Clone, Copy)]
pub struct LogOutput {
    /// The log's own colours pass. Escapes in what is logged are written out before they come here.
    pub is_coloured: bool,
}

impl Write for LogOutput {
    /// Takes one event.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr()
            .write_all(log_line(&String::from_utf8_lossy(event), self.is_coloured).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn log_line(event: &str, is_coloured: bool) -> String {
    let (event, end) = match event.strip_suffix('\n') {
        Some(event) => (event, "\n"),
        None => (event, ""),
    };
    let line = match is_coloured {
        true => {
            let parts: Vec<_> = event.split('\x1b').map(one_line).collect();
            parts.join("\x1b")
        }
        false => one_line(event).into_owned(),
    };
    line + end
}

/// A reader that went away (`penstock ls | head`) is no error worth a message.
fn print_all(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stays_one_line_of_the_log() {
        let event = "INFO refused path=\"/x\n2026-01-01 WARN forged\u{202e}\"\n";
        assert_eq!(
            log_line(event, false),
            "INFO refused path=\"/x\\u{a}2026-01-01 WARN forged\\u{202e}\"\n"
        );
        assert_eq!(
            log_line("\x1b[2mINFO\x1b[0m a\rb\n", true),
            "\x1b[2mINFO\x1b[0m a\\u{d}b\n"
        );
        assert_eq!(log_line("\x1b[31mred\n", false), "\\u{1b}[31mred\n");
    }

    #[test]
    fn json_commands_no_terminal_and_means_the_same() {
        let text = "a\x1b[31m\u{9b}\x7f\u{202e}é\n";
        let shown = json_text(&text);
        assert_eq!(shown, "\"a\\u001b[31m\\u009b\\u007f\\u202eé\\n\"");
        assert_eq!(serde_json::from_str::<String>(&shown).expect("JSON"), text);
    }
}
