//! What can be typed about contexts, completion and manual pages.

use super::files::parse_url;
use clap::{Args, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;
use url::Url;

/// What `context` does.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// Add or change a context.
    #[command(
        after_help = "Examples:\n  penstock context add cern --dir /srv/cern\n  \
        penstock context add lyon --service https://fts.in2p3.fr:8446 --token-file ~/.lyon.token --use\n  \
        penstock context add lyon --service https://fts.in2p3.fr:8446 --token-file ~/.lyon.token \\\n      \
        --token-for https://se.in2p3.fr:8443\n\n\
        The token goes to the service, to the door and to the servers given with --token-for, and to no other server."
    )]
    Add(Box<ContextAddArgs>),
    /// List the contexts. The one in use has a '*'.
    #[command(after_help = "Example:\n  penstock context list --json")]
    List,
    /// Use a context for all commands that do not name a site; without a name, use none.
    #[command(after_help = "Examples:\n  penstock context use cern\n  penstock context use")]
    Use(ContextUseArgs),
    /// Remove a context. The site itself is not changed.
    #[command(after_help = "Example:\n  penstock context remove cern")]
    Remove(ContextNameArgs),
}

/// Options of `context add`.
#[derive(Debug, Args)]
pub struct ContextAddArgs {
    /// Its name.
    pub name: String,
    /// The directory of a site on this machine.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// A transfer service.
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub service: Option<Url>,
    /// A storage door, for commands with --door.
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub door: Option<Url>,
    /// A file with the token for the service and the door.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Another server that gets the token, such as a storage element; repeat it for more.
    #[arg(long, value_name = "URL", value_parser = parse_url, requires = "token_file")]
    pub token_for: Vec<Url>,
    /// A hashed directory of CA certificates.
    #[arg(long, value_name = "DIR")]
    pub capath: Option<PathBuf>,
    /// Use it from now on.
    #[arg(long = "use")]
    pub is_used: bool,
}

/// Options of `context use`.
#[derive(Debug, Args)]
pub struct ContextUseArgs {
    /// Its name.
    pub name: Option<String>,
}

/// Options of `context remove`.
#[derive(Debug, Args)]
pub struct ContextNameArgs {
    /// Its name.
    pub name: String,
}

/// Options of `completion`.
#[derive(Debug, Args)]
pub struct CompletionArgs {
    /// The shell.
    pub shell: Shell,
}

/// Options of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The directory for the pages; it is created if missing.
    #[arg(value_name = "DIR")]
    pub dir_for_pages: PathBuf,
}
