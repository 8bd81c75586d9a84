//! The records of the stream of files.

use penstock_model::Timestamp;
use penstock_model::observation::Text;

const CLOSE: u8 = 0;
const OPEN: u8 = 1;
const TIME: u8 = 2;
const PROGRESS: u8 = 3;
const DISCONNECT: u8 = 4;
const FORCED: u8 = 1;
const HAS_NAME: u8 = 1;
const HAS_WRITE: u8 = 2;
const RECORD_HEAD_BYTES: usize = 8;

/// Bytes since a file was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct OpenFileBytes {
    pub(super) read: i64,
    pub(super) read_in_vectors: i64,
    pub(super) written: i64,
}

impl OpenFileBytes {
    /// What went to the client.
    pub(super) fn sent(&self) -> i64 {
        self.read.saturating_add(self.read_in_vectors)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileRecord {
    Open {
        file: u32,
        size: i64,
        may_write: bool,
        user: Option<u32>,
        path: Option<Text>,
    },
    Progress {
        file: u32,
        moved: OpenFileBytes,
    },
    Close {
        file: u32,
        moved: OpenFileBytes,
        is_forced: bool,
    },
    Disconnect {
        user: u32,
    },
}

/// What a datagram tells, and of which time.
#[derive(Debug, Default)]
pub(super) struct FileRecords {
    pub(super) begins: Option<Timestamp>,
    pub(super) ends: Option<Timestamp>,
    pub(super) records: Vec<FileRecord>,
}

/// `None`: a record is cut.
pub(super) fn parse(mut bytes: &[u8]) -> Option<FileRecords> {
    let mut found = FileRecords::default();
    while !bytes.is_empty() {
        let head = bytes.get(..RECORD_HEAD_BYTES)?;
        let size = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if size < RECORD_HEAD_BYTES {
            return None;
        }
        let (record, rest) = bytes.split_at_checked(size)?;
        bytes = rest;
        let (kind, flags) = (head[0], head[1]);
        let id = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let body = &record[RECORD_HEAD_BYTES..];
        match kind {
            TIME => {
                found.begins = seconds(body, 0);
                found.ends = seconds(body, 4);
            }
            OPEN => found.records.push(open(id, flags, body)?),
            PROGRESS => found.records.push(FileRecord::Progress {
                file: id,
                moved: moved(body)?,
            }),
            CLOSE => found.records.push(FileRecord::Close {
                file: id,
                moved: moved(body)?,
                is_forced: flags & FORCED != 0,
            }),
            DISCONNECT => found.records.push(FileRecord::Disconnect { user: id }),
            // Of a later server.
            _ => {}
        }
    }
    Some(found)
}

fn open(file: u32, flags: u8, body: &[u8]) -> Option<FileRecord> {
    let size = number(body, 0)?;
    let (user, path) = match flags & HAS_NAME != 0 {
        false => (None, None),
        true => {
            let (user, name) = body.get(8..)?.split_first_chunk()?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or(name);
            let name = String::from_utf8_lossy(name);
            (Some(u32::from_be_bytes(*user)), Some(Text::from(&*name)))
        }
    };
    Some(FileRecord::Open {
        file,
        size,
        may_write: flags & HAS_WRITE != 0,
        user,
        path,
    })
}

fn moved(body: &[u8]) -> Option<OpenFileBytes> {
    Some(OpenFileBytes {
        read: number(body, 0)?,
        read_in_vectors: number(body, 8)?,
        written: number(body, 16)?,
    })
}

fn number(body: &[u8], at: usize) -> Option<i64> {
    let bytes = body.get(at..)?.first_chunk()?;
    Some(i64::from_be_bytes(*bytes))
}

fn seconds(body: &[u8], at: usize) -> Option<Timestamp> {
    let bytes = body.get(at..)?.first_chunk()?;
    Some(Timestamp(i64::from(i32::from_be_bytes(*bytes)) * 1000))
}
