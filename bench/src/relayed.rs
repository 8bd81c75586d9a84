//! How many transfers at once a link gets, over a real network: storage sites and the service in network namespaces of their
//! own, joined by a relay with rate, delay and loss. The optimizer stands beside fixed numbers and FTS3's rules.

pub mod cells;

use crate::error::BenchError;
use crate::load::{self, Bound, Operation};
use crate::process::ServerProcess;
use crate::relay::namespaces::{Namespace, own_interface};
use crate::relay::shaping::Stretch;
use crate::relay::{Place, Relay};
use crate::servers::Target;
use crate::servers::penstock::{SERVICE_PORT, Service, SiteFiles, storage_only};
use crate::service;
use penstock_field_tools::credentials::OneToken;
use penstock_field_tools::job_list::Entry;
use penstock_field_tools::transfer_api::{JobTokens, SubmitOptions, TransferService};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use toml_edit::{DocumentMut, value};
use url::Url;

/// First port of each site: namespaces share none.
const PORT: u16 = 8443;
/// Of each file. Small enough that a transfer is over before its window has opened, so that numbers matter.
const FILE_BYTES: u64 = 2_000_000;
/// Different source files; destinations are all different.
const SOURCE_FILES: u64 = 16;
const FILES_PER_JOB: usize = 100;
/// More than any policy can move in a run.
const MARGIN: f64 = 1.3;

/// Who decides how many transfers run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Always so many.
    Fixed(u32),
    /// Penstock's own optimizer.
    Optimizer,
    /// FTS3's published rules.
    Fts3,
}

impl Policy {
    /// For tables.
    pub fn name(self) -> String {
        match self {
            Policy::Fixed(number) => format!("{number} at once"),
            Policy::Optimizer => "Penstock's optimizer".to_owned(),
            Policy::Fts3 => "FTS3's rules".to_owned(),
        }
    }

    fn set(self, document: &mut DocumentMut) {
        document.remove("storage");
        let transfer = &mut document["transfer"];
        let (policy, most) = match self {
            Policy::Fixed(number) => ("fixed", number),
            Policy::Optimizer => ("measured", 100),
            Policy::Fts3 => ("fts3", 100),
        };
        transfer["tuning"] = value(policy);
        transfer["active_max_per_link"] = value(i64::from(most));
        transfer["active_max_per_storage"] = value(400);
    }
}

/// What the network between the sites is like.
#[derive(Debug, Clone)]
pub struct Network {
    /// From each source to the destination.
    pub links: Vec<Stretch>,
    /// Into the destination, shared by all links.
    pub into_destination: Stretch,
}

/// What a run showed, second by second.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// For each link: bytes that arrived in each second, with the headers of their packets.
    pub bytes: Vec<Vec<f64>>,
    /// For each link: how many transfers could run at once, at the end of each second.
    pub limits: Vec<Vec<u32>>,
}

impl Seen {
    /// Bytes per second of a link in these seconds.
    pub fn rate(&self, link: usize, seconds: std::ops::Range<usize>) -> f64 {
        let count = seconds.len().max(1) as f64;
        self.bytes[link]
            .get(seconds)
            .unwrap_or_default()
            .iter()
            .sum::<f64>()
            / count
    }

    /// The same of all links together.
    pub fn total(&self, seconds: std::ops::Range<usize>) -> f64 {
        (0..self.bytes.len())
            .map(|link| self.rate(link, seconds.clone()))
            .sum()
    }
}

/// Jain's index of fairness: 1 when all are equal, 1/n when one has it all (Jain, Chiu, Hawe 1984).
pub fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| {
        (sum + rate, squares + rate * rate)
    });
    match squares > 0.0 {
        true => sum * sum / (rates.len() as f64 * squares),
        false => 0.0,
    }
}

/// Sources, one destination and a service, each in a namespace of its own.
pub struct Grid {
    // Servers end before their namespaces go, and those before the relay.
    destination: Target,
    sources: Vec<Target>,
    _processes: Vec<ServerProcess>,
    files: Vec<SiteFiles>,
    namespaces: Vec<Namespace>,
    relay: Relay,
    binary: PathBuf,
    directory: PathBuf,
    runs: std::cell::Cell<usize>,
}

impl Grid {
    /// Starts everything but the service, with files at the sources.
    pub async fn start(
        binary: &Path,
        directory: &Path,
        sources: usize,
    ) -> Result<Grid, BenchError> {
        let (own, device) = own_interface(1)?;
        let mut ends = vec![(own, device)];
        let mut namespaces = Vec::new();
        for number in 0..sources + 2 {
            let (namespace, device) = Namespace::make(number as u8 + 2)?;
            ends.push((namespace.address, device));
            namespaces.push(namespace);
        }
        let relay = Relay::start(ends)?;
        let mut files: Vec<SiteFiles> = Vec::new();
        let mut processes = Vec::new();
        // The last namespace is the service's.
        for (number, namespace) in namespaces[..=sources].iter().enumerate() {
            let name = format!("s{number}");
            let peers: Vec<&SiteFiles> = files.iter().collect();
            let site =
                SiteFiles::make(binary, directory, &name, (namespace.address, PORT), &peers)?;
            site.edit(storage_only)?;
            processes.push(site.serve(namespace.command(binary), &[0])?);
            files.push(site);
        }
        let targets: Vec<Target> = files
            .iter()
            .zip(&processes)
            .map(|(site, process)| site.target(binary, "https", 0, process))
            .collect::<Result<_, _>>()?;
        let (destination, sources) = targets.split_last().expect("one more than sources");
        let grid = Grid {
            destination: destination.clone(),
            sources: sources.to_vec(),
            _processes: processes,
            files,
            namespaces,
            relay,
            binary: binary.to_owned(),
            directory: directory.to_owned(),
            runs: std::cell::Cell::new(0),
        };
        for source in &grid.sources {
            grid.put_sources(source).await?;
        }
        Ok(grid)
    }

