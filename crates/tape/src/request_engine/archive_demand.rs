//! What waits to be written, and on which tapes it may be: libraries that work go first, and each copy of a file goes to another
//! library.

use super::mounting::Demand;
use super::{Effect, QueueWait, RequestEngine, Turnout};
use crate::data_set::HintVerdict;
use crate::drive_pool::{DriveState, MountPurpose};
use crate::live_set::{ArchiveEntry, ArchiveGroup, LiveSet, OpenDataSet};
use crate::mount_decision::{MountCandidate, MountTarget};
use crate::record::{DriveRecord, Record};
use crate::request::{FamilyName, FileId, LibraryName, TapeName, VoName};
use std::collections::{BTreeMap, BTreeSet};

/// What is counted of the files of a group at a revision. Deadlines and priorities with their requests, so that it holds when a file
/// leaves as well.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GroupTally {
    revision: u64,
    bytes: u64,
    deadlines_ns: BTreeMap<i64, u64>,
    priorities: BTreeMap<u8, u64>,
    /// Requests and bytes: files may be empty.
    by_vo: BTreeMap<VoName, (u64, u64)>,
}

impl GroupTally {
    fn add(&mut self, entry: &ArchiveEntry) {
        self.bytes = self.bytes.saturating_add(entry.size_bytes);
        for asker in entry.askers.values() {
            *self.priorities.entry(asker.priority).or_default() += 1;
            if let Some(deadline_ns) = asker.deadline_ns {
                *self.deadlines_ns.entry(deadline_ns).or_default() += 1;
            }
            let (requests, bytes) = self.by_vo.entry(asker.vo.clone()).or_default();
            *requests += 1;
            *bytes = bytes.saturating_add(entry.size_bytes);
        }
    }

    fn remove(&mut self, entry: &ArchiveEntry) {
        self.bytes = self.bytes.saturating_sub(entry.size_bytes);
        for asker in entry.askers.values() {
            take_one(&mut self.priorities, &asker.priority);
            if let Some(deadline_ns) = &asker.deadline_ns {
                take_one(&mut self.deadlines_ns, deadline_ns);
            }
            if let Some((requests, bytes)) = self.by_vo.get_mut(&asker.vo) {
                *requests = requests.saturating_sub(1);
                *bytes = bytes.saturating_sub(entry.size_bytes);
                if *requests == 0 {
                    self.by_vo.remove(&asker.vo);
                }
            }
        }
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, u64>, of: &K) {
    if let Some(left) = counts.get_mut(of) {
        *left = left.saturating_sub(1);
        if *left == 0 {
            counts.remove(of);
        }
    }
}

/// What a group sums up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupSum {
    bytes: u64,
    files: u64,
    pub(super) oldest_ns: i64,
    deadline_ns: Option<i64>,
    priority: u8,
    by_vo: BTreeMap<VoName, u64>,
    /// Nobody waits for any of them.
    is_background: bool,
    /// Of the oldest file.
    first_bytes: u64,
}

impl GroupSum {
    fn add(&mut self, other: &GroupSum) {
        if other.oldest_ns < self.oldest_ns {
            (self.oldest_ns, self.first_bytes) = (other.oldest_ns, other.first_bytes);
        }
        self.is_background &= other.is_background;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.files += other.files;
        self.deadline_ns = earlier(self.deadline_ns, other.deadline_ns);
        self.priority = self.priority.max(other.priority);
        for (vo, bytes) in &other.by_vo {
            *self.by_vo.entry(vo.clone()).or_default() += bytes;
        }
    }
}

fn earlier(one: Option<i64>, other: Option<i64>) -> Option<i64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// A tape that can be written to now.
struct WritableTape {
    name: TapeName,
    free_bytes: u64,
    written_bytes: u64,
    is_in_drive: bool,
}

