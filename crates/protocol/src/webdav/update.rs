//! PROPPATCH (RFC 4918 §9.2): which properties a client sets and removes, and how it is told what became of that.

use super::ask::PropertyName;
use super::multistatus::{is_live, write_href, write_property_name, write_status_line};
use super::xml::{InvalidXml, Node, Walk, escape_into};
use super::{DAV, begin_multistatus, end_multistatus};
use http::StatusCode;
use penstock_model::NamespacePath;

/// Bytes that the body of a `PROPPATCH` may have.
pub const PROPPATCH_BYTES_MAX: usize = 128 * 1024;
/// Bytes that one property may have, as it is kept.
pub const PROPERTY_BYTES_MAX: usize = 16 * 1024;
/// Properties that one request may set or remove.
const UPDATES_MAX: usize = 128;

/// One step of a `PROPPATCH`, to be made in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    pub name: PropertyName,
    /// The whole element that it becomes, as XML that stands for itself; `None` removes it.
    pub element: Option<String>,
}

/// Reads a body of at most [`PROPPATCH_BYTES_MAX`] bytes.
pub fn parse_property_update(body: &[u8]) -> Result<Vec<Update>, InvalidXml> {
    const OTHER: InvalidXml = InvalidXml::OtherDocument("propertyupdate");
    let mut walk = Walk::new(body, PROPPATCH_BYTES_MAX)?;
    let mut updates: Vec<Update> = Vec::new();
    let mut open: Vec<String> = Vec::new();
    // RFC 4918 §4.3: the language counts that is in force where the property is set.
    let mut languages: Vec<Option<String>> = Vec::new();
    while let Some(node) = walk.step()? {
        let name = match node {
            Node::Text(_) => continue,
            Node::Close => {
                open.pop();
                languages.pop();
                continue;
            }
            Node::Open(name) => name,
        };
        let depth = open.len();
        let sets = match open.get(1).map(String::as_str) {
            Some("set") => Some(true),
            Some("remove") => Some(false),
            _ => None,
        };
        let within_prop = depth == 3 && open[2] == "prop";
        if depth == 0 && !name.is(DAV, "propertyupdate") {
            return Err(OTHER);
        }
        if let (true, Some(sets)) = (within_prop, sets) {
            if updates.len() == UPDATES_MAX {
                return Err(InvalidXml::TooMany(UPDATES_MAX));
            }
            let language = languages.iter().rev().flatten().next();
            // This reads up to and including the element's end.
            let element = walk.element(&name, language.map(String::as_str), PROPERTY_BYTES_MAX)?;
            updates.push(Update {
                name: PropertyName {
                    namespace: name.namespace,
                    local: name.local,
                },
                element: sets.then_some(element),
            });
            continue;
        }
        languages.push(walk.language());
        // RFC 4918 §17: elements that we do not know are as if they were not there.
        let known = name.namespace == DAV;
        open.push(if known { name.local } else { String::new() });
    }
    match updates.is_empty() {
        true => Err(OTHER),
        false => Ok(updates),
    }
}

/// Properties that the server tells by itself and that no client may set.
pub fn is_protected(name: &PropertyName) -> bool {
    is_live(name)
}

/// How a `PROPPATCH` ended, for all of its properties (RFC 4918 §9.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// All of it was done: 200.
    Done,
    /// Nothing was done, because of [protected](is_protected) properties: 403 for them, 424 for the others.
    Protected,
    /// Nothing was done, because it would be too much: 507.
    TooMuch,
}

/// The answer to a `PROPPATCH`.
pub fn write_property_answer(
    path: &NamespacePath,
    is_directory: bool,
    updates: &[Update],
    outcome: UpdateOutcome,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    begin_multistatus(&mut out);
    out.extend_from_slice(b"<D:response><D:href>");
    write_href(&mut out, path, is_directory);
    out.extend_from_slice(b"</D:href>");
    let mut names: Vec<&PropertyName> = Vec::new();
    for update in updates {
        if !names.contains(&&update.name) {
            names.push(&update.name);
        }
    }
    match outcome {
        UpdateOutcome::Done => write_names(&mut out, &names, StatusCode::OK),
        UpdateOutcome::TooMuch => write_names(&mut out, &names, StatusCode::INSUFFICIENT_STORAGE),
        UpdateOutcome::Protected => {
            let (protected, others): (Vec<_>, Vec<_>) =
                names.into_iter().partition(|name| is_protected(name));
            write_names(&mut out, &protected, StatusCode::FORBIDDEN);
            write_names(&mut out, &others, StatusCode::FAILED_DEPENDENCY);
        }
    }
    out.extend_from_slice(b"</D:response>\n");
    end_multistatus(&mut out);
    out
}

