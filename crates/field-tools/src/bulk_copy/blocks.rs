//! The content of a file in blocks, with its checksum, made one block ahead of whoever sends them.

use crate::dataset::{Content, PlannedFile};
use penstock_model::{Checksum, ChecksumAlgorithm};
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
    pub fn start(source: Source, length: u64, algorithm: ChecksumAlgorithm) -> Blocks {
        let next = spawn_blocking(move || {
            let source = match source {
                Source::File(path) => OpenSource::File(File::open(path)?),
                Source::Generated(plan) => OpenSource::Generated(Content::of(&plan)),
            };
            let state = ReadState {
                source,
                hasher: Hasher::new(&[algorithm]),
                remaining: length,
            };
            state.make(vec![0; BLOCK_BYTES])
        });
        Blocks { next }
    }

    /// The next block and the reader of those after it; at the end, the checksum. `spare` is a buffer to fill
    /// anew.
    pub async fn next(self, spare: Option<Vec<u8>>) -> io::Result<Next> {
        let made = self.next.await.map_err(io::Error::other)??;
        if made.block.is_empty() {
            let mut checksums = made.state.hasher.finish();
            return Ok(Next::End(checksums.swap_remove(0)));
        }
        let spare = spare.unwrap_or_else(|| vec![0; BLOCK_BYTES]);
        let next = spawn_blocking(move || made.state.make(spare));
        Ok(Next::Block(made.block, Blocks { next }))
    }
}

/// The checksum of the first `length` bytes of a source.
pub async fn checksum_of(
    source: Source,
    length: u64,
    algorithm: ChecksumAlgorithm,
) -> io::Result<Checksum> {
    let mut blocks = Blocks::start(source, length, algorithm);
    let mut spare = None;
    loop {
        match blocks.next(spare.take()).await? {
            Next::Block(block, rest) => {
                spare = Some(block);
                blocks = rest;
            }
            Next::End(checksum) => return Ok(checksum),
        }
    }
}

/// What comes next of a file.
pub enum Next {
    /// Some bytes, and the rest.
    Block(Vec<u8>, Blocks),
    /// Nothing more: the checksum of all of it.
    End(Checksum),
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
