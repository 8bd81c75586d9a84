//! Counts what the transfer service does, minute by minute: sums of each link, each VO on a link and each activity of a VO.
//!
//! It is told of each event and of each second in the order of their times, and hands over each minute when it is over. It
//! keeps the minute that runs in memory; that one is lost with the process, and told as missing.

use crate::open_attempts::{CountedEvent, OpenAttempts};
use crate::scheduler::SlotUse;
use penstock_model::failure_text::fingerprint;
use penstock_model::minute::{MINUTE_MS, minute_of};
use penstock_model::{
    Activity, Bytes, FailedStep, Failure, FinishedCopy, LinkId, LinkSample, MinuteFailure,
    MinuteKey, MinuteRow, MinuteSamples, MinuteSums, Timestamp, TransferEvent, TransferId,
    TransferRequest, VoName,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Links told apart in one minute, VOs on links, and activities of VOs; of each a half at most on which files only wait,
/// because whoever submits names them.
const LINKS_MAX: usize = 2000;
const VOS_ON_LINKS_MAX: usize = 3000;
const ACTIVITIES_MAX: usize = 1000;
/// Kinds of failure told apart on one link in one minute, and on all links.
const FAILURES_PER_LINK_MAX: usize = 20;
const FAILURES_MAX: usize = 2000;
/// A clock that goes back by less is corrected, not set: the minute goes on.
const CORRECTION_MS_MAX: i64 = 2000;
/// A transfer that has moved bytes, and none for so long, is stalled.
pub const STALLED_AFTER: Duration = Duration::from_secs(600);

/// Whose sums a transfer counts in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransferGroup {
    pub link: LinkId,
    /// On whose behalf.
    pub vo: VoName,
    /// Its share label.
    pub activity: Activity,
}

impl TransferGroup {
    /// Of what was asked for on behalf of a VO.
    pub fn of(request: &TransferRequest, vo: &VoName) -> TransferGroup {
        TransferGroup {
            link: request.link(),
            vo: vo.clone(),
            activity: request.activity.clone(),
        }
    }
}

/// How many run and wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Standing {
    /// Running.
    pub active: u64,
    /// Waiting and allowed to start.
    pub queued: u64,
}

/// What stands at the end of a second, by VO on a link and by activity of a VO.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standings {
    pub vos_on_links: BTreeMap<(LinkId, VoName), Standing>,
    pub activities: BTreeMap<(VoName, Activity), Standing>,
    /// Of running transfers that have moved bytes and are silent, by link.
    pub silences: BTreeMap<LinkId, Silence>,
    /// Of the whole service.
    pub service: Option<SlotUse>,
}

/// Running transfers of a link that move nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Silence {
    /// Those that are silent for longer than [`STALLED_AFTER`].
    pub stalled: u64,
    /// The longest silence.
    pub longest: Duration,
}

impl Standings {
    /// Adds what stands of one group.
    pub fn add(&mut self, group: &TransferGroup, standing: Standing) {
        let TransferGroup { link, vo, activity } = group.clone();
        let of_vo = self.vos_on_links.entry((link, vo.clone())).or_default();
        let of_activity = self.activities.entry((vo, activity)).or_default();
        for sum in [of_vo, of_activity] {
            sum.active += standing.active;
            sum.queued += standing.queued;
        }
    }

    /// Adds a running transfer that has moved nothing for so long.
    pub fn add_silence(&mut self, link: &LinkId, lasts: Duration) {
        let of_link = self.silences.entry(link.clone()).or_default();
        of_link.stalled += u64::from(lasts >= STALLED_AFTER);
        of_link.longest = of_link.longest.max(lasts);
    }
}

/// The count of the minute that runs.
#[derive(Debug)]
pub struct MinuteMeter {
    from: Timestamp,
    /// The latest time of which something was told.
    last: Timestamp,
    links: KeyedSums<LinkId>,
    vos_on_links: KeyedSums<(LinkId, VoName)>,
    activities: KeyedSums<(VoName, Activity)>,
    service: MinuteSums,
    failures: BTreeMap<LinkId, Vec<MinuteFailure>>,
    failure_kinds: usize,
    attempts: OpenAttempts<()>,
    over: Vec<MinuteSamples>,
}

