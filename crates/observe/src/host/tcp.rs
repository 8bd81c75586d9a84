//! What TCP did on the whole host: `/proc/net/snmp` and `/proc/net/netstat` (kernel: networking/snmp_counter.rst).

use super::part::Part;
use super::proc_text::{FormatError, lines};
use serde::{Deserialize, Serialize};

/// Segments of all connections: totals since the boot, or of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TcpActivity {
    /// Segments that came.
    pub received_segments: u64,
    /// Segments that went, without those that went again.
    pub sent_segments: u64,
    /// Segments that went again.
    pub retransmitted_segments: u64,
    /// Times that nothing was heard until a timer ended.
    pub timeouts: u64,
    /// Connections that came and found a full queue.
    pub refused_connections: u64,
}

impl TcpActivity {
    /// What came on top of an earlier total; 0 where the totals began anew.
    pub fn since(self, earlier: TcpActivity) -> TcpActivity {
        self.with(earlier, u64::saturating_sub)
    }

    /// Both together.
    pub fn plus(self, other: TcpActivity) -> TcpActivity {
        self.with(other, u64::saturating_add)
    }

    /// So much of it as a part of its time is of all.
    pub(super) fn part(self, part: Part) -> TcpActivity {
        self.with(self, |count, _| part.of(count))
    }

    fn with(self, other: TcpActivity, join: impl Fn(u64, u64) -> u64) -> TcpActivity {
        TcpActivity {
            received_segments: join(self.received_segments, other.received_segments),
            sent_segments: join(self.sent_segments, other.sent_segments),
            retransmitted_segments: join(self.retransmitted_segments, other.retransmitted_segments),
            timeouts: join(self.timeouts, other.timeouts),
            refused_connections: join(self.refused_connections, other.refused_connections),
        }
    }
}

/// A value of a group, whose first line names what stands at the same place of its second.
fn value(bytes: &[u8], group: &str, name: &str) -> Option<u64> {
    let of_group = |line: &str| line.strip_prefix(group)?.strip_prefix(':').map(str::len);
    let mut found = lines(bytes).filter(|line| of_group(line).is_some());
    let (names, values) = (found.next()?, found.next()?);
    let at = names.split_ascii_whitespace().position(|one| one == name)?;
    values.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// `/proc/net/snmp`: segments.
pub fn parse_snmp(bytes: &[u8]) -> Result<TcpActivity, FormatError> {
    let read = || {
        Some(TcpActivity {
            received_segments: value(bytes, "Tcp", "InSegs")?,
            sent_segments: value(bytes, "Tcp", "OutSegs")?,
            retransmitted_segments: value(bytes, "Tcp", "RetransSegs")?,
            ..TcpActivity::default()
        })
    };
    read().ok_or(FormatError {
        file: "/proc/net/snmp",
        expected: "InSegs, OutSegs and RetransSegs of Tcp",
    })
}

/// `/proc/net/netstat`: timeouts and full queues.
pub fn parse_netstat(bytes: &[u8]) -> Result<TcpActivity, FormatError> {
    let read = || {
        Some(TcpActivity {
            timeouts: value(bytes, "TcpExt", "TCPTimeouts")?,
            refused_connections: value(bytes, "TcpExt", "ListenDrops")?,
            ..TcpActivity::default()
        })
    };
    read().ok_or(FormatError {
        file: "/proc/net/netstat",
        expected: "TCPTimeouts and ListenDrops of TcpExt",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::proc_text::tests::endures;

    const SNMP: &[u8] = b"Ip: Forwarding DefaultTTL\nIp: 1 64\n\
        Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs\n\
        Tcp: 1 200 120000 -1 55 20 3 2 4 70001 80002 90\nUdp: InDatagrams\nUdp: 7\n";
    const NETSTAT: &[u8] =
        b"TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPTimeouts\nTcpExt: 0 5 6 77\n\
        IpExt: InOctets\nIpExt: 9\n";

    #[test]
    fn values_are_found_by_the_names_above_them() {
        let (segments, others) = (
            parse_snmp(SNMP).expect("a real file"),
            parse_netstat(NETSTAT).expect("a real file"),
        );
        let read = segments.plus(others);
        let expected = TcpActivity {
            received_segments: 70_001,
            sent_segments: 80_002,
            retransmitted_segments: 90,
            timeouts: 77,
            refused_connections: 6,
        };
        assert_eq!(read, expected);
        assert!(parse_snmp(NETSTAT).is_err() && parse_netstat(SNMP).is_err());
    }

    #[test]
    fn damaged_text_is_read_or_refused() {
        endures(SNMP, parse_snmp);
        endures(NETSTAT, parse_netstat);
    }
}
