//! How much of each file is read, and whether it is cheaper to copy it.

use super::Statement;
use super::names::NameNumbers;
use crate::rate::Window;
use penstock_model::Bytes;
use penstock_model::observation::{Attempt, Operation, Text, View};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// Files that are followed at most.
const FILES_MAX: usize = 100_000;
/// Clients of one file that are told apart at most.
const CLIENTS_MAX: usize = 1_000;
/// Names of clients at most.
const CLIENT_NAMES_MAX: usize = 100_000;
/// Clients of all files together that are told apart at most.
const CLIENTS_OF_ALL_MAX: usize = 2_000_000;
/// Files that are told.
const TOLD_MAX: usize = 50;

/// What is cheaper for the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// A copy for each client moves no more bytes than they have read.
    Copy,
    /// Clients read less than a copy for each would have moved.
    Direct,
}

/// How a file was read.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileReading {
    /// Its path, or what identifies it.
    pub file: String,
    pub size: Bytes,
    /// How often it was opened.
    pub opens: u64,
    pub clients: u64,
    /// Bytes that were read, each time that they were.
    pub read: Bytes,
    /// Bytes read in each opening, in percent of the file.
    pub read_percent: f64,
    /// What is cheaper.
    pub advice: Advice,
}

/// What the lines of files count.
pub(super) fn statement(window: Window) -> Statement {
    Statement {
        population: format!(
            "reads by clients of which file, size and bytes are told; the {TOLD_MAX} files of which most was read"
        ),
        window,
        event: "the end of a read",
        unit: "bytes that were read, each time that they were, in percent of the file for each opening",
        success_rule: "none: reads that broke off count with what they read",
        view: View::Site,
    }
}

#[derive(Debug, Default)]
struct Sum {
    size: u64,
    opens: u64,
    read: u64,
    /// By their numbers.
    clients: BTreeSet<u32>,
    anonymous: u64,
}

/// Gathers reads by file.
#[derive(Debug, Default)]
pub struct FileReadings {
    files: HashMap<Text, Sum>,
    clients: NameNumbers,
    clients_of_all: usize,
}

impl FileReadings {
    /// Takes a read of which file, size and bytes are told.
    pub fn take(&mut self, row: &Attempt) {
        let name = row.source_path.as_ref().or(row.file.as_ref());
        let (Some(name), Some(size), Some(read)) = (name, row.file_bytes, row.bytes_read) else {
            return;
        };
        if row.operation != Operation::Read || size.0 == 0 {
            return;
        }
        if self.files.len() >= FILES_MAX && !self.files.contains_key(name) {
            return;
        }
        let sum = self.files.entry(name.clone()).or_default();
        sum.size = sum.size.max(size.0);
        sum.opens += 1;
        sum.read = sum.read.saturating_add(read.0);
        let Some(client) = &row.client else {
            sum.anonymous += 1;
            return;
        };
        if sum.clients.len() < CLIENTS_MAX && self.clients_of_all < CLIENTS_OF_ALL_MAX {
            let number = self.clients.number_within(client, CLIENT_NAMES_MAX);
            let is_new = number.is_some_and(|number| sum.clients.insert(number));
            self.clients_of_all += usize::from(is_new);
        }
    }

    /// The files of which most was read.
    pub fn readings(self) -> Vec<FileReading> {
        let readings = self.files.into_iter().map(|(file, sum)| {
            let clients = (sum.clients.len() as u64 + sum.anonymous).max(1);
            let copies = u128::from(sum.size) * u128::from(clients);
            let opened = sum.size as f64 * sum.opens as f64;
            FileReading {
                file: file.to_string(),
                size: Bytes(sum.size),
                opens: sum.opens,
                clients,
                read: Bytes(sum.read),
                read_percent: 100.0 * sum.read as f64 / opened,
                advice: match u128::from(sum.read) >= copies {
                    true => Advice::Copy,
                    false => Advice::Direct,
                },
            }
        });
        let mut readings: Vec<FileReading> = readings.collect();
        readings.sort_by(|a, b| (b.read, &a.file).cmp(&(a.read, &b.file)));
        readings.truncate(TOLD_MAX);
        readings
    }
}
