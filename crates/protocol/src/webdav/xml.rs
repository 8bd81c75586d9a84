//! Walking through an XML document with bounds: names resolved, entities refused, nothing built in memory.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;
use thiserror::Error;

const DEPTH_MAX: usize = 32;
/// The namespace of `xml:lang`, which is always declared (Namespaces in XML 1.0 §3).
const XML: &str = "http://www.w3.org/XML/1998/namespace";

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
    /// More files and directories than one answer may list.
    #[error("the XML body lists more than {0} entries")]
    TooManyEntries(usize),
    /// An element that is to be kept is longer than it may be.
    #[error("an XML element is longer than {0} bytes")]
    ElementTooLong(usize),
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
pub(crate) enum Node {
    /// An element begins.
    Open(Name),
    /// Character data, unescaped. May come in several pieces.
    Text(String),
    /// The innermost element ends.
    Close,
}

/// A resolved element name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub namespace: String,
    pub local: String,
}

impl Name {
    pub fn is(&self, namespace: &str, local: &str) -> bool {
        self.namespace == namespace && self.local == local
    }
}

/// Steps through a document from its beginning.
pub(crate) struct Walk<'a> {
    reader: NsReader<&'a [u8]>,
    depth: usize,
    roots: usize,
    /// The element that was opened last.
    opened: Option<BytesStart<'a>>,
}

