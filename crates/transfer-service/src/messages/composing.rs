//! The messages themselves: keys, types and words as FTS3's brokers carry them (fts3 `msg-ifce`, FTS documentation).
//!
//! What does not exist here (SRM's phases, space tokens) has FTS's word for nothing. Times are milliseconds since 1970.

use super::link_tally::{LinkState, LinkTally};
use crate::api::wire::file_metadata;
use penstock_model::url::redact;
use penstock_model::{
    Bytes, CopyMode, Failure, Job, JobKind, JobState, MoverReport, Overwrite, Phase, Retry, Side,
    Timestamp, TransferRequest, TransferState,
};
use serde_json::{Value, json};

/// Characters of an error's text that FTS passes on.
const ERROR_TEXT_MAX: usize = 1024;

/// Which message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Start,
    Complete,
    State,
    Optimizer,
}

impl Kind {
    /// The name of its topic.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Start => "transfer.fts_monitoring_start",
            Kind::Complete => "transfer.fts_monitoring_complete",
            Kind::State => "transfer.fts_monitoring_state",
            Kind::Optimizer => "transfer.fts_monitoring_queue_state",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct MonitoringMessage {
    pub(super) kind: Kind,
    /// The same when it is told again.
    pub(super) id: String,
    pub(super) body: Value,
}

/// A transfer, and what is known of its job.
pub(super) struct MessageSubject<'a> {
    pub(super) endpoint: &'a str,
    /// With no transfers of its own.
    pub(super) job: &'a Job,
    pub(super) request: &'a TransferRequest,
    /// The end of the way, of which this is one hop.
    pub(super) last: Option<&'a TransferRequest>,
    pub(super) job_state: JobState,
    pub(super) at: Timestamp,
    pub(super) tape: TapeFacts,
}

/// When tape systems were at a file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TapeFacts {
    pub(super) staging_started: Timestamp,
    pub(super) staging_finished: Timestamp,
    pub(super) archiving_started: Timestamp,
    pub(super) archiving_finished: Timestamp,
}

/// An attempt until its end.
#[derive(Debug, Clone, Default)]
pub(super) struct AttemptFacts {
    pub(super) number: u32,
    pub(super) started: Timestamp,
    /// When both ends had been looked at.
    pub(super) prepared: Option<Timestamp>,
    pub(super) size: Option<Bytes>,
}

