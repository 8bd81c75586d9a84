//! Values of JSON objects of others, who write numbers as texts now and then.
//!
//! Texts are borrowed from the line: messages have some seventy keys, of which few are wanted.

use penstock_model::Timestamp;
use penstock_model::observation::Text;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;

/// A value of somebody else.
#[derive(Debug)]
pub(super) enum Item<'a> {
    Nothing,
    Truth(bool),
    Signed(i64),
    Unsigned(u64),
    Real(f64),
    Text(Cow<'a, str>),
    List(Vec<Item<'a>>),
    Object(Keys<'a>),
}

/// The keys of an object with their values, as they came.
type Keys<'a> = Vec<(Word<'a>, Item<'a>)>;

/// A key, borrowed where it has no escapes.
#[derive(Debug)]
pub(super) struct Word<'a>(Cow<'a, str>);

struct ItemVisitor;
struct WordVisitor;

impl<'a> Visitor<'a> for ItemVisitor {
    type Value = Item<'a>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Item<'a>, E> {
        Ok(Item::Nothing)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Item<'a>, E> {
        Ok(Item::Truth(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Item<'a>, E> {
        Ok(Item::Signed(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Item<'a>, E> {
        Ok(Item::Unsigned(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Item<'a>, E> {
        Ok(Item::Real(value))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<Item<'a>, E> {
        Ok(Item::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Item<'a>, E> {
        Ok(Item::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut values: A) -> Result<Item<'a>, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = values.next_element()? {
            list.push(value);
        }
        Ok(Item::List(list))
    }

    fn visit_map<A: MapAccess<'a>>(self, mut pairs: A) -> Result<Item<'a>, A::Error> {
        let mut keys = Keys::new();
        while let Some(pair) = pairs.next_entry()? {
            keys.push(pair);
        }
        Ok(Item::Object(keys))
    }
}

impl<'a> Deserialize<'a> for Item<'a> {
    fn deserialize<D: Deserializer<'a>>(json: D) -> Result<Item<'a>, D::Error> {
        json.deserialize_any(ItemVisitor)
    }
}

impl<'a> Visitor<'a> for WordVisitor {
    type Value = Word<'a>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a key")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<Word<'a>, E> {
        Ok(Word(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Word<'a>, E> {
        Ok(Word(Cow::Owned(text.to_owned())))
    }
}

impl<'a> Deserialize<'a> for Word<'a> {
    fn deserialize<D: Deserializer<'a>>(json: D) -> Result<Word<'a>, D::Error> {
        json.deserialize_str(WordVisitor)
    }
}

impl Item<'_> {
    /// A text that is not empty.
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Item::Text(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }
}

/// Reads a line as an object.
pub(super) fn object(line: &[u8]) -> Result<Keys<'_>, String> {
    match serde_json::from_slice(line) {
        Ok(Item::Object(keys)) => Ok(keys),
        Ok(_) => Err("it is no JSON object".to_owned()),
        Err(why) => Err(format!("it is no JSON: {why}")),
    }
}

/// An object of somebody else.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object<'a>(pub(super) &'a [(Word<'a>, Item<'a>)]);

impl<'a> Object<'a> {
    /// Of a key that came twice the last value.
    fn get(&self, key: &str) -> Option<&'a Item<'a>> {
        let mut pairs = self.0.iter().rev();
        pairs.find(|(name, _)| name.0 == key).map(|(_, item)| item)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// A text that is not empty.
    pub(super) fn str(&self, key: &str) -> Option<&'a str> {
        self.get(key)?.as_str()
    }

    /// The same, to be kept; numbers, too.
    pub(super) fn text(&self, key: &str) -> Option<Text> {
        match self.get(key)? {
            Item::Text(text) if !text.is_empty() => Some(Text::from(&**text)),
            Item::Signed(number) => Some(number.to_string().into()),
            Item::Unsigned(number) => Some(number.to_string().into()),
            Item::Real(number) => Some(number.to_string().into()),
            _ => None,
        }
    }

    /// A whole number; of a fraction its whole part.
    pub(super) fn signed(&self, key: &str) -> Option<i64> {
        match self.get(key)? {
            Item::Signed(number) => Some(*number),
            Item::Unsigned(number) => i64::try_from(*number).ok(),
            Item::Real(number) => whole(*number),
            Item::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// A whole number that is not below zero.
    pub(super) fn unsigned(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Item::Unsigned(number) => Some(*number),
            _ => self.signed(key).and_then(|value| u64::try_from(value).ok()),
        }
    }

    /// Seconds with a fraction, as milliseconds.
    pub(super) fn seconds(&self, key: &str) -> Option<i64> {
        let seconds = match self.get(key)? {
            Item::Signed(number) => *number as f64,
            Item::Unsigned(number) => *number as f64,
            Item::Real(number) => *number,
            Item::Text(text) => text.trim().parse().ok()?,
            _ => return None,
        };
        whole(seconds * 1000.0)
    }

    /// Milliseconds since 1970; 0 and less stand for no time.
    pub(super) fn time(&self, key: &str) -> Option<Timestamp> {
        self.signed(key).filter(|at| *at > 0).map(Timestamp)
    }

    pub(super) fn truth(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Item::Truth(value) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn object(&self, key: &str) -> Option<Object<'a>> {
        match self.get(key)? {
            Item::Object(keys) => Some(Object(keys)),
            _ => None,
        }
    }

    pub(super) fn list(&self, key: &str) -> &'a [Item<'a>] {
        match self.get(key) {
            Some(Item::List(items)) => items,
            _ => &[],
        }
    }
}

/// A number that is finite and fits.
fn whole(value: f64) -> Option<i64> {
    (value.abs() < 9e18).then_some(value as i64)
}
