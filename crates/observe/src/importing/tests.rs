use super::*;
use penstock_model::observation::{Attempt, Operation, Outcome, Sample};
use penstock_model::{Bytes, Phase, Side};

fn import(
    parser: Box<dyn Parser>,
    told: &SourceHints,
    text: &str,
) -> (Vec<Observation>, Vec<String>) {
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    let mut import = LineImport::new(parser, "test".into(), told);
    let mut take = |row: Result<Observation, InvalidLine>| match row {
        Ok(row) => rows.push(row),
        Err(why) => wrong.push(why.to_string()),
    };
    import.feed(text.as_bytes(), &mut take);
    import.finish(&mut take);
    (rows, wrong)
}

fn told() -> SourceHints {
    SourceHints {
        year: Some(2026),
        storage_class_is_vo: true,
        at: Some(Timestamp(5)),
        ..SourceHints::default()
    }
}

fn attempts(format: LineFormat, text: &str) -> Vec<Attempt> {
    let (rows, wrong) = import(format.parser(&told()), &told(), text);
    assert_eq!(wrong, [""; 0]);
    let attempts = rows.into_iter().map(|row| match row {
        Observation::Attempt(row) => *row,
        other => panic!("no attempt: {other:?}"),
    });
    attempts.collect()
}

fn samples(format: LineFormat, text: &str) -> Vec<Sample> {
    let (rows, wrong) = import(format.parser(&told()), &told(), text);
    assert_eq!(wrong, [""; 0]);
    let samples = rows.into_iter().map(|row| match row {
        Observation::Sample(row) => *row,
        other => panic!("no sample: {other:?}"),
    });
    samples.collect()
}

const COMPLETE: &str = r#"{"tr_id":"2026-11-21-0619__a__b__7__j","job_id":"j","file_id":7,"vo":"atlas","src_url":"https://a.example:8443/x/f?t=1","dst_url":"davs://b.example/y","t_final_transfer_state":"Error","t_error_code":110,"tr_error_scope":"DESTINATION","t_failure_phase":"TRANSFER","t__error_message":"timeout after 31 s","tr_bt_transfered":17,"f_size":0,"tr_timestamp_start":1000,"tr_timestamp_complete":"2500","timestamp_tr_st":0,"retry":2,"nstreams":4,"ipver":"ipv6","activity":"T0"}"#;

#[test]
fn a_failed_attempt_of_fts_is_told_with_side_and_phase() {
    let wrapped = format!(
        "{{\"message\":\"transfer.fts_monitoring_complete\",\"id\":\"1\",\"body\":{COMPLETE}}}"
    );
    for text in [COMPLETE.to_owned(), format!("{COMPLETE}\u{4}\n"), wrapped] {
        let rows = attempts(LineFormat::Fts, &text);
        let [row] = rows.as_slice() else {
            panic!("one row: {rows:?}");
        };
        assert_eq!((row.at, row.line), (Timestamp(2500), 1));
        assert_eq!(row.source_host.as_deref(), Some("https://a.example"));
        assert_eq!(row.source_path.as_deref(), Some("/x/f"));
        assert_eq!(row.outcome, Some(Outcome::Failure));
        assert_eq!(
            (row.side, row.phase),
            (Some(Side::Destination), Some(Phase::Transfer))
        );
        assert_eq!(
            row.fingerprint.as_deref(),
            Some("DESTINATION [110] timeout after # s")
        );
        assert_eq!(row.bytes_moved, Some(Bytes(17)));
        assert_eq!(
            (row.file_bytes, row.first_byte),
            (None, None),
            "0 stands for unknown"
        );
        assert_eq!((row.attempt_number, row.ip_version), (Some(3), Some(6)));
    }
}

#[test]
fn other_messages_of_fts_are_told_apart() {
    let text = concat!(
        r#"{"transfer_id":"t","timestamp":5,"job_id":"j","file_id":7,"vo":"cms","src_url":"https://a/x","dst_url":"https://b/x"}"#,
        "\n",
        r#"{"file_state":"FINISHED","timestamp":6,"job_id":"j","file_id":7,"vo_name":"cms","submit_time":1,"staging_start":0}"#,
        "\n",
    );
    let rows = attempts(LineFormat::Fts, text);
    assert_eq!(rows[0].started, Some(Timestamp(5)));
    assert_eq!(rows[1].state.as_deref(), Some("FINISHED"));
    assert_eq!(
        (rows[1].submitted, rows[1].staging_started),
        (Some(Timestamp(1)), None)
    );
    let text = r#"{"source_se":"https://a","dest_se":"https://b","submitted_count":3,"active_count":2,"connections":20,"success_rate":97.5,"throughput":1e6,"rationale":"x","timestamp":9}"#;
    let rows = samples(LineFormat::Fts, text);
    assert_eq!(
        (rows[0].limit, rows[0].success_permille),
        (Some(20), Some(975))
    );
    assert_eq!(
        (rows[0].queued, rows[0].bytes_per_second),
        (Some(3), Some(1_000_000))
    );
    let (_, wrong) = import(LineFormat::Fts.parser(&told()), &told(), "\n{}\n[1]\n");
    assert_eq!(
        wrong,
        [
            "line 2: it is not a start, complete, state or queue_state message",
            "line 3: it is no JSON object"
        ]
    );
}

