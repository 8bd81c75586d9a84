//! How many connections a copy gets where its client leaves that open.
//!
//! More connections help a copy that is held back by a window on its way, and nothing else. So they are tried only on
//! that evidence, where there are too few transfers to fill the way instead, and kept only where copies get faster.

use penstock_model::{Bytes, MoverReport, TuneReason};

/// Files below that say nothing: they end before their window is open.
const SIZE_MIN: Bytes = Bytes(16 << 20);
/// Connections of a copy, at most; as in FTS.
const STREAMS_MAX: u32 = 16;
/// Copies that are looked at before anything is changed.
const EVIDENCE_COPIES_MIN: u32 = 3;
/// A part of the time, in which it was the window that held it back, that counts as evidence.
const WINDOW_SHARE_MIN: f64 = 0.5;
/// Segments that were sent again, of all: more connections would lose more.
const LOSS_MAX: f64 = 1e-4;
/// A round trip below that opens any window soon enough.
const ROUND_TRIP_MIN_US: u32 = 5_000;
/// A round trip that has become so many times longer waits in queues: the way is full.
const ROUND_TRIP_RATIO_MAX: f64 = 1.5;
/// What twice the connections must bring to a copy, in logarithms.
const WORK_LN_SHARE_MIN: f64 = 0.2;
/// Copies for which nothing is tried again after it did not help.
const REST_COPIES: u32 = 200;

/// What held a copy back.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Evidence {
    /// The window of its sender, this part of the time.
    Window(f64),
    /// Loss, this part of the segments.
    Loss(f64),
    /// Something else: a disk, the receiver, or nothing that can be told.
    Other,
}

/// Finds the number of connections for the copies of one link.
#[derive(Debug, Clone)]
pub struct StreamTuner {
    count: u32,
    /// What copies gave with half as many, when these are on trial: the logarithm of bytes per second.
    before: Option<f64>,
    copies: u32,
    sum: f64,
    held_back: f64,
    loss: f64,
    rest: u32,
}

impl Default for StreamTuner {
    fn default() -> StreamTuner {
        StreamTuner::from(1)
    }
}

impl StreamTuner {
    /// One that begins with a number that was found before.
    pub fn from(count: u32) -> StreamTuner {
        StreamTuner {
            count: count.clamp(1, STREAMS_MAX),
            before: None,
            copies: 0,
            sum: 0.0,
            held_back: 0.0,
            loss: 0.0,
            rest: 0,
        }
    }

    /// Connections of the next copy.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Back to one connection: there are transfers enough. `Some` when that is a change.
    pub fn many_wait(&mut self) -> Option<TuneReason> {
        if self.count == 1 {
            return None;
        }
        *self = StreamTuner::default();
        Some(TuneReason::StreamsDoNotHelp)
    }

