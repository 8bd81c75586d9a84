//! Which transfers start next, and why the others wait.
//!
//! Holds the queue in memory as a pure data structure: links with their waiting transfers, and the slots that
//! links, storage elements and agents have. The cost of a pass grows with the transfers it starts and the slots
//! that became free, never with the backlog: a link that cannot start anything leaves the round until the very
//! slot it lacks is given back. It knows no clock, no files and no persistence.

mod line;
mod queue;
#[cfg(test)]
mod tests;

use crate::shares::Shares;
use line::{Offer, VoLines};
use penstock_model::{
    ANY, Access, Activity, LinkId, Priority, Slots, StorageId, TransferId, VoName, WaitReason,
};
use queue::{LinkQueue, Standing};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// How many transfers may run where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotLimits {
    /// On each link that has no limit of its own.
    pub link: Slots,
    /// Out of each storage element, over all links, unless it has a limit of its own.
    pub storage_outbound: Slots,
    /// Into each storage element, over all links, unless it has a limit of its own.
    pub storage_inbound: Slots,
    /// In this service, over everything.
    pub agents: Slots,
    /// In this service, over all links that need gfal2, because each such transfer has a process of its own.
    pub gfal: Slots,
    /// Links with a limit of their own. Either end may be `*`; the most specific pattern counts.
    pub links: BTreeMap<LinkId, Slots>,
    /// Storage elements with limits of their own: outbound, inbound.
    pub storages: BTreeMap<StorageId, (Slots, Slots)>,
}

impl Default for SlotLimits {
    fn default() -> Self {
        SlotLimits {
            link: Slots(50),
            storage_outbound: Slots(200),
            storage_inbound: Slots(200),
            agents: Slots(500),
            gfal: Slots(50),
            links: BTreeMap::new(),
            storages: BTreeMap::new(),
        }
    }
}

/// What must be known of a transfer to queue it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Which transfer.
    pub transfer: TransferId,
    /// Between which storage elements.
    pub link: LinkId,
    /// On whose behalf.
    pub vo: VoName,
    /// Its share label.
    pub activity: Activity,
    /// How urgent.
    pub priority: Priority,
}

impl Waiting {
    fn standing(&self) -> Standing<'_> {
        Standing {
            vo: &self.vo,
            activity: &self.activity,
            priority: self.priority,
            transfer: self.transfer,
        }
    }
}

/// One link as the scheduler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkView {
    /// Which link.
    pub link: LinkId,
    /// Running.
    pub active: Slots,
    /// May run: what operators allow, or less where the service finds that better.
    pub limit: Slots,
    /// What operators allow.
    pub limit_max: Slots,
    /// Waiting and allowed to start now.
    pub queued: u64,
    /// Why the first of them has not started; `None` when nothing waits.
    pub because: Option<WaitReason>,
}

/// Where the service may find fewer slots better than operators allow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TunedPlace {
    /// On a link.
    Link(LinkId),
    /// Out of a storage element, over all its links.
    Outbound(StorageId),
    /// Into a storage element, over all its links.
    Inbound(StorageId),
}

/// One storage element as the scheduler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageView {
    /// Which storage element.
    pub storage: StorageId,
    /// Transfers that read from it, and how many may.
    pub outbound: (Slots, Slots),
    /// Transfers that write to it, and how many may.
    pub inbound: (Slots, Slots),
}

type LinkIndex = usize;
type StorageIndex = usize;

/// Slots of one kind, with the links that wait for one of them in the order in which they asked.
#[derive(Debug, Default)]
struct Pool {
    active: u32,
    /// What operators allow.
    limit: u32,
    /// What the service finds best.
    tuned: Option<u32>,
    waiters: VecDeque<LinkIndex>,
    /// In the place of `waiters`, where slots go by shares.
    by_share: Option<VoLines>,
}

impl Pool {
    fn has_room(&self) -> bool {
        self.active < self.in_effect()
    }

