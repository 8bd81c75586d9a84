//! The pages of a column: levels, dictionaries, values.

use super::thrift::{self, Bounds, Fields, Struct};
use super::{encoding, page, physical};
use crate::store::columns::{DecodedColumn, Values};
use penstock_model::observation::Text;

/// Of the head of a page, with its least and its greatest value.
const HEAD_BOUNDS: Bounds = Bounds {
    elements_max: 1_000,
    memory_bytes_max: 4 << 20,
};

/// Entries that a dictionary may have however few rows its chunk has: Arrow writes the whole dictionary of a categorical
/// column. An entry of four bytes takes many times that in memory.
const UNUSED_ENTRIES_MAX: u32 = 65_536;

/// What of a chunk's metadata its pages need.
pub(super) struct Chunk {
    pub(super) place: usize,
    pub(super) physical: i64,
    pub(super) is_optional: bool,
    pub(super) rows: u32,
}

impl Chunk {
    fn no_values(&self) -> Option<Values> {
        match self.physical {
            physical::INT32 | physical::INT64 => Some(Values::Integers(Vec::new())),
            physical::BOOLEAN => Some(Values::Truths(Vec::new())),
            physical::BYTE_ARRAY => Some(Values::Texts(Vec::new(), Vec::new())),
            _ => None,
        }
    }

    /// Decodes all pages of the chunk.
    pub(super) fn decode(&self, mut bytes: &[u8]) -> Option<DecodedColumn> {
        let mut values = self.no_values()?;
        let mut present: Vec<u8> = Vec::new();
        let mut rows = 0_u32;
        let mut dictionary: Option<Values> = None;
        while rows < self.rows {
            let (head, length) = thrift::read(bytes, HEAD_BOUNDS).ok()?;
            let size = usize::try_from(head.integer(3)?).ok()?;
            let body = bytes.get(length..)?.get(..size)?;
            bytes = &bytes[length + size..];
            match head.integer(1)? {
                page::DICTIONARY => {
                    let count = u32::try_from(head.structure(7)?.integer(1)?).ok()?;
                    if dictionary.is_some() || count > self.rows.max(UNUSED_ENTRIES_MAX) {
                        return None;
                    }
                    let mut distinct = self.no_values()?;
                    self.plain(body, count as usize, &mut distinct)?;
                    dictionary = Some(distinct);
                }
                page::DATA => {
                    let data = head.structure(5)?;
                    let count = u32::try_from(data.integer(1)?).ok()?;
                    if count == 0 || count > self.rows - rows {
                        return None;
                    }
                    let place = (&mut present, rows, count);
                    self.data(data, body, place, (&mut values, dictionary.as_ref()))?;
                    rows += count;
                }
                _ => return None,
            }
        }
        Some(DecodedColumn::new(self.place, Some(present), values))
    }

    fn data(
        &self,
        head: &Struct,
        body: &[u8],
        (present, first, count): (&mut Vec<u8>, u32, u32),
        (values, dictionary): (&mut Values, Option<&Values>),
    ) -> Option<()> {
        let mut known = 0;
        let mut rest = body;
        let levels = match self.is_optional {
            false => vec![1; count as usize],
            true => {
                let (length, behind) = body.split_first_chunk()?;
                let length = u32::from_le_bytes(*length) as usize;
                let levels = hybrid(behind.get(..length)?, 1, count as usize)?;
                rest = behind.get(length..)?;
                levels
            }
        };
        present.resize((first + count).div_ceil(8) as usize, 0);
        for (row, level) in (first..).zip(&levels) {
            if *level == 1 {
                present[row as usize / 8] |= 1 << (row % 8);
                known += 1;
            }
        }
        match head.integer(2)? {
            encoding::PLAIN => self.plain(rest, known, values),
            encoding::RLE_DICTIONARY | encoding::PLAIN_DICTIONARY => {
                if known == 0 {
                    return Some(());
                }
                let (width, numbers) = rest.split_first()?;
                let numbers = hybrid(numbers, *width, known)?;
                values.choose(dictionary?, &numbers)
            }
            _ => None,
        }
    }

