//! What decides has no clock, no chance and no I/O: the same input gives the same plan, here and in the simulator.

use crate::sources::{code_of, files};

/// Names that would bring these in.
const IMPURE: [&str; 19] = [
    "Instant::now",
    "SystemTime",
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "thread::",
    "mpsc",
    "tokio",
    "async fn",
    ".await",
    "rand::",
    "Mutex",
    "OnceLock",
    "static mut",
    "println!",
    "unsafe",
];
/// The journal itself; what is written into it is a value.
const IMPURE_IN_ENGINES: [&str; 2] = ["Journal", "JournalReader"];

/// Which of these names a text uses, as whole words.
fn names_in<'a>(code: &str, names: &[&'a str]) -> Vec<&'a str> {
    let is_word =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = code.as_bytes();
    let stands = |name: &&'a str| {
        code.match_indices(*name).any(|(at, _)| {
            let before = at.checked_sub(1).and_then(|at| bytes.get(at));
            let after = bytes.get(at + name.len());
            let begins = !is_word(name.as_bytes().first()) || !is_word(before);
            let ends = !is_word(name.as_bytes().last()) || !is_word(after);
            begins && ends
        })
    };
    names.iter().copied().filter(stands).collect()
}

/// Fails where code is not pure, or when less of it was read than there is.
fn check(below: &[&str], names: &[&str], lines_min: usize) {
    let (mut read, mut found) = (0, Vec::new());
    for file in files(below, ".rs").iter().filter(|file| !file.is_test()) {
        let code = code_of(&file.text);
        read += code.lines().count();
        for name in names_in(&code, names) {
            found.push(format!("{} names {name}", file.path));
        }
    }
    assert!(found.is_empty(), "must stay pure: {found:#?}");
    assert!(read >= lines_min, "{below:?}: only {read} lines were read");
}

#[test]
fn models_and_decisions_are_pure() {
    check(&["crates/model/src"], &IMPURE, 3_500);
    check(&["crates/decide/src"], &IMPURE, 8_500);
    check(&["crates/tape/src"], &IMPURE, 7_000);
    // The file by which the guard was once passed: its tests are declared at its top.
    check(&["crates/decide/src/scheduler.rs"], &IMPURE, 600);
}

#[test]
fn the_engine_is_pure() {
    check(
        &["crates/engine/src"],
        &[&IMPURE[..], &IMPURE_IN_ENGINES].concat(),
        4_500,
    );
}

#[test]
fn a_clock_below_the_tests_declaration_is_found() {
    let planted = "//! Pure.\n#[cfg(test)]\nmod tests;\n\nfn now() -> Instant {\n    Instant::now()\n}\n\
                   fn read(journal: &dyn JournalReader) {\n    let instants = tokio_like;\n}\n";
    let names = [&IMPURE[..], &IMPURE_IN_ENGINES].concat();
    assert_eq!(
        names_in(&code_of(planted), &names),
        ["Instant::now", "JournalReader"]
    );
}
