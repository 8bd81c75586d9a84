//! What rows of records tell of a window, as the explainer takes it: of any transfer service or storage element whose
//! messages and logs were taken in (`docs/observe/records.md`).
//!
//! A fold, one row at a time. What a source does not tell stays unknown. The bytes of a file are spread over the time in
//! which they moved. Files that have not ended are not in the record yet, so nothing is known of its last minutes: as many
//! as most files take.

use super::element_rows;
use super::reading::{ExplainWindow, ExplainedWindow, LinkRoom, LinkWeight};
use crate::copy_sums;
use crate::ended_copies::{ClientCount, EndedCopy, RecordView, each_attempt_stored, link_of};
use crate::store::{Reader, StoreError};
use crate::window_bins::WindowBins;
use penstock_decide::explain::PopulationChoice;
use penstock_decide::explain::signals::{FailureGroup, LinkSignals, Maintenance, Series, Signals};
use penstock_model::observation::{
    Attempt, Change, ChangeKind, Outcome, Sample, SubjectKind, Text, View,
};
use penstock_model::{
    CopySums, Errno, FinishedCopy, LinkId, Phase, SocketFigures, TcpSummary, TimeWindow, Timestamp,
    VoName,
};
use std::collections::{BTreeMap, HashMap};

/// Links that are looked at; rows of further ones are passed over.
const LINKS_MAX: usize = 10_000;
/// Kinds of failure told apart on one link.
const FAILURES_MAX: usize = 100;
/// VOs told apart on one link.
const VOS_MAX: usize = 100;
/// Kinds of failure, and VOs, that are told apart on each link however many links there are.
const SERIES_OF_EACH_MAX: usize = 8;
/// Values of the series of all further ones together: some 50 MB.
const FURTHER_VALUES_MAX: usize = 2_000_000;
/// Files whose times are remembered to tell how long most of them take.
const TIMES_MAX: usize = 100_000;
/// What is needed of an attempt beside what every fold reads.
const FURTHER_COLUMNS: [&str; 17] = [
    "last_byte",
    "wait_us",
    "checksum_us",
    "streams",
    "rtt_us",
    "min_rtt_us",
    "retransmitted_segments",
    "sent_segments",
    "busy_us",
    "receiver_limited_us",
    "send_buffer_limited_us",
    "receiver_rtt_us",
    "received_segments",
    "out_of_order_segments",
    "error_code",
    "fingerprint",
    "phase",
];

/// What a record holds of a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordExtent {
    /// From its first attempt to its last.
    pub window: TimeWindow,
    /// The view in which most attempts name both ends; where none does, that which most attempts have. Views are the same
    /// transfers seen twice, so one alone is explained.
    pub view: RecordView,
}

/// Looks at when what a record tells of a window begins and ends, as the view has it that is named; `None`: it has no attempts
/// of it.
pub fn extent_of(
    reader: &mut Reader,
    within: TimeWindow,
    wanted: Option<View>,
) -> Result<Option<RecordExtent>, StoreError> {
    let mut window: Option<TimeWindow> = None;
    let mut views: BTreeMap<View, (u64, u64)> = BTreeMap::new();
    let mut clients = ClientCount::default();
    let columns = [
        "at",
        "view",
        "source_host",
        "destination_host",
        "server",
        "client",
        "bytes_moved",
    ];
    reader.each::<Attempt>(within, &columns, |row| {
        if wanted.is_some_and(|wanted| wanted != row.view) {
            return;
        }
        let end = Timestamp(row.at.0.saturating_add(1));
        let known = window.get_or_insert(TimeWindow {
            from: row.at,
            to: end,
        });
        known.from = known.from.min(row.at);
        known.to = known.to.max(end);
        let names_ends = row.source_host.is_some() && row.destination_host.is_some();
        if !names_ends {
            clients.take(row);
        }
        let (with_ends, rows) = views.entry(row.view).or_default();
        *with_ends += u64::from(names_ends);
        *rows += 1;
    })?;
    let view = views.into_iter().max_by_key(|(_, rows)| *rows);
    let clients = clients.link_clients();
    Ok(window.zip(view).map(|(window, (view, _))| RecordExtent {
        window,
        view: RecordView { view, clients },
    }))
}

