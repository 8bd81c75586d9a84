//! The processes of the service. Each runs agents, and one of them leads. They are lost, are cut off, and come back, as
//! those of `transfer-service/src/nodes` do: agents go on while leaders change, for a time; what their leader has not made
//! durable they tell the next.

use super::agenda::Next;
use super::{BrokenInvariant, World};
use penstock_engine::{
    AgentReport, AssignedNode, AttemptKey, AttemptOutcome, Claim, Input, LeadershipMode, NodeJoined,
};
use penstock_model::{Attempt, Epoch, NodeId, Slots, Tenure, TransferId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds after which another node may lead when the leader does not renew its lease.
pub(super) const LEASE: f64 = 3.0;
/// Seconds for which agents go on without a leader.
const TERM: f64 = 15.0;
/// Seconds for which a leader hears nothing of a node before it takes its agents for stopped.
const SILENCE: f64 = 20.0;
/// Seconds after which no slot is kept for what a silent node may run.
const CERTAIN_IN: f64 = SILENCE + NOTICES_IN + 1.0;
/// Seconds in which a node finds its leader.
const FINDS_IN: f64 = 1.5;
/// Seconds in which a leader notices that a node is cut off.
const NOTICES_IN: f64 = 5.0;
/// Seconds after a change of leaders until the process of the one before runs again.
const RESTARTS_IN: f64 = 10.0;
/// Seconds after a change of leaders in which nodes may not have said what they run.
const GATHERS_IN: f64 = 2.0;

/// All processes.
#[derive(Debug)]
pub(super) struct Nodes {
    all: Vec<Node>,
    leader: usize,
    epoch: u64,
    sessions: u64,
    /// Attempts that each may run.
    slots: u32,
}

#[derive(Debug, Default)]
struct Node {
    is_lost: bool,
    /// It reaches neither the others nor the database.
    is_cut_off: bool,
    /// Of its connection to the leader.
    session: Option<u64>,
    /// When a connection was there last.
    heard: f64,
    /// Ends that no leader has made durable as far as it knows.
    untold: BTreeMap<AttemptKey, AttemptOutcome>,
}

impl Nodes {
    /// So many, which run so many attempts in all.
    pub(super) fn new(count: u32, agents_max: u32) -> Nodes {
        Nodes {
            all: (0..count.max(1)).map(|_| Node::default()).collect(),
            leader: 0,
            epoch: 0,
            sessions: 0,
            slots: agents_max.div_ceil(count.max(1)),
        }
    }

    pub(super) fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Attempts that one node may run.
    pub(super) fn slots_each(&self) -> u32 {
        self.slots
    }

    /// Attempts that all of them may run.
    pub(super) fn slots_in_all(&self) -> u32 {
        self.slots.saturating_mul(self.all.len() as u32)
    }

    /// Which one has to run an attempt; `None`: the order does not reach it.
    pub(super) fn reached(&self, to: &AssignedNode) -> Option<usize> {
        let at = match self.are_several() {
            true => (0..self.all.len()).find(|at| name(*at) == to.node)?,
            false => 0,
        };
        (self.all[at].session == Some(to.session)).then_some(at)
    }

    /// Whether it is connected to the leader.
    pub(super) fn is_connected(&self, at: usize) -> bool {
        self.all[at].session.is_some()
    }
}

fn name(at: usize) -> NodeId {
    NodeId::parse(&format!("node-{}", at + 1)).expect("a plain name")
}

impl World<'_> {
    /// Another one comes to lead: it finds what was durable. While none can, it is tried again.
    pub(super) fn take_over(&mut self) -> Result<(), BrokenInvariant> {
        let all = self.nodes.all.iter().enumerate();
        let able = all.filter(|(_, node)| !node.is_lost && !node.is_cut_off);
        let able: Vec<usize> = able.map(|(at, _)| at).collect();
        if able.is_empty() {
            self.agenda.add(self.now + 1.0, Next::TakesOver);
            return Ok(());
        }
        let leader = able[self.random.below(able.len())];
        self.nodes.leader = leader;
        self.nodes.epoch += 1;
        let leading = match self.nodes.are_several() {
            true => LeadershipMode::Among {
                node: name(leader),
                tenure: Tenure {
                    epoch: Epoch(self.nodes.epoch),
                    holder: 1,
                },
                silence: Duration::from_secs_f64(SILENCE),
                awaited: (0..self.nodes.all.len()).map(name).collect(),
            },
            false => {
                self.nodes.all[leader].session = Some(0);
                LeadershipMode::Alone
            }
        };
        self.lead(leading)?;
        if self.nodes.are_several() {
            self.join(leader)?;
            for at in able {
                self.find_leader(at);
            }
        }
        Ok(())
    }

    fn find_leader(&mut self, at: usize) {
        let after = FINDS_IN * self.random.even();
        self.agenda.add(self.now + after, Next::Joins(at));
    }

    /// A node begins a session, if it can and has none: it tells what has ended, and what it runs.
    pub(super) fn join(&mut self, at: usize) -> Result<(), BrokenInvariant> {
        let node = &mut self.nodes.all[at];
        if node.is_lost || node.is_cut_off || node.session.is_some() || !self.service.is_there() {
            return Ok(());
        }
        self.nodes.sessions += 1;
        let session = self.nodes.sessions;
        node.session = Some(session);
        let untold: Vec<_> = node.untold.clone().into_iter().collect();
        for (AttemptKey { transfer, attempt }, outcome) in untold {
            self.tell_end(at, transfer, attempt, outcome)?;
        }
        // The leader may have been lost over that.
        if self.nodes.all[at].session != Some(session) {
            return Ok(());
        }
        let joined = NodeJoined {
            node: name(at),
            session,
            slots: Slots(self.nodes.slots),
            claims: self.claims(at),
        };
        self.feed(Input::NodeJoined(Box::new(joined)))
    }

    fn claims(&self, at: usize) -> Vec<Claim> {
        let running = self.agents.on(at);
        let claims = running.filter_map(|(_, running)| {
            Some(Claim {
                assignment: running.assignment.as_deref()?.clone(),
                waits: running.waits.clone(),
            })
        });
        claims.collect()
    }

    /// Tells the end of an attempt, now or when there is somebody to tell.
    pub(super) fn tell_end(
        &mut self,
        at: usize,
        transfer: TransferId,
        attempt: Attempt,
        outcome: AttemptOutcome,
    ) -> Result<(), BrokenInvariant> {
        let is_several = self.nodes.are_several();
        let node = &mut self.nodes.all[at];
        if is_several {
            let key = AttemptKey { transfer, attempt };
            node.untold.insert(key, outcome.clone());
        }
        let Some(session) = node.session else {
            return Ok(());
        };
        self.feed(Input::Agent(AgentReport::Ended {
            transfer,
            attempt,
            outcome,
        }))?;
        let node = &mut self.nodes.all[at];
        if node.session == Some(session) {
            node.untold.remove(&AttemptKey { transfer, attempt });
        }
        Ok(())
    }

    /// The leader's process dies, and its agents with it.
    pub(super) fn lose_leader(&mut self, back_after: f64) {
        if !self.service.is_there() {
            return;
        }
        let leader = self.nodes.leader;
        let restarts_in = match self.nodes.are_several() {
            true => back_after + RESTARTS_IN,
            false => back_after,
        };
        self.agenda
            .add(self.now + restarts_in, Next::Returns(leader));
        self.depose(back_after);
        self.lose_process(leader);
    }

    /// The leader leads no more.
    fn depose(&mut self, back_after: f64) {
        self.note("there is no leader any more");
        self.service.end();
        for at in 0..self.nodes.all.len() {
            self.part(at);
        }
        self.agenda.add(self.now + back_after, Next::TakesOver);
    }

    fn leads(&self, at: usize) -> bool {
        self.service.is_there() && self.nodes.leader == at
    }

    /// A connection to the leader ends.
    fn part(&mut self, at: usize) -> Option<u64> {
        let node = &mut self.nodes.all[at];
        let session = node.session.take()?;
        node.heard = self.now;
        self.agenda.add(self.now + TERM, Next::Orphans(at));
        Some(session)
    }

    fn lose_process(&mut self, at: usize) {
        let node = &mut self.nodes.all[at];
        node.is_lost = true;
        node.untold.clear();
        self.lose_agents(at);
    }

    /// A node's process dies.
    pub(super) fn lose_node(&mut self, at: usize) -> Result<(), BrokenInvariant> {
        self.note(&format!("{} is lost", name(at)));
        if self.leads(at) {
            self.depose(LEASE);
        }
        let session = self.part(at);
        self.lose_process(at);
        match session {
            Some(session) => self.gone(at, session, self.now),
            None => Ok(()),
        }
    }

    /// A node is there, and works, but reaches nobody.
    pub(super) fn cut_off_node(&mut self, at: usize) {
        self.note(&format!("{} is cut off", name(at)));
        if self.leads(at) {
            self.depose(LEASE);
        }
        self.nodes.all[at].is_cut_off = true;
        if let Some(session) = self.part(at) {
            let notices = self.now + NOTICES_IN * self.random.even();
            self.agenda.add(notices, Next::Missed(at, session));
        }
    }

    /// The leader notices that it hears nothing of a node.
    pub(super) fn miss(&mut self, at: usize, session: u64) -> Result<(), BrokenInvariant> {
        let heard = self.nodes.all[at].heard;
        self.gone(at, session, heard)
    }

    fn gone(&mut self, at: usize, session: u64, heard: f64) -> Result<(), BrokenInvariant> {
        self.feed(Input::NodeGone {
            node: name(at),
            session,
            heard_us: ((heard - self.service.since).max(0.0) * 1e6) as u64,
        })
    }

    /// A node is there again.
    pub(super) fn return_node(&mut self, at: usize) {
        self.note(&format!("{} is there again", name(at)));
        let node = &mut self.nodes.all[at];
        node.is_lost = false;
        node.is_cut_off = false;
        self.find_leader(at);
    }

    /// Agents of a node that has had no leader for too long are dropped.
    pub(super) fn drop_orphans(&mut self, at: usize) -> Result<(), BrokenInvariant> {
        let node = &self.nodes.all[at];
        if node.session.is_some() || self.now + 1e-6 < node.heard + TERM {
            return Ok(());
        }
        for AttemptKey { transfer, attempt } in self.lose_agents(at) {
            self.tell_end(at, transfer, attempt, AttemptOutcome::Dropped)?;
        }
        Ok(())
    }

    fn note(&mut self, what: &str) {
        if let Some(watch) = &mut self.watch {
            watch.note(self.now, what);
        }
    }

    /// Whether the leader may not know yet what runs, because nodes were lost, were cut off, or have not said.
    pub(super) fn may_be_mistaken(&self) -> bool {
        if !self.nodes.are_several() {
            return false;
        }
        // What ran there keeps its slots until it is certain to run no more.
        let silent = self.nodes.all.iter().filter(|node| node.session.is_none());
        let mut silences = silent.map(|node| self.now - node.heard.max(self.service.since));
        let is_awaited = silences.any(|silence| silence < CERTAIN_IN);
        let is_missing = self.books.open.iter().any(|(transfer, open)| {
            let attempt = open.running();
            attempt.is_some_and(|attempt| !self.agents.has(*transfer, attempt))
        });
        let is_new = self.now - self.service.since < GATHERS_IN;
        is_awaited
            || is_new
            || is_missing
            || self
                .agents
                .copies()
                .any(|it| !self.books.open.contains_key(&it))
    }

    /// Whether more run on a node than may, apart from what its leader does not know of.
    pub(super) fn is_crowded(&self, at: usize) -> bool {
        let on_it = self.agents.on(at).filter(|(transfer, running)| {
            running.holds_slots() && self.books.open.contains_key(transfer)
        });
        on_it.count() > self.nodes.slots as usize
    }
}
