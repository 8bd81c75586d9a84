//! The story of one transfer, for people: every step that the service took, why, and with which numbers.
//!
//! Told from the record alone, so that it is the same years later. Addresses are shown without what may be secret in
//! them.

use crate::wording;
use penstock_model::text::printable;
use penstock_model::url::redact;
use penstock_model::{
    AfterStaging, Attempt, Bytes, ChoiceReason, Failure, JobKind, JobParameters, LedgerEntry,
    LinkChange, LinkEvent, LinkSample, MoverReport, Rate, Retry, SourceRemoval, StageClocks,
    TcpSummary, TimeSpan, Timestamp, TransferEvent, TransferRequest, TransferState, UserName,
    VoName, WaitReason,
};
use std::time::Duration;

/// What a story is told from.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub request: &'a TransferRequest,
    /// Who submitted it.
    pub user: &'a UserName,
    /// On whose behalf.
    pub vo: &'a VoName,
    /// What holds for every file of its job.
    pub parameters: &'a JobParameters,
    /// Its lines of the ledger, in order.
    pub entries: &'a [LedgerEntry],
    /// What became of its link meanwhile, in order.
    pub link_changes: &'a [LinkChange],
    /// What its link did when it was accepted.
    pub link_at_start: Option<&'a LinkSample>,
    /// Where it stands.
    pub state: &'a TransferState,
    /// Why it waits, if it does.
    pub waiting: Option<&'a WaitReason>,
    pub now: Timestamp,
}

/// What kind of thing happened: pages show each in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// It was accepted, or its turn came.
    Accepted,
    /// It waited, or its link was halted, tried or opened.
    Waited,
    /// An attempt began, or found what it needs.
    Attempted,
    Arrived,
    /// Something did not succeed.
    Failed,
    /// It was stopped, or not needed.
    Stopped,
    /// How it stands now.
    Present,
}

impl StepKind {
    /// The word in answers.
    pub fn name(self) -> &'static str {
        match self {
            StepKind::Accepted => "accepted",
            StepKind::Waited => "waited",
            StepKind::Attempted => "attempted",
            StepKind::Arrived => "arrived",
            StepKind::Failed => "failed",
            StepKind::Stopped => "stopped",
            StepKind::Present => "present",
        }
    }
}

/// One step of a story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub at: Timestamp,
    pub kind: StepKind,
    /// One sentence without a full stop.
    pub text: String,
}

/// All steps, in the order in which they happened; the last one is how it stands now, when it has not ended.
pub fn tell(facts: &Facts<'_>) -> Vec<Step> {
    let mut writer = StoryWriter {
        facts,
        steps: Vec::new(),
        waits_since: None,
        recalls_since: None,
        runs_since: None,
    };
    let mut changes = facts.link_changes.iter().peekable();
    let mut restored = facts.parameters.restored_at;
    for entry in facts.entries {
        if let Some(at) = restored.take_if(|at| *at <= entry.at) {
            writer.restored(at);
        }
        while let Some(change) = changes.next_if(|change| change.at < entry.at) {
            writer.link_changed(change);
        }
        writer.happened(entry.at, &entry.event);
    }
    restored.into_iter().for_each(|at| writer.restored(at));
    // What became of the link later is of interest as long as it waits.
    if writer.waits_since.is_some() {
        changes.for_each(|change| writer.link_changed(change));
    }
    if !facts.state.is_terminal() {
        let text = wording::transfer_state(facts.state, facts.waiting, facts.now);
        writer.add(facts.now, StepKind::Present, redacted(&text, facts));
    }
    writer.steps
}

