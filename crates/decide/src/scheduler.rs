//! Which transfers start next, and why the others wait.
//!
//! Holds the queue in memory as a pure data structure: links with their waiting transfers, and the slots that links,
//! storage elements and agents have. The cost of a pass grows with the transfers it starts and the slots that became
//! free, never with the backlog: a link that cannot start anything leaves the round until the very slot it lacks is
//! given back. It knows no clock, no files and no persistence.
//!
//! Scarce slots are shared by slot-time: among VOs, then activities, then users. Each start is charged with its
//! predicted time, which its end corrects.
//!
//! Long because starting, adopting and releasing a transfer change the same places, and each step must leave them
//! consistent.

mod aged;
mod flow_metering;
mod forgetting;
mod limits;
mod numbered;
mod place;
mod queue;
mod rate;
mod reasons;
mod slot_queue;
#[cfg(test)]
mod tests;

pub use aged::PRIORITY_HEAD_START_MS;
pub use forgetting::ForgottenPlaces;
pub use limits::{DrainedPlaces, RateCaps, SlotLimits, SlotUse, StorageSlots};

use crate::halting::{LinkCotenants, TransferOwner};
use crate::prediction::{Durations, SizeClass};
use crate::shares::Shares;
use crate::turns::GrantedTurn;
use aged::{Backlog, Rank};
use flow_metering::FileProfile;
use numbered::NumberedSet;
use penstock_model::{
    Access, Activity, Bytes, LinkId, NoSlot, Priority, SlotBound, SlotPlace, Slots, StorageId,
    Timestamp, TransferId, TunedPlace, UserName, VoName, WaitReason,
};
use place::{Count, SharedPlace};
use queue::{LinkQueue, Payers, QueuePosition};
use rate::{Flow, RateGate};
use slot_queue::WaitingLinks;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// How often a link lets go of a slot because it needs another kind as well, before the slot is kept for it.
const LET_GO_MAX: u32 = 4;

/// What must be known of a transfer to queue it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEntry {
    pub transfer: TransferId,
    /// Between which storage elements.
    pub link: LinkId,
    /// On whose behalf.
    pub vo: VoName,
    /// Its share label.
    pub activity: Activity,
    pub user: UserName,
    /// How urgent.
    pub priority: Priority,
    /// When it was submitted.
    pub since: Timestamp,
    /// What the user says of its size.
    pub size: Option<Bytes>,
}

impl QueueEntry {
    fn standing(&self) -> QueuePosition<'_> {
        QueuePosition {
            vo: &self.vo,
            activity: &self.activity,
            user: &self.user,
            rank: Rank::of(self.transfer, self.priority, self.since),
        }
    }
}

/// The slots of a transfer that runs. They are given back with [`Scheduler::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "slots that are not given back stay taken"]
pub struct TakenSlots {
    link: LinkIndex,
    payers: Payers,
    turn: GrantedTurn,
    /// It ran before this scheduler knew of it: from how long that was nothing can be learnt.
    is_adopted: bool,
}

impl TakenSlots {
    /// On whose behalf it runs.
    pub fn party(&self) -> TransferOwner {
        self.payers.party()
    }

    /// The link whose slots they are.
    pub fn link(&self) -> LinkNumber {
        number_of(self.link)
    }
}

/// A transfer that may begin.
#[derive(Debug, PartialEq, Eq)]
pub struct DispatchedTransfer {
    pub transfer: TransferId,
    pub taken: TakenSlots,
}

/// For how long slots were held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotTime {
    /// From the start on.
    pub took: Duration,
    /// Of the file that was brought; `None`: none was, and nothing is to be learnt for others.
    pub brought: Option<Bytes>,
    /// It failed by its user's own doing: it costs what the file would have cost, so that failing fast buys no turns.
    pub is_own_fault: bool,
}

impl SlotTime {
    /// Not at all: it did not run.
    pub const NOT: SlotTime = SlotTime {
        took: Duration::ZERO,
        brought: None,
        is_own_fault: false,
    };
}

/// One link as the scheduler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkView {
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