/// Reads a window of a record, as one view has it. When there is no room for all of its links, it is read twice: the second
/// time only those that matter most.
pub fn read_rows(
    reader: &mut Reader,
    window: ExplainWindow,
    view: &RecordView,
    wanted: &PopulationChoice,
) -> Result<ExplainedWindow, StoreError> {
    let mut room = LinkRoom::of(window, wanted);
    let mut read = read_links(reader, window, view, wanted, &mut room)?;
    if room.links_left_out() > 0 {
        room.choose();
        read = read_links(reader, window, view, wanted, &mut room)?;
    }
    read.with(|signals| element_rows::tell(reader, element_rows::window_of(signals), signals))
}

/// Reads what concerns the links for which there is room.
fn read_links(
    reader: &mut Reader,
    window: ExplainWindow,
    view: &RecordView,
    wanted: &PopulationChoice,
    room: &mut LinkRoom<'_>,
) -> Result<ExplainedWindow, StoreError> {
    let mut signals = RowSignals::new(window, view, room);
    // Of a file that ends later, bytes moved earlier.
    let all = TimeWindow {
        from: window.from,
        to: TimeWindow::ALL.to,
    };
    each_attempt_stored(reader, all, &FURTHER_COLUMNS, |row| {
        signals.take_attempt(row);
    })?;
    let within = TimeWindow {
        from: window.from,
        to: window.to,
    };
    reader.each(within, &[], |row: &Sample| signals.take_sample(row))?;
    reader.each(within, &[], |row: &Change| signals.take_change(row))?;
    let signals = signals.finish();
    Ok(ExplainedWindow {
        view: Some(view.view),
        links_left_out: room.links_left_out(),
        ..ExplainedWindow::of(signals, wanted)
    })
}

/// Sums of one link in one bin.
#[derive(Debug, Clone, Default)]
struct RowBin {
    moved: f64,
    failed: f64,
    active: f64,
    queued: f64,
    copies: CopySums,
    limit: Option<f64>,
    sampled_queue: Option<f64>,
}

/// Room for further series, beside those that each link has.
#[derive(Debug)]
struct SeriesRoom {
    values_left: usize,
}

impl SeriesRoom {
    /// Takes the room for one more of a link that has so many of its kind; false: there is none.
    fn take(&mut self, known: usize, bins: usize) -> bool {
        if known < SERIES_OF_EACH_MAX {
            return true;
        }
        let left = self.values_left.checked_sub(bins);
        self.values_left = left.unwrap_or(self.values_left);
        left.is_some()
    }
}

#[derive(Debug)]
struct LinkRows {
    link: LinkId,
    weight: LinkWeight,
    /// None, where there is no room for them.
    bins: Vec<RowBin>,
    failures: BTreeMap<FailureGroup, Vec<f64>>,
    vo_bytes: BTreeMap<VoName, Vec<f64>>,
    /// Some row tells when its file was submitted.
    tells_queue: bool,
}

/// The ends of a link as rows tell them.
type LinkEnds = (Option<Text>, Option<Text>);

/// The fold. A day has millions of rows, so nothing is made anew for each.
struct RowSignals<'a, 'b> {
    window: ExplainWindow,
    bins: WindowBins,
    view: &'a RecordView,
    room: &'a mut LinkRoom<'b>,
    links: Vec<LinkRows>,
    numbers: HashMap<LinkEnds, usize>,
    series_room: SeriesRoom,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    /// Milliseconds that files took.
    times_ms: Vec<i64>,
    maintenance: Vec<Maintenance>,
}

