//! An OpenAPI document as a page for people: an index, a search, each operation with an example to copy, and the forms that they
//! refer to. It reads without its script; that searches and opens what a link names.
//!
//! It knows what our documents use of OpenAPI 3.1, and shows as JSON what it does not know.

mod example;
mod forms;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use example::{answer_example, command};
use forms::{content, entries, escaped, form, inline, resolved, text};
use serde_json::Value;
use std::fmt::Write;
use std::sync::LazyLock;

const METHODS: [&str; 6] = ["get", "put", "post", "delete", "head", "patch"];
const STYLE: &str = include_str!("openapi_page/page.css");
const SCRIPT: &str = include_str!("openapi_page/page.js");

/// The value of `Content-Security-Policy` for the page: it loads nothing, and runs nothing but its own script.
pub static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = STANDARD.encode(openssl::sha::sha256(SCRIPT.as_bytes()));
    format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
});

/// A page with a description beside this one.
#[derive(Debug, Clone, Copy)]
pub struct RelatedPage {
    /// Where it is, on the same server.
    pub address: &'static str,
    pub title: &'static str,
}

/// The page of a document that is served at `source`. What the document does not hold is left out.
pub fn of(document: &Value, source: &str, related: &[RelatedPage]) -> String {
    let title = escaped(text(&document["info"]["title"]));
    let description = paragraph(&document["info"]["description"]);
    let mut links = format!("<a href=\"{source}\">OpenAPI document (JSON)</a>");
    for RelatedPage { address, title } in related {
        let _ = write!(links, " · <a href=\"{address}\">{title}</a>");
    }
    let (mut index, mut operations) = (String::new(), String::new());
    for tag in document["tags"].as_array().into_iter().flatten() {
        let (name, anchor) = (escaped(text(&tag["name"])), anchor(text(&tag["name"])));
        let about = paragraph(&tag["description"]);
        let _ = write!(
            index,
            "<li><a href=\"#tag-{anchor}\">{name}</a><ul data-of=\"tag-{anchor}\">"
        );
        let _ = write!(
            operations,
            "<section id=\"tag-{anchor}\"><h2>{name}</h2>{about}"
        );
        for of_tag in operations_of(document, &tag["name"]) {
            index += &of_tag.index_entry();
            operations += &of_tag.shown(document);
        }
        index += "</ul></li>";
        operations += "</section>";
    }
    let mut forms = String::new();
    for (name, schema) in entries(&document["components"]["schemas"]) {
        let name = escaped(name);
        let _ = write!(
            forms,
            "<dt id=\"{name}\">{name}</dt><dd>{}</dd>",
            form(schema)
        );
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body>\
         <header><h1>{title}</h1>{description}<p>{links}</p></header>\
         <nav aria-label=\"Operations\"><div id=\"search\" role=\"search\" hidden><label for=\"words\">Search operations</label>\
         <input id=\"words\" type=\"search\" autocomplete=\"off\" spellcheck=\"false\" placeholder=\"for example: jobs cancel\">\
         <p id=\"found\" role=\"status\"></p></div><ul>{index}<li><a href=\"#forms\">Forms</a></li></ul></nav>\
         <main>{operations}<section id=\"forms\"><h2>Forms</h2><dl>{forms}</dl></section></main>\
         <script>{SCRIPT}</script></body></html>"
    )
}

/// An operation of a document.
struct Operation<'a> {
    method: &'a str,
    path: &'a str,
    value: &'a Value,
}

/// Those with a tag, in the order of their paths.
fn operations_of<'a>(
    document: &'a Value,
    tag: &'a Value,
) -> impl Iterator<Item = Operation<'a>> + 'a {
    entries(&document["paths"]).flat_map(move |(path, operations)| {
        METHODS.into_iter().filter_map(move |method| {
            let value = &operations[method];
            let tags = value["tags"].as_array()?;
            tags.contains(tag).then_some(Operation {
                method,
                path,
                value,
            })
        })
    })
}

