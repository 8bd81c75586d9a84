//! Jobs between two sites, submitted, watched, explained and canceled from the command line.

use crate::site::{Site, eventually, fail, run, succeed, text};
use serde_json::Value;
use std::path::PathBuf;

/// Two sites that trust each other.
fn two_sites() -> (Site, Site) {
    let mut first = Site::make(&[]);
    let second = Site::start(&[&first]);
    first.serve();
    (first, second)
}

fn put(site: &Site, path: &str, content: &[u8]) {
    let local = site.scratch().join("to-put");
    std::fs::write(&local, content).expect("written");
    succeed(&[
        "copy",
        "--overwrite",
        "--dir",
        &site.dir_arg(),
        &local.display().to_string(),
        &site.url(path),
    ]);
}

fn list_file(site: &Site, lines: &[String]) -> PathBuf {
    let path = site.scratch().join("list.txt");
    std::fs::write(&path, lines.join("\n")).expect("written");
    path
}

#[test]
fn a_list_of_files_is_moved_and_verified() {
    let (first, second) = two_sites();
    let mut lines = vec!["# a comment".to_owned()];
    for number in 0..5 {
        put(
            &first,
            &format!("/data/{number}"),
            format!("file {number}").as_bytes(),
        );
        lines.push(format!(
            "{} {}",
            first.url(&format!("/data/{number}")),
            second.url(&format!("/new/{number}"))
        ));
    }
    let list = list_file(&first, &lines).display().to_string();
    let printed = succeed(&[
        "submit",
        "--dir",
        &first.dir_arg(),
        "--jobfile",
        &list,
        "--wait",
    ]);
    assert!(
        printed.contains("FINISHED: 5 of 5 files arrived"),
        "{printed}"
    );
    // Trust goes both ways: the first site's key opens the second site.
    assert_eq!(
        succeed(&["cat", "--dir", &first.dir_arg(), &second.url("/new/3")]),
        "file 3"
    );

    let ids: Value = serde_json::from_str(&succeed(&[
        "list",
        "--dir",
        &first.dir_arg(),
        "--state",
        "finished",
        "--json",
    ]))
    .expect("JSON");
    let id = ids[0]["job_id"].as_str().expect("an id").to_owned();
    let status = succeed(&["status", "--dir", &first.dir_arg(), "--files", &id]);
    assert_eq!(status.matches("FINISHED").count(), 6, "{status}");
}

#[test]
fn what_fails_is_told_and_explained() {
    let (first, second) = two_sites();
    put(&first, "/there", b"content");
    let dir = first.dir_arg();
    let said = fail(
        1,
        &[
            "submit",
            "--dir",
            &dir,
            "--wait",
            &first.url("/none"),
            &second.url("/x"),
        ],
    );
    assert!(said.contains("1 file did not arrive"), "{said}");
    let said = fail(
        1,
        &[
            "submit",
            "--dir",
            &dir,
            "--wait",
            &first.url("/there"),
            &second.url("/y"),
            "adler32:00000001",
            "--retries",
            "0",
        ],
    );
    assert!(said.contains("did not arrive"), "{said}");
    fail(4, &["stat", "--dir", &second.dir_arg(), &second.url("/y")]);

    let failed: Value = serde_json::from_str(&succeed(&[
        "list", "--dir", &dir, "--state", "FAILED", "--json",
    ]))
    .expect("JSON");
    assert_eq!(failed.as_array().expect("a list").len(), 2);
    let explained: String = failed
        .as_array()
        .expect("a list")
        .iter()
        .map(|job| {
            succeed(&[
                "explain",
                "--dir",
                &dir,
                job["job_id"].as_str().expect("an id"),
            ])
        })
        .collect();
    assert!(explained.contains("checksum"), "{explained}");
    assert!(explained.contains("; 1 failed"), "{explained}");
}

#[test]
fn a_waiting_job_is_explained_and_can_be_canceled() {
    let (first, mut second) = two_sites();
    let dir = first.dir_arg();
    put(&first, "/f", b"1");
    // A destination that does not answer keeps the job open: it is tried again and again.
    second.kill();
    let nobody = second.url("/f");
    let printed = succeed(&[
        "submit",
        "--dir",
        &dir,
        "--retries",
        "10",
        &first.url("/f"),
        &nobody,
    ]);
    let id = printed.trim();
    eventually("the first attempt has failed", || {
        let explained = succeed(&["explain", "--dir", &dir, id]);
        explained.contains("; 1 queued")
    });
    let canceled = succeed(&["cancel", "--dir", &dir, id]);
    assert!(canceled.contains(id), "{canceled}");
    eventually("it is canceled", || {
        succeed(&["status", "--dir", &dir, id]).contains("CANCELED")
    });
}

#[test]
fn a_tree_goes_from_server_to_server_without_a_service() {
    let (first, second) = two_sites();
    let dir = first.dir_arg();
    for path in ["/tree/a", "/tree/sub/b"] {
        put(&first, path, path.as_bytes());
    }
    let copy = [
        "copy",
        "--dir",
        &dir,
        &first.url("/tree"),
        &second.url("/copy"),
    ]
    .map(str::to_owned);
    let copy: Vec<&str> = copy.iter().map(String::as_str).collect();
    let printed = succeed(&copy);
    assert!(printed.starts_with("2 files, 18 B copied"), "{printed}");
    assert_eq!(
        succeed(&["cat", "--dir", &dir, &second.url("/copy/sub/b")]),
        "/tree/sub/b"
    );
    let again = succeed(&copy);
    assert!(again.contains("2 already there"), "{again}");
}

