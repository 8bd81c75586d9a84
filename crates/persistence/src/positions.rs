//! How far each sink of messages was told, in PostgreSQL: whichever node leads goes on from there.

use crate::postgres::session::{Purpose, Sessions};
use crate::postgres::{Database, DatabaseError, text};
use crate::sql_integer::from_sql;

/// The positions of all sinks. Calls block.
#[derive(Debug)]
pub struct SinkPositions {
    sessions: Sessions,
}

impl SinkPositions {
    /// Connects when it is asked first. The tables must be there: whoever leads has made them.
    pub fn open(database: &Database) -> Result<SinkPositions, DatabaseError> {
        Ok(SinkPositions {
            sessions: Sessions::start(database, Purpose::Write, 1)?,
        })
    }

    /// The sequence number of the last ledger entry that a sink was told; `None` when it was never told anything.
    pub fn read(&self, sink: &str) -> Result<Option<u64>, DatabaseError> {
        let sink = text(sink);
        self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            let sql = "SELECT sequence FROM sink_position WHERE sink = $1";
            let row = open.query_opt(sql, &[&sink])?;
            open.commit()?;
            Ok(row.map(|row| from_sql(row.get(0))))
        })
    }

    /// Remembers it. A leader that was deposed meanwhile does not set it back.
    pub fn write(&self, sink: &str, sequence: u64) -> Result<(), DatabaseError> {
        let (sink, sequence) = (text(sink), i64::try_from(sequence).unwrap_or(i64::MAX));
        self.sessions.ask(move |session| {
            let mut open = session.begin()?;
            open.execute(
                "INSERT INTO sink_position (sink, sequence) VALUES ($1, $2)
                 ON CONFLICT (sink) DO UPDATE SET sequence = greatest(sink_position.sequence, excluded.sequence)",
                &[&sink, &sequence],
            )?;
            open.commit()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::lab;

    #[test]
    fn it_is_read_as_it_was_written_and_never_goes_back() {
        let database = lab::database();
        crate::cluster::Cluster::open(&database).expect("makes the tables");
        let positions = SinkPositions::open(&database).expect("opens");
        assert_eq!(positions.read("a").expect("readable"), None);
        for (told, expected) in [(3, 3), (9, 9), (4, 9)] {
            positions.write("a", told).expect("written");
            assert_eq!(positions.read("a").expect("readable"), Some(expected));
        }
        assert_eq!(positions.read("b").expect("readable"), None);
    }
}
