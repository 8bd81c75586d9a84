//! Whose is the file at a transfer's destination, and may it be replaced or removed?
//!
//! An attempt whose end nobody saw may have left the file there, whole or in part, or its copy may still run without the
//! service that asked for it. What an attempt found before it wrote, and when, is the evidence; what lies outside it is
//! somebody else's, and is never removed.

use crate::copy_failure::CopyCause;
use crate::decision::Decision;
use crate::record_clock::{CLOCK_DOUBT, RecordedTime};
use crate::retry::with_jitter;
use penstock_model::{Attempt, Bytes, Checksum, Overwrite, Timestamp, TransferEvent, TransferId};
use std::time::Duration;

/// How long a storage element may need to end a copy whose connection was closed.
pub const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// What the attempts of one transfer have found and left at its destination, from their records in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Let write, and not ended.
    writing: Option<Copy>,
    lost: Option<UnsettledAttempts>,
    has_lost: bool,
}

/// An attempt that was let write.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Copy {
    since: RecordedTime,
    size: Option<Bytes>,
    was_absent: bool,
    limit: Duration,
}

/// Attempts that were let write and whose outcome nobody saw, since the destination was last known to hold nothing of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsettledAttempts {
    /// When the first of them was let write, at the earliest.
    pub since: Timestamp,
    /// Until when a copy of theirs may still run without the service.
    pub until: Timestamp,
    /// Until when what changes there is surely of theirs: earlier than `until` where the clock may have leapt since.
    pub changes_until: Timestamp,
    /// The same, of those that may stand in the way of the others: an attempt that only met them does not prolong it.
    pub blocks_until: Timestamp,
    /// Of the file that they were to bring. `None`: not known, or any size is theirs.
    pub size: Option<Bytes>,
    /// Each of them had looked, and had found nothing there.
    pub was_absent: bool,
}

/// How the copy of an attempt has ended, as far as the destination's answer tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyEnd {
    /// The destination refused before it took a byte.
    Refused,
    /// It refused because something is there, or is being written there.
    Occupied,
    /// It runs no more; something may be left of it.
    Ended,
    /// The destination said that the whole file is there: what is there is of this copy, whatever its size.
    Arrived,
    /// The connection broke, or there was no answer, or one that a server in between may have given: it may still run.
    Unknown,
    /// The destination does not know itself whether it has the file, which may appear until the copy's time limit.
    Unsettled,
}

impl CopyEnd {
    /// What a status says that is the answer to COPY or PUT; `has_moved`: bytes had come before, or may have.
    pub fn of_status(status: u16, has_moved: bool) -> CopyEnd {
        match status {
            409 | 412 | 423 => CopyEnd::Occupied,
            // The client took too long: bytes may have come.
            408 => CopyEnd::Unknown,
            429 | 503 if has_moved => CopyEnd::Unknown,
            // What had come before the refusal may lie there.
            400..=499 if has_moved => CopyEnd::Ended,
            400..=499 => CopyEnd::Refused,
            501 | 503 | 507 if !has_moved => CopyEnd::Refused,
            _ => CopyEnd::Unknown,
        }
    }

    /// What the last line of a third-party copy says. That of a destination that pulls is the copy's end; a source that
    /// pushes knows only what the destination told it.
    pub fn of_cause(cause: CopyCause, by_destination: bool) -> CopyEnd {
        match cause {
            CopyCause::Exists => CopyEnd::Occupied,
            CopyCause::Refused(status @ 400..=499) if !by_destination => {
                CopyEnd::of_status(status, false)
            }
            CopyCause::Refused(409) => CopyEnd::Occupied,
            CopyCause::Unsettled => CopyEnd::Unsettled,
            _ if by_destination => CopyEnd::Ended,
            CopyCause::Refused(_)
            | CopyCause::ChecksumMismatch
            | CopyCause::Denied
            | CopyCause::Missing
            | CopyCause::Unknown => CopyEnd::Unknown,
        }
    }
}

