//! `[storage.tape]`: files that go to tape, and what keeps them there: the program of an HSM, or tape libraries.

mod library;

pub use library::TapeLibrary;

use penstock_model::quantity::{Size, Span};
use penstock_model::{Bytes, NamespacePath};
use penstock_storage_element::hsm_command::HsmCommandConfig;
use penstock_storage_element::{
    ArchiveClass, ArchiveClasses, HsmProgramConfig, LibrariesConfig, NearlineConfig,
    TapeCareConfig, TapeSystemConfig,
};
use penstock_tape::hsm_queue::{HsmBatch, HsmPolicy, HsmWidePattern};
use penstock_tape::request::{FamilyName, VoName};
use penstock_tape::request_engine::TapePolicy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files in one stage request at most, whatever is configured.
const FILES_PER_REQUEST_MAX: u32 = 100_000;

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

/// Files that go to tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeClass {
    /// New files below this directory. Of several classes the one with the longest path counts.
    pub path: NamespacePath,
    /// Their family: files of one family are put together.
    pub family: String,
    /// Only files of at least this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_min: Option<Size>,
    /// Only files of at most this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_max: Option<Size>,
    /// The VO whose files they are, for shares and bounds. Unset: one of their own, with the name of the family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vo: Option<String>,
    /// Copies on tape, each in another library.
    #[serde(default = "TapeClass::default_copies")]
    pub copies: u32,
    /// Files below this size are written together, as one object. Unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Size>,
    /// Drives that write the family at the same time, each to another tape. Unset: 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Drives that the VO has at the same time, to write and to read. Unset: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drives_max: Option<u32>,
    /// How long a file waits to be written at most, whatever a mount is worth. Unset: `collect_time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_max: Option<Span>,
}

impl TapeClass {
    fn default_copies() -> u32 {
        1
    }

    fn sizes(&self) -> (Bytes, Bytes) {
        let min = self.size_min.map_or(0, |size| size.0);
        let max = self.size_max.map_or(u64::MAX, |size| size.0);
        (Bytes(min), Bytes(max))
    }
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

    /// What does not go together.
    pub(super) fn problems(&self, problems: &mut Vec<String>) {
        if self.classes.is_empty() {
            problems.push(
                "[storage.tape] has no [[storage.tape.class]], so no file goes to tape".to_owned(),
            );
        }
        for (number, class) in self.classes.iter().enumerate() {
            if class.family.is_empty() {
                problems.push(format!(
                    "storage.tape.class {}: the family has no name",
                    class.path
                ));
            }
            let (min, max) = class.sizes();
            if min > max {
                problems.push(format!(
                    "storage.tape.class {}: size_min is above size_max",
                    class.path
                ));
            }
            let others = self.classes[..number].iter();
            let mut same = others.filter(|other| other.path == class.path);
            if same.any(|other| {
                let (other_min, other_max) = other.sizes();
                min <= other_max && other_min <= max
            }) {
                problems.push(format!(
                    "two [[storage.tape.class]] have the path {} and take files of the same size; set size_min and size_max of both",
                    class.path
                ));
            }
            self.library_problems_of(class, problems);
        }
        self.system_problems(problems);
        for (name, number) in [
            ("puts_max", self.puts_max),
            ("gets_max", self.gets_max),
            ("removes_max", self.removes_max),
            ("collect_files", self.collect_files),
            ("tries_max", self.tries_max),
            ("files_per_request_max", self.files_per_request_max),
            ("background_drives", self.background_drives),
        ] {
            if number == 0 {
                problems.push(format!("storage.tape.{name} is 0; it must be 1 or more"));
            }
        }
        if self.files_per_request_max > FILES_PER_REQUEST_MAX {
            problems.push(format!(
                "storage.tape.files_per_request_max is above {FILES_PER_REQUEST_MAX}"
            ));
        }
        if self.keep_free_percent > 100 {
            problems.push("storage.tape.keep_free_percent is above 100".to_owned());
        }
        if self.reclaim_below_percent > 90 {
            problems.push(
                "storage.tape.reclaim_below_percent is above 90: tapes are repacked again and again"
                    .to_owned(),
            );
        }
        if self.pin.0 > self.pin_max.0 {
            problems.push("storage.tape.pin is longer than pin_max".to_owned());
        }
    }