pub(super) enum AttemptEnd<'a> {
    Landed {
        size: Bytes,
        mode: Option<CopyMode>,
        report: &'a MoverReport,
    },
    Failed(&'a Failure),
    Canceled(&'a str),
}

impl MessageSubject<'_> {
    fn source(&self) -> String {
        redact(self.request.source.as_str())
    }

    fn destination(&self) -> String {
        redact(self.request.destination.as_str())
    }

    /// Day and minute of its start, both hosts, file and job: FTS's name of an attempt.
    fn transfer_id(&self, attempt: &AttemptFacts) -> String {
        let at = attempt.started.to_fts();
        // 2026-11-21T15:04:05 becomes 2026-11-21-1504.
        let minute: String = at
            .chars()
            .take(16)
            .filter(|letter| *letter != ':')
            .collect();
        format!(
            "{}__{}__{}__{}__{}",
            minute.replace('T', "-"),
            self.request.source.host(),
            self.request.destination.host(),
            self.request.id.0,
            self.job.id
        )
    }

    fn channel(&self) -> String {
        let link = self.request.link();
        format!("{}__{}", link.source.as_str(), link.destination.as_str())
    }

    /// Only jobs of several ways to one file have one here; of others it is in the state messages.
    fn complete_job_state(&self) -> &'static str {
        match self.job.parameters.kind {
            JobKind::Independent | JobKind::Session => "UNKNOWN",
            JobKind::Replicas(_) | JobKind::Hops => self.job_state.name(),
        }
    }

    /// An attempt began.
    pub(super) fn start(&self, attempt: &AttemptFacts) -> Value {
        json!({
            "transfer_id": self.transfer_id(attempt),
            "job_id": self.job.id.to_string(),
            "file_id": self.request.id.0,
            "endpnt": self.endpoint,
            "timestamp": self.at.0,
            "src_srm_v": "",
            "dest_srm_v": "",
            "vo": self.job.vo.as_str(),
            "src_url": self.source(),
            "dst_url": self.destination(),
            "src_hostname": self.request.source.host(),
            "dst_hostname": self.request.destination.host(),
            "src_site_name": "",
            "dst_site_name": "",
            "t_channel": self.channel(),
            "srm_space_token_src": space(&self.job.parameters.source_space),
            "srm_space_token_dst": space(&self.job.parameters.destination_space),
            "user_dn": self.job.user.as_str(),
            "is_archiving": self.is_archiving(),
            "file_metadata": metadata(&self.request.metadata),
            "job_metadata": metadata(&self.job.parameters.metadata),
        })
    }

    fn is_last(&self) -> bool {
        self.last.is_none_or(|last| last.id == self.request.id)
    }

    /// Whether its copy has to be on tape, too.
    fn is_archiving(&self) -> bool {
        self.job.parameters.archive_seconds.is_some() && self.is_last()
    }

    pub(super) fn complete(&self, attempt: &AttemptFacts, ended: &AttemptEnd<'_>) -> Value {
        let mut message = self.whole(attempt);
        let keys = match ended {
            AttemptEnd::Landed { size, mode, report } => {
                landed(attempt, self.at, *size, *mode, report)
            }
            AttemptEnd::Failed(failure) => failed(failure),
            AttemptEnd::Canceled(reason) => canceled(reason),
        };
        let (Value::Object(message_keys), Value::Object(keys)) = (&mut message, keys) else {
            unreachable!("both were written as objects");
        };
        message_keys.extend(keys);
        if let AttemptEnd::Failed(failure) = ended {
            let told = file_metadata(&self.request.metadata, Some(failure));
            message_keys.insert("file_metadata".to_owned(), metadata(&told));
        }
        message
    }

    /// What does not depend on how it ended. Long because each key of FTS3's message has its line.
    fn whole(&self, attempt: &AttemptFacts) -> Value {
        let moving = attempt.prepared.unwrap_or(attempt.started);
        let parameters = &self.job.parameters;
        let size = attempt.size.or(self.request.size).unwrap_or_default().0;
        let mut message = json!({
            "tr_id": self.transfer_id(attempt),
            "job_id": self.job.id.to_string(),
            "file_id": self.request.id.0,
            "endpnt": self.endpoint,
            "src_srm_v": "",
            "dest_srm_v": "",
            "vo": self.job.vo.as_str(),
            "src_url": self.source(),
            "dst_url": self.destination(),
            "src_hostname": self.request.source.host(),
            "dst_hostname": self.request.destination.host(),
            "src_se": self.request.link().source.as_str(),
            "dst_se": self.request.link().destination.as_str(),
            "protocol": self.request.source.scheme(),
            "src_protocol": self.request.source.scheme(),
            "dst_protocol": self.request.destination.scheme(),
            "src_transfer_protocol": self.request.source.scheme(),
            "dst_transfer_protocol": self.request.destination.scheme(),
            "protocol_translation": self.request.source.scheme() != self.request.destination.scheme(),
            "src_site_name": "",
            "dst_site_name": "",
            "t_channel": self.channel(),
            "channel_type": "urlcopy",
            "timestamp_tr_st": moving.0,
            "timestamp_tr_comp": self.at.0,
            "timestamp_chk_src_st": attempt.started.0,
            "timestamp_chk_src_ended": moving.0,
            "timestamp_checksum_src_diff": moving.since(attempt.started).as_millis() as u64,
            "timestamp_checksum_dest_st": 0,
            "timestamp_checksum_dest_ended": 0,
            "timestamp_checksum_dst_diff": 0,
            "t_timeout": parameters.timeout_seconds.unwrap_or(0),
            "chk_timeout": 0,
            "f_size": size,
            "file_size": size,
            "tr_timestamp_start": attempt.started.0,
            "tr_timestamp_complete": self.at.0,
            "transfer_time": self.at.since(moving).as_millis() as u64,
            "operation_time": self.at.since(attempt.started).as_millis() as u64,
        });
        let rest = json!({
            "nstreams": parameters.streams.unwrap_or(1),
            "buf_size": 0,
            "tcp_buf_size": 0,
            "block_size": 0,
            "scitag": self.request.scitag.unwrap_or(0),
            "time_srm_prep_st": attempt.started.0,
            "time_srm_prep_end": moving.0,
            "time_srm_fin_st": self.at.0,
            "time_srm_fin_end": self.at.0,
            "srm_preparation_time": moving.since(attempt.started).as_millis() as u64,
            "srm_finalization_time": 0,
            "srm_overhead_time": moving.since(attempt.started).as_millis() as u64,
            "srm_overhead_percentage": overhead(attempt.started, moving, self.at),
            "srm_space_token_src": space(&self.job.parameters.source_space),
            "srm_space_token_dst": space(&self.job.parameters.destination_space),
            "user_dn": self.job.user.as_str(),
            "file_metadata": metadata(&self.request.metadata),
            "job_metadata": metadata(&parameters.metadata),
            "activity": self.request.activity.as_str(),
            "retry": attempt.number.saturating_sub(1),
            "retry_max": parameters.retries_max.unwrap_or(0),
            "job_m_replica": matches!(parameters.kind, JobKind::Replicas(_)),
            "job_multihop": parameters.kind == JobKind::Hops,
            "transfer_lasthop": self.is_last(),
            "is_archiving": self.is_archiving(),
            "job_state": self.complete_job_state(),
            "ipv6": false,
            "ipver": "unknown",
            "eviction_code": -1,
            "cleanup_code": -1,
            "final_destination": self.last.map_or_else(
                || self.destination(),
                |last| redact(last.destination.as_str()),
            ),
            "auth_method": match parameters.proxy {
                Some(_) => "certificate",
                None => "oauth2",
            },
            "overwrite_on_disk_flag": matches!(
                parameters.overwrite,
                Overwrite::OnlyOnDisk | Overwrite::IntermediateHopsAndOnlyOnDisk
            ),
            "overwrite_on_disk_deletion_code": -1,
        });
        if let (Value::Object(all), Value::Object(rest)) = (&mut message, rest) {
            all.extend(rest);
        }
        message
    }

    /// The state of a transfer changed.
    pub(super) fn state(&self, state: &TransferState) -> Value {
        let (retries, reason) = match state {
            TransferState::Submitted { failures, last, .. } => {
                (*failures, last.as_ref().map(ToString::to_string))
            }
            TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. } => (
                recall.copy_failures,
                recall.last.as_ref().map(ToString::to_string),
            ),
            TransferState::Active { failures, .. } => (*failures, None),
            TransferState::Finished { attempt, .. } | TransferState::Archiving { attempt, .. } => {
                (attempt.0.saturating_sub(1), None)
            }
            TransferState::Failed {
                attempts, failure, ..
            } => (attempts.saturating_sub(1), Some(failure.to_string())),
            TransferState::Canceled { reason, .. } => (0, Some(reason.clone())),
            TransferState::NotUsed => (0, None),
        };
        let size = match state {
            TransferState::Finished { size, attempt, .. }
            | TransferState::Archiving { size, attempt, .. }
                if attempt.0 > 0 =>
            {
                *size
            }
            _ => self.request.size.unwrap_or_default(),
        };
        json!({
            "user_dn": self.job.user.as_str(),
            "src_url": self.source(),
            "dst_url": self.destination(),
            "vo_name": self.job.vo.as_str(),
            "source_se": self.request.link().source.as_str(),
            "dest_se": self.request.link().destination.as_str(),
            "job_id": self.job.id.to_string(),
            "file_id": self.request.id.0,
            "job_state": self.job_state.name(),
            "file_state": state.fts_name(),
            "retry_counter": retries,
            "retry_max": self.job.parameters.retries_max.unwrap_or(0),
            "user_filesize": size.0,
            "timestamp": self.at.0,
            "submit_time": self.job.submitted_at.0,
            "staging_start": self.tape.staging_started.0,
            "staging_finished": self.tape.staging_finished.0,
            "staging": self.job.parameters.staging.is_some(),
            "archiving_start": self.tape.archiving_started.0,
            "archiving_finished": self.tape.archiving_finished.0,
            "archiving": self.job.parameters.archive_seconds.is_some(),
            "reason": printable(&reason.unwrap_or_default()),
            "job_metadata": metadata(&self.job.parameters.metadata),
            "file_metadata": metadata(&self.request.metadata),
        })
    }
}

