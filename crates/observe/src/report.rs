//! The bandwidth report: what a set of transfers achieved, how well, and where the time went.
//!
//! A pure derivation from [`TransferFacts`] and [`LinkSample`]s. Each rate carries its population, window and
//! unit; errors and incidents are both told, because one full disk can write an error per file. Text is in
//! [`mod@text`].

mod drops;
mod quality;
mod sampled;
pub mod text;

pub use drops::{DropCause, Factors, FallenFactor, RateDrop};
pub use quality::{FAILURE_KINDS_MAX, FailureSummary, OTHER_FAILURES, Quality};

use crate::facts::{TransferEnding, TransferFacts};
use crate::rate::{ByteCount, MeasuredRate, Window, WindowRule};
use penstock_model::observation::View;
use penstock_model::{
    Bytes, CopyMode, LinkId, LinkSample, MoverReport, PoolName, StageClocks, Timestamp,
};
use sampled::SampleSums;
use serde::Serialize;
use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

/// The stage that only the sender's mover measures; receivers leave it at 0.
const UNSEEN_BY_RECEIVERS: &str = "source read";

/// What a report is made from.
#[derive(Debug, Clone)]
pub struct ReportInput<'a> {
    /// Whose transfers these are, in words: `job 0192…`, `all transfers of the last 300 s`.
    pub population: String,
    pub transfers: Vec<&'a TransferFacts>,
    /// The window. `None`: from the first start to the last end.
    pub window: Option<(Timestamp, Timestamp)>,
}

/// What a set of transfers achieved. Serialises as the `--json` form.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BandwidthReport {
    /// Whose transfers, in words.
    pub population: String,
    /// Whose books.
    pub view: View,
    /// Over which time.
    pub window: Window,
    /// Its length.
    pub seconds: f64,
    /// How the transfers stand.
    pub transfers: Counts,
    /// Sizes of the files that arrived in the window.
    pub bytes: Bytes,
    /// `bytes` over the window; `None` when no time passed.
    pub bandwidth: Option<MeasuredRate>,
    /// How long files waited and ran.
    pub pace: Pace,
    /// Errors and incidents.
    pub quality: Quality,
    /// Per link, the largest share first. Their bytes add up to `bytes`.
    pub links: Vec<LinkShare>,
    /// Per pool, the largest share first. Their bytes add up to `bytes`.
    pub pools: Vec<PoolShare>,
    /// Where the time of the movers went, in the order in which bytes meet the stages. Empty when none
    /// reported.
    pub stages: Vec<StageShare>,
    /// Rate over time; `None` without samples.
    pub rate_over_time: Option<RateOverTime>,
    /// Stretches in which the rate was well below the usual one, with what they were made of.
    pub drops: Vec<RateDrop>,
    /// What the kernels said of the data sockets; `None` when no mover told.
    pub tcp: Option<TcpFacts>,
}

/// How many transfers stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    pub total: u64,
    /// Arrived (inside the window, when one was asked for).
    pub finished: u64,
    /// Given up.
    pub failed: u64,
    /// Stopped by somebody.
    pub canceled: u64,
    /// Not ended.
    pub open: u64,
}

/// How long files waited and ran.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Pace {
    /// Mean seconds from acceptance to the first start; `None` when no transfer told both.
    pub queue_seconds_mean: Option<f64>,
    /// The longest of them.
    pub queue_seconds_max: Option<f64>,
    /// Mean seconds of an attempt that has ended.
    pub attempt_seconds_mean: Option<f64>,
    /// The longest of them.
    pub attempt_seconds_max: Option<f64>,
    /// Attempts that ran at once, on average over the window.
    pub concurrent_mean: Option<f64>,
}

/// What one link carried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LinkShare {
    /// Which link; `None` for transfers whose request is no longer in the record.
    pub link: Option<LinkId>,
    /// Files that arrived.
    pub finished: u64,
    /// Their sizes.
    pub bytes: Bytes,
    /// In percent of all bytes; `None` when there were none.
    pub share_percent: Option<f64>,
    /// `bytes` over the report's window.
    pub rate: Option<MeasuredRate>,
    /// How full the link was; `None` without samples.
    pub feeding: Option<LinkFill>,
}

