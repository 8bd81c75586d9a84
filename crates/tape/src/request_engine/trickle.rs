//! Ends mounts that are written to only now and then: files that come one by one keep a drive for little, and gather sooner than
//! they are missed. A time is watched at a time; what was seen is not kept, so that after a restart each mount has its whole time.

use super::RequestEngine;
use crate::drive_pool::MountPurpose;
use crate::locate::SECOND_NS;
use crate::mount_decision::is_worth;
use crate::request::DriveName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// When an archive mount is underfed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TricklePolicy {
    /// So long is watched at a time.
    pub watch_ns: i64,
    /// The least part of it for which the drive has to be fed, in thousandths; 0: no mount is ended.
    pub fed_permille_min: u32,
}

impl TricklePolicy {
    /// Both are those of CTA.
    pub const USUAL: TricklePolicy = TricklePolicy {
        watch_ns: 300 * SECOND_NS,
        fed_permille_min: 400,
    };
}

/// A write that takes this many tenths of its time at the native rate is still fed for all of it, and each may take a second more.
const SLOW_TENTHS: i128 = 25;
const WRITE_GRACE_NS: i64 = SECOND_NS;

#[derive(Debug, Clone, Copy)]
struct Watch {
    begin_ns: i64,
    fed_ns: i64,
    work_begin_ns: i64,
    is_ending: bool,
}

/// What is seen of mounts that archive.
#[derive(Debug, Clone, Default)]
pub(super) struct Trickles {
    watches: BTreeMap<DriveName, Watch>,
}

impl Trickles {
    pub(super) fn begin_work(&mut self, now_ns: i64, drive: &DriveName) {
        if let Some(watch) = self.watches.get_mut(drive) {
            watch.work_begin_ns = now_ns;
        }
    }

    /// Whether a mount is to end when all that it has written is safe.
    pub(super) fn is_ending(&self, drive: &DriveName) -> bool {
        self.watches.get(drive).is_some_and(|watch| watch.is_ending)
    }

    pub(super) fn forget(&mut self, drive: &DriveName) {
        self.watches.remove(drive);
    }
}

impl RequestEngine {
    /// A write or a sync has ended.
    pub(super) fn add_fed(&mut self, now_ns: i64, drive: &DriveName) {
        let Some(mount) = self.live.mount(drive) else {
            return;
        };
        let files = mount.work.members().iter();
        let sizes = files.filter_map(|file| Some(self.live.archives.get(file)?.size_bytes));
        let bytes: u64 = sizes.sum();
        let kind = self.live.tapes.get(&mount.tape).map(|tape| &tape.kind);
        let model = kind.and_then(|kind| self.kinds.get(kind));
        let rate = model.map_or(u64::MAX, |model| model.native_rate.max(1));
        let native_ns = i128::from(bytes) * i128::from(SECOND_NS) / i128::from(rate);
        let most_ns = native_ns * SLOW_TENTHS / 10 + i128::from(WRITE_GRACE_NS);
        let is_sync = mount.work.members().is_empty();
        if let Some(watch) = self.trickles.watches.get_mut(drive) {
            let took_ns = now_ns.saturating_sub(watch.work_begin_ns).max(0);
            watch.fed_ns += match is_sync {
                true => took_ns,
                false => took_ns.min(i64::try_from(most_ns).unwrap_or(i64::MAX)),
            };
        }
    }

    /// Whether a mount that archives is to end because it was underfed. One whose queue is worth a mount goes on: it would come back
    /// at once.
    pub(super) fn is_trickle(&mut self, now_ns: i64, drive: &DriveName) -> bool {
        let policy = self.policy.trickle;
        let new = Watch {
            begin_ns: now_ns,
            fed_ns: 0,
            work_begin_ns: now_ns,
            is_ending: false,
        };
        let watch = *self.trickles.watches.entry(drive.clone()).or_insert(new);
        let watched_ns = now_ns.saturating_sub(watch.begin_ns);
        if watch.is_ending || watched_ns < policy.watch_ns {
            return watch.is_ending;
        }
        let least = i128::from(watched_ns) * i128::from(policy.fed_permille_min);
        let is_underfed = i128::from(watch.fed_ns) * 1_000 < least;
        let next = Watch {
            is_ending: is_underfed && !self.is_queue_worth_a_mount(now_ns, drive),
            ..new
        };
        self.trickles.watches.insert(drive.clone(), next);
        next.is_ending
    }

    fn is_queue_worth_a_mount(&mut self, now_ns: i64, drive: &DriveName) -> bool {
        let Some(mount) = self.live.mount(drive) else {
            return false;
        };
        let MountPurpose::Archive(family) = &mount.purpose else {
            return false;
        };
        let (family, tape) = (family.clone(), mount.tape.clone());
        let Some(library) = self.live.tapes.get(&tape).map(|tape| tape.library.clone()) else {
            return false;
        };
        let candidate = self.queued_for(now_ns, &family, &library);
        let candidate = candidate.and_then(|sum| self.archive_candidate(&family, tape, sum));
        candidate.is_some_and(|mut candidate| {
            candidate.mounts = 0;
            is_worth(now_ns, &self.policy.mount, &candidate)
        })
    }
}
