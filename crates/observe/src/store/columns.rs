//! Columns that were decoded, and the rows that they make.

use penstock_model::observation::{Cell, Row, Text};

#[derive(Debug)]
pub(crate) struct DecodedColumn {
    /// Its place in the row.
    pub(crate) place: usize,
    /// A bit for each row that has a value; `None`: all have.
    present: Option<Vec<u8>>,
    values: Values,
}

/// The known values of a column.
#[derive(Debug)]
pub(crate) enum Values {
    Integers(Vec<i64>),
    Truths(Vec<bool>),
    /// Distinct texts, and for each value the number of its text.
    Texts(Vec<Text>, Vec<u32>),
}

impl Values {
    /// Appends values of a dictionary, by their numbers. `None`: one is not in it.
    pub(crate) fn choose(&mut self, dictionary: &Values, numbers: &[u32]) -> Option<()> {
        for number in numbers {
            let number = *number as usize;
            match (&mut *self, dictionary) {
                (Values::Integers(values), Values::Integers(known)) => {
                    values.push(*known.get(number)?);
                }
                (Values::Texts(texts, chosen), Values::Texts(known, _)) => {
                    chosen.push(texts.len() as u32);
                    texts.push(known.get(number)?.clone());
                }
                _ => return None,
            }
        }
        Some(())
    }
}

impl DecodedColumn {
    /// There are as many values as rows that have one.
    pub(crate) fn new(place: usize, present: Option<Vec<u8>>, values: Values) -> DecodedColumn {
        DecodedColumn {
            place,
            present,
            values,
        }
    }
}

/// Goes through a column row by row.
struct Cursor<'a> {
    column: &'a DecodedColumn,
    next: usize,
}

impl Cursor<'_> {
    /// The value in a row; rows are asked for one after the other, each once.
    fn next(&mut self, row: u32) -> Option<Cell> {
        if let Some(present) = &self.column.present
            && present[row as usize / 8] >> (row % 8) & 1 == 0
        {
            return None;
        }
        let at = self.next;
        self.next += 1;
        Some(match &self.column.values {
            Values::Integers(values) => Cell::Integer(values[at]),
            Values::Truths(values) => Cell::Truth(values[at]),
            Values::Texts(texts, chosen) => Cell::Text(texts[chosen[at] as usize].clone()),
        })
    }
}

/// Fills `row` with each row of some columns, one after the other, and hands it to `take`. An error is the place of a
/// column that has a value that cannot be in it.
pub(crate) fn each_row<R: Row>(
    columns: &[DecodedColumn],
    rows: u32,
    row: &mut R,
    mut take: impl FnMut(&R),
) -> Result<(), usize> {
    let cursors = columns.iter().map(|column| Cursor { column, next: 0 });
    let mut cursors: Vec<Cursor<'_>> = cursors.collect();
    for number in 0..rows {
        for cursor in &mut cursors {
            let place = cursor.column.place;
            match cursor.next(number) {
                Some(cell) => match row.set(place, cell) {
                    true => {}
                    // A word that is not known here.
                    false => return Err(place),
                },
                None => row.clear(place),
            }
        }
        take(row);
    }
    Ok(())
}
