//! Whether a file on tape has as many copies as it should have, and from where one more can be written.
//!
//! A copy on a tape that is out of use counts for a while, since the tape may come back. After that the file is to have another one,
//! which takes its place.

use crate::live_set::LiveSet;
use crate::request::{FileId, LibraryName, TapeCopy, TapeName};
use std::collections::BTreeSet;

/// A copy as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCopy {
    pub library: LibraryName,
    pub copy: TapeCopy,
    pub state: CopyState,
}

/// Whether a copy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// It can be read, as far as is known.
    Good,
    /// Its tape is out of use, and not for long yet.
    Away,
    /// It cannot be read, or its tape is out of use for too long.
    Lost,
}

/// What is to be done for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyNeed {
    /// It has enough copies.
    Nothing,
    OneMore(FurtherCopy),
    /// It has too few copies, and none of them can be read now. A tape that is out of use has one.
    Wait,
    /// It is neither on disk nor on a tape that is in use.
    NoGoodCopy,
}

/// One more copy of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FurtherCopy {
    /// The copy in whose place it comes; `None`: beside those that there are.
    pub instead_of: Option<TapeCopy>,
    /// Copies from which it can be made.
    pub sources: Vec<TapeCopy>,
    /// Libraries that have a copy which counts.
    pub not_in: BTreeSet<LibraryName>,
}

/// What a file needs of which so many copies are wanted; 0 is taken as 1.
pub fn copy_need(known: &[KnownCopy], wanted: u32, is_on_disk: bool) -> CopyNeed {
    let of = |state: CopyState| known.iter().filter(move |copy| copy.state == state);
    let counted = known.iter().filter(|copy| copy.state != CopyState::Lost);
    let not_in: BTreeSet<LibraryName> = counted.map(|copy| copy.library.clone()).collect();
    if not_in.len() >= wanted.max(1) as usize {
        return CopyNeed::Nothing;
    }
    let sources: Vec<TapeCopy> = of(CopyState::Good).map(|copy| copy.copy.clone()).collect();
    if sources.is_empty() && !is_on_disk {
        return match of(CopyState::Away).next() {
            Some(_) => CopyNeed::Wait,
            None => CopyNeed::NoGoodCopy,
        };
    }
    CopyNeed::OneMore(FurtherCopy {
        instead_of: of(CopyState::Lost).next().map(|copy| copy.copy.clone()),
        sources,
        not_in,
    })
}

impl LiveSet {
    /// Whether a copy of a file counts. `times` are those of [`LiveSet::is_lost`]: now, and how long one on a tape that is out of use
    /// does. One on a tape that nobody knows does not.
    pub fn copy_state(&self, file: FileId, copy: &TapeCopy, times: (i64, i64)) -> CopyState {
        if self.is_good(file, copy) {
            return CopyState::Good;
        }
        let is_known = self.tapes.contains_key(&copy.tape);
        let may_be_good = is_known && !self.unreadable.contains(file, copy);
        match may_be_good && !self.is_lost(&copy.tape, times) {
            true => CopyState::Away,
            false => CopyState::Lost,
        }
    }

    /// Whether a copy of a file can be read, as far as is known.
    pub fn is_good(&self, file: FileId, copy: &TapeCopy) -> bool {
        self.is_readable(&copy.tape) && !self.unreadable.contains(file, copy)
    }

