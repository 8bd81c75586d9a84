//! A line of JSON for each row, behind a line that tells the version.

use penstock_model::observation::{
    Attempt, Change, Family, Incident, NamespaceChange, OBSERVATION_VERSION, Observation, Sample,
};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// Bytes of a line at most.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Heading {
    penstock_records: u32,
}

/// Why a line is no row.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum InvalidLine {
    /// It is of a version that is not known here.
    #[error("records of version {0}; this release reads version {OBSERVATION_VERSION}")]
    Version(u32),
    /// It is none.
    #[error("{0}")]
    Malformed(String),
    #[error("longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
}

/// The first line of a file, without its end.
pub fn heading() -> String {
    let heading = Heading {
        penstock_records: OBSERVATION_VERSION,
    };
    serde_json::to_string(&heading).expect("plain data serialises")
}

/// A row as its line, without its end.
pub fn line(row: &Observation) -> String {
    serde_json::to_string(row).expect("plain data serialises")
}

/// Reads a line. `None`: it is a heading, or blank.
pub fn parse(line: &[u8]) -> Result<Option<Observation>, InvalidLine> {
    if line.len() > LINE_BYTES_MAX {
        return Err(InvalidLine::TooLong);
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    if line.starts_with(FAMILY_FIRST)
        && let Ok(FamilyFirst(row)) = serde_json::from_slice(line)
    {
        return Ok(Some(row));
    }
    if let Ok(heading) = serde_json::from_slice::<Heading>(line) {
        return match heading.penstock_records {
            OBSERVATION_VERSION => Ok(None),
            other => Err(InvalidLine::Version(other)),
        };
    }
    let row = serde_json::from_slice(line);
    row.map(Some)
        .map_err(|why| InvalidLine::Malformed(why.to_string()))
}

/// How a line begins that we wrote.
const FAMILY_FIRST: &[u8] = br#"{"row":"#;

/// A row whose first key tells the family: the others can then be taken as they come. In another order all of them have to be
/// kept until it is known.
struct FamilyFirst(Observation);

struct FamilyFirstVisitor;

impl<'a> Visitor<'a> for FamilyFirstVisitor {
    type Value = Observation;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a row")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut keys: A) -> Result<Observation, A::Error> {
        if keys.next_key::<&str>()? != Some("row") {
            return Err(A::Error::missing_field("row"));
        }
        let family = keys.next_value::<Family>()?;
        let columns = MapAccessDeserializer::new(keys);
        Ok(match family {
            Family::Attempt => Attempt::deserialize(columns)?.into(),
            Family::Sample => Sample::deserialize(columns)?.into(),
            Family::Change => Change::deserialize(columns)?.into(),
            Family::Incident => Incident::deserialize(columns)?.into(),
            Family::NamespaceChange => NamespaceChange::deserialize(columns)?.into(),
        })
    }
}

impl<'a> Deserialize<'a> for FamilyFirst {
    fn deserialize<D: Deserializer<'a>>(json: D) -> Result<FamilyFirst, D::Error> {
        json.deserialize_map(FamilyFirstVisitor).map(FamilyFirst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::observation::Change;

    #[test]
    fn a_row_comes_back_from_its_line() {
        let change = Change {
            subject: "https://se.example".into(),
            name: "limit".into(),
            old: Some("30".into()),
            ..Change::default()
        };
        let row = Observation::from(change);
        assert_eq!(parse(line(&row).as_bytes()), Ok(Some(row.clone())));
        let other_order = line(&row).replace(r#"{"row":"change","#, "{");
        let other_order = other_order.replace('}', r#","row":"change"}"#);
        assert_eq!(parse(other_order.as_bytes()), Ok(Some(row)));
        assert_eq!(parse(heading().as_bytes()), Ok(None));
        let unknown = parse(br#"{"row":"change","nam":"x"}"#);
        assert!(matches!(unknown, Err(InvalidLine::Malformed(why)) if why.contains("`nam`")));
        assert_eq!(parse(b" \r"), Ok(None));
        assert_eq!(
            parse(br#"{"penstock_records":2}"#),
            Err(InvalidLine::Version(2))
        );
        assert!(matches!(parse(b"{}"), Err(InvalidLine::Malformed(_))));
        assert!(matches!(parse(b"\xff"), Err(InvalidLine::Malformed(_))));
    }
}
