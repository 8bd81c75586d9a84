//! Whether a directory may be used as a pool of this namespace, and what is done before new files go there: what the last
//! run left unfinished is removed, what nobody knows is put into quarantine.
//!
//! Nothing is removed here that anybody could have been told of. A namespace that is older than the pool's files must
//! not judge them.

use crate::disk_full::is_no_space;
use crate::file_label::{LABEL_VERSION, Label, write_label};
use crate::open_error::OpenError;
use crate::pool::{
    IdentityWriter, POOL_VERSION, Pool, PoolIdentity, identity_path, lock_pool, marks_of,
    sync_directory,
};
use crate::private_files;
use penstock_durable_file::{directory_of, make_directory};
use penstock_model::{Archival, Bytes, NamespacePath, Timestamp};
use penstock_persistence::namespace::{
    Change, EntryId, LastWords, Namespace, NamespaceError, TrashQuery, TrashedFile,
};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file in `incoming/` that is made only to see whether files can have labels.
const LABEL_TEST: &str = "label-test";

/// Files of the trash that are looked at in one step.
const TRASH_AT_ONCE: usize = 1000;

/// Why a pool is not opened.
pub(crate) enum PoolRefusal {
    /// The configuration or the namespace is wrong. Found at the start, it keeps the storage element from starting.
    Wrong(OpenError),
    /// Its disk is not there, or not in order, and may come back.
    Away(String),
}

/// A pool that belongs to this namespace.
pub(crate) struct OwnPool {
    /// Keeps other processes away.
    lock: Option<File>,
    /// The directory is none yet.
    is_new: bool,
    /// Files with smaller ids have been looked at by a start before this one.
    from: EntryId,
}

impl OwnPool {
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }
}

/// What the last run had left in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Leftovers {
    /// Files that were being written, which are gone.
    pub unfinished: u64,
    /// Complete files that no namespace knows, which are in quarantine.
    pub quarantined: u64,
}

/// Decides whether a pool's directory may be used with this namespace, of which it is known to be a pool or not. Changes
/// nothing but the lock.
pub(crate) fn inspect(
    namespace: &Namespace,
    pool: &Pool,
    is_known: bool,
) -> Result<OwnPool, PoolRefusal> {
    let path = identity_path(&pool.directory);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return inspect_new(pool, is_known),
        Err(source) => {
            let why = directory_error(pool, path, source);
            return Err(away_if(is_known, why));
        }
    };
    let unreadable = |why: String| OpenError::PoolIdentity {
        pool: pool.name.clone(),
        path: path.clone(),
        why,
    };
    let identity: PoolIdentity = serde_json::from_slice(&text)
        .map_err(|why| away_if(is_known, unreadable(why.to_string())))?;
    if identity.version > POOL_VERSION {
        let why = format!("version {} is newer than this program", identity.version);
        return Err(PoolRefusal::Wrong(unreadable(why)));
    }
    if identity.namespace != namespace.uuid() || identity.pool != pool.name {
        return Err(PoolRefusal::Wrong(OpenError::ForeignPool {
            pool: pool.name.clone(),
            path: pool.directory.clone(),
            theirs: identity.pool,
            their_namespace: identity.namespace,
            ours: namespace.uuid(),
        }));
    }
    let lock = match lock_pool(&pool.directory) {
        Ok(lock) => lock,
        Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
            return Err(PoolRefusal::Wrong(in_use(pool)));
        }
        Err(source) => {
            let why = directory_error(pool, pool.directory.join("pool.lock"), source);
            return Err(away_if(is_known, why));
        }
    };
    let from = check_marks(namespace, pool, &identity, is_known)?;
    Ok(OwnPool {
        lock,
        is_new: false,
        from,
    })
}

