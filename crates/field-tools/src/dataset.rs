//! Test data with the size mix of real data sets: empty files, one byte, many small ones, a few that hold
//! most bytes.
//!
//! Everything follows from a seed, so the same request gives the same names, sizes and bytes on every
//! machine. Content is pseudo-random (incompressible, no two blocks alike) and cheap to make; it is not fit
//! for cryptography.

use penstock_model::Bytes;
use thiserror::Error;

/// The largest file of a set: 256 MiB.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
/// Files that one set may have.
pub const FILES_MAX: usize = 1_000_000;

/// Shares of a set by file size, per mille of the files, with the smallest and the largest size of each
/// class. The classes follow what storage elements hold: most files are logs and histograms, most bytes are
/// in event data.
const CLASSES: [(u64, u64, u64); 4] = [
    (400, 1 << 10, 64 << 10),
    (350, 64 << 10, 4 << 20),
    (200, 4 << 20, 32 << 20),
    (50, 32 << 20, FILE_BYTES_MAX),
];

/// What a set should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub files: usize,
    /// How many bytes in all, exactly.
    pub total: Bytes,
    /// Same seed, same set.
    pub seed: u64,
}

/// One file of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Relative path, with `/` between names.
    pub name: String,
    pub size: Bytes,
    /// Determines its content.
    pub seed: u64,
}

/// Why there can be no such set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidRequest {
    /// None or too many files.
    #[error("a data set has 1 to {FILES_MAX} files, not {0}")]
    Files(usize),
    /// The bytes do not fit into so few files.
    #[error("{files} files of at most {} hold {} at most, not {total}; ask for more files or fewer bytes",
        Bytes(FILE_BYTES_MAX), Bytes(*files as u64 * FILE_BYTES_MAX))]
    TooLarge { files: usize, total: Bytes },
}

/// Chooses names and sizes. With three files or more, one is empty and one has a single byte; the sizes add
/// up to the total exactly.
pub fn plan(request: Request) -> Result<Vec<PlannedFile>, InvalidRequest> {
    let Request { files, total, seed } = request;
    if files == 0 || files > FILES_MAX {
        return Err(InvalidRequest::Files(files));
    }
    let edge: &[u64] = if files >= 3 && total.0 > 0 {
        &[0, 1]
    } else {
        &[]
    };
    let free_files = files - edge.len();
    let free_bytes = total.0 - edge.iter().sum::<u64>();
    if free_bytes > free_files as u64 * FILE_BYTES_MAX {
        return Err(InvalidRequest::TooLarge { files, total });
    }
    let mut chance = Chance::new(seed);
    let drawn: Vec<u64> = (0..free_files)
        .map(|index| draw_size(index, free_files, &mut chance))
        .collect();
    let sizes = edge.iter().copied().chain(scale_to(drawn, free_bytes));
    let mut planned: Vec<PlannedFile> = sizes
        .map(|size| PlannedFile {
            name: String::new(),
            size: Bytes(size),
            seed: chance.next(),
        })
        .collect();
    shuffle(&mut planned, &mut chance);
    for (index, file) in planned.iter_mut().enumerate() {
        file.name = format!("run-{:03}/event-{index:06}.dat", index / 100);
    }
    Ok(planned)
}

/// Log-uniform within the class that the file's position falls into, so that shares hold also for few files.
fn draw_size(index: usize, files: usize, chance: &mut Chance) -> u64 {
    let permille = (index as u64 * 1000 + 500) / files as u64;
    let mut below = 0;
    let (_, smallest, largest) = CLASSES
        .into_iter()
        .find(|(share, _, _)| {
            below += share;
            permille < below
        })
        .unwrap_or(CLASSES[CLASSES.len() - 1]);
    let position = (chance.next() >> 11) as f64 / (1u64 << 53) as f64;
    let (low, high) = ((smallest as f64).ln(), (largest as f64).ln());
    (low + position * (high - low)).exp() as u64
}

/// Scales sizes so that they add up to `total` and none exceeds [`FILE_BYTES_MAX`]. The caller checked that
/// it fits.
fn scale_to(mut sizes: Vec<u64>, total: u64) -> Vec<u64> {
    let sum: u128 = sizes.iter().map(|size| u128::from(*size)).sum();
    for size in &mut sizes {
        let scaled = u128::from(*size) * u128::from(total) / sum.max(1);
        *size = u64::try_from(scaled)
            .unwrap_or(FILE_BYTES_MAX)
            .min(FILE_BYTES_MAX);
    }
    // What rounding and the cap left over goes to the largest files that have room.
    let mut rest = total.saturating_sub(sizes.iter().sum());
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(sizes[*index]));
    for index in order {
        let room = (FILE_BYTES_MAX - sizes[index]).min(rest);
        sizes[index] += room;
        rest -= room;
    }
    sizes
}

