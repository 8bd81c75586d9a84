//! The signing keys of one issuer in the course of time: a new key is published before it signs, an old one stays
//! published until its last token has ended.
//!
//! What each key does at a moment follows from that moment alone, so that whoever signs and whoever publishes
//! agree without talking to each other. Knows no files: keys are named, not held.

use penstock_model::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thiserror::Error;

/// How long a key is published before it signs: verifiers look at the keys every six hours (WLCG profile 1.3), and
/// a little later when they are slow.
pub const SIGNS_AFTER: Duration = Duration::from_secs(6 * 3600 + 600);
/// Before a key signs that was wanted at once: the site's own services look at the file every two seconds.
pub const SIGNS_SOON: Duration = Duration::from_secs(6);
/// How long a key is published after its last token has ended, because clocks differ.
const KEPT_LONGER: Duration = Duration::from_secs(3600);
/// Keys of one issuer.
const KEYS_MAX: usize = 16;
/// The version of the file.
const VERSION: u32 = 1;

/// The keys, in the order in which they sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRing {
    version: u32,
    keys: Vec<RingKey>,
}

/// One key. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingKey {
    /// Its name in tokens and in the key set.
    pub kid: String,
    /// The file with the private key, beside the ring's.
    pub file: String,
    /// Since when it is published.
    pub published: Timestamp,
    /// From when on it signs, until the next one does.
    pub signs_from: Timestamp,
    /// When the last of its tokens ends, as far as any was made.
    pub tokens_until: Timestamp,
}

/// What a key is good for at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Published, so that verifiers know it when it begins to sign.
    Coming,
    Signing,
    /// Signs no more; its tokens still count.
    Retired,
    /// Nothing needs it any more.
    Ended,
}

impl KeyState {
    /// As it is written in reports.
    pub fn name(self) -> &'static str {
        match self {
            KeyState::Coming => "coming",
            KeyState::Signing => "signing",
            KeyState::Retired => "retired",
            KeyState::Ended => "ended",
        }
    }
}

/// Why a ring cannot be used or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RingError {
    /// The file is no ring of a version that is known.
    #[error("it is not a list of signing keys: {0}")]
    Content(String),
    /// There is one that has not begun to sign.
    #[error("the key {kid} is published already and signs from {}Z on; `--now` makes it sign at once", .from.to_fts())]
    AlreadyComing {
        kid: String,
        /// When it begins.
        from: Timestamp,
    },
    /// More keys than anybody needs.
    #[error("there are {KEYS_MAX} keys whose tokens still count; wait until the oldest have ended")]
    TooMany,
}

impl KeyRing {
    /// A ring of one key that signs from now on, or has signed always.
    pub fn of(key: RingKey) -> KeyRing {
        KeyRing {
            version: VERSION,
            keys: vec![key],
        }
    }

    /// Reads what [`KeyRing::to_text`] wrote.
    pub fn parse(text: &str) -> Result<KeyRing, RingError> {
        let content = |why: &dyn std::fmt::Display| RingError::Content(why.to_string());
        let ring: KeyRing = serde_json::from_str(text).map_err(|why| content(&why))?;
        if ring.version != VERSION {
            return Err(content(&format!("version {} is not known", ring.version)));
        }
        let named = |key: &RingKey| !key.file.is_empty() && !key.file.contains('/');
        match ring.keys.len() {
            0 => Err(content(&"it holds no key")),
            1..=KEYS_MAX if ring.keys.iter().all(named) => Ok(ring),
            1..=KEYS_MAX => Err(content(&"a key's file is not beside it")),
            _ => Err(content(&"it holds too many keys")),
        }
    }

