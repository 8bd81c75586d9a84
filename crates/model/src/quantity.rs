//! Sizes, speeds and spans of time as people write them (`10 GB`, `10 Gb/s`, `1h`), for files of settings and the
//! command line.

use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Units of sizes. Written back with their first names; people leave out the `B`.
const SIZE_UNITS: [(&str, u64); 10] = [
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];
const SPAN_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// A number of bytes, written `10 GB` or `10G` (decimal), `256 MiB` or `256Mi` (binary), or as a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A span of time, written `90s`, `1h`, `1h30m`, `7d` or `250ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        let invalid =
            || format!("'{text}' is not a size; write for example 500 MB, 10G or 256 MiB");
        let (number, unit) = split_number(text.trim());
        let scale = size_scale(unit).ok_or_else(invalid)?;
        scaled(number, scale).map(Size).ok_or_else(invalid)
    }
}

/// Bytes per second, written `500 MB/s`, or `10 Gb/s` in bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Speed(pub u64);

impl FromStr for Speed {
    type Err = String;
    fn from_str(text: &str) -> Result<Speed, String> {
        let invalid = || format!("'{text}' is not a speed; write for example 500 MB/s or 10 Gb/s");
        let amount = text.trim().strip_suffix("/s").ok_or_else(invalid)?;
        let (number, unit) = split_number(amount.trim_end());
        let bytes = match unit.strip_suffix('b') {
            // Bits, in which networks are measured.
            Some(unit) => {
                let scale = find_unit(&SIZE_UNITS, &format!("{unit}B"), str::eq_ignore_ascii_case);
                scaled(number, scale.ok_or_else(invalid)?).map(|bits| bits / 8)
            }
            None => amount.parse::<Size>().ok().map(|size| size.0),
        };
        bytes.map(Speed).ok_or_else(invalid)
    }
}

impl FromStr for Span {
    type Err = String;
    fn from_str(text: &str) -> Result<Span, String> {
        let invalid = || {
            format!("'{text}' is not a span of time; write for example 30s, 15m, 1h, 1h30m or 7d")
        };
        let mut rest = text.trim();
        let mut millis: u64 = 0;
        if rest.is_empty() {
            return Err(invalid());
        }
        while !rest.is_empty() {
            let (number, tail) = split_number(rest);
            let end = tail
                .find(|c: char| c.is_ascii_digit())
                .unwrap_or(tail.len());
            let unit = tail[..end].trim();
            let scale = find_unit(&SPAN_UNITS, unit, |a, b| a == b).ok_or_else(invalid)?;
            let part = scaled(number, scale).ok_or_else(invalid)?;
            millis = millis.checked_add(part).ok_or_else(invalid)?;
            rest = &tail[end..];
        }
        Ok(Span(Duration::from_millis(millis)))
    }
}

/// Bytes in a unit. `M` is `MB` and `Mi` is `MiB`.
fn size_scale(unit: &str) -> Option<u64> {
    if unit.is_empty() || unit.eq_ignore_ascii_case("B") {
        return Some(1);
    }
    let is_same = |name: &str, unit: &str| {
        let short = name.strip_suffix('B').unwrap_or(name);
        name.eq_ignore_ascii_case(unit) || short.eq_ignore_ascii_case(unit)
    };
    find_unit(&SIZE_UNITS, unit, is_same)
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn find_unit(units: &[(&str, u64)], unit: &str, same: impl Fn(&str, &str) -> bool) -> Option<u64> {
    units
        .iter()
        .find(|(name, _)| same(name, unit))
        .map(|(_, scale)| *scale)
}

/// `number` times `scale`; whole numbers exactly, `1.5` as near as can be. `None` when it is no number or too
/// large.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(scale),
        Err(_) => {
            let value = number.parse::<f64>().ok()? * scale as f64;
            (value.is_finite() && value < u64::MAX as f64).then_some(value.round() as u64)
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = SIZE_UNITS
            .iter()
            .find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale));
        match exact {
            Some((unit, scale)) => write!(out, "{} {unit}", self.0 / scale),
            None => write!(out, "{} B", self.0),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/s", Size(self.0))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut millis = self.0.as_millis() as u64;
        if millis == 0 {
            return out.write_str("0s");
        }
        for (unit, scale) in SPAN_UNITS {
            if millis >= scale {
                write!(out, "{}{unit}", millis / scale)?;
                millis %= scale;
            }
        }
        Ok(())
    }
}

