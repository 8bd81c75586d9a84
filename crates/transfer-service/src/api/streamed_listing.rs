//! Answers that list the files of jobs, made page by page while the client takes them: a job may have a hundred
//! thousand files, a request may name a thousand jobs, and what a client does not read must not be in memory.
//!
//! The pages are of different instants; each file is shown as it is when its page is made.

use super::caller::Caller;
use super::query::blocking;
use super::wire::FileObject;
use super::{Api, ApiError, wire};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use penstock_journal::{JobRow, JournalError, TransferRow};
use penstock_model::{CredentialId, TransferId};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Files of one page: all of a job as Rucio makes them.
const PAGE_FILES: usize = 200;
/// Bytes of text that are sent without waiting for a page.
const TEXT_BYTES: usize = 64 << 10;

/// About how long the object of a file is, and one of its fields.
const FILE_BYTES: usize = 1200;
const FIELD_BYTES: usize = 40;

/// What is shown of each file.
#[derive(Debug, Clone)]
pub(super) enum FileDetail {
    /// The whole file object.
    Everything,
    Fields(Arc<[String]>),
    /// Why it waits, or how it ended.
    Explanation,
}

/// A part of an answer.
enum DocumentPart {
    Text(Vec<u8>),
    /// The file objects of a job from the one after a number on, with commas between.
    Files {
        job: Arc<JobRow>,
        after: TransferId,
        shown: FileDetail,
    },
}

/// A JSON document that is written while it is sent.
#[derive(Default)]
pub(super) struct JsonDocument {
    parts: VecDeque<DocumentPart>,
}

impl JsonDocument {
    pub(super) fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(DocumentPart::Text(last)) = self.parts.back_mut() {
            last.extend_from_slice(text.as_bytes());
        } else {
            self.parts.push_back(DocumentPart::Text(text.into()));
        }
    }

    /// The job's files as a list.
    pub(super) fn files(&mut self, job: JobRow, shown: FileDetail) {
        self.text("[");
        self.parts.push_back(DocumentPart::Files {
            job: Arc::new(job),
            after: TransferId(0),
            shown,
        });
        self.text("]");
    }

    /// An object, and after its own keys the job's files as `files`.
    pub(super) fn object_with_files(
        &mut self,
        object: Map<String, Value>,
        job: JobRow,
        shown: FileDetail,
    ) {
        let text = Value::Object(object).to_string();
        let open = text.strip_suffix('}').unwrap_or(&text);
        self.text(open);
        self.text(if open == "{" {
            "\"files\":"
        } else {
            ",\"files\":"
        });
        self.files(job, shown);
        self.text("}");
    }

    pub(super) fn answer(mut self, status: StatusCode, api: &Api, caller: &Caller) -> Response {
        let body = match (self.parts.pop_front(), self.parts.is_empty()) {
            (None, _) => Body::empty(),
            (Some(DocumentPart::Text(whole)), true) => Body::from(whole),
            (Some(first), _) => {
                self.parts.push_front(first);
                Body::new(DocumentStream {
                    api: api.clone(),
                    caller: caller.credential().clone(),
                    parts: self.parts,
                    reading: None,
                    written: Vec::new(),
                })
            }
        };
        (status, [(CONTENT_TYPE, "application/json")], body).into_response()
    }
}

type PageRead = Pin<Box<dyn Future<Output = Result<Page, ApiError>> + Send>>;

/// Some files, written.
struct Page {
    text: Vec<u8>,
    /// Where the next page begins; `None` after the last.
    next: Option<TransferId>,
}

/// A document on its way.
struct DocumentStream {
    api: Api,
    /// Whose turns the pages take.
    caller: CredentialId,
    parts: VecDeque<DocumentPart>,
    reading: Option<PageRead>,
    /// Not sent yet, so that a short list goes with what stands around it.
    written: Vec<u8>,
}

