//! What a submission says of tape: files that come from there, files that have to get there.

use super::{InvalidSubmission, bad, flag, integer, positive};
use penstock_engine::checked_submission::NewTransfer;
use penstock_model::tape::STAGING_SECONDS_DEFAULT;
use penstock_model::{FileUrl, JobKind, Overwrite, Staging, TapeNotes};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Bytes of `staging_metadata` and of `archive_metadata`, as JSON.
const NOTE_BYTES_MAX: usize = 1024;
/// Bytes of the name of a space: FTS's column.
const SPACE_BYTES_MAX: usize = 255;
/// Nobody waits for longer: ten years.
const SECONDS_MAX: u64 = 315_360_000;

/// `bring_online` and `copy_pin_lifetime`: either one above 0 means that files come from tape.
pub(super) fn staging(params: &Map<String, Value>) -> Result<Option<Staging>, InvalidSubmission> {
    let seconds = |key| Ok(positive(params, key)?.map(|seconds| seconds.min(SECONDS_MAX)));
    Ok(
        match (seconds("bring_online")?, seconds("copy_pin_lifetime")?) {
            (None, None) => None,
            (within, pin_seconds) => Some(Staging {
                within_seconds: within.unwrap_or(STAGING_SECONDS_DEFAULT),
                pin_seconds,
            }),
        },
    )
}

/// `archive_timeout`: negative means that nobody looks whether files get to tape.
pub(super) fn archive_seconds(
    params: &Map<String, Value>,
) -> Result<Option<u64>, InvalidSubmission> {
    let seconds = integer(params, "archive_timeout")?;
    Ok(seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map(|seconds| seconds.min(SECONDS_MAX)))
}

/// `source_spacetoken` and `destination_spacetoken`: names of spaces, which SRMs know. Empty: none.
pub(super) fn space(
    params: &Map<String, Value>,
    key: &str,
) -> Result<Option<String>, InvalidSubmission> {
    match params.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(name)) if name.is_empty() => Ok(None),
        Some(Value::String(name))
            if name.len() <= SPACE_BYTES_MAX && !name.chars().any(char::is_control) =>
        {
            Ok(Some(name.clone()))
        }
        Some(_) => Err(bad(format!(
            "'{key}' must be the name of a space, of {SPACE_BYTES_MAX} bytes at most"
        ))),
    }
}

/// The four switches about files that are in the way, of which one may be on, or both of hops and disk.
pub(super) fn overwrite(
    params: &Map<String, Value>,
    kind: JobKind,
    transfers: &[NewTransfer],
) -> Result<Overwrite, InvalidSubmission> {
    let (hop, disk) = (
        flag(params, "overwrite_hop")?,
        flag(params, "overwrite_when_only_on_disk")?,
    );
    if hop && kind != JobKind::Hops {
        return Err(bad("'overwrite_hop' needs a multihop job"));
    }
    if disk {
        may_look_at_tape(params, kind, transfers)?;
    }
    match (
        flag(params, "overwrite")?,
        flag(params, "overwrite_on_retry")?,
        hop,
        disk,
    ) {
        (false, false, false, false) => Ok(Overwrite::Never),
        (true, false, false, false) => Ok(Overwrite::Always),
        (false, true, false, false) => Ok(Overwrite::OnRetry),
        (false, false, true, false) => Ok(Overwrite::IntermediateHops),
        (false, false, false, true) => Ok(Overwrite::OnlyOnDisk),
        (false, false, true, true) => Ok(Overwrite::IntermediateHopsAndOnlyOnDisk),
        _ => Err(bad(
            "at most one of 'overwrite', 'overwrite_on_retry', 'overwrite_hop' and 'overwrite_when_only_on_disk' may \
             be true, or the last two",
        )),
    }
}

/// `delete_source`: the sources are removed when their copies are on tape.
pub(super) fn removes_source(
    params: &Map<String, Value>,
    kind: JobKind,
    transfers: &[NewTransfer],
) -> Result<bool, InvalidSubmission> {
    if !flag(params, "delete_source")? {
        return Ok(false);
    }
    if archive_seconds(params)?.is_none() {
        return Err(bad(
            "'delete_source' needs 'archive_timeout': a source is deleted only when its copy is on tape",
        ));
    }
    if !kind.begins_together() {
        return Err(bad(
            "'delete_source' is for files with one source each, not for replicas or hops",
        ));
    }
    if overwrite(params, kind, transfers)? != Overwrite::Never {
        return Err(bad(
            "'delete_source' cannot be combined with overwriting: under another name of its server, a source could replace itself and be deleted",
        ));
    }
    let is_same = |transfer: &&NewTransfer| transfer.source.place() == transfer.destination.place();
    if let Some(staying) = transfers.iter().find(is_same) {
        return Err(bad(format!(
            "source and destination are the same, and 'delete_source' would delete the only copy: {}",
            staying.source
        )));
    }
    match transfers.iter().all(|transfer| speaks(&transfer.source)) {
        true => Ok(true),
        false => Err(bad(
            "'delete_source' needs sources that are reached by https or davs",
        )),
    }
}

/// Files that are spoken of over HTTP.
fn speaks(url: &FileUrl) -> bool {
    ["https", "http", "davs", "dav"].contains(&&*url.scheme())
}

