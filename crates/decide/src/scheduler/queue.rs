//! What waits on one link, and the order in which it goes.

use super::aged::{AgedLine, Backlog, Rank};
use crate::halting::TransferOwner;
use crate::prediction::SizeClass;
use crate::shares::{ActivityWeights, Shares, VoTurns, percent, share};
use crate::turns::{GrantedTurn, Turns};
use penstock_model::{Activity, DEFAULT_ACTIVITY, LinkId, TransferId, UserName, VoName, Weight};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where in the queue a transfer stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueuePosition<'a> {
    pub(super) vo: &'a VoName,
    pub(super) activity: &'a Activity,
    pub(super) user: &'a UserName,
    pub(super) rank: Rank,
}

/// A transfer whose turn has come, and for whom it counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueueHead {
    pub(super) transfer: TransferId,
    pub(super) size: SizeClass,
    pub(super) payers: Payers,
    /// What it counts for them.
    pub(super) turn: GrantedTurn,
}

/// The same inside its VO.
struct PoppedOfVo {
    class: Activity,
    user: UserName,
    transfer: TransferId,
    size: SizeClass,
    turn: GrantedTurn,
}

/// For whom a transfer counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Payers {
    pub(super) vo: VoName,
    pub(super) class: Activity,
    pub(super) user: UserName,
}

impl Payers {
    pub(super) fn party(&self) -> TransferOwner {
        TransferOwner {
            vo: self.vo.clone(),
            user: self.user.clone(),
        }
    }
}

/// One that waits, when all are taken out.
pub(super) struct QueuedTransfer {
    pub(super) vo: VoName,
    pub(super) user: UserName,
    pub(super) rank: Rank,
    pub(super) size: SizeClass,
}

/// The waiting transfers of one link. VOs share it by weight, inside a VO its activities do, inside an activity its
/// users do equally, and what waits of one user goes by priority and age. Shares are of the time for which slots are
/// held.
#[derive(Debug, Default)]
pub(super) struct LinkQueue {
    turns: VoTurns,
    vos: BTreeMap<VoName, VoQueue>,
    load: Backlog,
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
    turns: Turns<UserName>,
    users: BTreeMap<UserName, AgedLine>,
}

