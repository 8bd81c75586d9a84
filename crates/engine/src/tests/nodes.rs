//! Several nodes, of which any may die, be cut off or lead: nothing runs twice at once, nothing ends twice, no limit is
//! exceeded.

use super::*;
use penstock_model::{Epoch, NodeId, Tenure};

const TERM_US: u64 = 15_000_000;
const SILENCE: Duration = Duration::from_secs(20);
const NODE_SLOTS: u32 = 3;
const NAMES: [&str; 3] = ["a", "b", "c"];

fn name(node: usize) -> NodeId {
    NodeId::parse(NAMES[node]).expect("plain")
}

/// An agent, as its node knows it.
#[derive(Debug, Clone)]
struct Hosted {
    claim: Claim,
    is_stopping: bool,
    /// It may change what is at its destination.
    may_write: bool,
}

/// A process of the service.
#[derive(Debug, Default)]
struct Process {
    is_alive: bool,
    session: Option<u64>,
    heard_us: u64,
    agents: BTreeMap<(TransferId, Attempt), Hosted>,
    untold: BTreeMap<(TransferId, Attempt), AttemptOutcome>,
}

struct Fleet {
    engine: Option<Engine>,
    leader: usize,
    epoch: u64,
    sessions: u64,
    journal: MemoryJournal,
    now: Now,
    processes: [Process; 3],
    answers: u64,
    jobs: u128,
}

impl Fleet {
    fn new() -> Fleet {
        let now = Now {
            at: Timestamp(1_000),
            monotonic_us: 1,
        };
        let mut fleet = Fleet {
            engine: None,
            leader: 0,
            epoch: 0,
            sessions: 0,
            journal: MemoryJournal::default(),
            now,
            processes: Default::default(),
            answers: 0,
            jobs: 0,
        };
        fleet
            .processes
            .iter_mut()
            .for_each(|one| one.is_alive = true);
        fleet.lead(0);
        fleet.join(1);
        fleet.join(2);
        fleet
    }

    fn feed(&mut self, input: Input) {
        if let Some(engine) = &mut self.engine {
            let effects = engine.handle(self.now, input);
            self.perform(effects);
        }
    }

