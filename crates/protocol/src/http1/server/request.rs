//! What a request says, and why one is refused.

use crate::http1::body::BodyLength;
use http::{HeaderMap, Method, StatusCode};
use std::io;
use std::net::SocketAddr;
use thiserror::Error;

/// A request's head.
#[derive(Debug, Clone)]
pub struct Request {
    /// Any token, so that the methods of WebDAV are there.
    pub method: Method,
    /// As the client sent it: still percent-encoded, with its query.
    pub target: String,
    /// With lower-case names.
    pub headers: HeaderMap,
    /// How the body ends.
    pub body: BodyLength,
}

impl Request {
    /// The target's path, still percent-encoded, without query. Also that of an absolute target (RFC 9112
    /// §3.2.2).
    pub fn path(&self) -> &str {
        let target = self.target.split(['?', '#']).next().unwrap_or_default();
        match target.split_once("://") {
            Some((scheme, rest)) if !scheme.contains('/') => {
                rest.find('/').map_or("/", |at| &rest[at..])
            }
            Some(_) | None => target,
        }
    }

    /// What follows the first `?`, still percent-encoded.
    pub fn query(&self) -> Option<&str> {
        let target = self.target.split('#').next().unwrap_or_default();
        target.split_once('?').map(|(_, query)| query)
    }
}

/// Why there is no next request. The client was answered where that made sense; drop the connection.
#[derive(Debug, Error)]
pub enum RequestError {
    /// What came is no request that can be accepted.
    #[error("request of {peer} refused with {status}: {why}")]
    Refused {
        /// The client.
        peer: SocketAddr,
        /// What it was answered.
        status: StatusCode,
        why: String,
    },
    /// The connection ended or failed in the middle of a head.
    #[error("{peer} went away in the middle of a request: {why}")]
    Broken {
        /// The client.
        peer: SocketAddr,
        why: io::Error,
    },
}
