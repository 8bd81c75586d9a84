//! What a service and a gfal child say to each other: one JSON document a line, and the bytes of files behind them.
//!
//! The service writes orders into the child's standard input; the child answers each in turn. Between an order and its
//! answer come news. Bytes of a file follow their line at once, as many as it says. Both sides refuse longer lines and
//! larger pieces than are agreed here, so neither can fill the memory of the other.

use super::files::OpenableFiles;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, BufRead, Read, Write};
use thiserror::Error;

/// Bytes of one line, without its end. The longest holds a proxy with its chain.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a file that come in one piece.
pub const PIECE_BYTES_MAX: usize = 1 << 20;
/// Characters of a text that a library gave, beyond which it is cut.
pub const TEXT_CHARS_MAX: usize = 2000;

/// What a child is told to do. It takes one order at a time.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "order")]
pub enum Order {
    /// The service has the descriptor by which connections are judged; the child closes its own.
    Supervised,
    /// Comes first of what concerns a transfer, and once.
    Setup(Box<Setup>),
    /// Size of a file.
    Stat { url: String },
    /// Checksum of a file, as its storage element tells it.
    Checksum {
        url: String,
        /// By the name that gfal2 knows: `ADLER32`, `MD5`.
        algorithm: String,
    },
    /// Makes a directory and those above it.
    MakeDirectories {
        /// The directory.
        url: String,
    },
    /// Removes a file.
    Remove { url: String },
    /// Lets the ends copy, or whoever the library chooses.
    Copy(Box<CopyOrder>),
    /// Copies through the child.
    Stream {
        source: String,
        destination: String,
        /// The destination must not exist.
        exclusive: bool,
        /// The checksum to compute as the bytes pass, by the name in records.
        algorithm: String,
    },
    /// Gives the bytes of a file to the service.
    Read { url: String },
    /// Writes the bytes that follow as [`Order::Piece`], up to an empty one.
    Write {
        /// Into which file.
        url: String,
        /// It must not exist.
        exclusive: bool,
    },
    /// The next bytes of a file that is written; so many follow this line. 0: it is whole.
    Piece {
        /// Bytes.
        length: usize,
    },
    /// Asks for files of one storage element to be brought from tape, [`penstock_model::tape::GFAL_FILES_MAX`] at most, in one request.
    BringOnline {
        urls: Vec<String>,
        /// Seconds for which they shall stay on disk.
        pin_seconds: i64,
        /// Seconds after which the request may be given up.
        timeout_seconds: i64,
    },
    /// Asks whether files are there by now.
    PollOnline {
        urls: Vec<String>,
        /// As the request was named.
        request: String,
    },
    /// Files need not stay on disk for us any longer.
    Release {
        urls: Vec<String>,
        /// As the request was named; empty when it was not.
        request: String,
    },
    /// Files need not be brought any more.
    Abort {
        urls: Vec<String>,
        /// As the request was named.
        request: String,
    },
    /// Asks whether a file is on disk, on tape, or on both.
    Locality { url: String },
    /// Gives up what is being done.
    Cancel,
}

/// By what a child reaches storage elements. Comes over its standard input, so no process list and no environment
/// shows it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Setup {
    /// A delegated proxy with its key and chain, PEM.
    pub proxy: Option<String>,
    /// Bearer tokens, each with the URL that it is for.
    pub tokens: Vec<(String, String)>,
    /// How to log in where there are neither proxies nor tokens.
    pub sftp: Option<SftpLogin>,
    /// Seconds for one question about a file.
    pub question_seconds: u32,
    pub checksum_seconds: u32,
    /// What storage elements may be told of the transfer, for their logs.
    pub client_info: Vec<(String, String)>,
}

/// A name and a key for `sftp`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SftpLogin {
    /// The account at the server.
    pub user: String,
    /// The private key, PEM. The child cannot read the site's files.
    pub key: String,
}

/// A copy that the library does as it sees fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyOrder {
    pub source: String,
    pub destination: String,
    /// Connections between the ends. `None`: as the ends like.
    pub streams: Option<u32>,
    /// TCP buffer, bytes. `None`: the kernel's.
    pub buffer_bytes: Option<u64>,
    /// An existing destination may be replaced.
    pub replace: bool,
    /// Neither end is looked at before or afterwards, because the service does so.
    pub strict: bool,
    /// Seconds for the whole copy.
    pub timeout_seconds: u64,
    /// The ends may be handed the proxy.
    pub delegate: bool,
    /// SRM: the space of the source.
    pub source_space: Option<String>,
    /// SRM: the space to write to.
    pub destination_space: Option<String>,
}