impl MinuteMeter {
    /// Counts all that happens from this time on.
    pub fn new(since: Timestamp) -> MinuteMeter {
        MinuteMeter {
            from: since,
            last: since,
            links: KeyedSums::new(LINKS_MAX),
            vos_on_links: KeyedSums::new(VOS_ON_LINKS_MAX),
            activities: KeyedSums::new(ACTIVITIES_MAX),
            service: MinuteSums::default(),
            failures: BTreeMap::new(),
            failure_kinds: 0,
            attempts: OpenAttempts::default(),
            over: Vec::new(),
        }
    }

    /// Takes a file that was submitted.
    pub fn take_submission(&mut self, at: Timestamp, group: &TransferGroup) {
        self.go_on(at);
        self.each_sum(group, KeyUse::Waits, |sums| sums.submitted += 1);
    }

    /// Takes what happened to a transfer. Submissions have their own call.
    pub fn take_event(
        &mut self,
        at: Timestamp,
        transfer: TransferId,
        group: &TransferGroup,
        event: &TransferEvent,
    ) {
        self.go_on(at);
        let (counted, _) = self.attempts.take(at, transfer, &(), event);
        match counted {
            CountedEvent::Started => {
                self.each_sum(group, KeyUse::Works, |sums| sums.started += 1);
            }
            CountedEvent::Landed(copy) => {
                let of_vo = FinishedCopy {
                    size: copy.size,
                    ..FinishedCopy::default()
                };
                self.links.of(&group.link, KeyUse::Works).copies.add(&copy);
                self.each_vo_sum(group, KeyUse::Works, |sums| sums.copies.add(&of_vo));
            }
            CountedEvent::Failed {
                failure,
                step,
                lost,
            } => {
                if step == FailedStep::Attempt {
                    self.each_sum(group, KeyUse::Works, |sums| {
                        sums.failed += 1;
                        sums.add_lost(lost.moved, lost.ran);
                    });
                }
                self.failed(&group.link, failure, step);
            }
            CountedEvent::Submitted | CountedEvent::Uncounted => {}
        }
    }

    fn failed(&mut self, link: &LinkId, failure: &Failure, step: FailedStep) {
        if !self.links.has_room_for(link, KeyUse::Works) {
            return;
        }
        // The link is known from now on, also when nothing else is known of it.
        self.links.of(link, KeyUse::Works);
        let (side, phase, errno) = (failure.side, failure.phase, failure.errno);
        let fingerprint = fingerprint(failure);
        let kinds = self.failures.entry(link.clone()).or_default();
        let known = kinds.iter_mut().find(|kind| {
            (kind.step, kind.side, kind.phase, kind.errno) == (step, side, phase, errno)
                && kind.fingerprint == fingerprint
        });
        if let Some(kind) = known {
            kind.count += 1;
        } else if kinds.len() < FAILURES_PER_LINK_MAX && self.failure_kinds < FAILURES_MAX {
            self.failure_kinds += 1;
            kinds.push(MinuteFailure {
                step,
                side,
                phase,
                errno,
                fingerprint,
                count: 1,
            });
        }
    }

    /// Takes bytes that attempts of a group have moved. Those of links come with their samples.
    pub fn take_moved(&mut self, at: Timestamp, group: &TransferGroup, bytes: u64) {
        self.go_on(at);
        if bytes > 0 {
            self.each_vo_sum(group, KeyUse::Works, |sums| {
                sums.moved_bytes = sums.moved_bytes.saturating_add(bytes);
            });
        }
    }

    /// Takes what an attempt had moved that was stopped. That of failed ones comes with their events.
    pub fn take_stopped(
        &mut self,
        at: Timestamp,
        group: &TransferGroup,
        moved: Bytes,
        ran: Duration,
    ) {
        self.go_on(at);
        if moved > Bytes(0) {
            self.each_sum(group, KeyUse::Works, |sums| sums.add_lost(moved, ran));
        }
    }

