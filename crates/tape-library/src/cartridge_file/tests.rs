use super::*;

fn tape() -> TapeName {
    TapeName("A00001".into())
}

fn bytes(file: u64, size: usize) -> Vec<u8> {
    let byte = |place: usize| (place as u64).wrapping_mul(31).wrapping_add(file) as u8;
    (0..size).map(byte).collect()
}

fn write(cartridge: &mut CartridgeFile, file: u64, begin: u64, size: usize) {
    let content = bytes(file, size);
    let address = (FileId(file), begin, size as u64);
    let written = cartridge.append(address, &mut content.as_slice(), |_| true);
    written.expect("written");
}

fn read(cartridge: &CartridgeFile, begin: u64, size: usize) -> Result<Vec<u8>, ReadError> {
    let mut content = Vec::new();
    cartridge.read((begin, size as u64), &mut content, |_| true)?;
    Ok(content)
}

struct Shelf(tempfile::TempDir);

impl Shelf {
    fn new() -> Shelf {
        let shelf = Shelf(tempfile::tempdir().expect("made"));
        make(&shelf.path(), &tape()).expect("made");
        shelf
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("A00001.tape")
    }

    fn open(&self) -> CartridgeFile {
        CartridgeFile::open(&self.path(), &tape()).expect("opened")
    }
}

const LARGE: usize = 2 * PAYLOAD_MAX + 12_345;

#[test]
fn what_a_sync_covers_is_there_and_the_rest_is_gone() {
    let shelf = Shelf::new();
    let mut cartridge = shelf.open();
    write(&mut cartridge, 1, 0, LARGE);
    write(&mut cartridge, 2, LARGE as u64, 0);
    write(&mut cartridge, 3, LARGE as u64, 77);
    cartridge.sync().expect("synced");
    write(&mut cartridge, 4, LARGE as u64 + 77, 1_000);
    drop(cartridge);
    // By headers, then by the index.
    for _ in 0..2 {
        let cartridge = shelf.open();
        // A mount to read cuts nothing off.
        assert!(cartridge.has_lost_tail());
        assert_eq!(cartridge.end_bytes(), LARGE as u64 + 77);
        assert_eq!(read(&cartridge, 0, LARGE).expect("read"), bytes(1, LARGE));
        assert!(read(&cartridge, LARGE as u64, 0).expect("read").is_empty());
        assert_eq!(
            read(&cartridge, LARGE as u64, 77).expect("read"),
            bytes(3, 77)
        );
        // A part of a file.
        let part = read(&cartridge, 1_000_000, 500_000).expect("read");
        assert_eq!(part, bytes(1, LARGE)[1_000_000..1_500_000]);
        let gone = read(&cartridge, LARGE as u64 + 77, 1_000);
        assert!(matches!(gone, Err(ReadError::Missing)));
        cartridge.close().expect("closed");
    }
}

#[test]
fn data_is_overwritten_only_before_the_sync_and_after_a_relabel() {
    let shelf = Shelf::new();
    let mut cartridge = shelf.open();
    write(&mut cartridge, 1, 0, 500);
    write(&mut cartridge, 2, 500, 500);
    // The second once more, as after a restart of who orders it.
    write(&mut cartridge, 2, 500, 400);
    cartridge.sync().expect("synced");
    assert_eq!(read(&cartridge, 500, 400).expect("read"), bytes(2, 400));
    let over = cartridge.append((FileId(3), 899, 10), &mut [0; 10].as_slice(), |_| true);
    assert!(matches!(over, Err(WriteError::Occupied)));
    // A gap is allowed: what lay there was lost.
    write(&mut cartridge, 4, 5_000, 10);
    cartridge.sync().expect("synced");
    cartridge.close().expect("closed");
    relabel(&shelf.path(), &tape()).expect("relabeled");
    let cartridge = shelf.open();
    assert_eq!(cartridge.end_bytes(), 0);
    assert!(read(&cartridge, 0, 500).is_err());
}

#[test]
fn a_stopped_write_leaves_nothing() {
    let shelf = Shelf::new();
    let mut cartridge = shelf.open();
    write(&mut cartridge, 1, 0, 500);
    let content = bytes(2, LARGE);
    let address = (FileId(2), 500, LARGE as u64);
    let stopped = cartridge.append(address, &mut content.as_slice(), |moved| moved == 0);
    assert!(matches!(stopped, Err(WriteError::Stopped)));
    cartridge.sync().expect("synced");
    drop(cartridge);
    let cartridge = shelf.open();
    assert!(!cartridge.has_lost_tail());
    assert_eq!((cartridge.end_bytes(), cartridge.files.len()), (500, 1));
    let short = (FileId(3), 500, 1_000);
    let mut cartridge = cartridge;
    let ended = cartridge.append(short, &mut [1; 10].as_slice(), |_| true);
    assert!(matches!(ended, Err(WriteError::Source(_))));
}

