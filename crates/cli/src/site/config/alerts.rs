//! `[observe.alerts]`: who is alerted when a rate has fallen for long.

use penstock_decide::alerting::AlertPolicy;
use penstock_decide::incidents::IncidentTimes;
use penstock_model::TimeSpan;
use penstock_model::quantity::Span;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Whom to alert, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Alerts {
    /// Gets each alert as JSON by POST.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Url>,
    /// A file of mode 0600 with what it is shown as `Authorization: Bearer …`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_secret_file: Option<PathBuf>,
    /// An Alertmanager, which gets alerts at `/api/v2/alerts` below this URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alertmanager: Option<Url>,
    /// The same for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alertmanager_secret_file: Option<PathBuf>,
    /// A drop is told when it has lasted for so long.
    pub lasting: Span,
    /// An incident that is still open is told again after so long.
    pub repeat: Span,
    /// An incident is over when it was not seen for so long.
    pub over_after: Span,
    /// How often the record is looked at. Looking takes at most a tenth of the time.
    pub look_every: Span,
    /// How much of the record is looked at. A drop that lasts longer counts as usual.
    pub window: Span,
    /// Length of an interval.
    pub resolution: Span,
    /// How long a receiver may take to answer.
    pub timeout: Span,
    /// Directory that remembers what each receiver was told.
    pub state: PathBuf,
}

impl Default for Alerts {
    fn default() -> Alerts {
        Alerts {
            webhook: None,
            webhook_secret_file: None,
            alertmanager: None,
            alertmanager_secret_file: None,
            lasting: Span(10 * MINUTE),
            repeat: Span(4 * HOUR),
            over_after: Span(15 * MINUTE),
            look_every: Span(MINUTE),
            window: Span(24 * HOUR),
            resolution: Span(MINUTE),
            timeout: Span(MINUTE / 2),
            state: "state/alerts".into(),
        }
    }
}

/// Where a receiver is.
pub struct ReceiverAddress<'a> {
    pub name: &'static str,
    pub url: &'a Url,
    /// The file with the secret that it is shown.
    pub secret_file: Option<&'a PathBuf>,
}

impl Alerts {
    /// When people are alerted.
    pub fn policy(&self) -> AlertPolicy {
        AlertPolicy {
            lasting_min: self.lasting.0,
            repeat_after: self.repeat.0,
        }
    }

    /// When an incident is over.
    pub fn times(&self) -> IncidentTimes {
        IncidentTimes {
            open_for: self.over_after.0,
            ..IncidentTimes::default()
        }
    }

    /// Each receiver that is named: its key, its URL, and the file with its secret.
    pub fn receivers(&self) -> impl Iterator<Item = ReceiverAddress<'_>> {
        let (webhook, alertmanager) = (self.webhook.as_ref(), self.alertmanager.as_ref());
        let webhook = webhook.map(|url| ReceiverAddress {
            name: "webhook",
            url,
            secret_file: self.webhook_secret_file.as_ref(),
        });
        let alertmanager = alertmanager.map(|url| ReceiverAddress {
            name: "alertmanager",
            url,
            secret_file: self.alertmanager_secret_file.as_ref(),
        });
        webhook.into_iter().chain(alertmanager)
    }

    /// The files with their secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &PathBuf> {
        self.receivers().filter_map(|receiver| receiver.secret_file)
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut require = |holds: bool, text: String| {
            if !holds {
                problems.push(text);
            }
        };
        let named = self.receivers().count() > 0;
        require(
            named,
            "observe.alerts: name a webhook, an alertmanager, or both".to_owned(),
        );
        let lost = |file: &Option<PathBuf>, url: &Option<Url>| file.is_some() && url.is_none();
        require(
            !lost(&self.webhook_secret_file, &self.webhook)
                && !lost(&self.alertmanager_secret_file, &self.alertmanager),
            "observe.alerts: a secret file needs the URL of its receiver".to_owned(),
        );
        for ReceiverAddress {
            name,
            url,
            secret_file: secret,
        } in self.receivers()
        {
            let at = format!("observe.alerts.{name}");
            require(
                matches!(url.scheme(), "https" | "http") && url.host().is_some(),
                format!("{at}: write https://HOST/… or http://HOST/…"),
            );
            require(
                url.username().is_empty() && url.password().is_none() && url.fragment().is_none(),
                format!("{at}: credentials are read from {name}_secret_file, and not from the URL"),
            );
            require(
                secret.is_none() || url.scheme() == "https",
                format!("{at}: a secret is sent by https only"),
            );
        }
        let bounds = [
            ("lasting", self.lasting, Duration::from_secs(1)),
            ("repeat", self.repeat, MINUTE),
            ("over_after", self.over_after, Duration::from_secs(1)),
            ("look_every", self.look_every, Duration::from_secs(1)),
            ("resolution", self.resolution, Duration::from_secs(1)),
            ("timeout", self.timeout, Duration::from_secs(1)),
        ];
        for (name, span, least) in bounds {
            require(
                span.0 >= least,
                format!("observe.alerts.{name} is {} at least", TimeSpan(least)),
            );
        }
        require(
            self.window.0 >= self.lasting.0 * 2 && self.window.0 >= self.resolution.0 * 10,
            "observe.alerts.window is twice as long as lasting and ten times as long as resolution at least"
                .to_owned(),
        );
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        let alerts: Alerts = toml::from_str(text).expect("valid");
        alerts.problems().join("; ")
    }

    #[test]
    fn receivers_are_named_by_urls_and_secrets_are_sent_by_tls_only() {
        assert_eq!(problems("webhook = 'https://a.example.org/hook?x=1'"), "");
        assert_eq!(problems("alertmanager = 'http://127.0.0.1:9093/'"), "");
        for (text, part) in [
            ("", "name a webhook"),
            ("webhook = 'ftp://a/'", "write https://"),
            ("webhook = 'https://user:word@a/'", "webhook_secret_file"),
            (
                "webhook = 'http://a/'\nwebhook_secret_file = 's'",
                "by https only",
            ),
            (
                "webhook = 'https://a/'\nalertmanager_secret_file = 's'",
                "needs the URL",
            ),
            ("webhook = 'https://a/'\nrepeat = '1s'", "repeat is 60 s"),
            ("webhook = 'https://a/'\nwindow = '15m'", "window is twice"),
        ] {
            let told = problems(text);
            assert!(told.contains(part), "{text}: {told}");
        }
        toml::from_str::<Alerts>("hook = 1").expect_err("no such key");
    }
}
