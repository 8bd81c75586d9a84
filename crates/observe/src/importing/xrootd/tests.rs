use super::*;

const SENDER: ([u8; 4], u16) = ([192, 0, 2, 7], 1094);
const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).expect("hex"));
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("hex"))
        .collect()
}

/// Open for write and close of 1 GB on `/a/b`.
fn written_file(sequence: u8) -> Vec<u8> {
    let mut packet = bytes(
        "66 07 0060 6A000000 | 02 01 0018 0000 0002 6A001000 6A001005 00000A0B0C0D0E0F
         01 03 0020 00000011 0000000000000000 00000009 2F612F62 0000000000000000
         00 00 0020 00000011 0000000000000000 0000000000000000 000000003B9ACA00",
    );
    packet[1] = sequence;
    packet
}

fn map(code: u8, sequence: u8, number: u32, text: &str) -> Vec<u8> {
    let length = (12 + text.len()) as u16;
    let mut packet = vec![code, sequence];
    packet.extend(length.to_be_bytes());
    packet.extend(0x6A00_0000_u32.to_be_bytes());
    packet.extend(number.to_be_bytes());
    packet.extend(text.as_bytes());
    packet
}

fn datagram(payload: &[u8]) -> Datagram<'_> {
    Datagram {
        at: NOW,
        sender: SENDER.into(),
        payload,
    }
}

fn take(monitoring: &mut MonitoringStreams, packet: &[u8]) -> Vec<Observation> {
    let mut rows = Vec::new();
    let taken = monitoring.take(datagram(packet), &mut rows);
    taken.expect("a datagram of XRootD");
    rows
}

#[test]
fn a_file_that_was_written_is_told_with_its_user() {
    let mut monitoring = MonitoringStreams::new();
    take(
        &mut monitoring,
        &map(
            b'=',
            0,
            0,
            "/xrootd.42:77@se7.example.org\n&site=LAB&port=1094&ver=v5",
        ),
    );
    take(
        &mut monitoring,
        &map(
            b'u',
            1,
            9,
            "xroot/alice.12:34@wn1.example.org\n&p=gsi&n=Alice&h=wn1&o=atlas&r=&g=",
        ),
    );
    let rows = take(&mut monitoring, &written_file(7));
    let [Observation::Attempt(row)] = rows.as_slice() else {
        panic!("one attempt: {rows:?}");
    };
    assert_eq!(row.operation, Operation::Write);
    assert_eq!(row.bytes_written, Some(Bytes(1_000_000_000)));
    assert_eq!(row.destination_path.as_deref(), Some("/a/b"));
    assert_eq!(
        row.file_bytes, None,
        "its size at the opening is not its size"
    );
    assert_eq!(row.server.as_deref(), Some("se7.example.org"));
    assert_eq!(row.user.as_ref().map(UserName::as_str), Some("Alice"));
    assert_eq!(row.vo.as_ref().map(VoName::as_str), Some("atlas"));
    assert_eq!(row.started, Some(Timestamp(0x6A00_1000 * 1000)));
    assert_eq!(row.at, Timestamp(0x6A00_1005 * 1000));
    assert_eq!(monitoring.open_files(), 0);
}

#[test]
fn an_unknown_user_stays_unknown() {
    let rows = take(&mut MonitoringStreams::new(), &written_file(7));
    let [Observation::Attempt(row)] = rows.as_slice() else {
        panic!("one attempt: {rows:?}");
    };
    assert_eq!((&row.user, &row.vo, &row.client), (&None, &None, &None));
    assert_eq!(row.server.as_deref(), Some("192.0.2.7"));
}

#[test]
fn datagrams_that_did_not_come_are_told_and_another_order_is_none() {
    let mut monitoring = MonitoringStreams::new();
    let gaps = |rows: Vec<Observation>| -> Vec<Option<u64>> {
        let gaps = rows.into_iter().filter_map(|row| match row {
            Observation::Incident(row) => Some(row.count),
            _ => None,
        });
        gaps.collect()
    };
    assert_eq!(gaps(take(&mut monitoring, &written_file(254))), []);
    assert_eq!(gaps(take(&mut monitoring, &written_file(1))), [Some(2)]);
    assert_eq!(gaps(take(&mut monitoring, &written_file(0))), []);
    assert_eq!(gaps(take(&mut monitoring, &written_file(2))), []);
}

