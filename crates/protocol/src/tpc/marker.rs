//! Writing the body of a `202` answer to `COPY`: performance markers, then one line with the outcome.

use penstock_model::{
    Bytes, MoverReport, ProblemCode, StageClocks, StreamUse, StreamsReason, TcpSummary,
};
use std::fmt::Write;
use std::net::SocketAddr;

/// Bytes that a line may have, its end included: davix reads into a buffer of this size.
pub const LINE_BYTES_MAX: usize = 1023;

/// How far a copy has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marker {
    /// When it was written, in seconds since 1970.
    pub timestamp_s: i64,
    /// Which of the parallel streams it speaks of, from 0. A watcher adds up the last marker of each.
    pub stripe_index: u32,
    /// Bytes that this stream has moved. `None`: the copy waits for its turn.
    pub moved: Option<Bytes>,
    /// How many parallel streams there are.
    pub stripes: u32,
    /// The other end of the data connection.
    pub remote: Option<SocketAddr>,
    /// What the mover measured; in the last marker only.
    pub report: Option<MoverReport>,
    /// Why the copy fails; in the last marker only.
    pub problem: Option<ProblemCode>,
}

/// How a copy ended. The text is one line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The file is there, durably.
    Success(String),
    /// It is not.
    Failure(String),
    /// It was stopped on request.
    Aborted(String),
}

/// A marker exactly as XRootD and StoRM print it. While the copy waits, the stripe keys are left out. Our own
/// keys come last; others ignore keys that they do not know.
pub fn write_marker(marker: &Marker) -> String {
    let mut out = format!("Perf Marker\nTimestamp: {}\n", marker.timestamp_s);
    if let Some(moved) = marker.moved {
        put(
            &mut out,
            format_args!("Stripe Index: {}", marker.stripe_index),
        );
        put(
            &mut out,
            format_args!("Stripe Bytes Transferred: {}", moved.0),
        );
        put(
            &mut out,
            format_args!("Total Stripe Count: {}", marker.stripes),
        );
    }
    if let Some(remote) = marker.remote {
        let address = SocketAddr::new(remote.ip().to_canonical(), remote.port());
        put(&mut out, format_args!("RemoteConnections: tcp:{address}"));
    }
    if let Some(report) = &marker.report {
        write_report(&mut out, report);
    }
    if let Some(code) = marker.problem {
        put(&mut out, format_args!("Penstock-Problem: {}", code.name()));
    }
    out.push_str("End\n");
    out
}

/// The last line of the body. Without it a client must assume that the outcome is unknown.
pub fn write_outcome(outcome: &Outcome) -> String {
    let (word, text) = match outcome {
        Outcome::Success(text) => ("success", text),
        Outcome::Failure(text) => ("failure", text),
        Outcome::Aborted(text) => ("aborted", text),
    };
    one_line(&format!("{word}: {text}"))
}

fn write_report(out: &mut String, report: &MoverReport) {
    if let Some(pool) = &report.pool {
        out.push_str(&one_line(&format!("Penstock-Pool: {pool}")));
    }
    if let Some(checksum) = &report.checksum {
        put(out, format_args!("Penstock-Checksum: {checksum}"));
    }
    put(
        out,
        format_args!("Penstock-Stages: {}", stages(&report.stages)),
    );
    if let Some(tcp) = &report.tcp {
        put(out, format_args!("Penstock-Tcp: {}", tcp_keys(tcp)));
    }
    if let Some(streams) = &report.streams {
        let line = format!("Penstock-Streams: {}", stream_keys(streams));
        out.push_str(&one_line(&line));
    }
}

/// `asked=0`: the client left it to us, as `X-Number-Of-Streams: 0` does.
fn stream_keys(streams: &StreamUse) -> String {
    let numbers = listed(&[
        ("asked", streams.asked.unwrap_or(0).into()),
        ("used", streams.used.into()),
        ("buffer_bytes", streams.buffer.0),
        ("writes", streams.writes),
        ("writes_elsewhere", streams.writes_elsewhere),
        ("ranges_again", streams.ranges_again),
    ]);
    let because: Vec<&str> = streams
        .because
        .iter()
        .copied()
        .map(StreamsReason::name)
        .collect();
    format!("{numbers};because={}", because.join("+"))
}

/// Microseconds per stage.
fn stages(clocks: &StageClocks) -> String {
    listed(&[
        ("wait", clocks.wait_us),
        ("source_read", clocks.source_read_us),
        ("network", clocks.network_us),
        ("write", clocks.write_us),
        ("checksum", clocks.checksum_us),
        ("commit", clocks.commit_us),
    ])
}

