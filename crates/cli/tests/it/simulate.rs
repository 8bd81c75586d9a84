//! Plans of a grid, from the example to the page with plots.

use crate::site::{fail, succeed};
use serde_json::Value;

const PLAN: &str = "name = 'two'\nlength = '10m'\n\
    [[storage]]\nname = ['a', 'b']\nread = '1 GB/s'\nwrite = '1 GB/s'\n\
    [[load]]\nfrom = 'a'\nto = 'b'\nfiles = 100\nsize = '1 GB'\n";

#[test]
fn a_plan_is_run_under_several_policies_and_drawn() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("plan.toml"), PLAN).expect("written");
    let told = succeed(&["simulate", &path("plan.toml")]);
    assert!(told.contains("100 finished"), "{told}");
    let args = [
        "simulate",
        &path("plan.toml"),
        "--policy",
        "limits",
        "--policy",
        "fixed:2",
    ];
    let told = succeed(&[&args[..], &["--out", &path("out")]].concat());
    assert!(
        told.contains("report.html") && told.contains("fixed:2"),
        "{told}"
    );
    let page = std::fs::read_to_string(path("out/report.html")).expect("a page");
    assert!(page.contains("<svg"), "{page}");
    let told = succeed(&[&args[..], &["--json", "--seed", "9"]].concat());
    let reports: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(reports[1]["policy"], "fixed:2");
    assert_eq!(reports[1]["seed"], 9);
}

#[test]
fn examples_are_printed_as_they_can_be_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let plan = directory.path().join("plan.toml").display().to_string();
    for name in [&["--example"][..], &["--example", "wlcg-day"]] {
        let text = succeed(&[&["simulate"][..], name].concat());
        std::fs::write(&plan, text).expect("written");
        succeed(&["simulate", &plan, "--length", "20s"]);
    }
    let told = fail(2, &["simulate", "--example", "grid"]);
    assert!(told.contains("small, wlcg-day"), "{told}");
}

#[test]
fn what_is_wrong_with_a_plan_is_told_with_its_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let plan = directory.path().join("plan.toml").display().to_string();
    std::fs::write(&plan, PLAN.replace("to = 'b'", "to = 'c'")).expect("written");
    let told = fail(2, &["simulate", &plan]);
    assert!(
        told.contains("line 7: 'c' is no storage of the plan; it has a, b"),
        "{told}"
    );
    assert!(fail(2, &["simulate"]).contains("--example"));
    assert!(fail(2, &["simulate", &plan, "--policy", "best"]).contains("fixed:20"));
    assert!(fail(2, &["simulate", "/nowhere/plan.toml"]).contains("/nowhere/plan.toml"));
}

#[test]
fn random_trouble_is_endured_and_can_be_repeated() {
    let once = succeed(&["simulate", "--trouble", "7", "--seeds", "3"]);
    assert!(once.contains("3 seeds from 7"), "{once}");
    assert_eq!(
        once,
        succeed(&["simulate", "--trouble", "7", "--seeds", "3"])
    );
    fail(2, &["simulate", "--seeds", "3"]);
}
