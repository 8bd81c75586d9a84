//! How a node comes by the keys that seal secrets: those of the first one of a service count, all others get them from
//! the leader whenever they start. A node without them neither leads nor serves.

use super::follow::connect;
use super::membership::{NodesConfig, row_of};
use crate::error::ServiceError;
use crate::node::wire::{LeaderMessage, NodeMessage, PROTOCOL, ReceivedFrame, receive, send};
use penstock_model::{Epoch, NodeId};
use penstock_persistence::cluster::Leadership;
use penstock_persistence::postgres::DatabaseError;
use penstock_persistence::sealing::SealingKeys;
use std::io;
use std::time::Duration;
use tokio::sync::watch;

/// The wait before it is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long the first leader of a service may take to make them.
const FIRST_TERM: Duration = Duration::from_secs(10);
/// How long the leader may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl NodesConfig {
    /// The keys that seal secrets: those of this node's file, or what the leader gives. Waits for it until the shutdown
    /// signal.
    pub async fn obtain_keys(
        &self,
        shutdown: watch::Receiver<bool>,
    ) -> Result<SealingKeys, ServiceError> {
        obtain(self, shutdown).await
    }
}

async fn obtain(
    config: &NodesConfig,
    mut shutdown: watch::Receiver<bool>,
) -> Result<SealingKeys, ServiceError> {
    let obtained = async {
        let mut told = None;
        loop {
            match attempt(config).await {
                Ok(Some(keys)) => return Ok(keys),
                Ok(None) => {}
                Err(ServiceError::Keys(why)) => return Err(ServiceError::Keys(why)),
                Err(why) => {
                    // Once for each reason.
                    let why = why.to_string();
                    if told.as_ref() != Some(&why) {
                        tracing::warn!(%why, "this node waits for the credential keys, which the leader has");
                        told = Some(why);
                    }
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    };
    tokio::select! {
        keys = obtained => keys,
        _ = shutdown.wait_for(|stop| *stop) => Err(ServiceError::ShuttingDown),
    }
}

/// Where the keys come from.
enum KeySource {
    /// Whoever leads has them.
    Leader(NodeId),
    /// Nobody has led before: this node may make them.
    FirstNode,
    /// Nobody leads at the moment.
    OwnFile,
}

async fn attempt(config: &NodesConfig) -> Result<Option<SealingKeys>, ServiceError> {
    let (cluster, node, row) = (
        config.cluster.clone(),
        config.node.clone(),
        row_of(config, 0),
    );
    let asked = tokio::task::spawn_blocking(move || {
        cluster.register(&row)?;
        Ok(match cluster.leader()? {
            Some((leader, _, left)) if leader != node && !left.is_zero() => {
                KeySource::Leader(leader)
            }
            Some(_) => KeySource::OwnFile,
            // The lease is kept, so that all others wait for these keys.
            None => match cluster.try_lead(&node, FIRST_TERM)? {
                Leadership::Leading(tenure) if tenure.epoch == Epoch(1) => KeySource::FirstNode,
                Leadership::Leading(_) => KeySource::OwnFile,
                Leadership::Following { leader, .. } => match leader {
                    Some(leader) => KeySource::Leader(leader),
                    None => KeySource::OwnFile,
                },
            },
        })
    });
    let asked = asked
        .await
        .map_err(|why| ServiceError::Thread(why.into()))?;
    let asked = asked.map_err(|why: DatabaseError| ServiceError::Journal(why.into()))?;
    let file = &config.key_file;
    let has_keys = !SealingKeys::names(file)?.is_empty();
    match asked {
        KeySource::Leader(leader) => {
            let told = ask(config, &leader).await;
            let told = told.map_err(|why| ServiceError::NoKeys(leader, why.to_string()))?;
            if SealingKeys::adopt(file, &told)? {
                tracing::info!("got the credential keys of the service");
            }
            Ok(Some(SealingKeys::load_or_create(file)?))
        }
        KeySource::FirstNode => Ok(Some(SealingKeys::load_or_create(file)?)),
        KeySource::OwnFile if has_keys => Ok(Some(SealingKeys::load_or_create(file)?)),
        KeySource::OwnFile => Ok(None),
    }
}

async fn ask(config: &NodesConfig, leader: &NodeId) -> io::Result<String> {
    let cluster = config.cluster.clone();
    let nodes = tokio::task::spawn_blocking(move || cluster.nodes()).await;
    let nodes = nodes.map_err(io::Error::other)?.map_err(io::Error::other)?;
    let found = nodes.into_iter().find(|seen| seen.node.id == *leader);
    let found = found.ok_or_else(|| io::Error::other("it is not registered in the database"))?;
    let mut stream = connect(&config.tls, &found.node).await?;
    send(&mut stream, &NodeMessage::WantKeys { protocol: PROTOCOL }).await?;
    let said = tokio::time::timeout(ANSWER_TIMEOUT, receive(&mut stream)).await;
    match said.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
        ReceivedFrame::Known(LeaderMessage::Keys(keys)) => Ok(keys.0),
        ReceivedFrame::Known(LeaderMessage::Refused { why }) => Err(io::Error::other(why)),
        ReceivedFrame::Known(_) | ReceivedFrame::Unknown => {
            Err(io::Error::other("it does not send its keys"))
        }
        ReceivedFrame::Nothing => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
