//! Who submits: jobs of each load, at times that chance gives.

use super::agenda::Next;
use super::{Broken, World};
use crate::field::swing;
use crate::plan::Load;
use penstock_model::{
    Activity, Bytes, ChecksumAlgorithm, CredentialId, FileUrl, Job, JobId, JobKind, JobParameters,
    Priority, TransferState, UserName, VoName,
};
use penstock_transfer_service::engine::Input;
use penstock_transfer_service::submission::{NewJob, NewTransfer};
use uuid::Uuid;

/// How far a load is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Submitting {
    /// Files that were not submitted yet.
    pub(super) left: u64,
    /// Jobs so far.
    jobs: u64,
    /// Seconds between two jobs, on average.
    pause: f64,
}

impl Submitting {
    pub(super) fn new(load: &Load) -> Submitting {
        let jobs = load.files.div_ceil(load.job).max(1);
        Submitting {
            left: load.files,
            jobs: 0,
            pause: load.over / jobs as f64,
        }
    }
}

impl World<'_> {
    pub(super) fn submit(&mut self, at: usize) -> Result<(), Broken> {
        if !self.service.is_there() {
            // Clients try again.
            self.agenda.add(self.now + 1.0, Next::Submit(at));
            return Ok(());
        }
        let load = &self.plan.loads[at];
        let submitting = &mut self.submitting[at];
        let files = submitting.left.min(load.job);
        submitting.left -= files;
        let number = submitting.jobs;
        submitting.jobs += 1;
        if submitting.left > 0 {
            let mean = submitting.pause / swing(load.daily, self.now).max(0.05);
            let pause = self.random.exponential(mean);
            self.agenda.add(self.now + pause, Next::Submit(at));
        }
        let job = self.job(load, number, files);
        let reply = self.service.next_reply();
        self.feed(Input::Submit {
            job: Box::new(job),
            reply,
        })
    }

    fn job(&mut self, load: &Load, number: u64, files: u64) -> NewJob {
        let (from, to) = load.pairs[(number % load.pairs.len() as u64) as usize];
        let id = self.service.next_job();
        let url = |storage: usize, file: u64| {
            let host = &self.plan.storages[storage].name;
            FileUrl::parse(&format!("https://{host}/{id:x}/{file}"))
                .expect("made of checked names and numbers")
        };
        let activity = Activity::new(load.activity.as_str());
        let random = &mut self.random;
        let transfers = (0..files).map(|file| NewTransfer {
            source: url(from, file),
            destination: url(to, file),
            size: Some(Bytes(random.log_normal(load.size, load.spread) as u64)),
            checksum: None,
            checksum_algorithm: ChecksumAlgorithm::Adler32,
            activity: activity.clone(),
            scitag: None,
            metadata: serde_json::Value::Null,
            source_credential: None,
            destination_credential: None,
            tape: None,
        });
        let user = number % u64::from(load.users);
        NewJob {
            id: JobId(Uuid::from_u128(id)),
            user: UserName::new(format!("{}-{user}", load.vo)),
            vo: VoName::new(load.vo.as_str()),
            delegation: CredentialId::new("simulated"),
            parameters: JobParameters {
                kind: JobKind::Independent,
                priority: Priority::clamped(load.priority),
                ..JobParameters::default()
            },
            transfers: transfers.collect(),
            tokens: Vec::new(),
        }
    }

    /// A job is recorded as accepted: its transfers are open from now on.
    pub(super) fn accepted(&mut self, job: &Job) -> Result<(), Broken> {
        if !self.books.jobs.insert(job.id) {
            return self.broken(format!("job {} was accepted twice", job.id));
        }
        let vo = self.vo_at(job.vo.as_str());
        let state = job.parameters.first_state(job.submitted_at);
        for request in &job.transfers {
            let ends = (request.source.host(), request.destination.host());
            let (Some(&from), Some(&to)) = (self.numbers.get(ends.0), self.numbers.get(ends.1))
            else {
                return self.broken(format!("transfer {} goes from {ends:?}", request.id));
            };
            let open = crate::books::Open {
                state: TransferState::clone(&state),
                link: self.link_at((from, to)),
                vo,
                bytes: request.size.map_or(0.0, |size| size.0 as f64),
                submitted: self.now,
                has_started: false,
            };
            self.measure.opened(vo);
            if self.books.open.insert(request.id, open).is_some() {
                return self.broken(format!("transfer {} was accepted twice", request.id));
            }
        }
        Ok(())
    }
}
