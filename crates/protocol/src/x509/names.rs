//! Subjects as texts: how they are written, and how they are compared with what people have written.

use super::CertificateError;
use crate::der::{DerError, Reader, tag};
use openssl::nid::Nid;
use openssl::x509::X509NameRef;

/// `/DC=lab/OU=Users/CN=Alice`: the form in which grid software has always written subjects. Bytes outside
/// printable ASCII stand as `\xHH`, as OpenSSL's one-line form has it. Errors: a name whose form another one has too.
pub(crate) fn slash_form(name: &X509NameRef) -> Result<String, CertificateError> {
    let mut out = String::new();
    let is_plain = has_single_values(&name.to_der()?);
    for entry in name.entries() {
        let nid = entry.object().nid();
        let key = match nid {
            Nid::UNDEF => entry.object().to_string(),
            known => known.short_name()?.to_owned(),
        };
        out.push('/');
        out.push_str(&key);
        out.push('=');
        let before = out.len();
        for byte in entry.data().as_slice() {
            match byte {
                b' '..=b'~' => out.push(char::from(*byte)),
                _ => out.push_str(&format!("\\x{byte:02X}")),
            }
        }
        if looks_like_more(&out[before..]) || holds_an_escape(entry.data().as_slice()) {
            return Err(CertificateError::Name(out));
        }
    }
    match is_plain {
        true => Ok(out),
        false => Err(CertificateError::Name(out)),
    }
}

/// Whether each part of a name (RFC 5280 §4.1.2.4) is a set of one: `CN=a+OU=b` would read like `CN=a` and then `OU=b`.
fn has_single_values(name: &[u8]) -> bool {
    let all = || {
        let mut parts = Reader::new(Reader::new(name).expect(tag::SEQUENCE)?);
        while !parts.is_empty() {
            let mut values = Reader::new(parts.expect(tag::SET)?);
            values.expect(tag::SEQUENCE)?;
            values.end()?;
        }
        Ok::<_, DerError>(())
    };
    all().is_ok()
}

/// Whether a value holds the text of what other bytes are written as.
fn holds_an_escape(value: &[u8]) -> bool {
    value
        .windows(4)
        .any(|text| text.starts_with(b"\\x") && text[2..].iter().all(u8::is_ascii_hexdigit))
}

/// A subject as it is compared with what people have written: older software has other keys for the same.
pub(crate) fn comparable_name(subject: &str) -> String {
    let subject = subject.replace("/Email=", "/emailAddress=");
    let subject = subject.replace("/E=", "/emailAddress=");
    subject.replace("/USERID=", "/UID=")
}

/// A subject in the one form that all ways to write it share: bytes stand for themselves, also where they are written as
/// `\xHH`, and keys are those of today.
pub(crate) fn normal_name(subject: &str) -> Vec<u8> {
    let subject = comparable_name(subject);
    let (mut normal, mut rest) = (Vec::with_capacity(subject.len()), subject.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        match escaped_byte(rest) {
            Some(byte) => {
                normal.push(byte);
                rest = &rest[4..];
            }
            None => {
                normal.push(*first);
                rest = behind;
            }
        }
    }
    normal
}

/// The byte that stands as `\xHH` at the start of a text, if it is one that [`slash_form`] writes so.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let digits = text.get(..4)?.strip_prefix(b"\\x")?;
    let byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let is_escape = digits.iter().all(u8::is_ascii_hexdigit) && !matches!(byte, b' '..=b'~');
    is_escape.then_some(byte)
}

/// Whether two different names pass for one: OpenSSL, for which they have one hash, and people take upper case for lower case
/// and several blanks for one.
pub(crate) fn has_look_of(one: &str, other: &str) -> bool {
    let (one, other) = (normal_name(one), normal_name(other));
    one != other && folded(&one) == folded(&other)
}

fn folded(name: &[u8]) -> Vec<u8> {
    let is_around = |byte: Option<&u8>| byte.is_none_or(|byte| b" /=".contains(byte));
    let kept = name.iter().enumerate().filter(|(at, byte)| {
        let after = name[at + 1..].iter().find(|byte| **byte != b' ');
        let before = at.checked_sub(1).and_then(|before| name.get(before));
        let is_outer = **byte == b' ' && (is_around(before) || is_around(after));
        !is_outer
    });
    kept.map(|(_, byte)| byte.to_ascii_lowercase()).collect()
}

