//! What `penstock --version` says: the version, and the commit where it is built in a git repository of its own.

use std::path::Path;
use std::process::Command;

/// Digits of a commit.
const COMMIT_DIGITS: &str = "--short=12";

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let shown = match commit() {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=PENSTOCK_VERSION={shown}");
}

/// The commit that is built, and whether files were changed since. None: git is not there, or the sources are not in a
/// repository of their own.
fn commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().ok()?;
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        let done = git.arg("-C").arg(&root).args(words).output().ok()?;
        let text = String::from_utf8(done.stdout).ok()?;
        done.status.success().then(|| text.trim().to_owned())
    };
    // The log of HEAD grows with each commit and checkout.
    let log = git(&[
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ]);
    let log = log.filter(|log| Path::new(log).exists());
    let built = ["crates", "Cargo.toml", "Cargo.lock"];
    for path in built {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    if let Some(log) = log {
        println!("cargo::rerun-if-changed={log}");
    }
    if git(&["rev-parse", "--show-toplevel"])? != root.to_str()? {
        return None;
    }
    let commit = git(&["rev-parse", COMMIT_DIGITS, "HEAD"])?;
    let changed = git(&[&["status", "--porcelain", "--"], &built[..]].concat())?;
    Some(match changed.is_empty() {
        true => format!("commit {commit}"),
        false => format!("commit {commit} with changes"),
    })
}