/// A namespace that has not come as far as the pool has seen is an old copy, and so is one that was restored from a backup
/// or does not know the pool. It may go on when it knows all files, for example since they were entered again; their ids
/// are not given out a second time. Gives back from which id on files have not been looked at.
fn check_marks(
    namespace: &Namespace,
    pool: &Pool,
    identity: &PoolIdentity,
    is_known: bool,
) -> Result<EntryId, PoolRefusal> {
    let from = identity.low_water.min(namespace.low_water());
    let in_use = pool.marker.get().is_some();
    let marks = marks_of(namespace, in_use).map_err(|why| PoolRefusal::Wrong(why.into()))?;
    let restored = namespace.restored_ids();
    // A pool that was in use since this restore has been looked at.
    let restored = restored
        .filter(|ids| identity.low_water < ids.end || identity.restore != namespace.restore_id());
    let from = match (is_known, &restored) {
        (false, _) => EntryId::ROOT,
        (true, Some(ids)) => from.min(ids.start),
        (true, None) => from,
    };
    let is_old = identity.is_ahead_of(marks) || restored.is_some();
    if in_use || (is_known && !is_old) {
        return Ok(from);
    }
    let unknown = unknown_files(namespace, pool, from).map_err(|why| match why {
        OpenError::PoolDirectory { .. } => PoolRefusal::Away(why.to_string()),
        why => PoolRefusal::Wrong(why),
    })?;
    if !unknown.is_empty() {
        return Err(PoolRefusal::Wrong(OpenError::OldNamespace {
            pool: pool.name.clone(),
            files: unknown.len() as u64,
        }));
    }
    let later = match is_old {
        true => known_by_log(namespace, pool)?,
        false => 0,
    };
    if later > 0 {
        return Err(PoolRefusal::Wrong(OpenError::OldNamespace {
            pool: pool.name.clone(),
            files: later,
        }));
    }
    if is_old {
        tracing::warn!(
            pool = %pool.name,
            "the namespace is an older copy than this pool has seen, and knows all its files; going on with new ids"
        );
    }
    namespace.skip_ids(identity.ids_below);
    Ok(from)
}

/// Of how many files the pool's log tells what an older copy of a namespace does not know and would lose.
fn known_by_log(namespace: &Namespace, pool: &Pool) -> Result<u64, PoolRefusal> {
    let wrong = |why: NamespaceError| PoolRefusal::Wrong(why.into());
    let sequence = namespace.log_sequence().map_err(wrong)?;
    let words = LastWords::read(std::slice::from_ref(&pool.directory), sequence)
        .map_err(|why| PoolRefusal::Away(format!("its directory log cannot be read: {why}")))?;
    let on_tape = gone_to_tape_since(namespace, pool, &words).map_err(wrong)?;
    Ok(restored_since(namespace, pool, &words).map_err(wrong)? + on_tape)
}

/// How many files have gone to tape and left the disk: no other record tells where they are, and a new log would not tell it.
fn gone_to_tape_since(
    namespace: &Namespace,
    pool: &Pool,
    words: &LastWords,
) -> Result<u64, NamespaceError> {
    let mut gone = 0;
    for (told, _) in words.files_on_tape_since() {
        gone += u64::from(match namespace.tape_file(told.id)? {
            None => !namespace.is_trash(told.id)?,
            Some(known) => {
                let is_here = known.pool.as_ref() == Some(&pool.name);
                let is_missing = is_here && !pool.data_path(told.id).exists();
                known.copies.is_empty() && is_missing
            }
        });
    }
    Ok(gone)
}

/// How many files an older copy of a namespace has as trash that were restored since: their data would be removed with the trash.
fn restored_since(
    namespace: &Namespace,
    pool: &Pool,
    words: &LastWords,
) -> Result<u64, NamespaceError> {
    let (mut restored, mut query) = (0, TrashQuery::default());
    query.pool = Some(pool.name.clone());
    loop {
        let trash = namespace.trash(&query, TRASH_AT_ONCE)?;
        let Some(last) = trash.last() else {
            return Ok(restored);
        };
        query.after = Some((last.removed, last.file));
        let is_visible = |trashed: &&TrashedFile| words.restored(trashed).is_some();
        restored += trash.iter().filter(is_visible).count() as u64;
    }
}

/// A directory without `pool.json` becomes a pool only when it is empty and was none before. It is made only where its
/// parent exists.
fn inspect_new(pool: &Pool, is_known: bool) -> Result<OwnPool, PoolRefusal> {
    let path = pool.directory.clone();
    let holds_anything = match std::fs::read_dir(&path) {
        // A fresh ext4 file system is not empty: it has `lost+found`.
        Ok(entries) => entries
            .flatten()
            .any(|entry| entry.file_name() != "lost+found" && !is_empty_layout(&entry.path())),
        Err(why) if why.kind() == io::ErrorKind::NotFound => false,
        Err(source) => return Err(away_if(is_known, directory_error(pool, path, source))),
    };
    if is_known {
        let state = match holds_anything {
            true => "has no pool.json",
            false => "is empty or missing",
        };
        return Err(PoolRefusal::Away(format!(
            "{path} {state}, although it was a pool; is its disk mounted? If the pool's path was wrong at an earlier start, stop \
             the site and move all that is in that directory, with pool.json, to {path}. A new disk needs a pool with another name",
            path = path.display()
        )));
    }
    if holds_anything {
        let pool = pool.name.clone();
        return Err(PoolRefusal::Wrong(OpenError::NotAPool { pool, path }));
    }
    // A mistyped path must not become a pool.
    let parent = directory_of(&path);
    if !path.exists() && !parent.exists() {
        return Err(PoolRefusal::Wrong(OpenError::NoParent {
            pool: pool.name.clone(),
            parent: parent.to_owned(),
            path,
        }));
    }
    Ok(OwnPool {
        lock: None,
        is_new: true,
        from: EntryId::ROOT,
    })
}

