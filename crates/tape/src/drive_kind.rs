//! Kinds of drives with all that takes time in them, beside the figures by which recalls are ordered: threading, rewinding,
//! speeds, buffers, file marks and first loads.

use crate::drive::DriveModel;
use crate::locate::SECOND_NS;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A kind of drive with its usual cartridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DriveKind {
    /// As people call it: `LTO-8`.
    pub name: String,
    /// What orders of recalls are found with.
    pub model: DriveModel,
    /// From the loaded cartridge to the head at the beginning of the tape.
    pub thread_ns: i64,
    /// Standard deviation of a locate.
    pub locate_sigma_ns: i64,
    /// How far the lengths of wraps differ from their mean, at most, in thousandths.
    pub wrap_jitter_permille: u32,
    /// How it streams.
    pub stream: StreamModel,
    /// How many passes over the tape a rewind before an unload takes, by the bytes that were moved.
    pub rewind_passes: Vec<RewindPasses>,
    /// What the first load of a new cartridge takes beside a usual load.
    pub first_load: Option<FirstLoad>,
    /// Whether the drive tells where the wraps of a cartridge end, as LTO drives do.
    pub tells_wrap_ends: bool,
    /// How many files at most the drive itself puts into the order in which they are read soonest (the recommended access order
    /// of SSC-5), if it does: it knows its cartridge better than any model.
    pub read_order_max: Option<u32>,
}

/// How a drive keeps its tape moving.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamModel {
    /// The least speed, in thousandths of the native rate. Between it and the native rate it chooses.
    pub speed_min_permille: u32,
    /// Speeds that it chooses among, the least and the native one included.
    pub speeds: u32,
    /// Bytes of its buffer.
    pub buffer_bytes: u64,
    /// To stop, go back and start again when the buffer has run empty.
    pub backhitch_ns: i64,
    /// A file mark that returns when all data before it is on tape: the buffer is emptied and the tape stops.
    pub synchronised_mark_ns: i64,
    /// A file mark that stays in the buffer.
    pub buffered_mark_ns: i64,
}

/// From so many moved bytes on, a rewind takes so many passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RewindPasses {
    pub moved_bytes_min: u64,
    pub passes: i64,
}

/// What a first load takes: LTO-9 calibrates each new cartridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstLoad {
    pub mean_ns: i64,
    pub max_ns: i64,
}

/// A kind of drive in a document: one that everybody has, with what is different.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveKindDocument {
    pub name: String,
    /// The kind that it is like.
    pub like: String,
    pub native_rate: Option<u64>,
    pub capacity_bytes: Option<u64>,
    pub wraps: Option<u32>,
    pub longitudinal_range: Option<(u32, u32)>,
    pub locate: Option<crate::locate::LocateModel>,
    pub load_ns: Option<i64>,
    pub thread_ns: Option<i64>,
    pub rewind_ns: Option<i64>,
    pub unload_ns: Option<i64>,
    pub turn_ns: Option<i64>,
    pub locate_sigma_ns: Option<i64>,
    pub wrap_jitter_permille: Option<u32>,
    pub stream: Option<StreamModel>,
    pub rewind_passes: Option<Vec<RewindPasses>>,
    pub first_load: Option<FirstLoad>,
    pub tells_wrap_ends: Option<bool>,
    pub read_order_max: Option<u32>,
}

/// Why a document is no kind of drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriveKindError {
    /// No kind has this name.
    UnknownLike(String),
    /// A figure without which nothing moves.
    NotPositive(&'static str),
    /// The range along the tape is empty.
    EmptyRange,
}

impl fmt::Display for DriveKindError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriveKindError::UnknownLike(name) => {
                let known = DriveKind::NAMES.join(", ");
                write!(out, "`like` is '{name}', which is none of {known}")
            }
            DriveKindError::NotPositive(key) => write!(out, "`{key}` has to be more than 0"),
            DriveKindError::EmptyRange => {
                out.write_str("`longitudinal_range` has to end behind its begin")
            }
        }
    }
}

/// IBM's figures of the orders of LTO-9 go up to 2,000 files.
const READ_ORDER_MAX: u32 = 2_000;
const GB: u64 = 1_000_000_000;
const TB: u64 = 1_000 * GB;
const MINUTE_NS: i64 = 60 * SECOND_NS;

impl DriveKind {
    /// Names of the kinds that everybody has.
    pub const NAMES: [&'static str; 7] = [
        "9940B", "T10000D", "TS1160", "LTO-7", "LTO-8", "LTO-9", "LTO-10",
    ];

