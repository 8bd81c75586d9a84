"""The OpenAPI documents, as answers are held against them: a status, a key or a value that a document does not name is
an error of the document or of the service.
"""

import functools
import json
import re
from pathlib import Path

import jsonschema_rs

DIRECTORY = Path(__file__).resolve().parents[2] / "docs/api/openapi"
NAMES = ["fts", "penstock", "storage"]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
METHODS = ["get", "put", "post", "delete", "head", "patch"]
# What is said before a request reaches its operation, without a body.
OF_THE_HEAD = {400, 414, 431}
# Keys of every error in JSON.
OF_AN_ERROR = {"status", "code", "side", "layer", "retryable", "who", "message", "detail"}


class Interface:
    """One document."""

    def __init__(self, name):
        self.name = name
        self.path = DIRECTORY / f"{name}.json"
        self.document = json.loads(self.path.read_text())
        self.validators = {}

    def resolved(self, value):
        """What a reference means, within the document."""
        if "$ref" not in value:
            return value
        keys = value["$ref"].removeprefix("#/").split("/")
        return self.resolved(functools.reduce(dict.__getitem__, keys, self.document))

    def operations(self):
        """Paths, methods and what the document says of them."""
        for path, methods in self.document["paths"].items():
            for method in METHODS:
                if method in methods:
                    yield path, method, methods[method]

    def methods_of(self, path):
        """As `Allow` names them."""
        methods = {method.upper() for method in self.document["paths"][path] if method in METHODS}
        return methods | ({"HEAD"} if "GET" in methods else set())

    def template_of(self, target):
        """The path in the document that a request's path means; None when it is none of them."""
        fitting = [path for path in self.document["paths"] if fits(path, target.partition("?")[0])]
        return min(fitting, key=lambda path: path.count("{"), default=None)

    def validator(self, schema):
        key = json.dumps(schema, sort_keys=True)
        if key not in self.validators:
            whole = schema | {"$schema": DRAFT, "components": self.document["components"]}
            self.validators[key] = jsonschema_rs.validator_for(whole)
        return self.validators[key]

    def complaints(self, schema, value):
        """What a schema has against a value; of several forms, what the one says that comes nearest."""
        found = [
            f"{'/'.join(map(str, error.instance_path))}: {error.message[:300]}"
            for error in self.validator(schema).iter_errors(value)
        ]
        forms = schema.get("oneOf", schema.get("anyOf", []))
        if not found or not forms:
            return found
        return min((self.complaints(self.resolved(form), value) for form in forms), key=len) or found

    def complaint(self, method, template, status, media_type, body):
        """What the document has against an answer; None when it is as it should be."""
        operation = self.document["paths"][template].get("get" if method == "HEAD" else method.lower())
        if operation is None:
            return None if status == 405 else f"{method} is not named, and was answered {status}"
        response = operation["responses"].get(str(status))
        if response is None:
            return None if status in OF_THE_HEAD and not body else f"{status} is not named: {body[:300]!r}"
        content = self.resolved(response).get("content")
        if method == "HEAD":
            return None
        if content is None:
            return f"a body of {media_type}: {body[:300]!r}" if body else None
        if media_type not in content:
            return f"{media_type!r} is none of {list(content)}: {body[:300]!r}"
        if media_type != "application/json":
            return None
        complaints = self.complaints(content[media_type]["schema"], json.loads(body))
        return "; ".join(complaints[:5]) or None


def fits(path, asked):
    """Doubled slashes mean single ones, but `/live` and `/live/` are two paths."""
    names, parts = ([part for part in text.split("/") if part] for text in (path, asked))
    same = all(name == part or name.startswith("{") for name, part in zip(names, parts))
    return same and len(names) == len(parts) and path.endswith("/") == asked.endswith("/")


def concrete(path):
    """A path of a document with an id that nobody has in each place for one."""
    return re.sub(r"\{\w+\}", "00000000-0000-0000-0000-000000000000", path)


@functools.cache
def interface(name):
    return Interface(name)


def check(method, target, answer):
    """Holds an answer of a transfer service's port against the two documents that speak of it."""
    media_type = answer.headers.get("Content-Type", "").partition(";")[0]
    for known in (interface("penstock"), interface("fts")):
        template = known.template_of(target)
        if template is not None:
            complaint = known.complaint(method, template, answer.status_code, media_type, answer.content)
            assert complaint is None, (
                f"docs/api/openapi/{known.name}.json, {method} {template}: the answer {answer.status_code} is not as "
                f"the document says: {complaint}"
            )
            return
    assert answer.status_code in (404, 405) and answer.json().keys() == OF_AN_ERROR, (
        f"{method} {target} is in no document of docs/api/openapi, and was answered {answer.status_code}"
    )

