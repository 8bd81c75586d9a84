//! `[storage.tape]`: files that go to tape, and what keeps them there: the program of an HSM, or tape libraries.

mod class;
mod library;
mod nearline;
mod problems;

pub use class::TapeClass;
pub use library::TapeLibrary;

use penstock_model::quantity::{Size, Span};
use penstock_tape::hsm_queue::HsmWidePattern;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Files on tape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeConfig {
    /// The program that puts, gets and removes files, with the interface that sites with dCache have: docs/tape/hsm.md.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// Tape libraries, in place of a program: docs/tape/files-on-tape.md.
    #[serde(
        default,
        rename = "library",
        deserialize_with = "library::one_or_many",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub libraries: Vec<TapeLibrary>,
    /// How many times as fast as real time the libraries run. For tests.
    #[serde(default = "TapeConfig::default_time_factor")]
    pub time_factor: u32,
    /// How long a request for a file on a tape waits for further requests for the same tape.
    #[serde(default = "TapeConfig::default_collect_recalls_time")]
    pub collect_recalls_time: Span,
    /// All files of a tape are read and compared with their checksums once in this time. 0: only when an operator asks for it.
    #[serde(default = "TapeConfig::default_verify_every")]
    pub verify_every: Span,
    /// Drives that may work on verification and repack at the same time.
    #[serde(default = "TapeConfig::default_background_drives")]
    pub background_drives: u32,
    /// A full tape is repacked and relabelled when less than this part of it is still needed. 0: never.
    #[serde(default)]
    pub reclaim_below_percent: u8,
    /// Tapes that the site may relabel in a day without an operator.
    #[serde(default = "TapeConfig::default_reclaims_per_day")]
    pub reclaims_per_day: u32,
    /// Bytes that a repack keeps on disk at a time, between the old tape and the new one.
    #[serde(default = "TapeConfig::default_repack_part")]
    pub repack_part: Size,
    /// How long a tape may be broken, disabled or no longer configured before its copies are written again elsewhere.
    #[serde(default = "TapeConfig::default_replace_copies_after")]
    pub replace_copies_after: Span,
    /// How long the copies on tape of a removed file stay.
    #[serde(default = "TapeConfig::default_keep_removed")]
    pub keep_removed: Span,
    /// The working directory of the program.
    #[serde(default = "TapeConfig::default_directory")]
    pub directory: PathBuf,
    /// Options that are passed to the program as `-key=value`.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Environment variables of the program, beside `PATH`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Commands that put files and run at the same time.
    #[serde(default = "TapeConfig::default_puts_max")]
    pub puts_max: u32,
    /// Commands that get files and run at the same time.
    #[serde(default = "TapeConfig::default_gets_max")]
    pub gets_max: u32,
    /// Commands that remove files and run at the same time.
    #[serde(default = "TapeConfig::default_removes_max")]
    pub removes_max: u32,
    /// How long one command that puts may take.
    #[serde(default = "TapeConfig::default_put_timeout")]
    pub put_timeout: Span,
    /// How long one command that gets may take.
    #[serde(default = "TapeConfig::default_get_timeout")]
    pub get_timeout: Span,
    /// How long one command that removes may take.
    #[serde(default = "TapeConfig::default_remove_timeout")]
    pub remove_timeout: Span,
    /// Files of one family are put on tape together as soon as they have this many bytes. With libraries: also what is worth
    /// a mount to be read, and the size at which an aggregate is closed.
    #[serde(default = "TapeConfig::default_collect_bytes")]
    pub collect_bytes: Size,
    /// The same, as soon as they are this many files. With libraries: also what is worth a mount to be read.
    #[serde(default = "TapeConfig::default_collect_files")]
    pub collect_files: u32,
    /// The same, as soon as the oldest has waited this long. With libraries: also the age at which an aggregate is closed.
    #[serde(default = "TapeConfig::default_collect_time")]
    pub collect_time: Span,
    /// Tries to bring a file before its request fails.
    #[serde(default = "TapeConfig::default_tries_max")]
    pub tries_max: u32,
    /// The pause after the first failed try. Each further one doubles it, up to `retry_max`.
    #[serde(default = "TapeConfig::default_retry_first")]
    pub retry_first: Span,
    /// The longest pause between two tries.
    #[serde(default = "TapeConfig::default_retry_max")]
    pub retry_max: Span,
    /// The part of each pool that is kept free, by removing disk copies of files that are on tape.
    #[serde(default = "TapeConfig::default_keep_free_percent")]
    pub keep_free_percent: u8,
    /// How long a file that was brought from tape stays on disk when the request does not say.
    #[serde(default = "TapeConfig::default_pin")]
    pub pin: Span,
    /// The longest time that a request may ask for.
    #[serde(default = "TapeConfig::default_pin_max")]
    pub pin_max: Span,
    /// A directory on the file system of the HSM's disk buffer, if this machine mounts it. Explanations then report when it is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<PathBuf>,
    /// What reading a file that is on tape only does.
    #[serde(default)]
    pub read: ReadFromTape,
    /// Files in one stage request.
    #[serde(default = "TapeConfig::default_files_per_request_max")]
    pub files_per_request_max: u32,
    /// Bytes that stage requests of one user may keep on disk. Unset: a quarter of the room for tape, which is what files that
    /// are on disk only leave of the pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pins_user_max: Option<Size>,
    /// Bytes that stage requests of all users of a VO may keep on disk. Unset: half of the room for tape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pins_vo_max: Option<Size>,
    /// When the pool of a requested file has been unavailable for this long, the file is brought from tape to another pool.
    #[serde(default = "TapeConfig::default_pool_away_wait")]
    pub pool_away_wait: Span,
    /// A recall that has waited this long for room on disk is reported as an incident.
    #[serde(default = "TapeConfig::default_room_wait_max")]
    pub room_wait_max: Span,
    /// How long the state of a finished stage request can be queried.
    #[serde(default = "TapeConfig::default_keep_requests")]
    pub keep_requests: Span,
    /// Whether anybody may read the tape metrics that WLCG collects. Otherwise only administrators may.
    #[serde(default)]
    pub public_metrics: bool,
    /// How long files of a data set wait, at most, for further files that the client has announced.
    #[serde(default = "TapeConfig::default_data_set_wait")]
    pub data_set_wait: Span,
    /// The name of the site in the discovery document of the Tape REST API. Unset: the site's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_name: Option<String>,
    /// Which files go to tape.
    #[serde(default, rename = "class")]
    pub classes: Vec<TapeClass>,
    /// Signs that a fault concerns the HSM as a whole and not one file: all that is given has to fit.
    #[serde(default, rename = "hsm_wide")]
    pub hsm_wide: Vec<HsmWidePattern>,
}

