//! What receivers get: JSON for webhooks, and the alerts of Prometheus' Alertmanager.

use penstock_decide::alerting::AlertPolicy;
use penstock_decide::incidents::Incident;
use penstock_decide::wording;
use penstock_model::Timestamp;
use penstock_observe::incidents::{IncidentDetail, IncidentRow};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// The version of the form of [`Sender::webhook`].
const WEBHOOK_VERSION: u32 = 1;
/// An Alertmanager that hears nothing for so much longer than the time to the next repetition takes an alert for over.
const GRACE: Duration = Duration::from_secs(3600);

/// Who alerts.
#[derive(Debug, Clone)]
pub struct Sender {
    /// The site's name.
    pub site: String,
    /// The URL of its transfer service.
    pub service: String,
    /// When people are alerted.
    pub policy: AlertPolicy,
}

/// What has become of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is told for the first time.
    Raised,
    /// It was told before, and goes on.
    Repeated,
    /// It is over.
    Resolved,
}

/// What is told of an incident, and kept to tell of its end by the same labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// The incident, as it was when it was told.
    pub row: IncidentRow,
    /// The explanation, for people.
    pub explanation: String,
    pub ticket: String,
    /// What a storage element answered, as it came.
    #[serde(default)]
    pub quoted: Option<String>,
}

impl Notice {
    /// Of an incident as it is now.
    pub fn of(incident: &Incident) -> Notice {
        let explanation = incident.worst.as_deref().map(wording::rate_change);
        let detail = IncidentDetail::of(incident);
        let quoted = detail.row.object.clone();
        let quoted = quoted.filter(|_| incident.fingerprint.is_of_failure_text());
        let mut row = detail.row;
        row.text = inert(&row.text);
        row.object = row.object.as_deref().map(inert);
        Notice {
            row,
            explanation: inert(&explanation.unwrap_or_default()),
            ticket: inert(&detail.ticket),
            quoted,
        }
    }
}

/// A text as this site words it, in which words of servers and users can stand: for a chat that would make links with other
/// names, pictures and calls of everybody of them. Markdown needs `](`, Slack `<`, and a call begins with `@`.
fn inert(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = ' ';
    for letter in text.chars() {
        match letter {
            '<' => shown.push('‹'),
            '>' => shown.push('›'),
            '(' if before == ']' => shown.push_str(" ("),
            '@' if !before.is_alphanumeric() => shown.push_str("(at)"),
            other => shown.push(other),
        }
        before = letter;
    }
    shown
}

/// RFC 3339 §5.6.
fn rfc3339(at: Timestamp) -> String {
    format!("{}Z", at.to_fts())
}

/// What was told last says that it goes on.
fn ticket(notice: &Notice, ended: Option<Timestamp>) -> String {
    match ended {
        Some(ended) => wording::resolved_incident_ticket(&notice.ticket, ended),
        None => notice.ticket.clone(),
    }
}

impl Sender {
    /// The body for a webhook.
    pub fn webhook(
        &self,
        turn: Turn,
        notice: &Notice,
        ended: Option<Timestamp>,
        suppressed: u64,
    ) -> Value {
        json!({
            "version": WEBHOOK_VERSION,
            "site": self.site,
            "status": match turn {
                Turn::Raised | Turn::Repeated => "firing",
                Turn::Resolved => "resolved",
            },
            "is_repeated": turn == Turn::Repeated,
            "starts_at": rfc3339(notice.row.first_seen),
            "ends_at": ended.map(rfc3339),
            "summary": notice.row.text,
            "explanation": notice.explanation,
            "ticket": ticket(notice, ended),
            "incident": notice.row,
            "quoted": notice.quoted,
            "suppressed_alerts": suppressed,
        })
    }

    /// The body for `POST /api/v2/alerts` of an Alertmanager (its OpenAPI document: `postableAlerts`).
    pub fn alertmanager(&self, notice: &Notice, now: Timestamp, ended: Option<Timestamp>) -> Value {
        let row = &notice.row;
        let ends = ended.unwrap_or(now + self.policy.repeat_after + GRACE);
        json!([{
            "labels": {
                "alertname": "PenstockIncident",
                "site": self.site,
                "incident": row.id,
                "class": row.class,
                "cause": row.code.as_deref().unwrap_or("none"),
                "place": row.place.to_string(),
            },
            "annotations": {
                "summary": row.text,
                "description": notice.explanation,
                "ticket": ticket(notice, ended),
            },
            "startsAt": rfc3339(row.first_seen),
            "endsAt": rfc3339(ends),
            "generatorURL": format!("{}/api/v1/incidents/{}", self.service, row.id),
        }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_decide::explain::PopulationChoice;
    use penstock_decide::explain::signals::{FailureGroup, Series, Signals};
    use penstock_model::{Errno, LinkId, Phase, Side, StorageId};
    use penstock_observe::explanations::reading::ExplainedWindow;
    use penstock_observe::incidents::incidents_of_service;

    const FOREIGN: &str =
        "<!channel> [sign in to fix](https://evil.example/x) <https://evil.example|here> @all";

    fn incident() -> Incident {
        let group = FailureGroup::new(Side::Source, Phase::Transfer, Errno::EIO, FOREIGN);
        let mut signals = Signals::unknown(Timestamp(0), 60, 100);
        let link = LinkId {
            source: StorageId::new("https://a"),
            destination: StorageId::new("https://b"),
        };
        let of_link = signals.links.entry(link).or_default();
        let attempts = Series::known((0..100).map(|bin| f64::from(u8::from(bin > 50))));
        of_link.failures.insert(group, attempts);
        let window = ExplainedWindow::of(signals, &PopulationChoice::Links);
        let mut incidents = incidents_of_service(&window);
        incidents.remove(0)
    }

    #[test]
    fn what_a_server_answered_is_no_link_and_no_call_in_the_words_of_the_site() {
        let sender = Sender {
            site: "here".to_owned(),
            service: "https://here".to_owned(),
            policy: crate::site::config::Alerts::default().policy(),
        };
        let notice = Notice::of(&incident());
        let mut told = sender.webhook(Turn::Raised, &notice, None, 0);
        let quoted = told["quoted"].take();
        assert!(
            quoted
                .as_str()
                .is_some_and(|text| text.contains("<!channel>")),
            "{quoted}"
        );
        let managed = sender.alertmanager(&notice, Timestamp(0), None);
        for text in [told.to_string(), managed.to_string()] {
            for living in ["](", "<!", "<http", " @all"] {
                assert!(!text.contains(living), "{living}: {text}");
            }
            assert!(
                text.contains("sign in to fix"),
                "it is told all the same: {text}"
            );
        }
    }

    #[test]
    fn addresses_of_people_stay_as_they_are() {
        assert_eq!(inert("mail root@here (now)"), "mail root@here (now)");
    }
}
