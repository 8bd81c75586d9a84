//! What of a configuration counts from the start of the process to its end. A reload keeps all of it as it was at the start:
//! a service that listens where it did must not already be called by the name of another port.

use super::roles::body_pace;
use crate::site::config::{Config, Gfal, Pool, Storage, Transfer};
use penstock_model::quantity::Span;
use penstock_protocol::pace::PaceLimit;

/// Puts values that a reload does not change, those of the start, in the place of those that were read.
enum Keep {
    Site(fn(&mut Config, &Config)),
    /// Where the site has this role.
    Storage(fn(&mut Storage, &Storage)),
    Transfer(fn(&mut Transfer, &Transfer)),
}

impl Keep {
    fn apply(&self, config: &mut Config, started: &Config) {
        match self {
            Keep::Site(keep) => keep(config, started),
            Keep::Storage(keep) => {
                if let (Some(role), Some(started)) = (&mut config.storage, &started.storage) {
                    keep(role, started);
                }
            }
            Keep::Transfer(keep) => {
                if let (Some(role), Some(started)) = (&mut config.transfer, &started.transfer) {
                    keep(role, started);
                }
            }
        }
    }
}

/// A configuration that was read, with what cannot change while the process runs as it is.
pub struct Reloadable {
    pub config: Config,
    /// What counts only after a restart, in words.
    pub waiting: Vec<&'static str>,
}

impl Reloadable {
    /// `started`: the configuration with which the process has started; `running`: the one in effect.
    pub fn of(started: &Config, running: &Config, read: Config) -> Reloadable {
        let mut waiting = Vec::new();
        let mut config = read;
        // A role neither begins nor ends.
        if config.storage.is_some() != running.storage.is_some() {
            config.storage = running.storage.clone();
            waiting.push("[storage]");
        }
        if config.transfer.is_some() != running.transfer.is_some() {
            config.transfer = running.transfer.clone();
            waiting.push("[transfer]");
        }
        for (values, keep) in FIXED {
            let before = config.clone();
            keep.apply(&mut config, started);
            if config != before {
                waiting.push(*values);
            }
        }
        // The storage element takes them over.
        if config.transfer.is_some() && pace(&config) != pace(started) {
            waiting.push(
                "limits.stall_timeout, head_timeout, rate_min or rate_interval at the transfer service's port",
            );
        }
        Reloadable { config, waiting }
    }
}

/// How slowly clients may send and take.
fn pace(config: &Config) -> (PaceLimit, Span, Span) {
    let limits = &config.limits;
    (body_pace(config), limits.stall_timeout, limits.head_timeout)
}

