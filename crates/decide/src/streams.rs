//! How many connections a pull uses. More than one help when each is held back on its way (a small window on a
//! long path); they cost memory here and movers at the source, so nobody gets them unasked.

use crate::Decision;
use penstock_model::{Bytes, StreamsReason};

/// Memory for arriving bytes comes in buffers of this size; a part that is not a multiple of it wastes the rest of one.
const BUFFER_BYTES: u64 = 1 << 20;

/// What a storage element allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamsLimits {
    /// Connections per copy.
    pub streams_max: u32,
    /// The smallest part of a file that one request asks for; what the first request asks for.
    pub range_min: Bytes,
    /// The largest. Larger parts waste less time between them, and cost more memory.
    pub range_max: Bytes,
}

impl Default for StreamsLimits {
    /// 10 connections; 4 to 16 MiB.
    fn default() -> Self {
        StreamsLimits {
            streams_max: 10,
            range_min: Bytes(4 << 20),
            range_max: Bytes(16 << 20),
        }
    }
}

/// What the source's first answer told, and what is free here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamsView {
    /// What the client asked for.
    pub asked: Option<u32>,
    /// What the source says of its file.
    pub source: SourceParts,
    /// Memory for parts of files that no other copy holds.
    pub memory_free: Bytes,
}

/// Whether a source can give a file in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceParts {
    /// It gives whole files only.
    Whole,
    /// It gives parts, but not the size.
    SizeUnknown,
    /// It gives parts of a file of this size.
    Parts {
        /// The whole file.
        size: Bytes,
        /// Parts of two versions would be noticed: by a version in each answer, or by a checksum at the end.
        guarded: bool,
    },
}

/// How a pull is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// Connections. 1: the file is not cut.
    pub count: u32,
    /// Bytes per part after the first one.
    pub range: Bytes,
}

impl Streams {
    /// One connection for all of the file.
    pub const ONE: Streams = Streams {
        count: 1,
        range: Bytes(0),
    };

    /// Bytes that may be held in memory until their turn comes: one part per connection.
    pub fn memory(self) -> Bytes {
        match self.count {
            0 | 1 => Bytes(0),
            count => Bytes(self.range.0.saturating_mul(count.into())),
        }
    }
}

/// Whether it is worth asking the source for a part instead of the whole file.
pub fn may_use_several(asked: Option<u32>, limits: &StreamsLimits) -> bool {
    asked.unwrap_or(1).min(limits.streams_max) > 1
}

/// How many connections a pull uses, and how large the parts are. Never more than asked for; the reasons come in
/// the order in which they narrowed the choice.
pub fn choose_streams(
    view: &StreamsView,
    limits: &StreamsLimits,
) -> Decision<Streams, StreamsReason> {
    let Some(asked) = view.asked else {
        return one(vec![StreamsReason::LeftToUs]);
    };
    let mut because = vec![StreamsReason::AsAsked];
    let mut count = asked;
    let mut narrow = |to: u32, reason: StreamsReason, count: &mut u32| {
        if to < *count {
            *count = to.max(1);
            because.push(reason);
        }
    };
    narrow(limits.streams_max, StreamsReason::SiteLimit, &mut count);
    let size = match view.source {
        SourceParts::Parts { size, guarded } => {
            if !guarded {
                narrow(1, StreamsReason::NoVersion, &mut count);
            }
            size
        }
        SourceParts::Whole => {
            narrow(1, StreamsReason::NoRanges, &mut count);
            Bytes(0)
        }
        SourceParts::SizeUnknown => {
            narrow(1, StreamsReason::SizeUnknown, &mut count);
            Bytes(0)
        }
    };
    if count > 1 {
        let parts = size.0.div_ceil(limits.range_min.0.max(1));
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        narrow(parts, StreamsReason::SmallFile, &mut count);
    }
    let mut range = 0;
    if count > 1 {
        // Smaller parts are tried before fewer connections.
        let affordable = view.memory_free.0 / u64::from(count);
        range = whole_buffers(range_of(size, count, limits).min(affordable), limits);
        let fit = u32::try_from(view.memory_free.0 / range.max(1)).unwrap_or(u32::MAX);
        narrow(fit, StreamsReason::NoMemory, &mut count);
    }
    match count {
        0 | 1 => one(because),
        count => Decision {
            choice: Streams {
                count,
                range: Bytes(range),
            },
            because,
        },
    }
}

