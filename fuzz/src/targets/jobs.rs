//! What a service is given to do and keeps: submissions of clients, frames of other nodes, and rows of its record that were
//! written by versions before, or damaged since.

use super::{Target, texts};
use penstock_decide::classify::{ObservedFailure, classify};
use penstock_decide::story::{self, Facts};
use penstock_engine::checked_submission::NewJob;
use penstock_model::{
    Access, Activity, Attempt, Bytes, ChecksumAlgorithm, CredentialId, FileUrl, Job, JobId,
    JobParameters, LedgerEntry, LinkEvent, Phase, Side, Timestamp, TransferEvent, TransferId,
    TransferRequest, TransferState, UserName, VoName,
};
use penstock_transfer_service::TokenClients;
use penstock_transfer_service::api::submit::{Means, Submitter, parse_submission};
use penstock_transfer_service::fuzzing::{NodeFrame, frame_of_follower, frame_of_leader};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::sync::LazyLock;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

const NOW: Timestamp = Timestamp(1_795_000_000_000);
/// As it stands in the query of a URL that only its submitter may know.
const SECRET: &str = "c2VjcmV0LXNlY3JldA";
/// Bytes of an answer that says why a submission is refused, with room for one URL.
const REFUSAL_CHARS_MAX: usize = 17_000;

pub const SUBMISSIONS: Target = Target {
    name: "submissions",
    check: check_submission,
    seeds: || {
        texts(&[
            r#"{"files":[{"sources":["https://a.example.org/1?authz=c2VjcmV0LXNlY3JldA"],"destinations":["root://b.example.org//1"],
               "checksum":"adler32:03da0195","filesize":7,"metadata":{"a":[1]},"activity":"Production","scitag":65}],
               "params":{"verify_checksum":"both","overwrite":true,"retry":3,"job_metadata":{"x":1},"priority":5,"nostreams":"4",
               "multihop":false,"reuse":"N","spacetoken":"","max_time_in_queue":"2h","credential":null,"id_generator":"standard"}}"#,
            r#"{"files":[{"sources":["https://a/1","https://c/1"],"destinations":["https://b/1"],"selection_strategy":"orderly"}],
               "params":{"bring_online":3600,"copy_pin_lifetime":-1,"archive_timeout":86400,"s3alternate":true}}"#,
            r#"{"files":[{"sources":["https://a/1"],"destinations":["https://b/1"]},{"sources":["https://b/1"],
               "destinations":["https://c/1"]}],"params":{"multihop":"Y","id_generator":"deterministic","sid":"x"}}"#,
            r#"{"files":[{"sources":["gsiftp://a/1"],"destinations":["srm://b:8446/srm/managerv2?SFN=/1"]}],"params":{"reuse":"yes"}}"#,
            r#"{"files":[{"sources":["https://a/1"],"destinations":["https://b/1"],"source_tokens":["a"],"destination_tokens":[]}]}"#,
            r#"{"delete":["https://a/1"]}"#,
            r#"[{"files":null}]"#,
        ])
    },
};

pub const FRAMES: Target = Target {
    name: "node_frames",
    check: check_frames,
    seeds: || {
        let framed = |text: &&str| {
            let length = u32::try_from(text.len()).expect("short");
            [&length.to_be_bytes(), text.as_bytes()].concat()
        };
        [
            r#"{"hello":{"protocol":1,"node":"a","version":"0.1","slots":9,"claims":[],"ends":[[7,1,{"failed":{"failure":null}}]]}}"#,
            r#"{"want_keys":{"protocol":1}}"#,
            r#"{"ping":{"number":18446744073709551615}}"#,
            r#"{"asked":{"number":1,"again":true,"asked":{"cancel_all":{"vo":null,"reason":"x"}}}}"#,
            r#"{"asked":{"number":2,"again":false,"asked":{"refresh":"c"}}}"#,
            r#"{"report":{"kind":"x"}}"#,
            r#""leaves""#,
            r#"{"welcome":{"protocol":1,"epoch":3,"certain":true}}"#,
            r#"{"keys":"c2VjcmV0LXNlY3JldA"}"#,
            r#"{"order":{"proceed":{"transfer":7,"attempt":1}}}"#,
            r#"{"lock_out":["alice"]}"#,
            r#"{"settings":[]}"#,
            r#"{"answered":{"number":1,"answered":null}}"#,
            r#"{"refused":{"why":"no"}}"#,
        ]
        .iter()
        .map(framed)
        .collect()
    },
};

