//! Rights on whole trees. A site may have rules for parts of a directory, so who may change the directory may not
//! always change these: neither by removing it nor by giving it a name where other rules hold.

use super::answer::Problem;
use super::caller::Caller;
use super::handler_context::Door;
use penstock_decide::authorization::PathOperation;
use penstock_model::NamespacePath;
use std::collections::BTreeSet;

impl Door {
    /// Lets the caller do this with each part of a directory for which the site has rules, whether it exists or not.
    pub(super) fn permit_parts(
        &self,
        caller: &Caller,
        operation: &PathOperation,
        path: &NamespacePath,
    ) -> Result<(), Problem> {
        let parts = self.parts_below(path);
        let mut parts = parts.iter();
        parts.try_for_each(|part| self.permit(caller, operation, part))
    }

    /// Lets the caller remove each of them that exists.
    pub(super) fn permit_removal_of_parts(
        &self,
        caller: &Caller,
        path: &NamespacePath,
    ) -> Result<(), Problem> {
        for part in self.parts_below(path) {
            if self.storage.namespace.lookup(&part)?.is_some() {
                self.permit(caller, &PathOperation::Delete, &part)?;
            }
        }
        Ok(())
    }

    /// Lets the caller move each of them that exists, and whatever comes to where there are rules.
    pub(super) fn permit_move_of_parts(
        &self,
        caller: &Caller,
        from: &NamespacePath,
        to: &NamespacePath,
    ) -> Result<(), Problem> {
        let leaving = self.parts_below(from).into_iter().map(|part| {
            let target = elsewhere(&part, from, to);
            (Some(part), target)
        });
        let coming = self.parts_below(to).into_iter().map(|part| {
            let source = elsewhere(&part, to, from);
            (source, Some(part))
        });
        for (source, target) in leaving.chain(coming) {
            // A path too long to exist is none.
            let (Some(source), Some(to)) = (source, target) else {
                continue;
            };
            if self.storage.namespace.lookup(&source)?.is_some() {
                self.permit(caller, &PathOperation::Rename { to }, &source)?;
            }
        }
        Ok(())
    }

    /// The paths strictly below this one for which the site has rules.
    fn parts_below(&self, path: &NamespacePath) -> BTreeSet<NamespacePath> {
        let settings = self.storage.settings();
        let groups = settings.access.group_rules.iter().map(|rule| &rule.path);
        let subjects = settings.access.subject_rules.iter().map(|rule| &rule.path);
        let all = groups.chain(subjects);
        all.filter(|part| part.is_within(path) && *part != path)
            .cloned()
            .collect()
    }
}

/// Where a path below `from` is when that is `to`.
fn elsewhere(
    path: &NamespacePath,
    from: &NamespacePath,
    to: &NamespacePath,
) -> Option<NamespacePath> {
    let below = &path.names()[from.names().len()..];
    let mut names = below.iter();
    names.try_fold(to.clone(), |path, name| path.child(name).ok())
}
