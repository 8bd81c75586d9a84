//! What other systems wrote: logs, messages, captures, datagrams, and files of rows.

use super::{Target, texts};
use penstock_model::Timestamp;
use penstock_model::observation::Attempt;
use penstock_observe::importing::pcap::Datagram;
use penstock_observe::importing::xrootd::MonitoringStreams;
use penstock_observe::importing::{LineFormat, LineImport, LogMapping, Parser, SourceHints, pcap};
use penstock_observe::records::ndjson;
use penstock_observe::records::parquet::{self, ParquetWriter};
use std::io::Cursor;
use std::ops::ControlFlow;

fn told() -> SourceHints {
    SourceHints {
        year: Some(2026),
        at: Some(Timestamp(1)),
        storage_class_is_vo: true,
        ..SourceHints::default()
    }
}

/// Each row can be written and read again.
fn import(parser: Box<dyn Parser>, data: &[u8]) {
    let mut lines = LineImport::new(parser, "fuzz".into(), &told());
    let mut take = |row: Result<penstock_model::observation::Observation, _>| {
        if let Ok(row) = row {
            let line = ndjson::line(&row);
            let again = ndjson::parse(line.as_bytes());
            assert_eq!(again, Ok(Some(row)), "{line}");
        }
    };
    lines.feed(data, &mut take);
    lines.finish(&mut take);
}

pub const FTS: Target = Target {
    name: "records_fts",
    check: |data| import(LineFormat::Fts.parser(&told()), data),
    seeds: || {
        texts(&[
            r#"{"tr_id":"x","t_final_transfer_state":"Error","tr_timestamp_complete":5,"src_url":"https://a:1/b","tr_error_scope":"SOURCE","t__error_message":"no 5"}"#,
            r#"{"message":"m","id":"1","body":{"file_state":"STAGING","timestamp":6,"submit_time":1}}"#,
            r#"{"source_se":"a","dest_se":"b","submitted_count":3,"success_rate":97.5,"timestamp":9}"#,
        ])
    },
};

pub const DCACHE: Target = Target {
    name: "records_dcache",
    check: |data| import(LineFormat::Dcache.parser(&told()), data),
    seeds: || {
        texts(&[
            r#"11.22 19:04:51 [pool:tp07:transfer] [A1,21] [/d/f] atlas:r@h 21 41 false {Http-1.1:192.0.2.17:0} [door:D:17] {0:""}"#,
            r#"11.22 19:03:02 [pool:tp07:restore] [A1,21] [/d/f1] a:r@h 31 54 {1:"x {2:"}"#,
            r#"11.22 19:03:03 [door:D:request] ["alice":1:2:192.0.2.17,10.0.0.1] [A1,5] [/d/f1] <Unknown> 77 3 {0:""}"#,
            r#"{"msgType":"transfer","date":"2026-11-22T19:04:51.1Z","status":{"code":1,"msg":"x"},"isWrite":"read","transferSize":7,"transferTime":9}"#,
        ])
    },
};

pub const RUCIO: Target = Target {
    name: "records_rucio",
    check: |data| import(LineFormat::Rucio.parser(&told()), data),
    seeds: || {
        texts(&[
            r#"{"eventType":"download","filename":"f","transferStart":1.5,"transferEnd":2.25,"clientState":"DONE"}"#,
            r#"{"event_type":"transfer-failed","created_at":"2026-11-21 06:19:52.12","payload":{"src-url":"https://a:1/x","reason":"r"}}"#,
        ])
    },
};

pub const CAPTURES: Target = Target {
    name: "records_captures",
    check: |data| {
        import(LineFormat::Ss.parser(&told()), data);
        import(LineFormat::Sar.parser(&told()), data);
    },
    seeds: || {
        texts(&[
            "ESTAB 0 41 1.2.3.4:443 5.6.7.8:41\n\t cubic rtt:98.2/0.4 busy:8ms send 1Mbps retrans:0/12\n",
            "Linux 6 (h) 11/22/2026\n11:59:50 PM IFACE rxkB/s\n11:59:55 PM eth0 10.00\n",
        ])
    },
};

const MAPPING: &str = "[[rule]]\nrow = \"attempt\"\npairs = { MSG = \"done\" }\ncolumns = { at = \"^\", mount_us = \"t\", bytes_moved = \"n\" }\n\
    units = { mount_us = \"s\" }\ntime = \"%b %d %H:%M:%S.%f\"\n\n[[rule]]\nrow = \"incident\"\n\
    expression = '^(?P<at>\\d+) (?P<detail>.*)$'\ntime = \"%s\"\n";

pub const MAPPED: Target = Target {
    name: "records_mapped",
    check: |data| {
        let mapping = LogMapping::parse(MAPPING).expect("it is one");
        import(mapping.parser(&told()), data);
        if let Ok(text) = std::str::from_utf8(data)
            && let Ok(mapping) = LogMapping::parse(text)
        {
            import(
                mapping.parser(&told()),
                b"Nov 22 19:04:51.1 x: MSG=\"done\" t=\"1\" n=\"7\"\n5 x\n",
            );
        }
    },
    seeds: || {
        texts(&[
            "Nov 22 19:04:51.1 x: MSG=\"done\" t=\"62.1\" n=\"7\"\n5 broken\n",
            MAPPING,
        ])
    },
};

pub const XROOTD: Target = Target {
    name: "records_xrootd",
    check: |data| {
        let mut monitoring = MonitoringStreams::new();
        let mut rows = Vec::new();
        let sender = ([192, 0, 2, 7], 1094).into();
        for datagram in data.split(|byte| *byte == b'\xfe') {
            let _ = monitoring.take(
                Datagram {
                    at: Timestamp(1),
                    sender,
                    payload: datagram,
                },
                &mut rows,
            );
        }
        let _ = pcap::each_datagram(data, |datagram| {
            let _ = monitoring.take(datagram, &mut rows);
        });
    },
    seeds: || {
        let user = b"u\x00\x00\x24\x6a\x00\x00\x00\x00\x00\x00\x09xroot/al.1:2@h\n&o=atlas";
        let files = b"f\x01\x00\x50\x6a\x00\x00\x00\x02\x01\x00\x18\x00\x00\x00\x02\x6a\x00\x10\x00\x6a\x00\x10\x05\x00\x00\x00\x00\x00\x00\x00\x01\
            \x01\x03\x00\x20\x00\x00\x00\x11\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09/a/b\x00\x00\x00\x00\x00\x00\x00\x00\
            \x04\x00\x00\x08\x00\x00\x00\x09\x04\x00\x00\x08\x00\x00\x00\x09";
        vec![user.to_vec(), files.to_vec()]
    },
};

pub const FILES: Target = Target {
    name: "records_files",
    check: |data| {
        let _ = parquet::family_of(&mut Cursor::new(data));
        let _ = parquet::read(&mut Cursor::new(data), |_: &Attempt| {
            ControlFlow::Continue(())
        });
        import(LineFormat::Records.parser(&told()), data);
    },
    seeds: || {
        let mut writer = ParquetWriter::new(Vec::new()).expect("memory");
        let row = Attempt {
            is_local: Some(true),
            ..Attempt::default()
        };
        for _ in 0..3 {
            writer.push(&row).expect("memory");
        }
        vec![
            writer.finish().expect("memory"),
            ndjson::line(&row.into()).into_bytes(),
            ndjson::heading().into_bytes(),
        ]
    },
};
