//! What the records say, kept as an accountant would: apart from the engine, and by the rules of `model` alone.

use penstock_model::{Attempt, JobId, Record, TransferEvent, TransferId, TransferState, advance};
use std::collections::{BTreeMap, HashMap};

/// A transfer that has not ended.
#[derive(Debug, Clone)]
pub(crate) struct OpenTransfer {
    pub(crate) state: TransferState,
    /// Its link, and its VO, by the world's numbers.
    pub(crate) link: usize,
    pub(crate) vo: usize,
    /// Its size.
    pub(crate) bytes: f64,
    /// Virtual second.
    pub(crate) submitted: f64,
    /// Whether any attempt has started.
    pub(crate) has_started: bool,
}

impl OpenTransfer {
    /// The attempt that runs, by the record.
    pub(crate) fn running(&self) -> Option<Attempt> {
        match &self.state {
            TransferState::Active { attempt, .. } => Some(*attempt),
            _ => None,
        }
    }
}

/// All of them, and what became of the others.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) open: HashMap<TransferId, OpenTransfer>,
    /// Jobs that have not ended, with their first transfer and how many they have.
    pub(crate) jobs: BTreeMap<JobId, (TransferId, u64)>,
    /// Jobs so far.
    pub(crate) jobs_accepted: u64,
    /// How many have ended, by FTS's word.
    pub(crate) ended: BTreeMap<&'static str, u64>,
    /// Attempts that failed, and that were lost with a leader.
    pub(crate) failures: u64,
    pub(crate) losses: u64,
    /// Bytes of transfers that have finished.
    pub(crate) bytes: f64,
}

impl Books {
    /// Takes a record of something that happened to a transfer; what it was before it ended, if it has.
    ///
    /// Errors: it does not follow from what was recorded before.
    pub(crate) fn take(&mut self, record: &Record) -> Result<Option<OpenTransfer>, String> {
        let Record::Happened {
            at,
            transfer,
            event,
            state,
            ..
        } = record
        else {
            if let Record::JobEnded { job, .. } = record {
                self.close(*job)?;
            }
            return Ok(None);
        };
        let Some(open) = self.open.get_mut(transfer) else {
            return Err(format!(
                "transfer {transfer} was never accepted or has ended, and is recorded as {state:?}"
            ));
        };
        if *event != TransferEvent::Submitted {
            let next = advance(&open.state, *at, event)
                .map_err(|why| format!("transfer {transfer}: {why}"))?;
            if next != *state {
                return Err(format!(
                    "transfer {transfer} is recorded as {state:?} and must be {next:?}"
                ));
            }
        }
        open.state = state.clone();
        match event {
            TransferEvent::AttemptFailed { .. } => self.failures += 1,
            TransferEvent::AttemptLost { .. } => self.losses += 1,
            _ => {}
        }
        if let TransferState::Finished { size, .. } = state {
            if (size.0 as f64 - open.bytes).abs() > 1.0 {
                return Err(format!(
                    "transfer {transfer} is recorded with {} bytes and had {}",
                    size.0, open.bytes
                ));
            }
            self.bytes += open.bytes;
        }
        if !state.is_terminal() {
            return Ok(None);
        }
        *self.ended.entry(state.fts_name()).or_default() += 1;
        Ok(self.open.remove(transfer))
    }

    /// A job has ended: nothing of it is open but what was never needed.
    fn close(&mut self, job: JobId) -> Result<(), String> {
        let Some((first, count)) = self.jobs.remove(&job) else {
            return Err(format!("job {job} ended twice, or was never accepted"));
        };
        for transfer in (first.0..first.0 + count).map(TransferId) {
            match self.open.get(&transfer).map(|open| &open.state) {
                None => {}
                Some(TransferState::NotUsed) => {
                    *self
                        .ended
                        .entry(TransferState::NotUsed.fts_name())
                        .or_default() += 1;
                    self.open.remove(&transfer);
                }
                Some(state) => {
                    return Err(format!(
                        "job {job} ended while transfer {transfer} is {state:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::Timestamp;

    const TRANSFER: TransferId = TransferId(1);

    fn books(job: JobId) -> Books {
        let open = OpenTransfer {
            state: TransferState::submitted(),
            link: 0,
            vo: 0,
            bytes: 7.0,
            submitted: 0.0,
            has_started: false,
        };
        Books {
            open: HashMap::from([(TRANSFER, open)]),
            jobs: BTreeMap::from([(job, (TRANSFER, 1))]),
            ..Books::default()
        }
    }

    /// Of the only transfer, with the state that it is said to have led to.
    fn started(job: JobId, attempt: u32, state: TransferState) -> Record {
        let event = TransferEvent::Started {
            attempt: Attempt(attempt),
            node: None,
        };
        Record::Happened {
            at: Timestamp(5),
            monotonic_us: 0,
            job,
            transfer: TRANSFER,
            event,
            state,
        }
    }

    #[test]
    fn a_record_that_does_not_follow_from_those_before_is_found_out() {
        let job = JobId(Default::default());
        let event = TransferEvent::Started {
            attempt: Attempt(1),
            node: None,
        };
        let active = advance(&TransferState::submitted(), Timestamp(5), &event).expect("it starts");
        let refused = |books: &mut Books, record: Record, why: &str| {
            let told = books.take(&record).expect_err(why);
            assert!(told.contains(why), "{told}");
        };
        // Another state than `model` makes of the event, an end of a job with an open transfer, a second start.
        let mut kept = books(job);
        let wrong = started(job, 1, TransferState::submitted());
        refused(&mut kept, wrong, "must be");
        kept.take(&started(job, 1, active.clone()))
            .expect("it follows");
        assert_eq!(kept.open[&TRANSFER].running(), Some(Attempt(1)));
        refused(&mut kept, started(job, 1, active.clone()), "transfer 1");
        let ended = Record::JobEnded {
            job,
            at: Timestamp(6),
            state: penstock_model::JobState::Finished,
        };
        refused(&mut kept, ended, "ended while transfer 1 is");
        // A transfer of which nothing was accepted.
        let mut empty = Books::default();
        refused(&mut empty, started(job, 1, active), "was never accepted");
    }
}