impl<'a, 'b> RowSignals<'a, 'b> {
    fn new(
        window: ExplainWindow,
        view: &'a RecordView,
        room: &'a mut LinkRoom<'b>,
    ) -> RowSignals<'a, 'b> {
        RowSignals {
            window,
            bins: WindowBins {
                begin: window.from,
                step_ms: i64::from(window.resolution_seconds) * 1000,
                count: window.bins(),
            },
            view,
            room,
            links: Vec::new(),
            numbers: HashMap::new(),
            series_room: SeriesRoom {
                values_left: FURTHER_VALUES_MAX,
            },
            first: None,
            last: None,
            times_ms: Vec::new(),
            maintenance: Vec::new(),
        }
    }

    /// The place of a link among all; `None`: there are too many.
    fn place_of(&mut self, ends: LinkEnds) -> Option<usize> {
        if let Some(place) = self.numbers.get(&ends) {
            return Some(*place);
        }
        if self.links.len() >= LINKS_MAX {
            return None;
        }
        let link = link_of(ends.0.as_ref(), ends.1.as_ref());
        let bins = match self.room.has(&link, |_| ()) {
            true => self.bins.count,
            false => 0,
        };
        self.links.push(LinkRows::of(link, bins));
        self.numbers.insert(ends, self.links.len() - 1);
        Some(self.links.len() - 1)
    }

    fn take_attempt(&mut self, row: &Attempt) {
        let Some(copy) = EndedCopy::of(row, self.view) else {
            return;
        };
        let (outcome, started, end) = (copy.outcome, copy.started, copy.ended);
        self.first = Some(self.first.map_or(row.at, |first| first.min(row.at)));
        self.last = Some(self.last.map_or(row.at, |last| last.max(row.at)));
        if self.times_ms.len() < TIMES_MAX {
            self.times_ms.push(end.0 - started.0);
        }
        let bins = self.bins;
        let Some(place) = self.place_of(copy.ends()) else {
            return;
        };
        let (link, series_room) = (&mut self.links[place], &mut self.series_room);
        link.weigh(row, outcome);
        if link.bins.is_empty() {
            return;
        }
        let step = bins.step_ms as f64;
        for (bin, ms) in bins.overlaps(started, end) {
            link.bins[bin].active += ms / step;
        }
        if let Some(submitted) = row.submitted {
            link.tells_queue = true;
            for (bin, ms) in bins.overlaps(submitted.min(started), started) {
                link.bins[bin].queued += ms / step;
            }
        }
        link.moved(&copy, bins, series_room);
        let Some(last_bin) = bins.of_time(row.at) else {
            return;
        };
        match outcome {
            Outcome::Success => link.bins[last_bin].copies.add(&finished(row)),
            Outcome::Failure => link.failed(row, last_bin, series_room),
            Outcome::Abort => {}
        }
    }

    /// Takes what was sampled of a link. A part of it, of one VO, tells nothing of all that waits there.
    fn take_sample(&mut self, row: &Sample) {
        let is_of_link = row.subject_kind == SubjectKind::Link && row.vo.is_none();
        if !is_of_link || row.view != self.view.view {
            return;
        }
        let Some(bin) = self.bins.of_time(Timestamp(row.at.0.saturating_sub(1))) else {
            return;
        };
        let ends = (row.source_host.clone(), row.destination_host.clone());
        let Some(place) = self.place_of(ends) else {
            return;
        };
        if let Some(bin) = self.links[place].bins.get_mut(bin) {
            bin.limit = row.limit.map(|limit| limit as f64).or(bin.limit);
            bin.sampled_queue = row.queued.map(|queued| queued as f64).or(bin.sampled_queue);
        }
    }

    /// Takes work on a machine. What else was changed is of no link that is known.
    fn take_change(&mut self, row: &Change) {
        if let (ChangeKind::Intervention, Some(to)) = (row.kind, row.until) {
            self.maintenance.push(Maintenance {
                from: row.at,
                to,
                place: row.subject.to_string(),
                what: row.name.to_string(),
            });
        }
    }