#[test]
fn a_third_party_copy_has_the_times_that_its_server_meant() {
    let text = r#"{"TPC":"https","Client":"x.1:2@h","Xeq":{"Beg":"2026-11-21T06:19:52.4512Z","End":"2026-11-21T06:19:54.123456Z","RC":0,"Strm":1,"Type":"pull","IPv":6},"Src":"https://a.example:8443/x","Dst":"https://b.example:8443/y","Size":7}"#;
    let mut packet = vec![b'g', 0];
    let body_length = 8 + 16 + text.len() + 1;
    packet.extend((body_length as u16).to_be_bytes());
    packet.extend([0x6A, 0, 0, 0]);
    packet.extend([0; 8]);
    packet.extend([b'P', 0, 0, 0, 0, 0, 0, 0]);
    packet.extend(text.as_bytes());
    packet.push(0);
    let rows = take(&mut MonitoringStreams::new(), &packet);
    let [Observation::Attempt(row)] = rows.as_slice() else {
        panic!("one attempt: {rows:?}");
    };
    assert_eq!(row.started, Some(Timestamp(1_795_241_992_004)));
    assert_eq!(row.ended, Some(Timestamp(1_795_241_994_123)));
    assert_eq!(row.source_host.as_deref(), Some("https://a.example"));
    assert_eq!(row.bytes_moved, Some(Bytes(7)));
}

#[test]
fn hostile_datagrams_never_crash() {
    let seeds = [
        written_file(1),
        map(b'u', 1, 9, "xroot/alice.12:34@wn1\n&n=A&o=atlas"),
        map(b'x', 1, 9, "u\n/f\n&tod=1&sz=2&qt=3&tm=4&op=x&rc=5"),
        map(b'T', 1, 9, "u\n&Uc=9&o=cms"),
    ];
    for seed in seeds {
        for at in 0..seed.len() {
            for value in [0, 1, 2, 3, 4, 0x7f, 0x80, 0xff, b'g', b'd', b'{'] {
                let mut hostile = seed.clone();
                hostile[at] = value;
                let mut monitoring = MonitoringStreams::new();
                let mut rows = Vec::new();
                let _ = monitoring.take(datagram(&hostile), &mut rows);
                let cut = &hostile[..at];
                let _ = monitoring.take(datagram(cut), &mut rows);
            }
        }
    }
}

#[test]
fn long_texts_are_forgotten_before_they_fill_the_memory() {
    let mut monitoring = MonitoringStreams::new();
    let name = "n".repeat(60_000);
    let mut forgotten = 0;
    for number in 0..5_000_u32 {
        let text = format!("root/{name}.1:2@host\n");
        let rows = take(&mut monitoring, &map(b'u', number as u8, number, &text));
        forgotten += rows
            .iter()
            .filter(|row| matches!(row, Observation::Incident(gap) if gap.count > Some(1_000)))
            .count();
        let sources = &monitoring.sources;
        assert!(sources.held_bytes <= sources::HELD_BYTES_MAX);
        let servers = sources.sources.values().map(|source| &source.server);
        let held: usize = servers.map(Server::held_bytes).sum();
        assert_eq!(held, sources.held_bytes);
    }
    assert_eq!(forgotten, 2, "600 MB: each name stands in its id, too");
}

/// Of a sender that is not [`SENDER`].
fn take_from(
    monitoring: &mut MonitoringStreams,
    (sender, at): (u32, Timestamp),
    packet: &[u8],
) -> Result<Vec<Observation>, InvalidDatagram> {
    let mut rows = Vec::new();
    let address = std::net::Ipv4Addr::from(0xC800_0000 + sender);
    let datagram = Datagram {
        at,
        sender: (address, 1094).into(),
        payload: packet,
    };
    monitoring.take(datagram, &mut rows)?;
    Ok(rows)
}

