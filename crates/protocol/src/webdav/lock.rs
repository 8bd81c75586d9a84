//! LOCK and UNLOCK as they are written (RFC 4918 §9.10, §9.11, §10.5, §10.7, §14): what a client asks for, and how
//! locks are told.

use super::DAV;
use super::xml::{InvalidXml, Node, Walk, escape_into};
use http::HeaderMap;
use penstock_model::{Lock, LockReach, LockScope, Timestamp};
use std::time::Duration;

/// Bytes that the body of a `LOCK` may have.
pub const LOCK_BYTES_MAX: usize = 16 * 1024;
/// Bytes that the owner's text may have, as it is kept.
const OWNER_BYTES_MAX: usize = 4 * 1024;

/// What the body of a `LOCK` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Alone or shared.
    pub scope: LockScope,
    /// The content of the `owner` element, as XML that stands for itself.
    pub owner: String,
}

impl LockInfo {
    /// Reads a body of at most [`LOCK_BYTES_MAX`] bytes; `None` when it is empty, which asks to refresh a lock.
    pub fn parse(body: &[u8]) -> Result<Option<LockInfo>, InvalidXml> {
        const OTHER: InvalidXml = InvalidXml::OtherDocument("lockinfo");
        if body.trim_ascii().is_empty() {
            return Ok(None);
        }
        let mut walk = Walk::new(body, LOCK_BYTES_MAX)?;
        let (mut scope, mut is_write, mut owner) = (None, false, String::new());
        let mut open: Vec<String> = Vec::new();
        while let Some(node) = walk.step()? {
            let name = match node {
                Node::Text(_) => continue,
                Node::Close => {
                    open.pop();
                    continue;
                }
                Node::Open(name) => name,
            };
            let known = name.namespace == DAV;
            match (open.as_slice(), name.local.as_str()) {
                ([], "lockinfo") if known => {}
                ([], _) => return Err(OTHER),
                ([_], "owner") if known => {
                    // This reads up to and including the element's end.
                    owner = walk.content(OWNER_BYTES_MAX)?;
                    continue;
                }
                ([_, within], "exclusive") if known && within == "lockscope" => {
                    scope = Some(LockScope::Exclusive);
                }
                ([_, within], "shared") if known && within == "lockscope" => {
                    scope = Some(LockScope::Shared);
                }
                ([_, within], "write") if known && within == "locktype" => is_write = true,
                // RFC 4918 §17: elements that we do not know are as if they were not there.
                _ => {}
            }
            open.push(if known { name.local } else { String::new() });
        }
        let scope = scope.filter(|_| is_write).ok_or(OTHER)?;
        Ok(Some(LockInfo { scope, owner }))
    }
}

/// How long a lock shall last by the `Timeout` header (RFC 4918 §10.7): the first wish that is understood, at most
/// `longest`; `usual` when there is none.
pub fn lock_timeout(headers: &HeaderMap, usual: Duration, longest: Duration) -> Duration {
    let values = headers.get_all("timeout").iter();
    let mut wishes = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let wish = wishes.find_map(|wish| {
        let wish = wish.trim();
        if wish.eq_ignore_ascii_case("infinite") {
            return Some(longest);
        }
        let (word, digits) = wish.split_at_checked(7)?;
        let sound =
            word.eq_ignore_ascii_case("second-") && digits.bytes().all(|b| b.is_ascii_digit());
        // More digits than fit mean longer than any bound.
        (sound && !digits.is_empty()).then(|| digits.parse().map_or(longest, Duration::from_secs))
    });
    // A lock that ends at once could not be told.
    wish.unwrap_or(usual)
        .max(Duration::from_secs(1))
        .min(longest)
}

/// The token in a `Lock-Token` header (RFC 4918 §10.5), without its brackets; `None` when there is none, or no token.
pub fn lock_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get("lock-token")?.to_str().ok()?.trim();
    value.strip_prefix('<')?.strip_suffix('>')
}

/// The answer to a `LOCK`: the locks of what was locked.
pub fn write_lock_answer(locks: &[Lock], now: Timestamp) -> Vec<u8> {
    let mut out =
        b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery>"
            .to_vec();
    write_active_locks(&mut out, locks, now);
    out.extend_from_slice(b"</D:lockdiscovery></D:prop>\n");
    out
}

/// The content of `lockdiscovery` (RFC 4918 §15.8), with the prefix `D`.
pub(super) fn write_active_locks(out: &mut Vec<u8>, locks: &[Lock], now: Timestamp) {
    for lock in locks {
        let scope = match lock.scope {
            LockScope::Exclusive => "exclusive",
            LockScope::Shared => "shared",
        };
        let depth = match lock.reach {
            LockReach::Itself => "0",
            LockReach::Tree => "infinity",
        };
        // Rounded up: a lock that was just taken is told with the time that was agreed.
        let left = lock.expires.since(now).as_millis().div_ceil(1000);
        let begin = format!(
            "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{scope}/></D:lockscope>\
             <D:depth>{depth}</D:depth>"
        );
        out.extend_from_slice(begin.as_bytes());
        if !lock.owner.is_empty() {
            // Was made by `Walk::content`, so it is well-formed and declares what it uses.
            out.extend_from_slice(b"<D:owner>");
            out.extend_from_slice(lock.owner.as_bytes());
            out.extend_from_slice(b"</D:owner>");
        }
        let end = format!(
            "<D:timeout>Second-{left}</D:timeout><D:locktoken><D:href>{}</D:href></D:locktoken>\
             <D:lockroot><D:href>",
            lock.token
        );
        out.extend_from_slice(end.as_bytes());
        escape_into(out, &lock.root.to_encoded());
        out.extend_from_slice(b"</D:href></D:lockroot></D:activelock>");
    }
}

