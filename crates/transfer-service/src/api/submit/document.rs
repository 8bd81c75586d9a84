//! The text of a submission, taken apart into its parts. What is large or deep and not asked for is skipped.

use super::{InvalidSubmission, bad};
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::fmt;

/// Files in one job.
pub(super) const FILES_MAX: usize = 200_000;
/// Bytes of `params`, and of one entry of `files`, as JSON.
const PARAMS_BYTES_MAX: usize = 64 << 10;
pub(super) const FILE_BYTES_MAX: usize = 1 << 20;

/// A submission in its parts, which are text still. Keys that are not known are skipped, however large or deep.
#[derive(Deserialize)]
pub(super) struct SubmissionBody<'a> {
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    files: Option<&'a RawValue>,
    #[serde(borrow)]
    delete: Option<&'a RawValue>,
}

impl SubmissionBody<'_> {
    pub(super) fn read(body: &[u8]) -> Result<SubmissionBody<'_>, InvalidSubmission> {
        let invalid = |why| bad(format!("the body is not valid JSON: {why}"));
        if body.trim_ascii_start().first() != Some(&b'{') {
            let _: IgnoredAny = serde_json::from_slice(body).map_err(invalid)?;
            return Err(bad("the body must be a JSON object with 'files'"));
        }
        let document: SubmissionBody<'_> = serde_json::from_slice(body).map_err(invalid)?;
        let Some(list) = document.delete else {
            return Ok(document);
        };
        match list.get().strip_prefix('[') {
            Some(entries) if entries.trim_ascii_start().starts_with(']') => Ok(document),
            Some(_) => Err(InvalidSubmission::Deletion),
            None => Err(bad("'delete' must be a list")),
        }
    }

    pub(super) fn params(&self) -> Result<Map<String, Value>, InvalidSubmission> {
        let in_params = |why| match why {
            InvalidSubmission::Bad(text) => bad(format!("'params': {text}")),
            deletion @ InvalidSubmission::Deletion => deletion,
        };
        match self.params.map(|params| bounded(params, PARAMS_BYTES_MAX)) {
            None => Ok(Map::new()),
            Some(read) => match read.map_err(in_params)? {
                Value::Object(params) => Ok(params),
                _ => Err(bad("'params' must be an object")),
            },
        }
    }

    /// The text of each entry of `files`.
    pub(super) fn files(&self) -> Result<Vec<&RawValue>, InvalidSubmission> {
        let list = self.files.map_or("", RawValue::get);
        let mut entries = serde_json::Deserializer::from_str(list);
        let files = match list.starts_with('[') {
            true => entries
                .deserialize_seq(Entries)
                .map_err(|why| bad(format!("'files': {why}")))?,
            false => Vec::new(),
        };
        match files.is_empty() {
            true => Err(bad(
                "No transfers have been specified: 'files' must be a list with at least one entry",
            )),
            false => Ok(files),
        }
    }
}

/// Reads a list's entries as text, and stops beyond [`FILES_MAX`].
struct Entries;

impl<'a> Visitor<'a> for Entries {
    type Value = Vec<&'a RawValue>;

    fn expecting(&self, told: &mut fmt::Formatter<'_>) -> fmt::Result {
        told.write_str("a list of files")
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut list: S) -> Result<Self::Value, S::Error> {
        let mut files = Vec::new();
        while let Some(file) = list.next_element()? {
            if files.len() == FILES_MAX {
                return Err(S::Error::custom(format_args!(
                    "one job can hold {FILES_MAX} files; submit several jobs"
                )));
            }
            files.push(file);
        }
        Ok(files)
    }
}

/// One entry of `files` as a value.
pub(super) fn file(text: &RawValue) -> Result<Value, InvalidSubmission> {
    bounded(text, FILE_BYTES_MAX)
}

fn bounded(text: &RawValue, bytes_max: usize) -> Result<Value, InvalidSubmission> {
    if text.get().len() > bytes_max {
        return Err(bad(format!("it is longer than {bytes_max} bytes")));
    }
    serde_json::from_str(text.get()).map_err(|why| bad(format!("it is not valid JSON: {why}")))
}
