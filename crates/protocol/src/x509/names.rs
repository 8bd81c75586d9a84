//! Subjects as texts: how they are written, and how they are compared with what people have written.

use super::CertificateError;
use openssl::nid::Nid;
use openssl::x509::X509NameRef;

/// `/DC=lab/OU=Users/CN=Alice`: the form in which grid software has always written subjects. Bytes outside
/// printable ASCII stand as `\xHH`, as OpenSSL's one-line form has it.
pub(crate) fn slash_form(name: &X509NameRef) -> Result<String, CertificateError> {
    let mut out = String::new();
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
        if looks_like_more(&out[before..]) {
            return Err(CertificateError::Name(out));
        }
    }
    Ok(out)
}

/// A subject as it is compared with what people have written: older software has other keys for the same.
pub(crate) fn comparable_name(subject: &str) -> String {
    let subject = subject.replace("/Email=", "/emailAddress=");
    let subject = subject.replace("/E=", "/emailAddress=");
    subject.replace("/USERID=", "/UID=")
}

/// Whether a value holds what reads as a further part, `/CN=`. `host/se.example.org` does not.
fn looks_like_more(value: &str) -> bool {
    value.split('/').skip(1).any(|part| {
        part.split_once('=').is_some_and(|(key, _)| {
            !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
        })
    })
}
