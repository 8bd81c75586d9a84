//! Records from the command line.

use crate::site::{fail, penstock, run, succeed, text};
use serde_json::Value;
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Lines of attempts, each at its time.
fn rows(times: impl Iterator<Item = u64>) -> String {
    let mut text = "{\"penstock_records\":1}\n".to_owned();
    for (line, at) in times.enumerate() {
        let _ = writeln!(
            text,
            "{{\"row\":\"attempt\",\"at\":{at},\"view\":\"vo\",\"operation\":\"copy\",\"source\":\"a\",\"line\":{line}}}"
        );
    }
    text
}

fn count_in(store: &str) -> Value {
    let told = succeed(&["records", "show", store, "--json"]);
    serde_json::from_str::<Value>(&told).expect("JSON")["count"].clone()
}

#[test]
fn an_import_that_fails_imports_nothing_and_all_of_it_comes_once_afterwards() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (good, damaged, store) = (at("good.jsonl"), at("damaged.parquet"), at("store"));
    // More than a block, which is on disk before the next file is read.
    let day = (0..40_000).map(|number| 1_764_111_600_000 + number);
    std::fs::write(&good, rows(day)).expect("written");
    std::fs::write(&damaged, "PAR1 and no end").expect("written");
    fail(2, &["records", "import", &good, &damaged, "--into", &store]);
    assert_eq!(count_in(&store), 0);
    let full = ["records", "import", &good, "--into", &store];
    let said = fail(7, &[&full[..], &["--free-min", "1000 PB"]].concat());
    assert!(said.contains("--free-min"), "{said}");
    assert_eq!(count_in(&store), 0);
    succeed(&full);
    assert_eq!(count_in(&store), 40_000);
}

#[test]
fn an_import_of_many_days_needs_few_open_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (file, store) = (at("rows.jsonl"), at("store"));
    let days = (0..300).map(|day| 1_764_111_600_000 + day * 86_400_000);
    std::fs::write(&file, rows(days)).expect("written");
    let binary = penstock().get_program().to_owned();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 100; exec \"$0\" \"$@\""]);
    limited.arg(binary);
    let output = limited
        .args(["records", "import", &file, "--into", &store])
        .output()
        .expect("the shell starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(count_in(&store), 300);
}

#[test]
fn a_page_of_accounting_is_for_its_user_alone_and_takes_the_place_of_no_link() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (file, store, page) = (at("rows.jsonl"), at("store"), at("page.html"));
    std::fs::write(&file, rows(std::iter::once(1_764_111_600_000))).expect("written");
    succeed(&["records", "import", &file, "--into", &store]);
    std::fs::write(&page, "an older page").expect("written");
    std::fs::set_permissions(&page, PermissionsExt::from_mode(0o644)).expect("set");
    succeed(&["account", &store, "--html", &page]);
    let mode = std::fs::metadata(&page)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let (other, link) = (at("other"), at("link.html"));
    std::fs::write(&other, "somebody's").expect("written");
    std::os::unix::fs::symlink(&other, &link).expect("made");
    let said = fail(2, &["account", &store, "--html", &link]);
    assert!(said.contains("is not a file"), "{said}");
    let kept = std::fs::read_to_string(&other).expect("there");
    assert_eq!(kept, "somebody's");
}

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
        "the second view has no size"
    );
}
