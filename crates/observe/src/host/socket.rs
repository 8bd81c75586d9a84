//! What held up one connection between two looks at its `TCP_INFO`: the application, the receiver, the own buffer or
//! the network.
//!
//! The kernel's chronographs count in jiffies and are sums since the connection was opened; `busy` is the sum of the
//! time with data outstanding, the two limited times among it (net/ipv4/tcp.c, `tcp_get_info_chrono_stats`).

use penstock_model::TcpSummary;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Segments sent again, of all, above which the network loses them: T-RAT and its successors find rates bound by loss
/// from here on.
const LOSS_SHARE_HIGH: f64 = 1e-4;
/// A round trip so much longer than the shortest one waits in queues.
const ROUND_TRIP_RATIO_HIGH: f64 = 1.5;
/// The share from which the largest one is believed to be the cause.
const SHARE_CLEAR: f64 = 0.5;

/// Shares of an interval; they add up to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SocketShares {
    /// Nothing was outstanding: the application, or the disk behind it, had nothing to send.
    pub idle: f64,
    /// The receiver's window was full: its application, or its disk, did not take more.
    pub receiver: f64,
    /// The own send buffer was full of what had not been acknowledged: it is too small for the path.
    pub send_buffer: f64,
    /// Data was under way and nothing else held it up: the congestion window, or the line itself.
    pub network: f64,
    /// Segments sent again, of those sent; `None` when none was sent.
    pub loss: Option<f64>,
    /// The last smoothed round trip, of the shortest one; `None` while none was measured.
    pub round_trip_ratio: Option<f64>,
}

/// What held a connection up most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketLimit {
    /// The application of this end.
    Application,
    /// The other end.
    Receiver,
    /// The send buffer of this end.
    SendBuffer,
    /// The network, by losing segments.
    Loss,
    /// The network, by queues on the way.
    Queue,
    /// The network, by its window or its speed.
    Path,
}

/// What happened between two summaries of one connection. `None` when they are not of one connection in this order, or
/// at one time.
pub fn shares_between(
    before: &TcpSummary,
    after: &TcpSummary,
    elapsed: Duration,
) -> Option<SocketShares> {
    let busy = after.busy_us.checked_sub(before.busy_us)?;
    let receiver = after
        .receiver_limited_us
        .checked_sub(before.receiver_limited_us)?;
    let send_buffer = after
        .send_buffer_limited_us
        .checked_sub(before.send_buffer_limited_us)?;
    let sent = after.sent_segments.checked_sub(before.sent_segments)?;
    let again = after
        .retransmitted_segments
        .checked_sub(before.retransmitted_segments)?;
    if elapsed.is_zero() {
        return None;
    }
    // The chronographs' jiffies may give a little more than passed; the interval is then what they say.
    let limited = receiver.saturating_add(send_buffer);
    let busy = busy.max(limited);
    let all = (elapsed.as_micros() as f64).max(busy as f64);
    let share = |part: u64| part as f64 / all;
    Some(SocketShares {
        idle: (all - busy as f64) / all,
        receiver: share(receiver),
        send_buffer: share(send_buffer),
        network: share(busy - limited),
        loss: (sent > 0).then(|| f64::from(again) / f64::from(sent)),
        round_trip_ratio: (after.min_rtt_us > 0 && after.min_rtt_us < u32::MAX)
            .then(|| f64::from(after.rtt_us) / f64::from(after.min_rtt_us)),
    })
}

impl SocketShares {
    /// The largest share, and whether it is large enough to be named as the cause.
    pub fn limit(&self) -> (SocketLimit, bool) {
        let network = match (self.loss, self.round_trip_ratio) {
            (Some(loss), _) if loss > LOSS_SHARE_HIGH => SocketLimit::Loss,
            (_, Some(ratio)) if ratio > ROUND_TRIP_RATIO_HIGH => SocketLimit::Queue,
            _ => SocketLimit::Path,
        };
        // Of equal ones the first: what is nearer to this end.
        let mut largest = (SocketLimit::Application, self.idle);
        for (limit, share) in [
            (SocketLimit::SendBuffer, self.send_buffer),
            (SocketLimit::Receiver, self.receiver),
            (network, self.network),
        ] {
            if share > largest.1 {
                largest = (limit, share);
            }
        }
        (largest.0, largest.1 >= SHARE_CLEAR)
    }
}

