//! What happens to the field meanwhile: trouble, and what operators do.

use super::agenda::Next;
use super::{BrokenInvariant, World};
use crate::plan::{Change, Connections, rate_under_loss};
use penstock_decide::settings::{LinkRuleRequest, SettingRequest, StorageRuleRequest};
use penstock_engine::Input;
use penstock_engine::command::{Cancel, ImposeBan, LiftBan, Reprioritise};
use penstock_model::{
    Ban, BanEffect, BanTarget, Priority, Record, Setting, SettingKey, Slots, StorageBan, StorageId,
    UserName,
};

impl World<'_> {
    pub(super) fn begin_event(&mut self, at: usize) -> Result<(), BrokenInvariant> {
        let event = &self.plan.events[at];
        if needs_service(&event.what) && !self.service.is_there() {
            self.agenda.add(self.now + 1.0, Next::Begins(at));
            return Ok(());
        }
        if let Some(lasts) = event.lasts
            && !matches!(event.what, Change::LeaderLost(_))
        {
            self.agenda.add(self.now + lasts, Next::Over(at));
        }
        match &event.what {
            Change::StorageSpeed(storage, speed) => self.set_storage_speed(*storage, *speed),
            Change::StorageLatency(storage, times) => self.storages[*storage].slowness = *times,
            Change::StorageDown(storage) => {
                self.storages[*storage].is_down = true;
                self.break_at(*storage);
            }
            Change::StorageFails(storage, part) => self.storages[*storage].failures = *part,
            Change::ReadsFail(storage, failing) => {
                self.storages[*storage].reads_fail = Some(*failing);
            }
            Change::WritesFail(storage, failing) => {
                self.storages[*storage].writes_fail = Some(*failing);
            }
            Change::Full(storage, failing) => self.storages[*storage].is_full = Some(*failing),
            Change::NetworkSpeed(network, speed) => self.set_network_speed(*network, *speed),
            Change::NetworkLoss(network, loss) => self.set_network_loss(*network, *loss),
            Change::Connections(network, connections) => {
                self.set_connections(*network, Some(*connections));
            }
            Change::UplinkSpeed(storage, speed) => self.set_uplink_speed(*storage, *speed),
            Change::Streams(storage, streams) => self.set_streams(*storage, *streams),
            Change::Submissions(load, times) => self.set_submissions(*load, *times),
            Change::FileSizes(load, times) => self.submitting[*load].size_factor = *times,
            Change::Ban(storage, effect) => return self.ban(*storage, *effect),
            Change::Drain => return self.set(SettingRequest::Drain(true)),
            Change::StorageDrain(storage) => return self.drain_storage(*storage, true),
            Change::LinkMax(from, to, max) => {
                let ends = (*from, *to);
                self.link_at(ends);
                return self.set_link_max(ends, Some(*max));
            }
            Change::StorageMax(storage, outbound, inbound) => {
                return self.set_storage_max(*storage, Some((*outbound, *inbound)));
            }
            Change::LeaderLost(back_after) => self.doom_leader(*back_after),
            Change::NodeLost(node) => return self.lose_node(*node),
            Change::NodeCutOff(node) => self.cut_off_node(*node),
            Change::Clock(by) => {
                self.skew += by;
                self.service.woken();
                return self.feed(Input::Tick);
            }
            Change::Cancel(part) => return self.cancel(*part),
            Change::Prioritise(part, priority) => return self.prioritise(*part, *priority),
        }
        Ok(())
    }

    pub(super) fn end_event(&mut self, at: usize) -> Result<(), BrokenInvariant> {
        let what = &self.plan.events[at].what;
        if needs_service(what) {
            if self.service.is_there() {
                self.take_back(what)?;
            }
            if !self.service.is_there() {
                self.agenda.add(self.now + 1.0, Next::Over(at));
            }
            return Ok(());
        }
        match what {
            Change::StorageSpeed(storage, _) => self.set_storage_speed(*storage, 1.0),
            Change::StorageLatency(storage, _) => self.storages[*storage].slowness = 1.0,
            Change::StorageDown(storage) => self.storages[*storage].is_down = false,
            Change::StorageFails(storage, _) => {
                self.storages[*storage].failures = self.plan.storages[*storage].failures;
            }
            Change::ReadsFail(storage, _) => self.storages[*storage].reads_fail = None,
            Change::WritesFail(storage, _) => self.storages[*storage].writes_fail = None,
            Change::Full(storage, _) => self.storages[*storage].is_full = None,
            Change::NetworkSpeed(network, _) => self.set_network_speed(*network, 1.0),
            Change::NetworkLoss(network, _) => self.set_network_loss(*network, 0.0),
            Change::Connections(network, _) => self.set_connections(*network, None),
            Change::UplinkSpeed(storage, _) => self.set_uplink_speed(*storage, 1.0),
            Change::Streams(storage, _) => self.set_streams(*storage, 1),
            Change::Submissions(load, _) => self.set_submissions(*load, 1.0),
            Change::FileSizes(load, _) => self.submitting[*load].size_factor = 1.0,
            Change::NodeLost(node) | Change::NodeCutOff(node) => self.return_node(*node),
            Change::Clock(by) => {
                self.skew -= by;
                self.service.woken();
                return self.feed(Input::Tick);
            }
            _ => {}
        }
        Ok(())
    }

    /// Operators undo what they did.
    fn take_back(&mut self, what: &Change) -> Result<(), BrokenInvariant> {
        match what {
            Change::Ban(storage, _) => self.lift(*storage),
            Change::Drain => self.set(SettingRequest::Drain(false)),
            Change::StorageDrain(storage) => self.drain_storage(*storage, false),
            Change::LinkMax(from, to, _) => self.set_link_max((*from, *to), None),
            Change::StorageMax(storage, ..) => self.set_storage_max(*storage, None),
            _ => Ok(()),
        }
    }

    fn set_storage_speed(&mut self, storage: usize, speed: f64) {
        self.storages[storage].speed = speed;
        self.field.set_storage_speed(storage, speed);
        self.share();
        self.watch_stalls();
    }

    fn set_network_speed(&mut self, network: usize, speed: f64) {
        let (from, to) = (
            self.plan.networks[network].from,
            self.plan.networks[network].to,
        );
        self.network_speeds[network] = speed;
        self.field.set_network_speed(from, to, speed);
        self.share();
        self.watch_stalls();
    }

    fn set_network_loss(&mut self, network: usize, loss: f64) {
        self.network_losses[network] = loss;
        self.set_per_transfer(network);
    }

    fn set_connections(&mut self, network: usize, connections: Option<Connections>) {
        self.connections[network] = connections;
        self.set_per_transfer(network);
    }

    /// What one transfer reaches at most: by the plan, by losses and by its windows.
    fn set_per_transfer(&mut self, network: usize) {
        let planned = &self.plan.networks[network];
        let under_loss = rate_under_loss(self.network_losses[network], planned.rtt);
        let windows = self.connections[network].map_or(f64::INFINITY, |it| it.rate());
        let most = planned.per_transfer.min(under_loss).min(windows);
        self.field
            .set_per_transfer((planned.from, planned.to), most);
        self.share();
    }

    fn set_uplink_speed(&mut self, storage: usize, speed: f64) {
        self.field.set_uplink_speed(storage, speed);
        self.share();
    }

    fn set_streams(&mut self, storage: usize, streams: u32) {
        self.storages[storage].streams = streams;
        self.field.set_streams(storage, streams);
        self.share();
    }

    fn set_submissions(&mut self, load: usize, times: f64) {
        let before = std::mem::replace(&mut self.submitting[load].pace, times);
        // Nothing of it was on the agenda.
        if before <= 0.0 && times > 0.0 && self.submitting[load].left > 0 {
            self.agenda.add(self.now, Next::Submit(load));
        }
    }

    fn drain_storage(&mut self, storage: usize, drains: bool) -> Result<(), BrokenInvariant> {
        self.set(SettingRequest::SetStorages(vec![StorageRuleRequest {
            is_draining: Some(drains),
            ..StorageRuleRequest::new(self.storage_id(storage))
        }]))
    }

    pub(super) fn storage_id(&self, storage: usize) -> StorageId {
        self.plan.storage_id(storage)
    }

    fn ban(&mut self, storage: usize, effect: BanEffect) -> Result<(), BrokenInvariant> {
        let ban = Ban::Storage(StorageBan {
            storage: self.storage_id(storage),
            vo: None,
            effect,
            cancel_at: None,
            since: self.clock().at,
            by: UserName::new("operator"),
            message: "the plan says so".to_owned(),
        });
        let reply = self.service.next_reply();
        self.feed(Input::of_request(ImposeBan(Box::new(ban)), reply))
    }

    fn lift(&mut self, storage: usize) -> Result<(), BrokenInvariant> {
        let target = BanTarget::storage(&self.storage_id(storage), None);
        let reply = self.service.next_reply();
        let by = UserName::new("operator");
        self.feed(Input::of_request(LiftBan { target, by }, reply))
    }

    fn rule_name(&self, (from, to): (usize, usize)) -> String {
        let name = |storage: usize| &self.plan.storages[storage].name;
        format!("{}-{}", name(from), name(to))
    }

    /// `None`: as many as on every link.
    fn set_link_max(
        &mut self,
        ends: (usize, usize),
        max: Option<u32>,
    ) -> Result<(), BrokenInvariant> {
        let Some(max) = max else {
            return self.set(SettingRequest::RemoveLink(self.rule_name(ends)));
        };
        self.set(SettingRequest::SetLink(LinkRuleRequest {
            name: self.rule_name(ends),
            source: Some(self.storage_id(ends.0)),
            destination: Some(self.storage_id(ends.1)),
            slots_min: Some(Slots(1)),
            slots_max: Some(Slots(max)),
            ..LinkRuleRequest::default()
        }))
    }

    /// Out of it and into it. `None`: as many as for every storage element.
    fn set_storage_max(
        &mut self,
        storage: usize,
        max: Option<(u32, u32)>,
    ) -> Result<(), BrokenInvariant> {
        self.set(SettingRequest::SetStorages(vec![StorageRuleRequest {
            outbound_max: Some(max.map(|(outbound, _)| Slots(outbound))),
            inbound_max: Some(max.map(|(_, inbound)| Slots(inbound))),
            ..StorageRuleRequest::new(self.storage_id(storage))
        }]))
    }

    /// What operators did is kept: it holds from now on.
    pub(super) fn kept(&mut self, record: &Record) {
        match record {
            Record::Configured(change) => match (&change.key, &change.after) {
                (SettingKey::Drain, after) => self.is_drained = after.is_some(),
                (SettingKey::Link(name), after) => {
                    let max = match after {
                        Some(Setting::Link(rule)) => rule.slots_max.0,
                        _ => self.service.link_max,
                    };
                    let names =
                        (0..self.links.len()).map(|link| self.rule_name(self.links[link].ends));
                    let found = names.into_iter().position(|known| known == *name);
                    if let Some(link) = found {
                        self.links[link].max = max;
                    }
                }
                _ => {}
            },
            Record::Banned(change) => {
                for (ban, holds) in [(&change.before, false), (&change.after, true)] {
                    if let Some(Ban::Storage(ban)) = ban
                        && let Some(number) = self.numbers.get(ban.storage.host())
                    {
                        self.storages[*number].is_banned = holds;
                    }
                }
            }
            _ => {}
        }
    }

    fn prioritise(&mut self, part: f64, priority: i64) -> Result<(), BrokenInvariant> {
        let jobs: Vec<_> = self.books.jobs.keys().copied().collect();
        for job in jobs {
            if self.random.happens(part) {
                let reply = self.service.next_reply();
                let priority = Priority::clamped(priority);
                self.feed(Input::of_request(Reprioritise { job, priority }, reply))?;
            }
        }
        Ok(())
    }

    fn cancel(&mut self, part: f64) -> Result<(), BrokenInvariant> {
        let jobs: Vec<_> = self.books.jobs.keys().copied().collect();
        for job in jobs {
            if self.random.happens(part) {
                let reply = self.service.next_reply();
                self.feed(Input::of_request(
                    Cancel {
                        job,
                        transfers: None,
                        reason: "the plan says so".to_owned(),
                    },
                    reply,
                ))?;
            }
        }
        Ok(())
    }
}

/// Whether an operator does it, who tries again while there is no service.
fn needs_service(what: &Change) -> bool {
    match what {
        Change::Ban(..)
        | Change::Drain
        | Change::StorageDrain(_)
        | Change::LinkMax(..)
        | Change::StorageMax(..)
        | Change::Cancel(_)
        | Change::Prioritise(..) => true,
        Change::StorageSpeed(..)
        | Change::StorageLatency(..)
        | Change::StorageDown(_)
        | Change::StorageFails(..)
        | Change::ReadsFail(..)
        | Change::WritesFail(..)
        | Change::Full(..)
        | Change::NetworkSpeed(..)
        | Change::NetworkLoss(..)
        | Change::Connections(..)
        | Change::UplinkSpeed(..)
        | Change::Streams(..)
        | Change::Submissions(..)
        | Change::FileSizes(..)
        | Change::LeaderLost(_)
        | Change::NodeLost(_)
        | Change::NodeCutOff(_)
        | Change::Clock(_) => false,
    }
}
