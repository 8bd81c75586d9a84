//! Which pool takes a new file.
//!
//! A draw among the pools that can take it, weighted by free space and halved for every few writers, so
//! that files spread, nothing clumps on the emptiest pool, and the survivors share evenly when a pool
//! leaves. A pool that is left out is named with the reason, and an operator should hear of it when it is
//! full, drained or disabled.
//!
//! Removed files are kept as long as any pool has room without them: those whose trash would have to give way are
//! drawn from only when there is no other.

use crate::Decision;
use crate::pool_condition::PoolCondition;
use penstock_model::{Bytes, PoolName};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Running and waiting writers that halve a pool's weight.
const WRITERS_THAT_HALVE: u32 = 8;
/// Free space is weighed in units of this, so that weights stay small and a nearly full pool keeps a
/// little weight.
const WEIGHT_UNIT_BYTES: u64 = 1 << 20;

/// Space that is promised to one writer ahead of its bytes, at most: a disk likes pieces of this size.
const PROMISED_AHEAD_BYTES_MAX: u64 = 256 << 20;

/// What a writer may be promised of a file that is announced and has not come, so that all movers of the pool together
/// are promised half of what is free at most.
pub fn promised_ahead(free: Bytes, movers_max: u32) -> Bytes {
    let share = free.0 / 2 / u64::from(movers_max.max(1));
    Bytes(share.min(PROMISED_AHEAD_BYTES_MAX))
}

/// What an operator allows a pool to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolMode {
    /// Takes and gives files.
    #[default]
    Enabled,
    /// Gives files and takes none, for example before its disk is replaced.
    Drained,
    /// Neither takes nor gives files.
    Disabled,
}

impl PoolMode {
    /// The word in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            PoolMode::Enabled => "enabled",
            PoolMode::Drained => "drained",
            PoolMode::Disabled => "disabled",
        }
    }

    /// Whether it takes new files, if it has room.
    pub fn takes_new_files(self) -> bool {
        match self {
            PoolMode::Enabled => true,
            PoolMode::Drained | PoolMode::Disabled => false,
        }
    }
}

/// A pool at the moment of the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    pub pool: PoolName,
    /// What it may do.
    pub mode: PoolMode,
    /// Whether its disk does its work.
    pub condition: PoolCondition,
    /// Bytes that a new file may have: what the file system and the pool's capacity leave, less what
    /// running writers have announced.
    pub free: Bytes,
    /// What it would have besides if its trash were removed.
    pub trash: Bytes,
    /// Files that its file system can still take, as far as it has a limit of them. With none left nothing is free.
    pub files_left: Option<u64>,
    /// Writers that run or wait for a mover.
    pub writers: u32,
    /// Its queue takes no more movers.
    pub queue_full: bool,
}

impl PoolView {
    /// The same as far as it is known: not of a disk that is away or does not answer.
    pub fn known_available(&self) -> Option<Bytes> {
        self.condition.tells_space().then(|| self.available())
    }

    /// Files that its file system can still take, as far as it has a limit of them and that is known.
    pub fn known_files_left(&self) -> Option<u64> {
        self.files_left.filter(|_| self.condition.tells_space())
    }

    /// What a new file may have when everything gives way that may.
    pub fn available(&self) -> Bytes {
        Bytes(self.free.0.saturating_add(self.trash.0))
    }
}

/// A file that needs a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacementRequest {
    /// Its size, when the sender announced one.
    pub size: Option<Bytes>,
    /// Chance: a uniformly distributed number, drawn by the caller.
    pub draw: u64,
}

/// Why no pool takes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementRefusal {
    NoPoolEnabled,
    /// No pool with a sound disk has room for it.
    NoneSound,
    /// No enabled pool has room for it.
    NoSpace,
    /// Pools with room have full queues; trying again helps.
    QueuesFull,
}

/// Why a pool was chosen, or was not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum PoolReason {
    /// The draw fell on it.
    Drawn {
        pool: PoolName,
        /// Its chance was `weight` of `weights_total`.
        weight: u64,
        /// The sum over all candidates.
        weights_total: u64,
        /// Its free space.
        free: Bytes,
        /// Its running and waiting writers.
        writers: u32,
    },
    /// It could have taken the file; the draw fell on another.
    NotDrawn { pool: PoolName, weight: u64 },
    /// It would have room without its trash, which is kept while others have room.
    KeepsTrash {
        pool: PoolName,
        /// Its free space.
        free: Bytes,
        /// What its trash holds.
        trash: Bytes,
    },
    /// It has no room for the file.
    Full {
        pool: PoolName,
        /// Its free space.
        free: Bytes,
        /// What was asked for; at least one byte.
        needed: Bytes,
    },
    /// Its file system can hold no more files, whatever their size.
    OutOfFiles { pool: PoolName },
    /// An operator drained or disabled it.
    OutOfService { pool: PoolName, mode: PoolMode },
    /// Its disk fails.
    Failing {
        pool: PoolName,
        /// What is wrong.
        condition: PoolCondition,
    },
    /// As many movers wait there as may.
    QueueFull { pool: PoolName },
}

