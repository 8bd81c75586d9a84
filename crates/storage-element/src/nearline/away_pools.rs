//! Since when pools are away.

use penstock_model::{PoolName, Timestamp};
use std::collections::BTreeMap;

/// Since when which pool was seen to be away. A restart begins to count anew.
#[derive(Debug, Default)]
pub(super) struct AwayPools(BTreeMap<PoolName, Timestamp>);

impl AwayPools {
    /// Takes what is seen now; the pools that are back since the last look.
    pub(super) fn look(&mut self, away: &[PoolName], now: Timestamp) -> Vec<PoolName> {
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
    pub(super) fn away_since(&self, then: Timestamp) -> Vec<PoolName> {
        let long = self.0.iter().filter(|(_, since)| **since <= then);
        long.map(|(pool, _)| pool.clone()).collect()
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
        assert_eq!(pools.away_since(Timestamp(15)), [a.clone()]);
        assert_eq!(pools.look(std::slice::from_ref(&b), Timestamp(30)), [a]);
        assert_eq!(pools.away_since(Timestamp(30)), [b]);
    }
}