/// How full a link was while it had work, over the samples of the window. Counts every transfer on the link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LinkFill {
    /// Mean of the transfers that ran.
    pub active_mean: f64,
    pub limit_mean: f64,
    /// Percent of the samples with a free slot while files waited: the link was not fed.
    pub unfed_percent: f64,
}

/// What one pool took or gave.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolShare {
    /// Which pool; `None` when the storage element did not tell.
    pub pool: Option<PoolName>,
    /// Files that arrived.
    pub finished: u64,
    /// Their sizes.
    pub bytes: Bytes,
    /// In percent of all bytes; `None` when there were none.
    pub share_percent: Option<f64>,
}

/// Time spent in one stage, over all movers that reported.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StageShare {
    /// Its name.
    pub stage: &'static str,
    /// Seconds, summed over the movers. `None`: these movers cannot see this stage (a receiver does not know
    /// how long the sender reads).
    pub seconds: Option<f64>,
    /// In percent of all stages together.
    pub percent: Option<f64>,
}

/// Mean rates of equal bins, from samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateOverTime {
    /// Always [`UNIT`](crate::rate::UNIT).
    pub unit: &'static str,
    /// Whose bytes: every transfer on the links of the population, not only the transfers of the report.
    pub population: String,
    /// Which bytes.
    pub counted: ByteCount,
    /// Where the first bin begins.
    pub from: Timestamp,
    /// Length of each bin.
    pub bin_seconds: u64,
    /// Mean rate per bin; `None` where no sample exists.
    pub megabits_per_second: Vec<Option<f64>>,
}

/// What the kernels said of the data sockets (`TCP_INFO`), over all movers that told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TcpFacts {
    /// Movers that told.
    pub sockets: u64,
    /// Data segments sent.
    pub sent_segments: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// In percent of those sent; `None` when the movers received and sent no data.
    pub retransmitted_percent: Option<f64>,
    /// Longest smoothed round trip.
    pub round_trip_max_us: u32,
    /// Shortest round trip.
    pub round_trip_min_us: u32,
    /// Percent of the busy time in which the receiver's window was the limit; `None` without busy time.
    pub receiver_limited_percent: Option<f64>,
    /// Percent of the busy time in which the send buffer was the limit; `None` without busy time.
    pub send_buffer_limited_percent: Option<f64>,
}

impl BandwidthReport {
    /// Derives the report. Never fails: what is not known is `None` or empty. Samples outside [`window_of`]
    /// and of links that are not in the population are ignored.
    pub fn of<S: Borrow<LinkSample>>(
        input: &ReportInput<'_>,
        samples: impl IntoIterator<Item = S>,
    ) -> BandwidthReport {
        let window = window_of(input);
        let links: BTreeSet<&LinkId> = input
            .transfers
            .iter()
            .filter_map(|transfer| transfer.link.as_ref())
            .collect();
        let mut sampled = SampleSums::new(window, links);
        samples
            .into_iter()
            .for_each(|sample| sampled.add(sample.borrow()));
        let arrived: Vec<Arrival<'_>> = arrivals(input, window);
        let bytes = total(arrived.iter().map(|file| file.size));
        BandwidthReport {
            population: input.population.clone(),
            view: View::Vo,
            window,
            seconds: window.seconds(),
            transfers: count(&input.transfers, arrived.len() as u64),
            bytes,
            bandwidth: MeasuredRate::over(
                window,
                bytes,
                &input.population,
                ByteCount::ArrivedFiles,
            ),
            pace: pace(&input.transfers, window),
            quality: quality::quality_of(&input.transfers),
            links: link_shares(input, window, &arrived, bytes, &sampled),
            pools: pool_shares(&arrived, bytes),
            stages: stage_shares(&arrived),
            rate_over_time: sampled.rate_over_time(&input.population),
            drops: drops::find_drops(&sampled, &input.transfers),
            tcp: tcp_facts(&arrived),
        }
    }
}

/// A file that arrived inside the window.
struct Arrival<'a> {
    link: Option<&'a LinkId>,
    size: Bytes,
    /// The mover that reported was at the sending end of its socket.
    reporter_sent: bool,
    report: &'a MoverReport,
}

