//! Small fields whose outcome can be reckoned, and the engine in trouble.

use super::*;

fn run(text: &str) -> Report {
    let plan = Plan::parse(text).expect("a valid plan");
    simulate(&plan).unwrap_or_else(|broken| panic!("seed {}: {broken}", plan.seed))
}

const TWO: &str = r#"
    seconds = 100000
    [[storage]]
    name = "a"
    read = 1000
    write = 1000
    [[storage]]
    name = "b"
    read = 1000
    write = 500
    [[path]]
    from = "a"
    to = "b"
    bandwidth = 2000
    per_transfer = 100
"#;

#[test]
fn a_file_takes_as_long_as_the_narrowest_part_says() {
    let report = run(&format!(
        "{TWO}\n[[load]]\nfrom = 'a'\nto = 'b'\nfiles = 1\nsize = 1000"
    ));
    assert_eq!(report.states["FINISHED"], 1);
    assert!((10.0..11.0).contains(&report.seconds), "{}", report.seconds);
    let report = run(&format!(
        "{TWO}\n[[load]]\nfrom = 'a'\nto = 'b'\nfiles = 100\nsize = 1000"
    ));
    assert_eq!(report.states["FINISHED"], 100);
    assert!(
        (200.0..206.0).contains(&report.seconds),
        "{}",
        report.seconds
    );
    assert_eq!(report.links[0].active_max, 50, "as many as may");
}

#[test]
fn equal_plans_give_equal_runs_and_seeds_differ() {
    let plan = |seed: u64| {
        format!(
            "seed = {seed}\n{TWO}\n[[load]]\nfrom = 'a'\nto = 'b'\nfiles = 300\nsize = 100\nspread = 1.0\nover = 60"
        )
    };
    assert_eq!(run(&plan(1)), run(&plan(1)));
    assert_ne!(run(&plan(1)), run(&plan(2)));
}

#[test]
fn four_links_into_one_storage_share_it_alike() {
    let mut text = "seconds = 600\n[[storage]]\nname = 'd'\nread = 1\nwrite = 1000\n".to_owned();
    for source in 0..4 {
        text += &format!(
            "[[storage]]\nname = 's{source}'\nread = 1000\nwrite = 1\n\
             [[load]]\nfrom = 's{source}'\nto = 'd'\nfiles = 5000\nsize = 100\n"
        );
    }
    let report = run(&text);
    assert!(report.fairness() > 0.99, "{}", report.fairness());
    assert!((5.5e11..6.1e11).contains(&report.bytes), "{}", report.bytes);
}

#[test]
fn trouble_of_any_kind_breaks_nothing_and_loses_nothing() {
    for seed in 0..20 {
        let text = format!(
            "seed = {seed}\n{TWO}
             [[storage]]\nname = 'c'\nread = 100\nwrite = 100\nknee = 20\nfailures = 0.1
             [[load]]\nfrom = 'a'\nto = 'b'\nvo = 'one'\nfiles = 500\nsize = 200\nspread = 1.5\nover = 100
             [[load]]\nfrom = 'a'\nto = 'c'\nvo = 'two'\nfiles = 500\nsize = 20\nspread = 1.5\nover = 100
             [[load]]\nfrom = 'c'\nto = 'b'\nvo = 'two'\nfiles = 500\nsize = 1\nspread = 1.5\npriority = 5
             [[event]]\nat = 20\nwhat = 'storage'\nname = 'c'\nfactor = 0
             [[event]]\nat = {crash}\nwhat = 'crash'
             [[event]]\nat = 60\nwhat = 'storage'\nname = 'c'\nfactor = 0.5
             [[event]]\nat = 90\nwhat = 'crash'
             [[event]]\nat = 95\nwhat = 'path'\nfrom = 'a'\nto = 'b'\nfactor = 0.1",
            crash = 10 + seed * 3,
        );
        let report = run(&text);
        let ended: u64 = report.states.values().sum();
        assert_eq!(ended, 1500, "seed {seed}: {:?}", report.states);
        let open = report
            .states
            .keys()
            .any(|state| !matches!(state.as_str(), "FINISHED" | "FAILED"));
        assert!(!open, "seed {seed}: {:?}", report.states);
    }
}

/// As many transfers as the field had in a day of 2023, on as many links: the sizes and the links are made up.
#[test]
#[ignore = "takes half a minute; `cargo test --release -p penstock-sim -- --ignored`"]
fn a_day_of_the_field_is_simulated_in_a_minute() {
    let mut text =
        "seconds = 86400\nseed = 3\n[service]\nlink_max = 100\nstorage_max = 400\n".to_owned();
    for site in 0..50 {
        text += &format!("[[storage]]\nname = 's{site}'\nread = 5000\nwrite = 5000\n");
    }
    for link in 0..150 {
        let (from, to) = (link % 50, (link * 7 + 1 + link / 50) % 50);
        let to = if to == from { (to + 1) % 50 } else { to };
        text += &format!(
            "[[load]]\nfrom = 's{from}'\nto = 's{to}'\nvo = 'v{}'\nfiles = 20000\nsize = 1500\nspread = 1.5\nover = 80000\n",
            link % 4
        );
    }
    let begun = std::time::Instant::now();
    let report = run(&text);
    eprintln!(
        "{:?} {:?} {} {:?}",
        begun.elapsed(),
        report.states,
        report.inputs,
        report.waits
    );
    assert!(begun.elapsed() < Duration::from_secs(60));
}
