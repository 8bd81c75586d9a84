//! What can be typed: the commands with their options, defaults and examples. What it means is decided
//! elsewhere.

mod ban;
pub mod cloud;
mod files;
mod host;
mod incidents;
mod jobs;
mod mute;
pub mod population;
pub mod records;
pub mod settings;
mod simulate;
mod site;
mod tape;
mod trash;
mod what_if;

pub use ban::{BanCommand, BanListArgs, BanRemoveArgs, BanStorageArgs, BanUserArgs};
pub use files::{ChecksumArgs, CopyArgs, LsArgs, MkdirArgs, RmArgs, ShareArgs, UrlArgs, parse_url};
pub use host::{HostArgs, HostCommand, HostCompareArgs, NamedRate};
pub use incidents::{IncidentsArgs, IncidentsCommand};
pub use jobs::{
    CancelArgs, ExplainArgs, FindArgs, ListArgs, NodesArgs, RecordArgs, StatusArgs, SubmitArgs,
    Verify,
};
pub use mute::{MuteCommand, MuteScopeArgs};
pub use simulate::{SimulateCommand, SimulateTapeArgs};
pub use site::{
    AuthzCommand, AuthzTestArgs, BackupArgs, BackupPart, CheckArgs, FsckArgs, HistoryArgs,
    InitArgs, KeyCommand, KeyListArgs, KeyRotateArgs, OperationName, RebuildArgs, RestoreArgs,
    RotatedKey, ServeArgs, TokenArgs,
};
pub use tape::{
    OrderGoalArg, OrderPolicyArg, TapeAccountArgs, TapeCalibrateArgs, TapeCommand,
    TapeDataSetsArgs, TapeHoldArgs, TapeNameArgs, TapeOrderArgs, TapeRepackArgs, TapeStatusArgs,
    TapeStopArgs,
};
pub use trash::{
    DoorArgs, RemovedSince, RestorePlace, TrashCommand, TrashEmptyArgs, TrashListArgs,
    TrashRestoreArgs, TrashedName,
};
pub use what_if::WhatIfArgs;

use self::cloud::CloudCommand;
use self::records::{AccountArgs, IngestArgs, RecordsCommand};
use self::settings::{
    ActivityCommand, AuditArgs, AuthorizeCommand, DrainArgs, ImportFts3Args, LinkCommand,
    SeCommand, VoShareCommand,
};
use crate::exit::EXIT_CODES_HELP;
use clap::{Args, Parser, Subcommand};
use penstock_model::quantity::{Size, Span};
use penstock_protocol::gfal::Account;
use penstock_sim::Policy;
use std::path::PathBuf;
use url::Url;

