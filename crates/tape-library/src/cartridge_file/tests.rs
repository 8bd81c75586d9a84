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
    for is_indexed in [false, true] {
        let cartridge = shelf.open();
        assert_eq!(cartridge.has_lost_tail(), !is_indexed);
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
