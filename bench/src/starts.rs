//! From a submission to its start: single files are submitted at a fixed pace, whatever became of those
//! before, and each has started when its storage element is first asked for it. So TLS, checks, two commits
//! and the agent's first request are all inside.

use crate::cell::Scale;
use crate::error::BenchError;
use crate::interface::submission;
use crate::process::cpu_used;
use crate::report::{Table, figures};
use crate::requests::{self, Order, Prepared, permille};
use crate::servers::penstock::{Limits, OwnService, STUB_QUICK, STUB_SOURCE, Service};
use crate::service::api_of;
use crate::stub::{GRID_SIDE, NOTED, Stub, grid_destination, grid_hosts, grid_source};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Between two submissions.
const PACE: Duration = Duration::from_millis(10);
/// How long a transfer may take to start before the cell is given up.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Transfers at once out of and into a storage element of the grid.
const GRID_SLOTS: u32 = 8;

/// Latencies.
pub const STARTS: Table = Table {
    title: "From submission to start",
    note: "Jobs of one file on a link of their own, one each 10 ms; from before the request is sent until the \
           file's storage element is first asked for it. Percentiles are of all samples. FTS3's figures are to \
           the state ACTIVE.",
    columns: &[
        "while",
        "samples",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "most ms",
        "service CPU, cores",
        "moved/s meanwhile",
        "FTS3",
    ],
};

/// What the service is allowed.
pub fn limits() -> Limits {
    Limits {
        link: 200,
        storage: 200,
        active: 600,
        ..Limits::default()
    }
}

/// What it is allowed with a backlog: one transfer on each link of the grid, so that most of what is submitted
/// waits. The grid's storage elements get limits that leave slots of the service free.
pub fn limits_of_backlog() -> Limits {
    Limits {
        link: 1,
        links: vec![(STUB_SOURCE, STUB_QUICK, 200)],
        ..limits()
    }
}

/// The row with nothing else to do.
pub async fn idle(
    own: &OwnService,
    stub: &Stub,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let sample = Sample {
        service: &own.service,
        stub,
        count: samples(scale),
    };
    let seen = sample.take("idle").await?;
    let fts = "p50 1,120, from 500 to 2,100";
    Ok(vec![seen.row("nothing else is there", fts)])
}

/// The rows with many files queued on other links: while their storage stands still, and while it takes them.
pub async fn backlog(
    own: &OwnService,
    stub: &Stub,
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let service = &own.service;
    stub.let_go(false);
    let files = fill(service, stub, scale).await?;
    let sample = Sample {
        service,
        stub,
        count: samples(scale),
    };
    let links = usize::from(GRID_SIDE).pow(2);
    let at_rest = sample.take("at-rest").await;
    stub.let_go(true);
    let moving = sample.take("moving").await?;
    Ok(vec![
        at_rest?.row(
            &format!("{files} files wait on {links} other links, whose slots are taken"),
            "-",
        ),
        moving.row(
            &format!("{files} files on {links} other links are moved as fast as can be"),
            "mean 14,900 with 98,000 on 1,000 links",
        ),
    ])
}

fn samples(scale: Scale) -> usize {
    match scale {
        Scale::Full { .. } => 1000,
        Scale::Quick => 20,
    }
}

/// Allows few transfers out of and into each storage element of the grid.
pub async fn bound_grid(service: &Service) -> Result<(), BenchError> {
    let storages = grid_hosts().map(|host| {
        format!(
            "\"https://{host}\":{{\"se_info\":{{\"inbound_max_active\":{GRID_SLOTS},\
             \"outbound_max_active\":{GRID_SLOTS}}}}}"
        )
    });
    let storages = format!("{{{}}}", storages.collect::<Vec<_>>().join(","));
    let set = Prepared::post(service, "config/se", storages.into_bytes())?;
    set.fetch(service).await?;
    Ok(())
}

