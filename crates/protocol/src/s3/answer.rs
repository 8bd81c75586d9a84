//! What S3 servers answer: errors, the id of an upload in parts, checksums in headers.
//!
//! Of an error body only the fields that are safe to show are kept: it may also repeat the request with its signature.

use crate::webdav::InvalidXml;
use crate::webdav::xml::{Node, Walk};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use penstock_model::{Checksum, ChecksumAlgorithm};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Characters of one field.
const FIELD_CHARS_MAX: usize = 1024;
/// Fields of one body.
const FIELDS_MAX: usize = 64;

/// What an error body tells (S3 API, "Error responses"). Empty fields were not told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct S3Error {
    /// Such as `NoSuchKey`.
    pub code: String,
    /// For people.
    pub message: String,
    /// The region that the bucket is in.
    pub region: String,
    /// The server's clock, when the client's differs too much.
    pub server_time: String,
}

impl S3Error {
    /// Reads an error body; `None` when it is none.
    pub fn parse(body: &[u8]) -> Option<S3Error> {
        S3Error::of(flat(body).ok()?)
    }

    fn of(mut document: Flat) -> Option<S3Error> {
        if document.root != "Error" {
            return None;
        }
        Some(S3Error {
            code: document.take("Code"),
            message: document.take("Message"),
            region: document.take("Region"),
            server_time: document.take("ServerTime"),
        })
    }
}

/// The id of an upload in parts that has begun (S3 API, CreateMultipartUpload).
pub fn upload_id(body: &[u8]) -> Option<String> {
    let mut document = flat(body).ok()?;
    let id = document.take("UploadId");
    (document.root == "InitiateMultipartUploadResult" && !id.is_empty()).then_some(id)
}

/// Whether an upload in parts was completed. S3 begins to answer 200 before it knows; the body tells how it ended.
/// Errors: what it tells, or nothing that is understood.
pub fn completed(body: &[u8]) -> Result<(), S3Error> {
    match flat(body) {
        Ok(document) if document.root == "CompleteMultipartUploadResult" => Ok(()),
        Ok(document) => Err(S3Error::of(document).unwrap_or_default()),
        Err(_) => Err(S3Error::default()),
    }
}

/// The body that completes an upload: its parts by their entity tags, from number 1 on.
pub fn completion_body(entity_tags: &[String]) -> String {
    let mut body = String::from("<CompleteMultipartUpload>");
    for (tag, number) in entity_tags.iter().zip(1u32..) {
        let tag = quick_xml::escape::escape(tag.as_str());
        let _ = write!(
            body,
            "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
        );
    }
    body + "</CompleteMultipartUpload>"
}

/// The checksums of a whole object, as far as the answer to a HEAD with `x-amz-checksum-mode: ENABLED` tells them:
/// - what S3 itself computed of all bytes; those of uploads in parts are of their parts' checksums, and end in `-N`
///   or say `COMPOSITE`;
/// - the entity tag, which is the MD5 of an object that came in one piece and is not encrypted with a key of KMS or the
///   client's;
/// - what the writer noted as metadata in the name of an algorithm, as this service does with Adler-32, which S3 does
///   not know. It is the writer's word.
pub fn object_checksums(headers: &HeaderMap) -> Vec<Checksum> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let mut found = Vec::new();
    let mut add = |checksum: Option<Checksum>| {
        if let Some(checksum) = checksum
            && !found
                .iter()
                .any(|known: &Checksum| known.algorithm() == checksum.algorithm())
        {
            found.push(checksum);
        }
    };
    if text("x-amz-checksum-type") != Some("COMPOSITE") {
        for (name, algorithm) in [
            ("x-amz-checksum-crc32c", ChecksumAlgorithm::Crc32c),
            ("x-amz-checksum-sha256", ChecksumAlgorithm::Sha256),
        ] {
            let bytes = text(name).and_then(|value| STANDARD.decode(value).ok());
            add(bytes.and_then(|bytes| Checksum::from_bytes(algorithm, &bytes)));
        }
    }
    let encryption = text("x-amz-server-side-encryption").unwrap_or_default();
    let is_plain = !encryption.starts_with("aws:kms")
        && text("x-amz-server-side-encryption-customer-algorithm").is_none();
    if let (true, Some(tag)) = (is_plain, text("etag")) {
        let tag = tag.trim_matches('"');
        let md5 = ChecksumAlgorithm::Md5;
        add((tag.len() == md5.hex_digits())
            .then(|| Checksum::from_hex(md5, tag))
            .flatten());
    }
    for algorithm in ChecksumAlgorithm::ALL {
        let noted = text(metadata_name(algorithm));
        add(noted.and_then(|noted| Checksum::from_hex(algorithm, noted)));
    }
    found
}

