//! Request bodies that are documents, not files: read whole, within a bound.

use super::answer::Problem;
use penstock_model::ProblemCode;
use penstock_protocol::http1::server::{BodyLength, Connection};

/// The body of a request, at most `bytes_max` long (413). The connection bounds the time between its bytes.
pub(super) async fn read_body(
    connection: &mut Connection,
    method: &str,
    bytes_max: usize,
) -> Result<Vec<u8>, Problem> {
    let mut body = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match connection.read_body(&mut buffer).await {
            Ok(0) => return Ok(body),
            Ok(count) => body.extend_from_slice(&buffer[..count]),
            Err(why) => return Err(Problem::bad_request(why.to_string())),
        }
        if body.len() > bytes_max {
            return Err(body_too_large(method, bytes_max));
        }
    }
}

/// 413: it may have so many bytes.
pub(super) fn body_too_large(method: &str, bytes_max: usize) -> Problem {
    Problem::new(
        ProblemCode::BodyTooLarge,
        format!("the body of {method} is limited to {bytes_max} bytes"),
    )
}

/// Bytes of a body, where its head tells.
pub(super) fn known_length(body: &BodyLength) -> Option<u64> {
    match body {
        BodyLength::Empty => Some(0),
        BodyLength::Fixed(length) => Some(*length),
        BodyLength::Chunked => None,
    }
}
