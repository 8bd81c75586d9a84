//! `penstock du` and `penstock df`: how much there is, and how much room.

use crate::args::{AccessArgs, DfArgs, DuArgs};
use crate::commands::access::{Access, Purpose};
use crate::commands::batch_result::BatchResult;
use crate::commands::files::open;
use crate::environment::Environment;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::directory::SiteDirectory;
use http::Method;
use penstock_field_tools::credentials::Credentials;
use penstock_field_tools::path_filter::PathFilter;
use penstock_field_tools::remote::{Quota, Remote};
use penstock_field_tools::remote_tree::{self, RemoteTree};
use penstock_model::Bytes;
use penstock_model::text::{one_line, plural};
use penstock_model::url::redact;
use penstock_protocol::http1::client::{Client, ClientRequest};
use serde::Serialize;
use std::collections::BTreeMap;
use url::Url;

/// Directories listed at once.
const LISTINGS: usize = 8;
/// Bytes of a page of metrics.
const METRICS_BYTES_MAX: u64 = 16 << 20;
/// Where a door of ours tells them, whatever users left at `/metrics`.
const METRICS_PATH: &str = "/.penstock/metrics";

/// What is below one directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct Sum {
    path: String,
    files: u64,
    bytes: Bytes,
}

#[derive(Debug, Serialize)]
struct DuReport {
    url: String,
    files: u64,
    bytes: Bytes,
    directories: Vec<Sum>,
}

/// `penstock du`.
pub async fn du(
    args: DuArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let remote = open(
        &args.urls,
        Purpose::Read,
        &args.access,
        environment,
        LISTINGS,
    )?;
    let filter = PathFilter {
        include: args.include,
        exclude: args.exclude,
    };
    let mut reports = BatchResult::new();
    for url in &args.urls {
        let name = redact(url.as_str());
        match remote_tree::walk(&remote, url, LISTINGS, &filter).await {
            Err(why) => reports.add(name, Err(why.into())),
            Ok(mut tree) => {
                for why in std::mem::take(&mut tree.problems) {
                    reports.add(&name, Err(CommandError::from(why)));
                }
                reports.add(&name, Ok(sums(url, &tree, args.depth)));
            }
        }
    }
    let not_counted = |count| format!("{} could not be counted", plural(count as u64, "place"));
    reports.conclude_as(output, not_counted, |reports| {
        reports.iter().map(du_text).collect()
    })
}

/// Of the whole, and of each directory down to a depth.
fn sums(url: &Url, tree: &RemoteTree, depth: usize) -> DuReport {
    let mut report = DuReport {
        url: redact(url.as_str()),
        files: 0,
        bytes: Bytes(0),
        directories: Vec::new(),
    };
    let mut by_directory: BTreeMap<&[String], Sum> = BTreeMap::new();
    for directory in tree
        .directories
        .iter()
        .filter(|found| found.names.len() <= depth)
    {
        by_directory.entry(&directory.names).or_default();
    }
    for file in &tree.files {
        let size = file.size.unwrap_or_default().0;
        report.files += 1;
        report.bytes.0 = report.bytes.0.saturating_add(size);
        let above = file.names.len().saturating_sub(1);
        for length in 1..=above.min(depth) {
            let sum = by_directory.entry(&file.names[..length]).or_default();
            sum.files += 1;
            sum.bytes.0 = sum.bytes.0.saturating_add(size);
        }
    }
    let row = |(names, sum): (&[String], Sum)| Sum {
        path: names.join("/"),
        ..sum
    };
    report.directories = by_directory.into_iter().map(row).collect();
    report
}

fn du_text(report: &DuReport) -> String {
    let line = |bytes: Bytes, files: u64, name: &str| {
        let (size, files) = (bytes.to_string(), plural(files, "file"));
        format!("{size:>10}  {files:>14}  {}\n", one_line(name))
    };
    let below = report.directories.iter();
    let base = report.url.trim_end_matches('/');
    let below = below.map(|sum| line(sum.bytes, sum.files, &format!("{base}/{}/", sum.path)));
    below.collect::<String>() + &line(report.bytes, report.files, &report.url)
}