/// One storage element as the scheduler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageView {
    /// Which storage element.
    pub storage: StorageId,
    /// Of transfers that read from it.
    pub outbound: SlotUse,
    /// Of transfers that write to it.
    pub inbound: SlotUse,
}

/// A link's number in one scheduler, until the link is forgotten: what to remember of it where there is no room for its
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkNumber(u32);

type LinkIndex = usize;
type StorageIndex = usize;

fn number_of(index: LinkIndex) -> LinkNumber {
    let number = u32::try_from(index);
    LinkNumber(number.expect("links are fewer than what fits into memory of transfers"))
}

/// A place whose slots several links share. A link may keep a slot of an earlier kind while it waits for one of a later
/// kind, never the other way round, so that no two links wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SharedPlaceId {
    Outbound(StorageIndex),
    Inbound(StorageIndex),
    Agents,
    Gfal,
}

/// Kinds of slots that one link needs.
const KINDS: usize = 4;

/// A storage element with the slots of both directions.
#[derive(Debug)]
struct Storage {
    id: StorageId,
    outbound: SharedPlace,
    inbound: SharedPlace,
}

#[derive(Debug)]
struct Link {
    id: LinkId,
    source: StorageIndex,
    destination: StorageIndex,
    access: Access,
    slots: Count,
    rate: RateGate,
    rates: FileProfile,
    durations: Durations,
    queue: LinkQueue,
    /// On whose behalf how many run.
    running: BTreeMap<TransferOwner, u32>,
    opening: LinkOpening,
    position: RoundPosition,
    /// The slot that it is offered, and for which VO.
    offer: Option<(SharedPlaceId, VoName)>,
    /// Slots that are kept for it.
    keeps: [Option<SharedPlaceId>; KINDS],
    /// How often it has let go of a slot that it was offered.
    let_go: u32,
    /// Which use of all links it was that it was named last, or something on it ended.
    used: u64,
}

impl Link {
    /// What each transfer on it holds a slot of, in the order of [`SharedPlaceId`].
    fn shared_places(&self) -> impl Iterator<Item = SharedPlaceId> + use<> {
        let gfal = match self.access {
            Access::Http | Access::Cloud => None,
            Access::Gfal => Some(SharedPlaceId::Gfal),
        };
        let (outbound, inbound) = (self.source, self.destination);
        [
            SharedPlaceId::Outbound(outbound),
            SharedPlaceId::Inbound(inbound),
            SharedPlaceId::Agents,
        ]
        .into_iter()
        .chain(gfal)
    }
}

/// Whether a link may start anything, whatever its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LinkOpening {
    Open,
    /// One transfer may pass, of somebody else than this one if there is anybody.
    Ajar(WaitReason, Option<TransferOwner>),
    Shut(WaitReason),
}

/// Where a link stands in the scheduler's round.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RoundPosition {
    /// Nothing waits.
    Idle,
    /// In the round: it will be looked at in the next pass.
    Round,
    /// Waits for something of its own: slots, rate, or its opening.
    Full(WaitReason),
    /// Waits for a slot of a place that it shares with other links, in its line.
    Parked(WaitReason, SharedPlaceId),
}

/// The scheduler: all waiting and running transfers of this service.
#[derive(Debug)]
pub struct Scheduler {
    limits: SlotLimits,
    shares: Shares,
    links: NumberedSet<Link>,
    link_index: HashMap<LinkId, LinkIndex>,
    storages: NumberedSet<Storage>,
    storage_index: HashMap<StorageId, StorageIndex>,
    agents: SharedPlace,
    gfal: SharedPlace,
    round: VecDeque<LinkIndex>,
    /// Pools that may have room while links wait for it: to be offered when every link has taken its place in line.
    freed: VecDeque<SharedPlaceId>,
    draining: bool,
    drained: bool,
    /// Turns that have begun.
    turns: u64,
    /// How often links were used.
    uses: u64,
    /// How often a link was looked at or offered something.
    steps: u64,
    /// What runs moves, by turns.
    flows: BTreeMap<u64, (LinkIndex, Flow)>,
    /// For how long the service has run.
    now_ms: u64,
    /// When it was last looked at what caps hold back, and whether they do.
    rechecked_ms: u64,
    is_held_by_rate: bool,
}

