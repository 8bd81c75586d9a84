//! Ids of things that were found in a record: from when they began and whose they are, so that the same thing has the
//! same id whenever it is looked for.

use penstock_model::Timestamp;
use std::fmt;
use std::str::FromStr;

/// A beginning and a subject, the latter as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TimedId {
    /// Seconds since 1970.
    second: u32,
    subject: u32,
}

impl TimedId {
    /// Of what began then. The years from 1970 to 2106 have ids.
    pub(crate) fn new(subject: &str, begin: Timestamp) -> TimedId {
        let second = begin.unix_seconds().clamp(0, i64::from(u32::MAX));
        TimedId {
            second: u32::try_from(second).unwrap_or(u32::MAX),
            subject: hash(subject),
        }
    }

    /// When it began, when the id was given.
    pub(crate) fn begin(self) -> Timestamp {
        Timestamp(i64::from(self.second) * 1000)
    }

    /// Whether it may be of this subject.
    pub(crate) fn is_of(self, subject: &str) -> bool {
        self.subject == hash(subject)
    }
}

/// FNV-1a: the same on every machine and in every version.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

impl fmt::Display for TimedId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:08x}-{:08x}", self.second, self.subject)
    }
}

impl FromStr for TimedId {
    type Err = ();
    fn from_str(text: &str) -> Result<TimedId, ()> {
        let digits = |text: &str| {
            let are_digits = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            are_digits.then(|| u32::from_str_radix(text, 16).ok())?
        };
        let (second, subject) = text.split_once('-').ok_or(())?;
        match (digits(second), digits(subject)) {
            (Some(second), Some(subject)) => Ok(TimedId { second, subject }),
            _ => Err(()),
        }
    }
}

/// Gives a type around a [`TimedId`] its text form, also in JSON.
macro_rules! timed_id_text {
    ($name:ident, $error:ident) => {
        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(out)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $error;
            fn from_str(text: &str) -> Result<$name, $error> {
                text.parse().map($name).map_err(|()| $error)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use timed_id_text;
