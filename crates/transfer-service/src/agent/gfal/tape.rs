//! Calls of tape systems that gfal2 reaches: SRM, and whatever else has a plug-in that can bring files to disk.
//!
//! Each call has a process of its own, as attempts have. Files are known by their URLs here, and a stage request by the
//! token that the storage element gave to the library.

use super::attempt::{NOT_DONE, failure_of, whole_seconds};
use super::port_of;
use super::process::{Process, Trouble};
use crate::agent::AgentSetup;
use crate::agent::http::observe;
use crate::agent::tape::TapeCallError;
use crate::tokens::token_failure;
use penstock_clock::wall_clock;
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_engine::{TapeErrand, TapeOutcome, TapePlace};
use penstock_model::tape::GFAL_FILES_MAX;
use penstock_model::tape::STAGING_SECONDS_DEFAULT;
use penstock_model::tape::StageFile;
use penstock_model::{
    Errno, Failure, FileProgress, FileUrl, Locality, Phase, Retry, Side, StageRequestId, ToldPlace,
};
use penstock_protocol::gfal::wire::FileState;
use penstock_protocol::gfal::{GfalError, Order, OrderResult, Setup};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// The library's time limit is shorter than that of its process by this much.
const EARLIER: Duration = Duration::from_secs(5);
/// Stands for the name of a request that has none: SRMs give none when they see nothing to do. How far such a request
/// is follows from where its files are.
const UNNAMED: &str = "-";
/// Errors of the way to a storage element, which say nothing of the files that are asked for.
const OF_THE_WAY: [Errno; 3] = [Errno::ECOMM, Errno::ETIMEDOUT, Errno::ECONNREFUSED];

impl AgentSetup {
    /// Asks a tape system by gfal2.
    pub(in crate::agent) async fn ask_gfal_tape(
        &self,
        place: &TapePlace,
        errand: &TapeErrand,
        side: Side,
        phase: Phase,
    ) -> Result<TapeOutcome, TapeCallError> {
        let query = self.query_of(place, errand, side, phase).await?;
        let mut session = self.tape_session(place, query, side, phase).await?;
        let outcome = session.carry_out(errand).await;
        session.process.end().await;
        outcome
    }

    /// The credentials that belong to the URLs of these files.
    async fn query_of(
        &self,
        place: &TapePlace,
        errand: &TapeErrand,
        side: Side,
        phase: Phase,
    ) -> Result<Option<Arc<str>>, TapeCallError> {
        let Some(id) = &place.query else {
            return Ok(None);
        };
        match (self.tokens.usable(id).await, errand) {
            (Ok(query), _) => Ok(Some(query)),
            // They may have ended with their job. A tape system may let go without them.
            (Err(_), TapeErrand::Cancel(..) | TapeErrand::Release(..)) => Ok(None),
            (
                Err(why),
                TapeErrand::Stage(_)
                | TapeErrand::Look(..)
                | TapeErrand::Locate(_)
                | TapeErrand::Find(_),
            ) => Err(token_failure(why, side, phase).into()),
        }
    }

    async fn tape_session<'p>(
        &self,
        place: &'p TapePlace,
        query: Option<Arc<str>>,
        side: Side,
        phase: Phase,
    ) -> Result<Session<'p>, TapeCallError> {
        let broken = |why| TapeCallError::from(failure_of(side, phase, Trouble::Died(why)));
        let Some(gfal) = &self.gfal else {
            return Err(broken("gfal2 is not used here".to_owned()));
        };
        let server = Url::parse(&place.server).map_err(|why| broken(why.to_string()))?;
        if let Some(port) = port_of(&server) {
            let host = server.host_str().unwrap_or_default();
            let allowed = self.client.may_reach(host, port).await;
            allowed.map_err(|why| classify(side, phase, &observe(&why), why.to_string()))?;
        }
        let limit = self.config.tape_timeout;
        let question_seconds = whole_seconds(limit.saturating_sub(EARLIER));
        let mut setup = Setup {
            question_seconds,
            checksum_seconds: question_seconds,
            ..Setup::default()
        };
        if let Some(id) = &place.proxy {
            let proxy = self.newest_proxy_text(id, wall_clock()).await;
            setup.proxy = Some(proxy.map_err(|why| Failure { phase, ..why })?);
        }
        let mut secrets = query.as_deref().map_or_else(Vec::new, credentials_in);
        if let Some(id) = &place.token
            && self.may_show_token_of(place)
        {
            let token = self.tokens.usable(id).await;
            let token = token.map_err(|trouble| token_failure(trouble, side, phase))?;
            secrets.push(token.to_string());
            setup
                .tokens
                .push((format!("{}/", place.server), token.to_string()));
        }
        let process = gfal.take().await.map_err(broken)?;
        process.serve(0, gfal.judge(&self.client), secrets);
        let mut session = Session {
            process,
            place,
            query,
            side,
            phase,
            limit,
        };
        match session.ask(&Order::Setup(Box::new(setup))).await {
            Ok(_) => Ok(session),
            Err(trouble) => {
                let failure = session.failure(trouble);
                session.process.kill().await;
                Err(failure.into())
            }
        }
    }
}

