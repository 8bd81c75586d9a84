//! A network of its own for a run: namespaces joined by a relay that carries each IP packet between their TUN interfaces
//! with the rate, delay and loss of the stretches on its way.
//!
//! A packet passes the stretch between its two ends, then the one into its destination, which all that goes there
//! shares.

mod device;
pub mod namespaces;
pub mod shaping;

use crate::error::{BenchError, doing};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shaping::{Shaper, Stretch};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest packet.
const PACKET_MAX: usize = 2048;
/// Packets under way at most; more would be memory without bound.
const UNDER_WAY_MAX: usize = 200_000;
/// Packets read of one interface before others have their turn.
const BURST: usize = 64;
/// Packets that are due within this are sent together, which spares a core.
const GRAIN: Duration = Duration::from_micros(100);
/// How often it looks whether it should end, at the least.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Which stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// From one end to another.
    Between(Ipv4Addr, Ipv4Addr),
    /// Whatever goes to this end.
    Into(Ipv4Addr),
}

/// A relay at work. Dropped, it ends.
pub struct Relay {
    shapers: Arc<Mutex<HashMap<Place, Shaper>>>,
    addresses: Vec<Ipv4Addr>,
    /// Bytes that arrived, from each end (rows) at each end.
    arrived: Arc<Vec<AtomicU64>>,
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Relay {
    /// Carries packets between these ends from now on; stretches are open until they are set.
    pub fn start(ends: Vec<(Ipv4Addr, OwnedFd)>) -> Result<Relay, BenchError> {
        let shapers: Arc<Mutex<HashMap<Place, Shaper>>> = Arc::default();
        let must_end = Arc::new(AtomicBool::new(false));
        let addresses: Vec<Ipv4Addr> = ends.iter().map(|(address, _)| *address).collect();
        let pairs = ends.len() * ends.len();
        let arrived: Arc<Vec<AtomicU64>> =
            Arc::new((0..pairs).map(|_| AtomicU64::new(0)).collect());
        let carrier = Carrier {
            index: (ends.iter().enumerate())
                .map(|(at, (address, _))| (*address, at))
                .collect(),
            ends,
            shapers: shapers.clone(),
            arrived: arrived.clone(),
            under_way: BinaryHeap::new(),
            number: 0,
            started: Instant::now(),
        };
        let asked = must_end.clone();
        let thread = std::thread::Builder::new()
            .name("relay".to_owned())
            .spawn(move || carrier.run(&asked))
            .or_else(doing("cannot start the relay's thread"))?;
        Ok(Relay {
            shapers,
            addresses,
            arrived,
            ends: must_end,
            thread: Some(thread),
        })
    }

    /// Makes a stretch what it is from now on.
    pub fn set(&self, place: Place, stretch: Stretch) {
        let mut shapers = self.shapers.lock();
        let seed = shapers.len() as u64 + 1;
        shapers
            .entry(place)
            .and_modify(|shaper| shaper.set(stretch))
            .or_insert_with(|| Shaper::new(stretch, seed));
    }

    /// Bytes of IP packets that went all the way from one end to another.
    pub fn arrived(&self, from: Ipv4Addr, to: Ipv4Addr) -> u64 {
        let at = |address| self.addresses.iter().position(|known| *known == address);
        let cell = at(from)
            .zip(at(to))
            .map(|(from, to)| from * self.addresses.len() + to);
        cell.map_or(0, |cell| self.arrived[cell].load(Ordering::Relaxed))
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the relay's thread ended unexpectedly");
        }
    }
}

/// A packet, and when its next step is due. Ordered by that, then by arrival.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    due_us: u64,
    number: u64,
    /// It has passed the stretch between its ends, and comes to the one into its destination.
    has_crossed: bool,
    from: usize,
    to: usize,
    packet: Box<[u8]>,
}

