//! The story of one path of a storage element: what stands there, who wrote it, what was read and refused, and why a request
//! for it fails or waits. Made from rows of the storage element's own record, and from how its pools stand.

use penstock_model::observation::{
    Attempt, EntryChange, NamespaceChange, Operation, Outcome, Text,
};
use penstock_model::text::{one_line, plural};
use penstock_model::{Bytes, PoolName, Rate, TimeSpan, Timestamp, UserName, VoName};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::time::Duration;

/// Reads and refusals that are told one by one in the text; JSON has more.
const LINES_MAX: usize = 10;
/// The mover that wrote a file ends so long before or after the file becomes visible at most.
const WRITE_NEAR: Duration = Duration::from_secs(60);

/// What is known of a path, before reasons are looked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PathFacts {
    pub path: String,
    /// The storage element, as URLs name it.
    pub storage: String,
    pub from: Timestamp,
    pub to: Timestamp,
    /// The oldest thing that its ledger holds.
    pub oldest: Option<Timestamp>,
    pub entry: Option<PathEntry>,
    /// The pool of the file.
    pub pool: Option<PathPool>,
    /// Movers of this path now; `None`: the storage element does not run here.
    pub running: Option<Vec<PathMover>>,
    /// The latest first.
    pub changes: Vec<NamespaceChange>,
    /// Ended movers and refused requests, the latest first.
    pub attempts: Vec<Attempt>,
    /// Earlier ones, for which there was no room.
    pub left_out: u64,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathEntry {
    /// `file` or `directory`.
    pub kind: String,
    /// As rows identify it.
    pub file: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub file_bytes: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pool: Option<PoolName>,
    pub created: Timestamp,
    pub modified: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner: Option<UserName>,
    /// `adler32:1a2b3c4d`.
    pub checksums: Vec<String>,
}

/// How a pool stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathPool {
    pub name: PoolName,
    /// When it was looked at.
    pub at: Timestamp,
    /// `enabled`, `drained` or `disabled`; unknown of a storage element that does not run here.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mode: Option<String>,
    /// `sound`, `read_only`, `silent` or `away`.
    pub condition: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_free: Option<Bytes>,
    pub movers_active: u64,
    pub movers_queued: u64,
    pub movers_max: u64,
}

/// A mover that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMover {
    /// What it does: `get`, `put`, `pull`, `push` or `copy`.
    pub kind: String,
    pub peer: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user: Option<UserName>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub vo: Option<VoName>,
    pub since: Timestamp,
    /// False while it waits for a slot.
    pub is_running: bool,
    pub bytes_moved: Bytes,
}

/// Who wrote the file, as far as the record tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathWrite {
    pub at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub user: Option<UserName>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub vo: Option<VoName>,
    /// The client, or the other storage element of a copy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub client: Option<Text>,
    /// The copy, by the name that both ends record.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub copy: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes_per_second: Option<u64>,
}

/// What a reason is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathCause {
    /// The entry was removed.
    Removed,
    /// It has another path now.
    Renamed,
    /// Nothing stands there, and nothing is known of an entry there.
    Absent,
    /// The pool of the file cannot be used.
    PoolAway,
    /// Its pool gives no more slots now.
    PoolBusy,
    /// The last request was refused.
    Refused,
    /// The last mover failed.
    Failed,
}

/// Why a request fails or waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathReason {
    pub cause: PathCause,
    /// One line for people.
    pub text: String,
}

/// What happened in the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCounts {
    pub reads: u64,
    pub reads_failed: u64,
    pub writes: u64,
    pub writes_failed: u64,
    pub refusals: u64,
    pub changes: u64,
}

/// The story, as `penstock explain path --json` and `GET /api/v1/explain/path` tell it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathStory {
    pub path: String,
    pub storage: String,
    pub from: Timestamp,
    pub to: Timestamp,
    /// From when on the record is complete, where that is later than the begin of the window.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub complete_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub entry: Option<PathEntry>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pool: Option<PathPool>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub written: Option<PathWrite>,
    /// Unknown of a storage element that does not run here.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub running: Option<Vec<PathMover>>,
    /// Why a request fails or waits; none: nothing is known that would stop one.
    pub reasons: Vec<PathReason>,
    /// Of what is told below.
    pub counts: PathCounts,
    /// Earlier events of the window, which are not told.
    pub left_out: u64,
    /// As rows of records, the latest first.
    pub changes: Vec<NamespaceChange>,
    /// Ended movers and refused requests as rows of records, the latest first.
    pub attempts: Vec<Attempt>,
    /// For people.
    pub text: String,
}

