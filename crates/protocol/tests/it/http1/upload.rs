//! Uploads: asked for first, sent piece by piece, refused in the middle.

use super::client::{client, scripted};
use super::service::{PATIENCE, limits, read_until, start};
use super::tls::get;
use http::{Method, StatusCode};
use penstock_protocol::http1::client::{ClientError, ClientRequest, Upload, UploadStart};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

fn put(url: &str) -> ClientRequest {
    ClientRequest::new(Method::PUT, url.parse().expect("a URL"))
}

async fn begin(url: &str, length: Option<u64>, expect_continue: bool) -> Upload {
    match client()
        .start_upload(put(url), length, expect_continue)
        .await
        .expect("started")
    {
        UploadStart::Ready(upload) => upload,
        UploadStart::Answered(answer) => panic!("answered early with {}", answer.status),
    }
}

#[tokio::test]
async fn pieces_arrive_in_order_with_and_without_a_length() {
    let url = format!("http://{}/f", start(limits()).await);
    for length in [Some(11), None] {
        for expect_continue in [false, true] {
            let mut upload = begin(&url, length, expect_continue).await;
            for piece in ["hello", "", " ", "world"] {
                upload.write_all(piece.as_bytes()).await.expect("sent");
            }
            let mut response = upload.finish().await.expect("response");
            let body = response.read_all(100).await.expect("body");
            assert_eq!(String::from_utf8_lossy(&body), "PUT /f [hello world]");
        }
    }
}

#[tokio::test]
async fn a_server_that_refuses_or_redirects_gets_no_body() {
    let url = format!("http://{}/refuse", start(limits()).await);
    let start = client()
        .start_upload(put(&url), Some(5), true)
        .await
        .expect("an answer");
    let UploadStart::Answered(mut answer) = start else {
        panic!("not asked")
    };
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(answer.read_all(10).await.expect("body"), b"no");
}

#[tokio::test]
async fn an_upload_follows_redirects_before_its_first_byte() {
    let target = start(limits()).await;
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{target}/g\r\nContent-Length: 0\r\n\r\n"
    );
    let (url, mut questions) = scripted(vec![answer.leak()]).await;
    let UploadStart::Ready(mut upload) = client()
        .start_upload_following(put(&url), Some(3))
        .await
        .expect("started")
    else {
        panic!("answered")
    };
    upload.write_all(b"abc").await.expect("sent");
    let mut response = upload.finish().await.expect("response");
    assert_eq!(response.read_all(100).await.expect("body"), b"PUT /g [abc]");
    assert!(
        questions
            .recv()
            .await
            .expect("asked")
            .contains("Expect: 100-continue\r\n")
    );
}

#[tokio::test]
async fn a_server_that_does_not_know_expect_gets_the_body_after_a_moment() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let url = format!("http://{}/f", listener.local_addr().expect("address"));
    let server = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.expect("accept");
        read_until(&mut tcp, "\r\n\r\nabc").await;
        tcp.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
            .await
            .expect("write");
    });
    let mut upload = begin(&url, Some(3), true).await;
    upload.write_all(b"abc").await.expect("sent");
    assert_eq!(
        upload.finish().await.expect("response").status,
        StatusCode::CREATED
    );
    server.await.expect("served");
}

#[tokio::test]
async fn a_refusal_in_the_middle_of_a_body_is_told_with_its_words() {
    let answer = "HTTP/1.1 507 Insufficient Storage\r\nRetry-After: 7\r\nContent-Length: 14\r\n\r\npool is full\r\n";
    let (url, _questions) = scripted(vec![answer]).await;
    let mut upload = begin(&url, Some(1 << 40), false).await;
    let piece = vec![7; 1 << 20];
    let sending = async {
        loop {
            if let Err(why) = upload.write_all(&piece).await {
                return why;
            }
        }
    };
    let error = tokio::time::timeout(PATIENCE, sending)
        .await
        .expect("noticed");
    let expected = format!(
        "{url}: the server answered 507 Insufficient Storage before the whole body was sent: pool is full"
    );
    assert_eq!(error.to_string(), expected);
    assert!(
        matches!(
            error,
            ClientError::EarlyAnswer {
                retry_after_seconds: Some(7),
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_upload_keeps_to_the_length_it_announced() {
    let url = format!("http://{}/f", start(limits()).await);
    let mut upload = begin(&url, Some(3), false).await;
    let error = upload.write_all(b"abcd").await.expect_err("too long");
    assert!(
        matches!(error, ClientError::TooLong { limit: 3, .. }),
        "{error}"
    );
    upload.write_all(b"ab").await.expect("sent");
    let error = upload.finish().await.err().expect("too short");
    assert!(
        matches!(
            error,
            ClientError::TooShort {
                expected: 3,
                got: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test]
async fn a_connection_whose_server_still_waits_for_a_body_is_not_used_again() {
    let redirect = "HTTP/1.1 307 Temporary Redirect\r\nLocation: /g\r\nContent-Length: 0\r\n\r\n";
    let fine = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    // Each answer is for a connection of its own.
    let (url, mut questions) = scripted(vec![redirect, fine]).await;
    let client = client();
    let start = client
        .start_upload(put(&url), Some(5), true)
        .await
        .expect("an answer");
    assert!(matches!(start, UploadStart::Answered(answer) if answer.status == 307));
    assert_eq!(
        client.send(get(&url)).await.expect("response").status,
        StatusCode::OK
    );
    assert!(questions.recv().await.expect("asked").starts_with("PUT "));
    assert!(questions.recv().await.expect("asked").starts_with("GET "));
}
