//! What a command leaves when it ends: who is told, what is tried again and when, and whether the HSM as a whole is at fault.

use super::entry::{HsmEntry, HsmRun};
use super::fault::{HsmExitCode, fault_of};
use super::incident::HsmIncident;
use super::record::{HsmCommandRecord, HsmOutageRecord, HsmRecord};
use super::work::{
    HsmCommandEnd, HsmCommandId, HsmFault, HsmFaultSource, HsmKind, HsmOutcome, HsmRemove, HsmStop,
    HsmTarget, HsmUri,
};
use super::{HsmEffect, HsmQueue, Turnout};
use crate::amount::TapeAmount;

impl HsmQueue {
    pub(super) fn ended(
        &mut self,
        now_ns: i64,
        command: HsmCommandId,
        end: HsmCommandEnd,
        out: &mut Turnout,
    ) {
        let Some(run) = self.live.runs.get(&command).cloned() else {
            if self.live.lost.contains_key(&command) {
                self.keep(out, HsmCommandRecord::LostCommandGone { command });
                let incident = HsmIncident::CommandLost(command);
                self.close(now_ns, incident, None, out);
            }
            return;
        };
        self.progress.forget(command);
        if let HsmCommandEnd::NoRoom { .. } = end {
            self.hold_gets(now_ns, &run.target);
        }
        self.keep(out, HsmCommandRecord::CommandEnded { command });
        let fault = fault_of(run.target.kind(), &end);
        let is_wide = matches!(end, HsmCommandEnd::NotStarted { .. });
        match (end, fault, run.stop) {
            (HsmCommandEnd::Succeeded { uris }, None, _) => {
                self.succeeded(now_ns, run, uris, out);
            }
            (HsmCommandEnd::NotNeeded, ..) => {
                self.settle_all(out, run.target, &HsmOutcome::Canceled);
            }
            (HsmCommandEnd::LocalTrouble { .. } | HsmCommandEnd::NoRoom { .. }, Some(fault), _) => {
                self.not_run(now_ns, run, fault, out);
            }
            (_, fault, Some((_, why))) => self.stopped(now_ns, run, why, fault, out),
            (_, Some(fault), None) => self.failed(now_ns, run, fault, is_wide, out),
            // The service ends, and has stopped it.
            (_, None, None) => self.run_again(run.target, out),
        }
    }

    /// A command that was told to stop has ended, or is taken as lost.
    pub(super) fn stopped(
        &mut self,
        now_ns: i64,
        run: HsmRun,
        why: HsmStop,
        fault: Option<HsmFault>,
        out: &mut Turnout,
    ) {
        let said = fault.map_or_else(String::new, |fault| fault.text);
        let why = match why {
            HsmStop::NotWanted => return self.run_again(run.target, out),
            HsmStop::NoBytes => "stopped, because no byte came",
            HsmStop::TooLong => "stopped after its time limit",
        };
        let fault = HsmFault {
            source: HsmFaultSource::Program,
            code: None,
            text: format!("{why}: {said}"),
        };
        self.failed(now_ns, run, fault, false, out);
    }

    /// Its try does not count.
    fn run_again(&mut self, target: HsmTarget, out: &mut Turnout) {
        let tries = self
            .live
            .entries
            .get(&target)
            .map_or(0, |entry| entry.tries);
        self.requeue(out, target, tries);
    }

    fn succeeded(&mut self, now_ns: i64, run: HsmRun, uris: Vec<HsmUri>, out: &mut Turnout) {
        let kind = run.target.kind();
        self.faults.succeeded(kind, run.begun_ns);
        if run.is_canary {
            self.resume_kind(now_ns, kind, out);
        }
        let entry = self.live.entries.get(&run.target);
        if let HsmTarget::Put(file) = run.target
            && let Some(entry) = entry.filter(|entry| !entry.is_wanted())
        {
            // Canceled, and stored before the order to stop came.
            let (size_bytes, vo) = (entry.work.size_bytes(), entry.vo.clone());
            for uri in &uris {
                let remove = HsmRemove {
                    request: None,
                    uri: uri.clone(),
                    of: Some(file),
                    size_bytes,
                    vo: vo.clone(),
                };
                let at_ns = now_ns;
                self.keep(out, HsmRecord::RemoveAsked { at_ns, remove });
            }
        }
        let outcome = match kind {
            HsmKind::Put => HsmOutcome::Stored { uris },
            HsmKind::Get => HsmOutcome::Fetched,
            HsmKind::Remove => HsmOutcome::Removed,
        };
        self.settle_all(out, run.target, &outcome);
    }

    /// This side had trouble: that says nothing of the HSM, so that a pause goes on with a canary of another file after as long.
    fn not_run(&mut self, now_ns: i64, run: HsmRun, fault: HsmFault, out: &mut Turnout) {
        let pause = self.live.pause(run.target.kind());
        if let Some(pause_ns) = pause.filter(|_| run.is_canary).map(|pause| pause.pause_ns) {
            self.next_canary(now_ns, run.target.clone(), pause_ns, out);
        }
        self.delay(now_ns, run.target, fault, out);
    }

