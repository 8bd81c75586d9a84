"""The OpenAPI documents in docs/api/openapi: that they are served, true of what clients get, and hold when schemathesis
asks for everything that they allow, and for much that they do not.

All answers that other tests get by `Service` are held against the documents as well.
"""

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest
import requests
from openapi_spec_validator import validate

from . import golden
from .clients import Endpoint, Service
from .openapi import METHODS, NAMES, concrete, interface
from .site import Site
from .test_files_on_tape import with_tape
from .waiting import eventually

HOST = "127.0.0.21"
HERE = Path(__file__).parent
SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"
# Cases for each operation that schemathesis makes up; those from the documents' own bounds come beside.
EXAMPLES = {"guard": 5, "soak": 1000}
SECONDS_MAX = {"guard": 480, "soak": 14_400}
# Of what the port of the transfer service and the door serve.
SERVED = {"fts": "/fts/openapi.json", "penstock": "/openapi.json", "storage": "/.penstock/openapi.json"}
# Without a credential nothing is done, so that nothing can be said of what would be.
NOBODY = ["positive_data_acceptance", "negative_data_rejection", "missing_required_header", "ignored_auth"]
# No text that is made up is a proxy; and nothing can be withdrawn that was not delegated.
DELIVERIES = """
[[operations]]
include-operation-id = ["deliverProxy", "deliverProxyByPost", "addAttributes"]
[operations.checks.positive_data_acceptance]
expected-statuses = ["400", "404", "424"]
"""
FORMS = {
    "<time>": "2026-11-21T06:08:11",
    "<file>": 7,
    "<number>": 7,
    "<seconds>": 1.5,
    "<MiB/s>": 1.5,
    "<identity>": "0123456789abcdef",
    "<token>": "0123456789abcdef",
    "<seconds since 1970>": 1_795_000_000,
    "<tape>": "https://127.0.0.11:8443",
}
GOLDEN = sorted(path.stem for path in golden.DIRECTORY.glob("*.json") if path.stem not in ("davfs2", "litmus"))


@pytest.fixture(scope="module")
def site(binary, tmp_path_factory):
    """A site that accepts jobs and starts none: schemathesis names hosts that are none of ours."""
    site = Site(binary, tmp_path_factory.mktemp("openapi") / "site", "openapi", HOST)
    with_tape(site)
    site.start()
    drained = Service(site, site.admin_token()).ask("POST", "/config/drain", json={"hostname": HOST})
    assert drained.status_code == 200
    yield site
    code = site.stop()[0]
    assert code == 0 and "panicked" not in site.log_text(), site.log_tail()


def base(site, name):
    return site.door if name == "storage" else site.service


@pytest.mark.parametrize("name", NAMES)
def test_the_document_is_served_to_everybody(site, name):
    answer = Endpoint(base(site, name), site.certificates).ask("GET", SERVED[name])
    assert answer.status_code == 200 and answer.headers["Content-Type"] == "application/json"
    assert answer.text == interface(name).path.read_text(), "build the binary anew"


@pytest.mark.parametrize("name", NAMES)
def test_the_document_is_openapi_and_its_examples_are_true(name):
    known = interface(name)
    validate(known.document)
    schemas = known.document["components"]["schemas"]
    for schema in schemas.values():
        jsonschema_rs.Draft202012Validator(schema | {"components": known.document["components"]})
    found = [(of, schema, value) for of, schema in schemas.items() for value in schema.get("examples", [])]
    for path, method, operation in known.operations():
        contents = [known.resolved(operation.get("requestBody", {})), *map(known.resolved, operation["responses"].values())]
        for content in (media for one in contents for media in one.get("content", {}).values()):
            if "example" in content:
                found.append((f"{method} {path}", content["schema"], content["example"]))
    assert found
    for of, schema, value in found:
        assert not known.complaints(schema, value), of