    /// Takes a copy in that arrived. `is_scarce`: there are fewer transfers than may run, so that more of them are no
    /// way to use what the link can do.
    pub fn landed(
        &mut self,
        report: &MoverReport,
        seconds: f64,
        is_scarce: bool,
    ) -> Option<TuneReason> {
        let used = report.streams.as_ref().map_or(1, |streams| streams.used);
        if report.moved < SIZE_MIN || seconds <= 0.0 || used.max(1) != self.count {
            return None;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        self.copies += 1;
        self.sum += (report.moved.0 as f64 / seconds).max(1.0).ln();
        match evidence(report, seconds) {
            Evidence::Window(part) => self.held_back += part,
            Evidence::Loss(part) => self.loss = self.loss.max(part),
            Evidence::Other => {}
        }
        if self.copies < EVIDENCE_COPIES_MIN {
            return None;
        }
        let copies = f64::from(self.copies);
        let (rate, held_back, loss) = (self.sum / copies, self.held_back / copies, self.loss);
        (self.copies, self.sum, self.held_back, self.loss) = (0, 0.0, 0.0, 0.0);
        if let Some(before) = self.before.take()
            && rate - before < WORK_LN_SHARE_MIN
        {
            self.count /= 2;
            self.rest = REST_COPIES;
            return Some(match loss > LOSS_MAX {
                true => TuneReason::SegmentsLost {
                    per_million: (loss * 1e6) as u32,
                },
                false => TuneReason::StreamsDoNotHelp,
            });
        }
        let may_more = is_scarce && self.count < STREAMS_MAX && loss <= LOSS_MAX;
        if may_more && held_back > WINDOW_SHARE_MIN {
            self.before = Some(rate);
            self.count *= 2;
            return Some(TuneReason::WindowLimited {
                percent: (held_back * 100.0).min(100.0) as u8,
            });
        }
        None
    }
}

/// Reads the kernel's account of the copy's socket. A sender's tells where the time went; a receiver's only that it
/// waited for bytes over a long way that was not full.
fn evidence(report: &MoverReport, seconds: f64) -> Evidence {
    let Some(tcp) = &report.tcp else {
        return Evidence::Other;
    };
    let moved = report.moved.0 as f64;
    let all_us = seconds * 1e6;
    let sent = f64::from(tcp.sent_segments) * f64::from(tcp.segment_bytes);
    if sent > moved / 2.0 {
        let loss = f64::from(tcp.retransmitted_segments) / f64::from(tcp.sent_segments.max(1));
        if loss > LOSS_MAX {
            return Evidence::Loss(loss);
        }
        let streams = report.streams.as_ref().map_or(1, |streams| streams.used);
        let all_us = all_us * f64::from(streams.max(1));
        let limited = (tcp.receiver_limited_us + tcp.send_buffer_limited_us) as f64;
        let by_window = (tcp.busy_us as f64 - limited).max(0.0) / all_us;
        // What was idle waited for a disk, what the receiver held back waits for its disk.
        return Evidence::Window(by_window.min(1.0));
    }
    let is_far = tcp.min_rtt_us.max(tcp.rtt_us) >= ROUND_TRIP_MIN_US;
    let is_full = f64::from(tcp.rtt_us) > ROUND_TRIP_RATIO_MAX * f64::from(tcp.min_rtt_us.max(1));
    match is_far && !is_full {
        true => Evidence::Window((report.stages.network_us as f64 / all_us).min(1.0)),
        false => Evidence::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::{StageClocks, StreamUse, TcpSummary};

    const FILE: u64 = 100_000_000;

    /// A copy as its sender tells it: for so many seconds, of which these parts were idle and held back by the receiver.
    fn sent(streams: u32, seconds: f64, idle: f64, receiver: f64, lost: u32) -> MoverReport {
        let all = seconds * 1e6 * f64::from(streams);
        MoverReport {
            moved: Bytes(FILE),
            tcp: Some(TcpSummary {
                rtt_us: 100_000,
                min_rtt_us: 100_000,
                segment_bytes: 1448,
                sent_segments: (FILE / 1448) as u32,
                retransmitted_segments: lost,
                busy_us: (all * (1.0 - idle)) as u64,
                receiver_limited_us: (all * receiver) as u64,
                ..TcpSummary::default()
            }),
            streams: Some(StreamUse {
                used: streams,
                ..StreamUse::default()
            }),
            ..MoverReport::default()
        }
    }

    /// Lets copies run one after the other over a way on which each connection moves so many bytes a second.
    fn settle(per_stream: f64, way: f64, tuner: &mut StreamTuner) -> u32 {
        for _ in 0..60 {
            let streams = tuner.count();
            let seconds = FILE as f64 / (per_stream * f64::from(streams)).min(way);
            tuner.landed(&sent(streams, seconds, 0.0, 0.0, 0), seconds, true);
        }
        tuner.count()
    }

    #[test]
    fn copies_that_are_held_back_by_their_windows_get_connections_as_long_as_these_help() {
        let mut tuner = StreamTuner::default();
        assert_eq!(settle(4e6, 30e6, &mut tuner), 8);
        let mut tuner = StreamTuner::default();
        assert_eq!(settle(4e6, 4e6, &mut tuner), 1, "the way is full");
    }

    #[test]
    fn what_waits_for_a_disk_or_loses_segments_or_has_company_gets_one() {
        let check = |report: MoverReport, is_scarce| {
            let mut tuner = StreamTuner::default();
            (0..50).for_each(|_| {
                tuner.landed(&report, 20.0, is_scarce);
            });
            tuner.count()
        };
        assert_eq!(check(sent(1, 20.0, 0.7, 0.0, 0), true), 1, "a slow source");
        assert_eq!(
            check(sent(1, 20.0, 0.0, 0.8, 0), true),
            1,
            "a slow receiver"
        );
        assert_eq!(check(sent(1, 20.0, 0.0, 0.0, 100), true), 1, "a lossy way");
        assert_eq!(check(sent(1, 20.0, 0.0, 0.0, 0), false), 1, "many wait");
    }

    #[test]
    fn a_receiver_that_waits_for_bytes_over_a_long_way_is_evidence_and_over_a_short_one_is_none() {
        let received = |rtt_us| MoverReport {
            moved: Bytes(FILE),
            stages: StageClocks {
                network_us: 19_000_000,
                ..StageClocks::default()
            },
            tcp: Some(TcpSummary {
                rtt_us,
                min_rtt_us: rtt_us,
                ..TcpSummary::default()
            }),
            ..MoverReport::default()
        };
        assert_eq!(evidence(&received(100_000), 20.0), Evidence::Window(0.95));
        assert_eq!(evidence(&received(200), 20.0), Evidence::Other);
    }
}
