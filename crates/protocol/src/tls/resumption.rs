//! Sessions that a client keeps per server, so that the next connection needs no full handshake.
//!
//! The one place that calls `Ssl::set_session`, which is unsafe because OpenSSL does not check that the
//! session was made with the same context.
#![allow(unsafe_code)]

use super::ClientIdentity;
use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::{Ssl, SslConnectorBuilder, SslSession, SslSessionCacheMode};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Servers, for each certificate shown to them, of which a session is kept. A client speaks to some hundreds; beyond this all are forgotten at
/// once.
const SERVERS_MAX: usize = 1024;

/// Where a connection goes, and as whom: host, port, and the name of the certificate that is shown. Two ports of a
/// host may be two servers; and a server remembers with a session whose it was (RFC 8446 §4.6.1, RFC 5077 §3.1).
type Server = (String, u16, Option<[u8; 32]>);

static SERVER_OF: LazyLock<Option<Index<Ssl, Server>>> = LazyLock::new(|| Ssl::new_ex_index().ok());

/// The latest session of each server. Belongs to one connector: it collects only from the builder it was
/// given, and only that connector's connections may be offered one.
///
/// Sessions are kept encoded, because OpenSSL marks the session of a connection that is dropped without
/// goodbye as not resumable, wherever else it is referred to.
#[derive(Clone, Default)]
pub(super) struct Sessions(Arc<Mutex<HashMap<Server, Vec<u8>>>>);

impl Sessions {
    /// Keeps every session (TLS 1.3: ticket) that servers send to connections of this builder.
    pub(super) fn collect_from(&self, builder: &mut SslConnectorBuilder) {
        let Some(server_of) = *SERVER_OF else { return };
        builder
            .set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        // Weak, because the callback lives in the context, and sessions may refer to the context.
        let sessions = Arc::downgrade(&self.0);
        builder.set_new_session_callback(move |ssl, session| {
            if let (Some(server), Some(sessions), Ok(session)) =
                (ssl.ex_data(server_of), sessions.upgrade(), session.to_der())
            {
                let mut sessions = sessions.lock();
                if sessions.len() >= SERVERS_MAX && !sessions.contains_key(server) {
                    sessions.clear();
                }
                sessions.insert(server.clone(), session);
            }
        });
    }

    /// Offers the server its latest session. `ssl` must come from the connector whose builder was collected
    /// from.
    pub(super) fn offer(
        &self,
        ssl: &mut Ssl,
        host: &str,
        port: u16,
        identity: Option<&ClientIdentity>,
    ) -> Result<(), ErrorStack> {
        let Some(server_of) = *SERVER_OF else {
            return Ok(());
        };
        let name = identity.map(|identity| *identity.name());
        let server = (host.to_owned(), port, name);
        let session = self.0.lock().get(&server).cloned();
        if let Some(session) = session {
            let session = SslSession::from_der(&session)?;
            // SAFETY: `collect_from` saw this session on a connection of the context that `ssl` belongs to;
            // `tls` keeps one `Sessions` with each connector and replaces both together.
            unsafe { ssl.set_session(&session)? };
        }
        ssl.set_ex_data(server_of, server);
        Ok(())
    }
}
