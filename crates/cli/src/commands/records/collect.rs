//! `penstock records collect`: takes what a site has recorded itself, so that it is accounted for, reconciled and explained
//! like the records of any other system. Both ends of a copy tell its name, by which their rows are joined.

use super::{Summary, local, open};
use crate::args::records::RecordsCollectArgs;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::{Config, DatabasePlace};
use crate::site::directory::SiteDirectory;
use penstock_journal::JournalReader;
use penstock_model::observation::{
    Attempt, Incident, IncidentKind, NamespaceChange, Observation, Operation, Outcome, Text, View,
};
use penstock_model::{PoolSamples, Timestamp};
use penstock_observe::ledger_rows::each_attempt;
use penstock_observe::minute_rows::samples_of;
use penstock_observe::pool_rows;
use penstock_observe::store::{Positions, Store, StoreError};
use penstock_persistence::journal::{SqliteReader, TakenMinutes};
use penstock_persistence::namespace::{
    ElementEvent, ElementRecord, GapCause, LedgerReader, MoverKind, MoverOutcome, MoverRecord,
    NamespaceError,
};
use std::sync::Arc;
use std::time::Duration;

/// Rows read in one go.
const BATCH: usize = 5_000;
/// Minutes read in one go.
const MINUTES_AT_ONCE: usize = 60;

pub(super) fn run(args: &RecordsCollectArgs, output: Output) -> Result<(), CommandError> {
    let site = SiteDirectory::at(&args.dir)?;
    let config = site.config()?;
    let is_wanted = |view| args.view.is_none_or(|wanted| wanted == view);
    if config.transfer.is_none() && config.storage.is_none() {
        return Err(CommandError::Usage(format!(
            "{} has neither [transfer] nor [storage]: it keeps no record",
            site.config_file().display()
        )));
    }
    let mut collector = RecordCollector {
        store: open(&args.into)?,
        positions: Positions::open(&args.into).map_err(local)?,
        summary: Summary::default(),
        failed: None,
    };
    collector.store.begin_batch().map_err(local)?;
    let mut collected = Ok(());
    if is_wanted(View::Vo) {
        collected = collector.transfers(&site, &config);
    }
    if is_wanted(View::Site) && collected.is_ok() {
        collected = collector.storage_element(&site, &config);
    }
    if collected.is_err() {
        // Sources that were taken whole are kept. What is not cut off here is by the next that writes.
        let _ = collector.store.take_back_batch();
        return collected;
    }
    collector.summary.torn(collector.store.torn_tails());
    collector.summary.show(output)
}

struct RecordCollector {
    store: Store,
    positions: Positions,
    summary: Summary,
    failed: Option<StoreError>,
}

impl RecordCollector {
    fn take(&mut self, row: Observation) {
        if self.failed.is_none() {
            let taken = self.summary.take(&row, &mut self.store);
            self.failed = taken.err();
        }
    }

    /// How far a source was taken before, if it is still the same; `last` is what it has now.
    fn taken(&self, source: &str, identity: &[u8], last: u64) -> u64 {
        let known = self.positions.find(source, identity, last);
        known.map_or(0, |position| position.line)
    }

    /// Rows and how far they go, both or neither.
    fn save(&mut self, source: &str, identity: &[u8], last: u64) -> Result<(), CommandError> {
        self.save_position(source, identity, last, last)
    }

    /// The same of what is known by two numbers.
    fn save_position(
        &mut self,
        source: &str,
        identity: &[u8],
        first: u64,
        second: u64,
    ) -> Result<(), CommandError> {
        if let Some(why) = self.failed.take() {
            return Err(local(why));
        }
        if self.positions.set(source, identity, first, second) {
            self.store.keep_batch(&self.positions).map_err(local)?;
            self.store.begin_batch().map_err(local)?;
        }
        Ok(())
    }

    /// What the site's transfer service recorded, if it has one.
    fn transfers(&mut self, site: &SiteDirectory, config: &Config) -> Result<(), CommandError> {
        let Some(transfer) = &config.transfer else {
            return Ok(());
        };
        let DatabasePlace::File(journal) = &transfer.database else {
            return Err(CommandError::Usage(
                "this site's transfers are recorded in PostgreSQL, which is not collected from; say --view site"
                    .into(),
            ));
        };
        let path = site.resolve(journal);
        let failed = |why: &dyn std::fmt::Display| CommandError::local(path.display(), why);
        let own = SqliteReader::open(&path, 1).map_err(|why| failed(&why))?;
        let own = Arc::new(own);
        let reader: Arc<dyn JournalReader> = own.clone();
        let last = reader.last_sequence().map_err(|why| failed(&why))?;
        let source: Text = format!("penstock-transfer:{}", config.site.name).into();
        // A journal has no name of its own: it is known by its place, and that its numbers only grow.
        let place = path.canonicalize();
        let place = place.map_err(|why| CommandError::local(path.display(), why))?;
        let identity = place.as_os_str().as_encoded_bytes();
        let after = self.taken(&source, identity, last);
        let read = each_attempt(&reader, &source, after, |row| self.take(row.into()));
        let last = read.map_err(|why| failed(&why))?;
        self.save(&source, identity, last)?;
        self.minutes(&own, config, identity, &failed)
    }