/// The header by which a writer notes a checksum.
pub fn metadata_name(algorithm: ChecksumAlgorithm) -> &'static str {
    match algorithm {
        ChecksumAlgorithm::Adler32 => "x-amz-meta-adler32",
        ChecksumAlgorithm::Crc32c => "x-amz-meta-crc32c",
        ChecksumAlgorithm::Md5 => "x-amz-meta-md5",
        ChecksumAlgorithm::Sha256 => "x-amz-meta-sha256",
    }
}

/// A document of one level.
struct Flat {
    root: String,
    fields: BTreeMap<String, String>,
}

impl Flat {
    fn take(&mut self, name: &str) -> String {
        self.fields.remove(name).unwrap_or_default()
    }
}

/// Namespaces do not count: some servers leave them out.
fn flat(body: &[u8]) -> Result<Flat, InvalidXml> {
    let mut walk = Walk::new(body, super::BODY_BYTES_MAX as usize)?;
    let mut document = Flat {
        root: String::new(),
        fields: BTreeMap::new(),
    };
    let mut open: Vec<String> = Vec::new();
    while let Some(node) = walk.step()? {
        match node {
            Node::Open(name) => {
                if open.is_empty() {
                    document.root.clone_from(&name.local);
                }
                open.push(name.local);
            }
            Node::Close => {
                open.pop();
            }
            Node::Text(text) => {
                if let [_, field] = open.as_slice()
                    && (document.fields.len() < FIELDS_MAX || document.fields.contains_key(field))
                {
                    let kept = document.fields.entry(field.clone()).or_default();
                    let room = FIELD_CHARS_MAX.saturating_sub(kept.chars().count());
                    kept.extend(text.chars().filter(|c| !c.is_control()).take(room));
                }
            }
        }
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    const NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

    #[test]
    fn an_error_is_read_without_what_it_repeats_of_the_request() {
        let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>SignatureDoesNotMatch</Code>\
            <Message>The signature &lt;does&gt; not match</Message><StringToSign>AWS4 secret</StringToSign>\
            <RequestId>1</RequestId></Error>";
        let error = S3Error::parse(body.as_bytes()).expect("an error");
        assert_eq!(error.code, "SignatureDoesNotMatch");
        assert_eq!(error.message, "The signature <does> not match");
        assert!(!format!("{error:?}").contains("secret"));
    }

    #[test]
    fn what_is_no_error_is_none() {
        for body in [
            "",
            "gone",
            "<html><body>502</body></html>",
            "<Error><Code>",
            "<!DOCTYPE x [<!ENTITY a \"b\">]><Error><Code>&a;</Code></Error>",
            "<Error/><Error/>",
        ] {
            assert_eq!(S3Error::parse(body.as_bytes()), None, "{body}");
        }
        assert_eq!(S3Error::parse(b"<Error></Error>"), Some(S3Error::default()));
    }

    #[test]
    fn hostile_bodies_are_bounded() {
        let long = format!("<Error><Message>{}</Message></Error>", "x".repeat(60_000));
        let error = S3Error::parse(long.as_bytes()).expect("an error");
        assert_eq!(error.message.len(), FIELD_CHARS_MAX);
        let many: String = (0..2000).map(|n| format!("<a{n}>x</a{n}>")).collect();
        let many = flat(format!("<Error>{many}</Error>").as_bytes()).expect("well-formed");
        assert_eq!(many.fields.len(), FIELDS_MAX);
        let deep = "<Error>".repeat(5000);
        assert!(flat(deep.as_bytes()).is_err());
        assert!(flat(&vec![b' '; 1 << 20]).is_err());
    }

    #[test]
    fn an_upload_has_an_id() {
        let body = |id: &str| {
            format!(
                "<InitiateMultipartUploadResult xmlns=\"{NAMESPACE}\"><Bucket>b</Bucket>\
                 <UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
            )
        };
        assert_eq!(
            upload_id(body("a&amp;b/==").as_bytes()).as_deref(),
            Some("a&b/==")
        );
        assert_eq!(upload_id(body("").as_bytes()), None);
        assert_eq!(upload_id(b"<Error><UploadId>a</UploadId></Error>"), None);
    }

    #[test]
    fn a_completion_that_failed_after_all_is_seen() {
        assert_eq!(
            completed(
                b" \n<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
            ),
            Ok(())
        );
        let failed = completed(b"<Error><Code>InternalError</Code></Error>");
        assert_eq!(failed.expect_err("an error").code, "InternalError");
        assert!(completed(b"").is_err());
    }

    #[test]
    fn parts_are_listed_in_order_and_escaped() {
        let tags = ["\"a\"".to_owned(), "<b>".to_owned()];
        assert_eq!(
            completion_body(&tags),
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part>\
             <Part><PartNumber>2</PartNumber><ETag>&lt;b&gt;</ETag></Part></CompleteMultipartUpload>"
        );
    }

    #[test]
    fn checksums_count_where_they_are_of_the_whole_object() {
        let check = |pairs: &[(&'static str, &'static str)], expected: &[&str]| {
            let pairs = pairs.iter().map(|(name, value)| {
                (
                    name.parse().expect("a name"),
                    HeaderValue::from_static(value),
                )
            });
            let headers: HeaderMap = pairs.collect();
            let found: Vec<String> = object_checksums(&headers)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(found, expected, "{headers:?}");
        };
        let md5 = ("etag", "\"d41d8cd98f00b204e9800998ecf8427e\"");
        check(&[md5], &["md5:d41d8cd98f00b204e9800998ecf8427e"]);
        check(&[("etag", "\"d41d8cd98f00b204e9800998ecf8427e-2\"")], &[]);
        check(&[md5, ("x-amz-server-side-encryption", "aws:kms")], &[]);
        check(
            &[md5, ("x-amz-server-side-encryption", "AES256")],
            &["md5:d41d8cd98f00b204e9800998ecf8427e"],
        );
        check(
            &[("x-amz-checksum-crc32c", "yZRlqg==")],
            &["crc32c:c99465aa"],
        );
        check(
            &[
                ("x-amz-checksum-crc32c", "yZRlqg=="),
                ("x-amz-checksum-type", "COMPOSITE"),
            ],
            &[],
        );
        check(&[("x-amz-checksum-crc32c", "yZRlqg==-3")], &[]);
        check(&[("x-amz-meta-adler32", "1A0B045D")], &["adler32:1a0b045d"]);
        check(&[("x-amz-meta-adler32", "none")], &[]);
    }

    proptest! {
        #[test]
        fn no_body_breaks_the_reader(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = S3Error::parse(&body);
            let _ = upload_id(&body);
            let _ = completed(&body);
        }

        #[test]
        fn no_document_breaks_the_reader(body in "(<(/?)(Error|Code|UploadId|x)( a='1')?>|&lt;|&x;|<!--|]]>|t){0,20}") {
            let _ = S3Error::parse(body.as_bytes());
            let _ = completed(body.as_bytes());
        }
    }
}
