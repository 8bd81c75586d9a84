//! What a storage element is told when it starts: plain values, parsed and checked by whoever reads the
//! file.

use crate::hsm_command::HsmCommandConfig;
use penstock_decide::admission::QueueLimits;
use penstock_decide::authorization::{GroupRule, SubjectRule};
use penstock_decide::pool_selection::PoolMode;
use penstock_decide::streams::StreamsLimits;
use penstock_model::{Archival, Bytes, ChecksumAlgorithm, NamespacePath, PoolName, Right};
use penstock_persistence::namespace::ArchiveWord;
use penstock_protocol::connections::Connections;
use penstock_protocol::hosts::AllowedServers;
use penstock_protocol::http1::client::{NearEnds, ReachRules};
use penstock_protocol::macaroon::RootKeys;
use penstock_protocol::pace::PaceLimit;
use penstock_protocol::token::IssuerVos;
use penstock_tape::hsm_queue::HsmPolicy;
use penstock_tape::request_engine::TapePolicy;
use penstock_tape_library::LibraryDefinition;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that [`crate::Storage::open`] needs.
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// The namespace database, made when missing (`state/namespace.sqlite`).
    pub namespace: PathBuf,
    /// The database of shared links, made when missing (`state/shares.sqlite`).
    pub shares: PathBuf,
    /// Where file data goes. At least one.
    pub pools: Vec<PoolConfig>,
    /// Computed of every file as its bytes pass. Adler-32 is always among them.
    pub checksums: Vec<ChecksumAlgorithm>,
    /// Who may do what.
    pub access: AccessConfig,
    /// The site's own token issuer, served at the door; `None` when the site has none.
    pub issuer: Option<OwnIssuer>,
    /// What the site tells others of itself ([`penstock_protocol::site_document`]), served at doors with TLS.
    pub site_document: Option<Value>,
    /// Macaroons, made and believed; `None` when the site has no root key.
    pub macaroons: Option<MacaroonConfig>,
    /// Copies to and from other storage elements.
    pub outbound: OutboundConfig,
    /// Files on tape; `None`: there is no tape system.
    pub nearline: Option<NearlineConfig>,
    /// Bounds and times.
    pub limits: StorageLimits,
}

/// What a storage element does with tape.
#[derive(Debug, Clone)]
pub struct NearlineConfig {
    /// Which files go to tape.
    pub classes: ArchiveClasses,
    /// What keeps them there.
    pub system: TapeSystemConfig,
    /// The pause after a try for which nothing was done; each further one doubles it, up to the longest.
    pub retry_first: Duration,
    pub retry_max: Duration,
    /// How long a file stays on disk when whoever asks for it does not say.
    pub pin_usual: Duration,
    pub pin_max: Duration,
    /// Files in one stage request.
    pub stage_files_max: usize,
    /// Bytes that stage requests of one user may keep on disk. `None`: a quarter of what the pools hold.
    pub pins_user_max: Option<Bytes>,
    /// The same for all users of a VO together. `None`: half of it.
    pub pins_vo_max: Option<Bytes>,
    /// A file that is asked for, and is in a pool that has been away for so long, is brought from tape to another one.
    pub pool_away_wait: Duration,
    /// A file that has waited so long for room on disk is an incident.
    pub room_wait_max: Duration,
    /// How long the copies on tape of a removed file stay.
    pub removed_kept: Duration,
    /// How long a stage request that is over can be asked for.
    pub stage_kept: Duration,
    /// Of each pool's space so much is kept free, in thousandths, by letting go of copies of files that are on tape.
    pub keep_free_permille: u16,
    /// Between two looks at what only time brings: space, copies on tape to be removed, requests that are over.
    pub upkeep_interval: Duration,
    /// Reading a file that is on tape only has it brought; the reader is asked to come again.
    pub stages_on_read: bool,
    /// A directory on the file system through which the HSM takes and gives files: it is watched how full that is.
    pub buffer_directory: Option<PathBuf>,
    /// As which this site is known to users of its tape interface.
    pub site_name: String,
    /// Anybody may ask for the metrics of tapes that WLCG collects, not administrators alone.
    pub has_public_metrics: bool,
}

