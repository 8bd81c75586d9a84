//! The stored form of a minute: texts once, then column by column as varints. A column of zeros is left out, and so are the
//! zeros at the end of one. Columns are stored by name, so that a new one needs no migration.

use super::{COLUMNS, FailedStep, MinuteFailure, MinuteKey, MinuteRow, MinuteSamples, MinuteSums};
use crate::failure::{Errno, Phase};
use crate::ids::{Activity, LinkId, StorageId, VoName};
use crate::problem::Side;
use crate::units::Timestamp;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The version of the stored form. Raise it with a reader of the old one and a test with old bytes.
pub const MINUTE_VERSION: u32 = 1;

/// Bytes that are no minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unreadable(pub &'static str);

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

impl MinuteSamples {
    /// What was counted, without the times, as it is stored.
    pub fn packed(&self) -> Vec<u8> {
        let mut texts = Texts::default();
        let mut body = Vec::new();
        put(&mut body, self.rows.len() as u64);
        for row in &self.rows {
            put_key(&mut body, &mut texts, &row.key);
        }
        let table: Vec<_> = self.rows.iter().map(|row| row.sums.values()).collect();
        let filled = column_names().into_iter().enumerate();
        let filled: Vec<(usize, &str, usize)> = filled
            .filter_map(|(place, name)| {
                let last = table.iter().rposition(|row| row[place] > 0)?;
                Some((place, name, last + 1))
            })
            .collect();
        put(&mut body, filled.len() as u64);
        for (place, name, filled) in filled {
            put(&mut body, texts.number(name));
            put(&mut body, filled as u64);
            for row in &table[..filled] {
                put(&mut body, row[place]);
            }
        }
        let failures = self.rows.iter().enumerate();
        let failures: Vec<(usize, &MinuteFailure)> = failures
            .flat_map(|(row, of)| of.failures.iter().map(move |failure| (row, failure)))
            .collect();
        put(&mut body, failures.len() as u64);
        for (row, failure) in failures {
            put(&mut body, row as u64);
            put(&mut body, (failure.step == FailedStep::TapeCall).into());
            put(&mut body, texts.number(failure.side.word()));
            put(&mut body, texts.number(failure.phase.word()));
            put(&mut body, u64::from(failure.errno.0 as u32));
            put(&mut body, texts.number(&failure.fingerprint));
            put(&mut body, failure.count);
        }
        let mut packed = Vec::new();
        put(&mut packed, texts.all.len() as u64);
        for text in &texts.all {
            put(&mut packed, text.len() as u64);
            packed.extend_from_slice(text.as_bytes());
        }
        packed.extend(body);
        packed
    }

    /// Reads what [`MinuteSamples::packed`] has written.
    pub fn unpack(
        from: Timestamp,
        to: Timestamp,
        version: u32,
        packed: &[u8],
    ) -> Result<MinuteSamples, Unreadable> {
        if version != MINUTE_VERSION {
            return Err(Unreadable("of a later version"));
        }
        let mut reader = Reader {
            bytes: packed,
            texts: Vec::new(),
        };
        for _ in 0..reader.count()? {
            let length = reader.count()?;
            let text = reader.take(length)?;
            let text = std::str::from_utf8(text).map_err(|_| Unreadable("a text is no UTF-8"))?;
            reader.texts.push(text.into());
        }
        let mut rows = Vec::new();
        for _ in 0..reader.count()? {
            rows.push(MinuteRow {
                key: reader.key()?,
                sums: MinuteSums::default(),
                failures: Vec::new(),
            });
        }
        let mut table = vec![[0; COLUMNS]; rows.len()];
        for _ in 0..reader.count()? {
            reader.column(&mut table)?;
        }
        for (row, values) in rows.iter_mut().zip(&table) {
            let mut values = values.iter();
            let mut next = || *values.next().expect("as many as columns");
            row.sums.each_column(&mut |_, sum| *sum = next());
        }
        for _ in 0..reader.count()? {
            let row = reader.count_below(rows.len() as u64)?;
            let failure = reader.failure()?;
            rows[row].failures.push(failure);
        }
        if !reader.bytes.is_empty() {
            return Err(Unreadable("there is more than a minute"));
        }
        Ok(MinuteSamples { from, to, rows })
    }
}

