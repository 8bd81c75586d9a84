//! The report as text: first the four lines that bulk testers know since srmcp, then sections that explain
//! themselves to a newcomer.
//!
//! Decides nothing: every figure is one of [`BandwidthReport`]. Lines are wrapped at 80 columns.

use super::{BandwidthReport, FailureSummary, FallenFactor, LinkShare, RateOverTime};
use crate::plot;
use crate::rate::{ByteCount, UNIT, view_words};
use penstock_model::TimeSpan;
use penstock_model::text::plural;
use std::fmt::{self, Display, Formatter, Write as _};

/// Most links, pools and incidents listed in the text; JSON has all.
const ROWS_MAX: usize = 20;
/// Lines are broken before this column; only a single longer word passes it.
const WIDTH: usize = 80;
/// Smallest part of a drop, in percent, that is worth a line.
const CAUSE_MIN: f64 = 5.0;
/// Longest text of an incident, in characters.
const EXAMPLE_MAX: usize = 240;

impl Display for BandwidthReport {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        headline(self, out)?;
        what_this_counts(self, out)?;
        outcome(self, out)?;
        quality(self, out)?;
        links(self, out)?;
        pools(self, out)?;
        stages(self, out)?;
        if let Some(rates) = &self.rate_over_time {
            rate_over_time(rates, out)?;
        }
        drops(self, out)?;
        tcp(self, out)
    }
}

fn headline(report: &BandwidthReport, out: &mut Formatter<'_>) -> fmt::Result {
    writeln!(out, "Transfer Bandwidth Report:")?;
    let transfers = report.transfers;
    writeln!(
        out,
        "  {}/{} transferred in {:.2} seconds",
        transfers.finished, transfers.total, report.seconds
    )?;
    writeln!(out, "  {} bytes transferred.", report.bytes.0)?;
    match &report.bandwidth {
        Some(rate) => writeln!(out, "Bandwidth: {:.2} Mb/s", rate.megabits_per_second),
        None => writeln!(out, "Bandwidth: unknown, because no time passed"),
    }
}

fn what_this_counts(report: &BandwidthReport, out: &mut Formatter<'_>) -> fmt::Result {
    writeln!(out, "\nWhat this counts")?;
    let population = format!("{}, {}", clean(&report.population), view_words(report.view));
    wrapped(out, "  transfers  ", &population)?;
    writeln!(
        out,
        "  bytes      sizes of the {}",
        ByteCount::ArrivedFiles.words()
    )?;
    if report.seconds > 0.0 {
        writeln!(out, "  window     {}", report.window.words())?;
        writeln!(out, "             {}", report.window.rule.words())?;
    } else {
        writeln!(
            out,
            "  window     none: nothing was seen to start and to end"
        )?;
    }
    writeln!(out, "  unit       {UNIT}")
}

fn outcome(report: &BandwidthReport, out: &mut Formatter<'_>) -> fmt::Result {
    let counts = report.transfers;
    writeln!(out, "\nOutcome")?;
    writeln!(
        out,
        "  {} finished, {} failed, {} canceled, {} still open",
        counts.finished, counts.failed, counts.canceled, counts.open
    )?;
    let pace = report.pace;
    if let (Some(mean), Some(longest)) = (pace.queue_seconds_mean, pace.queue_seconds_max) {
        writeln!(
            out,
            "  a file waited {mean:.2} s for its first start (longest {longest:.2} s)"
        )?;
    }
    if let (Some(mean), Some(longest)) = (pace.attempt_seconds_mean, pace.attempt_seconds_max) {
        writeln!(
            out,
            "  an attempt ran for {mean:.2} s (longest {longest:.2} s)"
        )?;
    }
    match pace.concurrent_mean {
        Some(mean) => writeln!(
            out,
            "  {mean:.1} transfers ran at once, on average over the window"
        ),
        None => Ok(()),
    }
}