impl Attempts {
    /// Takes the next record of the transfer, of the time `at` by the clock of now. `limit` is how long a copy of this size may take; `looks`: its attempts look
    /// at the destination before they write, which `strict_copy` does not.
    pub fn note(
        &mut self,
        at: RecordedTime,
        event: &TransferEvent,
        limit: impl FnOnce(Option<Bytes>) -> Duration,
        looks: bool,
    ) {
        match event {
            TransferEvent::Prepared { size, replaces, .. } => {
                self.begin(at, *size, looks && !replaces, limit(*size));
            }
            TransferEvent::AttemptFailed { cleaned: true, .. } => {
                self.writing = None;
                self.lost = None;
            }
            TransferEvent::AttemptFailed { failure, .. }
                if CopyCause::read(&failure.detail) == CopyCause::Unsettled =>
            {
                self.lose(None);
            }
            // Its agent has closed its connections.
            TransferEvent::AttemptFailed { cleaned: false, .. } => {
                self.lose(Some(at + ENDS_WITHIN))
            }
            TransferEvent::Started { .. } => self.lose(None),
            TransferEvent::AttemptLost { .. } => {
                // It may have written although it was not let, as far as the record goes: databases forget.
                self.has_lost = true;
                self.lose(None);
            }
            TransferEvent::Landed { .. } => *self = Attempts::default(),
            _ => {}
        }
    }

    /// An attempt is let write; `was_absent`: it has looked, and nothing was there.
    pub fn begin(
        &mut self,
        at: RecordedTime,
        size: Option<Bytes>,
        was_absent: bool,
        limit: Duration,
    ) {
        // What earlier copies had left was seen and decided about, and none of them runs any more.
        let lost = self.lost.as_ref();
        if lost.is_some_and(|lost| !lost.may_run(at.earliest)) {
            self.lost = None;
        }
        self.writing = Some(Copy {
            since: at,
            size,
            was_absent,
            limit,
        });
    }

    /// The copy of the attempt that writes now has ended so.
    pub fn end(&mut self, at: Timestamp, end: CopyEnd) {
        let at = RecordedTime::exact(at);
        match end {
            CopyEnd::Refused | CopyEnd::Occupied => self.writing = None,
            CopyEnd::Ended => self.lose(Some(at)),
            CopyEnd::Arrived => {
                if let Some(copy) = &mut self.writing {
                    copy.size = None;
                }
                self.lose(Some(at));
            }
            CopyEnd::Unknown => self.lose(Some(at + ENDS_WITHIN)),
            CopyEnd::Unsettled => self.lose(None),
        }
    }

    /// The transfer has ended with what the attempt that may have written has left; `ended`: when its agent is known to
    /// have closed its connections.
    pub fn stop(&mut self, ended: Option<RecordedTime>) {
        self.lose(ended.map(|ended| ended + ENDS_WITHIN));
    }

    /// The record does not tell all of them: nothing there is known to be theirs, and everything may be.
    pub fn doubt(&mut self, now: Timestamp) {
        self.has_lost = true;
        self.lost = Some(UnsettledAttempts {
            since: now,
            until: now,
            changes_until: now,
            blocks_until: now,
            size: None,
            was_absent: false,
        });
    }

    /// The attempt that writes now, if one does, has ended unseen; `until`: when its copy has ended at the latest, if that
    /// is known.
    fn lose(&mut self, seen: Option<RecordedTime>) {
        let Some(copy) = self.writing.take() else {
            return;
        };
        let end = |since: Timestamp, seen: Option<Timestamp>| {
            let limit = since + copy.limit;
            seen.map_or(limit, |seen| seen.min(limit).max(since))
        };
        let since = copy.since.earliest;
        let until = end(copy.since.latest, seen.map(|seen| seen.latest));
        let changes_until = end(since, seen.map(|seen| seen.earliest));
        self.has_lost = true;
        self.lost = Some(match self.lost.take() {
            None => UnsettledAttempts {
                since,
                until,
                changes_until,
                blocks_until: until,
                size: copy.size,
                was_absent: copy.was_absent,
            },
            Some(before) => UnsettledAttempts {
                since: before.since.min(since),
                until: before.until.max(until),
                changes_until: before.changes_until.max(changes_until),
                blocks_until: match seen {
                    None => before.blocks_until.max(until),
                    Some(_) => before.blocks_until,
                },
                size: copy
                    .size
                    .zip(before.size)
                    .map(|(one, other)| one.max(other)),
                was_absent: before.was_absent && copy.was_absent,
            },
        });
    }

    /// What is not settled yet.
    pub fn lost(&self) -> Option<&UnsettledAttempts> {
        self.lost.as_ref()
    }

    /// Some attempt ended unseen, so that the file there may be this transfer's whatever else is known.
    pub fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// Until when a copy of an earlier attempt may still run, if one may.
    pub fn runs_until(&self, now: Timestamp) -> Option<Timestamp> {
        let lost = self.lost.as_ref().filter(|lost| lost.may_run(now));
        lost.map(|lost| lost.until)
    }
}

