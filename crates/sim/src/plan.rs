//! What is to be simulated: storages, networks, users, what happens meanwhile, and for how long. In plain numbers;
//! [`text`] reads what people write.

#[cfg(test)]
mod tests;
mod text;

pub use text::PlanError;

use penstock_model::{BanEffect, LinkId, StorageId};
use std::fmt;
use std::str::FromStr;

/// Plans to begin with, by name.
pub const EXAMPLES: [(&str, &str); 2] = [
    ("small", include_str!("../plans/example.toml")),
    ("wlcg-day", include_str!("../plans/wlcg-day.toml")),
];

/// What is too large to be simulated in reasonable time and memory.
pub mod limits {
    /// Storage elements.
    pub const STORAGES: usize = 1_000;
    /// Pools of one storage element.
    pub const POOLS: u32 = 1_000;
    pub const NETWORKS: usize = 100_000;
    pub const VOS: usize = 1_000;
    /// Pairs of a source and a destination, over all loads.
    pub const PAIRS: usize = 100_000;
    /// Files, over all loads.
    pub const FILES: u64 = 50_000_000;
    /// Files of one job.
    pub const JOB: u64 = 10_000;
    /// Nodes of the service.
    pub const NODES: u32 = 100;
    pub const EVENTS: usize = 10_000;
    /// Seconds: a year.
    pub const SECONDS: f64 = 366.0 * 86_400.0;
    /// Bytes of a plan's text.
    pub const TEXT: usize = 4_000_000;
}

/// A field, what happens in it, and for how long it is watched.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// For people.
    pub name: String,
    /// Seconds of virtual time at most. What has not ended by then is counted as open.
    pub seconds: f64,
    /// Of chance.
    pub seed: u64,
    /// The transfer service.
    pub service: Service,
    /// Storage elements. Everything else names them by their number here.
    pub storages: Vec<Storage>,
    /// Networks between two of them.
    pub networks: Vec<Network>,
    /// Who has which share.
    pub vos: Vec<Vo>,
    /// Who submits what.
    pub loads: Vec<Load>,
    /// What changes meanwhile.
    pub events: Vec<Event>,
    /// What no plan of people asks for.
    pub malice: Malice,
}

/// How bad things are made on purpose, to see what the service makes of them. Parts are from 0 to 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Malice {
    /// The part of the files that go where another one goes.
    pub same_destination: f64,
    /// The part of the jobs whose files are replicas of one another.
    pub replicas: f64,
    /// The part of the jobs whose files are hops.
    pub hops: f64,
    /// The part of the jobs that may replace what is there.
    pub overwrites: f64,
    /// The part of the failures that no retry helps.
    pub final_failures: f64,
    /// The part of the failed attempts that cannot remove what they wrote.
    pub unclean: f64,
    /// The part of the lost leaders that die between keeping a record and acting.
    pub torn: f64,
    /// Seconds that jobs may wait at most; 0: as long as it takes.
    pub queue_seconds_max: f64,
}

/// Limits and rules of the service.
#[derive(Debug, Clone, PartialEq)]
pub struct Service {
    /// By which rule the number of transfers on a link is found.
    pub policy: Policy,
    /// Transfers at once on a link, at most.
    pub link_max: u32,
    /// Out of, and into, a storage element.
    pub storage_max: u32,
    pub agents_max: u32,
    /// Processes over one database, of which one leads. Each runs its part of all agents.
    pub nodes: u32,
    /// Retries of a failed transfer.
    pub retries: u32,
    /// Seconds before the first retry.
    pub retry_delay: f64,
    /// Seconds without a byte after which an agent gives up.
    pub stall: f64,
    /// Sources push files. Without it, destinations pull them.
    pub pushes: bool,
}

impl Default for Service {
    fn default() -> Service {
        Service {
            policy: Policy::Limits,
            link_max: 50,
            storage_max: 200,
            agents_max: 10_000,
            nodes: 1,
            retries: 2,
            retry_delay: 30.0,
            stall: 120.0,
            pushes: false,
        }
    }
}

/// By which rule the number of transfers on each link is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// As many as the plan's limits allow.
    #[default]
    Limits,
    /// This many on each link, within the limits of storages.
    Fixed(u32),
    /// The service finds out what moves most, within the limits.
    Measured,
    /// FTS3's published rules, within the limits.
    Fts3,
}

