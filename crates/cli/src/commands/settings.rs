//! Looking at and changing the settings of a running transfer service: links, storage elements, who may change
//! them, drain, and the record of changes. The service judges; here values are put into FTS's forms and back.

mod audit;
mod cloud;
mod mutes;
pub mod shares;
mod typed;

pub use audit::audit;
pub use cloud::cloud_storage;
pub use mutes::mute;

use crate::args::settings::{
    AuthorizeCommand, DrainArgs, DrainVerb, LinkCommand, LinkSetArgs, OrNone, SeCommand, SeSetArgs,
};
use crate::commands::jobs::{Intent, connect};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::settings_api::SettingPlace;
use penstock_field_tools::transfer_api::TransferService;
use penstock_model::Rate;
use penstock_model::quantity::Speed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
struct LinkRow {
    symbolicname: String,
    source: String,
    destination: String,
    min_active: Option<u32>,
    max_active: Option<u32>,
    optimizer_mode: Option<u8>,
    tuning: Option<String>,
    #[serde(default)]
    max_throughput: Option<f64>,
    #[serde(default)]
    draining: bool,
}

#[derive(Debug, Deserialize)]
struct SeRow {
    #[serde(default)]
    se_info: SeInfo,
}

#[derive(Debug, Default, Deserialize)]
struct SeInfo {
    inbound_max_active: Option<u32>,
    outbound_max_active: Option<u32>,
    site: Option<String>,
    se_metadata: Option<String>,
    #[serde(default)]
    inbound_max_throughput: Option<f64>,
    #[serde(default)]
    outbound_max_throughput: Option<f64>,
    #[serde(default)]
    draining: bool,
}

#[derive(Debug, Deserialize)]
struct GrantRow {
    dn: String,
    operation: String,
    storage: Option<String>,
}

#[derive(Debug, Deserialize)]
struct HostRow {
    hostname: String,
    drain: bool,
}

/// Prints the answer: as it came, or as lines that `text` makes of it; `none` stands for no lines.
fn show<T: DeserializeOwned>(
    output: Output,
    answer: &Value,
    text: impl FnOnce(T) -> String,
) -> Result<(), CommandError> {
    let rows: T =
        serde_json::from_value(answer.clone()).map_err(CommandError::unreadable_answer)?;
    output.show(answer, || match text(rows) {
        lines if lines.is_empty() => "none\n".to_owned(),
        lines => lines,
    });
    Ok(())
}

fn place<'a>(kind: &'a str, name: Option<&'a str>) -> SettingPlace<'a> {
    SettingPlace {
        kind,
        name,
        query: &[],
    }
}

fn filtered<'a>(kind: &'a str, query: &'a [(&'a str, Option<&'a str>)]) -> SettingPlace<'a> {
    SettingPlace {
        kind,
        name: None,
        query,
    }
}

fn removed(output: Output, what: &str) {
    output.show(&json!({"removed": what}), || {
        format!("{what}: settings removed\n")
    });
}

/// A form of the fields that were said.
fn form(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let said = fields
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Value::Object(said.collect())
}

fn said<T: Serialize>(value: &Option<T>) -> Option<Value> {
    value.as_ref().map(|value| json!(value))
}

fn said_or_none<T: Serialize>(value: &Option<OrNone<T>>) -> Option<Value> {
    value.as_ref().map(|value| match value {
        OrNone::Some(value) => json!(value),
        OrNone::None => Value::Null,
    })
}

/// FTS's unit of throughput.
const MIB: f64 = 1024.0 * 1024.0;

fn throughput(speed: &Option<OrNone<Speed>>) -> Option<Value> {
    speed.as_ref().map(|speed| match speed {
        OrNone::Some(speed) => json!(speed.0 as f64 / MIB),
        OrNone::None => Value::Null,
    })
}

fn shown_rate(of: &str, throughput: Option<f64>) -> String {
    let rate = throughput.map(|units| Rate((units * MIB).round() as u64));
    rate.map(|rate| format!(", {of} {rate}"))
        .unwrap_or_default()
}

