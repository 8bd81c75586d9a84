//! The `If` header (RFC 4918 §10.4): lists of lock tokens and entity tags of which one must hold, and at the same time
//! the way in which a client shows the lock tokens that it has.

use http::HeaderMap;
use thiserror::Error;

/// Bytes of the header, over all its lines.
const BYTES_MAX: usize = 16 * 1024;
/// Conditions in one header. Clients send one for each lock in the way.
const CONDITIONS_MAX: usize = 256;

/// An `If` header, understood.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IfHeader {
    /// In the header's order. Never empty.
    pub lists: Vec<ConditionList>,
}

/// Conditions that must hold together for the header to be satisfied by this list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionList {
    /// The URL or path that the conditions are about; `None`: that of the request.
    pub resource: Option<String>,
    /// Never empty.
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// It holds when the test fails.
    pub negated: bool,
    pub test: Test,
}

/// What a condition tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// The resource is locked with this token.
    Token(String),
    /// The resource has this entity tag, with its quotes and without the mark of a weak one.
    Etag(String),
}

/// The header is not understood. Answer 400 with this text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidIf {
    /// Longer than any client needs.
    #[error("the 'If' header has more than {BYTES_MAX} bytes or {CONDITIONS_MAX} conditions")]
    TooLong,
    /// Not of the form that RFC 4918 gives.
    #[error("the 'If' header is not understood at '{0}'; it should be like '(<token> [\"etag\"])'")]
    Syntax(String),
}

impl IfHeader {
    /// Reads the header; `None` when there is none.
    pub fn parse(headers: &HeaderMap) -> Result<Option<IfHeader>, InvalidIf> {
        let mut text = String::new();
        for value in headers.get_all("if") {
            let line = std::str::from_utf8(value.as_bytes()).map_err(|_| syntax("…"))?;
            text.push(' ');
            text.push_str(line);
            if text.len() > BYTES_MAX {
                return Err(InvalidIf::TooLong);
            }
        }
        match headers.contains_key("if") {
            true => Self::parse_text(&text).map(Some),
            false => Ok(None),
        }
    }

    fn parse_text(text: &str) -> Result<IfHeader, InvalidIf> {
        let mut rest = text.trim_ascii_start();
        let mut header = IfHeader::default();
        let mut resource = None;
        let mut count = 0;
        while !rest.is_empty() {
            if rest.starts_with('<') {
                // A tag speaks for all lists up to the next one, and for one at least.
                let (tag, after) = between(rest, '<', '>')?;
                resource = Some(tag.to_owned());
                rest = after.trim_ascii_start();
                if !rest.starts_with('(') {
                    return Err(syntax(rest));
                }
            }
            let (conditions, after) = list(rest, &mut count)?;
            header.lists.push(ConditionList {
                resource: resource.clone(),
                conditions,
            });
            rest = after.trim_ascii_start();
        }
        match header.lists.is_empty() {
            true => Err(syntax("")),
            false => Ok(header),
        }
    }

    /// The tokens that the client shows: all that the header names, wherever (RFC 4918 §10.4.1), but those of which it
    /// says that they are not there.
    pub fn submitted(&self) -> impl Iterator<Item = &str> {
        let conditions = self.lists.iter().flat_map(|list| &list.conditions);
        conditions
            .filter(|condition| !condition.negated)
            .filter_map(|condition| match &condition.test {
                Test::Token(token) => Some(token.as_str()),
                Test::Etag(_) => None,
            })
    }

    /// Whether one of the lists holds, when `holds` tells of each test whether it is true of a resource.
    pub fn is_satisfied(&self, mut holds: impl FnMut(Option<&str>, &Test) -> bool) -> bool {
        self.lists.iter().any(|list| {
            list.conditions.iter().all(|condition| {
                holds(list.resource.as_deref(), &condition.test) != condition.negated
            })
        })
    }
}

/// Reads `( … )`, and gives back what follows.
fn list<'a>(text: &'a str, count: &mut usize) -> Result<(Vec<Condition>, &'a str), InvalidIf> {
    let mut rest = text.strip_prefix('(').ok_or_else(|| syntax(text))?;
    let mut conditions = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if let Some(after) = rest.strip_prefix(')') {
            return match conditions.is_empty() {
                true => Err(syntax(text)),
                false => Ok((conditions, after)),
            };
        }
        *count += 1;
        if *count > CONDITIONS_MAX {
            return Err(InvalidIf::TooLong);
        }
        let negated = rest
            .get(..3)
            .is_some_and(|word| word.eq_ignore_ascii_case("not"));
        if negated {
            rest = rest[3..].trim_ascii_start();
        }
        let (test, after) = match rest.starts_with('[') {
            true => etag(rest)?,
            false => {
                let (token, after) = between(rest, '<', '>')?;
                (Test::Token(token.to_owned()), after)
            }
        };
        conditions.push(Condition { negated, test });
        rest = after;
    }
}

