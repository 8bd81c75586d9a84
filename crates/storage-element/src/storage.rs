//! The storage element itself: namespace, pools, movers and trust, without any door.

mod exposition;
mod finish_upload;
mod locking;
mod pool_side;
mod tape_exposition;

use crate::claims::Claims;
use crate::clock::BelievedClock;
use crate::committer::Committers;
use crate::config::{
    AccessConfig, MacaroonConfig, OutboundConfig, OwnIssuer, StorageConfig, StorageLimits,
    TapeTerms,
};
use crate::directory_id_cache::DirectoryIdCache;
use crate::locks::Locks;
use crate::meter::SecondTraffic;
use crate::metrics::StorageMetrics;
use crate::mover::{LiveMovers, MoverSnapshot};
use crate::nearline::{Nearline, NearlineContext};
use crate::nearline_inbox::{NearlineInbox, NearlineMail};
use crate::open_error::OpenError;
use crate::pool::Pool;
use crate::pool_sampler::PoolSampler;
use crate::pool_watch::{Upkeep, UpkeepContext, UpkeepLimits};
use crate::reaper::{Pools, Reapers};
use crate::recorder::{LedgerRetention, Recorder};
use crate::recovery;
use crate::reserved_names::left_from_before;
use crate::rights::{self, RequestAuthorizer};
use crate::stream_memory::StreamMemory;
use crate::tape_meter::TapeMeter;
use crate::uploads::Uploads;
use parking_lot::{Mutex, RwLock};
use penstock_clock::wall_clock;
use penstock_decide::pool_selection::{PlacementRequest, PoolReason, PoolView, choose_pool};
use penstock_model::{Bytes, ChecksumAlgorithm, NamespacePath, PoolName, PoolSamples, Timestamp};
use penstock_persistence::access_links::AccessLinks;
use penstock_persistence::namespace::{
    ArchiveWord, CausedChange, Change, ChangeError, ChangeReport, EntryId, Namespace, PoolUsage,
};
use penstock_protocol::http1::client::{Client, ClientConfig, Reach};
use penstock_protocol::tls::ClientTls;
use penstock_protocol::token::Verifier;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

/// Movers that a snapshot lists.
const MOVERS_SHOWN_MAX: usize = 1000;
/// Seconds of history in a snapshot.
const HISTORY_SECONDS: usize = 60;

/// A running storage element. Share it between doors; dropping the last reference finishes what is queued.
pub struct Storage {
    // Order matters: what uses the namespace ends before it.
    nearline: Option<Nearline>,
    committers: Committers,
    reapers: Reapers,
    pub(crate) recorder: Arc<Recorder>,
    sampler: PoolSampler,
    upkeep: Upkeep,
    pub(crate) namespace: Arc<Namespace>,
    pools: Pools,
    directory_ids: DirectoryIdCache,
    pub(crate) claims: Arc<Claims>,
    pub(crate) locks: Locks,
    pub(crate) shares: Arc<AccessLinks>,
    /// Changes when a share is revoked.
    pub(crate) share_revocations: watch::Sender<()>,
    pub(crate) uploads: Arc<Uploads>,
    pub(crate) clock: Arc<BelievedClock>,
    pub(crate) live: Arc<LiveMovers>,
    pub(crate) metrics: StorageMetrics,
    pub(crate) verifier: Verifier,
    pub(crate) client: Client,
    tls: ClientTls,
    reach: Reach,
    settings: RwLock<Arc<Settings>>,
    checksums: Vec<ChecksumAlgorithm>,
    chance: AtomicU64,
    /// When each pool's alarm was last written to the log.
    alarmed: Mutex<BTreeMap<PoolName, Instant>>,
    pub(crate) connections: AtomicUsize,
    /// The threads of its doors wait, most likely for the disk of the namespace.
    doors_silent: AtomicBool,
    pub(crate) stream_memory: StreamMemory,
}

