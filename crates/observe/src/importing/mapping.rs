//! Lines of logs to rows, by a file that a site writes: of HPSS, TReqS, CTA, Enstore, and whatever else writes lines
//! (`docs/observe/mapping.md`).
//!
//! A rule is a regular expression whose named groups are columns, or names of `key="value"` pairs. A line that no rule
//! fits is none of its business; one that fits and has a value that cannot be is an error.

use super::{Parser, SourceHints, fingerprint_of};
use crate::times;
use penstock_model::Timestamp;
use penstock_model::observation::{
    Attempt, Cell, CellType, Change, Column, Incident, Observation, Row, Sample,
};
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeMap;
use thiserror::Error;

/// Memory of one compiled expression at most: the file comes from people.
const EXPRESSION_BYTES_MAX: usize = 1 << 20;
const RULES_MAX: usize = 200;
/// Pairs of a line that are looked at.
const PAIRS_MAX: usize = 200;

/// Why a mapping cannot be used.
#[derive(Debug, Error)]
pub enum InvalidMapping {
    /// It is no such file.
    #[error("{0}")]
    Malformed(#[from] Box<toml::de::Error>),
    #[error("at most {RULES_MAX} rules are allowed")]
    TooManyRules,
    /// A rule makes no sense.
    #[error("rule {rule}: {what}")]
    Rule {
        /// Which, from 1.
        rule: usize,
        /// What is wrong with it.
        what: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MappingFile {
    rule: Vec<RuleText>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RowKind {
    Attempt,
    Sample,
    Change,
    Incident,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    row: RowKind,
    /// Named groups are columns.
    expression: Option<String>,
    /// Or: pairs that a line must have, with their values.
    #[serde(default)]
    pairs: BTreeMap<String, String>,
    /// Columns, and the names of the pairs that fill them.
    #[serde(default)]
    columns: BTreeMap<String, String>,
    /// Columns that are the same in each row.
    #[serde(default)]
    set: BTreeMap<String, String>,
    /// Units of numbers, by column.
    #[serde(default)]
    units: BTreeMap<String, Unit>,
    /// Words of the source and what they mean here, by column.
    #[serde(default)]
    words: BTreeMap<String, BTreeMap<String, String>>,
    /// How times are written.
    time: String,
}

/// The unit of a number in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Unit {
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "ms")]
    Milliseconds,
    #[serde(rename = "us")]
    Microseconds,
    #[serde(rename = "kB")]
    Kilobytes,
    #[serde(rename = "MB")]
    Megabytes,
    #[serde(rename = "GB")]
    Gigabytes,
    #[serde(rename = "KiB")]
    Kibibytes,
    #[serde(rename = "MiB")]
    Mebibytes,
    #[serde(rename = "GiB")]
    Gibibytes,
}

impl Unit {
    /// Of times in microseconds, of sizes in bytes.
    fn factor(self) -> f64 {
        match self {
            Unit::Seconds => 1e6,
            Unit::Milliseconds | Unit::Kilobytes => 1e3,
            Unit::Microseconds => 1.0,
            Unit::Megabytes => 1e6,
            Unit::Gigabytes => 1e9,
            Unit::Kibibytes => 1024.0,
            Unit::Mebibytes => 1_048_576.0,
            Unit::Gibibytes => 1_073_741_824.0,
        }
    }
}

/// The rules of a site.
#[derive(Debug, Clone)]
pub struct LogMapping {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone)]
struct Rule {
    row: RowKind,
    matcher: Matcher,
    set: Vec<(usize, String)>,
    units: BTreeMap<usize, Unit>,
    words: BTreeMap<usize, BTreeMap<String, String>>,
    time: TimeFormat,
}

#[derive(Debug, Clone)]
enum Matcher {
    Expression(Regex, Vec<(String, usize)>),
    Pairs(BTreeMap<String, String>, Vec<(String, usize)>),
}