fn write_names(out: &mut Vec<u8>, names: &[&PropertyName], status: StatusCode) {
    if names.is_empty() {
        return;
    }
    out.extend_from_slice(b"<D:propstat><D:prop>");
    names.iter().for_each(|name| write_property_name(out, name));
    out.extend_from_slice(b"</D:prop>");
    write_status_line(out, status);
    if status == StatusCode::FORBIDDEN {
        out.extend_from_slice(b"<D:error><D:cannot-modify-protected-property/></D:error>");
    }
    out.extend_from_slice(b"</D:propstat>");
}

/// A body that names a condition that does not hold (RFC 4918 §16), the paths that it is about, and one line for
/// people.
pub fn write_condition(condition: &str, paths: &[NamespacePath], text: &str) -> Vec<u8> {
    let begin = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\"><D:{condition}>"
    );
    let mut out = begin.into_bytes();
    for path in paths {
        out.extend_from_slice(b"<D:href>");
        escape_into(&mut out, &path.to_encoded());
        out.extend_from_slice(b"</D:href>");
    }
    out.extend_from_slice(format!("</D:{condition}><D:responsedescription>").as_bytes());
    escape_into(&mut out, text);
    out.extend_from_slice(b"</D:responsedescription></D:error>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(body: &str, expected: &str) {
        let got = match parse_property_update(body.as_bytes()) {
            Ok(updates) => {
                let show = |update: &Update| match &update.element {
                    Some(element) => element.clone(),
                    None => format!("-{{{}}}{}", update.name.namespace, update.name.local),
                };
                updates.iter().map(show).collect::<Vec<_>>().join(" ")
            }
            Err(why) => format!("refused: {why}"),
        };
        assert_eq!(got, expected, "{body}");
    }

    #[test]
    fn properties_are_set_and_removed_in_order() {
        check(
            "<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\" xmlns:Z=\"http://ns/z/\">\
             <D:set><D:prop><Z:Authors><Z:Author>Jim\n &lt;x&gt;</Z:Author></Z:Authors></D:prop></D:set>\
             <D:remove><D:prop><Z:Old-One/><none xmlns=''/></D:prop></D:remove></D:propertyupdate>",
            "<x:Authors xmlns:x=\"http://ns/z/\"><x:Author>Jim\n &lt;x&gt;</x:Author></x:Authors> \
             -{http://ns/z/}Old-One -{}none",
        );
    }

    #[test]
    fn a_value_keeps_its_attributes_namespaces_and_language() {
        check(
            "<d:propertyupdate xmlns:d='DAV:' xmlns:a='urn:a'><d:set xml:lang='de'><d:prop>\
             <a:p a:q='1&amp;2' r='\"'><b xmlns='urn:b'/><c xmlns=''>t</c></a:p><a:e xml:lang='en'/></d:prop></d:set>\
             </d:propertyupdate>",
            "<x:p xmlns:x=\"urn:a\" xml:lang=\"de\" y0:q=\"1&amp;2\" xmlns:y0=\"urn:a\" r=\"&quot;\">\
             <x:b xmlns:x=\"urn:b\"/><c>t</c></x:p> <x:e xmlns:x=\"urn:a\" xml:lang=\"en\"/>",
        );
    }

    #[test]
    fn a_value_that_is_set_as_it_is_kept_is_kept_the_same() {
        let element = "<x:p xmlns:x=\"urn:a\" b=\"1&#9;&#10;&#13;&quot;\" y0:q=\"\" xmlns:y0=\"urn:b\" \
                       y1:q=\"\" xmlns:y1=\"urn:c\"> \n\t&#13;</x:p>";
        check(
            &format!(
                "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop>{element}</D:prop></D:set></D:propertyupdate>"
            ),
            element,
        );
    }

    #[test]
    fn what_is_no_update_is_refused() {
        let other = "refused: the XML body is not a 'propertyupdate' document";
        check(
            "<propertyupdate><set><prop><a/></prop></set></propertyupdate>",
            other,
        );
        check("<d:propertyupdate xmlns:d='DAV:'/>", other);
        check(
            "<d:propertyupdate xmlns:d='DAV:'><d:prop><a/></d:prop></d:propertyupdate>",
            other,
        );
        let characters =
            "refused: the XML body is not well-formed: it has characters that XML does not have";
        for property in [
            "<a>\u{1}</a>",
            "<a>&#1;</a>",
            "<a b='&#xffff;'/>",
            "<a xmlns='&#8;'/>",
        ] {
            check(
                &format!(
                    "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop>{property}</D:prop></D:set></D:propertyupdate>"
                ),
                characters,
            );
        }
        let long = "x".repeat(PROPERTY_BYTES_MAX);
        check(
            &format!(
                "<d:propertyupdate xmlns:d='DAV:'><d:set><d:prop><a>{long}</a></d:prop></d:set></d:propertyupdate>"
            ),
            "refused: an XML element is longer than 16384 bytes",
        );
        let many = "<a/>".repeat(UPDATES_MAX + 1);
        check(
            &format!(
                "<d:propertyupdate xmlns:d='DAV:'><d:set><d:prop>{many}</d:prop></d:set></d:propertyupdate>"
            ),
            "refused: the XML body asks for more than 128 properties",
        );
    }

    #[test]
    fn one_refused_property_fails_all() {
        let updates = parse_property_update(
            b"<d:propertyupdate xmlns:d='DAV:'><d:set><d:prop><d:getetag>x</d:getetag><a xmlns='urn:a'/></d:prop>\
              </d:set></d:propertyupdate>",
        )
        .expect("understood");
        let path = NamespacePath::parse("/d/f").expect("valid");
        let answer = write_property_answer(&path, false, &updates, UpdateOutcome::Protected);
        let answer = String::from_utf8(answer).expect("UTF-8");
        assert!(
            answer.contains(
                "<D:href>/d/f</D:href><D:propstat><D:prop><D:getetag/></D:prop>\
                 <D:status>HTTP/1.1 403 Forbidden</D:status>\
                 <D:error><D:cannot-modify-protected-property/></D:error></D:propstat>\
                 <D:propstat><D:prop><x:a xmlns:x=\"urn:a\"/></D:prop>\
                 <D:status>HTTP/1.1 424 Failed Dependency</D:status></D:propstat></D:response>"
            ),
            "{answer}"
        );
    }

    #[test]
    fn a_condition_names_paths_and_says_it_in_words() {
        let path = NamespacePath::parse("/d/a b").expect("valid");
        let body = write_condition("lock-token-submitted", &[path], "locked by <you>");
        assert_eq!(
            String::from_utf8(body).expect("UTF-8"),
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\"><D:lock-token-submitted>\
             <D:href>/d/a%20b</D:href></D:lock-token-submitted>\
             <D:responsedescription>locked by &lt;you&gt;</D:responsedescription></D:error>\n"
        );
    }

    proptest! {
        #[test]
        fn whatever_is_kept_can_be_read_again_and_is_the_same(
            bytes: Vec<u8>,
            inner in "(<a>|</a>|<b:c xmlns:b='urn:&lt;'>|</b:c>|<d e='f'/>|&amp;|&#10;|<!\\[CDATA\\[|\\]\\]>|[ -é\\n]){0,12}",
        ) {
            let _ = parse_property_update(&bytes);
            let wrap = |inner: &str| {
                format!("<d:propertyupdate xmlns:d='DAV:'><d:set><d:prop>{inner}</d:prop></d:set></d:propertyupdate>")
            };
            let first = parse_property_update(wrap(&format!("<p>{inner}</p>")).as_bytes());
            if let Ok(first) = first && let [Update { element: Some(element), .. }] = first.as_slice() {
                prop_assert!(element.len() <= PROPERTY_BYTES_MAX);
                let again = parse_property_update(wrap(element).as_bytes()).expect("our own writing");
                prop_assert_eq!(again, first);
            }
        }
    }
}
