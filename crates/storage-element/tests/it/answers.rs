//! One cause, one answer: who may not write a file is told so in the same words, whichever way they came. Where a
//! specification demands another answer it is named.

use crate::copies::{begin, finish, items, request};
use crate::peer::{Peer, send};
use crate::site::{Response, Site, content, eventually};
use penstock_decide::admission::QueueLimits;
use penstock_decide::pool_selection::PoolMode;
use penstock_model::Bytes;
use penstock_protocol::http1::client::Upload;
use penstock_protocol::tpc::Outcome;
use penstock_storage_element::StorageConfig;

const LOCK: &str = "<d:lockinfo xmlns:d='DAV:'><d:lockscope><d:exclusive/></d:lockscope>\
    <d:locktype><d:write/></d:locktype></d:lockinfo>";
const WRITER: &str = "storage.read:/ storage.modify:/";
/// The size of every file that comes by a way that tells it beforehand.
const SIZE: usize = 600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Put,
    Pull,
    /// COPY within the site.
    Duplicate,
    Lock,
    /// The first request of an upload in several.
    Begin,
    /// The last one.
    Finish,
}

use Way::{Begin, Duplicate, Finish, Lock, Pull, Put};

const ALL: [Way; 6] = [Put, Pull, Duplicate, Lock, Begin, Finish];

/// What stands in the way at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    Nothing,
    File,
    Directory,
    /// The directory that should hold it is a file.
    ParentFile,
    /// Somebody writes it.
    Writer,
    /// Somebody else has locked it.
    LockOfAnother,
}

/// One cause, and what it is answered with.
struct Cause {
    name: &'static str,
    scope: &'static str,
    obstacle: Obstacle,
    headers: &'static [(&'static str, &'static str)],
    status: u16,
    /// With `PATH` for the path.
    text: &'static str,
}

const PLAIN: Cause = Cause {
    name: "",
    scope: WRITER,
    obstacle: Obstacle::Nothing,
    headers: &[],
    status: 0,
    text: "",
};

impl Cause {
    /// Conditions on the file; an upload has them from its first request.
    fn conditions(&self) -> Vec<(&'static str, &'static str)> {
        let headers = self.headers.iter().copied();
        headers
            .filter(|(name, _)| *name == "if-none-match")
            .collect()
    }

    async fn put_in_the_way(&self, site: &Site, path: &str) -> Option<Upload> {
        match self.obstacle {
            Obstacle::Nothing => None,
            Obstacle::File => {
                site.put(path, b"old").await;
                None
            }
            Obstacle::Directory => {
                assert_eq!(site.status("MKCOL", path).await, 201);
                None
            }
            Obstacle::ParentFile => {
                let parent = path.rsplit_once('/').expect("a path").0;
                site.put(parent, b"a file").await;
                None
            }
            Obstacle::Writer => {
                let writer = site.begin_writing(path, Some(10)).await;
                eventually("it is written", || {
                    site.storage.snapshot().movers_total == 1
                })
                .await;
                Some(writer)
            }
            Obstacle::LockOfAnother => {
                let bob = site.token_with(|claims| claims.sub = "bob".to_owned());
                let locked = site.send_as(&bob, "LOCK", path, &[], LOCK.as_bytes()).await;
                assert_eq!(locked.status, 201, "{}", locked.text());
                None
            }
        }
    }

    /// The answer through one way, at a path of its own.
    async fn answer(&self, site: &Site, way: Way) -> PlainAnswer {
        let path = format!("/{}-{way:?}/f", self.name.replace(' ', "-"));
        if self.obstacle != Obstacle::ParentFile {
            let parent = path.rsplit_once('/').expect("a path").0;
            assert_eq!(site.status("MKCOL", parent).await, 201);
        }
        let upload = match way {
            Finish => Some(begin_upload(site, &path, &self.conditions()).await),
            Put | Pull | Duplicate | Lock | Begin => None,
        };
        let writer = self.put_in_the_way(site, &path).await;
        let token = site.token(self.scope);
        let response = ask(site, way, &token, &path, upload.as_deref(), self.headers).await;
        if let Some(writer) = writer {
            drop(writer);
            eventually("the writer is gone", || {
                site.storage.snapshot().movers_total == 0
            })
            .await;
        }
        PlainAnswer::of(&response, &path)
    }

