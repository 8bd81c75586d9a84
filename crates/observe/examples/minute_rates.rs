//! Measures minutes: `cargo run --release -p penstock-observe --example minute_rates -- DIR`.
//!
//! What it costs to count them with 1,000 transfers in flight on 300 links, and how long a day of these links takes to be
//! read from a journal and explained.

use penstock_decide::explain::PopulationChoice;
use penstock_decide::minute_meter::{MinuteMeter, Standing, Standings, TransferGroup};
use penstock_journal::{Journal, JournalReader};
use penstock_model::{
    Activity, Attempt, Bytes, CopyMode, LinkId, LinkSample, MinuteSamples, MoverReport, Record,
    Slots, StorageId, TcpSummary, Timestamp, TransferEvent, TransferId, VoName,
};
use penstock_observe::explanations::reading::{ExplainWindow, read_record};
use penstock_persistence::journal::{SqliteJournal, SqliteReader};
use penstock_persistence::sealing::SealingKeys;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LINKS: usize = 300;
const IN_FLIGHT: usize = 1000;
/// Files that begin and land each second.
const FILES_PER_SECOND: usize = 100;
const DAY_SECONDS: i64 = 86_400;
const BEGIN_MS: i64 = 1_795_219_200_000;
const SECONDS_COUNTED: i64 = 1800;

fn group(number: usize) -> TransferGroup {
    TransferGroup {
        link: LinkId {
            source: StorageId::new(format!("https://se{}.example.org", number % 20)),
            destination: StorageId::new(format!("https://se{}.example.org", 20 + number / 20)),
        },
        vo: VoName::new(["atlas", "cms", "lhcb", "alice"][number % 4]),
        activity: Activity::new("T0 Export"),
    }
}

/// One second of all links.
fn take_second(meter: &mut MinuteMeter, groups: &[TransferGroup], second: i64) {
    let at = |ms: i64| Timestamp(BEGIN_MS + second * 1000 + ms);
    let report = MoverReport {
        tcp: Some(TcpSummary {
            sent_segments: 70_000,
            busy_us: 300_000,
            rtt_us: 20_000,
            min_rtt_us: 18_000,
            ..TcpSummary::default()
        }),
        ..MoverReport::default()
    };
    for number in 0..FILES_PER_SECOND {
        let transfer = TransferId(second as u64 * FILES_PER_SECOND as u64 + number as u64);
        let group = &groups[(second as usize * FILES_PER_SECOND + number) % LINKS];
        let attempt = Attempt(1);
        let started = TransferEvent::Started {
            attempt,
            node: None,
        };
        let prepared = TransferEvent::Prepared {
            attempt,
            size: None,
            checksum: None,
            replaces: false,
        };
        let landed = TransferEvent::Landed {
            attempt,
            size: Bytes(1_000_000_000),
            mode: Some(CopyMode::Pull),
            report: Box::new(report.clone()),
            archives: false,
        };
        meter.take_submission(at(0), group);
        for (ms, event) in [(100, &started), (200, &prepared), (900, &landed)] {
            meter.take_event(at(ms), transfer, group, event);
        }
    }
    let mut standings = Standings::default();
    for number in 0..IN_FLIGHT {
        let group = &groups[number % LINKS];
        meter.take_moved(at(999), group, 100_000_000);
        let standing = Standing {
            active: 1,
            queued: 0,
        };
        standings.add(group, standing);
    }
    let samples: Vec<LinkSample> = groups
        .iter()
        .map(|group| LinkSample {
            at: at(1000),
            link: group.link.clone(),
            moved: Bytes(333_000_000),
            active: Slots(3),
            limit: Slots(8),
            queued: 40,
        })
        .collect();
    meter.take_second(at(1000), &samples, &standings);
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("DIR is missing")?;
    let path = Path::new(&directory).join("minutes.sqlite");
    let groups: Vec<TransferGroup> = (0..LINKS).map(group).collect();
    let mut meter = MinuteMeter::new(Timestamp(BEGIN_MS));
    let begun = Instant::now();
    (0..SECONDS_COUNTED).for_each(|second| take_second(&mut meter, &groups, second));
    let counting = begun.elapsed();
    let minutes = meter.take_over();
    let last = minutes.last().ok_or("no minute is over")?;
    let (rows, bytes) = (last.rows.len(), last.packed().len());
    println!("| what | figure |\n|---|---|");
    let share = counting.as_secs_f64() / SECONDS_COUNTED as f64;
    println!(
        "| counting, {IN_FLIGHT} in flight on {LINKS} links, {FILES_PER_SECOND} files/s | {:.2} % of a processor |",
        share * 100.0
    );
    println!("| a minute of {rows} keys | {bytes} bytes |");

    let mut journal = SqliteJournal::open(&path, SealingKeys::of_this_process()?)?;
    let mut writing = Duration::ZERO;
    for number in 0..DAY_SECONDS / 60 {
        let from = BEGIN_MS + number * 60_000;
        let minute = MinuteSamples {
            from: Timestamp(from),
            to: Timestamp(from + 60_000),
            rows: last.rows.clone(),
        };
        let begun = Instant::now();
        journal.append(&[Record::MinuteSampled(Box::new(minute))])?;
        writing += begun.elapsed();
    }
    let each = writing / (DAY_SECONDS as u32 / 60);
    println!("| writing a minute, durable | {each:.2?} |");
    let reader: Arc<dyn JournalReader> = Arc::new(SqliteReader::open(&path, 1)?);
    let end = Timestamp(BEGIN_MS + DAY_SECONDS * 1000);
    let window = ExplainWindow::new(Timestamp(BEGIN_MS), end, None);
    let begun = Instant::now();
    let read = read_record(&reader, window, &PopulationChoice::Links)?;
    let reading = begun.elapsed();
    let changes = read.changes().len();
    println!(
        "| a day of {} links, read | {reading:.2?} |\n| the same explained, {changes} changes | {:.2?} |",
        read.signals.links.len(),
        begun.elapsed()
    );
    Ok(())
}
