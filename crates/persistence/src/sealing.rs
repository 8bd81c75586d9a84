//! Secrets at rest: tokens and private keys are stored sealed (AES-256-GCM), each bound to what it is and whose it
//! is, so that a row of the database is of use neither to who copies the file nor in another row's place.
//!
//! The keys are in a file of their own, one a line, the newest first: the first seals, all open. A new key is put on
//! top; the old line goes when nothing is sealed with its key any more.

mod rotation;
mod sharing;

use openssl::error::ErrorStack;
use openssl::hash::{MessageDigest, hash};
use openssl::rand::rand_bytes;
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};
use parking_lot::RwLock;
use penstock_model::key_file::{KEY_BYTES, KEYS_MAX, KeyFile};
use penstock_model::text::hex;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// The version of the stored form: version, name of the key, nonce, tag, sealed text.
const VERSION: u8 = 1;
const NAME_BYTES: usize = 8;
// NIST SP 800-38D §8.2.2: 96 random bits, good for 2^32 secrets under one key.
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 1 + NAME_BYTES + NONCE_BYTES + TAG_BYTES;
const PRIVATE: u32 = 0o600;

/// What a secret is. It is sealed with the secret, so that none can be passed off as another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// A bearer token.
    Token,
    /// What an issuer gives newer bearer tokens for.
    RefreshToken,
    /// The private key of a request for a proxy.
    RequestKey,
    /// A delegated proxy: its chain and its private key.
    Proxy,
    /// The secret part of a cloud storage's key.
    CloudKey,
}

impl SecretKind {
    fn name(self) -> &'static str {
        match self {
            SecretKind::Token => "token",
            SecretKind::RefreshToken => "refresh token",
            SecretKind::RequestKey => "request key",
            SecretKind::Proxy => "proxy",
            SecretKind::CloudKey => "cloud key",
        }
    }
}

/// Why there are no keys, or a secret stays closed.
#[derive(Debug, Error)]
pub enum SealingError {
    /// The file cannot be read or made.
    #[error("credential keys {path}: {why}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// What it holds is no list of keys.
    #[error("credential keys {path}: {why}; each line is 64 hex digits, the newest first", path = .path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong, without the key.
        why: &'static str,
    },
    /// Others than its owner may read it.
    #[error("credential keys {path} can be read by others than their owner; `chmod 600` it", path = .path.display())]
    Open {
        /// Which file.
        path: PathBuf,
    },
    /// Sealed with a key that is not there (any more).
    #[error(
        "it was sealed with a key that is not among the credential keys; put that key's line back"
    )]
    UnknownKey,
    /// Changed, moved to another row, or not of the form that is written here.
    #[error("it is damaged or belongs elsewhere")]
    Damaged,
    /// For want of randomness or memory.
    #[error("OpenSSL failed: {0}")]
    OpenSsl(#[from] ErrorStack),
}

/// The keys that seal and open secrets. Cheap to clone; clones see a reload.
#[derive(Clone)]
pub struct SealingKeys(Arc<KeyRing>);

struct KeyRing {
    keys: RwLock<Vec<Key>>,
    /// Something was sealed with a key that is not there.
    lacks_one: AtomicBool,
}

#[derive(Clone)]
struct Key {
    name: [u8; NAME_BYTES],
    bytes: [u8; KEY_BYTES],
}