    fn perform(&mut self, effects: Effects) {
        let stored = self.journal.append(&effects.records);
        stored.expect("the journal has room");
        for action in effects.actions {
            self.act(action);
        }
        self.check();
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Order {
                node,
                session,
                order,
            } => self.follow_order(&node, session, order),
            Action::Lost { .. }
            | Action::Reply { .. }
            | Action::Publish(_)
            | Action::LockOut(_)
            | Action::GiveOver { .. }
            | Action::Tell { .. } => {}
            Action::PrepareToken(_)
            | Action::RenewAtIssuer { .. }
            | Action::RemoveSource { .. }
            | Action::Tape(_) => {
                panic!("nothing here needs node {}", self.leader)
            }
        }
    }

    fn follow_order(&mut self, node: &NodeId, session: u64, order: Order) {
        let at = NAMES.iter().position(|one| *one == node.as_str());
        let process = &mut self.processes[at.expect("one of ours")];
        // What is meant for a session that has ended is not sent.
        if !process.is_alive || process.session != Some(session) {
            return;
        }
        match order {
            Order::Start(assignment) => {
                let key = (assignment.request.id, assignment.attempt);
                let claim = Claim {
                    assignment: *assignment,
                    waits: None,
                };
                let hosted = Hosted {
                    may_write: claim.assignment.task == Task::TidyUp,
                    claim,
                    is_stopping: false,
                };
                process.agents.insert(key, hosted);
            }
            Order::Proceed { transfer, attempt } => {
                if let Some(hosted) = process.agents.get_mut(&(transfer, attempt)) {
                    hosted.claim.waits = None;
                    hosted.may_write = true;
                }
            }
            Order::Stop { transfer, attempt } => {
                if let Some(hosted) = process.agents.get_mut(&(transfer, attempt)) {
                    hosted.is_stopping = true;
                }
            }
            Order::Abandon { transfer, attempt } => {
                process.agents.remove(&(transfer, attempt));
            }
            Order::Forget { .. } => panic!("the driver adds these"),
        }
    }

    /// Whatever is said and lost, at most one agent works for a transfer, and the limits hold.
    fn check(&self) {
        let copies = |process| {
            let Process { agents, .. }: &Process = process;
            let agents = agents.iter();
            agents.filter(|(_, hosted)| hosted.claim.assignment.task == Task::Copy)
        };
        let all = self.processes.iter().flat_map(|one| one.agents.values());
        let mut places = BTreeSet::new();
        for hosted in all.filter(|hosted| hosted.may_write) {
            let request = &hosted.claim.assignment.request;
            assert!(
                places.insert(request.destination.place()),
                "two work at {}",
                request.destination
            );
        }
        let mut transfers = BTreeSet::new();
        let mut links: BTreeMap<LinkId, u32> = BTreeMap::new();
        for (key, hosted) in self.processes.iter().flat_map(copies) {
            assert!(transfers.insert(key.0), "{} runs twice at once", key.0);
            if self.is_over(key.0) && hosted.claim.assignment.to.tenure.epoch < Epoch(self.epoch) {
                // Canceled under a leader before: it is stopped when its node joins.
                continue;
            }
            let link = hosted.claim.assignment.request.link();
            *links.entry(link).or_default() += 1;
        }
        assert!(
            links.values().all(|count| *count <= LINK_LIMIT),
            "{links:?}"
        );
        for process in &self.processes {
            let count = copies(process)
                .filter(|(key, _)| !self.is_over(key.0))
                .count();
            assert!(count <= NODE_SLOTS as usize, "{count} on one node");
        }
    }

    /// What the journal says is to be looked after.
    fn owed(&self) -> Vec<TransferId> {
        self.journal.owed().collect()
    }

    fn is_over(&self, transfer: TransferId) -> bool {
        let state = self.journal.state(transfer);
        state.is_some_and(TransferState::is_terminal)
    }

    fn lead(&mut self, node: usize) {
        self.leader = node;
        self.epoch += 1;
        let leading = LeadershipMode::Among {
            node: name(node),
            tenure: Tenure {
                epoch: Epoch(self.epoch),
                holder: 1,
            },
            silence: SILENCE,
            awaited: NAMES.iter().enumerate().map(|(at, _)| name(at)).collect(),
        };
        let (engine, effects) = continue_from(&mut self.journal, config(), leading, self.now);
        self.engine = Some(engine);
        self.processes.iter_mut().for_each(|one| one.session = None);
        self.perform(effects);
        self.join(node);
    }

    fn join(&mut self, node: usize) {
        if self.engine.is_none() || !self.processes[node].is_alive {
            return;
        }
        self.sessions += 1;
        let session = self.sessions;
        let process = &mut self.processes[node];
        process.session = Some(session);
        process.heard_us = self.now.monotonic_us;
        let claims = process.agents.values().map(|hosted| hosted.claim.clone());
        let joined = NodeJoined {
            node: name(node),
            session,
            slots: Slots(NODE_SLOTS),
            claims: claims.collect(),
        };
        for ((transfer, attempt), outcome) in std::mem::take(&mut process.untold) {
            self.feed(Input::Agent(AgentReport::Ended {
                transfer,
                attempt,
                outcome,
            }));
        }
        self.feed(Input::NodeJoined(Box::new(joined)));
    }

    fn cut_off(&mut self, node: usize) {
        if node != self.leader
            && let Some(session) = self.processes[node].session.take()
        {
            self.feed(Input::NodeGone {
                node: name(node),
                session,
                heard_us: self.now.monotonic_us,
            });
        }
    }

    fn kill(&mut self, node: usize) {
        if node == self.leader {
            self.depose();
        }
        self.cut_off(node);
        self.processes[node] = Process::default();
    }

    /// The leader leads no more; its agents may go on.
    fn depose(&mut self) {
        self.engine = None;
        self.leader = NAMES.len();
        self.processes.iter_mut().for_each(|one| one.session = None);
    }

    fn wait(&mut self, seconds: u8) {
        for _ in 0..seconds {
            self.now.at = self.now.at + Duration::from_secs(1);
            self.now.monotonic_us += 1_000_000;
            for process in &mut self.processes {
                if self.engine.is_some() && process.session.is_some() {
                    process.heard_us = self.now.monotonic_us;
                } else if self.now.monotonic_us >= process.heard_us + TERM_US {
                    process.agents.clear();
                }
            }
            self.feed(Input::Tick);
        }
    }

    /// The leader cannot renew its lease, and nobody else can take it: agents end for want of a leader, while the
    /// sessions go on.
    fn doubt(&mut self, seconds: u8) {
        self.now.at = self.now.at + Duration::from_secs(seconds.into());
        self.now.monotonic_us += u64::from(seconds) * 1_000_000;
        let mut told = Vec::new();
        for process in &mut self.processes {
            if self.now.monotonic_us < process.heard_us + TERM_US {
                continue;
            }
            let dropped: Vec<_> = process.agents.keys().copied().collect();
            process.agents.clear();
            match process.session {
                Some(_) => told.extend(dropped),
                None => {
                    let ends = dropped
                        .into_iter()
                        .map(|key| (key, AttemptOutcome::Dropped));
                    process.untold.extend(ends);
                }
            }
        }
        for (transfer, attempt) in told {
            self.feed(Input::Agent(AgentReport::Ended {
                transfer,
                attempt,
                outcome: AttemptOutcome::Dropped,
            }));
        }
    }

    fn end(&mut self, node: usize, nth: usize, outcome: AttemptOutcome) {
        let process = &mut self.processes[node];
        let nth = nth.checked_rem(process.agents.len()).unwrap_or(0);
        let Some(key) = process.agents.keys().nth(nth).copied() else {
            return;
        };
        let hosted = process.agents.remove(&key).expect("found above");
        let tidies = hosted.claim.assignment.task == Task::TidyUp;
        let outcome = match (tidies, hosted.is_stopping) {
            (true, _) => AttemptOutcome::Tidied,
            (false, true) => AttemptOutcome::Stopped,
            (false, false) => outcome,
        };
        match process.session {
            Some(_) => self.feed(Input::Agent(AgentReport::Ended {
                transfer: key.0,
                attempt: key.1,
                outcome,
            })),
            None => drop(process.untold.insert(key, outcome)),
        }
    }

    fn prepare(&mut self, node: usize, nth: usize) {
        let process = &mut self.processes[node];
        let nth = nth.checked_rem(process.agents.len()).unwrap_or(0);
        let Some((key, hosted)) = process.agents.iter_mut().nth(nth) else {
            return;
        };
        let looked = Preflight {
            size: Some(Bytes(1)),
            checksum: None,
            replaces: false,
        };
        hosted.claim.waits = Some(looked);
        let (transfer, attempt) = *key;
        if process.session.is_some() {
            self.feed(Input::Agent(AgentReport::Prepared {
                transfer,
                attempt,
                preflight: Preflight {
                    size: Some(Bytes(1)),
                    checksum: None,
                    replaces: false,
                },
            }));
        }
    }

    fn submit(&mut self, files: u8, from: u8, to: u8) {
        self.jobs += 1;
        self.answers += 1;
        let job = new_job(JobKind::Independent, self.jobs, files, from, to);
        self.feed(Input::of_request(
            Submit(Box::new(job)),
            ReplyId(self.answers),
        ));
    }

    fn settle(&mut self) {
        if self.engine.is_none() {
            self.wait(3);
            self.processes[0].is_alive = true;
            self.lead(0);
        }
        for node in 0..NAMES.len() {
            self.processes[node].is_alive = true;
            self.join(node);
        }
        for _ in 0..10_000 {
            let engine = self.engine.as_ref();
            if engine.is_none_or(|engine| engine.open_transfers() == 0) && self.owed().is_empty() {
                return;
            }
            for node in 0..NAMES.len() {
                self.end(node, 0, landed());
            }
            self.wait(1);
        }
        panic!("some transfers never end");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Submit(u8, u8, u8),
    Prepare(usize, usize),
    Land(usize, usize),
    Fail(usize, usize),
    Cancel(u8),
    CutOff(usize),
    Join(usize),
    Kill(usize),
    Depose,
    Lead(usize),
    /// The leader dies between a commit and what was to follow.
    DieHalfway(u8, u8, u8),
    Leave(usize),
    Wait(u8),
    Doubt(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..NAMES.len();
    prop_oneof![
        4 => (1..6u8, any::<u8>(), any::<u8>()).prop_map(|(n, from, to)| Step::Submit(n, from, to)),
        3 => (node(), any::<usize>()).prop_map(|(node, nth)| Step::Prepare(node, nth)),
        5 => (node(), any::<usize>()).prop_map(|(node, nth)| Step::Land(node, nth)),
        2 => (node(), any::<usize>()).prop_map(|(node, nth)| Step::Fail(node, nth)),
        1 => any::<u8>().prop_map(Step::Cancel),
        2 => node().prop_map(Step::CutOff),
        5 => node().prop_map(Step::Join),
        1 => node().prop_map(Step::Kill),
        1 => Just(Step::Depose),
        3 => node().prop_map(Step::Lead),
        1 => (1..4u8, any::<u8>(), any::<u8>()).prop_map(|(n, from, to)| Step::DieHalfway(n, from, to)),
        1 => node().prop_map(Step::Leave),
        3 => (1..25u8).prop_map(Step::Wait),
        1 => (1..25u8).prop_map(Step::Doubt),
    ]
}

impl Fleet {
    fn take(&mut self, step: Step) {
        match step {
            Step::Submit(files, from, to) => self.submit(files, from, to),
            Step::Prepare(node, nth) => self.prepare(node, nth),
            Step::Land(node, nth) => self.end(node, nth, landed()),
            Step::Fail(node, nth) => {
                let outcome = AttemptOutcome::Failed {
                    failure: failure(Retry::Later),
                    cleaned: true,
                    moved: Bytes(0),
                };
                self.end(node, nth, outcome);
            }
            Step::Cancel(nth) => {
                self.answers += 1;
                let job = JobId(Uuid::from_u128(u128::from(nth) % self.jobs.max(1) + 1));
                self.feed(Input::of_request(
                    Cancel {
                        job,
                        transfers: None,
                        reason: "a test says so".into(),
                    },
                    ReplyId(self.answers),
                ));
            }
            Step::CutOff(node) => self.cut_off(node),
            Step::Join(node) => {
                self.processes[node].is_alive = true;
                if node != self.leader {
                    self.join(node);
                }
            }
            Step::Kill(node) => self.kill(node),
            Step::Depose => self.depose(),
            Step::Lead(node) => {
                if self.engine.is_none() && self.processes[node].is_alive {
                    self.wait(3);
                    self.lead(node);
                }
            }
            Step::DieHalfway(files, from, to) => {
                self.jobs += 1;
                let job = new_job(JobKind::Independent, self.jobs, files, from, to);
                if let Some(engine) = &mut self.engine {
                    let input = Input::of_request(Submit(Box::new(job)), ReplyId(0));
                    let effects = engine.handle(self.now, input);
                    self.journal.append(&effects.records).expect("room");
                }
                self.depose();
            }
            Step::Leave(node) => {
                if let Some(session) = self.processes[node].session {
                    let node = name(node);
                    self.feed(Input::NodeLeaves { node, session });
                }
            }
            Step::Wait(seconds) => self.wait(seconds),
            Step::Doubt(seconds) => self.doubt(seconds),
        }
        self.check();
    }
}

proptest! {
    #[test]
    fn whoever_leads_and_whatever_is_lost_each_transfer_runs_once_at_a_time_and_ends_once(
        steps in proptest::collection::vec(step(), 1..120)
    ) {
        let mut fleet = Fleet::new();
        for step in steps {
            fleet.take(step);
        }
        fleet.settle();
        check_record_of(&fleet.journal);
    }
}

/// A fleet in which all three nodes run something.
fn busy() -> Fleet {
    let mut fleet = Fleet::new();
    for to in 0..3 {
        fleet.submit(3, to, to);
    }
    let counts = fleet.processes.iter().map(|one| one.agents.len());
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [2, 2, 2],
        "the least loaded first"
    );
    fleet
}

