//! `POST /jobs`: from FTS's submission document to a valid [`NewJob`].
//!
//! Keys, defaults and limits follow FTS3's REST server; unknown keys are tolerated, because every client sends some.
//! What this version cannot do is refused by name and never silently dropped.

mod document;
mod file;
mod job;
mod tape;
#[cfg(test)]
mod tests;

use crate::tokens::{TokenClients, renewal_of};
use document::SubmissionBody;
use file::SubmittedTokens;
use penstock_engine::checked_submission::NewJob;
use penstock_model::text::one_line;
use penstock_model::{CredentialId, JobKind, JobToken, Timestamp, UserName, VoName};
use penstock_protocol::token::{Contents, contents};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use thiserror::Error;
use uuid::Uuid;

/// The namespace of deterministic job ids (`base_id` of `/whoami`).
pub const BASE_ID: Uuid = uuid::uuid!("01874efb-4735-4595-bc9c-591aef8240c9");

/// Different tokens of one job that are renewed: each is a question to its issuer.
const RENEWED_TOKENS_MAX: usize = 1000;

/// Why a submission is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidSubmission {
    /// 400: the document says something that cannot be done.
    #[error("{0}")]
    Bad(String),
    /// 405: deletion jobs, as FTS answers them.
    #[error("Deletion jobs are no longer supported by FTS")]
    Deletion,
}

fn bad(text: impl Into<String>) -> InvalidSubmission {
    InvalidSubmission::Bad(text.into())
}

/// Who submits, and what stands in where files bring no tokens of their own.
#[derive(Debug, Clone)]
pub struct Submitter<'a> {
    /// The subject.
    pub user: &'a UserName,
    pub vo: &'a VoName,
    /// Names the identity.
    pub delegation: &'a CredentialId,
    /// By what the files are reached.
    pub means: Means<'a>,
    /// The issuers at which tokens are renewed.
    pub clients: &'a TokenClients,
}

/// By what files are reached that bring no tokens of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means<'a> {
    /// The bearer token of the request.
    Token(&'a str),
    /// The newest proxy that the submitter's identity has delegated.
    Proxy,
}

/// Reads a submission. `fresh_id` is the id of a job that does not ask for a deterministic one; the flag tells
/// whether it does.
pub fn parse_submission(
    body: &[u8],
    submitter: &Submitter<'_>,
    fresh_id: Uuid,
    now: Timestamp,
) -> Result<(NewJob, bool), InvalidSubmission> {
    let document = SubmissionBody::read(body)?;
    let params = document.params()?;
    let files = document.files()?;
    job::refuse_unsupported(&params)?;
    let mut tokens = SubmittedTokens::of(submitter);
    let mut transfers = Vec::with_capacity(files.len());
    let mut kind = JobKind::Independent;
    for (index, file) in files.iter().enumerate() {
        let in_file = |why| match why {
            InvalidSubmission::Bad(text) => bad(format!("files[{index}]: {text}")),
            deletion @ InvalidSubmission::Deletion => deletion,
        };
        // One at a time: as a value it takes many times the memory that its text takes.
        let file = document::file(file).map_err(in_file)?;
        let entry = file::read(&file, &mut tokens).map_err(in_file)?;
        // Judged before its pairs are made: many entries of many pairs would fill the memory.
        if index == 0 || entry.has_replicas() {
            kind = job::kind(&params, files.len(), &entry)?;
        }
        transfers.extend(entry.pairs());
    }
    if kind == JobKind::Session {
        job::one_way(&transfers)?;
    }
    let parameters = job::parameters(&params, kind, &transfers, submitter, now)?;
    let (id, given) = job::job_id(&params, submitter.vo, fresh_id)?;
    let unmanaged = flag(&params, "unmanaged_tokens")?;
    let mut secrets = job_tokens(tokens.brought, unmanaged, submitter.clients, now)?;
    for query in tokens.queries.into_values() {
        refuse_ended(&query.text, now)?;
        secrets.push(query);
    }
    let job = NewJob {
        id,
        user: submitter.user.clone(),
        vo: submitter.vo.clone(),
        delegation: submitter.delegation.clone(),
        parameters,
        transfers,
        tokens: secrets,
    };
    Ok((job, given))
}

