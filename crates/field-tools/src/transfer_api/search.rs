//! Finding any transfer, and its story. Answered by Penstock's services only.

use super::{TransferService, segment};
use crate::remote_error::RemoteError;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

/// What somebody looks for. Empty and `None` mean: any.
#[derive(Debug, Clone, Default)]
pub struct FindQuestion {
    /// Parts of the addresses with blanks between them, a job's id, or a transfer's number.
    pub words: String,
    /// A host at one of its ends.
    pub host: Option<String>,
    /// The source's storage element.
    pub source: Option<String>,
    /// The destination's.
    pub destination: Option<String>,
    /// States as on the wire.
    pub states: Vec<String>,
    /// On behalf of.
    pub vo: Option<String>,
    /// Submitted within so many seconds; 0: whenever; `None`: as the service thinks fit.
    pub within_seconds: Option<u64>,
    /// Only numbers below this one.
    pub before: Option<u64>,
    /// At most this many.
    pub limit: u32,
}

/// A page of what was found.
#[derive(Debug, Clone, Deserialize)]
pub struct FoundPage {
    /// As the service tells them, newest first.
    pub transfers: Vec<Value>,
    /// Where the next page begins; `None`: there is nothing further.
    pub next: Option<u64>,
    /// Transfers that were looked at.
    pub examined: u64,
    /// Of jobs that ended up to this time, in milliseconds since 1970, some are no longer kept.
    #[serde(default)]
    pub removed_until: Option<i64>,
}

impl FindQuestion {
    fn path(&self) -> String {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let states = self.states.join(",");
        let before = self.before.map(|before| before.to_string());
        let said = [
            ("q", self.words.clone()),
            ("host", text(&self.host)),
            ("source", text(&self.source)),
            ("destination", text(&self.destination)),
            ("state", states),
            ("vo", text(&self.vo)),
            ("before", before.unwrap_or_default()),
        ];
        let mut path = format!("api/v1/transfers?limit={}", self.limit);
        if let Some(within) = self.within_seconds {
            path += &format!("&within={within}");
        }
        for (key, value) in said {
            if !value.is_empty() {
                path += &format!("&{key}={}", segment(&value));
            }
        }
        path
    }
}

impl TransferService {
    /// A page of the transfers that fit.
    pub async fn find(&self, question: &FindQuestion) -> Result<FoundPage, RemoteError> {
        self.exchange(Method::GET, &question.path(), None).await
    }

    /// The story of one transfer, as the service words it.
    pub async fn story(&self, transfer: u64) -> Result<Value, RemoteError> {
        let path = format!("api/v1/transfers/{transfer}");
        self.exchange(Method::GET, &path, None).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_not_asked_and_words_cannot_leave_their_place() {
        let question = FindQuestion {
            words: "a&b c".into(),
            states: vec!["FAILED".into(), "CANCELED".into()],
            within_seconds: Some(60),
            limit: 5,
            ..FindQuestion::default()
        };
        assert_eq!(
            question.path(),
            "api/v1/transfers?limit=5&within=60&q=a%26b%20c&state=FAILED%2CCANCELED"
        );
    }
}
