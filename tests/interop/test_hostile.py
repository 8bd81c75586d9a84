"""Clients that mean harm, and one that does not: what thousands of connections, slow ones, forged credentials and
bombs in requests do to a site, while somebody else goes on working there. Each is refused with the right code, is
told about, and leaves neither memory nor descriptors behind.
"""

import http.client
import os
import re
import resource
import select
import socket
import ssl
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from .clients import Door, Endpoint, content
from .site import Site
from .waiting import eventually

HOST = "127.0.0.8"
# The hostile ones come from these; the honest one from another.
SOURCES = [f"127.0.1.{last}" for last in range(1, 11)]
HONEST = "127.0.1.200"
IDLE_CONNECTIONS = 10_000
VANISHING = {"guard": 3_000, "soak": 30_000}
# Under a build beside it a request may take a while; a service that is held up takes for ever.
HONEST_SECONDS_MAX = 15.0
# What may stay with the process: the allocator keeps some of what was used once.
MEMORY_BYTES_MAX = 256 << 20
HEAD_SECONDS, STALL_SECONDS, RATE_SECONDS = 3, 3, 2


@pytest.fixture(scope="module")
def site(binary, tmp_path_factory):
    """A site with short patience, so that its end can be waited for."""
    site = Site(binary, tmp_path_factory.mktemp("hostile") / "site", "fortress", HOST)
    site.configure("[storage]", plain_listen=f"{HOST}:{site.base + 1}")
    site.configure(
        "[limits]",
        connections_per_client_max=2000,
        head_timeout=f"{HEAD_SECONDS}s",
        stall_timeout=f"{STALL_SECONDS}s",
        rate_min="1 kB",
        rate_interval=f"{RATE_SECONDS}s",
    )
    site.start()
    yield site
    code = site.stop()[0]
    assert code == 0, site.log_tail()


@pytest.fixture(scope="module")
def door(site):
    door = Door(site)
    door.put("/before", b"still here")
    return door


