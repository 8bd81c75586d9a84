//! What is checked in simulated trouble: what agents find and leave at destinations, and, after each step, whether
//! everything runs that may, and why the rest does not.

use super::{Broken, World};
use crate::watch::{Allowed, Counts, Found, is_true};
use penstock_model::{
    Errno, Failure, LinkId, Overwrite, Phase, Retry, Side, Timestamp, TransferEvent, TransferId,
    TransferState, WaitReason,
};
use penstock_persistence::journal::Record;
use penstock_transfer_service::engine::{Assignment, Engine};
use std::collections::HashMap;

/// A seed of trouble takes some ten thousand steps.
const STEPS_MAX: u64 = 400_000;
/// After how many steps everything is looked at; after each, one transfer is.
const ALL_EVERY: u64 = 16;

/// What an agent finds when it looks at both ends.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Sight {
    /// It may copy; `replaces`: something is there that it may replace.
    Copy { replaces: bool },
    /// An earlier attempt has brought it.
    Arrived,
    /// It may not.
    Fails(Failure),
}

fn refusal(side: Side, errno: Errno, detail: &str) -> Sight {
    Sight::Fails(Failure {
        side,
        retry: Retry::Never,
        phase: Phase::Preparation,
        errno,
        detail: detail.to_owned(),
        found: None,
        busy: None,
    })
}

fn may_overwrite(assignment: &Assignment) -> bool {
    match assignment.parameters.overwrite {
        Overwrite::Always => true,
        Overwrite::OnRetry => assignment.attempt.0 > 1,
        Overwrite::Never
        | Overwrite::IntermediateHops
        | Overwrite::OnlyOnDisk
        | Overwrite::IntermediateHopsAndOnlyOnDisk => false,
    }
}

/// Whether nothing but slots, or a link's gate, keeps a transfer from starting.
fn waits_for_slots(reason: &WaitReason) -> bool {
    match reason {
        WaitReason::LinkFull { .. }
        | WaitReason::SourceFull { .. }
        | WaitReason::DestinationFull { .. }
        | WaitReason::AgentsFull { .. }
        | WaitReason::GfalFull { .. }
        | WaitReason::SlotKept { .. }
        | WaitReason::LinkTuned { .. }
        | WaitReason::SourceTuned { .. }
        | WaitReason::DestinationTuned { .. }
        | WaitReason::RateCapped { .. }
        | WaitReason::LinkHalted { .. }
        | WaitReason::Starting => true,
        WaitReason::ByShare { because, .. } => waits_for_slots(because),
        WaitReason::BackingOff { .. }
        | WaitReason::SameDestination { .. }
        | WaitReason::StorageBanned { .. }
        | WaitReason::TokenExchange { .. }
        | WaitReason::Tape(_)
        | WaitReason::LinkDraining
        | WaitReason::StorageDraining { .. }
        | WaitReason::Draining
        | WaitReason::Drained => false,
    }
}

