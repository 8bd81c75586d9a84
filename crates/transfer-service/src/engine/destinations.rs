//! Who may write where: of several transfers to one destination only the first in its line may run, until it has
//! ended and its agent with it. Otherwise one would remove, as its own, what another has just brought.

use penstock_model::TransferId;
use penstock_model::url::FilePlace;
use std::collections::{BTreeMap, HashMap};

/// The lines before all destinations.
#[derive(Debug, Default)]
pub(super) struct Destinations {
    lines: BTreeMap<(FilePlace, i64), TransferId>,
    turns: HashMap<TransferId, (FilePlace, i64)>,
    entered: i64,
}

impl Destinations {
    /// Joins the end of the line.
    pub(super) fn enter(&mut self, place: FilePlace, transfer: TransferId) {
        self.entered += 1;
        self.insert(place, self.entered, transfer);
    }

    /// Goes to the head of the line: after a restart, for the one that had been running, because what is at the
    /// destination is its own.
    pub(super) fn enter_first(&mut self, place: FilePlace, transfer: TransferId) {
        self.entered += 1;
        self.insert(place, -self.entered, transfer);
    }

    fn insert(&mut self, place: FilePlace, turn: i64, transfer: TransferId) {
        let before = self.turns.insert(transfer, (place, turn));
        debug_assert!(before.is_none(), "{transfer} stands in line already");
        self.lines.insert((place, turn), transfer);
    }

    /// Leaves the line. Returns who is first there now, if the one that left was.
    pub(super) fn leave(&mut self, transfer: TransferId) -> Option<TransferId> {
        let (place, turn) = self.turns.remove(&transfer)?;
        let was_first = self.first_at(place) == Some(transfer);
        self.lines.remove(&(place, turn));
        self.first_at(place).filter(|_| was_first)
    }

    /// Whether it is in a line.
    pub(super) fn stands(&self, transfer: TransferId) -> bool {
        self.turns.contains_key(&transfer)
    }

    /// The one that may write there.
    pub(super) fn first_at(&self, place: FilePlace) -> Option<TransferId> {
        let line = self.lines.range((place, i64::MIN)..=(place, i64::MAX));
        line.map(|(_, transfer)| *transfer).next()
    }
}