impl PoolReason {
    /// An operator should hear of it: files are being routed around this pool.
    pub fn is_alarm(&self) -> bool {
        match self {
            PoolReason::Full { .. }
            | PoolReason::OutOfFiles { .. }
            | PoolReason::OutOfService { .. }
            | PoolReason::Failing { .. } => true,
            PoolReason::Drawn { .. }
            | PoolReason::NotDrawn { .. }
            | PoolReason::KeepsTrash { .. }
            | PoolReason::QueueFull { .. } => false,
        }
    }

    /// The pool that it speaks of.
    pub fn pool(&self) -> &PoolName {
        match self {
            PoolReason::Drawn { pool, .. }
            | PoolReason::NotDrawn { pool, .. }
            | PoolReason::KeepsTrash { pool, .. }
            | PoolReason::Full { pool, .. }
            | PoolReason::OutOfFiles { pool }
            | PoolReason::OutOfService { pool, .. }
            | PoolReason::Failing { pool, .. }
            | PoolReason::QueueFull { pool } => pool,
        }
    }
}

impl fmt::Display for PoolReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolReason::Drawn {
                pool,
                weight,
                weights_total,
                free,
                writers,
            } => write!(
                out,
                "pool {pool} was drawn with chance {weight} of {weights_total}: {free} free, {writers} writers"
            ),
            PoolReason::NotDrawn { pool, weight } => {
                write!(out, "pool {pool} was not drawn, with weight {weight}")
            }
            PoolReason::KeepsTrash { pool, free, trash } => write!(
                out,
                "pool {pool} keeps {trash} of removed files while others have room: {free} free"
            ),
            PoolReason::Full { pool, free, needed } => write!(
                out,
                "pool {pool} is full: {free} free, {needed} needed; add space, move files away, or drain it"
            ),
            PoolReason::OutOfFiles { pool } => write!(
                out,
                "the file system of pool {pool} can hold no more files (it has no inodes left), whatever bytes it has \
                 free; remove files, or drain the pool"
            ),
            PoolReason::OutOfService { pool, mode } => {
                write!(out, "pool {pool} is {}", mode.name())
            }
            PoolReason::Failing { pool, condition } => write!(out, "pool {pool} {condition}"),
            PoolReason::QueueFull { pool } => write!(out, "the queue of pool {pool} is full"),
        }
    }
}

/// Draws the pool for a new file. Every pool has a reason in the answer, the chosen one first, the others
/// in the order given.
pub fn choose_pool(
    pools: &[PoolView],
    placement: &PlacementRequest,
) -> Decision<Result<PoolName, PlacementRefusal>, PoolReason> {
    let needed = Bytes(placement.size.map_or(1, |size| size.0.max(1)));
    let mut candidates = Vec::new();
    let mut because = Vec::new();
    let takes = |view: &PoolView| refusal(view, needed).is_none();
    let is_room_without = pools.iter().any(|view| takes(view) && view.free >= needed);
    for view in pools {
        match refusal(view, needed) {
            Some(reason) => because.push(reason),
            None if is_room_without && view.free < needed => {
                because.push(PoolReason::KeepsTrash {
                    pool: view.pool.clone(),
                    free: view.free,
                    trash: view.trash,
                });
            }
            None if is_room_without => candidates.push((view, weight(view, view.free))),
            None => candidates.push((view, weight(view, view.available()))),
        }
    }
    let weights_total: u64 = candidates.iter().map(|(_, weight)| weight).sum();
    if weights_total == 0 {
        return Decision {
            choice: Err(unplaceable(&because)),
            because,
        };
    }
    let mut remaining = placement.draw % weights_total;
    let mut choice = None;
    for (view, weight) in candidates {
        if choice.is_none() && remaining < weight {
            choice = Some(view.pool.clone());
            let drawn = PoolReason::Drawn {
                pool: view.pool.clone(),
                weight,
                weights_total,
                free: view.free,
                writers: view.writers,
            };
            because.insert(0, drawn);
        } else {
            remaining = remaining.saturating_sub(weight);
            because.push(PoolReason::NotDrawn {
                pool: view.pool.clone(),
                weight,
            });
        }
    }
    let choice = choice.expect("the draw is below the sum of all weights");
    Decision {
        choice: Ok(choice),
        because,
    }
}

