//! Names that decide where something goes: URLs of files, hosts, networks, files of keys; and texts in which a signature
//! must not be shown.

use super::{Target, texts};
use penstock_model::{FileUrl, NamespacePath};
use penstock_protocol::hosts::HostPattern;
use penstock_protocol::network::Network;
use penstock_protocol::s3::hide_presigned;
use penstock_protocol::token::{KeyRing, contents};
use penstock_protocol::webdav::{format_http_date, parse_http_date, parse_iso_date};
use std::net::IpAddr;
use url::Url;

const SIGNATURE: &str = "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7";

pub const URLS: Target = Target {
    name: "file_urls",
    check: check_url,
    seeds: || {
        texts(&[
            "https://se.example.org:8443/a%20b/c",
            "DAVS://SE.example.org/x?authz=secret",
            "root://se.example.org:1094//store/f?xrd.wantprot=gsi",
            "srm://se.example.org:8446/srm/managerv2?SFN=/pnfs/f",
            "gsiftp://[2001:db8::1]:2811/f",
            "https://user:secret@se.example.org/f",
            "https://se.example.org/a/../b#c",
            "file:///etc/passwd",
            "https://se.example.org/a\r\nb",
            "s3s://cloud.example.org/bucket/f\x1b[31m",
        ])
    },
};

pub const HOSTS: Target = Target {
    name: "host_names",
    check: check_hosts,
    seeds: || {
        texts(&[
            "*.example.org https://se.example.org/f",
            "se.example.org https://SE.example.org./f",
            "127.0.0.1 http://0x7f000001/f",
            "[::1] http://[::1]:8443/f",
            "192.0.2.0/24 http://192.0.2.7/",
            "2001:db8::/32 http://[2001:db8::7]/",
        ])
    },
};

pub const HIDDEN: Target = Target {
    name: "hidden_signatures",
    check: check_hidden,
    seeds: || {
        texts(&[
            "GET https://s3.example.org/b/f?X-Amz-Signature=@ answered 403",
            "<SignatureProvided>@</SignatureProvided>",
            "'https%3A%2F%2Fs3.example.org%2Fb%3FX-Amz-Signature%3D@'",
            "\u{130}?x-AMZ-\u{212a}@",
        ])
    },
};

pub const FILES: Target = Target {
    name: "key_files",
    check: check_files,
    seeds: || {
        texts(&[
            r#"{"version":1,"keys":[{"kid":"a","file":"token-signing.pem","published":1,"signs_from":2,"tokens_until":3}]}"#,
            "eyJhbGciOiJub25lIn0.eyJpc3MiOiJhIiwiZXhwIjoxfQ.",
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "2026-11-22T06:00:00.5Z",
        ])
    },
};

fn check_url(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let url = match FileUrl::parse(text) {
        Ok(url) => url,
        Err(why) => {
            let shown = why.to_string();
            // Without a colon before it, it is no password of anybody.
            let known = text
                .find("secret@")
                .is_some_and(|at| text[..at].contains(':'));
            assert!(!known || !shown.contains("secret@"), "{shown}");
            return;
        }
    };
    // It ends a line in no log and on no control channel, and moves no cursor.
    assert!(!url.as_str().contains(|c: char| c.is_control()), "{url:?}");
    assert!(!url.host().is_empty());
    // Whoever reads it by the URL standard goes to the same host.
    let standard = Url::parse(url.as_str()).expect("a URL");
    let host = standard.host_str().unwrap_or_default();
    assert_eq!(url.host(), host.to_ascii_lowercase());
    assert_eq!(url.scheme(), standard.scheme());
    assert!(standard.username().is_empty() && standard.password().is_none());
    // Written again, it is the same file of the same storage element.
    let again = FileUrl::parse(url.as_str()).expect("it was one");
    assert_eq!(again.place(), url.place());
    assert_eq!(again.storage(), url.storage());
}

fn check_hosts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let (pattern, url) = text.split_once(' ').unwrap_or((text, ""));
    let url = Url::parse(url).ok();
    if let Ok(pattern) = HostPattern::parse(pattern) {
        let shown = pattern.to_string();
        assert_eq!(HostPattern::parse(&shown).as_ref(), Ok(&pattern));
        if let Some(url) = url.as_ref().filter(|url| pattern.matches(url)) {
            // Only what has the pattern's own host at its end.
            let own = shown
                .trim_start_matches("*.")
                .split([':', '[', ']'])
                .find(|part| !part.is_empty());
            let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
            assert!(host.contains(own.unwrap_or_default()), "{shown} {url}");
        }
    }
    if let Some(network) = Network::parse(pattern) {
        assert_eq!(Network::parse(&network.to_string()), Some(network));
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            assert_eq!(
                network.contains(address),
                network.contains(address.to_canonical())
            );
        }
    }
}

fn check_hidden(data: &[u8]) {
    let text = String::from_utf8_lossy(data).replace('@', SIGNATURE);
    let url = format!("https://s3.example.org/b/f?X-Amz-Signature={SIGNATURE}");
    let presigned = Url::parse(&url).expect("a URL");
    let shown = hide_presigned(&text, &presigned);
    assert!(!shown.contains(SIGNATURE), "{shown}");
    // Nothing is invented, and little added: one sign for each word.
    assert!(shown.len() <= text.len() * 4 + 8, "{shown}");
}

fn check_files(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(ring) = KeyRing::parse(text) {
        assert_eq!(KeyRing::parse(&ring.to_text()).as_ref(), Ok(&ring));
        for key in ring.keys() {
            assert!(!key.file.contains('/'), "a key lies beside its file");
        }
        assert!(
            !ring
                .signing(penstock_model::Timestamp(0))
                .kid
                .contains('\0')
                || text.contains("\\u0000")
        );
    }
    if let Some(told) = contents(text) {
        assert!(told.issuer.len() <= text.len());
    }
    if let Some(time) = parse_http_date(text)
        && time.0 >= 0
    {
        assert_eq!(parse_http_date(&format_http_date(time)), Some(time));
    }
    let _ = parse_iso_date(text);
    if let Ok(path) = NamespacePath::from_encoded(text) {
        for name in path.names() {
            assert!(!name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']));
        }
        assert_eq!(NamespacePath::parse(&path.to_string()).as_ref(), Ok(&path));
    }
}
