//! What waits on one link, and the order in which it goes.

use crate::shares::{ActivityWeights, Shares, VoTurns, percent, share};
use crate::turns::{Turns, cost};
use penstock_model::{Activity, DEFAULT_ACTIVITY, LinkId, Priority, TransferId, VoName, Weight};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where in the queue a transfer stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing<'a> {
    pub(super) vo: &'a VoName,
    pub(super) activity: &'a Activity,
    pub(super) priority: Priority,
    pub(super) transfer: TransferId,
}

/// The waiting transfers of one link. VOs share it by weight, inside a VO its activities do, inside an activity
/// priorities (each step doubles the weight, so that none starves), and inside a priority the oldest goes first.
#[derive(Debug, Default)]
pub(super) struct LinkQueue {
    turns: VoTurns,
    vos: BTreeMap<VoName, VoQueue>,
    count: u64,
}

/// What waits on behalf of one VO. Without shares of its activities it has one class.
#[derive(Debug, Default)]
struct VoQueue {
    weights: Option<Arc<ActivityWeights>>,
    turns: Turns<Activity>,
    classes: BTreeMap<Activity, ClassQueue>,
}

#[derive(Debug, Default)]
struct ClassQueue {
    levels: BTreeMap<Priority, Level>,
    count: u64,
    /// Stride of the level served last: a level that was empty re-enters here and cannot claim the past.
    pass: u64,
}

#[derive(Debug, Default)]
struct Level {
    pass: u64,
    waiting: BTreeSet<TransferId>,
}

impl LinkQueue {
    pub(super) fn new(link: &LinkId, shares: &Shares) -> LinkQueue {
        LinkQueue {
            turns: VoTurns::new(shares.on_link(link).cloned()),
            ..LinkQueue::default()
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// On whose behalf something waits.
    pub(super) fn vos(&self) -> impl Iterator<Item = &VoName> {
        self.vos.keys()
    }

    pub(super) fn holds(&self, vo: &VoName) -> bool {
        self.vos.contains_key(vo)
    }

    pub(super) fn push(&mut self, standing: Standing<'_>, shares: &Shares) {
        let vo = standing.vo;
        let queue = self.vos.entry(vo.clone()).or_insert_with(|| VoQueue {
            weights: shares.of_vo(vo).cloned(),
            ..VoQueue::default()
        });
        self.turns.enter(vo);
        if queue.push(standing) {
            self.count += 1;
        }
    }

    pub(super) fn remove(&mut self, standing: Standing<'_>) -> bool {
        let Some(queue) = self.vos.get_mut(standing.vo) else {
            return false;
        };
        let removed = queue.remove(standing);
        if removed {
            self.count -= 1;
            self.forget_if_empty(standing.vo);
        }
        removed
    }

    /// The next one by the link's own shares.
    pub(super) fn pop(&mut self) -> Option<(VoName, TransferId)> {
        let vo = self.turns.next()?.clone();
        let transfer = self.pop_of(&vo)?;
        Some((vo, transfer))
    }

    /// The next one of a VO, whose turn it may not be here. It is counted as one.
    pub(super) fn pop_of(&mut self, vo: &VoName) -> Option<TransferId> {
        let transfer = self.vos.get_mut(vo)?.pop()?;
        self.turns.had(vo);
        self.count -= 1;
        self.forget_if_empty(vo);
        Some(transfer)
    }

    /// Everything that waits, in no order.
    pub(super) fn take_all(&mut self) -> Vec<(VoName, Priority, TransferId)> {
        let mut all = Vec::new();
        for (vo, queue) in std::mem::take(&mut self.vos) {
            self.turns.leave(&vo);
            let levels = queue.classes.into_values().flat_map(|class| class.levels);
            for (priority, level) in levels {
                let waiting = level.waiting.into_iter();
                all.extend(waiting.map(|transfer| (vo.clone(), priority, transfer)));
            }
        }
        self.count = 0;
        all
    }

    /// How much of the link's next slots a VO gets; `None` when VOs have no shares here.
    pub(super) fn percent_of_vo(&self, vo: &VoName) -> Option<u8> {
        self.turns.percent(vo)
    }

    /// How much of the VO's next slots an activity gets, and under which name it has its share.
    pub(super) fn percent_of_activity(
        &self,
        vo: &VoName,
        activity: &Activity,
    ) -> Option<(Activity, u8)> {
        let queue = self.vos.get(vo)?;
        let weights = queue.weights.as_ref()?;
        let class = weights.class(activity);
        let others = queue.turns.waiting().filter(|other| **other != class);
        let whole = share(
            weights.weight(&class),
            others.map(|other| weights.weight(other)),
        );
        Some((class, percent(whole)))
    }

    fn forget_if_empty(&mut self, vo: &VoName) {
        if self
            .vos
            .get(vo)
            .is_some_and(|queue| queue.classes.is_empty())
        {
            self.vos.remove(vo);
            self.turns.leave(vo);
        }
    }
}

impl VoQueue {
    fn class(&self, activity: &Activity) -> Activity {
        match &self.weights {
            Some(weights) => weights.class(activity),
            None => Activity::new(DEFAULT_ACTIVITY),
        }
    }

    fn push(&mut self, standing: Standing<'_>) -> bool {
        let class = self.class(standing.activity);
        self.turns.enter(&class);
        let queue = self.classes.entry(class).or_default();
        queue.push(standing.priority, standing.transfer)
    }

    fn remove(&mut self, standing: Standing<'_>) -> bool {
        let class = self.class(standing.activity);
        let queue = self.classes.get_mut(&class);
        let removed = queue.is_some_and(|queue| queue.remove(standing.priority, standing.transfer));
        self.forget_if_empty(&class);
        removed
    }

    fn pop(&mut self) -> Option<TransferId> {
        let class = self.turns.next()?.clone();
        let transfer = self.classes.get_mut(&class)?.pop()?;
        let weight = self.weights.as_ref();
        let weight = weight.map_or(Weight::ONE, |weights| weights.weight(&class));
        self.turns.had(&class, cost(weight));
        self.forget_if_empty(&class);
        Some(transfer)
    }

    fn forget_if_empty(&mut self, class: &Activity) {
        if self
            .classes
            .get(class)
            .is_some_and(|queue| queue.count == 0)
        {
            self.classes.remove(class);
            self.turns.leave(class);
        }
    }
}

impl ClassQueue {
    fn push(&mut self, priority: Priority, transfer: TransferId) -> bool {
        let pass = self.pass;
        let level = self.levels.entry(priority).or_default();
        if level.waiting.is_empty() {
            level.pass = level.pass.max(pass);
        }
        let added = level.waiting.insert(transfer);
        self.count += u64::from(added);
        added
    }

    fn remove(&mut self, priority: Priority, transfer: TransferId) -> bool {
        let level = self.levels.get_mut(&priority);
        let removed = level.is_some_and(|level| level.waiting.remove(&transfer));
        self.count -= u64::from(removed);
        removed
    }

    fn pop(&mut self) -> Option<TransferId> {
        let filled = self.levels.iter();
        let filled = filled.filter(|(_, level)| !level.waiting.is_empty());
        // Lowest stride first; at equal stride the more urgent.
        let next =
            filled.min_by_key(|(priority, level)| (level.pass, std::cmp::Reverse(**priority)));
        let priority = *next?.0;
        let level = self.levels.get_mut(&priority)?;
        self.pass = level.pass;
        level.pass += 64 >> priority.get();
        self.count -= 1;
        level.waiting.pop_first()
    }
}