    /// How many may run.
    fn in_effect(&self) -> u32 {
        in_effect(self.limit, self.tuned)
    }

    /// The slots that are tuned and allowed, when it is the tuning that leaves no room.
    fn tuned_out(&self) -> Option<(Slots, Slots)> {
        tuned_out(self.active, self.limit, self.tuned)
    }

    fn is_waited_for(&self) -> bool {
        let by_share = self.by_share.as_ref();
        !self.waiters.is_empty() || by_share.is_some_and(|lines| !lines.is_empty())
    }
}

/// What is tuned never raises what operators allow, and never stops what they let run.
fn in_effect(limit: u32, tuned: Option<u32>) -> u32 {
    tuned.map_or(limit, |tuned| tuned.max(1).min(limit))
}

fn tuned_out(active: u32, limit: u32, tuned: Option<u32>) -> Option<(Slots, Slots)> {
    let effective = in_effect(limit, tuned);
    (active < limit && active >= effective).then_some((Slots(effective), Slots(limit)))
}

/// Which pool of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PoolId {
    Agents,
    Gfal,
    Outbound(StorageIndex),
    Inbound(StorageIndex),
}

#[derive(Debug)]
struct Link {
    id: LinkId,
    source: StorageIndex,
    destination: StorageIndex,
    access: Access,
    active: u32,
    /// What operators allow.
    limit: u32,
    /// What the service finds best.
    tuned: Option<u32>,
    queue: LinkQueue,
    gate: Gate,
    place: Place,
}

impl Link {
    fn has_room(&self) -> bool {
        self.active < self.in_effect()
    }

    /// How many may run.
    fn in_effect(&self) -> u32 {
        in_effect(self.limit, self.tuned)
    }

    /// What each transfer on it holds a slot of.
    fn pools(&self) -> impl Iterator<Item = PoolId> + use<> {
        let gfal = match self.access {
            Access::Http | Access::Cloud => None,
            Access::Gfal => Some(PoolId::Gfal),
        };
        let (outbound, inbound) = (self.source, self.destination);
        [
            PoolId::Agents,
            PoolId::Outbound(outbound),
            PoolId::Inbound(inbound),
        ]
        .into_iter()
        .chain(gfal)
    }
}

/// Whether a link may start anything, whatever its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Gate {
    Open,
    /// One transfer may pass.
    Ajar(WaitReason),
    Shut(WaitReason),
}

/// Where a link is in the scheduler's round. Each link is in exactly one place.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Nothing waits.
    Idle,
    /// In the round: it will be looked at in the next pass.
    Round,
    /// Waits for one of its own slots, or for its gate.
    Full(WaitReason),
    /// Waits for a slot of a pool that it shares with other links.
    Parked(WaitReason, PoolId),
}

/// The scheduler: all waiting and running transfers of this service.
#[derive(Debug)]
pub struct Scheduler {
    limits: SlotLimits,
    shares: Shares,
    links: Vec<Link>,
    link_index: HashMap<LinkId, LinkIndex>,
    storages: Vec<(StorageId, Pool, Pool)>,
    storage_index: HashMap<StorageId, StorageIndex>,
    agents: Pool,
    gfal: Pool,
    round: VecDeque<LinkIndex>,
    /// Pools that got a slot back while links wait for it.
    freed: VecDeque<PoolId>,
    /// Those of them whose slots go by shares: to be offered when every link has taken its place in the lines.
    offering: VecDeque<PoolId>,
    draining: bool,
    drained: bool,
}

impl Scheduler {
    /// An empty one.
    pub fn new(limits: SlotLimits) -> Scheduler {
        let pool = |limit: Slots| Pool {
            limit: limit.0,
            ..Pool::default()
        };
        let (agents, gfal) = (pool(limits.agents), pool(limits.gfal));
        Scheduler {
            limits,
            shares: Shares::default(),
            links: Vec::new(),
            link_index: HashMap::new(),
            storages: Vec::new(),
            storage_index: HashMap::new(),
            agents,
            gfal,
            round: VecDeque::new(),
            freed: VecDeque::new(),
            offering: VecDeque::new(),
            draining: false,
            drained: false,
        }
    }

