//! The crate at its boundary: reports as readable text, the live routes over a record in memory, and the
//! built page.

mod assets;
mod journal;
mod live;
mod minutes;
mod reports;
mod signals;
mod stories;
