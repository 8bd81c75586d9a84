//! What one entry of a submission's `files` asks for.

use super::{InvalidSubmission, Means, Submitter, bad, tape};
use crate::api::wire::whole;
use penstock_engine::checked_submission::NewTransfer;
use penstock_model::share_link::share_secret_of_url;
use penstock_model::url::is_macaroon;
use penstock_model::{
    Access, Activity, Bytes, Checksum, ChecksumAlgorithm, CredentialId, FileUrl, JobToken,
    Selection,
};
use penstock_protocol::token::{contents, job_token_id, without_credentials};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a file's `metadata`, as JSON.
pub(super) const FILE_METADATA_MAX: usize = 4096;
/// Bytes of a file's `staging_metadata` and `archive_metadata`, as JSON.
pub(super) const TAPE_METADATA_MAX: usize = 1024;
/// Characters of a share label, as wide as FTS's column.
const ACTIVITY_CHARS_MAX: usize = 255;
/// Pairs of sources and destinations of one file.
const PAIRS_MAX: usize = 1000;
/// Bytes of URLs and metadata in all pairs of one file together: the journal keeps them with each pair.
pub(super) const PAIRS_BYTES_MAX: usize = 2 << 20;

/// The tokens that a job's files bring, or are reached by because they bring none.
pub(super) struct SubmittedTokens<'a> {
    /// By their names.
    pub(super) brought: BTreeMap<CredentialId, String>,
    /// Queries of their URLs that hold credentials.
    pub(super) queries: BTreeMap<CredentialId, JobToken>,
    submitter: &'a CredentialId,
    means: Means<'a>,
    /// The name of the request's own token: thousands of files may be reached by it.
    of_request: Option<CredentialId>,
}

impl<'a> SubmittedTokens<'a> {
    /// None yet.
    pub(super) fn of(submitter: &Submitter<'a>) -> SubmittedTokens<'a> {
        SubmittedTokens {
            brought: BTreeMap::new(),
            queries: BTreeMap::new(),
            submitter: submitter.delegation,
            means: submitter.means,
            of_request: None,
        }
    }

    /// Keeps a token; gives its name.
    fn bring(&mut self, token: &str) -> CredentialId {
        let id = job_token_id(self.submitter, token);
        if !self.brought.contains_key(&id) {
            self.brought.insert(id.clone(), token.to_owned());
        }
        id
    }

    /// The request's own token would be shown to the end for which none was given. FTS's words.
    fn refuse_one_sided(&self, file: &Map<String, Value>) -> Result<(), InvalidSubmission> {
        let has = |key: &str| {
            let given = file.get(key).and_then(Value::as_array);
            given.is_some_and(|tokens| !tokens.is_empty())
        };
        let needs = |key: &str| {
            let urls = file
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let mut urls = urls.filter_map(|url| FileUrl::parse(url.as_str()?).ok());
            urls.any(|url| url.access() != Access::Cloud)
        };
        let (source, destination) = (has("source_tokens"), has("destination_tokens"));
        let is_missing = match (source, destination) {
            (true, false) => needs("destinations"),
            (false, true) => needs("sources"),
            (true, true) | (false, false) => false,
        };
        match (self.means, is_missing) {
            (Means::Token(_), true) => Err(bad(
                "Both source_tokens and destination_tokens are required if one of them is present",
            )),
            (Means::Token(_) | Means::Proxy, _) => Ok(()),
        }
    }

    /// The name of the request's token, if it came with one.
    fn of_request(&mut self) -> Option<CredentialId> {
        let Means::Token(token) = self.means else {
            return None;
        };
        if self.of_request.is_none() {
            self.of_request = Some(self.bring(token));
        }
        self.of_request.clone()
    }
}

/// One entry of `files`, before its sources and destinations are multiplied.
pub(super) struct FileEntry {
    sources: Vec<End>,
    destinations: Vec<End>,
    /// What all pairs have in common, with the ends of the first.
    of_all: NewTransfer,
    /// How its replicas are chosen among.
    pub(super) selection: Selection,
}

/// Reads an entry. Errors: a value cannot be meant, or its pairs would be too many or too large.
pub(super) fn read(
    file: &Value,
    known: &mut SubmittedTokens<'_>,
) -> Result<FileEntry, InvalidSubmission> {
    let selection = selection_of(file)?;
    let file = file
        .as_object()
        .ok_or_else(|| bad("must be an object with 'sources' and 'destinations'"))?;
    known.refuse_one_sided(file)?;
    let sources = ends(file, "sources", "source_tokens", known)?;
    let destinations = ends(file, "destinations", "destination_tokens", known)?;
    let number = sources.len().saturating_mul(destinations.len());
    if number > PAIRS_MAX {
        return Err(bad(format!(
            "its sources and destinations make {number} pairs, more than {PAIRS_MAX}"
        )));
    }
    let (algorithm, checksum) = checksum(file.get("checksum"))?;
    let activity = activity(file.get("activity"))?;
    for key in ["staging_metadata", "archive_metadata"] {
        check_object(file.get(key), key)?;
    }
    let of_all = NewTransfer {
        source: sources[0].url.clone(),
        destination: destinations[0].url.clone(),
        size: size(file.get("filesize"))?,
        checksum,
        checksum_algorithm: algorithm,
        activity,
        scitag: scitag(file.get("scitag"))?,
        metadata: Arc::new(file_metadata(file)?),
        source_credential: None,
        destination_credential: None,
        source_query: None,
        destination_query: None,
        tape: tape::notes(file)?,
    };
    let entry = FileEntry {
        sources,
        destinations,
        of_all,
        selection,
    };
    let bytes = entry.pairs_bytes();
    if number > 1 && bytes > PAIRS_BYTES_MAX {
        return Err(bad(format!(
            "its URLs and metadata make {bytes} bytes in {number} pairs of sources and destinations, more than \
             {PAIRS_BYTES_MAX}"
        )));
    }
    Ok(entry)
}

impl FileEntry {
    /// Whether it has several sources or destinations.
    pub(super) fn has_replicas(&self) -> bool {
        self.sources.len() > 1 || self.destinations.len() > 1
    }