impl SealingKeys {
    /// Reads the keys of a file; makes the file, with one new key, when there is none.
    pub fn load_or_create(path: &Path) -> Result<SealingKeys, SealingError> {
        match SealingKeys::create(path) {
            Err(SealingError::File { why, .. }) if why.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        Ok(SealingKeys::of(read(path)?))
    }

    /// Makes a file with one new key that only its owner can read (mode 0600), whole or not at all. Never overwrites.
    pub fn create(path: &Path) -> Result<(), SealingError> {
        let mut key = [0; KEY_BYTES];
        rand_bytes(&mut key)?;
        let line: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        write_new(path, &format!("{line}\n")).map_err(|why| SealingError::File {
            path: path.to_owned(),
            why,
        })
    }

    /// A key that is nowhere stored: what it seals ends with the process.
    pub fn of_this_process() -> Result<SealingKeys, SealingError> {
        let mut bytes = [0; KEY_BYTES];
        rand_bytes(&mut bytes)?;
        Ok(SealingKeys::of(vec![Key::new(bytes)?]))
    }

    fn of(keys: Vec<Key>) -> SealingKeys {
        SealingKeys(Arc::new(KeyRing {
            keys: RwLock::new(keys),
            lacks_one: AtomicBool::new(false),
        }))
    }

    /// Whether something could not be opened for want of its key, since this was asked last: another process of the
    /// service may have it.
    pub fn take_lack(&self) -> bool {
        self.0.lacks_one.swap(false, Ordering::Relaxed)
    }

    /// Reads the file again. True when another key is the newest now, so that what is stored should be sealed anew. On
    /// error the keys in use stay.
    pub fn reload(&self, path: &Path) -> Result<bool, SealingError> {
        let keys = read(path)?;
        let known = self.0.keys.write();
        let mut known = known;
        let has_newer = keys[0].name != known[0].name;
        *known = keys;
        Ok(has_newer)
    }

    /// Names the keys of a file without telling them, the newest first; none when there is no file.
    pub fn names(path: &Path) -> Result<Vec<String>, SealingError> {
        match read(path) {
            Ok(keys) => Ok(keys.iter().map(|key| hex(&key.name)).collect()),
            Err(SealingError::File { why, .. }) if why.kind() == io::ErrorKind::NotFound => {
                Ok(Vec::new())
            }
            Err(why) => Err(why),
        }
    }

    /// Seals a secret of `kind` that is stored under `id`.
    pub fn seal(&self, kind: SecretKind, id: &str, secret: &[u8]) -> Result<Vec<u8>, SealingError> {
        let key = self.newest();
        let mut nonce = [0; NONCE_BYTES];
        rand_bytes(&mut nonce)?;
        let mut tag = [0; TAG_BYTES];
        let bound = bound_to(kind, id);
        let cipher = Cipher::aes_256_gcm();
        let text = encrypt_aead(cipher, &key.bytes, Some(&nonce), &bound, secret, &mut tag)?;
        let mut sealed = Vec::with_capacity(HEAD_BYTES + text.len());
        sealed.push(VERSION);
        sealed.extend_from_slice(&key.name);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&tag);
        sealed.extend_from_slice(&text);
        Ok(sealed)
    }

    /// Opens what [`SealingKeys::seal`] made of the same kind and id.
    pub fn open(&self, kind: SecretKind, id: &str, sealed: &[u8]) -> Result<Vec<u8>, SealingError> {
        let (head, text) = sealed
            .split_at_checked(HEAD_BYTES)
            .ok_or(SealingError::Damaged)?;
        let (version, head) = head.split_at(1);
        let (name, head) = head.split_at(NAME_BYTES);
        let (nonce, tag) = head.split_at(NONCE_BYTES);
        if version != [VERSION] {
            return Err(SealingError::Damaged);
        }
        let key = self.known().into_iter().find(|key| key.name == name);
        let key = key.ok_or_else(|| {
            self.0.lacks_one.store(true, Ordering::Relaxed);
            SealingError::UnknownKey
        })?;
        let (cipher, bound) = (Cipher::aes_256_gcm(), bound_to(kind, id));
        decrypt_aead(cipher, &key.bytes, Some(nonce), &bound, text, tag)
            .map_err(|_| SealingError::Damaged)
    }

    /// True when it was sealed with another key than the newest.
    pub fn is_stale(&self, sealed: &[u8]) -> bool {
        sealed.get(1..=NAME_BYTES) != Some(&self.newest().name)
    }

    fn newest(&self) -> Key {
        self.0.keys.read()[0].clone()
    }

    fn known(&self) -> Vec<Key> {
        let keys = self.0.keys.read();
        keys.clone()
    }
}

impl fmt::Debug for SealingKeys {
    /// Secrets stay out of logs.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SealingKeys")
    }
}

impl Key {
    /// Named by its hash, so that a row tells which key it needs without telling anything of that key.
    fn new(bytes: [u8; KEY_BYTES]) -> Result<Key, ErrorStack> {
        let digest = hash(
            MessageDigest::sha256(),
            &[b"penstock credential key", bytes.as_slice()].concat(),
        )?;
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(&digest[..NAME_BYTES]);
        Ok(Key { name, bytes })
    }
}

/// The name of the key that a secret was sealed with; `None` for what is none.
pub(crate) fn key_name_of(sealed: &[u8]) -> Option<String> {
    sealed.get(1..=NAME_BYTES).map(hex)
}

