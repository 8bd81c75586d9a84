//! One cartridge in one drive, second by second: how long each thing takes that a host orders, and where the head is after it.

use crate::cartridge::Cartridge;
use crate::chance::Chance;
use crate::drive_kind::{DriveKind, StreamModel};
use crate::geometry::{Geometry, Position};
use crate::locate::SECOND_NS;
use crate::order::{OrderEffort, OrderGoal, OrderPolicy, RecallPlan};
use crate::recall::RecallFile;
use crate::request::{FileId, FilePlace};

/// How much a drive tries: some milliseconds.
const READ_ORDER_EFFORT: OrderEffort = OrderEffort(200_000);

/// Data as the host sends or takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostFeed {
    /// Bytes per second while it does.
    pub rate: u64,
    /// It pauses each time it has sent so much; 0: never.
    pub pause_every_bytes: u64,
    /// For so long.
    pub pause_ns: i64,
}

impl HostFeed {
    /// A host that the drive never waits for.
    pub const UNLIMITED: HostFeed = HostFeed {
        rate: u64::MAX,
        pause_every_bytes: 0,
        pause_ns: 0,
    };

    /// A host that is always equally fast.
    pub fn steady(rate: u64) -> HostFeed {
        HostFeed {
            rate,
            ..HostFeed::UNLIMITED
        }
    }
}

/// A file mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMark {
    /// Stays in the buffer with the data before it.
    Buffered,
    /// Returns when all data before it is on tape.
    Synchronised,
}

/// What a load takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadTime {
    pub load_ns: i64,
    pub thread_ns: i64,
    /// Once in the life of a cartridge of some kinds.
    pub initialisation_ns: i64,
}

/// What it takes to move bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamTime {
    /// The tape moves, at the speed that suits the host.
    pub stream_ns: i64,
    /// Turns at ends of wraps.
    pub turns_ns: i64,
    /// Stops, moves back and new starts, because the host was too slow.
    pub backhitch_ns: i64,
}

impl StreamTime {
    /// All of it.
    pub fn total_ns(&self) -> i64 {
        self.stream_ns + self.turns_ns + self.backhitch_ns
    }
}

/// What an unload takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnloadTime {
    pub rewind_ns: i64,
    pub unload_ns: i64,
}

/// A drive with a cartridge in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedDrive {
    kind: DriveKind,
    geometry: Geometry,
    head: Position,
    head_bytes: u64,
    moved_bytes: u64,
    chance: Chance,
}

impl LoadedDrive {
    /// Loads a cartridge; it is initialised after that.
    pub fn load(
        kind: &DriveKind,
        cartridge: &mut Cartridge,
        mut chance: Chance,
    ) -> (LoadedDrive, LoadTime) {
        let initialisation_ns = match kind.first_load {
            Some(first) if !cartridge.is_initialised => {
                // Most take about the mean, a few up to the longest.
                let spread = (first.max_ns - first.mean_ns) / 4;
                let drawn = first.mean_ns + chance.deviation(spread);
                drawn.clamp(first.mean_ns / 2, first.max_ns)
            }
            _ => 0,
        };
        cartridge.is_initialised = true;
        let time = LoadTime {
            load_ns: kind.model.load_ns,
            thread_ns: kind.thread_ns,
            initialisation_ns,
        };
        let drive = LoadedDrive {
            kind: kind.clone(),
            geometry: cartridge.geometry.clone(),
            head: cartridge.geometry.begin_of_tape(),
            head_bytes: 0,
            moved_bytes: 0,
            chance,
        };
        (drive, time)
    }

    /// The byte that would be read next.
    pub fn head_bytes(&self) -> u64 {
        self.head_bytes
    }

    /// Where the wraps of the cartridge end, if drives of this kind tell.
    pub fn wrap_ends_bytes(&self) -> Option<&[u64]> {
        let is_told = self.kind.tells_wrap_ends;
        is_told.then_some(self.geometry.wrap_ends_bytes.as_slice())
    }

    /// How many files at most it puts into order, if it does.
    pub fn read_order_max(&self) -> Option<u32> {
        self.kind.read_order_max
    }

    /// The order in which these files are read soonest once the head stands behind a byte. `None`: the drive does
    /// not order, or not so many.
    pub fn read_order(&self, from_bytes: u64, files: &[FilePlace]) -> Option<Vec<FileId>> {
        let most = self.kind.read_order_max?;
        if files.len() > most as usize {
            return None;
        }
        let recalls: Vec<RecallFile> = files.iter().copied().map(FilePlace::to_recall).collect();
        let plan = RecallPlan {
            drive: &self.kind.model,
            geometry: &self.geometry,
            head: self.geometry.position(from_bytes),
            files: &recalls,
            goal: OrderGoal::DriveTime,
        };
        let order = plan.order(OrderPolicy::Best, READ_ORDER_EFFORT);
        let files = order.turns.iter().map(|turn| files[turn.file].file);
        Some(files.collect())
    }

