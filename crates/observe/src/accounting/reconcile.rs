//! Two views of the same transfers, joined by ids: a bridge from the volume of one to that of the other that sums exactly,
//! and what is left, item by item.
//!
//! Each row is in exactly one term of the bridge; what no reason explains is residue.

use super::arrived_of;
use super::figures::{Impossible, ImpossibleRows};
use penstock_model::observation::{Attempt, Operation, Outcome, Text};
use penstock_model::{TimeWindow, Timestamp};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
/// Items of the residue that are told one by one; all are in its sum.
const ITEMS_MAX: usize = 100;
/// Attempts of a view that are compared at most: some 8 GB.
pub const ATTEMPTS_MAX: usize = 20_000_000;
/// How far apart the times of one copy may lie in two views when only its path joins them: clocks differ, and a service
/// hears late of the end. Whoever writes the path again later makes another copy.
const PATH_SLACK_MS: i64 = 10 * 60 * 1000;
/// The name of rows whose VO nobody tells.
const UNKNOWN: &str = "(unknown)";

/// What the rows of a view say of one attempt, as far as a comparison needs it.
#[derive(Debug, Clone)]
struct Item {
    /// When the attempt began, as far as it is told.
    started: Timestamp,
    /// When it ended.
    at: Timestamp,
    operation: Operation,
    outcome: Outcome,
    is_local: bool,
    moved: i128,
    arrived: i128,
    tells_size: bool,
    vo: Option<Text>,
    keys: Vec<Key>,
    origin: (Text, u64),
}

/// By what rows of two views are known to be of the same attempt, the surest first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// The attempt by its name.
    Attempt(Text),
    /// The copy by a name that both have, and which attempt.
    Copy(Text, u32),
    /// The file of a transfer service.
    Transfer(Text, Text, u32),
    /// What a session wrote at a path: one session moves many files.
    Session(Text, Text),
    /// The path at the destination, near in time.
    Path(Text),
}

/// A view: a window, and its rows. Rows outside of the window are needed, too: they tell that windows differ.
#[derive(Debug, Clone)]
pub struct ViewRows {
    from: Timestamp,
    to: Timestamp,
    items: Vec<Item>,
    items_max: usize,
    is_cut: bool,
    impossible: ImpossibleRows,
}

/// The terms of a bridge from the first view to the second, in bytes; each may be below zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Terms {
    /// What attempts moved that failed.
    pub failed_attempts: i128,
    /// What was moved again although it had arrived.
    pub retries: i128,
    /// What only one of the windows has.
    pub windows: i128,
    /// What is in one window by one clock and not by the other.
    pub clocks: i128,
    /// Bytes of the same attempt that both tell differently.
    pub sizes: i128,
    /// What clients read inside the site.
    pub local_reads: i128,
    /// What came from tape or went there.
    pub staging: i128,
    /// What nothing of this explains.
    pub residue: i128,
}

impl Terms {
    fn sum(&self) -> i128 {
        self.failed_attempts
            + self.retries
            + self.windows
            + self.clocks
            + self.sizes
            + self.local_reads
            + self.staging
            + self.residue
    }

    /// Names and values, in the order in which they are told.
    pub fn named(&self) -> [(&'static str, i128); 8] {
        [
            ("failed attempts", self.failed_attempts),
            ("retries", self.retries),
            ("windows", self.windows),
            ("clocks", self.clocks),
            ("sizes", self.sizes),
            ("local reads", self.local_reads),
            ("staging", self.staging),
            ("residue", self.residue),
        ]
    }
}

/// The bridge of a VO.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Bridge {
    /// The first view's volume: files that arrived in its window.
    pub first: i128,
    /// The second view's volume: bytes that moved in its window.
    pub second: i128,
    /// What is between.
    pub terms: Terms,
    /// Attempts that both have.
    pub matched: u64,
    /// Attempts that only the first has.
    pub first_only: u64,
    /// Attempts that only the second has.
    pub second_only: u64,
}

impl Bridge {
    /// Whether it sums exactly.
    pub fn is_exact(&self) -> bool {
        self.first + self.terms.sum() == self.second
    }
}

/// A row that is in the residue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResidueItem {
    /// Source and line.
    pub row: String,
    pub vo: String,
    /// What it adds.
    pub bytes: i128,
    /// Why it is not explained.
    pub why: &'static str,
}

/// What came of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reconciliation {
    pub all: Bridge,
    pub by_vo: BTreeMap<String, Bridge>,
    /// The median of the second view's times less the first's, in milliseconds, over attempts that both have.
    pub clock_skew_ms: Option<i64>,
    /// The residue, the largest first.
    pub residue: Vec<ResidueItem>,
    /// Rows of the first view's window that cannot be true, by what is wrong with them.
    pub impossible_in_first: Vec<Impossible>,
    /// The same of the second view.
    pub impossible_in_second: Vec<Impossible>,
}