    /// Until when nearly all that moved has ended.
    fn known_until(&mut self) -> Option<Timestamp> {
        let last = self.last?;
        self.times_ms.sort_unstable();
        let most = self.times_ms.len().checked_sub(1)? * 95 / 100;
        Some(Timestamp(last.0 - self.times_ms.get(most)?))
    }

    fn finish(mut self) -> Signals {
        let window = self.window;
        let mut signals = Signals::unknown(window.from, window.resolution_seconds, window.bins());
        signals.maintenance = std::mem::take(&mut self.maintenance);
        let (Some(first), Some(until)) = (self.first, self.known_until()) else {
            return signals;
        };
        let is_known: Vec<bool> = (0..window.bins())
            .map(|bin| signals.begin_of(bin + 1) > first && signals.begin_of(bin + 1) <= until)
            .collect();
        for rows in self.links {
            if !self
                .room
                .has(&rows.link, |weight| *weight = rows.weight.clone())
            {
                continue;
            }
            signals
                .links
                .insert(rows.link.clone(), rows.signals(&is_known));
        }
        let running = signals.links.values().map(|link| link.active.clone());
        let running = running.reduce(|sum, active| sum.plus(&active));
        signals.service.slots_used = running.unwrap_or_default();
        signals
    }
}

fn finished(row: &Attempt) -> FinishedCopy {
    FinishedCopy {
        size: row.file_bytes.or(row.bytes_moved),
        overhead_us: overhead_us(row),
        stages_us: [
            row.source_read_us,
            row.network_us,
            row.write_us,
            row.checksum_us,
            row.commit_us,
        ],
        streams: row.streams,
        asked: None,
        socket: socket_of(row),
    }
}

/// What a row tells of the socket of its end. Who received more than it sent was the receiver of the file.
fn socket_of(row: &Attempt) -> Option<SocketFigures> {
    let sent_segments = row.sent_segments.unwrap_or(0);
    let received_segments = row.received_segments.unwrap_or(0);
    if received_segments > sent_segments {
        let small = |told: Option<u64>| u32::try_from(told.unwrap_or(0)).unwrap_or(u32::MAX);
        return SocketFigures::of_receiver(&TcpSummary {
            rtt_us: small(row.rtt_us),
            min_rtt_us: small(row.min_rtt_us),
            receiver_rtt_us: small(row.receiver_rtt_us),
            received_segments: small(row.received_segments),
            out_of_order_segments: small(row.out_of_order_segments),
            ..TcpSummary::default()
        });
    }
    let busy_us = row.busy_us.filter(|_| sent_segments > 0)?;
    Some(SocketFigures {
        sent_segments,
        retransmitted_segments: row.retransmitted_segments.unwrap_or(0),
        busy_us,
        receiver_limited_us: row.receiver_limited_us.unwrap_or(0),
        buffer_limited_us: row.send_buffer_limited_us.unwrap_or(0),
        rtt_us: row.rtt_us.unwrap_or(0),
        rtt_min_us: row.min_rtt_us.unwrap_or(0),
        ..SocketFigures::default()
    })
}

/// The time of a file in which its slot moved no bytes; `None`: that is not told.
fn overhead_us(row: &Attempt) -> Option<u64> {
    let told = [row.wait_us, row.prepare_us, row.commit_us];
    if told.iter().any(Option::is_some) {
        let known = told.into_iter().flatten();
        return Some(known.fold(0, u64::saturating_add));
    }
    let (started, first) = (row.started?, row.first_byte?);
    let (last, ended) = (row.last_byte?, row.ended.unwrap_or(row.at));
    let idle = first.since(started) + ended.since(last);
    u64::try_from(idle.as_micros()).ok()
}

impl LinkRows {
    fn of(link: LinkId, bins: usize) -> LinkRows {
        LinkRows {
            link,
            weight: LinkWeight::default(),
            bins: vec![RowBin::default(); bins],
            failures: BTreeMap::new(),
            vo_bytes: BTreeMap::new(),
            tells_queue: false,
        }
    }

