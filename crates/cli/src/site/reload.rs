//! Tells the running service of a site that its configuration has changed.

use crate::site::directory::SiteDirectory;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::Serialize;
use std::fs::File;
use std::io::Read;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reload")]
pub enum Reload {
    /// Nothing runs; the next start reads it.
    NotRunning,
    /// The process was told.
    Told { process: i32 },
    /// It could not be told.
    Failed { process: i32, why: String },
}

impl Reload {
    /// Sends SIGHUP to the process that serves the site.
    pub fn of(site: &SiteDirectory) -> Reload {
        let Some(process) = serving(site) else {
            return Reload::NotRunning;
        };
        match kill_process(process, Signal::HUP) {
            Ok(()) => Reload::Told {
                process: process.as_raw_nonzero().get(),
            },
            Err(why) => Reload::Failed {
                process: process.as_raw_nonzero().get(),
                why: why.to_string(),
            },
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        match self {
            Reload::NotRunning => "The site is not being served; its next start takes this over.\n".to_owned(),
            Reload::Told { process } => {
                format!("The running service (process {process}) takes this over now; its log says so.\n")
            }
            Reload::Failed { process, why } => format!(
                "The running service could not be told ({why}); run: kill -HUP {process}\n"
            ),
        }
    }
}

/// The process that holds the lock of the directory.
fn serving(site: &SiteDirectory) -> Option<Pid> {
    let mut file = File::open(site.root().join("state/serve.lock")).ok()?;
    let mut text = String::new();
    file.by_ref().take(32).read_to_string(&mut text).ok()?;
    let process = Pid::from_raw(text.trim().parse().ok()?)?;
    // Looked at first, so that the lock of a service that is just starting is not taken even for a moment.
    let lives = !matches!(test_kill_process(process), Err(rustix::io::Errno::SRCH));
    let is_held = || flock(&file, FlockOperation::NonBlockingLockShared).is_err();
    (lives && is_held()).then_some(process)
}
