//! The signals with which people and supervisors end a command: Ctrl-C, SIGTERM, and a terminal that is closed.

use crate::exit::CommandError;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// From its making on, these signals are caught.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    pub fn listen() -> Result<StopSignals, CommandError> {
        let listen = |kind| {
            signal(kind).map_err(|why| CommandError::local("cannot listen for signals", why))
        };
        Ok(StopSignals {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Returns when one has come. May be dropped and called again.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
