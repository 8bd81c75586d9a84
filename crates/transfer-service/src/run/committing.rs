//! The thread that owns the journal: it commits what has piled up in one transaction, then acts upon it.

use super::{Act, Batch, LoopEnd};
use crate::loop_message::Message;
use crate::node::Node;
use crate::node::wire::LeaderMessage;
use penstock_engine::command::Reply;
use penstock_journal::{Journal, JournalError, PruneReport, PruneStep, Remedy};
use penstock_model::Record;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// How many records go into one transaction at most.
const RECORDS_PER_COMMIT: usize = 20_000;
/// How long to wait before writing to a full journal again.
const JOURNAL_RETRY: Duration = Duration::from_millis(500);
/// How long one of several nodes tries; then another may lead, or it leads anew from the stored state.
const RESIGN_AFTER: Duration = Duration::from_secs(10);

/// Owns the journal. A thread, because a commit blocks.
pub(super) struct Committer {
    pub(super) journal: Box<dyn Journal>,
    pub(super) node: Arc<Node>,
    pub(super) reports: mpsc::Sender<Message>,
    pub(super) sealing_due: Arc<AtomicBool>,
    pub(super) over: Arc<AtomicBool>,
    pub(super) runtime: tokio::runtime::Handle,
    pub(super) shutdown: watch::Receiver<bool>,
    pub(super) last_chance: Duration,
    /// Known once the service has been asked to end while the journal could not be written.
    pub(super) gives_up_at: Option<Instant>,
    /// Another node can lead in its place.
    pub(super) resigns: bool,
}

/// Why records were not written.
pub(super) enum CommitFailure {
    /// Nothing more is to be written.
    Over(LoopEnd),
    /// They are refused for good.
    Refused(JournalError),
}

impl Committer {
    pub(super) fn run(mut self, queued: mpsc::Receiver<Batch>) -> (LoopEnd, Box<dyn Journal>) {
        let end = self.commit_all(queued);
        (end, self.journal)
    }

    /// Until there is nothing more, or it is over. Who still waits for an answer gets none.
    fn commit_all(&mut self, mut queued: mpsc::Receiver<Batch>) -> LoopEnd {
        while let Some(mut batch) = queued.blocking_recv() {
            while batch.records.len() < RECORDS_PER_COMMIT
                && let Ok(next) = queued.try_recv()
            {
                batch.append(next);
            }
            if let Err(end) = self.commit(batch) {
                return end;
            }
            if self.sealing_due.load(Ordering::Relaxed) {
                self.seal_some_anew();
            }
        }
        LoopEnd::Done
    }

    fn commit(&mut self, batch: Batch) -> Result<(), LoopEnd> {
        match self.write(&batch.records) {
            Ok(()) => {
                batch.acts.into_iter().for_each(|act| self.act(act));
                Ok(())
            }
            Err(CommitFailure::Over(end)) => Err(end),
            Err(CommitFailure::Refused(error)) => self.leave_out(batch, &error),
        }
    }

    /// Returns well when the records are durable and may be acted upon.
    pub(super) fn write(&mut self, records: &[Record]) -> Result<(), CommitFailure> {
        if !records.is_empty() {
            let sequence = self.append(records)?;
            if self.over.load(Ordering::Relaxed) {
                return Err(CommitFailure::Over(LoopEnd::Done));
            }
            self.node.published.committed.send_replace(sequence);
        }
        match self.over.load(Ordering::Relaxed) {
            true => Err(CommitFailure::Over(LoopEnd::Done)),
            false => Ok(()),
        }
    }

