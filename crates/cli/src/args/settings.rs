//! What can be typed to look at and change the settings of a running transfer service.

use super::ServiceArgs;
use clap::{Args, Subcommand, ValueEnum};
use penstock_model::quantity::Speed;
use std::path::PathBuf;

/// What `link` does.
#[derive(Debug, Subcommand)]
pub enum LinkCommand {
    /// List all rules.
    #[command(after_help = "Example:\n  penstock link list --dir cern")]
    List(SettingsArgs),
    /// Show one rule.
    #[command(after_help = "Example:\n  penstock link show --dir cern cern-lyon")]
    Show(NamedArgs),
    /// Create or change a rule.
    #[command(after_help = "Examples:\n  \
        penstock link set --dir cern cern-lyon --from https://se.cern.ch --to https://se.in2p3.fr --max 80\n  \
        penstock link set --dir cern into-lyon --to https://se.in2p3.fr --max 200   # from any source\n  \
        penstock link set --dir cern cern-lyon --max 40 --rate '10 Gb/s'\n  \
        penstock link set --dir cern cern-lyon --drain on       # before network maintenance\n\n\
        If several rules match a link, the one that names both ends applies, then the one that names the source, then the \
        one that names the destination. Running transfers continue; new ones start when fewer than the new limit run.")]
    Set(LinkSetArgs),
    /// Remove a rule. The configuration file applies again.
    #[command(after_help = "Example:\n  penstock link remove --dir cern cern-lyon")]
    Remove(NamedArgs),
}

/// What `se` does.
#[derive(Debug, Subcommand)]
pub enum SeCommand {
    /// List all storage elements that have settings.
    #[command(after_help = "Example:\n  penstock se list --dir cern")]
    List(SettingsArgs),
    /// Show the settings of one storage element.
    #[command(after_help = "Example:\n  penstock se show --dir cern https://se.in2p3.fr")]
    Show(StorageArgs),
    /// Set limits and notes. Omitted options stay unchanged; `none` removes a setting.
    #[command(after_help = "Examples:\n  \
        penstock se set --dir cern https://se.in2p3.fr --in 100 --out 50\n  \
        penstock se set --dir cern '*' --in 200             # all without a limit of their own\n  \
        penstock se set --dir cern https://se.in2p3.fr --out none --in-rate '2 GB/s'\n  \
        penstock se set --dir cern https://se.in2p3.fr --drain on   # before maintenance")]
    Set(SeSetArgs),
    /// Remove all settings of one storage element.
    #[command(after_help = "Example:\n  penstock se remove --dir cern https://se.in2p3.fr")]
    Remove(StorageArgs),
}

/// What `vo-share` does.
#[derive(Debug, Subcommand)]
pub enum VoShareCommand {
    /// List the shares of all VOs.
    #[command(after_help = "Example:\n  penstock vo-share list --dir cern")]
    List(SettingsArgs),
    /// Set a VO's share of the matching links.
    #[command(after_help = "Examples:\n  \
        penstock vo-share set --dir cern cms 75 --to https://se.in2p3.fr\n  \
        penstock vo-share set --dir cern public 5 --to https://se.in2p3.fr   # all other VOs together\n\n\
        Shares are relative to those of the other VOs with queued files. If several patterns match a link, only the most \
        specific one applies. On a link where some VOs have shares and `public` has none, all other VOs are refused: \
        their files fail, like those of a VO with share 0.")]
    Set(VoShareSetArgs),
    /// Remove a VO's share.
    #[command(
        after_help = "Example:\n  penstock vo-share remove --dir cern cms --to https://se.in2p3.fr"
    )]
    Remove(VoShareArgs),
}

/// What `activity` does.
#[derive(Debug, Subcommand)]
pub enum ActivityCommand {
    /// List the activity shares of all VOs.
    #[command(after_help = "Example:\n  penstock activity list --dir cern")]
    List(SettingsArgs),
    /// Show the activity shares of one VO.
    #[command(after_help = "Example:\n  penstock activity show --dir cern atlas")]
    Show(VoArgs),
    /// Set the activity shares of a VO. They replace earlier ones.
    #[command(after_help = "Example:\n  \
        penstock activity set --dir cern atlas 'T0 Export=0.7' 'Production=0.25' default=0.05\n\n\
        Names are not case-sensitive. Activities that are not named share `default`; without a value of its own, it has \
        the smallest of the given shares.")]
    Set(ActivitySetArgs),
    /// Remove the activity shares of a VO: its files start in order of age again.
    #[command(after_help = "Example:\n  penstock activity remove --dir cern atlas")]
    Remove(VoArgs),
}

