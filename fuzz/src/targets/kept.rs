//! What an operator hands to the program, or what lies on its disk: backups, sealed secrets, the configuration of an FTS3, plans
//! of simulations; and what servers say that its commands speak with.

use super::{Target, texts};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use penstock_field_tools::credentials::ShownCredentials;
use penstock_field_tools::fts3_configuration::ApiConfiguration;
use penstock_field_tools::remote_error::RemoteError;
use penstock_model::Timestamp;
use penstock_persistence::backup::{
    BackupError, BackupOf, JournalLocation, RestoreTo, back_up, files, restore, verify,
};
use penstock_persistence::journal::SqliteJournal;
use penstock_persistence::sealing::{SealingKeys, SecretKind};
use penstock_protocol::problem::PROBLEM_HEADER;
use penstock_sim::Plan;
use penstock_sim::plan::limits;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use tempfile::TempDir;
use url::Url;

/// Bytes of one change of a backup: where, as little-endian number, and what.
const CHANGE_BYTES: usize = 4;
/// Characters of a server's words that a command shows, with the URL that was asked.
const DETAIL_CHARS_MAX: usize = 400;

pub const BACKUPS: Target = Target {
    name: "backups",
    check: check_backup,
    // None, the first bytes, the number of pages, the end, and somewhere.
    seeds: || {
        vec![
            vec![],
            vec![0, 0, 0, b'X'],
            vec![28, 0, 0, 0xff, 31, 0, 0, 1],
            vec![0xff, 0xff, 0xff, 0],
            vec![100, 0, 0, 5, 103, 0, 0, 0xff, 0, 0x10, 0, 2],
        ]
    },
};

pub const SEALED: Target = Target {
    name: "sealed_secrets",
    check: check_sealed,
    seeds: || {
        vec![
            vec![1; 64],
            vec![0; 40],
            b"eyJhbGciOiJub25lIn0.e30.".to_vec(),
        ]
    },
};

pub const IMPORTS: Target = Target {
    name: "fts3_configurations",
    check: check_import,
    seeds: || {
        texts(&[
            r#"{"links":[{"symbolicname":"*","source":"*","destination":"*","min_active":2,"max_active":130,"optimizer_mode":2,
               "nostreams":4}],"se":{"*":{"se_info":{"inbound_max_active":200,"outbound_max_active":0}},
               "davs://c":{"operations":{"cms":{"staging":10}}}},"global":{"*":{"retry":0,"max_time_queue":48}},
               "shares":[{"source":"*","destination":"https://b","vo":"cms","share":0}],
               "activity_shares":{"cms":{"share":[{"Production":0.7},{"debug":0}],"active":true}}}"#,
            r#"[{"symbolicname":"a-b","source":"https://a","destination":"https://b","max_active":20.0}]"#,
            r#"{"https://d":{"se_info":{"site":"D","tpc_support":"PULL"}}}"#,
            r#"{"*":{"retry":3,"max_time_queue":"x"}}"#,
            r#"{"links":[],"activity_shares":{"cms":{"a":1,"A":2}},"authorize":[1]}"#,
        ])
    },
};

pub const PLANS: Target = Target {
    name: "plans",
    check: check_plan,
    seeds: || {
        vec![
            penstock_sim::plan::EXAMPLES[0].1.as_bytes().to_vec(),
            b"length = \"1h\"\nseed = 7\n[[storage]]\nname = [\"a\", \"b\"]\nread = \"1GB/s\"\nwrite = \"1GB/s\"\n\
              [[network]]\nfrom = \"*\"\nto = \"*\"\nbandwidth = \"10Gbit/s\"\nrtt = \"10ms\"\nloss = 1e-5\n\
              [[load]]\nfrom = \"a\"\nto = \"b\"\nfiles = 10\nsize = \"1GB\"\nspread = 0.5\n\
              [[event]]\nat = \"5m\"\nwhat = \"storage-slow\"\nstorage = \"a\"\nspeed = 0.1\nlasts = \"5m\"\n"
                .to_vec(),
        ]
    },
};