impl RowKind {
    fn columns(self) -> &'static [Column] {
        match self {
            RowKind::Attempt => Attempt::COLUMNS,
            RowKind::Sample => Sample::COLUMNS,
            RowKind::Change => Change::COLUMNS,
            RowKind::Incident => Incident::COLUMNS,
        }
    }

    fn place(self, name: &str) -> Result<usize, String> {
        let place = self.columns().iter().position(|column| column.name == name);
        place.ok_or_else(|| format!("there is no column '{name}'"))
    }
}

impl LogMapping {
    /// Reads a mapping file.
    pub fn parse(text: &str) -> Result<LogMapping, InvalidMapping> {
        let file: MappingFile = toml::from_str(text).map_err(Box::new)?;
        let wrong = |at: usize| move |what| InvalidMapping::Rule { rule: at + 1, what };
        if file.rule.len() > RULES_MAX {
            return Err(InvalidMapping::TooManyRules);
        }
        let rules = file.rule.into_iter().enumerate();
        let rules = rules.map(|(at, rule)| Rule::new(rule).map_err(wrong(at)));
        Ok(LogMapping {
            rules: rules.collect::<Result<_, _>>()?,
        })
    }

    /// A parser of lines by these rules.
    pub fn parser(&self, told: &SourceHints) -> Box<dyn Parser> {
        Box::new(Lines {
            mapping: self.clone(),
            told: told.clone(),
        })
    }
}

impl Rule {
    fn new(text: RuleText) -> Result<Rule, String> {
        let kind = text.row;
        let matcher = match text.expression {
            Some(expression) if text.pairs.is_empty() && text.columns.is_empty() => {
                let regex = regex::RegexBuilder::new(&expression)
                    .size_limit(EXPRESSION_BYTES_MAX)
                    .build()
                    .map_err(|why| why.to_string())?;
                let names = regex.capture_names().flatten().map(str::to_owned);
                let groups = names.map(|name| Ok((name.clone(), kind.place(&name)?)));
                let groups: Vec<_> = groups.collect::<Result<_, String>>()?;
                Matcher::Expression(regex, groups)
            }
            None if !text.pairs.is_empty() => {
                let columns = text.columns.into_iter();
                let columns = columns.map(|(column, pair)| Ok((pair, kind.place(&column)?)));
                Matcher::Pairs(text.pairs, columns.collect::<Result<_, String>>()?)
            }
            _ => return Err("it needs either an expression, or pairs with columns".to_owned()),
        };
        let set = text.set.into_iter();
        let set = set.map(|(column, value)| Ok((kind.place(&column)?, value)));
        let units = text.units.into_iter();
        let units = units.map(|(column, unit)| Ok((kind.place(&column)?, unit)));
        let words = text.words.into_iter();
        let words = words.map(|(column, words)| Ok((kind.place(&column)?, words)));
        Ok(Rule {
            row: kind,
            matcher,
            set: set.collect::<Result<_, String>>()?,
            units: units.collect::<Result<_, String>>()?,
            words: words.collect::<Result<_, String>>()?,
            time: TimeFormat::parse(&text.time)?,
        })
    }