    async fn check(&self, site: &Site, ways: &[Way]) {
        for way in ways {
            let answer = self.answer(site, *way).await;
            let PlainAnswer { status, text, .. } = &answer;
            let name = self.name;
            assert_eq!(
                status.unwrap_or(self.status),
                self.status,
                "{name}, {way:?}: {text}"
            );
            assert_eq!(text, self.text, "{name}, {way:?}");
        }
    }
}

/// An answer without what is different by the path.
#[derive(Debug, PartialEq, Eq)]
struct PlainAnswer {
    /// `None`: it was told in a stream, which took so long to begin.
    status: Option<u16>,
    text: String,
}

impl PlainAnswer {
    fn of(response: &Response, path: &str) -> PlainAnswer {
        let (status, text) = match items(response).1 {
            Some(Outcome::Failure(text)) if response.status == 202 => (None, text),
            _ => (Some(response.status), response.text()),
        };
        let parent = path.rsplit_once('/').expect("a path").0;
        let text = text.replace(path, "PATH").replace(parent, "PARENT");
        let text = text.trim_end().to_owned();
        PlainAnswer { status, text }
    }
}

async fn begin_upload(site: &Site, path: &str, conditions: &[(&str, &str)]) -> String {
    let mut headers = vec![("upload-complete", "?0")];
    headers.extend(conditions);
    let answer = site.send("PUT", path, &headers, b"").await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.header("location").to_owned()
}

async fn ask(
    site: &Site,
    way: Way,
    token: &str,
    path: &str,
    upload: Option<&str>,
    headers: &[(&str, &str)],
) -> Response {
    let with = |own: &[(&'static str, &'static str)]| {
        let mut all = headers.to_vec();
        all.extend(own);
        all
    };
    match way {
        Put => {
            site.send_as(token, "PUT", path, headers, &content(SIZE))
                .await
        }
        Pull => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
            let peer = Peer::new(vec![send(head), send("x".repeat(SIZE))]).await;
            let mut pull = request(site, path, "source", &peer.url(), "secret", headers);
            let bearer = format!("Bearer {token}").parse().expect("visible");
            pull.headers.insert("authorization", bearer);
            finish(begin(pull).await).await
        }
        Duplicate => {
            let mut all = headers.to_vec();
            all.push(("destination", path));
            site.send_as(token, "COPY", "/src", &all, b"").await
        }
        Lock => {
            site.send_as(token, "LOCK", path, headers, LOCK.as_bytes())
                .await
        }
        Begin => {
            let own = [("upload-complete", "?0"), ("upload-length", "600")];
            site.send_as(token, "PUT", path, &with(&own), b"").await
        }
        Finish => {
            let own = [
                ("content-type", "application/partial-upload"),
                ("upload-offset", "0"),
                ("upload-complete", "?1"),
            ];
            let upload = upload.expect("begun before");
            site.send_as(token, "PATCH", upload, &with(&own), &content(SIZE))
                .await
        }
    }
}

