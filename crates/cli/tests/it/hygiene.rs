//! What keeps a site clean at its doors: old TLS is refused, every denial is in the log once, and nobody sees more of
//! others than the jobs interface tells.

use crate::site::{Site, eventually, fail, run, succeed, text};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};

fn token(site: &Site, scope: &str) -> String {
    // For both sites, as a user's own issuer would make it.
    let any = "https://wlcg.cern.ch/jwt/v1/any";
    let dir = site.dir_arg();
    let printed = succeed(&["token", "--dir", &dir, "--scope", scope, "--audience", any]);
    printed.trim().to_owned()
}

/// Sends a request by curl; the status and the body.
fn curl(site: &Site, args: &[&str]) -> (String, String) {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "30", "--capath"])
        .arg(site.dir().join("certificates"))
        .args(["--write-out", "\n%{http_code}"])
        .args(args)
        .output()
        .expect("curl starts");
    let printed = text(&output.stdout);
    let (body, status) = printed.rsplit_once('\n').unwrap_or(("", ""));
    let said = text(&output.stderr);
    assert!(output.status.success(), "curl {args:?}: {said}");
    (status.to_owned(), body.to_owned())
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// What OpenSSL's client says of a connection over which it sends one request.
fn s_client(port: &str, args: &[&str]) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", port, "-ign_eof"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl starts");
    let mut asks = client.stdin.take().expect("piped");
    // One that is refused does not listen.
    let _ = asks.write_all(b"OPTIONS / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let output = client.wait_with_output().expect("it ends");
    drop(asks);
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn each_port_refuses_old_tls_and_resumes_sessions_of_the_new() {
    let site = Site::start(&[]);
    for port in [site.port, site.port + 3] {
        let port = format!("{}:{port}", site.address);
        // Without this level OpenSSL's client would not even offer them.
        let old = ["-cipher", "DEFAULT:@SECLEVEL=0"];
        for version in ["-tls1", "-tls1_1"] {
            let said = s_client(&port, &[&[version][..], &old].concat());
            assert!(
                said.contains("alert protocol version"),
                "{port} {version}: {said}"
            );
            assert!(!said.contains("HTTP/1.1"), "{port} {version}: {said}");
        }
        for version in ["-tls1_2", "-tls1_3"] {
            let session = site.scratch().join("session").display().to_string();
            let _ = std::fs::remove_file(&session);
            let said = s_client(&port, &[version, "-sess_out", &session]);
            assert!(said.contains("New, TLSv1."), "{port} {version}: {said}");
            assert!(said.contains("HTTP/1.1 "), "{port} {version}: {said}");
            let said = s_client(&port, &[version, "-sess_in", &session]);
            assert!(said.contains("Reused, TLSv1."), "{port} {version}: {said}");
            assert!(said.contains("HTTP/1.1 "), "{port} {version}: {said}");
        }
    }
}

/// Lines of the log since a mark that speak of a refusal.
fn denials(site: &Site, since: usize) -> Vec<String> {
    let log = site.log();
    let lines = log.get(since..).unwrap_or_default().lines();
    let warned = lines.filter(|line| line.contains(" WARN ") || line.contains(" INFO "));
    warned
        .filter(|line| line.contains("refused"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_denial_is_in_the_log_once_with_its_reason_and_without_a_secret() {
    let mut site = Site::make(&[]);
    let file = site.dir().join("penstock.toml");
    let config = std::fs::read_to_string(&file).expect("read");
    let config = config.replacen("\n[trust]\n", "\n[trust]\nbanned = [\"mallory\"]\n", 1);
    std::fs::write(&file, config).expect("written");
    site.serve();
    let dir = site.dir_arg();
    let narrow = token(&site, "storage.read:/nowhere");
    let banned = succeed(&[
        "token",
        "--dir",
        &dir,
        "--scope",
        "storage.read:/",
        "--subject",
        "mallory",
    ]);
    let (signed, _) = narrow.rsplit_once('.').expect("a JWT");
    let forged = format!("{signed}.AAAASecretSignatureAAAA");
    let door = site.url("/f");
    let service = |path: &str| format!("{}{path}", site.service());
    let job = "11111111-1111-1111-1111-111111111111";
    let cases = [
        (vec![], door.clone(), "401", "no credentials"),
        (
            vec!["-H".to_owned(), bearer(&narrow)],
            door.clone(),
            "403",
            "no storage scope",
        ),
        (
            vec!["-H".to_owned(), bearer(&forged)],
            door.clone(),
            "401",
            "signature",
        ),
        (
            vec!["-H".to_owned(), bearer(banned.trim())],
            door.clone(),
            "403",
            "banned",
        ),
        (
            vec!["-u".to_owned(), "bob:TopSecret".to_owned()],
            door.clone(),
            "401",
            "Bearer",
        ),
        (vec![], format!("{door}?authz={forged}"), "401", "signature"),
        (vec![], service("/jobs"), "401", "no credentials"),
        (
            vec!["-H".to_owned(), bearer(&forged)],
            service("/jobs"),
            "401",
            "signature",
        ),
        (
            vec!["-H".to_owned(), bearer(banned.trim())],
            service("/whoami"),
            "403",
            "banned",
        ),
        (
            vec!["-u".to_owned(), "bob:TopSecret".to_owned()],
            service("/jobs"),
            "401",
            "bearer",
        ),
        (
            vec!["-H".to_owned(), bearer(&narrow)],
            service("/jobs?vo_name=other"),
            "403",
            "vo_name",
        ),
        (
            vec!["-H".to_owned(), bearer(&narrow)],
            service("/jobs?dlg_id=other"),
            "403",
            "dlg_id",
        ),
        (
            vec!["-H".to_owned(), bearer(&narrow)],
            service("/delegation/other/request"),
            "403",
            "",
        ),
        (vec![], service("/live/api/report"), "401", "no credentials"),
    ];
    for (args, url, expected, reason) in cases {
        let since = site.log().len();
        let args: Vec<&str> = args
            .iter()
            .map(String::as_str)
            .chain([url.as_str()])
            .collect();
        let (status, body) = curl(&site, &args);
        assert_eq!(status, expected, "{args:?}: {body}");
        eventually("it is logged", || !denials(&site, since).is_empty());
        // A second line would come with the next request at the latest.
        curl(&site, &[&service("/health/live")]);
        let found = denials(&site, since);
        assert_eq!(found.len(), 1, "{args:?}: {found:?}");
        assert!(found[0].contains(reason), "{args:?}: {found:?}");
    }
    assert_eq!(
        curl(
            &site,
            &["-H", &bearer(&narrow), &service(&format!("/jobs/{job}"))]
        )
        .0,
        "404"
    );
    let log = site.log();
    for secret in [
        narrow.as_str(),
        banned.trim(),
        "AAAASecretSignatureAAAA",
        "TopSecret",
        "Ym9iOlRvcFNlY3JldA",
    ] {
        let tail = &secret[secret.len().saturating_sub(20)..];
        assert!(!log.contains(tail), "the log holds {tail}");
    }
}

#[test]
fn nobody_sees_more_of_another_vo_than_the_jobs_interface_tells() {
    let mut site = Site::make(&[]);
    let mut other = Site::make(&[&site]);
    let file = site.dir().join("penstock.toml");
    let config = std::fs::read_to_string(&file).expect("read");
    std::fs::write(
        &file,
        config.replacen(
            "\n[transfer]\n",
            "\n[transfer]\nrequired_scope = \"fts\"\n",
            1,
        ),
    )
    .expect("written");
    site.serve();
    other.serve();
    let modify = token(&site, "storage.modify:/ storage.read:/ fts");
    let (status, body) = curl(
        &site,
        &[
            "-H",
            &bearer(&modify),
            "-T",
            "/etc/hostname",
            &site.url("/secret-name"),
        ],
    );
    assert_eq!(status, "201", "{body}");
    let job = serde_json::json!({"files": [{
        "sources": [site.url("/secret-name")],
        "destinations": [other.url("/new/secret-name")],
    }]});
    let jobs = format!("{}/jobs", site.service());
    let (status, body) = curl(
        &site,
        &["-H", &bearer(&modify), "-d", &job.to_string(), &jobs],
    );
    assert_eq!(status, "200", "{body}");
    let own = |path: &str| {
        let (status, body) = curl(
            &site,
            &["-H", &bearer(&modify), &format!("{}{path}", site.service())],
        );
        assert_eq!(status, "200", "{path}: {body}");
        serde_json::from_str::<Value>(&body).expect("JSON")
    };
    let listed = "/jobs?state_in=FINISHED";
    eventually("it has ended", || {
        own(listed).as_array().is_some_and(|jobs| jobs.len() == 1)
    });
    let report = own("/live/api/report?seconds=900");
    assert!(
        report.to_string().contains(&site.address.to_string()),
        "{report}"
    );
    // Another VO with the scope sees numbers of links at most; without it nothing.
    let foreign = token(&other, "storage.read:/ fts");
    let elsewhere = |path: &str, token: &str| {
        curl(
            &site,
            &["-H", &bearer(token), &format!("{}{path}", site.service())],
        )
    };
    assert_eq!(
        elsewhere(listed, &foreign),
        ("200".to_owned(), "[]".to_owned())
    );
    let (status, body) = elsewhere("/live/api/report?seconds=900", &foreign);
    assert_eq!(status, "200", "{body}");
    assert!(!body.contains(&site.address.to_string()), "{body}");
    for path in ["/live/api/series", "/api/v1/overview"] {
        let (status, body) = elsewhere(path, &foreign);
        assert_eq!(status, "200", "{body}");
        assert!(!body.contains("secret-name"), "{path}: {body}");
    }
    let without = token(&site, "storage.read:/");
    for path in [
        listed,
        "/live/api/report",
        "/live/api/series",
        "/api/v1/overview",
    ] {
        let (status, body) = elsewhere(path, &without);
        assert_eq!(status, "403", "{path}: {body}");
    }
    // Monitors need no scope of the service, and see numbers.
    let monitor = token(&site, "penstock.monitor");
    let (status, page) = elsewhere("/metrics", &monitor);
    assert_eq!(status, "200", "{page}");
    assert!(
        page.contains("penstock_transfers_ended_total{state=\"finished\"} 1"),
        "{page}"
    );
    let link = format!(
        "source=\"https://{}\",destination=\"https://{}\"",
        site.address, other.address
    );
    let landed = format!("penstock_link_attempts_total{{{link},outcome=\"landed\"}} 1");
    // Links are told as they were at the last full second.
    eventually("the link tells of the attempt", || {
        elsewhere("/metrics", &monitor).1.contains(&landed)
    });
    assert!(!elsewhere("/metrics", &monitor).1.contains("secret-name"));
}

#[test]
fn check_finds_hosts_to_which_no_credential_should_follow() {
    let site = Site::make(&[]);
    let file = site.dir().join("penstock.toml");
    let config = std::fs::read_to_string(&file).expect("read");
    let follow = |hosts: &str| {
        let section = format!("\n[transfer]\ncredentials_follow = [{hosts}]\n");
        std::fs::write(&file, config.replacen("\n[transfer]\n", &section, 1)).expect("written");
    };
    for (host, why) in [
        ("*.org", "too wide"),
        ("256.1.1.1", "is not a host"),
        ("https://se", "is not a host"),
        ("-se.example.org", "is not a host"),
    ] {
        follow(&format!("\"{host}\""));
        let said = fail(2, &["check", "--dir", &site.dir_arg()]);
        assert!(
            said.contains("transfer.credentials_follow") && said.contains(why),
            "{host}: {said}"
        );
    }
    follow("\"*.ac.uk\", \"no-such-host.invalid\", \"127.0.0.9\", \"*.se.example.org\"");
    let printed = text(&run(&["check", "--dir", &site.dir_arg()]).stdout);
    let warnings: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with("warning: transfer.credentials"))
        .collect();
    assert_eq!(warnings.len(), 2, "{printed}");
    assert!(
        warnings[0].contains("*.ac.uk") && warnings[1].contains("no-such-host.invalid"),
        "{printed}"
    );
}
