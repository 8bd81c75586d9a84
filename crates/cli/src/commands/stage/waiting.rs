//! Waiting until stage requests have their end, with progress.

use super::requests::{NamedFile, OpenRequest};
use crate::commands::access::{Access, Purpose};
use crate::commands::progress::shown;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_field_tools::progress::Progress;
use penstock_field_tools::remote::Remote;
use penstock_model::{Bytes, FileProgress};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Requests are looked at after this time at first, and more rarely the longer they take.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often in a row a storage element may not answer before the wait is given up.
const MISSED_MAX: u32 = 60;
/// Files whose sizes are looked up at once.
const LOOKS: usize = 8;

/// Learns what is known of requests that were just made.
pub async fn look_once(requests: &mut [OpenRequest]) -> Result<(), CommandError> {
    for request in requests {
        match request.tape.status(&request.id).await {
            Ok(status) => request.status = Some(status),
            // The request is made all the same, and can be looked at later.
            Err(why) if why.is_transient() => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(())
}

/// Waits until nothing of any request is on its way. Outages are waited out for some minutes.
pub async fn for_end(
    requests: &mut [OpenRequest],
    access: &Access,
    output: Output,
) -> Result<(), CommandError> {
    if requests.is_empty() {
        return Ok(());
    }
    let progress = Arc::new(Progress::new());
    let waiting = async {
        let sizes = sizes_of(requests, access).await;
        let files: usize = requests.iter().map(|request| request.files.len()).sum();
        let bytes = sizes.values().map(|size| size.0).sum();
        progress.expect(files as u64, Bytes(bytes));
        wait(requests, &sizes, &progress).await
    };
    tokio::select! {
        ended = shown(&progress, output, waiting) => ended,
        _ = tokio::signal::ctrl_c() => {
            let text = "no longer waiting; the stage requests continue (stop them with penstock stage cancel)";
            Err(CommandError::Interrupted(text.to_owned()))
        }
    }
}

async fn wait(
    requests: &mut [OpenRequest],
    sizes: &HashMap<String, Bytes>,
    progress: &Progress,
) -> Result<(), CommandError> {
    let (mut pause, mut missed) = (PAUSE_FIRST, HashMap::new());
    loop {
        let mut silent = HashSet::new();
        for request in requests.iter_mut().filter(|request| !request.has_ended()) {
            let server = &request.server;
            if silent.contains(server) {
                continue;
            }
            match request.tape.status(&request.id).await {
                Ok(status) => {
                    missed.remove(server);
                    request.status = Some(status);
                }
                Err(why) => {
                    let missed: &mut u32 = missed.entry(server.clone()).or_default();
                    *missed += 1;
                    if !why.is_transient() || *missed > MISSED_MAX {
                        return Err(why.into());
                    }
                    silent.insert(server.clone());
                }
            }
        }
        count(requests, sizes, progress);
        if requests.iter().all(OpenRequest::has_ended) {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 5 / 4).min(PAUSE_MAX);
    }
}

/// Files that have ended, and bytes of those that are on disk.
fn count(requests: &[OpenRequest], sizes: &HashMap<String, Bytes>, progress: &Progress) {
    let (mut ended, mut bytes) = (0, 0);
    for request in requests {
        let told = request.status.iter().flat_map(|status| &status.files);
        for file in told.filter(|file| file.progress != FileProgress::Pending) {
            ended += 1;
            if file.progress == FileProgress::OnDisk {
                let key = key(&request.server, &file.path);
                bytes += sizes.get(&key).map_or(0, |size| size.0);
            }
        }
    }
    let reading = progress.read();
    for _ in reading.files_ended..ended {
        progress.file_ended();
    }
    progress.measured(Bytes(bytes), reading.bytes_total);
}

fn key(server: &str, path: &str) -> String {
    format!("{server}{path}")
}

/// The sizes of the files, as far as they are told: without them the wait is the same, and shows files only.
async fn sizes_of(requests: &[OpenRequest], access: &Access) -> HashMap<String, Bytes> {
    let files = requests.iter().flat_map(|request| {
        let files = request.files.iter();
        files.map(|file| (request.server.clone(), file.clone()))
    });
    let mut files = files.collect::<Vec<(String, NamedFile)>>().into_iter();
    let mut looking = JoinSet::new();
    let mut sizes = HashMap::new();
    loop {
        while looking.len() < LOOKS
            && let Some((server, file)) = files.next()
        {
            let Ok(credentials) = access.for_files(&[(&file.url, Purpose::Read)]) else {
                continue;
            };
            let remote = Remote::new(access.client.clone(), credentials);
            looking.spawn(async move {
                let found = remote.stat(&file.url).await.ok();
                let size = found.and_then(|info| info.size_bytes);
                (key(&server, &file.path), size)
            });
        }
        match looking.join_next().await {
            Some(Ok((key, Some(size)))) => {
                sizes.insert(key, size);
            }
            Some(_) => {}
            None => return sizes,
        }
    }
}
