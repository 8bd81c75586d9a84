//! Sentences of the tape system for people: the same in the status, in the log and on pages.

use penstock_model::quantity::Span;
use penstock_model::text::plural;
use penstock_model::{Bytes, Timestamp};
use penstock_persistence::namespace::EntryId;
use penstock_tape::drive_pool::{DriveActivity, DriveFault, DriveState};
use penstock_tape::hsm_queue::{HsmIncident, HsmIncidentEnd, HsmKind, HsmQueue, HsmTarget};
use penstock_tape::live_set::LiveSet;
use penstock_tape::mount_decision::{MountTarget, MountWait};
use penstock_tape::record::{TapeFault, TapeFinding};
use penstock_tape::request::{RequestOutcome, TapeErrorScope, TapeName, VoName};
use penstock_tape::request_engine::{QueueWait, TapeIncident};
use serde::Serialize;
use std::time::Duration;

/// What users are told of a file of which no copy has a name that is known here.
pub(super) const COPY_NOT_UNDERSTOOD: &str = "the name of its copy on tape cannot be parsed";

/// What users are told of a file that no pool has room for.
pub(super) const WAITS_FOR_ROOM: &str =
    "waits for room on disk: no pool has enough free space; the recall starts when one has";

/// The same, while no pool takes any file.
pub(super) const WAITS_FOR_POOL: &str = "waits for a pool: none takes files now (drained, disabled or failing); the recall starts when one does";

/// What is wrong with an HSM, and what is done or to be done about it.
pub(super) fn hsm_incident(incident: HsmIncident, queue: &HsmQueue) -> String {
    let policy = queue.policy();
    match incident {
        HsmIncident::Outage => format!(
            "the HSM is out of service: one command tests it every {} to {}, all other puts or gets wait; when it is \
             repaired, run penstock tape retry",
            span(policy.pause_first_ns),
            span(policy.pause_max_ns)
        ),
        HsmIncident::FilesFail(kind) => {
            let tried = queue.live().tried.get(&kind).into_iter().flatten();
            let failing = tried.filter(|(tries, _)| *tries >= policy.tries_max);
            format!(
                "{} could not be {} after {} tries, or were refused by the program; retry every {}, or now with penstock \
                 tape retry",
                plural(failing.count() as u64, "file"),
                done_to(kind),
                policy.tries_max,
                span(policy.retry_max_ns)
            )
        }
        HsmIncident::OldestWaits(kind) => format!(
            "a file has waited {} to be {} although fewer than {} = {} commands run; it is started now",
            span(policy.oldest_wait_ns),
            done_to(kind),
            slots_key(kind),
            policy.slots(kind)
        ),
        HsmIncident::CommandLost(command) => format!(
            "command {} of the HSM's program did not end when it was killed: look for a hanging process, often caused by a \
             file system that does not respond; other commands use its slot",
            command.0
        ),
    }
}

/// The same when it is over: how long it was, and what waited for its end.
pub(super) fn hsm_incident_end(end: &HsmIncidentEnd, queue: &HsmQueue) -> String {
    let lasted = span(end.until_ns.saturating_sub(end.since_ns) / 1_000_000_000 * 1_000_000_000);
    let waited = end.waited.map(|waited| {
        let files = plural(waited.files, "file");
        format!("; {files} ({}) waited for its end", Bytes(waited.bytes))
    });
    let incident = match end.incident {
        HsmIncident::Outage => "the HSM was out of service".to_owned(),
        HsmIncident::FilesFail(kind) => format!("files could not be {}", done_to(kind)),
        other @ (HsmIncident::OldestWaits(_) | HsmIncident::CommandLost(_)) => {
            hsm_incident(other, queue)
        }
    };
    format!("{incident}, for {lasted}{}", waited.unwrap_or_default())
}

fn done_to(kind: HsmKind) -> &'static str {
    match kind {
        HsmKind::Put => "put into the HSM",
        HsmKind::Get => "read from the HSM",
        HsmKind::Remove => "removed from the HSM",
    }
}

/// What a command does.
pub(super) fn name_of(target: &HsmTarget) -> String {
    match target {
        HsmTarget::Put(file) => format!("put of file {}", EntryId(file.0)),
        HsmTarget::Get(file) => format!("recall of file {}", EntryId(file.0)),
        HsmTarget::Remove(uri) => format!("removal of {}", uri.as_str()),
    }
}

