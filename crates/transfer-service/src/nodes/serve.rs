//! The leader's end of connections: takes in nodes that are registered, and does for them what its own would be done.

use super::LeaderLoop;
use super::follow::SILENCE_MAX;
use super::membership::Membership;
use crate::error::ServiceError;
use crate::leader_requests::LeaderSeat;
use crate::loop_message::{Message, UntoldEnd};
use crate::node::Node;
use crate::node::wire::{
    Hello, LeaderMessage, NodeMessage, PROTOCOL, ReceivedFrame, RedactedText, receive, send,
};
use crate::node::{DOWN_MAX, Followers};
use parking_lot::Mutex;
use penstock_engine::NodeJoined;
use penstock_engine::command::Command;
use penstock_model::NodeId;
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::stream::Stream;
use penstock_protocol::tls::Fingerprint;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

/// Connections of nodes at once; a service has fewer.
const CONNECTIONS_MAX: usize = 256;
/// Connections of one address that have not said yet who they are. A node has one, and nodes of one machine some.
const STRANGERS_PER_ADDRESS_MAX: usize = 16;
/// Commands of one node that may wait for replies.
const COMMANDS_MAX: usize = 4096;
/// How long the first word may take.
const HELLO_TIMEOUT: Duration = Duration::from_secs(20);
/// How long nodes may take to keep new keys.
const KEYS_PATIENCE: Duration = Duration::from_secs(10);
/// Pause after an accept error, so that an exhausted process does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until it is aborted.
pub(super) async fn serve(
    membership: Arc<Membership>,
    node: Arc<Node>,
    leader_loop: Arc<LeaderLoop>,
    listener: Arc<TcpListener>,
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let strangers = Strangers::default();
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of a node");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(permit) = room.clone().try_acquire_owned() else {
            tracing::warn!(%peer, "too many connections of nodes; one is turned away");
            continue;
        };
        let stranger = strangers.admit(peer.ip());
        let (membership, node, leader_loop) =
            (membership.clone(), node.clone(), leader_loop.clone());
        connections.spawn(async move {
            let _permit = permit;
            if let Err(why) = take_in(&membership, &node, &leader_loop, tcp, stranger).await {
                tracing::info!(%peer, %why, "a connection of a node ended");
            }
        });
    }
}

async fn take_in(
    membership: &Arc<Membership>,
    node: &Arc<Node>,
    leader_loop: &Arc<LeaderLoop>,
    tcp: TcpStream,
    mut stranger: Stranger,
) -> io::Result<()> {
    let introduced = async {
        let (stream, shown) = membership.tls.accept(tcp).await.map_err(io::Error::other)?;
        let who = known_by(membership, shown).await;
        let who = who.ok_or_else(|| {
            io::Error::other(
                "its certificate is not that of a node that is registered in the database",
            )
        })?;
        Ok::<_, io::Error>((stream, who))
    };
    let (stream, who) = tokio::select! {
        introduced = introduced => introduced?,
        _ = &mut stranger.displaced => {
            return Err(io::Error::other("too many others of its address came after it"));
        }
    };
    drop(stranger);
    let (mut reading, mut writing) = tokio::io::split(stream);
    let first = tokio::time::timeout(HELLO_TIMEOUT, receive(&mut reading)).await;
    let first = first.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let refused = match first {
        ReceivedFrame::Known(NodeMessage::WantKeys { .. }) if who.len() == 1 => {
            return match keys(membership).await {
                Some(keys) => send(&mut writing, &LeaderMessage::Keys(keys)).await,
                None => refuse(&mut writing, "this node has no keys itself").await,
            };
        }
        ReceivedFrame::Known(NodeMessage::Hello(hello)) => match judge(&who, &hello, leader_loop) {
            Ok(inputs) => {
                let session = Session {
                    membership,
                    node,
                    id: hello.node.clone(),
                    session: node.followers.next_session(),
                    inputs,
                };
                return session.run(*hello, reading, writing).await;
            }
            Err(why) => why,
        },
        _ => "the first word is a hello".to_owned(),
    };
    refuse(&mut writing, &refused).await
}

/// Who has connected and is not known yet, by address, the oldest first: none takes the room of nodes for itself. The
/// newest displaces the oldest of its address, so that who says nothing keeps nobody out.
#[derive(Clone, Default)]
struct Strangers(Arc<Mutex<StrangersByAddress>>);

#[derive(Default)]
struct StrangersByAddress {
    last_number: u64,
    by_address: HashMap<IpAddr, VecDeque<(u64, oneshot::Sender<()>)>>,
}

struct Stranger {
    all: Strangers,
    address: IpAddr,
    number: u64,
    /// Resolves when another one has come in its place.
    displaced: oneshot::Receiver<()>,
}

