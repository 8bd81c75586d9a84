//! Captured datagrams: files of tcpdump (pcap, not pcapng; `man 5 pcap-savefile`), of which the UDP datagrams are taken.

use penstock_model::Timestamp;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const HEAD_BYTES: usize = 24;
const RECORD_HEAD_BYTES: usize = 16;
/// A record that claims to be longer is damage.
const RECORD_BYTES_MAX: usize = 1 << 18;
const UDP: u8 = 17;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;

/// A datagram as it was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    pub at: Timestamp,
    /// Who sent it.
    pub sender: SocketAddr,
    /// What it carried.
    pub payload: &'a [u8],
}

/// What a file is that is no capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a file of tcpdump in the format pcap")]
pub struct NoCapture;

/// Hands each whole UDP datagram to `take`. Returns how many records were none: other protocols, fragments, cut ones.
pub fn each_datagram(file: &[u8], mut take: impl FnMut(Datagram<'_>)) -> Result<u64, NoCapture> {
    let (head, mut rest) = file.split_at_checked(HEAD_BYTES).ok_or(NoCapture)?;
    let magic = [head[0], head[1], head[2], head[3]];
    let (is_little, per_millisecond) = match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => (true, 1_000),
        [0xa1, 0xb2, 0xc3, 0xd4] => (false, 1_000),
        [0x4d, 0x3c, 0xb2, 0xa1] => (true, 1_000_000),
        [0xa1, 0xb2, 0x3c, 0x4d] => (false, 1_000_000),
        _ => return Err(NoCapture),
    };
    let four = |bytes: &[u8], at: usize| {
        let number = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match is_little {
            true => u32::from_le_bytes(number),
            false => u32::from_be_bytes(number),
        }
    };
    let link = four(head, 20);
    let mut others = 0;
    while let Some((record, behind)) = rest.split_at_checked(RECORD_HEAD_BYTES) {
        let (seconds, fraction) = (four(record, 0), four(record, 4));
        let (length, whole) = (four(record, 8) as usize, four(record, 12) as usize);
        let Some((packet, behind)) = behind.split_at_checked(length) else {
            return Ok(others + 1);
        };
        if length > RECORD_BYTES_MAX {
            return Ok(others + 1);
        }
        rest = behind;
        let at = i64::from(seconds) * 1000 + i64::from(fraction / per_millisecond);
        match udp_of(packet, link).filter(|_| length == whole) {
            Some((sender, payload)) => take(Datagram {
                at: Timestamp(at),
                sender,
                payload,
            }),
            None => others += 1,
        }
    }
    Ok(others)
}

fn two(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Takes the heads of link, network and transport away. Link types: `pcap-linktype(7)`.
fn udp_of(packet: &[u8], link: u32) -> Option<(SocketAddr, &[u8])> {
    let network = match link {
        // Loopback of BSD.
        0 => packet.get(4..)?,
        // Ethernet.
        1 => {
            let at = match two(packet, 12)? {
                ETHERTYPE_VLAN => 16,
                _ => 12,
            };
            let is_ip = [ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&two(packet, at)?);
            packet.get(at + 2..).filter(|_| is_ip)?
        }
        // Bare IP.
        12 | 101 => packet,
        // Linux "any", versions 1 and 2.
        113 => packet.get(16..)?,
        276 => packet.get(20..)?,
        _ => return None,
    };
    let (sender, datagram) = match network.first()? >> 4 {
        4 => ipv4(network)?,
        6 => ipv6(network)?,
        _ => return None,
    };
    let port = two(datagram, 0)?;
    let length = usize::from(two(datagram, 4)?);
    Some((SocketAddr::new(sender, port), datagram.get(8..length)?))
}

fn ipv4(packet: &[u8]) -> Option<(IpAddr, &[u8])> {
    let head = usize::from(packet[0] & 0x0f) * 4;
    let address: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
    let is_fragment = two(packet, 6)? & 0x3fff != 0;
    let is_udp = packet[9] == UDP && !is_fragment && head >= 20;
    let datagram = packet.get(head..).filter(|_| is_udp)?;
    Some((Ipv4Addr::from(address).into(), datagram))
}

/// Without extension heads.
fn ipv6(packet: &[u8]) -> Option<(IpAddr, &[u8])> {
    let address: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
    let datagram = packet.get(40..).filter(|_| packet[6] == UDP)?;
    Some((Ipv6Addr::from(address).into(), datagram))
}