/// Tapes that can be written to now, by the family that they are for and by library. Gathered once for each decision, since a look at
/// all tapes for each family would cost families times tapes.
#[derive(Default)]
struct WritableTapes {
    of_families: BTreeMap<FamilyName, BTreeMap<LibraryName, Vec<WritableTape>>>,
    /// For whichever family takes them first.
    new: BTreeMap<LibraryName, Vec<WritableTape>>,
    /// The most that is free on one of the others, which could be written to if a drive for them worked, by their family.
    without_drive: BTreeMap<LibraryName, BTreeMap<Option<FamilyName>, u64>>,
}

impl WritableTapes {
    /// The tape of a library that a family is written to next: the fullest of its own on which a file of this size fits, else a
    /// new one.
    fn next(
        &self,
        family: &FamilyName,
        library: &LibraryName,
        size_bytes: u64,
    ) -> Option<TapeName> {
        let fullest = |tapes: Option<&Vec<WritableTape>>| {
            let tapes = tapes.into_iter().flatten();
            let fits = tapes.filter(|tape| !tape.is_in_drive && tape.free_bytes >= size_bytes);
            let best = fits.max_by_key(|tape| (tape.written_bytes, std::cmp::Reverse(&tape.name)));
            best.map(|tape| tape.name.clone())
        };
        let own = self.of_families.get(family);
        let own = own.and_then(|tapes| tapes.get(library));
        fullest(own).or_else(|| fullest(self.new.get(library)))
    }

    /// Whether a file of this size could be written to a tape of another library than these, if a drive worked.
    fn lacks_drive(
        &self,
        family: &FamilyName,
        taken: &BTreeSet<LibraryName>,
        size_bytes: u64,
    ) -> bool {
        let libraries = self.without_drive.iter();
        let mut free = libraries
            .filter(|(library, _)| !taken.contains(*library))
            .flat_map(|(_, free)| free);
        free.any(|(of, free_bytes)| {
            *free_bytes >= size_bytes && of.as_ref().is_none_or(|of| of == family)
        })
    }
}

/// What a library has for a family.
#[derive(Debug, Clone, Default)]
struct Room {
    is_working: bool,
    /// The most that is free on one of its tapes.
    free_bytes: u64,
    /// Written on the fullest tape of the family itself.
    own_bytes: Option<u64>,
}

impl RequestEngine {
    /// What a group sums up to. Its files are counted again only when others than those that drives have begun have changed.
    pub(super) fn group_sum(
        &mut self,
        family: &FamilyName,
        group: &ArchiveGroup,
    ) -> Option<GroupSum> {
        let queue = self.live.families.get(family)?.get(group)?;
        let (oldest_ns, oldest) = queue.files.first()?;
        let tallies = self.group_tallies.entry(family.clone()).or_default();
        let is_known = tallies
            .get(group)
            .is_some_and(|tally| tally.revision == queue.revision);
        if !is_known {
            let mut tally = GroupTally {
                revision: queue.revision,
                ..GroupTally::default()
            };
            let entries = queue.files.iter();
            for entry in entries.filter_map(|(_, file)| self.live.archives.get(file)) {
                tally.add(entry);
            }
            tallies.insert(group.clone(), tally);
        }
        let tally = tallies.get(group)?;
        let deadline = tally.deadlines_ns.first_key_value();
        let priority = tally.priorities.last_key_value();
        let by_vo = tally.by_vo.iter();
        let bytes_by_vo = by_vo.map(|(vo, (_, bytes))| (vo.clone(), *bytes));
        Some(GroupSum {
            bytes: tally.bytes,
            files: queue.files.len() as u64,
            oldest_ns: *oldest_ns,
            deadline_ns: deadline.map(|(deadline_ns, _)| *deadline_ns),
            priority: priority.map_or(0, |(priority, _)| *priority),
            by_vo: bytes_by_vo.collect(),
            is_background: group.is_background,
            first_bytes: self.live.archives.get(oldest)?.size_bytes,
        })
    }

