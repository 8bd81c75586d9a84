//! What a copy on a tape of a library is called in the namespace: all that is needed to read it, when nothing else is left.

use penstock_tape::request::{AggregateExtent, LibraryName, TapeCopy, TapeName};
use std::fmt;

/// With which all of them begin.
pub(in super::super) const COPY_SCHEME: &str = "penstock-tape://";

/// `penstock-tape://LIBRARY/TAPE/BEGIN?size=BYTES`, where BEGIN is the place of the file's first byte on the tape. Of a file in an
/// aggregate `&aggregate=BEGIN-BYTES` follows, where that lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct CopyUri {
    pub library: LibraryName,
    pub copy: TapeCopy,
    pub size_bytes: u64,
}

impl CopyUri {
    /// `None`: it is none, such as the name that the program of an HSM has given.
    pub(in super::super) fn parse(uri: &str) -> Option<CopyUri> {
        let (place, more) = uri.strip_prefix(COPY_SCHEME)?.split_once("?size=")?;
        let mut parts = place.split('/');
        let (library, tape, begin) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || library.is_empty() || tape.is_empty() {
            return None;
        }
        let (size, aggregate) = match more.split_once("&aggregate=") {
            None => (more, None),
            Some((size, extent)) => (size, Some(extent_of(extent)?)),
        };
        Some(CopyUri {
            library: LibraryName(library.into()),
            copy: TapeCopy {
                tape: TapeName(tape.into()),
                begin_bytes: begin.parse().ok()?,
                aggregate,
            },
            size_bytes: size.parse().ok()?,
        })
    }
}

fn extent_of(text: &str) -> Option<AggregateExtent> {
    let (begin, size) = text.split_once('-')?;
    Some(AggregateExtent {
        begin_bytes: begin.parse().ok()?,
        size_bytes: size.parse().ok()?,
    })
}

impl fmt::Display for CopyUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (library, tape) = (&self.library.0, &self.copy.tape.0);
        let (begin, size) = (self.copy.begin_bytes, self.size_bytes);
        write!(f, "{COPY_SCHEME}{library}/{tape}/{begin}?size={size}")?;
        match self.copy.aggregate {
            None => Ok(()),
            Some(extent) => {
                let (begin, size) = (extent.begin_bytes, extent.size_bytes);
                write!(f, "&aggregate={begin}-{size}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_one_name_and_other_names_are_none() {
        let mut copy = CopyUri {
            library: LibraryName("silo".into()),
            copy: TapeCopy::alone(TapeName("silo-LTO-8-00001".into()), 12),
            size_bytes: 7,
        };
        let uri = "penstock-tape://silo/silo-LTO-8-00001/12?size=7";
        assert_eq!(copy.to_string(), uri);
        assert_eq!(CopyUri::parse(uri), Some(copy.clone()));
        copy.copy.aggregate = Some(AggregateExtent {
            begin_bytes: 10,
            size_bytes: 99,
        });
        let member = format!("{uri}&aggregate=10-99");
        assert_eq!(copy.to_string(), member);
        assert_eq!(CopyUri::parse(&member), Some(copy));
        for other in [
            "hsm://lab/12?size=7",
            "penstock-tape://silo/12?size=7",
            "penstock-tape://silo//12?size=7",
            "penstock-tape://silo/a/12",
            "penstock-tape://silo/a/-1?size=7",
            "penstock-tape://silo/a/b/12?size=7",
            "penstock-tape://silo/a/99999999999999999999?size=7",
            "penstock-tape://silo/a/12?size=7&aggregate=10",
        ] {
            assert_eq!(CopyUri::parse(other), None, "{other}");
        }
    }
}