/// A process that speaks with one tape system.
struct Session<'p> {
    process: Process,
    place: &'p TapePlace,
    /// What belongs behind each URL.
    query: Option<Arc<str>>,
    side: Side,
    phase: Phase,
    limit: Duration,
}

impl Session<'_> {
    async fn carry_out(&mut self, errand: &TapeErrand) -> Result<TapeOutcome, TapeCallError> {
        match errand {
            TapeErrand::Stage(files) => self.stage(files).await.map(TapeOutcome::Accepted),
            TapeErrand::Look(id, _, urls) => self.look(id, urls).await.map(TapeOutcome::Progress),
            TapeErrand::Locate(urls) | TapeErrand::Find(urls) => {
                self.locate(urls).await.map(TapeOutcome::Places)
            }
            TapeErrand::Cancel(id, _) if id.as_str() == UNNAMED => Ok(TapeOutcome::Done),
            TapeErrand::Cancel(id, urls) => {
                let request = id.as_str().to_owned();
                let abort = |urls| Order::Abort {
                    urls,
                    request: request.clone(),
                };
                self.leave(urls, abort).await
            }
            TapeErrand::Release(id, urls) => {
                let request = match id.as_str() {
                    UNNAMED => String::new(),
                    request => request.to_owned(),
                };
                let release = |urls| Order::Release {
                    urls,
                    request: request.clone(),
                };
                self.leave(urls, release).await
            }
        }
    }

    async fn stage(&mut self, files: &[StageFile]) -> Result<StageRequestId, TapeCallError> {
        let pins = files.iter().filter_map(|file| file.pin_seconds);
        let pin = pins.max().unwrap_or(STAGING_SECONDS_DEFAULT);
        let within = files.iter().map(|file| file.within_seconds).max();
        let order = Order::BringOnline {
            urls: files.iter().map(|file| self.address(&file.path)).collect(),
            pin_seconds: seconds(pin),
            timeout_seconds: seconds(within.unwrap_or(STAGING_SECONDS_DEFAULT)),
        };
        let answer = match self.ask(&order).await {
            Ok(answer) => answer,
            Err(trouble) => {
                // A library that crashes may do so at one of these files, again and again.
                let status = matches!(trouble, Trouble::Died(_)).then_some(400);
                let failure = self.failure(trouble);
                return Err(TapeCallError { failure, status });
            }
        };
        // Those that failed beside others that did not will fail again when the request is looked at.
        if let Some(error) = all_failed(&answer.files) {
            let failure = self.said(error);
            // As an HTTP server that takes offence at one file of several: they are asked for in smaller requests.
            let is_of_files = !is_of_the_way(error) && !is_not_done(error);
            let status = is_of_files.then_some(400);
            return Err(TapeCallError { failure, status });
        }
        let request = answer.request.unwrap_or_default();
        match request.trim() {
            "" => Ok(StageRequestId::new(UNNAMED)),
            odd if odd.chars().any(char::is_control) => {
                let detail = format!("{odd:?} is not a name of a request");
                Err(classify(self.side, self.phase, &ObservedFailure::Malformed, detail).into())
            }
            named => Ok(StageRequestId::new(named)),
        }
    }

    async fn look(
        &mut self,
        id: &StageRequestId,
        urls: &[String],
    ) -> Result<Vec<(String, FileProgress)>, TapeCallError> {
        if id.as_str() == UNNAMED {
            let places = self.locate(urls).await?;
            let places = places.into_iter();
            return Ok(places
                .map(|(url, place)| (url, progress_by(place)))
                .collect());
        }
        let mut states = Vec::with_capacity(urls.len());
        for some in urls.chunks(GFAL_FILES_MAX) {
            let order = Order::PollOnline {
                urls: self.addresses(some),
                request: id.as_str().to_owned(),
            };
            states.extend(self.answer(&order).await?.files);
        }
        if let Some(error) = all_failed(&states) {
            let is_forgotten = error.message.contains("SRM_INVALID_REQUEST");
            if is_forgotten || is_of_the_way(error) || is_not_done(error) {
                let failure = self.said(error);
                let status = is_forgotten.then_some(404);
                return Err(TapeCallError { failure, status });
            }
        }
        let progress = |state| match state {
            FileState::Done => FileProgress::OnDisk,
            FileState::Pending => FileProgress::Pending,
            FileState::Failed(error) if is_of_the_way(&error) => FileProgress::Pending,
            FileState::Failed(error) => FileProgress::Refused(self.said(&error)),
        };
        let states = states.into_iter().map(progress);
        Ok(urls.iter().cloned().zip(states).collect())
    }

    /// Tells a tape system what is not needed any more. What it says of single files changes nothing.
    async fn leave(
        &mut self,
        urls: &[String],
        order: impl Fn(Vec<String>) -> Order,
    ) -> Result<TapeOutcome, TapeCallError> {
        for some in urls.chunks(GFAL_FILES_MAX) {
            let order = order(self.addresses(some));
            let answer = self.answer(&order).await?;
            match all_failed(&answer.files) {
                Some(error) if is_of_the_way(error) => return Err(self.said(error).into()),
                Some(error) => {
                    let (server, order) = (&*self.place.server, order.name());
                    tracing::debug!(server, order, why = %error, "a tape system does not do that");
                }
                None => {}
            }
        }
        Ok(TapeOutcome::Done)
    }

    async fn locate(&mut self, urls: &[String]) -> Result<Vec<(String, ToldPlace)>, TapeCallError> {
        let mut places = Vec::with_capacity(urls.len());
        for url in urls {
            let order = Order::Locality {
                url: self.address(url),
            };
            let told = match self.ask(&order).await {
                Ok(answer) => place_by(&answer.locality.unwrap_or_default()),
                Err(Trouble::Said(error)) if !is_of_the_way(&error) && !is_not_done(&error) => {
                    Err(error.message)
                }
                Err(trouble) => return Err(self.failure(trouble).into()),
            };
            places.push((url.clone(), told));
        }
        Ok(places)
    }

    /// A URL as it was submitted, with the credentials in it, which are kept apart.
    fn address(&self, url: &str) -> String {
        let whole = |query: &Arc<str>| FileUrl::parse(url).ok()?.with_query(query).ok();
        let whole = self.query.as_ref().and_then(whole);
        whole.map_or_else(|| url.to_owned(), String::from)
    }

    fn addresses(&self, urls: &[String]) -> Vec<String> {
        urls.iter().map(|url| self.address(url)).collect()
    }

    async fn answer(&mut self, order: &Order) -> Result<OrderResult, TapeCallError> {
        let answer = self.ask(order).await;
        answer.map_err(|trouble| self.failure(trouble).into())
    }

    async fn ask(&mut self, order: &Order) -> Result<OrderResult, Trouble> {
        self.process.carry_out(order, self.limit, |_| false).await
    }

    fn failure(&self, trouble: Trouble) -> Failure {
        match trouble {
            Trouble::Said(error) => self.said(&error),
            trouble => failure_of(self.side, self.phase, trouble),
        }
    }

    fn said(&self, error: &GfalError) -> Failure {
        let storage = &self.place.storage;
        let detail = match is_not_done(error) {
            true => format!(
                "{storage} has no tape that gfal2 can ask: {}",
                error.message
            ),
            false => format!("{} ({storage})", error.message),
        };
        let observed = ObservedFailure::Said(Errno(error.errno));
        let failure = classify(self.side, self.phase, &observed, detail);
        match is_not_done(error) {
            // Another replica may be somewhere that offers it.
            true => Failure {
                retry: Retry::ElsewhereOnly,
                ..failure
            },
            false => failure,
        }
    }
}

