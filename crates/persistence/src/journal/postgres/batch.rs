//! What records become in PostgreSQL: columns of values, one statement for each table however many records there are.
//!
//! Made before the transaction begins, so that it holds its locks no longer than the database needs.

use crate::postgres::text;
use crate::sealing::{SealingError, SealingKeys, SecretKind};
use crate::sql_integer::to_sql;
use penstock_model::{
    BanChange, BanTarget, CredentialId, Job, JobId, JobKind, JobState, JobToken, LinkChange,
    LinkSample, MinuteSamples, Priority, Record, RenewedToken, SettingChange, StorageId, Tidying,
    Timestamp, TransferEvent, TransferId, TransferState, TuningDecision,
};
use std::collections::{BTreeMap, HashSet};
use uuid::Uuid;

fn json<T: serde::Serialize>(value: &T) -> Result<String, Unstorable> {
    serde_json::to_string(value).map_err(|why| Unstorable(why.to_string()))
}

/// The pseudo id under which a clean-up refers to its token, as jobs do. Its version bits are invalid, so no job has it.
pub(super) fn tidying_user(transfer: TransferId) -> Uuid {
    Uuid::from_u64_pair(u64::MAX, transfer.0)
}

/// A record that cannot be written down. Programs make none.
#[derive(Debug)]
pub(super) struct Unstorable(pub(super) String);

impl From<SealingError> for Unstorable {
    fn from(error: SealingError) -> Unstorable {
        Unstorable(error.to_string())
    }
}

/// All records of one transaction.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) jobs: Jobs,
    pub(super) transfers: Transfers,
    pub(super) ledger: Ledger,
    /// What became of each transfer in the end.
    pub(super) changed: TransferChanges,
    pub(super) tokens: Tokens,
    pub(super) renewed: Vec<TokenRenewal>,
    pub(super) priorities: BTreeMap<JobId, Priority>,
    pub(super) ended: EndedJobs,
    pub(super) settings: Vec<SettingChange>,
    pub(super) bans: Vec<BanChange>,
    pub(super) links: Vec<LinkChange>,
    pub(super) tunings: Vec<TuningDecision>,
    pub(super) samples: Samples,
    pub(super) minutes: Minutes,
    /// What has to be looked after, as it is written down.
    pub(super) tidyings: BTreeMap<TransferId, String>,
    pub(super) tidied: Vec<TransferId>,
}

#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub(super) id: Vec<Uuid>,
    pub(super) user: Vec<String>,
    pub(super) vo: Vec<String>,
    pub(super) delegation: Vec<String>,
    pub(super) submitted: Vec<i64>,
    pub(super) priority: Vec<i32>,
    pub(super) parameters: Vec<String>,
    pub(super) source: Vec<String>,
    pub(super) destination: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Transfers {
    pub(super) id: Vec<i64>,
    pub(super) job: Vec<Uuid>,
    pub(super) request: Vec<String>,
    pub(super) state_name: Vec<&'static str>,
    pub(super) state: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) at: Vec<i64>,
    pub(super) monotonic: Vec<i64>,
    pub(super) job: Vec<Uuid>,
    pub(super) transfer: Vec<i64>,
    pub(super) event: Vec<String>,
}

/// What several events in a row make of a transfer's row.
#[derive(Debug, Default)]
pub(super) struct Change {
    /// `None`: only its first record was there, which says what the row says already.
    state: Option<TransferState>,
    size: Option<i64>,
    started: Option<i64>,
    finished: Option<i64>,
    /// The latest stage request, and when it was accepted.
    pub(super) staged: Option<(String, i64)>,
    pub(super) staging_finished: Option<i64>,
    pub(super) archiving_started: Option<i64>,
    pub(super) archiving_finished: Option<i64>,
}

impl Change {
    fn take(&mut self, at: Timestamp, event: &TransferEvent, state: &TransferState) {
        match event {
            TransferEvent::Submitted => return,
            TransferEvent::Started { .. } => self.started = Some(at.0),
            TransferEvent::Prepared { size, .. } => {
                self.size = size.map(|size| to_sql(size.0)).or(self.size);
            }
            TransferEvent::Landed { size, archives, .. } => {
                self.size = Some(to_sql(size.0));
                if *archives {
                    self.archiving_started = Some(at.0);
                }
            }
            TransferEvent::StageRequested { request } => {
                self.staged = Some((text(request.as_str()), at.0));
                self.staging_finished = None;
            }
            TransferEvent::Staged { .. }
            | TransferEvent::StageFailed { .. }
            | TransferEvent::Replaced { .. } => {
                self.staging_finished = Some(at.0);
            }
            TransferEvent::Archived { .. } | TransferEvent::ArchiveFailed { .. } => {
                self.archiving_finished = Some(at.0);
            }
            TransferEvent::AttemptFailed { .. }
            | TransferEvent::AttemptLost { .. }
            | TransferEvent::Chosen { .. }
            | TransferEvent::NotNeeded
            | TransferEvent::Expired { .. }
            | TransferEvent::Refused { .. }
            | TransferEvent::Canceled { .. } => {}
        }
        self.finished = state.is_terminal().then_some(at.0);
        self.state = Some(state.clone());
    }

