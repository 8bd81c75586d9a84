"""Attacks on the storage element by clients that may be there: slots that are held and not used, space that is announced
and not filled, links and tokens that do more than they should, names that others trust, and thousands of connections.
Each of them leaves others served.
"""

import http.client
import os
import re
import resource
import select
import shutil
import signal
import socket
import ssl
import stat
import statistics
import subprocess
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from .site import Site
from .waiting import eventually

HOST = "127.0.0.31"
# Where attackers and others come from, by kind of address.
ATTACKER = {"v4": "127.0.1.31", "v6": "::1"}
OTHER = {"v4": "127.0.1.131", "v6": "::1"}
UPLOAD_BYTES = 10_000_000
DRIP = b"x" * 700
DRIP_SECONDS = 0.45
# A machine under load may take a while; a door that is held up takes minutes.
SOON_SECONDS = 10
DAV = "{DAV:}"
LOCK = (
    b"<lockinfo xmlns='DAV:'><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>"
)


@contextmanager
def served(binary, directory, name, host=HOST, **pool):
    """A site with a door without TLS on both kinds of addresses."""
    site = Site(binary, directory / name, name, host)
    site.configure("[storage]", plain_listen=f"[::]:{site.base + 1}")
    if pool:
        site.configure("[[storage.pool]]", **pool)
    site.start()
    try:
        yield site
    finally:
        code = site.stop()[0]
        assert code == 0, site.log_tail()
        assert "panicked" not in site.log_text()


@pytest.fixture(scope="module")
def site(binary, tmp_path_factory):
    with served(binary, tmp_path_factory.mktemp("attack"), "keep") as site:
        yield site


def address(site, kind):
    return ("::1" if kind == "v6" else site.host, site.base + 1)


def ask(site, method, path, token=None, body=b"", kind="v4", source=None, timeout=60, **headers):
    """One request on a connection of its own; gives back status, headers and body."""
    host, port = address(site, kind)
    source = source or OTHER[kind]
    connection = http.client.HTTPConnection(host, port, timeout=timeout, source_address=(source, 0))
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        connection.request(method, path, body, {key.replace("_", "-"): text for key, text in headers.items()})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


class SlowUploads:
    """Many uploads at once, each far slower than any line, that are fed until the end of the block."""

    def __init__(self, site, tokens, count, kind="v4", prefix="/drop"):
        self.stopping = threading.Event()
        self.sockets = []
        for number in range(count):
            token = tokens[number % len(tokens)]
            stream = socket.create_connection(
                address(site, kind), timeout=30, source_address=(ATTACKER[kind], 0)
            )
            self.sockets.append(stream)
            head = f"PUT {prefix}/slow-{number} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            stream.sendall(f"{head}Content-Length: {UPLOAD_BYTES}\r\n\r\n".encode() + DRIP)
        self.feeder = threading.Thread(target=self.feed, daemon=True)

    def feed(self):
        while not self.stopping.wait(DRIP_SECONDS):
            _, writable, _ = select.select([], self.sockets, [], 0)
            for stream in writable:
                try:
                    stream.send(DRIP)
                except OSError:
                    # The door has ended this one.
                    self.sockets.remove(stream)
                    stream.close()

    def __enter__(self):
        self.feeder.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.feeder.join(30)
        for stream in self.sockets:
            stream.close()


def metric(site, name):
    """A number of the site's own metrics."""
    text = ask(site, "GET", "/.penstock/metrics", site.admin_token())[2].decode()
    (value,) = re.findall(rf"(?m)^{re.escape(name)} (\S+)$", text)
    return float(value)


def movers(site, state):
    (line,) = [
        line
        for line in ask(site, "GET", "/.penstock/metrics", site.admin_token())[2].decode().splitlines()
        if line.startswith("penstock_pool_movers{") and f'state="{state}"' in line
    ]
    return float(line.split()[-1])