/// What a child says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "report")]
pub enum Report {
    /// It is confined, has loaded nothing yet, and waits for [`Order::Supervised`].
    Confined {
        /// The number of the descriptor by which the files that it opens and its connections are judged, in the child.
        listener: i32,
        /// What it may open.
        openable: OpenableFiles,
    },
    /// It waits for its setup.
    Ready {
        /// Of gfal2.
        version: String,
        /// Names of the plug-ins that are there, such as `gridftp`.
        plugins: Vec<String>,
    },
    /// The library cannot be used on this machine; the child ends.
    Unusable {
        /// Why, with what to install.
        why: String,
    },
    /// News of a copy.
    Progress {
        /// Bytes so far.
        moved: u64,
        /// Bytes a second now, where the library tells.
        rate: Option<u64>,
    },
    /// The library has said how it copies: `3rd pull`, `3rd push` or `streamed`.
    CopiesBy {
        /// In its words.
        way: String,
    },
    /// The next bytes of a file that is read; so many follow this line.
    Piece {
        /// Bytes.
        length: usize,
    },
    /// It takes bytes to write.
    Writing,
    /// The order was carried out.
    Done(OrderResult),
    /// It was not.
    Failed(GfalError),
}

/// What an order that was carried out has given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OrderResult {
    /// Of the file, or as many as were moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// In hex, as the storage element told it or as it was computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_directory: bool,
    /// When it last changed, in seconds since 1970, if the storage element tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_seconds: Option<i64>,
    /// Names a request to a tape system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Where the file is, in the words of `user.status`: `ONLINE`, `NEARLINE`, `ONLINE_AND_NEARLINE`, and others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<String>,
    /// What came of each file, in the order in which they were named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileState>,
}

/// What came of one file of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    Done,
    /// Nothing yet.
    Pending,
    /// It did not work.
    Failed(GfalError),
}

/// What the library says when something did not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{message}")]
pub struct GfalError {
    /// POSIX error number.
    pub errno: i32,
    /// One line.
    pub message: String,
    /// The end that is meant, where that is known.
    pub end: Option<WhichEnd>,
}

/// An end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhichEnd {
    /// Where the file is.
    Source,
    /// Where it goes.
    Destination,
}

impl GfalError {
    /// From what the library gave. Copies begin their message with the end that is meant.
    pub fn new(errno: i32, text: &str) -> GfalError {
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let message: String = line.chars().take(TEXT_CHARS_MAX).collect();
        let end = match message.split(' ').next() {
            Some("SOURCE") => Some(WhichEnd::Source),
            Some("DESTINATION") => Some(WhichEnd::Destination),
            _ => None,
        };
        GfalError {
            errno,
            message,
            end,
        }
    }

    /// The same, with so many characters at most.
    pub fn cut(mut self, chars_max: usize) -> GfalError {
        if let Some((at, _)) = self.message.char_indices().nth(chars_max) {
            self.message.truncate(at);
        }
        self
    }

    /// The same, with the end that it happened at.
    pub fn at(mut self, end: WhichEnd) -> GfalError {
        self.end = Some(end);
        self
    }
}

// Orders hold secrets: nothing prints them by accident.
impl fmt::Debug for Order {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl fmt::Debug for Setup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Setup")
    }
}

impl fmt::Debug for SftpLogin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SftpLogin({})", self.user)
    }
}

impl Order {
    /// The verb, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Order::Supervised => "supervision",
            Order::Setup(_) => "setup",
            Order::Stat { .. } => "stat",
            Order::Checksum { .. } => "checksum",
            Order::MakeDirectories { .. } => "mkdir",
            Order::Remove { .. } => "unlink",
            Order::Copy(_) => "copy",
            Order::Stream { .. } => "streamed copy",
            Order::Read { .. } => "read",
            Order::Write { .. } => "write",
            Order::Piece { .. } => "piece",
            Order::BringOnline { .. } => "bring online",
            Order::PollOnline { .. } => "poll",
            Order::Release { .. } => "release",
            Order::Abort { .. } => "abort",
            Order::Locality { .. } => "locality",
            Order::Cancel => "cancel",
        }
    }
}

