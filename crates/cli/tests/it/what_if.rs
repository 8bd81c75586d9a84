//! A simulated site is recorded, replayed and changed.

use crate::site::{fail, succeed};
use serde_json::Value;

const PLAN: &str = "name = 'two'\nlength = '1h'\n\
    [[storage]]\nname = ['a', 'b']\nread = '5 GB/s'\nwrite = '5 GB/s'\n\
    [[network]]\nfrom = 'a'\nto = 'b'\nbandwidth = '100 Gb/s'\nrtt = '20ms'\nwindow = '2 MB'\n\
    [[load]]\nfrom = 'a'\nto = 'b'\nfiles = 300\nsize = '1 GB'\nbegin = '2s'\n\
    [[event]]\nat = '0s'\nwhat = 'link-max'\nfrom = 'a'\nto = 'b'\nmax = 4\n\
    [[event]]\nat = '4m'\nwhat = 'link-max'\nfrom = 'a'\nto = 'b'\nmax = 8\n";

#[test]
fn what_was_simulated_is_replayed_and_alternatives_are_compared() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (plan, records) = (path("plan.toml"), path("records"));
    std::fs::write(&plan, PLAN).expect("written");
    let told = succeed(&["simulate", &plan, "--records", &records]);
    assert!(told.contains("300 finished"), "{told}");
    let words = ["what-if", "--records", &records];
    let sets = ["--set", "link a-b active=x2", "--set", "storage b rate=x2"];
    let told = succeed(&[&words[..], &sets, &["--json"]].concat());
    let answer: Value = serde_json::from_str(&told).expect("JSON");
    let number = |path: &str| answer.pointer(path).and_then(Value::as_f64).expect(path);
    assert!(number("/error_percent") < 6.0, "{told}");
    assert!(
        (50.0..75.0).contains(&number("/alternatives/0/gain_percent_max")),
        "{told}"
    );
    assert!(number("/alternatives/1/gain_percent").abs() < 3.0, "{told}");
    let text = succeed(&[&words[..], &sets].concat());
    assert!(
        text.contains("replayed within") && text.contains("storage b rate=x2: ±0 %"),
        "{text}"
    );
}

#[test]
fn what_cannot_be_asked_is_refused_with_what_to_write() {
    let told = fail(
        2,
        &[
            "what-if",
            "--records",
            "/nowhere",
            "--set",
            "disk a rate=x2",
        ],
    );
    assert!(told.contains("write for example 'link"), "{told}");
    assert!(fail(2, &["what-if"]).contains("--dir"));
    assert!(fail(4, &["what-if", "--records", "/nowhere"]).contains("/nowhere"));
}
