//! What can be typed: the commands with their options, defaults and examples. What it means is decided
//! elsewhere.

mod ban;
pub mod cloud;
pub mod settings;

pub use ban::{BanCommand, BanListArgs, BanRemoveArgs, BanStorageArgs, BanUserArgs};

use self::cloud::CloudCommand;
use self::settings::{
    ActivityCommand, AuditArgs, AuthorizeCommand, DrainArgs, ImportFts3Args, LinkCommand,
    SeCommand, VoShareCommand,
};
use crate::exit::EXIT_CODES_HELP;
use crate::quantity::{Size, Span};
use clap::{Args, Parser, Subcommand, ValueEnum};
use penstock_model::{ChecksumAlgorithm, NamespacePath};
use penstock_sim::Policy;
use std::net::IpAddr;
use std::path::PathBuf;
use url::Url;

/// Moves and keeps the data of big science: storage element, transfer service and the tools to use them.
#[derive(Debug, Parser)]
#[command(name = "penstock", version, after_help = EXIT_CODES_HELP, max_term_width = 110)]
pub struct Arguments {
    /// Print one JSON value instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, in the order in which a newcomer needs them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start two sites here, move a data set between them, verify it and report the bandwidth.
    #[command(after_help = "Example:\n  penstock demo --files 100 --size '500 MB'")]
    Demo(DemoArgs),
    /// Make a site directory: configuration, private CA, host certificate, token key, admin token.
    #[command(after_help = "Examples:\n  penstock init --dir site\n  \
        penstock init --dir cern --host 127.0.0.2\n  \
        penstock init --dir lyon --host 127.0.0.3 --peer cern   # both trust each other\n\n\
        FTS clients know a storage element by scheme and host without port, so several sites on one machine \
        each need an address of their own: 127.0.0.2, 127.0.0.3, …")]
    Init(InitArgs),
    /// Run every role in a site's configuration until SIGTERM.
    #[command(after_help = "Example:\n  penstock serve --dir site\n\n\
        Prints a line per door with its URL, then `ready`. SIGTERM or Ctrl-C: drain, then end. \
        SIGHUP: reload limits, certificates and trust from the directory.")]
    Serve(ServeArgs),
    /// Validate a site's configuration, certificates and trust; print the effective values.
    #[command(
        after_help = "Example:\n  penstock check --dir site\n\nExits with 0 (warnings allowed) or 2."
    )]
    Check(CheckArgs),
    /// Print a token (WLCG profile) from a site's own issuer.
    #[command(after_help = "Examples:\n  \
        penstock token --dir site --scope 'storage.read:/ storage.modify:/' > token\n  \
        curl --capath site/certificates -H \"Authorization: Bearer $(cat token)\" https://localhost:8443/")]
    Token(TokenArgs),
    /// Show and rotate the site's keys, without an outage.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock key list --dir site\n  \
        penstock key rotate token --dir site         # signs in six hours, when all verifiers know it\n  \
        penstock key rotate token --now --dir site   # signs in six seconds\n  \
        penstock key rotate macaroon --dir site"
    )]
    Key(KeyCommand),
    /// Ask a site's rules who may do what, and why.
    #[command(
        subcommand,
        after_help = "Example:\n  penstock authz test /data/f --dir cern --as anonymous"
    )]
    Authz(AuthzCommand),
    /// Ask a transfer service to move files between storage elements.
    #[command(after_help = "Examples:\n  \
        penstock submit --dir cern https://127.0.0.2:8443/f https://127.0.0.3:8443/f --wait\n  \
        penstock submit --service https://fts:8446 --token-file token --jobfile list.txt\n\n\
        A job file has one `source destination [ALGORITHM:checksum]` per line; blank lines and lines that \
        begin with # are skipped. It is submitted as jobs of at most 200 files.")]
    Submit(SubmitArgs),
    /// Show jobs and, with --files, each of their files.
    #[command(after_help = "Example:\n  penstock status --dir cern 0192d3a4-… --files")]
    Status(StatusArgs),
    /// List jobs: those that are not finished, or those in given states.
    #[command(
        after_help = "Example:\n  penstock list --dir cern --state FAILED --state FINISHEDDIRTY"
    )]
    List(ListArgs),
    /// Cancel jobs. What has arrived stays.
    #[command(after_help = "Example:\n  penstock cancel --dir cern 0192d3a4-…")]
    Cancel(CancelArgs),
    /// Keep storage elements and users away from a transfer service, and let them back.
    #[command(
        subcommand,
        after_help = "Example:\n  penstock ban se --dir cern https://se.example.org --wait --message 'maintenance'"
    )]
    Ban(BanCommand),
    /// Find transfers, old and new, by what is known of them.
    #[command(after_help = "Examples:\n  \
        penstock find --dir cern run42 file7                 # both are parts of one of its addresses\n  \
        penstock find --dir cern --host se.in2p3.fr --state FAILED --since 2d\n  \
        penstock find --dir cern 0192d3a4-…                  # of a job\n\n\
        Newest first. `penstock explain NUMBER` tells the story of one.")]
    Find(FindArgs),
    /// Tell why each file of a job waits, or why it failed; or the whole story of one transfer.
    #[command(
        after_help = "Examples:\n  penstock explain --dir cern 0192d3a4-…   # a job\n  \
        penstock explain --dir cern 4711         # a transfer, by the number that `find` and `status --files` show"
    )]
    Explain(ExplainArgs),
    /// Show the processes of a transfer service, which of them leads, and what runs where.
    #[command(
        after_help = "Examples:\n  penstock nodes --dir cern          # who leads, since when, agents busy and free\n  \
        penstock nodes --dir cern --json   # the same for scripts"
    )]
    Nodes(NodesArgs),
    /// Copy a file or a directory tree up, down, or from server to server; every checksum is verified.
    #[command(after_help = "Examples:\n  \
        penstock copy --dir cern run42/ https://127.0.0.2:8443/data/run42/\n  \
        penstock copy --token-file token davs://se.example.org/data/f ./f\n  \
        penstock copy --dir cern https://127.0.0.2:8443/data/run42/ https://127.0.0.3:8443/data/run42/\n\n\
        DST is the name of the copy, except when it ends with / (or is a directory): then a single file \
        keeps its name inside it. Run it again after an interruption: what has arrived intact is skipped.")]
    Copy(CopyArgs),
    /// List a directory, or name a file.
    #[command(after_help = "Example:\n  penstock ls --dir cern -l https://127.0.0.2:8443/data/")]
    Ls(LsArgs),
    /// Show size, time, type and checksum of a file or directory.
    #[command(after_help = "Example:\n  penstock stat --dir cern https://127.0.0.2:8443/data/f")]
    Stat(UrlArgs),
    /// Delete files; with --recursive also directories and all that is in them.
    #[command(after_help = "Example:\n  penstock rm --dir cern https://127.0.0.2:8443/data/f")]
    Rm(RmArgs),
    /// Make a directory.
    #[command(
        after_help = "Example:\n  penstock mkdir --dir cern -p https://127.0.0.2:8443/data/run42/raw"
    )]
    Mkdir(MkdirArgs),
    /// Write files to standard output.
    #[command(
        after_help = "Example:\n  penstock cat --dir cern https://127.0.0.2:8443/data/f | head"
    )]
    Cat(UrlArgs),
    /// Make a link by which others can look at and download a file or directory, for a time.
    #[command(after_help = "Examples:\n  \
        penstock share --dir cern https://127.0.0.2:8443/data/run42 --for 12h\n  \
        penstock share --dir cern https://127.0.0.2:8443/inbox --upload   # a drop box\n\n\
        Whoever has the link can use it, with a browser or curl, until it ends. The site bounds its time \
        (storage.macaroon_validity_max).")]
    Share(ShareArgs),
    /// Ask the storage element for checksums.
    #[command(
        after_help = "Example:\n  penstock checksum --dir cern https://127.0.0.2:8443/data/f"
    )]
    Checksum(ChecksumArgs),
    /// Limits of a transfer service's links, while it runs.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock link list --dir cern\n  \
        penstock link set --dir cern cern-lyon --from https://se.cern.ch --to https://se.in2p3.fr --max 80\n  \
        penstock link remove --dir cern cern-lyon"
    )]
    Link(LinkCommand),
    /// What holds for a storage element in a transfer service, while it runs.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock se show --dir cern https://se.in2p3.fr\n  \
        penstock se set --dir cern https://se.in2p3.fr --in 100 --out 50"
    )]
    Se(SeCommand),
    /// How much of the slots of a transfer service's links goes to which VO.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock vo-share list --dir cern\n  \
        penstock vo-share set --dir cern cms 75 --to https://se.in2p3.fr\n  \
        penstock vo-share remove --dir cern cms --to https://se.in2p3.fr"
    )]
    VoShare(VoShareCommand),
    /// How much of a VO's slots goes to which of its activities.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock activity list --dir cern\n  \
        penstock activity set --dir cern atlas 'T0 Export=0.7' 'Production=0.25' default=0.05"
    )]
    Activity(ActivityCommand),
    /// Who may change a transfer service's settings, beside its administrators.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock authorize list --dir cern\n  \
        penstock authorize set --dir cern '/DC=org/CN=Bob' --storage https://se.in2p3.fr"
    )]
    Authorize(AuthorizeCommand),
    /// Cloud storages that speak S3, and who may use which keys there, while a transfer service runs.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock cloud-storage add --dir cern S3:s3.example.org\n  \
        penstock cloud-storage grant --dir cern S3:s3.example.org --vo dteam --keys keys.txt\n  \
        penstock submit --dir cern https://se.cern.ch/data/f s3s://s3.example.org/bucket/f"
    )]
    CloudStorage(CloudCommand),
    /// Let a transfer service start nothing more, or start again. It accepts submissions all the while.
    #[command(
        after_help = "Examples:\n  penstock drain show --dir cern\n  penstock drain on --dir cern\n  \
        penstock drain off --dir cern\n\nIt stays drained over restarts."
    )]
    Drain(DrainArgs),
    /// Show who changed which setting of a transfer service, and when.
    #[command(after_help = "Example:\n  penstock audit --dir cern --limit 100")]
    Audit(AuditArgs),
    /// Simulate a grid: sites, networks and users of a plan in virtual time, under the scheduler that `serve` runs.
    #[command(after_help = "Examples:\n  \
        penstock simulate --example > plan.toml              # a plan with comments, to begin with\n  \
        penstock simulate plan.toml --out report             # writes report/report.html with plots\n  \
        penstock simulate plan.toml --policy limits --policy fixed:10   # side by side\n  \
        penstock simulate plan.toml --seed 7 --json\n  \
        penstock simulate --trouble 0 --seeds 1000           # random fields and misfortunes, with all invariants checked")]
    Simulate(SimulateArgs),
    /// Show how much a transfer service remembers of what happened, for how long, and who holds what up.
    #[command(
        after_help = "Examples:\n  penstock history --dir cern\n  penstock history --dir cern --json\n\n\
        How long is set by transfer.keep_history and keep_samples; a running service removes what is older. What a \
        sink of messages has not taken stays for transfer.history_held_max longer."
    )]
    History(HistoryArgs),
    /// Make a backup of a transfer service while it runs, or verify one.
    #[command(
        after_help = "Examples:\n  penstock backup --dir cern --to /backups/cern.backup\n  \
        penstock backup --verify /backups/cern.backup\n\n\
        One file: jobs and all that happened to them, what users have delegated (sealed as it was), the configuration. \
        The keys that open what is sealed are in it only with --with-keys; keep them as well, and apart. It is the same \
        file whether transfer.database is a file or a PostgreSQL, and can be put back into either."
    )]
    Backup(BackupArgs),
    /// Put a backup of a transfer service back.
    #[command(
        after_help = "Example:\n  penstock restore /backups/cern.backup --dir cern\n\n\
        A PostgreSQL that is to take it must be empty, and no node may run on it. \
        No service may run on the directory. What was open when the backup was made is open again: a file that has \
        arrived since then, whole, is found and counts as arrived. Numbers of jobs' files go on after a gap."
    )]
    Restore(RestoreArgs),
    /// Work with gfal2 for a transfer service, which starts this itself: one process for each attempt of a transfer.
    #[command(
        name = "gfal-agent",
        hide = true,
        after_help = "Example:\n  penstock gfal-agent --service $PPID --memory '2 GiB'\n\n\
        It reads orders from standard input and writes reports to standard output, one JSON document a line."
    )]
    GfalAgent(GfalAgentArgs),
    /// Take the configuration of an FTS3 over: limits of links and storage elements, defaults of VOs.
    #[command(after_help = "Examples:\n  \
        curl --cert proxy --capath /etc/grid-security/certificates https://fts3:8446/config/links > links.json\n  \
        penstock import-fts3 --dir cern links.json se.json --dry-run\n  \
        penstock import-fts3 --dir cern https://fts3:8446 --source-token-file token\n\n\
        + is a change, - is left out because it has no counterpart here, ! was refused. Nothing is removed; run \
        again, it changes nothing more.")]
    ImportFts3(ImportFts3Args),
}

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
    /// For which service; repeat it for more. Default: any service that trusts this issuer.
    #[arg(long = "audience", value_name = "URL")]
    pub audiences: Vec<String>,
    /// How long it is valid.
    #[arg(long, default_value = "1h")]
    pub lifetime: Span,
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
    List(KeyListArgs),
    /// Make a new key and retire the present one.
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