    /// Keeps that a drive has begun files of one group. They leave what is counted of it, so that it is not counted again for each.
    pub(super) fn keep_begun(&mut self, files: &[FileId], begun: DriveRecord, out: &mut Turnout) {
        let begun = Record::Drive(begun);
        let first = files.first().and_then(|file| self.live.archives.get(file));
        let place = first.map(|entry| (entry.family.clone(), entry.group()));
        let live = &self.live;
        let revision = |live: &LiveSet, family, group| {
            let queue = live.families.get(family)?.get(group)?;
            Some(queue.revision)
        };
        let mut counted = None;
        if let Some((family, group)) = &place
            && let Some(tallies) = self.group_tallies.get_mut(family)
            && let Some(tally) = tallies.get_mut(group)
            && Some(tally.revision) == revision(live, family, group)
        {
            for entry in files.iter().filter_map(|file| live.archives.get(file)) {
                tally.remove(entry);
            }
            counted = Some(tally);
        }
        self.live.apply(&begun);
        if let (Some(tally), Some((family, group))) = (counted, &place) {
            // A group that is empty is gone, and its count with it.
            tally.revision = revision(&self.live, family, group).unwrap_or(0);
        }
        out.records.push(begun);
    }

    /// From when on a group may be written, if nothing changes: a data set is waited for until it is complete, small files until
    /// they fill an aggregate, neither longer than a while nor up to a deadline.
    pub(super) fn ready_at_ns(
        &self,
        family: &FamilyName,
        group: &ArchiveGroup,
        sum: &GroupSum,
    ) -> i64 {
        let open = group.data_set.as_ref().and_then(|name| {
            let key = (family.clone(), name.clone());
            self.live.data_sets.get(&key)
        });
        let is_complete = open.and_then(OpenDataSet::is_complete);
        let mut at_ns = i64::MIN;
        if let (Some(open), Some(false)) = (open, is_complete) {
            at_ns = open.since_ns.saturating_add(self.policy.data_set_wait_ns);
        }
        let aggregate = self.policy.aggregate;
        let is_filled = sum.bytes >= aggregate.bytes_max || sum.files >= aggregate.files_max as u64;
        // Background work is asked for part by part: no more comes before this part is done.
        let waits = group.is_packed && !group.is_background;
        if waits && !is_filled && is_complete != Some(true) {
            at_ns = at_ns.max(sum.oldest_ns.saturating_add(aggregate.age_ns));
        }
        if let Some(held_ns) = self.live.background_held_ns.filter(|_| group.is_background) {
            return at_ns.max(held_ns);
        }
        let lead_ns = self.policy.mount.deadline_lead_ns;
        let by_deadline = sum.deadline_ns.map(|at| at.saturating_sub(lead_ns));
        by_deadline.map_or(at_ns, |at| at.min(at_ns))
    }

    /// Tapes that are worth a mount for what is to be written.
    pub(super) fn add_archives(
        &mut self,
        now_ns: i64,
        probes: &mut BTreeMap<LibraryName, bool>,
        demand: &mut Demand,
    ) {
        let live = &self.live;
        self.group_tallies.retain(|family, tallies| {
            let groups = live.families.get(family);
            tallies.retain(|group, _| groups.is_some_and(|groups| groups.contains_key(group)));
            groups.is_some()
        });
        if self.live.families.is_empty() {
            return;
        }
        let tapes = self.writable_tapes();
        for family in self.live.families.keys().cloned().collect::<Vec<_>>() {
            self.add_family(now_ns, (&family, &tapes), probes, demand);
        }
    }

