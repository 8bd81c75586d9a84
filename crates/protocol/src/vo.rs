//! Names of VOs that nobody has named: of who belongs to none, and of the groups of an issuer for which the site lists no
//! VOs.
//!
//! Such a name is read by people and compared by programs, so it has two parts: `alice@idp.example.org`, made plain, and
//! behind [`VoName::DERIVED_MARK`] a digest of everything that it stands for. The first part may be the same for several;
//! whoever chooses a subject or a group cannot choose the digest, and nobody can give a VO a name with that mark.

use crate::identity::{NameSource, digest};
use penstock_model::VoName;

/// Hex digits of the digest: 80 bits, more than anybody can try.
const DIGITS: usize = 20;
/// Characters of each name in the readable part.
const CHARS_MAX: usize = 48;

/// Of a token's subject that belongs to no VO.
pub(crate) fn of_token_subject(issuer: &str, subject: &str) -> VoName {
    let digest = digest(NameSource::TokenSubject, &[issuer, subject]);
    derived(subject, &host(issuer), &digest)
}

/// Of a group, by its first part, of an issuer for which the site lists no VOs.
pub(crate) fn of_token_group(issuer: &str, group: &str) -> VoName {
    let digest = digest(NameSource::TokenGroup, &[issuer, group]);
    derived(group, &host(issuer), &digest)
}

/// Of a certificate's subject that belongs to no VO: its last name at its domain.
pub(crate) fn of_certificate_subject(subject: &str) -> VoName {
    let parts = |key: &'static str| {
        subject
            .split('/')
            .filter_map(move |part| part.strip_prefix(key))
    };
    let name = parts("CN=").next_back().unwrap_or(subject);
    let mut domain: Vec<&str> = parts("DC=").collect();
    domain.reverse();
    let digest = digest(NameSource::CertificateSubject, &[subject]);
    derived(name, &domain.join("."), &digest)
}

fn derived(name: &str, place: &str, digest: &str) -> VoName {
    let (name, place, mark) = (plain(name), plain(place), VoName::DERIVED_MARK);
    let digest = &digest[..DIGITS];
    VoName::new(match place.is_empty() {
        true => format!("{name}{mark}{digest}"),
        false => format!("{name}@{place}{mark}{digest}"),
    })
}

fn host(issuer: &str) -> String {
    let url = url::Url::parse(issuer).ok();
    let host = url.as_ref().and_then(url::Url::host_str);
    host.unwrap_or_default().to_owned()
}

/// What stands in logs, URLs and tables without an escape and without a second meaning.
fn plain(text: &str) -> String {
    let keeps = |c: char| c.is_ascii_alphanumeric() || " -_.".contains(c);
    let chars = text.trim_matches(['/', ' ']).chars().take(CHARS_MAX);
    chars.map(|c| if keeps(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_belongs_to_no_vo_is_one_alone() {
        let users = of_certificate_subject("/DC=lab/DC=interop/OU=Users/CN=Alice Lab");
        let other = of_certificate_subject("/DC=lab/DC=interop/OU=Other/CN=Alice Lab");
        let (name, digest) = users.as_str().split_once('~').expect("derived");
        assert_eq!((name, digest.len()), ("Alice Lab@interop.lab", DIGITS));
        assert!(other.as_str().starts_with("Alice Lab@interop.lab~"));
        assert_ne!(users, other);
        assert_ne!(
            of_certificate_subject("/O=x"),
            of_certificate_subject("/O=y")
        );
    }

    #[test]
    fn a_derived_name_says_of_whom_and_is_nobody_elses() {
        let group = of_token_group("https://idp.example.org/a", "atlas");
        assert!(
            group.as_str().starts_with("atlas@idp.example.org~"),
            "{group}"
        );
        assert_ne!(group, of_token_group("https://idp.example.org/b", "atlas"));
        assert_ne!(
            group,
            of_token_subject("https://idp.example.org/a", "atlas")
        );
        // Parts that are the same text when joined.
        assert_ne!(
            of_token_subject("https://i.org/", "xy"),
            of_token_subject("https://i.org/x", "y")
        );
    }

    #[test]
    fn no_subject_or_group_can_choose_its_name() {
        let victim = of_token_group("https://idp.example.org", "atlas");
        for name in [
            victim.as_str(),
            "atlas",
            "/atlas",
            "a~b",
            "a\n\u{1b}[31m",
            "é",
            "",
        ] {
            let derived = of_token_group("https://evil.example.org", name);
            assert!(derived.is_derived());
            assert_eq!(derived.as_str().matches('~').count(), 1, "{derived}");
            let clean = |c: char| c.is_ascii_graphic() || c == ' ';
            assert!(derived.as_str().chars().all(clean), "{derived}");
            assert_ne!(derived, victim);
        }
    }
}
