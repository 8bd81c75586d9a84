//! Bytes to lines with their numbers, and lines to rows.

use super::{SourceHints, with_challenge};
use penstock_model::observation::{Observation, Text};
use thiserror::Error;

/// Bytes of a line at most. Of a longer one the rest is passed over, and it is told.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// A line that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct InvalidLine {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub what: String,
}

/// Understands the lines of one source, in their order.
pub trait Parser {
    /// Adds what a line tells. An error is for people.
    fn parse(&mut self, line: &[u8], rows: &mut Vec<Observation>) -> Result<(), String>;

    /// Adds what is still held when the source ends.
    fn finish(&mut self, _rows: &mut Vec<Observation>) {}

    /// Its rows name their own source.
    fn keeps_origin(&self) -> bool {
        false
    }
}

/// Takes the bytes of a source as they come.
pub struct LineImport {
    parser: Box<dyn Parser>,
    source: Text,
    challenge: Option<Text>,
    line: u64,
    partial: Vec<u8>,
    is_too_long: bool,
    rows: Vec<Observation>,
}

/// Takes rows, and lines that are none.
pub type Take<'a> = &'a mut dyn FnMut(Result<Observation, InvalidLine>);

impl LineImport {
    /// `source` stands in each row.
    pub fn new(parser: Box<dyn Parser>, source: Text, told: &SourceHints) -> LineImport {
        LineImport {
            parser,
            source,
            challenge: told.challenge.clone(),
            line: 0,
            partial: Vec::new(),
            is_too_long: false,
            rows: Vec::new(),
        }
    }

    /// Goes on behind a line that was taken before.
    pub fn behind(mut self, line: u64) -> LineImport {
        self.line = line;
        self
    }

    /// The number of the last whole line.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Bytes that were taken of a line that has not ended.
    pub fn open_bytes(&self) -> u64 {
        self.partial.len() as u64
    }

    /// Takes bytes, which may end within a line.
    pub fn feed(&mut self, bytes: &[u8], take: Take<'_>) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = rest.split_at(at);
            rest = &behind[1..];
            if self.partial.is_empty() && !self.is_too_long && line.len() <= LINE_BYTES_MAX {
                self.take_line(line, take);
            } else {
                self.keep(line);
                self.end_line(take);
            }
        }
        self.keep(rest);
    }

    /// The source has ended.
    pub fn finish(&mut self, take: Take<'_>) {
        if !self.partial.is_empty() || self.is_too_long {
            self.end_line(take);
        }
        let mut rows = std::mem::take(&mut self.rows);
        self.parser.finish(&mut rows);
        self.hand_over(&mut rows, take);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.partial.len();
        self.is_too_long |= bytes.len() > room;
        self.partial.extend(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self, take: Take<'_>) {
        let line = std::mem::take(&mut self.partial);
        if std::mem::take(&mut self.is_too_long) {
            self.line += 1;
            take(Err(InvalidLine {
                line: self.line,
                what: format!("longer than {LINE_BYTES_MAX} bytes"),
            }));
        } else {
            self.take_line(&line, take);
        }
    }

    fn take_line(&mut self, line: &[u8], take: Take<'_>) {
        self.line += 1;
        let mut rows = std::mem::take(&mut self.rows);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let outcome = self.parser.parse(line, &mut rows);
        self.hand_over(&mut rows, take);
        self.rows = rows;
        if let Err(what) = outcome {
            take(Err(InvalidLine {
                line: self.line,
                what,
            }));
        }
    }

    fn hand_over(&self, rows: &mut Vec<Observation>, take: Take<'_>) {
        for mut row in rows.drain(..) {
            with_challenge(&mut row, self.challenge.as_ref());
            take(Ok(match self.parser.keeps_origin() {
                true => row,
                false => row.with_origin(&self.source, self.line),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refuses each line and says how long it was.
    struct Lengths;

    impl Parser for Lengths {
        fn parse(&mut self, line: &[u8], _rows: &mut Vec<Observation>) -> Result<(), String> {
            Err(line.len().to_string())
        }
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_come() {
        let long = "x".repeat(LINE_BYTES_MAX + 1);
        let text = format!("a\r\nbcd\n\n{long}\nlast");
        for step in [1, 3, 1000, text.len()] {
            let mut import =
                LineImport::new(Box::new(Lengths), "s".into(), &SourceHints::default());
            let mut told = Vec::new();
            let mut take = |row: Result<Observation, InvalidLine>| {
                told.extend(row.err().map(|why| why.to_string()));
            };
            for bytes in text.as_bytes().chunks(step) {
                import.feed(bytes, &mut take);
            }
            import.finish(&mut take);
            let expected = [
                "line 1: 1",
                "line 2: 3",
                "line 3: 0",
                "line 4: longer than 1048576 bytes",
                "line 5: 4",
            ];
            assert_eq!(told, expected);
        }
    }
}
