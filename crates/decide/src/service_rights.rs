//! What somebody may do at the transfer service beyond their own VO's jobs: FTS's operations and levels, granted by name.
//!
//! Knows no configuration file, no token and no certificate: grants and names come in, rights go out. A name counts
//! only in its own world: a token's subject never stands for a certificate's, nor one issuer's groups for another's.

pub use penstock_model::Operation;
use penstock_model::VoName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Somebody, as a grant names them. Each is compared whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Grantee {
    /// The owner of a certificate, in slash form.
    Certificate {
        /// Such as `/DC=lab/OU=Users/CN=Alice`.
        subject: String,
        /// Who must have signed it; `None`: any authority that is trusted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ca: Option<String>,
    },
    /// Whose proxy carries this VOMS attribute in plain form.
    Attribute {
        /// Such as `/dteam/Role=production`.
        attribute: String,
    },
    /// The subject of an issuer's tokens.
    Token {
        /// The `iss` claim.
        issuer: String,
        /// The `sub` claim.
        subject: String,
    },
    /// Whose token of this issuer names the group.
    TokenGroup {
        /// The `iss` claim.
        issuer: String,
        /// One of `wlcg.groups`.
        group: String,
    },
}

/// Something granted to somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceGrant {
    pub to: Grantee,
    pub operations: BTreeSet<Operation>,
    /// Concerning which VO; `None`: the whole service.
    pub vo: Option<VoName>,
}

/// Who somebody is, as they proved it.
#[derive(Debug, Clone, Copy)]
pub enum Principal<'a> {
    Certificate {
        /// The end entity's subject.
        subject: &'a str,
        /// Who signed it.
        ca: &'a str,
        /// VOMS attributes in plain form.
        attributes: &'a [String],
    },
    Token {
        /// Who signed it.
        issuer: &'a str,
        /// Of whom it speaks.
        subject: &'a str,
        /// The groups in it that count.
        groups: &'a [String],
    },
}

/// How far one operation reaches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Reach {
    everything: bool,
    vos: BTreeSet<VoName>,
}

/// All that was granted to somebody. By default nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrincipalRights {
    transfer: Reach,
    config: Reach,
}

impl PrincipalRights {
    /// Every operation on the whole service.
    pub fn everything() -> PrincipalRights {
        let reach = Reach {
            everything: true,
            vos: BTreeSet::new(),
        };
        PrincipalRights {
            transfer: reach.clone(),
            config: reach,
        }
    }

    /// What the grants give to this principal together.
    pub fn of<'a>(
        grants: impl IntoIterator<Item = &'a ServiceGrant>,
        principal: Principal<'_>,
    ) -> PrincipalRights {
        let mut rights = PrincipalRights::default();
        for grant in grants {
            if !names(&grant.to, principal) {
                continue;
            }
            for operation in &grant.operations {
                let reach = match operation {
                    Operation::Transfer => &mut rights.transfer,
                    Operation::Config => &mut rights.config,
                };
                match &grant.vo {
                    Some(vo) => drop(reach.vos.insert(vo.clone())),
                    None => reach.everything = true,
                }
            }
        }
        rights
    }

    /// Adds one operation on the whole service.
    pub fn add(&mut self, operation: Operation) {
        match operation {
            Operation::Transfer => self.transfer.everything = true,
            Operation::Config => self.config.everything = true,
        }
    }

    /// Whether this may be done to everything in the service: FTS's level `all`.
    pub fn cover_everything(&self, operation: Operation) -> bool {
        self.reach(operation).everything
    }

    /// Whether this may be done to what belongs to a VO.
    pub fn cover(&self, operation: Operation, vo: &VoName) -> bool {
        let reach = self.reach(operation);
        reach.everything || reach.vos.contains(vo)
    }

    /// Whether this may be done to anything at all.
    pub fn cover_anything(&self, operation: Operation) -> bool {
        let reach = self.reach(operation);
        reach.everything || !reach.vos.is_empty()
    }

    fn reach(&self, operation: Operation) -> &Reach {
        match operation {
            Operation::Transfer => &self.transfer,
            Operation::Config => &self.config,
        }
    }
}

