//! A door that answers while the threads of the real one wait for the disk of the namespace. It looks at nothing there.

use super::answer::{Problem, Response};
use super::caller::Caller;
use super::handler_context::{Door, RETRY_AFTER_SECONDS};
use super::remote_removals::Removals;
use super::{CountedConnection, DoorConfig};
use crate::storage::Storage;
use penstock_model::{NamespacePath, ProblemCode};
use penstock_protocol::http1::server::Request;
use penstock_protocol::listener::Listener;
use penstock_protocol::monitoring::Monitor;
use penstock_protocol::tls::ServerTls;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tokio::sync::watch;

/// The port of a door, for another that answers in its stead.
pub(crate) struct FallbackPort {
    listener: TcpListener,
    tls: Option<ServerTls>,
    monitor: Option<Arc<dyn Monitor>>,
    tls_only: bool,
}

impl FallbackPort {
    pub(crate) fn of(config: &DoorConfig) -> io::Result<FallbackPort> {
        let listener = config.listener.try_clone()?;
        listener.set_nonblocking(true)?;
        Ok(FallbackPort {
            listener,
            tls: config.tls.clone(),
            monitor: config.monitor.clone(),
            tls_only: config.tls_only,
        })
    }

    /// Takes clients in while the door is silent. Ends only when the port cannot be used, and says why; after `shutdown` it
    /// takes nobody in, and the port is the door's alone.
    pub(crate) async fn serve(
        self,
        storage: &Arc<Storage>,
        mut silent: watch::Receiver<bool>,
        mut shutdown: watch::Receiver<bool>,
    ) -> io::Error {
        loop {
            tokio::select! {
                _ = silent.wait_for(|is_silent| *is_silent) => {}
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
            if let Err(why) = self.serve_once(storage, &mut silent, &shutdown).await {
                return why;
            }
        }
        drop(self.listener);
        std::future::pending().await
    }

    /// Takes clients in until the door answers again, or `shutdown` turns true. Those who are there then are let go.
    async fn serve_once(
        &self,
        storage: &Arc<Storage>,
        silent: &mut watch::Receiver<bool>,
        shutdown: &watch::Receiver<bool>,
    ) -> io::Result<()> {
        let (over, is_over) = watch::channel(false);
        let door = Arc::new(Door {
            storage: Arc::clone(storage),
            monitor: self.monitor.clone(),
            tls_only: self.tls_only,
            // Whoever has connected gets an answer, which is the last on that connection.
            shutdown: shutdown.clone(),
            removals: Removals::default(),
            is_stand_in: true,
        });
        let port = Listener {
            socket: tokio::net::TcpListener::from_std(self.listener.try_clone()?)?,
            tls: self.tls.clone(),
            connections: storage.settings().limits.connections.clone(),
        };
        let accepting = port.accept(is_over, |connection| {
            let (door, counted) = (Arc::clone(&door), CountedConnection::new(&door.storage));
            async move {
                door.connection(connection).await;
                drop(counted);
            }
        });
        let mut shutdown = shutdown.clone();
        let ending = async {
            tokio::select! {
                _ = silent.wait_for(|is_silent| !*is_silent) => {}
                _ = shutdown.wait_for(|stop| *stop) => {}
            }
            let _ = over.send(true);
        };
        let (open, ()) = tokio::join!(accepting, ending);
        open.drain(super::LAST_LINES).await;
        Ok(())
    }
}

impl Door {
    /// What monitors ask, as far as it needs no name of a user; nothing else.
    pub(super) async fn stand_in_answer(
        &self,
        request: &Request,
        path: &NamespacePath,
        peer: SocketAddr,
    ) -> Result<Response, Problem> {
        let nobody = Caller::new(None, peer);
        if let Some(told) = self.tell_monitor(request, path, &nobody).await? {
            return Ok(told);
        }
        let text = "the disk of the namespace does not answer, so nothing can be read or stored; try again in a while";
        Err(Problem::busy(
            ProblemCode::NamespaceBusy,
            text,
            RETRY_AFTER_SECONDS,
        ))
    }
}
