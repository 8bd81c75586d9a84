//! A follower's connection to its leader: says what runs here, does what it is told, and passes commands on.

use super::LeaderLoop;
use super::membership::Membership;
use crate::leader_requests::{ForwardedCommand, LeaderSeat};
use crate::node::Node;
use crate::node::ReportSink;
use crate::node::wire::{
    Hello, LeaderMessage, NodeMessage, PROTOCOL, ReceivedFrame, WireEnd, receive, send,
};
use parking_lot::Mutex;
use penstock_engine::AgentReport;
use penstock_engine::command::Reply;
use penstock_model::{NodeId, Settings, Slots, Tenure};
use penstock_persistence::cluster::NodeRow;
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::stream::Stream;
use penstock_protocol::tls::PeerTls;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// How long connecting and the first answer may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const WELCOME_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a node says that it lives, and how far its agents are.
const PING_EVERY: Duration = Duration::from_secs(1);
/// A connection on which nothing comes for so long is of no use.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Reports and commands that may wait to be sent.
const WAITING_MAX: usize = 4096;
/// Pings whose answer may still come.
const PINGS_MAX: usize = 64;

/// A connection to a node that shows the certificate which it is registered with.
pub(super) async fn connect(tls: &PeerTls, to: &NodeRow) -> io::Result<Stream> {
    let address = &to.address;
    let connecting = TcpStream::connect(address);
    let tcp = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    let tcp = tcp.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let (stream, shown) = tls.connect(tcp).await.map_err(io::Error::other)?;
    if shown != to.certificate_sha256 {
        let why = format!("who answers at {address} shows another certificate than it registered");
        return Err(io::Error::other(why));
    }
    Ok(stream)
}

/// Follows a leader until the connection ends. Errors: why it did.
pub(super) async fn follow(
    membership: &Arc<Membership>,
    node: &Arc<Node>,
    leader_loop: &Arc<LeaderLoop>,
    leader: &NodeId,
    tenure: Tenure,
) -> io::Result<()> {
    let leader_row = membership.known_as(leader).await;
    let unknown = || io::Error::other("it is not registered in the database");
    let stream = connect(&membership.tls, &leader_row.ok_or_else(unknown)?).await;
    if stream.is_err() {
        // It may have another address or certificate by now.
        membership.look().await;
    }
    let stream = stream?;
    let (mut reading, mut writing) = tokio::io::split(stream);
    let (reports, reported) = mpsc::channel(WAITING_MAX);
    let snapshot = node.host.join(ReportSink::There(reports), tenure);
    let slots = match *membership.leaving.borrow() {
        true => Slots(0),
        false => leader_loop.config().slots.agents,
    };
    let hello = Hello {
        protocol: PROTOCOL,
        node: membership.id.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        slots,
        claims: snapshot.claims,
        ends: snapshot.ends.into_iter().map(WireEnd::from).collect(),
    };
    let greeted = Instant::now();
    send(&mut writing, &NodeMessage::Hello(Box::new(hello))).await?;
    let welcome = tokio::time::timeout(WELCOME_TIMEOUT, receive(&mut reading)).await;
    match welcome.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
        ReceivedFrame::Known(LeaderMessage::Welcome { certain: true, .. }) => {
            node.host.hear(greeted)
        }
        ReceivedFrame::Known(LeaderMessage::Welcome { certain: false, .. }) => {}
        ReceivedFrame::Known(LeaderMessage::Refused { why }) => return Err(io::Error::other(why)),
        ReceivedFrame::Known(_) | ReceivedFrame::Unknown => {
            return Err(io::Error::other("it does not welcome"));
        }
        ReceivedFrame::Nothing => return Err(io::ErrorKind::UnexpectedEof.into()),
    }
    tracing::info!(%leader, epoch = %tenure.epoch, "this node follows");
    let (forwarded, commands) = mpsc::channel(WAITING_MAX);
    let seated = LeaderSeatGuard {
        leader_loop,
        seat: forwarded.clone(),
    };
    leader_loop.take_seat(LeaderSeat::There(forwarded));
    let connection = Connection {
        membership: membership.clone(),
        node: node.clone(),
        waiting: Mutex::default(),
        pings: Mutex::default(),
        keys_told: Notify::new(),
    };
    let ended = tokio::select! {
        ended = connection.listen(&mut reading) => ended,
        ended = connection.speak(&mut writing, reported, commands) => ended,
    };
    drop(seated);
    ended
}

/// Leaves the seat when the connection ends, however it does.
struct LeaderSeatGuard<'a> {
    leader_loop: &'a LeaderLoop,
    seat: mpsc::Sender<ForwardedCommand>,
}

impl Drop for LeaderSeatGuard<'_> {
    fn drop(&mut self) {
        self.leader_loop.leave_seat(&self.seat);
    }
}

