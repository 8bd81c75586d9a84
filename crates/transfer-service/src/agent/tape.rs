//! Calls of tape systems: what the engine wants of them, over the WLCG Tape REST API, or by gfal2.
//!
//! A storage element that gfal2 reaches is asked by gfal2 about its tapes as well (`gfal/tape.rs`). Of the others, where a storage element has its tape interface it tells itself. That is remembered for a while; the interface may be
//! on another port, and on another host only where credentials may go.

use super::http::observe;
use super::{AgentSetup, REMEMBERED_MAX};
use crate::loop_message::Message;
use crate::tokens::token_failure;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_engine::{Assignment, TapeCall, TapeErrand, TapeOutcome, TapePlace};
use penstock_model::{Concern, Errno, Failure, JobKind, Locality, Phase, Retry, Side};
use penstock_protocol::http1::client::ClientRequest;
use penstock_protocol::problem::told_code;
use penstock_protocol::tape::{
    self, BYTES_PER_FILE_MAX, DISCOVERY_BYTES_MAX, STAGED_BYTES_MAX, TapeAnswerError,
    TapeInterface, WELL_KNOWN,
};
use penstock_protocol::tls::ClientIdentity;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use url::Url;

/// How long it is remembered where an interface is.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// Bytes of an answer that says no.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;
/// Characters of the server's answer that are shown.
const REFUSAL_CHARS_MAX: usize = 300;

/// Tape interfaces that were found, by server, and when.
#[derive(Debug, Default)]
pub(super) struct Interfaces(Mutex<HashMap<Arc<str>, CachedInterface>>);

type CachedInterface = (Instant, Arc<TapeInterface>);

impl Interfaces {
    fn known(&self, server: &str) -> Option<Arc<TapeInterface>> {
        let known = self.0.lock();
        let (since, found) = known.get(server)?;
        (since.elapsed() < REMEMBERED_FOR).then(|| found.clone())
    }

    fn learn(&self, server: &Arc<str>, found: &Arc<TapeInterface>) {
        let mut known = self.0.lock();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(server.clone(), (Instant::now(), found.clone()));
    }

    fn forget(&self, server: &str) {
        let mut known = self.0.lock();
        known.remove(server);
    }
}

/// A call that came to nothing, with the status of the answer if there was one.
pub(super) struct TapeCallError {
    pub(super) failure: Failure,
    pub(super) status: Option<u16>,
}

impl From<Failure> for TapeCallError {
    fn from(failure: Failure) -> TapeCallError {
        TapeCallError {
            failure,
            status: None,
        }
    }
}

/// By what a tape system is reached, and whose fault its errors are.
struct Access {
    server: Arc<str>,
    bearer: Option<HeaderValue>,
    identity: Option<ClientIdentity>,
    side: Side,
    phase: Phase,
}

/// How a storage element is asked about its tapes. Further ways stand beside this one.
enum TapeWay {
    /// The WLCG Tape REST API.
    Rest(Arc<TapeInterface>),
}

impl AgentSetup {
    /// Makes a call and reports what came of it, exactly once.
    pub(crate) async fn call_tape(self: Arc<Self>, call: TapeCall, reports: mpsc::Sender<Message>) {
        let number = call.number;
        let outcome = async move { self.tape_outcome(&call).await };
        answer_call(number, outcome, &reports).await;
    }

    /// Has the source of a copy that is on tape removed, and reports that exactly once.
    pub(crate) async fn call_source_removal(
        self: Arc<Self>,
        number: u64,
        assignment: Assignment,
        reports: mpsc::Sender<Message>,
    ) {
        let outcome = async move {
            match self.remove_source(&assignment).await {
                Ok(()) => TapeOutcome::Done,
                Err(failure) => {
                    let transfer = assignment.request.id.0;
                    tracing::debug!(transfer, %failure, "a source that is to be removed is still there");
                    TapeOutcome::Failed {
                        failure,
                        status: None,
                    }
                }
            }
        };
        answer_call(number, outcome, &reports).await;
    }

    async fn tape_outcome(&self, call: &TapeCall) -> TapeOutcome {
        match self.ask_tape(&call.place, &call.errand).await {
            Ok(outcome) => outcome,
            Err(TapeCallError { failure, status }) => {
                let server = &*call.place.server;
                tracing::debug!(server, %failure, "a tape system was called in vain");
                self.memory.tapes.forget(server);
                TapeOutcome::Failed { failure, status }
            }
        }
    }

