//! Parquet (parquet-format 2): one flat table for a family, without compression.
//!
//! Written are data pages of version 1 with plain values; read are also dictionaries, which other writers use. The crate
//! `parquet` would read more and costs thirty others (`docs/decisions/0016-rows-in-own-columns.md`).

mod pages;
mod reading;
mod thrift;
mod writing;

pub use reading::{InvalidParquet, family_of, read};
pub use writing::ParquetWriter;

const MAGIC: &[u8; 4] = b"PAR1";
/// The key of the metadata that tells which rows these are: `attempt 1`.
const ROWS_KEY: &str = "penstock.rows";

/// `parquet.thrift`: Type.
mod physical {
    pub(super) const BOOLEAN: i64 = 0;
    pub(super) const INT32: i64 = 1;
    pub(super) const INT64: i64 = 2;
    pub(super) const BYTE_ARRAY: i64 = 6;
}

/// `parquet.thrift`: Encoding.
mod encoding {
    pub(super) const PLAIN: i64 = 0;
    pub(super) const PLAIN_DICTIONARY: i64 = 2;
    pub(super) const RLE: i64 = 3;
    pub(super) const RLE_DICTIONARY: i64 = 8;
}

/// `parquet.thrift`: PageType.
mod page {
    pub(super) const DATA: i64 = 0;
    pub(super) const DICTIONARY: i64 = 2;
}

#[cfg(test)]
mod tests;
