//! Alerts people of drops that last: looks at the record, and tells each receiver what has begun, goes on and is over.
//!
//! What a receiver was told is kept in a file and compared with what holds now, so that nothing queues up while it is
//! away, and a restart tells nothing twice. Of several nodes the leader alone does this.

mod body;
mod receiver;

use crate::site::config::Config;
use crate::site::directory::SiteDirectory;
use crate::site::element_record::ElementRecord;
use body::Sender;
use penstock_clock::wall_clock;
use penstock_decide::clock::ClockTrust;
use penstock_decide::explain::PopulationChoice;
use penstock_decide::incidents::{Incident, IncidentTimes};
use penstock_model::Timestamp;
use penstock_observe::Record;
use penstock_observe::explanations::reading::{ExplainWindow, read_record_to_its_end};
use penstock_protocol::tls::ClientTls;
use penstock_transfer_service::Service;
use penstock_transfer_service::api::SuppressedAlerts;
use receiver::{Receiver, ReceiverTask};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Looking at the record takes at most one part in so many of the time.
const LOOK_PART: u32 = 10;

/// What was seen in the record at one time; `None`: nothing yet, or another node leads.
type Sight = Option<Arc<SeenIncidents>>;

/// The incidents of a look at the record.
struct SeenIncidents {
    incidents: Vec<Incident>,
    /// From when on was looked at.
    since: Timestamp,
    /// Links for which there was no room.
    links_left_out: usize,
}

/// What all receivers of a process share.
pub struct Alerting {
    receivers: Vec<Receiver>,
    lookout: Lookout,
    sender: Sender,
}

/// How the record is looked at.
struct Lookout {
    times: IncidentTimes,
    look_every: Duration,
    window: Duration,
    resolution_seconds: u32,
    /// What is known of the site's own end of links.
    element: ElementRecord,
}

impl Alerting {
    /// As it is configured; `None`: nobody is to be alerted. Errors: a secret or a directory that cannot be used.
    pub fn of(
        site: &SiteDirectory,
        config: &Config,
        tls: &ClientTls,
        element: ElementRecord,
    ) -> Result<Option<Alerting>, String> {
        let Some(alerts) = &config.observe.alerts else {
            return Ok(None);
        };
        let state = site.resolve(&alerts.state);
        std::fs::create_dir_all(&state)
            .map_err(|why| format!("observe.alerts.state: {}: {why}", state.display()))?;
        let receivers: Result<Vec<Receiver>, String> = alerts
            .receivers()
            .map(|named| Receiver::of(named, alerts, site, &state, tls))
            .collect();
        let seconds = alerts.resolution.0.as_secs().max(1);
        Ok(Some(Alerting {
            receivers: receivers?,
            lookout: Lookout {
                times: alerts.times(),
                look_every: alerts.look_every.0,
                window: alerts.window.0,
                resolution_seconds: u32::try_from(seconds).unwrap_or(u32::MAX),
                element,
            },
            sender: Sender {
                site: config.site.name.clone(),
                service: config.service_url().unwrap_or_default(),
                policy: alerts.policy(),
            },
        }))
    }

    /// Alerts until the shutdown signal, each receiver in a task of its own.
    pub fn start(
        self,
        service: &Arc<Service>,
        suppressed: &SuppressedAlerts,
        stopping: &watch::Receiver<bool>,
    ) {
        let (sight, seen) = watch::channel(None);
        for receiver in self.receivers {
            let task = ReceiverTask {
                receiver,
                sender: self.sender.clone(),
                service: service.clone(),
                suppressed: suppressed.clone(),
                seen: seen.clone(),
            };
            tokio::spawn(task.run(stopping.clone()));
        }
        tokio::spawn(
            self.lookout
                .look_repeatedly(service.clone(), sight, stopping.clone()),
        );
    }
}

impl Lookout {
    async fn look_repeatedly(
        self,
        service: Arc<Service>,
        sight: watch::Sender<Sight>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let lookout = Arc::new(self);
        let mut failed: Option<String> = None;
        let mut leaves_out = false;
        let mut was_credible = true;
        loop {
            let begun = Instant::now();
            let is_credible = service.clock_trust() == ClockTrust::Credible;
            if is_credible != was_credible {
                was_credible = is_credible;
                match is_credible {
                    true => tracing::info!("alerts go on: the clock is believed again"),
                    false => tracing::warn!("alerts wait until the clock is believed"),
                }
            }
            if !service.leads() {
                sight.send_replace(None);
            } else if is_credible {
                let (lookout, record) = (lookout.clone(), service.reader().clone());
                let look = tokio::task::spawn_blocking(move || lookout.look(&record, wall_clock()));
                match look.await {
                    Ok(Ok(seen)) => {
                        failed = None;
                        let links_left_out = seen.links_left_out;
                        if links_left_out > 0 && !leaves_out {
                            tracing::warn!(
                                links_left_out,
                                "there are too many links; incidents on the omitted ones are not alerted, nor is their end"
                            );
                        }
                        leaves_out = links_left_out > 0;
                        sight.send_replace(Some(Arc::new(seen)));
                    }
                    // What is not known is not over: receivers are told nothing.
                    Ok(Err(why)) if failed.as_ref() != Some(&why) => {
                        tracing::error!(%why, "alerts wait until the record can be read");
                        failed = Some(why);
                    }
                    Ok(Err(_)) => {}
                    Err(why) => tracing::error!(%why, "looking for incidents ended unexpectedly"),
                }
            }
            let pause = lookout.look_every.max(begun.elapsed() * (LOOK_PART - 1));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stopping.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Blocks.
    fn look(&self, record: &dyn Record, now: Timestamp) -> Result<SeenIncidents, String> {
        let from = Timestamp((now - self.window).0.max(0));
        let window = ExplainWindow::new(from, now, Some(self.resolution_seconds));
        let read = read_record_to_its_end(record, window, &PopulationChoice::Links);
        let read = read.and_then(|read| self.element.add_to(read));
        let read = read.map_err(|why| why.to_string())?;
        Ok(SeenIncidents {
            incidents: read.incidents(self.times, read.to),
            since: from,
            links_left_out: read.links_left_out,
        })
    }
}
