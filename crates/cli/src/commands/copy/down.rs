//! From a storage element to here.

use super::report::{CopiedFile, IntendedFile, named};
use super::{Found, Order};
use crate::commands::access::Purpose;
use crate::commands::files::open;
use crate::commands::progress::shown;
use crate::exit::CommandError;
use penstock_field_tools::bulk_copy::{Download, download_all, look_at_downloads};
use penstock_field_tools::local_place::LocalPlace;
use penstock_field_tools::remote::Remote;
use penstock_field_tools::remote_error::RemoteError;
use penstock_field_tools::remote_tree::{self, RemoteTree};
use penstock_model::Bytes;
use penstock_model::url::redact;
use std::path::{Path, PathBuf};
use url::Url;

pub struct DownloadPlan {
    remote: Remote,
    pub(super) to: PathBuf,
    /// Below the destination, to be made, parents first. `None`: it is a single file.
    directories: Option<Vec<LocalPlace>>,
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
        directories: None,
        downloads: Vec::new(),
        found: Found::default(),
    };
    if found.is_directory {
        let tree = remote_tree::walk(&plan.remote, from, parallel, &order.filter).await?;
        plan.add_tree(tree);
        plan.refuse_links()?;
        return Ok(plan);
    }
    let into_directory = to.is_dir() || to.as_os_str().to_string_lossy().ends_with('/');
    let place = match into_directory {
        true => LocalPlace::below(to, &[found.name]),
        false => LocalPlace::at(to),
    };
    plan.downloads.push(Download {
        source: from.clone(),
        size: found.size_bytes,
        destination: place
            .ok_or_else(|| CommandError::Usage(format!("{} does not name a file", to.display())))?,
    });
    Ok(plan)
}

impl DownloadPlan {
    fn add_tree(&mut self, mut tree: RemoteTree) {
        self.found = Found::take(&mut tree);
        let directories = tree.directories.iter();
        let place = |names: &[String]| LocalPlace::below(&self.to, names);
        let directories = directories.filter_map(|directory| place(&directory.names));
        self.directories = Some(directories.collect());
        for file in tree.files {
            match place(&file.names) {
                Some(destination) => self.downloads.push(Download {
                    destination,
                    source: file.url,
                    size: file.size,
                }),
                None => {
                    let name = redact(file.url.as_str());
                    let why = format!("the server lists {name} as a file and as a directory");
                    let failed = CopiedFile::failed(name, CommandError::Unreachable(why));
                    self.found.failed.push(failed);
                }
            }
        }
    }

    /// A link in the place of a directory may lead anywhere, so nothing is copied through it.
    fn refuse_links(&self) -> Result<(), CommandError> {
        for directory in self.directories.iter().flatten() {
            if let Ok(Some(found)) = directory.look()
                && found.is_symlink()
            {
                return Err(CommandError::Local(format!(
                    "{} is a symbolic link, and the source has a directory of that name; nothing was changed. Remove the link, \
                     or leave it out with --exclude and copy that directory to where the link points",
                    directory.path().display()
                )));
            }
        }
        Ok(())
    }

    pub(super) async fn carry_out(
        self,
        order: &Order<'_>,
    ) -> Result<Vec<CopiedFile>, CommandError> {
        let mut files = Vec::new();
        if let Some(directories) = &self.directories {
            std::fs::create_dir_all(&self.to)
                .map_err(|why| CommandError::local(self.to.display(), why))?;
            for directory in directories {
                if let Err(why) = directory.make_directory() {
                    let name = directory.path().display().to_string();
                    let why = CommandError::local(&name, why);
                    files.push(CopiedFile::failed(name, why));
                }
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
    download.destination.path().display().to_string()
}
