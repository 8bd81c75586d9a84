//! Who may write where: of several transfers to one destination only the first in its line may run, until it has
//! ended and its agent with it. Otherwise one would remove, as its own, what another has just brought.
//!
//! Nearly every destination has one transfer, so that whoever is first costs little and only those behind cost more.

use penstock_model::TransferId;
use penstock_model::url::FilePlace;
use std::collections::{BTreeMap, HashMap};

/// The lines before all destinations.
#[derive(Debug, Default)]
pub(super) struct Destinations {
    first: HashMap<FilePlace, TransferId>,
    /// Who stands behind the first, by turn.
    behind: BTreeMap<(FilePlace, i64), TransferId>,
    turns: HashMap<TransferId, i64>,
    entered: i64,
}

impl Destinations {
    /// Joins the end of the line.
    pub(super) fn enter(&mut self, place: FilePlace, transfer: TransferId) {
        match self.first.get(&place) {
            None => drop(self.first.insert(place, transfer)),
            Some(_) => {
                self.entered += 1;
                self.stand(place, self.entered, transfer);
            }
        }
    }

    /// Goes to the head of the line: after a restart, for the one that had been running, because what is at the
    /// destination is its own.
    pub(super) fn enter_first(&mut self, place: FilePlace, transfer: TransferId) {
        if let Some(before) = self.first.insert(place, transfer) {
            self.entered += 1;
            self.stand(place, -self.entered, before);
        }
    }

    fn stand(&mut self, place: FilePlace, turn: i64, transfer: TransferId) {
        let before = self.turns.insert(transfer, turn);
        debug_assert!(before.is_none(), "{transfer} stands in line already");
        self.behind.insert((place, turn), transfer);
    }

    /// Leaves the line, if it stands there. Returns who is first there now, if the one that left was.
    pub(super) fn leave(&mut self, place: FilePlace, transfer: TransferId) -> Option<TransferId> {
        if self.first.get(&place) != Some(&transfer) {
            if let Some(turn) = self.turns.remove(&transfer) {
                self.behind.remove(&(place, turn));
            }
            return None;
        }
        self.first.remove(&place);
        let mut line = self.behind.range((place, i64::MIN)..=(place, i64::MAX));
        let (key, next) = line.next().map(|(key, next)| (*key, *next))?;
        self.behind.remove(&key);
        self.turns.remove(&next);
        self.first.insert(place, next);
        Some(next)
    }

    /// Whether it is in the line.
    pub(super) fn stands(&self, place: FilePlace, transfer: TransferId) -> bool {
        self.first_at(place) == Some(transfer) || self.turns.contains_key(&transfer)
    }

    /// The one that may write there.
    pub(super) fn first_at(&self, place: FilePlace) -> Option<TransferId> {
        self.first.get(&place).copied()
    }
}
