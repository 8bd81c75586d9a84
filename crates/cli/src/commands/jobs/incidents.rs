//! `penstock incidents`: what went wrong, by cause; one of them; a ticket for those who can
//! end it.

use super::record_choice::{
    failed, json, known_to_service, last, nothing_known, question, read_records, times, view,
    view_line, window,
};
use super::{Intent, connect};
use crate::args::population::NamedPopulation;
use crate::args::{IncidentsArgs, IncidentsCommand, RecordArgs};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_clock::wall_clock;
use penstock_decide::incidents::{Incident, IncidentId, IncidentTimes, Month, known_until};
use penstock_decide::wording;
use penstock_model::text::{one_line, plural, printable};
use penstock_model::{Bytes, IncidentClass, TimeSpan, TimeWindow};
use penstock_observe::explanations::Disclosure;
use penstock_observe::explanations::reading::ExplainedWindow;
use penstock_observe::incidents::{IncidentList, IncidentRow, MonthRow, incident_detail};
use serde_json::Value;
use std::time::Duration;

/// The window without `--since`.
const USUAL: Duration = Duration::from_secs(30 * 86_400);

/// `penstock incidents`.
pub async fn run(
    args: IncidentsArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    match &args.command {
        None => list(&args, environment, output).await,
        Some(IncidentsCommand::Show(one)) => {
            let told = detail(&one.record, one.id, environment).await?;
            output.show(&told, || shown(&told));
            Ok(())
        }
        Some(IncidentsCommand::Ticket(one)) => {
            let told = detail(&one.record, one.id, environment).await?;
            output.show(&told, || printable(text_of(&told, "ticket")).into_owned());
            Ok(())
        }
    }
}

async fn list(
    args: &IncidentsArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let record = &args.record;
    let window = match args.month {
        Some(month) => Some(window_of(month)?),
        None => window(record, USUAL)?,
    };
    let named = record.population.named();
    let wanted = NamedPopulation::choice(named.as_ref());
    let told = match (&record.records, record.offline) {
        (Some(records), _) => {
            let read = read_records(record, records, window, &wanted)?;
            let incidents = incidents_of_records(&read);
            json(&IncidentList::of(
                &incidents,
                &read,
                args.class,
                Disclosure::Everything,
            ))?
        }
        (None, true) => {
            let window = window.unwrap_or_else(|| last(USUAL));
            let question = question(record, Some(window), wanted)?;
            let told = view(record)?.incident_list(&question, args.class);
            json(&told.map_err(failed)?)?
        }
        (None, false) => {
            let service = connect(&record.service, Intent::Manage, environment)?;
            let times = times(record, window, named.as_ref());
            let class = args.class.map(IncidentClass::word);
            service.incidents(&times, class).await?
        }
    };
    let list: IncidentList =
        serde_json::from_value(told.clone()).map_err(CommandError::unreadable_answer)?;
    let is_unknown = list.links == 0 && list.links_left_out == 0;
    output.show(&told, || match named.as_ref().filter(|_| is_unknown) {
        Some(named) => nothing_known(named, list.from, list.to),
        None => text(&list),
    });
    Ok(())
}

/// One incident, as the interface of the service tells it.
async fn detail(
    record: &RecordArgs,
    id: IncidentId,
    environment: &Environment,
) -> Result<Value, CommandError> {
    let window = window(record, USUAL)?;
    let named = record.population.named();
    let wanted = NamedPopulation::choice(named.as_ref());
    let unknown = || {
        CommandError::NotInRecord(format!(
            "no incident has the id '{id}' as far as the record goes; `penstock incidents` with the same options lists them"
        ))
    };
    match (&record.records, record.offline) {
        (Some(records), _) => {
            let read = read_records(record, records, window, &wanted)?;
            let incidents = incidents_of_records(&read);
            let told = incident_detail(&incidents, id, Disclosure::Everything);
            json(&told.ok_or_else(unknown)?)
        }
        (None, true) => {
            let question = question(record, window, wanted)?;
            let told = view(record)?.incident_detail(id, &question);
            json(&told.map_err(failed)?.ok_or_else(unknown)?)
        }
        (None, false) => {
            let service = connect(&record.service, Intent::Manage, environment)?;
            let times = times(record, window, named.as_ref());
            known_to_service(service.incident(&id.to_string(), &times).await, unknown)
        }
    }
}

/// Open is what had not ended where the record ends: it may be years old.
fn incidents_of_records(read: &ExplainedWindow) -> Vec<Incident> {
    read.incidents(IncidentTimes::default(), known_until(&read.signals))
}

/// A month as far as it has passed.
fn window_of(month: Month) -> Result<TimeWindow, CommandError> {
    let window = month.window();
    let to = window.to.min(wall_clock());
    match window.from < to {
        true => Ok(TimeWindow { to, ..window }),
        false => Err(CommandError::Usage(format!("{month} has not begun"))),
    }
}

fn text_of<'a>(told: &'a Value, field: &str) -> &'a str {
    told.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn text(list: &IncidentList) -> String {
    let mut text = format!(
        "{}Z to {}Z, {}, intervals of {}\n",
        list.from.to_fts(),
        list.to.to_fts(),
        plural(list.links as u64, "link"),
        TimeSpan::of_seconds(list.resolution_seconds.into())
    );
    text += &view_line(list.view);
    if let Some(since) = list.complete_since {
        text += &format!("the record is complete since {}Z only\n", since.to_fts());
    }
    if list.links_left_out > 0 {
        text += &format!(
            "{} left out: too many for so long a window; ask for a shorter one, or for one with --link\n",
            plural(list.links_left_out as u64, "link")
        );
    }
    if list.incidents_left_out > 0 {
        text += &format!(
            "{} before these; ask for a shorter window\n",
            plural(list.incidents_left_out as u64, "incident")
        );
    }
    if list.incidents.is_empty() {
        text += "no incidents\n";
    }
    list.incidents.iter().for_each(|row| text += &lines(row));
    list.months.iter().for_each(|month| text += &shares(month));
    if !list.incidents.is_empty() {
        text += "show one with `penstock incidents show ID`, print a ticket with `penstock incidents ticket ID`\n";
    }
    text
}

/// Three lines.
fn lines(row: &IncidentRow) -> String {
    let end = match row.is_open {
        true => format!("open, last seen {}Z", row.last_seen.to_fts()),
        false => format!("ended, last seen {}Z", row.last_seen.to_fts()),
    };
    format!(
        "incident {}  {}  since {}Z, {end}\n  {}\n  {}\n",
        row.id,
        row.class,
        row.first_seen.to_fts(),
        one_line(&row.text),
        counts(row)
    )
}

fn counts(row: &IncidentRow) -> String {
    let lost = row.bytes_lost.map(Bytes);
    wording::incident_counts(row.failed_attempts, row.drops, lost, row.links)
}

fn shares(month: &MonthRow) -> String {
    let of_classes = month.classes.iter();
    let parts: Vec<String> = of_classes
        .map(|class| {
            format!(
                "{} {:.1} % ({})",
                class.class, class.share_percent, class.incidents
            )
        })
        .collect();
    format!(
        "month {}: {}: {}\n",
        month.month,
        plural(month.incidents, "incident"),
        parts.join(", ")
    )
}

/// An incident for a terminal.
fn shown(told: &Value) -> String {
    // The service words it; a row that is not understood is not worth hiding the ticket for.
    let row = serde_json::from_value::<IncidentRow>(told.clone());
    let head = row.map_or(String::new(), |row| lines(&row));
    format!("{head}\n{}", printable(text_of(told, "ticket")))
}
