//! One receiver of alerts: what it was told, and telling it more.

use super::body::{Notice, Sender, Turn};
use super::{SeenIncidents, Sight};
use crate::site::config::{Alerts, ReceiverAddress};
use crate::site::directory::SiteDirectory;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use penstock_clock::wall_clock;
use penstock_decide::alerting::{AlertStep, KnownIncidents, ToldAlert, alert_steps};
use penstock_decide::incidents::IncidentId;
use penstock_durable_file::replace_private;
use penstock_model::url::redact;
use penstock_model::{Mute, Timestamp};
use penstock_protocol::http1::client::{Client, ClientConfig, ClientRequest};
use penstock_protocol::tls::ClientTls;
use penstock_transfer_service::Service;
use penstock_transfer_service::api::SuppressedAlerts;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use url::Url;

/// Incidents that a receiver can be told of at once. Further ones wait until some are over.
const OPEN_MAX: usize = 1000;
/// The wait before a receiver that failed is tried again; doubled each time up to the longest.
const PATIENCE_FIRST: Duration = Duration::from_secs(1);
const PATIENCE_LONGEST: Duration = Duration::from_secs(300);
/// The wait before an alert is sent again that a receiver refused; doubled each time up to the longest.
const REFUSED_FIRST: Duration = Duration::from_secs(60);
const REFUSED_LONGEST: Duration = Duration::from_secs(3600);
/// To connect to a receiver.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a receiver understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Webhook,
    Alertmanager,
}

/// Whom to tell, and how.
pub struct Receiver {
    name: &'static str,
    form: Form,
    /// The one URL that is ever asked: no redirect is followed.
    url: Url,
    secret: Option<HeaderValue>,
    client: Client,
    book: PathBuf,
}

