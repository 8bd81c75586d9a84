//! A journal in memory, with a switch that makes it fail: for engine tests and simulated disasters.

use crate::{Journal, JournalError, PruneReport, PruneStep, Remedy};
use penstock_model::{
    Ban, BanTarget, CredentialId, Job, JobId, Record, RestartFacts, Settings, StoredToken, Tidying,
    Timestamp, TransferEvent, TransferId, TransferState, TunedPlace, TuningDecision, UnfinishedJob,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Keeps what it is given as long as it lives. Cloning it is a snapshot of the "disk" at that instant.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournal {
    /// While true, every `append` fails and stores nothing, as on a full disk.
    pub full: bool,
    jobs: BTreeMap<JobId, (Job, bool)>,
    /// When jobs ended, with the last entry of the ledger then.
    ends: BTreeMap<(Timestamp, JobId), u64>,
    /// The last entry's number, also when it is no longer kept.
    sequence: u64,
    transfer_id_max: u64,
    states: BTreeMap<TransferId, TransferState>,
    tokens: HashMap<CredentialId, StoredToken>,
    uses: HashMap<JobId, Vec<CredentialId>>,
    ledger: Vec<(Timestamp, TransferId, TransferEvent)>,
    settings: Settings,
    bans: BTreeMap<BanTarget, Ban>,
    tunings: BTreeMap<TunedPlace, TuningDecision>,
    tidyings: BTreeMap<TransferId, Tidying>,
}

impl MemoryJournal {
    /// The ledger so far.
    pub fn ledger(&self) -> &[(Timestamp, TransferId, TransferEvent)] {
        &self.ledger
    }

    /// Where a transfer stands.
    pub fn state(&self, transfer: TransferId) -> Option<&TransferState> {
        self.states.get(&transfer)
    }

    /// Transfers that have ended and whose destinations are still to be looked after.
    pub fn owed(&self) -> impl Iterator<Item = TransferId> + '_ {
        self.tidyings.keys().copied()
    }

    /// Those that nobody refers to any more.
    fn free_tokens(&mut self) {
        let owed = self.tidyings.values();
        let owed = owed.flat_map(|tidying| tidying.request.destination_secrets());
        let uses: Vec<_> = self.uses.values().flatten().chain(owed).collect();
        self.tokens.retain(|id, _| uses.contains(&id));
    }

    /// Every job with whether it has ended.
    pub fn jobs(&self) -> impl Iterator<Item = (&Job, bool)> {
        self.jobs.values().map(|(job, ended)| (job, *ended))
    }
}

impl Journal for MemoryJournal {
    /// Long because each kind of record has one arm.
    fn append(&mut self, records: &[Record]) -> Result<u64, JournalError> {
        if self.full {
            return Err(JournalError::Backend {
                why: "the journal memory cannot be used: it is full".into(),
                remedy: Remedy::Wait,
            });
        }
        for record in records {
            match record {
                Record::JobAccepted { job, tokens } => {
                    for request in &job.transfers {
                        let state = job.parameters.first_state(job.submitted_at);
                        self.states.insert(request.id, state);
                        self.transfer_id_max = self.transfer_id_max.max(request.id.0);
                    }
                    for token in tokens {
                        let known = self.tokens.entry(token.id.clone());
                        known.or_insert_with(|| StoredToken {
                            text: token.text.clone(),
                            renewal: token.renewal.clone().map(|renewal| (renewal, None)),
                        });
                    }
                    let used = tokens.iter().map(|token| token.id.clone());
                    self.uses.insert(job.id, used.collect());
                    self.jobs.insert(job.id, (Job::clone(job), false));
                }
                Record::Happened {
                    at,
                    transfer,
                    event,
                    state,
                    ..
                } => {
                    self.states.insert(*transfer, state.clone());
                    self.ledger.push((*at, *transfer, event.clone()));
                    self.sequence += 1;
                }
                Record::JobEnded { job, at, .. } => {
                    self.ends.insert((*at, *job), self.sequence);
                    if let Some((_, ended)) = self.jobs.get_mut(job) {
                        *ended = true;
                    }
                    self.uses.remove(job);
                    self.free_tokens();
                }
                Record::TokenRenewed { id, renewed } => {
                    let Some(StoredToken {
                        text,
                        renewal: Some((renewal, refresh)),
                    }) = self.tokens.get_mut(id)
                    else {
                        continue;
                    };
                    *refresh = Some(renewed.refresh.clone());
                    if let Some((newer, renew_at)) = &renewed.access {
                        text.clone_from(newer);
                        renewal.renew_at = *renew_at;
                    }
                }
                Record::Reprioritised { job, priority } => {
                    if let Some((job, _)) = self.jobs.get_mut(job) {
                        job.parameters.priority = *priority;
                    }
                }
                Record::Configured(change) => self.settings.apply(change),
                Record::Banned(change) => {
                    if let Some(ended) = &change.before {
                        self.bans.remove(&ended.target());
                    }
                    if let Some(ban) = &change.after {
                        self.bans.insert(ban.target(), ban.clone());
                    }
                }
                Record::Tuned(decision) => {
                    self.tunings
                        .insert(decision.place.clone(), TuningDecision::clone(decision));
                }
                Record::TidyingOwed(tidying) => {
                    let transfer = tidying.request.id;
                    self.tidyings.insert(transfer, Tidying::clone(tidying));
                }
                Record::TidiedUp { transfer } => {
                    self.tidyings.remove(transfer);
                    self.free_tokens();
                }
                Record::LinkChanged(_) | Record::Sampled(_) | Record::MinuteSampled(_) => {}
            }
        }
        Ok(self.sequence)
    }

