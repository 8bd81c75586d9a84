//! Events as transfer services of WLCG tell them, each made from its number: links between a hundred storage elements, jobs of
//! fifty files, paths that no other file has, and one failure in twenty.

use penstock_model::observation::{Attempt, Operation, Outcome, View};
use penstock_model::{Activity, Bytes, Phase, Side, TimeWindow, Timestamp, UserName, VoName};
use serde_json::{Value, json};
use std::ops::Range;

/// Storage elements that send, and as many that receive.
const SIDE: u64 = 50;
/// Each source sends to so many destinations.
const DESTINATIONS_PER_SOURCE: u64 = 6;
const FILES_PER_JOB: u64 = 50;
const VOS: [&str; 4] = ["atlas", "cms", "lhcb", "alice"];
const ACTIVITIES: [&str; 6] = [
    "Production Output",
    "Data Consolidation",
    "T0 Export",
    "User Subscriptions",
    "Staging",
    "Recovery",
];
const USERS: u64 = 40;
/// From the start of an attempt until its first byte.
const PREPARATION_MS: i64 = 200;
/// One attempt in so many fails.
const FAILURE_EVERY: u64 = 20;
const FAILURES: [(Side, Phase, i64, &str); 4] = [
    (
        Side::Source,
        Phase::Preparation,
        2,
        "HTTP 404 : File not found",
    ),
    (
        Side::Destination,
        Phase::Transfer,
        28,
        "HTTP 507 : No space left on device",
    ),
    (
        Side::Network,
        Phase::Transfer,
        110,
        "Operation timed out after 3600 seconds",
    ),
    (
        Side::Destination,
        Phase::Finalization,
        5,
        "Checksum mismatch: source adler32 and destination differ",
    ),
];

/// So many events, spread evenly over a window.
#[derive(Debug, Clone, Copy)]
pub struct Events {
    pub count: u64,
    pub window: TimeWindow,
}

/// What an event's number decides.
struct Facts {
    at: Timestamp,
    source: String,
    destination: String,
    path: String,
    job: String,
    vo: &'static str,
    activity: &'static str,
    user: String,
    size_bytes: u64,
    milliseconds: i64,
    failure: Option<&'static (Side, Phase, i64, &'static str)>,
}

impl Events {
    /// When an event ends.
    pub fn at(&self, number: u64) -> Timestamp {
        let span = (self.window.to.0 - self.window.from.0) as u128;
        let since = span * u128::from(number) / u128::from(self.count.max(1));
        Timestamp(self.window.from.0 + since as i64)
    }

    /// The numbers of those that end in a window.
    pub fn numbers(&self, window: TimeWindow) -> Range<u64> {
        let first = |at: Timestamp| {
            let (mut low, mut high) = (0, self.count);
            while low < high {
                let middle = low + (high - low) / 2;
                match self.at(middle) < at {
                    true => low = middle + 1,
                    false => high = middle,
                }
            }
            low
        };
        first(window.from)..first(window.to)
    }

    /// An event as a row of records.
    pub fn attempt(&self, number: u64) -> Attempt {
        let facts = Facts::of(number, self.at(number));
        let started = Timestamp(facts.at.0 - facts.milliseconds);
        let is_success = facts.failure.is_none();
        let mut row = Attempt {
            at: facts.at,
            source: "fts:transfer.fts_monitoring_complete".into(),
            line: number + 1,
            view: View::Vo,
            operation: Operation::Copy,
            attempt: Some(tr_id(number, &facts).into()),
            attempt_number: Some(1),
            job: Some(facts.job.into()),
            transfer: Some(number.to_string().into()),
            source_host: Some(format!("https://{}", facts.source).into()),
            destination_host: Some(format!("https://{}", facts.destination).into()),
            source_path: Some(format!("/eos{}", facts.path).into()),
            destination_path: Some(format!("/pnfs{}", facts.path).into()),
            vo: Some(VoName::new(facts.vo)),
            activity: Some(Activity::new(facts.activity)),
            user: Some(UserName::new(facts.user.as_str())),
            protocol: Some("https".into()),
            ip_version: Some(6),
            bytes_moved: Some(Bytes(if is_success { facts.size_bytes } else { 0 })),
            file_bytes: is_success.then_some(Bytes(facts.size_bytes)),
            started: Some(started),
            first_byte: Some(Timestamp(started.0 + PREPARATION_MS)),
            last_byte: Some(Timestamp(facts.at.0 - 100)),
            ended: Some(facts.at),
            prepare_us: Some(1_000 * PREPARATION_MS as u64),
            streams: Some(1),
            outcome: Some(match is_success {
                true => Outcome::Success,
                false => Outcome::Failure,
            }),
            ..Attempt::default()
        };
        if let Some((side, phase, code, detail)) = facts.failure {
            row.side = Some(*side);
            row.phase = Some(*phase);
            row.error_code = Some(*code);
            row.fingerprint = Some(format!("{} [{code}] {detail}", side.fts_scope()).into());
            row.detail = Some(format!("{detail} (attempt {number})").into());
        }
        row
    }

