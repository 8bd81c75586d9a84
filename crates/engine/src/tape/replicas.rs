//! Replicas of files that wait for tape: one that is found on disk meanwhile is copied instead, and the stage request is
//! withdrawn. Each is asked for every half minute, so that a replica that appears is used within a minute.

use super::{Due, FilesAtPlace, TapeCallSubject, TapeFile};
use crate::{Effects, Engine, Now, TapeErrand, TapeOutcome, TapePlace};
use penstock_decide::staging::next_call;
use penstock_model::{
    ChoiceReason, JobKind, Locality, Side, Timestamp, ToldPlace, TransferEvent, TransferId,
    TransferState,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Replicas that one question is about, at most: a storage element without a tape interface is asked for each of them.
const REPLICAS_PER_CALL: usize = 100;

/// Which replicas are looked for, and where.
#[derive(Debug, Default)]
pub(super) struct ReplicaWatch {
    places: BTreeMap<Arc<TapePlace>, ReplicaGroup>,
    /// The replicas of each transfer that waits for tape.
    of_waiting: HashMap<TransferId, Vec<WatchedReplica>>,
}

/// Replicas at one place.
#[derive(Debug, Default)]
struct ReplicaGroup {
    replicas: BTreeMap<TransferId, Replica>,
    /// Those up to here were asked for in this round.
    asked_to: Option<TransferId>,
    /// Calls in a row that failed.
    failures: u32,
    is_asking: bool,
}

#[derive(Debug)]
struct Replica {
    path: Arc<str>,
    /// The transfer that waits for tape.
    waiting: TransferId,
}

#[derive(Debug)]
struct WatchedReplica {
    place: Arc<TapePlace>,
    transfer: TransferId,
}

impl ReplicaGroup {
    /// Those that are next in this round.
    fn next(&self, most: usize) -> Vec<TapeFile> {
        let after = self.asked_to.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.replicas.range((after, Bound::Unbounded));
        next.take(most)
            .map(|(transfer, replica)| TapeFile {
                transfer: *transfer,
                path: replica.path.clone(),
            })
            .collect()
    }
}

impl Engine {
    /// After a restart: looks for the replicas of all transfers that wait for tape.
    pub(crate) fn watch_all_replicas(&mut self, now: Timestamp) {
        let waiting = self.transfers.iter();
        let waiting = waiting.filter(|(_, entry)| may_be_replaced(entry.state()));
        let waiting: Vec<TransferId> = waiting.map(|(transfer, _)| *transfer).collect();
        for transfer in waiting {
            self.watch_replicas(now, transfer);
        }
    }

    /// A transfer waits for tape: its job's other replicas are looked for from now on.
    pub(super) fn watch_replicas(&mut self, now: Timestamp, waiting: TransferId) {
        let entry = &self.transfers[&waiting];
        let job = &self.jobs[&entry.job];
        let has_replicas = matches!(job.parameters().kind, JobKind::Replicas(_));
        if !has_replicas || job.unused().is_empty() || !may_be_replaced(entry.state()) {
            return;
        }
        let others: Vec<TransferId> = job.unused().iter().collect();
        for transfer in others {
            let place = self.tape_place(transfer, Side::Source);
            let request = self.request(transfer);
            let path = request.and_then(|request| TapePlace::path(&request, Side::Source));
            let (Some(place), Some(path)) = (place, path) else {
                continue;
            };
            let group = self.tape.replicas.places.entry(place.clone()).or_default();
            let replica = Replica { path, waiting };
            group.replicas.insert(transfer, replica);
            let of_waiting = self.tape.replicas.of_waiting.entry(waiting).or_default();
            of_waiting.push(WatchedReplica {
                place: place.clone(),
                transfer,
            });
            let at = now + self.config.tape.replica_interval;
            self.tape.agenda.set_by(Due::Find(place), at);
        }
    }

    /// A transfer no longer waits for tape.
    pub(super) fn stop_watching(&mut self, waiting: TransferId) {
        let watch = &mut self.tape.replicas;
        for WatchedReplica { place, transfer } in
            watch.of_waiting.remove(&waiting).unwrap_or_default()
        {
            let Some(group) = watch.places.get_mut(&place) else {
                continue;
            };
            group.replicas.remove(&transfer);
            if group.replicas.is_empty() {
                watch.places.remove(&place);
                self.tape.agenda.drop(&Due::Find(place));
            }
        }
    }

    /// Asks which of the next replicas are on disk.
    pub(super) fn find_replicas(&mut self, place: &Arc<TapePlace>, effects: &mut Effects) {
        let most = self.bulk_files_max(place).min(REPLICAS_PER_CALL);
        let Some(group) = self.tape.replicas.places.get(place) else {
            return;
        };
        let files = group.next(most);
        if group.is_asking || files.is_empty() {
            return;
        }
        let asked_to = files.last().map(|file| file.transfer);
        let paths: BTreeSet<&Arc<str>> = files.iter().map(|file| &file.path).collect();
        let errand = TapeErrand::Find(paths.iter().map(|path| path.to_string()).collect());
        let about = TapeCallSubject::Finding(FilesAtPlace {
            place: place.clone(),
            files,
        });
        let calls_max = self.config.tape.calls_max;
        if self.tape.call(place, errand, about, calls_max, effects)
            && let Some(group) = self.tape.replicas.places.get_mut(place)
        {
            group.is_asking = true;
            group.asked_to = asked_to;
        }
    }

    /// A storage element has told which replicas are on disk, or has not.
    pub(super) fn found(
        &mut self,
        now: Now,
        asked: &FilesAtPlace,
        outcome: TapeOutcome,
        effects: &mut Effects,
    ) {
        let FilesAtPlace { place, files } = asked;
        let again_at = now.at + self.config.tape.replica_interval;
        let Some(group) = self.tape.replicas.places.get_mut(place) else {
            return;
        };
        group.is_asking = false;
        let (told, next_at) = match outcome {
            TapeOutcome::Places(told) => {
                group.failures = 0;
                let is_over = group.next(1).is_empty();
                (told, if is_over { again_at } else { now.at })
            }
            TapeOutcome::Failed { .. } => {
                group.failures += 1;
                let failures = group.failures;
                let seed = self.tape.number_next;
                let at = next_call(failures, seed, &self.config.tape, now.at);
                (Vec::new(), at.max(again_at))
            }
            TapeOutcome::Accepted(_) | TapeOutcome::Progress(_) | TapeOutcome::Done => {
                (Vec::new(), again_at)
            }
        };
        if next_at > now.at {
            group.asked_to = None;
        }
        let told: HashMap<String, ToldPlace> = told.into_iter().collect();
        for TapeFile { transfer, path } in files {
            let place_told = told.get(&**path);
            if let Some(Ok(Locality::Disk | Locality::DiskAndTape)) = place_told {
                self.replace_waiting(now, place, *transfer, effects);
            }
        }
        if self.tape.replicas.places.contains_key(place) {
            self.tape.agenda.set(Due::Find(place.clone()), next_at);
        }
    }

    /// The turn of a replica has come that is on disk, in place of one that waits for tape.
    fn replace_waiting(
        &mut self,
        now: Now,
        place: &Arc<TapePlace>,
        replica: TransferId,
        effects: &mut Effects,
    ) {
        let group = self.tape.replicas.places.get(place);
        let Some(waiting) = group.and_then(|group| Some(group.replicas.get(&replica)?.waiting))
        else {
            return;
        };
        let Some(entry) = self.transfers.get(&waiting) else {
            return;
        };
        let (job, destination) = (entry.job, entry.destination);
        let in_job = &self.jobs[&job];
        let is_unused = in_job.unused().iter().any(|unused| unused == replica);
        // What waits for tape stays in its line there while the other one could not start.
        let could_start = !self.scheduler.is_drained() && self.why_banned(replica).is_none();
        if in_job.is_expired() || !is_unused || !could_start {
            return;
        }
        let event = TransferEvent::Replaced { by: replica };
        if !self.apply(now, waiting, event, effects) {
            return;
        }
        self.held_back.remove(&waiting);
        self.bans.let_go(waiting);
        self.tokens.let_go(waiting);
        self.leave_destination(destination, waiting);
        let in_job = self.jobs.get_mut(&job).expect("found above");
        in_job.open.remove(waiting);
        in_job.add_unused(waiting);
        let because = ChoiceReason::OnDisk {
            instead_of: waiting,
        };
        self.take_turn(now, job, replica, because, effects);
    }
}

/// Whether another replica can take the place of a transfer: while it waits for tape, and has not written anything.
fn may_be_replaced(state: &TransferState) -> bool {
    match state {
        TransferState::Staging { recall, .. } | TransferState::Recalling { recall, .. } => {
            recall.attempts == 0
        }
        TransferState::NotUsed
        | TransferState::Submitted { .. }
        | TransferState::Active { .. }
        | TransferState::Archiving { .. }
        | TransferState::Finished { .. }
        | TransferState::Failed { .. }
        | TransferState::Canceled { .. } => false,
    }
}
