//! Users with certificates and proxies, as curl shows them to both ports.

use crate::site::{Site, eventually, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What makes a proxy of a certificate (RFC 3820), in OpenSSL's words.
const PROXY: &str = "keyUsage=critical,digitalSignature,keyEncipherment\n\
                     proxyCertInfo=critical,language:id-ppl-inheritAll\n";
const USER: &str = "basicConstraints=critical,CA:FALSE\n\
                    keyUsage=critical,digitalSignature,keyEncipherment\n";

fn openssl(args: &[&str]) -> String {
    let output = Command::new("openssl").args(args).output();
    let output = output.expect("openssl starts");
    let said = text(&output.stderr);
    assert!(output.status.success(), "openssl {args:?}: {said}");
    text(&output.stdout)
}

/// PEM files: a certificate, its key, and all that a client sends.
struct Credential {
    directory: PathBuf,
    subject: String,
}

impl Credential {
    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn signed_by(certificate: &str, key: &str, at: &Path, subject: &str, kind: &str) -> Credential {
        std::fs::create_dir_all(at).expect("made");
        let new = Credential {
            directory: at.to_owned(),
            subject: subject.to_owned(),
        };
        std::fs::write(at.join("kind"), kind).expect("written");
        let (own_key, request) = (new.path("key.pem"), new.path("request.pem"));
        let subject = ["-subj", subject, "-keyout", &own_key, "-out", &request];
        openssl(
            &[
                &["req", "-new", "-newkey", "rsa:2048", "-nodes"],
                &subject[..],
            ]
            .concat(),
        );
        let kind = new.path("kind");
        let signer = ["-CA", certificate, "-CAkey", key, "-set_serial", "77"];
        let certificate = new.path("cert.pem");
        let files = ["-in", &request, "-extfile", &kind, "-out", &certificate];
        openssl(&[&["x509", "-req", "-days", "1"], &signer[..], &files[..]].concat());
        std::fs::copy(&certificate, new.path("chain.pem")).expect("copied");
        new
    }

    /// A user of a site's own authority.
    fn user(site: &Site, name: &str) -> Credential {
        let ca = |file: &str| site.dir().join("ca").join(file).display().to_string();
        let authority = openssl(&[
            "x509",
            "-in",
            &ca("ca.pem"),
            "-noout",
            "-subject",
            "-nameopt",
            "compat",
        ]);
        let authority = authority.trim().trim_start_matches("subject=").trim_start();
        let (organisation, _) = authority
            .rsplit_once('/')
            .expect("a name in an organisation");
        let subject = format!("{organisation}/OU=Users/CN={name}");
        let at = site.scratch().join(name);
        Credential::signed_by(&ca("ca.pem"), &ca("ca.key"), &at, &subject, USER)
    }

    /// A proxy, with the chain that must come with it.
    fn proxy(&self) -> Credential {
        let at = self.directory.join("proxy");
        let subject = format!("{}/CN=4711", self.subject);
        let (certificate, key) = (self.path("cert.pem"), self.path("key.pem"));
        let proxy = Credential::signed_by(&certificate, &key, &at, &subject, PROXY);
        let own = std::fs::read_to_string(proxy.path("cert.pem")).expect("made");
        let above = std::fs::read_to_string(self.path("chain.pem")).expect("made");
        std::fs::write(proxy.path("chain.pem"), own + &above).expect("written");
        proxy
    }
}

/// Status and body of a request that shows a certificate.
fn curl(site: &Site, with: &Credential, args: &[&str]) -> (String, String) {
    let certificates = site.dir().join("certificates");
    let output = Command::new("curl")
        .args(["-sS", "-w", "\n%{http_code}", "--capath"])
        .arg(certificates)
        .args([
            "--cert",
            &with.path("chain.pem"),
            "--key",
            &with.path("key.pem"),
        ])
        .args(args)
        .output()
        .expect("curl starts");
    assert!(
        output.status.success(),
        "curl {args:?}: {}",
        text(&output.stderr)
    );
    let printed = text(&output.stdout);
    let (body, status) = printed.rsplit_once('\n').expect("a status");
    (status.to_owned(), body.to_owned())
}

/// A served site at which a user may write below `/alice`, and nothing else.
fn site_with_alice() -> (Site, Credential) {
    let mut site = Site::make(&[]);
    let alice = Credential::user(&site, "Alice");
    let rule = format!(
        "\n[[storage.user]]\ndn = \"{}\"\npath = \"/alice\"\nrights = [\"read\", \"modify\"]\n",
        alice.subject
    );
    let file = site.dir().join("penstock.toml");
    let config = std::fs::read_to_string(&file).expect("readable") + &rule;
    std::fs::write(&file, config).expect("written");
    site.serve();
    (site, alice)
}

#[test]
fn a_proxy_opens_at_the_door_what_its_user_may_do() {
    let (site, alice) = site_with_alice();
    let proxy = alice.proxy().proxy();
    let kind = proxy.path("kind");
    let url = site.url("/alice/f");
    assert_eq!(curl(&site, &proxy, &["-T", &kind, &url]).0, "201");
    for with in [&alice, &proxy] {
        assert_eq!(curl(&site, with, &[&url]), ("200".into(), PROXY.into()));
    }
    let (status, text) = curl(&site, &proxy, &[&site.url("/bob/f")]);
    let expected = format!(
        "not allowed on /bob/f: no rule of the site lets {} do so",
        alice.subject
    );
    assert_eq!(
        (status.as_str(), text.starts_with(&expected)),
        ("403", true),
        "{text}"
    );
    // A token counts before the certificate, also one that is not good.
    let bad = ["-H", "Authorization: Bearer x", &url];
    assert_eq!(curl(&site, &proxy, &bad).0, "401");
    let bob = Credential::user(&site, "Bob");
    assert_eq!(curl(&site, &bob, &[&url]).0, "403");
}

/// gfal2 asks for a macaroon before anything else when it has a proxy.
#[test]
fn a_macaroon_of_a_proxy_opens_what_its_user_may_do() {
    let (site, alice) = site_with_alice();
    let proxy = alice.proxy();
    let url = site.url("/alice/f");
    assert_eq!(
        curl(&site, &proxy, &["-T", &proxy.path("kind"), &url]).0,
        "201"
    );
    let wanted = r#"{"caveats":["activity:DOWNLOAD"],"validity":"PT1H"}"#;
    let kind = "Content-Type: application/macaroon-request";
    let (status, body) = curl(&site, &proxy, &["-d", wanted, "-H", kind, &url]);
    assert_eq!(status, "200", "{body}");
    let answer: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    let macaroon = answer["macaroon"].as_str().expect("text");
    let bearer = format!("Authorization: Bearer {macaroon}");
    let bob = Credential::user(&site, "Bob");
    assert_eq!(
        curl(&site, &bob, &["-H", &bearer, &url]),
        ("200".into(), PROXY.into())
    );
    let put = ["-H", &bearer, "-T", &proxy.path("kind"), &url];
    assert_eq!(curl(&site, &bob, &put).0, "403");
    let asked = curl(&site, &bob, &["-d", wanted, "-H", kind, &url]);
    assert_eq!(asked.0, "403", "{}", asked.1);
}

#[test]
fn a_resumed_session_is_still_its_users() {
    let (site, alice) = site_with_alice();
    let proxy = alice.proxy();
    let url = site.url("/alice/f");
    assert_eq!(
        curl(&site, &proxy, &["-T", &proxy.path("kind"), &url]).0,
        "201"
    );
    for version in ["--tls-max=1.2", "--tlsv1.3"] {
        let (option, limit) = version.split_once('=').unwrap_or((version, ""));
        let mut args = vec!["-H", "Connection: close", &url, &url, option];
        args.extend(Some(limit).filter(|limit| !limit.is_empty()));
        let (status, body) = curl(&site, &proxy, &args);
        assert_eq!(status, "200", "{version}: {body}");
        assert_eq!(body, format!("{PROXY}\n200{PROXY}"), "{version}");
    }
}

#[test]
fn a_strange_certificate_is_told_why_and_harms_nobody_else() {
    let (site, _) = site_with_alice();
    let stranger = Site::make(&[]);
    let mallory = Credential::user(&stranger, "Mallory");
    for url in [site.url("/alice/f"), format!("{}/whoami", site.service())] {
        let (status, text) = curl(&site, &mallory, &[&url]);
        assert_eq!(status, "403", "{text}");
        assert!(
            text.contains("ask the site to trust that authority"),
            "{text}"
        );
    }
    let dir = site.dir_arg();
    let token = crate::site::succeed(&["token", "--dir", &dir, "--scope", "storage.read:/"]);
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let root = site.url("/");
    assert_eq!(
        curl(&site, &mallory, &["-H", &bearer, "-I", &root]).0,
        "200"
    );
}

#[test]
fn the_transfer_service_knows_who_shows_a_certificate_and_asks_for_a_delegation() {
    let (site, alice) = site_with_alice();
    let proxy = alice.proxy();
    let service = site.service();
    let at = |path: &str| format!("{service}/{path}");
    let (status, body) = curl(&site, &proxy, &[&at("/whoami")]);
    assert_eq!(status, "200", "{body}");
    let who: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(who["user_dn"], alice.subject.as_str());
    assert_eq!(
        (&who["method"], &who["is_root"]),
        (&"certificate".into(), &false.into())
    );
    let vo = who["vos"][0].as_str().expect("text");
    assert!(vo.starts_with("Alice@penstock~"), "{vo}");
    let id = who["delegation_id"].as_str().expect("text").to_owned();
    assert_eq!(id.len(), 16);
    let (_, again) = curl(&site, &alice, &[&at("whoami")]);
    assert!(
        again.contains(&id),
        "one name for the user and the proxy: {again}"
    );
    assert_eq!(
        curl(&site, &proxy, &[&at("jobs")]),
        ("200".into(), "[]".into())
    );
    assert_eq!(
        curl(&site, &proxy, &[&at(&format!("delegation/{id}"))]).1,
        "null"
    );
    let foreign = ["-H", "Origin: https://evil.example.org", &at("jobs")];
    assert_eq!(curl(&site, &proxy, &foreign).0, "403");
    let job = r#"{"files":[{"sources":["https://a/x"],"destinations":["https://b/x"]}]}"#;
    let (status, text) = curl(&site, &proxy, &["-d", job, &at("jobs")]);
    assert_eq!(status, "419", "{text}");
    assert!(text.contains("submit with a token"), "{text}");
}

#[test]
fn a_banned_user_is_out_after_a_reload() {
    let (site, alice) = site_with_alice();
    let places = [site.url("/alice/"), format!("{}/whoami", site.service())];
    let file = site.dir().join("penstock.toml");
    let config = std::fs::read_to_string(&file).expect("readable");
    let banned = format!("[trust]\nbanned = [\"{}\"]\n", alice.subject);
    assert_eq!(config.matches("[trust]\n").count(), 1, "{config}");
    for place in &places {
        assert_ne!(curl(&site, &alice, &[place]).0, "403");
    }
    std::fs::write(&file, config.replace("[trust]\n", &banned)).expect("written");
    site.signal("HUP");
    for place in &places {
        eventually("the ban", || {
            curl(&site, &alice, &[place]).1.contains("is banned here")
        });
    }
}