/// The most that a congestion window lets through, in bytes per second; `None` before the first round trip.
pub fn window_rate(summary: &TcpSummary) -> Option<f64> {
    let window = u64::from(summary.congestion_window_segments) * u64::from(summary.segment_bytes);
    (summary.rtt_us > 0).then(|| window as f64 * 1e6 / f64::from(summary.rtt_us))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(busy_us: u64, receiver_limited_us: u64, send_buffer_limited_us: u64) -> TcpSummary {
        TcpSummary {
            busy_us,
            receiver_limited_us,
            send_buffer_limited_us,
            rtt_us: 100,
            min_rtt_us: 90,
            ..TcpSummary::default()
        }
    }

    fn check(after: TcpSummary, expected: SocketLimit, is_clear: bool) {
        let before = at(5, 3, 2);
        let shares = shares_between(&before, &after, Duration::from_secs(1)).expect("in order");
        assert_eq!(shares.limit(), (expected, is_clear), "{shares:?}");
    }

    #[test]
    fn the_largest_share_names_what_holds_a_connection_up() {
        check(at(300_005, 3, 2), SocketLimit::Application, true);
        check(at(900_005, 600_003, 2), SocketLimit::Receiver, true);
        check(at(900_005, 3, 700_002), SocketLimit::SendBuffer, true);
        check(at(900_005, 3, 2), SocketLimit::Path, true);
        check(
            at(700_005, 200_003, 200_002),
            SocketLimit::Application,
            false,
        );
        let lossy = TcpSummary {
            sent_segments: 10_000,
            retransmitted_segments: 12,
            ..at(900_005, 3, 2)
        };
        check(lossy, SocketLimit::Loss, true);
        let queued = TcpSummary {
            rtt_us: 200,
            ..at(900_005, 3, 2)
        };
        check(queued, SocketLimit::Queue, true);
    }

    #[test]
    fn summaries_of_two_connections_are_not_compared() {
        let elapsed = Duration::from_secs(1);
        assert_eq!(shares_between(&at(9, 0, 0), &at(8, 0, 0), elapsed), None);
        assert_eq!(
            shares_between(&at(9, 0, 0), &at(9, 0, 0), Duration::ZERO),
            None
        );
    }

    /// GridPP storage blog, 27 February 2013: nine streams to BNL with windows of 30 segments before, and one of 1236
    /// after the default buffer was 1 MB; `ss` printed 3.8 and 122.2 Mbps.
    #[test]
    fn the_windows_of_2013_give_the_rates_that_ss_printed() {
        let check = |segments: u32, rtt_us: u32, megabits: f64| {
            let summary = TcpSummary {
                rtt_us,
                congestion_window_segments: segments,
                segment_bytes: 1448,
                ..TcpSummary::default()
            };
            let rate = window_rate(&summary).expect("a round trip") * 8.0 / 1e6;
            assert!((rate - megabits).abs() < 0.1, "{rate} for {segments}");
        };
        check(30, 92_000, 3.8);
        check(21, 104_000, 2.3);
        check(1236, 117_125, 122.2);
        assert_eq!(window_rate(&TcpSummary::default()), None);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_one(
            before in any::<[u32; 3]>(),
            more in any::<[u32; 3]>(),
            elapsed in 1_u64..10_000_000,
        ) {
            let [busy, receiver, buffer] = before.map(u64::from);
            let from = at(busy, receiver, buffer);
            let to = at(busy + u64::from(more[0]), receiver + u64::from(more[1]), buffer + u64::from(more[2]));
            let shares = shares_between(&from, &to, Duration::from_micros(elapsed)).expect("in order");
            let all = [shares.idle, shares.receiver, shares.send_buffer, shares.network];
            prop_assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
            prop_assert!(all.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
        }
    }
}
