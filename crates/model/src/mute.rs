//! Mutes: nobody wants to be alerted of some incidents for a while, for instance during work that was announced.

use crate::ids::{UserName, VoName};
use crate::incident_class::IncidentClass;
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Of which incidents. There is at most one mute of each scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MuteScope {
    /// Of links that are called so ([`LinkId::is_called`](crate::LinkId::is_called)).
    Link(String),
    /// Of links on which only this VO moves files.
    Vo(VoName),
    Class(IncidentClass),
}

impl fmt::Display for MuteScope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MuteScope::Link(text) => write!(out, "link {text}"),
            MuteScope::Vo(vo) => write!(out, "VO {vo}"),
            MuteScope::Class(class) => write!(out, "class {class}"),
        }
    }
}

/// No alerts of some incidents until a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mute {
    pub scope: MuteScope,
    pub since: Timestamp,
    /// Its expiry.
    pub until: Timestamp,
    /// Who wanted it.
    pub by: UserName,
    pub why: String,
}

impl Mute {
    /// Whether it counts at a moment.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        now < self.until
    }
}
