//! Pools that are away, and what becomes of files in them that somebody waits for: their copies on tape are as good, so after a
//! while they are brought to other pools. The copies in the pool count no more then, and go when it is back.

use super::{Driver, PAGE_FILES};
use penstock_model::{PoolName, Timestamp};
use penstock_persistence::namespace::{EntryId, NearlineChange};
use std::collections::BTreeMap;

/// Since when which pool was seen to be away. A restart begins to count anew.
#[derive(Debug, Default)]
pub(super) struct AwayPools(BTreeMap<PoolName, Timestamp>);

impl AwayPools {
    /// Takes what is seen now; the pools that are back since the last look.
    fn look(&mut self, away: &[PoolName], now: Timestamp) -> Vec<PoolName> {
        let back: Vec<PoolName> = self
            .0
            .keys()
            .filter(|pool| !away.contains(pool))
            .cloned()
            .collect();
        self.0.retain(|pool, _| away.contains(pool));
        for pool in away {
            self.0.entry(pool.clone()).or_insert(now);
        }
        back
    }

    /// Those that have been away since then, or longer.
    fn away_since(&self, then: Timestamp) -> Vec<PoolName> {
        let long = self.0.iter().filter(|(_, since)| **since <= then);
        long.map(|(pool, _)| pool.clone()).collect()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_away_since_it_was_first_seen_so_and_back_once() {
        let (a, b) = (PoolName::new("a"), PoolName::new("b"));
        let mut pools = AwayPools::default();
        assert!(
            pools
                .look(std::slice::from_ref(&a), Timestamp(10))
                .is_empty()
        );
        assert!(
            pools
                .look(&[a.clone(), b.clone()], Timestamp(20))
                .is_empty()
        );
        assert_eq!(pools.away_since(Timestamp(15)), std::slice::from_ref(&a));
        assert_eq!(pools.look(std::slice::from_ref(&b), Timestamp(30)), [a]);
        assert_eq!(pools.away_since(Timestamp(30)), [b]);
    }
}