/// Queues files on every link of the grid. Gives how many.
async fn fill(service: &Service, stub: &Stub, scale: Scale) -> Result<usize, BenchError> {
    bound_grid(service).await?;
    let each = match scale {
        Scale::Full { .. } => 100,
        Scale::Quick => 2,
    };
    let links = (0..GRID_SIDE).flat_map(|from| (0..GRID_SIDE).map(move |to| (from, to)));
    let jobs = links.map(|(from, to)| {
        let link = (grid_source(from), grid_destination(to));
        let body = submission(stub, link, &format!("/from-{from}-to-{to}"), each);
        Prepared::post(service, "jobs", body)
    });
    let jobs: Arc<[Prepared]> = jobs.collect::<Result<_, _>>()?;
    let time = Duration::from_secs(60);
    let phase = requests::run(service, &jobs, Order::Once, 8, time).await?;
    if phase.latencies.len() < jobs.len() {
        return Err(BenchError::failed("the backlog takes more than a minute"));
    }
    // Who came first may leave the last free slots of a source and of a destination without a link between
    // them.
    let held = u64::from(GRID_SIDE) * u64::from(GRID_SLOTS) * 9 / 10;
    let deadline = Instant::now() + START_TIMEOUT;
    while stub.held() < held {
        if Instant::now() > deadline {
            let active = api_of(service).overview().await?.totals.active;
            let text = format!("of {held} transfers of the grid {active} are active");
            return Err(BenchError::failed(text));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(jobs.len() * each)
}

/// Submissions at a pace.
struct Sample<'a> {
    service: &'a Service,
    stub: &'a Stub,
    count: usize,
}

/// What they saw.
struct Seen {
    /// The shortest first.
    latencies: Vec<Duration>,
    /// Of CPU time of the service per second.
    cores: f64,
    /// Transfers per second that ended well.
    moved: f64,
}

impl Sample<'_> {
    async fn take(&self, name: &str) -> Result<Seen, BenchError> {
        let link = (STUB_SOURCE, STUB_QUICK);
        let jobs = (0..self.count).map(|number| {
            let directory = format!("{NOTED}{name}/{number}");
            let body = submission(self.stub, link, &directory, 1);
            Ok((
                format!("{directory}/f0"),
                Prepared::post(self.service, "jobs", body)?,
            ))
        });
        let jobs: Vec<(String, Prepared)> = jobs.collect::<Result<_, BenchError>>()?;
        // Connections, and whatever is made at the first transfer.
        for warming in 0..5 {
            let directory = format!("/warm-up-{name}-{warming}");
            let body = submission(self.stub, link, &directory, 1);
            Prepared::post(self.service, "jobs", body)?
                .fetch(self.service)
                .await?;
        }
        let used_before = cpu_used(&[self.service.process]);
        let moved_before = self.moved().await?;
        let began = Instant::now();
        let mut pace = tokio::time::interval(PACE);
        let mut sending = JoinSet::new();
        let mut sent = Vec::with_capacity(jobs.len());
        for (path, job) in jobs {
            pace.tick().await;
            sent.push((path, Instant::now()));
            let service = self.service.clone();
            sending.spawn(async move { job.fetch(&service).await });
        }
        for answer in sending.join_all().await {
            answer?;
        }
        let moved = self.moved().await? - moved_before;
        let wall = began.elapsed();
        let used = cpu_used(&[self.service.process]).saturating_sub(used_before);
        let mut latencies = Vec::with_capacity(sent.len());
        for (path, sent) in &sent {
            latencies.push(self.started(path).await?.saturating_duration_since(*sent));
        }
        latencies.sort_unstable();
        Ok(Seen {
            latencies,
            cores: used.as_secs_f64() / wall.as_secs_f64(),
            moved: moved as f64 / wall.as_secs_f64(),
        })
    }

    async fn moved(&self) -> Result<u64, BenchError> {
        Ok(api_of(self.service).overview().await?.totals.finished)
    }

    async fn started(&self, path: &str) -> Result<Instant, BenchError> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(at) = self.stub.first_asked(path) {
                return Ok(at);
            }
            if Instant::now() > deadline {
                return Err(BenchError::failed(format!("{path} was never asked for")));
            }
            tokio::time::sleep(PACE).await;
        }
    }
}

impl Seen {
    fn row(&self, when: &str, fts: &str) -> Vec<String> {
        let at = |share| figures(permille(&self.latencies, share).as_secs_f64() * 1e3);
        vec![
            when.to_owned(),
            self.latencies.len().to_string(),
            at(500),
            at(900),
            format!("**{}**", at(990)),
            at(1000),
            figures(self.cores),
            figures(self.moved),
            fts.to_owned(),
        ]
    }
}
