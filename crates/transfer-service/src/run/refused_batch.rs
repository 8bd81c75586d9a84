//! What becomes of a batch that the journal refuses for good: the one input whose records it does not take is found and
//! left out, whoever waits for its answer is told, and all that came before is kept.
//!
//! What the engine decided after it may rest upon it. So nothing of that is written or done, and what is stored is read
//! anew; those whose answers are missing ask again. Only what nothing rests upon, as samples of links, is left out
//! without further ado.

use super::committing::{CommitFailure, Committer};
use super::{Act, Batch, InputEnd, LoopEnd};
use penstock_engine::command::Reply;
use penstock_journal::JournalError;
use penstock_model::Record;

/// What one input has led to.
struct Share {
    records: Vec<Record>,
    acts: Vec<Act>,
}

impl Batch {
    /// Input by input.
    fn shares(mut self) -> Vec<Share> {
        self.end_of_input();
        let (mut records, mut acts) = (self.records.into_iter(), self.acts.into_iter());
        let mut before = InputEnd {
            records: 0,
            acts: 0,
        };
        let share = |end: InputEnd| {
            let share = Share {
                records: records
                    .by_ref()
                    .take(end.records - before.records)
                    .collect(),
                acts: acts.by_ref().take(end.acts - before.acts).collect(),
            };
            before = end;
            share
        };
        self.ends.into_iter().map(share).collect()
    }
}

/// Whether anything else rests upon a record.
fn is_dispensable(record: &Record) -> bool {
    match record {
        Record::Sampled(_)
        | Record::MinuteSampled(_)
        | Record::Tuned(_)
        | Record::LinkChanged(_) => true,
        Record::JobAccepted { .. }
        | Record::Happened { .. }
        | Record::JobEnded { .. }
        | Record::TokenRenewed { .. }
        | Record::Reprioritised { .. }
        | Record::Configured(_)
        | Record::Banned(_)
        | Record::TidyingOwed(_)
        | Record::TidiedUp { .. } => false,
    }
}

impl Committer {
    /// Writes what is taken of a batch that is not taken as a whole.
    pub(super) fn leave_out(&mut self, batch: Batch, error: &JournalError) -> Result<(), LoopEnd> {
        tracing::warn!(%error, "the journal refuses a batch; what it refuses of it is looked for");
        let mut shares = batch.shares();
        while !shares.is_empty() {
            // So many of the first are refused together.
            let mut suspects = shares.len();
            while suspects > 1 {
                let half = suspects / 2;
                match self.write_shares(&shares[..half]) {
                    Ok(()) => {
                        self.act_upon(shares.drain(..half));
                        suspects -= half;
                    }
                    Err(CommitFailure::Refused(_)) => suspects = half,
                    Err(CommitFailure::Over(end)) => return Err(end),
                }
            }
            match self.write_shares(&shares[..1]) {
                Ok(()) => self.act_upon(shares.drain(..1)),
                Err(CommitFailure::Over(end)) => return Err(end),
                Err(CommitFailure::Refused(error)) => {
                    let refused = shares.remove(0);
                    self.leave_out_of(refused, error)?;
                }
            }
        }
        Ok(())
    }

    fn write_shares(&mut self, shares: &[Share]) -> Result<(), CommitFailure> {
        let records = shares
            .iter()
            .flat_map(|share| share.records.iter().cloned());
        let records: Vec<Record> = records.collect();
        self.write(&records)
    }

    fn act_upon(&mut self, shares: impl Iterator<Item = Share>) {
        for act in shares.flat_map(|share| share.acts) {
            self.act(act);
        }
    }

    fn leave_out_of(&mut self, mut refused: Share, error: JournalError) -> Result<(), LoopEnd> {
        self.node.metrics.records_refused.increment();
        let before = refused.records.len();
        refused.records.retain(|record| !is_dispensable(record));
        let what: Vec<&str> = refused.records.iter().map(name_of).collect();
        if refused.records.len() < before {
            tracing::error!(%error, "the journal refuses what was measured or tuned; it is left out");
            match self.write_shares(std::slice::from_ref(&refused)) {
                Ok(()) => {
                    self.act_upon(std::iter::once(refused));
                    return Ok(());
                }
                Err(CommitFailure::Over(end)) => return Err(end),
                Err(CommitFailure::Refused(_)) => {}
            }
        }
        tracing::error!(
            %error, ?what,
            "the journal refuses a record for good; it is skipped, and the stored state is read again"
        );
        let reply = self.reply_to(&refused.records, &error);
        for act in refused.acts {
            if let Act::Reply(to, _) = act {
                // The other side may have gone meanwhile.
                drop(to.send(reply.clone()));
            }
        }
        Err(LoopEnd::ReadAnew(error))
    }

    /// For whoever asked for what is refused. A job may be there already: its submission was asked again.
    fn reply_to(&self, records: &[Record], error: &JournalError) -> Reply {
        let job = records.iter().find_map(|record| match record {
            Record::JobAccepted { job, .. } => Some(job.id),
            _ => None,
        });
        match job.map(|job| (job, self.node.agents.reader.job(job))) {
            Some((job, Ok(Some(_)))) => Reply::Accepted(job),
            _ => Reply::NotRecorded(error.to_string()),
        }
    }
}

fn name_of(record: &Record) -> &'static str {
    match record {
        Record::JobAccepted { .. } => "a job",
        Record::Happened { .. } => "what happened to a transfer",
        Record::JobEnded { .. } => "the end of a job",
        Record::TokenRenewed { .. } => "a renewed token",
        Record::Reprioritised { .. } => "another priority",
        Record::Configured(_) => "a setting",
        Record::Banned(_) => "a ban",
        Record::LinkChanged(_) => "what became of a link",
        Record::Tuned(_) => "a decision about a link",
        Record::TidyingOwed(_) => "what is to be looked after",
        Record::TidiedUp { .. } => "what was looked after",
        Record::Sampled(_) => "a sample of a link",
        Record::MinuteSampled(_) => "the samples of a minute",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::TransferId;
    use tokio::sync::oneshot;

    #[test]
    fn a_batch_falls_into_what_each_input_has_led_to() {
        let record = |number| Record::TidiedUp {
            transfer: TransferId(number),
        };
        let of = |records: std::ops::Range<u64>, acts: usize| {
            let mut batch = Batch::default();
            batch.records.extend(records.map(record));
            batch.acts.extend((0..acts).map(|_| {
                let (to, _) = oneshot::channel();
                Act::Reply(to, Reply::Done)
            }));
            batch
        };
        let mut batch = of(0..2, 1);
        batch.end_of_input();
        batch.records.push(record(2));
        batch.end_of_input();
        batch.end_of_input();
        batch.append(of(3..3, 2));
        batch.append(of(3..5, 0));
        let shares = batch.shares();
        let sizes: Vec<(usize, usize)> = shares
            .iter()
            .map(|share| (share.records.len(), share.acts.len()))
            .collect();
        assert_eq!(sizes, [(2, 1), (1, 0), (0, 2), (2, 0)]);
        let all = shares.into_iter().flat_map(|share| share.records);
        assert!(all.eq((0..5).map(record)), "in their order");
    }
}
