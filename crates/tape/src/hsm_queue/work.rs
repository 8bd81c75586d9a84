//! What an HSM is asked for, one command each, and how that ends.

use crate::request::{Asker, FamilyName, FileId, RequestId, VoName};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Bytes of the longest URI that is taken.
const URI_BYTES_MAX: usize = 2_048;

/// The name that an HSM has given to a file: `scheme://…`, without spaces and control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Arc<str>", into = "Arc<str>")]
pub struct HsmUri(Arc<str>);

impl HsmUri {
    /// The URI that a text is, if it is one.
    pub fn parse(text: &str) -> Option<HsmUri> {
        let (scheme, rest) = text.split_once("://")?;
        let mut letters = scheme.chars();
        let is_scheme = letters.next().is_some_and(|one| one.is_ascii_alphabetic())
            && letters.all(|one| one.is_ascii_alphanumeric() || "+-.".contains(one));
        let is_whole = !rest.is_empty()
            && text.len() <= URI_BYTES_MAX
            && !text
                .chars()
                .any(|one| one.is_whitespace() || one.is_control());
        (is_scheme && is_whole).then(|| HsmUri(text.into()))
    }

    /// The URI as the HSM has written it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<Arc<str>> for HsmUri {
    type Error = String;

    fn try_from(text: Arc<str>) -> Result<HsmUri, String> {
        HsmUri::parse(&text).ok_or_else(|| format!("{text:?} is not a URI of an HSM"))
    }
}

impl From<HsmUri> for Arc<str> {
    fn from(uri: HsmUri) -> Arc<str> {
        uri.0
    }
}

/// The commands that an HSM has. Each kind has slots of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HsmKind {
    Put,
    Get,
    Remove,
}

impl HsmKind {
    /// All of them.
    pub const ALL: [HsmKind; 3] = [HsmKind::Put, HsmKind::Get, HsmKind::Remove];
}

/// What at most one command at a time works on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HsmTarget {
    Put(FileId),
    Get(FileId),
    Remove(HsmUri),
}

impl HsmTarget {
    /// The kind of its command.
    pub fn kind(&self) -> HsmKind {
        match self {
            HsmTarget::Put(_) => HsmKind::Put,
            HsmTarget::Get(_) => HsmKind::Get,
            HsmTarget::Remove(_) => HsmKind::Remove,
        }
    }
}

/// A file is to be copied to the HSM. It has no lease: a file that exists nowhere else is never given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmPut {
    pub request: RequestId,
    pub file: FileId,
    pub size_bytes: u64,
    pub family: FamilyName,
    pub vo: VoName,
    /// Higher goes first.
    pub priority: u8,
}

/// A file is to be copied from the HSM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmGet {
    pub request: RequestId,
    pub file: FileId,
    pub size_bytes: u64,
    pub uri: HsmUri,
    pub asker: Asker,
}

/// A file is to be removed from the HSM. That cannot be canceled: nobody else knows the URI any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmRemove {
    /// `None`: the queue itself wants it, after a put that was canceled and has stored the file all the same.
    pub request: Option<RequestId>,
    pub uri: HsmUri,
    /// Whose copy it is: that file is not put while this is removed. `None`: not told, as records of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<FileId>,
    pub size_bytes: u64,
    pub vo: VoName,
}

/// What one command does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmWork {
    Put {
        file: FileId,
        size_bytes: u64,
        family: FamilyName,
    },
    Get {
        file: FileId,
        size_bytes: u64,
        uri: HsmUri,
    },
    Remove {
        uri: HsmUri,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<FileId>,
        size_bytes: u64,
    },
}

impl HsmWork {
    /// What it works on.
    pub fn target(&self) -> HsmTarget {
        match self {
            HsmWork::Put { file, .. } => HsmTarget::Put(*file),
            HsmWork::Get { file, .. } => HsmTarget::Get(*file),
            HsmWork::Remove { uri, .. } => HsmTarget::Remove(uri.clone()),
        }
    }

