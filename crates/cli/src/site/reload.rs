//! Has the running service of a site take over a changed configuration, and learns what came of it: a service leaves the outcome
//! of each reload in `state/last-reload.json`.

use crate::exit::CommandError;
use crate::site::directory::SiteDirectory;
use penstock_durable_file::replace_private;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long a service may take for it.
const RELOAD_TIME_MAX: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const FILE_BYTES_MAX: u64 = 64 << 10;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reload")]
pub enum Reload {
    /// Nothing runs; the next start reads it.
    NotRunning,
    /// It is in effect.
    TakenOver { process: i32 },
    /// The service refused it and goes on as before.
    Refused { process: i32, why: String },
    /// The service was told, and has not said yet what came of it.
    Told { process: i32 },
    /// The service could not be told.
    Failed { process: i32, why: String },
}

/// What a service leaves of its last reload.
#[derive(Debug, Serialize, Deserialize)]
struct LastReload {
    process: u32,
    /// Another one for each.
    id: Uuid,
    /// Why nothing, or not all, was taken over.
    error: Option<String>,
}

impl Reload {
    /// Sends SIGHUP to the process that serves the site, and waits for what comes of it.
    pub fn of(site: &SiteDirectory) -> Reload {
        let before = last(site).map(|last| last.id);
        let Some(pid) = serving(site) else {
            return Reload::NotRunning;
        };
        let process = pid.as_raw_nonzero().get();
        if let Err(why) = kill_process(pid, Signal::HUP) {
            let why = why.to_string();
            return Reload::Failed { process, why };
        }
        let begun = Instant::now();
        while begun.elapsed() < RELOAD_TIME_MAX {
            std::thread::sleep(LOOK_EVERY);
            match last(site) {
                Some(last) if Some(last.id) != before => {
                    return match last.error {
                        None => Reload::TakenOver { process },
                        Some(why) => Reload::Refused { process, why },
                    };
                }
                Some(_) | None => {}
            }
        }
        Reload::Told { process }
    }

    /// For people.
    pub fn text(&self) -> String {
        match self {
            Reload::NotRunning => {
                "The site is not running; the change applies at its next start.\n".to_owned()
            }
            Reload::TakenOver { process } => {
                format!("The running service (process {process}) has applied the change.\n")
            }
            Reload::Refused { process, why } => {
                format!("The running service (process {process}) has rejected the change: {why}\n")
            }
            Reload::Told { process } => format!(
                "The running service (process {process}) has not confirmed the change within {} s; see its log.\n",
                RELOAD_TIME_MAX.as_secs()
            ),
            Reload::Failed { process, why } => format!(
                "The running service could not be signalled ({why}); as its user, run: kill -HUP {process}\n"
            ),
        }
    }

    /// How a command ends whose change is in the files, but perhaps not in effect.
    pub fn outcome(&self) -> Result<(), CommandError> {
        match self {
            Reload::NotRunning | Reload::TakenOver { .. } => Ok(()),
            Reload::Refused { .. } => Err(CommandError::Configuration(self.sentence())),
            Reload::Told { .. } | Reload::Failed { .. } => {
                Err(CommandError::Local(self.sentence()))
            }
        }
    }

    fn sentence(&self) -> String {
        self.text().trim_end().to_owned()
    }
}

/// Leaves what came of a reload. Blocks for a small file.
pub fn leave(site: &SiteDirectory, error: Option<String>) {
    let last = LastReload {
        process: std::process::id(),
        id: Uuid::new_v4(),
        error,
    };
    let text = serde_json::to_string(&last).expect("plain data serialises");
    if let Err(why) = replace_private(&place(site), &text) {
        tracing::warn!(%why, "cannot store the outcome of the reload");
    }
}

fn place(site: &SiteDirectory) -> PathBuf {
    site.root().join("state/last-reload.json")
}

fn last(site: &SiteDirectory) -> Option<LastReload> {
    let file = File::open(place(site)).ok()?;
    serde_json::from_reader(file.take(FILE_BYTES_MAX)).ok()
}

/// The process that holds the lock of the directory.
fn serving(site: &SiteDirectory) -> Option<Pid> {
    let mut file = File::open(site.root().join("state/serve.lock")).ok()?;
    let mut text = String::new();
    file.by_ref().take(32).read_to_string(&mut text).ok()?;
    let number: u32 = text.trim().parse().ok()?;
    let process = Pid::from_raw(i32::try_from(number).ok()?)?;
    // Looked at first, so that the lock of a service that is just starting is not taken even for a moment.
    let lives = !matches!(test_kill_process(process), Err(Errno::SRCH));
    let is_held = || flock(&file, FlockOperation::NonBlockingLockShared).is_err();
    (lives && is_held()).then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_that_nobody_serves_is_told_as_such() {
        let made = tempfile::tempdir().expect("a directory");
        let site = SiteDirectory::at(made.path()).expect("a path");
        assert_eq!(Reload::of(&site), Reload::NotRunning);
        std::fs::create_dir(made.path().join("state")).expect("made");
        for text in ["", "no number", "0", "-1", "99999999"] {
            std::fs::write(made.path().join("state/serve.lock"), text).expect("written");
            assert_eq!(Reload::of(&site), Reload::NotRunning, "{text}");
        }
        // This process lives, and holds no lock.
        let own = std::process::id().to_string();
        std::fs::write(made.path().join("state/serve.lock"), own).expect("written");
        assert_eq!(Reload::of(&site), Reload::NotRunning);
        leave(&site, Some("no".to_owned()));
        let first = last(&site).expect("left");
        leave(&site, None);
        let second = last(&site).expect("left");
        assert_eq!((first.error.as_deref(), second.error), (Some("no"), None));
        assert_ne!(first.id, second.id);
    }
}
