//! Words and numbers of the text files below `/proc`, and why a file could not be read.

use thiserror::Error;

/// A file of the kernel that has another form than proc(5) says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{file}: expected {expected}")]
pub struct FormatError {
    pub file: &'static str,
    /// What was not there.
    pub expected: &'static str,
}

/// The lines of a file. What is no text is passed over with its line.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = &str> {
    let lines = bytes.split(|byte| *byte == b'\n');
    lines.filter_map(|line| std::str::from_utf8(line).ok())
}

/// The numbers of a line, up to the first word that is none.
pub(super) fn numbers<'a>(
    words: impl Iterator<Item = &'a str> + 'a,
) -> impl Iterator<Item = u64> + 'a {
    words.map_while(|word| word.parse().ok())
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    /// Cuts, repeats and overwrites of a real file, and bytes that were never one: none may make a parser panic.
    pub fn endures<T>(real: &'static [u8], parse: impl Fn(&[u8]) -> T) {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let changes = (
            0..=real.len(),
            0..=real.len(),
            proptest::collection::vec(any::<u8>(), 0..40),
        );
        let damaged = runner.run(&changes, |(cut, at, bytes)| {
            let mut text = real[..cut].to_vec();
            text.splice(at.min(cut).., bytes.iter().copied());
            text.extend_from_slice(&real[at..]);
            parse(&text);
            parse(&bytes);
            Ok(())
        });
        damaged.expect("no parser fails on damaged text");
        let huge = String::from_utf8_lossy(real).replace(|one: char| one.is_ascii_digit(), "9999");
        parse(huge.as_bytes());
    }
}
