//! The engine that `penstock serve` runs, driven as its loop drives it: persist, then act.

use super::agenda::Next;
use super::{BEGIN_MS, BrokenInvariant, World};
use crate::plan::{Change, Plan, Policy};
use penstock_decide::halting::HaltPolicy;
use penstock_decide::scheduler::SlotLimits;
use penstock_decide::settings::{SettingRequest, SettingRequester};
use penstock_engine::command::{ChangeSetting, Reply};
use penstock_engine::{
    Action, Effects, Engine, EngineConfig, Input, LeadershipMode, Now, Order, ReplyId,
};
use penstock_journal::{Journal, JournalError, MemoryJournal};
use penstock_model::{
    ANY, Activity, ActivityShares, LinkId, Record, Slots, StorageId, TuningPolicy, UserName,
    VoName, VoShare, Weight,
};
use std::time::Duration;

/// Seconds between two looks that the engine wants at least; its loop's.
const WAKE_PAUSE: f64 = 0.001;

/// Where a leader dies that is about to do something, and after how many seconds another one takes over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LeaderDeath {
    /// Nothing of it is kept.
    BeforeKeeping(f64),
    /// It is kept, and not done.
    BeforeActing(f64),
}

/// The leader, if there is one, and what it has made durable.
pub(super) struct Service {
    engine: Option<Engine>,
    journal: MemoryJournal,
    keeps_journal: bool,
    /// When the leader began, in virtual seconds.
    pub(super) since: f64,
    /// Transfers on a link at most.
    pub(super) link_max: u32,
    /// What awaits it.
    dies: Option<LeaderDeath>,
    woken_at: f64,
    replies: u64,
    jobs: u128,
    /// Inputs so far.
    pub(super) inputs: u64,
    /// Submissions that were turned away.
    pub(super) refused: u64,
}

impl Service {
    pub(super) fn new(plan: &Plan) -> Service {
        let loses = |what: &Change| {
            matches!(
                what,
                Change::LeaderLost(_) | Change::NodeLost(_) | Change::NodeCutOff(_)
            )
        };
        Service {
            engine: None,
            journal: MemoryJournal::default(),
            // It takes memory for each file that ever was.
            keeps_journal: plan.events.iter().any(|event| loses(&event.what)),
            since: 0.0,
            link_max: config(plan).slots.link.0,
            dies: None,
            woken_at: f64::INFINITY,
            replies: 0,
            jobs: 0,
            inputs: 0,
            refused: 0,
        }
    }

    pub(super) fn is_there(&self) -> bool {
        self.engine.is_some()
    }

    /// Something that has ended left something behind that is to be removed.
    pub(super) fn owes_tidying(&self) -> bool {
        let waits = |engine: &Engine| engine.removals_owed() > 0;
        self.journal.owed().next().is_some() || self.engine.as_ref().is_some_and(waits)
    }

    /// Nobody leads any more.
    pub(super) fn end(&mut self) {
        self.engine = None;
    }

    pub(super) fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// What is durable of a run whose plan lets leaders die.
    #[cfg(test)]
    pub(super) fn journal(&self) -> &MemoryJournal {
        &self.journal
    }

    pub(super) fn next_reply(&mut self) -> ReplyId {
        self.replies += 1;
        ReplyId(self.replies)
    }

    pub(super) fn next_job(&mut self) -> u128 {
        self.jobs += 1;
        self.jobs
    }

    pub(super) fn woken(&mut self) {
        self.woken_at = f64::INFINITY;
    }
}

fn config(plan: &Plan) -> EngineConfig {
    let service = &plan.service;
    let (link, tuning) = match service.policy {
        Policy::Limits => (service.link_max, TuningPolicy::Fixed),
        Policy::Fixed(number) => (number, TuningPolicy::Fixed),
        Policy::Measured => (service.link_max, TuningPolicy::Measured),
        Policy::Fts3 => (service.link_max, TuningPolicy::Fts3),
    };
    EngineConfig {
        slots: SlotLimits {
            link: Slots(link),
            storage_outbound: Slots(service.storage_max),
            storage_inbound: Slots(service.storage_max),
            agents: Slots(service.agents_max),
            ..SlotLimits::default()
        },
        retries_max: service.retries,
        retry_delay: Duration::from_secs_f64(service.retry_delay),
        halting: HaltPolicy::default(),
        open_max: usize::MAX,
        tuning,
        tape: Default::default(),
    }
}

/// Who changes the settings.
fn operator() -> UserName {
    UserName::new("operator")
}

