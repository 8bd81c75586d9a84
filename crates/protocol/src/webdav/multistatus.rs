//! Writing a `207 Multi-Status` answer, entry by entry (RFC 4918 §13, §14).

use super::ask::{PropertyName, Propfind};
use super::lock::{SUPPORTED_LOCKS, write_active_locks};
use super::xml::escape_into;
use super::{DAV, DCACHE, LCGDM, SRM, format_http_date};
use crate::digest;
use http::StatusCode;
use penstock_model::{Bytes, Checksum, Locality, Lock, NamespacePath, Timestamp};

/// What is known of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Where it is; its href is this path.
    pub path: NamespacePath,
    /// A directory, else a file.
    pub is_directory: bool,
    /// Of a file; not told for directories.
    pub size: Bytes,
    /// When its content last changed.
    pub modified: Timestamp,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// As in the `ETag` header, with its quotes.
    pub etag: Option<String>,
    /// As in the `Content-Type` header.
    pub content_type: Option<String>,
    /// Who made it.
    pub owner: Option<String>,
    /// To which group it belongs.
    pub group: Option<String>,
    /// Known checksums, told to those who ask for them in dCache's way.
    pub checksums: Vec<Checksum>,
    /// Where the bytes of a file are; told to those who ask for it.
    pub locality: Option<Locality>,
    /// RFC 4331: bytes used and still available where this directory is.
    pub quota: Option<Quota>,
    /// The locks that writing it needs.
    pub locks: Vec<Lock>,
    /// Now, to tell how long the locks last.
    pub now: Timestamp,
    /// What clients keep with it.
    pub dead: Vec<KeptProperty>,
}

/// A property that a client has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptProperty {
    pub name: PropertyName,
    /// The whole element, as [`super::parse_property_update`] made it.
    pub element: String,
}

/// Space of a directory (RFC 4331 §3, §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// In use; `None` where it is not known for this directory.
    pub used: Option<Bytes>,
    /// Free to be used; `None` where nobody knows.
    pub available: Option<Bytes>,
}

/// The properties that we know, in the order in which they are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Property {
    DisplayName,
    ResourceType,
    ContentLength,
    LastModified,
    CreationDate,
    ContentType,
    Etag,
    IsCollection,
    Mode,
    Owner,
    Group,
    QuotaUsed,
    QuotaAvailable,
    Checksums,
    Locality,
    LockDiscovery,
    SupportedLock,
}

impl Property {
    const ALL: [Property; 17] = [
        Property::DisplayName,
        Property::ResourceType,
        Property::ContentLength,
        Property::LastModified,
        Property::CreationDate,
        Property::ContentType,
        Property::Etag,
        Property::IsCollection,
        Property::Mode,
        Property::Owner,
        Property::Group,
        Property::QuotaUsed,
        Property::QuotaAvailable,
        Property::Checksums,
        Property::Locality,
        Property::LockDiscovery,
        Property::SupportedLock,
    ];

    fn name(self) -> (&'static str, &'static str) {
        match self {
            Property::DisplayName => (DAV, "displayname"),
            Property::ResourceType => (DAV, "resourcetype"),
            Property::ContentLength => (DAV, "getcontentlength"),
            Property::LastModified => (DAV, "getlastmodified"),
            Property::CreationDate => (DAV, "creationdate"),
            Property::ContentType => (DAV, "getcontenttype"),
            Property::Etag => (DAV, "getetag"),
            Property::IsCollection => (DAV, "iscollection"),
            Property::Mode => (LCGDM, "mode"),
            Property::Owner => (DAV, "owner"),
            Property::Group => (DAV, "group"),
            Property::QuotaUsed => (DAV, "quota-used-bytes"),
            Property::QuotaAvailable => (DAV, "quota-available-bytes"),
            Property::Checksums => (DCACHE, "Checksums"),
            Property::Locality => (SRM, "FileLocality"),
            Property::LockDiscovery => (DAV, "lockdiscovery"),
            Property::SupportedLock => (DAV, "supportedlock"),
        }
    }

    fn find(name: &PropertyName) -> Option<Property> {
        Property::ALL.into_iter().find(|property| {
            let (namespace, local) = property.name();
            name.is(namespace, local)
        })
    }