def serves(site, token, within, kind="v4"):
    """A GET and a PUT of somebody else, in so many seconds."""
    begun = time.monotonic()
    status, _, body = ask(site, "GET", "/before", token, kind=kind, timeout=within)
    assert (status, body) == (200, b"before"), body
    status, _, body = ask(site, "PUT", f"/other/{begun}", token, b"other", kind=kind, timeout=within)
    assert status == 201, body
    return time.monotonic() - begun


@pytest.mark.parametrize("kind", ["v4", "v6"])
def test_slow_uploads_of_one_user_hold_up_nobody(binary, tmp_path, kind):
    with served(binary, tmp_path, "slots") as site:
        other = site.token(subject="other")
        assert ask(site, "PUT", "/before", other, b"before")[0] == 201
        flood = site.token("storage.create:/drop", subject="flood")
        with SlowUploads(site, [flood], 112, kind):
            eventually("the flood waits", lambda: movers(site, "queued") > 0, 30)
            assert serves(site, other, SOON_SECONDS, kind) < SOON_SECONDS


def test_slow_uploads_of_several_users_give_way(binary, tmp_path):
    with served(binary, tmp_path, "several", movers_max=16) as site:
        other = site.token(subject="other")
        assert ask(site, "PUT", "/before", other, b"before")[0] == 201
        flood = [site.token("storage.create:/drop", subject=f"flood{number}") for number in range(3)]
        with SlowUploads(site, flood, 48):
            eventually("all slots are taken", lambda: movers(site, "active") == 16, 30)
            # Two looks, five seconds apart, show who is slow.
            assert serves(site, other, 45) < 45
        assert "a mover is ended for another" in site.log_text()


def test_announced_bytes_keep_no_space(binary, tmp_path):
    with served(binary, tmp_path, "space", capacity="60 MB") as site:
        other = site.token(subject="other")
        greedy = site.token(subject="greedy")
        status, headers, body = ask(
            site, "PUT", "/greedy", greedy, Upload_Complete="?0", Upload_Length="50000000"
        )
        assert status == 201, body
        with socket.create_connection(address(site, "v4"), timeout=30) as stream:
            head = f"PUT /promise HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {greedy}\r\n"
            stream.sendall(f"{head}Content-Length: 50000000\r\n\r\n".encode() + bytes(3 << 20))
            eventually("it is being written", site.incoming, 20)
            status, _, body = ask(site, "PUT", "/other", other, bytes(20_000_000))
            assert status == 201, body
        # What cannot fit is refused at once, and what stops fitting leaves nothing.
        status, _, body = ask(site, "PUT", "/large", other, Upload_Complete="?0", Upload_Length="70000000")
        assert status == 507, body
        site.wait_tidy()


def shared(site, path):
    """The query of a link that `penstock share --upload` makes for a directory."""
    access = ["--dir", str(site.directory)]
    line = [str(site.binary), "share", f"{site.door}{path}", "--upload", *access]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return f"authz={done.stdout.strip().rpartition('/s/')[2]}"


def test_a_drop_box_only_takes_new_files(site):
    token = site.token(subject="alice")
    assert ask(site, "PUT", "/box/a", token, b"hers")[0] == 201
    link = shared(site, "/box")
    assert ask(site, "PUT", f"/box/new?{link}", body=b"x")[0] == 201
    attempts = [
        ("MOVE", "/box/a", {"Destination": "/box/gone"}, b""),
        ("MOVE", "/box/new", {"Destination": "/box/a", "Overwrite": "T"}, b""),
        ("COPY", "/box/new", {"Destination": "/box/a", "Overwrite": "T"}, b""),
        ("PUT", "/box/a", {}, b"mine"),
        ("DELETE", "/box/a", {}, b""),
        ("LOCK", "/box/free", {}, LOCK),
        ("LOCK", "/box/a", {}, LOCK),
        ("MKCOL", "/box/d", {}, b""),
    ]
    told = {
        f"{method} {path}": ask(site, method, f"{path}?{link}", body=body, **headers)[0]
        for method, path, headers, body in attempts
    }
    assert set(told.values()) == {403}, told
    assert ask(site, "GET", "/box/a", token)[2] == b"hers"


