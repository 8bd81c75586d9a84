//! Documents say what is there: words, metrics, decisions.

use crate::sources::{Source, code_of, files, read};
use std::collections::BTreeSet;

/// A text without the marks by which one word is written in several ways.
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
            _ => plain.extend(letter.to_lowercase()),
        }
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The words of the glossary that are in none of these texts.
fn unused(glossary: &str, texts: &str) -> Vec<String> {
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| "));
    let words = rows.filter_map(|row| row.split(" | ").next());
    let words = words.filter(|word| *word != "word" && !word.starts_with("---"));
    let words = words.map(|word| word.split(" (").next().unwrap_or(word).trim());
    let is_unused = |word: &&str| !word.split(", ").all(|word| texts.contains(&plain(word)));
    words.filter(is_unused).map(str::to_owned).collect()
}

#[test]
fn the_words_of_the_glossary_are_those_that_are_used() {
    let mut texts = String::new();
    for file in files(&["crates"], ".rs")
        .iter()
        .chain(&files(&["docs/api"], ".md"))
    {
        texts.push_str(&plain(&file.text));
        texts.push(' ');
    }
    assert!(texts.len() > 3_000_000, "{} bytes were read", texts.len());
    let glossary = read("docs/glossary.md");
    assert!(glossary.lines().count() > 60);
    assert_eq!(unused(&glossary, &texts), [""; 0], "in the glossary only");
    let planted = "| word | meaning |\n|---|---|\n| rate gate | x |\n| wombat | y |\n";
    assert_eq!(unused(planted, &plain("struct RateGate;")), ["wombat"]);
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
    let told = told(&read("docs/operations.md"));
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
    assert!(untold.is_empty(), "not in docs/operations.md: {untold:#?}");
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