fn shown_drain(draining: bool) -> &'static str {
    if draining { ", draining" } else { "" }
}

fn number(value: Option<u32>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// `penstock link`.
pub async fn link(
    command: LinkCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let of = match &command {
        LinkCommand::List(args) => &args.service,
        LinkCommand::Show(args) | LinkCommand::Remove(args) => &args.service,
        LinkCommand::Set(args) => &args.service,
    };
    let service = connect(of, Intent::Administer, environment)?;
    match &command {
        LinkCommand::List(_) => {
            let found = service.settings(place("links", None)).await?;
            show(output, &found, |rows: Vec<LinkRow>| {
                rows.iter().map(link_line).collect()
            })
        }
        LinkCommand::Show(args) => {
            let found = service.settings(place("links", Some(&args.name))).await?;
            show(output, &found, |row: LinkRow| link_line(&row))
        }
        LinkCommand::Set(args) => {
            let set = service.set(place("links", None), &link_form(args)).await?;
            show(output, &set, |row: LinkRow| link_line(&row))
        }
        LinkCommand::Remove(args) => {
            // FTS answers the same whether there was one or not.
            service.settings(place("links", Some(&args.name))).await?;
            service.unset(place("links", Some(&args.name))).await?;
            removed(output, &args.name);
            Ok(())
        }
    }
}

fn link_form(args: &LinkSetArgs) -> Value {
    form([
        ("symbolicname", Some(json!(args.name))),
        ("source", said(&args.source)),
        ("destination", said(&args.destination)),
        ("min_active", said(&args.min)),
        ("max_active", said(&args.max)),
        ("optimizer_mode", said_or_none(&args.mode)),
        ("tuning", said_or_none(&args.tuning)),
        ("max_throughput", throughput(&args.rate)),
        ("draining", said(&args.drain)),
    ])
}

fn link_line(row: &LinkRow) -> String {
    let mode = row.optimizer_mode.map(|mode| format!(", mode {mode}"));
    let tuning = row
        .tuning
        .as_ref()
        .map(|tuning| format!(", tuning {tuning}"));
    format!(
        "{}  {} -> {}  max {}, min {}{}{}{}{}\n",
        row.symbolicname,
        row.source,
        row.destination,
        number(row.max_active),
        number(row.min_active),
        mode.unwrap_or_default(),
        tuning.unwrap_or_default(),
        shown_rate("rate", row.max_throughput),
        shown_drain(row.draining)
    )
}

/// `penstock se`.
pub async fn se(
    command: SeCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let of = match &command {
        SeCommand::List(args) => &args.service,
        SeCommand::Show(args) | SeCommand::Remove(args) => &args.service,
        SeCommand::Set(args) => &args.service,
    };
    let service = connect(of, Intent::Administer, environment)?;
    match &command {
        SeCommand::List(_) => {
            let found = service.settings(place("se", None)).await?;
            show(output, &found, se_lines)
        }
        SeCommand::Show(args) => show_se(&service, &args.storage, output).await,
        SeCommand::Set(args) => {
            let form = json!({&args.storage: {"se_info": se_form(args)}});
            service.set(place("se", None), &form).await?;
            show_se(&service, &args.storage, output).await
        }
        SeCommand::Remove(args) => {
            let query = [("se", Some(args.storage.as_str()))];
            settings_of_se(&service, &args.storage).await?;
            service.unset(filtered("se", &query)).await?;
            removed(output, &args.storage);
            Ok(())
        }
    }
}

async fn show_se(
    service: &TransferService,
    storage: &str,
    output: Output,
) -> Result<(), CommandError> {
    let found = settings_of_se(service, storage).await?;
    show(output, &found, se_lines)
}

/// Errors: [`CommandError::NotFound`] where nothing is set.
async fn settings_of_se(service: &TransferService, storage: &str) -> Result<Value, CommandError> {
    let query = [("se", Some(storage))];
    let found = service.settings(filtered("se", &query)).await?;
    match found.as_object().is_some_and(Map::is_empty) {
        true => Err(CommandError::NotFound(format!(
            "there are no settings for {storage}"
        ))),
        false => Ok(found),
    }
}

fn se_form(args: &SeSetArgs) -> Value {
    form([
        ("inbound_max_active", said_or_none(&args.inbound)),
        ("outbound_max_active", said_or_none(&args.outbound)),
        ("inbound_max_throughput", throughput(&args.in_rate)),
        ("outbound_max_throughput", throughput(&args.out_rate)),
        ("draining", said(&args.drain)),
        ("site", said_or_none(&args.site)),
        ("se_metadata", said_or_none(&args.note)),
    ])
}

fn se_lines(rows: BTreeMap<String, SeRow>) -> String {
    let note = |text: Option<String>| text.map(|text| format!("  {text}")).unwrap_or_default();
    let line = |(storage, row): (String, SeRow)| {
        let info = row.se_info;
        format!(
            "{storage}  in {}, out {}{}{}{}{}{}\n",
            number(info.inbound_max_active),
            number(info.outbound_max_active),
            shown_rate("in rate", info.inbound_max_throughput),
            shown_rate("out rate", info.outbound_max_throughput),
            shown_drain(info.draining),
            note(info.site),
            note(info.se_metadata)
        )
    };
    rows.into_iter().map(line).collect()
}

/// `penstock authorize`.
pub async fn authorize(
    command: AuthorizeCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let of = match &command {
        AuthorizeCommand::List(args) => &args.service,
        AuthorizeCommand::Set(args) | AuthorizeCommand::Remove(args) => &args.service,
    };
    let service = connect(of, Intent::Administer, environment)?;
    match &command {
        AuthorizeCommand::List(_) => {
            let found = service.settings(place("authorize", None)).await?;
            show(output, &found, |rows: Vec<GrantRow>| {
                rows.iter().map(grant_line).collect()
            })
        }
        AuthorizeCommand::Set(args) => {
            let form = form([
                ("dn", Some(json!(args.user))),
                ("operation", Some(json!(args.operation.name()))),
                ("storage", said(&args.storage)),
            ]);
            let set = service.set(place("authorize", None), &form).await?;
            show(output, &set, |row: GrantRow| grant_line(&row))
        }
        AuthorizeCommand::Remove(args) => {
            let query = [
                ("dn", Some(args.user.as_str())),
                ("operation", Some(args.operation.name())),
                ("storage", args.storage.as_deref()),
            ];
            service.unset(filtered("authorize", &query)).await?;
            removed(output, &args.user);
            Ok(())
        }
    }
}

fn grant_line(row: &GrantRow) -> String {
    let what = row.storage.as_deref().unwrap_or("everything");
    format!("{}  {}: {what}\n", row.dn, row.operation)
}

/// `penstock drain`.
pub async fn drain(
    args: DrainArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Administer, environment)?;
    let hosts = service.settings(SettingPlace::default()).await?;
    let drained = match args.verb {
        DrainVerb::Show => return show(output, &hosts, host_lines),
        DrainVerb::On => true,
        DrainVerb::Off => false,
    };
    let host = hosts.pointer("/0/hostname").and_then(Value::as_str);
    let form = json!({"hostname": host, "drain": drained});
    service.set(place("drain", None), &form).await?;
    let hosts = service.settings(SettingPlace::default()).await?;
    show(output, &hosts, host_lines)
}

fn host_lines(rows: Vec<HostRow>) -> String {
    let line = |row: HostRow| match row.drain {
        true => format!(
            "{} is drained: no transfers start until `penstock drain off`\n",
            row.hostname
        ),
        false => format!("{} is not drained: transfers start\n", row.hostname),
    };
    rows.into_iter().map(line).collect()
}
