//! The files of the workspace, as text, and what of them is not tests.

use std::path::{Path, PathBuf};

/// A file and its place below the workspace.
pub struct Source {
    pub path: String,
    pub text: String,
}

impl Source {
    /// A file that holds tests only.
    pub fn is_test(&self) -> bool {
        ["/tests.rs", "/conformance.rs"]
            .iter()
            .any(|end| self.path.ends_with(end))
            || ["/tests/", "/conformance/"]
                .iter()
                .any(|part| self.path.contains(part))
    }
}

pub fn workspace() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let workspace = crates.and_then(Path::parent);
    workspace.expect("the crate lies in crates/").to_owned()
}

pub fn read(path: &str) -> String {
    let file = workspace().join(path);
    std::fs::read_to_string(file).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// All files below these directories, or these files, whose names end so; in the order of their names.
pub fn files(below: &[&str], ends_with: &str) -> Vec<Source> {
    let mut found = Vec::new();
    for path in below {
        add(&workspace().join(path), ends_with, &mut found);
    }
    found.sort_by(|a: &Source, b| a.path.cmp(&b.path));
    found
}

fn add(path: &Path, ends_with: &str, found: &mut Vec<Source>) {
    let name = path.file_name().map(|name| name.to_string_lossy());
    // What tools put there is not ours.
    const FOREIGN: [&str; 4] = ["target", "node_modules", "__pycache__", "corpus"];
    if name.is_some_and(|name| FOREIGN.contains(&&*name)) {
        return;
    }
    if path.is_dir() {
        let entries = std::fs::read_dir(path).expect("a readable directory");
        for entry in entries {
            add(&entry.expect("a readable entry").path(), ends_with, found);
        }
    } else if path.to_string_lossy().ends_with(ends_with) {
        let text = std::fs::read_to_string(path);
        let below = path.strip_prefix(workspace()).expect("it is below");
        found.push(Source {
            path: below.display().to_string(),
            text: text.unwrap_or_else(|why| panic!("{}: {why}", path.display())),
        });
    }
}

/// The lines of a formatted file that are code: without comments and without the items that only tests have.
pub fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let bare = line.trim_start();
        if bare.starts_with("#[cfg(test)]") {
            let indent = &line[..line.len() - bare.len()];
            skip_item(&mut lines, indent);
        } else if !bare.starts_with("//") {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Passes over one item: up to the end of its declaration, or up to the brace below which it began.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>, indent: &str) {
    for line in lines {
        let Some(bare) = line
            .strip_prefix(indent)
            .filter(|bare| !bare.starts_with(' '))
        else {
            continue;
        };
        let is_attribute = bare.starts_with("#[") || bare.starts_with("//");
        let ends = bare.ends_with(';') || bare.starts_with('}') || bare.ends_with('}');
        if ends && !is_attribute {
            return;
        }
    }
}

#[test]
fn items_of_tests_are_left_out_and_nothing_else() {
    let text = "mod a;\n#[cfg(test)]\nmod tests;\nuse std::fs;\n\
                #[cfg(test)]\n#[allow(dead_code)]\nmod more {\n    fn f() {}\n}\n// std::net\nfn g() {\n    \
                #[cfg(test)]\n    let seen = 1;\n    std::env::args();\n}\n#[cfg(test)]\nuse x::{\n    y,\n};\nfn h() {}\n";
    let code = "mod a;\nuse std::fs;\nfn g() {\n    std::env::args();\n}\nfn h() {}\n";
    assert_eq!(code_of(text), code);
}