fn bound_to(kind: SecretKind, id: &str) -> Vec<u8> {
    format!("{}\0{id}", kind.name()).into_bytes()
}

fn read(path: &Path) -> Result<Vec<Key>, SealingError> {
    let broken = |why| SealingError::File {
        path: path.to_owned(),
        why,
    };
    let mode = fs::metadata(path).map_err(broken)?.mode();
    if mode & 0o077 != 0 {
        return Err(SealingError::Open {
            path: path.to_owned(),
        });
    }
    let text = fs::read_to_string(path).map_err(broken)?;
    parse(&text)?.map_err(|why| SealingError::Content {
        path: path.to_owned(),
        why,
    })
}

fn parse(text: &str) -> Result<Result<Vec<Key>, &'static str>, ErrorStack> {
    match KeyFile::parse(text) {
        Ok(file) => Ok(Ok(file.keys().map(Key::new).collect::<Result<_, _>>()?)),
        Err(why) => Ok(Err(why)),
    }
}

/// Writes a draft beside it and links it to its name, so that nobody ever sees half a key.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if path.try_exists()? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let draft = directory.join(format!(".credential-key.{}", uuid::Uuid::new_v4().simple()));
    let mut options = OpenOptions::new();
    let opened = options
        .write(true)
        .create_new(true)
        .mode(PRIVATE)
        .open(&draft);
    let written = opened.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let linked = written.and_then(|()| fs::hard_link(&draft, path));
    // The draft goes in any case; when that fails, it is a hidden file of the same mode.
    let _ = fs::remove_file(&draft);
    linked.and_then(|()| fs::File::open(directory)?.sync_all())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("credential-encryption");
        (directory, path)
    }

    #[test]
    fn what_was_sealed_opens_in_its_own_place_only() {
        let (_directory, path) = file();
        let keys = SealingKeys::load_or_create(&path).expect("made");
        let sealed = keys
            .seal(SecretKind::Token, "c1", b"secret")
            .expect("sealed");
        assert!(!sealed.windows(6).any(|bytes| bytes == b"secret"));
        let opened = |kind, id| keys.open(kind, id, &sealed).ok();
        assert_eq!(
            opened(SecretKind::Token, "c1").as_deref(),
            Some(b"secret".as_slice())
        );
        assert_eq!(opened(SecretKind::Token, "c2"), None, "another row");
        assert_eq!(opened(SecretKind::Proxy, "c1"), None, "another kind");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(
                keys.open(SecretKind::Token, "c1", &changed).is_err(),
                "byte {at}"
            );
            assert!(
                keys.open(SecretKind::Token, "c1", &sealed[..at]).is_err(),
                "{at} bytes"
            );
        }
    }

    #[test]
    fn a_new_key_seals_and_the_old_one_still_opens() {
        let (_directory, path) = file();
        let keys = SealingKeys::load_or_create(&path).expect("made");
        let old = keys
            .seal(SecretKind::Token, "c1", b"secret")
            .expect("sealed");
        let before = fs::read_to_string(&path).expect("readable");
        fs::write(&path, format!("# newest\n{}\n{before}", "5a".repeat(32))).expect("written");
        keys.reload(&path).expect("valid");
        let new = keys
            .seal(SecretKind::Token, "c1", b"secret")
            .expect("sealed");
        assert!(keys.is_stale(&old) && !keys.is_stale(&new));
        for sealed in [&old, &new] {
            assert_eq!(
                keys.open(SecretKind::Token, "c1", sealed).expect("opens"),
                b"secret"
            );
        }
        fs::write(&path, format!("{}\n", "5a".repeat(32))).expect("written");
        keys.reload(&path).expect("valid");
        let refused = keys
            .open(SecretKind::Token, "c1", &old)
            .expect_err("its key is gone");
        assert!(matches!(refused, SealingError::UnknownKey));
    }

    #[test]
    fn the_file_is_its_owners_and_survives() {
        let (_directory, path) = file();
        let sealed = SealingKeys::load_or_create(&path).expect("made");
        let sealed = sealed.seal(SecretKind::Token, "c1", b"x").expect("sealed");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        let again = SealingKeys::load_or_create(&path).expect("read");
        assert_eq!(
            again.open(SecretKind::Token, "c1", &sealed).expect("opens"),
            b"x"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("changed");
        let refused = SealingKeys::load_or_create(&path).expect_err("open to others");
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
    }
}
