//! The tokens that a submission brings for its files: one for each storage element, for these files alone, that lets a
//! source be read and no more. The service keeps them for as long as the job waits.

use crate::commands::access::{Access, Need, Server, audiences_of};
use crate::exit::CommandError;
use penstock_field_tools::job_list::Entry;
use penstock_field_tools::transfer_api::{EndTokens, JobTokens, TapeOptions};
use penstock_model::{Access as Spoken, FileUrl, NamespacePath, Right};
use std::collections::{BTreeMap, BTreeSet};
use url::Url;

/// Bytes of one token's scopes. Beyond, they name directories instead of files: servers take heads of 16 KiB.
const SCOPE_BYTES_MAX: usize = 4096;
/// What a source needs.
const OF_SOURCE: &[Right] = &[Right::Read];
/// What a destination needs: a look at what is there, the file and its directories, and the removal of what a failed copy
/// has left, for which the profile knows nothing narrower.
const OF_DESTINATION: &[Right] = &[Right::Read, Right::Modify];

/// What tape adds to that: sources are brought from it or deleted, and destinations are asked whether a file is on it.
fn rights_of(tape: TapeOptions) -> (Vec<Right>, Vec<Right>) {
    let (mut source, mut destination) = (OF_SOURCE.to_vec(), OF_DESTINATION.to_vec());
    if tape.bring_online.is_some() || tape.copy_pin_lifetime.is_some() {
        source.push(Right::Stage);
    }
    if tape.delete_source {
        source.push(Right::Modify);
    }
    if tape.archive_timeout.is_some() {
        destination.push(Right::Poll);
    }
    (source, destination)
}

/// Tokens for the files of one job. Those that the user gave are for all files, also those of the other end.
pub fn for_job(
    access: &Access,
    entries: &[Entry],
    tape: TapeOptions,
) -> Result<JobTokens, CommandError> {
    for entry in entries {
        for end in [&entry.source, &entry.destination] {
            if let Ok(url) = Url::parse(end.as_str()) {
                access.refuse_outside_context(&url)?;
            }
        }
    }
    if !access.mints() {
        return Ok(JobTokens {
            sources: EndTokens::OfSubmission,
            destinations: EndTokens::OfSubmission,
        });
    }
    let sources: Vec<&FileUrl> = entries.iter().map(|entry| &entry.source).collect();
    let destinations: Vec<&FileUrl> = entries.iter().map(|entry| &entry.destination).collect();
    let (of_source, of_destination) = rights_of(tape);
    Ok(JobTokens {
        sources: for_end(access, &sources, &of_source)?,
        destinations: for_end(access, &destinations, &of_destination)?,
    })
}

fn for_end(
    access: &Access,
    urls: &[&FileUrl],
    rights: &[Right],
) -> Result<EndTokens, CommandError> {
    let mut servers: BTreeMap<Server, (Url, BTreeSet<NamespacePath>)> = BTreeMap::new();
    let mut server_of = Vec::with_capacity(urls.len());
    for file in urls {
        // A cloud storage is reached with keys of the service.
        if file.access() == Spoken::Cloud {
            server_of.push(None);
            continue;
        }
        let url = Url::parse(file.as_str())
            .map_err(|why| CommandError::Usage(format!("{file}: {why}")))?;
        let path = path_of(&url).map_err(|why| CommandError::Usage(format!("{file}: {why}")))?;
        let server = Server::of(&url);
        let (_, paths) = servers
            .entry(server.clone())
            .or_insert_with(|| (url, BTreeSet::new()));
        paths.insert(path);
        server_of.push(Some(server));
    }
    let mut tokens = BTreeMap::new();
    for (server, (url, paths)) in servers {
        let need = Need {
            scope: scope_of(paths, rights),
            audiences: audiences_of(&url),
        };
        tokens.insert(server, access.job_token(&need)?);
    }
    let token = |server: Option<Server>| tokens.get(&server?)?.clone();
    Ok(EndTokens::Each(server_of.into_iter().map(token).collect()))
}

/// The path in the storage element's namespace.
fn path_of(url: &Url) -> Result<NamespacePath, penstock_model::path::InvalidPath> {
    // SRM's long form: the path is that of its endpoint, and the file stands in the query.
    let named = url
        .query()
        .and_then(|query| query.strip_prefix("SFN="))
        .filter(|_| url.scheme() == "srm");
    NamespacePath::from_encoded(named.unwrap_or(url.path()))
}

