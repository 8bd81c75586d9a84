//! `penstock mv`: another name at the same storage element, in one step. Only a file gives way, only to a file, and only when
//! somebody agreed: a MOVE that may replace something removes a directory with all that is in it (RFC 4918 §9.9.3). Where a server
//! does not evaluate conditions, a file takes the place of another in two steps.

use crate::args::MvArgs;
use crate::commands::access::{Purpose, Server};
use crate::commands::files::open;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use http::StatusCode;
use penstock_field_tools::remote::{Info, Remote, below, beside, path_of};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::replaceable::Replaceable;
use penstock_field_tools::server_identity::ServerIdentity;
use penstock_model::url::redact;
use serde::Serialize;
use url::Url;
use uuid::Uuid;

#[derive(Serialize)]
struct MvReport {
    source: String,
    destination: String,
}

/// What is where something is to be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Occupant {
    Nothing,
    File(Info),
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
    let ends = [from.clone(), to.clone()];
    let remote = open(&ends, Purpose::Modify, &args.access, environment, 1)?;
    if Server::of(from) != Server::of(to) {
        return Err(refuse_other_server(&remote, from, to).await);
    }
    let source = remote.stat(from).await?;
    let (place, occupant) = find_place(&remote, &source, to).await?;
    if path_of(from)? == path_of(&place)? {
        return Err(CommandError::Usage(format!("{from} has this name already")));
    }
    let shown = redact(place.as_str());
    let replaced = replaced(&source, &occupant, args.overwrite)
        .map_err(|why| CommandError::SomeFailed(format!("{shown} {why}")))?;
    match replaced {
        Some(replaced) => {
            let replacement = Replacement {
                remote: &remote,
                from,
                place: &place,
                replaced,
            };
            replacement.carry_out().await?;
        }
        None => {
            let moved = remote.rename(from, &place, &Replaceable::Nothing).await;
            moved.map_err(|why| match (why.status(), &occupant) {
                (Some(StatusCode::PRECONDITION_FAILED), Occupant::Unknown) if args.overwrite => {
                    CommandError::SomeFailed(format!(
                        "{shown} already exists; it was not replaced, because the token does not allow looking whether it is a \
                         file"
                    ))
                }
                (Some(StatusCode::PRECONDITION_FAILED), _) => CommandError::SomeFailed(format!(
                    "{shown} already exists; use --overwrite to replace it"
                )),
                _ => why.into(),
            })?;
        }
    }
    let report = MvReport {
        source: redact(from.as_str()),
        destination: shown,
    };
    output.show(&report, String::new);
    Ok(())
}

/// Says what to do instead. Of two names of one server it is not a copy: with the same path, the copy would be the source.
async fn refuse_other_server(remote: &Remote, from: &Url, to: &Url) -> CommandError {
    let path = path_of(from).ok();
    let servers = ServerIdentity::find(remote, [from, to], path.as_ref()).await;
    if matches!(servers, Ok(ServerIdentity::Same)) {
        let mut renamed = from.clone();
        renamed.set_path(to.path());
        renamed.set_query(None);
        return CommandError::Usage(format!(
            "{from} and {to} lead to the same server; use one name of it: penstock mv {from} {renamed}"
        ));
    }
    CommandError::Usage(format!(
        "{from} and {to} are at different servers; copy the file, then delete it: \
         penstock copy {from} {to} && penstock rm {from}"
    ))
}

/// The file that gives way, if any, or why nothing can be moved there.
fn replaced<'a>(
    source: &Info,
    occupant: &'a Occupant,
    overwrite: bool,
) -> Result<Option<&'a Info>, &'static str> {
    match (occupant, source.is_directory) {
        (Occupant::Directory, _) => {
            Err("already exists and is a directory; directories are not replaced")
        }
        (Occupant::File(_), true) => {
            Err("already exists and is a file; a directory does not replace it")
        }
        (Occupant::File(file), false) if overwrite => Ok(Some(file)),
        (Occupant::File(_), false) => Err("already exists; use --overwrite to replace it"),
        (Occupant::Nothing | Occupant::Unknown, _) => Ok(None),
    }
}

/// A file takes the place of another one, and of nothing else: somebody may write there meanwhile, and a MOVE that may replace
/// something would remove a directory with all that is in it.
struct Replacement<'a> {
    remote: &'a Remote,
    from: &'a Url,
    place: &'a Url,
    /// As it was seen.
    replaced: &'a Info,
}