impl HttpBody for DocumentStream {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(reading) = &mut this.reading {
                let read = ready!(reading.as_mut().poll(context));
                this.reading = None;
                let page = match read {
                    Ok(page) => page,
                    // The log was told. The client sees an answer that breaks off, not a short one.
                    Err(why) => {
                        this.parts.clear();
                        this.written.clear();
                        return Poll::Ready(Some(Err(axum::Error::new(why.problem.message))));
                    }
                };
                this.written = page.text;
                match (page.next, this.parts.front_mut()) {
                    (Some(next), Some(DocumentPart::Files { after, .. })) => {
                        *after = next;
                        return Poll::Ready(this.take_written());
                    }
                    _ => drop(this.parts.pop_front()),
                }
                continue;
            }
            match this.parts.front() {
                None => return Poll::Ready(this.take_written()),
                Some(DocumentPart::Files { .. }) if this.written.len() >= TEXT_BYTES => {
                    return Poll::Ready(this.take_written());
                }
                Some(DocumentPart::Files { job, after, shown }) => {
                    let (api, caller) = (this.api.clone(), this.caller.clone());
                    let (job, shown) = (Arc::clone(job), shown.clone());
                    let written = std::mem::take(&mut this.written);
                    let read = page(api, caller, job, *after, shown, written);
                    this.reading = Some(Box::pin(read));
                }
                Some(DocumentPart::Text(_)) => {
                    if let Some(DocumentPart::Text(text)) = this.parts.pop_front() {
                        this.written.extend_from_slice(&text);
                    }
                    if this.written.len() >= TEXT_BYTES {
                        return Poll::Ready(this.take_written());
                    }
                }
            }
        }
    }
}

impl DocumentStream {
    fn take_written(&mut self) -> Option<Result<Frame<Bytes>, axum::Error>> {
        let written = std::mem::take(&mut self.written);
        (!written.is_empty()).then(|| Ok(Frame::data(written.into())))
    }
}

/// Writes the next files of a job behind `text`.
async fn page(
    api: Api,
    caller: CredentialId,
    job: Arc<JobRow>,
    after: TransferId,
    shown: FileDetail,
    mut text: Vec<u8>,
) -> Result<Page, ApiError> {
    let (reader, of) = (api.service.reader().clone(), Arc::clone(&job));
    let config = Arc::clone(&api.config);
    // Reading and writing are done together on a thread for such work: both take long for many files.
    let written = blocking(&caller, move || {
        let mut rows = reader.transfers_after(of.id, after, PAGE_FILES + 1)?;
        let next = (rows.len() > PAGE_FILES).then(|| rows.pop());
        let next = next.and_then(|_| rows.last()).map(|row| row.id);
        let bans = reader.bans()?;
        rows.iter_mut().for_each(|row| row.judge(&bans, &of.vo));
        let only = match &shown {
            FileDetail::Everything => None,
            FileDetail::Fields(fields) => {
                Some(fields.iter().map(String::as_str).collect::<Vec<_>>())
            }
            FileDetail::Explanation => return Ok(Read::ToExplain(rows, text, next)),
        };
        let objects = rows.iter().map(|row| FileObject {
            row,
            job: of.as_ref().into(),
            host: &config.host,
            only: only.as_deref(),
        });
        text.reserve(
            rows.len()
                * only
                    .as_ref()
                    .map_or(FILE_BYTES, |only| only.len() * FIELD_BYTES),
        );
        write_list(&mut text, after, objects);
        Ok::<_, JournalError>(Read::Written(Page { text, next }))
    });
    match written.await?? {
        Read::Written(page) => Ok(page),
        Read::ToExplain(rows, mut text, next) => {
            write_list(&mut text, after, explained(&api, &job, &rows).await?);
            Ok(Page { text, next })
        }
    }
}

/// What was read of a page.
enum Read {
    Written(Page),
    /// Why these wait is to be asked for; then they are written behind this text.
    ToExplain(Vec<TransferRow>, Vec<u8>, Option<TransferId>),
}

fn write_list(text: &mut Vec<u8>, after: TransferId, objects: impl IntoIterator<Item: Serialize>) {
    for (number, object) in objects.into_iter().enumerate() {
        if number > 0 || after != TransferId(0) {
            text.push(b',');
        }
        serde_json::to_writer(&mut *text, &object)
            .expect("all keys are text, and memory takes whatever is written");
    }
}

async fn explained(api: &Api, job: &JobRow, rows: &[TransferRow]) -> Result<Vec<Value>, ApiError> {
    let ids = rows.iter().map(|row| row.id).collect();
    let waiting = api.service.why_waiting(ids).await?;
    let now = penstock_clock::wall_clock();
    let both = rows.iter().zip(&waiting);
    Ok(both
        .map(|(row, waiting)| wire::explained(row, job, waiting.as_ref(), now))
        .collect())
}
