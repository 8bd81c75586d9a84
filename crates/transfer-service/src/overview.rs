//! The live view: what runs, what waits and why, and how many bytes moved in the last second.
//!
//! Derived from the engine and the agents' progress once a second; shown by the API and the live page. Counts are
//! since the start of this process, which is said beside them; history is in the ledger.

use crate::agent::{ActiveRow, Progress};
use crate::minutes::MinuteCounter;
use penstock_decide::scheduler::{LinkView, StorageView};
use penstock_decide::tuning::LinkTuning;
use penstock_decide::wording;
use penstock_engine::{AttemptOutcome, Effects, Engine, LinkProgress, NodeLoad};
use penstock_model::{
    Bytes, LinkId, LinkSample, MinuteSamples, Record, Timestamp, TransferEvent, TransferState,
    TuningPolicy, TuningSeen,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// At most so many running transfers are listed one by one.
const ACTIVE_LISTED_MAX: usize = 50;
/// Of so many links at most on which files only wait a sample is taken each second: users name links, and samples are kept
/// for long.
const WAITING_SAMPLED_MAX: usize = 200;
/// The weight of the newest report in what a link's transfers take between two, and the most that counts.
const LAG_WEIGHT: f64 = 0.1;
const LAG_MAX: f64 = 10.0;

/// The live view as JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Overview {
    /// Milliseconds since 1970.
    pub at: i64,
    pub site: String,
    /// From when on what ended and what moved is counted: since this service began to lead. Milliseconds since 1970.
    #[serde(default)]
    pub counted_since: i64,
    pub totals: Totals,
    /// Who decides how many transfers run on links of which no rule says it.
    pub tuning: TuningPolicy,
    pub agents: AgentsView,
    pub links: Vec<LinkRow>,
    pub storages: Vec<StorageRow>,
    pub waiting: Vec<WaitingRow>,
    pub active_transfers: Vec<ActiveRow>,
    /// Of a service of several nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeRow>,
}

/// Counts over all links. What has ended or moved is counted from [`Overview::counted_since`] on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Waiting now.
    pub submitted: u64,
    /// Running now.
    pub active: u64,
    /// Whose files are to come from tape.
    pub staging: u64,
    /// That have arrived and are to be on tape.
    pub archiving: u64,
    /// Files that arrived.
    pub finished: u64,
    /// Files that were given up.
    pub failed: u64,
    /// Attempts that failed, also of files that were tried again.
    #[serde(default)]
    pub failed_attempts: u64,
    pub canceled: u64,
    pub moved_bytes: u64,
    pub rate_bytes_per_second: u64,
    /// Removals at destinations of transfers that have ended, which are tried again.
    #[serde(skip)]
    pub removals_owed: u64,
    /// The same, which are tried no more.
    #[serde(skip)]
    pub removals_given_over: u64,
}

/// Running transfers of this service.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AgentsView {
    pub active: u32,
    pub limit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRow {
    pub node: String,
    /// Attempts that run there.
    pub active: u32,
    /// How many may; absent while the leader does not hear of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkRow {
    pub source: String,
    pub destination: String,
    pub active: u32,
    /// How many may run now.
    pub limit: u32,
    /// How many operators allow.
    pub limit_max: u32,
    /// Who decides.
    pub tuning: TuningPolicy,
    pub limit_because: Option<String>,
    /// Connections of a copy whose client does not say; `None`: as the storage element likes.
    pub streams: Option<u32>,
    /// What it is seen to do, by which that is decided.
    pub seen: TuningSeen,
    pub queued: u64,
    /// Whose files are to come from tape.
    #[serde(default)]
    pub staging: u64,
    pub rate_bytes_per_second: u64,
    /// Counted as the totals are, like the three below.
    pub moved_bytes: u64,
    pub finished: u64,
    pub failed: u64,
    #[serde(default)]
    pub failed_attempts: u64,
    pub waiting_because: Option<String>,
    pub last_failure: Option<String>,
}

