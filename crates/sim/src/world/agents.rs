//! The agents: what becomes of the attempts that the engine starts, and whether it may start them.
//!
//! Long because it is the life of an attempt from order to report, with every way in which it may end early.

use super::agenda::{Next, Trouble};
use super::mover_reports::MovedFile;
use super::watching::{AgentKnowledge, Sight};
use super::{BrokenInvariant, World};
use crate::field::{Ends, PredictedArrival};
use crate::plan::Hopeless;
use crate::watch::Counts;
use penstock_decide::destination::UnsettledAttempts;
use penstock_engine::{
    AgentReport, Assignment, AttemptKey, AttemptOutcome, Input, Preflight, Task,
};
use penstock_model::{
    Attempt, Bytes, Concern, CopyMode, Errno, Failure, MoverReport, Phase, Retry, Side, TransferId,
};
use std::collections::BTreeMap;

/// Seconds until an agent that was stopped has ended.
const STOPS_IN: f64 = 0.05;
/// Seconds in which a refused connection is noticed.
const REFUSED_IN: f64 = 0.05;

/// An attempt that runs.
#[derive(Debug, Clone)]
pub(super) struct SimulatedAttempt {
    attempt: Attempt,
    /// The node that runs it.
    node: usize,
    /// `None`: it only tidies up, and holds no slots.
    copies: Option<SimulatedCopy>,
    /// Kept in simulated trouble, and where there are several nodes.
    pub(super) assignment: Option<Box<Assignment>>,
    /// What it has found, while it waits until it may move bytes.
    pub(super) waits: Option<Preflight>,
    /// What of earlier attempts might still run when it looked.
    beside: Option<UnsettledAttempts>,
}

impl SimulatedAttempt {
    pub(super) fn holds_slots(&self) -> bool {
        self.copies.is_some()
    }
}

#[derive(Debug, Clone, Copy)]
struct SimulatedCopy {
    link: usize,
    vo: usize,
    bytes: f64,
    since: f64,
    /// When it was let write.
    began: f64,
    /// What an earlier attempt may have left is known, and gone.
    is_settled: bool,
    /// There is something at the destination that it replaces when it has all bytes.
    replaces: bool,
    /// It may move bytes.
    moves: bool,
    is_stopping: bool,
}

#[derive(Debug, Default)]
pub(super) struct Agents {
    running: BTreeMap<TransferId, SimulatedAttempt>,
    /// Of those that copy.
    count: u32,
}

impl Agents {
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Those of a node.
    pub(super) fn on(&self, node: usize) -> impl Iterator<Item = (&TransferId, &SimulatedAttempt)> {
        let running = self.running.iter();
        running.filter(move |(_, running)| running.node == node)
    }

    /// Whose that hold slots.
    pub(super) fn copies(&self) -> impl Iterator<Item = TransferId> {
        let copies = self.running.iter();
        let copies = copies.filter(|(_, running)| running.holds_slots());
        copies.map(|(transfer, _)| *transfer)
    }

    /// Whether this attempt runs.
    pub(super) fn has(&self, transfer: TransferId, attempt: Attempt) -> bool {
        let running = self.running.get(&transfer);
        running.is_some_and(|running| running.attempt == attempt)
    }

    fn copying(&self, transfer: TransferId, attempt: Attempt) -> Option<SimulatedCopy> {
        let running = self.running.get(&transfer)?;
        running.copies.filter(|_| running.attempt == attempt)
    }
}