/// The credentials that a query of URLs holds.
fn credentials_in(query: &str) -> Vec<String> {
    // Whatever host it is of, a query is read the same way.
    let url = FileUrl::try_from(format!("root://host/file{query}"));
    url.map_or_else(|_| vec![query.to_owned()], |url| url.credentials())
}

/// The first error, when nothing but errors came.
fn all_failed(states: &[FileState]) -> Option<&GfalError> {
    let errors = states.iter().map(|state| match state {
        FileState::Failed(error) => Some(error),
        FileState::Done | FileState::Pending => None,
    });
    errors.collect::<Option<Vec<_>>>()?.first().copied()
}

/// SRMs that fail at a file are told from those that are not reached by their words alone.
fn is_of_the_way(error: &GfalError) -> bool {
    OF_THE_WAY.contains(&Errno(error.errno)) && !error.message.contains("SRM_FAILURE")
}

fn is_not_done(error: &GfalError) -> bool {
    NOT_DONE.contains(&Errno(error.errno))
}

/// The words of gfal2's `user.status`.
fn place_by(status: &str) -> ToldPlace {
    match status {
        "ONLINE" => Ok(Locality::Disk),
        "NEARLINE" => Ok(Locality::Tape),
        "ONLINE_AND_NEARLINE" => Ok(Locality::DiskAndTape),
        "LOST" => Ok(Locality::Lost),
        "NONE" => Ok(Locality::None),
        "UNAVAILABLE" | "UNKNOWN" => Ok(Locality::Unavailable),
        other => Err(format!("'{other}' is not a place of a file")),
    }
}

