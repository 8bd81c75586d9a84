//! WebDAV (RFC 4918) as grid clients use it: reading `PROPFIND`, writing and reading `207 Multi-Status`,
//! dates.
//!
//! Answers are appended entry by entry, so that a directory of any size can be streamed. XML that comes in is
//! bounded in size and depth, and may not define entities.

mod ask;
mod date;
mod listing;
mod multistatus;
mod xml;

pub use ask::{Depth, InvalidDepth, PROPFIND_BYTES_MAX, PropertyName, Propfind, STAT_BODY};
pub use date::{format_http_date, parse_http_date, parse_iso_date};
pub use listing::{Listed, parse_multistatus};
pub use multistatus::{
    Properties, Quota, begin_multistatus, end_multistatus, write_entry, write_status,
};
pub use xml::InvalidXml;

/// The namespace of WebDAV itself.
pub const DAV: &str = "DAV:";
/// The namespace in which DPM began to tell file modes; davix asks for them there.
pub const LCGDM: &str = "LCGDM:";
/// The namespace in which dCache tells checksums.
pub const DCACHE: &str = "http://www.dcache.org/2013/webdav";