fn slots_key(kind: HsmKind) -> &'static str {
    match kind {
        HsmKind::Put => "puts_max",
        HsmKind::Get => "gets_max",
        HsmKind::Remove => "removes_max",
    }
}

fn span(ns: i64) -> Span {
    Span(Duration::from_nanos(u64::try_from(ns).unwrap_or(0)))
}

/// What is wrong with tape libraries, why as far as that is known, and what is done or to be done about it.
pub(super) fn library_incident(incident: &TapeIncident, live: &LiveSet) -> String {
    match incident {
        TapeIncident::DriveDown(drive) => {
            let state = live.drives.0.get(drive).map(|drive| &drive.state);
            let because = match state {
                Some(DriveState::Down {
                    tape,
                    fault: Some(fault),
                    ..
                }) => format!(": {}", drive_fault(*fault, tape.as_ref())),
                _ => String::new(),
            };
            format!(
                "drive {0} is down{because}; when it works again and its tape is back in its slot, run penstock tape enable {0}",
                drive.0
            )
        }
        TapeIncident::TapeBroken(tape) => {
            let fault = live.tapes.get(tape).and_then(|tape| tape.fault.as_ref());
            let because = fault.map(|fault| format!(": {}", tape_fault(fault)));
            format!(
                "tape {0} cannot be used{because}; when it is repaired, run penstock tape enable {0}",
                tape.0,
                because = because.unwrap_or_default()
            )
        }
        TapeIncident::FilesUnreadable(tape) => format!(
            "files on tape {} cannot be read; those with another copy are written again, and penstock tape status lists the others",
            tape.0
        ),
        TapeIncident::LibraryPaused(library) => format!(
            "library {} is out of service: one mount at a time tests it; when it is repaired, run penstock tape retry",
            library.0
        ),
        TapeIncident::LibraryFull(library) => format!(
            "library {} has no space for more data: free space on its disk; files wait on the pools, and reading continues",
            library.0
        ),
        TapeIncident::OldestWaits(MountTarget::Recall(tape)) => format!(
            "files on tape {} have waited too long to be read although a drive is free; penstock tape status shows why",
            tape.0
        ),
        TapeIncident::OldestWaits(MountTarget::Archive(family, _)) => format!(
            "files of family {} have waited too long to be written although a drive is free; penstock tape status shows why",
            family.0
        ),
        TapeIncident::NoTapeLeft(family) => format!(
            "no tape is left for files of family {} in a library that is to have a copy: add tapes to it (tapes in [storage.tape.library])",
            family.0
        ),
    }
}

/// The same when it is over.
pub(super) fn library_incident_end(incident: &TapeIncident) -> String {
    match incident {
        TapeIncident::DriveDown(drive) => format!("drive {} was down", drive.0),
        TapeIncident::TapeBroken(tape) => format!("tape {} could not be used", tape.0),
        TapeIncident::FilesUnreadable(tape) => {
            format!("files on tape {} could not be read", tape.0)
        }
        TapeIncident::LibraryPaused(library) => {
            format!("library {} was out of service", library.0)
        }
        TapeIncident::LibraryFull(library) => {
            format!("library {} had no space for more data", library.0)
        }
        TapeIncident::OldestWaits(MountTarget::Recall(tape)) => {
            format!("files on tape {} waited too long to be read", tape.0)
        }
        TapeIncident::OldestWaits(MountTarget::Archive(family, _)) => {
            let family = &family.0;
            format!("files of family {family} waited too long to be written")
        }
        TapeIncident::NoTapeLeft(family) => {
            format!("no tape was left for files of family {}", family.0)
        }
    }
}

fn drive_fault(fault: DriveFault, tape: Option<&TapeName>) -> String {
    let tape = tape.map_or("its tape", |tape| &tape.0);
    let doing = match fault.activity {
        DriveActivity::Mount => format!("tape {tape} was being mounted"),
        DriveActivity::Idle => format!("tape {tape} was in it, and nothing was read or written"),
        DriveActivity::Read => format!("tape {tape} was being read"),
        DriveActivity::Write => format!("tape {tape} was being written"),
        DriveActivity::Sync => format!("data on tape {tape} was being synchronised"),
        DriveActivity::Dismount => format!("tape {tape} was being dismounted"),
    };
    match fault.is_silent {
        true => format!("it did nothing for too long while {doing}"),
        false => format!("it reported an error while {doing}"),
    }
}

