//! What network interfaces carried: `/proc/net/dev`; and which one leads out of the site: `/proc/net/route`.

use super::part::Part;
use super::proc_text::{FormatError, lines, numbers};
use serde::{Deserialize, Serialize};

/// What an interface is for. Declared by operators, because nothing in the kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceRole {
    /// To other sites.
    Wan,
    /// To the tape system.
    Hsm,
    /// Inside the site, and the loopback.
    Internal,
}

impl InterfaceRole {
    /// As it is written in configurations, tables and labels.
    pub fn name(self) -> &'static str {
        match self {
            InterfaceRole::Wan => "wan",
            InterfaceRole::Hsm => "hsm",
            InterfaceRole::Internal => "internal",
        }
    }
}

/// What one interface carried: totals, or of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InterfaceTraffic {
    /// Bytes that came, frames with their heads.
    pub received_bytes: u64,
    /// Frames that came.
    pub received_packets: u64,
    /// Frames that came and were lost here: errors, and those for which there was no room.
    pub received_lost: u64,
    /// Bytes that went.
    pub sent_bytes: u64,
    /// Frames that went.
    pub sent_packets: u64,
    /// Frames that did not go: errors, and those for which there was no room.
    pub sent_lost: u64,
}

impl InterfaceTraffic {
    /// What came on top of an earlier total; 0 where the totals began anew.
    pub fn since(self, earlier: InterfaceTraffic) -> InterfaceTraffic {
        self.with(earlier, u64::saturating_sub)
    }

    /// Both together.
    pub fn plus(self, other: InterfaceTraffic) -> InterfaceTraffic {
        self.with(other, u64::saturating_add)
    }

    /// So much of it as a part of its time is of all.
    pub(super) fn part(self, part: Part) -> InterfaceTraffic {
        self.with(self, |count, _| part.of(count))
    }

    fn with(self, other: InterfaceTraffic, join: impl Fn(u64, u64) -> u64) -> InterfaceTraffic {
        InterfaceTraffic {
            received_bytes: join(self.received_bytes, other.received_bytes),
            received_packets: join(self.received_packets, other.received_packets),
            received_lost: join(self.received_lost, other.received_lost),
            sent_bytes: join(self.sent_bytes, other.sent_bytes),
            sent_packets: join(self.sent_packets, other.sent_packets),
            sent_lost: join(self.sent_lost, other.sent_lost),
        }
    }
}

/// All interfaces of `/proc/net/dev` with what they carried since they exist.
pub fn parse(bytes: &[u8]) -> Result<Vec<(&str, InterfaceTraffic)>, FormatError> {
    // Two lines of headings come first, which have no colon.
    let lines = lines(bytes).filter_map(|line| line.split_once(':'));
    let read = lines.map(|(name, counters)| {
        traffic(counters)
            .map(|traffic| (name.trim(), traffic))
            .ok_or(FormatError {
                file: "/proc/net/dev",
                expected: "a name and 16 counters",
            })
    });
    read.collect()
}

fn traffic(text: &str) -> Option<InterfaceTraffic> {
    let mut counters = [0_u64; 16];
    let mut found = numbers(text.split_ascii_whitespace());
    for counter in &mut counters {
        *counter = found.next()?;
    }
    // Eight of what came, eight of what went: bytes, packets, errors, drops …
    let lost = |at: usize| counters[at].saturating_add(counters[at + 1]);
    Some(InterfaceTraffic {
        received_bytes: counters[0],
        received_packets: counters[1],
        received_lost: lost(2),
        sent_bytes: counters[8],
        sent_packets: counters[9],
        sent_lost: lost(10),
    })
}

/// The interface of the default route with the lowest metric, from `/proc/net/route`; `None` when there is none.
pub fn default_route(bytes: &[u8]) -> Result<Option<&str>, FormatError> {
    let mut rows = lines(bytes);
    if !rows.next().is_some_and(|head| head.starts_with("Iface")) {
        return Err(FormatError {
            file: "/proc/net/route",
            expected: "a line of headings",
        });
    }
    let routes = rows.filter_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_default = words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000");
        let metric: u64 = words.get(6)?.parse().ok()?;
        is_default.then_some((metric, words[0]))
    });
    Ok(routes.min().map(|(_, name)| name))
}

/// What `/sys/class/net/X/speed` says, in bytes per second; `None` where it says nothing, as of a loopback.
pub fn parse_speed(text: &str) -> Option<u64> {
    let megabits: u64 = text.trim().parse().ok()?;
    // Drivers that do not know write -1, as a number with or without a sign.
    (megabits > 0 && megabits < u64::from(u32::MAX)).then_some(megabits * 125_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::proc_text::tests::endures;

    const DEV: &[u8] =
        b"Inter-|   Receive                                                |  Transmit\n \
        face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
        lo:   87021     676    0    0    0     0          0         0    87021     676    0    0    0     0       0          0\n  \
        eth0:123456789012 90000 1 2 0 0 0 5 22334455 8000 3 4 0 0 0 0\n";
    const ROUTE: &[u8] =
        b"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth1\t00000000\t010200C0\t0003\t0\t0\t200\t00000000\t0\t0\t0\n\
        eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";

    #[test]
    fn interfaces_have_bytes_and_losses_both_ways_also_without_a_space() {
        let read = parse(DEV).expect("a real file");
        let names: Vec<&str> = read.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["lo", "eth0"]);
        let traffic = read[1].1;
        assert_eq!(traffic.received_bytes, 123_456_789_012);
        assert_eq!((traffic.received_lost, traffic.sent_lost), (3, 7));
        assert_eq!(traffic.sent_packets, 8000);
        assert!(parse(b"eth0: 1 2 3\n").is_err());
    }

    #[test]
    fn the_default_route_of_the_lowest_metric_counts() {
        assert_eq!(default_route(ROUTE), Ok(Some("eth0")));
        let none = ROUTE.split_inclusive(|byte| *byte == b'\n').next();
        assert_eq!(default_route(none.expect("the headings")), Ok(None));
        assert!(default_route(b"").is_err());
    }

    #[test]
    fn a_speed_that_the_driver_does_not_know_is_none() {
        assert_eq!(parse_speed("10000\n"), Some(1_250_000_000));
        for unknown in ["-1\n", "4294967295", "0", ""] {
            assert_eq!(parse_speed(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn damaged_text_is_read_or_refused() {
        endures(DEV, |text| parse(text).map(|all| all.len()));
        endures(ROUTE, |text| default_route(text).map(|name| name.is_some()));
    }
}
