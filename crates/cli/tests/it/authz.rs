//! `penstock authz test`: what a site would answer, by the rules that its door follows.

use crate::site::{Site, fail, run, succeed, text};
use serde_json::Value;
use std::path::PathBuf;

const ALICE: &str = "/DC=lab/CN=Alice";
const RULES: &str = r#"
[[storage.user]]
dn = "/DC=lab/CN=Alice"
path = "/home/alice"
rights = ["read", "modify"]

[[storage.group]]
group = "/dteam/Role=production"
path = "/dteam"
rights = ["create"]

[[trust.member]]
dn = "/DC=lab/CN=Alice"
vo = "lab"
"#;

/// A site with a few rules, which is never served.
fn ruled() -> Site {
    let site = Site::make(&[]);
    let path = site.dir().join("penstock.toml");
    let config = std::fs::read_to_string(&path).expect("a configuration");
    let banned = "\n[trust]\nbanned = [\"/DC=lab/CN=Mallory\"]\n";
    let config = config.replacen("\n[trust]\n", banned, 1);
    let open = "\n[storage]\nanonymous_read = [\"/public\"]\n";
    let config = config.replacen("\n[storage]\n", open, 1);
    std::fs::write(&path, config + RULES).expect("written");
    site
}

fn told(site: &Site, expected: i32, args: &[&str]) -> Value {
    let dir = site.dir_arg();
    let output = run(&[&["--json", "authz", "test", "--dir", &dir], args].concat());
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        output.status.code(),
        Some(expected),
        "{args:?}: {printed}{said}"
    );
    let mut told: Value = serde_json::from_str(&printed).expect("one JSON value");
    match expected {
        0 => told,
        _ => told["report"].take(),
    }
}

/// The verdict on one operation, with its reasons.
fn verdict(site: &Site, who: &[&str], path: &str, operation: &str) -> String {
    let args = [&[path, "--operation", operation, "--as"], who].concat();
    let dir = site.dir_arg();
    let output = run(&[&["--json", "authz", "test", "--dir", &dir], &args[..]].concat());
    let answer: Value = serde_json::from_str(&text(&output.stdout)).expect("one JSON value");
    let report = answer.get("report").unwrap_or(&answer);
    let judged = &report["operations"][0];
    let allowed = judged["verdict"] == "allowed";
    assert_eq!(
        output.status.code(),
        Some(if allowed { 0 } else { 3 }),
        "{args:?}"
    );
    let because = judged["because"].as_array().expect("reasons").iter();
    let because: Vec<&str> = because.filter_map(Value::as_str).collect();
    format!(
        "{}: {}",
        if allowed { "yes" } else { "no" },
        because.join("; ")
    )
}

fn written(site: &Site, name: &str, content: &str) -> String {
    let path: PathBuf = site.dir().join(name);
    std::fs::write(&path, content).expect("written");
    path.display().to_string()
}

#[test]
fn each_verdict_comes_with_the_rule_that_counted() {
    let site = ruled();
    let check = |who: &[&str], path: &str, operation: &str, expected: &str| {
        let got = verdict(&site, who, path, operation);
        assert_eq!(got, expected, "{who:?} {operation} {path}");
    };
    let anonymous = ["anonymous"];
    check(
        &anonymous,
        "/public/f",
        "read",
        "yes: everybody may do so below /public",
    );
    check(
        &anonymous,
        "/public/f",
        "create",
        "no: it needs a token or a certificate",
    );
    check(
        &anonymous,
        "/x",
        "read",
        "no: it needs a token or a certificate",
    );
    let may = "yes: /DC=lab/CN=Alice may do so below /home/alice";
    check(&[ALICE], "/home/alice/f", "delete", may);
    let none = "no: no rule of the site lets /DC=lab/CN=Alice do so at /x";
    check(&[ALICE], "/x", "read", none);
    let role = [ALICE, "--fqan", "/dteam/Role=production/Capability=NULL"];
    let member = "yes: members of /dteam/Role=production may do so below /dteam";
    check(&role, "/dteam/f", "create", member);
    let neither = "no: no rule of the site lets /DC=lab/CN=Alice do so at /dteam/f; \
                   no rule of the site lets a member of /dteam/Role=production do so at /dteam/f";
    check(&role, "/dteam/f", "read", neither);
    let banned = "no: /DC=lab/CN=Mallory is banned here";
    check(&["/DC=lab/CN=Mallory"], "/public/f", "read", banned);
    let own = "no: the path belongs to the door itself";
    check(&[ALICE], "/.penstock/f", "read", own);
    let rename = ["/DC=lab/CN=Alice", "--to", "/home/alice/g"];
    check(&rename, "/home/alice/f", "rename", may);
    let away = ["/DC=lab/CN=Alice", "--to", "/x"];
    check(&away, "/home/alice/f", "rename", none);
}

