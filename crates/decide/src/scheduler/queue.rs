//! What waits on one link, and the order in which it goes.

use penstock_model::{Priority, TransferId, VoName};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The waiting transfers of one link. Priorities share it by weight (each step doubles it), so that none starves;
/// within a priority VOs take turns; within a VO the oldest goes first.
#[derive(Debug, Default)]
pub(super) struct LinkQueue {
    levels: BTreeMap<Priority, Level>,
    count: u64,
    /// Stride of the level served last: a level that was empty re-enters here and cannot claim the past.
    pass: u64,
}

#[derive(Debug, Default)]
struct Level {
    pass: u64,
    count: u64,
    /// VOs with something waiting, in the order of their turns.
    turns: VecDeque<VoName>,
    vos: HashMap<VoName, BTreeSet<TransferId>>,
}

impl LinkQueue {
    pub(super) fn len(&self) -> u64 {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn push(&mut self, priority: Priority, vo: &VoName, transfer: TransferId) {
        let pass = self.pass;
        let level = self.levels.entry(priority).or_default();
        if level.count == 0 {
            level.pass = level.pass.max(pass);
        }
        let waiting = level.vos.entry(vo.clone()).or_default();
        if waiting.is_empty() && !level.turns.contains(vo) {
            level.turns.push_back(vo.clone());
        }
        if waiting.insert(transfer) {
            level.count += 1;
            self.count += 1;
        }
    }

    pub(super) fn remove(&mut self, priority: Priority, vo: &VoName, transfer: TransferId) -> bool {
        let Some(level) = self.levels.get_mut(&priority) else {
            return false;
        };
        let removed = level
            .vos
            .get_mut(vo)
            .is_some_and(|waiting| waiting.remove(&transfer));
        if removed {
            level.count -= 1;
            self.count -= 1;
        }
        removed
    }

    pub(super) fn pop(&mut self) -> Option<TransferId> {
        let filled = self.levels.iter().filter(|(_, level)| level.count > 0);
        // Lowest stride first; at equal stride the more urgent.
        let next =
            filled.min_by_key(|(priority, level)| (level.pass, std::cmp::Reverse(**priority)));
        let priority = *next?.0;
        let level = self.levels.get_mut(&priority)?;
        self.pass = level.pass;
        level.pass += 64 >> priority.get();
        let transfer = loop {
            let vo = level.turns.pop_front()?;
            let waiting = level.vos.get_mut(&vo)?;
            let Some(transfer) = waiting.pop_first() else {
                continue;
            };
            if waiting.is_empty() {
                level.vos.remove(&vo);
            } else {
                level.turns.push_back(vo);
            }
            break transfer;
        };
        level.count -= 1;
        self.count -= 1;
        Some(transfer)
    }
}