#[test]
fn lines_of_dcache_are_taken_apart_from_the_right() {
    let text = concat!(
        "## transfer $date$ [$cellType$:$cellName$:$type$]\n",
        r#"11.22 19:04:51 [pool:tp07:transfer] [0000A1,2147483648] [/d/f ] [1: {x]] atlas:raw@hsm1 2147483648 41873 false {Http-1.1:192.0.2.17:0} [door:Dav1@web:AAYx:17] {0:""}"#,
        "\n",
        r#"11.22 19:03:02 [pool:tp07:restore] [0000A1,2147483648] [/d/f1] atlas:raw@hsm1 312450 5400210 {0:""}"#,
        "\n",
        r#"11.22 19:03:03 [door:Dav1@web:request] ["alice":1:2:192.0.2.17,10.0.0.1] [0000A1,5] [/d/f1] <Unknown> 77 3 {10006:"Timeout {1:"} here"}"#,
        "\n",
        r#"11.22 19:03:04 [pool:tp08:transfer] [0000A2,9] cms:x@h 9 10 true {GFtp-1.0:h:0} [pool:tp07] {1:"broken 77"}"#,
        "\n",
        "11.22 19:03:04 [pool:tp08:hit] [0000A2,9] [Unknown] cms:x@h false {x} {0:\"\"}\n",
    );
    let rows = attempts(LineFormat::Dcache, text);
    assert_eq!(rows.len(), 4);
    let read = &rows[0];
    assert_eq!(read.operation, Operation::Read);
    assert_eq!(read.source_path.as_deref(), Some("/d/f ] [1: {x]"));
    assert_eq!(read.bytes_read, Some(Bytes(2_147_483_648)));
    assert_eq!(read.at.to_fts(), "2026-11-22T19:04:51");
    assert_eq!(read.started.map(|at| at.0), Some(read.at.0 - 41_873));
    assert_eq!(read.derived.as_deref(), Some("started"));
    assert_eq!(read.vo.as_ref().map(|vo| vo.as_str()), Some("atlas"));
    assert_eq!((read.client.as_deref(), read.line), (Some("192.0.2.17"), 2));
    let recall = &rows[1];
    assert_eq!(
        (recall.operation, recall.wait_us),
        (Operation::Recall, Some(5_400_210_000))
    );
    assert_eq!(recall.bytes_moved, Some(Bytes(2_147_483_648)));
    let request = &rows[2];
    assert_eq!(request.operation, Operation::Request);
    assert_eq!(
        request.user.as_ref().map(|user| user.as_str()),
        Some("alice")
    );
    assert_eq!(
        (request.outcome, request.error_code),
        (Some(Outcome::Failure), Some(10_006))
    );
    assert_eq!(request.vo, None);
    let copy = &rows[3];
    assert_eq!(
        (copy.operation, &copy.source_path),
        (Operation::PoolCopy, &None)
    );
    assert_eq!(copy.fingerprint.as_deref(), Some("UNKNOWN [1] broken #"));
}

#[test]
fn lines_of_dcache_that_become_no_row_are_told_but_for_those_without_bytes() {
    let text = concat!(
        "11.22 19:03:04 [pool:tp08:hit] [0000A2,9] [Unknown] cms:x@h false {x} {0:\"\"}\n",
        "11.22 19:03:05 [pool:tp08:move] [0000A2,9] [/d/f] cms:x@h 9 10 {0:\"\"}\n",
        "{\"msgType\":\"hit\",\"date\":\"2026-11-22T19:04:51Z\"}\n",
        "{\"msgType\":\"move\",\"date\":\"2026-11-22T19:04:51Z\"}\n",
    );
    let (rows, wrong) = import(LineFormat::Dcache.parser(&told()), &told(), text);
    assert!(rows.is_empty());
    let what = "its kind 'move' is none that dCache is known to write";
    assert_eq!(
        wrong,
        [format!("line 2: {what}"), format!("line 4: {what}")]
    );
}