@pytest.mark.parametrize(
    "name, words, operation",
    [("fts", "jobs cancel", "cancelJobs"), ("penstock", "mutes", "addMute"), ("storage", "trash", "listTrash")],
)
def test_the_web_page_is_searched(site, browser_tools, name, words, operation):
    page = base(site, name) + SERVED[name].replace(".json", ".html")
    line = ["node", "test/openapi.mjs", page, words, operation]
    done = subprocess.run(line, cwd=browser_tools, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", NAMES)
def test_each_example_of_the_web_page_is_a_request_that_is_understood(site, name, tmp_path):
    """The commands as a shell runs them: what they name is not there, but nothing is wrong with them."""
    page = Endpoint(base(site, name), site.certificates).ask("GET", SERVED[name].replace(".json", ".html")).text
    commands = {
        operation: html.unescape(command)
        for operation, command in re.findall(
            r'<details id="(\w+)">.*?<h3>Example</h3><pre><code>(.*?)</code></pre>', page, re.DOTALL
        )
    }
    operations = [operation for _, _, operation in interface(name).operations()]
    assert set(commands) == {operation["operationId"] for operation in operations}
    # What FTS has and this service refuses is described by its refusal alone.
    served = [one["operationId"] for one in operations if any(status.startswith("2") for status in one["responses"])]
    (tmp_path / "FILE").write_text("any bytes")
    options = f"-sS -m 30 -o answer -w '%{{http_code}}' --capath {site.certificates}"
    misread = []
    for command in (commands[operation].replace("fts.example.org", HOST) for operation in served):
        command = re.sub("https://HOST:[0-9]+", base(site, name), command)
        script = f'curl() {{ command curl {options} "$@"; }}\n{command}'
        environment = {**os.environ, "TOKEN": site.admin_token()}
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment)
        if done.returncode != 0 or done.stdout in ("400", "405", "415", "500"):
            answer = (tmp_path / "answer").read_text(errors="replace")[:300] if (tmp_path / "answer").exists() else ""
            misread.append(f"{command}\n{done.stdout} {done.stderr} {answer}")
    assert not misread, "\n\n".join(misread)


@pytest.mark.parametrize("name", ["fts", "penstock"])
def test_each_path_takes_the_methods_that_its_document_names_and_no_other(site, name):
    known, token = interface(name), site.token()
    for path in known.document["paths"]:
        for method in ["TRACE", "BREW", "OPTIONS", *(method.upper() for method in METHODS)]:
            if method in known.methods_of(path):
                continue
            asked = requests.request(
                method, site.service + concrete(path), verify=str(site.certificates), timeout=60,
                headers={"Authorization": f"Bearer {token}"},
            )
            assert asked.status_code == 405, f"{method} {path}: {asked.status_code}"
            allowed = {word.strip() for word in asked.headers["Allow"].split(",")}
            assert allowed == known.methods_of(path), path
            if method != "HEAD":
                assert asked.json()["status"] == "405 Method Not Allowed", f"{method} {path}: {asked.text}"


@pytest.mark.parametrize("path", ["/jobs/%ff", "/config/audit?limit=many", "/jobs?limit=1&limit=2", "/config/links/%fe"])
def test_what_cannot_be_read_of_a_target_is_told_as_all_errors_are(site, path):
    answer = Service(site, site.admin_token()).ask("GET", path)
    assert answer.status_code == 400 and answer.json()["status"] == "400 Bad Request", answer.text


def filled(value):
    """A golden answer with values in the place of names."""
    if isinstance(value, dict):
        return {filled(key): filled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item) for item in value]
    if not isinstance(value, str):
        return value
    if value in FORMS:
        return FORMS[value]
    value = re.sub(r"<id (\d+)>", lambda match: f"00000000-0000-0000-0000-{int(match[1]):012}", value)
    value = re.sub(r"<(davs )?(door|other|faulty)>", "https://se.example.org:8443", value)
    return re.sub(r"<[a-z]+>", lambda match: "/place" if match[0] == "<place>" else str(FORMS.get(match[0], "x")), value)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_answers_are_as_the_document_says(name):
    known = interface("fts")
    for exchange in json.loads((golden.DIRECTORY / f"{name}.json").read_text()):
        method, target = exchange["request"].split(" ", 1)
        template = known.template_of(target)
        assert template is not None, exchange["request"]
        answer = filled(exchange["answer"])
        body = json.dumps(answer) if exchange["type"] == "application/json" else answer or ""
        complaint = known.complaint(method, template, exchange["status"], exchange["type"], body)
        assert complaint is None, f"{exchange['request']}: {complaint}"


