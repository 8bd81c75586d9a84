//! The order of reads that a drive finds itself.
//!
//! A drive that does so is asked whenever an order has been found here, and answers while it goes to the first file of that. Its
//! order is taken for the files behind, if it names all of them and does not take much longer by what is known here.
//! Otherwise, and until it answers, the order found here stays.

use super::{Effect, ReadOrder, RequestEngine, Turnout};
use crate::drive_pool::DriveWork;
use crate::order::{OrderGoal, RecallPlan};
use crate::recall::RecallFile;
use crate::request::{DriveName, FileId, FilePlace};
use std::collections::{BTreeMap, VecDeque};

/// How much longer the drive's own order may take by the model, in thousandths: models are a fifth off, on either way.
const LONGER_PERMILLE_MAX: i64 = 1_500;

impl RequestEngine {
    /// Asks about all that follows the file that is read first.
    pub(super) fn ask_order(&self, drive: &DriveName, first: FileId, out: &mut Turnout) {
        let (Some(order), Some(most)) = (self.orders.get(drive), self.ordering_drives.get(drive))
        else {
            return;
        };
        let most = usize::try_from(*most).unwrap_or(usize::MAX);
        let is_worth_it = self.policy.read_order == ReadOrder::Best && order.files.len() > 1;
        let first = self.place_of(first);
        let (true, Some(first)) = (is_worth_it && order.files.len() <= most, first) else {
            return;
        };
        let files = order.files.iter().filter_map(|file| self.place_of(*file));
        out.effects.push(Effect::AskOrder {
            drive: drive.clone(),
            after_bytes: first.end_bytes(),
            files: files.collect(),
        });
    }

    /// The answer. Files that have been read meanwhile are passed over.
    pub(super) fn take_drive_order(&mut self, drive: &DriveName, told: &[FileId]) {
        let Some(order) = self.orders.get(drive) else {
            return;
        };
        let ours: Vec<FileId> = order.files.iter().copied().collect();
        let mut left: BTreeMap<FileId, usize> = BTreeMap::new();
        left.extend(ours.iter().enumerate().map(|(place, file)| (*file, place)));
        let theirs = told.iter().filter_map(|file| left.remove(file));
        let theirs: Vec<usize> = theirs.collect();
        if !left.is_empty() {
            return;
        }
        let planned: Vec<usize> = (0..ours.len()).collect();
        let Some((theirs_ns, ours_ns)) = self.drive_times(drive, &ours, (&theirs, &planned)) else {
            return;
        };
        if theirs_ns.saturating_mul(1_000) > ours_ns.saturating_mul(LONGER_PERMILLE_MAX) {
            return;
        }
        let files: VecDeque<FileId> = theirs.into_iter().map(|place| ours[place]).collect();
        if let Some(order) = self.orders.get_mut(drive) {
            order.files = files;
        }
    }

    /// What two orders of these files take by the model, from behind the file that is read now.
    fn drive_times(
        &self,
        drive: &DriveName,
        files: &[FileId],
        (one, other): (&[usize], &[usize]),
    ) -> Option<(i64, i64)> {
        let mount = self.live.mount(drive)?;
        let head_bytes = match mount.work {
            DriveWork::Reading(file) => self.place_of(file)?.end_bytes(),
            _ => mount.head_bytes,
        };
        let places = files.iter().map(|file| self.place_of(*file));
        let places = places.map(|place| place.map(FilePlace::to_recall));
        let files: Vec<RecallFile> = places.collect::<Option<_>>()?;
        let (model, geometry) = self.known_tape_model(&mount.tape);
        let plan = RecallPlan {
            drive: &model,
            geometry: &geometry,
            head: geometry.position(head_bytes),
            files: &files,
            goal: OrderGoal::DriveTime,
        };
        Some((plan.cost_of(one).drive_ns(), plan.cost_of(other).drive_ns()))
    }

    /// Where a file lies that waits to be read.
    pub(super) fn place_of(&self, file: FileId) -> Option<FilePlace> {
        let entry = self.live.recalls.get(&file)?;
        Some(FilePlace {
            file,
            begin_bytes: entry.copies.first()?.begin_bytes,
            size_bytes: entry.size_bytes,
        })
    }
}
