//! The form in which a row of the ledger lies in the database. Each text is there once, however many things share it:
//! directories, users and clients repeat, and a row of some hundred bytes costs a transaction no page of its own.
//!
//! A version, the texts, then the records: numbers as varints, times as differences, texts by their numbers from 1 on, with
//! 0 for what is not known.

use super::EntryId;
use super::{
    ChangedEntry, ElementEvent, ElementRecord, GapCause, LedgerGap, Refusal, RequestOrigin,
};
use penstock_model::observation::{EntryChange, EntryChangeReason};
use penstock_model::{Bytes, NamespacePath, PoolName, Timestamp, UserName, VoName};
use std::collections::HashMap;
use std::sync::Arc;
use thiserror::Error;

/// The form that is written. Earlier ones stay readable.
const VERSION: u8 = 1;
const CHANGED: u64 = 1;
const REFUSED: u64 = 2;
const GAP: u64 = 3;

/// Why bytes are no row of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum InvalidRow {
    /// They are of a later form.
    #[error("its form is not known")]
    Version,
    /// They end too early.
    #[error("it ends too early")]
    End,
    /// A value is none of those that are written.
    #[error("a value makes no sense")]
    Value,
}

/// Records as bytes.
pub(super) fn pack(records: &[ElementRecord]) -> Vec<u8> {
    let mut packer = Packer::default();
    packer.number(records.len() as u64);
    let mut before = 0;
    for record in records {
        packer.signed(record.at.0.wrapping_sub(before));
        before = record.at.0;
        packer.origin(&record.origin);
        packer.event(&record.event);
    }
    let Packer { texts, body, .. } = packer;
    let mut bytes = vec![VERSION];
    push_varint(&mut bytes, texts.len() as u64);
    for text in &texts {
        push_varint(&mut bytes, text.len() as u64);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes.extend_from_slice(&body);
    bytes
}

/// What [`pack`] has made of them.
pub(super) fn unpack(bytes: &[u8]) -> Result<Vec<ElementRecord>, InvalidRow> {
    let mut left = Unpacker {
        bytes,
        texts: Vec::new(),
    };
    if left.take(1)? != [VERSION] {
        return Err(InvalidRow::Version);
    }
    for _ in 0..left.number()? {
        let length = usize::try_from(left.number()?).map_err(|_| InvalidRow::End)?;
        let text = std::str::from_utf8(left.take(length)?).map_err(|_| InvalidRow::Value)?;
        left.texts.push(text);
    }
    let count = left.number()?;
    let (mut records, mut at) = (Vec::new(), 0_i64);
    for _ in 0..count {
        at = at.wrapping_add(left.signed()?);
        records.push(ElementRecord {
            at: Timestamp(at),
            origin: Arc::new(left.origin()?),
            event: left.event()?,
        });
    }
    match left.bytes {
        [] => Ok(records),
        _ => Err(InvalidRow::Value),
    }
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[derive(Default)]
struct Packer {
    numbers: HashMap<String, u64>,
    texts: Vec<String>,
    body: Vec<u8>,
}

impl Packer {
    fn number(&mut self, value: u64) {
        push_varint(&mut self.body, value);
    }

    fn signed(&mut self, value: i64) {
        self.number(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    fn known(&mut self, value: Option<u64>) {
        self.number(u64::from(value.is_some()));
        if let Some(value) = value {
            self.number(value);
        }
    }

    fn text(&mut self, text: &str) {
        let number = match self.numbers.get(text) {
            Some(number) => *number,
            None => {
                self.texts.push(text.to_owned());
                let number = self.texts.len() as u64;
                self.numbers.insert(text.to_owned(), number);
                number
            }
        };
        self.number(number);
    }

    fn known_text(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.number(0),
        }
    }

    /// The directory is shared; the name seldom is, and stands here.
    fn path(&mut self, path: Option<&NamespacePath>) {
        let Some(path) = path else {
            return self.number(0);
        };
        let text = path.to_string();
        let (directory, name) = text.rsplit_once('/').unwrap_or(("", &text));
        self.text(directory);
        self.number(name.len() as u64);
        self.body.extend_from_slice(name.as_bytes());
    }

    fn origin(&mut self, origin: &RequestOrigin) {
        self.known_text(origin.user.as_ref().map(UserName::as_str));
        self.known_text(origin.vo.as_ref().map(VoName::as_str));
        self.known_text(origin.client.as_deref());
        self.known_text(origin.copy.as_deref());
        self.known_text(origin.challenge.as_deref());
    }

    fn event(&mut self, event: &ElementEvent) {
        match event {
            ElementEvent::Changed(changed) => {
                self.number(CHANGED);
                self.text(changed.kind.word());
                self.number(changed.entry.0);
                self.path(changed.path.as_ref());
                self.path(changed.new_path.as_ref());
                self.known(changed.size.map(|size| size.0));
                self.known_text(changed.pool.as_ref().map(PoolName::as_str));
                self.known_text(changed.reason.map(EntryChangeReason::word));
            }
            ElementEvent::Refused(refusal) => {
                self.number(REFUSED);
                self.text(&refusal.method);
                self.path(refusal.path.as_ref());
                self.number(u64::from(refusal.status));
                self.text(&refusal.code);
                self.text(&refusal.detail);
            }
            ElementEvent::Gap(gap) => {
                self.number(GAP);
                self.known(gap.from.map(|from| from.0.cast_unsigned()));
                self.text(gap.cause.word());
                self.known(gap.lost);
            }
        }
    }
}

struct Unpacker<'a> {
    bytes: &'a [u8],
    texts: Vec<&'a str>,
}

impl<'a> Unpacker<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], InvalidRow> {
        let (taken, left) = self.bytes.split_at_checked(length).ok_or(InvalidRow::End)?;
        self.bytes = left;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, InvalidRow> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(InvalidRow::Value)
    }

    fn signed(&mut self) -> Result<i64, InvalidRow> {
        let value = self.number()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn known(&mut self) -> Result<Option<u64>, InvalidRow> {
        match self.number()? {
            0 => Ok(None),
            1 => self.number().map(Some),
            _ => Err(InvalidRow::Value),
        }
    }

    fn known_text(&mut self) -> Result<Option<&'a str>, InvalidRow> {
        let number = usize::try_from(self.number()?).map_err(|_| InvalidRow::Value)?;
        match number.checked_sub(1) {
            None => Ok(None),
            Some(place) => self
                .texts
                .get(place)
                .copied()
                .map(Some)
                .ok_or(InvalidRow::Value),
        }
    }

    fn text(&mut self) -> Result<&'a str, InvalidRow> {
        self.known_text()?.ok_or(InvalidRow::Value)
    }

    fn path(&mut self) -> Result<Option<NamespacePath>, InvalidRow> {
        let Some(directory) = self.known_text()? else {
            return Ok(None);
        };
        let length = usize::try_from(self.number()?).map_err(|_| InvalidRow::End)?;
        let name = std::str::from_utf8(self.take(length)?).map_err(|_| InvalidRow::Value)?;
        let path = NamespacePath::parse(&format!("{directory}/{name}"));
        path.map(Some).map_err(|_| InvalidRow::Value)
    }

    fn origin(&mut self) -> Result<RequestOrigin, InvalidRow> {
        Ok(RequestOrigin {
            user: self.known_text()?.map(UserName::new),
            vo: self.known_text()?.map(VoName::new),
            client: self.known_text()?.map(str::to_owned),
            copy: self.known_text()?.map(str::to_owned),
            challenge: self.known_text()?.map(str::to_owned),
        })
    }

    fn event(&mut self) -> Result<ElementEvent, InvalidRow> {
        Ok(match self.number()? {
            CHANGED => ElementEvent::Changed(ChangedEntry {
                kind: EntryChange::from_word(self.text()?).ok_or(InvalidRow::Value)?,
                entry: EntryId(self.number()?),
                path: self.path()?,
                new_path: self.path()?,
                size: self.known()?.map(Bytes),
                pool: self.known_text()?.map(PoolName::new),
                reason: match self.known_text()? {
                    Some(word) => {
                        Some(EntryChangeReason::from_word(word).ok_or(InvalidRow::Value)?)
                    }
                    None => None,
                },
            }),
            REFUSED => ElementEvent::Refused(Refusal {
                method: self.text()?.to_owned(),
                path: self.path()?,
                status: u16::try_from(self.number()?).map_err(|_| InvalidRow::Value)?,
                code: self.text()?.to_owned(),
                detail: self.text()?.to_owned(),
            }),
            GAP => ElementEvent::Gap(LedgerGap {
                from: self.known()?.map(|from| Timestamp(from.cast_signed())),
                cause: GapCause::from_word(self.text()?).ok_or(InvalidRow::Value)?,
                lost: self.known()?,
            }),
            _ => return Err(InvalidRow::Value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> NamespacePath {
        NamespacePath::parse(text).expect("valid")
    }

    /// One of each, with and without what may be unknown.
    fn records() -> Vec<ElementRecord> {
        let origin = Arc::new(RequestOrigin {
            user: Some(UserName::new("alice")),
            vo: Some(VoName::new("atlas")),
            client: Some("192.0.2.1:4711".to_owned()),
            copy: Some("7-1-1".to_owned()),
            challenge: Some("scitag:66".to_owned()),
        });
        let mut events = Vec::new();
        for (place, kind) in EntryChange::ALL.iter().enumerate() {
            events.push(ElementEvent::Changed(ChangedEntry {
                kind: *kind,
                entry: EntryId(u64::MAX - place as u64),
                path: Some(path(&format!("/d/e/f{place} é"))),
                new_path: (*kind == EntryChange::Rename).then(|| path("/g")),
                size: Some(Bytes(u64::MAX)),
                pool: Some(PoolName::new("p1")),
                reason: EntryChangeReason::ALL.get(place).copied(),
            }));
        }
        events.push(ElementEvent::Changed(ChangedEntry {
            kind: EntryChange::Purge,
            entry: EntryId(0),
            path: Some(NamespacePath::root()),
            new_path: None,
            size: None,
            pool: None,
            reason: None,
        }));
        events.push(ElementEvent::Refused(Refusal {
            method: "PUT".to_owned(),
            path: None,
            status: 507,
            code: "pool_full".to_owned(),
            detail: String::new(),
        }));
        for cause in GapCause::ALL {
            events.push(ElementEvent::Gap(LedgerGap {
                from: (cause != GapCause::Rebuilt).then_some(Timestamp(-1)),
                cause,
                lost: (cause == GapCause::Overload).then_some(12),
            }));
        }
        let at = [i64::MIN, i64::MAX, -3, 1_795_241_992_000]
            .into_iter()
            .cycle();
        let origins = [origin, Arc::default()].into_iter().cycle();
        let both = events.into_iter().zip(at.zip(origins));
        both.map(|(event, (at, origin))| ElementRecord {
            at: Timestamp(at),
            origin,
            event,
        })
        .collect()
    }

    #[test]
    fn records_come_back_as_they_were_packed() {
        for records in [records(), records()[..1].to_vec(), Vec::new()] {
            assert_eq!(unpack(&pack(&records)), Ok(records));
        }
    }

    #[test]
    fn removals_by_one_client_in_one_directory_take_few_bytes() {
        let origin = Arc::new(RequestOrigin {
            user: Some(UserName::new("alice")),
            client: Some("192.0.2.1:4711".to_owned()),
            ..RequestOrigin::default()
        });
        let removal = |number: u64| ElementRecord {
            at: Timestamp(1_795_241_992_000 + number.cast_signed()),
            origin: Arc::clone(&origin),
            event: ElementEvent::Changed(ChangedEntry {
                kind: EntryChange::Removal,
                entry: EntryId(1_000_000 + number),
                path: Some(path(&format!("/atlas/rucio/data/file-{number:06}"))),
                new_path: None,
                size: Some(Bytes(1_000_000)),
                pool: Some(PoolName::new("p1")),
                reason: None,
            }),
        };
        let records: Vec<ElementRecord> = (0..16).map(removal).collect();
        let length = pack(&records).len();
        assert!(length < 16 * 36, "{length} bytes");
    }

    #[test]
    fn damaged_bytes_are_an_error_and_never_a_panic() {
        let whole = pack(&records());
        for length in 0..whole.len() {
            assert!(unpack(&whole[..length]).is_err(), "{length}");
        }
        for place in 0..whole.len() {
            for flipped in [1, 0x40, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[place] ^= flipped;
                // Some damage gives other records; most is noticed.
                let _ = unpack(&bytes);
            }
        }
        assert_eq!(unpack(&[2]), Err(InvalidRow::Version));
    }
}