/// What reading a file that is on tape only does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadFromTape {
    /// It is refused, with a remedy.
    #[default]
    Refuse,
    /// It has the file brought, for who may stage it; the reader is asked to come again.
    Stage,
}

impl TapeConfig {
    fn default_time_factor() -> u32 {
        1
    }
    fn default_collect_recalls_time() -> Span {
        Span(Duration::from_secs(900))
    }
    fn default_verify_every() -> Span {
        Span(Duration::from_secs(365 * 86_400))
    }
    fn default_background_drives() -> u32 {
        1
    }
    fn default_reclaims_per_day() -> u32 {
        2
    }
    fn default_repack_part() -> Size {
        Size(100_000_000_000)
    }
    fn default_replace_copies_after() -> Span {
        Span(Duration::from_secs(86_400))
    }
    fn default_keep_removed() -> Span {
        Span(Duration::from_secs(7 * 86_400))
    }
    fn default_directory() -> PathBuf {
        "/".into()
    }
    fn default_puts_max() -> u32 {
        10
    }
    fn default_gets_max() -> u32 {
        50
    }
    fn default_removes_max() -> u32 {
        5
    }
    fn default_put_timeout() -> Span {
        Span(Duration::from_secs(4 * 3_600))
    }
    fn default_get_timeout() -> Span {
        Span(Duration::from_secs(24 * 3_600))
    }
    fn default_remove_timeout() -> Span {
        Span(Duration::from_secs(3_600))
    }
    fn default_collect_bytes() -> Size {
        Size(500_000_000_000)
    }
    fn default_collect_files() -> u32 {
        1_000
    }
    fn default_collect_time() -> Span {
        Span(Duration::from_secs(3_600))
    }
    fn default_data_set_wait() -> Span {
        Span(Duration::from_secs(86_400))
    }
    fn default_tries_max() -> u32 {
        5
    }
    fn default_retry_first() -> Span {
        Span(Duration::from_secs(60))
    }
    fn default_retry_max() -> Span {
        Span(Duration::from_secs(3_600))
    }
    fn default_keep_free_percent() -> u8 {
        10
    }
    fn default_pin() -> Span {
        Span(Duration::from_secs(2 * 86_400))
    }
    fn default_pin_max() -> Span {
        Span(Duration::from_secs(30 * 86_400))
    }
    fn default_files_per_request_max() -> u32 {
        10_000
    }
    fn default_pool_away_wait() -> Span {
        Span(Duration::from_secs(3_600))
    }
    fn default_room_wait_max() -> Span {
        Span(Duration::from_secs(900))
    }
    fn default_keep_requests() -> Span {
        Span(Duration::from_secs(7 * 86_400))
    }
}

fn nanoseconds(span: Span) -> i64 {
    i64::try_from(span.0.as_nanos()).unwrap_or(i64::MAX)
}
