//! The library with the request engine as the one who decides: real bytes go to tape and come back.

mod aggregates;
mod crash;
mod directories;
mod faults;
mod repacking;
mod round_trip;
mod site;
mod two_libraries;
