//! `penstock trash`: what was removed or replaced at a storage element, how it comes back, and how it goes for good.

mod empty;
mod restore;

use crate::args::{DoorArgs, TrashCommand, TrashListArgs};
use crate::commands::access::AdministratorsDoor;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::trash_api::{TrashApi, TrashedInfo};
use penstock_model::quantity::Span;
use penstock_model::text::{one_line, plural};
use penstock_model::{Bytes, NamespacePath, Timestamp};
use serde::Serialize;
use std::time::Duration;

/// Files that are asked for at once.
const PAGE: usize = 1000;
/// Characters of a subject that are shown. Its issuer decides how long it is.
const SUBJECT_CHARS_MAX: usize = 64;

#[derive(Debug, Serialize)]
struct TrashListReport {
    /// How long the storage element keeps removed files.
    kept_seconds: u64,
    /// The token issuer of its own site.
    #[serde(skip)]
    issuer: Option<String>,
    files: Vec<TrashedInfo>,
    /// There are more than were asked for.
    is_more: bool,
}

/// `penstock trash`.
pub async fn run(
    command: TrashCommand,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    match command {
        TrashCommand::List(args) => list(&args, environment, output).await,
        TrashCommand::Restore(args) => restore::run(&args, environment, output).await,
        TrashCommand::Empty(args) => empty::run(&args, environment, output).await,
    }
}

fn connect(args: &DoorArgs, environment: &Environment) -> Result<TrashApi, CommandError> {
    let AdministratorsDoor {
        client,
        door,
        credentials,
    } = AdministratorsDoor::of(args, environment, "trash")?;
    Ok(TrashApi::new(client, door, credentials))
}

/// In the words of the storage element, which says what to do.
fn told(why: RemoteError) -> CommandError {
    match why {
        RemoteError::Refused { ref detail, .. } if !detail.is_empty() => CommandError::Remote {
            text: detail.trim_start_matches(": ").to_owned(),
            problem: Box::new(why.problem()),
        },
        RemoteError::NotFound { .. } => CommandError::NotFound(
            "that is not, or no longer, in the trash; `penstock trash list` shows its contents"
                .to_owned(),
        ),
        why => why.into(),
    }
}

/// The same of a question about the whole trash, which every storage element has.
fn told_of_whole(why: RemoteError) -> CommandError {
    match why {
        RemoteError::NotFound { what: url, .. } => CommandError::Usage(format!(
            "{url} does not exist, so that is not the door of a storage element; a transfer service has no trash, and \
             another port (`listen` of [storage] and [transfer] in penstock.toml)"
        )),
        why => told(why),
    }
}