/// A story as the text of a log: one line a step.
pub fn log(facts: &Facts<'_>) -> String {
    let request = facts.request;
    let mut text = format!(
        "# transfer {} of {} for {}\n# {} -> {}\n",
        request.id, facts.vo, facts.user, request.source, request.destination
    );
    for step in tell(facts) {
        let millis = step.at.0.rem_euclid(1000);
        let line: String = step.text.split_whitespace().collect::<Vec<_>>().join(" ");
        text += &format!(
            "{}.{millis:03}Z {}: {line}\n",
            step.at.to_fts(),
            step.kind.name()
        );
    }
    // It is read on terminals, and servers' errors are in it.
    printable(&text).into_owned()
}

struct StoryWriter<'a> {
    facts: &'a Facts<'a>,
    steps: Vec<Step>,
    waits_since: Option<Timestamp>,
    recalls_since: Option<Timestamp>,
    runs_since: Option<Timestamp>,
}

impl StoryWriter<'_> {
    fn add(&mut self, at: Timestamp, kind: StepKind, text: String) {
        self.steps.push(Step { at, kind, text });
    }

    /// Long because each event has one arm and one sentence.
    fn happened(&mut self, at: Timestamp, event: &TransferEvent) {
        match event {
            TransferEvent::Submitted => {
                let text = accepted(self.facts);
                self.add(at, StepKind::Accepted, text);
                if self.facts.parameters.kind.begins_together() {
                    self.begins(at, self.facts.parameters.staging.is_some());
                }
            }
            TransferEvent::Chosen { because, stages } => {
                self.add(at, StepKind::Accepted, chosen(because));
                self.begins(at, *stages);
            }
            TransferEvent::StageRequested { .. }
            | TransferEvent::Staged { .. }
            | TransferEvent::StageFailed { .. }
            | TransferEvent::Replaced { .. }
            | TransferEvent::Archived { .. }
            | TransferEvent::ArchiveFailed { .. } => self.was_at_tape(at, event),
            TransferEvent::NotNeeded => {
                let text =
                    "its job ended without it: another replica arrived, or an earlier hop did not";
                self.add(at, StepKind::Stopped, text.to_owned());
            }
            TransferEvent::Started { attempt, node } => {
                let waited = self.waits_since.take().map(|since| at.since(since));
                self.runs_since = Some(at);
                let waited = waited.map_or(String::new(), |waited| {
                    format!(" after it had waited {}", seconds(waited))
                });
                let on = node.as_ref();
                let on = on.map_or(String::new(), |node| format!(" on {node}"));
                let text = format!("attempt {} was given to an agent{on}{waited}", attempt.0);
                self.add(at, StepKind::Attempted, text);
            }
            TransferEvent::Prepared {
                attempt,
                size,
                checksum,
                replaces,
            } => {
                let size = size.map_or("of unknown size".to_owned(), |size| {
                    format!("of {size} ({} bytes)", size.0)
                });
                let checksum = checksum.as_ref();
                let checksum = checksum.map_or("no checksum".to_owned(), |sum| sum.to_string());
                let there = match replaces {
                    true => "the destination exists and is to be replaced",
                    false => "nothing is at the destination",
                };
                let text = format!(
                    "attempt {} checked both ends: the source is {size}, with {checksum}; {there}",
                    attempt.0
                );
                self.add(at, StepKind::Attempted, text);
            }
            TransferEvent::Landed {
                attempt,
                size,
                mode,
                report,
                archives,
            } => {
                let took = self.runs_since.take().map(|since| at.since(since));
                let text = match mode {
                    None => format!(
                        "the file ({size}) was already there, copied by an interrupted attempt"
                    ),
                    Some(mode) => arrived(*attempt, *size, mode.name(), took, report),
                };
                let text = match archives {
                    true => text + "; it must also be written to tape",
                    false => text,
                };
                self.add(at, StepKind::Arrived, text);
            }
            TransferEvent::AttemptFailed {
                attempt,
                failure,
                retry_at,
                cleaned,
                excused,
                stages,
                moved: _,
            } => {
                let mut text = format!(
                    "attempt {} failed: {}",
                    attempt.0,
                    told(failure, self.facts)
                );
                text += match cleaned {
                    true => "; nothing of it is left at the destination",
                    false => "; something of it may be left at the destination",
                };
                match retry_at {
                    Some(again) => {
                        let wait = again.since(at);
                        text += &format!("; retry in {}", seconds(wait));
                        self.begins_to_wait(*again);
                    }
                    None => text += "; no further retry",
                }
                if *excused {
                    text += match failure.concern.is_shared() {
                        true => "; not counted against the retries, because the link is halted",
                        false => {
                            "; not counted against the retries, because it met an earlier copy of its own"
                        }
                    };
                }
                if *stages {
                    text += "; its file is recalled from tape again";
                    self.waits_since = None;
                }
                self.add(at, StepKind::Failed, text);
            }
            TransferEvent::AttemptLost { attempt, reason } => {
                let text = format!(
                    "the outcome of attempt {} is unknown: {reason}; not counted against the retries",
                    attempt.0
                );
                self.add(at, StepKind::Failed, text);
                self.begins_to_wait(at);
            }
            TransferEvent::Expired { failure } | TransferEvent::Refused { failure } => {
                let text = format!("given up: {}", told(failure, self.facts));
                self.waits_since = None;
                self.add(at, StepKind::Failed, text);
            }
            TransferEvent::Canceled { reason } => {
                self.waits_since = None;
                self.add(at, StepKind::Stopped, format!("canceled: {reason}"));
            }
        }
    }

    /// What tape systems did.
    fn was_at_tape(&mut self, at: Timestamp, event: &TransferEvent) {
        let took = |since: Option<Timestamp>| {
            since.map_or(String::new(), |since| {
                format!(" after {}", seconds(at.since(since)))
            })
        };
        let storage = self.facts.request.source.storage();
        match event {
            TransferEvent::StageRequested { request } => {
                self.recalls_since = Some(at);
                let text = format!(
                    "the tape system of {storage} has accepted the recall of its file as request {request}"
                );
                self.add(at, StepKind::Waited, text);
            }
            TransferEvent::Staged { then } => {
                let text = format!("its file is on disk{}", took(self.recalls_since.take()));
                match then {
                    AfterStaging::Copy => {
                        self.add(at, StepKind::Waited, text);
                        self.begins_to_wait(at);
                    }
                    AfterStaging::Nothing => self.add(at, StepKind::Arrived, text),
                }
            }
            TransferEvent::StageFailed {
                failure,
                retry_at,
                excused,
            } => {
                let after = took(self.recalls_since.take());
                let told = told(failure, self.facts);
                let mut text = format!("the recall of its file from tape failed{after}: {told}");
                match retry_at {
                    Some(again) => {
                        let wait = seconds(again.since(at));
                        text += &format!("; retry in {wait}");
                    }
                    None => text += "; no further retry",
                }
                if *excused {
                    text += "; not counted against the retries";
                }
                self.add(at, StepKind::Failed, text);
            }
            TransferEvent::Replaced { by } => {
                let after = took(self.recalls_since.take());
                let text = format!(
                    "it no longer waits for its tape system{after}: transfer {by} copies the file from another source, where it \
                     was found on disk"
                );
                self.add(at, StepKind::Stopped, text);
            }
            TransferEvent::Archived { source } => {
                let of_source = match source {
                    None => String::new(),
                    Some(SourceRemoval::Removed) => "; its source was removed".to_owned(),
                    Some(SourceRemoval::Kept(failure)) => {
                        let why = told(failure, self.facts);
                        format!("; its source was not removed, and this will not be retried: {why}")
                    }
                };
                let text = format!("the copy is on tape{of_source}");
                self.add(at, StepKind::Arrived, text);
            }
            TransferEvent::ArchiveFailed { failure } => {
                let told = told(failure, self.facts);
                let text = format!("the copy was not written to tape, and stays on disk: {told}");
                self.add(at, StepKind::Failed, text);
            }
            _ => {}
        }
    }

    /// It waits for a slot, unless it has to come from tape first.
    fn begins(&mut self, at: Timestamp, from_tape: bool) {
        if !from_tape {
            self.begins_to_wait(at);
        }
    }

    fn begins_to_wait(&mut self, at: Timestamp) {
        self.waits_since = Some(at);
    }

    fn restored(&mut self, at: Timestamp) {
        let text = "the last records of the journal are missing, because a backup or its database was restored: what \
                    happened then is not known, so a file that is complete at the destination counts as arrived";
        self.add(at, StepKind::Accepted, text.to_owned());
    }

    /// While it runs, what becomes of its link does not concern it.
    fn link_changed(&mut self, change: &LinkChange) {
        if self.waits_since.is_none() {
            return;
        }
        let own = self.facts.request.id;
        let text = match &change.event {
            LinkEvent::Halted {
                by,
                until,
                failures,
                last,
            } => {
                let wait = seconds(until.since(change.at));
                let by = match *by == own {
                    true => "this transfer".to_owned(),
                    false => format!("transfer {by}"),
                };
                // The failure itself may name others' files: it is told by its kind.
                let (scope, errno) = (last.side.fts_scope(), last.errno.0);
                format!(
                    "the link was halted after {failures} similar failures in a row ({scope} [{errno}]), the last by {by}; \
                     a trial transfer starts in {wait}"
                )
            }
            LinkEvent::Tried => "the halted link started a trial transfer".to_owned(),
            LinkEvent::Reopened { by } => {
                format!("the link was reopened, because transfer {by} arrived")
            }
        };
        self.add(change.at, StepKind::Waited, text);
    }
}

