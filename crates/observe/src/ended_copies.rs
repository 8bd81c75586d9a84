//! Copies of files that ended, as rows of attempts tell them: what each fold over such rows reads of them.

use crate::store::{Reader, StoreError};
use penstock_model::observation::{Attempt, Operation, Outcome, Text, View};
use penstock_model::{LinkId, StorageId, TimeWindow, Timestamp};

/// What every fold needs of an attempt.
const COLUMNS: [&str; 20] = [
    "at",
    "view",
    "operation",
    "source_host",
    "destination_host",
    "vo",
    "bytes_moved",
    "file_bytes",
    "submitted",
    "started",
    "first_byte",
    "ended",
    "prepare_us",
    "source_read_us",
    "network_us",
    "write_us",
    "commit_us",
    "pool",
    "outcome",
    "side",
];

/// An attempt to copy a file that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedCopy<'a> {
    pub(crate) row: &'a Attempt,
    pub(crate) outcome: Outcome,
    /// Where that is not told, when its first byte came, or when it ended.
    pub(crate) started: Timestamp,
    pub(crate) ended: Timestamp,
}

impl<'a> EndedCopy<'a> {
    /// `None`: the row is of something else, of another view, or of an attempt that goes on.
    pub(crate) fn of(row: &'a Attempt, view: View) -> Option<EndedCopy<'a>> {
        let is_copy = matches!(
            row.operation,
            Operation::Copy | Operation::Read | Operation::Write
        );
        let outcome = row.outcome.filter(|_| is_copy && row.view == view)?;
        let ended = row.ended.unwrap_or(row.at);
        let started = row.started.or(row.first_byte).unwrap_or(ended).min(ended);
        Some(EndedCopy {
            row,
            outcome,
            started,
            ended,
        })
    }

    pub(crate) fn link(&self) -> LinkId {
        let (source, destination) = (&self.row.source_host, &self.row.destination_host);
        link_of(source.as_ref(), destination.as_ref())
    }
}

/// An end that is not told is `*`.
pub(crate) fn link_of(source: Option<&Text>, destination: Option<&Text>) -> LinkId {
    let end = |host: Option<&Text>| StorageId::new(host.map_or("*", |host| &**host));
    LinkId {
        source: end(source),
        destination: end(destination),
    }
}

/// Hands the attempts of a window to `take`, with these columns beside those that every fold needs.
pub(crate) fn each_attempt_stored(
    reader: &mut Reader,
    window: TimeWindow,
    further: &[&str],
    take: impl FnMut(&Attempt),
) -> Result<(), StoreError> {
    let columns = [&COLUMNS[..], further].concat();
    reader.each::<Attempt>(window, &columns, take)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_ended_is_told_with_its_times_and_its_ends() {
        let row = Attempt {
            at: Timestamp(900),
            source_host: Some("https://a".into()),
            first_byte: Some(Timestamp(300)),
            outcome: Some(Outcome::Failure),
            ..Attempt::default()
        };
        let copy = EndedCopy::of(&row, row.view).expect("it ended");
        assert_eq!((copy.started.0, copy.ended.0), (300, 900));
        let link = copy.link();
        assert_eq!(
            (link.source.to_string(), link.destination.to_string()),
            ("https://a".to_owned(), "*".to_owned())
        );
        let goes_on = Attempt {
            outcome: None,
            ..row.clone()
        };
        assert!(EndedCopy::of(&goes_on, row.view).is_none());
        let removal = Attempt {
            operation: Operation::Removal,
            ..row
        };
        assert!(EndedCopy::of(&removal, removal.view).is_none());
    }
}