    /// Takes a second that has ended at this time: what links did in it, and what stands at its end.
    pub fn take_second(&mut self, at: Timestamp, samples: &[LinkSample], standings: &Standings) {
        self.go_on(Timestamp(at.0.saturating_sub(1)));
        for sample in samples {
            let works = sample.active.0 > 0 || sample.moved.0 > 0;
            let of = self.links.of(&sample.link, KeyUse::when(works));
            of.add_sample(sample);
        }
        for (link, silence) in &standings.silences {
            let of = self.links.of(link, KeyUse::Works);
            of.stalled += silence.stalled;
            let longest_ms = u64::try_from(silence.longest.as_millis()).unwrap_or(u64::MAX);
            of.silence_max_ms = of.silence_max_ms.max(longest_ms);
        }
        if let Some(slots) = standings.service {
            let limit = slots.limit.0.into();
            self.service.add_standing(slots.active.0.into(), 0);
            self.service.limit += limit;
            self.service.limit_max = self.service.limit_max.max(limit);
        }
        for (key, standing) in &standings.vos_on_links {
            let of = self.vos_on_links.of(key, KeyUse::when(standing.active > 0));
            of.add_standing(standing.active, standing.queued);
        }
        for (key, standing) in &standings.activities {
            let of = self.activities.of(key, KeyUse::when(standing.active > 0));
            of.add_standing(standing.active, standing.queued);
        }
    }

    /// The minutes that are over.
    pub fn take_over(&mut self) -> Vec<MinuteSamples> {
        std::mem::take(&mut self.over)
    }

    /// The same with the part of a minute that has passed: nothing more will happen.
    pub fn end(&mut self, at: Timestamp) -> Vec<MinuteSamples> {
        self.go_on(at);
        let to = Timestamp(self.last.0 + 1);
        self.close(to, to);
        self.take_over()
    }

    fn each_sum(
        &mut self,
        group: &TransferGroup,
        of: KeyUse,
        mut add: impl FnMut(&mut MinuteSums),
    ) {
        add(self.links.of(&group.link, of));
        self.each_vo_sum(group, of, add);
    }

    fn each_vo_sum(
        &mut self,
        group: &TransferGroup,
        of: KeyUse,
        mut add: impl FnMut(&mut MinuteSums),
    ) {
        let TransferGroup { link, vo, activity } = group.clone();
        add(self.vos_on_links.of(&(link, vo.clone()), of));
        add(self.activities.of(&(vo, activity), of));
    }

    /// What is told next is of this time. A clock that is set back begins another part of a minute.
    fn go_on(&mut self, at: Timestamp) {
        if at < self.last && self.last.0 - at.0 < CORRECTION_MS_MAX {
            return;
        }
        let (minute, now) = (minute_of(self.from), minute_of(at));
        if now > minute {
            self.close(Timestamp(minute.0 + MINUTE_MS), now);
        } else if now < minute {
            self.close(Timestamp(self.last.0 + 1), at);
        }
        self.last = match now == minute {
            true => self.last.max(at),
            false => at,
        };
    }

    /// Hands over what was counted until `to`; what comes next is counted from `next` on.
    fn close(&mut self, to: Timestamp, next: Timestamp) {
        let mut rows = Vec::new();
        let row = |key, sums, failures| MinuteRow {
            key,
            sums,
            failures,
        };
        let (links, others) = self.links.take();
        for (link, sums) in links {
            let failures = self.failures.remove(&link).unwrap_or_default();
            rows.push(row(MinuteKey::Link(link), sums, failures));
        }
        rows.extend(others.map(|sums| row(MinuteKey::OtherLinks, sums, Vec::new())));
        let (vos, others) = self.vos_on_links.take();
        for ((link, vo), sums) in vos {
            rows.push(row(MinuteKey::VoOnLink(link, vo), sums, Vec::new()));
        }
        rows.extend(others.map(|sums| row(MinuteKey::OtherVosOnLinks, sums, Vec::new())));
        let (activities, others) = self.activities.take();
        for ((vo, activity), sums) in activities {
            rows.push(row(MinuteKey::Activity(vo, activity), sums, Vec::new()));
        }
        rows.extend(others.map(|sums| row(MinuteKey::OtherActivities, sums, Vec::new())));
        let service = std::mem::take(&mut self.service);
        if service.samples > 0 {
            rows.push(row(MinuteKey::Service, service, Vec::new()));
        }
        self.failures.clear();
        self.failure_kinds = 0;
        let from = std::mem::replace(&mut self.from, next);
        self.over.push(MinuteSamples { from, to, rows });
    }
}

