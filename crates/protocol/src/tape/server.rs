//! The WLCG Tape REST API, version 1, as a storage element reads and writes it.
//!
//! Requests of clients are bounded and may be any nonsense. What they hold beside the known fields is passed over, as the
//! specification asks.

use super::with_single_slashes;
use penstock_model::{NamespacePath, StageRequestId, Timestamp, ToldPlace};
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;
use thiserror::Error;

/// Bytes that a request may have for each file, and beside them.
pub const REQUEST_BYTES_PER_FILE_MAX: usize = 8 << 10;
/// Bytes of a path.
const PATH_BYTES_MAX: usize = 8 << 10;
/// Bytes of all paths of a request together: what is asked for is kept, and told again whenever somebody looks at it.
const NAMES_BYTES_MAX: usize = 4 << 20;
/// Characters that are told of what is wrong with a body, which may be of the body itself.
const FAULT_CHARS_MAX: usize = 300;
/// Characters of a duration.
const DURATION_CHARS_MAX: usize = 64;

/// Why a request cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TapeRequestError {
    #[error("the body is not the JSON that the tape interface takes: {0}")]
    Malformed(String),
    #[error(
        "a request names {found} files; at most {files_max} are taken, so ask in several requests"
    )]
    TooManyFiles { found: usize, files_max: usize },
    #[error("a request names no file")]
    NoFile,
    #[error("a request names a path of more than {PATH_BYTES_MAX} bytes")]
    LongPath,
    #[error(
        "the paths of a request have more than {NAMES_BYTES_MAX} bytes together; ask in several requests"
    )]
    LongNames,
    #[error("'{0}' is not a duration; write for example PT6H or P2D")]
    Duration(String),
}

/// A file that shall be on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedFile {
    /// As the namespace writes it, where it can be a path there.
    pub path: String,
    /// How long it shall stay there; `None`: as the site thinks best.
    pub pin: Option<Duration>,
    /// What it is wanted for, as the client tells this site.
    pub activity: Option<String>,
}

/// The key of the list of files or of paths, whose other keys are passed over.
struct Form<T> {
    key: &'static str,
    files_max: usize,
    item: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Form<T> {
    type Value = BoundedList<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "an object with the key '{}'", self.key)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key != self.key {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if found.is_some() {
                return Err(A::Error::duplicate_field(self.key));
            }
            found = Some(map.next_value_seed(List(&self))?);
        }
        found.ok_or_else(|| A::Error::missing_field(self.key))
    }
}

/// Its value.
struct List<'a, T>(&'a Form<T>);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for List<'_, T> {
    type Value = BoundedList<T>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<'_, T> {
    type Value = BoundedList<T>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.0.files_max {
            match list.next_element()? {
                Some(item) => items.push(item),
                None => {
                    let found = items.len();
                    return Ok(BoundedList { items, found });
                }
            }
        }
        let mut found = items.len();
        while list.next_element::<IgnoredAny>()?.is_some() {
            found += 1;
        }
        Ok(BoundedList { items, found })
    }
}

/// A list of which no more is kept than a request may name, however long it is.
struct BoundedList<T> {
    items: Vec<T>,
    found: usize,
}

/// The list with this key in a body: neither empty nor too long.
fn parse_list<'de, T: Deserialize<'de>>(
    body: &'de [u8],
    key: &'static str,
    files_max: usize,
) -> Result<Vec<T>, TapeRequestError> {
    let mut from = serde_json::Deserializer::from_slice(body);
    let form = Form {
        key,
        files_max,
        item: PhantomData,
    };
    let list = from.deserialize_map(form).map_err(|why| malformed(&why))?;
    from.end().map_err(|why| malformed(&why))?;
    let found = list.found;
    match found {
        0 => Err(TapeRequestError::NoFile),
        found if found > files_max => Err(TapeRequestError::TooManyFiles { found, files_max }),
        _ => Ok(list.items),
    }
}

