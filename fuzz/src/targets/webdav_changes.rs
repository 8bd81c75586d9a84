//! What WebDAV clients leave behind: properties and owners of locks, which are kept and told to others as XML; and the
//! conditions of their requests.

use super::webdav::file;
use super::{Target, headers, texts};
use http::{HeaderMap, HeaderValue};
use penstock_protocol::webdav::{
    IfHeader, KeptProperty, LockInfo, Propfind, Test, begin_multistatus, end_multistatus,
    parse_multistatus, parse_property_update, write_entry,
};

pub const KEPT: Target = Target {
    name: "webdav_kept",
    check: check_kept,
    seeds: || {
        texts(&[
            "<D:propertyupdate xmlns:D='DAV:' xmlns:Z='urn:z'><D:set><D:prop><Z:author Z:a='1' b='2'>J &amp; K\
             <Z:x xmlns=''><y/></Z:x></Z:author></D:prop></D:set><D:remove><D:prop><Z:old/></D:prop></D:remove>\
             </D:propertyupdate>",
            "<propertyupdate xmlns='DAV:' xml:lang='de'><set><prop><a xmlns='urn:&lt;a'><![CDATA[<&>]]>&#x41;</a>\
             </prop></set></propertyupdate>",
            "<propertyupdate xmlns='DAV:'><set><prop xmlns:p='u:1' xmlns:q='u:2'><p:a q:b=\"'&quot;&#10;\"/></prop>\
             </set></propertyupdate>",
        ])
    },
};

pub const LOCKS: Target = Target {
    name: "webdav_locks",
    check: check_locks,
    seeds: || {
        texts(&[
            "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype>\
             <D:owner><D:href>mailto:a@b</D:href> &lt;a&gt;</D:owner></D:lockinfo>",
            "<lockinfo xmlns='DAV:'><lockscope><shared/></lockscope><locktype><write/></locktype><owner>me\
             <a xmlns='' b='c'/></owner></lockinfo>",
        ])
    },
};

pub const CONDITIONS: Target = Target {
    name: "webdav_if",
    check: check_conditions,
    seeds: || {
        texts(&[
            "if: (<urn:uuid:1> [\"2a\"]) (Not <DAV:no-lock>)",
            "if: </a/b> (<opaquelocktoken:1>) ([W/\"]x\"]) <http://x/c> (not [\"a\"] <b>)",
            "if: ()",
        ])
    },
};

fn check_kept(data: &[u8]) {
    let Ok(updates) = parse_property_update(data) else {
        return;
    };
    let kept = updates.into_iter().filter_map(|update| {
        let element = update.element?;
        let name = update.name;
        Some(KeptProperty { name, element })
    });
    let kept: Vec<KeptProperty> = kept.collect();
    for property in &kept {
        // Set again as it is kept, it is the same property with the same content.
        let body = format!(
            "<D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop>{}</D:prop></D:set></D:propertyupdate>",
            property.element
        );
        let again = parse_property_update(body.as_bytes());
        let again = again.unwrap_or_else(|why| panic!("{why}: {}", property.element));
        assert_eq!(again.len(), 1, "{}", property.element);
        assert_eq!(again[0].name, property.name, "{}", property.element);
        assert_eq!(again[0].element.as_ref(), Some(&property.element));
    }
    // Told to others, it says nothing of anything else.
    let mut told = file("/told");
    told.dead = kept;
    let mut answer = Vec::new();
    begin_multistatus(&mut answer);
    write_entry(&mut answer, &Propfind::AllProperties, &told);
    end_multistatus(&mut answer);
    let read = parse_multistatus(&answer).expect("our own answer can be read");
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].path.as_ref(), Some(&told.path));
    assert_eq!(read[0].size, Some(told.size));
    assert!(!read[0].is_directory);
}

fn check_locks(data: &[u8]) {
    let Ok(Some(info)) = LockInfo::parse(data) else {
        return;
    };
    let body = format!(
        "<D:lockinfo xmlns:D=\"DAV:\"><D:lockscope><D:{}/></D:lockscope><D:locktype><D:write/></D:locktype>\
         <D:owner>{}</D:owner></D:lockinfo>",
        format!("{:?}", info.scope).to_ascii_lowercase(),
        info.owner
    );
    assert_eq!(LockInfo::parse(body.as_bytes()), Ok(Some(info)), "{body}");
}

fn check_conditions(data: &[u8]) {
    let Ok(Some(header)) = IfHeader::parse(&headers(data)) else {
        return;
    };
    assert!(header.submitted().count() <= 256);
    let lists = header.lists.iter().map(|list| {
        let resource = list.resource.as_ref();
        let resource = resource.map_or(String::new(), |tag| format!("<{tag}> "));
        let conditions = list.conditions.iter().map(|condition| {
            let not = if condition.negated { "Not " } else { "" };
            match &condition.test {
                Test::Token(token) => format!("{not}<{token}>"),
                Test::Etag(tag) => format!("{not}[{tag}]"),
            }
        });
        format!("{resource}({})", conditions.collect::<Vec<_>>().join(" "))
    });
    let written = lists.collect::<Vec<_>>().join(" ");
    // Tags that are written out for each list make it longer.
    if written.len() > 16_000 {
        return;
    }
    let value = HeaderValue::from_bytes(written.as_bytes()).expect("what came as a value is one");
    let again = HeaderMap::from_iter([(http::header::HeaderName::from_static("if"), value)]);
    assert_eq!(IfHeader::parse(&again), Ok(Some(header)), "{written}");
}
