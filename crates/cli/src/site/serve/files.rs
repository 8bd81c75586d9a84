//! Notices that keys or certificates of a site were replaced, so that nobody needs to tell the running process.

use crate::site::config::Config;
use crate::site::directory::SiteDirectory;
use crate::site::keys::RingFiles;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often the files are looked at.
pub const LOOK_EVERY: Duration = Duration::from_secs(2);
/// What the keys are good for changes with time, too.
const RENEW_EVERY: Duration = Duration::from_secs(300);

/// What changes when a file does.
type Stamp = Option<(u64, i64, i64, u64)>;

/// The files whose change counts, as they were when they were last taken over.
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    taken: Vec<Stamp>,
    at: Instant,
}

impl WatchedFiles {
    /// Takes the files of a configuration as they are now.
    pub fn of(site: &SiteDirectory, config: &Config) -> WatchedFiles {
        let ring = config
            .issuer
            .as_ref()
            .map(|issuer| RingFiles::of(site, issuer).list());
        let roots = config
            .storage
            .as_ref()
            .map(|storage| site.resolve(&storage.macaroon_keys));
        let seals = config
            .transfer
            .as_ref()
            .map(|transfer| site.resolve(&transfer.credential_keys));
        let tls = [&config.tls.certificate, &config.tls.key].map(|path| site.resolve(path));
        let rest = roots.into_iter().chain(seals);
        let paths: Vec<PathBuf> = tls.into_iter().chain(ring).chain(rest).collect();
        WatchedFiles {
            taken: stamps(&paths),
            paths,
            at: Instant::now(),
        }
    }

    /// Whether it is time to take them over again. Blocks for a few system calls.
    pub fn is_due(&self) -> bool {
        self.has_changed() || self.at.elapsed() >= RENEW_EVERY
    }

    /// Whether a file is another one than was taken.
    pub fn has_changed(&self) -> bool {
        stamps(&self.paths) != self.taken
    }
}

fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    };
    paths.iter().map(stamp).collect()
}
