//! What of an FTS3's configuration is taken over, in which form, and what is left out and why. No I/O.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

/// Fields of a link that this service keeps.
const LINK_FIELDS: [&str; 5] = [
    "source",
    "destination",
    "min_active",
    "max_active",
    "optimizer_mode",
];
/// Fields of a storage element that this service keeps.
const SE_FIELDS: [&str; 6] = [
    "inbound_max_active",
    "outbound_max_active",
    "inbound_max_throughput",
    "outbound_max_throughput",
    "site",
    "se_metadata",
];
/// Fields of `global` that this service keeps.
const GLOBAL_FIELDS: [&str; 2] = ["retry", "max_time_queue"];
/// Fields that mean nothing by themselves, or are about the row.
const QUIET: [&str; 4] = ["symbolicname", "vo_name", "storage", "ipv6"];
/// The one operation of a storage element that is limited here: bringing files from tape.
const STAGING: &str = "staging";
/// Rates are kept as whole bytes per second, so they come back a little different in FTS's unit of 1024² bytes.
const THROUGHPUT_TOLERANCE: f64 = 1.0 / (1024.0 * 1024.0);

type Row = Map<String, Value>;

/// A configuration as FTS's API tells it, by what names each row.
#[derive(Debug, Default)]
pub struct ApiConfiguration {
    links: BTreeMap<String, Row>,
    storages: BTreeMap<String, Row>,
    /// How many files may be on their way from tape at once: by storage element, then by VO.
    staging: BTreeMap<String, BTreeMap<String, Value>>,
    globals: BTreeMap<String, Row>,
    /// As they are set, by what they are for.
    vo_shares: BTreeMap<String, Value>,
    activity_shares: BTreeMap<String, Value>,
    /// What is never taken over, told at once.
    left_out: Vec<String>,
}

/// One change of a service.
#[derive(Debug, PartialEq)]
pub struct Step {
    /// The place below `/config`.
    pub kind: &'static str,
    /// What is sent there.
    pub form: Value,
    /// For people.
    pub told: String,
}

/// All that has to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Changes, in the order in which they are made.
    pub steps: Vec<Step>,
    /// What has no counterpart, told for people.
    pub left_out: Vec<String>,
    /// Rows that are so already.
    pub unchanged: usize,
}

impl ApiConfiguration {
    /// Adds what a file holds: answers by kind (`{"links": […], "se": {…}}`), or one answer alone.
    pub fn add(&mut self, value: Value) -> Result<(), String> {
        match value {
            Value::Object(parts) if parts.contains_key("links") || parts.contains_key("se") => {
                for (kind, value) in parts {
                    self.add_kind(&kind, value)?;
                }
                Ok(())
            }
            Value::Object(rows) if rows.values().any(|row| row.get("retry").is_some()) => {
                self.add_kind("global", Value::Object(rows))
            }
            Value::Object(rows) => self.add_kind("se", Value::Object(rows)),
            Value::Array(rows) => self.add_kind("links", Value::Array(rows)),
            _ => Err("this is not a response of FTS3's /config".to_owned()),
        }
    }

    /// Adds the answer to one question.
    pub fn add_kind(&mut self, kind: &str, value: Value) -> Result<(), String> {
        match (kind, value) {
            ("links", Value::Array(rows)) => {
                for row in rows {
                    let Value::Object(row) = row else {
                        return Err("a link is not an object".to_owned());
                    };
                    let name = row.get("symbolicname").and_then(Value::as_str);
                    let name = name.ok_or("a link has no symbolicname")?.to_owned();
                    self.links.insert(name, row);
                }
                Ok(())
            }
            ("se", Value::Object(rows)) => {
                for (name, row) in rows {
                    let Value::Object(mut row) = row else {
                        return Err(format!("'{name}' is not a row of a storage element"));
                    };
                    if let Some(Value::Object(operations)) = row.remove("operations") {
                        self.add_operations(&name, operations);
                    }
                    if let Some(Value::Object(info)) = row.remove("se_info") {
                        self.storages.insert(name, info);
                    }
                }
                Ok(())
            }
            ("global", Value::Object(rows)) => {
                for (name, row) in rows {
                    if let Value::Object(row) = row {
                        self.globals.insert(name, row);
                    }
                }
                Ok(())
            }
            ("shares", Value::Array(rows)) => {
                for row in rows {
                    let part = |key: &str| row.get(key).and_then(Value::as_str);
                    let parts = (part("source"), part("destination"), part("vo"));
                    let (Some(source), Some(destination), Some(vo)) = parts else {
                        return Err("a share has no source, destination or vo".to_owned());
                    };
                    let name = format!("{vo} {source} -> {destination}");
                    let form = json!({
                        "source": source, "destination": destination, "vo": vo,
                        "share": row.get("share").cloned().unwrap_or(json!(0)),
                    });
                    self.vo_shares.insert(name, form);
                }
                Ok(())
            }
            ("activity_shares", Value::Object(rows)) => {
                for (vo, row) in rows {
                    let form = self.activity_shares_of(&vo, &row)?;
                    self.activity_shares.insert(vo, form);
                }
                Ok(())
            }
            ("authorize", Value::Array(rows)) => {
                let why = "rights: give them with `penstock authorize set`";
                self.leave_out(rows.len(), why);
                Ok(())
            }
            (kind, _) => Err(format!(
                "'{kind}' is not in the form of FTS3's /config/{kind}"
            )),
        }
    }

