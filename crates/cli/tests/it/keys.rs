//! Keys and certificates that are exchanged while the site is used: nobody sees a failure.

use crate::site::{Site, eventually, fail, succeed, text};
use parking_lot::Mutex;
use serde_json::Value;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Sends a request by curl; the status and the body.
fn curl(site: &Site, credential: &str, args: &[&str]) -> (String, String) {
    let certificates = site.dir().join("certificates");
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "30", "--capath"])
        .arg(certificates)
        .args(["--write-out", "\n%{http_code}", "-H"])
        .arg(format!("Authorization: Bearer {credential}"))
        .args(args)
        .output()
        .expect("curl starts");
    let printed = text(&output.stdout);
    let (body, status) = printed.rsplit_once('\n').unwrap_or(("", ""));
    let said = text(&output.stderr);
    assert!(output.status.success(), "curl {args:?}: {said}");
    (status.to_owned(), body.to_owned())
}

fn token(site: &Site, lifetime: &str) -> String {
    let dir = site.dir_arg();
    let scope = ["--scope", "storage.read:/ storage.modify:/"];
    let printed = succeed(
        &[
            &["token", "--dir", &dir, "--lifetime", lifetime],
            &scope[..],
        ]
        .concat(),
    );
    printed.trim().to_owned()
}

fn macaroon(site: &Site, token: &str) -> String {
    let request = [
        "-H",
        "Content-Type: application/macaroon-request",
        "-d",
        r#"{"validity":"PT1H"}"#,
    ];
    let (status, body) = curl(site, token, &[&request[..], &[&site.url("/")]].concat());
    assert_eq!(status, "200", "{body}");
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    answer["macaroon"].as_str().expect("a macaroon").to_owned()
}

fn keys(site: &Site) -> Vec<(String, String, String)> {
    let printed = succeed(&["--json", "key", "list", "--dir", &site.dir_arg()]);
    let rows: Vec<Value> = serde_json::from_str(&printed).expect("JSON");
    let word = |row: &Value, name: &str| row[name].as_str().expect("text").to_owned();
    rows.iter()
        .map(|row| (word(row, "kind"), word(row, "state"), word(row, "id")))
        .collect()
}

fn published(site: &Site, address: &str) -> Vec<String> {
    let (_, body) = curl(site, "none", &[address]);
    let answer: Value = serde_json::from_str(&body).expect(&body);
    let keys = answer["keys"].as_array().expect("a list").iter();
    keys.map(|key| key["kid"].as_str().expect("a name").to_owned())
        .collect()
}

/// The state of each key of a kind, in order.
fn states(site: &Site, kind: &str) -> Vec<String> {
    let of_kind = |(found, state, _): (String, String, String)| (found == kind).then_some(state);
    keys(site).into_iter().filter_map(of_kind).collect()
}

#[test]
fn rotating_every_key_under_load_fails_no_request() {
    let site = Site::start(&[]);
    let old_token = token(&site, "2h");
    let (status, body) = curl(&site, &old_token, &["-T", "/etc/hostname", &site.url("/f")]);
    assert_eq!(status, "201", "{body}");
    let old_macaroon = macaroon(&site, &old_token);
    let (stop, sent, bad) = (
        AtomicBool::new(false),
        AtomicUsize::new(0),
        Mutex::new(Vec::new()),
    );
    let ask = |what: &str, credential: &str, url: &str| {
        let (status, body) = curl(&site, credential, &[url]);
        sent.fetch_add(1, Ordering::Relaxed);
        if status != "200" {
            bad.lock().push(format!("{what}: {status}: {body}"));
        }
    };
    let door = site.url("/f");
    let whoami = format!("{}/whoami", site.service());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                ask("the old token", &old_token, &door);
                ask("the old token", &old_token, &whoami);
                ask("the old macaroon", &old_macaroon, &door);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let new = token(&site, "10m");
                ask("a new token", &new, &door);
                ask("a new token", &new, &whoami);
                ask("a new macaroon", &macaroon(&site, &new), &door);
            }
        });
        let dir = site.dir_arg();
        succeed(&["key", "rotate", "macaroon", "--dir", &dir]);
        succeed(&["key", "rotate", "token", "--now", "--dir", &dir]);
        let signs = Instant::now();
        eventually("the new key signs", || {
            states(&site, "token") == ["retired", "signing"]
        });
        assert!(
            signs.elapsed() > Duration::from_secs(2),
            "verifiers had no time to learn it"
        );
        succeed(&["key", "rotate", "macaroon", "--dir", &dir]);
        let before = sent.load(Ordering::Relaxed);
        eventually("both go on", || sent.load(Ordering::Relaxed) > before + 30);
        stop.store(true, Ordering::Relaxed);
    });
    let bad = bad.into_inner();
    assert_eq!(bad, [""; 0], "of {} requests", sent.load(Ordering::Relaxed));
    assert_eq!(states(&site, "macaroon"), ["signing", "retired", "retired"]);
}

