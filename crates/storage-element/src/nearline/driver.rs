//! The loop around the queue of the HSM: persist what it records, then do what it orders.

mod asking;
mod commands;
mod metering;

use super::recall::{PlacedRecall, WRONG_DATA};
use super::tape_meter::TapeMeter;
use super::{NearlineContext, NearlineIncident, NearlineStatus};
use crate::config::NearlineConfig;
use crate::hsm_command::HsmRunner;
use crate::nearline_inbox::{NearlineMail, NearlineMessage};
use commands::CheckedEnd;
use parking_lot::Mutex;
use penstock_decide::clock::ClockTrust;
use penstock_model::Timestamp;
use penstock_persistence::namespace::{Change, ChangeError, ChangeReport, EntryId, NearlineChange};
use penstock_tape::hsm_queue::{
    HsmCommandEnd, HsmCommandId, HsmEffect, HsmFault, HsmIncident, HsmInput, HsmOutcome, HsmQueue,
    HsmRecord, HsmRemove, HsmTarget, HsmUri,
};
use penstock_tape::request::{RequestId, VoName as TapeVo};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long the loop sleeps when the queue wants nothing.
const SLEEP_MAX: Duration = Duration::from_secs(60);
/// Between two comparisons of what the queue knows with what the namespace says.
const COMPARISON_INTERVAL: Duration = Duration::from_secs(3_600);
/// How long a look at a disk may take.
const LOOK_WAIT: Duration = Duration::from_secs(5);
/// Between two tries to tell the namespace something that it must know.
const NAMESPACE_RETRY: Duration = Duration::from_secs(1);
/// Files that are looked up at once.
const PAGE_FILES: usize = 1_000;
/// Records in the journal before it is cut short, beyond those of what lives.
const JOURNAL_RECORDS_MAX: usize = 20_000;
/// News of commands that wait to be taken; commands wait beyond.
const NEWS_MAX: usize = 1_000;
/// Messages that are taken as one.
const MESSAGES_MAX: usize = 1_000;
/// Sets requests for recalls apart from those to put the same file on tape.
const RECALL_BIT: u64 = 1 << 63;
/// The same for removals, which have numbers of their own.
const REMOVAL_BIT: u64 = 1 << 62;

/// The loop.
pub(super) struct Driver {
    config: NearlineConfig,
    pub(super) context: NearlineContext,
    /// Where looks at recalled files tell how they went.
    checks: mpsc::UnboundedSender<(HsmCommandId, CheckedEnd)>,
    checked: mpsc::UnboundedReceiver<(HsmCommandId, CheckedEnd)>,
    news: mpsc::Receiver<HsmInput>,
    status: Arc<Mutex<NearlineStatus>>,
    queue: HsmQueue,
    runner: HsmRunner,
    /// Where the files go that commands are bringing.
    recalls: BTreeMap<HsmCommandId, PlacedRecall>,
    /// What a request to remove removes.
    removals: BTreeMap<RequestId, HsmUri>,
    next_removal: u64,
    /// The last words of faults that incidents were opened with.
    faults: BTreeMap<HsmIncident, HsmFault>,
    journal_records: usize,
    wake_ns: Option<i64>,
    is_over: bool,
}

impl Driver {
    pub(super) fn new(
        config: NearlineConfig,
        context: NearlineContext,
        status: Arc<Mutex<NearlineStatus>>,
    ) -> io::Result<Driver> {
        let journal = context.namespace.tape_journal().map_err(io::Error::other)?;
        let records: Result<Vec<HsmRecord>, _> = journal
            .iter()
            .map(|record| serde_json::from_str(record))
            .collect();
        let records = records.map_err(io::Error::other)?;
        let queue = HsmQueue::restore(config.policy.clone(), &records);
        let (sender, news) = mpsc::channel(NEWS_MAX);
        let runner = HsmRunner::new(config.commands.clone(), sender);
        let (checks, checked) = mpsc::unbounded_channel();
        Ok(Driver {
            config,
            context,
            checks,
            checked,
            news,
            status,
            queue,
            runner,
            recalls: BTreeMap::new(),
            removals: BTreeMap::new(),
            next_removal: 0,
            faults: BTreeMap::new(),
            journal_records: records.len(),
            wake_ns: None,
            is_over: false,
        })
    }

