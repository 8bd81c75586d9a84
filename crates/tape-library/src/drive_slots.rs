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

    /// A cartridge is put into a drive, or taken out of it.
    pub(crate) fn put(&self, drive: &DriveName, tape: Option<&TapeName>) -> io::Result<()> {
        let mut loaded = self.loaded.lock();
        match tape {
            Some(tape) => loaded.insert(drive.clone(), tape.clone()),
            None => loaded.remove(drive),
        };
        let text = serde_json::to_vec(&*loaded).map_err(io::Error::other)?;
        replace_private(&self.path, &text)
    }
}
