//! Rows as cells in columns: the one description from which files, exports and their documentation are made.

use super::Text;
use crate::ids::{Activity, PoolName, UserName, VoName};
use crate::units::{Bytes, Timestamp};
use std::sync::Arc;

/// What the cells of a column hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellType {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    Time,
    /// A whole number that may be below zero.
    Signed,
    /// A whole number, in [`Cell::Integer`] by its 64 bits.
    Unsigned,
    /// UTF-8.
    Text,
    /// Yes or no.
    Truth,
}

/// A column of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its name, which ends with the unit.
    pub name: &'static str,
    /// What its cells hold.
    pub cells: CellType,
    /// A source may not know it.
    pub is_optional: bool,
    /// For people.
    pub meaning: &'static str,
}

/// A known value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// Times and numbers.
    Integer(i64),
    /// Texts and words.
    Text(Text),
    /// Yes or no.
    Truth(bool),
}

/// The same, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellRef<'a> {
    /// Times and numbers.
    Integer(i64),
    /// Texts and words.
    Text(&'a str),
    /// Yes or no.
    Truth(bool),
}

impl CellRef<'_> {
    /// A value of its own.
    pub fn to_cell(self) -> Cell {
        match self {
            CellRef::Integer(value) => Cell::Integer(value),
            CellRef::Text(text) => Cell::Text(text.into()),
            CellRef::Truth(value) => Cell::Truth(value),
        }
    }
}

/// Takes the known values of a row.
pub trait CellSink {
    /// The value in a column, by its place.
    fn take(&mut self, column: usize, cell: CellRef<'_>);
}

/// A row of one family.
pub trait Row: Clone + Default {
    /// Which family it is of.
    const FAMILY: super::Family;
    /// Its columns; the first is `at`.
    const COLUMNS: &'static [Column];

    /// By which it is kept and found.
    fn at(&self) -> Timestamp;

    /// Gives what is known.
    fn give_cells(&self, sink: &mut impl CellSink);

    /// Sets the value of a column. False: it is no value for that.
    fn set(&mut self, column: usize, cell: Cell) -> bool;

    /// Makes the value of a column unknown; one that must be known gets its default.
    fn clear(&mut self, column: usize);
}

/// A value that can stand in a column.
pub trait Field: Sized {
    /// What the column holds.
    const CELLS: CellType;
    /// Whether it may be unknown.
    const IS_OPTIONAL: bool = false;

    /// The cell. `None`: unknown.
    fn cell(&self) -> Option<CellRef<'_>>;

    /// From a cell. `None`: it is no such value.
    fn from_cell(cell: Cell) -> Option<Self>;

    /// Whether it is unknown.
    fn is_unknown(&self) -> bool {
        Self::IS_OPTIONAL && self.cell().is_none()
    }
}

impl<T: Field> Field for Option<T> {
    const CELLS: CellType = T::CELLS;
    const IS_OPTIONAL: bool = true;

    fn cell(&self) -> Option<CellRef<'_>> {
        self.as_ref().and_then(T::cell)
    }

    fn from_cell(cell: Cell) -> Option<Self> {
        T::from_cell(cell).map(Some)
    }
}

macro_rules! integers {
    ($($type:ty: $cells:ident, |$value:ident| $to:expr, |$integer:ident| $from:expr;)+) => {$(
        impl Field for $type {
            const CELLS: CellType = CellType::$cells;

            fn cell(&self) -> Option<CellRef<'_>> {
                let $value = *self;
                Some(CellRef::Integer($to))
            }

            fn from_cell(cell: Cell) -> Option<Self> {
                match cell {
                    Cell::Integer($integer) => $from,
                    Cell::Text(_) | Cell::Truth(_) => None,
                }
            }
        }
    )+};
}

integers! {
    Timestamp: Time, |value| value.0, |integer| Some(Timestamp(integer));
    Bytes: Unsigned, |value| value.0 as i64, |integer| Some(Bytes(integer as u64));
    u64: Unsigned, |value| value as i64, |integer| Some(integer as u64);
    u32: Unsigned, |value| i64::from(value), |integer| u32::try_from(integer).ok();
    i64: Signed, |value| value, |integer| Some(integer);
}

impl Field for bool {
    const CELLS: CellType = CellType::Truth;

    fn cell(&self) -> Option<CellRef<'_>> {
        Some(CellRef::Truth(*self))
    }

    fn from_cell(cell: Cell) -> Option<Self> {
        match cell {
            Cell::Truth(value) => Some(value),
            Cell::Integer(_) | Cell::Text(_) => None,
        }
    }
}

impl Field for Arc<str> {
    const CELLS: CellType = CellType::Text;

    fn cell(&self) -> Option<CellRef<'_>> {
        Some(CellRef::Text(self))
    }

    fn from_cell(cell: Cell) -> Option<Self> {
        match cell {
            Cell::Text(text) => Some(text),
            Cell::Integer(_) | Cell::Truth(_) => None,
        }
    }
}

macro_rules! names {
    ($($type:ty),+) => {$(
        impl Field for $type {
            const CELLS: CellType = CellType::Text;

            fn cell(&self) -> Option<CellRef<'_>> {
                Some(CellRef::Text(self.as_str()))
            }

            fn from_cell(cell: Cell) -> Option<Self> {
                Text::from_cell(cell).map(<$type>::new)
            }
        }
    )+};
}

names!(VoName, Activity, UserName, PoolName);