#[derive(Deserialize)]
struct FileForm {
    path: String,
    #[serde(rename = "diskLifetime")]
    disk_lifetime: Option<String>,
    #[serde(rename = "targetedMetadata", default)]
    targeted: Targeted,
}

/// What sites are told of a file: of each no more than the activity is kept.
#[derive(Debug, Default)]
struct Targeted(Vec<(String, String)>);

/// For which site a note is that is for all.
const ANY_SITE: &str = "default";
/// Sites of which notes are kept, and bytes of a name or an activity.
const TARGETS_MAX: usize = 8;
const TARGET_BYTES_MAX: usize = 128;

impl<'de> Deserialize<'de> for Targeted {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Targeted, D::Error> {
        let notes = match Value::deserialize(from)? {
            Value::Object(notes) => notes,
            _ => return Ok(Targeted::default()),
        };
        let short = |text: &str| text.len() <= TARGET_BYTES_MAX;
        let named = notes.iter().filter_map(|(site, note)| {
            let activity = note.get("activity")?.as_str()?.trim();
            let is_kept = short(site) && short(activity) && !activity.is_empty();
            is_kept.then(|| (site.clone(), activity.to_owned()))
        });
        Ok(Targeted(named.take(TARGETS_MAX).collect()))
    }
}

impl Targeted {
    fn activity(&self, site: &str) -> Option<String> {
        let of = |name: &str| self.0.iter().find(|(target, _)| target == name);
        let (_, activity) = of(site).or_else(|| of(ANY_SITE))?;
        Some(activity.clone())
    }
}

fn malformed(why: &serde_json::Error) -> TapeRequestError {
    TapeRequestError::Malformed(why.to_string().chars().take(FAULT_CHARS_MAX).collect())
}

/// The paths of a request, each once however it is spelled.
#[derive(Default)]
struct NamedPaths {
    seen: HashSet<String>,
    /// Of all of them.
    bytes: usize,
}

impl NamedPaths {
    /// A path as the namespace writes it; `None`: it was named before. What can be no path there stays as it is, with single
    /// slashes, so that whoever asked is told why.
    fn name(&mut self, path: &str) -> Result<Option<String>, TapeRequestError> {
        if path.len() > PATH_BYTES_MAX {
            return Err(TapeRequestError::LongPath);
        }
        let parsed = NamespacePath::parse(path).map(|parsed| parsed.to_string());
        let path = parsed.unwrap_or_else(|_| with_single_slashes(path));
        if !self.seen.insert(path.clone()) {
            return Ok(None);
        }
        self.bytes += path.len();
        match self.bytes > NAMES_BYTES_MAX {
            true => Err(TapeRequestError::LongNames),
            false => Ok(Some(path)),
        }
    }
}

/// The body of a stage request to the site of this name. A file that stands in it twice is one.
pub fn parse_stage(
    body: &[u8],
    files_max: usize,
    site: &str,
) -> Result<Vec<WantedFile>, TapeRequestError> {
    let (mut wanted, mut paths) = (Vec::new(), NamedPaths::default());
    for file in parse_list::<FileForm>(body, "files", files_max)? {
        let pin = file.disk_lifetime.as_deref().map(parse_duration);
        let pin = pin.transpose()?;
        let path = paths.name(&file.path)?;
        wanted.extend(path.map(|path| WantedFile {
            path,
            pin,
            activity: file.targeted.activity(site),
        }));
    }
    Ok(wanted)
}

/// The body of a request that names paths, each once, as the namespace writes them.
pub fn parse_paths(body: &[u8], files_max: usize) -> Result<Vec<String>, TapeRequestError> {
    let (mut named, mut paths) = (Vec::new(), NamedPaths::default());
    for path in parse_list::<Cow<'_, str>>(body, "paths", files_max)? {
        named.extend(paths.name(&path)?);
    }
    Ok(named)
}

