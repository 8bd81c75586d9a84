//! Users of the tape interface who ask for much, slowly or again and again: others are served all the same.

use crate::nearline::{EVICTS_ALL, with_tape};
use crate::site::{DEADLINE, Site};
use penstock_model::Bytes;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long those wait at most who have nothing to do with it.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
const SCOPES: &str = "storage.read:/ storage.modify:/ storage.stage:/";

impl Site {
    fn token_of(&self, user: &str) -> String {
        self.token_with(|claims| {
            claims.sub = user.to_owned();
            claims.scope = SCOPES.to_owned();
        })
    }

    /// What a user is answered, within the time that others may cost.
    async fn ask_as(&self, user: &str, method: &str, place: &str, body: &Value) -> (u16, Value) {
        let (token, target) = (self.token_of(user), format!("/.penstock/tape/v1/{place}"));
        let body = body.to_string();
        let answer = self.send_as(&token, method, &target, &[], body.as_bytes());
        let answer = timeout(ANSWER_WAIT, answer).await;
        let answer = answer.expect("others must not be waited for");
        let told = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        (answer.status, told)
    }
}

/// So many paths that there are not, each of so many bytes.
fn paths(count: usize, bytes: usize) -> Vec<String> {
    let path = |number: usize| format!("/{number:0width$}", width = 200);
    let longer = |path: String| {
        let more = "/b".repeat((bytes - path.len()) / 2);
        path + &more
    };
    (0..count).map(path).map(longer).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_of_one_user_hold_up_no_others() {
    let site = Site::with(|config| {
        with_tape(config, EVICTS_ALL);
        config.limits.stall_timeout = DEADLINE;
    })
    .await;
    let mut dripping = Vec::new();
    for _ in 0..12 {
        let mut stream = TcpStream::connect(site.address).await.expect("connected");
        let head = format!(
            "POST /.penstock/tape/v1/archiveinfo HTTP/1.1\r\nHost: se\r\nAuthorization: Bearer {}\r\n\
             Content-Length: 500000\r\n\r\n{{",
            site.token_of("mallory")
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        dripping.push(stream);
    }
    // All of them are being waited for.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let question = json!({"paths": paths(90, 3_000)});
    assert!(
        question.to_string().len() > 200_000,
        "it needs a turn itself"
    );
    let (status, told) = site.ask_as("alice", "POST", "archiveinfo", &question).await;
    assert_eq!(status, 200, "{told}");
    assert_eq!(told.as_array().map(Vec::len), Some(90));
    drop(dripping);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_looks_up_deep_paths_serves_others_meanwhile() {
    let site = Site::with(|config| {
        with_tape(config, EVICTS_ALL);
        let nearline = config.nearline.as_mut().expect("configured");
        nearline.stage_files_max = 3_000;
    })
    .await;
    let deep = "/a".repeat(250);
    site.put(&format!("{deep}/f"), b"x").await;
    let paths: Vec<String> = (0..800).map(|number| format!("{deep}/{number}")).collect();
    let question = json!({"paths": paths});
    let other = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let begun = std::time::Instant::now();
        assert_eq!(site.status("GET", &format!("{deep}/f")).await, 200);
        begun.elapsed()
    };
    let asked = async {
        let begun = std::time::Instant::now();
        let token = site.token_of("mallory");
        let body = question.to_string();
        let target = "/.penstock/tape/v1/archiveinfo";
        let answer = site
            .send_as(&token, "POST", target, &[], body.as_bytes())
            .await;
        assert_eq!(answer.status, 200);
        begun.elapsed()
    };
    let (asked, other) = tokio::join!(asked, other);
    assert!(
        other < asked / 2 + Duration::from_millis(500),
        "{other:?} of {asked:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn few_large_answers_to_one_user_are_in_memory_while_they_are_sent() {
    let site = Site::with(|config| {
        with_tape(config, EVICTS_ALL);
        let nearline = config.nearline.as_mut().expect("configured");
        nearline.stage_files_max = 2_000;
        config.limits.stall_timeout = DEADLINE;
    })
    .await;
    let files = paths(1_000, 3_500).into_iter();
    let files: Vec<Value> = files.map(|path| json!({"path": path})).collect();
    let (status, told) = site
        .ask_as("mallory", "POST", "stage", &json!({"files": files}))
        .await;
    assert_eq!(status, 201, "{told}");
    let place = format!("stage/{}", told["requestId"].as_str().expect("named"));
    let mut unread = Vec::new();
    for _ in 0..2 {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4_096).expect("set");
        let mut stream = socket.connect(site.address).await.expect("connected");
        let head = format!(
            "GET /.penstock/tape/v1/{place} HTTP/1.1\r\nHost: se\r\nAuthorization: Bearer {}\r\n\r\n",
            site.token_of("mallory")
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        // It has begun.
        stream.readable().await.expect("an answer");
        unread.push(stream);
    }
    let token = site.token_of("mallory");
    let target = format!("/.penstock/tape/v1/{place}");
    let third = site.send_as(&token, "GET", &target, &[], b"");
    assert!(
        timeout(Duration::from_secs(2), third).await.is_err(),
        "it has to wait"
    );
    let question = json!({"paths": paths(90, 3_000)});
    let (status, _) = site.ask_as("alice", "POST", "archiveinfo", &question).await;
    assert_eq!(status, 200, "others do not wait");
    drop(unread);
    let whole = timeout(ANSWER_WAIT, site.send_as(&token, "GET", &target, &[], b"")).await;
    let whole = whole.expect("there is a turn again");
    assert_eq!(whole.status, 200);
    assert!(whole.body.len() < 5_000_000, "each path is told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn pins_have_a_share_of_the_room_for_tape_and_leave_some_of_it_to_others() {
    let site = Site::with(|config| {
        with_tape(config, EVICTS_ALL);
        config.pools[0].capacity = Some(Bytes(100_000));
    })
    .await;
    site.put("/disk", &[7; 80_000]).await;
    let files: Vec<String> = (0..5).map(|number| format!("/tape/{number}")).collect();
    for file in &files {
        site.put(file, &[8; 3_000]).await;
        site.becomes(file, "TAPE").await;
    }
    let wanted: Vec<Value> = files.iter().map(|path| json!({"path": path})).collect();
    let (_, told) = site
        .ask_as("alice", "POST", "stage", &json!({"files": wanted}))
        .await;
    let place = format!("stage/{}", told["requestId"].as_str().expect("named"));
    let (_, told) = site.ask_as("alice", "GET", &place, &Value::Null).await;
    let files = told["files"].as_array().expect("a list");
    let refused = files.iter().filter(|file| file["code"] == "pins-exhausted");
    // A quarter of the room of 20,000 bytes that is not taken by what is on disk only.
    assert!(refused.count() >= 4, "{told}");
    site.put("/other", &[9; 10_000]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_names_in_many_spellings_is_one_file_and_is_let_go_at_once() {
    let site = Site::with(|config| with_tape(config, EVICTS_ALL)).await;
    site.put("/tape/a/b", b"content").await;
    site.becomes("/tape/a/b", "TAPE").await;
    let spelled = [
        "/tape/a/b",
        "//tape/a/b",
        "/tape/./a/b",
        "/./tape/a/b",
        "/tape/a/./b/",
    ];
    let files: Vec<Value> = spelled.iter().map(|path| json!({"path": path})).collect();
    let (status, told) = site
        .ask_as("alice", "POST", "stage", &json!({"files": files}))
        .await;
    assert_eq!(status, 201);
    let id = told["requestId"].as_str().expect("named").to_owned();
    let place = format!("stage/{id}");
    let until = std::time::Instant::now() + DEADLINE;
    loop {
        let (_, told) = site.ask_as("alice", "GET", &place, &Value::Null).await;
        assert_eq!(told["files"].as_array().map(Vec::len), Some(1), "{told}");
        if told["files"][0]["onDisk"] == true {
            break;
        }
        assert!(std::time::Instant::now() < until, "{told}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let release = json!({"paths": spelled});
    let (status, _) = site.ask_as("alice", "POST", "release/x", &release).await;
    assert_eq!(status, 200);
    site.becomes("/tape/a/b", "TAPE").await;
}
