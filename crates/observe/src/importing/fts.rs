//! FTS3's monitoring messages (fts3 `msg-ifce`; its documentation, "Messaging"). Bare as brokers carry them, with the
//! byte that ends them, or as our file sinks write them: `{"message": …, "id": …, "body": …}`.

use super::json::{self, Object};
use super::{Parser, fingerprint_of, storage_and_path};
use penstock_model::observation::{
    Attempt, Observation, Operation, Outcome, Sample, SubjectKind, View,
};
use penstock_model::{Activity, Bytes, Phase, Side, UserName, VoName};

/// Parses them.
#[derive(Debug)]
pub(super) struct Messages;

impl Parser for Messages {
    fn parse(&mut self, line: &[u8], rows: &mut Vec<Observation>) -> Result<(), String> {
        // A broker's message ends with a blank, in older versions with EOT.
        let end = |byte: &u8| byte.is_ascii_whitespace() || *byte == 4;
        let length = line
            .iter()
            .rposition(|byte| !end(byte))
            .map_or(0, |at| at + 1);
        let line = &line[..length];
        if line.is_empty() {
            return Ok(());
        }
        let whole = json::object(line)?;
        let whole = Object(&whole);
        let message = whole.object("body").unwrap_or(whole);
        let row = if message.has("tr_id") {
            complete(&message)
        } else if message.has("transfer_id") {
            start(&message)
        } else if message.has("file_state") {
            state(&message)
        } else if message.has("submitted_count") {
            link(&message)
        } else {
            return Err("it is not a start, complete, state or queue_state message".to_owned());
        };
        rows.push(row.ok_or("it has no time")?);
        Ok(())
    }
}

/// What all messages about a file have.
fn of_file(message: &Object<'_>) -> Attempt {
    let source = message.str("src_url").and_then(storage_and_path).unzip();
    let destination = message.str("dst_url").and_then(storage_and_path).unzip();
    let vo = message.str("vo").or_else(|| message.str("vo_name"));
    let own = |key: &str| {
        message
            .object("file_metadata")
            .and_then(|own| own.text(key))
    };
    Attempt {
        view: View::Vo,
        operation: Operation::Copy,
        job: message.text("job_id"),
        transfer: message.text("file_id"),
        copy: own("request_id"),
        source_host: source.0.or_else(|| message.text("src_se")),
        source_path: source.1,
        destination_host: destination.0.or_else(|| message.text("dst_se")),
        destination_path: destination.1,
        vo: vo.map(VoName::new),
        user: message.str("user_dn").map(UserName::new),
        activity: message.str("activity").map(Activity::new),
        ..Attempt::default()
    }
}

fn start(message: &Object<'_>) -> Option<Observation> {
    let at = message.time("timestamp")?;
    let row = Attempt {
        at,
        attempt: message.text("transfer_id"),
        started: Some(at),
        ..of_file(message)
    };
    Some(row.into())
}

fn complete(message: &Object<'_>) -> Option<Observation> {
    let ended = message.time("tr_timestamp_complete");
    let at = ended.or_else(|| message.time("timestamp_tr_comp"))?;
    let outcome = match message.str("t_final_transfer_state")? {
        "Ok" => Some(Outcome::Success),
        "Error" => Some(Outcome::Failure),
        "Abort" => Some(Outcome::Abort),
        _ => None,
    };
    let is_success = outcome == Some(Outcome::Success);
    let size = message
        .unsigned("f_size")
        .or_else(|| message.unsigned("file_size"));
    let is_long = |from: &str, to: &str| {
        let (from, to) = (message.time(from)?, message.time(to)?);
        (to >= from).then(|| to.since(from).as_micros() as u64)
    };
    let mut row = Attempt {
        at,
        attempt: message.text("tr_id"),
        attempt_number: message
            .unsigned("retry")
            .and_then(|retries| u32::try_from(retries + 1).ok()),
        protocol: message
            .text("src_transfer_protocol")
            .or_else(|| message.text("protocol")),
        ip_version: message.str("ipver").and_then(ip_version),
        bytes_moved: message.unsigned("tr_bt_transfered").map(Bytes),
        // Of a failure 0 stands for a size that was not asked for.
        file_bytes: size.filter(|size| *size > 0 || is_success).map(Bytes),
        started: message.time("tr_timestamp_start"),
        first_byte: message.time("timestamp_tr_st"),
        last_byte: message.time("timestamp_tr_comp"),
        ended,
        prepare_us: is_long("time_srm_prep_st", "time_srm_prep_end"),
        streams: message
            .unsigned("nstreams")
            .and_then(|streams| u32::try_from(streams).ok()),
        outcome,
        ..of_file(message)
    };
    if row.ended.is_none() {
        row.ended = Some(at);
        row.derived = Some("ended".into());
    }
    if !is_success {
        fail(&mut row, message);
    }
    Some(row.into())
}

