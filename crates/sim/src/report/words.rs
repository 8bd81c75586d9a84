//! A report as text for a terminal of 100 columns: one run in detail, or several side by side.

use super::{Point, Report};
use penstock_model::{Bytes, Rate, TimeSpan};
use penstock_observe::plot;
use std::fmt::Write;
use std::time::Duration;

/// Links of which a text tells.
const LINKS_SHOWN: usize = 12;

/// One run.
pub fn told(report: &Report) -> String {
    let mut out = String::new();
    let name = match report.name.is_empty() {
        true => "the plan",
        false => &report.name,
    };
    let _ = writeln!(out, "{name} · {} · seed {}", report.policy, report.seed);
    let _ = writeln!(out, "time      {}", span(report.seconds));
    let _ = writeln!(
        out,
        "files     {} finished · {} failed · {} canceled · {} open",
        report.in_state("FINISHED"),
        report.in_state("FAILED"),
        report.in_state("CANCELED"),
        report.open()
    );
    if report.jobs_refused > 0 {
        let _ = writeln!(out, "refused   {} jobs", report.jobs_refused);
    }
    let rate = Rate(report.rate() as u64);
    let _ = writeln!(
        out,
        "bytes     {} · {rate} on average",
        Bytes(report.bytes as u64)
    );
    let waits = report.wait_seconds;
    let _ = writeln!(
        out,
        "waited    median {} · 99 in 100 at most {} · longest {}",
        span(waits.median),
        span(waits.of_99),
        span(waits.longest)
    );
    let slots = report.slot_seconds;
    let percent = |part: f64| 100.0 * part / slots.all.max(f64::MIN_POSITIVE);
    let _ = writeln!(
        out,
        "slots     {} file-hours · {:.1} % of it for attempts that failed · {:.1} % for attempts that were lost",
        amount(slots.all / 3600.0),
        percent(slots.failed),
        percent(slots.lost)
    );
    let fairness = report.fairness;
    let _ = writeln!(
        out,
        "fairness  {:.3} of links by bytes · {:.3} of VOs by share",
        fairness.links, fairness.vos
    );
    out.push_str(&rates(report));
    out.push_str(&links(report));
    out.push_str(&vos(report));
    out.push_str(&reasons(report));
    out
}

/// Several runs of one plan.
pub fn compared(reports: &[Report]) -> String {
    let mut rows = vec![vec![
        "policy".to_owned(),
        "finished".to_owned(),
        "failed".to_owned(),
        "open".to_owned(),
        "bytes".to_owned(),
        "rate".to_owned(),
        "time".to_owned(),
        "wait median".to_owned(),
        "99 in 100".to_owned(),
        "file-hours".to_owned(),
        "fair links".to_owned(),
        "fair VOs".to_owned(),
    ]];
    rows.extend(reports.iter().map(|report| {
        vec![
            report.policy.clone(),
            report.in_state("FINISHED").to_string(),
            report.in_state("FAILED").to_string(),
            report.open().to_string(),
            Bytes(report.bytes as u64).to_string(),
            Rate(report.rate() as u64).to_string(),
            span(report.seconds),
            span(report.wait_seconds.median),
            span(report.wait_seconds.of_99),
            amount(report.slot_seconds.all / 3600.0),
            format!("{:.3}", report.fairness.links),
            format!("{:.3}", report.fairness.vos),
        ]
    }));
    table(&rows)
}

/// Megabytes per second over time.
fn rates(report: &Report) -> String {
    let points = &report.series.points;
    let each = points.len().div_ceil(plot::COLUMNS_MAX).max(1);
    let seconds = report.series.step * each as f64;
    let mean = |some: &[Point]| {
        let bytes: f64 = some.iter().map(|point| point.bytes).sum();
        Some(bytes / 1e6 / (report.series.step * some.len() as f64))
    };
    let values: Vec<Option<f64>> = points.chunks(each).map(mean).collect();
    match values.is_empty() {
        true => String::new(),
        false => format!("\nMB/s\n{}", plot::area(&values, (seconds as u64).max(1))),
    }
}

fn links(report: &Report) -> String {
    let mut links: Vec<_> = report.links.iter().collect();
    links.sort_by(|one, other| other.bytes.total_cmp(&one.bytes));
    let mut rows = vec![
        ["link", "files", "bytes", "rate", "at once", "file-hours"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(links.iter().take(LINKS_SHOWN).map(|link| {
        vec![
            format!("{} → {}", link.from, link.to),
            link.files.to_string(),
            Bytes(link.bytes as u64).to_string(),
            Rate((link.bytes / report.seconds.max(1.0)) as u64).to_string(),
            link.active_max.to_string(),
            amount(link.slot_seconds / 3600.0),
        ]
    }));
    let mut out = format!("\n{}", table(&rows));
    if links.len() > LINKS_SHOWN {
        let _ = writeln!(out, "and {} more links", links.len() - LINKS_SHOWN);
    }
    out
}

fn vos(report: &Report) -> String {
    if report.vos.len() < 2 {
        return String::new();
    }
    let all: f64 = report.vos.iter().map(|vo| vo.slot_seconds).sum();
    let mut rows = vec![
        ["VO", "files", "bytes", "file-hours", "of all", "share"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(report.vos.iter().map(|vo| {
        vec![
            vo.name.clone(),
            vo.files.to_string(),
            Bytes(vo.bytes as u64).to_string(),
            amount(vo.slot_seconds / 3600.0),
            format!(
                "{:.1} %",
                100.0 * vo.slot_seconds / all.max(f64::MIN_POSITIVE)
            ),
            vo.share
                .map_or_else(|| "-".to_owned(), |share| share.to_string()),
        ]
    }));
    format!("\n{}", table(&rows))
}

fn reasons(report: &Report) -> String {
    let all: f64 = report.waiting_seconds.values().sum();
    let mut reasons: Vec<_> = report.waiting_seconds.iter().collect();
    reasons.sort_by(|one, other| other.1.total_cmp(one.1));
    if reasons.is_empty() {
        return String::new();
    }
    let mut rows = vec![
        ["files waited because of", "file-hours", "of all"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(reasons.into_iter().map(|(reason, seconds)| {
        vec![
            reason.clone(),
            amount(seconds / 3600.0),
            format!("{:.1} %", 100.0 * seconds / all.max(f64::MIN_POSITIVE)),
        ]
    }));
    format!("\n{}", table(&rows))
}

/// Columns that fit; the first to the left, numbers to the right.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate();
        let line: Vec<String> = cells
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        let _ = writeln!(out, "{}", line.join("  ").trim_end());
    }
    out
}

/// A time in two units at most.
pub(super) fn span(seconds: f64) -> String {
    TimeSpan(Duration::from_secs_f64(seconds.max(0.0))).to_string()
}

fn amount(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
