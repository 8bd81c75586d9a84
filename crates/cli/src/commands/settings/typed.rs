//! Settings as they are typed: the fields of FTS's forms by the options of `penstock link set`, `se set` and the like, with values
//! that these options take.

use penstock_model::quantity::{Size, Span, Speed};
use penstock_model::{Bytes, TimeSpan, Timestamp};
use serde_json::Value;
use std::time::Duration;

/// What FTS calls a MB per second.
const FTS_THROUGHPUT_UNIT: f64 = 1024.0 * 1024.0;

/// The option by which a field is set; `None`: there is none of this name.
pub(super) fn option_of(field: &str) -> Option<&'static str> {
    Some(match field {
        "source" => "--from",
        "destination" => "--to",
        "max_active" => "--max",
        "min_active" => "--min",
        "optimizer_mode" => "--mode",
        "tuning" => "--tuning",
        "max_throughput" => "--rate",
        "inbound_max_active" => "--in",
        "outbound_max_active" => "--out",
        "inbound_max_throughput" => "--in-rate",
        "outbound_max_throughput" => "--out-rate",
        "site" => "--site",
        "se_metadata" => "--note",
        "draining" => "--drain",
        "operation" => "--operation",
        "storage" => "--storage",
        "message" => "--message",
        _ => return None,
    })
}

/// A value in the form in which its option takes it, or with the unit that its field has in FTS's form. `None`: the field is not
/// set.
pub(super) fn shown(field: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(true) if field == "draining" => Some("on".to_owned()),
        Value::Bool(false) if field == "draining" => None,
        Value::Number(number) => {
            let with_unit = number.as_f64().and_then(|it| with_unit(field, it));
            Some(with_unit.unwrap_or_else(|| number.to_string()))
        }
        other => Some(other.to_string()),
    }
}

/// What stands for a field that is not set.
pub(super) fn unset(field: &str) -> &'static str {
    match field {
        "draining" => "off",
        _ => "none",
    }
}

/// A number with its unit; `None`: it counts something.
fn with_unit(field: &str, number: f64) -> Option<String> {
    let name = field.rsplit('.').next().unwrap_or(field);
    let whole = number.max(0.0) as u64;
    Some(match name {
        "max_throughput" | "inbound_max_throughput" | "outbound_max_throughput" => {
            // The service keeps whole bytes per second.
            Speed((number.max(0.0) * FTS_THROUGHPUT_UNIT).round() as u64).to_string()
        }
        "max_time_queue" => Span(Duration::from_secs(whole.saturating_mul(3600))).to_string(),
        "until" | "since" => format!("{}Z", Timestamp(number as i64).to_fts()),
        "global_timeout" | "timeout" => TimeSpan::of_seconds(whole).to_string(),
        "tcp_buffer_size" => Size(whole).to_string(),
        _ if name.ends_with("_seconds") => TimeSpan::of_seconds(whole).to_string(),
        _ if name.ends_with("_bytes") => Bytes(whole).to_string(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::command;
    use serde_json::json;

    /// What a number was typed as, through FTS's unit and back.
    fn back(typed: &str) -> String {
        let speed: Speed = typed.parse().expect(typed);
        let in_units = speed.0 as f64 / FTS_THROUGHPUT_UNIT;
        shown("inbound_max_throughput", &json!(in_units)).expect("set")
    }

    #[test]
    fn a_speed_is_shown_as_it_was_typed() {
        for typed in [
            "6 MB/s",
            "524 MB/s",
            "2 GB/s",
            "100 MiB/s",
            "1250 MB/s",
            "1 kB/s",
            "7 B/s",
        ] {
            assert_eq!(back(typed), typed);
        }
        assert_eq!(back("10 Gb/s"), "1250 MB/s");
        assert_eq!(shown("max_throughput", &Value::Null), None);
        assert_eq!(shown("draining", &json!(false)), None);
        assert_eq!(
            (unset("draining"), unset("max_throughput")),
            ("off", "none")
        );
    }

    #[test]
    fn other_values_are_shown_in_the_form_that_is_typed() {
        let check = |field: &str, value: Value, expected: &str| {
            assert_eq!(shown(field, &value).as_deref(), Some(expected), "{field}");
        };
        check("draining", json!(true), "on");
        check("max_time_queue", json!(72), "3d");
        check("max_active", json!(5), "5");
        check("site", json!("Lyon"), "Lyon");
        check(
            "until",
            json!(1_764_111_600_000_i64),
            "2025-11-25T23:00:00Z",
        );
    }

    #[test]
    fn each_option_exists() {
        let command = command();
        let commands = ["link", "se", "authorize", "ban", "vo-share"];
        let subcommands = commands
            .iter()
            .filter_map(|name| command.find_subcommand(name));
        let all: Vec<String> = subcommands
            .flat_map(|command| command.get_subcommands())
            .flat_map(|command| command.get_arguments())
            .filter_map(|arg| arg.get_long().map(|long| format!("--{long}")))
            .collect();
        for field in [
            "source",
            "destination",
            "max_active",
            "min_active",
            "optimizer_mode",
            "tuning",
            "max_throughput",
            "inbound_max_active",
            "outbound_max_active",
            "inbound_max_throughput",
            "outbound_max_throughput",
            "site",
            "se_metadata",
            "draining",
            "operation",
            "storage",
            "message",
        ] {
            let option = option_of(field).expect(field);
            assert!(all.iter().any(|one| one == option), "{option}");
        }
        assert_eq!(option_of("retry"), None);
    }
}