impl UnsettledAttempts {
    /// A copy of theirs may still run: what is not there now may come, and what is there may grow.
    pub fn may_run(&self, now: Timestamp) -> bool {
        now < self.until
    }
}

/// What a storage element tells of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileFacts {
    pub size: Option<Bytes>,
    /// Its checksum, of the algorithm that was asked for.
    pub checksum: Option<Checksum>,
    /// When it last changed, by our clock as far as the storage element tells its own.
    pub modified: Option<Timestamp>,
}

impl FileFacts {
    /// The size of both when they are the same file as far as they tell: sizes known and equal, and checksums as well.
    pub fn is_same(&self, other: &FileFacts) -> Option<Bytes> {
        let size = self.size.filter(|size| Some(*size) == other.size)?;
        match (&self.checksum, &other.checksum) {
            (Some(one), Some(other)) if one == other => Some(size),
            _ => None,
        }
    }
}

/// What a transfer may do with a file of others at its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Nothing.
    Keep,
    Replace,
    /// Replace it when it is on disk and not on tape.
    ReplaceOnDisk,
}

impl Permission {
    /// What a job allows an attempt of it. The engine has decided which hop is an intermediate one.
    pub fn of(overwrite: Overwrite, attempt: Attempt) -> Permission {
        match overwrite {
            Overwrite::Always => Permission::Replace,
            Overwrite::OnRetry if attempt.0 > 1 => Permission::Replace,
            Overwrite::OnlyOnDisk | Overwrite::IntermediateHopsAndOnlyOnDisk => {
                Permission::ReplaceOnDisk
            }
            Overwrite::OnRetry | Overwrite::Never | Overwrite::IntermediateHops => Permission::Keep,
        }
    }
}

/// What is known when an attempt has looked at both ends.
#[derive(Debug, Clone, Copy)]
pub struct EndsSeen<'a> {
    /// When it looked.
    pub now: Timestamp,
    pub source: &'a FileFacts,
    /// At the destination; `None`: nothing is there.
    pub there: Option<&'a FileFacts>,
    /// What the transfer's attempts have done there before.
    pub attempts: &'a Attempts,
    /// The job was brought back from a backup: attempts may have run of which no record is left.
    pub was_restored: bool,
    /// What may be done with a file of others.
    pub permission: Permission,
}

/// What an attempt does with its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationPlan {
    /// It writes where nothing is.
    Write,
    /// It replaces what is there, which stays until the new file is whole.
    Replace,
    /// It asks the tape system first, and replaces what is on disk only.
    AskTape,
    /// Nothing: the file has arrived.
    Arrived(Bytes),
    /// It removes what is there, which is its own, and then writes.
    RemoveFirst,
    /// It comes back when no earlier copy can run any more: what is there may be one's, although nothing proves it.
    Wait,
    /// It fails, because something is there.
    Refuse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationPlanReason {
    /// Nothing is there.
    Absent,
    /// What is there has the size and the checksum of the source.
    Same,
    /// What is there can only come from an attempt of this transfer that ended unseen.
    Own,
    /// It may be somebody else's.
    Foreign(Foreign),
}

/// What speaks against a file's being one's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// No attempt of this transfer ended unseen.
    NothingLost,
    /// Something was there before, or nobody had looked.
    WasThere,
    /// It is larger than what was to come, or does not tell its size.
    Size,
    /// It changed before the first attempt wrote, or after the last could.
    Time {
        /// When it changed.
        modified: Timestamp,
    },
    /// It does not tell when it changed, and what is known of the attempts is too old.
    OldEvidence {
        /// Until when they could write.
        until: Timestamp,
    },
}

/// Whether what is there can only come from attempts of this transfer; otherwise what speaks against it.
pub fn own(there: &FileFacts, attempts: &Attempts, now: Timestamp) -> Result<(), Foreign> {
    let lost = attempts.lost().ok_or(Foreign::NothingLost)?;
    if !lost.was_absent {
        return Err(Foreign::WasThere);
    }
    if let Some(size) = lost.size
        && there.size.is_none_or(|there| there > size)
    {
        return Err(Foreign::Size);
    }
    let until = lost.changes_until + CLOCK_DOUBT;
    match there.modified {
        Some(modified) if modified + CLOCK_DOUBT < lost.since || modified > until => {
            Err(Foreign::Time { modified })
        }
        Some(_) => Ok(()),
        None if now > until => Err(Foreign::OldEvidence {
            until: lost.changes_until,
        }),
        None => Ok(()),
    }
}

