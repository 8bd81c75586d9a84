//! What the tape system is asked for: what the namespace says of files counts, whoever has named them.

use super::data_sets::PutMember;
use super::{Driver, LOOK_WAIT, PAGE_FILES};
use crate::nearline::driver_task::{RoomLack, TapeAccount, TapeGet, TapePut};
use crate::nearline::recall::room_for_recall;
use crate::nearline::tape_system::TapeSystem;
use crate::nearline::wording::{WAITS_FOR_POOL, WAITS_FOR_ROOM};
use penstock_model::{Archival, Bytes, PoolName, ProblemCode, VoName};
use penstock_persistence::namespace::{
    EntryId, FileAwaiter, NearlineChange, RecallFacts, RecallState, StageProblem, TapeFile,
};
use penstock_tape::data_set::HintSource;
use penstock_tape::request::{FamilyName, VoName as TapeVo};
use std::collections::BTreeMap;
use std::io;

/// What the namespace says of a file.
pub(in crate::nearline) enum Lookup {
    File(Box<TapeFile>),
    Gone,
    /// It cannot be asked.
    Unknown,
}

impl<S: TapeSystem> Driver<S> {
    /// Files that are to be put on tape, as far as the namespace says so still.
    pub(super) async fn ask_puts(&mut self, files: Vec<EntryId>) {
        for page in files.chunks(PAGE_FILES) {
            let found = match self.context.namespace.tape_files_of(page) {
                Ok(found) => found,
                Err(why) => {
                    tracing::error!(%why, "files that go to tape cannot be looked up");
                    continue;
                }
            };
            let (mut wanted, mut canceled) = (Vec::new(), Vec::new());
            let is_compared = self.is_starting && self.system.takes_changed_puts();
            for (id, file) in page.iter().zip(found) {
                let is_known = self.system.is_putting(*id);
                let precious = file.filter(|file| file.archival == Archival::Precious);
                if precious.is_none() {
                    self.context.put_faults.forget(*id);
                } else if self.comparisons.holds(*id) {
                    continue;
                }
                match (precious, is_known) {
                    (Some(file), false) => wanted.push(file),
                    // Its class may have changed.
                    (Some(file), true) if is_compared => wanted.push(file),
                    (None, true) => canceled.push(*id),
                    (Some(_), true) | (None, false) => {}
                }
            }
            let sets = self.join_data_sets(&wanted).await;
            let puts = wanted.iter().zip(sets);
            let puts: Vec<TapePut> = puts.map(|(file, set)| self.put_of(file, set)).collect();
            if !puts.is_empty() {
                let orders = self.system.ask_puts(puts);
                self.perform(orders).await;
            }
            if !canceled.is_empty() {
                let orders = self.system.cancel_puts(&canceled);
                self.perform(orders).await;
            }
        }
    }

    fn put_of(&self, file: &TapeFile, member: PutMember) -> TapePut {
        let classes = &self.config.classes;
        let class = classes.class_of(&file.path, file.size);
        let is_packed = class.is_some_and(|class| file.size < class.packed_below);
        // Files in an aggregate lie together anyway; one for each directory would never become large.
        let is_told = matches!(
            member.data_set.source,
            HintSource::ClientMetadata | HintSource::Submission
        );
        TapePut {
            file: file.id,
            size: file.size,
            family: FamilyName(classes.family_of(&file.path, file.size).into()),
            vo: TapeVo(classes.vo_of(&file.path, file.size).into()),
            copies: class.map_or(1, |class| class.copies),
            is_packed,
            wait_max: class.and_then(|class| class.wait_max),
            data_set: (is_told || !is_packed).then_some(member.data_set),
            account: member.account,
        }
    }

    /// Files that somebody waits for, as far as the namespace says so still.
    pub(super) async fn ask_gets(&mut self, files: Vec<EntryId>) {
        for page in files.chunks(PAGE_FILES) {
            self.ask_page_of_gets(page).await;
        }
    }

