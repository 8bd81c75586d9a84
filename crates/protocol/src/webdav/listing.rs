//! Reading a `207 Multi-Status` answer, from whatever storage element wrote it.

use super::xml::{InvalidXml, Name, Node, Walk};
use super::{DAV, LCGDM, SRM, parse_http_date, parse_iso_date};
use penstock_model::{Bytes, Locality, NamespacePath, Timestamp};

/// Bytes of an answer that are read: about 100,000 entries of a talkative server.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Entries of an answer: an entry costs a server few bytes, and whoever reads it many.
const ENTRIES_MAX: usize = 1_000_000;
/// Bytes of an `href`: a path has at most 4,096, and percent-encoding makes three of one.
const HREF_BYTES_MAX: usize = 16 << 10;
/// Bytes of an entity tag. One that is longer counts as not told.
pub const ETAG_BYTES_MAX: usize = 1 << 10;

/// What a storage element told of one file or directory. Absent is what it did not tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PropfindEntry {
    /// As it was written: a path or a URL, percent-encoded.
    pub href: String,
    /// The path in it, decoded; `None` when it is not a valid one. It begins where the server's paths begin,
    /// so compare it with the path that was asked for.
    pub path: Option<NamespacePath>,
    /// It says that it is a directory.
    pub is_directory: bool,
    pub size: Option<Bytes>,
    /// When its content last changed.
    pub modified: Option<Timestamp>,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// With quotes, as it came.
    pub etag: Option<String>,
    /// `st_mode`, with the bits of the type.
    pub mode: Option<u32>,
    /// Where the bytes of a file are.
    pub locality: Option<Locality>,
    /// Bytes in use where it is.
    pub quota_used: Option<Bytes>,
    /// Bytes still to be had where it is.
    pub quota_available: Option<Bytes>,
    /// The status of the whole entry, when it has one of its own.
    pub status: Option<u16>,
    /// Some properties were told with a status of 2xx, or without one.
    pub has_properties: bool,
}

/// The entries of an answer, in its order. Properties count only where their status is 2xx or absent.
pub fn parse_multistatus(body: &[u8]) -> Result<Vec<PropfindEntry>, InvalidXml> {
    let mut walk = Walk::new(body, ANSWER_BYTES_MAX)?;
    let mut reading = MultistatusParser::default();
    while let Some(node) = walk.step()? {
        match node {
            Node::Open(name) => reading.open(name)?,
            Node::Text(text) => reading.text.push_str(&text),
            Node::Close => reading.close()?,
        }
    }
    Ok(reading.entries)
}

#[derive(Default)]
struct MultistatusParser {
    entries: Vec<PropfindEntry>,
    open: Vec<Name>,
    text: String,
    entry: PropfindEntry,
    /// What the current `propstat` tells; it counts only when its status, which comes last, says so.
    told: Vec<(Name, String)>,
    told_status: Option<u16>,
}

impl MultistatusParser {
    fn open(&mut self, name: Name) -> Result<(), InvalidXml> {
        match self.open.len() {
            0 if !name.is(DAV, "multistatus") => {
                return Err(InvalidXml::OtherDocument("multistatus"));
            }
            1 => self.entry = PropfindEntry::default(),
            2 => {
                self.told.clear();
                self.told_status = None;
            }
            _ => {}
        }
        self.text.clear();
        self.open.push(name);
        Ok(())
    }

    fn close(&mut self) -> Result<(), InvalidXml> {
        let Some(name) = self.open.pop() else {
            return Ok(());
        };
        let text = std::mem::take(&mut self.text);
        let parent = |local| self.open.last().is_some_and(|parent| parent.is(DAV, local));
        match self.open.len() {
            1 if name.is(DAV, "response") => {
                if self.entries.len() == ENTRIES_MAX {
                    return Err(InvalidXml::TooManyEntries(ENTRIES_MAX));
                }
                self.entries.push(std::mem::take(&mut self.entry));
            }
            2 if name.is(DAV, "href") && parent("response") && self.entry.href.is_empty() => {
                let href = text.trim();
                if href.len() > HREF_BYTES_MAX {
                    return Err(InvalidXml::ElementTooLong(HREF_BYTES_MAX));
                }
                self.entry.href = href.to_owned();
                self.entry.path = path_of(&self.entry.href);
            }
            2 if name.is(DAV, "status") => self.entry.status = status_code(&text),
            2 if name.is(DAV, "propstat") => self.count_told(),
            3 if name.is(DAV, "status") => self.told_status = status_code(&text),
            4 if parent("prop") => self.told.push((name, text)),
            // resourcetype holds an element instead of text.
            5 if name.is(DAV, "collection") && parent("resourcetype") => {
                self.told.push((name, String::new()));
            }
            _ => {}
        }
        Ok(())
    }

