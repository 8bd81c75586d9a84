//! Rucio: traces of clients (`lib/rucio/core/trace.py`) and messages of its daemons (`lib/rucio/core/request.py`).

use super::json::{self, Object};
use super::{Parser, fingerprint_of, storage_and_path};
use crate::times;
use penstock_model::observation::{Attempt, Observation, Operation, Outcome, Text, View};
use penstock_model::{Activity, Bytes, Timestamp, UserName, VoName};

/// Parses them.
#[derive(Debug)]
pub(super) struct Traces;

impl Parser for Traces {
    fn parse(&mut self, line: &[u8], rows: &mut Vec<Observation>) -> Result<(), String> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let whole = json::object(line)?;
        let record = Object(&whole);
        let row = match (record.str("eventType"), record.str("event_type")) {
            (Some(event), _) => trace(&record, event),
            (None, Some(event)) => {
                let payload = record.object("payload").ok_or("it has no payload")?;
                message(&record, &payload, event)
            }
            (None, None) => return Err("it is neither a trace nor a message".to_owned()),
        };
        rows.extend(row?.map(Observation::from));
        Ok(())
    }
}

/// A client read or wrote a file. Its clock may be wrong.
fn trace(record: &Object<'_>, event: &str) -> Result<Option<Attempt>, String> {
    let operation = match event {
        "upload" => Operation::Write,
        event if event.starts_with("put") => Operation::Write,
        "download" => Operation::Read,
        event if event.starts_with("get") => Operation::Read,
        _ => return Ok(None),
    };
    let seconds = |key: &str| record.seconds(key).filter(|at| *at > 0).map(Timestamp);
    let ended = seconds("transferEnd");
    let at = ended.or_else(|| seconds("traceTimeentryUnix"));
    let outcome = record.str("clientState").map(|state| match state {
        "DONE" | "FOUND_ROOT" | "ALREADY_DONE" => Outcome::Success,
        _ => Outcome::Failure,
    });
    let size = record.unsigned("filesize").map(Bytes);
    let is_success = outcome == Some(Outcome::Success);
    let site = |key: &str| record.text(key);
    let (source_host, destination_host) = match operation {
        Operation::Write => (site("localSite"), site("remoteSite")),
        _ => (site("remoteSite"), site("localSite")),
    };
    let detail = record
        .str("stateReason")
        .filter(|reason| !is_success && *reason != "OK");
    Ok(Some(Attempt {
        at: at.ok_or("it has no time")?,
        view: View::Vo,
        operation,
        attempt: record.text("uuid"),
        session: record.text("traceId"),
        file: name(record, "filename"),
        is_local: match (&source_host, &destination_host) {
            (Some(source), Some(destination)) => Some(source == destination),
            _ => None,
        },
        source_host,
        destination_host,
        user: record
            .str("account")
            .or_else(|| record.str("usrdn"))
            .map(UserName::new),
        vo: record.str("vo").map(VoName::new),
        protocol: record.text("protocol"),
        client: record.text("hostname").or_else(|| record.text("traceIp")),
        file_bytes: size,
        bytes_moved: size.filter(|_| is_success),
        started: seconds("transferStart"),
        ended,
        outcome,
        fingerprint: detail.map(|detail| fingerprint_of(None, None, detail)),
        detail: detail.map(Text::from),
        ..Attempt::default()
    }))
}

/// A daemon moved, recalled or removed a file.
fn message(
    record: &Object<'_>,
    payload: &Object<'_>,
    event: &str,
) -> Result<Option<Attempt>, String> {
    let (kind, state) = event.rsplit_once('-').unwrap_or((event, ""));
    let (kind, state) = match event {
        "deletion-not-found" => ("deletion", "not-found"),
        _ => (kind, state),
    };
    let operation = match kind {
        "transfer" => Operation::Copy,
        "stagein" => Operation::Recall,
        "deletion" => Operation::Removal,
        _ => return Ok(None),
    };
    let outcome = match state {
        "done" => Some(Outcome::Success),
        "failed" | "lost" | "not-found" => Some(Outcome::Failure),
        _ => None,
    };
    let time = |key: &str| payload.str(key).and_then(times::iso);
    let ended = time("transferred_at");
    let created = record.str("created_at").and_then(times::iso);
    let at = ended.or(created).or_else(|| time("submitted_at"));
    let source = payload.str("src-url").and_then(storage_and_path).unzip();
    let destination = payload.str("dst-url").and_then(storage_and_path).unzip();
    let at_place = payload.str("url").and_then(storage_and_path).unzip();
    let is_success = outcome == Some(Outcome::Success);
    let size = payload.unsigned("file-size").map(Bytes);
    let detail = payload.str("reason").filter(|_| !is_success);
    Ok(Some(Attempt {
        at: at.ok_or("it has no time")?,
        view: View::Vo,
        operation,
        attempt: payload.text("transfer-id"),
        copy: payload.text("request-id"),
        file: name(payload, "name"),
        state: outcome.is_none().then(|| state.into()),
        source_host: source.0.or(at_place.0).or_else(|| payload.text("src-rse")),
        source_path: source.1.or(at_place.1),
        destination_host: destination.0.or_else(|| payload.text("dst-rse")),
        destination_path: destination.1,
        vo: payload.str("vo").map(VoName::new),
        activity: payload.str("activity").map(Activity::new),
        user: payload.str("account").map(UserName::new),
        protocol: payload.text("protocol"),
        file_bytes: size,
        // Its `bytes` are those of the file, also when it failed.
        bytes_moved: size.filter(|_| is_success && operation != Operation::Removal),
        submitted: time("submitted_at"),
        started: time("started_at"),
        ended,
        outcome,
        fingerprint: detail.map(|detail| fingerprint_of(None, None, detail)),
        detail: detail.map(Text::from),
        ..Attempt::default()
    }))
}

/// `scope:name`.
fn name(record: &Object<'_>, key: &str) -> Option<Text> {
    let name = record.str(key)?;
    Some(match record.str("scope") {
        Some(scope) => format!("{scope}:{name}").into(),
        None => name.into(),
    })
}
