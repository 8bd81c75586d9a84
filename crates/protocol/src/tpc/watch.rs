//! Reading the body of a `202` answer to `COPY`, from whatever storage element wrote it.
//!
//! As tolerant as davix: any case, blanks or tabs before keys, CRLF, unknown keys, a last line without its
//! end.

use super::marker::{Marker, Outcome};
use penstock_model::{
    Bytes, Checksum, MoverReport, PoolName, ProblemCode, StageClocks, StreamUse, StreamsReason,
    TcpSummary,
};
use std::net::SocketAddr;

/// Bytes of a line that are looked at; the rest of a longer one is skipped.
const LINE_LOOKED_AT: usize = 8192;
/// Reasons for the number of streams that are kept: more are nonsense.
const REASONS_MAX: usize = 16;

/// Something that the storage element said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// How far it has come.
    Marker(Box<Marker>),
    /// How it ended. Nothing after it counts.
    Outcome(Outcome),
}

/// Takes the body piece by piece. Memory is bounded by one line and one marker.
#[derive(Debug, Default)]
pub struct StreamParser {
    line: Vec<u8>,
    marker: Option<Marker>,
    ended: bool,
}

impl StreamParser {
    /// At the beginning of a body.
    pub fn new() -> StreamParser {
        StreamParser::default()
    }

    /// The next bytes, cut anywhere. Gives what became complete with them.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Item> {
        let mut items = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, complete) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            let room = LINE_LOOKED_AT - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if complete {
                items.extend(self.take_line());
            }
        }
        items
    }

    /// The body has ended. XRootD writes its last line without an end, so the outcome may come only now; if
    /// none has come at all, the outcome of the copy is unknown.
    pub fn finish(&mut self) -> Option<Item> {
        self.take_line()
    }

    fn take_line(&mut self) -> Option<Item> {
        let line = std::mem::take(&mut self.line);
        if self.ended {
            return None;
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if let Some(outcome) = outcome(text) {
            self.ended = true;
            return Some(Item::Outcome(outcome));
        }
        if has_prefix(text, "perf marker").is_some() {
            self.marker = Some(Marker {
                stripes: 1,
                ..Marker::default()
            });
            return None;
        }
        let marker = self.marker.as_mut()?;
        if text.eq_ignore_ascii_case("end") {
            return self
                .marker
                .take()
                .map(|marker| Item::Marker(Box::new(finished(marker))));
        }
        if let Some((key, value)) = text.split_once(':') {
            set(marker, key.trim(), value.trim());
        }
        None
    }
}

fn finished(mut marker: Marker) -> Marker {
    if let Some(report) = &mut marker.report {
        report.moved = marker.moved.unwrap_or_default();
    }
    marker
}

/// The words of davix; `failed` is the draft's spelling.
fn outcome(line: &str) -> Option<Outcome> {
    const WORDS: [&str; 4] = ["success", "failure", "failed", "aborted"];
    let (word, rest) = WORDS
        .into_iter()
        .find_map(|word| Some((word, has_prefix(line, word)?)))?;
    // A longer word is another word.
    if rest.starts_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    let text = rest.trim_start().trim_start_matches(':').trim();
    let text = text.chars().filter(|c| !c.is_control()).collect();
    Some(match word {
        "success" => Outcome::Success(text),
        "aborted" => Outcome::Aborted(text),
        _ => Outcome::Failure(text),
    })
}

fn has_prefix<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

fn set(marker: &mut Marker, key: &str, value: &str) {
    let number = || leading_number(value);
    match key.to_ascii_lowercase().as_str() {
        "timestamp" => {
            let seconds = number().and_then(|seconds| i64::try_from(seconds).ok());
            marker.timestamp_s = seconds.unwrap_or(marker.timestamp_s);
        }
        "stripe index" => {
            let index = number().and_then(|index| u32::try_from(index).ok());
            marker.stripe_index = index.unwrap_or(marker.stripe_index);
        }
        "stripe bytes transferred" => marker.moved = number().map(Bytes).or(marker.moved),
        "total stripe count" => {
            let stripes = number().and_then(|stripes| u32::try_from(stripes).ok());
            marker.stripes = stripes.unwrap_or(marker.stripes);
        }
        "remoteconnections" => marker.remote = first_address(value).or(marker.remote),
        "penstock-pool" => report(marker).pool = Some(PoolName::new(value)),
        "penstock-checksum" => report(marker).checksum = Checksum::parse(value),
        "penstock-stages" => report(marker).stages = stages(value),
        "penstock-tcp" => report(marker).tcp = Some(tcp(value)),
        // A code of a later version is passed over.
        "penstock-problem" => marker.problem = ProblemCode::by_name(value),
        "penstock-streams" => report(marker).streams = Some(streams(value)),
        _ => {}
    }
}

