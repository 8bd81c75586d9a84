//! What a push leaves at a destination that shows files while they come in: removed when it can only be ours.

use crate::copies::{begin, failure, finish, request, succeeded};
use crate::peer::{Peer, Step, send};
use crate::site::{DEADLINE, Site, content, eventually};
use std::sync::atomic::{AtomicUsize, Ordering};

const SIZE: usize = 8_000_000;
/// What the destination keeps of it.
const KEPT: usize = 1_000_000;
const ABSENT: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
const GONE: &str = "HTTP/1.1 204 No Content\r\n\r\n";

fn file(size: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n")
}

/// Answers the first HEAD with `before` and the later ones with `after`; takes the file as `put` says.
async fn destination(before: String, after: String, put: Vec<Step>) -> Peer {
    let looks = AtomicUsize::new(0);
    Peer::by_method(move |head| match head.split(' ').next() {
        Some("PUT") => put.clone(),
        Some("HEAD") if looks.fetch_add(1, Ordering::SeqCst) == 0 => vec![send(before.clone())],
        Some("HEAD") => vec![send(after.clone())],
        _ => vec![send(GONE)],
    })
    .await
}

/// The connection ends half-way.
fn breaks() -> Vec<Step> {
    vec![send("HTTP/1.1 100 Continue\r\n\r\n"), Step::Read(KEPT)]
}

fn methods(peer: &Peer) -> Vec<String> {
    let heads = peer.heads();
    let words = heads.iter().filter_map(|head| head.split(' ').next());
    words.map(str::to_owned).collect()
}

async fn site() -> Site {
    let site = Site::new().await;
    site.put("/f", &content(SIZE)).await;
    site
}