/// What a key is named for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyUse {
    /// Something runs or ended.
    Works,
    /// Files only wait.
    Waits,
}

impl KeyUse {
    fn when(works: bool) -> KeyUse {
        match works {
            true => KeyUse::Works,
            false => KeyUse::Waits,
        }
    }
}

/// Sums by key, and those of the keys beyond the bound together.
#[derive(Debug)]
struct KeyedSums<K> {
    keys_max: usize,
    sums: BTreeMap<K, MinuteSums>,
    others: Option<MinuteSums>,
}

impl<K: Ord + Clone> KeyedSums<K> {
    fn new(keys_max: usize) -> KeyedSums<K> {
        KeyedSums {
            keys_max,
            sums: BTreeMap::new(),
            others: None,
        }
    }

    fn has_room_for(&self, key: &K, of: KeyUse) -> bool {
        let room = match of {
            KeyUse::Works => self.keys_max,
            KeyUse::Waits => self.keys_max / 2,
        };
        self.sums.len() < room || self.sums.contains_key(key)
    }

    fn of(&mut self, key: &K, of: KeyUse) -> &mut MinuteSums {
        match self.has_room_for(key, of) {
            true => self.sums.entry(key.clone()).or_default(),
            false => self.others.get_or_insert_default(),
        }
    }

    fn take(&mut self) -> (BTreeMap<K, MinuteSums>, Option<MinuteSums>) {
        (std::mem::take(&mut self.sums), self.others.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{
        Attempt, Bytes, Concern, CopyMode, Errno, MoverReport, Phase, Retry, Side, Slots, StorageId,
    };

    fn group(number: usize, vo: &str) -> TransferGroup {
        TransferGroup {
            link: LinkId {
                source: StorageId::new(format!("https://s{number}")),
                destination: StorageId::new("https://d"),
            },
            vo: VoName::new(vo),
            activity: Activity::new("default"),
        }
    }

    fn started(meter: &mut MinuteMeter, at: i64, transfer: u64, group: &TransferGroup) {
        let event = TransferEvent::Started {
            attempt: Attempt(1),
            node: None,
        };
        meter.take_event(Timestamp(at), TransferId(transfer), group, &event);
    }

    fn landed(meter: &mut MinuteMeter, at: i64, transfer: u64, group: &TransferGroup) {
        let prepared = TransferEvent::Prepared {
            attempt: Attempt(1),
            size: None,
            checksum: None,
            replaces: false,
        };
        let mut report = MoverReport::default();
        report.stages.network_us = 7_000;
        let event = TransferEvent::Landed {
            attempt: Attempt(1),
            size: Bytes(100),
            mode: Some(CopyMode::Pull),
            report: Box::new(report),
            archives: false,
        };
        meter.take_event(Timestamp(at), TransferId(transfer), group, &prepared);
        meter.take_event(Timestamp(at), TransferId(transfer), group, &event);
    }

    fn failed(meter: &mut MinuteMeter, at: i64, group: &TransferGroup, detail: &str) {
        let event = TransferEvent::AttemptFailed {
            attempt: Attempt(1),
            failure: Failure {
                side: Side::Source,
                retry: Retry::Later,
                concern: Concern::Link,
                phase: Phase::Transfer,
                errno: Errno::EIO,
                detail: detail.to_owned(),
                found: None,
                busy: None,
                code: None,
            },
            retry_at: None,
            cleaned: true,
            excused: false,
            stages: false,
            moved: None,
        };
        meter.take_event(Timestamp(at), TransferId(9), group, &event);
    }

    fn sample(at: i64, group: &TransferGroup, active: u32, queued: u64) -> LinkSample {
        LinkSample {
            at: Timestamp(at),
            link: group.link.clone(),
            moved: Bytes(10),
            active: Slots(active),
            limit: Slots(4),
            queued,
        }
    }

    fn sums<'a>(minute: &'a MinuteSamples, key: &MinuteKey) -> &'a MinuteSums {
        let row = minute.rows.iter().find(|row| row.key == *key);
        &row.expect("counted").sums
    }

