//! Which cartridge is in which drive. A drive keeps its cartridge when the process ends.

use parking_lot::Mutex;
use penstock_durable_file::replace_private;
use penstock_tape::request::{DriveName, TapeName};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct DriveSlots {
    path: PathBuf,
    loaded: Mutex<BTreeMap<DriveName, TapeName>>,
}

impl DriveSlots {
    pub(crate) fn open(directory: &Path) -> io::Result<DriveSlots> {
        let path = directory.join("drives.json");
        let loaded = match std::fs::read(&path) {
            Err(why) if why.kind() == ErrorKind::NotFound => BTreeMap::new(),
            read => serde_json::from_slice(&read?).map_err(|why| {
                io::Error::other(format!(
                    "drives.json cannot be understood: {why}; move it away, and all drives are taken to be empty"
                ))
            })?,
        };
        let loaded = Mutex::new(loaded);
        Ok(DriveSlots { path, loaded })
    }

    pub(crate) fn tape_in(&self, drive: &DriveName) -> Option<TapeName> {
        self.loaded.lock().get(drive).cloned()
    }

    pub(crate) fn drive_of(&self, tape: &TapeName) -> Option<DriveName> {
        let loaded = self.loaded.lock();
        let mut loaded = loaded.iter();
        loaded
            .find(|(_, of)| *of == tape)
            .map(|(drive, _)| drive.clone())
    }

    /// A cartridge is put into a drive, or taken out of it. That counts also when it is not kept.
    pub(crate) fn put(&self, drive: &DriveName, tape: Option<&TapeName>) {
        let mut loaded = self.loaded.lock();
        match tape {
            Some(tape) => loaded.insert(drive.clone(), tape.clone()),
            None => loaded.remove(drive),
        };
    }

    /// Writes down where cartridges are. The file may be unable to tell of it, as on a full disk: at the next start a tape that the
    /// file has elsewhere than its drive is found in its slot.
    pub(crate) fn keep(&self) {
        let loaded = self.loaded.lock();
        if let Ok(text) = serde_json::to_vec(&*loaded) {
            let _ = replace_private(&self.path, &text);
        }
    }

    /// Only these stay in their drives; all others are put back into their slots.
    pub(crate) fn keep_only(&self, mut is_kept: impl FnMut(&DriveName, &TapeName) -> bool) {
        let mut loaded = self.loaded.lock();
        loaded.retain(|drive, tape| is_kept(drive, tape));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_written_down_counts_all_the_same() {
        let directory = tempfile::tempdir().expect("made");
        let slots = DriveSlots::open(directory.path()).expect("opened");
        let put = |drive: &DriveName, tape| {
            slots.put(drive, tape);
            slots.keep();
        };
        let (drive, other) = (DriveName("d0".into()), DriveName("d1".into()));
        let (tape, second) = (TapeName("T1".into()), TapeName("T2".into()));
        put(&other, Some(&second));
        // A directory in the way of the file.
        let in_the_way = directory.path().join("drives.json.new");
        std::fs::create_dir(&in_the_way).expect("made");
        put(&drive, Some(&tape));
        assert_eq!(slots.drive_of(&tape), Some(drive.clone()));
        put(&drive, None);
        assert_eq!(slots.drive_of(&tape), None);
        slots.keep_only(|name, _| *name != other);
        assert_eq!(slots.drive_of(&second), None);
        put(&drive, Some(&tape));
        std::fs::remove_dir(&in_the_way).expect("removed");
        // The next that is written tells all of it.
        let later = DriveSlots::open(directory.path()).expect("opened");
        assert_eq!(later.drive_of(&tape), None);
        put(&other, None);
        let later = DriveSlots::open(directory.path()).expect("opened");
        assert_eq!(later.drive_of(&tape), Some(drive));
    }
}
