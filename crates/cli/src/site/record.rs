//! The record of a site's transfer service, read from its file: the service need not run.

use super::config::{DatabasePlace, Transfer};
use super::directory::SiteDirectory;
use super::element_record::ElementRecord;
use crate::exit::CommandError;
use penstock_journal::JournalReader;
use penstock_observe::Record;
use penstock_persistence::journal::SqliteReader;
use std::path::Path;
use std::sync::Arc;

/// The record, and the configuration under which it was made.
pub struct OfflineRecord {
    /// Of the transfer service.
    pub config: Transfer,
    pub record: Arc<dyn Record>,
    /// What is known of the site's own end of links.
    pub element: ElementRecord,
}

impl OfflineRecord {
    /// Of the site in a directory.
    ///
    /// Errors: the site has no transfer service, or its record is in PostgreSQL.
    pub fn open(directory: &Path) -> Result<OfflineRecord, CommandError> {
        let site = SiteDirectory::at(directory)?;
        let config = site.config()?;
        let element = ElementRecord::stored(&site, &config);
        let transfer = config.transfer.ok_or_else(|| {
            CommandError::Usage(
                "this site has no [transfer] section, so it keeps no record of transfers".into(),
            )
        })?;
        let DatabasePlace::File(journal) = &transfer.database else {
            return Err(CommandError::Usage(
                "this site's record is in PostgreSQL and can only be read through its service"
                    .into(),
            ));
        };
        let path = site.resolve(journal);
        let reader = SqliteReader::open(&path, 1);
        let reader = reader.map_err(|why| CommandError::local(path.display(), why))?;
        let reader: Arc<dyn JournalReader> = Arc::new(reader);
        Ok(OfflineRecord {
            config: transfer,
            record: Arc::new(reader),
            element,
        })
    }
}
