//! File checksums: which algorithm, which value, and when two of them agree.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The algorithms that storage elements and clients of the field use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChecksumAlgorithm {
    /// RFC 1950 Adler-32: 8 hex digits.
    Adler32,
    /// CRC-32C (Castagnoli, RFC 3720): 8 hex digits.
    Crc32c,
    /// RFC 1321 MD5: 32 hex digits.
    Md5,
    /// FIPS 180-4 SHA-256: 64 hex digits.
    #[serde(rename = "sha-256")]
    Sha256,
}

impl ChecksumAlgorithm {
    /// All of them, in the order in which we prefer them for comparing two sites.
    pub const ALL: [ChecksumAlgorithm; 4] = [Self::Adler32, Self::Crc32c, Self::Md5, Self::Sha256];

    /// The registered name in lower case, as RFC 3230 digests spell it (`adler32`, `sha-256`).
    pub fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "adler32",
            Self::Crc32c => "crc32c",
            Self::Md5 => "md5",
            Self::Sha256 => "sha-256",
        }
    }

    /// Reads a name in any case; `sha256` and `SHA-256` are one.
    pub fn parse(name: &str) -> Option<Self> {
        let lower = name.trim().to_ascii_lowercase();
        match lower.as_str() {
            "adler32" | "adler" => Some(Self::Adler32),
            "crc32c" => Some(Self::Crc32c),
            "md5" => Some(Self::Md5),
            "sha-256" | "sha256" => Some(Self::Sha256),
            _ => None,
        }
    }

    /// How many hex digits a value has.
    pub fn hex_digits(self) -> usize {
        match self {
            Self::Adler32 | Self::Crc32c => 8,
            Self::Md5 => 32,
            Self::Sha256 => 64,
        }
    }
}

impl fmt::Display for ChecksumAlgorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A checksum value. Held as lower-case hex, zero-padded to the algorithm's width, so equal values are equal text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Checksum {
    algorithm: ChecksumAlgorithm,
    hex: String,
}

impl Checksum {
    /// Takes hex in any case; short values get their leading zeros back (some systems strip them).
    /// `None` when it is not hex or too long.
    pub fn from_hex(algorithm: ChecksumAlgorithm, hex: &str) -> Option<Checksum> {
        let hex = hex.trim().to_ascii_lowercase();
        let width = algorithm.hex_digits();
        let valid =
            !hex.is_empty() && hex.len() <= width && hex.bytes().all(|b| b.is_ascii_hexdigit());
        valid.then(|| Checksum {
            algorithm,
            hex: format!("{hex:0>width$}"),
        })
    }

    /// From the raw big-endian digest.
    pub fn from_bytes(algorithm: ChecksumAlgorithm, digest: &[u8]) -> Option<Checksum> {
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        (hex.len() == algorithm.hex_digits()).then_some(Checksum { algorithm, hex })
    }

    /// Reads `ALGORITHM:hex` as FTS and bulk lists write it.
    pub fn parse(text: &str) -> Option<Checksum> {
        let (name, hex) = text.split_once(':')?;
        Checksum::from_hex(ChecksumAlgorithm::parse(name)?, hex)
    }

    /// Which algorithm made it.
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// Lower-case hex, padded.
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// The raw digest.
    pub fn to_bytes(&self) -> Vec<u8> {
        let digit = |byte: u8| {
            (byte as char)
                .to_digit(16)
                .expect("constructors admit hex only") as u8
        };
        self.hex
            .as_bytes()
            .chunks(2)
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect()
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.algorithm, self.hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_zeros_and_case_do_not_matter() {
        let short = Checksum::parse("ADLER32:1A2B").expect("valid");
        let long = Checksum::parse("adler32:00001a2b").expect("valid");
        assert_eq!(short, long);
        assert_eq!(short.to_string(), "adler32:00001a2b");
    }

    #[test]
    fn bytes_and_hex_are_two_views_of_one_value() {
        let sum =
            Checksum::from_bytes(ChecksumAlgorithm::Crc32c, &[0, 0xff, 1, 2]).expect("four bytes");
        assert_eq!(sum.hex(), "00ff0102");
        assert_eq!(sum.to_bytes(), [0, 0xff, 1, 2]);
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "ADLER32",
            "ADLER32:",
            "adler32:xyz",
            "adler32:123456789",
            "rot13:12",
            "md5:é",
        ] {
            assert_eq!(Checksum::parse(bad), None, "{bad}");
        }
    }
}
