//! Settings that operators change while everything runs.

use super::{Action, Effects, Engine, Now, Reply};
use penstock_decide::scheduler::QueueEntry;
use penstock_decide::settings::{SettingRequest, SettingRequester, defaults_in_effect, plan};
use penstock_decide::shares::Shares;
use penstock_model::{
    Activity, Concern, DEFAULT_ACTIVITY, Errno, Failure, Job, Phase, ProblemCode, Record, Retry,
    SettingChange, Side, TransferEvent, TransferState, UserName,
};
use std::sync::Arc;
use std::time::Duration;

impl Engine {
    /// Judges a wish, records what it changes, and goes by it from now on.
    pub(super) fn set(
        &mut self,
        now: Now,
        wish: &SettingRequest,
        asker: &SettingRequester,
        user: UserName,
        effects: &mut Effects,
    ) -> Reply {
        let planned = match plan(&self.settings, asker, wish) {
            Ok(planned) => planned,
            Err(refusal) => return Reply::Refused(refusal),
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
            return Reply::Set(changes);
        }
        let settings = Arc::make_mut(&mut self.settings);
        for change in &changes {
            settings.apply(change);
            effects
                .records
                .push(Record::Configured(Box::new(change.clone())));
        }
        self.follow_settings(now);
        effects.actions.push(Action::Publish(self.settings.clone()));
        Reply::Set(changes)
    }

    /// A job that does not say how long it may wait may do so as long as is set for its VO.
    pub(super) fn cap_queue_time(&self, job: &mut Job) {
        let defaults = defaults_in_effect(&self.settings, &job.vo);
        if let (None, Some(hours)) = (job.parameters.expires_at, defaults.queue_hours_max) {
            let wait = Duration::from_secs(u64::from(hours) * 3600);
            job.parameters.expires_at = Some(job.submitted_at + wait);
        }
    }

    /// The scheduler goes by the configuration file and the settings above it.
    pub(super) fn follow_settings(&mut self, now: Now) {
        self.nodes.resize_own(self.config.slots.agents);
        self.scheduler.set_limits(self.limits());
        self.tuning.forget_rules();
        self.scheduler.set_drained(self.settings.is_drained());
        self.reconsider_gatherings(now.at);
        self.follow_shares();
    }

    /// The scheduler goes by the shares that are set. What is queued for a link of which its VO has no share any more
    /// is to fail.
    pub(super) fn follow_shares(&mut self) {
        let shares = Shares::of(&self.settings);
        if shares == *self.scheduler.shares() {
            return;
        }
        let mut refused = Vec::new();
        for (id, entry) in &self.transfers {
            let waits = matches!(entry.state(), TransferState::Submitted { .. });
            let link = self.scheduler.link(entry.link);
            if waits && !shares.allow(link, self.jobs[&entry.job].vo()) {
                refused.push(*id);
            }
        }
        for id in refused {
            if let Some(waiting) = self.waiting(id)
                && self.unqueue(&waiting)
            {
                self.without_share.insert(id);
            }
        }
        let transfers = &self.transfers;
        let activity = |id| match transfers.get(&id) {
            Some(entry) => entry.activity(),
            None => Activity::new(DEFAULT_ACTIVITY),
        };
        self.scheduler.set_shares(shares, activity);
    }

    /// True when a transfer is queued nowhere, because its VO has no share of its link.
    pub(super) fn refuses_by_share(&mut self, waiting: &QueueEntry) -> bool {
        let refuses = !self.scheduler.shares().allow(&waiting.link, &waiting.vo);
        if refuses {
            self.without_share.insert(waiting.transfer);
        }
        refuses
    }

    /// As FTS: what may never go is not left waiting.
    pub(super) fn fail_without_share(&mut self, now: Now, effects: &mut Effects) {
        while let Some(transfer) = self.without_share.pop_first() {
            let failure = Failure {
                side: Side::Service,
                retry: Retry::Never,
                concern: Concern::Request,
                phase: Phase::Service,
                errno: Errno::EPERM,
                detail: "No share configured for this VO".to_owned(),
                found: None,
                busy: None,
                code: Some(ProblemCode::VoWithoutShare),
            };
            self.give_up(now, transfer, TransferEvent::Refused { failure }, effects);
        }
    }
}