    fn add_family(
        &mut self,
        now_ns: i64,
        (family, tapes): (&FamilyName, &WritableTapes),
        probes: &mut BTreeMap<LibraryName, bool>,
        demand: &mut Demand,
    ) {
        let rooms = self.rooms(now_ns, family, tapes);
        let groups = self.live.families.get(family);
        let groups = groups.map_or_else(Vec::new, |groups| groups.keys().cloned().collect());
        let mut by_library: BTreeMap<LibraryName, GroupSum> = BTreeMap::new();
        let mut first_ready_ns: Option<i64> = None;
        let mut is_any_ready = false;
        for group in groups {
            let Some(sum) = self.group_sum(family, &group) else {
                continue;
            };
            let open = rooms
                .iter()
                .filter(|(name, _)| !group.taken.contains(*name));
            let has_any = open
                .clone()
                .any(|(_, room)| room.free_bytes >= sum.first_bytes);
            if !has_any && tapes.lacks_drive(family, &group.taken, sum.first_bytes) {
                demand.held.insert(family.clone(), QueueWait::NoDrive);
            } else if !has_any {
                demand.without_tape.insert(family.clone());
            }
            let ready_ns = self.ready_at_ns(family, &group, &sum);
            if ready_ns > now_ns {
                demand.ready(ready_ns);
                first_ready_ns = Some(first_ready_ns.map_or(ready_ns, |first| first.min(ready_ns)));
                continue;
            }
            is_any_ready = true;
            let mut libraries: Vec<(&LibraryName, &Room)> = open
                .filter(|(_, room)| room.free_bytes >= sum.first_bytes)
                .collect();
            libraries.sort_by_key(|(name, room)| {
                std::cmp::Reverse((room.is_working, room.own_bytes, std::cmp::Reverse(*name)))
            });
            for (library, _) in libraries.into_iter().take(group.missing as usize) {
                match by_library.get_mut(library) {
                    Some(all) => all.add(&sum),
                    None => drop(by_library.insert(library.clone(), sum.clone())),
                }
            }
        }
        if let Some(until_ns) = first_ready_ns.filter(|_| !is_any_ready) {
            let wait = QueueWait::Collecting { until_ns };
            demand.held.entry(family.clone()).or_insert(wait);
        }
        for (library, sum) in by_library {
            let Some(tape) = tapes.next(family, &library, sum.first_bytes) else {
                demand.held.insert(family.clone(), QueueWait::TapesInDrives);
                continue;
            };
            let may = self.has_room(now_ns, &library) && self.may_mount(now_ns, &library, probes);
            let candidate = self.archive_candidate(family, tape, sum);
            match may {
                true => demand.candidates.extend(candidate),
                false => demand
                    .blocked
                    .extend(candidate.map(|one| (one.target, one.class, one.oldest_ns))),
            }
        }
    }

    /// All of a family that may be written in a library now.
    pub(super) fn queued_for(
        &mut self,
        now_ns: i64,
        family: &FamilyName,
        library: &LibraryName,
    ) -> Option<GroupSum> {
        let groups = self.live.families.get(family)?.keys();
        let groups = groups.filter(|group| !group.taken.contains(library));
        let mut all: Option<GroupSum> = None;
        for group in groups.cloned().collect::<Vec<_>>() {
            let Some(sum) = self.group_sum(family, &group) else {
                continue;
            };
            if self.ready_at_ns(family, &group, &sum) > now_ns {
                continue;
            }
            match &mut all {
                Some(all) => all.add(&sum),
                None => all = Some(sum),
            }
        }
        all
    }

    pub(super) fn archive_candidate(
        &self,
        family: &FamilyName,
        tape: TapeName,
        sum: GroupSum,
    ) -> Option<MountCandidate> {
        let facts = self.live.tapes.get(&tape)?;
        let drives = self.live.drives.0.values();
        let of_library = drives.filter(|drive| drive.library == facts.library);
        let purposes = of_library.filter_map(|drive| drive.state.purpose());
        let same = purposes.filter(|one| matches!(one, MountPurpose::Archive(of) if of == family));
        let vo = sum.by_vo.into_iter().max_by_key(|(_, bytes)| *bytes)?.0;
        Some(MountCandidate {
            class: facts.class(),
            target: MountTarget::Archive(family.clone(), tape),
            bytes: sum.bytes,
            files: sum.files,
            oldest_ns: sum.oldest_ns,
            deadline_ns: sum.deadline_ns,
            priority: sum.priority,
            vo,
            mounts: u32::try_from(same.count()).unwrap_or(u32::MAX),
            last_read_ns: None,
            is_background: sum.is_background,
        })
    }

