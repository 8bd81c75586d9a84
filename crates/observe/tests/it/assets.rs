//! The page is built from `web/` and committed, so that the Rust build needs Rust alone. These tests fail
//! when the committed files are not what `npm run build` in `web/` makes of the sources beside them.

#[path = "../../../../web/test/manifest.rs"]
mod manifest;

use std::path::Path;

const NAMES: [&str; 3] = ["index.html", "live.css", "live.js"];

#[test]
fn the_embedded_page_is_built_from_the_sources_beside_it() {
    manifest::assert_built(&NAMES);
}

#[test]
fn the_embedded_page_asks_nobody_else() {
    manifest::assert_self_contained(&NAMES);
}

#[test]
fn the_lock_file_names_no_download_address() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/package-lock.json");
    let lock = std::fs::read_to_string(lock).expect("web/package-lock.json");
    assert!(
        !lock.contains("\"resolved\""),
        "run npm with web/.npmrc in effect"
    );
}
