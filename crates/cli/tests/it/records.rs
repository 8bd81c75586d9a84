//! Records from the command line.

use crate::site::{fail, succeed};
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