#[test]
fn a_new_leader_goes_on_with_what_nodes_run() {
    let mut fleet = busy();
    fleet.kill(0);
    fleet.wait(3);
    fleet.lead(1);
    fleet.join(2);
    let lost = |fleet: &Fleet| {
        let ledger = fleet.journal.ledger().iter();
        let lost =
            ledger.filter(|(_, _, event)| matches!(event, TransferEvent::AttemptLost { .. }));
        lost.count()
    };
    assert_eq!(lost(&fleet), 0);
    // Those of the dead node hold their slots until it is certain to be dead.
    fleet.wait(16);
    assert_eq!(lost(&fleet), 0);
    fleet.wait(5);
    assert_eq!(lost(&fleet), 2);
    fleet.settle();
    assert_eq!(lost(&fleet), 2);
}

#[test]
fn a_leader_that_comes_gives_the_others_a_moment_to_say_what_they_run() {
    let mut fleet = Fleet::new();
    fleet.kill(0);
    fleet.wait(3);
    fleet.submit(2, 0, 0);
    fleet.lead(1);
    fleet.submit(2, 0, 0);
    let running = |fleet: &Fleet| {
        fleet
            .processes
            .iter()
            .map(|one| one.agents.len())
            .sum::<usize>()
    };
    assert_eq!(running(&fleet), 0);
    fleet.join(2);
    assert_eq!(running(&fleet), 0, "one is missing still");
    fleet.wait(1);
    assert_eq!(running(&fleet), 2);
}