impl World<'_> {
    /// The first leader begins, and operators give VOs their shares.
    pub(super) fn begin(&mut self) -> Result<(), BrokenInvariant> {
        self.take_over()?;
        let any = || StorageId::new(ANY);
        let weight = |number: f64| Weight::from_number(number).unwrap_or(Weight::ONE);
        for vo in &self.plan.vos {
            let name = VoName::new(vo.name.as_str());
            if let Some(share) = vo.share {
                self.set(SettingRequest::SetVoShare(VoShare {
                    ends: LinkId {
                        source: any(),
                        destination: any(),
                    },
                    vo: name.clone(),
                    weight: weight(share),
                }))?;
            }
            if !vo.activities.is_empty() {
                let weights = vo.activities.iter();
                self.set(SettingRequest::SetActivityShares(ActivityShares {
                    vo: name,
                    weights: weights
                        .map(|(name, number)| (Activity::new(name.to_lowercase()), weight(*number)))
                        .collect(),
                    is_active: true,
                }))?;
            }
        }
        Ok(())
    }

    /// An operator changes a setting.
    pub(super) fn set(&mut self, wish: SettingRequest) -> Result<(), BrokenInvariant> {
        let reply = self.service.next_reply();
        self.feed(Input::of_request(
            ChangeSetting {
                wish: Box::new(wish),
                asker: SettingRequester {
                    names: Vec::new(),
                    is_admin: true,
                },
                user: operator(),
            },
            reply,
        ))
    }

    /// Gives the engine an input; while there is no leader, nobody hears it.
    pub(super) fn feed(&mut self, input: Input) -> Result<(), BrokenInvariant> {
        let now = self.clock();
        let Some(engine) = &mut self.service.engine else {
            return Ok(());
        };
        self.service.inputs += 1;
        if let Some(watch) = &mut self.watch {
            watch.input(self.now, &input);
        }
        let effects = engine.handle(now, input);
        self.perform(effects)
    }

    fn perform(&mut self, effects: Effects) -> Result<(), BrokenInvariant> {
        let dies = match effects.records.is_empty() {
            true => None,
            false => self.service.dies.take(),
        };
        if let Some(LeaderDeath::BeforeKeeping(back_after)) = dies {
            self.lose_leader(back_after);
            return Ok(());
        }
        for record in &effects.records {
            self.keep_in_record(record);
            self.account(record)?;
        }
        if self.service.keeps_journal
            && let Err(why) = self.service.journal.append(&effects.records)
        {
            return self.broken(why.to_string());
        }
        if let Some(LeaderDeath::BeforeActing(back_after)) = dies {
            self.lose_leader(back_after);
            return Ok(());
        }
        for action in effects.actions {
            if let Some(watch) = &mut self.watch {
                watch.action(self.now, &action);
            }
            self.act(action)?;
        }
        self.plan_wake();
        self.check_waits()
    }

    fn account(&mut self, record: &Record) -> Result<(), BrokenInvariant> {
        if let Record::JobAccepted { job, .. } = record {
            return self.accepted(job);
        }
        self.watch_record(record)?;
        self.check_order(record)?;
        self.record_attempt(record);
        match self.books.take(record) {
            Ok(None) => Ok(()),
            Ok(Some(ended)) => {
                self.measure.closed(ended.link, ended.vo, self.now);
                Ok(())
            }
            Err(what) => self.broken(what),
        }
    }

    fn act(&mut self, action: Action) -> Result<(), BrokenInvariant> {
        match action {
            Action::Order { order, .. } => self.follow_order(order)?,
            // People look after it.
            Action::GiveOver { request, .. } => self.excuse(request.id),
            Action::Reply {
                reply: Reply::NoRoom(_) | Reply::ShareFull(_) | Reply::StorageBanned(_),
                ..
            } => self.service.refused += 1,
            // Nobody waits for these here.
            _ => {}
        }
        Ok(())
    }

    fn follow_order(&mut self, order: Order) -> Result<(), BrokenInvariant> {
        match order {
            Order::Start(assignment) => self.start(*assignment)?,
            Order::Proceed { transfer, attempt } => self.proceed(transfer, attempt),
            Order::Stop { transfer, .. } => self.stop(transfer),
            Order::Abandon { transfer, attempt } => self.lose_agent(transfer, attempt),
            // The driver adds these; ends are known here at once.
            Order::Forget { .. } => {}
        }
        Ok(())
    }

    fn plan_wake(&mut self) {
        let wake = self.service.engine.as_ref().and_then(Engine::wake_at);
        let Some(at) = wake else {
            return;
        };
        let at = (at.0 - BEGIN_MS) as f64 / 1000.0 - self.skew;
        let at = at.max(self.now + WAKE_PAUSE);
        if at < self.service.woken_at {
            self.service.woken_at = at;
            self.agenda.add(at, Next::Wake);
        }
    }

    /// The leader's process is to die: now, or when it does something next.
    pub(super) fn doom_leader(&mut self, back_after: f64) {
        if !self.service.is_there() || !self.random.happens(self.plan.malice.torn) {
            return self.lose_leader(back_after);
        }
        let is_kept = self.random.happens(0.5);
        self.service.dies = Some(match is_kept {
            true => LeaderDeath::BeforeActing(back_after),
            false => LeaderDeath::BeforeKeeping(back_after),
        });
    }

    /// A leader begins with what was durable.
    pub(super) fn lead(&mut self, leading: LeadershipMode) -> Result<(), BrokenInvariant> {
        self.service.since = self.now;
        self.service.woken_at = f64::INFINITY;
        let (now, mut config) = (self.clock(), config(self.plan));
        config.slots.agents = Slots(self.nodes.slots_each());
        let (engine, effects) = match restored(&mut self.service.journal, config, leading, now) {
            Ok(restored) => restored,
            Err(why) => return self.broken(why.to_string()),
        };
        self.service.engine = Some(engine);
        self.perform(effects)
    }
}

fn restored(
    journal: &mut MemoryJournal,
    config: EngineConfig,
    leading: LeadershipMode,
    now: Now,
) -> Result<(Engine, Effects), JournalError> {
    let mut restoring = Engine::lead(config, leading, journal.load_standing()?, now);
    journal.load_unfinished(&mut |job| restoring.restore_job(job))?;
    Ok(restoring.finish())
}
