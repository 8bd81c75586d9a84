//! Inside a service modules have an order as crates have outside: each names only those before it, so there is no circle.

use crate::sources::{Source, code_of, files};
use std::collections::{BTreeMap, BTreeSet};

/// From what knows nobody to what knows all.
const TRANSFER_SERVICE: [&str; 21] = [
    "cloud",
    "message",
    "clock",
    "leader",
    "tokens",
    "agent",
    "overview",
    "metrics",
    "banned",
    "error",
    "ledger_followers",
    "node",
    "run",
    "restore",
    "nodes",
    "store",
    "service",
    "history",
    "api",
    "messages",
    "fuzzing",
];

/// The same: pools and movers, then what uses the namespace, then doors.
const STORAGE_ELEMENT: [&str; 37] = [
    "config",
    "clock",
    "crash",
    "threads",
    "privacy",
    "fullness",
    "meter",
    "gate",
    "write_error",
    "pool",
    "metrics",
    "recorder",
    "mover",
    "claims",
    "publication",
    "reaper",
    "uploads",
    "pool_messages",
    "scratch",
    "committer",
    "label",
    "pool_write",
    "receive",
    "directory_ids",
    "locks",
    "open_error",
    "opening",
    "upkeep",
    "recovery",
    "reserved_names",
    "rights",
    "stream_memory",
    "storage",
    "pool_files",
    "fsck",
    "rebuild",
    "door",
];

/// The same inside the door of the storage element: what requests and answers are, who asks and whether they may, the way
/// to a write, and then the methods.
const DOOR: [&str; 36] = [
    "answer",
    "removals",
    "caller",
    "call",
    "reserved",
    "access",
    "parts",
    "html",
    "body",
    "conditions",
    "destination",
    "guard",
    "slot",
    "write_ticket",
    "byteranges",
    "list",
    "read",
    "write",
    "remote",
    "leftover",
    "source",
    "striped",
    "pull",
    "push",
    "duplicate",
    "copy",
    "lock",
    "resumable",
    "tree",
    "properties",
    "trash",
    "macaroon",
    "foreign",
    "monitor",
    "revocation",
    "pages",
];

/// Modules of the pools that write a file. The door reaches them by messages (`pool_messages`), by `storage` which answers
/// these, and by the handle of one write.
const BEHIND_MESSAGES: [&str; 4] = ["committer", "scratch", "publication", "label"];
/// Files of the door that write.
const WRITERS: [&str; 6] = [
    "duplicate.rs",
    "lock.rs",
    "pull.rs",
    "resumable.rs",
    "write.rs",
    "write_ticket.rs",
];

/// Calls by which a write begins. In the door the ticket alone makes them, so that there is no other way to one.
const OF_THE_TICKET: [&str; 4] = [
    "claims.claim(",
    ".choose_pool(",
    ".new_write(",
    ".open_write(",
];

/// Circles that stay, each with the reason.
const CIRCLES: [(&str, &[&str], &str); 6] = [
    (
        "model",
        &["failure", "tape"],
        "a failure tells where a file was found, a recall how a file failed",
    ),
    (
        "model",
        &["job", "ledger", "reason", "stages", "streams", "transfer"],
        "a transfer's states, events and reasons are one vocabulary in several files",
    ),
    (
        "persistence",
        &["postgres", "resealing"],
        "one pass over all secrets; each back end has its own way to find them",
    ),
    (
        "protocol",
        &["identity", "vo"],
        "an identity has VOs, whose names are made of what names an identity",
    ),
    (
        "protocol",
        &["membership", "voms", "x509"],
        "a certificate shows attributes, which certificates have signed",
    ),
    (
        "field-tools",
        &["credentials", "remote_error"],
        "what a server refuses is told with what it was shown",
    ),
];

const OWN: &str = "crate::";

/// The module of the crate that a file belongs to.
fn module_of<'a>(file: &'a Source, root: &str) -> &'a str {
    let path = file.path.strip_prefix(root).expect("it is below");
    let name = path.trim_start_matches('/').split(['/', '.']).next();
    name.expect("split gives one piece at least")
}

