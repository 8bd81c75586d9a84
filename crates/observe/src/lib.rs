//! What happened, and why: everything here is derived from the one record that the engines persist.
//!
//! The derivations ([`facts`], [`report`], [`series`], [`signals`], [`explanations`], [`incidents`], [`plot`]) are pure: slices in, values
//! out. [`follow`] reads the record, [`live`] serves the page and its data. Nothing in this crate writes
//! history; [`store`] keeps rows of what any system saw, beside it.
#![forbid(unsafe_code)]

pub mod accounting;
mod copy_sums;
mod ended_copies;
pub mod explanations;
pub mod facts;
pub mod follow;
pub mod host;
pub mod host_rows;
pub mod host_signals;
pub mod html;
pub mod importing;
pub mod incidents;
pub mod ledger_rows;
#[cfg(feature = "live")]
pub mod live;
pub mod marks;
pub mod minute_rows;
pub mod path_story;
pub mod plot;
pub mod pool_rows;
pub mod pool_signals;
pub mod rate;
pub mod rate_curve;
pub mod recorded;
pub mod records;
pub mod report;
pub mod series;
pub mod signals;
pub mod store;
pub mod svg;
pub mod times;
mod window_bins;

pub use ended_copies::RecordView;
pub use facts::{TransferEnding, TransferFacts, gather};
pub use follow::{MemoryRecord, Record, RecordError, report_of};
pub use rate::{ByteCount, MeasuredRate, Window, WindowRule};
pub use report::{BandwidthReport, ReportInput};
pub use series::RateSeries;
