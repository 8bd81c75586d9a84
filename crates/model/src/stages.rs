//! Where the time of a transfer went, measured where the bytes passed.

use crate::checksum::Checksum;
use crate::ids::PoolName;
use crate::streams::{StreamUse, WayNotOffered};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// Time spent per stage by one mover, in microseconds. Stages may overlap, so the sum may exceed the wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StageClocks {
    /// Waiting for a mover slot.
    pub wait_us: u64,
    /// Reading the source file from disk (the sender's mover; unknown to a receiver, then 0).
    pub source_read_us: u64,
    /// Waiting for or pushing bytes through the socket.
    pub network_us: u64,
    /// Writing to the destination's disk.
    pub write_us: u64,
    /// Computing checksums.
    pub checksum_us: u64,
    /// From the last byte written to a durable, visible file.
    pub commit_us: u64,
}

impl StageClocks {
    /// Stage names with their microseconds, in the order in which bytes meet them.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("wait", self.wait_us),
            ("source read", self.source_read_us),
            ("network", self.network_us),
            ("write", self.write_us),
            ("checksum", self.checksum_us),
            ("commit", self.commit_us),
        ]
    }

    /// The sum, stage by stage.
    pub fn plus(self, other: StageClocks) -> StageClocks {
        StageClocks {
            wait_us: self.wait_us + other.wait_us,
            source_read_us: self.source_read_us + other.source_read_us,
            network_us: self.network_us + other.network_us,
            write_us: self.write_us + other.write_us,
            checksum_us: self.checksum_us + other.checksum_us,
            commit_us: self.commit_us + other.commit_us,
        }
    }
}

/// What the kernel says of a data socket (`TCP_INFO`, linux/tcp.h). Counters run from the opening of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TcpSummary {
    /// Smoothed round trip time.
    pub rtt_us: u32,
    /// Smallest round trip time seen.
    pub min_rtt_us: u32,
    pub congestion_window_segments: u32,
    /// Bytes per segment that this end sends.
    pub segment_bytes: u32,
    /// Segments sent again.
    pub retransmitted_segments: u32,
    /// Data segments sent.
    pub sent_segments: u32,
    /// Time with data outstanding.
    pub busy_us: u64,
    /// Of that, limited by the receiver's window.
    pub receiver_limited_us: u64,
    /// Of that, limited by our send buffer.
    pub send_buffer_limited_us: u64,
    /// The kernel's latest estimate of delivery, bytes per second.
    pub delivery_rate: u64,
}

impl TcpSummary {
    /// Several sockets of one copy as one: counters and rates add up, of the round trips the longest and the
    /// shortest stand.
    pub fn plus(self, other: TcpSummary) -> TcpSummary {
        TcpSummary {
            rtt_us: self.rtt_us.max(other.rtt_us),
            min_rtt_us: self.min_rtt_us.min(other.min_rtt_us),
            congestion_window_segments: self
                .congestion_window_segments
                .saturating_add(other.congestion_window_segments),
            segment_bytes: self.segment_bytes.max(other.segment_bytes),
            retransmitted_segments: self
                .retransmitted_segments
                .saturating_add(other.retransmitted_segments),
            sent_segments: self.sent_segments.saturating_add(other.sent_segments),
            busy_us: self.busy_us.saturating_add(other.busy_us),
            receiver_limited_us: self
                .receiver_limited_us
                .saturating_add(other.receiver_limited_us),
            send_buffer_limited_us: self
                .send_buffer_limited_us
                .saturating_add(other.send_buffer_limited_us),
            delivery_rate: self.delivery_rate.saturating_add(other.delivery_rate),
        }
    }
}

/// What a mover reports when it has ended well.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MoverReport {
    /// Bytes of file data that passed.
    pub moved: Bytes,
    /// Checksum of these bytes, when one was computed.
    pub checksum: Option<Checksum>,
    /// The pool that took or gave them, when the storage element says so.
    pub pool: Option<PoolName>,
    /// Where the time went.
    pub stages: StageClocks,
    /// State of the data socket at the end; of several sockets, their sum ([`TcpSummary::plus`]).
    pub tcp: Option<TcpSummary>,
    /// How many connections were asked for and used; `None` when the storage element does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<StreamUse>,
    /// Ways of copying that the transfer service tried before, because it prefers them, and that were not
    /// offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_offered: Vec<WayNotOffered>,
    /// What a destination that tells no checksum of its files was compared by; `None` where it tells one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verification>,
}

impl MoverReport {
    /// What of it goes with the state of its transfer.
    pub fn summary(&self) -> CopySummary {
        CopySummary {
            moved: self.moved,
            stages: self.stages,
            streams: self.streams.clone(),
            not_offered: self.not_offered.clone(),
            verified: self.verified,
        }
    }
}

/// What of a mover's report goes with the state of a transfer; all of it stands in the ledger. Earlier versions stored the
/// whole report here, and can read what has these fields.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CopySummary {
    /// Bytes of file data that passed.
    pub moved: Bytes,
    /// Where the time went.
    pub stages: StageClocks,
    /// How many connections were asked for and used; `None` when the storage element does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<StreamUse>,
    /// Ways of copying that were tried before and not offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_offered: Vec<WayNotOffered>,
    /// What a destination that tells no checksum of its files was compared by; `None` where it tells one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verification>,
}

/// What stands for the checksum that a destination does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// The checksum was computed of the bytes on their way, and the destination checked each part against its MD5.
    InPassing,
    /// Only the sizes were compared.
    SizeOnly,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_with_a_state_can_be_read_as_the_whole_report_and_the_other_way_round() {
        let report = MoverReport {
            moved: Bytes(7),
            stages: StageClocks {
                network_us: 3,
                ..StageClocks::default()
            },
            tcp: Some(TcpSummary::default()),
            streams: Some(StreamUse::default()),
            verified: Some(Verification::SizeOnly),
            ..MoverReport::default()
        };
        let summary = report.summary();
        let stored = serde_json::to_string(&report).expect("serialisable");
        let read: CopySummary = serde_json::from_str(&stored).expect("readable");
        assert_eq!(read, summary);
        let stored = serde_json::to_string(&summary).expect("serialisable");
        let read: MoverReport = serde_json::from_str(&stored).expect("readable");
        assert_eq!(
            read,
            MoverReport {
                tcp: None,
                ..report
            }
        );
    }
}