/// Moves and keeps the data of big science: storage element, transfer service and the tools to use them.
#[derive(Debug, Parser)]
#[command(name = "penstock", version = env!("PENSTOCK_VERSION"), after_help = EXIT_CODES_HELP, max_term_width = 110)]
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
    /// Tell why rates fell; why each file of a job waits, or why it failed; or the whole story of one transfer or path.
    #[command(after_help = "Examples:\n  \
        penstock explain --dir cern                            # where rates fell and rose in the last 24 h\n  \
        penstock explain --dir cern --since 7d --link 'cern.ch-*'\n  \
        penstock explain --dir cern drop 6931bd80-1c9a44f2     # one drop: causes, evidence, what to do\n  \
        penstock explain --records records                     # from what FTS3, dCache or XRootD wrote\n  \
        penstock explain --dir cern link se1.cern.ch-se2.in2p3.fr\n  \
        penstock explain --dir cern 0192d3a4-…                 # a job, file by file\n  \
        penstock explain --dir cern 4711                       # a transfer, by its number in `find`\n  \
        penstock explain --dir cern file https://se1.cern.ch/run42/f7   # the latest transfer of a file\n  \
        penstock explain --dir cern path /run42/f7             # a path of cern's own storage element\n\n\
        A drop is a lower rate although there was work. Shares are of what took from the rate; what no rule explains is \
        told as such, with what was not measured.")]
    Explain(ExplainArgs),
    /// List incidents: all that one cause did is one, with its class, what was lost, and the share of each class by month.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  penstock incidents --dir cern                        # the last 30 days\n  \
        penstock incidents --dir cern --month 2026-11        # a month, with the share of each class\n  \
        penstock incidents --dir cern --since 7d --class storage --json\n  \
        penstock incidents --dir cern --offline              # from the record of a site whose service does not run\n  \
        penstock incidents --records records                 # from what FTS3, dCache or XRootD wrote\n  \
        penstock incidents show --dir cern 6931bd80-1c9a44f2\n  \
        penstock incidents ticket --dir cern 6931bd80-1c9a44f2 > ticket.txt\n\n\
        What comes back within 6 hours is the same incident. It is open until 15 minutes after it was last seen."
    )]
    Incidents(Box<IncidentsArgs>),
    /// Suppress alerts of some incidents for a while ([observe.alerts] in penstock.toml says who is alerted).
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock mute add --dir cern --link 'se1.cern.ch-*' --for 4h --why 'new disk servers'\n  \
        penstock mute list --dir cern\n  \
        penstock mute remove --dir cern --class tape"
    )]
    Mute(MuteCommand),
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
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  \
        penstock simulate --example > plan.toml              # a plan with comments, to begin with\n  \
        penstock simulate plan.toml --out report             # writes report/report.html with plots\n  \
        penstock simulate plan.toml --policy measured --policy fts3 --policy fixed:10   # side by side\n  \
        penstock simulate plan.toml --seed 7 --json\n  \
        penstock simulate plan.toml --records seen           # then: penstock what-if --records seen\n  \
        penstock simulate --trouble 0 --seeds 1000           # random fields and misfortunes, with all invariants checked\n  \
        penstock simulate tape week.json                     # a tape library instead of a grid"
    )]
    Simulate(SimulateArgs),
    /// Replay what a site has recorded in the simulator, and tell what other limits or faster parts would have brought.
    #[command(after_help = "Examples:\n  \
        penstock what-if --dir cern                          # is the last day fit to be replayed, and what limited it?\n  \
        penstock what-if --dir cern --since 6h --set 'link se1.cern.ch-se2.in2p3.fr active=+4' --set 'storage se2.in2p3.fr pools=+1'\n  \
        penstock what-if --dir cern --set 'link * se2.in2p3.fr active=12, storage se2.in2p3.fr active=50'\n  \
        penstock what-if --dir cern --set 'storage se2.in2p3.fr rate=x2' --seed 7 --json\n  \
        penstock what-if --dir cern --fix 6931bd80-1c9a44f2  # what the fix of a drop would have brought\n  \
        penstock what-if --records records --set 'link a.example.org b.example.org rate=500 MB/s'\n\n\
        A change is of a link (SOURCE-DESTINATION, or both names): active, rate; of a storage: active, rate, pools, failures; \
        or of the service: active. active and pools are 12, +4, -2 or x2; rate is x2 or '500 MB/s'; failures is the part of \
        its files that fails. A window that the simulator cannot replay within 25 % of its recorded rate is refused.")]
    WhatIf(WhatIfArgs),
    /// Show how much a transfer service remembers of what happened, for how long, and who holds what up.
    #[command(
        after_help = "Examples:\n  penstock history --dir cern\n  penstock history --dir cern --json\n\n\
        How long is set by transfer.keep_history, keep_samples and keep_minutes; a running service removes what is older. What a \
        sink of messages has not taken stays for transfer.history_held_max longer."
    )]
    History(HistoryArgs),
    /// Show what was sampled of a transfer service's host: pressure, disks, interfaces, facts and what changed.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  penstock host --dir cern --since 1h\n  penstock host --dir cern --json > cern.json\n  \
        penstock host compare cern.json lyon.json ral.json\n  \
        penstock host compare a.json b.json --rate 'a=400 kB/s' --rate 'b=40 MB/s'\n\n\
        For administrators of the service. What `compare` takes are reports made with --json on hosts that do the same \
        work; it tells which settings the slow ones have and the fast ones have not."
    )]
    Host(HostArgs),
    /// Make a backup of what a site remembers while it runs, or verify one.
    #[command(
        after_help = "Examples:\n  penstock backup --dir cern --to /backups/cern.backup\n  \
        penstock backup --dir cern --to /backups/names --only namespace\n  \
        penstock backup --verify /backups/cern.backup\n\n\
        Of a transfer service: jobs and all that happened to them, what users have delegated (sealed as it was), the \
        configuration. The keys that open what is sealed are in it only with --with-keys; keep them as well, and apart. It is \
        the same file whether transfer.database is a file or a PostgreSQL, and can be put back into either. Of a storage \
        element: the namespace (names, sizes, checksums, owners), in FILE.namespace; the data itself stays in the pools. A \
        backup takes its name when all of it was read again and found whole."
    )]
    Backup(BackupArgs),
    /// Put a backup back.
    #[command(
        after_help = "Examples:\n  penstock restore /backups/cern.backup --dir cern\n  \
        penstock restore /backups/cern.backup --dir cern --only namespace --replace\n\n\
        A PostgreSQL that is to take it must be empty, and no node may run on it. \
        No service may run on the directory. What was open when the backup was made is open again: a file that has \
        arrived since then, whole, is found and counts as arrived. Numbers of jobs' files go on after a gap. Files that were \
        stored since the backup of a namespace was made stay in the pools: `penstock fsck` finds them. While the pools are \
        whole, `penstock rebuild` makes a newer namespace than a backup."
    )]
    Restore(RestoreArgs),
    /// Compare the namespace of a storage element with its pools, both ways, and mend what can be mended.
    #[command(after_help = "Examples:\n  penstock fsck --dir cern\n  \
        penstock fsck --dir cern --json > findings.json\n  \
        penstock fsck --dir cern --repair            # shows what it will change, and asks\n  \
        penstock fsck --dir cern --remove-missing --yes\n\n\
        Without --repair nothing is changed. File data is never removed: files without an entry get one, in no other one's \
        place. Exits with 0 when namespace and pools agree, with 6 when not. No service may run on the directory.")]
    Fsck(FsckArgs),
    /// Make a lost namespace of a storage element again, from its pools alone.
    #[command(after_help = "Examples:\n  penstock rebuild --dir cern --dry-run\n  \
        penstock rebuild --dir cern\n  penstock rebuild --dir cern --replace   # keeps the present one under another name\n\n\
        Reads the label of each file and the directory log of each pool that the configuration names, and makes a namespace \
        with the same paths, directories, owners, times, checksums, properties and ETags. Pools are only read. Files whose \
        place is not known go below /lost+found. No service may run on the directory.")]
    Rebuild(RebuildArgs),
    /// Look at the files that were removed or replaced at a storage element, bring them back, or remove them for good.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock trash list --dir cern /data/run42\n  \
        penstock trash restore --dir cern /data/run42/f                 # where it was\n  \
        penstock trash restore --dir cern 1f3a --to /data/run42/f.old   # a replaced version, beside the present one\n  \
        penstock trash empty --dir cern --older-than 12h\n\n\
        A storage element keeps what is deleted or overwritten for storage.trash (24h), as long as no new file needs the room. \
        The site runs meanwhile. docs/operations.md, \"Undelete\", is the drill."
    )]
    Trash(TrashCommand),
    /// Take what other systems wrote of transfers, servers and tapes into a directory of records.
    #[command(after_help = "Examples:\n  \
        penstock ingest fts messages.jsonl --into records\n  \
        penstock ingest dcache billing-2026.11.22 --year 2026 --zone +01:00 --into records --follow\n  \
        penstock ingest xrootd --listen 192.0.2.7:9930 --from 192.0.2.0/24 --into records\n  \
        penstock ingest log taped.log --mapping cta.toml --year 2026 --into records\n\n\
        A file that was taken before is gone on with where it was left. A line that is not understood is told with its \
        number and left out; the command then ends with 1. What a source does not tell stays unknown. docs/observe/records.md \
        describes the rows.")]
    Ingest(IngestArgs),
    /// Look at a directory of records, export it, import what was exported, remove what is old.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock records show records --since 1d --limit 20\n  \
        penstock records collect --dir site --into records   # what the site has recorded itself\n  \
        penstock records export records --to week.jsonl --since 7d\n  \
        penstock records export records --to week --format parquet   # a file for each family of rows\n  \
        penstock records import week.jsonl week/attempt.parquet --into copy\n  \
        penstock records remove records --before 90d"
    )]
    Records(RecordsCommand),
    /// Account for what was moved: volumes, rates, quality, links, servers; each figure says what it counts.
    #[command(after_help = "Examples:\n  \
        penstock account records --since 7d\n  \
        penstock account records --since 2021-10-11T08:00:00Z --until 2021-10-15T15:00:00Z --by link\n  \
        penstock account records --by server --json             # tables by everything, source × destination, servers, files\n  \
        penstock account records --since 30d --html month.html  # the same as a page with plots\n  \
        penstock account records --since 7d --html week.html --clouds clouds.toml\n  \
        penstock account reconcile vo-records site-records --since 7d   # why two views differ\n  \
        penstock account published table.json                   # rows of a table that cannot be true")]
    Account(AccountArgs),
    /// Look at the tape system of a storage element, or find the best order of recalls from a tape.
    #[command(
        subcommand,
        after_help = "Examples:\n  penstock tape status --dir cern\n  penstock tape retry --dir cern\n  \
        penstock tape order recall.json --model LTO-9"
    )]
    Tape(TapeCommand),
    /// Work with gfal2 for a transfer service, which starts this itself: one process for each attempt of a transfer.
    #[command(
        name = "gfal-agent",
        hide = true,
        after_help = "Example:\n  penstock gfal-agent --service $PPID --memory '2 GiB' --readable /usr/lib\n\n\
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

