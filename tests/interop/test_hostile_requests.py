"""Requests that mean harm, one at a time: forged tokens and macaroons, ranges, documents and copies that would make a
door work, or reach, further than its client may. Each is refused with the right code, and costs the door nothing.
"""

import base64
import hashlib
import hmac
import json
import re
import socket
import subprocess
import threading
import time
from contextlib import ExitStack

import pytest

from .clients import Endpoint, adler32, content
from .waiting import eventually

# What one request may cost at most, on a machine that is busy with builds.
SECONDS_MAX = 20
MEMORY_BYTES_MAX = 128 << 20


@pytest.fixture(autouse=True)
def cheap(grid):
    """Around every test: the memory of the site does not grow by it."""
    before = memory(grid.here)
    begun = time.monotonic()
    yield
    assert grid.here.is_running(), grid.here.log_tail()
    assert memory(grid.here) - before < MEMORY_BYTES_MAX, f"{before} -> {memory(grid.here)} bytes"
    assert time.monotonic() - begun < 3 * SECONDS_MAX
    assert "panicked" not in (grid.here.directory / f"serve-{grid.here.starts}.log").read_text(errors="replace")


def memory(site):
    with open(f"/proc/{site.process.pid}/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) << 10


# Tokens.


def encoded(data):
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def signed_by(key, header, claims, directory):
    """An ES256 token by any key, with OpenSSL's DER signature turned into the one that tokens have."""
    text = f"{encoded(header)}.{encoded(claims)}"
    (directory / "signed").write_text(text)
    der = subprocess.run(
        ["openssl", "dgst", "-sha256", "-sign", str(key), str(directory / "signed")], capture_output=True, check=True
    ).stdout
    at, numbers = 2, []
    for _ in range(2):
        length = der[at + 1]
        numbers.append(der[at + 2 : at + 2 + length].lstrip(b"\0").rjust(32, b"\0"))
        at += 2 + length
    return f"{text}.{encoded(b''.join(numbers))}"


@pytest.fixture
def forgeries(grid, tmp_path):
    """Tokens that somebody would make who has one good token, and knows the public key."""
    header, claims = (json.loads(decoded(part)) for part in grid.token.split(".")[:2])
    signature = grid.token.split(".")[2]
    key = tmp_path / "stranger.pem"
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(key)],
        check=True,
        capture_output=True,
    )
    jwks = Endpoint(grid.here.door, grid.here.certificates).ask("GET", "/jwks").json()["keys"]
    public = decoded(jwks[0]["x"]) + decoded(jwks[0]["y"])

    def with_hmac(secret):
        text = f"{encoded(header | {'alg': 'HS256'})}.{encoded(claims)}"
        return f"{text}.{encoded(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"

    embedded = {"kty": "EC", "crv": "P-256", "x": jwks[0]["x"], "y": jwks[0]["y"]}
    return {
        "no algorithm": f"{encoded(header | {'alg': 'none'})}.{encoded(claims)}.",
        "no algorithm, signed": f"{encoded(header | {'alg': 'none'})}.{encoded(claims)}.{signature}",
        "No Algorithm": f"{encoded(header | {'alg': 'nOnE'})}.{encoded(claims)}.",
        "the public key as a secret": with_hmac(public),
        "the public document as a secret": with_hmac(json.dumps(jwks[0]).encode()),
        "no secret": with_hmac(b""),
        "another key under its name": signed_by(key, header, claims, tmp_path),
        "another key under an unknown name": signed_by(key, header | {"kid": "mine"}, claims, tmp_path),
        "another key without a name": signed_by(key, {"alg": "ES256"}, claims, tmp_path),
        "a key that it brings along": signed_by(key, header | {"jwk": embedded}, claims, tmp_path),
        "a key by address": signed_by(key, header | {"jku": "https://127.0.0.1:1/jwks"}, claims, tmp_path),
        "a key by path": signed_by(key, header | {"kid": "../../../../dev/null"}, claims, tmp_path),
        "another issuer": signed_by(key, header, claims | {"iss": "https://127.0.0.1:1"}, tmp_path),
        "an issuer with a slash": signed_by(key, header, claims | {"iss": claims["iss"] + "/"}, tmp_path),
        "a later end": f"{encoded(header)}.{encoded(claims | {'exp': claims['exp'] + 1})}.{signature}",
        "no signature": ".".join(grid.token.split(".")[:2]) + ".",
        "zeros for a signature": f"{encoded(header)}.{encoded(claims)}.{encoded(bytes(64))}",
        "a critical extension": signed_by(key, header | {"crit": ["exp"]}, claims, tmp_path),
        "a token in a token": f"{encoded(header)}.{encoded(grid.token.encode())}.{signature}",
        "meant for another service": grid.here.token(audience="https://elsewhere.org"),
        "a bomb for a header": f"{encoded(b'[' * 3000)}.{encoded(claims)}.{signature}",
    }