#[test]
fn a_flipped_bit_is_never_read_as_data() {
    let shelf = Shelf::new();
    let mut cartridge = shelf.open();
    write(&mut cartridge, 1, 0, LARGE);
    cartridge.sync().expect("synced");
    let length = cartridge.synced_length;
    for place in [
        LABEL_BYTES as u64 + 20,
        LABEL_BYTES as u64 + 4_000,
        length / 2,
    ] {
        let mut byte = [0];
        cartridge
            .medium
            .read_exact_at(&mut byte, place)
            .expect("read");
        cartridge
            .medium
            .write_all_at(&[byte[0] ^ 4], place)
            .expect("written");
        let damaged = read(&cartridge, 0, LARGE);
        assert!(matches!(damaged, Err(ReadError::Damaged)), "{place}");
        cartridge
            .medium
            .write_all_at(&byte, place)
            .expect("written");
    }
    assert_eq!(read(&cartridge, 0, LARGE).expect("read"), bytes(1, LARGE));
}

#[test]
fn whatever_a_crash_leaves_what_was_synced_is_there() {
    let shelf = Shelf::new();
    let mut cartridge = shelf.open();
    write(&mut cartridge, 1, 0, 70_000);
    cartridge.sync().expect("synced");
    let synced = cartridge.synced_length;
    write(&mut cartridge, 2, 70_000, 50_000);
    cartridge.sync().expect("synced");
    drop(cartridge);
    let whole = std::fs::read(shelf.path()).expect("read");
    for cut in (synced as usize..whole.len())
        .step_by(997)
        .chain([whole.len() - 6])
    {
        let mut left = whole[..cut].to_vec();
        // A disk may also leave zeros where data was to be.
        if cut % 2 == 0 {
            left.resize(whole.len() + 4_096, 0);
        }
        std::fs::write(shelf.path(), &left).expect("written");
        let cartridge = shelf.open();
        assert_eq!(cartridge.end_bytes(), 70_000, "cut at {cut}");
        assert_eq!(read(&cartridge, 0, 70_000).expect("read"), bytes(1, 70_000));
    }
    std::fs::write(shelf.path(), &whole[..100]).expect("written");
    let torn = CartridgeFile::open(&shelf.path(), &tape());
    assert!(matches!(torn, Err(LabelError::Label)));
    let other = CartridgeFile::open(&shelf.path(), &TapeName("B".into()));
    assert!(matches!(other, Err(LabelError::Label)));
}

/// Three files, each of them synced, and where their headers lie.
fn three_files(shelf: &Shelf) -> Vec<u64> {
    let mut cartridge = shelf.open();
    let mut headers = Vec::new();
    for (file, begin) in [(1, 0), (2, LARGE), (3, 2 * LARGE)] {
        let first = cartridge.tail_offset();
        write(&mut cartridge, file, begin as u64, LARGE);
        let block = (HEADER_BYTES + PAYLOAD_MAX) as u64;
        let end = cartridge.tail_offset();
        let file_mark = end - HEADER_BYTES as u64 - 12;
        headers.extend([first, first + block, first + 2 * block, file_mark, end]);
        cartridge.sync().expect("synced");
    }
    headers
}

#[test]
fn a_damaged_header_hides_nothing_that_lies_behind_it() {
    let shelf = Shelf::new();
    let headers = three_files(&shelf);
    let whole = std::fs::read(shelf.path()).expect("read");
    assert_eq!(headers.len(), 15);
    // The index is absent: the cartridge was not closed.
    for (number, place) in headers.into_iter().enumerate() {
        let mut damaged = whole.clone();
        damaged[place as usize + 9] ^= 1;
        std::fs::write(shelf.path(), &damaged).expect("written");
        let cartridge = shelf.open();
        assert!(!cartridge.has_lost_tail(), "{number}");
        assert_eq!(cartridge.end_bytes(), 3 * LARGE as u64, "{number}");
        for file in 0..3 {
            let content = read(&cartridge, (file * LARGE) as u64, LARGE);
            // Of marks it is known from the blocks what they said.
            let is_block = number / 5 == file && number % 5 < 3;
            match is_block {
                true => assert!(matches!(content, Err(ReadError::Damaged)), "{number}"),
                false => assert_eq!(content.expect("read"), bytes(file as u64 + 1, LARGE)),
            }
        }
        cartridge.close().expect("closed");
        std::fs::remove_file(index_path(&shelf.path())).expect("removed");
        let kept = std::fs::read(shelf.path()).expect("read");
        assert!(
            kept == damaged,
            "header {number}: a mount to read changes nothing"
        );
    }
}

