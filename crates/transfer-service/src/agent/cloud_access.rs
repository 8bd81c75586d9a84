//! The keys and the place by which an object of a cloud storage is reached, and presigned URLs for the other end.
//!
//! The keys stay here; the other end of a third-party copy gets a URL that is good for one method on one object until
//! the attempt has to be over.

use http::Method;
use parking_lot::Mutex;
use penstock_clock::wall_clock;
use penstock_model::{CloudHolder, CloudName};
use penstock_protocol::s3::{Keys, ObjectPlace, RequestSigner};
use std::time::Duration;
use url::Url;

/// How much longer a presigned URL is good than its attempt may take, for clocks that differ.
const LIFETIME_MARGIN: Duration = Duration::from_secs(300);

/// How an object is reached.
pub(super) struct CloudAccess {
    pub(super) keys: Keys,
    pub(super) storage: CloudName,
    pub(super) holder: CloudHolder,
    /// As redirects and regions have moved it.
    pub(super) place: Mutex<ObjectPlace>,
}

impl CloudAccess {
    pub(super) fn place(&self) -> ObjectPlace {
        self.place.lock().clone()
    }

    pub(super) fn with_place<T>(&self, change: impl FnOnce(&mut ObjectPlace) -> T) -> T {
        change(&mut self.place.lock())
    }

    /// Where the object is, without any secret.
    pub(super) fn url(&self) -> Url {
        self.place().url
    }

    /// The same keys for another URL of the same storage.
    pub(super) fn at(&self, url: Url) -> CloudAccess {
        let place = ObjectPlace {
            url,
            ..self.place()
        };
        CloudAccess {
            keys: self.keys.clone(),
            storage: self.storage.clone(),
            holder: self.holder.clone(),
            place: Mutex::new(place),
        }
    }

    /// A URL with which the other end can do `method` on the object: a secret.
    pub(super) fn presigned(&self, method: &Method, attempt: Duration) -> Url {
        let place = self.place();
        let signing = RequestSigner::new(&self.keys, &place.region, wall_clock());
        signing.presign(method, &place.url, attempt + LIFETIME_MARGIN)
    }
}
