//! The arguments of a command.

use super::HsmCommandConfig;
use penstock_tape::hsm_queue::{HsmKind, HsmUri};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

/// What a program is called for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HsmCall {
    Put {
        /// The file's name for the HSM: unique, and the same each time.
        pnfsid: String,
        /// Where the file is.
        path: PathBuf,
        storage_info: HsmStorageInfo,
    },
    Get {
        pnfsid: String,
        /// Where the file is to be. Each command should have a path of its own: one that was lost may still write.
        path: PathBuf,
        /// How long it has to be in the end.
        size_bytes: u64,
        uri: HsmUri,
        storage_info: HsmStorageInfo,
    },
    Remove {
        uri: HsmUri,
    },
}

impl HsmCall {
    /// The kind of this command.
    pub fn kind(&self) -> HsmKind {
        match self {
            HsmCall::Put { .. } => HsmKind::Put,
            HsmCall::Get { .. } => HsmKind::Get,
            HsmCall::Remove { .. } => HsmKind::Remove,
        }
    }

    /// `put <pnfsid> <path> -si=…`, `get <pnfsid> <path> -si=… -uri=…` or `remove -uri=…`, then `-command=…` with the program
    /// itself and the configured options. No shell reads them, so names may hold whatever they like.
    pub(super) fn arguments(&self, config: &HsmCommandConfig) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = match self {
            HsmCall::Put {
                pnfsid,
                path,
                storage_info,
            } => vec![
                "put".into(),
                pnfsid.into(),
                path.into(),
                format!("-si={storage_info}").into(),
            ],
            HsmCall::Get {
                pnfsid,
                path,
                uri,
                storage_info,
                ..
            } => vec![
                "get".into(),
                pnfsid.into(),
                path.into(),
                format!("-si={storage_info}").into(),
                format!("-uri={}", uri.as_str()).into(),
            ],
            HsmCall::Remove { uri } => {
                vec!["remove".into(), format!("-uri={}", uri.as_str()).into()]
            }
        };
        let mut command = OsString::from("-command=");
        command.push(&config.program);
        arguments.push(command);
        let options = config.options.iter();
        arguments.extend(options.map(|(key, value)| format!("-{key}={value}").into()));
        arguments
    }
}

/// What a program is told of a file: `size=…;new=…;stored=…;sClass=…;cClass=-;hsm=…;key=value;`, as dCache tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HsmStorageInfo {
    pub size_bytes: u64,
    /// Whether the HSM has the file.
    pub is_stored: bool,
    /// The family of the file, as its class names it.
    pub storage_class: String,
    /// The type of the HSM.
    pub hsm: String,
    pub more: BTreeMap<String, String>,
}

impl fmt::Display for HsmStorageInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "size={};new={};stored={};sClass={};cClass=-;hsm={};",
            self.size_bytes,
            !self.is_stored,
            self.is_stored,
            Value(&self.storage_class),
            Value(&self.hsm)
        )?;
        for (key, value) in &self.more {
            write!(f, "{}={};", Value(key), Value(value))?;
        }
        Ok(())
    }
}

/// A value in which nothing ends it: `;`, `=`, `%` and control characters are written as `%XX`.
struct Value<'a>(&'a str);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                ';' | '=' | '%' => write!(f, "%{:02X}", u32::from(letter))?,
                letter if letter.is_ascii_control() => write!(f, "%{:02X}", u32::from(letter))?,
                letter => write!(f, "{letter}")?,
            }
        }
        Ok(())
    }
}
