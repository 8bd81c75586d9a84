//! What ends when somebody may do nothing here any more: the next request of a kept connection is answered by what counts
//! then, and a request that is being answered is given up, however long its body is. What has merely expired since the
//! request began is let go on.

use super::caller::Client;
use super::handler_context::Door;
use penstock_clock::wall_clock;
use penstock_protocol::identity::Method;
use penstock_protocol::x509::{CertificateError, KeptCertificate};
use std::net::SocketAddr;
use std::time::Duration;

/// How often somebody is looked at whose request takes so long.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Asks again what the certificate of a kept connection says. Whether it is believed no more.
pub(super) async fn is_believed_no_more(
    client: &mut Client,
    kept: Option<&mut KeptCertificate>,
    peer: SocketAddr,
) -> bool {
    let Some(kept) = kept else {
        return false;
    };
    if let Some(judged) = kept.judged_again(wall_clock()).await {
        client.is_now(judged, peer);
    }
    client.is_doubtful()
}

impl Door {
    /// Resolves when whoever sent the request that is being answered has been banned, or their certificate revoked; with
    /// the reason.
    pub(super) async fn revocation(
        &self,
        client: &Client,
        mut kept: Option<&mut KeptCertificate>,
    ) -> String {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Some(identity) = client.asks() else {
                continue;
            };
            if self.storage.settings().judge().bans(&identity) {
                return format!("{} was banned", identity.user);
            }
            if identity.method == Method::Certificate
                && let Some(kept) = kept.as_deref_mut()
                && let Some(Err(why @ CertificateError::Revoked(_))) =
                    kept.judged_again(wall_clock()).await
            {
                return why.to_string();
            }
        }
    }
}
