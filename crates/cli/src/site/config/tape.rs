//! `[storage.tape]`: files that go to tape, and the commands of the HSM that keeps them there.

use penstock_model::NamespacePath;
use penstock_model::quantity::{Size, Span};
use penstock_storage_element::hsm_command::HsmCommandConfig;
use penstock_storage_element::{ArchiveClass, NearlineConfig};
use penstock_tape::hsm_queue::{HsmBatch, HsmPolicy, HsmWidePattern};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files in one stage request at most, whatever is configured.
const FILES_PER_REQUEST_MAX: u32 = 100_000;

/// The HSM behind a storage element.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tape {
    /// The program that puts, gets and removes files, with the interface that sites with dCache have: docs/tape/hsm.md.
    pub program: PathBuf,
    /// Its working directory.
    #[serde(default = "Tape::default_directory")]
    pub directory: PathBuf,
    /// Given to it as `-key=value`.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Its environment, beside a `PATH`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Commands at once.
    #[serde(default = "Tape::default_puts_max")]
    pub puts_max: u32,
    #[serde(default = "Tape::default_gets_max")]
    pub gets_max: u32,
    #[serde(default = "Tape::default_removes_max")]
    pub removes_max: u32,
    /// How long one command may take.
    #[serde(default = "Tape::default_put_timeout")]
    pub put_timeout: Span,
    #[serde(default = "Tape::default_get_timeout")]
    pub get_timeout: Span,
    #[serde(default = "Tape::default_remove_timeout")]
    pub remove_timeout: Span,
    /// Files of one family are put together as soon as they have so many bytes, are so many, or the oldest is so old.
    #[serde(default = "Tape::default_collect_bytes")]
    pub collect_bytes: Size,
    #[serde(default = "Tape::default_collect_files")]
    pub collect_files: u32,
    #[serde(default = "Tape::default_collect_time")]
    pub collect_time: Span,
    /// A file is not brought after so many tries.
    #[serde(default = "Tape::default_tries_max")]
    pub tries_max: u32,
    /// The pause after the first try; each further one doubles it, up to `retry_max`.
    #[serde(default = "Tape::default_retry_first")]
    pub retry_first: Span,
    #[serde(default = "Tape::default_retry_max")]
    pub retry_max: Span,
    /// Of each pool's space so much is kept free, by letting go of copies of files that are on tape.
    #[serde(default = "Tape::default_keep_free_percent")]
    pub keep_free_percent: u8,
    /// How long a file stays on disk when whoever asks for it does not say, and at most.
    #[serde(default = "Tape::default_pin")]
    pub pin: Span,
    #[serde(default = "Tape::default_pin_max")]
    pub pin_max: Span,
    /// A directory on the file system through which the HSM takes and gives files, if this machine has it: explanations then tell
    /// when that is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<PathBuf>,
    /// What reading a file that is on tape only does.
    #[serde(default)]
    pub read: ReadFromTape,
    /// Files in one stage request.
    #[serde(default = "Tape::default_files_per_request_max")]
    pub files_per_request_max: u32,
    /// How long a stage request that is over can be asked for.
    #[serde(default = "Tape::default_keep_requests")]
    pub keep_requests: Span,
    /// The name of the site towards users of its tape interface. Unset: that of the site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_name: Option<String>,
    /// Which files go to tape.
    #[serde(default, rename = "class")]
    pub classes: Vec<TapeClass>,
    /// Signs that a fault concerns the HSM as a whole and not one file.
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

impl Tape {
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
            if self.classes[..number]
                .iter()
                .any(|other| other.path == class.path)
            {
                problems.push(format!(
                    "two [[storage.tape.class]] have the path {}",
                    class.path
                ));
            }
        }
        for (name, number) in [
            ("puts_max", self.puts_max),
            ("gets_max", self.gets_max),
            ("removes_max", self.removes_max),
            ("collect_files", self.collect_files),
            ("tries_max", self.tries_max),
            ("files_per_request_max", self.files_per_request_max),
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
        if self.pin.0 > self.pin_max.0 {
            problems.push("storage.tape.pin is longer than pin_max".to_owned());
        }
    }

    /// What the storage element is started with; `site_name` is that of the site, and paths are resolved by `resolve`.
    pub fn nearline(&self, site_name: &str, resolve: impl Fn(&Path) -> PathBuf) -> NearlineConfig {
        let mut commands =
            HsmCommandConfig::usual(resolve(&self.program), resolve(&self.directory));
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
        NearlineConfig {
            classes: self
                .classes
                .iter()
                .map(|class| ArchiveClass {
                    path: class.path.clone(),
                    family: class.family.clone(),
                })
                .collect(),
            commands,
            policy,
            pin_usual: self.pin.0,
            pin_max: self.pin_max.0,
            stage_files_max: self.files_per_request_max as usize,
            stage_kept: self.keep_requests.0,
            keep_free_permille: u16::from(self.keep_free_percent) * 10,
            upkeep_interval: Duration::from_secs(10),
            stages_on_read: self.read == ReadFromTape::Stage,
            buffer_directory: self.buffer.as_deref().map(resolve),
            site_name: self
                .site_name
                .clone()
                .unwrap_or_else(|| site_name.to_owned()),
        }
    }
}

fn nanoseconds(span: Span) -> i64 {
    i64::try_from(span.0.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Tape {
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
        assert_eq!(nearline.commands.program, Path::new("/site/hsm.sh"));
        assert_eq!(nearline.commands.options["group"], "lhc");
        assert_eq!(nearline.buffer_directory, Some("/site/hsm".into()));
        assert_eq!(
            (nearline.site_name.as_str(), nearline.stages_on_read),
            ("lab", true)
        );
        assert_eq!(
            (nearline.policy.hsm_wide.len(), nearline.keep_free_permille),
            (1, 100)
        );
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
        assert!(toml::from_str::<Tape>("program = \"a\"\nputs = 3").is_err());
    }
}
