//! The nodes that follow this one while it leads, and how they are reached.

use crate::agent::Progress;
use crate::node::AgentHost;
use crate::node::wire::LeaderMessage;
use parking_lot::{Mutex, MutexGuard};
use penstock_engine::Order;
use penstock_model::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// How often it is looked whether those are gone that were waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What may wait for one node; one that is further behind is cut off, and tells what it runs when it is back.
pub(crate) const DOWN_MAX: usize = 65_536;

/// The nodes by name.
pub(crate) struct Followers {
    own: NodeId,
    host: Arc<AgentHost>,
    sessions: AtomicU64,
    others: Mutex<BTreeMap<NodeId, ConnectedNode>>,
    /// A node has told which keys it has, or has gone.
    keys_told: Notify,
}

struct ConnectedNode {
    session: u64,
    down: mpsc::Sender<Arc<LeaderMessage>>,
    /// The names of the credential keys that it has told to have.
    keys: BTreeSet<String>,
}

impl Followers {
    pub(crate) fn new(own: NodeId, host: Arc<AgentHost>) -> Followers {
        Followers {
            own,
            host,
            sessions: AtomicU64::new(0),
            others: Mutex::default(),
            keys_told: Notify::new(),
        }
    }

    fn others(&self) -> MutexGuard<'_, BTreeMap<NodeId, ConnectedNode>> {
        self.others.lock()
    }

    /// A number that no session of this process had.
    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A node is reached by this from now on, and no more by what it was reached by before. False when it is reached by
    /// a later session already.
    pub(crate) fn enter(
        &self,
        node: NodeId,
        session: u64,
        down: mpsc::Sender<Arc<LeaderMessage>>,
    ) -> bool {
        let mut others = self.others();
        let known = others.get(&node);
        let is_later = known.is_none_or(|linked| linked.session < session);
        if is_later {
            let keys = BTreeSet::new();
            others.insert(
                node,
                ConnectedNode {
                    session,
                    down,
                    keys,
                },
            );
        }
        is_later
    }

    /// A session has ended. False when a later one has taken its place.
    pub(crate) fn leave(&self, node: &NodeId, session: u64) -> bool {
        let mut others = self.others();
        let is_it = others
            .get(node)
            .is_some_and(|linked| linked.session == session);
        is_it && others.remove(node).is_some()
    }

    /// Notes which credential keys a node has.
    pub(crate) fn has_keys(&self, node: &NodeId, session: u64, names: Vec<String>) {
        if let Some(linked) = self.others().get_mut(node)
            && linked.session == session
        {
            linked.keys = names.into_iter().collect();
        }
        self.keys_told.notify_waiters();
    }

    /// Waits until all others have these keys, for so long at most. Those that have not are let go: they get the keys
    /// when they come back, before anything else.
    pub(crate) async fn until_all_have(&self, names: &[String], patience: Duration) {
        let lacks = |linked: &ConnectedNode| names.iter().any(|name| !linked.keys.contains(name));
        let all_have = async {
            loop {
                let mut told = std::pin::pin!(self.keys_told.notified());
                told.as_mut().enable();
                if !self.others().values().any(lacks) {
                    return;
                }
                // A node that goes does not tell.
                drop(tokio::time::timeout(LOOK_EVERY, told).await);
            }
        };
        if tokio::time::timeout(patience, all_have).await.is_err() {
            self.others().retain(|node, linked| {
                let stays = !lacks(linked);
                if !stays {
                    tracing::warn!(%node, "a node has not accepted the credential keys; it must reconnect");
                }
                stays
            });
        }
    }

    /// This node leads no more: all others look for who does.
    pub(crate) fn dismiss(&self) {
        self.others().clear();
    }

    /// How many others there are.
    pub(crate) fn count(&self) -> usize {
        self.others().len()
    }

    /// Has a node do something. Orders for an ended session are dropped: on joining again the node was asked what
    /// it runs.
    pub(crate) fn order(
        &self,
        node: &NodeId,
        session: u64,
        order: Order,
        progress: Option<Arc<Progress>>,
    ) {
        if *node == self.own {
            self.host.take(order, progress);
            return;
        }
        let mut others = self.others();
        let is_behind = match others.get(node) {
            Some(linked) if linked.session == session => linked
                .down
                .try_send(Arc::new(LeaderMessage::Order(order)))
                .is_err(),
            _ => false,
        };
        if is_behind {
            others.remove(node);
        }
    }

    pub(crate) fn tell_all(&self, down: LeaderMessage) {
        let down = Arc::new(down);
        let told = |linked: &mut ConnectedNode| linked.down.try_send(down.clone()).is_ok();
        self.others().retain(|_, linked| told(linked));
    }
}
