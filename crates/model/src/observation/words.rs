//! The words of rows. Each is written the same in files, in JSON and in what is shown.

use super::{Cell, CellRef, CellType, Field, Text};
use crate::failure::Phase;
use crate::problem::Side;
use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[doc = $about:literal])+ $type:ident { $($(#[$meaning:meta])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub enum $type {
            $($(#[$meaning])+ #[serde(rename = $word)] $variant,)+
        }

        impl $type {
            /// All of them.
            pub const ALL: &'static [$type] = &[$($type::$variant),+];

            /// Its word.
            pub fn word(self) -> &'static str {
                match self {
                    $($type::$variant => $word,)+
                }
            }

            /// By its word.
            pub fn from_word(word: &str) -> Option<$type> {
                match word {
                    $($word => Some($type::$variant),)+
                    _ => None,
                }
            }
        }

        fields!($type);
    };
}

macro_rules! fields {
    ($type:ident) => {
        impl Field for $type {
            const CELLS: CellType = CellType::Text;

            fn cell(&self) -> Option<CellRef<'_>> {
                Some(CellRef::Text(self.word()))
            }

            fn from_cell(cell: Cell) -> Option<Self> {
                $type::from_word(&Text::from_cell(cell)?)
            }
        }
    };
}

words! {
    /// Which rows.
    Family {
        /// Attempts to move one file.
        #[default]
        Attempt = "attempt",
        /// What something did in an interval.
        Sample = "sample",
        /// Something is otherwise than before.
        Change = "change",
        /// Something went wrong.
        Incident = "incident",
        /// An entry of a namespace was made, changed or removed.
        NamespaceChange = "namespace_change",
    }
}

words! {
    /// Whose books a row comes from. The same transfer looks different from another side.
    View {
        /// Who moves files on behalf of a VO: a transfer service, a data management system.
        #[default]
        Vo = "vo",
        /// A storage element or tape system: whatever passed it.
        Site = "site",
        /// Interfaces, routers and sockets between them.
        Network = "network",
    }
}

words! {
    /// What was attempted.
    Operation {
        /// A file was copied from one storage element to another.
        #[default]
        Copy = "copy",
        /// A client read from a server.
        Read = "read",
        /// A client wrote to a server.
        Write = "write",
        /// A file was copied between pools of one storage element.
        PoolCopy = "pool_copy",
        /// A file came from tape.
        Recall = "recall",
        /// A file went to tape.
        Migration = "migration",
        /// A file was removed.
        Removal = "removal",
        /// A door answered a client; the bytes, if there were any, are in the row of the mover.
        Request = "request",
    }
}

words! {
    /// How an attempt ended.
    Outcome {
        /// It did what was asked.
        #[default]
        Success = "success",
        /// It did not.
        Failure = "failure",
        /// It was stopped by who had asked for it.
        Abort = "abort",
    }
}

words! {
    /// What a sample is of.
    SubjectKind {
        /// From one storage element to another.
        #[default]
        Link = "link",
        /// A machine.
        Server = "server",
        /// A network interface.
        Interface = "interface",
        /// A file system of a storage element.
        Pool = "pool",
        /// A tape drive.
        Drive = "drive",
        /// A block device.
        Device = "device",
        /// A connection.
        Connection = "connection",
        /// A service with several machines.
        Service = "service",
        /// A database of a server: `journal` of a transfer service, `namespace` of a storage element.
        Database = "database",
        /// The tape part of a storage element.
        Tape = "tape",
    }
}

words! {
    /// What is otherwise.
    ChangeKind {
        /// Somebody set something.
        #[default]
        Configuration = "configuration",
        /// It was found to be so.
        Fact = "fact",
        /// People worked on it.
        Intervention = "intervention",
    }
}

