//! The storage element itself: namespace, pools, movers and trust, without any door.

use crate::claims::Claims;
use crate::clock::now;
use crate::committer::{Committer, Finished};
use crate::config::{
    AccessConfig, MacaroonConfig, OutboundConfig, OwnIssuer, StorageConfig, StorageLimits,
};
use crate::incoming::{Incoming, Order};
use crate::locks::Locks;
use crate::meter::SecondMoved;
use crate::metrics::StorageMetrics;
use crate::mover::{Busy, LiveMovers, Mover, MoverRequest, MoverSnapshot};
use crate::pool::{Pool, Reservation};
use crate::reaper::{Pools, Reaper, ReaperHandle};
use crate::recorder::Recorder;
use crate::recovery::{self, OpenError};
use crate::rights::{self, Judge};
use crate::stream_memory::StreamMemory;
use crate::uploads::Uploads;
use penstock_decide::Decision;
use penstock_decide::pool_selection::{Placement, PoolReason, PoolView, Unplaceable, choose_pool};
use penstock_model::{Bytes, ChecksumAlgorithm, PoolName, Timestamp};
use penstock_persistence::namespace::{Change, ChangeError, Changed, EntryId, Namespace};
use penstock_protocol::http1::client::{Client, ClientConfig, Reach};
use penstock_protocol::tls::ClientTls;
use penstock_protocol::token::Verifier;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

/// Movers that a snapshot lists.
const MOVERS_SHOWN_MAX: usize = 1000;
/// How often one pool's alarm is written to the log.
const ALARM_INTERVAL: Duration = Duration::from_secs(60);
/// Whole files read at once only to compute a checksum that nobody computed while they were written.
const CHECKSUM_TURNS: usize = 4;
/// Seconds of history in a snapshot.
const HISTORY_SECONDS: usize = 60;

/// A running storage element. Share it between doors; dropping the last reference finishes what is queued.
pub struct Storage {
    // Order matters: what uses the namespace ends before it.
    committer: Committer,
    reaper: Reaper,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) namespace: Arc<Namespace>,
    pools: Pools,
    pub(crate) claims: Arc<Claims>,
    pub(crate) locks: Locks,
    pub(crate) uploads: Uploads,
    pub(crate) live: Arc<LiveMovers>,
    pub(crate) metrics: StorageMetrics,
    pub(crate) verifier: Verifier,
    pub(crate) client: Client,
    tls: ClientTls,
    reach: Reach,
    settings: RwLock<Arc<Settings>>,
    checksums: Vec<ChecksumAlgorithm>,
    chance: AtomicU64,
    /// Held from looking at the pools until space is promised, so that two writers never count on the
    /// same bytes.
    placing: Mutex<BTreeMap<PoolName, Instant>>,
    pub(crate) connections: AtomicUsize,
    /// Checksums of whole files that are computed on demand at once.
    pub(crate) checksum_turns: Semaphore,
    pub(crate) stream_memory: StreamMemory,
}

/// What can be replaced while running.
pub(crate) struct Settings {
    pub access: AccessConfig,
    pub issuer: Option<OwnIssuer>,
    pub macaroons: Option<MacaroonConfig>,
    pub outbound: OutboundConfig,
    pub limits: StorageLimits,
}

impl Settings {
    /// Decides by these.
    pub(crate) fn judge(&self) -> Judge<'_> {
        Judge {
            access: &self.access,
            own_issuer: self.issuer.as_ref(),
        }
    }
}

/// A place for a new file.
pub(crate) struct Placed {
    pub pool: Arc<Pool>,
    pub reservation: Reservation,
    pub because: Vec<PoolReason>,
}