    /// RFC 4331 §2: quotas are told only to those who ask, because they may be dear to compute. What is said of
    /// locks would double the length of every listing.
    fn is_told_unasked(self) -> bool {
        !matches!(
            self,
            Property::QuotaUsed
                | Property::QuotaAvailable
                | Property::Checksums
                | Property::Locality
                | Property::LockDiscovery
                | Property::SupportedLock
        )
    }

    /// The value as text; `None`: this entry has no such property.
    fn value(self, of: &Properties) -> Option<String> {
        let file = !of.is_directory;
        match self {
            Property::DisplayName => Some(of.path.name().unwrap_or("/").to_owned()),
            // Their values are elements, see `write_value`.
            Property::ResourceType | Property::LockDiscovery | Property::SupportedLock => {
                Some(String::new())
            }
            Property::ContentLength => file.then(|| of.size.0.to_string()),
            Property::LastModified => Some(format_http_date(of.modified)),
            Property::CreationDate => of.created.map(|created| created.to_fts() + "Z"),
            Property::ContentType => of.content_type.clone(),
            Property::Etag => of.etag.clone(),
            Property::IsCollection => Some(if file { "0" } else { "1" }.to_owned()),
            // st_mode in octal, as davix reads it. Tokens decide, not modes; these are what `ls -l` should
            // show.
            Property::Mode => Some(if file { "0100644" } else { "0040755" }.to_owned()),
            Property::Owner => of.owner.clone(),
            Property::Group => of.group.clone(),
            Property::QuotaUsed => of.quota?.used.map(|used| used.0.to_string()),
            Property::QuotaAvailable => of.quota?.available.map(|free| free.0.to_string()),
            Property::Locality => of.locality.map(|place| place.srm_name().to_owned()),
            Property::Checksums => {
                let value = digest::header_value(&of.checksums);
                let text = value.to_str().unwrap_or_default();
                (!text.is_empty()).then(|| text.to_owned())
            }
        }
    }
}

/// The beginning of the body. Answer with `Content-Type: application/xml; charset="utf-8"`.
pub fn begin_multistatus(out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
          <D:multistatus xmlns:D=\"DAV:\" xmlns:L=\"LCGDM:\" \
          xmlns:C=\"http://www.dcache.org/2013/webdav\" \
          xmlns:S=\"http://srm.lbl.gov/StorageResourceManager\">\n",
    );
}

/// One entry with what was asked of it.
pub fn write_entry(out: &mut Vec<u8>, asked: &Propfind, entry: &Properties) {
    out.extend_from_slice(b"<D:response><D:href>");
    write_href(out, &entry.path, entry.is_directory);
    out.extend_from_slice(b"</D:href>");
    match asked {
        Propfind::AllProperties => write_found(out, told(&[]), entry, true),
        Propfind::AllAnd(names) => {
            write_found(out, told(names), entry, true);
            write_lacking(out, names, entry);
        }
        Propfind::Names => write_found(out, Property::ALL.into_iter(), entry, false),
        Propfind::Named(names) => write_named(out, names, entry),
    }
    out.extend_from_slice(b"</D:response>\n");
}

/// One entry of which only a status is told: what a `DELETE` or `MOVE` of a directory could not do (RFC 4918
/// §9.6.1).
pub fn write_status(
    out: &mut Vec<u8>,
    path: &NamespacePath,
    is_directory: bool,
    status: StatusCode,
) {
    out.extend_from_slice(b"<D:response><D:href>");
    write_href(out, path, is_directory);
    out.extend_from_slice(b"</D:href>");
    write_status_line(out, status);
    out.extend_from_slice(b"</D:response>\n");
}

/// The end of the body.
pub fn end_multistatus(out: &mut Vec<u8>) {
    out.extend_from_slice(b"</D:multistatus>\n");
}

/// What is told unasked, and what of the rest was asked for.
fn told(names: &[PropertyName]) -> impl Iterator<Item = Property> {
    Property::ALL.into_iter().filter(move |property| {
        property.is_told_unasked()
            || names
                .iter()
                .any(|name| Property::find(name) == Some(*property))
    })
}

