//! Inside a service modules have an order as crates have outside: each names only those before it, so there is no circle.

use crate::sources::{Source, code_of, files};
use std::collections::{BTreeMap, BTreeSet};

/// From what knows nobody to what knows all.
const TRANSFER_SERVICE: [&str; 22] = [
    "cloud",
    "loop_message",
    "clock",
    "leader_requests",
    "tokens",
    "agent",
    "minutes",
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
const STORAGE_ELEMENT: [&str; 47] = [
    "hsm_command",
    "config",
    "clock",
    "crash",
    "timed_join",
    "private_files",
    "disk_full",
    "meter",
    "traffic",
    "tape_counts",
    "tape_meter",
    "gate",
    "write_error",
    "pool",
    "metrics",
    "recorder",
    "mover",
    "claims",
    "pending_publication",
    "drive_account",
    "tape_operator",
    "nearline_inbox",
    "reaper",
    "pool_sampler",
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
    "nearline",
    "storage",
    "pool_files",
    "fsck",
    "rebuild",
    "door",
    "door_threads",
];

/// The same inside the door of the storage element: what requests and answers are, who asks and whether they may, the way
/// to a write, and then the methods.
const DOOR: [&str; 44] = [
    "answer",
    "remote_removals",
    "archive_word",
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
    "locality",
    "list",
    "wanted_digest",
    "tape_system",
    "tape_accounts",
    "tape",
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
    "share",
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
const CLI: [&str; 8] = [
    "environment",
    "exit",
    "stop_signals",
    "output",
    "args",
    "contexts",
    "site",
    "commands",
];
const CLI_SITE: [&str; 23] = [
    "config",
    "acquaintance",
    "ownership",
    "directory",
    "config_file",
    "own_document",
    "reload",
    "trusted_site",
    "trusted_sites",
    "element_rows",
    "path_story",
    "pool_record",
    "host_record",
    "element_record",
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
const CLI_COMMANDS: [&str; 34] = [
    "progress",
    "batch_result",
    "access",
    "own_sources",
    "files",
    "mv",
    "space",
    "copy",
    "jobs",
    "access_links",
    "share",
    "stage",
    "top",
    "settings",
    "import_fts3",
    "authz",
    "token",
    "key",
    "backup",
    "history",
    "host",
    "fsck",
    "sync",
    "trust",
    "rebuild",
    "trash",
    "records",
    "account",
    "tape",
    "demo",
    "simulate",
    "what_if",
    "ingest",
    "context",
];

/// Circles that stay, each with the folder in which its modules lie, and the reason.
const CIRCLES: [(&str, &[&str], &str); 9] = [
    (
        "cli/commands/tape",
        &["care", "system"],
        "the status of a tape system tells of the care for tapes, whose orders are given to the tape system",
    ),
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
        "tape",
        &[
            "live_set",
            "mount_account",
            "record",
            "relabel",
            "tape_care",
        ],
        "records make up the live set with its accounts of mounts and of care for tapes, and one record is all that others made up",
    ),
    (
        "transfer-service/agent",
        &["destination_evidence", "gfal", "steps", "third_party"],
        "the steps of an attempt are methods of one `AttemptRun`, with a file for each kind of copy",
    ),
    (
        "field-tools",
        &["credentials", "remote_error"],
        "what a server refuses is told with what it was shown",
    ),
];

/// The names from the root of a crate to a module, or to a thing in it.
type ModulePath = Vec<String>;

/// A file of a crate, and all that it names by `crate::`, `super::` and `self::`.
struct Module<'a> {
    file: &'a Source,
    path: ModulePath,
    code: String,
    names: Vec<ModulePath>,
}

/// The place of a file in its crate; that of the root is empty.
fn module_path(file: &str, root: &str) -> ModulePath {
    let below = file.strip_prefix(root).expect("it is below");
    let below = below.trim_start_matches('/').trim_end_matches(".rs");
    let path = below
        .split('/')
        .filter(|name| !["lib", "main"].contains(name));
    path.map(str::to_owned).collect()
}

/// All paths that a text names, from the words with which they begin: each as one list of names.
fn paths_in(code: &str) -> Vec<Vec<&str>> {
    const BEGINNINGS: [&str; 3] = ["crate::", "super::", "self::"];
    let mut found = Vec::new();
    for beginning in BEGINNINGS {
        for (at, _) in code.match_indices(beginning) {
            let before = code[..at].chars().next_back();
            if !before.is_some_and(|one| one.is_alphanumeric() || one == '_' || one == ':') {
                add_paths(&code[at..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// Adds the path that a text begins with; of a list in braces, each of its paths. Returns what follows it.
fn add_paths<'a>(
    code: &'a str,
    above: &mut Vec<&'a str>,
    found: &mut Vec<Vec<&'a str>>,
) -> &'a str {
    let end = code.find(|one: char| !one.is_alphanumeric() && one != '_');
    let (name, rest) = code.split_at(end.unwrap_or(code.len()));
    if let Some(list) = rest.strip_prefix('{').filter(|_| name.is_empty()) {
        let mut rest = list.trim_start();
        while !rest.is_empty() && !rest.starts_with('}') {
            rest = add_paths(rest, above, found);
            // What follows a path: its other name, and a comma.
            let next = rest.find([',', '}']).unwrap_or(rest.len());
            rest = rest[next..].trim_start_matches(',').trim_start();
        }
        return rest.strip_prefix('}').unwrap_or(rest);
    }
    above.push(name);
    let rest = match rest.strip_prefix("::") {
        Some(below) => add_paths(below, above, found),
        None => {
            found.push(above.clone());
            rest
        }
    };
    above.pop();
    rest
}

/// A path from the root of the crate, as it is named in a module.
fn resolved(path: &[&str], module: &[String]) -> ModulePath {
    let (mut from, mut rest) = (module.to_vec(), path);
    while let [word, further @ ..] = rest {
        match *word {
            "crate" => from.clear(),
            "self" => {}
            "super" => drop(from.pop()),
            _ => break,
        }
        rest = further;
    }
    from.extend(rest.iter().map(|name| (*name).to_owned()));
    from
}

/// The modules of a crate, and what each names.
fn modules_of<'a>(files: &'a [Source], root: &str) -> Vec<Module<'a>> {
    let files = files.iter().filter(|file| !file.is_test());
    let modules = files.map(|file| {
        let path = module_path(&file.path, root);
        let code = code_of(&file.text);
        let names = paths_in(&code);
        let names = names.iter().map(|name| resolved(name, &path)).collect();
        Module {
            file,
            path,
            code,
            names,
        }
    });
    modules.collect()
}

/// Who names whom among modules beside each other.
type Names = BTreeMap<String, BTreeSet<String>>;

/// The names that a file gives to modules of a folder, itself among them.
fn named_in<'a>(module: &'a Module<'_>, folder: &[String]) -> BTreeSet<&'a str> {
    let below = module
        .names
        .iter()
        .filter_map(|name| name.strip_prefix(folder));
    below
        .filter_map(|below| below.first())
        .map(String::as_str)
        .collect()
}

/// Who names whom in a folder: each module with all that is below it.
fn names_in(modules: &[Module<'_>], folder: &[String]) -> Names {
    let mut names = Names::new();
    for module in modules {
        if let Some([own, ..]) = module.path.strip_prefix(folder) {
            let named = names.entry(own.clone()).or_default();
            named.extend(named_in(module, folder).into_iter().map(str::to_owned));
        }
    }
    let all: BTreeSet<String> = names.keys().cloned().collect();
    for (own, named) in &mut names {
        named.retain(|name| name != own && all.contains(name));
    }
    names
}

/// Each name of a module that its order forbids.
fn against(order: &[&str], names: &Names) -> Vec<String> {
    let place = |name: &str| {
        let place = order.iter().position(|one| *one == name);
        place.unwrap_or_else(|| panic!("module {name} has no place in the order"))
    };
    let mut found = Vec::new();
    for (module, named) in names {
        let later = named.iter().filter(|name| place(name) > place(module));
        found.extend(later.map(|name| format!("{module} names {name}")));
    }
    found
}

/// The path of a folder, as it is written: `a/b`; that of the crate is empty.
fn folder_path(folder: &str) -> ModulePath {
    let names = folder.split('/').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Holds the modules of one folder of a crate to their order.
fn check(root: &str, folder: &str, order: &[&str], lines_min: usize) {
    let files = files(&[root], ".rs");
    let modules = modules_of(&files, root);
    let folder = folder_path(folder);
    let inside = modules
        .iter()
        .filter(|module| module.path.starts_with(&folder));
    let read: usize = inside.map(|module| module.code.lines().count()).sum();
    let found = against(order, &names_in(&modules, &folder));
    assert!(found.is_empty(), "{root} {folder:?}: {found:#?}");
    assert!(
        read >= lines_min,
        "{root} {folder:?}: only {read} lines were read"
    );
}

#[test]
fn modules_of_the_transfer_service_know_those_below_them_only() {
    check("crates/transfer-service/src", "", &TRANSFER_SERVICE, 15_000);
}

#[test]
fn modules_of_the_storage_element_know_those_below_them_only() {
    check("crates/storage-element/src", "", &STORAGE_ELEMENT, 9_000);
}

#[test]
fn modules_of_the_binary_know_those_below_them_only() {
    const ROOT: &str = "crates/cli/src";
    check(ROOT, "", &CLI, 10_000);
    check(ROOT, "site", &CLI_SITE, 5_000);
    check(ROOT, "commands", &CLI_COMMANDS, 5_000);
}

#[test]
fn modules_of_the_door_know_those_below_them_only() {
    check("crates/storage-element/src", "door", &DOOR, 5_000);
}

#[test]
fn the_door_writes_with_a_ticket_and_by_messages_only() {
    const ROOT: &str = "crates/storage-element/src";
    let files = files(&[&format!("{ROOT}/door/")], ".rs");
    let (mut read, mut found) = (0, Vec::new());
    for module in modules_of(&files, ROOT) {
        let name = &module.path[1];
        read += module.code.lines().count();
        let crate_names = named_in(&module, &[]);
        if name != "write_ticket" {
            let calls = OF_THE_TICKET.iter();
            let calls = calls.filter(|call| module.code.contains(**call));
            found.extend(calls.map(|call| format!("{name} calls {call}…) without a ticket")));
        } else {
            let missing = OF_THE_TICKET.iter();
            let missing = missing.filter(|call| !module.code.contains(**call));
            found.extend(missing.map(|call| format!("the ticket does not call {call}…)")));
        }
        let is_writer = WRITERS
            .iter()
            .any(|name| module.file.path.ends_with(&format!("/{name}")));
        let behind = BEHIND_MESSAGES.iter().chain(is_writer.then_some(&"pool"));
        let behind = behind.filter(|name| crate_names.contains(**name));
        found.extend(behind.map(|behind| format!("{name} names {behind} of the pools")));
    }
    assert!(found.is_empty(), "{found:#?}");
    assert!(read >= 5_000, "only {read} lines were read");
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

/// The folders of a crate that hold modules.
fn folders_of(modules: &[Module<'_>]) -> BTreeSet<ModulePath> {
    let paths = modules.iter().map(|module| &module.path);
    let above = paths.flat_map(|path| (0..path.len()).map(|length| path[..length].to_vec()));
    above.collect()
}

#[test]
fn no_circle_of_modules_is_without_a_reason() {
    let manifests = files(&["crates"], "/Cargo.toml");
    let mut found = BTreeSet::new();
    let (mut read, mut folders) = (0, 0);
    for manifest in &manifests {
        let name = manifest.path.strip_prefix("crates/");
        let name = name.and_then(|path| path.strip_suffix("/Cargo.toml"));
        let name = name.expect("a manifest in crates/");
        let root = format!("crates/{name}/src");
        let files = files(&[&root], ".rs");
        let modules = modules_of(&files, &root);
        read += modules.len();
        for folder in folders_of(&modules) {
            folders += 1;
            let names = names_in(&modules, &folder);
            let place = [&[name.to_owned()], &*folder].concat().join("/");
            let all = circles(&names).into_iter();
            found.extend(all.map(|circle| format!("{place}: {circle:?}")));
        }
    }
    let known = CIRCLES.iter().map(|(name, circle, _)| {
        let circle: BTreeSet<&str> = circle.iter().copied().collect();
        format!("{name}: {circle:?}")
    });
    assert_eq!(found, known.collect());
    assert!(read > 500, "only {read} modules were read");
    assert!(folders > 60, "only {folders} folders were read");
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

/// Modules as they lie in files of a crate `planted`.
fn planted(files: &[(&str, &str)]) -> Vec<Source> {
    let sources = files.iter().map(|(path, text)| Source {
        path: format!("planted/{path}.rs"),
        text: (*text).to_owned(),
    });
    sources.collect()
}

#[test]
fn a_name_against_the_order_is_found() {
    let files = planted(&[
        ("a", "use crate::b;"),
        (
            "b",
            "use crate::a::X;\nlet z = other_crate::c::Z;\ncrate::b::own();",
        ),
        (
            "c",
            "use super::{a::{self, X}, b::Y as Z};\npub(super) fn f() {}",
        ),
        ("c/d", "fn f() { super::super::a::f(); self::g() }"),
        ("lib", "use crate::c::X;"),
    ]);
    let names = names_in(&modules_of(&files, "planted"), &[]);
    let named = |name: &str| names[name].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(named("a"), ["b"]);
    assert_eq!(named("b"), ["a"]);
    assert_eq!(named("c"), ["a", "b"]);
    assert_eq!(against(&["a", "b", "c"], &names), ["a names b"]);
    assert_eq!(
        circles(&names),
        BTreeSet::from([BTreeSet::from(["a", "b"])])
    );
}

#[test]
fn a_circle_in_a_folder_is_found_however_its_modules_name_each_other() {
    let files = planted(&[
        ("a", "mod b;\nmod c;\nuse b::X;"),
        ("a/b", "use super::{X, c::{Y, Z}};"),
        ("a/c", "use crate::{d, a::{b::X}};"),
        ("a/c/e", "use super::super::f;"),
        ("a/f", ""),
        ("d", ""),
    ]);
    let modules = modules_of(&files, "planted");
    let names = names_in(&modules, &["a".to_owned()]);
    assert_eq!(
        circles(&names),
        BTreeSet::from([BTreeSet::from(["b", "c"])])
    );
    assert!(names["c"].contains("f"));
    let crate_names = names_in(&modules, &[]);
    assert_eq!(circles(&crate_names), BTreeSet::new());
    assert!(crate_names["a"].contains("d"));
}