fn tape_fault(fault: &TapeFault) -> String {
    let drive = &fault.drive.0;
    match fault.finding {
        TapeFinding::Error(DriveActivity::Mount) => {
            format!(
                "drive {drive} cannot read its label, or its cartridge is not in its place in the library"
            )
        }
        TapeFinding::Error(DriveActivity::Write | DriveActivity::Sync) => {
            format!("drive {drive} cannot write to it")
        }
        TapeFinding::Error(DriveActivity::Read | DriveActivity::Idle | DriveActivity::Dismount) => {
            format!("drive {drive} reported an error of the tape")
        }
        TapeFinding::DataLost {
            end_bytes,
            synced_bytes,
        } => format!(
            "drive {drive} found only {} of data on it, of {} that were synced: the rest is lost",
            Bytes(end_bytes),
            Bytes(synced_bytes)
        ),
    }
}

/// Why files could not be written to tape once more.
pub(super) fn why_it_stays(outcome: &RequestOutcome) -> &'static str {
    match outcome {
        RequestOutcome::NoCopyLeft(TapeErrorScope::File) => "their copies cannot be read",
        RequestOutcome::NoCopyLeft(TapeErrorScope::Tape) => "their tape is broken",
        RequestOutcome::NoCopyLeft(TapeErrorScope::Drive | TapeErrorScope::Library) => {
            "no drive could read their copies"
        }
        RequestOutcome::NoTape => "their tape is not in use",
        RequestOutcome::NotTaken => "their copies on disk could not be read or written",
        RequestOutcome::Canceled | RequestOutcome::Expired => "it was canceled",
        // With these it does not stay.
        RequestOutcome::Recalled | RequestOutcome::Verified | RequestOutcome::Archived(_) => {
            "nothing is known of it"
        }
    }
}

/// What files wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct WaitStatus {
    pub code: &'static str,
    /// The same in words.
    pub what: String,
    /// When that ends, if nothing changes and if it is known.
    pub until: Option<Timestamp>,
}

/// What files wait for that are to be read from a tape or written to one. `wall` tells the time of people for that of libraries.
pub(super) fn library_wait(wait: &QueueWait, wall: impl Fn(i64) -> Timestamp) -> WaitStatus {
    let (what, until_ns) = match wait {
        QueueWait::TapeNotInUse => ("the tape is disabled or being relabeled", None),
        QueueWait::DriveDown(drive) => {
            let what = format!("the tape is in drive {}, which is down", drive.0);
            return wait_status(wait, what, None);
        }
        QueueWait::LibraryPaused { probe_ns } => (
            "the library is out of service and will be tested again",
            Some(*probe_ns),
        ),
        QueueWait::LibraryFull { probe_ns } => (
            "the library has no space for more data and will be tested again",
            Some(*probe_ns),
        ),
        QueueWait::NoDrive => ("no working drive can use the tape", None),
        QueueWait::BackgroundHeld { until_ns } => ("background work is on hold", Some(*until_ns)),
        QueueWait::BackgroundBusy { max } => {
            let what = format!("background work, and background_drives = {max} are in use");
            return wait_status(wait, what, None);
        }
        QueueWait::Collecting { until_ns } => (
            "waiting for more files of the data set or aggregate",
            Some(*until_ns),
        ),
        QueueWait::TapesInDrives => ("all tapes with enough space are in drives", None),
        QueueWait::NoTapeLeft => ("no tape has enough space", None),
        QueueWait::NoFreeDrive => ("all drives are in use", None),
        QueueWait::Mount { wait: mount, vo } => {
            let (what, until_ns) = mount_wait(*mount, vo);
            return wait_status(wait, what, until_ns.map(wall));
        }
    };
    wait_status(wait, what.to_owned(), until_ns.map(wall))
}

fn wait_status(wait: &QueueWait, what: String, until: Option<Timestamp>) -> WaitStatus {
    let code = wait_code(wait);
    WaitStatus { code, what, until }
}

