//! The caveats that this site understands, spelt as dCache and XRootD spell them. A caveat that is not one of
//! them is an error, never ignored: it was added to take something away.

use crate::network::Network;
use crate::webdav::parse_iso_date;
use penstock_model::path::InvalidPath;
use penstock_model::{MacaroonActivity, NamespacePath, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use thiserror::Error;

/// Networks that one caveat may name.
const NETWORKS_MAX: usize = 32;

/// One condition, all of which must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caveat {
    /// `path:/a/b`: only there and below. Not percent-encoded.
    Path(NamespacePath),
    /// `activity:LIST,DOWNLOAD`: only these.
    Activities(BTreeSet<MacaroonActivity>),
    /// `before:2030-01-01T00:00:00Z`.
    Before(Timestamp),
    /// `ip:192.0.2.1,2001:db8::/32`: only from one of these.
    Addresses(Vec<Network>),
    /// `name:alice`: the user who asked.
    Name(String),
}

/// Why a caveat cannot be checked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidCaveat {
    /// None of the five kinds, or not UTF-8.
    #[error("'{0}' is none of path:, activity:, before:, ip: and name:")]
    Unknown(String),
    /// The path is no path.
    #[error("the caveat 'path:' is refused: {0}")]
    Path(#[from] InvalidPath),
    /// An unknown activity, or none.
    #[error(
        "'{0}' is not an activity; there are READ_METADATA, UPDATE_METADATA, LIST, DOWNLOAD, UPLOAD, MANAGE, DELETE"
    )]
    Activity(String),
    /// Not a date.
    #[error("'before:{0}' is not a date; write it like 2030-01-01T00:00:00Z")]
    Date(String),
    /// Not an address or network, or too many.
    #[error("'ip:{0}' is not a list of at most {NETWORKS_MAX} addresses or networks")]
    Address(String),
}

impl Caveat {
    /// Reads one.
    pub fn parse(bytes: &[u8]) -> Result<Caveat, InvalidCaveat> {
        let unknown = || InvalidCaveat::Unknown(shown(&String::from_utf8_lossy(bytes)));
        let text = std::str::from_utf8(bytes).map_err(|_| unknown())?;
        let (kind, value) = text.split_once(':').ok_or_else(unknown)?;
        match kind {
            "path" => Ok(Caveat::Path(NamespacePath::parse(value)?)),
            "activity" => {
                let activity = |name: &str| {
                    MacaroonActivity::from_name(name.trim())
                        .ok_or_else(|| InvalidCaveat::Activity(shown(name)))
                };
                let activities = value.split(',').map(activity).collect::<Result<_, _>>()?;
                Ok(Caveat::Activities(activities))
            }
            "before" => match parse_iso_date(value) {
                Some(end) => Ok(Caveat::Before(end)),
                None => Err(InvalidCaveat::Date(shown(value))),
            },
            "ip" => {
                let networks: Option<Vec<Network>> = value.split(',').map(Network::parse).collect();
                let networks = networks.filter(|networks| networks.len() <= NETWORKS_MAX);
                let refused = || InvalidCaveat::Address(shown(value));
                networks.map(Caveat::Addresses).ok_or_else(refused)
            }
            "name" => Ok(Caveat::Name(value.to_owned())),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Caveat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caveat::Path(path) => write!(out, "path:{path}"),
            Caveat::Activities(activities) => {
                let names: Vec<&str> = activities.iter().map(|activity| activity.name()).collect();
                write!(out, "activity:{}", names.join(","))
            }
            Caveat::Before(end) => write!(out, "before:{}Z", end.to_fts()),
            Caveat::Addresses(networks) => {
                let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
                write!(out, "ip:{}", networks.join(","))
            }
            Caveat::Name(name) => write!(out, "name:{name}"),
        }
    }
}

/// Foreign text in a message: short, and on one line.
fn shown(text: &str) -> String {
    let visible = text.chars().filter(|c| !c.is_control());
    visible.take(60).collect()
}
