//! COPY: pull and push between two storage elements, and with servers that do not keep their word.

use crate::peer::{Peer, Step, send};
use crate::site::{DEADLINE, Response, Site, client, content, eventually, headers};
use http::Method;
use penstock_protocol::http1::client::{ClientRequest, ClientResponse};
use penstock_protocol::tpc::{Item, Marker, Outcome, StreamParser};
use std::time::Duration;
use url::Url;

/// A COPY request to `site`, `side` being `source` or `destination`.
pub fn request(
    site: &Site,
    path: &str,
    side: &str,
    remote: &Url,
    bearer: &str,
    extra: &[(&str, &str)],
) -> ClientRequest {
    let ours = format!("Bearer {}", site.token("storage.read:/ storage.modify:/"));
    let theirs = format!("Bearer {bearer}");
    let mut all = vec![
        ("authorization", ours.as_str()),
        (side, remote.as_str()),
        ("credential", "none"),
        ("transferheaderauthorization", theirs.as_str()),
    ];
    all.extend(extra);
    let mut request =
        ClientRequest::new(Method::from_bytes(b"COPY").expect("method"), site.url(path));
    request.headers = headers(&all);
    request
}

pub async fn begin(request: ClientRequest) -> ClientResponse {
    client().send(request).await.expect("an answer")
}

pub async fn finish(mut response: ClientResponse) -> Response {
    Response {
        status: response.status.as_u16(),
        headers: response.headers.clone(),
        body: response.read_all(1 << 20).await.expect("a whole answer"),
    }
}

pub async fn pull(site: &Site, path: &str, source: &Url, extra: &[(&str, &str)]) -> Response {
    finish(begin(request(site, path, "source", source, "secret", extra)).await).await
}

pub fn items(response: &Response) -> (Vec<Marker>, Option<Outcome>) {
    let mut parser = StreamParser::new();
    let mut parsed = parser.push(&response.body);
    parsed.extend(parser.finish());
    let mut markers = Vec::new();
    let mut outcome = None;
    for item in parsed {
        match item {
            Item::Marker(marker) => markers.push(*marker),
            Item::Outcome(last) => outcome = Some(last),
        }
    }
    (markers, outcome)
}

pub fn failure(response: &Response) -> String {
    assert_eq!(response.status, 202, "{}", response.text());
    assert!(response.text().ends_with('\n'));
    match items(response).1 {
        Some(Outcome::Failure(text)) => text,
        other => panic!("{other:?}: {}", response.text()),
    }
}

