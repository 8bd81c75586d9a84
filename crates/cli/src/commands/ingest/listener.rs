//! `--listen`: datagrams of XRootD's monitoring. Nothing but its address says whose a datagram is, and anybody may send: taken
//! is what comes of the networks that were named, so many rows a second of each address, and while the disk has room.

use super::{FLUSH_EVERY, Ingest, LOG_EVERY, Stop, Tail};
use crate::commands::records::check_room;
use crate::exit::CommandError;
use crate::output::Output;
use penstock_clock::wall_clock;
use penstock_model::observation::{Observation, Text};
use penstock_model::text::plural;
use penstock_observe::importing::pcap::Datagram;
use penstock_observe::importing::xrootd::{MonitoringStreams, RowAllowances, is_near_arrival};
use penstock_protocol::network::Network;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;
use tokio::net::UdpSocket;

/// The longest datagram there is.
const DATAGRAM_BYTES_MAX: usize = 65_536;
/// This machine.
const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1"];

/// What a listener knows of those who send.
struct Senders {
    networks: Vec<Network>,
    monitoring: MonitoringStreams,
    allowances: RowAllowances,
    /// Datagrams of others since they were told of last, and when that was.
    refused: u64,
    told_at: Option<Instant>,
}

impl Senders {
    fn of(networks: &[Network]) -> Senders {
        let loopback = || LOOPBACK.iter().filter_map(|text| Network::parse(text));
        Senders {
            networks: match networks {
                [] => loopback().collect(),
                networks => networks.to_vec(),
            },
            monitoring: MonitoringStreams::new(),
            allowances: RowAllowances::default(),
            refused: 0,
            told_at: None,
        }
    }

    fn are_listed(&self, sender: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(sender))
    }

    /// What is to be said of a datagram of somebody else: each time is counted, and told every few seconds.
    fn refuse(&mut self, sender: IpAddr) -> Option<String> {
        self.refused += 1;
        if self.told_at.is_some_and(|at| at.elapsed() < LOG_EVERY) {
            return None;
        }
        self.told_at = Some(Instant::now());
        let (sender, count) = (sender.to_canonical(), std::mem::take(&mut self.refused));
        let networks: Vec<String> = self.networks.iter().map(ToString::to_string).collect();
        let networks = networks.join(", ");
        Some(format!(
            "left out {} of other senders, the last of {sender}: only those of {networks} are taken. If {sender} is a \
             server of yours, add --from {sender}, or --from with its network",
            plural(count, "datagram")
        ))
    }
}

impl Ingest<'_> {
    /// Ends when it is asked to, or when the disk has no room.
    pub(super) async fn listen(mut self, address: SocketAddr) -> Result<(), CommandError> {
        let mut stop = Stop::listen()?;
        let failed = |why| CommandError::local(address, why);
        let socket = UdpSocket::bind(address).await.map_err(failed)?;
        let own = socket.local_addr().map_err(failed)?;
        self.output.line(&format!("listening on {own}"));
        let source: Text = match &self.args.source {
            Some(name) => name.as_str().into(),
            None => format!("xrootd:{own}").into(),
        };
        let mut senders = Senders::of(&self.args.from);
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let mut flush = tokio::time::interval(FLUSH_EVERY);
        let mut number = 0;
        let full = loop {
            tokio::select! {
                biased;
                () = stop.asked() => break None,
                _ = flush.tick() => {
                    self.take_gaps(&mut senders, &source, number);
                    self.save([], Tail::Open)?;
                    self.progress();
                    if let Err(why) = check_room(&self.args.into, self.args.free_min, "listening") {
                        break Some(why);
                    }
                }
                got = socket.recv_from(&mut buffer) => {
                    let (length, sender) = got.map_err(failed)?;
                    if !senders.are_listed(sender.ip()) {
                        self.summary.of_other_senders += 1;
                        if let Some(text) = senders.refuse(sender.ip()) {
                            Output::error(&text);
                        }
                        continue;
                    }
                    number += 1;
                    let datagram = Datagram {
                        at: wall_clock(),
                        sender,
                        payload: &buffer[..length],
                    };
                    self.datagram(&mut senders, &source, number, datagram);
                }
            }
        };
        self.take_gaps(&mut senders, &source, number);
        self.save([], Tail::Open)?;
        match full {
            None => self.end(),
            Some(why) => self.summary.conclude(self.output, Err(why)),
        }
    }

    fn datagram(
        &mut self,
        senders: &mut Senders,
        source: &Text,
        number: u64,
        datagram: Datagram<'_>,
    ) {
        let mut rows = Vec::new();
        let sender = datagram.sender.ip().to_canonical();
        let left = senders.allowances.left(sender, datagram.at);
        match senders.monitoring.take_some(datagram, left, &mut rows) {
            Ok(left_out) => {
                senders.allowances.refuse(sender, left_out);
                self.summary.over_rate += left_out;
            }
            Err(why) => self.summary.invalid_datagram(number, &datagram.sender, why),
        }
        let came = rows.len();
        rows.retain(|row| is_near_arrival(row.at(), datagram.at));
        self.summary.far_from_arrival += (came - rows.len()) as u64;
        let taken = senders.allowances.take(sender, datagram.at, rows.len());
        self.summary.over_rate += (rows.len() - taken) as u64;
        for row in rows.into_iter().take(taken) {
            self.take_observed(row, source, number);
        }
    }

    fn take_gaps(&mut self, senders: &mut Senders, source: &Text, number: u64) {
        let mut rows: Vec<Observation> = Vec::new();
        senders.allowances.gaps(wall_clock(), &mut rows);
        for row in rows {
            self.take_observed(row, source, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_model::quantity::Size;

    #[test]
    fn datagrams_are_taken_of_this_machine_unless_networks_are_named() {
        let listed = |networks: &[&str], sender: &str| {
            let networks: Vec<_> = networks
                .iter()
                .filter_map(|it| Network::parse(it))
                .collect();
            Senders::of(&networks).are_listed(sender.parse().expect("an address"))
        };
        assert!(listed(&[], "127.0.0.9") && listed(&[], "::1"));
        assert!(
            listed(&[], "::ffff:127.0.0.1"),
            "as a socket for both shows it"
        );
        assert!(!listed(&[], "192.0.2.7"));
        assert!(listed(&["192.0.2.0/24", "2001:db8::/32"], "192.0.2.7"));
        assert!(listed(&["192.0.2.0/24", "2001:db8::/32"], "2001:db8::7"));
        assert!(!listed(&["192.0.2.0/24"], "127.0.0.1"));
    }

    #[test]
    fn others_are_told_of_at_once_and_then_every_few_seconds() {
        let mut senders = Senders::of(&[]);
        let told = senders.refuse(IpAddr::from([192, 0, 2, 7]));
        assert!(told.is_some_and(|text| text.contains("add --from 192.0.2.7")));
        assert_eq!(senders.refuse(IpAddr::from([192, 0, 2, 8])), None);
        assert_eq!(senders.refused, 1);
    }

    #[test]
    fn a_listener_leaves_room_on_the_disk() {
        let directory = tempfile::tempdir().expect("made");
        let check = |free_min| check_room(directory.path(), Size(free_min), "listening");
        check(0).expect("nothing is to be left");
        let full = check(u64::MAX).expect_err("never so much");
        assert!(full.to_string().contains("--free-min"), "{full}");
    }
}