    /// The minutes that the transfer service has counted. They are known by the numbers of their rows, and by their ends, in
    /// milliseconds since 1970.
    fn minutes(
        &mut self,
        reader: &SqliteReader,
        config: &Config,
        identity: &[u8],
        failed: &dyn Fn(&dyn std::fmt::Display) -> CommandError,
    ) -> Result<(), CommandError> {
        let source: Text = format!("penstock-minutes:{}", config.site.name).into();
        let known = self.positions.find(&source, identity, u64::MAX);
        let taken = known.map_or(TakenMinutes::default(), |known| TakenMinutes {
            number: known.bytes,
            until: Timestamp(i64::try_from(known.line).unwrap_or(i64::MAX)),
        });
        let last = reader.last_minute().map_err(|why| failed(&why))?;
        let (mut above, mut until) = (0, taken.until);
        loop {
            let found = reader
                .minutes_not_taken(taken, above, MINUTES_AT_ONCE)
                .map_err(|why| failed(&why))?;
            let Some((newest, _)) = found.last() else {
                break;
            };
            above = *newest;
            for (_, minute) in &found {
                until = until.max(minute.to);
                for row in samples_of(minute, &source) {
                    self.take(row.into());
                }
            }
        }
        let until = u64::try_from(until.0).unwrap_or(0);
        self.save_position(&source, identity, last.max(above), until)
    }

    /// What the site's storage element recorded, if it has one.
    fn storage_element(
        &mut self,
        site: &SiteDirectory,
        config: &Config,
    ) -> Result<(), CommandError> {
        let Some(storage) = &config.storage else {
            return Ok(());
        };
        let path = site.resolve(&storage.namespace);
        let failed = |why: NamespaceError| CommandError::Local(why.to_string());
        let reader = LedgerReader::open(&path).map_err(failed)?;
        let server: Option<Text> = config.site.hosts.first().map(|host| host.as_str().into());
        let identity = reader.namespace_id().map_err(failed)?;
        let name = |what: &str| Text::from(format!("penstock-{what}:{}", config.site.name));
        // What passed it.
        let movers = NumberedRecords {
            source: name("storage"),
            identity: &identity,
            newest: reader.last_mover().map_err(failed)?,
        };
        let after = |number| reader.movers_after(number, BATCH).map_err(failed);
        let mover = |number, record: &MoverRecord| {
            let mut row = row_of(record);
            row.server = server.clone();
            [(number, row.into())]
        };
        self.follow(&movers, after, mover)?;
        // What changed in it, and what it refused.
        let ledger = NumberedRecords {
            source: name("ledger"),
            identity: &identity,
            newest: reader.last_record().map_err(failed)?,
        };
        let after = |number| reader.records_after(number).map_err(failed);
        let event = |number, record: &ElementRecord| [(number, ledger_row(record, &server))];
        self.follow(&ledger, after, event)?;
        // What its pools did in each minute.
        let minutes = NumberedRecords {
            source: name("pools"),
            identity: &identity,
            newest: reader.last_pool_minute().map_err(failed)?,
        };
        let after = |number| reader.pool_minutes_after(number, BATCH).map_err(failed);
        // Each row is known by its place in the minute.
        let rows = |_, minute: &PoolSamples| {
            let rows = pool_rows::samples_of(minute, &server).into_iter();
            (0..).zip(rows.map(Observation::from))
        };
        self.follow(&minutes, after, rows)
    }

    /// Takes what is new, some records at a time. `after` gives those after a number, each with its own; none: there are no
    /// more. `rows_of` gives the rows of a record, each with the line by which it is known.
    fn follow<R, I: IntoIterator<Item = (u64, Observation)>>(
        &mut self,
        records: &NumberedRecords<'_>,
        after: impl Fn(u64) -> Result<Vec<(u64, R)>, CommandError>,
        rows_of: impl Fn(u64, &R) -> I,
    ) -> Result<(), CommandError> {
        let NumberedRecords {
            source,
            identity,
            newest,
        } = records;
        let mut last = self.taken(source, identity.as_bytes(), *newest);
        loop {
            let found = after(last)?;
            let Some((newest, _)) = found.last() else {
                return self.save(source, identity.as_bytes(), last);
            };
            last = *newest;
            for (number, record) in &found {
                for (line, row) in rows_of(*number, record) {
                    self.take(row.with_origin(source, line));
                }
            }
        }
    }
}

/// Records with ascending numbers.
struct NumberedRecords<'a> {
    source: Text,
    /// What their numbers are of.
    identity: &'a str,
    /// The last number that was given.
    newest: u64,
}

