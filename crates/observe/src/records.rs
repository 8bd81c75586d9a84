//! Rows as files that others read and write: a line of JSON for each, or Parquet. What is exported and imported again is
//! identical. `docs/observe/records.md` describes both.

pub mod ndjson;
pub mod parquet;

#[cfg(test)]
mod tests {
    use penstock_model::observation::{Attempt, Change, Incident, Row, Sample};

    const DOCUMENT: &str = include_str!("../../../docs/observe/records.md");

    #[test]
    fn the_columns_that_are_documented_are_those_of_rows() {
        let tables = [
            Attempt::COLUMNS,
            Sample::COLUMNS,
            Change::COLUMNS,
            Incident::COLUMNS,
        ];
        let (_, tables_text) = DOCUMENT.split_once("\n## attempt\n").expect("its tables");
        let mut documented = tables_text.lines().filter(|line| line.starts_with("| `"));
        for column in tables.into_iter().flatten() {
            let line = documented.next().unwrap_or_default();
            let mut cells = line.split(" | ");
            assert_eq!(cells.next(), Some(&*format!("| `{}`", column.name)));
            let is_optional = cells.next().is_some_and(|holds| holds.ends_with("may be unknown"));
            assert_eq!(is_optional, column.is_optional, "{line}");
            let meaning = cells.next().map(|meaning| meaning.trim_end_matches(" |"));
            assert_eq!(meaning, Some(column.meaning.trim()), "{line}");
        }
    }
}
