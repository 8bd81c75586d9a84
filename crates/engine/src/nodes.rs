//! Where attempts run: placement on agent nodes, and what becomes of attempts whose node, or whose leader, is gone.
//!
//! An attempt belongs to one node and one session of it (a connection to the leader). It is lost when its node says
//! what it runs and does not name it, or when the node has been silent for longer than it goes on without a leader:
//! only then may it run again elsewhere. A leader that has just come adopts what nodes claim.

use super::report::{AgentReport, AttemptKey, Preflight};
use super::running::{HeldSlots, RunningAgent};
use super::{Action, Assignment, AttemptOutcome, Effects, Engine, Input, Now, Order, Task};
use penstock_decide::scheduler::{QueueEntry, SlotLimits};
use penstock_decide::settings::slots_in_effect;
use penstock_model::{JobId, NodeId, Slots, Tenure, Timestamp, TransferState, UserName};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a new leader waits for nodes to say what they run before it starts anything. They find it within a second.
const GATHERING: Duration = Duration::from_secs(1);

/// How an engine comes to decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeadershipMode {
    /// The one process of a service: attempts of a process before it are lost.
    Alone,
    /// One of several nodes over one database.
    Among {
        node: NodeId,
        /// This turn to lead.
        tenure: Tenure,
        /// How long a node must have been silent until it is certain that it has stopped its agents.
        silence: Duration,
        /// Nodes that may run something of which the record does not tell: agents that are to stop because their
        /// transfers were canceled. Nothing starts until these have joined, or a moment has passed.
        awaited: BTreeSet<NodeId>,
    },
}

/// To whom an attempt is given. A node refuses what comes from another leadership than it follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedNode {
    pub node: NodeId,
    /// Which of its sessions; what is meant for an earlier one is not sent any more.
    pub session: u64,
    /// Under which leadership.
    #[serde(flatten)]
    pub tenure: Tenure,
}

/// A node begins a session: it has come, come back, or has a new leader.
#[derive(Debug, PartialEq)]
pub struct NodeJoined {
    pub node: NodeId,
    /// A number that no session has had.
    pub session: u64,
    /// How many attempts it may run.
    pub slots: Slots,
    /// All that it runs. What it is not running ended before, was told as such, or is lost.
    pub claims: Vec<Claim>,
}

/// An attempt that a node runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// As it was given.
    pub assignment: Assignment,
    /// It has looked at both ends, and waits until it may move bytes.
    pub waits: Option<Preflight>,
}

/// One node, as its leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLoad {
    pub node: NodeId,
    /// Attempts that run there.
    pub active: Slots,
    /// How many may; `None`: it is silent, and nothing starts there.
    pub slots: Option<Slots>,
}

/// The nodes, with what runs where.
#[derive(Debug)]
pub(super) struct Nodes {
    leading: LeadershipMode,
    nodes: BTreeMap<NodeId, Node>,
    /// Until then those that have not joined are waited for.
    begins: Option<GatheringDeadline>,
}

/// A deadline on two clocks: the wall clock schedules the wake-up; the process's own clock, which nobody sets, decides (in
/// microseconds).
#[derive(Debug, Clone, Copy)]
struct GatheringDeadline {
    look_at: Timestamp,
    at_us: u64,
}

#[derive(Debug, Default)]
struct Node {
    session: u64,
    slots: u32,
    active: u32,
    /// Set while it is silent: when its attempts are lost, in microseconds of the process's clock.
    lost_at_us: Option<u64>,
}

impl Node {
    fn has_room(&self) -> bool {
        self.lost_at_us.is_none() && self.active < self.slots
    }

    /// What it adds to the slots of all.
    fn counts(&self) -> u32 {
        match self.lost_at_us {
            None => self.slots.max(self.active),
            Some(_) => self.active,
        }
    }

    fn load_permille(&self) -> u64 {
        u64::from(self.active) * 1000 / u64::from(self.slots.max(1))
    }
}

impl Nodes {
    pub(super) fn new(leading: LeadershipMode, slots: Slots, now: Now) -> Nodes {
        let mut nodes = BTreeMap::new();
        if leading == LeadershipMode::Alone {
            let node = Node {
                slots: slots.0,
                ..Node::default()
            };
            nodes.insert(this_process(), node);
        }
        let begins = match &leading {
            LeadershipMode::Alone => None,
            LeadershipMode::Among { .. } => Some(GatheringDeadline {
                look_at: now.at + GATHERING,
                at_us: now.monotonic_us.saturating_add(micros(GATHERING)),
            }),
        };
        Nodes {
            leading,
            nodes,
            begins,
        }
    }