fn write_named(out: &mut Vec<u8>, names: &[PropertyName], entry: &Properties) {
    if names.is_empty() || names.iter().any(|name| is_there(name, entry)) {
        out.extend_from_slice(b"<D:propstat><D:prop>");
        for name in names {
            match Property::find(name) {
                Some(property) => write_property(out, property, entry, true),
                None => {
                    let kept = entry.dead.iter().filter(|kept| kept.name == *name);
                    kept.for_each(|kept| out.extend_from_slice(kept.element.as_bytes()));
                }
            }
        }
        out.extend_from_slice(b"</D:prop>");
        write_status_line(out, StatusCode::OK);
        out.extend_from_slice(b"</D:propstat>");
    }
    write_lacking(out, names, entry);
}

fn is_there(name: &PropertyName, entry: &Properties) -> bool {
    match Property::find(name) {
        Some(property) => property.value(entry).is_some(),
        None => entry.dead.iter().any(|kept| kept.name == *name),
    }
}

/// RFC 4918 §9.1: what was asked for and does not exist is named with 404.
fn write_lacking(out: &mut Vec<u8>, names: &[PropertyName], entry: &Properties) {
    let mut lacking = names
        .iter()
        .filter(|name| !is_there(name, entry))
        .peekable();
    if lacking.peek().is_some() {
        out.extend_from_slice(b"<D:propstat><D:prop>");
        lacking.for_each(|name| write_property_name(out, name));
        out.extend_from_slice(b"</D:prop>");
        write_status_line(out, StatusCode::NOT_FOUND);
        out.extend_from_slice(b"</D:propstat>");
    }
}

/// These, and whatever clients keep with the entry.
fn write_found(
    out: &mut Vec<u8>,
    properties: impl Iterator<Item = Property>,
    entry: &Properties,
    values: bool,
) {
    out.extend_from_slice(b"<D:propstat><D:prop>");
    properties.for_each(|property| write_property(out, property, entry, values));
    for kept in &entry.dead {
        match values {
            true => out.extend_from_slice(kept.element.as_bytes()),
            false => write_property_name(out, &kept.name),
        }
    }
    out.extend_from_slice(b"</D:prop>");
    write_status_line(out, StatusCode::OK);
    out.extend_from_slice(b"</D:propstat>");
}

/// One property, if the entry has it.
fn write_property(out: &mut Vec<u8>, property: Property, entry: &Properties, values: bool) {
    let Some(text) = property.value(entry) else {
        return;
    };
    let begin = out.len();
    write_tag(out, b"<", property);
    out.push(b'>');
    let inner = out.len();
    if values {
        write_value(out, property, &text, entry);
    }
    if out.len() == inner {
        out.truncate(begin);
        return write_empty(out, property);
    }
    write_tag(out, b"</", property);
    out.push(b'>');
}

fn write_value(out: &mut Vec<u8>, property: Property, text: &str, entry: &Properties) {
    match property {
        Property::ResourceType if entry.is_directory => out.extend_from_slice(b"<D:collection/>"),
        Property::LockDiscovery => write_active_locks(out, &entry.locks, entry.now),
        Property::SupportedLock => out.extend_from_slice(SUPPORTED_LOCKS),
        _ => escape_into(out, text),
    }
}

fn write_empty(out: &mut Vec<u8>, property: Property) {
    write_tag(out, b"<", property);
    out.extend_from_slice(b"/>");
}

fn write_tag(out: &mut Vec<u8>, open: &[u8], property: Property) {
    let (namespace, local) = property.name();
    let prefix: &[u8] = match namespace {
        LCGDM => b"L:",
        DCACHE => b"C:",
        SRM => b"S:",
        _ => b"D:",
    };
    out.extend_from_slice(open);
    out.extend_from_slice(prefix);
    out.extend_from_slice(local.as_bytes());
}

/// The server itself tells this property, wherever it has a value.
pub(super) fn is_live(name: &PropertyName) -> bool {
    Property::find(name).is_some()
}

/// An unknown namespace is declared on the element itself, because it may be any.
pub(super) fn write_property_name(out: &mut Vec<u8>, name: &PropertyName) {
    if let Some(property) = Property::find(name) {
        return write_empty(out, property);
    }
    let prefix = if name.namespace.is_empty() { "" } else { "x:" };
    out.push(b'<');
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(name.local.as_bytes());
    if !name.namespace.is_empty() {
        out.extend_from_slice(b" xmlns:x=\"");
        escape_into(out, &name.namespace);
        out.push(b'"');
    }
    out.extend_from_slice(b"/>");
}