/// What `authorize` does.
#[derive(Debug, Subcommand)]
pub enum AuthorizeCommand {
    /// List the users who may change settings besides the administrators.
    #[command(after_help = "Example:\n  penstock authorize list --dir cern")]
    List(SettingsArgs),
    /// Allow a user to change settings: all, or those of one storage element and its links.
    #[command(after_help = "Examples:\n  \
        penstock authorize set --dir cern '/DC=org/CN=Alice'\n  \
        penstock authorize set --dir cern '/DC=org/CN=Bob' --storage https://se.in2p3.fr\n  \
        penstock authorize set --dir cern 'https://iam.example.org/#0b5e7c0e'   # a token's issuer and subject")]
    Set(GrantArgs),
    /// Revoke a right: for one storage element, or all.
    #[command(after_help = "Example:\n  penstock authorize remove --dir cern '/DC=org/CN=Bob'")]
    Remove(GrantArgs),
}

/// Options of commands that list settings.
#[derive(Debug, Args)]
pub struct SettingsArgs {
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of commands about a named rule.
#[derive(Debug, Args)]
pub struct NamedArgs {
    /// The rule's symbolic name.
    pub name: String,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of commands about a storage element.
#[derive(Debug, Args)]
pub struct StorageArgs {
    /// Scheme and host without port, such as https://se.example.org; or * for all without settings of their own.
    pub storage: String,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `link set`.
#[derive(Debug, Args)]
pub struct LinkSetArgs {
    /// The rule's symbolic name.
    pub name: String,
    /// The source's scheme and host without port. A new rule without it applies to every source.
    #[arg(long = "from", value_name = "STORAGE")]
    pub source: Option<String>,
    /// The destination's, likewise.
    #[arg(long = "to", value_name = "STORAGE")]
    pub destination: Option<String>,
    /// Maximum number of concurrent transfers on each matching link.
    #[arg(long, value_name = "N")]
    pub max: Option<u32>,
    /// Minimum number of concurrent transfers that tuning may choose.
    #[arg(long, value_name = "N")]
    pub min: Option<u32>,
    /// How far tuning may go: 0 no tuning, 1 never above the number of queued files, 2 normal, 3 also for a small gain;
    /// `none`: 2.
    #[arg(long, value_name = "MODE", value_parser = number_or_none)]
    pub mode: Option<OrNone<u32>>,
    /// How the number of concurrent transfers is found: measured, fts3 or fixed; `none`: as set in the configuration file.
    #[arg(long, value_name = "WHO", value_parser = text_or_none)]
    pub tuning: Option<OrNone<String>>,
    /// Rate limit of each matching link, such as 500 MB/s or 10 Gb/s.
    #[arg(long, value_name = "SPEED|none", value_parser = speed_or_none)]
    pub rate: Option<OrNone<Speed>>,
    /// on: start no more transfers there, and let running ones finish; off: resume.
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pub drain: Option<bool>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of commands about a VO's share of links.
#[derive(Debug, Args)]
pub struct VoShareArgs {
    /// The VO; `public` for all VOs without a share of their own.
    pub vo: String,
    /// The source's scheme and host without port. Default: every source.
    #[arg(long = "from", value_name = "STORAGE", default_value = "*")]
    pub source: String,
    /// The destination's, likewise.
    #[arg(long = "to", value_name = "STORAGE", default_value = "*")]
    pub destination: String,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `vo-share set`.
#[derive(Debug, Args)]
pub struct VoShareSetArgs {
    /// The VO; `public` for all VOs without a share of their own.
    pub vo: String,
    /// Its weight relative to the other shares; 0: its files are refused.
    pub share: f64,
    /// The source's scheme and host without port. Default: every source.
    #[arg(long = "from", value_name = "STORAGE", default_value = "*")]
    pub source: String,
    /// The destination's, likewise.
    #[arg(long = "to", value_name = "STORAGE", default_value = "*")]
    pub destination: String,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of commands about a VO.
#[derive(Debug, Args)]
pub struct VoArgs {
    /// The VO.
    pub vo: String,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `activity set`.
#[derive(Debug, Args)]
pub struct ActivitySetArgs {
    /// The VO.
    pub vo: String,
    /// An activity and its share; `default` is for activities that are not named.
    #[arg(required = true, value_name = "ACTIVITY=SHARE", value_parser = activity_share)]
    pub shares: Vec<(String, f64)>,
    /// Store the shares without applying them.
    #[arg(long)]
    pub off: bool,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

fn activity_share(text: &str) -> Result<(String, f64), String> {
    // A name may have the sign in it.
    let (name, share) = text.rsplit_once('=').ok_or("write ACTIVITY=SHARE")?;
    let number = share.trim().parse();
    let number = number.map_err(|_| format!("'{share}' is not a number"))?;
    Ok((name.trim().to_owned(), number))
}

/// A value, or none any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrNone<T> {
    /// It.
    Some(T),
    /// None.
    None,
}

fn number_or_none(text: &str) -> Result<OrNone<u32>, String> {
    match text {
        "none" => Ok(OrNone::None),
        _ => {
            let number = text.parse();
            number
                .map(OrNone::Some)
                .map_err(|_| format!("'{text}' is neither a number nor 'none'"))
        }
    }
}

fn speed_or_none(text: &str) -> Result<OrNone<Speed>, String> {
    match text {
        "none" => Ok(OrNone::None),
        _ => text.parse().map(OrNone::Some),
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

fn text_or_none(text: &str) -> Result<OrNone<String>, String> {
    Ok(match text {
        "none" => OrNone::None,
        _ => OrNone::Some(text.to_owned()),
    })
}

/// Options of `se set`.
#[derive(Debug, Args)]
pub struct SeSetArgs {
    /// Scheme and host without port, such as https://se.example.org; or * for all without settings of their own.
    pub storage: String,
    /// Maximum number of concurrent transfers to it, over all links.
    #[arg(long = "in", value_name = "N|none", value_parser = number_or_none)]
    pub inbound: Option<OrNone<u32>>,
    /// Maximum number of concurrent transfers from it, over all links.
    #[arg(long = "out", value_name = "N|none", value_parser = number_or_none)]
    pub outbound: Option<OrNone<u32>>,
    /// Rate limit for transfers to it, over all links, such as 500 MB/s or 10 Gb/s.
    #[arg(long, value_name = "SPEED|none", value_parser = speed_or_none)]
    pub in_rate: Option<OrNone<Speed>>,
    /// Rate limit for transfers from it, over all links.
    #[arg(long, value_name = "SPEED|none", value_parser = speed_or_none)]
    pub out_rate: Option<OrNone<Speed>>,
    /// on: start no more transfers there, and let running ones finish; off: resume.
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pub drain: Option<bool>,
    /// Its site, for information only.
    #[arg(long, value_name = "TEXT|none", value_parser = text_or_none)]
    pub site: Option<OrNone<String>>,
    /// A note, for information only.
    #[arg(long, value_name = "TEXT|none", value_parser = text_or_none)]
    pub note: Option<OrNone<String>>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `authorize set` and `remove`.
#[derive(Debug, Args)]
pub struct GrantArgs {
    /// A certificate's subject in slash form; the subject of a token of the service's own issuer; or
    /// ISSUER#SUBJECT.
    pub user: String,
    /// Only for this storage element and its links.
    #[arg(long, value_name = "STORAGE", conflicts_with = "operation")]
    pub storage: Option<String>,
    /// The right: `config` (change settings, ban) or `transfer` (see and cancel the jobs of all users).
    #[arg(long, value_enum, default_value_t = GrantedOperation::Config)]
    pub operation: GrantedOperation,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// What can be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GrantedOperation {
    /// Change settings, ban.
    Config,
    /// See and cancel the jobs of all users.
    Transfer,
}

impl GrantedOperation {
    /// FTS's name.
    pub fn name(self) -> &'static str {
        match self {
            GrantedOperation::Config => "config",
            GrantedOperation::Transfer => "transfer",
        }
    }
}

/// What `drain` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DrainVerb {
    /// Show whether it is drained.
    Show,
    /// Start no more transfers; running ones finish, submissions are accepted and queued.
    On,
    /// Resume.
    Off,
}

/// Options of `drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// What to do.
    #[arg(default_value = "show")]
    pub verb: DrainVerb,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `audit`.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Maximum number of changes, newest first.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `import-fts3`.
#[derive(Debug, Args)]
pub struct ImportFts3Args {
    /// Files with responses of FTS3's /config/…, or the https:// URL of an FTS3 server.
    #[arg(required = true, value_name = "FILE|URL")]
    pub sources: Vec<String>,
    /// Only show the changes.
    #[arg(long)]
    pub dry_run: bool,
    /// A file with a token for the FTS3 server.
    #[arg(long, value_name = "FILE")]
    pub source_token_file: Option<PathBuf>,
    /// A hashed directory of CA certificates for the FTS3 server.
    #[arg(long, value_name = "DIR")]
    pub source_capath: Option<PathBuf>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}
