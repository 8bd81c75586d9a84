//! Who has to act on an incident.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The class of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncidentClass {
    /// A storage element, its servers, pools and disks.
    Storage,
    /// The network between storage elements, or of a site.
    Network,
    /// The transfer service, its limits and its database.
    Service,
    /// A tape system and its buffer.
    Tape,
    /// Those who ask for transfers, and what they ask for.
    Client,
    /// A rate that fell, and no rule explains most of it.
    Unexplained,
}

impl IncidentClass {
    /// All of them, in the order in which they are told.
    pub const ALL: [IncidentClass; 6] = [
        IncidentClass::Storage,
        IncidentClass::Network,
        IncidentClass::Service,
        IncidentClass::Tape,
        IncidentClass::Client,
        IncidentClass::Unexplained,
    ];

    /// Its word in texts, options and JSON.
    pub const fn word(self) -> &'static str {
        match self {
            IncidentClass::Storage => "storage",
            IncidentClass::Network => "network",
            IncidentClass::Service => "service",
            IncidentClass::Tape => "tape",
            IncidentClass::Client => "client",
            IncidentClass::Unexplained => "unexplained",
        }
    }

    pub fn from_word(word: &str) -> Option<IncidentClass> {
        let mut all = IncidentClass::ALL.into_iter();
        all.find(|class| class.word() == word)
    }
}

impl fmt::Display for IncidentClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.word())
    }
}
