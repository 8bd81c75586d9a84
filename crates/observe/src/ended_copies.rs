//! Copies of files that ended, as rows of attempts tell them: what each fold over such rows reads of them.

use crate::store::{Reader, StoreError};
use penstock_model::observation::{Attempt, Operation, Outcome, Text, View};
use penstock_model::{ANY, LinkId, StorageId, TimeWindow, Timestamp};
use std::collections::{BTreeSet, HashMap};

/// A client with this part of all bytes of a server is an end of a link; of more clients, nobody would look at each.
const CLIENT_PART_MIN: f64 = 0.05;
/// Clients of servers whose bytes are counted at most.
const CLIENTS_MAX: usize = 50_000;

/// What every fold needs of an attempt.
const COLUMNS: [&str; 22] = [
    "at",
    "view",
    "operation",
    "source_host",
    "destination_host",
    "server",
    "client",
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

/// Of rows that name no end of a link but a server and its client: which clients are ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkClients(BTreeSet<(Text, Text)>);

/// How a record is read: whose books, and which clients of storage elements are ends of links in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordView {
    pub view: View,
    pub clients: LinkClients,
}

/// Counts what clients of servers moved.
#[derive(Debug, Default)]
pub(crate) struct ClientCount(HashMap<(Text, Text), f64>);

impl ClientCount {
    pub(crate) fn take(&mut self, row: &Attempt) {
        let (Some(server), Some(client)) = (&row.server, &row.client) else {
            return;
        };
        let is_full = self.0.len() >= CLIENTS_MAX;
        let key = (server.clone(), client.clone());
        if is_full && !self.0.contains_key(&key) {
            return;
        }
        *self.0.entry(key).or_default() += row.bytes_moved.map_or(0.0, |bytes| bytes.0 as f64);
    }

    pub(crate) fn link_clients(self) -> LinkClients {
        let mut of_servers: HashMap<Text, f64> = HashMap::new();
        for ((server, _), bytes) in &self.0 {
            *of_servers.entry(server.clone()).or_default() += bytes;
        }
        let is_end = |(server, _): &(Text, Text), bytes: f64| {
            let all = of_servers.get(server).copied().unwrap_or(0.0);
            bytes > 0.0 && bytes >= all * CLIENT_PART_MIN
        };
        let clients = self.0.into_iter();
        let ends = clients.filter_map(|(client, bytes)| is_end(&client, bytes).then_some(client));
        LinkClients(ends.collect())
    }
}

/// An attempt to copy a file that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedCopy<'a> {
    pub(crate) row: &'a Attempt,
    clients: &'a LinkClients,
    pub(crate) outcome: Outcome,
    /// Where that is not told, when its first byte came, or when it ended.
    pub(crate) started: Timestamp,
    pub(crate) ended: Timestamp,
}

impl<'a> EndedCopy<'a> {
    /// `None`: the row is of something else, of another view, or of an attempt that goes on.
    pub(crate) fn of(row: &'a Attempt, view: &'a RecordView) -> Option<EndedCopy<'a>> {
        let is_copy = matches!(
            row.operation,
            Operation::Copy | Operation::Read | Operation::Write
        );
        let outcome = row.outcome.filter(|_| is_copy && row.view == view.view)?;
        let ended = row.ended.unwrap_or(row.at);
        let started = row.started.or(row.first_byte).unwrap_or(ended).min(ended);
        Some(EndedCopy {
            row,
            clients: &view.clients,
            outcome,
            started,
            ended,
        })
    }

    pub(crate) fn link(&self) -> LinkId {
        let (source, destination) = self.ends();
        link_of(source.as_ref(), destination.as_ref())
    }

    /// Where its bytes came from and where they went, as far as that is told. A storage element that names no ends is one
    /// itself, and its client the other.
    pub(crate) fn ends(&self) -> (Option<Text>, Option<Text>) {
        let row = self.row;
        let (source, destination) = (row.source_host.clone(), row.destination_host.clone());
        if source.is_some() || destination.is_some() {
            return (source, destination);
        }
        let client = row.server.clone().zip(row.client.clone());
        let client = client.filter(|client| self.clients.0.contains(client));
        let client = client.map(|(_, client)| client);
        match row.operation {
            Operation::Read => (row.server.clone(), client),
            Operation::Write => (client, row.server.clone()),
            // Of a third-party copy only its path tells the direction.
            _ => (None, None),
        }
    }
}

