use super::flushed_length::NOTE_EVERY_BYTES;
use super::*;
use penstock_model::observation::{Operation, Outcome, Text, View};
use penstock_model::{Bytes, PoolName, TimeWindow, VoName};
use proptest::prelude::*;
use std::fs::OpenOptions;
use std::io::Write;

const DAY: i64 = 86_400_000;

fn attempt(at: i64, line: u64) -> Attempt {
    Attempt {
        at: Timestamp(at),
        source: "test".into(),
        line,
        view: View::Site,
        operation: Operation::Recall,
        vo: Some(VoName::new(["atlas", "cms"][line as usize % 2])),
        bytes_moved: (!line.is_multiple_of(3)).then_some(Bytes(line * 1_000_003)),
        destination_path: Some(format!("/data/f{line}").into()),
        outcome: Some(Outcome::Success),
        is_local: Some(line.is_multiple_of(5)),
        pool: Some(PoolName::new("p1")),
        ..Attempt::default()
    }
}

fn write(directory: &Path, lines: std::ops::Range<u64>, at: impl Fn(u64) -> i64) {
    let mut store = Store::open(directory).expect("it opens");
    for line in lines {
        store
            .append(&attempt(at(line), line).into())
            .expect("taken");
    }
    store.flush().expect("durable");
}

fn read(directory: &Path, window: TimeWindow) -> (Vec<Attempt>, Vec<SkippedBytes>) {
    let mut reader = Reader::open(directory).expect("it opens");
    let mut rows = Vec::new();
    reader
        .each::<Attempt>(window, &[], |row| rows.push(row.clone()))
        .expect("read");
    (rows, reader.skipped().to_vec())
}

fn lines(rows: &[Attempt]) -> Vec<u64> {
    rows.iter().map(|row| row.line).collect()
}

#[test]
fn rows_come_back_by_time_as_they_were() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), 0..40_000, |line| line as i64 * 5_000);
    let (rows, skipped) = read(directory.path(), TimeWindow::ALL);
    let expected: Vec<Attempt> = (0..40_000)
        .map(|line| attempt(line as i64 * 5_000, line))
        .collect();
    assert!(rows == expected);
    assert_eq!(skipped, []);
    let window = TimeWindow {
        from: Timestamp(DAY),
        to: Timestamp(DAY + 20_000),
    };
    let (rows, _) = read(directory.path(), window);
    assert_eq!(lines(&rows), [17_280, 17_281, 17_282, 17_283]);
}

#[test]
fn only_columns_that_are_wanted_are_filled() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), 0..10, |line| line as i64);
    let mut reader = Reader::open(directory.path()).expect("it opens");
    let mut moved = Vec::new();
    reader
        .each::<Attempt>(TimeWindow::ALL, &["bytes_moved"], |row| {
            assert_eq!((row.vo.as_ref(), &*row.source), (None, ""));
            moved.push(row.bytes_moved);
        })
        .expect("read");
    let expected = (0..10_u64).map(|line| attempt(0, line).bytes_moved);
    assert_eq!(moved, expected.collect::<Vec<_>>());
}

#[test]
#[should_panic(expected = "no column is called byte_moved")]
fn a_column_that_rows_do_not_have_cannot_be_wanted() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), 0..1, |line| line as i64);
    let mut reader = Reader::open(directory.path()).expect("it opens");
    let _ = reader.each::<Attempt>(TimeWindow::ALL, &["byte_moved"], |_| ());
}

#[test]
fn whatever_a_crash_leaves_of_the_last_block_what_was_acknowledged_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), 0..20, |_| 5);
    let path = segment::files(directory.path()).expect("files")[0]
        .path
        .clone();
    let acknowledged = fs::metadata(&path).expect("there").len();
    write(directory.path(), 20..40, |_| 5);
    let whole = fs::read(&path).expect("read");
    for length in acknowledged..whole.len() as u64 {
        fs::write(&path, &whole[..length as usize]).expect("written");
        let (rows, skipped) = read(directory.path(), TimeWindow::ALL);
        assert_eq!(rows.len(), 20, "cut at {length}");
        let told: u64 = skipped.iter().map(|skipped| skipped.bytes.0).sum();
        assert_eq!(told, length - acknowledged);
        let mut store = Store::open(directory.path()).expect("it opens");
        store.append(&attempt(5, 99).into()).expect("taken");
        store.flush().expect("durable");
        let torn: u64 = store.torn_tails().iter().map(|torn| torn.bytes.0).sum();
        assert_eq!(torn, length - acknowledged);
        let (rows, skipped) = read(directory.path(), TimeWindow::ALL);
        assert_eq!((rows.len(), rows[20].line, skipped.len()), (21, 99, 0));
    }
}

