//! Links that wait for a slot of a kind that several links use: out of or into a storage element, an agent, a gfal
//! process.
//!
//! A slot is offered to the VO whose turn it is, on that link of it whose turn it is; both turns are counted in the time
//! for which slots are held, so that neither a link of many small files nor one of a few large ones fills the place.
//! One slot is offered at a time; the next one when the link has used it or turned out to be unable to.

use super::LinkIndex;
use crate::shares::{VoTurns, VoWeights};
use crate::turns::{GrantedTurn, Turns};
use penstock_model::{VoName, Weight};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The lines, one for each VO.
#[derive(Debug, Default)]
pub(super) struct WaitingLinks {
    turns: VoTurns,
    lines: BTreeMap<VoName, Turns<LinkIndex>>,
    /// Each link that stands in some line.
    links: BTreeSet<LinkIndex>,
}

impl WaitingLinks {
    pub(super) fn new(weights: Option<Arc<VoWeights>>) -> WaitingLinks {
        WaitingLinks {
            turns: VoTurns::new(weights),
            ..WaitingLinks::default()
        }
    }

    /// Whether VOs have shares here.
    pub(super) fn has_weights(&self) -> bool {
        self.turns.has_weights()
    }

    /// A link waits with something of a VO.
    pub(super) fn join(&mut self, vo: &VoName, link: LinkIndex) {
        self.links.insert(link);
        self.lines.entry(vo.clone()).or_default().enter(&link);
        self.turns.enter(vo);
    }

    /// Whose turn it is: the link leaves all lines. `holds` tells whether it has something of a VO.
    pub(super) fn next(
        &mut self,
        holds: impl Fn(LinkIndex, &VoName) -> bool,
    ) -> Option<(LinkIndex, VoName)> {
        while let Some(vo) = self.turns.next().cloned() {
            let line = self.lines.get_mut(&vo);
            let link = line.as_ref().and_then(|line| line.next().copied());
            let (Some(line), Some(link)) = (line, link) else {
                // Its line has run out.
                self.turns.leave(&vo);
                continue;
            };
            if self.links.contains(&link) && holds(link, &vo) {
                // It keeps its place in the line until it has had this turn, and is out of it for the next.
                self.links.remove(&link);
                return Some((link, vo));
            }
            line.leave(&link);
        }
        // What is left has nothing to start: it stands in line again when it has.
        self.links.clear();
        None
    }

    /// A link of a VO took a slot.
    pub(super) fn had(&mut self, vo: &VoName, link: LinkIndex, turn: GrantedTurn) {
        // While nobody waits, nobody takes anything from anybody.
        if self.turns.is_empty() {
            return;
        }
        self.turns.had(vo, turn);
        if let Some(line) = self.lines.get_mut(vo) {
            line.had(&link, Weight::ONE, turn);
        }
    }

    /// It has given it back after so long.
    pub(super) fn ended(
        &mut self,
        vo: &VoName,
        link: LinkIndex,
        turn: GrantedTurn,
        lasted_ms: u64,
    ) {
        self.turns.ended(vo, turn, lasted_ms);
        if let Some(line) = self.lines.get_mut(vo) {
            line.ended(&link, Weight::ONE, turn, lasted_ms);
        }
    }

    /// These links are forgotten: others will have their numbers.
    pub(super) fn forget(&mut self, gone: &BTreeSet<LinkIndex>) {
        self.links.retain(|link| !gone.contains(link));
        for (vo, line) in &mut self.lines {
            line.forget(gone);
            if line.is_empty() {
                self.turns.leave(vo);
            }
        }
    }

    /// How much of the next slots a VO gets; `None` when VOs have no shares here.
    pub(super) fn percent(&self, vo: &VoName) -> Option<u8> {
        self.turns.percent(vo)
    }

    /// Which part of the next slots goes to one link of a VO.
    pub(super) fn part(&self, vo: &VoName) -> f64 {
        let links = self.lines.get(vo).map_or(0, |line| line.waiting().count());
        self.turns.part(vo) / links.max(1) as f64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.links.is_empty()
    }
}