fn names(grantee: &Grantee, principal: Principal<'_>) -> bool {
    match (grantee, principal) {
        (
            Grantee::Certificate {
                subject: named,
                ca: signed,
            },
            Principal::Certificate { subject, ca, .. },
        ) => named == subject && signed.as_deref().is_none_or(|signed| signed == ca),
        (Grantee::Attribute { attribute }, Principal::Certificate { attributes, .. }) => {
            attributes.contains(attribute)
        }
        (
            Grantee::Token {
                issuer: signed,
                subject: named,
            },
            Principal::Token {
                issuer, subject, ..
            },
        ) => signed == issuer && named == subject,
        (
            Grantee::TokenGroup {
                issuer: signed,
                group,
            },
            Principal::Token { issuer, groups, .. },
        ) => signed == issuer && groups.contains(group),
        (Grantee::Certificate { .. } | Grantee::Attribute { .. }, Principal::Token { .. })
        | (Grantee::Token { .. } | Grantee::TokenGroup { .. }, Principal::Certificate { .. }) => {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: &str = "/DC=lab/CN=Alice";
    const ISSUER: &str = "https://issuer.lab";

    fn grant(to: Grantee, operations: &[Operation], vo: Option<&str>) -> ServiceGrant {
        ServiceGrant {
            to,
            operations: operations.iter().copied().collect(),
            vo: vo.map(VoName::new),
        }
    }

    fn group() -> Grantee {
        Grantee::TokenGroup {
            issuer: ISSUER.into(),
            group: "/ops".into(),
        }
    }

    #[test]
    fn a_name_counts_only_in_its_own_world() {
        let subject = Grantee::Certificate {
            subject: ALICE.into(),
            ca: None,
        };
        let signed_by = |ca: &str| Grantee::Certificate {
            subject: ALICE.into(),
            ca: Some(ca.into()),
        };
        let attribute = Grantee::Attribute {
            attribute: "/ops".into(),
        };
        let token = Grantee::Token {
            issuer: ISSUER.into(),
            subject: ALICE.into(),
        };
        let groups = ["/ops".to_owned()];
        let certificate = Principal::Certificate {
            subject: ALICE,
            ca: "/CN=CA One",
            attributes: &groups,
        };
        let of_issuer = |issuer| Principal::Token {
            issuer,
            subject: ALICE,
            groups: &groups,
        };
        let check = |to: &Grantee, principal, expected: bool| {
            let grants = [grant(to.clone(), &[Operation::Config], None)];
            let rights = PrincipalRights::of(&grants, principal);
            assert_eq!(
                rights.cover_everything(Operation::Config),
                expected,
                "{to:?}"
            );
            assert!(!rights.cover_anything(Operation::Transfer), "{to:?}");
        };
        check(&signed_by("/CN=CA Two"), certificate, false);
        for (to, by_certificate) in [
            (subject, true),
            (signed_by("/CN=CA One"), true),
            (attribute, true),
            (token, false),
            (group(), false),
        ] {
            check(&to, certificate, by_certificate);
            check(&to, of_issuer(ISSUER), !by_certificate);
            check(&to, of_issuer("https://issuer.lab/"), false);
        }
    }

    #[test]
    fn a_group_is_compared_whole() {
        let grants = [grant(group(), &[Operation::Config], None)];
        let groups = ["/ops/sub".to_owned(), "/opsother".to_owned()];
        let principal = Principal::Token {
            issuer: ISSUER,
            subject: "x",
            groups: &groups,
        };
        assert_eq!(
            PrincipalRights::of(&grants, principal),
            PrincipalRights::default()
        );
    }

    #[test]
    fn what_is_granted_for_one_vo_reaches_no_other() {
        let both = [Operation::Config, Operation::Transfer];
        let grants = [
            grant(group(), &both, Some("cms")),
            grant(group(), &[Operation::Config], Some("atlas")),
        ];
        let groups = ["/ops".to_owned()];
        let principal = Principal::Token {
            issuer: ISSUER,
            subject: "x",
            groups: &groups,
        };
        let rights = PrincipalRights::of(&grants, principal);
        let (cms, atlas) = (VoName::new("cms"), VoName::new("atlas"));
        assert!(rights.cover(Operation::Config, &cms) && rights.cover(Operation::Config, &atlas));
        assert!(rights.cover(Operation::Transfer, &cms));
        assert!(!rights.cover(Operation::Transfer, &atlas));
        assert!(!rights.cover_everything(Operation::Config));
        assert!(!rights.cover(Operation::Config, &VoName::new("lhcb")));
        assert!(PrincipalRights::everything().cover(Operation::Config, &VoName::new("lhcb")));
    }
}
