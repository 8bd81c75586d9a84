//! Reads a table again: our own, or one that another program wrote with our columns.

use super::pages::Chunk;
use super::thrift::{self, Bounds, Fields, Struct, Unreadable, Value};
use super::{MAGIC, ROWS_KEY, physical};
use crate::store::columns::{self, DecodedColumn};
use penstock_model::observation::{CellType, Family, OBSERVATION_VERSION, Row};
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use thiserror::Error;

/// Bytes of a footer, of a column's pages and rows of a group at most: what is held in memory.
pub(super) const FOOTER_BYTES_MAX: u64 = 64 << 20;
const CHUNK_BYTES_MAX: u64 = 1 << 30;
const GROUP_ROWS_MAX: i64 = 1 << 20;
/// What a footer says: elements of the schema, row groups, columns of a group, and the memory that all of it takes. It has
/// room for some 200 million of our own rows.
pub(super) const FOOTER_BOUNDS: Bounds = Bounds {
    elements_max: 16_384,
    memory_bytes_max: 256 << 20,
};
const UNCOMPRESSED: i64 = 0;
const OPTIONAL: i64 = 1;

/// Why a file is not read.
#[derive(Debug, Error)]
pub enum InvalidParquet {
    #[error("{0}")]
    Disk(#[from] io::Error),
    /// It is no Parquet, or damaged.
    #[error("not a whole Parquet file: {0}")]
    Malformed(&'static str),
    /// It is Parquet that is written in a way that is not read here.
    #[error("{0}")]
    NotSupported(&'static str),
    /// Its footer says more than is read.
    #[error("its footer has {found} {what}; at most {max} are read: write it as several files")]
    TooLarge {
        what: &'static str,
        found: u64,
        /// How many may be.
        max: u64,
    },
    /// Its footer would take more memory than it may.
    #[error("its footer takes more than {} MiB of memory: write it as several files", .0 >> 20)]
    TooMuchMemory(usize),
    #[error("it holds rows of '{0}'")]
    OtherRows(String),
    /// A column holds something else, or a value that cannot be.
    #[error("column '{0}' does not hold what it should")]
    Column(String),
}

const MALFORMED: InvalidParquet = InvalidParquet::Malformed("its parts do not fit together");

/// Which rows a file holds.
pub fn family_of(file: &mut (impl Read + Seek)) -> Result<Family, InvalidParquet> {
    let footer = read_footer(file)?;
    let keys = footer.list(5).unwrap_or_default();
    let rows = keys.iter().find_map(|key| match key {
        Value::Struct(key) if key.text(1) == Some(ROWS_KEY) => key.text(2),
        _ => None,
    });
    let rows = rows.unwrap_or("something else");
    let named = rows.split_once(' ');
    let own_version = OBSERVATION_VERSION.to_string();
    let family = named.filter(|(_, version)| *version == own_version);
    let family = family.and_then(|(word, _)| Family::from_word(word));
    family.ok_or_else(|| InvalidParquet::OtherRows(rows.to_owned()))
}

/// Bytes of a file that were read as columns: where they begin, and where they end. No two columns share any, so that a small
/// file does not become many rows by naming its bytes again and again.
#[derive(Default)]
struct ReadSpans(BTreeMap<u64, u64>);

impl ReadSpans {
    fn take(&mut self, (begin, length): (u64, u64)) -> Result<(), InvalidParquet> {
        if length == 0 {
            return Ok(());
        }
        let end = begin.saturating_add(length);
        let before = self.0.range(..=begin).next_back();
        let behind = self.0.range(begin..).next();
        if before.is_some_and(|(_, until)| *until > begin)
            || behind.is_some_and(|(from, _)| *from < end)
        {
            return Err(InvalidParquet::Malformed("two columns share bytes"));
        }
        self.0.insert(begin, end);
        Ok(())
    }
}

/// Hands each row to `take`, until it breaks. Columns that are not in the file are unknown.
pub fn read<R: Row>(
    file: &mut (impl Read + Seek),
    mut take: impl FnMut(&R) -> ControlFlow<()>,
) -> Result<(), InvalidParquet> {
    let footer = read_footer(file)?;
    let optional = optional_columns(&footer).ok_or(MALFORMED)?;
    let mut spans = ReadSpans::default();
    for group in footer.list(4).ok_or(MALFORMED)? {
        let Value::Struct(group) = group else {
            return Err(MALFORMED);
        };
        let rows = group.integer(3).ok_or(MALFORMED)?;
        if !(0..=GROUP_ROWS_MAX).contains(&rows) {
            let what = "a row group has more than a million rows: write smaller ones";
            return Err(InvalidParquet::NotSupported(what));
        }
        let mut decoded = Vec::new();
        for chunk in group.list(1).ok_or(MALFORMED)? {
            let Value::Struct(chunk) = chunk else {
                return Err(MALFORMED);
            };
            let metadata = chunk.structure(3).ok_or(MALFORMED)?;
            let name = column_name(metadata).ok_or(MALFORMED)?;
            if let Some(place) = R::COLUMNS.iter().position(|column| column.name == name) {
                if decoded
                    .iter()
                    .any(|column: &DecodedColumn| column.place == place)
                {
                    return Err(InvalidParquet::Column(name.to_owned()));
                }
                let span = span_of(metadata).ok_or(MALFORMED)?;
                spans.take(span)?;
                let chunk = ColumnChunk {
                    metadata,
                    span,
                    place,
                    is_optional: optional.contains(&name),
                    rows: rows as u32,
                };
                decoded.push(chunk.decode::<R>(file)?);
            }
        }
        for (place, column) in R::COLUMNS.iter().enumerate() {
            let is_there = decoded.iter().any(|decoded| decoded.place == place);
            if !column.is_optional && !is_there {
                return Err(InvalidParquet::Column(column.name.to_owned()));
            }
        }
        if each_row(&decoded, rows as u32, &mut take)?.is_break() {
            break;
        }
    }
    Ok(())
}

fn each_row<R: Row>(
    decoded: &[DecodedColumn],
    rows: u32,
    take: &mut impl FnMut(&R) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, InvalidParquet> {
    let mut row = R::default();
    let mut flow = ControlFlow::Continue(());
    let outcome = columns::each_row(decoded, rows, &mut row, |row| {
        if flow.is_continue() {
            flow = take(row);
        }
    });
    outcome.map_err(|place| InvalidParquet::Column(R::COLUMNS[place].name.to_owned()))?;
    Ok(flow)
}

/// A column of a row group, as the footer tells of it.
struct ColumnChunk<'a> {
    metadata: &'a Struct,
    /// Where its bytes begin, and how many there are.
    span: (u64, u64),
    place: usize,
    is_optional: bool,
    rows: u32,
}

impl ColumnChunk<'_> {
    fn decode<R: Row>(
        &self,
        file: &mut (impl Read + Seek),
    ) -> Result<DecodedColumn, InvalidParquet> {
        let ColumnChunk {
            metadata,
            span: (begin, length),
            place,
            is_optional,
            rows,
        } = *self;
        let column = &R::COLUMNS[place];
        let wrong = || InvalidParquet::Column(column.name.to_owned());
        if metadata.integer(4) != Some(UNCOMPRESSED) {
            let what = "it is compressed: write it without compression";
            return Err(InvalidParquet::NotSupported(what));
        }
        let physical = metadata.integer(1).ok_or_else(wrong)?;
        let fits = match column.cells {
            CellType::Time | CellType::Signed | CellType::Unsigned => {
                [physical::INT32, physical::INT64].contains(&physical)
            }
            CellType::Text => physical == physical::BYTE_ARRAY,
            CellType::Truth => physical == physical::BOOLEAN,
        };
        let values = metadata.integer(5);
        if !fits || values != Some(rows.into()) {
            return Err(wrong());
        }
        let bytes = read_at(file, begin, length)?;
        let chunk = Chunk {
            place,
            physical,
            is_optional,
            rows,
        };
        chunk.decode(&bytes).ok_or_else(wrong)
    }
}

/// Where the pages of a column begin, and their length.
fn span_of(metadata: &Struct) -> Option<(u64, u64)> {
    let data = metadata.integer(9)?;
    let begin = metadata
        .integer(11)
        .map_or(data, |dictionary| dictionary.min(data));
    let length = u64::try_from(metadata.integer(7)?).ok()?;
    (length <= CHUNK_BYTES_MAX).then_some((u64::try_from(begin).ok()?, length))
}

/// Never allocates more than the file has.
fn read_at(file: &mut (impl Read + Seek), at: u64, length: u64) -> Result<Vec<u8>, InvalidParquet> {
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == length {
        true => Ok(bytes),
        false => Err(InvalidParquet::Malformed("it ends before it should")),
    }
}

fn read_footer(file: &mut (impl Read + Seek)) -> Result<Struct, InvalidParquet> {
    let size = file.seek(SeekFrom::End(0))?;
    if size < 12 {
        return Err(InvalidParquet::Malformed("it is too short"));
    }
    let end = read_at(file, size - 8, 8)?;
    let (length, magic) = end.split_first_chunk::<4>().ok_or(MALFORMED)?;
    let length = u64::from(u32::from_le_bytes(*length));
    if magic != MAGIC {
        return Err(InvalidParquet::Malformed("it does not end as one"));
    }
    if length + 12 > size {
        let what = "its footer is longer than the file";
        return Err(InvalidParquet::Malformed(what));
    }
    if length > FOOTER_BYTES_MAX {
        return Err(InvalidParquet::TooLarge {
            what: "bytes",
            found: length,
            max: FOOTER_BYTES_MAX,
        });
    }
    let footer = read_at(file, size - 8 - length, length)?;
    let (footer, _) = thrift::read(&footer, FOOTER_BOUNDS).map_err(unreadable)?;
    Ok(footer)
}

fn unreadable(why: Unreadable) -> InvalidParquet {
    match why {
        Unreadable::Damaged => MALFORMED,
        Unreadable::Memory => InvalidParquet::TooMuchMemory(FOOTER_BOUNDS.memory_bytes_max),
        Unreadable::List {
            depth,
            field,
            elements,
        } => InvalidParquet::TooLarge {
            // parquet.thrift: FileMetaData, and RowGroup in its list.
            what: match (depth, field) {
                (0, 2) => "elements of the schema",
                (0, 4) => "row groups",
                (2, 1) => "columns in a row group",
                _ => "elements of a list",
            },
            found: elements as u64,
            max: FOOTER_BOUNDS.elements_max as u64,
        },
    }
}

fn column_name(metadata: &Struct) -> Option<&str> {
    match metadata.list(3)? {
        [Value::Binary(name)] => std::str::from_utf8(name).ok(),
        _ => None,
    }
}

fn optional_columns(footer: &Struct) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    for element in footer.list(2)?.iter().skip(1) {
        let Value::Struct(element) = element else {
            return None;
        };
        if element.integer(3) == Some(OPTIONAL) {
            names.push(element.text(4)?);
        }
    }
    Some(names)
}
