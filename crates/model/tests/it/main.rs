//! The house keeps its shape: which crate may know which, and that the pure ones stay pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Who may depend on whom, inside the workspace. Siblings do not know each other.
const MAY_KNOW: [(&str, &[&str]); 10] = [
    ("model", &[]),
    ("decide", &["model"]),
    ("persistence", &["model"]),
    // Authorisation needs to know what a right is; nothing else of `decide` belongs there.
    ("protocol", &["model"]),
    (
        "transfer-service",
        &["model", "decide", "persistence", "protocol"],
    ),
    (
        "storage-element",
        &["model", "decide", "persistence", "protocol"],
    ),
    ("observe", &["model", "decide", "persistence", "protocol"]),
    (
        "sim",
        &[
            "model",
            "decide",
            "persistence",
            "transfer-service",
            "observe",
        ],
    ),
    ("field-tools", &["model", "decide", "protocol", "observe"]),
    (
        "cli",
        &[
            "model",
            "decide",
            "persistence",
            "protocol",
            "transfer-service",
            "storage-element",
            "observe",
            "sim",
            "field-tools",
        ],
    ),
];

fn crates_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate lies in crates/")
        .to_owned()
}

/// The `penstock-…` crates that a manifest names outside `[dev-dependencies]`.
fn known_to(manifest: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(manifest).expect("a readable manifest");
    let mut section = String::new();
    let mut known = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            section = line.to_owned();
        } else if section == "[dependencies]"
            && let Some(rest) = line.strip_prefix("penstock-")
        {
            let name = rest
                .split(['.', ' ', '='])
                .next()
                .expect("split gives one piece at least");
            known.push(name.to_owned());
        }
    }
    known
}

#[test]
fn dependencies_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_KNOW.into_iter().collect();
    for entry in std::fs::read_dir(crates_directory()).expect("a readable directory") {
        let directory = entry.expect("a readable entry").path();
        let name = directory
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let may = allowed
            .get(name.as_str())
            .unwrap_or_else(|| panic!("crate {name} has no place in the order"));
        for known in known_to(&directory.join("Cargo.toml")) {
            assert!(
                may.contains(&known.as_str()),
                "{name} must not know {known}"
            );
        }
    }
}

/// Calls that would bring a clock, chance or I/O into code that must not have them.
const IMPURE: [&str; 6] = [
    "Instant::now",
    "SystemTime::now",
    "std::fs",
    "std::net",
    "tokio::",
    "thread::sleep",
];

fn check_pure(file: &Path) {
    let text = std::fs::read_to_string(file).expect("a readable source");
    let code = text
        .split("#[cfg(test)]")
        .next()
        .expect("split gives one piece at least");
    for call in IMPURE {
        assert!(
            !code.contains(call),
            "{} must stay pure, but names {call}",
            file.display()
        );
    }
}

fn sources_of(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a readable directory");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources_of(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn what_decides_has_no_clock_no_chance_and_no_io() {
    let crates = crates_directory();
    for pure in ["model/src", "decide/src"] {
        sources_of(&crates.join(pure))
            .iter()
            .for_each(|file| check_pure(file));
    }
    check_pure(&crates.join("transfer-service/src/engine.rs"));
}

/// A question to the database takes as long as that takes, which may be elsewhere: it would hold up whoever shares the
/// thread.
#[test]
fn handlers_ask_the_record_on_threads_for_blocking_work() {
    let api = crates_directory().join("transfer-service/src/api");
    for file in sources_of(&api) {
        let text = std::fs::read_to_string(&file).expect("a readable source");
        const ASKED: &str = "reader().";
        let mut asked = text
            .match_indices(ASKED)
            .map(|(at, _)| &text[at + ASKED.len()..]);
        let is_handed_over = asked.all(|rest| rest.starts_with("clone()"));
        let file = file.display();
        assert!(is_handed_over, "{file} asks the record on an async thread");
    }
}
