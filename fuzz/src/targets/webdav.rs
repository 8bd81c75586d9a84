//! WebDAV's XML: what clients ask, and what other servers tell.

use super::{Target, texts};
use http::HeaderMap;
use penstock_model::{Bytes, NamespacePath, Timestamp};
use penstock_protocol::webdav::{
    Depth, Properties, Propfind, STAT_BODY, begin_multistatus, end_multistatus, parse_multistatus,
    write_entry,
};

pub const ASKED: Target = Target {
    name: "webdav_asked",
    check: check_asked,
    seeds: || {
        texts(&[
            STAT_BODY,
            "",
            "<propfind xmlns='DAV:'><allprop/></propfind>",
            "<a:propfind xmlns:a='DAV:'><a:propname/></a:propfind>",
            "<D:propfind xmlns:D='DAV:' xmlns:x='urn:x'><D:prop><x:y/><getetag xmlns='DAV:'/></D:prop></D:propfind>",
            "<!DOCTYPE p [<!ENTITY a 'b'>]><propfind xmlns='DAV:'><prop>&a;</prop></propfind>",
        ])
    },
};

pub const TOLD: Target = Target {
    name: "webdav_told",
    check: check_told,
    seeds: || {
        let mut told = Vec::new();
        begin_multistatus(&mut told);
        write_entry(&mut told, &Propfind::AllProperties, &file("/a b/c&d"));
        end_multistatus(&mut told);
        let dcache = "<d:multistatus xmlns:d=\"DAV:\"><d:response><d:href>http://x/a%20b/</d:href><d:propstat>\
                      <d:prop><d:resourcetype><d:collection/></d:resourcetype><d:getcontentlength>7\
                      </d:getcontentlength></d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat>\
                      </d:response></d:multistatus>";
        vec![told, dcache.as_bytes().to_vec()]
    },
};

pub(super) fn file(path: &str) -> Properties {
    Properties {
        path: NamespacePath::from_encoded(path).unwrap_or_else(|_| NamespacePath::root()),
        is_directory: false,
        size: Bytes(1 << 40),
        modified: Timestamp(1_795_241_992_000),
        created: None,
        etag: Some("\"2a\"".to_owned()),
        content_type: None,
        owner: Some("<alice> & co".to_owned()),
        group: None,
        checksums: Vec::new(),
        locality: None,
        quota: None,
        locks: Vec::new(),
        dead: Vec::new(),
        now: Timestamp(1_795_241_992_000),
    }
}

fn check_asked(data: &[u8]) {
    let depth = HeaderMap::from_iter(
        http::HeaderValue::from_bytes(data)
            .ok()
            .map(|value| (http::HeaderName::from_static("depth"), value)),
    );
    let _ = Depth::parse(&depth);
    let Ok(asked) = Propfind::parse(data) else {
        return;
    };
    // Names that we do not know are repeated in the answer: it must stay one that others can read.
    let entry = file(std::str::from_utf8(data).unwrap_or("/x"));
    let mut answer = Vec::new();
    begin_multistatus(&mut answer);
    write_entry(&mut answer, &asked, &entry);
    end_multistatus(&mut answer);
    assert!(
        answer.len() < 4096 + 32 * data.len(),
        "{} bytes",
        answer.len()
    );
    let read = parse_multistatus(&answer).expect("our own answer can be read");
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].path.as_ref(), Some(&entry.path));
    let asks_size = match &asked {
        Propfind::AllProperties | Propfind::AllAnd(_) => true,
        Propfind::Names => false,
        Propfind::Named(names) => names.iter().any(|name| name.is("DAV:", "getcontentlength")),
    };
    assert_eq!(read[0].size, asks_size.then_some(entry.size));
}

fn check_told(data: &[u8]) {
    let Ok(entries) = parse_multistatus(data) else {
        return;
    };
    // `<response/>` is the shortest of them.
    assert!(entries.len() <= data.len() / 9);
    for entry in entries {
        assert!(entry.href.len() <= data.len());
    }
}
