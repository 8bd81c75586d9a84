//! What must come of the challenge, at the size of every test run, and that the page says it.

use super::*;
use crate::made_page::renewed;
use std::sync::OnceLock;

/// The runs take some seconds: all tests look at the same.
fn challenge() -> &'static Challenge {
    static CHALLENGE: OnceLock<Challenge> = OnceLock::new();
    CHALLENGE.get_or_init(|| Challenge::run(Part::EIGHTH, 2021).expect("the plans make sense"))
}

#[test]
fn what_was_printed_is_what_is_asked_for_and_all_of_it_has_an_end() {
    let challenge = challenge();
    let tables = [
        (Activity::Recall, tables_2021::staging()),
        (Activity::Archive, tables_2021::migration()),
    ];
    for (activity, table) in &tables {
        for row in &table.parts {
            let usage = challenge.as_it_was.usage_of(&row.name, *activity);
            let usage = usage.unwrap_or_else(|| panic!("nothing of {}", row.name));
            let files = challenge.part.whole(usage.files as f64) / row.files as f64;
            let bytes = challenge.part.whole(usage.bytes as f64) / row.volume.0 as f64;
            assert!((0.98..1.01).contains(&files), "{}: {files}", row.name);
            assert!((0.98..1.01).contains(&bytes), "{}: {bytes}", row.name);
        }
    }
}

#[test]
fn what_fits_atlas_predicts_cms_and_our_rules_read_twice_as_much_and_meet_all_targets() {
    assert_eq!(challenge().shortfalls(), Vec::<String>::new());
    // Over all hours of its window CMS cannot have had what the site printed: its volume is too small.
    let [_, cms] = challenge().read_back();
    assert!(cms.wall_clock < 1.0e9, "{cms:?}");
    // With the rules of 2021 many wait for longer than a day.
    assert!(challenge().as_it_was.late.all > 0);
}

#[test]
fn the_page_is_that_of_the_code() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/tape/challenge-2021.md"
    );
    let page = std::fs::read_to_string(path).expect("the page");
    let blocks = [challenge().block(), page::contradictions()];
    let now = renewed(&page, &blocks).expect("a place for each block");
    assert!(
        now == page,
        "docs/tape/challenge-2021.md is not what the code says; write it anew and review it: \
         cargo run --release -p penstock-sim --example tape_challenge -- part write"
    );
}