/// One storage element.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StorageRow {
    pub storage: String,
    pub outbound_active: u32,
    pub outbound_limit: u32,
    pub inbound_active: u32,
    pub inbound_limit: u32,
}

/// Transfers that wait for one kind of reason.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WaitingRow {
    pub reason: Cow<'static, str>,
    pub text: String,
    pub transfers: u64,
}

/// What a link did, counted by the driver.
#[derive(Debug, Default)]
struct LinkMeter {
    /// Bytes since the last sample that no running agent's progress holds any more.
    settled: u64,
    /// The same since the last look at what links do.
    unseen: u64,
    /// Seconds between two reports of a transfer, lately.
    lag: f64,
    moved_total: u64,
    rate: u64,
    finished: u64,
    failed_attempts: u64,
}

/// Whether what links do is recorded each second and each minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkSampling {
    #[default]
    Recorded,
    /// What moves now is shown all the same.
    Off,
}

/// Counts bytes and outcomes between samples.
#[derive(Debug)]
pub(crate) struct Meters {
    site: String,
    links: BTreeMap<LinkId, LinkMeter>,
    /// Of all links together that are known no more.
    forgotten: LinkMeter,
    canceled: u64,
    since: Timestamp,
    sampled_at: Option<Timestamp>,
    /// `None`: nothing is recorded of links.
    minutes: Option<MinuteCounter>,
}

impl Meters {
    pub(crate) fn new(site: String, since: Timestamp, sampling: LinkSampling) -> Meters {
        Meters {
            site,
            links: BTreeMap::new(),
            forgotten: LinkMeter::default(),
            canceled: 0,
            since,
            sampled_at: None,
            minutes: match sampling {
                LinkSampling::Recorded => Some(MinuteCounter::new(since)),
                LinkSampling::Off => None,
            },
        }
    }

    /// Counts what records say about outcomes.
    pub(crate) fn count(&mut self, effects: &Effects) {
        let is_cancel = |record: &&Record| {
            matches!(
                record,
                Record::Happened {
                    state: TransferState::Canceled { .. },
                    event: TransferEvent::Canceled { .. },
                    ..
                }
            )
        };
        self.canceled += effects.records.iter().filter(is_cancel).count() as u64;
        if let Some(minutes) = &mut self.minutes {
            minutes.take_effects(effects);
        }
    }

    /// What is left of the minute that runs: this process leads no longer.
    pub(crate) fn end(&mut self, at: Timestamp) -> Vec<MinuteSamples> {
        let minutes = self.minutes.as_mut();
        minutes.map_or_else(Vec::new, |minutes| minutes.end(at))
    }

    /// An agent ended: what it moved since the last sample stays counted.
    pub(crate) fn attempt_ended(
        &mut self,
        progress: &Progress,
        outcome: &AttemptOutcome,
        at: Timestamp,
    ) {
        let meter = self.links.entry(progress.link.clone()).or_default();
        match outcome {
            AttemptOutcome::Landed { report, .. } => {
                progress.set_moved(report.moved.0.max(progress.moved()));
                meter.finished += 1;
            }
            AttemptOutcome::Failed { .. } | AttemptOutcome::Blocked { .. } => {
                meter.failed_attempts += 1
            }
            AttemptOutcome::Stopped
            | AttemptOutcome::Unsettled
            | AttemptOutcome::Dropped
            | AttemptOutcome::Tidied
            | AttemptOutcome::Untidied { .. } => {}
        }
        let moved = progress.take_unsampled();
        meter.settled += moved;
        meter.unseen += moved;
        if let Some(minutes) = &mut self.minutes {
            minutes.take_moved(at, progress, moved);
            minutes.take_end(at, progress, outcome);
        }
    }