#[test]
fn a_new_key_is_published_at_both_ports_before_it_signs() {
    let site = Site::start(&[]);
    let dir = site.dir_arg();
    let (door, service) = (site.url("/jwks"), format!("{}/jwks", site.service()));
    assert_eq!(states(&site, "token"), ["signing"]);
    succeed(&["key", "rotate", "token", "--dir", &dir]);
    assert_eq!(states(&site, "token"), ["signing", "coming"]);
    eventually("both ports publish it", || {
        published(&site, &door).len() == 2 && published(&site, &service).len() == 2
    });
    let signs_with = || {
        let token = token(&site, "10m");
        let header = token.split('.').next().expect("three parts").to_owned();
        let padded =
            header.replace('-', "+").replace('_', "/") + &"=".repeat((4 - header.len() % 4) % 4);
        let header = openssl::base64::decode_block(&padded).expect("base64");
        let header: Value = serde_json::from_slice(&header).expect("JSON");
        header["kid"].as_str().expect("a name").to_owned()
    };
    let names: Vec<String> = keys(&site).into_iter().map(|(_, _, id)| id).collect();
    assert_eq!(signs_with(), names[0]);
    let said = fail(2, &["key", "rotate", "token", "--dir", &dir]);
    assert!(
        said.contains("is published already and signs from"),
        "{said}"
    );
    succeed(&["key", "rotate", "token", "--now", "--dir", &dir]);
    assert_eq!(
        states(&site, "token").len(),
        2,
        "it hastens the one that was coming"
    );
    eventually("the new key signs", || signs_with() == names[1]);
}

#[test]
fn a_new_host_certificate_is_shown_without_a_signal() {
    let site = Site::start(&[]);
    let serial = || {
        let output = Command::new("openssl")
            .args([
                "s_client",
                "-connect",
                &format!("{}:{}", site.address, site.port),
            ])
            .stdin(std::process::Stdio::null())
            .output()
            .expect("openssl starts");
        let shown = openssl::x509::X509::from_pem(&output.stdout).expect("a certificate");
        shown
            .serial_number()
            .to_bn()
            .expect("a number")
            .to_hex_str()
            .expect("hex")
            .to_string()
    };
    let before = serial();
    let other = Site::make(&[&site]);
    // Half of the change is not taken over: the key does not belong to the certificate.
    let (host, new) = (site.dir().join("host"), other.dir().join("host"));
    std::fs::copy(new.join("cert.pem"), host.join("cert.pem")).expect("copied");
    eventually("it is noticed", || {
        site.log()
            .contains("cannot be used; the previous ones stay")
    });
    assert_eq!(serial(), before);
    std::fs::copy(new.join("key.pem"), host.join("key.pem")).expect("copied");
    eventually("the new one is shown", || serial() != before);
}

/// How much each credential key has sealed, the newest key first.
fn sealed(site: &Site) -> Vec<String> {
    let printed = succeed(&["--json", "key", "list", "--dir", &site.dir_arg()]);
    let rows: Vec<Value> = serde_json::from_str(&printed).expect("JSON");
    let credential = rows.iter().filter(|row| row["kind"] == "credential");
    credential
        .map(|row| row["until"].as_str().unwrap_or("nothing").to_owned())
        .collect()
}

