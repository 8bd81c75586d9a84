//! Follows the ledger and turns its entries into messages.
//!
//! Keeps what is needed to name the state of each job that is not over: how many of its transfers are where, and the
//! attempts that run. After a restart that is read again from the ledger when a job's next entry comes.

use super::composing::{
    AttemptEnd, AttemptFacts, Kind, MessageSubject, MonitoringMessage, TapeFacts, link,
};
use super::link_tally::{LinkState, LinkTally};
use penstock_journal::{JournalError, JournalReader};
use penstock_model::{
    Bytes, Job, JobId, JobKind, JobState, JobTally, LedgerEntry, LinkId, Timestamp, TransferEvent,
    TransferId, TransferRequest, TransferState, TuningPolicy, advance,
};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Entries of one transfer that are read to know its state.
const ENTRIES_PER_TRANSFER_MAX: usize = 10_000;
/// Links whose recent past is kept.
const LINKS_MAX: usize = 10_000;
/// The weight of the newest value, as in FTS's optimizer.
const SMOOTHING: f64 = 0.1;

/// A job that is not over.
struct OpenJob {
    /// Without transfers.
    job: Job,
    tally: JobTally,
    /// Transfers that may still change.
    open: u32,
    /// Of jobs of hops: the last.
    last: Option<Arc<TransferRequest>>,
    /// States that are not the first one. Those of ended transfers are counted and forgotten.
    states: HashMap<TransferId, OpenTransfer>,
}

#[derive(Clone)]
struct OpenTransfer {
    state: TransferState,
    attempt: AttemptFacts,
    tape: TapeFacts,
}

/// The reading end of one sink.
pub(super) struct Follower {
    position: u64,
    endpoint: String,
    books: HashMap<JobId, OpenJob>,
    links: BTreeMap<LinkId, LinkTally>,
}

impl Follower {
    /// Has taken everything up to `position`.
    pub(super) fn new(position: u64, endpoint: String) -> Follower {
        Follower {
            position,
            endpoint,
            books: HashMap::new(),
            links: BTreeMap::new(),
        }
    }

    /// The last entry that was taken.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Takes one entry. `after` is the one behind it, when there is one: when a replica or hop takes the place of the
    /// one that ended, it says so.
    pub(super) fn take(
        &mut self,
        reader: &dyn JournalReader,
        entry: &LedgerEntry,
        after: Option<&LedgerEntry>,
        told: &mut Vec<MonitoringMessage>,
    ) -> Result<(), JournalError> {
        let before = std::mem::replace(&mut self.position, entry.sequence);
        let Some(row) = reader.transfer(entry.transfer)? else {
            return Ok(());
        };
        let request = row.request;
        let book = match self.books.entry(entry.job) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => match open_book(reader, entry, &request, before)? {
                Some(book) => unknown.insert(book),
                None => return Ok(()),
            },
        };
        let Some(change) = book.apply(entry) else {
            return Ok(());
        };
        note(&mut self.links, &request, &change, entry);
        let goes_on = after.is_some_and(|after| {
            after.job == entry.job && matches!(after.event, TransferEvent::Chosen { .. })
        });
        let about = MessageSubject {
            endpoint: &self.endpoint,
            job: &book.job,
            request: &request,
            last: book.last.as_deref(),
            job_state: match goes_on {
                true => JobState::Active,
                false => book.tally.state(book.job.parameters.kind),
            },
            at: entry.at,
            tape: change.tape,
        };
        let mut tell = |kind: Kind, body| {
            told.push(MonitoringMessage {
                kind,
                id: format!("{}-{}", entry.sequence, kind.name()),
                body,
            });
        };
        match &entry.event {
            TransferEvent::Started { .. } => tell(Kind::Start, about.start(&change.attempt)),
            event => {
                if let Some(ended) = ended(event, &change.before) {
                    tell(Kind::Complete, about.complete(&change.attempt, &ended));
                }
            }
        }
        if change.before.as_ref().map(TransferState::fts_name) != Some(change.now.fts_name()) {
            tell(Kind::State, about.state(&change.now));
        }
        if book.open == 0 {
            self.books.remove(&entry.job);
        }
        Ok(())
    }

    /// How links are, with what they did since this was last asked.
    pub(super) fn links<'a>(
        &mut self,
        links: impl Iterator<Item = LinkState<'a>>,
        at: Timestamp,
    ) -> Vec<MonitoringMessage> {
        let mut told = Vec::new();
        for state in links {
            let id = LinkId {
                source: penstock_model::StorageId::new(state.source),
                destination: penstock_model::StorageId::new(state.destination),
            };
            let seen = past_of(&mut self.links, id);
            let now = state.bytes_per_second as f64;
            seen.smoothed = match state.tuning {
                // Nobody else smooths it.
                TuningPolicy::Fixed => SMOOTHING * now + (1.0 - SMOOTHING) * seen.smoothed,
                _ => state.seen.rate_smoothed.0 as f64,
            };
            told.push(MonitoringMessage {
                kind: Kind::Optimizer,
                id: format!("{}-{}-{}", at.0, state.source, state.destination),
                body: link(&state, seen, at),
            });
            *seen = LinkTally {
                smoothed: seen.smoothed,
                limit: Some(state.limit),
                ..LinkTally::default()
            };
        }
        told
    }
}

