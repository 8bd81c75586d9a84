//! Bans: what waits for a banned storage element is held back or canceled, and users who are banned get nothing done.
//!
//! A transfer is judged when it would join the queue, and all that are queued when a ban changes; the scheduler knows
//! nothing of it.

use super::{Action, Effects, Engine, Now, Reply};
use crate::checked_submission::NewJob;
use penstock_decide::scheduler::{LinkNumber, QueueEntry};
use penstock_model::{
    Ban, BanChange, BanEffect, BanTarget, JobId, JobKind, LinkId, Record, StorageBan, StorageId,
    Timestamp, TransferId, TransferState, UserBan, UserName, VoName, WaitReason,
};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// What FTS says of transfers that a ban ended; the operator's message follows.
const STORAGE_BANNED: &str = "Storage banned";
const USER_BANNED: &str = "User banned";

/// Bans of one kind there may be. Larger sites have a hundred.
const BANS_MAX: usize = 10_000;

/// The bans that hold, and what waits for their end.
#[derive(Debug, Default)]
pub(super) struct Bans {
    /// By host and VO, so that a transfer is judged by a few look-ups.
    storages: BTreeMap<(String, Option<VoName>), StorageBan>,
    users: BTreeMap<UserName, UserBan>,
    /// Transfers whose turn to be queued came while an end of theirs was banned, and of which link they are.
    held: BTreeMap<TransferId, LinkNumber>,
    held_on: BTreeMap<LinkNumber, u64>,
}

impl Bans {
    /// Those that a restart found.
    pub(super) fn restore(found: Vec<Ban>) -> Bans {
        let mut bans = Bans::default();
        found.into_iter().for_each(|ban| drop(bans.put(ban)));
        bans
    }

    /// Takes the place of the one on the same target, if any, which is given back.
    fn put(&mut self, ban: Ban) -> Option<Ban> {
        match ban {
            Ban::Storage(ban) => {
                let key = (ban.storage.host().to_owned(), ban.vo.clone());
                self.storages.insert(key, ban).map(Ban::Storage)
            }
            Ban::User(ban) => self.users.insert(ban.user.clone(), ban).map(Ban::User),
        }
    }

    fn take(&mut self, target: &BanTarget) -> Option<Ban> {
        match target {
            BanTarget::Storage { host, vo } => {
                let key = (host.clone(), vo.clone());
                self.storages.remove(&key).map(Ban::Storage)
            }
            BanTarget::User(user) => self.users.remove(user).map(Ban::User),
        }
    }

    fn are_too_many(&self, further: &Ban) -> bool {
        match further {
            Ban::Storage(_) => self.storages.len() >= BANS_MAX,
            Ban::User(_) => self.users.len() >= BANS_MAX,
        }
    }

    /// The one that concerns a storage element for the transfers of a VO.
    fn covering(&self, storage: &StorageId, vo: &VoName) -> Option<&StorageBan> {
        if self.storages.is_empty() {
            return None;
        }
        let of = |vo: Option<VoName>| self.storages.get(&(storage.host().to_owned(), vo));
        // Of two, the one that refuses more decides.
        let both = [of(None), of(Some(vo.clone()))];
        both.into_iter()
            .flatten()
            .max_by_key(|ban| ban.effect.refuses_submissions())
    }

    fn holding(&self, link: &LinkId, vo: &VoName) -> Option<&StorageBan> {
        let source = self.covering(&link.source, vo);
        source.or_else(|| self.covering(&link.destination, vo))
    }

    /// Transfers that wait for the end of a ban.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    fn hold(&mut self, transfer: TransferId, link: LinkNumber) {
        if self.held.insert(transfer, link).is_none() {
            *self.held_on.entry(link).or_default() += 1;
        }
    }

    /// It has ended.
    pub(super) fn let_go(&mut self, transfer: TransferId) {
        let Some(link) = self.held.remove(&transfer) else {
            return;
        };
        if let Entry::Occupied(mut of_link) = self.held_on.entry(link) {
            *of_link.get_mut() -= 1;
            if *of_link.get() == 0 {
                of_link.remove();
            }
        }
    }

    fn let_all_go(&mut self) -> BTreeMap<TransferId, LinkNumber> {
        self.held_on.clear();
        std::mem::take(&mut self.held)
    }

    /// When the next ban cancels what waits for it.
    pub(super) fn wake_at(&self) -> Option<Timestamp> {
        let patience = self.storages.values().filter_map(|ban| ban.cancel_at);
        patience.min()
    }
}