    #[test]
    fn each_event_counts_in_its_own_minute_and_in_the_sums_of_its_link_vo_and_activity() {
        let mut meter = MinuteMeter::new(Timestamp(30_000));
        let (cms, atlas) = (group(1, "cms"), group(1, "atlas"));
        meter.take_submission(Timestamp(30_000), &cms);
        started(&mut meter, 40_000, 1, &cms);
        started(&mut meter, 59_999, 2, &atlas);
        assert_eq!(meter.take_over(), []);
        landed(&mut meter, 60_000, 1, &cms);
        let [first] = &meter.take_over()[..] else {
            panic!("one minute is over");
        };
        assert_eq!((first.from.0, first.to.0), (30_000, 60_000));
        let link = MinuteKey::Link(cms.link.clone());
        let of_link = sums(first, &link);
        assert_eq!((of_link.submitted, of_link.started), (1, 2));
        let of_cms = MinuteKey::VoOnLink(cms.link.clone(), cms.vo.clone());
        assert_eq!(sums(first, &of_cms).started, 1);
        let [second] = &meter.end(Timestamp(61_000))[..] else {
            panic!("what has passed of the second");
        };
        assert_eq!((second.from.0, second.to.0), (60_000, 61_001));
        let copies = &sums(second, &link).copies;
        assert_eq!((copies.files, copies.bytes), (1, 100));
        assert_eq!((copies.overheads, copies.overhead_us), (1, 20_000_000));
        assert_eq!(copies.stages_us[1], 7_000);
        let activity = MinuteKey::Activity(cms.vo.clone(), cms.activity.clone());
        let copies = &sums(second, &activity).copies;
        assert_eq!(
            (copies.files, copies.bytes, copies.stages_us[1]),
            (1, 100, 0)
        );
    }

    #[test]
    fn means_and_peaks_follow_from_what_stood_in_each_second() {
        let mut meter = MinuteMeter::new(Timestamp(0));
        let one = group(1, "cms");
        for second in 1..=60 {
            let at = second * 1000;
            let active = if second == 30 { 3 } else { 1 };
            let mut standings = Standings::default();
            let standing = Standing {
                active: active.into(),
                queued: 2,
            };
            standings.add(&one, standing);
            meter.take_second(Timestamp(at), &[sample(at, &one, active, 2)], &standings);
        }
        // The second that ends with the minute is of the minute.
        assert_eq!(meter.take_over(), []);
        meter.take_second(Timestamp(61_000), &[], &Standings::default());
        let [minute] = &meter.take_over()[..] else {
            panic!("one minute is over");
        };
        let of_link = sums(minute, &MinuteKey::Link(one.link.clone()));
        let figures = (of_link.samples, of_link.active, of_link.active_max);
        assert_eq!(figures, (60, 62, 3));
        assert_eq!((of_link.moved_bytes, of_link.limit), (600, 240));
        assert_eq!((of_link.queued, of_link.unfed), (120, 59 * 3 + 1));
        let of_vo = sums(
            minute,
            &MinuteKey::VoOnLink(one.link.clone(), one.vo.clone()),
        );
        assert_eq!((of_vo.active, of_vo.active_max, of_vo.queued), (62, 3, 120));
    }

