//! What running transfers move, for the places that have a cap of bytes per second.

use super::rate::{ByteForecast, Flow, RateGate, charge, per_second};
use super::*;

/// Files that ended, by whose rates others of their link are expected.
const RATES_MAX: usize = 16;
/// A file so many times as large as another one may be faster than that.
const SIZE_RATIO: u64 = 4;
/// With each file the largest of a link's files is forgotten by this part: larger ones are not rare where there was one.
const FORGOTTEN_PART: u64 = 64;
/// The next file is expected to be faster than the fastest of so many by a part of this; of few by more.
const FASTER_THAN_SEEN: u64 = 3;
/// While starts are held back by a cap, they are looked at so often.
const RECHECK_MS: u64 = 100;

/// How large and how fast a link's files are.
#[derive(Debug, Default)]
pub(super) struct FileProfile {
    /// Sizes and rates of the latest.
    seen: VecDeque<(u64, u64)>,
    /// The same of the fastest that runs, and of how many that is.
    running: Option<(u64, u64, u64)>,
    usual_size: Option<u64>,
}

impl FileProfile {
    /// The most that a file of this size is expected to move in a second.
    fn fastest(&self, size: u64) -> Option<u64> {
        let running = self
            .running
            .map(|(size, rate, count)| ((size, rate), count));
        let seen = self.seen.iter().map(|seen| (*seen, 1)).chain(running);
        let alike = seen.filter(|((other, _), _)| other.saturating_mul(SIZE_RATIO) >= size);
        let (rate, count) = alike.fold((0, 0), |(most, all), ((_, rate), count)| {
            (rate.max(most), all + count)
        });
        let more = rate.saturating_mul(FASTER_THAN_SEEN).checked_div(count)?;
        Some(rate.saturating_add(more))
    }

    fn learn_size(&mut self, size: u64) {
        let before = self.usual_size.unwrap_or(size);
        self.usual_size = Some(size.max(before - before / FORGOTTEN_PART));
    }

    fn learn_rate(&mut self, size: u64, rate: u64) {
        if self.seen.len() == RATES_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back((size, rate));
    }
}

impl Scheduler {
    /// So long the service has run. Starts that a cap held back may go on.
    pub fn advance(&mut self, now: Duration) {
        self.now_ms = self.now_ms.max(ms(now));
        if !self.limits.rates.are_any() || self.now_ms < self.rechecked_ms + RECHECK_MS {
            return;
        }
        self.rechecked_ms = self.now_ms;
        self.is_held_by_rate = false;
        for at in self.storages.numbers() {
            for id in [SharedPlaceId::Outbound(at), SharedPlaceId::Inbound(at)] {
                let place = self.shared(id);
                if place.rate.cap().is_none() || place.lines.is_empty() {
                    continue;
                }
                self.is_held_by_rate |= !place.rate.is_open(self.now_ms);
                self.offer_later(id);
            }
        }
        for index in self.links.numbers() {
            if self.links[index].rate.cap().is_some() {
                self.recheck(index);
            }
        }
    }

    /// After which time to look again, because a cap held something back.
    pub fn recheck_after(&self) -> Option<Duration> {
        self.is_held_by_rate
            .then_some(Duration::from_millis(2 * RECHECK_MS))
    }

    /// Both ends of a transfer that runs have been asked: so large is its file, and from now on bytes may move.
    pub fn prepared(&mut self, taken: &TakenSlots, size: Option<Bytes>) {
        let Some((_, flow)) = self.flows.get_mut(&taken.turn.number) else {
            return;
        };
        let before = flow.clone();
        flow.is_prepared = true;
        if let Some(Bytes(size)) = size {
            let rates = &mut self.links[taken.link].rates;
            rates.learn_size(size);
            flow.size = size;
            if flow.measured().is_none() {
                flow.rate = rates.fastest(size);
            }
        }
        let after = flow.clone();
        self.each_gate(taken.link, |gate, cap| {
            let (before, after) = (before.ahead(cap), after.ahead(cap));
            gate.pace(charge(&after), charge(&before));
            gate.expect(&before, &after);
        });
    }

