//! `GET /api-docs/schema/submit`: the JSON schema of a submission, as FTS publishes one for programs that make them.

use axum::Json;
use penstock_model::Selection;
use serde_json::{Value, json};

/// The schema. It tells nothing that is not in the handbook, so everybody may read it.
pub(super) async fn show() -> Json<Value> {
    Json(schema())
}

fn or_null(mut schema: Value) -> Value {
    if let Some(kind) = schema.get("type").cloned() {
        let mut kinds = match kind {
            Value::Array(kinds) => kinds,
            one => vec![one],
        };
        kinds.push(json!("null"));
        schema["type"] = Value::Array(kinds);
    }
    schema
}

fn schema() -> Value {
    json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "id": "http://fts.cern.ch/submit.schema.json",
        "title": "Transfer submission",
        "description": "A job: one or more files to be moved, and what holds for all of them",
        "type": "object",
        "required": ["files"],
        "properties": {
            "params": or_null(json!({"type": "object", "title": "Job parameters", "properties": params()})),
            "files": {"type": "array", "minItems": 1, "maxItems": 200_000, "items": file()},
            "delete": or_null(json!({"type": "array", "maxItems": 0})),
        },
    })
}

fn params() -> Value {
    let flag = |text: &str| {
        json!({
            "enum": [true, false, 0, 1, "Y", "N", "true", "false", null],
            "title": text,
        })
    };
    let number = |text: &str| or_null(json!({"type": ["integer", "string"], "title": text}));
    json!({
        "verify_checksum": or_null(json!({
            "type": ["boolean", "string"],
            "title": "none, source, target or both; the first letter is enough; true is both",
        })),
        "overwrite": flag("Replace destinations that exist"),
        "overwrite_on_retry": flag("Replace them from the second attempt on"),
        "overwrite_hop": flag("Replace what is in the way of all hops but the last"),
        "reuse": flag("All files go between the same two storage elements"),
        "multihop": flag("The files are the hops of one way"),
        "dst_file_report": flag("Tell size and checksum of a file that is in the way"),
        "strict_copy": flag("No checks before or after the copy"),
        "disable_cleanup": flag("Leave what a failed copy has made"),
        "ipv4": flag("Connect by IPv4 only"),
        "ipv6": flag("Connect by IPv6 only, unless ipv4 is set too"),
        "retry": number("Retries of each file; 0: the site's default; negative: none"),
        "retry_delay": number("Seconds before the first retry"),
        "priority": number("1 to 5, higher first; others are clamped"),
        "max_time_in_queue": or_null(json!({
            "type": ["number", "string"], "title": "Hours, or a number with the suffix s, m, h or d",
        })),
        "timeout": number("Seconds that one attempt may take"),
        "nostreams": number("Connections of one copy"),
        "buffer_size": number("Bytes; recorded only"),
        "job_metadata": {"title": "Any value of at most 2048 bytes; text becomes {\"label\": text}"},
        "id_generator": or_null(json!({"type": "string", "enum": ["standard", "deterministic", null]})),
        "sid": or_null(json!({"type": "string", "title": "What a deterministic id is made of"})),
    })
}

fn file() -> Value {
    let urls = |text: &str| {
        json!({
            "type": "array", "minItems": 1, "title": text,
            "items": {"type": "string", "format": "uri"},
        })
    };
    let tokens = or_null(json!({
        "type": "array", "items": {"type": "string"}, "title": "One bearer token for each URL",
    }));
    let strategies = Selection::ALL.iter().map(|one| json!(one.name()));
    let strategies: Vec<Value> = strategies.chain([json!("auto"), Value::Null]).collect();
    json!({
        "type": "object",
        "title": "One file: each source is tried with each destination",
        "required": ["sources", "destinations"],
        "properties": {
            "sources": urls("Where it is"),
            "destinations": urls("Where it goes"),
            "source_tokens": tokens,
            "destination_tokens": tokens,
            "filesize": or_null(json!({"type": "number", "minimum": 0, "title": "Bytes; 0: not known"})),
            "checksum": or_null(json!({"type": "string", "title": "ALGORITHM or ALGORITHM:value"})),
            "activity": or_null(json!({"type": "string", "maxLength": 255, "title": "Share label"})),
            "scitag": or_null(json!({"type": "integer", "minimum": 65, "maximum": 65535})),
            "metadata": {"title": "Any value of at most 4096 bytes; text becomes {\"label\": text}"},
            "staging_metadata": or_null(json!({"type": "object", "title": "At most 1024 bytes"})),
            "archive_metadata": or_null(json!({"type": "object", "title": "At most 1024 bytes"})),
            "selection_strategy": or_null(json!({"type": "string", "enum": strategies})),
        },
    })
}