/// A duration of ISO 8601 §5.5.2.2 in weeks, days, hours, minutes and whole seconds. Years and months have no fixed
/// length, so they are refused.
pub fn parse_duration(text: &str) -> Result<Duration, TapeRequestError> {
    let wrong = || TapeRequestError::Duration(text.chars().take(DURATION_CHARS_MAX).collect());
    let rest = text
        .strip_prefix('P')
        .filter(|_| text.len() <= DURATION_CHARS_MAX);
    let (mut rest, mut in_time, mut seconds, mut parts) =
        (rest.ok_or_else(wrong)?, false, 0_u64, 0);
    while !rest.is_empty() {
        if let Some(time) = rest.strip_prefix('T').filter(|_| !in_time) {
            (rest, in_time) = (time, true);
            continue;
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit = rest[digits..].chars().next().ok_or_else(wrong)?;
        let length = match (in_time, unit) {
            (false, 'W') => 604_800,
            (false, 'D') => 86_400,
            (true, 'H') => 3_600,
            (true, 'M') => 60,
            (true, 'S') => 1,
            _ => return Err(wrong()),
        };
        let part = number.checked_mul(length);
        seconds = part
            .and_then(|part| seconds.checked_add(part))
            .ok_or_else(wrong)?;
        rest = &rest[digits + 1..];
        parts += 1;
    }
    match parts {
        0 => Err(wrong()),
        _ => Ok(Duration::from_secs(seconds)),
    }
}

/// The document at [`super::WELL_KNOWN`]; `uri` is where calls go.
pub fn discovery_document(site: &str, uri: &str) -> Value {
    json!({
        "sitename": site,
        "description": "Penstock's tape interface",
        "endpoints": [{"uri": uri, "version": "v1", "metadata": {}}],
    })
}

/// How far one file of a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldFile {
    pub path: String,
    /// On disk; `None` while it is not known to be, and `state` is told instead.
    pub on_disk: bool,
    /// `SUBMITTED`, `STARTED`, `CANCELLED`, `FAILED` or `COMPLETED`.
    pub state: &'static str,
    /// Why it will not come, or, while it is on its way, what it waits for: a code and a sentence.
    pub problem: Option<(&'static str, String)>,
    pub started: Option<Timestamp>,
    pub finished: Option<Timestamp>,
    /// When it will be on disk, if nothing fails and nothing more urgent is asked for; `None`: not known.
    pub expected: Option<Timestamp>,
}

/// How far a request is, as it is written. Times are seconds of Unix, as the examples of the specification have them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgressForm<'a> {
    id: &'a str,
    created_at: i64,
    started_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_at: Option<i64>,
    files: Vec<FileProgressForm<'a>>,
}

/// Of `onDisk` and `state` there is exactly one.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileProgressForm<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_disk: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    /// Clients take a file with an `error` for one that will not come.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
}

fn seconds(at: Timestamp) -> i64 {
    at.0.div_euclid(1_000)
}

impl ToldFile {
    fn form(&self) -> FileProgressForm<'_> {
        let text = self.problem.as_ref().map(|(_, text)| text.as_str());
        let is_on_its_way = matches!(self.state, "SUBMITTED" | "STARTED");
        FileProgressForm {
            path: &self.path,
            on_disk: self.on_disk.then_some(true),
            state: (!self.on_disk).then_some(self.state),
            started_at: self.started.map(seconds),
            finished_at: self.finished.map(seconds),
            expected_at: self.expected.map(seconds),
            error: text.filter(|_| !is_on_its_way),
            waits_for: text.filter(|_| is_on_its_way),
            code: self.problem.as_ref().map(|(code, _)| *code),
        }
    }
}