fn shuffle<T>(items: &mut [T], chance: &mut Chance) {
    for last in (1..items.len()).rev() {
        items.swap(last, (chance.next() % (last as u64 + 1)) as usize);
    }
}

/// The bytes of one planned file, block by block.
#[derive(Debug, Clone)]
pub struct Content {
    chance: Chance,
    remaining: u64,
}

impl Content {
    /// From the beginning of the file.
    pub fn of(file: &PlannedFile) -> Content {
        Content {
            chance: Chance::new(file.seed),
            remaining: file.size.0,
        }
    }

    /// Fills the buffer; gives back how many bytes, 0 at the end. The buffer's length must be a multiple of
    /// eight, so that the content does not depend on it.
    pub fn fill(&mut self, buffer: &mut [u8]) -> usize {
        assert!(
            buffer.len().is_multiple_of(8),
            "content is made in words of eight bytes"
        );
        let length = usize::try_from(self.remaining)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        for word in buffer[..length.next_multiple_of(8)].chunks_exact_mut(8) {
            word.copy_from_slice(&self.chance.next().to_le_bytes());
        }
        self.remaining -= length as u64;
        length
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): one multiplication chain a word, passes BigCrush.
#[derive(Debug, Clone)]
struct Chance {
    state: u64,
}

impl Chance {
    fn new(seed: u64) -> Chance {
        Chance { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(files: usize, total: u64, seed: u64) -> Vec<PlannedFile> {
        plan(Request {
            files,
            total: Bytes(total),
            seed,
        })
        .expect("a request that can be met")
    }

    fn content(file: &PlannedFile, block: usize) -> Vec<u8> {
        let (mut all, mut content, mut buffer) = (Vec::new(), Content::of(file), vec![0; block]);
        loop {
            match content.fill(&mut buffer) {
                0 => return all,
                length => all.extend_from_slice(&buffer[..length]),
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_set_and_another_seed_another() {
        assert_eq!(planned(50, 10_000_000, 7), planned(50, 10_000_000, 7));
        assert_ne!(planned(50, 10_000_000, 7), planned(50, 10_000_000, 8));
    }

    #[test]
    fn sizes_add_up_exactly_and_span_the_mix() {
        for (files, total) in [
            (200, 2_000_000_000),
            (1, 5),
            (3, 1),
            (50, 50 * FILE_BYTES_MAX - FILE_BYTES_MAX * 3),
            (7, 0),
        ] {
            let set = planned(files, total, 1);
            assert_eq!(set.len(), files);
            assert_eq!(
                set.iter().map(|file| file.size.0).sum::<u64>(),
                total,
                "{files} files"
            );
            assert!(set.iter().all(|file| file.size.0 <= FILE_BYTES_MAX));
        }
        let set = planned(200, 2_000_000_000, 1);
        for edge in [0, 1] {
            assert!(
                set.iter().any(|file| file.size.0 == edge),
                "a file of {edge} B"
            );
        }
        assert!(
            set.iter().any(|file| file.size.0 > 100 << 20),
            "a large file"
        );
        assert!(
            set.iter().filter(|file| file.size.0 < 1 << 20).count() > 80,
            "many small files"
        );
    }

    #[test]
    fn content_does_not_depend_on_the_block_size() {
        let file = PlannedFile {
            name: "f".into(),
            size: Bytes(1_000_003),
            seed: 42,
        };
        let whole = content(&file, 1 << 20);
        assert_eq!(whole.len(), 1_000_003);
        assert_eq!(whole, content(&file, 4096));
        assert_ne!(whole[..8], whole[8..16]);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = planned(250, 1_000_000, 3)
            .into_iter()
            .map(|file| file.name)
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 250);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        let refusal = |files, total| {
            plan(Request {
                files,
                total: Bytes(total),
                seed: 0,
            })
            .expect_err("impossible")
            .to_string()
        };
        assert_eq!(refusal(0, 0), "a data set has 1 to 1000000 files, not 0");
        assert_eq!(
            refusal(2, 10 * FILE_BYTES_MAX),
            "2 files of at most 268.4 MB hold 536.9 MB at most, not 2.7 GB; ask for more files or fewer bytes"
        );
    }
}
