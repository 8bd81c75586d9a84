//! What the commands of the HSM do, told to the meter. Of tapes and drives behind the program nothing is known.

use super::asking::Lookup;
use super::{Driver, RECALL_BIT};
use crate::nearline::tape_meter::TapeState;
use penstock_model::Timestamp;
use penstock_persistence::namespace::EntryId;
use penstock_tape::hsm_queue::{HsmCommand, HsmKind, HsmOutcome};
use penstock_tape::request::RequestId;

impl Driver {
    /// How much waits and how much runs.
    pub(super) fn meter_state(&self) {
        let counts = self.queue.counts();
        let of = |kind| counts.kinds.get(&kind).copied().unwrap_or_default();
        let (puts, gets) = (of(HsmKind::Put), of(HsmKind::Get));
        let unwritten = [puts.collecting, puts.queued, puts.running, puts.delayed];
        let waiting = [gets.collecting, gets.queued, gets.delayed];
        let policy = &self.config.policy;
        let cycle_ns = u64::try_from(policy.batch.age_ns).unwrap_or(0);
        let oldest_ns = gets.oldest_waiting_ns;
        self.context.meter.set_state(TapeState {
            unwritten_bytes: unwritten.iter().map(|amount| amount.bytes).sum(),
            recalls_queued: waiting.iter().map(|amount| amount.files).sum(),
            oldest_recall: oldest_ns.map(|since_ns| Timestamp(since_ns / 1_000_000)),
            drives_busy: gets.running.files,
            drives_max: policy.slots(HsmKind::Get) as u64,
            write_cycle_seconds: Some(cycle_ns / 1_000_000_000),
        });
    }

    /// A command begins.
    pub(super) fn meter_begin(&self, command: &HsmCommand) {
        let live = self.queue.live();
        let target = live.runs.get(&command.command).map(|run| &run.target);
        let Some(target) = target.filter(|target| target.kind() == HsmKind::Get) else {
            return;
        };
        if let Some(entry) = live.entries.get(target) {
            let waited_ns = self.now_ns().saturating_sub(entry.since_ns);
            let waited_ms = u64::try_from(waited_ns / 1_000_000).unwrap_or(0);
            self.context.meter.recall_began(waited_ms);
        }
    }

    /// A request has ended.
    pub(super) fn meter_end(&self, request: RequestId, outcome: &HsmOutcome) {
        let count = match outcome {
            HsmOutcome::Stored { .. } => super::TapeMeter::written,
            HsmOutcome::Fetched => super::TapeMeter::recalled,
            HsmOutcome::Failed { .. }
            | HsmOutcome::Expired
            | HsmOutcome::Canceled
            | HsmOutcome::Removed => return,
        };
        if let Lookup::File(file) = self.tape_file(EntryId(request.0 & !RECALL_BIT)) {
            count(&self.context.meter, file.size.0);
        }
    }
}