impl ViewRows {
    /// No rows yet.
    pub fn new(window: TimeWindow) -> ViewRows {
        ViewRows {
            from: window.from,
            to: window.to,
            items: Vec::new(),
            items_max: ATTEMPTS_MAX,
            is_cut: false,
            impossible: ImpossibleRows::default(),
        }
    }

    /// Whether there were more attempts than are compared ([`ATTEMPTS_MAX`]): a comparison would be wrong.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Takes a row; one that tells no end is passed over, and what moves no file.
    pub fn take(&mut self, row: &Attempt) {
        if self.has(row.at) {
            self.impossible.look(row);
        }
        let Some(outcome) = row.outcome else {
            return;
        };
        if [Operation::Removal, Operation::Request, Operation::PoolCopy].contains(&row.operation) {
            return;
        }
        if self.items.len() >= self.items_max {
            self.is_cut = true;
            return;
        }
        let count =
            |bytes: Option<penstock_model::Bytes>| bytes.map_or(0, |bytes| i128::from(bytes.0));
        let is_success = outcome == Outcome::Success;
        self.items.push(Item {
            started: row.started.map_or(row.at, |started| started.min(row.at)),
            at: row.at,
            operation: row.operation,
            outcome,
            is_local: row.is_local == Some(true),
            moved: count(row.bytes_moved.or(row.file_bytes.filter(|_| is_success))),
            arrived: count(arrived_of(row).filter(|_| is_success)),
            tells_size: row.bytes_moved.or(row.file_bytes).is_some(),
            vo: row.vo.as_ref().map(|vo| vo.as_str().into()),
            keys: keys_of(row),
            origin: (row.source.clone(), row.line),
        });
    }