/// Why a pool cannot take the file at all.
fn refusal(view: &PoolView, needed: Bytes) -> Option<PoolReason> {
    let pool = view.pool.clone();
    if view.mode != PoolMode::Enabled {
        return Some(PoolReason::OutOfService {
            pool,
            mode: view.mode,
        });
    }
    if !view.condition.takes_files() {
        let condition = view.condition.clone();
        return Some(PoolReason::Failing { pool, condition });
    }
    if view.available().0 == 0 && view.files_left == Some(0) {
        return Some(PoolReason::OutOfFiles { pool });
    }
    if view.available() < needed {
        return Some(PoolReason::Full {
            pool,
            free: view.available(),
            needed,
        });
    }
    view.queue_full.then_some(PoolReason::QueueFull { pool })
}

/// The room, halved for each [`WRITERS_THAT_HALVE`] writers and linear in between. At least 1.
fn weight(view: &PoolView, room: Bytes) -> u64 {
    // Below 2^40 units (an exabyte), so that the sum over any real number of pools fits.
    let free = (room.0 / WEIGHT_UNIT_BYTES + 1).min(1 << 40) << 4;
    let halvings = (view.writers / WRITERS_THAT_HALVE).min(40);
    let rest = u64::from(view.writers % WRITERS_THAT_HALVE);
    let unit = 2 * u64::from(WRITERS_THAT_HALVE);
    ((free >> halvings) * (unit - rest) / unit).max(1)
}

