//! Minutes and facts on disk: a directory with a file of lines for each day, the facts as last seen, and what changed.
//!
//! A minute is a line of JSON, durable before the next. What a crash cut off is passed over when it is read, and the
//! time that it spoke of is a gap. Days are removed by how many there are, not by a clock that may have leaped.

use super::facts::{CHANGES_MAX, FactChange, Facts};
use super::sample::HostSample;
use penstock_durable_file::replace_private;
use penstock_model::Timestamp;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Room for all days together. With two hundred disks a day takes about 25 MB, with three less than 2 MB.
const BYTES_MAX: u64 = 1_000_000_000;
/// A longer line is none of ours.
const LINE_BYTES_MAX: u64 = 1_000_000;
const DAY_BEGIN: &str = "minutes-";
const DAY_END: &str = ".jsonl";
const FACTS: &str = "facts.json";
const CHANGES: &str = "changes.jsonl";

/// The directory.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// Makes the directory if there is none.
    pub fn open(directory: &Path) -> io::Result<Store> {
        fs::create_dir_all(directory)?;
        Ok(Store::at(directory))
    }

    /// A directory to read from, whether it is there or not.
    pub fn at(directory: &Path) -> Store {
        Store {
            directory: directory.to_owned(),
        }
    }

    /// Adds a minute; it is durable when this returns.
    pub fn append(&self, minute: &HostSample) -> io::Result<()> {
        append_line(&self.directory.join(day_file(minute.from)), minute)
    }

    /// Gives each minute that begins in a window to `take`, in order of time within each day's file.
    pub fn minutes(
        &self,
        from: Timestamp,
        to: Timestamp,
        mut take: impl FnMut(HostSample),
    ) -> io::Result<()> {
        let (first, last) = (day_file(from), day_file(to));
        for day in self
            .days()?
            .iter()
            .filter(|day| **day >= first && **day <= last)
        {
            let mut minutes: Vec<HostSample> = lines_of(&self.directory.join(day))?;
            minutes.retain(|minute| minute.from >= from && minute.from < to);
            minutes.sort_by_key(|minute| minute.from);
            minutes.into_iter().for_each(&mut take);
        }
        Ok(())
    }

    /// Removes the oldest days beyond a number of them, and beyond the room for all. Gives back how many went.
    pub fn prune(&self, days_max: usize) -> io::Result<usize> {
        let mut days = Vec::new();
        for day in self.days()? {
            let path = self.directory.join(day);
            let size = fs::metadata(&path)?.len();
            days.push((path, size));
        }
        let (mut kept, mut bytes) = (0, 0_u64);
        let mut removed = 0;
        for (path, size) in days.iter().rev() {
            bytes = bytes.saturating_add(*size);
            // Today's stays, however large it is.
            if kept > 0 && (kept >= days_max || bytes > BYTES_MAX) {
                fs::remove_file(path)?;
                removed += 1;
            } else {
                kept += 1;
            }
        }
        Ok(removed)
    }

    fn days(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut days = Vec::new();
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(DAY_BEGIN) && name.ends_with(DAY_END) {
                days.push(name);
            }
        }
        days.sort();
        Ok(days)
    }

    /// The facts as last seen; none when there are none, or when they cannot be read any more.
    pub fn facts(&self) -> Facts {
        let text = fs::read(self.directory.join(FACTS));
        let read = text
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        read.unwrap_or_default()
    }

    /// What changed, the oldest first.
    pub fn changes(&self) -> io::Result<Vec<FactChange>> {
        let mut changes = lines_of(&self.directory.join(CHANGES))?;
        let surplus = changes.len().saturating_sub(CHANGES_MAX);
        changes.drain(..surplus);
        Ok(changes)
    }

    /// Notes what changed, then what is: a crash between the two tells a change twice, and never not at all.
    pub fn note(&self, changed: &[FactChange], facts: &Facts) -> io::Result<()> {
        let path = self.directory.join(CHANGES);
        for change in changed {
            append_line(&path, change)?;
        }
        let text = serde_json::to_vec_pretty(facts).map_err(io::Error::other)?;
        replace_private(&self.directory.join(FACTS), &text)
    }

    /// Leaves out the changes that are too many.
    pub fn prune_changes(&self) -> io::Result<()> {
        let path = self.directory.join(CHANGES);
        let all: Vec<FactChange> = lines_of(&path)?;
        if all.len() <= CHANGES_MAX {
            return Ok(());
        }
        let mut text = Vec::new();
        for change in &all[all.len() - CHANGES_MAX / 2..] {
            serde_json::to_writer(&mut text, change).map_err(io::Error::other)?;
            text.push(b'\n');
        }
        replace_private(&path, &text)
    }
}