    /// Goes to a byte: by a locate, or by reading on where that is sooner. Returns the time.
    pub fn locate(&mut self, byte: u64) -> i64 {
        let to = self.geometry.position(byte);
        if to == self.head {
            self.head_bytes = byte;
            return 0;
        }
        let located = self.kind.model.locate.cost_ns(self.head, to);
        let deviation = self.chance.deviation(self.kind.locate_sigma_ns);
        let located = (located + deviation).max(SECOND_NS / 10);
        let read_on = match byte >= self.head_bytes {
            true => self
                .kind
                .model
                .read_ns(&self.geometry, self.head_bytes, byte),
            false => i64::MAX,
        };
        self.head = to;
        self.head_bytes = byte;
        located.min(read_on)
    }

    /// Reads or writes so many bytes from where the head stands.
    pub fn stream(&mut self, bytes: u64, feed: HostFeed) -> StreamTime {
        let end = self.head_bytes.saturating_add(bytes);
        let turns = self.geometry.turns(self.head_bytes, end);
        let turns = i64::try_from(turns).unwrap_or(i64::MAX);
        let moved = stream_time(&self.kind.stream, self.kind.model.native_rate, bytes, feed);
        self.head_bytes = end;
        self.head = self.geometry.position(end);
        self.moved_bytes = self.moved_bytes.saturating_add(bytes);
        StreamTime {
            turns_ns: turns.saturating_mul(self.kind.model.turn_ns),
            ..moved
        }
    }

    /// Writes a file mark.
    pub fn mark(&mut self, mark: FileMark) -> i64 {
        match mark {
            FileMark::Buffered => self.kind.stream.buffered_mark_ns,
            FileMark::Synchronised => self.kind.stream.synchronised_mark_ns,
        }
    }

    /// What it would take to unload now: a rewind from where the head is, in as many passes as the kind makes, and the rest.
    pub fn unload_time(&self) -> UnloadTime {
        let passes = self.kind.rewind_passes.iter();
        let passes = passes.filter(|row| row.moved_bytes_min <= self.moved_bytes);
        let passes = passes.map(|row| row.passes).max().unwrap_or(1);
        UnloadTime {
            rewind_ns: rewind_ns(&self.kind, self.head).saturating_mul(passes),
            unload_ns: self.kind.model.unload_ns,
        }
    }
}

/// From a place to the beginning of the tape. A tenth of the mean is for start and stop; the rest grows with the distance, so
/// that the mean over all places is the kind's figure.
pub fn rewind_ns(kind: &DriveKind, head: Position) -> i64 {
    let (min, max) = kind.model.longitudinal_range;
    let distance = i128::from(head.longitudinal.saturating_sub(min));
    if distance == 0 && head.wrap == 0 {
        return 0;
    }
    let mean = i128::from(kind.model.rewind_ns);
    let fixed = mean / 10;
    let grown = (mean - fixed) * 2 * distance / i128::from(max - min);
    i64::try_from(fixed + grown).unwrap_or(i64::MAX)
}

/// How long bytes stream, turns left out. The drive takes the fastest of its speeds that the host keeps up with. A host slower
/// than the least speed, or one that pauses for longer than the buffer lasts, makes it stop and go back.
fn stream_time(model: &StreamModel, native_rate: u64, bytes: u64, feed: HostFeed) -> StreamTime {
    let speeds = model.speeds(native_rate);
    let feed_rate = feed.rate.max(1);
    let least = speeds.first().copied().unwrap_or(native_rate).max(1);
    let kept = speeds.iter().rev().find(|speed| **speed <= feed_rate);
    let speed = kept.copied().unwrap_or(least).max(1);
    let stream_ns = time_of(bytes, speed);
    // Each time the buffer has run empty.
    let slow = match kept {
        Some(_) => 0,
        None => slow_cycles_ns(model, least, bytes, feed_rate),
    };
    let buffer_lasts = time_of(model.buffer_bytes, speed);
    let paused = match feed.pause_every_bytes {
        0 => 0,
        every if feed.pause_ns > buffer_lasts => {
            let pauses = i64::try_from(bytes / every).unwrap_or(i64::MAX);
            let each = (feed.pause_ns - buffer_lasts).max(model.backhitch_ns);
            pauses.saturating_mul(each)
        }
        _ => 0,
    };
    StreamTime {
        stream_ns,
        turns_ns: 0,
        backhitch_ns: slow.saturating_add(paused),
    }
}

/// Time that the tape does not move forward, for a host slower than the least speed: a cycle empties the buffer once and fills
/// it again, which takes a backhitch at least.
fn slow_cycles_ns(model: &StreamModel, speed: u64, bytes: u64, feed_rate: u64) -> i64 {
    let drain = speed.saturating_sub(feed_rate).max(1);
    let per_cycle = u128::from(model.buffer_bytes.max(1)) * u128::from(speed) / u128::from(drain);
    let per_cycle = u64::try_from(per_cycle).unwrap_or(u64::MAX).max(1);
    let cycles = i64::try_from(bytes / per_cycle).unwrap_or(i64::MAX);
    let fill = time_of(model.buffer_bytes, feed_rate);
    cycles.saturating_mul(fill.max(model.backhitch_ns))
}