    /// Queues a transfer that may start as soon as there are slots for it.
    pub fn enqueue(&mut self, waiting: Waiting) {
        let index = self.link_at(&waiting.link);
        let link = &mut self.links[index];
        link.queue.push(waiting.standing(), &self.shares);
        match link.place {
            Place::Idle => {
                link.place = Place::Round;
                self.round.push_back(index);
            }
            Place::Parked(_, pool) => {
                if let Some(lines) = &mut self.pool(pool).by_share {
                    lines.join(&waiting.vo, index);
                }
            }
            Place::Round | Place::Full(_) => {}
        }
    }

    /// Takes a waiting transfer out. False when it was not waiting here.
    pub fn remove(&mut self, waiting: &Waiting) -> bool {
        let Some(&index) = self.link_index.get(&waiting.link) else {
            return false;
        };
        self.links[index].queue.remove(waiting.standing())
    }

    /// The shares in effect.
    pub fn shares(&self) -> &Shares {
        &self.shares
    }

    /// Changes all shares at once, while everything runs. What waits is ordered anew, for which its share labels are
    /// asked for; that takes time for each that waits, which a change of shares may.
    pub fn set_shares(&mut self, shares: Shares, activity_of: impl Fn(TransferId) -> Activity) {
        if shares == self.shares {
            return;
        }
        self.shares = shares;
        for link in &mut self.links {
            let all = link.queue.take_all();
            link.queue = LinkQueue::new(&link.id, &self.shares);
            for (vo, priority, transfer) in all {
                let standing = Standing {
                    vo: &vo,
                    activity: &activity_of(transfer),
                    priority,
                    transfer,
                };
                link.queue.push(standing, &self.shares);
            }
        }
        self.wait_anew();
    }

    /// All links that wait for slots join the round, because the lines in which they stood are others now.
    fn wait_anew(&mut self) {
        for (storage, outbound, inbound) in &mut self.storages {
            outbound.waiters.clear();
            inbound.waiters.clear();
            let weights = self.shares.at_destination(storage);
            inbound.by_share = weights.cloned().map(VoLines::new);
        }
        self.agents.waiters.clear();
        self.gfal.waiters.clear();
        for (index, link) in self.links.iter_mut().enumerate() {
            if matches!(link.place, Place::Full(_) | Place::Parked(..)) {
                link.place = Place::Round;
                self.round.push_back(index);
            }
        }
    }

    /// Gives the slots of a transfer back that [`Scheduler::start_next`] had started.
    pub fn release(&mut self, link: &LinkId) {
        let Some(&index) = self.link_index.get(link) else {
            return;
        };
        self.links[index].active -= 1;
        for pool in self.links[index].pools() {
            self.pool(pool).active -= 1;
            self.freed.push_back(pool);
        }
        self.recheck(index);
    }

    /// Takes the slots of a transfer that has been started before: by another scheduler, whose work this one continues.
    /// They may be more than there are now.
    pub fn occupy(&mut self, link: &LinkId) {
        let index = self.link_at(link);
        self.links[index].active += 1;
        for pool in self.links[index].pools() {
            self.pool(pool).active += 1;
        }
    }