/// Whether a value holds what reads as a further part, `/CN=` or `/ CN =`. `host/se.example.org` does not.
fn looks_like_more(value: &str) -> bool {
    let of_key = |b: u8| b.is_ascii_alphanumeric() || b".-_".contains(&b);
    value.split('/').skip(1).any(|part| {
        part.split_once('=').is_some_and(|(key, _)| {
            let key = key.trim_matches(' ');
            !key.is_empty() && key.bytes().all(of_key)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use openssl::x509::X509Name;
    use std::slice::from_ref;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        [&[tag, content.len() as u8], content].concat()
    }

    /// An attribute by the last byte of its object identifier (2.5.4.x), as UTF8String.
    fn attribute(kind: u8, value: &[u8]) -> Vec<u8> {
        let oid = element(tag::OBJECT_IDENTIFIER, &[0x55, 4, kind]);
        element(tag::SEQUENCE, &[oid, element(0x0c, value)].concat())
    }

    const CN: u8 = 3;
    const OU: u8 = 11;

    /// What a name of these sets of attributes is written as.
    fn written(sets: &[&[Vec<u8>]]) -> Option<String> {
        let sets: Vec<Vec<u8>> = sets
            .iter()
            .map(|set| element(tag::SET, &set.concat()))
            .collect();
        let der = element(tag::SEQUENCE, &sets.concat());
        let name = X509Name::from_der(&der).expect("a name");
        slash_form(&name).ok()
    }

    #[test]
    fn names_that_pass_for_one_are_told() {
        let check = |one: &str, other: &str, expected: bool| {
            assert_eq!(has_look_of(one, other), expected, "{one} {other}");
            assert_eq!(has_look_of(other, one), expected, "{one} {other}");
        };
        check("/O=a b/CN=x", "/O=a  b/CN=x", true);
        check("/O=a b/CN=x", "/O= a b /CN=x ", true);
        check("/O=a b/CN=x", "/O=A B/CN=x", true);
        check("/O=M\\xC3\\xBC  a", "/O=Mü a", true);
        check("/O=a b/CN=x", "/O=ab/CN=x", false);
        check("/O=a b/CN=x", "/O=a b/CN=x", false);
        check("/O=M\\xC3\\xBC", "/O=Mü", false);
    }

    #[test]
    fn only_what_is_no_printable_character_is_read_as_one_byte() {
        assert_eq!(normal_name("/O=M\\xc3\\xBCller"), "/O=Müller".as_bytes());
        for plain in ["/O=a\\x2FCN=b", "/O=a\\xg0", "/O=a\\x", "/O=a\\x+f", "\\"] {
            assert_eq!(normal_name(plain), plain.as_bytes(), "{plain}");
        }
    }

    fn of_value(value: &str) -> Option<String> {
        written(&[&[attribute(CN, value.as_bytes())]])
    }

    #[test]
    fn a_part_of_several_values_is_refused() {
        let (cn, ou) = (attribute(CN, b"a"), attribute(OU, b"b"));
        let apart = written(&[from_ref(&cn), from_ref(&ou)]);
        assert_eq!(apart.as_deref(), Some("/CN=a/OU=b"));
        assert_eq!(written(&[&[cn, ou]]), None);
    }

    #[test]
    fn a_value_that_could_be_written_for_another_is_refused() {
        assert_eq!(of_value("Jos\u{e9}").as_deref(), Some("/CN=Jos\\xC3\\xA9"));
        for refused in [
            "Jos\\xC3\\xA9",
            "\\x00",
            "\\xaf",
            "a/CN=b",
            "a/ CN=b",
            "a/CN =b",
            "a/x-y=b",
        ] {
            assert_eq!(of_value(refused), None, "{refused}");
        }
        for plain in [
            "host/se.example.org",
            "a\\b",
            "a\\xyz",
            "a=b",
            "a/b c=d",
            "a/=b",
        ] {
            assert_eq!(of_value(plain), Some(format!("/CN={plain}")));
        }
    }
}
