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
