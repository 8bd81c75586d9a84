//! An OpenAPI document as a page: operations by tag, and the forms that they refer to. It knows what our documents use
//! of OpenAPI 3.1, and shows as JSON what it does not know.

use serde_json::{Map, Value};
use std::fmt::Write;

const METHODS: [&str; 6] = ["get", "put", "post", "delete", "head", "patch"];
const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
<meta name=\"color-scheme\" content=\"light dark\">\
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
code{font-size:.95em}details{margin:.3em 0;border-bottom:1px solid #8884}summary{cursor:pointer;padding:.2em 0}\
dt{font-weight:600;margin-top:1em}dd{margin:0 0 0 1em}ul{margin:.2em 0;padding-left:1.4em}</style>";

/// The page. What the document does not hold is left out.
pub fn of(document: &Value) -> String {
    let mut page = HEAD.to_owned();
    let title = escaped(text(&document["info"]["title"]));
    page += &format!("<title>{title}</title></head><body><h1>{title}</h1>");
    page += &paragraph(&document["info"]["description"]);
    for tag in document["tags"].as_array().into_iter().flatten() {
        let name = escaped(text(&tag["name"]));
        page += &format!("<h2>{name}</h2>{}", paragraph(&tag["description"]));
        for (path, operations) in entries(&document["paths"]) {
            for method in METHODS {
                let operation = &operations[method];
                let tags = operation["tags"].as_array();
                if tags.is_some_and(|tags| tags.contains(&tag["name"])) {
                    page += &operation_of(document, path, method, operation);
                }
            }
        }
    }
    page += "<h2>forms</h2><dl>";
    for (name, schema) in entries(&document["components"]["schemas"]) {
        let name = escaped(name);
        page += &format!("<dt id=\"{name}\">{name}</dt><dd>{}</dd>", form(schema));
    }
    page + "</dl></body></html>"
}

fn operation_of(document: &Value, path: &str, method: &str, operation: &Value) -> String {
    let (method, path) = (method.to_ascii_uppercase(), escaped(path));
    let summary = escaped(text(&operation["summary"]));
    let mut shown = format!("<details><summary><code>{method} {path}</code> {summary}</summary>");
    shown += &paragraph(&operation["description"]);
    let parameters = operation["parameters"].as_array();
    shown += "<ul>";
    for parameter in parameters.into_iter().flatten() {
        let (name, place) = (escaped(text(&parameter["name"])), text(&parameter["in"]));
        let must = if parameter["required"] == true {
            ", required"
        } else {
            ""
        };
        let what = form(&parameter["schema"]);
        let why = inline(text(&parameter["description"]));
        let _ = write!(
            shown,
            "<li><code>{name}</code> ({place}{must}): {what} {why}</li>"
        );
    }
    if !operation["requestBody"].is_null() {
        let _ = write!(
            shown,
            "<li>body: {}</li>",
            content(&operation["requestBody"])
        );
    }
    shown += "</ul><ul>";
    for (status, response) in entries(&operation["responses"]) {
        let told = content(resolved(document, response));
        let _ = write!(shown, "<li><code>{status}</code> {told}</li>");
    }
    shown + "</ul></details>"
}

/// The description of a request or an answer, and the forms that it may have.
fn content(of: &Value) -> String {
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

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let target = value["$ref"]
        .as_str()
        .and_then(|target| target.strip_prefix('#'));
    let found = target.and_then(|pointer| document.pointer(pointer));
    found.unwrap_or(value)
}

/// A schema in words.
fn form(schema: &Value) -> String {
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

fn entries(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn paragraph(value: &Value) -> String {
    match text(value) {
        "" => String::new(),
        words => format!("<p>{}</p>", inline(words)),
    }
}

/// Text with `code` in it.
fn inline(words: &str) -> String {
    let parts = words.split('`').enumerate();
    let shown = parts.map(|(number, part)| match number % 2 {
        1 => format!("<code>{}</code>", escaped(part)),
        _ => escaped(part),
    });
    shown.collect()
}

fn escaped(words: &str) -> String {
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
