//! The rows, column by column.

use super::{
    Cell, CellSink, ChangeKind, Column, EntryChange, EntryChangeReason, Family, Field,
    IncidentKind, Operation, Outcome, Row, SubjectKind, Text, View,
};
use crate::failure::Phase;
use crate::ids::{Activity, PoolName, UserName, VoName};
use crate::problem::Side;
use crate::stages::{StageClocks, TcpSummary};
use crate::units::{Bytes, Timestamp};
use serde::{Deserialize, Serialize};

macro_rules! row {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $meaning:literal])+ $field:ident: $type:ty,)+ }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[doc = $meaning])+ #[serde(skip_serializing_if = "Field::is_unknown")] pub $field: $type,)+
        }

        impl Row for $name {
            const FAMILY: Family = Family::$name;
            const COLUMNS: &'static [Column] = &[$(Column {
                name: stringify!($field),
                cells: <$type as Field>::CELLS,
                is_optional: <$type as Field>::IS_OPTIONAL,
                meaning: concat!($($meaning),+),
            },)+];

            fn at(&self) -> Timestamp {
                self.at
            }

            fn give_cells(&self, sink: &mut impl CellSink) {
                let mut column = 0;
                $(
                    if let Some(cell) = self.$field.cell() {
                        sink.take(column, cell);
                    }
                    column += 1;
                )+
                debug_assert_eq!(column, Self::COLUMNS.len());
            }

            fn set(&mut self, column: usize, cell: Cell) -> bool {
                let mut place = 0;
                $(
                    if column == place {
                        return match Field::from_cell(cell) {
                            Some(value) => {
                                self.$field = value;
                                true
                            }
                            None => false,
                        };
                    }
                    place += 1;
                )+
                debug_assert_eq!(place, Self::COLUMNS.len());
                false
            }

            fn clear(&mut self, column: usize) {
                let mut place = 0;
                $(
                    if column == place {
                        self.$field = Default::default();
                        return;
                    }
                    place += 1;
                )+
                debug_assert_eq!(place, Self::COLUMNS.len());
            }
        }
    };
}

