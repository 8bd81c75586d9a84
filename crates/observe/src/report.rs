//! The bandwidth report: what a set of transfers achieved, how well, and where the time went.
//!
//! A pure derivation from [`TransferFacts`] and [`LinkSample`]s. Each rate carries its population, window and unit;
//! errors and incidents are both told, because one full disk can write an error per file. Text is in [`mod@text`].

pub mod text;

use crate::facts::{Ending, TransferFacts};
use crate::fingerprint::fingerprint;
use crate::plot;
use crate::rate::{Counted, MeasuredRate, UNIT, View, Window, WindowRule, megabits_per_second};
use penstock_model::{
    Bytes, LinkId, LinkSample, MoverReport, Phase, PoolName, Side, StageClocks, Timestamp,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// Most kinds of failure told apart in one report; what comes after is counted as [`OTHER_FAILURES`].
pub const INCIDENTS_MAX: usize = 1000;
/// The fingerprint of failures beyond [`INCIDENTS_MAX`] kinds.
pub const OTHER_FAILURES: &str = "(other failures)";

/// The stage that only the sender's mover measures; receivers leave it at 0.
const UNSEEN_BY_RECEIVERS: &str = "source read";

/// What a report is made from.
#[derive(Debug, Clone)]
pub struct ReportInput<'a> {
    /// Whose transfers these are, in words: `job 0192…`, `all transfers of the last 300 s`.
    pub population: String,
    /// The transfers.
    pub transfers: &'a [TransferFacts],
    /// Samples of the links, at least for the window; others are ignored.
    pub samples: &'a [LinkSample],
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
    /// Where the time of the movers went, in the order in which bytes meet the stages. Empty when none reported.
    pub stages: Vec<StageShare>,
    /// Rate over time; `None` without samples.
    pub rate_over_time: Option<RateOverTime>,
    /// What the kernels said of the data sockets; `None` when no mover told.
    pub tcp: Option<TcpFacts>,
}

/// How many transfers stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// All of them.
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

/// Errors and incidents.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quality {
    /// Failed attempts, and transfers that expired while they waited.
    pub errors: u64,
    /// Transfers they are measured against.
    pub transfers: u64,
    /// `errors` in percent of `transfers` (above 100 when attempts failed repeatedly); `None` without transfers.
    pub error_percent: Option<f64>,
    /// Attempts whose outcome is unknown because the service restarted. Not errors.
    pub lost_attempts: u64,
    /// Kinds of failure, the most frequent first.
    pub incidents: Vec<Incident>,
}

/// All failures of one fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Incident {
    /// The failure text without what differs from file to file.
    pub fingerprint: String,
    /// Where the fault lies.
    pub side: Side,
    /// When in an attempt it happens.
    pub phase: Phase,
    /// Errors with this fingerprint.
    pub errors: u64,
    /// Transfers hit by it.
    pub transfers: u64,
    /// The first of them.
    pub first: Timestamp,
    /// The latest of them.
    pub last: Timestamp,
    /// The latest text in full.
    pub example: String,
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
    pub feeding: Option<Feeding>,
}

/// How full a link was, over the samples of the window. Counts every transfer on the link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Feeding {
    /// Mean of the transfers that ran.
    pub active_mean: f64,
    /// Mean of the limit.
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
    /// Seconds, summed over the movers. `None`: these movers cannot see this stage (a receiver does not know how
    /// long the sender reads).
    pub seconds: Option<f64>,
    /// In percent of all stages together.
    pub percent: Option<f64>,
}

/// Mean rates of equal bins, from samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RateOverTime {
    /// Always [`UNIT`].
    pub unit: &'static str,
    /// Whose bytes: every transfer on the links of the population, not only the transfers of the report.
    pub population: String,
    /// Which bytes.
    pub counted: Counted,
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
    /// Derives the report. Never fails: what is not known is `None` or empty.
    pub fn of(input: &ReportInput<'_>) -> BandwidthReport {
        let window = choose_window(input);
        let arrived: Vec<Arrival<'_>> = arrivals(input, window);
        let bytes = total(arrived.iter().map(|file| file.size));
        BandwidthReport {
            population: input.population.clone(),
            view: View::TransferService,
            window,
            seconds: window.seconds(),
            transfers: count(input.transfers, arrived.len() as u64),
            bytes,
            bandwidth: MeasuredRate::over(window, bytes, &input.population, Counted::ArrivedFiles),
            pace: pace(input.transfers, window),
            quality: quality(input.transfers),
            links: link_shares(input, window, &arrived, bytes),
            pools: pool_shares(&arrived, bytes),
            stages: stage_shares(&arrived),
            rate_over_time: rate_over_time(input, window),
            tcp: tcp_facts(&arrived),
        }
    }

    /// For `--json`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// A file that arrived inside the window.