    fn is_of_tape(&self) -> bool {
        self.staged.is_some()
            || self.staging_finished.is_some()
            || self.archiving_started.is_some()
            || self.archiving_finished.is_some()
    }
}

#[derive(Debug, Default)]
pub(super) struct TransferChanges {
    pub(super) id: Vec<i64>,
    pub(super) state_name: Vec<&'static str>,
    pub(super) state: Vec<String>,
    pub(super) size: Vec<Option<i64>>,
    pub(super) started: Vec<Option<i64>>,
    pub(super) finished: Vec<Option<i64>>,
    /// Those at which tape systems were; there are few.
    pub(super) of_tape: Vec<(i64, Change)>,
}

impl TransferChanges {
    fn of(changes: BTreeMap<TransferId, Change>) -> Result<TransferChanges, Unstorable> {
        let mut changed = TransferChanges::default();
        for (transfer, change) in changes {
            let Some(state) = &change.state else {
                continue;
            };
            let id = to_sql(transfer.0);
            changed.id.push(id);
            changed.state_name.push(state.fts_name());
            changed.state.push(json(state)?);
            changed.size.push(change.size);
            changed.started.push(change.started);
            changed.finished.push(change.finished);
            if change.is_of_tape() {
                changed.of_tape.push((id, change));
            }
        }
        Ok(changed)
    }
}

#[derive(Debug, Default)]
pub(super) struct Tokens {
    pub(super) id: Vec<String>,
    pub(super) sealed: Vec<Vec<u8>>,
    pub(super) use_job: Vec<Uuid>,
    pub(super) use_id: Vec<String>,
    pub(super) renewals: Vec<JobToken>,
    seen: HashSet<CredentialId>,
}

#[derive(Debug)]
pub(super) struct TokenRenewal {
    pub(super) id: String,
    pub(super) refresh: Vec<u8>,
    pub(super) access: Option<(Vec<u8>, i64)>,
}

#[derive(Debug, Default)]
pub(super) struct EndedJobs {
    pub(super) job: Vec<Uuid>,
    pub(super) at: Vec<i64>,
    pub(super) state: Vec<&'static str>,
}

#[derive(Debug, Default)]
pub(super) struct Minutes {
    pub(super) at: Vec<i64>,
    pub(super) until: Vec<i64>,
    pub(super) packed: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) at: Vec<i64>,
    pub(super) source: Vec<String>,
    pub(super) destination: Vec<String>,
    pub(super) moved: Vec<i64>,
    pub(super) active: Vec<i32>,
    pub(super) limit: Vec<i32>,
    pub(super) queued: Vec<i64>,
}

impl Batch {
    pub(super) fn of(records: &[Record], keys: &SealingKeys) -> Result<Batch, Unstorable> {
        let mut batch = Batch::default();
        let mut changes = BTreeMap::new();
        for record in records {
            batch.take(record, keys, &mut changes)?;
        }
        batch.changed = TransferChanges::of(changes)?;
        Ok(batch)
    }

    fn take(
        &mut self,
        record: &Record,
        keys: &SealingKeys,
        changes: &mut BTreeMap<TransferId, Change>,
    ) -> Result<(), Unstorable> {
        match record {
            Record::JobAccepted { job, tokens } => {
                self.accept(job)?;
                self.tokens.bring(job.id, tokens, keys)?;
            }
            Record::Happened {
                at,
                monotonic_us,
                job,
                transfer,
                event,
                state,
            } => {
                self.ledger.at.push(at.0);
                self.ledger.monotonic.push(*monotonic_us as i64);
                self.ledger.job.push(job.0);
                self.ledger.transfer.push(to_sql(transfer.0));
                self.ledger.event.push(json(event)?);
                let change = changes.entry(*transfer).or_default();
                change.take(*at, event, state);
            }
            Record::JobEnded { job, at, state } => self.ended.push(*job, *at, *state),
            Record::TokenRenewed { id, renewed } => {
                self.renewed.push(TokenRenewal::of(id, renewed, keys)?);
            }
            Record::Reprioritised { job, priority } => {
                self.priorities.insert(*job, *priority);
            }
            Record::Configured(change) => self.settings.push(SettingChange::clone(change)),
            Record::Banned(change) => self.bans.push(BanChange::clone(change)),
            Record::LinkChanged(change) => self.links.push(LinkChange::clone(change)),
            Record::Tuned(decision) => self.tunings.push(TuningDecision::clone(decision)),
            Record::TidyingOwed(tidying) => self.owe(tidying)?,
            Record::TidiedUp { transfer } => {
                self.tidyings.remove(transfer);
                self.tidied.push(*transfer);
            }
            Record::Sampled(sample) => self.samples.push(sample),
            Record::MinuteSampled(minute) => self.minutes.push(minute),
        }
        Ok(())
    }

