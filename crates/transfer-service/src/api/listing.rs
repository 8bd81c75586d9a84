//! Answers that list the files of jobs, made page by page while the client takes them: a job may have a hundred
//! thousand files, a request may name a thousand jobs, and what a client does not read must not be in memory.
//!
//! The pages are of different instants; each file is shown as it is when its page is made.

use super::jobs::blocking;
use super::{Api, ApiError, wire};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use penstock_model::TransferId;
use penstock_persistence::journal::{JobRow, JournalError, TransferRow};
use serde_json::{Map, Value};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Files of one page.
const PAGE_FILES: usize = 100;

/// What is shown of each file.
#[derive(Debug, Clone)]
pub(super) enum Shown {
    /// The whole file object.
    Everything,
    /// Some of its fields.
    Fields(Arc<[String]>),
    /// Why it waits, or how it ended.
    Explanation,
}

/// A part of an answer.
enum Part {
    Text(Vec<u8>),
    /// The file objects of a job from the one after a number on, with commas between.
    Files {
        job: Arc<JobRow>,
        after: TransferId,
        shown: Shown,
    },
}

/// A JSON document that is written while it is sent.
#[derive(Default)]
pub(super) struct Document {
    parts: VecDeque<Part>,
}

impl Document {
    pub(super) fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if let Some(Part::Text(last)) = self.parts.back_mut() {
            last.extend_from_slice(text.as_bytes());
        } else {
            self.parts.push_back(Part::Text(text.into()));
        }
    }

    /// The job's files as a list.
    pub(super) fn files(&mut self, job: JobRow, shown: Shown) {
        self.text("[");
        self.parts.push_back(Part::Files {
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
        shown: Shown,
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

    pub(super) fn answer(mut self, status: StatusCode, api: &Api) -> Response {
        let body = match (self.parts.pop_front(), self.parts.is_empty()) {
            (None, _) => Body::empty(),
            (Some(Part::Text(whole)), true) => Body::from(whole),
            (Some(first), _) => {
                self.parts.push_front(first);
                Body::new(Sending {
                    api: api.clone(),
                    parts: self.parts,
                    reading: None,
                })
            }
        };
        (status, [(CONTENT_TYPE, "application/json")], body).into_response()
    }
}

type Reading = Pin<Box<dyn Future<Output = Result<Page, ApiError>> + Send>>;

/// Some files, written.
struct Page {
    text: Vec<u8>,
    /// Where the next page begins; `None` after the last.
    next: Option<TransferId>,
}

/// A document on its way.
struct Sending {
    api: Api,
    parts: VecDeque<Part>,
    reading: Option<Reading>,
}

impl HttpBody for Sending {
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
                        return Poll::Ready(Some(Err(axum::Error::new(why.message))));
                    }
                };
                match (page.next, this.parts.front_mut()) {
                    (Some(next), Some(Part::Files { after, .. })) => *after = next,
                    _ => drop(this.parts.pop_front()),
                }
                if !page.text.is_empty() {
                    return Poll::Ready(Some(Ok(Frame::data(page.text.into()))));
                }
                continue;
            }
            match this.parts.front() {
                None => return Poll::Ready(None),
                Some(Part::Files { job, after, shown }) => {
                    let (api, job) = (this.api.clone(), Arc::clone(job));
                    this.reading = Some(Box::pin(page(api, job, *after, shown.clone())));
                }
                Some(Part::Text(_)) => {
                    if let Some(Part::Text(text)) = this.parts.pop_front() {
                        return Poll::Ready(Some(Ok(Frame::data(text.into()))));
                    }
                }
            }
        }
    }
}

async fn page(
    api: Api,
    job: Arc<JobRow>,
    after: TransferId,
    shown: Shown,
) -> Result<Page, ApiError> {
    let (reader, id) = (api.service.reader().clone(), job.id);
    let (mut rows, bans) = blocking(move || {
        let rows = reader.transfers_after(id, after, PAGE_FILES)?;
        Ok::<_, JournalError>((rows, reader.bans()?))
    })
    .await??;
    rows.iter_mut().for_each(|row| row.judge(&bans, &job.vo));
    let values: Vec<Value> = match &shown {
        Shown::Everything => {
            let object =
                |row| Value::Object(wire::file(row, job.as_ref().into(), &api.config.host));
            rows.iter().map(object).collect()
        }
        Shown::Fields(fields) => {
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            let select = |row| {
                wire::select(
                    wire::file(row, job.as_ref().into(), &api.config.host),
                    &fields,
                )
            };
            rows.iter().map(select).collect()
        }
        Shown::Explanation => explained(&api, &job, &rows).await?,
    };
    let mut text = Vec::new();
    for (number, value) in values.iter().enumerate() {
        if number > 0 || after != TransferId(0) {
            text.push(b',');
        }
        serde_json::to_writer(&mut text, value).map_err(|why| {
            tracing::error!(%why, job = %id, "a file cannot be shown");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "a file cannot be shown")
        })?;
    }
    let last = rows.last().map(|row| row.id);
    Ok(Page {
        text,
        next: last.filter(|_| rows.len() == PAGE_FILES),
    })
}

async fn explained(api: &Api, job: &JobRow, rows: &[TransferRow]) -> Result<Vec<Value>, ApiError> {
    let ids = rows.iter().map(|row| row.id).collect();
    let waiting = api.service.why_waiting(ids).await?;
    let now = crate::run::wall_clock();
    let both = rows.iter().zip(&waiting);
    Ok(both
        .map(|(row, waiting)| wire::explained(row, job, waiting.as_ref(), now))
        .collect())
}
