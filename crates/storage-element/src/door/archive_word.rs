//! What the headers of a request that writes a file say of how it is to be put on tape: archive metadata as gfal2 and FTS send
//! it, and the job that the file was submitted with.

use http::HeaderMap;
use penstock_persistence::namespace::ArchiveWord;
use penstock_protocol::tape::{ARCHIVE_METADATA, read_archive_note};

/// Bytes of the name of a job.
const SUBMISSION_BYTES_MAX: usize = 128;

/// Never refuses a file for what it says beside it: what cannot be read is kept as that.
pub(super) fn archive_word(headers: &HeaderMap, challenge: Option<String>) -> ArchiveWord {
    let metadata = headers.get(ARCHIVE_METADATA);
    ArchiveWord {
        metadata: metadata.map(|value| read_archive_note(value.as_bytes()).unwrap_or_default()),
        submission: submission_of(headers),
        challenge,
    }
}

/// The job of `job-id=…;file-id=…;retry=…`.
fn submission_of(headers: &HeaderMap) -> Option<String> {
    let info = headers.get("clientinfo")?.to_str().ok()?;
    let mut pairs = info.split(';');
    let job = pairs.find_map(|pair| pair.trim().strip_prefix("job-id="))?;
    let job = job.trim();
    let is_name = !job.is_empty() && job.len() <= SUBMISSION_BYTES_MAX;
    is_name.then(|| job.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use penstock_protocol::tape::archive_note;
    use serde_json::json;

    fn told(metadata: Option<&[u8]>, info: Option<&str>) -> (Option<String>, Option<String>) {
        let mut headers = HeaderMap::new();
        if let Some(metadata) = metadata {
            let value = HeaderValue::from_bytes(metadata).expect("a header");
            headers.insert("archivemetadata", value);
        }
        if let Some(info) = info {
            headers.insert("clientinfo", HeaderValue::from_str(info).expect("a header"));
        }
        let word = archive_word(&headers, None);
        (word.metadata, word.submission)
    }

    #[test]
    fn what_gfal_and_fts_send_is_understood() {
        let note = r#"{"collocation_hints":{"0":"data23"}}"#;
        let sent = archive_note(&serde_json::from_str(note).expect("JSON"));
        let info = "job-id=7e8e4f;file-id=2;retry=0";
        assert_eq!(
            told(Some(sent.as_bytes()), Some(info)),
            (Some(note.to_owned()), Some("7e8e4f".to_owned()))
        );
        assert_eq!(told(None, None), (None, None));
        assert_eq!(told(None, Some("job-id=;file-id=2")), (None, None));
    }

    #[test]
    fn what_cannot_be_read_or_is_too_long_is_kept_as_unreadable() {
        let unreadable = Some(String::new());
        let long = archive_note(&json!({"a": "x".repeat(5_000)}));
        for sent in [
            &b"not base64 at all"[..],
            b"\xff\xfe",
            archive_note(&json!([1])).as_bytes(),
            b"//4=",
            long.as_bytes(),
            b"",
        ] {
            assert_eq!(told(Some(sent), None).0, unreadable);
        }
        let job = format!("job-id={}", "j".repeat(SUBMISSION_BYTES_MAX + 1));
        assert_eq!(told(None, Some(&job)).1, None);
    }
}
