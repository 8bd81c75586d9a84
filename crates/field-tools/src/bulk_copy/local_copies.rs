//! Which local files are the copies of a run. A file system that folds case, or writes accents in one way, takes `A` and `a` for one
//! name: the second copy would go over the first.

use crate::local_place::{LocalPlace, MissingDirectories};
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

/// What tells a file from all others: its device and inode.
type FileKey = (u64, u64);

/// Places of copies, by the file that is there.
#[derive(Debug, Default)]
pub(super) struct LocalCopies {
    by_file: Mutex<BTreeMap<FileKey, LocalPlace>>,
}

impl LocalCopies {
    /// Notes that a copy is at a place. An error: the same file is already the copy of another source.
    pub(super) fn keep(&self, place: &LocalPlace, found: &Metadata) -> io::Result<()> {
        let mut known = self.by_file.lock().unwrap_or_else(PoisonError::into_inner);
        keep_in(&mut known, place, found)
    }

    /// Puts a copy in its place, unless another one of this run is there by its other name.
    pub(super) fn put_in_place(
        &self,
        place: &LocalPlace,
        put: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        // Held until it is in place: the two may be ready at one time.
        let mut known = self.by_file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = place.look()? {
            refuse_other(&known, place, &there)?;
        }
        put()?;
        match place.look()? {
            Some(found) => keep_in(&mut known, place, &found),
            None => Ok(()),
        }
    }
}

fn keep_in(
    known: &mut BTreeMap<FileKey, LocalPlace>,
    place: &LocalPlace,
    found: &Metadata,
) -> io::Result<()> {
    refuse_other(known, place, found)?;
    known.insert((found.dev(), found.ino()), place.clone());
    Ok(())
}

fn refuse_other(
    known: &BTreeMap<FileKey, LocalPlace>,
    place: &LocalPlace,
    found: &Metadata,
) -> io::Result<()> {
    let key = (found.dev(), found.ino());
    let Some(other) = known.get(&key).filter(|other| *other != place) else {
        return Ok(());
    };
    // A removed file leaves its number to the next one.
    let still = other.look()?;
    let is_there = still.is_some_and(|still| (still.dev(), still.ino()) == key);
    if !is_there || (found.nlink() > 1 && !is_one_entry(place, other)?) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "this file system takes the name for that of {}, which is the copy of another file; rename one of the two at the source",
        other.path().display()
    )))
}

/// Whether two places are one name of a file, and not two names that it has.
fn is_one_entry(a: &LocalPlace, b: &LocalPlace) -> io::Result<bool> {
    let [at_a, at_b] = [a, b].map(|place| place.directory(MissingDirectories::Refused));
    let (at_a, at_b) = (at_a?, at_b?);
    let key = |metadata: Metadata| (metadata.dev(), metadata.ino());
    if key(at_a.metadata()?) != key(at_b.metadata()?) {
        return Ok(false);
    }
    let listed = at_a.names()?;
    let is_listed = |place: &LocalPlace| listed.iter().any(|name| name == place.name());
    Ok(a.name() == b.name() || !(is_listed(a) && is_listed(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_the_copy_of_one_source_alone() {
        let top = tempfile::tempdir().expect("made");
        let at = |name: &str| top.path().join(name);
        let place = |name: &str| LocalPlace::at(&at(name)).expect("a name");
        let found = |name: &str| fs::metadata(at(name)).expect("there");
        for name in ["A", "b"] {
            fs::write(at(name), name).expect("written");
        }
        let copies = LocalCopies::default();
        for (name, file) in [("A", "A"), ("b", "b"), ("A", "A")] {
            copies.keep(&place(name), &found(file)).expect(name);
        }
        // To a file system that folds case the other name is that of this file.
        let why = copies.keep(&place("a"), &found("A")).expect_err("one file");
        let told = format!("the name for that of {}", at("A").display());
        assert!(why.to_string().contains(&told), "{why}");
        // A second name is another entry; one that the directory does not list is not.
        fs::hard_link(at("A"), at("second")).expect("linked");
        copies
            .keep(&place("second"), &found("A"))
            .expect("another name");
        copies
            .keep(&place("SECOND"), &found("A"))
            .expect_err("one name");
        fs::create_dir(at("d")).expect("made");
        fs::hard_link(at("A"), at("d/A")).expect("linked");
        copies.keep(&place("d/A"), &found("A")).expect("elsewhere");
    }

    #[test]
    fn a_copy_is_not_put_over_another_one_and_old_numbers_are_forgotten() {
        let top = tempfile::tempdir().expect("made");
        let at = |name: &str| top.path().join(name);
        let place = |name: &str| LocalPlace::at(&at(name)).expect("a name");
        let copies = LocalCopies::default();
        let put =
            |name: &'static str| copies.put_in_place(&place(name), || fs::write(at(name), name));
        put("A").expect("put");
        put("A").expect("put again");
        let found = fs::metadata(at("A")).expect("there");
        fs::remove_file(at("A")).expect("removed");
        copies.keep(&place("a"), &found).expect("A is gone");
        copies
            .put_in_place(&place("x"), || Err(io::ErrorKind::StorageFull.into()))
            .expect_err("it failed");
    }
}