#[derive(Debug, Serialize)]
struct DfReport {
    url: String,
    #[serde(flatten)]
    quota: Quota,
    /// Of one of our doors that tells it.
    pools: Vec<PoolSpace>,
}

/// One pool, as the metrics of a door tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct PoolSpace {
    pool: String,
    /// As configured. `None`: the file system is the bound.
    capacity_bytes: Option<Bytes>,
    used_bytes: Option<Bytes>,
    /// What new files may have. `None`: the disk is away or does not answer.
    free_bytes: Option<Bytes>,
    /// Removed files that are kept for a time and give way.
    trash_bytes: Option<Bytes>,
}

/// `penstock df`.
pub async fn df(
    args: DfArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), CommandError> {
    let urls = match args.urls.is_empty() {
        true => vec![own_door(&args.access)?],
        false => args.urls,
    };
    let access = Access::open(&args.access, environment, 1)?;
    let files: Vec<(&Url, Purpose)> = urls.iter().map(|url| (url, Purpose::Read)).collect();
    let credentials = access.for_files(&files)?;
    let remote = Remote::new(access.client.clone(), credentials.clone());
    let mut reports = BatchResult::new();
    for url in &urls {
        let told = space_of(&remote, &access.client, &*credentials, url).await;
        reports.add(redact(url.as_str()), told);
    }
    reports.conclude(output, |reports| reports.iter().map(df_text).collect())
}

fn own_door(access: &AccessArgs) -> Result<Url, CommandError> {
    let which = || {
        CommandError::Usage(
            "name the storage element: a URL, or --dir of a site with [storage]".to_owned(),
        )
    };
    let directory = access.dir.as_ref().ok_or_else(which)?;
    let config = SiteDirectory::at(directory)?.config()?;
    let door = config.door_url().and_then(|url| Url::parse(&url).ok());
    door.ok_or_else(which)
}

async fn space_of(
    remote: &Remote,
    client: &Client,
    credentials: &dyn Credentials,
    url: &Url,
) -> Result<DfReport, CommandError> {
    let quota = remote.quota(url).await?;
    let pools = pools_of(client, credentials, url).await.unwrap_or_default();
    if quota == Quota::default() && pools.is_empty() {
        return Err(CommandError::NotFound(format!(
            "{}: the storage element does not report its free space",
            redact(url.as_str())
        )));
    }
    Ok(DfReport {
        url: redact(url.as_str()),
        quota,
        pools,
    })
}

/// The pools of a door of ours, where whoever asks may see its metrics; else `None`.
async fn pools_of(
    client: &Client,
    credentials: &dyn Credentials,
    url: &Url,
) -> Option<Vec<PoolSpace>> {
    let mut place = url.clone();
    place.set_path(METRICS_PATH);
    place.set_query(None);
    let mut request = ClientRequest::new(Method::GET, place);
    if let Some(token) = credentials.at(url).ok()?.header(url).ok()? {
        request.headers.insert(http::header::AUTHORIZATION, token);
    }
    let mut answer = client.send(request).await.ok()?;
    if !answer.status.is_success() {
        return None;
    }
    let body = answer.read_all(METRICS_BYTES_MAX).await.ok()?;
    Some(pools_in(std::str::from_utf8(&body).ok()?))
}

/// Reads the pools' bytes out of metrics in Prometheus' text format.
fn pools_in(metrics: &str) -> Vec<PoolSpace> {
    let mut pools: BTreeMap<String, PoolSpace> = BTreeMap::new();
    for line in metrics.lines() {
        let Some((name, rest)) = line.split_once("{pool=\"") else {
            continue;
        };
        let Some((pool, value)) = rest.split_once("\"} ") else {
            continue;
        };
        let value = value.split_ascii_whitespace().next();
        let value = value.and_then(|value| value.parse::<f64>().ok());
        let bytes = value.filter(|value| value.is_finite() && *value >= 0.0);
        let bytes = bytes.map(|value| Bytes(value as u64));
        let pool = pools.entry(pool.to_owned()).or_default();
        match name {
            "penstock_pool_capacity_bytes" => pool.capacity_bytes = bytes,
            "penstock_pool_used_bytes" => pool.used_bytes = bytes,
            "penstock_pool_free_bytes" => pool.free_bytes = bytes,
            "penstock_pool_trash_bytes" => pool.trash_bytes = bytes,
            _ => {}
        }
    }
    let named = |(name, space): (String, PoolSpace)| PoolSpace {
        pool: name,
        ..space
    };
    let pools = pools.into_iter().map(named);
    pools.filter(|pool| pool.used_bytes.is_some()).collect()
}