    fn weigh(&mut self, row: &Attempt, outcome: Outcome) {
        let moved = row.bytes_moved.or(row.file_bytes).unwrap_or_default();
        match outcome {
            Outcome::Success => self.weight.add_copies(moved.0, 0),
            Outcome::Failure => self.weight.add_copies(0, 1),
            Outcome::Abort => {}
        }
        if let Some(vo) = &row.vo {
            self.weight.add_vo(vo);
        }
    }

    /// Spreads the bytes of a file over the time in which they moved.
    fn moved(&mut self, copy: &EndedCopy<'_>, bins: WindowBins, room: &mut SeriesRoom) {
        let row = copy.row;
        let is_success = copy.outcome == Outcome::Success;
        let bytes = row.bytes_moved.or(row.file_bytes.filter(|_| is_success));
        let bytes = bytes.map_or(0.0, |bytes| bytes.0 as f64);
        let from = row.first_byte.unwrap_or(copy.started).min(copy.ended);
        let to = row.last_byte.unwrap_or(copy.ended).max(from);
        let span = (to.0 - from.0) as f64;
        // What took no time moved when it ended.
        let at_once = bins.of_time(row.at).filter(|_| span <= 0.0);
        let spread = bins.overlaps(from, to).map(|(bin, ms)| (bin, ms / span));
        let parts = spread.chain(at_once.map(|bin| (bin, 1.0)));
        if !is_success {
            parts.for_each(|(bin, part)| self.bins[bin].failed += bytes * part);
            return;
        }
        let mut of_vo = match &row.vo {
            Some(vo) => {
                let (is_known, known) = (self.vo_bytes.contains_key(vo), self.vo_bytes.len());
                if !is_known && known < VOS_MAX && room.take(known, bins.count) {
                    self.vo_bytes.insert(vo.clone(), vec![0.0; bins.count]);
                }
                self.vo_bytes.get_mut(vo)
            }
            None => None,
        };
        for (bin, part) in parts {
            self.bins[bin].moved += bytes * part;
            if let Some(of_vo) = &mut of_vo {
                of_vo[bin] += bytes * part;
            }
        }
    }

    /// Counts a failure: by its kind, or where there is no room for that by the side alone.
    fn failed(&mut self, row: &Attempt, bin: usize, room: &mut SeriesRoom) {
        let Some(side) = row.side else { return };
        let errno = row.error_code.and_then(|code| i32::try_from(code).ok());
        let group = FailureGroup::new(
            side,
            row.phase.unwrap_or(Phase::Transfer),
            Errno(errno.unwrap_or(0)),
            row.fingerprint.as_deref().unwrap_or_default(),
        );
        let (bins, known) = (self.bins.len(), self.failures.len());
        let is_told =
            self.failures.contains_key(&group) || known < FAILURES_MAX && room.take(known, bins);
        let group = match is_told {
            true => group,
            false => FailureGroup::new(side, Phase::Transfer, Errno(0), ""),
        };
        let of_group = self.failures.entry(group);
        of_group.or_insert_with(|| vec![0.0; bins])[bin] += 1.0;
    }