fn namespace_path(text: &str) -> Result<NamespacePath, String> {
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
    #[arg(long, required_unless_present = "verify", requires = "to")]
    pub dir: Option<PathBuf>,
    /// The file to make. One of that name is replaced when the new one is whole.
    #[arg(long, value_name = "FILE", requires = "dir")]
    pub to: Option<PathBuf>,
    /// Put the keys that open what is sealed into it as well.
    #[arg(long, requires = "to")]
    pub with_keys: bool,
    /// Bytes that are copied in a second at most.
    #[arg(long, value_name = "SIZE", default_value = "32 MB")]
    pub rate: Size,
    /// Read all of a backup and tell what it holds.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "to", "with_keys"])]
    pub verify: Option<PathBuf>,
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

/// How to reach a server: whose certificates to trust and which token to show.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// A site directory: its CA certificates are trusted and its key signs a short token for what the command
    /// needs.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// The token itself. Other users see it in the process list: prefer --token-file.
    #[arg(long, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// A file with the token. Without this, --token and --dir: BEARER_TOKEN, BEARER_TOKEN_FILE,
    /// $XDG_RUNTIME_DIR/bt_u$UID, /tmp/bt_u$UID, in this order.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A hashed directory of CA certificates. Default: that of --dir, X509_CERT_DIR,
    /// /etc/grid-security/certificates, or the system's.
    #[arg(long, value_name = "DIR")]
    pub capath: Option<PathBuf>,
}

