//! What copies that ended well tell together: sums of one link over some time. The same sums are kept of each minute and
//! made of single entries and of rows of other systems.

use crate::stages::{MoverReport, TcpSummary};
use crate::units::Bytes;
use std::time::Duration;

/// Bytes of data in a segment of a connection that does not tell.
const SEGMENT_BYTES_USUAL: u64 = 1448;

/// Sums over copies. Each sum has beside it how many copies told that figure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopySums {
    pub files: u64,
    /// Files of known size.
    pub sized: u64,
    pub bytes: u64,
    /// Microseconds in which slots moved no bytes.
    pub overhead_us: u64,
    /// Files of which that is known.
    pub overheads: u64,
    /// Microseconds of each stage, in the order of [`FinishedCopy::stages_us`].
    pub stages_us: [u64; 5],
    /// Files of which a stage is known.
    pub staged: u64,
    /// Connections used.
    pub streams: u64,
    /// Files of which that is known.
    pub streamed: u64,
    /// Connections that clients asked for.
    pub asked: u64,
    /// Files whose client asked for a number.
    pub askers: u64,
    /// Files of which a socket is known.
    pub sockets: u64,
    /// Sums over these sockets.
    pub socket: SocketFigures,
    /// Files of which the window of a connection is known.
    pub windows: u64,
}

/// A copy that ended well.
#[derive(Debug, Clone, Default)]
pub struct FinishedCopy {
    /// Size of the file.
    pub size: Option<Bytes>,
    /// The time in which its slot moved no bytes.
    pub overhead_us: Option<u64>,
    /// Reading, network, writing, checksum, commit; `None`: not told.
    pub stages_us: [Option<u64>; 5],
    /// Connections that it used.
    pub streams: Option<u32>,
    /// Connections that its client asked for.
    pub asked: Option<u32>,
    /// What the kernel of one end says. The sender's alone knows what held it back.
    pub socket: Option<SocketFigures>,
}

/// Of one data socket, or of several together (`TCP_INFO`): segments, and times in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketFigures {
    /// Data segments sent.
    pub sent_segments: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Time with data outstanding.
    pub busy_us: u64,
    /// Of that, limited by the receiver's window.
    pub receiver_limited_us: u64,
    /// Of that, limited by the send buffer.
    pub buffer_limited_us: u64,
    /// Round trip.
    pub rtt_us: u64,
    /// Smallest round trip.
    pub rtt_min_us: u64,
    /// Time in which bytes of the file moved, of each connection. 0: not known.
    pub open_us: u64,
    /// Congestion window of one connection, in bytes. 0: not known.
    pub window_bytes: u64,
    /// Data segments received.
    pub received_segments: u64,
    /// Of these, how many came before one that was sent earlier.
    pub out_of_order_segments: u64,
}

impl FinishedCopy {
    /// What a mover's report tells. `preparation`: from the start of the attempt until both ends had been looked at,
    /// where that is known.
    pub fn of(size: Bytes, report: &MoverReport, preparation: Option<Duration>) -> FinishedCopy {
        let stages = report.stages;
        let stages_us = [
            stages.source_read_us,
            stages.network_us,
            stages.write_us,
            stages.checksum_us,
            stages.commit_us,
        ];
        let idle = |preparation: Duration| {
            let us = u64::try_from(preparation.as_micros()).unwrap_or(u64::MAX);
            us.saturating_add(stages.wait_us)
                .saturating_add(stages.commit_us)
        };
        let streams = report.streams.as_ref();
        let connections = streams.map(|streams| u64::from(streams.used.max(1)));
        // Stages may overlap: the time is that of the longest at least.
        let moving_us = [stages.source_read_us, stages.network_us, stages.write_us];
        let moving_us = moving_us.into_iter().max().unwrap_or(0);
        let open_us = connections.map_or(0, |count| moving_us.saturating_mul(count));
        let of_socket = |tcp: &TcpSummary| match is_sender(tcp, size) {
            true => SocketFigures::of_sender(tcp, connections, open_us),
            false => SocketFigures::of_receiver(tcp),
        };
        FinishedCopy {
            size: Some(size),
            overhead_us: preparation.map(idle),
            stages_us: stages_us.map(|us| Some(us).filter(|us| *us > 0)),
            streams: streams.map(|streams| streams.used),
            asked: streams.and_then(|streams| streams.asked),
            socket: report.tcp.as_ref().and_then(of_socket),
        }
    }
}

