//! What narrows a credential after it was made: the activities and paths that a macaroon's caveats leave.
//!
//! Knows neither how a caveat is spelt (`protocol::macaroon`) nor which operation is which activity
//! (`decide::attenuation`).

use crate::path::NamespacePath;
use std::collections::BTreeSet;

/// What a macaroon may be narrowed to, in the words of dCache and XRootD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MacaroonActivity {
    /// Learn whether something exists, its size, times and checksum.
    ReadMetadata,
    /// Change what is said about a file or directory.
    UpdateMetadata,
    /// Learn the names in a directory.
    List,
    /// Get the content of a file.
    Download,
    /// Make new files, and give them another name.
    Upload,
    /// Make directories and files, replace and rename.
    Manage,
    /// Remove.
    Delete,
}

impl MacaroonActivity {
    pub const ALL: [MacaroonActivity; 7] = [
        MacaroonActivity::ReadMetadata,
        MacaroonActivity::UpdateMetadata,
        MacaroonActivity::List,
        MacaroonActivity::Download,
        MacaroonActivity::Upload,
        MacaroonActivity::Manage,
        MacaroonActivity::Delete,
    ];

    /// Its name in a caveat.
    pub fn name(self) -> &'static str {
        match self {
            MacaroonActivity::ReadMetadata => "READ_METADATA",
            MacaroonActivity::UpdateMetadata => "UPDATE_METADATA",
            MacaroonActivity::List => "LIST",
            MacaroonActivity::Download => "DOWNLOAD",
            MacaroonActivity::Upload => "UPLOAD",
            MacaroonActivity::Manage => "MANAGE",
            MacaroonActivity::Delete => "DELETE",
        }
    }

    /// The activity of that name, spelt exactly so.
    pub fn from_name(name: &str) -> Option<MacaroonActivity> {
        MacaroonActivity::ALL
            .into_iter()
            .find(|activity| activity.name() == name)
    }
}

/// What all caveats of a credential together leave of it. The default leaves everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attenuation {
    /// Only these; `None`: any. An empty set leaves nothing.
    pub activities: Option<BTreeSet<MacaroonActivity>>,
    /// Only what lies within every one of these.
    pub paths: Vec<NamespacePath>,
}

impl Attenuation {
    /// Narrows it to these activities as well.
    pub fn narrow_to(&mut self, activities: &BTreeSet<MacaroonActivity>) {
        let left = match &self.activities {
            None => activities.clone(),
            Some(before) => before.intersection(activities).copied().collect(),
        };
        self.activities = Some(left);
    }
}
