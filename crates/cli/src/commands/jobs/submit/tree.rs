//! `penstock submit --recursive`: the files below a directory of a storage element, as a list to submit.

use crate::args::{SubmitArgs, parse_url};
use crate::commands::access::{Access, Purpose};
use crate::exit::CommandError;
use penstock_field_tools::job_list::Entry;
use penstock_field_tools::path_filter::PathFilter;
use penstock_field_tools::remote::Remote;
use penstock_field_tools::remote_tree;
use penstock_model::{FileUrl, NamespacePath};
use std::collections::BTreeSet;
use url::Url;

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
    refuse_own_sources(&found.entries)?;
    match found.entries.is_empty() && found.not_listed.is_empty() {
        true => Err(CommandError::NotFound(format!(
            "{source} contains no files"
        ))),
        false => Ok(found),
    }
}

/// A file that is source and destination would be read after it has been replaced.
fn refuse_own_sources(entries: &[Entry]) -> Result<(), CommandError> {
    // In one form: `https://se:443/f` is `https://SE/f`.
    let place = |url: &FileUrl| Url::parse(url.as_str()).map_or(url.to_string(), String::from);
    let sources: BTreeSet<String> = entries.iter().map(|entry| place(&entry.source)).collect();
    let mut own = entries
        .iter()
        .filter(|entry| sources.contains(&place(&entry.destination)));
    match own.next() {
        None => Ok(()),
        Some(entry) => Err(CommandError::Usage(format!(
            "{} would be replaced, but it is one of the files to be copied; choose another destination",
            entry.destination
        ))),
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
    fn no_source_is_a_destination_too() {
        let entry = |from: &str, to: &str| Entry {
            source: FileUrl::parse(from).expect("a URL"),
            destination: FileUrl::parse(to).expect("a URL"),
            checksum: None,
        };
        let apart = [entry("https://se/t/a", "https://se/u/a")];
        refuse_own_sources(&apart).expect("apart");
        let into = [
            entry("https://se/t/a", "https://se/t/b/a"),
            entry("https://se/t/b/a", "https://se/t/b/b/a"),
        ];
        let why = refuse_own_sources(&into).expect_err("it is both");
        assert!(
            why.to_string()
                .contains("https://se/t/b/a would be replaced"),
            "{why}"
        );
        let spelt = [
            entry("https://se/t/a", "https://se/t/b"),
            entry("https://se:443/t/b", "https://se/u"),
        ];
        refuse_own_sources(&spelt).expect_err("it is both");
    }

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
