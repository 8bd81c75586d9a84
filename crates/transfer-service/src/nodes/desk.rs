//! Where questions go that only the leader answers: to the loop of this process, or to another node.
//!
//! While nobody leads they wait for who comes next, as long as a client has patience; then nothing is known of them.

use super::asked::{Answered, Asked};
use crate::run::Message;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Who leads, as this node sees it.
#[derive(Clone, Default)]
pub(crate) enum Seat {
    /// Nobody that is known.
    #[default]
    Vacant,
    /// This node.
    Here(mpsc::Sender<Message>),
    /// Another one.
    There(mpsc::Sender<Question>),
    /// Nobody any more: this process is ending.
    Closed,
}

/// A question for another node.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) asked: Asked,
    pub(crate) again: bool,
    pub(crate) answer: oneshot::Sender<Answered>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Nobody led for too long. What was asked for may still happen.
    Leaderless,
    /// This process is ending.
    Ending,
}

/// Passes questions on.
#[derive(Clone)]
pub(crate) struct Desk {
    seat: watch::Receiver<Seat>,
    /// How long a question may wait for a leader; `None`: nobody else can lead, so it waits until this process does.
    patience: Option<Duration>,
}

impl Desk {
    pub(crate) fn new(seat: watch::Receiver<Seat>, patience: Option<Duration>) -> Desk {
        Desk { seat, patience }
    }

    /// True while somebody leads.
    pub(crate) fn is_staffed(&self) -> bool {
        matches!(*self.seat.borrow(), Seat::Here(_) | Seat::There(_))
    }

    /// The leader's answer. A question whose answer did not arrive is asked again.
    pub(crate) async fn ask(&self, asked: Asked) -> Result<Answered, NoAnswer> {
        match self.patience {
            None => self.ask_until_answered(asked).await,
            Some(patience) => {
                let until = Instant::now() + patience;
                let answer = tokio::time::timeout_at(until, self.ask_until_answered(asked)).await;
                answer.unwrap_or(Err(NoAnswer::Leaderless))
            }
        }
    }

    async fn ask_until_answered(&self, asked: Asked) -> Result<Answered, NoAnswer> {
        let mut seat = self.seat.clone();
        let mut again = false;
        loop {
            let known = seat.borrow_and_update().clone();
            match known {
                Seat::Closed => return Err(NoAnswer::Ending),
                Seat::Vacant => {}
                Seat::Here(_) | Seat::There(_) => {
                    if let Some(answer) = self.ask_once(asked.clone(), again).await {
                        return Ok(answer);
                    }
                    again = true;
                }
            }
            // A leader that gave no answer is about to be another.
            let changed = tokio::time::timeout(Duration::from_millis(200), seat.changed()).await;
            if let Ok(Err(_)) = changed {
                return Err(NoAnswer::Ending);
            }
        }
    }

    async fn ask_once(&self, asked: Asked, again: bool) -> Option<Answered> {
        let (answer, answered) = oneshot::channel();
        let seat = self.seat.borrow().clone();
        match seat {
            Seat::Here(inputs) => {
                let message = Message::Asked {
                    asked,
                    again,
                    answer,
                };
                inputs.send(message).await.ok()?;
            }
            Seat::There(questions) => {
                let question = Question {
                    asked,
                    again,
                    answer,
                };
                questions.send(question).await.ok()?;
            }
            Seat::Vacant | Seat::Closed => return None,
        }
        answered.await.ok()
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
            Seat::Here(inputs) => Some(inputs.clone()),
            Seat::Vacant | Seat::There(_) | Seat::Closed => None,
        }
    }
}
