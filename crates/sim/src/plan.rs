//! What is to be simulated, as a file says it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thiserror::Error;

/// A plan that cannot be followed.
#[derive(Debug, Error)]
pub enum PlanError {
    /// It is no TOML, or says what is not known.
    #[error("the plan is not understood: {0}")]
    Syntax(#[from] toml::de::Error),
    /// It contradicts itself.
    #[error("the plan {0}")]
    Contradiction(String),
}

/// A field, what happens in it, and for how long it is watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// For people.
    #[serde(default)]
    pub name: String,
    /// Seconds of virtual time. What has not ended by then is counted as open.
    pub seconds: u64,
    /// Of chance.
    #[serde(default)]
    pub seed: u64,
    /// The transfer service.
    #[serde(default)]
    pub service: Service,
    /// Storage elements.
    #[serde(rename = "storage")]
    pub storages: Vec<Storage>,
    /// Networks between two of them, both ways.
    #[serde(rename = "path", default)]
    pub paths: Vec<Path>,
    /// Who submits what.
    #[serde(rename = "load")]
    pub loads: Vec<Load>,
    /// What changes meanwhile.
    #[serde(rename = "event", default)]
    pub events: Vec<Event>,
}

/// Limits and rules of the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// Transfers at once on a link.
    pub link_max: u32,
    /// Out of, and into, a storage element.
    pub storage_max: u32,
    /// In all.
    pub agents_max: u32,
    /// Retries of a failed transfer.
    pub retries: u32,
    /// Seconds before the first retry.
    pub retry_delay: u64,
}

impl Default for Service {
    fn default() -> Service {
        Service {
            link_max: 50,
            storage_max: 200,
            agents_max: 10_000,
            retries: 2,
            retry_delay: 30,
        }
    }
}

/// A storage element.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// As host name.
    pub name: String,
    /// Megabytes per second that it reads, over all files.
    pub read: f64,
    /// Megabytes per second that it writes.
    pub write: f64,
    /// So many files at once halve what it can do, and more make it worse. Without it, it does not degrade.
    pub knee: Option<f64>,
    /// Milliseconds that it takes to open and to commit a file.
    #[serde(default = "Storage::default_latency")]
    pub latency: f64,
    /// Which part of its files fails, from 0 to 1.
    #[serde(default)]
    pub failures: f64,
}

impl Storage {
    fn default_latency() -> f64 {
        20.0
    }
}

/// A network between two storage elements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// One end.
    pub from: String,
    /// The other.
    pub to: String,
    /// Megabytes per second each way.
    pub bandwidth: f64,
    /// Megabytes per second that one transfer reaches at most.
    pub per_transfer: f64,
    /// Milliseconds there and back.
    #[serde(default)]
    pub rtt: f64,
}

/// Files that somebody submits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// From where.
    pub from: String,
    /// Where to.
    pub to: String,
    /// On whose behalf.
    #[serde(default = "Load::default_vo")]
    pub vo: String,
    /// How many.
    pub files: u64,
    /// Megabytes of each, on average.
    pub size: f64,
    /// Standard deviation of the sizes' logarithm. 0: all alike.
    #[serde(default)]
    pub spread: f64,
    /// Files of one job.
    #[serde(default = "Load::default_job")]
    pub job: u64,
    /// The second of the first submission.
    #[serde(default)]
    pub begin: f64,
    /// Seconds over which submissions are spread.
    #[serde(default)]
    pub over: f64,
    /// 1 to 5.
    #[serde(default = "Load::default_priority")]
    pub priority: i64,
}

impl Load {
    fn default_vo() -> String {
        "vo".to_owned()
    }

    fn default_job() -> u64 {
        100
    }

    fn default_priority() -> i64 {
        3
    }
}

/// Something that changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// In which second.
    pub at: f64,
    /// What.
    #[serde(flatten)]
    pub what: Change,
}

/// What changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Change {
    /// A storage element does so many times what it did in the plan.
    Storage {
        /// Which.
        name: String,
        /// 0: it accepts and never answers.
        factor: f64,
    },
    /// A network carries so many times what it did in the plan.
    Path {
        /// One end.
        from: String,
        /// The other.
        to: String,
        /// 0: nothing.
        factor: f64,
    },
    /// The service is killed, and starts again at once.
    Crash,
    /// The service starts nothing more, or starts again.
    Drain {
        /// Which.
        on: bool,
    },
}

impl Plan {
    /// Reads a plan.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        let plan: Plan = toml::from_str(text)?;
        plan.check().map_err(PlanError::Contradiction)?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        for storage in &self.storages {
            let name = &storage.name;
            if !names.insert(name.as_str()) {
                return Err(format!("names the storage '{name}' twice"));
            }
            if !(storage.read >= 0.0 && storage.write >= 0.0 && storage.latency >= 0.0) {
                return Err(format!("gives the storage '{name}' a negative number"));
            }
        }
        let known = |name: &str| match names.contains(name) {
            true => Ok(()),
            false => Err(format!("speaks of '{name}', which is no storage of it")),
        };
        for path in &self.paths {
            known(&path.from)?;
            known(&path.to)?;
        }
        for load in &self.loads {
            known(&load.from)?;
            known(&load.to)?;
            if load.from == load.to || load.job == 0 {
                return Err(format!(
                    "has a load from '{}' to '{}' in jobs of {} files",
                    load.from, load.to, load.job
                ));
            }
        }
        for event in &self.events {
            match &event.what {
                Change::Storage { name, .. } => known(name)?,
                Change::Path { from, to, .. } => {
                    let is_it = |path: &Path| {
                        (&path.from, &path.to) == (from, to) || (&path.to, &path.from) == (from, to)
                    };
                    if !self.paths.iter().any(is_it) {
                        return Err(format!(
                            "changes a path from '{from}' to '{to}', which it does not have"
                        ));
                    }
                }
                Change::Crash | Change::Drain { .. } => {}
            }
        }
        Ok(())
    }
}