    /// Runs until it is told to stop.
    pub(super) async fn run(mut self, mut mail: NearlineMail) {
        self.know_removals();
        let effects = self.queue.resume(self.now_ns());
        self.perform(effects).await;
        self.compare().await;
        self.upkeep().await;
        let mut upkeep = tokio::time::interval(self.config.upkeep_interval);
        upkeep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        upkeep.tick().await;
        let mut comparison = tokio::time::interval(COMPARISON_INTERVAL);
        comparison.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        comparison.tick().await;
        while !self.is_over {
            self.publish_status();
            let wait = self.wait();
            tokio::select! {
                message = mail.recv() => match message {
                    Some(message) => self.take(message, &mut mail).await,
                    None => return,
                },
                Some(news) = self.news.recv() => self.take_news(news).await,
                Some((command, end)) = self.checked.recv() => self.settle(command, end).await,
                () = tokio::time::sleep(wait) => self.input(HsmInput::Tick).await,
                _ = upkeep.tick() => self.upkeep().await,
                _ = comparison.tick() => self.compare().await,
            }
        }
        for news in self.runner.stop_all(&mut self.news).await {
            self.keep_last_word(news).await;
        }
    }

    /// What a command has told at the end: a file that is on tape by now needs no second put.
    async fn keep_last_word(&mut self, news: HsmInput) {
        let HsmInput::Ended {
            command,
            end: HsmCommandEnd::Succeeded { uris },
        } = news
        else {
            return;
        };
        let target = self.queue.live().runs.get(&command).map(|run| &run.target);
        if let Some(HsmTarget::Put(file)) = target {
            let (file, at) = (EntryId(file.0), self.now());
            let uris = uris.iter().map(|uri| uri.as_str().to_owned()).collect();
            self.must(NearlineChange::Archived { file, uris, at }).await;
        }
    }

