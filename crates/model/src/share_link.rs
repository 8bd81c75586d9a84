//! The secret in the path of a share link, `/s/SECRET`: where it stands, however the path is written. Whoever logs, keeps or
//! shows a URL leaves it out. Which secrets open something is known to the storage element alone.

use std::ops::Range;

/// Characters of the secret of any link: a letter for its kind, and 128 bits as base64url.
pub const LINK_SECRET_CHARS: usize = 23;
/// The letter of shares.
pub const SHARE_MARK: char = 'S';
/// The name above the secret.
const SHARES: &[u8] = b"s";

/// Whether a text begins as a secret whose kind has this letter.
pub fn begins_as_link_secret(mark: char, text: &[u8]) -> bool {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    text.get(..LINK_SECRET_CHARS)
        .is_some_and(|start| char::from(start[0]) == mark && start.iter().all(allowed))
}

/// Where the secret stands in the path of a URL: its whole name, as the path has it, also when something was written behind
/// it. Escapes, doubled slashes, `.` and `..` hide nothing. `None`: there is none.
pub fn share_secret(path: &str) -> Option<Range<usize>> {
    let (mut depth, mut is_below_shares) = (0_usize, false);
    let (mut name, mut begin) = (Vec::new(), 0);
    // A slash ends the last name.
    let bytes = DecodedBytes { rest: path, at: 0 }.chain([(path.len(), b'/')]);
    for (at, byte) in bytes {
        if byte != b'/' {
            if name.is_empty() {
                begin = at;
            }
            name.push(byte);
            continue;
        }
        match name.as_slice() {
            b"" | b"." => {}
            b".." => depth = depth.saturating_sub(1),
            name => {
                let is_secret = depth == 1 && begins_as_link_secret(SHARE_MARK, name);
                if is_secret && is_below_shares {
                    return Some(begin..at);
                }
                if depth == 0 {
                    is_below_shares = name == SHARES;
                }
                depth += 1;
            }
        }
        name.clear();
    }
    None
}

/// The same in a URL, or in a path with a query.
pub fn share_secret_of_url(url: &str) -> Option<Range<usize>> {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let authority = url[..end].find("://").map_or(0, |at| at + "://".len());
    let begin = authority + url[authority..end].find('/')?;
    let found = share_secret(&url[begin..end])?;
    Some(begin + found.start..begin + found.end)
}

/// The bytes that a path stands for, with the place of each. An escape that is none stands for itself.
struct DecodedBytes<'a> {
    rest: &'a str,
    at: usize,
}

impl Iterator for DecodedBytes<'_> {
    type Item = (usize, u8);

    fn next(&mut self) -> Option<(usize, u8)> {
        let bytes = &self.rest.as_bytes()[self.at..];
        let digit = |at: usize| {
            bytes
                .get(at)
                .and_then(|byte| char::from(*byte).to_digit(16))
        };
        let (length, byte) = match (bytes.first()?, digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => (3, (high * 16 + low) as u8),
            (byte, ..) => (1, *byte),
        };
        let at = self.at;
        self.at += length;
        Some((at, byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "Sabcdefghijklmnopqrst-_";

    /// `S` stands for a secret, and so it does in what is expected.
    fn check(path: &str, expected: Option<&str>) {
        let path = path.replace('S', SECRET);
        let found = share_secret_of_url(&path).map(|it| path[it].replace(SECRET, "S"));
        assert_eq!(found.as_deref(), expected, "{path}");
    }

    #[test]
    fn the_secret_of_a_share_is_found_however_the_path_is_written() {
        for path in [
            "/s/S",
            "/s/S/f",
            "//s///S/f",
            "/./s/./S",
            "/x/../s/S",
            "/%73/S",
            "/s%2fS/f",
            "https://se:8443/s/S/f?x=/s/y",
            "https://se:8443//s/S#y",
        ] {
            check(path, Some("S"));
        }
        check("/s/S.", Some("S."));
        check("/s/S)/f", Some("S)"));
        check("/s/S%29/f", Some("S%29"));
        check("/s/SS", Some("SS"));
        let escaped = format!("/s/%53{}/f", &SECRET[1..]);
        let found = share_secret(&escaped).map(|it| escaped[it].to_owned());
        assert_eq!(found, Some(format!("%53{}", &SECRET[1..])));
        for path in [
            "",
            "/",
            "/s",
            "/s/",
            "/s/short",
            "/s/%",
            "/S",
            "/t/S",
            "/d/s/S",
            "/s/d/S",
            "/s/xS",
            "https://s/S",
            "https://se",
            "https://se/f?x=/s/S",
        ] {
            check(path, None);
        }
        assert!(!begins_as_link_secret('S', &SECRET.as_bytes()[..22]));
        assert!(!begins_as_link_secret('V', SECRET.as_bytes()));
    }
}