    /// Finds out what a fault concerns. That of the HSM counts against no file.
    fn failed(
        &mut self,
        now_ns: i64,
        run: HsmRun,
        fault: HsmFault,
        is_wide: bool,
        out: &mut Turnout,
    ) {
        let (kind, target) = (run.target.kind(), run.target);
        let code = fault.code.map_or(HsmExitCode::Other, HsmExitCode::of);
        if let HsmExitCode::Disk(fault) = code {
            let target = target.clone();
            out.effects.push(HsmEffect::Disk { target, fault });
        }
        if let Some(pause) = self.live.pause(kind).cloned() {
            if run.is_canary {
                let pause_ns = pause.pause_ns.saturating_mul(2);
                let pause_ns = pause_ns.min(self.policy.pause_max_ns);
                self.next_canary(now_ns, target.clone(), pause_ns, out);
            }
            return self.run_again(target, out);
        }
        let mut patterns = self.policy.hsm_wide.iter();
        if is_wide || patterns.any(|pattern| pattern.fits(kind, &fault)) {
            self.pause_kind(now_ns, kind, fault, out);
            return self.run_again(target, out);
        }
        let is_of_request = code == HsmExitCode::UserDefined;
        if let HsmExitCode::Disk(_) = code {
            return self.delay(now_ns, target, fault, out);
        }
        let same = match is_of_request {
            true => None,
            false => self.faults.add(now_ns, &target, &fault, &self.policy),
        };
        match same {
            Some(files) => {
                self.pause_kind(now_ns, kind, fault, out);
                for other in files.into_iter().filter(|other| *other != target) {
                    self.take_back_try(other, out);
                }
                self.run_again(target, out);
            }
            None => self.file_failed(now_ns, target, fault, is_of_request, out),
        }
    }

    /// A fault of this side, such as a pool without room: it counts against neither the file nor the HSM.
    fn delay(&mut self, now_ns: i64, target: HsmTarget, fault: HsmFault, out: &mut Turnout) {
        let entry = self.live.entries.get(&target);
        let Some(entry) = entry.filter(|entry| entry.is_wanted()) else {
            return self.keep(out, HsmRecord::Done { target });
        };
        let record = HsmRecord::Delayed {
            target,
            until_ns: now_ns.saturating_add(self.policy.retry_first_ns),
            tries: entry.tries,
            fault,
        };
        self.keep(out, record);
    }

    /// A fault that concerns one file.
    fn file_failed(
        &mut self,
        now_ns: i64,
        target: HsmTarget,
        fault: HsmFault,
        is_of_request: bool,
        out: &mut Turnout,
    ) {
        let entry = self.live.entries.get(&target);
        let Some(entry) = entry.filter(|entry| entry.is_wanted()) else {
            return self.keep(out, HsmRecord::Done { target });
        };
        let tries_max = self.policy.tries_max;
        let tries = entry.tries.saturating_add(1);
        if target.kind() == HsmKind::Get && (is_of_request || tries >= tries_max) {
            let outcome = HsmOutcome::Failed { tries, fault };
            return self.settle_all(out, target, &outcome);
        }
        let (tries, pause_ns) = match is_of_request {
            true => (tries.max(tries_max), self.policy.retry_max_ns),
            false => (tries, self.policy.retry_ns(tries)),
        };
        let record = HsmRecord::Delayed {
            target,
            until_ns: now_ns.saturating_add(pause_ns),
            tries,
            fault,
        };
        self.keep(out, record);
    }

    /// A try that was not the file's fault, as is known now.
    fn take_back_try(&mut self, target: HsmTarget, out: &mut Turnout) {
        let entry = self.live.entries.get(&target);
        if let Some(entry) = entry.filter(|entry| HsmEntry::is_held(entry)) {
            let tries = entry.tries.saturating_sub(1);
            self.requeue(out, target, tries);
        }
    }

    fn pause_kind(&mut self, now_ns: i64, kind: HsmKind, fault: HsmFault, out: &mut Turnout) {
        let pause_ns = self.policy.pause_first_ns;
        let record = HsmOutageRecord::Paused {
            at_ns: now_ns,
            kind,
            probe_ns: now_ns.saturating_add(pause_ns),
            pause_ns,
            fault: fault.clone(),
        };
        self.keep(out, record);
        self.open(now_ns, HsmIncident::Outage, Some(fault), out);
    }

    /// A canary has not shown that the HSM works again. The next one is another file.
    fn next_canary(&mut self, now_ns: i64, target: HsmTarget, pause_ns: i64, out: &mut Turnout) {
        let record = HsmOutageRecord::CanaryFailed {
            kind: target.kind(),
            target,
            probe_ns: now_ns.saturating_add(pause_ns),
            pause_ns,
        };
        self.keep(out, record);
    }

    /// Commands of a kind are started again. With the last kind the outage is over.
    pub(super) fn resume_kind(&mut self, now_ns: i64, kind: HsmKind, out: &mut Turnout) {
        let (files, bytes) = self.live.open_of(kind);
        let before = self.live.outage.as_ref();
        let before = before.map_or((0, 0), |outage| (outage.files, outage.bytes));
        self.keep(out, HsmOutageRecord::Resumed { kind, files, bytes });
        if self.live.outage.is_none() {
            let waited = TapeAmount {
                files: before.0 + files,
                bytes: before.1 + bytes,
            };
            self.close(now_ns, HsmIncident::Outage, Some(waited), out);
        }
    }
}
