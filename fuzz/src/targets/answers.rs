//! What other services answer us: tape systems, token issuers, cloud storages.

use super::{Target, headers, texts};
use http::{HeaderName, HeaderValue};
use penstock_model::StageRequestId;
use penstock_model::tape::path_of;
use penstock_protocol::oauth::{Grant, token_endpoint};
use penstock_protocol::s3::{S3Error, completed, completion_body, object_checksums, upload_id};
use penstock_protocol::tape::{TapeInterface, parse_archive_info, parse_progress, parse_staged};
use url::Url;

const ISSUER: &str = "https://iam.example.org/";
/// Characters of another service's words that may come into a text of ours, with room for what is around them.
const WORDS_CHARS_MAX: usize = 600;
/// What nobody but its issuer and we may see.
const TOKEN: &str = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln";

pub const TAPE: Target = Target {
    name: "tape_answers",
    check: check_tape,
    seeds: || {
        texts(&[
            r#"{"sitename":"lab","description":"x","endpoints":[{"uri":"https://tape.example.org:8443/api/v1","version":"v1"},
               {"uri":"https://tape.example.org/v2","version":"v2"}]}"#,
            r#"{"requestId":"0b1d0d8e-4c3f-4a51-9c2e-1d2f3a4b5c6d"}"#,
            r#"{"id":"7","createdAt":1,"files":[{"path":"//a/b%20c","onDisk":true},{"path":"/d","state":"FAILED","error":"x"},
               {"path":"/e","state":"COMPLETED","onDisk":false},{"path":"/f","state":"SUBMITTED"}]}"#,
            r#"[{"path":"/a","locality":"DISK_AND_TAPE"},{"path":"/b","error":"USER ERROR: not found"},{"path":"/c"}]"#,
        ])
    },
};

