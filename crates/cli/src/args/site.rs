//! What can be typed to make a site, to run it, and to look after its keys, rights and record.

use clap::{Args, Subcommand, ValueEnum};
use penstock_model::NamespacePath;
use penstock_model::quantity::{Size, Span};
use penstock_persistence::backup::BACKUP_BYTES_PER_SECOND;
use std::net::IpAddr;
use std::path::PathBuf;

/// Options of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The directory to create. It must not exist, or be empty.
    #[arg(long)]
    pub dir: PathBuf,
    /// The site's name. Default: the directory's name.
    #[arg(long)]
    pub site: Option<String>,
    /// A host name or IP address of the site; repeat it for more. The first is used in URLs; if it is an address, the
    /// doors listen on it. Default: localhost, reachable from this machine only.
    #[arg(long = "host", value_name = "NAME|IP")]
    pub hosts: Vec<String>,
    /// The first port: WebDAV door BASE, plain-HTTP door (when configured) BASE+1, transfer service BASE+3.
    #[arg(long = "ports", value_name = "BASE", default_value_t = 8443)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=65532))]
    pub ports_base: u16,
    /// A directory for file data, ideally one per disk; repeat it for more. A relative path is below the site
    /// directory.
    #[arg(long = "pool", value_name = "PATH", default_value = "pools/disk1")]
    pub pools: Vec<PathBuf>,
    /// An existing site directory: both sites will trust each other's CA and tokens, and allow copies to each other.
    #[arg(long = "peer", value_name = "DIR")]
    pub peers: Vec<PathBuf>,
    /// A directory with `ca.pem` and `ca.key` of an existing certificate authority, such as `ca` of another machine of the
    /// site. It issues the host certificate, and a copy of it is kept here. It must be self-signed and allowed to sign for
    /// all hosts, and its key must have no password. Default: a new authority.
    #[arg(long, value_name = "DIR")]
    pub ca: Option<PathBuf>,
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// What to log to standard error: error, warn, info, debug, trace, or per module
    /// (`info,penstock_protocol=debug`).
    #[arg(long, default_value = "info")]
    pub log: String,
    /// How long to wait for running transfers after SIGTERM.
    #[arg(long, default_value = "30s")]
    pub drain: Span,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// Print the effective value of each key first. With --json they are always there.
    #[arg(long)]
    pub values: bool,
}

/// Options of `token`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// The site directory whose key signs.
    #[arg(long)]
    pub dir: PathBuf,
    /// The rights, separated by spaces: storage.read, storage.create, storage.modify, storage.stage, storage.poll, each
    /// with `:/path`; other scopes are copied unchanged.
    #[arg(long, default_value = "storage.read:/")]
    pub scope: String,
    /// The server that accepts the token: its URL, or its host name for all its ports; repeat it for more. Default: the
    /// storage element and the transfer service of this site.
    #[arg(long = "audience", value_name = "URL")]
    pub audiences: Vec<String>,
    /// How long the token is valid, at most issuer.token_life_max. Default: 1h, with --admin 30d.
    #[arg(long)]
    pub lifetime: Option<Span>,
    /// Replace admin.token with a new token for the site's owner.
    #[arg(long, conflicts_with_all = ["scope", "audiences", "subject", "groups"])]
    pub admin: bool,
    /// The user whom the token stands for. Default: the name of the user who runs the command.
    #[arg(long)]
    pub subject: Option<String>,
    /// A group of the subject, such as /experiment/production; repeat it for more.
    #[arg(long = "group")]
    pub groups: Vec<String>,
}

/// What `key` does.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// List the keys: which of them sign, which are only accepted, and until when.
    #[command(
        after_help = "Examples:\n  penstock key list --dir site\n  penstock key list --dir site --json"
    )]
    List(KeyListArgs),
    /// Create a new key and retire the current one.
    #[command(after_help = "Examples:\n  \
        penstock key rotate token --dir site         # signs after six hours, when all verifiers know it\n  \
        penstock key rotate token --now --dir site   # signs after six seconds\n  \
        penstock key rotate macaroon --dir site\n  \
        penstock key rotate credential --dir site\n\n\
        A running site starts to use the new key within seconds. Tokens of the old key stay valid until they expire.")]
    Rotate(KeyRotateArgs),
}

/// What `authz` does.
#[derive(Debug, Subcommand)]
pub enum AuthzCommand {
    /// Show what the storage element allows a given user to do at a path, and why.
    #[command(after_help = "Examples:\n  \
        penstock authz test /data/f --dir cern --as anonymous\n  \
        penstock authz test /data/f --dir cern --as /DC=org/CN=Alice --fqan /dteam/Role=production\n  \
        penstock authz test /data/f --dir cern --as /tmp/x509up_u1000 --operation read\n  \
        penstock token --dir cern --scope storage.read:/ | penstock authz test /data/f --dir cern --as -\n\n\
        Exits with 0 when the operation is allowed (without --operation: when any is), and with 3 when it is not, or when \
        the credential is not accepted.")]
    Test(AuthzTestArgs),
}