/// What can be replaced while running.
pub(crate) struct Settings {
    pub access: AccessConfig,
    pub issuer: Option<OwnIssuer>,
    pub site_document: Option<Value>,
    pub macaroons: Option<MacaroonConfig>,
    pub outbound: OutboundConfig,
    pub limits: StorageLimits,
}

impl Settings {
    /// Decides by these.
    pub(crate) fn judge(&self) -> RequestAuthorizer<'_> {
        RequestAuthorizer {
            access: &self.access,
            own_issuer: self.issuer.as_ref(),
        }
    }
}

impl Storage {
    /// Opens the namespace and all pools, and removes what the last run left unfinished. Blocks for as
    /// long as that takes. Long because each part is started once, in its order.
    pub fn open(config: StorageConfig) -> Result<Arc<Storage>, OpenError> {
        recovery::refuse_lost_namespace(&config)?;
        let namespace = Arc::new(Namespace::open(&config.namespace)?);
        recovery::keep_namespace_private(&config);
        let reserve = config.limits.free_reserve;
        let pools = recovery::configured_pools(&namespace, &config.pools, reserve)?;
        let clock = Arc::new(BelievedClock::start(namespace.newest_record()?));
        let uploads: Arc<Uploads> = Arc::default();
        let shared = UpkeepContext {
            namespace: Arc::clone(&namespace),
            uploads: Arc::clone(&uploads),
            clock: Arc::clone(&clock),
            limits: UpkeepLimits::of(&config.limits),
            known: namespace.pools_ever()?,
            reaper: OnceLock::new(),
            file_systems: Mutex::default(),
        };
        let upkeep = Upkeep::start(pools.clone(), shared)?;
        recovery::recover(&namespace, &upkeep)?;
        namespace.apply(Change::BeginLedger(clock.recorded()))?;
        for path in left_from_before(&namespace) {
            tracing::warn!(%path, "this name is reserved for the door; move the existing entry away, or remove it");
        }
        let locks = Locks::load(&namespace)?;
        let shares = Arc::new(AccessLinks::open(&config.shares, clock.recorded())?);
        let reapers = Reapers::start(&namespace, &clock, &pools, config.limits.trash);
        let reapers = reapers.map_err(OpenError::Thread)?;
        upkeep.joined_by(reapers.handle());
        let (inbox, mail) = NearlineInbox::new();
        let news = config.nearline.as_ref().map(|_| inbox.clone());
        let committers = Committers::start(&namespace, &pools, &reapers.handle(), news.as_ref());
        let committers = committers.map_err(OpenError::Thread)?;
        let retention = LedgerRetention::of(&config.limits);
        let recorder = Recorder::start(Arc::clone(&namespace), &clock, retention);
        let recorder = recorder.map_err(OpenError::Thread)?;
        let meter = Arc::new(TapeMeter::default());
        let tape = config.nearline.as_ref().map(|_| Arc::clone(&meter));
        let sampler = PoolSampler::start(&namespace, &clock, &pools, tape);
        let sampler = sampler.map_err(OpenError::Thread)?;
        let tls = match &config.outbound.certificates {
            Some(directory) => ClientTls::from_ca_directory(directory)?,
            None => ClientTls::system()?,
        };
        let reach = Reach::new(config.outbound.reach.clone());
        let client = client(&config, tls.clone(), &reach);
        let verifier = rights::verifier(&config.access, config.issuer.as_ref(), client.clone());
        let context = NearlineContext {
            namespace: Arc::clone(&namespace),
            clock: Arc::clone(&clock),
            pools: pools.clone(),
            reaper: reapers.handle(),
            meter,
            put_faults: Arc::default(),
        };
        let nearline = start_nearline(&config, context, inbox, mail)?;
        let stream_memory = StreamMemory::new(config.limits.streams_memory);
        let metrics = StorageMetrics::default();
        let mut checksums = config.checksums;
        if !checksums.contains(&ChecksumAlgorithm::Adler32) {
            checksums.insert(0, ChecksumAlgorithm::Adler32);
        }
        Ok(Arc::new(Storage {
            nearline,
            committers,
            reapers,
            recorder: Arc::new(recorder),
            sampler,
            upkeep,
            namespace,
            pools,
            directory_ids: DirectoryIdCache::default(),
            claims: Arc::default(),
            locks,
            shares,
            share_revocations: watch::Sender::default(),
            uploads,
            clock,
            live: Arc::new(LiveMovers::counted_in(&metrics)),
            metrics,
            verifier,
            client,
            tls,
            reach,
            settings: RwLock::new(Arc::new(Settings {
                access: config.access,
                issuer: config.issuer,
                site_document: config.site_document,
                macaroons: config.macaroons,
                outbound: config.outbound,
                limits: config.limits,
            })),
            checksums,
            chance: AtomicU64::new(Uuid::new_v4().as_u64_pair().0),
            alarmed: Mutex::default(),
            connections: AtomicUsize::new(0),
            doors_silent: AtomicBool::new(false),
            stream_memory,
        }))
    }

