//! Networks of addresses, and which addresses are public.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
        _ => None,
    }
}

/// The special-purpose registry of IPv6. Addresses that hold an IPv4 one (NAT64, 6to4, compatible) lead there.
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
        [0x2001, 0, ..] | [0x2001, 0xdb8, ..] | [0x100, 0, 0, 0, ..] => Some("a reserved address"),
        [first, ..] if first & 0xfe00 == 0xfc00 => Some("a private address"),
        [first, ..] if first & 0xffc0 == 0xfe80 => Some("a link-local address"),
        [first, ..] if first & 0xffc0 == 0xfec0 => Some("a private address"),
        [first, ..] if first & 0xff00 == 0xff00 => Some("a multicast address"),
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
        ] {
            assert_eq!(
                why_not_public(address.parse().expect(address)),
                None,
                "{address}"
            );
        }
    }
}
