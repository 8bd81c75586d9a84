//! Which tape is mounted next, in which drive, and why others wait.

use crate::drive_pool::DriveClass;
use crate::locate::SECOND_NS;
use crate::request::{DriveName, FamilyName, TapeName, VoName};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// When a mount is worth it, and how many there may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountPolicy {
    /// So many bytes are worth a mount.
    pub bytes_min: u64,
    /// So are so many files.
    pub files_min: u64,
    /// So is a request of this age,
    pub age_ns: i64,
    /// or of this one where files are to be written. `None`: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_age_ns: Option<i64>,
    /// So is a request whose deadline is nearer than this.
    pub deadline_lead_ns: i64,
    /// A tape is not mounted again for the age of a request alone before so long has passed since a file was read from it.
    /// 0: whenever.
    #[serde(default)]
    pub remount_ns: i64,
    /// The most drives of a kind that recall, and that archive.
    #[serde(default)]
    pub drives_max: BTreeMap<String, DrivesMax>,
    /// The most drives of a VO.
    #[serde(default)]
    pub vo_drives_max: BTreeMap<VoName, u32>,
    /// Parts of the drives that VOs get of what is scarce; 1 where nothing is said.
    #[serde(default)]
    pub vo_shares: BTreeMap<VoName, u32>,
    /// The most drives that write one family at the same time, in one library.
    pub family_drives_max: u32,
    /// The same for some families.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub family_widths: BTreeMap<FamilyName, u32>,
    /// Archiving is worth a mount at the end of each such time, whatever is queued, as in systems that migrate every few hours.
    #[serde(default)]
    pub cycle_ns: Option<i64>,
    /// The same for some families.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub family_cycles_ns: BTreeMap<FamilyName, i64>,
}

/// Bounds for the drives of one kind. A drive counts until it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrivesMax {
    pub recall: u32,
    pub archive: u32,
}

impl MountPolicy {
    /// Bytes and files are those of CTA. The age gathers requests for a quarter of an hour.
    pub fn usual() -> MountPolicy {
        MountPolicy {
            bytes_min: 500_000_000_000,
            files_min: 10_000,
            age_ns: 900 * SECOND_NS,
            deadline_lead_ns: 1_800 * SECOND_NS,
            remount_ns: 0,
            drives_max: BTreeMap::new(),
            vo_drives_max: BTreeMap::new(),
            vo_shares: BTreeMap::new(),
            family_drives_max: 4,
            archive_age_ns: None,
            family_widths: BTreeMap::new(),
            cycle_ns: None,
            family_cycles_ns: BTreeMap::new(),
        }
    }

    /// From which age on a request is worth a mount.
    fn age_of(&self, target: &MountTarget) -> i64 {
        match target {
            MountTarget::Recall(_) => self.age_ns,
            MountTarget::Archive(..) => self.archive_age_ns.unwrap_or(self.age_ns),
        }
    }

    /// How many drives may write for it at the same time, if it is written for.
    fn width_of(&self, target: &MountTarget) -> u32 {
        match target {
            MountTarget::Recall(_) => u32::MAX,
            MountTarget::Archive(family, _) => {
                let width = self.family_widths.get(family);
                width.copied().unwrap_or(self.family_drives_max)
            }
        }
    }

    fn cycle_of(&self, target: &MountTarget) -> Option<i64> {
        match target {
            MountTarget::Recall(_) => None,
            MountTarget::Archive(family, _) => {
                let own = self.family_cycles_ns.get(family).copied();
                own.or(self.cycle_ns).filter(|cycle_ns| *cycle_ns > 0)
            }
        }
    }
}

/// What a tape would be mounted for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MountTarget {
    /// The files that are asked for from it.
    Recall(TapeName),
    /// Files of a family that are to be written, on this tape.
    Archive(FamilyName, TapeName),
}

/// A tape that might be mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountCandidate {
    pub target: MountTarget,
    pub class: DriveClass,
    pub bytes: u64,
    pub files: u64,
    pub oldest_ns: i64,
    pub deadline_ns: Option<i64>,
    pub priority: u8,
    /// The VO with most of the bytes.
    pub vo: VoName,
    /// Drives that do the same for the same family already.
    pub mounts: u32,
    /// When a file was last read from the tape.
    pub last_read_ns: Option<i64>,
    /// Nobody waits for any of it.
    pub is_background: bool,
}

/// What there is to be given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriveSupply {
    pub free: BTreeMap<DriveClass, Vec<DriveName>>,
    /// Drives in use, by class and whether they archive.
    pub in_use: BTreeMap<(DriveClass, bool), u32>,
    pub vo_in_use: BTreeMap<VoName, u32>,
    /// So many more drives may read what nobody waits for. `None`: all.
    pub background_reads_left: Option<u32>,
}

