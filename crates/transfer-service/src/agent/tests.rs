//! Attempts against a destination that answers as told, and what they remove there.

use super::*;
use crate::tokens::TokenClients;
use penstock_clock::wall_clock;
use penstock_decide::record_clock::RecordClock;
use penstock_engine::AssignedNode;
use penstock_journal::Journal;
use penstock_model::{
    Activity, Attempt, ChecksumAlgorithm, CredentialId, FileUrl, Job, JobId, JobParameters,
    Overwrite, ProblemCode, Record, Retry, Tenure, Timestamp, TransferEvent, TransferId,
    TransferRequest, TransferState, UserName, VoName,
};
use penstock_persistence::journal::{SqliteJournal, SqliteReader};
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::http1::Limits;
use penstock_protocol::http1::client::ClientConfig;
use penstock_protocol::http1::server::Connection;
use penstock_protocol::problem::PROBLEM_HEADER;
use penstock_protocol::stream::Stream;
use penstock_protocol::tls::ClientTls;
use tokio::net::TcpListener;

/// The status and the body that answer a COPY.
type CopyAnswer = (u16, &'static str);

/// What lies at the destination.
#[derive(Debug, Clone)]
struct There {
    size: u64,
    /// Seconds before now at which it changed.
    age: i64,
    directory: bool,
    /// HEAD tells neither its time nor that it is a directory; PROPFIND tells both.
    only_in_properties: bool,
}

/// A part of the source, just written.
const PART: There = There {
    size: 2,
    age: 0,
    directory: false,
    only_in_properties: false,
};

impl There {
    fn modified(&self) -> String {
        let modified = Timestamp(wall_clock().0 - self.age * 1000);
        penstock_protocol::webdav::format_http_date(modified)
    }

    /// The answer to PROPFIND.
    fn properties(&self) -> String {
        let kind = match self.directory {
            true => "<D:collection/>",
            false => "",
        };
        format!(
            r#"<D:multistatus xmlns:D="DAV:"><D:response><D:href>/to</D:href><D:propstat><D:prop>
            <D:resourcetype>{kind}</D:resourcetype><D:getlastmodified>{}</D:getlastmodified>
            </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>"#,
            self.modified()
        )
    }
}

/// A storage element where the source is (4 bytes), and no copy succeeds.
#[derive(Debug, Clone)]
struct Storage {
    copy: CopyAnswer,
    /// The status that answers a PUT, once all bytes have come.
    put: u16,
    /// What is at the destination before it is asked to copy, and after.
    before: Option<There>,
    after: Option<There>,
    /// The status that answers a DELETE.
    delete: u16,
    /// Statuses that answer each HEAD after the copy, before it tells what is there.
    looks: Arc<Mutex<Vec<u16>>>,
    /// Where nothing is, it says that a file is about to come.
    may_come: bool,
}

impl Storage {
    fn answering(copy: CopyAnswer) -> Storage {
        Storage {
            copy,
            put: 204,
            before: None,
            after: None,
            delete: 204,
            looks: Arc::default(),
            may_come: false,
        }
    }

    /// Tells which methods it was sent for `/to`, with what conditions.
    async fn serve(self) -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = seen.clone();
        let storage = Arc::new(self);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (log, storage) = (log.clone(), storage.clone());
                tokio::spawn(async move {
                    let mut connection = Connection::new(Stream::plain(tcp), Limits::default());
                    while let Ok(Some(request)) = connection.next_request().await {
                        let answered = storage.answer(&mut connection, &request, &log).await;
                        if answered.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        (url, seen)
    }

    async fn answer(
        &self,
        connection: &mut Connection,
        request: &penstock_protocol::http1::server::Request,
        log: &Mutex<Vec<String>>,
    ) -> std::io::Result<()> {
        let method = request.method.as_str();
        let is_copied = {
            let mut log = log.lock();
            if request.path() == "/to" {
                let mut line = method.to_owned();
                for name in ["overwrite", "if-match"] {
                    if let Some(value) = request.headers.get(name) {
                        line += &format!(" {name}={}", value.to_str().expect("ASCII"));
                    }
                }
                log.push(line);
            }
            let copies = match self.copy.0 {
                NOT_OFFERED => "PUT",
                _ => "COPY",
            };
            log.iter().any(|line| line.starts_with(copies))
        };
        let there = match is_copied {
            true => &self.after,
            false => &self.before,
        };
        let mut headers = axum::http::HeaderMap::new();
        let properties = there.as_ref().filter(|there| there.only_in_properties);
        let properties = properties.map(There::properties);
        let digest = |sum: &str| format!("adler32={sum}").parse().expect("ASCII");
        let (status, body, length) = match (method, request.path()) {
            ("HEAD", "/from") => {
                headers.insert("digest", digest("00000001"));
                (200, "", 4)
            }
            ("HEAD", _) if is_copied && !self.looks.lock().is_empty() => {
                (self.looks.lock().remove(0), "", 0)
            }
            ("HEAD", _) => match there {
                None if self.may_come => {
                    let code = ProblemCode::PathNotThereYet.name();
                    headers.insert(PROBLEM_HEADER, code.parse().expect("ASCII"));
                    (404, "", 0)
                }
                None => (404, "", 0),
                Some(there) => {
                    if !there.only_in_properties {
                        headers.insert("last-modified", there.modified().parse().expect("ASCII"));
                    }
                    headers.insert("etag", "\"v1\"".parse().expect("ASCII"));
                    if there.size == 4 {
                        headers.insert("digest", digest("00000001"));
                    }
                    if there.directory && !there.only_in_properties {
                        let kind = penstock_protocol::webdav::DIRECTORY_TYPE;
                        headers.insert("content-type", kind.parse().expect("ASCII"));
                    }
                    (200, "", there.size)
                }
            },
            ("MKCOL", _) => (200, "", 0),
            ("COPY", _) => {
                if self.copy == TOO_BUSY {
                    headers.insert("retry-after", "10".parse().expect("ASCII"));
                }
                (self.copy.0, self.copy.1, 0)
            }
            ("PROPFIND", "/to") => match &properties {
                Some(properties) => (207, properties.as_str(), 0),
                None => (405, "", 0),
            },
            ("PROPFIND", _) => (405, "", 0),
            ("DELETE", _) => (self.delete, "", 0),
            ("GET", "/from") => (200, "1234", 0),
            ("PUT", _) => {
                let mut buffer = [0; 64];
                let mut count = 1;
                while count > 0 {
                    let read = connection.read_body(&mut buffer).await;
                    count = read.map_err(std::io::Error::other)?;
                }
                (self.put, "", 0)
            }
            _ => (204, "", 0),
        };
        let status = axum::http::StatusCode::from_u16(status).expect("valid");
        match method {
            "HEAD" => connection.respond_head_only(status, headers, length).await,
            _ => connection.respond(status, headers, body.as_bytes()).await,
        }
    }
}

/// The first attempt of a transfer.
pub(crate) fn assignment(
    source: FileUrl,
    destination: FileUrl,
    parameters: JobParameters,
) -> Assignment {
    let request = TransferRequest {
        id: TransferId(1),
        index: 0,
        source,
        destination,
        size: None,
        checksum: None,
        checksum_algorithm: ChecksumAlgorithm::Adler32,
        activity: Activity::new("default"),
        scitag: None,
        metadata: Default::default(),
        source_credential: None,
        destination_credential: None,
        source_query: None,
        destination_query: None,
        tape: None,
    };
    let to = AssignedNode {
        node: penstock_engine::this_process(),
        session: 0,
        tenure: Tenure::default(),
    };
    Assignment {
        to,
        streams: None,
        job: JobId(uuid::Uuid::nil()),
        vo: VoName::new("vo"),
        request: Arc::new(request),
        parameters: Arc::new(parameters),
        attempt: Attempt(1),
        unsettled: false,
        ended: None,
        clock: None,
        task: Task::Copy,
    }
}

/// What agents need that use neither tokens nor proxies. The directory goes with its guard.
pub(crate) fn setup() -> (AgentSetup, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let journal = directory.path().join("journal.sqlite");
    let keys = SealingKeys::of_this_process().expect("OpenSSL works");
    drop(SqliteJournal::open(&journal, keys.clone()).expect("made"));
    let store = directory.path().join("delegations.sqlite");
    let delegations = Delegations::open(&store, keys).expect("made");
    let tls = ClientTls::system().expect("OpenSSL works");
    let client = Client::new(ClientConfig::new(tls));
    let reader: Arc<dyn JournalReader> = Arc::new(SqliteReader::open(&journal, 1).expect("opened"));
    let tokens = TokenKeeper::new(client.clone(), reader.clone(), TokenClients::default());
    let setup = AgentSetup {
        by_version: IpVersionClients::of(&client),
        client,
        reader,
        delegations: Arc::new(delegations),
        config: AgentConfig::default(),
        settings: watch::channel(Arc::default()).1,
        memory: Arc::default(),
        tokens: Arc::new(tokens),
        gfal: None,
    };
    (setup, directory)
}

/// What was recorded of a transfer before: seconds before now, and what.
pub(crate) type Past = Vec<(i64, TransferEvent)>;

/// An attempt that was let write, and of which nobody knows the outcome.
fn a_lost_attempt(age: i64) -> Past {
    let attempt = Attempt(1);
    let started = TransferEvent::Started {
        attempt,
        node: None,
    };
    let prepared = TransferEvent::Prepared {
        attempt,
        size: Some(penstock_model::Bytes(4)),
        checksum: None,
        replaces: false,
    };
    let reason = "the service was restarted".to_owned();
    let lost = TransferEvent::AttemptLost { attempt, reason };
    vec![(age, started), (age, prepared), (age - 1, lost)]
}

pub(crate) fn record(directory: &std::path::Path, assignment: &Assignment, past: Past) {
    let keys = SealingKeys::of_this_process().expect("OpenSSL works");
    let journal = SqliteJournal::open(&directory.join("journal.sqlite"), keys);
    let mut journal = journal.expect("opened");
    let now = wall_clock();
    let job = Job {
        id: assignment.job,
        user: UserName::new("alice"),
        vo: assignment.vo.clone(),
        delegation: CredentialId::new("0123456789abcdef"),
        submitted_at: Timestamp(now.0 - 100_000_000),
        parameters: JobParameters::clone(&assignment.parameters),
        transfers: vec![TransferRequest::clone(&assignment.request)],
    };
    let mut records = vec![Record::JobAccepted {
        job: Box::new(job),
        tokens: Vec::new(),
    }];
    records.extend(past.into_iter().map(|(age, event)| Record::Happened {
        at: Timestamp(now.0 - age * 1000),
        monotonic_us: 0,
        job: assignment.job,
        transfer: assignment.request.id,
        event,
        state: TransferState::submitted(),
    }));
    journal.append(&records).expect("stored");
}

struct Run {
    storage: Storage,
    parameters: JobParameters,
    past: Past,
    task: Task,
    /// The journal's file is unreadable while it runs.
    unreadable: bool,
    /// What was recorded is gone when it begins.
    is_pruned: bool,
    /// Seconds by which the clock of the records is ahead since the service began again.
    ahead: i64,
}

impl Run {
    fn of(storage: Storage) -> Run {
        Run {
            storage,
            parameters: JobParameters::default(),
            past: Vec::new(),
            task: Task::Copy,
            unreadable: false,
            is_pruned: false,
            ahead: 0,
        }
    }

    fn after(storage: Storage, past: Past) -> Run {
        Run {
            past,
            ..Run::of(storage)
        }
    }

    /// Runs an attempt to its end; gives back its outcome and what the destination was asked.
    async fn run(self) -> (AttemptOutcome, Vec<String>) {
        let (url, seen) = self.storage.serve().await;
        let file = |path: &str| FileUrl::parse(&format!("{url}{path}")).expect("valid");
        let mut assignment = assignment(file("/from"), file("/to"), self.parameters);
        assignment.task = self.task;
        let now = Timestamp(wall_clock().0 + self.ahead * 1000);
        assignment.clock = Some(RecordClock {
            at: now,
            steady_since: now,
        });
        let (setup, directory) = setup();
        if !self.past.is_empty() {
            assignment.unsettled = true;
            assignment.attempt = Attempt(2);
            if !self.is_pruned {
                record(directory.path(), &assignment, self.past);
            }
        }
        if self.unreadable {
            let journal = directory.path().join("journal.sqlite");
            let length = std::fs::metadata(&journal).expect("there").len();
            std::fs::write(&journal, vec![0xA5; length as usize]).expect("damaged");
        }
        let progress = Progress::new(&assignment, Instant::now());
        let (reports, mut reported) = mpsc::channel(8);
        let (proceed, may_proceed) = oneshot::channel();
        let attempting = steps::AttemptRun::new(&setup, &assignment, &progress);
        if self.task == Task::TidyUp {
            let outcome = match attempting.tidy_up().await {
                Ok(()) => AttemptOutcome::Tidied,
                Err(failure) => AttemptOutcome::Untidied { failure },
            };
            return (outcome, seen.lock().clone());
        }
        let proceeds = async move {
            if let Some(AgentReport::Prepared { .. }) = reported.recv().await {
                let _ = proceed.send(());
            }
        };
        let outcome = tokio::select! {
            (outcome, ()) = async { tokio::join!(attempting.run(may_proceed, &reports), std::future::ready(())) } => outcome,
            () = async { proceeds.await; std::future::pending().await } => unreachable!("it waits"),
        };
        let seen = seen.lock().clone();
        (outcome, seen)
    }
}

#[tokio::test]
async fn nothing_is_copied_before_what_was_found_is_durable() {
    let storage = Storage::answering((202, "failure: the source broke\n"));
    let (url, seen) = storage.serve().await;
    let file = |path: &str| FileUrl::parse(&format!("{url}{path}")).expect("valid");
    let assignment = assignment(file("/from"), file("/to"), JobParameters::default());
    let (setup, _directory) = setup();
    let progress = Progress::new(&assignment, Instant::now());
    let (reports, mut reported) = mpsc::channel(8);
    let (proceed, may_proceed) = oneshot::channel();
    let attempting = steps::AttemptRun::new(&setup, &assignment, &progress);
    let mut running = Box::pin(attempting.run(may_proceed, &reports));
    let report = tokio::select! {
        outcome = &mut running => panic!("it has not waited: {outcome:?}"),
        report = reported.recv() => report,
    };
    assert!(matches!(report, Some(AgentReport::Prepared { .. })));
    // Whatever it would do by itself, it has had its turn to do.
    for _ in 0..100 {
        let waits = tokio::time::timeout(Duration::from_millis(1), &mut running).await;
        assert!(waits.is_err(), "it waits to be let go on");
    }
    let is_copy = |line: &String| line.starts_with("COPY") || line.starts_with("PUT");
    assert!(!seen.lock().iter().any(is_copy), "{:?}", seen.lock());
    proceed.send(()).expect("it waits");
    running.await;
    assert!(seen.lock().iter().any(is_copy), "{:?}", seen.lock());
}

fn removals(seen: &[String]) -> Vec<&str> {
    let removals = seen.iter().map(String::as_str);
    removals.filter(|line| line.starts_with("DELETE")).collect()
}

async fn check(storage: Storage, strict_copy: bool, expected: (bool, &[&str])) {
    let mut run = Run::of(storage.clone());
    run.parameters.strict_copy = strict_copy;
    let (outcome, seen) = run.run().await;
    let AttemptOutcome::Failed { cleaned, .. } = outcome else {
        panic!("{storage:?}: {outcome:?}")
    };
    assert_eq!(
        (cleaned, &*removals(&seen)),
        expected,
        "{storage:?}: {seen:?}"
    );
}

/// The answer to COPY of a storage element that has none: the agent sends the bytes itself.
const NOT_OFFERED: u16 = 501;
/// A storage element that takes no more copies just now.
const TOO_BUSY: CopyAnswer = (503, "too busy");
const SEEN: &str = "DELETE if-match=\"v1\"";

#[tokio::test]
async fn a_copy_fails_with_the_code_that_its_storage_element_tells() {
    let failed = async |lines: &'static str| {
        let (outcome, _) = Run::of(Storage::answering((202, lines))).run().await;
        match outcome {
            AttemptOutcome::Failed { failure, .. } => (failure.side, failure.code()),
            other => panic!("{other:?}"),
        }
    };
    let refused = "failure: https://a/from answered 503 Service Unavailable: pool p is away\n";
    let guessed = failed(refused).await;
    assert_eq!(guessed, (Side::Network, ProblemCode::of_status(503)));
    let told = "Perf Marker\nTimestamp: 1\nPenstock-Problem: pool-offline\nEnd\n\
                failure: https://a/from answered 503 Service Unavailable: pool p is away\n";
    assert_eq!(
        failed(told).await,
        (Side::Network, ProblemCode::PoolOffline)
    );
    // One of a later version.
    let later = "Perf Marker\nTimestamp: 1\nPenstock-Problem: of-tomorrow\nEnd\n\
                 failure: https://a/from answered 503 Service Unavailable: pool p is away\n";
    assert_eq!(failed(later).await, guessed);
}

#[tokio::test]
async fn a_file_that_appeared_since_the_look_is_somebody_elses() {
    for copy in [
        (412, "/to exists"),
        (409, "/to is being written by another client"),
        (202, "failure: /to exists\n"),
        TOO_BUSY,
    ] {
        let storage = Storage {
            after: Some(PART),
            ..Storage::answering(copy)
        };
        check(storage, false, (true, &[])).await;
    }
}

#[tokio::test]
async fn a_destination_that_nobody_looked_at_is_never_removed() {
    for copy in [(412, "/to exists"), (202, "failure: the source broke\n")] {
        let storage = Storage {
            after: Some(PART),
            ..Storage::answering(copy)
        };
        check(storage, true, (true, &[])).await;
    }
}

#[tokio::test]
async fn what_a_failed_copy_has_left_is_removed_as_it_was_seen() {
    let ended = (202, "failure: the source broke\n");
    let left = |copy, after| Storage {
        after: Some(after),
        ..Storage::answering(copy)
    };
    check(left(ended, PART), false, (true, &[SEEN])).await;
    check(Storage::answering(ended), false, (true, &[])).await;
    // After such an answer the copy may still run.
    for unknown in [(500, "trouble"), (503, "no server is available")] {
        check(left(unknown, PART), false, (false, &[SEEN])).await;
        check(Storage::answering(unknown), false, (false, &[])).await;
    }
    let refused = Storage {
        delete: 409,
        ..left(ended, PART)
    };
    check(refused, false, (false, &[SEEN])).await;
}

/// A destination that has said it has the file, and answers the looks at it with these statuses first.
fn arrived(looks: Vec<u16>) -> Storage {
    Storage {
        after: Some(There { size: 4, ..PART }),
        looks: Arc::new(Mutex::new(looks)),
        ..Storage::answering((202, "success: Created\n"))
    }
}

#[tokio::test]
async fn what_has_arrived_is_looked_at_again_before_it_counts_as_lost() {
    for look in [404, 503] {
        let (outcome, seen) = Run::of(arrived(vec![look])).run().await;
        assert!(
            matches!(outcome, AttemptOutcome::Landed { .. }),
            "{look}: {outcome:?}"
        );
        assert_eq!(removals(&seen), [""; 0]);
    }
}

#[tokio::test]
async fn what_has_arrived_stays_while_nobody_can_look_at_it() {
    let (absent, busy) = tokio::join!(
        Run::of(arrived(vec![404; 100])).run(),
        Run::of(arrived(vec![503; 100])).run()
    );
    for (outcome, seen) in [absent, busy] {
        let AttemptOutcome::Failed {
            failure, cleaned, ..
        } = outcome
        else {
            panic!("{outcome:?}")
        };
        assert_eq!((failure.retry, cleaned), (Retry::Later, false));
        assert_eq!(removals(&seen), [""; 0]);
    }
}

#[tokio::test]
async fn a_copy_of_which_the_destination_itself_does_not_know_may_come() {
    let unsettled = (
        202,
        "failure: the namespace database failed in a commit, so it is not known whether the change was made: I/O\n",
    );
    check(Storage::answering(unsettled), false, (false, &[])).await;
}

#[tokio::test]
async fn what_others_have_put_there_stays() {
    let ended = (202, "failure: the source broke\n");
    let left = |after| Storage {
        after: Some(after),
        ..Storage::answering(ended)
    };
    let longer = There { size: 5, ..PART };
    check(left(longer), false, (true, &[])).await;
    let older = There { age: 3600, ..PART };
    check(left(older), false, (true, &[])).await;
    let directory = There {
        directory: true,
        ..PART
    };
    check(left(directory), false, (false, &[])).await;
}

#[tokio::test]
async fn a_copy_without_checks_overwrites_only_when_it_may() {
    for (overwrite, attempt, expected) in [
        (Overwrite::Never, 1, "F"),
        (Overwrite::OnRetry, 1, "F"),
        (Overwrite::OnRetry, 2, "T"),
        (Overwrite::Always, 1, "T"),
        (Overwrite::OnlyOnDisk, 1, "F"),
    ] {
        let mut run = Run::of(Storage::answering((412, "exists")));
        run.parameters.strict_copy = true;
        run.parameters.overwrite = overwrite;
        if attempt == 2 {
            let failed = TransferEvent::AttemptLost {
                attempt: Attempt(1),
                reason: "it never began".to_owned(),
            };
            run.past = vec![(5, failed)];
        }
        let (_, seen) = run.run().await;
        let expected = format!("COPY overwrite={expected}");
        assert!(seen.contains(&expected), "{overwrite:?}: {seen:?}");
    }
}

#[tokio::test]
async fn an_attempt_that_meets_an_earlier_copy_of_its_own_waits_for_it() {
    let busy = (409, "/to is being written by another client");
    let (outcome, _) = Run::after(Storage::answering(busy), a_lost_attempt(60))
        .run()
        .await;
    let AttemptOutcome::Blocked { failure, until, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(failure.retry, Retry::Later);
    assert!(until > wall_clock(), "{failure:?}");
    // What comes by a push says that it exists, and is as little the end of it.
    let exists = (
        202,
        "failure: https://se/to answered 412 Precondition Failed: exists\n",
    );
    let (outcome, _) = Run::after(Storage::answering(exists), a_lost_attempt(60))
        .run()
        .await;
    assert!(
        matches!(outcome, AttemptOutcome::Blocked { .. }),
        "{outcome:?}"
    );
    // It is in the way, and cannot be removed yet.
    let partial = Storage {
        before: Some(PART),
        delete: 423,
        ..Storage::answering(busy)
    };
    let (outcome, seen) = Run::after(partial, a_lost_attempt(60)).run().await;
    assert!(
        matches!(outcome, AttemptOutcome::Blocked { .. }),
        "{outcome:?}"
    );
    assert_eq!(removals(&seen), [SEEN]);
    // What is there may be its own, as far as a clock that is wrong tells.
    let odd = Storage {
        before: Some(There { age: 3600, ..PART }),
        ..Storage::answering(busy)
    };
    let (outcome, seen) = Run::after(odd, a_lost_attempt(60)).run().await;
    let AttemptOutcome::Blocked { failure, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(failure.retry, Retry::Later, "{failure:?}");
    assert_eq!(removals(&seen), [""; 0]);
    // When none can run any more, what has come may still be theirs: the next look compares it.
    let (outcome, _) = Run::after(Storage::answering(exists), a_lost_attempt(90_000))
        .run()
        .await;
    let AttemptOutcome::Failed { failure, .. } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(failure.retry, Retry::Later, "{failure:?}");
}

#[tokio::test]
async fn a_copy_may_still_run_although_the_clock_has_leapt_over_its_end() {
    let busy = (409, "/to is being written by another client");
    let run = |task, ahead| Run {
        task,
        ahead,
        ..Run::after(Storage::answering(busy), a_lost_attempt(60))
    };
    let (outcome, _) = run(Task::Copy, 1200).run().await;
    let AttemptOutcome::Blocked { until, .. } = outcome else {
        panic!("{outcome:?}")
    };
    let wait = until.since(wall_clock() + Duration::from_secs(1200));
    // A minute is over; servers tell whole seconds.
    assert!((500..=545).contains(&wait.as_secs()), "{wait:?}");
    let (outcome, _) = run(Task::TidyUp, 1200).run().await;
    assert!(
        matches!(outcome, AttemptOutcome::Untidied { .. }),
        "{outcome:?}"
    );
    // When so much time has passed in truth, nothing is waited for.
    let mut late = run(Task::TidyUp, 0);
    late.past = a_lost_attempt(1260);
    let (outcome, _) = late.run().await;
    assert_eq!(outcome, AttemptOutcome::Tidied);
}

#[tokio::test]
async fn what_others_brought_after_a_copys_time_stays_although_the_clock_has_gone_back() {
    for (age, removes) in [(1200, false), (2900, true)] {
        let there = Some(There { age, ..PART });
        let storage = Storage {
            before: there.clone(),
            after: there,
            ..Storage::answering((202, "failure: the source broke\n"))
        };
        let run = Run {
            ahead: -1200,
            ..Run::after(storage, a_lost_attempt(3000))
        };
        let (_, seen) = run.run().await;
        assert_eq!(!removals(&seen).is_empty(), removes, "{age}: {seen:?}");
    }
}

#[tokio::test]
async fn what_an_attempt_of_unknown_outcome_left_is_taken_over_or_removed_and_others_files_stay() {
    let found = |before| Storage {
        before: Some(before),
        ..Storage::answering((202, "failure: the source broke\n"))
    };
    let whole = There { size: 4, ..PART };
    for age in [60, 90_000] {
        let (outcome, seen) = Run::after(found(whole.clone()), a_lost_attempt(age))
            .run()
            .await;
        assert!(
            matches!(outcome, AttemptOutcome::Landed { .. }),
            "{outcome:?}"
        );
        assert!(removals(&seen).is_empty(), "{seen:?}");
    }
    // Nor does a copy without checks take it for somebody else's.
    let mut run = Run::after(found(whole), a_lost_attempt(60));
    run.storage.copy = (412, "/to exists");
    run.parameters.strict_copy = true;
    let (outcome, seen) = run.run().await;
    assert!(
        matches!(outcome, AttemptOutcome::Landed { .. }),
        "{outcome:?}"
    );
    assert!(seen.iter().all(|line| line == "HEAD"), "{seen:?}");
    let old = There {
        age: 89_500,
        ..PART
    };
    for (before, age, removes) in [(PART, 60, true), (old, 90_000, true), (PART, 90_000, false)] {
        let (outcome, seen) = Run::after(found(before.clone()), a_lost_attempt(age))
            .run()
            .await;
        assert_eq!(!removals(&seen).is_empty(), removes, "{before:?}: {seen:?}");
        let AttemptOutcome::Failed { failure, .. } = &outcome else {
            panic!("{outcome:?}")
        };
        let exists = failure
            .detail
            .contains("exists and overwrite is not enabled");
        assert_eq!(exists, !removes, "{failure:?}");
    }
}

#[tokio::test]
async fn who_cannot_read_what_was_attempted_before_touches_nothing_and_comes_back() {
    let there = || Storage {
        before: Some(PART),
        ..Storage::answering((202, "success: done\n"))
    };
    let run = |task| Run {
        task,
        unreadable: true,
        ..Run::after(there(), a_lost_attempt(60))
    };
    for task in [Task::Copy, Task::TidyUp] {
        let (outcome, seen) = run(task).run().await;
        let (AttemptOutcome::Failed { failure, .. } | AttemptOutcome::Untidied { failure }) =
            outcome
        else {
            panic!("{outcome:?}")
        };
        let expected = (Side::Service, Retry::Later);
        assert_eq!((failure.side, failure.retry), expected, "{failure:?}");
        assert!(failure.detail.contains("cannot be read"), "{failure:?}");
        let changes = seen.iter().filter(|line| !line.starts_with("HEAD"));
        assert_eq!(changes.count(), 0, "{task:?}: {seen:?}");
    }
}

#[tokio::test]
async fn a_removal_is_not_done_while_the_destination_says_that_the_file_may_come() {
    for (may_come, is_done) in [(true, false), (false, true)] {
        let storage = Storage {
            may_come,
            ..Storage::answering((500, "not asked"))
        };
        let run = Run {
            task: Task::TidyUp,
            ..Run::after(storage, a_lost_attempt(90_000))
        };
        let (outcome, _) = run.run().await;
        assert_eq!(
            matches!(outcome, AttemptOutcome::Tidied),
            is_done,
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_removal_without_any_record_of_its_attempts_is_not_done() {
    let started = TransferEvent::Started {
        attempt: Attempt(1),
        node: None,
    };
    let run = Run {
        task: Task::TidyUp,
        is_pruned: true,
        ..Run::after(Storage::answering((500, "not asked")), vec![(60, started)])
    };
    let (outcome, seen) = run.run().await;
    let AttemptOutcome::Untidied { failure } = outcome else {
        panic!("{outcome:?}")
    };
    assert!(
        failure.detail.contains("nothing is recorded any more"),
        "{failure:?}"
    );
    assert_eq!(removals(&seen), [""; 0]);
}

#[tokio::test]
async fn tidying_up_goes_on_until_nothing_can_come() {
    let storage = |before: Option<There>, delete| Storage {
        before,
        delete,
        ..Storage::answering((500, ""))
    };
    for (before, delete, age, is_done, removed) in [
        (None, 204, 60, false, 0),
        (None, 204, 90_000, true, 0),
        (Some(PART), 204, 60, false, 1),
        (Some(PART), 503, 600, false, 1),
        (Some(There { size: 9, ..PART }), 204, 60, true, 0),
    ] {
        let mut run = Run::after(storage(before.clone(), delete), a_lost_attempt(age));
        run.task = Task::TidyUp;
        let (outcome, seen) = run.run().await;
        let case = format!("{before:?}, {delete}, {age}: {outcome:?}, {seen:?}");
        assert_eq!(outcome == AttemptOutcome::Tidied, is_done, "{case}");
        assert_eq!(removals(&seen).len(), removed, "{case}");
    }
}

#[tokio::test]
async fn a_token_is_shown_where_nobody_can_listen_and_to_hosts_that_are_listed() {
    let (mut setup, _directory) = setup();
    setup.config.tokens_unencrypted = vec![HostPattern::parse("lab.org").expect("a host")];
    let check = |url: &str, expected: bool| {
        let shown = setup.may_show_token(&url::Url::parse(url).expect("a URL"));
        assert_eq!(shown, expected, "{url}");
    };
    for url in ["https://se.org/f", "davs://se.org/f", "roots://se.org//f"] {
        check(url, true);
    }
    for url in [
        "http://se.org/f",
        "dav://se.org/f",
        "root://se.org//f",
        "xroot://se.org//f",
    ] {
        check(url, false);
    }
    for url in ["http://lab.org:8080/f", "root://LAB.org:1094//f"] {
        check(url, true);
    }
}

/// What an attempt makes of an answer when part of a file is there afterwards: error, retry, and what it did to the part.
async fn verdict(storage: Storage) -> String {
    let storage = Storage {
        after: Some(PART),
        ..storage
    };
    let (outcome, seen) = Run::of(storage).run().await;
    let AttemptOutcome::Failed {
        failure, cleaned, ..
    } = outcome
    else {
        panic!("{outcome:?}")
    };
    let part = match (removals(&seen).is_empty(), cleaned) {
        (true, true) => "not ours",
        (false, true) => "removed",
        (false, false) => "removed, more may come",
        (true, false) => "left, more may come",
    };
    let (side, errno, retry) = (failure.side, failure.errno, failure.retry);
    format!("{side:?} {} {retry:?}, {part}", errno.0)
}

#[tokio::test]
async fn each_status_has_its_verdict_by_copy_and_by_put() {
    let expected = [
        "400 COPY another way | PUT Destination 22 Never, removed",
        "401 COPY Destination 13 Never, not ours | PUT Destination 13 Never, removed",
        "403 COPY Destination 1 Never, not ours | PUT Destination 1 Never, removed",
        "404 COPY Destination 2 Never, not ours | PUT Destination 2 Never, removed",
        "405 COPY another way | PUT Destination 93 ElsewhereOnly, removed",
        "408 COPY Destination 110 Later, removed, more may come | PUT Destination 110 Later, removed, more may come",
        "409 COPY Destination 11 Later, not ours | PUT Destination 11 Later, not ours",
        "410 COPY Destination 2 Never, not ours | PUT Destination 2 Never, removed",
        "412 COPY Destination 17 Never, not ours | PUT Destination 17 Never, not ours",
        "413 COPY Destination 28 Later, not ours | PUT Destination 28 Later, removed",
        "415 COPY Destination 5 Later, not ours | PUT Destination 5 Later, removed",
        "423 COPY Destination 11 Later, not ours | PUT Destination 11 Later, not ours",
        "429 COPY Destination 11 Later, not ours | PUT Destination 11 Later, removed, more may come",
        "500 COPY Destination 5 Later, removed, more may come | PUT Destination 5 Later, removed, more may come",
        "501 COPY another way | PUT Destination 93 ElsewhereOnly, removed, more may come",
        "502 COPY Destination 5 Later, removed, more may come | PUT Destination 5 Later, removed, more may come",
        "503 COPY Destination 11 Later, removed, more may come | PUT Destination 11 Later, removed, more may come",
        "504 COPY Destination 110 Later, removed, more may come | PUT Destination 110 Later, removed, more may come",
        "507 COPY Destination 28 Later, not ours | PUT Destination 28 Later, removed, more may come",
    ];
    let mut told = Vec::new();
    for status in [
        400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 415, 423, 429, 500, 501, 502, 503, 504,
        507,
    ] {
        let by_copy = Run::of(Storage::answering((status, "no"))).run().await;
        let is_put = by_copy.1.iter().any(|line| line.starts_with("PUT"));
        let by_copy = match is_put {
            true => "another way".to_owned(),
            false => verdict(Storage::answering((status, "no"))).await,
        };
        let by_put = verdict(Storage {
            put: status,
            ..Storage::answering((NOT_OFFERED, ""))
        });
        told.push(format!("{status} COPY {by_copy} | PUT {}", by_put.await));
    }
    assert_eq!(told, expected);
}
