//! The demo, small.

use crate::site::{eventually, penstock, succeed, text};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

#[test]
fn a_demo_moves_verifies_and_reports() {
    let report: Value = serde_json::from_str(&succeed(&[
        "demo", "--files", "12", "--size", "3 MB", "--json",
    ]))
    .expect("JSON");
    assert_eq!(report["report"]["transfers"]["finished"], 12);
    assert_eq!(report["report"]["bytes"], 3_000_000);
    assert_eq!(report["verification"]["agreed"], 12);
    assert_eq!(report["verification"]["read_back_files"], 12);
    assert_eq!(
        report["verification"]["problems"].as_array().map(Vec::len),
        Some(0)
    );
    assert_eq!(report["directory"], Value::Null);
    // The plot and the bandwidth are of the same bytes and the same time.
    let seconds = report["report"]["seconds"].as_f64().expect("a number");
    let bandwidth = report["report"]["bandwidth"]["megabits_per_second"].as_f64();
    let plotted = &report["report"]["rate_over_time"];
    let bin = plotted["bin_seconds"].as_f64().expect("a number");
    let rates = plotted["megabits_per_second"].as_array().expect("a plot");
    let megabits = rates.iter().enumerate().map(|(n, rate)| {
        let lasts = (seconds - n as f64 * bin).min(bin);
        rate.as_f64().unwrap_or(0.0) * lasts
    });
    let mean = megabits.sum::<f64>() / seconds;
    let bandwidth = bandwidth.expect("files moved");
    assert!(
        (mean / bandwidth - 1.0).abs() < 0.02,
        "{mean} plotted, {bandwidth} Mb/s said"
    );
}

#[test]
fn a_demo_with_own_data_prints_the_lines_that_bulk_testers_know() {
    let data = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(data.path().join("sub dir")).expect("made");
    for name in ["a", "sub dir/b"] {
        std::fs::write(data.path().join(name), name.repeat(1000)).expect("written");
    }
    let printed = succeed(&["demo", "--data", &data.path().display().to_string()]);
    for line in [
        "Transfer Bandwidth Report:",
        "  2/2 transferred in ",
        "  10000 bytes transferred.",
        "Bandwidth: ",
    ] {
        assert!(
            printed.lines().any(|printed| printed.starts_with(line)),
            "{line}\n{printed}"
        );
    }
    assert!(
        printed.contains("Verified: 2/2 checksums agree"),
        "{printed}"
    );
}

#[test]
fn an_interrupted_demo_leaves_nothing_running_and_nothing_on_disk() {
    let place = tempfile::tempdir().expect("a directory");
    let demo = penstock()
        .args(["demo", "--files", "200", "--size", "1 GB"])
        .env("TMPDIR", place.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: the interrupt is for the demo alone.
        .process_group(0)
        .spawn()
        .expect("the binary starts");
    let sites = || {
        std::fs::read_dir(place.path())
            .expect("there")
            .filter_map(Result::ok)
            .next()
    };
    let lock = |name: &str| sites().map(|root| root.path().join(name).join("state/serve.lock"));
    let pid = |name: &str| {
        std::fs::read_to_string(lock(name)?)
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    eventually("both sites run", || {
        pid("north").is_some() && pid("south").is_some()
    });
    let pids = [pid("north"), pid("south")].map(|pid| pid.expect("seen"));
    let sent = Command::new("kill")
        .arg("-INT")
        .arg(demo.id().to_string())
        .status();
    assert!(sent.expect("kill starts").success());
    let output = demo.wait_with_output().expect("our own child");
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    assert!(sites().is_none(), "the sites' directories are gone");
    for pid in pids {
        assert!(
            !std::path::Path::new(&format!("/proc/{pid}")).exists(),
            "process {pid} still runs"
        );
    }
}

#[test]
fn a_demo_that_cannot_fit_says_what_to_do() {
    let output = penstock()
        .args(["demo", "--files", "1000000", "--size", "200 TB"])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(7));
    let said = text(&output.stderr);
    assert!(said.contains("give a smaller --size"), "{said}");
    let output = penstock()
        .args(["demo", "--files", "3", "--size", "5 GB"])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("ask for more files or fewer bytes"));
}