impl FromStr for Policy {
    type Err = String;
    fn from_str(text: &str) -> Result<Policy, String> {
        let unknown =
            || format!("'{text}' is not a policy; write limits, fixed:20, measured or fts3");
        match text.split_once(':') {
            None if text == "limits" => Ok(Policy::Limits),
            None if text == "measured" => Ok(Policy::Measured),
            None if text == "fts3" => Ok(Policy::Fts3),
            Some(("fixed", number)) => match number.parse() {
                Ok(number @ 1..=1_000_000) => Ok(Policy::Fixed(number)),
                _ => Err(unknown()),
            },
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Limits => out.write_str("limits"),
            Policy::Measured => out.write_str("measured"),
            Policy::Fts3 => out.write_str("fts3"),
            Policy::Fixed(number) => write!(out, "fixed:{number}"),
        }
    }
}

/// A storage element. Its files are spread over its pools by chance, and each pool does its part of the whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Storage {
    /// As host name.
    pub name: String,
    /// How many pools it has.
    pub pools: u32,
    /// Bytes per second that its pools read, when they do nothing else.
    pub read: f64,
    /// Bytes per second that they write, when they do nothing else.
    pub write: f64,
    /// So many files at once halve what a pool can do, and more make it worse. Without it, it does not degrade.
    pub halved_at: Option<f64>,
    /// Bytes per second in and out of the site. Without it, only pools and networks count.
    pub uplink: Option<f64>,
    /// Seconds to open, and to commit, a file.
    pub latency: f64,
    /// Which part of its files fails, from 0 to 1.
    pub failures: f64,
}

/// A network between two storage elements, the same both ways unless the other way has one of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    /// One end.
    pub from: usize,
    pub to: usize,
    /// Bytes per second each way.
    pub bandwidth: f64,
    /// Bytes per second that one transfer reaches at most.
    pub per_transfer: f64,
    /// Seconds there and back.
    pub rtt: f64,
    /// Seconds from the start of an attempt to its first byte, as measured. Without it they follow from `rtt`.
    pub opening: Option<f64>,
    /// Bytes per second each way that others take, on average.
    pub others: f64,
    /// How much others swing over a day, from 0 to 1: at 0.5 between half as much and half more.
    pub others_swing: f64,
}

/// A VO and its shares.
#[derive(Debug, Clone, PartialEq)]
pub struct Vo {
    pub name: String,
    /// Its part of the slots of every link, in proportion to the others. When no VO has one, all get equal parts.
    pub share: Option<f64>,
    /// The parts of its activities.
    pub activities: Vec<(String, f64)>,
}

/// Files that somebody submits.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Between which storages. Files are spread over these pairs evenly.
    pub pairs: Vec<(usize, usize)>,
    /// On whose behalf.
    pub vo: String,
    /// How many users submit, in turn.
    pub users: u32,
    /// Its share label.
    pub activity: String,
    pub files: u64,
    /// Bytes of each, on average.
    pub size: f64,
    /// Standard deviation of the sizes' logarithm. 0: all alike.
    pub spread: f64,
    /// Files of one job.
    pub job: u64,
    /// The second of the first submission.
    pub begin: f64,
    /// Seconds over which submissions are spread by chance. 0: all at once.
    pub over: f64,
    /// How much the rate of submissions swings over a day, from 0 to 1.
    pub daily: f64,
    /// 1 to 5.
    pub priority: i64,
    /// Why none of its files can arrive, if so.
    pub hopeless: Option<Hopeless>,
}

/// Why no file of a load can arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hopeless {
    /// Its users have made a mistake, such as destinations below a file.
    Request,
    /// The destination answers them, and nobody else, with errors of its own.
    Storage,
}

impl Hopeless {
    /// The directory of its files, by which their fate is known wherever they are met.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Hopeless::Request => "hopeless/request/",
            Hopeless::Storage => "hopeless/storage/",
        }
    }

    /// Of a destination.
    pub(crate) fn of(url: &str) -> Option<Hopeless> {
        let kinds = [Hopeless::Request, Hopeless::Storage];
        kinds
            .into_iter()
            .find(|kind| url.contains(kind.directory()))
    }
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// In which second.
    pub at: f64,
    /// After how many seconds it is over. `None`: it stays.
    pub lasts: Option<f64>,
    pub what: Change,
}

/// Attempts that fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Failing {
    /// Their part of all, from 0 to 1.
    pub part: f64,
    /// Seconds on average until such an attempt has failed, after both ends were looked at.
    pub seconds: f64,
}

/// The connections of each file on a network, and what they have to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Connections {
    /// Of each file.
    pub count: u32,
    /// Bytes that one of them has on its way at most.
    pub window: f64,
    /// What holds the window.
    pub limit: WindowLimit,
    /// Seconds there and back.
    pub rtt: f64,
    /// The part of the time in which one of them has something to send, from 0 to 1.
    pub fed: f64,
    /// What they move of what fed windows allow, from 0 to 1. Nothing reports the rest.
    pub efficiency: f64,
}