    /// True while nothing starts, because the nodes are gathering.
    pub(super) fn gather(&mut self, now: Now) -> bool {
        let is_complete = match &self.leading {
            LeadershipMode::Alone => true,
            LeadershipMode::Among { awaited, .. } => awaited.is_empty(),
        };
        let is_over = |begins: GatheringDeadline| begins.at_us <= now.monotonic_us;
        if is_complete || self.begins.is_none_or(is_over) {
            self.begins = None;
        }
        self.begins.is_some()
    }

    /// When starting begins; `None`: it has begun.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        self.begins.map(|begins| begins.look_at)
    }

    fn limit(&self) -> Slots {
        Slots(self.nodes.values().map(Node::counts).sum())
    }

    /// This node may run so many from now on.
    pub(super) fn resize_own(&mut self, slots: Slots) {
        let own = self.own_name();
        if let Some(node) = self.nodes.get_mut(&own) {
            // A node that is about to go stays without any.
            node.slots = if node.slots == 0 { 0 } else { slots.0 };
        }
    }

    /// The least loaded node with room, and takes a slot there.
    pub(super) fn place(&mut self) -> Option<AssignedNode> {
        let room = self.nodes.iter().filter(|(_, node)| node.has_room());
        let chosen = room.min_by_key(|(id, node)| (node.load_permille(), *id));
        let id = chosen.map(|(id, _)| id.clone())?;
        self.nodes.get_mut(&id)?.active += 1;
        self.assign(&id)
    }

    /// The leader's own node, for what tidies up: that holds no slots anywhere.
    pub(super) fn own(&self) -> AssignedNode {
        let node = self.own_name();
        let unknown = AssignedNode {
            node: node.clone(),
            session: 0,
            tenure: Tenure::default(),
        };
        self.assign(&node).unwrap_or(unknown)
    }

    pub(super) fn is_own(&self, id: &NodeId) -> bool {
        self.own_name() == *id
    }

    /// The leader's own node is there. It always is, but for the moment in which it comes to lead.
    pub(super) fn has_own(&self) -> bool {
        let own = self.nodes.get(&self.own_name());
        own.is_some_and(|node| node.lost_at_us.is_none())
    }

    fn own_name(&self) -> NodeId {
        match &self.leading {
            LeadershipMode::Alone => this_process(),
            LeadershipMode::Among { node, .. } => node.clone(),
        }
    }

    fn assign(&self, id: &NodeId) -> Option<AssignedNode> {
        let tenure = match self.leading {
            LeadershipMode::Alone => Tenure::default(),
            LeadershipMode::Among { tenure, .. } => tenure,
        };
        Some(AssignedNode {
            node: id.clone(),
            session: self.nodes.get(id)?.session,
            tenure,
        })
    }

    /// As the record names a node: not at all where there is but one.
    pub(super) fn recorded(&self, id: &NodeId) -> Option<NodeId> {
        match self.leading {
            LeadershipMode::Alone => None,
            LeadershipMode::Among { .. } => Some(id.clone()),
        }
    }

    /// An attempt of a leadership before runs on this node as far as is known. False when it cannot run any more.
    fn expect(&mut self, now: Now, id: Option<&NodeId>) -> bool {
        if id.is_none() {
            return false;
        }
        let Some(id) = self.await_claims(now, id) else {
            return false;
        };
        if let Some(node) = self.nodes.get_mut(&id) {
            node.active += 1;
        }
        true
    }

    /// Something of a leadership before may go on where it was, by default on this node: its name, from which it is
    /// lost unless it is claimed in time. `None`: in the one process of a service nothing of another goes on.
    pub(super) fn await_claims(&mut self, now: Now, id: Option<&NodeId>) -> Option<NodeId> {
        let LeadershipMode::Among { silence, .. } = &self.leading else {
            return None;
        };
        let lost_at = now.monotonic_us.saturating_add(micros(*silence));
        let id = id.cloned().unwrap_or_else(|| self.own_name());
        self.nodes.entry(id.clone()).or_insert_with(|| Node {
            lost_at_us: Some(lost_at),
            ..Node::default()
        });
        Some(id)
    }

    /// An attempt has ended. True when the slots of all are others now.
    fn give_back(&mut self, id: &NodeId) -> bool {
        let Some(node) = self.nodes.get_mut(id) else {
            return false;
        };
        let before = node.counts();
        node.active = node.active.saturating_sub(1);
        node.counts() != before
    }

    /// Nodes whose silence has lasted long enough.
    fn lost(&mut self, now: Now) -> Vec<NodeId> {
        let is_lost = |node: &Node| node.lost_at_us.is_some_and(|at| at <= now.monotonic_us);
        let lost = self.nodes.iter().filter(|(_, node)| is_lost(node));
        lost.map(|(id, _)| id.clone()).collect()
    }
}

