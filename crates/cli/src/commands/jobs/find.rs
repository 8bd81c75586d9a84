//! `penstock find`: transfers by what is known of them, page by page; and the story of one of them.

use super::live::{LiveBytes, Moving};
use super::{Intent, connect};
use crate::args::FindArgs;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::transfer_api::{FindQuestion, FoundPage, TransferService};
use penstock_model::text::{one_line, plural};
use penstock_model::{Bytes, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Pages that are asked for at most; the service looks at some ten thousand transfers for each.
const PAGES_MAX: usize = 100;
/// Transfers that one page may have.
const PAGE_MAX: u32 = 500;

#[derive(Debug, Deserialize)]
struct Row {
    transfer: u64,
    job: String,
    vo: String,
    user: String,
    state: String,
    source: String,
    destination: String,
    activity: String,
    submitted: i64,
    size_bytes: Option<u64>,
    reason: Option<String>,
    /// While it moves.
    #[serde(skip)]
    moving: Option<Moving>,
}

#[derive(Debug, Deserialize)]
struct Story {
    #[serde(flatten)]
    row: Row,
    job_state: String,
    #[serde(default)]
    starts: Option<Starts>,
    steps: Vec<Step>,
}

/// When one that waits will probably start.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Starts {
    About(i64),
    NotBefore(i64),
}

#[derive(Debug, Deserialize)]
struct Step {
    at: i64,
    text: String,
}

fn read<T: for<'a> Deserialize<'a>>(value: &Value) -> Result<T, CommandError> {
    T::deserialize(value).map_err(CommandError::unreadable_answer)
}

/// `penstock find`.
pub async fn run(
    args: FindArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Manage, environment)?;
    let mut question = FindQuestion {
        words: args.words.join(" "),
        host: args.host,
        source: args.source,
        destination: args.destination,
        states: args.states,
        vo: args.vo,
        within_seconds: args.since.map(|span| span.0.as_secs()),
        before: args.before,
        limit: 0,
    };
    let (mut found, mut examined, mut removed_until) = (Vec::new(), 0, None);
    for _ in 0..PAGES_MAX {
        let left = args.limit as usize - found.len();
        question.limit = u32::try_from(left).unwrap_or(PAGE_MAX).min(PAGE_MAX);
        let page: FoundPage = service.find(&question).await?;
        found.extend(page.transfers);
        examined += page.examined;
        removed_until = page.removed_until;
        question.before = page.next;
        if page.next.is_none() || found.len() >= args.limit as usize {
            break;
        }
    }
    let mut rows: Vec<Row> = found.iter().map(read).collect::<Result<_, _>>()?;
    let active = rows.iter().filter(|row| row.state == "ACTIVE");
    let jobs: BTreeSet<String> = active.map(|row| row.job.clone()).collect();
    let live = LiveBytes::of(&service, &jobs.into_iter().collect::<Vec<_>>()).await;
    for (row, value) in rows.iter_mut().zip(&mut found) {
        row.moving = live.of_file(row.transfer);
        if let (Some(moving), Some(object)) = (&row.moving, value.as_object_mut()) {
            object.insert("moving".to_owned(), json!(moving));
        }
    }
    let next = question.before;
    let all = json!({
        "transfers": found, "next": next, "examined": examined, "removed_until": removed_until,
    });
    let end = next.is_none().then_some(removed_until).flatten();
    output.show(&all, || {
        text(&rows, next, examined) + &end.map_or_else(String::new, removed)
    });
    Ok(())
}

fn text(rows: &[Row], next: Option<u64>, examined: u64) -> String {
    let mut text: String = rows.iter().map(line).collect();
    if rows.is_empty() {
        text += &format!("no match in {}\n", plural(examined, "transfer"));
    }
    if let Some(next) = next {
        text += &format!("older transfers may match: continue with --before {next}\n");
    }
    text
}

fn removed(until: i64) -> String {
    let until = Timestamp(until).to_fts();
    format!("some jobs that ended before {until}Z have been removed from the history\n")
}