    /// Whether it is clear what keeps the files.
    fn system_problems(&self, problems: &mut Vec<String>) {
        match (&self.program, self.libraries.is_empty()) {
            (None, true) => problems.push(
                "[storage.tape] names no tape system: set `program` (an HSM, docs/tape/hsm.md) or add \
                 [storage.tape.library] (docs/tape/files-on-tape.md)"
                    .to_owned(),
            ),
            (Some(_), false) => problems.push(
                "[storage.tape] has both program and library; remove one of them".to_owned(),
            ),
            (Some(_), true) => {
                for name in self.keys_of_libraries() {
                    problems.push(format!(
                        "storage.tape.{name} is for tape libraries, and a program is set; remove it"
                    ));
                }
            }
            (None, false) => {
                for name in self.keys_of_program() {
                    problems.push(format!(
                        "storage.tape.{name} is for the program of an HSM, and libraries are set; remove it"
                    ));
                }
            }
        }
        library::problems(&self.libraries, problems);
        if self.time_factor == 0 {
            problems.push("storage.tape.time_factor is 0; it must be 1 or more".to_owned());
        }
    }

    /// Keys for the program of an HSM that were set, and to something else than they have anyway.
    fn keys_of_program(&self) -> Vec<&'static str> {
        let keys = [
            (
                "directory",
                self.directory != TapeConfig::default_directory(),
            ),
            ("options", !self.options.is_empty()),
            ("environment", !self.environment.is_empty()),
            ("puts_max", self.puts_max != TapeConfig::default_puts_max()),
            ("gets_max", self.gets_max != TapeConfig::default_gets_max()),
            (
                "removes_max",
                self.removes_max != TapeConfig::default_removes_max(),
            ),
            (
                "put_timeout",
                self.put_timeout != TapeConfig::default_put_timeout(),
            ),
            (
                "get_timeout",
                self.get_timeout != TapeConfig::default_get_timeout(),
            ),
            (
                "remove_timeout",
                self.remove_timeout != TapeConfig::default_remove_timeout(),
            ),
            (
                "tries_max",
                self.tries_max != TapeConfig::default_tries_max(),
            ),
            ("hsm_wide", !self.hsm_wide.is_empty()),
        ];
        set_ones(&keys)
    }

    fn keys_of_libraries(&self) -> Vec<&'static str> {
        let recalls = TapeConfig::default_collect_recalls_time();
        let keys = [
            (
                "time_factor",
                self.time_factor != TapeConfig::default_time_factor(),
            ),
            ("collect_recalls_time", self.collect_recalls_time != recalls),
            (
                "data_set_wait",
                self.data_set_wait != TapeConfig::default_data_set_wait(),
            ),
            ("public_metrics", self.public_metrics),
            (
                "verify_every",
                self.verify_every != TapeConfig::default_verify_every(),
            ),
            (
                "background_drives",
                self.background_drives != TapeConfig::default_background_drives(),
            ),
            ("reclaim_below_percent", self.reclaim_below_percent != 0),
            (
                "reclaims_per_day",
                self.reclaims_per_day != TapeConfig::default_reclaims_per_day(),
            ),
            (
                "repack_part",
                self.repack_part != TapeConfig::default_repack_part(),
            ),
            (
                "replace_copies_after",
                self.replace_copies_after != TapeConfig::default_replace_copies_after(),
            ),
        ];
        set_ones(&keys)
    }

    /// What a class may say only where there are libraries, and enough of them.
    fn library_problems_of(&self, class: &TapeClass, problems: &mut Vec<String>) {
        let path = &class.path;
        let mut problem =
            |text: String| problems.push(format!("storage.tape.class {path}: {text}"));
        let keys = [
            ("copies", class.copies != TapeClass::default_copies()),
            ("aggregate", class.aggregate.is_some()),
            ("width", class.width.is_some()),
            ("drives_max", class.drives_max.is_some()),
            ("wait_max", class.wait_max.is_some()),
        ];
        if self.libraries.is_empty() {
            for name in set_ones(&keys) {
                problem(format!(
                    "{name} is for tape libraries; the HSM decides that itself"
                ));
            }
            return;
        }
        for (name, number) in [
            ("copies", Some(class.copies)),
            ("width", class.width),
            ("drives_max", class.drives_max),
        ] {
            if number == Some(0) {
                problem(format!("{name} is 0; it must be 1 or more"));
            }
        }
        let (copies, libraries) = (class.copies as usize, self.libraries.len());
        if copies > libraries {
            problem(format!(
                "copies is {copies}, each in another library, and there are {libraries}; add [[storage.tape.library]]"
            ));
        }
        if class.drives_max.is_some() && class.vo.is_none() {
            problem("drives_max bounds the drives of a VO; set vo as well".to_owned());
        }
        let others = self.classes.iter();
        let mut of_family = others.clone().filter(|other| other.family == class.family);
        if let Some(other) = of_family.find(|other| other.width != class.width) {
            problem(format!(
                "it shares family {} with class {}, and width differs: set the same",
                class.family, other.path
            ));
        }
        if let Some(vo) = &class.vo {
            let mut of_vo = others.filter(|other| other.vo.as_ref() == Some(vo));
            if let Some(other) = of_vo.find(|other| other.drives_max != class.drives_max) {
                problem(format!(
                    "it shares VO {vo} with class {}, and drives_max differs: set the same",
                    other.path
                ));
            }
        }
    }

    /// What the storage element is started with; `site_name` is that of the site, and paths are resolved by `resolve`.
    pub fn nearline(&self, site_name: &str, resolve: impl Fn(&Path) -> PathBuf) -> NearlineConfig {
        let system = match &self.program {
            Some(program) => TapeSystemConfig::Program(self.hsm_program(program, &resolve)),
            None => TapeSystemConfig::Libraries(self.tape_libraries(&resolve)),
        };
        NearlineConfig {
            classes: ArchiveClasses(self.classes.iter().map(archive_class).collect()),
            system,
            retry_first: self.retry_first.0,
            retry_max: self.retry_max.0,
            pin_usual: self.pin.0,
            pin_max: self.pin_max.0,
            stage_files_max: self.files_per_request_max as usize,
            pins_user_max: self.pins_user_max.map(|size| Bytes(size.0)),
            pins_vo_max: self.pins_vo_max.map(|size| Bytes(size.0)),
            pool_away_wait: self.pool_away_wait.0,
            room_wait_max: self.room_wait_max.0,
            removed_kept: self.keep_removed.0,
            stage_kept: self.keep_requests.0,
            keep_free_permille: u16::from(self.keep_free_percent) * 10,
            upkeep_interval: Duration::from_secs(10),
            stages_on_read: self.read == ReadFromTape::Stage,
            buffer_directory: self.buffer.as_deref().map(&resolve),
            has_public_metrics: self.public_metrics,
            site_name: self
                .site_name
                .clone()
                .unwrap_or_else(|| site_name.to_owned()),
        }
    }

    fn hsm_program(&self, program: &Path, resolve: impl Fn(&Path) -> PathBuf) -> HsmProgramConfig {
        let mut commands = HsmCommandConfig::usual(resolve(program), resolve(&self.directory));
        commands.options.clone_from(&self.options);
        for (name, value) in &self.environment {
            commands.environment.insert(name.clone(), value.into());
        }
        (commands.put_timeout, commands.get_timeout) = (self.put_timeout.0, self.get_timeout.0);
        commands.remove_timeout = self.remove_timeout.0;
        let mut policy = HsmPolicy::usual();
        (policy.puts_max, policy.gets_max) = (self.puts_max as usize, self.gets_max as usize);
        policy.removes_max = self.removes_max as usize;
        policy.batch = HsmBatch {
            bytes: self.collect_bytes.0,
            files: self.collect_files as usize,
            age_ns: nanoseconds(self.collect_time),
        };
        (policy.limits.put_ns, policy.limits.get_ns) =
            (nanoseconds(self.put_timeout), nanoseconds(self.get_timeout));
        policy.limits.remove_ns = nanoseconds(self.remove_timeout);
        policy.limits.get_first_byte_ns = policy.limits.get_first_byte_ns.min(policy.limits.get_ns);
        policy.tries_max = self.tries_max;
        (policy.retry_first_ns, policy.retry_max_ns) =
            (nanoseconds(self.retry_first), nanoseconds(self.retry_max));
        policy.hsm_wide.clone_from(&self.hsm_wide);
        HsmProgramConfig { commands, policy }
    }

    fn tape_libraries(&self, resolve: impl Fn(&Path) -> PathBuf) -> LibrariesConfig {
        let mut policy = TapePolicy::usual();
        policy.mount.bytes_min = self.collect_bytes.0;
        policy.mount.files_min = u64::from(self.collect_files);
        policy.mount.age_ns = nanoseconds(self.collect_recalls_time);
        policy.mount.archive_age_ns = Some(nanoseconds(self.collect_time));
        policy.aggregate.age_ns = nanoseconds(self.collect_time);
        policy.data_set_wait_ns = nanoseconds(self.data_set_wait);
        policy.aggregate.bytes_max = policy.aggregate.bytes_max.min(self.collect_bytes.0);
        for class in &self.classes {
            if let Some(width) = class.width {
                let family = FamilyName(class.family.as_str().into());
                policy.mount.family_widths.insert(family, width);
            }
            if let (Some(vo), Some(drives)) = (&class.vo, class.drives_max) {
                let vo = VoName(vo.as_str().into());
                policy.mount.vo_drives_max.insert(vo, drives);
            }
        }
        policy.background_drives_max = self.background_drives;
        policy.relabels_per_day_max = self.reclaims_per_day as usize;
        let every_ns = nanoseconds(self.verify_every);
        let libraries = self.libraries.iter();
        LibrariesConfig {
            libraries: libraries.map(|one| one.library(&resolve)).collect(),
            policy,
            care: TapeCareConfig {
                verify_every_ns: (every_ns > 0).then_some(every_ns),
                reclaim_live_permille: u16::from(self.reclaim_below_percent) * 10,
                part_bytes: self.repack_part.0,
                copies_wait_ns: nanoseconds(self.replace_copies_after),
            },
            time_factor: self.time_factor,
        }
    }
}