impl Scheduler {
    /// An empty one.
    pub fn new(limits: SlotLimits) -> Scheduler {
        let (agents, gfal) = (
            SharedPlace::new(limits.agents.0),
            SharedPlace::new(limits.gfal.0),
        );
        Scheduler {
            limits,
            shares: Shares::default(),
            links: NumberedSet::default(),
            link_index: HashMap::new(),
            storages: NumberedSet::default(),
            storage_index: HashMap::new(),
            agents,
            gfal,
            round: VecDeque::new(),
            freed: VecDeque::new(),
            draining: false,
            drained: false,
            turns: 0,
            uses: 0,
            steps: 0,
            flows: BTreeMap::new(),
            now_ms: 0,
            rechecked_ms: 0,
            is_held_by_rate: false,
        }
    }

    /// Queues a transfer that may start as soon as there are slots for it. False when it was waiting already.
    pub fn enqueue(&mut self, waiting: QueueEntry) -> bool {
        let index = self.link_at(&waiting.link);
        let link = &mut self.links[index];
        let size = SizeClass::of(waiting.size);
        let is_new = link.queue.push(waiting.standing(), size, &self.shares);
        match link.position {
            RoundPosition::Idle => {
                link.position = RoundPosition::Round;
                self.round.push_back(index);
            }
            RoundPosition::Parked(_, place) => {
                self.shared_mut(place).lines.join(&waiting.vo, index);
                self.offer_later(place);
            }
            RoundPosition::Round | RoundPosition::Full(_) => {}
        }
        is_new
    }

    /// Takes a waiting transfer out. False when it was not waiting here.
    pub fn remove(&mut self, waiting: &QueueEntry) -> bool {
        let Some(&index) = self.link_index.get(&waiting.link) else {
            return false;
        };
        let link = &mut self.links[index];
        let removed = link.queue.remove(waiting.standing());
        if link.queue.is_empty() && link.keeps != [None; KINDS] {
            // Nothing is left that could use what was kept for it.
            self.let_go(index, None);
        }
        removed
    }

    /// The number of a link, which it keeps until it is forgotten.
    pub fn number(&mut self, link: &LinkId) -> LinkNumber {
        number_of(self.link_at(link))
    }

    /// The link of a number.
    pub fn link(&self, number: LinkNumber) -> &LinkId {
        &self.links[number.0 as usize].id
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
        for link in self.links.values_mut() {
            let all = link.queue.take_all();
            link.queue = LinkQueue::new(&link.id, &self.shares);
            for taken in all {
                let standing = QueuePosition {
                    vo: &taken.vo,
                    activity: &activity_of(taken.rank.transfer),
                    user: &taken.user,
                    rank: taken.rank,
                };
                link.queue.push(standing, taken.size, &self.shares);
            }
        }
        self.requeue_all();
    }

    /// All links that wait for slots join the round, because the lines in which they stood are others now.
    fn requeue_all(&mut self) {
        for storage in self.storages.values_mut() {
            let weights = self.shares.at_destination(&storage.id);
            storage.outbound.lines = WaitingLinks::new(None);
            storage.inbound.lines = WaitingLinks::new(weights.cloned());
        }
        self.agents.lines = WaitingLinks::new(None);
        self.gfal.lines = WaitingLinks::new(None);
        for (index, link) in self.links.iter_mut() {
            if matches!(
                link.position,
                RoundPosition::Full(_) | RoundPosition::Parked(..)
            ) {
                link.position = RoundPosition::Round;
                self.round.push_back(index);
            }
        }
    }

