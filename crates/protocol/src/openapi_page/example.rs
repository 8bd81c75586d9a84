//! Examples of an operation: how `curl` asks for it, and what may come back. They are made of the examples of the document, and
//! of its forms where it has none.

use super::forms::{entries, resolved, text};
use serde_json::{Map, Value, json};

/// Forms within forms that are shown.
const DEPTH_MAX: usize = 6;
/// What stands where a value of a form is any text.
const ANY_TEXT: &str = "…";

/// A command of a shell that asks for an operation with its required parameters.
pub(super) fn command(document: &Value, method: &str, path: &str, operation: &Value) -> String {
    let mut parts = vec![match method {
        "get" => "curl".to_owned(),
        "head" => "curl --head".to_owned(),
        _ => format!("curl --request {}", method.to_ascii_uppercase()),
    }];
    let security = operation.get("security").or(document.get("security"));
    if security
        .and_then(Value::as_array)
        .is_some_and(|all| !all.is_empty())
    {
        parts.push("--header \"Authorization: Bearer $TOKEN\"".to_owned());
    }
    let (mut target, mut query) = (path.to_owned(), Vec::new());
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    for parameter in parameters.map(|parameter| resolved(document, parameter)) {
        if parameter["required"] != true {
            continue;
        }
        let name = text(&parameter["name"]);
        let value = words(&value_of(document, parameter, &parameter["schema"], 0));
        match text(&parameter["in"]) {
            "path" => target = target.replace(&format!("{{{name}}}"), &value),
            "query" => query.push(format!("{name}={value}")),
            "header" => parts.push(format!("--header {}", quoted(&format!("{name}: {value}")))),
            _ => {}
        }
    }
    parts.extend(body(document, operation));
    if !query.is_empty() {
        target = format!("{target}?{}", query.join("&"));
    }
    parts.push(quoted(&format!("https://HOST:{}{target}", port(document))));
    parts.join(" \\\n  ")
}

/// The options of `curl` that send the body of a request.
fn body(document: &Value, operation: &Value) -> Vec<String> {
    let Some((media_type, media)) = entries(&operation["requestBody"]["content"]).next() else {
        return Vec::new();
    };
    let of_type = format!(
        "--header {}",
        quoted(&format!("Content-Type: {media_type}"))
    );
    let schema = resolved(document, &media["schema"]);
    if schema["format"] == "binary"
        || schema["contentMediaType"].is_string()
        || schema.get("type").is_none()
    {
        return vec![of_type, "--data-binary @FILE".to_owned()];
    }
    match value_of(document, media, schema, 0) {
        Value::String(text) if text == ANY_TEXT => vec![of_type, "--data-binary @FILE".to_owned()],
        Value::Object(fields) if media_type == "application/x-www-form-urlencoded" => fields
            .iter()
            .map(|(name, value)| {
                format!(
                    "--data-urlencode {}",
                    quoted(&format!("{name}={}", words(value)))
                )
            })
            .collect(),
        value => vec![of_type, format!("--data {}", quoted(&words(&value)))],
    }
}

/// The status and the body of an answer when all goes well; `None`: it has none in JSON.
pub(super) fn answer_example(document: &Value, operation: &Value) -> Option<(String, String)> {
    let (status, response) =
        entries(&operation["responses"]).find(|(status, _)| status.starts_with('2'))?;
    let response = resolved(document, response);
    let media = entries(&response["content"]).find(|(media_type, _)| media_type.ends_with("json"));
    let (_, media) = media?;
    let value = value_of(document, media, &media["schema"], 0);
    let shown = serde_json::to_string_pretty(&value).ok()?;
    Some((status.clone(), shown))
}

/// The example that a place of the document gives, or one of its form.
fn value_of(document: &Value, place: &Value, schema: &Value, depth: usize) -> Value {
    match place.get("example") {
        Some(example) => example.clone(),
        None => of_form(document, schema, depth),
    }
}

/// A value of a form.
fn of_form(document: &Value, schema: &Value, depth: usize) -> Value {
    let schema = resolved(document, schema);
    if depth > DEPTH_MAX {
        return json!(ANY_TEXT);
    }
    let given = (schema["examples"].as_array().and_then(|all| all.first()))
        .or(schema.get("example"))
        .or(schema.get("const"))
        .or(schema.get("default"))
        .or(schema["enum"].as_array().and_then(|all| all.first()));
    if let Some(given) = given {
        return given.clone();
    }
    for key in ["oneOf", "anyOf"] {
        if let Some(first) = schema[key].as_array().and_then(|all| all.first()) {
            return of_form(document, first, depth + 1);
        }
    }
    if let Some(all) = schema["allOf"].as_array() {
        let parts = all.iter().map(|part| of_form(document, part, depth + 1));
        let mut whole = Map::new();
        parts
            .filter_map(|part| part.as_object().cloned())
            .for_each(|part| whole.extend(part));
        return Value::Object(whole);
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.first().unwrap_or(&Value::Null),
        kind => kind,
    };
    match text(kind) {
        "object" => object(document, schema, depth),
        "array" => match schema.get("prefixItems").and_then(Value::as_array) {
            Some(items) => items
                .iter()
                .map(|item| of_form(document, item, depth + 1))
                .collect(),
            None => json!([of_form(document, &schema["items"], depth + 1)]),
        },
        "integer" => {
            let least = schema["minimum"].as_i64().unwrap_or_default();
            json!(least.max(1))
        }
        "number" => json!(1.5),
        "boolean" => json!(true),
        "null" => Value::Null,
        _ => match text(&schema["format"]) {
            "uuid" => json!("0199f3f0-5b0e-7c62-a5b2-0c6f0a3a6f11"),
            "uri" => json!("https://se.example.org:8443/data/f1"),
            _ => json!(ANY_TEXT),
        },
    }
}

