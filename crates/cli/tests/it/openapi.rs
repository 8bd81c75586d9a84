//! The OpenAPI documents name what the routers serve, no more and no less. Routers do not tell their routes, so these are
//! read from the sources; that answers are as the documents say is tested in `tests/interop/test_openapi.py`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Methods by path.
type Routes = BTreeMap<String, BTreeSet<String>>;

/// Where routes of the transfer service's port are made.
const ROUTERS: [&str; 4] = [
    "crates/transfer-service/src/api.rs",
    "crates/transfer-service/src/api",
    "crates/observe/src/live.rs",
    "crates/cli/src/site/serve",
];
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> Value {
    let path = repository().join(format!("docs/api/openapi/{name}.json"));
    let text = fs::read_to_string(&path).expect("the document is there");
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

fn documented(document: &Value) -> Routes {
    let methods = |operations: &Value| {
        let keys = operations.as_object().expect("operations").keys();
        keys.filter(|key| METHODS.contains(&key.as_str()))
            .cloned()
            .collect()
    };
    let paths = document["paths"].as_object().expect("paths");
    paths
        .iter()
        .map(|(path, operations)| (path.clone(), methods(operations)))
        .collect()
}

fn sources(path: &Path, found: &mut Vec<String>) {
    if path.is_file() {
        found.push(fs::read_to_string(path).expect("a source"));
        return;
    }
    for entry in fs::read_dir(path).expect("a directory of sources") {
        sources(&entry.expect("an entry").path(), found);
    }
}

/// The routes in a source: `.route("/path", get(…).post(…))`.
fn routes_in(source: &str, found: &mut Routes) {
    for call in source.split(".route(").skip(1) {
        let call = arguments(call);
        let path = call.trim_start().strip_prefix('"');
        let (path, handlers) = path
            .and_then(|rest| rest.split_once('"'))
            .unwrap_or_else(|| panic!("the path of a route must stand in its call: {call}"));
        let words = handlers.split('(').map(|before| {
            before
                .rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_')
                .next()
                .unwrap_or_default()
                .to_owned()
        });
        let methods: BTreeSet<String> = words
            .filter(|word| METHODS.contains(&word.as_str()))
            .collect();
        assert!(!methods.is_empty(), "no method for {path}: {call}");
        found.entry(path.to_owned()).or_default().extend(methods);
    }
}

/// What stands before the bracket that closes a call.
fn arguments(after: &str) -> &str {
    let mut open = 1;
    for (at, letter) in after.char_indices() {
        match letter {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return &after[..at];
        }
    }
    after
}

#[test]
fn the_documents_name_what_the_port_of_the_transfer_service_serves() {
    let (fts, own) = (
        documented(&document("fts")),
        documented(&document("penstock")),
    );
    let mut named = fts.clone();
    for (path, methods) in own {
        let twice = named.insert(path.clone(), methods);
        assert!(twice.is_none(), "{path} stands in both documents");
    }
    let mut texts = Vec::new();
    for place in ROUTERS {
        sources(&repository().join(place), &mut texts);
    }
    let mut served = Routes::new();
    for text in &texts {
        routes_in(text, &mut served);
    }
    let lines = |routes: &Routes| -> BTreeSet<String> {
        let line = |path: &String, method: &String| format!("{method} {path}");
        let each = |(path, methods): (&String, &BTreeSet<String>)| {
            methods
                .iter()
                .map(|method| line(path, method))
                .collect::<Vec<_>>()
        };
        routes.iter().flat_map(each).collect()
    };
    let (named, served) = (lines(&named), lines(&served));
    let missing: Vec<&String> = served.difference(&named).collect();
    let gone: Vec<&String> = named.difference(&served).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/api/openapi: add {missing:?} to fts.json or penstock.json; nothing serves {gone:?}"
    );
}

#[test]
fn every_reference_and_every_operation_of_a_document_is_its_own() {
    for name in ["fts", "penstock", "storage"] {
        let document = document(name);
        let mut operations = BTreeSet::new();
        visit(&document, &mut |key, value| {
            if key == "$ref" {
                let target = value.as_str().expect("a reference is text");
                let pointer = target.strip_prefix('#').expect("within the document");
                assert!(document.pointer(pointer).is_some(), "{name}: {target}");
            }
        });
        for of_path in document["paths"].as_object().expect("paths").values() {
            for operation in of_path.as_object().expect("operations").values() {
                let id = operation["operationId"]
                    .as_str()
                    .expect("an operation's id");
                assert!(operations.insert(id.to_owned()), "{name}: {id} twice");
            }
        }
    }
}