impl PoolSpace {
    /// As configured, else what is used and free together.
    fn size(&self) -> Option<Bytes> {
        let sum = self.used_bytes.zip(self.free_bytes);
        let sum = sum.map(|(used, free)| Bytes(used.0.saturating_add(free.0)));
        self.capacity_bytes.or(sum)
    }
}

fn df_text(report: &DfReport) -> String {
    let shown = |bytes: Option<Bytes>| bytes.map_or_else(|| "-".to_owned(), |it| it.to_string());
    let row = |name: &str, size: &str, used: &str, free: &str| {
        format!("{size:>10} {used:>10} {free:>10}  {}\n", one_line(name))
    };
    let mut text = row("STORAGE", "SIZE", "USED", "FREE");
    let size = report.pools.iter().map(PoolSpace::size);
    let size: Option<u64> = size.map(|bytes| bytes.map(|bytes| bytes.0)).sum();
    let size = size.filter(|_| !report.pools.is_empty()).map(Bytes);
    let (used, free) = (report.quota.used_bytes, report.quota.available_bytes);
    text += &row(&report.url, &shown(size), &shown(used), &shown(free));
    for pool in &report.pools {
        text += &row(
            &format!("  pool {}", pool.pool),
            &shown(pool.size()),
            &shown(pool.used_bytes),
            &shown(pool.free_bytes),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_field_tools::remote::Info;
    use penstock_field_tools::remote_tree::RemoteFile;
    use penstock_model::Timestamp;

    #[test]
    fn sums_are_of_all_that_is_below_and_rows_end_at_the_depth() {
        let file = |path: &str, size: u64| RemoteFile {
            url: Url::parse(&format!("https://se/{path}")).expect("a URL"),
            names: path.split('/').map(str::to_owned).collect(),
            size: Some(Bytes(size)),
            info: Info {
                url: String::new(),
                name: String::new(),
                is_directory: false,
                size_bytes: None,
                modified: None,
                etag: None,
                told_at: Timestamp(0),
                locality: None,
            },
        };
        let tree = RemoteTree {
            files: vec![file("a/b/x", 1), file("a/y", 10), file("z", 100)],
            ..RemoteTree::default()
        };
        let url = Url::parse("https://se/").expect("a URL");
        let check = |depth, expected: &[(&str, u64, u64)]| {
            let report = sums(&url, &tree, depth);
            assert_eq!((report.files, report.bytes), (3, Bytes(111)));
            let rows = report.directories.iter();
            let rows: Vec<_> = rows
                .map(|sum| (sum.path.as_str(), sum.files, sum.bytes.0))
                .collect();
            assert_eq!(rows, expected);
        };
        check(0, &[]);
        check(1, &[("a", 2, 11)]);
        check(9, &[("a", 2, 11), ("a/b", 1, 1)]);
    }

    #[test]
    fn pools_are_read_out_of_metrics() {
        let metrics = "# HELP penstock_pool_free_bytes x\npenstock_pool_capacity_bytes{pool=\"disk1\"} 1000\n\
                       penstock_pool_free_bytes{pool=\"disk1\"} 4e2\npenstock_pool_used_bytes{pool=\"disk1\"} 600\n\
                       penstock_pool_used_bytes{pool=\"disk2\"} 5\npenstock_pool_movers{pool=\"x\"} 1\nnoise\n";
        let pools = pools_in(metrics);
        let names: Vec<&str> = pools.iter().map(|pool| pool.pool.as_str()).collect();
        assert_eq!(names, ["disk1", "disk2"]);
        assert_eq!(pools[0].free_bytes, Some(Bytes(400)));
        assert_eq!((pools[1].free_bytes, pools[1].size()), (None, None));
        assert_eq!(pools[0].size(), Some(Bytes(1000)));
    }
}
