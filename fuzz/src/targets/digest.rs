//! Checksums in headers: what was understood is written so that it is understood again.

use super::{Target, headers, texts};
use http::HeaderMap;
use penstock_protocol::digest;

pub const TARGET: Target = Target {
    name: "digest",
    check,
    seeds: || {
        texts(&[
            "digest: adler32=03da0195,md5=1B2M2Y8AsgTpgAmY7PhCfg==",
            "digest: SHA-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
            "repr-digest: adler=:A9oBlQ==:, crc32c=:AAAAAA==:",
            "content-md5: 1B2M2Y8AsgTpgAmY7PhCfg",
            "want-digest: md5;q=0.3, adler32;q=1, crc32c",
            "want-repr-digest: sha-256=10, adler=0",
        ])
    },
};

fn check(data: &[u8]) {
    let asked = headers(data);
    assert!(digest::wanted(&asked).len() <= 4 && digest::wanted_repr(&asked).len() <= 4);
    let Ok(sums) = digest::parse(&asked) else {
        return;
    };
    assert!(sums.len() <= 4, "one for each algorithm");
    for (name, value) in [
        ("digest", digest::header_value(&sums)),
        ("repr-digest", digest::repr_header_value(&sums)),
    ] {
        let mut told = HeaderMap::new();
        if !sums.is_empty() {
            told.insert(name, value);
        }
        assert_eq!(digest::parse(&told).as_ref(), Ok(&sums), "{name}");
    }
}
