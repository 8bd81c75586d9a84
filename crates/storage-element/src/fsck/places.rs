//! Gives a file its place in the tree: where it belongs, or below [`LOST_AND_FOUND`].

use super::{Check, FsckFailure};
use crate::file_label::Label;
use crate::pool_files::PoolRoot;
use penstock_clock::wall_clock;
use penstock_model::{Archival, Bytes, Checksum, NamespacePath, Timestamp};
use penstock_persistence::namespace::{
    Change, ChangeError, ChangeRefusal, EntryId, NewFile, Replace,
};

/// Where files go whose place is not known or taken.
const LOST_AND_FOUND: &str = "lost+found";

impl Check<'_> {
    pub(super) fn publish(
        &mut self,
        pool: &PoolRoot,
        id: EntryId,
        path: Option<NamespacePath>,
        facts: Facts<'_>,
    ) -> Result<(NamespacePath, Option<String>), FsckFailure> {
        let mut why = None;
        // Only where its label says that it belongs.
        let mut outdated = match (&path, facts.label) {
            (Some(path), Some(_)) => self.giving_way(path, facts.created)?,
            (_, None) | (None, _) => None,
        };
        for place in places(id, path) {
            let parent = place.parent().unwrap_or_else(NamespacePath::root);
            let parent = self.namespace.lookup(&parent)?.map(|parent| parent.id);
            let told = facts.label.and_then(|label| label.parent);
            let outdated = outdated.take();
            let file = NewFile {
                id,
                path: place.clone(),
                size: facts.size,
                checksums: facts.checksums.clone().unwrap_or_default(),
                pool: pool.name.clone(),
                archival: facts
                    .label
                    .map_or(Archival::DiskOnly, |label| label.archival),
                owner: facts.label.and_then(|label| label.owner.clone()),
                at: facts.created,
                replace: match &outdated {
                    Some(entry) => Replace::Only(entry.id),
                    None => Replace::Refused,
                },
                properties_of: None,
                archive_word: None,
                labelled_in: parent.filter(|parent| {
                    let name = facts.label.and_then(|label| label.path.name());
                    told == Some(*parent) && name == place.name()
                }),
            };
            let taken = self.take_place(Change::Reenter {
                file,
                at: wall_clock(),
            })?;
            let Some(taken) = taken else {
                if let Some(entry) = outdated {
                    self.mend(Change::ForgetTrash {
                        files: vec![entry.id],
                        at: wall_clock(),
                    })?;
                    let told = "its data is in no pool, and later data belongs to its path";
                    self.tell_outdated(&place, &entry, None, told);
                }
                return Ok((place, why));
            };
            why = why.or(Some(taken));
        }
        Err(no_place())
    }

    /// Makes a change that gives a file its place. Gives back why it cannot be there; `None`: it is.
    pub(super) fn take_place(&self, change: Change) -> Result<Option<String>, FsckFailure> {
        match self.mend(change) {
            Ok(_) => Ok(None),
            Err(ChangeError::Refused(
                refusal @ (ChangeRefusal::Exists(_)
                | ChangeRefusal::IsDirectory(_)
                | ChangeRefusal::ParentIsFile(_)),
            )) => Ok(Some(refusal.to_string())),
            Err(other) => Err(other.into()),
        }
    }
}

/// Where a file may be entered: where it belongs, or else below [`LOST_AND_FOUND`].
pub(super) fn places(
    id: EntryId,
    path: Option<NamespacePath>,
) -> impl Iterator<Item = NamespacePath> {
    let lost = lost_and_found();
    let below_lost = match &path {
        Some(path) => lost.join(path),
        None => lost.child(&id.to_string()).unwrap_or_else(|_| lost.clone()),
    };
    let named = below_lost.name().map(|name| format!("{name}.{id}"));
    let beside = below_lost.parent().zip(named);
    let beside = beside.and_then(|(parent, name)| parent.child(&name).ok());
    let by_id = lost.child(&format!("{id}")).ok();
    path.into_iter()
        .chain([below_lost])
        .chain(beside)
        .chain(by_id)
}

fn lost_and_found() -> NamespacePath {
    let root = NamespacePath::root();
    root.child(LOST_AND_FOUND).unwrap_or(root)
}

/// All places are taken.
pub(super) fn no_place() -> FsckFailure {
    FsckFailure::Change(ChangeError::Refused(
        ChangeRefusal::Exists(lost_and_found()),
    ))
}

/// What is known of data without an entry.
pub(super) struct Facts<'a> {
    pub size: Bytes,
    pub checksums: Option<Vec<Checksum>>,
    pub created: Timestamp,
    pub label: Option<&'a Label>,
}