    fn count_told(&mut self) {
        let told = std::mem::take(&mut self.told);
        if self
            .told_status
            .is_none_or(|status| (200..300).contains(&status))
        {
            self.entry.has_properties = true;
            for (name, text) in told {
                set(&mut self.entry, &name, text.trim());
            }
        }
    }
}

fn set(entry: &mut PropfindEntry, name: &Name, text: &str) {
    let bytes = || text.parse().ok().map(Bytes);
    match (name.namespace.as_str(), name.local.as_str()) {
        (DAV, "collection") => entry.is_directory = true,
        // XRootD and others tell it twice.
        (DAV, "iscollection") => entry.is_directory |= text == "1",
        (DAV, "getcontentlength") => entry.size = bytes().or(entry.size),
        (DAV, "getlastmodified") => entry.modified = parse_http_date(text).or(entry.modified),
        (DAV, "creationdate") => {
            entry.created = parse_iso_date(text)
                .or_else(|| parse_http_date(text))
                .or(entry.created);
        }
        (DAV, "getetag") if !text.is_empty() && text.len() <= ETAG_BYTES_MAX => {
            entry.etag = Some(text.to_owned());
        }
        (LCGDM, "mode") => entry.mode = u32::from_str_radix(text, 8).ok().or(entry.mode),
        (SRM, "FileLocality") => entry.locality = Locality::parse_srm(text).or(entry.locality),
        (DAV, "quota-used-bytes") => entry.quota_used = bytes().or(entry.quota_used),
        (DAV, "quota-available-bytes") => entry.quota_available = bytes().or(entry.quota_available),
        _ => {}
    }
}

