//! Macaroons that storage elements give for a delegated proxy: one for each directory and kind of access, used until
//! shortly before it ends.
//!
//! gfal2 and FTS ask for a new one for each file; a directory serves all of its files and costs one request.

use super::proxy::ProxyCredential;
use super::{AgentSetup, REMEMBERED_MAX};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use penstock_model::{Side, Timestamp};
use penstock_protocol::http1::client::ClientRequest;
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use url::Url;

/// The validity that is asked for; storage elements give less when they like.
const VALIDITY: Duration = Duration::from_secs(12 * 3600);
/// One that ends sooner is asked for anew, unless it was never good for twice as long.
const LEFT_MIN: Duration = Duration::from_secs(30 * 60);
/// How long a storage element that gives none is not asked again.
const REFUSAL_KEPT: Duration = Duration::from_secs(300);
/// Bytes of an answer; macaroons have hundreds.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a macaroon that is passed on as a header.
const MACAROON_BYTES_MAX: usize = 16 << 10;

/// Whom it was given, where, and for what: the directory's URL, the name of the proxy, the side.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct MacaroonKey {
    url: String,
    proxy: [u8; 32],
    writes: bool,
}

/// A macaroon with its life.
struct HeldMacaroon {
    text: Arc<str>,
    from: Timestamp,
    until: Timestamp,
}

/// What was given, and who gives none.
#[derive(Default)]
pub(super) struct Macaroons {
    given: Mutex<HashMap<MacaroonKey, HeldMacaroon>>,
    /// By scheme, host and port: until when, and why.
    refusing: Mutex<HashMap<String, (Timestamp, String)>>,
    /// Held by the one that asks, so that the many copies of a bulk job that begin together ask once.
    asking: Mutex<HashMap<MacaroonKey, Weak<AsyncMutex<()>>>>,
}

impl std::fmt::Debug for Macaroons {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Macaroons")
    }
}

/// Why there is none, and whether it would be so for any other file there.
struct MacaroonRefusal {
    why: String,
    by_all: bool,
}

impl Macaroons {
    fn find(&self, place: &MacaroonKey, now: Timestamp) -> Option<Arc<str>> {
        let given = self.given.lock();
        let found = given.get(place)?;
        let enough = LEFT_MIN.min(found.until.since(found.from) / 2);
        (found.until.since(now) > enough).then(|| found.text.clone())
    }

    fn keep(&self, place: MacaroonKey, macaroon: HeldMacaroon) {
        let mut given = self.given.lock();
        if given.len() >= REMEMBERED_MAX {
            given.clear();
        }
        given.insert(place, macaroon);
    }

    /// Forgets one that was not accepted, because its issuer has changed its mind or its keys.
    pub(super) fn forget(&self, text: &str) {
        let mut given = self.given.lock();
        given.retain(|_, macaroon| &*macaroon.text != text);
    }

    /// The lock of those who would ask for the same. As many as there are attempts at most.
    fn turn(&self, place: &MacaroonKey) -> Arc<AsyncMutex<()>> {
        let mut asking = self.asking.lock();
        if let Some(turn) = asking.get(place).and_then(Weak::upgrade) {
            return turn;
        }
        asking.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        asking.insert(place.clone(), Arc::downgrade(&turn));
        turn
    }

    fn refusal(&self, server: &str, now: Timestamp) -> Option<String> {
        let refusing = self.refusing.lock();
        let (until, why) = refusing.get(server)?;
        (now < *until).then(|| why.clone())
    }

    fn note_refusal(&self, server: String, why: &str, now: Timestamp) {
        let mut refusing = self.refusing.lock();
        if refusing.len() >= REMEMBERED_MAX {
            refusing.clear();
        }
        refusing.insert(server, (now + REFUSAL_KEPT, why.to_owned()));
    }
}

