//! Networks of addresses, ports, and which addresses are public.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// An address, or all that share its first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl Network {
    /// Reads `192.0.2.1` or `2001:db8::/32`.
    pub fn parse(text: &str) -> Option<Network> {
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match bits {
            None => bits_max,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok()?
            }
            Some(_) => return None,
        };
        (prefix_bits <= bits_max).then_some(Network {
            address,
            prefix_bits,
        })
    }

    /// Its address, as it was written.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Bits that all its addresses share.
    pub fn prefix_bits(&self) -> u32 {
        self.prefix_bits
    }

    /// Whether an address lies in it. An IPv4 address that a socket shows as IPv6 is the IPv4 address.
    pub fn contains(&self, peer: IpAddr) -> bool {
        let same_prefix = |one: u128, other: u128, width: u32| {
            let shift = width - self.prefix_bits.min(width);
            one.checked_shr(shift).unwrap_or(0) == other.checked_shr(shift).unwrap_or(0)
        };
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(peer)) => {
                same_prefix(u32::from(own).into(), u32::from(peer).into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(peer)) => same_prefix(own.into(), peer.into(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.prefix_bits)
    }
}

/// Ports of storage elements in the field: HTTPS, XRootD and its HTTP, dCache (WebDAV, its doors with certificates, its
/// pools), GridFTP, StoRM and SRM, EOS and S3.
const STORAGE_PORTS: [(u16, u16); 9] = [
    (443, 443),
    (1094, 1095),
    (2443, 2443),
    (2811, 2811),
    (2880, 2883),
    (8443, 8444),
    (9000, 9001),
    (20_000, 25_000),
    (50_000, 51_000),
];
/// Those of their doors without TLS: any, dCache and EOS, StoRM.
const PLAIN_STORAGE_PORTS: [(u16, u16); 3] = [(80, 80), (8080, 8080), (8085, 8085)];

/// Ports, as an entry of a list names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// None is named: those that storage elements usually have.
    Usual,
    /// `*`
    Any,
    /// One (`first` is `last`), or all between two, with them.
    Range {
        /// The lowest.
        first: u16,
        /// The highest.
        last: u16,
    },
}

impl Ports {
    /// Reads `8443`, `20000-25000` or `*`.
    pub fn parse(text: &str) -> Option<Ports> {
        let port = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let port: u16 = is_number.then(|| text.parse().ok())??;
            (port > 0).then_some(port)
        };
        if text == "*" {
            return Some(Ports::Any);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first)?, port(last)?);
        (first <= last).then_some(Ports::Range { first, last })
    }

    pub fn one(port: u16) -> Ports {
        Ports::Range {
            first: port,
            last: port,
        }
    }

    /// Whether a port is among them.
    pub fn contain(self, port: u16) -> bool {
        self.cover(Ports::one(port))
    }

    /// Whether all others are among them.
    pub fn cover(self, others: Ports) -> bool {
        match self {
            Ports::Any => true,
            Ports::Range { first, last } => others.lie_in(first, last),
            Ports::Usual => {
                let mut usual = STORAGE_PORTS.into_iter().chain(PLAIN_STORAGE_PORTS);
                others == Ports::Usual || usual.any(|(first, last)| others.lie_in(first, last))
            }
        }
    }

    fn lie_in(self, low: u16, high: u16) -> bool {
        match self {
            Ports::Range { first, last } => low <= first && last <= high,
            Ports::Usual | Ports::Any => false,
        }
    }
}

/// Whether storage elements usually have a door with TLS there.
pub fn is_usual_with_tls(port: u16) -> bool {
    STORAGE_PORTS
        .into_iter()
        .any(|(first, last)| Ports::one(port).lie_in(first, last))
}

impl fmt::Display for Ports {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ports::Usual => out.write_str("usual ports"),
            Ports::Any => out.write_str("*"),
            Ports::Range { first, last } if first == last => write!(out, "{first}"),
            Ports::Range { first, last } => write!(out, "{first}-{last}"),
        }
    }
}

/// Addresses with ports, as `trust.private_addresses` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkPorts {
    /// Which addresses.
    pub network: Network,
    pub ports: Ports,
}

impl NetworkPorts {
    /// Reads `10.0.0.0/8`, `10.0.0.5:8443`, `[fd00::/8]:20000-25000`, `127.0.0.0/8:*`.
    pub fn parse(text: &str) -> Option<NetworkPorts> {
        let text = text.trim();
        if let Some(network) = Network::parse(text) {
            let ports = Ports::Usual;
            return Some(NetworkPorts { network, ports });
        }
        let (network, ports) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').and_then(|(network, rest)| {
                network.contains(':').then_some(())?;
                match rest {
                    "" => Some((network, None)),
                    rest => Some((network, Some(rest.strip_prefix(':')?))),
                }
            })?,
            None => {
                let (network, ports) = text.rsplit_once(':')?;
                (!network.contains(':')).then_some((network, Some(ports)))?
            }
        };
        let trimmed = network.trim() == network;
        Some(NetworkPorts {
            network: Network::parse(network).filter(|_| trimmed)?,
            ports: ports.map_or(Some(Ports::Usual), Ports::parse)?,
        })
    }
}

/// Whether an address leads to this very machine: loopback, or one of its interfaces has it.
pub fn is_of_this_machine(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing. To its own addresses a machine speaks from the same address.
    let near_end = || {
        let socket = UdpSocket::bind((any, 0))?;
        // Any port but 0.
        socket.connect((address, 9))?;
        socket.local_addr()
    };
    address.is_loopback()
        || address.is_unspecified()
        || near_end().is_ok_and(|near| near.ip() == address)
}

