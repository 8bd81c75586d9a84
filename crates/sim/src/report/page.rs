//! Reports as one HTML page that needs nothing else: tables and plots of each run, and a comparison of several.

use super::{Point, Report, jain, words};
use penstock_observe::svg::{Curve, Plot, escaped};
use std::fmt::Write;

/// Curves that are told apart in one plot; the rest is one more.
const CURVES: usize = 8;
/// Links that have a plot of their own.
const LINKS_SHOWN: usize = 6;
const STYLE: &str = "\
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
pre{overflow-x:auto;font-size:13px}figure{margin:1.5rem 0}figcaption{font-weight:600}small{font-weight:400;opacity:.7}\
svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor}.grid{stroke:currentColor;opacity:.15}\
.legend{font-size:12px;margin:.2rem 0}.legend span{margin-right:1em;white-space:nowrap}\
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}";

/// The page of one or several runs of a plan.
pub fn page(reports: &[Report]) -> String {
    let name = reports.first().map_or("", |report| &report.name);
    let title = match name.is_empty() {
        true => "A simulation".to_owned(),
        false => escaped(name),
    };
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n"
    );
    if reports.len() > 1 {
        let _ = writeln!(out, "<pre>{}</pre>", escaped(&words::compared(reports)));
        out.push_str(&side_by_side(reports));
    }
    for report in reports {
        out.push_str(&run(report));
    }
    out.push_str("</body></html>\n");
    out
}

/// Rates of all runs in one plot.
fn side_by_side(reports: &[Report]) -> String {
    let step = reports
        .iter()
        .map(|report| report.series.step)
        .fold(1.0, f64::max);
    let curves = reports.iter().map(|report| {
        // Steps are powers of two.
        let each = (step / report.series.step) as usize;
        let chunks = report.series.points.chunks(each.max(1));
        let rate = |some: &[Point]| some.iter().map(|point| point.bytes).sum::<f64>() / step / 1e6;
        Curve::known(&report.policy, chunks.map(rate))
    });
    plot("Rate by policy", "MB/s", step, curves.collect()).lines()
}

/// Of which each step lasts so many seconds.
fn plot(title: &str, unit: &'static str, step: f64, curves: Vec<Curve>) -> Plot<'static> {
    let steps = curves.iter().map(|curve| curve.values.len()).max();
    let seconds = steps.unwrap_or(0) as f64 * step;
    Plot {
        title: title.to_owned(),
        unit,
        ticks: [0.0, 0.25, 0.5, 0.75, 1.0].map(|part| words::span(seconds * part)),
        curves,
        note: String::new(),
    }
}

fn run(report: &Report) -> String {
    let step = report.series.step;
    let plot = |title: &str, unit, curves| plot(title, unit, step, curves);
    let mut out = format!("<h2>{}</h2>\n", escaped(&report.policy));
    let _ = writeln!(out, "<pre>{}</pre>", escaped(&words::told(report)));
    out.push_str(&plot("Rate by link", "MB/s", rates(report)).stacked());
    out.push_str(&plot("Running by VO", "transfers", running(report)).stacked());
    if report.vos.len() > 1 {
        let fairness = vec![fairness(report)];
        out.push_str(
            &plot(
                "Fairness among VOs that have open files",
                "Jain's index",
                fairness,
            )
            .lines(),
        );
    }
    out.push_str(&plot("Files that wait, by reason", "files", waiting(report)).stacked());
    for link in most_bytes(report).into_iter().take(LINKS_SHOWN) {
        let known = &report.links[link];
        let title = format!("{} → {}", known.from, known.to);
        let curves = of_link(report, link);
        out.push_str(&plot(&title, "transfers", curves).lines());
    }
    out
}

/// Links, those that moved most before the others.
fn most_bytes(report: &Report) -> Vec<usize> {
    let mut links: Vec<usize> = (0..report.links.len()).collect();
    links.sort_by(|one, other| {
        let bytes = |link: &usize| report.links[*link].bytes;
        bytes(other).total_cmp(&bytes(one))
    });
    links
}

fn rates(report: &Report) -> Vec<Curve> {
    let links = most_bytes(report);
    let megabytes = |bytes: f64| bytes / report.series.step / 1e6;
    let points = &report.series.points;
    let shown = links.iter().take(CURVES);
    let mut curves: Vec<Curve> = shown
        .map(|link| {
            let known = &report.links[*link];
            let bytes = |point: &Point| point.links.get(*link).map_or(0.0, |link| link.bytes);
            let name = format!("{} → {}", known.from, known.to);
            Curve::known(name, points.iter().map(|point| megabytes(bytes(point))))
        })
        .collect();
    if links.len() > CURVES {
        let rest = points.iter().enumerate().map(|(at, point)| {
            let shown: f64 = curves.iter().filter_map(|curve| curve.values[at]).sum();
            (megabytes(point.bytes) - shown).max(0.0)
        });
        let name = format!("{} others", links.len() - CURVES);
        let rest = Curve::known(name, rest);
        curves.push(rest);
    }
    curves
}

fn running(report: &Report) -> Vec<Curve> {
    let vos = report.vos.iter().enumerate();
    let curves = vos.map(|(vo, known)| {
        let values = of_each(report, |point| {
            point.vos.get(vo).map_or(0.0, |vo| f64::from(vo.0))
        });
        Curve::known(&known.name, values)
    });
    curves.collect()
}

fn of_each(report: &Report, value: impl Fn(&Point) -> f64) -> Vec<f64> {
    report.series.points.iter().map(value).collect()
}

/// Of what runs in proportion to shares, among those who have something open.
fn fairness(report: &Report) -> Curve {
    let values = of_each(report, |point| {
        let known = report.vos.iter().zip(&point.vos);
        let wanting = known.filter(|(_, (_, open))| *open > 0);
        let parts: Vec<f64> = wanting
            .map(|(vo, (active, _))| f64::from(*active) / vo.share.unwrap_or(1.0))
            .collect();
        jain(parts.iter().copied())
    });
    Curve::known("by share", values)
}

fn waiting(report: &Report) -> Vec<Curve> {
    let reasons = report.waiting_seconds.keys();
    let curves = reasons.map(|reason| {
        let values = of_each(report, |point| {
            point.waiting.get(reason.as_str()).copied().unwrap_or(0.0)
        });
        Curve::known(reason, values)
    });
    curves.collect()
}

fn of_link(report: &Report, link: usize) -> Vec<Curve> {
    let curve = |name: &str, value: fn(&super::LinkPoint) -> f64| {
        let values = of_each(report, |point| point.links.get(link).map_or(0.0, value));
        Curve::known(name, values)
    };
    vec![
        curve("running", |link| link.active),
        // What waits may be many times what runs; what matters is whether anything does.
        curve("waiting, at most twice the limit", |link| {
            link.queued.min(2.0 * link.limit)
        }),
        curve("limit", |link| link.limit),
    ]
}
