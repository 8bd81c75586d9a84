//! `penstock vo-share` and `penstock activity`: how much of a transfer service's slots goes to whom.

use super::{filtered, place, removed, show};
use crate::args::settings::{ActivityCommand, VoShareCommand};
use crate::commands::jobs::{Intent, connect};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
struct ShareRow {
    source: String,
    destination: String,
    vo: String,
    share: f64,
}

#[derive(Debug, Deserialize)]
struct ActivityRow {
    share: BTreeMap<String, f64>,
    active: bool,
}

/// `penstock vo-share`.
pub async fn vo(
    command: VoShareCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let of = match &command {
        VoShareCommand::List(args) => &args.service,
        VoShareCommand::Set(args) => &args.service,
        VoShareCommand::Remove(args) => &args.service,
    };
    let service = connect(of, Intent::Administer, environment)?;
    match &command {
        VoShareCommand::List(_) => {
            let found = service.settings(place("shares", None)).await?;
            show(output, &found, |rows: Vec<ShareRow>| {
                rows.iter().map(share_line).collect()
            })
        }
        VoShareCommand::Set(args) => {
            let form = json!({
                "source": args.source,
                "destination": args.destination,
                "vo": args.vo,
                "share": args.share,
            });
            let set = service.set(place("shares", None), &form).await?;
            show(output, &set, |row: ShareRow| share_line(&row))
        }
        VoShareCommand::Remove(args) => {
            let query = [
                ("source", Some(args.source.as_str())),
                ("destination", Some(args.destination.as_str())),
                ("vo", Some(args.vo.as_str())),
            ];
            service.unset(filtered("shares", &query)).await?;
            removed(output, &args.vo);
            Ok(())
        }
    }
}

fn share_line(row: &ShareRow) -> String {
    let ShareRow {
        source,
        destination,
        vo,
        share,
    } = row;
    format!("{vo}  {source} -> {destination}  share {share}\n")
}

/// `penstock activity`.
pub async fn activity(
    command: ActivityCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let of = match &command {
        ActivityCommand::List(args) => &args.service,
        ActivityCommand::Show(args) | ActivityCommand::Remove(args) => &args.service,
        ActivityCommand::Set(args) => &args.service,
    };
    let service = connect(of, Intent::Administer, environment)?;
    const KIND: &str = "activity_shares";
    match &command {
        ActivityCommand::List(_) => {
            let found = service.settings(place(KIND, None)).await?;
            show(output, &found, |rows: BTreeMap<String, ActivityRow>| {
                rows.iter()
                    .map(|(vo, row)| activity_lines(vo, row))
                    .collect()
            })
        }
        ActivityCommand::Show(args) => {
            let found = service.settings(place(KIND, Some(&args.vo))).await?;
            show(output, &found, |row: ActivityRow| {
                activity_lines(&args.vo, &row)
            })
        }
        ActivityCommand::Set(args) => {
            let given = args.shares.iter();
            let shares: Map<String, Value> = given
                .map(|(name, share)| (name.clone(), json!(share)))
                .collect();
            if shares.len() < args.shares.len() {
                return Err(CommandError::Usage("an activity is named twice".to_owned()));
            }
            let form = json!({"vo": args.vo, "share": shares, "active": !args.off});
            let set = service.set(place(KIND, None), &form).await?;
            show(output, &set, |row: ActivityRow| {
                activity_lines(&args.vo, &row)
            })
        }
        ActivityCommand::Remove(args) => {
            service.unset(place(KIND, Some(&args.vo))).await?;
            removed(output, &args.vo);
            Ok(())
        }
    }
}

fn activity_lines(vo: &str, row: &ActivityRow) -> String {
    let effect = match row.active {
        true => "",
        false => "  (without effect)",
    };
    let lines = row
        .share
        .iter()
        .map(|(activity, share)| format!("  {activity}  {share}\n"));
    format!("{vo}{effect}\n{}", lines.collect::<String>())
}