row! {
    /// An attempt to move one file, as one side saw it. Without an outcome it tells what was known before the end.
    Attempt {
        /// When it ended; before its end, when this was told. Rows are kept and found by it.
        at: Timestamp,
        /// Which source told it: a file, a topic, an address.
        source: Text,
        /// Its line or sequence number there.
        line: u64,
        /// Whose books.
        view: View,
        /// What was attempted.
        operation: Operation,
        /// The job.
        job: Option<Text>,
        /// The file of the job, as the transfer service numbers it.
        transfer: Option<Text>,
        /// The attempt, as the source names it.
        attempt: Option<Text>,
        /// Which attempt it is, from 1.
        attempt_number: Option<u32>,
        /// The copy, by a name that both sides have.
        copy: Option<Text>,
        /// The session of a door or server.
        session: Option<Text>,
        /// The file, as the storage element identifies it.
        file: Option<Text>,
        /// The state of the file that was told, in the source's word.
        state: Option<Text>,
        /// The data challenge or campaign that it is part of.
        challenge: Option<Text>,
        /// Where bytes came from: scheme and host, or host.
        source_host: Option<Text>,
        /// Where bytes went.
        destination_host: Option<Text>,
        /// The path at the source.
        source_path: Option<Text>,
        /// The path at the destination.
        destination_path: Option<Text>,
        /// SHA-256 of the path, where paths are not told.
        path_digest: Option<Text>,
        /// The VO.
        vo: Option<VoName>,
        /// The activity inside the VO.
        activity: Option<Activity>,
        /// Who asked.
        user: Option<UserName>,
        /// The protocol in which bytes moved.
        protocol: Option<Text>,
        /// The version of IP: 4 or 6.
        ip_version: Option<u32>,
        /// Both ends are in one site.
        is_local: Option<bool>,
        /// Bytes that moved, also when it failed.
        bytes_moved: Option<Bytes>,
        /// Bytes of the file.
        file_bytes: Option<Bytes>,
        /// Bytes that a client read of the file, each time that it read them.
        bytes_read: Option<Bytes>,
        /// Bytes that a client wrote.
        bytes_written: Option<Bytes>,
        /// When it was asked for.
        submitted: Option<Timestamp>,
        /// When its recall began.
        staging_started: Option<Timestamp>,
        /// When its recall ended.
        staging_ended: Option<Timestamp>,
        /// When the attempt began.
        started: Option<Timestamp>,
        /// When the first byte moved.
        first_byte: Option<Timestamp>,
        /// When the last byte had moved.
        last_byte: Option<Timestamp>,
        /// When it ended.
        ended: Option<Timestamp>,
        /// Columns that were computed from others, with commas between.
        derived: Option<Text>,
        /// Waiting for a slot or a mover.
        wait_us: Option<u64>,
        /// Looking at both ends before bytes moved.
        prepare_us: Option<u64>,
        /// Waiting for a drive and mounting a tape.
        mount_us: Option<u64>,
        /// Positioning a tape.
        position_us: Option<u64>,
        /// Reading from the source's disk or tape.
        source_read_us: Option<u64>,
        /// Waiting for the network, or pushing bytes into it.
        network_us: Option<u64>,
        /// Writing to the destination's disk or tape.
        write_us: Option<u64>,
        /// Computing checksums.
        checksum_us: Option<u64>,
        /// From the last byte to a durable, visible file.
        commit_us: Option<u64>,
        /// Connections that were used.
        streams: Option<u32>,
        /// Smoothed round trip time.
        rtt_us: Option<u64>,
        /// Smallest round trip time.
        min_rtt_us: Option<u64>,
        /// Congestion window in segments.
        congestion_window_segments: Option<u64>,
        /// Bytes in a segment.
        segment_bytes: Option<u64>,
        /// Segments that were sent again.
        retransmitted_segments: Option<u64>,
        /// Data segments that were sent.
        sent_segments: Option<u64>,
        /// Time with data outstanding.
        busy_us: Option<u64>,
        /// Of that, limited by the receiver's window.
        receiver_limited_us: Option<u64>,
        /// Of that, limited by the sender's buffer.
        send_buffer_limited_us: Option<u64>,
        /// The kernel's estimate of delivery, in bytes per second.
        delivery_bytes_per_second: Option<u64>,
        /// Round trip time that a receiver sees, from its acknowledgements to the data that answers them.
        receiver_rtt_us: Option<u64>,
        /// Data segments that were received.
        received_segments: Option<u64>,
        /// Of these, how many came before one that was sent earlier.
        out_of_order_segments: Option<u64>,
        /// The pool.
        pool: Option<PoolName>,
        /// The server that moved the bytes.
        server: Option<Text>,
        /// The client of a door or server.
        client: Option<Text>,
        /// The tape.
        tape: Option<Text>,
        /// The tape drive.
        drive: Option<Text>,
        /// How it ended.
        outcome: Option<Outcome>,
        /// Where the fault lies.
        side: Option<Side>,
        /// When in its life it failed.
        phase: Option<Phase>,
        /// The error's number, as the source gives it.
        error_code: Option<i64>,
        /// The failure without what differs from file to file: one incident has one.
        fingerprint: Option<Text>,
        /// The failure in the source's words.
        detail: Option<Text>,
    }
}

