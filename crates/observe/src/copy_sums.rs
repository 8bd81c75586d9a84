//! The series that follow from what the copies of each bin tell together: the same for the record of the transfer service
//! and for rows of other systems.

use penstock_decide::explain::signals::{DataPathStage, LinkSignals, Series, StageSignals};
use penstock_model::{CopySums, SocketFigures};

/// The order of `FinishedCopy::stages_us`.
const STAGES: [DataPathStage; 5] = [
    DataPathStage::SourceRead,
    DataPathStage::Network,
    DataPathStage::DestinationWrite,
    DataPathStage::Checksum,
    DataPathStage::Commit,
];

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
    link.overhead_seconds = told(&|bin| (bin.overhead_us as f64 / 1e6, bin.overheads as f64));
    link.file_bytes = told(&|bin| (bin.bytes as f64, bin.sized as f64));
    link.streams_asked = told(&|bin| (bin.asked as f64, bin.askers as f64));
    link.streams_used = told(&|bin| (bin.streams as f64, bin.streamed as f64));
    link.tcp.receiver_limited = busy(|socket| socket.receiver_limited_us);
    link.tcp.buffer_limited = busy(|socket| socket.buffer_limited_us);
    link.tcp.window_limited = busy(|socket| {
        let others = socket
            .receiver_limited_us
            .saturating_add(socket.buffer_limited_us);
        socket.busy_us.saturating_sub(others)
    });
    // Connections of which none had anything to send for some time. Their busy times may be a little longer than the file's.
    link.tcp.idle = told(&|bin| {
        let (busy, open) = (bin.socket.busy_us, bin.socket.open_us);
        (open.saturating_sub(busy) as f64, open as f64)
    });
    link.tcp.window_bytes = told(&|bin| (bin.socket.window_bytes as f64, bin.windows as f64));
    link.tcp.retransmitted = told(&|bin| {
        let (again, sent) = (bin.socket.retransmitted_segments, bin.socket.sent_segments);
        (again as f64, sent as f64)
    });
    link.tcp.out_of_order = told(&|bin| {
        let (late, all) = (
            bin.socket.out_of_order_segments,
            bin.socket.received_segments,
        );
        (late as f64, all as f64)
    });
    let rtt = |value: fn(&SocketFigures) -> u64| {
        told(&|bin| (value(&bin.socket) as f64 / 1e6, bin.sockets as f64))
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
