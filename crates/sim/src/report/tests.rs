//! Reports as people see them.

use super::*;
use crate::plan::Plan;
use crate::world::simulate;

fn small() -> Report {
    let text = "length = '10m'\nname = '<b>fine & small</b>'\n\
        [[storage]]\nname = ['a', 'b', 'c']\nread = '1 GB/s'\nwrite = '1 GB/s'\n\
        [[load]]\nvo = 'one'\nfrom = 'a'\nto = ['b', 'c']\nfiles = 400\nsize = '1 GB'\n\
        [[load]]\nvo = 'two'\nfrom = 'b'\nto = 'c'\nfiles = 100\nsize = '1 GB'\n";
    let plan = Plan::parse(text).expect("a valid plan");
    simulate(&plan, &mut |_| {}).expect("nothing breaks")
}

#[test]
fn the_text_tells_what_matters_in_100_columns() {
    let told = words::told(&small());
    for part in [
        "500 finished",
        "a → b",
        "file-hours",
        "the link is full",
        "MB/s",
        "two",
    ] {
        assert!(told.contains(part), "{told} lacks {part}");
    }
    let longest = told.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(100), "{told}");
}

#[test]
fn the_page_needs_nothing_else_and_takes_no_markup_from_a_plan() {
    let page = page::page(&[small(), small()]);
    assert!(page.contains("&lt;b&gt;fine &amp; small&lt;/b&gt;") && !page.contains("<b>"));
    assert!(page.contains("<svg") && !page.contains("<script") && !page.contains("http"));
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn runs_side_by_side_have_a_row_each() {
    let told = words::compared(&[small(), small()]);
    assert_eq!(told.lines().count(), 3, "{told}");
}

#[test]
fn evenness_is_one_when_all_are_alike_and_one_of_n_when_one_has_all() {
    assert_eq!(jain([3.0, 3.0, 3.0].into_iter()), 1.0);
    assert_eq!(jain([5.0, 0.0, 0.0, 0.0].into_iter()), 0.25);
    assert_eq!(jain(std::iter::empty()), 1.0);
}