row! {
    /// What something did in an interval, or how it was at its end.
    Sample {
        /// End of the interval. Rows are kept and found by it.
        at: Timestamp,
        /// Which source told it: a file, a topic, an address.
        source: Text,
        /// Its line or sequence number there.
        line: u64,
        /// Whose books.
        view: View,
        /// What it is of.
        subject_kind: SubjectKind,
        /// Its name.
        subject: Text,
        /// Length of the interval. Counters without one run from a beginning that is not known.
        interval_ms: Option<u64>,
        /// Of a link: where bytes come from.
        source_host: Option<Text>,
        /// Of a link: where bytes go.
        destination_host: Option<Text>,
        /// The machine on which it is.
        server: Option<Text>,
        /// The VO.
        vo: Option<VoName>,
        /// Bytes that came in.
        bytes_in: Option<Bytes>,
        /// Bytes that went out.
        bytes_out: Option<Bytes>,
        /// Bytes of attempts that failed, told when they ended.
        bytes_failed: Option<Bytes>,
        /// The mean rate, where the source tells no bytes.
        bytes_per_second: Option<u64>,
        /// Bytes per second that it can carry.
        capacity_bytes_per_second: Option<u64>,
        /// Bytes that are free.
        bytes_free: Option<Bytes>,
        /// Running at the end.
        active: Option<u64>,
        /// How many may run.
        limit: Option<u64>,
        /// Waiting at the end.
        queued: Option<u64>,
        /// Attempts that ended well in the interval.
        succeeded: Option<u64>,
        /// Attempts that failed in the interval.
        failed: Option<u64>,
        /// Of a thousand, how many ended well.
        success_permille: Option<u64>,
        /// Of a thousand parts of the interval, how many it was busy.
        busy_permille: Option<u64>,
        /// Reads, or packets that came in.
        operations_in: Option<u64>,
        /// Writes, or packets that went out.
        operations_out: Option<u64>,
        /// Smoothed round trip time.
        rtt_us: Option<u64>,
        /// Smallest round trip time.
        min_rtt_us: Option<u64>,
        /// Congestion window in segments.
        congestion_window_segments: Option<u64>,
        /// Bytes in a segment.
        segment_bytes: Option<u64>,
        /// Segments that were sent again.
        retransmitted_segments: Option<u64>,
        /// Data segments that were sent.
        sent_segments: Option<u64>,
        /// Time with data outstanding.
        busy_us: Option<u64>,
        /// Of that, limited by the receiver's window.
        receiver_limited_us: Option<u64>,
        /// Of that, limited by the sender's buffer.
        send_buffer_limited_us: Option<u64>,
        /// Data segments that were received.
        received_segments: Option<u64>,
        /// Of these, how many came before one that was sent earlier.
        out_of_order_segments: Option<u64>,
        /// Bytes that wait in the sender's socket.
        send_queue_bytes: Option<Bytes>,
        /// Bytes that wait in the receiver's socket.
        receive_queue_bytes: Option<Bytes>,
        /// Why it is so, in the source's words.
        note: Option<Text>,
        /// Of a pool: the kind of work of which alone it tells.
        operation: Option<Operation>,
        /// Of a thousand parts of the interval, in how many it could be used.
        reachable_permille: Option<u64>,
        /// Of a pool: of a thousand parts of the interval, in how many it took new files, if there was room.
        accepting_permille: Option<u64>,
        /// Of a pool: of a thousand parts of the interval, in how many operators had it take no new files.
        drained_permille: Option<u64>,
        /// Of a pool: how often it was looked at in the interval; parts of a thousand are of so many looks.
        looks: Option<u64>,
        /// Of a pool: movers that began in the interval.
        started: Option<u64>,
        /// Of an interface: what it is for, as operators declared it: `wan`, `hsm` or `internal`.
        role: Option<Text>,
        /// Of a device: the pools whose file systems lie on it, with commas between.
        pools: Option<Text>,
        /// Of a machine: time in which all its tasks waited for memory.
        memory_full_us: Option<u64>,
        /// Of a machine: time in which some of its tasks waited for a disk.
        io_some_us: Option<u64>,
        /// Of a machine: time in which all its tasks waited for disks.
        io_full_us: Option<u64>,
        /// Of a machine: files that its server had open, connections among them, at most.
        open_files: Option<u64>,
        /// Of a machine: how many files its server might have open, at least.
        open_files_max: Option<u64>,
        /// Of a database: operations that ended.
        operations: Option<u64>,
        /// Of a database: time from request to answer, of all of these together.
        operation_us: Option<u64>,
        /// Of a database: transactions that ended.
        transactions: Option<u64>,
        /// Of a database: time of all of these together.
        transaction_us: Option<u64>,
        /// Of a database: operations that waited, multiplied by the time for which they did.
        operations_queued_us: Option<u64>,
        /// Of a database: for how long a transaction had lasted that had not ended, at most.
        transaction_running_us: Option<u64>,
        /// Of a tape part: bytes that are to be on tape and are not yet.
        bytes_unwritten: Option<Bytes>,
        /// Of a tape part: files that came to be on tape.
        files_written: Option<u64>,
        /// Of a tape part: files that came back from tape.
        files_recalled: Option<u64>,
        /// Of a tape part: bytes that drives read for them.
        bytes_drives_read: Option<Bytes>,
        /// Of a tape part: tapes that were mounted to read from.
        mounts: Option<u64>,
        /// Of a tape part: of a thousand parts of the buffer before the tapes, how many were in use.
        buffer_used_permille: Option<u64>,
        /// Of a tape part: what the recalls that began had waited until then, together.
        start_wait_ms: Option<u64>,
        /// Of a tape part: how long the oldest recall had waited that had not begun, at most.
        oldest_wait_seconds: Option<u64>,
        /// Of a tape part: writing begins anew each so many seconds.
        cycle_seconds: Option<u64>,
    }
}