async fn site_with_source(change: impl FnOnce(&mut StorageConfig)) -> Site {
    let site = Site::with(change).await;
    site.put("/src", &content(SIZE)).await;
    site
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_write_is_told_the_same_by_each_way_and_nothing_of_what_is_there() {
    let site = site_with_source(|_| {}).await;
    for obstacle in [
        Obstacle::Nothing,
        Obstacle::File,
        Obstacle::Directory,
        Obstacle::ParentFile,
    ] {
        let name = match obstacle {
            Obstacle::Nothing => "reader free",
            Obstacle::File => "reader file",
            Obstacle::Directory => "reader directory",
            _ => "reader below",
        };
        let reader = Cause {
            name,
            scope: "storage.read:/",
            obstacle,
            status: 403,
            text: "not allowed on PATH: 'storage.read:/' covers the path but not the operation",
            ..PLAIN
        };
        reader.check(&site, &ALL).await;
    }
    let adder = Cause {
        name: "adder",
        scope: "storage.read:/ storage.create:/",
        obstacle: Obstacle::File,
        status: 403,
        text: "not allowed on PATH: 'storage.read:/' covers the path but not the operation",
        ..PLAIN
    };
    adder.check(&site, &ALL).await;
    assert_eq!(site.status("MKCOL", "/tree").await, 201);
    site.put("/there", b"x").await;
    let token = site.token("storage.read:/");
    for path in ["/there", "/not-there"] {
        let to = [("destination", path)];
        let answer = site.send_as(&token, "COPY", "/tree", &to, b"").await;
        assert_eq!(answer.status, 403, "{path}");
        assert_eq!(
            answer.text().replace(path, "PATH").trim_end(),
            adder.text,
            "a directory to {path}"
        );
    }
    // An upload's own address names no path, so an anonymous caller is told of none by its last request.
    for way in [Put, Pull, Duplicate, Lock, Begin] {
        let path = format!("/d/anonymous-{way:?}");
        let mut all = vec![];
        let (method, at) = match way {
            Put | Begin => ("PUT", path.as_str()),
            Pull => ("COPY", path.as_str()),
            Duplicate => ("COPY", "/public/src"),
            Lock | Finish => ("LOCK", path.as_str()),
        };
        match way {
            Begin => all.push(("upload-complete", "?0")),
            Pull => all.push(("source", "https://127.0.0.1:1/x")),
            Duplicate => all.push(("destination", path.as_str())),
            Put | Lock | Finish => {}
        }
        site.put("/public/src", b"for all").await;
        let answer = site.send_bare(method, at, &all, b"").await;
        assert_eq!(answer.status, 401, "{way:?}: {}", answer.text());
        assert_eq!(
            answer.text().replace(&path, "PATH"),
            "PATH needs a token or a certificate; send 'Authorization: Bearer', or connect with a client certificate\n",
            "{way:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_in_the_way_is_told_the_same_by_each_way() {
    let site = site_with_source(|_| {}).await;
    let directory = Cause {
        name: "directory",
        obstacle: Obstacle::Directory,
        status: 409,
        text: "PATH is a directory, or its URL ends with '/'; name a file",
        ..PLAIN
    };
    // COPY takes the place of a directory (RFC 4918 §9.8.4), and LOCK locks it (§9.10.3).
    directory.check(&site, &[Put, Pull, Begin, Finish]).await;
    assert_eq!(directory.answer(&site, Duplicate).await.status, Some(204));
    assert_eq!(directory.answer(&site, Lock).await.status, Some(200));
    let below = Cause {
        name: "below a file",
        obstacle: Obstacle::ParentFile,
        status: 409,
        text: "PARENT is a file, so nothing can be below it",
        ..PLAIN
    };
    below.check(&site, &ALL).await;
    let written = Cause {
        name: "written",
        obstacle: Obstacle::Writer,
        status: 409,
        text: "PATH is being written by another client; try again when that write has ended",
        ..PLAIN
    };
    written.check(&site, &ALL).await;
    let locked = Cause {
        name: "locked",
        obstacle: Obstacle::LockOfAnother,
        status: 423,
        ..PLAIN
    };
    for way in [Put, Pull, Duplicate, Begin, Finish] {
        let answer = locked.answer(&site, way).await;
        assert_eq!(answer.status, Some(423), "{way:?}");
        let named = "<D:lock-token-submitted><D:href>PATH</D:href></D:lock-token-submitted>";
        assert!(answer.text.contains(named), "{way:?}: {}", answer.text);
    }
    // RFC 4918 §9.10.6 has a condition of its own for a lock in the way of another.
    let answer = locked.answer(&site, Lock).await;
    assert_eq!(answer.status, Some(423));
    assert!(
        answer.text.contains("<D:no-conflicting-lock>"),
        "{}",
        answer.text
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_missing_is_made_or_told_the_same() {
    let site = site_with_source(|_| {}).await;
    let token = site.token(WRITER);
    for way in [Duplicate, Lock] {
        // RFC 4918 §9.8.5, §9.10.4.
        let path = format!("/missing-{way:?}/f");
        let answer = PlainAnswer::of(&ask(&site, way, &token, &path, None, &[]).await, &path);
        assert_eq!(answer.status, Some(409), "{way:?}");
        assert_eq!(
            answer.text,
            "the directory PARENT does not exist; make it first"
        );
    }
    for way in [Put, Pull, Begin] {
        let path = format!("/missing-{way:?}/f");
        let response = ask(&site, way, &token, &path, None, &[]).await;
        assert!(
            [201, 202].contains(&response.status),
            "{way:?}: {}",
            response.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_fails_is_told_the_same_by_each_way() {
    let site = site_with_source(|_| {}).await;
    let absent = Cause {
        name: "if none match",
        obstacle: Obstacle::File,
        headers: &[("if-none-match", "*")],
        status: 412,
        text: "the destination exists and 'If-None-Match' forbids that",
        ..PLAIN
    };
    absent.check(&site, &ALL).await;
    let other = Cause {
        name: "if match",
        obstacle: Obstacle::File,
        headers: &[("if-match", "\"0\"")],
        status: 412,
        text: "the file is not the one that 'If-Match' names",
        ..PLAIN
    };
    other
        .check(&site, &[Put, Pull, Duplicate, Lock, Begin])
        .await;
    site.put("/kept", b"old").await;
    let tag = site.get("/kept").await.header("etag").to_owned();
    let upload = begin_upload(&site, "/kept", &[("if-match", &tag)]).await;
    site.put("/kept", b"new").await;
    let token = site.token(WRITER);
    let answer = ask(&site, Finish, &token, "/kept", Some(&upload), &[]).await;
    assert_eq!((answer.status, answer.text().trim_end()), (412, other.text));
    let overwrite = Cause {
        name: "overwrite",
        obstacle: Obstacle::File,
        headers: &[("overwrite", "F")],
        status: 412,
        text: "PATH exists and 'Overwrite: F' forbids replacing it",
        ..PLAIN
    };
    overwrite.check(&site, &[Pull, Duplicate]).await;
    let list = Cause {
        name: "if",
        headers: &[("if", "([\"0\"])")],
        status: 412,
        text: "no list of the 'If' header holds: a lock has ended, or the file has changed; look at it again",
        ..PLAIN
    };
    list.check(&site, &ALL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_pools_is_told_the_same_by_each_way() {
    // The pool of an upload is chosen by its first request; its last one needs no other.
    let site = site_with_source(|config| config.pools[0].capacity = Some(Bytes(1000))).await;
    let full = Cause {
        name: "full",
        status: 507,
        text: "no pool has enough space for a file of 600 bytes; delete files or ask the site for space",
        ..PLAIN
    };
    // The empty file of a lock has room.
    full.check(&site, &[Put, Pull, Duplicate, Begin]).await;
    let ways = [Put, Pull, Duplicate, Lock, Begin];
    let site = site_with_source(|_| {}).await;
    site.reload(|config| config.pools[0].mode = PoolMode::Drained);
    let drained = Cause {
        name: "drained",
        status: 503,
        text: "no pool accepts files at the moment; contact the site",
        ..PLAIN
    };
    drained.check(&site, &ways).await;
    let site = site_with_source(|config| {
        config.pools[0].movers = QueueLimits {
            movers_max: 1,
            queue_max: 0,
            ..QueueLimits::default()
        };
    })
    .await;
    let holds = site.begin_writing("/d/holds", Some(10)).await;
    eventually("the mover runs", || {
        site.storage.snapshot().movers_total == 1
    })
    .await;
    let busy = Cause {
        name: "busy",
        status: 503,
        text: "the queues of all pools with free space are full; try again later",
        ..PLAIN
    };
    busy.check(&site, &ways).await;
    drop(holds);
}