    /// What each link did since the last look. Before [`Meters::sample`].
    pub(crate) fn look(&mut self, running: &[Arc<Progress>], at: Timestamp) -> Vec<LinkProgress> {
        let mut queued: BTreeMap<&LinkId, u32> = BTreeMap::new();
        for progress in running {
            let moved = progress.take_unsampled();
            if let Some(minutes) = &mut self.minutes {
                minutes.take_moved(Timestamp(at.0 - 1), progress, moved);
            }
            let meter = self.links.entry(progress.link.clone()).or_default();
            meter.settled += moved;
            meter.unseen += moved;
            if moved > 0 {
                meter.lag += LAG_WEIGHT * (progress.lag() - meter.lag);
            }
            if progress.is_queued() {
                *queued.entry(&progress.link).or_default() += 1;
            }
        }
        let busy = self.links.iter_mut().filter_map(|(link, meter)| {
            let moved = std::mem::take(&mut meter.unseen);
            let queued_there = queued.get(link).copied().unwrap_or(0);
            (moved > 0 || queued_there > 0).then(|| LinkProgress {
                link: link.clone(),
                moved: Bytes(moved),
                // Reports that come each second, or more often, are looked at each second.
                lag: if meter.lag > 1.5 {
                    meter.lag.min(LAG_MAX)
                } else {
                    0.0
                },
                queued_there,
            })
        });
        busy.collect()
    }

    /// What links did that the engine has forgotten is counted for all of them together.
    fn forget_unknown(&mut self, engine: &Engine) {
        // Each link that is known has its meter.
        if self.links.len() == engine.links_known() {
            return;
        }
        let forgotten = &mut self.forgotten;
        self.links.retain(|link, meter| {
            let is_known = engine.knows_link(link);
            if !is_known {
                forgotten.moved_total += meter.moved_total + meter.settled;
                forgotten.finished += meter.finished;
                forgotten.failed_attempts += meter.failed_attempts;
            }
            is_known
        });
    }

    /// The view of this second, and what is recorded of it: a sample of each link that does anything, and the minutes that
    /// are over.
    pub(crate) fn sample(
        &mut self,
        engine: &Engine,
        running: &[Arc<Progress>],
        at: Timestamp,
    ) -> (Overview, Vec<LinkSample>, Vec<MinuteSamples>) {
        let seconds = self
            .sampled_at
            .map_or(1.0, |last| at.since(last).as_secs_f64())
            .max(0.001);
        self.sampled_at = Some(at);
        let mut overview = Overview {
            at: at.0,
            site: self.site.clone(),
            counted_since: self.since.0,
            tuning: engine.tuning_policy(),
            ..Overview::default()
        };
        let samples = self.add_links(engine, seconds, &mut overview);
        overview.totals.finished += self.forgotten.finished;
        overview.totals.failed += engine.failed_files_of_forgotten_links();
        overview.totals.failed_attempts += self.forgotten.failed_attempts;
        overview.totals.moved_bytes += self.forgotten.moved_total;
        overview.totals.staging = engine.staging();
        overview.totals.archiving = engine.archiving();
        overview.totals.canceled = self.canceled;
        overview.totals.removals_owed = engine.removals_owed() as u64;
        overview.totals.removals_given_over = engine.removals_given_over();
        let slots = engine.agents();
        overview.totals.active = slots.active.0.into();
        overview.agents = AgentsView {
            active: slots.active.0,
            limit: slots.limit.0,
        };
        overview.nodes = node_rows(engine);
        overview.storages = storage_rows(engine);
        overview.active_transfers = running
            .iter()
            .take(ACTIVE_LISTED_MAX)
            .map(|one| one.to_row())
            .collect();
        match &mut self.minutes {
            Some(minutes) => {
                let over = minutes.take_second(at, &samples, running, engine);
                (overview, samples, over)
            }
            None => (overview, Vec::new(), Vec::new()),
        }
    }