/// The tokens that a job brings, each with how it is renewed, unless the job's user does that (`unmanaged_tokens`).
/// Errors: one has ended, so that its files could only fail.
fn job_tokens(
    tokens: BTreeMap<CredentialId, String>,
    unmanaged: bool,
    clients: &TokenClients,
    now: Timestamp,
) -> Result<Vec<JobToken>, InvalidSubmission> {
    let job_token = |(id, text): (CredentialId, String)| {
        let told = refuse_ended(&text, now)?;
        let renewal = match unmanaged {
            true => None,
            false => told.and_then(|told| renewal_of(told, clients)),
        };
        Ok(JobToken { id, text, renewal })
    };
    let tokens: Vec<JobToken> = tokens
        .into_iter()
        .map(job_token)
        .collect::<Result<_, _>>()?;
    let renewed = tokens.iter().filter(|token| token.renewal.is_some());
    let renewed = renewed.count();
    if renewed > RENEWED_TOKENS_MAX {
        return Err(bad(format!(
            "its files bring {renewed} different tokens that are to be renewed, more than {RENEWED_TOKENS_MAX}: use one for \
             several files, submit several jobs, or set 'unmanaged_tokens'"
        )));
    }
    Ok(tokens)
}

/// What a token says of itself. Errors: that it has ended.
fn refuse_ended(text: &str, now: Timestamp) -> Result<Option<Contents>, InvalidSubmission> {
    let told = contents(text);
    match told.as_ref().filter(|told| told.expires <= now) {
        None => Ok(told),
        Some(ended) => Err(bad(format!(
            "a token of {} for the files expired at {}Z; get a new one",
            one_line(&ended.issuer),
            ended.expires.to_fts()
        ))),
    }
}

/// A switch: true, false or absent. Clients also send null, 0 and 1, and words of which FTS reads the first letter:
/// `Y`, `N`. It takes every other word for no; a word that means yes and one that means nothing are told apart here.
fn flag(params: &Map<String, Value>, key: &str) -> Result<bool, InvalidSubmission> {
    let read = match params.get(key) {
        None | Some(Value::Null) => Some(false),
        Some(Value::Bool(value)) => Some(*value),
        Some(Value::Number(number)) => match number.as_f64() {
            Some(0.0) => Some(false),
            Some(1.0) => Some(true),
            Some(_) | None => None,
        },
        Some(Value::String(word)) => match word.trim().to_ascii_lowercase().as_str() {
            "" | "n" | "no" | "false" | "0" => Some(false),
            "y" | "yes" | "true" | "1" => Some(true),
            _ => None,
        },
        Some(Value::Array(_) | Value::Object(_)) => None,
    };
    read.ok_or_else(|| bad(format!("'{key}' must be true or false")))
}

/// An integer, also as text (the command line client sends `nostreams` so).
fn integer(params: &Map<String, Value>, key: &str) -> Result<Option<i64>, InvalidSubmission> {
    match params.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|float| float as i64))
            .map(Some)
            .ok_or(()),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
        Some(Value::String(text)) => text.trim().parse().map(Some).map_err(|_| ()),
        Some(_) => Err(()),
    }
    .map_err(|()| bad(format!("'{key}' must be an integer")))
}

/// A positive integer; absent, 0 and negative mean: the service's own.
fn positive(params: &Map<String, Value>, key: &str) -> Result<Option<u64>, InvalidSubmission> {
    Ok(integer(params, key)?
        .and_then(|value| u64::try_from(value).ok())
        .filter(|value| *value > 0))
}