fn accepted(facts: &Facts<'_>) -> String {
    let (request, parameters) = (facts.request, facts.parameters);
    let mut text = format!(
        "accepted with priority {} and activity '{}'",
        parameters.priority.get(),
        request.activity
    );
    match parameters.kind {
        JobKind::Independent | JobKind::Session => {}
        JobKind::Replicas(by) => text += &format!(", as one of several replicas ({})", by.name()),
        JobKind::Hops => text += &format!(", as hop {} of its job", request.index + 1),
    }
    if let Some(size) = request.size {
        text += &format!("; expected size {} bytes", size.0);
    }
    if let Some(sum) = &request.checksum {
        text += &format!("; expected checksum {sum}");
    }
    if let Some(sample) = facts.link_at_start {
        text += &format!(
            "; the link ran {} of {} transfers allowed at once, and {} were queued",
            sample.active.0, sample.limit.0, sample.queued
        );
    }
    text
}

fn chosen(because: &ChoiceReason) -> String {
    match because {
        ChoiceReason::Hop { number } => format!("its turn came: it is hop {number}"),
        ChoiceReason::Replica { by, value, of } => {
            let value = value.map_or(String::new(), |value| format!(" (value {value:.3})"));
            let by = by.name();
            format!("chosen among {of} replicas by '{by}'{value}")
        }
        ChoiceReason::OnDisk { instead_of } => format!(
            "chosen because its file was found on disk, while transfer {instead_of} waited for its tape system"
        ),
    }
}