impl PathStory {
    pub fn of(facts: PathFacts) -> PathStory {
        let mut story = PathStory {
            complete_since: facts.oldest.filter(|oldest| *oldest > facts.from),
            written: written(&facts),
            reasons: reasons(&facts),
            counts: counts(&facts),
            path: facts.path,
            storage: facts.storage,
            from: facts.from,
            to: facts.to,
            entry: facts.entry,
            pool: facts.pool,
            running: facts.running,
            left_out: facts.left_out,
            changes: facts.changes,
            attempts: facts.attempts,
            text: String::new(),
        };
        story.text = story.lines();
        story
    }

    /// Whether nothing at all is known of the path.
    pub fn is_empty(&self) -> bool {
        self.entry.is_none() && self.changes.is_empty() && self.attempts.is_empty()
    }
}

fn is_write(row: &Attempt) -> bool {
    row.destination_path.is_some()
}

fn is_refusal(row: &Attempt) -> bool {
    row.operation == Operation::Request
}

fn counts(facts: &PathFacts) -> PathCounts {
    let mut counts = PathCounts {
        changes: facts.changes.len() as u64,
        ..PathCounts::default()
    };
    for row in &facts.attempts {
        let failed = u64::from(row.outcome != Some(Outcome::Success));
        if is_refusal(row) {
            counts.refusals += 1;
        } else if is_write(row) {
            counts.writes += 1;
            counts.writes_failed += failed;
        } else {
            counts.reads += 1;
            counts.reads_failed += failed;
        }
    }
    counts
}

/// Who made the file visible; the mover that wrote it tells how fast it came.
fn written(facts: &PathFacts) -> Option<PathWrite> {
    let entry = facts.entry.as_ref().filter(|entry| entry.kind == "file")?;
    let is_creation = |row: &&NamespaceChange| {
        matches!(row.kind, EntryChange::Creation | EntryChange::Replacement)
            && row.file.as_deref() == Some(&*entry.file)
    };
    let change = facts.changes.iter().find(is_creation);
    let at = change.map_or(entry.created, |change| change.at);
    let is_its_mover = |row: &&Attempt| {
        let near = row.at.since(at).max(at.since(row.at)) <= WRITE_NEAR;
        let copy = change.and_then(|change| change.copy.as_ref());
        let same = copy.is_none() || row.copy.as_ref() == copy;
        is_write(row) && row.outcome == Some(Outcome::Success) && near && same
    };
    let mover = facts.attempts.iter().find(is_its_mover);
    let client = mover.and_then(|row| row.client.clone());
    Some(PathWrite {
        at,
        user: change.map_or(entry.owner.clone(), |change| change.user.clone()),
        vo: change.and_then(|change| change.vo.clone()),
        client: client.or_else(|| change.and_then(|change| change.client.clone())),
        copy: change.and_then(|change| change.copy.clone()),
        bytes_per_second: mover.and_then(rate_of).map(|rate| rate.0),
    })
}

fn rate_of(row: &Attempt) -> Option<Rate> {
    let (started, moved) = (row.started?, row.bytes_moved?);
    Rate::over(moved, row.at.since(started))
}

/// What stops the next request comes before what stopped the last one.
fn reasons(facts: &PathFacts) -> Vec<PathReason> {
    let mut reasons = Vec::new();
    let mut tell = |cause, text| reasons.push(PathReason { cause, text });
    if facts.entry.is_none() {
        let (cause, text) = why_absent(facts);
        tell(cause, text);
    }
    if let Some(pool) = &facts.pool {
        if let Some(text) = why_away(pool) {
            tell(PathCause::PoolAway, text);
        } else if pool.movers_queued > 0 || pool.movers_active >= pool.movers_max {
            tell(PathCause::PoolBusy, busy(facts, pool));
        }
    }
    // What ended well after it is over.
    let last = facts.attempts.first();
    if let Some(row) = last.filter(|row| row.outcome != Some(Outcome::Success)) {
        let cause = match is_refusal(row) {
            true => PathCause::Refused,
            false => PathCause::Failed,
        };
        tell(cause, format!("the last request: {}", attempt_line(row)));
    }
    reasons
}

