//! Settings that operators change while everything runs.

use super::{Action, Answer, Effects, Engine, Now};
use penstock_decide::settings::{Asker, Wish, defaults_in_effect, plan, slots_in_effect};
use penstock_model::{Job, SettingChange, UserName};
use penstock_persistence::journal::Record;
use std::sync::Arc;
use std::time::Duration;

impl Engine {
    /// Judges a wish, records what it changes, and goes by it from now on.
    pub(super) fn set(
        &mut self,
        now: Now,
        wish: &Wish,
        asker: &Asker,
        user: UserName,
        effects: &mut Effects,
    ) -> Answer {
        let planned = match plan(&self.settings, asker, wish) {
            Ok(planned) => planned,
            Err(refusal) => return Answer::Refused(refusal),
        };
        let changes: Vec<SettingChange> = planned
            .into_iter()
            .map(|planned| SettingChange {
                at: now.at,
                user: user.clone(),
                action: planned.action.to_owned(),
                key: planned.key,
                before: planned.before,
                after: planned.after,
            })
            .collect();
        if changes.is_empty() {
            return Answer::Set(changes);
        }
        let settings = Arc::make_mut(&mut self.settings);
        for change in &changes {
            settings.apply(change);
            effects
                .records
                .push(Record::Configured(Box::new(change.clone())));
        }
        self.follow_settings();
        effects.actions.push(Action::Publish(self.settings.clone()));
        Answer::Set(changes)
    }

    /// A job that does not say how long it may wait may do so as long as is set for its VO.
    pub(super) fn bound_its_wait(&self, job: &mut Job) {
        let defaults = defaults_in_effect(&self.settings, &job.vo);
        if let (None, Some(hours)) = (job.parameters.expires_at, defaults.queue_hours_max) {
            let wait = Duration::from_secs(u64::from(hours) * 3600);
            job.parameters.expires_at = Some(job.submitted_at + wait);
        }
    }

    /// The scheduler goes by the configuration file and the settings above it.
    pub(super) fn follow_settings(&mut self) {
        let slots = slots_in_effect(&self.config.slots, &self.settings);
        self.scheduler.set_limits(slots);
        self.scheduler.set_drained(self.settings.is_drained());
    }
}
