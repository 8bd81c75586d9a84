//! Whose VO somebody belongs to when nothing in the certificate says so: by the site's own list, or by a
//! grid-map file, with which sites have mapped subjects to accounts since the first grids.

use crate::x509::{Stamp, comparable_name, stamp};
use penstock_model::VoName;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long the file is taken to be unchanged without a look.
const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Some 100 bytes for each of the 100,000 users of the largest VOs together.
const GRIDMAP_BYTES_MAX: u64 = 16 << 20;

/// The site's list of members, and what VO the accounts of its grid-map file stand for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemberRules {
    /// VOs by subject in slash form.
    pub members: BTreeMap<String, VoName>,
    /// VOs by account. A pool account (`.dteam`) that is not named stands for the VO of its name.
    pub accounts: BTreeMap<String, VoName>,
    /// Lines of `"subject" account`.
    pub gridmap: Option<PathBuf>,
}

/// Tells the VO of a subject.
#[derive(Default)]
pub(crate) struct Membership {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    rules: MemberRules,
    gridmap: Mutex<Option<Known>>,
}

struct Known {
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
            .map(|(subject, vo)| (comparable_name(&subject), vo))
            .collect();
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = State {
            rules,
            gridmap: Mutex::default(),
        };
    }

    /// The VO of a subject in slash form: by the site's list, else by its account.
    pub(crate) fn vo_of(&self, subject: &str) -> Option<VoName> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let subject = comparable_name(subject);
        if let Some(vo) = state.rules.members.get(&subject) {
            return Some(vo.clone());
        }
        let accounts = state.accounts()?;
        let account = accounts.get(&subject)?;
        match (state.rules.accounts.get(account), account.strip_prefix('.')) {
            (Some(vo), _) => Some(vo.clone()),
            (None, Some(pool)) if !pool.is_empty() => Some(VoName::new(pool)),
            (None, _) => None,
        }
    }
}

impl State {
    fn accounts(&self) -> Option<Arc<BTreeMap<String, String>>> {
        let path = self.rules.gridmap.as_deref()?;
        let mut known = self.gridmap.lock().unwrap_or_else(PoisonError::into_inner);
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
        *known = Some(Known {
            looked: Instant::now(),
            stamp: now,
            accounts: Arc::clone(&accounts),
        });
        Some(accounts)
    }
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
                           \"/DC=lab/CN=Carol/Email=c@lab\" carol\n\"/DC=lab/CN=Bob\" .atlas\n\"broken\n";

    fn vo_of(subject: &str) -> Option<String> {
        let dir = tempfile::tempdir().expect("directory");
        let gridmap = dir.path().join("grid-mapfile");
        std::fs::write(&gridmap, GRIDMAP).expect("written");
        let membership = Membership::default();
        membership.replace(MemberRules {
            members: [("/DC=lab/CN=Dave".to_owned(), VoName::new("cms"))].into(),
            accounts: [("bob".to_owned(), VoName::new("ops"))].into(),
            gridmap: Some(gridmap),
        });
        membership.vo_of(subject).map(|vo| vo.to_string())
    }

    #[test]
    fn a_subject_is_mapped_by_the_list_or_by_its_account() {
        assert_eq!(vo_of("/DC=lab/CN=Dave").as_deref(), Some("cms"));
        assert_eq!(vo_of("/DC=lab/CN=Alice Lab").as_deref(), Some("dteam"));
        assert_eq!(vo_of("/DC=lab/CN=Bob").as_deref(), Some("ops"));
        assert_eq!(
            vo_of("/DC=lab/CN=Carol/emailAddress=c@lab"),
            None,
            "an account without a VO"
        );
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
        assert_eq!(membership.vo_of("/CN=a"), None);
        std::fs::write(&gridmap, "/CN=a .dteam").expect("written");
        membership.replace(rules);
        assert_eq!(membership.vo_of("/CN=a"), Some(VoName::new("dteam")));
    }
}