struct Arrival<'a> {
    link: Option<&'a LinkId>,
    size: Bytes,
    report: &'a MoverReport,
}

fn choose_window(input: &ReportInput<'_>) -> Window {
    if let Some((from, to)) = input.window {
        let rule = WindowRule::AsAsked;
        return Window { from, to, rule };
    }
    let from = input
        .transfers
        .iter()
        .filter_map(TransferFacts::first_start)
        .min();
    let open = input
        .transfers
        .iter()
        .any(|transfer| transfer.ending == Ending::Open);
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
        Ending::Finished { at, size, report } if inside(*at) => Some(Arrival {
            link: transfer.link.as_ref(),
            size: *size,
            report,
        }),
        _ => None,
    };
    input.transfers.iter().filter_map(arrived).collect()
}

fn count(transfers: &[TransferFacts], finished: u64) -> Counts {
    let mut counts = Counts {
        total: transfers.len() as u64,
        finished,
        ..Counts::default()
    };
    for transfer in transfers {
        match transfer.ending {
            Ending::Open => counts.open += 1,
            Ending::Finished { .. } => {}
            Ending::Failed { .. } => counts.failed += 1,
            Ending::Canceled { .. } => counts.canceled += 1,
        }
    }
    counts
}

fn pace(transfers: &[TransferFacts], window: Window) -> Pace {
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

fn quality(transfers: &[TransferFacts]) -> Quality {
    let mut by_fingerprint: BTreeMap<String, Incident> = BTreeMap::new();
    for transfer in transfers {
        let mut hit: Vec<String> = Vec::new();
        for (at, failure) in &transfer.errors {
            let mut key = fingerprint(failure);
            if by_fingerprint.len() >= INCIDENTS_MAX && !by_fingerprint.contains_key(&key) {
                key = OTHER_FAILURES.to_owned();
            }
            let incident = by_fingerprint
                .entry(key.clone())
                .or_insert_with(|| Incident {
                    fingerprint: key.clone(),
                    side: failure.side,
                    phase: failure.phase,
                    errors: 0,
                    transfers: 0,
                    first: *at,
                    last: *at,
                    example: failure.to_string(),
                });
            incident.errors += 1;
            incident.first = incident.first.min(*at);
            if *at >= incident.last {
                incident.last = *at;
                incident.example = failure.to_string();
            }
            if !hit.contains(&key) {
                incident.transfers += 1;
                hit.push(key);
            }
        }
    }
    let mut incidents: Vec<Incident> = by_fingerprint.into_values().collect();
    incidents.sort_by(|a, b| {
        b.errors
            .cmp(&a.errors)
            .then_with(|| a.fingerprint.cmp(&b.fingerprint))
    });
    let errors: u64 = incidents.iter().map(|incident| incident.errors).sum();
    Quality {
        errors,
        transfers: transfers.len() as u64,
        error_percent: percent(errors as f64, transfers.len() as f64),
        lost_attempts: transfers
            .iter()
            .map(|transfer| u64::from(transfer.lost_attempts))
            .sum(),
        incidents,
    }
}

fn link_shares(
    input: &ReportInput<'_>,
    window: Window,
    arrived: &[Arrival<'_>],
    bytes: Bytes,
) -> Vec<LinkShare> {
    let mut by_link: BTreeMap<Option<&LinkId>, (u64, Bytes)> = BTreeMap::new();
    for transfer in input.transfers {
        by_link.entry(transfer.link.as_ref()).or_default();
    }
    for file in arrived {
        let (files, sum) = by_link.entry(file.link).or_default();
        *files += 1;
        *sum = total([*sum, file.size]);
    }
    let mut feeding = feeding_by_link(input.samples, window);
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
                Counted::ArrivedFiles,
            ),
            feeding: link.and_then(|link| feeding.remove(link)),
        })
        .collect();
    shares.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.link.cmp(&b.link)));
    shares
}