#[test]
fn a_line_of_dcache_costs_as_much_as_it_is_long_whatever_its_braces_are() {
    let head = "11.22 19:04:51 [pool:tp07:transfer] [A1,21] [/d/f] ";
    let braces = "{".repeat(1_000_000);
    let codes = "{0:\"".repeat(200_000);
    let begun = std::time::Instant::now();
    for line in [&braces, &codes] {
        let text = format!("{head}{line} {{0:\"\"}}\n");
        let (rows, wrong) = import(LineFormat::Dcache.parser(&told()), &told(), &text);
        assert_eq!((rows.len(), wrong.len()), (0, 1));
    }
    // One look at the rest of the line for each brace would take minutes.
    assert!(begun.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn dcache_tells_the_same_in_json() {
    let text = r#"{"version":"1.0","msgType":"transfer","date":"2026-11-22T19:04:51.120+01:00","cellName":"tp07","cellType":"pool","status":{"code":0,"msg":""},"session":"door:x","initiator":"door:x","subject":["UidPrincipal[1]","FQANPrincipal[/cms/Role=x,primary]"],"pnfsid":"0000A1","billingPath":"/b","transferPath":"/t","fileSize":10,"transferSize":7,"transferTime":1000,"isWrite":"write","protocolInfo":{"protocol":"Http","host":"192.0.2.1","port":1}}"#;
    let rows = attempts(LineFormat::Dcache, text);
    let row = &rows[0];
    assert_eq!(
        (row.operation, row.bytes_written),
        (Operation::Write, Some(Bytes(7)))
    );
    assert_eq!(row.at.to_fts(), "2026-11-22T18:04:51");
    assert_eq!(row.vo.as_ref().map(|vo| vo.as_str()), Some("cms"));
    assert_eq!(row.destination_path.as_deref(), Some("/t"));
}

#[test]
fn a_date_without_a_year_is_refused_unless_somebody_tells_it() {
    let line = r#"11.22 19:03:02 [pool:tp07:restore] [A,2] [/d/f1] a:b@h 3 5 {0:""}"#;
    let nothing = SourceHints::default();
    let (rows, wrong) = import(LineFormat::Dcache.parser(&nothing), &nothing, line);
    assert_eq!(rows, []);
    assert_eq!(wrong, ["line 1: the date has no year: give it with --year"]);
}

#[test]
fn traces_and_messages_of_rucio_are_told() {
    let text = concat!(
        r#"{"eventType":"download","scope":"mc","filename":"f1","localSite":"A","remoteSite":"A","filesize":7,"transferStart":1.5,"transferEnd":2.25,"clientState":"DONE","account":"bob","uuid":"u"}"#,
        "\n",
        r#"{"event_type":"transfer-failed","created_at":"2026-11-21 06:19:52.12","payload":{"request-id":"r1","src-url":"https://a:1/x","dst-url":"https://b/y","file-size":9,"bytes":9,"reason":"no space left","started_at":"2026-11-21 06:00:00","activity":"Data Consolidation"}}"#,
    );
    let rows = attempts(LineFormat::Rucio, text);
    assert_eq!(
        (rows[0].operation, rows[0].is_local),
        (Operation::Read, Some(true))
    );
    assert_eq!(
        (rows[0].started, rows[0].at),
        (Some(Timestamp(1500)), Timestamp(2250))
    );
    assert_eq!(rows[0].file.as_deref(), Some("mc:f1"));
    assert_eq!(
        (rows[1].outcome, rows[1].bytes_moved),
        (Some(Outcome::Failure), None)
    );
    assert_eq!(rows[1].copy.as_deref(), Some("r1"));
}

#[test]
fn captures_of_people_are_told() {
    let text = "State Recv-Q Send-Q Local Peer\nESTAB 0 4194304 192.0.2.5:443 198.51.100.9:41022 timer:(on,204ms,0) uid:99\n\t cubic rtt:98.2/0.4 mss:8948 cwnd:310 bytes_acked:91234567 busy:8000ms rwnd_limited:6400ms(80.0%) delivery_rate 80Mbps retrans:0/12\n";
    let rows = samples(LineFormat::Ss, text);
    let [row] = rows.as_slice() else {
        panic!("one row: {rows:?}");
    };
    assert_eq!(
        (row.rtt_us, row.congestion_window_segments),
        (Some(98_200), Some(310))
    );
    assert_eq!(
        (row.receiver_limited_us, row.retransmitted_segments),
        (Some(6_400_000), Some(12))
    );
    assert_eq!(
        (row.bytes_per_second, row.send_queue_bytes),
        (Some(10_000_000), Some(Bytes(4_194_304)))
    );
    let text = "Linux 6.1.0 (pool7) \t11/22/2026 \t_x86_64_\t(8 CPU)\n\n11:59:50 PM IFACE rxpck/s txpck/s rxkB/s txkB/s %ifutil\n11:59:55 PM eth0 10.00 5.00 1000.00 2.00 8.00\n12:00:05 AM eth0 1.00 1.00 10.00 20.00 0.10\nAverage: eth0 1 1 1 1 1\n";
    let rows = samples(LineFormat::Sar, text);
    assert_eq!(
        (rows[0].interval_ms, rows[0].bytes_in),
        (Some(5000), Some(Bytes(5_120_000)))
    );
    assert_eq!(
        (rows[0].busy_permille, rows[0].server.as_deref()),
        (Some(80), Some("pool7"))
    );
    assert_eq!(rows[1].at.to_fts(), "2026-11-23T00:00:05");
    assert_eq!(rows[1].interval_ms, Some(10_000));
}

#[test]
fn no_interval_reaches_over_a_restart_or_from_one_file_into_the_next() {
    let head = "Linux 6.1.0 (pool7) 2026-11-22 _x86_64_ (8 CPU)\n";
    let row = |time: &str, rate: &str| format!("{time} eth0 {rate} 0.00\n");
    let names = |time: &str| format!("{time} IFACE rxkB/s txkB/s\n");
    let restarted = [
        head.to_owned(),
        names("10:00:00"),
        row("10:10:00", "1.00"),
        "12:00:00     LINUX RESTART\t(8 CPU)\n".to_owned(),
        names("12:00:00"),
        row("12:10:00", "100000.00"),
    ];
    let joined = [
        head.to_owned(),
        names("10:00:00"),
        row("10:10:00", "1.00"),
        head.replace("22", "23"),
        names("12:00:00"),
        row("12:10:00", "100000.00"),
    ];
    for text in [restarted, joined] {
        let rows = samples(LineFormat::Sar, &text.concat());
        let intervals: Vec<_> = rows.iter().map(|row| row.interval_ms).collect();
        assert_eq!(intervals, [Some(600_000); 2]);
        assert_eq!(rows[1].bytes_in, Some(Bytes(61_440_000_000)));
    }
}

const MAPPING: &str = r#"
[[rule]]
row = "attempt"
pairs = { MSG = "Tape thread complete for reading" }
columns = { at = "^", tape = "tapeVid", bytes_moved = "dataVolume", mount_us = "mountTime", outcome = "status" }
set = { operation = "recall", view = "site" }
units = { mount_us = "s" }
words = { outcome = { success = "success", failure = "failure" } }
time = "%b %d %H:%M:%S.%f"

[[rule]]
row = "incident"
expression = '^(?P<at>\d+/\d+/\d+ \d+:\d+:\d+) (?P<severity>MAJOR|MINOR) (?P<code>HPSS\w+): (?P<detail>.*drive (?P<drive>\w+).*)$'
set = { kind = "hsm" }
time = "%Y/%m/%d %H:%M:%S"
"#;

#[test]
fn a_mapping_turns_lines_of_a_tape_system_to_rows() {
    let mapping = LogMapping::parse(MAPPING).expect("it is one");
    let text = "Nov 22 19:04:51.120000000 tps07 cta-taped: LVL=\"INFO\" MSG=\"Tape thread complete for reading\" tapeVid=\"V01234\" status=\"success\" mountTime=\"62.1\" dataVolume=\"120000000000\"\nno such line\n2026/11/22 19:00:00 MAJOR HPSS12: error 77 on drive LTO12 seen\n";
    let (rows, wrong) = import(mapping.parser(&told()), &told(), text);
    assert_eq!(wrong, [""; 0]);
    let [
        Observation::Attempt(recall),
        Observation::Incident(incident),
    ] = rows.as_slice()
    else {
        panic!("two rows: {rows:?}");
    };
    assert_eq!(recall.at.0 % 86_400_000, 68_691_120);
    assert_eq!(
        (recall.mount_us, recall.tape.as_deref()),
        (Some(62_100_000), Some("V01234"))
    );
    assert_eq!(
        (recall.operation, recall.view),
        (Operation::Recall, View::Site)
    );
    assert_eq!(
        (incident.drive.as_deref(), incident.line),
        (Some("LTO12"), 3)
    );
    assert_eq!(
        incident.fingerprint.as_deref(),
        Some("error # on drive LTO# seen")
    );
    let text = "Nov 22 19:04:51.1 x: MSG=\"Tape thread complete for reading\" status=\"odd\"\n";
    let (rows, wrong) = import(mapping.parser(&told()), &told(), text);
    assert_eq!(rows, []);
    assert_eq!(wrong, ["line 1: 'odd' cannot be in column 'outcome'"]);
}

#[test]
fn a_mapping_that_makes_no_sense_says_where() {
    let check = |given: &str, expected: &str| {
        let why = LogMapping::parse(given)
            .expect_err("it makes no sense")
            .to_string();
        assert!(why.contains(expected), "{why}");
    };
    check(
        "[[rule]]\nrow = \"attempt\"\ntime = \"%s\"",
        "rule 1: it needs either",
    );
    check(
        "[[rule]]\nrow = \"attempt\"\ntime = \"%s\"\nexpression = '(?P<bytes>.)'",
        "rule 1: there is no column 'bytes'",
    );
    check(
        "[[rule]]\nrow = \"attempt\"\ntime = \"%Q\"\nexpression = 'x'",
        "rule 1: its time has %Q",
    );
    check(
        "[[rule]]\nrow = \"attempt\"\ntime = \"%s\"\nexpression = '('",
        "rule 1: regex",
    );
    check(
        &"[[rule]]\nrow = \"attempt\"\ntime = \"%s\"\nexpression = 'x'\n".repeat(201),
        "at most 200 rules are allowed",
    );
}

#[test]
fn hostile_lines_are_refused_or_read_but_never_crash() {
    let mapping = LogMapping::parse(MAPPING).expect("it is one");
    let seeds = [
        COMPLETE,
        "11.22 19:04:51 [pool:tp07:transfer] [A1,21] [/d/f] a:r@h 21 41 false {H:1.2.3.4:0} [door:D:1] {0:\"\"}",
        "11.22 19:03:03 [door:D:request] [\"al\":1:2:c] [A1,5] [/f] <Unknown> 77 3 {1:\"x\"}",
        "ESTAB 0 41 1.2.3.4:443 5.6.7.8:41\n\t cubic rtt:98.2/0.4 busy:8ms send 1Mbps retrans:0/12",
        "Linux 6 (h) 11/22/2026\n11:59:50 PM IFACE rxkB/s\n11:59:55 PM eth0 10.00",
        "Nov 22 19:04:51.1 x: MSG=\"Tape thread complete for reading\" mountTime=\"1\"",
    ];
    for seed in seeds {
        for at in 0..seed.len() {
            for value in [
                "",
                "é",
                "9999999999999999999",
                "]",
                "{",
                "\"",
                " ",
                "\n",
                ":",
            ] {
                let Some((before, behind)) = seed.split_at_checked(at) else {
                    continue;
                };
                let text = format!("{before}{value}{}", behind.get(1..).unwrap_or_default());
                let parsers = [
                    LineFormat::Fts.parser(&told()),
                    LineFormat::Dcache.parser(&told()),
                    LineFormat::Rucio.parser(&told()),
                    LineFormat::Ss.parser(&told()),
                    LineFormat::Sar.parser(&told()),
                    LineFormat::Records.parser(&told()),
                    mapping.parser(&told()),
                ];
                for parser in parsers {
                    import(parser, &told(), &text);
                }
            }
        }
    }
}

#[test]
fn datagrams_of_a_capture_are_found() {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    file.extend([0; 12]);
    file.extend(101_u32.to_le_bytes());
    let mut packet = vec![
        0x45, 0, 0, 31, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 7, 127, 0, 0, 1,
    ];
    packet.extend([4, 70, 0x26, 0xca, 0, 11, 0, 0, b'a', b'b', b'c']);
    for number in [7_u32, 5000, packet.len() as u32, packet.len() as u32] {
        file.extend(number.to_le_bytes());
    }
    file.extend(&packet);
    let mut found = Vec::new();
    let others = pcap::each_datagram(&file, |datagram| {
        found.push((
            datagram.at,
            datagram.sender.to_string(),
            datagram.payload.to_vec(),
        ));
    });
    assert_eq!(others, Ok(0));
    assert_eq!(
        found,
        [(
            Timestamp(7005),
            "192.0.2.7:1094".to_owned(),
            b"abc".to_vec()
        )]
    );
    for at in 0..file.len() {
        for value in [0, 1, 4, 0x45, 0x4f, 0x60, 0xff] {
            let mut hostile = file.clone();
            hostile[at] = value;
            let _ = pcap::each_datagram(&hostile, |_| {});
            let _ = pcap::each_datagram(&hostile[..at], |_| {});
        }
    }
    assert_eq!(pcap::each_datagram(b"PK", |_| {}), Err(pcap::NoCapture));
}