impl World<'_> {
    /// Two agents may not work at one destination.
    pub(super) fn enter_destination(&mut self, assignment: &Assignment) -> Result<(), Broken> {
        let Some(watch) = &mut self.watch else {
            return Ok(());
        };
        let (place, transfer) = (
            assignment.request.destination.as_str(),
            assignment.request.id,
        );
        match watch.writers.insert(place.to_owned(), transfer) {
            Some(other) => self.broken(format!(
                "transfer {transfer} starts at {place} while transfer {other} works there"
            )),
            None => Ok(()),
        }
    }

    pub(super) fn leave_destination(&mut self, assignment: &Assignment) {
        if let Some(watch) = &mut self.watch {
            watch
                .writers
                .remove(assignment.request.destination.as_str());
        }
    }

    /// A record is kept.
    pub(super) fn watch_record(&mut self, record: &Record) -> Result<(), Broken> {
        self.kept(record);
        let Some(watch) = &mut self.watch else {
            return Ok(());
        };
        watch.record(self.now, record);
        if let Record::Happened {
            transfer,
            state: TransferState::Finished { .. },
            ..
        } = record
        {
            watch.finished.insert(*transfer);
            let place = watch.destinations.get(transfer);
            let found = place.and_then(|place| watch.places.get(place)).copied();
            if !found.is_some_and(|found| found.is_whole && found.by == *transfer) {
                return self.broken(format!(
                    "transfer {transfer} finished, and there is {found:?}"
                ));
            }
        }
        Ok(())
    }

    /// What an agent does when it looks, as `agent/steps.rs` does it.
    pub(super) fn look_at_ends(&mut self, assignment: &Assignment) -> Result<Sight, Broken> {
        let (transfer, request) = (assignment.request.id, &assignment.request);
        let Some(watch) = &self.watch else {
            return Ok(Sight::Copy { replaces: false });
        };
        let bytes = request.size.map_or(0.0, |size| size.0 as f64);
        if request.source.as_str().contains("/hop/") {
            let is_there = watch.places.get(request.source.as_str());
            if !is_there.is_some_and(|found| found.is_whole) {
                let why = "No such file or directory";
                return Ok(refusal(Side::Source, Errno::ENOENT, why));
            }
        }
        let place = request.destination.as_str();
        let Some(found) = watch.places.get(place).copied() else {
            return Ok(Sight::Copy { replaces: false });
        };
        let was_replacing = watch.replaced.get(&transfer) == Some(&true);
        let is_alike = found.by == transfer || !was_replacing;
        if assignment.unsettled && found.is_whole && found.bytes == bytes && is_alike {
            return match found.by == transfer {
                true => Ok(Sight::Arrived),
                false => self.broken(format!(
                    "transfer {transfer} takes what transfer {} brought for its own",
                    found.by
                )),
            };
        }
        if self.takes_for_own(assignment, &found)? {
            self.remove(place);
            return Ok(Sight::Copy { replaces: false });
        }
        if may_overwrite(assignment) {
            return Ok(Sight::Copy { replaces: true });
        }
        let is_right = found.is_whole && watch.finished.contains(&found.by);
        match is_right || found.is_excused {
            true => Ok(refusal(
                Side::Destination,
                Errno::EEXIST,
                "Destination file exists",
            )),
            false => self.broken(format!(
                "transfer {transfer} finds {} at {place}, which transfer {} left behind",
                if found.is_whole { "a file" } else { "a part" },
                found.by
            )),
        }
    }

    /// Whether an agent takes what it finds for what an earlier attempt of its transfer left.
    fn takes_for_own(&self, assignment: &Assignment, found: &Found) -> Result<bool, Broken> {
        let transfer = assignment.request.id;
        let Some(watch) = &self.watch else {
            return Ok(false);
        };
        let bytes = assignment.request.size.map_or(0.0, |size| size.0 as f64);
        let was_absent = watch.replaced.get(&transfer) == Some(&false);
        if !(assignment.unsettled && was_absent && found.bytes <= bytes) {
            return Ok(false);
        }
        match found.by == transfer {
            true => Ok(true),
            false => self.broken(format!(
                "transfer {transfer} would remove what transfer {} brought",
                found.by
            )),
        }
    }

    fn remove(&mut self, place: &str) {
        if let Some(watch) = &mut self.watch {
            watch.places.remove(place);
        }
    }

    /// An agent tidies up after a transfer that has ended.
    pub(super) fn tidy_up(&mut self, assignment: &Assignment) -> Result<(), Broken> {
        let place = assignment.request.destination.as_str();
        let found = self
            .watch
            .as_ref()
            .and_then(|watch| watch.places.get(place));
        let Some(found) = found.copied() else {
            return Ok(());
        };
        if !self.takes_for_own(assignment, &found)? {
            return Ok(());
        }
        match self.is_down(place) {
            true => self.excuse(assignment.request.id),
            false => self.remove(place),
        }
        Ok(())
    }

    fn is_down(&self, place: &str) -> bool {
        let host = place.split('/').nth(2).unwrap_or_default();
        let number = self.numbers.get(host);
        number.is_some_and(|number| self.storages[*number].is_down)
    }

    /// What is left of a transfer cannot be removed by anybody who still knows of it.
    pub(super) fn excuse(&mut self, transfer: TransferId) {
        if let Some(watch) = &mut self.watch {
            let left = watch.places.values_mut();
            for found in left.filter(|found| found.by == transfer) {
                found.is_excused = true;
            }
        }
    }

    /// Bytes begin to arrive at an empty destination.
    pub(super) fn begin_to_write(&mut self, assignment: &Assignment) {
        if let Some(watch) = &mut self.watch {
            let found = Found {
                by: assignment.request.id,
                is_whole: false,
                bytes: 0.0,
                is_excused: false,
            };
            let place = assignment.request.destination.as_str().to_owned();
            watch.places.insert(place, found);
        }
    }

    /// The whole file is there.
    pub(super) fn written(&mut self, assignment: &Assignment, replaces: bool) {
        let bytes = assignment.request.size.map_or(0.0, |size| size.0 as f64);
        if let Some(watch) = &mut self.watch {
            let found = Found {
                by: assignment.request.id,
                is_whole: true,
                bytes,
                // What it has replaced cannot be brought back.
                is_excused: replaces,
            };
            let place = assignment.request.destination.as_str().to_owned();
            watch.places.insert(place, found);
        }
    }

    /// An agent removes what it wrote. False: it could not.
    pub(super) fn clean_up(&mut self, assignment: &Assignment) -> bool {
        let place = assignment.request.destination.as_str();
        let unclean = self.plan.malice.unclean;
        if self.is_down(place) || self.random.happens(unclean) {
            return false;
        }
        self.remove(place);
        true
    }

    /// What becomes of what an agent wrote that died: a storage may go on without it.
    pub(super) fn orphan(&mut self, assignment: &Assignment, replaces: bool) {
        match self.random.below(3) {
            0 => self.written(assignment, replaces),
            1 if !replaces => self.remove(assignment.request.destination.as_str()),
            _ => {}
        }
    }

    /// Checks, after a step, that nothing waits that might run, and that reasons are true.
    pub(super) fn check_waits(&mut self) -> Result<(), Broken> {
        let Some(watch) = &mut self.watch else {
            return Ok(());
        };
        watch.steps += 1;
        let steps = watch.steps;
        if steps > STEPS_MAX {
            return self.broken(format!(
                "the service is busy without end: {STEPS_MAX} steps"
            ));
        }
        let looks_at_all = steps.is_multiple_of(ALL_EVERY);
        let (Some(engine), now) = (self.service.engine(), self.clock().at) else {
            return Ok(());
        };
        let mut waiting: Vec<TransferId> = self.books.open.keys().copied().collect();
        waiting.sort_unstable();
        if !looks_at_all && !waiting.is_empty() {
            let one = steps as usize % waiting.len();
            waiting = vec![waiting[one]];
        }
        let allowed = self.allowed(engine);
        for transfer in waiting {
            self.check_wait(engine, &allowed, now, transfer)?;
        }
        Ok(())
    }

    /// Checks that a transfer which starts passes none that might have started before it.
    pub(super) fn check_order(&mut self, record: &Record) -> Result<(), Broken> {
        let now = self.clock().at;
        let (Some(lines), Some(engine)) = (&mut self.lines, self.service.engine()) else {
            return Ok(());
        };
        match record {
            Record::Happened {
                transfer,
                event,
                state,
                ..
            } => {
                lines.follow(*transfer, state);
                if !matches!(event, TransferEvent::Started { .. }) {
                    return Ok(());
                }
                let might = |before: &TransferId| {
                    let reason = engine.why_waiting(*before, now);
                    reason.is_some_and(|reason| waits_for_slots(&reason))
                };
                let passed = lines.before(*transfer).find(might);
                match passed {
                    None => Ok(()),
                    Some(passed) => self.broken(format!(
                        "transfer {transfer} passes transfer {passed}, which is before it by priority and age"
                    )),
                }
            }
            Record::Reprioritised { job, priority } => {
                lines.prioritise(*job, *priority);
                Ok(())
            }
            Record::JobEnded { job, .. } => {
                lines.close(*job);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn check_wait(
        &self,
        engine: &Engine,
        allowed: &Allowed,
        now: Timestamp,
        transfer: TransferId,
    ) -> Result<(), Broken> {
        let open = &self.books.open[&transfer];
        let reason = engine.why_waiting(transfer, now);
        let not_before = match &open.state {
            TransferState::Submitted { not_before, .. } => *not_before,
            TransferState::NotUsed | TransferState::Active { .. } => {
                return match reason {
                    None => Ok(()),
                    Some(reason) => self.broken(format!(
                        "transfer {transfer} is {} and waits because {reason:?}",
                        open.state.fts_name()
                    )),
                };
            }
            _ => return Ok(()),
        };
        let Some(reason) = reason else {
            return self.broken(format!("transfer {transfer} waits for no reason"));
        };
        let (source, destination) = self.links[open.link].ends;
        let counts = self.counts(open.link);
        if !is_true(&reason, counts) && !self.may_be_mistaken() {
            return self.broken(format!(
                "transfer {transfer} is said to wait because {reason:?}, and what runs is {counts:?}"
            ));
        }
        let is_due = not_before.is_none_or(|at| at <= now);
        let plain = match &reason {
            WaitReason::ByShare { because, .. } => because,
            reason => reason,
        };
        let holds = match plain {
            WaitReason::BackingOff { .. } => !is_due,
            WaitReason::SameDestination { before } => self.is_behind(transfer, *before),
            WaitReason::StorageBanned { .. } => {
                self.storages[source].is_banned || self.storages[destination].is_banned
            }
            WaitReason::Drained => self.is_drained,
            // Only it knows.
            WaitReason::LinkHalted { .. } => self.has_failed(open.link),
            // That what is kept is used in the end shows when all ends.
            WaitReason::SlotKept { .. } => true,
            _ => self.is_full(allowed, open.link, counts),
        };
        match holds || self.may_be_mistaken() {
            true => Ok(()),
            false => self.broken(format!(
                "transfer {transfer} might run and waits because {reason:?}; what runs is {counts:?}"
            )),
        }
    }

    fn is_full(&self, allowed: &Allowed, link: usize, counts: Counts) -> bool {
        let (source, destination) = self.links[link].ends;
        let name = |storage: usize| &self.plan.storages[storage].name;
        let ends = LinkId {
            source: self.storage_id(source),
            destination: self.storage_id(destination),
        };
        let of = |storage: usize| allowed.storages.get(name(storage)).copied();
        let link_max = allowed.links.get(&ends).copied().unwrap_or(u32::MAX);
        let out_max = of(source).map_or(u32::MAX, |(out, _)| out);
        let into_max = of(destination).map_or(u32::MAX, |(_, into)| into);
        counts.link >= link_max
            || counts.out >= out_max
            || counts.into >= into_max
            || counts.all >= allowed.all
    }

    /// How many may run where, as the service has it. That it is not too many is checked at each start.
    fn allowed(&self, engine: &Engine) -> Allowed {
        let storages = engine.storages().map(|view| {
            let limits = (view.outbound.1.0, view.inbound.1.0);
            (view.storage.host().to_owned(), limits)
        });
        Allowed {
            links: engine
                .links()
                .map(|view| (view.link, view.limit.0))
                .collect(),
            storages: storages.collect::<HashMap<_, _>>(),
            all: engine.agents().1.0,
        }
    }

    /// Whether another one to the same destination is open, or works there still.
    fn is_behind(&self, transfer: TransferId, before: TransferId) -> bool {
        let Some(watch) = &self.watch else {
            return true;
        };
        let place = watch.destinations.get(&transfer);
        place.is_some() && place == watch.destinations.get(&before) && transfer != before
    }

    fn has_failed(&self, link: usize) -> bool {
        self.watch
            .as_ref()
            .is_some_and(|watch| watch.failed.contains(&link))
    }

    /// Nothing lies where it should not, and nothing is open.
    pub(super) fn check_end(&mut self) -> Result<(), Broken> {
        if let Some(transfer) = self.books.open.keys().min() {
            let state = &self.books.open[transfer].state;
            return self.broken(format!(
                "transfer {transfer} has not ended after all that time: {state:?}"
            ));
        }
        self.check_bytes()?;
        match self.watch.as_ref().and_then(|watch| watch.left_behind()) {
            Some(what) => self.broken(what),
            None => Ok(()),
        }
    }
}
