//! The headers of COPY: each is honoured, refused with a text that names it, or ignored on purpose.

use crate::copies::{begin, failure, finish, pull, request, succeeded};
use crate::peer::{Peer, Step, send};
use crate::site::Site;

const FILE: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nDigest: adler32=11e60398\r\n\r\nWikipedia";

/// Where nothing is yet, and nine bytes are taken.
async fn destination() -> Peer {
    const TAKEN: &str = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\nDigest: adler32=11e60398\r\nConnection: close\r\n\r\n";
    Peer::by_method(|head| match head.starts_with("PUT ") {
        true => vec![Step::Read(9), send(TAKEN)],
        false => vec![send(
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )],
    })
    .await
}

async fn source() -> Peer {
    Peer::new(vec![send(FILE)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_make_no_sense_are_refused_by_name_and_nobody_is_asked() {
    let site = Site::new().await;
    let peer = source().await;
    for (header, value) in [
        ("x-number-of-streams", "-1"),
        ("x-number-of-streams", "101"),
        ("x-number-of-streams", "99999999999999999999999999"),
        ("x-number-of-streams", "four"),
        ("x-number-of-streams", "1;2"),
        ("overwrite", "maybe"),
        ("overwrite", ""),
        ("requirechecksumverification", "1"),
        ("credential", "x509"),
        ("digest", "adler32=zz"),
        ("repr-digest", "adler32"),
    ] {
        let source = peer.url();
        let extra = [("source", source.as_str()), (header, value)];
        let response = site.send("COPY", "/g", &extra, b"").await;
        assert_eq!(response.status, 400, "{header}: {value}");
        let text = response.text().to_ascii_lowercase();
        assert!(text.contains(header), "{header}: {value}: {text}");
    }
    for refused in ["gridsite", "oidc"] {
        let source = peer.url();
        let extra = [("source", source.as_str()), ("credential", refused)];
        let response = site.send("COPY", "/g", &extra, b"").await;
        assert_eq!(response.status, 400, "{refused}");
        let text = response.text();
        assert!(
            text.contains("Credential") && text.contains("TransferHeaderAuthorization"),
            "{text}"
        );
    }
    assert_eq!(peer.heads(), Vec::<String>::new());
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_protocols_are_not_implemented_rather_than_wrong() {
    let site = Site::new().await;
    for scheme in ["gsiftp", "root", "s3", "file", "srm"] {
        let url = url::Url::parse(&format!("{scheme}://127.0.0.1/f")).expect("valid");
        for side in ["source", "destination"] {
            let response = finish(begin(request(&site, "/g", side, &url, "t", &[])).await).await;
            assert_eq!(response.status, 501, "{scheme}");
            assert!(response.text().contains(scheme), "{}", response.text());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_come_twice_are_refused() {
    let site = Site::new().await;
    let peer = source().await;
    for twice in [
        "Overwrite: F",
        "Credential: none",
        "X-Number-Of-Streams: 2",
        "RequireChecksumVerification: true",
    ] {
        let token = site.token("storage.modify:/");
        let answer = site
            .raw(&format!(
                "COPY /g HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
                 Source: {}\r\n{twice}\r\n{twice}\r\n\r\n",
                peer.url()
            ))
            .await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{twice}: {answer}");
    }
    assert_eq!(peer.heads(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_cannot_smuggle_a_header_to_the_other_side() {
    let site = Site::new().await;
    let peer = source().await;
    let token = site.token("storage.modify:/");
    for value in ["a\rX-Evil: 1", "a\n X-Evil: 1", "a\u{0}X-Evil: 1"] {
        let answer = site
            .raw(&format!(
                "COPY /g HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
                 Source: {}\r\nTransferHeaderX-Mark: {value}\r\n\r\n",
                peer.url()
            ))
            .await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{value:?}: {answer}");
    }
    assert_eq!(peer.heads(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_headers_reach_the_other_side_only_when_somebody_needs_them() {
    let site = Site::new().await;
    let peer = source().await;
    let extra = [
        ("transferheaderx-request-id", "kept"),
        ("transferheaderx-auth-token", "unwanted"),
        ("transferheadercookie", "unwanted"),
        ("transferheaderscitag", "66"),
        ("transferheaderhost", "victim"),
        ("transferheadercontent-length", "5"),
        ("transferheadertransfer-encoding", "chunked"),
        ("transferheaderrange", "bytes=0-1"),
        ("transferheaderif-match", "\"x\""),
        ("transferheaderexpect", "100-continue"),
        ("transferheaderconnection", "close"),
    ];
    succeeded(&pull(&site, "/g", &peer.url(), &extra).await);
    let head = peer.heads()[0].to_ascii_lowercase();
    assert!(
        head.contains("x-request-id: kept\r\n") && head.contains("scitag: 66\r\n"),
        "{head}"
    );
    for absent in [
        "victim",
        "unwanted",
        "content-length",
        "chunked",
        "range:",
        "if-match",
        "expect",
        "transferheader",
    ] {
        assert!(!head.contains(absent), "{absent}: {head}");
    }
    assert_eq!(site.get("/g").await.text(), "Wikipedia");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_meaning_here_is_ignored() {
    let site = Site::new().await;
    let peer = source().await;
    let extra = [
        ("secure-redirection", "1"),
        ("copy-flags", "NoHead"),
        ("x-no-delegate", "true"),
        ("accept", "text/perf-marker-stream"),
        ("scitag", "99999999999"),
        ("transfermetadata", "e30="),
        ("archivemetadata", "not base64 at all"),
        ("clientinfo", "job-id=1;file-id=2;retry=0"),
        ("depth", "infinity"),
        ("x-of-next-year", "1"),
    ];
    succeeded(&pull(&site, "/g", &peer.url(), &extra).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wanted_digest_is_computed_while_the_bytes_pass() {
    let site = Site::new().await;
    let peer = source().await;
    succeeded(
        &pull(
            &site,
            "/g",
            &peer.url(),
            &[("want-digest", "md5, unixcksum")],
        )
        .await,
    );
    let stored = site.storage.namespace();
    let entry = stored
        .lookup(&crate::site::path("/g"))
        .expect("readable")
        .expect("there");
    let sums = stored.checksums(entry.id).expect("readable");
    let names: Vec<&str> = sums.iter().map(|sum| sum.algorithm().name()).collect();
    assert!(
        names.contains(&"md5") && names.contains(&"adler32"),
        "{names:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expected_checksum_that_the_file_here_has_not_stops_a_push_before_it_begins() {
    let site = Site::new().await;
    site.put("/f", b"Wikipedia").await;
    let peer = destination().await;
    let push = async |digest: &str| {
        let extra = [("digest", digest)];
        finish(
            begin(request(
                &site,
                "/f",
                "destination",
                &peer.url(),
                "t",
                &extra,
            ))
            .await,
        )
        .await
    };
    let wrong = push("adler32=00000001").await;
    assert_eq!(wrong.status, 412, "{}", wrong.text());
    assert!(
        wrong.text().contains("adler32:11e60398"),
        "{}",
        wrong.text()
    );
    assert_eq!(peer.heads(), Vec::<String>::new());
    succeeded(&push("adler32=11e60398").await);
    // What is not known here is for the destination to judge.
    succeeded(&push("md5=AAAAAAAAAAAAAAAAAAAAAA==").await);
    let heads = peer.heads();
    let puts: Vec<&String> = heads
        .iter()
        .filter(|head| head.starts_with("PUT "))
        .collect();
    let head = puts[1].to_ascii_lowercase();
    assert!(
        head.contains("adler32=11e60398") && head.contains("md5=aaaaaaaaaaaaaaaaaaaaaa=="),
        "{head}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_uses_one_stream_and_says_so() {
    let site = Site::new().await;
    site.put("/f", b"Wikipedia").await;
    let peer = destination().await;
    let extra = [("x-number-of-streams", "8")];
    let response = finish(
        begin(request(
            &site,
            "/f",
            "destination",
            &peer.url(),
            "t",
            &extra,
        ))
        .await,
    )
    .await;
    let report = succeeded(&response).report.expect("a report");
    let streams = report.streams.expect("told");
    assert_eq!((streams.asked, streams.used), (Some(8), 1));
    assert!(
        response.text().contains("because=push"),
        "{}",
        response.text()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expectation_that_nobody_knows_is_refused() {
    let site = Site::new().await;
    let peer = source().await;
    let token = site.token("storage.modify:/");
    let ask = async |expectation: &str| {
        site.raw(&format!(
            "COPY /g HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Source: {}\r\nExpect: {expectation}\r\n\r\n",
            peer.url()
        ))
        .await
    };
    let answer = ask("201-created").await;
    assert!(answer.starts_with("HTTP/1.1 417"), "{answer}");
    // Without a body there is nothing to go on with.
    let answer = ask("100-continue").await;
    assert!(answer.contains("success: Created"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_checksum_fails_where_one_is_required_also_in_parts() {
    let site = Site::new().await;
    let peer = Peer::new(vec![send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")]).await;
    let extra = [
        ("requirechecksumverification", "TRUE"),
        ("x-number-of-streams", "3"),
    ];
    let text = failure(&pull(&site, "/g", &peer.url(), &extra).await);
    assert!(
        text.contains("'RequireChecksumVerification' demands one"),
        "{text}"
    );
    site.settles_with(0).await;
}