/// What an entry changed.
struct Change {
    /// `None`: it is new.
    before: Option<TransferState>,
    now: TransferState,
    attempt: AttemptFacts,
    tape: TapeFacts,
}

impl OpenJob {
    fn new(job: Job) -> OpenJob {
        OpenJob {
            job,
            tally: JobTally::default(),
            open: 0,
            last: None,
            states: HashMap::new(),
        }
    }

    /// `None` for an entry that changes nothing that is told, or does not fit: the ledger has none such.
    fn apply(&mut self, entry: &LedgerEntry) -> Option<Change> {
        let first = self.job.parameters.first_state(self.job.submitted_at);
        match &entry.event {
            TransferEvent::Submitted => {
                self.tally.add(&first);
                self.open += 1;
                return Some(Change {
                    before: None,
                    now: first,
                    attempt: AttemptFacts::default(),
                    tape: TapeFacts::default(),
                });
            }
            TransferEvent::NotNeeded => {
                self.open = self.open.saturating_sub(1);
                return None;
            }
            _ => {}
        }
        let known = self.states.get(&entry.transfer).cloned();
        let OpenTransfer {
            state,
            mut attempt,
            mut tape,
        } = known.unwrap_or(OpenTransfer {
            state: first,
            attempt: AttemptFacts::default(),
            tape: TapeFacts::default(),
        });
        let now = advance(&state, entry.at, &entry.event).ok()?;
        self.tally.remove(&state);
        self.tally.add(&now);
        match &entry.event {
            TransferEvent::Started {
                attempt: number, ..
            } => {
                attempt = AttemptFacts {
                    number: number.0,
                    started: entry.at,
                    ..AttemptFacts::default()
                };
            }
            TransferEvent::Prepared { size, .. } => {
                attempt.prepared = Some(entry.at);
                attempt.size = *size;
            }
            TransferEvent::StageRequested { .. } => {
                tape.staging_started = entry.at;
                tape.staging_finished = Timestamp::default();
            }
            TransferEvent::Staged { .. }
            | TransferEvent::StageFailed { .. }
            | TransferEvent::Replaced { .. } => {
                tape.staging_finished = entry.at;
            }
            TransferEvent::Landed { archives: true, .. } => tape.archiving_started = entry.at,
            TransferEvent::Archived { .. } | TransferEvent::ArchiveFailed { .. } => {
                tape.archiving_finished = entry.at;
            }
            _ => {}
        }
        if now.is_terminal() {
            self.states.remove(&entry.transfer);
            self.open = self.open.saturating_sub(1);
        } else {
            let open = OpenTransfer {
                state: now.clone(),
                attempt: attempt.clone(),
                tape,
            };
            self.states.insert(entry.transfer, open);
        }
        Some(Change {
            before: Some(state),
            now,
            attempt,
            tape,
        })
    }
}

