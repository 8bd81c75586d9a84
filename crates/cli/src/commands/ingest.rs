//! `penstock ingest`: what other systems wrote becomes records.

mod listener;

use super::records::{Summary, local, open};
use crate::args::records::{IngestArgs, SourceFormat};
use crate::exit::CommandError;
use crate::output::Output;
use penstock_model::observation::{Observation, Text};
use penstock_observe::importing::xrootd::MonitoringStreams;
use penstock_observe::importing::{InvalidLine, LineImport, LogMapping, Parser, SourceHints, pcap};
use penstock_observe::store::{BEGINNING_BYTES, Positions, Store};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};

const CHUNK_BYTES: usize = 1 << 20;
/// A mapping is read by people.
const MAPPING_BYTES_MAX: u64 = 1 << 20;
const CAPTURE_BYTES_MAX: u64 = 4 << 30;
/// How often what came is made durable, and how often a file that does not grow is looked at.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
const LOG_EVERY: Duration = Duration::from_secs(5);

/// `penstock ingest`.
pub async fn run(args: IngestArgs, output: Output) -> Result<(), CommandError> {
    let mut ingest = Ingest::new(&args, output)?;
    match (args.listen, args.format) {
        (Some(address), SourceFormat::Xrootd) => return ingest.listen(address).await,
        (Some(_), _) => {
            let what = "--listen is for xrootd: other sources are read from files";
            return Err(CommandError::Usage(what.to_owned()));
        }
        (None, _) if args.files.is_empty() => {
            let what = "name the files to read; `-` is standard input";
            return Err(CommandError::Usage(what.to_owned()));
        }
        (None, SourceFormat::Xrootd) => ingest.captures()?,
        (None, _) if args.follow => ingest.follow().await?,
        (None, _) => ingest.files()?,
    }
    ingest.end()
}

struct Ingest<'a> {
    args: &'a IngestArgs,
    output: Output,
    told: SourceHints,
    mapping: Option<LogMapping>,
    store: Store,
    positions: Positions,
    summary: Summary,
    failed: Option<CommandError>,
    told_at: Instant,
    saved_at: Instant,
}

/// What becomes of bytes behind the last end of a line.
#[derive(Debug, Clone, Copy)]
enum Tail {
    /// They were taken as a line.
    Taken,
    /// They are read again.
    Open,
}

/// A file that is being read.
struct Source {
    name: String,
    file: File,
    beginning: Vec<u8>,
    bytes: u64,
    import: LineImport,
}

