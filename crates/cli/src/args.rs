//! What can be typed: the commands with their options, defaults and examples. What it means is decided
//! elsewhere. Long because each command is listed here.

mod access_links;
mod ban;
pub mod cloud;
mod context;
mod files;
mod help;
mod host;
mod incidents;
mod jobs;
mod mute;
pub mod population;
pub mod records;
pub mod settings;
mod simulate;
mod site;
mod stage;
mod tape;
mod top;
mod trash;
mod tree;
mod trust;
mod what_if;

pub use access_links::{
    AccessLinkCommand, AccessLinkListArgs, AccessLinkRevokeArgs, LoginLinkArgs, ShareArgs,
    ShareCommand, ShareListArgs, ShareMakeArgs, ShareRevokeArgs, ViewLinkArgs,
};
pub use ban::{BanCommand, BanListArgs, BanRemoveArgs, BanStorageArgs, BanUserArgs};
pub use context::{CompletionArgs, ContextAddArgs, ContextCommand, ManArgs};
pub use files::{ChecksumArgs, CopyArgs, LsArgs, MkdirArgs, RmArgs, UrlArgs, parse_url};
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
pub use stage::{FileListArgs, ReleaseArgs, StageArgs, StageCommand, StageRequestArgs};
pub use tape::{
    OrderGoalArg, OrderPolicyArg, TapeAccountArgs, TapeCalibrateArgs, TapeCommand,
    TapeDataSetsArgs, TapeHoldArgs, TapeNameArgs, TapeOrderArgs, TapeRepackArgs, TapeStatusArgs,
    TapeStopArgs,
};
pub use top::TopArgs;
pub use trash::{
    DoorArgs, RemovedSince, RestorePlace, TrashCommand, TrashEmptyArgs, TrashListArgs,
    TrashRestoreArgs, TrashedName,
};
pub use tree::{BulkArgs, DfArgs, DuArgs, MvArgs, SyncArgs};
pub use trust::{
    SITE_NAME_CHARS_MAX, SiteName, SiteRights, TrustAddArgs, TrustCommand, TrustListArgs,
    TrustRemoveArgs, TrustShowArgs,
};
pub use what_if::WhatIfArgs;

use self::cloud::CloudCommand;
use self::records::{AccountArgs, IngestArgs, RecordsCommand};
use self::settings::{
    ActivityCommand, AuditArgs, AuthorizeCommand, DrainArgs, ImportFts3Args, LinkCommand,
    SeCommand, VoShareCommand,
};
use crate::exit::EXIT_CODES_HELP;
use clap::{Args, CommandFactory, Parser, Subcommand};
use penstock_model::quantity::{Size, Span};
use penstock_protocol::gfal::Account;
use penstock_sim::Policy;
use std::path::PathBuf;
use url::Url;

