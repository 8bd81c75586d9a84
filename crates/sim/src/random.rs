//! Chance that is the same in each run of a seed.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to 1, without 1.
    pub(crate) fn even(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From 0, below this; 0 when there is nothing to choose.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        match end {
            0 | 1 => 0,
            _ => (self.even() * end as f64) as usize,
        }
    }

    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.even() < probability
    }

    /// Exponential with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.even()).ln()
    }

    /// Log-normal with this mean; `spread` is the standard deviation of its logarithm. Sizes of files of the field are
    /// so, as far as one law describes them.
    pub(crate) fn log_normal(&mut self, mean: f64, spread: f64) -> f64 {
        if spread <= 0.0 {
            return mean;
        }
        // Box and Muller.
        let radius = (-2.0 * (1.0 - self.even()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.even()).cos();
        (mean.ln() - spread * spread / 2.0 + spread * normal).exp()
    }
}
