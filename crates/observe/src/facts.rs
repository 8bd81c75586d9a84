//! What the ledger says of each transfer: when it waited, ran and ended, what it moved, and what went wrong.
//!
//! A fold over ledger entries. It does not know the service's present state: an entry that is missing
//! (because it lies outside the window that was read) leaves its fact unknown, never guessed.

use penstock_model::{
    AfterStaging, Bytes, CopyMode, Failure, JobId, LedgerEntry, LinkId, MoverReport, Timestamp,
    TransferEvent, TransferId,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a transfer ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TransferEnding {
    /// It has not ended in the entries that were read.
    Open,
    /// The file arrived.
    Finished {
        at: Timestamp,
        /// Size of the file.
        size: Bytes,
        /// Which way the bytes went; `None`: an earlier attempt had brought them.
        mode: Option<CopyMode>,
        /// What the mover measured.
        report: Box<MoverReport>,
    },
    /// It will not be tried again.
    Failed { at: Timestamp },
    /// Somebody asked to stop it.
    Canceled { at: Timestamp },
    /// Its job ended without it: another replica arrived, or an earlier hop failed.
    NotNeeded { at: Timestamp },
}

impl TransferEnding {
    /// When it ended; `None` while it is open.
    pub fn at(&self) -> Option<Timestamp> {
        match self {
            TransferEnding::Open => None,
            TransferEnding::Finished { at, .. }
            | TransferEnding::Failed { at }
            | TransferEnding::Canceled { at }
            | TransferEnding::NotNeeded { at } => Some(*at),
        }
    }
}

/// The time in which an attempt ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// When the attempt was given to an agent.
    pub from: Timestamp,
    /// When it ended; `None` while it runs.
    pub to: Option<Timestamp>,
}

/// One transfer as the ledger tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct TransferFacts {
    pub transfer: TransferId,
    pub job: JobId,
    /// Between which storage elements; `None` when its request is no longer in the record.
    pub link: Option<LinkId>,
    /// When it was accepted.
    pub submitted: Option<Timestamp>,
    /// Its attempts, in order.
    pub runs: Vec<Run>,
    pub ending: TransferEnding,
    /// Failed attempts and expiry, with their time.
    pub errors: Vec<(Timestamp, Failure)>,
    /// Attempts whose outcome is unknown because the service went away.
    pub lost_attempts: u32,
    /// The latest event.
    pub last_event: Timestamp,
}

impl TransferFacts {
    /// Nothing known yet but that it exists.
    pub fn new(
        transfer: TransferId,
        job: JobId,
        link: Option<LinkId>,
        at: Timestamp,
    ) -> TransferFacts {
        TransferFacts {
            transfer,
            job,
            link,
            submitted: None,
            runs: Vec::new(),
            ending: TransferEnding::Open,
            errors: Vec::new(),
            lost_attempts: 0,
            last_event: at,
        }
    }

    /// When its first attempt started.
    pub fn first_start(&self) -> Option<Timestamp> {
        self.runs.first().map(|run| run.from)
    }

    /// How long it waited before its first attempt. `None` when either end is unknown.
    pub fn waited(&self) -> Option<Duration> {
        Some(self.first_start()?.since(self.submitted?))
    }

    /// Takes one event. Entries must come in the order of the ledger; nothing moves a transfer that has
    /// ended.
    pub fn take(&mut self, at: Timestamp, event: &TransferEvent) {
        self.last_event = self.last_event.max(at);
        if self.ending != TransferEnding::Open {
            return;
        }
        match event {
            TransferEvent::Submitted => self.submitted = Some(at),
            // It could not start before.
            TransferEvent::Chosen { .. }
            | TransferEvent::Staged {
                then: AfterStaging::Copy,
            } => self.submitted = Some(at),
            TransferEvent::Staged {
                then: AfterStaging::Nothing,
            } => {
                self.ending = TransferEnding::Finished {
                    at,
                    size: Bytes(0),
                    mode: None,
                    report: Box::default(),
                };
            }
            // What becomes of a copy on tape is not about moving it: it has ended when it has landed.
            TransferEvent::StageRequested { .. }
            | TransferEvent::Replaced { .. }
            | TransferEvent::Archived { .. }
            | TransferEvent::ArchiveFailed { .. } => {}
            TransferEvent::NotNeeded => self.ending = TransferEnding::NotNeeded { at },
            TransferEvent::Started { .. } => self.runs.push(Run { from: at, to: None }),
            TransferEvent::Prepared { .. } => {}
            TransferEvent::Landed {
                size, mode, report, ..
            } => {
                self.end_run(at);
                self.ending = TransferEnding::Finished {
                    at,
                    size: *size,
                    mode: *mode,
                    report: report.clone(),
                };
            }
            TransferEvent::AttemptFailed {
                failure, retry_at, ..
            }
            | TransferEvent::StageFailed {
                failure, retry_at, ..
            } => {
                self.end_run(at);
                self.errors.push((at, failure.clone()));
                if retry_at.is_none() {
                    self.ending = TransferEnding::Failed { at };
                }
            }
            TransferEvent::AttemptLost { .. } => {
                self.end_run(at);
                self.lost_attempts = self.lost_attempts.saturating_add(1);
            }
            TransferEvent::Expired { failure } | TransferEvent::Refused { failure } => {
                self.errors.push((at, failure.clone()));
                self.ending = TransferEnding::Failed { at };
            }
            TransferEvent::Canceled { .. } => {
                self.end_run(at);
                self.ending = TransferEnding::Canceled { at };
            }
        }
    }

    fn end_run(&mut self, at: Timestamp) {
        if let Some(run) = self.runs.last_mut()
            && run.to.is_none()
        {
            run.to = Some(at);
        }
    }
}

/// Gathers the facts of every transfer in `entries`, by transfer id. The order of `entries` does not matter.
pub fn gather<'a>(
    entries: impl IntoIterator<Item = &'a LedgerEntry>,
    mut link_of: impl FnMut(TransferId) -> Option<LinkId>,
) -> Vec<TransferFacts> {
    let mut ordered: Vec<&LedgerEntry> = entries.into_iter().collect();
    ordered.sort_by_key(|entry| entry.sequence);
    let mut facts: BTreeMap<TransferId, TransferFacts> = BTreeMap::new();
    for entry in ordered {
        facts
            .entry(entry.transfer)
            .or_insert_with(|| {
                TransferFacts::new(entry.transfer, entry.job, link_of(entry.transfer), entry.at)
            })
            .take(entry.at, &entry.event);
    }
    facts.into_values().collect()
}
