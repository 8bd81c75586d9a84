//! Where a file is: a URL that has been checked once and is valid from then on.

use crate::ids::{LinkId, StorageId};
use crate::path::NamespacePath;
use crate::share_link::share_secret_of_url;
use crate::text::one_line;
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
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// A line break in it could forge a line of a log or of a protocol, an escape could command a terminal.
    #[error("'{0}' holds a control character; a file's name in a URL cannot have one")]
    ControlCharacter(String),
}

impl FileUrl {
    /// Checks scheme, host and path as FTS does at submission.
    pub fn parse(text: &str) -> Result<FileUrl, InvalidUrl> {
        let text = text.trim();
        if let Some(plain) = FileUrl::plain(text) {
            return Ok(plain);
        }
        if text.contains(char::is_control) {
            return Err(InvalidUrl::ControlCharacter(shown(text)));
        }
        let url = FileUrl::of_standard(text)?;
        // The URL standard skips slashes and takes the first name that follows for the host.
        let rest = text[url.scheme_length..].strip_prefix("://");
        if rest.is_none_or(|rest| rest.starts_with(['/', '\\'])) {
            return Err(InvalidUrl::NoHost(shown(text)));
        }
        // Some libraries decode the path before they write it into a line of a protocol (RFC 959 §5.3.2).
        if url.access() == Access::Gfal && has_encoded_line_end(text) {
            return Err(InvalidUrl::ControlCharacter(shown(text)));
        }
        Ok(url)
    }

    fn plain(text: &str) -> Option<FileUrl> {
        let plain = Plain::take_apart(text)?;
        Some(FileUrl {
            scheme_length: plain.scheme.len(),
            host: plain.host.to_owned(),
            text: text.to_owned(),
        })
    }

