//! `penstock submit --recursive`: the files below a directory of a storage element, as a list to submit.

use crate::args::{SubmitArgs, parse_url};
use crate::commands::access::{Access, Purpose};
use crate::commands::own_sources::refuse_own_sources;
use crate::exit::CommandError;
use penstock_field_tools::job_list::Entry;
use penstock_field_tools::path_filter::PathFilter;
use penstock_field_tools::remote::Remote;
use penstock_field_tools::remote_tree;
use penstock_field_tools::server_identity::ServerIdentity;
use penstock_model::{FileUrl, NamespacePath};

/// Directories listed at once.
const LISTINGS: usize = 8;

/// What is below a directory.
#[derive(Debug, Default)]
pub struct FoundFiles {
    pub entries: Vec<Entry>,
    /// What could not be listed, and why.
    pub not_listed: Vec<String>,
}

pub async fn find(
    args: &SubmitArgs,
    source: &str,
    destination: &str,
    access: &Access,
) -> Result<FoundFiles, CommandError> {
    for text in [source, destination] {
        if text.contains(['?', '#']) {
            return Err(CommandError::Usage(format!(
                "{text}: the URL of a directory has no query; use --source-token-file to give another token"
            )));
        }
    }
    let from = parse_url(source).map_err(|why| {
        CommandError::Usage(format!(
            "'{source}': {why}; submit directories of other servers with --jobfile"
        ))
    })?;
    let filter = PathFilter {
        include: args.include.clone(),
        exclude: args.exclude.clone(),
    };
    let credentials = access.for_files(&[(&from, Purpose::Read)])?;
    let remote = Remote::new(access.client.clone(), credentials);
    let tree = remote_tree::walk(&remote, &from, LISTINGS, &filter).await?;
    let mut found = FoundFiles {
        entries: Vec::new(),
        not_listed: tree.problems.iter().map(ToString::to_string).collect(),
    };
    for file in tree.files {
        if file.names.is_empty() {
            return Err(CommandError::Usage(format!(
                "{source} is a file; submit it without --recursive"
            )));
        }
        found.entries.push(Entry {
            source: file_below(source, &file.names)?,
            destination: file_below(destination, &file.names)?,
            checksum: None,
        });
    }
    let entries = found.entries.iter();
    let pairs = entries.map(|entry| (entry.source.as_str(), entry.destination.as_str()));
    refuse_own_sources(pairs, ServerIdentity::Unknown)?;
    match found.entries.is_empty() && found.not_listed.is_empty() {
        true => Err(CommandError::NotFound(format!(
            "{source} contains no files"
        ))),
        false => Ok(found),
    }
}

/// What was typed stays as it is: scheme and path may mean something to the other side.
fn file_below(top: &str, names: &[String]) -> Result<FileUrl, CommandError> {
    let unusable = |why: &dyn std::fmt::Display| {
        CommandError::Usage(format!("{top}: {}: {why}", names.join("/")))
    };
    let mut path = NamespacePath::root();
    for name in names {
        path = path.child(name).map_err(|why| unusable(&why))?;
    }
    let url = format!("{}{}", top.trim_end_matches('/'), path.to_encoded());
    FileUrl::parse(&url).map_err(|why| unusable(&why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_stays_before_the_names() {
        let check = |top: &str, names: &[&str], expected: &str| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let url = file_below(top, &names).expect("a URL");
            assert_eq!(url.as_str(), expected);
        };
        check(
            "davs://se:8443/d/",
            &["a b", "c"],
            "davs://se:8443/d/a%20b/c",
        );
        check("root://se:1094//d", &["f"], "root://se:1094//d/f");
        check("https://se:8443", &["f"], "https://se:8443/f");
    }
}