/// What keeps the files that are on tape.
#[derive(Debug, Clone)]
pub enum TapeSystemConfig {
    /// An HSM that is driven by commands.
    Program(HsmProgramConfig),
    /// Tape libraries.
    Libraries(LibrariesConfig),
}

/// An HSM that is driven by commands.
#[derive(Debug, Clone)]
pub struct HsmProgramConfig {
    /// How they are run.
    pub commands: HsmCommandConfig,
    pub policy: HsmPolicy,
}

/// Tape libraries, and how they are driven.
#[derive(Debug, Clone)]
pub struct LibrariesConfig {
    /// At least one.
    pub libraries: Vec<LibraryConfig>,
    pub policy: TapePolicy,
    pub care: TapeCareConfig,
    /// Their time runs so many times as fast as that on the wall.
    pub time_factor: u32,
}

/// The care for tapes that nobody waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapeCareConfig {
    /// All files of a tape are read and compared within this time, in nanoseconds of the libraries. `None`: when an operator says so.
    pub verify_every_ns: Option<i64>,
    /// A full tape is emptied and written anew when so many thousandths of it, or fewer, are needed. 0: never.
    pub reclaim_live_permille: u16,
    /// Bytes of files that are on disk at a time so that they can be written to another tape; one file always may be.
    pub part_bytes: u64,
    /// A copy on a tape that has been out of use for so long is written again elsewhere, in nanoseconds of the libraries.
    pub copies_wait_ns: i64,
}

/// A library that keeps its cartridges in a directory.
#[derive(Debug, Clone)]
pub struct LibraryConfig {
    pub directory: PathBuf,
    pub definition: LibraryDefinition,
}

/// Files that go to tape, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveClass {
    /// Files below this directory,
    pub path: NamespacePath,
    /// that have as many bytes as this at least,
    pub size_min: Bytes,
    /// and at most.
    pub size_max: Bytes,
    /// Their family on tape: files of one family are put together.
    pub family: String,
    /// To which VO they count; `None`: one of their own, which has the name of the family.
    pub vo: Option<String>,
    /// Copies on tape, each in another library.
    pub copies: u32,
    /// Smaller files are written together, as one object.
    pub packed_below: Bytes,
    /// How long they wait to be written at most; `None`: as long as it pays.
    pub wait_max: Option<Duration>,
}

/// Classes of files. Of several that fit the one with the longest path counts, and of those the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveClasses(pub Vec<ArchiveClass>);

/// The family of files that have come from the path of a class to one of none.
const FAMILY_OF_MOVED: &str = "moved";

impl ArchiveClasses {
    /// The class of a file, if it goes to tape.
    pub(crate) fn class_of(&self, path: &NamespacePath, size: Bytes) -> Option<&ArchiveClass> {
        let fits = self.0.iter().filter(|class| {
            path.is_within(&class.path) && size >= class.size_min && size <= class.size_max
        });
        // Of equal ones `max_by_key` takes the last.
        fits.rev().max_by_key(|class| class.path.names().len())
    }

    /// Which sizes of a file at this path go to tape.
    pub(crate) fn sizes_at(&self, path: &NamespacePath) -> TapeSizes {
        let holding = self.0.iter().filter(|class| path.is_within(&class.path));
        let sizes = holding.map(|class| (class.size_min, class.size_max));
        TapeSizes(sizes.collect())
    }

    /// With which others a file that goes to tape is put together.
    pub(crate) fn family_of(&self, path: &NamespacePath, size: Bytes) -> &str {
        let class = self.class_of(path, size);
        class.map_or(FAMILY_OF_MOVED, |class| class.family.as_str())
    }

    /// To which VO the tapes of a family count.
    pub(crate) fn vo_of_family<'a>(&'a self, family: &'a str) -> &'a str {
        let mut classes = self.0.iter().filter(|class| class.family == family);
        let vo = classes.find_map(|class| class.vo.as_deref());
        vo.unwrap_or(family)
    }

    /// To which VO a file that goes to tape counts.
    pub(crate) fn vo_of(&self, path: &NamespacePath, size: Bytes) -> &str {
        let class = self.class_of(path, size);
        let vo = class.and_then(|class| class.vo.as_deref());
        vo.unwrap_or_else(|| self.family_of(path, size))
    }
}