/// A failure with what follows from it.
fn told(failure: &Failure, facts: &Facts<'_>) -> String {
    let class = match failure.retry {
        Retry::Later => "may succeed later",
        Retry::ElsewhereOnly => "only another replica or way can help",
        Retry::Never => "a retry cannot help",
    };
    redacted(&format!("{failure} ({class})"), facts)
}

fn arrived(
    attempt: Attempt,
    size: Bytes,
    mode: &str,
    took: Option<Duration>,
    report: &MoverReport,
) -> String {
    let mut text = format!(
        "arrived by attempt {}: {size} ({} bytes)",
        attempt.0, size.0
    );
    if let Some(took) = took {
        text += &format!(" in {}", seconds(took));
        if let Some(rate) = Rate::over(size, took) {
            text += &format!(", {rate}");
        }
    }
    text += &format!(", {mode}");
    if let Some(streams) = &report.streams {
        text += &format!(", {}", wording::stream_use(streams));
        if streams.ranges_again > 0 {
            text += &format!(", {} parts requested again", streams.ranges_again);
        }
    }
    if let Some(sum) = &report.checksum {
        text += &format!("; {sum}");
    }
    if let Some(pool) = &report.pool {
        text += &format!("; in pool {pool}");
    }
    if let Some(spent) = time_spent(&report.stages, took) {
        text += &format!("; the time went to {spent}");
    }
    if let Some(tcp) = &report.tcp {
        text += &format!("; {}", connection(tcp));
    }
    for way in &report.not_offered {
        text += &format!("; {} was not offered: {}", way.mode.name(), way.why);
    }
    text
}

