//! The loop around the tape system: persist what it records, then do what it orders, and tell the namespace what has become of
//! files. It knows neither commands nor drives.

mod archiving;
mod asking;
mod away_pools;
mod bringing;
mod damaged_copies;
mod data_sets;
mod forecasts;
mod metering;
mod retrying;

use super::driver_task::{DriverTask, TapeOutcome};
use super::room_wait::RoomWait;
use super::tape_system::{TapeSystem, TaskOf};
use super::{NearlineContext, NearlineStatus};
use crate::config::NearlineConfig;
use crate::nearline_inbox::{NearlineMail, NearlineMessage};
use crate::tape_operator::OperatorRequest;
use archiving::{Comparisons, is_as_written};
pub(super) use asking::Lookup;
use away_pools::AwayPools;
use bringing::{CheckNews, Recall};
use damaged_copies::SetAside;
use forecasts::Forecasts;
use parking_lot::Mutex;
use penstock_decide::clock::ClockTrust;
use penstock_model::{ProblemCode, Timestamp};
use penstock_persistence::namespace::{
    Change, ChangeError, ChangeReport, EntryId, NearlineChange, TAPE_REMOVAL_USUAL, TapeCopyUri,
};
use retrying::Retries;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// How long the loop sleeps when nothing is to be done.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Between two comparisons of what the tape system knows with what the namespace says.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(3_600);
/// How long a look at a disk may take.
const LOOK_WAIT: Duration = Duration::from_secs(5);
/// Between two tries to tell the namespace something that it must know.
const NAMESPACE_RETRY: Duration = Duration::from_secs(1);
/// Files that are looked up at once.
const PAGE_FILES: usize = 1_000;
/// Records in the journal before it is cut short, beyond those of what lives.
const JOURNAL_RECORDS_MAX: usize = 20_000;
/// What people are told is found out at most so often.
const STATUS_INTERVAL: Duration = Duration::from_millis(200);
/// Between two looks whether a forecast is due of when files will be on disk.
const FORECAST_INTERVAL: Duration = Duration::from_secs(1);
/// How long after a file has come to tape its pool is looked at, whether copies that may go have to.
const ROOM_DELAY: Duration = Duration::from_secs(1);
/// How long pins and requests that are over are removed at once; the rest waits for the next upkeep.
const PRUNE_TIME_MAX: Duration = Duration::from_secs(2);
/// Messages that are taken as one.
const MESSAGES_MAX: usize = 1_000;

/// The loop.
pub(super) struct Driver<S: TapeSystem> {
    config: NearlineConfig,
    pub(super) context: NearlineContext,
    /// Where looks at recalled files tell how they went.
    checks: mpsc::UnboundedSender<CheckNews<S::Try>>,
    checked: mpsc::UnboundedReceiver<CheckNews<S::Try>>,
    status: Arc<Mutex<NearlineStatus>>,
    system: S,
    /// Where the files go that are being brought.
    recalls: BTreeMap<S::Try, Recall>,
    /// Which files wait for a place on disk.
    pub(super) room_wait: RoomWait,
    away_pools: AwayPools,
    comparisons: Comparisons,
    retries: Retries,
    set_aside: SetAside,
    /// When room is made next because copies may go that could not before; `None`: with the next upkeep.
    room_due: Option<Instant>,
    journal_records: usize,
    /// Where forecasts that were made on other threads come; at most one is being made.
    forecasts: Forecasts,
    /// What waits is compared with the classes as they are now.
    is_starting: bool,
    is_over: bool,
}

impl<S: TapeSystem> Driver<S> {
    /// `journal_records`: as many as the namespace keeps for it.
    pub(super) fn new(
        config: NearlineConfig,
        context: NearlineContext,
        system: S,
        journal_records: usize,
        status: Arc<Mutex<NearlineStatus>>,
    ) -> Driver<S> {
        let (checks, checked) = mpsc::unbounded_channel();
        let retries = Retries::new(config.retry_first, config.retry_max);
        Driver {
            config,
            context,
            checks,
            checked,
            status,
            system,
            recalls: BTreeMap::new(),
            room_wait: RoomWait::default(),
            away_pools: AwayPools::default(),
            comparisons: Comparisons::default(),
            retries,
            set_aside: SetAside::default(),
            room_due: None,
            journal_records,
            forecasts: Forecasts::default(),
            is_starting: true,
            is_over: false,
        }
    }

