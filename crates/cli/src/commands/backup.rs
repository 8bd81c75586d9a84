//! `penstock backup` and `penstock restore`: what the roles of a site remember, made while they run, one file for each.

use crate::args::{BackupArgs, BackupPart, RestoreArgs};
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::backup::{
    BackupReport, CONFIGURATION, kept, make_directory, namespace_source, source, transfer,
};
use crate::site::config::{Config, without_secrets};
use crate::site::directory::SiteDirectory;
use penstock_clock::wall_clock;
use penstock_durable_file::replace_private;
use penstock_persistence::backup::{
    BackupContent, BackupError, BackupFacts, JournalLocation, Manifest, RestoreTo, RestoredBackup,
    back_up, restore, verify,
};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The name of the sealing keys in a backup.
const KEYS: &str = "credential-encryption";
/// What the name of a namespace's backup ends with when there is one of the transfer service beside it.
const NAMESPACE_SUFFIX: &str = ".namespace";

/// The backups of one site: a value for each, that of the transfer service first, or one value with the namespace's inside.
#[derive(Debug, Serialize)]
struct SiteBackupReport {
    #[serde(flatten)]
    first: BackupReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_backup: Option<BackupReport>,
}

impl SiteBackupReport {
    fn of(mut all: Vec<BackupReport>) -> Option<SiteBackupReport> {
        let namespace_backup = (all.len() > 1).then(|| all.pop()).flatten();
        let first = all.pop()?;
        Some(SiteBackupReport {
            first,
            namespace_backup,
        })
    }

    fn text(&self, what: &str) -> String {
        let all = [Some(&self.first), self.namespace_backup.as_ref()];
        all.into_iter()
            .flatten()
            .map(|told| told.text(what))
            .collect()
    }
}

/// `penstock backup`.
pub fn run(
    args: &BackupArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let local = |why: BackupError| CommandError::Local(why.to_string());
    if let Some(file) = &args.verify {
        let mut all = Vec::new();
        for one in verified(file, args.only)? {
            all.push(BackupReport::of(
                &one.file,
                one.facts,
                one.manifest.as_deref(),
            ));
        }
        if let Some(all) = SiteBackupReport::of(all) {
            output.show(&all, || all.text("verified:"));
        }
        return Ok(());
    }
    let (Some(dir), Some(to)) = (&args.dir, &args.to) else {
        let text = "name the site with --dir and the file with --to, or a backup with --verify";
        return Err(CommandError::Usage(text.to_owned()));
    };
    let site = SiteDirectory::at(dir)?;
    let config = site.config()?;
    let keys = args.with_keys.then_some(KEYS);
    let pass_file = environment.database_passwords.as_deref();
    let parts = parts_of(&site, &config, args.only)?;
    let mut made = Vec::new();
    for part in &parts {
        let of = match part {
            BackupPart::Transfer => source(&site, &config, pass_file, keys, args.rate.0)?,
            BackupPart::Namespace => namespace_source(&site, site.storage(&config)?, args.rate.0)?,
        };
        let to = match part {
            BackupPart::Namespace if parts.len() > 1 => beside(to),
            BackupPart::Namespace | BackupPart::Transfer => to.clone(),
        };
        let facts = back_up(&of, &to).map_err(local)?;
        made.push((to, facts));
    }
    let files: Vec<(&Path, &BackupFacts)> = made
        .iter()
        .map(|(file, facts)| (file.as_path(), facts))
        .collect();
    Manifest::write(to, &files).map_err(local)?;
    let manifest = Manifest::path_of(to);
    let all = made
        .into_iter()
        .map(|(file, facts)| BackupReport::of(&file, facts, Some(&manifest)));
    let Some(all) = SiteBackupReport::of(all.collect()) else {
        return Ok(());
    };
    output.show(&all, || {
        let advice = match (parts.contains(&BackupPart::Transfer), keys) {
            (false, _) => "",
            (true, Some(_)) => "The backup contains the keys for its encrypted credentials: protect it like those keys.\n",
            (true, None) => "Also keep a copy of transfer.credential_keys in another place: without it the stored credentials cannot be decrypted.\n",
        };
        all.text("made") + advice
    });
    Ok(())
}

/// What a site has of which there are backups, or of that the part that was asked for.
fn parts_of(
    site: &SiteDirectory,
    config: &Config,
    only: Option<BackupPart>,
) -> Result<Vec<BackupPart>, CommandError> {
    if let Some(only) = only {
        return Ok(vec![only]);
    }
    let transfer = config.transfer.is_some().then_some(BackupPart::Transfer);
    let namespace = config.storage.is_some().then_some(BackupPart::Namespace);
    let parts: Vec<BackupPart> = transfer.into_iter().chain(namespace).collect();
    match parts.is_empty() {
        true => Err(CommandError::Usage(format!(
            "{} has neither [transfer] nor [storage], so there is nothing to back up",
            site.config_file().display()
        ))),
        false => Ok(parts),
    }
}