    /// Starts one transfer, if any may start: takes its slots and returns it. Call until it returns `None`.
    pub fn start_next(&mut self) -> Option<DispatchedTransfer> {
        if self.is_drained() {
            return None;
        }
        loop {
            self.steps += 1;
            let Some(index) = self.round.pop_front() else {
                match self.offer_slot() {
                    true => continue,
                    false => return None,
                }
            };
            let offer = self.links[index].offer.take();
            if self.links[index].queue.is_empty() {
                self.links[index].position = RoundPosition::Idle;
                self.let_go(index, None);
                continue;
            }
            let of = offer.as_ref().map(|(_, vo)| vo);
            if let Some((reason, lacking)) = self.obstacle(index, of) {
                self.keep_rate(index, of, &reason, lacking);
                let offered = offer.map(|(place, _)| place);
                self.set_aside(index, reason, lacking, offered);
                continue;
            }
            if let Some(place) = self.line_to_join(index, offer.as_ref().map(|(place, _)| *place)) {
                // There is room, but who gets it is decided when all who want it stand in line.
                let offered = offer.map(|(place, _)| place);
                self.set_aside(index, WaitReason::Starting, Some(place), offered);
                continue;
            }
            return Some(self.start(index, offer));
        }
    }

    /// The place in whose line a link has to stand although there is room.
    fn line_to_join(
        &self,
        index: LinkIndex,
        offered: Option<SharedPlaceId>,
    ) -> Option<SharedPlaceId> {
        // A link that was offered a slot of one kind need not queue again for earlier kinds.
        let link = &self.links[index];
        let later = link
            .shared_places()
            .filter(|id| offered.is_none_or(|offered| *id > offered));
        let mut in_line = later.filter(|id| !link.keeps.contains(&Some(*id)));
        in_line.find(|id| !self.shared(*id).lines.is_empty())
    }

    fn start(
        &mut self,
        index: LinkIndex,
        offer: Option<(SharedPlaceId, VoName)>,
    ) -> DispatchedTransfer {
        self.turns += 1;
        let number = self.turns;
        let link = &mut self.links[index];
        let durations = &link.durations;
        let predict = |size: SizeClass| GrantedTurn {
            number,
            expected_ms: durations.predict_ms(size.size()),
        };
        // A VO's turn at a storage element, unless this link has shares of its own and that one has none. When nothing of
        // the VO waits here any more, something else uses the slot.
        let of_vo = offer.filter(|(place, _)| {
            let has_weights = match place {
                SharedPlaceId::Inbound(at) => self.storages[*at].inbound.lines.has_weights(),
                SharedPlaceId::Outbound(_) | SharedPlaceId::Agents | SharedPlaceId::Gfal => false,
            };
            has_weights || !link.queue.has_weights()
        });
        let next = match &link.opening {
            LinkOpening::Ajar(_, Some(party)) => link.queue.pop_of_another(party, predict),
            LinkOpening::Ajar(_, None) | LinkOpening::Open | LinkOpening::Shut(_) => None,
        };
        let next = next.or_else(|| link.queue.pop_of(&of_vo?.1, predict));
        let next = next.or_else(|| link.queue.pop(predict));
        let next = next.expect("the queue was looked at before");
        let taken = TakenSlots {
            link: index,
            payers: next.payers,
            turn: next.turn,
            is_adopted: false,
        };
        if let LinkOpening::Ajar(reason, _) = &link.opening {
            link.opening = LinkOpening::Shut(reason.clone());
        }
        // Not forgotten at once: where it met two places that are full, it will meet them again.
        link.let_go = link.let_go.saturating_sub(1);
        self.unkeep(index);
        self.start_flow(&taken, next.size);
        self.occupy(&taken);
        // Back to the end of the round, so that links take turns.
        self.links[index].position = RoundPosition::Round;
        self.round.push_back(index);
        DispatchedTransfer {
            transfer: next.transfer,
            taken,
        }
    }

    /// Takes slots for a transfer that runs already, whatever the limits.
    pub fn adopt(&mut self, running: &QueueEntry) -> TakenSlots {
        self.turns += 1;
        let index = self.link_at(&running.link);
        let durations = &self.links[index].durations;
        let taken = TakenSlots {
            link: index,
            payers: Payers {
                vo: running.vo.clone(),
                class: running.activity.clone(),
                user: running.user.clone(),
            },
            turn: GrantedTurn {
                number: self.turns,
                expected_ms: durations.predict_ms(running.size),
            },
            is_adopted: true,
        };
        self.adopt_flow(&taken, running.size);
        self.occupy(&taken);
        taken
    }