fn progress_by(place: ToldPlace) -> FileProgress {
    match place {
        Ok(place) if place.is_on_disk() => FileProgress::OnDisk,
        Ok(Locality::Lost) => FileProgress::Failed("the file is lost".to_owned()),
        Ok(_) => FileProgress::Pending,
        Err(why) => FileProgress::Failed(why),
    }
}

fn seconds(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_gfal2_for_places_are_those_of_tape_systems() {
        let check = |status: &str, expected: &str| {
            let found = place_by(status).map_or_else(|why| why, |place| place.name().to_owned());
            assert_eq!(found, expected);
        };
        check("ONLINE", "DISK");
        check("NEARLINE", "TAPE");
        check("ONLINE_AND_NEARLINE", "DISK_AND_TAPE");
        check("UNKNOWN", "UNAVAILABLE");
        check("", "'' is not a place of a file");
    }

    #[test]
    fn a_request_without_a_name_is_as_far_as_its_files_are() {
        let check = |place, expected| assert_eq!(progress_by(place), expected);
        check(Ok(Locality::DiskAndTape), FileProgress::OnDisk);
        check(Ok(Locality::Tape), FileProgress::Pending);
        check(Ok(Locality::Unavailable), FileProgress::Pending);
        check(
            Ok(Locality::Lost),
            FileProgress::Failed("the file is lost".into()),
        );
    }

    #[test]
    fn errors_of_the_way_are_told_from_errors_of_files() {
        let check = |errno: Errno, text: &str, expected| {
            assert_eq!(
                is_of_the_way(&GfalError::new(errno.0, text)),
                expected,
                "{text}"
            );
        };
        check(Errno::ECOMM, "SOAP fault", true);
        check(Errno::ECOMM, "SRM_FAILURE: bad tape", false);
        check(Errno::ENOENT, "SRM_INVALID_PATH", false);
        let failed = |errno| FileState::Failed(GfalError::new(errno, "x"));
        let first = |states: &[FileState]| all_failed(states).map(|error| error.errno);
        assert_eq!(first(&[failed(2), failed(5)]), Some(2));
        assert_eq!(first(&[failed(2), FileState::Pending]), None);
        assert_eq!(first(&[]), None);
    }
}
