//! `penstock trash`: what was removed or replaced at a storage element, how it comes back, and how it goes for good.

use crate::access::{Access, Need, Server};
use crate::args::{
    DoorArgs, TrashCommand, TrashEmptyArgs, TrashListArgs, TrashRestoreArgs, TrashedName,
};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::fsck::is_confirmed;
use crate::output::Output;
use crate::quantity::Span;
use crate::site::SiteDirectory;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::trash_api::{EmptiedInfo, RestoredInfo, TrashApi, TrashedInfo};
use penstock_model::text::one_line;
use penstock_model::{Bytes, NamespacePath};
use penstock_protocol::token::ADMIN_SCOPE;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use url::Url;

/// Files that are asked for at once.
const PAGE: usize = 1000;

#[derive(Debug, Serialize)]
struct ToldList {
    /// How long the storage element keeps removed files.
    kept_seconds: u64,
    files: Vec<TrashedInfo>,
    /// There are more than were asked for.
    is_more: bool,
}

#[derive(Debug, Default, Serialize)]
struct ToldRestored {
    restored: Vec<RestoredInfo>,
    failed: Vec<ToldFailure>,
    /// Older versions of the same file that are still in the trash.
    older_versions: usize,
}

#[derive(Debug, Serialize)]
struct ToldFailure {
    path: String,
    why: String,
}

#[derive(Debug, Default, Serialize)]
struct ToldEmptied {
    files: u64,
    bytes: u64,
    /// Files whose data could not be removed.
    kept: u64,
    silent_pools: Vec<String>,
}

/// `penstock trash`.
pub async fn run(
    command: TrashCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    match command {
        TrashCommand::List(args) => list(&args, environment, output).await,
        TrashCommand::Restore(args) => restore(&args, environment, output).await,
        TrashCommand::Empty(args) => empty(&args, environment, output).await,
    }
}

/// The door that is meant, and the token of an administrator for it, which is shown to the site's own door alone.
fn connect(args: &DoorArgs, environment: &Environment) -> Result<TrashApi, CommandError> {
    let access = Access::open(&args.access, environment, 1)?;
    let own = match &args.access.dir {
        Some(dir) => SiteDirectory::at(dir)?.config()?.door_url(),
        None => None,
    };
    let own = own.and_then(|url| Url::parse(&url).ok());
    let door = args.door.as_ref().or(own.as_ref()).cloned();
    let door = door.ok_or_else(|| {
        CommandError::Usage(
            "which storage element? give --dir of a site with [storage], or --door URL with --token-file".to_owned(),
        )
    })?;
    let need = match &own {
        _ if !access.mints() => None,
        Some(own) if Server::of(own) == Server::of(&door) => Some(Need {
            scope: ADMIN_SCOPE.to_owned(),
            audiences: vec![own.as_str().trim_end_matches('/').to_owned()],
        }),
        Some(_) | None => {
            return Err(CommandError::Usage(format!(
                "{door} is not the door of the site in --dir, whose administrator's token is shown to no other; give the \
                 --dir of its own site, or --token-file with a token that it takes"
            )));
        }
    };
    let credentials = access.credentials(need.map(|need| (Server::of(&door), need)));
    Ok(TrashApi::new(access.client, door, credentials))
}

/// In the words of the storage element, which says what to do.
fn told(why: RemoteError) -> CommandError {
    match why {
        RemoteError::Refused { detail, .. } if !detail.is_empty() => {
            CommandError::SomeFailed(detail.trim_start_matches(": ").to_owned())
        }
        RemoteError::NotFound(_) => CommandError::NotFound(
            "that is not in the trash, or no longer; `penstock trash list` tells what is"
                .to_owned(),
        ),
        why => why.into(),
    }
}

/// Files of the trash, at most so many.
async fn all(
    trash: &TrashApi,
    within: Option<&NamespacePath>,
    limit: usize,
) -> Result<ToldList, CommandError> {
    let mut found = ToldList {
        kept_seconds: 0,
        files: Vec::new(),
        is_more: true,
    };
    let mut after: Option<String> = None;
    while found.is_more && found.files.len() < limit {
        let wanted = PAGE.min(limit - found.files.len());
        let page = trash.list(within, wanted, after.as_deref()).await;
        let page = page.map_err(told)?;
        found.kept_seconds = page.kept_seconds;
        found.files.extend(page.files);
        found.is_more = page.next.is_some();
        after = page.next;
    }
    Ok(found)
}

async fn list(
    args: &TrashListArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let trash = connect(&args.door, environment)?;
    let found = all(&trash, args.path.as_ref(), args.limit).await?;
    output.show(&found, || list_text(&found));
    Ok(())
}

