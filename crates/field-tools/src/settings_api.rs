//! The settings of a transfer service, as FTS's `/config` has them: asked for, set and removed.

use crate::remote_error::RemoteError;
use crate::transfer_api::{TransferService, segment};
use http::Method;
use serde_json::Value;

const MUTES: &str = "api/v1/mutes";

/// A place below `/config`: its parts, and what follows the question mark.
#[derive(Debug, Clone, Copy, Default)]
pub struct SettingPlace<'a> {
    /// Such as `links`; empty: `/config` itself.
    pub kind: &'a str,
    pub name: Option<&'a str>,
    /// Filters. Those without a value are left out.
    pub query: &'a [(&'a str, Option<&'a str>)],
}

impl SettingPlace<'_> {
    fn path(&self) -> String {
        let mut path = "config".to_owned();
        let kind = Some(self.kind).filter(|kind| !kind.is_empty());
        for part in kind.into_iter().chain(self.name) {
            path += &format!("/{}", segment(part));
        }
        with_query(path, self.query)
    }
}

/// A path with those filters that have a value.
fn with_query(mut path: String, query: &[(&str, Option<&str>)]) -> String {
    let mut mark = '?';
    for (key, value) in query {
        if let Some(value) = value {
            path += &format!("{mark}{key}={}", segment(value));
            mark = '&';
        }
    }
    path
}

impl TransferService {
    /// What is set there.
    pub async fn settings(&self, place: SettingPlace<'_>) -> Result<Value, RemoteError> {
        self.exchange(Method::GET, &place.path(), None).await
    }

    /// Sets something; gives back what the service says is set now.
    pub async fn set(&self, place: SettingPlace<'_>, to: &Value) -> Result<Value, RemoteError> {
        let body = to.to_string();
        let body = Some(body.as_bytes());
        self.exchange(Method::POST, &place.path(), body).await
    }

    /// Removes what is set there.
    pub async fn unset(&self, place: SettingPlace<'_>) -> Result<(), RemoteError> {
        let path = place.path();
        let answer = self.exchange::<Value>(Method::DELETE, &path, None).await;
        answer.map(drop)
    }

    /// Of which incidents nobody is alerted. Answered by Penstock only.
    pub async fn mutes(&self) -> Result<Value, RemoteError> {
        self.exchange(Method::GET, MUTES, None).await
    }

    /// Adds a mute, or changes the one of its scope.
    pub async fn add_mute(&self, mute: &Value) -> Result<Value, RemoteError> {
        let body = mute.to_string();
        self.exchange(Method::POST, MUTES, Some(body.as_bytes()))
            .await
    }

    /// Removes a mute: of a `link`, `vo` or `class` of that name.
    pub async fn remove_mute(&self, scope: &str, name: &str) -> Result<(), RemoteError> {
        let query = [("scope", Some(scope)), ("name", Some(name))];
        let path = with_query(MUTES.to_owned(), &query);
        let answer = self.exchange::<Value>(Method::DELETE, &path, None).await;
        answer.map(drop)
    }

    /// Removes a part of what is set there.
    pub async fn unset_part(&self, place: SettingPlace<'_>, part: &str) -> Result<(), RemoteError> {
        let path = format!("{}/{}", place.path(), segment(part));
        let answer = self.exchange::<Value>(Method::DELETE, &path, None).await;
        answer.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_filters_cannot_leave_their_place() {
        let place = SettingPlace {
            kind: "links",
            name: Some("a/b?c"),
            query: &[("dn", Some("/CN=a&b")), ("storage", None), ("x", Some("y"))],
        };
        assert_eq!(place.path(), "config/links/a%2Fb%3Fc?dn=%2FCN%3Da%26b&x=y");
        assert_eq!(SettingPlace::default().path(), "config");
    }
}
