//! Requests: how they come in, how they are given up, and when their leases end.

use super::entry::HsmStage;
use super::record::{HsmCommandRecord, HsmRecord};
use super::work::{HsmGet, HsmKind, HsmOutcome, HsmPut, HsmRemove, HsmStop};
use super::{HsmEffect, HsmQueue, Turnout};
use crate::request::RequestId;

impl HsmQueue {
    fn is_known(&self, request: RequestId) -> bool {
        self.live.requests.contains_key(&request) || self.live.settled.contains_key(&request)
    }

    pub(super) fn ask_put(&mut self, at_ns: i64, put: HsmPut, out: &mut Turnout) {
        if !self.is_known(put.request) {
            self.keep(out, HsmRecord::PutAsked { at_ns, put });
        }
    }

    pub(super) fn ask_get(&mut self, at_ns: i64, get: HsmGet, out: &mut Turnout) {
        if !self.is_known(get.request) {
            self.keep(out, HsmRecord::GetAsked { at_ns, get });
        }
    }

    pub(super) fn ask_remove(&mut self, at_ns: i64, remove: HsmRemove, out: &mut Turnout) {
        if remove.request.is_none_or(|request| !self.is_known(request)) {
            self.keep(out, HsmRecord::RemoveAsked { at_ns, remove });
        }
    }

    /// Gives up a request of a put or a get. The last one of a file takes its work with it.
    pub(super) fn cancel(
        &mut self,
        now_ns: i64,
        request: RequestId,
        outcome: HsmOutcome,
        out: &mut Turnout,
    ) {
        let target = self.live.requests.get(&request).cloned();
        let Some(target) = target.filter(|target| target.kind() != HsmKind::Remove) else {
            return;
        };
        self.settle(out, request, outcome);
        let Some(entry) = self.live.entries.get(&target) else {
            return;
        };
        if entry.is_wanted() {
            return;
        }
        match entry.stage {
            HsmStage::Running(command) => {
                let stop = self.live.runs.get(&command).map(|run| run.stop);
                if stop == Some(None) {
                    let record = HsmCommandRecord::StopOrdered {
                        at_ns: now_ns,
                        command,
                        why: HsmStop::NotWanted,
                    };
                    self.keep(out, record);
                    out.effects.push(HsmEffect::Stop(command));
                }
            }
            HsmStage::Collecting | HsmStage::Queued | HsmStage::Delayed { .. } => {
                self.keep(out, HsmRecord::Done { target });
            }
        }
    }

    /// Gets that nobody has renewed.
    pub(super) fn expire(&mut self, now_ns: i64, out: &mut Turnout) {
        while let Some((lease_ns, request)) = self.live.leases.first().copied() {
            if lease_ns > now_ns {
                return;
            }
            self.cancel(now_ns, request, HsmOutcome::Expired, out);
            // A lease of a request that is not there would never end.
            self.live.leases.remove(&(lease_ns, request));
        }
    }
}
