//! Secrets of cloud storages, sealed, and uploads in parts that have begun there: what a restart must know to end them.

use super::{DelegationError, Delegations};
use crate::sealing::SecretKind;
use penstock_model::{CredentialId, Timestamp, TransferId};
use rusqlite::{OptionalExtension, params};
use std::collections::BTreeSet;
use std::time::Duration;

/// A secret may be stored before the setting that refers to it; one that nothing refers to after this time goes.
const UNREFERRED_KEPT: Duration = Duration::from_secs(600);

/// The tables, which schema 2 added.
pub(super) const TABLES: &str = "CREATE TABLE cloud_key (
        secret_id       TEXT PRIMARY KEY,
        made_ms         INTEGER NOT NULL,
        sealed_key      BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE cloud_upload (
        transfer_id     INTEGER NOT NULL,
        upload_id       TEXT NOT NULL,
        url             TEXT NOT NULL,
        begun_ms        INTEGER NOT NULL,
        PRIMARY KEY (transfer_id, upload_id)
    ) WITHOUT ROWID;";

/// An upload in parts that was begun and may not have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloudUpload {
    /// For which transfer.
    pub transfer: TransferId,
    /// The server's name for it.
    pub upload: String,
    /// Where, as the server was asked: no secret is in it.
    pub url: String,
    /// When.
    pub begun: Timestamp,
}

impl Delegations {
    /// Keeps the secret of a key of a cloud storage, under a name that was never used before.
    pub fn keep_cloud_secret(
        &self,
        id: &CredentialId,
        secret: &[u8],
        now: Timestamp,
    ) -> Result<(), DelegationError> {
        let sealed = self.keys.seal(SecretKind::CloudKey, id.as_str(), secret);
        let sealed = sealed.map_err(|why| self.sealed(why))?;
        self.write(|transaction| {
            let sql = "INSERT INTO cloud_key (secret_id, made_ms, sealed_key) VALUES (?1, ?2, ?3)";
            transaction.execute(sql, params![id.as_str(), now.0, sealed])?;
            Ok(())
        })
    }

    /// The secret under a name; `None` when it is gone.
    pub fn cloud_secret(&self, id: &CredentialId) -> Result<Option<Vec<u8>>, DelegationError> {
        let sealed: Option<Vec<u8>> = {
            let connection = self.lock();
            let sql = "SELECT sealed_key FROM cloud_key WHERE secret_id = ?1";
            let found = connection.query_row(sql, [id.as_str()], |row| row.get(0));
            found.optional().map_err(|why| self.failed(why))?
        };
        let open = |sealed: Vec<u8>| self.keys.open(SecretKind::CloudKey, id.as_str(), &sealed);
        sealed.map(open).transpose().map_err(|why| self.sealed(why))
    }

    /// Forgets secrets, as soon as no setting refers to them any more.
    pub fn forget_cloud_secrets(&self, ids: &[CredentialId]) -> Result<(), DelegationError> {
        self.write(|transaction| {
            for id in ids {
                let sql = "DELETE FROM cloud_key WHERE secret_id = ?1";
                transaction.execute(sql, [id.as_str()])?;
            }
            Ok(())
        })
    }

    /// Forgets secrets that no setting refers to: a crash left them.
    pub fn sweep_cloud_secrets(
        &self,
        referred: &BTreeSet<CredentialId>,
        now: Timestamp,
    ) -> Result<(), DelegationError> {
        let before = now.0 - UNREFERRED_KEPT.as_millis() as i64;
        let known: Vec<String> = {
            let connection = self.lock();
            let sql = "SELECT secret_id FROM cloud_key WHERE made_ms <= ?1";
            let mut select = connection
                .prepare_cached(sql)
                .map_err(|why| self.failed(why))?;
            let rows = select.query_map([before], |row| row.get(0));
            rows.and_then(Iterator::collect)
                .map_err(|why| self.failed(why))?
        };
        let known = known.into_iter().map(CredentialId::new);
        let orphans: Vec<CredentialId> = known.filter(|id| !referred.contains(id)).collect();
        match orphans.is_empty() {
            true => Ok(()),
            false => self.forget_cloud_secrets(&orphans),
        }
    }

    /// Remembers an upload before its first part is sent.
    pub fn note_upload(&self, upload: &CloudUpload) -> Result<(), DelegationError> {
        self.write(|transaction| {
            let sql = "INSERT OR REPLACE INTO cloud_upload (transfer_id, upload_id, url, begun_ms)
                       VALUES (?1, ?2, ?3, ?4)";
            transaction.execute(
                sql,
                params![upload.transfer.0, upload.upload, upload.url, upload.begun.0],
            )?;
            Ok(())
        })
    }