    /// Starts one transfer, if any may start: takes its slots and returns it. Call until it returns `None`.
    pub fn start_next(&mut self) -> Option<TransferId> {
        if self.is_drained() {
            return None;
        }
        loop {
            self.wake_waiters();
            let Some(index) = self.round.pop_front() else {
                match self.offer_slots() {
                    true => continue,
                    false => return None,
                }
            };
            let into = PoolId::Inbound(self.links[index].destination);
            let lines = self.pool(into).by_share.as_mut();
            let offered = lines.and_then(|lines| lines.take_offer(index));
            if self.links[index].queue.is_empty() {
                self.links[index].place = Place::Idle;
                self.pass_on(index);
                continue;
            }
            if let Some((reason, shared)) = self.obstacle(index) {
                self.set_aside(index, reason, shared);
                continue;
            }
            if offered.is_none() && self.pool(into).by_share.is_some() {
                // There is room, but who gets it is decided when all who want it stand in line.
                self.set_aside(index, WaitReason::Starting, Some(into));
                continue;
            }
            let link = &mut self.links[index];
            let next = match offered {
                // When nothing of that VO waits here any more, something else uses the slot.
                Some(Offer::Of(vo)) => link.queue.pop_of(&vo).map(|transfer| (vo, transfer)),
                Some(Offer::Anything) | None => None,
            };
            let (vo, transfer) = next
                .or_else(|| link.queue.pop())
                .expect("the queue was not empty a few lines ago");
            link.active += 1;
            if let Gate::Ajar(reason) = &link.gate {
                link.gate = Gate::Shut(reason.clone());
            }
            let destination = link.destination;
            for pool in self.links[index].pools() {
                self.pool(pool).active += 1;
            }
            if let Some(lines) = &mut self.storages[destination].2.by_share {
                lines.had(&vo);
                // The next slot can be offered now.
                self.freed.push_back(into);
            }
            // Back to the end of the round, so that links take turns.
            self.round.push_back(index);
            return Some(transfer);
        }
    }

    /// Changes all limits at once, while everything runs.
    pub fn set_limits(&mut self, limits: SlotLimits) {
        self.agents.limit = limits.agents.0;
        self.gfal.limit = limits.gfal.0;
        for (storage, outbound, inbound) in &mut self.storages {
            let (out, into) = storage_limits(&limits, storage);
            outbound.limit = out;
            inbound.limit = into;
        }
        for link in &mut self.links {
            link.limit = link_limit(&limits, &link.id);
        }
        self.limits = limits;
        let pools =
            (0..self.storages.len()).flat_map(|at| [PoolId::Outbound(at), PoolId::Inbound(at)]);
        self.freed = [PoolId::Agents, PoolId::Gfal]
            .into_iter()
            .chain(pools)
            .collect();
        (0..self.links.len()).for_each(|index| self.recheck(index));
    }

    /// Runs so many at most where the service finds that better than what operators allow; `None`: as they allow.
    pub fn set_tuned(&mut self, place: &TunedPlace, slots: Option<Slots>) {
        let tuned = slots.map(|slots| slots.0);
        match place {
            TunedPlace::Link(link) => {
                let index = self.link_at(link);
                self.links[index].tuned = tuned;
                self.recheck(index);
            }
            TunedPlace::Outbound(storage) => {
                let at = self.storage_at(storage);
                self.storages[at].1.tuned = tuned;
                self.freed.push_back(PoolId::Outbound(at));
            }
            TunedPlace::Inbound(storage) => {
                let at = self.storage_at(storage);
                self.storages[at].2.tuned = tuned;
                self.freed.push_back(PoolId::Inbound(at));
            }
        }
    }

    /// Starts nothing more on this link, for this reason; what runs may end.
    pub fn halt(&mut self, link: &LinkId, because: WaitReason) {
        let index = self.link_at(link);
        self.links[index].gate = Gate::Shut(because);
        self.recheck(index);
    }

    /// Lets one transfer pass on a link that is halted.
    pub fn let_one_pass(&mut self, link: &LinkId) {
        let index = self.link_at(link);
        if let Gate::Shut(reason) = &self.links[index].gate {
            self.links[index].gate = Gate::Ajar(reason.clone());
        }
        self.recheck(index);
    }

    /// Starts transfers on this link again.
    pub fn reopen(&mut self, link: &LinkId) {
        let index = self.link_at(link);
        self.links[index].gate = Gate::Open;
        self.recheck(index);
    }