    /// Where the destination of a transfer is now.
    pub(super) async fn locality(&self, assignment: &Assignment) -> Result<Locality, Failure> {
        let (side, request) = (Side::Destination, &assignment.request);
        let proxy = assignment.parameters.proxy.as_ref();
        let unknown =
            |detail: String| classify(side, Phase::Archiving, &ObservedFailure::Malformed, detail);
        let place = TapePlace::of(request, side, &assignment.vo, proxy);
        let path = TapePlace::path(request, side);
        let (Some(place), Some(path)) = (place, path) else {
            return Err(unknown("it has no path".to_owned()));
        };
        let errand = TapeErrand::Locate(vec![path.to_string()]);
        let asked = self.ask_tape(&place, &errand).await;
        let TapeOutcome::Places(told) = asked.map_err(|refusal| refusal.failure)? else {
            return Err(unknown("its tape system does not report it".to_owned()));
        };
        let found = told.into_iter().find(|(told, _)| **told == *path);
        match found {
            Some((_, place)) => place.map_err(unknown),
            None => Err(unknown("its tape system does not report it".to_owned())),
        }
    }

    /// A copy that must get to tape is of no use where no tape is: better told before its bytes are moved. What is not
    /// known now is found out when the file has arrived.
    pub(super) async fn refuse_without_tape(&self, assignment: &Assignment) -> Result<(), Failure> {
        let parameters = &assignment.parameters;
        // Of several hops only the last one gets to tape, and the others are not told which they are.
        if parameters.archive_seconds.is_none() || parameters.kind == JobKind::Hops {
            return Ok(());
        }
        let (side, proxy) = (Side::Destination, parameters.proxy.as_ref());
        let place = TapePlace::of(&assignment.request, side, &assignment.vo, proxy);
        let http = |place: &TapePlace| place.storage.access() != penstock_model::Access::Gfal;
        let Some(place) = place.filter(http) else {
            return Ok(());
        };
        let Ok(access) = self.tape_access(&place, side, Phase::Archiving).await else {
            return Ok(());
        };
        match self.tape_way(&access).await {
            Err(refusal) if refusal.failure.errno == Errno::EPROTONOSUPPORT => Err(refusal.failure),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn ask_tape(
        &self,
        place: &TapePlace,
        errand: &TapeErrand,
    ) -> Result<TapeOutcome, TapeCallError> {
        let (side, phase) = match errand {
            TapeErrand::Locate(_) => (Side::Destination, Phase::Archiving),
            TapeErrand::Stage(_)
            | TapeErrand::Look(..)
            | TapeErrand::Cancel(..)
            | TapeErrand::Release(..)
            | TapeErrand::Find(_) => (Side::Source, Phase::Staging),
        };
        if place.storage.access() == penstock_model::Access::Gfal {
            return self.ask_gfal_tape(place, errand, side, phase).await;
        }
        let access = self.tape_access(place, side, phase).await?;
        match (self.tape_way(&access).await, errand) {
            (Ok(TapeWay::Rest(interface)), _) => self.ask_rest(&access, &interface, errand).await,
            // What a storage element without tape has is on disk.
            (Err(refusal), TapeErrand::Find(paths))
                if refusal.failure.errno == Errno::EPROTONOSUPPORT =>
            {
                self.find_on_disk(&access, paths).await
            }
            (Err(refusal), _) => Err(refusal),
        }
    }

    /// Which of these files a storage element has that offers no tape interface.
    async fn find_on_disk(
        &self,
        access: &Access,
        paths: &[String],
    ) -> Result<TapeOutcome, TapeCallError> {
        let malformed =
            |why: String| classify(access.side, access.phase, &ObservedFailure::Malformed, why);
        let server = Url::parse(&access.server).map_err(|why| malformed(why.to_string()))?;
        let mut told = Vec::with_capacity(paths.len());
        for path in paths {
            let mut url = server.clone();
            if let Ok(mut segments) = url.path_segments_mut() {
                segments.clear();
                segments.extend(path.trim_start_matches('/').split('/'));
            }
            let asked = self.send_to_tape(access, Method::HEAD, url, None, 0).await;
            let place = match asked {
                Ok(_) => Ok(Locality::Disk),
                Err(refusal) if refusal.status.is_some() => Err(refusal.failure.to_string()),
                Err(unreachable) => return Err(unreachable),
            };
            told.push((path.clone(), place));
        }
        Ok(TapeOutcome::Places(told))
    }

    async fn tape_access(
        &self,
        place: &TapePlace,
        side: Side,
        phase: Phase,
    ) -> Result<Access, TapeCallError> {
        let unusable = |why: String| classify(side, phase, &ObservedFailure::Status(401), why);
        let mut access = Access {
            server: place.server.clone(),
            bearer: None,
            identity: None,
            side,
            phase,
        };
        if let Some(id) = &place.token
            && self.may_show_token_of(place)
        {
            let token = self.tokens.usable(id).await;
            let token = token.map_err(|trouble| token_failure(trouble, side, phase))?;
            let bearer = HeaderValue::try_from(format!("Bearer {token}"));
            let mut bearer = bearer.map_err(|_| {
                unusable("the token holds characters that no HTTP header may have".to_owned())
            })?;
            bearer.set_sensitive(true);
            access.bearer = Some(bearer);
        } else if let Some(id) = &place.proxy {
            let proxy = self.newest_proxy(id, wall_clock()).await;
            let proxy = proxy.map_err(|why| Failure { phase, ..why })?;
            access.identity = Some(proxy.identity);
        }
        Ok(access)
    }

    /// Whether a tape system may be shown a token.
    pub(super) fn may_show_token_of(&self, place: &TapePlace) -> bool {
        Url::parse(&place.server).is_ok_and(|url| self.may_show_token(&url))
    }

    /// The way to ask a storage element about its tapes, by the scheme of its files.
    async fn tape_way(&self, access: &Access) -> Result<TapeWay, TapeCallError> {
        let scheme = access.server.split("://").next().unwrap_or_default();
        match scheme {
            "https" | "davs" | "http" | "dav" => Ok(TapeWay::Rest(self.discover(access).await?)),
            _ => Err(access
                .not_offered(format!(
                    "files are brought from tape over https, and not over {scheme}"
                ))
                .into()),
        }
    }

    async fn discover(&self, access: &Access) -> Result<Arc<TapeInterface>, TapeCallError> {
        let malformed =
            |why: String| classify(access.side, access.phase, &ObservedFailure::Malformed, why);
        let server = Url::parse(&access.server).map_err(|why| malformed(why.to_string()))?;
        let found = match self.memory.tapes.known(&access.server) {
            Some(known) => known,
            None => {
                let found = Arc::new(self.look_for_interface(access, &server).await?);
                self.memory.tapes.learn(&access.server, &found);
                found
            }
        };
        // Each time, because the operator may have changed the list.
        if !self.client.may_take_credentials(&server, found.uri()) {
            return Err(access
                .forbidden(format!(
                    "the tape interface of {} is said to be at {}, which may not have credentials that are for {}: \
                     transfer.credentials_follow does not list it",
                    access.server,
                    found.uri(),
                    access.server
                ))
                .into());
        }
        Ok(found)
    }

    async fn look_for_interface(
        &self,
        access: &Access,
        server: &Url,
    ) -> Result<TapeInterface, TapeCallError> {
        let malformed =
            |why: String| classify(access.side, access.phase, &ObservedFailure::Malformed, why);
        let url = server
            .join(WELL_KNOWN)
            .map_err(|why| malformed(why.to_string()))?;
        let asked = self
            .send_to_tape(access, Method::GET, url.clone(), None, DISCOVERY_BYTES_MAX)
            .await;
        let body = asked.map_err(|refusal| match refusal.status {
            Some(401 | 403 | 404 | 405 | 410 | 501) => {
                TapeCallError::from(access.not_offered(format!(
                    "{} offers no tape interface: {}",
                    access.server, refusal.failure.detail
                )))
            }
            // What is wrong with the document says nothing of the files that are asked for.
            _ => TapeCallError::from(refusal.failure),
        })?;
        TapeInterface::parse(&body).map_err(|why| match why {
            TapeAnswerError::NoVersion => access.not_offered(format!("{url}: {why}")).into(),
            TapeAnswerError::Malformed(_) | TapeAnswerError::OtherRequest(_) => {
                malformed(format!("{url}: {why}")).into()
            }
        })
    }

    async fn ask_rest(
        &self,
        access: &Access,
        api: &TapeInterface,
        errand: &TapeErrand,
    ) -> Result<TapeOutcome, TapeCallError> {
        let of_files = |files: usize| REFUSAL_BYTES_MAX + BYTES_PER_FILE_MAX * files as u64;
        let (method, url, body, limit) = match errand {
            TapeErrand::Stage(files) => {
                let body = tape::stage_body(files);
                (Method::POST, api.stage(), Some(body), STAGED_BYTES_MAX)
            }
            TapeErrand::Look(id, files, _) => {
                (Method::GET, api.request(id), None, of_files(*files))
            }
            TapeErrand::Cancel(id, paths) => {
                let body = tape::paths_body(paths);
                (Method::POST, api.cancel(id), Some(body), REFUSAL_BYTES_MAX)
            }
            TapeErrand::Release(id, paths) => {
                let body = tape::paths_body(paths);
                (Method::POST, api.release(id), Some(body), REFUSAL_BYTES_MAX)
            }
            TapeErrand::Locate(paths) | TapeErrand::Find(paths) => {
                let body = tape::paths_body(paths);
                let limit = of_files(paths.len());
                (Method::POST, api.archive_info(), Some(body), limit)
            }
        };
        let shown = url.to_string();
        let body = self.send_to_tape(access, method, url, body, limit).await?;
        let outcome = match errand {
            TapeErrand::Stage(_) => tape::parse_staged(&body).map(TapeOutcome::Accepted),
            TapeErrand::Look(id, ..) => tape::parse_progress(&body, id).map(TapeOutcome::Progress),
            TapeErrand::Cancel(..) | TapeErrand::Release(..) => Ok(TapeOutcome::Done),
            TapeErrand::Locate(_) | TapeErrand::Find(_) => {
                tape::parse_archive_info(&body).map(TapeOutcome::Places)
            }
        };
        outcome.map_err(|why| {
            let detail = format!("{shown}: {why}");
            classify(
                access.side,
                access.phase,
                &ObservedFailure::Malformed,
                detail,
            )
            .into()
        })
    }

    /// Sends a request; gives back the body of an answer that says yes.
    async fn send_to_tape(
        &self,
        access: &Access,
        method: Method,
        url: Url,
        body: Option<Vec<u8>>,
        limit: u64,
    ) -> Result<Vec<u8>, TapeCallError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(bearer) = &access.bearer {
            headers.insert(AUTHORIZATION, bearer.clone());
        }
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let request = ClientRequest {
            method: method.clone(),
            url: url.clone(),
            headers,
            identity: access.identity.clone(),
        };
        let client = self.client.with_response_timeout(self.config.tape_timeout);
        let sent = match &body {
            Some(body) => client.send_bytes(request, body).await,
            None => client.send_following(request).await,
        };
        let mut answer = sent.map_err(|why| access.broken(&why))?;
        let status = answer.status;
        if status.is_success() {
            let body = answer.read_all(limit).await;
            return Ok(body.map_err(|why| access.broken(&why))?);
        }
        let code = told_code(&answer.headers);
        let said = match answer.may_show_text() {
            true => answer.read_all(REFUSAL_BYTES_MAX).await.unwrap_or_default(),
            false => Vec::new(),
        };
        let detail = format!(
            "{method} {url} was answered with {status}{}",
            said_why(&said)
        );
        let observed = ObservedFailure::Status(status.as_u16());
        let failure = classify(access.side, access.phase, &observed, detail);
        Err(TapeCallError {
            failure: Failure {
                code: code.or(failure.code),
                ..failure
            },
            status: Some(status.as_u16()),
        })
    }
}

/// Reports what came of a call, also when it ended unexpectedly.
async fn answer_call(
    number: u64,
    outcome: impl Future<Output = TapeOutcome> + Send + 'static,
    reports: &mpsc::Sender<Message>,
) {
    let outcome = tokio::spawn(outcome).await.unwrap_or_else(|_| {
        let detail = "the call ended unexpectedly; see the service's log".to_owned();
        let observed = ObservedFailure::Broken;
        TapeOutcome::Failed {
            failure: classify(Side::Service, Phase::Staging, &observed, detail),
            status: None,
        }
    });
    // The loop outlives its calls; when it does not, a restart makes them again.
    let answered = Message::TapeAnswered { number, outcome };
    let _ = reports.send(answered).await;
}

impl Access {
    fn broken(&self, why: &penstock_protocol::http1::client::ClientError) -> Failure {
        classify(self.side, self.phase, &observe(why), why.to_string())
    }

