//! Whether two servers are two names of one. Aliases, addresses and further ports lead to the same files, and who removes
//! or replaces a copy there must know that it is not the original.

use crate::remote::{Info, Remote, at_path, path_of};
use crate::remote_error::RemoteError;
use penstock_model::NamespacePath;
use std::collections::BTreeMap;
use url::Url;

/// What is known of the servers of two URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerIdentity {
    /// They lead to the same files.
    Same,
    /// They say that they belong to different storages.
    Distinct,
    /// Nothing speaks for one.
    Unknown,
}

impl ServerIdentity {
    /// Asks both servers. Where they do not say to which storage they belong, one that has the same at the path that is
    /// given counts as the same; without a path nothing is compared.
    pub async fn find(
        remote: &Remote,
        [one, other]: [&Url; 2],
        path: Option<&NamespacePath>,
    ) -> Result<ServerIdentity, RemoteError> {
        let told = (remote.storage_id(one).await, remote.storage_id(other).await);
        // Who cannot answer this may still answer the rest.
        if let (Ok(Some(one)), Ok(Some(other))) = told {
            return Ok(match one == other {
                true => ServerIdentity::Same,
                false => ServerIdentity::Distinct,
            });
        }
        let Some(path) = path else {
            return Ok(ServerIdentity::Unknown);
        };
        let here = list(remote, &at_path(one, path)).await?;
        let there = list(remote, &at_path(other, path)).await?;
        Ok(match are_same(&here, &there) {
            true => ServerIdentity::Same,
            false => ServerIdentity::Unknown,
        })
    }
}

/// The deeper one of two places of which one is within the other, as on one server: what a token allows at the other place
/// covers it.
pub fn overlap(one: &Url, other: &Url) -> Result<Option<NamespacePath>, RemoteError> {
    let (one, other) = (path_of(one)?, path_of(other)?);
    Ok(match (one.is_within(&other), other.is_within(&one)) {
        (true, _) => Some(one),
        (false, true) => Some(other),
        (false, false) => None,
    })
}

/// What is at a place; nothing where nobody may look.
async fn list(remote: &Remote, url: &Url) -> Result<Vec<Info>, RemoteError> {
    match remote.list(url).await {
        Ok(listing) => Ok(listing.entries),
        Err(RemoteError::Unreachable(why)) => Err(why.into()),
        Err(why) => {
            tracing::debug!(%why, "not listed");
            Ok(Vec::new())
        }
    }
}