    /// As the file holds it.
    pub fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self).expect("plain data serialises");
        text + "\n"
    }

    /// All keys, in the order in which they sign.
    pub fn keys(&self) -> &[RingKey] {
        &self.keys
    }

    /// The key that signs at this moment: the last one that has begun, or the first when clocks stepped back.
    pub fn signing(&self, now: Timestamp) -> &RingKey {
        &self.keys[self.signing_at(now)]
    }

    fn signing_at(&self, now: Timestamp) -> usize {
        let begun = self.keys.iter().rposition(|key| key.signs_from <= now);
        begun.unwrap_or(0)
    }

    /// What each key is good for.
    pub fn states(&self, now: Timestamp) -> Vec<(&RingKey, KeyState)> {
        let signing = self.signing_at(now);
        let state = |(at, key): (usize, &RingKey)| match at {
            at if at > signing => KeyState::Coming,
            at if at == signing => KeyState::Signing,
            _ if now < key.tokens_until + KEPT_LONGER => KeyState::Retired,
            _ => KeyState::Ended,
        };
        let states: Vec<KeyState> = self.keys.iter().enumerate().map(state).collect();
        self.keys.iter().zip(states).collect()
    }

    /// The keys that verifiers must know.
    pub fn published(&self, now: Timestamp) -> impl Iterator<Item = &RingKey> {
        let states = self.states(now).into_iter();
        let needed = states.filter(|(_, state)| *state != KeyState::Ended);
        needed.map(|(key, _)| key)
    }

    /// Adds a key that is published from now on and signs later. Errors: one is coming already, or there are
    /// too many.
    pub fn add(&mut self, key: RingKey, now: Timestamp) -> Result<(), RingError> {
        if let Some(coming) = self.coming(now) {
            let (kid, from) = (coming.kid.clone(), coming.signs_from);
            return Err(RingError::AlreadyComing { kid, from });
        }
        if self.keys.len() >= KEYS_MAX {
            return Err(RingError::TooMany);
        }
        self.keys.push(key);
        Ok(())
    }

    /// The key that has not begun to sign.
    pub fn coming(&self, now: Timestamp) -> Option<&RingKey> {
        self.keys.get(self.signing_at(now) + 1)
    }

    /// Makes the coming key sign from `from` on, when that is earlier. False when there is none.
    pub fn hasten(&mut self, now: Timestamp, from: Timestamp) -> bool {
        let next = self.signing_at(now) + 1;
        let Some(key) = self.keys.get_mut(next) else {
            return false;
        };
        key.signs_from = key.signs_from.min(from);
        true
    }

    /// Remembers that a key signed a token that ends then. True when that was not known.
    pub fn note_token(&mut self, kid: &str, ends: Timestamp) -> bool {
        let signer = self.keys.iter_mut().find(|key| key.kid == kid);
        match signer {
            Some(key) if key.tokens_until < ends => {
                key.tokens_until = ends;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Takes back what was recorded of tokens that are not believed for their length: a key that signs no more is kept
    /// for as long as tokens may live, whatever it has signed.
    pub fn bound(&mut self, life_max: Duration) {
        let followed = self.keys.iter().skip(1).map(|next| next.signs_from);
        let ends: Vec<Timestamp> = followed.map(|retired| retired + life_max).collect();
        for (key, end) in self.keys.iter_mut().zip(ends) {
            key.tokens_until = key.tokens_until.min(end);
        }
    }

    /// Takes out the keys that nothing needs any more.
    pub fn drop_ended(&mut self, now: Timestamp) -> Vec<RingKey> {
        let ended: Vec<RingKey> = self
            .states(now)
            .into_iter()
            .filter(|(_, state)| *state == KeyState::Ended)
            .map(|(key, _)| key.clone())
            .collect();
        self.keys.retain(|key| !ended.contains(key));
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_241_992_000);
    const HOUR: Duration = Duration::from_secs(3600);

    fn key(name: &str, signs_from: Timestamp) -> RingKey {
        RingKey {
            kid: name.to_owned(),
            file: format!("{name}.pem"),
            published: NOW,
            signs_from,
            tokens_until: NOW,
        }
    }

    fn check(ring: &KeyRing, hours: u32, expected: &str) {
        let now = NOW + HOUR * hours;
        let states: Vec<String> = ring
            .states(now)
            .iter()
            .map(|(key, state)| format!("{} {}", key.kid, state.name()))
            .collect();
        assert_eq!(states.join(", "), expected, "after {hours} h");
    }

    #[test]
    fn a_key_is_published_before_it_signs_and_after_it_has_signed() {
        let mut ring = KeyRing::of(key("old", Timestamp(0)));
        ring.add(key("new", NOW + SIGNS_AFTER), NOW).expect("added");
        assert!(ring.note_token("old", NOW + HOUR * 30));
        assert!(!ring.note_token("old", NOW + HOUR * 20), "known");
        check(&ring, 0, "old signing, new coming");
        check(&ring, 6, "old signing, new coming");
        check(&ring, 7, "old retired, new signing");
        check(&ring, 30, "old retired, new signing");
        check(&ring, 31, "old ended, new signing");
        assert_eq!(ring.published(NOW + HOUR * 31).count(), 1);
        assert_eq!(ring.drop_ended(NOW + HOUR * 30), []);
        assert_eq!(ring.drop_ended(NOW + HOUR * 31)[0].kid, "old");
        check(&ring, 31, "new signing");
    }

    #[test]
    fn a_second_key_comes_only_when_the_first_has_begun_to_sign() {
        let mut ring = KeyRing::of(key("a", Timestamp(0)));
        assert!(!ring.hasten(NOW, NOW), "none is coming");
        ring.add(key("b", NOW + SIGNS_AFTER), NOW).expect("added");
        let refused = ring.add(key("c", NOW + SIGNS_AFTER), NOW);
        assert!(matches!(refused, Err(RingError::AlreadyComing { .. })));
        assert!(ring.hasten(NOW, NOW + SIGNS_SOON));
        check(&ring, 0, "a signing, b coming");
        check(&ring, 1, "a ended, b signing");
        ring.add(key("c", NOW + HOUR * 9), NOW + HOUR)
            .expect("added");
        assert_eq!(ring.signing(NOW + HOUR * 2).kid, "b");
        assert_eq!(
            ring.signing(Timestamp(-1)).kid,
            "a",
            "a clock that stepped back"
        );
    }

    #[test]
    fn one_token_for_years_does_not_keep_a_key_for_years() {
        let mut ring = KeyRing::of(key("old", Timestamp(0)));
        ring.add(key("new", NOW + SIGNS_SOON), NOW).expect("added");
        assert!(ring.note_token("old", NOW + HOUR * 24 * 3650));
        assert!(ring.note_token("new", NOW + HOUR * 24 * 3650));
        check(&ring, 24 * 40, "old retired, new signing");
        ring.bound(HOUR * 24 * 30);
        check(&ring, 24 * 30, "old retired, new signing");
        check(&ring, 24 * 31, "old ended, new signing");
        assert_eq!(
            ring.keys()[1].tokens_until,
            NOW + HOUR * 24 * 3650,
            "it signs still"
        );
    }

    #[test]
    fn what_is_no_ring_is_refused() {
        let good = KeyRing::of(key("a", NOW));
        assert_eq!(KeyRing::parse(&good.to_text()), Ok(good.clone()));
        let text = good.to_text();
        for bad in [
            String::new(),
            "[]".to_owned(),
            text.replace("\"version\": 1", "\"version\": 2"),
            text.replace("a.pem", "../a.pem"),
            r#"{"version": 1, "keys": []}"#.to_owned(),
        ] {
            assert!(KeyRing::parse(&bad).is_err(), "{bad}");
        }
    }
}
