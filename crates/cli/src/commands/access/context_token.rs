//! The token of a context, which goes to the servers of that context alone.

use super::token_discovery::token_in;
use super::{Server, audiences_of};
use crate::environment::ContextToken;
use crate::exit::CommandError;
use crate::output::Output;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// The token of a context, and who gets it.
pub struct TokenOfContext {
    pub token: String,
    servers: BTreeMap<Server, Vec<String>>,
    /// Others of which it was said that they do not.
    said: Mutex<BTreeSet<String>>,
}

impl TokenOfContext {
    pub fn of(found: &ContextToken) -> Result<TokenOfContext, CommandError> {
        let servers = found.servers.iter();
        let servers = servers.map(|url| (Server::of(url), audiences_of(url)));
        Ok(TokenOfContext {
            token: token_in(&found.file)?,
            servers: servers.collect(),
            said: Mutex::default(),
        })
    }

    pub fn at(&self, server: &Server) -> Option<&str> {
        self.token_if(self.servers.contains_key(server), &server.0)
    }

    /// For a server that is known by its names alone.
    pub fn for_audiences(&self, audiences: &[String]) -> Option<&str> {
        let is_own = self.servers.values().any(|known| known == audiences);
        self.token_if(is_own, audiences.first().map_or("", String::as_str))
    }

    /// An error where the transfer service would show it to another server.
    pub fn refuse_other(&self, server: &Server) -> Result<(), CommandError> {
        match self.servers.contains_key(server) {
            true => Ok(()),
            false => Err(CommandError::Usage(format!(
                "{} is no server of the context, and the transfer service would show it the context's token; type \
                 --token-file to let it, give --source-token-file and --destination-token-file, or add the server to the \
                 context with --token-for",
                server.0
            ))),
        }
    }

    /// Says once of each server that it does not get it.
    fn token_if(&self, is_own: bool, server: &str) -> Option<&str> {
        if !is_own && self.said.lock().insert(server.to_owned()) {
            Output::error(&format!(
                "{server} is no server of the context, so the context's token is not sent there; if it should be, type \
                 --token-file, or add the server to the context with --token-for"
            ));
        }
        is_own.then_some(self.token.as_str())
    }
}
