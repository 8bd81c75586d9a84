//! Those who wait, by client: who waits longest, and which client has the most of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// A line of connections, each with its client and its turn. Every step costs a logarithm of the line.
#[derive(Default)]
pub(super) struct ConnectionQueue {
    clients: HashMap<IpAddr, BTreeMap<u64, u64>>,
    by_length: BTreeSet<(usize, IpAddr)>,
    length: usize,
}

impl ConnectionQueue {
    /// A connection joins at the end of its client's line. Turns are never given twice.
    pub(super) fn join(&mut self, client: IpAddr, turn: u64, id: u64) {
        let line = self.clients.entry(client).or_default();
        self.by_length.remove(&(line.len(), client));
        line.insert(turn, id);
        self.by_length.insert((line.len(), client));
        self.length += 1;
    }

    /// It leaves.
    pub(super) fn leave(&mut self, client: IpAddr, turn: u64) {
        let Some(line) = self.clients.get_mut(&client) else {
            return;
        };
        let before = line.len();
        if line.remove(&turn).is_none() {
            return;
        }
        self.length -= 1;
        self.by_length.remove(&(before, client));
        match line.len() {
            0 => drop(self.clients.remove(&client)),
            left => drop(self.by_length.insert((left, client))),
        }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// The one of a client that has waited longest.
    pub(super) fn first_of(&self, client: IpAddr) -> Option<u64> {
        let line = self.clients.get(&client)?;
        line.values().next().copied()
    }

    /// The one that has waited longest, of the client that has the most.
    pub(super) fn first_of_most(&self) -> Option<u64> {
        let (_, client) = self.by_length.last()?;
        self.first_of(*client)
    }
}