    /// Limits of what a storage element does for a VO. Those of staging are kept.
    fn add_operations(&mut self, storage: &str, operations: Row) {
        for (vo, limits) in operations {
            let Value::Object(limits) = limits else {
                continue;
            };
            for (operation, limit) in limits {
                if says_nothing(&limit) {
                    continue;
                }
                if operation == STAGING {
                    let of_storage = self.staging.entry(storage.to_owned()).or_default();
                    of_storage.insert(vo.clone(), limit);
                } else {
                    self.left_out.push(format!(
                        "se {storage}: limit {limit} of the operation '{operation}' of VO {vo} has no counterpart here"
                    ));
                }
            }
        }
    }

    /// In the form in which this service shows them: one object, names in lower case.
    fn activity_shares_of(&mut self, vo: &str, row: &Value) -> Result<Value, String> {
        let share = row.get("share").unwrap_or(row);
        let objects = match share {
            Value::Array(objects) => objects.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut weights = Map::new();
        for object in objects {
            let of_vo = object.as_object();
            let of_vo = of_vo.ok_or_else(|| format!("the shares of {vo} are not an object"))?;
            for (activity, weight) in of_vo {
                match weight.as_f64() {
                    Some(0.0) => self.left_out.push(format!(
                        "activity shares of {vo}: '{activity}' has 0, so its transfers wait forever"
                    )),
                    _ => drop(weights.insert(activity.to_lowercase(), weight.clone())),
                }
            }
        }
        let is_active = row.get("active").and_then(Value::as_bool).unwrap_or(true);
        Ok(json!({"vo": vo, "share": weights, "active": is_active}))
    }

    fn leave_out(&mut self, count: usize, what: &str) {
        if count > 0 {
            self.left_out.push(format!("{count} {what}"));
        }
    }

    /// What has to change so that a service which holds `current` holds this as well.
    pub fn against(&self, current: &ApiConfiguration) -> Plan {
        let mut plan = Plan {
            left_out: self.left_out.clone(),
            ..Plan::default()
        };
        for (name, row) in &self.links {
            let kept = plan.keep("link", name, row, &LINK_FIELDS);
            let form = |mut said: Row| {
                said.insert("symbolicname".to_owned(), json!(name));
                said.into()
            };
            plan.step(
                StepPlace::new("links", "link", name),
                kept,
                current.links.get(name),
                form,
            );
        }
        for (name, row) in &self.storages {
            let kept = plan.keep("se", name, row, &SE_FIELDS);
            let form = |said: Row| json!({name: {"se_info": said}});
            plan.step(
                StepPlace::new("se", "se", name),
                kept,
                current.storages.get(name),
                form,
            );
        }
        for (storage, limits) in &self.staging {
            plan.staging(storage, limits, current.staging.get(storage));
        }
        for (name, row) in &self.globals {
            let kept = plan.keep("global", name, row, &GLOBAL_FIELDS);
            let form = |mut said: Row| {
                said.insert("vo_name".to_owned(), json!(name));
                said.into()
            };
            plan.step(
                StepPlace::new("global", "global", name),
                kept,
                current.globals.get(name),
                form,
            );
        }
        for (name, form) in &self.vo_shares {
            let known = current.vo_shares.get(name);
            plan.whole(
                StepPlace::new("shares", "share", name),
                "share",
                form,
                known,
            );
        }
        for (vo, form) in &self.activity_shares {
            let known = current.activity_shares.get(vo);
            plan.whole(
                StepPlace::new("activity_shares", "activities", vo),
                "share",
                form,
                known,
            );
        }
        plan
    }
}

/// What a step sets.
struct StepPlace<'a> {
    /// As the address of the interface names it.
    kind: &'static str,
    /// As people call it.
    what: &'static str,
    name: &'a str,
}

impl<'a> StepPlace<'a> {
    fn new(kind: &'static str, what: &'static str, name: &'a str) -> StepPlace<'a> {
        StepPlace { kind, what, name }
    }
}

impl Display for StepPlace<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        write!(to, "{} {}", self.what, self.name)
    }
}