pub fn succeeded(response: &Response) -> Marker {
    let (markers, outcome) = items(response);
    assert!(
        matches!(outcome, Some(Outcome::Success(_))),
        "{} {}",
        response.status,
        response.text()
    );
    markers.into_iter().next_back().expect("a last marker")
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_all_sizes_are_pulled_and_pushed() {
    let (here, there) = (Site::new().await, Site::new().await);
    for length in [0, 1, 70_000, 1 << 20, 5_000_001] {
        let data = content(length);
        there.put("/out/f", &data).await;
        let bearer = there.token("storage.read:/ storage.modify:/");
        let pulled = request(&here, "/in/f", "source", &there.url("/out/f"), &bearer, &[]);
        let marker = succeeded(&finish(begin(pulled).await).await);
        let report = marker.report.expect("a report");
        assert_eq!(
            (report.moved.0, report.pool.is_some()),
            (length as u64, true)
        );
        assert!(
            report.checksum.is_some() && report.stages.commit_us > 0,
            "{report:?}"
        );
        assert!(here.get("/in/f").await.body == data, "pull of {length}");
        let pushed = request(
            &here,
            "/in/f",
            "destination",
            &there.url("/back/f"),
            &bearer,
            &[],
        );
        let marker = succeeded(&finish(begin(pushed).await).await);
        assert_eq!(marker.report.expect("a report").moved.0, length as u64);
        assert!(there.get("/back/f").await.body == data, "push of {length}");
    }
    here.settles_with(1).await;
    there.settles_with(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_beforehand_is_a_plain_status() {
    let site = Site::new().await;
    site.put("/f", b"x").await;
    let peer = Peer::new(vec![]).await;
    let elsewhere = Url::parse("https://other.example.org/f").expect("valid");
    let status = async |path: &str, side: &str, remote: &Url, extra: &[(&str, &str)]| {
        finish(begin(request(&site, path, side, remote, "t", extra)).await)
            .await
            .status
    };
    assert_eq!(status("/g", "source", &elsewhere, &[]).await, 403);
    assert_eq!(
        status("/missing", "destination", &peer.url(), &[]).await,
        404
    );
    assert_eq!(
        status("/f", "source", &peer.url(), &[("overwrite", "F")]).await,
        412
    );
    assert_eq!(status("/f/g", "destination", &peer.url(), &[]).await, 404);
    assert_eq!(site.status("MKCOL", "/d").await, 201);
    assert_eq!(status("/d", "source", &peer.url(), &[]).await, 409);
    assert_eq!(status("/f/g", "source", &peer.url(), &[]).await, 409);
    assert_eq!(
        status(
            "/g",
            "source",
            &peer.url(),
            &[("destination", "http://127.0.0.1/x")]
        )
        .await,
        400
    );
    assert_eq!(
        status("/g", "source", &peer.url(), &[("credential", "gridsite")]).await,
        400
    );
    let nobody = site
        .send_bare("COPY", "/g", &[("source", peer.url().as_str())], b"")
        .await;
    assert_eq!(nobody.status, 401);
    let reader = site.token("storage.read:/");
    let reading = site
        .send_as(
            &reader,
            "COPY",
            "/g",
            &[("source", peer.url().as_str())],
            b"",
        )
        .await;
    assert_eq!(reading.status, 403);
    assert_eq!(peer.heads(), Vec::<String>::new());
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_refuses_is_quoted() {
    let site = Site::new().await;
    let answer = "HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\n\r\nno such file\n";
    let peer = Peer::new(vec![send(answer)]).await;
    let text = failure(&pull(&site, "/g", &peer.url(), &[]).await);
    assert!(
        text.contains("answered 404 Not Found: no such file"),
        "{text}"
    );
    assert!(
        text.contains(&format!("remote={}", peer.url())) && text.contains("local=/g in pool p1"),
        "{text}"
    );
    assert!(
        peer.heads()[0].contains("authorization: Bearer secret")
            || peer.heads()[0].contains("Authorization: Bearer secret")
    );
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_sends_too_little_leaves_nothing() {
    let site = Site::new().await;
    let peer = Peer::new(vec![
        send("HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"),
        Step::Send(content(2_000_000)),
    ])
    .await;
    let text = failure(&pull(&site, "/g", &peer.url(), &[]).await);
    assert!(
        text.contains("only 2000000 of 3000000 bytes came"),
        "{text}"
    );
    assert_eq!(site.status("GET", "/g").await, 404);
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_only_the_connection_ends_is_believed_with_a_checksum_only() {
    let site = Site::new().await;
    let answer = |digest: &str| {
        vec![send(format!(
            "HTTP/1.1 200 OK\r\n{digest}Connection: close\r\n\r\nabc"
        ))]
    };
    let source = Peer::new(answer("")).await;
    let why = failure(&pull(&site, "/f", &source.url(), &[]).await);
    assert!(why.contains("neither the size nor a checksum"), "{why}");
    let source = Peer::new(answer("Digest: adler32=024d0127\r\n")).await;
    succeeded(&pull(&site, "/f", &source.url(), &[]).await);
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_sends_another_content_than_it_told_leaves_nothing() {
    let site = Site::new().await;
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nDigest: adler32=11e60398\r\n\r\n";
    let right = Peer::new(vec![send(format!(
        "{head}Wikipedia and more than was announced"
    ))])
    .await;
    succeeded(&pull(&site, "/right", &right.url(), &[]).await);
    assert_eq!(site.get("/right").await.text(), "Wikipedia");
    let wrong = Peer::new(vec![send(format!("{head}Wikipedib"))]).await;
    let text = failure(&pull(&site, "/wrong", &wrong.url(), &[]).await);
    assert!(
        text.contains("checksum mismatch: expected adler32:11e60398"),
        "{text}"
    );
    let text = failure(
        &pull(
            &site,
            "/wrong",
            &right.url(),
            &[("digest", "adler32=00000001")],
        )
        .await,
    );
    assert!(
        text.contains("expected adler32:00000001, the source has adler32:11e60398"),
        "{text}"
    );
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_a_checksum_fails_only_when_one_is_required() {
    let site = Site::new().await;
    let peer = Peer::new(vec![send("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")]).await;
    succeeded(
        &pull(
            &site,
            "/f",
            &peer.url(),
            &[("requirechecksumverification", "false")],
        )
        .await,
    );
    let required = [("requirechecksumverification", "true")];
    let text = failure(&pull(&site, "/g", &peer.url(), &required).await);
    assert!(text.contains("the source reports no checksum"), "{text}");
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_stands_still_is_given_up() {
    let site = Site::new().await;
    let silent = Peer::new(vec![Step::Pause(DEADLINE)]).await;
    let stalls = Peer::new(vec![
        send("HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"),
        Step::Send(content(1_500_000)),
        Step::Pause(DEADLINE),
    ])
    .await;
    for peer in [&silent, &stalls] {
        let response = pull(&site, "/g", &peer.url(), &[]).await;
        assert!(
            failure(&response).contains("timeout after"),
            "{}",
            response.text()
        );
        assert!(
            items(&response).0.len() >= 3,
            "markers while it waits: {}",
            response.text()
        );
        site.settles_with(0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_dies_halfway_fails_the_push() {
    let site = Site::new().await;
    site.put("/f", &content(8_000_000)).await;
    let peer = Peer::by_method(|head| match head.starts_with("PUT ") {
        true => vec![send("HTTP/1.1 100 Continue\r\n\r\n"), Step::Read(1_000_000)],
        false => vec![send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")],
    })
    .await;
    let response =
        finish(begin(request(&site, "/f", "destination", &peer.url(), "t", &[])).await).await;
    let text = failure(&response);
    assert!(text.contains("local=/f in pool p1"), "{text}");
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_pool_cannot_read_amid_a_push_is_its_failure() {
    let site = Site::new().await;
    site.put("/f", &content(8_000_000)).await;
    let data = site.data_in("p1", "/f");
    let peer = Peer::by_method(move |head| match head.starts_with("PUT ") {
        true => {
            let file = std::fs::File::options().write(true).open(&data);
            file.and_then(|file| file.set_len(1_000_000)).expect("cut");
            vec![send("HTTP/1.1 100 Continue\r\n\r\n"), Step::Read(8_000_000)]
        }
        false => vec![send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")],
    })
    .await;
    let asked = request(&site, "/f", "destination", &peer.url(), "t", &[]);
    failure(&finish(begin(asked).await).await);
    assert!(site.metric(r#"penstock_pool_failures_total{pool="p1",kind="read"} 1"#));
    assert!(
        site.alarms().contains("pool p1 could not read a file"),
        "{}",
        site.alarms()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_stored_other_bytes_is_found_out_and_removed() {
    let site = Site::new().await;
    site.put("/f", b"Wikipedia").await;
    let peer = Peer::by_method(|head| {
        let answer = match head.split(' ').next() {
            Some("PUT") => "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
            Some("HEAD") => {
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nDigest: adler32=00000001\r\n\r\n"
            }
            _ => "HTTP/1.1 204 No Content\r\n\r\n",
        };
        let body = if head.starts_with("PUT") { 9 } else { 0 };
        vec![Step::Read(body), send(answer)]
    })
    .await;
    let response =
        finish(begin(request(&site, "/f", "destination", &peer.url(), "t", &[])).await).await;
    let text = failure(&response);
    assert!(
        text.contains(
            "adler32:11e60398 was sent, the destination has adler32:00000001; it was removed"
        ),
        "{text}"
    );
    let methods: Vec<String> = peer
        .heads()
        .iter()
        .filter_map(|head| head.split(' ').next().map(str::to_owned))
        .collect();
    // The third look is for the version that is removed.
    assert_eq!(methods, ["HEAD", "PUT", "HEAD", "HEAD", "DELETE"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_destination_is_replaced_only_when_allowed() {
    let (here, there) = (Site::new().await, Site::new().await);
    there.put("/f", b"theirs").await;
    here.put("/f", b"ours").await;
    let bearer = there.token("storage.read:/ storage.modify:/");
    let url = there.url("/f");
    let forbidden = request(
        &here,
        "/f",
        "destination",
        &url,
        &bearer,
        &[("overwrite", "F")],
    );
    assert_eq!(finish(begin(forbidden).await).await.status, 412);
    assert_eq!(there.get("/f").await.text(), "theirs");
    succeeded(
        &finish(
            begin(request(
                &here,
                "/f",
                "source",
                &url,
                &bearer,
                &[("overwrite", "T")],
            ))
            .await,
        )
        .await,
    );
    assert_eq!(here.get("/f").await.text(), "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_followed_without_credentials_and_only_to_allowed_hosts() {
    let site = Site::new().await;
    let end = Peer::new(vec![send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")]).await;
    let redirect = |to: String| {
        vec![send(format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"
        ))]
    };
    let begin = Peer::new(redirect(end.url().to_string())).await;
    succeeded(
        &pull(
            &site,
            "/f",
            &begin.url(),
            &[("transferheaderx-request-id", "kept")],
        )
        .await,
    );
    let seen = end.heads()[0].to_ascii_lowercase();
    assert!(
        !seen.contains("secret") && !seen.contains("kept") && seen.contains("want-digest: "),
        "what a client chose for the source may be a secret, whatever its name: {seen}"
    );
    let first = begin.heads()[0].to_ascii_lowercase();
    assert!(first.contains("x-request-id: kept"), "{first}");
    let evil = Peer::new(redirect(format!(
        "http://localhost:{}/f",
        end.address.port()
    )))
    .await;
    let text = failure(&pull(&site, "/g", &evil.url(), &[]).await);
    assert!(
        text.contains("does not copy to or from http://localhost:"),
        "{text}"
    );
    assert_eq!(end.heads().len(), 1);
    site.settles_with(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_cancels_and_nothing_stays() {
    let site = Site::new().await;
    let peer = Peer::new(vec![
        send("HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n"),
        Step::Send(content(2_500_000)),
        Step::Pause(Duration::from_millis(400)),
        Step::Send(content(2_500_000)),
        Step::Pause(DEADLINE),
    ])
    .await;
    let mut response = begin(request(&site, "/g", "source", &peer.url(), "t", &[])).await;
    let mut buffer = [0; 4096];
    response.read(&mut buffer).await.expect("a marker");
    eventually("bytes are on the disk", || site.files_on_disk().0 == 1).await;
    drop(response);
    site.settles_with(0).await;
    let records = || {
        site.storage
            .namespace()
            .mover_records(0, 10)
            .expect("readable")
    };
    eventually("the cancelled mover is recorded", || records().len() == 1).await;
    assert!(matches!(
        records()[0].1.outcome,
        penstock_persistence::namespace::MoverOutcome::Aborted(_)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_writes_the_last_line() {
    let site = Site::new().await;
    let peer = Peer::new(vec![
        send("HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"),
        Step::Send(content(100_000)),
        Step::Pause(Duration::from_millis(500)),
        Step::Send(content(100_000)),
        Step::Pause(DEADLINE),
    ])
    .await;
    let response = begin(request(&site, "/g", "source", &peer.url(), "t", &[])).await;
    site.stop();
    let response = finish(response).await;
    assert!(
        matches!(items(&response).1, Some(Outcome::Aborted(_))),
        "{}",
        response.text()
    );
    site.settles_with(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_too_large_for_one_pool_goes_to_another() {
    use penstock_model::{Bytes, PoolName};
    let site = Site::with(|config| {
        let mut small = config.pools[0].clone();
        small.name = PoolName::new("small");
        small.directory = small.directory.with_file_name("small");
        small.capacity = Some(Bytes(1_000_000));
        config.pools.push(small);
        config.pools[0].capacity = Some(Bytes(100_000_000));
    })
    .await;
    let there = Site::new().await;
    there.put("/f", &content(3_000_000)).await;
    let bearer = there.token("storage.read:/");
    for index in 0..20 {
        let pulled = request(
            &site,
            &format!("/f{index}"),
            "source",
            &there.url("/f"),
            &bearer,
            &[],
        );
        let marker = succeeded(&finish(begin(pulled).await).await);
        assert_eq!(
            marker.report.and_then(|report| report.pool),
            Some(PoolName::new("p1"))
        );
    }
    site.settles_with(20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_pulled_and_pushed_over_tls_between_sites_of_one_trust() {
    let trust = crate::site::Trust::new();
    let (here, there) = (Site::with_tls(&trust).await, Site::with_tls(&trust).await);
    for length in [0, 5_000_001] {
        let data = content(length);
        there.put("/out/f", &data).await;
        let bearer = there.token("storage.read:/ storage.modify:/");
        for (path, side, remote) in [
            ("/in/f", "source", there.url("/out/f")),
            ("/in/f", "destination", there.url("/back/f")),
        ] {
            let copy = request(&here, path, side, &remote, &bearer, &[]);
            succeeded(&finish(here.client.send(copy).await.expect("an answer")).await);
        }
        assert!(there.get("/back/f").await.body == data, "{length}");
    }
}