    /// So much have these moved since they began.
    pub fn measured<'a>(&mut self, moved: impl IntoIterator<Item = (&'a TakenSlots, Bytes)>) {
        if !self.limits.rates.are_any() {
            return;
        }
        let now_ms = self.now_ms;
        for (taken, Bytes(moved)) in moved {
            let Some((_, flow)) = self.flows.get_mut(&taken.turn.number) else {
                continue;
            };
            if let Some((since_ms, more)) = flow.advance(now_ms, moved) {
                self.each_gate(taken.link, |gate, _| gate.moved(since_ms, now_ms, more));
            }
        }
        self.expect_anew();
    }

    /// What all that runs may move is counted anew.
    pub(super) fn expect_anew(&mut self) {
        let now_ms = self.now_ms;
        self.links.values_mut().for_each(|link| {
            link.rates.running = None;
            link.rate.expect_anew(now_ms);
        });
        for storage in self.storages.values_mut() {
            storage.outbound.rate.expect_anew(now_ms);
            storage.inbound.rate.expect_anew(now_ms);
        }
        let flows = std::mem::take(&mut self.flows);
        for (link, flow) in flows.values() {
            let link = *link;
            if let Some(rate) = flow.measured() {
                let fastest = &mut self.links[link].rates.running;
                let (size, most, count) = fastest.unwrap_or((flow.size, rate, 0));
                *fastest = Some(match rate > most {
                    true => (flow.size, rate, count + 1),
                    false => (size, most, count + 1),
                });
            }
            self.each_gate(link, |gate, cap| {
                gate.expect(&ByteForecast::default(), &flow.ahead(cap));
            });
        }
        self.flows = flows;
    }

    /// What the transfer whose turn it is on a link will move; `None` when there is no cap to which it matters.
    pub(super) fn next_flow(&self, index: LinkIndex, of: Option<&VoName>) -> Option<Flow> {
        let link = &self.links[index];
        let (outbound, inbound) = (
            &self.storages[link.source].outbound,
            &self.storages[link.destination].inbound,
        );
        let gates = [&link.rate, &outbound.rate, &inbound.rate];
        let is_capped = gates.into_iter().any(|gate| gate.cap().is_some());
        let size = is_capped.then(|| link.queue.peek(of)).flatten()?;
        Some(self.expected_flow(index, size))
    }

    /// A link whose turn it is lacks room below a cap: nothing smaller passes it there.
    pub(super) fn keep_rate(
        &mut self,
        index: LinkIndex,
        of: Option<&VoName>,
        reason: &WaitReason,
        lacking: Option<SharedPlaceId>,
    ) {
        let Some(id) = lacking.filter(|_| is_by_rate(reason)) else {
            return;
        };
        let (next, now_ms) = (self.next_flow(index, of), self.now_ms);
        let gate = &mut self.shared_mut(id).rate;
        if let (Some(next), Some(cap)) = (next, gate.cap())
            && gate.is_open(now_ms)
        {
            gate.keep_for(next.ahead(cap));
        }
    }

    fn expected_flow(&self, index: LinkIndex, size: SizeClass) -> Flow {
        let rates = &self.links[index].rates;
        // The largest of its class.
        let of_class = size.size().map(|Bytes(size)| size.saturating_add(size / 9));
        let size = of_class.or(rates.usual_size);
        let rate = size.and_then(|size| rates.fastest(size));
        Flow::begin(self.now_ms, size.unwrap_or(u64::MAX), rate)
    }

    /// A transfer begins to move something.
    pub(super) fn start_flow(&mut self, taken: &TakenSlots, size: SizeClass) {
        let flow = self.expected_flow(taken.link, size);
        let now_ms = self.now_ms;
        self.each_gate(taken.link, |gate, cap| gate.start(now_ms, &flow.ahead(cap)));
        self.flows.insert(taken.turn.number, (taken.link, flow));
    }

    /// A transfer has begun to move something before this scheduler knew of it.
    pub(super) fn adopt_flow(&mut self, taken: &TakenSlots, size: Option<Bytes>) {
        let mut flow = self.expected_flow(taken.link, SizeClass::of(size));
        flow.is_prepared = true;
        self.each_gate(taken.link, |gate, cap| {
            gate.expect(&ByteForecast::default(), &flow.ahead(cap));
        });
        self.flows.insert(taken.turn.number, (taken.link, flow));
    }

    /// A transfer moves nothing any more.
    pub(super) fn end_flow(&mut self, number: u64, index: LinkIndex, held: SlotTime) {
        let Some((_, flow)) = self.flows.remove(&number) else {
            return;
        };
        let (now_ms, since_ms) = (self.now_ms, flow.seen_ms());
        if let Some(Bytes(size)) = held.brought {
            let rate = per_second(size, ms(held.took)).max(flow.measured().unwrap_or_default());
            let rates = &mut self.links[index].rates;
            rates.learn_rate(size, rate);
            if !flow.is_prepared {
                rates.learn_size(size);
            }
        }
        let passed = usize::try_from(now_ms.saturating_sub(since_ms).div_ceil(1_000));
        self.each_gate(index, |gate, cap| {
            let ahead = flow.ahead(cap);
            gate.expect(&ahead, &ByteForecast::default());
            let unseen = match held.brought {
                Some(Bytes(size)) => size.saturating_sub(flow.moved),
                // How far it came since it was looked at, nobody says.
                None if flow.is_prepared => {
                    let last = ahead.len() - 1;
                    ahead[passed.unwrap_or(last).min(last)]
                }
                None => {
                    gate.pace(0, charge(&ahead));
                    0
                }
            };
            gate.moved(since_ms, now_ms, unseen);
        });
    }

    /// The places of a link that have a cap.
    fn each_gate(&mut self, index: LinkIndex, mut then: impl FnMut(&mut RateGate, u64)) {
        let link = &mut self.links[index];
        let (source, destination) = (link.source, link.destination);
        when_capped(&mut link.rate, &mut then);
        when_capped(&mut self.storages[source].outbound.rate, &mut then);
        when_capped(&mut self.storages[destination].inbound.rate, &mut then);
    }
}

fn when_capped(gate: &mut RateGate, then: &mut impl FnMut(&mut RateGate, u64)) {
    if let Some(cap) = gate.cap() {
        then(gate, cap);
    }
}
