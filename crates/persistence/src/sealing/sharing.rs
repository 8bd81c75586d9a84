//! Keys that several processes of one service have in common: one has made them, the others get them from it.

use super::rotation::replace;
use super::{KEYS_MAX, SealingError, SealingKeys, hex, parse, read, write_new};
use std::io;
use std::path::Path;

impl SealingKeys {
    /// The keys of a file as text, to be told to another process of the service. A secret.
    pub fn tell(path: &Path) -> Result<String, SealingError> {
        let keys = read(path)?;
        Ok(keys.iter().map(|key| hex(&key.bytes) + "\n").collect())
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
            false => replace(path, &text),
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
        let told = SealingKeys::tell(&at("first")).expect("told");
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
        for bad in ["", "no key\n"] {
            assert!(SealingKeys::adopt(&at("third"), bad).is_err());
        }
    }
}
