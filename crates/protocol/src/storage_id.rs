//! Which storage a server belongs to. A server may have several names and ports, and before anything is removed or replaced
//! somebody must know whether two URLs lead to one file.

use http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// In an answer to `OPTIONS`: the storage, the same at each of its doors and at no other one.
pub const PENSTOCK_STORAGE: HeaderName = HeaderName::from_static("penstock-storage");

/// The storage behind a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageId(pub Uuid);

impl StorageId {
    pub fn header_value(self) -> HeaderValue {
        HeaderValue::from_str(&self.0.to_string()).expect("hexadecimal digits are visible ASCII")
    }

    /// The one that an answer tells; `None`: it tells none that could be compared.
    pub fn told(headers: &HeaderMap) -> Option<StorageId> {
        let text = headers.get(PENSTOCK_STORAGE)?.to_str().ok()?;
        Uuid::parse_str(text.trim()).ok().map(StorageId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood_and_nothing_else() {
        let id = StorageId(Uuid::from_u128(42));
        let headers = HeaderMap::from_iter([(PENSTOCK_STORAGE, id.header_value())]);
        assert_eq!(StorageId::told(&headers), Some(id));
        let other = HeaderValue::from_static("north");
        assert_eq!(
            StorageId::told(&HeaderMap::from_iter([(PENSTOCK_STORAGE, other)])),
            None
        );
        assert_eq!(StorageId::told(&HeaderMap::new()), None);
    }
}
