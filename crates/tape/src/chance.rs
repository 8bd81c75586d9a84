//! Chance from a seed. Only whole numbers are drawn, so equal seeds give equal times on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chance(u64);

/// Draws whose sum is nearly normal.
const NORMAL_DRAWS: i64 = 12;
/// Steps in which a draw for a normal sum counts.
const NORMAL_STEPS: u64 = 1 << 20;

impl Chance {
    /// The chance of a seed.
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// Chance of its own for a part with this number, so that what happens to one part does not change another.
    pub fn of_part(seed: u64, part: u64) -> Chance {
        let mut chance = Chance(seed ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93));
        chance.next();
        chance
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0, below `bound`; 0 when there is nothing to choose.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Whether something happens that happens so often in a million cases.
    pub fn happens(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// Nearly normal around 0 with this standard deviation: the sum of twelve even draws, so never beyond six deviations.
    pub fn deviation(&mut self, sigma_ns: i64) -> i64 {
        let steps = NORMAL_STEPS.cast_signed();
        let mut sum = 0;
        for _ in 0..NORMAL_DRAWS {
            sum += self.below(NORMAL_STEPS).cast_signed();
        }
        let centred = i128::from(sum - NORMAL_DRAWS * steps / 2);
        i64::try_from(centred * i128::from(sigma_ns) / i128::from(steps)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_have_the_spread_that_was_asked_for() {
        let mut chance = Chance::new(3);
        let (mut sum, mut squares) = (0_i128, 0_i128);
        for _ in 0..20_000 {
            let drawn = i128::from(chance.deviation(1_500));
            sum += drawn;
            squares += drawn * drawn;
        }
        assert!((sum / 20_000).abs() < 50, "mean {}", sum / 20_000);
        let variance = squares / 20_000;
        assert!(
            (1_450 * 1_450..1_550 * 1_550).contains(&variance),
            "{variance}"
        );
    }

    #[test]
    fn parts_have_chances_of_their_own() {
        let mut drawn: Vec<u64> = (0..100)
            .map(|part| Chance::of_part(7, part).below(u64::MAX))
            .collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 100);
        assert_eq!(Chance::of_part(7, 3), Chance::of_part(7, 3));
    }
}
