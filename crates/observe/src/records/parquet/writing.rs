//! Writes a table.

use super::thrift::{Value, fields, write_varint};
use super::{MAGIC, ROWS_KEY, encoding, page, physical};
use penstock_model::observation::{CellRef, CellSink, CellType, Column, OBSERVATION_VERSION, Row};
use std::io::{self, Write};
use std::marker::PhantomData;

/// Rows that are gathered for a row group.
const GROUP_ROWS_MAX: u32 = 65_536;
const OPTIONAL: i64 = 1;
const REQUIRED: i64 = 0;
const UNCOMPRESSED: i64 = 0;

/// Writes rows of one family.
#[derive(Debug)]
pub struct ParquetWriter<R, W> {
    out: W,
    written: u64,
    rows: u64,
    group: Group,
    groups: Vec<Value>,
    family: PhantomData<R>,
}

#[derive(Debug)]
struct Group {
    rows: u32,
    columns: Vec<ColumnBuffer>,
}

#[derive(Debug, Default)]
struct ColumnBuffer {
    known: u32,
    present: Vec<u8>,
    values: Vec<u8>,
    truths: u32,
}

impl<R: Row, W: Write> ParquetWriter<R, W> {
    /// Begins a file.
    pub fn new(mut out: W) -> io::Result<ParquetWriter<R, W>> {
        out.write_all(MAGIC)?;
        Ok(ParquetWriter {
            out,
            written: MAGIC.len() as u64,
            rows: 0,
            group: Group::new(R::COLUMNS),
            groups: Vec::new(),
            family: PhantomData,
        })
    }

    /// Takes a row.
    pub fn push(&mut self, row: &R) -> io::Result<()> {
        row.give_cells(&mut self.group);
        self.group.rows += 1;
        if self.group.rows == GROUP_ROWS_MAX {
            self.write_group()?;
        }
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<W> {
        if self.group.rows > 0 {
            self.write_group()?;
        }
        let rows = format!("{} {OBSERVATION_VERSION}", R::FAMILY.word());
        let key = fields([(1, Value::text(ROWS_KEY)), (2, Value::text(&rows))]);
        let root = fields([
            (4, Value::text("penstock")),
            (5, Value::Integer(R::COLUMNS.len() as i64)),
        ]);
        let schema = [root].into_iter().chain(R::COLUMNS.iter().map(schema_of));
        let footer = fields([
            (1, Value::Integer(1)),
            (2, Value::List(schema.collect())),
            (3, Value::Long(self.rows as i64)),
            (4, Value::List(std::mem::take(&mut self.groups))),
            (5, Value::List(vec![key])),
            (6, Value::text("penstock")),
        ]);
        let mut bytes = Vec::new();
        footer.write(&mut bytes);
        let length = bytes.len() as u32;
        bytes.extend(length.to_le_bytes());
        bytes.extend(MAGIC);
        self.out.write_all(&bytes)?;
        Ok(self.out)
    }

    fn write_group(&mut self) -> io::Result<()> {
        let group = std::mem::replace(&mut self.group, Group::new(R::COLUMNS));
        let mut chunks = Vec::new();
        let mut bytes_total = 0;
        for (column, gathered) in R::COLUMNS.iter().zip(&group.columns) {
            let page = gathered.page(column, group.rows);
            chunks.push(chunk_of(column, self.written, page.len(), group.rows));
            self.out.write_all(&page)?;
            self.written += page.len() as u64;
            bytes_total += page.len() as i64;
        }
        self.rows += u64::from(group.rows);
        self.groups.push(fields([
            (1, Value::List(chunks)),
            (2, Value::Long(bytes_total)),
            (3, Value::Long(group.rows.into())),
        ]));
        Ok(())
    }
}

impl Group {
    fn new(columns: &[Column]) -> Group {
        Group {
            rows: 0,
            columns: columns.iter().map(|_| ColumnBuffer::default()).collect(),
        }
    }
}

impl CellSink for Group {
    fn take(&mut self, column: usize, cell: CellRef<'_>) {
        let Some(gathered) = self.columns.get_mut(column) else {
            return;
        };
        set_bit(&mut gathered.present, self.rows);
        gathered.known += 1;
        match cell {
            CellRef::Integer(value) => gathered.values.extend(value.to_le_bytes()),
            CellRef::Text(text) => {
                gathered.values.extend((text.len() as u32).to_le_bytes());
                gathered.values.extend(text.as_bytes());
            }
            CellRef::Truth(value) => {
                let place = gathered.truths;
                gathered.truths += 1;
                gathered
                    .values
                    .resize(gathered.truths.div_ceil(8) as usize, 0);
                if value {
                    set_bit(&mut gathered.values, place);
                }
            }
        }
    }
}

fn set_bit(bits: &mut Vec<u8>, place: u32) {
    let byte = place as usize / 8;
    if bits.len() <= byte {
        bits.resize(byte + 1, 0);
    }
    bits[byte] |= 1 << (place % 8);
}

impl ColumnBuffer {
    /// The page with its head.
    fn page(&self, column: &Column, rows: u32) -> Vec<u8> {
        let mut body = Vec::new();
        if column.is_optional {
            let levels = self.levels(rows);
            body.extend((levels.len() as u32).to_le_bytes());
            body.extend(levels);
        }
        body.extend(&self.values);
        let size = Value::Integer(body.len() as i64);
        let data = fields([
            (1, Value::Integer(rows.into())),
            (2, Value::Integer(encoding::PLAIN)),
            (3, Value::Integer(encoding::RLE)),
            (4, Value::Integer(encoding::RLE)),
        ]);
        let head = fields([
            (1, Value::Integer(page::DATA)),
            (2, size.clone()),
            (3, size),
            (5, data),
        ]);
        let mut page = Vec::new();
        head.write(&mut page);
        page.extend(body);
        page
    }

