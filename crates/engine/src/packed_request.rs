//! What was asked for one file, in as few bytes as possible: most of a million transfers wait, and are looked at again
//! only when they start. URLs lose what their link says, and the destination's what it has in common with the source's.
//!
//! The client's own notes on a file are left out: they are in the journal, and no agent needs them. The form is that of
//! this process and is stored nowhere.

use penstock_model::{
    Activity, Bytes, Checksum, ChecksumAlgorithm, CredentialId, DEFAULT_ACTIVITY, FileUrl, LinkId,
    TapeNotes, TransferId, TransferRequest,
};
use std::sync::Arc;

const HAS_SIZE: u8 = 1;
const HAS_ACTIVITY: u8 = 2;
const HAS_CHECKSUM: u8 = 4;
const HAS_SCITAG: u8 = 8;
const HAS_SOURCE_CREDENTIAL: u8 = 16;
const HAS_DESTINATION_CREDENTIAL: u8 = 32;
const HAS_TAPE: u8 = 64;
/// Which ends have queries with credentials, a byte of its own.
const HAS_QUERIES: u8 = 128;

/// A request for one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PackedRequest(Box<[u8]>);

impl PackedRequest {
    /// Of a request on its link.
    pub(super) fn of(request: &TransferRequest, link: &LinkId) -> PackedRequest {
        let mut out = Writer(Vec::with_capacity(256));
        let queries = [&request.source_query, &request.destination_query];
        let has_queries = queries.iter().any(|query| query.is_some());
        let is_usual = request.activity.as_str() == DEFAULT_ACTIVITY;
        let flags = [
            (request.size.is_some(), HAS_SIZE),
            (!is_usual, HAS_ACTIVITY),
            (request.checksum.is_some(), HAS_CHECKSUM),
            (request.scitag.is_some(), HAS_SCITAG),
            (request.source_credential.is_some(), HAS_SOURCE_CREDENTIAL),
            (
                request.destination_credential.is_some(),
                HAS_DESTINATION_CREDENTIAL,
            ),
            (request.tape.is_some(), HAS_TAPE),
            (has_queries, HAS_QUERIES),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        out.0.push(flags.map(|(_, flag)| flag).sum());
        if let Some(size) = request.size {
            out.number(size.0);
        }
        if !is_usual {
            out.text(request.activity.as_str());
        }
        out.number(u64::from(request.index));
        out.0.push(place_of(request.checksum_algorithm));
        if let Some(checksum) = &request.checksum {
            out.0.push(place_of(checksum.algorithm()));
            out.bytes(&checksum.to_bytes());
        }
        if let Some(scitag) = request.scitag {
            out.number(u64::from(scitag));
        }
        for credential in request.tokens() {
            out.credential(credential.as_str());
        }
        if has_queries {
            for query in queries {
                out.0.push(u8::from(query.is_some()));
                if let Some(query) = query {
                    out.credential(query.as_str());
                }
            }
        }
        if let Some(tape) = &request.tape {
            let notes = serde_json::to_vec(tape).expect("JSON that was read can be written");
            out.bytes(&notes);
        }
        out.url(request.source.as_str(), link.source.as_str(), "");
        out.url(
            request.destination.as_str(),
            link.destination.as_str(),
            request.source.as_str(),
        );
        // Copied, because what is made shorter in its place leaves a gap behind it.
        PackedRequest(Box::from(out.0.as_slice()))
    }

    /// The size that the user says the file has.
    pub(super) fn size(&self) -> Option<Bytes> {
        let mut reader = Reader(&self.0);
        let flags = reader.byte();
        (flags & HAS_SIZE != 0).then(|| Bytes(reader.number()))
    }

    /// The share label.
    pub(super) fn activity(&self) -> Activity {
        let mut reader = Reader(&self.0);
        let flags = reader.byte();
        if flags & HAS_SIZE != 0 {
            reader.number();
        }
        reader.activity(flags)
    }

    /// The request as it was but for the client's notes.
    pub(super) fn request(&self, id: TransferId, link: &LinkId) -> TransferRequest {
        let mut reader = Reader(&self.0);
        let flags = reader.byte();
        let has = |flag: u8| flags & flag != 0;
        let size = has(HAS_SIZE).then(|| Bytes(reader.number()));
        let activity = reader.activity(flags);
        let index = reader.number() as u32;
        let checksum_algorithm = ChecksumAlgorithm::ALL[usize::from(reader.byte())];
        let checksum = has(HAS_CHECKSUM).then(|| {
            let algorithm = ChecksumAlgorithm::ALL[usize::from(reader.byte())];
            let packed = Checksum::from_bytes(algorithm, reader.bytes());
            packed.expect("the bytes are a checksum's")
        });
        let scitag = has(HAS_SCITAG).then(|| reader.number() as u16);
        let source_credential = has(HAS_SOURCE_CREDENTIAL).then(|| reader.credential());
        let destination_credential = has(HAS_DESTINATION_CREDENTIAL).then(|| reader.credential());
        let mut query = || {
            let is_there = has(HAS_QUERIES) && reader.byte() == 1;
            is_there.then(|| reader.credential())
        };
        let (source_query, destination_query) = (query(), query());
        let tape: Option<Arc<TapeNotes>> = has(HAS_TAPE)
            .then(|| serde_json::from_slice(reader.bytes()).expect("what was written can be read"));
        let source = reader.url(link.source.as_str(), "");
        let destination = reader.url(link.destination.as_str(), source.as_str());
        TransferRequest {
            id,
            index,
            source,
            destination,
            size,
            checksum,
            checksum_algorithm,
            activity,
            scitag,
            metadata: Arc::default(),
            source_credential,
            destination_credential,
            source_query,
            destination_query,
            tape,
        }
    }
}

fn place_of(algorithm: ChecksumAlgorithm) -> u8 {
    match algorithm {
        ChecksumAlgorithm::Adler32 => 0,
        ChecksumAlgorithm::Crc32c => 1,
        ChecksumAlgorithm::Md5 => 2,
        ChecksumAlgorithm::Sha256 => 3,
    }
}

/// How many bytes two texts have in common at their ends, whole characters only.
fn common_end(one: &str, other: &str) -> usize {
    let pairs = one.bytes().rev().zip(other.bytes().rev());
    let mut length = pairs.take_while(|(one, other)| one == other).count();
    while !one.is_char_boundary(one.len() - length) {
        length -= 1;
    }
    length
}

struct Writer(Vec<u8>);

impl Writer {
    /// Seven bits a byte, the lowest first.
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Nearly all are 16 hex digits, which are a number of eight bytes.
    fn credential(&mut self, name: &str) {
        match u64::from_str_radix(name, 16) {
            Ok(number) if format!("{number:016x}") == name => {
                self.0.push(1);
                self.0.extend_from_slice(&number.to_le_bytes());
            }
            Ok(_) | Err(_) => {
                self.0.push(0);
                self.text(name);
            }
        }
    }

