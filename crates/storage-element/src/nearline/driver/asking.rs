//! What the queue is asked for: what the namespace says of files counts, whoever has named them.

use super::{Driver, LOOK_WAIT, PAGE_FILES, RECALL_BIT};
use crate::nearline::recall::room_for_recall;
use penstock_model::{Archival, PoolName, ProblemCode, VoName};
use penstock_persistence::namespace::{
    EntryId, NearlineChange, RecallFile, RecallState, StageProblem, TapeFile,
};
use penstock_tape::hsm_queue::{HsmGet, HsmInput, HsmPut, HsmTarget, HsmUri};
use penstock_tape::request::{Asker, FamilyName, FileId, RequestId, VoName as TapeVo};
use std::collections::BTreeMap;
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
        for page in files.chunks(PAGE_FILES) {
            let found = match self.context.namespace.tape_files_of(page) {
                Ok(found) => found,
                Err(why) => {
                    tracing::error!(%why, "files that go to tape cannot be looked up");
                    continue;
                }
            };
            let (mut puts, mut canceled) = (Vec::new(), Vec::new());
            for (id, file) in page.iter().zip(found) {
                let request = RequestId(id.0);
                let is_known = self.is_wanted(&HsmTarget::Put(FileId(id.0)));
                let precious = file.filter(|file| file.archival == Archival::Precious);
                match (precious, is_known) {
                    (Some(file), false) => puts.push(self.put_of(&file, request)),
                    (None, true) => canceled.push(request),
                    (Some(_), true) | (None, false) => {}
                }
            }
            if !puts.is_empty() {
                self.input(HsmInput::Put(puts)).await;
            }
            if !canceled.is_empty() {
                self.input(HsmInput::Cancel(canceled)).await;
            }
        }
    }

    /// The queue works for it, and somebody wants that still.
    pub(super) fn is_wanted(&self, target: &HsmTarget) -> bool {
        let entry = self.queue.live().entries.get(target);
        entry.is_some_and(|entry| !entry.askers.is_empty())
    }

    fn put_of(&self, file: &TapeFile, request: RequestId) -> HsmPut {
        let class = self.config.class_of(&file.path);
        let family = class.map_or("moved", |class| class.family.as_str());
        HsmPut {
            request,
            file: FileId(file.id.0),
            size_bytes: file.size.0,
            family: FamilyName(family.into()),
            vo: TapeVo(family.into()),
            priority: 3,
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
            let request = RequestId(id.0 | RECALL_BIT);
            let is_known = self.is_wanted(&HsmTarget::Get(FileId(id.0)));
            match (state.awaited, state.file) {
                (Some(_), None) => {
                    let text = "the file was removed";
                    self.fail_recall(id, ProblemCode::PathNotFound, text).await;
                    if is_known {
                        canceled.push(request);
                    }
                }
                (Some(vo), Some(file)) if file.pool.is_none() => {
                    match get_of(id, &file, request, vo) {
                        _ if is_known => {}
                        Some(get) => gets.push(get),
                        None => {
                            let text = "the name of its copy on tape is not understood";
                            self.fail_recall(id, ProblemCode::TapeFailed, text).await;
                        }
                    }
                }
                (awaited, file) => {
                    // One in a pool that is away is waited for, until that lasts too long.
                    let pool = file.and_then(|file| file.pool);
                    if awaited.is_some() && pool.is_some_and(|pool| self.is_in_reach(&pool)) {
                        on_disk.push(id);
                    }
                    if is_known {
                        canceled.push(request);
                    }
                }
            }
        }
        if !on_disk.is_empty() {
            let (files, at) = (on_disk, self.now());
            self.must(NearlineChange::OnDisk { files, at }).await;
        }
        if !gets.is_empty() {
            self.input(HsmInput::Get(gets)).await;
        }
        if !canceled.is_empty() {
            self.input(HsmInput::Cancel(canceled)).await;
        }
    }

    fn is_in_reach(&self, pool: &PoolName) -> bool {
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
                missing.collect::<Vec<EntryId>>()
            });
            let looked = tokio::time::timeout(LOOK_WAIT, looked).await;
            for file in looked.ok().and_then(Result::ok).unwrap_or_default() {
                tracing::error!(%file, pool = %name, "the copy on disk of a file is not there; it is on tape");
                let (pool, at) = (name.clone(), self.now());
                self.must(NearlineChange::LoseDiskCopy { file, pool, at })
                    .await;
                has_found = true;
            }
        }
        has_found
    }

    pub(super) async fn fail_recall(&mut self, file: EntryId, code: ProblemCode, text: &str) {
        self.room_wait.is_over(file);
        let (text, at) = (text.to_owned(), self.now());
        let problem = StageProblem { code, text };
        self.must(NearlineChange::RecallFailed { file, problem, at })
            .await;
    }

    /// A recall found no room: whoever waits for the file is told, and room is made for it.
    pub(super) async fn wait_for_room(&mut self, file: &TapeFile) {
        let (id, at) = (file.id, self.now());
        let room = room_for_recall(file.size);
        self.room_wait.waits(id, room, at);
        let text = format!(
            "waits for room on disk: no pool has {} bytes free; it is brought as soon as one has",
            room.0
        );
        let code = ProblemCode::PoolFull;
        let problem = StageProblem { code, text };
        self.must(NearlineChange::RecallDelayed { file: id, problem })
            .await;
    }

    /// Files that nobody asks for any more wait for no room.
    pub(super) fn forget_who_needs_no_room(&mut self) {
        let entries = &self.queue.live().entries;
        let is_wanted = |file: EntryId| entries.contains_key(&HsmTarget::Get(FileId(file.0)));
        self.room_wait.keep_only(is_wanted);
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

fn get_of(
    id: EntryId,
    file: &RecallFile,
    request: RequestId,
    vo: Option<VoName>,
) -> Option<HsmGet> {
    Some(HsmGet {
        request,
        file: FileId(id.0),
        size_bytes: file.size.0,
        uri: file.uri.as_deref().and_then(HsmUri::parse)?,
        asker: Asker {
            vo: TapeVo(vo.as_ref().map_or("none", VoName::as_str).into()),
            priority: 3,
            deadline_ns: None,
            // The namespace says who waits, so the request is canceled when nobody does.
            lease_ns: i64::MAX,
        },
    })
}
