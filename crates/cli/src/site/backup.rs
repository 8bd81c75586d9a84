//! Backups of what the roles of a site remember: where each is read from, what is told of one, and the schedule of those
//! that a running site makes of itself.

mod schedule;

pub use schedule::{BackupMeter, Schedule};

use crate::exit::CommandError;
use crate::site::config::{Config, DatabasePlace, Storage, Transfer};
use crate::site::directory::SiteDirectory;
use crate::site::store;
use penstock_clock::wall_clock;
use penstock_model::{Bytes, Timestamp};
use penstock_persistence::backup::{BackupContent, BackupFacts, BackupOf, JournalLocation};
use serde::Serialize;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

/// The name of the configuration in a backup.
pub const CONFIGURATION: &str = "penstock.toml";

/// What is told of a backup, for programs.
#[derive(Debug, Serialize)]
pub struct BackupReport {
    file: String,
    /// When it was begun, in milliseconds since 1970.
    at: i64,
    #[serde(flatten)]
    content: ContentReport,
    files: Vec<String>,
    size_bytes: u64,
    sha256: String,
    /// The manifest that lists it. None: there is none.
    manifest: Option<String>,
    /// Where it was put back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored_to: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set_aside: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ContentReport {
    Record {
        /// The last entry of the ledger in it.
        sequence: u64,
        jobs: u64,
        jobs_open: u64,
        transfers: u64,
        delegations: u64,
    },
    Namespace {
        namespace: String,
        directories: u64,
        stored_files: u64,
        stored_bytes: u64,
    },
}

impl BackupReport {
    pub fn of(file: &Path, facts: BackupFacts, manifest: Option<&Path>) -> BackupReport {
        let content = match facts.content {
            BackupContent::Record(record) => ContentReport::Record {
                sequence: record.sequence,
                jobs: record.jobs,
                jobs_open: record.jobs_open,
                transfers: record.transfers,
                delegations: record.delegations,
            },
            BackupContent::Namespace(held) => ContentReport::Namespace {
                namespace: held.namespace.to_string(),
                directories: held.directories,
                stored_files: held.files,
                stored_bytes: held.bytes.0,
            },
        };
        BackupReport {
            file: file.display().to_string(),
            at: facts.at.0,
            content,
            files: facts.files,
            size_bytes: facts.size_bytes,
            sha256: facts.sha256,
            manifest: manifest.map(|path| path.display().to_string()),
            restored_to: None,
            set_aside: Vec::new(),
        }
    }

    pub fn text(&self, what: &str) -> String {
        let (file, size) = (&self.file, Bytes(self.size_bytes));
        let (at, files) = (Timestamp(self.at).to_fts(), self.files.join(", "));
        let mut text = match &self.content {
            ContentReport::Record {
                sequence,
                jobs,
                jobs_open,
                transfers,
                delegations,
            } => format!(
                "{what} {file}: {size}, as of {at}Z, up to entry {sequence}\n  {jobs} jobs ({jobs_open} open) with \
                 {transfers} files, {delegations} delegated credentials, {files}\n"
            ),
            ContentReport::Namespace {
                namespace,
                directories,
                stored_files,
                stored_bytes,
            } => format!(
                "{what} {file}: {size}, as of {at}Z, namespace {namespace}\n  {stored_files} files ({}) in {directories} \
                 directories, {files}\n",
                Bytes(*stored_bytes)
            ),
        };
        text += &match &self.manifest {
            Some(manifest) => format!("  SHA-256 as in {manifest}\n"),
            None => {
                "  no manifest: made by an older version, or interrupted; damage may go unnoticed\n"
                    .to_owned()
            }
        };
        if let Some(place) = &self.restored_to {
            text += &format!("  restored to {place}\n");
        }
        for aside in &self.set_aside {
            text += &format!("  the previous data is kept as {aside}\n");
        }
        text
    }
}

/// The namespace, and the configuration that tells where its pools are.
pub fn namespace_source(
    site: &SiteDirectory,
    storage: &Storage,
    bytes_per_second: u64,
) -> Result<BackupOf, CommandError> {
    let database = site.resolve(&storage.namespace);
    if !database.exists() {
        return Err(CommandError::NotFound(format!(
            "{} does not exist: this site was never started; use --only transfer to omit the namespace",
            database.display()
        )));
    }
    let path = site.config_file();
    let text = std::fs::read(&path).map_err(|why| CommandError::local(path.display(), why))?;
    Ok(BackupOf {
        kept: JournalLocation::Namespace(database),
        files: vec![(CONFIGURATION.to_owned(), text)],
        positions: Vec::new(),
        at: wall_clock(),
        bytes_per_second,
        stopped: Arc::default(),
    })
}

pub fn transfer<'a>(
    site: &SiteDirectory,
    config: &'a Config,
) -> Result<&'a Transfer, CommandError> {
    config.transfer.as_ref().ok_or_else(|| {
        CommandError::Usage(format!(
            "{} has no [transfer] section to back up",
            site.config_file().display()
        ))
    })
}

/// What the service keeps its record in.
pub fn kept(
    site: &SiteDirectory,
    transfer: &Transfer,
    pass_file: Option<&Path>,
) -> Result<JournalLocation, CommandError> {
    match (
        store::database(site, transfer, pass_file)?,
        &transfer.database,
    ) {
        (None, DatabasePlace::File(path)) => Ok(JournalLocation::Files {
            journal: site.resolve(path),
            delegations: site.resolve(&transfer.delegations),
        }),
        (Some(database), _) => Ok(JournalLocation::Postgres(Box::new(database))),
        (None, DatabasePlace::Postgres(_)) => Err(CommandError::Usage(format!(
            "transfer.database = '{}' cannot be used",
            String::from(transfer.database.without_password())
        ))),
    }
}

pub fn source(
    site: &SiteDirectory,
    config: &Config,
    pass_file: Option<&Path>,
    keys: Option<&str>,
    bytes_per_second: u64,
) -> Result<BackupOf, CommandError> {
    let transfer = transfer(site, config)?;
    let read =
        |path: &Path| std::fs::read(path).map_err(|why| CommandError::local(path.display(), why));
    let mut files = vec![(CONFIGURATION.to_owned(), read(&site.config_file())?)];
    if let Some(name) = keys {
        files.push((
            name.to_owned(),
            read(&site.resolve(&transfer.credential_keys))?,
        ));
    }
    let positions = site.resolve(&transfer.message_positions);
    let taken = |name: &str| {
        let text = std::fs::read_to_string(positions.join(name)).ok()?;
        Some((name.to_owned(), text.trim().parse().ok()?))
    };
    Ok(BackupOf {
        kept: kept(site, transfer, pass_file)?,
        files,
        positions: transfer
            .messages
            .iter()
            .filter_map(|sink| taken(&sink.name))
            .collect(),
        at: wall_clock(),
        bytes_per_second,
        stopped: Arc::default(),
    })
}

pub fn make_directory(path: &Path) -> Result<(), CommandError> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|why| CommandError::local(path.display(), why))
}