    /// A kind that everybody has, by its name. Rows of LTO-7 to LTO-9 are those of IBM's manual of the TS2290. For the others no
    /// timing sheet was at hand: rate, capacity and length are published, mount times are what is quoted of them.
    pub fn named(name: &str) -> Option<DriveKind> {
        let lto = |name: &str, model| DriveKind {
            name: name.to_owned(),
            model,
            thread_ns: 4 * SECOND_NS,
            locate_sigma_ns: SECOND_NS * 3 / 2,
            wrap_jitter_permille: 20,
            stream: StreamModel::LTO,
            rewind_passes: vec![RewindPasses {
                moved_bytes_min: 0,
                passes: 1,
            }],
            first_load: None,
            tells_wrap_ends: name.starts_with("LTO"),
            read_order_max: ["TS1160", "LTO-9", "LTO-10"]
                .contains(&name)
                .then_some(READ_ORDER_MAX),
        };
        Some(match name {
            "9940B" => lto(name, model_9940b()),
            "T10000D" => lto(name, model_t10000d()),
            "TS1160" => lto(name, model_ts1160()),
            "LTO-7" => lto(name, DriveModel::LTO_7),
            "LTO-8" => lto(name, DriveModel::LTO_8),
            "LTO-9" => DriveKind {
                rewind_passes: lto_9_passes(),
                first_load: Some(FirstLoad {
                    mean_ns: 40 * MINUTE_NS,
                    max_ns: 120 * MINUTE_NS,
                }),
                ..lto(name, DriveModel::LTO_9)
            },
            // No timing sheet is public: that of LTO-9 with its own capacity.
            "LTO-10" => {
                let model = DriveModel {
                    capacity_bytes: 30 * TB,
                    ..DriveModel::LTO_9
                };
                lto(name, model)
            }
            _ => return None,
        })
    }

    /// The kind that a document describes.
    pub fn from_document(document: DriveKindDocument) -> Result<DriveKind, DriveKindError> {
        let mut kind = DriveKind::named(&document.like)
            .ok_or_else(|| DriveKindError::UnknownLike(document.like.clone()))?;
        kind.name = document.name;
        let model = &mut kind.model;
        replace(&mut model.native_rate, document.native_rate);
        replace(&mut model.capacity_bytes, document.capacity_bytes);
        replace(&mut model.wraps, document.wraps);
        replace(&mut model.longitudinal_range, document.longitudinal_range);
        replace(&mut model.locate, document.locate);
        replace(&mut model.load_ns, document.load_ns);
        replace(&mut model.rewind_ns, document.rewind_ns);
        replace(&mut model.unload_ns, document.unload_ns);
        replace(&mut model.turn_ns, document.turn_ns);
        replace(&mut kind.thread_ns, document.thread_ns);
        replace(&mut kind.locate_sigma_ns, document.locate_sigma_ns);
        replace(
            &mut kind.wrap_jitter_permille,
            document.wrap_jitter_permille,
        );
        replace(&mut kind.stream, document.stream);
        replace(&mut kind.rewind_passes, document.rewind_passes);
        replace(&mut kind.tells_wrap_ends, document.tells_wrap_ends);
        kind.first_load = document.first_load.or(kind.first_load);
        kind.read_order_max = document.read_order_max.or(kind.read_order_max);
        kind.checked()
    }

    fn checked(self) -> Result<DriveKind, DriveKindError> {
        let figures = [
            ("native_rate", self.model.native_rate),
            ("capacity_bytes", self.model.capacity_bytes),
            ("wraps", u64::from(self.model.wraps)),
            ("stream.speeds", u64::from(self.stream.speeds)),
            (
                "stream.speed_min_permille",
                u64::from(self.stream.speed_min_permille),
            ),
        ];
        if let Some((name, _)) = figures.into_iter().find(|(_, figure)| *figure == 0) {
            return Err(DriveKindError::NotPositive(name));
        }
        let times = [
            ("load_ns", self.model.load_ns),
            ("thread_ns", self.thread_ns),
            ("rewind_ns", self.model.rewind_ns),
            ("unload_ns", self.model.unload_ns),
            ("turn_ns", self.model.turn_ns),
            ("locate_sigma_ns", self.locate_sigma_ns),
        ];
        if let Some((name, _)) = times.into_iter().find(|(_, time)| *time < 0) {
            return Err(DriveKindError::NotPositive(name));
        }
        let (min, max) = self.model.longitudinal_range;
        if min >= max {
            return Err(DriveKindError::EmptyRange);
        }
        Ok(self)
    }
}

fn replace<T>(figure: &mut T, other: Option<T>) {
    if let Some(other) = other {
        *figure = other;
    }
}

