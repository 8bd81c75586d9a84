//! Shared by the tests of the crates that embed what `web/` builds: the hash of its sources, and whether the
//! committed files are those that were built of them.

use std::path::{Path, PathBuf};

fn web() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web")
}

pub fn assets() -> PathBuf {
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
        "pages.config.ts",
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

/// Fails when a committed file is not what `npm run build` in `web/` makes of the sources beside it.
pub fn assert_built(names: &[&str]) {
    let manifest =
        std::fs::read_to_string(assets().join("manifest.txt")).expect("assets/manifest.txt");
    let remedy = "run 'npm ci && npm run build' in web/ and commit crates/*/assets";
    let mut expected = format!("{} sources\n", hash_of_sources());
    for name in names {
        let content = std::fs::read(assets().join(name)).expect("an asset");
        let sum = hex(&openssl::sha::sha256(&content));
        expected.push_str(&format!("{sum} {name}\n"));
    }
    assert!(
        manifest == expected,
        "{remedy}\nexpected manifest:\n{expected}\ncommitted manifest:\n{manifest}"
    );
}

/// Fails when a committed file would make a browser ask somebody else, or puts data into a page as markup.
pub fn assert_self_contained(names: &[&str]) {
    for name in names {
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