/// A line each: a test compares them with the description of the interface.
fn wait_code(wait: &QueueWait) -> &'static str {
    match wait {
        QueueWait::TapeNotInUse => "tape-not-in-use",
        QueueWait::DriveDown(_) => "drive-down",
        QueueWait::LibraryPaused { .. } => "library-out-of-service",
        QueueWait::LibraryFull { .. } => "library-full",
        QueueWait::NoDrive => "no-drive",
        QueueWait::BackgroundHeld { .. } => "background-held",
        QueueWait::BackgroundBusy { .. } => "background-busy",
        QueueWait::Collecting { .. } => "collecting",
        QueueWait::TapesInDrives => "tapes-in-drives",
        QueueWait::NoTapeLeft => "no-tape-left",
        QueueWait::NoFreeDrive => "no-free-drive",
        QueueWait::Mount { wait, .. } => match wait {
            MountWait::NotWorthIt { .. } => "not-worth-a-mount",
            MountWait::NoFreeDrive => "no-free-drive",
            MountWait::ClassBusy { .. } => "class-busy",
            MountWait::VoBusy { .. } => "vo-busy",
            MountWait::FamilyBusy { .. } => "family-busy",
            MountWait::BackgroundBusy => "background-busy",
        },
    }
}

fn mount_wait(wait: MountWait, vo: &VoName) -> (String, Option<i64>) {
    let (what, until_ns) = match wait {
        MountWait::NotWorthIt {
            bytes,
            files,
            until_ns,
            ..
        } => {
            let files = plural(files, "file");
            let what = format!(
                "{files} ({}), too few for a mount yet: waiting for more files or a longer wait",
                Bytes(bytes)
            );
            (what, Some(until_ns))
        }
        MountWait::NoFreeDrive => ("all drives are in use".to_owned(), None),
        MountWait::BackgroundBusy => (
            "background work, and all background_drives are in use".to_owned(),
            None,
        ),
        MountWait::ClassBusy { max } => {
            let drives = plural(max.into(), "drive");
            (
                format!("{drives} of this kind already do such work, which is the limit"),
                None,
            )
        }
        MountWait::VoBusy { max } => (
            format!("VO {} already uses drives_max = {max} drives", vo.0),
            None,
        ),
        MountWait::FamilyBusy { max } => (
            format!("width = {max} drives already write the family"),
            None,
        ),
    };
    (what, until_ns)
}

/// What is wrong on this side of the tape system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskIncident {
    /// Recalls wait for room.
    NoRoom,
    /// Recalls wait for a pool that takes files.
    NoPool,
    /// A file is not as it was written, or its copy on tape is another file's.
    FileNotArchived,
    /// Files are on no tape that is in use, and on no disk.
    FilesWithoutCopy,
}

/// A line each: a test compares them with the description of the interface and with the page for administrators.
pub(super) fn hsm_incident_code(incident: HsmIncident) -> &'static str {
    match incident {
        HsmIncident::Outage => "hsm-out-of-service",
        HsmIncident::FilesFail(_) => "files-fail",
        HsmIncident::OldestWaits(_) => "file-waits-too-long",
        HsmIncident::CommandLost(_) => "command-lost",
    }
}

pub(super) fn library_incident_code(incident: &TapeIncident) -> &'static str {
    match incident {
        TapeIncident::DriveDown(_) => "drive-down",
        TapeIncident::TapeBroken(_) => "tape-broken",
        TapeIncident::FilesUnreadable(_) => "files-unreadable",
        TapeIncident::LibraryPaused(_) => "library-out-of-service",
        TapeIncident::LibraryFull(_) => "library-full",
        TapeIncident::OldestWaits(_) => "file-waits-too-long",
        TapeIncident::NoTapeLeft(_) => "no-tape-left",
    }
}

pub(super) fn disk_incident_code(incident: DiskIncident) -> &'static str {
    match incident {
        DiskIncident::NoRoom => "no-room-on-disk",
        DiskIncident::NoPool => "no-pool-takes-files",
        DiskIncident::FileNotArchived => "file-not-archived",
        DiskIncident::FilesWithoutCopy => "files-without-copy",
    }
}

/// Recalls wait for so much room on disk.
pub(super) fn no_room(files: u64, room: Bytes) -> String {
    format!(
        "files that wait for room on disk before they can be recalled from tape: {files} ({room}); release pins, add pools, \
         or raise storage.tape.keep_free_percent"
    )
}

/// Recalls wait although there may be room: no pool takes files.
pub(super) fn no_pool(files: u64) -> String {
    format!(
        "files that cannot be recalled from tape because no pool takes files: {files}; repair a pool, or set its mode to enabled"
    )
}

/// Files on tape without a copy that can be read. `first` is the path of one of them.
pub(super) fn files_without_copy(tape: &str, files: u64, first: &str) -> String {
    let count = plural(files, "file");
    format!(
        "{count} on tape {tape} without a copy that can be read, such as {first}: have the tape used again (penstock tape enable {tape}), \
         or bring them from elsewhere; penstock tape status lists them"
    )
}

