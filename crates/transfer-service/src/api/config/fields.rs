//! The fields of a request's JSON object: each is taken once, with its type checked, and what is left is unknown.
//!
//! Numbers and booleans may come as text, as FTS lets them.

use super::bad_request;
use crate::api::query::is_plain_host;
use crate::api::{ApiError, wire};
use penstock_model::{ANY, Rate, Slots, StorageId};
use serde_json::{Map, Value};
use url::Url;

/// Characters of a name at most: FTS's columns are as wide.
pub(super) const NAME_CHARS_MAX: usize = 255;
/// Transfers that anybody could want at once.
const SLOTS_MAX: u32 = 100_000;

/// FTS's unit of throughput.
const MIB: f64 = 1024.0 * 1024.0;

/// A rate as FTS writes it.
pub(super) fn throughput(rate: Rate) -> f64 {
    rate.0 as f64 / MIB
}

/// What is left of an object.
#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// Whatever its content type says, the body is JSON: `curl -d` calls it a form.
    pub(super) fn parse(bytes: &[u8]) -> Result<Fields, ApiError> {
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(Fields(fields)),
            Ok(_) => Err(bad_request("the body must be a JSON object")),
            Err(why) => Err(bad_request(format!("the body is not valid JSON: {why}"))),
        }
    }

    pub(super) fn of(value: Value) -> Result<Fields, ApiError> {
        match value {
            Value::Object(fields) => Ok(Fields(fields)),
            _ => Err(bad_request("Malformed configuration")),
        }
    }

    pub(super) fn given(fields: impl IntoIterator<Item = (String, Value)>) -> Fields {
        Fields(fields.into_iter().collect())
    }

    /// All that is left.
    pub(super) fn into_each(self) -> impl Iterator<Item = (String, Value)> {
        self.0.into_iter()
    }

    /// A field as it came; `None`: not there.
    pub(super) fn raw(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// A text that is not empty; null and the empty text count as not there.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        Ok(self.text_or_null(name)?.flatten())
    }

    /// The same, but null and the empty text are told from a field that is not there.
    pub(super) fn text_or_null(&mut self, name: &str) -> Result<Option<Option<String>>, ApiError> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(Value::String(text)) if text.is_empty() => Ok(Some(None)),
            Some(Value::String(text)) => {
                let plain = !text.chars().any(char::is_control);
                match plain && text.chars().count() <= NAME_CHARS_MAX {
                    true => Ok(Some(Some(text))),
                    false => Err(bad_request(format!(
                        "Field {name} may have {NAME_CHARS_MAX} characters, and none that cannot be shown"
                    ))),
                }
            }
            Some(_) => Err(wrong_type(name, "str")),
        }
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Ok(Some(true)),
                "false" | "no" | "off" => Ok(Some(false)),
                _ => Err(wrong_type(name, "bool")),
            },
            Some(_) => Err(wrong_type(name, "bool")),
        }
    }

    /// A number of transfers. Null counts as not there.
    pub(super) fn slots(&mut self, name: &str) -> Result<Option<Slots>, ApiError> {
        Ok(self.slots_or_null(name)?.flatten())
    }

    /// The same, but null is told from a field that is not there.
    pub(super) fn slots_or_null(&mut self, name: &str) -> Result<Option<Option<Slots>>, ApiError> {
        let number = match self.integer_or_null(name)? {
            Some(Some(number)) => number,
            Some(None) => return Ok(Some(None)),
            None => return Ok(None),
        };
        match u32::try_from(number) {
            Ok(slots @ 1..=SLOTS_MAX) => Ok(Some(Some(Slots(slots)))),
            _ => Err(bad_request(format!(
                "Field {name} is {number}; it may be 1 to {SLOTS_MAX}, or null for no limit of its own. To stop \
                 all transfers of a storage element, ban it (/ban/se)"
            ))),
        }
    }

    /// A number from 0 to `max`; null is told from a field that is not there.
    pub(super) fn number_or_null(
        &mut self,
        name: &str,
        max: u32,
    ) -> Result<Option<Option<u32>>, ApiError> {
        let Some(value) = self.integer_or_null(name)? else {
            return Ok(None);
        };
        let number = value.map(|number| match u32::try_from(number) {
            Ok(small) if small <= max => Ok(small),
            _ => Err(bad_request(format!(
                "Field {name} is {number}; it may be 0 to {max}"
            ))),
        });
        Ok(Some(number.transpose()?))
    }

    /// Bytes per second in FTS's unit, which it calls MB/s. Null and 0 take it back.
    pub(super) fn throughput_or_null(
        &mut self,
        name: &str,
    ) -> Result<Option<Option<Rate>>, ApiError> {
        /// More than any machine has.
        const MOST: f64 = 1e9;
        let number = match self.0.remove(name) {
            None => return Ok(None),
            Some(Value::Null) => return Ok(Some(None)),
            Some(value) => value.as_f64(),
        };
        match number.filter(|number| (0.0..=MOST).contains(number)) {
            None => Err(bad_request(format!("'{name}' must be a number of MB/s"))),
            Some(0.0) => Ok(Some(None)),
            Some(number) => Ok(Some(Some(Rate(((number * MIB) as u64).max(1))))),
        }
    }

    fn integer_or_null(&mut self, name: &str) -> Result<Option<Option<i64>>, ApiError> {
        let number = match self.0.remove(name) {
            None => return Ok(None),
            Some(Value::Null) => return Ok(Some(None)),
            Some(Value::Number(number)) => wire::whole(&number),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        match number {
            Some(number) => Ok(Some(Some(number))),
            None => Err(wrong_type(name, "int")),
        }
    }

    /// A storage element, or `*`.
    pub(super) fn storage(&mut self, name: &str) -> Result<Option<StorageId>, ApiError> {
        self.text(name)?.map(|text| storage(&text)).transpose()
    }

    /// A field of FTS that means something that this service does not do. What stands for "off" is let pass.
    pub(super) fn not_offered(&mut self, name: &str, off: &[Value]) -> Result<(), ApiError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(()),
            Some(value) if off.contains(&value) => Ok(()),
            // FTS's client shows the text of a 400, but not of a 501.
            Some(value) => Err(bad_request(format!(
                "{name} = {value} is not offered by this service yet, so nothing was set; leave it out"
            ))),
        }
    }

    /// Whatever was not taken is unknown.
    pub(super) fn end(self) -> Result<(), ApiError> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(bad_request(format!("Field {name} unknown"))),
        }
    }
}