    fn owe(&mut self, tidying: &Tidying) -> Result<(), Unstorable> {
        let transfer = tidying.request.id;
        for id in tidying.request.destination_secrets() {
            self.tokens.use_job.push(tidying_user(transfer));
            self.tokens.use_id.push(text(id.as_str()));
        }
        self.tidyings.insert(transfer, json(tidying)?);
        Ok(())
    }

    fn accept(&mut self, job: &Job) -> Result<(), Unstorable> {
        let first = job.transfers.first();
        let last = match job.parameters.kind {
            JobKind::Hops => job.transfers.last(),
            JobKind::Independent | JobKind::Session | JobKind::Replicas(_) => first,
        };
        let storage =
            |storage: Option<StorageId>| storage.map_or(String::new(), |it| text(it.as_str()));
        let jobs = &mut self.jobs;
        jobs.id.push(job.id.0);
        jobs.user.push(text(job.user.as_str()));
        jobs.vo.push(text(job.vo.as_str()));
        jobs.delegation.push(text(job.delegation.as_str()));
        jobs.submitted.push(job.submitted_at.0);
        jobs.priority.push(job.parameters.priority.get().into());
        jobs.parameters.push(json(&job.parameters)?);
        jobs.source
            .push(storage(first.map(|first| first.source.storage())));
        jobs.destination
            .push(storage(last.map(|last| last.destination.storage())));
        let state = job.parameters.first_state(job.submitted_at);
        let (name, state) = (state.fts_name(), json(&state)?);
        for request in &job.transfers {
            self.transfers.id.push(to_sql(request.id.0));
            self.transfers.job.push(job.id.0);
            self.transfers.request.push(json(request)?);
            self.transfers.state_name.push(name);
            self.transfers.state.push(state.clone());
        }
        Ok(())
    }
}

impl Tokens {
    fn bring(
        &mut self,
        job: JobId,
        tokens: &[JobToken],
        keys: &SealingKeys,
    ) -> Result<(), Unstorable> {
        for token in tokens {
            self.use_job.push(job.0);
            self.use_id.push(text(token.id.as_str()));
            if !self.seen.insert(token.id.clone()) {
                continue;
            }
            let sealed = keys.seal(SecretKind::Token, token.id.as_str(), token.text.as_bytes())?;
            self.id.push(text(token.id.as_str()));
            self.sealed.push(sealed);
            if token.renewal.is_some() {
                self.renewals.push(token.clone());
            }
        }
        Ok(())
    }
}

impl TokenRenewal {
    fn of(
        id: &CredentialId,
        renewed: &RenewedToken,
        keys: &SealingKeys,
    ) -> Result<TokenRenewal, Unstorable> {
        let seal = |kind, secret: &str| keys.seal(kind, id.as_str(), secret.as_bytes());
        let access = match &renewed.access {
            Some((token, renew_at)) => Some((seal(SecretKind::Token, token)?, renew_at.0)),
            None => None,
        };
        Ok(TokenRenewal {
            id: text(id.as_str()),
            refresh: seal(SecretKind::RefreshToken, &renewed.refresh)?,
            access,
        })
    }
}

impl EndedJobs {
    fn push(&mut self, job: JobId, at: Timestamp, state: JobState) {
        self.job.push(job.0);
        self.at.push(at.0);
        self.state.push(state.name());
    }
}

impl Samples {
    fn push(&mut self, sample: &LinkSample) {
        self.at.push(sample.at.0);
        self.source.push(text(sample.link.source.as_str()));
        self.destination
            .push(text(sample.link.destination.as_str()));
        self.moved.push(to_sql(sample.moved.0));
        self.active.push(sample.active.0 as i32);
        self.limit.push(sample.limit.0 as i32);
        self.queued.push(sample.queued as i64);
    }
}

impl Minutes {
    fn push(&mut self, minute: &MinuteSamples) {
        self.at.push(minute.from.0);
        self.until.push(minute.to.0);
        self.packed.push(minute.packed());
    }
}

/// How a ban's target is written down. No VO has an empty name.
pub(super) fn ban_key(target: &BanTarget) -> (&'static str, String, String) {
    match target {
        BanTarget::Storage { host, vo } => {
            let vo = vo.as_ref().map_or(String::new(), |vo| text(vo.as_str()));
            ("storage", text(host), vo)
        }
        BanTarget::User(user) => ("user", text(user.as_str()), String::new()),
    }
}
