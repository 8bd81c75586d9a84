//! Text of others where people read it: servers' errors, URLs, names, subjects. What would command a terminal, forge a
//! line of a log or turn the reading direction is written out, so that it is seen and does nothing. And how counts are written.

use std::borrow::Cow;
use std::fmt::Write;

/// The same text with control characters and turns of the reading direction written as `\u{1b}`; lines stay lines.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |character| {
        character != '\n' && is_unprintable(character)
    })
}

/// The same on one line.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unprintable)
}

/// `1 file`, `2 files`.
pub fn plural(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// Two digits for each byte, in lower case.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a character is C0, DEL or C1, separates lines or paragraphs, or changes the direction of what follows
/// (Unicode Standard Annex 9 §2).
fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_escaped(character) {
            // Aligned columns of our own are made with blanks, so that a tab is somebody else's.
            true => write!(out, "{}", character.escape_unicode()).expect("a string takes all text"),
            false => out.push(character),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_command_a_terminal_is_written_out() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected, "{text:?}");
        check("plain é 日本\n", "plain é 日本\n");
        check("a\x1b[31mred", "a\\u{1b}[31mred");
        check("a\u{9b}31m\x7f\r\nb", "a\\u{9b}31m\\u{7f}\\u{d}\nb");
        check("exe\u{202e}gpj\u{2066}", "exe\\u{202e}gpj\\u{2066}");
    }

    #[test]
    fn one_has_no_plural() {
        let counted = [0, 1, 2].map(|count| plural(count, "file"));
        assert_eq!(counted, ["0 files", "1 file", "2 files"]);
    }

    #[test]
    fn text_that_must_stay_on_its_line_does() {
        assert_eq!(
            one_line("/x\n2026-01-01 WARN forged\u{2028}"),
            "/x\\u{a}2026-01-01 WARN forged\\u{2028}"
        );
    }
}
