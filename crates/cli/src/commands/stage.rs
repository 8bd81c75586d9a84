//! `penstock stage` and `release`: files are brought from tape, looked at meanwhile, and let go, by the WLCG Tape REST API of
//! whatever storage element has them.

mod requests;
mod waiting;

use self::requests::{Place, StagedFile, TokenReach, places_of};
use crate::args::{
    DoorArgs, FileListArgs, ReleaseArgs, StageArgs, StageCommand, StageRequestArgs, parse_url,
};
use crate::commands::access::{Access, own_door};
use crate::commands::batch_result::BatchResult;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::tape_rest::FILES_PER_REQUEST;
use penstock_model::text::{one_line, plural};
use penstock_model::{StageRequestId, Timestamp};
use penstock_protocol::tape::StageRequestStatus;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;
use url::Url;

/// Bytes of a list of files.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// Files of a list.
const LIST_FILES_MAX: usize = 1_000_000;
/// What a release names when its user names no request: none has this name.
const ANY_REQUEST: &str = "any";

/// `penstock stage`.
pub async fn run(
    args: StageArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    match args.command {
        Some(StageCommand::Status(args)) => status(&args, environment, output).await,
        Some(StageCommand::Cancel(args)) => cancel(&args, environment, output).await,
        None => stage(&args, environment, output).await,
    }
}

async fn stage(
    args: &StageArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let urls = listed(&args.files)?;
    let access = Access::open(&args.access, environment, 1)?;
    let mut results = BatchResult::new();
    let mut open = Vec::new();
    for place in places_of(&urls, &access, TokenReach::NamedFiles) {
        let place = match place.await {
            Ok(place) => place,
            Err((server, why)) => {
                results.add(server, Err(why));
                continue;
            }
        };
        for part in place.files.chunks(FILES_PER_REQUEST) {
            match place.stage(part, args.lifetime).await {
                Ok(request) => {
                    if args.wait {
                        output.say(request.name());
                    }
                    open.push(request);
                }
                Err(why) => results.add(&place.server, Err(why)),
            }
        }
    }
    let looked = match args.wait {
        true => waiting::for_end(&mut open, &access, output).await,
        // What cannot come at all is known at once.
        false => waiting::look_once(&mut open).await,
    };
    match looked {
        Err(why @ CommandError::Interrupted(_)) => return Err(why),
        // The requests are made all the same, and are named.
        Err(why) => results.add("the stage requests", Err(why)),
        Ok(()) => {}
    }
    let mut staged = 0;
    for request in &open {
        for file in request.staged() {
            let (name, outcome) = (file.url.clone(), file.outcome());
            staged += usize::from(outcome.is_ok());
            results.add(name, outcome);
        }
    }
    let is_waited_for = args.wait;
    let all = urls.len();
    results.conclude_as(
        output,
        |failed| match all - staged {
            0 => format!(
                "{failed} of {} could not be looked at",
                plural(open.len() as u64, "request")
            ),
            // Of a refused request, all files.
            failed => format!("{failed} of {} failed", plural(all as u64, "file")),
        },
        |_: &[StagedFile]| match is_waited_for {
            true => open.iter().map(requests::OpenRequest::summary).collect(),
            false => open.iter().map(|request| request.name() + "\n").collect(),
        },
    )
}

/// The files that were typed or listed, each once.
fn listed(files: &FileListArgs) -> Result<Vec<Url>, CommandError> {
    let mut urls = files.urls.clone();
    if let Some(path) = &files.list {
        let text = read_list(path)?;
        for (number, line) in (1_u64..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if urls.len() >= LIST_FILES_MAX {
                return Err(CommandError::Usage(format!(
                    "the list has more than {LIST_FILES_MAX} files; split it"
                )));
            }
            let url = parse_url(line).map_err(|why| {
                let shown: String = line.chars().take(100).collect();
                CommandError::Usage(format!("line {number}: '{shown}': {why}"))
            })?;
            urls.push(url);
        }
    }
    let mut seen = HashSet::new();
    urls.retain(|url| seen.insert(url.clone()));
    match (urls.is_empty(), &files.list) {
        (false, _) => Ok(urls),
        (true, Some(_)) => Err(CommandError::Usage(
            "the list is empty; each line is the URL of a file".to_owned(),
        )),
        (true, None) => Err(CommandError::Usage(
            "give at least one URL, or --from FILE".to_owned(),
        )),
    }
}

fn read_list(path: &Path) -> Result<String, CommandError> {
    let unreadable =
        |why| CommandError::Usage(format!("cannot read the list {}: {why}", path.display()));
    let mut text = String::new();
    match path.as_os_str() == "-" {
        true => std::io::stdin()
            .take(LIST_BYTES_MAX)
            .read_to_string(&mut text),
        false => std::fs::File::open(path)
            .and_then(|file| file.take(LIST_BYTES_MAX).read_to_string(&mut text)),
    }
    .map_err(unreadable)?;
    Ok(text)
}

/// The storage element at which a request was made, and its tape.
async fn named_place(args: &DoorArgs, environment: &Environment) -> Result<Place, CommandError> {
    let access = Access::open(&args.access, environment, 1)?;
    let door = own_door(args)?;
    Place::of_server(&door, &access).await
}

/// One request, as it is shown.
#[derive(Debug, Serialize)]
struct RequestReport {
    request: String,
    server: String,
    /// When all of it had its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<Timestamp>,
    /// When all of it will be on disk, as far as its storage element tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Timestamp>,
    files: Vec<StagedFile>,
}

impl RequestReport {
    fn of(place: &Place, id: &StageRequestId, status: StageRequestStatus) -> RequestReport {
        let files = status.files.into_iter();
        RequestReport {
            request: id.to_string(),
            server: place.server.clone(),
            completed: status.completed,
            expected: status.expected,
            files: files.map(|file| place.told(id, file)).collect(),
        }
    }

