//! `[limits]`: what clients may do to the ports of a site. Connections are counted over all of them, because the
//! open files are the process's.

use penstock_model::quantity::{Size, Span};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What clients may do to all ports together, so that none of them keeps the others out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections of all clients. Unset: 20,000, or three quarters of the open files that the system allows.
    pub connections_max: Option<usize>,
    /// Connections of one address (of one network of 64 bits with IPv6).
    pub connections_per_client_max: usize,
    /// TLS handshakes in progress.
    pub handshakes_max: usize,
    /// How long a client may take to send the head of a request. At the transfer service's port a connection may
    /// be idle for so long, too.
    pub head_timeout: Span,
    /// How long a connection to the door may be idle between requests.
    pub idle_timeout: Span,
    /// How long a body may stand still, either way.
    pub stall_timeout: Span,
    /// The fewest bytes per second at which a body may move, as a mean over `rate_interval`. 0: any.
    pub rate_min: Size,
    /// The time over which the mean is taken.
    pub rate_interval: Span,
}

impl Default for Limits {
    fn default() -> Limits {
        let seconds = |count| Span(Duration::from_secs(count));
        Limits {
            connections_max: None,
            connections_per_client_max: 2000,
            handshakes_max: 1000,
            head_timeout: seconds(30),
            idle_timeout: seconds(300),
            stall_timeout: seconds(60),
            rate_min: Size(50_000),
            rate_interval: seconds(120),
        }
    }
}

impl Limits {
    pub(super) fn problems(&self) -> Vec<String> {
        let counts = [
            ("connections_max", self.connections_max.unwrap_or(1)),
            (
                "connections_per_client_max",
                self.connections_per_client_max,
            ),
            ("handshakes_max", self.handshakes_max),
        ];
        let times = [
            ("head_timeout", self.head_timeout),
            ("idle_timeout", self.idle_timeout),
            ("stall_timeout", self.stall_timeout),
            ("rate_interval", self.rate_interval),
        ];
        let zero = counts.into_iter().filter(|(_, count)| *count == 0);
        let zero = zero.map(|(key, _)| key);
        let instant = times.into_iter().filter(|(_, time)| time.0.is_zero());
        zero.chain(instant.map(|(key, _)| key))
            .map(|key| format!("limits.{key} is 0, so no client can be served"))
            .collect()
    }
}