#[test]
fn a_flipped_bit_is_never_read_as_a_row() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), 0..5, |_| 5);
    write(directory.path(), 5..10, |_| 5);
    let path = segment::files(directory.path()).expect("files")[0]
        .path
        .clone();
    let whole = fs::read(&path).expect("read");
    let expected: Vec<Attempt> = (0..10).map(|line| attempt(5, line)).collect();
    for at in segment::HEAD_BYTES as usize..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        fs::write(&path, &damaged).expect("written");
        let (rows, skipped) = read(directory.path(), TimeWindow::ALL);
        assert!(rows.iter().all(|row| expected.contains(row)), "at {at}");
        assert!(rows.len() < 10 && !skipped.is_empty(), "at {at}");
    }
}

#[test]
fn what_is_behind_a_damaged_block_is_not_lost_when_more_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    for block in 0..3 {
        write(directory.path(), block * 5..block * 5 + 5, |_| 5);
    }
    let path = segment::files(directory.path()).expect("files")[0]
        .path
        .clone();
    let mut damaged = fs::read(&path).expect("read");
    let second = damaged.len() / 2;
    damaged[second] ^= 1;
    fs::write(&path, &damaged).expect("written");
    write(directory.path(), 15..20, |_| 5);
    let (rows, skipped) = read(directory.path(), TimeWindow::ALL);
    assert_eq!(
        lines(&rows),
        [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
    );
    assert_eq!(skipped.len(), 1, "what is damaged is told");
}

#[test]
fn what_is_cut_is_kept_aside_until_its_day_is_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), 0..5, |_| 5);
    let path = segment::files(directory.path()).expect("files")[0]
        .path
        .clone();
    let mut file = OpenOptions::new().append(true).open(&path).expect("open");
    file.write_all(b"half a block").expect("written");
    write(directory.path(), 5..6, |_| 5);
    let torn = segment::torn_path(&path);
    assert_eq!(fs::read(&torn).expect("kept"), b"half a block");
    let mut store = Store::open(directory.path()).expect("it opens");
    store.remove_before(Timestamp(DAY)).expect("removed");
    assert!(!torn.exists() && !path.exists());
}

#[test]
fn hostile_blocks_are_refused_or_read_but_never_crash() {
    let mut builder = block::BlockBuilder::new(Attempt::COLUMNS);
    for line in 0..9 {
        builder.push(&attempt(line as i64, line));
    }
    let block = builder.take();
    let decode = |block: &[u8], rows: u32| {
        let decoded = block::decode(block, rows, Attempt::COLUMNS, |_| true);
        if let Ok(decoded) = decoded {
            let _ = columns::each_row(&decoded, rows, &mut Attempt::default(), |_| {});
        }
    };
    for at in 0..block.len() {
        for value in [0, 1, 2, 4, 5, 0x7f, 0x80, 0xff] {
            let mut hostile = block.clone();
            hostile[at] = value;
            for rows in [1, 9, 10, 64] {
                decode(&hostile, rows);
            }
        }
        decode(&block[..at], 9);
    }
    decode(&block, u32::MAX);
}

/// A block of one attempt, as its columns: each with its name.
fn columns_of_a_block() -> Vec<(String, Vec<u8>)> {
    let mut builder = block::BlockBuilder::new(Attempt::COLUMNS);
    builder.push(&attempt(5, 1));
    let block = builder.take();
    let mut rest = &block[2..];
    let mut columns = Vec::new();
    while !rest.is_empty() {
        let name = usize::from(rest[0]);
        let length: [u8; 4] = rest[name + 3..name + 7].try_into().expect("four bytes");
        let (column, behind) = rest.split_at(name + 7 + u32::from_le_bytes(length) as usize);
        let name = String::from_utf8(column[1..=name].to_vec()).expect("a name");
        columns.push((name, column.to_vec()));
        rest = behind;
    }
    columns
}

