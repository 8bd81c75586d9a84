//! The content of a file in blocks, with its checksum, made one block ahead of whoever sends them.

use crate::checksum_choice::ChecksumChoice;
use crate::dataset::{Content, PlannedFile};
use penstock_model::Checksum;
use penstock_protocol::checksum::Hasher;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use tokio::task::{JoinHandle, spawn_blocking};

/// Bytes per block: large enough that handing it to another thread costs nothing beside reading it.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Where content comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A local file.
    File(PathBuf),
    /// Made up, by its plan.
    Generated(PlannedFile),
}

enum OpenSource {
    File(File),
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
    /// Begins to read `length` bytes.
    pub fn start(source: Source, length: u64, checksums: ChecksumChoice) -> Blocks {
        let next = spawn_blocking(move || {
            let source = match source {
                Source::File(path) => OpenSource::File(File::open(path)?),
                Source::Generated(plan) => OpenSource::Generated(Content::of(&plan)),
            };
            let state = ReadState {
                source,
                hasher: Hasher::new(checksums.algorithms()),
                remaining: length,
            };
            state.make(vec![0; BLOCK_BYTES])
        });
        Blocks { next }
    }

    /// Begins behind the first `offset` bytes of a file, which are read for the checksum alone.
    pub async fn start_at(
        path: PathBuf,
        offset: u64,
        length: u64,
        checksums: ChecksumChoice,
    ) -> io::Result<Blocks> {
        let passed = spawn_blocking(move || {
            let mut state = ReadState {
                source: OpenSource::File(File::open(path)?),
                hasher: Hasher::new(checksums.algorithms()),
                remaining: offset,
            };
            let mut block = Vec::new();
            while state.remaining > 0 {
                let made = state.make(block)?;
                (state, block) = (made.state, made.block);
            }
            state.remaining = length.saturating_sub(offset);
            Ok::<_, io::Error>((state, block))
        });
        let (state, block) = passed.await.map_err(io::Error::other)??;
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
}

/// The checksums of the first `length` bytes of a source.
pub async fn checksums_of(
    source: Source,
    length: u64,
    checksums: ChecksumChoice,
) -> io::Result<Vec<Checksum>> {
    let mut blocks = Blocks::start(source, length, checksums);
    let mut spare = None;
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
            OpenSource::File(file) => {
                file.read_exact(&mut block[..wanted])
                    .map_err(|why| match why.kind() {
                        io::ErrorKind::UnexpectedEof => {
                            io::Error::other("the file became shorter while it was read")
                        }
                        _ => why,
                    })?;
                wanted
            }
        };
        block.truncate(length.min(wanted));
        self.hasher.update(&block);
        self.remaining -= block.len() as u64;
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
        let whole = Source::File(file.path().to_owned());
        let wanted = ChecksumChoice::Strongest;
        let expected = checksums_of(whole, length, wanted).await.expect("read");
        for offset in [0, 1, BLOCK_BYTES as u64, 2 * BLOCK_BYTES as u64 + 5, length] {
            let path = file.path().to_owned();
            let blocks = Blocks::start_at(path, offset, length, wanted).await;
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
}
