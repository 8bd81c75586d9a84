//! By which checksums a copy is compared with its original, and what a comparison proves.
//!
//! Servers tell different checksums. Unless somebody chose one, a server is asked for all that cost little beside reading the
//! file, and the strongest that both sides have decides.

use http::HeaderValue;
use penstock_model::{Checksum, ChecksumAlgorithm};

/// The strongest first. CRC-32C sees every change of up to 32 bits in a row and misses one of 4 billion others. Adler-32,
/// which grid storage elements have in common, misses changes that add up to nothing (+1, -2, +1), as in counters and tables.
const CHEAP: [ChecksumAlgorithm; 2] = [ChecksumAlgorithm::Crc32c, ChecksumAlgorithm::Adler32];

/// Which checksums count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumChoice {
    /// The strongest that both sides have.
    Strongest,
    /// This one.
    Only(ChecksumAlgorithm),
}

impl From<ChecksumAlgorithm> for ChecksumChoice {
    fn from(algorithm: ChecksumAlgorithm) -> ChecksumChoice {
        ChecksumChoice::Only(algorithm)
    }
}

/// Two checksums of one algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison<'a> {
    pub original: &'a Checksum,
    pub copy: &'a Checksum,
}

impl Comparison<'_> {
    pub fn is_equal(&self) -> bool {
        self.original == self.copy
    }

    /// Whether equal checksums leave small changes unseen, so that a newer original counts as changed.
    pub fn is_weak(&self) -> bool {
        self.original.algorithm() == ChecksumAlgorithm::Adler32
    }
}

impl ChecksumChoice {
    /// The best first.
    pub fn algorithms(&self) -> &[ChecksumAlgorithm] {
        match self {
            ChecksumChoice::Strongest => &CHEAP,
            ChecksumChoice::Only(algorithm) => std::slice::from_ref(algorithm),
        }
    }

    /// The best of some that were told.
    pub fn best_of(&self, told: &[Checksum]) -> Option<Checksum> {
        let wanted = self.algorithms().iter();
        let mut found = wanted.filter_map(|wanted| {
            let mut told = told.iter();
            told.find(|told| told.algorithm() == *wanted)
        });
        found.next().cloned()
    }

    /// Compares by the best that both sides have; `None`: they have none in common.
    pub fn compare<'a>(
        &self,
        original: &'a [Checksum],
        copy: &'a [Checksum],
    ) -> Option<Comparison<'a>> {
        let of = |sums: &'a [Checksum], wanted| sums.iter().find(|sum| sum.algorithm() == wanted);
        let mut common = self.algorithms().iter().filter_map(|wanted| {
            Some(Comparison {
                original: of(original, *wanted)?,
                copy: of(copy, *wanted)?,
            })
        });
        common.next()
    }

    /// `Want-Digest` (RFC 3230 §4.3.1), with the best first for servers that read no weights.
    pub(crate) fn wanted(&self) -> HeaderValue {
        let algorithms = self.algorithms().iter().enumerate();
        let item = |(rank, algorithm): (usize, &ChecksumAlgorithm)| match rank {
            0 => algorithm.name().to_owned(),
            _ => format!(
                "{};q=0.{}",
                algorithm.name(),
                9_usize.saturating_sub(rank).max(1)
            ),
        };
        let items: Vec<String> = algorithms.map(item).collect();
        HeaderValue::from_str(&items.join(", ")).expect("names and digits are visible ASCII")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(texts: &[&str]) -> Vec<Checksum> {
        let sums = texts.iter();
        sums.map(|text| Checksum::parse(text).expect("a checksum"))
            .collect()
    }

    #[test]
    fn the_best_that_both_sides_have_decides() {
        let here = sums(&["adler32:00000001", "crc32c:00000002"]);
        let check = |there: &[&str], expected: Option<(bool, bool)>| {
            let there = sums(there);
            let found = ChecksumChoice::Strongest.compare(&here, &there);
            let found = found.map(|found| (found.is_equal(), found.is_weak()));
            assert_eq!(found, expected, "{there:?}");
        };
        check(&["adler32:00000001"], Some((true, true)));
        check(
            &["adler32:00000001", "crc32c:00000003"],
            Some((false, false)),
        );
        check(&["crc32c:00000002"], Some((true, false)));
        check(&[], None);
        assert_eq!(ChecksumChoice::Strongest.wanted(), "crc32c, adler32;q=0.8");
        let only = ChecksumChoice::Only(ChecksumAlgorithm::Adler32);
        assert_eq!(only.wanted(), "adler32");
        assert_eq!(only.best_of(&sums(&["crc32c:00000002"])), None);
    }
}