    fn occupy(&mut self, taken: &TakenSlots) {
        let link = &mut self.links[taken.link];
        link.slots.active += 1;
        *link.running.entry(taken.party()).or_default() += 1;
        for id in self.links[taken.link].shared_places() {
            let place = self.shared_mut(id);
            place.slots.active += 1;
            place.lines.had(&taken.payers.vo, taken.link, taken.turn);
            self.offer_later(id);
        }
    }

    /// Gives the slots of a transfer back.
    pub fn release(&mut self, taken: TakenSlots, held: SlotTime) {
        let TakenSlots {
            link: index,
            payers,
            turn,
            is_adopted,
        } = taken;
        self.end_flow(turn.number, index, held);
        let lasted_ms = match held.is_own_fault {
            true => ms(held.took).max(turn.expected_ms),
            false => ms(held.took),
        };
        let link = &mut self.links[index];
        self.uses += 1;
        link.used = self.uses;
        link.slots.active -= 1;
        let party = payers.party();
        if let Some(count) = link.running.get_mut(&party) {
            *count -= 1;
            if *count == 0 {
                link.running.remove(&party);
            }
        }
        link.queue.ended(&payers, turn, lasted_ms);
        if let Some(size) = held.brought.filter(|_| !is_adopted) {
            link.durations.learn(size, held.took);
        }
        for id in self.links[index].shared_places() {
            let place = self.shared_mut(id);
            place.slots.active -= 1;
            place.lines.ended(&payers.vo, index, turn, lasted_ms);
            self.offer_later(id);
        }
        self.recheck(index);
    }

    /// Changes all limits at once, while everything runs.
    pub fn set_limits(&mut self, limits: SlotLimits) {
        self.agents.slots.limit = limits.agents.0;
        self.gfal.slots.limit = limits.gfal.0;
        for Storage {
            id,
            outbound,
            inbound,
        } in self.storages.values_mut()
        {
            let own = limits.of_storage(id);
            outbound.slots.limit = own.outbound.0;
            inbound.slots.limit = own.inbound.0;
            outbound.rate.set_cap(limits.rates.outbound_of(id));
            inbound.rate.set_cap(limits.rates.inbound_of(id));
        }
        for link in self.links.values_mut() {
            link.slots.limit = limits.of_link(&link.id);
            link.rate.set_cap(limits.rates.of_link(&link.id));
        }
        self.limits = limits;
        self.expect_anew();
        let storages = self.storages.iter();
        let places =
            storages.flat_map(|(at, _)| [SharedPlaceId::Outbound(at), SharedPlaceId::Inbound(at)]);
        self.freed = [SharedPlaceId::Agents, SharedPlaceId::Gfal]
            .into_iter()
            .chain(places)
            .collect();
        for index in self.links.numbers() {
            self.recheck(index);
        }
    }

    /// Caps a place at the tuned number, never above the operators' limit. `None` removes the cap.
    pub fn set_tuned(&mut self, place: &TunedPlace, slots: Option<Slots>) {
        let tuned = slots.map(|slots| slots.0);
        match place {
            TunedPlace::Link(link) => {
                let index = self.link_at(link);
                self.links[index].slots.tuned = tuned;
                self.recheck(index);
            }
            TunedPlace::Outbound { storage } => {
                let at = self.storage_at(storage);
                self.storages[at].outbound.slots.tuned = tuned;
                self.offer_later(SharedPlaceId::Outbound(at));
            }
            TunedPlace::Inbound { storage } => {
                let at = self.storage_at(storage);
                self.storages[at].inbound.slots.tuned = tuned;
                self.offer_later(SharedPlaceId::Inbound(at));
            }
        }
    }