/// Which transfer service, and how to reach it.
#[derive(Debug, Clone, Args)]
pub struct ServiceArgs {
    /// The transfer service. Default: that of --dir, or PENSTOCK_SERVICE.
    #[arg(long, value_name = "URL")]
    pub service: Option<Url>,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Which ends of a transfer have their checksum verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verify {
    /// Source and destination, and both against the given value.
    Both,
    /// The source against the given value.
    Source,
    /// The destination against the given value or the source's.
    Target,
    /// Neither.
    None,
}

/// Options of `submit`.
#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// Where the file is.
    #[arg(required_unless_present = "jobfile", requires = "destination")]
    pub source: Option<String>,
    /// Where it goes.
    pub destination: Option<String>,
    /// What its content must be, as ALGORITHM:hex.
    pub checksum: Option<String>,
    /// A list of files: `source destination [ALGORITHM:checksum]` per line. `-` reads standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["source", "destination", "checksum"])]
    pub jobfile: Option<PathBuf>,
    /// Files per job.
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub files_per_job: u32,
    /// Wait until everything has ended, with progress.
    #[arg(long)]
    pub wait: bool,
    /// Replace destinations that exist.
    #[arg(long)]
    pub overwrite: bool,
    /// Which checksums to verify.
    #[arg(long, value_enum, default_value_t = Verify::Both)]
    pub verify: Verify,
    /// Retries per file. Default: what the service is configured for.
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// 1 (least urgent) to 5.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub priority: u8,
    /// The share label.
    #[arg(long, default_value = "default")]
    pub activity: String,
    /// A token for the sources, when it is another one. A file.
    #[arg(long, value_name = "FILE")]
    pub source_token_file: Option<PathBuf>,
    /// A token for the destinations, when it is another one. A file.
    #[arg(long, value_name = "FILE")]
    pub destination_token_file: Option<PathBuf>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The jobs.
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// Show each file.
    #[arg(long)]
    pub files: bool,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only jobs in this state; repeat it for more. Default: all that have not ended.
    #[arg(long = "state")]
    pub states: Vec<String>,
    /// How many at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The jobs.
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `find`.
#[derive(Debug, Args)]
pub struct FindArgs {
    /// Parts of the addresses, all of which must be there; or a job's id; or a transfer's number.
    pub words: Vec<String>,
    /// A host at one of its ends, whatever the scheme and the port.
    #[arg(long)]
    pub host: Option<String>,
    /// The source's scheme and host without port.
    #[arg(long = "from", value_name = "STORAGE")]
    pub source: Option<String>,
    /// The destination's, likewise.
    #[arg(long = "to", value_name = "STORAGE")]
    pub destination: Option<String>,
    /// Only those in this state; repeat it for more.
    #[arg(long = "state")]
    pub states: Vec<String>,
    /// On behalf of this VO.
    #[arg(long)]
    pub vo: Option<String>,
    /// How long ago it was submitted at most; `0s` looks at all. Default: a week, but for a job's files any time.
    #[arg(long)]
    pub since: Option<Span>,
    /// How many at most.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// Only what is older than the transfer with this number: goes on where another search has stopped.
    #[arg(long, value_name = "NUMBER")]
    pub before: Option<u64>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The job, or a transfer's number.
    pub job: String,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `nodes`.
#[derive(Debug, Args)]
pub struct NodesArgs {
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `copy`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// A local path, file: URL, or https:// or davs:// URL.
    pub source: String,
    /// Likewise.
    pub destination: String,
    /// Files at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallel: u16,
    /// Copy also what is there already, replacing it. Without it, a file with the same content is skipped and
    /// one with another content is an error.
    #[arg(long)]
    pub overwrite: bool,
    /// The algorithm to compare with.
    #[arg(long, default_value = "adler32", value_parser = parse_algorithm)]
    pub checksum: ChecksumAlgorithm,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// A directory or file.
    #[arg(value_parser = parse_url)]
    pub url: Url,
    /// Show type, size and time.
    #[arg(short, long)]
    pub long: bool,
    /// List directories below as well.
    #[arg(short, long)]
    pub recursive: bool,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `stat` and `cat`.
#[derive(Debug, Args)]
pub struct UrlArgs {
    /// What to look at.
    #[arg(required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `share`.
#[derive(Debug, Args)]
pub struct ShareArgs {
    /// What to share: the link reaches that and what is below it.
    #[arg(value_parser = parse_url)]
    pub url: Url,
    /// How long the link is good.
    #[arg(long = "for", value_name = "SPAN", default_value = "12h")]
    pub span: Span,
    /// Let others see names and write new files there, but read and replace none.
    #[arg(long)]
    pub upload: bool,
    /// Let others see names only.
    #[arg(long, conflicts_with = "upload")]
    pub list: bool,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `rm`.
#[derive(Debug, Args)]
pub struct RmArgs {
    /// What to delete.
    #[arg(required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Directories too, with all that is in them.
    #[arg(short, long)]
    pub recursive: bool,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `mkdir`.
#[derive(Debug, Args)]
pub struct MkdirArgs {
    /// What to make.
    #[arg(required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// Make missing parents; a directory that exists is fine.
    #[arg(short, long)]
    pub parents: bool,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `checksum`.
#[derive(Debug, Args)]
pub struct ChecksumArgs {
    /// Files.
    #[arg(required = true, value_parser = parse_url)]
    pub urls: Vec<Url>,
    /// adler32, crc32c, md5 or sha-256.
    #[arg(long, default_value = "adler32", value_parser = parse_algorithm)]
    pub algorithm: ChecksumAlgorithm,
    /// Tokens and trust.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Options of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Move the files of this directory. Default: a generated set with a realistic mix of sizes.
    #[arg(long, conflicts_with_all = ["files", "size"])]
    pub data: Option<PathBuf>,
    /// Files to generate.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub files: usize,
    /// Bytes to generate in all.
    #[arg(long, value_name = "S", default_value = "2 GB")]
    pub size: Size,
    /// Keep the sites' directories.
    #[arg(long)]
    pub keep: bool,
}

/// Options of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// The plan, in TOML.
    pub plan: Option<PathBuf>,
    /// Print a plan to begin with instead: small, or wlcg-day.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "small")]
    #[arg(conflicts_with = "plan")]
    pub example: Option<String>,
    /// Instead of a plan, let the service endure the random trouble of this seed, and check what must never happen.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["plan", "example"])]
    pub trouble: Option<u64>,
    /// So many seeds, from that of --trouble on.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "trouble")]
    pub seeds: u64,
    /// Another seed of chance than the plan's.
    #[arg(long)]
    pub seed: Option<u64>,
    /// End after this time, when the plan is longer.
    #[arg(long, value_name = "TIME")]
    pub length: Option<Span>,
    /// By which rule the number of transfers on a link is found: limits, or fixed:20. Repeat it to compare.
    #[arg(long = "policy", value_name = "POLICY")]
    pub policies: Vec<Policy>,
    /// Write report.html with plots, and report.json, into this directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
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
        false => Err("it carries credentials; use --token-file instead".to_owned()),
    }
}

fn parse_algorithm(text: &str) -> Result<ChecksumAlgorithm, String> {
    ChecksumAlgorithm::parse(text)
        .ok_or_else(|| format!("'{text}' is not one of adler32, crc32c, md5, sha-256"))
}

/// `penstock gfal-agent`. People have no use for it; `docs/operations.md` tells what it is.
#[derive(Debug, Args)]
pub struct GfalAgentArgs {
    /// Process id of the transfer service that starts it; it ends with that.
    #[arg(long)]
    pub service: u32,
    /// Memory that it may take.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_consistent_and_every_command_has_an_example() {
        let command = Arguments::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands() {
            let help = sub
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                help.contains(&format!("penstock {}", sub.get_name())),
                "{}",
                sub.get_name()
            );
        }
    }
}
