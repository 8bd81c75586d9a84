"""What a service and a door must refuse: each time with a clear error, and leaving nothing behind."""

import http.client
import json
import socket
import ssl
import time

import pytest

from .clients import Endpoint, Service, adler32, content
from .site import Site
from .waiting import eventually

GOOD = {"sources": ["https://127.0.0.2:1/a"], "destinations": ["https://127.0.0.3:1/b"]}


@pytest.mark.parametrize(
    "body, told",
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[1]", "object"),
        (b'"files"', "object"),
        (b"\xff\xfe\x00", "JSON"),
        (b"[" * 100_000, "JSON"),
        ({}, "files"),
        ({"files": []}, "No transfers"),
        ({"files": "all"}, "No transfers"),
        ({"files": [7]}, "files[0]"),
        ({"files": [{}]}, "files[0]"),
        ({"files": [GOOD, GOOD | {"sources": []}]}, "files[1]"),
        ({"files": [GOOD | {"sources": ["not a URL"]}]}, "not a URL"),
        ({"files": [GOOD | {"sources": ["gopher://host/a"]}]}, "scheme 'gopher' is not supported"),
        ({"files": [GOOD | {"sources": ["gsiftp://host/a"]}]}, "takes no tokens"),
        ({"files": [GOOD | {"sources": ["file:///etc/passwd"]}]}, "scheme 'file' is not supported"),
        ({"files": [GOOD | {"destinations": ["https://user:secret@host/a"]}]}, "credentials"),
        ({"files": [GOOD | {"destinations": ["https://host"]}]}, "path"),
        ({"files": [GOOD | {"destinations": GOOD["sources"]}]}, "the same"),
        ({"files": [GOOD | {"checksum": "ROT13:1234"}]}, "ROT13"),
        ({"files": [GOOD | {"checksum": "ADLER32:xyz"}]}, "ADLER32"),
        ({"files": [GOOD | {"filesize": -1}]}, "filesize"),
        ({"files": [GOOD | {"scitag": 3}]}, "scitag"),
        ({"files": [GOOD | {"source_tokens": [""]}]}, "source_tokens"),
        ({"files": [GOOD], "params": 3}, "params"),
        ({"files": [GOOD], "params": {"overwrite": "perhaps"}}, "overwrite"),
        ({"files": [GOOD], "params": {"retry": "often"}}, "retry"),
        ({"files": [GOOD], "params": {"verify_checksum": "x"}}, "verify_checksum"),
        ({"files": [GOOD], "params": {"overwrite_hop": True}}, "multihop"),
        ({"files": [GOOD], "params": {"bring_online": "soon"}}, "bring_online"),
        ({"files": [GOOD], "params": {"overwrite_when_only_on_disk": True}}, "archive_timeout"),
        ({"files": [GOOD], "params": {"job_metadata": {"k": "v" * 5000}}}, "job_metadata"),
        ({"files": [GOOD], "params": {"job_metadata": {"k": "a\u0000b"}}}, "U+0000"),
    ],
    ids=lambda value: None if not isinstance(value, str) else value.replace(" ", "-"),
)
def test_a_bad_submission_is_a_400_that_names_what_is_wrong(grid, body, told):
    data = body if isinstance(body, bytes) else json.dumps(body)
    before = grid.service.overview()["totals"]
    answer = grid.service.ask("POST", "/jobs", data=data, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, f"{answer.status_code} {answer.text}"
    assert answer.json()["status"] == "400 Bad Request"
    assert told in answer.json()["message"], answer.json()["message"]
    assert "secret" not in answer.text
    assert grid.service.overview()["totals"]["submitted"] == before["submitted"]


def test_a_stranger_is_refused_before_the_body_is_read(grid):
    host, port = grid.service.base.removeprefix("https://").split(":")
    tls = ssl.create_default_context(capath=grid.service.session.verify)
    with socket.create_connection((host, int(port)), timeout=20) as tcp, \
            tls.wrap_socket(tcp, server_hostname=host) as stream:
        stream.sendall(b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n[")
        assert stream.recv(12) == b"HTTP/1.1 401"


def test_a_stranger_who_sends_head_and_body_apart_reads_why_he_is_refused(grid):
    """As most clients send them; where the connection ended with the answer, they find it broken."""
    host, port = grid.service.base.removeprefix("https://").split(":")
    tls = ssl.create_default_context(capath=grid.service.session.verify)
    with socket.create_connection((host, int(port)), timeout=20) as tcp, \
            tls.wrap_socket(tcp, server_hostname=host) as stream:
        for _ in range(2):
            stream.sendall(b"POST /jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n")
            time.sleep(0.3)
            stream.sendall(b" " * 10_000)
            stream.sendall(b" " * 10_000)
            answer = b""
            while b"}" not in answer:
                received = stream.recv(4096)
                assert received, answer
                answer += received
            assert answer.startswith(b"HTTP/1.1 401") and b"connection: close" not in answer.lower(), answer


@pytest.mark.parametrize("query", ["limit=many", "limit=-1", "time_window=long", "time_window=1:x"])
def test_a_bad_query_is_a_400(grid, query):
    assert grid.service.ask("GET", f"/jobs?{query}").status_code == 400


def test_a_window_longer_than_time_itself_shows_everything(grid):
    assert grid.service.ask("GET", "/jobs?time_window=5000000000000000&limit=1").status_code == 200


def test_a_deletion_job_is_not_offered(grid):
    answer = grid.service.ask("POST", "/jobs", json={"delete": ["https://127.0.0.2:1/a"]})
    assert answer.status_code == 405 and "no longer supported" in answer.json()["message"]


# Tokens. A door or service must know who asks, for whom the token is, and what it allows.


def bearer(site_endpoint, token):
    return Endpoint(site_endpoint.base, site_endpoint.session.verify, token)


def ask_both(grid, token):
    """The answers of a door and of a service to somebody who shows a token."""
    door, service = (bearer(endpoint, token) for endpoint in (grid.here_door, grid.service))
    return [door.ask("PROPFIND", "/", headers={"Depth": "0"}), service.ask("GET", "/whoami")]


def statuses(grid, token):
    return [answer.status_code for answer in ask_both(grid, token)]


def test_no_token_is_a_401(grid):
    for answer in ask_both(grid, None):
        assert answer.status_code == 401 and answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_an_expired_token_is_a_401(grid):
    token = grid.here.token(lifetime="1s")
    eventually("the token has expired", lambda: statuses(grid, token) == [401, 401], 10)


def test_a_token_for_another_audience_is_a_401(grid):
    for audience in ("https://elsewhere.example.org", "https://127.0.0.99:8443"):
        assert statuses(grid, grid.here.token(audience=audience)) == [401, 401]


def test_a_token_for_this_audience_is_accepted(grid):
    assert ask_both(grid, grid.here.token(audience=grid.here.door))[0].status_code == 207
    assert ask_both(grid, grid.here.token(audience=grid.here.service))[1].status_code == 200


def test_a_forged_token_is_a_401(grid):
    header, claims, signature = grid.token.split(".")
    flipped = signature[:10] + ("A" if signature[10] != "A" else "B") + signature[11:]
    for forged in (
        f"{header}.{claims}.{flipped}",
        f"{header}.{claims}.",
        "x.y.z",
        "-",
        grid.token[:-20],
        "a" * 9000,
    ):
        assert statuses(grid, forged) == [401, 401], forged


def test_a_token_of_an_unknown_issuer_is_a_401(grid, tmp_path):
    stranger = Site(grid.here.binary, tmp_path / "stranger", "stranger", "127.0.0.6")
    assert statuses(grid, stranger.token()) == [401, 401]


@pytest.mark.parametrize(
    "scope, method",
    [
        ("storage.read:/", "PUT"),
        ("storage.read:/", "DELETE"),
        ("storage.read:/", "MKCOL"),
        ("storage.create:/", "GET"),
        ("storage.create:/", "DELETE"),
        ("storage.read:/elsewhere", "GET"),
        ("storage.modify:/elsewhere", "PUT"),
        ("openid", "GET"),
    ],
)
def test_a_missing_right_is_a_403(grid, place, scope, method):
    grid.here_door.put(f"{place}/there", b"content")
    path = f"{place}/there" if method in ("GET", "DELETE") else f"{place}/new"
    asking = bearer(grid.here_door, grid.here.token(scope))
    answer = asking.ask(method, path, data=b"other" if method == "PUT" else None)
    assert answer.status_code == 403, f"{answer.status_code} {answer.text}"
    assert grid.here_door.get(f"{place}/there") == b"content"
    assert not grid.here_door.exists(f"{place}/new")


def test_a_token_that_may_create_may_not_replace(grid, place):
    asking = bearer(grid.here_door, grid.here.token("storage.create:/"))
    assert asking.ask("PUT", f"{place}/a", data=b"first").status_code == 201
    assert asking.ask("PUT", f"{place}/a", data=b"second").status_code == 403
    assert grid.here_door.get(f"{place}/a") == b"first"


ESCAPES = [
    "/foo/bargain",
    "/foo/bar/../secret",
    "/foo/bar/%2e%2e/secret",
    "/foo/bar/%2E./secret",
    "/foo/bar/..%2fsecret",
    "/foo/bar%2f..%2fsecret",
    "/foo/bar/%252e%252e/secret",
    "/foo//secret",
    "/./foo/secret",
    "//foo/secret",
    "/foo/bar/..;/secret",
    "/foo/bar/..\\secret",
    "/foo/bar/%00/../secret",
    "/FOO/BAR/secret",
    "/foo/ba",
    "/foo",
]


@pytest.mark.parametrize("escape", ESCAPES)
def test_no_spelling_of_a_path_leaves_the_scope(grid, place, escape):
    outside = [f"{place}/foo/secret", f"{place}/foo/bargain"]
    for path in outside:
        grid.here_door.put(path, b"classified")
    token = grid.here.token(f"storage.read:{place}/foo/bar storage.modify:{place}/foo/bar")
    for method in ("GET", "PUT", "DELETE"):
        _, body = raw_request(grid, token, method, place + escape)
        assert b"classified" not in body, f"{method} {escape}"
    assert all(grid.here_door.get(path) == b"classified" for path in outside)
    # Whatever was written went into the scope.
    assert grid.here_door.list(f"{place}/foo").keys() <= {f"{place}/foo", f"{place}/foo/bar", *outside}
    assert grid.here_door.list(place).keys() == {place, f"{place}/foo"}


@pytest.mark.parametrize(
    "escape", ["/foo/bargain", "/foo/secret", "/foo/bar/../secret", "/foo/bar/%2e%2e/secret"]
)
def test_what_is_outside_of_the_scope_is_refused(grid, place, escape):
    token = grid.here.token(f"storage.read:{place}/foo/bar storage.modify:{place}/foo/bar")
    for method in ("GET", "PUT", "DELETE"):
        status, body = raw_request(grid, token, method, place + escape)
        assert status in (400, 403), f"{method} {escape}: {status} {body!r}"


def raw_request(grid, token, method, target):
    """A request whose target is sent as it is: HTTP clients tidy paths up before they send them."""
    context = ssl.create_default_context(capath=str(grid.here.certificates))
    connection = http.client.HTTPSConnection(grid.here.host, grid.here.base, context=context, timeout=20)
    connection.putrequest(method, target, skip_accept_encoding=True)
    connection.putheader("Authorization", f"Bearer {token}")
    connection.putheader("Content-Length", "0" if method != "PUT" else "7")
    connection.endheaders(b"written" if method == "PUT" else None)
    answer = connection.getresponse()
    status, body = answer.status, answer.read()
    connection.close()
    return status, body


def test_a_move_out_of_the_scope_is_refused(grid, place):
    grid.here_door.put(f"{place}/foo/bar/a", b"a")
    asking = bearer(
        grid.here_door, grid.here.token(f"storage.modify:{place}/foo/bar storage.read:{place}/foo/bar")
    )
    for target in ("/foo/b", "/foo/bar/../b", "/foo/bargain"):
        answer = asking.ask(
            "MOVE", f"{place}/foo/bar/a", headers={"Destination": grid.here_door.url(place + target)}
        )
        assert answer.status_code in (400, 403), f"{target}: {answer.status_code}"
    assert grid.here_door.get(f"{place}/foo/bar/a") == b"a"


# Checksums.


def test_an_upload_with_another_checksum_is_refused_and_leaves_nothing(grid, place):
    answer = grid.here_door.ask("PUT", f"{place}/a", data=b"content", headers={"Digest": "adler32=00000001"})
    assert answer.status_code in (400, 409, 412, 422), answer.status_code
    assert "00000001" in answer.text and adler32(b"content") in answer.text
    assert not grid.here_door.exists(f"{place}/a")
    eventually("nothing is left in the pool", lambda: not grid.here.incoming())


@pytest.mark.parametrize("mode", ["both", "source", "target"])
def test_a_file_that_is_not_what_the_user_says_fails(grid, place, mode):
    data = content(place, 5000)
    grid.here_door.put(f"{place}/a", data)
    file = {
        "sources": [grid.here_door.url(f"{place}/a")],
        "destinations": [grid.there_door.url(f"{place}/b")],
        "checksum": "ADLER32:00000001",
    }
    # No retry: a bit that flipped on the way may not flip again, so a destination's mismatch is tried again.
    job = grid.service.submit(file, verify_checksum=mode, retry=-1)
    if mode == "source" or mode == "both":
        assert grid.service.wait_failed(job).startswith("SOURCE [5]")
    reason = grid.service.wait_failed(job)
    assert "checksum do not match" in reason and "00000001" in reason and adler32(data) in reason
    assert not grid.there_door.exists(f"{place}/b")
    grid.service.wait_idle()


# Files that are not there, or may not be touched.


def test_a_source_that_does_not_exist_fails_at_once(grid, place):
    job = grid.service.submit((grid.here_door.url(f"{place}/no"), grid.there_door.url(f"{place}/b")), retry=3)
    reason = grid.service.wait_failed(job)
    assert reason.startswith("SOURCE [2]") and "No such file or directory" in reason


def test_a_destination_that_exists_is_kept(grid, place):
    grid.here_door.put(f"{place}/a", b"new")
    grid.there_door.put(f"{place}/b", b"old")
    pair = (grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/b"))
    reason = grid.service.wait_failed(grid.service.submit(pair, retry=3))
    assert reason.startswith("DESTINATION [17]")
    assert "Destination file exists and overwrite is not enabled" in reason
    assert grid.there_door.get(f"{place}/b") == b"old"
    grid.service.wait_finished(grid.service.submit(pair, overwrite=True))
    assert grid.there_door.get(f"{place}/b") == b"new"


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_token_that_does_not_allow_the_transfer_fails_it(grid, place, side):
    grid.here_door.put(f"{place}/a", b"content")
    weak = grid.here.token("storage.read:/elsewhere")
    tokens = {"source": grid.token, "destination": grid.token} | {side: weak}
    job = grid.service.submit(
        {
            "sources": [grid.here_door.url(f"{place}/a")],
            "destinations": [grid.there_door.url(f"{place}/b")],
            "source_tokens": [tokens["source"]],
            "destination_tokens": [tokens["destination"]],
        }
    )
    reason = grid.service.wait_failed(job)
    assert reason.startswith(f"{side.upper()} [1]") and "403" in reason, reason
    assert weak not in reason and grid.token not in reason
    assert not grid.there_door.exists(f"{place}/b")


def test_jobs_of_another_vo_are_not_shown_or_stopped(grid, place):
    grid.here_door.put(f"{place}/a", b"content")
    job = grid.service.submit((grid.here_door.url(f"{place}/a"), grid.there_door.url(f"{place}/b")))
    stranger = Service(grid.here, grid.there.token())
    assert stranger.ask("GET", f"/jobs/{job}").status_code == 403
    assert stranger.ask("DELETE", f"/jobs/{job}").status_code == 403
    assert job not in stranger.ask("GET", "/jobs?state_in=FINISHED").text
    grid.service.wait_finished(job)


def test_plain_http_to_a_tls_port_and_garbage_are_survived(grid):
    for port in (grid.here.base, grid.here.base + 3):
        for junk in (
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x00" * 1000,
            b"\x16\x03\x01\xff\xff" + b"x" * 500,
            b"",
        ):
            with socket.create_connection((grid.here.host, port), timeout=10) as connection:
                connection.sendall(junk)
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(20)
                try:
                    while connection.recv(4096):
                        pass
                except ConnectionError:
                    pass
    assert statuses(grid, grid.token) == [207, 200]