fn landed(
    attempt: &AttemptFacts,
    at: Timestamp,
    size: Bytes,
    mode: Option<CopyMode>,
    report: &MoverReport,
) -> Value {
    let moving = attempt.prepared.unwrap_or(attempt.started);
    let seconds = at.since(moving).as_secs_f64();
    let throughput = match seconds > 0.0 {
        true => report.moved.0 as f64 / seconds,
        false => 0.0,
    };
    json!({
        "t_final_transfer_state": "Ok",
        "t_final_transfer_state_flag": 1,
        "t_error_code": 0,
        "tr_error_scope": "",
        "t_failure_phase": "",
        "tr_error_category": "",
        "t__error_message": "",
        "is_recoverable": false,
        "tr_bt_transfered": report.moved.0,
        "f_size": size.0,
        "file_size": size.0,
        "throughput": throughput,
        "nstreams": report.streams.as_ref().map_or(1, |streams| streams.used),
        "buf_size": report.streams.as_ref().map_or(0, |streams| streams.buffer.0),
        "timestamp_checksum_dst_diff": report.stages.checksum_us / 1000,
        "transfer_type": match mode {
            Some(CopyMode::Pull) => "3rd pull",
            Some(CopyMode::Push) => "3rd push",
            Some(CopyMode::Streamed) => "streamed",
            None => "none",
        },
    })
}

