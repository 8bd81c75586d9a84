//! What the machine tells, sampled for every role of the process: started with the site, shown to administrators and to
//! monitors.

use crate::site::config::Config;
use crate::site::directory::SiteDirectory;
use crate::site::host_record::sampler_config;
use penstock_observe::host::databases::DatabaseTotals;
use penstock_observe::host::pressure::Pressure;
use penstock_observe::host::sampler::{Host, Sampler};
use penstock_persistence::namespace::WriterMeter;
use penstock_protocol::exposition::Page;
use penstock_transfer_service::JournalMeter;
use penstock_transfer_service::api::host::{HostView, HostWindow};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Begins to sample, where the configuration says so. A host that cannot be sampled serves all the same.
pub fn start(site: &SiteDirectory, of_site: &Config) -> Option<Sampler> {
    if !of_site.observe.sample_host {
        return None;
    }
    let config = sampler_config(site, of_site);
    let directory = config.directory.clone();
    let sampler = Sampler::start(config);
    sampler
        .inspect_err(|why| {
            let directory = directory.display();
            tracing::error!(%why, %directory, "this host is not sampled");
        })
        .ok()
}

/// How the namespace stands, as the host is sampled with it.
pub fn namespace_totals(meter: &WriterMeter) -> DatabaseTotals {
    let counts = meter.counts();
    DatabaseTotals {
        operations: counts.changes,
        operation_us: microseconds(counts.change_time),
        transactions: counts.batches,
        transaction_us: microseconds(counts.batch_time),
        queued: counts.queued,
        running_us: counts.writes_for.map_or(0, microseconds),
    }
}

/// The same of the journal, which commits one operation at a time.
pub fn journal_totals(meter: &JournalMeter) -> DatabaseTotals {
    let counts = meter.counts();
    let commit_us = microseconds(counts.commit_time);
    DatabaseTotals {
        operations: counts.commits,
        operation_us: commit_us,
        transactions: counts.commits,
        transaction_us: commit_us,
        queued: counts.writes_for.is_some().into(),
        running_us: counts.writes_for.map_or(0, microseconds),
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Tells administrators.
pub struct View(pub Arc<Host>);

impl HostView for View {
    fn tell(&self, window: HostWindow) -> io::Result<String> {
        let report = self
            .0
            .report(window.from, window.to, window.resolution_seconds)?;
        serde_json::to_string(&report).map_err(io::Error::other)
    }
}

/// Adds what is counted to a page of metrics: what explains transfers; a whole host is for other exporters. Long because
/// each metric has its name and its help here.
pub fn write(page: &mut Page, host: &Host) {
    let (total, machine) = host.totals();
    let seconds = |microseconds: u64| microseconds as f64 / 1e6;
    let mut family = page.counter(
        "penstock_host_stalled_seconds_total",
        "Time for which some tasks of the host, or all with work, were stalled by lack of a resource.",
    );
    let pressure = total.pressure;
    for (resource, time) in [
        ("cpu", pressure.cpu),
        ("memory", pressure.memory),
        ("io", pressure.io),
    ] {
        let Some(Pressure { some_us, full_us }) = time else {
            continue;
        };
        family.sample(
            &[("resource", resource), ("tasks", "some")],
            seconds(some_us),
        );
        family.sample(
            &[("resource", resource), ("tasks", "all")],
            seconds(full_us),
        );
    }
    let mut family = page.counter(
        "penstock_host_interface_bytes_total",
        "Bytes that an interface with a role carried; frames with their heads.",
    );
    for sample in &total.interfaces {
        let info = machine.interfaces.iter();
        let role = info
            .filter(|one| one.name == *sample.name)
            .find_map(|one| one.role);
        let Some(role) = role else {
            continue;
        };
        let traffic = sample.traffic;
        for (direction, bytes) in [("in", traffic.received_bytes), ("out", traffic.sent_bytes)] {
            let labels = [
                ("interface", &*sample.name),
                ("role", role.name()),
                ("direction", direction),
            ];
            family.sample(&labels, bytes);
        }
    }
    let mut family = page.counter(
        "penstock_host_disk_busy_seconds_total",
        "Time for which a disk below a directory of the site had requests.",
    );
    for sample in &total.disks {
        let below = |name: &str| {
            machine
                .disks
                .iter()
                .any(|one| one.name == name && !one.holds.is_empty())
        };
        if below(&sample.name) {
            let busy = sample.activity.busy_ms as f64 / 1e3;
            family.sample(&[("disk", &*sample.name)], busy);
        }
    }
    let mut family = page.counter(
        "penstock_host_tcp_segments_total",
        "Segments of all connections of the host, and those of them that were sent again.",
    );
    if let Some(tcp) = total.tcp {
        family.sample(&[("kind", "sent")], tcp.sent_segments);
        family.sample(&[("kind", "again")], tcp.retransmitted_segments);
    }
    let mut family = page.counter(
        "penstock_host_fact_changes_total",
        "Settings, limits, mounts and devices that were found changed.",
    );
    family.sample(&[], host.fact_changes());
    let mut family = page.counter(
        "penstock_host_minutes_lost_total",
        "Minutes of samples that could not be written.",
    );
    family.sample(&[], host.minutes_lost());
    let mut family = page.counter(
        "penstock_host_sampler_seconds_total",
        "Processor time of the thread that samples.",
    );
    family.sample(&[], host.sampler_time().as_secs_f64());
}