    fn has(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

fn keys_of(row: &Attempt) -> Vec<Key> {
    let number = row.attempt_number.unwrap_or(1);
    let mut keys = Vec::new();
    keys.extend(row.attempt.clone().map(Key::Attempt));
    keys.extend(row.copy.clone().map(|copy| Key::Copy(copy, number)));
    if let (Some(job), Some(transfer)) = (&row.job, &row.transfer) {
        keys.push(Key::Transfer(job.clone(), transfer.clone(), number));
    }
    // What is read is known by the path at the source: it is no copy of the file.
    if let Some(path) = &row.destination_path {
        let session = row.session.clone();
        keys.extend(session.map(|session| Key::Session(session, path.clone())));
        keys.push(Key::Path(path.clone()));
    }
    keys
}

/// Whether two rows that share this key can be of one copy: a path alone is used again, so their times must touch.
fn can_be_one(key: &Key, one: &Item, other: &Item) -> bool {
    match key {
        Key::Attempt(_) | Key::Copy(..) | Key::Transfer(..) | Key::Session(..) => true,
        Key::Path(_) => {
            let (later_start, earlier_end) = (one.started.max(other.started), one.at.min(other.at));
            later_start.0.saturating_sub(earlier_end.0) <= PATH_SLACK_MS
        }
    }
}

/// Compares the first view with the second: files that arrived in the one, bytes that moved in the other.
pub fn reconcile(first: &ViewRows, second: &ViewRows) -> Reconciliation {
    let partners = join(first, second);
    let skew = median_skew(first, second, &partners);
    let mut result = Reconciliation {
        all: Bridge::default(),
        by_vo: BTreeMap::new(),
        clock_skew_ms: skew,
        residue: Vec::new(),
        impossible_in_first: first.impossible.found(),
        impossible_in_second: second.impossible.found(),
    };
    let mut partner_of_second: HashMap<usize, usize> = HashMap::new();
    for (own, other) in partners.iter().enumerate() {
        if let Some(other) = other {
            partner_of_second.insert(*other, own);
        }
    }
    for (own, item) in first.items.iter().enumerate() {
        let value = match first.has(item.at) {
            true => item.arrived,
            false => 0,
        };
        match partners[own] {
            Some(other) => {
                let other = &second.items[other];
                let moved = match second.has(other.at) {
                    true => other.moved,
                    false => 0,
                };
                let vo = item.vo.as_ref().or(other.vo.as_ref());
                let volumes = Volumes {
                    first: value,
                    second: moved,
                };
                let reason = match volumes.difference() {
                    0 => Term::Sizes.explained(),
                    _ => reason_of_pair(&Pair {
                        first,
                        item,
                        second,
                        other,
                    }),
                };
                result.add(vo, volumes, reason, item);
                result.count(vo, |bridge| bridge.matched += 1);
            }
            None if value != 0 => {
                let reason = match second.has(item.at) {
                    true => Reason::unexplained("only the first view has it"),
                    false => Term::Windows.explained(),
                };
                let volumes = Volumes {
                    first: value,
                    second: 0,
                };
                result.add(item.vo.as_ref(), volumes, reason, item);
                result.count(item.vo.as_ref(), |bridge| bridge.first_only += 1);
            }
            None => {}
        }
    }
    let is_joined = |own: usize| partner_of_second.contains_key(&own);
    add_second_only(&mut result, first, second, is_joined);
    result
        .residue
        .sort_by(|a, b| (b.bytes.abs(), &a.row).cmp(&(a.bytes.abs(), &b.row)));
    result.residue.truncate(ITEMS_MAX);
    result
}

/// Adds the rows of the second view that have no partner in the first one.
fn add_second_only(
    result: &mut Reconciliation,
    first: &ViewRows,
    second: &ViewRows,
    is_joined: impl Fn(usize) -> bool,
) {
    let mut arrived: HashMap<&Key, Vec<&Item>> = HashMap::new();
    for item in &first.items {
        if item.outcome == Outcome::Success {
            for key in &item.keys {
                arrived.entry(key).or_default().push(item);
            }
        }
    }
    for (own, item) in second.items.iter().enumerate() {
        if is_joined(own) || !second.has(item.at) || item.moved == 0 {
            continue;
        }
        let again = item.keys.iter().find_map(|key| {
            let mut of_key = arrived.get(key)?.iter();
            of_key.find(|arrived| can_be_one(key, item, arrived))
        });
        let vo = item.vo.as_ref().or(again.and_then(|item| item.vo.as_ref()));
        let reason = reason_of_second_only(first, item, again.is_some());
        let volumes = Volumes {
            first: 0,
            second: item.moved,
        };
        result.add(vo, volumes, reason, item);
        result.count(vo, |bridge| bridge.second_only += 1);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    FailedAttempts,
    Retries,
    Windows,
    Clocks,
    Sizes,
    LocalReads,
    Staging,
    Residue,
}

impl Term {
    fn explained(self) -> Reason {
        Reason {
            term: self,
            why_residue: None,
        }
    }
}

/// Why a row adds to the bridge; of the residue, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reason {
    term: Term,
    why_residue: Option<&'static str>,
}

impl Reason {
    fn unexplained(why: &'static str) -> Reason {
        Reason {
            term: Term::Residue,
            why_residue: Some(why),
        }
    }
}

/// What a row adds to the volume of each view, in bytes.
#[derive(Debug, Clone, Copy)]
struct Volumes {
    first: i128,
    second: i128,
}

impl Volumes {
    fn difference(self) -> i128 {
        self.second - self.first
    }
}

/// Why the first view has no partner of a row of the second.
fn reason_of_second_only(first: &ViewRows, item: &Item, has_arrived: bool) -> Reason {
    match (item.operation, item.outcome) {
        (Operation::Recall | Operation::Migration, _) => Term::Staging.explained(),
        (_, Outcome::Failure | Outcome::Abort) => Term::FailedAttempts.explained(),
        (Operation::Read, _) if item.is_local => Term::LocalReads.explained(),
        _ if !first.has(item.at) => Term::Windows.explained(),
        (Operation::Read, _) if has_arrived => {
            Reason::unexplained("a read at the source of a copy that the first view has")
        }
        _ if has_arrived => Term::Retries.explained(),
        _ => Reason::unexplained("only the second view has it"),
    }
}

/// Two rows of one attempt, each with its view.
struct Pair<'a> {
    first: &'a ViewRows,
    item: &'a Item,
    second: &'a ViewRows,
    other: &'a Item,
}

/// Why two rows of one attempt differ.
fn reason_of_pair(pair: &Pair<'_>) -> Reason {
    let is_success = |item: &Item| item.outcome == Outcome::Success;
    match (is_success(pair.item), is_success(pair.other)) {
        (false, false) => return Term::FailedAttempts.explained(),
        (true, false) => {
            return Reason::unexplained("it arrived in the first view and failed in the second");
        }
        (false, true) => {
            return Reason::unexplained("it failed in the first view and arrived in the second");
        }
        (true, true) => {}
    }
    let in_first = pair.first.has(pair.item.at);
    if in_first == pair.second.has(pair.other.at) {
        return match (pair.item.tells_size, pair.other.tells_size) {
            (true, true) => Term::Sizes.explained(),
            (false, _) => Reason::unexplained("the first view has no size"),
            (true, false) => Reason::unexplained("the second view has no size"),
        };
    }
    // By one and the same clock, would both windows have it?
    match pair.second.has(pair.item.at) == in_first {
        true => Term::Clocks.explained(),
        false => Term::Windows.explained(),
    }
}

/// For each row of the first view the row of the second that is of the same attempt. Surer keys take first.
fn join(first: &ViewRows, second: &ViewRows) -> Vec<Option<usize>> {
    let mut partners = vec![None; first.items.len()];
    let mut taken = vec![false; second.items.len()];
    // The name of an attempt is proof enough when the views tell different ends of it.
    let passes = [
        (0, true),
        (0, false),
        (1, true),
        (2, true),
        (3, true),
        (4, true),
    ];
    for (rank, same_outcome) in passes {
        let mut by_key: HashMap<&Key, Vec<usize>> = HashMap::new();
        for (place, item) in second.items.iter().enumerate().rev() {
            if !taken[place]
                && !matches!(
                    item.operation,
                    Operation::Recall | Operation::Migration | Operation::Read
                )
            {
                for key in item.keys.iter().filter(|key| rank_of(key) == rank) {
                    by_key.entry(key).or_default().push(place);
                }
            }
        }
        for (own, item) in first.items.iter().enumerate() {
            if partners[own].is_some() {
                continue;
            }
            let keys = item.keys.iter().filter(|key| rank_of(key) == rank);
            for key in keys {
                let Some(places) = by_key.get_mut(key) else {
                    continue;
                };
                // Of several with one key the nearest in time is the same attempt: paths are used again.
                let fits = |place: usize| {
                    let other = &second.items[place];
                    !taken[place]
                        && (!same_outcome || other.outcome == item.outcome)
                        && can_be_one(key, item, other)
                };
                let apart = |place: usize| second.items[place].at.0.abs_diff(item.at.0);
                let nearest = (0..places.len())
                    .rev()
                    .filter(|at| fits(places[*at]))
                    .min_by_key(|at| apart(places[*at]));
                if let Some(at) = nearest {
                    let place = places.remove(at);
                    taken[place] = true;
                    partners[own] = Some(place);
                    break;
                }
            }
        }
    }
    partners
}

fn rank_of(key: &Key) -> u8 {
    match key {
        Key::Attempt(_) => 0,
        Key::Copy(..) => 1,
        Key::Transfer(..) => 2,
        Key::Session(..) => 3,
        Key::Path(_) => 4,
    }
}

fn median_skew(first: &ViewRows, second: &ViewRows, partners: &[Option<usize>]) -> Option<i64> {
    let pairs = first.items.iter().zip(partners);
    let skews = pairs
        .filter_map(|(item, other)| Some(second.items[(*other)?].at.0.saturating_sub(item.at.0)));
    let mut skews: Vec<i64> = skews.collect();
    skews.sort_unstable();
    skews.get(skews.len() / 2).copied()
}

impl Reconciliation {
    /// Whether something differs that no reason explains.
    pub fn has_residue(&self) -> bool {
        !self.residue.is_empty()
    }

