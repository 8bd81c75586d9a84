//! `sync` to a storage element: what is there, and removing it. Hours may lie between the two, and others write there: only
//! what is still as it was listed is removed, and a directory only by a server that leaves what came into it.

use super::{Extras, Failed, REMOVALS};
use crate::commands::copy::{Order, TreeNames, VersionThere};
use crate::exit::CommandError;
use penstock_field_tools::bulk_copy::each_of;
use penstock_field_tools::remote::{Info, Remote, below};
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::remote_tree;
use penstock_field_tools::unfinished_downloads::is_part_name;
use penstock_model::text::plural;
use penstock_model::url::redact;
use std::collections::{BTreeMap, BTreeSet};
use url::Url;

/// What a storage element has listed.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub names: TreeNames,
    /// How each file was then.
    files: Files,
}

type Files = BTreeMap<Vec<String>, Info>;

/// What is to be removed.
#[derive(Debug, Default)]
pub(super) struct ListedExtras {
    pub extras: Extras,
    files: Files,
}

impl ListedExtras {
    /// Errors: something to be removed is a file of the source, found by another URL.
    pub fn refuse_files_of(&self, source: &BTreeSet<VersionThere>) -> Result<(), CommandError> {
        let is_of_source =
            |info: &&Info| VersionThere::of(info).is_some_and(|version| source.contains(&version));
        match self.files.values().find(is_of_source) {
            None => Ok(()),
            Some(info) => Err(CommandError::Usage(format!(
                "{} would be removed, but it has the name, size, time and version of a file of the source: both URLs may lead \
                 to the same server; nothing was changed",
                redact(&info.url)
            ))),
        }
    }
}

/// Why something is still there.
enum NotRemoved {
    /// Somebody else was faster.
    Gone,
    Failed(CommandError),
}

impl From<RemoteError> for NotRemoved {
    fn from(why: RemoteError) -> NotRemoved {
        match why {
            RemoteError::NotFound { .. } => NotRemoved::Gone,
            why => NotRemoved::Failed(why.into()),
        }
    }
}

/// Everything at the destination that the filter takes.
pub(super) async fn list(
    remote: &Remote,
    top: &Url,
    order: &Order<'_>,
) -> Result<Listed, CommandError> {
    let parallel = usize::from(order.bulk.parallel);
    let tree = match remote_tree::walk(remote, top, parallel, &order.filter).await {
        Ok(tree) => tree,
        Err(RemoteError::NotFound { .. }) => return Ok(Listed::default()),
        Err(why) => return Err(why.into()),
    };
    if let Some(why) = tree.problems.into_iter().next() {
        return Err(why.into());
    }
    if tree.files.iter().any(|file| file.names.is_empty()) {
        return Err(CommandError::Usage(format!("{top} is a file")));
    }
    // What has the name of a part of a download is no copy, here as at the source.
    let is_part = |names: &[String]| names.iter().any(|name| is_part_name(name));
    let directories = tree.directories.into_iter();
    let directories = directories.filter(|found| !is_part(&found.names));
    let files = tree.files.into_iter();
    let files = files.filter(|file| !is_part(&file.names));
    let files: Files = files.map(|file| (file.names, file.info)).collect();
    Ok(Listed {
        names: TreeNames {
            directories: directories.map(|found| found.names).collect(),
            files: files.keys().cloned().collect(),
            special: BTreeSet::new(),
        },
        files,
    })
}

/// What is there and not at the source, of what this server can remove without removing more.
pub(super) async fn find_extras(
    source: &TreeNames,
    remote: &Remote,
    top: &Url,
    order: &Order<'_>,
) -> Result<ListedExtras, CommandError> {
    let Listed { names, mut files } = list(remote, top, order).await?;
    let mut extras = super::extras_of(source, names);
    files.retain(|names, _| extras.files.contains(names));
    if !extras.directories.is_empty() && !remote.removes_only_empty(top).await.unwrap_or(false) {
        order.output.say(format!(
            "{} that the source does not have will stay, because this server cannot remove a directory without everything in \
             it",
            match extras.directories.len() {
                1 => "1 directory".to_owned(),
                count => format!("{count} directories"),
            }
        ));
        extras.directories.clear();
    }
    Ok(ListedExtras { extras, files })
}

/// Finds each copy under the name that it has at the source. Where one is missing nothing may be removed: some servers fold
/// case or write accents in another way, and what seems not to be at the source may be the copy of it.
pub(super) async fn find_copies(
    source: &TreeNames,
    remote: &Remote,
    top: &Url,
    order: &Order<'_>,
) -> Result<(), CommandError> {
    let Listed { names: now, .. } = list(remote, top, order).await?;
    let files = source.files.difference(&now.files);
    let directories = source.directories.difference(&now.directories);
    let missing: Vec<&Vec<String>> = files.chain(directories).collect();
    let Some(first) = missing.first() else {
        return Ok(());
    };
    Err(CommandError::SomeFailed(format!(
        "nothing was removed at {}: it lists {} of the source in another way or not at all, for example '{}', so a name that \
         the source does not have may be that of a copy",
        redact(top.as_str()),
        plural(missing.len() as u64, "name"),
        first.join("/")
    )))
}

/// Removes files, then directories that are empty by then. Gives back how many files went, and what did not.
pub(super) async fn remove(
    ListedExtras { extras, files }: ListedExtras,
    remote: &Remote,
    top: &Url,
) -> (usize, Failed) {
    let mut failed = Vec::new();
    let mut removed = 0;
    let (removing, at) = (remote.clone(), top.clone());
    let outcomes = each_of(
        files.into_iter().collect(),
        REMOVALS,
        move |(names, listed)| {
            let (remote, top) = (removing.clone(), at.clone());
            async move {
                let gone = remove_as_listed(&remote, &top, &names, &listed).await;
                (names, gone)
            }
        },
    )
    .await;
    for (names, outcome) in outcomes {
        match outcome {
            Ok(()) => removed += 1,
            Err(NotRemoved::Gone) => {}
            Err(NotRemoved::Failed(why)) => failed.push((names.join("/"), why)),
        }
    }
    for names in extras.directories {
        let gone = match below(top, &names) {
            // One that holds anything stays, as what a filter leaves out does.
            Ok(url) => remote.delete_empty_directory(&url).await.map(drop),
            Err(why) => Err(why),
        };
        match gone.map_err(NotRemoved::from) {
            Ok(()) | Err(NotRemoved::Gone) => {}
            Err(NotRemoved::Failed(why)) => failed.push((names.join("/"), why)),
        }
    }
    (removed, failed)
}

/// Looks again, and removes the file if it is still what was listed.
async fn remove_as_listed(
    remote: &Remote,
    top: &Url,
    names: &[String],
    listed: &Info,
) -> Result<(), NotRemoved> {
    let url = below(top, names)?;
    let shown = redact(url.as_str());
    let failed = |text| NotRemoved::Failed(CommandError::SomeFailed(text));
    let changed = || {
        failed(format!(
            "{shown} has changed since it was listed, so it was not removed"
        ))
    };
    let now = remote.stat(&url).await?;
    if !listed.is_same_file(&now) {
        return Err(changed());
    }
    if let Some(why) = listed.why_not_distinct() {
        return Err(failed(format!("{shown} was not removed: {why}")));
    }
    match remote.delete_version(&url, now.etag.as_deref()).await {
        Err(why) if why.status() == Some(http::StatusCode::PRECONDITION_FAILED) => Err(changed()),
        outcome => Ok(outcome?),
    }
}