    /// Every source with every destination.
    pub(super) fn pairs(&self) -> impl Iterator<Item = NewTransfer> {
        let ends = self.sources.iter().flat_map(|source| {
            let destinations = self.destinations.iter();
            destinations.map(move |destination| (source, destination))
        });
        ends.map(|(source, destination)| NewTransfer {
            source: source.url.clone(),
            destination: destination.url.clone(),
            source_credential: source.credential.clone(),
            destination_credential: destination.credential.clone(),
            source_query: source.query.clone(),
            destination_query: destination.query.clone(),
            ..self.of_all.clone()
        })
    }

    /// Bytes of URLs and metadata in all pairs together.
    fn pairs_bytes(&self) -> usize {
        let urls = |ends: &[End]| ends.iter().map(|end| end.url.as_str().len()).sum::<usize>();
        let (sources, destinations) = (self.sources.len(), self.destinations.len());
        let notes = self.of_all.tape.iter();
        let notes = notes.flat_map(|tape| tape.staging.iter().chain(&tape.archive));
        let of_each: usize = notes
            .chain([&*self.of_all.metadata])
            .map(|value| value.to_string().len())
            .sum();
        urls(&self.sources) * destinations
            + urls(&self.destinations) * sources
            + of_each * sources * destinations
    }
}

/// One end of a pair.
struct End {
    url: FileUrl,
    /// `None`: it is reached by the submitter's proxy.
    credential: Option<CredentialId>,
    /// What the URL had behind its path, when that holds credentials.
    query: Option<CredentialId>,
}

/// The URLs under a key, each with its token, or with that of the request, if any, where none are given.
fn ends(
    file: &Map<String, Value>,
    urls: &str,
    tokens: &str,
    known: &mut SubmittedTokens<'_>,
) -> Result<Vec<End>, InvalidSubmission> {
    let listed = file.get(urls).and_then(Value::as_array);
    let listed = listed.ok_or_else(|| bad(format!("'{urls}' must be a list of URLs")))?;
    if listed.is_empty() {
        return Err(bad(format!("'{urls}' names no URL")));
    }
    let own = match file.get(tokens) {
        None | Some(Value::Null) => None,
        Some(Value::Array(own)) if own.len() == listed.len() => Some(own),
        Some(Value::Array(_)) => {
            return Err(bad(format!("'{tokens}' must hold one token for each URL")));
        }
        Some(_) => return Err(bad(format!("'{tokens}' must be a list of tokens"))),
    };
    let mut ends = Vec::with_capacity(listed.len());
    for (at, url) in listed.iter().enumerate() {
        let Value::String(url) = url else {
            return Err(bad(format!("'{urls}' must be a list of URLs")));
        };
        let token = match own.map(|own| &own[at]) {
            None => None,
            Some(Value::String(token)) if is_token(token) => Some(token.as_str()),
            Some(Value::String(token)) if !token.is_empty() => {
                return Err(bad(format!(
                    "'{tokens}' must hold JSON Web Tokens with 'iss' and 'exp', or macaroons"
                )));
            }
            Some(_) => return Err(bad(format!("'{tokens}' must hold one token for each URL"))),
        };
        if share_secret_of_url(url.trim()).is_some() {
            // Its path is a credential, which would be stored and shown with the job.
            return Err(bad(
                "a shared link (/s/…) cannot be the source or destination of a job; give the path of the file, with the last part of \
                 the link as ?authz=…",
            ));
        }
        let url = FileUrl::parse(url).map_err(|why| bad(why.to_string()))?;
        // A cloud storage is reached with keys; a token is not for its eyes.
        let credential = match (url.access(), token) {
            (Access::Cloud, _) => None,
            (Access::Http | Access::Gfal, Some(token)) => Some(known.bring(token)),
            (Access::Http | Access::Gfal, None) => known.of_request(),
        };
        let (url, query) = without_credentials(url).map_err(|why| bad(why.to_string()))?;
        let query = query.map(|query| {
            let id = query.id.clone();
            known.queries.insert(id.clone(), query);
            id
        });
        ends.push(End {
            url,
            credential,
            query,
        });
    }
    Ok(ends)
}

/// Whether a storage element could take it: FTS takes JSON Web Tokens alone; those of dCache, XRootD and EOS, which it
/// refuses, are of use here.
fn is_token(token: &str) -> bool {
    contents(token).is_some() || is_macaroon(token) || token.starts_with("zteos64:")
}

/// `ALGORITHM` or `ALGORITHM:value`; ADLER32 when nothing is said.
fn checksum(
    value: Option<&Value>,
) -> Result<(ChecksumAlgorithm, Option<Checksum>), InvalidSubmission> {
    let text = match value {
        None | Some(Value::Null) => return Ok((ChecksumAlgorithm::Adler32, None)),
        Some(Value::String(text)) if text.is_empty() => {
            return Ok((ChecksumAlgorithm::Adler32, None));
        }
        Some(Value::String(text)) => text,
        Some(_) => return Err(bad("'checksum' must be text: ALGORITHM or ALGORITHM:value")),
    };
    let name = text.split(':').next().unwrap_or_default();
    let Some(algorithm) = ChecksumAlgorithm::parse(name) else {
        let known: Vec<_> = ChecksumAlgorithm::ALL
            .iter()
            .map(|known| known.name())
            .collect();
        return Err(bad(format!(
            "the checksum algorithm '{name}' is not known; use one of {}",
            known.join(", ")
        )));
    };
    if !text.contains(':') || text.ends_with(':') {
        return Ok((algorithm, None));
    }
    let value = Checksum::parse(text)
        .ok_or_else(|| bad(format!("'{text}' is not a valid {algorithm} checksum")))?;
    Ok((algorithm, Some(value)))
}

/// A share label; `default` when nothing is said.
fn activity(value: Option<&Value>) -> Result<Activity, InvalidSubmission> {
    match value {
        None | Some(Value::Null) => Ok(Activity::new("default")),
        Some(Value::String(label)) if label.is_empty() => Ok(Activity::new("default")),
        Some(Value::String(label))
            if label.chars().count() <= ACTIVITY_CHARS_MAX && !label.contains(char::is_control) =>
        {
            Ok(Activity::new(label.as_str()))
        }
        Some(_) => Err(bad(format!(
            "'activity' must be text of at most {ACTIVITY_CHARS_MAX} characters, without control characters"
        ))),
    }
}

/// What is about tape must have FTS's form, also where nothing comes from tape.
fn check_object(value: Option<&Value>, key: &str) -> Result<(), InvalidSubmission> {
    match value {
        None | Some(Value::Null) => Ok(()),
        Some(object @ Value::Object(_)) if object.to_string().len() <= TAPE_METADATA_MAX => Ok(()),
        Some(Value::Object(_)) => Err(bad(format!(
            "'{key}' is longer than {TAPE_METADATA_MAX} bytes"
        ))),
        Some(_) => Err(bad(format!("'{key}' must be an object"))),
    }
}

/// Bytes; clients send integers and floats, and 0 for unknown.
fn size(value: Option<&Value>) -> Result<Option<Bytes>, InvalidSubmission> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => match number.as_f64() {
            Some(bytes) if (0.0..=9.0e18).contains(&bytes) => {
                let exact = number.as_u64().unwrap_or(bytes as u64);
                Ok((exact > 0).then_some(Bytes(exact)))
            }
            _ => Err(bad("'filesize' must be a number of bytes, not negative")),
        },
        Some(_) => Err(bad("'filesize' must be a number of bytes")),
    }
}