/// Storage element, transfer service and command-line tools for moving and storing the data of big science.
#[derive(Debug, Parser)]
#[command(name = "penstock", version = env!("PENSTOCK_VERSION"), after_help = EXIT_CODES_HELP, max_term_width = 110)]
pub struct Arguments {
    /// Print one JSON value instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// Use what this context says instead of the one in use, or of PENSTOCK_DIR (`penstock context`).
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands, in the order in which a newcomer needs them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start two sites on this machine, move a data set between them, verify it and report the bandwidth.
    #[command(
        after_help = "Examples:\n  penstock demo --files 100 --size '500 MB'\n  \
        penstock demo --stay    # the sites keep running, with a job to look at\n\n\
        Exits with 0 when all files have arrived intact; with --stay, after Ctrl-C or SIGTERM. Stopped before that: 130."
    )]
    Demo(DemoArgs),
    /// Create a site directory: configuration, private CA, host certificate, token key, admin token.
    #[command(after_help = "Examples:\n  penstock init --dir site\n  \
        penstock init --dir cern --host 127.0.0.2\n  \
        penstock init --dir lyon --host 127.0.0.3 --peer cern   # both trust each other\n\n\
        FTS clients identify a storage element by scheme and host without port, so several sites on one machine \
        each need their own address: 127.0.0.2, 127.0.0.3, …")]
    Init(InitArgs),
    /// Run all services of a site until SIGTERM.
    #[command(after_help = "Example:\n  penstock serve --dir site\n\n\
        Prints one line per door with its URL, then `ready`. SIGTERM or Ctrl-C: drain, then exit. \
        SIGHUP: reload limits, certificates and trust from the site directory.")]
    Serve(ServeArgs),
    /// Validate a site's configuration, certificates and trust; with --values also print the effective values.
    #[command(
        after_help = "Example:\n  penstock check --dir site\n\nExits with 0 (warnings allowed) or 2."
    )]
    Check(CheckArgs),
    /// Issue a token (WLCG profile) with a site's own key and print it.
    #[command(after_help = "Examples:\n  \
        penstock token --dir site --scope 'storage.read:/ storage.modify:/' > token\n  \
        curl --capath site/certificates -H \"Authorization: Bearer $(cat token)\" https://localhost:8443/")]
    Token(TokenArgs),
    /// List and rotate the site's keys without an outage.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock key list --dir site\n  \
        penstock key rotate token --dir site         # signs after six hours, when all verifiers know it\n  \
        penstock key rotate token --now --dir site   # signs after six seconds\n  \
        penstock key rotate macaroon --dir site"
    )]
    Key(KeyCommand),
    /// Trust other sites, and exchange data with them.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock trust add --dir cern https://se.in2p3.fr:8443   # shows fingerprints, asks\n  \
        penstock trust list --dir cern\n  \
        penstock trust remove --dir cern in2p3"
    )]
    Trust(TrustCommand),
    /// Test a site's access rules: who may do what, and why.
    #[command(
        subcommand,
        after_help = "Example:\n  penstock authz test /data/f --dir cern --as anonymous"
    )]
    Authz(AuthzCommand),
    /// Submit transfers between storage elements to a transfer service.
    #[command(after_help = "Examples:\n  \
        penstock submit --dir cern https://127.0.0.2:8443/f https://127.0.0.3:8443/f --wait\n  \
        penstock submit --dir cern -r https://127.0.0.2:8443/run42/ https://127.0.0.3:8443/run42/ --wait\n  \
        penstock submit --service https://fts:8446 --token-file token --jobfile list.txt\n  \
        penstock submit --dir cern --bring-online 1d https://127.0.0.2:8443/tape/f https://127.0.0.3:8443/f   # from tape\n  \
        penstock submit --dir cern --archive-timeout 2d --delete-source https://127.0.0.2:8443/f https://127.0.0.3:8443/tape/f\n\n\
        A job file has one `source destination [ALGORITHM:checksum]` per line; blank lines and lines that \
        begin with # are ignored. It is submitted as jobs of at most 200 files each (--files-per-job).")]
    Submit(SubmitArgs),
    /// Show the state of jobs and, with --files, of each of their files.
    #[command(after_help = "Example:\n  penstock status --dir cern 0192d3a4-… --files")]
    Status(StatusArgs),
    /// List open jobs, or jobs in given states.
    #[command(
        after_help = "Example:\n  penstock list --dir cern --state FAILED --state FINISHEDDIRTY"
    )]
    List(ListArgs),
    /// Cancel jobs. Files that have already arrived stay.
    #[command(after_help = "Example:\n  penstock cancel --dir cern 0192d3a4-…")]
    Cancel(CancelArgs),
    /// Watch a transfer service in the terminal: links, rates, running transfers, and why files are waiting.
    #[command(
        after_help = "Examples:\n  penstock top --dir cern            # until Ctrl-C\n  \
        penstock top --dir cern --once     # the present state\n  penstock top --dir cern --json     # the same for scripts"
    )]
    Top(TopArgs),
    /// Ban storage elements or users from a transfer service, and lift bans.
    #[command(
        subcommand,
        after_help = "Example:\n  penstock ban se --dir cern https://se.example.org --wait --message 'maintenance'"
    )]
    Ban(BanCommand),
    /// Search all transfers, past and present, by address, host, state, VO or job.
    #[command(after_help = "Examples:\n  \
        penstock find --dir cern run42 file7                 # source or destination contains both words\n  \
        penstock find --dir cern --host se.in2p3.fr --state FAILED --since 2d\n  \
        penstock find --dir cern 0192d3a4-…                  # the files of a job\n\n\
        Newest first. `penstock explain NUMBER` shows the timeline of one.")]
    Find(FindArgs),
    /// Show why rates fell, why files are waiting or failed, or the timeline of one transfer or path.
    #[command(after_help = "Examples:\n  \
        penstock explain --dir cern                            # where rates fell and rose in the last 24 h\n  \
        penstock explain --dir cern --since 7d --link 'cern.ch-*'\n  \
        penstock explain --dir cern drop 6931bd80-1c9a44f2     # one drop: causes, evidence, what to do\n  \
        penstock explain --records records                     # from records of FTS3, dCache or XRootD\n  \
        penstock explain --dir cern link se1.cern.ch-se2.in2p3.fr\n  \
        penstock explain --dir cern 0192d3a4-…                 # a job: its failures, and why files are queued\n  \
        penstock explain --dir cern 0192d3a4-… --verbose       # the same with the details of each failure\n  \
        penstock explain --dir cern 4711                       # a transfer, by the number that `find` shows\n  \
        penstock explain --dir cern file https://se1.cern.ch/run42/f7   # the latest transfer of a file\n  \
        penstock explain --dir cern path /run42/f7             # a path of cern's own storage element\n\n\
        A drop is a lower rate while there was work queued. Percentages are shares of the lost rate; the part that no rule \
        explains is reported as unexplained, with the measurements that were missing.")]
    Explain(ExplainArgs),
    /// List incidents: all failures and drops with one cause, its class, the loss, and each class's share by month.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  penstock incidents --dir cern                        # the last 30 days\n  \
        penstock incidents --dir cern --month 2026-11        # a month, with the share of each class\n  \
        penstock incidents --dir cern --since 7d --class storage --json\n  \
        penstock incidents --dir cern --offline              # from the record of a site that is not running\n  \
        penstock incidents --records records                 # from records of FTS3, dCache or XRootD\n  \
        penstock incidents show --dir cern 6931bd80-1c9a44f2\n  \
        penstock incidents ticket --dir cern 6931bd80-1c9a44f2 > ticket.txt\n\n\
        A cause that returns within 6 hours belongs to the same incident. An incident stays open until 15 minutes after it \
        was last seen."
    )]
    Incidents(Box<IncidentsArgs>),
    /// Suppress alerts for some incidents for a limited time ([observe.alerts] in penstock.toml sets the recipients).
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock mute add --dir cern --link 'se1.cern.ch-*' --for 4h --why 'new disk servers'\n  \
        penstock mute list --dir cern\n  \
        penstock mute remove --dir cern --class tape"
    )]
    Mute(MuteCommand),
    /// Show the nodes of a transfer service: which one leads, and how many transfers run on each.
    #[command(
        after_help = "Examples:\n  penstock nodes --dir cern          # who leads, since when, agents busy and free\n  \
        penstock nodes --dir cern --json   # the same for scripts"
    )]
    Nodes(NodesArgs),
    /// Copy a file or a directory tree to, from or between servers; every checksum is verified.
    #[command(after_help = "Examples:\n  \
        penstock copy --dir cern run42/ https://127.0.0.2:8443/data/run42/\n  \
        penstock copy --token-file token davs://se.example.org/data/f ./f\n  \
        penstock copy --dir cern https://127.0.0.2:8443/data/run42/ https://127.0.0.3:8443/data/run42/\n  \
        penstock copy --dir cern run42/ https://127.0.0.2:8443/data/run42/ --exclude '*.tmp' --bwlimit 50M --dry-run\n\n\
        The destination is the name of the copy, unless it ends with / or is a directory: then a single file \
        keeps its name inside it; the contents of a directory are copied directly into the destination. When a file fails, \
        the others are still copied, and the failed ones are listed at the end. After an interruption, run the command \
        again: files that arrived intact are skipped, and files of 16 MiB or more continue where they stopped. In a \
        pattern, * and ? match within a name and ** matches any directories; a pattern with a / is matched from the \
        top, and one that ends with / matches directories.")]
    Copy(CopyArgs),
    /// Make a directory equal to another: copy new and changed files, and remove files that the source does not have.
    #[command(after_help = "Examples:\n  \
        penstock sync --dir cern run42/ https://127.0.0.2:8443/data/run42/ --dry-run\n  \
        penstock sync --dir cern https://127.0.0.2:8443/data/run42/ copy-of-run42/ --yes\n  \
        penstock sync --dir cern run42/ https://127.0.0.2:8443/data/run42/ --exclude tmp/ --delete-max 20\n\n\
        Before it changes anything, the command shows what it would remove, and asks. Nothing is removed when the source \
        could not be listed completely, or when a file could not be copied. Files that --include and --exclude leave out \
        are not removed either.")]
    Sync(SyncArgs),
    /// Rename or move a file or directory within one storage element.
    #[command(after_help = "Examples:\n  \
        penstock mv --dir cern https://127.0.0.2:8443/data/f https://127.0.0.2:8443/data/g\n  \
        penstock mv --dir cern https://127.0.0.2:8443/data/f https://127.0.0.2:8443/data/old/   # keeps its name")]
    Mv(MvArgs),
    /// Show the number and total size of the files below directories.
    #[command(
        after_help = "Examples:\n  penstock du --dir cern https://127.0.0.2:8443/data/\n  \
        penstock du --dir cern -d 0 --include '*.root' https://127.0.0.2:8443/data/run42/"
    )]
    Du(DuArgs),
    /// Show the used and free space of a storage element; of a Penstock storage element, also of each pool.
    #[command(after_help = "Examples:\n  penstock df --dir cern\n  \
        penstock df --token-file token davs://se.example.org/data/")]
    Df(DfArgs),
    /// List a directory or a file.
    #[command(
        after_help = "Example:\n  penstock ls --dir cern -l https://127.0.0.2:8443/data/\n\n\
        Where a storage element has tape, --long shows where each file is: DISK, TAPE, DISK_AND_TAPE, LOST, NONE (an empty \
        file) or UNAVAILABLE."
    )]
    Ls(LsArgs),
    /// Show size, time, type and checksum of a file or directory; where there is tape, also where the file is.
    #[command(
        after_help = "Example:\n  penstock stat --dir cern https://127.0.0.2:8443/data/f\n\n\
        The locality of a file is DISK, TAPE, DISK_AND_TAPE, LOST, NONE (an empty file) or UNAVAILABLE."
    )]
    Stat(UrlArgs),
    /// Delete files; with --recursive also directories and their contents.
    #[command(after_help = "Example:\n  penstock rm --dir cern https://127.0.0.2:8443/data/f")]
    Rm(RmArgs),
    /// Create directories.
    #[command(
        after_help = "Example:\n  penstock mkdir --dir cern -p https://127.0.0.2:8443/data/run42/raw"
    )]
    Mkdir(MkdirArgs),
    /// Write files to standard output.
    #[command(
        after_help = "Example:\n  penstock cat --dir cern https://127.0.0.2:8443/data/f | head"
    )]
    Cat(UrlArgs),
    /// Create a link with which others can view and download a file or directory for a limited time.
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "Examples:\n  \
        penstock share --dir cern https://127.0.0.2:8443/data/run42 --for 12h\n  \
        penstock share --dir cern https://127.0.0.2:8443/inbox --upload   # a drop box\n  \
        penstock share list --dir cern\n  \
        penstock share revoke --dir cern 5f0c1b2a3d4e\n\n\
        Anybody who has the link can use it, with a browser or curl, until it expires or is revoked. The site limits its \
        lifetime (storage.macaroon_validity_max)."
    )]
    Share(ShareArgs),
    /// Bring files from tape to disk.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  \
        penstock stage --dir cern https://127.0.0.2:8443/tape/f1 https://127.0.0.2:8443/tape/f2 --wait\n  \
        penstock stage --dir cern --from files.txt --lifetime 2d     # kept on disk for two days\n  \
        penstock stage status --dir cern 0192d3a4-…\n  \
        penstock stage cancel --dir cern 0192d3a4-…\n\n\
        Works with every storage element that offers the WLCG Tape REST API, version 1; the token needs storage.stage for the \
        files. Prints the id of each request and its storage element; there is one request per storage element and 500 files. \
        Files that cannot be staged are listed with the reason. `penstock stat` shows whether a file is on disk, and \
        `penstock release` lets it go."
    )]
    Stage(StageArgs),
    /// Release staged files, so that they need not stay on disk.
    #[command(after_help = "Examples:\n  \
        penstock release --dir cern https://127.0.0.2:8443/tape/f1\n  \
        penstock release --dir cern --request 0192d3a4-…             # all files of the request\n  \
        penstock release --dir cern --request 0192d3a4-… --from files.txt")]
    Release(ReleaseArgs),
    /// Show the checksums that a storage element reports for files.
    #[command(
        after_help = "Example:\n  penstock checksum --dir cern https://127.0.0.2:8443/data/f"
    )]
    Checksum(ChecksumArgs),
    /// Show or change the limits of links.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock link list --dir cern\n  \
        penstock link set --dir cern cern-lyon --from https://se.cern.ch --to https://se.in2p3.fr --max 80\n  \
        penstock link remove --dir cern cern-lyon"
    )]
    Link(LinkCommand),
    /// Show or change the limits of storage elements.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock se show --dir cern https://se.in2p3.fr\n  \
        penstock se set --dir cern https://se.in2p3.fr --in 100 --out 50"
    )]
    Se(SeCommand),
    /// Show or set each VO's share of transfer slots.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock vo-share list --dir cern\n  \
        penstock vo-share set --dir cern cms 75 --to https://se.in2p3.fr\n  \
        penstock vo-share remove --dir cern cms --to https://se.in2p3.fr"
    )]
    VoShare(VoShareCommand),
    /// Show or set each activity's share of a VO's transfer slots.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock activity list --dir cern\n  \
        penstock activity set --dir cern atlas 'T0 Export=0.7' 'Production=0.25' default=0.05"
    )]
    Activity(ActivityCommand),
    /// Show or change who may manage a transfer service besides its administrators.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock authorize list --dir cern\n  \
        penstock authorize set --dir cern '/DC=org/CN=Bob' --storage https://se.in2p3.fr"
    )]
    Authorize(AuthorizeCommand),
    /// Show or change S3 cloud storages and the access keys of users and VOs.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock cloud-storage add --dir cern S3:s3.example.org\n  \
        penstock cloud-storage grant --dir cern S3:s3.example.org --vo dteam --keys keys.txt\n  \
        penstock submit --dir cern https://se.cern.ch/data/f s3s://s3.example.org/bucket/f"
    )]
    CloudStorage(CloudCommand),
    /// Drain a transfer service (start no more transfers), or resume. Submissions are still accepted.
    #[command(
        after_help = "Examples:\n  penstock drain show --dir cern\n  penstock drain on --dir cern\n  \
        penstock drain off --dir cern\n\nThe service stays drained across restarts."
    )]
    Drain(DrainArgs),
    /// Create a link that opens the live page of a transfer service in a browser, signed in. It works once.
    #[command(after_help = "Examples:\n  penstock login-link --dir cern\n  \
        penstock login-link --dir cern --admin --for 24h\n\n\
        Whoever opens the link first is signed in as you, until the session ends or is revoked with `penstock access-link \
        revoke`. A session cannot submit jobs.")]
    LoginLink(LoginLinkArgs),
    /// Create a link that shows one job or transfer to anybody, without names of users and paths of files.
    #[command(after_help = "Examples:\n  \
        penstock view-link --dir cern 0190a8b4-1c2d-7000-8000-000000000001\n  \
        penstock view-link --dir cern 4711 --for 7d")]
    ViewLink(ViewLinkArgs),
    /// List and revoke login links, sessions and view links. Shares of files: `penstock share list`.
    #[command(
        subcommand,
        after_help = "Examples:\n  penstock access-link list --dir cern\n  \
        penstock access-link revoke --dir cern 5f0c1b2a3d4e"
    )]
    AccessLink(AccessLinkCommand),
    /// Show who changed which setting of a transfer service, and when.
    #[command(after_help = "Example:\n  penstock audit --dir cern --limit 100")]
    Audit(AuditArgs),
    /// Simulate a grid (sites, networks and users) in virtual time, with the scheduler that `serve` runs.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  \
        penstock simulate --example > plan.toml              # an example plan with comments\n  \
        penstock simulate plan.toml --out report             # writes report/report.html with plots\n  \
        penstock simulate plan.toml --policy measured --policy fts3 --policy fixed:10   # side by side\n  \
        penstock simulate plan.toml --seed 7 --json\n  \
        penstock simulate plan.toml --records seen           # then: penstock what-if --records seen\n  \
        penstock simulate --trouble 0 --seeds 1000           # random grids with random faults; checks the invariants\n  \
        penstock simulate tape week.json                     # a tape library instead of a grid"
    )]
    Simulate(SimulateArgs),
    /// Replay a site's records in the simulator and estimate the effect of other limits or faster hardware.
    #[command(after_help = "Examples:\n  \
        penstock what-if --dir cern                          # can the last day be replayed, and what limited it?\n  \
        penstock what-if --dir cern --since 6h --set 'link se1.cern.ch-se2.in2p3.fr active=+4' --set 'storage se2.in2p3.fr pools=+1'\n  \
        penstock what-if --dir cern --set 'link * se2.in2p3.fr active=12, storage se2.in2p3.fr active=50'\n  \
        penstock what-if --dir cern --set 'storage se2.in2p3.fr rate=x2' --seed 7 --json\n  \
        penstock what-if --dir cern --fix 6931bd80-1c9a44f2  # the effect of the fix that `explain` suggests for a drop\n  \
        penstock what-if --records records --set 'link a.example.org b.example.org rate=500 MB/s'\n\n\
        What can be changed: active and rate of a link (SOURCE-DESTINATION, or both names); active, rate, pools and failures \
        of a storage; active of the service. Write active and pools as 12, +4, -2 or x2, rate as x2 or '500 MB/s', failures \
        as the fraction of its files that fail. A window that the simulator cannot replay within 25 % of its recorded rate \
        is refused.")]
    WhatIf(WhatIfArgs),
    /// Show how much history is kept, for how long, and what delays its cleanup.
    #[command(
        after_help = "Examples:\n  penstock history --dir cern\n  penstock history --dir cern --json\n\n\
        transfer.keep_history, keep_samples and keep_minutes set how long; a running service removes older entries. Entries \
        that a message sink has not received yet are kept for up to transfer.history_held_max longer."
    )]
    History(HistoryArgs),
    /// Show samples of a transfer service's host: pressure, disks, network interfaces, settings and their changes.
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:\n  penstock host --dir cern --since 1h\n  penstock host --dir cern --json > cern.json\n  \
        penstock host compare cern.json lyon.json ral.json\n  \
        penstock host compare a.json b.json --rate 'a=400 kB/s' --rate 'b=40 MB/s'\n\n\
        For administrators of the service. `compare` reads reports made with --json on hosts that do the same work, and \
        shows which settings only the slow ones have."
    )]
    Host(HostArgs),
    /// Back up a site's databases and configuration while it runs, or verify a backup.
    #[command(
        after_help = "Examples:\n  penstock backup --dir cern --to /backups/cern.backup\n  \
        penstock backup --dir cern --to /backups/names --only namespace\n  \
        penstock backup --verify /backups/cern.backup\n\n\
        Of a transfer service: jobs with their history, delegated credentials (still encrypted) and the configuration. The \
        keys that decrypt the credentials are included only with --with-keys; otherwise keep a copy of them in another place. \
        The format is the same whether transfer.database is a file or PostgreSQL, and a backup can be restored into either. \
        Of a storage element: the namespace (names, sizes, checksums, owners), in FILE.namespace; the data itself stays in \
        the pools. A backup gets its final name only after all of it has been read back and verified."
    )]
    Backup(BackupArgs),
    /// Restore a backup.
    #[command(
        after_help = "Examples:\n  penstock restore /backups/cern.backup --dir cern\n  \
        penstock restore /backups/cern.backup --dir cern --only namespace --replace\n\n\
        Stop the site first. A PostgreSQL database must be empty, and no node may be using it. Jobs that were open when the \
        backup was made are open again: a file that has arrived intact since then is found and counts as arrived. Transfer \
        numbers continue after a gap. Files that were stored after the backup of a namespace stay in the pools: \
        `penstock fsck` finds them. If the pools are intact, `penstock rebuild` gives a newer namespace than a backup."
    )]
    Restore(RestoreArgs),
    /// Compare the namespace of a storage element with its pools, in both directions, and repair differences.
    #[command(after_help = "Examples:\n  penstock fsck --dir cern\n  \
        penstock fsck --dir cern --json > findings.json\n  \
        penstock fsck --dir cern --repair            # shows what it will change, and asks\n  \
        penstock fsck --dir cern --remove-missing --yes\n\n\
        Stop the site first. Without --repair or --remove-missing nothing is changed. File data is never removed: files \
        without an entry get a new one that replaces no other. Exits with 0 when namespace and pools agree, otherwise with 6.")]
    Fsck(FsckArgs),
    /// Rebuild the lost namespace of a storage element from its pools.
    #[command(after_help = "Examples:\n  penstock rebuild --dir cern --dry-run\n  \
        penstock rebuild --dir cern\n  penstock rebuild --dir cern --replace   # keeps the current one under another name\n\n\
        Stop the site first. Reads the label of each file and the directory log of each configured pool, and creates a \
        namespace with the same paths, directories, owners, times, checksums, properties and ETags. Pools are only read. \
        Files whose path is not known go to /lost+found.")]
    Rebuild(RebuildArgs),
    /// List, restore or permanently delete the files that were deleted or overwritten at a storage element.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock trash list --dir cern /data/run42\n  \
        penstock trash restore --dir cern /data/run42/f                 # to its old path\n  \
        penstock trash restore --dir cern 1f3a --to /data/run42/f.old   # an overwritten version, next to the current one\n  \
        penstock trash empty --dir cern --older-than 12h\n\n\
        A storage element keeps deleted and overwritten files for storage.trash (24h), unless new files need the space. \
        The site keeps running. For a step-by-step procedure see \"Trash\" in docs/admin/recovery.md."
    )]
    Trash(TrashCommand),
    /// Import logs and messages of other systems about transfers, servers and tapes into a directory of records.
    #[command(after_help = "Examples:\n  \
        penstock ingest fts messages.jsonl --into records\n  \
        penstock ingest dcache billing-2026.11.22 --year 2026 --zone +01:00 --into records --follow\n  \
        penstock ingest xrootd --listen 192.0.2.7:9930 --from 192.0.2.0/24 --into records\n  \
        penstock ingest log taped.log --mapping cta.toml --year 2026 --into records\n\n\
        A file that was read before is continued at the last position. A line that cannot be parsed is reported with its \
        number and skipped; the command then exits with 1. Values that a source does not contain stay unknown. \
        docs/observe/records.md describes the rows.")]
    Ingest(IngestArgs),
    /// Show, export, import or remove records.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock records show records --since 1d --limit 20\n  \
        penstock records collect --dir site --into records   # the site's own records\n  \
        penstock records export records --to week.jsonl --since 7d\n  \
        penstock records export records --to week --format parquet   # one file per family of rows\n  \
        penstock records import week.jsonl week/attempt.parquet --into copy\n  \
        penstock records remove records --before 90d"
    )]
    Records(RecordsCommand),
    /// Report volumes, rates, quality, links and servers; each figure says what it counts.
    #[command(after_help = "Examples:\n  \
        penstock account records --since 7d\n  \
        penstock account records --since 2021-10-11T08:00:00Z --until 2021-10-15T15:00:00Z --by link\n  \
        penstock account records --by server --json             # all tables: every grouping, source × destination, servers, files\n  \
        penstock account records --since 30d --html month.html  # the same as a page with plots\n  \
        penstock account records --since 7d --html week.html --clouds clouds.toml\n  \
        penstock account reconcile vo-records site-records --since 7d   # why two views differ\n  \
        penstock account published table.json                   # find contradictory rows of a published table")]
    Account(AccountArgs),
    /// Show and operate the tape system of a storage element, or find the best order of recalls from a tape.
    #[command(
        subcommand,
        after_help = "Examples:\n  penstock tape status --dir cern\n  penstock tape retry --dir cern\n  \
        penstock tape order recall.json --model LTO-9"
    )]
    Tape(TapeCommand),
    /// Run one attempt of a transfer with gfal2. The transfer service starts this process itself.
    #[command(
        name = "gfal-agent",
        hide = true,
        after_help = "Example:\n  penstock gfal-agent --service $PPID --memory '2 GiB' --readable /usr/lib\n\n\
        It reads orders from standard input and writes reports to standard output, one JSON document per line."
    )]
    GfalAgent(GfalAgentArgs),
    /// Save sites under names, to use them without typing --dir, --service and tokens.
    #[command(
        subcommand,
        after_help = "Examples:\n  \
        penstock context add cern --dir /srv/cern --use   # from now on `penstock list` is about cern\n  \
        penstock list --context lyon\n  \
        penstock context list\n\n\
        Order of precedence: typed options; --context NAME; the site directory in PENSTOCK_DIR; the context in use. Contexts are \
        stored in $XDG_CONFIG_HOME/penstock/contexts.toml, or below ~/.config."
    )]
    Context(ContextCommand),
    /// Print a script with which a shell completes commands and options.
    #[command(after_help = "Examples:\n  \
        penstock completion bash > /etc/bash_completion.d/penstock\n  \
        penstock completion zsh > ~/.zfunc/_penstock\n  \
        penstock completion fish > ~/.config/fish/completions/penstock.fish")]
    Completion(CompletionArgs),
    /// Write manual pages of all commands into a directory.
    #[command(after_help = "Example:\n  penstock man /usr/local/share/man/man1")]
    Man(ManArgs),
    /// Import the configuration of an FTS3 server: limits of links and storage elements, defaults of VOs.
    #[command(after_help = "Examples:\n  \
        curl --cert proxy --capath /etc/grid-security/certificates https://fts3:8446/config/links > links.json\n  \
        penstock import-fts3 --dir cern links.json se.json --dry-run\n  \
        penstock import-fts3 --dir cern https://fts3:8446 --source-token-file token\n\n\
        + marks a change, - a setting without a counterpart here, ! a refused setting. Nothing is removed; a second run \
        changes nothing.")]
    ImportFts3(ImportFts3Args),
}

