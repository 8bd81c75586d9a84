//! Files that cannot be told to be on tape although the tape system would have it so: what it was given is not what was written, or it
//! names a copy that is another file's. A person has to look at them; they are put again and again, in case that helps.

use super::NearlineIncident;
use super::wording::{DiskIncident, disk_incident_code, log_begin, log_end};
use parking_lot::Mutex;
use penstock_model::Timestamp;
use penstock_persistence::namespace::EntryId;
use std::collections::BTreeMap;

/// So many are kept; of more the log tells.
const FAULTS_MAX: usize = 100;

/// Shared by whoever reads files for tapes.
#[derive(Debug, Default)]
pub(crate) struct PutFaults(Mutex<BTreeMap<EntryId, NearlineIncident>>);

impl PutFaults {
    /// It failed, perhaps not for the first time.
    pub(super) fn note(&self, file: EntryId, what: String, now: Timestamp) {
        let mut faults = self.0.lock();
        if faults.get(&file).is_none_or(|known| known.what != what) {
            log_begin(&what, None);
        }
        if faults.len() >= FAULTS_MAX && !faults.contains_key(&file) {
            return;
        }
        let known = faults.entry(file).or_insert_with(|| NearlineIncident {
            code: disk_incident_code(DiskIncident::FileNotArchived),
            what: String::new(),
            since: now,
            fault: None,
        });
        known.what = what;
    }

    /// It is on tape, or is to be put there no more.
    pub(super) fn forget(&self, file: EntryId) {
        if let Some(known) = self.0.lock().remove(&file) {
            log_end(&known.what);
        }
    }

    pub(super) fn incidents(&self) -> Vec<NearlineIncident> {
        self.0.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_one_incident_since_it_was_first_met_and_they_are_bounded() {
        let faults = PutFaults::default();
        let note =
            |file, what: &str, at| faults.note(EntryId(file), what.to_owned(), Timestamp(at));
        note(1, "too short", 10);
        note(1, "other bytes", 20);
        let told = faults.incidents();
        assert_eq!((told.len(), told[0].since), (1, Timestamp(10)));
        assert_eq!(told[0].what, "other bytes");
        for file in 2..500 {
            note(file, "too short", 30);
        }
        assert_eq!(faults.incidents().len(), FAULTS_MAX);
        faults.forget(EntryId(1));
        assert_eq!(faults.incidents().len(), FAULTS_MAX - 1);
    }
}
