//! `penstock records`: shows, collects, exports, imports and removes records of what happened.

mod collect;
mod import;

use crate::args::records::{
    ExportFormat, RecordsCommand, RecordsExportArgs, RecordsRemoveArgs, RecordsShowArgs,
};
use crate::exit::CommandError;
use crate::output::Output;
use penstock_model::observation::{
    Attempt, Change, Family, Incident, NamespaceChange, Observation, Row, Sample,
};
use penstock_model::quantity::Size;
use penstock_model::text::plural;
use penstock_model::{Bytes, TimeWindow};
use penstock_observe::importing::xrootd::{
    AFTER_ARRIVAL_MAX, BEFORE_ARRIVAL_MAX, InvalidDatagram, ROWS_AT_ONCE_MAX, ROWS_PER_SECOND_MAX,
};
use penstock_observe::records::ndjson;
use penstock_observe::records::parquet::ParquetWriter;
use penstock_observe::store::{Reader, Store, StoreError, TornTail};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Lines that are told one by one; the others are counted.
const INVALID_TOLD_MAX: usize = 10;
const CHUNK_BYTES: usize = 1 << 20;

/// `penstock records`.
pub fn run(command: RecordsCommand, output: Output) -> Result<(), CommandError> {
    match command {
        RecordsCommand::Show(args) => show(&args, output),
        RecordsCommand::Export(args) => export(&args, output),
        RecordsCommand::Collect(args) => collect::run(&args, output),
        RecordsCommand::Import(args) => import::run(&args, output),
        RecordsCommand::Remove(args) => remove(&args, output),
    }
}

/// What a store could not do, for the shell.
pub(super) fn local(why: StoreError) -> CommandError {
    match why {
        StoreError::Foreign { .. } => CommandError::Usage(why.to_string()),
        StoreError::Disk { why: ref cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => {
            CommandError::NotFound(why.to_string())
        }
        StoreError::Disk { .. }
        | StoreError::Locked(_)
        | StoreError::Poisoned(_)
        | StoreError::NoTime(_) => CommandError::Local(why.to_string()),
    }
}

/// Opens a store to write.
pub(super) fn open(directory: &Path) -> Result<Store, CommandError> {
    Store::open(directory).map_err(local)
}

/// Errors: less than `free_min` is free where the records are. `doing` is what ends because of it.
pub(super) fn check_room(
    records: &Path,
    free_min: Size,
    doing: &'static str,
) -> Result<(), CommandError> {
    let space = rustix::fs::statvfs(records);
    let space = space.map_err(|why| CommandError::local(records.display(), why))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    match free >= free_min.0 {
        true => Ok(()),
        false => Err(CommandError::Local(format!(
            "stopped {doing}: {} has only {} free, and --free-min is {}; free some space (penstock records remove), or \
             write to another disk",
            records.display(),
            Bytes(free),
            Bytes(free_min.0)
        ))),
    }
}

/// What came of an import.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    attempts: u64,
    samples: u64,
    changes: u64,
    incidents: u64,
    namespace_changes: u64,
    /// Lines or datagrams that were not understood.
    pub(super) invalid: u64,
    first_invalid: Vec<String>,
    /// Rows that a listener refused because their time is far from their arrival.
    pub(super) far_from_arrival: u64,
    /// Rows that a listener refused because too many came of one address in a second.
    pub(super) over_rate: u64,
    /// Datagrams that a listener refused because `--from` does not name their senders.
    pub(super) of_other_senders: u64,
    /// What a crash had torn off, in bytes.
    torn_bytes: u64,
}

impl Summary {
    pub(super) fn rows(&self) -> u64 {
        self.attempts + self.samples + self.changes + self.incidents + self.namespace_changes
    }

    fn count(&mut self, family: Family) {
        let count = match family {
            Family::Attempt => &mut self.attempts,
            Family::Sample => &mut self.samples,
            Family::Change => &mut self.changes,
            Family::Incident => &mut self.incidents,
            Family::NamespaceChange => &mut self.namespace_changes,
        };
        *count += 1;
    }

    pub(super) fn invalid(&mut self, why: String) {
        self.invalid += 1;
        if self.first_invalid.len() < INVALID_TOLD_MAX {
            self.first_invalid.push(why);
        }
    }

    pub(super) fn invalid_datagram(
        &mut self,
        number: u64,
        sender: &SocketAddr,
        why: InvalidDatagram,
    ) {
        self.invalid(format!("datagram {number} of {sender}: {why}"));
    }

    /// A line for people who watch.
    pub(super) fn progress(&self) -> String {
        let mut text = format!("{} rows, {} unreadable lines", self.rows(), self.invalid);
        for (count, what) in [
            (self.far_from_arrival, "rows refused for their time"),
            (self.over_rate, "rows refused because too many came"),
            (self.of_other_senders, "datagrams of others refused"),
        ] {
            if count > 0 {
                text += &format!(", {count} {what}");
            }
        }
        text
    }

