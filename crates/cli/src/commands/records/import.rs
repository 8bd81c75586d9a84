//! `penstock records import`: what was exported becomes records again. All files of a command are taken, or none.

use super::{CHUNK_BYTES, Summary, check_room, local, open};
use crate::args::records::RecordsImportArgs;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_model::ChecksumAlgorithm;
use penstock_model::observation::{
    Attempt, Change, Family, Incident, NamespaceChange, Observation, Row, Sample,
};
use penstock_observe::importing::{InvalidLine, LineFormat, LineImport, SourceHints};
use penstock_observe::records::parquet::{self, InvalidParquet};
use penstock_observe::store::{Positions, Store};
use penstock_protocol::checksum;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::Path;

/// Between two looks at the room on the disk.
const ROWS_BETWEEN_LOOKS: u64 = 1_000;

pub(super) fn run(args: &RecordsImportArgs, output: Output) -> Result<(), CommandError> {
    let mut store = open(&args.into)?;
    let mut positions = Positions::open(&args.into).map_err(local)?;
    let mut files = BTreeMap::new();
    for path in &args.files {
        let content = FileContent::of(path)?;
        let known = positions.find(&content.name, &[], content.size_bytes);
        let is_named_twice = files.insert(content.name.clone(), content).is_some();
        if !args.again && (known.is_some() || is_named_twice) {
            let when = match is_named_twice {
                true => "is named twice, or another file has the same content",
                false => "was imported before",
            };
            return Err(CommandError::Usage(format!(
                "{} {when}, so its rows are duplicates; nothing was imported; use --again to import them anyway",
                path.display()
            )));
        }
    }
    store.begin_batch().map_err(local)?;
    let mut import = Import {
        args,
        store,
        summary: Summary::default(),
        looked_at: 0,
    };
    if let Err(why) = args.files.iter().try_for_each(|path| import.file(path)) {
        // Whoever mends the one file imports all of them again.
        if let Err(why) = import.store.take_back_batch() {
            Output::error(&format!(
                "the rows imported from the other files will be removed at the next write: {why}"
            ));
        }
        return Err(why);
    }
    for content in files.into_values() {
        positions.set(&content.name, &[], content.size_bytes, 0);
    }
    import.store.keep_batch(&positions).map_err(local)?;
    import.summary.torn(import.store.torn_tails());
    import.summary.show(output)
}

/// What a file holds, by which an import knows it again under any name.
struct FileContent {
    /// Among the positions of a store.
    name: String,
    size_bytes: u64,
}

impl FileContent {
    fn of(path: &Path) -> Result<FileContent, CommandError> {
        let failed = |why: std::io::Error| cannot_read(path, &why);
        let file = File::open(path).map_err(failed)?;
        let size_bytes = file.metadata().map_err(failed)?.len();
        let digest = checksum::of_file(&file, &[ChecksumAlgorithm::Sha256]).map_err(failed)?;
        let digest: String = digest.iter().map(ToString::to_string).collect();
        Ok(FileContent {
            name: format!("import:{digest}"),
            size_bytes,
        })
    }
}

fn cannot_read(path: &Path, why: &std::io::Error) -> CommandError {
    match why.kind() {
        std::io::ErrorKind::NotFound => {
            CommandError::NotFound(format!("{}: {why}", path.display()))
        }
        _ => CommandError::local(path.display(), why),
    }
}

/// Files that become rows.
struct Import<'a> {
    args: &'a RecordsImportArgs,
    store: Store,
    summary: Summary,
    /// Rows when the room on the disk was last looked at.
    looked_at: u64,
}

impl Import<'_> {
    fn file(&mut self, path: &Path) -> Result<(), CommandError> {
        let failed = |why: std::io::Error| cannot_read(path, &why);
        let mut file = File::open(path).map_err(failed)?;
        let mut magic = Vec::new();
        (&mut file)
            .take(4)
            .read_to_end(&mut magic)
            .map_err(failed)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        if magic == b"PAR1" {
            let wrong = |why: InvalidParquet| match why {
                InvalidParquet::Disk(why) => CommandError::local(path.display(), why),
                other => CommandError::Usage(format!("{}: {other}", path.display())),
            };
            return match parquet::family_of(&mut file).map_err(wrong)? {
                Family::Attempt => self.table::<Attempt>(&mut file, wrong),
                Family::Sample => self.table::<Sample>(&mut file, wrong),
                Family::Change => self.table::<Change>(&mut file, wrong),
                Family::Incident => self.table::<Incident>(&mut file, wrong),
                Family::NamespaceChange => self.table::<NamespaceChange>(&mut file, wrong),
            };
        }
        let told = SourceHints::default();
        let mut lines = LineImport::new(LineFormat::Records.parser(&told), "".into(), &told);
        let mut outcome = Ok(());
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = file.read(&mut chunk).map_err(failed)?;
            let mut take = |row: Result<Observation, InvalidLine>| match row {
                Ok(row) if outcome.is_ok() => outcome = self.line(&row),
                Ok(_) => {}
                Err(why) => self.summary.invalid(format!("{}: {why}", path.display())),
            };
            match length {
                0 => lines.finish(&mut take),
                length => lines.feed(&chunk[..length], &mut take),
            }
            if length == 0 || outcome.is_err() {
                return outcome;
            }
        }
    }

    fn line(&mut self, row: &Observation) -> Result<(), CommandError> {
        self.summary.take(row, &mut self.store).map_err(local)?;
        self.look_at_room()
    }

    fn table<R: Row>(
        &mut self,
        file: &mut File,
        wrong: impl Fn(InvalidParquet) -> CommandError,
    ) -> Result<(), CommandError> {
        let mut outcome = Ok(());
        let read = parquet::read(file, |row: &R| {
            let taken = self.summary.take_row(row, &mut self.store).map_err(local);
            outcome = taken.and_then(|()| self.look_at_room());
            match outcome {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        read.map_err(wrong)?;
        outcome
    }

    /// Few bytes can be many rows: the disk tells whether there is room for them.
    fn look_at_room(&mut self) -> Result<(), CommandError> {
        if self.summary.rows() < self.looked_at + ROWS_BETWEEN_LOOKS {
            return Ok(());
        }
        self.looked_at = self.summary.rows();
        check_room(&self.args.into, self.args.free_min, "importing")
    }
}
