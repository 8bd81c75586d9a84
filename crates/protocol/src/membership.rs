//! Whose VO somebody belongs to when nothing in the certificate says so: by the site's own list, or by a
//! grid-map file, with which sites have mapped subjects to accounts since the first grids.

use crate::x509::{Stamp, comparable_name, stamp};
use parking_lot::{Mutex, RwLock};
use penstock_model::VoName;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the file is taken to be unchanged without a look.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Some 100 bytes for each of the 100,000 users of the largest VOs together.
const GRIDMAP_BYTES_MAX: u64 = 16 << 20;

/// The site's list of members, and what VO the accounts of its grid-map file stand for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberRules {
    /// By subject in slash form.
    pub members: BTreeMap<String, ListedMember>,
    /// VOs by account. A pool account (`.dteam`) that is not named stands for the VO of its name.
    pub accounts: BTreeMap<String, VoName>,
    /// Lines of `"subject" account`.
    pub gridmap: Option<PathBuf>,
}

/// Of which VO somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedMember {
    pub vo: VoName,
    /// Whose certificates must have been signed by this authority, in slash form; `None`: by any.
    pub ca: Option<String>,
}

/// Tells the VO of a subject.
#[derive(Default)]
pub(crate) struct Membership {
    state: RwLock<MembershipState>,
}

#[derive(Default)]
struct MembershipState {
    rules: MemberRules,
    gridmap: Mutex<Option<GridmapCopy>>,
}

struct GridmapCopy {
    looked: Instant,
    stamp: Option<Stamp>,
    accounts: Arc<BTreeMap<String, String>>,
}

impl Membership {
    /// From now on by these rules.
    pub(crate) fn replace(&self, mut rules: MemberRules) {
        rules.members = rules
            .members
            .into_iter()
            .map(|(subject, member)| (comparable_name(&subject), member))
            .collect();
        *self.state.write() = MembershipState {
            rules,
            gridmap: Mutex::default(),
        };
    }

    /// The VO of a subject in slash form whose certificate an authority has signed: by the site's list, else by its
    /// account.
    pub(crate) fn vo_of(&self, subject: &str, ca: &str) -> Option<VoName> {
        let state = self.state.read();
        let subject = comparable_name(subject);
        if let Some(member) = state.rules.members.get(&subject) {
            let is_meant = |listed: &String| comparable_name(listed) == comparable_name(ca);
            return member
                .ca
                .as_ref()
                .is_none_or(is_meant)
                .then(|| member.vo.clone());
        }
        let accounts = state.accounts()?;
        let account = accounts.get(&subject)?;
        match (state.rules.accounts.get(account), account.strip_prefix('.')) {
            (Some(vo), _) => Some(vo.clone()),
            (None, Some(pool)) if !pool.is_empty() => {
                Some(VoName::new(pool)).filter(|vo| !vo.is_derived())
            }
            (None, _) => None,
        }
    }
}

impl MembershipState {
    fn accounts(&self) -> Option<Arc<BTreeMap<String, String>>> {
        let path = self.rules.gridmap.as_deref()?;
        let mut known = self.gridmap.lock();
        if let Some(known) = known
            .as_ref()
            .filter(|known| known.looked.elapsed() < LOOK_EVERY)
        {
            return Some(Arc::clone(&known.accounts));
        }
        let now = stamp(path);
        let accounts = match known.take() {
            Some(known) if known.stamp == now => known.accounts,
            _ => read(path).map(Arc::new).unwrap_or_else(|why| {
                tracing::warn!(gridmap = %path.display(), %why, "the grid-map file cannot be read");
                Arc::default()
            }),
        };
        *known = Some(GridmapCopy {
            looked: Instant::now(),
            stamp: now,
            accounts: Arc::clone(&accounts),
        });
        Some(accounts)
    }
}

/// The subjects for which a grid-map file has an account.
pub fn subjects_in(gridmap: &Path) -> std::io::Result<Vec<String>> {
    Ok(read(gridmap)?.into_keys().collect())
}

fn read(path: &Path) -> std::io::Result<BTreeMap<String, String>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(GRIDMAP_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // A subject that stands twice is what its first line says, as in Globus.
    let lines = text.lines().rev().filter_map(mapping);
    Ok(lines.collect())
}

/// `"subject" account,other`: the subject in a form to compare, and the first account.
fn mapping(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let (subject, rest) = match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?,
        None => line.split_once(|c: char| c.is_ascii_whitespace())?,
    };
    let account = rest.trim().split([',', ' ', '\t']).next()?;
    let is_mapping = subject.starts_with('/') && !account.is_empty();
    is_mapping.then(|| (comparable_name(subject), account.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRIDMAP: &str = "# users\n\n\"/DC=lab/CN=Alice Lab\" .dteam\n/DC=lab/CN=Bob bob,other\n\
                           \"/DC=lab/CN=Carol/Email=c@lab\" carol\n/DC=lab/CN=Frank frank\n\"/DC=lab/CN=Bob\" .atlas\n\"broken\n";

    const CA: &str = "/DC=lab/CN=CA One";

    fn member(subject: &str, ca: Option<&str>) -> (String, ListedMember) {
        let ca = ca.map(str::to_owned);
        let vo = VoName::new("cms");
        (subject.to_owned(), ListedMember { vo, ca })
    }

    fn vo_of(subject: &str) -> Option<String> {
        let dir = tempfile::tempdir().expect("directory");
        let gridmap = dir.path().join("grid-mapfile");
        std::fs::write(&gridmap, GRIDMAP).expect("written");
        let membership = Membership::default();
        membership.replace(MemberRules {
            members: [
                member("/DC=lab/CN=Dave", None),
                member("/DC=lab/CN=Eve", Some(CA)),
                member("/DC=lab/CN=Bob", Some("/CN=CA Two")),
            ]
            .into(),
            accounts: [("carol".to_owned(), VoName::new("ops"))].into(),
            gridmap: Some(gridmap),
        });
        membership.vo_of(subject, CA).map(|vo| vo.to_string())
    }

    #[test]
    fn a_subject_is_mapped_by_the_list_or_by_its_account() {
        assert_eq!(vo_of("/DC=lab/CN=Dave").as_deref(), Some("cms"));
        assert_eq!(vo_of("/DC=lab/CN=Alice Lab").as_deref(), Some("dteam"));
        assert_eq!(vo_of("/DC=lab/CN=Eve").as_deref(), Some("cms"));
        assert_eq!(
            vo_of("/DC=lab/CN=Bob"),
            None,
            "another authority's Bob, whatever his account"
        );
        assert_eq!(
            vo_of("/DC=lab/CN=Carol/emailAddress=c@lab").as_deref(),
            Some("ops")
        );
        assert_eq!(vo_of("/DC=lab/CN=Frank"), None, "an account without a VO");
        assert_eq!(vo_of("/DC=lab/CN=Alice"), None);
    }

    #[test]
    fn a_changed_file_is_seen_and_a_missing_one_maps_nobody() {
        let dir = tempfile::tempdir().expect("directory");
        let gridmap = dir.path().join("grid-mapfile");
        let membership = Membership::default();
        let rules = MemberRules {
            gridmap: Some(gridmap.clone()),
            ..MemberRules::default()
        };
        membership.replace(rules.clone());
        assert_eq!(membership.vo_of("/CN=a", CA), None);
        std::fs::write(&gridmap, "/CN=a .dteam").expect("written");
        membership.replace(rules);
        assert_eq!(membership.vo_of("/CN=a", CA), Some(VoName::new("dteam")));
    }
}