fn user_of_written_file(monitoring: &mut MonitoringStreams, sequence: u8) -> Option<UserName> {
    let rows = take(monitoring, &written_file(sequence));
    rows.into_iter().find_map(|row| match row {
        Observation::Attempt(row) => row.user,
        _ => None,
    })
}

/// A server that has told its name and its user, and of which a row has come.
fn proven_server() -> MonitoringStreams {
    let mut monitoring = MonitoringStreams::new();
    take(&mut monitoring, &map(b'=', 0, 0, "/xrootd.42:77@se7\n"));
    take(
        &mut monitoring,
        &map(b'u', 1, 9, "xroot/alice.12:34@wn1\n&n=Alice"),
    );
    user_of_written_file(&mut monitoring, 0).expect("the user is known");
    monitoring
}

#[test]
fn strangers_push_out_no_server_that_has_proven_itself() {
    let mut monitoring = proven_server();
    let text = format!("root/{}.1:2@host", "n".repeat(60_000));
    for number in 10..30 {
        take(&mut monitoring, &map(b'u', 1, number, &text));
    }
    for stranger in 0..5_000 {
        let packet = map(b'u', 1, 9, &text);
        take_from(&mut monitoring, (stranger, NOW), &packet).expect("there is room");
    }
    let user = user_of_written_file(&mut monitoring, 1);
    assert_eq!(user, Some(UserName::new("Alice")));
}

#[test]
fn a_newcomer_pushes_out_the_newcomer_heard_of_least_recently() {
    let mut monitoring = MonitoringStreams::new();
    let packet = map(b'=', 0, 0, "/xrootd.42:77@se7\n");
    let count = sources::SERVERS_MAX as u32;
    for sender in (0..count).chain([0]) {
        take_from(&mut monitoring, (sender, NOW), &packet).expect("there is room");
    }
    let rows = take_from(&mut monitoring, (count, NOW), &packet).expect("there is room");
    assert!(matches!(rows.as_slice(), [Observation::Incident(gap)] if gap.count == Some(1)));
    let is_held = |sender: u32| {
        let held = monitoring.sources.sources.keys();
        let mut held = held.map(|held| held.ip());
        held.any(|held| held == std::net::Ipv4Addr::from(0xC800_0000 + sender))
    };
    assert_eq!([0, 1, 2, count].map(is_held), [true, false, true, true]);
}

#[test]
fn a_newcomer_is_refused_among_proven_servers_until_one_was_silent_for_a_day() {
    let mut monitoring = MonitoringStreams::new();
    let name = map(b'=', 0, 0, "/xrootd.42:77@se7\n");
    let count = sources::SERVERS_MAX as u32;
    for sender in 0..count {
        for packet in [&name, &written_file(1)] {
            take_from(&mut monitoring, (sender, NOW), packet).expect("there is room");
        }
    }
    let soon = Timestamp(NOW.0 + 3_600_000);
    let refused = take_from(&mut monitoring, (count, soon), &name);
    assert!(refused.is_err());
    let later = Timestamp(NOW.0 + 90_000_000);
    take_from(&mut monitoring, (count, later), &name).expect("a server was silent for a day");
}

#[test]
fn a_path_finds_its_user_however_many_there_are() {
    let mut monitoring = MonitoringStreams::new();
    let users = 100_000_u32;
    let begins = std::time::Instant::now();
    for number in 1..=users {
        let id = format!("root/u{number}.{number}:2@host");
        take(
            &mut monitoring,
            &map(b'u', 0, number, &format!("{id}\n&n=Name{number}")),
        );
        take(&mut monitoring, &map(b'd', 0, number, &format!("{id}\n/f")));
    }
    // One look at each user for each path would take minutes.
    assert!(begins.elapsed() < std::time::Duration::from_secs(20));
    let server = monitoring.sources.sources.values().next();
    let file = server.and_then(|source| source.server.files.get(users));
    assert_eq!(file.map(|file| file.user), Some(users));
}

