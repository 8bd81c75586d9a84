//! What a site's storage element recorded as rows that any storage element could tell.

use super::config::Config;
use penstock_model::Timestamp;
use penstock_model::observation::{
    Attempt, Incident, IncidentKind, NamespaceChange, Observation, Operation, Outcome, Text, View,
};
use penstock_persistence::namespace::{
    ElementEvent, ElementRecord, GapCause, MoverKind, MoverOutcome, MoverRecord,
};
use std::time::Duration;

/// By which rows of a site's storage element and host know it.
pub fn server_name(config: &Config) -> Text {
    let host = config.site.hosts.first();
    host.map_or_else(|| config.url_host(), String::clone).into()
}

/// One thing of the ledger as any storage element could tell it.
pub fn ledger_row(record: &ElementRecord, server: &Option<Text>) -> Observation {
    let ElementRecord { at, origin, event } = record;
    let text = |text: &Option<String>| text.as_deref().map(Text::from);
    let (client, copy, challenge) = (
        text(&origin.client),
        text(&origin.copy),
        text(&origin.challenge),
    );
    match event {
        ElementEvent::Changed(changed) => NamespaceChange {
            at: *at,
            view: View::Site,
            kind: changed.kind,
            file: Some(changed.entry.to_string().into()),
            path: changed.path.as_ref().map(|path| path.to_string().into()),
            new_path: changed
                .new_path
                .as_ref()
                .map(|path| path.to_string().into()),
            file_bytes: changed.size,
            pool: changed.pool.clone(),
            server: server.clone(),
            user: origin.user.clone(),
            vo: origin.vo.clone(),
            client,
            copy,
            challenge,
            reason: changed.reason,
            ..NamespaceChange::default()
        }
        .into(),
        ElementEvent::Refused(refusal) => Attempt {
            at: *at,
            view: View::Site,
            operation: Operation::Request,
            attempt: copy.clone(),
            copy,
            challenge,
            source_path: refusal.path.as_ref().map(|path| path.to_string().into()),
            vo: origin.vo.clone(),
            user: origin.user.clone(),
            protocol: Some("http".into()),
            server: server.clone(),
            client,
            ended: Some(*at),
            outcome: Some(Outcome::Failure),
            error_code: Some(i64::from(refusal.status)),
            fingerprint: Some(format!("{} {}", refusal.method, refusal.code).into()),
            detail: Some(refusal.detail.as_str().into()),
            ..Attempt::default()
        }
        .into(),
        ElementEvent::Gap(gap) => Incident {
            at: gap.from.unwrap_or(*at),
            view: View::Site,
            kind: IncidentKind::Gap,
            subject: server.clone(),
            code: Some(gap.cause.word().into()),
            detail: Some(missing(gap.cause).into()),
            count: gap.lost,
            until: Some(*at),
            ..Incident::default()
        }
        .into(),
    }
}

/// What may be missing, for people.
fn missing(cause: GapCause) -> &'static str {
    match cause {
        GapCause::Crash => {
            "the storage element did not end by itself; reads, refusals and movers of its last second are missing, \
             changes are complete"
        }
        GapCause::Overload => "more happened at once than is recorded",
        GapCause::Unwritten => "the database of the namespace did not take these records",
        GapCause::Restored => {
            "the namespace was restored from a backup; what came after it is not known"
        }
        GapCause::Rebuilt => {
            "the namespace was rebuilt from the pools; earlier events are not known"
        }
        GapCause::Damaged => "a row of the ledger cannot be read; check the disk of the namespace",
    }
}

/// One mover as any storage element could tell it.
pub fn mover_row(record: &MoverRecord) -> Attempt {
    let reads = matches!(record.kind, MoverKind::Get | MoverKind::Push);
    let path: Option<Text> = Some(record.path.to_string().into());
    let (mut source_path, mut destination_path) = (None, None);
    match reads {
        true => source_path = path,
        false => destination_path = path,
    }
    let name = record.copy.as_deref().map(Text::from);
    let (outcome, detail) = match &record.outcome {
        MoverOutcome::Done => (Outcome::Success, None),
        MoverOutcome::Failed(detail) => (Outcome::Failure, Some(detail)),
        MoverOutcome::Aborted(detail) => (Outcome::Abort, Some(detail)),
    };
    let is_done = outcome == Outcome::Success;
    let row = Attempt {
        at: record.at,
        view: View::Site,
        operation: operation_of(record.kind),
        attempt: name.clone(),
        copy: name,
        challenge: record.challenge.as_deref().map(Text::from),
        source_path,
        destination_path,
        vo: record.vo.clone(),
        user: record.user.clone(),
        client: Some(record.peer.as_str().into()),
        pool: record.pool.clone(),
        bytes_moved: Some(record.moved),
        bytes_read: (record.kind == MoverKind::Get).then_some(record.moved),
        bytes_written: (record.kind == MoverKind::Put).then_some(record.moved),
        // Of a file that was written whole, what came is its size.
        file_bytes: record
            .file_size
            .or((is_done && !reads).then_some(record.moved)),
        started: Some(before(record.at, record.duration_us)),
        ended: Some(record.at),
        derived: Some("started".into()),
        outcome: Some(outcome),
        detail: detail.map(|detail| detail.as_str().into()),
        ..Attempt::default()
    };
    let row = row.with_stages(&record.stages);
    match &record.tcp {
        Some(tcp) => row.with_tcp(tcp),
        None => row,
    }
}

fn operation_of(kind: MoverKind) -> Operation {
    match kind {
        MoverKind::Get => Operation::Read,
        MoverKind::Put => Operation::Write,
        MoverKind::Pull | MoverKind::Push => Operation::Copy,
        MoverKind::Copy => Operation::PoolCopy,
    }
}

fn before(at: Timestamp, microseconds: u64) -> Timestamp {
    at - Duration::from_micros(microseconds)
}
