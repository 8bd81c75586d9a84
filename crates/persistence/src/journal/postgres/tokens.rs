//! Reading the tokens that open jobs refer to.

use crate::journal::SealedSecret;
use crate::journal::tokens;
use crate::postgres::session::OpenTransaction;
use crate::postgres::text;
use crate::sealing::{SealingError, SealingKeys, SecretKind};
use penstock_journal::{JournalError, TransferRow};
use penstock_model::{CredentialId, JobId, Renewal, StoredToken, Timestamp};
use std::collections::BTreeSet;

pub(super) fn token(
    open: &mut OpenTransaction<'_>,
    id: &CredentialId,
    keys: &SealingKeys,
) -> Result<Option<StoredToken>, JournalError> {
    let row = open.query_opt(
        "SELECT sealed, issuer, scope, audience, renew_ms, sealed_refresh
         FROM sealed_credential LEFT JOIN token_renewal USING (credential_id) WHERE credential_id = $1",
        &[&text(id.as_str())],
    )?;
    let Some(row) = row else {
        return Ok(None);
    };
    let unsealed = |kind: SecretKind, secret: &[u8]| {
        let sealed = |why| SealedSecret {
            journal: open.database().to_string(),
            what: "token",
            why,
        };
        let text = keys.open(kind, id.as_str(), secret).map_err(sealed)?;
        String::from_utf8(text).map_err(|_| sealed(SealingError::Damaged))
    };
    let renewal = match row.get::<_, Option<String>>(1) {
        None => None,
        Some(issuer) => {
            let refresh = row.get::<_, Option<&[u8]>>(5);
            let refresh = refresh.map(|secret| unsealed(SecretKind::RefreshToken, secret));
            let renewal = Renewal {
                issuer,
                scope: row.get(2),
                audience: row.get(3),
                renew_at: Timestamp(row.get(4)),
            };
            Some((renewal, refresh.transpose()?))
        }
    };
    Ok(Some(StoredToken {
        text: unsealed(SecretKind::Token, row.get(0))?,
        renewal,
    }))
}

/// Tells which of the transfers wait for their tokens.
pub(super) fn mark_awaiting(
    open: &mut OpenTransaction<'_>,
    transfers: &mut [TransferRow],
) -> Result<(), JournalError> {
    tokens::mark_awaiting(transfers, |job| awaited_of(open, job))
}

fn awaited_of(
    open: &mut OpenTransaction<'_>,
    job: JobId,
) -> Result<BTreeSet<CredentialId>, JournalError> {
    let sql = "SELECT credential_id FROM credential_use JOIN token_renewal USING (credential_id)
               WHERE job_id = $1 AND sealed_refresh IS NULL";
    let rows = open.query(sql, &[&job.0])?;
    Ok(rows
        .iter()
        .map(|row| CredentialId::new(row.get::<_, &str>(0)))
        .collect())
}

/// Tokens that are to be renewed, and for which their issuers have given nothing yet.
pub(super) fn awaited(
    open: &mut OpenTransaction<'_>,
) -> Result<BTreeSet<CredentialId>, JournalError> {
    let sql = "SELECT credential_id FROM token_renewal WHERE sealed_refresh IS NULL";
    let rows = open.query(sql, &[])?;
    Ok(rows
        .iter()
        .map(|row| CredentialId::new(row.get::<_, &str>(0)))
        .collect())
}