    /// Runs until it is told to stop.
    pub(super) async fn run(mut self, mut mail: NearlineMail) {
        self.find_set_aside().await;
        let orders = self.system.resume();
        self.perform(orders).await;
        self.compare().await;
        self.is_starting = false;
        self.upkeep().await;
        let mut upkeep = tokio::time::interval(self.config.upkeep_interval);
        upkeep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        upkeep.tick().await;
        let mut comparison = tokio::time::interval(COMPARISON_INTERVAL);
        comparison.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        comparison.tick().await;
        let mut forecast = tokio::time::interval(FORECAST_INTERVAL);
        forecast.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.publish_status();
        // When the status has to be found out anew; `None`: nothing has happened since.
        let mut status_due: Option<Instant> = None;
        while !self.is_over {
            let wait = self.system.wait().unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
            let retry = self.retries.wait();
            tokio::select! {
                () = until(status_due) => {
                    self.publish_status();
                    status_due = None;
                    continue;
                }
                message = mail.next() => match message {
                    Some(message) => self.take(message, &mut mail).await,
                    None => return,
                },
                Some(news) = self.system.news() => {
                    let orders = self.system.take_news(news);
                    self.perform(orders).await;
                }
                Some(comparison) = self.comparisons.ended.recv() => {
                    self.take_comparison(comparison).await;
                }
                Some((recall, news)) = self.checked.recv() => self.take_check(recall, news).await,
                () = tokio::time::sleep(wait) => {
                    let orders = self.system.tick();
                    self.perform(orders).await;
                }
                () = retry => self.ask_again().await,
                () = until(self.room_due) => {
                    self.room_due = None;
                    self.make_room().await;
                }
                _ = upkeep.tick() => self.upkeep().await,
                _ = comparison.tick() => self.compare().await,
                _ = forecast.tick() => self.forecasts.begin(&self.system),
                () = self.forecasts.made() => {}
            }
            status_due.get_or_insert_with(|| Instant::now() + STATUS_INTERVAL);
        }
        let Driver {
            system, context, ..
        } = self;
        for outcome in system.end().await {
            keep_last_word(&context, outcome).await;
        }
    }

    /// The time that is written down.
    pub(super) fn recorded(&self) -> Timestamp {
        self.context.clock.recorded()
    }

    /// The time by which a pin ends: a clock that has leapt ends none.
    pub(super) fn believed_now(&self) -> Timestamp {
        self.context.clock.now()
    }

    async fn take(&mut self, first: NearlineMessage, mail: &mut NearlineMail) {
        let (mut precious, mut asked, mut is_retry) = (Vec::new(), Vec::new(), false);
        let mut is_comparison = false;
        let mut operators = Vec::new();
        let mut next = Some(first);
        for _ in 0..MESSAGES_MAX {
            match next.take() {
                Some(NearlineMessage::Precious(file)) => precious.push(file),
                Some(NearlineMessage::Restored(file)) => {
                    precious.push(file);
                    self.system.file_restored();
                }
                Some(NearlineMessage::Asked(files)) => asked.extend(files),
                Some(NearlineMessage::Compare) => is_comparison = true,
                Some(NearlineMessage::RetryNow) => is_retry = true,
                Some(NearlineMessage::Operator(request)) => operators.push(request),
                Some(NearlineMessage::Stop) => self.is_over = true,
                None => break,
            }
            next = mail.next_at_once();
        }
        self.ask_puts(precious).await;
        self.ask_gets(asked).await;
        if is_comparison {
            self.compare().await;
        }
        for OperatorRequest { order, reply } in operators {
            let orders = self.system.operate(order, reply).await;
            self.perform(orders).await;
        }
        if is_retry {
            self.retries.end_pauses();
            let orders = self.system.retry_now();
            self.perform(orders).await;
            self.ask_again().await;
        }
    }

    /// Does what the tape system orders, in its order.
    async fn perform(&mut self, orders: Vec<TaskOf<S>>) {
        let mut orders = VecDeque::from(orders);
        while let Some(order) = orders.pop_front() {
            let more = match order {
                DriverTask::Persist(records) => {
                    self.persist(records, &mut orders).await;
                    Vec::new()
                }
                DriverTask::Begin(work) => self.system.begin(work),
                DriverTask::Bring(recall, file) => self.bring(recall, file).await,
                DriverTask::Check(recall) => self.check(recall),
                DriverTask::Abandon(recall) => {
                    self.abandon(&recall);
                    Vec::new()
                }
                DriverTask::Tell(outcome) => {
                    let copied = outcome.copied_file();
                    self.tell(outcome).await;
                    copied.map_or_else(Vec::new, |file| self.system.copy_told(file))
                }
            };
            if self.is_over {
                // What was not persisted is not done; the next start finds it.
                return;
            }
            orders.extend(more);
        }
    }

