//! Whether all of a tape may be given up, so that it is written anew: the brake before the one order that cannot be taken back.

use crate::live_set::{CopyStage, LiveSet};
use crate::record::TapeState;
use crate::request::{DriveName, TapeName};
use serde::{Deserialize, Serialize};

/// What the namespace knows of a tape.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TapeUse {
    /// Files whose copy lies on it, and is not forgotten.
    pub live_files: u64,
    pub live_bytes: u64,
}

/// Who wants a tape relabeled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelabelOrder {
    /// An operator, for this tape.
    Operator,
    /// The site by itself: so many in a day.
    Automatic,
}

/// Why a tape is not relabeled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum RelabelRefusal {
    Unknown,
    /// It is no longer configured.
    Retired,
    /// It is still written to: make it read-only first, so that nothing comes behind the question what lives on it.
    InUse {
        state: TapeState,
    },
    InDrive {
        drive: DriveName,
    },
    LiveFiles {
        files: u64,
        bytes: u64,
    },
    /// Files that are on their way to it, or safe there and not told yet.
    ArchivesOpen {
        files: u64,
    },
    /// Files that are asked for from it.
    RecallsOpen {
        files: u64,
    },
    /// As many tapes were relabeled without an operator's order in the last day as may be.
    DayIsFull {
        max: usize,
        free_ns: i64,
    },
}

const DAY_NS: i64 = 24 * 3_600 * 1_000_000_000;

/// Whether a tape may be relabeled now.
pub fn may_relabel(
    live: &LiveSet,
    tape: &TapeName,
    found: TapeUse,
    (now_ns, order, per_day_max): (i64, RelabelOrder, usize),
) -> Result<(), RelabelRefusal> {
    let facts = live.tapes.get(tape).ok_or(RelabelRefusal::Unknown)?;
    if live.retired.contains(tape) {
        return Err(RelabelRefusal::Retired);
    }
    let has_live = found.live_files > 0 || found.live_bytes > 0;
    let living = RelabelRefusal::LiveFiles {
        files: found.live_files,
        bytes: found.live_bytes,
    };
    // What is left on a broken tape is told first: it may have no copy elsewhere.
    if facts.state == TapeState::Broken && has_live {
        return Err(living);
    }
    if facts.state != TapeState::ReadOnly || live.relabeling.contains(tape) {
        let state = facts.state;
        return Err(RelabelRefusal::InUse { state });
    }
    if let Some((drive, _)) = live.drives.drive_of(tape) {
        let drive = drive.clone();
        return Err(RelabelRefusal::InDrive { drive });
    }
    if has_live {
        return Err(living);
    }
    // A copy that is safe here, of a file whose other copies are not, has not been told to anybody.
    let archives = live.archives.values().filter(|entry| {
        entry.copies.values().any(|stage| match stage {
            CopyStage::Unsynced(copy) | CopyStage::Synced(copy) => copy.tape == *tape,
            CopyStage::Writing => false,
        })
    });
    let files = archives.count() as u64;
    if files > 0 {
        return Err(RelabelRefusal::ArchivesOpen { files });
    }
    let recalls = live.recalls.values();
    let recalls = recalls.filter(|entry| entry.copies.iter().any(|copy| copy.tape == *tape));
    let files = recalls.count() as u64;
    if files > 0 {
        return Err(RelabelRefusal::RecallsOpen { files });
    }
    let recent = live
        .relabels_ns
        .iter()
        .filter(|at_ns| now_ns - **at_ns < DAY_NS);
    let recent: Vec<i64> = recent.copied().collect();
    if order == RelabelOrder::Automatic && recent.len() >= per_day_max {
        // With the end of the day of this one there are fewer than may be; with none allowed there never are.
        let last = recent.len() - per_day_max;
        let blocking = recent.get(last).filter(|_| per_day_max > 0);
        return Err(RelabelRefusal::DayIsFull {
            max: per_day_max,
            free_ns: blocking.map_or(i64::MAX, |at_ns| at_ns + DAY_NS),
        });
    }
    Ok(())
}

/// Tapes that are worth a repack, the emptiest first: written full or read-only, with at most so many thousandths of it still living.
/// Bytes of files that must be moved for each byte that comes free decide.
pub fn choose_repacks(
    live: &LiveSet,
    uses: impl IntoIterator<Item = (TapeName, TapeUse)>,
    live_permille_max: u64,
) -> Vec<TapeName> {
    let worth = uses.into_iter().filter_map(|(name, found)| {
        let tape = live.tapes.get(&name)?;
        // Of an open tape the rest is still written.
        let is_closed = match tape.state {
            TapeState::ReadOnly => true,
            TapeState::Active => tape.written_bytes >= tape.holds_bytes() / 100 * 98,
            TapeState::Disabled | TapeState::Broken => false,
        };
        let written = u128::from(tape.written_bytes);
        let permille = u128::from(found.live_bytes) * 1_000;
        let is_worth = written > 0 && permille <= written * u128::from(live_permille_max);
        let share = permille / written.max(1);
        let is_free = !live.relabeling.contains(&name) && !live.retired.contains(&name);
        (is_closed && is_worth && is_free).then_some((share, name))
    });
    let mut worth: Vec<_> = worth.collect();
    worth.sort();
    worth.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests;