impl StreamModel {
    /// LTO: speeds from a third of the native rate on, 1 GiB of buffer.
    pub const LTO: StreamModel = StreamModel {
        speed_min_permille: 330,
        speeds: 12,
        buffer_bytes: 1 << 30,
        backhitch_ns: 3 * SECOND_NS,
        synchronised_mark_ns: 3 * SECOND_NS,
        buffered_mark_ns: SECOND_NS / 100,
    };

    /// The speeds of a drive with this native rate, in bytes per second, rising.
    pub fn speeds(&self, native_rate: u64) -> Vec<u64> {
        let least = native_rate / 1_000 * u64::from(self.speed_min_permille.min(1_000));
        let steps = u64::from(self.speeds.max(1)) - 1;
        let speed = |step: u64| least + (native_rate - least) * step / steps.max(1);
        let mut speeds: Vec<u64> = (0..steps).map(speed).collect();
        speeds.push(native_rate);
        speeds
    }
}

/// IBM's manual of LTO-9: rewinds as part of an unload take one, two or three times as long.
fn lto_9_passes() -> Vec<RewindPasses> {
    let from = |moved_bytes_min, passes| RewindPasses {
        moved_bytes_min,
        passes,
    };
    vec![from(0, 1), from(5 * GB, 2), from(50 * GB, 3)]
}

/// StorageTek 9940B: 200 GB, 30 MB/s, the drive of 2006. A tape that is threaded in its cartridge's middle; 288 tracks by 16.
fn model_9940b() -> DriveModel {
    DriveModel {
        native_rate: 30_000_000,
        capacity_bytes: 200 * GB,
        wraps: 18,
        longitudinal_range: (0, 113_000),
        load_ns: 18 * SECOND_NS,
        rewind_ns: 45 * SECOND_NS,
        unload_ns: 18 * SECOND_NS,
        ..DriveModel::LTO_7
    }
}

fn model_t10000d() -> DriveModel {
    DriveModel {
        native_rate: 252_000_000,
        capacity_bytes: 8_500 * GB,
        wraps: 144,
        longitudinal_range: (2_696, 203_900),
        load_ns: 13 * SECOND_NS,
        rewind_ns: 49 * SECOND_NS,
        unload_ns: 23 * SECOND_NS,
        ..DriveModel::LTO_7
    }
}

fn model_ts1160() -> DriveModel {
    DriveModel {
        native_rate: 400_000_000,
        capacity_bytes: 20 * TB,
        wraps: 256,
        load_ns: 13 * SECOND_NS,
        rewind_ns: 45 * SECOND_NS,
        unload_ns: 24 * SECOND_NS,
        ..DriveModel::LTO_7
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_kind() {
        for name in DriveKind::NAMES {
            let kind = DriveKind::named(name).expect("a kind");
            assert_eq!(kind.clone().checked(), Ok(kind));
        }
        assert_eq!(DriveKind::named("DLT"), None);
    }

    fn document(changed: serde_json::Value) -> Result<DriveKind, DriveKindError> {
        let mut document = serde_json::json!({"name": "ours", "like": "LTO-8"});
        let all = document.as_object_mut().expect("an object");
        all.extend(changed.as_object().expect("an object").clone());
        let document = serde_json::from_value(document).expect("the form of a document");
        DriveKind::from_document(document)
    }

    #[test]
    fn a_document_changes_what_it_names() {
        let ours = document(serde_json::json!({"native_rate": 300_000_000})).expect("a kind");
        assert_eq!(
            (ours.name.as_str(), ours.model.native_rate),
            ("ours", 300_000_000)
        );
        assert_eq!(ours.model.wraps, 208);
        let wrong = document(serde_json::json!({"wraps": 0}));
        assert_eq!(wrong, Err(DriveKindError::NotPositive("wraps")));
        let wrong = document(serde_json::json!({"like": "DLT"}));
        assert_eq!(wrong, Err(DriveKindError::UnknownLike("DLT".to_owned())));
        let told = wrong.expect_err("wrong").to_string();
        assert!(
            told.starts_with("`like` is 'DLT', which is none of 9940B, "),
            "{told}"
        );
        let wrong = document(serde_json::json!({"longitudinal_range": [5, 5]}));
        assert_eq!(wrong, Err(DriveKindError::EmptyRange));
    }

    #[test]
    fn speeds_rise_to_the_native_rate() {
        let speeds = StreamModel::LTO.speeds(360_000_000);
        assert_eq!(speeds.len(), 12);
        assert_eq!((speeds[0], speeds[11]), (118_800_000, 360_000_000));
        assert!(speeds.is_sorted());
    }
}
