//! Where a difference lies: in which server, VO, link or protocol (Adtributor, NSDI 2014), and in which end of the
//! links of a matrix (median polish).

use super::change::median;
use serde::Serialize;
use std::collections::BTreeMap;

/// An element is named when it carries this part of the difference …
const ELEMENT_MIN: f64 = 0.10;
/// … and a dimension when the elements that are named carry this part together.
const DIMENSION_MIN: f64 = 0.67;
/// Dimensions that are told.
const DIMENSIONS_MAX: usize = 3;

/// A way to divide the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    Server,
    Vo,
    Link,
    Protocol,
}

/// Elements of a dimension that carry a difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Carrier {
    pub dimension: Dimension,
    /// Its elements, each with the part of the difference that it carries.
    pub elements: Vec<(String, f64)>,
    /// How unlike the division is to the usual one.
    pub surprise: f64,
}

/// What each element moves usually, and while the rate is low.
pub type Division = BTreeMap<String, (f64, f64)>;

/// The dimensions in which few elements carry the difference, the most surprising first.
pub fn carriers(divisions: &[(Dimension, Division)]) -> Vec<Carrier> {
    let mut found: Vec<Carrier> = divisions
        .iter()
        .filter_map(|(dimension, division)| carrier(*dimension, division))
        .collect();
    found.sort_by(|a, b| {
        b.surprise
            .total_cmp(&a.surprise)
            .then(a.dimension.cmp(&b.dimension))
    });
    found.truncate(DIMENSIONS_MAX);
    found
}

fn carrier(dimension: Dimension, division: &Division) -> Option<Carrier> {
    let (usual, low) = (division.values()).fold((0.0, 0.0), |(usual, low), element| {
        (usual + element.0, low + element.1)
    });
    let whole = low - usual;
    if division.len() < 2 || whole == 0.0 || usual <= 0.0 || low < 0.0 {
        return None;
    }
    let surprise = |element: &(f64, f64)| {
        let (p, q) = (
            element.0 / usual,
            if low > 0.0 { element.1 / low } else { 0.0 },
        );
        let term = |x: f64| {
            if x > 0.0 {
                x * (2.0 * x / (p + q)).ln()
            } else {
                0.0
            }
        };
        0.5 * (term(p) + term(q))
    };
    let mut elements: Vec<(&String, f64, f64)> = division
        .iter()
        .map(|(name, element)| (name, (element.1 - element.0) / whole, surprise(element)))
        .collect();
    elements.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| a.0.cmp(b.0)));
    let mut carrier = Carrier {
        dimension,
        elements: Vec::new(),
        surprise: 0.0,
    };
    let mut carried = 0.0;
    for (name, part, surprise) in elements {
        if carried >= DIMENSION_MIN {
            break;
        }
        if part > ELEMENT_MIN {
            carried += part;
            carrier.surprise += surprise;
            carrier.elements.push((name.clone(), part));
        }
    }
    // When all carry it alike, the dimension says nothing.
    let says_something = carrier.elements.len() * 2 <= division.len() && carrier.surprise > 1e-3;
    (carried >= DIMENSION_MIN && says_something).then_some(carrier)
}

/// A matrix of values as a level, an effect of each row and of each column (Tukey's median polish).
#[derive(Debug, Clone, PartialEq)]
pub struct RowAndColumnEffects<K> {
    pub level: f64,
    /// Of each source.
    pub rows: BTreeMap<K, f64>,
    /// Of each destination.
    pub columns: BTreeMap<K, f64>,
}

/// Fits it. Cells may be missing.
pub fn polish<K: Ord + Clone>(cells: &BTreeMap<(K, K), f64>) -> RowAndColumnEffects<K> {
    let mut rest = cells.clone();
    let mut rows: BTreeMap<K, f64> = cells.keys().map(|(row, _)| (row.clone(), 0.0)).collect();
    let mut columns: BTreeMap<K, f64> = cells
        .keys()
        .map(|(_, column)| (column.clone(), 0.0))
        .collect();
    let level = middle(cells.values().copied());
    rest.values_mut().for_each(|value| *value -= level);
    for _ in 0..10 {
        for (row, effect) in &mut rows {
            let of_row = middle(
                rest.iter()
                    .filter(|(key, _)| key.0 == *row)
                    .map(|(_, value)| *value),
            );
            *effect += of_row;
            rest.iter_mut()
                .filter(|(key, _)| key.0 == *row)
                .for_each(|(_, value)| *value -= of_row);
        }
        for (column, effect) in &mut columns {
            let of_column = middle(
                rest.iter()
                    .filter(|(key, _)| key.1 == *column)
                    .map(|(_, value)| *value),
            );
            *effect += of_column;
            rest.iter_mut()
                .filter(|(key, _)| key.1 == *column)
                .for_each(|(_, value)| *value -= of_column);
        }
    }
    RowAndColumnEffects {
        level,
        rows,
        columns,
    }
}

/// The median, of two in the middle their mean.
fn middle(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let upper = median(values.clone()).unwrap_or(0.0);
    let lower = median(values.map(|value| -value)).map_or(0.0, |value| -value);
    (upper + lower) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_that_lost_its_bytes_is_named_and_even_losses_are_not() {
        let division = |values: [(f64, f64); 4]| {
            (0..4)
                .map(|n| (format!("s{n}"), values[n]))
                .collect::<Division>()
        };
        let one = division([(50.0, 50.0), (50.0, 2.0), (50.0, 49.0), (50.0, 51.0)]);
        let even = division([(50.0, 30.0), (50.0, 31.0), (50.0, 29.0), (50.0, 30.0)]);
        let found = carriers(&[(Dimension::Vo, even), (Dimension::Server, one)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].dimension, Dimension::Server);
        assert_eq!(found[0].elements[0].0, "s1");
    }

    #[test]
    fn a_source_that_is_slow_to_all_is_told_from_the_others() {
        let mut cells = BTreeMap::new();
        for source in 0..4 {
            for destination in (0..4).filter(|destination| *destination != source) {
                let value = if source == 2 { -0.7 } else { 0.0 };
                cells.insert((source, destination), value + f64::from(destination) * 1e-3);
            }
        }
        let effects = polish(&cells);
        assert!(
            (effects.rows[&2] - effects.rows[&1] + 0.7).abs() < 0.01,
            "{effects:?}"
        );
        assert!(effects.columns.values().all(|effect| effect.abs() < 0.01));
    }
}
