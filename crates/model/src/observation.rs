//! What somebody saw happen, as rows that any site can fill, also one without our services: attempts, samples, changes
//! and incidents.
//!
//! A row tells what its source told and nothing else: a value that the source does not know is `None`, never a zero or a
//! guess, and one that was computed from others is named in `derived`. Each row names its source and its place there.

mod cells;
mod rows;
mod words;

pub use cells::{Cell, CellRef, CellSink, CellType, Column, Field, Row};
pub use rows::{Attempt, Change, Incident, NamespaceChange, Sample};
pub use words::{
    ChangeKind, EntryChange, EntryChangeReason, Family, IncidentKind, Operation, Outcome,
    SubjectKind, View,
};

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The version of the rows. Raise it when a column changes its meaning or goes; a new column that may be unknown needs no
/// new version, because rows are stored with the names of their columns.
pub const OBSERVATION_VERSION: u32 = 1;

/// A text of a row. Rows of one window share their texts.
pub type Text = Arc<str>;

/// A row of any family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "row")]
pub enum Observation {
    /// An attempt to move one file, as one side saw it.
    Attempt(Box<Attempt>),
    /// What something did in an interval.
    Sample(Box<Sample>),
    /// Something is otherwise than before.
    Change(Box<Change>),
    /// Something went wrong that is not the end of an attempt.
    Incident(Box<Incident>),
    /// An entry of a namespace was made, changed or removed.
    NamespaceChange(Box<NamespaceChange>),
}

impl Observation {
    /// By which it is kept and found.
    pub fn at(&self) -> crate::Timestamp {
        match self {
            Observation::Attempt(row) => row.at,
            Observation::Sample(row) => row.at,
            Observation::Change(row) => row.at,
            Observation::Incident(row) => row.at,
            Observation::NamespaceChange(row) => row.at,
        }
    }

    /// Says where it came from.
    pub fn with_origin(mut self, source: &Text, line: u64) -> Observation {
        let (own_source, own_line) = match &mut self {
            Observation::Attempt(row) => (&mut row.source, &mut row.line),
            Observation::Sample(row) => (&mut row.source, &mut row.line),
            Observation::Change(row) => (&mut row.source, &mut row.line),
            Observation::Incident(row) => (&mut row.source, &mut row.line),
            Observation::NamespaceChange(row) => (&mut row.source, &mut row.line),
        };
        *own_source = source.clone();
        *own_line = line;
        self
    }
}

macro_rules! observations {
    ($($row:ident),+) => {$(
        impl From<$row> for Observation {
            fn from(row: $row) -> Observation {
                Observation::$row(Box::new(row))
            }
        }
    )+};
}

observations!(Attempt, Sample, Change, Incident, NamespaceChange);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Timestamp};

    #[test]
    fn what_is_unknown_is_not_written_and_comes_back_unknown() {
        let attempt = Attempt {
            at: Timestamp(1_000),
            bytes_moved: Some(Bytes(0)),
            outcome: Some(Outcome::Failure),
            ..Attempt::default()
        };
        let row = Observation::from(attempt).with_origin(&"dcache:billing".into(), 7);
        let text = serde_json::to_string(&row).expect("plain data serialises");
        assert_eq!(
            text,
            r#"{"row":"attempt","at":1000,"source":"dcache:billing","line":7,"view":"vo","operation":"copy","bytes_moved":0,"outcome":"failure"}"#
        );
        assert_eq!(
            serde_json::from_str::<Observation>(&text).expect("it was written so"),
            row
        );
    }

    #[test]
    fn a_misspelt_value_is_refused() {
        let text = r#"{"row":"attempt","at":1,"source":"s","line":1,"view":"vo","operation":"copy","bytes_movd":0}"#;
        assert!(serde_json::from_str::<Observation>(text).is_err());
    }

    #[test]
    fn a_row_is_made_again_from_its_cells() {
        let sample = Sample {
            at: Timestamp(-5),
            source: "x".into(),
            line: u64::MAX,
            interval_ms: Some(1000),
            bytes_in: Some(Bytes(u64::MAX)),
            subject: "eth0".into(),
            subject_kind: SubjectKind::Interface,
            ..Sample::default()
        };
        #[derive(Default)]
        struct Cells(Vec<(usize, Cell)>);
        impl CellSink for Cells {
            fn take(&mut self, column: usize, cell: CellRef<'_>) {
                self.0.push((column, cell.to_cell()));
            }
        }
        let mut cells = Cells::default();
        sample.give_cells(&mut cells);
        assert_eq!(cells.0.len(), 8, "only what is known is given");
        let mut again = Sample::default();
        for (column, cell) in cells.0 {
            assert!(again.set(column, cell));
        }
        assert_eq!(again, sample);
        assert!(!again.set(0, Cell::Truth(true)), "a time is no truth value");
    }

    #[test]
    fn columns_have_names_of_their_own_and_say_what_they_mean() {
        for (columns, least) in [
            (Attempt::COLUMNS, 55),
            (Sample::COLUMNS, 30),
            (Change::COLUMNS, 10),
            (Incident::COLUMNS, 12),
            (NamespaceChange::COLUMNS, 15),
        ] {
            let names: std::collections::BTreeSet<&str> =
                columns.iter().map(|column| column.name).collect();
            assert_eq!(names.len(), columns.len());
            assert!(columns.len() >= least, "{}", columns.len());
            assert!(columns.iter().all(|column| column.meaning.len() > 6));
            assert_eq!(
                [columns[0].name, columns[1].name, columns[2].name],
                ["at", "source", "line"]
            );
        }
    }
}
