//! The manifest of a backup: FILE.manifest beside FILE, with the SHA-256 of each file of that backup. It is written when all
//! of them are whole, so a backup that was interrupted has none. One file a line in the form of `sha256sum`, the backup's
//! own first. Only what follows its name in the others' names counts, so that a backup can be renamed with its manifest.

use super::{BackupError, BackupFacts, with_suffix};
use openssl::sha::Sha256;
use penstock_durable_file::replace_private;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What the name of a manifest ends with, after the name of its backup.
const SUFFIX: &str = ".manifest";
/// Bytes that are read at a time for a digest.
const READ_BYTES: usize = 1 << 20;
/// Hexadecimal digits of a SHA-256.
const DIGEST_DIGITS: usize = 64;

/// What a backup is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    path: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// What follows the backup's name; empty: the backup itself.
    suffix: String,
    sha256: String,
}

impl Manifest {
    /// Where the manifest of a backup is.
    pub fn path_of(backup: &Path) -> PathBuf {
        with_suffix(backup, SUFFIX)
    }

    /// Makes the manifest of a backup durable. The first file is the backup itself, the others are named after it.
    pub fn write(backup: &Path, files: &[(&Path, &BackupFacts)]) -> Result<(), BackupError> {
        let name = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.replace(char::is_control, "?")
        };
        let lines = files.iter().map(|(path, facts)| {
            let name = name(path);
            format!("{}  {name}\n", facts.sha256)
        });
        let path = Manifest::path_of(backup);
        replace_private(&path, &lines.collect::<String>()).map_err(|why| {
            BackupError::ManifestNotWritten {
                path: path.display().to_string(),
                why: why.to_string(),
            }
        })
    }

    /// Reads the manifest of a backup. None: it has none.
    pub fn read(backup: &Path) -> Result<Option<Manifest>, BackupError> {
        let path = Manifest::path_of(backup);
        let unusable = |why: String| BackupError::Unusable {
            path: backup.display().to_string(),
            why: format!("its manifest {} {why}", path.display()),
        };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(unusable(format!("cannot be read: {why}"))),
        };
        let entries = entries_of(&String::from_utf8_lossy(&text));
        let entries = entries.map_err(|line| unusable(format!("is damaged in line {line}")))?;
        Ok(Some(Manifest { path, entries }))
    }

    /// The manifest's own path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files that it lists, of a backup with this name.
    pub fn files(&self, backup: &Path) -> Vec<PathBuf> {
        let files = self.entries.iter();
        files
            .map(|entry| with_suffix(backup, &entry.suffix))
            .collect()
    }

    /// Compares a file that it lists with what was written when the backup was made.
    pub fn check(
        &self,
        backup: &Path,
        file: &Path,
        found: &BackupFacts,
    ) -> Result<(), BackupError> {
        let listed = self
            .entries
            .iter()
            .find(|entry| with_suffix(backup, &entry.suffix) == file);
        match listed {
            Some(entry) if entry.sha256 != found.sha256 => Err(BackupError::Unusable {
                path: file.display().to_string(),
                why: format!(
                    "it was changed after it was made: its SHA-256 is {}, {} says {}; use another backup, or remove \
                     that manifest to use this one all the same",
                    found.sha256,
                    self.path.display(),
                    entry.sha256
                ),
            }),
            Some(_) | None => Ok(()),
        }
    }
}

/// The entries of a manifest, or the number of the line that is none.
fn entries_of(text: &str) -> Result<Vec<Entry>, usize> {
    let mut first_name = None;
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let (sha256, name) = line.split_once("  ").ok_or(number)?;
        let is_digit = |digit: char| digit.is_ascii_digit() || ('a'..='f').contains(&digit);
        if sha256.len() != DIGEST_DIGITS || !sha256.chars().all(is_digit) {
            return Err(number);
        }
        let suffix = name.strip_prefix(*first_name.get_or_insert(name));
        let suffix = suffix
            .filter(|suffix| !suffix.contains('/'))
            .ok_or(number)?;
        entries.push(Entry {
            suffix: suffix.to_owned(),
            sha256: sha256.to_owned(),
        });
    }
    match entries.is_empty() {
        true => Err(1),
        false => Ok(entries),
    }
}

/// The SHA-256 of a file in hexadecimal digits.
pub(super) fn sha256_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => digest.update(&buffer[..count]),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    let digest = digest.finish();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_manifest_is_told_by_its_line() {
        let digest = "0f".repeat(32);
        let good = format!("{digest}  a.backup\n{digest}  a.backup.namespace\n");
        let suffixes = |text: &str| {
            let entries = entries_of(text)?;
            Ok(entries.into_iter().map(|entry| entry.suffix).collect())
        };
        assert_eq!(
            suffixes(&good),
            Ok(vec![String::new(), ".namespace".to_owned()])
        );
        let check = |text: String, line: usize| assert_eq!(suffixes(&text), Err(line), "{text}");
        check(String::new(), 1);
        check(good.replacen("0f", "0g", 1), 1);
        check(good.replace("a.backup.namespace", "b.backup"), 2);
        check(good.replace(".namespace", "/../other"), 2);
        check(good.replace("  ", " "), 1);
    }
}
