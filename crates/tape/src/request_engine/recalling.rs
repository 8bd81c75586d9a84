//! Files from tape to disk.

use super::{Effect, ReadOrder, RequestEngine, Turnout};
use crate::drive::DriveModel;
use crate::drive_pool::DriveWork;
use crate::geometry::Geometry;
use crate::live_set::{RecallEntry, RequestTarget};
use crate::order::{OrderGoal, OrderPolicy, RecallPlan};
use crate::recall::{RecallFile, reads_on};
use crate::record::{DriveRecord, Record};
use crate::request::{
    DriveName, FileId, ReadPurpose, RecallRequest, RequestOutcome, TapeName, VoName,
};
use crate::tape_care::UnreadableCopy;
use std::collections::{BTreeMap, VecDeque};

/// Above so many files an order is not improved.
const IMPROVED_FILES_MAX: usize = 2_000;

/// The order of one mount, for the queue as it was at a revision.
#[derive(Debug, Clone)]
pub(super) struct PlannedOrder {
    pub(super) tape: TapeName,
    revision: u64,
    pub(super) files: VecDeque<FileId>,
    /// No file of it has been read yet.
    is_new: bool,
}

/// What a queue sums up to at a revision.
#[derive(Debug, Clone)]
pub(super) struct QueueSum {
    revision: u64,
    pub(super) bytes: u64,
    pub(super) files: u64,
    pub(super) oldest_ns: i64,
    pub(super) deadline_ns: Option<i64>,
    pub(super) priority: u8,
    /// Nobody waits for any of them.
    pub(super) is_background: bool,
    /// The VO with most bytes.
    pub(super) vo: VoName,
}

impl RequestEngine {
    pub(super) fn ask_recall(&mut self, now_ns: i64, request: RecallRequest, out: &mut Turnout) {
        if self.live.requests.contains_key(&request.request) {
            return;
        }
        let is_known = self.live.recalls.contains_key(&request.file);
        let mut copies = request.copies.iter();
        let id = request.request;
        if !is_known && !copies.any(|copy| self.live.is_readable(&copy.tape)) {
            let outcome = RequestOutcome::NoTape;
            out.effects.push(Effect::Tell {
                request: id,
                outcome,
            });
            return;
        }
        // What is to be verified is one copy, and that of a file that is asked for may become another one.
        let entry = self.live.recalls.get(&request.file);
        let is_other = entry.is_some_and(|entry| entry.copies.first() != request.copies.first());
        if request.purpose == ReadPurpose::Verification && is_other {
            let outcome = RequestOutcome::NotTaken;
            out.effects.push(Effect::Tell {
                request: id,
                outcome,
            });
            return;
        }
        self.keep(
            out,
            Record::RecallAsked {
                at_ns: now_ns,
                request,
            },
        );
    }

    /// A file has been read to disk, or compared only: who wants it on disk is not served by that.
    pub(super) fn file_read(
        &mut self,
        now_ns: i64,
        drive: &DriveName,
        (file, is_on_disk): (FileId, bool),
        out: &mut Turnout,
    ) {
        if self.work_of(drive) != Some(&DriveWork::Reading(file)) {
            return;
        }
        let entry = self.live.recalls.get(&file);
        let is_on_disk = is_on_disk && entry.is_some_and(|entry| !entry.is_compared);
        let tape = self.live.mount(drive).map(|mount| &mount.tape);
        let mut copies = entry.into_iter().flat_map(|entry| &entry.copies);
        let read = copies.find(|copy| Some(&copy.tape) == tape);
        let read = read.map(UnreadableCopy::of);
        let verifiers = entry.map_or_else(Vec::new, RecallEntry::verifiers);
        for request in self.askers_of(RequestTarget::Recall(file)) {
            match verifiers.contains(&request) {
                true => self.end(out, request, RequestOutcome::Verified),
                false if is_on_disk => self.end(out, request, RequestOutcome::Recalled),
                false => {}
            }
        }
        if let Some(copy) = read {
            self.mend_copy(file, copy, out);
        }
        let located_ns = self.take_located(drive);
        let drive = drive.clone();
        self.keep(
            out,
            DriveRecord::ReadEnded {
                at_ns: now_ns,
                drive,
                file,
                located_ns,
            },
        );
    }

