//! What storage elements list. A server decides how much that is, so each part of it has a bound.

use super::{Remote, at_path, is_strong, method, path_of};
use crate::remote_error::RemoteError;
use http::header::{CONTENT_TYPE, DATE};
use http::{HeaderName, HeaderValue};
use penstock_clock::wall_clock;
use penstock_model::url::redact;
use penstock_model::{Bytes, Locality, Timestamp};
use penstock_protocol::http1::client::{ClientError, ClientResponse};
use penstock_protocol::webdav::{self, InvalidXml, PropfindEntry};
use serde::Serialize;
use std::time::Duration;
use url::Url;

/// Bytes of one directory listing: about 200,000 entries.
const LISTING_BYTES_MAX: u64 = 128 << 20;
/// Bytes of listings of which many are read at once.
const SHORT_BYTES_MAX: u64 = 8 << 20;
/// Characters that are shown of an `href` that is no path.
const HREF_CHARS_MAX: usize = 300;
/// So old is the last change of a file that is told from a later one by size and time.
const DISTINCT_AFTER: Duration = Duration::from_secs(5);

/// An entry of the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Info {
    pub url: String,
    /// Its last name; `/` for the root.
    pub name: String,
    /// Directory or file.
    pub is_directory: bool,
    /// Size of a file.
    pub size_bytes: Option<Bytes>,
    /// Last change.
    pub modified: Option<Timestamp>,
    /// Where the bytes of a file are; `None`: it was not asked for, or the server does not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// The version of a file, when it is a strong one.
    #[serde(skip)]
    pub etag: Option<String>,
    /// When its server told this, by its own clock; by ours where it tells no time.
    #[serde(skip)]
    pub told_at: Timestamp,
}

impl Info {
    /// Whether a later look found the same file.
    pub fn is_same_file(&self, later: &Info) -> bool {
        let told = |info: &Info| (info.size_bytes, info.modified, info.etag.clone());
        !self.is_directory && !later.is_directory && told(self) == told(later)
    }

    /// Why a later look might take another file for this one; `None`: it would not. Times of servers have whole seconds, so that
    /// a file that has just changed may change again without a trace.
    pub fn why_not_distinct(&self) -> Option<&'static str> {
        if self.etag.is_some() {
            return None;
        }
        match (self.size_bytes, self.modified) {
            (Some(_), Some(modified)) if modified + DISTINCT_AFTER <= self.told_at => None,
            (Some(_), Some(_)) => Some(
                "it had changed only seconds before, and the server reports no version of it; run the same command again",
            ),
            (_, _) => Some(
                "the server reports neither its version nor both its size and its time of change",
            ),
        }
    }
}

/// An entry of a listing that is neither known to be a file nor a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableEntry {
    /// As the server wrote it, or the beginning of that.
    pub href: String,
    pub why: String,
}

impl UnusableEntry {
    /// As an error of the directory in which it is listed.
    pub fn problem(&self, directory: &Url) -> RemoteError {
        let UnusableEntry { href, why } = self;
        RemoteError::nonsense(directory, format!("it lists '{href}', {why}"))
    }
}

/// What is in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Sorted by name.
    pub entries: Vec<Info>,
    /// What the server lists and nothing can be said of.
    pub unusable: Vec<UnusableEntry>,
}

/// The entries of an answer, and when they were told.
pub(super) struct ToldEntries {
    pub entries: Vec<PropfindEntry>,
    at: Timestamp,
}

impl Remote {
    /// One entry, by PROPFIND of depth 0. Its name is the one that was asked for, never one that the server chooses.
    pub async fn stat(&self, url: &Url) -> Result<Info, RemoteError> {
        let found = self.propfind(url, "0", self.question).await?;
        entry_of(url, &found)
    }

    /// What is in a directory, by PROPFIND of depth 1. A file gives itself.
    ///
    /// Errors: the listing does not have the directory itself, so that nobody knows whether it is whole.
    pub async fn list(&self, url: &Url) -> Result<Listing, RemoteError> {
        let found = self.propfind(url, "1", self.question).await?;
        listing_of(url, &found)
    }

