//! What can be typed to copy, compare and measure whole trees of files.

use super::{AccessArgs, parse_url};
use clap::Args;
use penstock_field_tools::path_filter::Glob;
use penstock_model::ChecksumAlgorithm;
use penstock_model::quantity::{Size, Speed};
use std::num::NonZeroU64;
use url::Url;

/// Options of whatever copies many files.
#[derive(Debug, Args)]
pub struct BulkArgs {
    /// Number of files to copy at the same time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallel: u16,
    /// The checksum algorithm: adler32, crc32c, md5 or sha-256 (default: crc32c where a storage element tells it, else
    /// adler32). Files are always compared by size and checksum, never by time alone. As adler32 misses some small changes,
    /// a source that is newer than its copy counts as changed where it is the only checksum.
    #[arg(long, value_parser = super::files::parse_algorithm)]
    pub checksum: Option<ChecksumAlgorithm>,
    /// Copy only files that match this pattern, for example '*.root'; repeat it for more.
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<Glob>,
    /// Leave out files and directories that match this pattern, for example 'tmp/'; repeat it for more. It outranks
    /// --include.
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<Glob>,
    /// Show what would be done, without changing anything.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Maximum rate of all files together, for example 10M, '10 MB/s' or '1 Gb/s'.
    #[arg(long, value_name = "SPEED", value_parser = parse_bandwidth)]
    pub bwlimit: Option<NonZeroU64>,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `sync`.
#[derive(Debug, Args)]
pub struct SyncArgs {
    /// The source directory: a local path, or a file:, https:// or davs:// URL.
    pub source: String,
    /// The directory to make equal to it, written in the same way.
    pub destination: String,
    /// Remove nothing if more files than this would be removed.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub delete_max: usize,
    /// Accept that the source has no files at all. Without it, nothing is changed when files would be removed then.
    #[arg(long)]
    pub allow_empty: bool,
    /// Remove without asking.
    #[arg(short, long)]
    pub yes: bool,
    /// What is copied, and how.
    #[command(flatten)]
    pub bulk: BulkArgs,
}

/// Options of `mv`.
#[derive(Debug, Args)]
pub struct MvArgs {
    /// A file or directory.
    #[arg(value_parser = parse_url)]
    pub source: Url,
    /// Its new URL at the same server, or a directory to move it into.
    #[arg(value_parser = parse_url)]
    pub destination: Url,
    /// Replace an existing file of that name by a file. Directories are never replaced.
    #[arg(long)]
    pub overwrite: bool,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `du`.
#[derive(Debug, Args)]
pub struct DuArgs {
    /// Directories or files.
    #[arg(required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Show directories down to this depth; 0 shows the totals only.
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    pub depth: usize,
    /// Count only files that match this pattern; repeat it for more.
    #[arg(long, value_name = "PATTERN")]
    pub include: Vec<Glob>,
    /// Leave out files and directories that match this pattern; repeat it for more.
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<Glob>,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `df`.
#[derive(Debug, Args)]
pub struct DfArgs {
    /// Directories of storage elements (default: the storage element of --dir).
    #[arg(value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// A speed; people leave out the `/s`.
fn parse_bandwidth(text: &str) -> Result<NonZeroU64, String> {
    let bytes = match text.parse::<Speed>() {
        Ok(Speed(bytes)) => Some(bytes),
        Err(_) => text.parse::<Size>().ok().map(|size| size.0),
    };
    let bytes = bytes.ok_or_else(|| {
        format!("'{text}' is not a speed; write for example 10M, 10 MB/s or 1 Gb/s")
    })?;
    NonZeroU64::new(bytes).ok_or_else(|| "the limit must be more than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_as_people_type_them() {
        for (text, bytes) in [
            ("10M", 10_000_000),
            ("2MiB", 2 << 20),
            ("10 MB/s", 10_000_000),
            ("1 Gb/s", 125_000_000),
            ("500", 500),
        ] {
            assert_eq!(
                parse_bandwidth(text).map(NonZeroU64::get),
                Ok(bytes),
                "{text}"
            );
        }
        for text in ["", "0", "fast", "-1M"] {
            assert!(parse_bandwidth(text).is_err(), "{text}");
        }
    }
}
