//! How many rows a listener takes of each address: whoever sends datagrams decides how many rows they make.

use super::gap;
use penstock_model::Timestamp;
use penstock_model::observation::Observation;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Rows that are taken of one address in a second, over a longer time.
pub const ROWS_PER_SECOND_MAX: u32 = 5_000;
/// Rows that are taken of one address at once: a server tells all its open files in one go (`xrootd.monitor … xfr`).
pub const ROWS_AT_ONCE_MAX: u32 = 50_000;
/// Addresses whose rows are counted.
const ADDRESSES_MAX: usize = 4_096;

/// What may still come of each address.
#[derive(Debug, Default)]
pub struct RowAllowances {
    addresses: HashMap<IpAddr, Allowance>,
}

#[derive(Debug)]
struct Allowance {
    rows_left: u32,
    at: Timestamp,
    refused: u64,
}

impl Allowance {
    /// As it is at another time.
    fn rows_left(&self, at: Timestamp) -> u32 {
        let since = at.since(self.at).min(Duration::from_secs(3600)).as_millis() as u64;
        let more = since * u64::from(ROWS_PER_SECOND_MAX) / 1000;
        let left = u64::from(self.rows_left) + more;
        left.min(ROWS_AT_ONCE_MAX.into()) as u32
    }
}

impl RowAllowances {
    /// How many of so many rows of a sender are taken; the others are counted.
    pub fn take(&mut self, sender: IpAddr, at: Timestamp, rows: usize) -> usize {
        if rows == 0 {
            return 0;
        }
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&sender) {
            // Who has a full allowance is as one who has never sent.
            self.addresses.retain(|_, allowance| {
                allowance.refused > 0 || allowance.rows_left(at) < ROWS_AT_ONCE_MAX
            });
            if self.addresses.len() >= ADDRESSES_MAX {
                return 0;
            }
        }
        let allowance = self.addresses.entry(sender).or_insert(Allowance {
            rows_left: ROWS_AT_ONCE_MAX,
            at,
            refused: 0,
        });
        let left = allowance.rows_left(at);
        let taken = rows.min(left as usize);
        allowance.rows_left = left - taken as u32;
        allowance.at = at;
        allowance.refused += (rows - taken) as u64;
        taken
    }

    /// How many rows of a sender would be taken.
    pub fn left(&self, sender: IpAddr, at: Timestamp) -> usize {
        let known = self.addresses.get(&sender);
        known.map_or(ROWS_AT_ONCE_MAX, |allowance| allowance.rows_left(at)) as usize
    }

    /// Counts rows of a sender that were refused before they were made.
    pub fn refuse(&mut self, sender: IpAddr, rows: u64) {
        if let Some(allowance) = self.addresses.get_mut(&sender) {
            allowance.refused += rows;
        }
    }

    /// Tells of which addresses rows were refused since this was asked last.
    pub fn gaps(&mut self, at: Timestamp, rows: &mut Vec<Observation>) {
        for (address, allowance) in &mut self.addresses {
            let refused = std::mem::take(&mut allowance.refused);
            if refused > 0 {
                let what = "more rows came in a second than are taken of one address";
                rows.push(gap(at, address.to_string().into(), what, refused));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn rows_of_one_address_are_bounded_and_those_of_others_are_not_touched() {
        let mut allowances = RowAllowances::default();
        let [one, other] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let burst = ROWS_AT_ONCE_MAX as usize;
        assert_eq!(allowances.take(one, NOW, burst + 7), burst);
        assert_eq!(allowances.take(one, NOW, 1), 0);
        assert_eq!(allowances.take(other, NOW, 5), 5);
        let later = NOW + Duration::from_secs(2);
        assert_eq!(
            allowances.take(one, later, burst),
            2 * ROWS_PER_SECOND_MAX as usize
        );
        let mut rows = Vec::new();
        allowances.gaps(later, &mut rows);
        let [Observation::Incident(gap)] = rows.as_slice() else {
            panic!("one gap: {rows:?}");
        };
        assert_eq!(gap.subject.as_deref(), Some("192.0.2.1"));
        let refused = 8 + burst - 2 * ROWS_PER_SECOND_MAX as usize;
        assert_eq!(gap.count, Some(refused as u64));
        allowances.gaps(later, &mut rows);
        assert_eq!(rows.len(), 1, "each is told once");
    }

    #[test]
    fn addresses_are_bounded_and_make_room_when_they_are_silent() {
        let mut allowances = RowAllowances::default();
        let address = |number: usize| IpAddr::from((0x0a00_0000 + number as u32).to_be_bytes());
        for number in 0..ADDRESSES_MAX {
            assert_eq!(allowances.take(address(number), NOW, 1_000), 1_000);
        }
        assert_eq!(allowances.take(address(ADDRESSES_MAX), NOW, 1), 0);
        let later = NOW + Duration::from_secs(1);
        assert_eq!(allowances.take(address(ADDRESSES_MAX), later, 1), 1);
    }
}
