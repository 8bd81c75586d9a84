//! A server with one disk array, to which files are copied: its network, the memory in which it gathers what it writes, the
//! paths to the array, the array's controllers, and its disks. It counts what a server counts.
//!
//! It knows nothing of causes, and of who compares what with what.

mod array;
mod write_test;

pub(crate) use array::{ArrayConfiguration, Disks, LunOwner, PathChoice, WritePolicy};
pub(crate) use write_test::{Admission, WriteTest, WriteTestRun};

use array::Array;

/// What a kernel sends to an array in one command at most.
const REQUEST_BYTES: f64 = 512.0 * 1024.0;
/// What a program writes in one call.
const WRITE_CALL_BYTES: f64 = 64.0 * 1024.0;

/// Of what the server is made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DiskServerConfiguration {
    /// Bytes per second that come in at most.
    pub(crate) interface_rate: f64,
    /// Bytes that it gathers in memory. All places that are written to share them, so that many places get short pieces.
    pub(crate) gathered_bytes_max: f64,
    pub(crate) array: ArrayConfiguration,
}

/// What was counted in some seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct DiskServerCounts {
    pub(crate) received_bytes: f64,
    /// Received by another server of the site, and passed on to this one.
    pub(crate) relayed_bytes: f64,
    pub(crate) written_bytes: f64,
    /// Time in which the array had commands to do.
    pub(crate) array_busy_seconds: f64,
    /// Times that the path changed over which the array takes bytes.
    pub(crate) path_switches: f64,
    /// Written over the path to the controller that is not the preferred one.
    pub(crate) other_path_bytes: f64,
    pub(crate) write_calls: f64,
    /// Calls that do not go on in their file where the one before ended.
    pub(crate) write_calls_out_of_order: f64,
    /// Time of the copies, summed over them.
    pub(crate) receiving: StageSeconds,
    pub(crate) writing: StageSeconds,
    pub(crate) copy_seconds: f64,
    pub(crate) queued_seconds: f64,
    pub(crate) submitted_files: f64,
    pub(crate) finished_files: f64,
    pub(crate) refusals: f64,
}

/// Where the time of a stage went.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct StageSeconds {
    pub(crate) busy: f64,
    pub(crate) input_wait: f64,
    pub(crate) output_wait: f64,
}

#[derive(Debug)]
struct DiskServer {
    interface_rate: f64,
    gathered_bytes_max: f64,
    gathered_bytes: f64,
    array: Array,
}

/// What comes in: by copies that go on equally fast.
#[derive(Debug, Clone, Copy)]
struct Inflow {
    copies: f64,
    /// Places of each file that are written to in turn.
    places_of_file: f64,
    /// Bytes per second that the way to the server carries at most.
    rate_max: f64,
    /// Bytes that are left to come.
    bytes_left: f64,
    relayed_part: f64,
}

impl DiskServer {
    fn new(configuration: &DiskServerConfiguration) -> DiskServer {
        DiskServer {
            interface_rate: configuration.interface_rate,
            gathered_bytes_max: configuration.gathered_bytes_max,
            gathered_bytes: 0.0,
            array: Array::new(&configuration.array),
        }
    }

    /// Goes on for a short time. Bytes that were received.
    fn step(&mut self, seconds: f64, inflow: Inflow, counts: &mut DiskServerCounts) -> f64 {
        let places = (inflow.copies * inflow.places_of_file).max(1.0);
        let piece = self.gathered_bytes_max / places;
        counts.array_busy_seconds += if self.gathered_bytes > 0.0 {
            seconds
        } else {
            0.0
        };
        let written = self
            .array
            .write(seconds, self.gathered_bytes, piece, counts);
        self.gathered_bytes -= written;
        let carried = inflow.rate_max.min(self.interface_rate) * seconds;
        let carried = carried.min(inflow.bytes_left);
        let received = carried.min(self.gathered_bytes_max - self.gathered_bytes);
        self.gathered_bytes += received;
        counts.received_bytes += received;
        counts.relayed_bytes += received * inflow.relayed_part;
        counts.written_bytes += written;
        let calls = received / WRITE_CALL_BYTES;
        counts.write_calls += calls;
        counts.write_calls_out_of_order += calls * (1.0 - 1.0 / inflow.places_of_file);
        let copying = inflow.copies * seconds;
        counts.copy_seconds += copying;
        let stage = |busy: f64, wait: f64| (copying * busy, copying * wait);
        let (waiting, other) = if received < carried {
            // Memory is full: the network waits for the array.
            let busy = received / carried;
            counts.writing.busy += copying;
            (&mut counts.receiving, stage(busy, 1.0 - busy))
        } else {
            let able = self.array.rate(piece) * seconds;
            let busy = (received / able).min(1.0);
            counts.receiving.busy += copying;
            (&mut counts.writing, stage(busy, 1.0 - busy))
        };
        waiting.busy += other.0;
        if received < carried {
            waiting.output_wait += other.1;
        } else {
            waiting.input_wait += other.1;
        }
        received
    }
}