fn list_text(found: &ToldList) -> String {
    let line = |file: &TrashedInfo| {
        let path = file
            .path
            .as_deref()
            .unwrap_or("(where it was is not known)");
        let by = file.removed_by.as_deref().map(subject);
        let by = by.map(|by| format!("  by {}", one_line(by)));
        format!(
            "{:>8}  {}  {:>9}  {}{}\n",
            file.id,
            file.removed.to_fts(),
            Bytes(file.size_bytes).to_string(),
            one_line(path),
            by.unwrap_or_default()
        )
    };
    let mut text: String = found.files.iter().map(line).collect();
    let bytes = found.files.iter().map(|file| file.size_bytes).sum();
    let (files, kept) = (
        found.files.len(),
        Span(Duration::from_secs(found.kept_seconds)),
    );
    text += &match (found.is_more, found.kept_seconds) {
        (true, _) => format!(
            "these are {files} files ({}); --limit lists more\n",
            Bytes(bytes)
        ),
        (false, 0) => format!(
            "{files} files ({}); removed files are not kept (storage.trash)\n",
            Bytes(bytes)
        ),
        (false, _) => format!(
            "{files} files ({}); each is kept for {kept} after its removal, if no new file needs its room\n",
            Bytes(bytes)
        ),
    };
    text
}

/// Whom a holder's name speaks of, without the issuer of the token.
fn subject(holder: &str) -> &str {
    match holder.split_once(' ') {
        Some((issuer, subject)) if issuer.contains("://") => subject,
        Some(_) | None => holder,
    }
}

async fn restore(
    args: &TrashRestoreArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let trash = connect(&args.door, environment)?;
    let mut done = ToldRestored::default();
    match (&args.what, args.recursive) {
        (TrashedName::Id(_), true) => {
            return Err(CommandError::Usage(
                "--recursive goes with the path of a directory, not with a number".to_owned(),
            ));
        }
        (TrashedName::Id(id), false) => {
            let restored = trash.restore(id, args.to.as_ref()).await;
            done.restored.push(restored.map_err(told)?);
        }
        (TrashedName::Path(path), false) => {
            let found = all(&trash, Some(path), usize::MAX).await?.files;
            let (versions, below) = versions_of(&found, path);
            let newest = versions.last().ok_or_else(|| not_in_trash(path, below))?;
            let restored = trash.restore(&newest.id, args.to.as_ref()).await;
            done.restored.push(restored.map_err(told)?);
            done.older_versions = versions.len() - 1;
        }
        (TrashedName::Path(path), true) => {
            let found = all(&trash, Some(path), usize::MAX).await?.files;
            let newest = newest_of_each(found);
            if newest.is_empty() {
                return Err(not_in_trash(path, 0));
            }
            for (from, id) in newest {
                let to = args.to.as_ref().map(|base| moved(&from, path, base));
                match trash.restore(&id, to.as_ref()).await.map_err(told) {
                    Ok(restored) => done.restored.push(restored),
                    Err(why) => done.failed.push(ToldFailure {
                        path: from.to_string(),
                        why: why.to_string(),
                    }),
                }
            }
        }
    }
    output.show(&done, || restored_text(&done));
    match done.failed.len() {
        0 => Ok(()),
        failed => Err(CommandError::SomeFailed(format!(
            "{failed} files did not come back; the others did"
        ))),
    }
}

/// The versions of one file, and how many other files were below that path.
fn versions_of<'a>(
    found: &'a [TrashedInfo],
    path: &NamespacePath,
) -> (Vec<&'a TrashedInfo>, usize) {
    let path = path.to_string();
    let is_it = |file: &&TrashedInfo| file.path.as_deref() == Some(path.as_str());
    let versions: Vec<_> = found.iter().filter(is_it).collect();
    let below = found.len() - versions.len();
    (versions, below)
}

fn not_in_trash(path: &NamespacePath, below: usize) -> CommandError {
    CommandError::NotFound(match below {
        0 => format!(
            "{path} is not in the trash: it was not removed, or too long ago, or a new file needed its room; \
             `penstock trash list` tells what is there"
        ),
        below => format!(
            "{path} was no file, but {below} files of the trash were below it; --recursive restores them"
        ),
    })
}

/// Of each path the number of the file that was removed last.
fn newest_of_each(found: Vec<TrashedInfo>) -> BTreeMap<NamespacePath, String> {
    let known = |file: TrashedInfo| {
        let path = NamespacePath::parse(file.path.as_deref()?).ok()?;
        Some((path, file.id))
    };
    // They come in the order of their removal.
    found.into_iter().filter_map(known).collect()
}