fn why_absent(facts: &PathFacts) -> (PathCause, String) {
    let by = |row: &NamespaceChange| {
        row.user
            .as_ref()
            .map_or(String::new(), |user| format!(" by {user}"))
    };
    let at = |row: &NamespaceChange| format!("{}Z", row.at.to_fts());
    let reason = |row: &NamespaceChange| {
        row.reason
            .map_or(String::new(), |why| format!(" ({})", why.word()))
    };
    for row in &facts.changes {
        match row.kind {
            EntryChange::Rename if row.path.as_deref() == Some(&*facts.path) => {
                let to = row.new_path.as_deref().unwrap_or("another path");
                return (
                    PathCause::Renamed,
                    format!("renamed at {}{} to {to}", at(row), by(row)),
                );
            }
            EntryChange::Removal | EntryChange::DirectoryRemoval => {
                return (
                    PathCause::Removed,
                    format!("removed at {}{}{}", at(row), by(row), reason(row)),
                );
            }
            EntryChange::Creation
            | EntryChange::Replacement
            | EntryChange::DirectoryCreation
            | EntryChange::Rename
            | EntryChange::Restoration
            | EntryChange::Purge
            | EntryChange::PropertyUpdate
            | EntryChange::Recovery
            | EntryChange::Archiving
            | EntryChange::Recall
            | EntryChange::Eviction => {}
        }
    }
    let since = facts
        .oldest
        .map_or(facts.from, |oldest| oldest.max(facts.from));
    let text = format!(
        "nothing exists at this path, and nothing has been recorded for it since {}Z",
        since.to_fts()
    );
    (PathCause::Absent, text)
}

fn why_away(pool: &PathPool) -> Option<String> {
    let name = &pool.name;
    if pool.mode.as_deref() == Some("disabled") {
        return Some(format!("the pool {name} is disabled by its configuration"));
    }
    match pool.condition.as_str() {
        "away" => Some(format!("the disk of the pool {name} is away")),
        "silent" => Some(format!("the disk of the pool {name} does not answer")),
        _ => None,
    }
}

fn busy(facts: &PathFacts, pool: &PathPool) -> String {
    let waiting = facts.running.iter().flatten();
    let own = waiting.filter(|mover| !mover.is_running).count() as u64;
    let own = match own {
        0 => String::new(),
        own => format!("; {} for this path", plural(own, "request")),
    };
    format!(
        "no mover of the pool {} is free: {} of {} run, {} wait{own}",
        pool.name, pool.movers_active, pool.movers_max, pool.movers_queued
    )
}

/// What one attempt was.
fn attempt_line(row: &Attempt) -> String {
    let what = match (is_refusal(row), is_write(row)) {
        (true, _) => "refused",
        (false, true) => "write",
        (false, false) => "read",
    };
    let outcome = match row.outcome {
        Some(Outcome::Success) | None => String::new(),
        Some(Outcome::Failure) if is_refusal(row) => String::new(),
        Some(Outcome::Failure) => " failed".to_owned(),
        Some(Outcome::Abort) => " broke off".to_owned(),
    };
    let mut line = format!("{}Z {what}{outcome}", row.at.to_fts());
    if let Some(user) = &row.user {
        let _ = write!(line, " by {user}");
    }
    if let Some(client) = &row.client {
        let _ = write!(line, " from {client}");
    }
    if let Some(copy) = &row.copy {
        let _ = write!(line, " copy {copy}");
    }
    if let Some(moved) = row.bytes_moved {
        let _ = write!(line, ", {moved}");
    }
    if let Some(rate) = rate_of(row) {
        let _ = write!(line, " at {rate}");
    }
    if let (true, Some(code)) = (is_refusal(row), row.error_code) {
        let what = row.fingerprint.as_deref().unwrap_or_default();
        let _ = write!(line, ": {what} {code}");
    }
    if let Some(detail) = &row.detail {
        let _ = write!(line, ": {detail}");
    }
    one_line(&line).into_owned()
}

impl PathStory {
    fn lines(&self) -> String {
        let mut text = format!("{} at {}\n", one_line(&self.path), self.storage);
        text += &self.entry_lines();
        text += &self.pool_line();
        for mover in self.running.iter().flatten() {
            let state = match mover.is_running {
                true => "runs",
                false => "waits",
            };
            let since = self.to.since(mover.since);
            text += &one_line(&format!(
                "  {} {state} for {}, {} with {}",
                mover.kind,
                TimeSpan(since),
                mover.bytes_moved,
                mover.peer
            ));
            text.push('\n');
        }
        if self.reasons.is_empty() {
            text += "no reason is known why a request should fail or wait\n";
        }
        for reason in &self.reasons {
            text += &format!("why: {}\n", one_line(&reason.text));
        }
        text + &self.history_lines()
    }