def refusals(grid):
    """What the log says of credentials that were refused."""
    said = ("refused a bearer credential", "a token was refused")
    return [line for line in grid.here.log_text().splitlines() if any(text in line for text in said)]


def assert_refused(grid, endpoint, method, path, credential, name):
    """401, and one line in the log that says why without saying what."""
    before = len(refusals(grid))
    asking = Endpoint(endpoint.base, endpoint.session.verify, credential)
    answer = asking.ask(method, path, headers={"Depth": "0"})
    assert answer.status_code == 401, f"{name}: {answer.status_code} {answer.text}"
    [line] = refusals(grid)[before:]
    assert "WARN" in line and credential not in line, f"{name}: {line}"
    return answer


def test_forged_tokens_are_refused_at_both_ports(grid, forgeries):
    for endpoint, method, path in ((grid.here_door, "PROPFIND", "/"), (grid.service, "GET", "/whoami")):
        for name, token in forgeries.items():
            answer = assert_refused(grid, endpoint, method, path, token, name)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            # A text that is echoed must not be a credential.
            assert token not in answer.text
        honest = endpoint.ask(method, path, headers={"Depth": "0"})
        assert honest.status_code in (200, 207), honest.text


# Macaroons.


def packets(text):
    """A macaroon as its packets, each with its name."""
    rest, found = decoded(text), []
    while rest:
        length = int(rest[:4], 16)
        name, _, value = rest[4 : length - 1].partition(b" ")
        found.append((name, value))
        rest = rest[length:]
    return found


def macaroon_of(found):
    whole = b""
    for name, value in found:
        body = name + b" " + value + b"\n"
        whole += f"{len(body) + 4:04x}".encode() + body
    return encoded(whole)


