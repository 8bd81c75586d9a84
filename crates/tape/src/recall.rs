//! Files that are to be read from one tape, and the extents that they make up together.

use crate::drive::DriveModel;
use crate::geometry::{Geometry, Position};
use serde::{Deserialize, Serialize};

/// A file on a tape. Its address is all of begin and size: two files of one aggregate may begin at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallFile {
    /// For people.
    pub name: String,
    /// Its first byte, from the beginning of the tape.
    pub begin_bytes: u64,
    /// Its length.
    pub size_bytes: u64,
    /// How many ask for it.
    #[serde(default = "one")]
    pub requests: u64,
}

fn one() -> u64 {
    1
}

impl RecallFile {
    /// The byte behind its last one.
    pub fn end_bytes(&self) -> u64 {
        self.begin_bytes.saturating_add(self.size_bytes)
    }
}

/// A stretch of tape that is read in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// Its first byte.
    pub begin_bytes: u64,
    /// The byte behind its last one.
    pub end_bytes: u64,
    /// Its files, by their place in the list, in the order in which they end.
    pub files: Vec<usize>,
    /// Requests of all its files.
    pub requests: u64,
    /// Where it begins.
    pub entry: Position,
    /// Where it ends.
    pub exit: Position,
    /// How long it takes to read.
    pub read_ns: i64,
}

/// The extents of files, from the beginning of the tape on. Where reading on over a gap is faster than locating behind
/// it, the gap is read. No file is left out, however files overlap.
pub fn extents(drive: &DriveModel, geometry: &Geometry, files: &[RecallFile]) -> Vec<Extent> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    order.sort_by_key(|index| (files[*index].begin_bytes, files[*index].end_bytes(), *index));
    let mut stretches: Vec<(u64, u64, Vec<usize>)> = Vec::new();
    for index in order {
        let (begin, end) = (files[index].begin_bytes, files[index].end_bytes());
        match stretches.last_mut() {
            Some((_, last_end, members)) if reads_on(drive, geometry, *last_end, begin) => {
                *last_end = end.max(*last_end);
                members.push(index);
            }
            _ => stretches.push((begin, end, vec![index])),
        }
    }
    let extent = |(begin_bytes, end_bytes, mut members): (u64, u64, Vec<usize>)| {
        members.sort_by_key(|index| (files[*index].end_bytes(), *index));
        Extent {
            begin_bytes,
            end_bytes,
            requests: members.iter().map(|index| files[*index].requests).sum(),
            files: members,
            entry: geometry.position(begin_bytes),
            exit: geometry.position(end_bytes),
            read_ns: drive.read_ns(geometry, begin_bytes, end_bytes),
        }
    };
    stretches.into_iter().map(extent).collect()
}

/// Whether the drive reads on from the end of one file to the begin of the next.
pub(crate) fn reads_on(drive: &DriveModel, geometry: &Geometry, end: u64, begin: u64) -> bool {
    if begin <= end {
        return true;
    }
    let locate = drive
        .locate
        .cost_ns(geometry.position(end), geometry.position(begin));
    drive.read_ns(geometry, end, begin) <= locate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(begin_bytes: u64, size_bytes: u64) -> RecallFile {
        RecallFile {
            name: String::new(),
            begin_bytes,
            size_bytes,
            requests: 1,
        }
    }

    #[test]
    fn neighbours_are_read_in_one_go_and_no_file_is_lost() {
        const GB: u64 = 1_000_000_000;
        let drive = DriveModel::LTO_8;
        // Two at one place, one within another, a neighbour, one behind a gap that is faster read, and one far away.
        let files = [
            file(100 * GB, GB),
            file(10 * GB, 2 * GB),
            file(10 * GB, GB),
            file(12 * GB, GB),
            file(14 * GB, GB),
            file(10 * GB + GB / 2, GB),
        ];
        let found = extents(&drive, &drive.geometry(), &files);
        let shape: Vec<_> = found
            .iter()
            .map(|extent| {
                (
                    extent.begin_bytes / GB,
                    extent.end_bytes / GB,
                    extent.files.clone(),
                )
            })
            .collect();
        assert_eq!(shape, [(10, 15, vec![2, 5, 1, 3, 4]), (100, 101, vec![0])]);
        assert_eq!(found[0].requests, 5);
    }
}