    /// What is told of each link, and what waits. Gives a sample of each link that does anything.
    fn add_links(
        &mut self,
        engine: &Engine,
        seconds: f64,
        overview: &mut Overview,
    ) -> Vec<LinkSample> {
        let at = Timestamp(overview.at);
        let mut samples = Vec::new();
        let mut waiting: BTreeMap<&'static str, (String, u64)> = BTreeMap::new();
        let held: BTreeMap<&LinkId, u64> = engine.links_held_by_bans().collect();
        let staging: BTreeMap<&LinkId, u64> = engine.staging_links().collect();
        for view in engine.links() {
            let meter = self.links.entry(view.link.clone()).or_default();
            let moved = std::mem::take(&mut meter.settled);
            meter.moved_total += moved;
            meter.rate = (moved as f64 / seconds) as u64;
            let is_idle = moved == 0 && view.active.0 == 0 && view.queued == 0;
            // A link that does nothing because of a ban is not one for which there is nothing to do.
            let queued = match is_idle {
                true => held.get(&view.link).copied().unwrap_or(0),
                false => view.queued,
            };
            if !is_idle || queued > 0 {
                samples.push(LinkSample {
                    at,
                    link: view.link.clone(),
                    moved: Bytes(moved),
                    active: view.active,
                    limit: view.limit,
                    queued,
                });
            }
            if let Some(reason) = &view.because {
                let text = wording::wait_reason_for_all(reason, at);
                let row = waiting
                    .entry(wording::wait_kind(reason))
                    .or_insert((text, 0));
                row.1 += view.queued;
            }
            overview.totals.submitted += view.queued;
            overview.totals.finished += meter.finished;
            overview.totals.failed += engine.failed_files(&view.link);
            overview.totals.failed_attempts += meter.failed_attempts;
            overview.totals.moved_bytes += meter.moved_total;
            overview.totals.rate_bytes_per_second += meter.rate;
            let staging = staging.get(&view.link).copied().unwrap_or(0);
            let row = link_row(engine, (&view, staging), meter, at);
            overview.links.push(row);
        }
        for (reason, text, count) in waiting_outside_links(engine) {
            overview.totals.submitted += count;
            waiting.insert(reason, (text.to_owned(), count));
        }
        overview.waiting = waiting
            .into_iter()
            .map(|(reason, (text, transfers))| WaitingRow {
                reason: reason.into(),
                text,
                transfers,
            })
            .collect();
        bound_waiting(&mut samples);
        self.forget_unknown(engine);
        samples
    }
}

/// What waits for something else than a slot of a link: the reason, in words too, and how many.
fn waiting_outside_links(
    engine: &Engine,
) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
    let waiting = [
        (
            "backing_off",
            "waiting for a retry after a failed attempt",
            engine.backing_off(),
        ),
        (
            "storage_banned",
            "the source or destination is banned",
            engine.held_by_bans(),
        ),
        (
            "token_exchange",
            "waiting for a refresh token from the token issuer",
            engine.held_by_tokens(),
        ),
        (
            "same_destination",
            "another transfer to the same destination has not ended",
            engine.held_back(),
        ),
    ];
    let waiting = waiting.map(|(reason, text, count)| (reason, text, count as u64));
    waiting.into_iter().filter(|(_, _, count)| *count > 0)
}

fn link_row(
    engine: &Engine,
    (view, staging): (&LinkView, u64),
    meter: &LinkMeter,
    at: Timestamp,
) -> LinkRow {
    let tuned = engine.tuning(&view.link);
    let decision = tuned.and_then(LinkTuning::last);
    let because = view.because.as_ref();
    LinkRow {
        source: view.link.source.to_string(),
        destination: view.link.destination.to_string(),
        active: view.active.0,
        limit: view.limit.0,
        limit_max: view.limit_max.0,
        tuning: tuned.map_or(TuningPolicy::Fixed, LinkTuning::decided_by),
        limit_because: decision.map(|decision| wording::tune_reason(&decision.because)),
        streams: tuned.and_then(LinkTuning::streams),
        seen: tuned.map(LinkTuning::seen).copied().unwrap_or_default(),
        queued: view.queued,
        staging,
        rate_bytes_per_second: meter.rate,
        moved_bytes: meter.moved_total,
        finished: meter.finished,
        failed: engine.failed_files(&view.link),
        failed_attempts: meter.failed_attempts,
        waiting_because: because.map(|reason| wording::wait_reason_for_all(reason, at)),
        last_failure: engine.last_failure(&view.link).map(ToString::to_string),
    }
}

