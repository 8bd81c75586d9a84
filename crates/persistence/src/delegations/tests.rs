//! What the delegations must do, whatever keeps them.

use super::*;
use crate::postgres::lab;
use penstock_model::TransferId;
use rusqlite::Connection;
use std::collections::BTreeSet;
use std::path::PathBuf;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const HOUR: i64 = 3_600_000;

struct Lab {
    directory: tempfile::TempDir,
    keys: PathBuf,
    database: Option<Database>,
}

impl Lab {
    fn sqlite() -> Lab {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Lab {
            keys: directory.path().join("keys"),
            directory,
            database: None,
        }
    }

    fn postgres() -> Lab {
        Lab {
            database: Some(lab::database()),
            ..Lab::sqlite()
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("delegations.sqlite")
    }

    fn open(&self) -> Delegations {
        let keys = SealingKeys::load_or_create(&self.keys).expect("keys");
        match &self.database {
            Some(database) => Delegations::in_postgres(database, keys),
            None => Delegations::open(&self.path(), keys),
        }
        .expect("opens")
    }

    fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        match &self.database {
            Some(database) => lab::number(database, &sql),
            None => {
                let connection = Connection::open(self.path()).expect("opens");
                let count = connection.query_row(&sql, [], |row| row.get(0));
                count.expect("counted")
            }
        }
    }