pub(super) fn write_status_line(out: &mut Vec<u8>, status: StatusCode) {
    let reason = status.canonical_reason().unwrap_or("Status");
    out.extend_from_slice(
        format!("<D:status>HTTP/1.1 {} {reason}</D:status>", status.as_u16()).as_bytes(),
    );
}

/// RFC 4918 §8.3: an absolute path; directories end with `/` (§5.2).
pub(super) fn write_href(out: &mut Vec<u8>, path: &NamespacePath, is_directory: bool) {
    let encoded = path.to_encoded();
    out.extend_from_slice(encoded.as_bytes());
    if is_directory && !path.is_root() {
        out.push(b'/');
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_multistatus;
    use super::*;
    use proptest::prelude::*;

    fn file(path: &str) -> Properties {
        Properties {
            path: NamespacePath::parse(path).expect("valid"),
            is_directory: false,
            size: Bytes(200_000),
            modified: Timestamp(1_795_241_978_000),
            created: Some(Timestamp(1_795_241_977_000)),
            etag: Some("\"7-2\"".to_owned()),
            content_type: None,
            owner: Some("alice <a&b>".to_owned()),
            group: None,
            checksums: vec![Checksum::parse("adler32:727f416b").expect("valid")],
            locality: None,
            quota: None,
            locks: Vec::new(),
            now: Timestamp(1_795_241_979_000),
            dead: Vec::new(),
        }
    }

    fn directory(path: &str) -> Properties {
        Properties {
            is_directory: true,
            quota: Some(Quota {
                used: Some(Bytes(5)),
                available: Some(Bytes(7)),
            }),
            ..file(path)
        }
    }

    fn written(question: &str, entry: &Properties) -> String {
        let asked = Propfind::parse(question.as_bytes()).expect("a question");
        let mut out = Vec::new();
        write_entry(&mut out, &asked, entry);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn without_a_body_a_file_is_told_as_gfal2_needs_it() {
        assert_eq!(
            written("", &file("/data/ä b")),
            "<D:response><D:href>/data/%C3%A4%20b</D:href><D:propstat><D:prop>\
             <D:displayname>ä b</D:displayname><D:resourcetype/>\
             <D:getcontentlength>200000</D:getcontentlength>\
             <D:getlastmodified>Sat, 21 Nov 2026 06:19:38 GMT</D:getlastmodified>\
             <D:creationdate>2026-11-21T06:19:37Z</D:creationdate><D:getetag>&quot;7-2&quot;</D:getetag>\
             <D:iscollection>0</D:iscollection><L:mode>0100644</L:mode>\
             <D:owner>alice &lt;a&amp;b&gt;</D:owner></D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\n"
        );
    }

    #[test]
    fn a_directory_ends_with_a_slash_and_what_it_lacks_is_named() {
        let question = "<propfind xmlns='DAV:'><prop><resourcetype/><getcontentlength/><quota-used-bytes/>\
                        <executable xmlns='http://apache.org/dav/props/'/><none xmlns=''/></prop></propfind>";
        assert_eq!(
            written(question, &directory("/data/c")),
            "<D:response><D:href>/data/c/</D:href><D:propstat><D:prop>\
             <D:resourcetype><D:collection/></D:resourcetype>\
             <D:quota-used-bytes>5</D:quota-used-bytes></D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat><D:propstat><D:prop><D:getcontentlength/>\
             <x:executable xmlns:x=\"http://apache.org/dav/props/\"/><none/></D:prop>\
             <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>\n"
        );
        assert!(written("", &directory("/")).contains("<D:href>/</D:href>"));
    }

    #[test]
    fn names_alone_carry_no_values() {
        let names = written(
            "<propfind xmlns='DAV:'><propname/></propfind>",
            &directory("/d"),
        );
        assert!(
            names.contains("<D:resourcetype/>") && names.contains("<D:quota-used-bytes/>"),
            "{names}"
        );
        assert!(
            !names.contains("<D:collection/>") && !names.contains("getcontentlength"),
            "{names}"
        );
    }

    #[test]
    fn checksums_are_told_to_those_who_ask_as_dcache_does() {
        let question =
            format!("<propfind xmlns='DAV:'><prop><Checksums xmlns='{DCACHE}'/></prop></propfind>");
        let answer = written(&question, &file("/f"));
        assert!(
            answer.contains("<C:Checksums>adler32=727f416b</C:Checksums>"),
            "{answer}"
        );
        assert!(!written("", &file("/f")).contains("Checksums"));
    }

    #[test]
    fn what_clients_keep_is_told_with_the_rest() {
        let entry = Properties {
            dead: vec![KeptProperty {
                name: PropertyName {
                    namespace: "urn:x".to_owned(),
                    local: "author".to_owned(),
                },
                element: "<x:author xmlns:x=\"urn:x\">Jim</x:author>".to_owned(),
            }],
            ..file("/f")
        };
        let all = written("", &entry);
        assert!(
            all.contains("<x:author xmlns:x=\"urn:x\">Jim</x:author></D:prop>"),
            "{all}"
        );
        let names = written("<propfind xmlns='DAV:'><propname/></propfind>", &entry);
        assert!(
            names.contains("<x:author xmlns:x=\"urn:x\"/></D:prop>"),
            "{names}"
        );
        let named = written(
            "<propfind xmlns='DAV:'><prop><author xmlns='urn:x'/><author xmlns='urn:y'/></prop></propfind>",
            &entry,
        );
        assert!(
            named.contains(
                "<D:prop><x:author xmlns:x=\"urn:x\">Jim</x:author></D:prop><D:status>HTTP/1.1 200 OK</D:status>"
            ) && named.contains("<D:prop><x:author xmlns:x=\"urn:y\"/></D:prop><D:status>HTTP/1.1 404"),
            "{named}"
        );
    }

    #[test]
    fn locks_are_told_to_those_who_ask() {
        let question = "<propfind xmlns='DAV:'><allprop/><include><supportedlock/><lockdiscovery/></include></propfind>";
        let answer = written(question, &file("/f"));
        assert!(
            answer.contains(
                "<D:lockdiscovery/><D:supportedlock><D:lockentry><D:lockscope><D:exclusive/>"
            ),
            "{answer}"
        );
        assert!(!written("", &file("/f")).contains("lock"));
    }

    #[test]
    fn a_status_entry_names_only_the_status() {
        let mut out = Vec::new();
        let path = NamespacePath::parse("/d/f").expect("valid");
        write_status(&mut out, &path, false, StatusCode::LOCKED);
        assert_eq!(
            String::from_utf8(out).expect("UTF-8"),
            "<D:response><D:href>/d/f</D:href><D:status>HTTP/1.1 423 Locked</D:status></D:response>\n"
        );
    }

    proptest! {
        #[test]
        fn whatever_the_names_are_the_answer_can_be_read_again(
            names in proptest::collection::vec("[^/\\p{Cc}]{1,20}", 1..4),
            namespace in "\\PC{1,12}",
        ) {
            let paths = names.iter().filter_map(|name| NamespacePath::root().child(name).ok());
            let entries: Vec<Properties> =
                paths.map(|path| Properties { path, owner: names.first().cloned(), ..file("/f") }).collect();
            let local = "strange".to_owned();
            let asked = Propfind::Named(vec![
                PropertyName { namespace: DAV.to_owned(), local: "getcontentlength".to_owned() },
                PropertyName { namespace: DAV.to_owned(), local: "owner".to_owned() },
                PropertyName { namespace, local },
            ]);
            let mut out = Vec::new();
            begin_multistatus(&mut out);
            entries.iter().for_each(|entry| write_entry(&mut out, &asked, entry));
            end_multistatus(&mut out);
            let listed = parse_multistatus(&out).expect("our own answer");
            let read: Vec<_> = listed.iter().map(|entry| (entry.path.clone(), entry.size)).collect();
            let meant: Vec<_> =
                entries.iter().map(|entry| (Some(entry.path.clone()), Some(entry.size))).collect();
            prop_assert_eq!(read, meant);
        }
    }
}
