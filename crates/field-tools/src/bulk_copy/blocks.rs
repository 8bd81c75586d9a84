//! The content of a file in blocks, with its checksum, made one block ahead of whoever sends them. What comes is one version of
//! the file: when it changes while it is read, its last block does not come.

use crate::checksum_choice::ChecksumChoice;
use crate::dataset::{Content, PlannedFile};
use crate::local_place::FileVersion;
use crate::local_source::LocalSource;
use penstock_model::Checksum;
use penstock_protocol::checksum::Hasher;
use rustix::fs::{AtFlags, StatxFlags, fdatasync, statx};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes per block: large enough that handing it to another thread costs nothing beside reading it.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Where content comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A local file.
    File(LocalSource),
    /// Made up, by its plan.
    Generated(PlannedFile),
}

/// A local file that is being read, and the version that is wanted of it.
pub struct OpenedFile {
    file: File,
    pub version: FileVersion,
}

impl OpenedFile {
    pub async fn open(source: LocalSource) -> io::Result<OpenedFile> {
        let opened = spawn_blocking(move || OpenedFile::of(source.open()?));
        opened.await.map_err(io::Error::other)?
    }

    pub fn of(file: File) -> io::Result<OpenedFile> {
        let version = settled_version(&file)?;
        Ok(OpenedFile { file, version })
    }

    /// An error when it is not the version that was opened any more.
    fn check(&self) -> io::Result<()> {
        match settled_version(&self.file)? == self.version {
            true => Ok(()),
            false => Err(changed()),
        }
    }
}

/// The version of a file after all that was written to it has gone to its disk. A program that has the file in its memory changes
/// pages without a trace, until they are written back: the first change of a clean page alone changes the times of the file.
fn settled_version(file: &File) -> io::Result<FileVersion> {
    match fdatasync(file) {
        Ok(()) | Err(Errno::INVAL | Errno::ROFS | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        Err(why) => return Err(why.into()),
    }
    // A network file system tells what it remembers, unless it is made to ask its server.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    if let Err(why) = statx(file, "", flags, StatxFlags::BASIC_STATS) {
        tracing::debug!(%why, "the attributes of a file are not refreshed");
    }
    Ok(FileVersion::of(&file.metadata()?))
}

/// Why a file is not copied that another program writes.
pub fn changed() -> io::Error {
    io::Error::other(
        "the file changed while it was copied; copy it again when nothing writes to it",
    )
}

enum OpenSource {
    File(OpenedFile),
    Generated(Content),
}

/// Reads a source to a given length, a block ahead, off the async threads.
pub struct Blocks {
    next: JoinHandle<io::Result<MadeBlock>>,
}

/// A block, and what is needed to make the one after it.
struct MadeBlock {
    state: ReadState,
    block: Vec<u8>,
}

struct ReadState {
    source: OpenSource,
    hasher: Hasher,
    remaining: u64,
}

impl Blocks {
    /// Opens a source of `length` bytes and begins to read it. A file that has another length is an error before anything of it
    /// is sent.
    pub async fn open(
        source: Source,
        length: u64,
        checksums: ChecksumChoice,
    ) -> io::Result<Blocks> {
        let source = match source {
            Source::File(file) => OpenSource::File(OpenedFile::open(file).await?),
            Source::Generated(plan) => {
                let made = spawn_blocking(move || Content::of(&plan));
                OpenSource::Generated(made.await.map_err(io::Error::other)?)
            }
        };
        Blocks::read(source, 0, length, checksums).await
    }

    /// Begins behind the first `offset` bytes of a file, which are read for the checksum alone.
    pub async fn behind(
        offset: u64,
        file: OpenedFile,
        checksums: ChecksumChoice,
    ) -> io::Result<Blocks> {
        let length = file.version.size;
        Blocks::read(OpenSource::File(file), offset, length, checksums).await
    }

    async fn read(
        source: OpenSource,
        offset: u64,
        length: u64,
        checksums: ChecksumChoice,
    ) -> io::Result<Blocks> {
        if let OpenSource::File(opened) = &source
            && opened.version.size != length
        {
            return Err(changed());
        }
        let mut state = ReadState {
            source,
            hasher: Hasher::new(checksums.algorithms()),
            remaining: offset,
        };
        let mut block = Vec::new();
        if offset > 0 {
            let passed = spawn_blocking(move || {
                while state.remaining > 0 {
                    let made = state.make(block)?;
                    (state, block) = (made.state, made.block);
                }
                Ok::<_, io::Error>((state, block))
            });
            (state, block) = passed.await.map_err(io::Error::other)??;
        }
        state.remaining = length.saturating_sub(offset);
        let next = spawn_blocking(move || state.make(block));
        Ok(Blocks { next })
    }