    fn assert_holds_no(&self, secret: &str) {
        if let Some(database) = &self.database {
            return lab::assert_holds_no(database, secret);
        }
        for entry in std::fs::read_dir(self.directory.path()).expect("readable") {
            let path = entry.expect("readable").path();
            let bytes = std::fs::read(&path).expect("readable");
            let found = bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

macro_rules! on_each_back_end {
    ($($name:ident),* $(,)?) => {
        mod in_sqlite {
            $(#[test] fn $name() { super::$name(&super::Lab::sqlite()); })*
        }
        mod in_postgres {
            $(#[test] fn $name() { super::$name(&super::Lab::postgres()); })*
        }
    };
}

on_each_back_end! {
    a_request_survives_a_restart_and_ends_with_time,
    a_new_proxy_takes_the_place_of_the_old_and_its_request_is_answered,
    no_user_replaces_what_another_has_delegated,
    one_user_cannot_fill_the_store,
    what_an_old_key_sealed_is_sealed_anew_at_the_next_start,
    no_secret_is_in_the_files,
    a_secret_is_found_until_it_is_forgotten_and_is_nowhere_in_clear,
    what_no_setting_refers_to_goes_after_a_while,
    a_new_sealing_key_seals_secrets_anew,
    uploads_are_remembered_until_they_have_ended,
}

fn after(milliseconds: i64) -> Timestamp {
    Timestamp(NOW.0 + milliseconds)
}

fn keep(store: &Delegations, id: &str, secret: &[u8], expires: Timestamp) {
    let (id, user) = (CredentialId::new(id), UserName::new("/CN=Alice"));
    let of = Delegator {
        id: &id,
        user: &user,
    };
    let proxy = NewProxy {
        secret,
        expires,
        attributes: &["/dteam".to_owned()],
    };
    store.keep_proxy(of, &proxy, NOW).expect("kept");
}

fn ask(store: &Delegations, id: &str, key: &[u8], at: Timestamp) {
    let (id, user) = (CredentialId::new(id), UserName::new("/CN=Alice"));
    store
        .keep_request(
            Delegator {
                id: &id,
                user: &user,
            },
            key,
            at,
        )
        .expect("kept");
}

fn a_request_survives_a_restart_and_ends_with_time(lab: &Lab) {
    let id = CredentialId::new("a");
    ask(&lab.open(), "a", b"key", NOW);
    let store = lab.open();
    assert_eq!(
        store
            .open_request(&id, after(1))
            .expect("readable")
            .as_deref(),
        Some(b"key".as_slice())
    );
    assert_eq!(store.request_key(&id, after(HOUR)).expect("readable"), None);
    store.sweep(after(HOUR)).expect("swept");
    assert_eq!(lab.count("request"), 0);
}

fn a_new_proxy_takes_the_place_of_the_old_and_its_request_is_answered(lab: &Lab) {
    let store = lab.open();
    let id = CredentialId::new("a");
    ask(&store, "a", b"key", NOW);
    keep(&store, "a", b"old", after(HOUR));
    let (first, _) = store.proxy(&id).expect("readable").expect("kept");
    assert_eq!(store.open_request(&id, after(1)).expect("readable"), None);
    assert!(
        store
            .request_key(&id, after(1))
            .expect("readable")
            .is_some(),
        "a second client may still deliver"
    );
    keep(&store, "a", b"new", after(2 * HOUR));
    let (second, secret) = lab.open().proxy(&id).expect("readable").expect("kept");
    assert_eq!(secret, b"new");
    assert!(second.serial > first.serial);
    assert_eq!(
        (second.expires, second.attributes),
        (after(2 * HOUR), vec!["/dteam".to_owned()])
    );
    assert!(store.forget(&id).expect("forgotten"));
    assert!(!store.forget(&id).expect("nothing left"));
}

fn no_user_replaces_what_another_has_delegated(lab: &Lab) {
    let store = lab.open();
    keep(&store, "a", b"alices", after(HOUR));
    let (id, mallory) = (CredentialId::new("a"), UserName::new("/CN=Mallory"));
    let of = Delegator {
        id: &id,
        user: &mallory,
    };
    let proxy = NewProxy {
        secret: b"mallorys",
        expires: after(2 * HOUR),
        attributes: &[],
    };
    let refused = store.keep_proxy(of, &proxy, NOW);
    assert!(matches!(refused, Err(DelegationError::OtherUser { .. })));
    let (found, secret) = store.proxy(&id).expect("readable").expect("kept");
    assert_eq!(
        (found.user.as_str(), &secret[..]),
        ("/CN=Alice", &b"alices"[..])
    );
}

fn one_user_cannot_fill_the_store(lab: &Lab) {
    let store = lab.open();
    for number in 0..100 {
        ask(&store, &format!("r{number}"), b"key", after(number));
        keep(
            &store,
            &format!("d{number}"),
            b"proxy",
            after(HOUR + number),
        );
    }
    let count = |table: &str| lab.count(table);
    assert_eq!(
        (count("request"), count("delegation")),
        (REQUESTS_PER_USER, DELEGATIONS_PER_USER)
    );
    assert!(
        store
            .delegation(&CredentialId::new("d99"))
            .expect("readable")
            .is_some(),
        "the newest stays"
    );
    assert!(
        store
            .open_request(&CredentialId::new("r99"), after(99))
            .expect("readable")
            .is_some()
    );
}

fn what_an_old_key_sealed_is_sealed_anew_at_the_next_start(lab: &Lab) {
    keep(&lab.open(), "a", b"proxy", after(HOUR));
    let old = std::fs::read_to_string(&lab.keys).expect("readable");
    let new = "5a".repeat(32);
    std::fs::write(&lab.keys, format!("{new}\n{old}")).expect("written");
    drop(lab.open());
    std::fs::write(&lab.keys, format!("{new}\n")).expect("written");
    let found = lab
        .open()
        .proxy(&CredentialId::new("a"))
        .expect("opens with the new key alone");
    assert_eq!(found.expect("kept").1, b"proxy");
}

fn no_secret_is_in_the_files(lab: &Lab) {
    let store = lab.open();
    ask(&store, "a", b"-----the request's key-----", NOW);
    keep(&store, "a", b"-----the proxy's key-----", after(HOUR));
    lab.assert_holds_no("s key-----");
}

fn a_secret_is_found_until_it_is_forgotten_and_is_nowhere_in_clear(lab: &Lab) {
    let store = lab.open();
    let id = CredentialId::new("1");
    store
        .keep_cloud_secret(&id, b"wJalrXUtnFEMI", NOW)
        .expect("kept");
    assert_eq!(
        store.cloud_secret(&id).expect("readable").as_deref(),
        Some(b"wJalrXUtnFEMI".as_slice())
    );
    lab.assert_holds_no("wJalrXUtnFEMI");
    store
        .forget_cloud_secrets(std::slice::from_ref(&id))
        .expect("forgotten");
    assert_eq!(store.cloud_secret(&id).expect("readable"), None);
}

fn what_no_setting_refers_to_goes_after_a_while(lab: &Lab) {
    let store = lab.open();
    let (one, other) = (CredentialId::new("1"), CredentialId::new("2"));
    for id in [&one, &other] {
        store.keep_cloud_secret(id, b"secret", NOW).expect("kept");
    }
    let referred = BTreeSet::from([one.clone()]);
    store.sweep_cloud_secrets(&referred, NOW).expect("swept");
    assert!(
        store.cloud_secret(&other).expect("readable").is_some(),
        "it is new"
    );
    let later = NOW + Duration::from_secs(601);
    store.sweep_cloud_secrets(&referred, later).expect("swept");
    assert!(store.cloud_secret(&one).expect("readable").is_some());
    assert!(store.cloud_secret(&other).expect("readable").is_none());
}

fn a_new_sealing_key_seals_secrets_anew(lab: &Lab) {
    let store = lab.open();
    let id = CredentialId::new("1");
    store.keep_cloud_secret(&id, b"secret", NOW).expect("kept");
    let before = std::fs::read_to_string(&lab.keys).expect("readable");
    let new = "5a".repeat(32);
    std::fs::write(&lab.keys, format!("{new}\n{before}")).expect("written");
    store.keys.reload(&lab.keys).expect("valid");
    store.seal_anew().expect("sealed");
    std::fs::write(&lab.keys, format!("{new}\n")).expect("written");
    store.keys.reload(&lab.keys).expect("valid");
    assert!(store.cloud_secret(&id).expect("opens").is_some());
}

fn uploads_are_remembered_until_they_have_ended(lab: &Lab) {
    let store = lab.open();
    let upload = |transfer, name: &str| CloudUpload {
        transfer: TransferId(transfer),
        upload: name.to_owned(),
        url: "https://s3.example.org/b/f".to_owned(),
        begun: NOW,
    };
    for (transfer, name) in [(1, "a"), (1, "b"), (2, "a")] {
        store.note_upload(&upload(transfer, name)).expect("noted");
    }
    store.forget_upload(TransferId(1), "a").expect("forgotten");
    let of = |transfer| store.uploads(transfer, 10).expect("readable");
    assert_eq!(of(Some(TransferId(1))), vec![upload(1, "b")]);
    assert_eq!(of(None), vec![upload(1, "b"), upload(2, "a")]);
}

#[test]
fn a_store_without_the_tables_gets_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let keys = SealingKeys::load_or_create(&directory.path().join("keys")).expect("keys");
    let path = directory.path().join("delegations.sqlite");
    let old = Connection::open(&path).expect("made");
    old.execute_batch(super::sqlite::SCHEMA).expect("schema 1");
    old.pragma_update(None, "user_version", 1)
        .expect("schema 1");
    drop(old);
    let store = Delegations::open(&path, keys).expect("migrates");
    assert_eq!(store.uploads(None, 1).expect("readable"), vec![]);
}