fn fail(row: &mut Attempt, message: &Object<'_>) {
    row.side = message.str("tr_error_scope").and_then(side);
    row.phase = message.str("t_failure_phase").and_then(phase);
    row.error_code = message.signed("t_error_code");
    if let Some(detail) = message.str("t__error_message") {
        row.fingerprint = Some(fingerprint_of(row.side, row.error_code, detail));
        row.detail = Some(detail.into());
    }
}

fn state(message: &Object<'_>) -> Option<Observation> {
    let row = Attempt {
        at: message.time("timestamp")?,
        state: message.text("file_state"),
        submitted: message.time("submit_time"),
        staging_started: message.time("staging_start"),
        staging_ended: message.time("staging_finished"),
        file_bytes: message
            .unsigned("user_filesize")
            .filter(|size| *size > 0)
            .map(Bytes),
        source_host: message.text("source_se"),
        destination_host: message.text("dest_se"),
        detail: message.text("reason"),
        ..of_file(message)
    };
    Some(row.into())
}

fn link(message: &Object<'_>) -> Option<Observation> {
    let (source, destination) = (message.text("source_se"), message.text("dest_se"));
    let name = |end: &Option<_>| end.clone().unwrap_or_else(|| "?".into());
    let row = Sample {
        at: message.time("timestamp")?,
        view: View::Vo,
        subject_kind: SubjectKind::Link,
        subject: format!("{} → {}", name(&source), name(&destination)).into(),
        source_host: source,
        destination_host: destination,
        bytes_per_second: message.unsigned("throughput"),
        active: message.unsigned("active_count"),
        limit: message.unsigned("connections"),
        queued: message.unsigned("submitted_count"),
        success_permille: message
            .seconds("success_rate")
            .and_then(|thousandth| u64::try_from(thousandth / 100).ok()),
        note: message.text("rationale"),
        ..Sample::default()
    };
    Some(row.into())
}

fn ip_version(word: &str) -> Option<u32> {
    match word {
        "ipv4" => Some(4),
        "ipv6" => Some(6),
        _ => None,
    }
}

fn side(word: &str) -> Option<Side> {
    match word {
        "SOURCE" => Some(Side::Source),
        "DESTINATION" => Some(Side::Destination),
        "TRANSFER" => Some(Side::Network),
        "GENERAL_FAILURE" | "AGENT" => Some(Side::Service),
        _ => None,
    }
}

fn phase(word: &str) -> Option<Phase> {
    match word {
        "TRANSFER_PREPARATION" | "PREPARATION" => Some(Phase::Preparation),
        "TRANSFER" => Some(Phase::Transfer),
        "TRANSFER_FINALIZATION" | "FINALIZATION" => Some(Phase::Finalization),
        "TRANSFER_SERVICE" => Some(Phase::Service),
        "STAGING" => Some(Phase::Staging),
        "ARCHIVING" => Some(Phase::Archiving),
        _ => None,
    }
}