/// Whether a file is on tape can be asked of destinations that have tape and speak of it.
fn may_look_at_tape(
    params: &Map<String, Value>,
    kind: JobKind,
    transfers: &[NewTransfer],
) -> Result<(), InvalidSubmission> {
    if archive_seconds(params)?.is_none_or(|seconds| seconds == 0) {
        return Err(bad(
            "'overwrite_when_only_on_disk' needs a tape destination: 'archive_timeout' above 0",
        ));
    }
    if flag(params, "strict_copy")? {
        return Err(bad(
            "'overwrite_when_only_on_disk' asks the destination where its file is, and with 'strict_copy' nothing is asked: \
             leave one of them out",
        ));
    }
    let last_of_hops = transfers.last().filter(|_| kind == JobKind::Hops);
    let all_speak = match last_of_hops {
        Some(last) => speaks(&last.destination),
        None => transfers
            .iter()
            .all(|transfer| speaks(&transfer.destination)),
    };
    match all_speak {
        true => Ok(()),
        false => Err(bad(
            "'overwrite_when_only_on_disk' needs destinations that are reached by https or davs",
        )),
    }
}

/// Whether a file may be named as source and destination at once: it is brought to disk then, and that is all.
pub(super) fn may_stay(
    kind: JobKind,
    staging: Option<Staging>,
    transfers: &[NewTransfer],
) -> Result<(), InvalidSubmission> {
    let stays = |transfer: &&NewTransfer| transfer.source == transfer.destination;
    let Some(staying) = transfers.iter().find(stays) else {
        return Ok(());
    };
    match (staging, kind.begins_together()) {
        (Some(_), true) => Ok(()),
        (None, _) => Err(bad(format!(
            "source and destination are the same: {}; to bring a file from tape to disk takes 'bring_online'",
            staying.source
        ))),
        (Some(_), false) => Err(bad(format!(
            "source and destination are the same: {}; a job of replicas or hops has nothing to do there",
            staying.source
        ))),
    }
}

/// `staging_metadata` and `archive_metadata` of a file.
pub(super) fn notes(
    file: &Map<String, Value>,
) -> Result<Option<Arc<TapeNotes>>, InvalidSubmission> {
    let note = |key: &str| match file.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(note)) if note.is_empty() => Ok(None),
        Some(note @ Value::Object(_)) if note.to_string().len() <= NOTE_BYTES_MAX => {
            Ok(Some(note.clone()))
        }
        Some(Value::Object(_)) => Err(bad(format!(
            "'{key}' is longer than {NOTE_BYTES_MAX} bytes"
        ))),
        Some(_) => Err(bad(format!("'{key}' must be an object"))),
    };
    let notes = TapeNotes {
        staging: note("staging_metadata")?,
        archive: note("archive_metadata")?,
    };
    Ok((notes != TapeNotes::default()).then(|| Arc::new(notes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn staged(params: Value) -> Option<Staging> {
        staging(params.as_object().expect("an object")).expect("valid")
    }

    #[test]
    fn either_wish_brings_files_from_tape_and_the_other_has_its_default() {
        assert_eq!(
            staged(json!({"bring_online": -1, "copy_pin_lifetime": 0})),
            None
        );
        assert_eq!(staged(json!({"bring_online": null})), None);
        let within = |within_seconds, pin_seconds| {
            Some(Staging {
                within_seconds,
                pin_seconds,
            })
        };
        assert_eq!(staged(json!({"bring_online": 60})), within(60, None));
        assert_eq!(
            staged(json!({"copy_pin_lifetime": "3600"})),
            within(604_800, Some(3600))
        );
        assert_eq!(
            staged(json!({"bring_online": 9e18})),
            within(SECONDS_MAX, None)
        );
    }

    #[test]
    fn archiving_is_looked_at_unless_that_is_negative() {
        let seconds = |value: Value| {
            let params = json!({ "archive_timeout": value });
            archive_seconds(params.as_object().expect("an object")).expect("valid")
        };
        assert_eq!(seconds(json!(-1)), None);
        assert_eq!(seconds(json!(null)), None);
        assert_eq!(seconds(json!(0)), Some(0));
        assert_eq!(seconds(json!(900)), Some(900));
    }

    #[test]
    fn a_space_is_a_name_or_nothing() {
        let read = |value: Value| {
            let params = json!({ "source_spacetoken": value });
            let params = params.as_object().expect("an object");
            space(params, "source_spacetoken").map_err(|why| why.to_string())
        };
        assert_eq!(read(json!(null)), Ok(None));
        assert_eq!(read(json!("")), Ok(None));
        assert_eq!(read(json!("DATADISK")), Ok(Some("DATADISK".into())));
        for odd in [json!(7), json!("a\u{0}b"), json!("x".repeat(256))] {
            let why = read(odd).expect_err("refused");
            assert!(why.contains("must be the name of a space"), "{why}");
        }
    }

    #[test]
    fn notes_are_objects_of_bounded_size() {
        let read = |file: Value| {
            let read = notes(file.as_object().expect("an object"));
            read.map(|notes| notes.is_some())
                .map_err(|why| why.to_string())
        };
        assert_eq!(read(json!({"staging_metadata": null})), Ok(false));
        assert_eq!(read(json!({"archive_metadata": {"a": 1}})), Ok(true));
        assert_eq!(
            read(json!({"staging_metadata": "x"})),
            Err("'staging_metadata' must be an object".into())
        );
        assert_eq!(
            read(json!({"archive_metadata": {"a": "x".repeat(1100)}})),
            Err("'archive_metadata' is longer than 1024 bytes".into())
        );
    }
}
