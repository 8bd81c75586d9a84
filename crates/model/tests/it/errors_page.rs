//! The page of all codes, which is made from the table in `model`.

use crate::sources::{code_of, files, workspace};
use penstock_model::{Actor, Layer, ProblemCode, ProblemFacts, Retry};
use std::fmt::Write;

/// Set, it has the page written anew.
const WRITE: &str = "PENSTOCK_WRITE_ERRORS_PAGE";

const BEGINNING: &str = "\
# Errors

Whatever fails has a code. It is the same at the door, at the REST interface, in the last line of a copy, at the command line and in the
record of a transfer, and keeps its meaning from version to version.

| where | how |
|---|---|
| every error answer over HTTP | the header `Penstock-Problem: CODE` |
| the door, to most clients | one line of text: the sentence of `message` |
| the door, when `Accept` names JSON and does not weigh text higher | `application/problem+json` (RFC 9457), with the keys below |
| the REST interface | JSON: `status` and the keys below; clients of FTS read `status` and `message` |
| a third-party copy | the key `Penstock-Problem: CODE` in the last marker, then `failure: ` and the same sentence; the code is that of the other end where that one refused |
| `WWW-Authenticate` | `invalid_token` or `insufficient_scope` with the sentence (RFC 6750 §3); only `Bearer` for who shows nothing |
| the command line | the sentence; with `--json` the keys below beside `error` and `exit_code` ([exit codes](../exit-codes.md)) |
| failures of transfers (`explain`) | the key `code`, where more is known than `errno` tells: the code of the storage element that failed, where it is one of ours |

```json
{
  \"code\": \"pool-full\",
  \"side\": \"service\",
  \"layer\": \"pool\",
  \"retryable\": \"later\",
  \"who\": \"site\",
  \"message\": \"no pool has enough space for a file of 5000000000 bytes; delete files or ask the site for space\",
  \"detail\": \"no pool has enough space for a file of 5000000000 bytes; delete files or ask the site for space\"
}
```

| key | |
|---|---|
| `side` | where the fault lies: `source`, `destination`, `network` between two servers, or `service`: the server that answers |
| `layer` | the part of the system: the headings below |
| `retryable` | `no`; `later`: the same request may succeed; `elsewhere`: only another replica or another way |
| `who` | who should act: `user`, `site` (the administrator of the storage element), `operator` (of the transfer service), `peer` (the site at the other end), `nobody`: it passes |
| `message` | one sentence: what happened, to which thing, what to do |
| `detail` | what an expert wants to know beyond it; else the message |

A status in the tables is the usual one. Specifications ask for others in a few places, which [webdav.md](webdav.md) and [fts.md](fts.md)
name.

This page is made from `crates/model/src/problem/code/`; a test compares them.
";

fn heading(layer: Layer) -> &'static str {
    match layer {
        Layer::Credential => "Who asks",
        Layer::Authorisation => "What they may do",
        Layer::Request => "The request",
        Layer::Namespace => "Paths, locks and uploads",
        Layer::Pool => "Pools",
        Layer::Disk => "Disks",
        Layer::Content => "Checksums and sizes",
        Layer::Peer => "The other end of a copy",
        Layer::Network => "The network",
        Layer::Scheduler => "Queues and limits of transfers",
        Layer::Journal => "The record of the transfer service",
        Layer::Service => "The process",
        Layer::Tape => "Tape",
        Layer::Command => "The command line",
    }
}

fn page() -> String {
    let mut page = BEGINNING.to_owned();
    let mut layer = None;
    for facts in ProblemCode::all() {
        if layer.replace(facts.layer) != Some(facts.layer) {
            let (heading, layer) = (heading(facts.layer), facts.layer.name());
            write!(
                page,
                "\n## {heading} (`{layer}`)\n| code | what happened | what to do | try again | who acts | status |\n|---|---|---|---|---|---|\n"
            )
            .expect("a string takes everything");
        }
        page += &row(facts);
    }
    page
}

fn row(facts: &ProblemFacts) -> String {
    let retry = match facts.advice.retry {
        Retry::Never => "no",
        Retry::Later => "later",
        Retry::ElsewhereOnly => "elsewhere",
    };
    let actor = match facts.advice.actor {
        Actor::User => "user",
        Actor::Site => "site",
        Actor::Operator => "operator",
        Actor::Peer => "peer",
        Actor::Nobody => "nobody",
    };
    // Codes that only transfers and commands have are never a status.
    let status = match facts.layer {
        Layer::Command => "–".to_owned(),
        _ => facts.status.to_string(),
    };
    format!(
        "| `{}` | {} | {} | {retry} | {actor} | {status} |\n",
        facts.name, facts.meaning, facts.remedy
    )
}