#[test]
fn a_stretch_of_zeros_costs_only_the_files_that_it_touches() {
    let shelf = Shelf::new();
    let mut cartridge = shelf.open();
    for file in 0..100 {
        write(&mut cartridge, file, file * 100, 100);
        cartridge.sync().expect("synced");
    }
    drop(cartridge);
    let mut damaged = std::fs::read(shelf.path()).expect("read");
    // A sector of a disk, with headers of many files.
    damaged[8_192..12_288].fill(0);
    std::fs::write(shelf.path(), damaged).expect("written");
    let mut cartridge = shelf.open();
    let is_whole = |cartridge: &CartridgeFile, file: &u64| {
        read(cartridge, file * 100, 100).is_ok_and(|content| content == bytes(*file, 100))
    };
    let one = (3 * HEADER_BYTES + 12 + 100) as u64;
    let touched = (8_192 - 256) / one..=(12_288 - 256) / one;
    let lost: Vec<u64> = (0..100)
        .filter(|file| !is_whole(&cartridge, file))
        .collect();
    assert!(lost.iter().all(|file| touched.contains(file)), "{lost:?}");
    write(&mut cartridge, 100, 10_000, 100);
    cartridge.sync().expect("synced");
    drop(cartridge);
    let cartridge = shelf.open();
    assert!(is_whole(&cartridge, &100) && is_whole(&cartridge, &99));
}

#[test]
fn a_cartridge_that_was_written_to_another_one_as_a_file_is_data_there() {
    let inner = Shelf::new();
    three_files(&inner);
    let inner = std::fs::read(inner.path()).expect("read");
    let shelf = Shelf::new();
    let mut cartridge = shelf.open();
    let address = (FileId(7), 0, inner.len() as u64);
    let written = cartridge.append(address, &mut inner.as_slice(), |_| true);
    written.expect("written");
    write(&mut cartridge, 8, inner.len() as u64, 500);
    cartridge.sync().expect("synced");
    drop(cartridge);
    let mut damaged = std::fs::read(shelf.path()).expect("read");
    damaged[LABEL_BYTES + 9] ^= 1;
    std::fs::write(shelf.path(), damaged).expect("written");
    let cartridge = shelf.open();
    let files: Vec<u64> = cartridge.files.values().map(|one| one.file.0).collect();
    assert_eq!(files, [7, 8]);
    let last = read(&cartridge, inner.len() as u64, 500).expect("read");
    assert_eq!(last, bytes(8, 500));
}

#[test]
fn a_cartridge_of_an_earlier_version_is_read_and_written_on() {
    let shelf = Shelf::new();
    // Neither its label nor its headers had a sign, and its index had no checksum.
    let mut old = [0; LABEL_BYTES];
    old[..16].copy_from_slice(b"PENSTOCK-TAPE-1\n");
    old[16..22].copy_from_slice(b"A00001");
    std::fs::write(shelf.path(), old).expect("written");
    let mut cartridge = shelf.open();
    write(&mut cartridge, 1, 0, LARGE);
    cartridge.sync().expect("synced");
    let header = std::fs::read(shelf.path()).expect("read");
    assert_eq!(header[LABEL_BYTES + 36..LABEL_BYTES + 40], [0; 4]);
    let index = Index {
        synced_length: cartridge.synced_length,
        synced_end: cartridge.synced_end,
        files: Vec::new(),
    };
    let index = serde_json::to_vec(&index).expect("written");
    std::fs::write(index_path(&shelf.path()), index).expect("written");
    drop(cartridge);
    let mut cartridge = shelf.open();
    write(&mut cartridge, 2, LARGE as u64, 10);
    cartridge.sync().expect("synced");
    assert_eq!(read(&cartridge, 0, LARGE).expect("read"), bytes(1, LARGE));
    assert_eq!(
        read(&cartridge, LARGE as u64, 10).expect("read"),
        bytes(2, 10)
    );
}

impl CartridgeFile {
    /// From now on the kernel answers each read with EIO, as for a bad sector: there is no memory at such an address.
    pub(crate) fn spoil(&mut self) {
        self.medium = File::open("/proc/self/mem").expect("readable");
    }
}

#[test]
fn what_the_disk_cannot_read_is_an_error_of_the_medium() {
    let shelf = Shelf::new();
    let mut cartridge = shelf.open();
    write(&mut cartridge, 1, 0, 500);
    cartridge.sync().expect("synced");
    cartridge.spoil();
    let Err(ReadError::Medium(why)) = read(&cartridge, 0, 500) else {
        panic!("it was read");
    };
    assert_eq!(why.raw_os_error(), Some(5));
}
