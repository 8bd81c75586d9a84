//! Where a file is: a URL that has been checked once and is valid from then on.

use crate::ids::{LinkId, StorageId};
use crate::path::NamespacePath;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use thiserror::Error;

/// Schemes that this service can move today.
pub const SUPPORTED_SCHEMES: [&str; 15] = [
    "https", "davs", "http", "dav", "gsiftp", "root", "roots", "xroot", "xroots", "srm", "sftp",
    "s3s", "s3", "gclouds", "gcloud",
];

/// Files of gfal2's plug-in for tests, which do not exist. A service takes them when it is told to.
const MOCK: &str = "mock";

/// How a storage element is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// By this program's own HTTP.
    Http,
    /// The same, with requests that are signed as S3's are.
    Cloud,
    /// By the system's gfal2 library, in a process for each attempt.
    Gfal,
}

impl Access {
    fn of_scheme(scheme: &str) -> Access {
        match scheme {
            "gsiftp" | "root" | "roots" | "xroot" | "xroots" | "srm" | "sftp" | MOCK => {
                Access::Gfal
            }
            "s3s" | "s3" | "gclouds" | "gcloud" => Access::Cloud,
            _ => Access::Http,
        }
    }
}

impl StorageId {
    /// How it is spoken to.
    pub fn access(&self) -> Access {
        let text = self.as_str();
        Access::of_scheme(text.split_once("://").map_or("", |(scheme, _)| scheme))
    }
}

impl LinkId {
    /// gfal2 is needed when one end needs it.
    pub fn access(&self) -> Access {
        match (self.source.access(), self.destination.access()) {
            (Access::Gfal, _) | (_, Access::Gfal) => Access::Gfal,
            (Access::Cloud, _) | (_, Access::Cloud) => Access::Cloud,
            (Access::Http, Access::Http) => Access::Http,
        }
    }
}

/// The URL of a file on a storage element. Keeps the text as the user wrote it, because the wire shows it again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileUrl {
    text: String,
    scheme_length: usize,
    host: String,
}

/// Why a URL names no file that can be moved.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidUrl {
    /// Not a URL at all.
    #[error("'{0}' is not a URL: {1}")]
    Syntax(String, String),
    /// The scheme is absent or not one we move.
    #[error("'{url}': scheme '{scheme}' is not supported; use one of {}", SUPPORTED_SCHEMES.join(", "))]
    Scheme {
        /// The URL given.
        url: String,
        /// Its scheme.
        scheme: String,
    },
    /// Nothing after `//`.
    #[error("'{0}' names no host")]
    NoHost(String),
    /// No path, or only `/`.
    #[error("'{0}' names no file: the path is empty")]
    NoPath(String),
    /// `user:password@` would be written to logs and records.
    #[error("'{0}' carries credentials; use a token instead")]
    Credentials(String),
}

impl FileUrl {
    /// Checks scheme, host and path as FTS does at submission.
    pub fn parse(text: &str) -> Result<FileUrl, InvalidUrl> {
        let text = text.trim();
        if let Some(plain) = Plain::take_apart(text) {
            return Ok(FileUrl {
                scheme_length: plain.scheme.len(),
                host: plain.host.to_owned(),
                text: text.to_owned(),
            });
        }
        let parsed = url::Url::parse(text)
            .map_err(|why| InvalidUrl::Syntax(redact(text), why.to_string()))?;
        if parsed.scheme() != MOCK && !SUPPORTED_SCHEMES.contains(&parsed.scheme()) {
            return Err(InvalidUrl::Scheme {
                url: redact(text),
                scheme: parsed.scheme().to_owned(),
            });
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(InvalidUrl::Credentials(redact(text)));
        }
        // Schemes that the URL standard does not know keep their host as written, hence the lower-casing.
        let host = match parsed.host_str() {
            Some(host) if !host.is_empty() => host.to_ascii_lowercase(),
            _ => return Err(InvalidUrl::NoHost(redact(text))),
        };
        if matches!(parsed.path(), "" | "/") && parsed.query().is_none() {
            return Err(InvalidUrl::NoPath(redact(text)));
        }
        Ok(FileUrl {
            scheme_length: parsed.scheme().len(),
            host,
            text: text.to_owned(),
        })
    }

    /// As the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The scheme, lower case.
    pub fn scheme(&self) -> Cow<'_, str> {
        let scheme = &self.text[..self.scheme_length];
        match scheme.bytes().any(|byte| byte.is_ascii_uppercase()) {
            true => Cow::Owned(scheme.to_ascii_lowercase()),
            false => Cow::Borrowed(scheme),
        }
    }

    /// How its storage element is spoken to.
    pub fn access(&self) -> Access {
        Access::of_scheme(&self.scheme())
    }

    /// The host, lower case, without port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The storage element, as FTS names it: scheme and host without port.
    pub fn storage(&self) -> StorageId {
        StorageId::new([&*self.scheme(), "://", &self.host].concat())
    }
}