    /// Appends a row and counts it. One that has no time of a record counts as not understood.
    pub(super) fn take(&mut self, row: &Observation, store: &mut Store) -> Result<(), StoreError> {
        match row {
            Observation::Attempt(row) => self.take_row::<Attempt>(row, store),
            Observation::Sample(row) => self.take_row::<Sample>(row, store),
            Observation::Change(row) => self.take_row::<Change>(row, store),
            Observation::Incident(row) => self.take_row::<Incident>(row, store),
            Observation::NamespaceChange(row) => self.take_row::<NamespaceChange>(row, store),
        }
    }

    /// The same, of a family that is known.
    fn take_row<R: Row>(&mut self, row: &R, store: &mut Store) -> Result<(), StoreError> {
        match store.append_row(row) {
            Err(why @ StoreError::NoTime(_)) => self.invalid(why.to_string()),
            Err(why) => return Err(why),
            Ok(()) => self.count(R::FAMILY),
        }
        Ok(())
    }

    pub(super) fn torn(&mut self, tails: &[TornTail]) {
        self.torn_bytes = tails.iter().map(|tail| tail.bytes.0).sum();
    }

    /// Prints it; an error when something was left out.
    pub(super) fn show(&self, output: Output) -> Result<(), CommandError> {
        let left_out =
            self.invalid + self.far_from_arrival + self.over_rate + self.of_other_senders;
        let outcome = match left_out {
            0 => Ok(()),
            _ => Err(CommandError::Incomplete),
        };
        self.conclude(output, outcome)
    }

    /// Prints it beside what ended the command.
    pub(super) fn conclude(
        &self,
        output: Output,
        outcome: Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        output.conclude(self, || self.text(), outcome)
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} rows: {} attempts, {} samples, {} changes, {} incidents, {} changes of namespaces\n",
            self.rows(),
            self.attempts,
            self.samples,
            self.changes,
            self.incidents,
            self.namespace_changes
        );
        for why in &self.first_invalid {
            text += &format!("skipped: {why}\n");
        }
        if self.invalid > 0 {
            text += &format!("skipped {}\n", plural(self.invalid, "unreadable line"));
        }
        if self.far_from_arrival > 0 {
            text += &format!(
                "skipped {} rows because of their time: a listener accepts times from {} hours before to {} minutes after \
                 the arrival of a datagram. Check the clock of the sending server\n",
                self.far_from_arrival,
                BEFORE_ARRIVAL_MAX.as_secs() / 3600,
                AFTER_ARRIVAL_MAX.as_secs() / 60
            );
        }
        if self.over_rate > 0 {
            text += &format!(
                "skipped {} rows because too many arrived: the limit for one address is {ROWS_AT_ONCE_MAX} at once and \
                 {ROWS_PER_SECOND_MAX} per second. Incidents of the kind gap name the addresses\n",
                self.over_rate
            );
        }
        if self.of_other_senders > 0 {
            text += &format!(
                "skipped {} because --from does not name the sender\n",
                plural(self.of_other_senders, "datagram")
            );
        }
        if self.torn_bytes > 0 {
            text += &format!(
                "{} bytes left incomplete by a crash were moved to *.torn files; they had not been acknowledged\n",
                self.torn_bytes
            );
        }
        text
    }
}

fn show(args: &RecordsShowArgs, output: Output) -> Result<(), CommandError> {
    let mut reader = Reader::open(&args.directory).map_err(local)?;
    let mut rows: Vec<Observation> = Vec::new();
    let mut count = 0_u64;
    let mut take = |row: Observation| {
        count += 1;
        if rows.len() < args.limit {
            rows.push(row);
        }
    };
    let window = args.window.window();
    match args.family {
        None => reader.each_of_all(window, take),
        Some(Family::Attempt) => {
            reader.each::<Attempt>(window, &[], |row| take(row.clone().into()))
        }
        Some(Family::Sample) => reader.each::<Sample>(window, &[], |row| take(row.clone().into())),
        Some(Family::Change) => reader.each::<Change>(window, &[], |row| take(row.clone().into())),
        Some(Family::Incident) => {
            reader.each::<Incident>(window, &[], |row| take(row.clone().into()))
        }
        Some(Family::NamespaceChange) => {
            reader.each::<NamespaceChange>(window, &[], |row| take(row.clone().into()))
        }
    }
    .map_err(local)?;
    #[derive(Serialize)]
    struct ShownRecords {
        count: u64,
        rows: Vec<Observation>,
        skipped_bytes: u64,
    }
    let skipped_bytes = reader.skipped().iter().map(|skipped| skipped.bytes.0).sum();
    let shown = ShownRecords {
        count,
        rows,
        skipped_bytes,
    };
    output.show(&shown, || {
        let mut text: String = shown
            .rows
            .iter()
            .map(|row| ndjson::line(row) + "\n")
            .collect();
        text += &format!("{count} rows");
        if (shown.rows.len() as u64) < count {
            text += &format!(", {} shown", shown.rows.len());
        }
        text += "\n";
        if skipped_bytes > 0 {
            text += &format!(
                "{skipped_bytes} bytes could not be read: they are being written or damaged\n"
            );
        }
        text
    });
    Ok(())
}

