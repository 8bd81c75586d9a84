//! The workspace keeps its shape: which crate may know which, what stays pure, what can be read, what is documented.
//!
//! Each guard says how much it must have looked at, and is shown something that it has to find.

mod documents;
mod errors_page;
mod modules;
mod purity;
mod sizes;
mod sources;

use sources::{Source, code_of, files};
use std::collections::BTreeMap;

/// Who may depend on whom, inside the workspace. Siblings do not know each other.
const MAY_KNOW: [(&str, &[&str]); 16] = [
    ("model", &[]),
    ("clock", &["model"]),
    ("durable-file", &[]),
    // Knows a tape and its drive; who asks for files is others' matter.
    ("tape", &[]),
    // Performs on files of a directory what the engine of `tape` orders.
    ("tape-library", &["durable-file", "tape"]),
    ("decide", &["model"]),
    // What decides for the transfer service as a whole, in one process and in the simulator.
    ("engine", &["model", "decide"]),
    // What a journal is. No database is known here.
    ("journal", &["model"]),
    (
        "persistence",
        &["model", "clock", "durable-file", "journal"],
    ),
    ("protocol", &["model", "clock", "durable-file"]),
    (
        "transfer-service",
        &[
            "model",
            "clock",
            "durable-file",
            "decide",
            "engine",
            "journal",
            "persistence",
            "protocol",
        ],
    ),
    (
        "storage-element",
        &[
            "model",
            "clock",
            "durable-file",
            "decide",
            "persistence",
            "protocol",
            "tape",
            "tape-library",
        ],
    ),
    (
        "observe",
        &["model", "clock", "durable-file", "decide", "journal"],
    ),
    (
        "sim",
        &["model", "decide", "engine", "journal", "observe", "tape"],
    ),
    ("field-tools", &["model", "clock", "protocol"]),
    (
        "cli",
        &[
            "model",
            "clock",
            "durable-file",
            "decide",
            "engine",
            "journal",
            "persistence",
            "protocol",
            "transfer-service",
            "storage-element",
            "observe",
            "sim",
            "tape",
            "tape-library",
            "field-tools",
        ],
    ),
];

/// The `penstock-…` crates that a manifest names outside `[dev-dependencies]`.
fn known_to(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut known = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let named = match section.trim_matches(['[', ']']) {
            "package" => None,
            of if of.ends_with("dev-dependencies") => None,
            // A dependency with a table of its own.
            of if line == section => of.rsplit_once("dependencies.").map(|(_, name)| name),
            of if of.ends_with("dependencies") => Some(line),
            _ => None,
        };
        if let Some(rest) = named.and_then(|named| named.strip_prefix("penstock-")) {
            let name = rest.split(['.', ' ', '=']).next();
            known.push(name.expect("split gives one piece at least").to_owned());
        }
    }
    known
}

/// Which crates a manifest names against the order.
fn forbidden(name: &str, manifest: &str) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = MAY_KNOW.into_iter().collect();
    let may = allowed
        .get(name)
        .unwrap_or_else(|| panic!("crate {name} has no place in the order"));
    let known = known_to(manifest).into_iter();
    known.filter(|known| !may.contains(&&**known)).collect()
}

/// Which crates may be known by the order, but are not named by the manifest.
fn unused_permissions(name: &str, manifest: &str) -> Vec<&'static str> {
    let known = known_to(manifest);
    let allowed: BTreeMap<&str, &'static [&'static str]> = MAY_KNOW.into_iter().collect();
    let may = allowed[name].iter().copied();
    may.filter(|may| !known.iter().any(|known| known == may))
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let manifests = files(&["crates"], "/Cargo.toml");
    let (mut crates, mut known) = (0, 0);
    for Source { path, text } in &manifests {
        let Some(name) = path
            .strip_prefix("crates/")
            .and_then(|path| path.strip_suffix("/Cargo.toml"))
        else {
            panic!("{path} is not in crates/");
        };
        if name.contains('/') {
            continue;
        }
        crates += 1;
        known += known_to(text).len();
        assert_eq!(forbidden(name, text), [""; 0], "{name} must not know these");
        let unused = unused_permissions(name, text);
        assert_eq!(unused, [""; 0], "{name} may know these and does not");
    }
    assert_eq!(crates, MAY_KNOW.len());
    assert!(known > 25, "only {known} dependencies were read");
}

#[test]
fn a_dependency_against_the_order_is_found() {
    let planted = "[package]\nname = \"penstock-decide\"\n[dependencies]\npenstock-model.workspace = true\n\
                   penstock-sim = { path = \"../sim\" }\n[dev-dependencies]\npenstock-cli.workspace = true\n\
                   [target.'cfg(unix)'.dependencies.penstock-protocol]\nworkspace = true\n";
    assert_eq!(forbidden("decide", planted), ["sim", "protocol"]);
    assert_eq!(unused_permissions("engine", planted), ["decide"]);
}

/// Crates of a lock file that would be a second source of cryptography.
fn cryptography_in(lock: &str) -> Vec<&str> {
    const OTHERS: [&str; 9] = [
        "aws-lc-rs",
        "boring",
        "ed25519-dalek",
        "native-tls",
        "p256",
        "p384",
        "ring",
        "rsa",
        "rustls",
    ];
    let names = lock.lines().filter_map(|line| line.strip_prefix("name = "));
    let names = names.map(|name| name.trim_matches('"'));
    names.filter(|name| OTHERS.contains(name)).collect()
}

#[test]
fn all_cryptography_is_openssls() {
    let lock = sources::read("Cargo.lock");
    let packages = lock.matches("[[package]]").count();
    assert!(packages > 150, "only {packages} packages were read");
    assert_eq!(cryptography_in(&lock), [""; 0]);
    assert_eq!(
        cryptography_in("name = \"openssl\"\nname = \"ring\"\n"),
        ["ring"]
    );
}

/// Whether a text asks the record where it stands, instead of handing the reader over.
fn asks_the_record(text: &str) -> bool {
    const ASKED: &str = "reader().";
    let mut asked = text.match_indices(ASKED);
    asked.any(|(at, _)| !text[at + ASKED.len()..].starts_with("clone()"))
}

/// A question to the database takes as long as that takes, which may be elsewhere: it would hold up whoever shares the
/// thread.
#[test]
fn handlers_ask_the_record_on_threads_for_blocking_work() {
    let mut read = 0;
    for file in files(&["crates/transfer-service/src/api"], ".rs") {
        let code = code_of(&file.text);
        read += code.lines().count();
        assert!(
            !asks_the_record(&code),
            "{} asks the record on an async thread",
            file.path
        );
    }
    assert!(read > 4_000, "only {read} lines were read");
    assert!(asks_the_record(
        "let rows = service.reader().jobs(filter)?;"
    ));
    assert!(!asks_the_record("let reader = service.reader().clone();"));
}
