//! The figures that WLCG has agreed on for each VO (HEPTape, TapeMetricsJSON). Sizes are bytes, rounded to decimal gigabytes. A byte counts in the minute in
//! which its file was done, a mount when it has ended, for the VO with most of its bytes.

use super::{DAY_NS, MINUTE_NS, MountAccount, MountLedger};
use crate::request::{TapeName, VoName};
use serde::Serialize;
use std::collections::BTreeMap;

/// What the namespace knows of a VO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VoTapeUsage {
    /// Bytes of its files on tape.
    pub used_bytes: u64,
    /// What its tapes hold when they are full: data, holes of removed files, and what is still free.
    pub occupied_bytes: u64,
}

/// The figures of one VO, by their agreed names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TapeMetrics {
    pub usedsize: u64,
    pub occupiedsize: u64,
    pub readbytes24h: u64,
    pub writebytes24h: u64,
    /// Mean over tapes of how often each was mounted, two digits; 1 is best.
    pub avgtaperemounts: f64,
    pub totalmounts24h: u64,
    pub uniquemounts24h: u64,
}

/// The figures of all VOs for the day before a moment.
pub fn tape_metrics(
    ledger: &MountLedger,
    usage: &BTreeMap<VoName, VoTapeUsage>,
    now_ns: i64,
) -> BTreeMap<VoName, TapeMetrics> {
    let mut metrics: BTreeMap<VoName, TapeMetrics> = BTreeMap::new();
    for (vo, usage) in usage {
        let of = metrics.entry(vo.clone()).or_default();
        of.usedsize = whole_gigabytes(usage.used_bytes);
        of.occupiedsize = whole_gigabytes(usage.occupied_bytes);
    }
    let begin_ns = now_ns.saturating_sub(DAY_NS);
    let minutes = begin_ns.div_euclid(MINUTE_NS)..=now_ns.div_euclid(MINUTE_NS);
    let mut moved: BTreeMap<&VoName, (u64, u64)> = BTreeMap::new();
    for (vo, (read, written)) in ledger.moved.range(minutes).flat_map(|(_, by_vo)| by_vo) {
        let sums = moved.entry(vo).or_default();
        sums.0 += read;
        sums.1 += written;
    }
    for (vo, (read, written)) in moved {
        let of = metrics.entry(vo.clone()).or_default();
        of.readbytes24h = read;
        of.writebytes24h = written;
    }
    let mut mounts: BTreeMap<&VoName, BTreeMap<&TapeName, u64>> = BTreeMap::new();
    let of_day = ledger.closed.iter();
    let of_day = of_day.filter(|one| one.end_ns > begin_ns && one.end_ns <= now_ns);
    for account in of_day {
        if let Some(vo) = main_vo(account) {
            *mounts
                .entry(vo)
                .or_default()
                .entry(&account.tape)
                .or_default() += 1;
        }
    }
    for (vo, by_tape) in mounts {
        let of = metrics.entry(vo.clone()).or_default();
        of.totalmounts24h = by_tape.values().sum();
        of.uniquemounts24h = by_tape.len() as u64;
        let mean = of.totalmounts24h as f64 / of.uniquemounts24h as f64;
        of.avgtaperemounts = (mean * 100.0).round() / 100.0;
    }
    metrics
}

fn main_vo(account: &MountAccount) -> Option<&VoName> {
    let users = account.users.iter();
    let bytes = users.filter_map(|(user, share)| {
        Some((share.read_bytes + share.written_bytes, user.vo.as_ref()?))
    });
    Some(bytes.max()?.1)
}

/// The next whole number of gigabytes, in bytes.
fn whole_gigabytes(bytes: u64) -> u64 {
    const GIGABYTE: u64 = 1_000_000_000;
    let gigabytes = bytes / GIGABYTE + u64::from(bytes % GIGABYTE >= GIGABYTE / 2);
    gigabytes.saturating_mul(GIGABYTE)
}