impl<'a> Ingest<'a> {
    fn new(args: &'a IngestArgs, output: Output) -> Result<Ingest<'a>, CommandError> {
        let mapping = match (&args.mapping, args.format) {
            (Some(path), SourceFormat::Log) => Some(read_mapping(path)?),
            (None, SourceFormat::Log) => {
                let what = "a log needs --mapping FILE (docs/observe/mapping.md)";
                return Err(CommandError::Usage(what.to_owned()));
            }
            (Some(_), _) => {
                let what = "--mapping is for the format log";
                return Err(CommandError::Usage(what.to_owned()));
            }
            (None, _) => None,
        };
        let told = SourceHints {
            year: args.year,
            zone_milliseconds: args.zone.unwrap_or(0),
            at: args.at.map(|at| at.at()),
            server: args.server.as_deref().map(Text::from),
            challenge: args.challenge.as_deref().map(Text::from),
            storage_class_is_vo: args.storage_class_is_vo,
        };
        Ok(Ingest {
            args,
            output,
            told,
            mapping,
            store: open(&args.into)?,
            positions: Positions::open(&args.into).map_err(local)?,
            summary: Summary::default(),
            failed: None,
            told_at: Instant::now(),
            saved_at: Instant::now(),
        })
    }

    fn parser(&self) -> Box<dyn Parser> {
        match (self.args.format.lines(), &self.mapping) {
            (Some(format), _) => format.parser(&self.told),
            (None, Some(mapping)) => mapping.parser(&self.told),
            (None, None) => unreachable!("a log without a mapping was refused"),
        }
    }

    /// What stands in rows.
    fn source_name(&self, path: &Path) -> Text {
        let file = path.file_name().map(|name| name.to_string_lossy());
        let named = self.args.source.clone();
        let own = || format!("{}:{}", self.args.format.name(), file.unwrap_or_default());
        named.unwrap_or_else(own).into()
    }

    fn files(&mut self) -> Result<(), CommandError> {
        for path in &self.args.files {
            if path == Path::new("-") {
                self.standard_input()?;
                continue;
            }
            let mut source = self.open_source(path)?;
            while self.read_on(&mut source)? {
                self.progress();
                if self.saved_at.elapsed() >= FLUSH_EVERY {
                    self.save([&source], Tail::Open)?;
                }
            }
            self.feed(&mut source.import, &[])?;
            self.save([&source], Tail::Taken)?;
        }
        Ok(())
    }

    fn standard_input(&mut self) -> Result<(), CommandError> {
        let name = self.source_name(Path::new("-"));
        let mut import = LineImport::new(self.parser(), name, &self.told);
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut input = std::io::stdin().lock();
        loop {
            let length = input.read(&mut chunk);
            let length = length.map_err(|why| CommandError::local("standard input", why))?;
            self.feed(&mut import, &chunk[..length])?;
            if length == 0 {
                break;
            }
            self.progress();
        }
        self.save([], Tail::Open)
    }

    async fn follow(&mut self) -> Result<(), CommandError> {
        let mut stop = Stop::listen()?;
        let mut sources = Vec::new();
        for path in &self.args.files {
            sources.push((path, self.open_source(path)?));
        }
        self.output
            .say("following the files; stop with SIGTERM or Ctrl-C");
        loop {
            let mut grew = false;
            for (path, source) in &mut sources {
                grew |= self.read_on(source)?;
                // A log that was rotated begins anew under its name.
                let size = std::fs::metadata(path.as_path()).map(|metadata| metadata.len());
                if size.is_ok_and(|size| size < source.bytes) {
                    *source = self.open_source(path)?;
                }
            }
            self.progress();
            if grew && self.saved_at.elapsed() < FLUSH_EVERY {
                continue;
            }
            self.save(sources.iter().map(|(_, source)| source), Tail::Open)?;
            let pause = match grew {
                true => Duration::ZERO,
                false => FLUSH_EVERY,
            };
            tokio::select! {
                () = stop.asked() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn open_source(&self, path: &Path) -> Result<Source, CommandError> {
        let failed = |why: std::io::Error| match why.kind() {
            std::io::ErrorKind::NotFound => {
                CommandError::NotFound(format!("{}: {why}", path.display()))
            }
            _ => CommandError::local(path.display(), why),
        };
        let mut file = File::open(path).map_err(failed)?;
        let name = path.canonicalize().map_err(failed)?.display().to_string();
        let mut beginning = Vec::new();
        let begins = (&mut file)
            .take(BEGINNING_BYTES as u64)
            .read_to_end(&mut beginning);
        begins.map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let known = self.positions.find(&name, &beginning, size);
        let (bytes, line) = known.map_or((0, 0), |known| (known.bytes, known.line));
        file.seek(SeekFrom::Start(bytes)).map_err(failed)?;
        let import = LineImport::new(self.parser(), self.source_name(path), &self.told);
        Ok(Source {
            name,
            file,
            beginning,
            bytes,
            import: import.behind(line),
        })
    }

    /// False: nothing more was there.
    fn read_on(&mut self, source: &mut Source) -> Result<bool, CommandError> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let length = source.file.read(&mut chunk);
        let length = length.map_err(|why| CommandError::local(&source.name, why))?;
        let room = BEGINNING_BYTES.saturating_sub(source.beginning.len());
        if source.bytes == source.beginning.len() as u64 {
            source.beginning.extend(&chunk[..length.min(room)]);
        }
        source.bytes += length as u64;
        if length > 0 {
            self.feed(&mut source.import, &chunk[..length])?;
        }
        Ok(length > 0)
    }

    /// No bytes: the source has ended.
    fn feed(&mut self, import: &mut LineImport, bytes: &[u8]) -> Result<(), CommandError> {
        let (store, summary, failed) = (&mut self.store, &mut self.summary, &mut self.failed);
        let mut take = |row| take_row(row, store, summary, failed);
        match bytes {
            [] => import.finish(&mut take),
            bytes => import.feed(bytes, &mut take),
        }
        self.check()
    }

    /// Rows first, then how far they go.
    fn save<'s>(
        &mut self,
        sources: impl IntoIterator<Item = &'s Source>,
        tail: Tail,
    ) -> Result<(), CommandError> {
        self.check()?;
        self.store.flush().map_err(local)?;
        self.saved_at = Instant::now();
        let mut is_changed = false;
        for source in sources {
            let open = match tail {
                Tail::Taken => 0,
                Tail::Open => source.import.open_bytes(),
            };
            let (taken, line) = (source.bytes - open, source.import.line());
            is_changed |= self
                .positions
                .set(&source.name, &source.beginning, taken, line);
        }
        match is_changed {
            true => self.positions.save().map_err(local),
            false => Ok(()),
        }
    }

    fn captures(&mut self) -> Result<(), CommandError> {
        for path in &self.args.files {
            let size =
                std::fs::metadata(path).map_err(|why| CommandError::local(path.display(), why))?;
            if size.len() > CAPTURE_BYTES_MAX {
                let what = format!(
                    "{}: captures larger than 4 GiB cannot be read",
                    path.display()
                );
                return Err(CommandError::Usage(what));
            }
            let file =
                std::fs::read(path).map_err(|why| CommandError::local(path.display(), why))?;
            let source = self.source_name(path);
            let mut monitoring = MonitoringStreams::new();
            let mut number = 0;
            let mut rows = Vec::new();
            let others = pcap::each_datagram(&file, |datagram| {
                number += 1;
                let outcome = monitoring.take(datagram, &mut rows);
                for row in rows.drain(..) {
                    self.take_observed(row, &source, number);
                }
                if let Err(why) = outcome {
                    self.summary.invalid_datagram(number, &datagram.sender, why);
                }
            });
            let others =
                others.map_err(|why| CommandError::Usage(format!("{}: {why}", path.display())))?;
            if others > 0 {
                self.output.say(format!(
                    "{}: skipped {others} records that are not complete UDP datagrams",
                    path.display()
                ));
            }
            self.save([], Tail::Open)?;
        }
        Ok(())
    }

    /// A row of a datagram.
    fn take_observed(&mut self, mut row: Observation, source: &Text, number: u64) {
        if let (Observation::Attempt(attempt), Some(challenge)) = (&mut row, &self.told.challenge) {
            attempt.challenge = Some(challenge.clone());
        }
        let row = Ok(row.with_origin(source, number));
        take_row(row, &mut self.store, &mut self.summary, &mut self.failed);
    }

    fn check(&mut self) -> Result<(), CommandError> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn progress(&mut self) {
        if !self.output.json && self.told_at.elapsed() >= LOG_EVERY {
            self.told_at = Instant::now();
            eprintln!("{}", self.summary.progress());
        }
    }

    fn end(mut self) -> Result<(), CommandError> {
        self.summary.torn(self.store.torn_tails());
        self.summary.show(self.output)
    }
}

/// Takes a row into the store, and counts it.
fn take_row(
    row: Result<Observation, InvalidLine>,
    store: &mut Store,
    summary: &mut Summary,
    failed: &mut Option<CommandError>,
) {
    match row {
        Ok(row) => {
            if failed.is_none() {
                *failed = summary.take(&row, store).err().map(local);
            }
        }
        Err(why) => summary.invalid(why.to_string()),
    }
}

fn read_mapping(path: &Path) -> Result<LogMapping, CommandError> {
    let wrong =
        |why: &dyn std::fmt::Display| CommandError::Usage(format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(|why| wrong(&why))?;
    let mut text = String::new();
    let read = file.take(MAPPING_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|why| wrong(&why))?;
    LogMapping::parse(&text).map_err(|why| wrong(&why))
}

/// SIGTERM and Ctrl-C.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn listen() -> Result<Stop, CommandError> {
        let listen = |kind| {
            signal(kind).map_err(|why| CommandError::local("cannot listen for signals", why))
        };
        Ok(Stop {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
