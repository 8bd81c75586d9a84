//! Small ledgers with something to tell, for the other tests.

use penstock_model::{
    Attempt, Bytes, Concern, CopyMode, Errno, Failure, JobId, LedgerEntry, LinkId, LinkSample,
    MoverReport, Phase, PoolName, Retry, Side, Slots, StageClocks, StorageId, TcpSummary,
    Timestamp, TransferEvent, TransferId,
};

/// 2006-04-01T12:00:00Z.
pub const START: i64 = 1_143_892_800_000;

/// A ledger under construction.
#[derive(Default)]
pub struct Story {
    pub entries: Vec<LedgerEntry>,
    pub samples: Vec<LinkSample>,
}

impl Story {
    /// Appends what happened to `transfer` at `ms` after [`START`].
    pub fn tell(&mut self, ms: i64, transfer: u64, event: TransferEvent) {
        let sequence = self.entries.len() as u64 + 1;
        self.entries.push(LedgerEntry {
            sequence,
            at: Timestamp(START + ms),
            monotonic_us: sequence,
            job: JobId(uuid::Uuid::nil()),
            transfer: TransferId(transfer),
            event,
        });
    }

    /// Appends a sample of one second.
    pub fn sample(
        &mut self,
        ms: i64,
        link: LinkId,
        moved: u64,
        (active, limit, queued): (u32, u32, u64),
    ) {
        self.samples.push(LinkSample {
            at: Timestamp(START + ms),
            link,
            moved: Bytes(moved),
            active: Slots(active),
            limit: Slots(limit),
            queued,
        });
    }
}

pub fn link(source: &str, destination: &str) -> LinkId {
    LinkId {
        source: StorageId::new(format!("https://{source}")),
        destination: StorageId::new(format!("https://{destination}")),
    }
}

pub fn started(attempt: u32) -> TransferEvent {
    TransferEvent::Started {
        attempt: Attempt(attempt),
        node: None,
    }
}

pub fn prepared(attempt: u32) -> TransferEvent {
    TransferEvent::Prepared {
        attempt: Attempt(attempt),
        size: None,
        checksum: None,
        replaces: false,
    }
}

pub fn landed(attempt: u32, size: u64, report: MoverReport) -> TransferEvent {
    TransferEvent::Landed {
        attempt: Attempt(attempt),
        size: Bytes(size),
        mode: Some(CopyMode::Push),
        report: Box::new(report),
        archives: false,
    }
}

pub fn failed(attempt: u32, detail: &str, retry_at: Option<i64>) -> TransferEvent {
    let failure = Failure {
        side: Side::Destination,
        retry: Retry::Later,
        concern: Concern::StorageElement,
        phase: Phase::Transfer,
        errno: Errno::ENOSPC,
        detail: detail.to_owned(),
        found: None,
        busy: None,
        code: None,
    };
    TransferEvent::AttemptFailed {
        attempt: Attempt(attempt),
        failure,
        retry_at: retry_at.map(|ms| Timestamp(START + ms)),
        cleaned: true,
        excused: false,
        stages: false,
        moved: None,
    }
}

/// The same of an attempt that had moved so many bytes when its destination's disk failed.
pub fn failed_on_disk(attempt: u32, moved: u64) -> TransferEvent {
    let mut event = failed(attempt, "the disk failed", None);
    if let TransferEvent::AttemptFailed {
        failure,
        moved: lost,
        ..
    } = &mut event
    {
        failure.errno = Errno::EIO;
        *lost = Some(Bytes(moved));
    }
    event
}