    fn plain(&self, mut bytes: &[u8], count: usize, values: &mut Values) -> Option<()> {
        match (values, self.physical) {
            (Values::Integers(values), physical::INT64) => {
                let cells = bytes.get(..count.checked_mul(8)?)?.as_chunks().0;
                values.extend(cells.iter().map(|cell| i64::from_le_bytes(*cell)));
            }
            (Values::Integers(values), physical::INT32) => {
                let cells = bytes.get(..count.checked_mul(4)?)?.as_chunks().0;
                values.extend(
                    cells
                        .iter()
                        .map(|cell| i64::from(i32::from_le_bytes(*cell))),
                );
            }
            (Values::Truths(values), physical::BOOLEAN) => {
                let bits = bytes.get(..count.div_ceil(8))?;
                values.extend((0..count).map(|at| bits[at / 8] >> (at % 8) & 1 == 1));
            }
            (Values::Texts(texts, chosen), physical::BYTE_ARRAY) => {
                for _ in 0..count {
                    let (length, behind) = bytes.split_first_chunk()?;
                    let length = u32::from_le_bytes(*length) as usize;
                    let text: Text = std::str::from_utf8(behind.get(..length)?).ok()?.into();
                    bytes = &behind[length..];
                    chosen.push(texts.len() as u32);
                    texts.push(text);
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// So many numbers of `width` bits, in runs and packed groups of eight.
fn hybrid(mut bytes: &[u8], width: u8, count: usize) -> Option<Vec<u32>> {
    if width > 32 {
        return None;
    }
    let mut numbers = Vec::with_capacity(count);
    while numbers.len() < count {
        let (head, length) = thrift::read_varint(bytes)?;
        bytes = &bytes[length..];
        let wanted = count - numbers.len();
        if head & 1 == 0 {
            let length = usize::from(width).div_ceil(8);
            let mut number = [0; 4];
            number[..length].copy_from_slice(bytes.get(..length)?);
            bytes = &bytes[length..];
            let run = usize::try_from(head >> 1).ok()?.min(wanted);
            if run == 0 {
                return None;
            }
            numbers.resize(numbers.len() + run, u32::from_le_bytes(number));
        } else {
            let groups = usize::try_from(head >> 1).ok()?;
            let length = groups.checked_mul(width.into())?;
            let packed = bytes.get(..length)?;
            bytes = &bytes[length..];
            let all = groups.checked_mul(8)?.min(wanted);
            if all == 0 {
                return None;
            }
            numbers.extend((0..all).map(|at| bits(packed, at * usize::from(width), width)));
        }
    }
    Some(numbers)
}

/// The number of `width` bits that begins at bit `at`.
fn bits(packed: &[u8], at: usize, width: u8) -> u32 {
    let mut number = 0_u64;
    for bit in 0..usize::from(width) {
        let place = at + bit;
        number |= u64::from(packed[place / 8] >> (place % 8) & 1) << bit;
    }
    number as u32
}

#[cfg(test)]
mod tests {
    use super::thrift::{Value, fields};
    use super::*;

    /// A chunk of `rows` rows that all have the first of so many empty texts.
    fn chunk_with_dictionary(rows: u32, entries: u32) -> Option<DecodedColumn> {
        let number = |value: usize| Value::Integer(value as i64);
        let mut bytes = Vec::new();
        let mut page = |(kind, numbers): (i64, i16), (count, encoding): (u32, i64), body: &[u8]| {
            let about = fields([(1, number(count as usize)), (2, Value::Integer(encoding))]);
            let size = number(body.len());
            fields([
                (1, Value::Integer(kind)),
                (2, size.clone()),
                (3, size),
                (numbers, about),
            ])
            .write(&mut bytes);
            bytes.extend(body);
        };
        let texts = vec![0; 4 * entries as usize];
        page((page::DICTIONARY, 7), (entries, encoding::PLAIN), &texts);
        // No bits for each number, and a run of them.
        let mut chosen = vec![0];
        thrift::write_varint(u64::from(rows) << 1, &mut chosen);
        page((page::DATA, 5), (rows, encoding::RLE_DICTIONARY), &chosen);
        let chunk = Chunk {
            place: 0,
            physical: physical::BYTE_ARRAY,
            is_optional: false,
            rows,
        };
        chunk.decode(&bytes)
    }

    #[test]
    fn a_dictionary_has_no_more_entries_than_its_chunk_has_rows_or_a_categorical_column_may_have() {
        let is_read = |rows, entries| chunk_with_dictionary(rows, entries).is_some();
        assert!(is_read(2, 100), "not every entry is in use");
        assert!(is_read(1, UNUSED_ENTRIES_MAX));
        assert!(!is_read(1, UNUSED_ENTRIES_MAX + 1));
        assert!(is_read(UNUSED_ENTRIES_MAX + 1, UNUSED_ENTRIES_MAX + 1));
    }

    #[test]
    fn runs_and_packed_groups_are_those_of_the_specification() {
        // parquet-format Encodings.md: 0 to 7 in 3 bits are 88 C6 FA.
        assert_eq!(
            hybrid(&[3, 0x88, 0xc6, 0xfa], 3, 8),
            Some(vec![0, 1, 2, 3, 4, 5, 6, 7])
        );
        assert_eq!(hybrid(&[6, 5], 3, 3), Some(vec![5, 5, 5]));
        assert_eq!(hybrid(&[0, 5], 3, 3), None);
        assert_eq!(hybrid(&[6], 3, 3), None);
        assert_eq!(hybrid(&[6, 0], 0, 3), Some(vec![0, 0, 0]));
    }
}
