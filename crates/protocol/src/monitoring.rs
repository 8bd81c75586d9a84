//! What monitors ask a process, on whichever of its ports: its metrics, and whether it is well.
//!
//! The ports find out who asks; what is told, and to whom, is decided by who runs the process.

use crate::identity::Identity;
use http::StatusCode;
use penstock_model::UserName;
use std::net::SocketAddr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    Metrics,
    /// Everything that is or will be wrong, with the status of readiness.
    Health,
    /// Whether the process should be left running.
    Live,
    /// Whether requests should be sent to it.
    Ready,
}

impl Question {
    /// By its path: `/metrics`, `/health`, `/health/live` or `/health/ready`.
    pub fn at(path: &str) -> Option<Question> {
        let names: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        Question::of(&names)
    }

    /// By the names of its path.
    pub fn of(names: &[impl AsRef<str>]) -> Option<Question> {
        match names {
            [one] if one.as_ref() == "metrics" => Some(Question::Metrics),
            [health] if health.as_ref() == "health" => Some(Question::Health),
            [health, which] if health.as_ref() == "health" => match which.as_ref() {
                "live" => Some(Question::Live),
                "ready" => Some(Question::Ready),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// The other end of the connection. `None`: not known.
    pub peer: Option<SocketAddr>,
    /// What it has shown of itself that is believed.
    pub credential: ViewerCredential,
}

/// By what somebody who asks is known.
#[derive(Debug, Clone)]
pub enum ViewerCredential {
    /// Nothing was shown.
    Anonymous,
    /// A macaroon that this user has made. Whoever holds it need not be that user.
    Macaroon(UserName),
    /// A token or a certificate.
    Own(Identity),
}

impl ViewerCredential {
    /// The user whom it names.
    pub fn user(&self) -> Option<&UserName> {
        match self {
            ViewerCredential::Anonymous => None,
            ViewerCredential::Macaroon(user) => Some(user),
            ViewerCredential::Own(identity) => Some(&identity.user),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitorAnswer {
    /// 200, 401, 403 or 503.
    pub status: StatusCode,
    /// Of the body.
    pub media_type: &'static str,
    /// Text.
    pub body: String,
}

/// Answers monitors. May block for a few system calls.
pub trait Monitor: Send + Sync {
    /// The answer for this viewer.
    fn answer(&self, question: Question, viewer: &Viewer) -> MonitorAnswer;
}
