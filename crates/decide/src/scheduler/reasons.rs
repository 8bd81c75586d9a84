//! Why transfers wait and for how long still, and how links and storage elements stand: what is told, and changes
//! nothing.

use super::*;
use std::time::Duration;

impl Scheduler {
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
        let Some(&index) = self.link_index.get(link) else {
            return WaitReason::Starting;
        };
        match &self.links[index].position {
            // It stood in line for a slot that another one took, or has not been looked at since something changed.
            RoundPosition::Parked(WaitReason::Starting, _)
            | RoundPosition::Idle
            | RoundPosition::Round => {
                let obstacle = self.obstacle(index, None);
                obstacle.map_or(WaitReason::Starting, |(reason, _)| reason)
            }
            // Numbers may have changed since.
            RoundPosition::Full(reason) | RoundPosition::Parked(reason, _) => {
                let obstacle = self.obstacle(index, None);
                obstacle.map_or_else(|| reason.clone(), |(reason, _)| reason)
            }
        }
    }

    /// Why a waiting transfer has not started, with its share of the slots that there are too few of.
    pub fn why_this_waits(&self, waiting: &QueueEntry) -> WaitReason {
        let because = self.why_waiting(&waiting.link);
        let Some(&index) = self.link_index.get(&waiting.link) else {
            return because;
        };
        let link = &self.links[index];
        let WaitReason::NoSlot(NoSlot { place, because: by }) = &because else {
            return because;
        };
        let vo_percent = match (by, place) {
            (SlotBound::Draining, _) => return because,
            (SlotBound::Kept { .. } | SlotBound::Rate { .. }, _) => None,
            (SlotBound::Limit { .. } | SlotBound::Tuned { .. }, place) => match place {
                SlotPlace::Link => link.queue.percent_of_vo(&waiting.vo),
                SlotPlace::Destination { .. } => {
                    let lines = &self.storages[link.destination].inbound.lines;
                    lines.percent(&waiting.vo)
                }
                SlotPlace::Source { .. }
                | SlotPlace::Storage { .. }
                | SlotPlace::Agents
                | SlotPlace::Gfal => None,
            },
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

    /// After which time a waiting transfer will probably start, when all goes on as it goes now: from what is before it,
    /// from what a transfer takes on its link, and from the part of the slots that goes to its user. `None` when its link
    /// has brought nothing yet, or stands still.
    pub fn when_this_starts(&self, waiting: &QueueEntry) -> Option<Duration> {
        let link = &self.links[*self.link_index.get(&waiting.link)?];
        if self.is_drained() || link.opening != LinkOpening::Open || !link.durations.is_known() {
            return None;
        }
        let (ahead, part) = link.queue.ahead_of(waiting.standing())?;
        let running = match &link.position {
            RoundPosition::Full(WaitReason::NoSlot(NoSlot { place, because })) => match because {
                SlotBound::Draining => return None,
                SlotBound::Limit { .. } | SlotBound::Tuned { .. } if *place == SlotPlace::Link => {
                    f64::from(link.slots.in_effect())
                }
                SlotBound::Limit { .. }
                | SlotBound::Tuned { .. }
                | SlotBound::Kept { .. }
                | SlotBound::Rate { .. } => f64::from(link.slots.active.max(1)),
            },
            RoundPosition::Full(_) => f64::from(link.slots.active.max(1)),
            RoundPosition::Parked(_, place) => {
                let place = self.shared(*place);
                let own = f64::from(place.slots.in_effect()) * place.lines.part(&waiting.vo);
                f64::from(link.slots.active).max(own)
            }
            RoundPosition::Idle | RoundPosition::Round => f64::from(link.slots.active.max(1)),
        };
        if running <= 0.0 {
            return None;
        }
        let ms = |load: Backlog| {
            link.durations
                .predict_sum_ms(load.sized, load.bytes, load.unsized_ones) as f64
        };
        let own_ms = link.durations.predict_ms(None) as f64;
        // Its line gets its part while the others have something to do, and all of it when they have not; and half a
        // transfer passes before a slot comes free at all.
        let by_part = (ms(ahead) + own_ms / 2.0) / (running * part.max(1e-6));
        let by_all = (ms(link.queue.load()) + own_ms / 2.0) / running;
        /// Later than a year is not foreseen.
        const MS_MAX: f64 = 365.0 * 86_400_000.0;
        Some(Duration::from_millis(by_part.min(by_all).min(MS_MAX) as u64))
    }

    /// All links that are known, in the order of their numbers.
    pub fn links(&self) -> impl Iterator<Item = LinkView> + '_ {
        self.links.values().map(|link| LinkView {
            link: link.id.clone(),
            active: Slots(link.slots.active),
            limit: Slots(link.slots.in_effect()),
            limit_max: Slots(link.slots.limit),
            queued: link.queue.len(),
            because: (!link.queue.is_empty()).then(|| self.why_waiting(&link.id)),
        })
    }

    /// All storage elements that are part of a link that is known.
    pub fn storages(&self) -> impl Iterator<Item = StorageView> + '_ {
        let slots =
            |place: &SharedPlace| (Slots(place.slots.active), Slots(place.slots.in_effect()));
        self.storages.values().map(move |storage| StorageView {
            storage: storage.id.clone(),
            outbound: slots(&storage.outbound),
            inbound: slots(&storage.inbound),
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
        Slots(index.map_or(0, |&index| self.links[index].slots.active))
    }

    /// Transfers that run in all, and how many may.
    pub fn agents(&self) -> (Slots, Slots) {
        let slots = &self.agents.slots;
        (Slots(slots.active), Slots(slots.in_effect()))
    }

    /// What keeps the link from starting one more, of a VO if it is that one's turn, and the shared place that it lacks a
    /// slot of.
    pub(super) fn obstacle(
        &self,
        index: LinkIndex,
        of: Option<&VoName>,
    ) -> Option<(WaitReason, Option<SharedPlaceId>)> {
        let link = &self.links[index];
        if let LinkOpening::Shut(reason) = &link.opening {
            return Some((reason.clone(), None));
        }
        if let Some(reason) = self.drained_at(link) {
            return Some((reason, None));
        }
        if link.slots.active >= link.slots.in_effect() {
            let because = link.slots.bound();
            return Some((no_slot(SlotPlace::Link, because), None));
        }
        let next = self.next_flow(index, of);
        let fits = |gate: &RateGate| match (&next, gate.cap()) {
            (Some(flow), Some(cap)) => gate.fits(self.now_ms, &flow.ahead(cap)),
            (None, _) | (_, None) => true,
        };
        if !fits(&link.rate)
            && let Some((rate, cap)) = link.rate.told(self.now_ms)
        {
            let because = SlotBound::Rate { rate, cap };
            return Some((no_slot(SlotPlace::Link, because), None));
        }
        let lacking = link.shared_places().find(|id| {
            let own = u32::from(link.keeps.contains(&Some(*id)));
            let place = self.shared(*id);
            !place.has_room(own, self.now_ms) || !fits(&place.rate)
        });
        lacking.map(|id| (self.why_lacking(link, id), Some(id)))
    }

    fn drained_at(&self, link: &Link) -> Option<WaitReason> {
        let draining = &self.limits.draining;
        if draining.covers_link(&link.id) {
            return Some(no_slot(SlotPlace::Link, SlotBound::Draining));
        }
        let ends = [&link.id.source, &link.id.destination];
        let storage = ends.into_iter().find(|end| draining.covers_storage(end))?;
        let storage = storage.clone();
        Some(no_slot(SlotPlace::Storage { storage }, SlotBound::Draining))
    }

    fn why_lacking(&self, link: &Link, id: SharedPlaceId) -> WaitReason {
        let shared = self.shared(id);
        let (source, destination) = (link.id.source.clone(), link.id.destination.clone());
        let is_full = shared.slots.active + shared.kept >= shared.slots.in_effect();
        if is_full && shared.slots.active < shared.slots.in_effect() {
            let place = match id {
                SharedPlaceId::Outbound(_) => SlotPlace::Storage { storage: source },
                SharedPlaceId::Inbound(_) => SlotPlace::Storage {
                    storage: destination,
                },
                SharedPlaceId::Agents | SharedPlaceId::Gfal => SlotPlace::Agents,
            };
            let because = SlotBound::Kept {
                active: Slots(shared.slots.active),
                kept: Slots(shared.kept),
                limit: Slots(shared.slots.in_effect()),
            };
            return no_slot(place, because);
        }
        let place = match id {
            SharedPlaceId::Agents => SlotPlace::Agents,
            SharedPlaceId::Gfal => SlotPlace::Gfal,
            SharedPlaceId::Outbound(_) => SlotPlace::Source { storage: source },
            SharedPlaceId::Inbound(_) => SlotPlace::Destination {
                storage: destination,
            },
        };
        let rate = shared.rate.told(self.now_ms).filter(|_| !is_full);
        let because = match rate {
            Some((rate, cap)) => SlotBound::Rate { rate, cap },
            None => shared.slots.bound(),
        };
        no_slot(place, because)
    }
}

fn no_slot(place: SlotPlace, because: SlotBound) -> WaitReason {
    WaitReason::NoSlot(NoSlot { place, because })
}