/// The content of `supportedlock` (RFC 4918 §15.10).
pub(super) const SUPPORTED_LOCKS: &[u8] =
    b"<D:lockentry><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>\
      <D:lockentry><D:lockscope><D:shared/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockentry>";

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    fn check(body: &str, expected: &str) {
        let got = match LockInfo::parse(body.as_bytes()) {
            Ok(None) => "refresh".to_owned(),
            Ok(Some(info)) => format!("{:?} {}", info.scope, info.owner),
            Err(why) => format!("refused: {why}"),
        };
        assert_eq!(got, expected, "{body}");
    }

    #[test]
    fn the_lock_of_a_desktop_client() {
        check(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:lockinfo xmlns:D=\"DAV:\">\n <D:lockscope><D:exclusive/>\
             </D:lockscope>\n<D:locktype><D:write/></D:locktype>\n<D:owner><D:href>mailto:a&amp;b</D:href></D:owner>\
             </D:lockinfo>",
            "Exclusive <x:href xmlns:x=\"DAV:\">mailto:a&amp;b</x:href>",
        );
        check(
            "<lockinfo xmlns='DAV:'><new/><locktype><write/></locktype><lockscope><shared/></lockscope></lockinfo>",
            "Shared ",
        );
        check("  \r\n", "refresh");
    }

    #[test]
    fn what_asks_for_no_write_lock_is_refused() {
        let other = "refused: the XML body is not a 'lockinfo' document";
        check("<lockinfo/>", other);
        check("<d:lockinfo xmlns:d='DAV:'/>", other);
        check(
            "<d:lockinfo xmlns:d='DAV:'><d:lockscope><d:exclusive/></d:lockscope></d:lockinfo>",
            other,
        );
        check(
            "<d:lockinfo xmlns:d='DAV:'><d:exclusive/><d:locktype><d:write/></d:locktype></d:lockinfo>",
            other,
        );
        let long = "x".repeat(OWNER_BYTES_MAX + 1);
        check(
            &format!("<d:lockinfo xmlns:d='DAV:'><d:owner>{long}</d:owner></d:lockinfo>"),
            "refused: an XML element is longer than 4096 bytes",
        );
    }

    fn timeout(value: &'static str) -> u64 {
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static("timeout"),
            HeaderValue::from_static(value),
        )]);
        lock_timeout(
            &headers,
            Duration::from_secs(600),
            Duration::from_secs(3600),
        )
        .as_secs()
    }

    #[test]
    fn the_first_understood_timeout_counts_up_to_the_bound() {
        assert_eq!(timeout("Second-30"), 30);
        assert_eq!(timeout("Second-0"), 1);
        assert_eq!(timeout("Infinite, Second-4100000000"), 3600);
        assert_eq!(timeout("Extend, second-90, Second-30"), 90);
        assert_eq!(timeout("Second-99999999999999999999999"), 3600);
        assert_eq!(
            (timeout("Second-"), timeout("Second--1"), timeout("soon")),
            (600, 600, 600)
        );
    }

    #[test]
    fn a_lock_is_told_as_clients_read_it() {
        let lock = Lock {
            token: penstock_model::LockToken(uuid::Uuid::from_u128(7)),
            root: penstock_model::NamespacePath::parse("/d/a b").expect("valid"),
            reach: LockReach::Tree,
            scope: LockScope::Exclusive,
            user: penstock_model::UserName::new("alice"),
            macaroon: None,
            owner: "me".to_owned(),
            expires: Timestamp(10_000),
        };
        assert_eq!(
            String::from_utf8(write_lock_answer(&[lock], Timestamp(1))).expect("UTF-8"),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:prop xmlns:D=\"DAV:\"><D:lockdiscovery><D:activelock>\
             <D:locktype><D:write/></D:locktype><D:lockscope><D:exclusive/></D:lockscope><D:depth>infinity</D:depth>\
             <D:owner>me</D:owner><D:timeout>Second-10</D:timeout><D:locktoken>\
             <D:href>opaquelocktoken:00000000-0000-0000-0000-000000000007</D:href></D:locktoken><D:lockroot>\
             <D:href>/d/a%20b</D:href></D:lockroot></D:activelock></D:lockdiscovery></D:prop>\n"
        );
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(
            bytes: Vec<u8>,
            text in "(<d:lockinfo xmlns:d='DAV:'>|</d:lockinfo>|<d:owner>|</d:owner>|<d:write/>|<d:shared/>|&lt;\
                     |<d:lockscope>|</d:lockscope>|<a b='c&amp;'/>|[ -é]){0,30}",
        ) {
            let _ = LockInfo::parse(&bytes);
            if let Ok(Some(info)) = LockInfo::parse(text.as_bytes()) {
                prop_assert!(info.owner.len() <= OWNER_BYTES_MAX);
            }
        }
    }
}
