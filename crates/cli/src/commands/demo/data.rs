//! The data set of a demo: a given directory, or one made up.

use crate::args::DemoArgs;
use crate::exit::CommandError;
use penstock_field_tools::bulk_copy::{Source, Upload};
use penstock_field_tools::dataset::{self, Request};
use penstock_field_tools::local_tree;
use penstock_field_tools::path_filter::PathFilter;
use penstock_field_tools::remote::below;
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::Bytes;
use std::collections::BTreeSet;
use std::path::Path;
use url::Url;

/// Same demo, same data, so that two runs can be compared.
const SEED: u64 = 2006;
/// What both sites need beside the data: databases, and what file systems keep free.
const SPACE_MARGIN: u64 = 512 << 20;

/// The data set.
pub struct DemoData {
    /// Directories, parents before children, as names.
    pub directories: Vec<Vec<String>>,
    pub files: Vec<DemoFile>,
}

/// One file of the data set.
pub struct DemoFile {
    /// Its path as names.
    pub names: Vec<String>,
    pub size: Bytes,
    source: Source,
}

impl DemoData {
    /// As the options ask.
    pub fn choose(args: &DemoArgs) -> Result<DemoData, CommandError> {
        match &args.data {
            Some(directory) => DemoData::from_directory(directory),
            None => DemoData::generate(args),
        }
    }

    fn from_directory(directory: &Path) -> Result<DemoData, CommandError> {
        let unusable = |why: local_tree::WalkError| CommandError::Local(why.to_string());
        let tree = local_tree::walk(directory, &PathFilter::default()).map_err(unusable)?;
        if let Some(why) = tree.problems.into_iter().next() {
            return Err(unusable(why));
        }
        if tree.files.is_empty() {
            return Err(CommandError::Usage(format!(
                "{} has no files",
                directory.display()
            )));
        }
        let file = |file: local_tree::LocalFile| DemoFile {
            size: file.source.size(),
            source: Source::File(file.source),
            names: file.names,
        };
        Ok(DemoData {
            directories: tree.directories,
            files: tree.files.into_iter().map(file).collect(),
        })
    }

    fn generate(args: &DemoArgs) -> Result<DemoData, CommandError> {
        let request = Request {
            files: args.files,
            total: Bytes(args.size.0),
            seed: SEED,
        };
        let planned = dataset::plan(request).map_err(|why| CommandError::Usage(why.to_string()))?;
        let files: Vec<DemoFile> = planned
            .into_iter()
            .map(|plan| DemoFile {
                names: plan.name.split('/').map(str::to_owned).collect(),
                size: plan.size,
                source: Source::Generated(plan),
            })
            .collect();
        let parents: BTreeSet<&[String]> = files
            .iter()
            .filter_map(|file| Some(file.names.split_last()?.1))
            .collect();
        let directories = parents.into_iter().map(<[String]>::to_vec).collect();
        Ok(DemoData { directories, files })
    }

    pub fn total(&self) -> Bytes {
        Bytes(self.files.iter().map(|file| file.size.0).sum())
    }

    /// Every file, to be written below `directory`.
    pub fn uploads(&self, directory: &Url) -> Result<Vec<Upload>, RemoteError> {
        let upload = |file: &DemoFile| {
            Ok(Upload {
                source: file.source.clone(),
                size: file.size,
                destination: below(directory, &file.names)?,
            })
        };
        self.files.iter().map(upload).collect()
    }
}

/// Refuses to fill the disk: the sites keep so many copies of the data.
pub fn check_space(temporary: &Path, data: Bytes, copies: u64) -> Result<(), CommandError> {
    let space = rustix::fs::statvfs(temporary)
        .map_err(|why| CommandError::local(temporary.display(), why))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let needed = data.0.saturating_mul(copies);
    let needed = needed.saturating_add(SPACE_MARGIN);
    match free >= needed {
        true => Ok(()),
        false => Err(CommandError::Local(format!(
            "{} has {} free, but {copies} copies of {data} need {}; give a smaller --size, \
             or set TMPDIR to a larger disk",
            temporary.display(),
            Bytes(free),
            Bytes(needed)
        ))),
    }
}
