//! What a stretch of network does to packets: a rate with a queue before it, a delay, losses. No clock of its own and no
//! packets, only their lengths.

use std::time::Duration;

/// One stretch, in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// Bits per second; `None`: as fast as they come.
    pub rate: Option<f64>,
    /// From one end to the other, beside the time in the queue.
    pub delay: Duration,
    /// The part of packets that get lost, 0 to 1.
    pub loss: f64,
    /// What waits before the rate at most; what comes beyond is dropped.
    pub queue_bytes: u64,
}

impl Stretch {
    /// Neither limit nor delay.
    pub const OPEN: Stretch = Stretch {
        rate: None,
        delay: Duration::ZERO,
        loss: 0.0,
        queue_bytes: u64::MAX,
    };

    /// With a queue that holds what the rate brings in the time of a round trip, as routers of long links have.
    pub fn limited(bits_per_second: f64, delay: Duration, loss: f64) -> Stretch {
        let round_trip = 2.0 * delay.as_secs_f64();
        let product = bits_per_second / 8.0 * round_trip;
        Stretch {
            rate: Some(bits_per_second),
            delay,
            loss,
            queue_bytes: (product as u64).max(64_000),
        }
    }
}

/// A stretch at work.
#[derive(Debug)]
pub struct Shaper {
    stretch: Stretch,
    /// When the last packet that was let in has left the queue, in microseconds.
    free_at_us: f64,
    /// State of the generator that chooses what gets lost.
    chance: u64,
}

impl Shaper {
    /// `seed` decides which packets get lost.
    pub fn new(stretch: Stretch, seed: u64) -> Shaper {
        Shaper {
            stretch,
            free_at_us: 0.0,
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// Another stretch from now on. What is queued keeps its times.
    pub fn set(&mut self, stretch: Stretch) {
        self.stretch = stretch;
    }

    /// When a packet that comes now arrives at the other end, in microseconds; `None` when it gets lost.
    pub fn pass(&mut self, now_us: f64, bytes: usize) -> Option<f64> {
        if self.stretch.loss > 0.0 && self.draw() < self.stretch.loss {
            return None;
        }
        let leaves_at_us = match self.stretch.rate {
            None => now_us,
            Some(rate) => {
                let us_per_byte = 8e6 / rate;
                let starts_us = self.free_at_us.max(now_us);
                if (starts_us - now_us) / us_per_byte > self.stretch.queue_bytes as f64 {
                    return None;
                }
                self.free_at_us = starts_us + bytes as f64 * us_per_byte;
                self.free_at_us
            }
        };
        Some(leaves_at_us + self.stretch.delay.as_secs_f64() * 1e6)
    }

    /// The next number of a xorshift generator, from 0 to 1.
    fn draw(&mut self) -> f64 {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn packets_follow_each_other_at_the_rate_and_arrive_after_the_delay() {
        // 8 Mbit/s: a packet of 1000 bytes takes a millisecond.
        let mut shaper = Shaper::new(Stretch::limited(8e6, millis(10), 0.0), 1);
        assert_eq!(shaper.pass(0.0, 1000), Some(11_000.0));
        assert_eq!(shaper.pass(0.0, 1000), Some(12_000.0));
        assert_eq!(shaper.pass(50_000.0, 1000), Some(61_000.0));
    }

    #[test]
    fn what_a_full_queue_cannot_take_is_dropped() {
        let mut shaper = Shaper::new(Stretch::limited(8e6, millis(50), 0.0), 1);
        let taken = (0..1000).filter_map(|_| shaper.pass(0.0, 1000)).count();
        // 100 ms of 8 Mbit/s are 100 packets; one is on its way and one begins when 100 wait exactly.
        assert!((100..=102).contains(&taken), "{taken}");
        assert!(shaper.pass(60_000.0, 1000).is_some(), "there is room again");
    }

    #[test]
    fn as_many_get_lost_as_were_asked_for() {
        let mut shaper = Shaper::new(
            Stretch {
                loss: 0.01,
                ..Stretch::OPEN
            },
            7,
        );
        let lost = (0..100_000)
            .filter(|at| shaper.pass(f64::from(*at), 1500).is_none())
            .count();
        assert!((800..1200).contains(&lost), "{lost}");
    }

    #[test]
    fn a_halved_rate_holds_at_once() {
        let mut shaper = Shaper::new(Stretch::limited(8e6, millis(0), 0.0), 1);
        shaper.pass(0.0, 1000);
        shaper.set(Stretch::limited(4e6, millis(0), 0.0));
        assert_eq!(shaper.pass(10_000.0, 1000), Some(12_000.0));
    }
}
