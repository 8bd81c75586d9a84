//! Rows as files that others read and write: a line of JSON for each, or Parquet. What is exported and imported again is
//! identical. `docs/observe/records.md` describes both.

pub mod ndjson;
pub mod parquet;

#[cfg(test)]
mod tests {
    use super::{ndjson, parquet};
    use crate::store::{Reader, Store};
    use penstock_model::TimeWindow;
    use penstock_model::observation::{
        Attempt, Cell, CellType, Change, EntryChange, EntryChangeReason, Family, Incident,
        NamespaceChange, Observation, Operation, Outcome, Row, Sample, View,
    };
    use proptest::prelude::*;
    use std::io::Cursor;
    use std::ops::ControlFlow;

    const DOCUMENT: &str = include_str!("../../../docs/observe/records.md");

    #[test]
    fn the_columns_that_are_documented_are_those_of_rows() {
        let tables = [
            Attempt::COLUMNS,
            Sample::COLUMNS,
            Change::COLUMNS,
            Incident::COLUMNS,
            NamespaceChange::COLUMNS,
        ];
        let (_, tables_text) = DOCUMENT.split_once("\n## attempt\n").expect("its tables");
        let mut documented = tables_text.lines().filter(|line| line.starts_with("| `"));
        for column in tables.into_iter().flatten() {
            let line = documented.next().unwrap_or_default();
            let mut cells = line.split(" | ");
            assert_eq!(cells.next(), Some(&*format!("| `{}`", column.name)));
            let is_optional = cells
                .next()
                .is_some_and(|holds| holds.ends_with("may be unknown"));
            assert_eq!(is_optional, column.is_optional, "{line}");
            let meaning = cells.next().map(|meaning| meaning.trim_end_matches(" |"));
            assert_eq!(meaning, Some(column.meaning.trim()), "{line}");
        }
    }

    /// What columns may be filled with: a number, a text, and whether they are.
    type ColumnValues = Vec<(i64, String, bool)>;

    fn filled<R: Row>(filling: &ColumnValues) -> R {
        let mut row = R::default();
        for (place, (number, text, is_known)) in filling.iter().enumerate().take(R::COLUMNS.len()) {
            if *is_known {
                let words = [
                    text.as_str(),
                    View::ALL[number.rem_euclid(3) as usize].word(),
                ];
                let more = [
                    Operation::ALL[number.rem_euclid(8) as usize].word(),
                    Outcome::ALL[number.rem_euclid(3) as usize].word(),
                    EntryChange::ALL[number.rem_euclid(10) as usize].word(),
                    EntryChangeReason::ALL[number.rem_euclid(7) as usize].word(),
                ];
                for word in words.into_iter().chain(more) {
                    let cell = match R::COLUMNS[place].cells {
                        CellType::Text => Cell::Text(word.into()),
                        CellType::Truth => Cell::Truth(number % 2 == 0),
                        CellType::Time | CellType::Signed | CellType::Unsigned => {
                            Cell::Integer(*number)
                        }
                    };
                    // A word of another kind is refused; the next may be one of this kind.
                    if row.set(place, cell) {
                        break;
                    }
                }
            }
        }
        row
    }

    fn check<R: Row + Into<Observation> + PartialEq + std::fmt::Debug>(
        fillings: &[ColumnValues],
    ) -> Result<(), TestCaseError> {
        let rows: Vec<R> = fillings.iter().map(filled).collect();
        let failed = |why: String| TestCaseError::fail(why);
        let mut writer = parquet::ParquetWriter::new(Vec::new()).expect("memory");
        for row in &rows {
            let row_of_any: Observation = row.clone().into();
            let line = ndjson::line(&row_of_any);
            let again = ndjson::parse(line.as_bytes()).map_err(|why| failed(why.to_string()))?;
            prop_assert_eq!(again, Some(row_of_any));
            writer.push(row).expect("memory");
        }
        let file = writer.finish().expect("memory");
        let mut again = Vec::new();
        let read = parquet::read(&mut Cursor::new(&file), |row: &R| {
            again.push(row.clone());
            ControlFlow::Continue(())
        });
        read.map_err(|why| failed(why.to_string()))?;
        prop_assert_eq!(&again, &rows);
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Store::open(directory.path()).expect("it opens");
        for row in &rows {
            store.append_row(row).expect("taken");
        }
        store.flush().expect("durable");
        let mut kept = Vec::new();
        let mut reader = Reader::open(directory.path()).expect("it opens");
        let read = reader.each::<R>(TimeWindow::ALL, &[], |row| kept.push(row.clone()));
        read.map_err(|why| failed(why.to_string()))?;
        prop_assert_eq!(reader.skipped(), []);
        for row in &rows {
            let count = |rows: &[R]| rows.iter().filter(|other| *other == row).count();
            prop_assert_eq!(count(&kept), count(&rows));
        }
        prop_assert_eq!(kept.len(), rows.len());
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn rows_of_each_family_come_back_from_lines_from_parquet_and_from_the_store(
            family in 0..5_usize,
            days in any::<bool>(),
            mut fillings in proptest::collection::vec(
                proptest::collection::vec((any::<i64>(), "[a-zé/\\x00\"]{0,9}", any::<bool>()), 70),
                1..12,
            ),
        ) {
            for filling in &mut fillings {
                // Times that have a day with a name; there are few of them, so that files are shared.
                filling[0].0 = filling[0].0.rem_euclid(if days { 400_000_000 } else { 5 });
            }
            match Family::ALL[family] {
                Family::Attempt => check::<Attempt>(&fillings)?,
                Family::Sample => check::<Sample>(&fillings)?,
                Family::Change => check::<Change>(&fillings)?,
                Family::Incident => check::<Incident>(&fillings)?,
                Family::NamespaceChange => check::<NamespaceChange>(&fillings)?,
            }
        }
    }
}
