//! Backups and what verifies them.

use crate::site::{Site, fail, succeed};
use serde_json::Value;
use std::path::Path;

/// Changes one letter of a comment of the configuration in a backup: a byte that no structure of SQLite covers.
fn change_a_byte(backup: &Path) {
    let mut bytes = std::fs::read(backup).expect("read");
    let comment = b"# ";
    let at = bytes
        .windows(comment.len())
        .position(|window| window == comment);
    bytes[at.expect("a comment")] = b'%';
    std::fs::write(backup, bytes).expect("written");
}

#[test]
fn a_changed_byte_and_a_missing_part_of_a_backup_are_found() {
    let mut site = Site::start(&[]);
    assert_eq!(site.stop(), Some(0));
    let (dir, backup) = (site.dir_arg(), site.scratch().join("b"));
    let file = backup.display().to_string();
    let make = || succeed(&["backup", "--dir", &dir, "--to", &file]);
    let verify = ["backup", "--verify", &file];

    assert!(make().contains("SHA-256 as in"));
    assert!(succeed(&verify).contains("SHA-256 as in"));
    change_a_byte(&backup);
    let said = fail(7, &verify);
    assert!(said.contains("it was changed after it was made"), "{said}");
    let said = fail(7, &["restore", &file, "--dir", &dir, "--replace"]);
    assert!(said.contains("it was changed after it was made"), "{said}");

    make();
    let namespace = site.scratch().join("b.namespace");
    change_a_byte(&namespace);
    assert!(fail(7, &verify).contains("b.namespace is not a usable backup"));
    std::fs::remove_file(&namespace).expect("it was made");
    let said = fail(7, &verify);
    assert!(said.contains("b.namespace is missing"), "{said}");
    succeed(&["backup", "--verify", &file, "--only", "transfer"]);
}

#[test]
fn a_backup_without_a_manifest_says_so_and_a_renamed_one_keeps_its_own() {
    let mut site = Site::start(&[]);
    assert_eq!(site.stop(), Some(0));
    let at = |name: &str| site.scratch().join(name);
    let (file, renamed) = (at("b").display().to_string(), at("c").display().to_string());
    let one = ["--only", "namespace"];
    succeed(
        &[
            &["backup", "--dir", &site.dir_arg(), "--to", &file],
            &one[..],
        ]
        .concat(),
    );
    for suffix in ["", ".manifest"] {
        let (from, to) = (at(&format!("b{suffix}")), at(&format!("c{suffix}")));
        std::fs::rename(from, to).expect("renamed");
    }
    let verify = ["backup", "--verify", &renamed, "--json"];
    let told: Value = serde_json::from_str(&succeed(&verify)).expect("JSON");
    assert_eq!(told["manifest"], format!("{renamed}.manifest"));
    std::fs::remove_file(at("c.manifest")).expect("it was made");
    let said = succeed(&verify[..3]);
    assert!(said.contains("no manifest: made by"), "{said}");
}