fn visit(value: &Value, see: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(keys) => {
            for (key, value) in keys {
                see(key, value);
                visit(value, see);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| visit(item, see)),
        _ => {}
    }
}

/// Words of the wire: the documents that have them, where in these, and the matches in the sources that make them.
#[rustfmt::skip]
const WORDS: [(&[&str], &str, &str, &[&str]); 10] = [
    (&["fts", "penstock"], "FileState/enum", "TransferState::",
     &["model/src/transfer.rs", "journal/src/rows.rs"]),
    (&["fts", "penstock"], "JobState/enum", "JobState::", &["model/src/job.rs"]),
    (&["fts"], "SelectionStrategy/enum", "Selection::", &["model/src/job.rs"]),
    (&["fts"], "JobFields/properties/job_type/enum", "JobKind::", &["model/src/job.rs"]),
    (&["fts"], "StorageBan/properties/status/enum", "BanEffect::", &["model/src/ban.rs"]),
    (&["penstock"], "CopyMode/enum", "CopyMode::", &["model/src/transfer.rs"]),
    (&["penstock"], "WaitKind/enum", "WaitReason::|SlotPlace::|SlotBound::", &["decide/src/wording.rs"]),
    (&["penstock"], "Copied/properties/in_effect/anyOf/1/properties/because/items/enum", "StreamsReason::",
     &["model/src/streams.rs"]),
    (&["storage"], "TapeWait/properties/code/enum", "QueueWait::|MountWait::", &["storage-element/src/nearline/wording.rs"]),
    (&["storage"], "TapeIncidentCode/enum", "HsmIncident::|TapeIncident::|DiskIncident::",
     &["storage-element/src/nearline/wording.rs"]),
];

/// An administrator who is told of an incident finds it in the page, with what to do.
#[test]
fn each_incident_of_tape_is_in_the_page_for_administrators() {
    let page = fs::read_to_string(repository().join("docs/tape/files-on-tape.md")).expect("a page");
    let document = document("storage");
    let codes = document.pointer("/components/schemas/TapeIncidentCode/enum");
    let codes = codes.and_then(Value::as_array).expect("codes");
    assert!(codes.len() > 10, "{codes:?}");
    for code in codes {
        let row = format!("| `{}` |", code.as_str().expect("a word"));
        assert!(page.lines().any(|line| line.starts_with(&row)), "{row}");
    }
}

#[test]
fn the_words_of_the_documents_are_those_of_the_sources() {
    for (documents, place, type_name, files) in WORDS {
        let mut made = BTreeSet::new();
        for file in files {
            let source = fs::read_to_string(repository().join("crates").join(file));
            for line in source.expect("a source").lines() {
                let (pattern, word) = line.split_once(" => \"").unwrap_or_default();
                let is_of_type = type_name.split('|').any(|name| pattern.contains(name));
                if let (true, Some(word)) = (is_of_type, word.strip_suffix("\",")) {
                    made.insert(word.to_owned());
                }
            }
        }
        for name in documents {
            let document = document(name);
            let words = document.pointer(&format!("/components/schemas/{place}"));
            let words = words.and_then(Value::as_array).expect("a list of words");
            let named: BTreeSet<String> = words
                .iter()
                .map(|word| word.as_str().expect("a word").to_owned())
                // What a client says when it leaves the choice to us.
                .filter(|word| word != "auto")
                .collect();
            assert_eq!(named, made, "docs/api/openapi/{name}.json, {place}");
        }
    }
}

#[test]
fn routes_are_found_in_sources() {
    let source = r#"Router::new().route("/a", get(x)).route(
        "/b/{id}",
        axum::routing::delete(y::z).post(target::put_off),
    )"#;
    let mut found = Routes::new();
    routes_in(source, &mut found);
    let methods = |path: &str| found[path].iter().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        (methods("/a"), methods("/b/{id}")),
        ("get".into(), "delete post".into())
    );
}