fn quality(report: &BandwidthReport, out: &mut Formatter<'_>) -> fmt::Result {
    let quality = &report.quality;
    writeln!(out, "\nQuality")?;
    let errors = plural(quality.errors, "failed attempt");
    let transfers = plural(quality.transfers, "transfer");
    match quality.error_percent {
        Some(percent) => writeln!(out, "  {errors} in {transfers} ({percent:.2} %)")?,
        None => writeln!(out, "  {errors} in {transfers}")?,
    }
    if quality.lost_attempts > 0 {
        let lost = plural(quality.lost_attempts, "attempt");
        writeln!(
            out,
            "  {lost} interrupted by a restart of the service (not counted as failed)"
        )?;
    }
    if quality.incidents.is_empty() {
        return Ok(());
    }
    let incidents = plural(quality.incidents.len() as u64, "incident");
    writeln!(
        out,
        "  {incidents} (similar failures count as one incident):"
    )?;
    for incident in quality.incidents.iter().take(ROWS_MAX) {
        write_incident(incident, out)?;
    }
    and_more(quality.incidents.len(), "incident", out)
}

fn write_incident(incident: &FailureSummary, out: &mut Formatter<'_>) -> fmt::Result {
    let errors = plural(incident.errors, "failure");
    let transfers = plural(incident.transfers, "transfer");
    writeln!(
        out,
        "  - {errors} in {transfers}, {}Z to {}Z",
        incident.first.to_fts(),
        incident.last.to_fts()
    )?;
    wrapped(out, "    ", &clean(&incident.example))
}

fn links(report: &BandwidthReport, out: &mut Formatter<'_>) -> fmt::Result {
    if report.links.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nLinks: which way the bytes went")?;
    for share in report.links.iter().take(ROWS_MAX) {
        write_link(share, out)?;
    }
    and_more(report.links.len(), "link", out)
}

fn write_link(share: &LinkShare, out: &mut Formatter<'_>) -> fmt::Result {
    match &share.link {
        Some(link) => writeln!(out, "  {}", clean(&link.to_string()))?,
        None => writeln!(out, "  (link no longer recorded)")?,
    }
    let mut parts = vec![plural(share.finished, "file"), share.bytes.to_string()];
    parts.extend(
        share
            .share_percent
            .map(|percent| format!("{percent:.1} % of the bytes")),
    );
    let rate = share.rate.as_ref();
    parts.extend(rate.map(|rate| format!("{:.2} Mb/s over the window", rate.megabits_per_second)));
    wrapped(out, "    ", &parts.join(", "))?;
    let Some(feeding) = share.feeding else {
        return Ok(());
    };
    let text = format!(
        "while it had work, {:.1} of {:.1} slots were in use on average; \
         a slot was free although files waited for {:.0} % of that time",
        feeding.active_mean, feeding.limit_mean, feeding.unfed_percent
    );
    wrapped(out, "    ", &text)
}

fn pools(report: &BandwidthReport, out: &mut Formatter<'_>) -> fmt::Result {
    let none_told = report.pools.iter().all(|share| share.pool.is_none());
    if none_told {
        return Ok(());
    }
    writeln!(out, "\nPools: which disks took or gave the bytes")?;
    for share in report.pools.iter().take(ROWS_MAX) {
        let name = match &share.pool {
            Some(pool) => clean(pool.as_str()),
            None => "(pool not told)".to_owned(),
        };
        let files = plural(share.finished, "file");
        write!(
            out,
            "  {name:<24} {files:>12}  {:>10}",
            share.bytes.to_string()
        )?;
        match share.share_percent {
            Some(percent) => writeln!(out, "  {percent:>5.1} %")?,
            None => writeln!(out)?,
        }
    }
    and_more(report.pools.len(), "pool", out)
}