/// The window that a report of `input` covers: for this time it needs samples.
pub fn window_of(input: &ReportInput<'_>) -> Window {
    if let Some((from, to)) = input.window {
        let rule = WindowRule::AsAsked;
        return Window { from, to, rule };
    }
    let from = input
        .transfers
        .iter()
        .filter_map(|transfer| transfer.first_start())
        .min();
    let open = input
        .transfers
        .iter()
        .any(|transfer| transfer.ending == TransferEnding::Open);
    let to = match open {
        true => input
            .transfers
            .iter()
            .map(|transfer| transfer.last_event)
            .max(),
        false => input
            .transfers
            .iter()
            .filter_map(|transfer| transfer.ending.at())
            .max(),
    };
    let from = from.or(to).unwrap_or_default();
    Window {
        from,
        to: to.unwrap_or(from).max(from),
        rule: WindowRule::FirstStartToLastEnd,
    }
}

fn arrivals<'a>(input: &ReportInput<'a>, window: Window) -> Vec<Arrival<'a>> {
    let inside = |at: Timestamp| match window.rule {
        WindowRule::FirstStartToLastEnd => true,
        WindowRule::AsAsked => window.from < at && at <= window.to,
    };
    let arrived = |transfer: &'a TransferFacts| match &transfer.ending {
        TransferEnding::Finished {
            at,
            size,
            mode,
            report,
        } if inside(*at) => Some(Arrival {
            link: transfer.link.as_ref(),
            size: *size,
            reporter_sent: matches!(mode, Some(CopyMode::Push | CopyMode::Streamed)),
            report,
        }),
        _ => None,
    };
    input
        .transfers
        .iter()
        .copied()
        .filter_map(arrived)
        .collect()
}

fn count(transfers: &[&TransferFacts], finished: u64) -> Counts {
    let mut counts = Counts {
        total: transfers.len() as u64,
        finished,
        ..Counts::default()
    };
    for transfer in transfers {
        match transfer.ending {
            TransferEnding::Open => counts.open += 1,
            TransferEnding::Finished { .. } => {}
            TransferEnding::Failed { .. } => counts.failed += 1,
            TransferEnding::Canceled { .. } => counts.canceled += 1,
            // Nobody waits for it, so it is none of the files.
            TransferEnding::NotNeeded { .. } => counts.total -= 1,
        }
    }
    counts
}

fn pace(transfers: &[&TransferFacts], window: Window) -> Pace {
    let queued: Vec<f64> = transfers
        .iter()
        .filter_map(|transfer| Some(transfer.waited()?.as_secs_f64()))
        .collect();
    let runs = || transfers.iter().flat_map(|transfer| &transfer.runs);
    let attempts: Vec<f64> = runs()
        .filter_map(|run| Some(run.to?.since(run.from).as_secs_f64()))
        .collect();
    let running: f64 = runs()
        .map(|run| {
            let to = run.to.unwrap_or(window.to).min(window.to);
            to.since(run.from.max(window.from)).as_secs_f64()
        })
        .sum();
    let seconds = window.seconds();
    Pace {
        queue_seconds_mean: mean(&queued),
        queue_seconds_max: queued.iter().copied().reduce(f64::max),
        attempt_seconds_mean: mean(&attempts),
        attempt_seconds_max: attempts.iter().copied().reduce(f64::max),
        concurrent_mean: (seconds > 0.0).then(|| running / seconds),
    }
}

fn link_shares(
    input: &ReportInput<'_>,
    window: Window,
    arrived: &[Arrival<'_>],
    bytes: Bytes,
    sampled: &SampleSums,
) -> Vec<LinkShare> {
    let mut by_link: BTreeMap<Option<&LinkId>, (u64, Bytes)> = BTreeMap::new();
    for transfer in &input.transfers {
        by_link.entry(transfer.link.as_ref()).or_default();
    }
    for file in arrived {
        let (files, sum) = by_link.entry(file.link).or_default();
        *files += 1;
        *sum = total([*sum, file.size]);
    }
    let mut shares: Vec<LinkShare> = by_link
        .into_iter()
        .map(|(link, (finished, sum))| LinkShare {
            link: link.cloned(),
            finished,
            bytes: sum,
            share_percent: percent(sum.0 as f64, bytes.0 as f64),
            rate: MeasuredRate::over(
                window,
                sum,
                match link {
                    Some(link) => format!("{}, {link}", input.population),
                    None => format!("{}, link no longer recorded", input.population),
                },
                ByteCount::ArrivedFiles,
            ),
            feeding: link.and_then(|link| sampled.feeding(link)),
        })
        .collect();
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.link.cmp(&b.link)));
    shares
}