def test_a_creator_takes_no_file_of_others_away(site):
    creator = site.token("storage.create:/drop", subject="creator")
    owner = site.token(subject="owner")
    assert ask(site, "PUT", "/drop/theirs", owner, b"theirs")[0] == 201
    assert ask(site, "MOVE", "/drop/theirs", creator, Destination="/drop/gone")[0] == 403
    assert ask(site, "PUT", "/drop/theirs", creator, b"replaced")[0] == 403
    # As gfal2 and Rucio upload: under a temporary name first.
    assert ask(site, "PUT", "/drop/own.part", creator, b"own")[0] == 201
    assert ask(site, "MOVE", "/drop/own.part", creator, Destination="/drop/own")[0] == 201
    assert ask(site, "MOVE", "/drop/own", creator, Destination="/drop/theirs")[0] in (403, 412)


@pytest.mark.parametrize("name", ["/health", "/metrics", "/.well-known/wlcg-tape-rest-api", "/jwks", "/.oauth2/x"])
def test_names_that_others_trust_cannot_be_taken(site, name):
    token = site.token()
    before = ask(site, "GET", "/health")[:1]
    assert ask(site, "PUT", "/source", token, b"{}")[0] in (201, 204)
    told = [
        ask(site, "PUT", name, token, b"{}")[0],
        ask(site, "MKCOL", name, token)[0],
        ask(site, "COPY", "/source", token, Destination=name)[0],
        ask(site, "MOVE", "/source", token, Destination=name)[0],
    ]
    assert told == [403] * 4
    assert ask(site, "GET", "/health")[:1] == before == (200,)


def test_a_listing_neither_acts_nor_deceives(site):
    token = site.token()
    assert ask(site, "PUT", "/shown/x%E2%80%AEgpj.exe", token, b"x")[0] in (201, 204)
    _, headers, body = ask(site, "GET", "/shown", token, Accept="*/*")
    assert "x⟨U+202E⟩gpj.exe" in body.decode()
    assert headers["Content-Security-Policy"].startswith("default-src 'none'"), headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert "no-store" in headers["Cache-Control"]
    for path in ("/missing", "/missing?authz=x"):
        _, headers, _ = ask(site, "GET", path, token)
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")


def test_files_and_missing_things_have_no_depth(site):
    token = site.token()
    assert ask(site, "PUT", "/depth/f", token, b"x")[0] in (201, 204)
    told = {path: ask(site, "PROPFIND", path, token)[0] for path in ("/depth/f", "/depth/missing", "/depth")}
    assert told == {"/depth/f": 207, "/depth/missing": 404, "/depth": 403}


def test_only_the_root_tells_the_sites_usage_as_its_own(site):
    token = site.token()
    assert ask(site, "PUT", "/usage/f", token, b"x")[0] in (201, 204)
    question = b"<propfind xmlns='DAV:'><prop><quota-used-bytes/><quota-available-bytes/></prop></propfind>"

    def told(path):
        body = ask(site, "PROPFIND", path, token, question, Depth="0")[2]
        found = {element.tag: element.text for element in ElementTree.fromstring(body).iter()}
        return found.get(f"{DAV}quota-used-bytes"), found.get(f"{DAV}quota-available-bytes")

    assert int(told("/")[0]) > 0 and int(told("/")[1]) > 0
    used, available = told("/usage")
    assert used is None and int(available) > 0


