//! Reads what has not ended from the journal while the engine takes it.

use penstock_engine::{Effects, Engine, EngineConfig, LeadershipMode, Now};
use penstock_journal::{Journal, JournalError};
use penstock_model::UnfinishedJob;
use std::sync::mpsc::SyncSender;

/// Transfers that are handed from the journal's reader to the engine at once, or those of one job if that has more.
const TRANSFERS_PER_BATCH: usize = 512;
/// Batches that were read and not yet taken.
const BATCHES_AHEAD: usize = 4;

/// The engine that continues what a journal holds. Jobs are read by a thread of its own while those before them are taken,
/// because each takes about as long as the other.
pub fn continue_from(
    journal: &mut dyn Journal,
    config: EngineConfig,
    leading: LeadershipMode,
    now: Now,
) -> Result<(Engine, Effects), JournalError> {
    let mut restoring = Engine::lead(config, leading, journal.load_standing()?, now);
    let (ahead, read) = std::sync::mpsc::sync_channel(BATCHES_AHEAD);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || read_ahead(journal, &ahead));
        for job in read.into_iter().flatten() {
            restoring.restore_job(job);
        }
        reading
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok(restoring.finish())
}

fn read_ahead(
    journal: &mut dyn Journal,
    ahead: &SyncSender<Vec<UnfinishedJob>>,
) -> Result<(), JournalError> {
    let (mut batch, mut transfers) = (Vec::new(), 0);
    journal.load_unfinished(&mut |job| {
        transfers += job.job.transfers.len();
        batch.push(job);
        if transfers >= TRANSFERS_PER_BATCH {
            transfers = 0;
            // Nobody takes them any more only after a panic.
            let _ = ahead.send(std::mem::take(&mut batch));
        }
    })?;
    let _ = ahead.send(batch);
    Ok(())
}