impl LinkQueue {
    pub(super) fn new(link: &LinkId, shares: &Shares) -> LinkQueue {
        LinkQueue {
            turns: VoTurns::new(shares.on_link(link).cloned()),
            ..LinkQueue::default()
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.load.count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much waits in all.
    pub(super) fn load(&self) -> Backlog {
        self.load
    }

    /// On whose behalf something waits.
    pub(super) fn vos(&self) -> impl Iterator<Item = &VoName> {
        self.vos.keys()
    }

    pub(super) fn holds(&self, vo: &VoName) -> bool {
        self.vos.contains_key(vo)
    }

    /// Whether VOs have shares of this link.
    pub(super) fn has_weights(&self) -> bool {
        self.turns.has_weights()
    }

    /// False when it was there already.
    pub(super) fn push(
        &mut self,
        standing: QueuePosition<'_>,
        size: SizeClass,
        shares: &Shares,
    ) -> bool {
        let vo = standing.vo;
        let queue = self.vos.entry(vo.clone()).or_insert_with(|| VoQueue {
            weights: shares.of_vo(vo).cloned(),
            ..VoQueue::default()
        });
        self.turns.enter(vo);
        let is_new = queue.push(standing, size);
        if is_new {
            self.load.add(size);
        }
        is_new
    }

    pub(super) fn remove(&mut self, standing: QueuePosition<'_>) -> bool {
        let Some(queue) = self.vos.get_mut(standing.vo) else {
            return false;
        };
        let removed = queue.remove(standing);
        if let Some(size) = removed {
            self.load.take(size);
            self.forget_if_empty(standing.vo);
        }
        removed.is_some()
    }

    /// The size of the next one of this VO, or by the link's own shares.
    pub(super) fn peek(&self, of: Option<&VoName>) -> Option<SizeClass> {
        let vo = of
            .filter(|vo| self.holds(vo))
            .or_else(|| self.turns.next())?;
        let queue = self.vos.get(vo)?;
        let class = queue.classes.get(queue.turns.next()?)?;
        class.users.get(class.turns.next()?)?.first()
    }

    /// The next one by the link's own shares. `predict` tells which turn a transfer has.
    pub(super) fn pop(&mut self, predict: impl Fn(SizeClass) -> GrantedTurn) -> Option<QueueHead> {
        let vo = self.turns.next()?.clone();
        self.pop_of(&vo, predict)
    }

    /// The next one of a VO, whose turn it may not be here. It is counted all the same.
    pub(super) fn pop_of(
        &mut self,
        vo: &VoName,
        predict: impl Fn(SizeClass) -> GrantedTurn,
    ) -> Option<QueueHead> {
        let popped = self.vos.get_mut(vo)?.pop(predict)?;
        Some(self.popped(vo, popped))
    }

    fn popped(&mut self, vo: &VoName, popped: PoppedOfVo) -> QueueHead {
        let PoppedOfVo {
            class,
            user,
            transfer,
            size,
            turn,
        } = popped;
        self.turns.had(vo, turn);
        self.load.take(size);
        self.forget_if_empty(vo);
        QueueHead {
            transfer,
            size,
            payers: Payers {
                vo: vo.clone(),
                class,
                user,
            },
            turn,
        }
    }

    /// The next one of another VO than this party's, else of another user. `None` when nobody else waits.
    pub(super) fn pop_of_another(
        &mut self,
        party: &TransferOwner,
        predict: impl Fn(SizeClass) -> GrantedTurn,
    ) -> Option<QueueHead> {
        if let Some(vo) = self.turns.next_but(&party.vo).cloned() {
            return self.pop_of(&vo, predict);
        }
        let queue = self.vos.get_mut(&party.vo)?;
        let popped = queue.pop_of_another(&party.user, predict)?;
        Some(self.popped(&party.vo, popped))
    }

    /// Whether others of this party's VO have something that waits.
    pub(super) fn holds_other_users(&self, party: &TransferOwner) -> bool {
        let classes = self.vos.get(&party.vo).map(|queue| queue.classes.values());
        let mut users = classes
            .into_iter()
            .flatten()
            .flat_map(|class| class.users.keys());
        users.any(|user| *user != party.user)
    }

    /// A transfer has held its slots for so long.
    pub(super) fn ended(&mut self, payers: &Payers, turn: GrantedTurn, lasted_ms: u64) {
        self.turns.ended(&payers.vo, turn, lasted_ms);
        let Some(queue) = self.vos.get_mut(&payers.vo) else {
            return;
        };
        let weight = queue.weight(&payers.class);
        queue.turns.ended(&payers.class, weight, turn, lasted_ms);
        if let Some(class) = queue.classes.get_mut(&payers.class) {
            class
                .turns
                .ended(&payers.user, Weight::ONE, turn, lasted_ms);
        }
    }

    /// Everything that waits, in no order.
    pub(super) fn take_all(&mut self) -> Vec<QueuedTransfer> {
        let mut all = Vec::new();
        for (vo, queue) in std::mem::take(&mut self.vos) {
            self.turns.leave(&vo);
            let lines = queue.classes.into_values().flat_map(|class| class.users);
            for (user, line) in lines {
                all.extend(line.into_all().map(|(rank, size)| QueuedTransfer {
                    vo: vo.clone(),
                    user: user.clone(),
                    rank,
                    size,
                }));
            }
        }
        self.load = Backlog::default();
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
        queue.weights.as_ref()?;
        let class = queue.class(activity);
        let part = queue.part_of_class(&class);
        Some((class, percent(part)))
    }

    /// What goes before a transfer of those with whom it shares a line, and which part of the link's slots goes to that
    /// line while all others have something to do. `None` when it does not wait here.
    pub(super) fn ahead_of(&self, standing: QueuePosition<'_>) -> Option<(Backlog, f64)> {
        let queue = self.vos.get(standing.vo)?;
        let class_name = queue.class(standing.activity);
        let class = queue.classes.get(&class_name)?;
        let line = class.users.get(standing.user)?;
        let of_vo = self.turns.part(standing.vo);
        let of_user = 1.0 / class.users.len().max(1) as f64;
        let part = of_vo * queue.part_of_class(&class_name) * of_user;
        Some((line.ahead_of(standing.rank), part))
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

    fn weight(&self, class: &Activity) -> Weight {
        let weights = self.weights.as_ref();
        weights.map_or(Weight::ONE, |weights| weights.weight(class))
    }

    fn part_of_class(&self, class: &Activity) -> f64 {
        let others = self.turns.waiting().filter(|other| *other != class);
        share(self.weight(class), others.map(|other| self.weight(other)))
    }

    fn push(&mut self, standing: QueuePosition<'_>, size: SizeClass) -> bool {
        let class = self.class(standing.activity);
        self.turns.enter(&class);
        let queue = self.classes.entry(class).or_default();
        queue.turns.enter(standing.user);
        let line = queue.users.entry(standing.user.clone()).or_default();
        line.insert(standing.rank, size)
    }

    fn remove(&mut self, standing: QueuePosition<'_>) -> Option<SizeClass> {
        let class = self.class(standing.activity);
        let queue = self.classes.get_mut(&class)?;
        let removed = queue.users.get_mut(standing.user)?.remove(standing.rank);
        self.forget_if_empty(&class, standing.user);
        removed
    }

    fn pop(&mut self, predict: impl Fn(SizeClass) -> GrantedTurn) -> Option<PoppedOfVo> {
        let class = self.turns.next()?.clone();
        let user = self.classes.get(&class)?.turns.next()?.clone();
        self.pop_of((class, user), predict)
    }

    fn pop_of_another(
        &mut self,
        user: &UserName,
        predict: impl Fn(SizeClass) -> GrantedTurn,
    ) -> Option<PoppedOfVo> {
        let next = self.turns.in_order().find_map(|class| {
            let mut users = self.classes.get(class)?.turns.in_order();
            let other = users.find(|other| *other != user)?;
            Some((class.clone(), other.clone()))
        });
        self.pop_of(next?, predict)
    }

    fn pop_of(
        &mut self,
        (class, user): (Activity, UserName),
        predict: impl Fn(SizeClass) -> GrantedTurn,
    ) -> Option<PoppedOfVo> {
        let queue = self.classes.get_mut(&class)?;
        let (transfer, size) = queue.users.get_mut(&user)?.pop()?;
        let turn = predict(size);
        queue.turns.had(&user, Weight::ONE, turn);
        let weight = self.weight(&class);
        self.turns.had(&class, weight, turn);
        self.forget_if_empty(&class, &user);
        Some(PoppedOfVo {
            class,
            user,
            transfer,
            size,
            turn,
        })
    }

    fn forget_if_empty(&mut self, class: &Activity, user: &UserName) {
        let Some(queue) = self.classes.get_mut(class) else {
            return;
        };
        if queue.users.get(user).is_some_and(AgedLine::is_empty) {
            queue.users.remove(user);
            queue.turns.leave(user);
        }
        if queue.users.is_empty() {
            self.classes.remove(class);
            self.turns.leave(class);
        }
    }
}
