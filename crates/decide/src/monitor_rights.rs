//! Who may see what a site tells its monitors: its metrics, and the reasons of its health. They name pools, files of
//! certificates and other sites, which is nobody's business who merely can connect.

use crate::Decision;
use crate::authorization::Verdict;
use std::fmt;

/// The scope by which a token of the site's own issuer may see them; `penstock.admin` may as well.
pub const MONITOR_SCOPE: &str = "penstock.monitor";

/// What is known of somebody who asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MonitorFacts {
    /// The request comes from an address that the site lists.
    pub at_listed_address: bool,
    /// A token of the site's own issuer carries a scope for it.
    pub has_scope: bool,
    /// The site lists this subject.
    pub is_listed: bool,
    /// A credential says who it is.
    pub is_known: bool,
}

/// Why somebody may, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonitorReason {
    Address,
    /// By token.
    Scope,
    /// By name.
    Listed,
    /// Known, and none of it.
    NoRight,
    /// Nobody known, from elsewhere.
    NobodyKnown,
}

impl fmt::Display for MonitorReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MonitorReason::Address => out.write_str("observe.monitor_addresses has the address"),
            MonitorReason::Scope => write!(out, "the token carries {MONITOR_SCOPE}"),
            MonitorReason::Listed => out.write_str("observe.monitors has the subject"),
            MonitorReason::NoRight => write!(
                out,
                "this is for monitors: a token of the site's own issuer with the scope {MONITOR_SCOPE}, a subject in \
                 observe.monitors, or an address in observe.monitor_addresses"
            ),
            MonitorReason::NobodyKnown => write!(
                out,
                "this is for monitors: send a token with the scope {MONITOR_SCOPE} as 'Authorization: Bearer', or ask \
                 from an address in observe.monitor_addresses"
            ),
        }
    }
}

/// Scopes that tell of somebody and allow nothing.
const SCOPES_OF_PERSONS: [&str; 5] = ["openid", "profile", "email", "offline_access", "wlcg"];

/// Whether a token of the site's own issuer, by its scopes, is for monitors and for nothing else: its holder is a program
/// that reads metrics and health, and no user of the service.
pub fn is_only_for_monitors(scope: &str) -> bool {
    let mut scopes = scope.split_ascii_whitespace();
    let allows_nothing =
        |name: &str| SCOPES_OF_PERSONS.contains(&name) || name.starts_with("wlcg.groups");
    scopes.clone().any(|name| name == MONITOR_SCOPE)
        && scopes.all(|name| name == MONITOR_SCOPE || allows_nothing(name))
}

/// Whether somebody may see them.
pub fn may_monitor(facts: MonitorFacts) -> Decision<Verdict, MonitorReason> {
    let allowed = |reason| Decision::new(Verdict::Allowed, reason);
    let refused = |reason| Decision::new(Verdict::Refused, reason);
    match facts {
        MonitorFacts {
            has_scope: true, ..
        } => allowed(MonitorReason::Scope),
        MonitorFacts {
            is_listed: true, ..
        } => allowed(MonitorReason::Listed),
        MonitorFacts {
            at_listed_address: true,
            ..
        } => allowed(MonitorReason::Address),
        MonitorFacts { is_known: true, .. } => refused(MonitorReason::NoRight),
        MonitorFacts {
            is_known: false, ..
        } => refused(MonitorReason::NobodyKnown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_only_for_monitors_when_it_allows_nothing_else() {
        for scope in [
            "penstock.monitor",
            "penstock.monitor wlcg.groups:/cms offline_access",
        ] {
            assert!(is_only_for_monitors(scope), "{scope}");
        }
        for scope in [
            "",
            "openid",
            "penstock.monitors",
            "penstock.admin penstock.monitor",
            "fts penstock.monitor",
            "penstock.monitor storage.read:/",
        ] {
            assert!(!is_only_for_monitors(scope), "{scope}");
        }
    }

    #[test]
    fn one_of_address_scope_and_name_is_needed() {
        let nothing = MonitorFacts::default();
        let check = |facts, expected, reason| {
            let decision = may_monitor(facts);
            assert_eq!(decision.choice, expected, "{facts:?}");
            assert_eq!(decision.because, [reason], "{facts:?}");
        };
        check(nothing, Verdict::Refused, MonitorReason::NobodyKnown);
        let known = MonitorFacts {
            is_known: true,
            ..nothing
        };
        check(known, Verdict::Refused, MonitorReason::NoRight);
        check(
            MonitorFacts {
                has_scope: true,
                ..known
            },
            Verdict::Allowed,
            MonitorReason::Scope,
        );
        check(
            MonitorFacts {
                is_listed: true,
                ..known
            },
            Verdict::Allowed,
            MonitorReason::Listed,
        );
        check(
            MonitorFacts {
                at_listed_address: true,
                ..nothing
            },
            Verdict::Allowed,
            MonitorReason::Address,
        );
    }
}