#[test]
fn a_node_that_was_started_anew_proves_that_what_it_ran_is_gone() {
    let mut fleet = busy();
    fleet.kill(2);
    fleet.processes[2].is_alive = true;
    fleet.join(2);
    let started = fleet.journal.ledger().iter();
    let again = started.filter(|(_, _, event)| {
        matches!(event, TransferEvent::Started { attempt, .. } if *attempt == Attempt(2))
    });
    assert_eq!(again.count(), 2);
    fleet.settle();
}

#[test]
fn what_ended_while_nobody_led_is_told_to_the_next_leader() {
    let mut fleet = busy();
    fleet.depose();
    let (key, _) = fleet.processes[1].agents.first_key_value().expect("busy");
    let transfer = key.0;
    fleet.end(1, 0, landed());
    fleet.wait(3);
    fleet.lead(2);
    fleet.join(1);
    let state = fleet.journal.state(transfer).expect("known");
    assert!(matches!(state, TransferState::Finished { .. }), "{state:?}");
}

#[test]
fn what_a_node_did_not_take_is_tried_again() {
    let mut fleet = busy();
    fleet.doubt(20);
    let lost = fleet.journal.ledger().iter();
    let lost = lost.filter(|(_, _, event)| matches!(event, TransferEvent::AttemptLost { .. }));
    assert_eq!(lost.count(), 6);
    fleet.settle();
}

