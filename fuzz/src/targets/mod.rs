//! What is fuzzed: for each parser of hostile bytes what must hold whatever comes, and inputs to begin with. Shared by
//! the fuzzer, which looks for inputs with coverage, and by a test of `cli`, which tries some at every change.

mod answers;
mod broker;
mod certificate;
mod copy;
mod delegation;
mod digest;
mod gfal;
mod http1;
mod jobs;
mod kept;
mod macaroon;
mod names;
mod ranges;
mod records;
mod site;
mod tape;
mod token;
mod webdav;
mod webdav_changes;

use http::{HeaderMap, HeaderName, HeaderValue};

/// One thing to be fuzzed.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Panics when something does not hold for these bytes.
    pub check: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const ALL: &[Target] = &[
    answers::TAPE,
    answers::ISSUERS,
    answers::CLOUDS,
    broker::STOMP,
    broker::NATS,
    certificate::CHAINS,
    certificate::FILES,
    certificate::ATTRIBUTES,
    copy::HEADERS,
    copy::MARKERS,
    delegation::PROXIES,
    delegation::KEYS,
    digest::TARGET,
    gfal::REPORTS,
    gfal::ORDERS,
    http1::TARGET,
    jobs::SUBMISSIONS,
    jobs::FRAMES,
    jobs::ROWS,
    kept::BACKUPS,
    kept::SEALED,
    kept::IMPORTS,
    kept::PLANS,
    kept::REFUSALS,
    macaroon::TARGET,
    macaroon::REQUESTS,
    names::URLS,
    names::HOSTS,
    names::HIDDEN,
    names::FILES,
    ranges::ASKED,
    ranges::TOLD,
    records::FTS,
    records::DCACHE,
    records::RUCIO,
    records::CAPTURES,
    records::MAPPED,
    records::XROOTD,
    records::FILES,
    site::DOCUMENTS,
    tape::ORDERS,
    token::TEXTS,
    token::CLAIMS,
    webdav::ASKED,
    webdav::TOLD,
    webdav_changes::KEPT,
    webdav_changes::LOCKS,
    webdav_changes::CONDITIONS,
];

/// Lines `name: value` as headers; what cannot be one is left out.
fn headers(data: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in data.split(|byte| *byte == b'\n').take(64) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn texts(seeds: &[&str]) -> Vec<Vec<u8>> {
    seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect()
}
