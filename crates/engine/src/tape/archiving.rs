//! Copies that have arrived and have to be on tape before their transfer has ended. They hold no slot, and nobody else
//! waits for their destination.

use super::{Due, FilesAtPlace, TapeCallSubject, TapeFile, is_hopeless};
use crate::{Effects, Engine, Now, TapeErrand, TapeOutcome, TapePlace};
use penstock_decide::staging::{BatchProgress, next_call, next_look};
use penstock_model::{
    Concern, Errno, Failure, Locality, Phase, ProblemCode, Retry, Side, TapeWait, Timestamp,
    ToldPlace, TransferEvent, TransferId,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Times in a row that a tape system may say something else than a place before that is believed.
const ODD_ANSWERS_MAX: u32 = 3;

/// Copies at one place that wait to be on tape.
#[derive(Debug, Default)]
pub(super) struct ArchiveGroup {
    files: BTreeMap<TransferId, ArchivedCopy>,
    /// When each is looked for.
    due: BTreeSet<(Timestamp, TransferId)>,
    /// Calls in a row that failed.
    failures: u32,
    last: Option<Failure>,
    is_asking: bool,
}

#[derive(Debug)]
struct ArchivedCopy {
    path: Arc<str>,
    since: Timestamp,
    look_at: Timestamp,
    odd_answers: u32,
}

impl ArchiveGroup {
    fn look_at(&mut self, transfer: TransferId, at: Timestamp) {
        if let Some(file) = self.files.get_mut(&transfer) {
            self.due.remove(&(file.look_at, transfer));
            file.look_at = at;
            self.due.insert((at, transfer));
        }
    }
}

impl Engine {
    /// A copy waits to be on tape from now on.
    pub(super) fn begin_archiving(&mut self, now: Now, transfer: TransferId, since: Timestamp) {
        self.tape.archiving += 1;
        let entry = &self.transfers[&transfer];
        let seconds = self.jobs[&entry.job].parameters().archive_seconds;
        let deadline = since + Duration::from_secs(seconds.unwrap_or_default());
        self.tape.agenda.set(Due::Deadline(transfer), deadline);
        let place = self.tape_place(transfer, Side::Destination);
        let request = self.request(transfer);
        let path = request.and_then(|request| TapePlace::path(&request, Side::Destination));
        let (Some(place), Some(path)) = (place, path) else {
            return;
        };
        let look_at = next_look(&one(transfer, since), &self.config.tape, now.at).min(deadline);
        let archive = self.tape.archives.entry(place.clone()).or_default();
        let copied = ArchivedCopy {
            path,
            since,
            look_at,
            odd_answers: 0,
        };
        archive.files.insert(transfer, copied);
        archive.due.insert((look_at, transfer));
        self.tape.agenda.set_by(Due::Locate(place), look_at);
    }

    pub(super) fn stop_archiving(&mut self, transfer: TransferId) {
        self.tape.archiving = self.tape.archiving.saturating_sub(1);
        self.stop_removing_source(transfer);
        self.stop_looking(transfer);
    }

    /// It is known where the copy is, or nobody wants to know any more.
    pub(super) fn stop_looking(&mut self, transfer: TransferId) {
        self.tape.agenda.drop(&Due::Deadline(transfer));
        let Some(place) = self.tape_place(transfer, Side::Destination) else {
            return;
        };
        let Some(archive) = self.tape.archives.get_mut(&place) else {
            return;
        };
        if let Some(file) = archive.files.remove(&transfer) {
            archive.due.remove(&(file.look_at, transfer));
        }
        if archive.files.is_empty() {
            self.tape.archives.remove(&place);
            self.tape.agenda.drop(&Due::Locate(place));
        }
    }

    /// Asks where those copies are whose time has come, and those whose time comes soon.
    pub(super) fn locate(&mut self, now: Now, place: &Arc<TapePlace>, effects: &mut Effects) {
        let policy = &self.config.tape;
        let soon = now.at + policy.poll_min;
        let Some(archive) = self.tape.archives.get(place) else {
            return;
        };
        if archive.is_asking {
            return;
        }
        let due = archive.due.iter().take_while(|(at, _)| *at <= soon);
        let files: Vec<TapeFile> = due
            .take(self.bulk_files_max(place))
            .map(|(_, transfer)| TapeFile {
                transfer: *transfer,
                path: archive.files[transfer].path.clone(),
            })
            .collect();
        if files.is_empty() {
            return self.locate_next(place, None);
        }
        let paths: BTreeSet<&Arc<str>> = files.iter().map(|file| &file.path).collect();
        let errand = TapeErrand::Locate(paths.iter().map(|path| path.to_string()).collect());
        let about = TapeCallSubject::Locating(FilesAtPlace {
            place: place.clone(),
            files,
        });
        let calls_max = policy.calls_max;
        if self.tape.call(place, errand, about, calls_max, effects)
            && let Some(archive) = self.tape.archives.get_mut(place)
        {
            archive.is_asking = true;
        }
    }

    /// The next call to a place: not before a time, if one is given.
    fn locate_next(&mut self, place: &Arc<TapePlace>, not_before: Option<Timestamp>) {
        let archive = self.tape.archives.get(place);
        let first = archive.and_then(|archive| archive.due.first());
        if let Some((at, _)) = first {
            let at = not_before.map_or(*at, |earliest| earliest.max(*at));
            self.tape.agenda.set(Due::Locate(place.clone()), at);
        }
    }

    /// A tape system has told where copies are, or has not.
    pub(super) fn located(
        &mut self,
        now: Now,
        asked: &FilesAtPlace,
        outcome: TapeOutcome,
        effects: &mut Effects,
    ) {
        let place = &asked.place;
        let Some(archive) = self.tape.archives.get_mut(place) else {
            return;
        };
        archive.is_asking = false;
        match outcome {
            TapeOutcome::Places(told) => {
                archive.failures = 0;
                archive.last = None;
                self.take_places(now, asked, told, effects);
                self.locate_next(place, None);
            }
            TapeOutcome::Failed { failure, .. } => {
                archive.failures += 1;
                archive.last = Some(failure.clone());
                let failures = archive.failures;
                if is_hopeless(&failure, failures) {
                    for TapeFile { transfer, .. } in &asked.files {
                        self.archive_failed(now, *transfer, failure.clone(), effects);
                    }
                }
                let at = next_call(failures, self.tape.number_next, &self.config.tape, now.at);
                self.locate_next(place, Some(at));
            }
            TapeOutcome::Accepted(_) | TapeOutcome::Progress(_) | TapeOutcome::Done => {}
        }
    }

    fn take_places(
        &mut self,
        now: Now,
        asked: &FilesAtPlace,
        told: Vec<(String, ToldPlace)>,
        effects: &mut Effects,
    ) {
        let FilesAtPlace { place, files } = asked;
        let told: HashMap<String, ToldPlace> = told.into_iter().collect();
        for TapeFile { transfer, path } in files {
            let verdict = match told.get(&**path) {
                Some(Ok(found)) => judged(*found),
                Some(Err(why)) => Verdict::Odd(why.clone()),
                None => Verdict::Odd("the tape system does not report it".to_owned()),
            };
            match verdict {
                Verdict::OnTape => {
                    self.is_on_tape(now, *transfer, effects);
                }
                Verdict::Never(failure) => self.archive_failed(now, *transfer, failure, effects),
                Verdict::NotYet => self.look_again(now, place, *transfer),
                Verdict::Odd(why) => self.odd_answer(now, place, *transfer, why, effects),
            }
        }
    }

    fn look_again(&mut self, now: Now, place: &Arc<TapePlace>, transfer: TransferId) {
        let policy = &self.config.tape;
        if let Some(archive) = self.tape.archives.get_mut(place)
            && let Some(file) = archive.files.get_mut(&transfer)
        {
            file.odd_answers = 0;
            let at = next_look(&one(transfer, file.since), policy, now.at);
            archive.look_at(transfer, at);
        }
    }

    /// What has just been written may not be known everywhere at once.
    fn odd_answer(
        &mut self,
        now: Now,
        place: &Arc<TapePlace>,
        transfer: TransferId,
        why: String,
        effects: &mut Effects,
    ) {
        let policy = &self.config.tape;
        let Some(archive) = self.tape.archives.get_mut(place) else {
            return;
        };
        let Some(file) = archive.files.get_mut(&transfer) else {
            return;
        };
        file.odd_answers += 1;
        if file.odd_answers >= ODD_ANSWERS_MAX {
            let failure = of_archiving(Errno::EIO, why);
            return self.archive_failed(now, transfer, failure, effects);
        }
        let at = next_look(&one(transfer, file.since), policy, now.at);
        archive.look_at(transfer, at);
    }

    fn archive_failed(
        &mut self,
        now: Now,
        transfer: TransferId,
        failure: Failure,
        effects: &mut Effects,
    ) {
        let failure = Failure {
            phase: Phase::Archiving,
            retry: Retry::Never,
            ..failure
        };
        let event = TransferEvent::ArchiveFailed { failure };
        self.apply(now, transfer, event, effects);
    }

    pub(super) fn why_archiving(&self, transfer: TransferId, since: Timestamp) -> Option<TapeWait> {
        if let Some(failures) = self.tape.removals.get(&transfer) {
            let source = self.tape_place(transfer, Side::Source)?;
            return Some(TapeWait::RemovingSource {
                storage: source.storage.clone(),
                failures: *failures,
            });
        }
        let place = self.tape_place(transfer, Side::Destination)?;
        let archive = self.tape.archives.get(&place);
        let until = self.tape.agenda.at(&Due::Deadline(transfer));
        let due = self.tape.agenda.at(&Due::Locate(place.clone()));
        let storage = place.storage.clone();
        Some(
            match archive.and_then(|archive| archive.last.clone().zip(due)) {
                Some((last, until)) => TapeWait::Failing {
                    storage,
                    until,
                    failures: archive.map_or(0, |archive| archive.failures),
                    last,
                },
                None => TapeWait::Archiving {
                    storage,
                    since,
                    until: until.unwrap_or(since),
                    look_at: archive
                        .and_then(|archive| archive.files.get(&transfer))
                        .map_or(since, |file| file.look_at),
                },
            },
        )
    }
}

/// What the place of a copy means for its transfer.
enum Verdict {
    OnTape,
    NotYet,
    Never(Failure),
    /// It may be a mistake.
    Odd(String),
}

/// Errors as gfal2 gives them for each place.
fn judged(found: Locality) -> Verdict {
    match found {
        Locality::Tape | Locality::DiskAndTape => Verdict::OnTape,
        Locality::Disk | Locality::Unavailable => Verdict::NotYet,
        Locality::Lost => {
            let detail = "the tape system says that the file is lost".to_owned();
            Verdict::Never(Failure {
                code: Some(ProblemCode::FileLost),
                ..of_archiving(Errno::ENOENT, detail)
            })
        }
        Locality::None => {
            let detail = "the file has no bytes, and the tape system keeps none such".to_owned();
            Verdict::Never(Failure {
                code: Some(ProblemCode::TapeFailed),
                ..of_archiving(Errno::EPERM, detail)
            })
        }
    }
}

fn one(transfer: TransferId, since: Timestamp) -> BatchProgress {
    BatchProgress {
        seed: transfer.0,
        since,
        files: 1,
        done: 0,
    }
}

fn of_archiving(errno: Errno, detail: String) -> Failure {
    Failure {
        side: Side::Destination,
        retry: Retry::Never,
        concern: Concern::StorageElement,
        phase: Phase::Archiving,
        errno,
        detail,
        found: None,
        busy: None,
        code: None,
    }
}

/// FTS's words.
pub(super) fn took_too_long() -> Failure {
    of_archiving(
        Errno::ETIMEDOUT,
        "archive timeout has been exceeded".to_owned(),
    )
}