fn report(marker: &mut Marker) -> &mut MoverReport {
    marker.report.get_or_insert_default()
}

/// Like C's `atol`, with which clients read these values: digits up to the first other character.
fn leading_number(value: &str) -> Option<u64> {
    let digits = value
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(value.len());
    value[..digits].parse().ok()
}

/// `tcp:129.93.3.4:1234,tcp:[2600:900:6::a590]:2345`: the first that is an address.
fn first_address(value: &str) -> Option<SocketAddr> {
    value.split(',').find_map(|connection| {
        let connection = connection.trim();
        has_prefix(connection, "tcp:")
            .unwrap_or(connection)
            .parse()
            .ok()
    })
}

fn stages(value: &str) -> StageClocks {
    let get = |name| listed(value, name);
    StageClocks {
        wait_us: get("wait"),
        source_read_us: get("source_read"),
        network_us: get("network"),
        write_us: get("write"),
        checksum_us: get("checksum"),
        commit_us: get("commit"),
    }
}

fn tcp(value: &str) -> TcpSummary {
    let get = |name| listed(value, name);
    let small = |name| u32::try_from(get(name)).unwrap_or(u32::MAX);
    TcpSummary {
        rtt_us: small("rtt_us"),
        min_rtt_us: small("min_rtt_us"),
        congestion_window_segments: small("congestion_window_segments"),
        segment_bytes: small("segment_bytes"),
        retransmitted_segments: small("retransmitted_segments"),
        sent_segments: small("sent_segments"),
        busy_us: get("busy_us"),
        receiver_limited_us: get("receiver_limited_us"),
        send_buffer_limited_us: get("send_buffer_limited_us"),
        delivery_rate: get("delivery_rate"),
        receiver_rtt_us: small("receiver_rtt_us"),
        received_segments: small("received_segments"),
        out_of_order_segments: small("out_of_order_segments"),
    }
}

/// Words of a later version are left out.
fn streams(value: &str) -> StreamUse {
    let get = |name| listed(value, name);
    let small = |name| u32::try_from(get(name)).unwrap_or(u32::MAX);
    let because = value.split(';').filter_map(|pair| pair.split_once('='));
    let because = because
        .filter(|(key, _)| key.trim() == "because")
        .flat_map(|(_, words)| words.split('+'))
        .filter_map(|word| StreamsReason::parse(word.trim()));
    StreamUse {
        asked: Some(small("asked")).filter(|asked| *asked > 0),
        used: small("used"),
        buffer: Bytes(get("buffer_bytes")),
        writes: get("writes"),
        writes_elsewhere: get("writes_elsewhere"),
        ranges_again: get("ranges_again"),
        because: because.take(REASONS_MAX).collect(),
    }
}

