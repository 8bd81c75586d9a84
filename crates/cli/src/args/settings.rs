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
    /// Make a rule, or change what is said of one.
    #[command(after_help = "Examples:\n  \
        penstock link set --dir cern cern-lyon --from https://se.cern.ch --to https://se.in2p3.fr --max 80\n  \
        penstock link set --dir cern into-lyon --to https://se.in2p3.fr --max 200   # from everywhere\n  \
        penstock link set --dir cern cern-lyon --max 40 --rate '10 Gb/s'\n  \
        penstock link set --dir cern cern-lyon --drain on       # before work on the line\n\n\
        Of several rules that fit a link, the one that names both ends counts, then the one that names the source, \
        then the one that names the destination. What runs goes on; more starts once fewer run than the new limit.")]
    Set(LinkSetArgs),
    /// Remove a rule: what is in the configuration file counts again.
    #[command(after_help = "Example:\n  penstock link remove --dir cern cern-lyon")]
    Remove(NamedArgs),
}

/// What `se` does.
#[derive(Debug, Subcommand)]
pub enum SeCommand {
    /// List all storage elements for which something is set.
    #[command(after_help = "Example:\n  penstock se list --dir cern")]
    List(SettingsArgs),
    /// Show what is set for one.
    #[command(after_help = "Example:\n  penstock se show --dir cern https://se.in2p3.fr")]
    Show(StorageArgs),
    /// Set limits and notes; what is not said stays, `none` takes back.
    #[command(after_help = "Examples:\n  \
        penstock se set --dir cern https://se.in2p3.fr --in 100 --out 50\n  \
        penstock se set --dir cern '*' --in 200             # each that has no limit of its own\n  \
        penstock se set --dir cern https://se.in2p3.fr --out none --in-rate '2 GB/s'\n  \
        penstock se set --dir cern https://se.in2p3.fr --drain on   # before work on it")]
    Set(SeSetArgs),
    /// Remove all that is set for one.
    #[command(after_help = "Example:\n  penstock se remove --dir cern https://se.in2p3.fr")]
    Remove(StorageArgs),
}

/// What `vo-share` does.
#[derive(Debug, Subcommand)]
pub enum VoShareCommand {
    /// List all shares of VOs.
    #[command(after_help = "Example:\n  penstock vo-share list --dir cern")]
    List(SettingsArgs),
    /// Give a VO a share of the links that fit.
    #[command(after_help = "Examples:\n  \
        penstock vo-share set --dir cern cms 75 --to https://se.in2p3.fr\n  \
        penstock vo-share set --dir cern public 5 --to https://se.in2p3.fr   # all other VOs together\n\n\
        Shares are in proportion to those of the other VOs that wait. Of several patterns that fit a link only the most \
        specific one counts. Where any VO has a share, a VO without one, and no `public`, may not go: its files fail, as \
        those of a VO with share 0 do.")]
    Set(VoShareSetArgs),
    /// Take it back.
    #[command(
        after_help = "Example:\n  penstock vo-share remove --dir cern cms --to https://se.in2p3.fr"
    )]
    Remove(VoShareArgs),
}

/// What `activity` does.
#[derive(Debug, Subcommand)]
pub enum ActivityCommand {
    /// List the shares of activities of all VOs.
    #[command(after_help = "Example:\n  penstock activity list --dir cern")]
    List(SettingsArgs),
    /// Show those of one VO.
    #[command(after_help = "Example:\n  penstock activity show --dir cern atlas")]
    Show(VoArgs),
    /// Give the activities of a VO shares of its slots, in the place of any before.
    #[command(after_help = "Example:\n  \
        penstock activity set --dir cern atlas 'T0 Export=0.7' 'Production=0.25' default=0.05\n\n\
        Names count without regard to capitals; what is not named shares `default`, which has the smallest share given \
        unless it is named.")]
    Set(ActivitySetArgs),
    /// Take them back: the files of the VO go by age again.
    #[command(after_help = "Example:\n  penstock activity remove --dir cern atlas")]
    Remove(VoArgs),
}