/// What an attempt does with its destination.
pub fn course(seen: &EndsSeen<'_>) -> Decision<DestinationPlan, DestinationPlanReason> {
    let Some(there) = seen.there else {
        return Decision::new(DestinationPlan::Write, DestinationPlanReason::Absent);
    };
    let may_be_own = seen.attempts.has_lost() || seen.was_restored;
    if may_be_own && let Some(size) = seen.source.is_same(there) {
        return Decision::new(DestinationPlan::Arrived(size), DestinationPlanReason::Same);
    }
    let foreign = match own(there, seen.attempts, seen.now) {
        // A copy that still runs there is refused by the removal, or ends with what it wrote.
        Ok(()) => return Decision::new(DestinationPlan::RemoveFirst, DestinationPlanReason::Own),
        Err(foreign) => foreign,
    };
    let choice = match seen.permission {
        Permission::Keep if may_prove_own(there, foreign, seen) => DestinationPlan::Wait,
        Permission::Keep => DestinationPlan::Refuse,
        Permission::Replace => DestinationPlan::Replace,
        Permission::ReplaceOnDisk => DestinationPlan::AskTape,
    };
    Decision::new(choice, DestinationPlanReason::Foreign(foreign))
}

/// Whether what came after a look that found nothing may turn out to be what a copy brings that may still run. A storage
/// element whose clock is wrong, or that tells no size of what is being written, cannot tell it apart.
fn may_prove_own(there: &FileFacts, foreign: Foreign, seen: &EndsSeen<'_>) -> bool {
    let is_ahead = |lost: &UnsettledAttempts| lost.since > seen.now + CLOCK_DOUBT;
    // What a clock that was wrong has noted would be waited for until it is right again, if ever.
    !seen.attempts.lost().is_some_and(is_ahead)
        && seen.attempts.runs_until(seen.now).is_some()
        && match foreign {
            Foreign::Time { .. } => true,
            Foreign::Size => there.size.is_none(),
            Foreign::NothingLost | Foreign::WasThere | Foreign::OldEvidence { .. } => false,
        }
}

/// What is at the destination of attempts that write no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemnantVerdict {
    /// Nothing, and nothing will come.
    Nothing,
    /// What they have left: it is to be removed.
    Own,
    /// Nothing now; a copy of theirs may still bring it.
    MayCome {
        /// Until then.
        until: Timestamp,
    },
    /// It may be somebody else's, and stays.
    Foreign(Foreign),
}

/// Whose is what was seen there, and may more come?
pub fn remnant(there: Option<&FileFacts>, attempts: &Attempts, now: Timestamp) -> RemnantVerdict {
    match (there, attempts.runs_until(now)) {
        (None, None) => RemnantVerdict::Nothing,
        (None, Some(until)) => RemnantVerdict::MayCome { until },
        (Some(there), _) => match own(there, attempts, now) {
            Ok(()) => RemnantVerdict::Own,
            Err(foreign) => RemnantVerdict::Foreign(foreign),
        },
    }
}

/// The wait before what is owed at a destination is first tried again. It doubles.
const OWED_DELAY_MIN: Duration = Duration::from_secs(1);
/// It is never longer than this.
const OWED_DELAY_MAX: Duration = Duration::from_secs(3600);
/// After this time people are told that something was left.
const OWED_FOR: Duration = Duration::from_secs(86_400);
/// The same where the storage element refuses whoever asks: a token that has ended does not come back.
const OWED_FOR_WHEN_DENIED: Duration = Duration::from_secs(3600);

/// A removal at the destination of a transfer that has ended, which did not succeed.
#[derive(Debug, Clone, Copy)]
pub struct OwedRemoval {
    /// Seeds the jitter.
    pub transfer: TransferId,
    /// When it was first tried.
    pub since: Timestamp,
    /// How often it has been tried.
    pub tries: u32,
    /// The last time the storage element refused whoever asked.
    pub is_denied: bool,
}

/// When a removal that is owed is tried again; `None`: it is people's.
pub fn next_removal(owed: &OwedRemoval, now: Timestamp) -> Option<Duration> {
    let patience = match owed.is_denied {
        true => OWED_FOR_WHEN_DENIED,
        false => OWED_FOR,
    };
    if now.since(owed.since) >= patience {
        return None;
    }
    let doubled = OWED_DELAY_MIN.saturating_mul(1u32 << owed.tries.min(12));
    let seed = owed.transfer.0 ^ (u64::from(owed.tries) << 48);
    Some(with_jitter(doubled.min(OWED_DELAY_MAX), seed))
}

#[cfg(test)]
mod tests;
