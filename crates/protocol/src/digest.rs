//! Checksums in HTTP headers: `Want-Digest` and `Digest` (RFC 3230), `Want-Repr-Digest` and `Repr-Digest`
//! (RFC 9530), `Content-MD5` (RFC 1864).
//!
//! Adler-32 and CRC-32C travel as hex in RFC 3230 headers and as base64 of four bytes in RFC 9530 ones. CRC-32C in base64
//! is read in RFC 3230 headers, too.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderMap, HeaderValue};
use penstock_model::{Checksum, ChecksumAlgorithm};
use thiserror::Error;

/// Some senders leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Why a digest that the sender relies on cannot be honoured. Answer 400: to ignore it would be to store
/// unverified what the sender wanted verified.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidDigest {
    /// The value is not hex or base64 of the right length.
    #[error("the {algorithm} value in the '{header}' header is not a valid checksum")]
    Value {
        header: &'static str,
        algorithm: ChecksumAlgorithm,
    },
    /// The header is not text, or not `name=value`.
    #[error("the '{0}' header is malformed")]
    Syntax(&'static str),
    /// Two values for one algorithm that differ.
    #[error("the headers give two different {0} checksums")]
    Contradiction(ChecksumAlgorithm),
}

/// The algorithms that a client wants in `Digest`, best first; what we do not know is left out.
pub fn wanted(headers: &HeaderMap) -> Vec<ChecksumAlgorithm> {
    ranked(items(headers, "want-digest").filter_map(|item| {
        let mut parts = item.split(';');
        let name = parts.next()?;
        let quality = parts
            .filter_map(|part| part.split_once('='))
            .find(|(key, _)| key.trim().eq_ignore_ascii_case("q"));
        // RFC 9110 §12.4.2: a weight is 0 to 1 with at most three digits; without one it is 1.
        let quality = match quality {
            Some((_, text)) => text.trim().parse::<f64>().ok()?,
            None => 1.0,
        };
        Some((name.to_owned(), (quality.clamp(0.0, 1.0) * 1000.0) as u32))
    }))
}

/// The algorithms that a client wants in `Repr-Digest`, best first.
pub fn wanted_repr(headers: &HeaderMap) -> Vec<ChecksumAlgorithm> {
    ranked(items(headers, "want-repr-digest").filter_map(|item| {
        let item = item.split(';').next()?;
        // RFC 9530 §4: the preference is an integer from 0 (not acceptable) to 10.
        let (name, preference) = item.split_once('=')?;
        Some((name.to_owned(), preference.trim().parse().ok()?))
    }))
}

fn ranked(asked: impl Iterator<Item = (String, u32)>) -> Vec<ChecksumAlgorithm> {
    let mut known: Vec<(ChecksumAlgorithm, u32)> = Vec::new();
    for (name, preference) in asked {
        let Some(algorithm) = ChecksumAlgorithm::parse(&name) else {
            continue;
        };
        if preference > 0 && known.iter().all(|(seen, _)| *seen != algorithm) {
            known.push((algorithm, preference));
        }
    }
    // The sort is stable: among equals the client's order stands.
    known.sort_by_key(|(_, preference)| std::cmp::Reverse(*preference));
    known.into_iter().map(|(algorithm, _)| algorithm).collect()
}

/// The value of a `Digest` header. Hex is always of full width, because some systems compare it as text.
pub fn header_value(checksums: &[Checksum]) -> HeaderValue {
    let one = |sum: &Checksum| match sum.algorithm() {
        ChecksumAlgorithm::Adler32 | ChecksumAlgorithm::Crc32c => {
            format!("{}={}", sum.algorithm(), sum.hex())
        }
        ChecksumAlgorithm::Md5 | ChecksumAlgorithm::Sha256 => {
            format!("{}={}", sum.algorithm(), BASE64.encode(sum.to_bytes()))
        }
    };
    joined(checksums, one, ",")
}

/// The value of a `Repr-Digest` header, with the names that IANA registered.
pub fn repr_header_value(checksums: &[Checksum]) -> HeaderValue {
    let one = |sum: &Checksum| {
        let name = match sum.algorithm() {
            ChecksumAlgorithm::Adler32 => "adler",
            other => other.name(),
        };
        format!("{name}=:{}:", BASE64.encode(sum.to_bytes()))
    };
    joined(checksums, one, ", ")
}

fn joined(checksums: &[Checksum], one: impl Fn(&Checksum) -> String, between: &str) -> HeaderValue {
    let text = checksums.iter().map(one).collect::<Vec<_>>().join(between);
    HeaderValue::from_str(&text).expect("names, hex and base64 are visible ASCII")
}