    #[test]
    fn a_minute_in_which_nothing_happened_is_told_and_one_in_which_nobody_counted_is_not() {
        let mut meter = MinuteMeter::new(Timestamp(0));
        let nothing = Standings::default();
        meter.take_second(Timestamp(60_001), &[], &nothing);
        // It was suspended.
        meter.take_second(Timestamp(200_000), &[], &nothing);
        let told = meter.take_over();
        let told: Vec<_> = told
            .iter()
            .map(|minute| (minute.from.0, minute.to.0, minute.rows.len()))
            .collect();
        assert_eq!(told, [(0, 60_000, 0), (60_000, 120_000, 0)]);
    }

    #[test]
    fn a_transfer_that_stands_still_and_the_slots_of_the_service_are_told() {
        let mut meter = MinuteMeter::new(Timestamp(0));
        let one = group(1, "cms");
        for second in 1..=10i64 {
            let mut standings = Standings {
                service: Some(SlotUse {
                    active: Slots(7),
                    limit: Slots(20),
                }),
                ..Standings::default()
            };
            let silent =
                STALLED_AFTER - Duration::from_secs(5) + Duration::from_secs(second as u64);
            standings.add_silence(&one.link, silent);
            standings.add_silence(&one.link, Duration::ZERO);
            let at = second * 1000;
            meter.take_second(Timestamp(at), &[sample(at, &one, 2, 0)], &standings);
        }
        let [minute] = &meter.end(Timestamp(10_000))[..] else {
            panic!("one part");
        };
        let of_link = sums(minute, &MinuteKey::Link(one.link));
        assert_eq!((of_link.stalled, of_link.silence_max_ms), (6, 605_000));
        let service = sums(minute, &MinuteKey::Service);
        assert_eq!(
            (service.active, service.limit, service.samples),
            (70, 200, 10)
        );
    }

    #[test]
    fn a_clock_that_is_set_back_begins_another_part_of_a_minute() {
        let mut meter = MinuteMeter::new(Timestamp(0));
        let one = group(1, "cms");
        started(&mut meter, 130_000, 1, &one);
        started(&mut meter, 70_000, 2, &one);
        started(&mut meter, 121_000, 3, &one);
        let told = meter.end(Timestamp(121_000));
        let told: Vec<_> = told
            .iter()
            .map(|minute| (minute.from.0, minute.to.0))
            .collect();
        let expected = [
            (0, 60_000),
            (120_000, 130_001),
            (70_000, 120_000),
            (120_000, 121_001),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn keys_beyond_the_bound_are_counted_together_and_those_that_only_wait_take_half_of_the_room() {
        let mut meter = MinuteMeter::new(Timestamp(0));
        for number in 0..LINKS_MAX {
            meter.take_submission(Timestamp(0), &group(number, "cms"));
        }
        for number in 0..LINKS_MAX {
            started(
                &mut meter,
                1,
                number as u64,
                &group(LINKS_MAX + number, "cms"),
            );
        }
        let [minute] = &meter.end(Timestamp(2))[..] else {
            panic!("one part");
        };
        let links = minute.rows.iter();
        let links = links.filter(|row| matches!(row.key, MinuteKey::Link(_)));
        assert_eq!(links.count(), LINKS_MAX);
        let others = sums(minute, &MinuteKey::OtherLinks);
        let half = LINKS_MAX as u64 / 2;
        assert_eq!((others.submitted, others.started), (half, half));
    }

    #[test]
    fn failures_of_one_kind_are_one_and_kinds_are_bounded() {
        let mut meter = MinuteMeter::new(Timestamp(0));
        let one = group(1, "cms");
        for number in 0..50 {
            failed(&mut meter, 1, &one, &format!("file {number} is broken"));
        }
        for word in 'a'..='z' {
            let detail = format!("broken by {}", String::from(word).repeat(3));
            failed(&mut meter, 1, &one, &detail);
        }
        let [minute] = &meter.end(Timestamp(2))[..] else {
            panic!("one part");
        };
        let row = &minute.rows[0];
        assert_eq!(row.sums.failed, 76);
        assert_eq!(row.failures.len(), FAILURES_PER_LINK_MAX);
        assert_eq!(row.failures[0].count, 50);
    }
}
