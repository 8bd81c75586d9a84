//! What a site has sampled of its host, for explanations: minutes that it has written, and where it runs in this process,
//! the seconds of the last hours.

use super::config::Config;
use super::directory::SiteDirectory;
use penstock_decide::explain::signals::Signals;
use penstock_model::TimeWindow;
use penstock_observe::host::facts::FactChange;
use penstock_observe::host::machine::{HostDeclaration, Machine, look};
use penstock_observe::host::sample::HostSample;
use penstock_observe::host::sampler::{Host, SamplerConfig};
use penstock_observe::host::store::Store;
use penstock_observe::host_signals::{HostEquipment, HostFold};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Below it the kernel shows its files.
pub const ROOT: &str = "/";

/// What the sampler of a site is given.
pub fn sampler_config(site: &SiteDirectory, config: &Config) -> SamplerConfig {
    let observe = &config.observe;
    let place = |path: &Path| {
        let path = site.resolve(path);
        std::path::absolute(&path).unwrap_or(path)
    };
    let pools = config.storage.iter().flat_map(|storage| &storage.pools);
    let pools = pools.map(|pool| (format!("pool {}", pool.name), place(&pool.path)));
    let own = [("site directory".to_owned(), place(Path::new(".")))];
    SamplerConfig {
        host: config.url_host(),
        directory: place(&observe.host_samples),
        days_max: observe.host_days_max(),
        declared: HostDeclaration {
            roles: observe.interfaces.clone(),
            directories: pools.chain(own).collect(),
        },
    }
}

/// The record of one host.
pub struct HostRecord {
    hosts: Vec<String>,
    source: HostSource,
}

enum HostSource {
    Running(Arc<Host>),
    Stored(SamplerConfig),
}

impl HostRecord {
    /// That of a site whose host is sampled by this process.
    pub fn running(config: &Config, host: Arc<Host>) -> HostRecord {
        HostRecord {
            hosts: config.site.hosts.clone(),
            source: HostSource::Running(host),
        }
    }

    /// What lies in the directory of a site. Disks and interfaces are taken as they are now.
    pub fn stored(site: &SiteDirectory, config: &Config) -> HostRecord {
        HostRecord {
            hosts: config.site.hosts.clone(),
            source: HostSource::Stored(sampler_config(site, config)),
        }
    }

    /// Adds what is known of the window of these signals, after what is known of pools. Samples that cannot be read leave
    /// unknown what they would tell.
    pub fn tell(&self, signals: &mut Signals) {
        let window = TimeWindow {
            from: signals.begin,
            to: signals.begin_of(signals.bins),
        };
        let (machine, changes) = self.machine();
        let equipment = HostEquipment {
            interfaces: &machine.interfaces,
            disks: &machine.disks,
        };
        let mut fold = HostFold::of(signals, equipment);
        if let Err(why) = self.each_sample(window, |sample| fold.take(sample)) {
            tracing::warn!(%why, "samples of this host cannot be read; a rate is explained without them");
        }
        fold.tell(&self.hosts, &changes, signals);
    }

    fn machine(&self) -> (Machine, Vec<FactChange>) {
        match &self.source {
            HostSource::Running(host) => host.machine(),
            HostSource::Stored(config) => {
                let changes = Store::at(&config.directory).changes();
                let machine = look(Path::new(ROOT), &config.declared);
                (machine, changes.unwrap_or_default())
            }
        }
    }

    fn each_sample(&self, window: TimeWindow, mut take: impl FnMut(&HostSample)) -> io::Result<()> {
        match &self.source {
            HostSource::Running(host) => host.each_sample(window, take),
            HostSource::Stored(config) => {
                let store = Store::at(&config.directory);
                store.minutes(window.from, window.to, |minute| take(&minute))
            }
        }
    }
}
