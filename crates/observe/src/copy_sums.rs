//! What the copies that ended in one bin tell together, and the series that follow from it: the same for the record of the
//! transfer service and for rows of other systems.

use penstock_decide::explain::signals::{DataPathStage, LinkSignals, Series, StageSignals};
use penstock_model::Bytes;

/// The order of [`FinishedCopy::stages_us`].
const STAGES: [DataPathStage; 5] = [
    DataPathStage::SourceRead,
    DataPathStage::Network,
    DataPathStage::DestinationWrite,
    DataPathStage::Checksum,
    DataPathStage::Commit,
];

/// Sums of one link in one bin.
#[derive(Debug, Clone, Default)]
pub(crate) struct CopySums {
    pub(crate) files: u32,
    sized: u32,
    bytes: u64,
    overhead_us: u64,
    overheads: u32,
    stages_us: [u64; 5],
    staged: u32,
    streams: u64,
    streamed: u32,
    sockets: u32,
    socket: SocketFigures,
}

/// A copy that ended well.
pub(crate) struct FinishedCopy {
    pub(crate) size: Option<Bytes>,
    /// The time in which its slot moved no bytes.
    pub(crate) overhead_us: Option<u64>,
    /// Reading, network, writing, checksum, commit; `None`: not told.
    pub(crate) stages_us: [Option<u64>; 5],
    /// Connections that it used.
    pub(crate) streams: Option<u32>,
    /// What its sender's kernel says, which alone knows what held it back.
    pub(crate) socket: Option<SocketFigures>,
}

/// Of one data socket, or of several together: segments, and times in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SocketFigures {
    pub(crate) sent_segments: u64,
    pub(crate) retransmitted_segments: u64,
    pub(crate) busy_us: u64,
    pub(crate) receiver_limited_us: u64,
    pub(crate) buffer_limited_us: u64,
    pub(crate) rtt_us: u64,
    pub(crate) rtt_min_us: u64,
}

impl CopySums {
    pub(crate) fn add(&mut self, copy: &FinishedCopy) {
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
        self.staged += u32::from(copy.stages_us.iter().any(Option::is_some));
        if let Some(streams) = copy.streams {
            self.streams += u64::from(streams);
            self.streamed += 1;
        }
        if let Some(socket) = &copy.socket {
            self.sockets += 1;
            self.socket.add(socket);
        }
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
        ];
        for (sum, one) in sums {
            *sum = sum.saturating_add(one);
        }
    }
}

/// Writes what the copies of each bin tell: means of a file, and parts of the time of the sockets.
pub(crate) fn tell(link: &mut LinkSignals, bins: &[&CopySums]) {
    let told = |part: &dyn Fn(&CopySums) -> (f64, f64)| {
        let mean = |bin: &&CopySums| {
            let (sum, of) = part(bin);
            (of > 0.0).then(|| sum / of)
        };
        Series(bins.iter().map(mean).collect())
    };
    let busy = |value: fn(&SocketFigures) -> u64| {
        told(&|bin| (value(&bin.socket) as f64, bin.socket.busy_us as f64))
    };
    link.overhead_seconds = told(&|bin| (bin.overhead_us as f64 / 1e6, f64::from(bin.overheads)));
    link.file_bytes = told(&|bin| (bin.bytes as f64, f64::from(bin.sized)));
    link.streams_used = told(&|bin| (bin.streams as f64, f64::from(bin.streamed)));
    link.tcp.receiver_limited = busy(|socket| socket.receiver_limited_us);
    link.tcp.buffer_limited = busy(|socket| socket.buffer_limited_us);
    link.tcp.window_limited = busy(|socket| {
        let others = socket
            .receiver_limited_us
            .saturating_add(socket.buffer_limited_us);
        socket.busy_us.saturating_sub(others)
    });
    link.tcp.retransmitted = told(&|bin| {
        let (again, sent) = (bin.socket.retransmitted_segments, bin.socket.sent_segments);
        (again as f64, sent as f64)
    });
    let rtt = |value: fn(&SocketFigures) -> u64| {
        told(&|bin| (value(&bin.socket) as f64 / 1e6, f64::from(bin.sockets)))
    };
    link.tcp.rtt_seconds = rtt(|socket| socket.rtt_us);
    link.tcp.rtt_min_seconds = rtt(|socket| socket.rtt_min_us);
    for (number, stage) in STAGES.into_iter().enumerate() {
        // A receiver does not know how long its sender reads, and says 0.
        if bins.iter().any(|bin| bin.stages_us[number] > 0) {
            let times =
                |bin: &&CopySums| (bin.staged > 0).then(|| bin.stages_us[number] as f64 / 1e6);
            let signals = StageSignals {
                busy: Series(bins.iter().map(times).collect()),
                ..StageSignals::default()
            };
            link.stages.insert(stage, signals);
        }
    }
}