/// Whether this end sent the file: its socket sent at least half of it.
fn is_sender(tcp: &TcpSummary, size: Bytes) -> bool {
    let segment_bytes = match tcp.segment_bytes {
        0 => SEGMENT_BYTES_USUAL,
        bytes => bytes.into(),
    };
    tcp.sent_segments > 0
        && u64::from(tcp.sent_segments).saturating_mul(2 * segment_bytes) >= size.0
}

impl SocketFigures {
    /// What the socket of a receiver tells: of what held the bytes back it knows nothing. `None`: no round trip is known.
    ///
    /// Its own request is acknowledged up to a delayed acknowledgement later than it came, and data may come late because
    /// the sender's disk is slow. What both of its round trip times have in common is of the way.
    pub fn of_receiver(tcp: &TcpSummary) -> Option<SocketFigures> {
        let known = [tcp.rtt_us, tcp.receiver_rtt_us].into_iter();
        let rtt_us = known.filter(|rtt| *rtt > 0).min()?;
        Some(SocketFigures {
            rtt_us: rtt_us.into(),
            rtt_min_us: rtt_us.min(tcp.min_rtt_us).into(),
            received_segments: tcp.received_segments.into(),
            out_of_order_segments: tcp.out_of_order_segments.into(),
            ..SocketFigures::default()
        })
    }

    fn of_sender(
        tcp: &TcpSummary,
        connections: Option<u64>,
        open_us: u64,
    ) -> Option<SocketFigures> {
        let window = u64::from(tcp.congestion_window_segments) * u64::from(tcp.segment_bytes);
        (tcp.busy_us > 0).then(|| SocketFigures {
            sent_segments: tcp.sent_segments.into(),
            retransmitted_segments: tcp.retransmitted_segments.into(),
            busy_us: tcp.busy_us,
            receiver_limited_us: tcp.receiver_limited_us,
            buffer_limited_us: tcp.send_buffer_limited_us,
            rtt_us: tcp.rtt_us.into(),
            rtt_min_us: tcp.min_rtt_us.into(),
            open_us,
            window_bytes: connections.map_or(0, |count| window / count),
            ..SocketFigures::default()
        })
    }
}

impl CopySums {
    pub fn add(&mut self, copy: &FinishedCopy) {
        self.files += 1;
        if let Some(size) = copy.size {
            self.sized += 1;
            self.bytes = self.bytes.saturating_add(size.0);
        }
        if let Some(us) = copy.overhead_us {
            self.overheads += 1;
            self.overhead_us = self.overhead_us.saturating_add(us);
        }
        for (sum, us) in self.stages_us.iter_mut().zip(copy.stages_us) {
            *sum = sum.saturating_add(us.unwrap_or(0));
        }
        self.staged += u64::from(copy.stages_us.iter().any(Option::is_some));
        if let Some(streams) = copy.streams {
            self.streams += u64::from(streams);
            self.streamed += 1;
        }
        if let Some(asked) = copy.asked {
            self.asked += u64::from(asked);
            self.askers += 1;
        }
        if let Some(socket) = &copy.socket {
            self.sockets += 1;
            self.windows += u64::from(socket.window_bytes > 0);
            self.socket.add(socket);
        }
    }

