//! Script and style of the door's pages are built from `web/` and committed, as those of the live page are.

#[path = "../../../../web/test/manifest.rs"]
mod manifest;

const NAMES: [&str; 2] = ["pages.css", "pages.js"];

#[test]
fn the_embedded_script_is_built_from_the_sources_beside_it() {
    manifest::assert_built(&NAMES);
}

#[test]
fn the_embedded_script_asks_nobody_else() {
    manifest::assert_self_contained(&NAMES);
}