    /// Asks for properties. A long answer waits until no other long one is in memory: a server decides how much it lists.
    pub(super) async fn propfind(
        &self,
        url: &Url,
        depth: &'static str,
        question: &str,
    ) -> Result<ToldEntries, RemoteError> {
        let mut request = self.request(method("PROPFIND"), url)?;
        request.headers.insert(
            HeaderName::from_static("depth"),
            HeaderValue::from_static(depth),
        );
        request
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        let answer = self.client.send_bytes(request, question.as_bytes()).await?;
        let mut answer = self.expect_success(url, answer).await?;
        let date = answer.headers.get(DATE).and_then(|date| date.to_str().ok());
        let at = date.and_then(webdav::parse_http_date);
        let mut body = Vec::new();
        read_up_to(&mut answer, SHORT_BYTES_MAX, &mut body).await?;
        let _turn = match body.len() as u64 > SHORT_BYTES_MAX {
            true => Some(self.long_listing.lock().await),
            false => None,
        };
        read_up_to(&mut answer, LISTING_BYTES_MAX, &mut body).await?;
        if body.len() as u64 > LISTING_BYTES_MAX {
            return Err(RemoteError::from(ClientError::TooLong {
                url: redact(url.as_str()),
                limit: LISTING_BYTES_MAX,
            }));
        }
        let entries = webdav::parse_multistatus(&body);
        let nonsense = |why: InvalidXml| RemoteError::nonsense(url, why.to_string());
        Ok(ToldEntries {
            entries: entries.map_err(nonsense)?,
            at: at.unwrap_or_else(wall_clock),
        })
    }
}

/// Reads until more than so many bytes are there, or the body ends.
async fn read_up_to(
    answer: &mut ClientResponse,
    bytes_max: u64,
    body: &mut Vec<u8>,
) -> Result<(), RemoteError> {
    let mut piece = vec![0; 64 << 10];
    while body.len() as u64 <= bytes_max {
        match answer.read(&mut piece).await? {
            0 => break,
            count => body.extend_from_slice(&piece[..count]),
        }
    }
    Ok(())
}

/// What a listing tells of the path that was asked for.
fn entry_of(asked: &Url, told: &ToldEntries) -> Result<Info, RemoteError> {
    let path = path_of(asked)?;
    let mut own = told
        .entries
        .iter()
        .filter(|entry| entry.path.as_ref() == Some(&path));
    let info = match own.next() {
        Some(entry) => match failure_of(entry) {
            Some(why) => return Err(own_failure(asked, &why)),
            None => info_of(asked, entry, told.at),
        },
        None => None,
    };
    info.ok_or_else(|| {
        let detail = match told.entries.first() {
            Some(other) => format!(
                "the listing names '{}' and not what was asked for",
                shown_href(&other.href)
            ),
            None => "the listing has no entry".to_owned(),
        };
        RemoteError::nonsense(asked, detail)
    })
}

fn listing_of(asked: &Url, told: &ToldEntries) -> Result<Listing, RemoteError> {
    let own = path_of(asked)?;
    let mut listing = Listing::default();
    let mut has_own = false;
    for entry in &told.entries {
        let is_own = entry.path.as_ref() == Some(&own);
        let found = match (failure_of(entry), info_of(asked, entry, told.at)) {
            (Some(why), _) if is_own => return Err(own_failure(asked, &why)),
            (Some(why), _) => Err(format!("of which it says: {why}")),
            (None, None) => Err("which is not a valid path".to_owned()),
            (None, Some(info)) => Ok(info),
        };
        has_own |= is_own;
        match found {
            Ok(info) if is_own && info.is_directory => {}
            Ok(info) => listing.entries.push(info),
            Err(why) => {
                let href = shown_href(&entry.href);
                listing.unusable.push(UnusableEntry { href, why });
            }
        }
    }
    if !has_own {
        let detail = "the listing does not have the directory itself, so it may not be complete";
        return Err(RemoteError::nonsense(asked, detail));
    }
    listing.entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(listing)
}

/// Why nothing is known of an entry (RFC 4918 §9.1, §14.24).
fn failure_of(entry: &PropfindEntry) -> Option<String> {
    match entry.status {
        Some(status) if !(200..300).contains(&status) => Some(format!("status {status}")),
        _ if !entry.has_properties => Some("no properties".to_owned()),
        _ => None,
    }
}

fn own_failure(asked: &Url, why: &str) -> RemoteError {
    RemoteError::nonsense(asked, format!("its own entry in the listing has {why}"))
}

/// `None`: it has no path that could be asked for.
fn info_of(asked: &Url, entry: &PropfindEntry, at: Timestamp) -> Option<Info> {
    let path = entry.path.as_ref()?;
    Some(Info {
        url: at_path(asked, path).to_string(),
        name: path.name().unwrap_or("/").to_owned(),
        is_directory: entry.is_directory,
        size_bytes: entry.size.filter(|_| !entry.is_directory),
        modified: entry.modified,
        locality: entry.locality.filter(|_| !entry.is_directory),
        etag: entry.etag.clone().filter(|etag| is_strong(etag)),
        told_at: at,
    })
}