/// What holds the window of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowLimit {
    /// The send buffer, which may not grow.
    Buffer,
    /// The congestion window, which has not grown.
    Congestion,
}

impl Connections {
    /// Bytes per second of a file that its windows allow.
    pub(crate) fn ceiling(&self) -> f64 {
        f64::from(self.count) * self.window / self.rtt.max(1e-4)
    }

    /// Bytes per second of a file that it gets.
    pub(crate) fn rate(&self) -> f64 {
        self.ceiling() * self.fed * self.efficiency
    }
}

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A storage element does so many times what it does else. 0: it accepts and moves nothing.
    StorageSpeed(usize, f64),
    /// A storage element needs so many times as long to open and to commit a file.
    StorageLatency(usize, f64),
    /// A storage element is not there: connections are refused, and what runs breaks.
    StorageDown(usize),
    /// A part of a storage element's files fails, from 0 to 1.
    StorageFails(usize, f64),
    /// A storage element cannot read some of its files.
    ReadsFail(usize, Failing),
    /// A storage element cannot write some of the files that come.
    WritesFail(usize, Failing),
    /// Some pools of a storage element have no space for new files.
    Full(usize, Failing),
    /// A network carries so many times what it carries else, both ways. 0: nothing.
    NetworkSpeed(usize, f64),
    /// A network loses so many of its segments, from 0 to 1, both ways.
    NetworkLoss(usize, f64),
    /// Copies over a network, pushed, use such connections. When it is over, one connection that nothing holds.
    Connections(usize, Connections),
    /// The uplink of a storage element carries so many times what it carries else, both ways.
    UplinkSpeed(usize, f64),
    /// Copies into a storage element use so many connections for each file.
    Streams(usize, u32),
    /// The users of a load submit so many times as often. 0: not at all.
    Submissions(usize, f64),
    /// The users of a load submit files of so many times the size, and the same bytes in more of them.
    FileSizes(usize, f64),
    /// Operators ban a storage element.
    Ban(usize, BanEffect),
    /// The service starts nothing.
    Drain,
    /// Operators drain a storage element.
    StorageDrain(usize),
    /// Operators set how many transfers may run on a link.
    LinkMax(usize, usize, u32),
    /// Operators set how many transfers may run out of a storage element, and how many into it.
    StorageMax(usize, u32, u32),
    /// The process of the scheduling leader dies, and its agents with it; after this many seconds another one leads.
    LeaderLost(f64),
    /// The process of a node dies, and its agents with it.
    NodeLost(usize),
    /// A node works, and reaches neither the other nodes nor the database.
    NodeCutOff(usize),
    /// The wall clock jumps by so many seconds.
    Clock(f64),
    /// A part of the jobs that are open is canceled, from 0 to 1.
    Cancel(f64),
    /// A part of the jobs that are open gets this priority.
    Prioritise(f64, i64),
}

impl Plan {
    /// What the service calls a storage element.
    pub(crate) fn storage_id(&self, storage: usize) -> StorageId {
        StorageId::new(format!("https://{}", self.storages[storage].name))
    }

    /// What it calls a link.
    pub(crate) fn link_id(&self, (from, to): (usize, usize)) -> LinkId {
        LinkId {
            source: self.storage_id(from),
            destination: self.storage_id(to),
        }
    }

    /// Reads what people write.
    ///
    /// Errors: it is not understood, contradicts itself, or is too large; the message names the line.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        text::parse(text)
    }

    /// The network of a way: its own, or else that of the opposite way.
    pub(crate) fn network_between(&self, from: usize, to: usize) -> Option<usize> {
        let is = |ends: (usize, usize)| move |it: &Network| (it.from, it.to) == ends;
        let own = self.networks.iter().position(is((from, to)));
        own.or_else(|| self.networks.iter().position(is((to, from))))
    }

    /// Files that will be submitted.
    pub fn files(&self) -> u64 {
        self.loads.iter().map(|load| load.files).sum()
    }
}

/// Bytes of data in a packet of an Ethernet with TCP time stamps.
pub(crate) const SEGMENT: f64 = 1448.0;

/// Bytes per second of one connection that loses this part of its segments.
pub(crate) fn rate_under_loss(loss: f64, rtt: f64) -> f64 {
    // Mathis, Semke, Mahdavi, Ott: The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm (1997).
    SEGMENT * (1.5 / loss).sqrt() / rtt.max(1e-4)
}

/// The part of its segments that a connection of this rate loses: the same law.
pub(crate) fn loss_at_rate(rate: f64, rtt: f64) -> f64 {
    1.5 * (SEGMENT / (rate * rtt.max(1e-4)).max(1.0)).powi(2)
}
