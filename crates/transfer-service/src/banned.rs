//! Users whom nobody answers.

use parking_lot::RwLock;
use penstock_protocol::identity::Identity;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Users who may do nothing here: subjects of certificates or of tokens. Cheap to clone; all clones see a
/// replacement.
#[derive(Clone, Default)]
pub struct Banned(Arc<RwLock<BannedUsers>>);

#[derive(Default)]
struct BannedUsers {
    configured: BTreeSet<String>,
    imposed: BTreeSet<String>,
}

impl Banned {
    /// From now on the configuration bans these and no others.
    pub fn replace(&self, users: impl IntoIterator<Item = String>) {
        let mut banned = self.0.write();
        banned.configured = users.into_iter().collect();
    }

    /// From now on operators ban these, beside the configuration.
    pub(crate) fn replace_imposed(&self, users: BTreeSet<String>) {
        let mut banned = self.0.write();
        banned.imposed = users;
    }

    /// Whom operators ban, beside the configuration.
    pub(crate) fn imposed(&self) -> BTreeSet<String> {
        let banned = self.0.read();
        banned.imposed.clone()
    }

    /// Whether somebody is among them.
    pub fn holds(&self, identity: &Identity) -> bool {
        let user = identity.user.as_str();
        let banned = self.0.read();
        banned.configured.contains(user) || banned.imposed.contains(user)
    }
}