/// Why an address is none of the public Internet; `None` for one that is. An IPv4 address inside an IPv6 one
/// counts as itself.
pub fn why_not_public(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

/// The special-purpose registry of IPv4 (RFC 6890 and its successors).
fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (0, ..) => Some("an unspecified address"),
        (127, ..) => Some("a loopback address"),
        (10, ..) | (192, 168, _) => Some("a private address"),
        (172, 16..=31, _) => Some("a private address"),
        (169, 254, _) => Some("a link-local address"),
        (100, 64..=127, _) => Some("an address behind a carrier's translation"),
        (192, 0, 0 | 2) | (198, 51, 100) | (203, 0, 113) => Some("a reserved address"),
        (198, 18..=19, _) => Some("an address for measurements"),
        (224..=239, ..) => Some("a multicast address"),
        (240..=255, ..) => Some("a reserved address"),
        (192, 88, 99) => Some("a reserved address"),
        _ => None,
    }
}

/// The special-purpose registry of IPv6. Addresses that hold an IPv4 one (NAT64, SIIT, 6to4, ISATAP) lead there. What is
/// not yet given to anybody (all but 2000::/3) is not public.
fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let inner = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        not_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("an unspecified address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("a loopback address"),
        [0, 0, 0, 0, 0, 0, ..] => Some("a reserved address"),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => inner(high, low),
        [0x64, 0xff9b, 1, ..] => Some("a private address"),
        [0x2002, high, low, ..] => inner(high, low),
        // RFC 7915: what a translator puts before IPv4 addresses.
        [0, 0, 0, 0, 0xffff, 0, high, low] => inner(high, low),
        // RFC 5214: the rest names the IPv4 address to which packets are carried.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] if inner(high, low).is_some() => {
            inner(high, low)
        }
        // RFC 2928 and 9637: protocol assignments (Teredo, measurements, identifiers), documentation.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x100, 0, 0, 0, ..] => {
            Some("a reserved address")
        }
        [0x3fff, second, ..] if second & 0xf000 == 0 => Some("a reserved address"),
        [first, ..] if first & 0xfe00 == 0xfc00 => Some("a private address"),
        [first, ..] if first & 0xffc0 == 0xfe80 => Some("a link-local address"),
        [first, ..] if first & 0xffc0 == 0xfec0 => Some("a private address"),
        [first, ..] if first & 0xff00 == 0xff00 => Some("a multicast address"),
        [first, ..] if first & 0xe000 != 0x2000 => Some("a reserved address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        for address in [
            "127.0.0.1",
            "127.255.0.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.2.7",
            "::",
            "::1",
            "::127.0.0.1",
            "fe80::1",
            "fc00::1",
            "fdab::1",
            "fec0::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "2001:db8::1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2002:c0a8:101::1",
            "::ffff:0:127.0.0.1",
            "64:ff9b:1::8080:101",
            "2001:1458::5efe:10.0.0.1",
            "2001:1458::200:5efe:127.0.0.1",
            "2001:0:7f00:1::",
            "2001:2::1",
            "2001:20::1",
            "3fff::1",
            "5f00::1",
            "4000::1",
            "192.88.99.1",
        ] {
            assert!(
                why_not_public(address.parse().expect(address)).is_some(),
                "{address}"
            );
        }
        for address in [
            "128.142.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "169.253.0.1",
            "9.9.9.9",
            "223.255.255.254",
            "2001:1458:d00::1",
            "2a00:1450::1",
            "64:ff9b::808e:101",
            "::ffff:128.142.1.1",
            "2001:200::1",
            "2001:1458::5efe:128.142.1.1",
        ] {
            assert_eq!(
                why_not_public(address.parse().expect(address)),
                None,
                "{address}"
            );
        }
    }

    #[test]
    fn ports_are_named_or_those_that_storage_elements_usually_have() {
        let check = |text: &str, address: &str, port: u16, expected: bool| {
            let entry = NetworkPorts::parse(text).expect(text);
            let address = address.parse().expect(address);
            let found = entry.network.contains(address) && entry.ports.contain(port);
            assert_eq!(found, expected, "{text} {address} {port}");
        };
        check("10.0.0.0/8", "10.1.2.3", 8443, true);
        check("10.0.0.0/8", "10.1.2.3", 8446, false);
        for plain in [80, 8080, 8085] {
            check("10.0.0.0/8", "10.1.2.3", plain, true);
            check("10.0.0.0/8:8443", "10.1.2.3", plain, false);
        }
        check("10.0.0.0/8", "10.1.2.3", 8081, false);
        check("10.0.0.0/8:8446", "10.1.2.3", 8446, true);
        check("10.0.0.5:20000-20010", "10.0.0.5", 20010, true);
        check("10.0.0.5:20000-20010", "10.0.0.5", 20011, false);
        check("127.0.0.0/8:*", "::ffff:127.0.0.9", 1, true);
        check("::1", "::1", 8443, true);
        check("[::1]", "::1", 8443, true);
        check("[::1]:9443", "::1", 9443, true);
        check("[::1]:9443", "::1", 8443, false);
        check("[fd00::/8]:9443", "fd12::1", 9443, true);
        for bad in [
            "",
            "10.0.0.0/33",
            "10.0.0.1:",
            "10.0.0.1:0",
            "10.0.0.1:70000",
            "10.0.0.1:9-8",
            "[10.0.0.1]:80",
            "se:8443",
            "[::1",
            "[::1]8443",
            "[::1]:",
            "fe80::1%lo",
            "[fe80::1%lo]:443",
            "10.0.0.1 :443",
            ":443",
        ] {
            assert_eq!(NetworkPorts::parse(bad), None, "{bad}");
        }
    }
}