pub const REFUSALS: Target = Target {
    name: "servers_refusals",
    check: check_refusal,
    seeds: || {
        texts(&[
            "",
            "no such file",
            r#"{"message":"the job is not there","http_status":404}"#,
            "<html><body>Bad Gateway</body></html>",
            "\u{1b}[31mred",
        ])
    },
};

struct Lab {
    directory: TempDir,
    backup: Vec<u8>,
}

/// A good backup, made once.
static LAB: LazyLock<Lab> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    let keys = SealingKeys::of_this_process().expect("OpenSSL works");
    drop(SqliteJournal::open(&at("transfer.sqlite"), keys).expect("opens"));
    let of = BackupOf {
        kept: JournalLocation::Files {
            journal: at("transfer.sqlite"),
            delegations: at("delegations.sqlite"),
        },
        files: vec![("penstock.toml".to_owned(), b"[site]".to_vec())],
        positions: vec![("broker".to_owned(), 3)],
        at: Timestamp(5000),
        bytes_per_second: u64::MAX,
        stopped: Arc::default(),
    };
    back_up(&of, &at("good.backup")).expect("a backup");
    let backup = std::fs::read(at("good.backup")).expect("readable");
    Lab { directory, backup }
});

fn check_backup(data: &[u8]) {
    let mut backup = LAB.backup.clone();
    for change in data.chunks_exact(CHANGE_BYTES) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize;
        let place = place % backup.len();
        backup[place] = change[3];
    }
    if let [cut, _] = data.chunks_exact(CHANGE_BYTES).remainder() {
        backup.truncate(backup.len() * usize::from(*cut) / 256);
    }
    let directory = tempfile::tempdir_in(LAB.directory.path()).expect("a directory");
    let path = directory.path().join("a.backup");
    std::fs::write(&path, &backup).expect("written");
    let to = RestoreTo {
        kept: JournalLocation::Files {
            journal: directory.path().join("new/transfer.sqlite"),
            delegations: directory.path().join("new/delegations.sqlite"),
        },
        replaces: false,
        scratch: directory.path().to_owned(),
        at: Timestamp(9000),
    };
    std::fs::create_dir(directory.path().join("new")).expect("made");
    let names = files(&path).map(|files| files.len());
    let verified = verify(&path);
    match restore(&path, &to) {
        Ok(restored) => {
            assert!(
                verified.is_ok() && names.is_ok(),
                "what cannot be verified is not restored"
            );
            for (sink, _) in &restored.positions {
                let named = Path::new(sink).file_name().and_then(|name| name.to_str());
                assert_eq!(
                    named,
                    Some(sink.as_str()),
                    "the name of a file, and no path"
                );
            }
            let keys = SealingKeys::of_this_process().expect("OpenSSL works");
            let JournalLocation::Files { journal, .. } = &to.kept else {
                return;
            };
            // It is a journal, or is refused with a reason.
            if let Err(why) = SqliteJournal::open(journal, keys) {
                assert!(!why.to_string().is_empty());
            }
        }
        Err(BackupError::Unusable { why, .. }) => {
            assert!(!why.is_empty());
            let made = std::fs::read_dir(directory.path().join("new")).expect("there");
            let journal = |name: std::fs::DirEntry| name.file_name() == "transfer.sqlite";
            assert!(
                !made.flatten().any(journal),
                "a bad backup leaves no journal"
            );
        }
        Err(why) => panic!("{why}"),
    }
    assert_eq!(
        std::fs::read(&path).expect("readable"),
        backup,
        "it is only read"
    );
}

fn check_sealed(data: &[u8]) {
    static KEYS: LazyLock<SealingKeys> =
        LazyLock::new(|| SealingKeys::of_this_process().expect("OpenSSL works"));
    let kind = SecretKind::Token;
    // Nothing opens that these keys have not sealed.
    assert!(KEYS.open(kind, "a", data).is_err());
    let sealed = KEYS.seal(kind, "a", data).expect("sealed");
    assert_eq!(KEYS.open(kind, "a", &sealed).ok().as_deref(), Some(data));
    assert!(KEYS.open(kind, "b", &sealed).is_err(), "it is another's");
    let (place, bit) = match data {
        [first, second, ..] => (usize::from(*first), 1 << (second % 8)),
        _ => (0, 1),
    };
    let mut changed = sealed;
    let place = place % changed.len();
    changed[place] ^= bit;
    assert!(
        KEYS.open(kind, "a", &changed).is_err(),
        "byte {place} was changed"
    );
}