fn time_of(bytes: u64, rate: u64) -> i64 {
    let ns = u128::from(bytes) * SECOND_NS.cast_unsigned() as u128 / u128::from(rate.max(1));
    i64::try_from(ns).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn loaded(name: &str) -> (LoadedDrive, LoadTime) {
        let kind = DriveKind::named(name).expect("a kind");
        let mut cartridge = Cartridge::of_kind(&kind, 1);
        LoadedDrive::load(&kind, &mut cartridge, Chance::new(1))
    }

    #[test]
    fn the_first_load_of_an_lto_9_takes_long_and_the_second_does_not() {
        let kind = DriveKind::named("LTO-9").expect("a kind");
        let mut sum = 0;
        for seed in 0..200 {
            let mut cartridge = Cartridge::of_kind(&kind, seed);
            let (_, first) = LoadedDrive::load(&kind, &mut cartridge, Chance::new(seed));
            let (_, second) = LoadedDrive::load(&kind, &mut cartridge, Chance::new(seed));
            assert!(first.initialisation_ns <= 120 * 60 * SECOND_NS);
            assert_eq!(second.initialisation_ns, 0);
            sum += first.initialisation_ns;
        }
        let mean = sum / 200 / 60 / SECOND_NS;
        assert!((36..=46).contains(&mean), "{mean} min");
    }

    #[test]
    fn a_rewind_depends_on_where_the_head_is_and_on_lto_9_on_what_was_moved() {
        let (mut drive, _) = loaded("LTO-8");
        assert_eq!(drive.unload_time().rewind_ns, 0);
        let mut sum = 0;
        for place in 0..1_000 {
            drive.locate(place * 12 * GB);
            sum += drive.unload_time().rewind_ns;
        }
        let mean = sum / 1_000 / SECOND_NS;
        assert!((57..=61).contains(&mean), "{mean} s");
        let (mut drive, _) = loaded("LTO-9");
        drive.locate(9_000 * GB);
        let unmoved = drive.unload_time().rewind_ns;
        drive.stream(6 * GB, HostFeed::UNLIMITED);
        drive.locate(9_000 * GB);
        assert_eq!(drive.unload_time().rewind_ns, 2 * unmoved);
        drive.stream(60 * GB, HostFeed::UNLIMITED);
        drive.locate(9_000 * GB);
        assert_eq!(drive.unload_time().rewind_ns, 3 * unmoved);
    }

    #[test]
    fn a_drive_takes_the_speed_that_the_host_keeps_up_with() {
        let rate = |feed| {
            let (mut drive, _) = loaded("LTO-8");
            let time = drive.stream(100 * GB, feed);
            (
                100_000 * SECOND_NS / (time.stream_ns + time.backhitch_ns),
                time.backhitch_ns > 0,
            )
        };
        assert_eq!(rate(HostFeed::UNLIMITED), (360, false));
        assert_eq!(rate(HostFeed::steady(350_000_000)), (338, false));
        // Below the least speed it stops and goes back, and moves about what the host gives.
        let (slow, is_stopping) = rate(HostFeed::steady(60_000_000));
        assert!(is_stopping && (50..=70).contains(&slow), "{slow} MB/s");
        // TapeOBS (FAST '26): a host that stopped again and again halved the rate.
        let jittery = HostFeed {
            rate: 400_000_000,
            pause_every_bytes: GB,
            pause_ns: 5 * SECOND_NS,
        };
        let (halved, _) = rate(jittery);
        assert!((160..=190).contains(&halved), "{halved} MB/s");
    }

    #[test]
    fn synchronised_marks_halve_the_rate_of_small_files_and_buffered_ones_do_not() {
        let rate = |mark| {
            let (mut drive, _) = loaded("LTO-8");
            let mut took = 0;
            for _ in 0..100 {
                took += drive.stream(GB, HostFeed::UNLIMITED).total_ns() + drive.mark(mark);
            }
            100_000 * SECOND_NS / took * 100 / 360
        };
        // FNAL: 3 s a mark, files of 1 GB at 48 % of 360 MB/s.
        assert!((46..=49).contains(&rate(FileMark::Synchronised)));
        assert!(rate(FileMark::Buffered) >= 97);
    }

    #[test]
    fn reading_on_needs_no_locate_and_a_small_gap_is_read_over() {
        let (mut drive, _) = loaded("LTO-8");
        drive.stream(GB, HostFeed::UNLIMITED);
        assert_eq!(drive.locate(GB), 0);
        assert!(drive.locate(GB + GB / 10) <= SECOND_NS / 3);
        assert!(drive.locate(5_000 * GB) > 5 * SECOND_NS);
    }
}