/// Where the time went, in parts that add up exactly to the whole as [`seconds`] shows it: what no stage has measured is
/// a part of its own, and what several stages have measured at the same time is taken off again.
fn time_spent(stages: &StageClocks, took: Option<Duration>) -> Option<String> {
    let named = stages.named();
    let measured = named.iter().filter(|(_, micros)| *micros > 0);
    if measured.clone().count() == 0 {
        return None;
    }
    let Some(took) = took else {
        let part = |(name, micros): &(&str, u64)| {
            format!("{name} {}", seconds(Duration::from_micros(*micros)))
        };
        return Some(measured.map(part).collect::<Vec<_>>().join(", "));
    };
    let (unit_us, decimals) = match took.as_secs_f64() < MILLISECONDS_BELOW_SECONDS {
        true => (1_000, 3),
        false => (100_000, 1),
    };
    let units = |micros: u64| micros.saturating_add(unit_us / 2) / unit_us;
    let shown = |units: u64| {
        let span = TimeSpan(Duration::from_micros(units.saturating_mul(unit_us)));
        format!("{span:.decimals$}")
    };
    let whole = units(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    let parts = measured.map(|(name, micros)| (*name, units(*micros)));
    let parts: Vec<(&str, u64)> = parts.filter(|(_, units)| *units > 0).collect();
    let sum = parts
        .iter()
        .map(|(_, units)| *units)
        .fold(0, u64::saturating_add);
    let mut texts: Vec<String> = parts
        .iter()
        .map(|(name, units)| format!("{name} {}", shown(*units)))
        .collect();
    if whole > sum {
        texts.push(format!("not measured {}", shown(whole - sum)));
    }
    let text = texts.join(", ");
    Some(match sum > whole {
        true => format!(
            "{text}, less {} in which stages overlapped",
            shown(sum - whole)
        ),
        false => text,
    })
}

fn connection(tcp: &TcpSummary) -> String {
    let millis = |micros: u32| f64::from(micros) / 1000.0;
    format!(
        "TCP: round trip {:.1} ms (minimum {:.1} ms), {} of {} segments retransmitted",
        millis(tcp.rtt_us),
        millis(tcp.min_rtt_us),
        tcp.retransmitted_segments,
        tcp.sent_segments
    )
}

/// Times below are shown with milliseconds, others with tenths of a second.
const MILLISECONDS_BELOW_SECONDS: f64 = 10.0;

/// As long as it is short, with milliseconds.
fn seconds(span: Duration) -> String {
    match span.as_secs_f64() {
        0.0 => "0 s".to_owned(),
        small if small < MILLISECONDS_BELOW_SECONDS => format!("{:.3}", TimeSpan(span)),
        _ => format!("{:.1}", TimeSpan(span)),
    }
}

/// Without what may be secret in the two addresses.
fn redacted(text: &str, facts: &Facts<'_>) -> String {
    let mut text = text.to_owned();
    for url in [&facts.request.source, &facts.request.destination] {
        let shown = redact(url.as_str());
        if shown != url.as_str() {
            text = text.replace(url.as_str(), &shown);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{
        Activity, ChecksumAlgorithm, Concern, CopyMode, Errno, FileUrl, JobId, LinkId, NoSlot,
        Phase, Side, SlotBound, SlotPlace, Slots, StorageId, TransferId, advance,
    };

    fn request() -> TransferRequest {
        let url = |text: &str| FileUrl::parse(text).expect("valid");
        TransferRequest {
            id: TransferId(7),
            index: 0,
            source: url("https://a/f?authz=secret"),
            destination: url("https://b/f"),
            size: Some(Bytes(5_000_000)),
            checksum: None,
            checksum_algorithm: ChecksumAlgorithm::Adler32,
            activity: Activity::new("Production"),
            scitag: None,
            metadata: Default::default(),
            source_credential: None,
            destination_credential: None,
            source_query: None,
            destination_query: None,
            tape: None,
        }
    }

    fn failure() -> Failure {
        Failure {
            side: Side::Source,
            retry: Retry::Later,
            concern: Concern::StorageElement,
            phase: Phase::Preparation,
            errno: Errno::EAGAIN,
            detail: "https://a/f?authz=secret answered HEAD with 503".into(),
            found: None,
            busy: None,
            code: None,
        }
    }

    fn entries(events: Vec<(i64, TransferEvent)>) -> (Vec<LedgerEntry>, TransferState) {
        let mut state = TransferState::submitted();
        let entries = events.into_iter().zip(1..).map(|((at, event), sequence)| {
            if event != TransferEvent::Submitted {
                state = advance(&state, Timestamp(at), &event).expect("the test's events fit");
            }
            LedgerEntry {
                sequence,
                at: Timestamp(at),
                monotonic_us: 0,
                job: JobId(uuid::Uuid::nil()),
                transfer: TransferId(7),
                event,
            }
        });
        (entries.collect(), state)
    }

    #[test]
    fn the_parts_of_the_time_add_up_to_the_whole_as_it_is_shown() {
        let check = |took_us, wait_us, network_us, expected: Option<&str>| {
            let stages = StageClocks {
                wait_us,
                network_us,
                ..StageClocks::default()
            };
            let took = Duration::from_micros(took_us);
            assert_eq!(time_spent(&stages, Some(took)).as_deref(), expected);
        };
        check(2_000_000, 0, 0, None);
        let remainder = "wait 0.300 s, network 1.200 s, not measured 0.500 s";
        check(2_000_000, 300_000, 1_200_000, Some(remainder));
        check(
            2_000_000,
            800_000,
            1_200_000,
            Some("wait 0.800 s, network 1.200 s"),
        );
        let overlap = "wait 0.900 s, network 1.200 s, less 0.100 s in which stages overlapped";
        check(2_000_000, 900_000, 1_200_000, Some(overlap));
        // Rounded as the whole is: 12.3 s.
        let rounded = "wait 3.3 s, network 8.9 s, not measured 0.1 s";
        check(12_340_000, 3_333_000, 8_888_000, Some(rounded));
        check(12_340_000, 10, 12_340_000, Some("network 12.3 s"));
    }

    #[test]
    fn a_story_tells_every_step_with_its_reason_and_no_secret() {
        let report = MoverReport {
            stages: StageClocks {
                network_us: 900_000,
                ..StageClocks::default()
            },
            ..MoverReport::default()
        };
        let started = |attempt| TransferEvent::Started {
            attempt: Attempt(attempt),
            node: None,
        };
        let (entries, state) = entries(vec![
            (1_000, TransferEvent::Submitted),
            (3_500, started(1)),
            (
                4_000,
                TransferEvent::AttemptFailed {
                    attempt: Attempt(1),
                    failure: failure(),
                    retry_at: Some(Timestamp(14_000)),
                    cleaned: true,
                    excused: false,
                    stages: false,
                    moved: None,
                },
            ),
            (15_000, started(2)),
            (
                17_000,
                TransferEvent::Landed {
                    attempt: Attempt(2),
                    size: Bytes(5_000_000),
                    mode: Some(CopyMode::Pull),
                    report: Box::new(report),
                    archives: false,
                },
            ),
        ]);
        let link = LinkId {
            source: StorageId::new("https://a"),
            destination: StorageId::new("https://b"),
        };
        let change = |at, event| LinkChange {
            at: Timestamp(at),
            link: link.clone(),
            event,
        };
        let changes = [
            change(
                4_001,
                LinkEvent::Halted {
                    by: TransferId(7),
                    until: Timestamp(14_001),
                    failures: 3,
                    last: failure(),
                },
            ),
            change(14_500, LinkEvent::Reopened { by: TransferId(9) }),
            change(16_000, LinkEvent::Tried),
        ];
        let sample = LinkSample {
            at: Timestamp(1_500),
            link: link.clone(),
            moved: Bytes(0),
            active: Slots(2),
            limit: Slots(2),
            queued: 5,
        };
        let (user, vo) = (UserName::new("alice"), VoName::new("cms"));
        let facts = Facts {
            request: &request(),
            user: &user,
            vo: &vo,
            parameters: &JobParameters::default(),
            entries: &entries,
            link_changes: &changes,
            link_at_start: Some(&sample),
            state: &state,
            waiting: None,
            now: Timestamp(20_000),
        };
        assert_eq!(
            log(&facts),
            "# transfer 7 of cms for alice\n# https://a/f?… -> https://b/f\n\
             1970-01-01T00:00:01.000Z accepted: accepted with priority 3 and activity 'Production'; expected size \
             5000000 bytes; the link ran 2 of 2 transfers allowed at once, and 5 were queued\n\
             1970-01-01T00:00:03.500Z attempted: attempt 1 was given to an agent after it had waited 2.500 s\n\
             1970-01-01T00:00:04.000Z failed: attempt 1 failed: SOURCE [11] https://a/f?… answered HEAD with 503 (may \
             succeed later); nothing of it is left at the destination; retry in 10.0 s\n\
             1970-01-01T00:00:04.001Z waited: the link was halted after 3 similar failures in a row (SOURCE [11]), the \
             last by this transfer; a trial transfer starts in 10.0 s\n\
             1970-01-01T00:00:14.500Z waited: the link was reopened, because transfer 9 arrived\n\
             1970-01-01T00:00:15.000Z attempted: attempt 2 was given to an agent after it had waited 1.000 s\n\
             1970-01-01T00:00:17.000Z arrived: arrived by attempt 2: 5.0 MB (5000000 bytes) in 2.000 s, 2.5 MB/s, pull; \
             the time went to network 0.900 s, not measured 1.100 s\n"
        );
    }

    #[test]
    fn a_transfer_that_waits_says_why_at_the_end() {
        let (entries, state) = entries(vec![(1_000, TransferEvent::Submitted)]);
        let (user, vo) = (UserName::new("alice"), VoName::new("cms"));
        let waiting = WaitReason::NoSlot(NoSlot {
            place: SlotPlace::Link,
            because: SlotBound::Limit {
                active: Slots(1),
                limit: Slots(1),
            },
        });
        let facts = Facts {
            request: &request(),
            user: &user,
            vo: &vo,
            parameters: &JobParameters::default(),
            entries: &entries,
            link_changes: &[],
            link_at_start: None,
            state: &state,
            waiting: Some(&waiting),
            now: Timestamp(2_000),
        };
        let last = tell(&facts).pop().expect("a last step");
        assert_eq!((last.at, last.kind), (Timestamp(2_000), StepKind::Present));
        assert_eq!(
            last.text,
            "waits: the link runs 1 of 1 transfers allowed at once"
        );
    }
}