/// Fifty files of 1 GB, as Glasgow sent them to Edinburgh.
pub fn fifty_files() -> Story {
    let mut story = Story::default();
    (1..=50).for_each(|file| story.tell(0, file, TransferEvent::Submitted));
    // Ten at a time: each starts when the one ten before it has ended; the last one ends after 1253.388 s.
    let ended = |file: i64| {
        if file < 1 {
            1000
        } else {
            1000 + (file + 9) / 10 * 250_000 + file % 10 * 300
        }
    };
    let mut events: Vec<(i64, u64, TransferEvent)> = Vec::new();
    for file in 1..=50i64 {
        let end = if file == 50 {
            1000 + 1_253_388
        } else {
            ended(file)
        };
        let report = MoverReport {
            moved: Bytes(1_000_000_000),
            pool: Some(PoolName::new(if file % 3 == 0 { "pool2" } else { "pool1" })),
            stages: StageClocks {
                wait_us: 1_200_000,
                network_us: 150_000_000,
                write_us: 90_000_000,
                checksum_us: 2_500_000,
                commit_us: 400_000,
                ..StageClocks::default()
            },
            tcp: Some(TcpSummary {
                rtt_us: 9_000 + file as u32 * 10,
                min_rtt_us: 8_700,
                sent_segments: 600_000,
                retransmitted_segments: 12,
                busy_us: 150_000_000,
                receiver_limited_us: 30_000_000,
                send_buffer_limited_us: 1_500_000,
                ..TcpSummary::default()
            }),
            ..MoverReport::default()
        };
        events.push((ended(file - 10), file as u64, started(1)));
        events.push((end, file as u64, landed(1, 1_000_000_000, report)));
    }
    events.sort_by_key(|(ms, file, _)| (*ms, *file));
    events
        .into_iter()
        .for_each(|(ms, file, event)| story.tell(ms, file, event));
    for second in 1..=1253i64 {
        // A dip in the middle, as the database dump makes one every night.
        let moved = if (600..700).contains(&second) {
            15_000_000
        } else {
            42_000_000
        };
        let queued = 40 - (second / 250 * 10).min(40) as u64;
        story.sample(
            1000 + second * 1000,
            link("gla.example", "ed.example"),
            moved,
            (10, 10, queued),
        );
    }
    story
}

/// Fifty-five files on two links; a full disk hits eleven of them, one is given up, one is canceled, one runs
/// on.
pub fn a_full_disk() -> Story {
    let mut story = Story::default();
    let mut time = 0;
    for file in 1..=55u64 {
        story.tell(time, file, TransferEvent::Submitted);
        time += 1000;
        match file {
            10 => story.tell(
                time,
                file,
                TransferEvent::Canceled {
                    reason: "enough".into(),
                },
            ),
            20 => story.tell(time, file, started(1)),
            _ => {
                story.tell(time, file, started(1));
                time += 2000;
                let detail = format!(
                    "'/data/run7/f{file}.root': no space left on device, {file} bytes free"
                );
                if file % 5 == 0 {
                    let retry = (file != 55).then_some(time + 500);
                    story.tell(time, file, failed(1, &detail, retry));
                    time += 500;
                    if file == 55 {
                        continue;
                    }
                    story.tell(time, file, started(2));
                    time += 2000;
                }
                let attempt = if file % 5 == 0 { 2 } else { 1 };
                let report = MoverReport {
                    moved: Bytes(file * 1_000_000),
                    pool: (file % 2 == 0).then(|| PoolName::new("tape-buffer")),
                    ..MoverReport::default()
                };
                story.tell(time, file, landed(attempt, file * 1_000_000, report));
            }
        }
    }
    for second in 1..=40i64 {
        if second % 7 != 0 {
            story.sample(
                1000 + second * 1000,
                link("cern.example", "in2p3.example"),
                9_000_000,
                (3, 30, 12),
            );
        }
    }
    story
}

/// The link of each transfer of [`a_full_disk`].
pub fn link_of(transfer: TransferId) -> Option<LinkId> {
    match transfer.0 {
        50.. => None,
        n if n % 3 == 0 => Some(link("ral.example", "in2p3.example")),
        _ => Some(link("cern.example", "in2p3.example")),
    }
}
