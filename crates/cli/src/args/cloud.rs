//! What can be typed about the cloud storages of a transfer service.

use super::ServiceArgs;
use super::settings::SettingsArgs;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What `cloud-storage` does.
#[derive(Debug, Subcommand)]
pub enum CloudCommand {
    /// List all cloud storages, and the users and VOs with keys for them.
    #[command(after_help = "Example:\n  penstock cloud-storage list --dir cern")]
    List(SettingsArgs),
    /// Add a cloud storage by its host, without port and bucket.
    #[command(after_help = "Examples:\n  \
        penstock cloud-storage add --dir cern S3:s3.example.org\n  \
        penstock cloud-storage add --dir cern S3:s3.amazonaws.com --region eu-west-3\n\n\
        The URL of a file is s3s://HOST[:PORT]/BUCKET/KEY, or s3s://BUCKET.HOST/KEY if the bucket is part of the host \
        name. Without --region, the region is found from the host name or asked from the server.")]
    Add(CloudAddArgs),
    /// Remove a cloud storage and all keys for it.
    #[command(
        after_help = "Example:\n  penstock cloud-storage remove --dir cern S3:s3.example.org"
    )]
    Remove(CloudNameArgs),
    /// Set the keys of a user or a VO. They replace earlier ones.
    #[command(after_help = "Examples:\n  \
        penstock cloud-storage grant --dir cern S3:s3.example.org --vo dteam --keys keys.txt\n  \
        vault read … | penstock cloud-storage grant --dir cern S3:s3.example.org --user '/DC=org/CN=Alice' --keys -\n\n\
        The key file has the lines access_key = …, secret_key = …, and for temporary keys session_token = …; the names \
        that Amazon's own tools use (aws_access_key_id and so on) are accepted too. The service stores the keys encrypted \
        and never shows them again. The next attempt of each transfer uses them.")]
    Grant(CloudGrantArgs),
    /// Remove the keys of a user or a VO.
    #[command(
        after_help = "Example:\n  penstock cloud-storage revoke --dir cern S3:s3.example.org --vo dteam"
    )]
    Revoke(CloudHolderArgs),
}

/// Options of `cloud-storage add`.
#[derive(Debug, Args)]
pub struct CloudAddArgs {
    /// S3:HOST, or GCLOUD:HOST for gclouds:// URLs.
    pub name: String,
    /// The region for which requests are signed.
    #[arg(long)]
    pub region: Option<String>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `cloud-storage remove`.
#[derive(Debug, Args)]
pub struct CloudNameArgs {
    /// S3:HOST or GCLOUD:HOST.
    pub name: String,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Whose keys.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Holder {
    /// A certificate's subject in slash form; the subject of a token of the service's own issuer; or
    /// ISSUER#SUBJECT.
    #[arg(long, value_name = "DN")]
    pub user: Option<String>,
    /// A VO: the keys are for all members without keys of their own.
    #[arg(long)]
    pub vo: Option<String>,
}

/// Options of `cloud-storage grant`.
#[derive(Debug, Args)]
pub struct CloudGrantArgs {
    /// S3:HOST or GCLOUD:HOST.
    pub name: String,
    /// Whose.
    #[command(flatten)]
    pub holder: Holder,
    /// A file with the keys, readable by its owner only, or - for standard input.
    #[arg(long, value_name = "FILE|-")]
    pub keys: PathBuf,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `cloud-storage revoke`.
#[derive(Debug, Args)]
pub struct CloudHolderArgs {
    /// S3:HOST or GCLOUD:HOST.
    pub name: String,
    /// Whose.
    #[command(flatten)]
    pub holder: Holder,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}