/// The command line as it is defined.
pub fn definition() -> clap::Command {
    Arguments::command()
}

/// The command line with its help arranged for people.
pub fn command() -> clap::Command {
    help::arranged(definition())
}

/// How to reach a server: which certificates to trust and which token to send.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// A site directory: its CA certificates are trusted, and its key signs a short-lived token for each server with only
    /// the rights that the command needs.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// The token itself. Other users see it in the process list: prefer --token-file.
    #[arg(long, conflicts_with = "token_file")]
    pub token: Option<String>,
    /// A file with the token. Without --token-file, --token and --dir, the token comes from the context, for its servers only,
    /// or from BEARER_TOKEN, BEARER_TOKEN_FILE, $XDG_RUNTIME_DIR/bt_u$UID or /tmp/bt_u$UID, in this order; the last two must
    /// be owned by the user or root and accessible to nobody else.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A hashed directory of CA certificates. Default: that of --dir, X509_CERT_DIR,
    /// /etc/grid-security/certificates, or the system's.
    #[arg(long, value_name = "DIR")]
    pub capath: Option<PathBuf>,
    /// Send the token over http too, where everybody on the network path can read it.
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
    /// Move the files in this directory. Default: a generated data set with a realistic mix of sizes.
    #[arg(long, conflicts_with_all = ["files", "size"])]
    pub data: Option<PathBuf>,
    /// Number of files to generate.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub files: usize,
    /// Total size to generate.
    #[arg(long, value_name = "S", default_value = "2 GB")]
    pub size: Size,
    /// Keep the directories of the sites.
    #[arg(long)]
    pub keep: bool,
    /// Afterwards, keep the sites running until Ctrl-C, with a job to look at: one of its files is missing, and a limit
    /// delays the others.
    #[arg(long)]
    pub stay: bool,
}