#[test]
fn the_key_of_stored_credentials_rotates_while_jobs_run() {
    let mut site = Site::make(&[]);
    let other = Site::start(&[&site]);
    let silent = Site::make(&[&site]);
    site.serve();
    let dir = site.dir_arg();
    let (status, body) = curl(
        &site,
        &token(&site, "1h"),
        &["-T", "/etc/hostname", &site.url("/f")],
    );
    assert_eq!(status, "201", "{body}");
    let submit = |number: usize, to: &Site, more: &[&str]| {
        let source = site.url("/f");
        let destination = to.url(&format!("/new/{number}"));
        let args = ["submit", "--dir", &dir, &source, &destination];
        succeed(&[&args[..], more].concat())
    };
    // It is not served: these wait for their next attempt, and their tokens with them, one for each end.
    for number in 0..5 {
        submit(number, &silent, &[]);
    }
    assert_eq!(sealed(&site), ["has sealed 10"]);
    let (stop, moved) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let number = 100 + moved.load(Ordering::Relaxed);
                let printed = submit(number, &other, &["--wait"]);
                assert!(printed.contains("1 of 1 file arrived"), "{printed}");
                moved.fetch_add(1, Ordering::Relaxed);
            }
        });
        for rotations in 1..=2 {
            succeed(&["key", "rotate", "credential", "--dir", &dir]);
            eventually("everything is sealed anew", || {
                let sealed = sealed(&site);
                sealed.len() == rotations + 1
                    && sealed[0] != "nothing"
                    && sealed[1..].iter().all(|count| count == "nothing")
            });
        }
        let before = moved.load(Ordering::Relaxed);
        eventually("copies go on", || {
            moved.load(Ordering::Relaxed) > before + 1
        });
        stop.store(true, Ordering::Relaxed);
    });
    // The old lines may go: what waited is still readable.
    let path = site.dir().join("keys/credential-encryption");
    let keys = std::fs::read_to_string(&path).expect("read");
    let newest: Vec<&str> = keys.lines().take(2).collect();
    std::fs::write(&path, newest.join("\n")).expect("written");
    assert_eq!(site.stop(), Some(0));
    site.serve();
    assert!(
        !site.log().contains("with a key that is not there"),
        "{}",
        site.log()
    );
    assert_eq!(sealed(&site), ["has sealed 10"]);
}

/// A revocation list of the site's own authority with so many days left.
pub fn install_revocation_list(site: &Site, days: &str) {
    let ca = site.dir().join("ca");
    let at = tempfile::tempdir().expect("a directory");
    let database = at.path().join("index.txt");
    std::fs::write(&database, "").expect("written");
    let config = format!(
        "[ca]\ndefault_ca=x\n[x]\ndatabase={}\ndefault_md=sha256\n",
        database.display()
    );
    std::fs::write(at.path().join("ca.cnf"), config).expect("written");
    let out = at.path().join("crl.pem");
    let path = |path: &std::path::Path| path.display().to_string();
    let made = Command::new("openssl")
        .args([
            "ca",
            "-gencrl",
            "-config",
            &path(&at.path().join("ca.cnf")),
            "-crlsec",
            days,
        ])
        .args([
            "-cert",
            &path(&ca.join("ca.pem")),
            "-keyfile",
            &path(&ca.join("ca.key")),
        ])
        .args(["-out", &path(&out)])
        .output()
        .expect("openssl starts");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let pem = std::fs::read(ca.join("ca.pem")).expect("read");
    let hash = openssl::x509::X509::from_pem(&pem)
        .expect("a certificate")
        .subject_name_hash();
    let installed = site
        .dir()
        .join("certificates")
        .join(format!("{hash:08x}.r0"));
    std::fs::copy(&out, installed).expect("installed");
}

#[test]
fn check_tells_what_ends_and_how_soon() {
    let site = Site::make(&[]);
    let dir = site.dir_arg();
    install_revocation_list(&site, "2592000");
    let printed = succeed(&["check", "--dir", &dir]);
    assert!(printed.contains("host/cert.pem: days left: 3"), "{printed}");
    assert!(printed.contains(".r0: days left: 29"), "{printed}");
    assert!(printed.ends_with("ok\n"), "{printed}");
    let report: Value =
        serde_json::from_str(&succeed(&["--json", "check", "--dir", &dir])).expect("JSON");
    let kinds: Vec<&str> = report["expiry"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|found| found["what"].as_str().expect("text"))
        .collect();
    assert_eq!(
        kinds,
        [
            "host_certificate",
            "authority",
            "revocation_list",
            "signing_key"
        ]
    );
    // Past its end, everybody of that authority is locked out.
    install_revocation_list(&site, "1");
    eventually("it ends", || {
        let output = crate::site::run(&["check", "--dir", &dir]);
        output.status.code() == Some(2) && text(&output.stdout).contains("fetch a new one")
    });
}
