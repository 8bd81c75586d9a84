//! The rows of a block, column by column.
//!
//! ```text
//! block   columns u16, then of each: name (length u8, bytes), type u8, presence u8, length u32, body
//! body    with presence 2 a bit for each row, then the known values:
//! times and numbers   varints of the zigzag difference to the one before
//! truth values        a byte each
//! texts   0: each with its length as a varint
//!         1: distinct texts (count u32), then for each row the number of its text in 0, 1, 2 or 4 bytes
//! ```
//! All numbers are little-endian. A column of which nothing is known is left out.

use super::BLOCK_ROWS_MAX;
use super::columns::{DecodedColumn, Values};
use penstock_model::observation::{CellRef, CellSink, CellType, Column, Row, Text};
use std::collections::HashMap;

const PRESENT_ALL: u8 = 1;
const PRESENT_BITS: u8 = 2;
const TEXTS_PLAIN: u8 = 0;
const TEXTS_DISTINCT: u8 = 1;
/// When so many values of a column are known, and more than seven in eight differ, it is written text by text.
const LOOKED_UP_MIN: usize = 1_024;
/// Blocks of a later version may be larger, within reason.
pub(super) const ROWS_READ_MAX: u32 = 16 * BLOCK_ROWS_MAX;

/// Gathers rows.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    columns: &'static [Column],
    gathered: FamilyColumns,
}

#[derive(Debug)]
struct FamilyColumns {
    rows: u32,
    columns: Vec<ColumnBuilder>,
}

#[derive(Debug, Default)]
struct ColumnBuilder {
    known: u32,
    present: Vec<u8>,
    last: i64,
    values: Vec<u8>,
    texts: TextBuilder,
}

/// Gathers the texts of a column.
#[derive(Debug)]
enum TextBuilder {
    /// Each text once, and which of them each value is.
    Distinct {
        numbers: HashMap<Text, u32>,
        texts: Vec<Text>,
        chosen: Vec<u32>,
    },
    /// One after the other as they are written: hardly one comes twice, and nothing is looked up.
    Plain(Vec<u8>),
}

impl Default for TextBuilder {
    fn default() -> TextBuilder {
        TextBuilder::Distinct {
            numbers: HashMap::new(),
            texts: Vec::new(),
            chosen: Vec::new(),
        }
    }
}

impl BlockBuilder {
    pub(super) fn new(columns: &'static [Column]) -> BlockBuilder {
        BlockBuilder {
            columns,
            gathered: FamilyColumns {
                rows: 0,
                columns: columns.iter().map(|_| ColumnBuilder::default()).collect(),
            },
        }
    }

    pub(super) fn rows(&self) -> u32 {
        self.gathered.rows
    }

    pub(super) fn push<R: Row>(&mut self, row: &R) {
        row.give_cells(&mut self.gathered);
        self.gathered.rows += 1;
    }

    /// The block of what was gathered; begins anew.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let rows = self.gathered.rows;
        let known = self
            .gathered
            .columns
            .iter()
            .filter(|column| column.known > 0);
        let mut block = Vec::new();
        block.extend((known.count() as u16).to_le_bytes());
        for (column, builder) in self.columns.iter().zip(&mut self.gathered.columns) {
            if builder.known > 0 {
                block.push(column.name.len() as u8);
                block.extend(column.name.as_bytes());
                builder.write(column.cells, rows, &mut block);
                *builder = ColumnBuilder::default();
            }
        }
        self.gathered.rows = 0;
        block
    }
}

impl CellSink for FamilyColumns {
    fn take(&mut self, column: usize, cell: CellRef<'_>) {
        let Some(builder) = self.columns.get_mut(column) else {
            return;
        };
        let (byte, bit) = (self.rows as usize / 8, self.rows % 8);
        if builder.present.len() <= byte {
            builder.present.resize(byte + 1, 0);
        }
        builder.present[byte] |= 1 << bit;
        builder.known += 1;
        match cell {
            CellRef::Integer(value) => {
                write_varint(
                    zigzag(value.wrapping_sub(builder.last)),
                    &mut builder.values,
                );
                builder.last = value;
            }
            CellRef::Truth(value) => builder.values.push(value.into()),
            CellRef::Text(text) => builder.texts.push(text),
        }
    }
}

