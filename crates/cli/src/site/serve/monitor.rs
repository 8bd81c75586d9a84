//! What the process tells its monitors, on each of its ports alike: every role's metrics on one page, and one health
//! report. Who may see them is configured; whether it is well at all, everybody may ask.

use super::{host, process};
use crate::site::backup::BackupMeter;
use crate::site::config::Config;
use crate::site::expiry::Expiry;
use http::StatusCode;
use parking_lot::RwLock;
use penstock_decide::authorization::Verdict;
use penstock_decide::clock::ClockTrust;
use penstock_decide::credential_expiry::CredentialValidity;
use penstock_decide::health::{Health, HealthFacts, StorageHealth, TransferHealth, judge_health};
use penstock_decide::monitor_rights::{MONITOR_SCOPE, MonitorFacts, may_monitor};
use penstock_model::{Timestamp, UserName};
use penstock_observe::host::sampler::Host;
use penstock_protocol::connections::Connections;
use penstock_protocol::exposition::{self, Page};
use penstock_protocol::http1::client::NearEnds;
use penstock_protocol::http1::tally::RequestTally;
use penstock_protocol::identity::{Identity, Method};
use penstock_protocol::monitoring::{Monitor, MonitorAnswer, Question, Viewer, ViewerCredential};
use penstock_protocol::network::Network;
use penstock_protocol::token::ADMIN_SCOPE;
use penstock_storage_element::Storage;
use penstock_transfer_service::{NodeStatus, Service};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

const JSON: &str = "application/json";
/// Files with an end that are shown one by one, those that end first.
const ENDINGS_MAX: usize = 300;

/// Everything that monitors may ask about. Roles join it when they have started.
pub struct SiteMonitor {
    site: String,
    started: Instant,
    started_at: Timestamp,
    connections: Connections,
    near_ends: NearEnds,
    storage: OnceLock<Arc<Storage>>,
    transfer: OnceLock<(Arc<Service>, Arc<RequestTally>)>,
    backups: OnceLock<Arc<BackupMeter>>,
    host: OnceLock<Arc<Host>>,
    stopping: AtomicBool,
    access: RwLock<MonitorAccess>,
    endings: RwLock<Arc<Vec<Expiry>>>,
}

/// Who may see what is told to monitors.
struct MonitorAccess {
    addresses: Vec<Network>,
    subjects: Vec<String>,
    own_issuer: Option<String>,
    near_ends: NearEnds,
}

impl MonitorAccess {
    fn of(config: &Config, near_ends: &NearEnds) -> MonitorAccess {
        let addresses = config.observe.monitor_addresses.iter();
        MonitorAccess {
            // What is none was refused when the file was read.
            addresses: addresses.filter_map(|text| Network::parse(text)).collect(),
            subjects: config.observe.monitors.clone(),
            own_issuer: config.issuer.as_ref().map(|issuer| issuer.url.clone()),
            near_ends: near_ends.clone(),
        }
    }

    fn facts(&self, viewer: &Viewer) -> MonitorFacts {
        let has_scope = |identity: &Identity| {
            identity.method == Method::Token
                && Some(&identity.issuer) == self.own_issuer.as_ref()
                && (identity.has_scope(MONITOR_SCOPE) || identity.has_scope(ADMIN_SCOPE))
        };
        // A token's subject means something only together with its issuer, and the list has no issuers.
        let is_listed = |identity: &Identity| {
            identity.method == Method::Certificate
                && self.subjects.iter().any(|dn| dn == identity.user.as_str())
        };
        let identity = match &viewer.credential {
            ViewerCredential::Own(identity) => Some(identity),
            ViewerCredential::Macaroon(_) | ViewerCredential::Anonymous => None,
        };
        MonitorFacts {
            at_listed_address: viewer.peer.is_some_and(|peer| {
                // What somebody sent us for is not what a neighbour asks, though it comes from the same machine.
                let is_ours = self.near_ends.contain(peer);
                !is_ours && self.addresses.iter().any(|net| net.contains(peer.ip()))
            }),
            has_scope: identity.is_some_and(has_scope),
            is_listed: identity.is_some_and(is_listed),
            is_known: viewer.credential.user().is_some(),
        }
    }
}

impl SiteMonitor {
    /// Before any role has started.
    pub fn new(config: &Config, connections: Connections, near_ends: NearEnds) -> SiteMonitor {
        SiteMonitor {
            site: config.site.name.clone(),
            started: Instant::now(),
            started_at: penstock_clock::wall_clock(),
            connections,
            storage: OnceLock::new(),
            transfer: OnceLock::new(),
            backups: OnceLock::new(),
            host: OnceLock::new(),
            stopping: AtomicBool::new(false),
            access: RwLock::new(MonitorAccess::of(config, &near_ends)),
            near_ends,
            endings: RwLock::default(),
        }
    }