pub const ISSUERS: Target = Target {
    name: "issuer_answers",
    check: check_issuer,
    seeds: || {
        let exchanged = format!(
            r#"{{"access_token":"{TOKEN}","issued_token_type":"urn:ietf:params:oauth:token-type:refresh_token","token_type":"N_A"}}"#
        );
        let refreshed = format!(
            r#"{{"access_token":"{TOKEN}","refresh_token":"r","token_type":"Bearer","expires_in":3599.5}}"#
        );
        let refused = format!(r#"{{"error":"invalid_grant","error_description":"no: {TOKEN}"}}"#);
        let document = format!(
            r#"{{"issuer":"{ISSUER}","token_endpoint":"{ISSUER}token","jwks_uri":"{ISSUER}jwk"}}"#
        );
        texts(&[&exchanged, &refreshed, &refused, &document])
    },
};

pub const CLOUDS: Target = Target {
    name: "cloud_answers",
    check: check_cloud,
    seeds: || {
        texts(&[
            "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>It is not there</Message><Region>eu-west-3</Region>\
             <ServerTime>2026-11-22T06:00:00Z</ServerTime><StringToSign>AWS4</StringToSign></Error>",
            "<InitiateMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><UploadId>a&amp;b</UploadId>\
             </InitiateMultipartUploadResult>",
            "<CompleteMultipartUploadResult><ETag>\"x\"</ETag></CompleteMultipartUploadResult>",
            "etag: \"d41d8cd98f00b204e9800998ecf8427e\"\nx-amz-meta-adler32: 03da0195\nx-amz-checksum-crc32c: AAAAAA==",
            "etag: \"d41d8cd98f00b204e9800998ecf8427e-2\"\nx-amz-checksum-type: COMPOSITE\nx-amz-checksum-sha256: AAAA",
        ])
    },
};

fn assert_short(text: &str) {
    assert!(text.chars().count() <= WORDS_CHARS_MAX, "{text}");
}

fn check_tape(data: &[u8]) {
    match TapeInterface::parse(data) {
        Ok(tape) => {
            // Whatever a request is called, its calls go where the interface is, and below it.
            let base = tape.uri().clone();
            assert!(base.has_host() && base.username().is_empty());
            for url in [tape.stage(), tape.archive_info()] {
                assert_eq!(url.scheme(), base.scheme());
                assert_eq!((url.host_str(), url.port()), (base.host_str(), base.port()));
                assert!(url.query().is_none() && url.fragment().is_none());
            }
            assert_short(&tape.site);
        }
        Err(why) => assert_short(&why.to_string()),
    }
    let tape = TapeInterface::parse(
        br#"{"sitename":"lab","endpoints":[{"uri":"https://t.example.org/api/v1","version":"v1"}]}"#,
    )
    .expect("a good document");
    match parse_staged(data) {
        Ok(id) => {
            for url in [tape.request(&id), tape.cancel(&id), tape.release(&id)] {
                assert!(url.path().starts_with("/api/v1/"), "{url}");
                assert!(url.query().is_none() && url.fragment().is_none(), "{url}");
                assert!(url.path().split('/').count() <= 6, "{url}");
            }
        }
        Err(why) => assert_short(&why.to_string()),
    }
    match parse_progress(data, &StageRequestId::new("7".to_owned())) {
        Ok(files) => assert!(files.len() <= data.len() / 2),
        Err(why) => assert_short(&why.to_string()),
    }
    match parse_archive_info(data) {
        Ok(files) => {
            for (_, place) in &files {
                if let Err(why) = place {
                    assert_short(why);
                }
            }
        }
        Err(why) => assert_short(&why.to_string()),
    }
    if let Some(url) = std::str::from_utf8(data)
        .ok()
        .and_then(|text| Url::parse(text).ok())
    {
        let path = path_of(&url);
        assert!(path.is_empty() || path.starts_with('/'), "{path}");
        assert!(!path.contains("//"), "{path}");
    }
}

fn check_issuer(data: &[u8]) {
    for grant in [Grant::Exchange(TOKEN), Grant::Refresh(TOKEN)] {
        for status in [200, 400, 503] {
            match grant.parse(status, data) {
                Ok(given) => {
                    assert_eq!(status, 200);
                    // What is told of it holds no token.
                    let shown = format!("{given:?}");
                    for secret in [&given.access, &given.refresh].into_iter().flatten() {
                        assert!(secret.len() < 12 || !shown.contains(secret.as_str()));
                    }
                }
                Err(refused) => {
                    let text = refused.to_string();
                    assert_short(&text);
                    assert!(!text.contains(TOKEN), "{text}");
                    assert!(!text.chars().any(char::is_control), "{text:?}");
                }
            }
        }
    }
    if let Ok(url) = token_endpoint(ISSUER, data) {
        assert_eq!(url.scheme(), "https");
        assert!(url.has_host());
    }
}

fn check_cloud(data: &[u8]) {
    if let Some(error) = S3Error::parse(data) {
        let fields = [error.code, error.message, error.region, error.server_time];
        assert!(fields.iter().map(String::len).sum::<usize>() <= data.len());
    }
    if let Some(id) = upload_id(data) {
        assert!(!id.is_empty());
    }
    if let Err(error) = completed(data) {
        assert!(error.code.len() <= data.len());
    }
    let told = headers(data);
    let sums = object_checksums(&told);
    assert!(sums.len() <= 4, "one for each algorithm");
    // A server's entity tag is repeated to it as one part, whatever it holds.
    let tag = String::from_utf8_lossy(data).into_owned();
    let body = completion_body(&[tag]);
    assert_eq!(body.matches("<PartNumber>").count(), 1);
    let hidden = HeaderValue::from_bytes(data).is_ok_and(|value| {
        let sse = HeaderName::from_static("x-amz-server-side-encryption");
        let mut encrypted = told.clone();
        encrypted.insert(sse, HeaderValue::from_static("aws:kms"));
        encrypted.insert(http::header::ETAG, value);
        object_checksums(&encrypted).len() > sums.len()
    });
    assert!(
        !hidden,
        "the entity tag of an encrypted object is no checksum"
    );
}
