//! From here to a storage element.

use super::report::{CopiedFile, IntendedFile, named};
use super::{Found, Order, TreeNames, make_directories, place_of_file};
use crate::commands::access::Purpose;
use crate::commands::files::open;
use crate::commands::progress::shown;
use crate::exit::CommandError;
use penstock_field_tools::bulk_copy::{Source, Upload, look_at_uploads, upload_all};
use penstock_field_tools::local_source::LocalSource;
use penstock_field_tools::local_tree::{self, LocalTree, WalkError};
use penstock_field_tools::remote::{Remote, below, parent};
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::Bytes;
use penstock_model::url::redact;
use std::path::Path;
use url::Url;

pub struct UploadPlan {
    pub(super) remote: Remote,
    pub(super) to: Url,
    is_tree: bool,
    directories: Vec<Vec<String>>,
    uploads: Vec<Upload>,
    pub(super) found: Found,
}

pub(super) async fn find(
    from: &Path,
    to: &Url,
    order: &Order<'_>,
) -> Result<UploadPlan, CommandError> {
    let metadata = std::fs::metadata(from).map_err(|why| match why.kind() {
        std::io::ErrorKind::NotFound => {
            CommandError::NotFound(format!("{} does not exist", from.display()))
        }
        _ => CommandError::local(from.display(), why),
    })?;
    let access = &order.bulk.access;
    let urls = std::slice::from_ref(to);
    let remote = open(
        urls,
        Purpose::Modify,
        access,
        order.environment,
        order.parallel(),
    )?;
    let mut plan = UploadPlan {
        remote,
        to: to.clone(),
        is_tree: metadata.is_dir(),
        directories: Vec::new(),
        uploads: Vec::new(),
        found: Found::default(),
    };
    if metadata.is_dir() {
        let tree = local_tree::walk(from, &order.filter);
        plan.add_tree(tree.map_err(|why| CommandError::Local(why.to_string()))?);
        return Ok(plan);
    }
    if !metadata.is_file() {
        return Err(CommandError::Usage(format!(
            "{} is neither a file nor a directory",
            from.display()
        )));
    }
    let name = from.file_name().unwrap_or_default();
    let name = local_tree::valid_name(name, from);
    let name = name.map_err(|why| CommandError::Usage(why.to_string()))?;
    let source = LocalSource::named(from);
    let source = source.map_err(|why| CommandError::local(from.display(), why))?;
    plan.uploads.push(Upload {
        size: source.size(),
        source: Source::File(source),
        destination: place_of_file(&plan.remote, to, name).await?,
    });
    Ok(plan)
}

/// Why a part of a tree is missing, as a file that was not copied.
pub(super) fn not_walked(why: &WalkError) -> CopiedFile {
    let name = local_tree::shown(why.path());
    let text = why.to_string();
    let error = match why {
        WalkError::NotUtf8(_) | WalkError::Name { .. } => CommandError::Usage(text),
        WalkError::Unreadable { .. } | WalkError::TooLarge(_) => CommandError::Local(text),
    };
    CopiedFile::failed(name, error)
}

impl UploadPlan {
    fn add_tree(&mut self, tree: LocalTree) {
        self.found.failed = tree.problems.iter().map(not_walked).collect();
        let special = tree.left_out.iter().map(|left_out| left_out.names.clone());
        self.found.tree = Some(TreeNames {
            directories: tree.directories.iter().cloned().collect(),
            files: tree.files.iter().map(|file| file.names.clone()).collect(),
            special: special.chain(tree.passed_over).collect(),
        });
        for file in tree.files {
            match below(&self.to, &file.names) {
                Ok(destination) => self.uploads.push(Upload {
                    size: file.source.size(),
                    source: Source::File(file.source),
                    destination,
                }),
                Err(why) => {
                    let name = local_tree::shown(file.source.path());
                    self.found.failed.push(CopiedFile::failed(name, why.into()));
                }
            }
        }
        self.found.left_out = tree.left_out.into_iter().map(Into::into).collect();
        self.directories = tree.directories;
    }

    pub(super) async fn carry_out(
        self,
        order: &Order<'_>,
    ) -> Result<Vec<CopiedFile>, CommandError> {
        let mut files = match self.is_tree {
            true => make_directories(&self.remote, &self.to, self.directories).await?,
            false => {
                for upload in &self.uploads {
                    make_parents(&self.remote, &upload.destination).await;
                }
                Vec::new()
            }
        };
        let names = self.uploads.iter().map(name_of).collect();
        let copying = upload_all(&self.remote, self.uploads, order.options(), &order.progress);
        let outcomes = shown(&order.progress, order.output, copying).await;
        files.extend(named(names, outcomes));
        Ok(files)
    }

    pub(super) async fn look(self, order: &Order<'_>) -> Vec<IntendedFile> {
        let known: Vec<(String, Bytes)> = self
            .uploads
            .iter()
            .map(|upload| (name_of(upload), upload.size))
            .collect();
        let looking = look_at_uploads(&self.remote, self.uploads, order.options(), &order.progress);
        let intentions = shown(&order.progress, order.output, looking).await;
        let file =
            |((name, size), intention): ((String, Bytes), Result<_, RemoteError>)| IntendedFile {
                name,
                size: Some(size),
                intention: intention.map_err(CommandError::from),
            };
        known.into_iter().zip(intentions).map(file).collect()
    }
}

fn name_of(upload: &Upload) -> String {
    redact(upload.destination.as_str())
}

/// Many storage elements make parents themselves, and a narrow token may not allow it here: the upload tells.
async fn make_parents(remote: &Remote, destination: &Url) {
    let Some(above) = parent(destination) else {
        return;
    };
    if let Err(why) = remote.make_directories(&above).await {
        tracing::debug!(%why, "parents were not made");
    }
}