    fn text(&self) -> String {
        let on_disk = self.files.iter().filter(|file| file.on_disk).count();
        let all = plural(self.files.len() as u64, "file");
        let mut text = format!(
            "{} {}: {on_disk} of {all} brought to disk",
            self.request, self.server
        );
        if let Some(expected) = self.expected.filter(|_| self.completed.is_none()) {
            let _ = write!(text, ", all expected {}Z", expected.to_fts());
        }
        text.push('\n');
        for file in &self.files {
            let why = file.error.as_ref().or(file.waits_for.as_ref());
            let why = why.map(|why| format!(": {}", one_line(why)));
            let expected = file.expected.filter(|_| file.error.is_none());
            let expected = expected.map(|at| format!(" (expected {}Z)", at.to_fts()));
            let _ = writeln!(
                text,
                "  {:<9} {}{}{}",
                file.state,
                one_line(&file.url),
                expected.unwrap_or_default(),
                why.unwrap_or_default()
            );
        }
        text
    }
}

async fn status(
    args: &StageRequestArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let place = named_place(&args.door, environment).await?;
    let mut reports = BatchResult::new();
    for id in &args.ids {
        let found = place.tape.status(id).await;
        let report = found.map(|status| RequestReport::of(&place, id, status));
        reports.add(id, report.map_err(CommandError::from));
    }
    reports.conclude(output, |reports| {
        reports.iter().map(RequestReport::text).collect()
    })
}

async fn cancel(
    args: &StageRequestArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let place = named_place(&args.door, environment).await?;
    let mut canceled = BatchResult::new();
    for id in &args.ids {
        canceled.add(id, cancel_one(&place, id).await);
    }
    canceled.conclude(output, |_| String::new())
}

/// A request whose files are let go.
#[derive(Debug, Serialize)]
struct ReleaseReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    server: String,
    files: usize,
}

async fn cancel_one(place: &Place, id: &StageRequestId) -> Result<ReleaseReport, CommandError> {
    let paths = paths_of(place, id).await?;
    for part in paths.chunks(FILES_PER_REQUEST) {
        place.tape.cancel(id, part).await?;
    }
    Ok(ReleaseReport {
        request: Some(id.to_string()),
        server: place.server.clone(),
        files: paths.len(),
    })
}

/// All paths of a request, each once.
async fn paths_of(place: &Place, id: &StageRequestId) -> Result<Vec<String>, CommandError> {
    let status = place.tape.status(id).await?;
    let mut paths: Vec<String> = status.files.into_iter().map(|file| file.path).collect();
    paths.sort_unstable();
    paths.dedup();
    Ok(paths)
}

/// `penstock release`.
pub async fn release(
    args: ReleaseArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let is_whole_request = args.files.urls.is_empty() && args.files.list.is_none();
    if let Some(id) = args.request.as_ref().filter(|_| is_whole_request) {
        let place = named_place(&args.door, environment).await?;
        let paths = paths_of(&place, id).await?;
        let mut released = BatchResult::new();
        released.add(id, release_paths(&place, id, &paths).await);
        return released.conclude(output, |_| String::new());
    }
    if args.door.door.is_some() {
        let text = "leave out --door: each URL names its storage element";
        return Err(CommandError::Usage(text.to_owned()));
    }
    let urls = listed(&args.files)?;
    let access = Access::open(&args.door.access, environment, 1)?;
    let reach = match args.request {
        Some(_) => TokenReach::WholeRequest,
        None => TokenReach::NamedFiles,
    };
    let id = args.request.clone();
    let id = id.unwrap_or_else(|| StageRequestId::new(ANY_REQUEST));
    let mut released = BatchResult::new();
    for place in places_of(&urls, &access, reach) {
        let (server, outcome) = match place.await {
            Ok(place) => {
                let paths = place.files.iter().map(|file| file.path.clone());
                let paths: Vec<String> = paths.collect();
                let outcome = release_paths(&place, &id, &paths).await;
                (place.server, outcome)
            }
            Err((server, why)) => (server, Err(why)),
        };
        released.add(server, outcome);
    }
    released.conclude(output, |_| String::new())
}

async fn release_paths(
    place: &Place,
    id: &StageRequestId,
    paths: &[String],
) -> Result<ReleaseReport, CommandError> {
    for part in paths.chunks(FILES_PER_REQUEST) {
        place.tape.release(id, part).await?;
    }
    let is_named = id.as_str() != ANY_REQUEST;
    Ok(ReleaseReport {
        request: is_named.then(|| id.to_string()),
        server: place.server.clone(),
        files: paths.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_each_file_once_and_its_bad_lines() {
        let dir = tempfile::tempdir().expect("a directory");
        let list = dir.path().join("list");
        let check = |text: &str, expected: &str| {
            std::fs::write(&list, text).expect("written");
            let files = FileListArgs {
                urls: vec![Url::parse("https://se/a").expect("a URL")],
                list: Some(list.clone()),
            };
            let told = match listed(&files) {
                Ok(urls) => urls.iter().map(Url::as_str).collect::<Vec<_>>().join(" "),
                Err(why) => why.to_string(),
            };
            assert!(told.starts_with(expected), "{told}");
        };
        check(
            "# files\n\ndavs://se/b\nhttps://se/a\n",
            "https://se/a https://se/b",
        );
        check(
            "https://se/b\nroot://se//c\n",
            "line 2: 'root://se//c': scheme",
        );
        let none = FileListArgs {
            urls: Vec::new(),
            list: None,
        };
        let why = listed(&none).expect_err("nothing").to_string();
        assert!(why.contains("--from FILE"), "{why}");
    }
}