    fn signals(self, is_known: &[bool]) -> LinkSignals {
        let bins = &self.bins;
        let known = |value: &dyn Fn(&RowBin) -> f64| {
            let values = bins.iter().zip(is_known);
            Series(
                values
                    .map(|(bin, known)| known.then(|| value(bin)))
                    .collect(),
            )
        };
        let series = |values: Vec<f64>| {
            let values = values.into_iter().zip(is_known);
            Series(
                values
                    .map(|(value, known)| known.then_some(value))
                    .collect(),
            )
        };
        let sampled = Series(bins.iter().map(|bin| bin.sampled_queue).collect());
        let is_sampled = bins.iter().any(|bin| bin.sampled_queue.is_some());
        let queued = match (is_sampled, self.tells_queue) {
            (true, _) => sampled,
            (false, true) => known(&|bin| bin.queued),
            (false, false) => Series::default(),
        };
        let mut link = LinkSignals {
            copied_bytes: known(&|bin| bin.moved),
            failed_bytes: known(&|bin| bin.failed),
            active: known(&|bin| bin.active),
            limit: Series(bins.iter().map(|bin| bin.limit).collect()),
            queued,
            finished_files: known(&|bin| bin.copies.files as f64),
            ..LinkSignals::default()
        };
        let copies: Vec<&CopySums> = bins.iter().map(|bin| &bin.copies).collect();
        copy_sums::tell(&mut link, &copies);
        let failures = self.failures.into_iter();
        link.failures = failures
            .map(|(group, attempts)| (group, series(attempts)))
            .collect();
        link.vos = self.vo_bytes.keys().cloned().collect();
        let vos = self.vo_bytes.into_iter();
        link.vo_bytes = vos.map(|(vo, bytes)| (vo, series(bytes))).collect();
        link
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ended_copies::tests::{attempts_with_all_columns, stored};
    use penstock_decide::explain::{Cause, RateChangeKind};
    use penstock_model::observation::{Observation, Operation};
    use penstock_model::{Bytes, Side};

    const MINUTE: i64 = 60_000;
    const HOURS: i64 = 4;
    const FAULT: std::ops::Range<i64> = 100..160;

    /// A file each three seconds, as long as `change` leaves it; of the view of a VO.
    fn run(change: impl Fn(i64, &mut Attempt)) -> Vec<Attempt> {
        let begin = 1_143_849_600_000;
        let mut rows = Vec::new();
        for number in 0..HOURS * 60 * 20 {
            let started = begin + number * 3000;
            let minute = number / 20;
            let mut row = Attempt {
                at: Timestamp(started + 40_000),
                source: "fts".into(),
                line: number as u64,
                operation: Operation::Copy,
                source_host: Some("https://cern.ch".into()),
                destination_host: Some("https://in2p3.fr".into()),
                vo: Some(VoName::new("dteam")),
                submitted: Some(Timestamp(started - 30_000)),
                started: Some(Timestamp(started)),
                bytes_moved: Some(Bytes(1_000_000_000 + (number as u64 * 7_919) % 50_000_000)),
                outcome: Some(Outcome::Success),
                ..Attempt::default()
            };
            row.file_bytes = row.bytes_moved;
            if FAULT.contains(&minute) {
                change(number, &mut row);
            }
            rows.push(row);
        }
        rows
    }

    fn told(rows: Vec<Attempt>, wanted: &str) -> Vec<(RateChangeKind, Option<Cause>, i64)> {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = crate::store::Store::open(directory.path()).expect("a store");
        for row in rows {
            store.append(&Observation::from(row)).expect("written");
        }
        store.flush().expect("written");
        drop(store);
        let mut reader = Reader::open(directory.path()).expect("readable");
        let extent = extent_of(&mut reader, TimeWindow::ALL, None)
            .expect("readable")
            .expect("rows");
        let window = ExplainWindow::new(extent.window.from, extent.window.to, None);
        let wanted = PopulationChoice::Link(wanted.to_owned());
        let read = read_rows(&mut reader, window, &extent.view, &wanted).expect("readable");
        let begin = read.signals.begin.0;
        let changes = read.changes();
        let rows = changes.iter().map(|change| {
            let minute = (change.explanation.from.0 - begin) / MINUTE;
            (change.kind(), change.first_cause(), minute)
        });
        rows.collect()
    }

    #[test]
    fn a_steady_record_has_no_drop_also_at_its_ends() {
        assert_eq!(told(run(|_, _| ()), "*-in2p3.fr"), []);
        assert_eq!(
            told(run(|_, row| row.bytes_moved = None), "elsewhere-*"),
            []
        );
    }

    #[test]
    fn failures_that_a_service_told_explain_a_drop() {
        let rows = run(|number, row| {
            if number % 4 != 0 {
                row.outcome = Some(Outcome::Failure);
                row.bytes_moved = Some(Bytes(0));
                row.side = Some(Side::Destination);
                row.error_code = Some(5);
                row.fingerprint = Some("input/output error".into());
            }
        });
        let told = told(rows, "cern.ch-in2p3.fr");
        let [(kind, cause, minute)] = told.as_slice() else {
            panic!("{told:?}");
        };
        assert_eq!(
            (*kind, *cause),
            (RateChangeKind::Drop, Some(Cause::DestinationErrors))
        );
        assert!((minute - FAULT.start).abs() <= 3, "{minute}");
    }

    #[test]
    fn fewer_files_are_a_lull_where_the_record_tells_that_nothing_was_queued() {
        let mut few = run(|_, row| row.submitted = row.started);
        few.retain(|row| {
            let minute = row.line as i64 / 20;
            !FAULT.contains(&minute) || row.line % 5 == 0
        });
        let kinds: Vec<_> = told(few, "*-*").iter().map(|row| row.0).collect();
        assert_eq!(kinds, [RateChangeKind::Lull]);
    }

    #[test]
    fn of_more_links_than_there_is_room_for_those_are_told_on_which_most_moves() {
        let begin = 1_143_849_600_000;
        let links = 40_u64;
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = crate::store::Store::open(directory.path()).expect("a store");
        for number in 0..4 * links {
            let link = number % links;
            store
                .append_row(&Attempt {
                    at: Timestamp(begin + number as i64 * 20_000 + 10_000),
                    started: Some(Timestamp(begin + number as i64 * 20_000)),
                    source_host: Some(format!("https://s{link}").into()),
                    destination_host: Some("https://d".into()),
                    vo: Some(VoName::new("dteam")),
                    bytes_moved: Some(Bytes(1_000 + link)),
                    outcome: Some(Outcome::Success),
                    ..Attempt::default()
                })
                .expect("written");
        }
        store.flush().expect("written");
        drop(store);
        let mut reader = Reader::open(directory.path()).expect("readable");
        // Of three days by the second there is room for one link.
        let window = ExplainWindow {
            from: Timestamp(begin),
            to: Timestamp(begin + 240_000_000),
            resolution_seconds: 1,
        };
        let read = read_rows(
            &mut reader,
            window,
            &RecordView::default(),
            &PopulationChoice::Links,
        );
        let read = read.expect("readable");
        assert_eq!(read.links_left_out, links as usize - 1);
        let told: Vec<String> = read.signals.links.keys().map(ToString::to_string).collect();
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("https://s39"), "{told:?}");
    }

