//! Paths in a storage element's namespace: absolute, decoded, without `.` or `..`, compared component by component.

use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// Bytes that one name may have, as on Linux file systems.
pub const NAME_BYTES_MAX: usize = 255;
/// Bytes that a whole path may have.
pub const PATH_BYTES_MAX: usize = 4096;

/// An absolute path, normalised. The root is the empty list of names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NamespacePath {
    names: Vec<String>,
}

/// Why a text is no path of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidPath {
    /// It does not begin with `/`.
    #[error("the path must begin with '/'")]
    NotAbsolute,
    /// `..` could leave the area that a token or a prefix grants, so it is refused, not resolved.
    #[error("the path must not contain '..'")]
    ParentReference,
    /// A `%` without two hex digits, or bytes that are not UTF-8.
    #[error("the path is not valid percent-encoded UTF-8")]
    Encoding,
    /// NUL, other control characters, or an encoded slash inside a name.
    #[error("the path contains a character that no file name may have")]
    Character,
    /// Beyond [`NAME_BYTES_MAX`] or [`PATH_BYTES_MAX`].
    #[error(
        "the path or one of its names is too long (at most {NAME_BYTES_MAX} bytes a name, {PATH_BYTES_MAX} in all)"
    )]
    TooLong,
}

impl NamespacePath {
    /// The root directory.
    pub fn root() -> NamespacePath {
        NamespacePath { names: Vec::new() }
    }

    /// From a decoded path: `//` and `.` are dropped, `..` is refused.
    pub fn parse(text: &str) -> Result<NamespacePath, InvalidPath> {
        if !text.starts_with('/') {
            return Err(InvalidPath::NotAbsolute);
        }
        if text.len() > PATH_BYTES_MAX {
            return Err(InvalidPath::TooLong);
        }
        let mut names = Vec::new();
        for name in text.split('/') {
            match name {
                "" | "." => {}
                ".." => return Err(InvalidPath::ParentReference),
                _ if name.len() > NAME_BYTES_MAX => return Err(InvalidPath::TooLong),
                _ if name.chars().any(|c| c.is_control()) => return Err(InvalidPath::Character),
                _ => names.push(name.to_owned()),
            }
        }
        Ok(NamespacePath { names })
    }

    /// From the path of a request target or URL, still percent-encoded (RFC 3986 §2.1), without query. Decoded
    /// exactly once, so that `%252e` stays a name and cannot become `..`.
    pub fn from_encoded(encoded: &str) -> Result<NamespacePath, InvalidPath> {
        let mut decoded = Vec::with_capacity(encoded.len());
        let mut bytes = encoded.bytes();
        while let Some(byte) = bytes.next() {
            if byte != b'%' {
                decoded.push(byte);
                continue;
            }
            let mut digit = || {
                bytes
                    .next()
                    .and_then(|b| (b as char).to_digit(16))
                    .ok_or(InvalidPath::Encoding)
            };
            let value = (digit()? * 16 + digit()?) as u8;
            // An encoded slash would split a name that the sender holds for one.
            if value == b'/' {
                return Err(InvalidPath::Character);
            }
            decoded.push(value);
        }
        NamespacePath::parse(&String::from_utf8(decoded).map_err(|_| InvalidPath::Encoding)?)
    }

    /// The names from the root down.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// True for `/`.
    pub fn is_root(&self) -> bool {
        self.names.is_empty()
    }

    /// The last name; `None` for the root.
    pub fn name(&self) -> Option<&str> {
        self.names.last().map(String::as_str)
    }

    /// The directory that holds it; `None` for the root.
    pub fn parent(&self) -> Option<NamespacePath> {
        let (_, parents) = self.names.split_last()?;
        Some(NamespacePath {
            names: parents.to_vec(),
        })
    }

    /// The path one name below. The name must be valid, as [`NamespacePath::parse`] demands.
    pub fn child(&self, name: &str) -> Result<NamespacePath, InvalidPath> {
        if name.contains('/') {
            return Err(InvalidPath::Character);
        }
        NamespacePath::parse(&format!(
            "{}/{name}",
            if self.is_root() {
                String::new()
            } else {
                self.to_string()
            }
        ))
    }

    /// `self` is `prefix` or lies below it, at component borders: `/foo/bargain` is not below `/foo/bar`.
    pub fn is_within(&self, prefix: &NamespacePath) -> bool {
        self.names.starts_with(&prefix.names)
    }

    /// This path with every name of `below` appended.
    pub fn join(&self, below: &NamespacePath) -> NamespacePath {
        NamespacePath {
            names: self.names.iter().chain(&below.names).cloned().collect(),
        }
    }

    /// Percent-encoded for URLs and WebDAV hrefs: everything but unreserved characters and `/` is encoded.
    pub fn to_encoded(&self) -> String {
        let mut out = String::new();
        for name in &self.names {
            out.push('/');
            for byte in name.bytes() {
                match byte {
                    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        out.push(byte as char)
                    }
                    _ => out.push_str(&format!("%{byte:02X}")),
                }
            }
        }
        if out.is_empty() { "/".to_owned() } else { out }
    }
}

impl fmt::Display for NamespacePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() {
            return out.write_str("/");
        }
        self.names
            .iter()
            .try_for_each(|name| write!(out, "/{name}"))
    }
}

impl TryFrom<String> for NamespacePath {
    type Error = InvalidPath;
    fn try_from(text: String) -> Result<Self, InvalidPath> {
        NamespacePath::parse(&text)
    }
}

impl From<NamespacePath> for String {
    fn from(path: NamespacePath) -> String {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(encoded: &str, expected: &str) {
        let got = match NamespacePath::from_encoded(encoded) {
            Ok(path) => path.to_string(),
            Err(why) => format!("{why:?}"),
        };
        assert_eq!(got, expected, "{encoded}");
    }

    #[test]
    fn every_way_to_write_dot_dot_is_refused() {
        check("/a/../b", "ParentReference");
        check("/a/%2e%2e/b", "ParentReference");
        check("/a/.%2E/b", "ParentReference");
        check("/a/%252e%252e/b", "/a/%2e%2e/b");
        check("/a/..%2fb", "Character");
        check("/a/...", "/a/...");
    }

    #[test]
    fn spelling_does_not_matter() {
        check("//a//./b/", "/a/b");
        check("/", "/");
        check("/%C3%A9t%C3%A9", "/été");
        check("/a%00b", "Character");
        check("/%zz", "Encoding");
        check("/%f", "Encoding");
        check("a", "NotAbsolute");
    }

    #[test]
    fn a_prefix_matches_whole_names_only() {
        let within = |path: &str, prefix: &str| {
            let parse = |text| NamespacePath::parse(text).expect("valid");
            parse(path).is_within(&parse(prefix))
        };
        assert!(
            within("/foo/bar", "/foo/bar") && within("/foo/bar/x", "/foo/bar") && within("/x", "/")
        );
        assert!(!within("/foo/bargain", "/foo/bar") && !within("/foo", "/foo/bar"));
    }

    #[test]
    fn encoding_goes_back_and_forth() {
        for text in ["/", "/a b/ü%/#?;", "/...", "/a+b"] {
            let path = NamespacePath::parse(text).expect("valid");
            assert_eq!(NamespacePath::from_encoded(&path.to_encoded()), Ok(path));
        }
    }
}