    /// The storage element has started.
    pub fn joined_by_storage(&self, storage: &Arc<Storage>) {
        let _ = self.storage.set(Arc::clone(storage));
    }

    /// The transfer service has started.
    pub fn joined_by_transfer(&self, service: &Arc<Service>, requests: &Arc<RequestTally>) {
        let _ = self
            .transfer
            .set((Arc::clone(service), Arc::clone(requests)));
    }

    /// Backups are scheduled.
    pub fn joined_by_backups(&self) -> Arc<BackupMeter> {
        Arc::clone(self.backups.get_or_init(Arc::default))
    }

    /// The host is sampled.
    pub fn joined_by_host(&self, host: &Arc<Host>) {
        let _ = self.host.set(Arc::clone(host));
    }

    /// Other rules from now on.
    pub fn configure(&self, config: &Config) {
        let access = MonitorAccess::of(config, &self.near_ends);
        *self.access.write() = access;
    }

    /// What ends, and when, as it was just found. Tells the log about what was well before and is not any more.
    pub fn replace_endings(&self, found: Vec<Expiry>) {
        let mut endings = self.endings.write();
        for ending in &found {
            let known = |before: &&Expiry| before.path == ending.path;
            let before = endings.iter().find(known).map(|before| before.standing);
            if let Some(advice) = ending
                .advice
                .as_ref()
                .filter(|_| before != Some(ending.standing))
            {
                match ending.standing {
                    CredentialValidity::Good => {}
                    CredentialValidity::Soon => tracing::warn!("{advice}"),
                    CredentialValidity::Over => tracing::error!("{advice}"),
                }
            }
        }
        *endings = Arc::new(found);
    }

    /// The process was asked to stop.
    pub fn stops(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    fn endings(&self) -> Arc<Vec<Expiry>> {
        let endings = self.endings.read();
        Arc::clone(&endings)
    }

    fn health(&self, now: Timestamp) -> Health {
        let transfer = self.transfer.get().map(|(service, _)| {
            // Before its first word it has been silent since the start.
            let silent = match service.overview().at {
                0 => self.started.elapsed(),
                at => now.since(Timestamp(at)),
            };
            TransferHealth {
                journal: service.journal(),
                journal_unread: service.unread(),
                engine_silent: silent.min(self.started.elapsed()),
                removals_given_over: service.overview().totals.removals_given_over,
            }
        });
        let condition = self.storage.get().map(|storage| storage.condition());
        let doubts = self.transfer.get().map(|(service, _)| service.doubts());
        let (clock, records_refused) = doubts.unwrap_or_default();
        let clocks = [Some(clock), condition.as_ref().map(|storage| storage.clock)];
        let clock_doubt = clocks.into_iter().flatten().find_map(ClockTrust::doubt);
        let storage = condition.map(|condition| StorageHealth {
            namespace_readable: condition.namespace_readable,
            namespace: condition.namespace,
            pools_enabled: condition.pools_enabled,
            alarms: condition.alarms,
            dead_threads: condition.dead_threads,
        });
        let endings = self.endings();
        let told = endings.iter().filter_map(|ending| {
            let advice = ending.advice.clone()?;
            Some((ending.what, ending.standing, advice))
        });
        judge_health(&HealthFacts {
            clock_doubt,
            records_refused,
            stopping: self.stopping.load(Ordering::Relaxed),
            transfer,
            storage,
            endings: told.collect(),
        })
    }

    fn metrics(&self, now: Timestamp) -> String {
        let mut page = Page::default();
        let mut family = page.gauge(
            "penstock_build_info",
            "1; the version and the site are labels.",
        );
        let labels = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("site", &*self.site),
        ];
        family.sample(&labels, 1_u64);
        self.write_requests(&mut page);
        self.write_connections(&mut page);
        self.write_endings(&mut page, now);
        let health = self.health(now);
        let mut family = page.gauge("penstock_ready", "1 while requests should be sent here.");
        family.sample(&[], health.ready);
        if let Some((service, _)) = self.transfer.get() {
            service.write_metrics(&mut page);
        }
        if let Some(storage) = self.storage.get() {
            storage.write_metrics(&mut page);
        }
        if let Some(backups) = self.backups.get() {
            backups.write(&mut page, now);
        }
        if let Some(host) = self.host.get() {
            host::write(&mut page, host);
        }
        process::write(&mut page, self.started_at);
        page.into_text()
    }

