//! Inside a service modules have an order as crates have outside: each names only those before it, so there is no circle.

use crate::sources::{Source, code_of, files};
use std::collections::BTreeSet;

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

/// The module of the crate that a file belongs to.
fn module_of<'a>(file: &'a Source, root: &str) -> &'a str {
    let path = file.path.strip_prefix(root).expect("it is below");
    let name = path.trim_start_matches('/').split(['/', '.']).next();
    name.expect("split gives one piece at least")
}

/// The modules of its own crate that a text names.
fn named(code: &str) -> BTreeSet<&str> {
    const OWN: &str = "crate::";
    let places = code.match_indices(OWN);
    let is_own = |at: usize| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|one| one.is_alphanumeric() || one == '_' || one == ':')
    };
    let names = places.filter(|(at, _)| is_own(*at)).map(|(at, _)| {
        let rest = &code[at + OWN.len()..];
        let end = rest.find(|one: char| !one.is_alphanumeric() && one != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    names.collect()
}

/// Each name of a module that its order forbids.
fn against(order: &[&str], module: &str, code: &str) -> Vec<String> {
    let place = |name: &str| order.iter().position(|one| *one == name);
    let own = place(module).unwrap_or_else(|| panic!("module {module} has no place in the order"));
    let later = named(code).into_iter();
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
        found.extend(against(order, module, &code));
    }
    assert!(found.is_empty(), "{root}: {found:#?}");
    assert!(read >= lines_min, "{root}: only {read} lines were read");
}

#[test]
fn modules_of_the_transfer_service_know_those_below_them_only() {
    check("crates/transfer-service/src", &TRANSFER_SERVICE, 15_000);
}

#[test]
fn a_name_against_the_order_is_found() {
    let order = ["a", "b", "c"];
    let code = "use crate::a::X;\nuse crate::c::Y;\nlet z = other_crate::c::Z;\ncrate::b::own();";
    assert_eq!(against(&order, "b", code), ["b names c"]);
    assert_eq!(against(&order, "c", code), [""; 0]);
}