    fn count(&mut self, vo: Option<&Text>, count: impl Fn(&mut Bridge)) {
        count(&mut self.all);
        count(self.by_vo.entry(vo_name(vo)).or_default());
    }

    fn add(&mut self, vo: Option<&Text>, volumes: Volumes, reason: Reason, item: &Item) {
        let name = vo_name(vo);
        let difference = volumes.difference();
        let own = self.by_vo.entry(name.clone()).or_default();
        for bridge in [&mut self.all, own] {
            bridge.first += volumes.first;
            bridge.second += volumes.second;
            let terms = &mut bridge.terms;
            let place = match reason.term {
                Term::FailedAttempts => &mut terms.failed_attempts,
                Term::Retries => &mut terms.retries,
                Term::Windows => &mut terms.windows,
                Term::Clocks => &mut terms.clocks,
                Term::Sizes => &mut terms.sizes,
                Term::LocalReads => &mut terms.local_reads,
                Term::Staging => &mut terms.staging,
                Term::Residue => &mut terms.residue,
            };
            *place += difference;
        }
        if let Some(why) = reason.why_residue {
            self.residue.push(ResidueItem {
                row: format!("{} line {}", item.origin.0, item.origin.1),
                vo: name,
                bytes: difference,
                why,
            });
        }
    }
}

fn vo_name(vo: Option<&Text>) -> String {
    vo.map_or(UNKNOWN, |vo| vo).to_owned()
}

#[cfg(test)]
mod tests;