/// Why a tape is worth a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountReason {
    Deadline {
        in_ns: i64,
    },
    Bytes {
        queued: u64,
        min: u64,
    },
    Files {
        queued: u64,
        min: u64,
    },
    Age {
        oldest_ns: i64,
        min_ns: i64,
    },
    /// A cycle has ended since the oldest file came.
    Cycle {
        every_ns: i64,
    },
    /// Background work is asked for part by part: no more comes before this part is done.
    Background,
}

/// Why a tape is not mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountWait {
    /// Neither bytes, files, age nor a deadline make it worth a mount.
    NotWorthIt {
        bytes: u64,
        files: u64,
        age_ns: i64,
        /// When age or deadline will make it worth one, if nothing changes.
        until_ns: i64,
    },
    NoFreeDrive,
    /// As many drives of the kind as may do this already.
    ClassBusy {
        max: u32,
    },
    /// The VO has as many drives as it may.
    VoBusy {
        max: u32,
    },
    /// As many drives write this family as may.
    FamilyBusy {
        max: u32,
    },
    /// As many drives read what nobody waits for as may.
    BackgroundBusy,
}

/// What is decided about one tape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountDecision {
    pub target: MountTarget,
    pub class: DriveClass,
    /// The VO with most of the bytes.
    pub vo: VoName,
    pub choice: Result<(DriveName, MountReason), MountWait>,
}

/// Lower goes first. Fields compare top to bottom: their order is the policy.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct MountRank<'a> {
    is_background: bool,
    is_due: Reverse<bool>,
    priority: Reverse<u8>,
    /// Drives that the VO has, in thousandths of its share.
    vo_use: u64,
    oldest_ns: i64,
    bytes: Reverse<u64>,
    target: &'a MountTarget,
}

/// Decides about all candidates, the most important first.
pub fn decide_mounts(
    now_ns: i64,
    policy: &MountPolicy,
    candidates: &[MountCandidate],
    mut supply: DriveSupply,
) -> Vec<MountDecision> {
    let mut decided = Vec::with_capacity(candidates.len());
    let mut open = Vec::new();
    for candidate in candidates {
        match reason(now_ns, policy, candidate) {
            Ok(reason) => open.push((candidate, reason)),
            Err(wait) => decided.push(MountDecision {
                target: candidate.target.clone(),
                class: candidate.class.clone(),
                vo: candidate.vo.clone(),
                choice: Err(wait),
            }),
        }
    }
    while !open.is_empty() {
        // Those that cannot have a drive now leave first, so that each pass gives one.
        open.retain(|(candidate, _)| match refusal(policy, candidate, &supply) {
            None => true,
            Some(wait) => {
                decided.push(MountDecision {
                    target: candidate.target.clone(),
                    class: candidate.class.clone(),
                    vo: candidate.vo.clone(),
                    choice: Err(wait),
                });
                false
            }
        });
        let ranks = open.iter().enumerate();
        let first =
            ranks.min_by_key(|(_, (candidate, reason))| rank(policy, candidate, *reason, &supply));
        let Some((place, _)) = first else { break };
        let (candidate, reason) = open.swap_remove(place);
        let drives = supply.free.get_mut(&candidate.class);
        let Some(drive) = drives.and_then(|drives| (!drives.is_empty()).then(|| drives.remove(0)))
        else {
            continue;
        };
        let is_archive = matches!(candidate.target, MountTarget::Archive(..));
        let class = (candidate.class.clone(), is_archive);
        *supply.in_use.entry(class).or_default() += 1;
        *supply.vo_in_use.entry(candidate.vo.clone()).or_default() += 1;
        if candidate.is_background && !is_archive {
            let left = supply.background_reads_left.as_mut();
            left.into_iter()
                .for_each(|left| *left = left.saturating_sub(1));
        }
        decided.push(MountDecision {
            target: candidate.target.clone(),
            class: candidate.class.clone(),
            vo: candidate.vo.clone(),
            choice: Ok((drive, reason)),
        });
    }
    decided
}

/// When a candidate is worth a mount by its age or its deadline, if nothing changes.
pub fn worth_at_ns(policy: &MountPolicy, candidate: &MountCandidate) -> i64 {
    if candidate.is_background {
        return candidate.oldest_ns;
    }
    let by_age = age_at_ns(policy, candidate);
    let by_deadline = candidate.deadline_ns.map(|at| at - policy.deadline_lead_ns);
    let by_cycle = cycle_end(policy, candidate).map(|(at, _)| at);
    let others = [by_deadline, by_cycle].into_iter().flatten();
    others.fold(by_age, i64::min)
}

/// Whether a candidate is worth a mount now.
pub fn is_worth(now_ns: i64, policy: &MountPolicy, candidate: &MountCandidate) -> bool {
    reason(now_ns, policy, candidate).is_ok()
}

