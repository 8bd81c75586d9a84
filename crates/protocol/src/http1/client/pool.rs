//! Idle connections, kept for the next request to the same server.

use super::super::wire::Wire;
use super::connect::Endpoint;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a connection may wait. Below the idle timeout of common servers, so that few are found closed.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Idle connections to all servers together.
const IDLE_TOTAL_MAX: usize = 4096;

pub(super) struct Pool {
    idle_per_host: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// The longest idle first.
    idle: HashMap<Endpoint, Vec<(Instant, Wire)>>,
    total: usize,
    /// A task is there that closes what has expired.
    swept: bool,
}

impl Pool {
    pub(super) fn new(idle_per_host: usize) -> Arc<Pool> {
        Arc::new(Pool {
            idle_per_host,
            kept: Mutex::default(),
        })
    }

    /// The connection to `endpoint` that was used last, if it is still open and silent.
    pub(super) fn take(&self, endpoint: &Endpoint) -> Option<Wire> {
        loop {
            let (since, mut wire) = {
                let mut kept = self.lock();
                let wires = kept.idle.get_mut(endpoint)?;
                let newest = wires.pop();
                if wires.is_empty() {
                    kept.idle.remove(endpoint);
                }
                kept.total -= usize::from(newest.is_some());
                newest?
            };
            // Bytes without a request (or the end of the stream) mean that the server has given it up.
            if since.elapsed() < IDLE_MAX && wire.try_fill().is_none() {
                return Some(wire);
            }
        }
    }

    /// Keeps a connection whose last response was read to its end. Must be called inside a tokio runtime.
    pub(super) fn give_back(self: &Arc<Self>, endpoint: Endpoint, mut wire: Wire) {
        if !wire.unread().is_empty() || self.idle_per_host == 0 {
            return;
        }
        wire.shrink();
        let mut kept = self.lock();
        if kept.total >= IDLE_TOTAL_MAX {
            return;
        }
        let wires = kept.idle.entry(endpoint).or_default();
        if wires.len() >= self.idle_per_host {
            return;
        }
        wires.push((Instant::now(), wire));
        kept.total += 1;
        if !kept.swept
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            kept.swept = true;
            // Ends by itself: when nothing is kept any more, or the pool is gone.
            runtime.spawn(sweep(Arc::downgrade(self)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what has expired. False when nothing is left, so that no sweep is needed.
    fn close_expired(&self) -> bool {
        let mut kept = self.lock();
        let mut total = 0;
        kept.idle.retain(|_, wires| {
            wires.retain(|(since, _)| since.elapsed() < IDLE_MAX);
            total += wires.len();
            !wires.is_empty()
        });
        kept.total = total;
        kept.swept = total > 0;
        kept.swept
    }
}

/// Closes expired connections also when no request comes any more.
async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(IDLE_MAX / 3).await;
        match pool.upgrade() {
            Some(pool) if pool.close_expired() => {}
            Some(_) | None => return,
        }
    }
}
