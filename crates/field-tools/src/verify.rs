//! Proof that copies are what their originals were: every checksum asked for, and a sample read back byte by
//! byte.
//!
//! A storage element computes the checksum that it tells from the bytes as they arrive. Reading a sample back
//! shows that the disk holds these bytes too.

use crate::bulk_copy::each_of;
use crate::remote::{Remote, Wanted};
use crate::remote_error::RemoteError;
use penstock_model::{Bytes, Checksum};
use penstock_protocol::checksum::Hasher;
use serde::Serialize;
use url::Url;

/// Files that are read back at most, and their bytes in all.
const SAMPLE_FILES_MAX: usize = 20;
const SAMPLE_BYTES_MAX: u64 = 1 << 30;

/// What a copy must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedCopy {
    pub copy: Url,
    /// Size of the original.
    pub size: Bytes,
    /// Checksum of the original, computed where it was made.
    pub checksum: Checksum,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verification {
    /// Copies looked at.
    pub files: usize,
    /// Of these, with the right size and checksum.
    pub agreed: usize,
    /// Files read back whole, with the right content.
    pub read_back_files: usize,
    pub read_back_bytes: Bytes,
    /// One line for each copy that is not right.
    pub problems: Vec<String>,
}

impl Verification {
    /// True when nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.problems.is_empty() && self.agreed == self.files
    }
}

/// Verifies all copies, `parallel` at once.
pub async fn verify_all(
    remote: &Remote,
    copies: Vec<ExpectedCopy>,
    parallel: usize,
) -> Verification {
    let sample = choose_sample(&copies);
    let mut found = Verification {
        files: copies.len(),
        ..Verification::default()
    };
    let told = each_of(copies, parallel, |expected| {
        let remote = remote.clone();
        async move {
            compare_told(&remote, &expected)
                .await
                .map_err(|why| why.to_string())
        }
    })
    .await;
    for outcome in told {
        match outcome {
            Ok(()) => found.agreed += 1,
            Err(problem) => found.problems.push(problem),
        }
    }
    let read = each_of(sample, parallel, |expected| {
        let remote = remote.clone();
        async move {
            read_back(&remote, &expected)
                .await
                .map_err(|why| why.to_string())
        }
    })
    .await;
    for outcome in read {
        match outcome {
            Ok(size) => {
                found.read_back_files += 1;
                found.read_back_bytes.0 += size.0;
            }
            Err(problem) => found.problems.push(problem),
        }
    }
    found
}

/// The smallest, the largest, and files evenly between them, as far as the bytes allow.
fn choose_sample(copies: &[ExpectedCopy]) -> Vec<ExpectedCopy> {
    let mut by_size: Vec<&ExpectedCopy> = copies.iter().collect();
    by_size.sort_by_key(|expected| expected.size);
    let steps = by_size.len().min(SAMPLE_FILES_MAX);
    let mut bytes = 0;
    (0..steps)
        .map(|step| by_size[step * (by_size.len() - 1) / (steps - 1).max(1)])
        .filter(|expected| {
            let fits = bytes + expected.size.0 <= SAMPLE_BYTES_MAX;
            bytes += if fits { expected.size.0 } else { 0 };
            fits
        })
        .cloned()
        .collect()
}

async fn compare_told(remote: &Remote, expected: &ExpectedCopy) -> Result<(), RemoteError> {
    let head = remote
        .head(&expected.copy, expected.checksum.algorithm())
        .await?;
    let head = head.ok_or_else(|| RemoteError::not_found(expected.copy.to_string()))?;
    if head.size != Some(expected.size) {
        let size = head
            .size
            .map_or_else(|| "no size".to_owned(), |size| format!("{} bytes", size.0));
        return Err(wrong(expected, format!("{} bytes", expected.size.0), size));
    }
    let told = head
        .checksums
        .into_iter()
        .find(|told| told.algorithm() == expected.checksum.algorithm());
    match told {
        Some(told) if told == expected.checksum => Ok(()),
        Some(told) => Err(wrong(
            expected,
            expected.checksum.to_string(),
            told.to_string(),
        )),
        None => Err(wrong(
            expected,
            expected.checksum.to_string(),
            "no checksum".to_owned(),
        )),
    }
}

async fn read_back(remote: &Remote, expected: &ExpectedCopy) -> Result<Bytes, RemoteError> {
    let mut answer = remote
        .get(&expected.copy, expected.checksum.algorithm(), Wanted::Whole)
        .await?;
    let mut hasher = Hasher::new(&[expected.checksum.algorithm()]);
    let mut block = vec![0; 256 << 10];
    let mut size = 0;
    loop {
        let length = answer.read(&mut block).await?;
        if length == 0 {
            break;
        }
        hasher.update(&block[..length]);
        size += length as u64;
    }
    let content = hasher.finish().swap_remove(0);
    match content == expected.checksum {
        true => Ok(Bytes(size)),
        false => Err(wrong(
            expected,
            expected.checksum.to_string(),
            format!("data with {content}"),
        )),
    }
}

fn wrong(expected: &ExpectedCopy, wanted: String, found: String) -> RemoteError {
    RemoteError::Nonsense {
        url: expected.copy.to_string(),
        detail: format!("expected {wanted}, found {found}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_of(sizes: &[u64]) -> Vec<u64> {
        let copies: Vec<ExpectedCopy> = sizes
            .iter()
            .map(|size| ExpectedCopy {
                copy: Url::parse("https://se/f").expect("valid"),
                size: Bytes(*size),
                checksum: Checksum::parse("adler32:1").expect("valid"),
            })
            .collect();
        choose_sample(&copies)
            .iter()
            .map(|expected| expected.size.0)
            .collect()
    }

    #[test]
    fn the_sample_spans_the_sizes_within_its_bounds() {
        assert_eq!(sample_of(&[]), [0u64; 0]);
        assert_eq!(sample_of(&[7]), [7]);
        assert_eq!(sample_of(&[5, 3, 9]), [3, 5, 9]);
        let many = sample_of(&(0..1000).collect::<Vec<u64>>());
        assert_eq!((many.len(), many[0], many[19]), (20, 0, 999));
        assert_eq!(sample_of(&[1, SAMPLE_BYTES_MAX]), [1]);
    }
}