/// Every checksum that the headers state, one per algorithm. Unknown algorithms are left out.
pub fn parse(headers: &HeaderMap) -> Result<Vec<Checksum>, InvalidDigest> {
    let mut found = Vec::new();
    for item in texts(headers, "digest")? {
        add(&mut found, digest_item(&item)?)?;
    }
    for item in texts(headers, "repr-digest")? {
        add(&mut found, repr_item(&item)?)?;
    }
    for value in texts(headers, "content-md5")? {
        let sum = decoded(ChecksumAlgorithm::Md5, &value).ok_or(InvalidDigest::Value {
            header: "Content-MD5",
            algorithm: ChecksumAlgorithm::Md5,
        })?;
        add(&mut found, Some(sum))?;
    }
    Ok(found)
}

fn add(found: &mut Vec<Checksum>, sum: Option<Checksum>) -> Result<(), InvalidDigest> {
    let Some(sum) = sum else {
        return Ok(());
    };
    match found
        .iter()
        .find(|other| other.algorithm() == sum.algorithm())
    {
        Some(other) if *other != sum => return Err(InvalidDigest::Contradiction(sum.algorithm())),
        Some(_) => {}
        None => found.push(sum),
    }
    Ok(())
}

/// RFC 3230 §4.3.2: `name=value`; base64 may itself contain `=`.
fn digest_item(item: &str) -> Result<Option<Checksum>, InvalidDigest> {
    let (name, value) = item
        .split_once('=')
        .ok_or(InvalidDigest::Syntax("Digest"))?;
    let Some(algorithm) = ChecksumAlgorithm::parse(name) else {
        return Ok(None);
    };
    let sum = match algorithm {
        ChecksumAlgorithm::Adler32 => Checksum::from_hex(algorithm, value),
        // XRootD before 5.8 sends base64. With its padding it cannot be taken for hex.
        ChecksumAlgorithm::Crc32c if value.ends_with("==") => {
            let bytes = BASE64.decode(value).ok();
            bytes.and_then(|bytes| Checksum::from_bytes(algorithm, &bytes))
        }
        ChecksumAlgorithm::Crc32c => Checksum::from_hex(algorithm, value),
        ChecksumAlgorithm::Md5 | ChecksumAlgorithm::Sha256 => decoded(algorithm, value),
    };
    let invalid = InvalidDigest::Value {
        header: "Digest",
        algorithm,
    };
    sum.ok_or(invalid).map(Some)
}

/// RFC 9530 §2, a structured-field dictionary of byte sequences: `name=:base64:`.
fn repr_item(item: &str) -> Result<Option<Checksum>, InvalidDigest> {
    let syntax = InvalidDigest::Syntax("Repr-Digest");
    let (name, value) = item.split_once('=').ok_or(syntax)?;
    let Some(algorithm) = ChecksumAlgorithm::parse(name) else {
        return Ok(None);
    };
    let value = value.split(';').next().unwrap_or_default().trim();
    let bytes = value
        .strip_prefix(':')
        .and_then(|rest| rest.strip_suffix(':'))
        .and_then(|base64| BASE64.decode(base64).ok());
    let invalid = InvalidDigest::Value {
        header: "Repr-Digest",
        algorithm,
    };
    let sum = bytes.and_then(|bytes| Checksum::from_bytes(algorithm, &bytes));
    sum.ok_or(invalid).map(Some)
}

/// Base64 as the standards say; hex as some clients send it. The lengths never coincide.
fn decoded(algorithm: ChecksumAlgorithm, value: &str) -> Option<Checksum> {
    let value = value.trim();
    if value.len() == algorithm.hex_digits() {
        return Checksum::from_hex(algorithm, value);
    }
    Checksum::from_bytes(algorithm, &BASE64.decode(value).ok()?)
}

fn items<'a>(headers: &'a HeaderMap, name: &'static str) -> impl Iterator<Item = String> + 'a {
    let values = headers.get_all(name).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .map(|item| item.trim().to_owned())
        .filter(|item| !item.is_empty())
}

