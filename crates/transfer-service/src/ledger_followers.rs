//! Who follows the ledger, and how far each has come: nothing goes from history before.

use parking_lot::Mutex;
use penstock_decide::history::HistoryFollower;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Says that somebody has not yet said how far he is.
const UNKNOWN: u64 = u64::MAX;

/// Who follows the record, and how far each has come.
#[derive(Debug, Default)]
pub(crate) struct LedgerFollowers(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

/// How far one of them has come.
#[derive(Debug, Clone)]
pub(crate) struct Mark(Arc<AtomicU64>);

impl LedgerFollowers {
    /// From now on nothing goes that this one has not taken.
    pub(crate) fn join(&self, name: &str) -> Mark {
        let mut all = self.0.lock();
        let mark = all.entry(name.to_owned());
        Mark(mark.or_insert_with(|| Arc::new(UNKNOWN.into())).clone())
    }

    pub(crate) fn list(&self) -> Vec<HistoryFollower> {
        let all = self.0.lock();
        let follows = |(name, mark): (&String, &Arc<AtomicU64>)| HistoryFollower {
            name: name.clone(),
            taken: Some(mark.load(Ordering::Relaxed)).filter(|at| *at != UNKNOWN),
        };
        all.iter().map(follows).collect()
    }
}

impl Mark {
    /// Everything up to this entry is taken.
    pub(crate) fn taken(&self, sequence: u64) {
        self.0.store(sequence, Ordering::Relaxed);
    }
}