#[test]
fn a_credential_is_shown_as_it_is_understood() {
    let site = ruled();
    let dir = site.dir_arg();
    let scope = ["--scope", "storage.read:/data", "--subject", "bob"];
    let token = succeed(&[&["token", "--dir", &dir], &scope[..]].concat());
    let file = written(&site, "bob.token", &token);
    let answer = told(&site, 0, &["/data/f", "--as", &file]);
    assert_eq!(
        (&answer["by"], &answer["user"]),
        (&"a token".into(), &"bob".into())
    );
    assert_eq!(
        answer["capabilities"],
        serde_json::json!(["storage.read:/data"])
    );
    let allowed = |judged: &&Value| judged["verdict"] == "allowed";
    let operations = answer["operations"].as_array().expect("all");
    let names = operations
        .iter()
        .filter(allowed)
        .map(|judged| &judged["operation"]);
    assert_eq!(names.collect::<Vec<_>>(), ["read", "stat", "list"]);
    assert_eq!(
        operations.len(),
        9,
        "all but a rename, which has no new path"
    );
    let alice = told(&site, 3, &["/f", "--as", ALICE, "--operation", "read"]);
    assert_eq!(alice["vo"], "lab");
}

#[test]
fn what_is_not_believed_or_makes_no_sense_is_told_by_the_exit_code() {
    let site = ruled();
    let dir = site.dir_arg();
    let test = |code: i32, args: &[&str]| {
        let args = [&["authz", "test", "/x", "--dir", &dir], args].concat();
        fail(code, &args)
    };
    let forged = written(&site, "forged", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJib2IifQ.");
    assert!(test(3, &["--as", &forged]).contains("token"));
    let said = test(2, &["--as", "eyJhbGciOiJub25lIn0.e30."]);
    assert!(
        said.contains("other users can see arguments") && !said.contains("eyJhbG"),
        "{said}"
    );
    assert!(test(2, &["--as", "/no/such/file"]).contains("/no/such/file"));
    assert!(test(2, &["--as", ALICE, "--operation", "rename"]).contains("--to"));
    assert!(test(2, &["--as", "anonymous", "--fqan", "/dteam"]).contains("--fqan"));
    // The site's own host certificate is not one of a user, but it is believed.
    let host = site.dir().join("host/cert.pem").display().to_string();
    let answer = told(&site, 3, &["/x", "--as", &host]);
    assert_eq!(answer["by"], "a certificate");
    let stranger = Site::make(&[]);
    let rogue = stranger.dir().join("host/cert.pem").display().to_string();
    assert!(test(3, &["--as", &rogue]).contains("is not accepted"));
    assert_eq!(
        test(3, &["--as", ALICE]),
        "",
        "a refusal is an answer, not an error"
    );
}

#[test]
fn a_rule_for_a_group_that_nobody_can_be_in_is_told() {
    let site = ruled();
    let told = || {
        let printed = succeed(&["check", "--dir", &site.dir_arg()]);
        printed.contains("'/dteam/Role=production' at /dteam: nobody can be a member")
    };
    assert!(told());
    let config = site.dir().join("penstock.toml");
    let before = std::fs::read_to_string(&config).expect("a configuration");
    let issuer =
        "\n[[trust.issuer]]\nissuer = \"https://127.0.0.1:1\"\nvos = [\"lab\", \"dteam\"]\n";
    std::fs::write(&config, before.clone() + issuer).expect("written");
    assert!(!told());
    std::fs::write(&config, before).expect("written");
    std::fs::create_dir_all(site.dir().join("vomsdir/dteam")).expect("made");
    assert!(!told());
}
