//! What is shown of the past and the present, and what is sampled of the host: `[observe]`.

use super::Alerts;
use penstock_model::quantity::Span;
use penstock_observe::host::interfaces::InterfaceRole;
use penstock_protocol::network::Network;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// What is shown of the past and the present.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Observe {
    /// Serve the live page under `/live/` on the port of the transfer service.
    pub live_page: bool,
    /// Addresses and networks from which `/metrics`, and the reasons of `/health`, can be seen without a credential.
    pub monitor_addresses: Vec<String>,
    /// Subjects of certificates that may see them from anywhere, such as `/DC=org/CN=prometheus.example.org`.
    pub monitors: Vec<String>,
    /// Record what each link does, second by second and minute by minute.
    pub sample_links: bool,
    /// Sample the host once a second: pressure, disks, interfaces, memory, this process.
    pub sample_host: bool,
    /// Where the minutes of these samples are kept.
    pub host_samples: PathBuf,
    /// For how long. Days count in which there were samples.
    pub keep_host_samples: Span,
    /// What network interfaces are for: `wan`, `hsm` or `internal`. Without a WAN among them it is the one of the default
    /// route.
    pub interfaces: BTreeMap<String, InterfaceRole>,
    /// Who is alerted of drops that last. Without this section nobody is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alerts: Option<Alerts>,
}

impl Default for Observe {
    fn default() -> Observe {
        Observe {
            live_page: true,
            monitor_addresses: vec!["127.0.0.0/8".to_owned(), "::1".to_owned()],
            monitors: Vec::new(),
            sample_links: true,
            sample_host: true,
            host_samples: "host-samples".into(),
            keep_host_samples: Span(90 * DAY),
            interfaces: BTreeMap::new(),
            alerts: None,
        }
    }
}

impl Observe {
    /// Days of samples that are kept.
    pub fn host_days_max(&self) -> usize {
        let days = self.keep_host_samples.0.as_secs().div_ceil(DAY.as_secs());
        usize::try_from(days.max(1)).unwrap_or(usize::MAX)
    }

    /// The files with secrets of receivers of alerts.
    pub fn secrets(&self) -> impl Iterator<Item = &PathBuf> {
        self.alerts.iter().flat_map(Alerts::secrets)
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let alerts = self.alerts.iter();
        let mut problems: Vec<String> = alerts.flat_map(Alerts::problems).collect();
        for address in &self.monitor_addresses {
            if Network::parse(address).is_none() {
                problems.push(format!(
                    "observe.monitor_addresses: '{address}' is not an address or network, such as 10.0.0.0/8"
                ));
            }
        }
        for subject in &self.monitors {
            if !subject.starts_with('/') {
                problems.push(format!(
                    "observe.monitors: '{subject}' is not a subject in slash form, such as /DC=org/CN=prometheus"
                ));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_of_interfaces_are_words_and_days_are_whole() {
        let text = "keep_host_samples = \"36h\"\n[interfaces]\neth0 = \"wan\"\nib0 = \"hsm\"\n";
        let read: Observe = toml::from_str(text).expect("valid");
        assert_eq!(read.interfaces["ib0"], InterfaceRole::Hsm);
        assert_eq!(read.host_days_max(), 2);
        let written = toml::to_string(&read).expect("serialisable");
        assert_eq!(toml::from_str::<Observe>(&written).expect("valid"), read);
        let error =
            toml::from_str::<Observe>("[interfaces]\neth0 = \"lan\"\n").expect_err("no role");
        assert!(error.to_string().contains("wan"), "{error}");
    }
}