/// Where the namespace's backup is when both roles have one.
fn beside(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(NAMESPACE_SUFFIX);
    PathBuf::from(path)
}

/// A file of a backup that was read and found whole.
struct VerifiedFile {
    file: PathBuf,
    facts: BackupFacts,
    /// The manifest that has its digest.
    manifest: Option<PathBuf>,
}

/// Reads all of a backup: each file that its manifest lists, and the namespace's that lies beside it.
fn verified(backup: &Path, only: Option<BackupPart>) -> Result<Vec<VerifiedFile>, CommandError> {
    let local = |why: BackupError| CommandError::Local(why.to_string());
    let manifest = Manifest::read(backup).map_err(local)?;
    let listed = manifest
        .as_ref()
        .map_or_else(Vec::new, |found| found.files(backup));
    let mut all = Vec::new();
    for file in files_of(backup, &listed, only) {
        if let Some(manifest) = &manifest
            && listed.contains(&file)
            && !file.exists()
        {
            return Err(CommandError::Local(format!(
                "{} is missing, but {} lists it: put it back next to the other file, or omit its part with --only",
                file.display(),
                manifest.path().display()
            )));
        }
        let facts = verify(&file).map_err(local)?;
        // A part that was made by itself has a manifest of its own.
        let (of, manifest) = match listed.contains(&file) {
            true => (backup, manifest.clone()),
            false if file == backup => (backup, None),
            false => (file.as_path(), Manifest::read(&file).map_err(local)?),
        };
        if let Some(manifest) = &manifest {
            manifest.check(of, &file, &facts).map_err(local)?;
        }
        let manifest = manifest.map(|manifest| manifest.path().to_owned());
        all.push(VerifiedFile {
            file,
            facts,
            manifest,
        });
    }
    Ok(all)
}

/// The files of a backup, the namespace's last.
fn files_of(backup: &Path, listed: &[PathBuf], only: Option<BackupPart>) -> Vec<PathBuf> {
    let namespace = Some(beside(backup)).filter(|path| path.exists() || listed.contains(path));
    match (only, namespace) {
        (Some(BackupPart::Namespace), Some(namespace)) => vec![namespace],
        (Some(_), _) | (None, None) => vec![backup.to_owned()],
        (None, Some(namespace)) => vec![backup.to_owned(), namespace],
    }
}

/// `penstock restore`.
pub fn put_back(
    args: &RestoreArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let site = SiteDirectory::to_change(&args.dir)?;
    let state = site.root().join("state");
    make_directory(&state)?;
    let _lock = site.lock()?;
    let files = verified(&args.file, args.only)?;
    // Of a directory without a configuration the backup's counts, which is verified before anything is written.
    let config = match site.config_file().exists() {
        true => site.config()?,
        false => configuration_of(&args.file, &files)?,
    };
    let mut puts = Vec::new();
    for VerifiedFile {
        file,
        facts,
        manifest,
    } in &files
    {
        let (part, kept) = match facts.content {
            BackupContent::Record(_) => {
                let pass_file = environment.database_passwords.as_deref();
                let kept = kept(&site, transfer(&site, &config)?, pass_file)?;
                (BackupPart::Transfer, kept)
            }
            BackupContent::Namespace(_) => {
                let database = site.resolve(&site.storage(&config)?.namespace);
                (BackupPart::Namespace, JournalLocation::Namespace(database))
            }
        };
        if args.only.is_some_and(|only| only != part) {
            return Err(CommandError::Usage(format!(
                "{} is not the part that --only names",
                file.display()
            )));
        }
        puts.push((file, manifest.as_deref(), kept));
    }
    // Nothing is begun of which a part would be refused.
    for path in puts.iter().filter_map(|(_, _, kept)| database_of(kept)) {
        if path.exists() && !args.replace {
            let path = path.display().to_string();
            return Err(CommandError::Local(
                BackupError::Exists { path }.to_string(),
            ));
        }
    }
    let (mut all, mut advice) = (Vec::new(), String::new());
    for (file, manifest, kept) in puts {
        let place = match database_of(&kept) {
            Some(path) => path.display().to_string(),
            None => "the database of transfer.database".to_owned(),
        };
        let (restored, more) = put_one_back(args, &site, &config, file, kept)?;
        let mut told = BackupReport::of(file, restored.facts, manifest);
        told.restored_to = Some(place);
        let set_aside = restored.set_aside.iter();
        told.set_aside = set_aside.map(|path| path.display().to_string()).collect();
        all.push(told);
        advice += &more;
    }
    if let Some(all) = SiteBackupReport::of(all) {
        output.show(&all, || all.text("restored from") + &advice);
    }
    Ok(())
}

