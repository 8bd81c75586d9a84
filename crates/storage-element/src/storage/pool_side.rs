//! What answers `pool_messages` in this process: the pools of this storage element, with their gates and disks. Who
//! writes a file knows the messages, [`Mover`] and [`PoolWrite`] only, and of a pool its name.

use super::Storage;
use crate::claims::LockCheckedClaim;
use crate::mover::{Mover, MoverRequest, PoolQueueFull};
use crate::pool::Pool;
use crate::pool_messages::{BeginUpload, OpenWrite, PlacementQuery, PoolChoice, WriteCapability};
use crate::pool_write::{PoolWrite, WriteFinisher};
use crate::reaper::ReaperHandle;
use crate::uploads::Upload;
use crate::write_error::WriteError;
use penstock_decide::Decision;
use penstock_decide::pool_selection::{
    PlacementRefusal, PlacementRequest, PoolReason, PoolView, choose_pool,
};
use penstock_model::{Bytes, ChecksumAlgorithm, NamespacePath, PoolName};
use penstock_persistence::namespace::EntryId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often one pool's alarm is written to the log.
const ALARM_INTERVAL: Duration = Duration::from_secs(60);

impl Storage {
    /// Chooses the pool for a new file, one in which it fits now. Space is promised as the bytes come: who only announces
    /// them keeps nobody else out.
    pub(crate) fn choose_pool(
        &self,
        query: &PlacementQuery,
    ) -> Result<PoolChoice, PlacementRefusal> {
        let pools = self.pools.values();
        let views: Vec<PoolView> = pools.map(|pool| pool.view_for(&query.requester)).collect();
        let placement = PlacementRequest {
            size: query.size.map(Bytes),
            draw: self.draw(),
        };
        let Decision { choice, because } = choose_pool(&views, &placement);
        self.raise_alarms(&because);
        let pool = choice?;
        Ok(PoolChoice { pool, because })
    }

    /// Tells an operator which pools are being left out, once a minute each.
    fn raise_alarms(&self, because: &[PoolReason]) {
        for reason in because.iter().filter(|reason| reason.is_alarm()) {
            let mut alarmed = self.alarmed.lock();
            let due = alarmed
                .get(reason.pool())
                .is_none_or(|last| last.elapsed() >= ALARM_INTERVAL);
            if due {
                alarmed.insert(reason.pool().clone(), Instant::now());
                tracing::error!(pool = %reason.pool(), "{reason}; new files go elsewhere");
            }
        }
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

    /// Whether the pool takes new files still.
    pub(crate) fn takes_new_files(&self, pool: &PoolName) -> bool {
        self.pool_named(pool).takes_new_files()
    }

    /// Whether a file of this size fits there now, if trash gives way.
    pub(crate) fn has_room_for(&self, pool: &PoolName, bytes: u64) -> bool {
        self.pool_named(pool).has_room_for(bytes)
    }

    /// Takes a place at a pool's gate.
    pub(crate) fn arrive(&self, request: MoverRequest) -> Result<Mover, PoolQueueFull> {
        let pool = Arc::clone(self.pool_named(&request.pool));
        self.live.arrive(&self.recorder, &pool, request)
    }

    /// Names a new write.
    pub(crate) fn new_write(&self, pool: PoolName) -> WriteCapability {
        let file = self.namespace.allocate();
        WriteCapability { pool, file }
    }

    /// Begins to write a file.
    pub(crate) fn open_write(&self, order: OpenWrite, claim: LockCheckedClaim) -> PoolWrite {
        let pool = Arc::clone(self.pool_named(&order.write.pool));
        let completion = self.completion(&pool);
        PoolWrite::new(order, claim, pool, completion)
    }

    /// Begins an upload in several requests. Blocks.
    pub(crate) fn begin_upload(&self, order: BeginUpload) -> Result<Arc<Upload>, WriteError> {
        let pool = Arc::clone(self.pool_named(&order.pool));
        let reservation = pool.reserve();
        let expires = self.clock.recorded() + self.settings().limits.upload_expiry;
        let reaper = self.reaper();
        self.uploads
            .begin(order.plan, pool, reservation, expires, &reaper)
    }

    /// A pool by the name that it was chosen with, or that an entry has.
    fn pool_named(&self, pool: &PoolName) -> &Arc<Pool> {
        self.pools.get(pool).expect("pools stay while this runs")
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

    /// The directory that holds, or would hold, a path, as far as it exists.
    pub(crate) fn parent_of(&self, path: &NamespacePath) -> Option<EntryId> {
        self.directory_ids.parent_of(&self.namespace, path)
    }

    /// Who completes a file in this pool.
    pub(super) fn completion(&self, pool: &Pool) -> WriteFinisher {
        WriteFinisher {
            reaper: self.reaper(),
            committer: self.committers.queue(&pool.name),
            clock: Arc::clone(&self.clock),
            finish_timeout: self.settings().limits.finish_timeout,
        }
    }

    /// Where removals are ordered.
    pub(crate) fn reaper(&self) -> ReaperHandle {
        self.reapers.handle()
    }
}
