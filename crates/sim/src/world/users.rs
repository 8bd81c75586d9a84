//! Who submits: jobs of each load, at times that chance gives.

use super::agenda::Next;
use super::{BrokenInvariant, World};
use crate::field::swing;
use crate::plan::{Hopeless, Load, limits};
use penstock_engine::Input;
use penstock_engine::checked_submission::{NewJob, NewTransfer};
use penstock_engine::command::Submit;
use penstock_model::{
    Activity, Bytes, ChecksumAlgorithm, CredentialId, FileUrl, Job, JobId, JobKind, JobParameters,
    Overwrite, Priority, Selection, TransferId, TransferState, UserName, VoName,
};
use std::time::Duration;
use uuid::Uuid;

/// How far a load is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LoadProgress {
    /// Files that were not submitted yet.
    pub(super) left: u64,
    /// Jobs so far.
    jobs: u64,
    /// Seconds between two jobs, on average.
    pause: f64,
    /// How often jobs come, and how large files are, of what the plan says.
    pub(super) pace: f64,
    pub(super) size_factor: f64,
}

impl LoadProgress {
    pub(super) fn new(load: &Load) -> LoadProgress {
        let jobs = load.files.div_ceil(load.job).max(1);
        LoadProgress {
            left: load.files,
            jobs: 0,
            pause: load.over / jobs as f64,
            pace: 1.0,
            size_factor: 1.0,
        }
    }
}

