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
    /// The directory to make. Must not exist, or be empty.
    #[arg(long)]
    pub dir: PathBuf,
    /// The site's name. Default: the directory's name.
    #[arg(long)]
    pub site: Option<String>,
    /// A host name or IP address of the site; repeat it for more. The first stands in URLs and, when it is an
    /// address, is where the doors listen. Default: localhost, reachable from this machine only.
    #[arg(long = "host", value_name = "NAME|IP")]
    pub hosts: Vec<String>,
    /// The first port: WebDAV door BASE, plain-HTTP door (when configured) BASE+1, transfer service BASE+3.
    #[arg(long = "ports", value_name = "BASE", default_value_t = 8443)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=65532))]
    pub ports_base: u16,
    /// A directory for file data, best one per disk; repeat it for more. A relative path is below the site
    /// directory.
    #[arg(long = "pool", value_name = "PATH", default_value = "pools/disk1")]
    pub pools: Vec<PathBuf>,
    /// A site directory made before: both sites will trust each other's CA and tokens, and allow copies to
    /// each other.
    #[arg(long = "peer", value_name = "DIR")]
    pub peers: Vec<PathBuf>,
    /// A directory with `ca.pem` and `ca.key` of a certificate authority that exists already, such as `ca` of another
    /// machine of the site: it issues the host certificate, and a copy is kept here. It signs itself, may sign for all
    /// hosts, and its key has no password. Default: a new authority.
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
    /// How long running transfers may take to end after SIGTERM.
    #[arg(long, default_value = "30s")]
    pub drain: Span,
}

/// Options of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
}

/// Options of `token`.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// The site directory whose key signs.
    #[arg(long)]
    pub dir: PathBuf,
    /// What it allows, separated by blanks: storage.read, storage.create, storage.modify, storage.stage,
    /// storage.poll, each with `:/path`; others are passed on.
    #[arg(long, default_value = "storage.read:/")]
    pub scope: String,
    /// For which server: its URL, or its bare name, which stands for all its ports; repeat it for more. Default: the
    /// storage element and the transfer service of this site.
    #[arg(long = "audience", value_name = "URL")]
    pub audiences: Vec<String>,
    /// How long it is valid, at most issuer.token_life_max. Default: 1h, with --admin 30d.
    #[arg(long)]
    pub lifetime: Option<Span>,
    /// Make a new token for the site's owner: into admin.token, in the place of the one there.
    #[arg(long, conflicts_with_all = ["scope", "audiences", "subject", "groups"])]
    pub admin: bool,
    /// On whose behalf. Default: the name of the user who runs this.
    #[arg(long)]
    pub subject: Option<String>,
    /// A group of the subject, such as /experiment/production; repeat it for more.
    #[arg(long = "group")]
    pub groups: Vec<String>,
}

/// What `key` does.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// List the keys: which sign, which are still believed, and until when.
    #[command(
        after_help = "Examples:\n  penstock key list --dir site\n  penstock key list --dir site --json"
    )]
    List(KeyListArgs),
    /// Make a new key and retire the present one.
    #[command(after_help = "Examples:\n  \
        penstock key rotate token --dir site         # signs in six hours, when all verifiers know it\n  \
        penstock key rotate token --now --dir site   # signs in six seconds\n  \
        penstock key rotate macaroon --dir site\n  \
        penstock key rotate credential --dir site\n\n\
        A running site takes the new key over within seconds. What the old key made is believed until it ends.")]
    Rotate(KeyRotateArgs),
}

