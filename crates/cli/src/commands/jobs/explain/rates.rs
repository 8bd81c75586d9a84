//! `penstock explain --since …` and `penstock explain drop ID`: from a service, or from the record of a site that is stopped.

use super::super::record_choice::{
    failed, json, known_to_service, last, nothing_known, question, read_records, times, view,
    view_line, window,
};
use super::super::{Intent, connect};
use crate::args::RecordArgs;
use crate::args::population::NamedPopulation;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_decide::explain::{PopulationChoice, RateChangeId, RateChangeKind};
use penstock_model::text::{one_line, plural};
use penstock_model::{Rate, TimeSpan};
use penstock_observe::explanations::{Disclosure, RateChangeRow, RateChanges, detail};
use serde_json::Value;
use std::time::Duration;

/// The window without `--since`.
const DAY: Duration = Duration::from_secs(86_400);

/// Where rates fell and rose.
pub(super) async fn list(
    args: &RecordArgs,
    named: Option<&NamedPopulation>,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let window = window(args, DAY)?;
    let told = match (&args.records, args.offline) {
        (Some(records), _) => {
            let wanted = NamedPopulation::choice(named);
            let read = read_records(args, records, window, &wanted)?;
            json(&RateChanges::of(&read.changes(), &read))?
        }
        (None, true) => {
            let window = window.unwrap_or_else(|| last(DAY));
            let question = question(args, Some(window), NamedPopulation::choice(named))?;
            json(&view(args)?.rate_changes(&question).map_err(failed)?)?
        }
        (None, false) => {
            let service = connect(&args.service, Intent::Manage, environment)?;
            service.rate_changes(&times(args, window, named)).await?
        }
    };
    let changes: RateChanges =
        serde_json::from_value(told.clone()).map_err(CommandError::unreadable_answer)?;
    let is_unknown = changes.populations == 0 && changes.links_left_out == 0;
    let unknown = named.filter(|_| is_unknown);
    // An option is a filter, which may leave nothing; a name is of something.
    if let Some(unknown) = unknown.filter(|_| args.population.named().is_none()) {
        return Err(CommandError::NotInRecord(format!(
            "{} from {}Z to {}Z; links are named SOURCE-DESTINATION, `penstock explain` without a name lists what fell on all, \
             --since looks further back",
            unknown.unknown(),
            changes.from.to_fts(),
            changes.to.to_fts()
        )));
    }
    output.show(&told, || match unknown {
        Some(unknown) => nothing_known(unknown, changes.from, changes.to),
        None => text(&changes),
    });
    Ok(())
}

/// One of these changes.
pub(super) async fn one(
    args: &RecordArgs,
    id: &str,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let id = parse_id(id)?;
    let window = window(args, DAY)?;
    let told = match (&args.records, args.offline) {
        (Some(records), _) => {
            let wanted = PopulationChoice::OfChange(id);
            let read = read_records(args, records, window, &wanted)?;
            let bin_seconds = read.signals.bin_seconds;
            let told = detail(&read.changes(), id, bin_seconds, Disclosure::Everything);
            json(&told.ok_or_else(|| unknown_id(id))?)?
        }
        (None, true) => {
            let question = question(args, window, PopulationChoice::Links)?;
            let told = view(args)?.rate_change(id, &question).map_err(failed)?;
            json(&told.ok_or_else(|| unknown_id(id))?)?
        }
        (None, false) => {
            let service = connect(&args.service, Intent::Manage, environment)?;
            let times = times(args, window, None);
            let told = service.rate_change(&id.to_string(), &times).await;
            known_to_service(told, || unknown_id(id))?
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
    CommandError::NotInRecord(format!(
        "no rate fell or rose with the id '{id}' as far as the record goes; `penstock explain` with the same options and \
         without an id lists those that did"
    ))
}

fn text(told: &RateChanges) -> String {
    let examined = match told.populations {
        1 => "1 link, storage element or pool".to_owned(),
        count => format!("{count} links, storage elements or pools"),
    };
    let mut text = format!(
        "{}Z to {}Z: {examined} examined, in intervals of {}\n",
        told.from.to_fts(),
        told.to.to_fts(),
        TimeSpan::of_seconds(told.resolution_seconds.into())
    );
    text += &view_line(told.view);
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
        text += "`penstock explain drop ID` shows the evidence and what to do\n";
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
            format!("{low} instead of {usual}: no files were queued"),
        ),
    };
    let end = match row.is_over {
        true => format!("to {}Z", row.to.to_fts()),
        false => format!("to {}Z at least", row.to.to_fts()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_decide::explain::{Population, RateChangeId};
    use penstock_model::{LinkId, StorageId, Timestamp};

    #[test]
    fn a_drop_that_has_not_ended_is_told_with_the_time_until_which_it_is_known() {
        let population = Population::Link(LinkId {
            source: StorageId::new("https://a"),
            destination: StorageId::new("https://b"),
        });
        let from = Timestamp(1_143_849_600_000);
        let mut row = RateChangeRow {
            id: RateChangeId::new(&population, from),
            kind: RateChangeKind::Lull,
            population,
            from,
            to: Timestamp(from.0 + 3_600_000),
            is_over: false,
            usual_bytes_per_second: 2_000_000,
            low_bytes_per_second: 0,
            causes: Vec::new(),
            unexplained_percent: 0.0,
        };
        let text = lines(&row);
        assert!(text.contains("to 2006-04-01T01:00:00Z at least"), "{text}");
        row.is_over = true;
        let text = lines(&row);
        assert!(text.contains("to 2006-04-01T01:00:00Z  "), "{text}");
    }
}
