//! What is told of a host for a window of time: by `GET /api/v1/host` and `penstock host`, in one form.

use super::facts::{FactChange, Facts};
use super::interfaces::InterfaceRole;
use super::rings::Gap;
use super::sample::HostSample;
use penstock_model::Timestamp;
use serde::{Deserialize, Serialize};

/// Points of a window at most; a finer resolution is made coarser.
pub const POINTS_MAX: i64 = 1500;
/// Points that a window has at most when nobody says how fine it should be.
const POINTS_USUAL: i64 = 240;
const RESOLUTIONS: [u32; 9] = [1, 10, 60, 300, 900, 3600, 21_600, 86_400, 604_800];

/// A host in a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// Its name, as it stands in URLs.
    pub host: String,
    /// Begin of the window.
    pub from: Timestamp,
    /// End of the window.
    pub to: Timestamp,
    /// Length of the interval of a point. Of what is older than two hours the shortest is a minute.
    pub resolution_seconds: u32,
    /// Processors; `None` while not read.
    pub processors: Option<u32>,
    /// As they are now.
    pub interfaces: Vec<InterfaceInfo>,
    /// As they are now.
    pub disks: Vec<DiskInfo>,
    /// Files that this process may have open; `None`: not read, or no limit.
    pub open_files_max: Option<u64>,
    /// As they are now; null where one could not be read.
    pub facts: Facts,
    /// Those in the window.
    pub changes: Vec<FactChange>,
    /// When nothing was sampled.
    pub gaps: Vec<Gap>,
    /// The whole window; `None` when nothing of it was sampled.
    pub total: Option<HostSample>,
    /// Interval by interval.
    pub points: Vec<HostSample>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceInfo {
    /// As the kernel names it.
    pub name: String,
    /// What it is for; `None`: nobody said.
    pub role: Option<InterfaceRole>,
    /// What its driver says; `None` for those without a line, such as the loopback.
    pub speed_bytes_per_second: Option<u64>,
    /// The longest packet.
    pub mtu_bytes: Option<u64>,
    /// `up`, `down` and so on, in the kernel's words.
    pub state: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskInfo {
    /// As the kernel names it.
    pub name: String,
    /// Its numbers, `major:minor`.
    pub device: String,
    /// The pools, and other directories of the site, whose file systems lie on it.
    pub holds: Vec<String>,
    /// What its maker calls it.
    pub model: Option<String>,
}

/// How fine the points of a window are. `asked` is kept unless there would be too many.
pub fn resolution(from: Timestamp, to: Timestamp, asked: Option<u32>) -> u32 {
    let seconds = to.0.saturating_sub(from.0).max(0) / 1000;
    let fits = |resolution: u32, most: i64| seconds / i64::from(resolution.max(1)) <= most;
    let finest = |most: i64| {
        let found = RESOLUTIONS.into_iter().find(|one| fits(*one, most));
        found.unwrap_or(RESOLUTIONS[RESOLUTIONS.len() - 1])
    };
    match asked.map(|asked| asked.max(1)) {
        Some(asked) if fits(asked, POINTS_MAX) => asked,
        Some(_) => finest(POINTS_MAX),
        None => finest(POINTS_USUAL),
    }
}

impl HostReport {
    /// The disks that the whole window kept busiest, with their samples, busiest first.
    pub fn busiest_disks(&self) -> Vec<(&DiskInfo, &super::sample::DiskSample)> {
        let sampled = self.total.iter().flat_map(|total| &total.disks);
        let mut found: Vec<_> = sampled
            .filter_map(|sample| {
                let info = self.disks.iter().find(|one| one.name == *sample.name)?;
                Some((info, sample))
            })
            .collect();
        found.sort_by_key(|(info, sample)| (u64::MAX - sample.activity.busy_ms, &info.name));
        found
    }

    /// Bytes per second over all WAN interfaces in the direction that carried more; `None` when none was sampled.
    pub fn wan_rate(&self) -> Option<f64> {
        let total = self.total.as_ref()?;
        let is_wan = |name: &str| {
            let info = self.interfaces.iter().find(|one| one.name == name);
            info.is_some_and(|info| info.role == Some(InterfaceRole::Wan))
        };
        let wan = total.interfaces.iter().filter(|one| is_wan(&one.name));
        let sums = wan.map(|one| (one.traffic.received_bytes, one.traffic.sent_bytes));
        let (received, sent) = sums
            .reduce(|one, other| (one.0.saturating_add(other.0), one.1.saturating_add(other.1)))?;
        Some(total.per_second(received.max(sent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_as_many_points_as_are_useful_and_never_too_many() {
        let check = |seconds: i64, asked: Option<u32>, expected: u32| {
            let found = resolution(Timestamp(0), Timestamp(seconds * 1000), asked);
            assert_eq!(found, expected, "{seconds} {asked:?}");
        };
        check(60, None, 1);
        check(3600, None, 60);
        check(86_400, None, 900);
        check(3600, Some(10), 10);
        check(7200, Some(1), 10);
        check(60, Some(0), 1);
        check(90 * 86_400, None, 86_400);
        check(i64::MAX / 1000, Some(1), 604_800);
    }
}