    /// Orders the next read; without one the drive stays idle.
    pub(super) fn read_next(&mut self, now_ns: i64, drive: &DriveName, out: &mut Turnout) -> bool {
        let Some(file) = self.next_file(now_ns, drive) else {
            return false;
        };
        let order = self.orders.get_mut(drive);
        if order.is_some_and(|order| std::mem::take(&mut order.is_new)) {
            self.ask_order(drive, file, out);
        }
        let entry = self.live.recalls.get(&file);
        let is_compared = entry.is_some_and(|entry| entry.verifiers().len() == entry.askers.len());
        let over_bytes = self.over_bytes(drive, file);
        let begun = DriveRecord::ReadBegun {
            over_bytes,
            is_compared,
            at_ns: now_ns,
            drive: drive.clone(),
            file,
        };
        self.keep(out, begun);
        // What this drive has taken itself leaves its order as it is.
        if let Some(order) = self.orders.get_mut(drive) {
            let queue = self.live.queues.get(&order.tape);
            order.revision = queue.map_or(order.revision, |queue| queue.revision);
        }
        out.effects.extend(self.read_effect(drive, file));
        self.watchdog.begin(now_ns, drive);
        true
    }

    /// What a drive reads over on its way from one file to the next. To the first one of a mount it locates.
    fn over_bytes(&self, drive: &DriveName, file: FileId) -> u64 {
        let mount = self.live.mount(drive);
        let mount = mount.filter(|mount| mount.is_head_known && mount.files > 0);
        let copies = self.live.recalls.get(&file).map(|entry| &entry.copies);
        let copy = copies.and_then(|copies| copies.first());
        let Some((mount, copy)) = mount.zip(copy) else {
            return 0;
        };
        let Some(over_bytes) = copy.begin_bytes.checked_sub(mount.head_bytes) else {
            return 0;
        };
        let (model, geometry) = self.known_tape_model(&mount.tape);
        match reads_on(&model, &geometry, mount.head_bytes, copy.begin_bytes) {
            true => over_bytes,
            false => 0,
        }
    }

    pub(super) fn read_effect(&self, drive: &DriveName, file: FileId) -> Option<Effect> {
        let place = self.place_of(file)?;
        let (begin_bytes, size_bytes) = (place.begin_bytes, place.size_bytes);
        let drive = drive.clone();
        Some(match self.live.recalls.get(&file)?.is_compared {
            true => Effect::Verify {
                drive,
                file,
                begin_bytes,
                size_bytes,
            },
            false => Effect::Read {
                drive,
                file,
                begin_bytes,
                size_bytes,
            },
        })
    }

    fn next_file(&mut self, now_ns: i64, drive: &DriveName) -> Option<FileId> {
        let mount = self.live.mount(drive)?;
        let is_over = self.policy.files_per_mount_max;
        if is_over.is_some_and(|most| mount.files >= most) || !self.live.is_readable(&mount.tape) {
            return None;
        }
        let queue = self.live.queues.get(&mount.tape)?;
        let order = self.orders.get(drive);
        let is_current = order.is_some_and(|order| {
            order.tape == mount.tape && order.revision == queue.revision && !order.files.is_empty()
        });
        if !is_current {
            let is_held = self.live.is_background_held(now_ns);
            let rests = |file: &FileId| {
                let entry = self.live.recalls.get(file);
                is_held && entry.is_some_and(RecallEntry::is_background)
            };
            let files = queue.files.iter().copied();
            let files: Vec<FileId> = files.filter(|file| !rests(file)).collect();
            let (tape, head_bytes) = (mount.tape.clone(), mount.head_bytes);
            let revision = queue.revision;
            let known = self.tape_model(&tape);
            let order = PlannedOrder {
                tape,
                revision,
                files: self.ordered(&known, head_bytes, files).into(),
                is_new: true,
            };
            self.orders.insert(drive.clone(), order);
        }
        self.orders.get_mut(drive)?.files.pop_front()
    }

