//! Attempts against a destination that answers as told, and what they remove there.

use super::*;
use crate::engine::AssignedTo;
use crate::tokens::TokenClients;
use penstock_model::{
    Activity, Attempt, ChecksumAlgorithm, Epoch, FileUrl, JobId, JobParameters, TransferId,
    TransferRequest, VoName,
};
use penstock_persistence::journal::{SqliteJournal, SqliteReader};
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::http1::Limits;
use penstock_protocol::http1::client::ClientConfig;
use penstock_protocol::http1::server::Connection;
use penstock_protocol::stream::Stream;
use penstock_protocol::tls::ClientTls;
use tokio::net::TcpListener;

/// The status and the body that answer a COPY.
type CopyAnswer = (u16, &'static str);

/// A storage element where the source is, the destination is not, and no copy succeeds. Tells which methods it was
/// sent for `/to`.
async fn storage(copy: CopyAnswer) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = seen.clone();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let log = log.clone();
            tokio::spawn(async move {
                let mut connection = Connection::new(Stream::plain(tcp), Limits::default());
                while let Ok(Some(request)) = connection.next_request().await {
                    if request.path() == "/to" {
                        let method = request.method.to_string();
                        log.lock().expect("no panic").push(method);
                    }
                    let (status, body) = match (request.method.as_str(), request.path()) {
                        ("HEAD", "/from") | ("MKCOL", _) => (200, ""),
                        ("HEAD", _) => (404, ""),
                        ("COPY", _) => copy,
                        _ => (204, ""),
                    };
                    let status = axum::http::StatusCode::from_u16(status).expect("valid");
                    let headers = axum::http::HeaderMap::new();
                    let answered = connection.respond(status, headers, body.as_bytes());
                    if answered.await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (url, seen)
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
        metadata: serde_json::Value::Null,
        source_credential: None,
        destination_credential: None,
        tape: None,
    };
    let to = AssignedTo {
        node: crate::engine::this_process(),
        session: 0,
        epoch: Epoch::default(),
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
        by_version: ByVersion::of(&client),
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

/// Runs one attempt to its end; gives back its outcome and what the destination was asked.
async fn attempt(copy: CopyAnswer, parameters: JobParameters) -> (Outcome, Vec<String>) {
    let (url, seen) = storage(copy).await;
    let file = |path: &str| FileUrl::parse(&format!("{url}{path}")).expect("valid");
    let assignment = assignment(file("/from"), file("/to"), parameters);
    let (setup, _directory) = setup();
    let progress = Progress::new(&assignment, Instant::now());
    let (reports, mut reported) = mpsc::channel(8);
    let (proceed, may_proceed) = oneshot::channel();
    let attempting = steps::Attempting::new(&setup, &assignment, &progress);
    let (outcome, ()) = tokio::join!(attempting.run(may_proceed, &reports), async move {
        let Some(AgentReport::Prepared { .. }) = reported.recv().await else {
            panic!("the attempt prepares");
        };
        proceed.send(()).expect("the attempt waits");
    });
    let seen = seen.lock().expect("no panic").clone();
    (outcome, seen)
}

async fn check(copy: CopyAnswer, strict_copy: bool, removes: bool) {
    let parameters = JobParameters {
        strict_copy,
        ..JobParameters::default()
    };
    let (outcome, seen) = attempt(copy, parameters).await;
    assert!(
        matches!(outcome, Outcome::Failed { cleaned: true, .. }),
        "{copy:?}: {outcome:?}"
    );
    let removed = seen.iter().any(|method| method == "DELETE");
    assert_eq!(
        removed, removes,
        "{copy:?}, strict_copy={strict_copy}: {seen:?}"
    );
}

#[tokio::test]
async fn a_file_that_appeared_since_the_look_is_somebody_elses() {
    check((412, "/to exists"), false, false).await;
    check(
        (409, "/to is being written by another client"),
        false,
        false,
    )
    .await;
    check((202, "failure: /to exists\n"), false, false).await;
}

#[tokio::test]
async fn a_destination_that_nobody_looked_at_is_never_removed() {
    check((412, "/to exists"), true, false).await;
    check((202, "failure: the source broke\n"), true, false).await;
}

#[tokio::test]
async fn what_a_failed_copy_may_have_left_is_removed() {
    check((202, "failure: the source broke\n"), false, true).await;
    check((500, "trouble"), false, true).await;
}