    /// Takes what may change while running: access, own issuer's documents, outgoing hosts, limits, and
    /// of each known pool its mode, capacity and mover limits. Namespace, checksums and the set of pools
    /// need a restart; a pool that is not known yet is named in the log and left out. Reads the trusted
    /// certificates again.
    ///
    /// Errors: the trusted certificates cannot be read; then nothing has changed.
    pub fn reload(&self, config: StorageConfig) -> Result<(), OpenError> {
        self.tls.reload()?;
        for pool in &config.pools {
            match self.pools.get(&pool.name) {
                Some(known) => known.reconfigure(pool),
                None => tracing::warn!(pool = %pool.name, "a new pool needs a restart"),
            }
        }
        let (issuers, audiences) = rights::trust(&config.access, config.issuer.as_ref());
        if let Some(own) = &config.issuer {
            // All clones share their keys.
            let verifier = self.verifier.clone();
            drop(verifier.with_local_keys(&own.trust.issuer, &own.jwks));
        }
        self.reapers.handle().keep_trash_for(config.limits.trash);
        self.recorder.keep(LedgerRetention::of(&config.limits));
        self.reach.replace(config.outbound.reach.clone());
        self.verifier.replace_trust(issuers, audiences);
        let settings = Settings {
            access: config.access,
            issuer: config.issuer,
            site_document: config.site_document,
            macaroons: config.macaroons,
            outbound: config.outbound,
            limits: config.limits,
        };
        *self.settings.write() = Arc::new(settings);
        Ok(())
    }

    /// The namespace: lookups, usage and the record of ended movers.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// What it does with tape; `None`: it has none.
    pub(crate) fn nearline(&self) -> Option<&Nearline> {
        self.nearline.as_ref()
    }

    /// On which terms a new file at this path goes to tape, and what its request has said for that.
    pub(crate) fn tape_terms(&self, path: &NamespacePath, word: &ArchiveWord) -> TapeTerms {
        let nearline = self.nearline.as_ref();
        nearline.map_or_else(TapeTerms::default, |nearline| TapeTerms {
            sizes: nearline.config.classes.sizes_at(path),
            word: word.clone(),
        })
    }

    /// Removes uploads that have rested too long. The doors do it now and then; blocks.
    pub fn remove_expired_uploads(&self) {
        self.uploads.sweep(self.clock.now(), &self.reapers.handle());
    }

    /// What is going on now.
    pub fn snapshot(&self) -> StorageSnapshot {
        let (movers_total, movers) = self.live.snapshot(MOVERS_SHOWN_MAX);
        // Without the counts the rest is still worth showing.
        let usage = self.namespace.pool_usage().unwrap_or_default();
        let (views, alarms) = self.pools_and_alarms();
        let pools = self
            .pools
            .values()
            .zip(views)
            .map(|(pool, view)| {
                let files = usage.get(&pool.name).map_or(0, |usage| usage.files);
                PoolSnapshot::of(pool, &view, files)
            })
            .collect();
        StorageSnapshot {
            at: wall_clock(),
            namespace: self.namespace.uuid(),
            connections: self.connections.load(Ordering::Relaxed),
            pools,
            alarms,
            movers_total,
            movers,
            records_dropped: self.recorder.dropped(),
        }
    }

