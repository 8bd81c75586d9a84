//! Namespace policies (`<hash>.namespaces`, the form of EUGridPMA's distributions): which subjects an authority
//! may sign, as regular expressions. Where one stands it counts instead of the `.signing_policy` beside it.

use super::names::normal_name;
use regex::{Regex, RegexBuilder};

/// Rules of one file.
const RULES_MAX: usize = 1_000;
/// Memory of one compiled pattern, bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// The rules of a file, in its order.
#[derive(Debug)]
pub(super) struct Namespaces {
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    /// `None`: `SELF`, the authority whose file it is.
    issuer: Option<String>,
    permits: bool,
    subject: Regex,
}

impl Namespaces {
    /// Errors: what is wrong, and in which rule. A file that is not understood must permit nothing.
    pub(super) fn parse(text: &str) -> Result<Namespaces, String> {
        let mut rules = Vec::new();
        for statement in statements(text) {
            if rules.len() == RULES_MAX {
                return Err(format!("it has more than {RULES_MAX} rules"));
            }
            rules.push(rule(&statement).map_err(|why| format!("{why}: {statement}"))?);
        }
        Ok(Namespaces { rules })
    }

    /// Whether `authority` may sign `subject`, both in slash form. What a rule denies no other permits.
    pub(super) fn permit(&self, authority: &str, subject: &str) -> bool {
        let of_authority = |rule: &&Rule| {
            let issuer = rule.issuer.as_deref();
            let is_own = |issuer| normal_name(issuer) == normal_name(authority);
            issuer.is_none_or(is_own) && rule.subject.is_match(subject)
        };
        let mut matching = self.rules.iter().filter(of_authority).peekable();
        matching.peek().is_some() && matching.all(|rule| rule.permits)
    }
}

/// Lines without comments, those that end in a backslash joined to the next.
fn statements(text: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut open = String::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('#') {
            continue;
        }
        let (part, goes_on) = match line.strip_suffix('\\') {
            Some(part) => (part.trim_end(), true),
            None => (line, false),
        };
        if !open.is_empty() && !part.is_empty() {
            open.push(' ');
        }
        open.push_str(part);
        if !goes_on && !open.is_empty() {
            statements.push(std::mem::take(&mut open));
        }
    }
    if !open.is_empty() {
        statements.push(open);
    }
    statements
}

/// `TO Issuer "NAME" PERMIT Subject "PATTERN"`.
fn rule(statement: &str) -> Result<Rule, &'static str> {
    const FORM: &str = "a rule reads: TO Issuer \"NAME\" PERMIT|DENY Subject \"PATTERN\"";
    let rest = word(statement, "TO").ok_or(FORM)?;
    let rest = word(rest, "Issuer").ok_or(FORM)?;
    let (issuer, rest) = match word(rest, "SELF") {
        Some(rest) => (None, rest),
        None => {
            let (issuer, rest) = quoted(rest).ok_or(FORM)?;
            (Some(issuer.to_owned()), rest)
        }
    };
    let (permits, rest) = match word(rest, "PERMIT") {
        Some(rest) => (true, rest),
        None => (false, word(rest, "DENY").ok_or(FORM)?),
    };
    let rest = word(rest, "Subject").ok_or(FORM)?;
    let (pattern, rest) = quoted(rest).ok_or(FORM)?;
    if !rest.is_empty() {
        return Err(FORM);
    }
    let whole = RegexBuilder::new(&format!("^(?:{pattern})$"))
        .size_limit(PATTERN_BYTES_MAX)
        .build();
    let subject = whole.map_err(|_| "the pattern is not a regular expression")?;
    Ok(Rule {
        issuer,
        permits,
        subject,
    })
}

/// What follows a keyword, which may be written in any case.
fn word<'a>(text: &'a str, keyword: &str) -> Option<&'a str> {
    let (first, rest) = text.split_at_checked(keyword.len())?;
    let ends = rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_whitespace() || c == '"');
    (first.eq_ignore_ascii_case(keyword) && ends).then(|| rest.trim_start())
}

/// What stands in double quotes, and what follows them.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let (inside, rest) = text.strip_prefix('"')?.split_once('"')?;
    Some((inside, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: &str = "/DC=lab/CN=CA";

    fn check(rules: &str, subject: &str, expected: bool) {
        let namespaces = Namespaces::parse(rules).expect("understood");
        assert_eq!(
            namespaces.permit(CA, subject),
            expected,
            "{rules}: {subject}"
        );
    }

    #[test]
    fn a_subject_must_match_a_rule_of_its_authority_as_a_whole() {
        let rules = "#NAMESPACES-VERSION: 1.0\n\n# users and hosts\nTO Issuer \"/DC=lab/CN=CA\" \\\n  \
                     PERMIT Subject \"/DC=lab/OU=(Users|Hosts)/.*\"\n\
                     to issuer \"/DC=other/CN=CA\" permit subject \"/DC=other/.*\"\n";
        check(rules, "/DC=lab/OU=Users/CN=Alice", true);
        check(rules, "/DC=lab/OU=Hosts/CN=se.example.org", true);
        check(rules, "/DC=lab/OU=Robots/CN=x", false);
        check(rules, "/DC=evil/DC=lab/OU=Users/CN=Alice", false);
        check(rules, "/DC=other/CN=Alice", false);
        check("", "/DC=lab/CN=x", false);
    }

    #[test]
    fn what_is_denied_stays_denied() {
        let rules = "TO Issuer SELF PERMIT Subject \"/DC=lab/.*\"\n\
                     TO Issuer SELF DENY Subject \"/DC=lab/OU=Closed/.*\"";
        check(rules, "/DC=lab/CN=x", true);
        check(rules, "/DC=lab/OU=Closed/CN=x", false);
        check(
            "TO Issuer SELF DENY Subject \"/DC=x\"",
            "/DC=lab/CN=x",
            false,
        );
    }

    #[test]
    fn a_file_that_is_not_understood_is_told() {
        for rules in [
            "PERMIT Subject \"/DC=lab/.*\"",
            "TO Issuer \"/DC=lab PERMIT Subject",
            "TO Issuer SELF PERMIT Subject \"/DC=(lab\"",
            "TO Issuer SELF PERMIT Subject \"/DC=lab\" and more",
            "TO IssuerSELF PERMIT Subject \"/DC=lab\"",
            "TO Issuer SELF PERMIT Subject \"(a{1000}){1000}\"",
            "TO Issuer SELF \\",
        ] {
            assert!(Namespaces::parse(rules).is_err(), "{rules}");
        }
    }
}