impl Strangers {
    fn admit(&self, address: IpAddr) -> Stranger {
        let mut all = self.0.lock();
        all.last_number += 1;
        let number = all.last_number;
        let of_it = all.by_address.entry(address).or_default();
        let (displace, displaced) = oneshot::channel();
        if of_it.len() >= STRANGERS_PER_ADDRESS_MAX {
            // Its receiver sees that the sender has gone.
            of_it.pop_front();
        }
        of_it.push_back((number, displace));
        Stranger {
            all: self.clone(),
            address,
            number,
            displaced,
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(of_it) = all.by_address.get_mut(&self.address) {
            of_it.retain(|(number, _)| *number != self.number);
            if of_it.is_empty() {
                all.by_address.remove(&self.address);
            }
        }
    }
}

async fn refuse(writing: &mut WriteHalf<Stream>, why: &str) -> io::Result<()> {
    let why = why.to_owned();
    send(writing, &LeaderMessage::Refused { why }).await
}

/// The nodes that have registered this certificate. Who can write the database is trusted.
async fn known_by(membership: &Arc<Membership>, shown: Fingerprint) -> Option<Vec<NodeId>> {
    for _ in 0..2 {
        let known: Vec<NodeId> = {
            let nodes = membership.nodes.borrow();
            let known = nodes
                .iter()
                .filter(|seen| seen.node.certificate_sha256 == shown);
            known.map(|seen| seen.node.id.clone()).collect()
        };
        if !known.is_empty() {
            return Some(known);
        }
        // It may have come since the last look.
        membership.look().await;
    }
    None
}

/// Whether a node may follow; then the loop's inputs.
fn judge(
    who: &[NodeId],
    hello: &Hello,
    leader_loop: &LeaderLoop,
) -> Result<mpsc::Sender<Message>, String> {
    if hello.protocol != PROTOCOL {
        let theirs = hello.protocol;
        return Err(format!(
            "this node speaks version {PROTOCOL} of the nodes' language, that one version {theirs}: upgrade the older"
        ));
    }
    if !who.contains(&hello.node) {
        return Err(format!("the certificate is not that of {}", hello.node));
    }
    match &*leader_loop.seat().borrow() {
        LeaderSeat::Here(inputs) => Ok(inputs.clone()),
        LeaderSeat::Vacant | LeaderSeat::There(_) | LeaderSeat::Closed => {
            Err("this node does not lead".to_owned())
        }
    }
}

async fn keys(membership: &Arc<Membership>) -> Option<RedactedText> {
    told_keys(membership).await.ok().map(RedactedText)
}

async fn told_keys(membership: &Arc<Membership>) -> Result<String, ServiceError> {
    let (keys, file) = (membership.keys.clone(), membership.key_file.clone());
    let told = tokio::task::spawn_blocking(move || keys.tell(&file)).await;
    Ok(told.map_err(|why| ServiceError::Thread(why.into()))??)
}

impl Membership {
    /// Gives the nodes that follow this one the keys that their file holds, those that are new below those in use:
    /// each can open then what is about to be sealed, and none seals with it yet. Returns when all have them.
    ///
    /// Errors: the file cannot be read.
    pub(crate) async fn share_keys(
        self: &Arc<Self>,
        followers: &Followers,
    ) -> Result<(), ServiceError> {
        let told = told_keys(self).await?;
        let names = SealingKeys::names_told(&told);
        let used = self.keys.names_in_use();
        if names.iter().any(|name| !used.contains(name)) {
            followers.tell_all(LeaderMessage::Keys(RedactedText(told)));
            followers.until_all_have(&names, KEYS_PATIENCE).await;
        }
        Ok(())
    }

    /// Tells them that another key seals now.
    pub(crate) async fn tell_keys(self: &Arc<Self>, followers: &Followers) {
        if let Some(keys) = keys(self).await {
            followers.tell_all(LeaderMessage::Keys(keys));
        }
    }
}

/// A node that has said hello.
struct Session<'a> {
    membership: &'a Arc<Membership>,
    node: &'a Arc<Node>,
    id: NodeId,
    session: u64,
    inputs: mpsc::Sender<Message>,
}

