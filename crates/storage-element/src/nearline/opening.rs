//! Which tape system a storage element begins with, and that it is the one that has the files.

use super::driver::Driver;
use super::hsm_program::HsmProgram;
use super::tape_libraries::{COPY_SCHEME, TapeLibraries, is_of_library};
use super::{NearlineContext, NearlineStatus};
use crate::config::{NearlineConfig, TapeSystemConfig};
use crate::nearline_inbox::NearlineMail;
use crate::open_error::OpenError;
use parking_lot::Mutex;
use penstock_persistence::namespace::{Change, NearlineChange};
use std::sync::Arc;

impl NearlineConfig {
    /// Files that may be on their way from tape at the same time.
    pub(super) fn recalls_max(&self) -> usize {
        match &self.system {
            TapeSystemConfig::Program(program) => program.policy.gets_max,
            TapeSystemConfig::Libraries(libraries) => {
                let libraries = libraries.libraries.iter();
                libraries
                    .map(|library| library.definition.drives.len())
                    .sum()
            }
        }
    }
}

/// The driver with the tape system of this storage element.
pub(super) enum OpenedDriver {
    Program(Box<Driver<HsmProgram>>),
    Libraries(Box<Driver<TapeLibraries>>),
}

impl OpenedDriver {
    /// Runs until it is told to stop.
    pub(super) async fn run(self, mail: NearlineMail) {
        match self {
            OpenedDriver::Program(driver) => driver.run(mail).await,
            OpenedDriver::Libraries(driver) => driver.run(mail).await,
        }
    }
}

/// The driver with its tape system, as the last run has left it.
pub(super) fn open(
    config: &NearlineConfig,
    context: NearlineContext,
    status: Arc<Mutex<NearlineStatus>>,
) -> Result<OpenedDriver, OpenError> {
    let has_libraries = matches!(config.system, TapeSystemConfig::Libraries(_));
    refuse_other_system(&context, has_libraries)?;
    let journal = context.namespace.tape_journal()?;
    let journal = own_journal(&context, journal, has_libraries)?;
    let records = journal.len();
    Ok(match &config.system {
        TapeSystemConfig::Program(program) => {
            let classes = config.classes.clone();
            let opened = HsmProgram::restore(program, classes, context.clone(), &journal);
            let system = opened.map_err(OpenError::Tape)?;
            let driver = Driver::new(config.clone(), context, system, records, status);
            OpenedDriver::Program(Box::new(driver))
        }
        TapeSystemConfig::Libraries(libraries) => {
            let opened = TapeLibraries::restore(libraries, config, &context, &journal);
            let system = opened.map_err(OpenError::Tape)?;
            let driver = Driver::new(config.clone(), context, system, records, status);
            OpenedDriver::Libraries(Box::new(driver))
        }
    })
}

/// Files that are on tape in the tape system of before could not be brought back by this one.
fn refuse_other_system(context: &NearlineContext, has_libraries: bool) -> Result<(), OpenError> {
    let found = match has_libraries {
        true => context.namespace.tape_copy_without(COPY_SCHEME)?,
        false => context.namespace.tape_copy_with(COPY_SCHEME)?,
    };
    match found {
        None => Ok(()),
        Some(uri) => Err(OpenError::OtherTapeSystem { uri, has_libraries }),
    }
}

/// What the tape system of before has recorded is worth nothing to another one: all that is owed is in the namespace.
fn own_journal(
    context: &NearlineContext,
    journal: Vec<String>,
    has_libraries: bool,
) -> Result<Vec<String>, OpenError> {
    if journal
        .iter()
        .all(|line| is_of_library(line) == has_libraries)
    {
        return Ok(journal);
    }
    tracing::warn!("the records of another tape system are dropped; no file is on tape there");
    let replaced = NearlineChange::ReplaceJournal(Vec::new());
    context.namespace.apply(Change::Nearline(replaced))?;
    Ok(Vec::new())
}