impl TextBuilder {
    fn push(&mut self, text: &str) {
        let (numbers, texts, chosen) = match self {
            TextBuilder::Plain(written) => return write_text(text, written),
            TextBuilder::Distinct {
                numbers,
                texts,
                chosen,
            } => (numbers, texts, chosen),
        };
        // Many columns say the same in row after row.
        let last = chosen.last().copied();
        let is_as_before = |last: &u32| &*texts[*last as usize] == text;
        let number = match last.filter(is_as_before).or(numbers.get(text).copied()) {
            Some(number) => number,
            None => {
                let number = texts.len() as u32;
                let own: Text = text.into();
                texts.push(own.clone());
                numbers.insert(own, number);
                number
            }
        };
        chosen.push(number);
        if chosen.len() == LOOKED_UP_MIN && texts.len() * 8 > chosen.len() * 7 {
            *self = TextBuilder::Plain(plain(texts, chosen));
        }
    }

    fn write(&self, block: &mut Vec<u8>) {
        let (texts, chosen) = match self {
            TextBuilder::Plain(written) => {
                block.push(TEXTS_PLAIN);
                block.extend(written);
                return;
            }
            TextBuilder::Distinct { texts, chosen, .. } => (texts, chosen),
        };
        if texts.len() * 2 > chosen.len() && chosen.len() > 1 {
            block.push(TEXTS_PLAIN);
            block.extend(plain(texts, chosen));
            return;
        }
        block.push(TEXTS_DISTINCT);
        block.extend((texts.len() as u32).to_le_bytes());
        for text in texts {
            write_text(text, block);
        }
        let width = number_width(texts.len());
        for number in chosen {
            block.extend(&number.to_le_bytes()[..width]);
        }
    }
}

/// Chosen texts one after the other.
fn plain(texts: &[Text], chosen: &[u32]) -> Vec<u8> {
    let mut written = Vec::new();
    for number in chosen {
        write_text(&texts[*number as usize], &mut written);
    }
    written
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    write_varint(text.len() as u64, out);
    out.extend(text.as_bytes());
}