fn object(document: &Value, schema: &Value, depth: usize) -> Value {
    let properties = entries(&schema["properties"]);
    let mut whole: Map<String, Value> = properties
        .map(|(name, property)| (name.clone(), of_form(document, property, depth + 1)))
        .collect();
    let others = schema
        .get("additionalProperties")
        .filter(|others| others.is_object());
    if let Some(others) = others.filter(|_| whole.is_empty()) {
        let name = of_form(document, &schema["propertyNames"], depth + 1);
        let name = name.as_str().unwrap_or(ANY_TEXT).to_owned();
        whole.insert(name, of_form(document, others, depth + 1));
    }
    Value::Object(whole)
}

/// A value as it stands in an address or as a whole body.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// An argument as a shell reads it.
fn quoted(argument: &str) -> String {
    format!("'{}'", argument.replace('\'', "'\\''"))
}

/// The port that the document's first server tells, as `port 8443` or `, 8446`; `PORT` where it tells none.
fn port(document: &Value) -> String {
    let told = text(&document["servers"][0]["description"]);
    let mut numbers = told.split(|letter: char| !letter.is_ascii_digit());
    let port = numbers.rfind(|number| number.len() >= 2);
    port.unwrap_or("PORT").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_asks_with_what_is_required_and_quotes_what_a_shell_would_read() {
        let document = json!({
            "servers": [{"url": "/", "description": "The port of the transfer service, 8446 by default."}],
            "security": [{"bearer": []}],
            "components": {"parameters": {"Se": {"name": "se", "in": "query", "required": true, "example": "https://a.org",
                "schema": {"type": "string"}}}},
        });
        let operation = json!({
            "parameters": [
                {"$ref": "#/components/parameters/Se"},
                {"name": "page", "in": "query", "schema": {"type": "integer"}},
                {"name": "Upload-Complete", "in": "header", "required": true, "schema": {"enum": ["?0", "?1"]}},
            ],
            "requestBody": {"content": {"application/json": {"schema": {"type": "object"}, "example": {"why": "it's full"}}}},
        });
        let expected = "curl --request POST \\\n  --header \"Authorization: Bearer $TOKEN\" \\\n  \
                        --header 'Upload-Complete: ?0' \\\n  --header 'Content-Type: application/json' \\\n  \
                        --data '{\"why\":\"it'\\''s full\"}' \\\n  'https://HOST:8446/ban/se?se=https://a.org'";
        assert_eq!(command(&document, "post", "/ban/se", &operation), expected);
        let form = json!({"security": [], "requestBody": {"content": {"application/x-www-form-urlencoded": {
            "schema": {"type": "object"}, "example": {"scope": "LIST:/ DOWNLOAD:/"}}}}});
        assert_eq!(
            command(&document, "post", "/token", &form),
            "curl --request POST \\\n  --data-urlencode 'scope=LIST:/ DOWNLOAD:/' \\\n  'https://HOST:8446/token'"
        );
        let public = json!({"security": []});
        assert_eq!(
            command(&document, "get", "/whoami", &public),
            "curl \\\n  'https://HOST:8446/whoami'"
        );
    }

    #[test]
    fn a_form_without_an_example_gives_one() {
        let document = json!({"components": {"schemas": {"Chain": {"type": "object", "properties": {
            "next": {"$ref": "#/components/schemas/Chain"}, "count": {"type": "integer", "minimum": 3},
            "state": {"enum": ["ACTIVE", "FINISHED"]}, "at": {"type": ["number", "null"]}}}}}});
        let schema = json!({"$ref": "#/components/schemas/Chain"});
        let value = of_form(&document, &schema, 0);
        assert_eq!(value["count"], 3);
        assert_eq!(value["state"], "ACTIVE");
        assert_eq!(value["at"], 1.5);
        assert!(value["next"]["next"].is_object(), "and it ends");
        let map = json!({"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": {"type": "boolean"}});
        assert_eq!(of_form(&document, &map, 0), json!({"a": true}));
    }
}
