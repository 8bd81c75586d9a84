//! Making, checking, serving and signing for a site.

use crate::site::{Site, eventually, fail, penstock, run, succeed, text};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_second_init_changes_nothing() {
    let site = Site::make(&[]);
    let config = std::fs::read(site.dir().join("penstock.toml")).expect("made");
    let said = fail(2, &["init", "--dir", &site.dir_arg()]);
    assert!(said.contains("is not empty; nothing was changed"), "{said}");
    assert_eq!(
        std::fs::read(site.dir().join("penstock.toml")).expect("there"),
        config
    );
}

#[test]
fn an_init_that_fails_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let dir = directory.path().join("site").display().to_string();
    fail(2, &["init", "--dir", &dir, "--host", "not a host"]);
    fail(2, &["init", "--dir", &dir, "--peer", "/nowhere"]);
    assert!(!std::path::Path::new(&dir).exists());
}

#[test]
fn a_configuration_with_the_secret_address_of_a_receiver_is_for_its_owner_alone() {
    let site = Site::make(&[]);
    let path = site.dir().join("penstock.toml");
    let mode = || {
        let made = std::fs::metadata(&path).expect("made");
        made.permissions().mode() & 0o777
    };
    assert_eq!(mode(), 0o600);
    let said = || {
        let output = run(&["check", "--dir", &site.dir_arg()]);
        text(&output.stdout) + &text(&output.stderr)
    };
    let warning = "penstock.toml can be read by others";
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("set");
    assert!(!said().contains(warning), "{}", said());
    let mut config = std::fs::read_to_string(&path).expect("read");
    config += "\n[observe.alerts]\nwebhook = \"https://hooks.example/services/T0/SECRET\"\n";
    std::fs::write(&path, config).expect("written");
    assert!(said().contains(warning), "{}", said());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("set");
    assert!(!said().contains(warning), "{}", said());
}

