//! The page is built from `web/` and committed, so that the Rust build needs Rust alone. These tests fail
//! when the committed files are not what `npm run build` in `web/` makes of the sources beside them.

use std::path::{Path, PathBuf};

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web")
}

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The same as `hashSources` in `web/manifest.ts`: name, length and content of each source, sorted by name.
fn hash_of_sources() -> String {
    let web = web();
    let mut files = Vec::new();
    files_below(&web.join("src"), &mut files);
    for name in [
        "index.html",
        "manifest.ts",
        "package-lock.json",
        "package.json",
        "tsconfig.json",
        "vite.config.ts",
    ] {
        files.push(web.join(name));
    }
    let mut named: Vec<(String, PathBuf)> = files
        .into_iter()
        .map(|path| {
            let name = path
                .strip_prefix(&web)
                .expect("below web/")
                .to_string_lossy()
                .replace('\\', "/");
            (name, path)
        })
        .collect();
    named.sort();
    let mut hasher = openssl::sha::Sha256::new();
    for (name, path) in named {
        let content = std::fs::read(&path).expect("a readable source");
        hasher.update(format!("{name} {}\n", content.len()).as_bytes());
        hasher.update(&content);
    }
    hex(&hasher.finish())
}

#[test]
fn the_embedded_page_is_built_from_the_sources_beside_it() {
    let manifest =
        std::fs::read_to_string(assets().join("manifest.txt")).expect("assets/manifest.txt");
    let remedy = "run 'npm ci && npm run build' in web/ and commit crates/observe/assets";
    let mut expected = format!("{} sources\n", hash_of_sources());
    for name in ["index.html", "live.css", "live.js"] {
        let content = std::fs::read(assets().join(name)).expect("an asset");
        expected.push_str(&format!(
            "{} {name}\n",
            hex(&openssl::sha::sha256(&content))
        ));
    }
    assert!(
        manifest == expected,
        "{remedy}\nexpected manifest:\n{expected}\ncommitted manifest:\n{manifest}"
    );
}

#[test]
fn the_embedded_page_asks_nobody_else() {
    for name in ["index.html", "live.css", "live.js"] {
        let text = std::fs::read_to_string(assets().join(name)).expect("an asset");
        for scheme in ["http://", "https://", "url(//", "src=\"//"] {
            let outside = text
                .match_indices(scheme)
                .any(|(at, _)| !text[at..].starts_with("http://www.w3.org/"));
            assert!(!outside, "{name} mentions {scheme}");
        }
        assert!(
            !text.contains("innerHTML"),
            "{name}: data go into the page as text only"
        );
    }
}

#[test]
fn the_lock_file_names_no_download_address() {
    let lock =
        std::fs::read_to_string(web().join("package-lock.json")).expect("web/package-lock.json");
    assert!(
        !lock.contains("\"resolved\""),
        "run npm with web/.npmrc in effect"
    );
}