/// One thing of the ledger as any storage element could tell it.
fn ledger_row(record: &ElementRecord, server: &Option<Text>) -> Observation {
    let ElementRecord { at, origin, event } = record;
    let text = |text: &Option<String>| text.as_deref().map(Text::from);
    let (client, copy, challenge) = (
        text(&origin.client),
        text(&origin.copy),
        text(&origin.challenge),
    );
    match event {
        ElementEvent::Changed(changed) => NamespaceChange {
            at: *at,
            view: View::Site,
            kind: changed.kind,
            file: Some(changed.entry.to_string().into()),
            path: changed.path.as_ref().map(|path| path.to_string().into()),
            new_path: changed
                .new_path
                .as_ref()
                .map(|path| path.to_string().into()),
            file_bytes: changed.size,
            pool: changed.pool.clone(),
            server: server.clone(),
            user: origin.user.clone(),
            vo: origin.vo.clone(),
            client,
            copy,
            challenge,
            reason: changed.reason,
            ..NamespaceChange::default()
        }
        .into(),
        ElementEvent::Refused(refusal) => Attempt {
            at: *at,
            view: View::Site,
            operation: Operation::Request,
            attempt: copy.clone(),
            copy,
            challenge,
            source_path: refusal.path.as_ref().map(|path| path.to_string().into()),
            vo: origin.vo.clone(),
            user: origin.user.clone(),
            protocol: Some("http".into()),
            server: server.clone(),
            client,
            ended: Some(*at),
            outcome: Some(Outcome::Failure),
            error_code: Some(i64::from(refusal.status)),
            fingerprint: Some(format!("{} {}", refusal.method, refusal.code).into()),
            detail: Some(refusal.detail.as_str().into()),
            ..Attempt::default()
        }
        .into(),
        ElementEvent::Gap(gap) => Incident {
            at: gap.from.unwrap_or(*at),
            view: View::Site,
            kind: IncidentKind::Gap,
            subject: server.clone(),
            code: Some(gap.cause.word().into()),
            detail: Some(missing(gap.cause).into()),
            count: gap.lost,
            until: Some(*at),
            ..Incident::default()
        }
        .into(),
    }
}

/// What may be missing, for people.
fn missing(cause: GapCause) -> &'static str {
    match cause {
        GapCause::Crash => {
            "the storage element did not end by itself; reads, refusals and movers of its last second are missing, \
             changes are complete"
        }
        GapCause::Overload => "more happened at once than is recorded",
        GapCause::Unwritten => "the database of the namespace did not take these records",
        GapCause::Restored => {
            "the namespace was restored from a backup; what came after it is not known"
        }
        GapCause::Rebuilt => {
            "the namespace was made anew from the pools; what came before is not known"
        }
        GapCause::Damaged => "a row of the ledger cannot be read; check the disk of the namespace",
    }
}

/// One mover as any storage element could tell it.
fn row_of(record: &MoverRecord) -> Attempt {
    let reads = matches!(record.kind, MoverKind::Get | MoverKind::Push);
    let path: Option<Text> = Some(record.path.to_string().into());
    let (mut source_path, mut destination_path) = (None, None);
    match reads {
        true => source_path = path,
        false => destination_path = path,
    }
    let name = record.copy.as_deref().map(Text::from);
    let (outcome, detail) = match &record.outcome {
        MoverOutcome::Done => (Outcome::Success, None),
        MoverOutcome::Failed(detail) => (Outcome::Failure, Some(detail)),
        MoverOutcome::Aborted(detail) => (Outcome::Abort, Some(detail)),
    };
    let is_done = outcome == Outcome::Success;
    let row = Attempt {
        at: record.at,
        view: View::Site,
        operation: operation_of(record.kind),
        attempt: name.clone(),
        copy: name,
        challenge: record.challenge.as_deref().map(Text::from),
        source_path,
        destination_path,
        vo: record.vo.clone(),
        user: record.user.clone(),
        client: Some(record.peer.as_str().into()),
        pool: record.pool.clone(),
        bytes_moved: Some(record.moved),
        bytes_read: (record.kind == MoverKind::Get).then_some(record.moved),
        bytes_written: (record.kind == MoverKind::Put).then_some(record.moved),
        // Of a file that was written whole, what came is its size.
        file_bytes: record
            .file_size
            .or((is_done && !reads).then_some(record.moved)),
        started: Some(before(record.at, record.duration_us)),
        ended: Some(record.at),
        derived: Some("started".into()),
        outcome: Some(outcome),
        detail: detail.map(|detail| detail.as_str().into()),
        ..Attempt::default()
    };
    let row = row.with_stages(&record.stages);
    match &record.tcp {
        Some(tcp) => row.with_tcp(tcp),
        None => row,
    }
}

fn operation_of(kind: MoverKind) -> Operation {
    match kind {
        MoverKind::Get => Operation::Read,
        MoverKind::Put => Operation::Write,
        MoverKind::Pull | MoverKind::Push => Operation::Copy,
        MoverKind::Copy => Operation::PoolCopy,
    }
}

fn before(at: Timestamp, microseconds: u64) -> Timestamp {
    at - Duration::from_micros(microseconds)
}
