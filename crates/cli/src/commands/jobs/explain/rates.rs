//! `penstock explain --since …` and `penstock explain drop ID`: from a service, or from the record of a site that is stopped.

use super::super::record_choice::{
    failed, json, last, question, read_records, times, view, window,
};
use super::super::{Intent, connect};
use crate::args::RecordArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_decide::explain::{RateChangeId, RateChangeKind};
use penstock_model::Rate;
use penstock_model::text::{one_line, plural};
use penstock_observe::explanations::{Disclosure, RateChangeRow, RateChanges, detail};
use serde_json::Value;
use std::time::Duration;

/// The window without `--since`.
const DAY: Duration = Duration::from_secs(86_400);

/// Where rates fell and rose.
pub(super) async fn list(
    args: &RecordArgs,
    link: Option<String>,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let window = window(args, DAY)?;
    let told = match (&args.records, args.offline) {
        (Some(records), _) => {
            let read = read_records(args, records, window, link)?;
            json(&RateChanges::of(&read.changes(), &read))?
        }
        (None, true) => {
            let question = question(args, Some(window.unwrap_or_else(|| last(DAY))), link)?;
            json(&view(args)?.rate_changes(&question).map_err(failed)?)?
        }
        (None, false) => {
            let service = connect(&args.service, Intent::Manage, environment)?;
            service.rate_changes(&times(args, window, link)).await?
        }
    };
    let changes: RateChanges = serde_json::from_value(told.clone()).map_err(|why| {
        CommandError::Unreachable(format!("the service's explanation makes no sense: {why}"))
    })?;
    output.show(&told, || text(&changes));
    Ok(())
}

/// One of these changes.
pub(super) async fn one(
    args: &RecordArgs,
    id: &str,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let window = window(args, DAY)?;
    let told = match (&args.records, args.offline) {
        (Some(records), _) => {
            let id = parse_id(id)?;
            let read = read_records(args, records, window, None)?;
            let bin_seconds = read.signals.bin_seconds;
            let told = detail(&read.changes(), id, bin_seconds, Disclosure::Everything);
            json(&told.ok_or_else(|| unknown_id(id))?)?
        }
        (None, true) => {
            let id = parse_id(id)?;
            let question = question(args, window, None)?;
            let told = view(args)?.rate_change(id, &question).map_err(failed)?;
            json(&told.ok_or_else(|| unknown_id(id))?)?
        }
        (None, false) => {
            let service = connect(&args.service, Intent::Manage, environment)?;
            service.rate_change(id, &times(args, window, None)).await?
        }
    };
    output.show(&told, || {
        let text = told.get("text").and_then(Value::as_str).unwrap_or_default();
        text.lines()
            .map(|line| format!("{}\n", one_line(line)))
            .collect()
    });
    Ok(())
}

fn parse_id(text: &str) -> Result<RateChangeId, CommandError> {
    text.parse()
        .map_err(|why| CommandError::Usage(format!("'{}': {why}", one_line(text))))
}

fn unknown_id(id: RateChangeId) -> CommandError {
    CommandError::NotFound(format!(
        "no rate fell or rose with the id '{id}' as far as the record goes; `penstock explain` with the same options and \
         without an id lists those that did"
    ))
}

fn text(told: &RateChanges) -> String {
    let mut text = format!(
        "{}Z to {}Z, {}, intervals of {} s\n",
        told.from.to_fts(),
        told.to.to_fts(),
        plural(told.populations as u64, "link"),
        told.resolution_seconds
    );
    if let Some(since) = told.complete_since {
        text += &format!("the record is complete since {}Z only\n", since.to_fts());
    }
    if told.links_left_out > 0 {
        text += &format!(
            "{} left out: too many for so long a window; ask for a shorter one, or for one with --link\n",
            plural(told.links_left_out as u64, "link")
        );
    }
    if told.drops.is_empty() {
        text += "no rate fell while there was work\n";
    }
    let rows = told.drops.iter().chain(&told.rises).chain(&told.lulls);
    for row in rows {
        text += &lines(row);
    }
    if !told.drops.is_empty() {
        text += "`penstock explain drop ID` tells one with its evidence and what to do\n";
    }
    text
}

fn lines(row: &RateChangeRow) -> String {
    let rate = |bytes: u64| Rate(bytes).to_string();
    let (usual, low) = (
        rate(row.usual_bytes_per_second),
        rate(row.low_bytes_per_second),
    );
    let (kind, rates) = match row.kind {
        RateChangeKind::Drop => ("drop", format!("{low} instead of {usual}")),
        RateChangeKind::Rise => ("rise", format!("{usual} instead of {low}")),
        RateChangeKind::Lull => (
            "lull",
            format!("{low} instead of {usual}: nothing was queued"),
        ),
    };
    let end = match row.is_over {
        true => format!("to {}Z", row.to.to_fts()),
        false => "until now".to_owned(),
    };
    let mut text = format!(
        "{kind} {}  {}Z {end}  {}\n  {rates}\n",
        row.id,
        row.from.to_fts(),
        one_line(&row.population.to_string()),
    );
    if row.kind == RateChangeKind::Lull {
        return text;
    }
    for cause in &row.causes {
        text += &format!(
            "  {:>3.0} % {} [{}]\n",
            cause.share_percent,
            one_line(&cause.text),
            one_line(&cause.code)
        );
    }
    if row.unexplained_percent >= 0.5 {
        text += &format!("  {:>3.0} % unexplained\n", row.unexplained_percent);
    }
    text
}