    async fn ask_page_of_gets(&mut self, page: &[EntryId]) {
        let Some(mut states) = self.recall_states(page) else {
            return;
        };
        if self.find_lost_copies(&states).await {
            let Some(again) = self.recall_states(page) else {
                return;
            };
            states = again;
        }
        let (mut gets, mut canceled, mut on_disk) = (Vec::new(), Vec::new(), Vec::new());
        for state in states {
            let id = state.id;
            let is_known = self.system.is_getting(id);
            match (state.awaited, state.file) {
                (Some(_), None) => {
                    let text = "the file was removed";
                    self.fail_recall(id, ProblemCode::PathNotFound, text).await;
                    if is_known {
                        canceled.push(id);
                    }
                }
                (Some(awaiter), Some(file)) if self.is_to_be_brought(&file) => {
                    if !is_known {
                        gets.push(get_of(id, file, awaiter));
                    }
                }
                (awaited, file) => {
                    // One in a pool that is away is waited for, until that lasts too long.
                    let pool = file.and_then(|file| file.pool);
                    if let (Some(_), Some(pool)) = (awaited, pool) {
                        match self.is_in_reach(&pool) {
                            true => on_disk.push(id),
                            false => self.note_away_pool(&pool),
                        }
                    }
                    if is_known {
                        canceled.push(id);
                    }
                }
            }
        }
        if !on_disk.is_empty() {
            let (files, at) = (on_disk, self.recorded());
            self.must(NearlineChange::OnDisk { files, at }).await;
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

    /// It is on no disk, or in a pool that is away for long.
    fn is_to_be_brought(&self, file: &RecallFacts) -> bool {
        file.pool.as_ref().is_none_or(|pool| {
            let is_on_tape = file.archival == Archival::Cached && !file.uris.is_empty();
            is_on_tape && self.is_given_up(pool)
        })
    }

    pub(super) fn is_in_reach(&self, pool: &PoolName) -> bool {
        let pool = self.context.pools.get(pool);
        pool.is_some_and(|pool| pool.is_in_reach())
    }

    fn recall_states(&self, page: &[EntryId]) -> Option<Vec<RecallState>> {
        let found = self.context.namespace.recall_states(page);
        found
            .inspect_err(|why| {
                tracing::error!(%why, "it is not known whether somebody waits for files on tape");
            })
            .ok()
    }

    /// A file that should be on disk and on tape, and whose data is not there, is on tape only: after an older backup was put back,
    /// or a disk was replaced. Looks at no disk for files that are on tape only. True: some were found.
    async fn find_lost_copies(&mut self, states: &[RecallState]) -> bool {
        let mut by_pool: BTreeMap<PoolName, Vec<EntryId>> = BTreeMap::new();
        for state in states {
            let cached = state.file.as_ref();
            let cached = cached.filter(|file| file.archival == Archival::Cached);
            if let Some(pool) = cached.and_then(|file| file.pool.clone()) {
                by_pool.entry(pool).or_default().push(state.id);
            }
        }
        let mut has_found = false;
        for (name, files) in by_pool {
            let pool = self.context.pools.get(&name);
            let Some(pool) = pool.filter(|pool| pool.is_in_reach()).cloned() else {
                continue;
            };
            let looked = tokio::task::spawn_blocking(move || {
                let is_missing = |id: &EntryId| {
                    let found = std::fs::symlink_metadata(pool.data_path(*id));
                    found.is_err_and(|why| why.kind() == io::ErrorKind::NotFound)
                };
                let missing = files.into_iter().filter(is_missing);
                let missing: Vec<EntryId> = missing.collect();
                // A pool whose disk has just gone misses all of them.
                match pool.is_laid_out() {
                    true => missing,
                    false => Vec::new(),
                }
            });
            let looked = tokio::time::timeout(LOOK_WAIT, looked).await;
            for file in looked.ok().and_then(Result::ok).unwrap_or_default() {
                tracing::error!(%file, pool = %name, "the copy on disk of a file is not there; it is on tape");
                let (pool, at) = (name.clone(), self.recorded());
                self.must(NearlineChange::LoseDiskCopy { file, pool, at })
                    .await;
                has_found = true;
            }
        }
        has_found
    }

    pub(super) async fn fail_recall(&mut self, file: EntryId, code: ProblemCode, text: &str) {
        self.room_wait.is_over(file);
        let (text, at) = (text.to_owned(), self.recorded());
        let problem = StageProblem { code, text };
        self.must(NearlineChange::RecallFailed { file, problem, at })
            .await;
    }

    /// No pool takes files of these sizes: whoever waits for them is told now and then, and room is made for them if that helps.
    pub(super) async fn wait_for_room(&mut self, files: &[(EntryId, Bytes)], lack: RoomLack) {
        let at = self.recorded();
        let mut untold = Vec::new();
        for (file, size) in files {
            let room = (room_for_recall(*size), lack);
            if self.room_wait.waits(*file, room, at) {
                untold.push(*file);
            }
        }
        let (code, text) = match lack {
            RoomLack::Full => (ProblemCode::PoolFull, WAITS_FOR_ROOM),
            RoomLack::OutOfService => (ProblemCode::PoolOffline, WAITS_FOR_POOL),
        };
        for page in untold.chunks(PAGE_FILES) {
            let text = text.to_owned();
            let problem = StageProblem { code, text };
            let files = page.to_vec();
            self.must(NearlineChange::RecallDelayed { files, problem })
                .await;
        }
    }

    /// Files that nobody asks for any more wait for no room.
    pub(super) fn forget_who_needs_no_room(&mut self) {
        let (system, retries) = (&self.system, &self.retries);
        self.room_wait
            .keep_only(|file| system.is_getting(file) || retries.holds(file));
    }

    pub(in crate::nearline) fn tape_file(&self, id: EntryId) -> Lookup {
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

fn get_of(id: EntryId, file: RecallFacts, awaiter: FileAwaiter) -> TapeGet {
    let vo = awaiter.vo.as_ref();
    TapeGet {
        file: id,
        size: file.size,
        uris: file.uris,
        vo: TapeVo(vo.map_or("none", VoName::as_str).into()),
        account: TapeAccount::of(awaiter.activity.as_deref(), awaiter.challenge.as_deref()),
    }
}