    /// The values of a line that fits.
    fn values<'a>(
        &self,
        line: &'a str,
        pairs: &BTreeMap<&'a str, &'a str>,
    ) -> Option<Vec<(usize, &'a str)>> {
        match &self.matcher {
            Matcher::Expression(regex, groups) => {
                let captures = regex.captures(line)?;
                let found = groups
                    .iter()
                    .filter_map(|(name, place)| Some((*place, captures.name(name)?.as_str())));
                Some(found.collect())
            }
            Matcher::Pairs(needed, columns) => {
                let has = |(key, value): (&String, &String)| pairs.get(&**key) == Some(&&**value);
                if !needed.iter().all(has) {
                    return None;
                }
                let found = columns.iter().filter_map(|(pair, place)| {
                    let value = match pair.as_str() {
                        // What stands before the pairs: CTA's times.
                        "^" => line.split(": ").next()?,
                        pair => pairs.get(pair)?,
                    };
                    Some((*place, value))
                });
                Some(found.collect())
            }
        }
    }

    fn row(&self, values: &[(usize, &str)], told: &SourceHints) -> Result<Observation, String> {
        match self.row {
            RowKind::Attempt => {
                let mut row: Attempt = self.fill(values, told)?;
                if row.fingerprint.is_none()
                    && let Some(detail) = &row.detail
                {
                    row.fingerprint = Some(fingerprint_of(row.side, row.error_code, detail));
                }
                Ok(row.into())
            }
            RowKind::Sample => self.fill::<Sample>(values, told).map(Observation::from),
            RowKind::Change => self.fill::<Change>(values, told).map(Observation::from),
            RowKind::Incident => {
                let mut row: Incident = self.fill(values, told)?;
                if row.fingerprint.is_none()
                    && let Some(detail) = &row.detail
                {
                    row.fingerprint =
                        Some(penstock_model::failure_text::without_particulars(detail).into());
                }
                Ok(row.into())
            }
        }
    }

    fn fill<R: Row>(&self, values: &[(usize, &str)], told: &SourceHints) -> Result<R, String> {
        let mut row = R::default();
        let mut has_time = false;
        let fixed = self
            .set
            .iter()
            .map(|(place, value)| (*place, value.as_str()));
        for (place, value) in fixed.chain(values.iter().copied()) {
            let column = &R::COLUMNS[place];
            let cell = self.cell(place, column, value, told)?;
            if !row.set(place, cell) {
                return Err(format!("'{value}' cannot be in column '{}'", column.name));
            }
            has_time |= place == 0;
        }
        match has_time {
            true => Ok(row),
            false => Err("it has no time".to_owned()),
        }
    }

    fn cell(
        &self,
        place: usize,
        column: &Column,
        value: &str,
        told: &SourceHints,
    ) -> Result<Cell, String> {
        let wrong = || format!("'{value}' cannot be in column '{}'", column.name);
        let words = self.words.get(&place);
        let value = words
            .and_then(|words| words.get(value))
            .map_or(value, String::as_str);
        Ok(match column.cells {
            CellType::Text => Cell::Text(value.into()),
            CellType::Truth => Cell::Truth(value.parse().map_err(|_| wrong())?),
            CellType::Time => Cell::Integer(self.time.at(value, told).ok_or_else(wrong)?.0),
            CellType::Signed | CellType::Unsigned => match self.units.get(&place) {
                None => Cell::Integer(value.parse().map_err(|_| wrong())?),
                Some(unit) => {
                    let number: f64 = value.parse().map_err(|_| wrong())?;
                    let scaled = number * unit.factor();
                    let is_whole = (0.0..9e18).contains(&scaled);
                    Cell::Integer(
                        is_whole
                            .then_some(scaled.round() as i64)
                            .ok_or_else(wrong)?,
                    )
                }
            },
        })
    }
}

/// Reads lines by a mapping.
#[derive(Debug)]
struct Lines {
    mapping: LogMapping,
    told: SourceHints,
}

impl Parser for Lines {
    fn parse(&mut self, line: &[u8], rows: &mut Vec<Observation>) -> Result<(), String> {
        let line = String::from_utf8_lossy(line);
        let needs_pairs = |rule: &Rule| matches!(rule.matcher, Matcher::Pairs(..));
        let pairs = match self.mapping.rules.iter().any(needs_pairs) {
            true => pairs_of(&line),
            false => BTreeMap::new(),
        };
        for rule in &self.mapping.rules {
            if let Some(values) = rule.values(&line, &pairs) {
                rows.push(rule.row(&values, &self.told)?);
                return Ok(());
            }
        }
        Ok(())
    }
}

/// `key="value"` and `key=value`.
fn pairs_of(line: &str) -> BTreeMap<&str, &str> {
    let mut pairs = BTreeMap::new();
    let mut rest = line;
    while let Some(at) = rest.find('=') {
        let before = rest[..at]
            .rsplit(char::is_whitespace)
            .next()
            .unwrap_or_default();
        let behind = &rest[at + 1..];
        let (value, next) = match behind.strip_prefix('"') {
            Some(quoted) => {
                let end = quoted.find('"').unwrap_or(quoted.len());
                (&quoted[..end], quoted.get(end + 1..).unwrap_or_default())
            }
            None => {
                let end = behind.find(char::is_whitespace).unwrap_or(behind.len());
                behind.split_at(end)
            }
        };
        pairs.insert(before, value);
        rest = next;
        if pairs.len() == PAIRS_MAX {
            break;
        }
    }
    pairs
}