impl Storage {
    /// Opens the namespace and all pools, and removes what the last run left unfinished. Blocks for as
    /// long as that takes.
    pub fn open(config: StorageConfig) -> Result<Arc<Storage>, OpenError> {
        let namespace = Arc::new(Namespace::open(&config.namespace)?);
        let (pools, _) = recovery::recover(&namespace, &config.pools, config.limits.free_reserve)?;
        let locks = Locks::load(&namespace)?;
        let uploads = Uploads::restore(&namespace, &pools).map_err(OpenError::Uploads)?;
        let reaper =
            Reaper::start(Arc::clone(&namespace), pools.clone()).map_err(OpenError::Thread)?;
        let committer =
            Committer::start(Arc::clone(&namespace), reaper.handle()).map_err(OpenError::Thread)?;
        let recorder =
            Recorder::start(Arc::clone(&namespace), pools.clone()).map_err(OpenError::Thread)?;
        let tls = match &config.outbound.certificates {
            Some(directory) => ClientTls::from_ca_directory(directory)?,
            None => ClientTls::system()?,
        };
        let reach = Reach::new(config.outbound.reach.clone());
        let client = Client::new(ClientConfig {
            response_timeout: config.limits.first_byte_timeout,
            stall_timeout: config.limits.stall_timeout,
            ..ClientConfig::new(tls.clone())
        })
        .with_reach(&reach);
        let issuer = config.issuer.as_ref();
        let verifier = rights::verifier(&config.access, issuer, client.clone());
        let stream_memory = StreamMemory::new(config.limits.streams_memory);
        let metrics = StorageMetrics::default();
        let mut checksums = config.checksums;
        if !checksums.contains(&ChecksumAlgorithm::Adler32) {
            checksums.insert(0, ChecksumAlgorithm::Adler32);
        }
        Ok(Arc::new(Storage {
            committer,
            reaper,
            recorder: Arc::new(recorder),
            namespace,
            pools,
            claims: Arc::default(),
            locks,
            uploads,
            live: Arc::new(LiveMovers::counted_in(&metrics)),
            metrics,
            verifier,
            client,
            tls,
            reach,
            settings: RwLock::new(Arc::new(Settings {
                access: config.access,
                issuer: config.issuer,
                macaroons: config.macaroons,
                outbound: config.outbound,
                limits: config.limits,
            })),
            checksums,
            chance: AtomicU64::new(Uuid::new_v4().as_u64_pair().0),
            placing: Mutex::default(),
            connections: AtomicUsize::new(0),
            checksum_turns: Semaphore::new(CHECKSUM_TURNS),
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
        self.reach.replace(config.outbound.reach.clone());
        self.verifier.replace_trust(issuers, audiences);
        let settings = Settings {
            access: config.access,
            issuer: config.issuer,
            macaroons: config.macaroons,
            outbound: config.outbound,
            limits: config.limits,
        };
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        Ok(())
    }

    /// The namespace: lookups, usage and the record of ended movers.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Removes uploads that have rested too long. The doors do it now and then; blocks.
    pub fn remove_expired_uploads(&self) {
        self.uploads.sweep(now());
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
            at: now(),
            namespace: self.namespace.uuid(),
            connections: self.connections.load(Ordering::Relaxed),
            pools,
            alarms,
            movers_total,
            movers,
            records_dropped: self.recorder.dropped(),
        }
    }

    /// All pools as a choice sees them, and what an operator should look at.
    pub(crate) fn pools_and_alarms(&self) -> (Vec<PoolView>, Vec<String>) {
        let views: Vec<PoolView> = self.pools.values().map(|pool| pool.view()).collect();
        let probe = Placement {
            size: None,
            draw: 0,
        };
        let choice = choose_pool(&views, &probe);
        let alarms = choice.because.iter().filter(|reason| reason.is_alarm());
        let alarms = alarms.map(PoolReason::to_string).collect();
        (views, alarms)
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&settings)
    }

    pub(crate) fn pool(&self, name: &PoolName) -> Option<&Arc<Pool>> {
        self.pools.get(name)
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools.values()
    }

    /// The checksums to compute of a file for which these are expected.
    pub(crate) fn algorithms(
        &self,
        more: impl Iterator<Item = ChecksumAlgorithm>,
    ) -> Vec<ChecksumAlgorithm> {
        let mut algorithms = self.checksums.clone();
        for algorithm in more {
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
        algorithms
    }

    /// Chooses the pool for a new file and promises space in it.
    pub(crate) fn place(&self, size: Option<u64>) -> Result<Placed, Unplaceable> {
        let mut alarmed = self.placing.lock().unwrap_or_else(PoisonError::into_inner);
        let views: Vec<PoolView> = self.pools.values().map(|pool| pool.view()).collect();
        let placement = Placement {
            size: size.map(Bytes),
            draw: self.draw(),
        };
        let Decision { choice, because } = choose_pool(&views, &placement);
        raise_alarms(&mut alarmed, &because);
        let pool = self
            .pools
            .get(&choice?)
            .expect("the choice is one of the views");
        let reservation = pool
            .reserve(size.unwrap_or(0))
            .map_err(|_| Unplaceable::NoSpace)?;
        Ok(Placed {
            pool: Arc::clone(pool),
            reservation,
            because,
        })
    }

    /// Takes a place at a pool's gate.
    pub(crate) fn arrive(&self, request: MoverRequest) -> Result<Mover, Busy> {
        self.live.arrive(&self.recorder, request)
    }

    /// Begins to write a file into the place that was found for it.
    pub(crate) fn incoming(
        &self,
        order: Order,
        pool: Arc<Pool>,
        reservation: Reservation,
    ) -> Incoming {
        let id = self.namespace.allocate();
        let (reaper, committer) = (self.reaper.handle(), self.committer.queue());
        Incoming::new(order, pool, reservation, id, reaper, committer)
    }

    /// What the end of an upload is handed to.
    pub(crate) fn closing(&self) -> (ReaperHandle, SyncSender<Finished>) {
        (self.reaper.handle(), self.committer.queue())
    }

    /// Makes a change to the namespace; removed data is removed from the disks afterwards.
    pub(crate) async fn change(&self, change: Change) -> Result<Changed, ChangeError> {
        let (reply, answer) = oneshot::channel();
        let reaper = self.reaper.handle();
        self.namespace.submit(change, move |result| {
            if let Ok(changed) = &result {
                reaper.bury(changed.trashed.clone());
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
    ) {
        let change = Change::AddChecksums { file, checksums };
        self.namespace.submit(change, |result| {
            if let Err(why) = result {
                tracing::debug!(%why, "a computed checksum was not stored");
            }
        });
    }

    /// The next number of a sequence that fills 64 bits evenly (SplitMix64).
    fn draw(&self) -> u64 {
        let mut z = self
            .chance
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Tells an operator which pools are being left out, once a minute each.
fn raise_alarms(alarmed: &mut BTreeMap<PoolName, Instant>, because: &[PoolReason]) {
    for reason in because.iter().filter(|reason| reason.is_alarm()) {
        let due = alarmed
            .get(reason.pool())
            .is_none_or(|last| last.elapsed() >= ALARM_INTERVAL);
        if due {
            alarmed.insert(reason.pool().clone(), Instant::now());
            tracing::error!(pool = %reason.pool(), "{reason}; new files go elsewhere");
        }
    }
}

/// What a storage element is doing, for a status page.
#[derive(Debug, Clone, Serialize)]
pub struct StorageSnapshot {
    /// When.
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
    /// Its name.
    pub name: PoolName,
    /// `enabled`, `drained` or `disabled`.
    pub mode: &'static str,
    /// Visible files.
    pub files: u64,
    /// Their bytes, and those of removed files that are still on the disk.
    pub used: Bytes,
    /// Promised to running writers.
    pub reserved: Bytes,
    /// As configured; `None`: the file system's.
    pub capacity: Option<Bytes>,
    /// What new files may have.
    pub free: Bytes,
    /// Movers that run.
    pub movers_active: u32,
    /// Movers that wait.
    pub movers_queued: u32,
    /// How many may run.
    pub movers_max: u32,
    /// How many may wait.
    pub queue_max: u32,
    /// Bytes since the start.
    pub moved: SecondMoved,
    /// Bytes of the last whole seconds, latest first.
    pub moved_by_second: Vec<SecondMoved>,
}

impl PoolSnapshot {
    fn of(pool: &Pool, view: &PoolView, files: u64) -> PoolSnapshot {
        let (used, reserved, capacity) = pool.filling();
        let load = pool.gate.load();
        let (moved, moved_by_second) = pool.gate.meter.read(HISTORY_SECONDS);
        PoolSnapshot {
            name: pool.name.clone(),
            mode: view.mode.name(),
            files,
            used,
            reserved,
            capacity,
            free: view.free,
            movers_active: load.active,
            movers_queued: load.queued,
            movers_max: load.limits.movers_max,
            queue_max: load.limits.queue_max,
            moved,
            moved_by_second,
        }
    }
}