/// Reads `["…"]`. An entity tag may hold brackets, so its quotes decide where it ends.
fn etag(text: &str) -> Result<(Test, &str), InvalidIf> {
    let inner = text[1..].trim_ascii_start();
    let inner = inner.strip_prefix("W/").unwrap_or(inner);
    let (tag, after) = between(inner, '"', '"')?;
    let after = after.trim_ascii_start();
    let after = after.strip_prefix(']').ok_or_else(|| syntax(text))?;
    Ok((Test::Etag(format!("\"{tag}\"")), after))
}

/// What stands between two characters, of which the first is the first of the text, and what follows.
fn between(text: &str, open: char, close: char) -> Result<(&str, &str), InvalidIf> {
    let inner = text.strip_prefix(open).ok_or_else(|| syntax(text))?;
    let (inside, after) = inner.split_once(close).ok_or_else(|| syntax(text))?;
    match inside.trim_ascii().is_empty() {
        true => Err(syntax(text)),
        false => Ok((inside, after)),
    }
}

fn syntax(at: &str) -> InvalidIf {
    InvalidIf::Syntax(at.chars().filter(|c| !c.is_control()).take(40).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    fn show(header: &IfHeader) -> String {
        let mut words = Vec::new();
        for list in &header.lists {
            words.push(list.resource.clone().unwrap_or_else(|| "-".to_owned()));
            for condition in &list.conditions {
                let (Test::Token(text) | Test::Etag(text)) = &condition.test;
                words.push(format!(
                    "{}{text}",
                    if condition.negated { "!" } else { "" }
                ));
            }
        }
        words.join(" ")
    }

    fn check(text: &str, expected: &str) {
        let got = match IfHeader::parse_text(text) {
            Ok(header) => show(&header),
            Err(InvalidIf::Syntax(at)) => format!("refused at {at}"),
            Err(InvalidIf::TooLong) => "too long".to_owned(),
        };
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn the_examples_of_the_specification() {
        check(
            "(<urn:uuid:181d> [\"I am an ETag\"]) ([\"I am another ETag\"])",
            "- urn:uuid:181d \"I am an ETag\" - \"I am another ETag\"",
        );
        check(
            "(Not <urn:uuid:181d> <urn:uuid:58f2>)",
            "- !urn:uuid:181d urn:uuid:58f2",
        );
        check(
            "(<urn:uuid:181d>) (Not <DAV:no-lock>)",
            "- urn:uuid:181d - !DAV:no-lock",
        );
        check(
            "</resource1> (<urn:uuid:181d> [W/\"A weak ETag\"]) ([\"strong ETag\"])",
            "/resource1 urn:uuid:181d \"A weak ETag\" /resource1 \"strong ETag\"",
        );
        check(
            "<http://www.example.com/a> (<x:1>) <http://www.example.com/b> ([\"e]f\"])",
            "http://www.example.com/a x:1 http://www.example.com/b \"e]f\"",
        );
        check("(<a:b>)([\"c\"])(not[\"d\"])", "- a:b - \"c\" - !\"d\"");
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for (text, at) in [
            ("", ""),
            ("()", "()"),
            ("<a:b>", ""),
            ("<a:b> <c:d> (<e:f>)", "<c:d> (<e:f>)"),
            ("(<a:b>", ""),
            ("(<a:b)", "<a:b)"),
            ("(a:b)", "a:b)"),
            ("([a])", "a])"),
            ("([\"a\" )", "[\"a\" )"),
            ("(<>)", "<>)"),
            ("(Not)", ")"),
            ("(<a:b>) x", "x"),
        ] {
            check(text, &format!("refused at {at}"));
        }
        check(&"(<a:b>)".repeat(CONDITIONS_MAX + 1), "too long");
    }

    #[test]
    fn lines_are_joined_and_bounded() {
        let name = HeaderName::from_static("if");
        let mut headers = HeaderMap::new();
        assert_eq!(IfHeader::parse(&headers), Ok(None));
        headers.append(&name, HeaderValue::from_static("(<a:b>)"));
        headers.append(&name, HeaderValue::from_static("(Not <c:d>)"));
        let header = IfHeader::parse(&headers)
            .expect("understood")
            .expect("there");
        assert_eq!(header.submitted().collect::<Vec<_>>(), ["a:b"]);
        assert!(header.is_satisfied(|_, test| *test == Test::Token("a:b".to_owned())));
        assert!(header.is_satisfied(|_, _| false));
        assert!(!header.is_satisfied(|_, test| *test == Test::Token("c:d".to_owned())));
        let long = format!("(<{}>)", "x".repeat(BYTES_MAX));
        headers.append(&name, HeaderValue::from_str(&long).expect("visible"));
        assert_eq!(IfHeader::parse(&headers), Err(InvalidIf::TooLong));
    }

    proptest! {
        #[test]
        fn no_header_makes_it_panic(
            any in "\\PC{0,200}",
            near in "(\\(|\\)|<|>|\\[|\\]|\"|W/|Not|not| |[a-zé]){0,60}",
        ) {
            for text in [any, near] {
                if let Ok(header) = IfHeader::parse_text(&text) {
                    prop_assert!(header.lists.iter().all(|list| !list.conditions.is_empty()));
                    let conditions: usize = header.lists.iter().map(|list| list.conditions.len()).sum();
                    prop_assert!(conditions <= CONDITIONS_MAX);
                }
            }
        }
    }
}