/// Something begins that a person should look at.
pub(super) fn log_begin(incident: &str, fault: Option<&str>) {
    tracing::error!(incident, fault, "tape incident begins");
}

/// That is over.
pub(super) fn log_end(incident: &str) {
    tracing::info!(incident, "tape incident is over");
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_tape::drive_pool::{DownReason, Drive};
    use penstock_tape::hsm_queue::{HsmCommandEnd, HsmEffect, HsmInput, HsmPolicy, HsmPut};
    use penstock_tape::record::Tape;
    use penstock_tape::request::{DriveName, FamilyName, FileId, LibraryName, RequestId, VoName};

    const MINUTE_NS: i64 = 60_000_000_000;

    #[test]
    fn incidents_of_libraries_say_why_as_far_as_that_is_known() {
        let (tape, drive) = (TapeName("T1".into()), DriveName("d0".into()));
        let mut live = LiveSet::default();
        let broken = TapeIncident::TapeBroken(tape.clone());
        assert_eq!(
            library_incident(&broken, &live),
            "tape T1 cannot be used; when it is repaired, run penstock tape enable T1"
        );
        let facts = Tape::new(LibraryName("l".into()), "LTO-8".to_owned(), 1);
        let finding = TapeFinding::DataLost {
            end_bytes: 2_000_000,
            synced_bytes: 3_000_000,
        };
        let fault = Some(TapeFault {
            drive: drive.clone(),
            finding,
        });
        let facts = Tape { fault, ..facts };
        live.tapes.insert(tape.clone(), facts);
        assert_eq!(
            library_incident(&broken, &live),
            "tape T1 cannot be used: drive d0 found only 2.0 MB of data on it, of 3.0 MB that were synced: the rest is lost; when it is repaired, \
             run penstock tape enable T1"
        );
        let down = DriveState::Down {
            tape: Some(tape),
            why: DownReason::Failed,
            fault: Some(DriveFault {
                activity: DriveActivity::Mount,
                is_silent: true,
            }),
        };
        let library = LibraryName("l".into());
        let known = Drive {
            library,
            kind: "LTO-8".to_owned(),
            state: down,
        };
        live.drives.0.insert(drive.clone(), known);
        assert_eq!(
            library_incident(&TapeIncident::DriveDown(drive), &live),
            "drive d0 is down: it did nothing for too long while tape T1 was being mounted; when it works again and its tape is back in \
             its slot, run penstock tape enable d0"
        );
    }

    #[test]
    fn incidents_of_an_hsm_tell_figures_the_setting_and_what_is_done() {
        let mut policy = HsmPolicy::usual();
        (policy.batch.files, policy.tries_max) = (1, 2);
        let mut queue = HsmQueue::restore(policy, []);
        let put = |file| HsmPut {
            request: RequestId(file),
            file: FileId(file),
            size_bytes: 1,
            family: FamilyName("raw".into()),
            vo: VoName("atlas".into()),
            priority: 3,
        };
        let mut effects = queue.handle(0, HsmInput::Put((0..3).map(put).collect()));
        let mut incidents = Vec::new();
        for minute in 1..4 {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    HsmEffect::Start(command) => {
                        let text = "HPSS error -5".to_owned();
                        let end = HsmCommandEnd::Exited { code: 5, text };
                        let command = command.command;
                        let ended = HsmInput::Ended { command, end };
                        effects.extend(queue.handle(minute * MINUTE_NS, ended));
                    }
                    HsmEffect::Open { incident, .. } => incidents.push(incident),
                    _ => {}
                }
            }
            effects.extend(queue.handle(minute * 2 * MINUTE_NS, HsmInput::Tick));
        }
        assert_eq!(incidents, [HsmIncident::FilesFail(HsmKind::Put)]);
        assert_eq!(
            hsm_incident(incidents[0], &queue),
            "3 files could not be put into the HSM after 2 tries, or were refused by the program; retry every 1h, or now with \
             penstock tape retry"
        );
        assert_eq!(
            hsm_incident(HsmIncident::OldestWaits(HsmKind::Get), &queue),
            "a file has waited 4h to be read from the HSM although fewer than gets_max = 50 commands run; it is started now"
        );
        assert_eq!(
            hsm_incident(HsmIncident::Outage, &queue),
            "the HSM is out of service: one command tests it every 1m to 30m, all other puts or gets wait; when it is \
             repaired, run penstock tape retry"
        );
    }
}
