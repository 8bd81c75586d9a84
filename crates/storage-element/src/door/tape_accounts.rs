//! What administrators are told of data sets on tape and of the time of drives, and what WLCG collects of tapes.

use super::answer::{Problem, Reply, json_answer};
use super::handler_context::Door;
use super::list::unread;
use super::tape_system::{full_status, problem};
use crate::drive_account::DriveAccount;
use crate::nearline::{LiveBytes, Nearline, RecallOutlooks};
use crate::tape_operator::{OperatorError, OperatorOrder, OperatorReply};
use http::StatusCode;
use penstock_model::Timestamp;
use penstock_persistence::namespace::{
    EntryId, HintCount, Namespace, NamespaceError, StoredDataSet,
};
use penstock_tape::mount_account::{TapeMetrics, VoTapeUsage};
use penstock_tape::request::VoName;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Data sets in one answer.
const DATA_SETS_MAX: usize = 1_000;

/// A data set as it is told.
#[derive(Debug, Serialize)]
struct DataSetRow {
    family: String,
    /// The widest first.
    levels: Vec<String>,
    /// What tells which files belong together: `client_metadata`, `submission`, `path` or `time`.
    source: String,
    /// As the client has announced.
    expected_files: Option<u64>,
    expected_bytes: Option<u64>,
    files: u64,
    bytes: u64,
    on_tape_files: u64,
    on_tape_bytes: u64,
    on_disk_files: u64,
    first: Timestamp,
    last: Timestamp,
    /// All that was announced has come; null: nothing was announced.
    is_complete: Option<bool>,
    /// When the last file got to tape; null: some are not there yet, or are still to come.
    archived: Option<Timestamp>,
    /// Files that somebody waits for, and when all of them will be on disk, as far as that can be told.
    awaited_files: u64,
    expected_on_disk: Option<Timestamp>,
}

/// What the hints of one sender were worth.
#[derive(Debug, Serialize)]
struct HintRow {
    sender: String,
    hint: String,
    files: u64,
    last: Timestamp,
}

/// What one VO has on tape.
#[derive(Debug, Default, Serialize)]
struct VoTapes {
    vo: String,
    tapes: u64,
    /// Of all its tapes when they are full.
    capacity_bytes: u64,
    written_bytes: u64,
    /// What of that is needed.
    live: LiveBytes,
}

#[derive(Serialize)]
struct AccountAnswer {
    #[serde(flatten)]
    account: DriveAccount,
    vos: Vec<VoTapes>,
}

/// `?name=…&limit=…`
pub(super) async fn data_sets(
    door: &Door,
    nearline: &Nearline,
    query: &str,
) -> Result<Reply, Problem> {
    let (mut name, mut limit) = (None, DATA_SETS_MAX);
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match key.as_ref() {
            // A token, which the door has taken.
            "authz" => {}
            "name" => name = Some(value.into_owned()),
            "limit" => {
                let asked: usize = value.parse().map_err(|_| nonsense(&key, &value))?;
                limit = asked.clamp(1, DATA_SETS_MAX);
            }
            _ => return Err(nonsense(&key, &value)),
        }
    }
    let namespace = Arc::clone(&door.storage.namespace);
    let outlooks = nearline.outlooks();
    let found =
        tokio::task::spawn_blocking(move || found(&namespace, name.as_deref(), limit, &outlooks));
    let (sets, hints) = found.await.map_err(unread)??;
    Ok(json_answer(StatusCode::OK, &json!({"data_sets": sets, "hints": hints})).into())
}

fn nonsense(key: &str, value: &str) -> Problem {
    Problem::bad_request(format!("'{key}={value}' is not valid here"))
}

/// Blocks.
fn found(
    namespace: &Namespace,
    name: Option<&str>,
    limit: usize,
    outlooks: &RecallOutlooks,
) -> Result<(Vec<DataSetRow>, Vec<HintRow>), NamespaceError> {
    let sets = namespace.data_sets(name, limit)?;
    let known = outlooks.iter();
    let (coming, expected): (Vec<EntryId>, Vec<Timestamp>) = known
        .filter_map(|(file, outlook)| Some((*file, outlook.at?)))
        .unzip();
    let mut ends: BTreeMap<u64, (u64, Timestamp)> = BTreeMap::new();
    for (set, at) in namespace.data_sets_of(&coming)?.into_iter().zip(expected) {
        if let Some(set) = set {
            let end = ends.entry(set).or_insert((0, at));
            *end = (end.0 + 1, end.1.max(at));
        }
    }
    let sets = sets.into_iter().map(|set| {
        let end = ends.get(&set.id).copied();
        DataSetRow::of(set, end)
    });
    let hints = namespace.hint_counts()?.into_iter();
    let hints = hints.map(|count: HintCount| HintRow {
        sender: count.sender,
        hint: count.hint,
        files: count.files,
        last: count.last,
    });
    Ok((sets.collect(), hints.collect()))
}