/// `HTTP/1.1 200 OK`.
fn status_code(line: &str) -> Option<u16> {
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// RFC 4918 §8.3: an absolute URL or an absolute path.
fn path_of(href: &str) -> Option<NamespacePath> {
    let path = match href.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |slash| &rest[slash..]),
        None => href,
    };
    let end = path.find(['?', '#']).unwrap_or(path.len());
    NamespacePath::from_encoded(&path[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `path kind size modified` per entry.
    fn check(body: &str, expected: &[&str]) {
        let show = |entry: &PropfindEntry| {
            let path = entry
                .path
                .as_ref()
                .map_or("?".to_owned(), ToString::to_string);
            let kind = if entry.is_directory { "dir" } else { "file" };
            let size = entry.size.map_or("-".to_owned(), |size| size.0.to_string());
            let modified = entry
                .modified
                .map_or("-".to_owned(), |time| time.unix_seconds().to_string());
            format!("{path} {kind} {size} {modified}")
        };
        let entries = parse_multistatus(body.as_bytes()).expect("understood");
        let got: Vec<String> = entries.iter().map(show).collect();
        assert_eq!(got, expected, "{body}");
    }

    #[test]
    fn an_answer_in_the_shape_of_xrootd() {
        check(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
             <D:multistatus xmlns:D=\"DAV:\" xmlns:ns1=\"http://apache.org/dav/props/\" xmlns:ns0=\"DAV:\">\n\
             <D:response xmlns:lp1=\"DAV:\" xmlns:lp2=\"http://apache.org/dav/props/\" \
             xmlns:lp3=\"LCGDM:\">\n\
             <D:href>/data/c</D:href>\n<D:propstat>\n<D:prop>\n\
             <lp1:getcontentlength>4096</lp1:getcontentlength>\n\
             <lp1:getlastmodified>Sat, 21 Nov 2026 06:19:51 GMT</lp1:getlastmodified>\n\
             <lp1:resourcetype><D:collection/></lp1:resourcetype>\n\
             <lp1:iscollection>1</lp1:iscollection>\n<lp1:executable>T</lp1:executable>\n\
             </D:prop>\n<D:status>HTTP/1.1 200 OK</D:status>\n</D:propstat>\n</D:response>\n\
             <D:response xmlns:lp1=\"DAV:\"><D:href>/data/c/f1</D:href><D:propstat><D:prop>\
             <lp1:getcontentlength>200000</lp1:getcontentlength><lp1:iscollection>0</lp1:iscollection>\
             </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\n</D:multistatus>",
            &["/data/c dir 4096 1795241991", "/data/c/f1 file 200000 -"],
        );
    }

    #[test]
    fn hrefs_may_be_urls_and_encoded() {
        check(
            "<multistatus xmlns='DAV:'><response><href> https://se:8443/a%20b/?x=1 </href></response>\
             <response><href>https://se</href></response><response><href>/x&amp;y/%2e%2e</href></response>\
             <response><href>/x&amp;y&#x21;</href></response></multistatus>",
            &[
                "/a b file - -",
                "/ file - -",
                "? file - -",
                "/x&y! file - -",
            ],
        );
    }

    #[test]
    fn where_a_file_is_comes_in_the_words_of_srm() {
        let told = |word: &str| {
            let body = format!(
                "<multistatus xmlns='DAV:'><response><href>/f</href><propstat><prop>\
                 <x:FileLocality xmlns:x='http://srm.lbl.gov/StorageResourceManager'>{word}</x:FileLocality></prop>\
                 </propstat></response></multistatus>"
            );
            parse_multistatus(body.as_bytes()).expect("understood")[0].locality
        };
        assert_eq!(told("NEARLINE"), Some(Locality::Tape));
        assert_eq!(told(" ONLINE_AND_NEARLINE "), Some(Locality::DiskAndTape));
        assert_eq!(told("TAPE"), None);
    }

    #[test]
    fn properties_that_were_not_found_do_not_count() {
        check(
            "<multistatus xmlns='DAV:'><response><href>/f</href>\
             <propstat><prop><getcontentlength>1</getcontentlength></prop>\
             <status>HTTP/1.1 404 Not Found</status></propstat>\
             <propstat><status>HTTP/1.1 200 OK</status><prop>\
             <getlastmodified>Thu, 01 Jan 1970 00:00:05 GMT</getlastmodified></prop></propstat>\
             </response></multistatus>",
            &["/f file - 5"],
        );
        let body = "<multistatus xmlns='DAV:'><response><href>/f</href>\
                    <status>HTTP/1.1 423 Locked</status></response></multistatus>";
        let entries = parse_multistatus(body.as_bytes()).expect("understood");
        assert_eq!(entries[0].status, Some(423));
    }

    #[test]
    fn what_a_server_makes_long_is_refused_or_not_told() {
        let listed = |href: &str, etag: &str| {
            let body = format!(
                "<multistatus xmlns='DAV:'><response><href>{href}</href><propstat><prop><getetag>{etag}</getetag>\
                 </prop></propstat></response></multistatus>"
            );
            let entries = parse_multistatus(body.as_bytes());
            entries.map(|mut entries| entries.remove(0).etag)
        };
        let long = "x".repeat(HREF_BYTES_MAX);
        assert_eq!(listed("/f", "\"1\""), Ok(Some("\"1\"".to_owned())));
        assert_eq!(listed("/f", &long), Ok(None));
        let refused = listed(&format!("/{long}"), "\"1\"");
        assert_eq!(refused, Err(InvalidXml::ElementTooLong(HREF_BYTES_MAX)));
        let entries = "<response/>".repeat(ENTRIES_MAX + 1);
        let many = format!("<multistatus xmlns='DAV:'>{entries}</multistatus>");
        let refused = parse_multistatus(many.as_bytes());
        assert_eq!(refused, Err(InvalidXml::TooManyEntries(ENTRIES_MAX)));
    }

    #[test]
    fn other_documents_are_refused() {
        let refused = parse_multistatus(b"<html><body>Login</body></html>");
        assert_eq!(refused, Err(InvalidXml::OtherDocument("multistatus")));
        assert!(parse_multistatus(b"").is_err());
    }
}
