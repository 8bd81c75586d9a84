//! The hashed directory of authorities: their certificates, revocation lists and signing policies, read when
//! a certificate needs them and again when the files change.

use super::namespaces::Namespaces;
use super::{CertificateError, signing_policy, slash_form};
use openssl::x509::{X509, X509Crl, X509Ref};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long files are taken to be unchanged without a look.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Authorities whose names have the same hash, and revocation lists of them.
const NUMBERS: u32 = 10;
/// The longest revocation lists of the field have some MB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A directory as `X509_CERT_DIR` names it.
pub(super) struct Authorities {
    directory: PathBuf,
    known: Mutex<HashMap<u32, LoadedAuthorities>>,
}

#[derive(Clone)]
struct LoadedAuthorities {
    looked: Instant,
    stamps: Vec<Option<Stamp>>,
    files: Arc<Files>,
}

/// What changes when a file does.
pub(crate) type Stamp = (u64, i64, i64, u64);

/// Everything that stands under one hash.
#[derive(Default)]
pub(super) struct Files {
    pub certificates: Vec<X509>,
    pub revocation_lists: Vec<X509Crl>,
    pub signing_policy: Option<String>,
    pub namespaces: Option<Namespaces>,
}

impl Files {
    /// Whether `authority` may sign `subject`, both in slash form. Without a policy it may sign anything.
    pub(super) fn permit(&self, authority: &str, subject: &str) -> bool {
        match (&self.namespaces, &self.signing_policy) {
            (Some(namespaces), _) => namespaces.permit(authority, subject),
            (None, Some(policy)) => signing_policy::permits(policy, authority, subject),
            (None, None) => true,
        }
    }
}

/// The authorities of a hashed directory that may sign any subject, by file, and of how many they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthoritiesWithoutPolicy {
    /// Files without a policy beside them, with the subject of the authority.
    pub files: Vec<(PathBuf, String)>,
    /// All authorities of the directory.
    pub authorities: usize,
}

/// Looks which authorities of a hashed directory have neither `<hash>.namespaces` nor `<hash>.signing_policy`. Files that
/// hold no certificate are left out.
pub fn without_policy(directory: &Path) -> AuthoritiesWithoutPolicy {
    let mut found = AuthoritiesWithoutPolicy::default();
    for (path, subject) in certificates_in(directory) {
        found.authorities += 1;
        let has = |ending: &str| path.with_extension(ending).exists();
        if !has("namespaces") && !has("signing_policy") {
            found.files.push((path, subject));
        }
    }
    found
}

/// The authorities of a hashed directory that may sign a subject in slash form. A policy that cannot be read permits
/// nothing, as when a certificate is judged.
pub fn signers_of(directory: &Path, subject: &str) -> BTreeSet<String> {
    let permits = |(path, authority): &(PathBuf, String)| {
        let policies = ["signing_policy", "namespaces"].map(|ending| path.with_extension(ending));
        read_all(&policies).is_ok_and(|files| files.permit(authority, subject))
    };
    let all = certificates_in(directory).into_iter();
    all.filter(permits)
        .map(|(_, authority)| authority)
        .collect()
}

/// The files of a hashed directory that hold an authority's certificate, each with its subject.
fn certificates_in(directory: &Path) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let is_numbered = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| ending.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let subject_in = |path: PathBuf| {
        let bytes = read(&path).ok().flatten()?;
        let certificate = X509::from_pem(&bytes).ok()?;
        let subject = slash_form(certificate.subject_name());
        Some((path, subject.unwrap_or_else(|why| why.to_string())))
    };
    paths
        .into_iter()
        .filter(is_numbered)
        .filter_map(subject_in)
        .collect()
}

impl Authorities {
    pub(super) fn new(directory: &Path) -> Authorities {
        Authorities {
            directory: directory.to_owned(),
            known: Mutex::default(),
        }
    }

    /// Makes the next questions look at the files again.
    pub(super) fn forget(&self) {
        self.known.lock().clear();
    }

    /// The files of whoever signed `certificate`, or has the same hash. Errors: a file that is there and
    /// cannot be used, because a revocation list that is not read revokes nobody.
    pub(super) fn of_issuer(&self, certificate: &X509Ref) -> Result<Arc<Files>, CertificateError> {
        let hash = certificate.issuer_name_hash();
        let known = self.lock_known().get(&hash).cloned();
        if let Some(known) = &known
            && known.looked.elapsed() < LOOK_EVERY
        {
            return Ok(Arc::clone(&known.files));
        }
        let paths = self.paths(hash);
        let stamps: Vec<_> = paths.iter().map(|path| stamp(path)).collect();
        if stamps.iter().all(Option::is_none) {
            // Not remembered: strangers could fill the memory with hashes of their choice.
            self.lock_known().remove(&hash);
            return Ok(Arc::default());
        }
        let files = match known {
            Some(known) if known.stamps == stamps => known.files,
            _ => Arc::new(read_all(&paths)?),
        };
        let fresh = LoadedAuthorities {
            looked: Instant::now(),
            stamps,
            files: Arc::clone(&files),
        };
        self.lock_known().insert(hash, fresh);
        Ok(files)
    }

    fn lock_known(&self) -> parking_lot::MutexGuard<'_, HashMap<u32, LoadedAuthorities>> {
        self.known.lock()
    }

    /// `<hash>.0` …, `<hash>.r0` …, `<hash>.signing_policy`, `<hash>.namespaces`.
    fn paths(&self, hash: u32) -> Vec<PathBuf> {
        let numbered =
            |kind: &'static str| (0..NUMBERS).map(move |number| format!("{kind}{number}"));
        numbered("")
            .chain(numbered("r"))
            .chain(["signing_policy".to_owned(), "namespaces".to_owned()])
            .map(|ending| self.directory.join(format!("{hash:08x}.{ending}")))
            .collect()
    }
}

pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    let of = |file: Metadata| (file.ino(), file.mtime(), file.mtime_nsec(), file.len());
    std::fs::metadata(path).ok().map(of)
}

fn read_all(paths: &[PathBuf]) -> Result<Files, CertificateError> {
    let mut files = Files::default();
    for path in paths {
        let unusable = |why: String| CertificateError::Unusable {
            path: path.clone(),
            why,
        };
        let Some(bytes) = read(path).map_err(|why| unusable(why.to_string()))? else {
            continue;
        };
        let ending = path.extension().and_then(|ending| ending.to_str());
        match ending.unwrap_or_default() {
            "signing_policy" => {
                files.signing_policy = Some(String::from_utf8_lossy(&bytes).into_owned());
            }
            "namespaces" => {
                let rules = Namespaces::parse(&String::from_utf8_lossy(&bytes));
                files.namespaces = Some(rules.map_err(unusable)?);
            }
            list if list.starts_with('r') => files.revocation_lists.push(
                X509Crl::from_pem(&bytes)
                    .or_else(|_| X509Crl::from_der(&bytes))
                    .map_err(|_| unusable("it holds no revocation list".to_owned()))?,
            ),
            _ => files.certificates.push(
                X509::from_pem(&bytes)
                    .map_err(|_| unusable("it holds no certificate".to_owned()))?,
            ),
        }
    }
    Ok(files)
}

fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
