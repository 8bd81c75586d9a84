//! `GET /api/v1/access-links/view`: what a view link shows. The document is made of values that are named here one by one, and
//! of sentences from which names and paths were taken out; what a job says of itself (metadata, label, activity) is left out.

use super::super::link_grant::{LinkGrant, note_use, of_bearer};
use super::redaction::Redaction;
use super::{Target, rfc3339};
use crate::api::caller::{Caller, bearer};
use crate::api::query::blocking;
use crate::api::{Api, ApiError, ApiResult, jobs, transfers, wire};
use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::response::IntoResponse;
use penstock_clock::wall_clock;
use penstock_decide::wording;
use penstock_journal::{JobRow, JournalError, TransferRow};
use penstock_model::{JobId, ProblemCode, Timestamp, TransferId, TransferState, WaitReason};
use penstock_persistence::access_links::{AccessLinkKind, LinkEnd, LinkSecret};
use serde_json::{Value, json};

/// Files of a job that are shown.
const FILES_MAX: usize = 200;

/// Whoever shows the secret of a view link as bearer token; nobody else is answered here.
pub(super) async fn show(State(api): State<Api>, headers: HeaderMap) -> ApiResult {
    let shown = headers.get(AUTHORIZATION).ok_or_else(|| {
        ApiError::new(
            ProblemCode::CredentialsMissing,
            "send 'Authorization: Bearer' with what follows '#view=' in the link",
        )
    })?;
    let secret = LinkSecret::parse(AccessLinkKind::View, bearer(shown)?);
    let secret = secret.ok_or_else(|| of_bearer(LinkEnd::Unknown))?;
    let links = &api.config.access_links;
    let opened = links
        .find(AccessLinkKind::View, &secret, wall_clock())
        .map_err(of_bearer)?;
    let link = &opened.link;
    // Whatever its maker may not see any more, the link does not show.
    let grant = LinkGrant::read(&opened)?;
    let caller = api.caller_of_link(grant, link.expires).await?;
    note_use(links, link).await;
    let mut told = match Target::parse(&link.opens) {
        Some(Target::Job(id)) => job(&api, &caller, id).await?,
        Some(Target::Transfer(id)) => transfer(&api, &caller, id).await?,
        Some(Target::LivePage) | None => return Err(of_bearer(LinkEnd::Unknown)),
    };
    told["opens"] = json!(link.opens);
    told["expires_at"] = json!(rfc3339(link.expires));
    Ok(Json(told).into_response())
}

async fn job(api: &Api, caller: &Caller, id: JobId) -> Result<Value, ApiError> {
    let job = jobs::one_job(api, caller, &id.to_string()).await?;
    let reader = api.service.reader().clone();
    let read = move || {
        let counts = reader.state_counts(id)?;
        let rows = reader.transfers_after(id, TransferId(0), FILES_MAX)?;
        Ok::<_, JournalError>((counts, rows))
    };
    let (counts, rows) = blocking(caller.credential(), read).await??;
    let ids = rows.iter().map(|row| row.id).collect();
    let waiting = api.service.why_waiting(ids).await?;
    let files: u64 = counts.iter().map(|(_, count)| count).sum();
    let mut told = Value::Object(wire::explanation(&job, &counts));
    let now = wall_clock();
    told["files"] = rows
        .iter()
        .zip(&waiting)
        .map(|(row, waiting)| file(row, &job, waiting.as_ref(), now))
        .collect();
    told["files_total"] = json!(files);
    told["submitted"] = json!(job.submitted_at.0);
    Ok(told)
}

fn file(row: &TransferRow, job: &JobRow, waiting: Option<&WaitReason>, now: Timestamp) -> Value {
    let link = row.request.link();
    let text = wording::transfer_state(&row.state, waiting, now);
    json!({
        "file_id": row.id.0,
        "state": row.fts_state(),
        "source": link.source.as_str(),
        "destination": link.destination.as_str(),
        "size_bytes": row.size_bytes.or(row.request.size.map(|size| size.0)),
        "text": Disclosure::of(row, job, waiting).text(&text),
    })
}

async fn transfer(api: &Api, caller: &Caller, id: TransferId) -> Result<Value, ApiError> {
    let (row, job) = transfers::one_transfer(api, caller, &id.0.to_string()).await?;
    let waiting = api.service.why_waiting(vec![row.id]).await?.pop().flatten();
    let disclosure = Disclosure::of(&row, &job, waiting.as_ref());
    let mut told = file(&row, &job, waiting.as_ref(), wall_clock());
    let steps = transfers::steps_of(api, caller, row.clone(), job.clone()).await?;
    let steps = steps.into_iter().map(|step| {
        json!({"at": step.at.0, "kind": step.kind.name(), "text": disclosure.text(&step.text)})
    });
    told["steps"] = steps.collect();
    told["submitted"] = json!(job.submitted_at.0);
    told["started"] = json!(row.started_at.map(|at| at.0));
    told["finished"] = json!(row.finished_at.map(|at| at.0));
    Ok(told)
}

/// What of a transfer's texts is shown.
struct Disclosure {
    redaction: Redaction,
    /// What the last failure said, which may be of somebody else's transfer and names his files.
    hides_last_failure: bool,
}

impl Disclosure {
    /// Without whatever names its user, its files, what they belong to, or was written by operators for those concerned.
    fn of(row: &TransferRow, job: &JobRow, waiting: Option<&WaitReason>) -> Disclosure {
        let ends = [
            row.request.source.to_string(),
            row.request.destination.to_string(),
        ];
        let people = [job.user.as_str(), job.delegation.as_str()];
        let mut words = vec![job.vo.as_str(), row.request.activity.as_str()];
        let sum = row.request.checksum.as_ref().map(ToString::to_string);
        words.extend(sum.as_deref());
        words.extend(waiting.and_then(operators_message));
        if let TransferState::Canceled { reason, .. } = &row.state {
            words.extend(reason.split_once(": ").map(|(_, message)| message));
        }
        let names = ends.iter().map(String::as_str).chain(people);
        Disclosure {
            redaction: Redaction::of(names, words),
            hides_last_failure: matches!(waiting, Some(WaitReason::LinkHalted { .. })),
        }
    }

    fn text(&self, text: &str) -> String {
        let own = text.split_once(wording::LAST_FAILURE);
        let text = own
            .filter(|_| self.hides_last_failure)
            .map_or(text, |(own, _)| own);
        self.redaction.applied(text)
    }
}

/// What operators wrote of the ban for which a transfer waits.
fn operators_message(reason: &WaitReason) -> Option<&str> {
    match reason {
        WaitReason::StorageBanned { message, .. } => Some(message),
        WaitReason::ByShare { because, .. } => operators_message(because),
        _ => None,
    }
}
