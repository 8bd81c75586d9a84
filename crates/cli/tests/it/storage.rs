//! Files of a storage element from the command line.

use crate::site::{Site, fail, penstock, run, succeed, text};
use serde_json::Value;
use std::path::Path;

/// Runs a command against a site as its owner.
fn as_owner(site: &Site, args: &[&str]) -> String {
    let mut all = args.to_vec();
    let dir = site.dir_arg();
    all.extend(["--dir", &dir]);
    succeed(&all)
}

fn json(site: &Site, args: &[&str]) -> Value {
    let mut all = args.to_vec();
    all.push("--json");
    serde_json::from_str(&as_owner(site, &all)).expect("JSON")
}

fn write(path: &Path, content: &[u8]) -> String {
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    std::fs::write(path, content).expect("written");
    path.display().to_string()
}

#[test]
fn a_file_goes_up_is_seen_and_goes_away() {
    let site = Site::start(&[]);
    let local = write(&site.scratch().join("hello"), b"hello\n");
    as_owner(&site, &["copy", &local, &site.url("/data/hello")]);
    assert_eq!(as_owner(&site, &["ls", &site.url("/data")]), "hello\n");
    assert_eq!(as_owner(&site, &["ls", &site.url("/")]), "data/\n");
    assert_eq!(
        as_owner(&site, &["cat", &site.url("/data/hello")]),
        "hello\n"
    );
    assert_eq!(
        as_owner(&site, &["checksum", &site.url("/data/hello")]),
        format!("adler32:084b021f  {}\n", site.url("/data/hello"))
    );
    let stat = &json(&site, &["stat", &site.url("/data/hello")])[0];
    assert_eq!(
        (&stat["size_bytes"], &stat["is_directory"]),
        (&6.into(), &false.into())
    );
    assert!(as_owner(&site, &["ls", "-l", &site.url("/data/hello")]).contains(" 6 B 20"));
    as_owner(&site, &["rm", &site.url("/data/hello")]);
    let said = fail(
        4,
        &["stat", &site.url("/data/hello"), "--dir", &site.dir_arg()],
    );
    assert!(said.contains("does not exist"), "{said}");
}

#[test]
fn directories_are_made_and_removed() {
    let site = Site::start(&[]);
    as_owner(&site, &["mkdir", "-p", &site.url("/a/b/c")]);
    as_owner(&site, &["mkdir", "-p", &site.url("/a/b/c")]);
    let dir = site.dir_arg();
    fail(1, &["mkdir", &site.url("/a"), "--dir", &dir]);
    fail(2, &["rm", &site.url("/a"), "--dir", &dir]);
    as_owner(&site, &["rm", "-r", &site.url("/a")]);
    assert_eq!(as_owner(&site, &["ls", &site.url("/")]), "");
}

#[test]
fn a_tree_goes_up_and_comes_down_the_same() {
    let site = Site::start(&[]);
    let tree = site.scratch().join("tree");
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    write(&tree.join("empty"), b"");
    write(&tree.join("one byte"), b"x");
    write(&tree.join("süb/dir #1/large"), &large);
    std::fs::create_dir_all(tree.join("no files")).expect("made");

    let up = json(
        &site,
        &[
            "copy",
            &tree.display().to_string(),
            &site.url("/copy of tree"),
        ],
    );
    assert_eq!(
        (&up["copied"], &up["skipped"], &up["bytes"]),
        (&3.into(), &0.into(), &3_000_001.into())
    );
    let again = json(
        &site,
        &[
            "copy",
            &tree.display().to_string(),
            &site.url("/copy of tree"),
        ],
    );
    assert_eq!(
        (&again["copied"], &again["skipped"]),
        (&0.into(), &3.into())
    );

    let down = site.scratch().join("down");
    let report = json(
        &site,
        &[
            "copy",
            &site.url("/copy%20of%20tree"),
            &down.display().to_string(),
        ],
    );
    assert_eq!(report["copied"], 3);
    for name in ["empty", "one byte", "süb/dir #1/large"] {
        assert_eq!(
            std::fs::read(down.join(name)).expect(name),
            std::fs::read(tree.join(name)).expect(name),
            "{name}"
        );
    }
    assert!(down.join("no files").is_dir());
    let left: Vec<_> = std::fs::read_dir(&down)
        .expect("made")
        .map(|e| e.expect("entry").file_name())
        .collect();
    assert_eq!(left.len(), 4, "no temporary file is left: {left:?}");
}