fn line(row: &Row) -> String {
    let reason = row.reason.as_ref();
    let reason = reason.map_or(String::new(), |reason| {
        format!("\n    {}", one_line(reason))
    });
    let moving = row.moving.as_ref();
    let moving = moving.map_or_else(String::new, |moving| format!(" ({})", moving.amounts()));
    format!(
        "{}  {}Z  {}{moving}  {}\n    {} -> {}{reason}\n",
        row.transfer,
        Timestamp(row.submitted).to_fts(),
        one_line(&row.state),
        one_line(&row.vo),
        one_line(&row.source),
        one_line(&row.destination)
    )
}

/// The number of the latest transfer that has this in one of its addresses.
pub(super) async fn latest_of(
    service: &TransferService,
    address: &str,
) -> Result<u64, CommandError> {
    let mut question = FindQuestion {
        words: address.to_owned(),
        limit: 1,
        ..FindQuestion::default()
    };
    for _ in 0..PAGES_MAX {
        let page: FoundPage = service.find(&question).await?;
        if let Some(found) = page.transfers.first() {
            return Ok(read::<Row>(found)?.transfer);
        }
        question.before = page.next;
        if page.next.is_none() {
            break;
        }
    }
    Err(CommandError::NotFound(format!(
        "no recorded transfer has '{}' in its source or destination",
        one_line(address)
    )))
}

/// The story of one transfer.
pub(super) fn show_story(told: &Value, output: Output) -> Result<(), CommandError> {
    let story: Story = read(told)?;
    output.show(told, || story_text(&story));
    Ok(())
}

fn story_text(story: &Story) -> String {
    let row = &story.row;
    let size = row
        .size_bytes
        .map_or(String::new(), |size| format!(", {}", Bytes(size)));
    let mut text = format!(
        "transfer {} is {}{size}\n  {}\n  -> {}\n  of job {} ({}), of {} for {}, activity {}\n\n",
        row.transfer,
        one_line(&row.state),
        one_line(&row.source),
        one_line(&row.destination),
        one_line(&row.job),
        one_line(&story.job_state),
        one_line(&row.user),
        one_line(&row.vo),
        one_line(&row.activity)
    );
    text += &match story.starts {
        Some(Starts::About(at)) => format!("expected start {}Z\n\n", Timestamp(at).to_fts()),
        Some(Starts::NotBefore(at)) => {
            format!("earliest start {}Z\n\n", Timestamp(at).to_fts())
        }
        None => String::new(),
    };
    for step in &story.steps {
        let at = Timestamp(step.at);
        let millis = step.at.rem_euclid(1000);
        text += &format!("{}.{millis:03}Z  {}\n", at.to_fts(), one_line(&step.text));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Value {
        json!({
            "transfer": 7, "job": "j", "vo": "cms", "user": "alice", "state": "FAILED", "source": "https://a/f",
            "destination": "https://b/f", "activity": "default", "submitted": 1500, "started": null,
            "finished": null, "size_bytes": 5_000_000, "reason": "SOURCE [2] gone",
        })
    }

    #[test]
    fn what_was_found_is_told_with_where_to_go_on() {
        let found: Row = read(&row()).expect("a row");
        assert_eq!(
            text(&[found], Some(7), 9),
            "7  1970-01-01T00:00:01Z  FAILED  cms\n    https://a/f -> https://b/f\n    SOURCE [2] gone\n\
             older transfers may match: continue with --before 7\n"
        );
        assert_eq!(text(&[], None, 9), "no match in 9 transfers\n");
    }

    #[test]
    fn text_of_others_stays_on_its_line() {
        let mut forged = row();
        forged["source"] = json!("https://a/x\n8  1970-01-01T00:00:02  FINISHED");
        let found: Row = read(&forged).expect("a row");
        assert_eq!(text(&[found], None, 1).lines().count(), 3);
    }

    #[test]
    fn a_story_is_told_line_by_line() {
        let mut told = row();
        told["job_state"] = json!("FAILED");
        told["steps"] = json!([{"at": 1500, "kind": "accepted", "text": "accepted"}]);
        let story: Story = read(&told).expect("a story");
        assert_eq!(
            story_text(&story),
            "transfer 7 is FAILED, 5.0 MB\n  https://a/f\n  -> https://b/f\n  of job j (FAILED), of alice for cms, \
             activity default\n\n1970-01-01T00:00:01.500Z  accepted\n"
        );
        told["starts"] = json!({"about": 61_000});
        let story: Story = read(&told).expect("a story");
        assert!(story_text(&story).contains("\n\nexpected start 1970-01-01T00:01:01Z\n\n"));
    }
}