/// As narrow as a token has room for: the files, else their directories, else those above them.
pub fn scope_of(paths: BTreeSet<NamespacePath>, rights: &[Right]) -> String {
    let mut places: BTreeSet<(NamespacePath, bool)> =
        paths.into_iter().map(|path| (path, false)).collect();
    loop {
        let scope = written(&places, rights);
        if scope.len() <= SCOPE_BYTES_MAX || places.iter().all(|(path, _)| path.is_root()) {
            return scope;
        }
        // The deepest go up first, so that all come together.
        let deepest = places
            .iter()
            .map(|(path, is_directory)| (path.names().len(), !is_directory));
        let deepest = deepest.max();
        let risen = places.into_iter().map(|(path, is_directory)| {
            let is_deepest = Some((path.names().len(), !is_directory)) == deepest;
            match is_deepest.then(|| path.parent()).flatten() {
                Some(above) => (above, true),
                None => (path, is_directory),
            }
        });
        places = risen.collect();
    }
}

fn written(places: &BTreeSet<(NamespacePath, bool)>, rights: &[Right]) -> String {
    let scopes = places.iter().flat_map(|(path, is_directory)| {
        let slash = if *is_directory && !path.is_root() {
            "/"
        } else {
            ""
        };
        let path = path.to_encoded();
        rights
            .iter()
            .map(move |right| format!("{}:{path}{slash}", right.scope_name()))
    });
    scopes.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(paths: impl IntoIterator<Item = String>, rights: &[Right]) -> String {
        let parse = |path: String| NamespacePath::parse(&path).expect("a path");
        scope_of(paths.into_iter().map(parse).collect(), rights)
    }

    #[test]
    fn a_token_names_the_files_as_long_as_it_has_room_for_them() {
        let few = ["/d/a b", "/d/c"].map(str::to_owned);
        assert_eq!(
            scope(few.clone(), OF_SOURCE),
            "storage.read:/d/a%20b storage.read:/d/c"
        );
        assert_eq!(
            scope(few.into_iter().take(1), OF_DESTINATION),
            "storage.read:/d/a%20b storage.modify:/d/a%20b"
        );
        let files = |directories: usize| {
            let names = (0..directories).flat_map(|d| (0..200).map(move |f| (d, f)));
            names.map(|(d, f)| format!("/data/set{d}/file{f}"))
        };
        assert_eq!(
            scope(files(2), OF_SOURCE),
            "storage.read:/data/set0/ storage.read:/data/set1/"
        );
        assert_eq!(scope(files(500), OF_SOURCE), "storage.read:/data/");
        let mixed = files(1).chain(["/other/f".to_owned()]);
        assert_eq!(
            scope(mixed, OF_SOURCE),
            "storage.read:/data/set0/ storage.read:/other/f"
        );
        let top = (0..5000).map(|number| format!("/file{number}"));
        assert_eq!(scope(top, OF_SOURCE), "storage.read:/");
    }

    #[test]
    fn a_token_has_rights_of_tape_only_where_tape_is_asked_for() {
        let rights = |tape| {
            let (source, destination) = rights_of(tape);
            let words = |rights: Vec<Right>| {
                let words: Vec<_> = rights.into_iter().map(Right::word).collect();
                words.join("+")
            };
            format!("{} {}", words(source), words(destination))
        };
        let day = Some(std::time::Duration::from_secs(86_400));
        let none = TapeOptions::default();
        assert_eq!(rights(none), "read read+modify");
        let brought = TapeOptions {
            bring_online: day,
            ..none
        };
        assert_eq!(rights(brought), "read+stage read+modify");
        let moved = TapeOptions {
            archive_timeout: day,
            delete_source: true,
            ..none
        };
        assert_eq!(rights(moved), "read+modify read+modify+poll");
    }

    #[test]
    fn the_path_of_an_srm_file_stands_in_its_query() {
        let url = Url::parse("srm://se:8446/srm/managerv2?SFN=/pnfs/f").expect("a URL");
        assert_eq!(path_of(&url).expect("a path").to_string(), "/pnfs/f");
    }
}
