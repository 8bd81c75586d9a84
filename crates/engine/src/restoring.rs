//! How an engine begins: with what the journal says has not ended, job by job, so that it is never in memory twice.

use super::bans::Bans;
use super::choosing::History;
use super::destinations::Destinations;
use super::halting::LinkHalts;
use super::nodes::{LeadershipMode, Nodes};
use super::owing::OwedTidyings;
use super::queue_rows::SharedFactsIndex;
use super::report::AttemptKey;
use super::room::OpenCounts;
use super::tape::TapeTransfers;
use super::tokens::AwaitedTokens;
use super::tuning::Tuning;
use super::unused_links::Forgetting;
use super::{Effects, Engine, EngineConfig, Now};
use penstock_decide::scheduler::Scheduler;
use penstock_decide::settings::slots_in_effect;
use penstock_model::{RestartFacts, Tidying, TransferEvent, UnfinishedJob};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::sync::Arc;

/// An engine that is being given what it continues with.
pub struct EngineBuilder {
    engine: Engine,
    tidyings: Vec<Tidying>,
    effects: Effects,
    now: Now,
}

impl Engine {
    /// Begins with what holds for all jobs, in the one process of its service. The jobs follow.
    pub fn restore(config: EngineConfig, found: RestartFacts, now: Now) -> EngineBuilder {
        Engine::lead(config, LeadershipMode::Alone, found, now)
    }

    /// Begins with what holds for all jobs. The jobs follow.
    pub fn lead(
        config: EngineConfig,
        leading: LeadershipMode,
        found: RestartFacts,
        now: Now,
    ) -> EngineBuilder {
        let mut engine = Engine {
            scheduler: Scheduler::new(slots_in_effect(&config.slots, &found.settings)),
            nodes: Nodes::new(leading, config.slots.agents, now),
            looked_at: now,
            steady_since: now,
            rates_wake_at: None,
            config,
            jobs: HashMap::new(),
            transfers: HashMap::new(),
            open_counts: OpenCounts::default(),
            sharing: SharedFactsIndex::default(),
            running: HashMap::new(),
            destinations: Destinations::default(),
            held_back: BTreeSet::new(),
            owing: OwedTidyings::default(),
            delayed: BinaryHeap::new(),
            expiring: BinaryHeap::new(),
            clock_is_credible: true,
            halting: LinkHalts::default(),
            bans: Bans::restore(found.bans),
            tokens: AwaitedTokens::default(),
            without_share: BTreeSet::new(),
            history: History::default(),
            tape: TapeTransfers::default(),
            tuning: Tuning::restore(found.tunings),
            last_failure: BTreeMap::new(),
            failed_files: BTreeMap::new(),
            forgetting: Forgetting::default(),
            transfer_id_next: found.transfer_id_max + 1,
            settings: Arc::new(found.settings),
            waiting_groups: Default::default(),
        };
        engine.scheduler.set_drained(engine.settings.is_drained());
        engine.follow_shares();
        let mut effects = Effects::default();
        engine.await_tokens(now, found.tokens_awaited, &mut effects);
        EngineBuilder {
            engine,
            tidyings: found.tidyings,
            effects,
            now,
        }
    }
}

impl EngineBuilder {
    /// Takes a job that has not ended.
    pub fn restore_job(&mut self, found: UnfinishedJob) {
        let UnfinishedJob { job, states, ended } = found;
        self.engine.admit(self.now, job, ended, states);
    }

    /// The engine, when it has been given all jobs. Attempts that may run on other nodes keep their slots until these
    /// say so or have been silent for too long; all others are recorded as lost.
    pub fn finish(self) -> (Engine, Effects) {
        let EngineBuilder {
            mut engine,
            tidyings,
            mut effects,
            now,
        } = self;
        engine.adopt_requests();
        engine.watch_all_replicas(now.at);
        effects.actions.extend(engine.ban_action());
        let interrupted = engine.expect_interrupted(now);
        for AttemptKey { transfer, attempt } in interrupted {
            let reason = "the service was restarted while it ran".to_owned();
            let event = TransferEvent::AttemptLost { attempt, reason };
            engine.apply(now, transfer, event, &mut effects);
        }
        engine.adopt_tidyings(now, tidyings, &mut effects);
        engine.close_empty_jobs(now, &mut effects);
        engine.wake_delayed(now);
        engine.run_tape_agenda(now, &mut effects);
        engine.fail_without_share(now, &mut effects);
        engine.start_ready(now, &mut effects);
        (engine, effects)
    }
}
