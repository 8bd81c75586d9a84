//! Links that wait for a slot of a destination whose slots go to VOs by shares.
//!
//! When there are fewer slots than could be used, one is offered at a time: to the VO whose turn it is, on the link that
//! has waited longest with something of it. The next one is offered when the link has used the slot or turned out to
//! be unable to. When there are enough, every link gets one, for whatever it chooses.

use super::LinkIndex;
use crate::shares::{VoTurns, VoWeights};
use penstock_model::VoName;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The lines, one for each VO.
#[derive(Debug)]
pub(super) struct VoLines {
    turns: VoTurns,
    lines: BTreeMap<VoName, Line>,
    /// Each link that stands in some line.
    links: BTreeSet<LinkIndex>,
    offered: BTreeMap<LinkIndex, Offer>,
}

/// What a link may use a slot for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Offer {
    /// What comes next there.
    Anything,
    /// What comes next of this VO.
    Of(VoName),
}

#[derive(Debug, Default)]
struct Line {
    order: VecDeque<LinkIndex>,
    members: BTreeSet<LinkIndex>,
}

impl VoLines {
    pub(super) fn new(weights: Arc<VoWeights>) -> VoLines {
        VoLines {
            turns: VoTurns::new(Some(weights)),
            lines: BTreeMap::new(),
            links: BTreeSet::new(),
            offered: BTreeMap::new(),
        }
    }

    /// A link waits with something of a VO. It keeps its place if it stood there before.
    pub(super) fn join(&mut self, vo: &VoName, link: LinkIndex) {
        self.links.insert(link);
        let line = self.lines.entry(vo.clone()).or_default();
        if line.members.insert(link) {
            line.order.push_back(link);
        }
        self.turns.enter(vo);
    }

    /// Offers as many slots as can be offered at once, and tells to whom. `could_use` tells how many a link could use,
    /// and `holds` whether it has something of a VO.
    pub(super) fn offer(
        &mut self,
        room: u32,
        could_use: impl Fn(LinkIndex) -> u64,
        holds: impl Fn(LinkIndex, &VoName) -> bool,
    ) -> Vec<LinkIndex> {
        if room == 0 || !self.offered.is_empty() {
            return Vec::new();
        }
        let mut wanted = 0;
        let mut links = self.links.iter();
        let is_enough = links.all(|link| {
            wanted += could_use(*link);
            wanted <= u64::from(room)
        });
        if is_enough {
            let all = std::mem::take(&mut self.links);
            let vos: Vec<VoName> = std::mem::take(&mut self.lines).into_keys().collect();
            vos.iter().for_each(|vo| self.turns.leave(vo));
            self.offered = all.iter().map(|link| (*link, Offer::Anything)).collect();
            return all.into_iter().collect();
        }
        self.next_in_turn(holds).into_iter().collect()
    }

    fn next_in_turn(&mut self, holds: impl Fn(LinkIndex, &VoName) -> bool) -> Option<LinkIndex> {
        while let Some(vo) = self.turns.next().cloned() {
            let Some(line) = self.lines.get_mut(&vo) else {
                self.turns.leave(&vo);
                continue;
            };
            let first = line.leave_first();
            if line.order.is_empty() {
                // The VO keeps its place among the others until it has had this turn.
                self.lines.remove(&vo);
            }
            let waits = |link: &LinkIndex| self.links.contains(link) && holds(*link, &vo);
            if let Some(link) = first.filter(waits) {
                self.links.remove(&link);
                self.offered.insert(link, Offer::Of(vo));
                return Some(link);
            }
        }
        None
    }

    /// What the link is offered a slot for. The offer ends with this.
    pub(super) fn take_offer(&mut self, link: LinkIndex) -> Option<Offer> {
        self.offered.remove(&link)
    }

    /// A slot was taken for this VO.
    pub(super) fn had(&mut self, vo: &VoName) {
        self.turns.had(vo);
        if !self.lines.contains_key(vo) {
            self.turns.leave(vo);
        }
    }

    /// How much of the next slots a VO gets.
    pub(super) fn percent(&self, vo: &VoName) -> Option<u8> {
        self.turns.percent(vo)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}

impl Line {
    fn leave_first(&mut self) -> Option<LinkIndex> {
        let first = self.order.pop_front()?;
        self.members.remove(&first);
        Some(first)
    }
}