    async fn put_sources(&self, source: &Target) -> Result<(), BenchError> {
        let directory = load::make_directory(source, "files").await?;
        let put = Operation::Put {
            directory,
            bytes: FILE_BYTES,
        };
        let bound = Bound {
            operations: SOURCE_FILES,
            time: Duration::from_secs(30),
        };
        match load::run(source, put, 4, bound, &[]).await.failure {
            None => Ok(()),
            Some(why) => Err(BenchError::failed(format!("making source files: {why}"))),
        }
    }

    fn address(&self, link: usize) -> Ipv4Addr {
        self.namespaces[link].address
    }

    fn destination_address(&self) -> Ipv4Addr {
        self.namespaces[self.sources.len()].address
    }

    /// Makes the network so from now on. What goes back has the same delay and no limit.
    pub fn set(&self, network: &Network) {
        let to = self.destination_address();
        for (link, stretch) in network.links.iter().enumerate() {
            let from = self.address(link);
            self.relay.set(Place::Between(from, to), *stretch);
            let back = Stretch {
                delay: stretch.delay,
                ..Stretch::OPEN
            };
            self.relay.set(Place::Between(to, from), back);
        }
        self.relay.set(Place::Into(to), network.into_destination);
    }

    /// Moves files on the first `links` links for so many seconds. `each_second` is told the second that begins.
    pub async fn run(
        &self,
        policy: Policy,
        links: usize,
        seconds: usize,
        bytes_per_second: f64,
        mut each_second: impl FnMut(usize),
    ) -> Result<Seen, BenchError> {
        let number = self.runs.replace(self.runs.get() + 1);
        let (service, process) = self.serve(policy, number)?;
        let api = TransferService::new(
            service.client.clone(),
            service.url.clone(),
            Arc::new(OneToken(Some(service.token.clone()))),
        );
        let directory = load::make_directory(&self.destination, &format!("run-{number}")).await?;
        let files = (bytes_per_second * seconds as f64 * MARGIN / FILE_BYTES as f64) as u64;
        let mut jobs = Vec::new();
        for link in 0..links {
            jobs.extend(
                self.submit(&api, link, files / links as u64, &directory)
                    .await?,
            );
        }
        let seen = self.watch(&api, links, seconds, &mut each_second).await;
        for job in &jobs {
            // What has ended cannot be canceled, which is fine.
            let _ = api.cancel(job).await;
        }
        drop(process);
        load::remove_tree(&self.destination, directory).await?;
        seen
    }

    fn serve(&self, policy: Policy, number: usize) -> Result<(Service, ServerProcess), BenchError> {
        let namespace = self.namespaces.last().expect("the service's own");
        let peers: Vec<&SiteFiles> = self.files.iter().collect();
        let name = format!("service-{number}");
        let host = (namespace.address, PORT);
        let site = SiteFiles::make(&self.binary, &self.directory, &name, host, &peers)?;
        site.edit(|document, _| policy.set(document))?;
        let process = site.serve(namespace.command(&self.binary), &[SERVICE_PORT])?;
        Ok((site.service(&self.binary, &process)?, process))
    }

    async fn submit(
        &self,
        api: &TransferService,
        link: usize,
        files: u64,
        directory: &Url,
    ) -> Result<Vec<String>, BenchError> {
        let mut from = self.sources[link].base.clone();
        from.set_path(&format!("{}files/", from.path()));
        let options = SubmitOptions {
            tokens: JobTokens {
                sources: service::token_of(&self.sources[link])?.into(),
                destinations: service::token_of(&self.destination)?.into(),
            },
            ..service::submit_options()
        };
        let mut entries: Vec<Entry> = Vec::new();
        for index in 0..files {
            let source = load::numbered(&from, index % SOURCE_FILES);
            let mut to = directory.clone();
            to.set_path(&format!("{}l{link}-", directory.path()));
            entries.push(service::entry(&source, &load::numbered(&to, index))?);
        }
        let mut jobs = Vec::new();
        for chunk in entries.chunks(FILES_PER_JOB) {
            jobs.push(api.submit(chunk, &options).await?);
        }
        Ok(jobs)
    }

    async fn watch(
        &self,
        api: &TransferService,
        links: usize,
        seconds: usize,
        each_second: &mut impl FnMut(usize),
    ) -> Result<Seen, BenchError> {
        let to = self.destination_address();
        let arrived = |link: usize| self.relay.arrived(self.address(link), to);
        let mut seen = Seen {
            bytes: vec![Vec::new(); links],
            limits: vec![Vec::new(); links],
        };
        let mut before: Vec<u64> = (0..links).map(arrived).collect();
        let (mut measured_at, started) = (Instant::now(), Instant::now());
        for second in 0..seconds {
            each_second(second);
            let next = started + Duration::from_secs(second as u64 + 1);
            tokio::time::sleep_until(next.into()).await;
            let passed = measured_at.elapsed().as_secs_f64();
            measured_at = Instant::now();
            let overview = api.overview().await?;
            for (link, before) in before.iter_mut().enumerate() {
                let now = arrived(link);
                seen.bytes[link].push((now - *before) as f64 / passed);
                *before = now;
                let from = self.address(link).to_string();
                let row = overview
                    .links
                    .iter()
                    .find(|row| row.source.ends_with(&from));
                seen.limits[link].push(row.map_or(0, |row| row.limit));
            }
            if overview.totals.failed > 0 {
                return Err(BenchError::failed(format!(
                    "{} transfers failed over the relay",
                    overview.totals.failed
                )));
            }
        }
        Ok(seen)
    }
}