    /// The size of its file.
    pub fn size_bytes(&self) -> u64 {
        match self {
            HsmWork::Put { size_bytes, .. }
            | HsmWork::Get { size_bytes, .. }
            | HsmWork::Remove { size_bytes, .. } => *size_bytes,
        }
    }

    /// The family of a file that is put.
    pub fn family(&self) -> Option<&FamilyName> {
        match self {
            HsmWork::Put { family, .. } => Some(family),
            HsmWork::Get { .. } | HsmWork::Remove { .. } => None,
        }
    }
}

/// A command that was started, by a number that is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HsmCommandId(pub u64);

/// A command to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HsmCommand {
    pub command: HsmCommandId,
    pub work: HsmWork,
    pub vo: VoName,
}

/// How a command ended. Texts are the end of what it wrote to its standard error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HsmCommandEnd {
    /// Exit code 0. A put has printed where the file is, and nothing else.
    Succeeded { uris: Vec<HsmUri> },
    /// A put with exit code 0 that printed no URI, or other things beside it: `text` is what it printed.
    WithoutUri { text: String },
    /// Another exit code.
    Exited { code: i32, text: String },
    /// By a signal that nobody here has sent.
    Signaled { signal: i32, text: String },
    /// As ordered, or because the service ends.
    Stopped,
    /// It ran longer than its kind may.
    TimedOut { text: String },
    /// The program could not be started: it is missing, or not executable, or the system refused.
    NotStarted { text: String },
    /// A get with exit code 0 that brought other bytes than those of the file.
    WrongData { text: String },
    /// This side could not have it run, or could not keep what it brought: a pool is away. The HSM has done nothing wrong.
    LocalTrouble { text: String },
    /// The same, because no pool takes the file of a get, nor any other as large.
    NoRoom { text: String },
    /// It was not run, because nobody needs it any more.
    NotNeeded,
}

/// Who says that a command failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HsmFaultSource {
    /// The program, or the watch over it. Its words may hold paths and hosts that are nobody's business but the site's.
    #[default]
    Program,
    /// The comparison of what a get brought with what the file was.
    Comparison,
    /// This side, before the program ran or after its success.
    LocalTrouble,
}

/// Why a command failed, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HsmFault {
    /// Records of before tell none: they were the program's.
    #[serde(default)]
    pub source: HsmFaultSource,
    /// `None`: it did not exit by itself.
    pub code: Option<i32>,
    pub text: String,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmOutcome {
    /// The HSM has the file, and gave it these names.
    Stored { uris: Vec<HsmUri> },
    /// The file is on disk.
    Fetched,
    /// The HSM no longer has the file.
    Removed,
    /// A get failed so often; this was the last fault.
    Failed { tries: u32, fault: HsmFault },
    /// Whoever asked no longer wants it, or nobody needs it.
    Canceled,
    /// Its lease was not renewed.
    Expired,
}

/// Why a command was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HsmStop {
    /// Nobody asks for it any more.
    NotWanted,
    /// No byte has come for too long.
    NoBytes,
    /// It has run longer than its kind may.
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_has_a_scheme_and_no_space() {
        for text in [
            "hsm://site/a?b=c",
            "osm://osm/?store=sql&bfid=3434.0.994",
            "s3+x://b/%20",
        ] {
            assert_eq!(HsmUri::parse(text).expect("a URI").as_str(), text);
        }
        for text in [
            "",
            "a",
            "://a",
            "hsm://",
            "1hsm://a",
            "hsm://a b",
            "hsm://a\n",
            "stored as hsm://a",
        ] {
            assert_eq!(HsmUri::parse(text), None, "{text:?}");
        }
        assert_eq!(
            HsmUri::parse(&format!("hsm://{}", "a".repeat(URI_BYTES_MAX))),
            None
        );
        assert!(serde_json::from_str::<HsmUri>("\"no uri\"").is_err());
    }
}