pub const ROWS: Target = Target {
    name: "stored_rows",
    check: check_rows,
    seeds: row_seeds,
};

fn row_seeds() -> Vec<Vec<u8>> {
    let failure = || {
        let observed = ObservedFailure::Status(503);
        classify(
            Side::Source,
            Phase::Transfer,
            &observed,
            "it is busy".to_owned(),
        )
    };
    let attempt = Attempt(1);
    let events = [
        TransferEvent::Submitted,
        TransferEvent::NotNeeded,
        TransferEvent::Started {
            attempt,
            node: None,
        },
        TransferEvent::Prepared {
            attempt,
            size: Some(Bytes(7)),
            checksum: None,
            replaces: true,
        },
        TransferEvent::Landed {
            attempt,
            size: Bytes(7),
            mode: None,
            report: Box::default(),
            archives: true,
        },
        TransferEvent::AttemptFailed {
            attempt,
            failure: failure(),
            retry_at: Some(NOW),
            cleaned: false,
            excused: true,
            stages: false,
            moved: Some(Bytes(7)),
        },
        TransferEvent::StageFailed {
            failure: failure(),
            retry_at: None,
            excused: false,
        },
        TransferEvent::Canceled {
            reason: "by its user".to_owned(),
        },
    ];
    let states = [
        TransferState::Submitted {
            not_before: Some(Timestamp(i64::MAX)),
            failures: 1,
            attempts: 2,
            last: Some(failure()),
            unsettled: true,
            staged: None,
        },
        TransferState::Active {
            attempt,
            since: Timestamp(i64::MIN),
            failures: 0,
            prepared: true,
            unsettled: false,
            staged: None,
            node: None,
        },
        TransferState::NotUsed,
    ];
    let halted = LinkEvent::Halted {
        by: TransferId(7),
        until: NOW,
        failures: 3,
        last: failure(),
    };
    let bytes = |row: serde_json::Result<Vec<u8>>| row.expect("JSON");
    let mut seeds: Vec<Vec<u8>> = events
        .iter()
        .map(|row| bytes(serde_json::to_vec(row)))
        .collect();
    seeds.extend(states.iter().map(|row| bytes(serde_json::to_vec(row))));
    seeds.push(bytes(serde_json::to_vec(&halted)));
    seeds.push(bytes(serde_json::to_vec(&JobParameters::default())));
    seeds.push(bytes(serde_json::to_vec(&some_request())));
    seeds
}

fn some_request() -> TransferRequest {
    let url = |text: &str| FileUrl::parse(text).expect("a URL");
    TransferRequest {
        id: TransferId(1),
        index: 0,
        source: url("https://a.example.org/1"),
        destination: url("https://b.example.org/1"),
        size: Some(Bytes(7)),
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
    }
}

fn check_submission(data: &[u8]) {
    let (user, vo, delegation) = (
        UserName::new("alice"),
        VoName::new("cms"),
        CredentialId::new("d"),
    );
    let clients = TokenClients::default();
    for means in [Means::Token("submitters-own-token"), Means::Proxy] {
        let submitter = Submitter {
            user: &user,
            vo: &vo,
            delegation: &delegation,
            means,
            clients: &clients,
        };
        match parse_submission(data, &submitter, Uuid::nil(), NOW) {
            Ok((job, id_is_given)) => {
                assert!(id_is_given || job.id.0.is_nil());
                assert_eq!(
                    (&job.user, &job.vo),
                    (&user, &vo),
                    "nobody submits for others"
                );
                check_job(job);
            }
            Err(why) => {
                let told = why.to_string();
                assert!(told.chars().count() <= REFUSAL_CHARS_MAX, "{}", told.len());
            }
        }
    }
}