/// The book of a job as it was after the entry `before`. A new job's is empty.
fn open_book(
    reader: &dyn JournalReader,
    entry: &LedgerEntry,
    request: &TransferRequest,
    before: u64,
) -> Result<Option<OpenJob>, JournalError> {
    let Some(row) = reader.job(entry.job)? else {
        return Ok(None);
    };
    let mut book = OpenJob::new(Job {
        id: row.id,
        user: row.user,
        vo: row.vo,
        delegation: row.delegation,
        submitted_at: row.submitted_at,
        parameters: row.parameters,
        transfers: Vec::new(),
    });
    let is_new = entry.event == TransferEvent::Submitted && request.index == 0;
    let has_hops = book.job.parameters.kind == JobKind::Hops;
    if is_new && !has_hops {
        return Ok(Some(book));
    }
    let transfers = reader.transfers(entry.job)?;
    if has_hops {
        let last = transfers
            .iter()
            .map(|row| &row.request)
            .max_by_key(|request| request.index);
        book.last = last.cloned().map(Arc::new);
    }
    if !is_new {
        for transfer in transfers {
            for past in reader.entries_of(transfer.id, ENTRIES_PER_TRANSFER_MAX)? {
                if past.sequence <= before {
                    book.apply(&past);
                }
            }
        }
    }
    Ok(Some(book))
}

fn ended<'a>(event: &'a TransferEvent, before: &Option<TransferState>) -> Option<AttemptEnd<'a>> {
    let ran = matches!(before, Some(TransferState::Active { .. }));
    match event {
        TransferEvent::Landed {
            size, mode, report, ..
        } => Some(AttemptEnd::Landed {
            size: *size,
            mode: *mode,
            report,
        }),
        TransferEvent::AttemptFailed { failure, .. } => Some(AttemptEnd::Failed(failure)),
        TransferEvent::Canceled { reason } if ran => Some(AttemptEnd::Canceled(reason)),
        TransferEvent::AttemptLost { reason, .. } => Some(AttemptEnd::Canceled(reason)),
        TransferEvent::Canceled { .. }
        | TransferEvent::Expired { .. }
        | TransferEvent::Refused { .. }
        | TransferEvent::StageRequested { .. }
        | TransferEvent::Staged { .. }
        | TransferEvent::StageFailed { .. }
        | TransferEvent::Archived { .. }
        | TransferEvent::ArchiveFailed { .. }
        | TransferEvent::Submitted
        | TransferEvent::Chosen { .. }
        | TransferEvent::Replaced { .. }
        | TransferEvent::NotNeeded
        | TransferEvent::Started { .. }
        | TransferEvent::Prepared { .. } => None,
    }
}

/// What is known of a link. When there are too many, all are forgotten.
fn past_of(links: &mut BTreeMap<LinkId, LinkTally>, link: LinkId) -> &mut LinkTally {
    if links.len() >= LINKS_MAX && !links.contains_key(&link) {
        links.clear();
    }
    links.entry(link).or_default()
}

fn note(
    links: &mut BTreeMap<LinkId, LinkTally>,
    request: &TransferRequest,
    change: &Change,
    entry: &LedgerEntry,
) {
    let (size, failed) = match &entry.event {
        TransferEvent::Landed { size, .. } => (*size, false),
        TransferEvent::AttemptFailed { .. } => (Bytes(0), true),
        _ => return,
    };
    let seen = past_of(links, request.link());
    match failed {
        true => {
            seen.failed += 1;
            seen.retried += u32::from(!change.now.is_terminal());
        }
        false => {
            let bytes = size.0 as f64;
            seen.landed += 1;
            seen.bytes += bytes;
            seen.squares += bytes * bytes;
            seen.seconds += entry.at.since(change.attempt.started).as_secs_f64();
        }
    }
}
