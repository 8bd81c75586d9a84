//! What people may change in a replay, as they write it: `link cern-lyon active=12, storage lyon rate=x2`.

use super::measured::{MeasuredField, MeasuredLink, RATE_UNBOUNDED};
use penstock_decide::explain::PopulationChoice;
use penstock_model::quantity::Speed;
use penstock_model::{LinkId, StorageId};
use std::fmt;
use std::str::FromStr;

/// Changes of one alternative at most.
pub const CHANGES_MAX: usize = 20;
/// What a limit may be at most.
const ACTIVE_MAX: f64 = 1_000_000.0;
/// By what a rate or a limit may be multiplied.
const FACTORS: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// Changes that are made together, with the words in which they were asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Alternative {
    text: String,
    changes: Vec<Change>,
}

#[derive(Debug, Clone, PartialEq)]
struct Change {
    what: Subject,
    change: Property,
}

#[derive(Debug, Clone, PartialEq)]
enum Subject {
    /// As `--link` names it.
    Link(String),
    /// By host, with or without scheme; `*`: each.
    Storage(String),
    Service,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Property {
    /// How many may run at once.
    Active(Amount),
    /// How fast it is.
    Rate(Amount),
    /// How many pools it has.
    Pools(Amount),
    /// The part of its files that fails, from 0 to 1.
    Failures(f64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Amount {
    Exactly(f64),
    More(f64),
    Times(f64),
}

impl Amount {
    fn of(self, before: f64) -> f64 {
        match self {
            Amount::Exactly(value) => value,
            Amount::More(by) => before + by,
            Amount::Times(by) => before * by,
        }
    }

    fn slots(self, before: u32) -> u32 {
        self.of(f64::from(before)).round().clamp(1.0, ACTIVE_MAX) as u32
    }
}

impl fmt::Display for Alternative {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl FromStr for Alternative {
    type Err = String;
    fn from_str(text: &str) -> Result<Alternative, String> {
        let changes = text.split(',').map(Change::parse);
        let changes = changes.collect::<Result<Vec<Change>, String>>()?;
        match changes.len() <= CHANGES_MAX {
            true => Ok(Alternative {
                text: text.split_whitespace().collect::<Vec<_>>().join(" "),
                changes,
            }),
            false => Err(format!(
                "at most {CHANGES_MAX} changes can be made together"
            )),
        }
    }
}

impl Change {
    fn parse(text: &str) -> Result<Change, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let unknown = || {
            format!(
                "'{}' is not a change; write for example 'link se1.cern.ch-se2.in2p3.fr active=12', 'storage se2.in2p3.fr \
                 rate=x2', 'storage se2.in2p3.fr pools=+1' or 'service active=800'",
                text.trim()
            )
        };
        // A speed has a blank in it: '500 MB/s'.
        let at = words.iter().position(|word| word.contains('='));
        let (names, rest) = words.split_at(at.ok_or_else(unknown)?);
        let setting = rest.join(" ");
        let (name, value) = setting.split_once('=').ok_or_else(unknown)?;
        let what = match names {
            ["link", link] => Subject::Link((*link).to_owned()),
            ["link", source, destination] => Subject::Link(format!("{source}->{destination}")),
            ["storage", storage] => Subject::Storage((*storage).to_owned()),
            ["service"] => Subject::Service,
            _ => return Err(unknown()),
        };
        let change = Property::parse(name, value, &what)?;
        Ok(Change { what, change })
    }
}

impl Property {
    fn parse(name: &str, value: &str, of: &Subject) -> Result<Property, String> {
        match (name, of) {
            ("active", _) => Ok(Property::Active(slots(value)?)),
            ("rate", Subject::Link(_) | Subject::Storage(_)) => Ok(Property::Rate(rate(value)?)),
            ("pools", Subject::Storage(_)) => Ok(Property::Pools(slots(value)?)),
            ("failures", Subject::Storage(_)) => match value.parse() {
                Ok(part) if (0.0..=1.0).contains(&part) => Ok(Property::Failures(part)),
                _ => Err(format!(
                    "failures={value}: write a part from 0 to 1, such as 0 or 0.02"
                )),
            },
            _ => Err(format!(
                "'{name}' cannot be changed here; a link has active and rate, a storage active, rate, pools and failures, \
                 the service active"
            )),
        }
    }
}

fn factor(value: &str) -> Option<Amount> {
    let by = value.strip_prefix('x')?.parse().ok()?;
    FACTORS.contains(&by).then_some(Amount::Times(by))
}

fn slots(value: &str) -> Result<Amount, String> {
    let number = || {
        let number: i32 = value.parse().ok()?;
        let number = f64::from(number);
        let is_step = value.starts_with(['+', '-']);
        match is_step {
            true if number.abs() <= ACTIVE_MAX => Some(Amount::More(number)),
            false if (1.0..=ACTIVE_MAX).contains(&number) => Some(Amount::Exactly(number)),
            _ => None,
        }
    };
    let found = factor(value).or_else(number);
    found.ok_or_else(|| format!("'{value}' is not a number; write for example 12, +4, -2 or x2"))
}

fn rate(value: &str) -> Result<Amount, String> {
    let speed = || {
        let speed: Speed = value.parse().ok()?;
        (speed.0 > 0).then_some(Amount::Exactly(speed.0 as f64))
    };
    let found = factor(value).or_else(speed);
    found.ok_or_else(|| {
        format!("'{value}' is not a rate; write for example x2, '500 MB/s' or '10 Gb/s'")
    })
}

impl Alternative {
    /// Makes the changes.
    ///
    /// Errors: it names what the window has not, or what the record does not tell.
    pub(super) fn apply(&self, field: &mut MeasuredField) -> Result<(), String> {
        for change in &self.changes {
            match &change.what {
                Subject::Link(name) => {
                    let wanted = PopulationChoice::Link(name.clone());
                    let links = field.links.iter_mut();
                    let mut links = links.filter(|link| wanted.may_have(&link.link)).peekable();
                    if links.peek().is_none() {
                        let known = field.links.iter().map(|link| &link.link);
                        return Err(unknown("link", name, known.map(name_of)));
                    }
                    links.for_each(|link| change.change.on_link(link));
                }
                Subject::Storage(name) => {
                    let is_named =
                        |id: &StorageId| name == "*" || name == id.as_str() || name == id.host();
                    let storages = field.storages.iter();
                    let numbers: Vec<usize> = storages
                        .enumerate()
                        .filter(|(_, storage)| is_named(&storage.id))
                        .map(|(number, _)| number)
                        .collect();
                    if numbers.is_empty() {
                        let known = field.storages.iter();
                        let known = known.map(|storage| storage.id.host().to_owned());
                        return Err(unknown("storage", name, known));
                    }
                    for number in numbers {
                        change.change.on_storage(field, number)?;
                    }
                }
                Subject::Service => {
                    let Property::Active(amount) = change.change else {
                        continue;
                    };
                    field.agents = Some(changed_limit(amount, field.agents, "the service")?);
                }
            }
        }
        Ok(())
    }
}

fn name_of(link: &LinkId) -> String {
    format!("{}-{}", link.source.host(), link.destination.host())
}

fn unknown(kind: &str, name: &str, known: impl Iterator<Item = String>) -> String {
    let known: Vec<String> = known.take(10).collect();
    format!(
        "no {kind} '{name}' moved files in this window; there are {}",
        known.join(", ")
    )
}

fn changed_limit(amount: Amount, before: Option<u32>, of: &str) -> Result<u32, String> {
    match (amount, before) {
        (Amount::Exactly(_), _) => Ok(amount.slots(0)),
        (_, Some(before)) => Ok(amount.slots(before)),
        (_, None) => Err(format!(
            "the limit of {of} is not recorded; write the new one as a number, such as active=50"
        )),
    }
}

impl Property {
    fn on_link(self, link: &mut MeasuredLink) {
        match self {
            Property::Active(amount) => {
                for (_, limit) in &mut link.limits {
                    *limit = amount.slots(*limit);
                }
            }
            Property::Rate(amount) => {
                let before = link.capacity;
                let whole = amount.of(before.unwrap_or(RATE_UNBOUNDED));
                // A rate in bytes is a bound also where none was known.
                if before.is_some() || matches!(amount, Amount::Exactly(_)) {
                    link.capacity = Some(whole);
                }
                if let Amount::Times(by) = amount {
                    link.hasten(1, by);
                }
            }
            // They are of storage elements.
            Property::Pools(_) | Property::Failures(_) => {}
        }
    }

    fn on_storage(self, field: &mut MeasuredField, number: usize) -> Result<(), String> {
        let storage = &mut field.storages[number];
        let name = storage.id.host().to_owned();
        match self {
            Property::Active(amount) => {
                let of = format!("storage {name}");
                storage.outbound = Some(changed_limit(amount, storage.outbound, &of)?);
                storage.inbound = Some(changed_limit(amount, storage.inbound, &of)?);
            }
            Property::Rate(amount) => {
                for bound in [&mut storage.read, &mut storage.write] {
                    if bound.is_some() || matches!(amount, Amount::Exactly(_)) {
                        *bound = Some(amount.of(bound.unwrap_or(RATE_UNBOUNDED)));
                    }
                }
                if let Amount::Times(by) = amount {
                    for link in &mut field.links {
                        if link.ends.0 == number {
                            link.hasten(0, by);
                        }
                        if link.ends.1 == number {
                            link.hasten(2, by);
                        }
                    }
                }
            }
            Property::Pools(amount) => {
                let before = match (storage.pools, amount) {
                    (0, Amount::Exactly(_) | Amount::More(_)) => {
                        return Err(format!(
                            "the number of pools of {name} is not recorded; write pools=x2, or rate=x2"
                        ));
                    }
                    (pools, _) => pools.max(1) as f64,
                };
                let by = (amount.of(before) / before).max(*FACTORS.start());
                for bound in [&mut storage.read, &mut storage.write] {
                    *bound = bound.map(|rate| rate * by);
                }
                storage.halved_at = storage.halved_at.map(|files| files * by);
            }
            Property::Failures(part) => storage.failures = part,
        }
        Ok(())
    }
}

impl MeasuredLink {
    /// One stage of each transfer becomes faster: the part of its time that it takes becomes shorter.
    fn hasten(&mut self, stage: usize, by: f64) {
        // Where stages are not told, the network is taken to be what one transfer waits for.
        let parts = self.stages.unwrap_or([0.0, 1.0, 0.0]);
        let part = parts[stage].clamp(0.0, 1.0);
        self.per_transfer = (self.per_transfer / (1.0 - part + part / by)).min(RATE_UNBOUNDED);
    }
}
