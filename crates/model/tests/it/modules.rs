//! Inside a service modules have an order as crates have outside: each names only those before it, so there is no circle.

use crate::sources::{Source, code_of, files};
use std::collections::{BTreeMap, BTreeSet};

/// From what knows nobody to what knows all.
const TRANSFER_SERVICE: [&str; 21] = [
    "cloud",
    "loop_message",
    "clock",
    "leader_requests",
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
const STORAGE_ELEMENT: [&str; 38] = [
    "config",
    "clock",
    "crash",
    "timed_join",
    "private_files",
    "disk_full",
    "meter",
    "gate",
    "write_error",
    "pool",
    "metrics",
    "recorder",
    "mover",
    "claims",
    "pending_publication",
    "reaper",
    "uploads",
    "pool_messages",
    "uncommitted_file",
    "committer",
    "file_label",
    "pool_write",
    "receive",
    "directory_id_cache",
    "locks",
    "open_error",
    "pool_opening",
    "pool_watch",
    "recovery",
    "reserved_names",
    "rights",
    "stream_memory",
    "storage",
    "pool_files",
    "fsck",
    "rebuild",
    "door",
    "door_threads",
];

/// The same inside the door of the storage element: what requests and answers are, who asks and whether they may, the way
/// to a write, and then the methods.
const DOOR: [&str; 37] = [
    "answer",
    "remote_removals",
    "caller",
    "handler_context",
    "reserved",
    "access_check",
    "tree_rights",
    "html",
    "document_body",
    "conditions",
    "destination",
    "lock_conditions",
    "slot",
    "write_ticket",
    "byteranges",
    "list",
    "read",
    "write",
    "remote",
    "push_leftover",
    "pull_source",
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
    "cross_site_request",
    "health_endpoints",
    "fallback_door",
    "revoked_requests",
    "pages",
];

/// Modules of the pools that write a file. The door reaches them by messages (`pool_messages`), by `storage` which answers
/// these, and by the handle of one write.
const BEHIND_MESSAGES: [&str; 4] = [
    "committer",
    "uncommitted_file",
    "pending_publication",
    "file_label",
];
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

/// The same, of the one binary and of its two folders.
const CLI: [&str; 6] = ["environment", "exit", "output", "args", "site", "commands"];
const CLI_SITE: [&str; 12] = [
    "config",
    "config_file",
    "directory",
    "record",
    "store",
    "keys",
    "issuer",
    "backup",
    "expiry",
    "serve",
    "init",
    "check",
];
const CLI_COMMANDS: [&str; 25] = [
    "progress",
    "several",
    "access",
    "files",
    "share",
    "copy",
    "jobs",
    "settings",
    "import_fts3",
    "authz",
    "token",
    "key",
    "backup",
    "history",
    "host",
    "fsck",
    "rebuild",
    "trash",
    "tape",
    "demo",
    "records",
    "simulate",
    "what_if",
    "ingest",
    "account",
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

/// The module of the crate that a file belongs to.
fn module_of<'a>(file: &'a Source, root: &str) -> &'a str {
    let path = file.path.strip_prefix(root).expect("it is below");
    let name = path.trim_start_matches('/').split(['/', '.']).next();
    name.expect("split gives one piece at least")
}

/// What names a module of the same crate, before its name.
const CRATE: &str = "crate::";

/// The modules that a text names by this way to them: `crate::`, or `super::` as often as it takes.
fn named<'a>(code: &'a str, way: &str) -> BTreeSet<&'a str> {
    let places = code.match_indices(way);
    let is_whole = |at: usize| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|one| one.is_alphanumeric() || one == '_' || one == ':')
    };
    let names = places
        .filter(|(at, _)| is_whole(*at))
        .flat_map(|(at, _)| first_names(&code[at + way.len()..]));
    names.filter(|name| !name.is_empty()).collect()
}

/// The name that a path begins with, or those of the list that it is.
fn first_names(path: &str) -> Vec<&str> {
    let Some(list) = path.strip_prefix('{') else {
        return vec![first_name(path)];
    };
    let (mut depth, mut from, mut names) = (0_usize, 0, Vec::new());
    for (at, one) in list.char_indices() {
        if depth == 0 && [',', '}'].contains(&one) {
            names.push(first_name(list[from..at].trim_start()));
            from = at + 1;
        }
        match one {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

fn first_name(path: &str) -> &str {
    let end = path.find(|one: char| !one.is_alphanumeric() && one != '_');
    &path[..end.unwrap_or(path.len())]
}

/// Each name of a module that its order forbids.
fn against(order: &[&str], module: &str, named: BTreeSet<&str>) -> Vec<String> {
    let place = |name: &str| order.iter().position(|one| *one == name);
    let own = place(module).unwrap_or_else(|| panic!("module {module} has no place in the order"));
    let later = named.into_iter();
    let later = later.filter(|name| place(name).is_some_and(|place| place > own));
    later.map(|name| format!("{module} names {name}")).collect()
}

/// Modules beside each other: the folder in which they are, and the path by which they name each other.
struct Siblings<'a> {
    root: &'a str,
    path: &'a str,
}

impl Siblings<'_> {
    /// The modules of a crate.
    fn of_crate(root: &str) -> Siblings<'_> {
        Siblings { root, path: CRATE }
    }
}

fn check(siblings: &Siblings<'_>, order: &[&str], lines_min: usize) {
    let root = siblings.root;
    let (mut read, mut found) = (0, Vec::new());
    let all = files(&[root], ".rs");
    for file in all.iter().filter(|file| !file.is_test()) {
        let module = module_of(file, root);
        if ["lib", "main"].contains(&module) {
            continue;
        }
        let code = code_of(&file.text);
        read += code.lines().count();
        found.extend(against(order, module, named(&code, siblings.path)));
    }
    assert!(found.is_empty(), "{root}: {found:#?}");
    assert!(read >= lines_min, "{root}: only {read} lines were read");
}

#[test]
fn modules_of_the_transfer_service_know_those_below_them_only() {
    let service = Siblings::of_crate("crates/transfer-service/src");
    check(&service, &TRANSFER_SERVICE, 15_000);
}

#[test]
fn modules_of_the_storage_element_know_those_below_them_only() {
    let storage = Siblings::of_crate("crates/storage-element/src");
    check(&storage, &STORAGE_ELEMENT, 9_000);
}

#[test]
fn modules_of_the_binary_know_those_below_them_only() {
    check(&Siblings::of_crate("crates/cli/src"), &CLI, 10_000);
    let site = Siblings {
        root: "crates/cli/src/site",
        path: "crate::site::",
    };
    check(&site, &CLI_SITE, 5_000);
    let commands = Siblings {
        root: "crates/cli/src/commands",
        path: "crate::commands::",
    };
    check(&commands, &CLI_COMMANDS, 5_000);
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
        let crate_names = named(&code, CRATE);
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
            own.extend(named(&code, CRATE).into_iter().map(str::to_owned));
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
    assert_eq!(against(&order, "b", named(code, CRATE)), ["b names c"]);
    assert_eq!(against(&order, "c", named(code, CRATE)), [""; 0]);
    let code = "use super::{a, b::{self, c}, c::Y};\nlet x = super::a::X;\nuse super::super::d::Z;";
    assert_eq!(
        named(code, "super::"),
        BTreeSet::from(["a", "b", "c", "super"])
    );
    assert_eq!(named(code, "super::super::"), BTreeSet::from(["d"]));
    let code = "use crate::site::c::Y;\nuse crate::c::Y;";
    let site = named(code, "crate::site::");
    assert_eq!(against(&order, "b", site), ["b names c"]);
}
