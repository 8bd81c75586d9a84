//! `penstock records collect`: takes what a site has recorded itself, so that it is accounted for, reconciled and explained
//! like the records of any other system. Both ends of a copy tell its name, by which their rows are joined.

use super::{Summary, local, open};
use crate::args::records::RecordsCollectArgs;
use crate::exit::CommandError;
use crate::output::Output;
use crate::site::config::{Config, DatabasePlace};
use crate::site::directory::SiteDirectory;
use crate::site::element_rows::{ledger_row, mover_row, server_name};
use crate::site::host_record::{ROOT, sampler_config};
use penstock_journal::JournalReader;
use penstock_model::observation::{Observation, Text, View};
use penstock_model::{PoolSamples, Timestamp};
use penstock_observe::host::machine::look;
use penstock_observe::host::store::Store as HostStore;
use penstock_observe::host_rows;
use penstock_observe::host_signals::HostEquipment;
use penstock_observe::ledger_rows::each_attempt;
use penstock_observe::minute_rows::samples_of;
use penstock_observe::pool_rows;
use penstock_observe::store::{Positions, Store, StoreError};
use penstock_persistence::journal::{SqliteReader, TakenMinutes};
use penstock_persistence::namespace::{ElementRecord, LedgerReader, MoverRecord, NamespaceError};
use std::path::Path;
use std::sync::Arc;

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
            "{} has neither [transfer] nor [storage], so it keeps no records",
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
        collected = collector
            .storage_element(&site, &config)
            .and_then(|()| collector.host(&site, &config));
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
                "this site's transfers are recorded in PostgreSQL, which cannot be collected; use --view site"
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
        let server = Some(server_name(config));
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
            let mut row = mover_row(record);
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

    /// What was sampled of the host that the site runs on, and what changed there. Interfaces and disks are told as they are
    /// now.
    fn host(&mut self, site: &SiteDirectory, config: &Config) -> Result<(), CommandError> {
        let sampled = sampler_config(site, config);
        let server = server_name(config);
        let path = &sampled.directory;
        let failed = |why: std::io::Error| CommandError::local(path.display(), why);
        let identity = path.as_os_str().as_encoded_bytes();
        let machine = look(Path::new(ROOT), &sampled.declared);
        let equipment = HostEquipment {
            interfaces: &machine.interfaces,
            disks: &machine.disks,
        };
        let store = HostStore::at(path);

        // Known by the begin of the last minute, and changes by their time.
        let minutes: Text = format!("penstock-host:{}", config.site.name).into();
        let taken = self.taken(&minutes, identity, u64::MAX);
        let (from, mut last) = (Timestamp(taken.saturating_add(1).cast_signed()), taken);
        let read = store.minutes(from, penstock_clock::wall_clock(), |minute| {
            last = last.max(u64::try_from(minute.from.0).unwrap_or(0));
            let rows = host_rows::samples_of(&minute, equipment, &server);
            for (line, row) in (0..).zip(rows) {
                self.take(Observation::from(row).with_origin(&minutes, line));
            }
        });
        read.map_err(failed)?;
        self.save(&minutes, identity, last)?;

        let facts: Text = format!("penstock-facts:{}", config.site.name).into();
        let taken = self.taken(&facts, identity, u64::MAX);
        let mut last = taken;
        for (line, fact) in (0..).zip(store.changes().map_err(failed)?) {
            let at = u64::try_from(fact.at.0).unwrap_or(0);
            if at > taken {
                last = last.max(at);
                let row = Observation::from(host_rows::change_of(&fact, &server));
                self.take(row.with_origin(&facts, line));
            }
        }
        self.save(&facts, identity, last)
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