/// All of them, in words.
const FIXED: &[(&str, Keep)] = &[
    (
        "[site]",
        Keep::Site(|config, started| config.site = started.site.clone()),
    ),
    (
        "[tls]",
        Keep::Site(|config, started| config.tls = started.tls.clone()),
    ),
    (
        "trust.certificates",
        Keep::Site(|config, started| {
            config.trust.certificates = started.trust.certificates.clone()
        }),
    ),
    (
        "trust.vomsdir",
        Keep::Site(|config, started| config.trust.vomsdir = started.trust.vomsdir.clone()),
    ),
    (
        "observe.live_page",
        Keep::Site(|config, started| config.observe.live_page = started.observe.live_page),
    ),
    (
        "observe.sample_links",
        Keep::Site(|config, started| config.observe.sample_links = started.observe.sample_links),
    ),
    (
        "observe.sample_host, host_samples, keep_host_samples, interfaces or alerts",
        Keep::Site(|config, started| {
            let started = started.observe.clone();
            let observe = &mut config.observe;
            observe.sample_host = started.sample_host;
            observe.host_samples = started.host_samples;
            observe.keep_host_samples = started.keep_host_samples;
            observe.interfaces = started.interfaces;
            observe.alerts = started.alerts;
        }),
    ),
    (
        "storage.listen or storage.plain_listen",
        Keep::Storage(|role, started| {
            (role.listen, role.plain_listen) = (started.listen, started.plain_listen);
        }),
    ),
    (
        "storage.namespace",
        Keep::Storage(|role, started| role.namespace = started.namespace.clone()),
    ),
    (
        "storage.shares",
        Keep::Storage(|role, started| role.shares = started.shares.clone()),
    ),
    (
        "storage.checksums",
        Keep::Storage(|role, started| role.checksums = started.checksums.clone()),
    ),
    (
        "storage.streams_memory",
        Keep::Storage(|role, started| role.streams_memory = started.streams_memory),
    ),
    (
        "[storage.tape]",
        Keep::Storage(|role, started| role.tape = started.tape.clone()),
    ),
    (
        "[storage.backup]",
        Keep::Storage(|role, started| role.backup = started.backup.clone()),
    ),
    (
        "the pools or their paths",
        Keep::Storage(|role, started| role.pools = fixed_pools(role, started)),
    ),
    (
        "transfer.listen",
        Keep::Transfer(|role, started| role.listen = started.listen),
    ),
    (
        "transfer.nodes",
        Keep::Transfer(|role, started| role.nodes = started.nodes),
    ),
    (
        "transfer.database or transfer.database_password_file",
        Keep::Transfer(|role, started| {
            role.database = started.database.clone();
            role.database_password_file = started.database_password_file.clone();
        }),
    ),
    (
        "[transfer.backup]",
        Keep::Transfer(|role, started| role.backup = started.backup.clone()),
    ),
    (
        "[transfer.gfal], apart from lower limits of active_max",
        Keep::Transfer(|role, started| {
            role.gfal = Gfal {
                active_max: role.gfal.active_max.min(started.gfal.active_max),
                ..started.gfal.clone()
            };
        }),
    ),
    (
        "transfer.delegations",
        Keep::Transfer(|role, started| role.delegations = started.delegations.clone()),
    ),
    (
        "transfer.access_links",
        Keep::Transfer(|role, started| role.access_links = started.access_links.clone()),
    ),
    (
        "transfer.credential_keys",
        Keep::Transfer(|role, started| role.credential_keys = started.credential_keys.clone()),
    ),
    (
        "transfer.required_scope",
        Keep::Transfer(|role, started| role.required_scope = started.required_scope.clone()),
    ),
    (
        "transfer.tokens_unencrypted",
        Keep::Transfer(|role, started| {
            role.tokens_unencrypted = started.tokens_unencrypted.clone()
        }),
    ),
    (
        "transfer.staging.timeout",
        Keep::Transfer(|role, started| role.staging.timeout = started.staging.timeout),
    ),
    (
        "[[transfer.messages]] or transfer.message_positions",
        Keep::Transfer(|role, started| {
            role.messages = started.messages.clone();
            role.message_positions = started.message_positions.clone();
        }),
    ),
];

/// The pools of the start, each with its other values as they were read.
fn fixed_pools(read: &Storage, started: &Storage) -> Vec<Pool> {
    let pools = started.pools.iter().map(|pool| {
        let mut found = read.pools.iter();
        match found.find(|found| found.name == pool.name) {
            Some(found) => Pool {
                path: pool.path.clone(),
                ..found.clone()
            },
            None => pool.clone(),
        }
    });
    pools.collect()
}

#[cfg(test)]
mod tests {
    use super::super::roles::service_audiences;
    use super::*;

    const STARTED: &str = "[site]\nname = \"here\"\nhosts = [\"se.example.org\"]\n\
        [transfer]\nlisten = \"127.0.0.2:8446\"\nretries = 3\n[transfer.gfal]\nactive_max = 50\n\
        [storage]\nlisten = \"127.0.0.2:8443\"\n\
        [[storage.pool]]\nname = \"disk1\"\npath = \"pools/disk1\"\nmovers_max = 4\n";