/// The beginning of what a server wrote in the place of a path.
fn shown_href(href: &str) -> String {
    match href.char_indices().nth(HREF_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &href[..end]),
        None => href.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{TestReply, TestServer};

    fn told(text: &str) -> ToldEntries {
        let entries = webdav::parse_multistatus(text.as_bytes());
        ToldEntries {
            entries: entries.expect("readable"),
            at: Timestamp(0),
        }
    }

    #[test]
    fn a_listing_is_whole_with_the_directory_itself_and_knows_what_it_lists() {
        let asked = Url::parse("https://se/d/").expect("a URL");
        let known = |href: &str, kind: &str| {
            format!(
                "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}</D:resourcetype></D:prop>\
                 <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
            )
        };
        let own = known("/d", "<D:collection/>");
        let listed = |responses: &str| {
            let text = format!("<D:multistatus xmlns:D=\"DAV:\">{responses}</D:multistatus>");
            listing_of(&asked, &told(&text)).map(|listing| {
                let names = listing.entries.into_iter().map(|info| info.name);
                (names.collect::<Vec<_>>(), listing.unusable.len())
            })
        };
        let whole = own.clone() + &known("/d/f", "");
        assert_eq!(listed(&whole).expect("whole"), (vec!["f".to_owned()], 0));
        assert_eq!(listed(&known("/d", "")).expect("a file").0, ["d"]);
        for nothing in ["", &known("/d/f", "")] {
            let why = listed(nothing).expect_err("who knows").to_string();
            assert!(why.contains("not have the directory itself"), "{why}");
        }
        let status = "<D:status>HTTP/1.1 500 Error</D:status>";
        let failed = format!("<D:response><D:href>/d/sub</D:href>{status}</D:response>");
        let denied = format!(
            "<D:response><D:href>/d/sub</D:href><D:propstat><D:prop><D:resourcetype/></D:prop>{status}</D:propstat>\
             </D:response>"
        );
        for unknown in [failed, denied] {
            assert_eq!(listed(&(own.clone() + &unknown)).expect("told").1, 1);
            let itself = unknown.replace("/d/sub", "/d");
            let why = listed(&itself).expect_err("no directory").to_string();
            assert!(why.contains("its own entry"), "{why}");
        }
    }

    #[tokio::test]
    async fn one_long_listing_is_in_memory_and_many_short_ones() {
        let server = TestServer::start(|request| {
            let mut reply = TestReply::listing([request.path.as_str()]);
            if request.path == "/long/" {
                let blanks = usize::try_from(SHORT_BYTES_MAX).expect("it fits");
                reply.body.resize(reply.body.len() + blanks, b' ');
            }
            reply
        })
        .await;
        let remote = server.remote();
        let turn = remote.long_listing.lock().await;
        let (long, short) = (server.url("/long/"), server.url("/short/"));
        let waiting = remote.list(&long);
        tokio::pin!(waiting);
        remote.list(&short).await.expect("short");
        let early = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
        assert!(early.is_err(), "it waits for its turn");
        drop(turn);
        waiting.await.expect("listed");
    }

    #[test]
    fn a_file_is_told_from_a_later_one_by_its_version_or_an_old_change() {
        let info = |modified: Option<i64>, etag: Option<&str>| Info {
            url: String::new(),
            name: "f".to_owned(),
            is_directory: false,
            size_bytes: Some(Bytes(1)),
            modified: modified.map(Timestamp),
            locality: None,
            etag: etag.map(str::to_owned),
            told_at: Timestamp(100_000),
        };
        let why = |info: Info| info.why_not_distinct().unwrap_or_default();
        assert_eq!(why(info(Some(100_000), Some("\"1\""))), "");
        assert_eq!(why(info(Some(95_000), None)), "");
        assert!(why(info(Some(96_000), None)).contains("only seconds before"));
        assert!(why(info(Some(200_000), None)).contains("only seconds before"));
        assert!(why(info(None, None)).contains("neither its version"));
        let unsized_ = Info {
            size_bytes: None,
            ..info(Some(0), None)
        };
        assert!(why(unsized_).contains("neither its version"));
    }

    #[test]
    fn a_server_does_not_choose_the_name_of_what_was_asked_for() {
        let asked = Url::parse("https://se/pub/read%20me/").expect("a URL");
        let listed = |hrefs: &[&str]| {
            let response = |href: &&str| {
                format!("<D:response><D:href>{href}</D:href><D:propstat/></D:response>")
            };
            let responses: String = hrefs.iter().map(response).collect();
            let text = format!("<D:multistatus xmlns:D=\"DAV:\">{responses}</D:multistatus>");
            entry_of(&asked, &told(&text)).map(|info| info.name)
        };
        for own in [
            &["/pub/read%20me"] as &[&str],
            &["https://se/pub/read%20me/"],
            &["/pub/read%20me/x", "/pub/read%20me"],
        ] {
            assert_eq!(listed(own).expect("it is there"), "read me");
        }
        for (other, expected) in [
            (
                &["/pub/.bash_profile"] as &[&str],
                "names '/pub/.bash_profile' and not what",
            ),
            (&["/pub/"], "names '/pub/' and not what"),
            (&[], "has no entry"),
        ] {
            let why = listed(other).expect_err("another name").to_string();
            assert!(why.contains(expected), "{why}");
        }
    }
}
