//! What files that cannot arrive cost others on their link: good files of one VO, from a source that gives each of them
//! 100 kB/s, alone and beside a thousand of another VO whose destinations lie below a file.

use crate::cell::Scale;
use crate::error::BenchError;
use crate::load::{make_directory, put};
use crate::report::{Table, figures, spread};
use crate::servers::Target;
use crate::servers::nginx::{Nginx, SLOW_BYTES_PER_SECOND};
use crate::servers::penstock::{Limits, OwnService, Sites};
use crate::service::{api_of, await_jobs, entry, submit, submit_options, token_of};
use penstock_field_tools::credentials::OneToken;
use penstock_field_tools::job_list::Entry;
use penstock_field_tools::transfer_api::{JobTokens, SubmitOptions, TransferService};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use url::Url;

/// Bytes of a good file: six seconds.
const FILE_BYTES: u64 = 6 * SLOW_BYTES_PER_SECOND;
/// Transfers at once on the link.
const LINK_SLOTS: u32 = 10;
/// Retries of each file that cannot arrive.
const RETRIES: u32 = 3;
/// For one run, and for what is canceled to end.
const TIMEOUT: Duration = Duration::from_secs(200);

/// How long the good files took.
pub const HOPELESS: Table = Table {
    title: "Good files beside hopeless ones",
    note: "From a server that gives each transfer 100 kB/s to a Penstock site, ten at a time on the link. The hopeless files \
           are of another VO and are submitted first; their destinations lie below a file. Alone and beside them take turns, also in \
           which of a pair is first. The ratio is the median of the pairs' ratios, with the lowest and the highest.",
    columns: &[
        "good files",
        "hopeless files",
        "pairs",
        "alone, s",
        "beside, s",
        "ratio",
    ],
};

/// What the service is allowed.
pub fn limits() -> Limits {
    Limits {
        link: LINK_SLOTS,
        storage: 4 * LINK_SLOTS,
        active: 4 * LINK_SLOTS,
        ..Limits::default()
    }
}

/// Between whom, and where.
struct Link<'a> {
    good: TransferService,
    hopeless: TransferService,
    destination: &'a Target,
    source: Url,
    /// A file, below which nothing can lie.
    file: Url,
}

/// The row.
pub async fn run(
    own: &OwnService,
    binary: &Path,
    (sites, nginx): (&Sites, &Nginx),
    scale: Scale,
) -> Result<Vec<Vec<String>>, BenchError> {
    let (good, hopeless) = match scale {
        Scale::Full { .. } => (40, 1_000),
        Scale::Quick => (4, 40),
    };
    let service = &own.service;
    // Users of another site are of another VO.
    let audience = service.url.as_str().trim_end_matches('/');
    let stranger = sites.storage_sites()[0].token_for(binary, "fts", Some(audience))?;
    let directory = make_directory(&sites.destination, "hopeless").await?;
    let link = Link {
        good: api_of(service),
        hopeless: TransferService::new(
            service.client.clone(),
            service.url.clone(),
            Arc::new(OneToken(Some(stranger))),
        ),
        destination: &sites.destination,
        source: nginx.offer_slowly("good", FILE_BYTES)?,
        file: below(&directory, "file")?,
    };
    put(link.destination, link.file.clone(), 1).await?;
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for pair in 0..scale.pairs() {
        for is_alone in [pair % 2 == 0, pair % 2 == 1] {
            let to = format!("hopeless/{pair}-{is_alone}");
            let to = make_directory(&sites.destination, &to).await?;
            match is_alone {
                true => alone.push(take(&link, &to, good).await?),
                false => {
                    let jobs = submit_hopeless(&link, hopeless).await?;
                    beside.push(take(&link, &to, good).await?);
                    cancel(&link, jobs).await?;
                }
            }
        }
    }
    let ratios = beside
        .iter()
        .zip(&alone)
        .map(|(beside, alone)| beside / alone);
    let mean = |seconds: &[f64]| figures(seconds.iter().sum::<f64>() / seconds.len() as f64);
    Ok(vec![vec![
        good.to_string(),
        hopeless.to_string(),
        scale.pairs().to_string(),
        mean(&alone),
        mean(&beside),
        spread(ratios.collect()),
    ]])
}

fn below(directory: &Url, name: &str) -> Result<Url, BenchError> {
    let text = format!("{}/{name}", directory.as_str().trim_end_matches('/'));
    Url::parse(&text).map_err(|why| BenchError::failed(format!("{text}: {why}")))
}

fn options(link: &Link<'_>, retries: u32) -> Result<SubmitOptions, BenchError> {
    Ok(SubmitOptions {
        overwrite: true,
        retries: Some(retries),
        // A submission names tokens for both ends; the source wants none.
        tokens: JobTokens {
            sources: token_of(link.destination)?.into(),
            destinations: token_of(link.destination)?.into(),
        },
        ..submit_options()
    })
}

fn entries(link: &Link<'_>, to: &Url, files: usize) -> Result<Vec<Entry>, BenchError> {
    let each = (0..files).map(|file| entry(&link.source, &below(to, &format!("f{file}"))?));
    each.collect()
}

async fn submit_hopeless(link: &Link<'_>, files: usize) -> Result<Vec<String>, BenchError> {
    let entries = entries(link, &link.file, files)?;
    submit(&link.hopeless, &entries, &options(link, RETRIES)?).await
}

/// How many seconds good files take until all have arrived.
async fn take(link: &Link<'_>, to: &Url, files: usize) -> Result<f64, BenchError> {
    let entries = entries(link, to, files)?;
    let begun = Instant::now();
    let jobs = submit(&link.good, &entries, &options(link, 0)?).await?;
    await_jobs(&link.good, jobs, begun + TIMEOUT).await?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Ends what is left, so that it is not beside the next run.
async fn cancel(link: &Link<'_>, jobs: Vec<String>) -> Result<(), BenchError> {
    let deadline = Instant::now() + TIMEOUT;
    for job in jobs {
        link.hopeless.cancel(&job).await?;
        while !link.hopeless.job(&job).await?.is_terminal() {
            if Instant::now() > deadline {
                return Err(BenchError::failed(format!("job {job} does not end")));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}
