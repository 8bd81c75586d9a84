//! Values of JSON objects of others, who write numbers as texts now and then.

use penstock_model::Timestamp;
use penstock_model::observation::Text;
use serde_json::{Map, Value};

/// An object of somebody else.
pub(super) struct Object<'a>(pub(super) &'a Map<String, Value>);

/// Reads a line as an object.
pub(super) fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("it is no JSON object".to_owned()),
        Err(why) => Err(format!("it is no JSON: {why}")),
    }
}

impl<'a> Object<'a> {
    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// A text that is not empty.
    pub(super) fn str(&self, key: &str) -> Option<&'a str> {
        self.0.get(key)?.as_str().filter(|text| !text.is_empty())
    }

    /// The same, to be kept; numbers, too.
    pub(super) fn text(&self, key: &str) -> Option<Text> {
        match self.0.get(key)? {
            Value::String(text) if !text.is_empty() => Some(text.as_str().into()),
            Value::Number(number) => Some(number.to_string().into()),
            _ => None,
        }
    }

    /// A whole number; of a fraction its whole part.
    pub(super) fn signed(&self, key: &str) -> Option<i64> {
        match self.0.get(key)? {
            Value::Number(number) => number.as_i64().or_else(|| number.as_f64().and_then(whole)),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    /// A whole number that is not below zero.
    pub(super) fn unsigned(&self, key: &str) -> Option<u64> {
        match self.0.get(key)? {
            Value::Number(number) if number.is_u64() => number.as_u64(),
            _ => self.signed(key).and_then(|value| u64::try_from(value).ok()),
        }
    }

    /// Seconds with a fraction, as milliseconds.
    pub(super) fn seconds(&self, key: &str) -> Option<i64> {
        let seconds = match self.0.get(key)? {
            Value::Number(number) => number.as_f64()?,
            Value::String(text) => text.trim().parse().ok()?,
            _ => return None,
        };
        whole(seconds * 1000.0)
    }

    /// Milliseconds since 1970; 0 and less stand for no time.
    pub(super) fn time(&self, key: &str) -> Option<Timestamp> {
        self.signed(key).filter(|at| *at > 0).map(Timestamp)
    }

    pub(super) fn truth(&self, key: &str) -> Option<bool> {
        self.0.get(key)?.as_bool()
    }

    pub(super) fn object(&self, key: &str) -> Option<Object<'a>> {
        self.0.get(key)?.as_object().map(Object)
    }

    pub(super) fn list(&self, key: &str) -> &'a [Value] {
        self.0
            .get(key)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }
}

/// A number that is finite and fits.
fn whole(value: f64) -> Option<i64> {
    (value.abs() < 9e18).then_some(value as i64)
}
