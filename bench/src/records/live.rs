//! Messages that come live into a directory of records.

use super::{
    BUFFER_BYTES, PACE, PIECE_INTERVAL, RecordBench, TIMEOUT, is_told, megabytes, remove, row, text,
};
use crate::error::{BenchError, doing};
use crate::report::figures;
use penstock_clock::wall_clock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::time::{Duration, Instant};

impl RecordBench<'_> {
    /// Messages come live into the store that is full already: first at a pace, then as fast as they are taken.
    pub(super) fn follow(&self, rows: &mut Vec<Vec<String>>) -> Result<(), BenchError> {
        let messages = self.directory.join("messages.jsonl");
        let store = self.store();
        let paced = self.live / 2;
        // To make a message costs more than to take it in, so they are made before.
        let mut prepared = self.prepare_messages()?;
        let file = File::create(&messages).or_else(doing(format!("{}", messages.display())))?;
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let words = [
            "ingest",
            "fts",
            text(&messages)?,
            "--into",
            text(&store)?,
            "--follow",
        ];
        let mut following = self.commands.start(&words)?;
        let (behind, lasted) = self.append_at_pace(&mut prepared, &mut file, paced)?;
        // They are taken while they are written, so the time of writing belongs to it.
        let begun = Instant::now();
        append(&mut prepared, &mut file, self.live - paced)?;
        self.await_durable(self.live)?;
        let rate = (self.live - paced) as f64 / begun.elapsed().as_secs_f64();
        let memory = following.memory_bytes();
        let pid = i32::try_from(following.id()).ok().and_then(Pid::from_raw);
        let asked = pid.map(|pid| kill_process(pid, Signal::TERM));
        if !matches!(asked, Some(Ok(()))) {
            return Err(BenchError::failed("what follows the messages has gone"));
        }
        let run = following.wait()?;
        is_told(&run, "attempts", self.live)?;
        is_told(&run, "invalid", 0)?;
        remove(&messages)?;
        let pace = paced as f64 / lasted.as_secs_f64();
        rows.push(row(
            &format!(
                "live messages, {PACE} a second wanted: written a second; durable after, s at most"
            ),
            format!("**{}**; **{:.1}**", figures(pace), behind.as_secs_f64()),
            "20,000 at least",
        ));
        rows.push(row(
            "live messages as fast as they are taken, events/s; per CPU s, those at the pace included; memory, MB",
            format!(
                "**{}**; {}; {}",
                figures(rate),
                figures(self.live as f64 / run.cpu_seconds.max(0.01)),
                megabytes(memory)
            ),
            "20,000 at least; bounded",
        ));
        Ok(())
    }

    /// A file with all messages that will come, to be read from its begin on.
    fn prepare_messages(&self) -> Result<BufReader<File>, BenchError> {
        let path = self.directory.join("prepared.jsonl");
        let what = || format!("{}", path.display());
        let mut file =
            BufWriter::with_capacity(BUFFER_BYTES, File::create(&path).or_else(doing(what()))?);
        let now = wall_clock();
        let mut written = Ok(());
        for number in 0..self.live {
            let message = self.events.message(self.events.count + number, now);
            written = written.and_then(|()| writeln!(file, "{message}"));
        }
        written.and_then(|()| file.flush()).or_else(doing(what()))?;
        let prepared = File::open(&path).or_else(doing(what()))?;
        // It stays readable until it is closed.
        remove(&path)?;
        Ok(BufReader::with_capacity(BUFFER_BYTES, prepared))
    }

    /// The longest time for which a message was not durable, and how long it took to write all of them.
    fn append_at_pace(
        &self,
        prepared: &mut BufReader<File>,
        file: &mut BufWriter<File>,
        count: u64,
    ) -> Result<(Duration, Duration), BenchError> {
        let piece = PACE * PIECE_INTERVAL.as_millis() as u64 / 1000;
        let (begun, mut written) = (Instant::now(), 0);
        let mut open: Vec<(u64, Instant)> = Vec::new();
        let (mut behind, mut lasted) = (Duration::ZERO, Duration::ZERO);
        while written < count || !open.is_empty() {
            if written < count {
                let next = (written + piece).min(count);
                append(prepared, file, next - written)?;
                written = next;
                open.push((written, Instant::now()));
                lasted = begun.elapsed();
            }
            let durable = self.durable_lines();
            open.retain(|(lines, at)| {
                let is_durable = *lines <= durable;
                if is_durable {
                    behind = behind.max(at.elapsed());
                }
                !is_durable
            });
            if begun.elapsed() > TIMEOUT {
                return Err(BenchError::failed("messages do not become durable"));
            }
            let pieces = (written / piece.max(1)) as u32;
            let due = begun + PIECE_INTERVAL * pieces;
            let pause = due.saturating_duration_since(Instant::now());
            std::thread::sleep(pause.max(Duration::from_millis(1)));
        }
        Ok((behind, lasted.max(Duration::from_millis(1))))
    }

    fn await_durable(&self, lines: u64) -> Result<(), BenchError> {
        let begun = Instant::now();
        while self.durable_lines() < lines {
            if begun.elapsed() > TIMEOUT {
                return Err(BenchError::failed("messages do not become durable"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Lines of the messages that are durable, as the store itself notes.
    fn durable_lines(&self) -> u64 {
        let positions = fs::read(self.store().join("positions.json")).unwrap_or_default();
        let positions: Value = serde_json::from_slice(&positions).unwrap_or_default();
        let files = positions.as_object().into_iter().flatten();
        let mut followed = files.filter(|(name, _)| name.ends_with("messages.jsonl"));
        followed
            .next()
            .and_then(|(_, position)| position["line"].as_u64())
            .unwrap_or(0)
    }
}

/// Hands on so many messages.
fn append(
    prepared: &mut BufReader<File>,
    file: &mut BufWriter<File>,
    count: u64,
) -> Result<(), BenchError> {
    let mut line = Vec::new();
    let mut handed = || {
        for _ in 0..count {
            line.clear();
            prepared.read_until(b'\n', &mut line)?;
            file.write_all(&line)?;
        }
        file.flush()
    };
    handed().or_else(doing("messages"))
}
