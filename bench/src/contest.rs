//! Interleaved pairs: Penstock, peer, peer, Penstock, … in the same minute on the same machine, so that what
//! disturbs one disturbs the other. The result is the median of the pairs' ratios.

use crate::cell::{Beside, Kind, Scale};
use crate::error::BenchError;
use crate::load::{self, Bound, Operation, Phase};
use crate::process::cpu_used;
use crate::servers::Target;
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

/// How long a server may go on working after its last answer, and how often that is looked at.
const SETTLE_MAX: Duration = Duration::from_secs(5);
const SETTLE_LOOK: Duration = Duration::from_millis(100);

/// One server, or two for copies.
pub struct Contender {
    /// Where files are put and read, and copied from.
    pub source: Target,
    /// Where they are copied to.
    pub destination: Option<Target>,
}

/// What both did, pair by pair. Empty when there is no such server.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Penstock.
    pub ours: Vec<Phase>,
    /// The peer.
    pub peer: Vec<Phase>,
}

/// Runs all pairs of a cell. A server that is missing is left out.
pub async fn run(
    cell: &Beside,
    scale: Scale,
    ours: Option<&Contender>,
    peer: Option<&Contender>,
) -> Result<Outcome, BenchError> {
    let mut entrants = [None, None];
    for (entrant, contender) in entrants.iter_mut().zip([ours, peer]) {
        if let Some(contender) = contender {
            *entrant = Some(Entrant::prepare(cell, scale, contender).await?);
        }
    }
    let mut results: [Vec<Phase>; 2] = Default::default();
    for round in 0..scale.pairs() {
        // Whoever is second finds the machine as the first has left it: take turns.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            if let Some(entrant) = &entrants[side] {
                let phase = entrant
                    .phase(&format!("r{round}"), cell.bound(scale))
                    .await?;
                results[side].push(phase);
            }
        }
    }
    for entrant in entrants.iter().flatten() {
        entrant.clear_sources().await?;
    }
    let [ours, peer] = results;
    Ok(Outcome { ours, peer })
}

/// One phase of Penstock alone, for a profiler: not counted.
pub async fn run_once(
    cell: &Beside,
    scale: Scale,
    ours: &Contender,
    bound: Bound,
) -> Result<Phase, BenchError> {
    let entrant = Entrant::prepare(cell, scale, ours).await?;
    let phase = entrant.phase("profiled", bound).await?;
    entrant.clear_sources().await?;
    Ok(phase)
}

/// A contender with its files in place.
struct Entrant<'a> {
    cell: &'a Beside,
    contender: &'a Contender,
    file_bytes: u64,
    source_directory: Url,
    sources: Arc<[Url]>,
}