def request_macaroon(door, path, *caveats, validity="PT10M"):
    answer = door.ask(
        "POST",
        path,
        data=json.dumps({"caveats": list(caveats), "validity": validity}),
        headers={"Content-Type": "application/macaroon-request"},
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["macaroon"]


def test_changed_macaroons_are_refused(grid, place):
    grid.here_door.put(f"{place}/in/a", b"content")
    grid.here_door.put(f"{place}/out", b"classified")
    text = request_macaroon(grid.here_door, f"{place}/in", "activity:DOWNLOAD")
    good = packets(text)
    caveats = [packet for packet in good if packet[0] == b"cid"]
    others = [packet for packet in good if packet[0] not in (b"cid", b"signature")]
    signature = [packet for packet in good if packet[0] == b"signature"]
    assert macaroon_of(good) == text.rstrip("=")

    def replaced(old, new):
        return [(name, value.replace(old, new)) for name, value in good]

    forged = {
        "a wider path": replaced(f"{place}/in".encode(), place.encode()),
        "more activities": replaced(b"activity:DOWNLOAD", b"activity:DOWNLOAD,MANAGE,UPLOAD,DELETE"),
        "another user": replaced(b"alice", b"admin"),
        "a later end": replaced(b"before:20", b"before:29"),
        "caveats in another order": others + caveats[::-1] + signature,
        "a caveat twice": others + caveats + caveats[-1:] + signature,
        "an older signature": others + caveats + [(b"cid", b"activity:MANAGE")] + signature,
        "no signature": others + caveats,
        "no caveats": others + signature,
        "a signature of zeros": others + caveats + [(b"signature", bytes(32))],
        "two signatures": good + signature,
        "a caveat for others": others + caveats + [(b"vid", b"x"), (b"cl", b"https://elsewhere")] + signature,
    }
    for number in range(len(caveats)):
        forged[f"without caveat {number}"] = others + caveats[:number] + caveats[number + 1 :] + signature
    for name, found in forged.items():
        for path in (f"{place}/in/a", f"{place}/out"):
            assert_refused(grid, grid.here_door, "GET", path, macaroon_of(found), name)
        # The transfer service believes no macaroon, changed or not.
        assert_refused(grid, grid.service, "GET", "/whoami", macaroon_of(found), name)
    assert_refused(grid, grid.service, "GET", "/jobs", text, "a good one")
    holder = Endpoint(grid.here_door.base, grid.here_door.session.verify, text)
    assert holder.ask("GET", f"{place}/in/a").content == b"content"
    assert holder.ask("GET", f"{place}/out").status_code == 403


def test_macaroons_of_another_site_and_of_yesterday_are_refused(grid, place):
    grid.here_door.put(f"{place}/a", b"content")
    grid.there_door.put(f"{place}/a", b"content")
    foreign = request_macaroon(grid.there_door, place, "activity:DOWNLOAD")
    holder = Endpoint(grid.here_door.base, grid.here_door.session.verify, foreign)
    assert holder.ask("GET", f"{place}/a").status_code == 401
    short = request_macaroon(grid.here_door, place, "activity:DOWNLOAD", validity="PT1S")
    holder = Endpoint(grid.here_door.base, grid.here_door.session.verify, short)
    eventually("it has ended", lambda: holder.ask("GET", f"{place}/a").status_code == 401, 20)


@pytest.mark.parametrize(
    "body, expected",
    [
        (b"[" * 4000, {400}),
        (b'{"caveats": [' + b'"activity:LIST",' * 250 + b'"activity:LIST"], "validity": "PT1M"}', {400, 413}),
        (b'{"validity": "PT-5M"}', {400}),
        (b'{"caveats": ["path:/../.."], "validity": "PT1M"}', {400}),
        (b'{"caveats": ["unknown:x"], "validity": "PT1M"}', {400}),
        (b"x" * 100_000, {400, 413}),
    ],
    ids=["deep", "many-caveats", "negative", "outside", "unknown", "large"],
)
def test_requests_for_macaroons_that_make_no_sense_are_refused(grid, body, expected):
    headers = {"Content-Type": "application/macaroon-request"}
    assert grid.here_door.ask("POST", "/", data=body, headers=headers).status_code in expected


def test_nobody_gets_a_macaroon_for_ever(grid):
    for validity in ("P99999999999999D", "P1000D"):
        answer = grid.here_door.ask(
            "POST",
            "/",
            data=json.dumps({"validity": validity}),
            headers={"Content-Type": "application/macaroon-request"},
        )
        assert answer.status_code == 400 or answer.json()["expires_in"] <= 12 * 3600, answer.text


# Ranges.


def test_a_request_for_thousands_of_ranges_is_refused(grid, place):
    grid.here_door.put(f"{place}/a", content("ranges", 100_000))
    many = ",".join("1-1" for _ in range(10_000))
    assert grid.here_door.ask("GET", f"{place}/a", headers={"Range": f"bytes={many}"}).status_code == 416


@pytest.mark.parametrize(
    "ranges", ["0-" + ",0-" * 1000, "0-99999,1-99998", ",".join(f"{n}-" for n in range(1000)), "-100000,-99999,0-"]
)
def test_overlapping_ranges_never_send_a_file_more_than_once(grid, place, ranges):
    grid.here_door.put(f"{place}/a", content("ranges", 100_000))
    answer = grid.here_door.ask("GET", f"{place}/a", headers={"Range": f"bytes={ranges}"})
    assert answer.status_code == 206 and len(answer.content) <= 100_000 + 1000


# Documents.

ASK = '<propfind xmlns="DAV:"><prop>'
ASKED = "</prop></propfind>"
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
BOMBS = {
    "laughs": f'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY l0 "ha">{LAUGHS}]>{ASK}&l9;{ASKED}',
    "one large entity": f'<!DOCTYPE p [<!ENTITY a "{"a" * 30_000}">]><propfind xmlns="DAV:">{"&a;" * 1000}</propfind>',
    "a file": f'<!DOCTYPE p [<!ENTITY f SYSTEM "file:///etc/passwd">]>{ASK}&f;{ASKED}',
    "an address": '<!DOCTYPE p SYSTEM "http://127.0.0.1:1/x.dtd"><propfind xmlns="DAV:"><allprop/></propfind>',
    "depth": "<a>" * 10_000 + "</a>" * 10_000,
    "depth without end": "<a>" * 20_000,
    "many properties": ASK + "".join(f"<p{n}/>" for n in range(4000)) + ASKED,
    "a long name": f"{ASK}<{'n' * 60_000}/>{ASKED}",
    "many attributes": "<propfind xmlns='DAV:' " + " ".join(f"a{n}='x'" for n in range(5000)) + "/>",
    "megabytes": '<propfind xmlns="DAV:">' + " " * 5_000_000 + "</propfind>",
    "another encoding": '<?xml version="1.0" encoding="utf-16"?><propfind xmlns="DAV:"><allprop/></propfind>',
    "no XML": "\0\1\2",
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("method", ["PROPFIND", "PROPPATCH", "LOCK"])
def test_documents_that_explode_are_refused_at_once(grid, place, method, bomb):
    grid.here_door.put(f"{place}/a", b"content")
    begun = time.monotonic()
    answer = grid.here_door.ask(
        method, f"{place}/a", data=BOMBS[bomb].encode(), headers={"Content-Type": "application/xml", "Depth": "0"}
    )
    assert time.monotonic() - begun < SECONDS_MAX
    # What is well formed and small is only unusual.
    harmless = {"another encoding": {200, 207}, "many attributes": {200, 207}, "a long name": {207}}.get(bomb, set())
    assert answer.status_code in {400, 403, 405, 413, 415, 422} | harmless, f"{answer.status_code} {answer.text[:200]}"
    assert "root:" not in answer.text and len(answer.content) < 1_000_000


def test_a_large_tree_is_not_listed_at_once(grid, place):
    for number in range(60):
        grid.here_door.put(f"{place}/{number % 6}/{number}", b"x")
    for depth in ("infinity", "2", "x", "-1", "1, infinity"):
        answer = grid.here_door.ask("PROPFIND", place, headers={"Depth": depth})
        assert answer.status_code in (400, 403), f"{depth}: {answer.status_code}"
    assert len(grid.here_door.list(f"{place}/0")) == 11


JSON_BOMBS = {
    "deep objects": '{"files":' * 50_000,
    "deep and whole": '{"files": [], "params": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a large number": '{"files": [], "params": {"retry": 1e999}}',
    "a long number": '{"files": [], "params": {"retry": ' + "9" * 1_000_000 + "}}",
    "many keys": "{" + ",".join(f'"k{n}": 1' for n in range(200_000)) + "}",
    "half a surrogate": '{"files": [{"sources": ["\\ud800"]}]}',
    "no text": '{"files": "\xff"}',
}


@pytest.mark.parametrize("bomb", JSON_BOMBS)
def test_submissions_that_explode_are_refused_at_once(grid, bomb):
    begun = time.monotonic()
    answer = grid.service.ask(
        "POST", "/jobs", data=JSON_BOMBS[bomb].encode("latin-1"), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400, f"{answer.status_code} {answer.text[:200]}"
    assert time.monotonic() - begun < SECONDS_MAX


# Copies to where only the door can reach.


class Listener:
    """Counts who connects to a port that nobody has any business with."""

    def __init__(self, host):
        self.socket = socket.create_server((host, 0))
        self.port = self.socket.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        try:
            while True:
                self.socket.accept()[0].close()
                self.connections += 1
        except OSError:
            pass


@pytest.mark.parametrize("header", ["Source", "Destination"])
def test_copies_reach_nothing_that_is_not_allowed(grid, place, header):
    grid.here_door.put(f"{place}/a", b"content")
    with ExitStack() as listening:
        inner = Listener("127.0.0.1")
        listening.callback(inner.socket.close)
        there = f"127.0.0.1:{inner.port}/x"
        addresses = [
            f"http://{there}",
            f"https://{there}",
            f"http://localhost:{inner.port}/x",
            f"http://127.1:{inner.port}/x",
            f"http://2130706433:{inner.port}/x",
            f"http://0x7f000001:{inner.port}/x",
            f"http://0177.0.0.1:{inner.port}/x",
            f"http://[::ffff:127.0.0.1]:{inner.port}/x",
            f"http://0.0.0.0:{inner.port}/x",
            f"http://{grid.here.host}@{there}",
            f"http://{grid.here.host}%40{there}",
            f"http://{grid.here.host}.localhost:{inner.port}/x",
            "http://169.254.169.254/latest/meta-data/",
            "http://[fd00:ec2::254]/latest/meta-data/",
            "file:///etc/passwd",
            "file://localhost/etc/passwd",
            "gopher://127.0.0.1/x",
            "data:text/plain,x",
            "//127.0.0.1/x",
            "/etc/passwd",
            "",
        ]
        for address in addresses:
            path = f"{place}/new" if header == "Source" else f"{place}/a"
            answer = grid.here_door.ask("COPY", path, headers={header: address, "Credential": "none"})
            refused = answer.status_code in (400, 403, 404, 501, 502) or "failure:" in answer.text
            assert refused, f"{address}: {answer.status_code} {answer.text}"
            assert "root:" not in answer.text
        assert inner.connections == 0
    assert not grid.here_door.exists(f"{place}/new")
    assert grid.here_door.get(f"{place}/a") == b"content"


@pytest.mark.parametrize("header", ["Source", "Destination"])
def test_a_copy_to_ourselves_ends(grid, place, header):
    data = content("ourselves", 100_000)
    grid.here_door.put(f"{place}/a", data)
    begun = time.monotonic()
    # Onto itself: whatever the door makes of it, it ends, and the file stays what it was.
    answer = grid.here_door.ask(
        "COPY",
        f"{place}/a",
        headers={
            header: grid.here_door.url(f"{place}/a"),
            "TransferHeaderAuthorization": f"Bearer {grid.token}",
            "Credential": "none",
        },
    )
    assert answer.status_code in (201, 202, 204, 400, 403, 409), answer.status_code
    assert time.monotonic() - begun < SECONDS_MAX
    assert grid.here_door.get(f"{place}/a") == data
    assert grid.here_door.checksum(f"{place}/a") == adler32(data)
