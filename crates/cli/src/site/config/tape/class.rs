//! `[[storage.tape.class]]`: which files go to tape, and how.

use penstock_model::quantity::{Size, Span};
use penstock_model::{Bytes, NamespacePath};
use penstock_storage_element::ArchiveClass;
use serde::{Deserialize, Serialize};

/// Files that go to tape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapeClass {
    /// New files below this directory. Of several classes the one with the longest path counts.
    pub path: NamespacePath,
    /// Their family: files of one family are put together.
    pub family: String,
    /// Only files of at least this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_min: Option<Size>,
    /// Only files of at most this size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_max: Option<Size>,
    /// The VO whose files they are, for shares and bounds. Unset: one of their own, with the name of the family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vo: Option<String>,
    /// Copies on tape, each in another library.
    #[serde(default = "TapeClass::default_copies")]
    pub copies: u32,
    /// Files below this size are written together, as one object. Unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<Size>,
    /// Drives that write the family at the same time, each to another tape. Unset: 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Drives that the VO has at the same time, to write and to read. Unset: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drives_max: Option<u32>,
    /// How long a file waits to be written at most, whatever a mount is worth. Unset: `collect_time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_max: Option<Span>,
}

impl TapeClass {
    pub(super) fn default_copies() -> u32 {
        1
    }

    /// The smallest and the largest size.
    pub(super) fn sizes(&self) -> (Bytes, Bytes) {
        let min = self.size_min.map_or(0, |size| size.0);
        let max = self.size_max.map_or(u64::MAX, |size| size.0);
        (Bytes(min), Bytes(max))
    }

    /// What the storage element is told of it.
    pub(super) fn archive_class(&self) -> ArchiveClass {
        let (size_min, size_max) = self.sizes();
        ArchiveClass {
            path: self.path.clone(),
            size_min,
            size_max,
            family: self.family.clone(),
            vo: self.vo.clone(),
            copies: self.copies,
            packed_below: Bytes(self.aggregate.map_or(0, |size| size.0)),
            wait_max: self.wait_max.map(|wait| wait.0),
        }
    }
}