impl<'a> Walk<'a> {
    pub fn new(body: &'a [u8], bytes_max: usize) -> Result<Walk<'a>, InvalidXml> {
        if body.len() > bytes_max {
            return Err(InvalidXml::TooLong(bytes_max));
        }
        let text = std::str::from_utf8(body).map_err(|_| syntax("it is not UTF-8"))?;
        check_characters(text)?;
        let mut reader = NsReader::from_str(text.trim_start_matches('\u{feff}'));
        reader.config_mut().expand_empty_elements = true;
        Ok(Walk {
            reader,
            depth: 0,
            roots: 0,
            opened: None,
        })
    }

    /// `None` after the root element has ended.
    pub fn step(&mut self) -> Result<Option<Node>, InvalidXml> {
        loop {
            let (resolved, event) = self.reader.read_resolved_event().map_err(syntax)?;
            match event {
                Event::Start(element) => {
                    let namespace = match resolved {
                        ResolveResult::Bound(namespace) => plain_namespace(namespace.as_ref())?,
                        ResolveResult::Unbound => String::new(),
                        ResolveResult::Unknown(prefix) => {
                            return Err(syntax(format!("the prefix '{prefix}' has no namespace")));
                        }
                    };
                    check_namespace(&namespace)?;
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
                    self.opened = Some(element);
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

/// Elements as XML that stands for itself wherever it is put: each declares the namespaces that it uses.
impl Walk<'_> {
    /// The `xml:lang` of the element that [`Walk::step`] has just opened.
    pub fn language(&self) -> Option<String> {
        let element = self.opened.as_ref()?;
        let language = element.try_get_attribute("xml:lang").ok().flatten()?;
        let value = language.normalized_value(XmlVersion::Implicit1_0).ok()?;
        Some(value.into_owned())
    }

    /// The element that has just been opened, read to its end. It gets `language` when it has none of its own.
    pub fn element(
        &mut self,
        name: &Name,
        language: Option<&str>,
        bytes_max: usize,
    ) -> Result<String, InvalidXml> {
        let mut copy = ElementCopy::new(bytes_max);
        copy.open(name, self.opened.as_ref(), &self.reader, language)?;
        self.copy_to_end(copy)
    }

    /// What the element that has just been opened holds, read to its end.
    pub fn content(&mut self, bytes_max: usize) -> Result<String, InvalidXml> {
        let mut copy = ElementCopy::new(bytes_max);
        copy.open.push(None);
        self.copy_to_end(copy)
    }

    fn copy_to_end(&mut self, mut copy: ElementCopy) -> Result<String, InvalidXml> {
        while !copy.open.is_empty() {
            match self.step()? {
                Some(Node::Open(name)) => {
                    copy.open(&name, self.opened.as_ref(), &self.reader, None)?;
                }
                Some(Node::Text(text)) => copy.text(&text)?,
                Some(Node::Close) => copy.close()?,
                None => return Err(syntax("it ends too early")),
            }
        }
        Ok(copy.out)
    }
}

/// An element while it is written anew.
struct ElementCopy {
    out: String,
    bytes_max: usize,
    /// Open elements: the name as written, and what `xmlns:x` is in it. `None`: an element that is not written itself.
    open: Vec<Option<(String, String)>>,
    /// The last start tag is not closed yet: if nothing follows it ends with `/>`.
    in_tag: bool,
}

impl ElementCopy {
    fn new(bytes_max: usize) -> ElementCopy {
        ElementCopy {
            out: String::new(),
            bytes_max,
            open: Vec::new(),
            in_tag: false,
        }
    }

    fn open(
        &mut self,
        name: &Name,
        element: Option<&BytesStart<'_>>,
        reader: &NsReader<&[u8]>,
        language: Option<&str>,
    ) -> Result<(), InvalidXml> {
        self.end_tag();
        let outer = self.open.last().cloned().flatten();
        let outer = outer.map(|(_, namespace)| namespace).unwrap_or_default();
        let (tag, inner) = match name.namespace.as_str() {
            "" => (name.local.clone(), outer.clone()),
            namespace => (format!("x:{}", name.local), namespace.to_owned()),
        };
        self.out.push('<');
        self.out.push_str(&tag);
        if inner != outer {
            self.attribute("xmlns:x", &inner);
        }
        let attributes = element.into_iter().flat_map(BytesStart::attributes);
        let mut language = language;
        let mut own = Vec::new();
        // By order among those with a namespace, so that an element read again is written the same.
        let mut prefixes = 0..;
        for attribute in attributes {
            let attribute = attribute.map_err(syntax)?;
            if attribute.key.as_namespace_binding().is_some() {
                continue;
            }
            let value = attribute.normalized_value(XmlVersion::Implicit1_0);
            let value = value.map_err(|_| InvalidXml::Entities)?.into_owned();
            check_characters(&value)?;
            let (resolved, local) = reader.resolver().resolve_attribute(attribute.key);
            check_name(local.as_ref())?;
            match resolved {
                ResolveResult::Unbound => own.push((local.as_ref().to_owned(), value)),
                ResolveResult::Bound(namespace) if namespace.as_ref() == XML => {
                    language = language.filter(|_| local.as_ref() != "lang");
                    own.push((format!("xml:{}", local.as_ref()), value));
                }
                ResolveResult::Bound(namespace) => {
                    let prefix = format!("y{}", prefixes.next().unwrap_or(0_u64));
                    own.push((format!("{prefix}:{}", local.as_ref()), value));
                    own.push((
                        format!("xmlns:{prefix}"),
                        plain_namespace(namespace.as_ref())?,
                    ));
                }
                ResolveResult::Unknown(prefix) => {
                    return Err(syntax(format!("the prefix '{prefix}' has no namespace")));
                }
            }
        }
        if let Some(language) = language {
            self.attribute("xml:lang", language);
        }
        own.iter()
            .for_each(|(name, value)| self.attribute(name, value));
        self.in_tag = true;
        self.open.push(Some((tag, inner)));
        self.check()
    }

    fn text(&mut self, text: &str) -> Result<(), InvalidXml> {
        if !text.is_empty() {
            self.end_tag();
            escape_exactly(&mut self.out, text);
        }
        self.check()
    }

    fn close(&mut self) -> Result<(), InvalidXml> {
        if let Some(Some((tag, _))) = self.open.pop() {
            match std::mem::take(&mut self.in_tag) {
                true => self.out.push_str("/>"),
                false => {
                    self.out.push_str("</");
                    self.out.push_str(&tag);
                    self.out.push('>');
                }
            }
        }
        self.check()
    }

    fn attribute(&mut self, name: &str, value: &str) {
        self.out.push(' ');
        self.out.push_str(name);
        self.out.push_str("=\"");
        // In an attribute they would be read as spaces (XML 1.0 §3.3.3).
        for piece in value.split_inclusive(['\t', '\n']) {
            let text = piece.trim_end_matches(['\t', '\n']);
            escape_exactly(&mut self.out, text);
            match &piece[text.len()..] {
                "\t" => self.out.push_str("&#9;"),
                "\n" => self.out.push_str("&#10;"),
                _ => {}
            }
        }
        self.out.push('"');
    }

    fn end_tag(&mut self) {
        if std::mem::take(&mut self.in_tag) {
            self.out.push('>');
        }
    }

    fn check(&self) -> Result<(), InvalidXml> {
        match self.out.len() > self.bytes_max {
            true => Err(InvalidXml::ElementTooLong(self.bytes_max)),
            false => Ok(()),
        }
    }
}

/// The reader gives namespaces as they are written; a name is what they mean.
fn plain_namespace(written: &str) -> Result<String, InvalidXml> {
    let plain = quick_xml::escape::unescape(written).map_err(|_| InvalidXml::Entities)?;
    check_characters(&plain)?;
    Ok(plain.into_owned())
}

/// The five entities and the character references that XML itself defines (XML 1.0 §4.1, §4.6).
fn predefined(reference: &BytesRef<'_>) -> Result<char, InvalidXml> {
    if let Some(character) = reference.resolve_char_ref().map_err(syntax)? {
        check_characters(character.encode_utf8(&mut [0; 4]))?;
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

/// What XML 1.0 cannot hold, not even as a reference (§2.2), we could not write back.
fn check_characters(text: &str) -> Result<(), InvalidXml> {
    match text.chars().all(is_character) {
        true => Ok(()),
        false => Err(syntax("it has characters that XML does not have")),
    }
}

fn is_character(character: char) -> bool {
    !matches!(character, '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
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

/// Namespaces are written back under prefixes of ours, which these two must not have (Namespaces in XML 1.0 §3).
fn check_namespace(namespace: &str) -> Result<(), InvalidXml> {
    const RESERVED: [&str; 2] = [
        "http://www.w3.org/2000/xmlns/",
        "http://www.w3.org/XML/1998/namespace",
    ];
    match RESERVED.contains(&namespace) {
        true => Err(syntax("an element has a prefix that is XML's own")),
        false => Ok(()),
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

/// Appends character data such that reading it gives the same text again. Characters that XML 1.0 cannot hold at all
/// are left out.
fn escape_exactly(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // As itself it would be read as a line's end.
            '\r' => out.push_str("&#13;"),
            _ if is_character(character) => out.push(character),
            _ => {}
        }
    }
}