/// Stands for one file on one host: equal for every way to write its URL, and for every scheme and port under which the
/// host gives it. Different files have equal places by chance only, once in some 10^19 pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePlace(u64);

impl FileUrl {
    /// Which file this is, however it is written. Queries do not count: they carry secrets and options.
    pub fn place(&self) -> FilePlace {
        let parsed;
        let raw = match Plain::take_apart(&self.text) {
            Some(plain) => plain.path,
            None => {
                parsed = url::Url::parse(&self.text);
                parsed.as_ref().map_or(self.text.as_str(), |url| url.path())
            }
        };
        // SRM's long form: the path is that of its endpoint, and the file stands in the query.
        let raw = match self.text.split_once("?SFN=") {
            Some((_, file)) if self.scheme() == "srm" => file,
            Some(_) | None => raw,
        };
        // The hasher has no random start, so that equal inputs give equal plans.
        let mut hasher = DefaultHasher::new();
        self.host.hash(&mut hasher);
        match NamespacePath::from_encoded(raw) {
            Ok(path) => path.hash(&mut hasher),
            Err(_) => raw.hash(&mut hasher),
        }
        FilePlace(hasher.finish())
    }
}

/// A URL as nearly all are written: nothing in it is escaped, left out or to be read in another way than it stands. It
/// needs none of the URL standard's rules, and each file's two are read at submission and whenever they are shown.
struct Plain<'a> {
    scheme: &'a str,
    host: &'a str,
    path: &'a str,
}

impl<'a> Plain<'a> {
    /// `None`: what it means, and whether it is one, only the standard tells.
    fn take_apart(text: &'a str) -> Option<Plain<'a>> {
        let (scheme, rest) = text.split_once("://")?;
        let (authority, path) = rest.split_at(rest.find('/')?);
        let host = match authority.split_once(':') {
            None => authority,
            Some((host, port)) => {
                let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
                (is_number && port.parse::<u16>().is_ok()).then_some(host)?
            }
        };
        let plain = Plain { scheme, host, path };
        (SUPPORTED_SCHEMES.contains(&scheme) && plain.names_a_host() && plain.names_a_file())
            .then_some(plain)
    }

    fn names_a_host(&self) -> bool {
        let is_label = |label: &str| {
            let is_plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            // Two hyphens may begin a name in another script.
            !label.is_empty() && label.bytes().all(is_plain) && !label.contains("--")
        };
        // What ends in a number is an address, of which there are odd forms.
        let last = self.host.rsplit('.').next().unwrap_or_default();
        let is_name = last.starts_with(|first: char| first.is_ascii_lowercase());
        match is_name {
            true => self.host.split('.').all(is_label),
            false => self.host.parse::<core::net::Ipv4Addr>().is_ok(),
        }
    }

    fn names_a_file(&self) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._~-+=:,@".contains(&byte);
        let is_file = matches!(self.path.as_bytes(), [b'/', first, ..] if *first != b'/');
        // A name that begins with a point may be a step upwards.
        is_file && self.path.bytes().all(is_plain) && !self.path.contains("/.")
    }
}

/// Hides what may be secret in a URL that is about to be shown: query values and user information.
pub fn redact(text: &str) -> String {
    let (head, query) = match text.split_once('?') {
        Some((head, _)) => (head, "?…"),
        None => (text, ""),
    };
    let head = match (head.find("://"), head.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}…{}", &head[..scheme + 3], &head[at..])
        }
        _ => head.to_owned(),
    };
    format!("{head}{query}")
}

impl fmt::Display for FileUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&redact(&self.text))
    }
}

impl TryFrom<String> for FileUrl {
    type Error = InvalidUrl;
    fn try_from(text: String) -> Result<Self, InvalidUrl> {
        FileUrl::parse(&text)
    }
}

