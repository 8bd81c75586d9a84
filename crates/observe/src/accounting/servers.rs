//! What went into each server and out of it, and how much of it was relayed inside the site.

use super::names::NameNumbers;
use super::{NAMES_MAX, OTHERS, Statement, bytes};
use crate::rate::Window;
use penstock_model::Bytes;
use penstock_model::observation::{Attempt, Operation, Sample, SubjectKind, View};
use serde::Serialize;
use std::collections::BTreeMap;

/// What passed a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerLine {
    /// Whose books its attempts are in.
    pub view: View,
    /// Its name.
    pub server: String,
    /// Bytes that attempts wrote to it.
    pub written: Bytes,
    /// Bytes that attempts read from it.
    pub read: Bytes,
    /// Bytes that came in at its interfaces, where samples tell it.
    pub interfaces_in: Option<Bytes>,
    /// Bytes that went out.
    pub interfaces_out: Option<Bytes>,
    /// Bytes that are told to have stayed inside the site for each other byte: what is relayed. `None`: not told.
    pub relay_ratio: Option<f64>,
    /// What its interfaces carried in percent of what they could have, while that was told.
    pub utilisation_percent: Option<f64>,
}

#[derive(Debug, Default)]
struct AttemptSum {
    written: u128,
    read: u128,
    local: u128,
    others: u128,
    is_place_told: bool,
}

#[derive(Debug, Default)]
struct InterfaceSum {
    bytes_in: Option<u128>,
    bytes_out: Option<u128>,
    carried: u128,
    capacity: f64,
}

/// Takes rows that name a server.
#[derive(Debug, Default)]
pub(super) struct ServerSums {
    names: NameNumbers,
    /// By the number of the server.
    attempts: BTreeMap<(u32, View), AttemptSum>,
    interfaces: BTreeMap<String, InterfaceSum>,
}

impl ServerSums {
    pub(super) fn take(&mut self, row: &Attempt) {
        let pool = row.pool.as_ref().map(|pool| pool.as_str());
        let server = row.server.as_deref().or(pool);
        let (Some(server), Some(moved)) = (server, row.bytes_moved) else {
            return;
        };
        let moved = u128::from(moved.0);
        let (is_full, attempts) = (self.attempts.len() >= NAMES_MAX, &self.attempts);
        let has_line = |number| attempts.contains_key(&(number, row.view));
        let number = self.names.number_in(server, is_full, has_line);
        let sum = self.attempts.entry((number, row.view)).or_default();
        // Of a copy that a storage element tells, its path is that of its own end.
        let is_pushed = row.source_path.is_some() && row.destination_path.is_none();
        match row.operation {
            Operation::Read | Operation::Migration => sum.read += moved,
            Operation::Copy if is_pushed => sum.read += moved,
            Operation::Write | Operation::Recall | Operation::Copy | Operation::PoolCopy => {
                sum.written += moved;
            }
            Operation::Removal | Operation::Request => {}
        }
        let is_pool_copy = row.operation == Operation::PoolCopy;
        let is_local = row.is_local.or(is_pool_copy.then_some(true));
        sum.is_place_told |= is_local.is_some();
        match is_local {
            Some(true) => sum.local += moved,
            Some(false) | None => sum.others += moved,
        }
    }

    /// Takes a sample of an interface, with its capacity where it is told.
    pub(super) fn take_sample(&mut self, row: &Sample) {
        if row.subject_kind != SubjectKind::Interface {
            return;
        }
        let (Some(server), Some(interval)) = (&row.server, row.interval_ms) else {
            return;
        };
        let is_known = self.interfaces.contains_key(&**server);
        let name = match self.interfaces.len() >= NAMES_MAX && !is_known {
            true => OTHERS.to_owned(),
            false => server.to_string(),
        };
        let sum = self.interfaces.entry(name).or_default();
        let add = |total: &mut Option<u128>, bytes: Option<Bytes>| {
            if let Some(bytes) = bytes {
                *total = Some(total.unwrap_or(0) + u128::from(bytes.0));
            }
        };
        add(&mut sum.bytes_in, row.bytes_in);
        add(&mut sum.bytes_out, row.bytes_out);
        if let Some(capacity) = row.capacity_bytes_per_second {
            let busiest = row.bytes_in.max(row.bytes_out).unwrap_or_default();
            sum.carried += u128::from(busiest.0);
            sum.capacity += capacity as f64 * interval as f64 / 1000.0;
        }
    }

    /// A line for each server and view. Interfaces stand beside what the site's books say, or the only books.
    pub(super) fn lines(mut self) -> Vec<ServerLine> {
        let mut lines = Vec::new();
        let names = &self.names;
        let attempts = self.attempts.into_iter();
        let attempts =
            attempts.map(|((server, view), sum)| ((names.name(server).to_owned(), view), sum));
        let attempts: BTreeMap<(String, View), AttemptSum> = attempts.collect();
        let mut attempts = attempts.into_iter().peekable();
        while let Some(((server, view), sum)) = attempts.next() {
            // Views of one server are neighbours, the VO's before the site's.
            let next = attempts.peek();
            let is_last = next.is_none_or(|((next, _), _)| *next != server);
            let interfaces = match is_last || view == View::Site {
                true => self.interfaces.remove(&server),
                false => None,
            };
            lines.push(line_of(server, view, sum, interfaces.unwrap_or_default()));
        }
        for (server, interfaces) in self.interfaces {
            let none = AttemptSum::default();
            lines.push(line_of(server, View::Network, none, interfaces));
        }
        lines.sort_by(|a, b| (&a.server, a.view).cmp(&(&b.server, b.view)));
        lines
    }
}

fn line_of(
    server: String,
    view: View,
    attempts: AttemptSum,
    interfaces: InterfaceSum,
) -> ServerLine {
    let has_ratio = attempts.is_place_told && attempts.others > 0;
    ServerLine {
        view,
        server,
        written: bytes(attempts.written),
        read: bytes(attempts.read),
        interfaces_in: interfaces.bytes_in.map(bytes),
        interfaces_out: interfaces.bytes_out.map(bytes),
        relay_ratio: has_ratio.then(|| attempts.local as f64 / attempts.others as f64),
        utilisation_percent: (interfaces.capacity > 0.0)
            .then(|| 100.0 * interfaces.carried as f64 / interfaces.capacity),
    }
}

/// What the lines count.
pub(super) fn statement(lines: &[ServerLine], window: Window) -> Statement {
    let is_of_site = |line: &ServerLine| line.view == View::Site;
    let first = lines.first().map_or(View::Site, |line| line.view);
    Statement {
        population:
            "all attempts that name a server or pool, also failed ones, each view on its own; \
                     interfaces: samples of the servers' interfaces, in the network's view"
                .to_owned(),
        window,
        event: "the end of an attempt; of a sample, the end of its interval",
        unit: "bytes",
        success_rule: "none: bytes that moved count, whatever became of the attempt",
        view: match lines.iter().any(is_of_site) {
            true => View::Site,
            false => first,
        },
    }
}
