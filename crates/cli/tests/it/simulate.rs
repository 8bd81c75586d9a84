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
        told.contains("line 7: 'c' is not a storage of the plan; it has a, b"),
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

const TAPE_PLAN: &str = r#"{"name": "two drives", "hours_max": 48,
    "library": {"slots": 50, "arms": 1, "move_seconds": 15, "moves_per_hour_max": 200},
    "drives": [{"kind": "LTO-9", "count": 2}],
    "recalls": [{"vo": "atlas", "kind": "LTO-9", "files": 60, "file_bytes": 2000000000, "tapes": 3,
                 "bulks": 3, "begin_hours": 0, "end_hours": 1}]}"#;

#[test]
fn a_tape_library_is_simulated_under_all_rules() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let plan = path("plan.json");
    std::fs::write(&plan, TAPE_PLAN).expect("written");
    let told = succeed(&["simulate", "tape", &plan]);
    for policy in ["fifo", "position", "serpentine"] {
        assert!(told.contains(&format!("\n{policy}")), "{told}");
    }
    let told = succeed(&[
        "simulate",
        "tape",
        &plan,
        "--policy",
        "serpentine",
        "--json",
    ]);
    let reports: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(reports[0]["recalled"], 60);
    assert_eq!(reports[0]["unaccounted_ns"], 0);
    let log = path("recalls.csv");
    let lines = "seconds,vo,kind,tape,begin_bytes,size_bytes\n0,cms,LTO-9,A1,0,1000\n";
    std::fs::write(&log, lines).expect("written");
    let told = succeed(&["simulate", "tape", &plan, "--log", &log, "--json"]);
    let reports: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(reports[2]["recalled"], 1);
    let example = succeed(&["simulate", "tape", "--example"]);
    assert!(example.contains("\"recalls\""), "{example}");
    std::fs::write(&plan, TAPE_PLAN.replace("LTO-9", "DLT")).expect("written");
    let told = fail(2, &["simulate", "tape", &plan]);
    assert!(
        told.contains("no kind of drive is 'DLT'; there are 9940B"),
        "{told}"
    );
}

#[test]
fn a_line_is_ordered_by_the_programs_of_papers() {
    let directory = tempfile::tempdir().expect("a directory");
    let list = directory.path().join("recall.json").display().to_string();
    let files = r#"{"turn_bytes": 1000, "files": [
        {"name": "left", "begin_bytes": 0, "size_bytes": 360000000000, "requests": 1},
        {"name": "right", "begin_bytes": 720000000000, "size_bytes": 3600000000, "requests": 9}]}"#;
    std::fs::write(&list, files).expect("written");
    let run = |policy: &str| {
        let line = [
            "tape", "order", &list, "--model", "linear", "--policy", policy,
        ];
        succeed(&[&line[..], &["--json"]].concat())
    };
    for (policy, first) in [
        ("exact-dp", "right"),
        ("simple-dp", "right"),
        ("position", "left"),
    ] {
        let report: Value = serde_json::from_str(&run(policy)).expect("JSON");
        assert_eq!(report["files"][0]["name"], first, "{policy}");
        assert_eq!(report["is_optimum_known"], true);
        let above = report["above_best_percent"].as_f64().expect("a number");
        assert_eq!(above > 0.0, policy == "position", "{policy}: {above}");
    }
    fail(2, &["tape", "order", &list, "--policy", "simple-dp"]);
    fail(
        2,
        &[
            "tape", "order", &list, "--model", "linear", "--policy", "scan",
        ],
    );
}
