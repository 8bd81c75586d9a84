//! Finds drives that do nothing although they should: a mount that does not end, a read in which no byte moves. It looks at bytes,
//! since a process that reports and does nothing is stuck as well. What it has seen is not kept; after a restart each drive
//! has its whole time again.

use crate::drive_pool::{DrivePool, DriveState, DriveWork};
use crate::locate::SECOND_NS;
use crate::request::DriveName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How long drives may do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchdogLimits {
    /// A mount or a dismount, without news.
    pub mount_ns: i64,
    /// A drive that should move bytes.
    pub no_bytes_ns: i64,
}

impl WatchdogLimits {
    /// Ten minutes: a locate over a whole tape takes two.
    pub const USUAL: WatchdogLimits = WatchdogLimits {
        mount_ns: 600 * SECOND_NS,
        no_bytes_ns: 600 * SECOND_NS,
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    at_ns: i64,
    bytes: u64,
}

/// When each drive has last done something.
#[derive(Debug, Clone, Default)]
pub struct Watchdog {
    progress: BTreeMap<DriveName, Progress>,
}

impl Watchdog {
    /// A drive has begun something new.
    pub fn begin(&mut self, now_ns: i64, drive: &DriveName) {
        let progress = Progress {
            at_ns: now_ns,
            bytes: 0,
        };
        self.progress.insert(drive.clone(), progress);
    }

    /// A drive says how many bytes it has moved since it began; of a mount, any number that grows.
    pub fn moved(&mut self, now_ns: i64, drive: &DriveName, bytes: u64) {
        if let Some(progress) = self.progress.get_mut(drive)
            && bytes > progress.bytes
        {
            *progress = Progress {
                at_ns: now_ns,
                bytes,
            };
        }
    }

    /// When the first of the drives is overdue, if nothing happens until then.
    pub fn next_ns(&self, drives: &DrivePool, limits: WatchdogLimits) -> Option<i64> {
        let ends = drives.0.iter().filter_map(|(name, drive)| {
            let limit = limit(&drive.state, limits)?;
            Some(self.progress.get(name)?.at_ns + limit)
        });
        ends.min()
    }

    /// Drives that have done nothing for too long.
    pub fn overdue(
        &mut self,
        now_ns: i64,
        drives: &DrivePool,
        limits: WatchdogLimits,
    ) -> Vec<DriveName> {
        let mut overdue = Vec::new();
        for (name, drive) in &drives.0 {
            let Some(limit) = limit(&drive.state, limits) else {
                continue;
            };
            let first = Progress {
                at_ns: now_ns,
                bytes: 0,
            };
            let progress = self.progress.entry(name.clone()).or_insert(first);
            if now_ns - progress.at_ns >= limit {
                overdue.push(name.clone());
            }
        }
        overdue
    }
}

fn limit(state: &DriveState, limits: WatchdogLimits) -> Option<i64> {
    match state {
        DriveState::Mounting { .. } | DriveState::Dismounting { .. } => Some(limits.mount_ns),
        DriveState::Mounted(mount) => match mount.work {
            DriveWork::Idle { .. } => None,
            DriveWork::Reading(_)
            | DriveWork::Writing(_)
            | DriveWork::WritingAggregate(_)
            | DriveWork::Syncing => Some(limits.no_bytes_ns),
        },
        DriveState::Free | DriveState::Down { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive_pool::{Drive, MountPurpose};
    use crate::request::{LibraryName, TapeName};

    #[test]
    fn a_drive_that_reports_without_moving_is_overdue() {
        let name = DriveName("d".into());
        let state = DriveState::Mounting {
            tape: TapeName("t".into()),
            purpose: MountPurpose::Recall,
            since_ns: 0,
        };
        let drive = Drive {
            library: LibraryName("l".into()),
            kind: "LTO-8".to_owned(),
            state,
        };
        let pool = DrivePool([(name.clone(), drive)].into());
        let limits = WatchdogLimits::USUAL;
        let minute = 60 * SECOND_NS;
        let mut watchdog = Watchdog::default();
        watchdog.begin(0, &name);
        watchdog.moved(5 * minute, &name, 10);
        watchdog.moved(9 * minute, &name, 10);
        assert_eq!(watchdog.next_ns(&pool, limits), Some(15 * minute));
        assert!(watchdog.overdue(14 * minute, &pool, limits).is_empty());
        assert_eq!(
            watchdog.overdue(15 * minute, &pool, limits),
            std::slice::from_ref(&name)
        );
        // After a restart it has its whole time again.
        let mut again = Watchdog::default();
        assert!(again.overdue(15 * minute, &pool, limits).is_empty());
        assert_eq!(again.overdue(25 * minute, &pool, limits), [name]);
    }
}
