//! JSON Web Signatures (RFC 7515) by OpenSSL, which does all cryptography of this program: the two algorithms of the WLCG
//! profile, RS256 and ES256 (RFC 7518 §3.3, §3.4).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use openssl::bn::{BigNum, BigNumContext};
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private, Public};
use openssl::rsa::Rsa;
use openssl::sign::{Signer, Verifier};

/// Bytes of a coordinate of P-256, and of each half of an ES256 signature.
const P256_BYTES: usize = 32;
/// RFC 7518 §3.3: 2048 bits or more. The upper bound keeps a verification cheap.
const RSA_MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
const RSA_EXPONENT_BYTES: std::ops::RangeInclusive<usize> = 1..=8;

/// How a token may be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Es256,
}

impl Algorithm {
    /// By its name in tokens and keys; `none`, HMAC and all others are not known.
    pub(super) fn named(name: &str) -> Option<Algorithm> {
        [Algorithm::Rs256, Algorithm::Es256]
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Algorithm::Rs256 => "RS256",
            Algorithm::Es256 => "ES256",
        }
    }
}

/// A key that may verify signatures, with the only algorithm it is good for.
#[derive(Clone)]
pub(super) struct VerifyingKey {
    pub(super) algorithm: Algorithm,
    key: PKey<Public>,
}

impl VerifyingKey {
    /// Modulus and exponent, big-endian. `None`: too short, too long, or no RSA key.
    pub(super) fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<VerifyingKey> {
        let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
        let modulus = &modulus[zeros..];
        let fits = RSA_MODULUS_BYTES.contains(&modulus.len())
            && RSA_EXPONENT_BYTES.contains(&exponent.len());
        if !fits {
            return None;
        }
        let (modulus, exponent) = (number(modulus)?, number(exponent)?);
        // RFC 8017 §3.1. With an exponent of 1 everything would be its own signature.
        let is_exponent = exponent.is_bit_set(0) && exponent.num_bits() > 1;
        if !is_exponent || !modulus.is_bit_set(0) {
            return None;
        }
        let key = Rsa::from_public_components(modulus, exponent).ok()?;
        Some(VerifyingKey {
            algorithm: Algorithm::Rs256,
            key: PKey::from_rsa(key).ok()?,
        })
    }

    /// The coordinates of a point of P-256. `None`: it is not on the curve.
    pub(super) fn p256(x: &[u8], y: &[u8]) -> Option<VerifyingKey> {
        if x.len() != P256_BYTES || y.len() != P256_BYTES {
            return None;
        }
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).ok()?;
        let (x, y) = (number(x)?, number(y)?);
        let key = EcKey::from_public_key_affine_coordinates(&group, &x, &y).ok()?;
        key.check_key().ok()?;
        Some(VerifyingKey {
            algorithm: Algorithm::Es256,
            key: PKey::from_ec_key(key).ok()?,
        })
    }

    /// Whether the owner of the key has signed this text.
    pub(super) fn has_signed(&self, text: &[u8], signature: &str) -> bool {
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else {
            return false;
        };
        match self.algorithm {
            Algorithm::Rs256 => self.fits(text, &signature),
            Algorithm::Es256 => in_der(&signature).is_some_and(|der| self.fits(text, &der)),
        }
    }

    fn fits(&self, text: &[u8], signature: &[u8]) -> bool {
        let verified = Verifier::new(MessageDigest::sha256(), &self.key)
            .and_then(|mut verifier| verifier.verify_oneshot(signature, text));
        // An error is a signature that cannot be one.
        matches!(verified, Ok(true))
    }
}

/// RFC 7518 §3.4: both numbers of the signature, one after the other, each of the length of the curve's order.
pub(super) fn sign_es256(key: &PKey<Private>, text: &[u8]) -> Result<String, ErrorStack> {
    let mut signer = Signer::new(MessageDigest::sha256(), key)?;
    let signature = EcdsaSig::from_der(&signer.sign_oneshot_to_vec(text)?)?;
    let half = |number: &openssl::bn::BigNumRef| number.to_vec_padded(P256_BYTES as i32);
    let both = [half(signature.r())?, half(signature.s())?].concat();
    Ok(URL_SAFE_NO_PAD.encode(both))
}

/// The coordinates of a P-256 key's point, as a JWK has them (RFC 7518 §6.2.1).
pub(super) fn coordinates(key: &EcKey<Private>) -> Result<[String; 2], ErrorStack> {
    let (mut x, mut y) = (BigNum::new()?, BigNum::new()?);
    let mut context = BigNumContext::new()?;
    key.public_key()
        .affine_coordinates(key.group(), &mut x, &mut y, &mut context)?;
    let text = |number: &BigNum| {
        let bytes = number.to_vec_padded(P256_BYTES as i32)?;
        Ok::<_, ErrorStack>(URL_SAFE_NO_PAD.encode(bytes))
    };
    Ok([text(&x)?, text(&y)?])
}

fn in_der(signature: &[u8]) -> Option<Vec<u8>> {
    if signature.len() != 2 * P256_BYTES {
        return None;
    }
    let (r, s) = signature.split_at(P256_BYTES);
    let signature = EcdsaSig::from_private_components(number(r)?, number(s)?).ok()?;
    signature.to_der().ok()
}

fn number(bytes: &[u8]) -> Option<BigNum> {
    BigNum::from_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).expect("base64url")
    }

    /// RFC 7515 §A.3.
    const SIGNED: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const SIGNATURE: &str =
        "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
    const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

    #[test]
    fn the_signature_of_the_standard_is_verified_and_no_other() {
        let key = VerifyingKey::p256(&bytes(X), &bytes(Y)).expect("a key");
        assert!(key.has_signed(SIGNED.as_bytes(), SIGNATURE));
        assert!(!key.has_signed(&SIGNED.as_bytes()[1..], SIGNATURE));
        // Zeros (which some libraries once took for anything), one byte short or long, padded, DER, nothing.
        let zeros = URL_SAFE_NO_PAD.encode([0; 64]);
        let short = URL_SAFE_NO_PAD.encode(&bytes(SIGNATURE)[1..]);
        let long = URL_SAFE_NO_PAD.encode([bytes(SIGNATURE), vec![0]].concat());
        let der = URL_SAFE_NO_PAD.encode(in_der(&bytes(SIGNATURE)).expect("numbers"));
        let padded = format!("{SIGNATURE}==");
        for bad in [&zeros, &short, &long, &der, &padded, ""] {
            assert!(!key.has_signed(SIGNED.as_bytes(), bad), "{bad}");
        }
    }

    #[test]
    fn what_is_no_key_of_the_profile_is_not_taken() {
        let (x, y) = (bytes(X), bytes(Y));
        assert!(VerifyingKey::p256(&y, &x).is_none(), "not on the curve");
        assert!(VerifyingKey::p256(&[0; 32], &[0; 32]).is_none());
        let modulus = Rsa::generate(2048).expect("a key").n().to_vec();
        assert!(VerifyingKey::rsa(&modulus, &[1, 0, 1]).is_some());
        assert!(VerifyingKey::rsa(&[&[0], &modulus[..]].concat(), &[1, 0, 1]).is_some());
        for exponent in [&[][..], &[0], &[1], &[2], &[0, 1], &[0; 9]] {
            assert!(
                VerifyingKey::rsa(&modulus, exponent).is_none(),
                "{exponent:?}"
            );
        }
        assert!(
            VerifyingKey::rsa(&modulus[1..], &[3]).is_none(),
            "too short"
        );
        assert!(VerifyingKey::rsa(&[0xff; 1025], &[3]).is_none(), "too long");
    }
}
