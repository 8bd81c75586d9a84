//! Shares: what a link gives ends with it, also for requests that are being answered.

use crate::site::{Site, Trust, content, eventually};
use http::Method;
use penstock_protocol::http1::client::{ClientRequest, UploadStart};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// More than the sockets of both ends hold.
const BIG: usize = 48 << 20;
/// A request ends sooner than somebody would look at it who looks now and then.
const AT_ONCE: Duration = Duration::from_secs(4);

/// A share that was made.
pub struct Share {
    pub id: String,
    pub secret: String,
}

/// Shares a path with anybody.
pub async fn make_share(site: &Site, path: &str, access: &str) -> Share {
    let body = json!({"path": path, "access": access}).to_string();
    let asked = [("content-type", "application/json")];
    let made = site
        .send("POST", "/.penstock/shares", &asked, body.as_bytes())
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let told: Value = serde_json::from_slice(&made.body).expect("JSON");
    let text = |name: &str| told[name].as_str().expect("text").to_owned();
    Share {
        id: text("id"),
        secret: text("link").trim_start_matches("/s/").to_owned(),
    }
}

/// Ends no request because its client is slow.
async fn patient_site(trust: &Trust) -> Site {
    Site::with_tls_and(trust, |config| {
        config.limits.stall_timeout = Duration::from_secs(60);
    })
    .await
}

async fn revoke(site: &Site, share: &Share) {
    let path = format!("/.penstock/shares/{}", share.id);
    assert_eq!(site.status("DELETE", &path).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_ends_when_its_share_is_revoked() {
    let trust = Trust::new();
    let site = patient_site(&trust).await;
    site.put("/d/big", &content(BIG)).await;
    let share = make_share(&site, "/d", "read").await;
    let other = make_share(&site, "/d", "read").await;
    let mut downloads = Vec::new();
    for target in [
        format!("/s/{}/big", share.secret),
        format!("/d/big?authz={}", share.secret),
        format!("/s/{}/big", other.secret),
    ] {
        let request = ClientRequest::new(Method::GET, site.url(&target));
        let mut download = site.client.send(request).await.expect("an answer");
        assert_eq!(download.status, 200);
        download.read(&mut [0; 1000]).await.expect("it begins");
        downloads.push(download);
    }
    revoke(&site, &share).await;
    let started = Instant::now();
    eventually("those of the share end", || {
        site.storage.snapshot().movers_total == 1
    })
    .await;
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
    let mut whole = Vec::new();
    for mut download in downloads {
        whole.push(download.read_all(1 << 30).await.is_ok());
    }
    assert_eq!(whole, [false, false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_is_given_up_when_its_share_is_revoked() {
    let trust = Trust::new();
    let site = patient_site(&trust).await;
    site.put("/box/old", b"old").await;
    let share = make_share(&site, "/box", "upload").await;
    let target = site.url(&format!("/s/{}/late", share.secret));
    let request = ClientRequest::new(Method::PUT, target);
    let begun = site.client.start_upload(request, Some(30), false).await;
    let UploadStart::Ready(mut upload) = begun.expect("begins") else {
        panic!("answered before it was sent");
    };
    upload.write_all(&[1; 10]).await.expect("sent");
    eventually("it is being written", || {
        site.storage.snapshot().movers_total == 1
    })
    .await;
    revoke(&site, &share).await;
    let started = Instant::now();
    site.settles_with(1).await;
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
    // The rest comes too late.
    let sent = upload.write_all(&[1; 20]).await;
    assert!(sent.is_err() || upload.finish().await.is_err());
    assert_eq!(site.status("HEAD", "/box/late").await, 404);
}
