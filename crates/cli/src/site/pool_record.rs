//! What a site's storage element tells of its pools, for explanations: minutes that it has recorded, and where it runs in
//! this process, the seconds of the last hours.

use super::config::Config;
use super::directory::SiteDirectory;
use penstock_decide::explain::signals::Signals;
use penstock_model::{PoolSamples, Timestamp};
use penstock_observe::RecordError;
use penstock_observe::pool_signals::PoolFold;
use penstock_persistence::namespace::{LedgerReader, NamespaceError};
use penstock_storage_element::Storage;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Minutes are read in pieces of this length.
const MINUTES_AT_ONCE: Duration = Duration::from_secs(6 * 3600);

/// The record of one storage element.
pub struct PoolRecord {
    namespace: PathBuf,
    hosts: Vec<String>,
    /// Not held: whoever reads does not keep a storage element from ending.
    running: Option<Weak<Storage>>,
}

impl PoolRecord {
    /// That of a site, if it has a storage element.
    pub fn of(
        site: &SiteDirectory,
        config: &Config,
        running: Option<&Arc<Storage>>,
    ) -> Option<PoolRecord> {
        let storage = config.storage.as_ref()?;
        Some(PoolRecord {
            namespace: site.resolve(&storage.namespace),
            hosts: config.site.hosts.clone(),
            running: running.map(Arc::downgrade),
        })
    }

    /// Adds what is known of the window of these signals.
    pub fn tell(&self, signals: &mut Signals) -> Result<(), RecordError> {
        let (from, to) = (signals.begin, signals.begin_of(signals.bins));
        let mut fold = PoolFold::of(signals);
        let (since, seconds) = self.seconds(from, to);
        // Without seconds the minutes tell all; a minute that began before the window ends in it.
        let minutes_to = since.map_or(to, |since| since.min(to));
        self.each_minute(from, minutes_to, |minute| fold.take(minute))?;
        let later = seconds.iter().filter(|one| one.from >= minutes_to);
        later.for_each(|second| fold.take(second));
        fold.tell(&self.hosts, signals);
        Ok(())
    }

    fn seconds(&self, from: Timestamp, to: Timestamp) -> (Option<Timestamp>, Vec<PoolSamples>) {
        let running = self.running.as_ref().and_then(Weak::upgrade);
        running.map_or((None, Vec::new()), |storage| storage.pool_seconds(from, to))
    }

    fn each_minute(
        &self,
        from: Timestamp,
        to: Timestamp,
        mut take: impl FnMut(&PoolSamples),
    ) -> Result<(), RecordError> {
        if from >= to || !self.namespace.exists() {
            return Ok(());
        }
        let failed = |why: NamespaceError| RecordError(Box::new(why));
        let reader = match LedgerReader::open(&self.namespace) {
            // Not started yet since it was upgraded: no minutes are in it.
            Err(NamespaceError::Older(_)) => return Ok(()),
            opened => opened.map_err(failed)?,
        };
        let mut begin = from;
        while begin < to {
            let end = (begin + MINUTES_AT_ONCE).min(to);
            let minutes = reader.pool_minutes_between(begin, end).map_err(failed)?;
            minutes.iter().for_each(&mut take);
            begin = end;
        }
        Ok(())
    }
}