/// Files of the trash, at most so many.
async fn all(
    trash: &TrashApi,
    within: Option<&NamespacePath>,
    limit: usize,
) -> Result<TrashListReport, CommandError> {
    let mut found = TrashListReport {
        kept_seconds: 0,
        issuer: None,
        files: Vec::new(),
        is_more: true,
    };
    let mut after: Option<String> = None;
    while found.is_more && found.files.len() < limit {
        let wanted = PAGE.min(limit - found.files.len());
        let page = trash.list(within, wanted, after.as_deref()).await;
        let page = page.map_err(told_of_whole)?;
        (found.kept_seconds, found.issuer) = (page.kept_seconds, page.issuer);
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
    let found = all(&trash, args.path.as_ref(), args.limit.get()).await?;
    output.show(&found, || list_text(&found));
    Ok(())
}

fn list_text(found: &TrashListReport) -> String {
    let columns = |id: &str, removed: &str, size: &str, by: &str, path: &str| {
        format!("{id:>8}  {removed:<20}  {size:>9}  {by:<12}  {path}\n")
    };
    // The path is last: it may hold whatever its owner likes.
    let line = |file: &TrashedInfo| {
        columns(
            &file.id,
            &utc(file.removed),
            &Bytes(file.size_bytes).to_string(),
            &by(file, found.issuer.as_deref()),
            &path_of(file),
        )
    };
    let mut text = match found.files.is_empty() {
        true => String::new(),
        false => columns("ID", "REMOVED (UTC)", "SIZE", "BY", "PATH"),
    };
    text.extend(found.files.iter().map(line));
    let bytes = Bytes(found.files.iter().map(|file| file.size_bytes).sum());
    let files = plural(found.files.len() as u64, "file");
    let kept = Span(Duration::from_secs(found.kept_seconds));
    text += &match (found.is_more, found.kept_seconds) {
        (true, _) => {
            format!("{files} ({bytes}) shown, there are more; raise --limit to see them\n")
        }
        (false, 0) => {
            format!("{files} ({bytes}); deleted files are not kept (storage.trash)\n")
        }
        (false, _) => format!(
            "{files} ({bytes}); deleted files are kept for {kept}, unless new files need the space\n"
        ),
    };
    text
}

fn utc(time: Timestamp) -> String {
    time.to_fts() + "Z"
}

fn path_of(file: &TrashedInfo) -> String {
    match &file.path {
        Some(path) => one_line(path).into_owned(),
        None => "(path unknown)".to_owned(),
    }
}

/// Who removed a file, in one word or two.
fn by(file: &TrashedInfo, own_issuer: Option<&str>) -> String {
    match &file.removed_by {
        Some(holder) => shown_holder(holder, own_issuer),
        None => "-".to_owned(),
    }
}

/// A holder's name: of a token its subject, with its issuer unless that is the site's own, so that nobody else's user looks
/// like one of this site.
fn shown_holder(holder: &str, own_issuer: Option<&str>) -> String {
    let of_own = own_issuer.and_then(|own| holder.strip_prefix(own)?.strip_prefix(' '));
    if let Some(subject) = of_own {
        return shown_name(subject);
    }
    match holder.split_once(' ') {
        // A certificate's subject begins with a slash, and may say anything behind it.
        Some((issuer, subject)) if !holder.starts_with('/') && issuer.contains("://") => {
            format!("{} ({})", shown_name(subject), shown_name(issuer))
        }
        Some(_) | None => shown_name(holder),
    }
}

/// In quotes where it could be taken for more than one word.
fn shown_name(name: &str) -> String {
    let mut short: String = name.chars().take(SUBJECT_CHARS_MAX).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    let is_plain = |character: char| character.is_alphanumeric() || "-_.@:/=+…".contains(character);
    match !short.is_empty() && short != "-" && short.chars().all(is_plain) {
        true => short,
        false => one_line(&format!("{short:?}")).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;

    pub(super) fn file(id: &str, path: &str, removed: i64) -> TrashedInfo {
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

    pub(super) fn path(text: &str) -> NamespacePath {
        NamespacePath::parse(text).expect("a path")
    }

    /// What is typed behind `penstock trash`.
    pub(super) fn parsed<'a>(words: impl IntoIterator<Item = &'a str>) -> TrashCommand {
        let line = ["penstock", "trash"].into_iter().chain(words);
        match Arguments::parse_from(line).command {
            Command::Trash(command) => command,
            other => panic!("{other:?}"),
        }
    }

    fn told_list(files: Vec<TrashedInfo>) -> TrashListReport {
        TrashListReport {
            kept_seconds: 86_400,
            issuer: Some("https://issuer".to_owned()),
            files,
            is_more: false,
        }
    }

    #[test]
    fn people_read_what_was_removed_when_and_by_whom() {
        let mut found = told_list(vec![file("1f", "/d/f", 1000), file("20", "/d/my g", 2000)]);
        found.files[1].removed_by = None;
        assert_eq!(
            list_text(&found),
            concat!(
                "      ID  REMOVED (UTC)              SIZE  BY            PATH\n",
                "      1f  1970-01-01T00:00:01Z     1.5 kB  alice         /d/f\n",
                "      20  1970-01-01T00:00:02Z     1.5 kB  -             /d/my g\n",
                "2 files (3.0 kB); deleted files are kept for 1d, unless new files need the space\n"
            )
        );
        found.files.truncate(1);
        found.is_more = true;
        let text = list_text(&found);
        assert!(
            text.ends_with("\n1 file (1.5 kB) shown, there are more; raise --limit to see them\n")
        );
        let none = list_text(&told_list(Vec::new()));
        assert!(none.starts_with("0 files (0 B);"), "{none}");
    }

    #[test]
    fn nobody_elses_user_looks_like_one_of_this_site() {
        let check = |holder: &str, expected: &str| {
            assert_eq!(shown_holder(holder, Some("https://issuer")), expected);
        };
        check("https://issuer alice", "alice");
        check("https://issuer2 alice", "alice (https://issuer2)");
        check("https://other alice", "alice (https://other)");
        check(
            "https://other bob  /data/f",
            "\"bob  /data/f\" (https://other)",
        );
        check(
            "https://other a\n1f\x1b[2K\u{202e}",
            "\"a\\n1f\\u{1b}[2K\\u{202e}\" (https://other)",
        );
        check("/DC=ch/CN=Alice Smith", "\"/DC=ch/CN=Alice Smith\"");
        check("/O=x://y alice", "\"/O=x://y alice\"");
        check("https://issuer -", "\"-\"");
        let long = shown_holder(&format!("https://other {}", "w".repeat(10_000)), None);
        assert_eq!(long, format!("{}… (https://other)", "w".repeat(64)));
        assert_eq!(
            shown_holder("https://issuer alice", None),
            "alice (https://issuer)"
        );
    }

    #[test]
    fn a_name_forges_no_line_of_the_list() {
        let found = told_list(vec![file("1f", "/d/f\u{2028}20  forged\x1b[1A", 1000)]);
        let text = list_text(&found);
        assert_eq!(text.lines().count(), 3);
        assert!(
            text.contains("/d/f\\u{2028}20  forged\\u{1b}[1A\n"),
            "{text}"
        );
    }
}