fn tcp_keys(tcp: &TcpSummary) -> String {
    listed(&[
        ("rtt_us", tcp.rtt_us.into()),
        ("min_rtt_us", tcp.min_rtt_us.into()),
        (
            "congestion_window_segments",
            tcp.congestion_window_segments.into(),
        ),
        ("segment_bytes", tcp.segment_bytes.into()),
        ("retransmitted_segments", tcp.retransmitted_segments.into()),
        ("sent_segments", tcp.sent_segments.into()),
        ("busy_us", tcp.busy_us),
        ("receiver_limited_us", tcp.receiver_limited_us),
        ("send_buffer_limited_us", tcp.send_buffer_limited_us),
        ("delivery_rate", tcp.delivery_rate),
        ("receiver_rtt_us", tcp.receiver_rtt_us.into()),
        ("received_segments", tcp.received_segments.into()),
        ("out_of_order_segments", tcp.out_of_order_segments.into()),
    ])
}

fn listed(pairs: &[(&str, u64)]) -> String {
    let one = |(name, value): &(&str, u64)| format!("{name}={value}");
    pairs.iter().map(one).collect::<Vec<_>>().join(";")
}

fn put(out: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(out, "{line}").expect("a string takes any text");
}

/// Text that others wrote must not break the line, nor outgrow the reader's buffer.
fn one_line(text: &str) -> String {
    const ELLIPSIS: &str = "…";
    let mut line = String::new();
    for character in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if line.len() + character.len_utf8() + ELLIPSIS.len() + 1 > LINE_BYTES_MAX {
            line.push_str(ELLIPSIS);
            break;
        }
        line.push(character);
    }
    line.truncate(line.trim_end().len());
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_looks_as_xrootd_prints_it() {
        let marker = Marker {
            timestamp_s: 1_537_788_010,
            moved: Some(Bytes(238_745)),
            stripes: 1,
            remote: Some("[2600:900:6::a590]:2345".parse().expect("an address")),
            ..Marker::default()
        };
        assert_eq!(
            write_marker(&marker),
            "Perf Marker\nTimestamp: 1537788010\nStripe Index: 0\nStripe Bytes Transferred: 238745\n\
             Total Stripe Count: 1\nRemoteConnections: tcp:[2600:900:6::a590]:2345\nEnd\n"
        );
        let mapped = Marker {
            remote: Some("[::ffff:10.0.0.1]:443".parse().expect("an address")),
            ..Marker::default()
        };
        assert_eq!(
            write_marker(&mapped),
            "Perf Marker\nTimestamp: 0\nRemoteConnections: tcp:10.0.0.1:443\nEnd\n"
        );
    }

    #[test]
    fn no_line_is_longer_than_davix_reads() {
        let full = MoverReport {
            moved: Bytes(u64::MAX),
            checksum: penstock_model::Checksum::parse(&format!("sha-256:{}", "f".repeat(64))),
            pool: Some(penstock_model::PoolName::new("é".repeat(2000))),
            stages: StageClocks {
                wait_us: u64::MAX,
                source_read_us: u64::MAX,
                network_us: u64::MAX,
                write_us: u64::MAX,
                checksum_us: u64::MAX,
                commit_us: u64::MAX,
            },
            tcp: Some(TcpSummary {
                rtt_us: u32::MAX,
                busy_us: u64::MAX,
                delivery_rate: u64::MAX,
                ..TcpSummary::default()
            }),
            streams: Some(StreamUse {
                asked: Some(u32::MAX),
                used: u32::MAX,
                buffer: Bytes(u64::MAX),
                writes: u64::MAX,
                writes_elsewhere: u64::MAX,
                ranges_again: u64::MAX,
                because: vec![StreamsReason::SizeUnknown; 200],
            }),
            not_offered: Vec::new(),
            verified: None,
        };
        let marker = write_marker(&Marker {
            moved: Some(Bytes(u64::MAX)),
            report: Some(full),
            ..Marker::default()
        });
        let outcome = write_outcome(&Outcome::Failure("日".repeat(1000)));
        for line in marker.split_inclusive('\n').chain([outcome.as_str()]) {
            assert!(
                line.len() <= LINE_BYTES_MAX && line.ends_with('\n'),
                "{line}"
            );
        }
    }

    #[test]
    fn an_outcome_is_one_line_whatever_the_cause_was() {
        let line = write_outcome(&Outcome::Failure(
            "rejected\r\nsuccess: Created\u{0}\u{85}x\n".to_owned(),
        ));
        assert_eq!(line, "failure: rejected  success: Created  x\n");
        assert_eq!(
            write_outcome(&Outcome::Success("Created".to_owned())),
            "success: Created\n"
        );
        assert_eq!(
            write_outcome(&Outcome::Aborted(String::new())),
            "aborted:\n"
        );
    }
}