impl DataSetRow {
    /// `end`: of how many files it is known when they will be on disk, and when the last of these will.
    fn of(set: StoredDataSet, end: Option<(u64, Timestamp)>) -> DataSetRow {
        let reached = |expected: Option<u64>, came: u64| expected.map(|expected| came >= expected);
        let is_complete = match (
            reached(set.expected_files, set.files),
            reached(set.expected_bytes, set.bytes.0),
        ) {
            (None, one) | (one, None) => one,
            // Either figure may be wrong by a little: what is reached first counts.
            (Some(files), Some(bytes)) => Some(files || bytes),
        };
        let is_on_tape = set.on_tape_files == set.files && is_complete != Some(false);
        // As long as one of them has no forecast nobody knows when all will be there.
        let end = end.filter(|(files, _)| *files >= set.awaited_files);
        DataSetRow {
            family: set.family,
            levels: set.levels,
            source: set.source,
            expected_files: set.expected_files,
            expected_bytes: set.expected_bytes,
            files: set.files,
            bytes: set.bytes.0,
            on_tape_files: set.on_tape_files,
            on_tape_bytes: set.on_tape_bytes.0,
            on_disk_files: set.on_disk_files,
            first: set.first,
            last: set.last,
            is_complete,
            archived: set.archived.filter(|_| is_on_tape),
            awaited_files: set.awaited_files,
            expected_on_disk: end.map(|(_, at)| at).filter(|_| set.awaited_files > 0),
        }
    }
}

/// `?since=MILLISECONDS`
pub(super) async fn account(
    door: &Door,
    nearline: &Nearline,
    query: &str,
) -> Result<Reply, Problem> {
    let mut since = None;
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        match key.as_ref() {
            "authz" => {}
            "since" => {
                since = Some(Timestamp(
                    value.parse().map_err(|_| nonsense(&key, &value))?,
                ));
            }
            _ => return Err(nonsense(&key, &value)),
        }
    }
    let vos = vo_tapes(door, nearline).await?;
    match nearline.operate(OperatorOrder::Account(since)).await {
        Ok(OperatorReply::Account(account)) => {
            let answer = AccountAnswer {
                account: *account,
                vos,
            };
            Ok(json_answer(StatusCode::OK, &json!(answer)).into())
        }
        Ok(_) => Err(problem(&OperatorError::Silent)),
        Err(why) => Err(problem(&why)),
    }
}

/// What each VO has on tape. A tape counts to the VO of its family.
async fn vo_tapes(door: &Door, nearline: &Nearline) -> Result<Vec<VoTapes>, Problem> {
    let status = full_status(door, nearline).await?;
    let mut vos: BTreeMap<String, VoTapes> = BTreeMap::new();
    let tapes = status
        .libraries
        .into_iter()
        .flat_map(|libraries| libraries.tapes);
    for tape in tapes {
        let Some(family) = &tape.family else {
            continue;
        };
        let vo = nearline.config.classes.vo_of_family(family);
        let of = vos.entry(vo.to_owned()).or_insert_with(|| VoTapes {
            vo: vo.to_owned(),
            ..VoTapes::default()
        });
        of.tapes += 1;
        of.capacity_bytes = of.capacity_bytes.saturating_add(tape.capacity_bytes);
        of.written_bytes = of.written_bytes.saturating_add(tape.written_bytes);
        of.live.files += tape.live.files;
        of.live.bytes = of.live.bytes.saturating_add(tape.live.bytes);
    }
    Ok(vos.into_values().collect())
}

/// In the form that WLCG collects (HEPTape, TapeMetricsJSON).
pub(super) async fn metrics(door: &Door, nearline: &Nearline) -> Result<Reply, Problem> {
    let cache = &nearline.metrics;
    let turn = cache.turn.acquire().await;
    let _turn = turn.map_err(|_| problem(&OperatorError::Silent))?;
    let document = match cache.known() {
        Some(document) => document,
        None => {
            let document = metrics_document(door, nearline).await?;
            cache.know(document.clone());
            document
        }
    };
    Ok(json_answer(StatusCode::OK, &document).into())
}

async fn metrics_document(door: &Door, nearline: &Nearline) -> Result<Value, Problem> {
    let usage = vo_tapes(door, nearline).await?.into_iter().map(|of| {
        let usage = VoTapeUsage {
            used_bytes: of.live.bytes,
            occupied_bytes: of.capacity_bytes,
        };
        (VoName(of.vo.into()), usage)
    });
    match nearline
        .operate(OperatorOrder::Metrics(usage.collect()))
        .await
    {
        Ok(OperatorReply::Metrics(metrics)) => {
            let now = door.storage.clock.recorded().0.div_euclid(1_000);
            let shares = metrics.iter().map(|(vo, metrics)| Share {
                name: vo.0.to_uppercase(),
                metrics: *metrics,
                timestamp: now,
                vos: [vo.0.to_string()],
            });
            let shares: Vec<Share> = shares.collect();
            Ok(json!({"storageservice": {
                "name": format!("{}-Tape", nearline.config.site_name),
                "implementation": "Penstock",
                "implementationversion": env!("CARGO_PKG_VERSION"),
                "latestupdate": now,
                "storageshares": shares,
            }}))
        }
        Ok(_) => Err(problem(&OperatorError::Silent)),
        Err(why) => Err(problem(&why)),
    }
}

/// One VO.
#[derive(Serialize)]
struct Share {
    name: String,
    #[serde(flatten)]
    metrics: TapeMetrics,
    /// In seconds of Unix.
    timestamp: i64,
    vos: [String; 1],
}
