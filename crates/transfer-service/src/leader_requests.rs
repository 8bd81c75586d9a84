//! Where commands go that only the leader executes: to the loop of this process, or to another node.
//!
//! While nobody leads they wait for who comes next, as long as a client has patience; then nothing is known of them.

use crate::loop_message::Message;
use penstock_engine::command::{Command, Reply, Request};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Who leads, as this node sees it.
#[derive(Clone, Default)]
pub(crate) enum LeaderSeat {
    /// Nobody that is known.
    #[default]
    Vacant,
    /// This node.
    Here(mpsc::Sender<Message>),
    /// Another one.
    There(mpsc::Sender<ForwardedCommand>),
    /// Nobody any more: this process is ending.
    Closed,
}

/// A command for another node, which leads.
#[derive(Debug)]
pub(crate) struct ForwardedCommand {
    pub(crate) command: Command,
    pub(crate) again: bool,
    pub(crate) to: oneshot::Sender<Reply>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// Nobody led for too long. What was asked for may still happen.
    Leaderless,
    /// This process is ending.
    Ending,
    /// The journal refuses for good what was asked for: nothing of it happens.
    NotRecorded(String),
    /// The leader, which may be of another version, replied to something else.
    Foreign,
}

/// Passes commands to the leader.
#[derive(Clone)]
pub(crate) struct LeaderClient {
    seat: watch::Receiver<LeaderSeat>,
    /// How long a command may wait for a leader; `None`: nobody else can lead, so it waits until this process does.
    patience: Option<Duration>,
}

impl LeaderClient {
    pub(crate) fn new(
        seat: watch::Receiver<LeaderSeat>,
        patience: Option<Duration>,
    ) -> LeaderClient {
        LeaderClient { seat, patience }
    }

    /// True while somebody leads.
    pub(crate) fn is_staffed(&self) -> bool {
        matches!(
            *self.seat.borrow(),
            LeaderSeat::Here(_) | LeaderSeat::There(_)
        )
    }

    /// The leader's reply. A request whose reply did not arrive is sent again.
    pub(crate) async fn ask<R: Request>(&self, request: R) -> Result<R::Reply, NoReply> {
        let replied = self.ask_until_answered(request.into_command());
        let reply = match self.patience {
            None => replied.await,
            Some(patience) => {
                let replied = tokio::time::timeout_at(Instant::now() + patience, replied).await;
                replied.unwrap_or(Err(NoReply::Leaderless))
            }
        };
        match reply? {
            Reply::NotRecorded(why) => Err(NoReply::NotRecorded(why)),
            reply => R::read(reply).ok_or(NoReply::Foreign),
        }
    }

    async fn ask_until_answered(&self, command: Command) -> Result<Reply, NoReply> {
        let mut seat = self.seat.clone();
        let mut again = false;
        loop {
            let known = seat.borrow_and_update().clone();
            match known {
                LeaderSeat::Closed => return Err(NoReply::Ending),
                LeaderSeat::Vacant => {}
                LeaderSeat::Here(_) | LeaderSeat::There(_) => {
                    if let Some(answer) = self.ask_once(command.clone(), again).await {
                        return Ok(answer);
                    }
                    again = true;
                }
            }
            // A leader that gave no answer is about to be another.
            let changed = tokio::time::timeout(Duration::from_millis(200), seat.changed()).await;
            if let Ok(Err(_)) = changed {
                return Err(NoReply::Ending);
            }
        }
    }

    async fn ask_once(&self, command: Command, again: bool) -> Option<Reply> {
        let (to, reply) = oneshot::channel();
        let seat = self.seat.borrow().clone();
        match seat {
            LeaderSeat::Here(inputs) => {
                let message = Message::Command { command, again, to };
                inputs.send(message).await.ok()?;
            }
            LeaderSeat::There(commands) => {
                let command = ForwardedCommand { command, again, to };
                commands.send(command).await.ok()?;
            }
            LeaderSeat::Vacant | LeaderSeat::Closed => return None,
        }
        reply.await.ok()
    }

    /// Tells the loop of this process something, when it leads; otherwise it is of no use.
    pub(crate) async fn tell(&self, message: Message) {
        if let Some(inputs) = self.inputs() {
            // It may have ended; the next one begins anew.
            let _ = inputs.send(message).await;
        }
    }

    /// The loop's inputs while this node leads.
    pub(crate) fn inputs(&self) -> Option<mpsc::Sender<Message>> {
        match &*self.seat.borrow() {
            LeaderSeat::Here(inputs) => Some(inputs.clone()),
            LeaderSeat::Vacant | LeaderSeat::There(_) | LeaderSeat::Closed => None,
        }
    }
}
