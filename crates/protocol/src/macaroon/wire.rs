//! A macaroon as text: base64url of version 1 (packets of text, what dCache and XRootD issue and every client
//! takes) or version 2 (fields with lengths) of libmacaroons' formats. Writes version 1, reads both.

use super::MacaroonError;
use super::chain::{Macaroon, SIGNATURE_BYTES};
use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Without padding when written, with or without when read.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Version 2: an end of a section, and its kinds of fields.
mod field {
    pub const END: u64 = 0;
    pub const LOCATION: u64 = 1;
    pub const IDENTIFIER: u64 = 2;
    pub const SIGNATURE: u64 = 6;
}

/// Version 1. `None`: a part is too long for a packet.
pub(super) fn to_text(macaroon: &Macaroon) -> Option<String> {
    let mut bytes = Vec::new();
    add_packet(&mut bytes, "location", &macaroon.location)?;
    add_packet(&mut bytes, "identifier", &macaroon.identifier)?;
    for caveat in &macaroon.caveats {
        add_packet(&mut bytes, "cid", caveat)?;
    }
    add_packet(&mut bytes, "signature", &macaroon.signature)?;
    Some(BASE64.encode(bytes))
}

/// Four hex digits with the length of all, the key, a blank, the value, a newline.
fn add_packet(out: &mut Vec<u8>, key: &str, value: &[u8]) -> Option<()> {
    let length = u16::try_from(4 + key.len() + 1 + value.len() + 1).ok()?;
    out.extend_from_slice(format!("{length:04x}{key} ").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
    Some(())
}

/// Either version. The length of the text is the caller's to bound.
pub(super) fn from_text(text: &str) -> Result<Macaroon, MacaroonError> {
    // Some tools use the other alphabet; both name the same bytes.
    let plain = text.trim().replace('+', "-").replace('/', "_");
    let bytes = BASE64
        .decode(plain)
        .map_err(|_| MacaroonError::Malformed("it is not base64"))?;
    let parsed = match bytes.first() {
        Some(2) => from_version_2(&bytes[1..]),
        Some(_) => from_version_1(&bytes),
        None => Err("it is empty"),
    };
    parsed.map_err(MacaroonError::Malformed)
}

fn from_version_1(bytes: &[u8]) -> Result<Macaroon, &'static str> {
    let mut packets = Packets(bytes);
    let location = packets.expect("location")?;
    let identifier = packets.expect("identifier")?;
    let mut caveats = Vec::new();
    loop {
        match packets.next()? {
            ("cid", caveat) => caveats.push(caveat.to_vec()),
            ("signature", signature) if packets.0.is_empty() => {
                return assemble(location, identifier, caveats, signature);
            }
            ("signature", _) => return Err("something follows its signature"),
            ("vid" | "cl", _) => return Err(THIRD_PARTY),
            _ => return Err("it has a packet of an unknown kind"),
        }
    }
}

const THIRD_PARTY: &str = "it has a third-party caveat, which is not supported";

/// What is left to read of version 1.
struct Packets<'a>(&'a [u8]);

impl<'a> Packets<'a> {
    fn next(&mut self) -> Result<(&'a str, &'a [u8]), &'static str> {
        const BROKEN: &str = "a packet is cut off or has no key";
        let digits = self.0.get(..4).ok_or(BROKEN)?;
        // `from_str_radix` alone would take a sign.
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(BROKEN);
        }
        let digits = std::str::from_utf8(digits).map_err(|_| BROKEN)?;
        let length = usize::from_str_radix(digits, 16).map_err(|_| BROKEN)?;
        let packet = self.0.get(4..length).ok_or(BROKEN)?;
        self.0 = &self.0[length..];
        let packet = packet.strip_suffix(b"\n").ok_or(BROKEN)?;
        let blank = packet.iter().position(|byte| *byte == b' ').ok_or(BROKEN)?;
        let key = std::str::from_utf8(&packet[..blank]).map_err(|_| BROKEN)?;
        Ok((key, &packet[blank + 1..]))
    }

    fn expect(&mut self, key: &str) -> Result<&'a [u8], &'static str> {
        match self.next()? {
            (found, value) if found == key => Ok(value),
            _ => Err("it does not begin with a location and an identifier"),
        }
    }
}

fn from_version_2(bytes: &[u8]) -> Result<Macaroon, &'static str> {
    let mut fields = Fields(bytes);
    let head = fields.section()?.ok_or("it has no identifier")?;
    let mut caveats = Vec::new();
    while let Some(caveat) = fields.section()? {
        caveats.push(caveat.identifier.to_vec());
    }
    match fields.next()? {
        (field::SIGNATURE, signature) if fields.0.is_empty() => {
            assemble(head.location, head.identifier, caveats, signature)
        }
        (field::SIGNATURE, _) => Err("something follows its signature"),
        _ => Err("it does not end with a signature"),
    }
}

/// A section of version 2: the head, or one caveat.
struct Section<'a> {
    location: &'a [u8],
    identifier: &'a [u8],
}

/// What is left to read of version 2.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// A kind and its bytes; the end of a section has none.
    fn next(&mut self) -> Result<(u64, &'a [u8]), &'static str> {
        let kind = self.number()?;
        if kind == field::END {
            return Ok((kind, &[]));
        }
        let length = usize::try_from(self.number()?).map_err(|_| CUT_OFF)?;
        let value = self.0.get(..length).ok_or(CUT_OFF)?;
        self.0 = &self.0[length..];
        Ok((kind, value))
    }

    /// Location (which may be absent) and identifier up to the end of the section; `None` when it is empty.
    fn section(&mut self) -> Result<Option<Section<'a>>, &'static str> {
        let mut field = self.next()?;
        if field.0 == field::END {
            return Ok(None);
        }
        let mut location: &[u8] = &[];
        if field.0 == field::LOCATION {
            location = field.1;
            field = self.next()?;
        }
        if field.0 != field::IDENTIFIER {
            return Err("a section has no identifier");
        }
        match self.next()?.0 {
            field::END => Ok(Some(Section {
                location,
                identifier: field.1,
            })),
            _ => Err(THIRD_PARTY),
        }
    }

    /// Seven bits a byte, the lowest first.
    fn number(&mut self) -> Result<u64, &'static str> {
        let mut number = 0;
        for shift in [0, 7, 14, 21, 28] {
            let (byte, rest) = self.0.split_first().ok_or(CUT_OFF)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err("a length is too large")
    }
}

const CUT_OFF: &str = "it is cut off";

fn assemble(
    location: &[u8],
    identifier: &[u8],
    caveats: Vec<Vec<u8>>,
    signature: &[u8],
) -> Result<Macaroon, &'static str> {
    let signature: [u8; SIGNATURE_BYTES] = signature
        .try_into()
        .map_err(|_| "its signature has the wrong length")?;
    Ok(Macaroon {
        location: location.to_vec(),
        identifier: identifier.to_vec(),
        caveats,
        signature,
    })
}
