//! The client connections of a process, over all its ports: how many there may be, how many of one client,
//! and who has to go when more come.
//!
//! A connection without a whole request in hand *waits*: for its handshake, its first byte, the rest of a
//! head, or its next request. When it is full, the client with the most waiting connections loses the one that
//! waited longest; only when nobody waits is a newcomer turned away. So somebody who opens thousands of
//! connections and says nothing keeps out nobody but himself, also when he does not go when asked: few may
//! [linger](ConnectionSlot::may_linger).
//!
//! Knows neither HTTP nor TLS, and does no I/O: those who accept connections ask it.

mod line;

use crate::told::Told;
use line::ConnectionQueue;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Connections that were asked to go and are still there; beyond, newcomers are turned away.
const LEAVING_MAX: usize = 256;
/// Of those: the ones that may take time for an orderly end. Whoever is asked to go and stays holds up few of the others.
const LINGERING_MAX: usize = LEAVING_MAX / 4;
/// What is told about one client is told once in this time.
const TELL_INTERVAL: Duration = Duration::from_secs(60);
/// Waiting connections that go when the system has no descriptor left.
const EXHAUSTED_SHED: usize = 64;

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Of all clients together.
    pub connections_max: usize,
    /// Of one client: an IPv4 address, or an IPv6 network of 64 bits.
    pub per_client_max: usize,
    /// TLS handshakes in progress.
    pub handshakes_max: usize,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            connections_max: 4096,
            per_client_max: 2000,
            handshakes_max: 1000,
        }
    }
}

/// All connections. Cheap to clone; all clones count together.
#[derive(Clone, Default)]
pub struct Connections(Arc<Mutex<Register>>);

#[derive(Default)]
struct Register {
    limits: ConnectionLimits,
    next_id: u64,
    next_turn: u64,
    open: HashMap<u64, Entry>,
    counts: HashMap<IpAddr, Count>,
    waiting: ConnectionQueue,
    shaking: ConnectionQueue,
    leaving: usize,
    turned_away: u64,
    told: Told<IpAddr>,
}

/// The connections of one client.
#[derive(Clone, Copy, Default)]
struct Count {
    open: usize,
    /// Of those: asked to go, and still there.
    leaving: usize,
}

impl Count {
    fn staying(self) -> usize {
        self.open - self.leaving
    }
}

struct Entry {
    client: IpAddr,
    /// Its place among the waiting ones.
    turn: Option<u64>,
    /// Its place among those that shake hands.
    handshake: Option<u64>,
    leaving: bool,
    bell: Arc<Notify>,
}

/// Why a newcomer is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionRefusal {
    /// All connections are at work.
    #[error("all {0} connections are at work")]
    Full(usize),
    /// The client has as many as one client may have, and all of them are at work.
    #[error("the client has {0} connections at work")]
    ClientFull(usize),
}

/// An open connection in the count. It leaves the count when dropped.
pub struct ConnectionSlot {
    connections: Connections,
    id: u64,
    bell: Arc<Notify>,
}

impl Connections {
    /// Counts from nothing.
    pub fn new(limits: ConnectionLimits) -> Connections {
        let connections = Connections::default();
        connections.configure(limits);
        connections
    }

    /// Other limits from now on. Connections that are too many under them stay until somebody new comes.
    pub fn configure(&self, limits: ConnectionLimits) {
        self.register().limits = limits;
    }

    /// A client has connected. It begins as one that waits.
    pub fn admit(&self, client: IpAddr) -> Result<ConnectionSlot, ConnectionRefusal> {
        let client = client_of(client);
        let mut register = self.register();
        if let Err(why) = register.make_room(client) {
            register.turned_away += 1;
            return Err(why);
        }
        let (id, turn) = (register.next_id, register.next_turn);
        register.next_id += 1;
        register.next_turn += 1;
        let bell = Arc::new(Notify::new());
        let entry = Entry {
            client,
            turn: Some(turn),
            handshake: None,
            leaving: false,
            bell: Arc::clone(&bell),
        };
        register.open.insert(id, entry);
        register.counts.entry(client).or_default().open += 1;
        register.waiting.join(client, turn, id);
        Ok(ConnectionSlot {
            connections: self.clone(),
            id,
            bell,
        })
    }

    /// The system has no descriptor left: asks some waiting connections to go. Gives back how many.
    pub fn exhausted(&self) -> usize {
        let mut register = self.register();
        (0..EXHAUSTED_SHED)
            .take_while(|_| register.shed_one())
            .count()
    }

    /// Whether to log something about a client now, and how much was passed over since the last time.
    /// `None`: it was told a moment ago.
    pub fn tells(&self, client: IpAddr) -> Option<u64> {
        let now = Instant::now();
        self.register()
            .told
            .tells(client_of(client), now, TELL_INTERVAL)
    }

    /// Newcomers that were turned away since the start.
    pub fn turned_away(&self) -> u64 {
        self.register().turned_away
    }

    /// The limits in effect.
    pub fn limits(&self) -> ConnectionLimits {
        self.register().limits
    }

    /// Connections in the count.
    pub fn count(&self) -> usize {
        self.register().open.len()
    }

    fn register(&self) -> MutexGuard<'_, Register> {
        self.0.lock()
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let register = self.register();
        let (open, limits) = (register.open.len(), register.limits);
        write!(f, "Connections({open} open, {limits:?})")
    }
}

