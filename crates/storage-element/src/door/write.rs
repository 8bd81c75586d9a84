//! PUT: a file from the client.

use super::answer::{Problem, Reply, Response};
use super::conditions::etag;
use super::document_body::known_length;
use super::handler_context::{Call, Door};
use super::slot::NoMover;
use super::wanted_digest::WantedDigest;
use super::write_ticket::{
    AbsenceDemand, FileFacts, FileWrite, WriteConditions, WritePurpose, WriteRequest,
};
use crate::mover::Mover;
use crate::pool_messages::StoredFile;
use crate::receive::{Patience, ReceiveError, receive};
use http::header::{CONTENT_RANGE, ETAG};
use http::{HeaderMap, StatusCode};
use penstock_model::{Checksum, ProblemCode};
use penstock_persistence::namespace::MoverOutcome;
use penstock_protocol::digest;
use penstock_protocol::http1::server::{BodyError, Connection};
use penstock_protocol::pace::PaceLimit;

pub(super) async fn put(
    door: &Door,
    connection: &mut Connection,
    call: &Call<'_>,
) -> Result<Reply, Problem> {
    let Call {
        request,
        caller,
        path,
    } = *call;
    let headers = &request.headers;
    let write = WriteRequest {
        door,
        caller,
        path,
        encoded: Some(request.path()),
        purpose: WritePurpose::File,
        absence: AbsenceDemand::of(headers),
    };
    let target = write.authorize()?.target()?;
    if headers.contains_key(CONTENT_RANGE) {
        // RFC 9110 §14.5: a server that does not do partial PUTs must not take one for a whole.
        let text = "PUT with 'Content-Range' is not supported; send the whole file";
        return Err(Problem::bad_request(text));
    }
    let expected = digest::parse(headers).map_err(|why| Problem::bad_request(why.to_string()))?;
    let size = known_length(&request.body);
    let terms = target.conditions(WriteConditions::Request(call))?;
    let ticket = terms.claim()?.locks(call)?;
    let place = ticket.pool(size.or_else(|| announced_length(headers)))?;
    let slot = place.slot_for_body(connection).await;
    let slot = slot.map_err(|why| match why {
        NoMover::Body(why) => body_problem(why),
        NoMover::Refused(problem) => problem,
    })?;
    let wanted = WantedDigest::of(headers);
    let sum = wanted.map(WantedDigest::algorithm);
    let FileWrite {
        file,
        mut mover,
        absence,
    } = slot.open(FileFacts {
        size,
        algorithms: expected
            .iter()
            .map(Checksum::algorithm)
            .chain(sum)
            .collect(),
        properties_of: None,
    });
    let patience = Patience {
        stall: door.storage.settings().limits.stall_timeout,
        // The connection judges its client itself.
        pace: PaceLimit::NONE,
    };
    let stored = receive(connection, file, &mut mover, patience, expected).await;
    mover.tcp = connection.tcp_info();
    answer(mover, stored, wanted, absence)
}

/// What the client of macOS says of the length of a body that it sends in chunks. It is believed only as far as the pool
/// is chosen by it.
fn announced_length(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get("x-expected-entity-length")?;
    value.to_str().ok()?.trim().parse().ok()
}

/// Ends the mover and tells the client how it went.
fn answer(
    mover: Mover,
    stored: Result<StoredFile, ReceiveError<BodyError>>,
    wanted: Option<WantedDigest>,
    absence: AbsenceDemand,
) -> Result<Reply, Problem> {
    match stored {
        Ok(stored) => {
            mover.end(MoverOutcome::Done);
            Ok(stored_answer(&stored, wanted).into())
        }
        Err(ReceiveError::Write(error)) => {
            mover.end(MoverOutcome::Failed(error.to_string()));
            Err(absence.write_problem(&error))
        }
        Err(ReceiveError::Source(error)) => {
            let problem = body_problem(error);
            mover.end(MoverOutcome::Aborted(problem.cause.message.clone()));
            Err(problem)
        }
        Err(ReceiveError::Slow(why)) => {
            let problem = body_problem(BodyError::TooSlow(why));
            mover.end(MoverOutcome::Aborted(problem.cause.message.clone()));
            Err(problem)
        }
        Err(ReceiveError::Preempted(why)) => {
            let problem = Problem::preempted(&why);
            mover.end(MoverOutcome::Aborted(problem.cause.message.clone()));
            Err(problem)
        }
    }
}

/// The file is there: its tag, and the digest that is wanted.
pub(super) fn stored_answer(stored: &StoredFile, wanted: Option<WantedDigest>) -> Response {
    let status = match stored.replaced {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::CREATED,
    };
    let mut answer = Response::new(status).with(ETAG, etag(stored.id));
    if let Some(wanted) = wanted {
        let mut sums = stored.checksums.iter();
        if let Some(sum) = sums.find(|sum| sum.algorithm() == wanted.algorithm()) {
            let (name, value) = wanted.header(sum);
            answer.headers.insert(name, value);
        }
    }
    answer
}

/// The body did not come as it should.
fn body_problem(error: BodyError) -> Problem {
    let text = format!("{error}; the partial file was removed");
    Problem::new(body_code(&error), text)
}

pub(super) fn body_code(error: &BodyError) -> ProblemCode {
    match error {
        BodyError::Stalled { .. } | BodyError::TooSlow(_) => ProblemCode::BodyTimeout,
        BodyError::TooShort { .. } | BodyError::Malformed(_) | BodyError::Io(_) => {
            ProblemCode::BodyIncomplete
        }
    }
}
