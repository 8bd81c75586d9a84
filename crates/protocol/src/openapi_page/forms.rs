//! The forms of an OpenAPI document in words.

use serde_json::{Map, Value};
use std::fmt::Write;

/// The description of a request or an answer, and the forms that it may have.
pub(super) fn content(of: &Value) -> String {
    let mut shown = inline(text(&of["description"]));
    for (media_type, media) in entries(&of["content"]) {
        let media_type = escaped(media_type);
        let _ = write!(
            shown,
            " <code>{media_type}</code>: {}",
            form(&media["schema"])
        );
    }
    shown
}

pub(super) fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let target = value["$ref"]
        .as_str()
        .and_then(|target| target.strip_prefix('#'));
    let found = target.and_then(|pointer| document.pointer(pointer));
    found.unwrap_or(value)
}

/// A schema in words.
pub(super) fn form(schema: &Value) -> String {
    let why = inline(text(&schema["description"]));
    let what = match schema {
        Value::Object(keys) => what(keys),
        _ => "anything".to_owned(),
    };
    match why.is_empty() {
        true => what,
        false => format!("{what}. {why}"),
    }
}

fn what(keys: &Map<String, Value>) -> String {
    let listed = |list: &Value, between: &str| {
        let forms = list.as_array().into_iter().flatten().map(form);
        forms.collect::<Vec<_>>().join(between)
    };
    let mut parts = Vec::new();
    if let Some(target) = keys.get("$ref") {
        let name = escaped(text(target).rsplit('/').next().unwrap_or_default());
        parts.push(format!("<a href=\"#{name}\">{name}</a>"));
    }
    for (key, between) in [("allOf", " and "), ("oneOf", " or "), ("anyOf", " or ")] {
        if let Some(list) = keys.get(key) {
            parts.push(listed(list, between));
        }
    }
    match keys.get("type") {
        Some(Value::String(kind)) => parts.push(escaped(kind)),
        Some(Value::Array(kinds)) => {
            let kinds: Vec<String> = kinds.iter().map(|kind| escaped(text(kind))).collect();
            parts.push(kinds.join(" or "));
        }
        _ => {}
    }
    for key in [
        "const",
        "enum",
        "pattern",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "maxItems",
    ] {
        if let Some(value) = keys.get(key) {
            parts.push(format!(
                "{key} <code>{}</code>",
                escaped(&value.to_string())
            ));
        }
    }
    if let Some(items) = keys.get("items") {
        parts.push(format!("of {}", form(items)));
    }
    if let Some(others) = keys
        .get("additionalProperties")
        .filter(|others| others.is_object())
    {
        parts.push(format!("of {}", form(others)));
    }
    let mut shown = if parts.is_empty() {
        "anything".to_owned()
    } else {
        parts.join(" ")
    };
    if let Some(properties) = keys.get("properties") {
        shown += "<ul>";
        for (name, property) in entries(properties) {
            let _ = write!(
                shown,
                "<li><code>{}</code>: {}</li>",
                escaped(name),
                form(property)
            );
        }
        shown += "</ul>";
    }
    shown
}

pub(super) fn entries(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Text with `code` in it.
pub(super) fn inline(words: &str) -> String {
    let parts = words.split('`').enumerate();
    let shown = parts.map(|(number, part)| match number % 2 {
        1 => format!("<code>{}</code>", escaped(part)),
        _ => escaped(part),
    });
    shown.collect()
}

pub(super) fn escaped(words: &str) -> String {
    let mut shown = String::with_capacity(words.len());
    for letter in words.chars() {
        match letter {
            '&' => shown += "&amp;",
            '<' => shown += "&lt;",
            '>' => shown += "&gt;",
            '"' => shown += "&quot;",
            other => shown.push(other),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_form_is_told_in_words() {
        let check = |schema: Value, expected: &str| assert_eq!(form(&schema), expected);
        check(json!({}), "anything");
        check(json!({"type": ["string", "null"]}), "string or null");
        check(
            json!({"type": "array", "items": {"$ref": "#/components/schemas/Job"}}),
            "array of <a href=\"#Job\">Job</a>",
        );
        check(
            json!({"type": "string", "pattern": "^<a>", "description": "As `a<b`."}),
            "string pattern <code>&quot;^&lt;a&gt;&quot;</code>. As <code>a&lt;b</code>.",
        );
        check(
            json!({"type": "object", "properties": {"a": {"type": "integer"}}}),
            "object<ul><li><code>a</code>: integer</li></ul>",
        );
    }
}