/// An end that is not told is `*`.
pub(crate) fn link_of(source: Option<&Text>, destination: Option<&Text>) -> LinkId {
    let end = |host: Option<&Text>| match host {
        Some(host) => StorageId::new(host.clone()),
        None => StorageId::new(ANY),
    };
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
pub(crate) mod tests {
    use super::*;
    use crate::store::Store;
    use penstock_model::observation::{Cell, CellRef, CellSink, CellType, Row};
    use penstock_model::{Bytes, Phase, Side};
    use tempfile::TempDir;

    /// Counts the columns that have a value.
    struct KnownColumns(usize);

    impl CellSink for KnownColumns {
        fn take(&mut self, _: usize, _: CellRef<'_>) {
            self.0 += 1;
        }
    }

    /// Attempts, begun in the second and third minute of 1970, with a value in every column: so what a fold needs and does
    /// not ask for is seen.
    pub(crate) fn attempts_with_all_columns() -> Vec<Attempt> {
        let row = |number: i64, outcome: Outcome, phase: Phase| {
            let mut row = Attempt::default();
            for (place, column) in Attempt::COLUMNS.iter().enumerate() {
                let cell = match column.cells {
                    CellType::Text => Cell::Text(column.name.into()),
                    CellType::Truth => Cell::Truth(true),
                    CellType::Time => Cell::Integer(60_000 + number * 1_000),
                    CellType::Signed | CellType::Unsigned => {
                        Cell::Integer(1_000 * place as i64 + number)
                    }
                };
                // Words of a list are set below.
                row.set(place, cell);
            }
            row.view = View::Vo;
            row.operation = Operation::Copy;
            row.outcome = Some(outcome);
            (row.side, row.phase) = (Some(Side::Source), Some(phase));
            row.at = Timestamp(100_000 + number * 1_000);
            (row.ended, row.last_byte) = (Some(row.at), Some(Timestamp(row.at.0 - 3_000)));
            row.first_byte = Some(Timestamp(70_000 + number * 1_000));
            row.submitted = Some(Timestamp(50_000));
            let mut known = KnownColumns(0);
            row.give_cells(&mut known);
            assert_eq!(known.0, Attempt::COLUMNS.len(), "{row:?}");
            row
        };
        vec![
            row(0, Outcome::Success, Phase::Transfer),
            row(1, Outcome::Failure, Phase::Preparation),
            row(2, Outcome::Failure, Phase::Finalization),
            row(3, Outcome::Success, Phase::Transfer),
        ]
    }

    /// A store of these rows.
    pub(crate) fn stored(rows: &[Attempt]) -> (TempDir, Reader) {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Store::open(directory.path()).expect("a store");
        for row in rows {
            store.append_row(row).expect("written");
        }
        store.flush().expect("written");
        drop(store);
        let reader = Reader::open(directory.path()).expect("readable");
        (directory, reader)
    }

    #[test]
    fn a_copy_that_ended_is_told_with_its_times_and_its_ends() {
        let row = Attempt {
            at: Timestamp(900),
            source_host: Some("https://a".into()),
            first_byte: Some(Timestamp(300)),
            outcome: Some(Outcome::Failure),
            ..Attempt::default()
        };
        let view = RecordView::default();
        let copy = EndedCopy::of(&row, &view).expect("it ended");
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
        assert!(EndedCopy::of(&goes_on, &view).is_none());
        let removal = Attempt {
            operation: Operation::Removal,
            ..row
        };
        assert!(EndedCopy::of(&removal, &view).is_none());
    }

    #[test]
    fn a_storage_element_is_an_end_of_what_it_tells_and_so_are_clients_that_move_much() {
        let row = |operation, client: &str, bytes| Attempt {
            operation,
            view: View::Site,
            server: Some("se".into()),
            client: Some(client.into()),
            bytes_moved: Some(Bytes(bytes)),
            outcome: Some(Outcome::Success),
            ..Attempt::default()
        };
        let mut count = ClientCount::default();
        let large = row(Operation::Read, "far", 900);
        let written = row(Operation::Write, "far", 60);
        let mut rows = vec![large, written];
        rows.extend((0..40).map(|node| row(Operation::Read, &format!("node{node}"), 1)));
        rows.iter().for_each(|row| count.take(row));
        let view = RecordView {
            view: View::Site,
            clients: count.link_clients(),
        };
        let link = |row: &Attempt| {
            let link = EndedCopy::of(row, &view).expect("it ended").link();
            (link.source.to_string(), link.destination.to_string())
        };
        let ends = |source: &str, destination: &str| (source.to_owned(), destination.to_owned());
        assert_eq!(link(&rows[0]), ends("se", "far"));
        assert_eq!(link(&rows[1]), ends("far", "se"));
        assert_eq!(link(&rows[2]), ends("se", "*"));
        assert_eq!(link(&row(Operation::Copy, "far", 1)), ends("*", "*"));
    }
}