/// Rows that are read of a block with these columns; `None`: it is damaged.
fn rows_read(columns: &[(String, Vec<u8>)], wanted: &[&str], rows: u32) -> Option<usize> {
    let mut block = (columns.len() as u16).to_le_bytes().to_vec();
    block.extend(columns.iter().flat_map(|(_, column)| column));
    let mut found = 0;
    let mut take = |_: &Attempt| found += 1;
    let read = reading::each_of_block(&block, rows, TimeWindow::ALL, wanted, &mut take);
    read.is_ok().then_some(found)
}

#[test]
fn a_column_that_comes_twice_is_damage() {
    let columns = columns_of_a_block();
    assert_eq!(rows_read(&columns, &[], 1), Some(1));
    for column in &columns {
        let mut twice = columns.clone();
        twice.push(column.clone());
        assert_eq!(rows_read(&twice, &[], 1), None, "{}", column.0);
    }
}

#[test]
fn a_column_that_each_row_has_is_there_with_each_value_or_the_block_is_damaged() {
    assert_eq!(rows_read(&[], &[], block::ROWS_READ_MAX), None);
    let columns = columns_of_a_block();
    for left_out in &columns {
        let others = columns.iter().filter(|column| *column != left_out);
        let others: Vec<_> = others.cloned().collect();
        let mut known = Attempt::COLUMNS.iter();
        let known = known.find(|column| column.name == left_out.0);
        let is_read = known.expect("a column").is_optional;
        for wanted in [&[][..], &["bytes_moved"]] {
            let read = rows_read(&others, wanted, 1);
            assert_eq!(read.is_some(), is_read, "{}", left_out.0);
        }
    }
    assert_eq!(rows_read(&columns, &[], 2), None, "more rows than values");
}

#[test]
fn old_days_are_removed_whole_and_the_others_stay() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), 0..4, |line| line as i64 * DAY);
    let mut store = Store::open(directory.path()).expect("it opens");
    let removed = store
        .remove_before(Timestamp(2 * DAY + 5))
        .expect("removed");
    assert_eq!(removed.len(), 2);
    store
        .append(&attempt(0, 7).into())
        .expect("an old row may come again");
    store.flush().expect("durable");
    let (rows, _) = read(directory.path(), TimeWindow::ALL);
    assert_eq!(lines(&rows), [7, 2, 3]);
}

#[test]
fn one_process_writes_and_what_is_not_ours_is_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(directory.path()).expect("it opens");
    assert!(matches!(
        Store::open(directory.path()),
        Err(StoreError::Locked(_))
    ));
    drop(store);
    Store::open(directory.path()).expect("it opens again");
    fs::write(directory.path().join(MARKER), "penstock records 2\n").expect("written");
    assert!(matches!(
        Store::open(directory.path()),
        Err(StoreError::Foreign { .. })
    ));
    assert!(matches!(
        Reader::open(directory.path()),
        Err(StoreError::Foreign { .. })
    ));
    let other = tempfile::tempdir().expect("a directory");
    fs::write(other.path().join("thesis.tex"), "x").expect("written");
    assert!(matches!(
        Store::open(other.path()),
        Err(StoreError::Foreign { .. })
    ));
}

#[test]
fn many_days_at_once_need_no_more_files_than_are_allowed() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), 0..400, |line| (line % 200) as i64 * DAY);
    write(directory.path(), 400..800, |line| (line % 200) as i64 * DAY);
    let (rows, _) = read(directory.path(), TimeWindow::ALL);
    let mut found = lines(&rows);
    found.sort_unstable();
    assert_eq!(found, (0..800).collect::<Vec<_>>());
}

#[test]
fn an_unfinished_head_is_begun_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    write(directory.path(), 0..1, |_| 5);
    let path = segment::files(directory.path()).expect("files")[0]
        .path
        .clone();
    fs::write(&path, b"PNSK").expect("written");
    let mut file = OpenOptions::new().append(true).open(&path).expect("open");
    file.write_all(b"R").expect("written");
    write(directory.path(), 1..2, |_| 5);
    assert_eq!(lines(&read(directory.path(), TimeWindow::ALL).0), [1]);
}

fn texts() -> impl Strategy<Value = Option<Text>> {
    proptest::option::of("[a-zé\u{0}/]{0,9}".prop_map(Text::from))
}