    /// Starts nothing more on this link, for this reason; what runs may end.
    pub fn halt(&mut self, link: &LinkId, because: WaitReason) {
        let index = self.link_at(link);
        self.links[index].opening = LinkOpening::Shut(because);
        self.recheck(index);
    }

    /// Lets one transfer pass on a link that is halted, of another one than `after` if there is any.
    pub fn let_one_pass(&mut self, link: &LinkId, after: Option<&TransferOwner>) {
        let index = self.link_at(link);
        if let LinkOpening::Shut(reason) = &self.links[index].opening {
            self.links[index].opening = LinkOpening::Ajar(reason.clone(), after.cloned());
        }
        self.recheck(index);
    }

    /// Who else than this one has something on a link, waiting or running.
    pub fn company(&self, link: LinkNumber, party: &TransferOwner) -> LinkCotenants {
        let link = &self.links[link.0 as usize];
        let running = || link.running.keys();
        let others_run = running().any(|other| other.vo != party.vo);
        if others_run || link.queue.vos().any(|vo| *vo != party.vo) {
            return LinkCotenants::OtherVos;
        }
        let others_run = running().any(|other| other.user != party.user);
        match others_run || link.queue.holds_other_users(party) {
            true => LinkCotenants::SameVo,
            false => LinkCotenants::None,
        }
    }

