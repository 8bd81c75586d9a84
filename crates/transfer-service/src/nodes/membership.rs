//! This process as one of several: how it is known to the others by the database, and until when it is certain to lead.
//! How it leads and follows is in `leadership`.

use super::LeaderLoop;
use parking_lot::Mutex;
use penstock_model::{NodeId, Tenure};
use penstock_persistence::cluster::{Cluster, Leadership, NodeRow, SeenNode};
use penstock_persistence::postgres::{Database, DatabaseError, SCHEMA_VERSION};
use penstock_persistence::sealing::SealingKeys;
use penstock_protocol::tls::PeerTls;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

/// How long a lease lasts that is not renewed.
pub(super) const LEASE: Duration = Duration::from_secs(3);
/// How often a node tells that it is there.
const REGISTER_EVERY: Duration = Duration::from_secs(5);
/// How long agents go on without a leader.
pub(crate) const NODE_TERM: Duration = Duration::from_secs(15);

/// What it takes to be one of several.
#[derive(Clone)]
pub struct NodesConfig {
    /// This node's name.
    pub node: NodeId,
    /// `host:port` where the others reach it.
    pub address: String,
    /// Where it listens for them.
    pub listener: Arc<TcpListener>,
    /// What it shows them.
    pub tls: PeerTls,
    pub database: Database,
    /// Who is there, and who leads.
    pub cluster: Arc<Cluster>,
    /// The file of the keys that seal secrets.
    pub key_file: PathBuf,
}

/// What a node tells of itself.
pub(super) fn row_of(config: &NodesConfig, agents_max: u32) -> NodeRow {
    NodeRow {
        id: config.node.clone(),
        address: config.address.clone(),
        certificate_sha256: config.tls.fingerprint(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        schema: SCHEMA_VERSION,
        agents_max,
    }
}

/// This process as one of several.
pub(crate) struct Membership {
    pub(super) id: NodeId,
    row: NodeRow,
    pub(super) tls: PeerTls,
    pub(super) listener: Arc<TcpListener>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) key_file: PathBuf,
    pub(super) keys: SealingKeys,
    pub(super) database: Database,
    /// All that are registered, as they were seen last.
    pub(super) nodes: watch::Sender<Vec<SeenNode>>,
    /// Until when this node is certain to lead.
    certain_until: Mutex<Option<Instant>>,
    /// Which leadership is known last, and whose.
    pub(super) known: watch::Sender<(Tenure, Option<NodeId>)>,
    /// It is about to end.
    pub(super) leaving: watch::Sender<bool>,
    /// The connection to a leader has ended.
    pub(super) disconnected: Notify,
    pub(super) drain_grace: Duration,
}

impl Membership {
    pub(crate) fn new(
        config: NodesConfig,
        keys: SealingKeys,
        drain_grace: Duration,
    ) -> Arc<Membership> {
        let membership = Membership {
            row: row_of(&config, 0),
            id: config.node,
            tls: config.tls,
            listener: config.listener,
            cluster: config.cluster,
            key_file: config.key_file,
            keys,
            database: config.database,
            nodes: watch::Sender::default(),
            certain_until: Mutex::default(),
            known: watch::Sender::default(),
            leaving: watch::Sender::new(false),
            disconnected: Notify::new(),
            drain_grace,
        };
        Arc::new(membership)
    }

    /// True while nobody else can lead.
    pub(super) fn is_certain(&self) -> bool {
        let until = self.certain_until.lock();
        let until = until;
        until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn be_certain(&self, until: Option<Instant>) {
        let mut known = self.certain_until.lock();
        *known = until;
    }

    /// A node as it is registered.
    pub(super) async fn known_as(&self, id: &NodeId) -> Option<NodeRow> {
        for _ in 0..2 {
            let found = {
                let nodes = self.nodes.borrow();
                nodes.iter().find(|seen| seen.node.id == *id).cloned()
            };
            if let Some(found) = found {
                return Some(found.node);
            }
            self.look().await;
        }
        None
    }

    /// Reads who is there.
    pub(super) async fn look(&self) {
        let cluster = self.cluster.clone();
        match tokio::task::spawn_blocking(move || cluster.nodes()).await {
            Ok(Ok(nodes)) => drop(self.nodes.send_replace(nodes)),
            Ok(Err(error)) => tracing::debug!(%error, "who is there is not known"),
            // A panic was told of.
            Err(_) => {}
        }
    }

    /// Tells that this node is there, and reads who else is.
    async fn meet(&self, agents_max: u32) -> Result<(), DatabaseError> {
        let row = NodeRow {
            certificate_sha256: self.tls.fingerprint(),
            agents_max,
            ..self.row.clone()
        };
        let cluster = self.cluster.clone();
        let met = tokio::task::spawn_blocking(move || {
            cluster.register(&row)?;
            cluster.nodes()
        });
        if let Ok(nodes) = met.await {
            self.nodes.send_replace(nodes?);
        }
        Ok(())
    }

    pub(super) async fn keep_meeting(self: Arc<Self>, leader_loop: Arc<LeaderLoop>) {
        loop {
            let agents_max = leader_loop.config().slots.agents.0;
            if let Err(error) = self.meet(agents_max).await {
                tracing::debug!(%error, "this node could not tell that it is there");
            }
            tokio::time::sleep(REGISTER_EVERY).await;
        }
    }

    pub(super) async fn try_lead(self: &Arc<Self>) -> Result<Leadership, DatabaseError> {
        let (cluster, id) = (self.cluster.clone(), self.id.clone());
        let is_leaving = *self.leaving.borrow();
        let asked = tokio::task::spawn_blocking(move || match is_leaving {
            false => cluster.try_lead(&id, LEASE),
            true => Ok(match cluster.leader()? {
                Some((leader, tenure, remaining)) => Leadership::Following {
                    leader: Some(leader),
                    tenure,
                    remaining,
                },
                None => Leadership::Following {
                    leader: None,
                    tenure: Tenure::default(),
                    remaining: Duration::ZERO,
                },
            }),
        });
        match asked.await {
            Ok(answer) => answer,
            // A panic was told of; it is tried again.
            Err(why) => Err(DatabaseError::Setup(why.to_string())),
        }
    }
}