    /// Starts nothing more before the end of this process; what runs may end.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Starts nothing more while `drained`; what runs may end.
    pub fn set_drained(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// Whether nothing more is begun.
    pub fn is_drained(&self) -> bool {
        self.draining || self.drained
    }

    /// Why nothing is begun; `None` when it is.
    pub fn why_nothing_begins(&self) -> Option<WaitReason> {
        match (self.draining, self.drained) {
            (true, _) => Some(WaitReason::Draining),
            (false, true) => Some(WaitReason::Drained),
            (false, false) => None,
        }
    }

    /// Why a waiting transfer of this link has not started.
    pub fn why_waiting(&self, link: &LinkId) -> WaitReason {
        if let Some(reason) = self.why_nothing_begins() {
            return reason;
        }
        match self
            .link_index
            .get(link)
            .map(|&index| &self.links[index].place)
        {
            // It stood in line for a slot that another one took.
            Some(Place::Parked(WaitReason::Starting, _)) => {
                let obstacle = self.obstacle(self.link_index[link]);
                obstacle.map_or(WaitReason::Starting, |(reason, _)| reason)
            }
            Some(Place::Full(reason) | Place::Parked(reason, _)) => reason.clone(),
            Some(Place::Idle | Place::Round) | None => WaitReason::Starting,
        }
    }

    /// Why a waiting transfer has not started, with its share of the slots that there are too few of.
    pub fn why_this_waits(&self, waiting: &Waiting) -> WaitReason {
        let because = self.why_waiting(&waiting.link);
        let Some(&index) = self.link_index.get(&waiting.link) else {
            return because;
        };
        let link = &self.links[index];
        let vo_percent = match &because {
            WaitReason::LinkFull { .. } | WaitReason::LinkTuned { .. } => {
                link.queue.percent_of_vo(&waiting.vo)
            }
            WaitReason::DestinationFull { .. } | WaitReason::DestinationTuned { .. } => {
                let lines = self.storages[link.destination].2.by_share.as_ref();
                lines.and_then(|lines| lines.percent(&waiting.vo))
            }
            WaitReason::SourceFull { .. }
            | WaitReason::SourceTuned { .. }
            | WaitReason::AgentsFull { .. }
            | WaitReason::GfalFull { .. } => None,
            _ => return because,
        };
        let activity_percent = link
            .queue
            .percent_of_activity(&waiting.vo, &waiting.activity);
        if vo_percent.is_none() && activity_percent.is_none() {
            return because;
        }
        WaitReason::ByShare {
            because: Box::new(because),
            vo: waiting.vo.clone(),
            vo_percent,
            activity_percent,
        }
    }

    /// All links that run or wait, in the order in which they were first seen.
    pub fn links(&self) -> impl Iterator<Item = LinkView> + '_ {
        self.links.iter().map(|link| LinkView {
            link: link.id.clone(),
            active: Slots(link.active),
            limit: Slots(link.in_effect()),
            limit_max: Slots(link.limit),
            queued: link.queue.len(),
            because: (!link.queue.is_empty()).then(|| self.why_waiting(&link.id)),
        })
    }

