//! Why a storage element cannot start.

use penstock_model::PoolName;
use penstock_persistence::access_links::AccessLinkError;
use penstock_persistence::namespace::{ChangeError, NamespaceError};
use penstock_protocol::tls::TlsError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;
use uuid::Uuid;

/// Why a storage element cannot start.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The namespace cannot be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The shared links cannot be used.
    #[error(transparent)]
    Shares(#[from] AccessLinkError),
    /// Recovery could not be written down.
    #[error("recovery cannot be recorded: {0}")]
    Change(#[from] ChangeError),
    /// No pool is configured.
    #[error("no pool is configured; add one [[storage.pools]] section with a name and a directory")]
    NoPool,
    /// Files are on tape where this tape system does not find them.
    #[error(
        "a file is on tape as {uri}, which {theirs} has written; [storage.tape] now names {ours}, which cannot bring it back. Nothing \
         was changed. Put the configuration of before back; to change over, bring the files to disk with it, move them to a \
         directory that is in no class, and remove what is on tape",
        theirs = if *has_libraries { "the program of an HSM (program)" } else { "a tape library (library)" },
        ours = if *has_libraries { "tape libraries (library)" } else { "the program of an HSM (program)" }
    )]
    OtherTapeSystem {
        /// One copy.
        uri: String,
        /// What is configured.
        has_libraries: bool,
    },
    /// The tape system cannot be opened.
    #[error("the tape system cannot be opened: {0}")]
    Tape(io::Error),
    /// A pool's name cannot be used.
    #[error("pool '{0}': a name has letters, digits, '-', '_' and '.', and names one pool only")]
    PoolName(PoolName),
    /// A pool's directory cannot be used.
    #[error("pool {pool}: {path} cannot be used: {source}", path = path.display())]
    PoolDirectory {
        pool: PoolName,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no namespace, and a pool belongs to one.
    #[error(
        "the namespace {path} does not exist, but pool {pool} at {directory} belongs to one; nothing was changed. If it is on a \
         disk that is not mounted, mount it. If it was lost: `penstock rebuild --dir D` makes it from the pools, `penstock \
         restore FILE --dir D` puts a backup back. If this is another site's pool, correct the configuration; only if \
         its data is worthless, empty the directory",
        path = path.display(),
        directory = directory.display()
    )]
    NamespaceLost {
        /// The namespace's database.
        path: PathBuf,
        pool: PoolName,
        directory: PathBuf,
    },
    /// The directory belongs to another namespace, or to another pool of this one.
    #[error(
        "pool {pool}: {path} belongs to pool {theirs} of namespace {their_namespace}, not to this one \
         ({ours}); if the namespace database was lost, `penstock rebuild --dir D --replace` makes it from the pools, `penstock \
         restore FILE --dir D --replace` puts a backup back; if this is another pool's directory, correct the \
         configuration; only if its data is worthless, empty the directory",
        path = path.display()
    )]
    ForeignPool {
        /// The pool as configured.
        pool: PoolName,
        /// Its directory.
        path: PathBuf,
        /// The pool's name in `pool.json`.
        theirs: PoolName,
        /// The namespace in `pool.json`.
        their_namespace: Uuid,
        /// The namespace that was opened.
        ours: Uuid,
    },
    /// The namespace is an old copy: files were written since it was made.
    #[error(
        "pool {pool}: {files} files are not in the namespace, or not as the pool tells (restored from the trash, gone to tape): it is an older \
         copy than the pool has seen; restore a newer one, or have `penstock fsck --repair` enter these files again"
    )]
    OldNamespace {
        pool: PoolName,
        /// Files that it does not know.
        files: u64,
    },
    /// Another process uses the pool.
    #[error("pool {pool}: {path} is in use by another process; stop that one first", path = path.display())]
    PoolInUse {
        pool: PoolName,
        /// Its directory.
        path: PathBuf,
    },
    /// A directory without `pool.json` that is not empty.
    #[error(
        "pool {pool}: {path} is not empty and has no pool.json; use an empty directory or put it back",
        path = path.display()
    )]
    NotAPool {
        pool: PoolName,
        /// Its directory.
        path: PathBuf,
    },
    /// The directory is to be made where there is nothing to make it in.
    #[error(
        "pool {pool}: no pool is made at {path}, because {parent} does not exist; correct the pool's `path`, mount its disk, \
         or make the directory yourself: mkdir -p {path}",
        path = path.display(),
        parent = parent.display()
    )]
    NoParent {
        pool: PoolName,
        /// Its directory.
        path: PathBuf,
        /// What it would be in.
        parent: PathBuf,
    },
    /// `pool.json` cannot be understood.
    #[error(
        "pool {pool}: {path} cannot be read: {why}; restore it from a backup",
        path = path.display()
    )]
    PoolIdentity {
        pool: PoolName,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The trust for outgoing connections cannot be read.
    #[error("outgoing connections: {0}")]
    Tls(#[from] TlsError),
    /// The system gives no thread.
    #[error("a thread cannot be started: {0}")]
    Thread(io::Error),
}
