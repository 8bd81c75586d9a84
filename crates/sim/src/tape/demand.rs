//! Who asks for what, and when: drawn from a plan, or read from a log.

use super::plan::{TapePlan, TapePlanError, hours_ns, seconds_ns, wrong};
use penstock_tape::chance::Chance;
use penstock_tape::record::Tape;
use penstock_tape::request::{
    ArchiveRequest, ArchiveWishes, Asker, FamilyName, FileId, LibraryName, ReadPurpose,
    RecallRequest, RequestId, TapeCopy, TapeName, VoName,
};
use std::collections::{BTreeMap, HashSet};

/// The name of a library by its number.
pub(super) fn library_name(number: u32) -> LibraryName {
    LibraryName(match number {
        0 => "library".into(),
        _ => format!("library-{number}").into(),
    })
}

/// The library to which something with this number is dealt.
pub(super) fn dealt(number: u64, libraries: u32) -> u32 {
    u32::try_from(number % u64::from(libraries.max(1))).unwrap_or(0)
}

/// Nobody gives up in a simulation.
const LEASE_NS: i64 = i64::MAX;
/// Tapes are written up to here.
const WRITTEN_PERMILLE: u64 = 950;

/// One moment at which requests come.
#[derive(Debug, Clone)]
pub(super) enum Arrival {
    Recall(Vec<RecallRequest>),
    Archive(Vec<ArchiveRequest>),
}

/// All tapes and all requests, by time.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand {
    pub tapes: BTreeMap<TapeName, Tape>,
    pub arrivals: Vec<(i64, Arrival)>,
    pub requests: u64,
}

/// Recalls as a site has logged them.
#[derive(Debug, Clone, PartialEq)]
pub struct RecallLog {
    lines: Vec<LogLine>,
}

#[derive(Debug, Clone, PartialEq)]
struct LogLine {
    at_ns: i64,
    vo: String,
    kind: String,
    tape: String,
    begin_bytes: u64,
    size_bytes: u64,
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line}: {why}")]
pub struct LogError {
    pub line: usize,
    pub why: String,
}

/// The first line of a log.
const LOG_HEADER: &str = "seconds,vo,kind,tape,begin_bytes,size_bytes";

impl RecallLog {
    /// Reads a log: comma-separated, the first line names the columns.
    pub fn parse(text: &str) -> Result<RecallLog, LogError> {
        let mut lines = text.lines().map(str::trim).enumerate();
        let failed = |line: usize, why: &str| LogError {
            line: line + 1,
            why: why.to_owned(),
        };
        if lines.next().map(|(_, line)| line) != Some(LOG_HEADER) {
            return Err(failed(0, &format!("must be: {LOG_HEADER}")));
        }
        let mut read = Vec::new();
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let columns: Vec<&str> = line.split(',').map(str::trim).collect();
            let [seconds, vo, kind, tape, begin, size] = columns[..] else {
                return Err(failed(number, "must have six columns"));
            };
            let seconds: f64 = seconds.parse().unwrap_or(-1.0);
            let figures = (begin.parse(), size.parse());
            let (Ok(begin_bytes), Ok(size_bytes)) = figures else {
                return Err(failed(
                    number,
                    "begin_bytes and size_bytes must be whole numbers",
                ));
            };
            if !(0.0..=1e9).contains(&seconds) || size_bytes == 0 {
                return Err(failed(
                    number,
                    "seconds must not be negative, nor a file empty",
                ));
            }
            read.push(LogLine {
                at_ns: seconds_ns(seconds),
                vo: vo.to_owned(),
                kind: kind.to_owned(),
                tape: tape.to_owned(),
                begin_bytes,
                size_bytes,
            });
        }
        read.sort_by_key(|line| line.at_ns);
        Ok(RecallLog { lines: read })
    }
}