    #[test]
    fn of_more_kinds_of_failures_than_there_is_room_for_all_are_counted() {
        let begin = 1_143_849_600_000;
        let (links, kinds) = (5_u64, 120_u64);
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = crate::store::Store::open(directory.path()).expect("a store");
        for number in 0..links * kinds {
            store
                .append_row(&Attempt {
                    at: Timestamp(begin + number as i64 * MINUTE),
                    started: Some(Timestamp(begin + number as i64 * MINUTE)),
                    source_host: Some(format!("https://s{}", number % links).into()),
                    destination_host: Some("https://d".into()),
                    outcome: Some(Outcome::Failure),
                    side: Some(Side::Destination),
                    fingerprint: Some(format!("kind {number}").into()),
                    ..Attempt::default()
                })
                .expect("written");
        }
        store.flush().expect("written");
        drop(store);
        let mut reader = Reader::open(directory.path()).expect("readable");
        let week = Timestamp(begin + 7 * 86_400_000);
        let window = ExplainWindow::new(Timestamp(begin), week, None);
        let view = RecordView::default();
        let read = read_rows(&mut reader, window, &view, &PopulationChoice::Links);
        let signals = read.expect("readable").signals;
        let series = signals.links.values().flat_map(|link| &link.failures);
        let values: usize = series.clone().map(|(_, series)| series.0.len()).sum();
        let of_each = (SERIES_OF_EACH_MAX + 1) * links as usize * window.bins();
        assert!(values <= of_each + FURTHER_VALUES_MAX, "{values}");
        let counted: f64 = series
            .flat_map(|(_, series)| series.0.iter().flatten())
            .sum();
        let known = links * kinds - 1;
        assert!(
            (counted - known as f64).abs() <= 1.0,
            "{counted} of {known}"
        );
    }