row! {
    /// Something is otherwise than before: a configuration, a fact that was found, work on a machine.
    Change {
        /// When. Rows are kept and found by it.
        at: Timestamp,
        /// Which source told it: a file, a topic, an address.
        source: Text,
        /// Its line or sequence number there.
        line: u64,
        /// Whose books.
        view: View,
        /// What kind of change.
        kind: ChangeKind,
        /// What it was done to: a link, a server, a pool.
        subject: Text,
        /// Which of its properties.
        name: Text,
        /// The value before.
        old: Option<Text>,
        /// The value from now on.
        new: Option<Text>,
        /// Who did it.
        by: Option<UserName>,
        /// Of an intervention: until when.
        until: Option<Timestamp>,
        /// Why, in the source's words.
        note: Option<Text>,
    }
}

row! {
    /// Something went wrong that is not the end of an attempt: a line of a tape system, a gap in what a source told.
    Incident {
        /// When. Rows are kept and found by it.
        at: Timestamp,
        /// Which source told it: a file, a topic, an address.
        source: Text,
        /// Its line or sequence number there.
        line: u64,
        /// Whose books.
        view: View,
        /// Where.
        kind: IncidentKind,
        /// What it happened to: a server, a service.
        subject: Option<Text>,
        /// The tape.
        tape: Option<Text>,
        /// The tape drive.
        drive: Option<Text>,
        /// The severity in the source's word.
        severity: Option<Text>,
        /// The error's number or name, as the source gives it.
        code: Option<Text>,
        /// What happened without what differs each time.
        fingerprint: Option<Text>,
        /// What happened in the source's words.
        detail: Option<Text>,
        /// How often; how many messages are lost in a gap.
        count: Option<u64>,
        /// Until when.
        until: Option<Timestamp>,
    }
}

row! {
    /// An entry of a storage element's namespace was made, changed or removed.
    NamespaceChange {
        /// When. Rows are kept and found by it.
        at: Timestamp,
        /// Which source told it: a file, a topic, an address.
        source: Text,
        /// Its line or sequence number there.
        line: u64,
        /// Whose books.
        view: View,
        /// What became of the entry.
        kind: EntryChange,
        /// The entry, as the storage element identifies it.
        file: Option<Text>,
        /// Its path, before a rename.
        path: Option<Text>,
        /// Its path after a rename.
        new_path: Option<Text>,
        /// Bytes of the file.
        file_bytes: Option<Bytes>,
        /// The pool that holds its data.
        pool: Option<PoolName>,
        /// The server that told it.
        server: Option<Text>,
        /// Who asked.
        user: Option<UserName>,
        /// The VO.
        vo: Option<VoName>,
        /// The client of a door or server.
        client: Option<Text>,
        /// The copy that it is part of, by a name that both sides have.
        copy: Option<Text>,
        /// The data challenge or campaign that it is part of.
        challenge: Option<Text>,
        /// Why, where no request alone tells it.
        reason: Option<EntryChangeReason>,
    }
}

impl Attempt {
    /// Takes the clocks of a mover over. What it does not know it tells as 0: that stays unknown.
    pub fn with_stages(mut self, stages: &StageClocks) -> Attempt {
        let known = |us: u64| (us > 0).then_some(us);
        self.wait_us = known(stages.wait_us);
        self.source_read_us = known(stages.source_read_us);
        self.network_us = known(stages.network_us);
        self.write_us = known(stages.write_us);
        self.checksum_us = known(stages.checksum_us);
        self.commit_us = known(stages.commit_us);
        self
    }

    /// Takes what the kernel said of its data socket.
    pub fn with_tcp(mut self, tcp: &TcpSummary) -> Attempt {
        self.rtt_us = Some(tcp.rtt_us.into());
        self.min_rtt_us = Some(tcp.min_rtt_us.into());
        self.congestion_window_segments = Some(tcp.congestion_window_segments.into());
        self.segment_bytes = Some(tcp.segment_bytes.into());
        self.retransmitted_segments = Some(tcp.retransmitted_segments.into());
        self.sent_segments = Some(tcp.sent_segments.into());
        self.busy_us = Some(tcp.busy_us);
        self.receiver_limited_us = Some(tcp.receiver_limited_us);
        self.send_buffer_limited_us = Some(tcp.send_buffer_limited_us);
        self.delivery_bytes_per_second = Some(tcp.delivery_rate);
        self.receiver_rtt_us = Some(tcp.receiver_rtt_us)
            .filter(|rtt| *rtt > 0)
            .map(u64::from);
        self.received_segments = Some(tcp.received_segments.into());
        self.out_of_order_segments = Some(tcp.out_of_order_segments.into());
        self
    }
}
