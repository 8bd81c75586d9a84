//! The accept loop of a port: counts clients in, turns away those for whom there is no room, shakes hands, and lets open
//! connections end at a shutdown. What is said on a connection is the service's.

use crate::connections::{ConnectionSlot, Connections};
use crate::stream::Stream;
use crate::tls::ServerTls;
use crate::x509::ClientCertificate;
use penstock_clock::wall_clock;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

/// How long accepting pauses when the system has no descriptor left, so that an exhausted process does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What is said to whom there is no room for.
const BUSY_REPLY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\n\
    Content-Type: text/plain\r\nContent-Length: 43\r\n\r\ntoo many connections; try again in a while\n";

/// A port that takes clients in.
pub struct Listener {
    /// Bound already.
    pub socket: TcpListener,
    /// HTTPS with it, plain HTTP without.
    pub tls: Option<ServerTls>,
    /// The client connections of the process, this port's among others.
    pub connections: Connections,
}

/// A client that has just connected and was let in.
pub struct NewConnection {
    tcp: TcpStream,
    tls: Option<ServerTls>,
    slot: ConnectionSlot,
}

/// A client that can be spoken with.
pub struct ClientConnection {
    /// The connection, encrypted if the port is.
    pub stream: Stream,
    /// What the client has shown in the handshake.
    pub certificate: Option<ClientCertificate>,
    /// Its place among the connections of the process.
    pub slot: ConnectionSlot,
}

/// Connections that were open when their port was closed.
pub struct OpenConnections(JoinSet<()>);

impl Listener {
    /// Accepts until the shutdown signal, or until nobody can send it any more, and has each connection served by a task of
    /// its own. Then the port is closed.
    pub async fn accept<S: Future<Output = ()> + Send + 'static>(
        self,
        mut shutdown: watch::Receiver<bool>,
        mut serve: impl FnMut(NewConnection) -> S,
    ) -> OpenConnections {
        let mut open = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                _ = shutdown.wait_for(|stop| *stop) => break,
                Some(ended) = open.join_next() => {
                    report_panic(ended);
                    continue;
                }
            };
            match accepted {
                Ok((tcp, peer)) => {
                    if let Some(connection) = self.admit(tcp, peer) {
                        open.spawn(serve(connection));
                    }
                }
                Err(why) => {
                    let asked_to_go = self.connections.exhausted();
                    tracing::warn!(%why, asked_to_go, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        OpenConnections(open)
    }

    /// Takes a client in, or turns it away: without TLS with a word, else by closing, because a word would cost a handshake.
    fn admit(&self, tcp: TcpStream, peer: SocketAddr) -> Option<NewConnection> {
        match self.connections.admit(peer.ip()) {
            Ok(slot) => Some(NewConnection {
                tcp,
                tls: self.tls.clone(),
                slot,
            }),
            Err(why) => {
                if self.tls.is_none() {
                    // A socket that is just open takes these few bytes; one that does not has lost nothing.
                    let _ = tcp.try_write(BUSY_REPLY);
                }
                if let Some(passed_over) = self.connections.tells(peer.ip()) {
                    tracing::warn!(%peer, %why, passed_over, "turned a client away");
                }
                None
            }
        }
    }
}

impl NewConnection {
    /// Shakes hands if the port speaks TLS. `None`: there was no handshake, or others need the place.
    pub async fn handshake(self) -> Option<ClientConnection> {
        let NewConnection { tcp, tls, slot } = self;
        let Some(tls) = tls else {
            return Some(ClientConnection {
                stream: Stream::plain(tcp),
                certificate: None,
                slot,
            });
        };
        slot.handshake_started();
        let shaken = tokio::select! {
            shaken = tls.accept(tcp) => shaken,
            () = slot.asked_to_go() => return None,
        };
        slot.handshake_ended();
        match shaken {
            Ok(stream) => {
                let certificate = tls.client_of(&stream, wall_clock()).await;
                Some(ClientConnection {
                    stream,
                    certificate,
                    slot,
                })
            }
            Err(why) => {
                tracing::debug!(%why, "a TLS handshake failed");
                None
            }
        }
    }
}

impl OpenConnections {
    /// Waits for them to end, and closes those that have not ended in time.
    pub async fn drain(mut self, grace: Duration) {
        let drained = tokio::time::timeout(grace, async {
            while let Some(ended) = self.0.join_next().await {
                report_panic(ended);
            }
        });
        if drained.await.is_err() {
            let connections = self.0.len();
            tracing::warn!(connections, "closing connections that did not end in time");
        }
        self.0.shutdown().await;
    }
}

fn report_panic(ended: Result<(), JoinError>) {
    if let Err(why) = ended
        && why.is_panic()
    {
        tracing::error!(%why, "a connection ended in a panic");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::ConnectionLimits;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A port without TLS for as many clients, what stops it, and its end.
    async fn port(
        connections_max: usize,
    ) -> (
        SocketAddr,
        watch::Sender<bool>,
        impl Future<Output = OpenConnections>,
    ) {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = socket.local_addr().expect("bound");
        let listener = Listener {
            socket,
            tls: None,
            connections: Connections::new(ConnectionLimits {
                connections_max,
                ..ConnectionLimits::default()
            }),
        };
        let (stop, stopped) = watch::channel(false);
        let accepting = tokio::spawn(listener.accept(stopped, |connection| async move {
            let client = connection.handshake().await.expect("no TLS, no handshake");
            assert!(client.certificate.is_none());
            // At work, so that no newcomer takes its place.
            assert!(client.slot.works());
            let mut stream = client.stream;
            let mut said = [0; 4];
            while stream.read_exact(&mut said).await.is_ok() {
                stream.write_all(&said).await.expect("the client is there");
            }
        }));
        (
            address,
            stop,
            async move { accepting.await.expect("no panic") },
        )
    }

    async fn said_back(client: &mut TcpStream) -> String {
        client.write_all(b"ping").await.expect("the port is there");
        let mut answer = [0; 4];
        client.read_exact(&mut answer).await.expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn who_finds_no_room_is_told_so() {
        let (address, _stop, accepting) = port(1).await;
        let accepting = tokio::spawn(accepting);
        let mut first = TcpStream::connect(address).await.expect("connected");
        assert_eq!(said_back(&mut first).await, "ping");
        let mut second = TcpStream::connect(address).await.expect("connected");
        let mut answer = Vec::new();
        second.read_to_end(&mut answer).await.expect("an answer");
        assert_eq!(answer, BUSY_REPLY);
        accepting.abort();
    }

    #[tokio::test]
    async fn open_connections_end_in_their_time_or_are_closed() {
        let (address, stop, accepting) = port(9).await;
        let mut client = TcpStream::connect(address).await.expect("connected");
        assert_eq!(said_back(&mut client).await, "ping");
        stop.send_replace(true);
        let open = accepting.await;
        assert!(
            TcpStream::connect(address).await.is_err(),
            "the port is closed"
        );
        assert_eq!(said_back(&mut client).await, "ping");
        open.drain(Duration::from_millis(10)).await;
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.expect("closed");
        assert_eq!(rest, b"");
    }
}
