//! `penstock mv`: another name at the same storage element, in one step. Only a file gives way, only to a file, and only when
//! somebody agreed: a MOVE that may replace something removes a directory with all that is in it (RFC 4918 §9.9.3).

use crate::args::MvArgs;
use crate::commands::access::{Purpose, Server};
use crate::commands::files::open;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use http::StatusCode;
use penstock_field_tools::remote::{Info, Occupied, Remote, below, path_of};
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::url::redact;
use serde::Serialize;
use url::Url;

#[derive(Serialize)]
struct MvReport {
    source: String,
    destination: String,
}

/// What is where something is to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occupant {
    Nothing,
    File,
    Directory,
    /// The token does not allow looking.
    Unknown,
}

/// `penstock mv`.
pub async fn run(
    args: MvArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let (from, to) = (&args.source, &args.destination);
    if Server::of(from) != Server::of(to) {
        return Err(CommandError::Usage(format!(
            "{from} and {to} are at different servers; copy the file, then delete it: \
             penstock copy {from} {to} && penstock rm {from}"
        )));
    }
    let ends = [from.clone(), to.clone()];
    let remote = open(&ends, Purpose::Modify, &args.access, environment, 1)?;
    let source = remote.stat(from).await?;
    let (place, occupant) = find_place(&remote, &source, to).await?;
    if path_of(from)? == path_of(&place)? {
        return Err(CommandError::Usage(format!("{from} has this name already")));
    }
    let shown = redact(place.as_str());
    let occupied = what_may_go(&source, occupant, args.overwrite)
        .map_err(|why| CommandError::SomeFailed(format!("{shown} {why}")))?;
    let moved = remote.rename(from, &place, occupied).await;
    moved.map_err(|why| match (why.status(), occupant) {
        (Some(StatusCode::PRECONDITION_FAILED), Occupant::Unknown) if args.overwrite => {
            CommandError::SomeFailed(format!(
                "{shown} already exists; it was not replaced, because the token does not allow looking whether it is a file"
            ))
        }
        (Some(StatusCode::PRECONDITION_FAILED), _) if args.overwrite => {
            CommandError::SomeFailed(format!("{shown} has changed meanwhile; nothing was moved"))
        }
        (Some(StatusCode::PRECONDITION_FAILED), _) => CommandError::SomeFailed(format!(
            "{shown} already exists; use --overwrite to replace it"
        )),
        _ => why.into(),
    })?;
    let report = MvReport {
        source: redact(from.as_str()),
        destination: shown,
    };
    output.show(&report, String::new);
    Ok(())
}

/// Whether the server may replace what is there, or why nothing can be moved there.
fn what_may_go(
    source: &Info,
    occupant: Occupant,
    overwrite: bool,
) -> Result<Occupied, &'static str> {
    match (occupant, source.is_directory) {
        (Occupant::Directory, _) => {
            Err("already exists and is a directory; directories are not replaced")
        }
        (Occupant::File, true) => {
            Err("already exists and is a file; a directory does not replace it")
        }
        (Occupant::File, false) if overwrite => Ok(Occupied::Replaced),
        (Occupant::File, false) => Err("already exists; use --overwrite to replace it"),
        (Occupant::Nothing | Occupant::Unknown, _) => Ok(Occupied::Refused),
    }
}

/// Into the destination when that is a directory, else that very name; and what is there.
async fn find_place(
    remote: &Remote,
    source: &Info,
    to: &Url,
) -> Result<(Url, Occupant), CommandError> {
    let found = look(remote, to).await?;
    let into_directory = match found {
        Occupant::Directory => true,
        Occupant::File => false,
        Occupant::Nothing | Occupant::Unknown => to.path().ends_with('/'),
    };
    if !into_directory {
        return Ok((to.clone(), found));
    }
    let place = below(to, std::slice::from_ref(&source.name))?;
    let occupant = look(remote, &place).await?;
    Ok((place, occupant))
}

async fn look(remote: &Remote, url: &Url) -> Result<Occupant, CommandError> {
    match remote.stat(url).await {
        Ok(found) if found.is_directory => Ok(Occupant::Directory),
        Ok(_) => Ok(Occupant::File),
        Err(RemoteError::NotFound { .. }) => Ok(Occupant::Nothing),
        Err(RemoteError::NotAuthorised { .. }) => Ok(Occupant::Unknown),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_gives_way_and_only_to_a_file() {
        let check = |is_directory, occupant, overwrite, expected: Result<Occupied, &str>| {
            let source = Info {
                url: "https://se/x".to_owned(),
                name: "x".to_owned(),
                is_directory,
                size_bytes: None,
                modified: None,
                etag: None,
            };
            let found = what_may_go(&source, occupant, overwrite);
            let shown = format!("{is_directory} {occupant:?} {overwrite}");
            match (found, expected) {
                (Err(why), Err(part)) => assert!(why.contains(part), "{shown}: {why}"),
                (found, expected) => assert_eq!(found, expected, "{shown}"),
            }
        };
        for overwrite in [false, true] {
            for is_directory in [false, true] {
                check(
                    is_directory,
                    Occupant::Directory,
                    overwrite,
                    Err("is a directory"),
                );
                check(
                    is_directory,
                    Occupant::Nothing,
                    overwrite,
                    Ok(Occupied::Refused),
                );
                check(
                    is_directory,
                    Occupant::Unknown,
                    overwrite,
                    Ok(Occupied::Refused),
                );
            }
            check(true, Occupant::File, overwrite, Err("is a file"));
        }
        check(false, Occupant::File, false, Err("--overwrite"));
        check(false, Occupant::File, true, Ok(Occupied::Replaced));
    }
}
