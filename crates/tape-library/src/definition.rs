//! What a library is made of, and how its time runs.

use penstock_tape::drive_fault::FaultRates;
use penstock_tape::drive_kind::DriveKind;
use penstock_tape::library::LibraryModel;
use penstock_tape::request::{DriveName, LibraryName, TapeName};
use std::collections::BTreeMap;

/// A library with its drives and cartridges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryDefinition {
    pub name: LibraryName,
    pub model: LibraryModel,
    /// Kinds of drives, by the names that drives and tapes use.
    pub kinds: BTreeMap<String, DriveKind>,
    /// The kind of each drive.
    pub drives: BTreeMap<DriveName, String>,
    pub tapes: BTreeMap<TapeName, TapeDefinition>,
    /// How often things go wrong by chance.
    pub faults: FaultRates,
    /// Of chance: the same seed gives cartridges with the same wraps and mounts with the same times.
    pub seed: u64,
}

/// A cartridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapeDefinition {
    /// The kind of drives that take it.
    pub kind: String,
    /// Where it ends, in bytes. It may end before what its label promises.
    pub capacity_bytes: u64,
}

/// How time runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryTime {
    /// As on the wall, in nanoseconds since 1970.
    Real,
    /// So many times as fast, from `origin_ns` on.
    Scaled { factor: u32, origin_ns: i64 },
    /// From event to event, from `origin_ns` on: whoever waits for a report has it at once.
    Virtual { origin_ns: i64 },
}

/// Why a definition is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    #[error("'{of}' is of kind '{kind}', which is not defined")]
    UnknownKind { of: String, kind: String },
    #[error("{tapes} tapes do not fit into {slots} slots")]
    TooFewSlots { tapes: usize, slots: u32 },
    #[error(
        "'{0}' is not a valid tape name: use letters, digits, '-', '_' and '.', and begin with a letter or a digit"
    )]
    TapeName(String),
}

/// The longest name of a tape.
const NAME_BYTES_MAX: usize = 200;

impl LibraryDefinition {
    pub(crate) fn check(&self) -> Result<(), DefinitionError> {
        let drives = self.drives.iter().map(|(name, kind)| (&name.0, kind));
        let tapes = self.tapes.iter().map(|(name, tape)| (&name.0, &tape.kind));
        for (of, kind) in drives.chain(tapes) {
            if !self.kinds.contains_key(kind) {
                let (of, kind) = (of.to_string(), kind.clone());
                return Err(DefinitionError::UnknownKind { of, kind });
            }
        }
        // It is a name of a file as well.
        for name in self.tapes.keys() {
            let is_sign = |byte: u8| b"-_.".contains(&byte);
            let bytes = name.0.as_bytes();
            let is_good = bytes
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || is_sign(*byte))
                && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
                && bytes.len() <= NAME_BYTES_MAX;
            if !is_good {
                return Err(DefinitionError::TapeName(name.0.to_string()));
            }
        }
        let (tapes, slots) = (self.tapes.len(), self.model.slots);
        if tapes > slots as usize {
            return Err(DefinitionError::TooFewSlots { tapes, slots });
        }
        Ok(())
    }

    /// A number for a tape or a drive, from which chance gives it wraps and times of its own.
    pub(crate) fn seed_of(&self, name: &str) -> u64 {
        name.bytes().fold(self.seed, |seed, byte| {
            seed.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte)
        })
    }
}
