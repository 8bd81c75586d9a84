//! Files for which nothing was done although they were asked for: a pool was away, or had no room. They are asked for again, after
//! pauses that grow. Nothing of it is kept: a start asks for all that the namespace owes.

use super::Driver;
use super::asking::Lookup;
use crate::nearline::tape_system::TapeSystem;
use crate::tape_counts::TapeCounts;
use penstock_model::{Archival, Bytes};
use penstock_persistence::namespace::{EntryId, TapeFile};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Without anything to wait for.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Debug, Clone, Copy)]
struct Pause {
    until: Instant,
    length: Duration,
    /// What waits, if the namespace has told it: the size, and whether it is to be put on tape.
    work: Option<(Bytes, bool)>,
}

/// When each of them is asked for again.
#[derive(Debug)]
pub(super) struct Retries {
    pauses: BTreeMap<EntryId, Pause>,
    first: Duration,
    longest: Duration,
}

impl Retries {
    pub(super) fn new(first: Duration, longest: Duration) -> Retries {
        Retries {
            pauses: BTreeMap::new(),
            first,
            longest,
        }
    }

    /// Nothing was done for this file, perhaps not for the first time.
    pub(super) fn add(&mut self, file: EntryId, work: Option<(Bytes, bool)>) {
        let before = self.pauses.get(&file).map(|pause| pause.length);
        let length = before.map_or(self.first, |length| (length * 2).min(self.longest));
        let until = Instant::now() + length;
        let pause = Pause {
            until,
            length,
            work,
        };
        self.pauses.insert(file, pause);
    }

    /// What was to be done for it is done.
    pub(super) fn forget(&mut self, file: EntryId) {
        self.pauses.remove(&file);
    }

    /// It is to be asked for again.
    pub(super) fn holds(&self, file: EntryId) -> bool {
        self.pauses.contains_key(&file)
    }

    pub(super) fn end_pauses(&mut self) {
        let now = Instant::now();
        for pause in self.pauses.values_mut() {
            pause.until = now;
        }
    }

    /// Comes to its end when one of them is to be asked for.
    pub(super) fn wait(&self) -> impl Future<Output = ()> + use<> {
        let first = self.pauses.values().map(|pause| pause.until).min();
        let until = first.unwrap_or_else(|| Instant::now() + NEVER);
        tokio::time::sleep_until(until.into())
    }

    /// Those whose pause is over. Their pause begins anew, in case nobody takes up their work.
    fn due(&mut self) -> Vec<EntryId> {
        let now = Instant::now();
        let mut due = Vec::new();
        for (file, pause) in &mut self.pauses {
            if pause.until <= now {
                due.push(*file);
                pause.until = now + pause.length;
            }
        }
        due
    }
}

impl<S: TapeSystem> Driver<S> {
    /// Nothing was done for a file now.
    pub(super) fn ask_later(&mut self, file: EntryId) {
        match self.tape_file(file) {
            Lookup::File(found) => self.ask_known_later(&found),
            Lookup::Gone | Lookup::Unknown => self.retries.add(file, None),
        }
    }

    /// The same, of a file that has been looked up.
    pub(super) fn ask_known_later(&mut self, file: &TapeFile) {
        let is_put = file.archival == Archival::Precious;
        self.retries.add(file.id, Some((file.size, is_put)));
    }

    /// Files that the tape system has given back wait for their next try.
    pub(super) fn count_retries(&self, counts: &mut TapeCounts) {
        for (file, pause) in &self.retries.pauses {
            let (Some((size, is_put)), false) = (pause.work, self.is_worked_on(*file)) else {
                continue;
            };
            match is_put {
                true => counts.archives.delayed.add(size.0),
                false => counts.recalls.delayed.add(size.0),
            }
        }
    }

    fn is_worked_on(&self, file: EntryId) -> bool {
        self.system.is_putting(file) || self.system.is_getting(file)
    }

    pub(super) async fn ask_again(&mut self) {
        let due = self.retries.due();
        self.ask_puts(due.clone()).await;
        self.ask_gets(due.clone()).await;
        for file in due {
            // Nobody wants it any more. While it is worked on the length of its pause is remembered.
            if !self.is_worked_on(file) {
                self.retries.forget(file);
            }
        }
    }
}