    /// A few secrets after each batch, so that nobody waits for all of them.
    fn seal_some_anew(&mut self) {
        // Taken back first: should the key change again meanwhile, another pass is due.
        self.sealing_due.store(false, Ordering::Relaxed);
        match self.journal.seal_some_anew() {
            Ok(true) => tracing::info!("the journal's secrets are sealed with the newest key"),
            Ok(false) => self.sealing_due.store(true, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!(%error, "secrets could not be re-encrypted; retrying");
                self.sealing_due.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns when the records are durable, or when it is too late for them.
    fn append(&mut self, records: &[Record]) -> Result<u64, CommitFailure> {
        let tried_since = Instant::now();
        loop {
            let begun = Instant::now();
            self.node.published.set_writes_since(Some(begun));
            let appended = self.journal.append(records);
            self.node.published.set_writes_since(None);
            match appended {
                Ok(sequence) => {
                    let metrics = &self.node.metrics;
                    metrics.batch_records.observe(records.len() as u64);
                    let took = begun.elapsed().as_micros();
                    let took = u64::try_from(took).unwrap_or(u64::MAX);
                    metrics.commit_us.observe(took);
                    if !self.node.published.set_writable(true) {
                        tracing::info!("the journal can be written again");
                    }
                    return Ok(sequence);
                }
                // What is not recorded yet, whoever leads next finds out by itself.
                Err(error) if error.remedy() == Remedy::ReadAnew => {
                    return Err(CommitFailure::Over(LoopEnd::ReadAnew(error)));
                }
                Err(error) if error.remedy() == Remedy::LeaveOut => {
                    return Err(CommitFailure::Refused(error));
                }
                Err(error) if self.gives_up() => {
                    return Err(CommitFailure::Over(LoopEnd::Unwritten(error)));
                }
                Err(error) if self.resigns && tried_since.elapsed() >= RESIGN_AFTER => {
                    tracing::error!(%error, "the journal cannot be written: this node gives the lead back");
                    return Err(CommitFailure::Over(LoopEnd::ReadAnew(error)));
                }
                Err(error) => {
                    if self.node.published.set_writable(false) {
                        tracing::error!(%error, "nothing starts or ends until the journal can be written");
                    }
                    std::thread::sleep(JOURNAL_RETRY);
                }
            }
        }
    }

    fn gives_up(&mut self) -> bool {
        if self.over.load(Ordering::Relaxed) {
            return true;
        }
        let asked_to_end = *self.shutdown.borrow() || self.shutdown.has_changed().is_err();
        if !asked_to_end {
            return false;
        }
        let last_chance = self.last_chance;
        let until = self
            .gives_up_at
            .get_or_insert_with(|| Instant::now() + last_chance);
        Instant::now() >= *until
    }

    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Order {
                node,
                session,
                order,
                progress,
            } => self.node.followers.order(&node, session, order, progress),
            Act::Tape(call) => {
                let calling = self.node.agents.clone();
                let calling = calling.call_tape(*call, self.reports.clone());
                self.runtime.spawn(calling);
            }
            Act::RemoveSource(number, assignment) => {
                let calling = self.node.agents.clone();
                let reports = self.reports.clone();
                let calling = calling.call_source_removal(number, *assignment, reports);
                self.runtime.spawn(calling);
            }
            // The other side may have gone meanwhile, which is its right.
            Act::Reply(to, reply) => drop(to.send(reply)),
            Act::RenewAtIssuer(id, to) => {
                let tokens = self.node.agents.tokens.clone();
                self.runtime.spawn(async move {
                    let refreshed = tokens.refresh_for_another(&id).await;
                    // Whoever asked may have gone.
                    let _ = to.send(Reply::Refreshed(refreshed));
                });
            }
            Act::LockOut(users) => {
                self.node
                    .followers
                    .tell_all(LeaderMessage::LockOut(users.clone()));
                self.node.published.banned.replace_imposed(users);
            }
            Act::PrepareToken(id) => {
                let tokens = self.node.agents.tokens.clone();
                self.runtime.spawn(tokens.prepare(id));
            }
            Act::Publish(settings) => {
                let all = settings.all().cloned().collect();
                self.node.followers.tell_all(LeaderMessage::Settings(all));
                self.node.published.show_settings(settings);
            }
            Act::Prune(step, answer) => {
                drop(answer.send(prune(&mut *self.journal, &step)));
            }
        }
    }
}

/// A step in the journal's thread, with how long it took.
fn prune(
    journal: &mut dyn penstock_journal::Journal,
    step: &PruneStep,
) -> Result<(PruneReport, Duration), JournalError> {
    let begun = Instant::now();
    let pruned = journal.prune(step)?;
    Ok((pruned, begun.elapsed()))
}