impl Engine {
    /// Links on which transfers wait for the end of a ban, with how many.
    pub fn links_held_by_bans(&self) -> impl Iterator<Item = (&LinkId, u64)> + '_ {
        let links = self.bans.held_on.iter();
        links.map(|(link, transfers)| (self.scheduler.link(*link), *transfers))
    }

    /// A ban begins to hold, in the place of any before on the same target: what it concerns is canceled or held back.
    pub(super) fn ban(&mut self, now: Now, ban: Ban, effects: &mut Effects) -> Reply {
        if self.bans.are_too_many(&ban) {
            return Reply::TooManyBans;
        }
        let before = self.bans.put(ban.clone());
        let by = match &ban {
            Ban::Storage(ban) => ban.by.clone(),
            Ban::User(ban) => ban.by.clone(),
        };
        effects.records.push(Record::Banned(Box::new(BanChange {
            at: now.at,
            by,
            before,
            after: Some(ban.clone()),
        })));
        let jobs = match &ban {
            Ban::Storage(ban) => {
                // The one before may have held back more.
                self.release_held(now);
                self.impose(now, ban, effects)
            }
            Ban::User(ban) => {
                effects.actions.push(self.lock_out());
                self.cancel_jobs_of(now, &ban.user, effects)
            }
        };
        Reply::Banned(jobs)
    }

    /// A ban ends: what nothing holds back any more is queued.
    pub(super) fn lift(
        &mut self,
        now: Now,
        target: &BanTarget,
        by: UserName,
        effects: &mut Effects,
    ) -> Reply {
        let Some(before) = self.bans.take(target) else {
            return Reply::NotOpen;
        };
        effects.records.push(Record::Banned(Box::new(BanChange {
            at: now.at,
            by,
            before: Some(before),
            after: None,
        })));
        match target {
            BanTarget::Storage { .. } => self.release_held(now),
            BanTarget::User(_) => effects.actions.push(self.lock_out()),
        }
        Reply::Done
    }

    /// After a restart: tells the interface whom it does not answer.
    pub(super) fn ban_action(&self) -> Option<Action> {
        (!self.bans.users.is_empty()).then(|| self.lock_out())
    }

    fn lock_out(&self) -> Action {
        let users = self.bans.users.keys();
        Action::LockOut(users.map(|user| user.as_str().to_owned()).collect())
    }

    /// A storage element of a job that takes no submissions.
    pub(super) fn refused_by_ban(&self, job: &NewJob) -> Option<StorageId> {
        let ends = job.transfers.iter();
        let storages = ends.flat_map(|file| [file.source.storage(), file.destination.storage()]);
        let refuses = |storage: &StorageId| {
            let ban = self.bans.covering(storage, &job.vo);
            ban.is_some_and(|ban| ban.effect.refuses_submissions())
        };
        match self.bans.storages.is_empty() {
            true => None,
            false => storages.into_iter().find(refuses),
        }
    }

    /// Queues a transfer, unless a token of it is awaited or an end of it is banned.
    pub(super) fn queue(&mut self, waiting: QueueEntry) {
        if !self.holds_back(&waiting) && !self.refuses_by_share(&waiting) {
            self.begin_to_tune(&waiting.link);
            self.halting.queued(&waiting);
            self.enqueue(waiting);
        }
    }

    /// Holds a transfer back if a token of it is awaited or an end of it is banned.
    pub(super) fn holds_back(&mut self, waiting: &QueueEntry) -> bool {
        let transfer = waiting.transfer;
        if self.holds_for_token(transfer) {
            return true;
        }
        let is_banned = self.bans.holding(&waiting.link, &waiting.vo).is_some();
        if is_banned && let Some(entry) = self.transfers.get(&transfer) {
            self.bans.hold(transfer, entry.link);
        }
        is_banned
    }

    /// Why a transfer that could start otherwise is held back.
    pub(super) fn why_banned(&self, transfer: TransferId) -> Option<WaitReason> {
        let entry = self.transfers.get(&transfer)?;
        let vo = self.jobs.get(&entry.job)?.vo();
        let ban = self.bans.holding(self.scheduler.link(entry.link), vo)?;
        Some(WaitReason::StorageBanned {
            storage: ban.storage.clone(),
            since: ban.since,
            cancel_at: ban.cancel_at,
            message: ban.message.clone(),
        })
    }

    /// Cancels what has waited for the end of a ban for as long as its operator allowed.
    pub(super) fn cancel_overdue_bans(&mut self, now: Now, effects: &mut Effects) {
        if !self.clock_is_credible {
            return;
        }
        let due = |ban: &&StorageBan| ban.cancel_at.is_some_and(|at| at <= now.at);
        let due: Vec<StorageBan> = self.bans.storages.values().filter(due).cloned().collect();
        for ban in due {
            let patient = StorageBan {
                cancel_at: None,
                ..ban.clone()
            };
            self.bans.put(Ban::Storage(patient.clone()));
            effects.records.push(Record::Banned(Box::new(BanChange {
                at: now.at,
                by: ban.by.clone(),
                before: Some(Ban::Storage(ban.clone())),
                after: Some(Ban::Storage(patient)),
            })));
            self.cancel_banned(now, &ban, waits, effects);
        }
    }

    fn impose(&mut self, now: Now, ban: &StorageBan, effects: &mut Effects) -> Vec<JobId> {
        match ban.effect {
            BanEffect::Cancel => self.cancel_banned(now, ban, |_| true, effects),
            BanEffect::Wait | BanEffect::WaitAndAccept => self.hold_back(ban),
        }
    }

    fn release_held(&mut self, now: Now) {
        for transfer in self.bans.let_all_go().into_keys() {
            self.let_wait(now, transfer);
        }
    }

    fn cancel_jobs_of(&mut self, now: Now, user: &UserName, effects: &mut Effects) -> Vec<JobId> {
        let own = self.jobs.iter().filter(|(_, job)| job.user() == user);
        let jobs: BTreeSet<JobId> = own.map(|(id, _)| *id).collect();
        for job in &jobs {
            self.cancel(now, *job, None, USER_BANNED, effects);
        }
        jobs.into_iter().collect()
    }

    fn hold_back(&mut self, ban: &StorageBan) -> Vec<JobId> {
        let mut jobs = BTreeSet::new();
        let may_be_held = |state: &TransferState| {
            matches!(
                state,
                TransferState::Submitted { .. } | TransferState::Staging { .. }
            )
        };
        for (transfer, job) in self.concerned(ban, may_be_held) {
            jobs.insert(job);
            if let Some(waiting) = self.waiting(transfer)
                && (self.unqueue(&waiting) || self.stop_gathering(transfer))
            {
                let link = self.transfers[&transfer].link;
                self.bans.hold(transfer, link);
            }
        }
        jobs.into_iter().collect()
    }

    /// Other replicas take the place of those that are canceled; the way of a job of several hops is cut as a whole.
    fn cancel_banned(
        &mut self,
        now: Now,
        ban: &StorageBan,
        which: impl Fn(&TransferState) -> bool,
        effects: &mut Effects,
    ) -> Vec<JobId> {
        let reason = match ban.message.as_str() {
            "" => STORAGE_BANNED.to_owned(),
            message => format!("{STORAGE_BANNED}: {message}"),
        };
        let mut jobs: BTreeMap<JobId, Vec<TransferId>> = BTreeMap::new();
        for (transfer, job) in self.concerned(ban, which) {
            jobs.entry(job).or_default().push(transfer);
        }
        for (job, transfers) in &jobs {
            let is_way = self.jobs[job].parameters().kind == JobKind::Hops;
            let transfers = (!is_way).then(|| transfers.clone());
            self.cancel(now, *job, transfers, &reason, effects);
        }
        jobs.into_keys().collect()
    }

    fn concerned(
        &self,
        ban: &StorageBan,
        which: impl Fn(&TransferState) -> bool,
    ) -> BTreeMap<TransferId, JobId> {
        let all = self.transfers.iter();
        let concerned = all.filter(|(_, entry)| {
            let vo = self.jobs[&entry.job].vo();
            let link = self.scheduler.link(entry.link);
            which(entry.state())
                && (ban.covers(&link.source, vo) || ban.covers(&link.destination, vo))
        });
        concerned.map(|(id, entry)| (*id, entry.job)).collect()
    }
}

fn waits(state: &TransferState) -> bool {
    match state {
        TransferState::Submitted { .. }
        | TransferState::Staging { .. }
        | TransferState::NotUsed => true,
        TransferState::Recalling { .. }
        | TransferState::Active { .. }
        | TransferState::Archiving { .. }
        | TransferState::Finished { .. }
        | TransferState::Failed { .. }
        | TransferState::Canceled { .. } => false,
    }
}