    /// Forgets an upload that has ended.
    pub fn forget_upload(&self, transfer: TransferId, upload: &str) -> Result<(), DelegationError> {
        self.write(|transaction| {
            let sql = "DELETE FROM cloud_upload WHERE transfer_id = ?1 AND upload_id = ?2";
            transaction.execute(sql, params![transfer.0, upload])?;
            Ok(())
        })
    }

    /// Uploads of one transfer, or of all (`None`), that may not have ended: the oldest first, at most `limit`.
    pub fn uploads(
        &self,
        transfer: Option<TransferId>,
        limit: usize,
    ) -> Result<Vec<CloudUpload>, DelegationError> {
        let sql = "SELECT transfer_id, upload_id, url, begun_ms FROM cloud_upload
                   WHERE ?1 IS NULL OR transfer_id = ?1 ORDER BY begun_ms LIMIT ?2";
        let connection = self.lock();
        let mut select = connection
            .prepare_cached(sql)
            .map_err(|why| self.failed(why))?;
        let transfer = transfer.map(|transfer| transfer.0);
        let rows = select.query_map(params![transfer, limit as i64], |row| {
            Ok(CloudUpload {
                transfer: TransferId(row.get(0)?),
                upload: row.get(1)?,
                url: row.get(2)?,
                begun: Timestamp(row.get(3)?),
            })
        });
        rows.and_then(Iterator::collect)
            .map_err(|why| self.failed(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealing::SealingKeys;
    use rusqlite::Connection;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn store() -> (tempfile::TempDir, Delegations) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let keys = SealingKeys::load_or_create(&directory.path().join("keys")).expect("keys");
        let path = directory.path().join("delegations.sqlite");
        let store = Delegations::open(&path, keys).expect("opens");
        (directory, store)
    }

    #[test]
    fn a_secret_is_found_until_it_is_forgotten_and_is_nowhere_in_clear() {
        let (directory, store) = store();
        let id = CredentialId::new("1");
        store
            .keep_cloud_secret(&id, b"wJalrXUtnFEMI", NOW)
            .expect("kept");
        assert_eq!(
            store.cloud_secret(&id).expect("readable").as_deref(),
            Some(b"wJalrXUtnFEMI".as_slice())
        );
        for file in std::fs::read_dir(directory.path()).expect("readable") {
            let bytes = std::fs::read(file.expect("there").path()).expect("readable");
            assert!(!bytes.windows(13).any(|window| window == b"wJalrXUtnFEMI"));
        }
        store
            .forget_cloud_secrets(std::slice::from_ref(&id))
            .expect("forgotten");
        assert_eq!(store.cloud_secret(&id).expect("readable"), None);
    }

    #[test]
    fn what_no_setting_refers_to_goes_after_a_while() {
        let (_directory, store) = store();
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

    #[test]
    fn a_new_sealing_key_seals_secrets_anew() {
        let (directory, store) = store();
        let id = CredentialId::new("1");
        store.keep_cloud_secret(&id, b"secret", NOW).expect("kept");
        let keys = directory.path().join("keys");
        let path = directory.path().join("delegations.sqlite");
        let used = crate::resealing::keys_in_use(&directory.path().join("none"), &path);
        assert_eq!(used.expect("readable").values().sum::<u64>(), 1);
        let before = std::fs::read_to_string(&keys).expect("readable");
        std::fs::write(&keys, format!("{}\n{before}", "5a".repeat(32))).expect("written");
        store.keys.reload(&keys).expect("valid");
        store.seal_anew().expect("sealed");
        std::fs::write(&keys, format!("{}\n", "5a".repeat(32))).expect("written");
        store.keys.reload(&keys).expect("valid");
        assert!(store.cloud_secret(&id).expect("opens").is_some());
    }

    #[test]
    fn uploads_are_remembered_until_they_have_ended() {
        let (_directory, store) = store();
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
        old.execute_batch(super::super::SCHEMA).expect("schema 1");
        old.pragma_update(None, "user_version", 1)
            .expect("schema 1");
        drop(old);
        let store = Delegations::open(&path, keys).expect("migrates");
        assert_eq!(store.uploads(None, 1).expect("readable"), vec![]);
    }
}