impl Plan {
    /// How many files may be on their way from the tapes of a storage element.
    fn staging(
        &mut self,
        storage: &str,
        limits: &BTreeMap<String, Value>,
        current: Option<&BTreeMap<String, Value>>,
    ) {
        let known = |vo: &String| current.and_then(|current| current.get(vo));
        let changed: Vec<(&String, &Value)> = limits
            .iter()
            .filter(|(vo, limit)| known(vo).is_none_or(|known| !same(known, limit)))
            .collect();
        if changed.is_empty() {
            self.unchanged += 1;
            return;
        }
        let told = changed.iter().map(|(vo, limit)| match known(vo) {
            None => format!("{vo} {limit}"),
            Some(before) => format!("{vo} {before} -> {limit}"),
        });
        let told: Vec<String> = told.collect();
        let operations = changed.iter().map(|(vo, limit)| {
            let of_vo = json!({ STAGING: limit });
            ((*vo).clone(), of_vo)
        });
        let operations: Row = operations.collect();
        self.steps.push(Step {
            kind: "se",
            told: format!("se {storage}: files from tape at once: {}", told.join(", ")),
            form: json!({ storage: { "operations": operations } }),
        });
    }

    /// What is set as a whole: told by one field of it.
    fn whole(
        &mut self,
        place: StepPlace<'_>,
        told_by: &str,
        form: &Value,
        current: Option<&Value>,
    ) {
        if current.is_some_and(|current| same(current, form)) {
            self.unchanged += 1;
            return;
        }
        let told = match current.map(|current| &current[told_by]) {
            None => form[told_by].to_string(),
            Some(before) => format!("{before} -> {}", form[told_by]),
        };
        self.steps.push(Step {
            kind: place.kind,
            told: format!("{place}: {told}"),
            form: form.clone(),
        });
    }

    /// The fields that are kept here; what says something else is left out and told.
    fn keep(&mut self, what: &str, name: &str, row: &Row, fields: &[&str]) -> Row {
        let mut kept = Row::new();
        for (key, value) in row {
            if says_nothing(value) {
                continue;
            }
            if fields.contains(&key.as_str()) {
                kept.insert(key.clone(), value.clone());
            } else if !QUIET.contains(&key.as_str()) && !is_our_way(key, value) {
                self.left_out.push(format!(
                    "{what} {name}: {key} {value} has no counterpart here"
                ));
            }
        }
        kept
    }

    fn step(
        &mut self,
        place: StepPlace<'_>,
        kept: Row,
        current: Option<&Row>,
        form: impl FnOnce(Row) -> Value,
    ) {
        if kept.is_empty() {
            return;
        }
        let known = |key: &str| current.and_then(|row| row.get(key)).unwrap_or(&Value::Null);
        let differences: Vec<String> = kept
            .iter()
            .filter(|(key, value)| !is_kept(key, known(key), value))
            .map(|(key, value)| match known(key) {
                Value::Null => format!("{key} {value}"),
                before => format!("{key} {before} -> {value}"),
            })
            .collect();
        if differences.is_empty() {
            self.unchanged += 1;
            return;
        }
        self.steps.push(Step {
            kind: place.kind,
            told: format!("{place}: {}", differences.join(", ")),
            form: form(kept),
        });
    }
}

/// Whether a field has this value already.
fn is_kept(key: &str, known: &Value, wanted: &Value) -> bool {
    match (known.as_f64(), wanted.as_f64()) {
        (Some(known), Some(wanted)) if key.ends_with("_throughput") => {
            (known - wanted).abs() <= THROUGHPUT_TOLERANCE
        }
        _ => same(known, wanted),
    }
}

/// Whether two forms say the same; 5 and 5.0 do.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Object(one), Value::Object(other)) => {
            let is_there = |(key, value): (&String, &Value)| {
                other.get(key).is_some_and(|there| same(value, there))
            };
            one.len() == other.len() && one.iter().all(is_there)
        }
        _ => one == other,
    }
}

/// FTS's ways of leaving a field unset.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "off",
        Value::Bool(true) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// What this service does without being told.