fn scitag(value: Option<&Value>) -> Result<Option<u16>, InvalidSubmission> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_number().and_then(whole).map(u16::try_from) {
            Some(Ok(tag)) if tag >= 65 => Ok(Some(tag)),
            _ => Err(bad("'scitag' must be an integer from 65 to 65535")),
        },
    }
}

fn file_metadata(file: &Map<String, Value>) -> Result<Value, InvalidSubmission> {
    let metadata = match file.get("metadata").or_else(|| file.get("file_metadata")) {
        None | Some(Value::Null) => return Ok(Value::Null),
        Some(Value::String(label)) => json!({ "label": label }),
        Some(other) => other.clone(),
    };
    if metadata.to_string().len() > FILE_METADATA_MAX {
        return Err(bad(format!(
            "'metadata' is longer than {FILE_METADATA_MAX} bytes"
        )));
    }
    Ok(metadata)
}

fn selection_of(file: &Value) -> Result<Selection, InvalidSubmission> {
    match file.get("selection_strategy") {
        None | Some(Value::Null) => Ok(Selection::default()),
        Some(name) => name.as_str().and_then(Selection::parse).ok_or_else(|| {
            bad(format!(
                "'selection_strategy' is {name}; use {}",
                strategies()
            ))
        }),
    }
}

fn strategies() -> String {
    let names = Selection::ALL.map(Selection::name);
    format!("auto, {}", names.join(", "))
}