/// Of a plugin that sends JSON: a file of a cache was closed.
fn provided(head: &str) -> Vec<u8> {
    let head = format!(
        r#"{{{head}"gs":{{"type":"C","tend":{}}}}}"#,
        NOW.unix_seconds()
    );
    format!("{head}\n{}\n", r#"{"lfn":"/f","b_hit":7}"#).into_bytes()
}

#[test]
fn lines_of_json_become_no_more_rows_than_may_be_taken_and_empty_ones_become_none() {
    let of = |line: &str, count: usize| {
        let head = format!(r#"{{"gs":{{"type":"R","tend":{}}}}}"#, NOW.unix_seconds());
        format!("{head}\n{}", format!("{line}\n").repeat(count)).into_bytes()
    };
    let mut monitoring = MonitoringStreams::new();
    assert_eq!(take(&mut monitoring, &of("{}", 21_000)), []);
    let full = of(r#"{"io_wait":1}"#, 4_000);
    let mut allowances = RowAllowances::default();
    let sender = datagram(&full).sender.ip();
    allowances.take(sender, NOW, ROWS_AT_ONCE_MAX as usize - 7);
    for expected in [7, 0] {
        let mut rows = Vec::with_capacity(0);
        let left = allowances.left(sender, NOW);
        let left_out = monitoring.take_some(datagram(&full), left, &mut rows);
        assert_eq!(
            (rows.len(), left_out),
            (expected, Ok(4_000 - expected as u64))
        );
        allowances.take(sender, NOW, rows.len());
        allowances.refuse(sender, 4_000 - expected as u64);
    }
    let mut gaps = Vec::new();
    allowances.gaps(NOW, &mut gaps);
    let [Observation::Incident(gap)] = gaps.as_slice() else {
        panic!("one gap: {gaps:?}");
    };
    assert_eq!(gap.count, Some(3_993 + 4_000));
}

#[test]
fn servers_that_send_json_are_bounded_as_the_others_are() {
    let count = sources::SERVERS_MAX as u32;
    let mut monitoring = MonitoringStreams::new();
    let named = provided(r#""src":{"host":"se7"},"#);
    for sender in 0..count {
        take_from(&mut monitoring, (sender, NOW), &named).expect("there is room");
    }
    let refused = take_from(&mut monitoring, (count, NOW), &named);
    assert!(refused.is_err(), "all have told their names and rows");
    let mut monitoring = proven_server();
    let nameless = provided("");
    for sender in 0..count + 10 {
        take_from(&mut monitoring, (sender, NOW), &nameless).expect("newcomers make room");
    }
    assert_eq!(monitoring.sources.sources.len(), sources::SERVERS_MAX);
    let user = user_of_written_file(&mut monitoring, 1);
    assert_eq!(user, Some(UserName::new("Alice")));
}

#[test]
fn json_belongs_to_the_server_that_sends_it() {
    let mut monitoring = proven_server();
    let servers = |rows: Vec<Observation>| -> Vec<String> {
        let servers = rows.into_iter().filter_map(|row| match row {
            Observation::Attempt(row) => row.server.map(|server| server.to_string()),
            _ => None,
        });
        servers.collect()
    };
    let rows = take(&mut monitoring, &provided(""));
    assert_eq!(servers(rows), ["se7"], "as it has told its name before");
    let started = 0x6A00_0000;
    take(&mut monitoring, &provided(&format!(r#""stod":{started},"#)));
    let user = user_of_written_file(&mut monitoring, 1);
    assert_eq!(user, Some(UserName::new("Alice")), "of the same life");
    take(
        &mut monitoring,
        &provided(&format!(r#""stod":{},"#, started + 1)),
    );
    assert_eq!(
        user_of_written_file(&mut monitoring, 2),
        None,
        "of the next"
    );
}
