//! Settings that operators change while everything runs.

use super::{Action, Answer, Effects, Engine, Now};
use penstock_decide::settings::{Asker, Wish, plan, slots_in_effect};
use penstock_model::{SettingChange, UserName};
use penstock_persistence::journal::Record;
use std::sync::Arc;

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

    /// The scheduler goes by the configuration file and the settings above it.
    pub(super) fn follow_settings(&mut self) {
        let slots = slots_in_effect(&self.config.slots, &self.settings);
        self.scheduler.set_limits(slots);
        self.scheduler.set_drained(self.settings.is_drained());
    }
}
