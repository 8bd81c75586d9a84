//! Third-party copy: the headers of a COPY, and the markers of its answer.

use super::{Target, headers, texts};
use penstock_protocol::tpc::{
    CopyRequest, Item, StreamParser, may_be_forwarded, write_marker, write_outcome,
};

pub const HEADERS: Target = Target {
    name: "copy_headers",
    check: check_headers,
    seeds: || {
        texts(&[
            "source: https://se.example.org:8443/a%20b\noverwrite: F\ncredential: none\n\
             transferheaderauthorization: Bearer x\nrequirechecksumverification: true",
            "destination: https://[2001:db8::1]/x?authz=secret\nx-number-of-streams: 8\nscitag: 66\n\
             digest: adler32=03da0195\nclientinfo: job-id=1;file-id=2;retry=0",
            "source: http://user:secret@host/\ntransferheaderhost: other\ntransferheadercontent-length: 3",
        ])
    },
};

pub const MARKERS: Target = Target {
    name: "copy_markers",
    check: check_markers,
    seeds: || {
        texts(&[
            "Perf Marker\nTimestamp: 1795241992\nStripe Index: 0\nStripe Bytes Transferred: 17\n\
             Total Stripe Count: 1\nRemoteConnections: tcp:192.0.2.1:443\nEnd\nsuccess: Created\n",
            "Perf Marker\r\n\tTimestamp: 1\r\nState: Running\r\nEnd\r\nfailure: it broke",
            "Perf Marker\nTimestamp: 9\nStripe Index: 1\nStripe Bytes Transferred: 5\nTotal Stripe Count: 2\n\
             RemoteConnections: tcp:[2001:db8::1]:443\nPenstock-Pool: p1\nPenstock-Checksum: adler32=03da0195\n\
             Penstock-Stages: wait=1 source_read=2 network=3 write=4 checksum=5 commit=6\nEnd\naborted: asked to\n",
        ])
    },
};

fn check_headers(data: &[u8]) {
    let Ok(copy) = CopyRequest::parse(&headers(data)) else {
        return;
    };
    let remote = copy.direction.remote();
    assert!(matches!(remote.scheme(), "https" | "http") && remote.has_host());
    assert!(remote.username().is_empty() && remote.password().is_none());
    for name in copy.transfer_headers.keys() {
        assert!(may_be_forwarded(name), "{name}");
    }
    // Requests that we send ourselves are understood as they were meant.
    assert_eq!(CopyRequest::parse(&copy.to_headers()), Ok(copy));
}

fn check_markers(data: &[u8]) {
    let whole = items([data]);
    // However the network cuts it, the meaning is the same.
    assert_eq!(items(data.chunks(1 + data.len() % 7)), whole);
    let ends = |item: &Item| matches!(item, Item::Outcome(_));
    let outcome = whole.iter().position(ends);
    assert!(
        outcome.is_none_or(|at| at + 1 == whole.len()),
        "nothing counts after the end"
    );
    for item in whole {
        let written = match &item {
            Item::Marker(marker) => write_marker(marker),
            Item::Outcome(outcome) => write_outcome(outcome),
        };
        // What we write never looks like more than one thing to whoever reads it.
        let read = items([written.as_bytes()]);
        assert_eq!(read.len(), 1, "{written}");
        if let (Item::Marker(meant), Item::Marker(understood)) = (&item, &read[0]) {
            assert_eq!(meant.moved, understood.moved, "{written}");
            assert_eq!(meant.timestamp_s, understood.timestamp_s, "{written}");
        }
        assert_eq!(ends(&item), ends(&read[0]), "{written}");
    }
}

fn items<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Item> {
    let mut parser = StreamParser::new();
    let mut items = Vec::new();
    for piece in pieces {
        items.extend(parser.push(piece));
    }
    items.extend(parser.finish());
    items
}