    fn writable_tapes(&self) -> WritableTapes {
        let (mut classes, mut in_drives, mut stuck) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for drive in self.live.drives.0.values() {
            in_drives.extend(drive.state.tape());
            match &drive.state {
                DriveState::Down { tape, .. } => stuck.extend(tape),
                _ => drop(classes.insert((&drive.library, &drive.kind))),
            }
        }
        let mut writable = WritableTapes::default();
        for (name, tape) in &self.live.tapes {
            let is_new = tape.family.is_none() && tape.written_bytes == 0;
            if !self.live.is_writable(name) || (tape.family.is_none() && !is_new) {
                continue;
            }
            if !classes.contains(&(&tape.library, &tape.kind)) || stuck.contains(name) {
                let library = tape.library.clone();
                let free = writable.without_drive.entry(library).or_default();
                let most = free.entry(tape.family.clone()).or_default();
                *most = tape.free_bytes().max(*most);
                continue;
            }
            let by_library = match &tape.family {
                Some(family) => {
                    let of_families = &mut writable.of_families;
                    // Most tapes are those of a family that is known already.
                    if !of_families.contains_key(family) {
                        of_families.insert(family.clone(), BTreeMap::new());
                    }
                    of_families.get_mut(family)
                }
                None => Some(&mut writable.new),
            };
            let Some(by_library) = by_library else {
                continue;
            };
            let tapes = by_library.entry(tape.library.clone()).or_default();
            tapes.push(WritableTape {
                name: name.clone(),
                free_bytes: tape.free_bytes(),
                written_bytes: tape.written_bytes,
                is_in_drive: in_drives.contains(name),
            });
        }
        writable
    }

    fn rooms(
        &self,
        now_ns: i64,
        family: &FamilyName,
        tapes: &WritableTapes,
    ) -> BTreeMap<LibraryName, Room> {
        let mut rooms: BTreeMap<LibraryName, Room> = BTreeMap::new();
        let most_free = |tapes: &[WritableTape]| tapes.iter().map(|tape| tape.free_bytes).max();
        for (library, new) in &tapes.new {
            let room = rooms.entry(library.clone()).or_default();
            room.free_bytes = most_free(new).unwrap_or(0);
        }
        for (library, own) in tapes.of_families.get(family).into_iter().flatten() {
            let room = rooms.entry(library.clone()).or_default();
            room.free_bytes = room.free_bytes.max(most_free(own).unwrap_or(0));
            let begun = own.iter().filter(|tape| tape.free_bytes > 0);
            room.own_bytes = begun.map(|tape| tape.written_bytes).max();
        }
        for (library, room) in &mut rooms {
            room.is_working =
                self.is_library_working(now_ns, library) && self.has_room(now_ns, library);
        }
        rooms
    }

    /// Data sets of which nothing is open end: when all has come that was announced, or when nothing more has come for long.
    pub(super) fn close_data_sets(&mut self, now_ns: i64, out: &mut Turnout) {
        let wait_ns = self.policy.data_set_wait_ns;
        let sets = self.live.data_sets.iter();
        let done = sets.filter(|(_, set)| set.open.is_empty());
        let judged = done.filter_map(|(key, set)| {
            let is_over = now_ns.saturating_sub(set.last_ns) >= wait_ns;
            let verdict = match set.is_complete() {
                Some(true) => HintVerdict::Held,
                Some(false) if is_over => HintVerdict::Short,
                None if is_over && set.came_files > 1 => HintVerdict::Held,
                None if is_over => HintVerdict::Lone,
                Some(false) | None => return None,
            };
            Some((key.clone(), set.clone(), verdict))
        });
        for ((family, data_set), set, verdict) in judged.collect::<Vec<_>>() {
            if verdict != HintVerdict::Held {
                out.effects.push(Effect::HintFailed {
                    data_set: data_set.clone(),
                    source: set.source,
                    verdict,
                    came_files: set.came_files,
                    expected_files: set.expected_files,
                });
            }
            self.keep(
                out,
                Record::DataSetClosed {
                    family,
                    data_set,
                    verdict,
                },
            );
        }
    }
}
