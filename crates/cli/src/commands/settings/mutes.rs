//! `penstock mute`: no alerts of some incidents for a while.

use super::{form, said, show};
use crate::args::records::link_name;
use crate::args::{MuteCommand, MuteScopeArgs};
use crate::commands::jobs::{Intent, connect};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_model::text::{one_line, plural};
use penstock_model::{IncidentClass, Timestamp};
use serde::Deserialize;
use serde_json::json;

#[derive(Debug, Deserialize)]
struct MuteRow {
    link: Option<String>,
    vo: Option<String>,
    class: Option<String>,
    until: Timestamp,
    by: String,
    why: String,
    suppressed_alerts: u64,
}

/// `penstock mute`.
pub async fn mute(
    command: MuteCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    if let MuteCommand::Add(args) = &command
        && let Some(link) = &args.scope.link
    {
        link_name(link)
            .map_err(|why| CommandError::Usage(format!("'{}': {why}", one_line(link))))?;
    }
    let of = match &command {
        MuteCommand::Add(args) => &args.service,
        MuteCommand::List(args) => &args.service,
        MuteCommand::Remove(args) => &args.service,
    };
    let service = connect(of, Intent::Administer, environment)?;
    match &command {
        MuteCommand::Add(args) => {
            let [link, vo, class] = scope(&args.scope);
            let form = form([
                ("link", said(&link)),
                ("vo", said(&vo)),
                ("class", said(&class)),
                ("seconds", Some(json!(args.span.0.as_secs()))),
                ("why", Some(json!(args.why))),
            ]);
            let set = service.add_mute(&form).await?;
            show(output, &set, |row: MuteRow| line(&row))
        }
        MuteCommand::List(_) => {
            let found = service.mutes().await?;
            show(output, &found, |rows: Vec<MuteRow>| match rows.is_empty() {
                true => "no mutes\n".to_owned(),
                false => rows.iter().map(line).collect(),
            })
        }
        MuteCommand::Remove(args) => {
            let [link, vo, class] = scope(&args.scope);
            let named = [("link", link), ("vo", vo), ("class", class)];
            let named = named
                .into_iter()
                .find_map(|(kind, name)| Some((kind, name?)));
            let (kind, name) = named.unwrap_or_default();
            service.remove_mute(kind, name).await?;
            output.show(&json!({"removed": {kind: name}}), || {
                format!("the mute of {kind} {name} was removed\n")
            });
            Ok(())
        }
    }
}

fn scope(args: &MuteScopeArgs) -> [Option<&str>; 3] {
    let class = args.class.map(IncidentClass::word);
    [args.link.as_deref(), args.vo.as_deref(), class]
}

fn line(row: &MuteRow) -> String {
    let named = [("link", &row.link), ("VO", &row.vo), ("class", &row.class)];
    let named = named
        .into_iter()
        .find_map(|(kind, name)| Some((kind, name.as_ref()?)));
    let scope = named.map_or(String::new(), |(kind, name)| format!("{kind} {name}"));
    format!(
        "{}  until {}Z, {} suppressed, by {}: {}\n",
        one_line(&scope),
        row.until.to_fts(),
        plural(row.suppressed_alerts, "alert"),
        one_line(&row.by),
        one_line(&row.why)
    )
}