/// Which sizes of a file go to tape: bounds, which belong to it both.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TapeSizes(pub Vec<(Bytes, Bytes)>);

impl TapeSizes {
    /// Where a new file of this size is to be. One without bytes is nowhere, so it is not put on tape.
    pub(crate) fn archival(&self, size: Bytes) -> Archival {
        let mut bounds = self.0.iter();
        match size.0 > 0 && bounds.any(|(min, max)| size >= *min && size <= *max) {
            true => Archival::Precious,
            false => Archival::DiskOnly,
        }
    }
}

/// On which terms a new file goes to tape, and what its request has said for that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TapeTerms {
    pub sizes: TapeSizes,
    pub word: ArchiveWord,
}

impl TapeTerms {
    /// Where a file of this size is to be, and what is kept of its request for that.
    pub(crate) fn of_file(&self, size: Bytes) -> (Archival, Option<ArchiveWord>) {
        let archival = self.sizes.archival(size);
        let word = (archival == Archival::Precious).then(|| self.word.clone());
        (archival, word)
    }
}

/// One pool: one directory on one file system.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// Its name, never reused for another directory. Letters, digits, `-`, `_` and `.`.
    pub name: PoolName,
    /// Where its files are; made when missing.
    pub directory: PathBuf,
    /// Bytes of file data that it may hold. `None`: as much as its file system has.
    pub capacity: Option<Bytes>,
    /// Whether it takes new files, or gives any.
    pub mode: PoolMode,
    /// How many movers run and wait.
    pub movers: QueueLimits,
}

/// Trust and anonymous access. Can be replaced while running ([`crate::Storage::reload`]).
#[derive(Debug, Clone, Default)]
pub struct AccessConfig {
    /// Token issuers that are believed, beside the site's own.
    pub issuers: Vec<TrustedIssuerConfig>,
    /// What a token's audience may be: this door's URLs, `https://host:port` and `https://host`.
    pub audiences: Vec<String>,
    /// What members of groups may do, for tokens that carry groups and no capabilities.
    pub group_rules: Vec<GroupRule>,
    /// What owners of certificates may do.
    pub subject_rules: Vec<SubjectRule>,
    /// Users who may do nothing here, whatever they hold: subjects of certificates or of tokens.
    pub banned: Vec<String>,
    /// Anyone may read and list these paths and what is below them.
    pub anonymous_read: Vec<NamespacePath>,
}

/// An issuer of tokens that this storage element believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedIssuerConfig {
    /// Its URL, exactly as its tokens spell it.
    pub issuer: String,
    /// Paths in its tokens' scopes are relative to this directory.
    pub prefix: NamespacePath,
    /// Of which VOs its users can be.
    pub vos: IssuerVos,
    /// How long its tokens may live.
    pub life_max: Duration,
    /// What its tokens can allow at most.
    pub rights: Vec<Right>,
}

/// The site's own issuer: believed without a fetch, and published by the door.
#[derive(Debug, Clone)]
pub struct OwnIssuer {
    /// How its tokens are believed.
    pub trust: TrustedIssuerConfig,
    /// Served at `/.well-known/openid-configuration`.
    pub openid_configuration: Value,
    /// Served at `/jwks`; the keys that verify its tokens.
    pub jwks: Value,
}

/// Macaroons of this site. Can be replaced while running.
#[derive(Debug, Clone)]
pub struct MacaroonConfig {
    /// The newest signs; all are believed.
    pub keys: RootKeys,
    /// How long a macaroon may live; requests for more are cut to it.
    pub validity_max: Duration,
}

/// Copies that this storage element makes as the active party.
#[derive(Debug, Clone, Default)]
pub struct OutboundConfig {
    /// Servers it may connect to. Empty: none, and COPY is refused.
    pub allow: AllowedServers,
    /// Which addresses it may connect to, also for the keys of token issuers, and where credentials may follow a
    /// redirect.
    pub reach: ReachRules,
    /// Certificate authorities: a hashed directory. `None`: those of the system.
    pub certificates: Option<PathBuf>,
    /// Told of the near end of each connection.
    pub near_ends: NearEnds,
}