words! {
    /// Where something went wrong.
    IncidentKind {
        /// A tape, a drive or a library.
        Tape = "tape",
        /// A tape system's own disks and daemons.
        Hsm = "hsm",
        /// Disks of a storage element.
        Disk = "disk",
        /// The network.
        Network = "network",
        /// The source was not heard, or what it said was lost: what is not in the rows may have happened.
        Gap = "gap",
        /// Something else.
        #[default]
        Other = "other",
    }
}

words! {
    /// What became of an entry of a namespace.
    EntryChange {
        /// A file became visible.
        #[default]
        Creation = "creation",
        /// A file became visible in the place of another entry, which has rows of its own.
        Replacement = "replacement",
        /// A directory was made.
        DirectoryCreation = "directory_creation",
        /// A file was removed; its data is in the trash.
        Removal = "removal",
        /// A directory was removed.
        DirectoryRemoval = "directory_removal",
        /// An entry got another path, a directory with all that is below it.
        Rename = "rename",
        /// A file of the trash became visible again.
        Restoration = "restoration",
        /// The data of a file in the trash was removed from its disk.
        Purge = "purge",
        /// Clients changed the properties that are kept with an entry.
        PropertyUpdate = "property_update",
        /// A file or trash of which the namespace knew nothing was entered again.
        Recovery = "recovery",
        /// A file has a copy on tape.
        Archiving = "archiving",
        /// A file on tape has a copy on disk again.
        Recall = "recall",
        /// The copy on disk of a file on tape is no longer kept.
        Eviction = "eviction",
    }
}

words! {
    /// Why an entry changed, where no request alone tells it.
    EntryChangeReason {
        /// Another entry took its place.
        #[default]
        Replaced = "replaced",
        /// It went with the directory that held it.
        DirectoryRemoved = "directory_removed",
        /// Its time in the trash was over.
        TrashExpired = "trash_expired",
        /// A pool needed its space.
        SpaceNeeded = "space_needed",
        /// An administrator emptied the trash.
        TrashEmptied = "trash_emptied",
        /// The directory was missing above a new entry.
        ParentMissing = "parent_missing",
        /// A check of the storage element put things right.
        Repair = "repair",
    }
}

impl Side {
    /// Its word in rows.
    pub fn word(self) -> &'static str {
        match self {
            Side::Source => "source",
            Side::Destination => "destination",
            Side::Network => "network",
            Side::Service => "service",
        }
    }

    /// By its word.
    pub fn from_word(word: &str) -> Option<Side> {
        let all = [
            Side::Source,
            Side::Destination,
            Side::Network,
            Side::Service,
        ];
        all.into_iter().find(|side| side.word() == word)
    }
}

impl Phase {
    /// Its word in rows.
    pub fn word(self) -> &'static str {
        match self {
            Phase::Preparation => "preparation",
            Phase::Transfer => "transfer",
            Phase::Finalization => "finalization",
            Phase::Service => "service",
            Phase::Staging => "staging",
            Phase::Archiving => "archiving",
        }
    }

    /// By its word.
    pub fn from_word(word: &str) -> Option<Phase> {
        let all = [
            Phase::Preparation,
            Phase::Transfer,
            Phase::Finalization,
            Phase::Service,
            Phase::Staging,
            Phase::Archiving,
        ];
        all.into_iter().find(|phase| phase.word() == word)
    }
}

fields!(Side);
fields!(Phase);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_columns_are_those_in_json() {
        for operation in Operation::ALL {
            let json = serde_json::to_value(operation).expect("plain data serialises");
            assert_eq!(json, operation.word());
            assert_eq!(Operation::from_word(operation.word()), Some(*operation));
        }
        for side in [
            Side::Source,
            Side::Destination,
            Side::Network,
            Side::Service,
        ] {
            assert_eq!(serde_json::to_value(side).expect("plain"), side.word());
        }
        for phase in [
            "preparation",
            "transfer",
            "finalization",
            "service",
            "staging",
            "archiving",
        ] {
            let found = Phase::from_word(phase).expect("a phase");
            assert_eq!(serde_json::to_value(found).expect("plain"), phase);
        }
    }
}