@pytest.fixture(autouse=True, scope="module")
def many_files():
    """Each connection of a test is a descriptor of the test, too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def memory(site):
    status = open(f"/proc/{site.process.pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10


def descriptors(site):
    return len(os.listdir(f"/proc/{site.process.pid}/fd"))


def log(site):
    return (site.directory / f"serve-{site.starts}.log").read_text(errors="replace")


@pytest.fixture(autouse=True)
def unmoved(site, door):
    """Around every test: nothing is left of what it did, and the site still works."""
    before, kept = descriptors(site), memory(site)
    yield
    assert site.is_running(), site.log_tail()
    # The honest clients' own connections may stay open.
    eventually("the descriptors are free again", lambda: descriptors(site) <= before + 32, 30)
    assert memory(site) - kept < MEMORY_BYTES_MAX, f"{kept} -> {memory(site)} bytes"
    assert door.get("/before") == b"still here"
    assert "panicked" not in log(site)


@dataclass
class Honest:
    """Somebody who works on while others attack: new connections and kept ones, both ports, reads and writes."""

    site: Site
    token: str
    seconds: list = field(default_factory=list)
    failures: list = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self):
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()
        eventually("the honest client works", lambda: len(self.seconds) > 4 or self.failures, 30)
        return self

    def __exit__(self, *_):
        done = len(self.seconds)
        # Some more of its work falls into the time when the attack is at its height.
        if not self.failures:
            eventually("it goes on", lambda: len(self.seconds) >= done + 8 or self.failures, 60)
        self.stopping.set()
        self.thread.join(60)
        assert not self.failures, self.failures[:3]
        assert max(self.seconds) < HONEST_SECONDS_MAX, f"{max(self.seconds):.1f} s"

    def work(self):
        context = ssl.create_default_context(capath=str(self.site.certificates))
        kept, number = self.connect(context, self.site.base), 0
        while not self.stopping.is_set():
            number += 1
            path = f"/honest/{number % 7}"
            new, service = self.connect(context, self.site.base), self.connect(context, self.site.base + 3)
            try:
                for connection in (kept, new):
                    self.ask(connection, "PUT", path, (201, 204), b"honest work")
                    self.ask(connection, "GET", path, (200,))
                self.ask(service, "GET", "/whoami", (200,))
            except (OSError, http.client.HTTPException) as failure:
                self.failures.append(repr(failure))
            new.close()
            service.close()
        kept.close()

    def connect(self, context, port):
        return http.client.HTTPSConnection(
            self.site.host, port, context=context, timeout=60, source_address=(HONEST, 0)
        )

    def ask(self, connection, method, path, expected, body=None):
        begun = time.monotonic()
        connection.request(method, path, body, {"Authorization": f"Bearer {self.token}"})
        answer = connection.getresponse()
        answer.read()
        self.seconds.append(time.monotonic() - begun)
        if answer.status not in expected:
            self.failures.append(f"{method} {path}: {answer.status}")


@pytest.fixture
def honest(site):
    with Honest(site, site.token()) as honest:
        yield honest


def connect(site, offset=1, source=SOURCES[0]):
    return socket.create_connection((site.host, site.base + offset), timeout=60, source_address=(source, 0))


def encrypted(site, offset=0, source=SOURCES[0]):
    context = ssl.create_default_context(capath=str(site.certificates))
    return context.wrap_socket(connect(site, offset, source), server_hostname=site.host)


def read_all(stream):
    """Until the other end closes, or resets because it does not want the rest."""
    stream.settimeout(30)
    read = b""
    try:
        while piece := stream.recv(65536):
            read += piece
    except (ConnectionError, ssl.SSLError):
        pass
    return read


def talk(site, request, offset=1):
    """Everything that comes back for some bytes until the site closes the connection."""
    stream = encrypted(site, offset) if offset != 1 else connect(site, offset)
    with stream:
        try:
            stream.sendall(request)
        except (ConnectionError, ssl.SSLError):
            pass
        return read_all(stream)


def status(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer[9:12])


def answers(text):
    return len(re.findall(rb"(?m)^HTTP/1\.1 \d{3} ", text))


# Too many connections, and slow ones.


def test_ten_thousand_idle_connections_leave_the_service_unmoved(site, honest):
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1000
    wanted = min(IDLE_CONNECTIONS, room)
    tls = ssl.create_default_context(capath=str(site.certificates))
    with ExitStack() as open_ones:
        for number in range(wanted):
            source, offset = SOURCES[number % len(SOURCES)], (1, 1, 1, 1, 0, 3)[number % 6]
            stream = open_ones.enter_context(connect(site, offset, source))
            # Of those at TLS ports some shake hands, and others leave that open.
            if offset != 1 and number % 4 == 0:
                open_ones.enter_context(tls.wrap_socket(stream, server_hostname=site.host))
        done = len(honest.seconds)
        eventually("the honest client goes on", lambda: len(honest.seconds) > done + 20 or honest.failures, 60)
        assert not honest.failures, honest.failures[:3]


def test_a_client_over_its_share_loses_its_own_connections(site, honest):
    with ExitStack() as open_ones:
        streams = [open_ones.enter_context(connect(site, 1, "127.0.1.77")) for _ in range(2050)]
        # Which of them go is the oldest; the newest is served.
        eventually("the oldest is closed", lambda: select.select(streams[:1], [], [], 0)[0], 20)
        assert streams[0].recv(1) == b""
        streams[-1].sendall(b"OPTIONS / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert status(read_all(streams[-1])) == 200


@pytest.mark.parametrize("offset", [1, 0, 3], ids=["plain", "tls", "service"])
def test_heads_that_drip_are_cut_in_time(site, honest, offset):
    count = 500 if offset == 1 else 60
    with ExitStack() as open_ones:
        streams = []
        for number in range(count):
            source = SOURCES[number % len(SOURCES)]
            stream = connect(site, offset, source) if offset == 1 else encrypted(site, offset, source)
            streams.append(open_ones.enter_context(stream))
            stream.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        begun = time.monotonic()
        alive = set(streams)
        while alive and time.monotonic() - begun < 60:
            for stream in list(alive):
                try:
                    stream.sendall(b"x")
                except OSError:
                    alive.discard(stream)
            # What the end said, or that it closed.
            for stream in select.select(list(alive), [], [], 1.0)[0]:
                alive.discard(stream)
        assert not alive, f"{len(alive)} of {count} drip on after a minute"


def test_uploads_that_drip_are_cut_in_time_and_leave_nothing(site, honest, door):
    token = site.token()
    with ExitStack() as open_ones:
        streams = []
        for number in range(50):
            stream = open_ones.enter_context(connect(site, 1, SOURCES[number % len(SOURCES)]))
            length = "Transfer-Encoding: chunked" if number % 2 else "Content-Length: 1000000"
            head = f"PUT /drip/{number} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{length}\r\n\r\n"
            stream.sendall(head.encode())
            streams.append(stream)
        begun = time.monotonic()
        alive = set(streams)
        while alive and time.monotonic() - begun < 60:
            for stream in list(alive):
                try:
                    # A chunk's size that never ends, or one byte of a file.
                    stream.sendall(b"0")
                except OSError:
                    alive.discard(stream)
            for stream in select.select(list(alive), [], [], 0.5)[0]:
                alive.discard(stream)
                assert status(stream.recv(4096)) == 408
        assert not alive, f"{len(alive)} drip on after a minute"
    eventually("nothing is being written any more", lambda: not site.incoming())
    assert door.list("/drip") == {}


def test_downloads_that_nobody_reads_end_in_time(site, honest, door):
    door.put("/large", content("hostile", 32 << 20))
    token = site.token()
    before = descriptors(site)
    request = f"GET /large HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    with ExitStack() as open_ones:
        for number in range(60):
            offset = (1, 0)[number % 2]
            source = SOURCES[number % len(SOURCES)]
            stream = connect(site, offset, source) if offset else encrypted(site, 0, source)
            open_ones.enter_context(stream).sendall(request)
        eventually("they are let go", lambda: descriptors(site) <= before + 32, 60)


def test_an_answer_of_the_service_that_nobody_reads_ends_in_time(site, honest):
    token = site.token()
    before = descriptors(site)
    # The live page's script is the largest answer that everybody may have.
    page = Endpoint(site.service, site.certificates, token).ask("GET", "/live/").text
    script = re.search(r'src="([^"]+\.js)"', page)[1]
    target = script if script.startswith("/") else f"/live/{script.removeprefix('./')}"
    request = f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    with ExitStack() as open_ones:
        # All are open before the first asks, so that none has been let go when the last is counted.
        streams = [
            open_ones.enter_context(encrypted(site, 3, SOURCES[number % len(SOURCES)])) for number in range(60)
        ]
        for stream in streams:
            stream.setblocking(False)
            try:
                # Many requests, of which no answer is ever read.
                for _ in range(300):
                    stream.send(request)
            except (ssl.SSLError, OSError):
                pass
        eventually("they are held up", lambda: descriptors(site) >= before + 50)
        eventually("they are let go", lambda: descriptors(site) <= before + 32, 60)


def test_a_slow_but_steady_upload_goes_through(site, honest, door):
    data = content("steady", 40_000)

    def slowly():
        for at in range(0, len(data), 2000):
            yield data[at : at + 2000]
            time.sleep(0.25)

    door.put("/steady", slowly())
    assert door.get("/steady") == data


def test_clients_that_vanish_leave_nothing_behind(site, honest, door, tier):
    """Thousands of connections in all states, closed without a word; the fixture looks for what stays."""
    token = site.token()
    head = f"PUT /vanished HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\nhalf"
    beginnings = [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", head.encode(), b"OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n"]
    before, kept = descriptors(site), memory(site)
    for round_number in range(3):
        for number in range(VANISHING[tier.name] // 3):
            offset = 1 if number % 20 else 0
            with connect(site, offset, SOURCES[number % len(SOURCES)]) as stream:
                if offset == 1:
                    stream.sendall(beginnings[number % len(beginnings)])
                else:
                    stream.sendall(b"\x16\x03\x01\x02\x00\x01")
        eventually("the descriptors are free again", lambda: descriptors(site) <= before + 32, 30)
        if round_number == 0:
            kept = memory(site)
    assert memory(site) - kept < 32 << 20, f"it grows: {kept} -> {memory(site)} bytes"
    eventually("nothing is being written any more", lambda: not site.incoming())
    assert not door.exists("/vanished")


def test_the_log_tells_of_a_flood_in_few_lines(site):
    before = log(site).count("\n")
    for number in range(500):
        assert status(talk(site, b"GET / HTTP/9.9\r\nHost: x\r\n\r\n")) == 505, number
    lines = log(site).splitlines()[before:]
    assert len(lines) < 20, lines[-20:]


# Heads and bodies that could be read in two ways, or are too large.

PADDING = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
HEADS = {
    "a long request line": (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {414}),
    "a megabyte of one header": (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n", {431}),
    "100,000 headers": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 100_000 + b"\r\n", {431}),
    "120 headers": (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 120 + b"\r\n", {431}),
    "length and chunks": (
        b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        {400},
    ),
    "chunks and length": (
        b"PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        {400},
    ),
    "two lengths": (b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 35\r\n\r\n", {400}),
    "a list of lengths": (b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0, 35\r\n\r\n", {400}),
    "a signed length": (b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: +35\r\n\r\n", {400}),
    "a negative length": (b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", {400}),
    "a hexadecimal length": (b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: 0x23\r\n\r\n", {400}),
    "an endless length": (b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n", {400, 413}),
    "chunks twice": (
        b"PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        {400, 501},
    ),
    "chunks and then not": (
        b"PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        {400, 501},
    ),
    "almost chunks": (b"PUT /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", {400, 501}),
    "chunks in HTTP/1.0": (b"PUT /x HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
    "a folded header": (b"GET / HTTP/1.1\r\nHost: x\r\nX: y\r\n z\r\n\r\n", {400}),
    "white space before the colon": (b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length : 35\r\n\r\n", {400}),
    "white space before the first header": (b"PUT / HTTP/1.1\r\n Content-Length: 35\r\nHost: x\r\n\r\n", {400}),
    "a NUL": (b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n", {400}),
    "a CR alone": (b"GET / HTTP/1.1\r\nHost: x\r\nX: a\rContent-Length: 35\r\n\r\n", {400}),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", {400}),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", {400}),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}),
    "no HTTP": (b"EHLO example.org\r\n\r\n", {400}),
}
# The door alone is as strict as this; the service behind hyper takes a line feed for the end of a line.
DOOR_HEADS = {
    "bare line feeds": (b"GET / HTTP/1.1\nHost: x\n\n", {400}),
    "one bare line feed": (b"GET / HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", {400}),
}


@pytest.mark.parametrize("case", HEADS | DOOR_HEADS)
def test_a_head_that_could_be_read_in_two_ways_is_refused_at_the_door(site, case):
    request, expected = (HEADS | DOOR_HEADS)[case]
    answer = talk(site, request + PADDING)
    assert status(answer) in expected, answer[:300]
    # What followed was not taken for a request: the connection is closed after one answer.
    assert answers(answer) == 1, answer


@pytest.mark.parametrize("case", HEADS)
def test_a_head_that_could_be_read_in_two_ways_is_refused_at_the_service(site, case):
    request, expected = HEADS[case]
    answer = talk(site, request + PADDING, offset=3)
    # hyper has one status for all that is too large, closes without a word at what is no HTTP at all, and after an
    # answer to a request that could be read in two ways.
    refused = not answer or status(answer) in expected | {400, 414, 431}
    assert refused or b"\r\nconnection: close\r\n" in answer, answer[:300]
    assert answers(answer) <= 1, answer


CHUNKS = {
    "a size beyond 64 bits": b"fffffffffffffffff\r\n",
    "a negative size": b"-1\r\n",
    "a size with a prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "an extension without end": b"5;x=" + b"y" * 100_000,
    "trailers without end": b"0\r\n" + b"X: y\r\n" * 10_000,
    "a chunk longer than its size": b"3\r\nhello\r\n0\r\n\r\n",
    "a size that ends with a line feed": b"5\nhello\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("case", CHUNKS)
def test_chunks_that_make_no_sense_are_refused_and_leave_nothing(site, door, case):
    head = f"PUT /chunks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.token()}\r\n"
    answer = talk(site, head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS[case] + PADDING)
    assert status(answer) == 400 and answers(answer) == 1, answer[:300]
    assert not door.exists("/chunks")


def test_a_short_extension_of_a_chunk_is_put_up_with(site, door):
    head = f"PUT /extended HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {site.token()}\r\n"
    body = b"Transfer-Encoding: chunked\r\n\r\n5;name=value\r\nhello\r\n0\r\nX-Trailer: y\r\n\r\n"
    assert status(talk(site, head.encode() + body)) == 201
    assert door.get("/extended") == b"hello"
