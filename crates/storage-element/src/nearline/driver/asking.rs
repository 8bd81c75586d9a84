//! What the queue is asked for: what the namespace says of files counts, whoever has named them.

use super::{Driver, LOOK_WAIT, RECALL_BIT};
use penstock_model::{Archival, ProblemCode, VoName};
use penstock_persistence::namespace::{EntryId, NearlineChange, StageProblem, TapeFile};
use penstock_tape::hsm_queue::{HsmGet, HsmInput, HsmPut, HsmTarget, HsmUri};
use penstock_tape::request::{Asker, FamilyName, FileId, RequestId, VoName as TapeVo};
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
            let request = RequestId(id.0);
            let is_known = self.is_wanted(&HsmTarget::Put(FileId(id.0)));
            match self.tape_file(id) {
                Lookup::File(file) if file.archival == Archival::Precious => {
                    if !is_known {
                        puts.push(self.put_of(&file, request));
                    }
                }
                Lookup::File(_) | Lookup::Gone if is_known => canceled.push(request),
                Lookup::File(_) | Lookup::Gone | Lookup::Unknown => {}
            }
        }
        if !puts.is_empty() {
            self.input(HsmInput::Put(puts)).await;
        }
        if !canceled.is_empty() {
            self.input(HsmInput::Cancel(canceled)).await;
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
        for id in &files {
            self.look_for_data(*id).await;
        }
        let (mut gets, mut canceled) = (Vec::new(), Vec::new());
        for id in files {
            let request = RequestId(id.0 | RECALL_BIT);
            let is_known = self.is_wanted(&HsmTarget::Get(FileId(id.0)));
            let awaited = match self.context.namespace.awaited_by(id) {
                Ok(awaited) => awaited,
                Err(why) => {
                    tracing::error!(%why, file = %id, "it is not known whether somebody waits for a file");
                    continue;
                }
            };
            match self.tape_file(id) {
                Lookup::File(file) if awaited.is_some() && file.pool.is_none() => {
                    match get_of(&file, request, awaited.flatten()) {
                        _ if is_known => {}
                        Some(get) => gets.push(get),
                        None => {
                            let text = "the name of its copy on tape is not understood";
                            self.fail_recall(id, ProblemCode::TapeFailed, text).await;
                        }
                    }
                }
                Lookup::Gone if awaited.is_some() => {
                    let text = "the file was removed";
                    self.fail_recall(id, ProblemCode::PathNotFound, text).await;
                    if is_known {
                        canceled.push(request);
                    }
                }
                Lookup::File(_) | Lookup::Gone if is_known => canceled.push(request),
                Lookup::File(_) | Lookup::Gone | Lookup::Unknown => {}
            }
        }
        if !gets.is_empty() {
            self.input(HsmInput::Get(gets)).await;
        }
        if !canceled.is_empty() {
            self.input(HsmInput::Cancel(canceled)).await;
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
        self.room_wait.waits(id, file.size, at);
        let text = format!(
            "waits for room on disk: no pool has {} bytes free; it is brought as soon as one has",
            file.size.0
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

fn get_of(file: &TapeFile, request: RequestId, vo: Option<VoName>) -> Option<HsmGet> {
    let uri = file
        .copies
        .first()
        .and_then(|copy| HsmUri::parse(&copy.uri))?;
    Some(HsmGet {
        request,
        file: FileId(file.id.0),
        size_bytes: file.size.0,
        uri,
        asker: Asker {
            vo: TapeVo(vo.as_ref().map_or("none", VoName::as_str).into()),
            priority: 3,
            deadline_ns: None,
            // The namespace says who waits, so the request is canceled when nobody does.
            lease_ns: i64::MAX,
        },
    })
}
