//! The other side of a third-party copy: requests to it, what it may be told and shown, and how a copy fails.

use super::answer::Problem;
use super::handler_context::Door;
use crate::mover::MoverHandle;
use http::StatusCode;
use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_decide::admission::PreemptionReason;
use penstock_model::url::redact;
use penstock_model::{MoverReport, ProblemCode};
use penstock_protocol::hosts::Listing;
use penstock_protocol::http1::client::{ClientError, ClientRequest, ClientResponse};
use penstock_protocol::problem::told_code;
use penstock_protocol::tpc::{Marker, write_marker};
use url::Url;

/// Redirects followed on the other side.
const REDIRECTS_MAX: usize = 5;
/// Bytes of another server's error text that are passed on.
const DETAIL_BYTES_MAX: u64 = 300;

/// The mover of a copy, as the one who writes the markers sees it.
#[derive(Default)]
pub(super) struct CopyMover(Mutex<Option<MoverHandle>>);

/// A copy that has not.
pub(super) enum CopyFailure {
    /// It is our fault and was found before any byte moved.
    Early(Problem),
    /// It was found later, or at the other end.
    Late(LateFailure),
}

/// Why a copy ended that had begun to be answered.
pub(super) struct LateFailure {
    /// One line for people.
    pub text: String,
    /// The cause, where it is known: ours, or as the other end told it.
    pub code: Option<ProblemCode>,
}

impl CopyFailure {
    /// Of which no cause is known beyond the words.
    pub(super) fn late(text: impl Into<String>) -> CopyFailure {
        CopyFailure::of_cause(None, text)
    }

    /// What it says, without its cause.
    pub(super) fn into_text(self) -> String {
        match self {
            CopyFailure::Early(problem) => problem.cause.message,
            CopyFailure::Late(why) => why.text,
        }
    }

    pub(super) fn of_cause(code: Option<ProblemCode>, text: impl Into<String>) -> CopyFailure {
        let text = text.into();
        CopyFailure::Late(LateFailure { text, code })
    }

    /// The mover ended for another one. Clients take it for what a status would tell: come back later.
    pub(super) fn preempted(why: &PreemptionReason) -> CopyFailure {
        let text = format!("{}: {why}", StatusCode::SERVICE_UNAVAILABLE);
        CopyFailure::of_cause(Some(ProblemCode::MoverPreempted), text)
    }
}

/// The site allows connections to this server.
pub(super) fn check_server(door: &Door, url: &Url) -> Result<(), Problem> {
    let judged = door.storage.settings().outbound.allow.judge(url);
    judged.map(drop).map_err(|why| {
        let server = url.host_str().unwrap_or_default();
        tracing::warn!(
            server,
            port = url.port(),
            "refused to connect to a server that is not allowed"
        );
        Problem::new(ProblemCode::AddressNotAllowed, why.to_string())
    })
}

/// What a server answers may be shown to the client: the site lists it by its name and port. Others may be anything.
fn may_show(door: &Door, url: &Url) -> bool {
    let judged = door.storage.settings().outbound.allow.judge(url);
    judged == Ok(Listing::Named)
}

impl CopyMover {
    /// From now on the markers tell of this mover.
    pub(super) fn follow(&self, view: MoverHandle) {
        *self.0.lock() = Some(view);
    }

    pub(super) fn is_running(&self) -> bool {
        let view = self.0.lock();
        view.as_ref().is_some_and(MoverHandle::is_running)
    }

    /// The marker before the last line of a copy that failed.
    pub(super) fn marker_of_failure(&self, code: ProblemCode) -> String {
        let marker = Marker {
            problem: Some(code),
            ..self.state(None)
        };
        write_marker(&marker)
    }

    pub(super) fn marker(&self, report: Option<MoverReport>) -> String {
        write_marker(&self.state(report))
    }

    fn state(&self, report: Option<MoverReport>) -> Marker {
        let view = self.0.lock();
        let running = view.as_ref().filter(|view| view.is_running());
        Marker {
            timestamp_s: wall_clock().unix_seconds(),
            stripe_index: 0,
            moved: running.map(MoverHandle::moved),
            stripes: 1,
            remote: running.and_then(MoverHandle::remote),
            report,
            problem: None,
        }
    }
}

/// Sends a request without a body and follows redirects, but only to allowed hosts; secrets stay behind
/// when the place changes.
pub(super) async fn send_following(
    door: &Door,
    mut request: ClientRequest,
) -> Result<ClientResponse, CopyFailure> {
    for _ in 0..=REDIRECTS_MAX {
        let response = door.storage.client.send(request.clone()).await;
        let mut response = response.map_err(|why| peer_failure(door, &request.url, &why))?;
        match follow(door, request, &mut response).await? {
            None => return Ok(response),
            Some(next) => request = next,
        }
    }
    Err(CopyFailure::of_cause(
        Some(ProblemCode::RedirectsTooMany),
        format!("more than {REDIRECTS_MAX} redirects"),
    ))
}

/// The request that a redirect asks for; `None` when the response is none.
pub(super) async fn follow(
    door: &Door,
    request: ClientRequest,
    response: &mut ClientResponse,
) -> Result<Option<ClientRequest>, CopyFailure> {
    let from = request.url.clone();
    let late = |why: ClientError| peer_failure(door, &from, &why);
    let Some(location) = response.redirect().map_err(late)? else {
        return Ok(None);
    };
    check_server(door, &location).map_err(|problem| {
        let from = redacted(&from);
        let text = format!("{from} redirects: {}", problem.cause.message);
        CopyFailure::of_cause(Some(problem.cause.code), text)
    })?;
    let next = door
        .storage
        .client
        .redirected(request, response.status, location)
        .map_err(late)?;
    // Read to its end, the connection can be used again; a failure here matters to nobody.
    let _ = response.read_all(DETAIL_BYTES_MAX).await;
    Ok(Some(next))
}

/// Why another server could not be spoken with.
pub(super) fn peer_failure(door: &Door, url: &Url, why: &ClientError) -> CopyFailure {
    match may_show(door, url) {
        true => CopyFailure::of_cause(Some(why.code()), why.to_string()),
        false => CopyFailure::late(why.without_foreign_text()),
    }
}

/// What another server said instead of doing its part, in one line.
pub(super) async fn refusal(door: &Door, response: &mut ClientResponse) -> CopyFailure {
    let status = response.status;
    let url = redacted(response.final_url());
    if !may_show(door, response.final_url()) {
        return CopyFailure::late(format!("{url} answered {status}"));
    }
    let code = told_code(&response.headers);
    let detail = response.read_all(64 << 10).await.unwrap_or_default();
    let detail = String::from_utf8_lossy(&detail);
    let line: String = detail
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(DETAIL_BYTES_MAX as usize)
        .collect();
    let line = line.trim();
    let separator = if line.is_empty() { "" } else { ": " };
    CopyFailure::of_cause(code, format!("{url} answered {status}{separator}{line}"))
}

/// A URL without its secrets.
pub(super) fn redacted(url: &Url) -> String {
    redact(url.as_str())
}
