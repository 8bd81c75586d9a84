//! Files and functions that can be read, and suites that are run whole.

use crate::sources::{Source, code_of, files};

/// Where a file has to be divided. Suites of tests may be longer: they are read one test at a time.
const LINES_MAX: usize = 1_000;
const LINES_OF_TESTS_MAX: usize = 1_500;
/// A function fits a screen, or is a table. What is longer than this is neither.
const FUNCTION_LINES_MAX: usize = 190;
/// Lines of code, without comments and tests. Whatever has more says why, in a sentence that begins with [`WHY`]: a
/// function in its doc comment, a file in its module comment.
const LINES_WITHOUT_REASON_MAX: usize = 600;
const FUNCTION_LINES_WITHOUT_REASON_MAX: usize = 80;
const WHY: &str = "Long because";

fn too_long(file: &Source) -> bool {
    let most = match file.is_test() {
        true => LINES_OF_TESTS_MAX,
        false => LINES_MAX,
    };
    file.text.lines().count() > most
}

/// The comment that stands above a line, attributes passed over.
fn comment_above(text: &str, line: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let at = lines.iter().position(|one| *one == line);
    let above = lines[..at.unwrap_or(0)].iter().rev();
    let is_above = |one: &&&str| one.starts_with("//") || one.starts_with("#[");
    let mut comment: Vec<&str> = above.take_while(is_above).copied().collect();
    comment.reverse();
    comment.join(" ").replace(" /// ", " ")
}

/// What of a file is long and does not say why.
fn long_without_reason(file: &Source) -> Vec<String> {
    let mut found = Vec::new();
    let code = code_of(&file.text);
    let module: String = file
        .text
        .lines()
        .filter(|line| line.starts_with("//!"))
        .collect();
    if code.lines().count() > LINES_WITHOUT_REASON_MAX && !module.contains(WHY) {
        found.push(file.path.clone());
    }
    for (line, length) in functions(&code) {
        let has_reason = || comment_above(&file.text, line).contains(WHY);
        if length > FUNCTION_LINES_WITHOUT_REASON_MAX && !has_reason() {
            let name = line.split("fn ").nth(1).unwrap_or(line);
            let name = name.split(['(', '<']).next().unwrap_or(name);
            found.push(format!("{} {name}", file.path));
        }
    }
    found
}

#[test]
fn what_is_long_says_why() {
    let (mut found, mut read) = (Vec::new(), 0);
    for file in files(&["crates"], ".rs")
        .iter()
        .filter(|file| !file.is_test())
    {
        read += 1;
        found.extend(long_without_reason(file));
    }
    assert!(
        found.is_empty(),
        "divide these, or write a sentence that begins with '{WHY}': {found:#?}"
    );
    assert!(read > 400, "only {read} files were read");
    let body = "    1;\n".repeat(81);
    let text = format!(
        "//! A file.\n\n/// Does it.\nfn a() {{\n{body}}}\n\n/// Does it. {WHY} so.\n#[inline]\nfn b() {{\n{body}}}\n"
    );
    let path = "crates/a/src/lib.rs".to_owned();
    assert_eq!(
        long_without_reason(&Source { path, text }),
        ["crates/a/src/lib.rs a"]
    );
}

/// The functions of a formatted file: their first lines, and how many lines they have.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let bare = line.trim_start();
        let indent = &line[..line.len() - bare.len()];
        let words = bare.split(' ').take(4);
        let is_function = words.clone().any(|word| word == "fn") && !bare.starts_with("//");
        if !is_function {
            continue;
        }
        let end = format!("{indent}}}");
        let declared = format!("{indent}    ");
        let length = lines[at..].iter().position(|line| {
            **line == end || (line.ends_with(';') && !line.starts_with(&declared))
        });
        found.push((bare, length.map_or(1, |length| length + 1)));
    }
    found
}

#[test]
fn files_and_functions_can_be_read() {
    let mut found = Vec::new();
    let (mut count, mut functions_seen) = (0, 0);
    let sources = [
        files(&["crates"], ".rs"),
        files(&["web/src"], ".ts"),
        files(&["tests"], ".py"),
    ];
    for file in sources.iter().flatten() {
        count += 1;
        if too_long(file) {
            found.push(format!("{} is too long", file.path));
        }
        if file.path.ends_with(".rs") {
            for (name, lines) in functions(&file.text) {
                functions_seen += 1;
                if lines > FUNCTION_LINES_MAX {
                    found.push(format!("{}: {lines} lines: {name}", file.path));
                }
            }
        }
    }
    assert!(found.is_empty(), "to be divided: {found:#?}");
    assert!(
        count > 500 && functions_seen > 5_000,
        "{count} files, {functions_seen} functions"
    );
}

#[test]
fn what_is_too_long_is_found() {
    let long = |path: &str, lines: usize| Source {
        path: path.to_owned(),
        text: "x\n".repeat(lines),
    };
    assert!(too_long(&long("crates/a/src/lib.rs", 1_001)));
    assert!(!too_long(&long("crates/a/src/tests.rs", 1_001)));
    assert!(too_long(&long("crates/a/tests/it/main.rs", 1_501)));
    let text = format!(
        "trait T {{\n    fn a(&self);\n}}\n    pub(super) async fn b() {{\n{}    }}\nfn c(\n    x: u8,\n) {{\n}}\n",
        "        1;\n".repeat(200)
    );
    let lengths: Vec<usize> = functions(&text).iter().map(|(_, lines)| *lines).collect();
    assert_eq!(lengths, [1, 202, 4]);
}

/// Words by which a test would not be run. Written in two parts, so that this file is not one of those. A failure that is
/// expected strictly is none: the test runs, and turns red as soon as it passes or fails in another way.
fn is_left_out(text: &str) -> bool {
    let words = [
        ["#[", "ignore"],
        ["pytest.mark.", "skip"],
        ["pytest.", "skip("],
        ["pytest.mark.", "xfail"],
    ];
    let strict = ["pytest.mark.", "xfail(strict=True, raises=AssertionError,"].concat();
    let text = text.replace(&strict, "");
    words.iter().any(|word| text.contains(&word.concat()))
}

#[test]
fn no_test_is_left_out() {
    let sources = [files(&["crates"], ".rs"), files(&["tests"], ".py")];
    let all = || sources.iter().flatten();
    let left_out: Vec<&str> = all()
        .filter(|file| is_left_out(&file.text))
        .map(|file| &*file.path)
        .collect();
    assert!(left_out.is_empty(), "{left_out:?}");
    let tests = all()
        .map(|file| file.text.matches("#[test]").count() + file.text.matches("def test_").count());
    let tests: usize = tests.sum();
    assert!(tests > 1_500, "only {tests} tests were seen");
    let planted = ["#[test]\n#[", "ignore = \"slow\"]\nfn f() {}"].concat();
    assert!(is_left_out(&planted));
    let mark = |how: &str| ["@pytest.mark.", "xfail(", how, "reason=x)"].concat();
    assert!(is_left_out(&mark("")));
    assert!(!is_left_out(&mark("strict=True, raises=AssertionError, ")));
}