impl Session<'_> {
    async fn run(
        &self,
        hello: Hello,
        mut reading: ReadHalf<Stream>,
        mut writing: WriteHalf<Stream>,
    ) -> io::Result<()> {
        let (down, mut said) = mpsc::channel(DOWN_MAX);
        let (tenure, _) = self.membership.known.borrow().clone();
        let welcome = LeaderMessage::Welcome {
            protocol: PROTOCOL,
            epoch: tenure.epoch,
            certain: self.membership.is_certain(),
        };
        // There is room in a new channel.
        let say = |what: LeaderMessage| drop(down.try_send(Arc::new(what)));
        say(welcome);
        let (followers, published) = (&self.node.followers, &self.node.published);
        if !followers.enter(self.id.clone(), self.session, down.clone()) {
            return Err(io::Error::other("the node has come back since"));
        }
        // What is set or banned meanwhile was told to this node already, or is among this.
        let settings = published.settings();
        say(LeaderMessage::Settings(settings.all().cloned().collect()));
        say(LeaderMessage::LockOut(published.banned.imposed()));
        if let Some(keys) = keys(self.membership).await {
            say(LeaderMessage::Keys(keys));
        }
        let (version, slots, claims) = (&hello.version, hello.slots.0, hello.claims.len());
        tracing::info!(node = %self.id, version, slots, claims, "a node follows");
        let joined = NodeJoined {
            node: self.id.clone(),
            session: self.session,
            slots: hello.slots,
            claims: hello.claims,
        };
        self.tell(Message::Joined {
            joined: Box::new(joined),
            ends: hello.ends.into_iter().map(UntoldEnd::from).collect(),
        })
        .await?;
        let mut heard = Instant::now();
        // Only the followers keeps it: when that lets the node go, the connection ends.
        let answers = down.downgrade();
        drop(down);
        let ended = tokio::select! {
            ended = self.listen(&mut reading, &answers, &mut heard) => ended,
            ended = speak(&mut writing, &mut said) => ended,
        };
        followers.leave(&self.id, self.session);
        // The loop may have ended, and needs to know nothing more then.
        let _ = self
            .tell(Message::Gone {
                node: self.id.clone(),
                session: self.session,
                heard,
            })
            .await;
        ended
    }

    async fn tell(&self, message: Message) -> io::Result<()> {
        let told = self.inputs.send(message).await;
        told.map_err(|_| io::Error::other("this node leads no more"))
    }

    async fn listen(
        &self,
        reading: &mut ReadHalf<Stream>,
        down: &mpsc::WeakSender<Arc<LeaderMessage>>,
        heard: &mut Instant,
    ) -> io::Result<()> {
        let room = Arc::new(Semaphore::new(COMMANDS_MAX));
        loop {
            let said = tokio::time::timeout(SILENCE_MAX, receive(reading)).await;
            let said = said.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
            match said {
                ReceivedFrame::Known(NodeMessage::Ping { number }) => {
                    *heard = Instant::now();
                    // One that may have been deposed says nothing that agents go on by.
                    if self.membership.is_certain()
                        && let Some(down) = down.upgrade()
                    {
                        // One that is full is about to be closed.
                        let _ = down.try_send(Arc::new(LeaderMessage::Pong { number }));
                    }
                }
                ReceivedFrame::Known(NodeMessage::Report(report)) => {
                    self.tell(Message::Reported {
                        node: self.id.clone(),
                        session: self.session,
                        report,
                    })
                    .await?;
                }
                ReceivedFrame::Known(NodeMessage::Command {
                    number,
                    again,
                    command,
                }) => {
                    let permit = room.clone().acquire_owned().await;
                    let permit = permit.map_err(io::Error::other)?;
                    let (inputs, down) = (self.inputs.clone(), down.clone());
                    tokio::spawn(async move {
                        let _permit = permit;
                        answer(inputs, down, number, again, *command).await;
                    });
                }
                ReceivedFrame::Known(NodeMessage::Leaves) => {
                    self.tell(Message::Leaves {
                        node: self.id.clone(),
                        session: self.session,
                    })
                    .await?;
                }
                ReceivedFrame::Known(NodeMessage::HasKeys { names }) => {
                    self.node.followers.has_keys(&self.id, self.session, names);
                }
                ReceivedFrame::Known(NodeMessage::WantKeys { .. }) => {
                    if let (Some(keys), Some(down)) = (keys(self.membership).await, down.upgrade())
                    {
                        // One that is full is about to be closed.
                        let _ = down.try_send(Arc::new(LeaderMessage::Keys(keys)));
                    }
                }
                ReceivedFrame::Known(NodeMessage::Hello(_)) | ReceivedFrame::Unknown => {}
                ReceivedFrame::Nothing => return Ok(()),
            }
        }
    }
}

async fn answer(
    inputs: mpsc::Sender<Message>,
    down: mpsc::WeakSender<Arc<LeaderMessage>>,
    number: u64,
    again: bool,
    command: Command,
) {
    let (to, reply) = oneshot::channel();
    let message = Message::Command { command, again, to };
    let reply = match inputs.send(message).await {
        Ok(()) => reply.await.ok().map(|reply| Box::new(reply.into())),
        Err(_) => None,
    };
    // A node that has gone asks again where it has come to.
    if let Some(down) = down.upgrade() {
        let _ = down.try_send(Arc::new(LeaderMessage::Reply { number, reply }));
    }
}

async fn speak(
    writing: &mut WriteHalf<Stream>,
    said: &mut mpsc::Receiver<Arc<LeaderMessage>>,
) -> io::Result<()> {
    while let Some(down) = said.recv().await {
        send(writing, &*down).await?;
    }
    Err(io::Error::other(
        "it is too far behind, or this node leads no more",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_the_room_of_nodes() {
        let strangers = Strangers::default();
        let (one, other) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let mut elsewhere = strangers.admit(other);
        let mut admitted: Vec<_> = (0..=STRANGERS_PER_ADDRESS_MAX)
            .map(|_| strangers.admit(one))
            .collect();
        let is_displaced = |one: &mut Stranger| {
            one.displaced.try_recv() == Err(oneshot::error::TryRecvError::Closed)
        };
        let displaced: Vec<bool> = admitted.iter_mut().map(is_displaced).collect();
        assert!(displaced[0] && !displaced[1..].contains(&true));
        assert!(!is_displaced(&mut elsewhere));
        drop((admitted, elsewhere));
        let left = strangers.0.lock();
        assert!(left.by_address.is_empty());
    }
}