#[derive(Debug, Serialize)]
struct ExportReport {
    rows: u64,
    files: Vec<PathBuf>,
}

fn export(args: &RecordsExportArgs, output: Output) -> Result<(), CommandError> {
    let mut reader = Reader::open(&args.directory).map_err(local)?;
    let window = args.window.window();
    let exported = match args.format {
        ExportFormat::Ndjson => export_lines(&mut reader, window, &args.to)?,
        ExportFormat::Parquet => {
            std::fs::create_dir(&args.to).map_err(|why| cannot_write(&args.to, &why))?;
            let mut exported = ExportReport {
                rows: 0,
                files: Vec::new(),
            };
            export_table::<Attempt>(&mut reader, window, &args.to, &mut exported)?;
            export_table::<Sample>(&mut reader, window, &args.to, &mut exported)?;
            export_table::<Change>(&mut reader, window, &args.to, &mut exported)?;
            export_table::<Incident>(&mut reader, window, &args.to, &mut exported)?;
            export_table::<NamespaceChange>(&mut reader, window, &args.to, &mut exported)?;
            exported
        }
    };
    if !reader.skipped().is_empty() {
        let bytes: u64 = reader.skipped().iter().map(|skipped| skipped.bytes.0).sum();
        let what = format!("{bytes} bytes could not be read and were not exported");
        return Err(CommandError::Verification(what));
    }
    output.show(&exported, || {
        let names: Vec<String> = exported
            .files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        format!("{} rows in {}\n", exported.rows, names.join(", "))
    });
    Ok(())
}

fn cannot_write(path: &Path, why: &std::io::Error) -> CommandError {
    match why.kind() {
        std::io::ErrorKind::AlreadyExists => {
            CommandError::Usage(format!("{} exists", path.display()))
        }
        _ => CommandError::local(path.display(), why),
    }
}

fn create(path: &Path) -> Result<BufWriter<File>, CommandError> {
    // Rows tell of users, clients and paths: whoever may read them is for the person who exports them to say.
    let file = File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path);
    let file = file.map_err(|why| cannot_write(path, &why))?;
    Ok(BufWriter::with_capacity(CHUNK_BYTES, file))
}

fn export_lines(
    reader: &mut Reader,
    window: TimeWindow,
    path: &Path,
) -> Result<ExportReport, CommandError> {
    let mut file = create(path)?;
    let mut outcome = writeln!(file, "{}", ndjson::heading());
    let mut rows = 0;
    let read = reader.each_of_all(window, |row| {
        if outcome.is_ok() {
            outcome = writeln!(file, "{}", ndjson::line(&row));
            rows += 1;
        }
    });
    read.map_err(local)?;
    let written = outcome.and_then(|()| file.flush());
    written.map_err(|why| CommandError::local(path.display(), why))?;
    Ok(ExportReport {
        rows,
        files: vec![path.to_owned()],
    })
}

fn export_table<R: Row>(
    reader: &mut Reader,
    window: TimeWindow,
    directory: &Path,
    exported: &mut ExportReport,
) -> Result<(), CommandError> {
    let path = directory.join(format!("{}.parquet", R::FAMILY.word()));
    let failed = |why: std::io::Error| CommandError::local(path.display(), why);
    let mut writer = ParquetWriter::<R, _>::new(create(&path)?).map_err(failed)?;
    let mut outcome = Ok(());
    let mut rows = 0;
    let read = reader.each::<R>(window, &[], |row| {
        if outcome.is_ok() {
            outcome = writer.push(row);
            rows += 1;
        }
    });
    read.map_err(local)?;
    outcome.map_err(failed)?;
    writer
        .finish()
        .and_then(|mut file| file.flush())
        .map_err(failed)?;
    if rows == 0 {
        return std::fs::remove_file(&path).map_err(failed);
    }
    exported.rows += rows;
    exported.files.push(path);
    Ok(())
}

fn remove(args: &RecordsRemoveArgs, output: Output) -> Result<(), CommandError> {
    // What is not there is not made.
    Reader::open(&args.directory).map_err(local)?;
    let mut store = open(&args.directory)?;
    let removed = store.remove_before(args.before.at()).map_err(local)?;
    output.show(&removed, || {
        let names = removed
            .iter()
            .map(|path| format!("removed {}\n", path.display()));
        names
            .chain([format!("{} files\n", removed.len())])
            .collect()
    });
    Ok(())
}