/// The modules that a text names by this way to them: `crate::`, or `super::` as often as it takes.
fn named<'a>(code: &'a str, way: &str) -> BTreeSet<&'a str> {
    let places = code.match_indices(way);
    let is_whole = |at: usize| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|one| one.is_alphanumeric() || one == '_' || one == ':')
    };
    let names = places.filter(|(at, _)| is_whole(*at)).flat_map(|(at, _)| {
        let rest = &code[at + way.len()..];
        match rest.strip_prefix('{') {
            Some(group) => firsts_of_group(group),
            None => vec![first_name(rest)],
        }
    });
    names.filter(|name| !name.is_empty()).collect()
}

fn first_name(code: &str) -> &str {
    let end = code.find(|one: char| !one.is_alphanumeric() && one != '_');
    &code[..end.unwrap_or(code.len())]
}

/// The first name of each path in the braces of a `use`.
fn firsts_of_group(code: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut names) = (0, 0, Vec::new());
    for (at, one) in code.char_indices() {
        match one {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(first_name(code[begin..at].trim_start()));
                begin = at + 1;
                if one == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names
}

/// Each name of a module that its order forbids.
fn against(order: &[&str], module: &str, named: BTreeSet<&str>) -> Vec<String> {
    let place = |name: &str| order.iter().position(|one| *one == name);
    let own = place(module).unwrap_or_else(|| panic!("module {module} has no place in the order"));
    let later = named.into_iter();
    let later = later.filter(|name| place(name).is_some_and(|place| place > own));
    later.map(|name| format!("{module} names {name}")).collect()
}

fn check(root: &str, order: &[&str], lines_min: usize) {
    let (mut read, mut found) = (0, Vec::new());
    let all = files(&[root], ".rs");
    for file in all.iter().filter(|file| !file.is_test()) {
        let module = module_of(file, root);
        if module == "lib" {
            continue;
        }
        let code = code_of(&file.text);
        read += code.lines().count();
        found.extend(against(order, module, named(&code, OWN)));
    }
    assert!(found.is_empty(), "{root}: {found:#?}");
    assert!(read >= lines_min, "{root}: only {read} lines were read");
}

#[test]
fn modules_of_the_transfer_service_know_those_below_them_only() {
    check("crates/transfer-service/src", &TRANSFER_SERVICE, 15_000);
}

#[test]
fn modules_of_the_storage_element_know_those_below_them_only() {
    check("crates/storage-element/src", &STORAGE_ELEMENT, 9_000);
}

#[test]
fn modules_of_the_door_know_those_below_them_only() {
    const ROOT: &str = "crates/storage-element/src/door";
    let (mut read, mut found) = (0, Vec::new());
    let all = files(&[&format!("{ROOT}/")], ".rs");
    for file in all.iter().filter(|file| !file.is_test()) {
        let module = module_of(file, ROOT);
        let code = code_of(&file.text);
        read += code.lines().count();
        let below = file.path.strip_prefix(ROOT).expect("it is below");
        let way = "super::".repeat(below.matches('/').count());
        found.extend(against(&DOOR, module, named(&code, &way)));
        let crate_names = named(&code, OWN);
        if crate_names.contains("door") {
            found.push(format!("{module} names the door by another way"));
        }
        if module != "write_ticket" {
            let calls = OF_THE_TICKET.iter().filter(|call| code.contains(**call));
            found.extend(calls.map(|call| format!("{module} calls {call}…) without a ticket")));
        } else {
            let missing = OF_THE_TICKET.iter().filter(|call| !code.contains(**call));
            found.extend(missing.map(|call| format!("the ticket does not call {call}…)")));
        }
        let is_writer = WRITERS
            .iter()
            .any(|name| file.path.ends_with(&format!("/{name}")));
        let behind = BEHIND_MESSAGES.iter().chain(is_writer.then_some(&"pool"));
        let behind = behind.filter(|name| crate_names.contains(**name));
        found.extend(behind.map(|name| format!("{module} names {name} of the pools")));
    }
    assert!(found.is_empty(), "{found:#?}");
    assert!(read >= 5_000, "only {read} lines were read");
}

/// Who names whom in a crate.
type Names = BTreeMap<String, BTreeSet<String>>;

fn names_in(root: &str) -> Names {
    let all = files(&[root], ".rs");
    let all = all.iter().filter(|file| !file.is_test());
    let mut names = Names::new();
    for file in all {
        let module = module_of(file, root);
        if !["lib", "main"].contains(&module) {
            let code = code_of(&file.text);
            let own = names.entry(module.to_owned()).or_default();
            own.extend(named(&code, OWN).into_iter().map(str::to_owned));
        }
    }
    names
}

/// All that a module names, and what these name, and so on.
fn reach<'a>(names: &'a Names, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        let further = names.get(module).into_iter().flatten();
        let further = further.map(String::as_str).filter(|name| *name != module);
        next.extend(further.filter(|name| reached.insert(*name)));
    }
    reached
}