fn feeding_by_link(samples: &[LinkSample], window: Window) -> BTreeMap<&LinkId, Feeding> {
    #[derive(Default)]
    struct Sums {
        samples: f64,
        active: f64,
        limit: f64,
        unfed: f64,
    }
    let mut sums: BTreeMap<&LinkId, Sums> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| within(sample.at, window)) {
        let link = sums.entry(&sample.link).or_default();
        link.samples += 1.0;
        link.active += f64::from(sample.active.0);
        link.limit += f64::from(sample.limit.0);
        if sample.queued > 0 && sample.active < sample.limit {
            link.unfed += 1.0;
        }
    }
    let mean = |sums: Sums| Feeding {
        active_mean: sums.active / sums.samples,
        limit_mean: sums.limit / sums.samples,
        unfed_percent: sums.unfed / sums.samples * 100.0,
    };
    sums.into_iter()
        .map(|(link, sums)| (link, mean(sums)))
        .collect()
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

fn rate_over_time(input: &ReportInput<'_>, window: Window) -> Option<RateOverTime> {
    let links: std::collections::BTreeSet<&LinkId> = input
        .transfers
        .iter()
        .filter_map(|transfer| transfer.link.as_ref())
        .collect();
    let counts = |sample: &&LinkSample| within(sample.at, window) && links.contains(&sample.link);
    let samples: Vec<&LinkSample> = input.samples.iter().filter(counts).collect();
    if samples.is_empty() {
        return None;
    }
    let span = window.seconds().ceil().max(1.0) as u64;
    let bin_seconds = plot::bin_seconds(span);
    let mut bins: Vec<Option<Bytes>> = vec![None; span.div_ceil(bin_seconds) as usize];
    for sample in samples {
        // A sample tells of the second that ends with it, hence the step back into it.
        let offset_ms = sample
            .at
            .0
            .saturating_sub(1)
            .saturating_sub(window.from.0)
            .max(0) as u64;
        let bin = (offset_ms / 1000 / bin_seconds) as usize;
        if let Some(bin) = bins.get_mut(bin) {
            *bin = Some(total([bin.unwrap_or_default(), sample.moved]));
        }
    }
    // The last bin may reach beyond the window; its rate counts only the time inside.
    let last_seconds = window.seconds().max(1.0) - (bin_seconds * (bins.len() as u64 - 1)) as f64;
    let last = bins.len() - 1;
    let rate = |(n, moved): (usize, Option<Bytes>)| {
        let seconds = if n == last {
            last_seconds.max(1.0)
        } else {
            bin_seconds as f64
        };
        Some(megabits_per_second(moved?, seconds))
    };
    Some(RateOverTime {
        unit: UNIT,
        population: format!(
            "every transfer on the {} of: {}",
            plural(links.len(), "link"),
            input.population
        ),
        counted: Counted::MovedBytes,
        from: window.from,
        bin_seconds,
        megabits_per_second: bins.into_iter().enumerate().map(rate).collect(),
    })
}

fn tcp_facts(arrived: &[Arrival<'_>]) -> Option<TcpFacts> {
    let told: Vec<_> = arrived.iter().filter_map(|file| file.report.tcp).collect();
    let shortest = told.iter().map(|tcp| tcp.min_rtt_us).min()?;
    let sent: u64 = told.iter().map(|tcp| u64::from(tcp.sent_segments)).sum();
    let again: u64 = told
        .iter()
        .map(|tcp| u64::from(tcp.retransmitted_segments))
        .sum();
    let busy: f64 = told.iter().map(|tcp| tcp.busy_us as f64).sum();
    let receiver: f64 = told.iter().map(|tcp| tcp.receiver_limited_us as f64).sum();
    let buffer: f64 = told
        .iter()
        .map(|tcp| tcp.send_buffer_limited_us as f64)
        .sum();
    Some(TcpFacts {
        sockets: told.len() as u64,
        sent_segments: sent,
        retransmitted_segments: again,
        retransmitted_percent: percent(again as f64, sent as f64),
        round_trip_max_us: told.iter().map(|tcp| tcp.rtt_us).max().unwrap_or_default(),
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

/// `1 link`, `2 links`.
fn plural(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