proptest! {
    #[test]
    fn any_row_comes_back(
        rows in proptest::collection::vec((any::<i64>(), any::<u64>(), texts(), texts(), any::<Option<i64>>()), 1..60)
    ) {
        let mut builder = block::BlockBuilder::new(Attempt::COLUMNS);
        let rows: Vec<Attempt> = rows.into_iter().map(|(at, line, path, user, code)| Attempt {
            at: Timestamp(at),
            line,
            source_path: path,
            detail: user,
            error_code: code,
            bytes_moved: Some(Bytes(line ^ at as u64)),
            ..Attempt::default()
        }).collect();
        for row in &rows {
            builder.push(row);
        }
        let block = builder.take();
        let mut found = Vec::new();
        reading::each_of_block(&block, rows.len() as u32, TimeWindow::ALL, &[], &mut |row: &Attempt| found.push(row.clone()))
            .map_err(|_| TestCaseError::fail("damaged"))?;
        prop_assert_eq!(found, rows);
    }
}

#[test]
fn a_row_of_no_time_of_a_record_is_refused_and_the_others_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = Store::open(directory.path()).expect("it opens");
    let last_of_9999 = 253_402_300_799_999;
    for _ in 0..2 {
        for at in [i64::MIN, -62_135_596_800_001, last_of_9999 + 1, i64::MAX] {
            let refused = store.append(&attempt(at, 1).into());
            assert!(matches!(refused, Err(StoreError::NoTime(Timestamp(of))) if of == at));
        }
        for at in [-62_135_596_800_000, last_of_9999] {
            store.append(&attempt(at, 2).into()).expect("taken");
        }
        store.flush().expect("durable");
    }
    let (rows, skipped) = read(directory.path(), TimeWindow::ALL);
    assert_eq!((lines(&rows), skipped), (vec![2; 4], vec![]));
}

/// Bytes of the only file, and those of them that opening would write once more.
fn written_again(directory: &Path) -> (u64, u64) {
    let path = only_file(directory);
    let mut file = File::open(&path).expect("there");
    let length = file.metadata().expect("there").len();
    let flushed = segment::flushed_bytes(&path, &mut file, length).expect("read");
    (length, length - flushed)
}

fn only_file(directory: &Path) -> PathBuf {
    let files = segment::files(directory).expect("files");
    assert_eq!(files.len(), 1);
    files[0].path.clone()
}

#[test]
fn opening_a_long_file_writes_again_only_what_is_behind_the_noted_flush() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = Store::open(directory.path()).expect("it opens");
    let append = |store: &mut Store, lines: std::ops::Range<u64>| {
        for line in lines {
            store.append(&attempt(5, line).into()).expect("taken");
        }
    };
    append(&mut store, 0..100_000);
    let (length, again) = written_again(directory.path());
    assert!(length > NOTE_EVERY_BYTES, "blocks were written");
    assert_eq!(again, length, "nothing was flushed, so nothing is noted");
    store.flush().expect("durable");
    let (flushed, again) = written_again(directory.path());
    assert_eq!(again, 0);
    append(&mut store, 100_000..140_000);
    let (length, again) = written_again(directory.path());
    assert_eq!(again, length - flushed);
    drop(store);
    // A whole block is kept that no flush has covered, and the note stays where it was until one does.
    write(directory.path(), 140_000..140_001, |_| 5);
    let (rows, skipped) = read(directory.path(), TimeWindow::ALL);
    assert!(rows.len() > 100_000 && skipped.is_empty());
    let (_, again) = written_again(directory.path());
    assert!(again <= NOTE_EVERY_BYTES);
}