impl<'a> Entrant<'a> {
    async fn prepare(
        cell: &'a Beside,
        scale: Scale,
        contender: &'a Contender,
    ) -> Result<Entrant<'a>, BenchError> {
        let target = &contender.source;
        load::connect(target, cell.clients).await?;
        if let Some(destination) = &contender.destination {
            load::connect(destination, cell.clients).await?;
        }
        let source_directory =
            load::make_directory(target, &format!("{}-source", cell.name())).await?;
        let file_bytes = cell.file_bytes(scale);
        let files = cell.source_files();
        let sources: Arc<[Url]> = (0..files)
            .map(|index| load::numbered(&source_directory, index))
            .collect();
        let put = Operation::Put {
            directory: source_directory.clone(),
            bytes: file_bytes,
        };
        succeed(
            load::run(target, put, cell.clients.min(4), all(files), &[]).await,
            target,
        )?;
        let entrant = Entrant {
            cell,
            contender,
            file_bytes,
            source_directory,
            sources,
        };
        entrant.phase("warm-up", cell.warm_up(scale)).await?;
        Ok(entrant)
    }

    /// Runs one phase in a directory of its own, and removes what it made if that takes room.
    async fn phase(&self, name: &str, bound: Bound) -> Result<Phase, BenchError> {
        let target = self
            .contender
            .destination
            .as_ref()
            .unwrap_or(&self.contender.source);
        let directory = match self.cell.kind {
            Kind::Put | Kind::Copy | Kind::Delete => {
                Some(load::make_directory(target, &format!("{}-{name}", self.cell.name())).await?)
            }
            Kind::Get | Kind::Head | Kind::Propfind => None,
        };
        if let (Kind::Delete, Some(directory)) = (self.cell.kind, &directory) {
            self.fill(target, directory, bound.operations).await?;
        }
        let operation = self.operation(directory.clone().unwrap_or(target.base.clone()));
        let mut measured = target.processes.clone();
        if self.contender.destination.is_some() {
            measured.extend(&self.contender.source.processes);
        }
        let clients = self.cell.clients;
        let phase = load::run(target, operation, clients, bound, &measured).await;
        if let (Some(directory), true) = (directory, self.file_bytes > 0) {
            remove(target, directory, phase.done + phase.failed).await;
        }
        settle(&measured).await;
        succeed(phase, target)
    }

    /// Makes what is removed then, and waits until nothing of that is left to do.
    async fn fill(&self, target: &Target, directory: &Url, files: u64) -> Result<(), BenchError> {
        let put = Operation::Put {
            directory: directory.clone(),
            bytes: self.file_bytes,
        };
        succeed(load::run(target, put, 16, all(files), &[]).await, target)?;
        settle(&target.processes).await;
        Ok(())
    }

    fn operation(&self, directory: Url) -> Operation {
        let bytes = self.file_bytes;
        match self.cell.kind {
            Kind::Put => Operation::Put { directory, bytes },
            Kind::Get => Operation::Get {
                files: Arc::clone(&self.sources),
                bytes,
            },
            Kind::Head => Operation::Head {
                files: Arc::clone(&self.sources),
                bytes,
            },
            Kind::Propfind => Operation::Propfind {
                files: Arc::clone(&self.sources),
            },
            Kind::Delete => Operation::Delete { directory },
            Kind::Copy => Operation::Copy {
                sources: Arc::clone(&self.sources),
                source_authorization: self.contender.source.authorization.clone(),
                directory,
                bytes,
            },
        }
    }

    async fn clear_sources(&self) -> Result<(), BenchError> {
        let target = &self.contender.source;
        remove(
            target,
            self.source_directory.clone(),
            self.sources.len() as u64,
        )
        .await;
        Ok(())
    }
}

/// Waits until a server has ended what it does after its answers (removing data, writing records), so that
/// it is not charged to whoever comes next.
async fn settle(processes: &[u32]) {
    let deadline = Instant::now() + SETTLE_MAX;
    let mut before = cpu_used(processes);
    let mut quiet = 0;
    while quiet < 3 && Instant::now() < deadline {
        tokio::time::sleep(SETTLE_LOOK).await;
        let now = cpu_used(processes);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
    }
    // What one has left dirty must not be written at the cost of the other.
    if tokio::task::spawn_blocking(rustix::fs::sync).await.is_err() {
        eprintln!("the file systems could not be synced between phases");
    }
}

/// Removes numbered files. What fails was not made; the work directory is removed at the end anyway.
async fn remove(target: &Target, directory: Url, files: u64) {
    load::run(target, Operation::Delete { directory }, 4, all(files), &[]).await;
}

fn all(operations: u64) -> Bound {
    Bound {
        operations,
        time: Duration::from_secs(120),
    }
}

/// A figure with failures in it is no figure.
fn succeed(phase: Phase, target: &Target) -> Result<Phase, BenchError> {
    match &phase.failure {
        None => Ok(phase),
        Some(why) => Err(BenchError::failed(format!(
            "{}: {} of {} operations failed, first: {why}",
            target.name,
            phase.failed,
            phase.failed + phase.done
        ))),
    }
}

/// The middle of some figures; `None` of none.
pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(figures[middle]),
        _ => Some((figures[middle - 1] + figures[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_ignores_one_bad_run() {
        assert_eq!(median(vec![3.0, 900.0, 2.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 2.0]), Some(3.0));
        assert_eq!(median(Vec::new()), None);
    }
}