struct Carrier {
    ends: Vec<(Ipv4Addr, OwnedFd)>,
    index: HashMap<Ipv4Addr, usize>,
    shapers: Arc<Mutex<HashMap<Place, Shaper>>>,
    arrived: Arc<Vec<AtomicU64>>,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    number: u64,
    started: Instant,
}

impl Carrier {
    fn run(mut self, must_end: &AtomicBool) {
        let mut buffer = vec![0; PACKET_MAX];
        while !must_end.load(Ordering::Relaxed) {
            self.await_something();
            for from in 0..self.ends.len() {
                self.take_packets(from, &mut buffer);
            }
            self.move_on();
        }
    }

    fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn await_something(&self) {
        let next = self.under_way.peek().map(|Reverse(first)| first.due_us);
        let wait = next.map_or(LOOK_EVERY, |due| {
            let wait = Duration::from_micros(due.saturating_sub(self.now_us()));
            wait.clamp(GRAIN, LOOK_EVERY)
        });
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: wait.as_nanos() as _,
        };
        let mut descriptors: Vec<PollFd<'_>> = (self.ends.iter())
            .map(|(_, device)| PollFd::new(device, PollFlags::IN))
            .collect();
        // An interruption is as good as a packet: everything is looked at.
        let _ = poll(&mut descriptors, Some(&wait));
    }

    fn take_packets(&mut self, from: usize, buffer: &mut [u8]) {
        for _ in 0..BURST {
            let Ok(length) = rustix::io::read(&self.ends[from].1, &mut *buffer) else {
                return;
            };
            let packet = &buffer[..length];
            let Some(to) = destination_of(packet).and_then(|to| self.index.get(&to).copied())
            else {
                continue;
            };
            if self.under_way.len() >= UNDER_WAY_MAX {
                continue;
            }
            let place = Place::Between(self.ends[from].0, self.ends[to].0);
            let packet = packet.into();
            let number = self.number;
            self.number += 1;
            let packet = UnderWay {
                due_us: 0,
                number,
                has_crossed: true,
                from,
                to,
                packet,
            };
            self.pass(place, packet);
        }
    }

    /// Takes a packet through a stretch.
    fn pass(&mut self, place: Place, packet: UnderWay) {
        let now_us = self.now_us();
        let mut shapers = self.shapers.lock();
        let due_us = match shapers.get_mut(&place) {
            None => Some(now_us),
            Some(shaper) => {
                let arrives = shaper.pass(now_us as f64, packet.packet.len());
                arrives.map(|at| at as u64)
            }
        };
        if let Some(due_us) = due_us {
            self.under_way.push(Reverse(UnderWay { due_us, ..packet }));
        }
    }

    fn move_on(&mut self) {
        let now_us = self.now_us();
        while let Some(Reverse(first)) = self.under_way.peek()
            && first.due_us <= now_us
        {
            let Some(Reverse(first)) = self.under_way.pop() else {
                return;
            };
            let to = first.to;
            if first.has_crossed {
                let into = Place::Into(self.ends[to].0);
                let packet = UnderWay {
                    has_crossed: false,
                    ..first
                };
                self.pass(into, packet);
            } else if rustix::io::write(&self.ends[to].1, &first.packet).is_ok() {
                // A full interface loses packets, as a network does.
                let cell = first.from * self.ends.len() + to;
                self.arrived[cell].fetch_add(first.packet.len() as u64, Ordering::Relaxed);
            }
        }
    }
}

/// RFC 791: version in the first four bits, destination in bytes 16 to 19.
fn destination_of(packet: &[u8]) -> Option<Ipv4Addr> {
    let version = packet.first()? >> 4;
    let bytes: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    (version == 4).then(|| Ipv4Addr::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_headers_of_version_four_have_a_destination() {
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[16..].copy_from_slice(&[198, 18, 0, 3]);
        assert_eq!(destination_of(&packet), Some(Ipv4Addr::new(198, 18, 0, 3)));
        assert_eq!(destination_of(&packet[..19]), None);
        packet[0] = 0x60;
        assert_eq!(destination_of(&packet), None);
    }
}
