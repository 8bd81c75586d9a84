//! Tuning: what links did goes to [`penstock_decide::tuning`], what that finds best goes to the scheduler and the record.

use super::{AttemptOutcome, Effects, Engine, LinkProgress, Now};
use penstock_decide::scheduler::ForgottenPlaces;
use penstock_decide::settings::{slots_in_effect, tuning_in_effect};
use penstock_decide::tuning::{
    self, AttemptEnd, LinkLoad, LinkObservation, LinkRules, LinkTuning, TuningChanges,
};
use penstock_model::{
    LinkId, NoSlot, Record, Retry, Side, SlotBound, SlotPlace, Timestamp, TuningDecision,
    TuningPolicy, WaitReason,
};
use std::collections::{BTreeMap, HashMap};

/// Seconds for which nothing is raised when a storage element does not say for how long.
const QUIET: f64 = 10.0;

/// What links and storage elements are best used with, as far as it is known.
#[derive(Default)]
pub(super) struct Tuning {
    found: tuning::FleetTuning,
    /// What operators say of links, until they say something else.
    pub(super) rules: HashMap<LinkId, Rules>,
    seen_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    of_link: LinkRules,
    /// Out of its source, into its destination.
    at_ends_max: (u32, u32),
}

impl Tuning {
    /// Begins with what was decided last.
    pub(super) fn restore(decisions: Vec<TuningDecision>) -> Tuning {
        Tuning {
            found: tuning::FleetTuning::restore(decisions),
            ..Tuning::default()
        }
    }

    /// Operators have said something else.
    pub(super) fn forget_rules(&mut self) {
        self.rules.clear();
    }

    /// Nothing uses these links any more.
    pub(super) fn forget(&mut self, forgotten: &ForgottenPlaces) {
        for link in &forgotten.links {
            self.rules.remove(link);
        }
        self.found.forget(forgotten);
    }

    /// Connections of the next copy on a link whose client does not say.
    pub(super) fn streams(&self, link: &LinkId) -> Option<u32> {
        self.found.link(link)?.streams()
    }
}

impl Engine {
    /// Who decides how many transfers run on links of which no rule says it.
    pub fn tuning_policy(&self) -> TuningPolicy {
        self.config.tuning
    }

    /// How a link is tuned, and why; `None` when nothing was queued for it since it is known.
    pub fn tuning(&self, link: &LinkId) -> Option<&LinkTuning> {
        self.tuning.found.link(link)
    }

    fn tuning_rules(&mut self, link: &LinkId) -> Rules {
        if let Some(rules) = self.tuning.rules.get(link) {
            return *rules;
        }
        let slots = slots_in_effect(&self.config.slots, &self.settings);
        let rules = Rules {
            of_link: tuning_in_effect(&slots, &self.settings, self.config.tuning, link),
            at_ends_max: (
                slots.of_storage(&link.source).0,
                slots.of_storage(&link.destination).1,
            ),
        };
        self.tuning.rules.insert(link.clone(), rules);
        rules
    }

    /// Something is to be queued for a link: it must not begin with all that is allowed.
    pub(super) fn begin_to_tune(&mut self, link: &LinkId) {
        if self.tuning.found.link(link).is_some() {
            return;
        }
        let rules = self.tuning_rules(link).of_link;
        if let Some(set) = self.tuning.found.begin(link, rules) {
            self.scheduler.set_tuned(&set.place, set.slots);
        }
    }

    /// An attempt on a link has ended.
    pub(super) fn tune_by(
        &mut self,
        now: Now,
        link: &LinkId,
        outcome: &AttemptOutcome,
        since: Timestamp,
        effects: &mut Effects,
    ) {
        let seconds = now.at.since(since).as_secs_f64();
        let ended = match outcome {
            AttemptOutcome::Landed { size, report, .. } => AttemptEnd::Landed {
                size: *size,
                seconds,
                report,
            },
            AttemptOutcome::Failed { failure, .. } => match (&failure.busy, failure.retry) {
                (Some(busy), _) => AttemptEnd::PushedBack {
                    by_source: busy.by == Side::Source,
                    seconds: if busy.seconds == 0 {
                        QUIET
                    } else {
                        f64::from(busy.seconds)
                    },
                },
                (None, Retry::Later) if failure.concern.is_shared() => AttemptEnd::Failed,
                // It says nothing of how much a storage element can do.
                (None, Retry::Later | Retry::ElsewhereOnly | Retry::Never) => return,
            },
            AttemptOutcome::Blocked { .. }
            | AttemptOutcome::Stopped
            | AttemptOutcome::Unsettled
            | AttemptOutcome::Dropped
            | AttemptOutcome::Tidied
            | AttemptOutcome::Untidied { .. } => return,
        };
        let load = LinkLoad {
            is_full: self.is_tuned_full(link),
            active: self.scheduler.active(link).0,
            queued: self.scheduler.queued(link),
        };
        let clock = now.monotonic_us as f64 / 1e6;
        let decided = self.tuning.found.ended(now.at, clock, link, ended, load);
        self.go_by(decided, effects);
    }

    /// About a second has passed.
    pub(super) fn see_links(&mut self, now: Now, seen: &[LinkProgress], effects: &mut Effects) {
        let before = self.tuning.seen_at.replace(now.at);
        let seconds = before.map_or(1.0, |before| now.at.since(before).as_secs_f64());
        // A clock that was set, or a machine that slept: nothing can be told of that time.
        let seconds = seconds.clamp(0.1, 10.0);
        let seen: BTreeMap<&LinkId, &LinkProgress> =
            seen.iter().map(|seen| (&seen.link, seen)).collect();
        let views: Vec<_> = self
            .scheduler
            .links()
            .filter(|view| view.active.0 > 0 || view.queued > 0 || seen.contains_key(&view.link))
            .collect();
        let mut links = Vec::with_capacity(views.len());
        for view in views {
            let rules = self.tuning_rules(&view.link);
            let seen = seen.get(&view.link);
            links.push(LinkObservation {
                rules: rules.of_link,
                active: view.active.0,
                queued: view.queued,
                is_full: is_full(view.because.as_ref()),
                bytes: seen.map_or(0, |seen| seen.moved.0),
                lag: seen.map_or(0.0, |seen| seen.lag),
                queued_there: seen.map_or(0, |seen| seen.queued_there),
                at_ends_max: rules.at_ends_max,
                link: view.link,
            });
        }
        let decided = self.tuning.found.see(now.at, seconds, &links);
        self.go_by(decided, effects);
    }

    fn is_tuned_full(&self, link: &LinkId) -> bool {
        self.scheduler.queued(link) > 0 && is_full(Some(&self.scheduler.why_waiting(link)))
    }

    fn go_by(&mut self, decided: TuningChanges, effects: &mut Effects) {
        for set in &decided.sets {
            self.scheduler.set_tuned(&set.place, set.slots);
        }
        let records = decided.decisions.into_iter();
        effects
            .records
            .extend(records.map(|decision| Record::Tuned(Box::new(decision))));
    }
}

/// Whether it is the link's own number that keeps more from starting.
fn is_full(because: Option<&WaitReason>) -> bool {
    matches!(
        because,
        Some(WaitReason::NoSlot(NoSlot {
            place: SlotPlace::Link,
            because: SlotBound::Limit { .. } | SlotBound::Tuned { .. },
        }))
    )
}
