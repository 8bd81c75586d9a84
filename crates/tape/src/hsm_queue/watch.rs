//! Finds commands that go on too long: without a byte, or at all. What it has seen is not kept; after a restart no command
//! runs.

use super::entry::HsmRun;
use super::incident::HsmIncident;
use super::live_set::HsmLiveSet;
use super::policy::HsmPolicy;
use super::record::HsmCommandRecord;
use super::work::{HsmCommandId, HsmKind, HsmStop};
use super::{HsmEffect, HsmQueue, Turnout};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Progress {
    at_ns: i64,
    bytes: u64,
}

/// When a byte has last come by each command.
#[derive(Debug, Clone, Default)]
pub(super) struct CommandProgress {
    commands: BTreeMap<HsmCommandId, Progress>,
}

impl CommandProgress {
    pub(super) fn begin(&mut self, now_ns: i64, command: HsmCommandId) {
        let progress = Progress {
            at_ns: now_ns,
            bytes: 0,
        };
        self.commands.insert(command, progress);
    }

    /// Only more bytes are progress.
    pub(super) fn moved(&mut self, now_ns: i64, command: HsmCommandId, bytes: u64) {
        if let Some(progress) = self.commands.get_mut(&command)
            && bytes > progress.bytes
        {
            *progress = Progress {
                at_ns: now_ns,
                bytes,
            };
        }
    }

    pub(super) fn forget(&mut self, command: HsmCommandId) {
        self.commands.remove(&command);
    }

    /// When something is to be done about a command, and why.
    fn limit(&self, command: HsmCommandId, run: &HsmRun, policy: &HsmPolicy) -> (i64, HsmStop) {
        let limits = policy.limits;
        if let Some((at_ns, why)) = run.stop {
            return (at_ns.saturating_add(limits.stop_ns), why);
        }
        let kind = run.target.kind();
        let end_ns = run.begun_ns.saturating_add(policy.command_ns(kind));
        let progress = self.commands.get(&command);
        let byte_ns = progress.filter(|_| kind == HsmKind::Get).map(|progress| {
            let limit_ns = match progress.bytes {
                0 => limits.get_first_byte_ns,
                _ => limits.get_no_bytes_ns,
            };
            progress.at_ns.saturating_add(limit_ns)
        });
        match byte_ns.filter(|byte_ns| *byte_ns < end_ns) {
            Some(byte_ns) => (byte_ns, HsmStop::NoBytes),
            None => (end_ns, HsmStop::TooLong),
        }
    }

    /// When the first command is overdue, if nothing happens until then.
    pub(super) fn next_ns(&self, live: &HsmLiveSet, policy: &HsmPolicy) -> Option<i64> {
        let runs = live.runs.iter();
        let limits = runs.map(|(command, run)| self.limit(*command, run, policy).0);
        limits.min()
    }
}

impl HsmQueue {
    /// Stops commands that are overdue. One that was stopped and does not end leaves its slot to others.
    pub(super) fn watch(&mut self, now_ns: i64, out: &mut Turnout) {
        let runs = self.live.runs.iter();
        let overdue = runs.filter_map(|(command, run)| {
            let (at_ns, why) = self.progress.limit(*command, run, &self.policy);
            (at_ns <= now_ns).then(|| (*command, run.clone(), why))
        });
        let overdue: Vec<(HsmCommandId, HsmRun, HsmStop)> = overdue.collect();
        for (command, run, why) in overdue {
            let at_ns = now_ns;
            if run.stop.is_some() {
                self.progress.forget(command);
                self.keep(out, HsmCommandRecord::CommandLost { at_ns, command });
                self.open(now_ns, HsmIncident::CommandLost(command), None, out);
                self.stopped(now_ns, run, why, None, out);
                continue;
            }
            let record = HsmCommandRecord::StopOrdered {
                at_ns,
                command,
                why,
            };
            self.keep(out, record);
            out.effects.push(HsmEffect::Stop(command));
        }
    }
}