    fn entry_lines(&self) -> String {
        let Some(entry) = &self.entry else {
            return String::new();
        };
        let mut line = format!("  {} {}", entry.kind, entry.file);
        if let Some(bytes) = entry.file_bytes {
            let _ = write!(line, ", {bytes} ({} bytes)", bytes.0);
        }
        for checksum in &entry.checksums {
            let _ = write!(line, ", {checksum}");
        }
        let _ = writeln!(line, ", since {}Z", entry.created.to_fts());
        if let Some(write) = &self.written {
            let mut told = format!("  written {}Z", write.at.to_fts());
            if let Some(user) = &write.user {
                let _ = write!(told, " by {user}");
            }
            if let Some(vo) = &write.vo {
                let _ = write!(told, " ({vo})");
            }
            if let Some(client) = &write.client {
                let _ = write!(told, " from {client}");
            }
            if let Some(copy) = &write.copy {
                let _ = write!(told, ", copy {copy}");
            }
            if let Some(rate) = write.bytes_per_second {
                let _ = write!(told, ", at {}", Rate(rate));
            }
            line += &format!("{}\n", one_line(&told));
        }
        line
    }

    fn pool_line(&self) -> String {
        let Some(pool) = &self.pool else {
            return String::new();
        };
        let mode = pool
            .mode
            .as_ref()
            .map_or(String::new(), |mode| format!("{mode}, "));
        let free = pool
            .bytes_free
            .map_or(String::new(), |free| format!(", {free} free"));
        format!(
            "  pool {}: {mode}{}, {} of {} movers run, {} wait{free}\n",
            pool.name, pool.condition, pool.movers_active, pool.movers_max, pool.movers_queued
        )
    }