/// Modules that name each other, over whatever others.
fn circles(names: &Names) -> BTreeSet<BTreeSet<&str>> {
    let reached = names
        .keys()
        .map(|module| (module.as_str(), reach(names, module)));
    let reached: BTreeMap<&str, BTreeSet<&str>> = reached.collect();
    let circle = |module: &str| {
        let back = reached
            .iter()
            .filter(|(_, further)| further.contains(module));
        let both = back.map(|(other, _)| *other);
        let both: BTreeSet<&str> = both
            .filter(|other| reached[module].contains(other))
            .collect();
        both
    };
    let all = names.keys().map(|module| circle(module));
    all.filter(|circle| circle.len() > 1).collect()
}

#[test]
fn no_circle_of_modules_is_without_a_reason() {
    let manifests = files(&["crates"], "/Cargo.toml");
    let mut found = BTreeSet::new();
    let mut modules = 0;
    for manifest in &manifests {
        let name = manifest.path.strip_prefix("crates/");
        let name = name.and_then(|path| path.strip_suffix("/Cargo.toml"));
        let name = name.expect("a manifest in crates/");
        let names = names_in(&format!("crates/{name}/src"));
        modules += names.len();
        let all = circles(&names).into_iter();
        found.extend(all.map(|circle| format!("{name}: {circle:?}")));
    }
    let known = CIRCLES.iter().map(|(name, circle, _)| {
        let circle: BTreeSet<&str> = circle.iter().copied().collect();
        format!("{name}: {circle:?}")
    });
    assert_eq!(found, known.collect());
    assert!(modules > 200, "only {modules} modules were read");
}

#[test]
fn a_circle_over_a_third_module_is_found() {
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let names = Names::from([
        ("a".to_owned(), named(&["b"])),
        ("b".to_owned(), named(&["c", "d"])),
        ("c".to_owned(), named(&["a"])),
        ("d".to_owned(), named(&[])),
    ]);
    assert_eq!(
        circles(&names),
        BTreeSet::from([BTreeSet::from(["a", "b", "c"])])
    );
}

#[test]
fn a_name_against_the_order_is_found() {
    let order = ["a", "b", "c"];
    let code = "use crate::a::X;\nuse crate::c::Y;\nlet z = other_crate::c::Z;\ncrate::b::own();";
    assert_eq!(against(&order, "b", named(code, OWN)), ["b names c"]);
    assert_eq!(against(&order, "c", named(code, OWN)), [""; 0]);
    let code = "use super::{a, b::{self, c}, c::Y};\nlet x = super::a::X;\nuse super::super::d::Z;";
    assert_eq!(
        named(code, "super::"),
        BTreeSet::from(["a", "b", "c", "super"])
    );
    assert_eq!(named(code, "super::super::"), BTreeSet::from(["d"]));
}
