//! How a filter is compared with rows, in every back end.

use penstock_journal::{TransferFilter, TransferRow};
use penstock_model::url::redact;
use penstock_model::{StorageId, Timestamp, VoName};
use serde::Deserialize;
use std::borrow::Cow;

/// What an index can do for a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchScope {
    /// Only the transfers of its job are looked at.
    ToJob,
    ToFailed,
    /// Only those that have not ended.
    ToOpen,
    No,
}

impl SearchScope {
    pub(super) fn by(filter: &TransferFilter) -> SearchScope {
        const ENDED: [&str; 3] = ["FINISHED", "FAILED", "CANCELED"];
        // What is not used has no end either, but the words for what is open are many.
        let has_ended = |state: &String| ENDED.contains(&state.as_str());
        match (&filter.job, filter.states.as_slice()) {
            (Some(_), _) => SearchScope::ToJob,
            (None, [only]) if only == "FAILED" => SearchScope::ToFailed,
            (None, []) => SearchScope::No,
            (None, states) if states.iter().any(has_ended) => SearchScope::No,
            (None, _) => SearchScope::ToOpen,
        }
    }
}

/// What is needed of a request to compare it, without reading all of it.
#[derive(Deserialize)]
struct Ends<'a> {
    #[serde(borrow)]
    source: Cow<'a, str>,
    #[serde(borrow)]
    destination: Cow<'a, str>,
}

/// A filter, ready to be compared with many rows.
pub(super) struct PreparedFilter<'a> {
    filter: &'a TransferFilter,
    parts: Vec<String>,
    host: Option<String>,
}

impl PreparedFilter<'_> {
    pub(super) fn new(filter: &TransferFilter) -> PreparedFilter<'_> {
        let parts = filter.parts.iter();
        PreparedFilter {
            filter,
            parts: parts.map(|part| part.to_ascii_lowercase()).collect(),
            host: filter.host.as_ref().map(|host| host.to_ascii_lowercase()),
        }
    }

    /// By the URLs alone, before anything else of the row is read.
    pub(super) fn ends(&self, request: &str) -> bool {
        if self.parts.is_empty() && self.filter.destination_url.is_none() {
            return true;
        }
        let Ok(ends) = serde_json::from_str::<Ends<'_>>(request) else {
            return false;
        };
        let to = self.filter.destination_url.as_ref();
        let (source, destination) = (
            // What may be secret in an address cannot be guessed by searching for it.
            redact(&ends.source).to_ascii_lowercase(),
            redact(&ends.destination).to_ascii_lowercase(),
        );
        to.is_none_or(|url| *url == ends.destination)
            && self
                .parts
                .iter()
                .all(|part| source.contains(part) || destination.contains(part))
    }

    pub(super) fn rest(&self, row: &TransferRow, vo: &VoName, submitted_at: Timestamp) -> bool {
        let filter = self.filter;
        let link = row.request.link();
        let is_one = |wanted: &Option<StorageId>, of: &StorageId| {
            wanted.as_ref().is_none_or(|wanted| wanted == of)
        };
        let state = row.state.fts_name();
        filter.vo.as_ref().is_none_or(|wanted| wanted == vo)
            && (filter.states.is_empty() || filter.states.iter().any(|name| name == state))
            && is_one(&filter.source, &link.source)
            && is_one(&filter.destination, &link.destination)
            && self
                .host
                .as_deref()
                .is_none_or(|host| host == link.source.host() || host == link.destination.host())
            && filter
                .submitted_since
                .is_none_or(|since| submitted_at >= since)
            && filter
                .ended_since
                .is_none_or(|since| row.finished_at.is_none_or(|ended| ended >= since))
    }
}
