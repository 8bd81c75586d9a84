//! Rows of what other systems write: FTS3's messages, dCache's billing, XRootD's monitoring, logs of tape systems, Rucio's
//! traces, captures of `ss` and `sar`.
//!
//! Parsers are pure: bytes in, rows or an error with the line out. They read no clock and no file. What a source does not
//! tell stays unknown; what people have to add (a year, a zone) comes in [`SourceHints`].

mod captures;
mod dcache;
mod fts;
mod json;
pub mod lines;
pub mod mapping;
pub mod pcap;
mod rucio;
pub mod xrootd;

pub use lines::{InvalidLine, LineImport, Parser};
pub use mapping::{InvalidMapping, LogMapping};

use crate::records::ndjson;
use penstock_model::Timestamp;
use penstock_model::observation::{Observation, Text, View};

/// A source that is told in lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFormat {
    /// FTS3's monitoring messages: the JSON of one a line, bare or as our sinks write them.
    Fts,
    /// dCache's billing: text in its default layout, or JSON.
    Dcache,
    /// Rucio's traces and messages, a JSON a line.
    Rucio,
    /// `ss -tinm`.
    Ss,
    /// `sar -n DEV`, `sar -d`.
    Sar,
    /// Our own rows, as exported.
    Records,
}

/// What a source does not tell and people know.
#[derive(Debug, Clone, Default)]
pub struct SourceHints {
    /// The year of dates that have none.
    pub year: Option<i64>,
    /// The zone of times that have none, in milliseconds east of UTC.
    pub zone_milliseconds: i64,
    /// When a capture was made that has no time.
    pub at: Option<Timestamp>,
    /// The machine that it is of.
    pub server: Option<Text>,
    /// The data challenge that all of it is part of.
    pub challenge: Option<Text>,
    /// dCache's storage classes begin with the VO.
    pub storage_class_is_vo: bool,
}

impl LineFormat {
    /// A parser for it.
    pub fn parser(self, told: &SourceHints) -> Box<dyn Parser> {
        match self {
            LineFormat::Fts => Box::new(fts::Messages),
            LineFormat::Dcache => Box::new(dcache::BillingParser::new(told)),
            LineFormat::Rucio => Box::new(rucio::Traces),
            LineFormat::Ss => Box::new(captures::Sockets::new(told)),
            LineFormat::Sar => Box::new(captures::Activity::new(told)),
            LineFormat::Records => Box::new(OwnRows),
        }
    }
}

/// Our own rows keep the source that they name.
#[derive(Debug)]
struct OwnRows;

impl Parser for OwnRows {
    fn parse(&mut self, line: &[u8], rows: &mut Vec<Observation>) -> Result<(), String> {
        let row = ndjson::parse(line).map_err(|why| why.to_string())?;
        rows.extend(row);
        Ok(())
    }

    fn keeps_origin(&self) -> bool {
        true
    }
}

/// `https://host:port/path` as `https://host` and `/path`: a storage element as FTS names it, and the rest.
fn storage_and_path(url: &str) -> Option<(Text, Text)> {
    let (scheme, rest) = url.split_once("://")?;
    let at = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(at);
    let authority = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let host = host_of(authority);
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let is_named = !host.is_empty() && !scheme.is_empty();
    is_named.then(|| (format!("{scheme}://{host}").into(), path.into()))
}

/// `host:port` or `[::1]:port` without the port.
fn host_of(authority: &str) -> &str {
    if authority.starts_with('[') {
        let end = authority.find(']').map_or(authority.len(), |at| at + 1);
        return &authority[..end];
    }
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.contains(':') =>
        {
            host
        }
        _ => authority,
    }
}

/// Marks an attempt with what people told of all of its source.
fn with_challenge(row: &mut Observation, challenge: Option<&Text>) {
    if let (Observation::Attempt(attempt), Some(challenge)) = (row, challenge) {
        attempt.challenge.get_or_insert_with(|| challenge.clone());
    }
}

/// A failure's text and what it has in common with others of its kind.
fn fingerprint_of(side: Option<penstock_model::Side>, code: Option<i64>, detail: &str) -> Text {
    let scope = side.map_or("UNKNOWN", penstock_model::Side::fts_scope);
    let code = code.map_or_else(|| "-".to_owned(), |code| code.to_string());
    let text = penstock_model::failure_text::without_particulars(detail);
    format!("{scope} [{code}] {text}").into()
}

const SITE: View = View::Site;

#[cfg(test)]
mod tests;