fn node_rows(engine: &Engine) -> Vec<NodeRow> {
    let row = |view: NodeLoad| NodeRow {
        node: view.node.to_string(),
        active: view.active.0,
        limit: view.slots.map(|slots| slots.0),
    };
    engine.nodes().map(row).collect()
}

fn storage_rows(engine: &Engine) -> Vec<StorageRow> {
    let row = |view: StorageView| StorageRow {
        storage: view.storage.to_string(),
        outbound_active: view.outbound.active.0,
        outbound_limit: view.outbound.limit.0,
        inbound_active: view.inbound.active.0,
        inbound_limit: view.inbound.limit.0,
    };
    engine.storages().map(row).collect()
}

/// Leaves out those of links on which files only wait, but for the longest queues.
fn bound_waiting(samples: &mut Vec<LinkSample>) {
    let only_waits = |sample: &LinkSample| sample.active.0 == 0 && sample.moved.0 == 0;
    let waiting = samples.iter().filter(|sample| only_waits(sample));
    let mut queues: Vec<u64> = waiting.map(|sample| sample.queued).collect();
    if queues.len() <= WAITING_SAMPLED_MAX {
        return;
    }
    queues.sort_unstable_by(|one, other| other.cmp(one));
    let least = queues[WAITING_SAMPLED_MAX - 1];
    let mut equal_left = queues[..WAITING_SAMPLED_MAX]
        .iter()
        .filter(|queued| **queued == least)
        .count();
    samples.retain(|sample| {
        if !only_waits(sample) || sample.queued > least {
            return true;
        }
        let is_kept = sample.queued == least && equal_left > 0;
        equal_left -= usize::from(is_kept);
        is_kept
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests::assignment;
    use penstock_decide::staging::StagingPolicy;
    use penstock_engine::checked_submission::{NewJob, NewTransfer};
    use penstock_engine::command::{Command, ImposeBan, LiftBan, Submit};
    use penstock_engine::{EngineConfig, Input, LeadershipMode, Now, ReplyId};
    use penstock_model::{
        Activity, Ban, BanEffect, ChecksumAlgorithm, Concern, CredentialId, Errno, Failure,
        FileUrl, JobId, MinuteKey, Phase, RestartFacts, Retry, Side, Slots, StorageBan, StorageId,
        UserName, VoName,
    };
    use std::time::{Duration, Instant};

    /// It starts nothing.
    fn idle_engine(now: Now) -> Engine {
        let mut config = EngineConfig {
            slots: Default::default(),
            retries_max: 0,
            retry_delay: Duration::ZERO,
            halting: Default::default(),
            open_max: 10_000,
            tuning: Default::default(),
            tape: StagingPolicy::default(),
        };
        config.slots.agents = Slots(0);
        let restoring = Engine::lead(config, LeadershipMode::Alone, RestartFacts::default(), now);
        restoring.finish().0
    }

    #[test]
    fn what_was_counted_of_links_that_are_forgotten_stays_counted() {
        let now = Now {
            at: Timestamp(1_000),
            monotonic_us: 1_000,
        };
        let mut meters = Meters::new("a test".to_owned(), now.at, LinkSampling::Recorded);
        for number in 0..10 {
            let end = |side| FileUrl::parse(&format!("https://{side}{number}.invented/f"));
            let (source, destination) = (end("s").expect("valid"), end("d").expect("valid"));
            let assignment = assignment(source, destination, Default::default());
            let progress = Progress::new(&assignment, Instant::now());
            let failure = Failure {
                side: Side::Source,
                retry: Retry::Never,
                concern: Concern::Link,
                phase: Phase::Transfer,
                errno: Errno::EIO,
                detail: "a test says so".to_owned(),
                found: None,
                busy: None,
                code: None,
            };
            let failed = AttemptOutcome::Failed {
                failure,
                cleaned: true,
                moved: Bytes(0),
            };
            let landed = AttemptOutcome::Landed {
                size: Bytes(7),
                mode: None,
                report: Box::default(),
            };
            progress.set_moved(7);
            let is_failed = number % 5 == 0;
            let outcome = if is_failed { &failed } else { &landed };
            meters.attempt_ended(&progress, outcome, now.at);
        }
        let (overview, ..) = meters.sample(&idle_engine(now), &[], now.at);
        assert!(overview.links.is_empty(), "{:?}", overview.links);
        let totals = overview.totals;
        assert_eq!((totals.failed_attempts, totals.finished), (2, 8));
    }

    /// A job of a file from each of these hosts to each of those, and what the engine made of it.
    fn submit(engine: &mut Engine, now: Now, ends: &[(String, String)]) -> Effects {
        let end =
            |host: &str| FileUrl::parse(&format!("https://{host}.invented/f")).expect("valid");
        let to = |(source, destination): &(String, String)| NewTransfer {
            source: end(source),
            destination: end(destination),
            size: None,
            checksum: None,
            checksum_algorithm: ChecksumAlgorithm::Adler32,
            activity: Activity::new("default"),
            scitag: None,
            metadata: Default::default(),
            source_credential: None,
            destination_credential: None,
            source_query: None,
            destination_query: None,
            tape: None,
        };
        let job = NewJob {
            id: JobId(uuid::Uuid::nil()),
            user: UserName::new("alice"),
            vo: VoName::new("vo"),
            delegation: CredentialId::new("0123456789abcdef"),
            parameters: Default::default(),
            transfers: ends.iter().map(to).collect(),
            tokens: Vec::new(),
        };
        let input = Input::Command {
            command: Command::Submit(Submit(Box::new(job))),
            reply: ReplyId(1),
        };
        engine.handle(now, input)
    }

    #[test]
    fn what_was_submitted_and_waits_is_counted_in_its_minute() {
        let at = |ms: i64| Now {
            at: Timestamp(ms),
            monotonic_us: ms as u64 * 1000,
        };
        let mut engine = idle_engine(at(1_000));
        let mut meters = Meters::new(
            "a test".to_owned(),
            Timestamp(1_000),
            LinkSampling::Recorded,
        );
        let ends = ["d1", "d1", "d2"].map(|to| ("s".to_owned(), to.to_owned()));
        meters.count(&submit(&mut engine, at(58_500), &ends));
        for ms in [59_000, 60_000] {
            let (.., minutes) = meters.sample(&engine, &[], Timestamp(ms));
            assert_eq!(minutes, []);
        }
        let (.., minutes) = meters.sample(&engine, &[], Timestamp(61_000));
        let [minute] = &minutes[..] else {
            panic!("one minute is over: {minutes:?}");
        };
        assert_eq!((minute.from.0, minute.to.0), (1_000, 60_000));
        let told = minute.rows.iter().map(|row| {
            let kind = match &row.key {
                MinuteKey::Link(link) => link.destination.to_string(),
                MinuteKey::VoOnLink(link, vo) => format!("{} {vo}", link.destination),
                MinuteKey::Activity(vo, activity) => format!("{vo} {activity}"),
                MinuteKey::Service => "service".to_owned(),
                key => panic!("{key:?}"),
            };
            let sums = &row.sums;
            (kind, sums.submitted, sums.samples, sums.queued)
        });
        let expected = [
            ("https://d1.invented", 2, 2, 4),
            ("https://d2.invented", 1, 2, 2),
            ("https://d1.invented vo", 2, 2, 4),
            ("https://d2.invented vo", 1, 2, 2),
            ("vo default", 3, 2, 6),
            ("service", 0, 2, 0),
        ];
        let expected = expected.map(|(kind, submitted, samples, queued)| {
            (kind.to_owned(), submitted, samples, queued)
        });
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn who_queues_files_on_many_links_does_not_make_as_many_samples() {
        let now = Now {
            at: Timestamp(1_000),
            monotonic_us: 1_000,
        };
        let links = 2 * WAITING_SAMPLED_MAX;
        let ends: Vec<(String, String)> = (0..links)
            .map(|number| (format!("s{number}"), format!("d{number}")))
            .collect();
        let mut engine = idle_engine(now);
        submit(&mut engine, now, &ends);
        let mut meters = Meters::new("a test".to_owned(), now.at, LinkSampling::Recorded);
        let (overview, samples, _) = meters.sample(&engine, &[], now.at);
        assert_eq!(overview.links.len(), links);
        assert_eq!(samples.len(), WAITING_SAMPLED_MAX);
        let mut unrecorded = Meters::new("a test".to_owned(), now.at, LinkSampling::Off);
        let (overview, samples, minutes) = unrecorded.sample(&engine, &[], now.at);
        assert_eq!(overview.links.len(), links, "what moves now is shown");
        assert_eq!((samples, minutes), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_link_whose_files_all_wait_for_the_end_of_a_ban_is_sampled() {
        let now = Now {
            at: Timestamp(1_000),
            monotonic_us: 1_000,
        };
        let mut engine = idle_engine(now);
        let ends = ["a", "b"].map(|source| (source.to_owned(), "d".to_owned()));
        submit(&mut engine, now, &ends);
        let ban = Ban::Storage(StorageBan {
            storage: StorageId::new("https://a.invented"),
            vo: None,
            effect: BanEffect::Wait,
            cancel_at: None,
            since: now.at,
            by: UserName::new("op"),
            message: String::new(),
        });
        let impose = ImposeBan(Box::new(ban.clone()));
        engine.handle(now, Input::of_request(impose, ReplyId(2)));
        let mut meters = Meters::new("a test".to_owned(), now.at, LinkSampling::Recorded);
        let queues = |engine: &Engine, meters: &mut Meters| {
            let (_, samples, _) = meters.sample(engine, &[], now.at);
            let queues = samples.iter();
            queues.map(|sample| sample.queued).collect::<Vec<_>>()
        };
        assert_eq!(queues(&engine, &mut meters), [1, 1]);
        let held: Vec<u64> = engine.links_held_by_bans().map(|(_, held)| held).collect();
        assert_eq!(held, [1]);
        let lift = LiftBan {
            target: ban.target(),
            by: UserName::new("op"),
        };
        engine.handle(now, Input::of_request(lift, ReplyId(3)));
        assert_eq!(queues(&engine, &mut meters), [1, 1]);
        assert_eq!(engine.links_held_by_bans().count(), 0);
    }

    #[test]
    fn of_many_links_on_which_files_only_wait_the_longest_queues_are_sampled() {
        let sample = |number: usize, active: u32| LinkSample {
            at: Timestamp(1_000),
            link: LinkId {
                source: StorageId::new(format!("https://s{number}.invented")),
                destination: StorageId::new("https://d.example.org"),
            },
            moved: Bytes(0),
            active: Slots(active),
            limit: Slots(2),
            queued: (number / 2) as u64,
        };
        let mut samples: Vec<LinkSample> = (0..5 * WAITING_SAMPLED_MAX)
            .map(|number| sample(number, 0))
            .collect();
        samples.insert(0, sample(0, 1));
        bound_waiting(&mut samples);
        assert_eq!(samples.len(), WAITING_SAMPLED_MAX + 1);
        assert_eq!(samples[0].active, Slots(1));
        let longest = (4 * WAITING_SAMPLED_MAX / 2) as u64;
        assert!(samples[1..].iter().all(|sample| sample.queued >= longest));
        // Where all wait alike, no more are taken either.
        let mut samples = vec![sample(0, 0); 2 * WAITING_SAMPLED_MAX];
        bound_waiting(&mut samples);
        assert_eq!(samples.len(), WAITING_SAMPLED_MAX);
        let mut samples = vec![sample(0, 0); WAITING_SAMPLED_MAX];
        bound_waiting(&mut samples);
        assert_eq!(samples.len(), WAITING_SAMPLED_MAX);
    }
}
