//! What the transfer service did in each minute, kept for months: sums of each link, of each VO on a link and of each
//! activity of a VO. One value holds a minute with all that was busy in it.
//!
//! It knows neither who counts (`decide::minute_meter`) nor who keeps it; its stored form is in `packing`.

mod packing;

pub use packing::{MINUTE_VERSION, Unreadable};

use crate::copy_sums::CopySums;
use crate::failure::{Errno, Phase};
use crate::ids::{Activity, LinkId, VoName};
use crate::ledger::LinkSample;
use crate::problem::Side;
use crate::units::{Bytes, Slots, Timestamp};
use std::time::Duration;

/// Milliseconds of a minute.
pub const MINUTE_MS: i64 = 60_000;
/// Figures of [`MinuteSums`].
const COLUMNS: usize = 44;

/// What one leader counted in one minute. A minute in which the service started, stopped or changed its leader has several
/// of them, or lacks a part; what it lacks was lost with the process that counted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinuteSamples {
    /// Where the time begins of which all is counted. It lies in one minute.
    pub from: Timestamp,
    /// Where that time ends: at the end of the minute, or earlier.
    pub to: Timestamp,
    /// What was counted, by key.
    pub rows: Vec<MinuteRow>,
}

/// The sums of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinuteRow {
    pub key: MinuteKey,
    pub sums: MinuteSums,
    /// How its attempts and tape calls failed; of links only, and of more kinds than are told apart the first.
    pub failures: Vec<MinuteFailure>,
}

/// Of what sums are kept. Keys beyond the bound of their kind are counted together, as the others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MinuteKey {
    Link(LinkId),
    /// All links beyond the bound.
    OtherLinks,
    /// A VO on a link: without stages and sockets, which are a matter of the link.
    VoOnLink(LinkId, VoName),
    /// All VOs on links beyond the bound.
    OtherVosOnLinks,
    /// An activity of a VO, on all links: without stages and sockets.
    Activity(VoName, Activity),
    /// All activities beyond the bound.
    OtherActivities,
    /// The service as a whole: how many transfers run and may.
    Service,
}

/// Sums over a minute, or over several. What stands at an instant (active, limit, queued) is looked at once a second: its
/// mean over the minute is its sum by the seconds counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MinuteSums {
    /// Seconds in which something moved, ran or waited.
    pub samples: u64,
    /// Bytes that moved in this time, whatever became of their attempts.
    pub moved_bytes: u64,
    /// Bytes that attempts had moved which failed or were stopped in this time.
    pub failed_bytes: u64,
    /// The same bytes, each times the seconds that its attempt had run: divided by them it is their mean time of running.
    pub failed_byte_seconds: u64,
    /// Files submitted.
    pub submitted: u64,
    /// Attempts begun.
    pub started: u64,
    /// Attempts failed.
    pub failed: u64,
    /// Sum over the seconds of the transfers running.
    pub active: u64,
    /// The most at once.
    pub active_max: u64,
    /// Sum over the seconds of how many may run; of links and the service.
    pub limit: u64,
    /// The highest limit.
    pub limit_max: u64,
    /// Sum over the seconds of the files waiting.
    pub queued: u64,
    /// The most at once.
    pub queued_max: u64,
    /// Sum over the seconds of slots that were free although files waited; of links only.
    pub unfed: u64,
    /// Sum over the seconds of running transfers that had moved bytes, and none for long enough to be called stalled; of
    /// links only.
    pub stalled: u64,
    /// The longest silence of a running transfer that had moved bytes, in milliseconds; of links only.
    pub silence_max_ms: u64,
    /// Files that landed.
    pub copies: CopySums,
}

/// How attempts failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinuteFailure {
    pub step: FailedStep,
    /// Where the fault lies.
    pub side: Side,
    /// When in an attempt.
    pub phase: Phase,
    /// The POSIX error.
    pub errno: Errno,
    /// The text without what differs from file to file.
    pub fingerprint: String,
    /// How often.
    pub count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailedStep {
    /// An attempt to move a file.
    Attempt,
    /// A recall from tape, or waiting for a file to be on tape.
    TapeCall,
}

impl MinuteSums {
    /// Adds what a link did in a second.
    pub fn add_sample(&mut self, sample: &LinkSample) {
        let (Slots(active), Slots(limit)) = (sample.active, sample.limit);
        self.moved_bytes = self.moved_bytes.saturating_add(sample.moved.0);
        self.limit += u64::from(limit);
        self.limit_max = self.limit_max.max(limit.into());
        if sample.queued > 0 {
            self.unfed += u64::from(limit.saturating_sub(active));
        }
        self.add_standing(active.into(), sample.queued);
    }

    /// Adds what stood at the end of a second.
    pub fn add_standing(&mut self, active: u64, queued: u64) {
        self.samples += 1;
        self.active = self.active.saturating_add(active);
        self.active_max = self.active_max.max(active);
        self.queued = self.queued.saturating_add(queued);
        self.queued_max = self.queued_max.max(queued);
    }

    /// Adds what an attempt had moved, and for how long, which came to nothing.
    pub fn add_lost(&mut self, moved: Bytes, ran: Duration) {
        self.failed_bytes = self.failed_bytes.saturating_add(moved.0);
        let seconds = ran.as_secs() + u64::from(ran.subsec_nanos() > 0);
        let weighted = moved.0.saturating_mul(seconds);
        self.failed_byte_seconds = self.failed_byte_seconds.saturating_add(weighted);
    }

    /// Adds sums of the same key over another time.
    pub fn add_sums(&mut self, other: &MinuteSums) {
        let peaks = [
            self.silence_max_ms.max(other.silence_max_ms),
            self.active_max.max(other.active_max),
            self.limit_max.max(other.limit_max),
            self.queued_max.max(other.queued_max),
        ];
        let mut others = other.values().into_iter();
        self.each_column(&mut |_, sum| *sum = sum.saturating_add(others.next().unwrap_or(0)));
        [
            self.silence_max_ms,
            self.active_max,
            self.limit_max,
            self.queued_max,
        ] = peaks;
    }

    /// Every figure, in the order of [`MinuteSums::each_column`].
    fn values(&self) -> [u64; COLUMNS] {
        let mut values = [0; COLUMNS];
        let mut places = values.iter_mut();
        self.clone()
            .each_column(&mut |_, sum| *places.next().expect("as many as columns") = *sum);
        values
    }

    /// Shows every figure, with the name under which it is stored.
    fn each_column(&mut self, show: &mut dyn FnMut(&'static str, &mut u64)) {
        show("samples", &mut self.samples);
        show("moved_bytes", &mut self.moved_bytes);
        show("failed_bytes", &mut self.failed_bytes);
        show("failed_byte_seconds", &mut self.failed_byte_seconds);
        show("submitted", &mut self.submitted);
        show("started", &mut self.started);
        show("failed", &mut self.failed);
        show("active", &mut self.active);
        show("active_max", &mut self.active_max);
        show("limit", &mut self.limit);
        show("limit_max", &mut self.limit_max);
        show("queued", &mut self.queued);
        show("queued_max", &mut self.queued_max);
        show("unfed", &mut self.unfed);
        show("stalled", &mut self.stalled);
        show("silence_max_ms", &mut self.silence_max_ms);
        self.copies.each_column(show);
    }
}

/// The begin of the minute in which a time lies.
pub fn minute_of(at: Timestamp) -> Timestamp {
    Timestamp(at.0.div_euclid(MINUTE_MS) * MINUTE_MS)
}