    /// Which rows have a value, in the hybrid of runs and bits.
    fn levels(&self, rows: u32) -> Vec<u8> {
        let mut levels = Vec::new();
        match self.known {
            0 => {
                write_varint(u64::from(rows) << 1, &mut levels);
                levels.push(0);
            }
            known if known == rows => {
                write_varint(u64::from(rows) << 1, &mut levels);
                levels.push(1);
            }
            _ => {
                let groups = rows.div_ceil(8);
                write_varint(u64::from(groups) << 1 | 1, &mut levels);
                let mut present = self.present.clone();
                present.resize(groups as usize, 0);
                levels.extend(present);
            }
        }
        levels
    }
}

fn physical_of(cells: CellType) -> i64 {
    match cells {
        CellType::Time | CellType::Signed | CellType::Unsigned => physical::INT64,
        CellType::Text => physical::BYTE_ARRAY,
        CellType::Truth => physical::BOOLEAN,
    }
}

fn schema_of(column: &Column) -> Value {
    let repetition = match column.is_optional {
        true => OPTIONAL,
        false => REQUIRED,
    };
    let physical = (1, Value::Integer(physical_of(column.cells)));
    let repetition = (3, Value::Integer(repetition));
    let name = (4, Value::text(column.name));
    // ConvertedType: UTF8 0, TIMESTAMP_MILLIS 9, UINT_64 14, INT_64 18.
    let converted = match column.cells {
        CellType::Text => 0,
        CellType::Time => 9,
        CellType::Unsigned => 14,
        CellType::Signed => 18,
        CellType::Truth => return fields([physical, repetition, name]),
    };
    fields([physical, repetition, name, (6, Value::Integer(converted))])
}

fn chunk_of(column: &Column, offset: u64, size: usize, rows: u32) -> Value {
    let encodings = [encoding::PLAIN, encoding::RLE].map(Value::Integer);
    let metadata = fields([
        (1, Value::Integer(physical_of(column.cells))),
        (2, Value::List(encodings.to_vec())),
        (3, Value::List(vec![Value::text(column.name)])),
        (4, Value::Integer(UNCOMPRESSED)),
        (5, Value::Long(rows.into())),
        (6, Value::Long(size as i64)),
        (7, Value::Long(size as i64)),
        (9, Value::Long(offset as i64)),
    ]);
    fields([(2, Value::Long(offset as i64)), (3, metadata)])
}