impl AgentSetup {
    /// A macaroon for the directory of a file, or for the file alone where that is all that the user may do. Errors:
    /// why there is none.
    pub(super) async fn macaroon(
        &self,
        file: &Url,
        side: Side,
        proxy: &ProxyCredential,
        now: Timestamp,
    ) -> Result<Arc<str>, String> {
        let server = server_of(file);
        if let Some(why) = self.memory.macaroons.refusal(&server, now) {
            return Err(why);
        }
        let mut why = String::new();
        for url in [directory_of(file), without_query(file)] {
            match self.macaroon_for(&url, side, proxy, now).await {
                Ok(text) => return Ok(text),
                Err(refused) if refused.by_all => {
                    let macaroons = &self.memory.macaroons;
                    macaroons.note_refusal(server, &refused.why, now);
                    return Err(refused.why);
                }
                Err(refused) => why = refused.why,
            }
        }
        Err(why)
    }

    async fn macaroon_for(
        &self,
        url: &Url,
        side: Side,
        proxy: &ProxyCredential,
        now: Timestamp,
    ) -> Result<Arc<str>, MacaroonRefusal> {
        let place = MacaroonKey {
            url: url.to_string(),
            proxy: *proxy.identity.name(),
            writes: side == Side::Destination,
        };
        let turn = self.memory.macaroons.turn(&place);
        let _asking = turn.lock().await;
        if let Some(text) = self.memory.macaroons.find(&place, now) {
            return Ok(text);
        }
        let asked = VALIDITY.min(proxy.expires.since(now));
        let request = ClientRequest {
            method: Method::POST,
            url: url.clone(),
            headers: request_headers(),
            identity: Some(proxy.identity.clone()),
        };
        // What FTS asks for; READ_METADATA is dCache's word for what others count to LIST.
        let activities = match place.writes {
            true => "LIST,DOWNLOAD,MANAGE,UPLOAD,DELETE",
            false => "LIST,DOWNLOAD",
        };
        let body = serde_json::json!({
            "caveats": [format!("activity:{activities}")],
            "validity": format!("PT{}M", (asked.as_secs() / 60).max(1)),
        });
        let unreachable = |why: &dyn std::fmt::Display| MacaroonRefusal {
            why: format!("it could not be asked for a macaroon: {why}"),
            by_all: false,
        };
        let sent = self
            .client
            .send_bytes(request, body.to_string().as_bytes())
            .await;
        let mut answer = sent.map_err(|why| unreachable(&why))?;
        let status = answer.status.as_u16();
        // 400: XRootD without macaroons; 404, 405, 415, 501: no such thing here.
        let by_all = matches!(status, 400 | 404 | 405 | 415 | 501);
        let given = if status == 200 {
            let body = answer.read_all(ANSWER_BYTES_MAX).await;
            let body = body.map_err(|why| unreachable(&why))?;
            parse_answer(&body, asked, now)
        } else {
            let mut why = format!("it answered {status} when asked for a macaroon");
            let tried = match by_all {
                true => self.access_token(url, activities, asked, proxy).await,
                false => return Err(MacaroonRefusal { why, by_all }),
            };
            match tried {
                Ok(token) => usable(token.text, token.expires_in, asked, now),
                Err(also) => {
                    why = format!("{why}, and {also}");
                    return Err(MacaroonRefusal { why, by_all });
                }
            }
        };
        let given = given.ok_or_else(|| MacaroonRefusal {
            why: "its answer to the request for a macaroon is not understood".to_owned(),
            by_all: true,
        })?;
        let text = given.text.clone();
        self.memory.macaroons.keep(place, given);
        Ok(text)
    }
}

fn request_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    let media_type = HeaderValue::from_static("application/macaroon-request");
    headers.insert(CONTENT_TYPE, media_type);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers
}

/// dCache says when it ends only inside the macaroon; then what was asked for is believed.
fn parse_answer(body: &[u8], asked: Duration, now: Timestamp) -> Option<HeldMacaroon> {
    #[derive(Deserialize)]
    struct MacaroonReply {
        macaroon: String,
        expires_in: Option<f64>,
    }
    let answer: MacaroonReply = serde_json::from_slice(body).ok()?;
    usable(answer.macaroon, answer.expires_in, asked, now)
}