/// What `authorize` does.
#[derive(Debug, Subcommand)]
pub enum AuthorizeCommand {
    /// List who may change settings beside the administrators.
    #[command(after_help = "Example:\n  penstock authorize list --dir cern")]
    List(SettingsArgs),
    /// Let somebody change settings: all, or those of one storage element and its links.
    #[command(after_help = "Examples:\n  \
        penstock authorize set --dir cern '/DC=org/CN=Alice'\n  \
        penstock authorize set --dir cern '/DC=org/CN=Bob' --storage https://se.in2p3.fr\n  \
        penstock authorize set --dir cern 'https://iam.example.org/#0b5e7c0e'   # a token's issuer and subject")]
    Set(GrantArgs),
    /// Take it back: what was granted for one storage element, or all.
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
    /// Scheme and host without port, such as https://se.example.org; or * for each that has nothing of its own.
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
    /// The source's scheme and host without port. A new rule without it is for every source.
    #[arg(long = "from", value_name = "STORAGE")]
    pub source: Option<String>,
    /// The destination's, likewise.
    #[arg(long = "to", value_name = "STORAGE")]
    pub destination: Option<String>,
    /// Transfers that may run at once on each link that fits.
    #[arg(long, value_name = "N")]
    pub max: Option<u32>,
    /// Tuning does not go below.
    #[arg(long, value_name = "N")]
    pub min: Option<u32>,
    /// How far tuning may go: 0 not at all, 1 never above what waits, 2 normally, 3 also for little gain; `none`: 2.
    #[arg(long, value_name = "MODE", value_parser = number_or_none)]
    pub mode: Option<OrNone<u32>>,
    /// Who decides how many run: measured, fts3 or fixed; `none`: as the configuration file says.
    #[arg(long, value_name = "WHO", value_parser = text_or_none)]
    pub tuning: Option<OrNone<String>>,
    /// What may move on each link that fits, such as 500 MB/s or 10 Gb/s.
    #[arg(long, value_name = "SPEED|none", value_parser = speed_or_none)]
    pub rate: Option<OrNone<Speed>>,
    /// Let what runs end and start nothing there, or start again.
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pub drain: Option<bool>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of commands about a VO's share of links.
#[derive(Debug, Args)]
pub struct VoShareArgs {
    /// The VO; `public` for all that have no share of their own.
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
    /// The VO; `public` for all that have no share of their own.
    pub vo: String,
    /// In proportion to the others; 0: nothing of it may go.
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
    /// An activity and its share; `default` is for those that are not named.
    #[arg(required = true, value_name = "ACTIVITY=SHARE", value_parser = activity_share)]
    pub shares: Vec<(String, f64)>,
    /// Keep them, but without effect.
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
    let number = number.map_err(|_| format!("'{share}' is no number"))?;
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
                .map_err(|_| format!("'{text}' is no number, and not 'none'"))
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
    /// Scheme and host without port, such as https://se.example.org; or * for each that has nothing of its own.
    pub storage: String,
    /// Transfers that may write to it at once, over all links.
    #[arg(long = "in", value_name = "N|none", value_parser = number_or_none)]
    pub inbound: Option<OrNone<u32>>,
    /// Transfers that may read from it at once, over all links.
    #[arg(long = "out", value_name = "N|none", value_parser = number_or_none)]
    pub outbound: Option<OrNone<u32>>,
    /// What may be written to it, over all links, such as 500 MB/s or 10 Gb/s.
    #[arg(long, value_name = "SPEED|none", value_parser = speed_or_none)]
    pub in_rate: Option<OrNone<Speed>>,
    /// What may be read from it, over all links.
    #[arg(long, value_name = "SPEED|none", value_parser = speed_or_none)]
    pub out_rate: Option<OrNone<Speed>>,
    /// Let what runs end and start nothing there, or start again.
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    pub drain: Option<bool>,
    /// Where it stands, for people.
    #[arg(long, value_name = "TEXT|none", value_parser = text_or_none)]
    pub site: Option<OrNone<String>>,
    /// A note, for people.
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
    /// What: `config` (change settings, ban) or `transfer` (see and stop everybody's jobs).
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
    /// See and stop everybody's jobs.
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
    /// Start nothing more; what runs ends, submissions are accepted and wait.
    On,
    /// Start again.
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
    /// How many changes at most, newest first.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}

/// Options of `import-fts3`.
#[derive(Debug, Args)]
pub struct ImportFts3Args {
    /// Files with answers of FTS3's /config/…, or the https:// URL of an FTS3.
    #[arg(required = true, value_name = "FILE|URL")]
    pub sources: Vec<String>,
    /// Only tell what would change.
    #[arg(long)]
    pub dry_run: bool,
    /// A token for the FTS3.
    #[arg(long, value_name = "FILE")]
    pub source_token_file: Option<PathBuf>,
    /// A hashed directory of CA certificates for the FTS3.
    #[arg(long, value_name = "DIR")]
    pub source_capath: Option<PathBuf>,
    /// The service.
    #[command(flatten)]
    pub service: ServiceArgs,
}