#[test]
fn the_page_of_errors_is_that_of_the_table() {
    let path = workspace().join("docs/api/errors.md");
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/api/errors.md is not that of the table; write it anew and review it: {WRITE}=1 cargo test -p \
         penstock-model --test it errors"
    );
}

/// Codes that no test names, with the reason. Those of the door are held against the status of each refusal in all its tests
/// (`check_code` in `storage-element/tests/it/site.rs`).
const NOT_NAMED_IN_TESTS: [(&str, &[&str]); 5] = [
    (
        "a disk has to fail, hang or fill up: tests/faults looks at the files then",
        &[
            "disk-stalled",
            "pool-failing",
            "file-unreadable",
            "namespace-full",
            "namespace-failed",
            "write-unsettled",
            "journal-full",
            "journal-failed",
            "journal-missing",
            "record-refused",
            "keys-unavailable",
            "local-failure",
        ],
    ),
    (
        "it lasts a moment: a process ends, a leader or an issuer is away, a queue is full",
        &[
            "issuer-unreachable",
            "service-stopping",
            "service-busy",
            "service-full",
            "service-leaderless",
            "outcome-unknown",
            "reply-unknown",
            "namespace-busy",
            "journal-busy",
            "pools-disabled",
            "pool-busy",
            "mover-preempted",
            "resource-busy",
            "upload-superseded",
            "body-incomplete",
            "body-timeout",
            "interrupted",
        ],
    ),
    (
        "the door's own tests tell it by status and sentence",
        &[
            "issuer-untrusted",
            "root-unchangeable",
            "encryption-required",
            "foreign-page",
            "directory-too-large",
            "properties-too-large",
            "locks-exhausted",
            "upload-offset-wrong",
            "uploads-too-many",
            "uploads-too-large",
        ],
    ),
    (
        "tests of certificates, delegation, bans and limits tell it by FTS3's words",
        &[
            "certificate-invalid",
            "delegation-missing",
            "delegation-expired",
            "delegation-invalid",
            "vo-required",
            "user-banned",
            "storage-banned",
            "self-ban",
            "job-duplicate",
            "limit-reached",
            "endpoint-unsupported",
            "files-failed",
            "configuration-invalid",
        ],
    ),
    (
        "the engine's tests of tape, queues, shares and renewal tell it by error number",
        &[
            "queue-timeout",
            "vo-without-share",
            "token-renewal-failed",
            "tape-timeout",
            "tape-unsupported",
            "archive-timeout",
        ],
    ),
];

/// A code as the variant of the enum is written.
fn variant(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + rest
    });
    words.collect()
}

#[test]
fn every_code_is_given_somewhere_and_named_by_a_test_or_listed() {
    let (mut given, mut tests) = (String::new(), String::new());
    for file in files(&["crates"], ".rs") {
        let is_table = file.path.starts_with("crates/model/src/problem/code/");
        let is_guard = file.path.ends_with("errors_page.rs");
        match file.is_test() {
            true if is_guard => {}
            true => tests += &file.text,
            false if is_table => {}
            false => {
                let code = code_of(&file.text);
                let own_tests = file.text.find("#[cfg(test)]\nmod tests {");
                tests += &file.text[own_tests.unwrap_or(file.text.len())..];
                given += &code;
            }
        }
    }
    for file in files(&["tests/interop"], ".py") {
        tests += &file.text;
    }
    assert!(given.len() > 2_000_000 && tests.len() > 2_000_000);
    let mut listed: Vec<&str> = Vec::new();
    listed.extend(NOT_NAMED_IN_TESTS.iter().flat_map(|(_, names)| *names));
    for facts in ProblemCode::all() {
        let (name, variant) = (facts.name, variant(facts.name));
        let has = |text: &str| {
            text.match_indices(&variant).any(|(at, _)| {
                let after = text[at + variant.len()..].chars().next();
                text[..at].ends_with("ProblemCode::")
                    && !after.is_some_and(|letter| letter.is_alphanumeric())
            })
        };
        assert!(has(&given), "nothing gives {name}");
        let is_named = tests.contains(&format!("\"{name}\"")) || has(&tests);
        assert!(
            is_named != listed.contains(&name),
            "{name}: named by a test: {is_named}, and listed as not named: {}",
            !is_named
        );
        listed.retain(|other| *other != name);
    }
    assert_eq!(listed, [""; 0], "listed, and no code");
}
