//! What was told about whom, so that a client who does the same thing thousands of times fills no log.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Clients remembered. When there are more, the oldest memories go first.
const CLIENTS_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct ClientsTold(HashMap<IpAddr, Memory>);

struct Memory {
    at: Instant,
    passed_over: u64,
}

impl ClientsTold {
    /// Whether to tell something about a client now, and how much was passed over before.
    pub(super) fn tells(
        &mut self,
        client: IpAddr,
        now: Instant,
        interval: Duration,
    ) -> Option<u64> {
        if self.0.len() >= CLIENTS_MAX && !self.0.contains_key(&client) {
            self.0
                .retain(|_, memory| now.duration_since(memory.at) < interval);
            if self.0.len() >= CLIENTS_MAX {
                // So many at once are one event, and the log has thousands of lines of it.
                return None;
            }
        }
        match self.0.get_mut(&client) {
            Some(memory) if now.duration_since(memory.at) < interval => {
                memory.passed_over += 1;
                None
            }
            Some(memory) => {
                memory.at = now;
                Some(std::mem::take(&mut memory.passed_over))
            }
            None => {
                let memory = Memory {
                    at: now,
                    passed_over: 0,
                };
                self.0.insert(client, memory);
                Some(0)
            }
        }
    }
}
