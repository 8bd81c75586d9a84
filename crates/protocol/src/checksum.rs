//! Computing checksums of file data, several at once, as the bytes pass.

use openssl::hash::MessageDigest;
use penstock_model::{Checksum, ChecksumAlgorithm};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Read size of [`of_file`]: large enough for streaming disks, small enough for a cache.
const READ_BYTES: usize = 1 << 20;

/// Checksums in the making. Feed it the bytes in order.
pub struct Hasher {
    running: Vec<AlgorithmState>,
}

enum AlgorithmState {
    Adler32(simd_adler32::Adler32),
    Crc32c(u32),
    OpenSsl(ChecksumAlgorithm, openssl::hash::Hasher),
}

impl Hasher {
    /// One running checksum per algorithm, duplicates removed. An algorithm that the system's OpenSSL refuses
    /// (MD5 in FIPS mode) is left out, so that the others still work: look for it in what [`Hasher::finish`]
    /// gives.
    pub fn new(algorithms: &[ChecksumAlgorithm]) -> Hasher {
        let mut wanted = Vec::new();
        for algorithm in algorithms {
            if !wanted.contains(algorithm) {
                wanted.push(*algorithm);
            }
        }
        let openssl = |algorithm, digest| {
            let hasher = openssl::hash::Hasher::new(digest).ok()?;
            Some(AlgorithmState::OpenSsl(algorithm, hasher))
        };
        let start = |algorithm| match algorithm {
            ChecksumAlgorithm::Adler32 => {
                Some(AlgorithmState::Adler32(simd_adler32::Adler32::new()))
            }
            ChecksumAlgorithm::Crc32c => Some(AlgorithmState::Crc32c(0)),
            ChecksumAlgorithm::Md5 => openssl(algorithm, MessageDigest::md5()),
            ChecksumAlgorithm::Sha256 => openssl(algorithm, MessageDigest::sha256()),
        };
        Hasher {
            running: wanted.into_iter().filter_map(start).collect(),
        }
    }

    /// The next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        for running in &mut self.running {
            match running {
                AlgorithmState::Adler32(sum) => sum.write(bytes),
                AlgorithmState::Crc32c(sum) => *sum = crc32c::crc32c_append(*sum, bytes),
                AlgorithmState::OpenSsl(_, hasher) => hasher
                    .update(bytes)
                    .expect("a digest in memory takes any bytes"),
            }
        }
    }

    /// The values, in the order in which they were asked for.
    pub fn finish(self) -> Vec<Checksum> {
        let value = |running| match running {
            AlgorithmState::Adler32(sum) => (
                ChecksumAlgorithm::Adler32,
                sum.finish().to_be_bytes().to_vec(),
            ),
            AlgorithmState::Crc32c(sum) => (ChecksumAlgorithm::Crc32c, sum.to_be_bytes().to_vec()),
            AlgorithmState::OpenSsl(algorithm, mut hasher) => {
                let digest = hasher.finish().expect("a digest in memory can be finished");
                (algorithm, digest.to_vec())
            }
        };
        let checksum = |(algorithm, bytes): (ChecksumAlgorithm, Vec<u8>)| {
            Checksum::from_bytes(algorithm, &bytes).expect("the digest has its algorithm's width")
        };
        self.running.into_iter().map(value).map(checksum).collect()
    }
}

/// Checksums of a whole file, read from its beginning without moving its position. Blocks: keep it off the
/// asynchronous threads.
pub fn of_file(file: &File, algorithms: &[ChecksumAlgorithm]) -> io::Result<Vec<Checksum>> {
    let mut hasher = Hasher::new(algorithms);
    let mut buffer = vec![0; READ_BYTES];
    let mut offset = 0;
    loop {
        match file.read_at(&mut buffer, offset) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                offset += count as u64;
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Seek, Write};

    fn check(text: &str, expected: &[&str]) {
        let mut hasher = Hasher::new(&ChecksumAlgorithm::ALL);
        hasher.update(text.as_bytes());
        let got: Vec<String> = hasher
            .finish()
            .iter()
            .map(|sum| sum.hex().to_owned())
            .collect();
        assert_eq!(got, expected, "{text:?}");
    }

    #[test]
    fn the_values_are_those_of_the_standards() {
        check(
            "",
            &[
                "00000001",
                "00000000",
                "d41d8cd98f00b204e9800998ecf8427e",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ],
        );
        check(
            "abc",
            &[
                "024d0127",
                "364b3fb7",
                "900150983cd24fb0d6963f7d28e17f72",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ],
        );
        check(
            "123456789",
            &[
                "091e01de",
                "e3069283",
                "25f9e794323b453885f5181f1b624d0b",
                "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
            ],
        );
    }

    #[test]
    fn crc32c_agrees_with_the_vectors_of_iscsi() {
        // RFC 3720 §B.4: 32 bytes of zeros, of ones, and counting up.
        let of = |bytes: &[u8]| {
            let mut hasher = Hasher::new(&[ChecksumAlgorithm::Crc32c]);
            hasher.update(bytes);
            hasher.finish()[0].hex().to_owned()
        };
        assert_eq!(of(&[0; 32]), "8a9136aa");
        assert_eq!(of(&[0xff; 32]), "62a8ab43");
        assert_eq!(of(&(0..32).collect::<Vec<u8>>()), "46dd794e");
    }

    #[test]
    fn each_algorithm_appears_once_and_in_the_order_asked() {
        use ChecksumAlgorithm::{Adler32, Md5};
        let sums = Hasher::new(&[Md5, Adler32, Md5]).finish();
        let names: Vec<_> = sums.iter().map(|sum| sum.algorithm()).collect();
        assert_eq!(names, [Md5, Adler32]);
    }

    #[test]
    fn a_file_is_read_whole_wherever_its_position_stands() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        let content = vec![7; READ_BYTES + 3];
        file.write_all(&content).expect("written");
        let mut hasher = Hasher::new(&ChecksumAlgorithm::ALL);
        hasher.update(&content);
        assert_eq!(
            of_file(&file, &ChecksumAlgorithm::ALL).expect("read"),
            hasher.finish()
        );
        let position = file.stream_position().expect("seekable");
        assert_eq!(position, content.len() as u64);
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_does_not_matter(bytes: Vec<u8>, cut in 0_usize..64) {
            let mut whole = Hasher::new(&ChecksumAlgorithm::ALL);
            whole.update(&bytes);
            let mut parts = Hasher::new(&ChecksumAlgorithm::ALL);
            bytes.chunks(cut + 1).for_each(|part| parts.update(part));
            prop_assert_eq!(whole.finish(), parts.finish());
        }
    }
}
