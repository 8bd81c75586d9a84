//! Facts of a host that change seldom and explain much when they do: kernel settings, limits, devices, mounts.
//!
//! A fact is text under a name; one that could not be read is known as such. Names are stable: hosts are compared by
//! them ([`super::compare`]).

use penstock_model::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Facts by name. `None`: not readable here.
pub type Facts = BTreeMap<String, Option<String>>;

/// Changes that are kept; the oldest go first.
pub const CHANGES_MAX: usize = 2000;

/// A fact that became another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactChange {
    /// When it was seen; it happened since the look before, a minute earlier or while the service was down.
    pub at: Timestamp,
    /// Of which fact.
    pub name: String,
    /// What it was; `None`: not readable, or there was none.
    pub before: Option<String>,
    /// What it is; `None`: not readable, or there is none any more.
    pub after: Option<String>,
}

/// What differs, in the order of names. Before the first look nothing was known, so nothing has changed then.
pub fn changes(before: &Facts, after: &Facts, at: Timestamp) -> Vec<FactChange> {
    if before.is_empty() {
        return Vec::new();
    }
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let value = |facts: &Facts, name: &String| facts.get(name).cloned().flatten();
    let pairs = names.into_iter().map(|name| FactChange {
        at,
        name: name.clone(),
        before: value(before, name),
        after: value(after, name),
    });
    pairs
        .filter(|change| change.before != change.after)
        .collect()
}

/// A value that may be missing, for people.
pub fn shown(value: Option<&str>) -> &str {
    value.unwrap_or("not readable")
}

/// White space of kernel files as single spaces: `4096\t16384\t4194304\n`.
pub fn tidy(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(of: &[(&str, Option<&str>)]) -> Facts {
        let own =
            |(name, value): &(&str, Option<&str>)| (name.to_string(), value.map(str::to_owned));
        of.iter().map(own).collect()
    }

    #[test]
    fn a_change_has_both_values_and_the_first_look_changes_nothing() {
        let first = facts(&[
            ("a", Some("1")),
            ("b", None),
            ("c", Some("3")),
            ("d", Some("4")),
        ]);
        let second = facts(&[
            ("a", Some("2")),
            ("b", Some("x")),
            ("c", Some("3")),
            ("e", Some("5")),
        ]);
        assert_eq!(changes(&Facts::new(), &first, Timestamp(1)), []);
        let found = changes(&first, &second, Timestamp(9));
        let told: Vec<String> = found
            .iter()
            .map(|it| {
                let (before, after) = (shown(it.before.as_deref()), shown(it.after.as_deref()));
                format!("{} {}: {before} → {after}", it.at.0, it.name)
            })
            .collect();
        let expected = [
            "9 a: 1 → 2",
            "9 b: not readable → x",
            "9 d: 4 → not readable",
            "9 e: not readable → 5",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn tabs_and_line_ends_are_spaces() {
        assert_eq!(tidy("4096\t16384\t4194304\n"), "4096 16384 4194304");
    }
}