fn one(because: Vec<StreamsReason>) -> Decision<Streams, StreamsReason> {
    Decision {
        choice: Streams::ONE,
        because,
    }
}

/// Several parts per connection, so that one that is faster than the others takes more of them.
fn range_of(size: Bytes, count: u32, limits: &StreamsLimits) -> u64 {
    let part = size.0 / (u64::from(count.max(1)) * 4);
    part.min(limits.range_max.0)
}

/// Whole buffers, if it is more than one, as far as the smallest part allows.
fn whole_buffers(range: u64, limits: &StreamsLimits) -> u64 {
    let range = match range < BUFFER_BYTES {
        true => range,
        false => range - range % BUFFER_BYTES,
    };
    range.max(limits.range_min.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn check(asked: u32, source: SourceParts, memory_mib: u64, expected: &str) {
        let view = StreamsView {
            asked: Some(asked),
            source,
            memory_free: Bytes(memory_mib * MIB),
        };
        let decision = choose_streams(&view, &StreamsLimits::default());
        let because: Vec<&str> = decision
            .because
            .iter()
            .map(|reason| reason.name())
            .collect();
        let got = format!(
            "{} of {} MiB: {}",
            decision.choice.count,
            decision.choice.range.0 / MIB,
            because.join(", ")
        );
        assert_eq!(got, expected);
    }

    fn parts(mib: u64) -> SourceParts {
        SourceParts::Parts {
            size: Bytes(mib * MIB),
            guarded: true,
        }
    }

    #[test]
    fn a_large_file_gets_what_was_asked_for_within_the_limit() {
        check(4, parts(10_000), 1024, "4 of 16 MiB: as_asked");
        check(
            100,
            parts(10_000),
            1024,
            "10 of 16 MiB: as_asked, site_limit",
        );
        check(1, parts(10_000), 1024, "1 of 0 MiB: as_asked");
    }

    #[test]
    fn a_file_is_not_cut_into_parts_that_are_too_small() {
        check(4, parts(100), 1024, "4 of 6 MiB: as_asked");
        check(4, parts(9), 1024, "3 of 4 MiB: as_asked, small_file");
        check(4, parts(4), 1024, "1 of 0 MiB: as_asked, small_file");
    }

    #[test]
    fn scarce_memory_makes_parts_smaller_and_then_connections_fewer() {
        check(4, parts(10_000), 32, "4 of 8 MiB: as_asked");
        check(4, parts(10_000), 13, "3 of 4 MiB: as_asked, no_memory");
        check(4, parts(10_000), 0, "1 of 0 MiB: as_asked, no_memory");
    }

    #[test]
    fn a_source_that_cannot_be_cut_gives_one_stream() {
        check(4, SourceParts::Whole, 99, "1 of 0 MiB: as_asked, no_ranges");
        check(
            4,
            SourceParts::SizeUnknown,
            99,
            "1 of 0 MiB: as_asked, size_unknown",
        );
        let unguarded = SourceParts::Parts {
            size: Bytes(999 * MIB),
            guarded: false,
        };
        check(4, unguarded, 99, "1 of 0 MiB: as_asked, no_version");
    }

    proptest! {
        #[test]
        fn no_limit_is_ever_exceeded(
            asked in proptest::option::of(0_u32..200), size: u64, memory: u64, streams_max in 0_u32..200,
            range_min in 1_u64..(1 << 30), range_max: u64,
        ) {
            let limits = StreamsLimits {
                streams_max,
                range_min: Bytes(range_min),
                range_max: Bytes(range_max),
            };
            let source = SourceParts::Parts { size: Bytes(size), guarded: true };
            let view = StreamsView { asked, source, memory_free: Bytes(memory) };
            let choice = choose_streams(&view, &limits).choice;
            prop_assert!(choice.count >= 1);
            prop_assert!(choice.count <= asked.unwrap_or(1).min(streams_max).max(1));
            prop_assert!(choice.memory().0 <= memory);
            prop_assert!(choice.count == 1 || choice.range.0 >= range_min);
        }
    }
}