/// A path below `from` as it is below `to`.
fn moved(path: &NamespacePath, from: &NamespacePath, to: &NamespacePath) -> NamespacePath {
    let rest = path.names().iter().skip(from.names().len());
    rest.fold(to.clone(), |path, name| path.child(name).unwrap_or(path))
}

fn restored_text(done: &ToldRestored) -> String {
    let mut text = String::new();
    for restored in &done.restored {
        let made = match restored.parent_made {
            true => " (its directory was gone and was made again)",
            false => "",
        };
        text += &format!("restored {}{made}\n", one_line(&restored.path));
    }
    if done.older_versions > 0 {
        text += &format!(
            "{} older versions of it are in the trash: `penstock trash list` tells their numbers\n",
            done.older_versions
        );
    }
    for failure in &done.failed {
        text += &format!("{}: {}\n", one_line(&failure.path), one_line(&failure.why));
    }
    text
}

async fn empty(
    args: &TrashEmptyArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let trash = connect(&args.door, environment)?;
    let mut what = "files of the trash".to_owned();
    if let Some(path) = &args.path {
        what += &format!(" that were at {path} or below it");
    }
    if let Some(span) = &args.older_than {
        what += &format!(" and were removed more than {span} ago");
    }
    output.say(format!("all {what} go for good"));
    if !args.yes && !is_confirmed(output)? {
        return Err(CommandError::Usage(
            "nothing was removed; say --yes, or answer yes".to_owned(),
        ));
    }
    let mut done = ToldEmptied::default();
    let older_than = args.older_than.map(|span| span.0);
    loop {
        let EmptiedInfo {
            files,
            bytes,
            is_more,
            kept,
            silent_pools,
        } = trash
            .empty(args.path.as_ref(), older_than)
            .await
            .map_err(told)?;
        done.files += files;
        done.bytes += bytes;
        (done.kept, done.silent_pools) = (kept, silent_pools);
        if !is_more || files == 0 {
            break;
        }
    }
    output.show(&done, || {
        format!(
            "removed {} files ({}) for good\n",
            done.files,
            Bytes(done.bytes)
        )
    });
    match (done.kept, done.silent_pools.as_slice()) {
        (0, []) => Ok(()),
        (kept, []) => Err(CommandError::SomeFailed(format!(
            "{kept} files or more stay, because the disks of their pools refuse; the log of the storage element says why"
        ))),
        (_, silent) => Err(CommandError::SomeFailed(format!(
            "files in {} stay, because the disk does not answer; the storage element removes them when their time is over",
            silent.join(", ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::Timestamp;

    fn file(id: &str, path: &str, removed: i64) -> TrashedInfo {
        TrashedInfo {
            id: id.to_owned(),
            path: Some(path.to_owned()),
            pool: "disk1".to_owned(),
            size_bytes: 1500,
            checksums: Vec::new(),
            owner: None,
            created: Timestamp(0),
            removed: Timestamp(removed),
            removed_by: Some("https://issuer alice".to_owned()),
        }
    }

    fn path(text: &str) -> NamespacePath {
        NamespacePath::parse(text).expect("a path")
    }

    #[test]
    fn people_read_what_was_removed_when_and_by_whom() {
        let found = ToldList {
            kept_seconds: 86_400,
            files: vec![file("1f", "/d/f", 1000)],
            is_more: false,
        };
        assert_eq!(
            list_text(&found),
            "      1f  1970-01-01T00:00:01     1.5 kB  /d/f  by alice\n\
             1 files (1.5 kB); each is kept for 1d after its removal, if no new file needs its room\n"
        );
    }

    #[test]
    fn of_several_versions_the_one_that_was_removed_last_comes_back() {
        let found = vec![
            file("1", "/d/f", 1),
            file("2", "/d/f/below", 2),
            file("3", "/d/f", 3),
        ];
        let (versions, below) = versions_of(&found, &path("/d/f"));
        assert_eq!(
            (versions.last().map(|it| it.id.as_str()), below),
            (Some("3"), 1)
        );
        let newest = newest_of_each(found);
        assert_eq!(newest[&path("/d/f")], "3");
        assert_eq!(newest.len(), 2);
        let to = moved(&path("/d/f/below"), &path("/d"), &path("/else/where"));
        assert_eq!(to, path("/else/where/f/below"));
    }

    #[test]
    fn what_is_not_there_is_told_with_what_to_do() {
        let text = |below| not_in_trash(&path("/d"), below).to_string();
        assert!(text(0).contains("penstock trash list"));
        assert!(text(3).contains("--recursive"));
    }
}
