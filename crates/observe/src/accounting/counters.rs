//! Counters that only rise, as what came on top from one sample to the next: a sample that is lost loses no bytes.

use super::NAMES_MAX;
use penstock_model::observation::{Sample, SubjectKind, Text, View};
use penstock_model::{Bytes, Timestamp};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Counters that are followed at most.
const COUNTERS_MAX: usize = 4 * NAMES_MAX;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CounterKey {
    source: Text,
    view: View,
    kind: SubjectKind,
    server: Option<Text>,
    subject: Text,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Timestamp,
    bytes_in: Option<Bytes>,
    bytes_out: Option<Bytes>,
}

/// The last reading of each counter.
#[derive(Debug, Default)]
pub(super) struct Counters {
    last: BTreeMap<CounterKey, Reading>,
}

impl Counters {
    /// A sample with the bytes of its interval. `None`: the first reading of a counter, which runs from a beginning that is
    /// not known, or one that comes too late.
    pub(super) fn interval_of<'a>(&mut self, row: &'a Sample) -> Option<Cow<'a, Sample>> {
        if row.interval_ms.is_some() || (row.bytes_in, row.bytes_out) == (None, None) {
            return Some(Cow::Borrowed(row));
        }
        let key = CounterKey {
            source: row.source.clone(),
            view: row.view,
            kind: row.subject_kind,
            server: row.server.clone(),
            subject: row.subject.clone(),
        };
        if self.last.len() >= COUNTERS_MAX && !self.last.contains_key(&key) {
            return None;
        }
        let reading = Reading {
            at: row.at,
            bytes_in: row.bytes_in,
            bytes_out: row.bytes_out,
        };
        let before = match self.last.get_mut(&key) {
            Some(last) if last.at >= row.at => return None,
            Some(last) => std::mem::replace(last, reading),
            None => {
                self.last.insert(key, reading);
                return None;
            }
        };
        Some(Cow::Owned(Sample {
            interval_ms: u64::try_from(row.at.since(before.at).as_millis()).ok(),
            bytes_in: rise(before.bytes_in, row.bytes_in),
            bytes_out: rise(before.bytes_out, row.bytes_out),
            ..row.clone()
        }))
    }
}

/// What came on top. A counter that fell has begun anew: what it says has come since then.
fn rise(before: Option<Bytes>, now: Option<Bytes>) -> Option<Bytes> {
    let (before, now) = (before?, now?);
    Some(Bytes(now.0.checked_sub(before.0).unwrap_or(now.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: i64, bytes: u64) -> Sample {
        Sample {
            at: Timestamp(at),
            subject_kind: SubjectKind::Interface,
            subject: "eth0".into(),
            server: Some("s1".into()),
            bytes_in: Some(Bytes(bytes)),
            ..Sample::default()
        }
    }

    fn intervals(rows: &[Sample]) -> Vec<(u64, u64)> {
        let mut counters = Counters::default();
        let told = rows.iter().filter_map(|row| {
            let row = counters.interval_of(row)?;
            Some((row.interval_ms?, row.bytes_in?.0))
        });
        told.collect()
    }

    #[test]
    fn a_lost_sample_loses_no_bytes() {
        let rows: Vec<Sample> = (0..5).map(|n| reading(n * 1000, n as u64 * 70)).collect();
        assert_eq!(intervals(&rows), [(1000, 70); 4]);
        let some = [rows[0].clone(), rows[1].clone(), rows[4].clone()];
        assert_eq!(intervals(&some), [(1000, 70), (3000, 210)]);
    }

    #[test]
    fn a_counter_that_began_anew_counts_from_there_and_late_readings_count_nothing() {
        let rows = [
            reading(1000, 500),
            reading(2000, 40),
            reading(1500, 600),
            reading(3000, 50),
        ];
        assert_eq!(intervals(&rows), [(1000, 40), (1000, 10)]);
    }

    #[test]
    fn a_sample_of_an_interval_stays_as_it_is() {
        let row = Sample {
            interval_ms: Some(10),
            ..reading(1000, 5)
        };
        assert_eq!(intervals(&[row.clone(), row]), [(10, 5), (10, 5)]);
    }

    /// Copies that come and go on a link: when each begins and ends, and its rate.
    fn flows(random: &mut impl FnMut(u64) -> u64) -> Vec<(u64, u64, u64)> {
        let flows = (0..400).map(|_| {
            let begin = random(3_600_000);
            (
                begin,
                begin + 20_000 + random(400_000),
                5_000 + random(30_000),
            )
        });
        flows.collect()
    }

    #[test]
    fn with_a_twentieth_of_the_samples_lost_source_destination_and_network_agree_each_minute() {
        use super::super::{AccountKey, Accountant};
        use penstock_model::TimeWindow;
        const MINUTES: usize = 60;
        for seed in 0..8_u64 {
            let mut state = seed;
            let mut random = |below: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let flows = flows(&mut random);
            let moved = |at: u64| -> u64 {
                let of = |(begin, end, rate): &(u64, u64, u64)| {
                    at.clamp(*begin, *end).abs_diff(*begin) * rate
                };
                flows.iter().map(of).sum()
            };
            let mut accountant = Accountant::new(AccountKey::Server);
            let (mut taken, mut lost) = (0, 0);
            for second in 0..=60 * MINUTES as u64 {
                // Each is read at another part of the second, and loses samples of its own.
                let places = [
                    ("source", 0, true),
                    ("destination", 370, false),
                    ("eth0", 810, false),
                ];
                for (number, (place, phase, is_sent)) in places.into_iter().enumerate() {
                    if random(100) < 5 {
                        lost += 1;
                        continue;
                    }
                    taken += 1;
                    let at = (second * 1000 + phase).min(60_000 * MINUTES as u64);
                    let counter = Some(Bytes(number as u64 * 1_000_000 + moved(at)));
                    accountant.take_sample(&Sample {
                        at: Timestamp(at as i64),
                        subject_kind: match number {
                            2 => SubjectKind::Interface,
                            _ => SubjectKind::Server,
                        },
                        subject: place.into(),
                        bytes_out: counter.filter(|_| is_sent),
                        bytes_in: counter.filter(|_| !is_sent),
                        capacity_bytes_per_second: Some(12_500_000_000),
                        ..Sample::default()
                    });
                }
            }
            assert!(lost * 25 > taken, "{lost} of {taken} were lost");
            let account = accountant.account(Some(TimeWindow {
                from: Timestamp(0),
                to: Timestamp(60_000 * MINUTES as i64),
            }));
            assert_eq!(account.utilisation.len(), 3);
            for minute in 1..MINUTES - 1 {
                let truth = moved(60_000 * (minute as u64 + 1)) - moved(60_000 * minute as u64);
                for of in &account.utilisation {
                    assert_eq!(of.bin_seconds, Some(60));
                    let told = of.megabits_per_second[minute].expect("sampled") * 60.0 / 8.0 * 1e6;
                    let apart = (told - truth as f64).abs() / truth as f64;
                    // Two of them are then apart by 1 % at most.
                    assert!(
                        apart < 0.005,
                        "seed {seed}, minute {minute}, {}: {apart}",
                        of.name
                    );
                }
            }
        }
    }
}