/// Options of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Simulate something other than a grid.
    #[command(subcommand)]
    pub command: Option<SimulateCommand>,
    /// The plan, in TOML.
    pub plan: Option<PathBuf>,
    /// Print an example plan instead: small or wlcg-day.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "small")]
    #[arg(conflicts_with = "plan")]
    pub example: Option<String>,
    /// Instead of a plan, run random fault injection with this seed, and check the invariants and the VOs' shares.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["plan", "example"])]
    pub trouble: Option<u64>,
    /// Number of seeds to run, starting with that of --trouble.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "trouble")]
    pub seeds: u64,
    /// The random seed. Default: the plan's.
    #[arg(long)]
    pub seed: Option<u64>,
    /// End after this simulated time, if the plan is longer.
    #[arg(long, value_name = "TIME")]
    pub length: Option<Span>,
    /// How the number of concurrent transfers on a link is found: limits, fixed:20, measured (as in `serve`), or fts3.
    /// Repeat it to compare.
    #[arg(long = "policy", value_name = "POLICY")]
    pub policies: Vec<Policy>,
    /// Write report.html with plots, and report.json, into this directory.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Add the records of the simulated service to this directory, for `explain`, `account` and `what-if`.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["example", "trouble"])]
    pub records: Option<PathBuf>,
}

fn account(text: &str) -> Result<Account, String> {
    let numbers = text.split_once(':');
    let numbers = numbers.and_then(|(user, group)| Some((user.parse().ok()?, group.parse().ok()?)));
    let (user, group) = numbers.ok_or_else(|| format!("'{text}' is not USER:GROUP"))?;
    Ok(Account { user, group })
}

/// `penstock gfal-agent`. People have no use for it; `docs/admin/gfal2.md` tells what it is.
#[derive(Debug, Args)]
pub struct GfalAgentArgs {
    /// Process id of the transfer service; this process ends when that one does.
    #[arg(long)]
    pub service: u32,
    /// Memory limit.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Numeric account to run as. Default: that of the service.
    #[arg(long, value_name = "USER:GROUP", value_parser = account)]
    pub account: Option<Account>,
    /// Do not restrict file access and connections beyond the rights of the account.
    #[arg(long)]
    pub unconfined: bool,
    /// A readable file or directory; repeat it for more.
    #[arg(long, value_name = "PATH")]
    pub readable: Vec<PathBuf>,
    /// A readable directory of CA certificates, including the targets of its symbolic links; repeat it for more.
    #[arg(long, value_name = "DIR")]
    pub trusted: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
