//! What movers report of a copy that has ended well: where its time went, and what the kernel says of its socket, as far as
//! the end that reports it can know. A source that pushes knows how long it read, and counts its segments; a destination that
//! pulls knows how long it wrote, and of the network that it waited.

use super::World;
use crate::field::LaneUse;
use crate::plan::{Connections, SEGMENT, WindowLimit, loss_at_rate};
use crate::random::Random;
use penstock_model::{Bytes, MoverReport, StageClocks, StreamUse, StreamsReason, TcpSummary};

/// From this part of its capacity on a network has a queue.
const QUEUES_FROM: f64 = 0.85;
/// A full queue holds the bytes of so many round trips.
const QUEUE_ROUND_TRIPS: f64 = 1.5;
/// Segments that a network loses which is not full.
const LOSS_USUAL: f64 = 2e-7;
/// Computing checksums: the part of the time in which bytes move.
const CHECKSUM_PART: f64 = 0.02;
/// The part of its time in which a sender that nothing else holds up waits for the receiver's window.
const WINDOW_PART: f64 = 0.8;
/// The part of its busy time in which a connection is held up by a buffer that may not grow.
const BUFFER_PART: f64 = 0.9;
/// Standard deviation of the logarithm of what is measured.
const NOISE: f64 = 0.05;

/// A file whose last byte has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct MovedFile {
    pub(super) lane: usize,
    pub(super) link: usize,
    pub(super) bytes: f64,
    /// In which its bytes moved.
    pub(super) seconds: f64,
}

impl World<'_> {
    /// Only where a record is kept: it is drawn of a chance of its own, so that a run is the same without it.
    pub(super) fn mover_report(&mut self, copy: &MovedFile) -> Box<MoverReport> {
        let Some(record) = &mut self.record else {
            return Box::default();
        };
        let random = &mut record.random;
        let way = self.field.lane_use(copy.lane);
        let link = &self.links[copy.link];
        let network = link
            .network
            .map(|at| (&self.plan.networks[at], self.network_losses[at]));
        let (rtt, loss, most) = network.map_or((1e-3, 0.0, f64::INFINITY), |(network, loss)| {
            (network.rtt.max(1e-4), loss, network.per_transfer)
        });
        let connections = link.network.and_then(|at| self.connections[at]);
        let flow = Flow {
            rate: copy.bytes / copy.seconds.max(1e-3),
            seconds: copy.seconds,
            rtt: connections.map_or(rtt, |it| it.rtt),
            loss,
            connections,
            is_at_its_window: copy.bytes / copy.seconds.max(1e-3) > 0.95 * most,
        };
        let streams = self.storages[link.ends.1].streams;
        let pushes = self.plan.service.pushes;
        Box::new(MoverReport {
            moved: Bytes(copy.bytes as u64),
            stages: flow.stages(&way, pushes, random),
            tcp: Some(match pushes {
                true => flow.socket_of_sender(copy.bytes, &way, random),
                false => flow.socket_of_receiver(&way, random),
            }),
            streams: Some(StreamUse {
                used: match connections {
                    Some(connections) => connections.count,
                    None if pushes => 1,
                    None => streams,
                },
                because: vec![match pushes {
                    true => StreamsReason::Push,
                    false => StreamsReason::LeftToUs,
                }],
                ..StreamUse::default()
            }),
            ..MoverReport::default()
        })
    }
}

/// A connection with data.
struct Flow {
    rate: f64,
    seconds: f64,
    rtt: f64,
    loss: f64,
    connections: Option<Connections>,
    /// Nothing but its window holds it up.
    is_at_its_window: bool,
}

fn noisy(value: f64, random: &mut Random) -> f64 {
    random.log_normal(value, NOISE)
}

