//! What the tape system is asked for: what the namespace says of files counts, whoever has named them.

use super::{Driver, LOOK_WAIT};
use crate::nearline::tape_system::{TapeGet, TapePut};
use penstock_model::{Archival, VoName};
use penstock_persistence::namespace::{EntryId, NearlineChange, TapeFile};
use penstock_tape::request::{FamilyName, VoName as TapeVo};
use std::io;

/// What the namespace says of a file.
pub(super) enum Lookup {
    File(Box<TapeFile>),
    Gone,
    /// It cannot be asked.
    Unknown,
}

impl Driver {
    /// Files that are to be put on tape, as far as the namespace says so still.
    pub(super) async fn ask_puts(&mut self, files: Vec<EntryId>) {
        let (mut puts, mut canceled) = (Vec::new(), Vec::new());
        for id in files {
            let is_known = self.system.is_putting(id);
            match self.tape_file(id) {
                Lookup::File(file) if file.archival == Archival::Precious => {
                    if !is_known {
                        puts.push(self.put_of(&file));
                    }
                }
                Lookup::File(_) | Lookup::Gone if is_known => canceled.push(id),
                Lookup::File(_) | Lookup::Gone | Lookup::Unknown => {}
            }
        }
        if !puts.is_empty() {
            let orders = self.system.ask_puts(puts);
            self.perform(orders).await;
        }
        if !canceled.is_empty() {
            let orders = self.system.cancel_puts(&canceled);
            self.perform(orders).await;
        }
    }

    fn put_of(&self, file: &TapeFile) -> TapePut {
        let classes = &self.config.classes;
        let class = classes.class_of(&file.path, file.size);
        TapePut {
            file: file.id,
            size: file.size,
            family: FamilyName(classes.family_of(&file.path, file.size).into()),
            vo: TapeVo(classes.vo_of(&file.path, file.size).into()),
            copies: class.map_or(1, |class| class.copies),
            is_packed: class.is_some_and(|class| file.size < class.packed_below),
            wait_max: class.and_then(|class| class.wait_max),
        }
    }

    /// Files that somebody waits for, as far as the namespace says so still.
    pub(super) async fn ask_gets(&mut self, files: Vec<EntryId>) {
        for id in &files {
            self.look_for_data(*id).await;
        }
        let (mut gets, mut canceled) = (Vec::new(), Vec::new());
        for id in files {
            let is_known = self.system.is_getting(id);
            let awaited = match self.context.namespace.awaited_by(id) {
                Ok(awaited) => awaited,
                Err(why) => {
                    tracing::error!(%why, file = %id, "it is not known whether somebody waits for a file");
                    continue;
                }
            };
            match self.tape_file(id) {
                Lookup::File(file) if awaited.is_some() && file.pool.is_none() => {
                    if !is_known {
                        gets.push(get_of(&file, awaited.flatten()));
                    }
                }
                Lookup::Gone if awaited.is_some() => {
                    self.fail_recall(id, "the file was removed").await;
                    if is_known {
                        canceled.push(id);
                    }
                }
                Lookup::File(_) | Lookup::Gone if is_known => canceled.push(id),
                Lookup::File(_) | Lookup::Gone | Lookup::Unknown => {}
            }
        }
        if !gets.is_empty() {
            let orders = self.system.ask_gets(gets);
            self.perform(orders).await;
        }
        if !canceled.is_empty() {
            let orders = self.system.cancel_gets(&canceled);
            self.perform(orders).await;
        }
    }

    /// A file that should be on disk and on tape, and whose data is not there, is on tape only: after an older backup was put back,
    /// or a disk was replaced.
    pub(super) async fn look_for_data(&mut self, id: EntryId) {
        let Lookup::File(file) = self.tape_file(id) else {
            return;
        };
        let pool = file
            .pool
            .as_ref()
            .and_then(|pool| self.context.pools.get(pool));
        let Some(pool) =
            pool.filter(|pool| pool.is_in_reach() && file.archival == Archival::Cached)
        else {
            return;
        };
        let (path, name) = (pool.data_path(id), pool.name.clone());
        let looked = tokio::task::spawn_blocking(move || std::fs::metadata(path));
        let looked = tokio::time::timeout(LOOK_WAIT, looked).await;
        if let Ok(Ok(Err(why))) = looked
            && why.kind() == io::ErrorKind::NotFound
        {
            tracing::error!(file = %file.path, pool = %name, "the copy on disk of a file is not there; it is on tape");
            let (file, pool, at) = (id, name, self.now());
            self.must(NearlineChange::LoseDiskCopy { file, pool, at })
                .await;
        }
    }

    pub(super) async fn fail_recall(&mut self, file: EntryId, error: &str) {
        let (error, at) = (error.to_owned(), self.now());
        self.must(NearlineChange::RecallFailed { file, error, at })
            .await;
    }

    pub(super) fn tape_file(&self, id: EntryId) -> Lookup {
        match self.context.namespace.tape_file(id) {
            Ok(Some(file)) => Lookup::File(Box::new(file)),
            Ok(None) => Lookup::Gone,
            Err(why) => {
                tracing::error!(%why, file = %id, "a file of the tape system cannot be looked up");
                Lookup::Unknown
            }
        }
    }
}

fn get_of(file: &TapeFile, vo: Option<VoName>) -> TapeGet {
    TapeGet {
        file: file.id,
        size: file.size,
        uris: file.copies.iter().map(|copy| copy.uri.clone()).collect(),
        vo: TapeVo(vo.as_ref().map_or("none", VoName::as_str).into()),
    }
}
