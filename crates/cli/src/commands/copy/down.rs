//! From a storage element to here.

use super::report::{CopiedFile, IntendedFile, named};
use super::{Found, Order};
use crate::commands::access::Purpose;
use crate::commands::files::open;
use crate::commands::progress::shown;
use crate::exit::CommandError;
use penstock_field_tools::bulk_copy::{Download, download_all, look_at_downloads};
use penstock_field_tools::remote::Remote;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::remote_tree::{self, RemoteTree};
use penstock_model::Bytes;
use std::path::{Path, PathBuf};
use url::Url;

pub struct DownloadPlan {
    remote: Remote,
    pub(super) to: PathBuf,
    /// To be made, parents first.
    directories: Vec<PathBuf>,
    downloads: Vec<Download>,
    pub(super) found: Found,
}

pub(super) async fn find(
    from: &Url,
    to: &Path,
    order: &Order<'_>,
) -> Result<DownloadPlan, CommandError> {
    let (access, parallel) = (&order.bulk.access, order.parallel());
    let urls = std::slice::from_ref(from);
    let remote = open(urls, Purpose::Read, access, order.environment, parallel)?;
    let found = remote.stat(from).await?;
    let mut plan = DownloadPlan {
        remote,
        to: to.to_owned(),
        directories: Vec::new(),
        downloads: Vec::new(),
        found: Found::default(),
    };
    if found.is_directory {
        let tree = remote_tree::walk(&plan.remote, from, parallel, &order.filter).await?;
        plan.add_tree(tree);
        return Ok(plan);
    }
    let into_directory = to.is_dir() || to.as_os_str().to_string_lossy().ends_with('/');
    plan.downloads.push(Download {
        source: from.clone(),
        size: found.size_bytes,
        destination: match into_directory {
            true => to.join(&found.name),
            false => to.to_owned(),
        },
    });
    Ok(plan)
}

impl DownloadPlan {
    fn add_tree(&mut self, tree: RemoteTree) {
        self.found = Found::of(&tree);
        let place = |names: &[String]| self.to.join(names.iter().collect::<PathBuf>());
        let below = tree.directories.iter();
        let below = below.map(|directory| place(&directory.names));
        self.directories = [self.to.clone()].into_iter().chain(below).collect();
        let download = |file: remote_tree::RemoteFile| Download {
            destination: place(&file.names),
            source: file.url,
            size: file.size,
        };
        self.downloads = tree.files.into_iter().map(download).collect();
    }

    pub(super) async fn carry_out(
        self,
        order: &Order<'_>,
    ) -> Result<Vec<CopiedFile>, CommandError> {
        let mut files = Vec::new();
        for directory in &self.directories {
            if let Err(why) = std::fs::create_dir_all(directory) {
                let why = CommandError::local(directory.display(), why);
                if *directory == self.to {
                    return Err(why);
                }
                files.push(CopiedFile::failed(directory.display().to_string(), why));
            }
        }
        let names = self.downloads.iter().map(name_of).collect();
        let copying = download_all(
            &self.remote,
            self.downloads,
            order.options(),
            &order.progress,
        );
        let outcomes = shown(&order.progress, order.output, copying).await;
        files.extend(named(names, outcomes));
        Ok(files)
    }

    pub(super) async fn look(self, order: &Order<'_>) -> Vec<IntendedFile> {
        let known: Vec<(String, Option<Bytes>)> = self
            .downloads
            .iter()
            .map(|download| (name_of(download), download.size))
            .collect();
        let (options, progress) = (order.options(), &order.progress);
        let looking = look_at_downloads(&self.remote, self.downloads, options, progress);
        let intentions = shown(progress, order.output, looking).await;
        let file =
            |((name, size), intention): ((String, _), Result<_, RemoteError>)| IntendedFile {
                name,
                size,
                intention: intention.map_err(CommandError::from),
            };
        known.into_iter().zip(intentions).map(file).collect()
    }
}

fn name_of(download: &Download) -> String {
    download.destination.display().to_string()
}