    /// From when on the seconds of its pools are in memory, and those of a window. Minutes of before are recorded.
    pub fn pool_seconds(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> (Option<Timestamp>, Vec<PoolSamples>) {
        self.sampler.seconds(from, to)
    }

    /// Whether the threads of its doors do not answer.
    pub(crate) fn set_doors_silent(&self, are_silent: bool) {
        self.doors_silent.store(are_silent, Ordering::Relaxed);
    }

    /// Threads that have ended and must not.
    pub(crate) fn dead_threads(&self) -> Vec<String> {
        let mut dead = self.committers.dead();
        dead.extend(self.reapers.dead());
        dead.extend(self.upkeep.dead());
        if self
            .nearline
            .as_ref()
            .is_some_and(|nearline| !nearline.is_alive())
        {
            dead.push("nearline".to_owned());
        }
        if !self.namespace.is_alive() {
            dead.push("namespace-writer".to_owned());
        }
        if !self.recorder.is_alive() {
            dead.push("recorder".to_owned());
        }
        if !self.sampler.is_alive() {
            dead.push("pool-sampler".to_owned());
        }
        dead
    }

    /// What new files may have in all pools together, where trash gives way. What pools share counts once. `None`: of no pool
    /// it is known.
    pub(crate) fn free(&self) -> Option<Bytes> {
        if !self
            .pools
            .values()
            .any(|pool| pool.condition().tells_space())
        {
            return None;
        }
        let mut shared: BTreeMap<usize, (u64, u64, u64)> = BTreeMap::new();
        for pool in self.pools.values().filter(|pool| pool.takes_new_files()) {
            let file_system = pool.file_system();
            let at = Arc::as_ptr(&file_system) as usize;
            let (free, trash, pools) = shared.entry(at).or_default();
            *free = (*free).max(pool.free_on_disk());
            *trash = trash.saturating_add(pool.trash().bytes.0);
            *pools = pools.saturating_add(pool.view().available().0);
        }
        let least =
            |(free, trash, pools): &(u64, u64, u64)| free.saturating_add(*trash).min(*pools);
        let free = shared.values().map(least).fold(0, u64::saturating_add);
        Some(Bytes(free))
    }

    /// All pools as a choice sees them, and what an operator should look at.
    pub(crate) fn pools_and_alarms(&self) -> (Vec<PoolView>, Vec<String>) {
        let views: Vec<PoolView> = self.pools.values().map(|pool| pool.view()).collect();
        let probe = PlacementRequest {
            size: None,
            draw: 0,
        };
        let choice = choose_pool(&views, &probe);
        let alarms = choice.because.iter().filter(|reason| reason.is_alarm());
        let alarms = alarms.map(PoolReason::to_string).collect();
        (views, alarms)
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        let settings = self.settings.read();
        Arc::clone(&settings)
    }

    pub(crate) fn pool(&self, name: &PoolName) -> Option<&Arc<Pool>> {
        self.pools.get(name)
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools.values()
    }

    /// Makes a change to the namespace; removed data is removed from the disks afterwards.
    pub(crate) async fn change(
        &self,
        change: impl Into<CausedChange>,
    ) -> Result<ChangeReport, ChangeError> {
        let (reply, answer) = oneshot::channel();
        let reaper = self.reaper();
        self.namespace.submit(change, move |result| {
            if let Ok(changed) = &result {
                reaper.bury(&changed.trashed);
            }
            // The client may have gone; the change is made all the same.
            let _ = reply.send(result);
        });
        answer.await.unwrap_or(Err(ChangeError::Stopped))
    }

    /// Keeps checksums that were computed later. Failure costs only computing them again.
    pub(crate) fn remember_checksums(
        &self,
        file: EntryId,
        checksums: Vec<penstock_model::Checksum>,
        held: impl Send + 'static,
    ) {
        let change = Change::AddChecksums { file, checksums };
        self.namespace.submit(change, move |result| {
            // Whoever is next may want the same one, and finds it.
            let _held = held;
            if let Err(why) = result {
                tracing::debug!(%why, "a computed checksum was not stored");
            }
        });
    }
}

/// The driver of the tape system, if there is one.
fn start_nearline(
    config: &StorageConfig,
    context: NearlineContext,
    inbox: NearlineInbox,
    mail: NearlineMail,
) -> Result<Option<Nearline>, OpenError> {
    if config.nearline.is_none() && !context.namespace.tape_copies(EntryId(0), 1)?.is_empty() {
        tracing::error!(
            "files have copies on tape, and no tape system is configured ([storage.tape]): what is on tape only cannot be read"
        );
    }
    let nearline = config.nearline.clone();
    let nearline = nearline.map(|config| Nearline::start(config, context, inbox, mail));
    nearline.transpose()
}

/// The client that reaches other sites.
fn client(config: &StorageConfig, tls: ClientTls, reach: &Reach) -> Client {
    let config = ClientConfig {
        response_timeout: config.limits.first_byte_timeout,
        stall_timeout: config.limits.stall_timeout,
        near_ends: config.outbound.near_ends.clone(),
        ..ClientConfig::new(tls)
    };
    Client::new(config).with_reach(reach)
}

/// What a storage element is doing, for a status page.
#[derive(Debug, Clone, Serialize)]
pub struct StorageSnapshot {
    pub at: Timestamp,
    /// The namespace's identity.
    pub namespace: Uuid,
    /// Client connections, over all doors.
    pub connections: usize,
    /// Pools by name.
    pub pools: Vec<PoolSnapshot>,
    /// What an operator should look at.
    pub alarms: Vec<String>,
    /// Movers that run or wait.
    pub movers_total: usize,
    /// The oldest of them.
    pub movers: Vec<MoverSnapshot>,
    /// Records of ended movers that were lost because too many ended at once.
    pub records_dropped: u64,
}

/// One pool at one moment.
#[derive(Debug, Clone, Serialize)]
pub struct PoolSnapshot {
    pub name: PoolName,
    /// `enabled`, `drained` or `disabled`.
    pub mode: &'static str,
    /// `sound`, `read_only`, `silent` or `away`.
    pub condition: &'static str,
    /// Visible files.
    pub files: u64,
    /// Their bytes, and those of removed files that are still on the disk.
    pub used: Bytes,
    /// Of these, removed files that are kept for a time.
    pub trash: PoolUsage,
    /// Promised to running writers.
    pub reserved: Bytes,
    /// As configured; `None`: the file system's.
    pub capacity: Option<Bytes>,
    /// What new files may have, where trash gives way. `None`: not known, the disk is away or does not answer.
    pub free: Option<Bytes>,
    /// Movers that run.
    pub movers_active: u32,
    /// Movers that wait.
    pub movers_queued: u32,
    /// How many may run.
    pub movers_max: u32,
    /// How many may wait.
    pub queue_max: u32,
    /// Movers that were ended for others since the start.
    pub movers_preempted: u64,
    /// Bytes since the start.
    pub moved: SecondTraffic,
    /// Bytes of the last whole seconds, latest first.
    pub moved_by_second: Vec<SecondTraffic>,
}

impl PoolSnapshot {
    fn of(pool: &Pool, view: &PoolView, files: u64) -> PoolSnapshot {
        let (used, reserved, capacity) = pool.filling();
        let load = pool.gate.load();
        let (moved, moved_by_second) = pool.gate.meter.read(HISTORY_SECONDS);
        PoolSnapshot {
            name: pool.name.clone(),
            mode: view.mode.name(),
            condition: view.condition.name(),
            files,
            used,
            trash: pool.trash(),
            reserved,
            capacity,
            free: view.known_available(),
            movers_active: load.active,
            movers_queued: load.queued,
            movers_max: load.limits.movers_max,
            queue_max: load.limits.queue_max,
            movers_preempted: pool.gate.preempted.read(),
            moved,
            moved_by_second,
        }
    }
}
