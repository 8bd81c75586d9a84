//! The engine under random trouble: submissions, outcomes, cancels, crashes, full disks, in any order.

mod bans;
mod clock;
mod forgetting;
mod nodes;
mod owing;
mod room;
mod tape;
mod tokens;

use super::*;
use crate::checked_submission::NewTransfer;
use penstock_decide::halting::HaltPolicy;
use penstock_decide::scheduler::SlotLimits;
use penstock_journal::{Journal, MemoryJournal};
use penstock_model::{
    Activity, Ban, BanEffect, BanTarget, Bytes, ChecksumAlgorithm, CopyMode, FileUrl, Overwrite,
    RestartFacts, Selection, Slots, StorageBan, StorageId, TuningPolicy, UserName,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

const LINK_LIMIT: u32 = 2;
const STORAGE_LIMIT: u32 = 3;
/// More than the tests need, but one.
const OPEN_MAX: usize = 20_000;

/// The engine that goes on with what a journal holds.
fn continue_from(
    journal: &mut MemoryJournal,
    config: EngineConfig,
    leading: LeadershipMode,
    now: Now,
) -> (Engine, Effects) {
    let standing = journal.load_standing().expect("it is in memory");
    let mut restoring = Engine::lead(config, leading, standing, now);
    let read = journal.load_unfinished(&mut |job| restoring.restore_job(job));
    read.expect("it is in memory");
    restoring.finish()
}

fn config() -> EngineConfig {
    let slots = SlotLimits {
        link: Slots(LINK_LIMIT),
        storage_outbound: Slots(STORAGE_LIMIT),
        storage_inbound: Slots(STORAGE_LIMIT),
        agents: Slots(5),
        ..SlotLimits::default()
    };
    EngineConfig {
        slots,
        retries_max: 1,
        retry_delay: Duration::from_secs(10),
        halting: HaltPolicy {
            failures: 3,
            wait: Duration::from_secs(5),
        },
        open_max: OPEN_MAX,
        tuning: TuningPolicy::default(),
        tape: tape::policy(),
    }
}

fn new_job(kind: JobKind, seed: u128, files: u8, from: u8, to: u8) -> NewJob {
    let url = |side: &str, host: u8, index: u8| {
        FileUrl::parse(&format!("https://{side}{host}/{seed}/{index}")).expect("valid")
    };
    // Few names, so that jobs often go to the same places.
    let target = |index| format!("https://d{}/{}/{index}", to % 3, seed % 5);
    let transfer = |index| NewTransfer {
        source: match kind {
            JobKind::Independent | JobKind::Session | JobKind::Hops => url("s", from % 3, index),
            JobKind::Replicas(_) => url("s", (from % 3).wrapping_add(index) % 3, index),
        },
        tape: None,
        destination: FileUrl::parse(&target(match kind {
            JobKind::Independent | JobKind::Session | JobKind::Hops => index,
            JobKind::Replicas(_) => 0,
        }))
        .expect("valid"),
        size: None,
        checksum: None,
        checksum_algorithm: ChecksumAlgorithm::Adler32,
        activity: Activity::new("default"),
        scitag: None,
        metadata: Default::default(),
        source_credential: None,
        destination_credential: None,
        source_query: None,
        destination_query: None,
    };
    NewJob {
        id: JobId(Uuid::from_u128(seed)),
        user: UserName::new("alice"),
        vo: VoName::new(if seed.is_multiple_of(2) {
            "cms"
        } else {
            "atlas"
        }),
        delegation: penstock_model::CredentialId::new("d"),
        parameters: JobParameters {
            kind,
            overwrite: Overwrite::Never,
            ..JobParameters::default()
        },
        transfers: (0..files.max(1)).map(transfer).collect(),
        tokens: Vec::new(),
    }
}

fn failure(retry: Retry) -> Failure {
    let detail = "a test says so".to_owned();
    Failure {
        side: Side::Source,
        retry,
        concern: Concern::Link,
        phase: Phase::Transfer,
        errno: Errno::EIO,
        detail,
        found: None,
        busy: None,
        code: None,
    }
}

fn landed() -> AttemptOutcome {
    AttemptOutcome::Landed {
        size: Bytes(1),
        mode: Some(CopyMode::Pull),
        report: Box::default(),
    }
}

/// An engine with its journal and its agents, as a process would hold them.
struct World {
    engine: Engine,
    journal: MemoryJournal,
    now: Now,
    agents: BTreeMap<TransferId, Assignment>,
    stopping: Vec<TransferId>,
    told: Vec<(LinkId, LinkNotice)>,
    given_over: Vec<TransferId>,
    answers: BTreeMap<u64, Reply>,
    bans: BTreeMap<BanTarget, StorageBan>,
    locked_out: BTreeSet<String>,
    /// Tokens that issuers are asked about.
    asked: BTreeSet<CredentialId>,
    /// Tokens about which they said no, the last time.
    denied: BTreeSet<CredentialId>,
    replies: u64,
    jobs: u128,
    library: tape::Library,
}

/// Each event but two kinds has its group.
fn check_groups(effects: &Effects) {
    let grouped = effects.records.iter().filter(|record| match record {
        Record::Happened { event, .. } => {
            !matches!(event, TransferEvent::Submitted | TransferEvent::NotNeeded)
        }
        _ => false,
    });
    assert_eq!(grouped.count(), effects.groups.len());
}

impl World {
    fn new() -> World {
        let now = Now {
            at: Timestamp(1_000),
            monotonic_us: 0,
        };
        let (engine, first) = Engine::restore(config(), RestartFacts::default(), now).finish();
        assert_eq!(first, Effects::default());
        World {
            engine,
            journal: MemoryJournal::default(),
            now,
            agents: BTreeMap::new(),
            stopping: Vec::new(),
            told: Vec::new(),
            given_over: Vec::new(),
            answers: BTreeMap::new(),
            bans: BTreeMap::new(),
            locked_out: BTreeSet::new(),
            asked: BTreeSet::new(),
            denied: BTreeSet::new(),
            replies: 0,
            jobs: 0,
            library: tape::Library::default(),
        }
    }

    fn feed(&mut self, input: Input) {
        let effects = self.engine.handle(self.now, input);
        self.perform(effects);
    }

    /// Persist, then act, as the driver does.
    fn perform(&mut self, effects: Effects) {
        check_groups(&effects);
        self.journal
            .append(&effects.records)
            .expect("the journal has room");
        for action in effects.actions {
            match action {
                Action::Order { order, .. } => self.follow_order(order),
                Action::Lost { .. } => panic!("there are no other nodes"),
                Action::PrepareToken(id) => self.prepare_token(id),
                Action::Tape(call) => self.take_call(call),
                Action::RemoveSource { number, assignment } => {
                    self.take_removal(number, *assignment)
                }
                Action::LockOut(users) => self.locked_out = users,
                Action::Tell { link, notice } => self.told.push((link, notice)),
                Action::GiveOver { request, .. } => self.given_over.push(request.id),
                Action::Publish(settings) => {
                    let found = self.journal.load_standing().expect("readable");
                    assert_eq!(
                        found.settings, *settings,
                        "what is shown is what is durable"
                    );
                }
                Action::Reply { to, reply } => {
                    self.answers.insert(to.0, reply);
                }
                Action::RenewAtIssuer { .. } => panic!("nobody asks for that here"),
            }
        }
        self.check_limits();
        self.check_waiting_groups();
    }

    /// What waits by VO and activity adds up to the queues of the links.
    fn check_waiting_groups(&self) {
        let mut of_links: BTreeMap<LinkId, u64> = BTreeMap::new();
        for (group, count) in self.engine.waiting_groups() {
            assert!(count > 0, "{group:?}");
            *of_links.entry(group.link.clone()).or_default() += count;
        }
        let queued = self.engine.links().filter(|view| view.queued > 0);
        let queued: BTreeMap<LinkId, u64> = queued.map(|view| (view.link, view.queued)).collect();
        assert_eq!(of_links, queued);
    }

    fn follow_order(&mut self, order: Order) {
        match order {
            Order::Start(assignment) => {
                self.check_ban(&assignment);
                self.check_tokens(&assignment);
                self.check_is_on_disk(&assignment);
                let before = self.agents.insert(assignment.request.id, *assignment);
                assert!(before.is_none(), "two attempts of one transfer ran at once");
            }
            Order::Proceed { transfer, attempt } => {
                assert_eq!(self.agents[&transfer].attempt, attempt)
            }
            Order::Stop { transfer, attempt } => {
                assert_eq!(self.agents[&transfer].attempt, attempt);
                self.stopping.push(transfer);
            }
            Order::Forget { .. } | Order::Abandon { .. } => panic!("there are no other nodes"),
        }
    }

    fn check_limits(&self) {
        let mut destinations = std::collections::BTreeSet::new();
        for assignment in self.agents.values() {
            let destination = assignment.request.destination.as_str();
            assert!(destinations.insert(destination), "two write {destination}");
        }
        let mut links: BTreeMap<LinkId, u32> = BTreeMap::new();
        let mut into: BTreeMap<penstock_model::StorageId, u32> = BTreeMap::new();
        let copies = self.agents.values().filter(|of| of.task == Task::Copy);
        for assignment in copies {
            let link = assignment.request.link();
            *into.entry(link.destination.clone()).or_default() += 1;
            *links.entry(link).or_default() += 1;
        }
        assert!(
            links.values().all(|count| *count <= LINK_LIMIT),
            "{links:?}"
        );
        assert!(
            into.values().all(|count| *count <= STORAGE_LIMIT),
            "{into:?}"
        );
    }

    fn reply(&mut self) -> ReplyId {
        self.replies += 1;
        ReplyId(self.replies)
    }

    fn submit(&mut self, files: u8, from: u8, to: u8) -> JobId {
        self.submit_kind(JobKind::Independent, files, from, to)
    }

    fn submit_kind(&mut self, kind: JobKind, files: u8, from: u8, to: u8) -> JobId {
        self.jobs += 1;
        let mut job = new_job(kind, self.jobs, files, from, to);
        if self.jobs.is_multiple_of(4) {
            job.parameters.expires_at = Some(self.now.at + Duration::from_secs(100));
        }
        if self.library.is_in_use {
            tape::put_on_tape(&mut job, self.jobs);
        }
        self.submit_job(job)
    }

    fn submit_job(&mut self, job: NewJob) -> JobId {
        let (id, reply) = (job.id, self.reply());
        self.feed(Input::of_request(Submit(Box::new(job)), reply));
        match &self.answers[&reply.0] {
            Reply::StorageBanned(storage) => {
                let host = |target: &&BanTarget| matches!(target, BanTarget::Storage { host, .. } if host == storage.host());
                assert!(self.bans.keys().any(|target| host(&target)), "{storage}");
            }
            answer => assert_eq!(*answer, Reply::Accepted(id)),
        }
        id
    }

    fn end(&mut self, transfer: TransferId, outcome: AttemptOutcome) {
        if let Some(assignment) = self.agents.remove(&transfer) {
            let outcome = match assignment.task {
                Task::Copy => outcome,
                Task::TidyUp | Task::RemoveSource => AttemptOutcome::Tidied,
            };
            self.feed(Input::Agent(AgentReport::Ended {
                transfer,
                attempt: assignment.attempt,
                outcome,
            }));
        }
    }

    fn nth_agent(&self, nth: usize) -> Option<TransferId> {
        self.agents
            .keys()
            .nth(nth.checked_rem(self.agents.len()).unwrap_or(0))
            .copied()
    }

    /// The process dies: its agents with it. The next one finds what was durable.
    fn nth_job(&self, nth: u8) -> JobId {
        JobId(Uuid::from_u128(u128::from(nth) % self.jobs.max(1) + 1))
    }

    fn check_priorities(&self) {
        for (job, _) in self.journal.jobs() {
            if let Some(entry) = self.engine.jobs.get(&job.id) {
                assert_eq!(
                    entry.parameters().priority,
                    job.parameters.priority,
                    "a restart would go on with the priority that is shown now"
                );
            }
        }
    }

    fn crash(&mut self) {
        self.agents.clear();
        self.stopping.clear();
        self.asked.clear();
        self.library.forget_calls();
        let (engine, effects) =
            continue_from(&mut self.journal, config(), LeadershipMode::Alone, self.now);
        self.engine = engine;
        self.perform(effects);
    }

    fn sleep(&mut self, seconds: u64) {
        self.now.at = self.now.at + Duration::from_secs(seconds);
        self.feed(Input::Tick);
    }

    /// Lets everything end well.
    fn settle(&mut self) {
        self.lift_all();
        self.answer_all();
        for _ in 0..10_000 {
            for transfer in std::mem::take(&mut self.stopping) {
                self.end(transfer, AttemptOutcome::Stopped);
            }
            match (self.nth_agent(0), self.library.first_call()) {
                (_, Some(call)) => self.answer_well(call),
                (Some(transfer), None) => self.end(transfer, landed()),
                (None, None) if self.engine.open_transfers() > 0 => self.sleep_until_due(),
                (None, None) => return,
            }
        }
        panic!("{} transfers never end", self.engine.open_transfers());
    }

    fn check_record(&self) {
        check_record_of(&self.journal);
        assert_eq!(self.owed(), 0);
    }

    /// How much is to be looked after at destinations of transfers that have ended.
    fn owed(&self) -> usize {
        let found = self.journal.clone().load_standing().expect("readable");
        found.tidyings.len()
    }
}

/// The ledger and the states tell one story, in which everything ends once.
fn check_record_of(journal: &MemoryJournal) {
    let mut states: BTreeMap<TransferId, TransferState> = BTreeMap::new();
    let firsts: BTreeMap<TransferId, TransferState> = journal
        .jobs()
        .flat_map(|(job, _)| {
            let first = job.parameters.first_state(job.submitted_at);
            let transfers = job.transfers.iter();
            transfers.map(move |request| (request.id, first.clone()))
        })
        .collect();
    let mut landings: BTreeMap<TransferId, u32> = BTreeMap::new();
    for (at, transfer, event) in journal.ledger() {
        if matches!(event, TransferEvent::Submitted) {
            let before = states.insert(*transfer, firsts[transfer].clone());
            assert!(before.is_none(), "{transfer} was submitted twice");
            continue;
        }
        let state = states.get(transfer).expect("submitted first");
        let next = advance(state, *at, event).expect("the ledger holds only valid transitions");
        states.insert(*transfer, next);
        if matches!(event, TransferEvent::Landed { .. }) {
            *landings.entry(*transfer).or_default() += 1;
        }
    }
    assert!(
        landings.values().all(|count| *count == 1),
        "counted twice: {landings:?}"
    );
    for (transfer, state) in &states {
        assert_eq!(
            journal.state(*transfer),
            Some(state),
            "the ledger and the state tell one story"
        );
    }
    for (job, ended) in journal.jobs() {
        let states: Vec<_> = job
            .transfers
            .iter()
            .map(|request| &states[&request.id])
            .collect();
        assert_eq!(
            job_state(job.parameters.kind, states).is_terminal(),
            ended,
            "a job ends with its last file, and only then"
        );
    }
}

#[test]
fn a_job_that_would_take_too_much_memory_is_not_accepted_and_leaves_nothing() {
    let mut world = World::new();
    let files = 200;
    for number in 0..OPEN_MAX / usize::from(files) {
        let mut job = new_job(JobKind::Independent, number as u128, files, 1, 2);
        job.user = UserName::new(format!("user{}", number % 10));
        world.submit_job(job);
    }
    let job = new_job(JobKind::Independent, 999_999, 1, 1, 2);
    let reply = world.reply();
    world.feed(Input::of_request(Submit(Box::new(job)), reply));
    assert_eq!(world.answers[&reply.0], Reply::NoRoom(OPEN_MAX));
    assert_eq!(world.engine.open_transfers(), OPEN_MAX);
    let agent = world.nth_agent(0).expect("something runs");
    world.end(agent, landed());
    let mut job = new_job(JobKind::Independent, 999_998, 1, 1, 2);
    job.vo = VoName::new("ops");
    world.submit_job(job);
}

#[test]
fn a_limit_that_is_set_acts_on_the_queue_and_outlives_a_crash_and_a_reload() {
    use penstock_decide::settings::{
        LinkRuleRequest, SettingRefusal, SettingRequest, SettingRequester,
    };
    let mut world = World::new();
    let set = |world: &mut World, slots_max: u32, is_admin: bool| {
        let reply = world.reply();
        let wish = SettingRequest::SetLink(LinkRuleRequest {
            name: "all".into(),
            slots_max: Some(Slots(slots_max)),
            ..LinkRuleRequest::default()
        });
        world.feed(Input::of_request(
            ChangeSetting {
                wish: Box::new(wish),
                asker: SettingRequester {
                    names: vec!["alice".into()],
                    is_admin,
                },
                user: UserName::new("alice"),
            },
            reply,
        ));
        world.answers[&reply.0].clone()
    };
    assert!(matches!(set(&mut world, 1, true), Reply::Set(changes) if changes.len() == 1));
    world.submit(3, 0, 0);
    assert_eq!(world.agents.len(), 1);
    let refused = Reply::Refused(SettingRefusal::NotManagerOfEnd(
        StorageId::new("*"),
        StorageId::new("*"),
    ));
    assert_eq!(set(&mut world, 2, false), refused);
    assert_eq!(world.agents.len(), 1);
    world.crash();
    world.feed(Input::Configure(Box::new(config())));
    assert_eq!(world.agents.len(), 1, "the file allows {LINK_LIMIT}");
    assert!(matches!(set(&mut world, 2, true), Reply::Set(_)));
    assert_eq!(world.agents.len(), 2, "no other input was needed");
    assert_eq!(set(&mut world, 2, true), Reply::Set(Vec::new()));
    world.settle();
}

#[derive(Debug, Clone)]
enum Step {
    Submit {
        kind: JobKind,
        files: u8,
        from: u8,
        to: u8,
    },
    Land(usize),
    Prepare(usize),
    Fail(usize, bool, bool),
    Cancel(u8),
    Prioritise(u8, i64),
    Stopped,
    Sleep(u8),
    Ban {
        at_source: bool,
        host: u8,
        vo: Option<bool>,
        effect: BanEffect,
        patience: Option<u8>,
    },
    Lift(usize),
    Token(usize, bool),
    Tape(usize, u8),
    Crash,
}

fn kind() -> impl Strategy<Value = JobKind> {
    prop_oneof![
        Just(JobKind::Independent),
        Just(JobKind::Session),
        (0..Selection::ALL.len()).prop_map(|at| JobKind::Replicas(Selection::ALL[at])),
        Just(JobKind::Hops),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (kind(), 1..5u8, any::<u8>(), any::<u8>())
            .prop_map(|(kind, files, from, to)| Step::Submit { kind, files, from, to }),
        6 => any::<usize>().prop_map(Step::Land),
        3 => any::<usize>().prop_map(Step::Prepare),
        3 => (any::<usize>(), any::<bool>(), any::<bool>()).prop_map(|(n, retry, clean)| Step::Fail(n, retry, clean)),
        1 => any::<u8>().prop_map(Step::Cancel),
        1 => (any::<u8>(), 1..=5i64).prop_map(|(job, priority)| Step::Prioritise(job, priority)),
        2 => Just(Step::Stopped),
        2 => any::<u8>().prop_map(Step::Sleep),
        1 => bans::step(),
        1 => any::<usize>().prop_map(Step::Lift),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(nth, given)| Step::Token(nth, given)),
        6 => (any::<usize>(), any::<u8>()).prop_map(|(nth, how)| Step::Tape(nth, how)),
        1 => Just(Step::Crash),
    ]
}

