//! Pools that are away, and what becomes of files in them that somebody waits for: their copies on tape are as good, so after a
//! while they are brought to other pools. Until all of a file has come, its copy in the pool that is away counts: a copy on tape
//! that cannot be read must not cost one that can, once its pool is back.

use super::{Driver, PAGE_FILES};
use crate::nearline::tape_system::TapeSystem;
use penstock_model::{PoolName, Timestamp};
use penstock_persistence::namespace::EntryId;
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
            self.note(pool, now);
        }
        back
    }

    /// A file waits for this pool, whenever the next look is: it may be back by then.
    fn note(&mut self, pool: &PoolName, now: Timestamp) {
        self.0.entry(pool.clone()).or_insert(now);
    }

    /// It has been away since then, or longer.
    fn is_away_since(&self, pool: &PoolName, then: Timestamp) -> bool {
        self.0.get(pool).is_some_and(|since| *since <= then)
    }
}

impl<S: TapeSystem> Driver<S> {
    /// Brings what somebody waits for and a pool that is away holds; ends the wait for what a pool holds that is back.
    pub(super) async fn look_after_away_pools(&mut self) {
        let now = self.recorded();
        let pools = self.context.pools.values();
        let away: Vec<PoolName> = pools
            .filter(|pool| !pool.is_in_reach())
            .map(|pool| pool.name.clone())
            .collect();
        for pool in self.away_pools.look(&away, now) {
            self.ask_gets_of(&pool).await;
        }
        for pool in away {
            if self.is_given_up(&pool) {
                self.ask_gets_of(&pool).await;
            }
        }
    }

    /// Somebody waits for a file in a pool that is away.
    pub(super) fn note_away_pool(&mut self, pool: &PoolName) {
        if self.context.pools.contains_key(pool) {
            let now = self.recorded();
            self.away_pools.note(pool, now);
        }
    }

    /// It has been away for so long that its files are brought from tape to other pools, and there is one that takes them.
    pub(super) fn is_given_up(&self, pool: &PoolName) -> bool {
        let wait_ms = i64::try_from(self.config.pool_away_wait.as_millis()).unwrap_or(i64::MAX);
        let then = Timestamp(self.recorded().0.saturating_sub(wait_ms));
        let mut others = self.context.pools.values();
        !self.is_in_reach(pool)
            && self.away_pools.is_away_since(pool, then)
            && others.any(|other| other.name != *pool && other.is_in_reach())
    }

    /// All files of a pool that somebody waits for and that are on tape.
    async fn ask_gets_of(&mut self, pool: &PoolName) {
        let mut after = EntryId(0);
        loop {
            let page = self
                .context
                .namespace
                .awaited_in_pool(pool, after, PAGE_FILES);
            let page = match page {
                Ok(page) => page,
                Err(why) => {
                    tracing::error!(%why, "files that somebody waits for cannot be listed");
                    return;
                }
            };
            let Some(last) = page.last() else { return };
            after = *last;
            self.ask_gets(page).await;
        }
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
        assert!(pools.is_away_since(&a, Timestamp(15)));
        assert!(!pools.is_away_since(&b, Timestamp(15)));
        assert_eq!(
            pools.look(std::slice::from_ref(&b), Timestamp(30)),
            std::slice::from_ref(&a)
        );
        assert!(pools.is_away_since(&b, Timestamp(30)));
        assert!(!pools.is_away_since(&a, Timestamp(30)));
        // One that came and went between two looks, while a file began to wait for it.
        pools.note(&a, Timestamp(40));
        assert_eq!(pools.look(&[b], Timestamp(50)), [a]);
    }
}
