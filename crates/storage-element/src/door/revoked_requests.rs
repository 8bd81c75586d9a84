//! What ends when somebody may do nothing here any more: the next request of a kept connection is answered by what counts
//! then, and a request that is being answered is given up, however long its body is: by a revoked share at once, otherwise
//! within seconds. What has merely expired since the request began is let go on.

use super::caller::{Client, Sender};
use super::handler_context::Door;
use penstock_clock::wall_clock;
use penstock_protocol::identity::Method;
use penstock_protocol::x509::{CertificateError, KeptCertificate};
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::watch;

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
    /// Resolves when whoever sent the request that is being answered has been banned, or their certificate or share
    /// revoked; with the reason.
    pub(super) fn revocation<'a>(
        &'a self,
        client: &'a Client,
        mut kept: Option<&'a mut KeptCertificate>,
    ) -> impl Future<Output = String> + Send + 'a {
        let mut share_revocations = self.storage.share_revocations.subscribe();
        async move {
            loop {
                // Others' shares do not put the look off.
                let look = tokio::time::timeout(
                    LOOK_EVERY,
                    self.share_revocation(client, &mut share_revocations),
                );
                if let Ok(why) = look.await {
                    return why;
                }
                let Some(Sender { identity, .. }) = client.asks() else {
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

    /// Resolves when the share by which the request came is revoked.
    async fn share_revocation(
        &self,
        client: &Client,
        revocations: &mut watch::Receiver<()>,
    ) -> String {
        loop {
            let share = client.asks().and_then(|sender| sender.share);
            if let Some(id) = share
                && self.storage.shares.is_revoked(&id)
            {
                return format!("the share {id} was revoked");
            }
            // An error means that nobody can revoke one any more.
            if revocations.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}