    /// Files of one tape in the order in which they are read from where the head is.
    fn ordered(
        &self,
        (model, geometry): &(DriveModel, Geometry),
        head_bytes: u64,
        mut files: Vec<FileId>,
    ) -> Vec<FileId> {
        let entry = |file: &FileId| self.live.recalls.get(file);
        let begin = |file: &FileId| {
            let copy = entry(file).and_then(|entry| entry.copies.first());
            copy.map_or(0, |copy| copy.begin_bytes)
        };
        match self.policy.read_order {
            ReadOrder::Fifo => {
                files.sort_by_key(|file| (entry(file).map(|entry| entry.since_ns), *file));
                files
            }
            ReadOrder::FromHead => {
                files.sort_by_key(|file| (begin(file) < head_bytes, begin(file), *file));
                files
            }
            ReadOrder::Best => {
                let places = files.into_iter().filter_map(|file| self.place_of(file));
                let (files, recall_files): (Vec<FileId>, Vec<RecallFile>) =
                    places.map(|place| (place.file, place.to_recall())).unzip();
                let plan = RecallPlan {
                    drive: model,
                    geometry,
                    head: geometry.position(head_bytes),
                    files: &recall_files,
                    goal: OrderGoal::DriveTime,
                };
                let policy = match files.len() > IMPROVED_FILES_MAX {
                    true => OrderPolicy::NearestLocate,
                    false => OrderPolicy::Best,
                };
                let order = plan.order(policy, self.policy.order_effort);
                order.turns.iter().map(|turn| files[turn.file]).collect()
            }
        }
    }

    /// What a queue sums up to. It is summed up again only when the queue has changed.
    pub(super) fn queue_sum(&mut self, tape: &TapeName) -> Option<QueueSum> {
        let queue = self.live.queues.get(tape)?;
        if let Some(sum) = self.sums.get(tape)
            && sum.revision == queue.revision
        {
            return Some(sum.clone());
        }
        let entries = queue.files.iter();
        let entries = entries.filter_map(|file| self.live.recalls.get(file));
        let sum = sum_of(queue.revision, entries)?;
        self.sums.insert(tape.clone(), sum.clone());
        Some(sum)
    }
}

fn sum_of<'a>(revision: u64, entries: impl Iterator<Item = &'a RecallEntry>) -> Option<QueueSum> {
    let mut by_vo: BTreeMap<&VoName, u64> = BTreeMap::new();
    let (mut bytes, mut files, mut oldest_ns) = (0_u64, 0, i64::MAX);
    let (mut deadline_ns, mut priority) = (None, 0);
    let mut is_background = true;
    for entry in entries {
        is_background &= entry.is_background();
        files += 1;
        bytes = bytes.saturating_add(entry.size_bytes);
        oldest_ns = oldest_ns.min(entry.since_ns);
        for asker in entry.askers.values() {
            *by_vo.entry(&asker.vo).or_default() += entry.size_bytes;
            priority = priority.max(asker.priority);
            deadline_ns = match (deadline_ns, asker.deadline_ns) {
                (Some(one), Some(other)) => Some(i64::min(one, other)),
                (one, other) => one.or(other),
            };
        }
    }
    let vo = by_vo.into_iter().max_by_key(|(_, bytes)| *bytes)?.0.clone();
    Some(QueueSum {
        revision,
        bytes,
        files,
        oldest_ns,
        deadline_ns,
        priority,
        is_background,
        vo,
    })
}
