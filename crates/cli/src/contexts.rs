//! Named sites for people who work with several: what commands use when `--dir`, `--service` and the like are not typed.
//!
//! What is typed outranks everything. Then count, the first of them alone: the context that `--context` names, the directory in
//! PENSTOCK_DIR, the context in use (`penstock context use`).

use crate::environment::{ContextToken, Environment};
use crate::exit::CommandError;
use clap::builder::ArgPredicate;
use clap::{Command, Id};
use penstock_durable_file::{make_directory, replace_private};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use url::Url;

/// Commands that make or replace a site, or are about contexts: for them everything is typed.
const WITHOUT_DEFAULTS: [&str; 4] = ["init", "restore", "context", "gfal-agent"];
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One named site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Its directory, on its own machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Its transfer service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Url>,
    /// Its storage door.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub door: Option<Url>,
    /// A file with a token, which goes to the service, to the door and to `token_for`, and nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Other servers that get the token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub token_for: Vec<Url>,
    /// A hashed directory of CA certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capath: Option<PathBuf>,
}

impl Context {
    /// The servers that get its token.
    pub fn token_servers(&self) -> Vec<Url> {
        let own = [&self.service, &self.door].into_iter().flatten();
        own.chain(&self.token_for).cloned().collect()
    }

    /// Its token, which is no value of an option: what is typed goes to every server of a command, and this does not.
    fn token(&self) -> Option<ContextToken> {
        Some(ContextToken {
            file: self.token_file.clone()?,
            dir: self.dir.clone(),
            servers: self.token_servers(),
        })
    }

    /// Values of options, by their ids.
    fn values(&self) -> Vec<(&'static str, OsString)> {
        let path = |path: &Option<PathBuf>| path.clone().map(OsString::from);
        let url = |url: &Option<Url>| url.as_ref().map(|url| OsString::from(url.as_str()));
        let all = [
            ("dir", path(&self.dir)),
            ("service", url(&self.service)),
            ("door", url(&self.door)),
            ("capath", path(&self.capath)),
        ];
        let all = all.into_iter();
        all.filter_map(|(id, value)| Some((id, value?))).collect()
    }
}

/// All contexts of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The one in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// By their names.
    #[serde(default, rename = "context")]
    pub all: BTreeMap<String, Context>,
}

impl Contexts {
    /// Where they are kept.
    pub fn file(environment: &Environment) -> Result<PathBuf, CommandError> {
        let home = environment.config_home.as_ref().ok_or_else(|| {
            CommandError::Usage(
                "contexts are stored in $XDG_CONFIG_HOME/penstock or ~/.config/penstock, but neither XDG_CONFIG_HOME nor HOME \
                 is set"
                    .to_owned(),
            )
        })?;
        Ok(home.join("penstock/contexts.toml"))
    }

    /// Reads them. There are none where there is no file.
    pub fn load(path: &Path) -> Result<Contexts, CommandError> {
        let unusable = |why: &dyn std::fmt::Display| {
            CommandError::Configuration(format!(
                "{} is not usable: {why}; correct it or move it away",
                path.display()
            ))
        };
        match std::fs::metadata(path) {
            // Where a service runs, the home of its user need not be one.
            Err(why)
                if matches!(
                    why.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied
                ) =>
            {
                return Ok(Contexts::default());
            }
            Err(why) => return Err(unusable(&why)),
            Ok(found) if found.len() > FILE_BYTES_MAX => return Err(unusable(&"it is too large")),
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path).map_err(|why| unusable(&why))?;
        toml::from_str(&text).map_err(|why| unusable(&why.message()))
    }

    /// Replaces them.
    pub fn save(&self, path: &Path) -> Result<(), CommandError> {
        let local = |why: std::io::Error| CommandError::local(path.display(), why);
        let directory = path.parent().unwrap_or(path);
        make_directory(directory, 0o700).map_err(local)?;
        let text =
            toml::to_string_pretty(self).map_err(|why| CommandError::local(path.display(), why))?;
        replace_private(path, &text).map_err(local)
    }

    /// The one of this name.
    pub fn named(&self, name: &str) -> Result<&Context, CommandError> {
        self.all.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.all.keys().map(String::as_str).collect();
            let known = match names.is_empty() {
                true => {
                    "there are none; add one with `penstock context add NAME --dir DIR`".to_owned()
                }
                false => format!("there are {}", names.join(", ")),
            };
            CommandError::NotFound(format!("no context is called '{name}'; {known}"))
        })
    }

    /// A name that can be typed and written.
    pub fn check_name(name: &str) -> Result<(), CommandError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        match !name.is_empty() && name.len() <= 64 && name.chars().all(allowed) {
            true => Ok(()),
            false => Err(CommandError::Usage(format!(
                "'{name}' is not a valid name of a context: use 1 to 64 letters, digits, '-', '_' or '.'"
            ))),
        }
    }
}