fn pool_shares(arrived: &[Arrival<'_>], bytes: Bytes) -> Vec<PoolShare> {
    let mut by_pool: BTreeMap<Option<&PoolName>, (u64, Bytes)> = BTreeMap::new();
    for file in arrived {
        let (files, sum) = by_pool.entry(file.report.pool.as_ref()).or_default();
        *files += 1;
        *sum = total([*sum, file.size]);
    }
    let mut shares: Vec<PoolShare> = by_pool
        .into_iter()
        .map(|(pool, (finished, sum))| PoolShare {
            pool: pool.cloned(),
            finished,
            bytes: sum,
            share_percent: percent(sum.0 as f64, bytes.0 as f64),
        })
        .collect();
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.pool.cmp(&b.pool)));
    shares
}

fn stage_shares(arrived: &[Arrival<'_>]) -> Vec<StageShare> {
    // Summed as seconds, not with `StageClocks::plus`: clocks come over the wire and may be absurdly large.
    let mut seconds = [0.0f64; 6];
    for file in arrived {
        for (sum, (_, us)) in seconds.iter_mut().zip(file.report.stages.named()) {
            *sum += us as f64 / 1e6;
        }
    }
    let all: f64 = seconds.iter().sum();
    if all <= 0.0 {
        return Vec::new();
    }
    let names = StageClocks::default().named().map(|(name, _)| name);
    let share = |(stage, seconds): (&'static str, f64)| {
        let seen = stage != UNSEEN_BY_RECEIVERS || seconds > 0.0;
        StageShare {
            stage,
            seconds: seen.then_some(seconds),
            percent: seen.then_some(seconds / all * 100.0),
        }
    };
    names.into_iter().zip(seconds).map(share).collect()
}

/// What the kernel said. Only the sending end of a connection knows of segments sent again and of what held the
/// sender back: the receiver of a pull counts nothing but its own requests.
fn tcp_facts(arrived: &[Arrival<'_>]) -> Option<TcpFacts> {
    let told = || {
        arrived
            .iter()
            .filter_map(|file| Some((file.reporter_sent, file.report.tcp?)))
    };
    let shortest = told().map(|(_, tcp)| tcp.min_rtt_us).min()?;
    let senders: Vec<_> = told()
        .filter(|(sent, _)| *sent)
        .map(|(_, tcp)| tcp)
        .collect();
    let sent: u64 = senders.iter().map(|tcp| u64::from(tcp.sent_segments)).sum();
    let again: u64 = senders
        .iter()
        .map(|tcp| u64::from(tcp.retransmitted_segments))
        .sum();
    let busy: f64 = senders.iter().map(|tcp| tcp.busy_us as f64).sum();
    let receiver: f64 = senders
        .iter()
        .map(|tcp| tcp.receiver_limited_us as f64)
        .sum();
    let buffer: f64 = senders
        .iter()
        .map(|tcp| tcp.send_buffer_limited_us as f64)
        .sum();
    Some(TcpFacts {
        sockets: told().count() as u64,
        sent_segments: sent,
        retransmitted_segments: again,
        retransmitted_percent: percent(again as f64, sent as f64),
        round_trip_max_us: told().map(|(_, tcp)| tcp.rtt_us).max().unwrap_or_default(),
        round_trip_min_us: shortest,
        receiver_limited_percent: percent(receiver, busy),
        send_buffer_limited_percent: percent(buffer, busy),
    })
}

fn within(at: Timestamp, window: Window) -> bool {
    // The sample that ends within a second after the window still tells of its last moments.
    window.from < at && at.0 < window.to.0.saturating_add(1000)
}

fn total(sizes: impl IntoIterator<Item = Bytes>) -> Bytes {
    Bytes(
        sizes
            .into_iter()
            .fold(0u64, |sum, size| sum.saturating_add(size.0)),
    )
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole * 100.0)
}
