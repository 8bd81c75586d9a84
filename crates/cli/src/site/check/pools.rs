//! The pools of a site: whether each is where the configuration says, or can be made there.

use super::Findings;
use crate::site::config::Config;
use crate::site::directory::SiteDirectory;
use penstock_durable_file::directory_of;
use penstock_model::{Bytes, PoolName};
use penstock_persistence::namespace::LedgerReader;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

pub(super) fn check(site: &SiteDirectory, config: &Config, findings: &mut Findings) {
    let Some(storage) = &config.storage else {
        return;
    };
    let known = known_pools(&site.resolve(&storage.namespace));
    for pool in &storage.pools {
        let path = site.resolve(&pool.path);
        let space = match rustix::fs::statvfs(&path) {
            Ok(space) => space,
            Err(why) => {
                let is_new = known
                    .as_ref()
                    .map(|known| !known.contains(&PoolName::new(pool.name.as_str())));
                report_missing(&pool.name, &path, &why.into(), is_new, findings);
                continue;
            }
        };
        let in_quarantine = std::fs::read_dir(path.join("quarantine")).map_or(0, Iterator::count);
        if in_quarantine > 0 {
            findings.warning(format!(
                "pool '{}' has {in_quarantine} files in {}, which the namespace does not know; `penstock fsck` tells what \
                 they are",
                pool.name,
                path.join("quarantine").display()
            ));
        }
        let size = space.f_blocks.saturating_mul(space.f_frsize);
        if let Some(capacity) = pool.capacity.filter(|capacity| capacity.0 > size) {
            findings.warning(format!(
                "pool '{}' may hold {capacity}, but its file system has {} in all",
                pool.name,
                Bytes(size)
            ));
        }
    }
}

/// The pools that this site has had. `None`: its namespace cannot be read now.
fn known_pools(namespace: &Path) -> Option<BTreeSet<PoolName>> {
    match namespace.try_exists() {
        Ok(false) => Some(BTreeSet::new()),
        Ok(true) => LedgerReader::open(namespace).ok()?.pools_ever().ok(),
        Err(_) => None,
    }
}

/// `is_new`: no start has made it yet; `None`: that is not known.
fn report_missing(
    name: &str,
    path: &Path,
    why: &io::Error,
    is_new: Option<bool>,
    findings: &mut Findings,
) {
    let parent = directory_of(path);
    let has_parent = parent.exists();
    match (is_new, has_parent) {
        (Some(true), false) => findings.error(format!(
            "new pool '{name}': {} does not exist, so {} is not created; correct the path, or mount the disk or create the \
             directory; `penstock serve` refuses it",
            parent.display(),
            path.display()
        )),
        (Some(true), true) if why.kind() == io::ErrorKind::NotFound => {}
        (Some(true), true) => findings.error(format!(
            "new pool '{name}': {}: {why}; `penstock serve` refuses it",
            path.display()
        )),
        (Some(false), _) => findings.warning(format!(
            "pool '{name}': {}: {why}; its files are unavailable until its disk is mounted there",
            path.display()
        )),
        (None, _) => {
            let at_start = match has_parent {
                true => "a new pool is created there at a start",
                false => "a new pool is not created there, because the parent directory does not exist",
            };
            findings.warning(format!(
                "pool '{name}': {}: {why}; the files of an existing pool are unavailable until its disk is mounted there; \
                 {at_start}",
                path.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Finding, Severity};
    use super::*;

    fn found(path: &Path, why: io::ErrorKind, is_new: Option<bool>) -> Vec<Finding> {
        let mut findings = Findings::default();
        report_missing("disk2", path, &why.into(), is_new, &mut findings);
        findings.0
    }

    #[test]
    fn a_new_pool_without_a_parent_directory_is_an_error_that_names_it() {
        let made = tempfile::tempdir().expect("made");
        let (typo, fine) = (made.path().join("dikks/pool"), made.path().join("pool"));
        let [finding] = found(&typo, io::ErrorKind::NotFound, Some(true))
            .try_into()
            .expect("one");
        assert_eq!(finding.severity, Severity::Error);
        let missing = format!("{} does not exist", made.path().join("dikks").display());
        assert!(finding.text.contains(&missing), "{}", finding.text);
        assert!(finding.text.contains("pool 'disk2'"), "{}", finding.text);
        assert_eq!(found(&fine, io::ErrorKind::NotFound, Some(true)), []);
        for is_new in [Some(false), None] {
            let [finding] = found(&typo, io::ErrorKind::NotFound, is_new)
                .try_into()
                .expect("one");
            assert_eq!(finding.severity, Severity::Warning, "its disk may be away");
        }
    }

    #[test]
    fn all_pools_of_a_site_that_was_never_served_are_new() {
        let made = tempfile::tempdir().expect("made");
        let namespace = made.path().join("namespace.sqlite");
        assert_eq!(known_pools(&namespace), Some(BTreeSet::new()));
        std::fs::write(&namespace, "not a database").expect("written");
        assert_eq!(known_pools(&namespace), None);
    }
}