/// Values of options that are not typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    values: Vec<(&'static str, OsString)>,
    /// Of the context that counts.
    pub token: Option<ContextToken>,
}

impl From<&Context> for Defaults {
    fn from(context: &Context) -> Defaults {
        Defaults {
            values: context.values(),
            token: context.token(),
        }
    }
}

impl Defaults {
    /// Those that count for this command line.
    pub fn of(words: &[OsString], environment: &Environment) -> Result<Defaults, CommandError> {
        if let Some(name) = typed_context(words) {
            let contexts = Contexts::load(&Contexts::file(environment)?)?;
            return Ok(Defaults::from(contexts.named(&name)?));
        }
        if let Some(dir) = &environment.site_directory {
            return Ok(Defaults {
                values: vec![("dir", dir.clone().into())],
                token: None,
            });
        }
        // The service starts those, with an environment of its own.
        let is_agent = words.get(1).is_some_and(|word| word == "gfal-agent");
        if environment.config_home.is_none() || is_agent {
            return Ok(Defaults::default());
        }
        let contexts = Contexts::load(&Contexts::file(environment)?)?;
        match &contexts.current {
            Some(name) => Ok(Defaults::from(contexts.named(name)?)),
            None => Ok(Defaults::default()),
        }
    }

    /// A command whose options have these values where nothing is typed that they would contradict.
    pub fn apply(&self, command: Command) -> Command {
        if self.values.is_empty() || WITHOUT_DEFAULTS.contains(&command.get_name()) {
            return command;
        }
        let mut command = command;
        for (id, value) in &self.values {
            let Some(unless) = contradicting(&command, id) else {
                continue;
            };
            // The definition of a command lives as long as the program, and there is one.
            let value: &'static OsStr = Box::leak(value.clone().into_boxed_os_str());
            command = command.mut_arg(*id, |arg| {
                let unset = unless.into_iter();
                let unset = unset.map(|id| (id, ArgPredicate::IsPresent, None::<&'static str>));
                arg.required(false)
                    .default_value_ifs(unset)
                    .default_value(value)
            });
        }
        let names = command.get_subcommands();
        let names: Vec<String> = names.map(|sub| sub.get_name().to_owned()).collect();
        for name in names {
            command = command.mut_subcommand(name, |sub| self.apply(sub));
        }
        command
    }
}

/// The options beside which a command's option has no default; `None`: it has no such option.
fn contradicting(command: &Command, id: &str) -> Option<Vec<Id>> {
    let arg = command.get_arguments().find(|arg| arg.get_id() == id)?;
    let has = |other: &str| command.get_arguments().any(|arg| arg.get_id() == other);
    let named = |arg: &clap::Arg| -> Vec<Id> {
        let found = command.get_arg_conflicts_with(arg);
        found.iter().map(|arg| arg.get_id().clone()).collect()
    };
    let mut all = named(arg);
    for other in command.get_arguments() {
        if named(other).iter().any(|named| named == id) {
            all.push(other.get_id().clone());
        }
    }
    // A site that is typed is not the context's, and neither is what belongs to that.
    if id != "dir" && has("dir") {
        all.push(Id::from("dir"));
    }
    all.sort();
    all.dedup();
    Some(all)
}

/// The context that a command line names. It is looked for here, because what it says is needed to read the rest.
fn typed_context(words: &[OsString]) -> Option<String> {
    let mut words = words.iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--") => return None,
            Some("--context") => return words.next()?.to_str().map(str::to_owned),
            Some(word) => {
                if let Some(name) = word.strip_prefix("--context=") {
                    return Some(name.to_owned());
                }
            }
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, command};
    use clap::FromArgMatches;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    fn environment(home: &Path, directory: Option<&str>) -> Environment {
        Environment {
            config_home: Some(home.to_owned()),
            site_directory: directory.map(PathBuf::from),
            ..Environment::default()
        }
    }

    fn shown(text: &str, environment: &Environment) -> String {
        let words = words(text);
        let read = Defaults::of(&words, environment).map_err(|why| why.to_string());
        let read = read.and_then(|defaults| {
            let matches = defaults.apply(command()).try_get_matches_from(words);
            let matches = matches.map_err(|why| why.kind().to_string())?;
            Arguments::from_arg_matches(&matches).map_err(|why| why.to_string())
        });
        match read {
            Ok(arguments) => format!("{:?}", arguments.command),
            Err(why) => why,
        }
    }

    fn contexts() -> Contexts {
        let context = |dir: &str| Context {
            dir: Some(dir.into()),
            ..Context::default()
        };
        let remote = Context {
            service: Url::parse("https://fts:8446").ok(),
            token_file: Some("/t".into()),
            ..Context::default()
        };
        let all = [
            ("a", context("/a")),
            ("b", context("/b")),
            ("remote", remote),
        ];
        Contexts {
            current: Some("a".to_owned()),
            all: all.map(|(name, it)| (name.to_owned(), it)).into(),
        }
    }

    #[test]
    fn what_is_typed_outranks_the_named_context_the_environment_and_the_one_in_use() {
        let home = tempfile::tempdir().expect("a directory");
        let none = environment(home.path(), None);
        assert_eq!(
            shown("penstock check", &none),
            "one or more required arguments were not provided"
        );
        let file = Contexts::file(&none).expect("a place");
        contexts().save(&file).expect("saved");
        assert_eq!(Contexts::load(&file).expect("read"), contexts());
        let with = environment(home.path(), Some("/env"));
        let check = |text: &str, environment: &Environment, expected: &str| {
            let shown = shown(text, environment);
            assert!(shown.contains(expected), "{text}: {shown}");
        };
        check("penstock check", &none, "dir: \"/a\"");
        check("penstock check", &with, "dir: \"/env\"");
        check("penstock check --context b", &with, "dir: \"/b\"");
        check("penstock --context=b check", &with, "dir: \"/b\"");
        check(
            "penstock check --context b --dir /typed",
            &with,
            "dir: \"/typed\"",
        );
        check(
            "penstock check --context x",
            &none,
            "no context is called 'x'; there are a, b, remote",
        );
        check("penstock trust list", &none, "dir: \"/a\"");
        check("penstock key rotate token", &none, "dir: \"/a\"");
        // What would make or replace a site is typed.
        check("penstock init", &none, "required");
        check("penstock restore f", &none, "required");
    }

    #[test]
    fn a_default_gives_way_to_what_contradicts_it() {
        let home = tempfile::tempdir().expect("a directory");
        let none = environment(home.path(), None);
        let file = Contexts::file(&none).expect("a place");
        contexts().save(&file).expect("saved");
        let check = |text: &str, expected: &[&str]| {
            let shown = shown(text, &none);
            for expected in expected {
                assert!(shown.contains(expected), "{text}: {shown}");
            }
        };
        check("penstock what-if --records r", &["dir: None"]);
        check("penstock backup --verify f", &["dir: None", "verify: Some"]);
        check("penstock backup --to f", &["dir: Some(\"/a\")"]);
        let remote = "penstock status x --context remote";
        check(remote, &["dir: None", "token_file: None", "fts"]);
        let elsewhere = format!("{remote} --dir /c");
        check(&elsewhere, &["service: None", "dir: Some(\"/c\")"]);
    }

    #[test]
    fn the_token_of_a_context_is_for_its_own_servers() {
        let home = tempfile::tempdir().expect("a directory");
        let none = environment(home.path(), None);
        let file = Contexts::file(&none).expect("a place");
        let mut all = contexts();
        let remote = all.all.get_mut("remote").expect("there");
        remote.token_for = vec![Url::parse("https://se:8443").expect("a URL")];
        all.save(&file).expect("saved");
        let of = |text: &str, environment: &Environment| {
            let defaults = Defaults::of(&words(text), environment).expect("read");
            let token = defaults.token;
            token.map(|token| {
                let servers = token.servers.iter().map(Url::as_str);
                (token.file.clone(), servers.collect::<Vec<_>>().join(" "))
            })
        };
        let servers = "https://fts:8446/ https://se:8443/".to_owned();
        assert_eq!(
            of("penstock list --context remote", &none),
            Some(("/t".into(), servers))
        );
        assert_eq!(of("penstock list", &none), None, "that in use has none");
        let with = environment(home.path(), Some("/env"));
        assert_eq!(of("penstock list", &with), None);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_told_with_its_name() {
        let home = tempfile::tempdir().expect("a directory");
        let none = environment(home.path(), None);
        let file = Contexts::file(&none).expect("a place");
        Contexts::default().save(&file).expect("saved");
        for text in ["current = 7", "[context.a]\ndirectory = \"x\"", "nonsense"] {
            std::fs::write(&file, text).expect("written");
            let told = shown("penstock check", &none);
            assert!(told.contains("contexts.toml is not usable"), "{told}");
        }
        for bad in ["", "a b", "../x", "é"] {
            assert!(Contexts::check_name(bad).is_err(), "{bad}");
        }
    }
}