    fn of_standard(text: &str) -> Result<FileUrl, InvalidUrl> {
        let parsed = url::Url::parse(text)
            .map_err(|why| InvalidUrl::Syntax(shown(text), why.to_string()))?;
        if parsed.scheme() != MOCK && !SUPPORTED_SCHEMES.contains(&parsed.scheme()) {
            return Err(InvalidUrl::Scheme {
                url: shown(text),
                scheme: parsed.scheme().to_owned(),
            });
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(InvalidUrl::Credentials(shown(text)));
        }
        // Schemes that the URL standard does not know keep their host as written, hence the lower-casing.
        let host = match parsed.host_str() {
            Some(host) if !host.is_empty() => host.to_ascii_lowercase(),
            _ => return Err(InvalidUrl::NoHost(shown(text))),
        };
        if matches!(parsed.path(), "" | "/") && parsed.query().is_none() {
            return Err(InvalidUrl::NoPath(shown(text)));
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

impl FileUrl {
    /// The same file's URL without the parameters that are credentials, and, where there are some, all that the URL
    /// has behind its path: [`FileUrl::with_query`] puts it back as it was written, because signatures cover it.
    ///
    /// Errors: without them it names no file.
    pub fn split_credentials(self) -> Result<(FileUrl, Option<String>), InvalidUrl> {
        match self.public_text() {
            Cow::Borrowed(_) => Ok((self, None)),
            Cow::Owned(text) => Ok((FileUrl::parse(&text)?, Some(self.query().to_owned()))),
        }
    }

    /// Its text without the parameters that are credentials: what an answer may show of a URL that was stored with
    /// them, by a version that did so.
    pub fn public_text(&self) -> Cow<'_, str> {
        let query = self.query();
        let mut kept = String::new();
        for part in query.split_inclusive(SEPARATORS) {
            // Each part ends with the separator of the next one; the first is a separator alone.
            let parameter = part.strip_suffix(SEPARATORS).unwrap_or(part);
            if !is_credential(parameter) {
                kept.push_str(part);
            }
        }
        if kept == query {
            return Cow::Borrowed(&self.text);
        }
        let base = &self.text[..self.text.len() - query.len()];
        Cow::Owned([base, kept.trim_end_matches(SEPARATORS)].concat())
    }

    /// All behind the path, with the separator before it.
    fn query(&self) -> &str {
        self.text.find(['?', '#']).map_or("", |at| &self.text[at..])
    }

    /// The values of its parameters that are credentials, as they are written and decoded: others repeat them in the
    /// errors that they tell.
    pub fn credentials(&self) -> Vec<String> {
        let mut values = Vec::new();
        for parameter in self
            .query()
            .split(SEPARATORS)
            .filter(|part| is_credential(part))
        {
            let written = parameter.split_once('=').map_or("", |(_, value)| value);
            values.push(written.to_owned());
            let decoded = url::form_urlencoded::parse(parameter.as_bytes()).next();
            values.extend(decoded.map(|(_, value)| value.into_owned()));
        }
        values.retain(|value| value.len() >= CREDENTIAL_BYTES_MIN);
        values.sort_unstable();
        values.dedup();
        values
    }

    /// With what [`FileUrl::split_credentials`] had taken away.
    ///
    /// Errors: it is no part of such a URL.
    pub fn with_query(&self, query: &str) -> Result<FileUrl, InvalidUrl> {
        let base = &self.text[..self.text.len() - self.query().len()];
        if !query.starts_with(['?', '#']) {
            return Err(InvalidUrl::Syntax(
                shown(base),
                "its query is damaged".to_owned(),
            ));
        }
        FileUrl::try_from([base, query].concat())
    }
}

/// What may stand before a parameter. XRootD takes a second question mark for a part of the one before.
const SEPARATORS: [char; 4] = ['?', '&', ';', '#'];

/// Words by which storage elements and clouds are given credentials: bearer tokens and macaroons (`authz`,
/// `access_token`), signed requests (`Signature`, `temp_url_sig`), passwords. A name counts when one of its words is one of
/// these.
const CREDENTIAL_WORDS: [&str; 10] = [
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "pass",
    "passcode",
    "passphrase",
    "session",
    "sig",
    "ticket",
];
/// The same, also where they end a longer word (`accesstoken`, `upload-authz`).
const CREDENTIAL_ENDINGS: [&str; 11] = [
    "auth",
    "authorization",
    "authz",
    "jwt",
    "macaroon",
    "passwd",
    "password",
    "pwd",
    "secret",
    "signature",
    "token",
];
/// Names, without what stands between their words, that hold one of these. A bare `key` names an object of a storage as
/// often as a secret, so what kind of key it is must be said.
const CREDENTIAL_KEYS: [&str; 18] = [
    "accesskey",
    "accountkey",
    "apikey",
    "authkey",
    "encryptionkey",
    "googleaccessid",
    "hmackey",
    "keypairid",
    "masterkey",
    "passkey",
    "privatekey",
    "secretid",
    "secretkey",
    "sessionid",
    "sessionkey",
    "sharedkey",
    "subscriptionkey",
    "tokenid",
];
/// All parameters of a request that is signed as S3's and Google's are.
const CREDENTIAL_PREFIXES: [&str; 2] = ["x-amz-", "x-goog-"];

/// Whether a parameter is a credential, by its name or because its value is one, whatever it is called. One too many is
/// only hidden from view; it is used all the same. But a name that is hidden no longer tells one file from another, so
/// what merely holds such letters (`author`, `monkey`, `key`) is none.
fn is_credential(parameter: &str) -> bool {
    let Some((name, value)) = url::form_urlencoded::parse(parameter.as_bytes()).next() else {
        return false;
    };
    // SRM's long form names the file in its query.
    let name = name.trim();
    !name.eq_ignore_ascii_case("sfn") && (names_a_credential(name) || is_token(&value))
}

fn names_a_credential(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let joined: String = lower
        .chars()
        .filter(|char| char.is_alphanumeric())
        .collect();
    let is_word = |word: &str| {
        // `auth2` is what `auth` is.
        let word = word.trim_end_matches(|char: char| char.is_ascii_digit());
        CREDENTIAL_WORDS.contains(&word)
            || CREDENTIAL_ENDINGS
                .iter()
                .any(|ending| word.ends_with(ending))
    };
    CREDENTIAL_PREFIXES
        .iter()
        .any(|prefix| lower.starts_with(prefix))
        || CREDENTIAL_KEYS.iter().any(|key| joined.contains(key))
        || words_of(name).iter().any(|word| is_word(word))
}

/// The words of a name, lower case: `uploadAuth_v2` has `upload`, `auth` and `v2`.
fn words_of(name: &str) -> Vec<String> {
    let mut spaced = String::with_capacity(name.len());
    let mut was_lower = false;
    for character in name.chars() {
        if was_lower && character.is_ascii_uppercase() {
            spaced.push(' ');
        }
        was_lower = character.is_ascii_lowercase();
        spaced.push(match character.is_alphanumeric() {
            true => character.to_ascii_lowercase(),
            false => ' ',
        });
    }
    spaced.split_whitespace().map(str::to_owned).collect()
}

/// Shorter tokens sign nothing.
const TOKEN_BYTES_MIN: usize = 32;

/// Whether a text has the form of a JSON Web Token (RFC 7519 §3), of a macaroon, or of a key of an interface.
fn is_token(value: &str) -> bool {
    let value = value.trim().trim_start_matches("Bearer ").trim_start();
    let dots = value.bytes().filter(|byte| *byte == b'.').count();
    is_macaroon(value)
        || (value.len() >= TOKEN_BYTES_MIN && value.starts_with("eyJ") && dots == 2)
        || is_google_key(value)
}

/// Whether a text has the form of a key for Google's interfaces, which is sent as `key`.
fn is_google_key(value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    value.len() == 39 && value.starts_with("AIza") && value.bytes().all(is_plain)
}

/// Whether a text has the form of a macaroon: base64 of the length of its first packet, or of version 2 with the field
/// of its location.
pub fn is_macaroon(text: &str) -> bool {
    text.len() >= TOKEN_BYTES_MIN
        && (text.starts_with("MDA") || text.starts_with("AgE"))
        && !text.contains('.')
}

/// Whether something in it is a line end or a zero byte once it is decoded, perhaps twice.
fn has_encoded_line_end(text: &str) -> bool {
    let lower = text.to_ascii_lowercase().replace("%25", "%");
    ["%00", "%0a", "%0d"]
        .iter()
        .any(|code| lower.contains(code))
}

/// Shorter values are no secrets, and are parts of other words.
const CREDENTIAL_BYTES_MIN: usize = 4;
/// With so much of it a credential begins also where its end was cut off.
const CREDENTIAL_START_BYTES: usize = 16;

/// What others said, without these credentials, whole or cut off.
pub fn hide_credentials(text: &str, credentials: &[String]) -> String {
    let is_inside =
        |character: char| character.is_ascii_alphanumeric() || "-_.~+/=%:".contains(character);
    let mut text = text.to_owned();
    for credential in credentials {
        let start = credential
            .get(..CREDENTIAL_START_BYTES)
            .unwrap_or(credential);
        let mut shown = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find(start) {
            shown.push_str(&rest[..at]);
            shown.push('…');
            rest = rest[at..]
                .strip_prefix(credential.as_str())
                .unwrap_or(&rest[at + start.len()..]);
            rest = rest.trim_start_matches(is_inside);
        }
        shown.push_str(rest);
        text = shown;
    }
    text
}

/// A URL that is refused, as it is shown.
fn shown(text: &str) -> String {
    one_line(&redact(text)).into_owned()
}

/// Hides what may be secret in a URL that is about to be shown: query values, user information, and the secret of a share
/// link.
pub fn redact(text: &str) -> String {
    let mut text = Cow::Borrowed(text);
    if let Some(secret) = share_secret_of_url(&text) {
        text.to_mut().replace_range(secret, "…");
    }
    let (head, query) = match text.split_once('?') {
        Some((head, _)) => (head, "?…"),
        None => (&*text, ""),
    };
    let is_scheme = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let scheme = head.find("://").filter(|at| is_scheme(&head[..*at]));
    let head = match (scheme, head.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}…{}", &head[..scheme + 3], &head[at..])
        }
        // The URL standard takes `https:user:password@host` as well, and users forget slashes.
        (_, Some(at)) if head[..at].contains(':') => format!("…{}", &head[at..]),
        _ => head.to_owned(),
    };
    format!("{head}{query}")
}