impl World<'_> {
    pub(super) fn submit(&mut self, at: usize) -> Result<(), BrokenInvariant> {
        if !self.service.is_there() {
            // Clients try again.
            self.agenda.add(self.now + 1.0, Next::Submit(at));
            return Ok(());
        }
        let load = &self.plan.loads[at];
        let submitting = &self.submitting[at];
        let (number, pace, size_factor) =
            (submitting.jobs, submitting.pace, submitting.size_factor);
        if pace <= 0.0 {
            return Ok(());
        }
        let files = submitting.left.min(load.job);
        let job = match size_factor == 1.0 {
            true => self.job(load, number, files),
            false => self.job(
                &resized(load, size_factor),
                number,
                resized_files(files, size_factor),
            ),
        };
        let accepted = self.books.jobs_accepted;
        let reply = self.service.next_reply();
        self.feed(Input::of_request(Submit(Box::new(job)), reply))?;
        if !self.service.is_there() && self.books.jobs_accepted == accepted {
            // Nobody has heard it.
            self.agenda.add(self.now + 1.0, Next::Submit(at));
            return Ok(());
        }
        let submitting = &mut self.submitting[at];
        submitting.left -= files;
        submitting.jobs += 1;
        if submitting.left > 0 {
            let mean = submitting.pause / swing(load.daily, self.now).max(0.05) / pace;
            let pause = self.random.exponential(mean);
            self.agenda.add(self.now + pause, Next::Submit(at));
        }
        Ok(())
    }

    fn job(&mut self, load: &Load, number: u64, files: u64) -> NewJob {
        let (from, to) = load.pairs[(number % load.pairs.len() as u64) as usize];
        let id = self.service.next_job();
        let malice = &self.plan.malice;
        let kind = match (
            self.random.happens(malice.replicas),
            self.random.happens(malice.hops),
        ) {
            (true, _) => JobKind::Replicas(Selection::Orderly),
            (false, true) => JobKind::Hops,
            (false, false) => JobKind::Independent,
        };
        let transfers = match kind {
            JobKind::Independent | JobKind::Session => self.files(load, id, (from, to), files),
            JobKind::Replicas(_) => self.replicas(load, id, to),
            JobKind::Hops => self.hops(load, id, (from, to)),
        };
        let overwrites = self.random.happens(malice.overwrites);
        let wait = Duration::from_secs_f64(malice.queue_seconds_max);
        let user = number % u64::from(load.users);
        NewJob {
            id: JobId(Uuid::from_u128(id)),
            user: UserName::new(format!("{}-{user}", load.vo)),
            vo: VoName::new(load.vo.as_str()),
            delegation: CredentialId::new("simulated"),
            parameters: JobParameters {
                kind,
                priority: Priority::clamped(load.priority),
                overwrite: if overwrites {
                    Overwrite::Always
                } else {
                    Overwrite::Never
                },
                expires_at: (!wait.is_zero()).then(|| self.clock().at + wait),
                ..JobParameters::default()
            },
            transfers,
            tokens: Vec::new(),
        }
    }

    fn url(&self, storage: usize, path: &str) -> FileUrl {
        let host = &self.plan.storages[storage].name;
        FileUrl::parse(&format!("https://{host}/{path}"))
            .expect("made of checked names and numbers")
    }

    fn files(
        &mut self,
        load: &Load,
        id: u128,
        (from, to): (usize, usize),
        files: u64,
    ) -> Vec<NewTransfer> {
        let activity = Activity::new(load.activity.as_str());
        let each = (0..files).map(|file| {
            let directory = load.hopeless.map_or("", Hopeless::directory);
            let path = format!("{directory}{id:x}/{file}");
            let bytes = self.random.log_normal(load.size, load.spread);
            let destination = self.place(to, &path);
            transfer(self.url(from, &path), destination, bytes, &activity)
        });
        each.collect()
    }

    /// Somewhere new, or where another one goes.
    fn place(&mut self, storage: usize, path: &str) -> FileUrl {
        if self.random.happens(self.plan.malice.same_destination)
            && let Some(watch) = &self.watch
        {
            let at = format!("https://{}/", self.plan.storages[storage].name);
            let known = watch.destinations.values();
            let mut there: Vec<&String> = known
                .filter(|url| url.starts_with(&at) && !url.contains("/hop/"))
                .collect();
            there.sort_unstable();
            if !there.is_empty() {
                let one = there[self.random.below(there.len())];
                return FileUrl::parse(one).expect("it was a URL before");
            }
        }
        self.url(storage, path)
    }

    /// One file, from all storages but one.
    fn replicas(&mut self, load: &Load, id: u128, to: usize) -> Vec<NewTransfer> {
        let activity = Activity::new(load.activity.as_str());
        let bytes = self.random.log_normal(load.size, load.spread);
        let destination = self.place(to, &format!("{id:x}/0"));
        let sources = (0..self.plan.storages.len()).filter(|storage| *storage != to);
        let each = sources.map(|from| {
            let source = self.url(from, &format!("{id:x}/0"));
            transfer(source, destination.clone(), bytes, &activity)
        });
        each.collect()
    }

    /// One file, over a third storage.
    fn hops(&mut self, load: &Load, id: u128, (from, to): (usize, usize)) -> Vec<NewTransfer> {
        let activity = Activity::new(load.activity.as_str());
        let bytes = self.random.log_normal(load.size, load.spread);
        let over = (0..self.plan.storages.len()).find(|storage| *storage != from && *storage != to);
        let (first, last) = (format!("{id:x}/0"), format!("hop/{id:x}/0"));
        match over {
            None => vec![transfer(
                self.url(from, &first),
                self.url(to, &first),
                bytes,
                &activity,
            )],
            Some(over) => {
                let stop = self.url(over, &last);
                vec![
                    transfer(self.url(from, &first), stop.clone(), bytes, &activity),
                    transfer(stop, self.url(to, &first), bytes, &activity),
                ]
            }
        }
    }

    /// A job is recorded as accepted: its transfers are open from now on.
    pub(super) fn accepted(&mut self, job: &Job) -> Result<(), BrokenInvariant> {
        let first = job
            .transfers
            .first()
            .map_or(TransferId(0), |request| request.id);
        let numbers = (first, job.transfers.len() as u64);
        self.books.jobs_accepted += 1;
        if self.books.jobs.insert(job.id, numbers).is_some() {
            return self.broken(format!("job {} was accepted twice", job.id));
        }
        if let Some(lines) = &mut self.lines {
            lines.accept(job);
        }
        let vo = self.vo_at(job.vo.as_str());
        let state = job.parameters.first_state(job.submitted_at);
        for request in &job.transfers {
            let ends = (request.source.host(), request.destination.host());
            let (Some(&from), Some(&to)) = (self.numbers.get(ends.0), self.numbers.get(ends.1))
            else {
                return self.broken(format!("transfer {} goes from {ends:?}", request.id));
            };
            let open = crate::books::OpenTransfer {
                state: TransferState::clone(&state),
                link: self.link_at((from, to)),
                vo,
                bytes: request.size.map_or(0.0, |size| size.0 as f64),
                submitted: self.now,
                has_started: false,
            };
            self.measure.opened(open.link, vo, self.now);
            if let Some(watch) = &mut self.watch {
                let place = request.destination.as_str().to_owned();
                watch.destinations.insert(request.id, place);
            }
            if self.books.open.insert(request.id, open).is_some() {
                return self.broken(format!("transfer {} was accepted twice", request.id));
            }
        }
        Ok(())
    }
}

fn resized(load: &Load, factor: f64) -> Load {
    Load {
        size: load.size * factor,
        ..load.clone()
    }
}

/// Files of another size that have the same bytes.
fn resized_files(files: u64, factor: f64) -> u64 {
    let files = (files as f64 / factor.max(1e-6)).round();
    (files as u64).clamp(1, limits::JOB)
}

fn transfer(source: FileUrl, destination: FileUrl, bytes: f64, activity: &Activity) -> NewTransfer {
    NewTransfer {
        source,
        destination,
        size: Some(Bytes(bytes as u64)),
        checksum: None,
        checksum_algorithm: ChecksumAlgorithm::Adler32,
        activity: activity.clone(),
        scitag: None,
        metadata: Default::default(),
        source_credential: None,
        destination_credential: None,
        source_query: None,
        destination_query: None,
        tape: None,
    }
}