fn check_import(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(data) else {
        return;
    };
    let mut found = ApiConfiguration::default();
    if found.add(value).is_err() {
        return;
    }
    let first = found.against(&ApiConfiguration::default());
    assert!(first.steps.len() <= data.len() && first.left_out.len() <= data.len());
    for step in &first.steps {
        assert!(step.form.is_object() && step.told.len() <= 4 * data.len() + 100);
    }
    // What has been taken over once changes nothing when it is taken over again.
    let again = found.against(&found);
    assert!(again.steps.is_empty(), "{:?}", again.steps);
    assert_eq!(again.unchanged, first.steps.len());
}

fn check_plan(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let plan = match Plan::parse(text) {
        Ok(plan) => plan,
        Err(why) => return assert!(!why.to_string().is_empty()),
    };
    // What is accepted can be simulated: it is bounded, and there is no number that is none.
    assert!(plan.seconds > 0.0 && plan.seconds <= limits::SECONDS);
    assert!(plan.storages.len() <= limits::STORAGES && plan.networks.len() <= limits::NETWORKS);
    assert!(plan.events.len() <= limits::EVENTS && plan.vos.len() <= limits::VOS);
    assert!(plan.files() <= limits::FILES);
    let pairs: usize = plan.loads.iter().map(|load| load.pairs.len()).sum();
    assert!(pairs <= limits::PAIRS);
    let positive = |number: f64| number.is_finite() && number > 0.0;
    let not_negative = |number: f64| number.is_finite() && number >= 0.0;
    for storage in &plan.storages {
        assert!(positive(storage.read) && positive(storage.write) && not_negative(storage.latency));
        assert!(
            (0.0..=1.0).contains(&storage.failures),
            "{}",
            storage.failures
        );
    }
    for network in &plan.networks {
        assert!(network.from < plan.storages.len() && network.to < plan.storages.len());
        assert!(
            positive(network.bandwidth) && positive(network.per_transfer),
            "{network:?}"
        );
        assert!(
            not_negative(network.rtt) && not_negative(network.others),
            "{network:?}"
        );
        assert!((0.0..=1.0).contains(&network.others_swing));
    }
    for load in &plan.loads {
        assert!(
            load.job >= 1 && load.job <= limits::JOB && load.users >= 1,
            "{load:?}"
        );
        assert!(
            not_negative(load.size) && not_negative(load.spread),
            "{load:?}"
        );
        assert!(
            not_negative(load.begin) && not_negative(load.over),
            "{load:?}"
        );
        let ends = load.pairs.iter().flat_map(|(from, to)| [from, to]);
        assert!(ends.into_iter().all(|end| *end < plan.storages.len()));
    }
    for event in &plan.events {
        assert!(
            not_negative(event.at) && event.lasts.is_none_or(not_negative),
            "{event:?}"
        );
    }
}

fn check_refusal(data: &[u8]) {
    let url = Url::parse("https://se.example.org/f?authz=secret").expect("a URL");
    for status in [400, 401, 404, 500] {
        let status = StatusCode::from_u16(status).expect("a status");
        for media_type in ["application/json", "text/plain"] {
            let headers = HeaderMap::from_iter([
                (CONTENT_TYPE, HeaderValue::from_static(media_type)),
                (PROBLEM_HEADER, HeaderValue::from_static("pool-full")),
            ]);
            let refused =
                RemoteError::of_status(&url, status, &ShownCredentials::Nothing, &headers, data);
            // What a server says commands no terminal, fills no screen, and hides no line.
            for told in [refused.to_string(), refused.problem().message] {
                assert!(told.chars().count() <= DETAIL_CHARS_MAX, "{told}");
                assert!(!told.contains("authz=secret"));
                assert!(!told.chars().any(char::is_control), "{told:?}");
            }
        }
    }
}