async fn failed_push(site: &Site, peer: &Peer) -> String {
    let asked = request(site, "/f", "destination", &peer.url(), "t", &[]);
    failure(&finish(begin(asked).await).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_part_is_removed_where_nothing_was_before() {
    let site = site().await;
    let peer = destination(ABSENT.to_owned(), file(KEPT), breaks()).await;
    let text = failed_push(&site, &peer).await;
    assert!(
        text.contains("; the partial file there was removed"),
        "{text}"
    );
    assert_eq!(methods(&peer), ["HEAD", "PUT", "HEAD", "DELETE"]);
    let heads = peer.heads();
    for head in heads {
        assert!(
            head.to_ascii_lowercase()
                .contains("authorization: bearer t"),
            "{head}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_somebody_elses_is_never_removed() {
    let site = site().await;
    let forbidden = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned();
    let refused = "HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n";
    let refuses_late = vec![
        send("HTTP/1.1 100 Continue\r\n\r\n"),
        Step::Read(SIZE),
        send(refused),
    ];
    let refuses_amid = vec![
        send("HTTP/1.1 100 Continue\r\n\r\n"),
        Step::Read(KEPT),
        send(refused),
    ];
    let absent = || ABSENT.to_owned();
    for (before, after, put) in [
        // It was there before.
        (file(3), file(KEPT), breaks()),
        // Nobody said that nothing was there.
        (forbidden.clone(), file(KEPT), breaks()),
        // It is larger than what was sent, or nobody tells.
        (absent(), file(100 * SIZE), breaks()),
        (absent(), forbidden.clone(), breaks()),
        // The destination refused the file, because somebody else was faster.
        (absent(), file(KEPT), vec![send(refused)]),
        (absent(), file(KEPT), refuses_late),
        (absent(), file(KEPT), refuses_amid),
    ] {
        let peer = destination(before, after, put).await;
        let text = failed_push(&site, &peer).await;
        let methods = methods(&peer);
        assert!(
            !methods.contains(&"DELETE".to_owned()),
            "{methods:?} {text}"
        );
        assert!(!text.contains("was removed"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_takes_the_first_part_with_it() {
    let site = site().await;
    let stands_still = [breaks(), vec![Step::Pause(DEADLINE)]].concat();
    let peer = destination(ABSENT.to_owned(), file(KEPT), stands_still).await;
    let asked = request(&site, "/f", "destination", &peer.url(), "t", &[]);
    let response = begin(asked).await;
    eventually("the upload has begun", || methods(&peer).len() == 2).await;
    drop(response);
    eventually("it is removed", || methods(&peer).len() == 4).await;
    assert_eq!(methods(&peer), ["HEAD", "PUT", "HEAD", "DELETE"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_arrives_leaves_its_file_there() {
    let site = site().await;
    let takes = vec![
        send("HTTP/1.1 100 Continue\r\n\r\n"),
        Step::Read(SIZE),
        send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"),
    ];
    let peer = destination(ABSENT.to_owned(), file(SIZE), takes).await;
    let asked = request(&site, "/f", "destination", &peer.url(), "t", &[]);
    succeeded(&finish(begin(asked).await).await);
    assert_eq!(methods(&peer), ["HEAD", "PUT", "HEAD"]);
}

/// A destination that takes the first part and then nothing more.
async fn standing_still(after: Vec<Step>) -> Peer {
    let looks = AtomicUsize::new(0);
    Peer::by_method(move |head| match head.split(' ').next() {
        Some("PUT") => [breaks(), vec![Step::Pause(4 * DEADLINE)]].concat(),
        Some("HEAD") if looks.fetch_add(1, Ordering::SeqCst) == 0 => vec![send(ABSENT)],
        Some("HEAD") => after.clone(),
        _ => vec![send(GONE)],
    })
    .await
}

async fn patient_site() -> Site {
    let site = Site::with(|config| {
        config.limits.stall_timeout = 4 * DEADLINE;
        config.limits.first_byte_timeout = 4 * DEADLINE;
    })
    .await;
    site.put("/f", &content(SIZE)).await;
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_is_banned_takes_the_first_part_with_them() {
    let site = patient_site().await;
    let peer = standing_still(vec![send(file(KEPT))]).await;
    let asked = request(&site, "/f", "destination", &peer.url(), "t", &[]);
    let _response = begin(asked).await;
    eventually("the upload has begun", || methods(&peer).len() == 2).await;
    site.reload(|config| {
        config.limits.stall_timeout = 4 * DEADLINE;
        config.access.banned = vec!["alice".to_owned()];
    });
    eventually("it is removed", || methods(&peer).len() == 4).await;
    assert_eq!(methods(&peer), ["HEAD", "PUT", "HEAD", "DELETE"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_that_stops_sees_a_removal_through() {
    let site = patient_site().await;
    let slow_look = vec![Step::Pause(DEADLINE / 4), send(file(KEPT))];
    let peer = standing_still(slow_look).await;
    let asked = request(&site, "/f", "destination", &peer.url(), "t", &[]);
    let _response = begin(asked).await;
    eventually("the upload has begun", || methods(&peer).len() == 2).await;
    site.close().await;
    assert_eq!(methods(&peer), ["HEAD", "PUT", "HEAD", "DELETE"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_what_was_sent_is_removed_also_when_nobody_waits_for_it() {
    let site = patient_site().await;
    let peer = Peer::by_method(|head| match head.split(' ').next() {
        Some("PUT") => vec![
            send("HTTP/1.1 100 Continue\r\n\r\n"),
            Step::Read(SIZE),
            send("HTTP/1.1 204 No Content\r\nDigest: adler32=00000001\r\n\r\n"),
        ],
        // It was there before and is replaced.
        Some("HEAD") => vec![send(file(KEPT))],
        _ if head.starts_with("DELETE /f ") => vec![
            Step::Pause(DEADLINE / 8),
            send("HTTP/1.1 307 Temporary Redirect\r\nLocation: /g\r\nContent-Length: 0\r\n\r\n"),
        ],
        _ => vec![send(GONE)],
    })
    .await;
    let asked = request(&site, "/f", "destination", &peer.url(), "t", &[]);
    let response = begin(asked).await;
    eventually("it is being removed", || methods(&peer).len() == 4).await;
    drop(response);
    eventually("it is removed", || methods(&peer).len() == 5).await;
    assert_eq!(methods(&peer), ["HEAD", "PUT", "HEAD", "DELETE", "DELETE"]);
}

/// As [`file`], and which version of it that is.
fn version(size: usize, tag: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nETag: {tag}\r\n\r\n")
}

/// The conditions of all removals that a destination was asked for.
fn conditions_of_removals(peer: &Peer) -> Vec<Option<String>> {
    let heads = peer.heads();
    let removals = heads.iter().filter(|head| head.starts_with("DELETE"));
    let condition = |head: &String| {
        let mut lines = head.lines().map(str::to_ascii_lowercase);
        lines.find_map(|line| Some(line.strip_prefix("if-match: ")?.to_owned()))
    };
    removals.map(condition).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_is_the_version_that_was_seen_and_no_later_one() {
    let site = site().await;
    // A first part, and a tag that does not tell versions apart.
    for (tag, expected) in [("\"v1\"", Some("\"v1\"")), ("W/\"v1\"", None)] {
        let peer = destination(ABSENT.to_owned(), version(KEPT, tag), breaks()).await;
        failed_push(&site, &peer).await;
        let expected = vec![expected.map(str::to_owned)];
        assert_eq!(conditions_of_removals(&peer), expected, "{tag}");
    }
    // What was told to have come is not what was sent.
    let differs = || {
        vec![
            send("HTTP/1.1 100 Continue\r\n\r\n"),
            Step::Read(SIZE),
            send("HTTP/1.1 204 No Content\r\nETag: \"v2\"\r\nDigest: adler32=00000001\r\n\r\n"),
        ]
    };
    for (there, expected) in [
        ("\"v2\"", vec![Some("\"v2\"".to_owned())]),
        // Somebody else has replaced it since.
        ("\"v3\"", vec![]),
    ] {
        let peer = destination(version(3, "\"v1\""), version(SIZE, there), differs()).await;
        let text = failed_push(&site, &peer).await;
        assert!(text.contains("checksum mismatch"), "{text}");
        assert_eq!(conditions_of_removals(&peer), expected, "{text}");
    }
}
