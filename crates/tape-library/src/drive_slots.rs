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
            read => serde_json::from_slice(&read?).map_err(io::Error::other)?,
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

    /// A cartridge is put into a drive, or taken out of it. After an error it is where it was.
    pub(crate) fn put(&self, drive: &DriveName, tape: Option<&TapeName>) -> io::Result<()> {
        let mut loaded = self.loaded.lock();
        let mut changed = loaded.clone();
        match tape {
            Some(tape) => changed.insert(drive.clone(), tape.clone()),
            None => changed.remove(drive),
        };
        let text = serde_json::to_vec(&changed).map_err(io::Error::other)?;
        replace_private(&self.path, &text)?;
        *loaded = changed;
        Ok(())
    }

    /// Only these stay in their drives; all others are put back into their slots. The file tells of it when it is written next:
    /// until then each start finds the same.
    pub(crate) fn keep_only(&self, mut is_kept: impl FnMut(&DriveName, &TapeName) -> bool) {
        let mut loaded = self.loaded.lock();
        loaded.retain(|drive, tape| is_kept(drive, tape));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_written_down_has_not_happened() {
        let directory = tempfile::tempdir().expect("made");
        let slots = DriveSlots::open(directory.path()).expect("opened");
        let (drive, other) = (DriveName("d0".into()), DriveName("d1".into()));
        let (tape, second) = (TapeName("T1".into()), TapeName("T2".into()));
        // A directory in the way of the file.
        let in_the_way = directory.path().join("drives.json.new");
        std::fs::create_dir(&in_the_way).expect("made");
        slots.put(&drive, Some(&tape)).expect_err("not written");
        assert_eq!(slots.drive_of(&tape), None);
        std::fs::remove_dir(&in_the_way).expect("removed");
        slots.put(&drive, Some(&tape)).expect("written");
        slots.put(&other, Some(&second)).expect("written");
        std::fs::create_dir(&in_the_way).expect("made");
        slots.put(&drive, None).expect_err("not written");
        assert_eq!(slots.drive_of(&tape), Some(drive));
        slots.keep_only(|name, _| *name == other);
        assert_eq!(slots.drive_of(&tape), None);
        assert_eq!(slots.drive_of(&second), Some(other));
    }
}