/// What is accepted can be kept, sent to a leader and done.
fn check_job(job: NewJob) {
    assert!(!job.transfers.is_empty());
    let kept: BTreeSet<_> = job.tokens.iter().map(|token| &token.id).collect();
    for transfer in &job.transfers {
        for url in [&transfer.source, &transfer.destination] {
            assert!(
                !url.as_str().contains(SECRET) || !url.as_str().contains("authz="),
                "{url}"
            );
            assert!(!url.as_str().chars().any(char::is_control));
        }
        let named = [
            &transfer.source_credential,
            &transfer.destination_credential,
            &transfer.source_query,
            &transfer.destination_query,
        ];
        for id in named.into_iter().flatten() {
            assert!(kept.contains(id), "a secret that the job does not bring");
        }
        if transfer.source.access() == Access::Cloud {
            assert!(
                transfer.source_credential.is_none(),
                "a cloud sees no token"
            );
        }
    }
    let shown = format!("{:?}", job.tokens);
    for token in job.tokens.iter().filter(|token| token.text.len() > 12) {
        assert!(!shown.contains(&token.text));
    }
    let sent = serde_json::to_vec(&job).expect("JSON");
    let came: NewJob = serde_json::from_slice(&sent).expect("a leader reads it");
    assert_eq!(came, job);
    let (job, _) = job.into_job(1, NOW);
    let stored = serde_json::to_string(&job).expect("JSON");
    let read: Job = serde_json::from_str(&stored).expect("it is read after a restart");
    assert_eq!(read, job);
}

fn check_frames(data: &[u8]) {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().build().expect("a runtime"));
    type Heard = io::Result<Option<NodeFrame>>;
    let both = |bytes: &[u8]| -> [Heard; 2] {
        [
            RUNTIME.block_on(frame_of_follower(bytes)),
            RUNTIME.block_on(frame_of_leader(bytes)),
        ]
    };
    for (number, heard) in both(data).into_iter().enumerate() {
        match heard {
            Ok(Some(frame)) => {
                // Sent on, it says the same.
                let again = both(&frame.written).into_iter().nth(number);
                let again = again.expect("both were asked").expect("a frame");
                assert_eq!(again.expect("it is known").written, frame.written);
                let gives_keys = data[4..].trim_ascii_start().starts_with(b"{\"keys\"");
                assert!(
                    !gives_keys || !frame.shown.contains(SECRET),
                    "{}",
                    frame.shown
                );
            }
            Ok(None) => {}
            Err(why) => assert!(why.to_string().chars().count() < 200, "{why}"),
        }
    }
}

/// What is read is written, and read again, the same.
fn read<T: DeserializeOwned + Serialize + PartialEq + Debug>(text: &str) -> Option<T> {
    let read: T = serde_json::from_str(text).ok()?;
    let written = serde_json::to_string(&read).expect("what was JSON can be JSON again");
    let again: T = serde_json::from_str(&written).expect("this version reads what it writes");
    assert_eq!(again, read);
    Some(read)
}

fn check_rows(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let _: Option<LinkEvent> = read(text);
    let parameters = read::<JobParameters>(text).unwrap_or_default();
    let request: Option<TransferRequest> = read(text);
    let state: Option<TransferState> = read(text);
    let event: Option<TransferEvent> = read(text);
    let request = request.unwrap_or_else(some_request);
    let entry = |event| LedgerEntry {
        sequence: 1,
        at: NOW,
        monotonic_us: 0,
        job: JobId(Uuid::nil()),
        transfer: request.id,
        event,
    };
    // Whatever a row says, its story can be told, and commands no terminal.
    let entries: Vec<_> = event.into_iter().map(entry).collect();
    let state = state.unwrap_or(TransferState::NotUsed);
    let told = story::log(&Facts {
        request: &request,
        user: &UserName::new("alice"),
        vo: &VoName::new("cms"),
        parameters: &parameters,
        entries: &entries,
        link_changes: &[],
        link_at_start: None,
        state: &state,
        waiting: None,
        now: NOW,
    });
    assert!(
        !told.chars().any(|c| c.is_control() && c != '\n'),
        "{told:?}"
    );
}
