//! Files that are on tape, as the directory logs tell, and of which the namespace does not know that: it is an older copy, and they
//! have left the disks since. Nothing but these logs tells where they are.

use super::places::{no_place, places};
use super::{Check, FsckFailure, UnknownOnTape};
use penstock_clock::wall_clock;
use penstock_model::NamespacePath;
use penstock_persistence::namespace::{
    Change, ChangeError, ChangeRefusal, EntryId, FileOnTape, NearlineChange,
};

impl Check<'_> {
    pub(super) fn find_files_on_tape(&mut self) -> Result<(), FsckFailure> {
        let told: Vec<(FileOnTape, Option<NamespacePath>)> = self
            .words
            .files_on_tape_since()
            .into_iter()
            .map(|(file, place)| {
                let path = place.map(|(parent, name)| self.path_in(parent, name));
                Ok((file.clone(), path.transpose()?.flatten()))
            })
            .collect::<Result<_, FsckFailure>>()?;
        for (file, path) in told {
            match self.namespace.tape_file(file.id)? {
                Some(known) if !known.copies.is_empty() => {}
                Some(known) => self.tell_of_copies(&file, &known.path)?,
                // A file of the trash comes back from there, with its data.
                None if self.namespace.is_trash(file.id)? => {}
                None => self.enter_on_tape(&file, path)?,
            }
        }
        Ok(())
    }

    /// Its data is in no pool, so that the copies count of which logs tell, however old these are.
    pub(super) fn look_on_tape(&mut self, file: EntryId) -> Result<(), FsckFailure> {
        let known = self.namespace.tape_file(file)?;
        let without_copies = known.filter(|known| known.copies.is_empty());
        let told = self.words.file_on_tape(file).cloned();
        match (without_copies, told) {
            (Some(known), Some(told)) if !self.told_on_tape.contains(&file) => {
                self.tell_of_copies(&told, &known.path)
            }
            _ => Ok(()),
        }
    }

    /// The namespace has the file, and not its copies.
    fn tell_of_copies(
        &mut self,
        file: &FileOnTape,
        path: &NamespacePath,
    ) -> Result<(), FsckFailure> {
        self.told_on_tape.insert(file.id);
        let mut finding = finding(file, Some(path));
        if self.repair.mends {
            let at = file.copies.iter().map(|copy| copy.at).max();
            let archived = NearlineChange::Archived {
                file: file.id,
                uris: finding.copies.clone(),
                at: at.unwrap_or_else(wall_clock),
            };
            match self.mend(Change::Nearline(archived)) {
                Ok(_) => finding.entered = Some(path.to_string()),
                Err(ChangeError::Refused(why)) => finding.why = Some(why.to_string()),
                Err(why) => return Err(why.into()),
            }
        }
        self.tell_on_tape(finding);
        Ok(())
    }

    fn enter_on_tape(
        &mut self,
        file: &FileOnTape,
        path: Option<NamespacePath>,
    ) -> Result<(), FsckFailure> {
        let mut finding = finding(file, path.as_ref());
        if self.repair.mends {
            self.enter_at_free_place(file, path, &mut finding)?;
        }
        self.tell_on_tape(finding);
        Ok(())
    }

    fn enter_at_free_place(
        &self,
        file: &FileOnTape,
        path: Option<NamespacePath>,
        finding: &mut UnknownOnTape,
    ) -> Result<(), FsckFailure> {
        for to in places(file.id, path) {
            let entered = self.take_place(Change::Nearline(NearlineChange::ReenterOnTape {
                file: file.clone(),
                to: to.clone(),
                at: wall_clock(),
            }));
            match entered {
                Ok(None) => {
                    finding.entered = Some(to.to_string());
                    return Ok(());
                }
                Ok(Some(taken)) => finding.why = finding.why.take().or(Some(taken)),
                Err(FsckFailure::Change(ChangeError::Refused(
                    refusal @ ChangeRefusal::CopyOfAnother { .. },
                ))) => {
                    finding.why = Some(refusal.to_string());
                    return Ok(());
                }
                Err(why) => return Err(why),
            }
        }
        Err(no_place())
    }

    fn tell_on_tape(&mut self, finding: UnknownOnTape) {
        let is_mended = finding.entered.is_some();
        self.report.unknown_on_tape.add(finding, is_mended);
    }
}

fn finding(file: &FileOnTape, path: Option<&NamespacePath>) -> UnknownOnTape {
    UnknownOnTape {
        path: path.map(ToString::to_string),
        id: file.id.to_string(),
        size: file.size.0,
        copies: file.copies.iter().map(|copy| copy.uri.clone()).collect(),
        entered: None,
        why: None,
    }
}