/// What a first start leaves that is killed before it has written `pool.json`.
fn is_empty_layout(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    match name.unwrap_or_default() {
        "pool.lock" | "pool.json.new" => true,
        "incoming" | "data" | "partial" | "quarantine" => std::fs::read_dir(path)
            .is_ok_and(|mut entries| entries.all(|entry| entry.is_ok_and(is_label_test))),
        _ => false,
    }
}

fn is_label_test(entry: std::fs::DirEntry) -> bool {
    entry.file_name() == LABEL_TEST
}

/// Makes a pool ready for new files. May be called again after an error.
pub(crate) fn prepare(
    namespace: &Arc<Namespace>,
    pool: &Pool,
    opened: &mut OwnPool,
    now: Timestamp,
) -> Result<Leftovers, OpenError> {
    let at = |path: PathBuf| move |source| directory_error(pool, path, source);
    make_layout(pool, opened.is_new).map_err(at(pool.directory.clone()))?;
    if opened.lock.is_none() {
        let lock = lock_pool(&pool.directory).map_err(|why| match why.kind() {
            io::ErrorKind::WouldBlock => in_use(pool),
            _ => directory_error(pool, pool.directory.join("pool.lock"), why),
        })?;
        opened.lock = lock;
    }
    keep_pool_private(pool);
    // The last run may have been killed after it made a directory there and before that was durable.
    sync_directory(&pool.data_root()).map_err(at(pool.data_root()))?;
    let mut leftovers = Leftovers::default();
    if let Some(marker) = pool.marker.get() {
        // It was away for a while; writers of this run may still be at it.
        leftovers.unfinished = pool
            .clear_incoming(Some(namespace.first_id()))
            .map_err(at(pool.directory.join("incoming")))?;
        marker.write().map_err(at(identity_path(&pool.directory)))?;
        return Ok(leftovers);
    }
    leftovers.unfinished = pool
        .clear_incoming(None)
        .map_err(at(pool.directory.join("incoming")))?;
    leftovers.quarantined = quarantine_unknown(namespace, pool, opened.from, now)?;
    check_labels(pool);
    let marker = IdentityWriter::begin(&pool.directory, &pool.name, namespace, opened.is_new);
    let marker = marker.map_err(at(identity_path(&pool.directory)))?;
    namespace.apply(Change::RecordPools(vec![pool.name.clone()]))?;
    opened.is_new = false;
    // Only this thread sets it.
    let _ = pool.marker.set(marker);
    Ok(leftovers)
}

/// Of directories that nobody else looks into.
const PRIVATE: u32 = 0o700;

/// The directories of a pool. Only a new one may be made where nothing is.
pub(crate) fn make_layout(pool: &Pool, is_new: bool) -> io::Result<()> {
    if is_new {
        make_directory(&pool.directory, PRIVATE)?;
    } else {
        std::fs::metadata(identity_path(&pool.directory))?;
    }
    for name in ["incoming", "data", "quarantine"] {
        let path = pool.directory.join(name);
        DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE)
            .create(path)?;
    }
    if is_new {
        // Their names are as durable as what is stored below them.
        sync_directory(&pool.directory)?;
    }
    Ok(())
}

/// Complete files since then that are neither in the namespace nor in its trash. Ids that they have are not given out.
fn unknown_files(
    namespace: &Namespace,
    pool: &Pool,
    from: EntryId,
) -> Result<Vec<EntryId>, OpenError> {
    let mut unknown = Vec::new();
    let mut failure = None;
    let mut look = |id| -> Result<(), NamespaceError> {
        namespace.skip_ids(EntryId(id_after(id)));
        if !namespace.holds_file(id, &pool.name)? && !namespace.is_trash(id)? {
            unknown.push(id);
        }
        Ok(())
    };
    let read = pool.each_file(from, |id| {
        look(id).map_err(|why| {
            failure = Some(why);
            io::Error::other("the namespace cannot be read")
        })
    });
    read.map_err(|source| match failure.take() {
        Some(why) => OpenError::Namespace(why),
        None => directory_error(pool, pool.data_root(), source),
    })?;
    Ok(unknown)
}