impl fmt::Display for FileUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&redact(&self.text))
    }
}

impl fmt::Debug for FileUrl {
    /// Secrets stay out of logs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FileUrl({self})")
    }
}

impl TryFrom<String> for FileUrl {
    type Error = InvalidUrl;

    /// Of what was accepted before, perhaps by an earlier version that was less strict.
    fn try_from(text: String) -> Result<Self, InvalidUrl> {
        let text = text.trim();
        if let Some(plain) = FileUrl::plain(text) {
            return Ok(plain);
        }
        if !text.contains(char::is_control) {
            return FileUrl::of_standard(text);
        }
        let encoded = text.chars().fold(String::new(), |mut encoded, character| {
            match character.is_control() {
                true => encoded.extend(url::form_urlencoded::byte_serialize(
                    character.encode_utf8(&mut [0; 4]).as_bytes(),
                )),
                false => encoded.push(character),
            }
            encoded
        });
        FileUrl::of_standard(&encoded)
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
            "https:u:p@se/f",
            "'…@se/f' carries credentials; use a token instead",
        );
        check(
            "//u:p@se/f",
            "'…@se/f' is not a URL: relative URL without a base",
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
    fn control_characters_are_refused_and_shown_harmlessly() {
        let why = "holds a control character; a file's name in a URL cannot have one";
        check(
            "https://h/x\r\n2026-01-01 WARN forged",
            &format!("'https://h/x\\u{{d}}\\n2026-01-01 WARN forged' {why}")
                .replace("\\n", "\\u{a}"),
        );
        check(
            "https://h/\x1b[31mred",
            &format!("'https://h/\\u{{1b}}[31mred' {why}"),
        );
        check(
            "https://h/\u{9b}31m",
            &format!("'https://h/\\u{{9b}}31m' {why}"),
        );
        check(
            "root://h/x%0d%0aDELE y",
            &format!("'root://h/x%0d%0aDELE y' {why}"),
        );
        check("gsiftp://h/x%250Ay", &format!("'gsiftp://h/x%250Ay' {why}"));
        check("sftp://h/x%00y", &format!("'sftp://h/x%00y' {why}"));
        // A name over HTTP stays encoded on its whole way.
        check("https://h/x%0ay", "https://h");
    }

    #[test]
    fn a_url_that_was_stored_with_control_characters_stays_readable() {
        let read = FileUrl::try_from("https://h/x\ny".to_owned()).expect("readable");
        assert_eq!(read.as_str(), "https://h/x%0Ay");
    }

    #[test]
    fn a_host_left_out_is_not_taken_from_the_path() {
        for url in [
            "https:///data/x",
            "https:data/x",
            "https:/data/x",
            "https://\\data/x",
        ] {
            check(url, &format!("'{url}' names no host"));
        }
        check("https://[2001:db8::1]/x", "https://[2001:db8::1]");
    }

    #[test]
    fn credentials_leave_a_url_and_come_back_as_they_were() {
        let split = |text: &str, expected: &str| {
            let full = FileUrl::parse(text).expect(text);
            let (bare, query) = full.clone().split_credentials().expect(text);
            assert_eq!(bare.as_str(), expected);
            assert_eq!(bare.place(), full.place(), "{text}");
            assert_eq!(query.is_some(), text != expected, "{text}");
            if let Some(query) = query {
                assert_eq!(bare.with_query(&query).expect(text), full);
            }
        };
        split("https://se/f", "https://se/f");
        split("https://se/f?version=2#top", "https://se/f?version=2#top");
        split("https://[::1]:8443/f?authz=SECRET", "https://[::1]:8443/f");
        split("root://se//f?a=b&authz=SECRET&c=d", "root://se//f?a=b&c=d");
        split("root://se//f?a=b?authz=SECRET", "root://se//f?a=b");
        split("https://se/f?%61uthz=SECRET", "https://se/f");
        split("https://se/f?Access_Token=SECRET;x=1", "https://se/f?x=1");
        split("https://se/f#access_token=SECRET", "https://se/f");
        split(
            "https://b.s3.org/f?X-Amz-Algorithm=A&X-Amz-Credential=K&X-Amz-Signature=S&versionId=7",
            "https://b.s3.org/f?versionId=7",
        );
        split(
            "https://a.blob.org/c/f?sv=2024&sp=r&sig=SECRET%3D",
            "https://a.blob.org/c/f?sv=2024&sp=r",
        );
        split(
            "https://se/f?temp_url_sig=S&temp_url_expires=1",
            "https://se/f?temp_url_expires=1",
        );
        split(
            "https://se/f?x=eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl",
            "https://se/f",
        );
        split(
            "https://se/f?x=MDAxMWxvY2F0aW9uIHNlCjAwMTFpZGVudGlmaWVy",
            "https://se/f",
        );
        split(
            "srm://se:8443/m?SFN=/d/token/f",
            "srm://se:8443/m?SFN=/d/token/f",
        );
    }

    #[test]
    fn a_parameter_is_a_credential_by_its_words_and_not_by_letters_in_it() {
        let is_sealed = |parameter: &str| {
            let url = FileUrl::parse(&format!("https://se/f?{parameter}")).expect(parameter);
            url.split_credentials().expect(parameter).1.is_some()
        };
        for secret in [
            "authz=S",
            "AUTHZ=S",
            "Authorization=S",
            "authToken=S",
            "access_token=S",
            "access-token=S",
            "AccessToken=S",
            "accesstoken=S",
            "X-Amz-Date=S",
            "X-Amz-Security-Token=S",
            "X-Goog-Credential=S",
            "AWSAccessKeyId=S",
            "OSSAccessKeyId=S",
            "GoogleAccessId=S",
            "Signature=S",
            "q-signature=S",
            "sig=S",
            "temp_url_sig=S",
            "Key-Pair-Id=S",
            "api_key=S",
            "apikey=S",
            "X-Api-Key=S",
            "secret_key=S",
            "client_secret=S",
            "jwt=S",
            "bearer=S",
            "macaroon=S",
            "password=S",
            "passwd=S",
            "pwd=S",
            "pass=S",
            "session=S",
            "sessionId=S",
            "JSESSIONID=S",
            "cookie=S",
            "ticket=S",
            "uploadAuth=S",
            "uploadauth=S",
            "OAuth2=S",
            "token1=S",
            "userpwd=S",
            "secretId=S",
            "tokenid=S",
            "master_key=S",
            "token_value=S",
            "key=AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY",
        ] {
            assert!(is_sealed(secret), "{secret}");
        }
        for name in [
            "key=run7/file.root",
            "file-key=run7",
            "objectKey=run7",
            "keyword=a",
            "monkey=a",
            "author=a",
            "authorship=a",
            "tokenizer=a",
            "tokens_seen=7",
            "design=a",
            "signal=a",
            "passage=a",
            "compass=a",
            "sessions=3",
            "secretary=a",
            "cookies=a",
            "versionId=7",
            "uploads=1",
            "svcClass=default",
            "xrdcl.requuid=1",
        ] {
            assert!(!is_sealed(name), "{name}");
        }
        // Such URLs name their file by the parameter alone.
        let file = FileUrl::parse("https://se/?key=run7/file.root").expect("valid");
        assert_eq!(file.clone().split_credentials(), Ok((file, None)));
    }

    #[test]
    fn what_others_repeat_of_a_credential_is_hidden() {
        let url = FileUrl::parse(
            "https://se/f?a=b&authz=Bearer%20eyJhbGciOiJFUzI1NiJ9.payload.signature&pwd=hush",
        );
        let credentials = url.expect("valid").credentials();
        let check = |text: &str, expected: &str| {
            assert_eq!(hide_credentials(text, &credentials), expected);
        };
        check(
            "no right for Bearer eyJhbGciOiJFUzI1NiJ9.payload.signature!",
            "no right for …!",
        );
        check("/f?authz=Bearer%20eyJhbGciOiJFUzI1NiJ9.pay", "/f?authz=…");
        check("hush, hush: ab", "…, … ab");
    }

    #[test]
    fn a_url_that_is_nothing_but_credentials_names_no_file() {
        let url = FileUrl::parse("https://se/?authz=SECRET").expect("valid");
        let why = url.split_credentials().expect_err("no file").to_string();
        assert_eq!(why, "'https://se/' names no file: the path is empty");
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