impl Replacement<'_> {
    async fn carry_out(&self) -> Result<(), CommandError> {
        if let Some(etag) = &self.replaced.etag
            && self.remote.evaluates_if(self.place).await.unwrap_or(false)
        {
            let only = Replaceable::Version(etag.clone());
            match self.remote.rename(self.from, self.place, &only).await {
                Err(why) if why.status() == Some(StatusCode::PRECONDITION_FAILED) => {}
                outcome => return Ok(outcome?),
            }
            // Some servers know locks and no versions.
            if !self
                .replaced
                .is_same_file(&self.remote.stat(self.place).await?)
            {
                return Err(self.changed());
            }
        }
        self.by_two_moves().await
    }

    /// Without a condition that the server evaluates: what is there is moved aside and looked at, and comes back if it is another.
    async fn by_two_moves(&self) -> Result<(), CommandError> {
        let Replacement {
            remote,
            from,
            place,
            replaced,
        } = *self;
        let shown = redact(place.as_str());
        if let Some(why) = replaced.why_not_distinct() {
            let text = format!("{shown} was not replaced: {why}");
            return Err(CommandError::SomeFailed(text));
        }
        let aside = beside(place, &format!("penstock-mv-{}", Uuid::new_v4().simple()))?;
        if let Err(why) = remote.rename(place, &aside, &Replaceable::Nothing).await {
            return Err(match is_refusal(&why) {
                true => why.into(),
                // The answer was lost, perhaps after the file had been moved.
                false => self.take_back(&aside, why.into()).await,
            });
        }
        let moved = match remote.stat(&aside).await {
            Ok(now) if replaced.is_same_file(&now) => {
                let moved = remote.rename(from, place, &Replaceable::Nothing).await;
                moved.map_err(CommandError::from)
            }
            Ok(_) => Err(self.changed()),
            Err(why) => Err(why.into()),
        };
        if let Err(why) = moved {
            return Err(self.take_back(&aside, why).await);
        }
        let etag = replaced.etag.as_deref();
        let removed = remote.delete_version(&aside, etag).await;
        removed.map_err(|why| {
            CommandError::SomeFailed(format!(
                "{shown} was replaced, but the file that was there could not be deleted; it is now at {}: {why}",
                redact(aside.as_str())
            ))
        })
    }

    /// Why nothing was replaced, and where the file is that was there if it cannot have its name again.
    async fn take_back(&self, aside: &Url, why: CommandError) -> CommandError {
        let back = self.remote.rename(aside, self.place, &Replaceable::Nothing);
        match back.await {
            Ok(()) | Err(RemoteError::NotFound { .. }) => why,
            Err(not_back) => {
                let (place, aside) = (redact(self.place.as_str()), redact(aside.as_str()));
                let text = match is_refusal(&not_back) {
                    true => format!("{why}; what was at {place} is now at {aside}"),
                    false => format!("{why}; what was at {place} is still there, or at {aside}"),
                };
                CommandError::SomeFailed(format!(
                    "{text}, because it could not be moved back: {not_back}"
                ))
            }
        }
    }

    fn changed(&self) -> CommandError {
        let shown = redact(self.place.as_str());
        CommandError::SomeFailed(format!("{shown} has changed meanwhile; nothing was moved"))
    }
}

/// The server has answered that it did nothing.
fn is_refusal(why: &RemoteError) -> bool {
    why.status().is_some_and(|status| status.is_client_error())
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
        Occupant::File(_) => false,
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
        Ok(found) => Ok(Occupant::File(found)),
        Err(RemoteError::NotFound { .. }) => Ok(Occupant::Nothing),
        Err(RemoteError::NotAuthorised { .. }) => Ok(Occupant::Unknown),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::Timestamp;

    #[test]
    fn only_a_file_gives_way_and_only_to_a_file() {
        let info = |is_directory| Info {
            url: "https://se/x".to_owned(),
            name: "x".to_owned(),
            is_directory,
            size_bytes: None,
            modified: None,
            etag: None,
            told_at: Timestamp(0),
            locality: None,
        };
        let file = || Occupant::File(info(false));
        let check = |is_directory, occupant: Occupant, overwrite, expected: Result<bool, &str>| {
            let source = info(is_directory);
            let found = replaced(&source, &occupant, overwrite).map(|found| found.is_some());
            let shown = format!("{is_directory} {occupant:?} {overwrite}");
            match (found, expected) {
                (Err(why), Err(part)) => assert!(why.contains(part), "{shown}: {why}"),
                (found, expected) => assert_eq!(found, expected, "{shown}"),
            }
        };
        for overwrite in [false, true] {
            for is_directory in [false, true] {
                let directory = Occupant::Directory;
                check(is_directory, directory, overwrite, Err("is a directory"));
                check(is_directory, Occupant::Nothing, overwrite, Ok(false));
                check(is_directory, Occupant::Unknown, overwrite, Ok(false));
            }
            check(true, file(), overwrite, Err("is a file"));
        }
        check(false, file(), false, Err("--overwrite"));
        check(false, file(), true, Ok(true));
    }
}