/// Bounds and times of doors and movers.
#[derive(Debug, Clone)]
pub struct StorageLimits {
    /// The client connections of the process, this storage element's doors among others.
    pub connections: Connections,
    /// How slowly the other end may send or take a file. The mean is taken over two `stall_timeout` at least.
    pub body_pace: PaceLimit,
    /// A mover that moves no byte for so long is ended.
    pub stall_timeout: Duration,
    /// The same, before its first byte.
    pub first_byte_timeout: Duration,
    /// How long a client may take to send the head of a request.
    pub head_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub idle_timeout: Duration,
    /// The longest silence in the answer to a COPY.
    pub marker_interval: Duration,
    /// How long a stopping door waits for running requests.
    pub shutdown_grace: Duration,
    /// Entries that one DELETE (or a replacing MOVE) may remove, because it is one transaction.
    pub remove_entries_max: usize,
    /// Entries that one COPY of a directory may make.
    pub copy_entries_max: usize,
    /// Write locks of one user.
    pub locks_per_user_max: usize,
    /// Write locks in all.
    pub locks_max: usize,
    /// How long a lock lasts when the client does not say.
    pub lock_timeout: Duration,
    /// How long a lock may last without being refreshed.
    pub lock_timeout_max: Duration,
    /// How long an upload in several requests may rest before its bytes are removed.
    pub upload_expiry: Duration,
    /// Such uploads that one user may have begun and not finished.
    pub uploads_per_user_max: usize,
    /// Bytes of them, announced or come.
    pub upload_bytes_per_user_max: Bytes,
    /// Free space that every pool's file system keeps.
    pub free_reserve: Bytes,
    /// Until a pool whose disk has failed is tried again, at first.
    pub probe_interval: Duration,
    /// How long files that recovery found and no namespace knows are kept.
    pub quarantine: Duration,
    /// How long removed and replaced files are kept. Can be replaced while running.
    pub trash: Duration,
    /// How long the ledger tells what happened, and so the record of movers; `None`: for ever. Can be replaced while running.
    pub ledger: Option<Duration>,
    /// Changes, refusals and gaps that the ledger tells at most; the oldest go first. Can be replaced while running.
    pub ledger_records_max: u64,
    /// How long a pool may take to make a complete file durable.
    pub finish_timeout: Duration,
    /// Connections of a pull, and how it is cut into parts.
    pub streams: StreamsLimits,
    /// Memory that the parts of all pulls with several connections may take together. What is set at the start
    /// counts.
    pub streams_memory: Bytes,
}

impl StorageLimits {
    /// How slowly another server may send or take a file. What may stand still for `stall_timeout` is not too slow for
    /// having done so.
    pub(crate) fn pace_of_others(&self) -> PaceLimit {
        self.body_pace.with_pauses(self.stall_timeout)
    }
}

impl Default for StorageLimits {
    fn default() -> Self {
        StorageLimits {
            connections: Connections::default(),
            body_pace: PaceLimit::default(),
            stall_timeout: Duration::from_secs(60),
            first_byte_timeout: Duration::from_secs(120),
            head_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(300),
            marker_interval: Duration::from_secs(1),
            shutdown_grace: Duration::from_secs(20),
            remove_entries_max: 10_000,
            copy_entries_max: 10_000,
            locks_per_user_max: 1_000,
            locks_max: 20_000,
            lock_timeout: Duration::from_secs(600),
            lock_timeout_max: Duration::from_secs(3600),
            upload_expiry: Duration::from_secs(24 * 3600),
            uploads_per_user_max: 100,
            upload_bytes_per_user_max: Bytes(1_000_000_000_000),
            free_reserve: Bytes(64 << 20),
            probe_interval: Duration::from_secs(5),
            quarantine: Duration::from_secs(30 * 24 * 3600),
            trash: Duration::from_secs(24 * 3600),
            ledger: Some(Duration::from_secs(90 * 24 * 3600)),
            ledger_records_max: 10_000_000,
            finish_timeout: Duration::from_secs(300),
            streams: StreamsLimits::default(),
            streams_memory: Bytes(1 << 30),
        }
    }
}