fn database_of(kept: &JournalLocation) -> Option<&Path> {
    match kept {
        JournalLocation::Files { journal, .. } => Some(journal),
        JournalLocation::Namespace(database) => Some(database),
        JournalLocation::Postgres(_) => None,
    }
}

/// Puts one file back; what is told of it, and what is left to do.
fn put_one_back(
    args: &RestoreArgs,
    site: &SiteDirectory,
    config: &Config,
    file: &Path,
    kept: JournalLocation,
) -> Result<(RestoredBackup, String), CommandError> {
    let to = RestoreTo {
        kept,
        replaces: args.replace,
        scratch: site.root().join("state"),
        at: wall_clock(),
    };
    let directories = match &to.kept {
        JournalLocation::Files {
            journal,
            delegations,
        } => vec![journal, delegations],
        JournalLocation::Namespace(database) => vec![database],
        JournalLocation::Postgres(_) => Vec::new(),
    };
    for path in directories {
        make_directory(path.parent().unwrap_or(site.root()))?;
    }
    let restored = restore(file, &to).map_err(|why| CommandError::Local(why.to_string()))?;
    let keys = config.transfer.as_ref();
    let keys = keys.map(|transfer| site.resolve(&transfer.credential_keys));
    for (name, content) in &restored.files {
        let path = match (name.as_str(), &keys) {
            (CONFIGURATION, _) => site.config_file(),
            (KEYS, Some(keys)) => keys.clone(),
            _ => continue,
        };
        make_directory(path.parent().unwrap_or(site.root()))?;
        write_new(&path, content).map_err(|why| CommandError::local(path.display(), why))?;
    }
    if matches!(to.kept, JournalLocation::Files { .. }) {
        let transfer = transfer(site, config)?;
        put_positions(
            &restored.positions,
            &site.resolve(&transfer.message_positions),
        )?;
    }
    let advice = match (&to.kept, keys) {
        (JournalLocation::Namespace(_), _) => format!(
            "`penstock fsck --dir {}` finds files that were stored or removed after the backup\n",
            args.dir.display()
        ),
        (JournalLocation::Files { .. } | JournalLocation::Postgres(_), Some(keys))
            if !keys.exists() =>
        {
            format!(
                "restore the encryption keys before you start the site: {}\n",
                keys.display()
            )
        }
        (JournalLocation::Files { .. } | JournalLocation::Postgres(_), _) => String::new(),
    };
    Ok((restored, advice))
}

/// The configuration in a backup.
fn configuration_of(backup: &Path, verified: &[VerifiedFile]) -> Result<Config, CommandError> {
    let backup = verified.first().map_or(backup, |first| &first.file);
    let files = penstock_persistence::backup::files(backup);
    let files = files.map_err(|why: BackupError| CommandError::Local(why.to_string()))?;
    let text = files.into_iter().find(|(name, _)| name == CONFIGURATION);
    let text = text.map(|(_, content)| String::from_utf8_lossy(&content).into_owned());
    Config::parse(&text.unwrap_or_default()).map_err(|why| {
        let why = without_secrets(&why);
        CommandError::Usage(format!("the backup's {CONFIGURATION}: {why}"))
    })
}

/// What is there already stays.
fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => file.write_all(content).and_then(|()| file.sync_all()),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(why) => Err(why),
    }
}

/// A position that is further than the backup's stays: what was told since then is not told again.
fn put_positions(positions: &[(String, u64)], directory: &Path) -> Result<(), CommandError> {
    make_directory(directory)?;
    for (sink, sequence) in positions {
        let path = directory.join(sink);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let further = text
            .trim()
            .parse::<u64>()
            .is_ok_and(|known| known > *sequence);
        if !further {
            replace_private(&path, &format!("{sequence}\n"))
                .map_err(|why| CommandError::local(path.display(), why))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn positions_are_put_back_as_the_service_keeps_them() {
        let directory = tempfile::tempdir().expect("made");
        let at = |sink: &str| directory.path().join(sink);
        fs::write(at("broker"), "9\n").expect("written");
        let positions = [("broker".to_owned(), 7), ("file".to_owned(), 7)];
        put_positions(&positions, directory.path()).expect("put back");
        let read = |sink| fs::read_to_string(at(sink)).expect("there");
        assert_eq!(
            (read("broker"), read("file")),
            ("9\n".to_owned(), "7\n".to_owned())
        );
        let mode = fs::metadata(at("file"))
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(
            mode & 0o777,
            0o600,
            "it is written as a whole, for its owner"
        );
    }
}
