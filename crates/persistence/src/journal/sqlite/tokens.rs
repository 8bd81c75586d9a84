//! Tokens that open jobs refer to, in the tables: sealed, and gone with the last job that needs them.

use super::at;
use super::reading::RecordQueries;
use crate::journal::SealedSecret;
use crate::journal::tokens;
use crate::sealing::{SealingError, SealingKeys, SecretKind};
use penstock_journal::{JournalError, TransferRow};
use penstock_model::{
    CredentialId, JobId, JobToken, Renewal, RenewedToken, StoredToken, Timestamp,
};
use rusqlite::{OptionalExtension, Transaction, params};
use std::collections::BTreeSet;

fn sealed(
    keys: &SealingKeys,
    kind: SecretKind,
    id: &CredentialId,
    secret: &str,
) -> rusqlite::Result<Vec<u8>> {
    keys.seal(kind, id.as_str(), secret.as_bytes())
        .map_err(|why| rusqlite::Error::ToSqlConversionFailure(Box::new(why)))
}

/// Tokens that a job refers to. One that another job has brought before stays as it is, because it may have been
/// renewed.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    keys: &SealingKeys,
    job: JobId,
    tokens: &[JobToken],
) -> rusqlite::Result<()> {
    let job = job.to_string();
    for token in tokens {
        let id = token.id.as_str();
        let secret = sealed(keys, SecretKind::Token, &token.id, &token.text)?;
        let sql = "INSERT OR IGNORE INTO sealed_credential (credential_id, sealed) VALUES (?1, ?2)";
        transaction
            .prepare_cached(sql)?
            .execute(params![id, secret])?;
        let sql = "INSERT OR IGNORE INTO credential_use (job_id, credential_id) VALUES (?1, ?2)";
        transaction.prepare_cached(sql)?.execute(params![job, id])?;
        let Some(renewal) = &token.renewal else {
            continue;
        };
        let sql =
            "INSERT OR IGNORE INTO token_renewal (credential_id, issuer, scope, audience, renew_ms)
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        transaction.prepare_cached(sql)?.execute(params![
            id,
            renewal.issuer,
            renewal.scope,
            renewal.audience,
            renewal.renew_at.0
        ])?;
    }
    Ok(())
}

/// Removes the tokens of a job that no other open job refers to. Costs a few look-ups for each of them.
pub(super) fn remove(transaction: &Transaction<'_>, job: &str) -> rusqlite::Result<()> {
    for table in ["sealed_credential", "token_renewal"] {
        let sql = format!(
            "DELETE FROM {table} WHERE credential_id IN (
                 SELECT credential_id FROM credential_use AS own WHERE job_id = ?1 AND NOT EXISTS (
                     SELECT 1 FROM credential_use AS other
                     WHERE other.credential_id = own.credential_id AND other.job_id <> ?1))"
        );
        transaction.prepare_cached(&sql)?.execute([job])?;
    }
    let sql = "DELETE FROM credential_use WHERE job_id = ?1";
    transaction.prepare_cached(sql)?.execute([job])?;
    Ok(())
}

/// Puts what an issuer gave in the place of what was there. Nothing happens when no open job needs the token any more.
pub(super) fn renew(
    transaction: &Transaction<'_>,
    keys: &SealingKeys,
    id: &CredentialId,
    renewed: &RenewedToken,
) -> rusqlite::Result<()> {
    let refresh = sealed(keys, SecretKind::RefreshToken, id, &renewed.refresh)?;
    let sql = "UPDATE token_renewal SET sealed_refresh = ?2 WHERE credential_id = ?1";
    let mut update = transaction.prepare_cached(sql)?;
    update.execute(params![id.as_str(), refresh])?;
    let Some((text, renew_at)) = &renewed.access else {
        return Ok(());
    };
    let sql = "UPDATE token_renewal SET renew_ms = ?2 WHERE credential_id = ?1";
    let mut update = transaction.prepare_cached(sql)?;
    update.execute(params![id.as_str(), renew_at.0])?;
    let secret = sealed(keys, SecretKind::Token, id, text)?;
    let sql = "UPDATE sealed_credential SET sealed = ?2 WHERE credential_id = ?1";
    let mut update = transaction.prepare_cached(sql)?;
    update.execute(params![id.as_str(), secret])?;
    Ok(())
}

impl RecordQueries<'_> {
    pub(super) fn token(
        &self,
        id: &CredentialId,
        keys: &SealingKeys,
    ) -> Result<Option<StoredToken>, JournalError> {
        let sql = "SELECT sealed, issuer, scope, audience, renew_ms, sealed_refresh
                   FROM sealed_credential LEFT JOIN token_renewal USING (credential_id) WHERE credential_id = ?1";
        let mut statement = self.connection.prepare_cached(sql).map_err(at(self.path))?;
        let found = statement.query_row([id.as_str()], |row| {
            let issuer: Option<String> = row.get(1)?;
            let renewal = match issuer {
                None => None,
                Some(issuer) => {
                    let renewal = Renewal {
                        issuer,
                        scope: row.get(2)?,
                        audience: row.get(3)?,
                        renew_at: Timestamp(row.get(4)?),
                    };
                    Some((renewal, row.get::<_, Option<Vec<u8>>>(5)?))
                }
            };
            Ok((row.get::<_, Vec<u8>>(0)?, renewal))
        });
        let Some((secret, renewal)) = found.optional().map_err(at(self.path))? else {
            return Ok(None);
        };
        let open = |kind: SecretKind, secret: &[u8]| {
            let sealed = |why| SealedSecret {
                journal: self.path.display().to_string(),
                what: "token",
                why,
            };
            let text = keys.open(kind, id.as_str(), secret).map_err(sealed)?;
            String::from_utf8(text).map_err(|_| sealed(SealingError::Damaged))
        };
        let text = open(SecretKind::Token, &secret)?;
        let renewal = match renewal {
            None => None,
            Some((renewal, None)) => Some((renewal, None)),
            Some((renewal, Some(secret))) => {
                Some((renewal, Some(open(SecretKind::RefreshToken, &secret)?)))
            }
        };
        Ok(Some(StoredToken { text, renewal }))
    }

    /// Tells which of the transfers wait for their tokens.
    pub(super) fn mark_awaiting(&self, transfers: &mut [TransferRow]) -> Result<(), JournalError> {
        tokens::mark_awaiting(transfers, |job| self.tokens_awaited(Some(job)))
    }

    /// Tokens that are to be renewed, and for which their issuers have given nothing yet: of one open job, or of all.
    pub(super) fn tokens_awaited(
        &self,
        of: Option<JobId>,
    ) -> Result<BTreeSet<CredentialId>, JournalError> {
        let of = of.map(|job| job.to_string());
        let sql = match of {
            Some(_) => {
                "SELECT credential_id FROM credential_use JOIN token_renewal USING (credential_id)
                 WHERE job_id = ?1 AND sealed_refresh IS NULL"
            }
            None => {
                "SELECT credential_id FROM token_renewal WHERE ?1 IS NULL AND sealed_refresh IS NULL"
            }
        };
        let mut statement = self.connection.prepare_cached(sql).map_err(at(self.path))?;
        let rows = statement.query_map([of], |row| row.get::<_, String>(0).map(CredentialId::new));
        rows.and_then(Iterator::collect).map_err(at(self.path))
    }
}