fn texts(headers: &HeaderMap, name: &'static str) -> Result<Vec<String>, InvalidDigest> {
    let readable = headers
        .get_all(name)
        .iter()
        .all(|value| value.to_str().is_ok());
    match readable {
        true => Ok(items(headers, name).collect()),
        false => Err(InvalidDigest::Syntax(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;
    use proptest::prelude::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let parsed = lines.iter().map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            (name, HeaderValue::from_str(value).expect("a header value"))
        });
        parsed.collect()
    }

    fn check_wanted(value: &str, expected: &str) {
        let got = wanted(&headers(&[("Want-Digest", value)]));
        let names: Vec<&str> = got.iter().map(|algorithm| algorithm.name()).collect();
        assert_eq!(names.join(" "), expected, "{value}");
    }

    fn check(lines: &[(&str, &str)], expected: &str) {
        let got = match parse(&headers(lines)) {
            Ok(sums) => sums
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" "),
            Err(why) => format!("refused: {why}"),
        };
        assert_eq!(got, expected, "{lines:?}");
    }

    #[test]
    fn the_clients_preference_decides() {
        check_wanted("adler32", "adler32");
        check_wanted("ADLER32", "adler32");
        check_wanted(
            "md5;q=0.3, sha-256;q=1, adler32;q=0.5",
            "sha-256 adler32 md5",
        );
        check_wanted("UNIXsum, crc32c, md5;q=0, adler32", "crc32c adler32");
        check_wanted("md5;q=nonsense, sha", "");
        check_wanted("", "");
        let asked = headers(&[("Want-Repr-Digest", "sha-256=3, adler=10, md5=0")]);
        use ChecksumAlgorithm::{Adler32, Sha256};
        assert_eq!(wanted_repr(&asked), [Adler32, Sha256]);
    }

    #[test]
    fn both_generations_of_headers_are_read() {
        check(&[("Digest", "adler32=727f416b")], "adler32:727f416b");
        check(&[("Digest", "ADLER32=1A2B")], "adler32:00001a2b");
        check(
            &[("Digest", "MD5=HUXZLQLMuI/KZ5KDcJPcOA==,adler32=03da0195")],
            "md5:1d45d92d02ccb88fca6792837093dc38 adler32:03da0195",
        );
        check(
            &[("Digest", "md5=900150983cd24fb0d6963f7d28e17f72")],
            "md5:900150983cd24fb0d6963f7d28e17f72",
        );
        check(
            &[("Content-MD5", "kAFQmDzST7DWlj99KOF/cg==")],
            "md5:900150983cd24fb0d6963f7d28e17f72",
        );
        check(&[("Repr-Digest", "adler=:Ak0BJw==:")], "adler32:024d0127");
        check(
            &[(
                "Repr-Digest",
                "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:, x=:AA==:",
            )],
            "sha-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        );
        check(&[("Digest", "crc32c=ff44e5cd")], "crc32c:ff44e5cd");
        check(&[("Digest", "crc32c=/0TlzQ==")], "crc32c:ff44e5cd");
        check(&[("Digest", "sha-512=abc, unixsum=30637")], "");
        check(&[], "");
    }

    #[test]
    fn a_digest_that_cannot_be_honoured_is_refused() {
        check(
            &[("Digest", "adler32=xyz")],
            "refused: the adler32 value in the 'Digest' header is not a valid checksum",
        );
        check(
            &[("Digest", "adler32")],
            "refused: the 'Digest' header is malformed",
        );
        check(
            &[("Repr-Digest", "adler=024d0127")],
            "refused: the adler32 value in the 'Repr-Digest' header is not a valid checksum",
        );
        check(
            &[("Digest", "adler32=1"), ("Repr-Digest", "adler=:Ak0BJw==:")],
            "refused: the headers give two different adler32 checksums",
        );
        check(
            &[("Content-MD5", "AA==")],
            "refused: the md5 value in the 'Content-MD5' header is not a valid checksum",
        );
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut hasher = crate::checksum::Hasher::new(&ChecksumAlgorithm::ALL);
        hasher.update(b"abc");
        let sums = hasher.finish();
        assert_eq!(
            header_value(&sums),
            "adler32=024d0127,crc32c=364b3fb7,md5=kAFQmDzST7DWlj99KOF/cg==,\
             sha-256=ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="
        );
        for (name, value) in [
            ("digest", header_value(&sums)),
            ("repr-digest", repr_header_value(&sums)),
        ] {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
            assert_eq!(parse(&headers).as_ref(), Ok(&sums));
        }
    }

    proptest! {
        #[test]
        fn no_header_value_makes_it_panic(bytes: Vec<u8>, text in "[a-zA-Z0-9=:;,. -]{0,60}") {
            for name in ["want-digest", "want-repr-digest", "digest", "repr-digest", "content-md5"] {
                for value in [&bytes[..], text.as_bytes()] {
                    if let Ok(value) = HeaderValue::from_bytes(value) {
                        let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
                        let _ = (wanted(&headers), wanted_repr(&headers), parse(&headers));
                    }
                }
            }
        }
    }
}
