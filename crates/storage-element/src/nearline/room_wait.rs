//! Files that wait for a pool before they can be brought from tape: since when, what for, and when that is an incident.

use super::NearlineIncident;
use super::driver_task::RoomLack;
use super::wording::{DiskIncident, disk_incident_code, log_begin, log_end, no_pool, no_room};
use penstock_model::{Bytes, Timestamp};
use penstock_persistence::namespace::EntryId;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WaitingFile {
    room: Bytes,
    lack: RoomLack,
    since: Timestamp,
    /// When those who asked for it were told so.
    told: Timestamp,
}

/// Who asks for a file while it waits is told so within this time. To tell it at each try would be a change of the namespace for
/// each file and each try.
const TELL_INTERVAL: Duration = Duration::from_secs(600);

/// All of them. A restart begins to count anew, with the next try of each.
#[derive(Debug, Default)]
pub(super) struct RoomWait {
    files: BTreeMap<EntryId, WaitingFile>,
    /// The incident that was logged last, until its end is.
    logged: Option<(DiskIncident, String)>,
}

impl RoomWait {
    /// A recall found no pool for so many bytes. True: those who asked for it are to be told.
    pub(super) fn waits(
        &mut self,
        file: EntryId,
        (room, lack): (Bytes, RoomLack),
        at: Timestamp,
    ) -> bool {
        let first = WaitingFile {
            room,
            lack,
            since: at,
            told: at,
        };
        match self.files.entry(file) {
            Entry::Vacant(entry) => {
                entry.insert(first);
                true
            }
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                let is_due = known.lack != lack || known.told + TELL_INTERVAL <= at;
                known.lack = lack;
                if is_due {
                    known.told = at;
                }
                is_due
            }
        }
    }

    /// It has room, or nobody wants it any more.
    pub(super) fn is_over(&mut self, file: EntryId) {
        self.files.remove(&file);
    }

    /// Those that are not asked for any more are not waited for.
    pub(super) fn keep_only(&mut self, is_wanted: impl Fn(EntryId) -> bool) {
        self.files.retain(|file, _| is_wanted(*file));
    }

    /// What the largest of them needs that may come if room is made; `None`: nothing waits for that.
    pub(super) fn largest(&self) -> Option<Bytes> {
        let files = self.files.values();
        let full = files.filter(|file| file.lack == RoomLack::Full);
        full.map(|file| file.room).max()
    }

    /// What a person should look at, once the oldest has waited so long. It is logged once, and its end as well.
    pub(super) fn incident(
        &mut self,
        now: Timestamp,
        wait_max: Duration,
    ) -> Option<NearlineIncident> {
        let oldest = self.files.values().min_by_key(|file| file.since);
        let oldest = oldest.filter(|file| file.since + wait_max <= now).copied();
        let Some(oldest) = oldest else {
            if let Some((_, what)) = self.logged.take() {
                log_end(&what);
            }
            return None;
        };
        let same = self.files.values();
        let same = same.filter(|file| file.lack == oldest.lack);
        let (files, bytes) = same.fold((0, 0), |(files, bytes): (u64, u64), file| {
            (files + 1, bytes.saturating_add(file.room.0))
        });
        let (incident, what) = match oldest.lack {
            RoomLack::Full => (DiskIncident::NoRoom, no_room(files, Bytes(bytes))),
            RoomLack::OutOfService => (DiskIncident::NoPool, no_pool(files)),
        };
        let before = self.logged.take_if(|(known, _)| *known != incident);
        if let Some((_, what)) = before {
            log_end(&what);
        }
        if self.logged.is_none() {
            log_begin(&what, None);
            self.logged = Some((incident, what.clone()));
        }
        Some(NearlineIncident {
            code: disk_incident_code(incident),
            what,
            since: oldest.since,
            fault: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT_MAX: Duration = Duration::from_secs(10);

    #[test]
    fn a_file_that_waits_long_for_room_is_an_incident_until_it_has_room() {
        let mut wait = RoomWait::default();
        wait.waits(EntryId(1), (Bytes(5), RoomLack::Full), Timestamp(0));
        wait.waits(EntryId(2), (Bytes(7), RoomLack::Full), Timestamp(9_000));
        assert!(
            !wait.waits(EntryId(1), (Bytes(5), RoomLack::Full), Timestamp(9_500)),
            "who asked was told at the first try"
        );
        assert_eq!(
            wait.incident(Timestamp(9_999), WAIT_MAX).map(|it| it.since),
            None
        );
        let told = wait
            .incident(Timestamp(10_000), WAIT_MAX)
            .expect("an incident");
        assert_eq!(told.since, Timestamp(0), "a later try is no new wait");
        assert!(
            told.what
                .contains("wait for room on disk before they can be recalled from tape: 2 (12 B)"),
            "{}",
            told.what
        );
        assert_eq!(wait.largest(), Some(Bytes(7)));
        wait.is_over(EntryId(1));
        assert!(wait.incident(Timestamp(10_000), WAIT_MAX).is_none());
        wait.keep_only(|_| false);
        assert_eq!(wait.largest(), None);
        assert!(wait.waits(EntryId(3), (Bytes(5), RoomLack::Full), Timestamp(0)));
        assert!(!wait.waits(EntryId(3), (Bytes(5), RoomLack::Full), Timestamp(599_999)));
        assert!(
            wait.waits(EntryId(3), (Bytes(5), RoomLack::Full), Timestamp(600_000)),
            "others may have asked since"
        );
        assert!(!wait.waits(EntryId(3), (Bytes(5), RoomLack::Full), Timestamp(600_001)));
    }

    #[test]
    fn a_pool_that_is_full_and_one_that_takes_no_files_are_told_apart() {
        let mut wait = RoomWait::default();
        let (full, away) = (RoomLack::Full, RoomLack::OutOfService);
        wait.waits(EntryId(1), (Bytes(5), full), Timestamp(0));
        assert!(wait.waits(EntryId(1), (Bytes(5), away), Timestamp(1)));
        assert!(!wait.waits(EntryId(1), (Bytes(5), away), Timestamp(2)));
        assert_eq!(wait.largest(), None, "room that is made does not help");
        let code = |wait: &mut RoomWait| {
            let told = wait.incident(Timestamp(20_000), WAIT_MAX);
            told.expect("an incident").code
        };
        assert_eq!(code(&mut wait), "no-pool-takes-files");
        wait.waits(EntryId(1), (Bytes(5), full), Timestamp(3));
        assert_eq!(code(&mut wait), "no-room-on-disk");
    }
}
