//! Bans: storage elements that get no transfers for now, and users who get nothing done.

use crate::ids::{StorageId, UserName, VoName};
use crate::units::Timestamp;
use serde::{Deserialize, Serialize};

/// What becomes of transfers from or to a banned storage element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BanEffect {
    /// All are canceled, also what runs; new ones are refused.
    Cancel,
    /// What has not started waits; new ones are refused.
    Wait,
    /// What has not started waits; new ones are accepted, and wait.
    WaitAndAccept,
}

impl BanEffect {
    /// As FTS names it.
    pub fn fts_name(self) -> &'static str {
        match self {
            BanEffect::Cancel => "CANCEL",
            BanEffect::Wait => "WAIT",
            BanEffect::WaitAndAccept => "WAIT_AS",
        }
    }

    /// Whether submissions that name the storage element are turned away.
    pub fn refuses_submissions(self) -> bool {
        match self {
            BanEffect::Cancel | BanEffect::Wait => true,
            BanEffect::WaitAndAccept => false,
        }
    }
}

/// A storage element that gets no transfers for now. It is known by its host: the scheme under which a file is reached
/// there makes no difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageBan {
    /// As the operator named it.
    pub storage: StorageId,
    /// For transfers of this VO; `None`: of all.
    pub vo: Option<VoName>,
    /// What becomes of them.
    pub effect: BanEffect,
    /// When what waits is canceled after all.
    pub cancel_at: Option<Timestamp>,
    pub since: Timestamp,
    /// Who imposed it.
    pub by: UserName,
    /// Why, for people.
    pub message: String,
}

impl StorageBan {
    /// Whether it concerns a storage element for the transfers of a VO.
    pub fn covers(&self, storage: &StorageId, vo: &VoName) -> bool {
        storage.host() == self.storage.host() && self.vo.as_ref().is_none_or(|own| own == vo)
    }
}

/// Somebody whom the service does not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserBan {
    /// The subject of a certificate, or of a token.
    pub user: UserName,
    pub since: Timestamp,
    /// Who imposed it.
    pub by: UserName,
    /// Why, for people.
    pub message: String,
}

/// Version of the stored form of [`Ban`].
pub const BAN_VERSION: u32 = 1;

/// A ban of either kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Ban {
    /// Of a storage element.
    Storage(StorageBan),
    User(UserBan),
}

/// What is banned: there is at most one ban for each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BanTarget {
    /// A storage element, for the transfers of a VO or of all.
    Storage {
        host: String,
        /// `None`: of all VOs.
        vo: Option<VoName>,
    },
    User(UserName),
}

impl BanTarget {
    /// A storage element, for the transfers of a VO or of all.
    pub fn storage(storage: &StorageId, vo: Option<VoName>) -> BanTarget {
        BanTarget::Storage {
            host: storage.host().to_owned(),
            vo,
        }
    }
}

impl Ban {
    /// What it is about.
    pub fn target(&self) -> BanTarget {
        match self {
            Ban::Storage(ban) => BanTarget::storage(&ban.storage, ban.vo.clone()),
            Ban::User(ban) => BanTarget::User(ban.user.clone()),
        }
    }
}

/// A ban that was imposed, changed or lifted, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BanChange {
    pub at: Timestamp,
    /// Who did it.
    pub by: UserName,
    /// The ban until then. There is always one of the two.
    pub before: Option<Ban>,
    /// The ban from then on; `None`: it was lifted.
    pub after: Option<Ban>,
}

impl BanChange {
    /// What was done, in FTS's words.
    pub fn action(&self) -> &'static str {
        match (&self.before, &self.after) {
            (_, Some(Ban::Storage(_))) => "ban-se",
            (_, Some(Ban::User(_))) => "ban-dn",
            (Some(Ban::Storage(_)), None) => "unban-se",
            (Some(Ban::User(_)), None) | (None, None) => "unban-dn",
        }
    }

    /// What it is about.
    pub fn target(&self) -> Option<BanTarget> {
        self.after
            .as_ref()
            .or(self.before.as_ref())
            .map(Ban::target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_holds_for_the_host_and_the_vo_whatever_the_scheme() {
        let check = |vo: Option<&str>, storage: &str, expected: bool| {
            let ban = StorageBan {
                storage: StorageId::new("https://se.org"),
                vo: vo.map(VoName::new),
                effect: BanEffect::Wait,
                cancel_at: None,
                since: Timestamp(0),
                by: UserName::new("op"),
                message: String::new(),
            };
            let covers = ban.covers(&StorageId::new(storage), &VoName::new("cms"));
            assert_eq!(covers, expected, "{vo:?} {storage}");
        };
        check(None, "davs://se.org", true);
        check(Some("cms"), "https://se.org", true);
        check(Some("atlas"), "https://se.org", false);
        check(None, "https://other.se.org", false);
    }
}