/// The answer to the question how far a request is, as JSON. It may be of some megabytes, so it is written at once.
pub fn progress_document(id: &StageRequestId, created: Timestamp, files: &[ToldFile]) -> Vec<u8> {
    let started = files.iter().filter_map(|file| file.started).min();
    let ends: Option<Vec<Timestamp>> = files.iter().map(|file| file.finished).collect();
    // Of all that is on its way, if all of it is known.
    let open = files.iter().filter(|file| file.finished.is_none());
    let expected: Option<Vec<Timestamp>> = open.map(|file| file.expected).collect();
    let form = ProgressForm {
        id: id.as_str(),
        created_at: seconds(created),
        started_at: seconds(started.unwrap_or(created)),
        completed_at: ends.and_then(|ends| ends.into_iter().max()).map(seconds),
        expected_at: expected.and_then(|all| all.into_iter().max()).map(seconds),
        files: files.iter().map(ToldFile::form).collect(),
    };
    serde_json::to_vec(&form).expect("texts and numbers can be written as JSON")
}

/// The answer to the question where files are.
pub fn archive_info_document(places: &[(String, ToldPlace)]) -> Value {
    let row = |(path, place): &(String, ToldPlace)| match place {
        Ok(locality) => json!({"path": path, "locality": locality.name()}),
        Err(error) => json!({"path": path, "error": error}),
    };
    Value::Array(places.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{TapeInterface, parse_archive_info, parse_progress};
    use super::*;
    use penstock_model::{FileProgress, Locality};

    #[test]
    fn durations_are_read_as_iso_8601_writes_them() {
        let seconds = |text| parse_duration(text).map(|span| span.as_secs()).ok();
        assert_eq!(seconds("PT1H"), Some(3_600));
        assert_eq!(seconds("P2DT3M4S"), Some(2 * 86_400 + 184));
        assert_eq!(seconds("P1W"), Some(604_800));
        assert_eq!(seconds("PT0S"), Some(0));
        for text in [
            "",
            "P",
            "PT",
            "1H",
            "P1Y",
            "P1M",
            "PT1",
            "PTH",
            "PT-1H",
            "P1H",
            "PT1.5H",
            "P99999999999999999999D",
        ] {
            assert_eq!(seconds(text), None, "{text:?}");
        }
        assert_eq!(
            seconds(&format!("P{}D", "9".repeat(18))),
            None,
            "too long a time"
        );
    }

    #[test]
    fn what_gfal_sends_is_understood_and_nonsense_is_named() {
        let body = br#"{"files":[{"path":"//a///b","diskLifetime":"PT1H","targetedMetadata":{"x":{"activity":"Staging"},"default":{"activity":"y"}}},{"path":"/c","more":1}]}"#;
        let wanted = parse_stage(body, 10, "x").expect("understood");
        assert_eq!(wanted[0].path, "/a/b");
        assert_eq!(wanted[0].pin, Some(Duration::from_secs(3_600)));
        assert_eq!(wanted[0].activity.as_deref(), Some("Staging"));
        let elsewhere = parse_stage(body, 10, "z").expect("understood");
        assert_eq!(elsewhere[0].activity.as_deref(), Some("y"));
        for odd in [
            "1",
            "[]",
            "{}",
            r#"{"x":1}"#,
            r#"{"x":{"activity":{}}}"#,
            "null",
        ] {
            let body = format!(r#"{{"files":[{{"path":"/a","targetedMetadata":{odd}}}]}}"#);
            let wanted = parse_stage(body.as_bytes(), 1, "x").expect("passed over");
            assert_eq!(wanted[0].activity, None, "{odd}");
        }
        assert_eq!((wanted[1].path.as_str(), wanted[1].pin), ("/c", None));
        let told = |body: &[u8]| parse_stage(body, 1, "x").expect_err("refused").to_string();
        assert!(told(body).contains("2 files; at most 1"));
        assert_eq!(told(br#"{"files":[]}"#), "a request names no file");
        assert!(told(b"[]").starts_with("the body is not the JSON"));
        assert!(
            told(br#"{"files":[{"path":"/a","diskLifetime":"an hour"}]}"#)
                .starts_with("'an hour' is not a duration")
        );
        let twice = parse_paths(br#"{"paths":["/a","//a","/b","/a"]}"#, 5);
        assert_eq!(twice.expect("understood"), ["/a", "/b"]);
        let twice = br#"{"files":[{"path":"/a/b"},{"path":"//a/b"},{"path":"/./a/b/."},{"path":"/a/./b/"}]}"#;
        let twice = parse_stage(twice, 5, "x").expect("understood");
        assert_eq!((twice.len(), twice[0].path.as_str()), (1, "/a/b"));
        let long = format!(r#"{{"paths":["/{}"]}}"#, "a".repeat(9_000));
        assert_eq!(
            parse_paths(long.as_bytes(), 5),
            Err(TapeRequestError::LongPath)
        );
        assert_eq!(
            parse_paths(br#"{"paths":["/a//b"]}"#, 5).expect("understood"),
            ["/a/b"]
        );
    }

    #[test]
    fn what_is_told_of_a_wrong_body_is_short_and_all_paths_together_are_bounded() {
        let wrong = format!(r#"{{"paths":"{}"}}"#, "A".repeat(1 << 20));
        let told = parse_paths(wrong.as_bytes(), 5)
            .expect_err("no list")
            .to_string();
        assert!(told.len() < 1_024, "{} bytes", told.len());
        let path = |number: usize| format!(r#""/{number:04}/{}""#, "b".repeat(4_000));
        let paths: Vec<String> = (0..1_100).map(path).collect();
        let body = format!(r#"{{"paths":[{}]}}"#, paths.join(","));
        assert_eq!(
            parse_paths(body.as_bytes(), 10_000),
            Err(TapeRequestError::LongNames)
        );
        let body = format!(r#"{{"paths":[{}]}}"#, paths[..1_000].join(","));
        assert!(parse_paths(body.as_bytes(), 10_000).is_ok());
    }

    #[test]
    fn our_own_client_reads_what_is_written() {
        let document = discovery_document("lab", "https://se.example/.penstock/tape/v1");
        let interface = TapeInterface::parse(document.to_string().as_bytes()).expect("read");
        assert_eq!(interface.site, "lab");
        let id = StageRequestId::new("r1");
        let file = |path: &str, on_disk, state, error: Option<&str>| ToldFile {
            path: path.to_owned(),
            on_disk,
            state,
            problem: error.map(|text| ("tape-failed", text.to_owned())),
            started: Some(Timestamp(5_000)),
            finished: (state == "FAILED").then_some(Timestamp(7_999)),
            expected: (state == "SUBMITTED").then_some(Timestamp(9_000)),
        };
        let files = [
            file("/a", true, "COMPLETED", None),
            file("/b", false, "SUBMITTED", Some("room on disk")),
            file("/c", false, "FAILED", Some("no tape")),
        ];
        let written = progress_document(&id, Timestamp(4_000), &files);
        let document: Value = serde_json::from_slice(&written).expect("JSON");
        assert_eq!(document["files"][1]["waitsFor"], "room on disk");
        assert_eq!(document["files"][2]["finishedAt"], 7);
        assert!(document.get("completedAt").is_none());
        assert_eq!(document["files"][1]["expectedAt"], 9);
        let told = parse_progress(&written, &id).expect("read");
        let told: Vec<FileProgress> = told.into_iter().map(|(_, progress)| progress).collect();
        assert_eq!(told[0], FileProgress::OnDisk);
        assert_eq!(told[1], FileProgress::Pending);
        assert_eq!(told[2], FileProgress::Failed("no tape".to_owned()));
        let places = [
            ("/a".to_owned(), Ok(Locality::DiskAndTape)),
            ("/b".to_owned(), Err("gone".to_owned())),
        ];
        let document = archive_info_document(&places);
        assert_eq!(
            parse_archive_info(document.to_string().as_bytes()).expect("read"),
            places
        );
    }
}
