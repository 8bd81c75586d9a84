//! What is checked in simulated trouble: what agents find and leave at destinations, and, after each step, whether
//! everything runs that may, and why the rest does not.
//!
//! Long because each check stands beside the knowledge of agents that it is made from.

use super::agenda::Next;
use super::{BrokenInvariant, World};
use crate::plan::Change;
use crate::watch::{AllowedNumbers, Counts, FileAtDestination, Stray, copy_limit, is_true};
use penstock_decide::destination::{
    self, Attempts, DestinationPlan, DestinationPlanReason, ENDS_WITHIN, FileFacts, Foreign,
    Permission, RemnantVerdict, UnsettledAttempts, course, remnant,
};
use penstock_decide::record_clock::RecordedTime;
use penstock_engine::{Assignment, AttemptOutcome, Engine};
use penstock_model::{
    Bytes, Checksum, Concern, Errno, Failure, LinkId, NoSlot, Phase, Record, Retry, Side,
    SlotBound, Timestamp, TransferEvent, TransferId, TransferState, WaitReason,
};
use std::collections::HashMap;
use std::time::Duration;

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
    /// Something writes there.
    Occupied,
}

/// What an agent has read and seen.
#[derive(Debug, Clone)]
pub(super) struct AgentKnowledge {
    pub(super) sight: Sight,
    /// Nothing of earlier attempts is unsettled.
    pub(super) is_settled: bool,
    /// What of them might still run when it looked.
    pub(super) beside: Option<UnsettledAttempts>,
}

fn refusal(side: Side, errno: Errno, detail: &str) -> Sight {
    Sight::Fails(Failure {
        side,
        retry: Retry::Never,
        concern: Concern::Request,
        phase: Phase::Preparation,
        errno,
        detail: detail.to_owned(),
        found: None,
        busy: None,
        code: None,
    })
}

fn untidied(errno: Errno) -> Failure {
    Failure {
        side: Side::Destination,
        retry: Retry::Later,
        concern: Concern::Request,
        phase: Phase::Finalization,
        errno,
        detail: "the destination refuses".to_owned(),
        found: None,
        busy: None,
        code: None,
    }
}

/// What a transfer brings, and no other one.
fn content_of(transfer: TransferId) -> Option<Checksum> {
    Checksum::parse(&format!("adler32:{:08x}", transfer.0))
}

fn is_kept(no_slot: &NoSlot) -> bool {
    matches!(no_slot.because, SlotBound::Kept { .. })
}

/// Whether nothing but slots, or a link's gate, keeps a transfer from starting.
fn waits_for_slots(reason: &WaitReason) -> bool {
    match reason {
        WaitReason::NoSlot(no_slot) => no_slot.because != SlotBound::Draining,
        WaitReason::LinkHalted { .. } | WaitReason::Starting => true,
        WaitReason::ByShare { because, .. } => waits_for_slots(because),
        WaitReason::BackingOff { .. }
        | WaitReason::SameDestination { .. }
        | WaitReason::StorageBanned { .. }
        | WaitReason::TokenExchange { .. }
        | WaitReason::Tape(_)
        | WaitReason::Draining
        | WaitReason::Drained => false,
    }
}

