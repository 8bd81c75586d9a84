//! How soon a drop is explained: a service whose journal holds a day of 300 busy links is asked why rates fell.

use crate::cell::Scale;
use crate::error::BenchError;
use crate::recorded_commands::{CommandRun, RecordCommands};
use crate::report::{Table, figures};
use crate::servers::penstock::{LINK_SLOTS, Limits, OwnService};
use crate::service::api_of;
use penstock_clock::wall_clock;
use penstock_model::minute::{
    FailedStep, MINUTE_MS, MINUTE_VERSION, MinuteFailure, MinuteKey, MinuteRow, MinuteSamples,
    MinuteSums,
};
use penstock_model::{
    Activity, CopySums, Errno, LinkId, Phase, Side, SocketFigures, StorageId, Timestamp, VoName,
};
use rusqlite::{Connection, params};
use serde_json::Value;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Links from each of so many sources to each of so many destinations.
const SOURCES: u64 = 20;
const DESTINATIONS: u64 = 15;
const VOS: [&str; 2] = ["atlas", "cms"];
const ACTIVITIES: u64 = 6;
/// Minutes before now that are written.
const MINUTES: i64 = 24 * 60;
const RUNS: usize = 5;
/// How long a service may take to open its journal.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Of a link that works as usual: bytes a minute, transfers at once, and files a minute.
const USUAL_BYTES: u64 = 6_000_000_000;
const USUAL_SLOTS: u64 = 10;
const USUAL_FILES: u64 = 30;

pub const EXPLANATIONS: Table = Table {
    title: "Why rates fell, of 300 links over a day",
    note: "A service with a journal of 300 links that were busy all day, each with two VOs, with sockets and stages of its \
           files and with noise; on a third of them fewer transfers were allowed for an hour, on another third most attempts \
           failed at the destination for 45 minutes. Each answer is that of a command, its start and TLS included, as median \
           (lowest to highest) of five; that these causes and no others are named, on these links, is checked.",
    columns: &[
        "command",
        "drops",
        "s",
        "CPU s of the command",
        "memory of the command, MB",
        "promised",
    ],
};

pub fn limits() -> Limits {
    Limits::of_each(LINK_SLOTS)
}