/// Whose slots those of an attempt are of which nothing is known but what its node says.
fn stranger(assignment: &Assignment) -> QueueEntry {
    let request = &assignment.request;
    QueueEntry {
        transfer: request.id,
        link: request.link(),
        vo: assignment.vo.clone(),
        activity: request.activity.clone(),
        user: UserName::new(""),
        priority: assignment.parameters.priority,
        since: Timestamp(0),
        size: request.size,
    }
}

impl Engine {
    /// What runs of a leadership before, as far as nobody knows better: it keeps its slots until its node has spoken,
    /// or has been silent for too long. What cannot run any more is given back.
    pub(super) fn expect_interrupted(&mut self, now: Now) -> Vec<AttemptKey> {
        let active = self.transfers.iter();
        let active = active.filter_map(|(id, entry)| match entry.state() {
            TransferState::Active { attempt, node, .. } => Some((*id, *attempt, node.clone())),
            _ => None,
        });
        let mut active: Vec<_> = active.collect();
        active.sort_unstable();
        let mut lost = Vec::new();
        for (transfer, attempt, node) in active {
            let Some(node) = node.filter(|node| self.nodes.expect(now, Some(node))) else {
                lost.push(AttemptKey { transfer, attempt });
                continue;
            };
            let Some(waiting) = self.waiting(transfer) else {
                continue;
            };
            let destination = self.transfers[&transfer].destination;
            let taken = self.scheduler.adopt(&waiting);
            let running = RunningAgent {
                attempt,
                holds: HeldSlots::Slots(taken, now.running()),
                destination,
                then: None,
                node,
                // Told when it joins.
                session: 0,
            };
            self.running.insert(transfer, running);
        }
        self.follow_nodes();
        lost
    }

    /// The scheduler knows how many agents there are on all nodes.
    pub(super) fn limits(&self) -> SlotLimits {
        SlotLimits {
            agents: self.nodes.limit(),
            ..slots_in_effect(&self.config.slots, &self.settings)
        }
    }

    fn follow_nodes(&mut self) {
        let limits = self.limits();
        self.scheduler.set_limits(limits);
    }

    /// An attempt has ended on this node.
    pub(super) fn give_back(&mut self, node: &NodeId) {
        if self.nodes.give_back(node) {
            self.follow_nodes();
        }
    }

    /// Whether a later session of this node has begun.
    pub fn knows_later_session(&self, node: &NodeId, session: u64) -> bool {
        let known = self.nodes.nodes.get(node);
        known.is_some_and(|known| known.session > session)
    }

    pub(super) fn node_joined(&mut self, now: Now, joined: NodeJoined, effects: &mut Effects) {
        if self.knows_later_session(&joined.node, joined.session) {
            return;
        }
        if let LeadershipMode::Among { awaited, .. } = &mut self.nodes.leading {
            awaited.remove(&joined.node);
        }
        let entry = self.nodes.nodes.entry(joined.node.clone()).or_default();
        entry.session = joined.session;
        entry.slots = joined.slots.0;
        entry.lost_at_us = None;
        self.follow_nodes();
        let mut claims: BTreeMap<AttemptKey, Claim> = BTreeMap::new();
        for claim in joined.claims {
            claims.insert(claim.assignment.key(), claim);
        }
        let mut lost = Vec::new();
        for key in self.running_on(&joined.node) {
            match claims.remove(&key) {
                Some(claim) => self.adopt(now, joined.session, claim, effects),
                None => lost.push(key),
            }
        }
        for claim in claims.into_values() {
            self.take_stranger(now, &joined.node, joined.session, claim, effects);
        }
        let reason = format!("{} no longer runs it", joined.node);
        self.lose(now, lost, &reason, effects);
    }

    fn running_on(&self, node: &NodeId) -> BTreeSet<AttemptKey> {
        let running = self.running.iter();
        let here = running.filter(|(_, running)| running.node == *node);
        here.map(|(id, running)| AttemptKey {
            transfer: *id,
            attempt: running.attempt,
        })
        .collect()
    }

    /// Goes on with an attempt that its node still runs. What was said to it may not have arrived: it is said again.
    fn adopt(&mut self, now: Now, session: u64, claim: Claim, effects: &mut Effects) {
        let AttemptKey { transfer, attempt } = claim.assignment.key();
        if let Some(running) = self.running.get_mut(&transfer) {
            running.session = session;
        }
        let Some(entry) = self.transfers.get(&transfer) else {
            if claim.assignment.task == Task::Copy {
                self.stop(transfer, effects);
                self.give_slots(now, &claim.assignment);
            }
            return;
        };
        let (TransferState::Active { prepared, .. }, Some(preflight)) =
            (entry.state(), claim.waits)
        else {
            return;
        };
        if *prepared {
            self.proceed(transfer, attempt, effects);
            return;
        }
        let report = AgentReport::Prepared {
            transfer,
            attempt,
            preflight,
        };
        self.handle_input(now, Input::Agent(report), effects);
    }

