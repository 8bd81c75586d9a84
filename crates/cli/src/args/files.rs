//! What can be typed to look at the files of a storage element, and to copy, share and remove them.

use super::{AccessArgs, BulkArgs};
use clap::Args;
use penstock_model::ChecksumAlgorithm;
use url::Url;

/// Options of `copy`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The source: a local path, or a file:, https:// or davs:// URL.
    pub source: String,
    /// The destination, written in the same way.
    pub destination: String,
    /// Replace existing files. Without it, a file with the same content is skipped, and a file with different content is
    /// an error.
    #[arg(long)]
    pub overwrite: bool,
    /// What is copied, and how.
    #[command(flatten)]
    pub bulk: BulkArgs,
}

/// Options of `ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Directories or files.
    #[arg(required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Show type, size and time.
    #[arg(short, long)]
    pub long: bool,
    /// List subdirectories as well.
    #[arg(short, long)]
    pub recursive: bool,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `stat` and `cat`.
#[derive(Debug, Args)]
pub struct UrlArgs {
    /// The files or directories.
    #[arg(required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// The files or directories to delete.
    #[arg(required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Delete directories too, with their contents.
    #[arg(short, long)]
    pub recursive: bool,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `mkdir`.
#[derive(Debug, Args)]
pub struct MkdirArgs {
    /// The directories to create.
    #[arg(required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Create missing parent directories, and accept directories that exist.
    #[arg(short, long)]
    pub parents: bool,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `checksum`.
#[derive(Debug, Args)]
pub struct ChecksumArgs {
    /// The files.
    #[arg(required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// adler32, crc32c, md5 or sha-256.
    #[arg(long, default_value = "adler32", value_parser = parse_algorithm)]
    pub algorithm: ChecksumAlgorithm,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Reads the URL of a file or directory. `davs` and `dav` are other names of `https` and `http`.
pub fn parse_url(text: &str) -> Result<Url, String> {
    let text = match text.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("davs") => format!("https://{rest}"),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("dav") => format!("http://{rest}"),
        _ => text.to_owned(),
    };
    let url = Url::parse(&text).map_err(|why| format!("{why}; write https://HOST:PORT/PATH"))?;
    if !["https", "http"].contains(&url.scheme()) {
        return Err(format!(
            "scheme '{}' is not supported; use https or davs",
            url.scheme()
        ));
    }
    match url.username().is_empty() && url.password().is_none() {
        true => Ok(url),
        false => Err("the URL contains credentials; use --token-file instead".to_owned()),
    }
}

/// Reads the name of a checksum's algorithm.
pub fn parse_algorithm(text: &str) -> Result<ChecksumAlgorithm, String> {
    ChecksumAlgorithm::parse(text)
        .ok_or_else(|| format!("'{text}' is not one of adler32, crc32c, md5, sha-256"))
}
