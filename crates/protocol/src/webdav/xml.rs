//! Walking through an XML document with bounds: names resolved, entities refused, nothing built in memory.

use quick_xml::events::{BytesRef, Event};
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;
use thiserror::Error;

const DEPTH_MAX: usize = 32;

/// Why a document is not understood. Answer 400 with this text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidXml {
    /// Longer than the caller allows.
    #[error("the XML body is longer than {0} bytes")]
    TooLong(usize),
    /// Elements within elements beyond any need.
    #[error("the XML body nests elements more than {DEPTH_MAX} deep")]
    TooDeep,
    /// More properties than any client needs.
    #[error("the XML body asks for more than {0} properties")]
    TooMany(usize),
    /// A document type, or an entity that XML itself does not define: ways to make a small body large.
    #[error("the XML body must not define or use entities")]
    Entities,
    /// Not well-formed, or a prefix without a namespace.
    #[error("the XML body is not well-formed: {0}")]
    Syntax(String),
    /// Another document than expected.
    #[error("the XML body is not a '{0}' document")]
    OtherDocument(&'static str),
}

/// One step through a document.
pub(super) enum Node {
    /// An element begins.
    Open(Name),
    /// Character data, unescaped. May come in several pieces.
    Text(String),
    /// The innermost element ends.
    Close,
}

/// A resolved element name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub namespace: String,
    pub local: String,
}

impl Name {
    pub fn is(&self, namespace: &str, local: &str) -> bool {
        self.namespace == namespace && self.local == local
    }
}

/// Steps through a document from its beginning.
pub(super) struct Walk<'a> {
    reader: NsReader<&'a [u8]>,
    depth: usize,
    roots: usize,
}

impl<'a> Walk<'a> {
    pub fn new(body: &'a [u8], bytes_max: usize) -> Result<Walk<'a>, InvalidXml> {
        if body.len() > bytes_max {
            return Err(InvalidXml::TooLong(bytes_max));
        }
        let text = std::str::from_utf8(body).map_err(|_| syntax("it is not UTF-8"))?;
        let mut reader = NsReader::from_str(text.trim_start_matches('\u{feff}'));
        reader.config_mut().expand_empty_elements = true;
        Ok(Walk {
            reader,
            depth: 0,
            roots: 0,
        })
    }

    /// `None` after the root element has ended.
    pub fn step(&mut self) -> Result<Option<Node>, InvalidXml> {
        loop {
            let (resolved, event) = self.reader.read_resolved_event().map_err(syntax)?;
            match event {
                Event::Start(element) => {
                    let namespace = match resolved {
                        ResolveResult::Bound(namespace) => namespace.as_ref().to_owned(),
                        ResolveResult::Unbound => String::new(),
                        ResolveResult::Unknown(prefix) => {
                            return Err(syntax(format!("the prefix '{prefix}' has no namespace")));
                        }
                    };
                    let local = element.local_name().as_ref().to_owned();
                    check_name(&local)?;
                    // Duplicate or unquoted attributes make a document ill-formed even where they mean
                    // nothing.
                    for attribute in element.attributes() {
                        attribute.map_err(syntax)?;
                    }
                    self.roots += usize::from(self.depth == 0);
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(InvalidXml::TooDeep);
                    }
                    if self.roots > 1 {
                        return Err(syntax("it has more than one root element"));
                    }
                    return Ok(Some(Node::Open(Name { namespace, local })));
                }
                Event::End(_) => {
                    self.depth = self
                        .depth
                        .checked_sub(1)
                        .ok_or_else(|| syntax("an end without a start"))?;
                    return Ok(Some(Node::Close));
                }
                Event::Text(text) if self.depth > 0 => {
                    return Ok(Some(Node::Text(text.xml10_content().into_owned())));
                }
                Event::CData(text) if self.depth > 0 => {
                    return Ok(Some(Node::Text(text.xml10_content().into_owned())));
                }
                Event::GeneralRef(reference) => {
                    return Ok(Some(Node::Text(predefined(&reference)?.to_string())));
                }
                Event::DocType(_) => return Err(InvalidXml::Entities),
                Event::Text(text) if !text.trim().is_empty() => {
                    return Err(syntax("there is text outside the root element"));
                }
                Event::CData(_) => return Err(syntax("there is text outside the root element")),
                Event::Text(_)
                | Event::Comment(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::Empty(_) => {}
                Event::Eof if self.depth > 0 => return Err(syntax("it ends too early")),
                Event::Eof if self.roots == 0 => return Err(syntax("it has no root element")),
                Event::Eof => return Ok(None),
            }
        }
    }
}

/// The five entities and the character references that XML itself defines (XML 1.0 §4.1, §4.6).
fn predefined(reference: &BytesRef<'_>) -> Result<char, InvalidXml> {
    if let Some(character) = reference.resolve_char_ref().map_err(syntax)? {
        return Ok(character);
    }
    match reference.xml10_content().as_ref() {
        "amp" => Ok('&'),
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        _ => Err(InvalidXml::Entities),
    }
}

/// Names are written back into answers, so they must be names (XML 1.0 §2.3, a little stricter).
fn check_name(local: &str) -> Result<(), InvalidXml> {
    let first = |c: char| c.is_alphabetic() || c == '_';
    let other = |c: char| c.is_alphanumeric() || "_-.·".contains(c);
    let mut characters = local.chars();
    match characters.next().is_some_and(first) && characters.all(other) {
        true => Ok(()),
        false => Err(syntax("an element has an impossible name")),
    }
}

pub(super) fn syntax(why: impl ToString) -> InvalidXml {
    let text = why.to_string();
    InvalidXml::Syntax(text.chars().filter(|c| !c.is_control()).take(200).collect())
}

/// Appends character data, escaped. Characters that XML 1.0 cannot hold at all (§2.2) are left out.
pub(super) fn escape_into(out: &mut Vec<u8>, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.extend_from_slice(b"&amp;"),
            '<' => out.extend_from_slice(b"&lt;"),
            '>' => out.extend_from_slice(b"&gt;"),
            '"' => out.extend_from_slice(b"&quot;"),
            '\t' | '\n' | '\r' => out.push(b' '),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {}
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}