/// When the cycle ends in which the oldest file of a candidate came, and how long a cycle is.
fn cycle_end(policy: &MountPolicy, candidate: &MountCandidate) -> Option<(i64, i64)> {
    let every_ns = policy.cycle_of(&candidate.target)?;
    let end = candidate.oldest_ns.div_euclid(every_ns).saturating_add(1);
    Some((end.saturating_mul(every_ns), every_ns))
}

/// When the age of its oldest request makes a candidate worth a mount.
fn age_at_ns(policy: &MountPolicy, candidate: &MountCandidate) -> i64 {
    let age_ns = policy.age_of(&candidate.target);
    let by_age = candidate.oldest_ns.saturating_add(age_ns);
    let again = candidate.last_read_ns;
    let again = again.map(|read_ns| read_ns.saturating_add(policy.remount_ns));
    again.map_or(by_age, |again| by_age.max(again))
}

fn reason(
    now_ns: i64,
    policy: &MountPolicy,
    candidate: &MountCandidate,
) -> Result<MountReason, MountWait> {
    if candidate.is_background && candidate.mounts == 0 {
        return Ok(MountReason::Background);
    }
    let divisor = u64::from(candidate.mounts) + 1;
    let age_ns = now_ns - candidate.oldest_ns;
    let in_ns = candidate.deadline_ns.map(|at| at - now_ns);
    // One drive is enough for what is due soon; what is late is worth every drive.
    let lead_ns = match candidate.mounts {
        0 => policy.deadline_lead_ns,
        _ => 0,
    };
    if let Some(in_ns) = in_ns.filter(|in_ns| *in_ns <= lead_ns) {
        return Ok(MountReason::Deadline { in_ns });
    }
    if candidate.bytes / divisor >= policy.bytes_min {
        return Ok(MountReason::Bytes {
            queued: candidate.bytes,
            min: policy.bytes_min,
        });
    }
    if candidate.files / divisor >= policy.files_min {
        return Ok(MountReason::Files {
            queued: candidate.files,
            min: policy.files_min,
        });
    }
    if candidate.mounts == 0 && now_ns >= age_at_ns(policy, candidate) {
        return Ok(MountReason::Age {
            oldest_ns: age_ns,
            min_ns: policy.age_of(&candidate.target),
        });
    }
    if let Some((end_ns, every_ns)) = cycle_end(policy, candidate)
        && candidate.mounts == 0
        && now_ns >= end_ns
    {
        return Ok(MountReason::Cycle { every_ns });
    }
    Err(MountWait::NotWorthIt {
        bytes: candidate.bytes,
        files: candidate.files,
        age_ns,
        until_ns: worth_at_ns(policy, candidate),
    })
}

fn refusal(
    policy: &MountPolicy,
    candidate: &MountCandidate,
    supply: &DriveSupply,
) -> Option<MountWait> {
    let is_archive = matches!(candidate.target, MountTarget::Archive(..));
    if candidate.is_background && !is_archive && supply.background_reads_left == Some(0) {
        return Some(MountWait::BackgroundBusy);
    }
    let max = policy.width_of(&candidate.target);
    if candidate.mounts >= max {
        return Some(MountWait::FamilyBusy { max });
    }
    if let Some(bounds) = policy.drives_max.get(&candidate.class.kind) {
        let max = if is_archive {
            bounds.archive
        } else {
            bounds.recall
        };
        // A bound is for all drives of a kind, in whatever library.
        let busy = supply.in_use.iter();
        let busy = busy.filter(|((class, archives), _)| {
            class.kind == candidate.class.kind && *archives == is_archive
        });
        if busy.map(|(_, count)| *count).sum::<u32>() >= max {
            return Some(MountWait::ClassBusy { max });
        }
    }
    if let Some(max) = policy.vo_drives_max.get(&candidate.vo) {
        let busy = supply.vo_in_use.get(&candidate.vo).copied().unwrap_or(0);
        if busy >= *max {
            return Some(MountWait::VoBusy { max: *max });
        }
    }
    let free = supply.free.get(&candidate.class);
    match free.is_some_and(|drives| !drives.is_empty()) {
        true => None,
        false => Some(MountWait::NoFreeDrive),
    }
}

fn rank<'a>(
    policy: &MountPolicy,
    candidate: &'a MountCandidate,
    reason: MountReason,
    supply: &DriveSupply,
) -> MountRank<'a> {
    let share = policy.vo_shares.get(&candidate.vo).copied().unwrap_or(1);
    let in_use = supply.vo_in_use.get(&candidate.vo).copied().unwrap_or(0);
    MountRank {
        is_background: candidate.is_background,
        is_due: Reverse(matches!(reason, MountReason::Deadline { .. })),
        priority: Reverse(candidate.priority),
        vo_use: u64::from(in_use) * 1_000 / u64::from(share.max(1)),
        oldest_ns: candidate.oldest_ns,
        bytes: Reverse(candidate.bytes),
        target: &candidate.target,
    }
}

#[cfg(test)]
mod tests;