impl World {
    fn take(&mut self, step: Step) {
        match step {
            Step::Submit {
                kind,
                files,
                from,
                to,
            } if to.is_multiple_of(3) => drop(self.submit_with_tokens(kind, files, from)),
            Step::Submit {
                kind,
                files,
                from,
                to,
            } => drop(self.submit_kind(kind, files, from, to)),
            Step::Land(nth) => {
                if let Some(transfer) = self.nth_agent(nth) {
                    self.end(transfer, landed());
                }
            }
            Step::Prepare(nth) => {
                if let Some(transfer) = self.nth_agent(nth) {
                    let attempt = self.agents[&transfer].attempt;
                    let (size, checksum, replaces) = (Some(Bytes(1)), None, false);
                    self.feed(Input::Agent(AgentReport::Prepared {
                        transfer,
                        attempt,
                        preflight: Preflight {
                            size,
                            checksum,
                            replaces,
                        },
                    }));
                }
            }
            Step::Fail(nth, again, cleaned) => {
                if let Some(transfer) = self.nth_agent(nth) {
                    let retry = if again { Retry::Later } else { Retry::Never };
                    self.end(
                        transfer,
                        AttemptOutcome::Failed {
                            failure: failure(retry),
                            cleaned,
                            moved: Bytes(0),
                        },
                    );
                }
            }
            Step::Cancel(nth) => {
                let job = self.nth_job(nth);
                let reply = self.reply();
                self.feed(Input::of_request(
                    Cancel {
                        job,
                        transfers: None,
                        reason: "test".into(),
                    },
                    reply,
                ));
                assert!(
                    self.answers.contains_key(&reply.0),
                    "every request is answered"
                );
            }
            Step::Prioritise(nth, priority) => {
                let (job, reply) = (self.nth_job(nth), self.reply());
                let priority = Priority::clamped(priority);
                self.feed(Input::of_request(Reprioritise { job, priority }, reply));
                self.check_priorities();
            }
            Step::Stopped => {
                for transfer in std::mem::take(&mut self.stopping) {
                    self.end(transfer, AttemptOutcome::Stopped);
                }
            }
            Step::Sleep(seconds) => self.sleep(seconds.into()),
            Step::Ban {
                at_source,
                host,
                vo,
                effect,
                patience,
            } => {
                let side = if at_source { "s" } else { "d" };
                let storage = format!("davs://{side}{}", host % 3);
                let vo = vo.map(|even| if even { "cms" } else { "atlas" });
                self.ban(&storage, vo, effect, patience.map(u64::from));
            }
            Step::Lift(nth) => self.lift_nth(nth),
            Step::Token(nth, given) => self.answer_nth(nth, given),
            Step::Tape(nth, how) => self.answer_call(nth, how),
            Step::Crash => self.crash(),
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_every_transfer_ends_exactly_once(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        world.library.is_in_use = true;
        for step in steps {
            world.take(step);
        }
        world.settle();
        world.check_record();
        assert!(world.journal.jobs().all(|(_, ended)| ended));
        assert_eq!(world.engine.agents().active, Slots(0), "every slot is free again");
        let at_tape = world.engine.staging() + world.engine.archiving();
        assert_eq!(at_tape, 0, "nobody waits for tape any more");
    }
}

#[test]
fn a_failed_file_waits_says_why_and_is_tried_again() {
    let mut world = World::new();
    world.submit(1, 0, 0);
    let transfer = world.nth_agent(0).expect("started at once");
    world.end(
        transfer,
        AttemptOutcome::Failed {
            failure: failure(Retry::Later),
            cleaned: true,
            moved: Bytes(0),
        },
    );
    assert!(world.agents.is_empty());
    let reason = world.engine.why_waiting(transfer, world.now.at);
    assert!(
        matches!(reason, Some(WaitReason::BackingOff { failures: 1, .. })),
        "{reason:?}"
    );
    let wake = world.engine.wake_at().expect("a retry is due");
    assert!(wake > world.now.at && wake <= world.now.at + Duration::from_secs(13));
    world.sleep(13);
    assert_eq!(world.agents[&transfer].attempt, Attempt(2));
    world.end(
        transfer,
        AttemptOutcome::Failed {
            failure: failure(Retry::Later),
            cleaned: true,
            moved: Bytes(0),
        },
    );
    assert!(
        world.journal.jobs().all(|(_, ended)| ended),
        "one retry was allowed"
    );
}

#[test]
fn a_canceled_transfer_keeps_its_slot_until_its_agent_has_ended() {
    let mut world = World::new();
    let job = world.submit(4, 0, 0);
    let reply = world.reply();
    world.feed(Input::of_request(
        Cancel {
            job,
            transfers: None,
            reason: "test".into(),
        },
        reply,
    ));
    assert_eq!(world.engine.agents().active, Slots(2));
    world.submit(1, 0, 0);
    assert_eq!(
        world.agents.len(),
        2,
        "nothing starts before the slots are proven free"
    );
    world.settle();
    world.check_record();
}

#[test]
fn files_of_a_vo_without_a_share_fail_when_that_is_set_and_later_and_after_a_restart() {
    use penstock_decide::settings::{SettingRequest, SettingRequester};
    use penstock_model::{VoShare, Weight};
    let mut world = World::new();
    let share = |world: &mut World, vo: &str, weight: u32| {
        let any = || StorageId::new(penstock_model::ANY);
        let ends = LinkId {
            source: any(),
            destination: any(),
        };
        let share = VoShare {
            ends,
            vo: VoName::new(vo),
            weight: Weight::whole(weight),
        };
        let asker = SettingRequester {
            names: vec![],
            is_admin: true,
        };
        let reply = world.reply();
        world.feed(Input::of_request(
            ChangeSetting {
                wish: Box::new(SettingRequest::SetVoShare(share)),
                asker,
                user: UserName::new("admin"),
            },
            reply,
        ));
    };
    // Even seeds are jobs of cms, odd ones of atlas.
    let (cms, atlas) = (100, 101);
    for seed in [cms, atlas] {
        world.submit_job(new_job(JobKind::Independent, seed, 10, 0, 0));
    }
    let open = |world: &World, seed: u128| {
        let job = world.engine.jobs.get(&JobId(Uuid::from_u128(seed)));
        job.map_or(0, |job| job.open.len())
    };
    let running = world.agents.len();
    share(&mut world, "cms", 3);
    assert_eq!(open(&world, cms), 10);
    assert!(open(&world, atlas) <= running, "only what runs goes on");
    let failed = world
        .journal
        .ledger()
        .iter()
        .filter_map(|(_, _, event)| match event {
            TransferEvent::Refused { failure } => Some(failure.to_string()),
            _ => None,
        });
    let failed: BTreeSet<String> = failed.collect();
    assert_eq!(
        failed,
        BTreeSet::from(["GENERAL_FAILURE [1] No share configured for this VO".to_owned()])
    );
    let later = 103;
    world.submit_job(new_job(JobKind::Independent, later, 5, 1, 1));
    assert_eq!(open(&world, later), 0);
    share(&mut world, "public", 1);
    world.submit_job(new_job(JobKind::Independent, later + 2, 5, 1, 1));
    assert_eq!(open(&world, later + 2), 5);
    share(&mut world, "public", 0);
    assert_eq!(
        open(&world, later + 2),
        world
            .agents
            .values()
            .filter(|of| of.job.0.as_u128() == later + 2)
            .count()
    );
    world.crash();
    assert_eq!(
        open(&world, later + 2),
        0,
        "what ran is lost, and may not start again"
    );
    world.settle();
    world.check_record();
}

#[test]
fn everything_of_a_vo_is_stopped_part_by_part_and_counted_once() {
    let mut world = World::new();
    for seed in 100..160 {
        world.submit_job(new_job(JobKind::Independent, seed, 200, 0, 0));
    }
    let stop = |world: &mut World, vo: Option<&str>| {
        let reply = world.reply();
        world.feed(Input::of_request(
            CancelAll {
                vo: vo.map(VoName::new),
                reason: "enough".to_owned(),
            },
            reply,
        ));
        match world.answers[&reply.0] {
            Reply::Canceled(stopped) => stopped,
            ref other => panic!("{other:?}"),
        }
    };
    let of = |jobs, transfers| StoppedCount { jobs, transfers };
    assert_eq!(stop(&mut world, Some("nobody")), of(0, 0));
    assert_eq!(stop(&mut world, Some("cms")), of(30, 6000));
    assert_eq!(stop(&mut world, Some("cms")), of(0, 0));
    assert_eq!(stop(&mut world, None), of(30, 6000));
    assert_eq!(world.engine.open_transfers(), 0);
    for seed in 200..260 {
        world.submit_job(new_job(JobKind::Independent, seed, 200, 0, 0));
    }
    assert_eq!(
        stop(&mut world, None),
        of(50, 10_000),
        "one transaction must not hold all"
    );
    assert_eq!(stop(&mut world, None), of(10, 2000));
    world.settle();
    world.check_record();
}

#[test]
fn of_two_transfers_to_one_destination_the_second_waits_for_the_end_of_the_first() {
    let mut world = World::new();
    let (first, second) = (world.submit(1, 0, 0), 6);
    let mut again = new_job(JobKind::Independent, second, 1, 1, 0);
    again.transfers[0].destination = FileUrl::parse("davs://d0:8443/1//0").expect("valid");
    let reply = world.reply();
    world.feed(Input::of_request(Submit(Box::new(again)), reply));
    let (running, waiting) = (world.nth_agent(0).expect("runs"), TransferId(2));
    assert_eq!(world.agents.len(), 1);
    let reason = world.engine.why_waiting(waiting, world.now.at);
    assert_eq!(
        reason,
        Some(WaitReason::SameDestination { before: running })
    );
    // Canceled, its agent may still remove what it had begun to write.
    let reply = world.reply();
    world.feed(Input::of_request(
        Cancel {
            job: first,
            transfers: None,
            reason: "test".into(),
        },
        reply,
    ));
    assert!(!world.agents.contains_key(&waiting));
    world.end(running, AttemptOutcome::Stopped);
    assert!(world.agents.contains_key(&waiting));
    world.settle();
    world.check_record();
}

#[test]
fn an_attempt_that_was_let_go_on_is_unsettled_after_a_crash() {
    let mut world = World::new();
    world.submit(2, 0, 0);
    let (first, second) = (
        world.nth_agent(0).expect("runs"),
        world.nth_agent(1).expect("runs"),
    );
    let (size, checksum, replaces) = (Some(Bytes(1)), None, false);
    world.feed(Input::Agent(AgentReport::Prepared {
        transfer: first,
        attempt: Attempt(1),
        preflight: Preflight {
            size,
            checksum,
            replaces,
        },
    }));
    world.crash();
    assert!(world.agents[&first].unsettled, "bytes may have moved");
    assert!(
        !world.agents[&second].unsettled,
        "nothing had been allowed to move"
    );
    assert_eq!(world.agents[&first].attempt, Attempt(2));
}

/// A world in which an attempt of unknown outcome has been, and a second transfer waits for its destination.
fn world_with_something_left() -> (World, JobId, TransferId, TransferId) {
    let mut world = World::new();
    let job = world.submit(1, 0, 0);
    let first = world.nth_agent(0).expect("runs");
    world.feed(Input::Agent(AgentReport::Prepared {
        transfer: first,
        attempt: Attempt(1),
        preflight: Preflight {
            size: Some(Bytes(1)),
            checksum: None,
            replaces: false,
        },
    }));
    let mut again = new_job(JobKind::Independent, 6, 1, 1, 0);
    again.transfers[0].destination = world.agents[&first].request.destination.clone();
    world.jobs = 6;
    world.submit_job(again);
    (world, job, first, TransferId(2))
}

fn cancel(world: &mut World, job: JobId) {
    let reply = world.reply();
    world.feed(Input::of_request(
        Cancel {
            job,
            transfers: None,
            reason: "test".into(),
        },
        reply,
    ));
    assert_eq!(world.answers[&reply.0], Reply::Done);
}

#[test]
fn what_an_interrupted_attempt_left_is_tidied_up_after_a_cancel_before_others_write_there() {
    // While the next attempt runs, which may not have come to look.
    let (mut world, job, first, second) = world_with_something_left();
    world.crash();
    assert_eq!(world.agents[&first].task, Task::Copy);
    cancel(&mut world, job);
    assert_eq!(world.stopping, [first]);
    world.stopping.clear();
    world.end(first, AttemptOutcome::Stopped);
    assert_eq!(world.agents[&first].task, Task::TidyUp);
    assert!(!world.agents.contains_key(&second));
    world.end(first, AttemptOutcome::Stopped);
    assert!(world.agents.contains_key(&second));
    world.settle();
    world.check_record();

    // While it waits for its next attempt.
    let (mut world, job, first, second) = world_with_something_left();
    let failed = AttemptOutcome::Failed {
        failure: failure(Retry::Later),
        cleaned: false,
        moved: Bytes(0),
    };
    world.end(first, failed);
    assert!(world.agents.is_empty());
    cancel(&mut world, job);
    assert_eq!(world.agents[&first].task, Task::TidyUp);
    assert_eq!(world.engine.agents().active, Slots(0), "it holds no slot");
    assert!(!world.agents.contains_key(&second));
    world.end(first, AttemptOutcome::Stopped);
    assert!(world.agents.contains_key(&second));
    world.settle();
    world.check_record();
}

#[test]
fn what_was_to_be_tidied_up_when_the_process_died_is_tidied_up_by_the_next() {
    // While the agent stops that might have cleaned up after itself.
    let (mut world, job, first, second) = world_with_something_left();
    cancel(&mut world, job);
    assert_eq!((world.owed(), &*world.stopping), (1, &[first][..]));
    world.crash();
    assert_eq!(world.agents[&first].task, Task::TidyUp);
    assert!(!world.agents.contains_key(&second));
    // While it is tidied up, again and again.
    for _ in 0..2 {
        world.crash();
        assert_eq!(world.agents[&first].task, Task::TidyUp);
        assert!(!world.agents.contains_key(&second));
    }
    world.end(first, AttemptOutcome::Tidied);
    assert!(world.agents.contains_key(&second));
    assert_eq!(world.owed(), 0);
    world.crash();
    assert!(!world.agents.contains_key(&first), "once is enough");
    world.settle();
    world.check_record();

    // It did clean up after itself.
    let (mut world, job, first, second) = world_with_something_left();
    cancel(&mut world, job);
    world.stopping.clear();
    world.end(first, AttemptOutcome::Stopped);
    assert!(world.agents.contains_key(&second));
    world.settle();
    world.check_record();
}

#[test]
fn what_an_attempt_left_that_failed_for_good_is_tidied_up_before_others_write_there() {
    let (mut world, _, first, second) = world_with_something_left();
    let failed = AttemptOutcome::Failed {
        failure: failure(Retry::Never),
        cleaned: false,
        moved: Bytes(0),
    };
    world.end(first, failed);
    assert_eq!(world.agents[&first].task, Task::TidyUp);
    assert!(world.agents[&first].unsettled);
    assert!(!world.agents.contains_key(&second));
    world.end(first, AttemptOutcome::Stopped);
    assert!(world.agents.contains_key(&second));
    world.settle();
    world.check_record();
}

#[test]
fn a_back_off_that_ended_while_nobody_led_is_over_at_once() {
    let mut world = World::new();
    world.submit(1, 0, 0);
    let transfer = world.nth_agent(0).expect("runs");
    let failed = AttemptOutcome::Failed {
        failure: failure(Retry::Later),
        cleaned: true,
        moved: Bytes(0),
    };
    world.end(transfer, failed);
    assert!(world.agents.is_empty());
    world.now.at = world.now.at + Duration::from_secs(3600);
    world.crash();
    assert!(world.agents.contains_key(&transfer));
}

#[test]
fn nothing_is_tidied_up_after_a_transfer_that_left_nothing() {
    let (mut world, job, first, second) = world_with_something_left();
    let failed = AttemptOutcome::Failed {
        failure: failure(Retry::Later),
        cleaned: true,
        moved: Bytes(0),
    };
    world.end(first, failed);
    cancel(&mut world, job);
    assert_eq!(world.agents.keys().collect::<Vec<_>>(), [&second]);
}

#[test]
fn a_job_that_may_not_wait_any_longer_fails_with_the_reason() {
    let mut world = World::new();
    let mut job = new_job(JobKind::Independent, 77, 3, 0, 0);
    job.parameters.expires_at = Some(world.now.at + Duration::from_secs(60));
    let reply = world.reply();
    world.feed(Input::of_request(Submit(Box::new(job)), reply));
    world.sleep(61);
    let waiting = world
        .journal
        .ledger()
        .iter()
        .filter(|(_, _, event)| matches!(event, TransferEvent::Expired { .. }));
    assert_eq!(waiting.count(), 1, "the two that run may end");
    world.settle();
    world.check_record();
}

#[test]
fn a_link_whose_files_all_fail_alike_is_halted_and_opened_by_one_that_arrives() {
    let mut world = World::new();
    world.submit(12, 0, 0);
    for _ in 0..3 {
        let transfer = world.nth_agent(0).expect("runs");
        let failure = failure(Retry::Later);
        world.end(
            transfer,
            AttemptOutcome::Failed {
                failure,
                cleaned: true,
                moved: Bytes(0),
            },
        );
    }
    assert!(matches!(world.told[..], [(_, LinkNotice::Halted(_))]));
    // What ran when it was halted may end; nothing follows it.
    while let Some(transfer) = world.nth_agent(0) {
        world.end(transfer, AttemptOutcome::Stopped);
    }
    let waiting = *world.engine.transfers.keys().max().expect("open");
    let reason = world.engine.why_waiting(waiting, world.now.at);
    assert!(
        matches!(reason, Some(WaitReason::LinkHalted { failures: 3, .. })),
        "{reason:?}"
    );

    world.sleep(6);
    assert_eq!(world.agents.len(), 1, "one is tried");
    let tried = world.nth_agent(0).expect("runs");
    world.end(
        tried,
        AttemptOutcome::Failed {
            failure: Failure {
                concern: Concern::Request,
                ..failure(Retry::Never)
            },
            cleaned: true,
            moved: Bytes(0),
        },
    );
    assert_eq!(
        world.agents.len(),
        1,
        "a file's own fault tells nothing: another is tried"
    );
    let tried = world.nth_agent(0).expect("runs");
    world.end(tried, landed());
    assert!(matches!(world.told[..], [_, (_, LinkNotice::Reopened)]));
    assert_eq!(world.agents.len(), LINK_LIMIT as usize);
    world.settle();
    world.check_record();
}

/// A job of so many files on the link of [`World::submit`], of a user of a VO.
fn job_of(world: &mut World, vo: &str, files: u8) -> JobId {
    world.jobs += 1;
    let mut job = NewJob {
        user: UserName::new(format!("{vo}-user")),
        vo: VoName::new(vo),
        ..new_job(JobKind::Independent, world.jobs * 4 + 1, files, 0, 0)
    };
    for (at, transfer) in job.transfers.iter_mut().enumerate() {
        let url = format!("https://d0/{vo}/{}/{at}", world.jobs);
        transfer.destination = FileUrl::parse(&url).expect("valid");
    }
    world.submit_job(job)
}

/// Every running file of this VO fails so.
fn fail_all_of(world: &mut World, vo: &str, failure: &Failure) -> usize {
    let of_vo = world.agents.iter().filter(|(_, of)| of.vo.as_str() == vo);
    let ids: Vec<TransferId> = of_vo.map(|(id, _)| *id).collect();
    for id in &ids {
        let outcome = AttemptOutcome::Failed {
            failure: failure.clone(),
            cleaned: true,
            moved: Bytes(0),
        };
        world.end(*id, outcome);
    }
    ids.len()
}

#[test]
fn a_thousand_mistakes_of_one_vo_halt_nothing_and_run_out_while_the_others_files_arrive() {
    let mistake = Failure {
        side: Side::Destination,
        concern: Concern::Request,
        errno: Errno::EAGAIN,
        ..failure(Retry::Later)
    };
    let mut world = World::new();
    let bad: Vec<JobId> = (0..5)
        .map(|_| job_of(&mut world, "hopeless", 200))
        .collect();
    let good = job_of(&mut world, "lab", 40);
    let (mut order, mut failed) = (Vec::new(), 0);
    for _ in 0..20_000 {
        // What is hopeless fails in no time; a good file takes six seconds.
        if fail_all_of(&mut world, "hopeless", &mistake) > 0 {
            failed += 1;
            continue;
        }
        match world.nth_agent(0) {
            Some(transfer) => {
                world.now.monotonic_us += 6_000_000;
                world.sleep(6);
                world.end(transfer, landed());
                order.push(failed);
            }
            None if world.engine.open_transfers() > 0 => world.sleep_until_due(),
            None => break,
        }
    }
    assert!(world.told.is_empty(), "nothing was halted");
    assert_eq!(states(&world, good), vec!["FINISHED"; 40]);
    for job in bad {
        assert_eq!(states(&world, job), vec!["FAILED"; 200]);
    }
    // As long as a good file waited, of each two starts one was a good file's. While the last one ran, the other slot was
    // the others' alone.
    let while_one_waited = order.iter().rev().nth(1).copied();
    assert!(
        while_one_waited.is_some_and(|failed| failed <= 80),
        "{order:?}"
    );
    world.check_record();
}

#[test]
fn a_link_that_one_vo_halted_alone_is_tried_at_once_for_another() {
    let mut world = World::new();
    job_of(&mut world, "refused", 12);
    while !matches!(world.told[..], [.., (_, LinkNotice::Halted(_))]) {
        assert!(fail_all_of(&mut world, "refused", &failure(Retry::Later)) > 0);
    }
    fail_all_of(&mut world, "refused", &failure(Retry::Later));
    assert!(world.agents.is_empty(), "nothing but trials starts");
    let good = job_of(&mut world, "lab", 3);
    let vos = || world.agents.values().map(|of| of.vo.as_str());
    assert_eq!(vos().collect::<Vec<_>>(), ["lab"], "without any wait");
    let tried = world.nth_agent(0).expect("runs");
    world.end(tried, landed());
    assert!(matches!(world.told[..], [.., (_, LinkNotice::Reopened)]));
    // While the other is there, one VO's failures do not halt the link again.
    let halts = world.told.len();
    for _ in 0..20 {
        fail_all_of(&mut world, "refused", &failure(Retry::Later));
    }
    assert_eq!(world.told.len(), halts);
    while states(&world, good) != ["FINISHED"; 3] {
        let of_lab = world.agents.iter().find(|(_, of)| of.vo.as_str() == "lab");
        let transfer = *of_lab.expect("its turn has come").0;
        world.end(transfer, landed());
    }
    world.settle();
    world.check_record();
}

#[test]
fn a_failure_of_a_files_own_costs_a_retry_also_on_a_halted_link() {
    let mut world = World::new();
    let job = job_of(&mut world, "lab", 4);
    while !matches!(world.told[..], [.., (_, LinkNotice::Halted(_))]) {
        assert!(fail_all_of(&mut world, "lab", &failure(Retry::Later)) > 0);
    }
    let mistake = Failure {
        concern: Concern::Credential,
        ..failure(Retry::Later)
    };
    for _ in 0..40 {
        let failed = fail_all_of(&mut world, "lab", &mistake);
        match world.engine.open_transfers() {
            0 => break,
            _ if failed == 0 => world.sleep_until_due(),
            _ => {}
        }
    }
    assert_eq!(states(&world, job), ["FAILED"; 4]);
    world.check_record();
}

/// The transfers of a job as FTS would name their states.
fn states(world: &World, job: JobId) -> Vec<&'static str> {
    let (job, _) = world
        .journal
        .jobs()
        .find(|(known, _)| known.id == job)
        .expect("known");
    let ids = job.transfers.iter().map(|request| request.id);
    ids.map(|id| world.journal.state(id).expect("known").fts_name())
        .collect()
}

fn fail(world: &mut World, side: Side, retry: Retry) {
    let transfer = world.nth_agent(0).expect("runs");
    let failure = Failure {
        side,
        ..failure(retry)
    };
    let cleaned = true;
    world.end(
        transfer,
        AttemptOutcome::Failed {
            failure,
            cleaned,
            moved: Bytes(0),
        },
    );
}

fn land(world: &mut World) {
    let transfer = world.nth_agent(0).expect("runs");
    world.end(transfer, landed());
}

#[test]
fn of_several_replicas_one_runs_at_a_time_until_one_has_arrived() {
    let mut world = World::new();
    let job = world.submit_job(new_job(JobKind::Replicas(Selection::Orderly), 1, 4, 0, 0));
    assert_eq!(
        states(&world, job),
        ["ACTIVE", "NOT_USED", "NOT_USED", "NOT_USED"]
    );
    fail(&mut world, Side::Source, Retry::Never);
    fail(&mut world, Side::Source, Retry::Later);
    assert_eq!(
        states(&world, job),
        ["FAILED", "FAILED", "ACTIVE", "NOT_USED"]
    );
    world.crash();
    land(&mut world);
    assert_eq!(
        states(&world, job),
        ["FAILED", "FAILED", "FINISHED", "NOT_USED"]
    );
    assert_eq!(world.engine.open_transfers(), 0);
    assert_eq!(world.engine.open_counts, OpenCounts::default());
    world.settle();
    world.check_record();
}

#[test]
fn no_replica_is_tried_that_would_meet_the_same_fault_at_the_destination() {
    let mut world = World::new();
    let job = world.submit_job(new_job(JobKind::Replicas(Selection::Orderly), 1, 3, 0, 0));
    fail(&mut world, Side::Destination, Retry::Never);
    assert_eq!(states(&world, job), ["FAILED", "NOT_USED", "NOT_USED"]);
    world.settle();
    world.check_record();
}

#[test]
fn the_last_replica_is_tried_again_as_its_job_allows() {
    let mut world = World::new();
    let job = world.submit_job(new_job(JobKind::Replicas(Selection::Orderly), 1, 2, 0, 0));
    fail(&mut world, Side::Source, Retry::Later);
    fail(&mut world, Side::Source, Retry::Later);
    assert_eq!(states(&world, job), ["FAILED", "SUBMITTED"]);
    world.sleep(100);
    land(&mut world);
    assert_eq!(states(&world, job), ["FAILED", "FINISHED"]);
}

#[test]
fn hops_follow_each_other_and_the_first_that_fails_ends_the_way() {
    let mut world = World::new();
    let way = world.submit_job(new_job(JobKind::Hops, 1, 3, 0, 0));
    assert_eq!(states(&world, way), ["ACTIVE", "NOT_USED", "NOT_USED"]);
    land(&mut world);
    assert_eq!(states(&world, way), ["FINISHED", "ACTIVE", "NOT_USED"]);
    world.crash();
    fail(&mut world, Side::Source, Retry::Never);
    assert_eq!(states(&world, way), ["FINISHED", "FAILED", "NOT_USED"]);
    world.settle();
    world.check_record();
}

#[test]
fn a_cancel_takes_what_is_kept_in_reserve_as_well() {
    let mut world = World::new();
    let job = world.submit_job(new_job(JobKind::Replicas(Selection::Queue), 1, 3, 0, 0));
    let reply = world.reply();
    world.feed(Input::of_request(
        Cancel {
            job,
            transfers: None,
            reason: "test".into(),
        },
        reply,
    ));
    assert_eq!(states(&world, job), ["CANCELED"; 3]);
    world.settle();
    world.check_record();
}

#[test]
fn only_the_last_hop_spares_what_is_in_its_way() {
    let mut world = World::new();
    let mut way = new_job(JobKind::Hops, 1, 2, 0, 0);
    way.parameters.overwrite = Overwrite::IntermediateHops;
    world.submit_job(way);
    let overwrite = |world: &World| {
        let transfer = world.nth_agent(0).expect("runs");
        world.agents[&transfer].parameters.overwrite
    };
    assert_eq!(overwrite(&world), Overwrite::Always);
    land(&mut world);
    assert_eq!(overwrite(&world), Overwrite::Never);
}
