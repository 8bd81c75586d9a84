//! A site directory: where each thing of a site lies on disk, and the lock that one running `serve` holds.

use crate::exit::CommandError;
use crate::site::config::{Config, ConfigError, Storage};
use crate::site::ownership::refuse_root_for_others;
use penstock_model::PoolName;
use penstock_storage_element::PoolRoot;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The directory that `penstock init` makes.
#[derive(Debug, Clone)]
pub struct SiteDirectory {
    root: PathBuf,
}

impl SiteDirectory {
    /// Names a directory, which need not exist. Made absolute, so that messages and URLs say which one is
    /// meant.
    pub fn at(path: &Path) -> Result<SiteDirectory, CommandError> {
        let root =
            std::path::absolute(path).map_err(|why| CommandError::local(path.display(), why))?;
        Ok(SiteDirectory { root })
    }

    /// Names a directory in which something will be changed. Errors: root would leave files there that its service cannot read.
    pub fn to_change(path: &Path) -> Result<SiteDirectory, CommandError> {
        let site = SiteDirectory::at(path)?;
        refuse_root_for_others(&site.root)?;
        Ok(site)
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A path of the configuration: relative ones are relative to the directory.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    /// `penstock.toml`.
    pub fn config_file(&self) -> PathBuf {
        self.root.join("penstock.toml")
    }

    /// The private CA's directory.
    pub fn ca(&self) -> PathBuf {
        self.root.join("ca")
    }

    /// The private CA's certificate.
    pub fn ca_certificate(&self) -> PathBuf {
        self.ca().join("ca.pem")
    }

    /// A token for the site's owner.
    pub fn admin_token(&self) -> PathBuf {
        self.root.join("admin.token")
    }

    /// Reads the configuration.
    pub fn config(&self) -> Result<Config, ConfigError> {
        Config::load(&self.config_file())
    }

    /// The section of the storage element, for what is about its namespace.
    pub fn storage<'a>(&self, config: &'a Config) -> Result<&'a Storage, CommandError> {
        config.storage.as_ref().ok_or_else(|| {
            CommandError::Usage(format!(
                "{} has no [storage], whose namespace this is about",
                self.config_file().display()
            ))
        })
    }

    /// The pools of its storage element.
    pub fn pools(&self, storage: &Storage) -> Vec<PoolRoot> {
        let pools = storage.pools.iter();
        pools
            .map(|pool| PoolRoot {
                name: PoolName::new(pool.name.as_str()),
                directory: self.resolve(&pool.path),
            })
            .collect()
    }

    /// Takes the lock that only one `serve` can hold, and writes this process's id into it.
    pub fn lock(&self) -> Result<ServeLock, CommandError> {
        let path = self.root.join("state/serve.lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|why| CommandError::local(path.display(), why))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            return Err(CommandError::Local(format!(
                "another `penstock serve` (process {}) holds {}; stop it first: two processes would corrupt its data",
                holder.trim(),
                self.root.display()
            )));
        }
        let written = file.set_len(0).and_then(|()| file.rewind());
        written
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(|why| CommandError::local(path.display(), why))?;
        Ok(ServeLock { _file: file })
    }
}

/// Held while a site is served; the kernel releases it however the process ends.
#[derive(Debug)]
pub struct ServeLock {
    _file: File,
}