def test_a_file_can_be_read_while_it_is_replaced(site):
    token = site.token()
    assert ask(site, "PUT", "/flip", token, b"0" * 1000)[0] in (201, 204)
    stopping, told = threading.Event(), []

    def replace():
        number = 0
        while not stopping.is_set():
            number += 1
            ask(site, "PUT", "/flip", token, str(number % 10).encode() * 1000)

    writers = [threading.Thread(target=replace, daemon=True)]
    for writer in writers:
        writer.start()
    try:
        for number in range(900):
            # A checksum that nobody has computed is read from the bytes, which takes longer.
            headers = {"Want_Digest": "sha-256"} if number % 3 == 0 else {}
            method = "HEAD" if number % 2 else "GET"
            told.append(ask(site, method, "/flip", token, **headers)[0])
    finally:
        stopping.set()
        for writer in writers:
            writer.join(60)
    assert {status: told.count(status) for status in set(told)} == {200: 900}


def test_a_checksum_that_many_ask_for_is_computed_once(site):
    token, size = site.token(), 40_000_000
    assert ask(site, "PUT", "/summed", token, b"s" * size)[0] in (201, 204)

    def read_bytes():
        text = Path(f"/proc/{site.process.pid}/io").read_text()
        return int(re.search(r"rchar: (\d+)", text)[1])

    before, told = read_bytes(), []

    def want():
        told.append(ask(site, "HEAD", "/summed", token, Want_Digest="md5")[0])

    many = [threading.Thread(target=want) for _ in range(12)]
    for one in many:
        one.start()
    for one in many:
        one.join(60)
    assert told == [200] * len(many)
    assert size <= read_bytes() - before < 2 * size


@contextmanager
def unprivileged_home(user):
    """A directory of somebody without rights, which they can reach."""
    home = Path(tempfile.mkdtemp(prefix="penstock-"))
    try:
        home.chmod(0o755)
        os.chown(home, user, user)
        yield home
    finally:
        shutil.rmtree(home)