    /// Starts transfers on this link again.
    pub fn reopen(&mut self, link: &LinkId) {
        let index = self.link_at(link);
        self.links[index].opening = LinkOpening::Open;
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

    fn set_aside(
        &mut self,
        index: LinkIndex,
        reason: WaitReason,
        lacking: Option<SharedPlaceId>,
        offered: Option<SharedPlaceId>,
    ) {
        self.is_held_by_rate |= is_by_rate(&reason);
        match lacking {
            None => {
                self.links[index].position = RoundPosition::Full(reason);
                self.let_go(index, None);
            }
            Some(id) => {
                self.links[index].position = RoundPosition::Parked(reason, id);
                let vos: Vec<VoName> = self.links[index].queue.vos().cloned().collect();
                let lines = &mut self.shared_mut(id).lines;
                vos.iter().for_each(|vo| lines.join(vo, index));
                if let Some(offered) = offered.filter(|offered| *offered != id) {
                    self.keep_or_not(index, offered, id);
                }
                self.let_go(index, Some(id));
                self.offer_later(id);
            }
        }
        if let Some(offered) = offered {
            self.offer_later(offered);
        }
    }

    /// A link that was offered a slot of one kind lacks another. If that happened too often, the slot is kept for it;
    /// otherwise somebody else uses it. Else a link between two places that are always full would never find both at
    /// once.
    fn keep_or_not(&mut self, index: LinkIndex, offered: SharedPlaceId, lacking: SharedPlaceId) {
        let link = &mut self.links[index];
        link.let_go = (link.let_go + 1).min(2 * LET_GO_MAX);
        let is_kept = link.keeps.contains(&Some(offered));
        if link.let_go < LET_GO_MAX || offered > lacking || is_kept {
            return;
        }
        if let Some(free) = link.keeps.iter_mut().find(|kept| kept.is_none()) {
            *free = Some(offered);
            self.shared_mut(offered).kept += 1;
        }
    }

    /// What was kept for a link is not, but for slots of earlier kinds than the one that it waits for now.
    fn let_go(&mut self, index: LinkIndex, waits_for: Option<SharedPlaceId>) {
        for at in 0..KINDS {
            if let Some(kept) = self.links[index].keeps[at]
                && waits_for.is_none_or(|id| kept >= id)
            {
                self.links[index].keeps[at] = None;
                self.shared_mut(kept).kept -= 1;
                self.offer_later(kept);
            }
        }
        if waits_for.is_none() {
            for id in self.links[index].shared_places() {
                self.offer_later(id);
            }
        }
    }

    /// What was kept for a link is used by it.
    fn unkeep(&mut self, index: LinkIndex) {
        for kept in std::mem::take(&mut self.links[index].keeps)
            .into_iter()
            .flatten()
        {
            self.shared_mut(kept).kept -= 1;
        }
    }

    /// A place in whose line somebody stands may have room.
    fn offer_later(&mut self, id: SharedPlaceId) {
        let place = self.shared(id);
        if !place.lines.is_empty() && place.has_room(0, self.now_ms) {
            self.freed.push_back(id);
        }
    }

    /// Lets a link join the round that gets a slot which became free. False when there is none.
    fn offer_slot(&mut self) -> bool {
        while let Some(id) = self.freed.pop_front() {
            self.steps += 1;
            if !self.shared(id).has_room(0, self.now_ms) {
                continue;
            }
            let mut lines = std::mem::take(&mut self.shared_mut(id).lines);
            let next = lines.next(|index, vo| self.links[index].queue.holds(vo));
            self.shared_mut(id).lines = lines;
            if let Some((index, vo)) = next {
                let link = &mut self.links[index];
                link.offer = Some((id, vo));
                link.position = RoundPosition::Round;
                self.round.push_back(index);
                return true;
            }
        }
        false
    }

    /// Puts a link that waited for something of its own back into the round.
    fn recheck(&mut self, index: LinkIndex) {
        let link = &mut self.links[index];
        if matches!(link.position, RoundPosition::Full(_)) {
            link.position = RoundPosition::Round;
            self.round.push_back(index);
        }
    }

    fn shared(&self, id: SharedPlaceId) -> &SharedPlace {
        match id {
            SharedPlaceId::Agents => &self.agents,
            SharedPlaceId::Gfal => &self.gfal,
            SharedPlaceId::Outbound(at) => &self.storages[at].outbound,
            SharedPlaceId::Inbound(at) => &self.storages[at].inbound,
        }
    }

    fn shared_mut(&mut self, id: SharedPlaceId) -> &mut SharedPlace {
        match id {
            SharedPlaceId::Agents => &mut self.agents,
            SharedPlaceId::Gfal => &mut self.gfal,
            SharedPlaceId::Outbound(at) => &mut self.storages[at].outbound,
            SharedPlaceId::Inbound(at) => &mut self.storages[at].inbound,
        }
    }

    fn link_at(&mut self, id: &LinkId) -> LinkIndex {
        self.uses += 1;
        if let Some(&index) = self.link_index.get(id) {
            self.links[index].used = self.uses;
            return index;
        }
        let source = self.storage_at(&id.source);
        let destination = self.storage_at(&id.destination);
        let index = self.links.add(Link {
            id: id.clone(),
            source,
            destination,
            access: id.access(),
            slots: Count::new(self.limits.of_link(id)),
            rate: RateGate::new(self.limits.rates.of_link(id)),
            rates: FileProfile::default(),
            durations: Durations::default(),
            queue: LinkQueue::new(id, &self.shares),
            running: BTreeMap::new(),
            opening: LinkOpening::Open,
            position: RoundPosition::Idle,
            offer: None,
            keeps: [None; KINDS],
            let_go: 0,
            used: self.uses,
        });
        self.link_index.insert(id.clone(), index);
        index
    }

    fn storage_at(&mut self, id: &StorageId) -> StorageIndex {
        if let Some(&index) = self.storage_index.get(id) {
            return index;
        }
        let slots = self.limits.of_storage(id);
        let mut outbound = SharedPlace::new(slots.outbound.0);
        let mut inbound = SharedPlace::new(slots.inbound.0);
        outbound.rate.set_cap(self.limits.rates.outbound_of(id));
        inbound.rate.set_cap(self.limits.rates.inbound_of(id));
        inbound.lines = WaitingLinks::new(self.shares.at_destination(id).cloned());
        let at = self.storages.add(Storage {
            id: id.clone(),
            outbound,
            inbound,
        });
        self.storage_index.insert(id.clone(), at);
        at
    }
}

/// Whether it is a cap of bytes per second that holds a transfer back.
fn is_by_rate(reason: &WaitReason) -> bool {
    matches!(reason, WaitReason::NoSlot(no_slot) if matches!(no_slot.because, SlotBound::Rate { .. }))
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
