//! What fuzz targets need of parsers that nobody outside may use otherwise.

use crate::node::wire::{LeaderMessage, NodeMessage, ReceivedFrame, receive, send};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::io;

/// What a node reads from another node's messages.
#[derive(Debug)]
pub struct NodeFrame {
    /// As this node would send it.
    pub written: Vec<u8>,
    /// As logs may show it.
    pub shown: String,
}

/// The first frame of a follower; `None` when it says nothing that this version knows. Errors: the connection would end.
pub async fn frame_of_follower(bytes: &[u8]) -> io::Result<Option<NodeFrame>> {
    frame::<NodeMessage>(bytes).await
}

/// The first frame of a leader.
pub async fn frame_of_leader(bytes: &[u8]) -> io::Result<Option<NodeFrame>> {
    frame::<LeaderMessage>(bytes).await
}

async fn frame<T: Serialize + DeserializeOwned + Debug>(
    mut bytes: &[u8],
) -> io::Result<Option<NodeFrame>> {
    let said: T = match receive(&mut bytes).await? {
        ReceivedFrame::Known(said) => said,
        ReceivedFrame::Unknown | ReceivedFrame::Nothing => return Ok(None),
    };
    let mut written = Vec::new();
    send(&mut written, &said).await?;
    let shown = format!("{said:?}");
    Ok(Some(NodeFrame { written, shown }))
}