    fn parsed(text: &str) -> Config {
        Config::parse(text).expect(text)
    }

    /// What a reload makes of the file with these changes, after one of the file with those before.
    fn reloaded_after(before: &Config, changes: &[(&str, &str)]) -> Reloadable {
        let mut text = STARTED.to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        Reloadable::of(&parsed(STARTED), before, parsed(&text))
    }

    fn reloaded(changes: &[(&str, &str)]) -> Reloadable {
        reloaded_after(&parsed(STARTED), changes)
    }

    #[test]
    fn a_port_at_which_nobody_listens_as_yet_gives_no_name_to_the_service() {
        let started = parsed(STARTED);
        let found = reloaded(&[
            ("8446", "9446"),
            ("8443", "9443"),
            ("retries = 3", "retries = 7"),
        ]);
        assert_eq!(
            found.waiting,
            ["storage.listen or storage.plain_listen", "transfer.listen"]
        );
        let audiences = |config: &Config| {
            let role = config.transfer.as_ref().expect("there");
            service_audiences(config, role)
        };
        assert_eq!(audiences(&found.config), audiences(&started));
        assert_eq!(found.config.door_url(), started.door_url());
        // The rest counts.
        assert_eq!(found.config.transfer.expect("there").retries, 7);
    }

    #[test]
    fn what_may_change_is_taken_over_whole() {
        let found = reloaded(&[
            ("movers_max = 4", "movers_max = 9"),
            ("retries = 3", "retries = 7"),
        ]);
        assert_eq!(found.waiting, [""; 0]);
        let storage = found.config.storage.expect("there");
        assert_eq!(storage.pools[0].movers_max, 9);
        let found = reloaded(&[(
            "hosts = [\"se.example.org\"]",
            "hosts = [\"other.example.org\"]",
        )]);
        assert_eq!(found.waiting, ["[site]"]);
        assert_eq!(found.config, parsed(STARTED));
    }

    #[test]
    fn pools_stay_those_of_the_start() {
        let moved = ("path = \"pools/disk1\"", "path = \"elsewhere\"");
        let found = reloaded(&[moved, ("movers_max = 4", "movers_max = 9")]);
        assert_eq!(found.waiting, ["the pools or their paths"]);
        let storage = found.config.storage.expect("there");
        assert_eq!(storage.pools[0].path.to_str(), Some("pools/disk1"));
        assert_eq!(storage.pools[0].movers_max, 9);
        let found = reloaded(&[("disk1", "disk2")]);
        assert_eq!(found.config, parsed(STARTED));
    }

    #[test]
    fn a_limit_that_was_lowered_can_be_raised_again_up_to_that_of_the_start() {
        let lowered = reloaded(&[("active_max = 50", "active_max = 10")]);
        assert_eq!(lowered.waiting, [""; 0]);
        let active_max = |found: Reloadable| found.config.transfer.expect("there").gfal.active_max;
        let raised = reloaded_after(&lowered.config, &[("active_max = 50", "active_max = 30")]);
        assert_eq!(active_max(raised), 30);
        let beyond = reloaded_after(&lowered.config, &[("active_max = 50", "active_max = 80")]);
        assert_eq!(beyond.waiting.len(), 1);
        assert_eq!(active_max(beyond), 50);
    }

    #[test]
    fn a_role_that_is_gone_from_the_file_goes_on_as_it_was_last() {
        let last = reloaded(&[("retries = 3", "retries = 7")]).config;
        let (without, _) = STARTED.split_once("[transfer]").expect("there");
        let (_, storage) = STARTED.split_once("[storage]").expect("there");
        let read = parsed(&format!("{without}[storage]{storage}"));
        let found = Reloadable::of(&parsed(STARTED), &last, read);
        assert_eq!(found.waiting, ["[transfer]"]);
        assert_eq!(found.config, last);
    }
}