/// A value of `name=number;name=number`; 0 when it is absent, as the fields mean by it.
fn listed(value: &str, name: &str) -> u64 {
    let pairs = value.split(';').filter_map(|pair| pair.split_once('='));
    let mut found = pairs.filter(|(key, _)| key.trim() == name);
    found
        .next()
        .and_then(|(_, number)| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::{write_marker, write_outcome};
    use super::*;
    use proptest::prelude::*;

    fn read(body: &[u8]) -> Vec<Item> {
        let mut parser = StreamParser::new();
        let mut items = parser.push(body);
        items.extend(parser.finish());
        items
    }

    /// `T<timestamp> <stripe>/<stripes> <moved> <remote>` per marker, one outcome per line.
    fn check(body: &str, expected: &[&str]) {
        let show = |item: &Item| match item {
            Item::Marker(m) => {
                let moved = m
                    .moved
                    .map_or("queued".to_owned(), |moved| moved.0.to_string());
                let remote = m.remote.map_or("-".to_owned(), |remote| remote.to_string());
                format!(
                    "T{} {}/{} {moved} {remote}",
                    m.timestamp_s, m.stripe_index, m.stripes
                )
            }
            Item::Outcome(outcome) => format!("{outcome:?}"),
        };
        let got: Vec<String> = read(body.as_bytes()).iter().map(show).collect();
        assert_eq!(got, expected, "{body}");
    }

    #[test]
    fn a_body_of_xrootd_whose_last_line_has_no_end() {
        check(
            "Perf Marker\nTimestamp: 1795241992\nStripe Index: 0\nStripe Bytes Transferred: 17\n\
             Total Stripe Count: 1\nRemoteConnections: tcp:127.0.0.1:28544\nEnd\nsuccess: Created",
            &["T1795241992 0/1 17 127.0.0.1:28544", "Success(\"Created\")"],
        );
    }

    #[test]
    fn a_body_of_dcache_with_blanks_and_keys_of_its_own() {
        check(
            "Perf Marker\r\n    Timestamp: 1537788010\r\n    State: 1\r\n\
             \x20   State description: querying file\r\n\
             \x20   Stripe Index: 0\r\n    Total Stripe Count: 1\r\nEnd\r\n\
             failure: rejected PUT: 409 Conflict\r\n",
            &[
                "T1537788010 0/1 queued -",
                "Failure(\"rejected PUT: 409 Conflict\")",
            ],
        );
    }

    #[test]
    fn old_spellings_are_understood() {
        check(
            "PERF MARKER\n\ttimestamp: 5 \n\tStripe Index: 1\n\tStripe Bytes Transferred: 12abc\n\
             \tTotal Stripe Count: 2\n\tRemoteConnections: what,tcp:[::1]:5\nEND\nFailed: no space",
            &["T5 1/2 12 [::1]:5", "Failure(\"no space\")"],
        );
        check("Success", &["Success(\"\")"]);
        check("ABORTED: by the user\n", &["Aborted(\"by the user\")"]);
    }

    #[test]
    fn nothing_counts_that_is_no_marker_and_no_outcome() {
        check("", &[]);
        check("hello\nEnd\nTimestamp: 3\nsuccessful people\n", &[]);
        check(
            "Perf Marker\nTimestamp: 1\nPerf Marker\nTimestamp: 2\nEnd\n",
            &["T2 0/1 queued -"],
        );
        check("failure: first\nsuccess: second\n", &["Failure(\"first\")"]);
    }

    #[test]
    fn an_endless_line_costs_no_memory_and_is_still_recognised() {
        let mut parser = StreamParser::new();
        parser.push(b"failure: ");
        for _ in 0..1000 {
            assert!(parser.push(&[b'x'; 1000]).is_empty());
            assert!(parser.line.len() <= LINE_LOOKED_AT);
        }
        let Some(Item::Outcome(Outcome::Failure(text))) = parser.finish() else {
            panic!("an outcome was expected")
        };
        assert!(text.len() < LINE_LOOKED_AT);
    }

    fn full_marker() -> Marker {
        Marker {
            timestamp_s: 1_795_241_992,
            stripe_index: 2,
            moved: Some(Bytes(1 << 40)),
            stripes: 4,
            remote: Some("10.1.2.3:443".parse().expect("an address")),
            report: Some(MoverReport {
                moved: Bytes(1 << 40),
                checksum: Checksum::parse("adler32:1a2b3c4d"),
                pool: Some(PoolName::new("pool one")),
                stages: StageClocks {
                    wait_us: 1,
                    source_read_us: 2,
                    network_us: 3,
                    write_us: 4,
                    checksum_us: 5,
                    commit_us: 6,
                },
                tcp: Some(TcpSummary {
                    rtt_us: 1,
                    min_rtt_us: 2,
                    congestion_window_segments: 3,
                    segment_bytes: 4,
                    retransmitted_segments: 5,
                    sent_segments: 6,
                    busy_us: 7,
                    receiver_limited_us: 8,
                    send_buffer_limited_us: 9,
                    delivery_rate: 10,
                    receiver_rtt_us: 11,
                    received_segments: 12,
                    out_of_order_segments: 13,
                }),
                streams: Some(StreamUse {
                    asked: Some(12),
                    used: 10,
                    buffer: Bytes(1 << 27),
                    writes: 11,
                    writes_elsewhere: 12,
                    ranges_again: 13,
                    because: vec![StreamsReason::AsAsked, StreamsReason::SiteLimit],
                }),
                not_offered: Vec::new(),
                verified: None,
            }),
            problem: Some(ProblemCode::PoolOffline),
        }
    }

    #[test]
    fn what_we_write_is_what_we_read() {
        let queued = Marker {
            timestamp_s: 7,
            stripes: 1,
            ..Marker::default()
        };
        let outcome = Outcome::Failure("no space".to_owned());
        let body = [
            write_marker(&queued),
            write_marker(&full_marker()),
            write_outcome(&outcome),
        ]
        .concat();
        let expected = [
            Item::Marker(Box::new(queued)),
            Item::Marker(Box::new(full_marker())),
            Item::Outcome(outcome),
        ];
        assert_eq!(read(body.as_bytes()), expected);
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(
            bytes: Vec<u8>,
            text in "(Perf Marker\n|End\n|Timestamp:|[ -é:;=\n]){0,40}",
        ) {
            read(&bytes);
            read(text.as_bytes());
        }

        #[test]
        fn how_the_body_is_cut_does_not_matter(size in 1_usize..50) {
            let body = write_marker(&full_marker()) + &write_outcome(&Outcome::Success("Created".to_owned()));
            let mut parser = StreamParser::new();
            let mut items = Vec::new();
            for piece in body.as_bytes().chunks(size) {
                items.extend(parser.push(piece));
            }
            prop_assert_eq!(items, read(body.as_bytes()));
        }
    }
}