impl Demand {
    pub(super) fn new(plan: &TapePlan, log: Option<&RecallLog>) -> Result<Demand, TapePlanError> {
        let mut demand = Demand::default();
        match log {
            Some(log) => demand.add_log(plan, log)?,
            None => demand.add_recalls(plan)?,
        }
        demand.add_archives(plan)?;
        let slots = plan.library.slots as usize;
        for number in 0..plan.library.count {
            let name = library_name(number);
            let tapes = demand.tapes.values();
            let tapes = tapes.filter(|tape| tape.library == name).count();
            if tapes <= slots {
                continue;
            }
            let why = format!("{tapes} tapes do not fit into {slots} slots");
            return Err(wrong("library.slots", why));
        }
        demand.arrivals.sort_by_key(|(at_ns, _)| *at_ns);
        Ok(demand)
    }

    fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId(self.requests - 1)
    }

    fn add_log(&mut self, plan: &TapePlan, log: &RecallLog) -> Result<(), TapePlanError> {
        let kinds = plan.kinds()?;
        let mut files = BTreeMap::new();
        for line in &log.lines {
            let kind = kinds.get(&line.kind);
            let kind = kind.ok_or_else(|| wrong("log", format!("no kind '{}'", line.kind)))?;
            let capacity = kind.model.capacity_bytes;
            let tape = TapeName(line.tape.as_str().into());
            if line.begin_bytes.saturating_add(line.size_bytes) > capacity {
                let why = format!("a file of {} lies beyond {capacity} bytes", line.tape);
                return Err(wrong("log", why));
            }
            let library = dealt(self.tapes.len() as u64, plan.library.count);
            let facts = written_tape(&line.kind, capacity, capacity, library);
            self.tapes.entry(tape.clone()).or_insert(facts);
            let next = FileId(files.len() as u64);
            // Members of an aggregate may begin at one place.
            let place = (tape.clone(), line.begin_bytes, line.size_bytes);
            let file = *files.entry(place).or_insert(next);
            let request = RecallRequest {
                request: self.next_request(),
                file,
                size_bytes: line.size_bytes,
                copies: vec![TapeCopy::alone(tape, line.begin_bytes)],
                asker: asker(&line.vo, 3, None),
                activity: None,
                challenge: None,
                purpose: ReadPurpose::Users,
            };
            match self.arrivals.last_mut() {
                Some((at_ns, Arrival::Recall(bulk))) if *at_ns == line.at_ns => bulk.push(request),
                _ => self
                    .arrivals
                    .push((line.at_ns, Arrival::Recall(vec![request]))),
            }
        }
        Ok(())
    }

    fn add_recalls(&mut self, plan: &TapePlan) -> Result<(), TapePlanError> {
        let kinds = plan.kinds()?;
        for (number, load) in plan.recalls.iter().enumerate() {
            let mut chance = Chance::of_part(plan.seed, number as u64 + 1);
            let capacity = kinds[&load.kind].model.capacity_bytes;
            let written = capacity / 1_000 * WRITTEN_PERMILLE;
            let places = written / load.file_bytes;
            if places == 0 || load.tapes == 0 || load.run_files == 0 {
                return Err(wrong(
                    "recalls",
                    "needs tapes, runs, and files that fit on a tape",
                ));
            }
            let name = |tape: u64| TapeName(format!("{}-{number}-{tape:04}", load.vo).into());
            // Another copy lies at the same place of a tape in the next library.
            let copy_name = |tape: u64, copy: u32| match copy {
                0 => name(tape),
                _ => TapeName(format!("{}-copy-{copy}", name(tape).0).into()),
            };
            for tape in 0..u64::from(load.tapes) {
                for copy in 0..load.copies {
                    let library = dealt(tape + u64::from(copy), plan.library.count);
                    let facts = written_tape(&load.kind, capacity, written, library);
                    self.tapes.insert(copy_name(tape, copy), facts);
                }
            }
            let spread = load
                .tapes_per_bulk
                .unwrap_or(load.tapes)
                .clamp(1, load.tapes);
            let all = u64::from(load.tapes).saturating_mul(places);
            if load.distinct && load.files > all {
                let why = format!("{} files do not fit on {} tapes", load.files, load.tapes);
                return Err(wrong("recalls", why));
            }
            let mut taken = HashSet::new();
            for bulk in 0..load.bulks {
                let at_ns = moment(load.begin_hours, load.end_hours, (bulk, load.bulks));
                let count = load.files * (bulk + 1) / load.bulks - load.files * bulk / load.bulks;
                let deadline = load.deadline_hours.map(|hours| at_ns + hours_ns(hours));
                let first = chance.below(u64::from(load.tapes));
                let mut requests = Vec::new();
                while (requests.len() as u64) < count {
                    let tape = (first + chance.below(u64::from(spread))) % u64::from(load.tapes);
                    let begin = chance.below(places);
                    let left = count - requests.len() as u64;
                    for place in begin..places.min(begin + load.run_files.min(left)) {
                        let (mut tape, mut place) = (tape, place);
                        // The next one that nobody has asked for; there is one.
                        while load.distinct && !taken.insert((tape, place)) {
                            place = (place + 1) % places;
                            tape = (tape + u64::from(place == 0)) % u64::from(load.tapes);
                        }
                        let file = ((number as u64) << 56) | (tape << 36) | place;
                        requests.push(RecallRequest {
                            request: self.next_request(),
                            file: FileId(file),
                            size_bytes: load.file_bytes,
                            copies: (0..load.copies)
                                .map(|copy| {
                                    let begin = place * load.file_bytes;
                                    TapeCopy::alone(copy_name(tape, copy), begin)
                                })
                                .collect(),
                            asker: asker(&load.vo, load.priority, deadline),
                            activity: None,
                            challenge: None,
                            purpose: ReadPurpose::Users,
                        });
                    }
                }
                self.arrivals.push((at_ns, Arrival::Recall(requests)));
            }
        }
        Ok(())
    }

    fn add_archives(&mut self, plan: &TapePlan) -> Result<(), TapePlanError> {
        let kinds = plan.kinds()?;
        for (number, load) in plan.archives.iter().enumerate() {
            let capacity = kinds[&load.kind].model.capacity_bytes;
            if load.file_bytes > capacity {
                return Err(wrong("archives", "a file does not fit on a tape"));
            }
            // As many tapes as the files need, and one for each drive that may write at the same time.
            let bytes = load.files.saturating_mul(load.file_bytes);
            let tapes = bytes.saturating_mul(u64::from(load.copies)) / capacity * 11 / 10;
            for tape in 0..tapes + 8 * u64::from(plan.library.count) {
                let name = TapeName(format!("{}-new-{number}-{tape:04}", load.family).into());
                let library = dealt(tape, plan.library.count);
                let mut facts = written_tape(&load.kind, capacity, 0, library);
                facts.family = Some(FamilyName(load.family.as_str().into()));
                self.tapes.insert(name, facts);
            }
            for bulk in 0..load.bulks {
                let at_ns = moment(load.begin_hours, load.end_hours, (bulk, load.bulks));
                let (first, end) = (
                    load.files * bulk / load.bulks,
                    load.files * (bulk + 1) / load.bulks,
                );
                let requests = (first..end).map(|file| ArchiveRequest {
                    request: self.next_request(),
                    file: FileId(((number as u64) << 56) | file),
                    size_bytes: load.file_bytes,
                    family: FamilyName(load.family.as_str().into()),
                    asker: asker(&load.vo, 3, None),
                    wishes: ArchiveWishes {
                        copies: load.copies,
                        is_packed: load.pack,
                        ..ArchiveWishes::default()
                    },
                });
                let requests = requests.collect();
                self.arrivals.push((at_ns, Arrival::Archive(requests)));
            }
        }
        Ok(())
    }
}

fn asker(vo: &str, priority: u8, deadline_ns: Option<i64>) -> Asker {
    Asker {
        vo: VoName(vo.into()),
        priority,
        deadline_ns,
        lease_ns: LEASE_NS,
    }
}

fn written_tape(kind: &str, capacity_bytes: u64, written_bytes: u64, library: u32) -> Tape {
    Tape {
        written_bytes,
        ..Tape::new(library_name(library), kind.to_owned(), capacity_bytes)
    }
}

fn moment(begin_hours: f64, end_hours: f64, (bulk, bulks): (u64, u64)) -> i64 {
    let part = bulk as f64 / bulks as f64;
    hours_ns(begin_hours + (end_hours - begin_hours) * part)
}
