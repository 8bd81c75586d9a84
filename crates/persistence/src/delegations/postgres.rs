//! The delegations in PostgreSQL, beside the journal: any node may write them, and agents on any node read them. Each
//! change may be made twice without harm, so that one whose connection was lost is tried once more.

use super::store::{NewDelegation, NewRequest, Request, Store};
use super::{
    CloudUpload, DELEGATIONS_PER_USER, Delegation, DelegationError, REQUESTS_MAX, REQUESTS_PER_USER,
};
use crate::postgres::session::{OpenTransaction, Purpose, Sessions};
use crate::postgres::{Database, DatabaseError, resealing, schema, text};
use crate::resealing::{Pass, SealedColumn};
use crate::sealing::SealingKeys;
use crate::sql_integer::{from_sql, to_sql};
use ::postgres::Row;
use penstock_model::{Timestamp, TransferId, UserName};

/// Changes and questions that are under way at once.
const CONNECTIONS: usize = 2;

#[derive(Debug)]
pub(super) struct PostgresStore {
    sessions: Sessions,
}

impl PostgresStore {
    pub(super) fn open(database: &Database) -> Result<PostgresStore, DelegationError> {
        let sessions = Sessions::start(database, Purpose::Write, CONNECTIONS)?;
        sessions.run(schema::migrate)?;
        Ok(PostgresStore { sessions })
    }

    fn transact<T: Send + 'static>(
        &self,
        mut work: impl FnMut(&mut OpenTransaction<'_>) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DelegationError> {
        let done = self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            let value = work(&mut open)?;
            open.commit()?;
            Ok::<_, DatabaseError>(value)
        });
        Ok(done?)
    }
}

impl Store for PostgresStore {
    fn name(&self) -> String {
        self.sessions.database().to_string()
    }

    fn request(&self, id: &str, begun_ms: i64) -> Result<Option<Request>, DelegationError> {
        let id = text(id);
        self.transact(move |open| {
            let sql = "SELECT sealed_key, answered FROM request WHERE delegation_id = $1 AND made_ms > $2";
            let row = open.query_opt(sql, &[&id, &begun_ms])?;
            Ok(row.map(|row| Request {
                sealed_key: row.get(0),
                is_answered: row.get(1),
            }))
        })
    }

