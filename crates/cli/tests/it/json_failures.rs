//! What programs get of commands that fail: one JSON object of one form.

use crate::site::{Site, run, succeed, text};
use serde_json::Value;

/// Runs a command that fails with `--json`; gives back the one object that it prints.
fn failure(args: &[&str], code: i32) -> Value {
    let output = run(&[args, &["--json"]].concat());
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    let told = format!("penstock {args:?}: {}\n{printed}\n{said}", output.status);
    assert_eq!(output.status.code(), Some(code), "{told}");
    let object: Value =
        serde_json::from_str(&printed).unwrap_or_else(|why| panic!("{why}: {told}"));
    for key in ["error", "code", "side", "layer", "who", "message"] {
        assert!(object[key].is_string(), "no {key}: {told}");
    }
    assert!(
        object["retryable"].is_string() || object["retryable"].is_boolean(),
        "{told}"
    );
    assert_eq!(object["exit_code"], code, "{told}");
    object
}

/// The commands, as `penstock help` lists them.
fn commands() -> Vec<String> {
    let help = succeed(&["help"]);
    let listed = help.lines().skip_while(|line| *line != "Site:");
    let listed = listed.take_while(|line| *line != "Options:");
    let name = |line: &str| Some(line.strip_prefix("  ")?.split(' ').next()?.to_owned());
    let names = listed.filter_map(name);
    names
        .filter(|name| !name.is_empty() && name != "help")
        .collect()
}

#[test]
fn every_command_line_that_makes_no_sense_is_told_as_one_object() {
    let commands = commands();
    assert!(commands.len() > 30, "{commands:?}");
    for command in commands {
        let object = failure(&[&command, "--no-such-option"], 2);
        assert_eq!(object["code"], "command-invalid", "{command}");
    }
}

#[test]
fn every_failure_is_told_as_one_object() {
    let site = Site::make(&[]);
    let (dir, none) = (
        site.dir_arg(),
        site.scratch().join("none").display().to_string(),
    );
    let at = |name: &str| site.scratch().join(name).display().to_string();
    let (lines, store, table) = (at("lines"), at("store"), at("table.json"));
    std::fs::write(&lines, "this is no line of a log\n").expect("written");
    let row = |name: &str, files: u64| {
        serde_json::json!({ "name": name, "files": files, "volume_bytes": 10,
                            "bytes_per_second": 1, "mean_file_bytes": 10 })
    };
    let published =
        serde_json::json!({ "seconds": 10, "total": row("all", 1), "parts": [row("a", 7)] });
    std::fs::write(&table, published.to_string()).expect("written");
    let nobody = "https://127.0.0.1:1";

    let told = failure(&["ingest", "dcache", &lines, "--into", &store], 1);
    assert_eq!(told["report"]["invalid"], 1);
    let told = failure(&["records", "import", &lines, "--into", &store], 1);
    assert_eq!(told["report"]["invalid"], 1);
    let told = failure(&["account", "published", &table], 6);
    assert!(told["report"].is_array(), "{told}");
    let asked = ["authz", "test", "/f", "--dir", &dir, "--as", "anonymous"];
    assert!(failure(&asked, 3)["report"]["operations"].is_array());
    let config = site.dir().join("penstock.toml");
    let valid = std::fs::read_to_string(&config).expect("there");
    let broken = valid.replace("signing_key = \"keys/", "signing_key = \"nowhere/");
    std::fs::write(&config, broken).expect("our own");
    assert!(failure(&["check", "--dir", &dir], 2)["report"]["findings"].is_array());
    std::fs::write(&config, valid).expect("our own");

    failure(&["check", "--dir", &none], 2);
    failure(&["serve", "--dir", &none], 2);
    failure(&["init", "--dir", &dir], 2);
    failure(&["fsck", "--dir", &dir], 4);
    failure(&["backup", "--verify", &none], 7);
    failure(&["restore", &none, "--dir", &dir], 7);
    failure(&["records", "show", &none], 4);
    failure(&["account", &none], 4);
    failure(&["simulate", &none], 2);
    let recall = at("recall.json");
    std::fs::write(&recall, r#"{"files": []}"#).expect("written");
    let told = failure(&["tape", "order", &recall], 2);
    let error = told["error"].as_str().expect("text");
    assert!(error.contains("the list \"files\" is empty"), "{error}");
    failure(&["stat", "--service", nobody], 2);
    failure(&["stat", &format!("{nobody}/f"), "--capath", &none], 2);
    failure(&["status", "--service", nobody, "--dir", &dir, "x"], 5);
    failure(&["cancel", "--service", nobody, "--dir", &dir, "x"], 5);
    failure(&["copy", &none, &site.url("/f"), "--dir", &dir], 4);
    failure(&["copy", &none, &none], 2);
}
