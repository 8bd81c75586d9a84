//! Telling tape systems what is not needed any more: files of stage requests that were canceled, and files that have
//! been copied. Best effort: a pin that nobody releases ends by itself.

use super::{Due, TapeCallSubject};
use crate::{Effects, Engine, Now, TapeErrand, TapeOutcome, TapePlace};
use penstock_decide::staging::next_call;
use penstock_model::{Retry, StageRequestId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Calls for one batch of paths before it is left to the tape system.
const CALLS_MAX: u32 = 5;

/// What a tape system is told of paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Farewell {
    /// It need not bring them.
    Cancel,
    /// It need not keep them on disk.
    Release,
}

/// Of whom, and of which request.
pub(super) type LeavingKey = (Arc<TapePlace>, StageRequestId);

pub(super) type Leavings = BTreeMap<LeavingKey, StageRelease>;

/// Paths of one stage request that nobody needs any more.
#[derive(Debug, Default)]
pub(super) struct StageRelease {
    /// They are on their way to disk, for all we know.
    cancel: BTreeSet<Arc<str>>,
    /// They may be on disk.
    release: BTreeSet<Arc<str>>,
    failures: u32,
    is_busy: bool,
}

impl Engine {
    /// A file is not needed on disk any more.
    pub(super) fn will_release(
        &mut self,
        now: Now,
        place: Arc<TapePlace>,
        id: StageRequestId,
        path: Arc<str>,
    ) {
        self.will_leave(now, (place, id), |leaving| {
            leaving.release.insert(path);
        });
    }

    /// A file is not needed any more that was asked for. It may have come meanwhile.
    pub(super) fn will_cancel(
        &mut self,
        now: Now,
        place: Arc<TapePlace>,
        id: StageRequestId,
        path: Arc<str>,
    ) {
        self.will_leave(now, (place, id), |leaving| {
            leaving.cancel.insert(path.clone());
            leaving.release.insert(path);
        });
    }

    fn will_leave(&mut self, now: Now, key: LeavingKey, add: impl FnOnce(&mut StageRelease)) {
        let leaving = self.tape.leavings.entry(key.clone()).or_default();
        add(leaving);
        if !leaving.is_busy {
            let at = now.at + self.config.tape.quiet;
            self.tape.agenda.set_by(Due::Leave(key), at);
        }
    }

    /// Tells a tape system of the next paths: first what it need not bring, then what it need not keep.
    pub(super) fn leave(&mut self, key: LeavingKey, effects: &mut Effects) {
        let policy = &self.config.tape;
        let Some(leaving) = self.tape.leavings.get(&key) else {
            return;
        };
        if leaving.is_busy {
            return;
        }
        let (farewell, paths) = match leaving.cancel.is_empty() {
            false => (Farewell::Cancel, &leaving.cancel),
            true => (Farewell::Release, &leaving.release),
        };
        let paths: Vec<Arc<str>> = paths
            .iter()
            .take(policy.bulk_files_max.max(1))
            .cloned()
            .collect();
        if paths.is_empty() {
            self.tape.leavings.remove(&key);
            return;
        }
        let (id, told) = (key.1.clone(), paths.iter().map(|path| path.to_string()));
        let errand = match farewell {
            Farewell::Cancel => TapeErrand::Cancel(id, told.collect()),
            Farewell::Release => TapeErrand::Release(id, told.collect()),
        };
        let about = TapeCallSubject::Leaving(key.clone(), farewell, paths);
        let calls_max = policy.calls_max;
        if self.tape.call(&key.0, errand, about, calls_max, effects)
            && let Some(leaving) = self.tape.leavings.get_mut(&key)
        {
            leaving.is_busy = true;
        }
    }

    /// A tape system was told, or could not be reached.
    pub(super) fn left(
        &mut self,
        now: Now,
        key: LeavingKey,
        farewell: Farewell,
        paths: &[Arc<str>],
        outcome: &TapeOutcome,
    ) {
        let Some(leaving) = self.tape.leavings.get_mut(&key) else {
            return;
        };
        leaving.is_busy = false;
        let again = match outcome {
            TapeOutcome::Failed { failure, .. } => {
                leaving.failures += 1;
                failure.retry == Retry::Later && leaving.failures < CALLS_MAX
            }
            _ => false,
        };
        if again {
            let at = next_call(
                leaving.failures,
                self.tape.number_next,
                &self.config.tape,
                now.at,
            );
            self.tape.agenda.set(Due::Leave(key), at);
            return;
        }
        leaving.failures = 0;
        let told = match farewell {
            Farewell::Cancel => &mut leaving.cancel,
            Farewell::Release => &mut leaving.release,
        };
        for path in paths {
            told.remove(path);
        }
        match leaving.cancel.is_empty() && leaving.release.is_empty() {
            true => drop(self.tape.leavings.remove(&key)),
            false => self.tape.agenda.set(Due::Leave(key), now.at),
        }
    }
}
