//! How an engine begins: with what the journal says has not ended, job by job, so that it is never in memory twice.

use super::bans::Bans;
use super::choosing::History;
use super::destinations::Destinations;
use super::halting::Halting;
use super::nodes::{Leading, Nodes};
use super::rows::Sharing;
use super::tape::Tape;
use super::tokens::AwaitedTokens;
use super::tuning::Tuning;
use super::{Effects, Engine, EngineConfig, Now};
use penstock_decide::scheduler::Scheduler;
use penstock_decide::settings::slots_in_effect;
use penstock_model::TransferEvent;
use penstock_persistence::journal::{Journal, JournalError, Standing, Tidying, UnfinishedJob};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Transfers that are handed from the journal's reader to the engine at once, or those of one job if that has more.
const TRANSFERS_PER_BATCH: usize = 512;
/// Batches that were read and not yet taken.
const BATCHES_AHEAD: usize = 4;

/// An engine that is being given what it continues with.
pub struct Restoring {
    engine: Engine,
    tidyings: Vec<Tidying>,
    effects: Effects,
    now: Now,
}

impl Engine {
    /// Begins with what holds for all jobs, in the one process of its service. The jobs follow.
    pub fn restore(config: EngineConfig, found: Standing, now: Now) -> Restoring {
        Engine::lead(config, Leading::Alone, found, now)
    }

    /// Begins with what holds for all jobs. The jobs follow.
    pub fn lead(config: EngineConfig, leading: Leading, found: Standing, now: Now) -> Restoring {
        let mut engine = Engine {
            scheduler: Scheduler::new(slots_in_effect(&config.slots, &found.settings)),
            nodes: Nodes::new(leading, config.slots.agents, now),
            config,
            jobs: HashMap::new(),
            transfers: HashMap::new(),
            sharing: Sharing::default(),
            running: HashMap::new(),
            destinations: Destinations::default(),
            held_back: BTreeSet::new(),
            delayed: BinaryHeap::new(),
            expiring: BinaryHeap::new(),
            halting: Halting::default(),
            bans: Bans::restore(found.bans),
            tokens: AwaitedTokens::default(),
            without_share: BTreeSet::new(),
            history: History::default(),
            tape: Tape::default(),
            tuning: Tuning::restore(found.tunings),
            last_failure: BTreeMap::new(),
            transfer_id_next: found.transfer_id_max + 1,
            settings: Arc::new(found.settings),
        };
        engine.scheduler.set_drained(engine.settings.is_drained());
        engine.follow_shares();
        let mut effects = Effects::default();
        engine.await_tokens(now, found.tokens_awaited, &mut effects);
        Restoring {
            engine,
            tidyings: found.tidyings,
            effects,
            now,
        }
    }
}

/// The engine that continues what a journal holds. Jobs are read by a thread of its own while those before them are taken,
/// because each takes about as long as the other.
pub fn continue_from(
    journal: &mut dyn Journal,
    config: EngineConfig,
    leading: Leading,
    now: Now,
) -> Result<(Engine, Effects), JournalError> {
    let mut restoring = Engine::lead(config, leading, journal.load_standing()?, now);
    let (ahead, read) = std::sync::mpsc::sync_channel(BATCHES_AHEAD);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || read_ahead(journal, &ahead));
        for job in read.into_iter().flatten() {
            restoring.take(job);
        }
        reading
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(restoring.finish())
}

fn read_ahead(
    journal: &mut dyn Journal,
    ahead: &SyncSender<Vec<UnfinishedJob>>,
) -> Result<(), JournalError> {
    let (mut batch, mut transfers) = (Vec::new(), 0);
    journal.load_unfinished(&mut |job| {
        transfers += job.job.transfers.len();
        batch.push(job);
        if transfers >= TRANSFERS_PER_BATCH {
            transfers = 0;
            // Nobody takes them any more only after a panic.
            let _ = ahead.send(std::mem::take(&mut batch));
        }
    })?;
    let _ = ahead.send(batch);
    Ok(())
}

impl Restoring {
    /// Takes a job that has not ended.
    pub fn take(&mut self, found: UnfinishedJob) {
        let UnfinishedJob { job, states, ended } = found;
        self.engine.admit(self.now, job, ended, states);
    }

    /// The engine, when it has been given all jobs. Attempts that may run on other nodes keep their slots until these
    /// say so or have been silent for too long; all others are recorded as lost.
    pub fn finish(self) -> (Engine, Effects) {
        let Restoring {
            mut engine,
            tidyings,
            mut effects,
            now,
        } = self;
        engine.adopt_requests();
        effects.actions.extend(engine.lock_out_if_any());
        let interrupted = engine.expect_interrupted(now);
        for (transfer, attempt) in interrupted {
            let reason = "the service was restarted while it ran".to_owned();
            let event = TransferEvent::AttemptLost { attempt, reason };
            engine.happen(now, transfer, event, &mut effects);
        }
        engine.adopt_tidyings(now, tidyings, &mut effects);
        engine.close_empty_jobs(now, &mut effects);
        engine.wake_delayed(now);
        engine.attend_to_tape(now, &mut effects);
        engine.fail_without_share(now, &mut effects);
        engine.start_what_may(now, &mut effects);
        (engine, effects)
    }
}