#[test]
fn what_a_node_told_with_an_earlier_connection_counts_no_more() {
    let mut fleet = busy();
    let session = fleet.processes[1].session.expect("joined");
    fleet.join(1);
    let late = NodeJoined {
        node: name(1),
        session,
        slots: Slots(NODE_SLOTS),
        claims: Vec::new(),
    };
    fleet.feed(Input::NodeJoined(Box::new(late)));
    fleet.feed(Input::NodeGone {
        node: name(1),
        session,
        heard_us: 0,
    });
    fleet.wait(30);
    assert_eq!(fleet.processes[1].agents.len(), 2);
    fleet.settle();
}

#[test]
fn what_a_canceled_copy_may_have_left_is_looked_after_when_its_node_is_gone() {
    let mut fleet = busy();
    fleet.prepare(2, 0);
    let canceled = *fleet.processes[2].agents.keys().next().expect("busy");
    for nth in 0..3 {
        fleet.take(Step::Cancel(nth));
    }
    assert!(fleet.owed().contains(&canceled.0));
    fleet.kill(2);
    fleet.wait(25);
    let tidying = |fleet: &Fleet| {
        let agents = fleet.processes.iter().map(|one| one.agents.values());
        let mut tasks = agents.map(|all| {
            let all = all.filter(|hosted| hosted.claim.assignment.request.id == canceled.0);
            all.filter(|hosted| hosted.claim.assignment.task == Task::TidyUp)
                .count()
        });
        [(); 3].map(|()| tasks.next().expect("three"))
    };
    assert_eq!(tidying(&fleet), [1, 0, 0], "the leader does it");
    // It dies before it has.
    fleet.kill(0);
    fleet.wait(3);
    fleet.lead(1);
    assert_eq!(tidying(&fleet), [0, 0, 0], "it may be at it still");
    fleet.wait(25);
    assert_eq!(tidying(&fleet), [0, 1, 0]);
    fleet.settle();
    assert_eq!(fleet.owed(), []);
}

#[test]
fn a_leader_that_leads_no_more_goes_on_tidying_up() {
    let mut fleet = busy();
    fleet.prepare(2, 0);
    for nth in 0..3 {
        fleet.take(Step::Cancel(nth));
    }
    fleet.kill(2);
    fleet.wait(25);
    let tidies = |one: &Process| {
        let all = one.agents.values();
        all.filter(|hosted| hosted.claim.assignment.task == Task::TidyUp)
            .count()
    };
    assert_eq!(tidies(&fleet.processes[0]), 1);
    fleet.depose();
    fleet.wait(3);
    fleet.lead(1);
    fleet.join(0);
    assert_eq!(fleet.processes.iter().map(tidies).sum::<usize>(), 1);
    assert_eq!(tidies(&fleet.processes[0]), 1);
    fleet.settle();
    assert_eq!(fleet.owed(), []);
}