#[test]
fn private_files_are_private() {
    let site = Site::make(&[]);
    for name in [
        "admin.token",
        "ca/ca.key",
        "host/key.pem",
        "keys/token-signing.pem",
        "keys/macaroon-root",
    ] {
        let mode = std::fs::metadata(site.dir().join(name))
            .expect(name)
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_fresh_site_passes_its_check() {
    let site = Site::make(&[]);
    let printed = succeed(&["check", "--dir", &site.dir_arg()]);
    assert!(!printed.contains("active_max_per_link"), "{printed}");
    assert!(printed.ends_with("ok\n"), "{printed}");
    let printed = succeed(&["check", "--values", "--dir", &site.dir_arg()]);
    assert!(printed.contains("active_max_per_link = 50"), "{printed}");
}

#[test]
fn check_finds_a_misspelt_key_and_a_readable_key_file() {
    let site = Site::make(&[]);
    let key = site.dir().join("host/key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("our own file");
    let printed = succeed(&["check", "--dir", &site.dir_arg()]);
    assert!(
        printed.contains("host/key.pem can be read by others (mode 644)"),
        "{printed}"
    );

    let path = site.dir().join("penstock.toml");
    let config = std::fs::read_to_string(&path)
        .expect("made")
        .replace("retries = 3", "retrys = 3");
    std::fs::write(&path, config).expect("written");
    let said = fail(2, &["check", "--dir", &site.dir_arg()]);
    assert!(said.contains("unknown field `retrys`"), "{said}");
}

#[test]
fn check_finds_the_error_in_a_key_file_that_serve_refuses() {
    let site = Site::make(&[]);
    let key = site.dir().join("keys/credential-encryption");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).expect("our own file");
    let output = run(&["check", "--dir", &site.dir_arg()]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let finding = printed
        .lines()
        .find(|line| line.contains("credential-encryption can be read"));
    assert!(
        finding.is_some_and(|line| line.starts_with("error")),
        "{printed}"
    );
    let said = fail(2, &["serve", "--dir", &site.dir_arg()]);
    assert!(said.contains("chmod 600"), "{said}");
}

#[test]
fn check_finds_each_key_that_cannot_be_read_as_serve_does() {
    let site = Site::make(&[]);
    let dir = site.dir_arg();
    for name in [
        "keys/token-signing.pem",
        "keys/token-signing.json",
        "keys/macaroon-root",
        "keys/credential-encryption",
        "host/key.pem",
    ] {
        let file = site.dir().join(name);
        let valid = std::fs::read(&file).expect(name);
        std::fs::write(&file, "this is no key\n").expect("our own file");
        let output = run(&["check", "--dir", &dir]);
        let printed = text(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{name}: {printed}");
        let errors = printed.lines().filter(|line| line.starts_with("error: "));
        let errors: Vec<&str> = errors.collect();
        assert_eq!(errors.len(), 1, "{name}: {printed}");
        assert!(errors[0].contains(name), "{name}: {printed}");
        assert!(errors[0].contains("; put "), "{name}: {printed}");
        let said = fail(2, &["serve", "--dir", &dir]);
        assert!(said.contains(name), "{name}: {said}");
        std::fs::write(&file, valid).expect("our own file");
    }
    succeed(&["check", "--dir", &dir]);
}

#[test]
fn check_finds_a_new_pool_that_serve_would_not_create() {
    let site = Site::make(&[]);
    let path = site.dir().join("penstock.toml");
    let config = std::fs::read_to_string(&path).expect("made");
    let added = |place: &str| {
        let pool = format!("\n[[storage.pool]]\nname = \"second\"\npath = \"{place}\"\n");
        std::fs::write(&path, config.clone() + &pool).expect("written");
    };
    added("pools/second");
    let printed = succeed(&["check", "--dir", &site.dir_arg()]);
    assert!(printed.ends_with("ok\n"), "{printed}");
    added("dikks/second");
    let output = run(&["check", "--dir", &site.dir_arg()]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    let missing = format!("{} does not exist", site.dir().join("dikks").display());
    let finding = printed.lines().find(|line| line.contains(&missing));
    assert!(
        finding.is_some_and(|line| line.starts_with("error: new pool 'second'")),
        "{printed}"
    );
    let said = fail(7, &["serve", "--dir", &site.dir_arg()]);
    assert!(said.contains(&missing), "{said}");
}

#[test]
fn a_token_says_what_was_asked() {
    let site = Site::make(&[]);
    let token = succeed(&[
        "token",
        "--dir",
        &site.dir_arg(),
        "--scope",
        "storage.read:/a storage.modify:/b",
        "--audience",
        "https://x",
        "--lifetime",
        "10m",
        "--subject",
        "ada",
        "--group",
        "/dteam",
    ]);
    let claims = claims(&token);
    let expected = serde_json::json!({
        "iss": site.url(""), "sub": "ada", "aud": ["https://x"], "scope": "storage.read:/a storage.modify:/b",
        "wlcg.ver": "1.0", "wlcg.groups": ["/dteam"],
    });
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&claims[name], value, "{name}");
    }
    assert_eq!(
        claims["exp"].as_i64().expect("a number") - claims["iat"].as_i64().expect("a number"),
        600
    );
}

fn claims(token: &str) -> Value {
    use openssl::base64::decode_block;
    let payload = token
        .trim()
        .split('.')
        .nth(1)
        .expect("three parts")
        .replace('-', "+")
        .replace('_', "/");
    let padded = format!("{payload}{}", "=".repeat((4 - payload.len() % 4) % 4));
    serde_json::from_slice(&decode_block(&padded).expect("base64")).expect("JSON")
}

#[test]
fn serve_says_where_its_doors_are_and_ends_cleanly() {
    let mut site = Site::make(&[]);
    let doors = site.serve();
    assert_eq!(
        doors,
        [
            format!("storage   {}", site.url("/")),
            format!("transfer  {}/", site.service()),
            format!("live page {}/live/", site.service()),
        ]
    );
    assert_eq!(site.stop(), Some(0), "{}", site.log());
    // Everything it wrote is usable for the next run.
    site.serve();
    assert_eq!(site.stop(), Some(0), "{}", site.log());
}

#[test]
fn one_directory_is_served_once_and_a_taken_port_is_named() {
    let site = Site::start(&[]);
    let said = fail(7, &["serve", "--dir", &site.dir_arg()]);
    assert!(
        said.contains(&format!(
            "another `penstock serve` (process {})",
            site.pid()
        )),
        "{said}"
    );

    let directory = tempfile::tempdir().expect("a directory");
    let dir = directory.path().join("site").display().to_string();
    succeed(&[
        "init",
        "--dir",
        &dir,
        "--host",
        &site.address.to_string(),
        "--ports",
        &site.port.to_string(),
    ]);
    let said = fail(7, &["serve", "--dir", &dir]);
    assert!(
        said.contains(&format!("{}:{} is taken", site.address, site.port)),
        "{said}"
    );
}

#[test]
fn a_hangup_reloads_and_a_bad_file_changes_nothing() {
    let site = Site::start(&[]);
    let path = site.dir().join("penstock.toml");
    let config = std::fs::read_to_string(&path).expect("made");
    std::fs::write(
        &path,
        config.replace("active_max_per_link", "active_max_per_lonk"),
    )
    .expect("written");
    site.signal("HUP");
    eventually("the refusal is logged", || {
        site.log().contains("unknown field `active_max_per_lonk`")
    });
    std::fs::write(
        &path,
        config.replace("active_max_per_link = 50", "active_max_per_link = 7"),
    )
    .expect("written");
    site.signal("HUP");
    eventually("the reload is logged", || {
        site.log()
            .contains("reloaded limits, certificates and trust")
    });
    succeed(&["ls", "--dir", &site.dir_arg(), &site.url("/")]);
}

#[test]
fn the_issuer_publishes_its_keys() {
    let site = Site::start(&[]);
    let anonymous = |path: &str| {
        let capath = site.dir().join("certificates");
        let output = penstock()
            .args(["cat", &site.url(path), "--capath"])
            .arg(capath)
            .output()
            .expect("it starts");
        assert!(output.status.success(), "{path}: {}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let document = anonymous("/.well-known/openid-configuration");
    assert_eq!(document["issuer"], site.url(""));
    assert_eq!(document["jwks_uri"], site.url("/jwks"));
    assert_eq!(anonymous("/jwks")["keys"][0]["kty"], "EC");
}

#[test]
fn json_tells_errors_too() {
    let output = run(&["check", "--dir", "/nowhere", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["exit_code"], 2);
    assert!(
        report["error"]
            .as_str()
            .expect("text")
            .contains("/nowhere/penstock.toml")
    );
}

#[test]
fn a_site_may_run_one_role_only() {
    for (kept, removed) in [("transfer", "storage"), ("storage", "transfer")] {
        let mut site = Site::make(&[]);
        let path = site.dir().join("penstock.toml");
        let config = std::fs::read_to_string(&path).expect("made");
        let mut table: toml::Table = config.parse().expect("TOML");
        table.remove(removed).expect("both roles are there");
        let url = if kept == "transfer" {
            site.service()
        } else {
            site.url("")
        };
        table["issuer"]["url"] = url.clone().into();
        std::fs::write(&path, table.to_string()).expect("written");
        let doors = site.serve();
        assert!(
            doors[0].starts_with(kept) && !doors.concat().contains(removed),
            "{doors:?}"
        );
        let keys = succeed(&["cat", "--dir", &site.dir_arg(), &format!("{url}/jwks")]);
        assert!(keys.contains("\"keys\""), "{keys}");
        match kept {
            "transfer" => succeed(&["list", "--dir", &site.dir_arg()]),
            _ => succeed(&["ls", "--dir", &site.dir_arg(), &site.url("/")]),
        };
        assert_eq!(site.stop(), Some(0));
    }
}

#[test]
fn the_version_names_the_commit_that_was_built() {
    let printed = succeed(&["--version"]);
    let version = concat!("penstock ", env!("CARGO_PKG_VERSION"));
    let rest = printed.trim_end().strip_prefix(version);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().expect("it is built there");
    let git = |words: &[&str]| {
        let mut git = std::process::Command::new("git");
        let done = git.arg("-C").arg(&root).args(words).output().ok()?;
        let is_done = done.status.success();
        is_done.then(|| text(&done.stdout).trim_end().to_owned())
    };
    // Sources that lie in a repository of something else are of none of its commits.
    let is_own = git(&["rev-parse", "--show-toplevel"]).as_deref() == root.to_str();
    match git(&["rev-parse", "HEAD"]).filter(|_| is_own) {
        None => assert_eq!(rest, Some("")),
        Some(commit) => {
            let commit = format!(" (commit {}", &commit[..12]);
            assert!(
                rest.is_some_and(|rest| rest.starts_with(&commit)),
                "{printed}"
            );
        }
    }
}

#[test]
fn commands_below_others_have_examples() {
    for words in [
        ["key", "list"],
        ["key", "rotate"],
        ["host", "compare"],
        ["records", "show"],
        ["account", "reconcile"],
        ["account", "published"],
    ] {
        let help = succeed(&[&words[..], &["--help"]].concat());
        let example = format!("  penstock {}", words.join(" "));
        assert!(
            help.contains("Example") && help.contains(&example),
            "{help}"
        );
    }
}
