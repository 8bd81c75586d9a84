//! What people may write, and what they are told when they may not.

use super::*;

const FIELD: &str = "length = '1h'\n[[storage]]\nname = 'a'\nread = '1 GB/s'\nwrite = '500 MB/s'\n\
    [[storage]]\nname = ['b', 'c']\nread = '8 Gb/s'\nwrite = '8 Gb/s'\n";
const LOAD: &str = "[[load]]\nfrom = 'a'\nto = ['b', 'c']\nfiles = 10\nsize = '1 GB'\n";

fn refused(text: &str) -> String {
    match Plan::parse(text) {
        Ok(plan) => panic!("{text} is taken for {plan:?}"),
        Err(why) => why.to_string(),
    }
}

#[test]
fn a_plan_says_with_names_and_units_what_there_is() {
    let network = "[[network]]\nfrom = 'a'\nto = '*'\nbandwidth = '10 Gb/s'\nrtt = '100ms'\nwindow = '10 MB'\nstreams = 2\n";
    let plan = Plan::parse(&format!("{FIELD}{network}{LOAD}")).expect("a valid plan");
    assert_eq!(plan.seconds, 3600.0);
    let names: Vec<&str> = plan
        .storages
        .iter()
        .map(|storage| storage.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!((plan.storages[0].write, plan.storages[2].read), (5e8, 1e9));
    let ends: Vec<(usize, usize)> = plan.networks.iter().map(|it| (it.from, it.to)).collect();
    assert_eq!(ends, [(0, 1), (0, 2)], "none with itself");
    assert_eq!(
        plan.networks[0].per_transfer, 2e8,
        "two windows a round trip"
    );
    assert_eq!(plan.loads[0].pairs, [(0, 1), (0, 2)]);
}

#[test]
fn loss_bounds_what_a_stream_reaches() {
    let network =
        "[[network]]\nfrom = 'a'\nto = 'b'\nbandwidth = '100 Gb/s'\nrtt = '100ms'\nloss = 0.0001\n";
    let plan = Plan::parse(&format!("{FIELD}{network}{LOAD}")).expect("a valid plan");
    let rate = plan.networks[0].per_transfer;
    assert!((1.7e6..1.8e6).contains(&rate), "{rate}");
}

#[test]
fn errors_name_the_line_and_what_to_write() {
    let check = |more: &str, parts: &[&str]| {
        let told = refused(&format!("{FIELD}{LOAD}{more}"));
        for part in parts {
            assert!(told.contains(part), "{told:?} lacks {part:?}");
        }
    };
    check(
        "[[load]]\nfrom = 'a'\nto = 'd'\nfiles = 1\nsize = '1 GB'",
        &["line 15", "'d' is not a storage", "a, b, c"],
    );
    check(
        "[[load]]\nfrom = 'a'\nto = 'a'\nfiles = 1\nsize = '1 GB'",
        &["line 15", "two different"],
    );
    check(
        "[[load]]\nfrom = 'a'\nto = 'b'\nfiles = 1\nsize = 'much'",
        &["line 19", "500 MB"],
    );
    check(
        "[[load]]\nfrom = 'a'\nto = 'b'\nfiles = 1\nsize = '1 GB'\ncolour = 'red'",
        &["colour", "expected one of"],
    );
    check(
        "[[event]]\nat = '1m'\nwhat = 'storage-slow'\nstorage = 'a'",
        &["line 15", "speed = 0.5"],
    );
    check(
        "[[event]]\nat = '1m'\nwhat = 'flood'",
        &["line 17", "storage-down"],
    );
    check(
        "[[event]]\nat = '1m'\nwhat = 'clock'\nby = 'x'",
        &["line 15", "-1h"],
    );
    check(
        "[[event]]\nat = '1m'\nwhat = 'network-slow'\nfrom = 'a'\nto = 'b'\nspeed = 0",
        &["line 15", "[[network]]"],
    );
    check(
        "[[event]]\nat = '1m'\nwhat = 'node-lost'\nnode = 1",
        &["line 15", "nodes = 3"],
    );
    let several = "[service]\nnodes = 2\n";
    for (nodes, part) in [
        ("", "node = 2"),
        ("node = 0", "1 to 2"),
        ("node = 3", "1 to 2"),
    ] {
        let event = format!("{several}[[event]]\nat = '1m'\nwhat = 'node-cut-off'\n{nodes}");
        check(&event, &["line 17", part]);
    }
    check("[service]\nnodes = 0", &["line 15", "1 to 100"]);
    check("[[vo]]\nname = 'x'\nshare = 0", &["line 15", "above 0"]);
    check("[service]\npolicy = 'best'", &["line 15", "fixed:20"]);
    check(
        "[[storage]]\nname = 'A b'\nread = '1 GB/s'\nwrite = '1 GB/s'",
        &["line 15", "small letters"],
    );
    check(
        "[[storage]]\nname = 'a'\nread = '1 GB/s'\nwrite = '1 GB/s'",
        &["line 15", "'a' before"],
    );
    check(
        "[[storage]]\nname = 'x'\nread = '1 GB'\nwrite = '1 GB/s'",
        &["line 17", "10 Gb/s"],
    );
    check(
        "[[load]]\nfrom = 'a'\nto = 'b'\nfiles = 100000000\nsize = '1 GB'",
        &["at most 50000000"],
    );
    assert!(refused("length = '2h").contains("line 1"));
    assert!(refused(&format!("{}{LOAD}", FIELD.replace("1h", "400d"))).contains("366d"));
    assert!(refused("").contains("length"));
}

#[test]
fn what_is_no_plan_is_refused_whatever_it_is() {
    let large = "#".repeat(limits::TEXT + 1);
    assert!(refused(&large).contains("at most 4000000 are read"));
    for text in [
        "\u{0}",
        "[[storage]]",
        "length = -1",
        "length = 1\nstorage = 1",
        "length = 1e400",
    ] {
        refused(text);
    }
}

#[test]
fn the_examples_are_valid_and_as_large_as_they_say() {
    for (name, text) in EXAMPLES {
        let plan = Plan::parse(text).unwrap_or_else(|why| panic!("{name}: {why}"));
        if name == "wlcg-day" {
            let mut links: Vec<(usize, usize)> = plan
                .loads
                .iter()
                .flat_map(|load| load.pairs.clone())
                .collect();
            links.sort_unstable();
            links.dedup();
            assert_eq!((plan.files(), links.len()), (3_000_000, 150));
            let bytes: f64 = plan
                .loads
                .iter()
                .map(|load| load.files as f64 * load.size)
                .sum();
            let mean = bytes / plan.files() as f64;
            assert!((1.4e9..1.6e9).contains(&mean), "{mean}");
        }
    }
}