    /// An event as FTS3's message of a transfer that ended, with an end of its own. Long because each key has its line.
    pub fn message(&self, number: u64, at: Timestamp) -> String {
        let facts = Facts::of(number, at);
        let (started, ended) = (at.0 - facts.milliseconds, at.0);
        let moving = started + PREPARATION_MS;
        let (source, destination) = (&facts.source, &facts.destination);
        let destination_url = format!("https://{destination}:2880/pnfs{}", facts.path);
        let mut message = json!({
            "tr_id": tr_id(number, &facts),
            "job_id": facts.job,
            "file_id": number,
            "endpnt": "fts3.example.org",
            "vo": facts.vo,
            "src_url": format!("https://{source}:1094/eos{}", facts.path),
            "dst_url": destination_url,
            "src_hostname": source,
            "dst_hostname": destination,
            "src_se": format!("https://{source}"),
            "dst_se": format!("https://{destination}"),
            "protocol": "https",
            "src_transfer_protocol": "https",
            "dst_transfer_protocol": "https",
            "t_channel": format!("https://{source}__https://{destination}"),
            "channel_type": "urlcopy",
            "timestamp_tr_st": moving,
            "timestamp_tr_comp": ended,
            "timestamp_chk_src_st": started,
            "timestamp_chk_src_ended": moving,
            "timestamp_checksum_dest_st": 0,
            "timestamp_checksum_dest_ended": 0,
            "t_timeout": 3600,
            "chk_timeout": 0,
            "f_size": facts.size_bytes,
            "tr_timestamp_start": started,
            "tr_timestamp_complete": ended,
            "transfer_time": ended - moving,
            "operation_time": ended - started,
            "t_error_code": facts.failure.map_or(0, |failure| failure.2),
            "tr_error_scope": facts.failure.map_or("", |failure| failure.0.fts_scope()),
            "t_failure_phase": facts.failure.map_or("", |failure| failure.1.word()).to_ascii_uppercase(),
            "t__error_message": facts.failure.map_or("", |failure| failure.3),
        });
        let rest = json!({
            "nstreams": 1,
            "buf_size": 0,
            "tcp_buf_size": 0,
            "block_size": 0,
            "scitag": 66,
            "time_srm_prep_st": started,
            "time_srm_prep_end": moving,
            "time_srm_fin_st": ended,
            "time_srm_fin_end": ended,
            "srm_preparation_time": PREPARATION_MS,
            "srm_finalization_time": 0,
            "srm_overhead_time": PREPARATION_MS,
            "srm_overhead_percentage": 1.0,
            "srm_space_token_src": "",
            "srm_space_token_dst": "",
            "user_dn": facts.user,
            "file_metadata": {"request_id": facts.job, "scope": "data26", "filesize": facts.size_bytes},
            "job_metadata": {"issuer": "rucio", "multi_sources": false},
            "activity": facts.activity,
            "retry": 0,
            "retry_max": 0,
            "job_m_replica": false,
            "job_multihop": false,
            "transfer_lasthop": true,
            "is_archiving": false,
            "job_state": "UNKNOWN",
            "ipver": "ipv6",
            "eviction_code": -1,
            "cleanup_code": -1,
            "final_destination": destination_url,
            "transfer_type": "3rd pull",
            "auth_method": "oauth2",
            "overwrite_on_disk_flag": false,
            "t_final_transfer_state": if facts.failure.is_some() { "Error" } else { "Ok" },
            "tr_bt_transfered": if facts.failure.is_some() { 0 } else { facts.size_bytes },
            "is_recoverable": true,
        });
        if let (Value::Object(message), Value::Object(rest)) = (&mut message, rest) {
            message.extend(rest);
        }
        message.to_string()
    }
}

impl Facts {
    fn of(number: u64, at: Timestamp) -> Facts {
        let chance = scattered(number);
        let source = chance % SIDE;
        let destination = (source + 1 + (chance >> 16) % DESTINATIONS_PER_SOURCE) % SIDE;
        let job = scattered(number / FILES_PER_JOB);
        let vo = VOS[(source % VOS.len() as u64) as usize];
        let (dataset, file) = (job & 0xffff_ffff, number);
        let failed = scattered(chance).is_multiple_of(FAILURE_EVERY);
        let kind = (chance >> 40) as usize % FAILURES.len();
        Facts {
            at,
            source: format!("se{source:02}.source.example.org"),
            destination: format!("se{destination:02}.destination.example.org"),
            path: format!(
                "/{vo}/datadisk/rucio/data26_14p0TeV/{:02x}/{:02x}/AOD.{dataset:08}._{file:09}.pool.root.1",
                chance >> 8 & 0xff,
                chance & 0xff
            ),
            job: format!(
                "{:08x}-{:04x}-7000-8000-{:012x}",
                job >> 32,
                job & 0xffff,
                job >> 16
            ),
            vo,
            activity: ACTIVITIES[(chance >> 24) as usize % ACTIVITIES.len()],
            user: format!(
                "/DC=ch/DC=cern/OU=Organic Units/OU=Users/CN=robot{}",
                job % USERS
            ),
            size_bytes: 1_000_000 + (chance >> 20) % 3_000_000_000,
            milliseconds: 2_000 + (chance >> 30) as i64 % 60_000,
            failure: failed.then_some(&FAILURES[kind]),
        }
    }
}

fn tr_id(number: u64, facts: &Facts) -> String {
    format!(
        "2026-11-26-0619__{}__{}__{number}__{}",
        facts.source, facts.destination, facts.job
    )
}

/// A number that looks as if it were drawn (splitmix64).
fn scattered(number: u64) -> u64 {
    let mut value = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_spread_over_their_window_and_found_by_their_time() {
        let window = |from: i64, to: i64| TimeWindow {
            from: Timestamp(from),
            to: Timestamp(to),
        };
        let events = Events {
            count: 1_000,
            window: window(0, 100_000),
        };
        assert_eq!(
            (events.at(0), events.at(999)),
            (Timestamp(0), Timestamp(99_900))
        );
        assert_eq!(events.numbers(window(0, 100_000)), 0..1_000);
        assert_eq!(events.numbers(window(50_000, 50_200)), 500..502);
        let failed = (0..1_000).filter(|number| events.attempt(*number).side.is_some());
        assert!((30..80).contains(&failed.count()));
    }
}