impl World<'_> {
    pub(super) fn start(&mut self, assignment: Assignment) -> Result<(), BrokenInvariant> {
        let AttemptKey { transfer, attempt } = assignment.key();
        let Some(node) = self.nodes.reached(&assignment.to) else {
            return Ok(());
        };
        self.enter_destination(&assignment)?;
        if assignment.task == Task::TidyUp {
            self.runs(node, assignment, None)?;
            let next = Next::Stopped(transfer, attempt);
            self.agenda.add(self.now + STOPS_IN, next);
            return Ok(());
        }
        let Some(open) = self.books.open.get_mut(&transfer) else {
            return self.broken(format!("transfer {transfer} started after its end"));
        };
        let (link, vo, bytes) = (open.link, open.vo, open.bytes);
        if !std::mem::replace(&mut open.has_started, true) {
            self.measure.waited(vo, self.now - open.submitted);
        }
        let copying = SimulatedCopy {
            link,
            vo,
            bytes,
            since: self.now,
            began: self.now,
            is_settled: !assignment.unsettled,
            replaces: false,
            moves: false,
            is_stopping: false,
        };
        let hopeless = Hopeless::of(assignment.request.destination.as_str());
        self.runs(node, assignment, Some(copying))?;
        self.occupy(link, vo)?;
        if self.nodes.are_several() && self.is_crowded(node) {
            return self.broken(format!("transfer {transfer} starts on a node that is full"));
        }
        let link = &self.links[link];
        let ends = [link.ends.0, link.ends.1];
        let latency: f64 = ends
            .iter()
            .map(|end| self.plan.storages[*end].latency * self.storages[*end].slowness)
            .sum();
        let is_any =
            |what: fn(&super::Storage) -> bool| ends.iter().any(|end| what(&self.storages[*end]));
        let works: f64 = ends
            .iter()
            .map(|end| 1.0 - self.storages[*end].failures)
            .product();
        let (is_down, is_silent) = (is_any(|it| it.is_down), is_any(|it| it.speed <= 0.0));
        let looks = self.random.exponential((latency + link.opening).max(1e-3));
        let (after, next) = if is_down {
            (REFUSED_IN, Next::Fails(transfer, attempt, Trouble::Refused))
        } else if is_silent {
            let stall = self.plan.service.stall;
            (stall, Next::Fails(transfer, attempt, Trouble::Silent))
        } else if let Some(hopeless) = hopeless {
            let next = Next::Fails(transfer, attempt, Trouble::Hopeless(hopeless));
            (looks, next)
        } else if self.random.happens(1.0 - works) {
            (looks, Next::Fails(transfer, attempt, Trouble::Broken))
        } else if let Some((trouble, after)) = self.fault_of_ends(ends[0], ends[1]) {
            (looks + after, Next::Fails(transfer, attempt, trouble))
        } else {
            (looks, Next::Looked(transfer, attempt))
        };
        self.agenda.add(self.now + after, next);
        Ok(())
    }

    /// Whether a fault of a storage element lets an attempt fail, and after how many seconds.
    fn fault_of_ends(&mut self, source: usize, destination: usize) -> Option<(Trouble, f64)> {
        let (source, destination) = (&self.storages[source], &self.storages[destination]);
        let faults = [
            (source.reads_fail, Trouble::Broken),
            (destination.writes_fail, Trouble::Unwritable),
            (destination.is_full, Trouble::Full),
        ];
        faults.into_iter().find_map(|(failing, trouble)| {
            let failing = failing.filter(|failing| self.random.happens(failing.part))?;
            Some((trouble, self.random.exponential(failing.seconds)))
        })
    }

    fn runs(
        &mut self,
        node: usize,
        assignment: Assignment,
        copies: Option<SimulatedCopy>,
    ) -> Result<(), BrokenInvariant> {
        let transfer = assignment.request.id;
        let attempt = assignment.attempt;
        let is_kept = self.watch.is_some() || self.nodes.are_several();
        let running = SimulatedAttempt {
            attempt,
            node,
            copies,
            assignment: is_kept.then(|| Box::new(assignment)),
            waits: None,
            beside: None,
        };
        match self.agents.running.insert(transfer, running) {
            Some(_) => self.broken(format!("transfer {transfer} runs twice at once")),
            None => Ok(()),
        }
    }

    /// Counts one that begins, and compares it with what may.
    fn occupy(&mut self, link: usize, vo: usize) -> Result<(), BrokenInvariant> {
        let (source, destination) = self.links[link].ends;
        self.links[link].active += 1;
        self.storages[source].active.0 += 1;
        self.storages[destination].active.1 += 1;
        self.agents.count += 1;
        self.measure.occupied(link, self.links[link].active, vo);
        match self.too_many(link, self.counts(link)) {
            // Of those whose transfers have ended, a leader that has just come may not know yet.
            Some(_) if self.nodes.are_several() => {
                match self.too_many(link, self.open_counts(link)) {
                    Some(what) => self.broken(what),
                    None => Ok(()),
                }
            }
            Some(what) => self.broken(what),
            None => Ok(()),
        }
    }

    /// What runs where a transfer on this link would.
    pub(super) fn counts(&self, link: usize) -> Counts {
        let (source, destination) = self.links[link].ends;
        Counts {
            link: self.links[link].active,
            out: self.storages[source].active.0,
            into: self.storages[destination].active.1,
            all: self.agents.count,
        }
    }

    /// The same, of transfers that have not ended.
    fn open_counts(&self, link: usize) -> Counts {
        let (source, destination) = self.links[link].ends;
        let mut counts = Counts::default();
        let running = self.agents.running.iter();
        for (transfer, running) in running {
            let Some(copying) = running
                .copies
                .filter(|_| self.books.open.contains_key(transfer))
            else {
                continue;
            };
            let (from, to) = self.links[copying.link].ends;
            counts.link += u32::from(copying.link == link);
            counts.out += u32::from(from == source);
            counts.into += u32::from(to == destination);
            counts.all += 1;
        }
        counts
    }

    fn too_many(&self, link: usize, counts: Counts) -> Option<String> {
        let (source, destination) = self.links[link].ends;
        let storage_max = self.plan.service.storage_max;
        let bounds = [
            (
                counts.link,
                self.links[link].max,
                "on the link from",
                source,
            ),
            (counts.out, storage_max, "out of", source),
            (counts.into, storage_max, "into", destination),
            (
                counts.all,
                self.nodes.slots_in_all(),
                "in all, since a start out of",
                source,
            ),
        ];
        let over = bounds.into_iter().find(|(count, most, ..)| count > most);
        let (count, most, place, storage) = over?;
        let name = &self.plan.storages[storage].name;
        Some(format!(
            "{count} transfers run {place} {name}, where {most} may"
        ))
    }

    fn leave(&mut self, copying: &SimulatedCopy) {
        let (source, destination) = self.links[copying.link].ends;
        self.links[copying.link].active -= 1;
        self.storages[source].active.0 -= 1;
        self.storages[destination].active.1 -= 1;
        self.agents.count -= 1;
        let seconds = self.now - copying.since;
        self.measure.left(copying.link, copying.vo, seconds);
    }

    pub(super) fn looked(
        &mut self,
        transfer: TransferId,
        attempt: Attempt,
    ) -> Result<(), BrokenInvariant> {
        let Some(copying) = self.agents.copying(transfer, attempt) else {
            return Ok(());
        };
        if copying.is_stopping {
            return Ok(());
        }
        let seen = self.sight(transfer)?;
        if let Some(running) = self.agents.running.get_mut(&transfer) {
            running.beside = seen.beside;
            if let Some(copying) = &mut running.copies {
                copying.is_settled = seen.is_settled;
            }
        }
        let replaces = match seen.sight {
            Sight::Copy { replaces } => replaces,
            Sight::Occupied => return self.fail(transfer, attempt, Trouble::Occupied),
            Sight::Arrived => {
                let report = Box::default();
                let key = AttemptKey { transfer, attempt };
                return self.land(key, copying.bytes, None, report);
            }
            Sight::Fails(failure) => {
                self.measure.failed(self.now - copying.since);
                let cleaned = seen.is_settled;
                return self.end(
                    transfer,
                    attempt,
                    AttemptOutcome::Failed {
                        failure,
                        cleaned,
                        moved: Bytes(0),
                    },
                );
            }
        };
        let preflight = Preflight {
            size: Some(Bytes(copying.bytes as u64)),
            checksum: None,
            replaces,
        };
        let Some(running) = self.agents.running.get_mut(&transfer) else {
            return Ok(());
        };
        if let Some(copying) = &mut running.copies {
            copying.replaces = replaces;
        }
        running.waits = Some(preflight.clone());
        if !self.nodes.is_connected(running.node) {
            return Ok(());
        }
        self.feed(Input::Agent(AgentReport::Prepared {
            transfer,
            attempt,
            preflight,
        }))
    }

    fn sight(&mut self, transfer: TransferId) -> Result<AgentKnowledge, BrokenInvariant> {
        let running = self.agents.running.get(&transfer);
        match running.and_then(|running| running.assignment.clone()) {
            Some(assignment) => self.look_at_ends(&assignment),
            None => Ok(AgentKnowledge {
                sight: Sight::Copy { replaces: false },
                is_settled: true,
                beside: None,
            }),
        }
    }

    fn land(
        &mut self,
        AttemptKey { transfer, attempt }: AttemptKey,
        bytes: f64,
        mode: Option<CopyMode>,
        report: Box<MoverReport>,
    ) -> Result<(), BrokenInvariant> {
        let landed = AttemptOutcome::Landed {
            size: Bytes(bytes as u64),
            mode,
            report,
        };
        self.end(transfer, attempt, landed)
    }

    pub(super) fn proceed(&mut self, transfer: TransferId, attempt: Attempt) {
        let Some(running) = self.agents.running.get_mut(&transfer) else {
            return;
        };
        if running.attempt != attempt || !self.nodes.is_connected(running.node) {
            return;
        }
        let (waited, assignment) = (running.waits.take().is_some(), &running.assignment);
        let Some(copying) = running.copies.as_mut().filter(|_| waited) else {
            return;
        };
        if copying.is_stopping {
            return;
        }
        let (bytes, link, replaces) = (copying.bytes, copying.link, copying.replaces);
        let assignment = assignment.clone();
        if let Some(assignment) = &assignment
            && (self.is_occupied(assignment.request.destination.as_str())
                || (!replaces && self.refuses(assignment)))
        {
            let next = Next::Fails(transfer, attempt, Trouble::Occupied);
            self.agenda.add(self.now + REFUSED_IN, next);
            return;
        }
        let began = self.now;
        let running = self.agents.running.get_mut(&transfer);
        if let Some(copying) = running.and_then(|running| running.copies.as_mut()) {
            copying.moves = true;
            copying.began = began;
        }
        if let Some(assignment) = assignment.filter(|_| !replaces) {
            self.begin_to_write(&assignment);
        }
        let (from, to) = self.links[link].ends;
        let ends = Ends {
            from: (from, self.random.below(self.field.pools(from))),
            to: (to, self.random.below(self.field.pools(to))),
        };
        let lane = self.field.begin(transfer.0, ends, bytes, self.now);
        if self.field.is_outgrown(lane) {
            self.share();
        }
        self.foretell(lane);
        if self.stands_still(link) {
            let at = self.now + self.plan.service.stall;
            self.agenda.add(at, Next::Stalls(transfer, attempt, 0.0));
        }
    }

    fn stands_still(&self, link: usize) -> bool {
        let link = &self.links[link];
        let network = link
            .network
            .map_or(1.0, |network| self.network_speeds[network]);
        let ends = [link.ends.0, link.ends.1];
        network <= 0.0 || ends.iter().any(|end| self.storages[*end].speed <= 0.0)
    }

    /// What moves over something that stands still now gives up after a time.
    pub(super) fn watch_stalls(&mut self) {
        let at = self.now + self.plan.service.stall;
        for (transfer, running) in &self.agents.running {
            let Some(copying) = running.copies.filter(|copying| copying.moves) else {
                continue;
            };
            if self.stands_still(copying.link)
                && let Some(moved) = self.field.moved(transfer.0, self.now)
            {
                self.agenda
                    .add(at, Next::Stalls(*transfer, running.attempt, moved));
            }
        }
    }

    pub(super) fn stall(
        &mut self,
        transfer: TransferId,
        attempt: Attempt,
        moved: f64,
    ) -> Result<(), BrokenInvariant> {
        let stands = self.agents.copying(transfer, attempt).is_some();
        let now = self.field.moved(transfer.0, self.now);
        match stands && now.is_some_and(|now| now <= moved + 1.0) {
            true => self.fail(transfer, attempt, Trouble::Silent),
            false => Ok(()),
        }
    }

    /// What runs from or to a storage breaks.
    pub(super) fn break_at(&mut self, storage: usize) {
        for (transfer, running) in &self.agents.running {
            let Some(copying) = running.copies else {
                continue;
            };
            let (from, to) = self.links[copying.link].ends;
            if from == storage || to == storage {
                let next = Next::Fails(*transfer, running.attempt, Trouble::Refused);
                self.agenda.add(self.now + REFUSED_IN, next);
            }
        }
    }

    pub(super) fn arrive(&mut self, foretold: &PredictedArrival) -> Result<(), BrokenInvariant> {
        if !self.field.is_current(foretold) {
            return Ok(());
        }
        let mut arrived = Vec::new();
        for transfer in self.field.arrived(foretold.lane, self.now) {
            let transfer = TransferId(transfer);
            let running = self.agents.running.get(&transfer);
            let Some((attempt, Some(copying))) = running.map(|it| (it.attempt, it.copies)) else {
                return self.broken(format!("transfer {transfer} arrived and does not run"));
            };
            arrived.push((transfer, attempt, copying));
        }
        for (transfer, attempt, copying) in arrived {
            // Over the one before, its node may have been lost.
            if !self.agents.has(transfer, attempt) {
                self.measure.accounted(copying.bytes);
                continue;
            }
            self.measure
                .arrived(copying.link, copying.vo, copying.bytes);
            if let Some(assignment) = self.assignment(transfer) {
                self.written(&assignment, copying.replaces);
            }
            let copy = MovedFile {
                lane: foretold.lane,
                link: copying.link,
                bytes: copying.bytes,
                seconds: self.now - copying.began,
            };
            let report = self.mover_report(&copy);
            let mode = match self.plan.service.pushes {
                true => CopyMode::Push,
                false => CopyMode::Pull,
            };
            let key = AttemptKey { transfer, attempt };
            self.land(key, copying.bytes, Some(mode), report)?;
        }
        self.foretell(foretold.lane);
        Ok(())
    }

    pub(super) fn fail(
        &mut self,
        transfer: TransferId,
        attempt: Attempt,
        trouble: Trouble,
    ) -> Result<(), BrokenInvariant> {
        let Some(copying) = self.agents.copying(transfer, attempt) else {
            return Ok(());
        };
        if copying.is_stopping {
            return Ok(());
        }
        if let Some((lane, moved)) = self.field.stop(transfer.0, self.now) {
            self.measure.accounted(moved);
            self.foretell(lane);
        }
        if trouble == Trouble::Occupied {
            let running = self.agents.running.get(&transfer);
            let beside = running.and_then(|running| running.beside.clone());
            let Some(assignment) = self.assignment(transfer) else {
                return Ok(());
            };
            let outcome = self.refused(&assignment, beside.as_ref())?;
            self.measure.failed(self.now - copying.since);
            return self.end(transfer, attempt, outcome);
        }
        let phase = match copying.moves {
            true => Phase::Transfer,
            false => Phase::Preparation,
        };
        let (errno, detail) = told_of(trouble);
        let concern = match trouble {
            Trouble::Hopeless(Hopeless::Request) | Trouble::Occupied => Concern::Request,
            Trouble::Hopeless(Hopeless::Storage)
            | Trouble::Broken
            | Trouble::Unwritable
            | Trouble::Full
            | Trouble::Refused
            | Trouble::Silent => Concern::StorageElement,
        };
        let is_final = self.random.happens(self.plan.malice.final_failures);
        let failure = Failure {
            side: side_of(trouble),
            retry: if is_final { Retry::Never } else { Retry::Later },
            concern,
            phase,
            errno,
            detail: detail.to_owned(),
            found: None,
            busy: None,
            code: None,
        };
        let cleaned = match self.assignment(transfer) {
            Some(assignment) if copying.moves => {
                let running = self.agents.running.get(&transfer);
                let is_alone = running.is_none_or(|running| running.beside.is_none());
                self.ends_cleanly(&assignment, copying.replaces) && is_alone
            }
            _ => copying.is_settled,
        };
        self.measure.failed(self.now - copying.since);
        self.end(
            transfer,
            attempt,
            AttemptOutcome::Failed {
                failure,
                cleaned,
                moved: Bytes(0),
            },
        )
    }

    /// An agent removes what it wrote. True when nothing of it is left, and nothing will come: it is certain that the
    /// copy has ended.
    fn ends_cleanly(&mut self, assignment: &Assignment, replaces: bool) -> bool {
        let is_known_to_have_ended = self.random.happens(0.5);
        if !is_known_to_have_ended && self.strays_for_a_moment(assignment, replaces) {
            return false;
        }
        let is_removed = replaces || self.clean_up(assignment);
        is_removed && is_known_to_have_ended
    }

    fn assignment(&self, transfer: TransferId) -> Option<Box<Assignment>> {
        self.agents.running.get(&transfer)?.assignment.clone()
    }

    pub(super) fn stop(&mut self, transfer: TransferId) {
        let Some(running) = self.agents.running.get_mut(&transfer) else {
            return;
        };
        if !self.nodes.is_connected(running.node) {
            return;
        }
        if let Some(copying) = &mut running.copies {
            copying.is_stopping = true;
        }
        let next = Next::Stopped(transfer, running.attempt);
        self.agenda.add(self.now + STOPS_IN, next);
        if let Some((lane, moved)) = self.field.stop(transfer.0, self.now) {
            self.measure.accounted(moved);
            self.foretell(lane);
        }
    }

    pub(super) fn stopped(
        &mut self,
        transfer: TransferId,
        attempt: Attempt,
    ) -> Result<(), BrokenInvariant> {
        let running = match self.agents.running.get(&transfer) {
            Some(running) if running.attempt == attempt => running.clone(),
            _ => return Ok(()),
        };
        let outcome = match (running.copies, &running.assignment) {
            (Some(copying), Some(assignment)) if copying.moves => {
                let is_clean = self.ends_cleanly(assignment, copying.replaces);
                match is_clean && running.beside.is_none() {
                    true => AttemptOutcome::Stopped,
                    false => AttemptOutcome::Unsettled,
                }
            }
            (Some(copying), Some(_)) if !copying.is_settled => AttemptOutcome::Unsettled,
            (Some(_), _) => AttemptOutcome::Stopped,
            (None, Some(assignment)) => match self.tidy_up(assignment)? {
                None => AttemptOutcome::Tidied,
                Some(failure) => AttemptOutcome::Untidied { failure },
            },
            (None, None) => AttemptOutcome::Tidied,
        };
        self.end(transfer, attempt, outcome)
    }

    fn end(
        &mut self,
        transfer: TransferId,
        attempt: Attempt,
        outcome: AttemptOutcome,
    ) -> Result<(), BrokenInvariant> {
        let Some(running) = self.agents.running.remove(&transfer) else {
            return Ok(());
        };
        if let (Some(watch), Some(copying), AttemptOutcome::Failed { .. }) =
            (&mut self.watch, running.copies, &outcome)
        {
            watch.failed.insert(copying.link);
        }
        self.leave_slots(&running);
        self.tell_end(running.node, transfer, attempt, outcome)
    }

    /// What runs has held its slots until now.
    pub(super) fn count_running(&mut self) {
        for copying in self
            .agents
            .running
            .values()
            .filter_map(|running| running.copies)
        {
            let seconds = self.now - copying.since;
            self.measure.left(copying.link, copying.vo, seconds);
        }
    }

    /// An agent is not there any more.
    fn leave_slots(&mut self, running: &SimulatedAttempt) {
        if let Some(assignment) = &running.assignment {
            self.leave_destination(assignment);
        }
        if let Some(copying) = &running.copies {
            self.leave(copying);
        }
    }

    /// All agents of a node are gone from where they stood. Which.
    pub(super) fn lose_agents(&mut self, node: usize) -> Vec<AttemptKey> {
        let lost = self.agents.on(node).map(|(id, running)| AttemptKey {
            transfer: *id,
            attempt: running.attempt,
        });
        let lost: Vec<_> = lost.collect();
        for key in &lost {
            self.lose_agent(key.transfer, key.attempt);
        }
        lost
    }

    /// An agent is gone from where it stood.
    pub(super) fn lose_agent(&mut self, transfer: TransferId, attempt: Attempt) {
        if !self.agents.has(transfer, attempt) {
            return;
        }
        let Some(running) = self.agents.running.remove(&transfer) else {
            return;
        };
        if let Some((lane, moved)) = self.field.stop(transfer.0, self.now) {
            self.measure.accounted(moved);
            self.foretell(lane);
        }
        if let Some(copying) = running.copies {
            self.measure.lost(self.now - copying.since);
            if let Some(assignment) = running.assignment.as_ref().filter(|_| copying.moves) {
                self.orphan(assignment, copying.replaces, copying.began);
            }
        }
        self.leave_slots(&running);
    }
}

/// What an agent is told.
fn told_of(trouble: Trouble) -> (Errno, &'static str) {
    match trouble {
        Trouble::Occupied => (Errno::EEXIST, "something is there"),
        Trouble::Broken => (Errno::EIO, "the file cannot be read"),
        Trouble::Unwritable => (Errno::EIO, "the file cannot be written"),
        Trouble::Full => (Errno::ENOSPC, "no space left on device"),
        Trouble::Refused => (
            Errno::ECONNREFUSED,
            "the storage element refuses connections",
        ),
        Trouble::Silent => (Errno::ETIMEDOUT, "no byte has moved for a long time"),
        Trouble::Hopeless(Hopeless::Request) => (Errno::EAGAIN, "the destination is below a file"),
        Trouble::Hopeless(Hopeless::Storage) => {
            (Errno::EIO, "the storage element answers with an error")
        }
    }
}

fn side_of(trouble: Trouble) -> Side {
    match trouble {
        Trouble::Unwritable | Trouble::Full => Side::Destination,
        Trouble::Occupied
        | Trouble::Broken
        | Trouble::Refused
        | Trouble::Silent
        | Trouble::Hopeless(_) => Side::Source,
    }
}