    /// All storage elements that were ever part of a link.
    pub fn storages(&self) -> impl Iterator<Item = StorageView> + '_ {
        let slots = |pool: &Pool| (Slots(pool.active), Slots(pool.in_effect()));
        self.storages
            .iter()
            .map(move |(storage, outbound, inbound)| StorageView {
                storage: storage.clone(),
                outbound: slots(outbound),
                inbound: slots(inbound),
            })
    }

    /// Transfers that wait on a link and may start as soon as there are slots for them.
    pub fn queued(&self, link: &LinkId) -> u64 {
        let index = self.link_index.get(link);
        index.map_or(0, |&index| self.links[index].queue.len())
    }

    /// Transfers that run on a link.
    pub fn active(&self, link: &LinkId) -> Slots {
        let index = self.link_index.get(link);
        Slots(index.map_or(0, |&index| self.links[index].active))
    }

    /// Transfers that run in all, and how many may.
    pub fn agents(&self) -> (Slots, Slots) {
        (Slots(self.agents.active), Slots(self.agents.limit))
    }

    /// What keeps the link from starting one more, and the shared pool that it lacks a slot of.
    fn obstacle(&self, index: LinkIndex) -> Option<(WaitReason, Option<PoolId>)> {
        let link = &self.links[index];
        let (source, outbound, _) = &self.storages[link.source];
        let (destination, _, inbound) = &self.storages[link.destination];
        if let Gate::Shut(reason) = &link.gate {
            return Some((reason.clone(), None));
        }
        if !link.has_room() {
            let (active, limit) = (Slots(link.active), Slots(link.limit));
            let reason = match tuned_out(link.active, link.limit, link.tuned) {
                Some((tuned, limit)) => WaitReason::LinkTuned {
                    active,
                    tuned,
                    limit,
                },
                None => WaitReason::LinkFull { active, limit },
            };
            return Some((reason, None));
        }
        if !outbound.has_room() {
            let (storage, active) = (source.clone(), Slots(outbound.active));
            let limit = Slots(outbound.limit);
            let reason = match outbound.tuned_out() {
                Some((tuned, limit)) => WaitReason::SourceTuned {
                    storage,
                    active,
                    tuned,
                    limit,
                },
                None => WaitReason::SourceFull {
                    storage,
                    active,
                    limit,
                },
            };
            return Some((reason, Some(PoolId::Outbound(link.source))));
        }
        if !inbound.has_room() {
            let (storage, active) = (destination.clone(), Slots(inbound.active));
            let limit = Slots(inbound.limit);
            let reason = match inbound.tuned_out() {
                Some((tuned, limit)) => WaitReason::DestinationTuned {
                    storage,
                    active,
                    tuned,
                    limit,
                },
                None => WaitReason::DestinationFull {
                    storage,
                    active,
                    limit,
                },
            };
            return Some((reason, Some(PoolId::Inbound(link.destination))));
        }
        if !self.agents.has_room() {
            let (active, limit) = self.agents();
            return Some((
                WaitReason::AgentsFull { active, limit },
                Some(PoolId::Agents),
            ));
        }
        if link.access == Access::Gfal && !self.gfal.has_room() {
            let (active, limit) = (Slots(self.gfal.active), Slots(self.gfal.limit));
            let reason = WaitReason::GfalFull { active, limit };
            return Some((reason, Some(PoolId::Gfal)));
        }
        None
    }

    fn set_aside(&mut self, index: LinkIndex, reason: WaitReason, shared: Option<PoolId>) {
        match shared {
            None => self.links[index].place = Place::Full(reason),
            Some(id) => {
                self.links[index].place = Place::Parked(reason, id);
                let vos: Vec<VoName> = self.links[index].queue.vos().cloned().collect();
                let pool = self.pool(id);
                match &mut pool.by_share {
                    Some(lines) => vos.iter().for_each(|vo| lines.join(vo, index)),
                    None => pool.waiters.push_back(index),
                }
            }
        }
        self.pass_on(index);
    }

    /// A link that was woken for a slot but does not use it leaves that slot to the next one that waits.
    fn pass_on(&mut self, index: LinkIndex) {
        for pool in self.links[index].pools() {
            let pool_of = self.pool(pool);
            if pool_of.has_room() && pool_of.is_waited_for() {
                self.freed.push_back(pool);
            }
        }
    }

    /// Moves links that wait for freed slots back into the round, as many as there are slots.
    fn wake_waiters(&mut self) {
        while let Some(id) = self.freed.pop_front() {
            let pool = self.pool(id);
            if pool.by_share.is_some() {
                self.offering.push_back(id);
                continue;
            }
            let room = pool.in_effect().saturating_sub(pool.active) as usize;
            let woken: Vec<LinkIndex> =
                pool.waiters.drain(..room.min(pool.waiters.len())).collect();
            for index in woken {
                self.links[index].place = Place::Round;
                self.round.push_back(index);
            }
        }
    }

    /// Lets those links join the round who get slots that go by shares. False when there are none.
    fn offer_slots(&mut self) -> bool {
        while let Some(id) = self.offering.pop_front() {
            let PoolId::Inbound(at) = id else {
                continue;
            };
            let links = &self.links;
            let could_use = |index: LinkIndex| {
                let link: &Link = &links[index];
                let room = link.in_effect().saturating_sub(link.active);
                link.queue.len().min(u64::from(room))
            };
            let pool = &mut self.storages[at].2;
            let room = pool.in_effect().saturating_sub(pool.active);
            let Some(lines) = &mut pool.by_share else {
                continue;
            };
            let offered = lines.offer(room, could_use, |index, vo| links[index].queue.holds(vo));
            for &index in &offered {
                self.links[index].place = Place::Round;
                self.round.push_back(index);
            }
            if !offered.is_empty() {
                return true;
            }
        }
        false
    }

    /// Puts a link that waited for its own slots or its gate back into the round.
    fn recheck(&mut self, index: LinkIndex) {
        let link = &mut self.links[index];
        if matches!(link.place, Place::Full(_)) {
            link.place = Place::Round;
            self.round.push_back(index);
        }
    }

    fn pool(&mut self, id: PoolId) -> &mut Pool {
        match id {
            PoolId::Agents => &mut self.agents,
            PoolId::Gfal => &mut self.gfal,
            PoolId::Outbound(at) => &mut self.storages[at].1,
            PoolId::Inbound(at) => &mut self.storages[at].2,
        }
    }

    fn link_at(&mut self, id: &LinkId) -> LinkIndex {
        if let Some(&index) = self.link_index.get(id) {
            return index;
        }
        let source = self.storage_at(&id.source);
        let destination = self.storage_at(&id.destination);
        let limit = link_limit(&self.limits, id);
        self.links.push(Link {
            id: id.clone(),
            source,
            destination,
            access: id.access(),
            active: 0,
            limit,
            tuned: None,
            queue: LinkQueue::new(id, &self.shares),
            gate: Gate::Open,
            place: Place::Idle,
        });
        self.link_index.insert(id.clone(), self.links.len() - 1);
        self.links.len() - 1
    }

    fn storage_at(&mut self, id: &StorageId) -> StorageIndex {
        if let Some(&index) = self.storage_index.get(id) {
            return index;
        }
        let (outbound, inbound) = storage_limits(&self.limits, id);
        let pool = |limit| Pool {
            limit,
            ..Pool::default()
        };
        let mut inbound = pool(inbound);
        inbound.by_share = self.shares.at_destination(id).cloned().map(VoLines::new);
        self.storages.push((id.clone(), pool(outbound), inbound));
        self.storage_index
            .insert(id.clone(), self.storages.len() - 1);
        self.storages.len() - 1
    }
}

fn link_limit(limits: &SlotLimits, link: &LinkId) -> u32 {
    let patterns = most_specific_first(link);
    let own = patterns
        .iter()
        .find_map(|pattern| limits.links.get(pattern));
    own.copied().unwrap_or(limits.link).0
}

/// The patterns that a link fits, in the order in which they count: as FTS orders them.
pub(crate) fn most_specific_first(link: &LinkId) -> [LinkId; 4] {
    let any = || StorageId::new(ANY);
    let pattern = |source: StorageId, destination: StorageId| LinkId {
        source,
        destination,
    };
    [
        link.clone(),
        pattern(link.source.clone(), any()),
        pattern(any(), link.destination.clone()),
        pattern(any(), any()),
    ]
}

fn storage_limits(limits: &SlotLimits, storage: &StorageId) -> (u32, u32) {
    let own = limits.storages.get(storage).copied();
    let (outbound, inbound) = own.unwrap_or((limits.storage_outbound, limits.storage_inbound));
    (outbound.0, inbound.0)
}
