//! What Prometheus and load balancers get of a site, at each port, and who gets it.

use crate::site::{Site, eventually, succeed, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Sends a request by curl, with or without a token; the status and the body.
fn curl(site: &Site, token: Option<&str>, args: &[&str]) -> (String, String) {
    let certificates = site.dir().join("certificates");
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--max-time", "30", "--capath"])
        .arg(certificates)
        .args(["--write-out", "\n%{http_code}"]);
    if let Some(token) = token {
        command
            .arg("-H")
            .arg(format!("Authorization: Bearer {token}"));
    }
    let output = command.args(args).output().expect("curl starts");
    let printed = text(&output.stdout);
    let (body, status) = printed.rsplit_once('\n').unwrap_or(("", ""));
    let said = text(&output.stderr);
    assert!(output.status.success(), "curl {args:?}: {said}");
    (status.to_owned(), body.to_owned())
}

fn token(site: &Site, scope: &str) -> String {
    let dir = site.dir_arg();
    succeed(&["token", "--dir", &dir, "--scope", scope])
        .trim()
        .to_owned()
}

/// Where each question can be asked.
fn asked_at(site: &Site, question: &str) -> [String; 3] {
    [
        site.url(question),
        site.url(&format!("/.penstock{question}")),
        format!("{}{question}", site.service()),
    ]
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect(text)
}

/// Samples by name and labels, when the page is one that Prometheus reads: each family once and whole, with help and
/// type before its samples, and no sample twice.
fn samples(page: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let mut family = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect(line);
            assert!(help.ends_with('.'), "{line}");
            assert!(families.insert(name.to_owned()), "{name} twice");
            family = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect(line);
            assert_eq!(name, family);
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (key, value) = line.rsplit_once(' ').expect(line);
            let name = key.split('{').next().expect(line);
            let part = name.strip_prefix(&*family).expect(line);
            assert!(["", "_bucket", "_sum", "_count"].contains(&part), "{line}");
            let before = samples.insert(key.to_owned(), value.parse().expect(line));
            assert_eq!(before, None, "{line}");
        }
    }
    samples
}

/// Replaces the `[observe]` section, and waits until it is in effect.
fn observe(site: &Site, section: &str) {
    let file = site.dir().join("penstock.toml");
    let config = std::fs::read_to_string(&file).expect("read");
    let before = config.split("[observe]").next().expect("a part");
    std::fs::write(&file, format!("{before}[observe]\n{section}\n")).expect("written");
    let reloads = || site.log().matches("reloaded limits").count();
    let known = reloads();
    site.signal("HUP");
    eventually("it is reloaded", || reloads() > known);
}

#[test]
fn both_ports_tell_prometheus_what_moves() {
    let site = Site::start(&[]);
    let modify = token(&site, "storage.modify:/ storage.read:/");
    let file = site.scratch().join("file");
    std::fs::write(&file, vec![7; 100_000]).expect("written");
    let upload = ["-T", file.to_str().expect("UTF-8"), &site.url("/f")];
    assert_eq!(curl(&site, Some(&modify), &upload).0, "201");
    let (status, _) = curl(&site, Some(&modify), &["-o", "/dev/null", &site.url("/f")]);
    assert_eq!(status, "200");
    let (status, _) = curl(&site, None, &[&site.url("/f")]);
    assert_eq!(status, "401");
    for address in asked_at(&site, "/metrics") {
        let (status, page) = curl(&site, None, &[&address]);
        assert_eq!(status, "200", "{page}");
        let samples = samples(&page);
        let value = |key: &str| samples.get(key).copied().unwrap_or(f64::NAN);
        let request = |rest: &str| {
            value(&format!(
                "penstock_http_requests_total{{port=\"door\",{rest}}}"
            ))
        };
        assert_eq!(request("method=\"PUT\",status=\"201\""), 1.0, "{page}");
        assert_eq!(request("method=\"GET\",status=\"401\""), 1.0, "{page}");
        let moved = |way: &str| {
            let pool = "penstock_pool_moved_bytes_total{pool=\"disk1\"";
            value(&format!("{pool},direction=\"{way}\"}}"))
        };
        assert_eq!((moved("in"), moved("out")), (100_000.0, 100_000.0));
        assert_eq!(
            value("penstock_movers_total{kind=\"put\",outcome=\"done\"}"),
            1.0
        );
        assert!(value("penstock_pool_free_bytes{pool=\"disk1\"}") > 0.0);
        assert_eq!(value("penstock_ready"), 1.0);
        assert_eq!(value("penstock_journal_writable"), 1.0);
        assert!(value("process_resident_memory_bytes") > 1e6);
        let certificate = "penstock_expiry_seconds{what=\"host_certificate\",file=\"cert.pem\"}";
        assert!(value(certificate) > 86_400.0 * 300.0, "{page}");
        assert_eq!(value("penstock_expiry_findings{standing=\"over\"}"), 0.0);
    }
}