fn wrong_type(name: &str, expected: &str) -> ApiError {
    bad_request(format!("Field {name} is expected to be {expected}"))
}

/// A storage element as FTS names it: scheme and host, without port and path; or `*`.
pub(super) fn storage(text: &str) -> Result<StorageId, ApiError> {
    if text == ANY {
        return Ok(StorageId::new(ANY));
    }
    let teach = || {
        bad_request(format!(
            "'{text}' is not a storage element: write its scheme and host without port, such as \
             https://se.example.org, or * for all"
        ))
    };
    let url = Url::parse(text.trim_end_matches('/')).map_err(|_| teach())?;
    let plain = text.chars().count() <= NAME_CHARS_MAX
        && url.port().is_none()
        && matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    match url.host_str() {
        Some(host) if plain && is_plain_host(host) => {
            let host = host.to_ascii_lowercase();
            Ok(StorageId::new(format!("{}://{host}", url.scheme())))
        }
        _ => Err(teach()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> Fields {
        Fields::of(value).expect("an object")
    }

    #[test]
    fn a_storage_element_is_named_by_scheme_and_host() {
        let named = |text: &str| storage(text).map(|storage| storage.to_string()).ok();
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(named(text).as_deref(), expected, "{text}");
        };
        check("*", Some("*"));
        check("https://SE.example.org", Some("https://se.example.org"));
        check("davs://se.example.org/", Some("davs://se.example.org"));
        check("root://[::1]", Some("root://[::1]"));
        check("https://se.example.org:8443", None);
        check("https://se.example.org/data", None);
        check("https://user@se.example.org", None);
        check("https://se.example.org?x", None);
        check("se.example.org", None);
        check("file:///x", None);
        check("root://*.example.org", None);
        check("s3://bücket", None);
        check("", None);
    }

    #[test]
    fn numbers_may_come_as_text_and_must_be_a_number_of_transfers() {
        let mut given = fields(
            json!({"a": 5.0, "b": " 6 ", "c": null, "d": 0, "e": -1, "f": 1.5, "g": "x",
            "h": 4_294_967_297_u64, "i": true}),
        );
        assert_eq!(given.slots("a").expect("valid"), Some(Slots(5)));
        assert_eq!(given.slots("b").expect("valid"), Some(Slots(6)));
        assert_eq!(given.slots_or_null("c").expect("valid"), Some(None));
        assert_eq!(given.slots_or_null("z").expect("valid"), None);
        for name in ["d", "e", "f", "g", "h", "i"] {
            assert!(given.slots(name).is_err(), "{name}");
        }
        given.end().expect("all were taken");
    }

    #[test]
    fn what_this_service_does_not_do_is_refused_unless_it_is_off() {
        let off = [json!(0), json!(false)];
        for value in [json!(null), json!(0), json!(false)] {
            fields(json!({"udt": value}))
                .not_offered("udt", &off)
                .expect("off");
        }
        let refused = fields(json!({"udt": 1}))
            .not_offered("udt", &off)
            .expect_err("on");
        assert!(
            refused.problem.message.contains("is not offered"),
            "{}",
            refused.problem.message
        );
    }

    #[test]
    fn a_field_that_nobody_took_is_named() {
        let unknown = fields(json!({"max_activ": 5})).end().expect_err("misspelt");
        assert_eq!(unknown.problem.message, "Field max_activ unknown");
    }
}
