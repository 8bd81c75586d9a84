//! What does not go together in `[storage.tape]`.

use super::{TapeClass, TapeConfig, library};
use penstock_tape::hsm_queue::HsmWidePattern;

/// Files in one stage request at most, whatever is configured.
const FILES_PER_REQUEST_MAX: u32 = 100_000;

impl TapeConfig {
    /// What does not go together.
    pub(in crate::site::config) fn problems(&self, problems: &mut Vec<String>) {
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
        self.program_problems(problems);
        if self.pin.0 > self.pin_max.0 {
            problems.push("storage.tape.pin is longer than pin_max".to_owned());
        }
    }

    /// What the commands of a program cannot work with.
    fn program_problems(&self, problems: &mut Vec<String>) {
        for (name, span) in [
            ("put_timeout", self.put_timeout),
            ("get_timeout", self.get_timeout),
        ] {
            if span.0.is_zero() {
                problems.push(format!(
                    "storage.tape.{name} is 0s, so every command would be stopped at once"
                ));
            }
        }
        if self.retry_first.0 > self.retry_max.0 {
            problems.push("storage.tape.retry_first is longer than retry_max".to_owned());
        }
        let is_empty =
            |pattern: &HsmWidePattern| pattern.codes.is_empty() && pattern.text.is_none();
        if self.hsm_wide.iter().any(is_empty) {
            problems.push(
                "a [[storage.tape.hsm_wide]] has neither codes nor text, so every failure would count as one of the whole HSM"
                    .to_owned(),
            );
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
}

/// Names of those that were set.
fn set_ones(keys: &[(&'static str, bool)]) -> Vec<&'static str> {
    let set = keys.iter().filter(|(_, is_set)| *is_set);
    set.map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> TapeConfig {
        toml::from_str(text).expect("understood")
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
                format!("program = \"a\"\nput_timeout = \"0s\"\n{class}"),
                "put_timeout is 0s",
            ),
            (
                format!("program = \"a\"\nretry_first = \"2h\"\nretry_max = \"1h\"\n{class}"),
                "retry_first is longer than retry_max",
            ),
            (
                format!("program = \"a\"\n{class}[[hsm_wide]]\nkind = \"put\"\n"),
                "neither codes nor text",
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
