//! Keys that several processes of one service have in common: one has made them, the others get them from it.

use super::{KEYS_MAX, SealingError, SealingKeys, hex, parse, read, write_new};
use penstock_durable_file::replace_private;
use std::io;
use std::path::Path;

impl SealingKeys {
    /// The keys that are in use here, and below them those that only the file holds, as text to be told to another
    /// process of the service. A secret. Whoever adopts it can open what a new key of the file is about to seal, and
    /// does not seal with that key before this process does.
    pub fn tell(&self, path: &Path) -> Result<String, SealingError> {
        let used = self.known();
        let new = read(path)?;
        let new = new
            .iter()
            .filter(|key| used.iter().all(|known| known.name != key.name));
        let (new, newest) = (new.collect::<Vec<_>>(), used.first());
        // Of too many those go first that nothing is sealed with any more.
        let others = used
            .iter()
            .skip(1)
            .take((KEYS_MAX - 1).saturating_sub(new.len()));
        let all = newest.into_iter().chain(others).chain(new).take(KEYS_MAX);
        Ok(all.map(|key| hex(&key.bytes) + "\n").collect())
    }

    /// The names of the keys in use, the newest first.
    pub fn names_in_use(&self) -> Vec<String> {
        self.known().iter().map(|key| hex(&key.name)).collect()
    }

    /// The names of the keys that were told.
    pub fn names_told(told: &str) -> Vec<String> {
        let keys = parse(told).ok().and_then(Result::ok).unwrap_or_default();
        keys.iter().map(|key| hex(&key.name)).collect()
    }

    /// Takes over what another process told: its newest key seals from now on. Keys that only this file holds stay
    /// below. The file is made, or replaced in one step (mode 0600). False when nothing was new.
    ///
    /// Errors: it cannot be written, or what was told is no list of keys.
    pub fn adopt(path: &Path, told: &str) -> Result<bool, SealingError> {
        let content = |why| SealingError::Content {
            path: path.to_owned(),
            why,
        };
        let file = |why| SealingError::File {
            path: path.to_owned(),
            why,
        };
        let told = parse(told)?.map_err(content)?;
        let own = match read(path) {
            Ok(own) => own,
            Err(SealingError::File { why, .. }) if why.kind() == io::ErrorKind::NotFound => {
                Vec::new()
            }
            Err(why) => return Err(why),
        };
        let names = |keys: &[super::Key]| keys.iter().map(|key| key.name).collect::<Vec<_>>();
        if own.len() >= told.len() && names(&own[..told.len()]) == names(&told) {
            return Ok(false);
        }
        let known = names(&told);
        let rest = own.iter().filter(|key| !known.contains(&key.name));
        let all = told.iter().chain(rest).take(KEYS_MAX);
        let text: String = all.map(|key| hex(&key.bytes) + "\n").collect();
        let written = match own.is_empty() {
            true => write_new(path, &text),
            false => replace_private(path, &text),
        };
        written.map_err(file)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealing::SecretKind;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_node_opens_what_another_one_sealed_and_keeps_what_it_had() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        let first = SealingKeys::load_or_create(&at("first")).expect("made");
        let sealed = first.seal(SecretKind::Token, "c", b"x").expect("sealed");
        let told = first.tell(&at("first")).expect("told");
        assert!(SealingKeys::adopt(&at("second"), &told).expect("taken"));
        assert!(!SealingKeys::adopt(&at("second"), &told).expect("nothing new"));
        let mode = std::fs::metadata(at("second")).expect("there").mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = SealingKeys::load_or_create(&at("second")).expect("read");
        assert_eq!(
            second.open(SecretKind::Token, "c", &sealed).expect("opens"),
            b"x"
        );
        let third = SealingKeys::load_or_create(&at("third")).expect("made");
        let own = third.seal(SecretKind::Token, "c", b"y").expect("sealed");
        assert!(SealingKeys::adopt(&at("third"), &told).expect("taken"));
        assert!(third.reload(&at("third")).expect("read"));
        assert_eq!(
            third.open(SecretKind::Token, "c", &own).expect("opens"),
            b"y"
        );
        assert_eq!(
            third.open(SecretKind::Token, "c", &sealed).expect("opens"),
            b"x"
        );
        // A key that has come into the file is told before it seals, below the one that does.
        let before = std::fs::read_to_string(at("first")).expect("readable");
        std::fs::write(at("first"), format!("{}\n{before}", "5a".repeat(32))).expect("written");
        let told = first.tell(&at("first")).expect("told");
        let sealing = first.names_in_use();
        assert_eq!(SealingKeys::names_told(&told).len(), 2);
        assert_eq!(SealingKeys::names_told(&told)[..1], sealing);
        assert!(SealingKeys::adopt(&at("second"), &told).expect("taken"));
        assert!(
            !second.reload(&at("second")).expect("read"),
            "the same key seals"
        );
        assert!(first.reload(&at("first")).expect("read"));
        let sealed = first.seal(SecretKind::Token, "c", b"z").expect("sealed");
        let opened = second.open(SecretKind::Token, "c", &sealed);
        assert_eq!(opened.expect("it has the key"), b"z");
        for bad in ["", "no key\n"] {
            assert!(SealingKeys::adopt(&at("third"), bad).is_err());
        }
    }
}