    #[test]
    fn of_a_window_its_own_rows_tell_when_it_begins_and_in_which_view() {
        let mut rows = run(|_, _| ());
        let begin = rows[0].at;
        for row in rows.iter_mut().filter(|row| row.line >= 1_000) {
            row.view = View::Site;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = crate::store::Store::open(directory.path()).expect("a store");
        for row in &rows {
            store.append_row(row).expect("written");
        }
        store.flush().expect("written");
        drop(store);
        let mut reader = Reader::open(directory.path()).expect("readable");
        let mut of = |to: Timestamp| {
            let window = TimeWindow { from: begin, to };
            let extent = extent_of(&mut reader, window, None).expect("readable");
            extent.map(|extent| (extent.view.view, extent.window.from, extent.window.to))
        };
        let third = Timestamp(begin.0 + 6_000);
        let after_third = Timestamp(third.0 + 1);
        assert_eq!(of(after_third), Some((View::Vo, begin, after_third)));
        assert_eq!(of(TimeWindow::ALL.to).map(|told| told.0), Some(View::Site));
        assert_eq!(of(Timestamp(begin.0 - 1)), None);
    }

    #[test]
    fn attempts_tell_the_same_through_a_store_as_without_one() {
        let rows = attempts_with_all_columns();
        let window = ExplainWindow::new(Timestamp(0), Timestamp(300_000), None);
        let (view, wanted) = (RecordView::default(), PopulationChoice::Links);
        let mut room = LinkRoom::of(window, &wanted);
        let mut direct = RowSignals::new(window, &view, &mut room);
        rows.iter().for_each(|row| direct.take_attempt(row));
        let direct = direct.finish();
        let (_directory, mut reader) = stored(&rows);
        let read = read_rows(&mut reader, window, &view, &wanted).expect("readable");
        assert_eq!(read.signals.links, direct.links);
        let link = direct.links.values().next().expect("one");
        let phases: Vec<&str> = link.failures.keys().map(|kind| kind.phase.word()).collect();
        assert_eq!(phases, ["preparation", "finalization"]);
    }

    #[test]
    fn of_two_views_of_the_same_transfers_that_is_explained_which_names_their_ends() {
        let mut rows = run(|_, _| ());
        // A storage element that has seen other traffic, too, and knows one end of each copy.
        let seen_by_site = rows.iter().chain(&rows).map(|row| Attempt {
            view: View::Site,
            source_host: None,
            ..row.clone()
        });
        rows.extend(seen_by_site.collect::<Vec<_>>());
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = crate::store::Store::open(directory.path()).expect("a store");
        for row in &rows {
            let row = Observation::from(row.clone());
            store.append(&row).expect("written");
        }
        store.flush().expect("written");
        drop(store);
        let mut reader = Reader::open(directory.path()).expect("readable");
        let extent = extent_of(&mut reader, TimeWindow::ALL, None)
            .expect("readable")
            .expect("rows");
        assert_eq!(extent.view.view, View::Vo);
        let site = extent_of(&mut reader, TimeWindow::ALL, Some(View::Site)).expect("readable");
        assert_eq!(site.expect("rows").view.view, View::Site);
        let window = ExplainWindow::new(extent.window.from, extent.window.to, None);
        let read = read_rows(&mut reader, window, &extent.view, &PopulationChoice::Links)
            .expect("readable");
        let [link] = read.signals.links.values().collect::<Vec<_>>()[..] else {
            panic!("one link");
        };
        let files: f64 = link.finished_files.0.iter().flatten().sum();
        assert!(files > 4_700.0 && files <= 4_800.0, "{files}");
    }
}