/// Each text once, by its number.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

fn column_names() -> Vec<&'static str> {
    let mut names = Vec::with_capacity(COLUMNS);
    MinuteSums::default().each_column(&mut |name, _| names.push(name));
    names
}

fn put(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// A byte for the kind, then the numbers of its texts.
fn put_key(into: &mut Vec<u8>, texts: &mut Texts, key: &MinuteKey) {
    let (kind, parts) = match key {
        MinuteKey::Link(link) => (0, vec![link.source.as_str(), link.destination.as_str()]),
        MinuteKey::OtherLinks => (1, Vec::new()),
        MinuteKey::VoOnLink(link, vo) => {
            let (source, destination) = (link.source.as_str(), link.destination.as_str());
            (2, vec![source, destination, vo.as_str()])
        }
        MinuteKey::OtherVosOnLinks => (3, Vec::new()),
        MinuteKey::Activity(vo, activity) => (4, vec![vo.as_str(), activity.as_str()]),
        MinuteKey::OtherActivities => (5, Vec::new()),
        MinuteKey::Service => (6, Vec::new()),
    };
    into.push(kind);
    for part in parts {
        put(into, texts.number(part));
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    texts: Vec<Arc<str>>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self
            .bytes
            .split_at_checked(length)
            .ok_or(Unreadable("it ends too early"))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, Unreadable> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Unreadable("a number is too large"))
    }

    /// How many things follow, each of which takes a byte at least.
    fn count(&mut self) -> Result<usize, Unreadable> {
        let count = self.number()?;
        match usize::try_from(count) {
            Ok(count) if count <= self.bytes.len() => Ok(count),
            _ => Err(Unreadable("it ends too early")),
        }
    }

    fn count_below(&mut self, end: u64) -> Result<usize, Unreadable> {
        let number = self.number()?;
        match number < end {
            true => Ok(number as usize),
            false => Err(Unreadable("it refers to what is not there")),
        }
    }

    fn text(&mut self) -> Result<Arc<str>, Unreadable> {
        let number = self.count_below(self.texts.len() as u64)?;
        Ok(self.texts[number].clone())
    }

    fn link(&mut self) -> Result<LinkId, Unreadable> {
        Ok(LinkId {
            source: StorageId::new(self.text()?),
            destination: StorageId::new(self.text()?),
        })
    }

    fn key(&mut self) -> Result<MinuteKey, Unreadable> {
        Ok(match self.take(1)?[0] {
            0 => MinuteKey::Link(self.link()?),
            1 => MinuteKey::OtherLinks,
            2 => MinuteKey::VoOnLink(self.link()?, VoName::new(self.text()?)),
            3 => MinuteKey::OtherVosOnLinks,
            4 => MinuteKey::Activity(VoName::new(self.text()?), Activity::new(self.text()?)),
            5 => MinuteKey::OtherActivities,
            6 => MinuteKey::Service,
            _ => return Err(Unreadable("a key is of no known kind")),
        })
    }

    /// One column. That of a later version is passed over.
    fn column(&mut self, table: &mut [[u64; COLUMNS]]) -> Result<(), Unreadable> {
        let name = self.text()?;
        let filled = self.count_below(table.len() as u64 + 1)?;
        let place = column_names().iter().position(|known| **known == *name);
        for row in &mut table[..filled] {
            let value = self.number()?;
            if let Some(place) = place {
                row[place] = value;
            }
        }
        Ok(())
    }

    fn failure(&mut self) -> Result<MinuteFailure, Unreadable> {
        let step = match self.number()? {
            0 => FailedStep::Attempt,
            _ => FailedStep::TapeCall,
        };
        let unknown = Unreadable("a failure is of no known kind");
        Ok(MinuteFailure {
            step,
            side: Side::from_word(&self.text()?).ok_or(unknown)?,
            phase: Phase::from_word(&self.text()?).ok_or(unknown)?,
            errno: Errno(self.number()? as u32 as i32),
            fingerprint: self.text()?.to_string(),
            count: self.number()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy_sums::CopySums;

    fn link(number: usize) -> LinkId {
        LinkId {
            source: StorageId::new(format!("https://s{number}")),
            destination: StorageId::new("https://d"),
        }
    }

    fn row(key: MinuteKey, moved_bytes: u64) -> MinuteRow {
        let sums = MinuteSums {
            samples: 60,
            moved_bytes,
            ..MinuteSums::default()
        };
        MinuteRow {
            key,
            sums,
            failures: Vec::new(),
        }
    }

    fn minute() -> MinuteSamples {
        let (vo, activity) = (VoName::new("cms"), Activity::new("default"));
        let mut first = row(MinuteKey::Link(link(1)), u64::MAX);
        first.sums.copies = CopySums {
            files: 3,
            stages_us: [1, 2, 3, 4, 5],
            ..CopySums::default()
        };
        first.failures.push(MinuteFailure {
            step: FailedStep::TapeCall,
            side: Side::Source,
            phase: Phase::Staging,
            errno: Errno(-1),
            fingerprint: "no such tape #".to_owned(),
            count: 2,
        });
        MinuteSamples {
            from: Timestamp(60_000),
            to: Timestamp(120_000),
            rows: vec![
                first,
                row(MinuteKey::OtherLinks, 7),
                row(MinuteKey::VoOnLink(link(1), vo.clone()), 300),
                row(MinuteKey::OtherVosOnLinks, 1),
                row(MinuteKey::Activity(vo, activity), 300),
                row(MinuteKey::OtherActivities, 0),
                row(MinuteKey::Service, 0),
            ],
        }
    }

    fn read(packed: &[u8]) -> Result<MinuteSamples, Unreadable> {
        MinuteSamples::unpack(Timestamp(60_000), Timestamp(120_000), 1, packed)
    }

    #[test]
    fn a_minute_is_read_as_it_was_written() {
        assert_eq!(read(&minute().packed()), Ok(minute()));
    }

    #[test]
    fn minutes_of_the_first_version_stay_readable() {
        // Texts "a" "b" "moved_bytes" "invented"; a link from a to b; two columns, one of them of a later version.
        let mut old = vec![4, 1, b'a', 1, b'b', 11];
        old.extend_from_slice(b"moved_bytes");
        old.push(8);
        old.extend_from_slice(b"invented");
        old.extend_from_slice(&[1, 0, 0, 1, 2, 2, 1, 0xac, 0x02, 3, 1, 9, 0]);
        let read = read(&old).expect("readable");
        let [row] = &read.rows[..] else {
            panic!("one row: {read:?}");
        };
        assert_eq!(row.sums.moved_bytes, 300);
        let later = MinuteSamples::unpack(Timestamp(0), Timestamp(0), 2, &old);
        assert_eq!(later, Err(Unreadable("of a later version")));
    }

    #[test]
    fn damaged_bytes_are_refused_and_never_break_the_reader() {
        let whole = minute().packed();
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "{end}");
        }
        for place in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[place] = value;
                let _ = read(&damaged);
            }
        }
    }

    #[test]
    fn a_busy_link_takes_some_hundred_bytes_a_minute() {
        let busy = |number| {
            let mut row = row(MinuteKey::Link(link(number)), 75_000_000_000);
            row.sums
                .each_column(&mut |_, sum| *sum = (*sum).max(100_000));
            row
        };
        let minute = MinuteSamples {
            from: Timestamp(0),
            to: Timestamp(60_000),
            rows: (0..300).map(busy).collect(),
        };
        let bytes = minute.packed().len() / 300;
        assert!((100..160).contains(&bytes), "{bytes}");
    }
}
