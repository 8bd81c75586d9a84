//! Tokens do not cross lines on which others can read them, except to hosts for which an operator said so: files there
//! are asked for as by anybody.

use super::AgentSetup;
use super::http::End;
use penstock_model::{Errno, Failure};
use url::Url;

impl AgentSetup {
    /// Whether a storage element may be shown a token.
    pub(super) fn may_show_token(&self, url: &Url) -> bool {
        // XRootD's `root` carries a token in the request, and encrypts nothing unless the server insists.
        let is_encrypted = !matches!(url.scheme(), "http" | "dav" | "root" | "xroot");
        let listed = &self.config.tokens_unencrypted;
        is_encrypted || listed.iter().any(|host| host.matches(url))
    }
}

/// Says of a refusal that it may be for want of a token that was not sent.
pub(super) fn say_withheld(failure: &mut Failure, ends: [&End; 2]) {
    if !matches!(failure.errno, Errno::EACCES | Errno::EPERM) {
        return;
    }
    for end in ends.into_iter().filter(|end| end.token_withheld) {
        let (scheme, host) = (end.parsed.scheme(), end.url.host());
        let encrypted = match scheme {
            "root" | "xroot" => "roots",
            _ => "https",
        };
        failure.detail += &format!(
            "; no token was shown to {host}, because others can read what is sent by {scheme}: use {encrypted}, or list the \
             host in transfer.tokens_unencrypted"
        );
    }
}