    fn seal_some_anew(&mut self) -> Result<bool, JournalError> {
        // Nothing is sealed in memory.
        Ok(true)
    }

    fn prune(&mut self, step: &PruneStep) -> Result<PruneReport, JournalError> {
        let mut pruned = PruneReport::default();
        let may_go = |ended: Timestamp, sequence: u64| {
            let is_taken = sequence <= step.taken_by_all;
            (is_taken && step.ended_before.is_some_and(|before| ended < before))
                || step.ended_long_before.is_some_and(|before| ended < before)
        };
        let going = self.ends.iter();
        let owing: BTreeSet<JobId> = self.tidyings.values().map(|owed| owed.job).collect();
        let going = going
            .filter(|((ended, id), sequence)| may_go(*ended, **sequence) && !owing.contains(id));
        let going: Vec<_> = going.map(|(key, sequence)| (*key, *sequence)).collect();
        for ((ended, id), sequence) in going {
            if pruned.rows() as usize >= step.rows_max {
                pruned.has_more = true;
                break;
            }
            self.ends.remove(&(ended, id));
            let Some((job, _)) = self.jobs.remove(&id) else {
                continue;
            };
            for request in &job.transfers {
                self.states.remove(&request.id);
                let before = self.ledger.len();
                self.ledger.retain(|(_, of, _)| *of != request.id);
                pruned.entries += (before - self.ledger.len()) as u64;
                pruned.transfers += 1;
            }
            pruned.jobs += 1;
            pruned.untaken += u64::from(sequence > step.taken_by_all);
            pruned.until = pruned.until.max(Some(ended));
        }
        Ok(pruned)
    }

    fn load_standing(&mut self) -> Result<RestartFacts, JournalError> {
        let awaited = self.tokens.iter().filter(|(_, token)| {
            let renewal = token.renewal.as_ref();
            renewal.is_some_and(|(_, refresh)| refresh.is_none())
        });
        Ok(RestartFacts {
            transfer_id_max: self.transfer_id_max,
            settings: self.settings.clone(),
            bans: self.bans.values().cloned().collect(),
            tunings: self.tunings.values().cloned().collect(),
            tidyings: self.tidyings.values().cloned().collect(),
            tokens_awaited: awaited.map(|(id, _)| id.clone()).collect(),
        })
    }

    fn load_unfinished(&mut self, take: &mut dyn FnMut(UnfinishedJob)) -> Result<(), JournalError> {
        let open = self.jobs.values().filter(|(_, ended)| !ended);
        let mut open: Vec<&Job> = open.map(|(job, _)| job).collect();
        open.sort_by_key(|job| (job.submitted_at, job.id));
        for all in open {
            let mut found = UnfinishedJob {
                job: Job {
                    transfers: Vec::new(),
                    ..Job::clone(all)
                },
                states: Vec::new(),
                ended: Vec::new(),
            };
            for request in &all.transfers {
                found.sort_in(request.clone(), self.states[&request.id].clone());
            }
            take(found);
        }
        Ok(())
    }

    fn token(&mut self, id: &CredentialId) -> Result<Option<StoredToken>, JournalError> {
        Ok(self.tokens.get(id).cloned())
    }
}
