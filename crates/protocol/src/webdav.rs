//! WebDAV (RFC 4918) as grid and desktop clients use it: reading `PROPFIND`, `PROPPATCH`, `LOCK` and `If`, writing and
//! reading `207 Multi-Status`, dates.
//!
//! Answers are appended entry by entry, so that a directory of any size can be streamed. XML that comes in is
//! bounded in size and depth, and may not define entities.

mod ask;
mod condition;
mod date;
mod listing;
mod lock;
mod multistatus;
mod update;
pub(crate) mod xml;

pub use ask::{
    Depth, InvalidDepth, PROPFIND_BYTES_MAX, PropertyName, Propfind, STAT_BODY,
    STAT_WITH_LOCALITY_BODY,
};
pub use condition::{Condition, ConditionList, IfHeader, InvalidIf, Test};
pub use date::{format_http_date, parse_http_date, parse_iso_date};
pub use listing::{ETAG_BYTES_MAX, PropfindEntry, parse_multistatus};
pub use lock::{LOCK_BYTES_MAX, LockInfo, lock_timeout, lock_token, write_lock_answer};
pub use multistatus::{
    KeptProperty, Properties, Quota, begin_multistatus, end_multistatus, write_entry, write_status,
};
pub use update::{
    PROPPATCH_BYTES_MAX, Update, UpdateOutcome, is_protected, parse_property_update,
    write_condition, write_property_answer,
};
pub use xml::InvalidXml;

/// The namespace of WebDAV itself.
pub const DAV: &str = "DAV:";
/// The content type of a directory, as Apache gives it.
pub const DIRECTORY_TYPE: &str = "httpd/unix-directory";
/// The namespace in which DPM began to tell file modes; davix asks for them there.
pub const LCGDM: &str = "LCGDM:";
/// The namespace in which dCache tells checksums.
pub const DCACHE: &str = "http://www.dcache.org/2013/webdav";
/// The namespace of the property that says where the bytes of a file are, as dCache tells it.
pub const SRM: &str = "http://srm.lbl.gov/StorageResourceManager";