/// The file of a day, by UTC. Names sort as days do.
fn day_file(at: Timestamp) -> String {
    let (year, month, day, _) = at.civil();
    format!("{DAY_BEGIN}{year:04}-{month:02}-{day:02}{DAY_END}")
}

fn append_line(path: &Path, value: &impl serde::Serialize) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .open(path)?;
    let mut line = Vec::new();
    if is_cut_off(&mut file)? {
        line.push(b'\n');
    }
    serde_json::to_writer(&mut line, value).map_err(io::Error::other)?;
    line.push(b'\n');
    file.write_all(&line)?;
    file.sync_data()
}

/// Whether a crash left a line without its end.
fn is_cut_off(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// The lines of a file that can be read; none when there is no file.
fn lines_of<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let file = match File::open(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let (mut reader, mut line, mut found) = (BufReader::new(file), Vec::new(), Vec::new());
    loop {
        line.clear();
        let read = (&mut reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(found);
        }
        found.extend(serde_json::from_slice(&line).ok());
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::second;
    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn store() -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(&directory.path().join("host")).expect("a store");
        (directory, store)
    }

    fn begins(store: &Store, from: i64, to: i64) -> Vec<i64> {
        let mut found = Vec::new();
        let read = store.minutes(Timestamp(from), Timestamp(to), |minute| {
            found.push(minute.from.0)
        });
        read.expect("readable");
        found
    }

    #[test]
    fn minutes_are_found_again_by_their_time_over_days() {
        let (_directory, store) = store();
        for at in [0, 60_000, DAY_MS, 2 * DAY_MS] {
            store.append(&second(at, 1)).expect("written");
        }
        assert_eq!(
            begins(&store, 0, 3 * DAY_MS),
            [0, 60_000, DAY_MS, 2 * DAY_MS]
        );
        assert_eq!(begins(&store, 1, 2 * DAY_MS), [60_000, DAY_MS]);
        assert_eq!(
            begins(&Store::at(Path::new("/nonexistent")), 0, 1),
            [0_i64; 0]
        );
    }

    #[test]
    fn what_a_crash_cut_off_costs_that_minute_only() {
        let (_directory, store) = store();
        store.append(&second(0, 1)).expect("written");
        let path = store.directory.join(day_file(Timestamp(0)));
        let mut file = OpenOptions::new().append(true).open(&path).expect("there");
        file.write_all(b"{\"from\":60000,\"cov").expect("written");
        store.append(&second(120_000, 1)).expect("written");
        assert_eq!(begins(&store, 0, DAY_MS), [0, 120_000]);
    }

    #[test]
    fn days_go_by_their_number_and_the_last_one_stays() {
        let (_directory, store) = store();
        for day in 0..5 {
            store.append(&second(day * DAY_MS, 1)).expect("written");
        }
        assert_eq!(store.prune(3).expect("pruned"), 2);
        assert_eq!(
            begins(&store, 0, 9 * DAY_MS),
            [2 * DAY_MS, 3 * DAY_MS, 4 * DAY_MS]
        );
        assert_eq!(store.prune(0).expect("pruned"), 2);
        assert_eq!(begins(&store, 0, 9 * DAY_MS), [4 * DAY_MS]);
    }

    #[test]
    fn facts_and_their_changes_survive_and_changes_are_bounded() {
        let (_directory, store) = store();
        assert_eq!(store.facts(), Facts::new());
        let facts = Facts::from([
            ("a".to_owned(), Some("1".to_owned())),
            ("b".to_owned(), None),
        ]);
        let change = FactChange {
            at: Timestamp(5),
            name: "a".into(),
            before: None,
            after: Some("1".into()),
        };
        store
            .note(std::slice::from_ref(&change), &facts)
            .expect("written");
        assert_eq!(store.facts(), facts);
        let read = store.changes().expect("readable");
        assert_eq!(read, std::slice::from_ref(&change));
        let text = serde_json::to_string(&change).expect("serialisable") + "\n";
        fs::write(store.directory.join(CHANGES), text.repeat(CHANGES_MAX + 1)).expect("written");
        assert_eq!(store.changes().expect("readable").len(), CHANGES_MAX);
        store.prune_changes().expect("pruned");
        assert_eq!(store.changes().expect("readable").len(), CHANGES_MAX / 2);
    }
}
