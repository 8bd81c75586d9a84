//! What a client wants to know: the body and the `Depth` of a `PROPFIND` (RFC 4918 §9.1, §10.2).

use super::DAV;
use super::xml::{InvalidXml, Node, Walk};
use http::HeaderMap;
use thiserror::Error;

/// Bytes that the body of a `PROPFIND` may have.
pub const PROPFIND_BYTES_MAX: usize = 64 * 1024;
/// A client asks for a dozen; each name that we do not know is repeated in every entry of the answer.
const PROPERTIES_MAX: usize = 64;

/// The body with which our own clients ask about files and directories.
pub const STAT_BODY: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:propfind xmlns:D=\"DAV:\" xmlns:L=\"LCGDM:\"><D:prop><D:resourcetype/><D:getcontentlength/>\
    <D:getlastmodified/><D:creationdate/><D:getetag/><L:mode/></D:prop></D:propfind>";

/// The same with where the bytes of files are, which costs a server more to tell.
pub const STAT_WITH_LOCALITY_BODY: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <D:propfind xmlns:D=\"DAV:\" xmlns:L=\"LCGDM:\" xmlns:S=\"http://srm.lbl.gov/StorageResourceManager\"><D:prop>\
    <D:resourcetype/><D:getcontentlength/><D:getlastmodified/><D:creationdate/><D:getetag/><L:mode/><S:FileLocality/>\
    </D:prop></D:propfind>";

/// Which properties a client wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Propfind {
    /// All that are cheap to tell; also the meaning of an empty body.
    AllProperties,
    /// The same, and these as well.
    AllAnd(Vec<PropertyName>),
    /// Only the names of those that exist.
    Names,
    /// These, and word of each that does not exist.
    Named(Vec<PropertyName>),
}

/// A property's name: a namespace, possibly empty, and a name within it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PropertyName {
    pub namespace: String,
    /// The name.
    pub local: String,
}

impl PropertyName {
    /// True for this name in this namespace.
    pub fn is(&self, namespace: &str, local: &str) -> bool {
        self.namespace == namespace && self.local == local
    }
}

impl Propfind {
    /// Reads a body of at most [`PROPFIND_BYTES_MAX`] bytes.
    pub fn parse(body: &[u8]) -> Result<Propfind, InvalidXml> {
        if body.trim_ascii().is_empty() {
            return Ok(Propfind::AllProperties);
        }
        let mut walk = Walk::new(body, PROPFIND_BYTES_MAX)?;
        let mut depth = 0_usize;
        let mut asked = None;
        let mut included = Propfind::AllAnd(Vec::new());
        let (mut within_prop, mut within_include) = (false, false);
        while let Some(node) = walk.step()? {
            let name = match node {
                Node::Text(_) => continue,
                Node::Close => {
                    depth -= 1;
                    within_prop &= depth > 1;
                    within_include &= depth > 1;
                    continue;
                }
                Node::Open(name) => name,
            };
            depth += 1;
            match depth {
                1 if !name.is(DAV, "propfind") => {
                    return Err(InvalidXml::OtherDocument("propfind"));
                }
                2 if name.is(DAV, "allprop") => choose(&mut asked, Propfind::AllProperties)?,
                2 if name.is(DAV, "propname") => choose(&mut asked, Propfind::Names)?,
                2 if name.is(DAV, "prop") => {
                    choose(&mut asked, Propfind::Named(Vec::new()))?;
                    within_prop = true;
                }
                2 if name.is(DAV, "include") => within_include = true,
                3 if within_prop => add(asked.as_mut(), name.namespace, name.local)?,
                3 if within_include => add(Some(&mut included), name.namespace, name.local)?,
                // RFC 4918 §17: elements that we do not know are as if they were not there.
                _ => {}
            }
        }
        match (asked, included) {
            (Some(Propfind::AllProperties), Propfind::AllAnd(names)) if !names.is_empty() => {
                Ok(Propfind::AllAnd(names))
            }
            (asked, _) => asked.ok_or(InvalidXml::OtherDocument("propfind")),
        }
    }
}