    /// A copy whose transfer has ended holds slots until it has stopped.
    fn give_slots(&mut self, now: Now, assignment: &Assignment) {
        let Some(running) = self.running.get_mut(&assignment.request.id) else {
            return;
        };
        if let HeldSlots::Slots(..) | HeldSlots::Nothing = running.holds {
            return;
        }
        let taken = self.scheduler.adopt(&stranger(assignment));
        running.holds = HeldSlots::Slots(taken, now.running());
        if let Some(node) = self.nodes.nodes.get_mut(&running.node) {
            node.active += 1;
        }
        self.follow_nodes();
    }

    /// A node runs what nothing is known of: its transfer has ended meanwhile. It keeps its place before the
    /// destination until it is gone, unless another one writes there already: then it is dropped where it stands.
    fn take_stranger(
        &mut self,
        now: Now,
        node: &NodeId,
        session: u64,
        claim: Claim,
        effects: &mut Effects,
    ) {
        let Claim { assignment, .. } = claim;
        let AttemptKey { transfer, attempt } = assignment.key();
        let place = assignment.request.destination.place();
        let writes = self.destinations.first_at(place);
        let is_taken = writes.is_some_and(|other| self.works(other));
        if is_taken
            || self.transfers.contains_key(&transfer)
            || self.running.contains_key(&transfer)
            || self.destinations.stands(place, transfer)
        {
            effects.actions.push(Action::Order {
                node: node.clone(),
                session,
                order: Order::Abandon { transfer, attempt },
            });
            return;
        }
        self.destinations.enter_first(place, transfer);
        let is_copy = assignment.task == Task::Copy;
        let holds = match assignment.task {
            Task::Copy => {
                let taken = self.scheduler.adopt(&stranger(&assignment));
                if let Some(node) = self.nodes.nodes.get_mut(node) {
                    node.active += 1;
                }
                self.follow_nodes();
                HeldSlots::Slots(taken, now.running())
            }
            Task::TidyUp | Task::RemoveSource => HeldSlots::Nothing,
        };
        let running = RunningAgent {
            attempt,
            holds,
            destination: place,
            then: None,
            node: node.clone(),
            session,
        };
        self.running.insert(transfer, running);
        if is_copy {
            self.stop(transfer, effects);
        }
    }

    /// A session has ended. The node was heard of last at `heard_us` of the process's clock.
    pub(super) fn node_gone(&mut self, node: &NodeId, session: u64, heard_us: u64) {
        let LeadershipMode::Among { silence, .. } = self.nodes.leading else {
            return;
        };
        if let Some(entry) = self.nodes.nodes.get_mut(node)
            && entry.session == session
        {
            entry.lost_at_us = Some(heard_us.saturating_add(micros(silence)));
            self.follow_nodes();
        }
    }

    /// A node is about to go: nothing more starts there.
    pub(super) fn node_leaves(&mut self, node: &NodeId, session: u64) {
        if let Some(entry) = self.nodes.nodes.get_mut(node)
            && entry.session == session
        {
            entry.slots = 0;
            self.follow_nodes();
        }
    }

    /// What runs on nodes that have been silent for so long that they have stopped it runs no more.
    pub(super) fn lose_silent_nodes(&mut self, now: Now, effects: &mut Effects) {
        for node in self.nodes.lost(now) {
            let reason = format!("contact with {node} was lost while it ran");
            let lost = self.running_on(&node).into_iter().collect();
            self.nodes.nodes.remove(&node);
            self.follow_nodes();
            self.lose(now, lost, &reason, effects);
        }
    }

    fn lose(&mut self, now: Now, lost: Vec<AttemptKey>, reason: &str, effects: &mut Effects) {
        for key in lost {
            let AttemptKey { transfer, attempt } = key;
            effects.actions.push(Action::Lost { transfer, attempt });
            self.account(now, key, AttemptOutcome::Dropped, reason, effects);
        }
    }

    /// The nodes that are known, with what runs there; none when there is but one process.
    pub fn nodes(&self) -> impl Iterator<Item = NodeLoad> + '_ {
        let is_alone = self.nodes.leading == LeadershipMode::Alone;
        let nodes = self.nodes.nodes.iter().filter(move |_| !is_alone);
        nodes.map(|(id, node)| NodeLoad {
            node: id.clone(),
            active: Slots(node.active),
            slots: node.lost_at_us.is_none().then_some(Slots(node.slots)),
        })
    }

    /// Whether a job is open.
    pub fn holds_job(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }
}

/// The name of the one node of a service that has no others.
pub fn this_process() -> NodeId {
    NodeId::parse("this-process").expect("a plain name")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