    fn write_requests(&self, page: &mut Page) {
        let door = self
            .storage
            .get()
            .map(|storage| &storage.metrics().requests);
        let transfer = self.transfer.get().map(|(_, requests)| &**requests);
        let tallies = || {
            let door = door.map(|tally| ("door", tally));
            door.into_iter()
                .chain(transfer.map(|tally| ("transfer", tally)))
        };
        let mut family = page.counter(
            "penstock_http_requests_total",
            "Answered requests: at the door of the storage element, and at the transfer service.",
        );
        for (port, tally) in tallies() {
            tally.write_counts(&mut family, port);
        }
        let mut family = page.histogram(
            "penstock_http_request_duration_seconds",
            "From a request's head to its answer: at the door to its last byte, at the transfer service to its head.",
        );
        for (port, tally) in tallies() {
            tally.write_durations(&mut family, port);
        }
    }

    fn write_connections(&self, page: &mut Page) {
        let mut family = page.gauge(
            "penstock_connections",
            "Connections of clients, over all ports.",
        );
        family.sample(&[], self.connections.count());
        let mut family = page.gauge("penstock_connections_max", "Their maximum number.");
        family.sample(&[], self.connections.limits().connections_max);
        let mut family = page.counter(
            "penstock_connections_turned_away_total",
            "Clients refused because of connection limits.",
        );
        family.sample(&[], self.connections.turned_away());
    }

    fn write_endings(&self, page: &mut Page, now: Timestamp) {
        let endings = self.endings();
        let mut by_end: Vec<(&Expiry, Timestamp)> = endings
            .iter()
            .filter_map(|ending| Some((ending, ending.ends?)))
            .collect();
        by_end.sort_by(|one, other| (one.1, &one.0.path).cmp(&(other.1, &other.0.path)));
        by_end.truncate(ENDINGS_MAX);
        let mut family = page.gauge(
            "penstock_expiry_seconds",
            "Time left of a certificate, an authority, a revocation list, or until a signing key should be rotated; \
             negative when it is over.",
        );
        for (ending, ends) in &by_end {
            let left = (ends.0.saturating_sub(now.0)) as f64 / 1000.0;
            let name = ending.name();
            family.sample(&[("what", ending.what.name()), ("file", &name)], left);
        }
        let mut family = page.gauge(
            "penstock_expiry_findings",
            "Files that expire soon, have expired or cannot be used, by the thresholds of `penstock check`.",
        );
        for (standing, name) in [
            (CredentialValidity::Soon, "soon"),
            (CredentialValidity::Over, "over"),
        ] {
            let those = endings.iter().filter(|ending| ending.standing == standing);
            family.sample(&[("standing", name)], those.count());
        }
    }
}

impl Monitor for SiteMonitor {
    fn answer(&self, question: Question, viewer: &Viewer) -> MonitorAnswer {
        let facts = self.access.read().facts(viewer);
        let decision = may_monitor(facts);
        let may_see = decision.choice == Verdict::Allowed;
        let now = penstock_clock::wall_clock();
        if question != Question::Metrics {
            let node = self.transfer.get();
            let node = node.and_then(|(service, _)| service.standing());
            return tell_health(question, &self.health(now), node, may_see);
        }
        if may_see {
            return MonitorAnswer {
                status: StatusCode::OK,
                media_type: exposition::MEDIA_TYPE,
                body: self.metrics(now),
            };
        }
        let why: Vec<String> = decision.because.iter().map(ToString::to_string).collect();
        let (peer, why) = (viewer.peer, why.join("; "));
        let user = viewer.credential.user().map(UserName::as_str);
        tracing::warn!(
            peer = peer.map(tracing::field::display),
            user,
            why,
            "refused the metrics"
        );
        MonitorAnswer {
            status: match facts.is_known {
                true => StatusCode::FORBIDDEN,
                false => StatusCode::UNAUTHORIZED,
            },
            media_type: "text/plain; charset=utf-8",
            body: format!("{why}\n"),
        }
    }
}

/// The status is everybody's; why is for monitors.
fn tell_health(
    question: Question,
    health: &Health,
    node: Option<NodeStatus>,
    may_see: bool,
) -> MonitorAnswer {
    let (is_well, well, ill) = match question {
        Question::Live => (health.live, "ok", "dead"),
        Question::Ready | Question::Health | Question::Metrics => (health.ready, "ok", "unready"),
    };
    let status = if is_well { well } else { ill };
    let body = match may_see {
        true => {
            let mut body = json!({
                "status": status,
                "live": health.live,
                "ready": health.ready,
                "findings": health.findings,
            });
            if let Some(node) = node {
                body["node"] = json!(node);
            }
            body
        }
        false => json!({ "status": status }),
    };
    MonitorAnswer {
        status: match is_well {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        },
        media_type: JSON,
        body: format!("{body}\n"),
    }
}