/// RFC 4918 §14.20: one of the three, once.
fn choose(asked: &mut Option<Propfind>, what: Propfind) -> Result<(), InvalidXml> {
    match asked.replace(what) {
        None => Ok(()),
        Some(_) => Err(InvalidXml::OtherDocument("propfind")),
    }
}

fn add(asked: Option<&mut Propfind>, namespace: String, local: String) -> Result<(), InvalidXml> {
    let Some(Propfind::Named(names) | Propfind::AllAnd(names)) = asked else {
        return Ok(());
    };
    let name = PropertyName { namespace, local };
    if names.contains(&name) {
        return Ok(());
    }
    if names.len() == PROPERTIES_MAX {
        return Err(InvalidXml::TooMany(PROPERTIES_MAX));
    }
    names.push(name);
    Ok(())
}

/// How far down a request reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// The resource itself.
    Zero,
    /// And what it holds.
    One,
    /// And everything below.
    Infinity,
}

/// The `Depth` header is none of `0`, `1` and `infinity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the 'Depth' header must be '0', '1' or 'infinity'")]
pub struct InvalidDepth;

impl Depth {
    /// Reads the header; `None` when there is none, because its meaning then depends on the method.
    pub fn parse(headers: &HeaderMap) -> Result<Option<Depth>, InvalidDepth> {
        let Some(value) = headers.get("depth") else {
            return Ok(None);
        };
        match value.to_str().map(str::trim) {
            Ok("0") => Ok(Some(Depth::Zero)),
            Ok("1") => Ok(Some(Depth::One)),
            Ok(text) if text.eq_ignore_ascii_case("infinity") => Ok(Some(Depth::Infinity)),
            _ => Err(InvalidDepth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(body: &str, expected: &str) {
        let got = match Propfind::parse(body.as_bytes()) {
            Ok(Propfind::Named(names)) => {
                let show = |name: &PropertyName| format!("{{{}}}{}", name.namespace, name.local);
                names.iter().map(show).collect::<Vec<_>>().join(" ")
            }
            Ok(other) => format!("{other:?}"),
            Err(why) => format!("refused: {why}"),
        };
        assert_eq!(got, expected, "{body}");
    }

    #[test]
    fn the_question_of_davix() {
        check(
            "<?xml version=\"1.0\" encoding=\"utf-8\" ?>\
             <D:propfind xmlns:D=\"DAV:\" xmlns:L=\"LCGDM:\"><D:prop><D:displayname/><D:getlastmodified/>\
             <D:resourcetype><D:collection/></D:resourcetype><L:mode/><D:owner></D:owner></D:prop>\
             </D:propfind>",
            "{DAV:}displayname {DAV:}getlastmodified {DAV:}resourcetype {LCGDM:}mode {DAV:}owner",
        );
        check(
            STAT_BODY,
            "{DAV:}resourcetype {DAV:}getcontentlength {DAV:}getlastmodified {DAV:}creationdate \
             {DAV:}getetag {LCGDM:}mode",
        );
        check(
            STAT_WITH_LOCALITY_BODY,
            "{DAV:}resourcetype {DAV:}getcontentlength {DAV:}getlastmodified {DAV:}creationdate \
             {DAV:}getetag {LCGDM:}mode {http://srm.lbl.gov/StorageResourceManager}FileLocality",
        );
    }

    #[test]
    fn prefixes_are_only_spelling() {
        check(
            "<propfind xmlns='DAV:'><prop><a/><b xmlns='x:'/><c xmlns=''/><a/></prop></propfind>",
            "{DAV:}a {x:}b {}c",
        );
        check(
            "\u{feff}<d:propfind xmlns:d='DAV:'><d:allprop/><d:include/></d:propfind>",
            "AllProperties",
        );
        check(
            "<d:propfind xmlns:d='DAV:'><!-- x --><new/><d:propname/></d:propfind>",
            "Names",
        );
        check(
            "<d:propfind xmlns:d='DAV:'><d:include><d:owner/></d:include><d:allprop/></d:propfind>",
            "AllAnd([PropertyName { namespace: \"DAV:\", local: \"owner\" }])",
        );
        check("", "AllProperties");
        check(" \r\n", "AllProperties");
        check("<d:propfind xmlns:d='DAV:'><d:prop/></d:propfind>", "");
    }

    #[test]
    fn what_is_no_question_is_refused() {
        check(
            "<propfind/>",
            "refused: the XML body is not a 'propfind' document",
        );
        check(
            "<d:propfind xmlns:d='DAV:'/>",
            "refused: the XML body is not a 'propfind' document",
        );
        check(
            "<d:propfind xmlns:d='DAV:'><d:allprop/><d:propname/></d:propfind>",
            "refused: the XML body is not a 'propfind' document",
        );
        for broken in [
            "<d:propfind xmlns:d='DAV:'><d:allprop/>",
            "<d:propfind xmlns:d='DAV:'><d:allprop></d:propfind>",
            "<d:propfind><d:allprop/></d:propfind>",
            "<d:propfind xmlns:d='DAV:'><d:prop><x:y/></d:prop></d:propfind>",
            "<d:propfind xmlns:d='DAV:'><d:prop><x:y xmlns:x=''/></d:prop></d:propfind>",
            "<d:propfind xmlns:d='DAV:'><d:prop><a\"b/></d:prop></d:propfind>",
            "<d:propfind xmlns:d='DAV:'><d:allprop/></d:propfind><d:propfind xmlns:d='DAV:'/>",
            "<d:propfind xmlns:d='DAV:'><d:prop><xmlns:y/></d:prop></d:propfind>",
            "<d:propfind xmlns:d='DAV:'><d:prop><xml:y/></d:prop></d:propfind>",
            "hello",
            "<?xml version='1.0'?>",
        ] {
            let refused = Propfind::parse(broken.as_bytes());
            assert!(
                matches!(refused, Err(InvalidXml::Syntax(_))),
                "{broken}: {refused:?}"
            );
        }
    }

    #[test]
    fn bodies_that_grow_are_refused() {
        check(
            "<!DOCTYPE x [<!ENTITY a 'b'>]><propfind xmlns='DAV:'><allprop/></propfind>",
            "refused: the XML body must not define or use entities",
        );
        check(
            "<propfind xmlns='DAV:'>&a;<allprop/></propfind>",
            "refused: the XML body must not define or use entities",
        );
        let deep = "<a xmlns='DAV:'>".repeat(40);
        let deep = format!("<propfind xmlns='DAV:'>{deep}");
        assert_eq!(Propfind::parse(deep.as_bytes()), Err(InvalidXml::TooDeep));
        let long = vec![b' '; PROPFIND_BYTES_MAX + 1];
        assert_eq!(
            Propfind::parse(&[&b"<"[..], &long].concat()),
            Err(InvalidXml::TooLong(PROPFIND_BYTES_MAX))
        );
        let many: String = (0..65).map(|number| format!("<p{number}/>")).collect();
        check(
            &format!("<propfind xmlns='DAV:'><prop>{many}</prop></propfind>"),
            "refused: the XML body asks for more than 64 properties",
        );
    }

    #[test]
    fn depth_is_one_of_three_words() {
        let of = |text: &'static str| {
            Depth::parse(&HeaderMap::from_iter([(
                http::HeaderName::from_static("depth"),
                http::HeaderValue::from_static(text),
            )]))
        };
        assert_eq!(
            (of("0"), of(" 1")),
            (Ok(Some(Depth::Zero)), Ok(Some(Depth::One)))
        );
        assert_eq!(
            (of("Infinity"), of("2")),
            (Ok(Some(Depth::Infinity)), Err(InvalidDepth))
        );
        assert_eq!(Depth::parse(&HeaderMap::new()), Ok(None));
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(
            bytes: Vec<u8>,
            text in "(<d:propfind xmlns:d='DAV:'>|<d:prop>|</d:prop>|<d:a/>|&amp;|&#x41;|<!--|-->\
                     |<!\\[CDATA\\[|[ -é]){0,30}",
        ) {
            let _ = Propfind::parse(&bytes);
            let _ = Propfind::parse(text.as_bytes());
            let _ = super::super::parse_multistatus(&bytes);
            let _ = super::super::parse_multistatus(text.as_bytes());
        }
    }
}