impl From<FileUrl> for String {
    fn from(url: FileUrl) -> String {
        url.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: &str) {
        let got = match FileUrl::parse(url) {
            Ok(url) => url.storage().to_string(),
            Err(why) => why.to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn a_storage_is_known_by_scheme_and_host_without_port() {
        check(
            "https://se1.example.org:8443/data/f",
            "https://se1.example.org",
        );
        check("davs://SE1.example.org/f?x=1", "davs://se1.example.org");
        check("https://[::1]:8443/f", "https://[::1]");
    }

    #[test]
    fn what_cannot_be_moved_is_refused_with_the_reason() {
        check(
            "data/f",
            "'data/f' is not a URL: relative URL without a base",
        );
        check(
            "gopher://se/f",
            "'gopher://se/f': scheme 'gopher' is not supported; use one of https, davs, http, dav, gsiftp, root, \
             roots, xroot, xroots, srm, sftp, s3s, s3, gclouds, gcloud",
        );
        check(
            "https://se/",
            "'https://se/' names no file: the path is empty",
        );
        check(
            "https://u:p@se/f",
            "'https://…@se/f' carries credentials; use a token instead",
        );
        check(
            "file:///etc/passwd",
            "'file:///etc/passwd': scheme 'file' is not supported; use one of https, davs, http, dav, gsiftp, root, \
             roots, xroot, xroots, srm, sftp, s3s, s3, gclouds, gcloud",
        );
    }

    #[test]
    fn a_url_that_is_plain_means_what_the_standard_says() {
        let hosts = [
            "se",
            "se1.example.org",
            "127.0.0.5",
            "127.1",
            "0x7f.1",
            "1.2.3.04",
            "256.1.1.1",
            "a.b.5",
            "SE",
            "a..b",
            "a.",
            "-a",
            "a-",
            "xn--p1ai",
            "a--b",
            "a_b",
            "[::1]",
            "",
            "0",
            "5e",
            "a.0x5",
        ];
        let ports = [
            "", ":443", ":8443", ":0", ":65535", ":65536", ":", ":+1", ":8443:1",
        ];
        let paths = [
            "",
            "/",
            "/f",
            "//",
            "//f",
            "/d//f",
            "/d/.",
            "/d/..",
            "/..",
            "/.f",
            "/a.b",
            "/a%20b",
            "/a b",
            "/f?x=1",
            "/?x",
            "/#f",
            "/f#x",
            "/a;b",
            "/a@b:c",
            "/a+b=c,d~e",
            "/é",
            "/a\\b",
            "/a\tb",
            "/%2e",
            "/x/../..",
        ];
        let mut plain = 0;
        let schemes = ["https", "davs", "root", "srm", "s3s", "HTTPS", "gopher"];
        let starts = schemes
            .iter()
            .flat_map(|scheme| hosts.map(|host| format!("{scheme}://{host}")));
        let starts: Vec<String> = starts
            .flat_map(|start| ports.map(|port| format!("{start}{port}")))
            .collect();
        for start in &starts {
            for path in paths {
                let text = format!("{start}{path}");
                let Some(seen) = Plain::take_apart(&text) else {
                    continue;
                };
                plain += 1;
                let url = url::Url::parse(&text).expect(&text);
                let standard = (url.scheme(), url.host_str().unwrap_or_default(), url.path());
                assert_eq!((seen.scheme, seen.host, seen.path), standard, "{text}");
                assert!(url.query().is_none() && url.username().is_empty(), "{text}");
                assert!(FileUrl::parse(&text).is_ok(), "{text}");
            }
        }
        assert!(plain > 100, "{plain}");
    }

    #[test]
    fn gfal_is_needed_where_http_is_not_spoken() {
        let access = |url: &str| FileUrl::parse(url).expect("valid").access();
        for url in [
            "gsiftp://se/f",
            "ROOT://se:1094//d/f",
            "srm://se/f",
            "sftp://se/f",
        ] {
            assert_eq!(access(url), Access::Gfal, "{url}");
        }
        assert_eq!(access("davs://se/f"), Access::Http);
        let link = |source: &str, destination: &str| LinkId {
            source: StorageId::new(source),
            destination: StorageId::new(destination),
        };
        assert_eq!(link("https://a", "root://b").access(), Access::Gfal);
        assert_eq!(link("https://a", "*").access(), Access::Http);
    }

    #[test]
    fn files_of_one_srm_endpoint_have_places_of_their_own() {
        let place = |url: &str| FileUrl::parse(url).expect("valid").place();
        let long = "srm://se:8443/srm/managerv2?SFN=/d/f";
        assert_eq!(place(long), place("srm://se/d/f"));
        assert_ne!(place(long), place("srm://se:8443/srm/managerv2?SFN=/d/g"));
    }

    #[test]
    fn one_file_has_one_place_however_it_is_written() {
        let place = |url: &str| FileUrl::parse(url).expect("valid").place();
        let file = place("https://se/d/f x");
        for other in [
            "davs://SE:8443//d/./f%20x?authz=secret",
            "http://se:8080/d/%66%20x/",
        ] {
            assert_eq!(place(other), file, "{other}");
        }
        for other in [
            "https://se/d/f",
            "https://se2/d/f%20x",
            "https://se/d/f%2520x",
        ] {
            assert_ne!(place(other), file, "{other}");
        }
    }

    #[test]
    fn secrets_in_queries_are_not_shown() {
        let url = FileUrl::parse("https://se/f?authz=secret").expect("valid");
        assert_eq!(url.to_string(), "https://se/f?…");
        assert_eq!(url.as_str(), "https://se/f?authz=secret");
    }
}
