//! Pages for people of which parts are made by the code.

/// A part of a page that is made by the code, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub name: &'static str,
    /// In Markdown.
    pub text: String,
}

/// The page with its blocks as the code makes them. Blocks that are not given stay as they are.
///
/// Errors: the page has no place for a block.
pub fn renewed(page: &str, blocks: &[Block]) -> Result<String, String> {
    let mut page = page.to_owned();
    for block in blocks {
        let (begin, end) = (
            format!("<!-- made: {} -->\n", block.name),
            format!("<!-- end: {} -->", block.name),
        );
        let no_place = || format!("the page has no block '{}'", block.name);
        let (before, rest) = page.split_once(&begin).ok_or_else(no_place)?;
        let (_, behind) = rest.split_once(&end).ok_or_else(no_place)?;
        page = format!("{before}{begin}\n{}\n{end}{behind}", block.text);
    }
    Ok(page)
}