/// Versions tell more than times, and a copy that was made in the second of its original has the same time: then all that is
/// there must be the same.
fn are_same(here: &[Info], there: &[Info]) -> bool {
    let there_by_name: BTreeMap<&str, &Info> = there
        .iter()
        .map(|info| (info.name.as_str(), info))
        .collect();
    let is_same = |(one, other): &(&Info, &Info)| {
        one.is_directory == other.is_directory
            && (one.size_bytes, one.modified, &one.etag)
                == (other.size_bytes, other.modified, &other.etag)
    };
    let pairs = here.iter().filter_map(|info| {
        let other = there_by_name.get(info.name.as_str())?;
        Some((info, *other))
    });
    let pairs: Vec<(&Info, &Info)> = pairs.collect();
    let has_versions = |(one, other): &&(&Info, &Info)| one.etag.is_some() && other.etag.is_some();
    if pairs.iter().any(|pair| has_versions(&pair)) {
        return pairs.iter().filter(has_versions).any(is_same);
    }
    let are_all = pairs.len() == here.len() && pairs.len() == there.len();
    let has_times = pairs.iter().any(|(one, _)| one.modified.is_some());
    are_all && has_times && pairs.iter().all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_server::{TestReply, TestRequest, TestServer};
    use penstock_model::{Bytes, Timestamp};

    /// `name:seconds:etag …`, with `-` for what is not told.
    fn infos(text: &str) -> Vec<Info> {
        let info = |word: &str| {
            let mut parts = word.split(':');
            let mut part = || parts.next().filter(|part| *part != "-");
            Info {
                url: String::new(),
                name: part().unwrap_or_default().to_owned(),
                is_directory: false,
                size_bytes: Some(Bytes(1)),
                modified: part().map(|text| Timestamp(text.parse().expect("a number"))),
                locality: None,
                etag: part().map(str::to_owned),
                told_at: Timestamp(0),
            }
        };
        text.split_ascii_whitespace().map(info).collect()
    }

    #[test]
    fn a_place_is_known_by_versions_or_by_all_that_is_in_it() {
        let check = |here: &str, there: &str, expected: bool| {
            let found = are_same(&infos(here), &infos(there));
            assert_eq!(found, expected, "{here} | {there}");
        };
        check("a:1:7 b:1:8", "a:1:7 c:1:9", true);
        check("a:1:7 b:1:8", "a:1:8 b:1:9", false);
        check("a:1:7", "a:2:7", false);
        check("a:1:- b:2:-", "a:1:- b:2:-", true);
        check("a:1:- b:2:-", "a:1:- b:3:-", false);
        check("a:1:-", "a:1:- b:2:-", false);
        check("a:-:-", "a:-:-", false);
        check("", "", false);
        check("a:1:7", "", false);
    }

    #[test]
    fn the_deeper_place_is_compared() {
        let check = |one: &str, other: &str, expected: Option<&str>| {
            let [one, other] = [one, other].map(|text| Url::parse(text).expect("a URL"));
            let found = overlap(&one, &other).expect("valid");
            let found = found.map(|path| path.to_string());
            assert_eq!(found.as_deref(), expected, "{one} {other}");
        };
        check("https://a/t/b", "https://b/t", Some("/t/b"));
        check("https://a/t/", "https://b/t/%62", Some("/t/b"));
        check("https://a/t", "https://b/t", Some("/t"));
        check("https://a/t", "https://b/tb", None);
    }

    fn lists(
        etag: &'static str,
        storage: Option<&'static str>,
    ) -> impl FnMut(&TestRequest) -> TestReply {
        move |request| match request.method.as_str() {
            "OPTIONS" => match storage {
                Some(storage) => TestReply::status(200).with("penstock-storage", storage),
                None => TestReply::status(405),
            },
            _ => {
                let entry = |path: &str, told: &str| {
                    format!(
                        "<response><href>{path}</href><propstat><prop>{told}</prop></propstat></response>"
                    )
                };
                let own = entry("/t", "<resourcetype><collection/></resourcetype>");
                let file = entry("/t/f", &format!("<getetag>\"{etag}\"</getetag>"));
                let body = format!("<multistatus xmlns='DAV:'>{own}{file}</multistatus>");
                let mut reply = TestReply::status(207);
                reply.body = body.into_bytes();
                reply
            }
        }
    }

    #[tokio::test]
    async fn a_server_is_known_by_what_it_says_or_has() {
        const NORTH: Option<&str> = Some("6f4f4d4e-0f4e-4c5d-9a55-0d5cf1f4b3aa");
        const SOUTH: Option<&str> = Some("6f4f4d4e-0f4e-4c5d-9a55-0d5cf1f4b3ab");
        for (one, other, expected) in [
            (("1", NORTH), ("2", NORTH), ServerIdentity::Same),
            (("1", NORTH), ("1", SOUTH), ServerIdentity::Distinct),
            (("1", NORTH), ("1", None), ServerIdentity::Same),
            (("1", None), ("1", None), ServerIdentity::Same),
            (("1", None), ("2", None), ServerIdentity::Unknown),
        ] {
            let servers = [
                TestServer::start(lists(one.0, one.1)).await,
                TestServer::start(lists(other.0, other.1)).await,
            ];
            let [one, other] = servers.each_ref().map(|server| server.url("/t"));
            let path = overlap(&one, &other).expect("valid");
            let ends = [&one, &other];
            let remote = servers[0].remote();
            let found = ServerIdentity::find(&remote, ends, path.as_ref()).await;
            assert_eq!(found.expect("answered"), expected);
        }
    }
}