/// What `authz` does.
#[derive(Debug, Subcommand)]
pub enum AuthzCommand {
    /// Tell what the storage element would answer to somebody at a path, and why.
    #[command(after_help = "Examples:\n  \
        penstock authz test /data/f --dir cern --as anonymous\n  \
        penstock authz test /data/f --dir cern --as /DC=org/CN=Alice --fqan /dteam/Role=production\n  \
        penstock authz test /data/f --dir cern --as /tmp/x509up_u1000 --operation read\n  \
        penstock token --dir cern --scope storage.read:/ | penstock authz test /data/f --dir cern --as -\n\n\
        Exits with 0 when it is allowed (without --operation: when anything is), with 3 when not, and when the \
        credential is not believed.")]
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
    /// Who asks: a certificate's subject, `anonymous`, a file with a token, macaroon, certificate or proxy, or
    /// `-` for such from standard input.
    #[arg(long = "as", value_name = "WHO")]
    pub who: String,
    /// What they want to do. Default: each operation.
    #[arg(long)]
    pub operation: Option<OperationName>,
    /// The new path of a rename.
    #[arg(long, value_parser = namespace_path)]
    pub to: Option<NamespacePath>,
    /// A VOMS attribute that a subject is supposed to have; repeat it for more.
    #[arg(long = "fqan", value_name = "FQAN")]
    pub fqans: Vec<String>,
    /// The authority that is supposed to have signed a subject's certificate, for rules that name one.
    #[arg(long, value_name = "DN")]
    pub ca: Option<String>,
    /// The address from which they come, for macaroons that name some.
    #[arg(long, default_value = "127.0.0.1")]
    pub from: IpAddr,
}

/// What can be done with a path.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OperationName {
    /// Get a file's content.
    Read,
    /// Learn whether it exists, its size and checksum.
    Stat,
    /// Learn the names in a directory.
    List,
    /// Make a file where there is none.
    Create,
    /// Replace a file.
    Modify,
    /// Remove a file or directory.
    Delete,
    /// Make a directory.
    Mkdir,
    /// Give it another path.
    Rename,
    /// Bring it from tape.
    Stage,
    /// Learn whether it is on tape.
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
    /// The file to make. One of that name is replaced when the new one is whole.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Put the keys that open what is sealed into it as well.
    #[arg(long, requires = "to")]
    pub with_keys: bool,
    /// Bytes that are copied in a second at most.
    #[arg(long, value_name = "SIZE", default_value_t = Size(BACKUP_BYTES_PER_SECOND))]
    pub rate: Size,
    /// Read all of a backup and tell what it holds.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "to", "with_keys"])]
    pub verify: Option<PathBuf>,
    /// This role's part alone. Default: all that the site has; then the namespace goes to FILE.namespace.
    #[arg(long, value_name = "PART")]
    pub only: Option<BackupPart>,
}

/// Of what there are backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackupPart {
    /// What the transfer service remembers.
    Transfer,
    /// The namespace of the storage element: names, sizes, checksums, owners of all files.
    Namespace,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup.
    pub file: PathBuf,
    /// The site directory. Without a configuration it gets the backup's.
    #[arg(long)]
    pub dir: PathBuf,
    /// Keep what is there under another name, and take its place.
    #[arg(long)]
    pub replace: bool,
    /// This role's part alone. Default: FILE, and FILE.namespace if there is one.
    #[arg(long, value_name = "PART")]
    pub only: Option<BackupPart>,
}

/// Options of `fsck`.
#[derive(Debug, Args)]
pub struct FsckArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// Enter files that have no entry, follow removals and moves that an older copy of the namespace does not know, correct
    /// counters and labels. Shows what it will change, and asks.
    #[arg(long)]
    pub repair: bool,
    /// The same, and remove entries whose data is missing. Entries of a pool that is away or not configured stay: it may come
    /// back.
    #[arg(long)]
    pub remove_missing: bool,
    /// With --remove-missing: remove entries of this pool only, also when it is away or not configured. Only for a pool that is
    /// lost for ever.
    #[arg(long, value_name = "NAME", requires = "remove_missing")]
    pub pool: Option<String>,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
}

/// Options of `rebuild`.
#[derive(Debug, Args)]
pub struct RebuildArgs {
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// Tell what the namespace would hold, and make none.
    #[arg(long)]
    pub dry_run: bool,
    /// Keep the namespace that is there under another name, and take its place.
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
    /// Which key.
    pub key: RotatedKey,
    /// The site directory.
    #[arg(long)]
    pub dir: PathBuf,
    /// Do not wait until verifiers elsewhere have looked at the keys again: they ask for an unknown key, but
    /// some at most once a minute. Also hastens a key that was published before.
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
    /// The key that seals tokens and delegated proxies where they are stored.
    Credential,
}