impl Register {
    /// Makes room for one more of a client, or says why there is none.
    fn make_room(&mut self, client: IpAddr) -> Result<(), ConnectionRefusal> {
        let limits = self.limits;
        let per_client_max = self.per_client_max();
        let count = self.staying_of(client);
        if count >= per_client_max {
            // The client's own connections make room for it; those that were asked before are going.
            let own = self.waiting.first_of(client);
            match own.filter(|_| self.leaving < LEAVING_MAX) {
                Some(id) => self.ask_to_go(id),
                None => return Err(ConnectionRefusal::ClientFull(count)),
            }
        }
        if self.staying() >= limits.connections_max
            && (self.leaving >= LEAVING_MAX || !self.shed_one())
        {
            return Err(ConnectionRefusal::Full(limits.connections_max));
        }
        Ok(())
    }

    /// What one client may have now: near the limit a quarter at most, so that the last quarter is left for
    /// those who have few.
    fn per_client_max(&self) -> usize {
        let ConnectionLimits {
            connections_max,
            per_client_max,
            ..
        } = self.limits;
        match self.open.len() >= connections_max - connections_max / 4 {
            true => per_client_max.min((connections_max / 4).max(1)),
            false => per_client_max,
        }
    }

    fn staying(&self) -> usize {
        self.open.len() - self.leaving
    }

    fn staying_of(&self, client: IpAddr) -> usize {
        self.counts.get(&client).copied().map_or(0, Count::staying)
    }

    fn shed_one(&mut self) -> bool {
        match self.waiting.first_of_most() {
            Some(id) => {
                self.ask_to_go(id);
                true
            }
            None => false,
        }
    }

    fn ask_to_go(&mut self, id: u64) {
        self.leave_lines(id);
        if let Some(entry) = self.open.get_mut(&id) {
            entry.leaving = true;
            self.leaving += 1;
            self.counts.entry(entry.client).or_default().leaving += 1;
            entry.bell.notify_one();
        }
    }

    fn leave_lines(&mut self, id: u64) {
        if let Some(entry) = self.open.get_mut(&id) {
            if let Some(turn) = entry.turn.take() {
                self.waiting.leave(entry.client, turn);
            }
            if let Some(turn) = entry.handshake.take() {
                self.shaking.leave(entry.client, turn);
            }
        }
    }

    fn forget(&mut self, id: u64) {
        self.leave_lines(id);
        let Some(entry) = self.open.remove(&id) else {
            return;
        };
        self.leaving -= usize::from(entry.leaving);
        if let Some(count) = self.counts.get_mut(&entry.client) {
            count.open -= 1;
            count.leaving -= usize::from(entry.leaving);
            if count.open == 0 {
                self.counts.remove(&entry.client);
            }
        }
    }
}

impl ConnectionSlot {
    /// From here on the connection waits for its client.
    pub fn waits(&self) {
        let mut register = self.connections.register();
        let turn = register.next_turn;
        register.next_turn += 1;
        let Some(entry) = register.open.get_mut(&self.id) else {
            return;
        };
        if entry.turn.is_none() && !entry.leaving {
            entry.turn = Some(turn);
            let client = entry.client;
            register.waiting.join(client, turn, self.id);
        }
    }

    /// From here on it shakes hands. Too many handshakes: the client with the most of them loses its oldest.
    pub fn handshake_started(&self) {
        let mut register = self.connections.register();
        let turn = register.next_turn;
        register.next_turn += 1;
        let Some(entry) = register.open.get_mut(&self.id) else {
            return;
        };
        if entry.handshake.is_some() || entry.leaving {
            return;
        }
        entry.handshake = Some(turn);
        let client = entry.client;
        register.shaking.join(client, turn, self.id);
        if register.shaking.len() > register.limits.handshakes_max
            && let Some(id) = register.shaking.first_of_most()
        {
            register.ask_to_go(id);
        }
    }

    /// The handshake is done; it waits for a request now.
    pub fn handshake_ended(&self) {
        let mut register = self.connections.register();
        let Some(entry) = register.open.get_mut(&self.id) else {
            return;
        };
        if let Some(turn) = entry.handshake.take() {
            let client = entry.client;
            register.shaking.leave(client, turn);
        }
    }

    /// From here on it has a request in hand, and nobody asks it to go. False: it was asked before the request
    /// came, and its place is taken, so the request is not to be served.
    pub fn works(&self) -> bool {
        let mut register = self.connections.register();
        register.leave_lines(self.id);
        let Some(entry) = register.open.get(&self.id) else {
            return true;
        };
        if !entry.leaving {
            return true;
        }
        let client = entry.client;
        if register.staying() >= register.limits.connections_max
            || register.staying_of(client) >= register.per_client_max()
        {
            return false;
        }
        if let Some(entry) = register.open.get_mut(&self.id) {
            entry.leaving = false;
        }
        register.counts.entry(client).or_default().leaving -= 1;
        register.leaving -= 1;
        true
    }

    /// Whether a connection that was asked to go may take a moment, so that its client reads its last answer and sees an
    /// orderly end. False while many are on their way out: then it closes at once, or newcomers would soon be turned away.
    pub fn may_linger(&self) -> bool {
        self.connections.register().leaving <= LINGERING_MAX
    }

    /// Resolves when others need the place. For use beside waiting; loses nothing when dropped.
    pub async fn asked_to_go(&self) {
        loop {
            let rung = self.bell.notified();
            let entry_leaving = {
                let register = self.connections.register();
                register
                    .open
                    .get(&self.id)
                    .is_none_or(|entry| entry.leaving)
            };
            if entry_leaving {
                return;
            }
            rung.await;
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.register().forget(self.id);
    }
}

/// Whom an address stands for: anybody with IPv6 has a whole network of 64 bits.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests;