/// Waits until the service has made its journal: it listens a moment before.
pub async fn await_journal(own: &OwnService) -> Result<(), BenchError> {
    let begun = Instant::now();
    while let Err(why) = api_of(&own.service).overview().await {
        if begun.elapsed() > OPEN_TIMEOUT {
            return Err(why.into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// The rows.
pub fn run(
    own: &OwnService,
    binary: &Path,
    work: &Path,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let links = match scale {
        Scale::Full { .. } => SOURCES * DESTINATIONS,
        Scale::Quick => 6,
    };
    let written = write_day(&own.journal(), links);
    written.map_err(|why| BenchError::failed(format!("the day cannot be written: {why}")))?;
    let commands = RecordCommands { binary, work };
    let directory = own.directory().to_string_lossy().into_owned();
    let whole = ["explain", "--dir", &directory, "--since", "24h"];
    let first = commands.run(&whole)?;
    let drop = check(&first.told, links)?;
    let offline = [&whole[..], &["--offline"]].concat();
    let one = ["explain", "drop", &drop, "--dir", &directory];
    let one_offline = [&one[..], &["--offline"]].concat();
    let asked: [(&str, &[&str]); 4] = [
        (
            "`penstock explain --since 24h`, asked of the service",
            &whole,
        ),
        ("the same with `--offline`, from its journal", &offline),
        ("`penstock explain drop ID`, asked of the service", &one),
        ("the same with `--offline`", &one_offline),
    ];
    let mut rows = Vec::new();
    for (what, words) in asked {
        let runs: Vec<CommandRun> = (0..RUNS)
            .map(|_| commands.run(words))
            .collect::<Result<_, _>>()?;
        let drops = match runs[0].told["drops"].as_array() {
            Some(drops) => drops.len(),
            None if runs[0].told["id"] == *drop => 1,
            None => return Err(BenchError::failed(format!("{what} tells no drop"))),
        };
        let mut seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
        seconds.sort_by(f64::total_cmp);
        let memory = runs.iter().map(|run| run.memory_bytes).max().unwrap_or(0);
        let cpu = runs.iter().map(|run| run.cpu_seconds);
        rows.push(vec![
            what.to_owned(),
            drops.to_string(),
            format!(
                "**{:.2}** ({:.2} to {:.2})",
                seconds[RUNS / 2],
                seconds[0],
                seconds[RUNS - 1]
            ),
            format!("{:.2}", cpu.fold(f64::INFINITY, f64::min)),
            figures(memory as f64 / 1e6),
            "2 s at most".to_owned(),
        ]);
    }
    Ok(rows)
}

/// What happens on a link, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fault {
    FewerSlots(Range<i64>),
    FailingDestination(Range<i64>),
    Nothing,
}

fn fault_of(link: u64) -> Fault {
    // Not all at once, so that no link falls because of another.
    let begin = 300 + 2 * link as i64;
    match link % 3 {
        0 => Fault::FewerSlots(begin..begin + 60),
        1 => Fault::FailingDestination(begin..begin + 45),
        _ => Fault::Nothing,
    }
}

fn link_id(link: u64) -> LinkId {
    LinkId {
        source: StorageId::new(format!(
            "https://se{:02}.source.example.org",
            link % SOURCES
        )),
        destination: StorageId::new(format!(
            "https://se{:02}.destination.example.org",
            link / SOURCES
        )),
    }
}

/// Each drop has its cause, and each fault its drop. Gives the id of one.
fn check(told: &Value, links: u64) -> Result<String, BenchError> {
    let drops = told["drops"].as_array().cloned().unwrap_or_default();
    for link in 0..links {
        let id = link_id(link);
        let (source, destination) = (id.source.as_str(), id.destination.as_str());
        let of_link = drops.iter().filter(|drop| {
            let link = &drop["population"]["link"];
            link["source"] == source && link["destination"] == destination
        });
        let causes: Vec<&str> = of_link
            .map(|drop| drop["causes"][0]["code"].as_str().unwrap_or_default())
            .collect();
        let expected: &[&str] = match fault_of(link) {
            Fault::FewerSlots(_) => &["SLOTS"],
            Fault::FailingDestination(_) => &["DSTERR"],
            Fault::Nothing => &[],
        };
        if causes != expected {
            return Err(BenchError::failed(format!(
                "of {source} to {destination} the drops {causes:?} are told, and {expected:?} happened"
            )));
        }
    }
    let id = drops.first().and_then(|drop| drop["id"].as_str());
    id.map(str::to_owned)
        .ok_or_else(|| BenchError::failed("no drop is told"))
}

fn write_day(journal: &Path, links: u64) -> rusqlite::Result<()> {
    let mut connection = Connection::open(journal)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    let end = wall_clock().0.div_euclid(MINUTE_MS) * MINUTE_MS;
    let change = connection.transaction()?;
    for number in 0..MINUTES {
        let from = Timestamp(end - (MINUTES - number) * MINUTE_MS);
        let minute = minute(number, from, links);
        let sql =
            "INSERT INTO minute_sample (at_ms, until_ms, version, packed) VALUES (?1, ?2, ?3, ?4)";
        let mut insert = change.prepare_cached(sql)?;
        let packed = minute.packed();
        insert.execute(params![minute.from.0, minute.to.0, MINUTE_VERSION, packed])?;
    }
    change.commit()
}

fn minute(number: i64, from: Timestamp, links: u64) -> MinuteSamples {
    let mut rows = Vec::new();
    for link in 0..links {
        rows.extend(rows_of(number, link));
    }
    for (vo, activity) in VOS
        .iter()
        .flat_map(|vo| (0..ACTIVITIES).map(move |n| (vo, n)))
    {
        rows.push(MinuteRow {
            key: MinuteKey::Activity(
                VoName::new(*vo),
                Activity::new(format!("activity {activity}")),
            ),
            sums: usual_sums(links * USUAL_BYTES / 12, 1),
            failures: Vec::new(),
        });
    }
    rows.push(MinuteRow {
        key: MinuteKey::Service,
        sums: usual_sums(0, links),
        failures: Vec::new(),
    });
    MinuteSamples {
        from,
        to: Timestamp(from.0 + MINUTE_MS),
        rows,
    }
}

/// Of a link and of each VO on it.
fn rows_of(number: i64, link: u64) -> Vec<MinuteRow> {
    // A tenth up or down, as if it were drawn.
    let chance = (number as u64 * 7_919 + link * 104_729).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    let bytes = USUAL_BYTES * (900 + chance % 200) / 1000;
    let (sums, failures) = match fault_of(link) {
        Fault::FewerSlots(when) if when.contains(&number) => {
            let mut sums = usual_sums(bytes * 3 / 10, 1);
            sums.active = 3 * 60;
            sums.limit = 3 * 60;
            (sums.active_max, sums.limit_max) = (3, 3);
            (sums, Vec::new())
        }
        Fault::FailingDestination(when) if when.contains(&number) => {
            let mut sums = usual_sums(bytes * 3 / 10, 1);
            sums.failed = 7 * USUAL_FILES / 10;
            sums.failed_bytes = bytes * 6 / 10;
            let failure = MinuteFailure {
                step: FailedStep::Attempt,
                side: Side::Destination,
                phase: Phase::Transfer,
                errno: Errno(5),
                fingerprint: "DESTINATION [5] HTTP 500 : input/output error".to_owned(),
                count: sums.failed,
            };
            (sums, vec![failure])
        }
        _ => (usual_sums(bytes, 1), Vec::new()),
    };
    let of_vo = |vo: &str| {
        let mut half = MinuteSums {
            moved_bytes: sums.moved_bytes / 2,
            ..sums.clone()
        };
        half.copies = CopySums {
            files: sums.copies.files / 2,
            bytes: sums.copies.bytes / 2,
            ..CopySums::default()
        };
        MinuteRow {
            key: MinuteKey::VoOnLink(link_id(link), VoName::new(vo)),
            sums: half,
            failures: Vec::new(),
        }
    };
    let vos: Vec<MinuteRow> = VOS.into_iter().map(of_vo).collect();
    let whole = MinuteRow {
        key: MinuteKey::Link(link_id(link)),
        sums,
        failures,
    };
    std::iter::once(whole).chain(vos).collect()
}

/// A minute of so many links in which all is as usual but for the bytes.
fn usual_sums(bytes: u64, links: u64) -> MinuteSums {
    let files = USUAL_FILES * bytes / USUAL_BYTES;
    MinuteSums {
        samples: 60,
        moved_bytes: bytes,
        submitted: USUAL_FILES,
        started: USUAL_FILES,
        active: links * USUAL_SLOTS * 60,
        active_max: links * USUAL_SLOTS,
        limit: links * USUAL_SLOTS * 60,
        limit_max: links * USUAL_SLOTS,
        queued: links * 6_000,
        queued_max: links * 120,
        copies: CopySums {
            files,
            sized: files,
            bytes: files * USUAL_BYTES / USUAL_FILES,
            overhead_us: files * 300_000,
            overheads: files,
            stages_us: [
                files * 2_000_000,
                files * 15_000_000,
                files * 1_000_000,
                files * 500_000,
                files * 100_000,
            ],
            staged: files,
            sockets: files,
            socket: SocketFigures {
                sent_segments: files * 140_000,
                retransmitted_segments: files * 14,
                busy_us: files * 18_000_000,
                rtt_us: files * 21_000,
                rtt_min_us: files * 20_000,
                ..SocketFigures::default()
            },
            ..CopySums::default()
        },
        ..MinuteSums::default()
    }
}
