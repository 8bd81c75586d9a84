//! A hashed directory of authorities, as `X509_CERT_DIR` names it: which certificates are there, and how one comes into it, with
//! a signing policy that changes nothing for those that are there.

use super::{PUBLIC, PkiError, in_file, read_certificate, write_new};
use crate::x509::{has_look_of, signing_policy};
use openssl::x509::X509;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// An authority of a hashed directory.
pub(super) struct InstalledAuthority {
    pub path: PathBuf,
    pub certificate: X509,
}

impl InstalledAuthority {
    /// Whether readers find it under this hash.
    fn is_under(&self, hash: &str) -> bool {
        self.path.file_stem().is_some_and(|stem| stem == hash)
    }
}

/// The authorities of a hashed directory, whatever their names. Files that hold none are left out, as those who trust the
/// directory leave them out.
pub(super) fn authorities_in(directory: &Path) -> Result<Vec<InstalledAuthority>, PkiError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(in_file(directory))? {
        let path = entry.map_err(in_file(directory))?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let is_numbered = ending.is_some_and(|ending| {
            !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_digit())
        });
        if (is_numbered || ending == Some("pem"))
            && let Ok(certificate) = read_certificate(&path)
        {
            found.push(InstalledAuthority { path, certificate });
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// The file that holds just this certificate.
pub(super) fn file_of(certificate: &X509, directory: &Path) -> Result<Option<PathBuf>, PkiError> {
    if !directory.exists() {
        return Ok(None);
    }
    let der = certificate.to_der()?;
    for installed in authorities_in(directory)? {
        if installed.certificate.to_der()? == der {
            return Ok(Some(installed.path));
        }
    }
    Ok(None)
}

/// The name that `openssl rehash` and Globus compute for the subject of a certificate.
pub(super) fn hash_of(certificate: &X509) -> String {
    format!("{:08x}", certificate.subject_name_hash())
}

/// What an authority may sign, in the EACL form of Globus.
pub(super) struct Policy {
    /// In slash form.
    pub authority: String,
    /// A subject, or a pattern.
    pub signs: String,
}

impl Policy {
    pub(super) fn text(&self) -> String {
        format!(
            "access_id_CA      X509         '{}'\n\
             pos_rights        globus       CA:sign\n\
             cond_subjects     globus       '\"{}\"'\n",
            self.authority, self.signs
        )
    }

    /// Errors: with this policy in a directory, in which its authority is not as yet, that authority could sign something else
    /// than the policy says, or another one less than before.
    pub(super) fn check(&self, directory: &Path, hash: &str) -> Result<(), PkiError> {
        if !directory.exists() {
            return Ok(());
        }
        let left = |path: PathBuf| {
            let subject = self.authority.clone();
            Err(PkiError::LeftPolicy { path, subject })
        };
        // Where there is one it outranks the policy, and its rules may be for any authority of this hash.
        let namespaces = directory.join(format!("{hash}.namespaces"));
        if namespaces.exists() {
            return left(namespaces);
        }
        let path = directory.join(format!("{hash}.signing_policy"));
        let present = match fs::read_to_string(&path) {
            Ok(present) => Some(present),
            Err(why) if why.kind() == ErrorKind::NotFound => None,
            Err(why) => return Err(in_file(&path)(why)),
        };
        let mut installed = authorities_in(directory)?.into_iter();
        let beside = installed.find(|one| one.is_under(hash));
        match (beside, present) {
            (None, None) => Ok(()),
            // Readers would take the new policy for all that the other one may sign.
            (Some(InstalledAuthority { path, .. }), None) => Err(PkiError::WithoutPolicy {
                path,
                subject: self.authority.clone(),
            }),
            // An installation that was cut off leaves just this.
            (None, Some(present)) if present == self.text() => Ok(()),
            (None, Some(_)) => left(path),
            (Some(_), Some(present)) => match self.is_contradicted_by(&present) {
                true => left(path),
                false => Ok(()),
            },
        }
    }

    /// Whether a policy file says something else of this authority, or of a name that passes for its.
    fn is_contradicted_by(&self, present: &str) -> bool {
        let own = self.text();
        let own = words_of(own.lines());
        let (entries, others) = signing_policy::entries_of(present, &self.authority);
        let is_other = |entry: &Vec<&str>| words_of(entry.iter().copied()) != own;
        let mut names = others.into_iter().filter_map(signing_policy::authority_of);
        entries.iter().any(is_other) || names.any(|name| has_look_of(name, &self.authority))
    }
}

fn words_of<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let lines = lines.filter(|line| !line.trim().starts_with('#'));
    lines.flat_map(str::split_whitespace).collect()
}

/// Puts a certificate into a hashed directory (`<hash>.0`, or the next free number), with its policy, unless it is there.
/// Gives back its path.
pub(super) fn place(
    certificate: &X509,
    policy: Option<&Policy>,
    directory: &Path,
) -> Result<PathBuf, PkiError> {
    fs::create_dir_all(directory).map_err(in_file(directory))?;
    if let Some(path) = file_of(certificate, directory)? {
        return Ok(path);
    }
    let hash = hash_of(certificate);
    if let Some(policy) = policy {
        policy.check(directory, &hash)?;
        install_policy(&directory.join(format!("{hash}.signing_policy")), policy)?;
    }
    let pem = certificate.to_pem()?;
    let mut number = 0_u32;
    loop {
        let path = directory.join(format!("{hash}.{number}"));
        match write_new(&path, &pem, PUBLIC) {
            Ok(()) => return Ok(path),
            Err(PkiError::Exists(_)) => number += 1,
            Err(other) => return Err(other),
        }
    }
}

/// One policy file may serve several authorities with one hash; ours is added to what stands there, if it is not there.
fn install_policy(path: &Path, policy: &Policy) -> Result<(), PkiError> {
    let text = policy.text();
    match write_new(path, text.as_bytes(), PUBLIC) {
        Err(PkiError::Exists(_)) => {}
        other => return other,
    }
    let present = fs::read_to_string(path).map_err(in_file(path))?;
    if policy.is_contradicted_by(&present) {
        return Err(PkiError::LeftPolicy {
            path: path.to_owned(),
            subject: policy.authority.clone(),
        });
    }
    let (entries, _) = signing_policy::entries_of(&present, &policy.authority);
    if !entries.is_empty() {
        return Ok(());
    }
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(path)
        .map_err(in_file(path))?;
    file.write_all(format!("\n{text}").as_bytes())
        .map_err(in_file(path))
}
