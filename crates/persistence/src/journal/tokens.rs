//! Which transfers wait for their tokens, in every back end.

use penstock_journal::TransferRow;
use penstock_model::{CredentialId, JobId, TransferState};
use std::collections::BTreeSet;

/// Tells which of the transfers wait for their tokens. `awaited_of` is asked once for each job that may have some.
pub(super) fn mark_awaiting<Failure>(
    transfers: &mut [TransferRow],
    mut awaited_of: impl FnMut(JobId) -> Result<BTreeSet<CredentialId>, Failure>,
) -> Result<(), Failure> {
    let mut known: Option<(JobId, BTreeSet<CredentialId>)> = None;
    for transfer in transfers {
        let mut tokens = transfer.request.tokens().peekable();
        let waits = matches!(
            transfer.state,
            TransferState::Submitted { .. } | TransferState::Staging { .. }
        );
        if !waits || tokens.peek().is_none() {
            continue;
        }
        let awaited = match &known {
            Some((job, awaited)) if *job == transfer.job => awaited,
            _ => {
                let awaited = awaited_of(transfer.job)?;
                &known.insert((transfer.job, awaited)).1
            }
        };
        transfer.awaits_token = tokens.any(|token| awaited.contains(token));
    }
    Ok(())
}
