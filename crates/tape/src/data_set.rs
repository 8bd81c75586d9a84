//! Which files belong together: what a client says of it, else what submission, path or time tell. Files of one data set are
//! written behind one another, since they will be read together.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A data set by its levels, the widest first: project, data type, stream, data set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DataSetName(pub Vec<Arc<str>>);

/// A data set that a file belongs to, and what is to be expected of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSet {
    pub name: DataSetName,
    pub expected_files: Option<u64>,
    pub expected_bytes: Option<u64>,
    pub source: HintSource,
    /// The client has sent hints, and they named nothing.
    #[serde(default)]
    pub has_blank_hints: bool,
}

/// What tells which data set a file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HintSource {
    /// The client's archive metadata.
    ClientMetadata,
    /// Files that were submitted together.
    Submission,
    /// The directory.
    Path,
    /// The day on which it came.
    Time,
}

impl HintSource {
    /// All of them.
    pub const ALL: [HintSource; 4] = [
        HintSource::ClientMetadata,
        HintSource::Submission,
        HintSource::Path,
        HintSource::Time,
    ];

    /// As it is stored and told.
    pub fn name(self) -> &'static str {
        match self {
            HintSource::ClientMetadata => "client_metadata",
            HintSource::Submission => "submission",
            HintSource::Path => "path",
            HintSource::Time => "time",
        }
    }

    /// The one of this name.
    pub fn by_name(name: &str) -> Option<HintSource> {
        HintSource::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// What a hint was worth, when its data set is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HintVerdict {
    /// As many files and bytes came as were announced, or more than one without an announcement.
    Held,
    /// Fewer came than were announced.
    Short,
    /// One file alone: the hint brought nothing together.
    Lone,
    /// It named nothing.
    Blank,
}

/// What a client may say in its archive metadata: the keys of WLCG's document that say where a file should lie. Others are passed
/// over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ArchiveHints {
    /// Names by their level.
    #[serde(default)]
    pub collocation_hints: BTreeMap<String, String>,
    #[serde(default)]
    pub additional_hints: BTreeMap<String, AdditionalHint>,
}

/// What is said of a level beyond its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum AdditionalHint {
    Expected(ExpectedHint),
    /// The activity.
    Name(String),
    /// What is not known here.
    Other(Ignored),
}

/// Anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Ignored, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Ignored)
    }
}

/// Files and bytes of a level, as clients write them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ExpectedHint {
    pub length: Option<HintNumber>,
    pub size: Option<HintNumber>,
}

/// A number, or one in quotes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum HintNumber {
    Number(u64),
    Text(String),
}

impl ArchiveHints {
    /// What the file is written for, in the client's words.
    pub fn activity(&self) -> Option<&str> {
        match self.additional_hints.get("activity")? {
            AdditionalHint::Name(name) => {
                let name = cut(name.trim(), ACTIVITY_BYTES_MAX);
                (!name.is_empty()).then_some(name)
            }
            AdditionalHint::Expected(_) | AdditionalHint::Other(_) => None,
        }
    }
}

impl HintNumber {
    fn value(&self) -> Option<u64> {
        match self {
            HintNumber::Number(number) => Some(*number),
            HintNumber::Text(text) => text.trim().parse().ok(),
        }
    }
}

/// Levels that count, and bytes of one name.
const LEVELS_MAX: usize = 8;
const LEVEL_BYTES_MAX: usize = 512;
/// Bytes of an activity.
pub const ACTIVITY_BYTES_MAX: usize = 128;
const DAY_NS: i64 = 24 * 3_600 * 1_000_000_000;

/// What is known of a file when it is to be archived.
#[derive(Debug, Clone, Copy)]
pub struct FileOrigin<'a> {
    pub hints: Option<&'a ArchiveHints>,
    /// The request that it was submitted with, if others were as well.
    pub submission: Option<&'a str>,
    pub path: &'a str,
    pub came_ns: i64,
}

/// The data set of a file: the client's word, else the submission, the directory, the day.
pub fn data_set_of(origin: FileOrigin<'_>) -> DataSet {
    if let Some(set) = origin.hints.and_then(of_hints) {
        return set;
    }
    let of = |source, name: &str| DataSet {
        name: DataSetName(vec![name.into()]),
        expected_files: None,
        expected_bytes: None,
        source,
        has_blank_hints: origin
            .hints
            .is_some_and(|hints| !hints.collocation_hints.is_empty()),
    };
    if let Some(submission) = origin.submission.filter(|one| !one.trim().is_empty()) {
        return of(HintSource::Submission, submission);
    }
    match origin.path.rsplit_once('/') {
        Some((directory, _)) if !directory.is_empty() => of(HintSource::Path, directory),
        _ => of(
            HintSource::Time,
            &origin.came_ns.div_euclid(DAY_NS).to_string(),
        ),
    }
}