    /// Keeps records. When all are replaced by what they make up, those of tasks that follow are in that already: to keep them once
    /// more would have them happen twice. What is to be told first may be told already as far as they go: then they are only added to.
    async fn persist(&mut self, records: Vec<String>, following: &mut VecDeque<TaskOf<S>>) {
        self.journal_records += records.len();
        let live = self.system.live_requests();
        let mut tells = following.iter();
        let is_to_tell = tells.any(|task| matches!(task, DriverTask::Tell(_)));
        let is_long = self.journal_records > JOURNAL_RECORDS_MAX + 4 * live;
        let change = match is_long && !is_to_tell {
            true => {
                following.retain(|order| !matches!(order, DriverTask::Persist(_)));
                let kept = self.system.records();
                self.journal_records = kept.len();
                NearlineChange::ReplaceJournal(kept)
            }
            false => NearlineChange::AppendJournal(records),
        };
        self.must(change).await;
    }

    /// Makes a change that nothing goes on without. `None`: the driver ends, or the change was refused for good.
    async fn must(&mut self, change: NearlineChange) -> Option<ChangeReport> {
        self.change_for_sure(change).await.ok()
    }

    /// The same, for whom it matters why a change was refused.
    async fn change_for_sure(
        &mut self,
        change: NearlineChange,
    ) -> Result<ChangeReport, ChangeError> {
        loop {
            match self.change(change.clone()).await {
                Ok(report) => return Ok(report),
                Err(ChangeError::Refused(why)) => {
                    tracing::warn!(%why, "the namespace refuses a change of the tape system");
                    return Err(ChangeError::Refused(why));
                }
                Err(ChangeError::Stopped) => {
                    self.is_over = true;
                    return Err(ChangeError::Stopped);
                }
                Err(why) => {
                    tracing::error!(%why, "the namespace cannot keep a change of the tape system; trying again");
                    tokio::time::sleep(NAMESPACE_RETRY).await;
                }
            }
        }
    }

    /// Makes a change; data that it leaves is removed from the disks.
    pub(super) async fn change(&self, change: NearlineChange) -> Result<ChangeReport, ChangeError> {
        make_change(&self.context, change).await
    }

    /// At a start, and now and then: what the namespace says counts, whatever the tape system remembers.
    async fn compare(&mut self) {
        let mut after = EntryId(0);
        let mut precious = Vec::new();
        loop {
            let page = self.context.namespace.precious_files(after, PAGE_FILES);
            let Ok(page) = page
                .inspect_err(|why| tracing::error!(%why, "files that go to tape cannot be listed"))
            else {
                return;
            };
            let Some(last) = page.last() else { break };
            after = last.id;
            precious.extend(page.iter().map(|file| file.id));
        }
        let mut awaited = Vec::new();
        let mut after = EntryId(0);
        loop {
            let page = self.context.namespace.awaited_files(after, PAGE_FILES);
            let Ok(page) = page.inspect_err(
                |why| tracing::error!(%why, "files that somebody waits for cannot be listed"),
            ) else {
                return;
            };
            let Some(last) = page.last() else { break };
            after = *last;
            awaited.extend(page);
        }
        let known = self.system.files();
        precious.extend(known.iter().copied());
        awaited.extend(known);
        self.ask_puts(precious).await;
        self.ask_gets(awaited).await;
    }

    /// What became of a file is kept in the namespace.
    async fn tell(&mut self, outcome: TapeOutcome) {
        match outcome {
            TapeOutcome::Archived { file, uris } => self.archived(file, uris).await,
            TapeOutcome::CopyMade {
                file,
                uri,
                instead_of,
                is_brought,
            } => {
                let made = NearlineChange::CopyMade {
                    file,
                    uri,
                    instead_of,
                    at: self.recorded(),
                };
                self.must(made).await;
                if is_brought {
                    self.let_go(file).await;
                }
            }
            TapeOutcome::DiskCopyDamaged(file) => self.lose_damaged_copy(file).await,
            TapeOutcome::LostInTrash { file, uris } => {
                self.must(NearlineChange::LoseCopiesInTrash { file, uris })
                    .await;
            }
            TapeOutcome::NotRecalled { file, error } => {
                self.fail_recall(file, ProblemCode::TapeFailed, &error)
                    .await;
            }
            TapeOutcome::Later(file) => self.ask_later(file),
            TapeOutcome::NoRoom { files, lack } => {
                for (file, size) in &files {
                    self.retries.add(*file, Some((*size, false)));
                }
                self.wait_for_room(&files, lack).await;
            }
            TapeOutcome::RemovalsEnded(uris) => {
                self.must(NearlineChange::ForgetRemovals(uris)).await;
            }
        }
    }