/// What can be shown as a header; it lives no longer than was asked for.
fn usable(
    text: String,
    expires_in: Option<f64>,
    asked: Duration,
    now: Timestamp,
) -> Option<HeldMacaroon> {
    let is_usable = !text.is_empty()
        && text.len() <= MACAROON_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    let seconds = expires_in.filter(|seconds| *seconds >= 0.0);
    let life = seconds.map_or(asked, |seconds| {
        asked.min(Duration::from_secs_f64(seconds.min(1e9)))
    });
    is_usable.then(|| HeldMacaroon {
        text: text.into(),
        from: now,
        until: now + life,
    })
}

fn without_query(file: &Url) -> Url {
    let mut url = file.clone();
    url.set_query(None);
    url.set_fragment(None);
    url
}

fn directory_of(file: &Url) -> Url {
    let mut url = without_query(file);
    let path = url.path().trim_end_matches('/');
    let end = path.rfind('/').map_or(0, |at| at.max(1));
    let directory = match path.get(..end) {
        Some(directory) if !directory.is_empty() => directory.to_owned(),
        _ => "/".to_owned(),
    };
    url.set_path(&directory);
    url
}

/// Scheme, host and port.
fn server_of(url: &Url) -> String {
    let (host, port) = (
        url.host_str().unwrap_or_default(),
        url.port().unwrap_or(443),
    );
    format!("{}://{host}:{port}", url.scheme())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(hours * 3600)
    }

    #[test]
    fn the_directory_is_the_one_above_the_file() {
        let check = |file: &str, expected: &str| {
            let url = directory_of(&Url::parse(file).expect("a URL"));
            assert_eq!(url.as_str(), expected, "{file}");
        };
        check("https://se/data/run1/f?authz=x", "https://se/data/run1");
        check("https://se:1094/f", "https://se:1094/");
        check("davs://se/a/b//", "davs://se/a");
    }

    #[test]
    fn answers_of_dcache_and_xrootd_are_understood_and_nothing_else() {
        let parsed = |body: &str| parse_answer(body.as_bytes(), hours(12), NOW);
        let until = |body: &str| parsed(body).map(|given| given.until.since(NOW));
        assert_eq!(
            until(r#"{"macaroon":"abc","expires_in":60}"#),
            Some(Duration::from_secs(60))
        );
        assert_eq!(
            until(r#"{"macaroon":"abc","uri":{"base":"x"}}"#),
            Some(hours(12))
        );
        assert_eq!(
            until(r#"{"macaroon":"abc","expires_in":1e300}"#),
            Some(hours(12))
        );
        for body in [
            "",
            "{}",
            "[]",
            r#"{"macaroon":""}"#,
            r#"{"macaroon":"a\r\nX: y"}"#,
        ] {
            assert!(parsed(body).is_none(), "{body}");
        }
    }

    #[test]
    fn one_is_used_until_shortly_before_it_ends() {
        let macaroons = Macaroons::default();
        let place = |writes| MacaroonKey {
            url: "https://se/data".to_owned(),
            proxy: [1; 32],
            writes,
        };
        let given = |life| HeldMacaroon {
            text: "m".into(),
            from: NOW,
            until: NOW + life,
        };
        let found = |after| macaroons.find(&place(false), NOW + after).is_some();
        macaroons.keep(place(false), given(hours(2)));
        assert!(found(Duration::ZERO) && found(Duration::from_secs(89 * 60)));
        assert!(
            !found(Duration::from_secs(91 * 60)),
            "half an hour before its end"
        );
        assert!(
            macaroons.find(&place(true), NOW).is_none(),
            "one for reading is not for writing"
        );
        macaroons.keep(place(false), given(Duration::from_secs(60)));
        assert!(
            found(Duration::from_secs(29)) && !found(Duration::from_secs(31)),
            "half of a short life"
        );
        macaroons.forget("m");
        assert!(!found(Duration::ZERO));
    }

    #[test]
    fn another_users_macaroon_is_never_used() {
        let macaroons = Macaroons::default();
        let place = |proxy| MacaroonKey {
            url: "https://se/data".to_owned(),
            proxy: [proxy; 32],
            writes: false,
        };
        let text: Arc<str> = "alices".into();
        macaroons.keep(
            place(1),
            HeldMacaroon {
                text,
                from: NOW,
                until: NOW + hours(1),
            },
        );
        assert!(macaroons.find(&place(1), NOW).is_some());
        assert!(macaroons.find(&place(2), NOW).is_none());
    }
}
