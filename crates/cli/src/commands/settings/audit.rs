//! `penstock audit`: who changed which setting, and what differed.

use super::typed::{option_of, shown, unset};
use super::{filtered, show};
use crate::args::settings::AuditArgs;
use crate::commands::jobs::{Intent, connect, in_utc};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_model::text::one_line;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Fields that name what a change is about.
const NAMES: [&str; 9] = [
    "symbolicname",
    "se",
    "storage_name",
    "dn",
    "user_dn",
    "vo",
    "vo_name",
    "link",
    "class",
];

#[derive(Debug, Deserialize)]
struct AuditRow {
    datetime: String,
    dn: String,
    action: String,
    config: String,
    #[serde(default)]
    old: Value,
    #[serde(default)]
    new: Value,
}

/// `penstock audit`.
pub async fn audit(
    args: AuditArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let service = connect(&args.service, Intent::Administer, environment)?;
    let limit = args.limit.to_string();
    let query = [("limit", Some(limit.as_str()))];
    let found = service.settings(filtered("audit", &query)).await?;
    show(output, &found, |rows: Vec<AuditRow>| {
        rows.iter().map(audit_line).collect()
    })
}

fn audit_line(row: &AuditRow) -> String {
    let what = match (&row.old, &row.new) {
        // An FTS3 does not tell both.
        (Value::Null, Value::Null) => row.config.clone(),
        (old, new) => differences(old, new),
    };
    let text = format!(
        "{}  {}  {}: {what}",
        in_utc(&row.datetime),
        row.dn,
        row.action
    );
    // Whoever writes a setting must not write another entry with it.
    format!("{}\n", one_line(&text))
}

/// What a change was about, and what differed, by the options that set it.
pub(super) fn differences(old: &Value, new: &Value) -> String {
    let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
    flatten("", old, &mut before);
    flatten("", new, &mut after);
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let (names, others): (Vec<&String>, Vec<&String>) = keys
        .into_iter()
        .partition(|key| NAMES.contains(&key.as_str()));
    let mut parts: Vec<String> = names
        .into_iter()
        .filter_map(|key| after.get(key).or(before.get(key)).cloned())
        .collect();
    let or_unset =
        |key: &str, value: Option<&String>| value.map_or(unset(key), String::as_str).to_owned();
    for key in others {
        let (was, is) = (before.get(key), after.get(key));
        if was != is {
            let name = option_of(key).unwrap_or(key);
            parts.push(format!(
                "{name} {} -> {}",
                or_unset(key, was),
                or_unset(key, is)
            ));
        }
    }
    parts.join(", ")
}

fn flatten(prefix: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = match prefix {
                    "" | "se_info" => key.clone(),
                    _ => format!("{prefix}.{key}"),
                };
                flatten(&key, value, into);
            }
        }
        value => {
            if let Some(shown) = shown(prefix, value) {
                into.insert(prefix.to_owned(), shown);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_is_one_line_whatever_it_holds() {
        let forged = "x\n2026-11-27T10:00:00Z  /DC=ch/CN=chief  ban user: /CN=mallory";
        let row = |at: &str, dn: &str, action: &str, config: &str, new: Value| AuditRow {
            datetime: at.to_owned(),
            dn: dn.to_owned(),
            action: action.to_owned(),
            config: config.to_owned(),
            old: Value::Null,
            new,
        };
        let ban = json!({"dn": "/CN=x", "message": forged});
        for row in [
            row("2026-11-27T09:00:00", "/CN=me", "ban user", "", ban),
            row(
                "2026-11-27T09:00:00",
                "/CN=me",
                "ban user",
                forged,
                Value::Null,
            ),
            row("2026-11-27T09:00:00", "/CN=me", forged, "", Value::Null),
            row("2026-11-27T09:00:00", forged, "ban user", "", Value::Null),
            row(forged, "/CN=me", "ban user", "", Value::Null),
        ] {
            let line = audit_line(&row);
            assert_eq!(line.lines().count(), 1, "{line}");
            assert!(line.contains("chief") && line.ends_with('\n'), "{line}");
        }
    }

    #[test]
    fn a_change_is_told_by_what_differs() {
        let link = |max: u32| json!({"symbolicname": "x", "source": "https://a", "max_active": max, "nostreams": null});
        let se = |max: Value| json!({"se": "https://a", "se_info": {"inbound_max_active": max}});
        let check = |old: Value, new: Value, expected: &str| {
            assert_eq!(differences(&old, &new), expected);
        };
        check(link(5), link(7), "x, --max 5 -> 7");
        check(
            Value::Null,
            link(5),
            "x, --max none -> 5, --from none -> https://a",
        );
        check(se(json!(5)), se(Value::Null), "https://a, --in 5 -> none");
        let rate =
            |rate: f64| json!({"se": "https://a", "se_info": {"inbound_max_throughput": rate}});
        check(
            rate(100.0),
            rate(0.5),
            "https://a, --in-rate 100 MiB/s -> 512 KiB/s",
        );
        let drain = |is_on: bool| json!({"se": "https://a", "se_info": {"draining": is_on}});
        check(drain(false), drain(true), "https://a, --drain off -> on");
        check(drain(true), Value::Null, "https://a, --drain on -> off");
        let queue = |hours: Value| json!({"vo_name": "cms", "max_time_queue": hours});
        check(
            queue(Value::Null),
            queue(json!(72)),
            "cms, max_time_queue none -> 3d",
        );
        let mute = |until: i64| json!({"class": "tape", "until": until});
        check(
            mute(1_764_111_600_000),
            mute(1_764_115_200_000),
            "tape, until 2025-11-25T23:00:00Z -> 2025-11-26T00:00:00Z",
        );
    }
}