    /// Until the queue wants to be woken.
    fn wait(&self) -> Duration {
        let Some(wake_ns) = self.wake_ns else {
            return SLEEP_MAX;
        };
        let wait_ns = wake_ns.saturating_sub(self.now_ns()).max(1_000_000);
        Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(0)).min(SLEEP_MAX)
    }

    fn now(&self) -> Timestamp {
        self.context.clock.recorded()
    }

    fn now_ns(&self) -> i64 {
        self.now().0.saturating_mul(1_000_000)
    }

    async fn take(&mut self, first: NearlineMessage, mail: &mut NearlineMail) {
        let (mut precious, mut asked, mut is_retry) = (Vec::new(), Vec::new(), false);
        let mut next = Some(first);
        for _ in 0..MESSAGES_MAX {
            match next.take() {
                Some(NearlineMessage::Precious(file)) => precious.push(file),
                Some(NearlineMessage::Asked(files)) => asked.extend(files),
                Some(NearlineMessage::RetryNow) => is_retry = true,
                Some(NearlineMessage::Stop) => self.is_over = true,
                None => break,
            }
            next = mail.try_recv().ok();
        }
        self.ask_puts(precious).await;
        self.ask_gets(asked).await;
        if is_retry {
            let all = self.queue.live().entries.keys().cloned().collect();
            self.input(HsmInput::RetryNow(all)).await;
        }
    }

    /// What a command tells. What a recall has brought is looked at before the queue hears of its end.
    async fn take_news(&mut self, news: HsmInput) {
        let HsmInput::Ended { command, end } = news else {
            self.input(news).await;
            return;
        };
        let is_success = matches!(end, HsmCommandEnd::Succeeded { .. });
        if let Some(placed) = self.recalls.get(&command).filter(|_| is_success) {
            let (checks, reads) = (self.checks.clone(), self.checks.clone());
            placed.check(
                move |bytes| drop(reads.send((command, CheckedEnd::Reading(bytes)))),
                move |end| drop(checks.send((command, CheckedEnd::Of(end)))),
            );
            return;
        }
        self.recalls.remove(&command);
        self.input(HsmInput::Ended { command, end }).await;
    }

    async fn input(&mut self, input: HsmInput) {
        let effects = self.queue.handle(self.now_ns(), input);
        self.perform(effects).await;
    }

    /// Does what the queue orders, in its order.
    async fn perform(&mut self, effects: Vec<HsmEffect>) {
        for effect in effects {
            match effect {
                HsmEffect::Persist(records) => self.persist(records).await,
                HsmEffect::Start(command) => {
                    self.meter_begin(&command);
                    self.start(command).await;
                }
                HsmEffect::Stop(command) => self.runner.stop(command),
                HsmEffect::Tell { request, outcome } => self.tell(request, outcome).await,
                HsmEffect::Disk { target, fault } => {
                    tracing::warn!(
                        ?target,
                        ?fault,
                        "a command of the HSM found its disk at fault"
                    );
                }
                HsmEffect::Open { incident, fault } => {
                    let text = fault.as_ref().map(|fault| fault.text.clone());
                    tracing::error!(
                        ?incident,
                        fault = text,
                        "the tape system needs somebody to look at it"
                    );
                    if let Some(fault) = fault {
                        self.faults.insert(incident, fault);
                    }
                }
                HsmEffect::Close(end) => {
                    self.faults.remove(&end.incident);
                    let seconds = (end.until_ns - end.since_ns) / 1_000_000_000;
                    tracing::info!(incident = ?end.incident, seconds, waited = ?end.waited, "the tape system works again");
                }
                HsmEffect::WakeAt(at_ns) => self.wake_ns = Some(at_ns),
            }
        }
    }

    async fn persist(&mut self, records: Vec<HsmRecord>) {
        let lines: Vec<String> = records
            .iter()
            .filter_map(|record| serde_json::to_string(record).ok())
            .collect();
        self.journal_records += lines.len();
        let live = self.queue.live().entries.len();
        let change = match self.journal_records > JOURNAL_RECORDS_MAX + 4 * live {
            true => {
                let kept = self.queue.records();
                self.journal_records = kept.len();
                let kept = kept
                    .iter()
                    .filter_map(|record| serde_json::to_string(record).ok());
                NearlineChange::ReplaceJournal(kept.collect())
            }
            false => NearlineChange::AppendJournal(lines),
        };
        self.must(change).await;
    }

    /// Makes a change that nothing goes on without. `None`: the driver ends, or the change was refused for good.
    async fn must(&mut self, change: NearlineChange) -> Option<ChangeReport> {
        loop {
            match self.change(change.clone()).await {
                Ok(report) => return Some(report),
                Err(ChangeError::Refused(why)) => {
                    tracing::warn!(%why, "the namespace does not take what became of a file on tape");
                    return None;
                }
                Err(ChangeError::Stopped) => {
                    self.is_over = true;
                    return None;
                }
                Err(why) => {
                    tracing::error!(%why, "the namespace cannot be told what became of a file on tape; trying again");
                    tokio::time::sleep(NAMESPACE_RETRY).await;
                }
            }
        }
    }

    /// Makes a change; data that it leaves is removed from the disks.
    pub(super) async fn change(&self, change: NearlineChange) -> Result<ChangeReport, ChangeError> {
        let (reply, answer) = oneshot::channel();
        let reaper = self.context.reaper.clone();
        self.context
            .namespace
            .submit(Change::Nearline(change), move |result| {
                if let Ok(changed) = &result {
                    reaper.bury(&changed.trashed);
                }
                let _ = reply.send(result);
            });
        answer.await.unwrap_or(Err(ChangeError::Stopped))
    }

    /// At a start: what the namespace says counts, whatever the queue remembers.
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
        let known: Vec<EntryId> = self
            .queue
            .live()
            .entries
            .keys()
            .filter_map(|target| match target {
                HsmTarget::Put(file) | HsmTarget::Get(file) => Some(EntryId(file.0)),
                HsmTarget::Remove(_) => None,
            })
            .collect();
        precious.extend(known.iter().copied());
        awaited.extend(known);
        self.ask_puts(precious).await;
        self.ask_gets(awaited).await;
    }

    /// What became of a request is kept in the namespace.
    async fn tell(&mut self, request: RequestId, outcome: HsmOutcome) {
        if let Some(uri) = self.removals.remove(&request) {
            if outcome == HsmOutcome::Removed {
                self.must(NearlineChange::ForgetRemovals(vec![
                    uri.as_str().to_owned(),
                ]))
                .await;
            }
            return;
        }
        self.meter_end(request, &outcome);
        let file = EntryId(request.0 & !RECALL_BIT);
        match outcome {
            HsmOutcome::Stored { uris } => {
                let uris = uris.iter().map(|uri| uri.as_str().to_owned()).collect();
                let at = self.now();
                self.must(NearlineChange::Archived { file, uris, at }).await;
            }
            HsmOutcome::Failed { tries, fault } => {
                let text = &fault.text;
                tracing::error!(%file, tries, code = fault.code, text, "the HSM does not bring a file");
                // The words of a program may hold paths and hosts that are nobody's business.
                let error = match text.starts_with(WRONG_DATA) {
                    true => text.clone(),
                    false => format!(
                        "the tape system did not bring it in {tries} tries; the site's administrator finds the reason in the log"
                    ),
                };
                self.fail_recall(file, &error).await;
            }
            HsmOutcome::Expired
            | HsmOutcome::Canceled
            | HsmOutcome::Fetched
            | HsmOutcome::Removed => {}
        }
    }

    /// The removals that the queue remembers.
    fn know_removals(&mut self) {
        for (target, entry) in &self.queue.live().entries {
            let HsmTarget::Remove(uri) = target else {
                continue;
            };
            for request in entry.askers.keys() {
                self.removals.insert(*request, uri.clone());
                self.next_removal = self.next_removal.max((request.0 & !REMOVAL_BIT) + 1);
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
        self.make_room().await;
        let at = self.now();
        let before =
            Timestamp(at.0 - i64::try_from(self.config.stage_kept.as_millis()).unwrap_or(i64::MAX));
        if let Err(why) = self
            .change(NearlineChange::PruneStages { before, at })
            .await
        {
            tracing::warn!(%why, "stage requests that are over could not be removed");
        }
    }

    async fn ask_removals(&mut self) {
        let owed = self.context.namespace.tape_removals(self.now(), PAGE_FILES);
        let Ok(owed) = owed.inspect_err(
            |why| tracing::error!(%why, "copies on tape to be removed cannot be listed"),
        ) else {
            return;
        };
        let mut removes = Vec::new();
        for removal in owed {
            let Some(uri) = HsmUri::parse(&removal.uri) else {
                continue;
            };
            if self
                .queue
                .live()
                .entries
                .contains_key(&HsmTarget::Remove(uri.clone()))
            {
                continue;
            }
            let request = RequestId(self.next_removal | REMOVAL_BIT);
            self.next_removal += 1;
            self.removals.insert(request, uri.clone());
            removes.push(HsmRemove {
                request: Some(request),
                uri,
                size_bytes: removal.size.0,
                vo: TapeVo("removal".into()),
            });
        }
        if !removes.is_empty() {
            self.input(HsmInput::Remove(removes)).await;
        }
    }

    fn publish_status(&self) {
        self.meter_state();
        let incidents = self.queue.incidents().iter();
        let incidents = incidents.map(|(incident, since_ns)| NearlineIncident {
            what: words(*incident),
            since: Timestamp(since_ns / 1_000_000),
            fault: self.faults.get(incident).map(|fault| fault.text.clone()),
        });
        *self.status.lock() = NearlineStatus {
            counts: self.queue.counts(),
            is_admitting: self.queue.is_admitting(),
            incidents: incidents.collect(),
        };
    }

    pub(super) fn keep_free_permille(&self) -> u16 {
        self.config.keep_free_permille
    }

    pub(super) fn time(&self) -> Timestamp {
        self.now()
    }
}

/// An incident in words.
fn words(incident: HsmIncident) -> String {
    match incident {
        HsmIncident::Outage => {
            "the HSM as a whole does not work; one command after the other tries it".to_owned()
        }
        HsmIncident::FilesFail(kind) => format!("some files fail again and again ({kind:?})"),
        HsmIncident::OldestWaits(kind) => {
            format!("a file waits too long although a command could run ({kind:?})")
        }
        HsmIncident::CommandLost(command) => {
            format!("command {} did not end when it was stopped", command.0)
        }
    }
}
