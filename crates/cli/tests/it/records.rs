//! Records from the command line.

use crate::site::{fail, run, succeed, text};
use serde_json::Value;

#[test]
fn what_was_imported_is_not_imported_a_second_time_unless_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (rows, copy, store) = (at("rows.jsonl"), at("copy.jsonl"), at("store"));
    let row = r#"{"row":"attempt","at":1764111600000,"view":"vo","operation":"copy","source":"a","line":1}"#;
    std::fs::write(&rows, format!("{{\"penstock_records\":1}}\n{row}\n")).expect("written");
    std::fs::copy(&rows, &copy).expect("copied");
    let count = || {
        let told = succeed(&["records", "show", &store, "--json"]);
        serde_json::from_str::<Value>(&told).expect("JSON")["count"].clone()
    };
    let said = fail(2, &["records", "import", &rows, &copy, "--into", &store]);
    assert!(said.contains("copy.jsonl is named twice"), "{said}");
    succeed(&["records", "import", &rows, "--into", &store]);
    for again in [&rows, &copy] {
        let said = fail(2, &["records", "import", again, "--into", &store]);
        assert!(
            said.contains(&format!("{again} was imported before")),
            "{said}"
        );
    }
    assert_eq!(count(), 1);
    succeed(&["records", "import", &copy, "--into", &store, "--again"]);
    assert_eq!(count(), 2);
}

#[test]
fn a_residue_is_a_difference_that_was_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let view = |name: &str, bytes: &str| {
        let (file, store) = (at(&format!("{name}.jsonl")), at(name));
        let row = format!(
            "{{\"row\":\"attempt\",\"at\":1764111600000,\"view\":\"vo\",\"operation\":\"copy\",\"source\":\"{name}\",\"line\":1,\
             \"copy\":\"c1\",\"outcome\":\"success\"{bytes}}}"
        );
        std::fs::write(&file, format!("{{\"penstock_records\":1}}\n{row}\n")).expect("written");
        succeed(&["records", "import", &file, "--into", &store]);
        store
    };
    let told = ",\"bytes_moved\":7,\"file_bytes\":7";
    let (one, other, unsized_view) = (view("one", told), view("other", told), view("unsized", ""));
    let agreed = succeed(&["account", "reconcile", &one, &other]);
    assert!(agreed.contains("1 attempts in both"), "{agreed}");
    let said = fail(6, &["account", "reconcile", &one, &unsized_view]);
    assert!(
        !said.contains("penstock:"),
        "what was found is told once: {said}"
    );
    let found = run(&["account", "reconcile", &one, &unsized_view, "--json"]);
    let found: Value = serde_json::from_str(&text(&found.stdout)).expect("JSON");
    assert_eq!(
        (&found["exit_code"], &found["code"]),
        (&6.into(), &"consistency-broken".into())
    );
    assert_eq!(found["report"]["all"]["terms"]["residue"], -7);
    assert_eq!(
        found["report"]["residue"][0]["why"],
        "the second view tells no size"
    );
}
