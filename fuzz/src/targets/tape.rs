//! What clients of the tape interface send: bounded whatever comes, with single slashes, and each file once.

use super::{Target, texts};
use penstock_protocol::tape::server::{parse_duration, parse_paths, parse_stage};
use penstock_protocol::tape::{archive_note, read_archive_note};
use std::collections::HashSet;

pub const ORDERS: Target = Target {
    name: "tape_orders",
    check,
    seeds: || {
        texts(&[
            r#"{"files":[{"path":"/a//b","diskLifetime":"PT1H","targetedMetadata":{"x":{}}},{"path":"/a/b"}]}"#,
            r#"{"files":[{"path":"/a","diskLifetime":"P1W2DT3H4M5S"}],"more":[[[{}]]]}"#,
            r#"{"paths":["/a","//a","/b/./c","relative","\u0000"]}"#,
            r#"{"paths":["/1","/2","/3","/4","/5","/6","/7","/8","/9"]}"#,
            r#"{"files":[],"files":[{"path":"/a"}]}"#,
            "PT99999999999999999999S",
            "eyJjb2xsb2NhdGlvbl9oaW50cyI6eyIwIjoiZGF0YTIzIn19",
        ])
    },
};

/// Files that a request may name here.
const FILES_MAX: usize = 8;

fn check(data: &[u8]) {
    let mut lists = Vec::new();
    if let Ok(files) = parse_stage(data, FILES_MAX, "x") {
        lists.push(files.into_iter().map(|file| file.path).collect::<Vec<_>>());
    }
    if let Ok(paths) = parse_paths(data, FILES_MAX) {
        lists.push(paths);
    }
    for paths in lists {
        assert!((1..=FILES_MAX).contains(&paths.len()));
        assert!(paths.iter().all(|path| !path.contains("//")));
        let different: HashSet<&String> = paths.iter().collect();
        assert_eq!(different.len(), paths.len(), "each file once");
    }
    if let Some(note) = read_archive_note(data) {
        let note: serde_json::Value = serde_json::from_str(&note).expect("JSON");
        assert!(note.is_object());
        let again = archive_note(&note);
        assert!(read_archive_note(again.as_bytes()).is_some() || again.len() > data.len());
    }
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = parse_duration(text);
    }
}