    /// What only time brings.
    async fn upkeep(&mut self) {
        if let ClockTrust::Doubted { .. } = self.context.clock.standing() {
            // What goes because of the time does not come back with the right one.
            return;
        }
        self.ask_removals().await;
        let orders = self.system.care_for_tapes();
        self.perform(orders).await;
        self.look_after_away_pools().await;
        self.drop_set_aside().await;
        self.forget_who_needs_no_room();
        self.make_room().await;
        let at = self.recorded();
        let before =
            Timestamp(at.0 - i64::try_from(self.config.stage_kept.as_millis()).unwrap_or(i64::MAX));
        let until = Instant::now() + PRUNE_TIME_MAX;
        loop {
            let pruned = self.change(NearlineChange::PruneStages { before, at });
            match pruned.await {
                Ok(report) if report.is_more && Instant::now() < until => {}
                Ok(_) => return,
                Err(why) => {
                    tracing::warn!(%why, "stage requests that are over could not be removed");
                    return;
                }
            }
        }
    }

    async fn ask_removals(&mut self) {
        // Those that are over by the time for which removed files are kept here.
        let usual_ms = i64::try_from(TAPE_REMOVAL_USUAL.as_millis()).unwrap_or(i64::MAX);
        let kept_ms = i64::try_from(self.config.removed_kept.as_millis()).unwrap_or(i64::MAX);
        let at = Timestamp(
            self.recorded()
                .0
                .saturating_add(usual_ms)
                .saturating_sub(kept_ms),
        );
        let owed = self.context.namespace.tape_removals(at, PAGE_FILES);
        let Ok(owed) = owed.inspect_err(
            |why| tracing::error!(%why, "copies on tape to be removed cannot be listed"),
        ) else {
            return;
        };
        if !owed.is_empty() {
            let orders = self.system.ask_removals(owed);
            self.perform(orders).await;
        }
    }

    fn publish_status(&mut self) {
        let (now, wait_max) = (self.recorded(), self.config.room_wait_max);
        let no_room = self.room_wait.incident(now, wait_max);
        let mut status = self.system.status();
        self.count_retries(&mut status.counts);
        let state = self.system.meter_state(&status.counts);
        self.context.meter.set_state(state);
        status.incidents.extend(no_room);
        let put_faults = self.context.put_faults.incidents();
        status.incidents.extend(put_faults);
        status.outlooks = self.forecasts.outlooks();
        *self.status.lock() = status;
    }

    pub(super) fn has_readable_copy(&self, file: EntryId, copies: &[TapeCopyUri]) -> bool {
        self.system.has_readable_copy(file, copies)
    }

    pub(super) fn keep_free_permille(&self) -> u16 {
        self.config.keep_free_permille
    }

    /// The copy of a file on disk is needed, although it is on tape.
    pub(super) fn is_held(&self, file: EntryId) -> bool {
        self.system.holds(file)
    }
}

/// Comes to its end then; `None`: never.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}

async fn make_change(
    context: &NearlineContext,
    change: NearlineChange,
) -> Result<ChangeReport, ChangeError> {
    let (reply, answer) = oneshot::channel();
    let reaper = context.reaper.clone();
    context
        .namespace
        .submit(Change::Nearline(change), move |result| {
            if let Ok(changed) = &result {
                reaper.bury(&changed.trashed);
            }
            let _ = reply.send(result);
        });
    answer.await.unwrap_or(Err(ChangeError::Stopped))
}

/// What has come out while the tape system ended. The next start does again what is not kept.
async fn keep_last_word(context: &NearlineContext, outcome: TapeOutcome) {
    if let TapeOutcome::Archived { file, uris } = outcome
        && is_as_written(context, file).await
    {
        let at = context.clock.recorded();
        let archived = NearlineChange::Archived { file, uris, at };
        if let Err(why) = make_change(context, archived).await {
            tracing::warn!(%why, %file, "that a file is on tape was not kept; it is put there again");
        }
    }
}