    /// The next block and the reader of those after it; at the end, the checksums. `spare` is a buffer to fill
    /// anew.
    pub async fn next(self, spare: Option<Vec<u8>>) -> io::Result<Next> {
        let made = self.next.await.map_err(io::Error::other)??;
        if made.block.is_empty() {
            return Ok(Next::End(made.state.hasher.finish()));
        }
        let spare = spare.unwrap_or_else(|| vec![0; BLOCK_BYTES]);
        let next = spawn_blocking(move || made.state.make(spare));
        Ok(Next::Block(made.block, Blocks { next }))
    }

    /// Reads to the end for the checksums alone.
    pub async fn checksums(self) -> io::Result<Vec<Checksum>> {
        let (mut blocks, mut spare) = (self, None);
        loop {
            match blocks.next(spare.take()).await? {
                Next::Block(block, rest) => {
                    spare = Some(block);
                    blocks = rest;
                }
                Next::End(checksums) => return Ok(checksums),
            }
        }
    }
}

/// The checksums of a source of `length` bytes.
pub async fn checksums_of(
    source: Source,
    length: u64,
    checksums: ChecksumChoice,
) -> io::Result<Vec<Checksum>> {
    Blocks::open(source, length, checksums)
        .await?
        .checksums()
        .await
}

/// What comes next of a file.
pub enum Next {
    /// Some bytes, and the rest.
    Block(Vec<u8>, Blocks),
    /// Nothing more: the checksums of all of it.
    End(Vec<Checksum>),
}

impl ReadState {
    fn make(mut self, mut block: Vec<u8>) -> io::Result<MadeBlock> {
        block.resize(BLOCK_BYTES, 0);
        let wanted = self.remaining.min(BLOCK_BYTES as u64) as usize;
        let length = match &mut self.source {
            OpenSource::Generated(content) => content.fill(&mut block),
            OpenSource::File(opened) => {
                let read = opened.file.read_exact(&mut block[..wanted]);
                read.map_err(|why| match why.kind() {
                    io::ErrorKind::UnexpectedEof => changed(),
                    _ => why,
                })?;
                wanted
            }
        };
        block.truncate(length.min(wanted));
        self.hasher.update(&block);
        self.remaining -= block.len() as u64;
        // Once the last block has gone out it is too late.
        if let OpenSource::File(opened) = &self.source
            && self.remaining == 0
            && !block.is_empty()
        {
            opened.check()?;
        }
        Ok(MadeBlock { state: self, block })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_passed_over_counts_for_the_checksum_and_is_not_given() {
        let file = tempfile::NamedTempFile::new().expect("made");
        let content: Vec<u8> = (0..3 * BLOCK_BYTES + 17).map(|n| (n % 251) as u8).collect();
        std::fs::write(file.path(), &content).expect("written");
        let length = content.len() as u64;
        let source = LocalSource::named(file.path()).expect("found");
        let whole = Source::File(source.clone());
        let wanted = ChecksumChoice::Strongest;
        let expected = checksums_of(whole, length, wanted).await.expect("read");
        for offset in [0, 1, BLOCK_BYTES as u64, 2 * BLOCK_BYTES as u64 + 5, length] {
            let opened = OpenedFile::open(source.clone()).await.expect("opened");
            let blocks = Blocks::behind(offset, opened, wanted).await;
            let mut blocks = blocks.expect("read");
            let mut got = Vec::new();
            let checksums = loop {
                match blocks.next(None).await.expect("read") {
                    Next::Block(block, rest) => {
                        got.extend_from_slice(&block);
                        blocks = rest;
                    }
                    Next::End(checksums) => break checksums,
                }
            };
            assert_eq!(checksums, expected, "{offset}");
            assert!(got == content[offset as usize..], "{offset}");
        }
    }

    #[tokio::test]
    async fn of_a_file_that_changes_while_it_is_read_the_last_block_does_not_come() {
        let file = tempfile::NamedTempFile::new().expect("made");
        let path = file.path();
        let wanted = ChecksumChoice::Strongest;
        let length = 4 * BLOCK_BYTES as u64;
        let source = || LocalSource::named(path).expect("found");
        let open = |length| Blocks::open(Source::File(source()), length, wanted);
        std::fs::write(path, vec![1; length as usize]).expect("written");
        let other = open(length + 1).await.map(drop);
        other.expect_err("it has another length than was told");

        let version = || FileVersion::of(&std::fs::metadata(path).expect("there"));
        let before = version();
        let mut blocks = open(length).await.expect("opened");
        while version() == before {
            std::fs::write(path, vec![2; length as usize]).expect("written");
        }
        let mut came = 0;
        let why = loop {
            match blocks.next(None).await {
                Ok(Next::Block(block, rest)) => {
                    came += block.len() as u64;
                    blocks = rest;
                }
                Ok(Next::End(_)) => panic!("it has changed"),
                Err(why) => break why,
            }
        };
        assert!(came < length, "{came}");
        assert!(why.to_string().contains("changed while"), "{why}");
    }
}
