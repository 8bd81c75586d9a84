//! The caveats that this site understands, spelt as dCache and XRootD spell them. A caveat that is not one of
//! them is an error, never ignored: it was added to take something away.

use crate::webdav::parse_iso_date;
use penstock_model::path::InvalidPath;
use penstock_model::{MacaroonActivity, NamespacePath, Timestamp};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
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
        "'{0}' is no activity; there are READ_METADATA, UPDATE_METADATA, LIST, DOWNLOAD, UPLOAD, MANAGE, DELETE"
    )]
    Activity(String),
    /// Not a date.
    #[error("'before:{0}' is no date; write it like 2030-01-01T00:00:00Z")]
    Date(String),
    /// Not an address or network, or too many.
    #[error("'ip:{0}' is no list of at most {NETWORKS_MAX} addresses or networks")]
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

/// An address, or all that share its first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Network> {
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits {
            None => bits_max,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok()?
            }
            Some(_) => return None,
        };
        (prefix_bits <= bits_max).then_some(Network {
            address,
            prefix_bits,
        })
    }

    /// Whether an address lies in it. An IPv4 address that a socket shows as IPv6 is the IPv4 address.
    pub fn contains(&self, peer: IpAddr) -> bool {
        let same_prefix = |one: u128, other: u128, width: u32| {
            let shift = width - self.prefix_bits.min(width);
            one.checked_shr(shift).unwrap_or(0) == other.checked_shr(shift).unwrap_or(0)
        };
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(peer)) => {
                same_prefix(u32::from(own).into(), u32::from(peer).into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(peer)) => same_prefix(own.into(), peer.into(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.prefix_bits)
    }
}

/// Foreign text in a message: short, and on one line.
fn shown(text: &str) -> String {
    let visible = text.chars().filter(|c| !c.is_control());
    visible.take(60).collect()
}