/// How to reach a server: whose certificates to trust and which token to show.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// A site directory: its CA certificates are trusted and its key signs a short token for each server, for what the
    /// command does there.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// The token itself. Other users see it in the process list: prefer --token-file.
    #[arg(long, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// A file with the token. Without this, --token and --dir: BEARER_TOKEN, BEARER_TOKEN_FILE,
    /// $XDG_RUNTIME_DIR/bt_u$UID, /tmp/bt_u$UID, in this order; the last two must be files of the user or of root, to
    /// which nobody else has access.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A hashed directory of CA certificates. Default: that of --dir, X509_CERT_DIR,
    /// /etc/grid-security/certificates, or the system's.
    #[arg(long, value_name = "DIR")]
    pub capath: Option<PathBuf>,
    /// Send the token over http too, where everybody on the way can read it.
    #[arg(long)]
    pub token_over_http: bool,
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
    /// Something other than a grid.
    #[command(subcommand)]
    pub command: Option<SimulateCommand>,
    /// The plan, in TOML.
    pub plan: Option<PathBuf>,
    /// Print a plan to begin with instead: small, or wlcg-day.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "small")]
    #[arg(conflicts_with = "plan")]
    pub example: Option<String>,
    /// Instead of a plan, let the service endure the random trouble of this seed, and check what must never happen and
    /// that VOs get their shares.
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
    /// By which rule the number of transfers on a link is found: limits, fixed:20, measured (as `serve` does it), or
    /// fts3. Repeat it to compare.
    #[arg(long = "policy", value_name = "POLICY")]
    pub policies: Vec<Policy>,
    /// Write report.html with plots, and report.json, into this directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Add what the simulated service records to this directory of records, for `explain`, `account` and `what-if`.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["example", "trouble"])]
    pub records: Option<PathBuf>,
}

fn account(text: &str) -> Result<Account, String> {
    let numbers = text.split_once(':');
    let numbers = numbers.and_then(|(user, group)| Some((user.parse().ok()?, group.parse().ok()?)));
    let (user, group) = numbers.ok_or_else(|| format!("'{text}' is not USER:GROUP"))?;
    Ok(Account { user, group })
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
    /// Account that it works as, by numbers. Default: that of the service.
    #[arg(long, value_name = "USER:GROUP", value_parser = account)]
    pub account: Option<Account>,
    /// Open any file that the account may, and connect anywhere.
    #[arg(long)]
    pub unconfined: bool,
    /// A file or directory that it may read. May be given several times.
    #[arg(long, value_name = "PATH")]
    pub readable: Vec<PathBuf>,
    /// A directory of authorities that it may read, with the targets of its links. May be given several times.
    #[arg(long, value_name = "DIR")]
    pub trusted: Vec<PathBuf>,
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
