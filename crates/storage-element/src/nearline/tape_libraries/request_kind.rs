//! What the request engine is asked for, by the numbers of requests: each is that of its file, with what it is for in the bits that
//! no file's number has.

use penstock_persistence::namespace::EntryId;
use penstock_tape::request::{FileId, RequestId};

/// What is asked for a file. There is at most one request of each kind for a file at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// To put it on tape.
    Put,
    /// To bring it for who waits for it.
    Get,
    /// To read and compare one of its copies.
    Verification,
    /// To bring it so that it can be written to another tape.
    MoveRead,
    /// To write it there.
    MoveWrite,
}

const KIND_SHIFT: u32 = 60;

impl RequestKind {
    /// In the order of their bits.
    const BITS: [(RequestKind, u64); 5] = [
        (RequestKind::Put, 0),
        (RequestKind::Verification, 1),
        (RequestKind::MoveRead, 2),
        (RequestKind::MoveWrite, 3),
        (RequestKind::Get, 8),
    ];

    pub(super) fn of(self, file: EntryId) -> RequestId {
        let known = RequestKind::BITS.iter().find(|(kind, _)| *kind == self);
        let bits = known.map_or(0, |(_, bits)| *bits);
        RequestId(file.0 | bits << KIND_SHIFT)
    }

    pub(super) fn of_file(self, file: FileId) -> RequestId {
        self.of(EntryId(file.0))
    }

    /// What a request is for, and of which file.
    pub(super) fn parse(request: RequestId) -> (RequestKind, EntryId) {
        let bits = request.0 >> KIND_SHIFT;
        let known = RequestKind::BITS.iter().find(|(_, of)| *of == bits);
        let kind = known.map_or(RequestKind::Put, |(kind, _)| *kind);
        (kind, EntryId(request.0 & ((1 << KIND_SHIFT) - 1)))
    }

    /// Nobody waits for it, and it is asked for again after a restart.
    pub(super) fn is_background(self) -> bool {
        match self {
            RequestKind::Put | RequestKind::Get => false,
            RequestKind::Verification | RequestKind::MoveRead | RequestKind::MoveWrite => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_names_its_file_and_what_it_is_for() {
        for (kind, _) in RequestKind::BITS {
            let file = EntryId(0x0123_4567_89ab_cdef >> 4);
            assert_eq!(RequestKind::parse(kind.of(file)), (kind, file));
        }
    }
}
