//! Which servers are followed, and which give way when too many send: a sender is not known, and anybody may send.
//!
//! A server is a newcomer until it has proven itself: it has told its name (`=`), and rows have come of it. A newcomer pushes
//! out no server but the newcomer heard of least recently, and newcomers' texts are forgotten first. This knows nothing of what
//! datagrams mean; that is the server's matter.

use super::{InvalidDatagram, Server, gap};
use penstock_model::Timestamp;
use penstock_model::observation::Observation;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

/// Servers that are followed at most.
pub(super) const SERVERS_MAX: usize = 4_096;
/// Memory that the users and files of all servers take at most, in bytes.
pub(super) const HELD_BYTES_MAX: usize = 256 << 20;
/// A server that was silent for longer is a newcomer again: it has ended, or sends from another port. XRootD tells its name
/// every hour unless it is configured otherwise (`xrootd.monitor … ident`).
const PROVEN_SILENCE_MAX: Duration = Duration::from_secs(86_400);

/// The servers that send.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) sources: HashMap<SocketAddr, Source>,
    /// Senders by the number of their last datagram: whoever was heard of least recently is the first.
    newcomers: BTreeMap<u64, SocketAddr>,
    proven: BTreeMap<u64, SocketAddr>,
    /// Number of datagrams that were heard.
    datagrams: u64,
    /// Of all servers.
    pub(super) held_bytes: usize,
}

/// A sender, with the present life of its server.
#[derive(Debug)]
pub(super) struct Source {
    /// When its server was started, in seconds since 1970, if it has told that.
    started: Option<i32>,
    pub(super) server: Server,
    /// The number of its last datagram, by which it stands in its order, and when that came.
    last: u64,
    heard: Timestamp,
    is_proven: bool,
}

impl Sources {
    /// Files that are open, as far as is known.
    pub(super) fn open_files(&self) -> usize {
        let servers = self.sources.values().map(|source| &source.server);
        servers.map(|server| server.files.len()).sum()
    }

    /// Lets the server of a sender take a datagram with `take`, whose rows prove it.
    pub(super) fn hear(
        &mut self,
        sender: SocketAddr,
        started: Option<i32>,
        at: Timestamp,
        rows: &mut Vec<Observation>,
        take: impl FnOnce(&mut Server, &mut Vec<Observation>) -> Result<(), InvalidDatagram>,
    ) -> Result<(), InvalidDatagram> {
        if !self.sources.contains_key(&sender) {
            self.make_room(at, rows)?;
        }
        self.datagrams += 1;
        let last = self.datagrams;
        let source = self.sources.entry(sender).or_insert_with(|| Source {
            started,
            server: Server::default(),
            last,
            heard: at,
            is_proven: false,
        });
        let before = source.server.held_bytes();
        if let (Some(known), Some(told)) = (source.started, started)
            && known != told
        {
            source.start_anew(&sender, at, rows);
        }
        source.started = started.or(source.started);
        let rows_before = rows.len();
        let taken = take(&mut source.server, rows);
        self.held_bytes = self.held_bytes + source.server.held_bytes() - before;
        let order = match source.is_proven {
            true => &mut self.proven,
            false => &mut self.newcomers,
        };
        order.remove(&source.last);
        let told = rows[rows_before..].iter();
        let mut told = told.filter(|row| !matches!(row, Observation::Incident(_)));
        source.is_proven |= source.server.name.is_some() && told.next().is_some();
        (source.last, source.heard) = (last, at);
        match source.is_proven {
            true => self.proven.insert(last, sender),
            false => self.newcomers.insert(last, sender),
        };
        self.bound_memory(at, rows);
        taken
    }

    /// Removes a server when there is no room for a newcomer, which is refused when no server may be removed for it.
    fn make_room(
        &mut self,
        at: Timestamp,
        rows: &mut Vec<Observation>,
    ) -> Result<(), InvalidDatagram> {
        if self.sources.len() < SERVERS_MAX {
            return Ok(());
        }
        let newcomer = self.newcomers.first_key_value();
        let is_silent = |sender: &SocketAddr| {
            let source = self.sources.get(sender);
            source.is_none_or(|source| at.since(source.heard) > PROVEN_SILENCE_MAX)
        };
        let silent = || self.proven.first_key_value();
        let silent = || silent().filter(|(_, sender)| is_silent(sender));
        let (_, sender) = newcomer.or_else(silent).ok_or(InvalidDatagram(
            "it is of a new server, and no more servers are followed",
        ))?;
        let sender = *sender;
        if let Some(source) = self.sources.remove(&sender) {
            self.newcomers.remove(&source.last);
            self.proven.remove(&source.last);
            self.held_bytes -= source.server.held_bytes();
            let name = source.server.name(&sender);
            rows.push(gap(at, name, "too many servers send", 1));
        }
        Ok(())
    }

    /// Forgets what servers have said of their users and files, of newcomers first, and of whom most is held.
    fn bound_memory(&mut self, at: Timestamp, rows: &mut Vec<Observation>) {
        while self.held_bytes > HELD_BYTES_MAX {
            let holders = self.sources.iter_mut();
            let holders = holders.filter(|(_, source)| source.server.held_bytes() > 0);
            let largest =
                holders.max_by_key(|(_, source)| (!source.is_proven, source.server.held_bytes()));
            let Some((sender, Source { server, .. })) = largest else {
                return;
            };
            self.held_bytes -= server.held_bytes();
            let what = "too many users and open files: they were dropped";
            let count = server.users.clear() + server.files.clear();
            rows.push(gap(at, server.name(sender), what, count));
        }
    }
}

impl Source {
    /// A server that was started anew keeps nothing of what it said before.
    fn start_anew(&mut self, sender: &SocketAddr, at: Timestamp, rows: &mut Vec<Observation>) {
        let before = std::mem::take(&mut self.server);
        let lost = before.files.len() as u64;
        if lost > 0 {
            let what = "the server was restarted while files were open";
            rows.push(gap(at, before.name(sender), what, lost));
        }
    }
}