fn stages(report: &BandwidthReport, out: &mut Formatter<'_>) -> fmt::Result {
    if report.stages.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWhere the time went: seconds summed over all movers")?;
    writeln!(
        out,
        "  (stages overlap, so their sum may exceed the time a file took)"
    )?;
    for share in &report.stages {
        let (Some(seconds), Some(percent)) = (share.seconds, share.percent) else {
            writeln!(
                out,
                "  {:<12} {:>10}    not measured at the receiving end",
                share.stage, "-"
            )?;
            continue;
        };
        let bar = "█".repeat((percent / 2.5).round() as usize);
        let line = format!(
            "  {:<12} {seconds:>10.2} s  {percent:>5.1} %  {bar}",
            share.stage
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn rate_over_time(rates: &RateOverTime, out: &mut Formatter<'_>) -> fmt::Result {
    writeln!(
        out,
        "\nRate over time: Mb/s, mean of {} per column",
        TimeSpan::of_seconds(rates.bin_seconds)
    )?;
    wrapped(
        out,
        "  ",
        &format!("({}: {})", rates.counted.words(), clean(&rates.population)),
    )?;
    let unknown = rates.megabits_per_second.iter().any(Option::is_none);
    if unknown {
        writeln!(
            out,
            "  (· no sample: nothing moved or waited, or the service did not run)"
        )?;
    }
    out.write_str(&plot::area(&rates.megabits_per_second, rates.bin_seconds))
}

fn drops(report: &BandwidthReport, out: &mut Formatter<'_>) -> fmt::Result {
    if report.drops.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nRate drops: stretches below 70 % of the usual rate")?;
    for drop in report.drops.iter().take(ROWS_MAX) {
        let (usual, seen) = (&drop.usual, &drop.seen);
        writeln!(out, "  {}Z to {}Z", drop.from.to_fts(), drop.to.to_fts())?;
        writeln!(
            out,
            "    {:.2} Mb/s instead of {:.2}; {} in this time",
            seen.megabits_per_second,
            usual.megabits_per_second,
            plural(drop.errors, "error")
        )?;
        for cause in drop
            .causes
            .iter()
            .filter(|cause| cause.share_percent >= CAUSE_MIN)
        {
            let evidence = match cause.cause {
                FallenFactor::LowerLimit => {
                    format!("{:.1} instead of {:.1}", seen.limit, usual.limit)
                }
                FallenFactor::NotFed | FallenFactor::NothingWaited => format!(
                    "{:.1} of {:.1} slots in use instead of {:.1} of {:.1}",
                    seen.in_use * seen.limit,
                    seen.limit,
                    usual.in_use * usual.limit,
                    usual.limit
                ),
                FallenFactor::SlowerFiles => format!(
                    "{:.2} Mb/s per file instead of {:.2}",
                    seen.megabits_per_second_per_file, usual.megabits_per_second_per_file
                ),
            };
            let text = format!("{} ({evidence})", cause.cause.words());
            let share = format!("    {:>3.0} % of the drop: ", cause.share_percent);
            wrapped(out, &share, &text)?;
        }
    }
    and_more(report.drops.len(), "drop", out)
}

fn tcp(report: &BandwidthReport, out: &mut Formatter<'_>) -> fmt::Result {
    let Some(tcp) = report.tcp else {
        return Ok(());
    };
    writeln!(
        out,
        "\nTCP: what the kernel said of {}",
        plural(tcp.sockets, "data socket")
    )?;
    match tcp.retransmitted_percent {
        Some(percent) => writeln!(
            out,
            "  {} of {} segments sent again ({percent:.4} %)",
            tcp.retransmitted_segments, tcp.sent_segments
        )?,
        None => writeln!(
            out,
            "  no data was sent at this end, so retransmissions are unknown"
        )?,
    }
    writeln!(
        out,
        "  round trip {:.2} ms at best, {:.2} ms at worst",
        f64::from(tcp.round_trip_min_us) / 1000.0,
        f64::from(tcp.round_trip_max_us) / 1000.0
    )?;
    if let Some(percent) = tcp.receiver_limited_percent {
        writeln!(
            out,
            "  the receiver's window held it back {percent:.1} % of the time"
        )?;
    }
    match tcp.send_buffer_limited_percent {
        Some(percent) => writeln!(
            out,
            "  the send buffer held it back {percent:.1} % of the time"
        ),
        None => Ok(()),
    }
}

fn and_more(count: usize, noun: &str, out: &mut Formatter<'_>) -> fmt::Result {
    match count.checked_sub(ROWS_MAX) {
        Some(more) if more > 0 => {
            writeln!(
                out,
                "  … and {}; the JSON form has all",
                plural(more as u64, &format!("more {noun}"))
            )
        }
        _ => Ok(()),
    }
}

/// Writes `text` after `prefix`, with the lines after the first indented as far as the prefix reaches.
fn wrapped(out: &mut Formatter<'_>, prefix: &str, text: &str) -> fmt::Result {
    let indent = prefix.chars().count();
    let mut column = indent;
    out.write_str(prefix)?;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > indent && column + 1 + width > WIDTH {
            write!(out, "\n{:indent$}", "")?;
            column = indent;
        }
        if column > indent {
            out.write_char(' ')?;
            column += 1;
        }
        out.write_str(word)?;
        column += width;
    }
    writeln!(out)
}

/// One line, bounded, without control characters: texts come from remote servers and end on a terminal.
fn clean(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(EXAMPLE_MAX)
        .collect();
    match text.chars().nth(EXAMPLE_MAX) {
        Some(_) => format!("{line}…"),
        None => line,
    }
}