#[test]
fn other_content_is_replaced_only_when_asked() {
    let site = Site::start(&[]);
    let dir = site.dir_arg();
    let first = write(&site.scratch().join("first"), b"first");
    let second = write(&site.scratch().join("other"), b"other");
    as_owner(&site, &["copy", &first, &site.url("/f")]);
    let said = fail(1, &["copy", &second, &site.url("/f"), "--dir", &dir]);
    assert!(said.contains("exists with different content"), "{said}");
    as_owner(&site, &["copy", "--overwrite", &second, &site.url("/f")]);
    assert_eq!(as_owner(&site, &["cat", &site.url("/f")]), "other");

    let down = site.scratch().join("down");
    write(&down, b"mine!");
    fail(
        1,
        &[
            "copy",
            &site.url("/f"),
            &down.display().to_string(),
            "--dir",
            &dir,
        ],
    );
    assert_eq!(std::fs::read(&down).expect("there"), b"mine!");
}

#[test]
fn a_directory_keeps_the_name_of_a_single_file() {
    let site = Site::start(&[]);
    let local = write(&site.scratch().join("name.dat"), b"1");
    as_owner(&site, &["mkdir", &site.url("/d")]);
    as_owner(&site, &["copy", &local, &site.url("/d")]);
    as_owner(&site, &["copy", &local, &site.url("/e/")]);
    assert_eq!(as_owner(&site, &["ls", &site.url("/d")]), "name.dat\n");
    assert_eq!(as_owner(&site, &["ls", &site.url("/e")]), "name.dat\n");
}

#[test]
fn exit_codes_tell_what_was_wrong() {
    let site = Site::start(&[]);
    let dir = site.dir_arg();
    let capath = site.dir().join("certificates").display().to_string();
    let read_only = succeed(&["token", "--dir", &dir, "--scope", "storage.read:/"]);
    let token = write(&site.scratch().join("token"), read_only.as_bytes());
    let local = write(&site.scratch().join("f"), b"1");

    fail(2, &["ls", "ftp://se/"]);
    fail(2, &["copy", &local, "/tmp/elsewhere"]);
    fail(2, &["no-such-command"]);
    let said = fail(3, &["ls", &site.url("/"), "--capath", &capath]);
    assert!(said.contains("a token is needed"), "{said}");
    fail(
        3,
        &[
            "copy",
            &local,
            &site.url("/f"),
            "--capath",
            &capath,
            "--token-file",
            &token,
        ],
    );
    fail(
        4,
        &[
            "cat",
            &site.url("/none"),
            "--capath",
            &capath,
            "--token-file",
            &token,
        ],
    );
    fail(
        4,
        &["copy", "/no/such/file", &site.url("/f"), "--dir", &dir],
    );
    // A port that nothing listens on; and a CA that was not told.
    fail(
        5,
        &[
            "ls",
            &format!("https://{}:{}/", site.address, site.port + 1),
            "--dir",
            &dir,
        ],
    );
    let empty = tempfile::tempdir().expect("a directory");
    let output = penstock()
        .args(["ls", &site.url("/"), "--capath"])
        .arg(empty.path())
        .output()
        .expect("it starts");
    assert!(
        [Some(2), Some(5)].contains(&output.status.code()),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn tokens_are_found_where_the_profile_says() {
    let site = Site::start(&[]);
    let token = succeed(&["token", "--dir", &site.dir_arg()]);
    let capath = site.dir().join("certificates");
    let output = penstock()
        .args(["ls", &site.url("/")])
        .env("BEARER_TOKEN", token.trim())
        .env("X509_CERT_DIR", &capath)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(run(&["ls", &site.url("/")]).status.code() != Some(0));
}

#[test]
fn of_several_files_those_that_can_be_are_done_and_the_others_are_named() {
    let site = Site::start(&[]);
    let dir = site.dir_arg();
    let local = write(&site.scratch().join("f"), b"f");
    let (a, none, b) = (site.url("/a"), site.url("/none"), site.url("/b"));
    for url in [&a, &b] {
        as_owner(&site, &["copy", &local, url]);
    }
    let three = |command: &str| {
        let output = run(&[command, &a, &none, &b, "--dir", &dir]);
        assert_eq!(output.status.code(), Some(4), "{command}");
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        assert!(
            printed.contains(&format!("failed: {none} does not exist")),
            "{printed}"
        );
        assert!(said.contains("1 of 3 failed"), "{said}");
        printed
    };
    for command in ["stat", "checksum"] {
        let printed = three(command);
        assert!(printed.contains(&a) && printed.contains(&b), "{printed}");
    }
    let output = run(&["stat", &a, &none, "--dir", &dir, "--json"]);
    let told: Value = serde_json::from_str(&text(&output.stdout)).expect("one object");
    assert_eq!(told["report"]["done"][0]["size_bytes"], 1, "{told}");
    assert_eq!(told["report"]["failed"][0]["name"], none.as_str(), "{told}");
    three("rm");
    for url in [&a, &b] {
        fail(4, &["stat", url, "--dir", &dir]);
    }
}