fn of_hints(hints: &ArchiveHints) -> Option<DataSet> {
    let mut levels: Vec<(u32, &str)> = hints
        .collocation_hints
        .iter()
        .filter_map(|(level, name)| Some((level.trim().parse().ok()?, name.trim())))
        .collect();
    levels.sort_by_key(|(level, _)| *level);
    levels.truncate(LEVELS_MAX);
    // A hint without a name says nothing, whatever other levels say behind it.
    let named = levels.iter().take_while(|(_, name)| !name.is_empty());
    let named: Vec<(u32, &str)> = named.copied().collect();
    let (last, _) = *named.last()?;
    let expected = match hints.additional_hints.get(&last.to_string()) {
        Some(AdditionalHint::Expected(expected)) => expected.clone(),
        Some(AdditionalHint::Name(_) | AdditionalHint::Other(_)) | None => ExpectedHint::default(),
    };
    let number = |one: Option<HintNumber>| one.and_then(|one| one.value()).filter(|one| *one > 0);
    Some(DataSet {
        name: DataSetName(
            named
                .into_iter()
                .map(|(_, name)| cut(name, LEVEL_BYTES_MAX).into())
                .collect(),
        ),
        expected_files: number(expected.length),
        expected_bytes: number(expected.size),
        source: HintSource::ClientMetadata,
        has_blank_hints: false,
    })
}

/// A name as far as it counts.
pub fn cut(name: &str, bytes_max: usize) -> &str {
    let mut end = name.len().min(bytes_max);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATLAS: &str = r#"{
      "scheduling_hints": {"priority": "100"},
      "collocation_hints": {"0": "data23", "1": "RAW", "2": "physics_Main", "3": "data23.00452799.RAW"},
      "additional_hints": {"activity": "T0 Tape", "3": {"length": "19123", "size": 80020799318456}},
      "file_metadata": {"size": "1", "adler32": "0"}
    }"#;

    fn origin<'a>(hints: Option<&'a ArchiveHints>, submission: Option<&'a str>) -> FileOrigin<'a> {
        FileOrigin {
            hints,
            submission,
            path: "/atlas/raw/f",
            came_ns: 3 * DAY_NS + 5,
        }
    }

    #[test]
    fn the_word_of_the_client_counts_first_and_its_source_is_shown() {
        let hints: ArchiveHints = serde_json::from_str(ATLAS).expect("hints");
        let set = data_set_of(origin(Some(&hints), Some("job-1")));
        let levels: Vec<&str> = set.name.0.iter().map(|level| &**level).collect();
        assert_eq!(
            levels,
            ["data23", "RAW", "physics_Main", "data23.00452799.RAW"]
        );
        assert_eq!(
            (set.expected_files, set.expected_bytes, set.source),
            (
                Some(19_123),
                Some(80_020_799_318_456),
                HintSource::ClientMetadata
            )
        );
        assert_eq!(hints.activity(), Some("T0 Tape"));
    }

    #[test]
    fn without_a_word_submission_path_and_time_tell() {
        let blank: ArchiveHints =
            serde_json::from_str(r#"{"collocation_hints": {"0": " ", "1": "x", "y": "z"}}"#)
                .expect("hints");
        let told = |origin| {
            let set = data_set_of(origin);
            (set.source, set.name.0[0].to_string())
        };
        let submitted = told(origin(Some(&blank), Some("job-1")));
        assert_eq!(submitted, (HintSource::Submission, "job-1".to_owned()));
        let is_blank = |hints, submission| data_set_of(origin(hints, submission)).has_blank_hints;
        assert!(is_blank(Some(&blank), None) && !is_blank(None, None));
        let by_path = told(origin(None, Some("")));
        assert_eq!(by_path, (HintSource::Path, "/atlas/raw".to_owned()));
        let mut top = origin(None, None);
        top.path = "/f";
        assert_eq!(told(top), (HintSource::Time, "3".to_owned()));
    }

    #[test]
    fn whatever_a_client_writes_is_cut_to_what_counts() {
        let long = "ä".repeat(5_000);
        let hints = ArchiveHints {
            collocation_hints: (0..100)
                .map(|level| (level.to_string(), long.clone()))
                .collect(),
            ..ArchiveHints::default()
        };
        let set = data_set_of(origin(Some(&hints), None));
        assert_eq!(set.name.0.len(), LEVELS_MAX);
        assert!(
            set.name
                .0
                .iter()
                .all(|level| level.len() <= LEVEL_BYTES_MAX)
        );
    }
}