/// Options of `authz test`.
#[derive(Debug, Args)]
pub struct AuthzTestArgs {
    /// The path in the namespace.
    #[arg(value_parser = namespace_path)]
    pub path: NamespacePath,
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// The user: a certificate's subject, `anonymous`, a file with a token, macaroon, certificate or proxy, or `-` to
    /// read one of these from standard input.
    #[arg(long = "as", value_name = "WHO")]
    pub who: String,
    /// The operation to test. Default: all.
    #[arg(long)]
    pub operation: Option<OperationName>,
    /// The new path of a rename.
    #[arg(long, value_parser = namespace_path)]
    pub to: Option<NamespacePath>,
    /// Assume that the subject has this VOMS attribute; repeat it for more.
    #[arg(long = "fqan", value_name = "FQAN")]
    pub fqans: Vec<String>,
    /// Assume that this authority signed the subject's certificate, for rules that name an authority.
    #[arg(long, value_name = "DN")]
    pub ca: Option<String>,
    /// Assume that the request comes from this address, for macaroons that are limited to addresses.
    #[arg(long, default_value = "127.0.0.1")]
    pub from: IpAddr,
}

/// What can be done with a path.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OperationName {
    /// Read a file's content.
    Read,
    /// See whether it exists, its size and checksum.
    Stat,
    /// List a directory.
    List,
    /// Create a new file.
    Create,
    /// Replace a file.
    Modify,
    /// Remove a file or directory.
    Delete,
    /// Create a directory.
    Mkdir,
    /// Move it to another path.
    Rename,
    /// Recall it from tape.
    Stage,
    /// See whether it is on tape.
    Poll,
}

/// A path of the namespace, as it is typed.
pub(super) fn namespace_path(text: &str) -> Result<NamespacePath, String> {
    NamespacePath::parse(text).map_err(|why| why.to_string())
}

/// Options of `key list`.
#[derive(Debug, Args)]
pub struct KeyListArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
}

/// Options of `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The site directory.
    #[arg(long, requires = "to")]
    pub dir: Option<PathBuf>,
    /// The file to write. An existing file of that name is replaced once the new one is complete.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Include the keys that decrypt the stored credentials.
    #[arg(long, requires = "to")]
    pub with_keys: bool,
    /// Copy at most this many bytes per second.
    #[arg(long, value_name = "SIZE", default_value_t = Size(BACKUP_BYTES_PER_SECOND))]
    pub rate: Size,
    /// Read a whole backup, verify it and show what it contains.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "to", "with_keys"])]
    pub verify: Option<PathBuf>,
    /// Back up only this part. Default: everything that the site has; the namespace then goes to FILE.namespace.
    #[arg(long, value_name = "PART")]
    pub only: Option<BackupPart>,
}

/// Of what there are backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackupPart {
    /// The jobs, history and credentials of the transfer service, and the configuration.
    Transfer,
    /// The namespace of the storage element: names, sizes, checksums and owners of all files.
    Namespace,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup.
    pub file: PathBuf,
    /// The site directory. If it has no configuration, the one in the backup is restored as well.
    #[arg(long)]
    pub dir: PathBuf,
    /// Replace existing data, and keep it under another name.
    #[arg(long)]
    pub replace: bool,
    /// Restore only this part. Default: FILE, and FILE.namespace if there is one.
    #[arg(long, value_name = "PART")]
    pub only: Option<BackupPart>,
}

/// Options of `fsck`.
#[derive(Debug, Args)]
pub struct FsckArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// Add entries for files without one, apply removals and moves that an older namespace lacks, and correct counters and
    /// labels. Shows the changes first, and asks.
    #[arg(long)]
    pub repair: bool,
    /// Like --repair, and also remove entries whose data is missing. Entries of a pool that is offline or not configured
    /// stay, because it may come back.
    #[arg(long)]
    pub remove_missing: bool,
    /// With --remove-missing: remove only the entries of this pool, even if it is offline or not configured. Use it only
    /// for a pool that is permanently lost.
    #[arg(long, value_name = "NAME", requires = "remove_missing")]
    pub pool: Option<String>,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
}

/// Options of `rebuild`.
#[derive(Debug, Args)]
pub struct RebuildArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// Only show what the namespace will contain.
    #[arg(long)]
    pub dry_run: bool,
    /// Replace the existing namespace, and keep it under another name.
    #[arg(long)]
    pub replace: bool,
}

/// Options of `history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
}

/// Options of `key rotate`.
#[derive(Debug, Args)]
pub struct KeyRotateArgs {
    /// The key to rotate.
    pub key: RotatedKey,
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// Do not wait until verifiers at other sites have fetched the keys again: they fetch an unknown key when they first
    /// see it, but some at most once a minute. Also activates a key that was published before.
    #[arg(long)]
    pub now: bool,
}

/// The keys that can be rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RotatedKey {
    /// The key that signs tokens.
    Token,
    /// The root key of macaroons.
    Macaroon,
    /// The key that encrypts stored tokens and delegated proxies.
    Credential,
}
