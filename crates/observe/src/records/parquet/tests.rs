use super::*;
use penstock_model::observation::{Attempt, Change, Family, Outcome, Sample};
use penstock_model::{Bytes, Side, Timestamp, VoName};
use proptest::prelude::*;
use std::io::Cursor;
use std::ops::ControlFlow;

fn written<R: penstock_model::observation::Row>(rows: &[R]) -> Vec<u8> {
    let mut writer = ParquetWriter::new(Vec::new()).expect("memory");
    for row in rows {
        writer.push(row).expect("memory");
    }
    writer.finish().expect("memory")
}

fn read_again<R: penstock_model::observation::Row>(file: &[u8]) -> Result<Vec<R>, InvalidParquet> {
    let mut rows = Vec::new();
    read(&mut Cursor::new(file), |row: &R| {
        rows.push(row.clone());
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

fn attempts() -> impl Strategy<Value = Attempt> {
    let text = || proptest::option::of("[a-zé/]{0,9}".prop_map(|text| text.as_str().into()));
    let numbers = (
        any::<i64>(),
        any::<u64>(),
        any::<Option<u64>>(),
        any::<Option<u32>>(),
    );
    let words = (0..4_usize, any::<Option<bool>>(), any::<Option<i64>>());
    (numbers, words, text(), text()).prop_map(
        |((at, line, moved, streams), (outcome, is_local, code), path, vo)| Attempt {
            at: Timestamp(at),
            source: "s".into(),
            line,
            bytes_moved: moved.map(Bytes),
            streams,
            outcome: Outcome::ALL.get(outcome).copied(),
            side: (outcome == 1).then_some(Side::Destination),
            is_local,
            error_code: code,
            source_path: path,
            vo: vo.map(|vo: std::sync::Arc<str>| VoName::new(vo)),
            ..Attempt::default()
        },
    )
}

proptest! {
    #[test]
    fn any_rows_come_back_from_a_file(rows in proptest::collection::vec(attempts(), 0..70)) {
        let file = written(&rows);
        let family = family_of(&mut Cursor::new(&file));
        prop_assert_eq!(family.map_err(|why| TestCaseError::fail(why.to_string()))?, Family::Attempt);
        let again = read_again::<Attempt>(&file);
        prop_assert_eq!(again.map_err(|why| TestCaseError::fail(why.to_string()))?, rows);
    }
}

#[test]
fn many_row_groups_come_back() {
    let rows: Vec<Change> = (0..70_000)
        .map(|line| Change {
            line,
            subject: "x".into(),
            ..Change::default()
        })
        .collect();
    assert!(read_again::<Change>(&written(&rows)).expect("read") == rows);
}

#[test]
fn rows_of_another_family_are_told() {
    let file = written(&[Change::default()]);
    assert!(matches!(
        read_again::<Sample>(&file),
        Err(InvalidParquet::Column(_))
    ));
}

#[test]
fn hostile_files_are_refused_or_read_but_never_crash() {
    let rows: Vec<Attempt> = (0..9)
        .map(|line| Attempt {
            line,
            vo: Some(VoName::new("atlas")),
            is_local: (line % 3 == 0).then_some(true),
            ..Attempt::default()
        })
        .collect();
    let file = written(&rows);
    for at in (0..file.len()).step_by(2) {
        for value in [0, 0x19, 0xff] {
            let mut hostile = file.clone();
            hostile[at] = value;
            let _ = read_again::<Attempt>(&hostile);
            let _ = family_of(&mut Cursor::new(&hostile));
        }
    }
    for length in (0..file.len()).step_by(7) {
        let _ = read_again::<Attempt>(&file[..length]);
    }
}

#[test]
fn a_group_that_names_a_column_twice_is_refused_before_it_is_read_again() {
    let file = written(&[Attempt::default()]);
    // Both are numbers that may be unknown, and their names are of one length.
    let (name, other) = (b"\x08write_us", b"\x08mount_us");
    let mut twice = file.clone();
    for place in 0..file.len() - name.len() {
        if file[place..].starts_with(name) {
            twice[place..place + name.len()].copy_from_slice(other);
        }
    }
    assert_ne!(twice, file, "the name stands in the file");
    let refused = read_again::<Attempt>(&twice);
    assert!(matches!(refused, Err(InvalidParquet::Column(name)) if name == "mount_us"));
}

#[test]
fn groups_that_share_bytes_are_refused() {
    let file = written(&[Change::default()]);
    let (rest, length) = file[..file.len() - 4].split_at(file.len() - 8);
    let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
    let (pages, footer) = rest.split_at(rest.len() - length);
    let (mut footer, _) = thrift::read(footer, reading::FOOTER_BOUNDS).expect("our own");
    let Some(thrift::Value::List(groups)) = footer.get_mut(&4) else {
        panic!("no groups: {footer:?}");
    };
    let one = groups[0].clone();
    groups.extend([one.clone(), one]);
    let mut written = Vec::new();
    thrift::Value::Struct(footer).write(&mut written);
    let mut shared = pages.to_vec();
    shared.extend(&written);
    shared.extend((written.len() as u32).to_le_bytes());
    shared.extend(MAGIC);
    let refused = read_again::<Change>(&shared);
    assert!(
        matches!(refused, Err(InvalidParquet::Malformed(why)) if why.contains("share")),
        "{refused:?}"
    );
}

#[test]
fn reading_ends_soon_after_whoever_reads_wants_no_more() {
    let rows = vec![Change::default(); 3];
    let mut taken = 0;
    let read = read(&mut Cursor::new(&written(&rows)), |_: &Change| {
        taken += 1;
        ControlFlow::Break(())
    });
    read.expect("whole");
    assert_eq!(taken, 1);
}

/// A file without rows that has this footer.
fn with_footer(footer: &[u8]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    file.extend(footer);
    file.extend((footer.len() as u32).to_le_bytes());
    file.extend(MAGIC);
    file
}

/// A footer with a list of so many elements, each of these bytes, in this field.
fn with_list(field: u8, count: usize, element: &[u8]) -> Vec<u8> {
    // A field of the type list, then the length and the type structure.
    let mut footer = vec![field << 4 | 9, 0xfc];
    thrift::write_varint(count as u64, &mut footer);
    footer.extend(element.repeat(count));
    footer.push(0);
    with_footer(&footer)
}

#[test]
fn a_footer_that_would_fill_the_memory_is_refused_with_its_bound() {
    let told = |file: Vec<u8>| {
        let read = read_again::<Attempt>(&file);
        read.expect_err("too large").to_string()
    };
    let empty = [0];
    assert_eq!(
        told(with_list(2, 10_000_000, &empty)),
        "its footer has 10000000 elements of the schema; at most 16384 are read: write it as several files"
    );
    assert!(told(with_list(4, 20_000, &empty)).contains("20000 row groups; at most 16384"));
    // A row group whose field 1 is a list of structures, each with one field.
    let columns = |count: usize| {
        let mut group = vec![0x19, 0xfc];
        thrift::write_varint(count as u64, &mut group);
        group.extend([0x11, 0].repeat(count));
        group.push(0);
        group
    };
    let group = columns(20_000);
    assert!(told(with_list(4, 1, &group)).contains("20000 columns in a row group"));
    let many = told(with_list(4, 100, &columns(10_000)));
    assert_eq!(
        many,
        "its footer takes more than 256 MiB of memory: write it as several files"
    );
}