/// One line with its end.
pub fn line<T: Serialize>(value: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("these types are always valid JSON");
    line.push(b'\n');
    line
}

/// Reads a line of the other side. Errors: it is no such document.
pub fn parse<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Result<T, InvalidLine> {
    serde_json::from_slice(line).map_err(|why| InvalidLine(why.to_string()))
}

/// The other side does not speak this language.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not a line of this protocol: {0}")]
pub struct InvalidLine(String);

/// The next line, blocking. `None`: the other side has closed.
pub fn read_line<T: for<'a> Deserialize<'a>>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    let limit = LINE_BYTES_MAX as u64 + 1;
    if from.by_ref().take(limit).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.pop() != Some(b'\n') {
        let why = format!("a line ends early, or is longer than {LINE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let value = parse(&line).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?;
    Ok(Some(value))
}

/// The bytes behind a line that announced them, blocking.
pub fn read_piece(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    check_piece(length)?;
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Errors: a piece larger than agreed.
pub fn check_piece(length: usize) -> io::Result<()> {
    match length > PIECE_BYTES_MAX {
        true => {
            let why = format!("a piece of {length} bytes is larger than {PIECE_BYTES_MAX}");
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
        false => Ok(()),
    }
}

/// Writes a line, and the bytes behind it, blocking.
pub fn write(to: &mut impl Write, value: &impl Serialize, piece: &[u8]) -> io::Result<()> {
    to.write_all(&line(value))?;
    to.write_all(piece)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read_again() {
        let order = Order::Write {
            url: "gsiftp://se/f\n\"é".into(),
            exclusive: true,
        };
        let mut bytes = Vec::new();
        write(&mut bytes, &order, b"").expect("written");
        write(&mut bytes, &Order::Piece { length: 3 }, b"a\nb").expect("written");
        write(&mut bytes, &Order::Piece { length: 0 }, b"").expect("written");
        let mut from = &bytes[..];
        assert_eq!(read_line(&mut from).expect("a line"), Some(order));
        let piece = read_line(&mut from).expect("a line");
        assert_eq!(piece, Some(Order::Piece { length: 3 }));
        assert_eq!(read_piece(&mut from, 3).expect("bytes"), b"a\nb");
        let end = read_line(&mut from).expect("a line");
        assert_eq!(end, Some(Order::Piece { length: 0 }));
        assert_eq!(read_line::<Order>(&mut from).expect("the end"), None);
    }

    #[test]
    fn what_is_too_long_or_ends_early_is_refused() {
        let long = [vec![b'a'; LINE_BYTES_MAX + 1], b"\n".to_vec()].concat();
        assert!(read_line::<Report>(&mut &long[..]).is_err());
        assert!(read_line::<Report>(&mut &b"{\"report\":\"writing\"}"[..]).is_err());
        assert!(read_line::<Report>(&mut &b"hello from a library\n"[..]).is_err());
        assert!(read_piece(&mut &b""[..], PIECE_BYTES_MAX + 1).is_err());
        assert!(read_piece(&mut &b"ab"[..], 3).is_err());
    }

    #[test]
    fn no_secret_is_printed() {
        let setup = Setup {
            proxy: Some("PRIVATE KEY".into()),
            tokens: vec![("root://se".into(), "eyJ".into())],
            ..Setup::default()
        };
        let order = Order::Setup(Box::new(setup.clone()));
        assert_eq!(format!("{order:?} {setup:?}"), "setup Setup");
    }

    #[test]
    fn an_error_of_the_library_becomes_one_line_and_names_its_end() {
        let error = GfalError::new(17, "DESTINATION EXISTS  file\r\nthere ");
        assert_eq!(error.message, "DESTINATION EXISTS file there");
        assert_eq!(error.end, Some(WhichEnd::Destination));
        let error = GfalError::new(5, &"x".repeat(100_000));
        assert_eq!((error.message.len(), error.end), (TEXT_CHARS_MAX, None));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_line::<Report>(&mut &bytes[..]);
            let _ = read_line::<Order>(&mut &bytes[..]);
        }
    }
}