#[test]
fn only_monitors_see_metrics_and_reasons() {
    let site = Site::start(&[]);
    let (plain, monitor) = (
        token(&site, "storage.read:/"),
        token(&site, "penstock.monitor"),
    );
    // The default lets in whoever is on this machine.
    for address in asked_at(&site, "/metrics") {
        assert_eq!(curl(&site, Some(&plain), &[&address]).0, "200", "{address}");
    }
    observe(&site, "monitor_addresses = [\"192.0.2.0/24\"]");
    for address in asked_at(&site, "/metrics") {
        let (status, body) = curl(&site, None, &[&address]);
        assert_eq!(status, "401", "{address} {body}");
        assert!(!body.contains("penstock_ready"), "{body}");
        let (status, body) = curl(&site, Some(&plain), &[&address]);
        assert_eq!(status, "403", "{address} {body}");
        assert!(body.contains("penstock.monitor"), "{body}");
        let (status, page) = curl(&site, Some(&monitor), &[&address]);
        assert_eq!(status, "200", "{address} {page}");
        assert!(page.contains("penstock_ready 1"), "{page}");
        assert_eq!(curl(&site, Some("rubbish"), &[&address]).0, "401");
    }
    assert!(site.log().contains("refused the metrics"), "{}", site.log());
    for question in ["/health", "/health/live", "/health/ready"] {
        for address in asked_at(&site, question) {
            let (status, body) = curl(&site, None, &[&address]);
            assert_eq!(
                (status.as_str(), json(&body)),
                ("200", json("{\"status\":\"ok\"}"))
            );
            let (_, body) = curl(&site, Some(&monitor), &[&address]);
            assert_eq!(json(&body)["findings"], json("[]"), "{body}");
        }
    }
    let old = format!("{}/api/v1/health", site.service());
    assert_eq!(curl(&site, None, &[&old]).0, "200");
    let (status, _) = curl(
        &site,
        Some(&plain),
        &["-X", "PUT", "-d", "x", &site.url("/.penstock/health")],
    );
    assert_eq!(status, "405");
}

#[test]
fn no_user_stands_in_for_the_metrics() {
    let site = Site::start(&[]);
    let modify = token(&site, "storage.modify:/ storage.read:/");
    let upload = ["-X", "PUT", "-d", "mine", &site.url("/metrics")];
    assert_eq!(curl(&site, Some(&modify), &upload).0, "403");
    for address in ["/metrics", "/.penstock/metrics"] {
        let (_, page) = curl(&site, Some(&modify), &[&site.url(address)]);
        assert!(page.contains("penstock_ready 1"), "{page}");
    }
}

#[test]
fn what_a_person_should_look_at_does_not_take_the_site_out() {
    let site = Site::start(&[]);
    // A revocation list that is out of date is a matter for a person, not for a load balancer.
    crate::keys::install_revocation_list(&site, "1");
    eventually("its end is noticed", || {
        site.signal("HUP");
        let (status, body) = curl(&site, None, &[&format!("{}/health", site.service())]);
        assert_eq!(status, "200", "{body}");
        let finding = &json(&body)["findings"][0];
        finding["severity"] == "warning"
            && finding["about"] == "expiry"
            && finding["text"]
                .as_str()
                .is_some_and(|said| said.contains(".r0 expired at"))
    });
    let (_, page) = curl(&site, None, &[&site.url("/metrics")]);
    let over = samples(&page)["penstock_expiry_findings{standing=\"over\"}"];
    assert_eq!(over, 1.0, "{page}");
    let told = site.log().matches(".r0 expired at").count();
    assert_eq!(told, 1, "{}", site.log());
}
