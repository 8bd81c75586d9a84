"""One cause has one code, whoever tells it: the door as text and as JSON, the REST interface, the last line of a copy, and the
command line. What each code means is compared with the page that is made of the table."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from .clients import Endpoint, content
from .openapi import OF_AN_ERROR

PAGE = Path(__file__).resolve().parents[2] / "docs/api/errors.md"
ROW = re.compile(r"\| `([a-z-]+)` \| .* \| (no|later|elsewhere) \| (\w+) \| (\d+|–) \|$")
NOBODY = "00000000-0000-0000-0000-000000000000"
LOCK = (
    '<?xml version="1.0"?><D:lockinfo xmlns:D="DAV:"><D:lockscope><D:exclusive/></D:lockscope>'
    "<D:locktype><D:write/></D:locktype></D:lockinfo>"
)


def page():
    """Retry, who acts and the layer of each code, as the page has them."""
    codes, layer = {}, None
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            layer = line.rpartition("(`")[2].removesuffix("`)")
        elif row := ROW.match(line):
            codes[row[1]] = {"retryable": row[2], "who": row[3], "layer": layer}
    assert len(codes) > 100, "the page is not read"
    return codes


CODES = page()


def agrees(problem, code):
    """Holds an object against the page."""
    assert problem["code"] == code, problem
    assert {key: problem[key] for key in ("retryable", "who", "layer")} == CODES[code], problem


@pytest.fixture
def door(grid, place):
    """The door with a directory of a test: a file, a directory, and a locked file."""
    door = grid.here_door
    door.put(f"{place}/file", content("problem", 1000))
    door.put(f"{place}/directory/file", b"x")
    door.put(f"{place}/locked", b"x")
    answer = door.ask("LOCK", f"{place}/locked", data=LOCK, headers={"Timeout": "Second-600"})
    assert answer.status_code == 200, answer.text
    yield door
    door.ask("UNLOCK", f"{place}/locked", headers={"Lock-Token": answer.headers["Lock-Token"]})


def as_somebody(endpoint, token):
    return Endpoint(endpoint.base, endpoint.session.verify, token)


# Cause, method, path below the test's place, headers, body, status.
AT_THE_DOOR = [
    ("path-not-found", "GET", "/nothing", {}, None, 404),
    ("path-not-found", "DELETE", "/nothing", {}, None, 404),
    ("path-is-directory", "PUT", "/directory", {}, b"x", 409),
    ("parent-is-file", "PUT", "/file/below", {}, b"x", 409),
    ("parent-missing", "MKCOL", "/a/b/c", {}, None, 409),
    ("path-exists", "MKCOL", "/directory", {}, None, 405),
    ("path-exists", "PUT", "/file", {"If-None-Match": "*"}, b"x", 412),
    ("precondition-failed", "PUT", "/file", {"If-Match": '"other"'}, b"x", 412),
    ("checksum-mismatch", "PUT", "/sum", {"Digest": "adler32=00000001"}, b"x", 412),
    ("range-unsatisfiable", "GET", "/file", {"Range": "bytes=5000-"}, None, 416),
    ("listing-unbounded", "PROPFIND", "/directory", {"Depth": "infinity"}, None, 403),
    ("request-malformed", "PROPFIND", "/directory", {"Depth": "7"}, None, 400),
    ("request-malformed", "COPY", "/file", {}, None, 400),
    ("method-not-allowed", "BREW", "/file", {}, None, 405),
    ("media-type-unsupported", "MKCOL", "/new", {}, b"x", 415),
    ("path-locked", "PUT", "/locked", {}, b"y", 423),
    ("feature-unsupported", "COPY", "/new", {"Source": "gsiftp://127.0.0.9/f"}, None, 501),
    ("address-not-allowed", "COPY", "/new", {"Source": "https://127.0.0.9/f"}, None, 403),
    ("other-server", "MOVE", "/file", {"Destination": "https://elsewhere.example.org/f"}, None, 502),
    ("upload-not-found", "HEAD", "//.penstock/uploads/00000000-0000-4000-8000-000000000000", {}, None, 404),
    ("path-reserved", "PUT", "//.well-known/mine", {}, b"x", 403),
    ("body-too-large", "PROPFIND", "/directory", {"Depth": "0"}, b"x" * 3_000_000, 413),
    ("members-failed", "DELETE", "", {}, None, 207),
    ("path-into-itself", "MOVE", "/directory", {"Destination": "/directory/below"}, None, 403),
]


@pytest.mark.parametrize("cause", AT_THE_DOOR, ids=lambda cause: f"{cause[0]}-{cause[1]}")
def test_the_door_tells_one_cause_in_every_form(door, place, cause):
    code, method, path, headers, body, status = cause
    if headers.get("Destination", "").startswith("/"):
        headers = headers | {"Destination": door.url(place + headers["Destination"])}
    path = path.removeprefix("/") if path.startswith("//") else place + path
    ask = lambda accept: door.ask(method, path, headers=headers | {"Accept": accept}, data=body)
    text, problem = ask("*/*"), ask("application/problem+json")
    for answer in (text, problem):
        assert (answer.status_code, answer.headers["Penstock-Problem"]) == (status, code), answer.text
    if method == "HEAD" or status == 207:
        return
    assert problem.headers["Content-Type"] == "application/problem+json"
    told = problem.json()
    agrees(told, code)
    assert told["status"] == status and told["type"] == f"urn:penstock:problem:{code}"
    if text.headers["Content-Type"].startswith("text/plain"):
        assert text.text == told["message"] + "\n"
    else:
        assert told["message"] in text.text.replace("&apos;", "'")


def test_a_token_is_refused_with_its_reason(grid, place):
    weak = grid.here.token(scope=f"storage.read:{place}")
    for token, status, code, error in [
        (None, 401, "credentials-missing", None),
        ("garbage", 401, "token-invalid", "invalid_token"),
        (grid.here.token(audience="https://elsewhere.example.org"), 401, "token-audience-wrong", "invalid_token"),
        (weak, 403, "scope-insufficient", "insufficient_scope"),
    ]:
        answer = as_somebody(grid.here_door, token).ask(
            "PUT", f"{place}/refused", data=b"x", headers={"Accept": "application/json"}
        )
        assert (answer.status_code, answer.headers["Penstock-Problem"]) == (status, code), answer.text
        agrees(answer.json(), code)
        challenge = answer.headers["WWW-Authenticate"]
        if error is None:
            assert challenge == "Bearer"
        else:
            assert challenge.startswith(f'Bearer error="{error}", error_description="'), challenge
        if error == "insufficient_scope":
            assert f'scope="storage.create:{place}/refused"' in challenge, challenge


AT_THE_SERVICE = [
    ("job-not-found", "GET", f"/api/v1/jobs/{NOBODY}/explain", None, 404),
    ("transfer-not-found", "GET", "/api/v1/transfers/999999999", None, 404),
    ("resource-not-found", "GET", "/api/v1/nothing", None, 404),
    ("request-malformed", "GET", "/api/v1/transfers?before=x", None, 400),
    ("request-malformed", "GET", "/jobs?limit=many", None, 400),
    ("request-malformed", "POST", "/jobs", "{", 400),
    ("method-not-allowed", "DELETE", "/api/v1/overview", None, 405),
    ("method-not-allowed", "POST", "/jobs", '{"delete": ["https://127.0.0.2:1/a"]}', 405),
    ("administrator-required", "GET", "/config/links", None, 403),
    ("certificate-required", "GET", "/whoami/certificate", None, 403),
]


@pytest.mark.parametrize("cause", AT_THE_SERVICE, ids=lambda cause: f"{cause[0]}-{cause[1]}-{cause[2]}")
def test_the_service_tells_one_cause_with_all_keys(grid, cause):
    code, method, path, body, status = cause
    user = as_somebody(grid.service, grid.here.token(subject="problem-user"))
    answer = user.ask(method, path, data=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.headers["Penstock-Problem"]) == (status, code), answer.text
    told = answer.json()
    assert told.keys() == OF_AN_ERROR and told["status"].startswith(str(status))
    agrees(told, code)
    assert told["side"] == "service"


LINK = {"symbolicname": "problem", "source": "https://problem.example.org", "destination": "*"}
BY_AN_ADMINISTRATOR = [
    ("setting-conflict", "POST", "/config/links", LINK | {"min_active": 9, "max_active": 2}, 400),
    ("request-malformed", "POST", "/config/links", LINK | {"max_activ": 2}, 400),
    ("resource-not-found", "GET", "/config/links/no-such-rule", None, 404),
    ("request-malformed", "POST", "/ban/se", {"status": "cancel"}, 400),
]


@pytest.mark.parametrize("cause", BY_AN_ADMINISTRATOR, ids=lambda cause: f"{cause[0]}-{cause[1]}-{cause[2]}")
def test_settings_are_refused_with_a_code(grid, cause):
    code, method, path, body, status = cause
    answer = as_somebody(grid.service, grid.here.admin_token()).ask(method, path, json=body)
    assert (answer.status_code, answer.headers["Penstock-Problem"]) == (status, code), answer.text
    agrees(answer.json(), code)


def test_door_and_service_refuse_a_token_with_one_code(grid):
    for token, code in [(None, "credentials-missing"), ("garbage", "token-invalid")]:
        door = as_somebody(grid.here_door, token).ask("GET", "/", headers={"Accept": "application/json"})
        service = as_somebody(grid.service, token).ask("GET", "/whoami")
        for answer in (door, service):
            assert (answer.status_code, answer.headers["Penstock-Problem"]) == (401, code)
            agrees(answer.json(), code)


def test_a_copy_ends_with_the_sentence_of_its_cause(grid, door, place):
    source = grid.there_door.url(f"{place}/nothing")
    headers = {"Source": source, "TransferHeaderAuthorization": f"Bearer {grid.token}", "Credential": "none"}
    answer = door.ask("COPY", f"{place}/copied", headers=headers)
    last = answer.text.splitlines()[-1]
    missing = grid.there_door.ask("GET", f"{place}/nothing")
    assert last.startswith("failure: ") and missing.text.strip() in last, answer.text
    headers |= {"Overwrite": "F", "Accept": "application/json"}
    exists = door.ask("COPY", f"{place}/file", headers=headers)
    assert exists.status_code == 412, exists.text
    agrees(exists.json(), "path-exists")


def test_the_command_line_tells_the_same(grid, binary, door, place):
    def penstock(*words, exit_code, directory=grid.here.directory, **environment):
        line = [binary, "--json", *words, *(["--dir", directory] if directory else [])]
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment}
        done = subprocess.run(list(map(str, line)), env=environment, capture_output=True, text=True, timeout=90)
        assert done.returncode == exit_code, f"{words}: {done.stdout}{done.stderr}"
        told = json.loads(done.stdout)
        assert told["exit_code"] == exit_code and told["error"]
        return told

    nothing = f"{place}/nothing"
    told = penstock("rm", door.url(nothing), exit_code=4)
    agrees(told, "path-not-found")
    assert told["message"] == door.ask("DELETE", nothing).text.strip()
    told = penstock("explain", NOBODY, exit_code=4)
    agrees(told, "job-not-found")
    assert told["message"] == grid.service.ask("GET", f"/api/v1/jobs/{NOBODY}/explain").json()["message"]
    agrees(penstock("list", "--service", "https://127.0.0.2:9", exit_code=5), "connection-refused")
    bare = {"directory": None, "XDG_RUNTIME_DIR": "/nonexistent"}
    trust = ("--capath", grid.here.certificates)
    agrees(penstock("ls", door.url("/"), *trust, exit_code=3, **bare), "credentials-missing")
    agrees(
        penstock("ls", door.url("/"), *trust, exit_code=3, BEARER_TOKEN="garbage", **bare), "token-invalid"
    )


def test_a_transfer_that_failed_has_the_code_of_its_cause(grid, door, place):
    job = grid.service.submit((door.url(f"{place}/nothing"), grid.there_door.url(f"{place}/copied")))
    reason = grid.service.wait_failed(job)
    [file] = grid.service.ask("GET", f"/api/v1/jobs/{job}/explain").json()["files"]
    agrees(file["problem"], "path-not-found")
    assert file["problem"]["side"] == "source" and file["problem"]["message"] in reason


def test_a_failed_copy_keeps_the_code_of_the_storage_element_that_refused(own_grid):
    grid = own_grid
    for site in grid.sites:
        site.start()
    grid.there_door.put("/away/f", b"data")
    grid.there.stop()
    pool = grid.there.directory / "pools/disk1"
    pool.rename(pool.with_name("unmounted"))
    pool.mkdir()
    grid.there.start()
    refused = grid.there_door.ask("GET", "/away/f")
    assert (refused.status_code, refused.headers["Penstock-Problem"]) == (503, "pool-offline"), refused.text
    # The destination copies, and is refused by the source.
    job = grid.service.submit((grid.there_door.url("/away/f"), grid.here_door.url("/away/f")), retry=-1)
    grid.service.wait_failed(job)
    [file] = grid.service.ask("GET", f"/api/v1/jobs/{job}/explain").json()["files"]
    agrees(file["problem"], "pool-offline")