def schemathesis(
    site, name, tier, directory, *options, settings="", phases="examples,coverage,fuzzing,stateful", path=None
):
    """Has schemathesis ask everything that a document names, with fixed seeds; what it found is the error."""
    config = directory / "schemathesis.toml"
    config.write_text(f'hooks = "{HERE / "schemathesis_hooks.py"}"\n{(HERE / "schemathesis.toml").read_text()}{settings}')
    line = [str(SCHEMATHESIS), "--config-file", str(config), "run", str(path or interface(name).path)]
    line += ["--url", base(site, name), "--tls-verify", str(site.certificates), "--phases", phases, "--seed", "1"]
    line += ["--max-examples", str(EXAMPLES[tier.name]), "--continue-on-failure", "--warnings", "off", *options]
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "NO_COLOR": "1", "COLUMNS": "140"}
    done = subprocess.run(
        line, env=environment, cwd=directory, capture_output=True, text=True, timeout=SECONDS_MAX[tier.name]
    )
    assert site.is_running(), site.log_tail()
    assert done.returncode == 0, f"{' '.join(line)}\n{done.stdout[-20_000:]}{done.stderr}"


def bearer(token):
    return ["--header", f"Authorization: Bearer {token}"]


def test_schemathesis_finds_nothing_in_the_fts_interface(site, tier, tmp_path):
    schemathesis(site, "fts", tier, tmp_path, *bearer(site.admin_token()))


@pytest.mark.soak
def test_schemathesis_finds_nothing_when_nobody_is_known(site, tier, tmp_path):
    left_out = ["--exclude-checks", ",".join(NOBODY)]
    schemathesis(site, "fts", tier, tmp_path, *left_out, phases="coverage")
    schemathesis(site, "penstock", tier, tmp_path, *left_out, phases="coverage")


def test_schemathesis_finds_nothing_in_our_own_interface(grid, place, tier, tmp_path):
    grid.here_door.put(f"{place}/a", b"content")
    job = grid.service.submit((grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/b")))
    grid.service.wait_finished(job)
    settings = f'\n[[operations]]\ninclude-operation-id = "explain"\nparameters = {{ id = "{job}" }}\n'
    token = grid.here.admin_token()
    schemathesis(grid.here, "penstock", tier, tmp_path, *bearer(token), settings=settings)


def test_schemathesis_finds_nothing_at_the_storage_element(site, tier, tmp_path):
    schemathesis(site, "storage", tier, tmp_path, *bearer(site.token()), phases="examples,coverage,fuzzing")


def test_schemathesis_finds_nothing_when_uploads_go_on(site, tier, tmp_path):
    begun = with_uploads_linked(tmp_path)
    schemathesis(site, "storage", tier, tmp_path, *bearer(site.token()), phases="stateful", path=begun)


def with_uploads_linked(directory):
    """The document with nothing but pieces at PUT, and where an upload goes on, which OpenAPI cannot say: its id is the
    end of `Location`.
    """
    document = json.loads(interface("storage").path.read_text())
    of_upload = {"upload": "$response.header.Location#regex:/uploads/(.+)$"}
    names = ["askUpload", "appendUpload", "giveUpUpload"]
    links = {name: {"operationId": name, "parameters": of_upload} for name in names}
    begin = document["paths"]["/{path}"]["put"]
    begin["responses"]["201"]["links"] = links
    in_pieces = {"name": "Upload-Complete", "in": "header", "required": True, "schema": {"const": "?0"}}
    begin["parameters"] = [begin["parameters"][0], in_pieces]
    path = directory / "storage.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.soak
def test_schemathesis_finds_nothing_with_a_proxy(site, user_ca, tier, tmp_path):
    alice = user_ca.user("Alice Lab")
    user_ca.trusted_by(site)
    proxy = str(user_ca.proxy(alice).pem)
    service = Service(site)
    service.session.cert = (proxy, proxy)
    del service.session.headers["Authorization"]
    mine = eventually("the authority is trusted", lambda: delegation_of(service))
    settings = f'\n[[operations]]\ninclude-tag = "delegation"\nparameters = {{ id = "{mine}" }}\n'
    settings += DELIVERIES
    # A connection keeps its certificate, so the check that leaves the credential out finds it counts; and without a
    # delegation every submission is 419.
    chosen = ["--exclude-checks", "ignored_auth"]
    chosen += [word for tag in ("delegation", "jobs", "service") for word in ("--include-tag", tag)]
    chosen += [word for name in ("submit", "submitByPut") for word in ("--exclude-operation-id", name)]
    schemathesis(site, "fts", tier, tmp_path, "--request-cert", proxy, *chosen, settings=settings)


def delegation_of(service):
    answer = service.ask("GET", "/whoami")
    return answer.json()["delegation_id"] if answer.status_code == 200 else None