/// Names of those that were set.
fn set_ones(keys: &[(&'static str, bool)]) -> Vec<&'static str> {
    let set = keys.iter().filter(|(_, is_set)| *is_set);
    set.map(|(name, _)| *name).collect()
}

fn archive_class(class: &TapeClass) -> ArchiveClass {
    let (size_min, size_max) = class.sizes();
    ArchiveClass {
        path: class.path.clone(),
        size_min,
        size_max,
        family: class.family.clone(),
        vo: class.vo.clone(),
        copies: class.copies,
        packed_below: Bytes(class.aggregate.map_or(0, |size| size.0)),
        wait_max: class.wait_max.map(|wait| wait.0),
    }
}

fn nanoseconds(span: Span) -> i64 {
    i64::try_from(span.0.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> TapeConfig {
        toml::from_str(text).expect("understood")
    }

    #[test]
    fn what_is_not_said_is_what_suits_most_sites() {
        let tape = parse(
            "program = \"hsm.sh\"\nread = \"stage\"\nbuffer = \"hsm\"\n[options]\ngroup = \"lhc\"\n[[class]]\npath = \"/tape\"\nfamily = \"raw\"\n\
             [[hsm_wide]]\ncodes = [28]\ntext = \"no space\"\n",
        );
        let mut problems = Vec::new();
        tape.problems(&mut problems);
        assert_eq!(problems, Vec::<String>::new());
        let nearline = tape.nearline("lab", |path| Path::new("/site").join(path));
        let TapeSystemConfig::Program(program) = &nearline.system else {
            panic!("{nearline:?}");
        };
        assert_eq!(program.commands.program, Path::new("/site/hsm.sh"));
        assert_eq!(program.commands.options["group"], "lhc");
        assert_eq!(nearline.buffer_directory, Some("/site/hsm".into()));
        assert_eq!(
            (nearline.site_name.as_str(), nearline.stages_on_read),
            ("lab", true)
        );
        assert_eq!(
            (program.policy.hsm_wide.len(), nearline.keep_free_permille),
            (1, 100)
        );
    }

    #[test]
    fn libraries_are_said_in_a_few_lines() {
        let tape = parse(
            "time_factor = 100\n[library]\ndirectory = \"tape\"\ndrives = [{ kind = \"LTO-8\", count = 2 }]\n\
             tapes = [{ kind = \"LTO-8\", count = 3, capacity = \"10 GB\" }]\n\
             [[class]]\npath = \"/t\"\nfamily = \"raw\"\nwidth = 2\nvo = \"atlas\"\ndrives_max = 1\naggregate = \"1 MB\"\n\
             [[class]]\npath = \"/t/big\"\nfamily = \"big\"\nwait_max = \"5m\"\nsize_min = \"1 GB\"\n",
        );
        let mut problems = Vec::new();
        tape.problems(&mut problems);
        assert_eq!(problems, Vec::<String>::new());
        let nearline = tape.nearline("lab", |path| Path::new("/site").join(path));
        let TapeSystemConfig::Libraries(libraries) = &nearline.system else {
            panic!("{nearline:?}");
        };
        let library = &libraries.libraries[0];
        assert_eq!(library.directory, Path::new("/site/tape"));
        assert_eq!(libraries.time_factor, 100);
        let definition = &library.definition;
        let drives: Vec<_> = definition.drives.keys().map(|drive| &*drive.0).collect();
        assert_eq!(drives, ["library-LTO-8-1", "library-LTO-8-2"]);
        let (tape, facts) = definition.tapes.iter().next().expect("some");
        assert_eq!(
            (&*tape.0, facts.capacity_bytes),
            ("library-LTO-8-0001", 10_000_000_000)
        );
        let mount = &libraries.policy.mount;
        assert_eq!(mount.family_widths.values().collect::<Vec<_>>(), [&2]);
        assert_eq!(mount.vo_drives_max.values().collect::<Vec<_>>(), [&1]);
        let classes = &nearline.classes.0;
        assert_eq!(classes[0].packed_below, Bytes(1_000_000));
        assert_eq!(classes[1].size_min, Bytes(1_000_000_000));
        assert_eq!(classes[1].wait_max, Some(Duration::from_secs(300)));
    }

    #[test]
    fn what_libraries_cannot_be_is_named() {
        let library = "directory = \"tape\"\ndrives = [{ kind = \"LTO-8\", count = 1 }]\ntapes = [{ kind = \"LTO-8\", count = 1 }]\n";
        let class = "[[class]]\npath = \"/t\"\nfamily = \"raw\"\n";
        for (text, words) in [
            (class.to_owned(), "names no tape system: set `program`"),
            (
                format!("program = \"a\"\n[library]\n{library}{class}"),
                "both program and library",
            ),
            (
                format!("puts_max = 3\n[library]\n{library}{class}"),
                "storage.tape.puts_max is for the program",
            ),
            (
                format!("program = \"a\"\ntime_factor = 3\n{class}"),
                "time_factor is for tape libraries",
            ),
            (
                format!("program = \"a\"\n{class}copies = 2\n"),
                "copies is for tape libraries",
            ),
            (
                format!("[library]\n{library}{class}copies = 2\n"),
                "add [[storage.tape.library]]",
            ),
            (
                format!("[library]\n{library}{class}drives_max = 2\n"),
                "set vo as well",
            ),
            (
                format!(
                    "[library]\n{library}{class}width = 2\n{}width = 3\n",
                    class.replace("/t", "/u")
                ),
                "storage.tape.class /t: it shares family raw with class /u, and width differs: set the same",
            ),
            (
                format!(
                    "[library]\n{library}{class}vo = \"a\"\ndrives_max = 2\n{}vo = \"a\"\n",
                    class.replace("/t", "/u")
                ),
                "it shares VO a with class /u, and drives_max differs: set the same",
            ),
            (
                format!("[[library]]\n{library}[[library]]\n{library}{class}"),
                "two [[storage.tape.library]] have the name",
            ),
            (
                format!("[library]\nname = \"a/b\"\n{library}{class}"),
                "is not a valid name",
            ),
            (
                format!("[library]\n{}{class}", library.replace("LTO-8", "LTO-99")),
                "'LTO-99' is not a kind of drive",
            ),
            (
                format!(
                    "[library]\n{}{class}",
                    library.replace("count = 1 }]\ntapes", "count = 0 }]\ntapes")
                ),
                "has no drive",
            ),
            (
                format!(
                    "[library]\n{}{class}",
                    library.replacen("LTO-8", "LTO-9", 1)
                ),
                "no drive takes its tapes of kind LTO-8",
            ),
            (
                format!("[library]\n{library}{class}size_min = 9\nsize_max = 8\n"),
                "size_min is above size_max",
            ),
        ] {
            let mut problems = Vec::new();
            parse(&text).problems(&mut problems);
            let problems = problems.join("; ");
            assert!(problems.contains(words), "{text}: {words}: {problems}");
        }
    }

    #[test]
    fn what_cannot_be_is_named() {
        let tape = parse(
            "program = \"hsm.sh\"\ngets_max = 0\nkeep_free_percent = 101\npin = \"60d\"\n[[class]]\npath = \"/t\"\nfamily = \"\"\n\
             [[class]]\npath = \"/t\"\nfamily = \"b\"\n",
        );
        let mut problems = Vec::new();
        tape.problems(&mut problems);
        let problems = problems.join("; ");
        for words in [
            "has no name",
            "two [[storage.tape.class]]",
            "gets_max is 0",
            "above 100",
            "longer than pin_max",
        ] {
            assert!(problems.contains(words), "{words}: {problems}");
        }
        assert!(toml::from_str::<TapeConfig>("program = \"a\"\nputs = 3").is_err());
    }
}
