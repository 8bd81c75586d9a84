//! What a site knows of its own end of links, beside the record of its transfer service: of its pools and of its host.

use super::config::Config;
use super::directory::SiteDirectory;
use super::host_record::HostRecord;
use super::path_story::PathSource;
use super::pool_record::PoolRecord;
use penstock_observe::RecordError;
use penstock_observe::explanations::reading::ExplainedWindow;
use penstock_observe::host::sampler::Host;
use penstock_storage_element::Storage;
use std::sync::Arc;

/// What is there.
pub struct ElementRecord {
    /// `None`: the site has no storage element.
    pools: Option<PoolRecord>,
    /// `None`: the host is not sampled.
    host: Option<HostRecord>,
    /// `None`: the site has no storage element.
    pub paths: Option<PathSource>,
}

impl ElementRecord {
    /// Of a site that runs in this process.
    pub fn running(
        site: &SiteDirectory,
        config: &Config,
        storage: Option<&Arc<Storage>>,
        host: Option<Arc<Host>>,
    ) -> ElementRecord {
        ElementRecord {
            pools: PoolRecord::of(site, config, storage),
            host: host.map(|host| HostRecord::running(config, host)),
            paths: PathSource::of(site, config, storage),
        }
    }

    /// What lies in the directory of a site.
    pub fn stored(site: &SiteDirectory, config: &Config) -> ElementRecord {
        ElementRecord {
            pools: PoolRecord::of(site, config, None),
            host: Some(HostRecord::stored(site, config)),
            paths: PathSource::of(site, config, None),
        }
    }

    /// What was read of a window, with what is known of this end.
    pub fn add_to(&self, read: ExplainedWindow) -> Result<ExplainedWindow, RecordError> {
        read.with(|signals| {
            if let Some(pools) = &self.pools {
                pools.tell(signals)?;
            }
            if let Some(host) = &self.host {
                host.tell(signals);
            }
            Ok(())
        })
    }
}
