//! What a storage element with files on tape is started with.

use super::{ReadFromTape, TapeClass, TapeConfig, nanoseconds};
use penstock_model::Bytes;
use penstock_storage_element::hsm_command::HsmCommandConfig;
use penstock_storage_element::{
    ArchiveClasses, HsmProgramConfig, LibrariesConfig, NearlineConfig, TapeCareConfig,
    TapeSystemConfig,
};
use penstock_tape::hsm_queue::{HsmBatch, HsmPolicy};
use penstock_tape::request::{FamilyName, VoName};
use penstock_tape::request_engine::TapePolicy;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks at what only time brings.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The same where the time of libraries runs fast: what is looked at is on real disks.
const UPKEEP_INTERVAL_MIN: Duration = Duration::from_millis(250);

impl TapeConfig {
    /// What the storage element is started with; `site_name` is that of the site, and paths are resolved by `resolve`.
    pub fn nearline(&self, site_name: &str, resolve: impl Fn(&Path) -> PathBuf) -> NearlineConfig {
        let system = match &self.program {
            Some(program) => TapeSystemConfig::Program(self.hsm_program(program, &resolve)),
            None => TapeSystemConfig::Libraries(self.tape_libraries(&resolve)),
        };
        NearlineConfig {
            classes: ArchiveClasses(self.classes.iter().map(TapeClass::archive_class).collect()),
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
            upkeep_interval: self.upkeep_interval(),
            stages_on_read: self.read == ReadFromTape::Stage,
            buffer_directory: self.buffer.as_deref().map(&resolve),
            has_public_metrics: self.public_metrics,
            site_name: self
                .site_name
                .clone()
                .unwrap_or_else(|| site_name.to_owned()),
        }
    }

    /// In the time of libraries: where that runs fast, what time alone brings comes as much sooner.
    fn upkeep_interval(&self) -> Duration {
        let interval = UPKEEP_INTERVAL / self.time_factor.max(1);
        interval.max(UPKEEP_INTERVAL_MIN)
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
        assert_eq!(nearline.upkeep_interval, UPKEEP_INTERVAL);
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
        assert_eq!(nearline.upkeep_interval, UPKEEP_INTERVAL_MIN);
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
}
