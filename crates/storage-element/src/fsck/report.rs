//! What a comparison of a namespace with its pools has found.

use serde::Serialize;
use std::collections::BTreeMap;

/// Of each kind of finding, how many are named.
const NAMED_MAX: usize = 10_000;

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FsckReport {
    /// Visible files that were compared.
    pub files: u64,
    pub bytes: u64,
    /// Entries whose data is not there.
    pub missing: Findings<MissingData>,
    /// Entries of whose data another number of bytes is there.
    pub wrong_size: Findings<WrongSize>,
    /// Files whose label contradicts the namespace.
    pub labels_different: Findings<LabelDifference>,
    /// Data without an entry.
    pub unknown: Findings<UnknownData>,
    /// Files of which the namespace does not know that they are on tape.
    pub unknown_on_tape: Findings<UnknownOnTape>,
    /// Files in the trash that were restored after the copy was made that this namespace is.
    pub restored: Findings<LiveTrashEntry>,
    /// Entries that were removed, replaced or moved after the copy was made that this namespace is.
    pub outdated: Findings<OutdatedEntry>,
    /// Pools whose counters are wrong.
    pub counters: Vec<WrongCounter>,
    /// Files whose label does not tell where they are; the directory log does.
    pub labels_outdated: u64,
    /// Of these, those that were written again.
    pub labels_written: u64,
    /// Pools that hold files and are not configured.
    pub pools_unknown: BTreeMap<String, u64>,
    /// Pools that hold files and are away, with the number of their files.
    pub pools_away: BTreeMap<String, u64>,
}

/// Findings of one kind: how many, and the first of them.
#[derive(Debug, Clone, Serialize)]
pub struct Findings<T> {
    pub count: u64,
    /// Of these, how many were mended.
    pub mended: u64,
    /// The first of them.
    pub named: Vec<T>,
}

impl<T> Default for Findings<T> {
    fn default() -> Self {
        Findings {
            count: 0,
            mended: 0,
            named: Vec::new(),
        }
    }
}

impl<T> Findings<T> {
    pub(super) fn add(&mut self, finding: T, is_mended: bool) {
        self.count += 1;
        self.mended += u64::from(is_mended);
        if self.named.len() < NAMED_MAX {
            self.named.push(finding);
        }
    }

    fn open(&self) -> u64 {
        self.count - self.mended
    }
}

/// An entry without data.
#[derive(Debug, Clone, Serialize)]
pub struct MissingData {
    pub path: String,
    /// The file's id, as the pools name it.
    pub id: String,
    /// The pool that should have it.
    pub pool: String,
    /// Whether that pool can be looked at.
    pub pool_state: PoolState,
    /// Bytes that it should have.
    pub size: u64,
}

/// Whether the files of a pool can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolState {
    /// They can.
    InReach,
    /// Its `pool.json` cannot be read: the disk is not mounted, or dead.
    Away,
    /// It is not in the configuration.
    NotConfigured,
}

/// An entry whose data is of another size.
#[derive(Debug, Clone, Serialize)]
pub struct WrongSize {
    pub path: String,
    /// The file's id.
    pub id: String,
    pub pool: String,
    /// As the namespace says.
    pub expected: u64,
    /// As it lies there.
    pub found: u64,
}

/// A file of which its label and the namespace say different things.
#[derive(Debug, Clone, Serialize)]
pub struct LabelDifference {
    /// Where, as the namespace says.
    pub path: String,
    /// The file's id, as the pools name it.
    pub id: String,
    pub pool: String,
    /// What each of them says. Empty: there is no label, although the namespace counts on one.
    pub fields: Vec<FieldDifference>,
    /// The side that further evidence confirms: the file's bytes, the directory logs. A repair writes the other one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub right: Option<RightSide>,
    /// What that evidence says.
    pub why: String,
}

/// One thing that a label and the namespace say differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FieldDifference {
    /// `id`, `size_bytes`, `parent`, `name`, `owner`, `created_ms` or an algorithm of checksums.
    pub field: String,
    /// As the namespace says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// As the label says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// Which of the two is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RightSide {
    /// The label is written again.
    Namespace,
    /// The namespace's checksums are corrected.
    Label,
}

/// Data without an entry.
#[derive(Debug, Clone, Serialize)]
pub struct UnknownData {
    /// The data's file.
    pub file: String,
    pub pool: String,
    /// Bytes.
    pub size: u64,
    /// It was removed before the namespace was lost: a repair makes it trash again, not visible.
    pub is_trash: bool,
    /// It lies in the pool's quarantine, not where a start would look for its entry.
    pub in_quarantine: bool,
    /// Where its label, and the directories of now, say that it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entered: Option<String>,
    /// Why it was not, or not where it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A file that is on tape, as the directory logs tell, and of which the namespace does not know that.
#[derive(Debug, Clone, Serialize)]
pub struct UnknownOnTape {
    /// Where it was, as far as the logs tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// What its copies on tape are called.
    pub copies: Vec<String>,
    /// Where the namespace has it now, with its copies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entered: Option<String>,
    /// Why not, or not where it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A file that is trash for an older copy of the namespace and was restored since.
#[derive(Debug, Clone, Serialize)]
pub struct LiveTrashEntry {
    /// Where it was restored to, or else where it was when it was removed.
    pub path: String,
    /// The file's id.
    pub id: String,
    pub pool: String,
    /// Bytes.
    pub size: u64,
    /// Where it was made visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entered: Option<String>,
    /// Why not where it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// An entry that an older copy of the namespace has, or has elsewhere.
#[derive(Debug, Clone, Serialize)]
pub struct OutdatedEntry {
    /// Where the copy has it.
    pub path: String,
    pub id: String,
    /// Bytes; a directory has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Where it was moved to since. Without it the entry is removed by a repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// What proves it.
    pub why: String,
}

/// A pool whose counters are not what it holds.
#[derive(Debug, Clone, Serialize)]
pub struct WrongCounter {
    pub pool: String,
    pub files_noted: u64,
    /// As counted.
    pub files: u64,
    pub bytes_noted: u64,
    /// As counted.
    pub bytes: u64,
    /// It was corrected.
    pub is_mended: bool,
}

impl FsckReport {
    /// Findings that are still there and mean that something is wrong. Labels that the directory log corrects do not.
    pub fn open(&self) -> u64 {
        let counters = self.counters.iter().filter(|counter| !counter.is_mended);
        self.missing.open()
            + self.wrong_size.open()
            + self.labels_different.open()
            + self.unknown.open()
            + self.unknown_on_tape.open()
            + self.restored.open()
            + self.outdated.open()
            + counters.count() as u64
            + self.pools_unknown.len() as u64
    }
}