#[test]
fn a_service_that_is_not_there_and_a_job_that_is_not_known() {
    let site = Site::start(&[]);
    let dir = site.dir_arg();
    fail(2, &["list"]);
    let unknown = "00000000-0000-0000-0000-000000000000";
    let said = fail(4, &["status", "--dir", &dir, unknown]);
    assert!(said.contains("does not exist: No such job"), "{said}");
    fail(
        4,
        &[
            "explain",
            "--dir",
            &dir,
            "00000000-0000-0000-0000-000000000000",
        ],
    );
    fail(
        5,
        &[
            "list",
            "--dir",
            &dir,
            "--service",
            &format!("https://{}:{}", site.address, site.port + 1),
        ],
    );
    fail(
        2,
        &[
            "submit",
            "--dir",
            &dir,
            "https://a/f",
            "https://b/f",
            "adler32:xyz",
        ],
    );
}

#[test]
fn an_acknowledged_job_survives_a_kill() {
    let (mut first, mut second) = two_sites();
    put(&first, "/f", b"survivor");
    let dir = first.dir_arg();
    second.kill();
    let nobody = second.url("/f");
    let printed = succeed(&[
        "submit",
        "--dir",
        &dir,
        "--retries",
        "10",
        &first.url("/f"),
        &nobody,
    ]);
    first.kill();
    first.serve();
    let status = succeed(&["status", "--dir", &dir, printed.trim()]);
    assert!(
        status.contains("SUBMITTED") || status.contains("ACTIVE"),
        "{status}"
    );
}

#[test]
fn a_running_site_learns_of_a_new_peer_by_a_hangup() {
    let first = Site::start(&[]);
    let second = Site::start(&[&first]);
    put(&second, "/f", b"news");
    let token = succeed(&[
        "token",
        "--dir",
        &second.dir_arg(),
        "--scope",
        "storage.read:/",
        "--audience",
        &first.url(""),
    ]);
    let (url, capath) = (
        first.url("/"),
        first.dir().join("certificates").display().to_string(),
    );
    let ls = ["ls", &url, "--capath", &capath, "--token", token.trim()];
    fail(3, &ls);
    first.signal("HUP");
    eventually("the reload is logged", || {
        first
            .log()
            .contains("reloaded limits, certificates and trust")
    });
    succeed(&ls);
    let submit = [
        "submit",
        "--dir",
        &second.dir_arg(),
        "--service",
        &first.service(),
        "--wait",
    ]
    .map(str::to_owned);
    let submit: Vec<&str> = submit.iter().map(String::as_str).collect();
    let (source, destination) = (second.url("/f"), first.url("/f"));
    succeed(&[submit.as_slice(), &[&source, &destination]].concat());
}

#[test]
fn the_service_is_not_sent_to_what_only_it_can_reach() {
    let (first, _second) = two_sites();
    put(&first, "/f", b"1");
    // Nobody listens there; what counts is that nobody asks.
    let dir = first.dir_arg();
    for inside in [
        "https://127.0.0.1:1/f",
        "https://169.254.169.254/f",
        "https://[::ffff:10.0.0.1]/f",
    ] {
        let job = ["submit", "--dir", &dir, "--wait", inside, &first.url("/g")];
        let ended = run(&job);
        assert_eq!(ended.status.code(), Some(1), "{inside}");
        let printed = text(&ended.stdout) + &text(&ended.stderr);
        let id = printed
            .split_whitespace()
            .find(|word| word.len() == 36)
            .expect(&printed);
        let explained = succeed(&["explain", "--dir", &dir, id, "--verbose"]);
        assert!(
            explained.contains("trust.private_addresses does not list it"),
            "{explained}"
        );
    }
}

#[test]
fn a_state_or_a_link_that_does_not_exist_is_an_error() {
    let site = Site::start(&[]);
    let dir = site.dir_arg();
    for command in ["list", "find"] {
        let said = fail(2, &[command, "--dir", &dir, "--state", "NOPE"]);
        assert!(
            said.contains("SUBMITTED") && said.contains("FAILED"),
            "{said}"
        );
        succeed(&[command, "--dir", &dir, "--state", "failed"]);
    }
    let said = fail(4, &["explain", "--dir", &dir, "link", "nowhere-nowhere"]);
    assert!(
        said.contains("no transfers on a link 'nowhere-nowhere'"),
        "{said}"
    );
}

#[test]
fn an_unknown_drop_is_one_error_of_a_running_service_and_of_its_record() {
    let mut site = Site::start(&[]);
    let dir = site.dir_arg();
    let ids = [("drop", "nonsense", 2), ("drop", "6931bd80-1c9a44f2", 4)];
    let told = |options: &[&str]| {
        let error = |(word, id, code): (&str, &str, i32)| {
            let line = ["explain", word, id, "--dir", &dir, "--json"];
            let output = run(&[&line, options].concat());
            let printed = text(&output.stdout);
            assert_eq!(
                output.status.code(),
                Some(code),
                "{options:?} {id}: {printed}"
            );
            serde_json::from_str(&printed).expect("one object")
        };
        ids.map(error)
    };
    let live: [Value; 2] = told(&[]);
    site.kill();
    assert_eq!(told(&["--offline"]), live);
    assert_eq!(live[1]["code"], "resource-not-found");
    let said = live[1]["error"].as_str().expect("text");
    assert!(
        said.starts_with("no rate fell or rose with the id"),
        "{said}"
    );
}