    /// Without its storage element, if it begins with that as it is written, and without the end of `before`.
    fn url(&mut self, text: &str, storage: &str, before: &str) {
        let rest = text.strip_prefix(storage);
        self.0.push(u8::from(rest.is_some()));
        let rest = rest.unwrap_or(text);
        let common = common_end(rest, before);
        self.number(common as u64);
        self.text(&rest[..rest.len() - common]);
    }
}

/// Reads what a [`Writer`] of this process has written, which is why it takes everything for right.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().expect("written by this process");
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.number() as usize;
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    fn text(&mut self) -> &'a str {
        std::str::from_utf8(self.bytes()).expect("it was text")
    }

    fn activity(&mut self, flags: u8) -> Activity {
        match flags & HAS_ACTIVITY != 0 {
            true => Activity::new(self.text()),
            false => Activity::new(DEFAULT_ACTIVITY),
        }
    }

    fn credential(&mut self) -> CredentialId {
        if self.byte() == 0 {
            return CredentialId::new(self.text());
        }
        let (number, rest) = self.0.split_at(8);
        self.0 = rest;
        let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
        CredentialId::new(format!("{number:016x}"))
    }

    fn url(&mut self, storage: &str, before: &str) -> FileUrl {
        let begins_with_storage = self.byte() == 1;
        let common = self.number() as usize;
        let rest = self.text();
        let begin = if begins_with_storage { storage } else { "" };
        let end = &before[before.len() - common..];
        let url = FileUrl::try_from(format!("{begin}{rest}{end}"));
        url.expect("it was such a URL")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(source: &str, destination: &str) -> TransferRequest {
        let url = |text: &str| FileUrl::parse(text).expect("valid");
        TransferRequest {
            id: TransferId(7),
            index: 3,
            source: url(source),
            destination: url(destination),
            size: None,
            checksum: None,
            checksum_algorithm: ChecksumAlgorithm::Adler32,
            activity: Activity::new(DEFAULT_ACTIVITY),
            scitag: None,
            metadata: Arc::default(),
            source_credential: None,
            destination_credential: None,
            source_query: None,
            destination_query: None,
            tape: None,
        }
    }

    fn check(request: &TransferRequest) {
        let link = request.link();
        let packed = PackedRequest::of(request, &link);
        assert_eq!(packed.request(request.id, &link), *request);
        assert_eq!(packed.size(), request.size);
        assert_eq!(packed.activity(), request.activity);
    }

    #[test]
    fn a_request_comes_back_as_it_was() {
        let mut one = request(
            "davs://se1.example.org:8443/d/a/file.root",
            "https://se2.example.org/e/a/file.root",
        );
        check(&one);
        one.size = Some(Bytes(u64::MAX));
        one.checksum = Checksum::parse("md5:00112233445566778899aabbccddeeff");
        one.checksum_algorithm = ChecksumAlgorithm::Sha256;
        one.activity = Activity::new("Data Consolidation é");
        one.scitag = Some(65535);
        one.source_credential = Some(CredentialId::new("00ff112233445566"));
        one.destination_credential = Some(CredentialId::new("not hex"));
        one.tape = Some(Arc::new(TapeNotes {
            staging: Some(serde_json::json!({"site": {"a": 1}})),
            archive: None,
        }));
        check(&one);
        one.source_credential = None;
        check(&one);
        one.destination_query = Some(CredentialId::new("00ff112233445567"));
        check(&one);
        one.source_query = Some(CredentialId::new("transfer 7 source"));
        check(&one);
    }

    #[test]
    fn a_usual_file_takes_little_more_than_its_path() {
        let path = "/rucio/data18/ab/cd/DAOD_PHYS.12345678._000001.pool.root.1";
        let one = request(
            &format!("davs://webdav.example.org:1094/pnfs{path}"),
            &format!("davs://storage.example.com:443/disk{path}"),
        );
        let packed = PackedRequest::of(&one, &one.link());
        assert!(packed.0.len() < path.len() + 40, "{}", packed.0.len());
    }

    proptest! {
        #[test]
        fn every_pair_of_urls_comes_back(
            source in "[a-zé/%?=&:;A-Z]{1,30}",
            destination in "[a-zé/%?=&:;A-Z]{1,30}",
            end in "[a-zé/]{0,10}",
        ) {
            check(&request(
                &format!("HTTPS://A.example/x{source}{end}"),
                &format!("davs://b.example:1/y{destination}{end}"),
            ));
        }
    }
}