    fn keep_request(&self, new: NewRequest) -> Result<(), DelegationError> {
        let (id, user) = (text(&new.id), text(&new.user));
        self.transact(move |open| {
            open.execute("DELETE FROM request WHERE made_ms <= $1", &[&new.begun_ms])?;
            open.execute(
                "INSERT INTO request (delegation_id, username, made_ms, sealed_key) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (delegation_id) DO UPDATE SET username = excluded.username, made_ms = excluded.made_ms,
                 sealed_key = excluded.sealed_key, answered = false",
                &[&id, &user, &new.made_ms, &new.sealed_key],
            )?;
            open.execute(
                "DELETE FROM request WHERE delegation_id IN (SELECT delegation_id FROM request
                 WHERE username = $1 ORDER BY made_ms DESC OFFSET $2)",
                &[&user, &REQUESTS_PER_USER],
            )?;
            open.execute(
                "DELETE FROM request WHERE delegation_id IN (SELECT delegation_id FROM request
                 ORDER BY made_ms DESC OFFSET $1)",
                &[&REQUESTS_MAX],
            )?;
            Ok(())
        })
    }

    fn keep_proxy(&self, new: NewDelegation) -> Result<(), DelegationError> {
        let name = new.id.clone();
        let (id, user) = (text(&new.id), text(&new.user));
        let is_kept = self.transact(move |open| {
            open.execute("DELETE FROM delegation WHERE expires_ms <= $1", &[&new.ended_ms])?;
            // Clocks of nodes may differ; the serial must not go back.
            let kept = open.execute(
                "INSERT INTO delegation (delegation_id, username, serial, made_ms, expires_ms, attributes,
                     sealed_proxy) VALUES ($1, $2, $3, $3, $4, $5, $6)
                 ON CONFLICT (delegation_id) DO UPDATE SET
                     serial = greatest(delegation.serial + 1, excluded.serial),
                     made_ms = excluded.made_ms, expires_ms = excluded.expires_ms,
                     attributes = excluded.attributes, sealed_proxy = excluded.sealed_proxy
                 WHERE delegation.username = excluded.username",
                &[&id, &user, &new.made_ms, &new.expires_ms, &new.attributes, &new.sealed_proxy],
            )?;
            open.execute(
                "DELETE FROM delegation WHERE delegation_id IN (SELECT delegation_id FROM delegation
                 WHERE username = $1 AND delegation_id <> $3 ORDER BY expires_ms DESC OFFSET $2)",
                &[&user, &(DELEGATIONS_PER_USER - 1), &id],
            )?;
            open.execute("UPDATE request SET answered = true WHERE delegation_id = $1", &[&id])?;
            Ok(kept > 0)
        })?;
        match is_kept {
            true => Ok(()),
            false => Err(DelegationError::OtherUser { id: name }),
        }
    }

    fn delegation(&self, id: &str) -> Result<Option<(Delegation, Vec<u8>)>, DelegationError> {
        let id = text(id);
        self.transact(move |open| {
            let sql =
                "SELECT serial, expires_ms, attributes, username, sealed_proxy FROM delegation
                 WHERE delegation_id = $1";
            let row = open.query_opt(sql, &[&id])?;
            Ok(row.map(|row| (described(&row), row.get(4))))
        })
    }

    fn forget(&self, id: &str) -> Result<bool, DelegationError> {
        let id = text(id);
        self.transact(move |open| {
            open.execute("DELETE FROM request WHERE delegation_id = $1", &[&id])?;
            let gone = open.execute("DELETE FROM delegation WHERE delegation_id = $1", &[&id])?;
            Ok(gone > 0)
        })
    }

    fn sweep(&self, begun_ms: i64, ended_ms: i64) -> Result<(), DelegationError> {
        self.transact(move |open| {
            open.execute("DELETE FROM request WHERE made_ms <= $1", &[&begun_ms])?;
            open.execute(
                "DELETE FROM delegation WHERE expires_ms <= $1",
                &[&ended_ms],
            )?;
            Ok(())
        })
    }

    fn seal_some_anew(
        &self,
        keys: &SealingKeys,
        pass: Pass,
        place: SealedColumn,
    ) -> Result<Pass, DelegationError> {
        let keys = keys.clone();
        self.transact(move |open| {
            let [pass] = resealing::advance(open, &keys, [pass.clone()], [place])?;
            Ok(pass)
        })
    }

    fn keep_cloud_secret(
        &self,
        id: &str,
        made_ms: i64,
        sealed: Vec<u8>,
    ) -> Result<(), DelegationError> {
        let id = text(id);
        self.transact(move |open| {
            let sql = "INSERT INTO cloud_key (secret_id, made_ms, sealed_key) VALUES ($1, $2, $3)
                       ON CONFLICT (secret_id) DO UPDATE SET sealed_key = excluded.sealed_key";
            open.execute(sql, &[&id, &made_ms, &sealed])?;
            Ok(())
        })
    }

    fn cloud_secret(&self, id: &str) -> Result<Option<Vec<u8>>, DelegationError> {
        let id = text(id);
        self.transact(move |open| {
            let sql = "SELECT sealed_key FROM cloud_key WHERE secret_id = $1";
            Ok(open.query_opt(sql, &[&id])?.map(|row| row.get(0)))
        })
    }

    fn cloud_secrets_until(&self, made_ms: i64) -> Result<Vec<String>, DelegationError> {
        self.transact(move |open| {
            let sql = "SELECT secret_id FROM cloud_key WHERE made_ms <= $1";
            let rows = open.query(sql, &[&made_ms])?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
    }

    fn forget_cloud_secrets(&self, ids: Vec<String>) -> Result<(), DelegationError> {
        self.transact(move |open| {
            open.execute("DELETE FROM cloud_key WHERE secret_id = ANY($1)", &[&ids])?;
            Ok(())
        })
    }

    fn note_upload(&self, upload: CloudUpload) -> Result<(), DelegationError> {
        let name = text(&upload.upload);
        self.transact(move |open| {
            let sql = "INSERT INTO cloud_upload (transfer_id, upload_id, url, begun_ms) VALUES ($1, $2, $3, $4)
                       ON CONFLICT (transfer_id, upload_id) DO UPDATE SET url = excluded.url,
                       begun_ms = excluded.begun_ms";
            let transfer = to_sql(upload.transfer.0);
            open.execute(sql, &[&transfer, &name, &text(&upload.url), &upload.begun.0])?;
            Ok(())
        })
    }

    fn forget_upload(&self, transfer: TransferId, upload: &str) -> Result<(), DelegationError> {
        let (transfer, upload) = (to_sql(transfer.0), text(upload));
        self.transact(move |open| {
            let sql = "DELETE FROM cloud_upload WHERE transfer_id = $1 AND upload_id = $2";
            open.execute(sql, &[&transfer, &upload])?;
            Ok(())
        })
    }

    fn uploads(
        &self,
        transfer: Option<TransferId>,
        limit: usize,
    ) -> Result<Vec<CloudUpload>, DelegationError> {
        let transfer = transfer.map(|transfer| to_sql(transfer.0));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.transact(move |open| {
            let sql = "SELECT transfer_id, upload_id, url, begun_ms FROM cloud_upload
                       WHERE $1::bigint IS NULL OR transfer_id = $1 ORDER BY begun_ms LIMIT $2";
            let rows = open.query(sql, &[&transfer, &limit])?;
            let uploads = rows.iter().map(|row| CloudUpload {
                transfer: TransferId(from_sql(row.get(0))),
                upload: row.get(1),
                url: row.get(2),
                begun: Timestamp(row.get(3)),
            });
            Ok(uploads.collect())
        })
    }
}

/// From the columns serial, expires_ms and attributes, which come first.
fn described(row: &Row) -> Delegation {
    Delegation {
        serial: from_sql(row.get(0)),
        expires: Timestamp(row.get(1)),
        attributes: serde_json::from_str(row.get(2)).unwrap_or_default(),
        user: UserName::new(row.get::<_, &str>(3)),
    }
}
