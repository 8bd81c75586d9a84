//! What monitors ask a door: `/.penstock/metrics`, `/.penstock/health`, `/.penstock/health/live` and
//! `/.penstock/health/ready`; and the same without `/.penstock`, whatever users left there.

use super::answer::{Problem, Response};
use super::caller::Caller;
use super::handler_context::Door;
use super::reserved;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, StatusCode};
use penstock_model::{NamespacePath, ProblemCode};
use penstock_protocol::http1::server::Request;
use penstock_protocol::monitoring::Question;
use std::sync::Arc;

/// What a reserved path asks, whether or not a monitor is there to answer.
pub(super) fn reserved_question(path: &NamespacePath) -> Option<Question> {
    Question::of(reserved::rest_of(path)?)
}

impl Door {
    /// The answer, when it is a monitor's question.
    pub(super) async fn tell_monitor(
        &self,
        request: &Request,
        path: &NamespacePath,
        caller: &Caller,
    ) -> Result<Option<Response>, Problem> {
        let Some(monitor) = &self.monitor else {
            return Ok(None);
        };
        let reads = request.method == Method::GET || request.method == Method::HEAD;
        let question = match reserved_question(path) {
            Some(_) if !reads => {
                let text = format!("{path} belongs to the door and can only be read");
                return Err(Problem::method_of(reserved::READ_ONLY, text));
            }
            Some(question) => question,
            None => match Question::of(path.names()).filter(|_| reads) {
                Some(question) => question,
                None => return Ok(None),
            },
        };
        let (monitor, viewer) = (Arc::clone(monitor), caller.viewer());
        let told = tokio::task::spawn_blocking(move || monitor.answer(question, &viewer)).await;
        let told = told.map_err(|why| {
            let text = format!("the answer could not be made: {why}");
            Problem::new(ProblemCode::InternalError, text)
        })?;
        let mut answer = Response::new(told.status)
            .with(CONTENT_TYPE, HeaderValue::from_static(told.media_type))
            .with(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if told.status == StatusCode::UNAUTHORIZED {
            // RFC 6750 §3.
            answer = answer.with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer.body = told.body.into_bytes();
        Ok(Some(answer))
    }
}
