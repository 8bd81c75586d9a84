//! What a child process says that a hostile server may have taken over, and what it is told.

use super::Target;
use penstock_protocol::gfal::wire::{
    FileState, LINE_BYTES_MAX, PIECE_BYTES_MAX, TEXT_CHARS_MAX, line, read_line, read_piece,
};
use penstock_protocol::gfal::{GfalError, Order, OrderResult, Report};
use std::io::Read;

pub const REPORTS: Target = Target {
    name: "child_reports",
    check: check_reports,
    seeds: || {
        let failed = || GfalError::new(2, "SOURCE no such file");
        let reports = [
            Report::Ready {
                version: "2.22".to_owned(),
                plugins: vec!["gridftp".to_owned()],
            },
            Report::Progress {
                moved: u64::MAX,
                rate: Some(1),
            },
            Report::Piece { length: 3 },
            Report::Failed(failed()),
            Report::Done(OrderResult {
                bytes: Some(9),
                checksum: Some("03da0195".to_owned()),
                files: vec![
                    FileState::Done,
                    FileState::Pending,
                    FileState::Failed(failed()),
                ],
                ..OrderResult::default()
            }),
        ];
        let mut seeds: Vec<Vec<u8>> = reports.iter().map(line).collect();
        let mut piece = line(&Report::Piece { length: 3 });
        piece.extend_from_slice(b"a\nb");
        piece.extend(line(&Report::Done(OrderResult::default())));
        seeds.push(piece);
        seeds.push(b"{\"report\":\"piece\",\"length\":18446744073709551615}\n".to_vec());
        seeds
    },
};

pub const ORDERS: Target = Target {
    name: "child_orders",
    check: check_orders,
    seeds: || {
        vec![
            line(&Order::Stat {
                url: "root://se//f".to_owned(),
            }),
            line(&Order::Cancel),
            line(&Order::Piece { length: 7 }),
            line(&Order::BringOnline {
                urls: vec!["srm://se/f".to_owned()],
                pin_seconds: -1,
                timeout_seconds: i64::MAX,
            }),
        ]
    },
};

/// What came of a stream: how many lines were understood, and how many bytes of files.
fn check_reports(data: &[u8]) {
    let mut from = data;
    // As many as the bytes may hold; a stream that says nothing for ever would be longer.
    for _ in 0..=data.len() {
        let before = from.len();
        match read_line::<Report>(&mut from) {
            Ok(Some(report)) => {
                assert!(before - from.len() <= LINE_BYTES_MAX + 1);
                // What we keep of it can be written and read again.
                assert_eq!(
                    read_line::<Report>(&mut &line(&report)[..]).ok(),
                    Some(Some(report.clone()))
                );
                if let Report::Piece { length } = report {
                    match read_piece(&mut from, length) {
                        Ok(bytes) => assert_eq!(bytes.len(), length),
                        Err(_) => break,
                    }
                    assert!(length <= PIECE_BYTES_MAX);
                }
            }
            Ok(None) => return assert_eq!(before, 0),
            Err(_) => break,
        }
    }
    // A library's words become one bounded line.
    let error = GfalError::new(5, &String::from_utf8_lossy(data));
    assert!(error.message.chars().count() <= TEXT_CHARS_MAX);
    assert!(!error.message.contains(['\n', '\r']));
    assert!(error.cut(7).message.chars().count() <= 7);
}

fn check_orders(data: &[u8]) {
    let mut from = data;
    while let Ok(Some(order)) = read_line::<Order>(&mut from) {
        // Orders hold secrets, and what is told of them is their name.
        assert!(format!("{order:?}").len() < 20);
        if let Order::Piece { length } = order
            && read_piece(&mut from, length).is_err()
        {
            return;
        }
    }
    // A line without an end is refused before it is longer than agreed.
    let endless = std::io::repeat(b'{').take(2 * LINE_BYTES_MAX as u64);
    if data.is_empty() {
        assert!(read_line::<Order>(&mut std::io::BufReader::new(endless)).is_err());
    }
}
