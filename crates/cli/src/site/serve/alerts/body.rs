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
}

impl Notice {
    /// Of an incident as it is now.
    pub fn of(incident: &Incident) -> Notice {
        let explanation = incident.worst.as_deref().map(wording::rate_change);
        let detail = IncidentDetail::of(incident);
        Notice {
            row: detail.row,
            explanation: explanation.unwrap_or_default(),
            ticket: detail.ticket,
        }
    }
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
