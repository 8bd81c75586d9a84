//! Counts minutes from what the loop sees: records, agents' progress, and what stands in the engine each second.

use crate::agent::Progress;
use penstock_decide::minute_meter::{MinuteMeter, Standing, Standings, TransferGroup};
use penstock_engine::{AttemptOutcome, Effects, Engine};
use penstock_model::{Bytes, LinkSample, MinuteSamples, Record, Timestamp, TransferEvent};
use std::sync::Arc;

/// The count of one leader.
#[derive(Debug)]
pub(crate) struct MinuteCounter(MinuteMeter);

impl MinuteCounter {
    pub(crate) fn new(since: Timestamp) -> MinuteCounter {
        MinuteCounter(MinuteMeter::new(since))
    }

    /// Takes what the engine has decided, as it is recorded.
    pub(crate) fn take_effects(&mut self, effects: &Effects) {
        let mut groups = effects.groups.iter();
        for record in &effects.records {
            match record {
                Record::JobAccepted { job, .. } => {
                    for request in &job.transfers {
                        let group = TransferGroup::of(request, &job.vo);
                        self.0.take_submission(job.submitted_at, &group);
                    }
                }
                Record::Happened {
                    at,
                    transfer,
                    event,
                    ..
                } => match event {
                    TransferEvent::Submitted | TransferEvent::NotNeeded => {}
                    event => {
                        let group = groups.next().expect("each event has its group");
                        self.0.take_event(*at, *transfer, group, event);
                    }
                },
                _ => {}
            }
        }
    }

    /// An attempt has moved so many bytes since the last call.
    pub(crate) fn take_moved(&mut self, at: Timestamp, progress: &Progress, bytes: u64) {
        if bytes > 0 {
            self.0.take_moved(at, &progress.group(), bytes);
        }
    }

    /// An attempt has ended; of one that was stopped no event tells what it had moved.
    pub(crate) fn take_end(
        &mut self,
        at: Timestamp,
        progress: &Progress,
        outcome: &AttemptOutcome,
    ) {
        match outcome {
            AttemptOutcome::Stopped | AttemptOutcome::Dropped => {
                let (group, moved) = (progress.group(), Bytes(progress.moved()));
                self.0.take_stopped(at, &group, moved, progress.ran());
            }
            AttemptOutcome::Landed { .. }
            | AttemptOutcome::Failed { .. }
            | AttemptOutcome::Blocked { .. }
            | AttemptOutcome::Unsettled
            | AttemptOutcome::Tidied
            | AttemptOutcome::Untidied { .. } => {}
        }
    }

    /// Takes the second that ends now. Gives the minutes that are over.
    pub(crate) fn take_second(
        &mut self,
        at: Timestamp,
        samples: &[LinkSample],
        running: &[Arc<Progress>],
        engine: &Engine,
    ) -> Vec<MinuteSamples> {
        let mut standings = Standings::default();
        for progress in running {
            let standing = Standing {
                active: 1,
                queued: 0,
            };
            standings.add(&progress.group(), standing);
            if let Some(lasts) = progress.silence() {
                standings.add_silence(&progress.link, lasts);
            }
        }
        for (group, queued) in engine.waiting_groups() {
            standings.add(group, Standing { active: 0, queued });
        }
        standings.service = Some(engine.agents());
        self.0.take_second(at, samples, &standings);
        self.0.take_over()
    }

    /// Gives what remains: this process leads no longer.
    pub(crate) fn end(&mut self, at: Timestamp) -> Vec<MinuteSamples> {
        self.0.end(at)
    }
}