impl Operation<'_> {
    fn id(&self) -> String {
        escaped(text(&self.value["operationId"]))
    }

    fn name(&self) -> String {
        let (method, path) = (self.method.to_ascii_uppercase(), escaped(self.path));
        format!("<code><b>{method}</b> {path}</code>")
    }

    fn index_entry(&self) -> String {
        let (id, name) = (self.id(), self.name());
        format!("<li><a href=\"#{id}\">{name}</a></li>")
    }

    fn shown(&self, document: &Value) -> String {
        let (id, name) = (self.id(), self.name());
        let summary = escaped(text(&self.value["summary"]));
        let mut shown = format!(
            "<details id=\"{id}\"><summary>{name} <span>{summary}</span></summary>{}",
            paragraph(&self.value["description"])
        );
        let command = escaped(&command(document, self.method, self.path, self.value));
        let _ = write!(
            shown,
            "<h3>Example</h3><pre><code>{command}</code></pre>{}",
            answer(document, self.value)
        );
        let parameters = self.value["parameters"].as_array();
        let parameters: String = (parameters.into_iter().flatten())
            .map(|parameter| parameter_of(resolved(document, parameter)))
            .collect();
        if !parameters.is_empty() {
            let _ = write!(shown, "<h3>Parameters</h3><ul>{parameters}</ul>");
        }
        let body = &self.value["requestBody"];
        if !body.is_null() {
            let _ = write!(shown, "<h3>Body</h3><p>{}</p>", content(body));
        }
        shown += "<h3>Answers</h3><ul>";
        for (status, response) in entries(&self.value["responses"]) {
            let told = content(resolved(document, response));
            let _ = write!(shown, "<li><code>{status}</code> {told}</li>");
        }
        shown + "</ul></details>"
    }
}

/// What the server may answer to the example.
fn answer(document: &Value, operation: &Value) -> String {
    match answer_example(document, operation) {
        Some((status, example)) => {
            format!(
                "<p>An answer to it ({status}):</p><pre><code>{}</code></pre>",
                escaped(&example)
            )
        }
        None => String::new(),
    }
}

fn parameter_of(parameter: &Value) -> String {
    let (name, place) = (escaped(text(&parameter["name"])), text(&parameter["in"]));
    let must = match parameter["required"] == true {
        true => ", required",
        false => "",
    };
    let (what, why) = (
        form(&parameter["schema"]),
        inline(text(&parameter["description"])),
    );
    format!("<li><code>{name}</code> ({place}{must}): {what}. {why}</li>")
}

fn paragraph(value: &Value) -> String {
    match text(value) {
        "" => String::new(),
        words => format!("<p>{}</p>", inline(words)),
    }
}

/// A name in the address of a place of the page.
fn anchor(name: &str) -> String {
    name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_names_each_operation_in_its_index_with_an_example_and_is_safe_from_its_document() {
        let document = json!({
            "info": {"title": "A & B"},
            "servers": [{"url": "/", "description": "The door, port 8443 by default."}],
            "tags": [{"name": "first jobs"}],
            "paths": {"/jobs/{id}": {"get": {
                "operationId": "showJob", "tags": ["first jobs"], "summary": "Show <a> job",
                "parameters": [{"name": "id", "in": "path", "required": true, "example": "17", "schema": {"type": "string"}}],
                "responses": {"200": {"description": "Yes.", "content": {"application/json": {"schema": {"type": "boolean"}}}}},
            }}},
        });
        let other = RelatedPage {
            address: "/b.html",
            title: "B",
        };
        let page = of(&document, "/a.json", &[other]);
        for expected in [
            "<title>A &amp; B</title>",
            "href=\"/a.json\"",
            "<a href=\"/b.html\">B</a>",
            "<a href=\"#showJob\"><code><b>GET</b> /jobs/{id}</code></a>",
            "<details id=\"showJob\">",
            "Show &lt;a&gt; job",
            "https://HOST:8443/jobs/17",
            "<p>An answer to it (200):</p><pre><code>true</code></pre>",
        ] {
            assert!(page.contains(expected), "{expected}");
        }
        let script = page
            .split_once("<script>")
            .and_then(|(_, rest)| rest.split_once("</script>"));
        let (script, _) = script.expect("a script");
        let digest = STANDARD.encode(openssl::sha::sha256(script.as_bytes()));
        assert!(POLICY.contains(&digest), "browsers run it");
    }
}
