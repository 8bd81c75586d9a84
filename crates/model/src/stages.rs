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

/// Of the samples that a smoothed round trip time is made of, each new one weighs so much (RFC 6298 §2.3).
const RTT_GAIN: f64 = 0.125;

/// What the kernel says of a data socket (`TCP_INFO`, linux/tcp.h). Counters run from the opening of the connection, or from
/// the begin of a request on it ([`TcpSummary::since`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TcpSummary {
    /// Smoothed round trip time of what this end sends.
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
    /// Round trip time that this end sees as a receiver: from an acknowledgement to the first data that answers it. 0: not
    /// known.
    #[serde(default)]
    pub receiver_rtt_us: u32,
    /// Data segments received.
    #[serde(default)]
    pub received_segments: u32,
    /// Of these, how many came before one that was sent earlier: that one was lost, or took another way.
    #[serde(default)]
    pub out_of_order_segments: u32,
}

impl TcpSummary {
    /// Several sockets of one copy as one: counters and rates add up, of the round trips the longest and the
    /// shortest stand.
    pub fn plus(self, other: TcpSummary) -> TcpSummary {
        TcpSummary {
            rtt_us: self.rtt_us.max(other.rtt_us),
            min_rtt_us: self.min_rtt_us.min(other.min_rtt_us),
            receiver_rtt_us: self.receiver_rtt_us.max(other.receiver_rtt_us),
            congestion_window_segments: self
                .congestion_window_segments
                .saturating_add(other.congestion_window_segments),
            segment_bytes: self.segment_bytes.max(other.segment_bytes),
            delivery_rate: self.delivery_rate.saturating_add(other.delivery_rate),
            ..self.with_counters(other, u32::saturating_add, u64::saturating_add)
        }
    }

    /// A later request of the same copy, which followed on the same socket or on one that took its place: counters add up,
    /// the rest is as the later one has it.
    pub fn then(self, later: TcpSummary) -> TcpSummary {
        TcpSummary {
            min_rtt_us: self.min_rtt_us.min(later.min_rtt_us),
            ..later.with_counters(self, u32::saturating_add, u64::saturating_add)
        }
    }

    /// What is of the time since `begun`, when the same socket was looked at before. Who receives sends a request or two
    /// in that time, of which a smoothed round trip time takes an eighth each: its own one is told instead.
    pub fn since(self, begun: TcpSummary) -> TcpSummary {
        let since = self.with_counters(begun, u32::saturating_sub, u64::saturating_sub);
        let samples = (since.sent_segments).saturating_sub(since.retransmitted_segments);
        TcpSummary {
            rtt_us: rtt_since(self.rtt_us, begun.rtt_us, samples),
            ..since
        }
    }

    fn with_counters(
        self,
        other: TcpSummary,
        small: fn(u32, u32) -> u32,
        large: fn(u64, u64) -> u64,
    ) -> TcpSummary {
        TcpSummary {
            retransmitted_segments: small(
                self.retransmitted_segments,
                other.retransmitted_segments,
            ),
            sent_segments: small(self.sent_segments, other.sent_segments),
            received_segments: small(self.received_segments, other.received_segments),
            out_of_order_segments: small(self.out_of_order_segments, other.out_of_order_segments),
            busy_us: large(self.busy_us, other.busy_us),
            receiver_limited_us: large(self.receiver_limited_us, other.receiver_limited_us),
            send_buffer_limited_us: large(
                self.send_buffer_limited_us,
                other.send_buffer_limited_us,
            ),
            ..self
        }
    }
}

/// The mean round trip time of the segments sent between two smoothed ones, if each of them was a sample. Where fewer were, it
/// lies between that mean and what was before.
fn rtt_since(now_us: u32, before_us: u32, samples: u32) -> u32 {
    if samples == 0 || before_us == 0 {
        return now_us;
    }
    let samples = i32::try_from(samples).unwrap_or(i32::MAX);
    let weight = 1.0 - (1.0 - RTT_GAIN).powi(samples);
    let before = f64::from(before_us);
    (before + (f64::from(now_us) - before) / weight).max(0.0) as u32
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

    fn receiver(rtt_us: u32, sent_segments: u32) -> TcpSummary {
        TcpSummary {
            rtt_us,
            min_rtt_us: 200_000,
            sent_segments,
            received_segments: 100 * sent_segments,
            out_of_order_segments: sent_segments,
            ..TcpSummary::default()
        }
    }

    #[test]
    fn a_request_on_a_kept_connection_has_a_round_trip_time_of_its_own() {
        // 200 ms, then one sample of 600 ms: 200 + (600 − 200) / 8.
        let told = receiver(250_000, 8).since(receiver(200_000, 7));
        assert_eq!((told.rtt_us, told.sent_segments), (600_000, 1));
        assert_eq!(
            (told.received_segments, told.out_of_order_segments),
            (100, 1)
        );
        let unused = receiver(250_000, 7).since(receiver(250_000, 7));
        assert_eq!(unused.rtt_us, 250_000);
        // Who sends much has forgotten what was before.
        let sender = receiver(250_000, 1007).since(receiver(200_000, 7));
        assert_eq!(sender.rtt_us, 250_000);
    }

    #[test]
    fn requests_of_one_copy_on_one_socket_add_up() {
        let both = receiver(200_000, 2).then(receiver(300_000, 3));
        assert_eq!((both.rtt_us, both.sent_segments), (300_000, 5));
        assert_eq!((both.min_rtt_us, both.received_segments), (200_000, 500));
    }

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
