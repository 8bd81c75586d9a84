//! What the commands of the HSM are called for, and what becomes of what they have brought.

use super::Driver;
use super::asking::Lookup;
use crate::hsm_command::{HsmCall, HsmStorageInfo};
use crate::nearline::recall::{PlacedRecall, RecallError, place};
use penstock_model::{Archival, ProblemCode};
use penstock_persistence::namespace::{EntryId, NearlineChange, TapeFile};
use penstock_tape::hsm_queue::{
    HsmCommand, HsmCommandEnd, HsmCommandId, HsmInput, HsmTarget, HsmUri, HsmWork,
};
use std::collections::BTreeMap;

/// How a command has ended, as far as its file is concerned, too.
pub(super) enum CheckedEnd {
    /// It has not: so many bytes of what has come were looked at, beyond all that were written.
    Reading(u64),
    Of(HsmCommandEnd),
    /// There is no such file any more.
    Gone,
}

impl Driver {
    /// Begins a command, or tells the queue why it cannot run.
    pub(super) async fn start(&mut self, command: HsmCommand) {
        let id = command.command;
        match self.call(&command).await {
            Ok(call) => self.runner.start(id, call),
            Err(end) => drop(self.checks.send((id, end))),
        }
    }

    /// What the HSM is called for. For a recall its place on disk is made.
    async fn call(&mut self, command: &HsmCommand) -> Result<HsmCall, CheckedEnd> {
        let file = match &command.work {
            HsmWork::Remove { uri, .. } => return self.removal(uri),
            HsmWork::Put { file, .. } | HsmWork::Get { file, .. } => *file,
        };
        let found = match self.tape_file(EntryId(file.0)) {
            Lookup::File(found) => found,
            Lookup::Gone => return Err(CheckedEnd::Gone),
            Lookup::Unknown => {
                let text = "the namespace cannot be asked about the file".to_owned();
                return Err(CheckedEnd::Of(RecallError::Namespace(text).into_end()));
            }
        };
        let (pnfsid, storage_info) = (self.pnfsid(found.id), self.storage_info(&found));
        if let HsmWork::Get { uri, .. } = &command.work {
            if found.pool.is_some() {
                // It was brought by a command whose end was not recorded.
                return Err(CheckedEnd::Gone);
            }
            if self
                .recalls
                .values()
                .any(|placed| placed.file() == found.id)
            {
                // A command that was taken as lost may still bring it.
                return Err(CheckedEnd::Of(RecallError::Removing.into_end()));
            }
            let placed = match place(&self.context, &found).await {
                Ok(placed) => placed,
                Err(why) => {
                    if let RecallError::NoRoom = why {
                        self.wait_for_room(&found).await;
                    }
                    return Err(CheckedEnd::Of(why.into_end()));
                }
            };
            let path = placed.path();
            let (file, at) = (found.id, self.now());
            self.room_wait.is_over(file);
            self.must(NearlineChange::RecallStarted { file, at }).await;
            self.recalls.insert(command.command, placed);
            return Ok(HsmCall::Get {
                pnfsid,
                path,
                size_bytes: found.size.0,
                uri: uri.clone(),
                storage_info,
            });
        }
        let pool = found
            .pool
            .as_ref()
            .and_then(|pool| self.context.pools.get(pool));
        let pool = pool.filter(|pool| pool.is_in_reach());
        let away = || CheckedEnd::Of(RecallError::PoolAway.into_end());
        let pool = pool.ok_or_else(away)?;
        Ok(HsmCall::Put {
            pnfsid,
            path: pool.data_path(found.id),
            storage_info,
        })
    }

    /// A copy on tape goes only while no file has it, whenever its removal was asked for.
    fn removal(&self, uri: &HsmUri) -> Result<HsmCall, CheckedEnd> {
        match self.context.namespace.needs_tape_copy(uri.as_str()) {
            Ok(false) => Ok(HsmCall::Remove { uri: uri.clone() }),
            Ok(true) => Err(CheckedEnd::Of(HsmCommandEnd::Succeeded {
                uris: Vec::new(),
            })),
            Err(why) => Err(CheckedEnd::Of(
                RecallError::Namespace(why.to_string()).into_end(),
            )),
        }
    }

    /// The name of a file for the HSM: of this namespace, and never used again.
    fn pnfsid(&self, file: EntryId) -> String {
        let namespace = self.context.namespace.uuid().simple().to_string();
        format!("{namespace}{:016x}", file.0).to_uppercase()
    }

    fn storage_info(&self, file: &TapeFile) -> HsmStorageInfo {
        let class = self.config.class_of(&file.path);
        let mut more = BTreeMap::from([("path".to_owned(), file.path.to_string())]);
        for sum in &file.checksums {
            more.insert(sum.algorithm().name().to_owned(), sum.hex().to_owned());
        }
        HsmStorageInfo {
            size_bytes: file.size.0,
            is_stored: file.archival == Archival::Cached,
            storage_class: class
                .map_or("moved", |class| class.family.as_str())
                .to_owned(),
            hsm: "penstock".to_owned(),
            more,
        }
    }

    /// A command needs no more looks at what it has left.
    pub(super) async fn settle(&mut self, command: HsmCommandId, end: CheckedEnd) {
        if let CheckedEnd::Reading(bytes) = end {
            return self.input(HsmInput::Progressed { command, bytes }).await;
        }
        let placed = self.recalls.remove(&command);
        let end = match (placed, end) {
            (_, CheckedEnd::Reading(_)) => return,
            (_, CheckedEnd::Gone) => return self.forget_gone(command).await,
            (Some(placed), CheckedEnd::Of(end @ HsmCommandEnd::Succeeded { .. })) => {
                let recalled = NearlineChange::Recalled {
                    file: placed.file(),
                    pool: placed.pool().clone(),
                    at: self.now(),
                };
                match self.must(recalled).await {
                    Some(_) => {
                        placed.keep();
                        end
                    }
                    None if self.is_over => {
                        placed.leave();
                        return;
                    }
                    None => {
                        self.give_up(placed);
                        return self.forget_gone(command).await;
                    }
                }
            }
            (_, CheckedEnd::Of(end)) => end,
        };
        self.input(HsmInput::Ended { command, end }).await;
    }

    /// The namespace does not take a recalled file: it is gone, or on disk. A change that was refused may have been made before, by a
    /// commit that failed.
    fn give_up(&self, placed: PlacedRecall) {
        match self.tape_file(placed.file()) {
            Lookup::File(file) if file.pool.as_ref() == Some(placed.pool()) => placed.keep(),
            Lookup::File(_) | Lookup::Gone => placed.withdraw(),
            Lookup::Unknown => placed.leave(),
        }
    }

    /// The file of a command is gone, or where it should be: nobody needs what it does.
    async fn forget_gone(&mut self, command: HsmCommandId) {
        let run = self.queue.live().runs.get(&command);
        let target = run.map(|run| run.target.clone());
        if let Some(HsmTarget::Get(file)) = &target {
            let file = EntryId(file.0);
            let awaited = self.context.namespace.awaited_by(file);
            if let (Lookup::Gone, Ok(Some(_))) = (self.tape_file(file), awaited) {
                let text = "the file was removed";
                self.fail_recall(file, ProblemCode::PathNotFound, text)
                    .await;
            }
        }
        let entry = target.and_then(|target| self.queue.live().entries.get(&target));
        let requests = entry.map(|entry| entry.askers.keys().copied().collect());
        self.input(HsmInput::Cancel(requests.unwrap_or_default()))
            .await;
        let end = HsmCommandEnd::Stopped;
        self.input(HsmInput::Ended { command, end }).await;
    }
}
