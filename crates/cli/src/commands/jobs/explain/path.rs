//! `penstock explain path PATH`: the story of a path of a storage element, from a service whose site runs it, or from the
//! record in a site's directory.

use super::super::record_choice::{json, known_to_service, times, window};
use super::super::{Intent, connect};
use crate::args::{RecordArgs, ServiceArgs};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::directory::SiteDirectory;
use crate::site::path_story::PathSource;
use penstock_model::path::InvalidPath;
use penstock_model::text::one_line;
use penstock_model::{NamespacePath, TimeWindow};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use url::Url;

/// The window whose end alone is named.
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Tells it. A site without a transfer service is asked by its directory.
pub(super) async fn tell(
    args: &RecordArgs,
    path: &NamespacePath,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let window = window(args, WEEK)?;
    let directory = match args.service.access.dir.as_deref() {
        Some(directory) if args.offline || !has_service(directory)? => Some(directory),
        None if args.offline => {
            return Err(CommandError::Usage("--offline needs --dir".into()));
        }
        Some(_) | None => None,
    };
    let told = match directory {
        Some(directory) => from_directory(directory, path, window)?,
        None => {
            let service = connect(&args.service, Intent::Manage, environment)?;
            let times = times(args, window, None);
            let told = service.path_story(&path.to_string(), &times).await;
            known_to_service(told, || {
                CommandError::NotInRecord(
                    "the site of this service has no storage element; ask the site that has the path".into(),
                )
            })?
        }
    };
    let is_unknown = ["entry", "changes", "attempts"].iter().all(|key| {
        let known = told.get(key);
        known.is_none_or(|known| known.as_array().is_some_and(Vec::is_empty))
    });
    let text = told.get("text").and_then(Value::as_str).unwrap_or_default();
    let text: String = text
        .lines()
        .map(|line| format!("{}\n", one_line(line)))
        .collect();
    if is_unknown {
        return Err(CommandError::NotInRecord(text.trim_end().to_owned()));
    }
    output.show(&told, || text);
    Ok(())
}

fn from_directory(
    directory: &Path,
    path: &NamespacePath,
    window: Option<TimeWindow>,
) -> Result<Value, CommandError> {
    let site = SiteDirectory::at(directory)?;
    let config = site.config()?;
    let source = PathSource::of(&site, &config, None).ok_or_else(|| {
        CommandError::Usage("this site has no [storage] section, so it has no paths".into())
    })?;
    let story = source.story(path, window);
    json(&story.map_err(|why| CommandError::Local(why.to_string()))?)
}

fn has_service(directory: &Path) -> Result<bool, CommandError> {
    let config = SiteDirectory::at(directory)?.config()?;
    Ok(config.transfer.is_some())
}

/// The path of an address, if it is one of the storage element of the site at `--dir`.
pub(super) fn own_path(
    args: &ServiceArgs,
    address: &str,
) -> Result<Result<Option<NamespacePath>, InvalidPath>, CommandError> {
    let (Some(directory), Ok(url)) = (&args.access.dir, Url::parse(address)) else {
        return Ok(Ok(None));
    };
    let config = SiteDirectory::at(directory)?.config()?;
    let door = config.door_url().and_then(|door| Url::parse(&door).ok());
    let is_own = door.is_some_and(|door| {
        let is_host = config
            .site
            .hosts
            .iter()
            .any(|host| url.host_str() == Some(host));
        is_host && url.port_or_known_default() == door.port_or_known_default()
    });
    Ok(match is_own {
        true => NamespacePath::from_encoded(url.path()).map(Some),
        false => Ok(None),
    })
}