fn is_our_way(key: &str, value: &Value) -> bool {
    match key {
        "tpc_support" => value == "FULL",
        "nostreams" => *value == json!(1),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(value: Value) -> ApiConfiguration {
        let mut found = ApiConfiguration::default();
        found.add(value).expect("an answer of FTS3");
        found
    }

    fn fts3() -> Value {
        json!({
            "links": [
                {"symbolicname": "*", "source": "*", "destination": "*", "min_active": 2, "max_active": 130,
                 "optimizer_mode": 2, "tcp_buffer_size": 0, "nostreams": 0, "no_delegation": null},
                {"symbolicname": "a-b", "source": "https://a", "destination": "https://b", "min_active": 2,
                 "max_active": 20, "optimizer_mode": null, "nostreams": 4},
            ],
            "se": {
                "*": {"se_info": {"inbound_max_active": 200, "outbound_max_active": 200, "udt": 0, "debug_level": 0}},
                "davs://c": {"operations": {"cms": {"staging": 10, "delete": 3}, "atlas": {"staging": null}}},
                "https://d": {"se_info": {"inbound_max_active": 0, "site": "D", "tpc_support": "PULL",
                                          "inbound_max_throughput": 500, "outbound_max_throughput": 5.1}},
            },
            "global": {"*": {"retry": 0, "max_time_queue": 48, "sec_per_mb": 2}},
            "shares": [{"source": "*", "destination": "https://b", "vo": "cms", "share": 0}],
            "activity_shares": {"cms": {"share": [{"Production": 0.7}, {"debug": 0}], "active": true}},
        })
    }

    #[test]
    fn what_has_a_counterpart_is_taken_over_and_the_rest_is_told() {
        let plan = found(fts3()).against(&ApiConfiguration::default());
        let told: Vec<&str> = plan.steps.iter().map(|step| step.told.as_str()).collect();
        assert_eq!(
            told,
            [
                "link *: destination \"*\", max_active 130, min_active 2, optimizer_mode 2, source \"*\"",
                "link a-b: destination \"https://b\", max_active 20, min_active 2, source \"https://a\"",
                "se *: inbound_max_active 200, outbound_max_active 200",
                "se https://d: inbound_max_throughput 500, outbound_max_throughput 5.1, site \"D\"",
                "se davs://c: files from tape at once: cms 10",
                "global *: max_time_queue 48",
                "share cms * -> https://b: 0",
                "activities cms: {\"production\":0.7}",
            ]
        );
        let left_out: Vec<&str> = plan.left_out.iter().map(|text| &text[..18]).collect();
        assert_eq!(
            left_out,
            [
                "activity shares of",
                "se davs://c: limit",
                "link a-b: nostream",
                "se https://d: tpc_",
                "global *: sec_per_",
            ]
        );
        assert_eq!(
            plan.steps[3].form,
            json!({"https://d": {"se_info": {"site": "D", "inbound_max_throughput": 500, "outbound_max_throughput": 5.1}}})
        );
        assert_eq!(
            plan.steps[4].form,
            json!({"davs://c": {"operations": {"cms": {"staging": 10}}}})
        );
    }

    #[test]
    fn what_is_so_already_is_left_alone_and_a_change_tells_both_values() {
        let current = json!({
            "links": [
                {"symbolicname": "*", "source": "*", "destination": "*", "min_active": 2, "max_active": 130,
                 "optimizer_mode": 2},
                {"symbolicname": "a-b", "source": "https://a", "destination": "https://b", "min_active": 2,
                 "max_active": 10},
            ],
            "se": {},
        });
        let plan = found(fts3()).against(&found(current));
        assert_eq!(plan.unchanged, 1);
        assert_eq!(plan.steps[0].told, "link a-b: max_active 10 -> 20");
        let again = found(fts3()).against(&found(fts3()));
        assert_eq!((again.steps.len(), again.unchanged), (0, 8));
    }

    #[test]
    fn a_rate_that_was_stored_in_bytes_is_no_change() {
        let stored = |rate: f64, staging: u32| {
            let row = json!({"se_info": {"inbound_max_throughput": rate}, "operations": {"cms": {"staging": staging}}});
            found(json!({"se": {"https://d": row}}))
        };
        // 5.1 is 5,347,737.6 bytes.
        let kept = 5_347_737.0 / (1024.0 * 1024.0);
        let plan = stored(5.1, 10).against(&stored(kept, 10));
        assert_eq!((plan.steps.len(), plan.unchanged), (0, 2));
        let plan = stored(5.2, 20).against(&stored(kept, 10));
        let told: Vec<&str> = plan.steps.iter().map(|step| step.told.as_str()).collect();
        assert_eq!(told.len(), 2);
        assert!(told[0].ends_with("-> 5.2"), "{told:?}");
        assert_eq!(
            told[1],
            "se https://d: files from tape at once: cms 10 -> 20"
        );
    }

    #[test]
    fn an_answer_alone_is_known_by_its_form() {
        assert_eq!(found(fts3()["links"].clone()).links.len(), 2);
        assert_eq!(found(fts3()["se"].clone()).storages.len(), 2);
        assert_eq!(found(fts3()["global"].clone()).globals.len(), 1);
        for nonsense in [
            json!(5),
            json!(["x"]),
            json!([{}]),
            json!({"a": 5}),
            json!({"links": 5}),
        ] {
            assert!(
                ApiConfiguration::default().add(nonsense.clone()).is_err(),
                "{nonsense}"
            );
        }
    }
}
