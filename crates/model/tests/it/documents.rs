//! Documents say what is there: words, metrics, decisions.

use crate::sources::{Source, code_of, files, read};
use std::collections::BTreeSet;

/// A text as its words, with a space before and after each, and a dot where two words do not belong together.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut before = ' ';
    for letter in text.chars() {
        if before.is_lowercase() && letter.is_uppercase() {
            plain.push(' ');
        }
        before = letter;
        match letter {
            '_' | '-' => plain.push(' '),
            '`' => {}
            letter if letter.is_alphanumeric() => plain.extend(letter.to_lowercase()),
            letter if letter.is_whitespace() => plain.push(' '),
            _ => plain.push_str(" . "),
        }
    }
    let words = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    format!(" {words} ")
}

/// The cells of a glossary's rows.
fn cells(glossary: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = glossary.lines().filter(|line| line.starts_with("| "));
    let rows = rows.filter(|row| !row.starts_with("| word |"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
}

/// The words of the glossary that none of these texts has as words of their own, in singular or plural.
fn unused(glossary: &str, texts: &str) -> Vec<String> {
    let is_used = |word: &str| {
        let word = plain(word);
        texts.contains(&word) || texts.contains(&format!("{}s ", word.trim_end()))
    };
    let words = cells(glossary).map(|cells| cells[0].split(" (").next().unwrap_or_default());
    let words = words.filter(|word| !word.split(", ").all(is_used));
    words.map(str::to_owned).collect()
}

#[test]
fn the_words_of_the_glossary_are_those_that_are_used() {
    let mut texts = String::new();
    for file in files(&["crates"], ".rs")
        .iter()
        .filter(|file| !file.is_test())
    {
        texts.push_str(&plain(&code_of(&file.text)));
    }
    for file in files(&["docs/api"], ".md") {
        texts.push_str(&plain(&file.text));
    }
    assert!(texts.len() > 3_000_000, "{} bytes were read", texts.len());
    let glossary = read("docs/glossary.md");
    assert!(glossary.lines().count() > 60);
    assert_eq!(unused(&glossary, &texts), [""; 0], "in the glossary only");
    let planted = "| word | meaning |\n|---|---|\n| rate gate | x | y |\n| wombat | y | z |\n| ate | y | z |\n";
    let code = plain(&code_of("// A wombat.\nstruct RateGate;"));
    assert_eq!(unused(planted, &code), ["wombat", "ate"]);
}

/// Words of the glossary's last column that mean nothing else here, so that no name in code has them.
const FORBIDDEN: [&str; 33] = [
    "anomaly",
    "blacklist",
    "cleaner",
    "consumer",
    "cordon",
    "dump",
    "execution",
    "experiment",
    "heartbeat",
    "helper",
    "hypothesis",
    "instance",
    "leg",
    "measurement",
    "notifier",
    "optimisation",
    "perspective",
    "poller",
    "positioning",
    "primary",
    "privilege",
    "proxied",
    "reign",
    "restriction",
    "scenario",
    "score",
    "slave",
    "snooze",
    "suspension",
    "teller",
    "throttle",
    "urgency",
    "watcher",
];

/// Names in a text of code that have one of the forbidden words.
fn forbidden_names(code: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    // Texts for people, and of other systems, are no names.
    let code: String = code.replace("\\\"", "").split('"').step_by(2).collect();
    let names = code.split(|letter: char| !is_part(letter));
    let is_forbidden = |name: &&str| {
        let words = plain(name);
        let words = words.split_whitespace();
        let mut one = words.map(|word| word.strip_suffix('s').unwrap_or(word));
        one.any(|word| FORBIDDEN.contains(&word))
    };
    names.filter(is_forbidden).map(str::to_owned).collect()
}

#[test]
fn no_name_is_a_word_that_the_glossary_replaces() {
    let glossary = read("docs/glossary.md");
    let instead = cells(&glossary).filter_map(|cells| cells.get(2).copied());
    let instead: String = instead.map(plain).collect();
    for word in FORBIDDEN {
        assert!(instead.contains(&plain(word)), "{word} replaces nothing");
    }
    let mut read = 0;
    for file in files(&["crates"], ".rs")
        .iter()
        .filter(|file| !file.is_test())
    {
        let code = code_of(&file.text);
        read += code.lines().count();
        let found = forbidden_names(&code);
        assert!(found.is_empty(), "{}: {found:?}", file.path);
    }
    assert!(read > 100_000, "only {read} lines were read");
    let planted = "let tellers = 1; fn teller_of(a: &str) { \"the teller\" } struct AgentTeller;";
    let found = forbidden_names(planted);
    assert_eq!(
        Vec::from_iter(found),
        ["AgentTeller", "teller_of", "tellers"]
    );
}

/// What is wrong with the rows of a glossary: their columns, their order, a term that stands in two of them.
fn glossary_in_disorder(glossary: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut before = String::new();
    for cells in cells(glossary) {
        let term = cells.first().unwrap_or(&"").to_lowercase();
        if cells.len() != 3 || cells.iter().any(|cell| cell.is_empty()) {
            wrong.push(format!("not three columns: {}", cells.join(" | ")));
        }
        if term <= before {
            wrong.push(format!("'{term}' does not come after '{before}'"));
        }
        before = term;
    }
    wrong
}

#[test]
fn the_glossary_is_sorted_and_each_term_stands_once() {
    let glossary = read("docs/glossary.md");
    assert_eq!(glossary_in_disorder(&glossary), [""; 0]);
    let rows = glossary.lines().filter(|line| line.starts_with("| "));
    assert!(rows.count() > 110);
    let planted =
        "| word | meaning | instead of |\n|---|---|---|\n| b | x | y |\n| a | x |\n| a | x | y |\n";
    assert_eq!(glossary_in_disorder(planted).len(), 3);
}

/// Names of metrics in code: whole texts that begin with the product's name.
fn metrics_in(code: &str) -> BTreeSet<&str> {
    let texts = code.split('"').skip(1).step_by(2);
    let is_name = |text: &&str| {
        let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        text.starts_with("penstock_") && text.bytes().all(is_letter)
    };
    texts.filter(is_name).collect()
}

/// Metrics that a table names, whole or by the end in which they differ from the first of their row.
fn told(document: &str) -> BTreeSet<String> {
    let mut told = BTreeSet::new();
    for row in document.lines() {
        let mut first: Option<&str> = None;
        for word in row.split('`').skip(1).step_by(2) {
            let word = word.split('{').next().unwrap_or(word);
            if word.starts_with("penstock_") {
                first = first.or(Some(word));
                told.insert(word.to_owned());
            } else if let (Some(first), true) = (first, word.starts_with('_')) {
                let cuts = first.match_indices('_').map(|(at, _)| &first[..at]);
                told.extend(cuts.chain([first]).map(|begin| format!("{begin}{word}")));
            }
        }
    }
    told
}

#[test]
fn each_metric_is_documented() {
    let pages = files(&["docs/admin"], ".md");
    let told: BTreeSet<String> = pages.iter().flat_map(|page| told(&page.text)).collect();
    let all = files(&["crates"], ".rs");
    let writes_metrics = |file: &&Source| !file.is_test() && file.text.contains("exposition::");
    let code = all.iter().filter(writes_metrics);
    let code: Vec<String> = code.map(|file| code_of(&file.text)).collect();
    let metrics: BTreeSet<&str> = code.iter().flat_map(|code| metrics_in(code)).collect();
    assert!(
        metrics.len() > 60,
        "only {} metrics were seen",
        metrics.len()
    );
    let untold: Vec<&&str> = metrics
        .iter()
        .filter(|name| !told.contains(**name))
        .collect();
    assert!(untold.is_empty(), "not in docs/admin: {untold:#?}");
    let planted = r#"page.gauge("penstock_wombats", "Wombats."); crate_name("penstock-cli")"#;
    assert_eq!(Vec::from_iter(metrics_in(planted)), ["penstock_wombats"]);
    assert!(!told.contains("penstock_wombats"));
}

/// What is wrong with the names of decision records, and with the list of them.
fn decisions_in_disorder(names: &[String], list: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, name) in names.iter().enumerate() {
        if !name.starts_with(&format!("{:04}-", at + 1)) {
            wrong.push(format!("{name} is not number {}", at + 1));
        }
        if !list.contains(&format!("]({name})")) {
            wrong.push(format!("{name} is not in docs/decisions/README.md"));
        }
    }
    wrong
}

/// What keeps a decision record from being read in one go.
fn unreadable(record: &str) -> Vec<String> {
    const LINES_MAX: usize = 62;
    const COLUMNS_MAX: usize = 110;
    const PARTS: [&str; 5] = [
        "**Context",
        "**Choice",
        "**Non-goals",
        "**Alternatives",
        "**Consequences",
    ];
    let mut wrong = Vec::new();
    let lines = record.lines().count();
    if lines > LINES_MAX {
        wrong.push(format!("{lines} lines"));
    }
    let is_long = |line: &&str| line.chars().count() > COLUMNS_MAX;
    wrong.extend(
        record
            .lines()
            .find(is_long)
            .map(|line| format!("too wide: {line}")),
    );
    let missing = PARTS.iter().filter(|part| !record.contains(**part));
    wrong.extend(missing.map(|part| format!("no part {part}**")));
    wrong
}

#[test]
fn decision_records_fit_a_page_and_have_all_parts() {
    let mut read = 0;
    for file in files(&["docs/decisions"], ".md") {
        if !file.path.ends_with("/README.md") {
            read += 1;
            assert_eq!(unreadable(&file.text), [""; 0], "{}", file.path);
        }
    }
    assert!(read >= 14, "only {read} records were read");
    let planted = format!(
        "**Context.** x\n{}\n{}",
        "wide ".repeat(30),
        "\n".repeat(70)
    );
    assert_eq!(unreadable(&planted).len(), 6);
}

#[test]
fn decision_records_are_numbered_and_listed() {
    let records = files(&["docs/decisions"], ".md");
    let names: Vec<String> = records
        .iter()
        .filter_map(|file| file.path.strip_prefix("docs/decisions/"))
        .filter(|name| *name != "README.md")
        .map(str::to_owned)
        .collect();
    assert!(names.len() >= 11, "{names:?}");
    let wrong = decisions_in_disorder(&names, &read("docs/decisions/README.md"));
    assert!(wrong.is_empty(), "{wrong:#?}");
    let planted = ["0001-a.md".to_owned(), "0003-b.md".to_owned()];
    assert_eq!(decisions_in_disorder(&planted, "[a](0001-a.md)").len(), 2);
}

/// A file's place as the map writes it: crate, then the path of its module.
fn module_of(path: &str) -> Option<String> {
    let (name, path) = path.strip_prefix("crates/")?.split_once('/')?;
    let path = path
        .strip_prefix("src/")
        .or_else(|| path.strip_prefix("tests/"))?;
    let module = path.strip_suffix(".rs")?.replace('/', "::");
    Some(match module.as_str() {
        "lib" => name.to_owned(),
        _ => format!("{name} {module}"),
    })
}

/// The tests of a source: Rust functions below `#[test]`, or that a macro runs on each back end; functions of pytest.
fn tests_of(file: &Source) -> Vec<String> {
    let name_of = |line: &str, before: &str| {
        let rest = line.split_once(before)?.1;
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let name: String = rest.chars().take_while(|letter| is_part(*letter)).collect();
        Some(name).filter(|name| !name.is_empty())
    };
    if file.path.ends_with(".py") {
        let tests = file
            .text
            .lines()
            .filter(|line| line.starts_with("def test_"));
        let names = tests.filter_map(|line| name_of(line, "def "));
        return names.map(|name| format!("{}::{name}", file.path)).collect();
    }
    let Some(module) = module_of(&file.path) else {
        return Vec::new();
    };
    let (mut found, mut is_below_test) = (Vec::new(), false);
    for line in file.text.lines().map(str::trim_start) {
        is_below_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        if let Some(name) = name_of(line, "fn ").filter(|_| !line.starts_with("//")) {
            if is_below_test || line.contains("(lab: &Lab") || line.ends_with(&format!("{name}(")) {
                let separator = if module.contains(' ') { "::" } else { " " };
                found.push(format!("{module}{separator}{name}"));
            }
            is_below_test = false;
        }
    }
    found
}

/// An invariant of the map and the tests that hold it.
struct Invariant {
    text: String,
    held_by: Vec<String>,
}

/// The list items below `## Crates`, each with the code words that begin its lines.
fn invariants_of(map: &str) -> Vec<Invariant> {
    let mut found: Vec<Invariant> = Vec::new();
    let crates = map.split("\n## ").find(|part| part.starts_with("Crates"));
    for line in crates.unwrap_or_default().lines() {
        if let Some(text) = line.strip_prefix("- ") {
            found.push(Invariant {
                text: text.to_owned(),
                held_by: Vec::new(),
            });
        } else if let (Some(test), Some(invariant)) = (line.strip_prefix("  `"), found.last_mut()) {
            invariant
                .held_by
                .push(test.trim_end_matches('`').to_owned());
        }
    }
    found
}

/// Invariants without a test, and tests that are not there.
fn broken_promises(map: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for Invariant { text, held_by } in invariants_of(map) {
        if held_by.is_empty() {
            wrong.push(format!("no test holds: {text}"));
        }
        for test in held_by.iter().filter(|test| !tests.contains(*test)) {
            wrong.push(format!("there is no test {test}"));
        }
    }
    wrong
}

#[test]
fn each_invariant_names_tests_that_exist() {
    /// How many the map has had. One that is given up is a decision, not an edit.
    const INVARIANTS_MIN: usize = 132;
    let map = read("docs/ARCHITECTURE.md");
    let sources = [files(&["crates"], ".rs"), files(&["tests"], ".py")];
    let tests: BTreeSet<String> = sources.iter().flatten().flat_map(tests_of).collect();
    assert!(tests.len() > 2_000, "only {} tests were seen", tests.len());
    let count = invariants_of(&map).len();
    assert!(count >= INVARIANTS_MIN, "the map has {count} invariants");
    let wrong = broken_promises(&map, &tests);
    assert!(wrong.is_empty(), "docs/ARCHITECTURE.md: {wrong:#?}");
    let planted = "# Map\n\n## Crates\n- Wombats live.\n- Wombats die.\n  `model wombat::dies`\n\n## Ways\n- x\n";
    assert_eq!(broken_promises(planted, &tests).len(), 2);
}

/// Whether a text writes a sentence. Error types derive theirs, which is not looked at.
fn writes_text(code: &str) -> bool {
    ["format!(", "write!(", ".write_str("]
        .iter()
        .any(|word| code.contains(word))
}

/// Code without its `impl Display`s.
fn without_displays(code: &str) -> String {
    let mut rest = String::new();
    let mut is_inside = false;
    for line in code.lines() {
        is_inside |= line.starts_with("impl") && line.contains("Display for ");
        if !is_inside {
            rest.push_str(line);
            rest.push('\n');
        }
        is_inside &= line != "}";
    }
    rest
}

#[test]
fn sentences_are_written_where_the_map_says() {
    /// Sentences for people are written in these modules, and in the `Display` of a reason that is told nowhere else.
    const WRITERS: [&str; 3] = ["wording", "story", "health"];
    let mut read = 0;
    for file in files(&["crates/decide/src"], ".rs") {
        let place = file.path.trim_start_matches("crates/decide/src/");
        if file.is_test() || WRITERS.iter().any(|writer| place.starts_with(writer)) {
            continue;
        }
        let code = without_displays(&code_of(&file.text));
        read += code.lines().count();
        assert!(!writes_text(&code), "{} writes sentences", file.path);
    }
    assert!(read > 5_000, "only {read} lines were read");
    let planted = "impl fmt::Display for A {\n    write!(\n}\nfn f() {}\n";
    assert_eq!(without_displays(planted), "fn f() {}\n");
    assert!(writes_text(planted));
}
