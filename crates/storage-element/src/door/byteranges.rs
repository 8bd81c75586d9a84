//! Several parts of a file in one answer: `multipart/byteranges` (RFC 9110 §14.6).
//!
//! The pieces are read into memory and sent as chunks: such requests ask for many small parts, for which
//! `sendfile` would gain nothing.

use crate::clock::microseconds;
use crate::mover::Mover;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use penstock_protocol::http1::server::Connection;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// Bytes that are read at once, and that small parts are gathered to before they are sent.
const PIECE_BYTES: u64 = 256 << 10;

/// `bytes 0-9/100`. The range must not be empty.
pub(super) fn content_range(range: &Range<u64>, size: u64) -> HeaderValue {
    let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
    HeaderValue::from_str(&text).expect("digits are visible ASCII")
}

/// Answers 206 with these parts.
///
/// Errors: the client takes nothing more, or the file ends early; then the answer stays without its end, so
/// that the client does not take it for whole.
pub(super) async fn send(
    connection: &mut Connection,
    mover: &mut Mover,
    mut headers: HeaderMap,
    file: File,
    parts: &[Range<u64>],
    size: u64,
) -> io::Result<()> {
    // Random, so that no file can hold it by intent (RFC 2046 §5.1.1).
    let boundary = Uuid::new_v4().simple().to_string();
    let part_type = headers.remove(CONTENT_TYPE);
    let part_type = part_type.as_ref().and_then(|value| value.to_str().ok());
    let part_type = part_type.unwrap_or("application/octet-stream").to_owned();
    let whole_type = format!("multipart/byteranges; boundary={boundary}");
    let whole_type = HeaderValue::from_str(&whole_type).expect("visible ASCII");
    headers.insert(CONTENT_TYPE, whole_type);
    connection
        .start_chunked(StatusCode::PARTIAL_CONTENT, headers)
        .await?;
    let file = Arc::new(file);
    let mut out = Vec::with_capacity(2 * PIECE_BYTES as usize);
    for part in parts {
        let told = content_range(part, size);
        let told = told.to_str().unwrap_or_default();
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: {part_type}\r\nContent-Range: {told}\r\n\r\n"
        );
        out.extend_from_slice(head.as_bytes());
        let mut at = part.start;
        while at < part.end {
            let length = (part.end - at).min(PIECE_BYTES);
            let started = Instant::now();
            out = append(&file, out, at, length).await?;
            mover.clocks.source_read_us += microseconds(started.elapsed());
            mover.moved(length);
            at += length;
            if out.len() as u64 >= PIECE_BYTES {
                write(connection, mover, &mut out).await?;
            }
        }
    }
    out.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    write(connection, mover, &mut out).await?;
    connection.end_chunks().await
}

async fn write(
    connection: &mut Connection,
    mover: &mut Mover,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let started = Instant::now();
    connection.write_chunk(out).await?;
    mover.clocks.network_us += microseconds(started.elapsed());
    out.clear();
    Ok(())
}

/// Reads bytes of the file behind those in `out`, off the async threads.
async fn append(file: &Arc<File>, mut out: Vec<u8>, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let file = Arc::clone(file);
    let read = tokio::task::spawn_blocking(move || {
        let filled = out.len();
        out.resize(filled + length as usize, 0);
        file.read_exact_at(&mut out[filled..], at)?;
        Ok(out)
    });
    read.await.unwrap_or_else(|why| Err(io::Error::other(why)))
}
