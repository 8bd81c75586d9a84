//! Signing policies (`<hash>.signing_policy`, the EACL form of Globus): which subjects an authority may sign.
//! Without them any of a hundred trusted authorities could name the users of every other.

use super::names::normal_name;

/// Whether `policy` lets `authority` sign `subject`, both in slash form.
pub(crate) fn permits(policy: &str, authority: &str, subject: &str) -> bool {
    let subject = normal_name(subject);
    let (entries, _) = entries_of(policy, authority);
    entries.iter().flatten().any(|line| {
        // `pos_rights globus CA:sign` is the only right there is; comments and blank lines.
        let (key, rest) = key_of(line);
        let patterns = quoted(rest).unwrap_or_default();
        key == "cond_subjects"
            && patterns_in(patterns).any(|pattern| matches(&normal_name(pattern), &subject))
    })
}

/// The entries of a policy for this authority, each from its `access_id_CA` on, and all other lines.
pub(crate) fn entries_of<'a>(
    policy: &'a str,
    authority: &str,
) -> (Vec<Vec<&'a str>>, Vec<&'a str>) {
    let (mut entries, mut others): (Vec<Vec<&str>>, _) = (Vec::new(), Vec::new());
    let authority = normal_name(authority);
    let mut concerned = false;
    for line in policy.lines() {
        if key_of(line).0 == "access_id_CA" {
            concerned = authority_of(line).is_some_and(|name| normal_name(name) == authority);
            if concerned {
                entries.push(Vec::new());
            }
        }
        match entries.last_mut().filter(|_| concerned) {
            Some(entry) => entry.push(line),
            None => others.push(line),
        }
    }
    (entries, others)
}

/// The authority for which a line begins an entry.
pub(crate) fn authority_of(line: &str) -> Option<&str> {
    let (key, rest) = key_of(line);
    quoted(rest).filter(|_| key == "access_id_CA")
}

fn key_of(line: &str) -> (&str, &str) {
    let line = line.trim();
    line.split_once(|c: char| c.is_ascii_whitespace())
        .unwrap_or((line, ""))
}

/// What stands between the outermost quotes, which are single ones unless there are none.
fn quoted(text: &str) -> Option<&str> {
    let quote = if text.contains('\'') { '\'' } else { '"' };
    let (_, inside) = text.split_once(quote)?;
    inside.rsplit_once(quote).map(|(inside, _)| inside)
}

/// Patterns in double quotes, or a single one without.
fn patterns_in(text: &str) -> impl Iterator<Item = &str> {
    let step = if text.contains('"') { 2 } else { 1 };
    let skipped = step - 1;
    text.split('"').skip(skipped).step_by(step).map(str::trim)
}

/// `*` stands for any characters, `?` for one.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut next) = (0, 0);
    // Where the last star is, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    while at < text.len() {
        match pattern.get(next) {
            Some(b'*') => {
                star = Some((next, at));
                next += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[at] => {
                at += 1;
                next += 1;
            }
            _ => match &mut star {
                Some((place, taken)) => {
                    *taken += 1;
                    at = *taken;
                    next = *place + 1;
                }
                None => return false,
            },
        }
    }
    pattern[next..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const CA: &str = "/DC=lab/CN=CA";

    fn check(policy: &str, subject: &str, expected: bool) {
        assert_eq!(
            permits(policy, CA, subject),
            expected,
            "{policy}: {subject}"
        );
    }

    #[test]
    fn a_subject_must_match_a_pattern_of_its_authority() {
        let policy = "# a comment\naccess_id_CA X509 '/DC=lab/CN=CA'\npos_rights globus CA:sign\n\
                      cond_subjects globus '\"/DC=lab/OU=Users/*\" \"/DC=lab/OU=Ho?ts/CN=*.org\"'\n\
                      access_id_CA X509 '/DC=other/CN=CA'\npos_rights globus CA:sign\n\
                      cond_subjects globus '\"/DC=other/*\"'";
        check(policy, "/DC=lab/OU=Users/CN=Alice", true);
        check(policy, "/DC=lab/OU=Hosts/CN=se.example.org", true);
        check(policy, "/DC=lab/OU=Hosts/CN=se.example.com", false);
        check(policy, "/DC=lab/OU=Users", false);
        check(policy, "/DC=other/CN=Alice", false);
    }

    #[test]
    fn a_name_counts_however_it_is_written() {
        let subject = "/O=M\\xC3\\xBCller/CN=x/emailAddress=a@b.org";
        for authority in [
            "/O=M\\xC3\\xBCller/CN=CA",
            "/O=M\\xc3\\xbcller/CN=CA",
            "/O=Müller/CN=CA",
        ] {
            for signs in ["/O=M\\xc3\\xbcller/*", "/O=Müller/CN=x/Email=a@b.org"] {
                let policy =
                    format!("access_id_CA X509 '{authority}'\ncond_subjects globus '\"{signs}\"'");
                let permits = permits(&policy, "/O=M\\xC3\\xBCller/CN=CA", subject);
                assert!(permits, "{policy}");
            }
        }
    }

    #[test]
    fn other_ways_to_quote_are_understood() {
        check(
            "access_id_CA X509 '/DC=lab/CN=CA'\ncond_subjects globus '/DC=lab/*'",
            "/DC=lab/CN=x",
            true,
        );
        check(
            "access_id_CA\tX509\t\"/DC=lab/CN=CA\"\ncond_subjects\tglobus\t\"/DC=lab/*\"",
            "/DC=lab/CN=x",
            true,
        );
        check("", "/DC=lab/CN=x", false);
        check(
            "access_id_CA X509 '/DC=lab/CN=CA'\ncond_subjects globus",
            "/DC=lab/CN=x",
            false,
        );
    }
}