    /// Shows every sum, with the name under which it is stored.
    pub(crate) fn each_column(&mut self, show: &mut dyn FnMut(&'static str, &mut u64)) {
        let [source_read, network, write, checksum, commit] = &mut self.stages_us;
        let socket = &mut self.socket;
        show("files", &mut self.files);
        show("sized", &mut self.sized);
        show("bytes", &mut self.bytes);
        show("overhead_us", &mut self.overhead_us);
        show("overheads", &mut self.overheads);
        show("source_read_us", source_read);
        show("network_us", network);
        show("write_us", write);
        show("checksum_us", checksum);
        show("commit_us", commit);
        show("staged", &mut self.staged);
        show("streams", &mut self.streams);
        show("streamed", &mut self.streamed);
        show("streams_asked", &mut self.asked);
        show("askers", &mut self.askers);
        show("sockets", &mut self.sockets);
        show("sent_segments", &mut socket.sent_segments);
        show("retransmitted_segments", &mut socket.retransmitted_segments);
        show("busy_us", &mut socket.busy_us);
        show("receiver_limited_us", &mut socket.receiver_limited_us);
        show("buffer_limited_us", &mut socket.buffer_limited_us);
        show("rtt_us", &mut socket.rtt_us);
        show("rtt_min_us", &mut socket.rtt_min_us);
        show("open_us", &mut socket.open_us);
        show("window_bytes", &mut socket.window_bytes);
        show("windows", &mut self.windows);
        show("received_segments", &mut socket.received_segments);
        show("out_of_order_segments", &mut socket.out_of_order_segments);
    }
}

impl SocketFigures {
    fn add(&mut self, other: &SocketFigures) {
        let sums = [
            (&mut self.sent_segments, other.sent_segments),
            (
                &mut self.retransmitted_segments,
                other.retransmitted_segments,
            ),
            (&mut self.busy_us, other.busy_us),
            (&mut self.receiver_limited_us, other.receiver_limited_us),
            (&mut self.buffer_limited_us, other.buffer_limited_us),
            (&mut self.rtt_us, other.rtt_us),
            (&mut self.rtt_min_us, other.rtt_min_us),
            (&mut self.open_us, other.open_us),
            (&mut self.window_bytes, other.window_bytes),
            (&mut self.received_segments, other.received_segments),
            (&mut self.out_of_order_segments, other.out_of_order_segments),
        ];
        for (sum, one) in sums {
            *sum = sum.saturating_add(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::StageClocks;
    use crate::streams::StreamUse;

    fn socket_with(sent_segments: u32) -> SocketFigures {
        let report = MoverReport {
            tcp: Some(TcpSummary {
                rtt_us: 20_000,
                min_rtt_us: 19_000,
                segment_bytes: 1448,
                sent_segments,
                retransmitted_segments: 1,
                busy_us: 20_000,
                receiver_limited_us: 5_000,
                ..TcpSummary::default()
            }),
            ..MoverReport::default()
        };
        let copy = FinishedCopy::of(Bytes(1_448_000), &report, None);
        copy.socket.expect("told")
    }

    #[test]
    fn the_socket_of_a_receiver_tells_of_its_round_trips_only() {
        let round_trips = SocketFigures {
            rtt_us: 20_000,
            rtt_min_us: 19_000,
            ..SocketFigures::default()
        };
        assert_eq!(socket_with(3), round_trips);
        assert_eq!(socket_with(1000).busy_us, 20_000);
        assert_eq!(socket_with(1000).retransmitted_segments, 1);
    }

    #[test]
    fn a_receiver_tells_what_both_of_its_round_trip_times_have_in_common_and_what_came_out_of_order()
     {
        let tcp = TcpSummary {
            rtt_us: 610_000,
            min_rtt_us: 200_000,
            receiver_rtt_us: 600_000,
            sent_segments: 1,
            received_segments: 700,
            out_of_order_segments: 30,
            ..TcpSummary::default()
        };
        let told = SocketFigures::of_receiver(&tcp).expect("told");
        assert_eq!((told.rtt_us, told.rtt_min_us), (600_000, 200_000));
        assert_eq!(
            (told.received_segments, told.out_of_order_segments),
            (700, 30)
        );
        // The source was slow to open its file: its acknowledgement came late, its data did not.
        let late = TcpSummary {
            rtt_us: 41_000,
            min_rtt_us: 900,
            receiver_rtt_us: 1_000,
            ..tcp
        };
        let told = SocketFigures::of_receiver(&late).expect("told");
        assert_eq!((told.rtt_us, told.rtt_min_us), (1_000, 900));
        assert_eq!(SocketFigures::of_receiver(&TcpSummary::default()), None);
    }

    #[test]
    fn a_sender_of_several_connections_tells_their_window_and_how_long_they_were_open() {
        let report = MoverReport {
            stages: StageClocks {
                source_read_us: 100,
                network_us: 900_000,
                ..StageClocks::default()
            },
            tcp: Some(TcpSummary {
                congestion_window_segments: 90,
                segment_bytes: 1448,
                sent_segments: 1000,
                busy_us: 600_000,
                ..TcpSummary::default()
            }),
            streams: Some(StreamUse {
                used: 3,
                ..StreamUse::default()
            }),
            ..MoverReport::default()
        };
        let mut sums = CopySums::default();
        sums.add(&FinishedCopy::of(Bytes(1_448_000), &report, None));
        assert_eq!(sums.windows, 1);
        assert_eq!(sums.socket.window_bytes, 30 * 1448);
        assert_eq!(sums.socket.open_us, 3 * 900_000);
    }
}
