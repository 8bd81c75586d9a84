//! Which storage elements are one cloud: a federation of sites, a country, whatever a table shall have one row for.

use std::collections::BTreeMap;

/// Names of hosts in one cloud at most, all clouds together.
const HOSTS_MAX: usize = 100_000;

/// Clouds by their hosts. Without any, each storage element stands for itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Clouds {
    hosts: BTreeMap<String, String>,
    /// What a host's name ends with, and its cloud.
    domains: BTreeMap<String, String>,
}

impl Clouds {
    /// From TOML: `DE = ["se.desy.de", "*.gridka.de"]`, a line for each cloud. Errors: the text is no such file, or a host
    /// is in two clouds.
    pub fn parse(text: &str) -> Result<Clouds, String> {
        let named: BTreeMap<String, Vec<String>> =
            toml::from_str(text).map_err(|why| why.to_string())?;
        if named.values().map(Vec::len).sum::<usize>() > HOSTS_MAX {
            return Err(format!("it names more than {HOSTS_MAX} hosts"));
        }
        let mut clouds = Clouds::default();
        for (cloud, hosts) in named {
            for host in hosts {
                let pattern = host_of(&host).to_lowercase();
                let (place, key) = match pattern.strip_prefix("*.") {
                    Some(domain) => (&mut clouds.domains, domain.to_owned()),
                    None => (&mut clouds.hosts, pattern),
                };
                if let Some(other) = place.insert(key, cloud.clone())
                    && other != cloud
                {
                    return Err(format!(
                        "'{host}' is in '{other}' and in '{cloud}'; name it once"
                    ));
                }
            }
        }
        Ok(clouds)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.domains.is_empty()
    }

    /// The cloud of a storage element (a host, or scheme and host), or what it is called itself. Of several domains the
    /// longest counts.
    pub fn name_of<'a>(&'a self, storage: &'a str) -> &'a str {
        if self.is_empty() {
            return storage;
        }
        let host = host_of(storage).to_lowercase();
        if let Some(cloud) = self.hosts.get(&host) {
            return cloud;
        }
        let mut rest = host.as_str();
        while let Some((_, domain)) = rest.split_once('.') {
            if let Some(cloud) = self.domains.get(domain) {
                return cloud;
            }
            rest = domain;
        }
        storage
    }
}

/// Without scheme, port and path.
fn host_of(storage: &str) -> &str {
    let host = storage.split_once("://").map_or(storage, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or(host);
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_elements_belong_to_the_cloud_of_their_host_or_of_the_longest_domain() {
        let text = "DE = ['*.gridka.de', 'https://SE.desy.de:8443']\nIT = ['*.it']\n\"T1\" = ['*.cr.cnaf.infn.it']";
        let clouds = Clouds::parse(text).expect("clouds");
        for (storage, cloud) in [
            ("https://se1.gridka.de", "DE"),
            ("davs://se.desy.de:2880/path", "DE"),
            ("srm.cr.cnaf.infn.it", "T1"),
            ("se.roma1.infn.it", "IT"),
            (
                "https://gridka.de.example.org",
                "https://gridka.de.example.org",
            ),
            ("gridka.de", "gridka.de"),
        ] {
            assert_eq!(clouds.name_of(storage), cloud, "{storage}");
        }
        assert_eq!(Clouds::default().name_of("https://a"), "https://a");
        let twice = Clouds::parse("A = ['a.org']\nB = ['https://a.org']").expect_err("twice");
        assert!(twice.contains("in 'A' and in 'B'"), "{twice}");
        assert!(Clouds::parse("A = 'a.org'").is_err());
    }
}
