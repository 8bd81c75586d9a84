//! Which addresses of another site this one may connect to although they are not public: those that a person has typed, and
//! the one at which the site has answered, if nobody but its own name server says that it is elsewhere.

use super::contact::Contact;
use crate::args::TrustAddArgs;
use crate::exit::CommandError;
use crate::site::acquaintance::ports_of;
use crate::site::trusted_site::TrustedSite;
use penstock_protocol::network::{is_of_this_machine, why_not_public};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Addresses that are not public, with their ports.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AddressPlan {
    /// That are to be allowed, as `trust.private_addresses` names them.
    pub allowed: Vec<String>,
    /// Ports of the site, by its own words, that stay refused.
    pub refused: Vec<String>,
}

impl AddressPlan {
    /// `is_asked`: somebody judges what is shown before it is done.
    pub fn of(
        args: &TrustAddArgs,
        contact: &Contact,
        known: Option<&TrustedSite>,
        is_asked: bool,
    ) -> Result<AddressPlan, CommandError> {
        let mut ports = ports_of(&contact.document);
        let plain = contact.document.storage.and_then(|ports| ports.plain_port);
        if let Some(plain) = plain.filter(|_| !args.plain) {
            ports.remove(&plain);
        }
        let before = known.iter().flat_map(|known| &known.private_addresses);
        let before: BTreeSet<SocketAddr> = before.filter_map(|text| text.parse().ok()).collect();
        let typed: BTreeSet<SocketAddr> = args.private_addresses.iter().copied().collect();
        let answered = Answered {
            host: &contact.host,
            address: contact.sender.address,
            is_alone: contact.hosts.iter().all(|one| {
                let mut addresses = one.addresses.iter();
                one.host != contact.host
                    || addresses.all(|address| why_not_public(*address).is_some())
            }),
        };
        let allowed = match typed.is_empty() {
            // What was allowed before was said by somebody, too.
            true => before,
            false => typed,
        };
        plan(answered, allowed, &ports, is_asked)
    }
}

/// Where the site has answered.
struct Answered<'a> {
    host: &'a str,
    address: SocketAddr,
    /// No address of the host is public.
    is_alone: bool,
}

fn plan(
    answered: Answered<'_>,
    mut allowed: BTreeSet<SocketAddr>,
    ports: &BTreeSet<u16>,
    is_asked: bool,
) -> Result<AddressPlan, CommandError> {
    let Answered {
        host,
        address,
        is_alone,
    } = answered;
    let kind = why_not_public(address.ip());
    let was_typed = host
        .parse::<IpAddr>()
        .is_ok_and(|typed| typed == address.ip());
    if let Some(kind) = kind
        && !allowed.contains(&address)
        && (was_typed || is_alone)
    {
        // Whoever has the name can have it lead to another address tomorrow, so no name leads to what is this machine's alone.
        if !was_typed && (!is_asked || is_for_this_machine(address.ip())) {
            return Err(CommandError::Usage(format!(
                "{host} has the address {}, which is {kind}; nothing was changed. If that is its address, allow it with \
                 --private-address {address}, or use the address in the URL",
                address.ip()
            )));
        }
        allowed.insert(address);
    }
    let needed = ports
        .iter()
        .map(|port| SocketAddr::new(address.ip(), *port));
    let is_refused = |needed: &SocketAddr| {
        kind.is_some() && !allowed.contains(needed) && (was_typed || allowed.contains(&address))
    };
    let refused = needed.filter(is_refused).map(|at| at.to_string());
    Ok(AddressPlan {
        refused: refused.collect(),
        allowed: allowed.iter().map(ToString::to_string).collect(),
    })
}

/// Loopback, link-local, or an address of one of its interfaces.
fn is_for_this_machine(address: IpAddr) -> bool {
    let is_link_local = match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    is_link_local || is_of_this_machine(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case<'a> {
        host: &'a str,
        address: &'a str,
        is_alone: bool,
        is_asked: bool,
        allowed: &'a [&'a str],
        ports: &'a [u16],
    }

    const NAME: Case<'_> = Case {
        host: "se.example.org",
        address: "10.1.2.3:8443",
        is_alone: true,
        is_asked: true,
        allowed: &[],
        ports: &[8443],
    };

    fn planned(case: Case<'_>) -> Result<AddressPlan, String> {
        let answered = Answered {
            host: case.host,
            address: case.address.parse().expect("an address"),
            is_alone: case.is_alone,
        };
        let allowed = case
            .allowed
            .iter()
            .map(|text| text.parse().expect("an address"));
        let ports = case.ports.iter().copied().collect();
        let planned = plan(answered, allowed.collect(), &ports, case.is_asked);
        planned.map_err(|why| why.to_string())
    }

    fn check(case: Case<'_>, allowed: &[&str], refused: &[&str]) {
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect();
        let expected = AddressPlan {
            allowed: texts(allowed),
            refused: texts(refused),
        };
        assert_eq!(planned(case), Ok(expected));
    }

    fn check_refused(case: Case<'_>, expected: &str) {
        let why = planned(case).expect_err(expected);
        assert!(why.contains(expected), "{why}");
    }

    #[test]
    fn only_the_address_that_answered_counts_and_only_at_the_port_that_was_typed() {
        check(NAME, &["10.1.2.3:8443"], &[]);
        let redis = Case {
            ports: &[6379, 8443],
            ..NAME
        };
        check(redis, &["10.1.2.3:8443"], &["10.1.2.3:6379"]);
        let public = Case {
            address: "192.88.100.1:8443",
            ..NAME
        };
        check(public, &[], &[]);
        // Copies go to the public ones.
        let both = Case {
            is_alone: false,
            ..NAME
        };
        check(both, &[], &[]);
    }

    #[test]
    fn nobody_is_led_inside_by_a_name_without_having_said_so() {
        let unasked = || Case {
            is_asked: false,
            ..NAME
        };
        check_refused(unasked(), "--private-address 10.1.2.3:8443");
        let said = Case {
            allowed: &["10.1.2.3:8443"],
            ..unasked()
        };
        check(said, &["10.1.2.3:8443"], &[]);
        for own in [
            "127.0.0.1:8443",
            "169.254.169.254:8443",
            "[::1]:8443",
            "[fe80::1]:8443",
        ] {
            let case = Case {
                address: own,
                ..NAME
            };
            check_refused(case, "--private-address");
            let said = Case {
                address: own,
                allowed: &[own],
                ..NAME
            };
            check(said, &[own], &[]);
        }
        // Who types an address means it.
        let typed = Case {
            host: "127.0.0.2",
            address: "127.0.0.2:8446",
            ports: &[8443, 8444],
            ..unasked()
        };
        check(
            typed,
            &["127.0.0.2:8446"],
            &["127.0.0.2:8443", "127.0.0.2:8444"],
        );
    }
}
