//! What becomes of files in pools that are away, when somebody waits for them: their copies on tape are as good, so after a while
//! they are brought to other pools. The copies in the pool count no more then, and go when it is back.

use super::{Driver, PAGE_FILES};
use penstock_model::{PoolName, Timestamp};
use penstock_persistence::namespace::{EntryId, NearlineChange};

impl Driver {
    /// Brings what somebody waits for and a pool that is away holds; ends the wait for what a pool holds that is back.
    pub(super) async fn look_after_away_pools(&mut self) {
        let now = self.time();
        let pools = self.context.pools.values();
        let away: Vec<PoolName> = pools
            .filter(|pool| !pool.is_in_reach())
            .map(|pool| pool.name.clone())
            .collect();
        for pool in self.away_pools.look(&away, now) {
            let files = self.awaited_in(&pool);
            self.ask_gets(files).await;
        }
        let wait_ms = i64::try_from(self.config.pool_away_wait.as_millis()).unwrap_or(i64::MAX);
        let then = Timestamp(now.0.saturating_sub(wait_ms));
        for pool in self.away_pools.away_since(then) {
            let files = self.awaited_in(&pool);
            for file in &files {
                let (file, pool, at) = (*file, pool.clone(), now);
                let abandoned = self
                    .change(NearlineChange::Abandon { file, pool, at })
                    .await;
                if let Err(why) = abandoned {
                    tracing::warn!(%file, %why, "a file in a pool that is away cannot be brought from tape yet");
                }
            }
            if !files.is_empty() {
                let files = files.len();
                tracing::warn!(%pool, files, "files in a pool that is away are brought from tape to other pools");
            }
            self.ask_gets(files).await;
        }
    }

    fn awaited_in(&self, pool: &PoolName) -> Vec<EntryId> {
        let found = self.context.namespace.awaited_in_pool(pool, PAGE_FILES);
        let found = found.inspect_err(
            |why| tracing::error!(%why, "files that somebody waits for cannot be listed"),
        );
        found.unwrap_or_default()
    }
}
