//! How much of the slots goes to whom: VOs by weight on each link and into each destination, and inside a VO its
//! activities by weight. Without shares VOs get equal parts, and the activities of a VO go by age.

use crate::link_patterns::most_specific_first;
use crate::turns::{GrantedTurn, Turns};
use penstock_model::{
    ANY, Activity, DEFAULT_ACTIVITY, LinkId, PUBLIC, Settings, StorageId, VoName, Weight,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All shares in effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    links: BTreeMap<LinkId, Arc<VoWeights>>,
    activities: BTreeMap<VoName, Arc<ActivityWeights>>,
}

/// The weights of VOs on some links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VoWeights {
    listed: BTreeMap<VoName, Weight>,
    public: Option<Weight>,
}

/// The weights of a VO's activities, by their names in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityWeights {
    listed: BTreeMap<Activity, Weight>,
    default: Weight,
}

impl Shares {
    /// What operators have set.
    pub fn of(settings: &Settings) -> Shares {
        let mut links: BTreeMap<LinkId, VoWeights> = BTreeMap::new();
        for share in settings.vo_shares() {
            let weights = links.entry(share.ends.clone()).or_default();
            match share.vo.as_str() == PUBLIC {
                true => weights.public = Some(share.weight),
                false => drop(weights.listed.insert(share.vo.clone(), share.weight)),
            }
        }
        let active = settings
            .all_activity_shares()
            .filter(|shares| shares.is_active);
        let activities = active.filter_map(|shares| {
            let weights = ActivityWeights::new(&shares.weights)?;
            Some((shares.vo.clone(), Arc::new(weights)))
        });
        Shares {
            activities: activities.collect(),
            links: links
                .into_iter()
                .map(|(ends, weights)| (ends, Arc::new(weights)))
                .collect(),
        }
    }

    /// False when nothing of this VO may go there: it has weight zero, or none, and there is no `public`.
    pub fn allow(&self, link: &LinkId, vo: &VoName) -> bool {
        self.links.is_empty() || self.on_link(link).is_none_or(|weights| weights.allow(vo))
    }

    /// Those that count on a link.
    pub(crate) fn on_link(&self, link: &LinkId) -> Option<&Arc<VoWeights>> {
        if self.links.is_empty() {
            return None;
        }
        let patterns = most_specific_first(link);
        patterns.iter().find_map(|ends| self.links.get(ends))
    }

    /// Those that count for the slots of a destination, over all its links.
    pub(crate) fn at_destination(&self, destination: &StorageId) -> Option<&Arc<VoWeights>> {
        let any = || StorageId::new(ANY);
        let named = LinkId {
            source: any(),
            destination: destination.clone(),
        };
        self.on_link(&named)
    }

    /// Those of a VO's activities.
    pub(crate) fn of_vo(&self, vo: &VoName) -> Option<&Arc<ActivityWeights>> {
        self.activities.get(vo)
    }
}

impl VoWeights {
    fn allow(&self, vo: &VoName) -> bool {
        let weight = self.listed.get(vo).copied().or(self.public);
        weight.is_some_and(|weight| !weight.is_zero())
    }

    fn lists(&self, vo: &VoName) -> bool {
        self.listed.get(vo).is_some_and(|weight| !weight.is_zero())
    }

    /// Of `public`, or who else has no weight of its own: then the smallest there is.
    fn otherwise(&self) -> Weight {
        let given = self.listed.values().chain(&self.public);
        let public = self.public.filter(|weight| !weight.is_zero());
        let smallest = given.filter(|weight| !weight.is_zero()).min();
        public.or(smallest.copied()).unwrap_or(Weight::ONE)
    }
}

impl ActivityWeights {
    /// `None` when nothing is listed.
    fn new(weights: &BTreeMap<Activity, Weight>) -> Option<ActivityWeights> {
        let given = weights.iter().filter(|(_, weight)| !weight.is_zero());
        let mut listed: BTreeMap<Activity, Weight> = given
            .map(|(activity, weight)| (lower(activity), *weight))
            .collect();
        let smallest = *listed.values().min()?;
        let default = listed.remove(&Activity::new(DEFAULT_ACTIVITY));
        Some(ActivityWeights {
            listed,
            default: default.unwrap_or(smallest),
        })
    }

    /// Under which name an activity has its share.
    pub(crate) fn class(&self, activity: &Activity) -> Activity {
        let name = lower(activity);
        match self.listed.contains_key(&name) {
            true => name,
            false => Activity::new(DEFAULT_ACTIVITY),
        }
    }

