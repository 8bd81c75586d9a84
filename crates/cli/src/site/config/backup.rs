//! `[transfer.backup]` and `[storage.backup]`: how often a backup of a role is made, and where it goes.

use penstock_model::quantity::{Size, Span};
use penstock_persistence::backup::BACKUP_BYTES_PER_SECOND;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// When a running role makes backups of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupPlan {
    /// A directory, best on another disk.
    pub to: PathBuf,
    /// The wait between two of them.
    #[serde(default = "BackupPlan::default_every")]
    pub every: Span,
    /// So many are kept; older ones are removed when a new one is whole.
    #[serde(default = "BackupPlan::default_keep")]
    pub keep: usize,
    /// Bytes that are copied in a second at most.
    #[serde(default = "BackupPlan::default_rate")]
    pub rate: Size,
}

impl BackupPlan {
    fn default_every() -> Span {
        Span(Duration::from_secs(86_400))
    }
    fn default_keep() -> usize {
        7
    }
    fn default_rate() -> Size {
        Size(BACKUP_BYTES_PER_SECOND)
    }

    /// Everything that is wrong with the one of a section, each as one sentence.
    pub fn problems(&self, section: &str) -> Vec<String> {
        let mut problems = Vec::new();
        if self.keep == 0 {
            problems.push(format!(
                "{section}.backup.keep is 0: at least the newest must be kept"
            ));
        }
        if self.every.0 < Duration::from_secs(60) {
            problems.push(format!("{section}.backup.every is less than a minute"));
        }
        if self.rate.0 < 1_000_000 {
            problems.push(format!(
                "{section}.backup.rate is less than 1 MB per second: a backup takes too long"
            ));
        }
        problems
    }
}