    /// Whether a tape has been out of use for so long that its copies count no more.
    pub fn is_lost(&self, tape: &TapeName, (now_ns, wait_ns): (i64, i64)) -> bool {
        let care = self.care.get(tape);
        let since_ns = care.and_then(|care| care.out_of_use_ns);
        let is_over = since_ns.is_some_and(|since_ns| now_ns >= since_ns.saturating_add(wait_ns));
        is_over && !self.is_readable(tape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Record, Tape, TapeState};
    use crate::tape_care::{CareStep, UnreadableCopy};

    fn copy(tape: &str) -> TapeCopy {
        TapeCopy::alone(TapeName(tape.into()), 7)
    }

    /// `a1+` is a good copy on tape 1 of library a, `?` one that is away, `-` one that is lost.
    fn need(copies: &str, wanted: u32, is_on_disk: bool) -> CopyNeed {
        let known = copies.split_whitespace().map(|text| KnownCopy {
            library: LibraryName(text[..1].into()),
            copy: copy(&text[..2]),
            state: match &text[2..] {
                "+" => CopyState::Good,
                "?" => CopyState::Away,
                _ => CopyState::Lost,
            },
        });
        copy_need(&known.collect::<Vec<_>>(), wanted, is_on_disk)
    }

    fn one_more(instead_of: Option<&str>, sources: &[&str], not_in: &[&str]) -> CopyNeed {
        CopyNeed::OneMore(FurtherCopy {
            instead_of: instead_of.map(copy),
            sources: sources.iter().map(|tape| copy(tape)).collect(),
            not_in: not_in
                .iter()
                .map(|name| LibraryName((*name).into()))
                .collect(),
        })
    }

    #[test]
    fn a_file_gets_one_more_copy_where_it_has_too_few_that_count() {
        assert_eq!(need("a1+", 1, false), CopyNeed::Nothing);
        assert_eq!(need("a1+", 0, false), CopyNeed::Nothing);
        assert_eq!(need("a1+ b1+", 2, false), CopyNeed::Nothing);
        assert_eq!(need("a1? b1+", 2, false), CopyNeed::Nothing);
        assert_eq!(need("a1- b1+", 1, false), CopyNeed::Nothing);
        // A class wants more than before.
        assert_eq!(need("a1+", 2, false), one_more(None, &["a1"], &["a"]));
        // A tape was lost.
        let replaced = one_more(Some("a1"), &["b1"], &["b"]);
        assert_eq!(need("a1- b1+", 2, false), replaced);
        assert_eq!(need("a1-", 1, true), one_more(Some("a1"), &[], &[]));
        // Two copies in one library are one.
        let beside = one_more(None, &["a1", "a2"], &["a"]);
        assert_eq!(need("a1+ a2+", 2, false), beside);
        // One that is away is no source, and its library gets no second one.
        assert_eq!(need("a1?", 2, true), one_more(None, &[], &["a"]));
        assert_eq!(need("a1? b1-", 2, false), CopyNeed::Wait);
        assert_eq!(need("a1- b1-", 2, false), CopyNeed::NoGoodCopy);
        assert_eq!(need("", 1, false), CopyNeed::NoGoodCopy);
    }

    #[test]
    fn a_copy_on_a_tape_that_is_out_of_use_counts_for_a_while() {
        let tape = TapeName("t".into());
        let facts = Tape::new(LibraryName("l".into()), "LTO-8".to_owned(), 1_000);
        let mut live = LiveSet::default();
        let state = |live: &LiveSet, now_ns| live.copy_state(FileId(1), &copy("t"), (now_ns, 10));
        assert_eq!(state(&live, 0), CopyState::Lost, "nobody knows the tape");
        live.apply(&Record::TapeAdded {
            tape: tape.clone(),
            facts,
        });
        assert_eq!(state(&live, 0), CopyState::Good);
        for out_of_use in [TapeState::Disabled, TapeState::Broken] {
            live.apply(&Record::TapeChanged {
                tape: tape.clone(),
                state: out_of_use,
                fault: None,
            });
            let care = |at_ns, step| Record::Care {
                at_ns,
                tape: tape.clone(),
                step,
            };
            assert_eq!(state(&live, 900), CopyState::Away, "not noted yet");
            live.apply(&care(100, CareStep::OutOfUse));
            assert_eq!(state(&live, 109), CopyState::Away);
            assert_eq!(state(&live, 110), CopyState::Lost);
            live.apply(&Record::TapeChanged {
                tape: tape.clone(),
                state: TapeState::ReadOnly,
                fault: None,
            });
            assert_eq!(state(&live, 110), CopyState::Good);
            live.apply(&care(120, CareStep::InUse));
        }
        live.apply(&Record::TapeRetired { tape: tape.clone() });
        assert_eq!(state(&live, 900), CopyState::Away);
        live.apply(&Record::TapeReturned { tape: tape.clone() });
        let unreadable = |begin_bytes| Record::CopyUnreadable {
            file: FileId(1),
            copy: UnreadableCopy {
                tape: tape.clone(),
                begin_bytes,
            },
        };
        live.apply(&unreadable(8));
        assert_eq!(state(&live, 900), CopyState::Good, "it is at another place");
        live.apply(&unreadable(7));
        assert_eq!(state(&live, 900), CopyState::Lost);
    }
}