    pub(crate) fn weight(&self, class: &Activity) -> Weight {
        self.listed.get(class).copied().unwrap_or(self.default)
    }
}

/// As FTS compares them.
fn lower(activity: &Activity) -> Activity {
    Activity::new(activity.as_str().to_lowercase())
}

/// Who has a weight of its own, and all others together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Seat {
    Vo(VoName),
    Public,
}

/// Whose turn it is among VOs that wait for the same slots.
#[derive(Debug, Default)]
pub(crate) struct VoTurns {
    weights: Option<Arc<VoWeights>>,
    seats: Turns<Seat>,
    /// Those without a weight of their own share one equally.
    public: Turns<VoName>,
}

impl VoTurns {
    pub(crate) fn new(weights: Option<Arc<VoWeights>>) -> VoTurns {
        VoTurns {
            weights,
            ..VoTurns::default()
        }
    }

    pub(crate) fn enter(&mut self, vo: &VoName) {
        let seat = self.seat(vo);
        if seat == Seat::Public {
            self.public.enter(vo);
        }
        self.seats.enter(&seat);
    }

    pub(crate) fn leave(&mut self, vo: &VoName) {
        let seat = self.seat(vo);
        if seat == Seat::Public {
            self.public.leave(vo);
        }
        if seat != Seat::Public || self.public.is_empty() {
            self.seats.leave(&seat);
        }
    }

    pub(crate) fn next(&self) -> Option<&VoName> {
        match self.seats.next()? {
            Seat::Vo(vo) => Some(vo),
            Seat::Public => self.public.next(),
        }
    }

    /// Whose turn it would be without this one.
    pub(crate) fn next_but(&self, vo: &VoName) -> Option<&VoName> {
        self.seats.in_order().find_map(|seat| match seat {
            Seat::Vo(next) => (next != vo).then_some(next),
            Seat::Public => self.public.in_order().find(|next| *next != vo),
        })
    }

    /// It has a turn.
    pub(crate) fn had(&mut self, vo: &VoName, turn: GrantedTurn) {
        let seat = self.seat(vo);
        self.seats.had(&seat, self.weight(&seat), turn);
        if seat == Seat::Public {
            self.public.had(vo, Weight::ONE, turn);
        }
    }

    /// A turn of it has ended and has lasted for so long.
    pub(crate) fn ended(&mut self, vo: &VoName, turn: GrantedTurn, lasted_ms: u64) {
        let seat = self.seat(vo);
        let weight = self.weight(&seat);
        self.seats.ended(&seat, weight, turn, lasted_ms);
        if seat == Seat::Public {
            self.public.ended(vo, Weight::ONE, turn, lasted_ms);
        }
    }

    /// Nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Whether operators have given shares.
    pub(crate) fn has_weights(&self) -> bool {
        self.weights.is_some()
    }

    /// How much of the next slots a VO gets among those that wait; `None` when VOs have no shares here.
    pub(crate) fn percent(&self, vo: &VoName) -> Option<u8> {
        self.weights.as_ref()?;
        Some(percent(self.part(vo)))
    }

    /// The same as a part of one, also where nobody has been given shares.
    pub(crate) fn part(&self, vo: &VoName) -> f64 {
        let seat = self.seat(vo);
        let others = self.seats.waiting().filter(|other| **other != seat);
        let others = others.map(|seat| self.weight(seat));
        let whole = share(self.weight(&seat), others);
        let part = match seat {
            Seat::Vo(_) => 1,
            Seat::Public => 1 + self.public.waiting().filter(|other| *other != vo).count(),
        };
        whole / part as f64
    }

    fn seat(&self, vo: &VoName) -> Seat {
        match &self.weights {
            Some(weights) if weights.lists(vo) => Seat::Vo(vo.clone()),
            Some(_) | None => Seat::Public,
        }
    }

    fn weight(&self, seat: &Seat) -> Weight {
        match (&self.weights, seat) {
            (None, _) => Weight::ONE,
            (Some(weights), Seat::Public) => weights.otherwise(),
            (Some(weights), Seat::Vo(vo)) => weights.listed[vo],
        }
    }
}

/// What one gets of the whole beside others. For people only: no order depends on it.
pub(crate) fn share(own: Weight, others: impl Iterator<Item = Weight>) -> f64 {
    let others: u64 = others.map(Weight::millionths).sum();
    let own = own.millionths() as f64;
    own / (own + others as f64).max(1.0)
}

/// At least one, because who has a share gets something.
pub(crate) fn percent(share: f64) -> u8 {
    (share * 100.0).round().clamp(1.0, 100.0) as u8
}
