//! The near ends of the connections that a process makes: who comes to one of its own ports from such an address is the
//! process itself, sent there by somebody, and not a neighbour on its machine.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// The near ends of all open connections of the clients that share it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct NearEnds(Arc<Mutex<HashMap<SocketAddr, usize>>>);

/// One of them, as long as its connection is open.
pub(in crate::http1) struct NearEnd {
    all: NearEnds,
    address: SocketAddr,
}

impl NearEnds {
    /// Whether a connection of this process comes from there.
    pub fn contain(&self, address: SocketAddr) -> bool {
        let all = self.0.lock();
        all.contains_key(&canonical(address))
    }

    pub(super) fn add(&self, address: SocketAddr) -> NearEnd {
        let address = canonical(address);
        let mut all = self.0.lock();
        // Connections to several servers can leave by one port.
        *all.entry(address).or_default() += 1;
        NearEnd {
            all: self.clone(),
            address,
        }
    }
}

impl Drop for NearEnd {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(count) = all.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.address);
            }
        }
    }
}

/// As a server that listens for both versions of the protocol sees it, and as it is.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_known_as_long_as_a_connection_has_it() {
        let ends = NearEnds::default();
        let address: SocketAddr = "127.0.0.1:40000".parse().expect("valid");
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:40000".parse().expect("valid");
        let (one, other) = (ends.add(address), ends.add(mapped));
        drop(one);
        assert!(ends.contain(address) && ends.contain(mapped));
        assert!(!ends.contain("127.0.0.1:40001".parse().expect("valid")));
        drop(other);
        assert!(!ends.contain(address));
    }
}