impl World<'_> {
    /// Two agents may not work at one destination.
    pub(super) fn enter_destination(
        &mut self,
        assignment: &Assignment,
    ) -> Result<(), BrokenInvariant> {
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
    pub(super) fn watch_record(&mut self, record: &Record) -> Result<(), BrokenInvariant> {
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

    /// What an agent does when it has read the record and looked.
    pub(super) fn look_at_ends(
        &mut self,
        assignment: &Assignment,
    ) -> Result<AgentKnowledge, BrokenInvariant> {
        let (transfer, now) = (assignment.request.id, self.clock().at);
        let attempts = self.attempts_of(transfer);
        let lost = attempts.lost();
        let beside = lost.filter(|lost| lost.may_run(now)).cloned();
        let is_settled = lost.is_none();
        Ok(AgentKnowledge {
            sight: self.sight_of(assignment, &attempts)?,
            is_settled,
            beside,
        })
    }

    fn attempts_of(&self, transfer: TransferId) -> Attempts {
        let watch = self.watch.as_ref();
        let attempts = watch.and_then(|watch| watch.attempts.get(&transfer));
        attempts.cloned().unwrap_or_default()
    }

    fn sight_of(
        &mut self,
        assignment: &Assignment,
        attempts: &Attempts,
    ) -> Result<Sight, BrokenInvariant> {
        let (transfer, request) = (assignment.request.id, &assignment.request);
        let Some(watch) = &self.watch else {
            return Ok(Sight::Copy { replaces: false });
        };
        if request.source.as_str().contains("/hop/") {
            let is_there = watch.places.get(request.source.as_str());
            if !is_there.is_some_and(|found| found.is_whole) {
                let why = "No such file or directory";
                return Ok(refusal(Side::Source, Errno::ENOENT, why));
            }
        }
        let place = request.destination.as_str();
        let found = watch.places.get(place).copied();
        let told = found.map(|found| self.told(place, &found));
        let source = FileFacts {
            size: request.size,
            checksum: content_of(transfer),
            modified: None,
        };
        let decision = course(&destination::EndsSeen {
            now: self.clock().at,
            source: &source,
            there: told.as_ref(),
            attempts,
            was_restored: false,
            permission: Permission::of(assignment.parameters.overwrite, assignment.attempt),
        });
        let Some(found) = found else {
            return Ok(Sight::Copy { replaces: false });
        };
        match decision.choice {
            DestinationPlan::Write => Ok(Sight::Copy { replaces: false }),
            DestinationPlan::Replace | DestinationPlan::AskTape => {
                Ok(Sight::Copy { replaces: true })
            }
            DestinationPlan::Arrived(_) if found.by == transfer && found.is_whole => {
                Ok(Sight::Arrived)
            }
            DestinationPlan::Arrived(_) => self.broken(format!(
                "transfer {transfer} takes what transfer {} brought for its own",
                found.by
            )),
            DestinationPlan::Wait => Ok(Sight::Occupied),
            DestinationPlan::RemoveFirst if self.is_occupied(place) => Ok(Sight::Occupied),
            DestinationPlan::RemoveFirst => {
                self.remove_as(transfer, place, &found)?;
                Ok(Sight::Copy { replaces: false })
            }
            DestinationPlan::Refuse => {
                let foreign = decision.because.iter().find_map(|because| match because {
                    DestinationPlanReason::Foreign(foreign) => Some(*foreign),
                    _ => None,
                });
                self.leave_there(transfer, place, foreign)?;
                let why = "Destination file exists";
                Ok(refusal(Side::Destination, Errno::EEXIST, why))
            }
        }
    }

    /// What the storage at a place tells of a file there. Not all tell everything.
    fn told(&self, place: &str, found: &FileAtDestination) -> FileFacts {
        let number = self.number_at(place).unwrap_or_default();
        let now = self.clock().at;
        let age = Duration::from_secs_f64((self.now - found.modified).max(0.0));
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        FileFacts {
            size: Some(Bytes(found.bytes as u64)),
            checksum: (found.is_whole && number % 3 != 2)
                .then(|| content_of(found.by))
                .flatten(),
            modified: (number % 4 != 3).then_some(Timestamp(now.0 - age)),
        }
    }

    fn number_at(&self, place: &str) -> Option<usize> {
        let host = place.split('/').nth(2).unwrap_or_default();
        self.numbers.get(host).copied()
    }

    /// Something writes there of which no agent knows any more.
    pub(super) fn is_occupied(&self, place: &str) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| watch.strays.contains_key(place))
    }

    /// An agent removes what it takes for what an attempt of its transfer left.
    fn remove_as(
        &mut self,
        transfer: TransferId,
        place: &str,
        found: &FileAtDestination,
    ) -> Result<(), BrokenInvariant> {
        if found.by != transfer {
            return self.broken(format!(
                "transfer {transfer} removes what transfer {} brought",
                found.by
            ));
        }
        self.remove(place);
        Ok(())
    }

    /// An agent takes what is there for somebody else's.
    fn leave_there(
        &mut self,
        transfer: TransferId,
        place: &str,
        foreign: Option<Foreign>,
    ) -> Result<(), BrokenInvariant> {
        let Some(watch) = &self.watch else {
            return Ok(());
        };
        let Some(found) = watch.places.get(place).copied() else {
            return Ok(());
        };
        if found.is_excused || (found.is_whole && watch.finished.contains(&found.by)) {
            return Ok(());
        }
        // Without a time of its own, or by clocks that were set, nothing proves whose it is; nothing is removed then.
        let cannot_know = match foreign {
            Some(Foreign::OldEvidence { .. }) => true,
            Some(Foreign::Time { .. }) => self.are_clocks_set(),
            Some(Foreign::NothingLost | Foreign::WasThere | Foreign::Size) | None => false,
        };
        match cannot_know {
            true => {
                self.excuse(found.by);
                Ok(())
            }
            false => self.broken(format!(
                "transfer {transfer} leaves {} at {place}, which transfer {} left behind: {foreign:?}",
                if found.is_whole { "a file" } else { "a part" },
                found.by
            )),
        }
    }

    fn are_clocks_set(&self) -> bool {
        let events = &self.plan.events;
        events
            .iter()
            .any(|event| matches!(event.what, Change::Clock(_)))
    }

    fn remove(&mut self, place: &str) {
        if let Some(watch) = &mut self.watch {
            watch.places.remove(place);
        }
    }

    /// An agent tidies up after a transfer that has ended. What it gives back is why something may still be there.
    pub(super) fn tidy_up(
        &mut self,
        assignment: &Assignment,
    ) -> Result<Option<Failure>, BrokenInvariant> {
        let (transfer, place) = (
            assignment.request.id,
            assignment.request.destination.as_str(),
        );
        let Some(watch) = &self.watch else {
            return Ok(None);
        };
        let found = watch.places.get(place).copied();
        let mut attempts = self.attempts_of(transfer);
        attempts.stop(assignment.ended.map(RecordedTime::exact));
        if attempts.lost().is_none() {
            return Ok(None);
        }
        if self.is_down(place) {
            return Ok(Some(untidied(Errno::ECONNREFUSED)));
        }
        let now = self.clock().at;
        let told = found.map(|found| self.told(place, &found));
        match (remnant(told.as_ref(), &attempts, now), found) {
            (RemnantVerdict::Own, Some(found)) => {
                if self.is_occupied(place) {
                    return Ok(Some(untidied(Errno::EAGAIN)));
                }
                if self.random.happens(self.plan.malice.unclean) {
                    let errno = match self.random.happens(0.5) {
                        true => Errno::EACCES,
                        false => Errno::EIO,
                    };
                    return Ok(Some(untidied(errno)));
                }
                self.remove_as(transfer, place, &found)?;
            }
            (RemnantVerdict::Foreign(foreign), _) => {
                if foreign != Foreign::WasThere {
                    self.leave_there(transfer, place, Some(foreign))?;
                }
                return Ok(None);
            }
            (RemnantVerdict::Nothing | RemnantVerdict::MayCome { .. } | RemnantVerdict::Own, _) => {
            }
        }
        let runs = attempts.runs_until(now);
        Ok(runs.map(|_| untidied(Errno::ECOMM)))
    }

    fn is_down(&self, place: &str) -> bool {
        let number = self.number_at(place);
        number.is_some_and(|number| self.storages[number].is_down)
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
            let found = FileAtDestination {
                by: assignment.request.id,
                is_whole: false,
                bytes: 0.0,
                modified: self.now,
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
            let found = FileAtDestination {
                by: assignment.request.id,
                is_whole: true,
                bytes,
                modified: self.now,
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

    /// What becomes of what an agent wrote that died, and had been let write at `began`: a storage may go on without it,
    /// for as long as a copy may take.
    pub(super) fn orphan(&mut self, assignment: &Assignment, replaces: bool, began: f64) {
        match self.random.below(4) {
            0 => self.written(assignment, replaces),
            1 if !replaces => self.remove(assignment.request.destination.as_str()),
            2 => {
                let limit = copy_limit(assignment.request.size).as_secs_f64();
                let at = began + 0.9 * limit * self.random.even();
                self.stray(assignment, replaces, at.max(self.now));
            }
            _ => {}
        }
    }

    /// A copy goes on although its agent has closed its connections, for a moment. False: it has ended.
    pub(super) fn strays_for_a_moment(&mut self, assignment: &Assignment, replaces: bool) -> bool {
        let goes_on = self.random.happens(self.plan.malice.unclean);
        if goes_on {
            let moment = 0.9 * ENDS_WITHIN.as_secs_f64() * self.random.even();
            self.stray(assignment, replaces, self.now + moment);
        }
        goes_on
    }

    fn stray(&mut self, assignment: &Assignment, replaces: bool, until: f64) {
        let (place, is_hidden) = (
            assignment.request.destination.as_str(),
            self.random.happens(0.5),
        );
        let stray = Stray {
            by: assignment.request.id,
            bytes: assignment.request.size.map_or(0.0, |size| size.0 as f64),
            replaces,
            arrives: self.random.happens(0.7),
        };
        let Some(watch) = &mut self.watch else {
            return;
        };
        watch.note(self.now, &format!("{stray:?} goes on until {until:.3}"));
        watch.strays.insert(place.to_owned(), stray);
        if is_hidden && !replaces {
            watch.places.remove(place);
        }
        self.agenda.add(until, Next::Lands(place.to_owned()));
    }

    /// A copy that went on without its agent has ended.
    pub(super) fn land_stray(&mut self, place: &str) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        let Some(stray) = watch.strays.remove(place) else {
            return;
        };
        watch.note(self.now, &format!("{stray:?} ends"));
        let is_own = |found: &FileAtDestination| found.by == stray.by && !found.is_whole;
        let is_free = watch.places.get(place).is_none_or(is_own);
        if stray.arrives && (is_free || stray.replaces) {
            // A part of it that an agent could not know for its own is no more known when it is whole.
            let part = watch.places.get(place);
            let is_excused = part.is_some_and(|part| part.is_excused);
            let found = FileAtDestination {
                by: stray.by,
                is_whole: true,
                bytes: stray.bytes,
                modified: self.now,
                is_excused: stray.replaces || is_excused,
            };
            watch.places.insert(place.to_owned(), found);
        } else if is_free && !stray.replaces {
            watch.places.remove(place);
        }
    }

    /// Some copy goes on without its agent.
    pub(super) fn has_strays(&self) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| !watch.strays.is_empty())
    }

    /// A destination refuses to be written: somebody writes there, or something has come since it was looked at.
    pub(super) fn refuses(&self, assignment: &Assignment) -> bool {
        let place = assignment.request.destination.as_str();
        let watch = self.watch.as_ref();
        let has_come = watch.is_some_and(|watch| watch.places.contains_key(place));
        self.is_occupied(place) || has_come
    }

    /// What an attempt says that its destination has refused.
    pub(super) fn refused(
        &mut self,
        assignment: &Assignment,
        beside: Option<&UnsettledAttempts>,
    ) -> Result<AttemptOutcome, BrokenInvariant> {
        let (place, now) = (assignment.request.destination.as_str(), self.clock().at);
        let mut failure = untidied(Errno::EAGAIN);
        if let Some(beside) = beside {
            let until = beside.blocks_until;
            return Ok(match until > now {
                true => AttemptOutcome::Blocked {
                    failure,
                    until,
                    moved: Bytes(0),
                },
                false => AttemptOutcome::Failed {
                    failure,
                    cleaned: false,
                    moved: Bytes(0),
                },
            });
        }
        if !self.is_occupied(place) {
            let transfer = assignment.request.id;
            let found = self.watch.as_ref();
            let found = found.and_then(|watch| watch.places.get(place)).copied();
            if found.is_some_and(|found| found.by == transfer && !found.is_excused)
                && !self.are_clocks_set()
            {
                return self.broken(format!("transfer {transfer} is refused by its own file"));
            }
            failure.errno = Errno::EEXIST;
            failure.retry = Retry::Never;
        }
        let cleaned = self.attempts_of(assignment.request.id).lost().is_none();
        Ok(AttemptOutcome::Failed {
            failure,
            cleaned,
            moved: Bytes(0),
        })
    }

    /// Checks, after a step, that nothing waits that might run, and that reasons are true.
    pub(super) fn check_waits(&mut self) -> Result<(), BrokenInvariant> {
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
    pub(super) fn check_order(&mut self, record: &Record) -> Result<(), BrokenInvariant> {
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
        allowed: &AllowedNumbers,
        now: Timestamp,
        transfer: TransferId,
    ) -> Result<(), BrokenInvariant> {
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
            WaitReason::NoSlot(no_slot) if is_kept(no_slot) => true,
            _ => self.is_full(allowed, open.link, counts),
        };
        match holds || self.may_be_mistaken() {
            true => Ok(()),
            false => self.broken(format!(
                "transfer {transfer} might run and waits because {reason:?}; what runs is {counts:?}"
            )),
        }
    }

    fn is_full(&self, allowed: &AllowedNumbers, link: usize, counts: Counts) -> bool {
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
    fn allowed(&self, engine: &Engine) -> AllowedNumbers {
        let storages = engine.storages().map(|view| {
            let limits = (view.outbound.limit.0, view.inbound.limit.0);
            (view.storage.host().to_owned(), limits)
        });
        AllowedNumbers {
            links: engine
                .links()
                .map(|view| (view.link, view.limit.0))
                .collect(),
            storages: storages.collect::<HashMap<_, _>>(),
            all: engine.agents().limit.0,
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
    pub(super) fn check_end(&mut self) -> Result<(), BrokenInvariant> {
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