fn id_after(id: EntryId) -> u64 {
    // A name that somebody made up must not use up all ids.
    const MADE_UP: u64 = 1 << 62;
    match id.0 {
        MADE_UP.. => 0,
        id => id + 1,
    }
}

/// Puts complete files of the last run that never got an entry into quarantine: nobody was told that they exist, as far
/// as this namespace knows.
fn quarantine_unknown(
    namespace: &Namespace,
    pool: &Pool,
    from: EntryId,
    now: Timestamp,
) -> Result<u64, OpenError> {
    let mut moved = settle_before_recall(namespace, pool, now)?;
    for id in unknown_files(namespace, pool, from)? {
        let path = pool.data_path(id);
        let failed = |source| directory_error(pool, pool.data_path(id), source);
        if std::fs::symlink_metadata(&path).map_err(failed)?.nlink() > 1 {
            // The bytes of an upload that was being finished. They stay in `partial/`, and it can be finished again.
            std::fs::remove_file(&path).map_err(failed)?;
            continue;
        }
        if is_on_tape_only(namespace, id)? {
            // A recall was killed before its entry said so. It comes from tape once more.
            pool.put_before_recall(id).map_err(failed)?;
            continue;
        }
        let kept_at = pool.quarantine_data(id, now).map_err(failed)?;
        let kept_at = kept_at.display();
        tracing::warn!(pool = %pool.name, file = %id, %kept_at, "a file that the namespace does not know is in quarantine");
        moved += 1;
    }
    if moved > 0 {
        let root = pool.quarantine_root();
        sync_directory(&root).map_err(|source| directory_error(pool, root.clone(), source))?;
    }
    Ok(moved)
}

/// What was put out of the way of recalls goes when its file is there again, waits while it is on tape only, and nobody knows it
/// otherwise.
fn settle_before_recall(
    namespace: &Namespace,
    pool: &Pool,
    now: Timestamp,
) -> Result<u64, OpenError> {
    let root = pool.quarantine_root();
    let files = pool.files_before_recall();
    let files = files.map_err(|source| directory_error(pool, root, source))?;
    let mut moved = 0;
    for id in files {
        let path = pool.before_recall_path(id);
        let failed = |source| directory_error(pool, pool.before_recall_path(id), source);
        if namespace.holds_file(id, &pool.name)? && pool.data_path(id).exists() {
            pool.drop_before_recall(id).map_err(failed)?;
        } else if !is_on_tape_only(namespace, id)? {
            let name = id.to_string();
            pool.quarantine_file(&path, &name, now).map_err(failed)?;
            moved += 1;
        }
    }
    Ok(moved)
}

fn is_on_tape_only(namespace: &Namespace, id: EntryId) -> Result<bool, NamespaceError> {
    let file = namespace.tape_file(id)?;
    Ok(file.is_some_and(|file| file.pool.is_none()))
}

/// Tells an operator once when files cannot describe themselves.
fn check_labels(pool: &Pool) {
    let path = pool.directory.join("incoming").join(LABEL_TEST);
    let label = Label {
        version: LABEL_VERSION,
        id: None,
        parent: None,
        path: NamespacePath::root(),
        size: Bytes(0),
        checksums: Vec::new(),
        owner: None,
        created: Timestamp(0),
        archival: Archival::DiskOnly,
    };
    let written = File::create(&path).and_then(|file| write_label(&file, &label));
    if let Err(why) = written
        && !is_no_space(&why)
    {
        tracing::warn!(
            pool = %pool.name,
            %why,
            "files in this pool cannot describe themselves, so that all of them are in its directory log; use a file system \
             with extended attributes"
        );
    }
    // What stays is removed with the other unfinished files at the next start.
    let _ = std::fs::remove_file(&path);
}

fn in_use(pool: &Pool) -> OpenError {
    OpenError::PoolInUse {
        pool: pool.name.clone(),
        path: pool.directory.clone(),
    }
}

/// What is wrong with a pool that was one may come right again; a new one is a mistake in the configuration.
fn away_if(is_known: bool, why: OpenError) -> PoolRefusal {
    match is_known {
        true => PoolRefusal::Away(why.to_string()),
        false => PoolRefusal::Wrong(why),
    }
}

pub(crate) fn directory_error(pool: &Pool, path: PathBuf, source: io::Error) -> OpenError {
    OpenError::PoolDirectory {
        pool: pool.name.clone(),
        path,
        source,
    }
}

/// The same of a pool: the directories are enough, however many files are in them.
fn keep_pool_private(pool: &Pool) {
    private_files::hide_all(
        ["incoming", "data", "partial", "quarantine", "pool.json"]
            .map(|name| pool.directory.join(name)),
    );
}
