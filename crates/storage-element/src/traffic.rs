//! What movers move through a pool, counted by what they do and for which VO. A mover adds to one counter of its own
//! kind, so counting takes no lock.

use parking_lot::Mutex;
use penstock_model::observation::Operation;
use penstock_model::{PoolTraffic, VoName};
use penstock_persistence::namespace::MoverKind;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// VOs that are told apart in one pool; those beyond are counted together.
const VOS_MAX: usize = 64;
/// The name of all VOs beyond.
const OTHER_VOS: &str = "(others)";
/// What a mover does, as its bytes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Read,
    Write,
    CopyIn,
    CopyOut,
    PoolCopy,
}

const WORKS: [Work; 5] = [
    Work::Read,
    Work::Write,
    Work::CopyIn,
    Work::CopyOut,
    Work::PoolCopy,
];

impl Work {
    /// Of a mover. Reads and writes that are part of a copy, which has a name then, come from another storage element.
    pub(crate) fn of(kind: MoverKind, is_part_of_copy: bool) -> Work {
        match (kind, is_part_of_copy) {
            (MoverKind::Get, false) => Work::Read,
            (MoverKind::Put, false) => Work::Write,
            (MoverKind::Get, true) | (MoverKind::Push, _) => Work::CopyOut,
            (MoverKind::Put, true) | (MoverKind::Pull, _) => Work::CopyIn,
            (MoverKind::Copy, _) => Work::PoolCopy,
        }
    }
}

/// The traffic of one pool since the start.
#[derive(Default)]
pub(crate) struct Traffic(Mutex<BTreeMap<Option<VoName>, Arc<VoTraffic>>>);

/// The part of it for one VO.
#[derive(Default)]
pub(crate) struct VoTraffic([WorkTraffic; 5]);

/// The part of that by one kind of work.
#[derive(Default)]
struct WorkTraffic {
    moved_bytes: AtomicU64,
    failed_bytes: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    left: AtomicU64,
}

/// How a mover ended, as it counts here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MoverEnd {
    Done,
    /// It failed after it had moved so much.
    Failed {
        moved_bytes: u64,
    },
    /// Its client left, or it ended for another, after so much.
    Left {
        moved_bytes: u64,
    },
}

impl Traffic {
    /// Where movers for a VO are counted.
    pub(crate) fn of(&self, vo: Option<&VoName>) -> Arc<VoTraffic> {
        let mut vos = self.0.lock();
        let key = vo.cloned();
        if vos.len() >= VOS_MAX && !vos.contains_key(&key) {
            let others = Some(VoName::new(OTHER_VOS));
            return Arc::clone(vos.entry(others).or_default());
        }
        Arc::clone(vos.entry(key).or_default())
    }

    /// All that was counted since the start: one row for each VO and work.
    pub(crate) fn totals(&self) -> Vec<PoolTraffic> {
        let vos = self.0.lock();
        let mut totals: Vec<PoolTraffic> = Vec::new();
        for (vo, traffic) in vos.iter() {
            let begin = totals.len();
            for (work, counted) in WORKS.into_iter().zip(&traffic.0) {
                let row = counted.row(vo.clone(), work);
                let of_vo = totals.get_mut(begin..).unwrap_or_default();
                match of_vo.iter_mut().find(|one| one.operation == row.operation) {
                    Some(known) => known.add(&row),
                    None if row.is_empty() => {}
                    None => totals.push(row),
                }
            }
        }
        totals
    }
}

impl VoTraffic {
    /// Counts bytes as they pass.
    pub(crate) fn moved(&self, work: Work, bytes: u64) {
        let counted = &self.0[work as usize];
        counted.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts the end of a mover.
    pub(crate) fn ended(&self, work: Work, end: MoverEnd) {
        let counted = &self.0[work as usize];
        counted.ended.fetch_add(1, Ordering::Relaxed);
        let (ends, moved_bytes) = match end {
            MoverEnd::Done => return,
            MoverEnd::Failed { moved_bytes } => (&counted.failed, moved_bytes),
            MoverEnd::Left { moved_bytes } => (&counted.left, moved_bytes),
        };
        ends.fetch_add(1, Ordering::Relaxed);
        let failed_bytes = &counted.failed_bytes;
        failed_bytes.fetch_add(moved_bytes, Ordering::Relaxed);
    }
}

impl WorkTraffic {
    fn row(&self, vo: Option<VoName>, work: Work) -> PoolTraffic {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let moved = read(&self.moved_bytes);
        let (operation, is_in) = match work {
            Work::Read => (Operation::Read, false),
            Work::Write => (Operation::Write, true),
            Work::CopyIn => (Operation::Copy, true),
            Work::CopyOut => (Operation::Copy, false),
            Work::PoolCopy => (Operation::PoolCopy, true),
        };
        PoolTraffic {
            bytes_in: if is_in { moved } else { 0 },
            bytes_out: if is_in { 0 } else { moved },
            failed_bytes: read(&self.failed_bytes),
            ended: read(&self.ended),
            failed: read(&self.failed),
            left: read(&self.left),
            ..PoolTraffic::new(vo, operation)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_both_directions_are_one_work_and_vos_are_apart() {
        let traffic = Traffic::default();
        let cms = VoName::new("cms");
        let of_cms = traffic.of(Some(&cms));
        of_cms.moved(Work::of(MoverKind::Pull, true), 7);
        of_cms.moved(Work::of(MoverKind::Get, true), 5);
        of_cms.ended(Work::CopyIn, MoverEnd::Failed { moved_bytes: 7 });
        of_cms.ended(Work::CopyOut, MoverEnd::Left { moved_bytes: 1 });
        let read = Work::of(MoverKind::Get, false);
        traffic.of(None).moved(read, 3);
        let write = Work::of(MoverKind::Put, false);
        traffic.of(Some(&cms)).moved(write, 2);
        let told: Vec<_> = traffic
            .totals()
            .into_iter()
            .map(|one| (one.vo, one.operation, one.bytes_in, one.bytes_out))
            .collect();
        let expected = [
            (None, Operation::Read, 0, 3),
            (Some(cms.clone()), Operation::Write, 2, 0),
            (Some(cms), Operation::Copy, 7, 5),
        ];
        assert_eq!(told, expected);
        let copies = &traffic.totals()[2];
        let ended = (copies.ended, copies.failed, copies.left);
        assert_eq!((ended, copies.failed_bytes), ((2, 1, 1), 8));
    }

    #[test]
    fn vos_beyond_the_bound_are_counted_together() {
        let traffic = Traffic::default();
        for number in 0..VOS_MAX + 10 {
            let vo = VoName::new(format!("vo{number}"));
            traffic.of(Some(&vo)).moved(Work::Read, 1);
        }
        let totals = traffic.totals();
        assert_eq!(totals.len(), VOS_MAX + 1);
        let others = totals.iter().find(|one| one.bytes_out == 10);
        let name = others.and_then(|one| one.vo.clone());
        assert_eq!(name, Some(VoName::new(OTHER_VOS)));
    }
}