fn failed(failure: &Failure) -> Value {
    json!({
        "t_final_transfer_state": "Error",
        "t_final_transfer_state_flag": 0,
        "t_error_code": failure.errno.0,
        "tr_error_scope": failure.side.fts_scope(),
        "t_failure_phase": phase(failure.phase),
        "tr_error_category": category(failure),
        "t__error_message": printable(&failure.detail),
        "is_recoverable": failure.retry == Retry::Later,
        "tr_bt_transfered": 0,
        "throughput": 0.0,
        "transfer_type": "",
    })
}

fn canceled(reason: &str) -> Value {
    json!({
        "t_final_transfer_state": "Abort",
        "t_final_transfer_state_flag": -1,
        "t_error_code": penstock_model::Errno::ECANCELED.0,
        "tr_error_scope": Side::Service.fts_scope(),
        "t_failure_phase": phase(Phase::Transfer),
        "tr_error_category": "ABORTED",
        "t__error_message": printable(reason),
        "is_recoverable": false,
        "tr_bt_transfered": 0,
        "throughput": 0.0,
        "transfer_type": "",
    })
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Preparation => "TRANSFER_PREPARATION",
        Phase::Transfer => "TRANSFER",
        Phase::Finalization => "TRANSFER_FINALIZATION",
        Phase::Service => "TRANSFER_SERVICE",
        Phase::Staging => "STAGING",
        Phase::Archiving => "ARCHIVING",
    }
}

/// FTS puts the symbol of the error number here.
fn category(failure: &Failure) -> String {
    let errno = failure.errno;
    errno
        .name()
        .map_or_else(|| errno.0.to_string(), str::to_owned)
}

/// In percent of the whole.
fn overhead(started: Timestamp, moving: Timestamp, ended: Timestamp) -> f64 {
    let whole = ended.since(started).as_secs_f64();
    match whole > 0.0 {
        true => 100.0 * moving.since(started).as_secs_f64() / whole,
        false => 0.0,
    }
}

/// What a client gave back as it gave it; FTS has an empty text for nothing.
fn metadata(value: &Value) -> Value {
    match value {
        Value::Null => json!(""),
        other => other.clone(),
    }
}

/// FTS has an empty text for no space.
fn space(name: &Option<String>) -> &str {
    name.as_deref().unwrap_or_default()
}

/// FTS sends printable ASCII without quotes.
fn printable(text: &str) -> String {
    let letters = text
        .chars()
        .filter(|letter| !matches!(letter, '\'' | '"' | '\n'));
    let plain = letters.map(|letter| match letter {
        ' '..='~' => letter,
        _ => ' ',
    });
    plain.take(ERROR_TEXT_MAX).collect()
}

/// How a link is.
pub(super) fn link(state: &LinkState<'_>, seen: &LinkTally, at: Timestamp) -> Value {
    json!({
        "source_se": state.source,
        "dest_se": state.destination,
        "throughput": state.bytes_per_second,
        "throughput_ema": seen.smoothed,
        "duration_avg": seen.duration_mean(),
        "filesize_avg": seen.size_mean(),
        "filesize_stddev": seen.size_deviation(),
        "success_rate": seen.success_percent(),
        "retry_count": seen.retried,
        "active_count": state.active,
        "submitted_count": state.queued,
        "connections": state.limit,
        "diff": i64::from(state.limit) - i64::from(seen.limit.unwrap_or(state.limit)),
        "rationale": state.because.unwrap_or("as configured"),
        "timestamp": at.0,
    })
}