struct Connection {
    membership: Arc<Membership>,
    node: Arc<Node>,
    /// Whom answers are for.
    waiting: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    /// When pings were sent that were not answered yet.
    pings: Mutex<VecDeque<(u64, Instant)>>,
    /// The leader has told its keys, and is to know that they are kept here.
    keys_told: Notify,
}

impl Connection {
    async fn listen(&self, reading: &mut ReadHalf<Stream>) -> io::Result<()> {
        loop {
            let said = tokio::time::timeout(SILENCE_MAX, receive(reading)).await;
            match said.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
                ReceivedFrame::Known(down) => self.take(down),
                ReceivedFrame::Unknown => {}
                ReceivedFrame::Nothing => return Ok(()),
            }
        }
    }

    fn take(&self, down: LeaderMessage) {
        let published = &self.node.published;
        match down {
            LeaderMessage::Pong { number } => {
                if let Some(sent) = self.answered(number) {
                    // It led after this was sent.
                    self.node.host.hear(sent);
                }
            }
            LeaderMessage::Order(order) => self.node.host.take(order, None),
            LeaderMessage::Reply { number, reply } => {
                let mut waiting = self.waiting.lock();
                let to = waiting.remove(&number);
                if let (Some(to), Some(reply)) = (to, reply) {
                    // Whoever asked may have gone.
                    let _ = to.send((*reply).into());
                }
            }
            LeaderMessage::Settings(all) => {
                let mut settings = Settings::default();
                all.into_iter().for_each(|setting| settings.put(setting));
                published.show_settings(Arc::new(settings));
            }
            LeaderMessage::LockOut(users) => published.banned.replace_imposed(users),
            LeaderMessage::Shown {
                overview,
                committed,
                writable,
            } => {
                published.set_writable(writable);
                published.committed.send_replace(committed);
                published.running.send_replace(Arc::default());
                published.overview.send_replace(Arc::new(*overview));
            }
            LeaderMessage::Keys(keys) => self.adopt(&keys.0),
            LeaderMessage::Welcome { .. } | LeaderMessage::Refused { .. } => {}
        }
    }

    fn adopt(&self, keys: &str) {
        let membership = &self.membership;
        let adopted = SealingKeys::adopt(&membership.key_file, keys);
        let adopted = adopted.and_then(|is_new| match is_new {
            true => membership.keys.reload(&membership.key_file).map(|_| true),
            false => Ok(false),
        });
        match adopted {
            Ok(true) => tracing::info!("took over the credential keys of the leader"),
            Ok(false) => {}
            Err(why) => {
                tracing::error!(%why, "the leader's credential keys cannot be kept");
                return;
            }
        }
        self.keys_told.notify_one();
    }

    fn answered(&self, number: u64) -> Option<Instant> {
        let mut pings = self.pings.lock();
        while let Some((first, sent)) = pings.pop_front() {
            if first == number {
                return Some(sent);
            }
        }
        None
    }

    async fn speak(
        &self,
        writing: &mut WriteHalf<Stream>,
        mut reported: mpsc::Receiver<AgentReport>,
        mut commands: mpsc::Receiver<ForwardedCommand>,
    ) -> io::Result<()> {
        let mut due = tokio::time::interval(PING_EVERY);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut leaving = self.membership.leaving.subscribe();
        let mut has_left = *leaving.borrow_and_update();
        let mut number = 0;
        loop {
            number += 1;
            tokio::select! {
                _ = due.tick() => {
                    self.note_ping(number);
                    send(writing, &NodeMessage::Ping { number }).await?;
                    if self.membership.keys.take_lack() {
                        send(writing, &NodeMessage::WantKeys { protocol: PROTOCOL }).await?;
                    }
                    send(writing, &NodeMessage::Report(self.node.host.moved())).await?;
                }
                Some(report) = reported.recv() => send(writing, &NodeMessage::Report(report)).await?,
                Some(forwarded) = commands.recv() => {
                    let ForwardedCommand { command, again, to } = forwarded;
                    let command = Box::new(command);
                    self.note_command(number, to);
                    send(writing, &NodeMessage::Command { number, again, command }).await?;
                }
                () = self.keys_told.notified() => {
                    let names = self.membership.keys.names_in_use();
                    send(writing, &NodeMessage::HasKeys { names }).await?;
                }
                () = turns_true(&mut leaving), if !has_left => {
                    has_left = true;
                    send(writing, &NodeMessage::Leaves).await?;
                }
            }
        }
    }

    fn note_ping(&self, number: u64) {
        let mut pings = self.pings.lock();
        if pings.len() >= PINGS_MAX {
            pings.pop_front();
        }
        pings.push_back((number, Instant::now()));
    }

    fn note_command(&self, number: u64, to: oneshot::Sender<Reply>) {
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, to| !to.is_closed());
        waiting.insert(number, to);
    }
}

/// Resolves when it does, or when nobody can make it any more.
pub(super) async fn turns_true(told: &mut watch::Receiver<bool>) {
    drop(told.wait_for(|told| *told).await.map(|told| *told));
}