/// Accepts text, or a plain number in the type's base unit (bytes, seconds).
struct TextOrNumber<T> {
    expected: &'static str,
    from_number: fn(u64) -> T,
}

impl<T: FromStr<Err = String>> Visitor<'_> for TextOrNumber<T> {
    type Value = T;
    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.expected)
    }
    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        let number = u64::try_from(number).map_err(|_| E::custom("must not be negative"))?;
        Ok((self.from_number)(number))
    }
    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        Ok((self.from_number)(number))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        from.deserialize_any(TextOrNumber {
            expected: "a size such as \"10 GB\"",
            from_number: Size,
        })
    }
}

impl<'de> Deserialize<'de> for Speed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Speed, D::Error> {
        from.deserialize_any(TextOrNumber {
            expected: "a speed such as \"500 MB/s\"",
            from_number: Speed,
        })
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
        from.deserialize_any(TextOrNumber {
            expected: "a span of time such as \"1h\"",
            from_number: |seconds| Span(Duration::from_secs(seconds)),
        })
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.collect_str(self)
    }
}

impl Serialize for Speed {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.collect_str(self)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, into: S) -> Result<S::Ok, S::Error> {
        into.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them_and_written_back() {
        let check = |text: &str, bytes: u64, back: &str| {
            let size: Size = text.parse().expect(text);
            assert_eq!((size.0, size.to_string().as_str()), (bytes, back), "{text}");
        };
        check("10 GB", 10_000_000_000, "10 GB");
        check("256MiB", 256 << 20, "256 MiB");
        check("1.5 kb", 1500, "1500 B");
        check("1M", 1_000_000, "1 MB");
        check("10G", 10_000_000_000, "10 GB");
        check("2GiB", 2 << 30, "2 GiB");
        check("2 gib", 2 << 30, "2 GiB");
        check("4Ki", 4096, "4 KiB");
        check("1.5T", 1_500_000_000_000, "1500 GB");
        check("3 b", 3, "3 B");
        check("17", 17, "17 B");
        check("0", 0, "0 B");
        for bad in [
            "",
            "GB",
            "M",
            "-1",
            "10 parsecs",
            "1e300",
            "20000 PB",
            "1MBB",
            "1i",
        ] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }

    #[test]
    fn speeds_are_read_in_bytes_and_in_bits() {
        let check = |text: &str, bytes: u64, back: &str| {
            let speed: Speed = text.parse().expect(text);
            assert_eq!((speed.0, speed.to_string().as_str()), (bytes, back));
        };
        check("500 MB/s", 500_000_000, "500 MB/s");
        check("10 Gb/s", 1_250_000_000, "1250 MB/s");
        check("1.5GB/s", 1_500_000_000, "1500 MB/s");
        for bad in ["", "/s", "10 GB", "10 Gb", "b/s", "10 Xb/s", "-1 MB/s"] {
            assert!(bad.parse::<Speed>().is_err(), "{bad}");
        }
    }

    #[test]
    fn spans_are_read_as_people_write_them_and_written_back() {
        let check = |text: &str, seconds: f64, back: &str| {
            let span: Span = text.parse().expect(text);
            assert_eq!(
                (span.0.as_secs_f64(), span.to_string().as_str()),
                (seconds, back),
                "{text}"
            );
        };
        check("1h", 3600.0, "1h");
        check("1h30m", 5400.0, "1h30m");
        check("90 s", 90.0, "1m30s");
        check("250ms", 0.25, "250ms");
        check("7d", 604_800.0, "7d");
        for bad in ["", "1", "h", "1 fortnight", "-5s"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