impl Receiver {
    pub(super) fn of(
        address: ReceiverAddress<'_>,
        alerts: &Alerts,
        site: &SiteDirectory,
        state: &Path,
        tls: &ClientTls,
    ) -> Result<Receiver, String> {
        let ReceiverAddress {
            name,
            url,
            secret_file,
        } = address;
        let form = match name {
            "alertmanager" => Form::Alertmanager,
            _ => Form::Webhook,
        };
        let mut url = url.clone();
        if form == Form::Alertmanager {
            let path = format!("{}/api/v2/alerts", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        let secret = secret_file.map(|file| secret_of(name, &site.resolve(file)));
        let client = Client::new(ClientConfig {
            connect_timeout: CONNECT_TIMEOUT.min(alerts.timeout.0),
            response_timeout: alerts.timeout.0,
            stall_timeout: alerts.timeout.0,
            idle_per_host: 1,
            ..ClientConfig::new(tls.clone())
        });
        Ok(Receiver {
            name,
            form,
            url,
            secret: secret.transpose()?,
            client,
            book: state.join(format!("{name}.json")),
        })
    }

    /// Errors: why it did not take it, without the receiver's address, which may hold a secret.
    async fn post(&self, body: &Value) -> Result<(), NotTaken> {
        let mut request = ClientRequest::new(Method::POST, self.url.clone());
        let json = HeaderValue::from_static("application/json");
        request.headers.insert(CONTENT_TYPE, json);
        if let Some(secret) = &self.secret {
            request.headers.insert(AUTHORIZATION, secret.clone());
        }
        let body = body.to_string();
        let answer = self.client.send_bytes(request, body.as_bytes()).await;
        let answer =
            answer.map_err(|why| NotTaken::Away(self.without_address(&why.to_string())))?;
        match answer.status {
            status if status.is_success() => Ok(()),
            status if status.is_redirection() => Err(NotTaken::Away(format!(
                "it answered {status}, and redirects are not followed"
            ))),
            status if is_of_body(status) => Err(NotTaken::Refused(format!("it answered {status}"))),
            status => Err(NotTaken::Away(format!("it answered {status}"))),
        }
    }
}

impl Receiver {
    /// A text without the receiver's address, as it is or as errors show it: its path alone lets anybody post.
    fn without_address(&self, text: &str) -> String {
        let url = self.url.as_str();
        let text = text.replace(url, "the receiver");
        let text = text.replace(&redact(url), "the receiver");
        match self.url.path() {
            "/" => text,
            path => text.replace(path, "/…"),
        }
    }
}

/// Why a receiver did not take an alert.
enum NotTaken {
    /// It would take no other either.
    Away(String),
    /// It does not want this one.
    Refused(String),
}

/// Whether an error is that of one request, and not one of the receiver or of how it is asked.
fn is_of_body(status: StatusCode) -> bool {
    let of_receiver = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::NOT_FOUND,
        StatusCode::METHOD_NOT_ALLOWED,
        StatusCode::PROXY_AUTHENTICATION_REQUIRED,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    status.is_client_error() && !of_receiver.contains(&status)
}

/// A secret on the first line of a file, as a header.
fn secret_of(name: &str, path: &Path) -> Result<HeaderValue, String> {
    let at = format!("observe.alerts.{name}_secret_file: {}", path.display());
    let text = std::fs::read_to_string(path).map_err(|why| format!("{at}: {why}"))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    let value = HeaderValue::from_str(&format!("Bearer {secret}")).ok();
    let value = value.filter(|_| !secret.is_empty());
    let mut value = value.ok_or_else(|| format!("{at} does not hold a secret on one line"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a receiver was told and has not been told to be over.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Book {
    entries: Vec<BookEntry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct BookEntry {
    told: ToldAlert,
    notice: Notice,
}

impl Book {
    /// Blocks. One that cannot be read is begun anew: what is open is told once more.
    fn load(path: &Path) -> Book {
        let text = match std::fs::read_to_string(path) {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Book::default(),
            text => text,
        };
        let book = text.and_then(|text| Ok(serde_json::from_str(&text)?));
        book.unwrap_or_else(|why| {
            tracing::error!(path = %path.display(), %why, "the list of sent alerts cannot be read; alerts will be sent again");
            Book::default()
        })
    }

    /// Blocks.
    fn save(&self, path: &Path) {
        let saved = serde_json::to_string(self)
            .map_err(std::io::Error::other)
            .and_then(|text| replace_private(path, &text));
        if let Err(why) = saved {
            tracing::error!(path = %path.display(), %why, "the list of sent alerts cannot be saved; after a restart alerts will be sent again");
        }
    }

    fn told(&self) -> Vec<ToldAlert> {
        self.entries.iter().map(|entry| entry.told).collect()
    }

    fn notice(&self, id: IncidentId) -> Option<&Notice> {
        let mut entries = self.entries.iter();
        let found = entries.find(|entry| entry.told.id == id);
        found.map(|entry| &entry.notice)
    }
}

/// Something that is to be told.
struct Telling {
    turn: Turn,
    id: IncidentId,
    notice: Notice,
    ended: Option<Timestamp>,
}

/// Alerts that a receiver did not take. They hold up no other: those it refused are sent again after a while, and one with
/// which it failed comes after those with which it did not.
#[derive(Debug, Default)]
struct Refusals(BTreeMap<IncidentId, Refusal>);

#[derive(Debug)]
struct Refusal {
    /// How often the receiver failed with it.
    failures: u32,
    /// It refused this one, and is not asked again before.
    until: Option<Instant>,
    patience: Duration,
}

impl Refusals {
    /// Keeps those that are still to be told, in the order in which they are sent now.
    fn choose<T>(
        &mut self,
        mut due: Vec<T>,
        id_of: impl Fn(&T) -> IncidentId,
        now: Instant,
    ) -> Vec<T> {
        let ids: BTreeSet<IncidentId> = due.iter().map(&id_of).collect();
        self.0.retain(|id, _| ids.contains(id));
        let known = |telling: &T| self.0.get(&id_of(telling));
        due.retain(|telling| {
            let until = known(telling).and_then(|refusal| refusal.until);
            until.is_none_or(|until| until <= now)
        });
        due.sort_by_key(|telling| known(telling).map_or(0, |refusal| refusal.failures));
        due
    }

    fn failed(&mut self, id: IncidentId) {
        let refusal = self.0.entry(id).or_default();
        refusal.failures = refusal.failures.saturating_add(1);
    }

    /// Gives how long it is not sent again.
    fn refused(&mut self, id: IncidentId, now: Instant) -> Duration {
        self.failed(id);
        let refusal = self.0.entry(id).or_default();
        let patience = refusal.patience;
        refusal.until = Some(now + patience);
        refusal.patience = (patience * 2).min(REFUSED_LONGEST);
        patience
    }

    fn taken(&mut self, id: IncidentId) {
        self.0.remove(&id);
    }
}

impl Default for Refusal {
    fn default() -> Refusal {
        Refusal {
            failures: 0,
            until: None,
            patience: REFUSED_FIRST,
        }
    }
}

/// Tells one receiver.
pub(super) struct ReceiverTask {
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    pub(super) service: Arc<Service>,
    pub(super) suppressed: SuppressedAlerts,
    pub(super) seen: watch::Receiver<Sight>,
}

impl ReceiverTask {
    pub(super) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        let mut book = self.on_disk(Book::load).await.unwrap_or_default();
        let mut refusals = Refusals::default();
        let mut failed: Option<(String, Duration)> = None;
        loop {
            let wait = failed.as_ref().map(|(_, patience)| *patience);
            tokio::select! {
                changed = self.seen.changed(), if wait.is_none() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                _ = stopping.wait_for(|stop| *stop) => return,
            }
            let sight = self.seen.borrow_and_update().clone();
            let Some(seen) = sight.filter(|_| self.service.leads()) else {
                continue;
            };
            let told = tokio::select! {
                told = self.tell(&mut book, &mut refusals, &seen) => told,
                _ = stopping.wait_for(|stop| *stop) => return,
            };
            failed = match told {
                Ok(()) => {
                    if failed.is_some() {
                        tracing::info!(receiver = self.receiver.name, "alerts are taken again");
                    }
                    None
                }
                Err(why) => {
                    let (before, patience) = failed.unwrap_or((String::new(), PATIENCE_FIRST / 2));
                    if before != why {
                        tracing::error!(receiver = self.receiver.name, %why, "alerts are not taken; they are sent again later");
                    }
                    Some((why, (patience * 2).min(PATIENCE_LONGEST)))
                }
            };
        }
    }

    /// Tells all that is due, but for what was refused a moment ago. Errors: why the receiver takes nothing; what was taken
    /// before is in the book.
    async fn tell(
        &self,
        book: &mut Book,
        refusals: &mut Refusals,
        seen: &SeenIncidents,
    ) -> Result<(), String> {
        let now = wall_clock();
        let due = self.due(book, seen, now);
        for telling in refusals.choose(due, |telling| telling.id, Instant::now()) {
            if telling.turn == Turn::Raised && book.entries.len() >= OPEN_MAX {
                continue;
            }
            let (id, turn) = (telling.id, telling.turn);
            match self.receiver.post(&self.body(&telling, now)).await {
                Ok(()) => refusals.taken(id),
                Err(NotTaken::Away(why)) => {
                    refusals.failed(id);
                    return Err(why);
                }
                Err(NotTaken::Refused(why)) => {
                    let patience_seconds = refusals.refused(id, Instant::now()).as_secs();
                    tracing::error!(
                        receiver = self.receiver.name, incident = %id, ?turn, %why, patience_seconds,
                        "an alert is refused; it is sent again later"
                    );
                    continue;
                }
            }
            tracing::info!(receiver = self.receiver.name, incident = %id, ?turn, "an alert was taken");
            book.entries.retain(|entry| entry.told.id != id);
            if turn != Turn::Resolved {
                book.entries.push(BookEntry {
                    told: ToldAlert { id, told_at: now },
                    notice: telling.notice,
                });
            }
            let kept = book.clone();
            self.on_disk(move |path| kept.save(path)).await;
        }
        Ok(())
    }

    /// What has to be told now. What a mute holds back is counted.
    fn due(&self, book: &Book, seen: &SeenIncidents, now: Timestamp) -> Vec<Telling> {
        let mutes: Vec<Mute> = self.service.settings().mutes().cloned().collect();
        let told = book.told();
        let known = KnownIncidents {
            found: &seen.incidents,
            since: seen.since,
            clock: self.service.clock_trust(),
            links_left_out: seen.links_left_out,
        };
        let steps = alert_steps(&told, known, &mutes, self.sender.policy, now);
        let telling = |step: AlertStep<'_>| match step {
            AlertStep::Suppress { incident, scope } => {
                self.suppressed.count(scope, incident.id);
                None
            }
            AlertStep::Resolve { id, ended } => Some(Telling {
                turn: Turn::Resolved,
                id,
                notice: book.notice(id)?.clone(),
                ended: Some(ended.unwrap_or(now)),
            }),
            AlertStep::Raise(incident) => Some(Telling {
                turn: Turn::Raised,
                id: incident.id,
                notice: Notice::of(incident),
                ended: None,
            }),
            AlertStep::Repeat { id, incident } => {
                let mut notice = Notice::of(incident);
                // By the same name and labels as before.
                notice.row.id = id;
                notice.row.first_seen = book.notice(id)?.row.first_seen;
                Some(Telling {
                    turn: Turn::Repeated,
                    id,
                    notice,
                    ended: None,
                })
            }
        };
        steps.into_iter().filter_map(telling).collect()
    }

    fn body(&self, telling: &Telling, now: Timestamp) -> Value {
        let Telling {
            turn,
            notice,
            ended,
            ..
        } = telling;
        match self.receiver.form {
            Form::Webhook => {
                let suppressed = self.suppressed.total();
                self.sender.webhook(*turn, notice, *ended, suppressed)
            }
            Form::Alertmanager => self.sender.alertmanager(notice, now, *ended),
        }
    }

    /// `None`: the thread died, which was logged.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Option<T> {
        let path = self.receiver.book.clone();
        let done = tokio::task::spawn_blocking(move || work(&path)).await;
        done.inspect_err(|why| tracing::error!(%why, "keeping what was told ended unexpectedly"))
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn no_error_tells_the_path_of_a_receiver_whatever_stands_behind_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        // Each connection is closed without an answer.
        let closing = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream);
            }
        });
        let tls = ClientTls::system().expect("OpenSSL works");
        for behind in ["", "?x=1", "?x=1&y"] {
            let url = format!("http://127.0.0.1:{port}/services/T0/SECRET{behind}");
            let receiver = Receiver {
                name: "webhook",
                form: Form::Webhook,
                url: Url::parse(&url).expect("valid"),
                secret: None,
                client: Client::new(ClientConfig::new(tls.clone())),
                book: PathBuf::new(),
            };
            let Err(NotTaken::Away(why)) = receiver.post(&Value::Null).await else {
                panic!("closed");
            };
            assert!(!why.contains("SECRET") && !why.contains("T0"), "{why}");
            let shown = receiver.without_address(&format!("{}: closed", redact(&url)));
            assert_eq!(shown, "the receiver: closed");
        }
        closing.abort();
    }

    fn id(number: u32) -> IncidentId {
        format!("{number:08x}-00000001").parse().expect("an id")
    }

    #[test]
    fn an_alert_that_is_refused_for_good_holds_up_no_other_and_is_sent_ever_more_seldom() {
        let (mut refusals, begin) = (Refusals::default(), Instant::now());
        let (mut sent, mut taken) = (0, 0);
        for second in 0..4 * 3600 {
            let now = begin + Duration::from_secs(second);
            // Another incident in each minute.
            let new = 2 + u32::try_from(second / 60).expect("few");
            let due = match second % 60 {
                0 => vec![id(1), id(new)],
                _ => vec![id(1)],
            };
            for one in refusals.choose(due, |id| *id, now) {
                match one == id(1) {
                    true => {
                        refusals.refused(one, now);
                        sent += 1;
                    }
                    false => {
                        refusals.taken(one);
                        taken += 1;
                    }
                }
            }
        }
        assert_eq!((sent, taken), (9, 240));
    }

    #[test]
    fn an_alert_with_which_a_receiver_fails_comes_after_the_others() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let due = || vec![id(1), id(2), id(3)];
        assert_eq!(refusals.choose(due(), |id| *id, now), due());
        refusals.failed(id(1));
        assert_eq!(refusals.choose(due(), |id| *id, now), [id(2), id(3), id(1)]);
        // What need not be told any more is forgotten.
        assert_eq!(refusals.choose(vec![id(2)], |id| *id, now), [id(2)]);
        assert_eq!(refusals.choose(due(), |id| *id, now), due());
    }

    #[test]
    fn a_status_is_of_the_alert_or_of_the_receiver() {
        let of_body: Vec<u16> = (400..600)
            .filter(|status| is_of_body(StatusCode::from_u16(*status).expect("a status")))
            .filter(|status| [400, 401, 403, 404, 413, 422, 429, 500, 503].contains(status))
            .collect();
        assert_eq!(of_body, [400, 413, 422]);
    }
}
