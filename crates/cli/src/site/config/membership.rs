//! The part of `[trust]` that tells whose VO somebody belongs to when neither a token nor a proxy says so.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Somebody who belongs to a VO, whatever proxies say or leave out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The subject without what proxies append, such as `/DC=lab/OU=Users/CN=Alice`.
    pub dn: String,
    /// Who must have signed the certificate, such as `/DC=lab/CN=Lab CA`. Unset: any authority that is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The VO, as tokens and VOMS name it.
    pub vo: String,
}

/// What VO an account of the grid-map file stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// The account, such as `alice`. `.dteam` stands for the VO `dteam` without being named here.
    pub name: String,
    /// The VO.
    pub vo: String,
}

/// What is wrong with them together, each as one sentence that names the key.
pub(super) fn problems(members: &[Member], accounts: &[Account]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for Member { dn, ca, vo } in members {
        if let Some(ca) = ca.as_ref().filter(|ca| !ca.starts_with('/')) {
            problems.push(format!(
                "trust.member '{dn}': the ca '{ca}' is not a subject in slash form, such as /DC=org/CN=Lab CA"
            ));
        }
        if !dn.starts_with('/') {
            problems.push(format!(
                "trust.member '{dn}' is not a subject in slash form, such as /DC=org/CN=Alice"
            ));
        }
        if vo.is_empty() {
            problems.push(format!("trust.member '{dn}' has an empty vo"));
        }
        if !seen.insert(dn) {
            problems.push(format!("trust.member '{dn}' is named twice"));
        }
    }
    let mut seen = BTreeSet::new();
    for Account { name, vo } in accounts {
        if name.is_empty() || vo.is_empty() {
            problems.push(format!("trust.account '{name}' needs a name and a vo"));
        }
        if !seen.insert(name) {
            problems.push(format!("trust.account '{name}' is named twice"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contradiction_is_told_at_once() {
        let member = |dn: &str, vo: &str| Member {
            dn: dn.into(),
            ca: None,
            vo: vo.into(),
        };
        let signed = Member {
            ca: Some("Lab CA".into()),
            ..member("/CN=c", "x")
        };
        let account = |name: &str| Account {
            name: name.into(),
            vo: "dteam".into(),
        };
        let members = [
            member("/CN=a", "x"),
            member("/CN=a", ""),
            member("CN=b", "x"),
            signed,
        ];
        assert_eq!(
            problems(&members, &[account("a"), account("a"), account("")]),
            [
                "trust.member '/CN=a' has an empty vo",
                "trust.member '/CN=a' is named twice",
                "trust.member 'CN=b' is not a subject in slash form, such as /DC=org/CN=Alice",
                "trust.member '/CN=c': the ca 'Lab CA' is not a subject in slash form, such as /DC=org/CN=Lab CA",
                "trust.account 'a' is named twice",
                "trust.account '' needs a name and a vo",
            ]
        );
    }
}