#[test]
fn a_noted_flush_counts_only_for_the_file_that_was_flushed() {
    let directory = tempfile::tempdir().expect("a directory");
    let write_much = || write(directory.path(), 0..100_000, |_| 5);
    let whole_is_written = || {
        let (length, again) = written_again(directory.path());
        assert_eq!(again, length);
        let note = flushed_length::note_path(&only_file(directory.path()));
        assert!(!note.exists(), "it cannot be believed later either");
    };
    write_much();
    let path = only_file(directory.path());
    let content = fs::read(&path).expect("read");
    // A copy, of which nobody knows what is on disk.
    let copy = directory.path().join("copy");
    fs::write(&copy, &content).expect("written");
    fs::rename(&copy, &path).expect("replaced");
    whole_is_written();
    write_much();
    // A disk that lost a part of what it had acknowledged.
    let cut = fs::metadata(&path).expect("there").len() - 1;
    let file = OpenOptions::new().write(true).open(&path).expect("open");
    file.set_len(cut).expect("cut");
    whole_is_written();
    write_much();
    for nonsense in ["", "17", "17 x\n", "x\n"] {
        fs::write(flushed_length::note_path(&path), nonsense).expect("written");
        whole_is_written();
    }
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).expect("there"));
    let inside_a_block = format!("{} {inode}\n", segment::HEAD_BYTES + 5);
    fs::write(flushed_length::note_path(&path), inside_a_block).expect("written");
    whole_is_written();
    write_much();
    let mut store = Store::open(directory.path()).expect("it opens");
    store.remove_before(Timestamp(DAY)).expect("removed");
    assert!(!flushed_length::note_path(&path).exists());
}

/// Rows of one day that are more than a block.
const MANY: std::ops::Range<u64> = 0..40_000;

fn append(store: &mut Store, lines: std::ops::Range<u64>, day: i64) {
    for line in lines {
        let row = attempt(day * DAY + 5, line);
        store.append(&row.into()).expect("taken");
    }
}

#[test]
fn a_batch_that_was_interrupted_is_taken_once_when_it_is_taken_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    write(path, 0..3, |_| 5);
    let count = || read(path, TimeWindow::ALL).0.len();
    let mut positions = Positions::open(path).expect("none yet");
    for day in [0, 7] {
        let mut store = Store::open(path).expect("it opens");
        store.begin_batch().expect("begun");
        append(&mut store, MANY, day);
        let files = segment::files(path).expect("files");
        let sizes = files.iter().map(|file| fs::metadata(&file.path));
        let bytes: u64 = sizes.map(|found| found.expect("there").len()).sum();
        assert!(bytes > 100_000, "blocks are written before the end");
        assert_eq!(count(), 3, "and nobody reads them before it");
        // As if the process were killed.
        drop(store);
        assert_eq!(count(), 3);
    }
    drop(Store::open(path).expect("it opens"));
    assert_eq!(count(), 3);
    let mut store = Store::open(path).expect("it opens");
    store.begin_batch().expect("begun");
    append(&mut store, MANY, 0);
    append(&mut store, 0..5, 7);
    positions.set("a", b"x", 1, 1);
    store.keep_batch(&positions).expect("kept");
    append(&mut store, 0..1, 0);
    store.flush().expect("durable");
    drop(store);
    drop(Store::open(path).expect("it opens"));
    assert_eq!(count(), 3 + 40_000 + 5 + 1);
}

#[test]
fn a_batch_is_kept_when_its_positions_are_and_else_taken_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let count = || read(path, TimeWindow::ALL).0.len();
    let mut positions = Positions::open(path).expect("none yet");
    let mut store = Store::open(path).expect("it opens");
    store.begin_batch().expect("begun");
    append(&mut store, MANY, 0);
    store.take_back_batch().expect("taken back");
    assert_eq!(count(), 0);
    store.begin_batch().expect("begun");
    append(&mut store, MANY, 0);
    store.flush().expect("durable");
    assert_eq!(count(), 0);
    // A crash between both steps of the end: the positions are replaced and the note is still there.
    positions.set("a", b"x", 1, 1);
    positions.save().expect("durable");
    assert_eq!(count(), 40_000);
    drop(store);
    drop(Store::open(path).expect("it opens"));
    assert_eq!(count(), 40_000);
    assert!(!path.join("unfinished").exists());
    // What a crash leaves of a note of which nothing was acknowledged.
    for text in ["", "no", "17 0000"] {
        fs::write(path.join("unfinished"), text).expect("written");
        drop(Store::open(path).expect("it opens"));
        assert_eq!(count(), 40_000, "{text}");
    }
    let positions_now = fs::read(path.join("positions.json")).expect("there");
    let head = format!(
        "{} {:08x}",
        positions_now.len(),
        crc32c::crc32c(&positions_now)
    );
    fs::write(path.join("unfinished"), format!("{head}\n5 ../marker\n")).expect("written");
    assert!(matches!(Store::open(path), Err(StoreError::Foreign { .. })));
}