impl ColumnBuilder {
    fn write(&self, cells: CellType, rows: u32, block: &mut Vec<u8>) {
        let is_whole = self.known == rows;
        block.push(type_code(cells));
        block.push(if is_whole { PRESENT_ALL } else { PRESENT_BITS });
        let length_at = block.len();
        block.extend([0; 4]);
        if !is_whole {
            let mut present = self.present.clone();
            present.resize((rows as usize).div_ceil(8), 0);
            block.extend(present);
        }
        match cells {
            CellType::Text => self.texts.write(block),
            CellType::Time | CellType::Signed | CellType::Unsigned | CellType::Truth => {
                block.extend(&self.values);
            }
        }
        let length = (block.len() - length_at - 4) as u32;
        block[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Bytes of the number of one of so many texts.
fn number_width(texts: usize) -> usize {
    match texts {
        0..=1 => 0,
        2..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

fn type_code(cells: CellType) -> u8 {
    match cells {
        CellType::Time => 1,
        CellType::Signed => 2,
        CellType::Unsigned => 3,
        CellType::Text => 4,
        CellType::Truth => 5,
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// What is not as a block is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DamagedBlock;

/// Reads bytes from the front.
struct Front<'a>(&'a [u8]);

impl<'a> Front<'a> {
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], DamagedBlock> {
        let (front, rest) = self.0.split_at_checked(length).ok_or(DamagedBlock)?;
        self.0 = rest;
        Ok(front)
    }

    fn byte(&mut self) -> Result<u8, DamagedBlock> {
        Ok(self.bytes(1)?[0])
    }

    fn number<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], DamagedBlock> {
        self.bytes(LENGTH)?.try_into().map_err(|_| DamagedBlock)
    }

    fn varint(&mut self) -> Result<u64, DamagedBlock> {
        let mut value = 0;
        for (at, byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(DamagedBlock)
    }

    fn text(&mut self) -> Result<Text, DamagedBlock> {
        let length = usize::try_from(self.varint()?).map_err(|_| DamagedBlock)?;
        let text = std::str::from_utf8(self.bytes(length)?).map_err(|_| DamagedBlock)?;
        Ok(text.into())
    }
}

/// Decodes the columns of a block that are wanted. What has no place in the row is passed over. A column that comes twice, or
/// does not come although each row has a value of it, is damage: so a block has no more rows than bytes, of which each value of
/// the time takes one.
pub(super) fn decode(
    block: &[u8],
    rows: u32,
    columns: &[Column],
    is_wanted: impl Fn(usize) -> bool,
) -> Result<Vec<DecodedColumn>, DamagedBlock> {
    if rows > ROWS_READ_MAX {
        return Err(DamagedBlock);
    }
    let mut front = Front(block);
    let count = u16::from_le_bytes(front.number()?);
    let mut decoded = Vec::new();
    let mut found = vec![false; columns.len()];
    for _ in 0..count {
        let name_length = front.byte()?;
        let name = front.bytes(name_length.into())?;
        let (code, presence) = (front.byte()?, front.byte()?);
        let length = u32::from_le_bytes(front.number()?);
        let body = front.bytes(length as usize)?;
        let is_it =
            |column: &Column| column.name.as_bytes() == name && code == type_code(column.cells);
        let Some(place) = columns.iter().position(is_it) else {
            continue;
        };
        if std::mem::replace(&mut found[place], true)
            || presence != PRESENT_ALL && !columns[place].is_optional
        {
            return Err(DamagedBlock);
        }
        if is_wanted(place) {
            decoded.push(decode_column(place, code, presence, body, rows)?);
        }
    }
    let mut all = columns.iter().zip(found);
    match all.all(|(column, is_found)| is_found || column.is_optional) {
        true => Ok(decoded),
        false => Err(DamagedBlock),
    }
}

fn decode_column(
    place: usize,
    code: u8,
    presence: u8,
    body: &[u8],
    rows: u32,
) -> Result<DecodedColumn, DamagedBlock> {
    let mut front = Front(body);
    let (present, known) = match presence {
        PRESENT_ALL => (None, rows as usize),
        PRESENT_BITS => {
            let bits = front.bytes((rows as usize).div_ceil(8))?;
            let mut bits = bits.to_vec();
            // Bits behind the last row would ask for values that are not there.
            if let (Some(last), used @ 1..) = (bits.last_mut(), rows % 8) {
                *last &= (1_u8 << used) - 1;
            }
            let known = bits.iter().map(|byte| byte.count_ones() as usize).sum();
            (Some(bits), known)
        }
        _ => return Err(DamagedBlock),
    };
    let values = match code {
        1..=3 => integers(&mut front, known)?,
        4 => texts(&mut front, known)?,
        5 => Values::Truths(front.bytes(known)?.iter().map(|byte| *byte != 0).collect()),
        _ => return Err(DamagedBlock),
    };
    Ok(DecodedColumn::new(place, present, values))
}

fn integers(front: &mut Front<'_>, known: usize) -> Result<Values, DamagedBlock> {
    let mut values = Vec::with_capacity(known);
    let mut last = 0_i64;
    for _ in 0..known {
        last = last.wrapping_add(unzigzag(front.varint()?));
        values.push(last);
    }
    Ok(Values::Integers(values))
}

fn texts(front: &mut Front<'_>, known: usize) -> Result<Values, DamagedBlock> {
    match front.byte()? {
        TEXTS_PLAIN => {
            let texts = (0..known).map(|_| front.text());
            let texts: Vec<Text> = texts.collect::<Result<_, _>>()?;
            Ok(Values::Texts(texts, (0..known as u32).collect()))
        }
        TEXTS_DISTINCT => {
            let count = u32::from_le_bytes(front.number()?) as usize;
            if count > known {
                return Err(DamagedBlock);
            }
            let distinct = (0..count).map(|_| front.text());
            let distinct: Vec<Text> = distinct.collect::<Result<_, _>>()?;
            let width = number_width(count);
            let mut chosen = Vec::with_capacity(known);
            for _ in 0..known {
                let mut number = [0; 4];
                number[..width].copy_from_slice(front.bytes(width)?);
                let number = u32::from_le_bytes(number);
                if number as usize >= count {
                    return Err(DamagedBlock);
                }
                chosen.push(number);
            }
            Ok(Values::Texts(distinct, chosen))
        }
        _ => Err(DamagedBlock),
    }
}
