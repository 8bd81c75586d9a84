//! A disk array with two controllers, as one server writes to it.

use super::{DiskServerCounts, REQUEST_BYTES, WRITE_CALL_BYTES};

/// The disks of a logical drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Disks {
    /// Bytes per second of one long piece.
    pub(crate) streaming_rate: f64,
    /// From one place to another.
    pub(crate) access_seconds: f64,
    pub(crate) revolution_seconds: f64,
    /// Data of a whole stripe. Less needs the rest of it to be read before, for its parity.
    pub(crate) full_stripe_bytes: f64,
}

impl Disks {
    /// RAID 5: of each stripe one disk has the parity.
    pub(crate) fn raid5(disks: u32, chunk_bytes: f64, rate_of_disk: f64) -> Disks {
        let data = f64::from(disks.saturating_sub(1));
        Disks {
            streaming_rate: data * rate_of_disk,
            // What disks of 7200 revolutions per minute have: 8.5 ms of seeking, and half of a revolution.
            access_seconds: 0.0127,
            revolution_seconds: 1.0 / 120.0,
            full_stripe_bytes: data * chunk_bytes,
        }
    }
}

/// What a controller does with what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WritePolicy {
    /// It answers when it is in its cache, and writes whole stripes.
    WriteBack,
    /// It answers when it is on the disks, command by command.
    WriteThrough,
}

/// Which controller does the work of a logical drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LunOwner {
    /// The preferred one. The other one passes on what it is asked ("LUN affinity").
    Preferred,
    /// The one that was asked last. Before it takes over, the other one writes what it has in its cache.
    AskedLast,
}

/// How the server chooses among its paths to both controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathChoice {
    /// By priority: the preferred controller, as long as it is there.
    ByPriority,
    /// In turn, after so many requests.
    InTurn { requests: u32 },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArrayConfiguration {
    pub(crate) disks: Disks,
    pub(crate) write_policy: WritePolicy,
    pub(crate) cache_bytes: f64,
    /// Bytes per second of a port to the server.
    pub(crate) port_rate: f64,
    pub(crate) owner: LunOwner,
    /// From the last byte of one controller to the first one of the other.
    pub(crate) handover_seconds: f64,
    pub(crate) path_choice: PathChoice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Preferred,
    Other,
}

#[derive(Debug)]
pub(super) struct Array {
    configuration: ArrayConfiguration,
    owner: Controller,
    path: Controller,
    /// Until another path has its turn.
    turn_bytes_left: f64,
    /// Of the controller that owns the disks.
    cached_bytes: f64,
    /// Another controller takes over: seconds that are left when the cache is empty.
    handover_seconds_left: Option<f64>,
}

impl Array {
    pub(super) fn new(configuration: &ArrayConfiguration) -> Array {
        Array {
            configuration: configuration.clone(),
            owner: Controller::Preferred,
            path: Controller::Preferred,
            turn_bytes_left: turn_bytes(configuration.path_choice),
            cached_bytes: 0.0,
            handover_seconds_left: None,
        }
    }

    /// Bytes per second that the disks write when each place gets pieces of this length.
    pub(super) fn rate(&self, piece_bytes: f64) -> f64 {
        let configuration = &self.configuration;
        let disks = &configuration.disks;
        let piece = piece_bytes.max(WRITE_CALL_BYTES);
        let mut seconds_per_byte =
            1.0 / disks.streaming_rate.min(configuration.port_rate) + disks.access_seconds / piece;
        let is_partial = REQUEST_BYTES < disks.full_stripe_bytes;
        if configuration.write_policy == WritePolicy::WriteThrough && is_partial {
            // Read, wait until the place comes by again, write.
            seconds_per_byte += disks.revolution_seconds / REQUEST_BYTES;
        }
        1.0 / seconds_per_byte
    }

    /// Writes for a short time. The bytes that were taken.
    pub(super) fn write(
        &mut self,
        seconds: f64,
        waiting_bytes: f64,
        piece_bytes: f64,
        counts: &mut DiskServerCounts,
    ) -> f64 {
        let on_disk = self.rate(piece_bytes) * seconds;
        if let Some(left) = self.handover_seconds_left {
            let is_empty = self.cached_bytes <= 0.0;
            self.cached_bytes = (self.cached_bytes - on_disk).max(0.0);
            let left = if is_empty { left - seconds } else { left };
            self.handover_seconds_left = Some(left).filter(|left| *left > 0.0);
            if self.handover_seconds_left.is_none() {
                self.owner = self.path;
            }
            return 0.0;
        }
        let cache = match self.configuration.write_policy {
            WritePolicy::WriteBack => self.configuration.cache_bytes,
            WritePolicy::WriteThrough => 0.0,
        };
        let room = (cache - self.cached_bytes).max(0.0) + on_disk;
        let taken = (self.configuration.port_rate * seconds).min(room);
        let taken = taken.min(waiting_bytes).min(self.turn_bytes_left);
        self.cached_bytes = (self.cached_bytes + taken - on_disk).clamp(0.0, cache);
        if self.path == Controller::Other {
            counts.other_path_bytes += taken;
        }
        self.turn_bytes_left -= taken;
        if self.turn_bytes_left <= 0.0 {
            self.take_other_path(counts);
        }
        taken
    }

    fn take_other_path(&mut self, counts: &mut DiskServerCounts) {
        self.path = match self.path {
            Controller::Preferred => Controller::Other,
            Controller::Other => Controller::Preferred,
        };
        self.turn_bytes_left = turn_bytes(self.configuration.path_choice);
        if self.configuration.owner == LunOwner::AskedLast && self.owner != self.path {
            counts.path_switches += 1.0;
            self.handover_seconds_left = Some(self.configuration.handover_seconds);
        }
    }
}

fn turn_bytes(choice: PathChoice) -> f64 {
    match choice {
        PathChoice::ByPriority => f64::INFINITY,
        PathChoice::InTurn { requests } => f64::from(requests.max(1)) * REQUEST_BYTES,
    }
}
