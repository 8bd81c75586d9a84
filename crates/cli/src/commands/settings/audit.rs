//! `penstock audit`: who changed which setting, and what differed.

use super::{filtered, show};
use crate::args::settings::AuditArgs;
use crate::commands::jobs::{Intent, connect, in_utc};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_model::{Bytes, Rate, TimeSpan, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What FTS calls a MB per second.
const FTS_THROUGHPUT_UNIT: f64 = 1024.0 * 1024.0;

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
    format!(
        "{}  {}  {}: {what}\n",
        in_utc(&row.datetime),
        row.dn,
        row.action
    )
}

/// What a change was about, and what differed, field by field.
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
    let shown = |value: Option<&String>| value.map_or("none", String::as_str).to_owned();
    for key in others {
        let (was, is) = (before.get(key), after.get(key));
        if was != is {
            parts.push(format!("{key} {} -> {}", shown(was), shown(is)));
        }
    }
    parts.join(", ")
}

fn flatten(prefix: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = match prefix {
                    "" | "se_info" => key.clone(),
                    _ => format!("{prefix}.{key}"),
                };
                flatten(&key, value, into);
            }
        }
        Value::String(text) => {
            into.insert(prefix.to_owned(), text.clone());
        }
        Value::Number(number) => {
            let shown = number.as_f64().and_then(|number| with_unit(prefix, number));
            into.insert(
                prefix.to_owned(),
                shown.unwrap_or_else(|| number.to_string()),
            );
        }
        other => {
            into.insert(prefix.to_owned(), other.to_string());
        }
    }
}

/// A number with the unit that its field has in the form of FTS; `None`: it counts something.
fn with_unit(key: &str, number: f64) -> Option<String> {
    let name = key.rsplit('.').next().unwrap_or(key);
    let whole = number.max(0.0) as u64;
    let hours = |hours: u64| TimeSpan::of_seconds(hours.saturating_mul(3600));
    Some(match name {
        "max_throughput" | "inbound_max_throughput" | "outbound_max_throughput" => {
            Rate((number * FTS_THROUGHPUT_UNIT) as u64).to_string()
        }
        "max_time_queue" => hours(whole).to_string(),
        "until" | "since" => format!("{}Z", Timestamp(number as i64).to_fts()),
        "global_timeout" | "timeout" => TimeSpan::of_seconds(whole).to_string(),
        "tcp_buffer_size" => Bytes(whole).to_string(),
        _ if name.ends_with("_seconds") => TimeSpan::of_seconds(whole).to_string(),
        _ if name.ends_with("_bytes") => Bytes(whole).to_string(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_is_told_by_what_differs() {
        let link = |max: u32| json!({"symbolicname": "x", "source": "https://a", "max_active": max, "nostreams": null});
        let se = |max: Value| json!({"se": "https://a", "se_info": {"inbound_max_active": max}});
        let check = |old: Value, new: Value, expected: &str| {
            assert_eq!(differences(&old, &new), expected);
        };
        check(link(5), link(7), "x, max_active 5 -> 7");
        check(
            Value::Null,
            link(5),
            "x, max_active none -> 5, source none -> https://a",
        );
        check(
            se(json!(5)),
            se(Value::Null),
            "https://a, inbound_max_active 5 -> none",
        );
        let rate =
            |rate: f64| json!({"se": "https://a", "se_info": {"inbound_max_throughput": rate}});
        check(
            rate(100.0),
            rate(0.5),
            "https://a, inbound_max_throughput 104.9 MB/s -> 524.3 kB/s",
        );
        let queue = |hours: Value| json!({"vo_name": "cms", "max_time_queue": hours});
        check(
            queue(Value::Null),
            queue(json!(72)),
            "cms, max_time_queue none -> 3 days",
        );
        let mute = |until: i64| json!({"class": "tape", "until": until});
        check(
            mute(1_764_111_600_000),
            mute(1_764_115_200_000),
            "tape, until 2025-11-25T23:00:00Z -> 2025-11-26T00:00:00Z",
        );
    }
}