fn microseconds(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

/// The part of its time that a file spends with a pool. Others use the pool, too, so it is served slower than alone.
fn time_with(pool: (f64, f64), rate: f64) -> f64 {
    let (in_use, per_byte) = pool;
    let own = (rate * per_byte).clamp(1e-4, 1.0);
    (own / (1.0 - in_use + own).max(own)).clamp(0.0, 0.98)
}

impl Flow {
    fn stages(&self, way: &LaneUse, pushes: bool, random: &mut Random) -> StageClocks {
        let known = if pushes { way.source } else { way.destination };
        let disk = noisy(self.seconds * time_with(known, self.rate), random).min(self.seconds);
        let mut stages = StageClocks {
            network_us: microseconds(self.seconds - disk),
            checksum_us: microseconds(noisy(self.seconds * CHECKSUM_PART, random)),
            ..StageClocks::default()
        };
        match pushes {
            true => stages.source_read_us = microseconds(disk),
            false => stages.write_us = microseconds(disk),
        }
        stages
    }

    /// With the queues on its way.
    fn round_trip(&self, way: &LaneUse) -> f64 {
        let full = ((way.network - QUEUES_FROM) / (1.0 - QUEUES_FROM)).clamp(0.0, 1.0);
        self.rtt * (1.0 + QUEUE_ROUND_TRIPS * full * full)
    }

    fn socket_of_sender(&self, bytes: f64, way: &LaneUse, random: &mut Random) -> TcpSummary {
        let is_full = way.network > 0.99;
        let loss = match (self.loss > 0.0, is_full) {
            (true, _) => self.loss,
            (false, true) => loss_at_rate(self.rate, self.rtt).max(LOSS_USUAL),
            (false, false) => LOSS_USUAL,
        };
        let segments = (bytes / SEGMENT).clamp(1.0, f64::from(u32::MAX));
        let again = segments * random.log_normal(loss, 0.3);
        // A part of a segment is one by chance.
        let again = again.floor() + f64::from(u8::from(random.happens(again.fract())));
        let destination_is_full = way.destination.0 > 0.99;
        let receiver = match (self.is_at_its_window, destination_is_full) {
            (true, _) | (_, true) => WINDOW_PART,
            (false, false) => 0.05,
        };
        let one = TcpSummary {
            rtt_us: microseconds(noisy(self.round_trip(way), random)) as u32,
            min_rtt_us: microseconds(self.rtt) as u32,
            segment_bytes: SEGMENT as u32,
            sent_segments: segments as u32,
            retransmitted_segments: again as u32,
            busy_us: microseconds(self.seconds).max(1),
            receiver_limited_us: microseconds(self.seconds * noisy(receiver, random).min(1.0)),
            delivery_rate: self.rate as u64,
            ..TcpSummary::default()
        };
        match self.connections {
            None => one,
            Some(several) => self.sockets_of_sender(one, several, random),
        }
    }

    /// Several connections, as sums.
    fn sockets_of_sender(
        &self,
        one: TcpSummary,
        several: Connections,
        random: &mut Random,
    ) -> TcpSummary {
        let segments = f64::from(several.count) * several.window / SEGMENT;
        let busy = self.seconds * f64::from(several.count) * several.fed;
        let held = match several.limit {
            WindowLimit::Buffer => BUFFER_PART,
            WindowLimit::Congestion => 0.0,
        };
        TcpSummary {
            congestion_window_segments: noisy(segments, random).max(1.0) as u32,
            busy_us: microseconds(noisy(busy, random)).max(1),
            receiver_limited_us: 0,
            send_buffer_limited_us: microseconds(busy * held),
            ..one
        }
    }

    /// It has sent a request only.
    fn socket_of_receiver(&self, way: &LaneUse, random: &mut Random) -> TcpSummary {
        let rtt = noisy(self.round_trip(way), random);
        TcpSummary {
            rtt_us: microseconds(rtt) as u32,
            min_rtt_us: microseconds(0.95 * rtt) as u32,
            segment_bytes: SEGMENT as u32,
            sent_segments: 3,
            busy_us: microseconds(rtt).max(1),
            ..TcpSummary::default()
        }
    }
}