/// What is nearest to being mended decides the answer: a queue empties by itself, a disk may come back, space and modes
/// need a person.
fn unplaceable(because: &[PoolReason]) -> PlacementRefusal {
    let any = |test: fn(&PoolReason) -> bool| because.iter().any(test);
    if any(|reason| matches!(reason, PoolReason::QueueFull { .. })) {
        PlacementRefusal::QueuesFull
    } else if any(|reason| matches!(reason, PoolReason::Failing { .. })) {
        PlacementRefusal::NoneSound
    } else if any(|reason| {
        matches!(
            reason,
            PoolReason::Full { .. } | PoolReason::OutOfFiles { .. }
        )
    }) {
        PlacementRefusal::NoSpace
    } else {
        PlacementRefusal::NoPoolEnabled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const GIB: u64 = 1 << 30;

    fn pool(index: usize) -> PoolView {
        PoolView {
            pool: PoolName::new(format!("p{index}")),
            mode: PoolMode::Enabled,
            condition: PoolCondition::Sound,
            free: Bytes(100 * GIB),
            trash: Bytes(0),
            files_left: None,
            writers: 0,
            queue_full: false,
        }
    }

    /// A fixed sequence that fills 64 bits evenly (SplitMix64).
    fn draws() -> impl Iterator<Item = u64> {
        (1u64..).map(|step| {
            let mut z = step.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ (z >> 31)
        })
    }

    fn shares(pools: &[PoolView], files: usize) -> BTreeMap<PoolName, f64> {
        let mut counts = BTreeMap::new();
        for draw in draws().take(files) {
            let placement = PlacementRequest { size: None, draw };
            let chosen = choose_pool(pools, &placement)
                .choice
                .expect("a pool takes it");
            *counts.entry(chosen).or_insert(0.0) += 1.0 / files as f64;
        }
        counts
    }

    #[test]
    fn when_k_of_n_pools_leave_each_survivor_takes_about_one_in_n_minus_k() {
        for (n, k) in [(4, 1), (6, 3), (10, 1), (10, 8)] {
            let mut pools: Vec<PoolView> = (0..n).map(pool).collect();
            for left in &mut pools[..k] {
                left.mode = PoolMode::Disabled;
            }
            let shares = shares(&pools, 20_000);
            assert_eq!(shares.len(), n - k);
            let even = 1.0 / (n - k) as f64;
            for (pool, share) in shares {
                assert!(
                    (share - even).abs() < 0.1 * even,
                    "{pool} took {share}, not {even}"
                );
            }
        }
    }

    #[test]
    fn free_space_attracts_and_writers_repel() {
        let mut pools = vec![pool(0), pool(1)];
        pools[0].free = Bytes(300 * GIB);
        let by_space = shares(&pools, 20_000);
        assert!(
            (by_space[&pools[0].pool] - 0.75).abs() < 0.02,
            "{by_space:?}"
        );
        pools[0].free = Bytes(100 * GIB);
        pools[0].writers = WRITERS_THAT_HALVE;
        let by_load = shares(&pools, 20_000);
        assert!(
            (by_load[&pools[0].pool] - 1.0 / 3.0).abs() < 0.02,
            "{by_load:?}"
        );
    }

    #[test]
    fn more_writers_never_raise_the_weight() {
        let weights: Vec<u64> = (0..500)
            .map(|writers| PoolView { writers, ..pool(0) })
            .map(|view| weight(&view, view.free))
            .collect();
        assert!(weights.windows(2).all(|pair| pair[0] >= pair[1]));
        assert!(weights.iter().all(|&weight| weight >= 1));
    }

    #[test]
    fn a_full_or_drained_pool_is_left_out_with_an_alarm() {
        let pools = [
            PoolView {
                free: Bytes(GIB),
                ..pool(0)
            },
            PoolView {
                mode: PoolMode::Drained,
                ..pool(1)
            },
            pool(2),
        ];
        let placement = PlacementRequest {
            size: Some(Bytes(2 * GIB)),
            draw: 7,
        };
        let decision = choose_pool(&pools, &placement);
        assert_eq!(decision.choice, Ok(pools[2].pool.clone()));
        let alarms: Vec<String> = decision
            .because
            .iter()
            .filter(|reason| reason.is_alarm())
            .map(PoolReason::to_string)
            .collect();
        assert_eq!(
            alarms,
            [
                "pool p0 is full: 1.1 GB free, 2.1 GB needed; add space, move files away, or drain it",
                "pool p1 is drained"
            ]
        );
    }

    #[test]
    fn the_refusal_names_what_can_be_mended_soonest() {
        let full = PoolView {
            free: Bytes(0),
            ..pool(0)
        };
        let busy = PoolView {
            queue_full: true,
            ..pool(1)
        };
        let off = PoolView {
            mode: PoolMode::Disabled,
            ..pool(2)
        };
        let choice = |pools: &[PoolView]| {
            choose_pool(
                pools,
                &PlacementRequest {
                    size: None,
                    draw: 0,
                },
            )
            .choice
        };
        assert_eq!(
            choice(&[full.clone(), busy, off.clone()]),
            Err(PlacementRefusal::QueuesFull)
        );
        let silent = PoolView {
            condition: PoolCondition::Silent { seconds: 60 },
            ..pool(3)
        };
        assert_eq!(
            choice(&[full.clone(), silent]),
            Err(PlacementRefusal::NoneSound)
        );
        assert_eq!(choice(&[full, off.clone()]), Err(PlacementRefusal::NoSpace));
        assert_eq!(choice(&[off]), Err(PlacementRefusal::NoPoolEnabled));
        assert_eq!(choice(&[]), Err(PlacementRefusal::NoPoolEnabled));
    }

    #[test]
    fn trash_gives_way_only_when_no_pool_has_room_without_it() {
        let with = |index, free, trash| PoolView {
            free: Bytes(free),
            trash: Bytes(trash),
            ..pool(index)
        };
        let chosen = |pools: &[PoolView], size| {
            let size = Some(Bytes(size));
            let mut choices: Vec<_> = draws()
                .take(50)
                .map(|draw| choose_pool(pools, &PlacementRequest { size, draw }).choice)
                .map(|choice| choice.map_or_else(|why| format!("{why:?}"), |pool| pool.to_string()))
                .collect();
            choices.sort();
            choices.dedup();
            choices
        };
        let pools = [with(0, 10, 90), with(1, 20, 0), with(2, 5, 200)];
        assert_eq!(chosen(&pools, 20), ["p1"]);
        assert_eq!(chosen(&pools, 21), ["p0", "p2"]);
        assert_eq!(chosen(&pools, 206), ["NoSpace"]);
        let placement = PlacementRequest {
            size: Some(Bytes(20)),
            draw: 0,
        };
        let because = choose_pool(&pools, &placement).because;
        assert!(!because.iter().any(PoolReason::is_alarm), "{because:?}");
        assert_eq!(
            because[1].to_string(),
            "pool p0 keeps 90 B of removed files while others have room: 10 B free"
        );
    }

    #[test]
    fn every_pool_has_exactly_one_reason() {
        let pools: Vec<PoolView> = (0..5).map(pool).collect();
        for draw in draws().take(50) {
            let decision = choose_pool(&pools, &PlacementRequest { size: None, draw });
            let mut named: Vec<_> = decision.because.iter().map(PoolReason::pool).collect();
            assert_eq!(Ok(named[0].clone()), decision.choice);
            named.sort();
            named.dedup();
            assert_eq!(named.len(), pools.len());
        }
    }
}