    fn history_lines(&self) -> String {
        let counts = self.counts;
        let mut text = format!(
            "{}Z to {}Z: {} ({} failed), {} ({} failed), {}, {}\n",
            self.from.to_fts(),
            self.to.to_fts(),
            plural(counts.reads, "read"),
            counts.reads_failed,
            plural(counts.writes, "write"),
            counts.writes_failed,
            plural(counts.refusals, "refused request"),
            plural(counts.changes, "change"),
        );
        if let Some(since) = self.complete_since {
            text += &format!("the record begins {}Z\n", since.to_fts());
        }
        if self.left_out > 0 {
            text += &format!("{} earlier, not shown\n", plural(self.left_out, "event"));
        }
        for row in self.attempts.iter().take(LINES_MAX) {
            text += &format!("  {}\n", attempt_line(row));
        }
        for row in self.changes.iter().take(LINES_MAX) {
            let by = row
                .user
                .as_ref()
                .map_or(String::new(), |user| format!(" by {user}"));
            let line = format!("  {}Z {}{by}", row.at.to_fts(), row.kind.word());
            text += &format!("{}\n", one_line(&line));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1000;

    fn facts() -> PathFacts {
        PathFacts {
            path: "/d/f".to_owned(),
            storage: "https://here.org:8443".to_owned(),
            to: Timestamp(100 * SECOND),
            entry: Some(PathEntry {
                kind: "file".to_owned(),
                file: "1f".to_owned(),
                file_bytes: Some(Bytes(4_000_000)),
                pool: Some(PoolName::new("p1")),
                created: Timestamp(10 * SECOND),
                modified: Timestamp(10 * SECOND),
                owner: Some(UserName::new("owner")),
                checksums: vec!["adler32:1a2b3c4d".to_owned()],
            }),
            pool: Some(PathPool {
                name: PoolName::new("p1"),
                at: Timestamp(100 * SECOND),
                mode: Some("enabled".to_owned()),
                condition: "sound".to_owned(),
                bytes_free: Some(Bytes(9)),
                movers_active: 1,
                movers_queued: 0,
                movers_max: 4,
            }),
            running: Some(Vec::new()),
            changes: vec![NamespaceChange {
                at: Timestamp(10 * SECOND),
                kind: EntryChange::Creation,
                file: Some("1f".into()),
                path: Some("/d/f".into()),
                user: Some(UserName::new("writer")),
                vo: Some(VoName::new("cms")),
                copy: Some("17-3-1".into()),
                ..NamespaceChange::default()
            }],
            attempts: vec![
                Attempt {
                    at: Timestamp(50 * SECOND),
                    operation: Operation::Read,
                    source_path: Some("/d/f".into()),
                    outcome: Some(Outcome::Success),
                    bytes_moved: Some(Bytes(4_000_000)),
                    started: Some(Timestamp(49 * SECOND)),
                    ..Attempt::default()
                },
                Attempt {
                    at: Timestamp(10 * SECOND),
                    operation: Operation::Copy,
                    destination_path: Some("/d/f".into()),
                    copy: Some("17-3-1".into()),
                    client: Some("https://far.org/f".into()),
                    outcome: Some(Outcome::Success),
                    bytes_moved: Some(Bytes(4_000_000)),
                    started: Some(Timestamp(8 * SECOND)),
                    ..Attempt::default()
                },
            ],
            ..PathFacts::default()
        }
    }

    fn refusal(at: i64) -> Attempt {
        Attempt {
            at: Timestamp(at),
            operation: Operation::Request,
            source_path: Some("/d/f".into()),
            outcome: Some(Outcome::Failure),
            error_code: Some(403),
            detail: Some("no right to read".into()),
            ..Attempt::default()
        }
    }

    fn causes(facts: PathFacts) -> Vec<PathCause> {
        let story = PathStory::of(facts);
        story.reasons.iter().map(|reason| reason.cause).collect()
    }

    #[test]
    fn a_file_that_can_be_read_tells_who_wrote_it_and_no_reason() {
        let story = PathStory::of(facts());
        let written = story.written.as_ref().expect("it is a file");
        assert_eq!(written.copy.as_deref(), Some("17-3-1"));
        assert_eq!(written.client.as_deref(), Some("https://far.org/f"));
        assert_eq!(written.bytes_per_second, Some(2_000_000));
        assert_eq!(story.reasons, []);
        assert_eq!((story.counts.reads, story.counts.writes), (1, 1));
        for part in [
            "/d/f at https://here.org:8443",
            "written 1970-01-01T00:00:10Z by writer (cms) from https://far.org/f, copy 17-3-1, at 2.0 MB/s",
            "pool p1: enabled, sound, 1 of 4 movers run",
            "no reason is known why a request should fail or wait",
        ] {
            assert!(story.text.contains(part), "{part}\n{}", story.text);
        }
    }

    #[test]
    fn what_stops_the_next_request_comes_before_what_stopped_the_last() {
        let mut away = facts();
        away.attempts.insert(0, refusal(60 * SECOND));
        away.pool.as_mut().expect("a pool").condition = "away".to_owned();
        assert_eq!(causes(away), [PathCause::PoolAway, PathCause::Refused]);
        let mut busy = facts();
        let pool = busy.pool.as_mut().expect("a pool");
        (pool.movers_active, pool.movers_queued) = (4, 2);
        assert_eq!(causes(busy), [PathCause::PoolBusy]);
    }

    #[test]
    fn a_refusal_before_a_success_is_over() {
        let mut over = facts();
        over.attempts.insert(1, refusal(20 * SECOND));
        assert_eq!(causes(over), []);
    }

    #[test]
    fn of_a_path_without_an_entry_its_end_is_told() {
        let change = |kind, new_path: Option<&str>| NamespaceChange {
            at: Timestamp(70 * SECOND),
            kind,
            path: Some("/d/f".into()),
            new_path: new_path.map(Into::into),
            user: Some(UserName::new("somebody")),
            ..NamespaceChange::default()
        };
        let gone = |row: Option<NamespaceChange>| {
            let mut gone = facts();
            (gone.entry, gone.pool) = (None, None);
            gone.changes.splice(0..0, row);
            let story = PathStory::of(gone);
            let first = story.reasons.into_iter().next().expect("a reason");
            (first.cause, first.text)
        };
        let (cause, text) = gone(Some(change(EntryChange::Removal, None)));
        assert_eq!(cause, PathCause::Removed);
        assert_eq!(text, "removed at 1970-01-01T00:01:10Z by somebody");
        let (cause, text) = gone(Some(change(EntryChange::Rename, Some("/d/g"))));
        assert_eq!(cause, PathCause::Renamed);
        assert!(text.ends_with("to /d/g"), "{text}");
        assert_eq!(gone(None).0, PathCause::Absent);
    }
}
