//! Plans as people write them: TOML with names and units. An error tells the line and what to write instead.
//!
//! Long because it is the grammar of a plan: one form for each table, each with its own errors.

use super::{
    Change, Event, Hopeless, Load, Malice, Network, Plan, Policy, Service, Storage, Vo, limits,
    rate_under_loss,
};
use penstock_model::BanEffect;
use penstock_model::quantity::{Size, Span, Speed};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use thiserror::Error;
use toml::Spanned;

/// A plan that cannot be followed.
#[derive(Debug, Error)]
pub enum PlanError {
    /// It is no TOML, or says what is not known. The text shows the place.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// It contradicts itself, or is too large.
    #[error("line {line}: {what}")]
    Nonsense {
        /// Of the table that says so, from 1.
        line: usize,
        /// What is wrong, and what to write.
        what: String,
    },
    /// It is too large as a whole.
    #[error("{0}")]
    TooLarge(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanText {
    #[serde(default)]
    name: String,
    length: Span,
    #[serde(default)]
    seed: u64,
    service: Option<Spanned<ServiceText>>,
    #[serde(rename = "storage")]
    storages: Vec<Spanned<StorageText>>,
    #[serde(rename = "network", default)]
    networks: Vec<Spanned<NetworkText>>,
    #[serde(rename = "vo", default)]
    vos: Vec<Spanned<VoText>>,
    #[serde(rename = "load")]
    loads: Vec<Spanned<LoadText>>,
    #[serde(rename = "event", default)]
    events: Vec<Spanned<EventText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceText {
    policy: Option<String>,
    link_max: Option<u32>,
    storage_max: Option<u32>,
    agents_max: Option<u32>,
    nodes: Option<u32>,
    retries: Option<u32>,
    retry_delay: Option<Span>,
    stall: Option<Span>,
}

/// One name, several, or `*` for all.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a name, a list of names, or \"*\" for all")]
enum Names {
    One(String),
    Several(Vec<String>),
}

impl Names {
    fn list(&self) -> &[String] {
        match self {
            Names::One(name) => std::slice::from_ref(name),
            Names::Several(names) => names,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StorageText {
    name: Names,
    pools: Option<u32>,
    read: Speed,
    write: Speed,
    halved_at: Option<f64>,
    uplink: Option<Speed>,
    latency: Option<Span>,
    failures: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkText {
    from: Names,
    to: Names,
    bandwidth: Speed,
    rtt: Option<Span>,
    loss: Option<f64>,
    window: Option<Size>,
    streams: Option<u32>,
    others: Option<Speed>,
    others_swing: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VoText {
    name: String,
    share: Option<f64>,
    #[serde(default)]
    activities: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LoadText {
    from: Names,
    to: Names,
    vo: Option<String>,
    users: Option<u32>,
    activity: Option<String>,
    files: u64,
    size: Size,
    spread: Option<f64>,
    job: Option<u64>,
    begin: Option<Span>,
    over: Option<Span>,
    daily: Option<f64>,
    priority: Option<i64>,
    hopeless: Option<HopelessText>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HopelessText {
    Request,
    Storage,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventText {
    at: Span,
    lasts: Option<Span>,
    what: What,
    storage: Option<String>,
    node: Option<u32>,
    from: Option<String>,
    to: Option<String>,
    speed: Option<f64>,
    part: Option<f64>,
    max: Option<u32>,
    effect: Option<EffectText>,
    by: Option<String>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum What {
    StorageSlow,
    StorageDown,
    StorageFails,
    NetworkSlow,
    Ban,
    Drain,
    LinkMax,
    StorageMax,
    LeaderLost,
    NodeLost,
    NodeCutOff,
    Clock,
    Cancel,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum EffectText {
    Cancel,
    Wait,
    WaitAndAccept,
}

/// See [`Plan::parse`].
pub(super) fn parse(text: &str) -> Result<Plan, PlanError> {
    if text.len() > limits::TEXT {
        let (found, most) = (text.len(), limits::TEXT);
        let what = format!("the plan has {found} bytes; at most {most} are read");
        return Err(PlanError::TooLarge(what));
    }
    let read: PlanText = toml::from_str(text)?;
    Reader {
        text,
        numbers: HashMap::new(),
    }
    .plan(read)
}

/// Turns what was written into numbers, and knows the lines.
struct Reader<'a> {
    text: &'a str,
    /// The storage of each name.
    numbers: HashMap<String, usize>,
}

impl Reader<'_> {
    fn plan(mut self, read: PlanText) -> Result<Plan, PlanError> {
        let seconds = read.length.0.as_secs_f64();
        if !(seconds > 0.0 && seconds <= limits::SECONDS) {
            let what = format!(
                "length is {}; write a time between 1s and 366d",
                read.length
            );
            return Err(PlanError::TooLarge(what));
        }
        let service = match &read.service {
            Some(service) => in_table(self.text, service, |service| self.service(service))?,
            None => Service::default(),
        };
        let mut storages = Vec::new();
        for table in &read.storages {
            let alike = in_table(self.text, table, |table| self.storages(table))?;
            storages.extend(alike);
        }
        let mut networks = Vec::new();
        let mut known = BTreeSet::new();
        for table in &read.networks {
            let alike = in_table(self.text, table, |table| self.networks(table, &mut known))?;
            networks.extend(alike);
        }
        let mut vos: Vec<Vo> = Vec::new();
        for table in &read.vos {
            let vo = in_table(self.text, table, |table| self.vo(table, &vos))?;
            vos.push(vo);
        }
        let mut loads = Vec::new();
        for table in &read.loads {
            loads.push(in_table(self.text, table, |table| self.load(table))?);
        }
        let mut events = Vec::new();
        for table in &read.events {
            let event = in_table(self.text, table, |table| {
                self.event(table, &networks, service.nodes)
            })?;
            events.push(event);
        }
        let plan = Plan {
            name: read.name,
            seconds,
            seed: read.seed,
            service,
            storages,
            networks,
            vos,
            loads,
            events,
            malice: Malice::default(),
        };
        check_sizes(&plan)?;
        Ok(plan)
    }

    fn service(&self, table: &ServiceText) -> Result<Service, String> {
        let otherwise = Service::default();
        let least_one = |key: &str, value: Option<u32>, default: u32| match value {
            Some(0) => Err(format!("{key} is 0, so nothing would ever start")),
            value => Ok(value.unwrap_or(default)),
        };
        let seconds =
            |span: Option<Span>, default: f64| span.map_or(default, |span| span.0.as_secs_f64());
        Ok(Service {
            policy: match &table.policy {
                Some(name) => name.parse()?,
                None => Policy::default(),
            },
            link_max: least_one("link_max", table.link_max, otherwise.link_max)?,
            storage_max: least_one("storage_max", table.storage_max, otherwise.storage_max)?,
            agents_max: least_one("agents_max", table.agents_max, otherwise.agents_max)?,
            nodes: match table.nodes.unwrap_or(otherwise.nodes) {
                nodes @ 1..=limits::NODES => nodes,
                nodes => return Err(format!("nodes is {nodes}; write 1 to {}", limits::NODES)),
            },
            retries: table.retries.unwrap_or(otherwise.retries).min(100),
            retry_delay: seconds(table.retry_delay, otherwise.retry_delay),
            stall: seconds(table.stall, otherwise.stall).max(1.0),
            pushes: otherwise.pushes,
        })
    }

    fn storages(&mut self, table: &StorageText) -> Result<Vec<Storage>, String> {
        let pools = table.pools.unwrap_or(1);
        if !(1..=limits::POOLS).contains(&pools) {
            return Err(format!("pools is {pools}; write 1 to {}", limits::POOLS));
        }
        if table.read.0 == 0 || table.write.0 == 0 {
            return Err("a storage that never reads or writes; for one that stands still for a time, write \
                        an event what = \"storage-slow\" with speed = 0"
                .to_owned());
        }
        if table
            .halved_at
            .is_some_and(|files| !(files >= 1.0 && files.is_finite()))
        {
            return Err("halved_at is a number of files at once, at least 1".to_owned());
        }
        let mut alike = Vec::new();
        for name in table.name.list() {
            check_name(name)?;
            let number = self.numbers.len();
            if self.numbers.insert(name.clone(), number).is_some() {
                return Err(format!(
                    "there is a storage '{name}' before; give each its own name"
                ));
            }
            alike.push(Storage {
                name: name.clone(),
                pools,
                read: table.read.0 as f64,
                write: table.write.0 as f64,
                halved_at: table.halved_at,
                uplink: table.uplink.map(|speed| (speed.0 as f64).max(1.0)),
                latency: table.latency.map_or(0.02, |span| span.0.as_secs_f64()),
                failures: part("failures", table.failures.unwrap_or(0.0))?,
            });
        }
        Ok(alike)
    }

    fn networks(
        &self,
        table: &NetworkText,
        known: &mut BTreeSet<(usize, usize)>,
    ) -> Result<Vec<Network>, String> {
        let rtt = table.rtt.map_or(0.0, |span| span.0.as_secs_f64());
        let loss = part("loss", table.loss.unwrap_or(0.0))?;
        let window = table.window.map_or(16e6, |size| size.0 as f64);
        let streams = table.streams.unwrap_or(1);
        if table.bandwidth.0 == 0 || streams == 0 || window <= 0.0 {
            return Err("bandwidth, window and streams are all at least 1".to_owned());
        }
        let per_stream = rate_under_loss(loss, rtt).min(window / rtt.max(1e-4));
        let mut alike = Vec::new();
        for (from, to) in self.pairs(&table.from, &table.to)? {
            let ends = (from.min(to), from.max(to));
            if !known.insert(ends) {
                continue;
            }
            alike.push(Network {
                from,
                to,
                bandwidth: table.bandwidth.0 as f64,
                per_transfer: per_stream * f64::from(streams),
                rtt,
                opening: None,
                others: table.others.map_or(0.0, |speed| speed.0 as f64),
                others_swing: part("others_swing", table.others_swing.unwrap_or(0.0))?,
            });
        }
        match alike.is_empty() {
            true => Err(
                "all its pairs of storages have a network above; remove one of the two".to_owned(),
            ),
            false => Ok(alike),
        }
    }

    fn vo(&self, table: &VoText, before: &[Vo]) -> Result<Vo, String> {
        check_label("VO", &table.name)?;
        if before.iter().any(|vo| vo.name == table.name) {
            return Err(format!("there is a VO '{}' before", table.name));
        }
        let weights = table.activities.values().chain(&table.share);
        if weights
            .into_iter()
            .any(|weight| !(*weight > 0.0 && *weight <= 1e6))
        {
            return Err("shares are numbers above 0, such as 2 or 0.5".to_owned());
        }
        for activity in table.activities.keys() {
            check_label("activity", activity)?;
        }
        let activities = table.activities.iter();
        Ok(Vo {
            name: table.name.clone(),
            share: table.share,
            activities: activities
                .map(|(name, weight)| (name.clone(), *weight))
                .collect(),
        })
    }

    fn load(&self, table: &LoadText) -> Result<Load, String> {
        let pairs = self.pairs(&table.from, &table.to)?;
        let job = table.job.unwrap_or(100);
        if !(1..=limits::JOB).contains(&job) {
            return Err(format!("job is {job} files; write 1 to {}", limits::JOB));
        }
        if table.files < pairs.len() as u64 {
            let (files, pairs) = (table.files, pairs.len());
            return Err(format!(
                "{files} files are too few for its {pairs} pairs of storages"
            ));
        }
        let spread = table.spread.unwrap_or(0.0);
        if !(0.0..=4.0).contains(&spread) {
            return Err(format!("spread is {spread}; write 0 (all alike) to 4"));
        }
        let users = table.users.unwrap_or(1);
        if !(1..=1_000_000).contains(&users) {
            return Err("users is 1 to 1000000".to_owned());
        }
        let (vo, activity) = (table.vo.as_deref(), table.activity.as_deref());
        let (vo, activity) = (vo.unwrap_or("vo"), activity.unwrap_or("default"));
        check_label("VO", vo)?;
        check_label("activity", activity)?;
        let seconds = |span: Option<Span>| span.map_or(0.0, |span| span.0.as_secs_f64());
        Ok(Load {
            pairs,
            vo: vo.to_owned(),
            users,
            activity: activity.to_owned(),
            files: table.files,
            size: table.size.0 as f64,
            spread,
            job,
            begin: seconds(table.begin),
            over: seconds(table.over),
            daily: part("daily", table.daily.unwrap_or(0.0))?,
            priority: table.priority.unwrap_or(3),
            hopeless: table.hopeless.map(|kind| match kind {
                HopelessText::Request => Hopeless::Request,
                HopelessText::Storage => Hopeless::Storage,
            }),
        })
    }

    fn event(&self, table: &EventText, networks: &[Network], nodes: u32) -> Result<Event, String> {
        let needs =
            |key: &str, example: &str| format!("this event needs {key}, such as {key} = {example}");
        let storage = || match &table.storage {
            Some(name) => self.number(name),
            None => Err(needs("storage", "\"lyon\"")),
        };
        let node = || match table.node {
            Some(_) if nodes == 1 => Err(
                "the service is one process; write leader-lost, or nodes = 3 in [service]"
                    .to_owned(),
            ),
            Some(node) if (1..=nodes).contains(&node) => Ok(node as usize - 1),
            Some(node) => Err(format!("there is no node {node}; there are 1 to {nodes}")),
            None => Err(needs("node", "2")),
        };
        let end = |key: &str, name: &Option<String>| match name {
            Some(name) => self.number(name),
            None => Err(needs(key, "\"lyon\"")),
        };
        let ends = || Ok::<_, String>((end("from", &table.from)?, end("to", &table.to)?));
        let speed = || match table.speed {
            Some(speed) if (0.0..=1000.0).contains(&speed) => Ok(speed),
            _ => Err(needs("speed", "0.5")),
        };
        let max = || {
            let max = table.max.filter(|max| *max > 0);
            max.ok_or_else(|| needs("max", "30"))
        };
        let of_all = || part("part", table.part.ok_or_else(|| needs("part", "0.1"))?);
        let lasts = table.lasts.map(|span| span.0.as_secs_f64());
        let what = match table.what {
            What::StorageSlow => Change::StorageSpeed(storage()?, speed()?),
            What::StorageDown => Change::StorageDown(storage()?),
            What::StorageFails => Change::StorageFails(storage()?, of_all()?),
            What::NetworkSlow => {
                let (from, to) = ends()?;
                let is_it =
                    |it: &Network| (it.from, it.to) == (from, to) || (it.to, it.from) == (from, to);
                let network = networks.iter().position(is_it);
                Change::NetworkSpeed(
                    network.ok_or("the plan has no [[network]] between these two")?,
                    speed()?,
                )
            }
            What::Ban => {
                let effect = match table.effect {
                    Some(EffectText::Cancel) => BanEffect::Cancel,
                    Some(EffectText::Wait) => BanEffect::Wait,
                    Some(EffectText::WaitAndAccept) | None => BanEffect::WaitAndAccept,
                };
                Change::Ban(storage()?, effect)
            }
            What::Drain => Change::Drain,
            What::LinkMax => {
                let (from, to) = ends()?;
                Change::LinkMax(from, to, max()?)
            }
            What::StorageMax => Change::StorageMax(storage()?, max()?, max()?),
            What::LeaderLost => Change::LeaderLost(lasts.unwrap_or(5.0)),
            What::NodeLost => Change::NodeLost(node()?),
            What::NodeCutOff => Change::NodeCutOff(node()?),
            What::Clock => Change::Clock(jump(table.by.as_deref())?),
            What::Cancel => Change::Cancel(of_all()?),
        };
        Ok(Event {
            at: table.at.0.as_secs_f64(),
            lasts,
            what,
        })
    }

    fn number(&self, name: &str) -> Result<usize, String> {
        self.numbers.get(name).copied().ok_or_else(|| {
            let mut known: Vec<&str> = self.numbers.keys().map(String::as_str).collect();
            known.sort_unstable();
            known.truncate(20);
            format!(
                "'{name}' is not a storage of the plan; it has {}",
                known.join(", ")
            )
        })
    }

    fn numbers_of(&self, names: &Names) -> Result<Vec<usize>, String> {
        let mut numbers = Vec::new();
        for name in names.list() {
            match name == "*" {
                true => numbers.extend(0..self.numbers.len()),
                false => numbers.push(self.number(name)?),
            }
        }
        Ok(numbers)
    }

    /// Each with each, but none with itself.
    fn pairs(&self, from: &Names, to: &Names) -> Result<Vec<(usize, usize)>, String> {
        let (from, to) = (self.numbers_of(from)?, self.numbers_of(to)?);
        if from.len().saturating_mul(to.len()) > limits::PAIRS {
            return Err(format!(
                "it has more than {} pairs of storages",
                limits::PAIRS
            ));
        }
        let each = from
            .iter()
            .flat_map(|from| to.iter().map(|to| (*from, *to)));
        let pairs: Vec<(usize, usize)> = each.filter(|(from, to)| from != to).collect();
        match pairs.is_empty() {
            true => Err("from and to have to be two different storages".to_owned()),
            false => Ok(pairs),
        }
    }
}

/// What is wrong in a table is told with its line.
fn in_table<T, R>(
    text: &str,
    table: &Spanned<T>,
    read: impl FnOnce(&T) -> Result<R, String>,
) -> Result<R, PlanError> {
    read(table.get_ref()).map_err(|what| {
        let before = text.get(..table.span().start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        PlanError::Nonsense { line, what }
    })
}

fn check_sizes(plan: &Plan) -> Result<(), PlanError> {
    let pairs = plan
        .loads
        .iter()
        .map(|load| load.pairs.len())
        .sum::<usize>();
    let files = plan
        .loads
        .iter()
        .fold(0u64, |sum, load| sum.saturating_add(load.files));
    let all = [
        (
            "storages",
            plan.storages.len() as u64,
            limits::STORAGES as u64,
        ),
        (
            "networks",
            plan.networks.len() as u64,
            limits::NETWORKS as u64,
        ),
        ("VOs", plan.vos.len() as u64, limits::VOS as u64),
        (
            "pairs of storages in its loads",
            pairs as u64,
            limits::PAIRS as u64,
        ),
        ("files", files, limits::FILES),
        ("events", plan.events.len() as u64, limits::EVENTS as u64),
    ];
    match all.into_iter().find(|(_, found, most)| found > most) {
        Some((what, found, most)) => {
            let what = format!("the plan has {found} {what}; at most {most} are simulated");
            Err(PlanError::TooLarge(what))
        }
        None => Ok(()),
    }
}

/// A name that is part of URLs.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    match !name.is_empty() && name.len() <= 100 && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "'{name}' is not a valid storage name; write small letters, digits, '-' and '.'"
        )),
    }
}

fn check_label(what: &str, name: &str) -> Result<(), String> {
    match !name.is_empty() && name.len() <= 100 && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(format!(
            "'{name}' is not a valid name of a {what}; write 1 to 100 letters"
        )),
    }
}

fn part(key: &str, value: f64) -> Result<f64, String> {
    match (0.0..=1.0).contains(&value) {
        true => Ok(value),
        false => Err(format!("{key} is {value}; write a part of 1, such as 0.05")),
    }
}

/// Seconds by which a clock jumps.
fn jump(text: Option<&str>) -> Result<f64, String> {
    let needs = || "this event needs by, such as by = \"+90s\" or by = \"-1h\"".to_owned();
    let text = text.ok_or_else(needs)?;
    let (sign, span) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(span), _) => (-1.0, span),
        (None, span) => (1.0, span.unwrap_or(text)),
    };
    let span: Span = span.parse().map_err(|_| needs())?;
    Ok(sign * span.0.as_secs_f64())
}