/// How a source writes times: directives of `strftime` with what stands between them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TimeFormat(Vec<TimePart>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimePart {
    Year,
    Month,
    MonthName,
    Day,
    Hour,
    Minute,
    Second,
    Fraction,
    Zone,
    UnixSeconds,
    Other(char),
}

impl TimeFormat {
    fn parse(text: &str) -> Result<TimeFormat, String> {
        let mut parts = Vec::new();
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            parts.push(match letter {
                '%' => match letters.next() {
                    Some('Y') => TimePart::Year,
                    Some('m') => TimePart::Month,
                    Some('b') => TimePart::MonthName,
                    Some('d' | 'e') => TimePart::Day,
                    Some('H') => TimePart::Hour,
                    Some('M') => TimePart::Minute,
                    Some('S') => TimePart::Second,
                    Some('f') => TimePart::Fraction,
                    Some('z') => TimePart::Zone,
                    Some('s') => TimePart::UnixSeconds,
                    other => {
                        return Err(format!(
                            "its time has %{}",
                            other.map_or("".into(), String::from)
                        ));
                    }
                },
                other => TimePart::Other(other),
            });
        }
        match parts.is_empty() {
            true => Err("its time has no format".to_owned()),
            false => Ok(TimeFormat(parts)),
        }
    }

    /// `None`: it is not so written. What stands behind is passed over.
    fn at(&self, text: &str, told: &SourceHints) -> Option<Timestamp> {
        let mut rest = text.trim_start();
        let digits = |rest: &mut &str, most: usize| -> Option<i64> {
            *rest = rest.trim_start_matches(' ');
            let end = rest
                .bytes()
                .take(most)
                .take_while(u8::is_ascii_digit)
                .count();
            let (number, behind) = rest.split_at(end);
            *rest = behind;
            number.parse().ok()
        };
        let (mut year, mut month, mut day) = (told.year, None, None);
        let (mut hour, mut minute, mut second, mut milliseconds) = (0, 0, 0, 0);
        let mut zone = told.zone_milliseconds;
        for part in &self.0 {
            match part {
                TimePart::Year => year = Some(digits(&mut rest, 4)?),
                TimePart::Month => month = Some(digits(&mut rest, 2)? as u32),
                TimePart::MonthName => {
                    month = Some(times::month(rest)?);
                    rest = rest.trim_start_matches(|one: char| one.is_ascii_alphabetic());
                }
                TimePart::Day => day = Some(digits(&mut rest, 2)? as u32),
                TimePart::Hour => hour = digits(&mut rest, 2).filter(|hour| *hour < 24)?,
                TimePart::Minute => minute = digits(&mut rest, 2).filter(|minute| *minute < 60)?,
                TimePart::Second => second = digits(&mut rest, 2).filter(|second| *second <= 60)?,
                TimePart::Fraction => {
                    let length = rest.bytes().take(9).take_while(u8::is_ascii_digit).count();
                    let fraction = digits(&mut rest, 9)?;
                    milliseconds = (fraction * 10_i64.pow(9 - length as u32)) / 1_000_000;
                }
                TimePart::Zone => {
                    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                    zone = times::zone_milliseconds(&rest[..end])?;
                    rest = &rest[end..];
                }
                TimePart::UnixSeconds => {
                    let seconds = digits(&mut rest, 12)?;
                    return Some(Timestamp(seconds * 1000));
                }
                TimePart::Other(' ') => rest = rest.trim_start(),
                TimePart::Other(letter) => rest = rest.strip_prefix(*letter)?,
            }
        }
        let date = times::Date::new(year?, month?, day?)?;
        let of_day = ((hour * 60 + minute) * 60 + second) * 1000 + milliseconds;
        Some(Timestamp(date.at(of_day).0 - zone))
    }
}