def test_the_process_and_its_files_are_its_own(binary, tmp_path):
    with served(binary, tmp_path, "private") as site:
        for path in [site.directory / "pools", *site.directory.glob("pools/*")]:
            path.chmod(0o755)
        assert ask(site, "PUT", "/f", site.token(), bytes(3 << 20))[0] == 201
        status = Path(f"/proc/{site.process.pid}/status").read_text()
        assert "Umask:\t0077" in status
        limits = Path(f"/proc/{site.process.pid}/limits").read_text()
        (core,) = re.findall(r"(?m)^Max core file size +(\S+) +(\S+)", limits)
        assert core == ("1", "1")
        kept = [*site.directory.glob("pools/*/data/*/*"), *site.directory.glob("state/namespace.sqlite*")]
        assert len(kept) >= 3
        for path in kept:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
        # What an older version left open is closed by the next start.
        data = next(site.directory.glob("pools/*/data"))
        for path in (data, site.directory / "state/namespace.sqlite"):
            path.chmod(0o755)
        site.stop()
        site.start()
        for path in (data, site.directory / "state/namespace.sqlite"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_nobody_of_the_same_user_can_trace_the_process(binary):
    """Linux gives what it shows of a process that must not be traced to root."""
    user = 65534
    assert os.geteuid() == 0, "needs the right to become another user; run as root, such as in a container"
    with unprivileged_home(user) as home:
        directory = home / "site"
        init = [str(binary), "init", "--site", "low", "--host", HOST, "--dir", str(directory)]
        line = [*init, "--ports", str(free_base())]
        subprocess.run(line, check=True, capture_output=True, timeout=60, user=user, group=user)
        output = home / "out"
        with open(output, "wb") as out, open(home / "log", "wb") as log:
            process = subprocess.Popen(
                [str(binary), "serve", "--dir", str(directory)], stdout=out, stderr=log, user=user, group=user
            )
        try:
            eventually("it serves", lambda: "ready" in output.read_text().split(), 60)
            assert os.stat(f"/proc/{process.pid}/environ").st_uid == 0
            refused = subprocess.run(
                ["cat", f"/proc/{process.pid}/maps"], capture_output=True, user=user, group=user, extra_groups=[]
            )
            assert refused.returncode != 0 and b"Permission denied" in refused.stderr
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def free_base():
    from .site import free_ports

    return free_ports(HOST)


@pytest.fixture
def many_files():
    """Each connection of a test is a descriptor of the test, too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def memory_bytes(site):
    text = Path(f"/proc/{site.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) << 10


def crowd(stack, site, kind, count, token):
    """Connections of one address: silent ones, half a handshake, slow heads, and uploads without their bytes."""
    plain, encrypted = address(site, kind), (site.host, site.base)
    service = (site.host, site.base + 3)
    hello = bytes.fromhex("160301020001000100")
    begun = f"PUT /drop/crowd-%d HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\n"
    for number in range(count):
        # The doors with TLS are on the site's own address only.
        place, said = [
            (plain, b""),
            (encrypted, hello),
            (service, hello),
            (plain, b"GET / HTTP/1.1\r\nHost: "),
            (plain, (begun % number).encode()),
        ][number % 5]
        source = ATTACKER["v4"] if place[0] == site.host else ATTACKER["v6"]
        try:
            stream = socket.create_connection(place, timeout=30, source_address=(source, 0))
            stack.callback(stream.close)
            if said:
                stream.sendall(said)
        except OSError:
            # Turned away, which is the point.
            continue


@pytest.mark.parametrize("kind", ["v4", "v6"])
def test_a_crowd_of_connections_of_one_address_leaves_others_served(binary, tmp_path, many_files, kind):
    site = Site(binary, tmp_path / "crowd", "crowd", HOST)
    site.configure("[storage]", plain_listen=f"[::]:{site.base + 1}")
    # Fewer than one client may have: without a share for others, these would be all.
    site.configure("[limits]", connections_max=1000)
    site.start()
    try:
        other = site.token(subject="other")
        assert ask(site, "PUT", "/before", other, b"before", source=OTHER["v4"])[0] == 201
        kept = memory_bytes(site)
        with ExitStack() as stack:
            crowd(stack, site, kind, min(5000, many_files - 500), site.token("storage.create:/drop"))
            seconds = []
            context = ssl.create_default_context(capath=str(site.certificates))
            for number in range(20):
                begun = time.monotonic()
                status, _, body = ask(site, "GET", "/before", other, source=OTHER["v4"], timeout=30)
                assert (status, body) == (200, b"before")
                service = http.client.HTTPSConnection(
                    site.host, site.base + 3, context=context, timeout=30, source_address=(OTHER["v4"], 0)
                )
                service.request("GET", "/whoami", headers={"Authorization": f"Bearer {other}"})
                assert service.getresponse().status == 200
                service.close()
                seconds.append((time.monotonic() - begun) / 2)
            assert statistics.median(seconds) < 1.0, seconds
            assert memory_bytes(site) - kept < 256 << 20
    finally:
        code = site.stop()[0]
    assert code == 0 and "panicked" not in site.log_text(), site.log_tail()


def test_uploads_in_hand_of_one_address_leave_connections_to_others(binary, tmp_path, many_files):
    site = Site(binary, tmp_path / "working", "working", HOST)
    site.configure("[storage]", plain_listen=f"[::]:{site.base + 1}")
    site.configure("[limits]", connections_max=400)
    site.start()
    try:
        other = site.token(subject="other")
        assert ask(site, "PUT", "/before", other, b"before")[0] == 201
        flood = site.token("storage.create:/drop", subject="flood")
        with SlowUploads(site, [flood], 150), ExitStack() as stack:
            # Each has a request in hand, so none of them is asked to go.
            for number in range(500):
                try:
                    stream = socket.create_connection(
                        address(site, "v4"), timeout=30, source_address=(ATTACKER["v4"], 0)
                    )
                    stack.callback(stream.close)
                    head = f"PUT /drop/held-{number} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {flood}\r\n"
                    stream.sendall(f"{head}Content-Length: {UPLOAD_BYTES}\r\n\r\n".encode())
                except OSError:
                    continue
            assert serves(site, other, SOON_SECONDS) < SOON_SECONDS
    finally:
        code = site.stop()[0]
    assert code == 0 and "panicked" not in site.log_text(), site.log_tail()