    fn forbidden(&self, detail: String) -> Failure {
        classify(self.side, self.phase, &ObservedFailure::Forbidden, detail)
    }

    /// Another replica may be somewhere that offers it.
    fn not_offered(&self, detail: String) -> Failure {
        Failure {
            side: self.side,
            retry: Retry::ElsewhereOnly,
            concern: Concern::StorageElement,
            phase: self.phase,
            errno: Errno::EPROTONOSUPPORT,
            detail,
            found: None,
            busy: None,
            code: None,
        }
    }
}

/// What an answer says of itself (RFC 7807, or anything), with a colon before it; empty when it says nothing.
fn said_why(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        title: Option<String>,
        detail: Option<String>,
    }
    let text = match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => [problem.title, problem.detail]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(": "),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = line.chars().take(REFUSAL_CHARS_MAX).collect();
    match short.is_empty() {
        true => short,
        false => format!(": {short}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tape_system_says_is_told_in_one_line() {
        let check = |body: &str, expected: &str| assert_eq!(said_why(body.as_bytes()), expected);
        check("", "");
        check("{}", "");
        check(
            r#"{"status":400,"title":"Bad","detail":"no\nfiles"}"#,
            ": Bad: no files",
        );
        check("<html>\n busy </html>", ": <html> busy </html>");
        assert!(said_why("x".repeat(5000).as_bytes()).len() < 310);
    }
}
