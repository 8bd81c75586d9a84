"""Golden answers: what our service says to requests of the shapes that FTS clients send, as JSON to review.

Whatever differs between two runs (ids, times, ports, tokens) is replaced by a name before it is compared.
"""

import difflib
import json
import re
from pathlib import Path

DIRECTORY = Path(__file__).parent / "golden"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LOG = re.compile(r"/files/\d+/log$")
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
# Keys whose values are numbers or ids of one run.
VARYING = {
    "file_id": "<file>",
    "hashed_id": "<number>",
    "tx_duration": "<seconds>",
    "throughput": "<MiB/s>",
    "cred_id": "<identity>",
    "delegation_id": "<identity>",
    "src_token_id": "<token>",
    "dst_token_id": "<token>",
    "max_time_in_queue": "<seconds since 1970>",
}


class Normalised:
    """Replaces what varies. Names of ids are given in the order of their first appearance."""

    def __init__(self, **named):
        self.named = sorted(
            ((text, f"<{name}>") for name, text in named.items()), key=lambda pair: -len(pair[0])
        )
        self.ids = {}

    def value(self, value, key=None):
        if value is not None and key in VARYING:
            return VARYING[key]
        if isinstance(value, dict):
            return {self.text(name): self.value(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def text(self, text):
        for known, name in self.named:
            text = text.replace(known, name)
        text = UUID.sub(lambda match: self.ids.setdefault(match[0], f"<id {len(self.ids) + 1}>"), text)
        return DATE.sub("<time>", LOG.sub("/files/<file>/log", text))


def check(name, exchanges, write):
    """Compares normalised exchanges with a golden file, or writes that file."""
    path = DIRECTORY / f"{name}.json"
    found = json.dumps(exchanges, indent=1, ensure_ascii=False) + "\n"
    if write:
        path.write_text(found)
    assert path.exists(), f"{path} is missing: run with --write-golden and review it"
    expected = path.read_text()
    differs = "\n".join(difflib.unified_diff(expected.splitlines(), found.splitlines(), "golden", "found", n=2))
    assert json.loads(found) == json.loads(expected), f"{path} differs; if meant, run with --write-golden\n{differs}"
